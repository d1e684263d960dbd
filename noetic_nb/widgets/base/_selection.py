"""The moment that a view is pinned to (one thread, one turn, or all turns up to one), and the selection that views share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from noetic_nb._core.arguments import closest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent, Where
from noetic_nb.runs._plain_text import plain, sendable

# Of a hundred threads nobody reads the names.
MOST_NAMES: Final = 10


@dataclass(frozen=True, slots=True)
class Moment:
    """Which part of a run is shown; None is all of it.

    Parameters
    ----------
    thread_id : str, optional
        Only this thread. It need not be in the run yet.
    turn : int, optional
        Only this turn, 1 for the first of a thread.
    until : int, optional
        All turns up to this one, inclusive.

    Raises
    ------
    NoeticConfigError
        ``INVALID_TURN`` where `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD`` where `thread_id` is
        no text.

    Examples
    --------
    >>> moment = Moment(turn=3)
    >>> moment.last, moment.shows(Where("t1", "e1", 2)), moment.shows(Where("t1", "e1", 3))
    (3, False, True)
    """

    thread_id: str | None = None
    turn: int | None = None
    until: int | None = None

    def __post_init__(self) -> None:
        for number in (self.turn, self.until):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
                raise NoeticConfigError(
                    "INVALID_TURN", "A turn is a whole number.", given=number, hint="Turns are counted from 1."
                )
        if self.thread_id is not None and not isinstance(self.thread_id, str):
            raise NoeticConfigError(
                "INVALID_THREAD",
                "The name of a thread must be text.",
                given=self.thread_id,
                hint="`run.threads` has the names.",
            )

    @property
    def last(self) -> int | None:
        """The last turn that is read; None is no end."""
        ends = [end for end in (self.turn, self.until) if end is not None]
        return min(ends) if ends else None

    def reaches(self, event: RunEvent) -> bool:
        """Return whether an event is read: not those of other threads and not those of later turns."""
        where = event.where
        if self.thread_id is not None and where.thread_id and where.thread_id != self.thread_id:
            return False
        last = self.last
        return last is None or where.turn <= last

    def shows(self, where: Where) -> bool:
        """Return whether an event of this place is drawn."""
        if self.thread_id is not None and where.thread_id != self.thread_id:
            return False
        if self.turn is not None and where.turn != self.turn:
            return False
        return self.until is None or where.turn <= self.until

    def missing(self, threads: Sequence[str], turns: Mapping[str, int]) -> str:
        """Return a sentence about a thread or a turn that is not there, or empty if it is, or where nothing is yet.

        Examples
        --------
        >>> Moment("ann").missing(["anna"], {"anna": 3})
        "There is no thread 'ann' yet. Did you mean 'anna'? Threads here are 'anna'."
        >>> Moment(turn=9).missing(["anna"], {"anna": 3})
        'There is no turn 9 yet. The last one is 3.'
        """
        if not threads:
            return ""
        if self.thread_id is not None and self.thread_id not in threads:
            names = ", ".join([repr(plain(name)) for name in threads[:MOST_NAMES]])
            more = f" and {len(threads) - MOST_NAMES} more" if len(threads) > MOST_NAMES else ""
            hint = f"{closest(self.thread_id, threads)} Threads here are {names}{more}.".strip()
            return f"There is no thread {plain(self.thread_id)!r} yet. {hint}"
        last = max([turns.get(name, 0) for name in threads if self.thread_id in (None, name)], default=0)
        if self.turn is not None and last and not 0 <= self.turn <= last:
            return f"There is no turn {self.turn} yet. The last one is {last}."
        return ""

    def rows(self, table: Any) -> Any:
        """Return the rows of a table of the run that are drawn, numbered anew.

        Examples
        --------
        >>> from noetic_nb.runs import Run
        >>> list(Moment(turn=1).rows(Run().to_frame("ledger")).columns[:4])
        ['run_id', 'thread_id', 'execution_id', 'turn']
        """
        if self.thread_id is not None:
            table = table[table["thread_id"] == self.thread_id]
        if self.turn is not None:
            table = table[table["turn"] == self.turn]
        if self.until is not None:
            table = table[table["turn"] <= self.until]
        return table.reset_index(drop=True)


EVERYTHING: Final = Moment()
"""All of a run."""


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
                "Choose a thread by its name, and everything else by a whole number.",
                given=wrong,
                hint="Omit a field to leave it unselected.",
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
            "NOT_A_SELECTION", "`selection` must be a Selection.", given=given, hint="Pass `widgets.Selection()`."
        )
    return given


def sendable_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a choice as a page may be sent it: the name of a thread may hold a secret."""
    name = fields["thread_id"]
    return fields if name is None else {**fields, "thread_id": sendable(name)}
