"""The moment that a view is pinned to: one thread, one turn, or all turns up to one.

A picture of one turn still needs what came before it, such as the grades that a mean is made of. So there are two
questions: whether an event is read at all, and whether it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noetic_nb._core.arguments import closest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent, Where
from noetic_nb.runs._plain_text import plain

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
                    "INVALID_TURN", "A turn is a whole number.", given=number, hint="Turns of a thread count from 1."
                )
        if self.thread_id is not None and not isinstance(self.thread_id, str):
            raise NoeticConfigError(
                "INVALID_THREAD",
                "A thread is named by text.",
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
        """Return a sentence about a thread or a turn that is not there, empty where it is, or where nothing is yet.

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
