"""Copy an execution's state for a child. What cannot be copied is named, not left to `copy`."""

from __future__ import annotations

import copy
from typing import Any

from noetic_nb.runtime.context.step_errors import said_by, step_failed

__all__ = ["copied_state"]


def copied_state(state: dict[str, Any], step_id: str) -> dict[str, Any]:
    """Return a copy of the state, all the way down.

    Raises
    ------
    NoeticError
        ``step_failed``, with the key of what cannot be copied.
    """
    try:
        return copy.deepcopy(state)
    except Exception as exc:
        key = next((key for key, value in state.items() if not _can_be_copied(value)), None)
        raise step_failed(
            step_id,
            f"A child gets a copy of `ctx.state`, and what is under {key!r} cannot be copied: {said_by(exc)}",
            exc,
            hint="Keep what is alive, such as locks, files and connections, in a variable outside of the state.",
        ) from exc


def _can_be_copied(value: Any) -> bool:
    try:
        copy.deepcopy(value)
    except Exception:
        return False
    return True
