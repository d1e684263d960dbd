"""Keeps a recorded run below its size limit, in memory and in its autosave file."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakValueDictionary

from noetic_nb._core.atomic_write import file_name
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent, TurnCompleted, TurnStarted, Where
from noetic_nb.redact import safe_logger
from noetic_nb.runs._load import MAX_BYTES, RunFile, read_run
from noetic_nb.runs._recording.autosave import Autosave, cannot_save
from noetic_nb.runs._recording.retained_turns import KeptTurn, KeptTurns, with_dropped
from noetic_nb.runs._run import Run, run_of_file

_LOG: Final = safe_logger("noetic_nb.runs")
# A turn may take hours; save it after this many events.
_MOST_WAITING: Final = 500
_EDGES: Final = frozenset({TurnStarted, TurnCompleted})

# By file, the runs saved as they grow in this process, and their keepers.
_RUNS: Final[WeakValueDictionary[str, Run]] = WeakValueDictionary()
_KEEPERS: Final[WeakValueDictionary[str, RunKeeper]] = WeakValueDictionary()


@atexit.register
def _close_all() -> None:
    for keeper in tuple(_KEEPERS.values()):
        keeper.close()


class RunKeeper:
    """Decides which events a run keeps, and saves it if it has a file. All methods run under the run's lock."""

    def __init__(self, run: Run, turns: KeptTurns, file: Autosave | None = None) -> None:
        self._run = run
        self._turns = turns
        self._file = file
        self._next = 0
        self._numbers: Sequence[int] | None = None
        self._places: dict[int, tuple[int, tuple[int, int]]] = {}
        self._where: Where | None = None  # where the newest taken event happened, and its turn
        self._turn: KeptTurn

    @property
    def size(self) -> int:
        """The approximate size in bytes of the events it has read."""
        self._turns.weigh(self._run.events)
        return self._turns.size

    @property
    def saves(self) -> bool:
        return self._file is not None and self._file.is_open

    def bound_by(self, turns: KeptTurns) -> None:
        """Set another limit; it applies from the next turn on."""
        self._turns.max_bytes, self._turns.max_turns = turns.max_bytes, turns.max_turns

    def is_current(self) -> bool:
        """Tell whether the file is open and nothing else has replaced it."""
        return self._file is not None and self._file.is_current()

    @property
    def problem(self) -> str | None:
        """Why the newest events are not in the file."""
        return None if self._file is None else self._file.error

    def resume(self, read: RunFile) -> None:
        """Continue with a file's content, before `begin`: the numbers of the events, and the file positions of the parts."""
        self._numbers = read.numbers
        members = zip(read.ends, read.ends[1:], strict=False)
        self._places = {
            number: (part.turn, member)
            for part, member in zip(read.parts, members, strict=True)
            for number in part.numbers
        }

    def begin(self, events: Sequence[RunEvent]) -> Sequence[bool] | None:
        for place, event in enumerate(events):
            if self._numbers is not None:
                serial, member = self._places[self._numbers[place]]
                turn = self._turns.turn_of(event, serial)
                self._turns.owners.append(turn)
                if member not in turn.members[-1:]:
                    turn.members.append(member)
                continue
            turn = self._turns.turn_of(event)
            self._turns.owners.append(turn)
            if self._file is not None:
                turn.waiting.append((place, event))
        self._next = len(events) if self._numbers is None else max(self._numbers, default=-1) + 1
        self._numbers, self._places = None, {}
        # Nothing from an earlier process continues; a turn that it left open may be dropped.
        self._turns.end_session()
        if self._file is not None:
            self._save(self._turns.all)
        return self._within_bound()

    def is_due(self, event: RunEvent, count: int) -> bool:
        """Tell whether to read the new events; events that directly follow in one turn can wait until it ends."""
        return (
            event.where is not self._where or type(event) in _EDGES or count - len(self._turns.owners) >= _MOST_WAITING
        )

    def take(self) -> Sequence[bool] | None:
        """Read the new events; all but the newest belong to the turn of the last event that was read."""
        events = self._run.events[len(self._turns.owners) :]
        if not events:
            return None
        newest = events[-1]
        if len(events) > 1:
            self._take(self._turn, events[:-1])
        self._turn = turn = self._turns.turn_of(newest)
        self._take(turn, events[-1:])
        # Outside turns, each event is saved at once.
        self._where = newest.where if turn.is_open or not (self.saves or turn.is_over) else None
        if self.saves and (len(turn.waiting) >= _MOST_WAITING or self._turns.is_complete(turn, newest)):
            self._save([turn])
        return self._within_bound() if turn.is_over or len(events) >= _MOST_WAITING else None

    def _take(self, turn: KeptTurn, events: Sequence[RunEvent]) -> None:
        self._turns.owners += [turn] * len(events)
        if self.saves:
            turn.waiting += enumerate(events, self._next)
            self._next += len(events)

    def _save(self, turns: Sequence[KeptTurn]) -> None:
        assert self._file is not None
        for turn in turns:
            if turn.waiting:
                self._file.add(turn)
        self._file.flush(self._run.meta)

    def _within_bound(self) -> Sequence[bool] | None:
        self._turns.weigh(self._run.events)
        doomed = self._turns.overflow()
        if not doomed:
            return None
        stays = self._turns.drop(doomed)
        meta = self._run.meta
        meta["dropped"] = with_dropped(meta.get("dropped"), doomed)
        if self._file is not None and self.saves:
            self._file.drop(self._run.run_id, meta, doomed, self._turns.all)
        return stays

    def close(self) -> None:
        """Save the remaining events, and close the file."""
        self.take()
        self._where = None
        if self._file is not None and self.saves:
            self._save(self._turns.all)
            self._file.finish()


def bound(run: Run, turns: KeptTurns) -> None:
    """Set the size limit of a run, and of its file if it has one."""
    keeper = run._keeper
    if isinstance(keeper, RunKeeper):
        keeper.bound_by(turns)
    else:
        run._keep_with(RunKeeper(run, turns))


def open_autosave(path: str, run: Run | None, new: Callable[[], Run], turns: KeptTurns) -> Run:
    """Return the run to autosave to a file: live, loaded, `run` or new; raises ``AUTOSAVE_EXISTS`` and read errors."""
    try:
        key = os.path.realpath(file_name(path))
    except OSError as error:
        raise cannot_save(path, error) from error
    known, keeper = _RUNS.get(key), _KEEPERS.get(key)
    # If the file was deleted or replaced, it is a different file; the earlier run continues without it.
    if known is not None and keeper is not None and keeper.is_current():
        if run is not None and run is not known:
            raise _other_run(path)
        keeper.bound_by(turns)
        return known
    if os.path.exists(path):
        most = MAX_BYTES if turns.max_bytes is None else max(MAX_BYTES, 4 * turns.max_bytes)
        read = read_run(path, max_bytes=most)
        # Compare numbers, not events: those in the file have their secrets replaced.
        if run is not None and (run.run_id, len(run.events)) != (read.run_id, len(read.events)):
            raise _other_run(path)
        run = run_of_file(read) if run is None else run
        file = Autosave(path)
        keeper = RunKeeper(run, turns, file)
        if read.ends:
            file.continue_at(read.ends[-1], read.meta)
            keeper.resume(read)
        else:  # a `Run.save` file: rewrite it as parts once
            file.create(run.run_id, run.meta)
    else:
        run = new() if run is None else run
        file = Autosave(path)
        file.create(run.run_id, run.meta)
        keeper = RunKeeper(run, turns, file)
    run._keep_with(keeper)
    run._label_store.save_beside(path, run.run_id)
    if keeper.problem is not None:
        _LOG.error("The run could not be saved: %s", keeper.problem)
    _RUNS[key], _KEEPERS[key] = run, keeper
    return run


def is_saved_here(path: str) -> bool:
    """Tell whether this process saves a run to a file."""
    keeper = _KEEPERS.get(os.path.realpath(path))
    return keeper is not None and keeper.is_current()


def _other_run(path: str) -> NoeticConfigError:
    hint = "Pass another path, or no run: the one in the file goes on."
    return NoeticConfigError("AUTOSAVE_EXISTS", "This file contains another run.", given=path, hint=hint)
