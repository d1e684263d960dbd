"""Warn of state so large that copying or writing it dominates the time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from noetic_nb.items._json_text import plain_text
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.storage._in_memory import json_text

# 10 MiB as JSON: what is copied for every child, or written after every step, is felt from about here on.
LIMIT_BYTES: Final = 10 * 1024 * 1024

_WHAT: Final = {
    "state": ("`ctx.state`, which every child gets a copy of,", "Keep large data outside of it and pass a key."),
    "checkpoint": (
        "The checkpoint, which is written after every step,",
        "Look at `ctx.state`, the layers, and the turn's items.",
    ),
}


class LargeState(UserWarning):
    """Something that is copied or written again and again has grown beyond 10 MiB; `size` is its bytes as JSON."""

    def __init__(self, step_id: str, what: Literal["state", "checkpoint"], size: int) -> None:
        subject, hint = _WHAT[what]
        super().__init__(f"{subject} has {size / 2**20:.1f} MiB as JSON at step {step_id!r}. {hint}")
        self.step_id = step_id
        self.size = size


class Measured(dict[str, Any]):
    """Data that a store writes as JSON text, and how long that was: to find it out a second time would take as long.

    What holds nothing but JSON data, `is_plain`, is written in a third of the time.
    """

    def __init__(self, key: str, data: Mapping[str, Any], *, is_plain: bool = False) -> None:
        super().__init__(data)
        self.key = key
        self.is_plain = is_plain
        self.size: int | None = None
        """Characters; None for what was not written as text."""

    def json_text(self) -> str:
        data = dict(self)
        text = plain_text(data) if self.is_plain else json_text(self.key, data)
        self.size = len(text)
        return text


# No character takes more bytes.
_MOST_BYTES: Final = 4


def is_small(characters: int | None) -> bool:
    """Tell whether so many characters are below the limit; False if they were not counted."""
    return characters is not None and characters * _MOST_BYTES <= LIMIT_BYTES


def warn_if_large(ctx: RunningExecution, step_id: str, what: Literal["state", "checkpoint"], value: object) -> None:
    """Report, once per step, a value above the limit. A value that is no JSON data is measured by its text."""
    engine = ctx.engine
    if type(value) is Measured and is_small(value.size):
        return
    if (step_id, what) in engine.warned_steps:
        return
    try:
        size = len(json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError):
        return  # it refers to itself, or has keys JSON cannot hold: its size is not known
    if size > LIMIT_BYTES:
        engine.warned_steps.add((step_id, what))
        ctx.report_problem("state_large", step_id, what, LargeState(step_id, what, size))
