"""Hooks that can tell beforehand that they would do nothing, so that a turn need not prepare what they are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

__all__ = ["IdleHook", "IsIdle"]

IsIdle: TypeAlias = Callable[[str, Callable[[str, str], Any]], bool]
"""Tells whether a hook would do nothing now, given an execution's id and what returns a state by execution and layer.

It says no where it does not know, as of a layer that goes by another id in a child."""


class IdleHook:
    """A hook with what tells whether it would do nothing; it is called all the same where somebody follows the run.

    Examples
    --------
    >>> states = {("e1", "tone"): "", ("e2", "tone"): "Be brief."}
    >>> recall = IdleHook(lambda p: p.state, lambda execution_id, state_of: not state_of(execution_id, "tone"))
    >>> [recall.is_idle(execution_id, lambda *key: states[key]) for execution_id in ("e1", "e2")]
    [True, False]
    """

    __slots__ = ("_call", "is_idle")

    def __init__(self, call: Callable[..., Any], is_idle: IsIdle) -> None:
        self._call: Final = call
        self.is_idle: Final = is_idle

    def __call__(self, *given: Any) -> Any:
        """Call the hook."""
        return self._call(*given)
