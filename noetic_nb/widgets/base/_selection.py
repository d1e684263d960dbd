"""The part of a run that a view shows (a thread, a turn, or all turns up to one), and the selection that views share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from noetic_nb._core.arguments import closest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent, Where
from noetic_nb.runs._plain_text import plain, sendable

# A list of more thread names would not be read.
MOST_NAMES: Final = 10


@dataclass(frozen=True, slots=True)
class Moment:
    """The part of a run to show; None for no restriction.

    Parameters
    ----------
    thread_id : str, optional
        Only this thread; it may not exist yet.
    turn : int, optional
        Only this turn, counted from 1 in each thread.
    until : int, optional
        All turns up to and including this one.

    Raises
    ------
    NoeticConfigError
        ``INVALID_TURN`` if `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD`` if `thread_id` is
        not a string.

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
        """The last turn to read; None if there is no end."""
        ends = [end for end in (self.turn, self.until) if end is not None]
        return min(ends) if ends else None

    def reaches(self, event: RunEvent) -> bool:
        """Tell whether to read an event: other threads and later turns are excluded."""
        where = event.where
        if self.thread_id is not None and where.thread_id and where.thread_id != self.thread_id:
            return False
        last = self.last
        return last is None or where.turn <= last

    def shows(self, where: Where) -> bool:
        """Tell whether to draw events of this place."""
        if self.thread_id is not None and where.thread_id != self.thread_id:
            return False
        if self.turn is not None and where.turn != self.turn:
            return False
        return self.until is None or where.turn <= self.until

    def missing(self, threads: Sequence[str], turns: Mapping[str, int]) -> str:
        """Return a sentence about a thread or turn that does not exist, or empty if it does, or if the run is empty.

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
        """Return the shown rows of a run's table, renumbered.

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
"""The whole run."""


FIELDS: Final = ("thread_id", "turn", "call", "item", "decision")

Observer: TypeAlias = Callable[[dict[str, Any]], object]


class Selection:
    """A selection that links several views: pass it to each as ``selection=``.

    Attributes
    ----------
    thread_id : str or None
        A thread.
    turn : int or None
        A turn, counted from 1 in each thread.
    call : int or None
        The index among the agent's model calls of the run.
    item : int or None
        The position in the thread's log.
    decision : int or None
        The ``seq`` of a decision or of a tool call in the run.

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
        # Reentrant, because a view may be garbage-collected, and leave, at any time.
        self._lock = threading.RLock()

    @property
    def fields(self) -> dict[str, Any]:
        """All fields by name, as a new dict."""
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
        """Set all fields at once: those not given become None. Every observer is called.

        Raises
        ------
        NoeticConfigError
            ``INVALID_SELECTION`` if a field is neither None nor a whole number of at least 0, or `thread_id` is not a string.
        """
        numbers = {"turn": turn, "call": call, "item": item, "decision": decision}
        wrong = {
            name: number
            for name, number in numbers.items()
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0)
        }
        if thread_id is not None and not isinstance(thread_id, str):
            wrong["thread_id"] = thread_id  # type: ignore[unreachable]  # pages may send any value
        if wrong:
            raise NoeticConfigError(
                "INVALID_SELECTION",
                "Choose a thread by its name, and everything else by a whole number.",
                given=wrong,
                hint="Omit a field to leave it unselected.",
            )
        with self._lock:
            # Replace the dict: concurrent readers see either the old or the new selection.
            self._fields = {"thread_id": thread_id, **numbers}
            observers = tuple(self._observers)
        for observer in observers:
            observer(self.fields)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call a function with the fields at each selection; returns a function that unsubscribes it, safe to call again."""

        def relay(fields: dict[str, Any]) -> object:  # one per subscription: the same function may observe twice
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
    """Return the given selection, a new one for None.

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
    """Return a selection that is safe to send to a page: the name of a thread may contain a secret."""
    name = fields["thread_id"]
    return fields if name is None else {**fields, "thread_id": sendable(name)}
