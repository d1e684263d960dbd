"""Tell of state so large that copying or writing it is what takes the time."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from noetic_nb.runtime.context.engine import Engine

__all__ = ["LIMIT_BYTES", "LargeState", "mind_size"]

# Runtime specification, section 2.5: a warning above 10 MiB serialised.
LIMIT_BYTES: Final = 10 * 1024 * 1024

_WHAT: Final = {
    "state": ("`ctx.state`, which every child gets a copy of,", "Keep large data outside of it and pass a key."),
    "checkpoint": (
        "The checkpoint, which is written after every step,",
        "Look at `ctx.state`, the layers, and the turn's items.",
    ),
}


class LargeState(UserWarning):
    """Something that is copied or written again and again has grown beyond 10 MiB.

    Attributes
    ----------
    step_id : str
        Where it was noticed.
    size : int
        Bytes, as JSON.
    """

    def __init__(self, step_id: str, what: Literal["state", "checkpoint"], size: int) -> None:
        said, hint = _WHAT[what]
        super().__init__(f"{said} has {size / 2**20:.1f} MiB as JSON at step {step_id!r}. {hint}")
        self.step_id = step_id
        self.size = size


def mind_size(engine: Engine, step_id: str, what: Literal["state", "checkpoint"], value: Any) -> None:
    """Tell the diagnostic, once per step, of a value above the limit. What is no JSON data is measured by its text."""
    if (step_id, what) in engine.told_large:
        return
    try:
        size = len(json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError):
        return  # it refers to itself, or has keys JSON cannot hold: nobody can say how large it is
    if size > LIMIT_BYTES:
        engine.told_large.add((step_id, what))
        engine.stack.state.diagnostic(step_id, what, LargeState(step_id, what, size))
