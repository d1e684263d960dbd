"""Errors of the runtime's own, and how a turn ends early without being one."""

from __future__ import annotations

from noetic_nb.errors import NoeticError
from noetic_nb.memory import Stop

__all__ = ["StoppedError", "step_failed"]


class StoppedError(Exception):
    """A hook asked for the turn to stop. Caught by the turn; never reaches a caller."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.suggestion)
        self.stop = stop


def step_failed(
    step_id: str, what: str, cause: BaseException | None = None, *, hint: str = "", retries_exhausted: bool = False
) -> NoeticError:
    """Return the error of a step that failed."""
    return NoeticError(
        "step_failed", what, hint=hint, step_id=step_id, cause=cause, retries_exhausted=retries_exhausted
    )
