"""Hooks that can tell beforehand that they would do nothing, so that a turn need not prepare what they are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

__all__ = ["IdleHook", "IsIdle"]

IsIdle: TypeAlias = Callable[[str, Any], bool]
"""Tells whether a hook would do nothing now, given an execution's id and the layer's state there."""


class IdleHook:
    """A hook with what tells whether it would do nothing; it is called all the same where somebody follows the run.

    Examples
    --------
    >>> recall = IdleHook(lambda p: p.state["text"], lambda execution_id, state: not state["text"])
    >>> recall.is_idle("e1", {"text": ""}), recall.is_idle("e1", {"text": "Be brief."})
    (True, False)
    """

    __slots__ = ("_call", "is_idle")

    def __init__(self, call: Callable[..., Any], is_idle: IsIdle) -> None:
        self._call: Final = call
        self.is_idle: Final = is_idle

    def __call__(self, *given: Any) -> Any:
        """Call the hook."""
        return self._call(*given)
