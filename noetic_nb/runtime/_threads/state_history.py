"""The history of the states of layers: each write with its author and turn, and the end of each turn.

Kept in memory and bounded, so that a notebook can look back and rewind; the run's events hold the same for good.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from sys import getsizeof
from typing import Any, Final, NamedTuple, Protocol

from noetic_nb.clock import Clock
from noetic_nb.events import EventSink, LayerStateChanged, Where
from noetic_nb.memory import MemoryLayer, resolve_scope_key
from noetic_nb.memory._state.state_copy import deep_copy, frozen_state, is_same
from noetic_nb.memory.scope import ScopeIds

# What is looked at of one state: the size of a larger one is that of its first values, so many times as there are more.
_MOST_VALUES: Final = 10_000
_CONTAINERS: Final = (dict, list, tuple)


def size_of(state: Any) -> int:
    """Estimate the bytes that a state takes: of mappings, lists and tuples with all they hold, of other objects by themselves.

    An object that is there twice counts once. Of a state of more than 10 000 values the rest is taken to be like these. A class
    with a method ``bytes_held(size_of)`` says it itself.
    """
    own = None if type(state) is dict else getattr(type(state), "bytes_held", None)
    if own is not None:
        found: int = own(state, size_of)
        return found
    seen: set[int] = set()
    waiting: list[Any] = [state]
    size = large = looked_at = left_out = 0
    while waiting and looked_at < _MOST_VALUES:
        value = waiting.pop()
        if not isinstance(value, _CONTAINERS):
            size += getsizeof(value)
        elif id(value) in seen:
            continue
        else:
            seen.add(id(value))
            if len(value) > _MOST_VALUES:  # by itself: what is left out is like the values in it, not like it
                large += getsizeof(value)
            else:
                size += getsizeof(value)
            for inside in (value, value.values()) if isinstance(value, dict) else (value,):
                waiting += islice(inside, _MOST_VALUES)
                left_out += max(0, len(inside) - _MOST_VALUES)
        looked_at += 1
    return large + size * (looked_at + len(waiting) + left_out) // looked_at


# Changes kept of one layer in one scope, scopes kept in all, and turns of one thread; the oldest go first.
MAX_CHANGES: Final = 200
MAX_SCOPES: Final = 1_000
MAX_TURNS: Final = 1_000
# Bytes of all states that are remembered, estimated; the newest of each layer and scope stays whatever it takes.
MAX_BYTES: Final = 64 * 1024 * 1024
# When there are more, so much is forgotten at once that it need not be done again with the next write.
_KEPT: Final = 7 / 8


class StateChange(NamedTuple):
    """A layer's state as it was written, in which turn, by which `hook`: also ``"edit"`` by hand, ``"rewind"`` into a fork."""

    layer_id: str
    scope_key: str
    thread_id: str
    turn: int
    execution_id: str
    hook: str
    t_ms: float
    order: int
    state: Any
    size: int = 0
    """Bytes that the state takes in memory, estimated."""


class TurnEnd(NamedTuple):
    """Where a turn ended: the items of its log, its last write (None in another process), its saved `places`."""

    items: int
    order: int | None
    places: Mapping[str, int | None] | None = None


class Written:
    """The writes of one layer in one scope, as rows: where, hook, time, number among all writes, state, size in bytes."""

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        """The layer's id, and the key of the scope."""
        self.is_dropped = False
        """Whether it is forgotten, so that nothing is to be added any more."""
        # A list, as most have a few rows and a deque begins with room for 64.
        self.rows: list[list[Any]] = []


def state_changed(where: Where, now_ms: float, layer_id: str, hook: str, kept: Any) -> LayerStateChanged:
    """Return the event of a write, given a copy of the state that nobody writes into."""
    return LayerStateChanged(where, now_ms, layer_id, hook, frozen_state(kept))


class _Live(Protocol):
    """An execution that is open."""

    @property
    def resource_id(self) -> str | None:
        """The person, tenant or project."""

    @property
    def where(self) -> Where:
        """Where it runs."""

    @property
    def written(self) -> dict[str, Any]:
        """By layer, where its states are noted: filled as they are written."""


class StateHistory:
    """The writes of layers' states that are remembered, and where turns ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: OrderedDict[tuple[str, str], Written] = OrderedDict()
        self._ends: dict[str, dict[int, TurnEnd]] = {}
        self._order = 0
        # Of which layers and scopes the first writes were forgotten: what they were then is not known any more.
        self._shortened: set[tuple[str, str]] = set()
        # Bytes of all states that are remembered.
        self._bytes = 0

    def note(self, layer_id: str, scope_key: str, where: Where, hook: str, kept: Any) -> None:
        """Note one write, given a copy of the state that nobody writes into."""
        self.add(self.written(layer_id, scope_key), where, hook, kept)

    def written(self, layer_id: str, scope_key: str) -> Written:
        """Return the writes of a layer in one scope, to which further writes are added."""
        key = (layer_id, scope_key)
        found = self._written.get(key)
        if found is None:
            found = self._written[key] = Written(key)
            while len(self._written) > MAX_SCOPES:
                oldest = next(iter(self._written))
                self._drop(oldest)
                self._shortened.discard(oldest)
        return found

    def add(self, written: Written, where: Where, hook: str, kept: Any) -> float:
        """Note one write of a layer in one scope; returns when that was, in milliseconds."""
        rows, size = written.rows, size_of(kept)
        if len(rows) == MAX_CHANGES:
            self._shortened.add(written.key)
            self._bytes -= rows.pop(0)[5]
        order = self._order = self._order + 1
        now = self._clock.now_ms()
        rows.append([where, hook, now, order, kept, size])
        self._bytes += size
        if self._bytes > MAX_BYTES:
            self._forget_oldest()
        return now

    def _drop(self, key: tuple[str, str]) -> None:
        """Forget all writes of a layer in one scope."""
        written = self._written.pop(key)
        written.is_dropped = True
        self._bytes -= sum([row[5] for row in written.rows])

    def _forget_oldest(self) -> None:
        """Forget the oldest writes of all, but for the newest of each layer and scope."""
        earlier = [(row[3], key) for key, written in self._written.items() for row in written.rows[:-1]]
        for _, key in sorted(earlier):
            if self._bytes <= MAX_BYTES * _KEPT:
                return
            self._bytes -= self._written[key].rows.pop(0)[5]
            self._shortened.add(key)

    def turn_ended(self, thread_id: str, turn: int, items: int, places: Mapping[str, int | None] | None = None) -> None:
        """Note where a turn of a thread ended: how many items its log had, and which write was the last."""
        self._note_end(thread_id, turn, TurnEnd(items, self._order, places))

    def turn_read(self, thread_id: str, turn: int, items: int, places: Mapping[str, int | None]) -> None:
        self._note_end(thread_id, turn, TurnEnd(items, None, places))

    def _note_end(self, thread_id: str, turn: int, end: TurnEnd) -> None:
        ends = self._ends.setdefault(thread_id, {})
        ends[turn] = end
        if len(ends) > MAX_TURNS:
            del ends[next(iter(ends))]

    def forget(self, thread_id: str) -> None:
        """Forget where the turns of a thread ended: it is closed."""
        self._ends.pop(thread_id, None)

    def forget_changes(self, layer_id: str, scope_key: str) -> None:
        """Forget the writes of a layer in one scope: its state there is gone."""
        if (layer_id, scope_key) in self._written:
            self._drop((layer_id, scope_key))

    def _changes(self, layer_id: str, scope_key: str) -> Iterator[StateChange]:
        """Yield the writes of a layer in one scope that are remembered, newest first, with the very states."""
        written = self._written.get((layer_id, scope_key))
        for where, hook, t_ms, order, state, size in () if written is None else reversed(written.rows):
            place = where.thread_id, where.turn, where.execution_id
            yield StateChange(layer_id, scope_key, *place, hook, t_ms, order, state, size)

    def changes(self, layer_id: str, scope_key: str) -> tuple[StateChange, ...]:
        """Return copies of the writes of a layer in one scope that are remembered, oldest first."""
        found = [change._replace(state=deep_copy(change.state)) for change in self._changes(layer_id, scope_key)]
        return tuple(found[::-1])

    def latest(self, layer_id: str, scope_key: str) -> Any:
        """Return the state that was written last, the very object that is remembered; None if none is."""
        last = next(self._changes(layer_id, scope_key), None)
        return None if last is None else last.state

    def end_of(self, thread_id: str, turn: int) -> TurnEnd | None:
        return self._ends.get(thread_id, {}).get(turn)

    def turns(self, thread_id: str) -> tuple[int, ...]:
        return tuple(self._ends.get(thread_id, ()))

    def is_forgotten(self, layer_id: str, scope_key: str) -> bool:
        """Tell whether earlier writes were forgotten for newer ones."""
        return (layer_id, scope_key) in self._shortened

    def state_at(self, layer_id: str, scope_key: str, order: int) -> StateChange | None:
        """Return the last write up to a moment, or None if none is remembered."""
        return next((change for change in self._changes(layer_id, scope_key) if change.order <= order), None)


class LiveHistory:
    """Notes the states of some layers that executions write into a `LayerStateStore` while they are live."""

    def __init__(self, history: StateHistory, layers: Iterable[MemoryLayer], live: Mapping[str, _Live]) -> None:
        self._history = history
        self._scopes = {layer.id: layer.scope for layer in layers}
        self._live = live
        self.sink: EventSink | None = None
        """Where writes are recorded; None while nobody follows."""

    def is_as_left(self, execution_id: str, layer_id: str, state: Any) -> bool:
        """Tell whether a state that was just loaded is the one that was written last."""
        execution = self._live.get(execution_id)
        if execution is None:
            return False
        written = execution.written.get(layer_id)
        if written is None or written.is_dropped:
            written = self._begun(execution, execution_id, layer_id)
        if written is None or not written.rows:
            return False
        last = written.rows[-1][4]
        return state is last or is_same(last, state)

    def note(self, execution_id: str, layer_id: str, kept: Any, hook: str) -> bool:
        """Note a write, given a copy of the state that nobody writes into; returns whether it is in the run, too."""
        execution = self._live.get(execution_id)
        if execution is None:
            return False
        written: Written | None = execution.written.get(layer_id)
        if written is None or written.is_dropped:
            written = self._begun(execution, execution_id, layer_id)
            if written is None:
                return False
        now = self._history.add(written, execution.where, hook, kept)
        if self.sink is None:
            return False
        self.sink.emit(state_changed(execution.where, now, layer_id, hook, kept))
        return True

    def _begun(self, execution: _Live, execution_id: str, layer_id: str) -> Written | None:
        scope = self._scopes.get(layer_id)
        if scope is None:
            return None
        key = execution_id
        if scope != "execution":
            key = resolve_scope_key(scope, ScopeIds(execution_id, execution.where.thread_id, execution.resource_id))
        found = execution.written[layer_id] = self._history.written(layer_id, key)
        return found
