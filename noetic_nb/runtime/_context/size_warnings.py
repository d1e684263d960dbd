"""Warn of state so large that copying or writing it dominates the run time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from noetic_nb.items._json_text import plain_text
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.storage._in_memory import json_text

# 10 MiB as JSON: from about this size on, copying it for every child or writing it after every step is noticeable.
LIMIT_BYTES: Final = 10 * 1024 * 1024

_WHAT: Final = {
    "state": ("`ctx.state`, which every child gets a copy of,", "Keep large data outside of it and pass a key."),
    "checkpoint": (
        "The checkpoint, which is written after every step,",
        "Look at `ctx.state`, the layers, and the turn's items.",
    ),
}


class LargeState(UserWarning):
    """Data that is copied or written repeatedly has grown beyond 10 MiB; `size` is its number of bytes as JSON."""

    def __init__(self, step_id: str, what: Literal["state", "checkpoint"], size: int) -> None:
        subject, hint = _WHAT[what]
        super().__init__(f"{subject} has {size / 2**20:.1f} MiB as JSON at step {step_id!r}. {hint}")
        self.step_id = step_id
        self.size = size


class Measured(dict[str, Any]):
    """Data that a store writes as JSON text, with the length of that text, so that it need not be serialised twice.

    Pure JSON data, `is_plain`, is written in a third of the time.
    """

    def __init__(self, key: str, data: Mapping[str, Any], *, is_plain: bool = False) -> None:
        super().__init__(data)
        self.key = key
        self.is_plain = is_plain
        self.size: int | None = None
        """Characters; None if the data was not written as text."""

    def json_text(self) -> str:
        data = dict(self)
        text = plain_text(data) if self.is_plain else json_text(self.key, data)
        self.size = len(text)
        return text


# The maximum number of bytes of a character.
_MOST_BYTES: Final = 4


def is_small(characters: int | None) -> bool:
    """Tell whether a number of characters is below the limit; False if it is None."""
    return characters is not None and characters * _MOST_BYTES <= LIMIT_BYTES


def warn_if_large(ctx: RunningExecution, step_id: str, what: Literal["state", "checkpoint"], value: object) -> None:
    """Report a value above the limit, once per step. A value that is not JSON data is measured by its text."""
    engine = ctx.engine
    if type(value) is Measured and is_small(value.size):
        return
    if (step_id, what) in engine.warned_steps:
        return
    try:
        size = len(json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError):
        return  # self-referential, or keys that JSON cannot represent: the size is unknown
    if size > LIMIT_BYTES:
        engine.warned_steps.add((step_id, what))
        ctx.report_problem("state_large", step_id, what, LargeState(step_id, what, size))
