"""A regulator for several threads: one lock around every access, which regulators of one person share."""

from __future__ import annotations

import threading
from types import TracebackType

from noetic_nb.regulator._regulator import Regulator
from noetic_nb.regulator.decisions import Decision
from noetic_nb.regulator.events import Event
from noetic_nb.regulator.predicates.explanation import Explanation


class ThreadSafeRegulator:
    """A regulator that several threads may use.

    Parameters
    ----------
    regulator : Regulator
        The regulator; from now on, use it only through this object.
    lock : threading.RLock, optional
        Pass one lock to several, if their regulators share a person.

    Examples
    --------
    >>> from noetic_nb.regulator.events import ToolCall
    >>> shared = ThreadSafeRegulator(Regulator.for_user("ann"))
    >>> shared.on_event(ToolCall("search"))
    >>> with shared as regulator:
    ...     regulator.tool_total_calls()
    1
    """

    __slots__ = ("_lock", "_regulator")

    def __init__(self, regulator: Regulator, lock: threading._RLock | None = None) -> None:
        self._regulator = regulator
        # Reentrant, so that code inside `with shared:` may call the methods below.
        self._lock = threading.RLock() if lock is None else lock

    def on_event(self, event: Event) -> None:
        """Process one event."""
        with self._lock:
            self._regulator.on_event(event)

    def step(self, event: Event) -> Decision:
        """Process one event and decide, with no other thread in between."""
        with self._lock:
            self._regulator.on_event(event)
            return self._regulator.decide()

    def decide(self) -> Decision:
        """Return the decision for the current state."""
        with self._lock:
            return self._regulator.decide()

    def explain(self) -> Explanation:
        """Return every predicate's finding."""
        with self._lock:
            return self._regulator.explain()

    def __enter__(self) -> Regulator:
        self._lock.acquire()
        return self._regulator

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


Locked = ThreadSafeRegulator  # alias for existing code
