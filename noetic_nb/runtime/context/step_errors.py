"""Errors of the runtime's own, and how a turn ends early without being one."""

from __future__ import annotations

from noetic_nb.errors import NoeticError
from noetic_nb.memory import Stop

__all__ = ["StoppedError", "said_by", "step_failed"]


class StoppedError(Exception):
    """A hook asked for the turn to stop. Caught by the turn; never reaches a caller."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.suggestion)
        self.stop = stop


def said_by(error: BaseException) -> str:
    """Return what an error says; one that cannot say anything must not hide behind the error of its saying so.

    Examples
    --------
    >>> said_by(ValueError("too small"))
    'too small'
    """
    try:
        return str(error)
    except Exception as exc:
        return f"its message cannot be read: {type(exc).__name__}"


def step_failed(
    step_id: str, what: str, cause: BaseException | None = None, *, hint: str = "", retries_exhausted: bool = False
) -> NoeticError:
    """Return the error of a step that failed."""
    return NoeticError(
        "step_failed", what, hint=hint, step_id=step_id, cause=cause, retries_exhausted=retries_exhausted
    )
