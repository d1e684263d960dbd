"""A selection: one call, turn, item or decision, shared by all views that were given the same selection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs._plain_text import sendable

FIELDS: Final = ("thread_id", "turn", "call", "item", "decision")

Observer: TypeAlias = Callable[[dict[str, Any]], object]


class Selection:
    """One choice that links several views: pass it to each as ``selection=``.

    Attributes
    ----------
    thread_id : str or None
        A thread.
    turn : int or None
        A turn, 1 for the first of a thread.
    call : int or None
        The place among the agent's model calls of the run in order, 0 for the first.
    item : int or None
        The place in the log of the thread, 0 for the first.
    decision : int or None
        The ``seq`` of a decision in the run, or of a tool call.

    Examples
    --------
    >>> selection = Selection()
    >>> forget = selection.observe(lambda fields: print(fields["turn"], fields["call"]))
    >>> selection.select(turn=2, call=5)
    2 5
    >>> selection
    Selection(turn=2, call=5)
    """

    def __init__(self) -> None:
        self._fields: dict[str, Any] = dict.fromkeys(FIELDS)
        self._observers: list[Observer] = []
        # Reentrant, because a view may be collected, and leave, at any moment.
        self._lock = threading.RLock()

    @property
    def fields(self) -> dict[str, Any]:
        """Every field by its name, a new dict."""
        return dict(self._fields)

    def __getattr__(self, name: str) -> Any:
        if name in FIELDS:
            return self._fields[name]
        raise AttributeError(name)

    def select(
        self,
        *,
        thread_id: str | None = None,
        turn: int | None = None,
        call: int | None = None,
        item: int | None = None,
        decision: int | None = None,
    ) -> None:
        """Select all fields at once: those that are not named become None. Every observer is called.

        Raises
        ------
        NoeticConfigError
            ``INVALID_SELECTION`` where a field is neither None nor a whole number of at least 0, or `thread_id` no text.
        """
        numbers = {"turn": turn, "call": call, "item": item, "decision": decision}
        wrong = {
            name: number
            for name, number in numbers.items()
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0)
        }
        if thread_id is not None and not isinstance(thread_id, str):
            wrong["thread_id"] = thread_id  # type: ignore[unreachable]  # pages send what they like
        if wrong:
            raise NoeticConfigError(
                "INVALID_SELECTION",
                "A thread is chosen by its name, all else by a whole number.",
                given=wrong,
                hint="Leave a field out to choose nothing of its kind.",
            )
        with self._lock:
            # Replaced, not changed: whoever reads the fields meanwhile sees the old choice or the new one.
            self._fields = {"thread_id": thread_id, **numbers}
            observers = tuple(self._observers)
        for observer in observers:
            observer(self.fields)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call a function with the fields at each selection; returns a function that ends this, which may be called again."""

        def relay(fields: dict[str, Any]) -> object:  # one a subscription: the same function may observe twice
            return observer(fields)

        with self._lock:
            self._observers.append(relay)
        return lambda: self._forget(relay)

    def _forget(self, relay: Observer) -> None:
        with self._lock:
            if relay in self._observers:
                self._observers.remove(relay)

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={value!r}" for name, value in self._fields.items() if value is not None)
        return f"Selection({chosen})"


def selection_of(given: Any) -> Selection:
    """Return the selection that a view was given, a new one for None.

    Raises `NoeticConfigError` ``NOT_A_SELECTION``.
    """
    if given is None:
        return Selection()
    if not isinstance(given, Selection):
        raise NoeticConfigError(
            "NOT_A_SELECTION", "Views are linked by a Selection.", given=given, hint="Pass `widgets.Selection()`."
        )
    return given


def sendable_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a choice as a page may be sent it: the name of a thread may hold a secret."""
    name = fields["thread_id"]
    return fields if name is None else {**fields, "thread_id": sendable(name)}
