"""Hooks that can tell beforehand that they would do nothing, so that a turn need not prepare their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from noetic_nb.clock import Clock

__all__ = ["IdleHook", "IsIdle", "LetsPass", "PassingHook"]

IsIdle: TypeAlias = Callable[[str, Callable[[str, str], Any]], bool]
"""Tells whether a hook would do nothing now, given an execution's id and what returns a state by execution and layer.

It says no where it does not know, as of a layer that goes by another id in a child."""


class IdleHook:
    """A hook with a test whether it would do nothing; where a run is followed it is called all the same, or recorded.

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


LetsPass: TypeAlias = Callable[[str, Any, Any, Clock], Any]
"""Returns the state of a layer after a response that it lets pass without being asked; None where there is something to decide.

It is given the execution's id, the state as it is kept, the response and the clock."""


class PassingHook:
    """A hook that judges responses, with a test that nothing is to be judged, so that it need not be called.

    Examples
    --------
    >>> from noetic_nb.clock import SYSTEM_CLOCK
    >>> hook = PassingHook(lambda p: {"decision": {"action": "deny"}}, lambda execution_id, state, response, clock: state)
    >>> hook.lets_pass("e1", {"seen": 1}, None, SYSTEM_CLOCK)
    {'seen': 1}
    """

    __slots__ = ("_call", "lets_pass")

    def __init__(self, call: Callable[..., Any], lets_pass: LetsPass) -> None:
        self._call: Final = call
        self.lets_pass: Final = lets_pass

    def __call__(self, *given: Any) -> Any:
        """Call the hook."""
        return self._call(*given)
