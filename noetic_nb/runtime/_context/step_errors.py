"""The runtime's own errors, and the early end of a turn, which is not an error."""

from __future__ import annotations

from collections.abc import Mapping

from noetic_nb.errors import NoeticError
from noetic_nb.memory import Stop
from noetic_nb.redact import redact_text


class TurnStopped(Exception):
    """Raised when a hook stops the turn. The turn catches it; callers never see it."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.suggestion)
        self.stop = stop

    def as_error(self) -> NoeticError:
        """Return the error for an execution, or a parallel step, that was stopped and has no reply to report it."""
        return NoeticError(
            "cancelled",
            f"A layer stopped the execution: {self.stop.suggestion}",
            reason=self.stop.suggestion,
            decision=self.stop.decision,
        )


def ends_turn(error: BaseException) -> bool:
    """Tell whether an error must not become a result: a layer ended the turn, or a judge has no model."""
    return isinstance(error, TurnStopped) or getattr(error, "code", "") == "MISSING_CALL_MODEL"


def error_text(error: BaseException) -> str:
    """Return the message of an error, or a text saying that its `__str__` raised."""
    try:
        return str(error)
    except Exception as exc:
        return f"its message cannot be read: {type(exc).__name__}"


def typed_text(error: BaseException) -> str:
    """Return the message of an error with its type; without it, the message of a `KeyError` is only a key."""
    name, text = type(error).__name__, error_text(error)
    return f"{text} ({name})" if text.strip() else name


def unsaved_text(problem: BaseException) -> str:
    """Return a sentence that says why a turn is not in storage."""
    text = redact_text(error_text(problem))
    return f"The turn is not saved: {text if isinstance(problem, NoeticError) else f'{type(problem).__name__}: {text}'}"


def layers_not_saved(errors: Mapping[str, Exception]) -> NoeticError:
    """Return the error for layers whose states could not be written; it names the first."""
    layer_id, error = next(iter(errors.items()))
    found = NoeticError("storage_failed", f"The state of layer {layer_id!r}: {error_text(error)}", layer_id=layer_id)
    found.__cause__ = error
    return found


def not_saved(thread_id: str, problem: BaseException, reply: tuple[object, ...] | None) -> NoeticError:
    """Return the error for a turn that ended but is not in storage; `reply` is its `AgentReply`, or None."""
    reason = problem.kind if isinstance(problem, NoeticError) else type(problem).__name__
    hints = ["What the turn did is done"]
    if reply is not None:
        hints.append(", and its answer is in `.reply`")
    if reason != "state_conflict":  # its own hint says that the next turn is refused
        hints.append("; the missing part is written with the next turn of the thread")
    error = NoeticError("not_saved", unsaved_text(problem), hint="".join(hints), thread_id=thread_id, reason=reason)
    # Set afterwards: passed as a fact, it would become a plain tuple if it contained a secret.
    error.facts["reply"] = reply
    error.__cause__ = problem
    return error


def note_saved(error: BaseException, problem: BaseException | None) -> None:
    """Note on the error that ended a turn whether the turn was stored, as there is no reply to say so."""
    if isinstance(error, NoeticError):
        error.facts["saved"] = problem is None
    if problem is not None:
        error.add_note(unsaved_text(problem))


def step_failed(
    step_id: str, what: str, cause: BaseException | None = None, *, hint: str = "", retries_exhausted: bool = False
) -> NoeticError:
    return NoeticError(
        "step_failed", what, hint=hint, step_id=step_id, cause=cause, retries_exhausted=retries_exhausted
    )
