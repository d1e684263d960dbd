"""The turns kept by a growing run: beyond its limit the oldest are dropped whole, and each drop is noted.

Events outside any turn (an edited rule, a seeded conversation) are dropped when they are older than all kept turns. A
running turn is always kept, and so is the newest turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, groupby
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent, StepEnded, TurnCompleted, TurnStarted, Where
from noetic_nb.runs._events.event_json import size_of

# About 5 000 turns with a tool call each.
KEPT_BYTES: Final = 128 * 2**20
"""Default size limit of a recorded run, in bytes."""
_LOW: Final = 0.75  # dropping copies the rest, so drop a quarter at a time
_MOST_ENTRIES: Final = 1_000  # a thread has one entry as long as its turns are dropped in order


# Compared by identity: a restarted thread has a second turn 1.
@dataclass(slots=True, eq=False)
class KeptTurn:
    """The events of one turn, or those between turns (`turn` is 0)."""

    thread_id: str
    turn: int
    serial: int = 0  # its number among all turns that the run ever had: turn numbers may repeat
    size: int = 0
    has_started: bool = False
    is_over: bool = False
    waiting: list[tuple[int, RunEvent]] = field(default_factory=list)
    """Events that are not in the file yet, each with its number."""
    members: list[tuple[int, int]] = field(default_factory=list)
    """The file positions of its events: start and end of each part."""

    @property
    def is_open(self) -> bool:
        """Whether it is running."""
        return self.has_started and not self.is_over


class KeptTurns:
    """The turns of a run in starting order, and the turn of each event; raises ``INVALID_BOUND``."""

    def __init__(self, *, max_bytes: int | None = None, max_turns: int | None = None) -> None:
        for name, bound in (("max_bytes", max_bytes), ("max_turns", max_turns)):
            if bound is not None and (type(bound) is not int or bound < 1):
                what = f"`{name}` is a whole number above 0, or None for no bound."
                hint = "For example: max_bytes=50_000_000 or max_turns=1_000."
                raise NoeticConfigError("INVALID_BOUND", what, given=bound, hint=hint)
        self.max_bytes, self.max_turns = max_bytes, max_turns
        self.all: list[KeptTurn] = []
        self.owners: list[KeptTurn] = []
        self._current: dict[tuple[str, int], KeptTurn] = {}
        self._by_serial: dict[int, KeptTurn] = {}
        self._next = 0
        self._size = 0
        self._weighed = 0
        self._count = 0

    def turn_of(self, event: RunEvent, serial: int | None = None) -> KeptTurn:
        """Return the turn that the next event belongs to: the turn with number `serial` if given."""
        where, starts = event.where, type(event) is TurnStarted
        if serial is not None:
            turn = self._by_serial.get(serial)
            if turn is None:
                is_turn = where.turn > 0 and where.thread_id
                self._next = max(self._next, serial)
                turn = self._begin(*(where.thread_id, where.turn) if is_turn else ("", 0))
                turn.serial = serial
                self._by_serial[serial] = turn
        else:
            known = self._current.get((where.thread_id, where.turn))
            turn = self._turn_of(where, starts=starts) if known is None or starts else known
        if starts:
            turn.has_started = True
        elif type(event) is TurnCompleted:
            turn.is_over = True
        return turn

    def weigh(self, events: Sequence[RunEvent]) -> None:
        """Measure the events that belong to turns and were not measured yet."""
        start = self._weighed
        for turn, owned in groupby(self.owners[start:]):
            stop = start + len(list(owned))
            size = size_of(events[start:stop])
            turn.size += size
            self._size += size
            start = stop
        self._weighed = start

    def _turn_of(self, where: Where, *, starts: bool) -> KeptTurn:
        place = where.thread_id, where.turn
        if place[1] < 1 or not place[0]:
            # Events since the last turn began; older ones outside turns can be dropped first.
            if self.all and self.all[-1].turn < 1:
                return self.all[-1]
            return self._begin("", 0)
        turn = self._current.get(place)
        if turn is None or (starts and turn.has_started):
            turn = self._current[place] = self._begin(*place)
        return turn

    def _begin(self, thread_id: str, number: int) -> KeptTurn:
        turn = KeptTurn(thread_id, number, self._next, is_over=number < 1)
        self._next += 1
        self.all.append(turn)
        self._count += number > 0
        return turn

    def end_session(self) -> None:
        """Note that running executions will not continue: the following events come from another process."""
        for turn in self.all:
            turn.is_over = True
        self._current.clear()
        self._by_serial.clear()

    def is_complete(self, turn: KeptTurn, event: RunEvent) -> bool:
        """Tell whether a turn can be saved after this event."""
        # An execution that is kept open never completes a turn, but each of its steps ends.
        return turn.is_over or (not turn.has_started and isinstance(event, StepEnded) and event.where.depth == 0)

    def overflow(self) -> list[KeptTurn]:
        """Return the turns to drop, oldest first; none below the limit."""
        if not self._is_over(1.0):
            return []
        doomed: list[KeptTurn] = []
        size, count = self._size, self._count
        for turn in self.all[:-1]:
            if not self._is_over(_LOW):
                break
            if not turn.is_open:
                doomed.append(turn)
                self._size -= turn.size
                self._count -= turn.turn > 0
        self._size, self._count = size, count
        return doomed

    @property
    def size(self) -> int:
        """The size of all turns, in bytes."""
        return self._size

    def _is_over(self, share: float) -> bool:
        return (self.max_bytes is not None and self._size > share * self.max_bytes) or (
            self.max_turns is not None and self._count > share * self.max_turns
        )

    def drop(self, doomed: Sequence[KeptTurn]) -> list[bool]:
        """Remove turns; returns for each event whether it is kept."""
        gone = set(doomed)
        self.all = [turn for turn in self.all if turn not in gone]
        stays = [*map(set(self.all).__contains__, self.owners)]
        self.owners = list(compress(self.owners, stays))
        self._weighed = len(self.owners)
        self._size -= sum(turn.size for turn in gone)
        self._count -= sum(turn.turn > 0 for turn in gone)
        for turn in gone:
            if self._current.get((turn.thread_id, turn.turn)) is turn:
                del self._current[turn.thread_id, turn.turn]
        return stays


def with_dropped(known: Any, doomed: Iterable[KeptTurn]) -> list[dict[str, Any]]:
    """Add turns to ``meta["dropped"]``, joining neighbours; with very many threads, the first are only counted."""
    entries = [dict(entry) for entry in known if isinstance(entry, Mapping)] if isinstance(known, list | tuple) else []
    newest = {entry.get("thread_id"): entry for entry in entries if isinstance(entry.get("last"), int)}
    for turn in doomed:
        if turn.turn < 1:
            continue
        entry = newest.get(turn.thread_id)
        # An equal number is the rest of a turn that a new process continued.
        if entry is not None and turn.turn - entry["last"] in (0, 1):
            entry["last"] = turn.turn
            continue
        newest[turn.thread_id] = entry = {"thread_id": turn.thread_id, "first": turn.turn, "last": turn.turn}
        entries.append(entry)
    if len(entries) > _MOST_ENTRIES:
        first, rest = entries[: 1 - _MOST_ENTRIES], entries[1 - _MOST_ENTRIES :]
        turns = sum(entry["turns"] if "turns" in entry else entry["last"] - entry["first"] + 1 for entry in first)
        entries = [{"thread_id": None, "turns": turns}, *rest]
    return entries
