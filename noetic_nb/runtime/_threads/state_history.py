"""The history of layer states: each write with its author and turn, and the end of each turn.

Kept in memory and bounded, for inspecting and rewinding in a notebook; the run's events keep the same data permanently.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from sys import getsizeof
from typing import Any, Final, NamedTuple

from noetic_nb.clock import Clock
from noetic_nb.events import EventSink, LayerStateChanged, Where
from noetic_nb.items._frozen import FLAT
from noetic_nb.memory import MemoryLayer, resolve_scope_key
from noetic_nb.memory._state.state_copy import deep_copy, frozen_state, is_same
from noetic_nb.memory.scope import ScopeIds
from noetic_nb.runtime._context.running_execution import RunningExecution

# Values visited per state: the size of a larger state is extrapolated from these.
_MOST_VALUES: Final = 10_000
_CONTAINERS: Final = (dict, list, tuple)


def size_of(state: Any) -> int:
    """Estimate the bytes of a state: mappings, lists and tuples with their contents, other objects without.

    An object that occurs twice counts once. The size of a state with more than 10 000 values is extrapolated. A class
    with a method ``bytes_held(size_of)`` computes its own size.
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
        if type(value) in FLAT:
            size += value.__sizeof__()  # the same, without the overhead of `getsizeof`
        elif not isinstance(value, _CONTAINERS):
            size += getsizeof(value)
        elif id(value) in seen:
            continue
        else:
            seen.add(id(value))
            beyond = len(value) - _MOST_VALUES
            if beyond > 0:  # separate: the values left out resemble those inside it, not the container
                large += getsizeof(value)
                left_out += beyond * (2 if isinstance(value, dict) else 1)
            else:
                size += getsizeof(value)
            waiting += islice(value, _MOST_VALUES)
            if isinstance(value, dict):
                waiting += islice(value.values(), _MOST_VALUES)
        looked_at += 1
    return large + size * (looked_at + len(waiting) + left_out) // looked_at


# Changes kept per layer and scope, scopes kept in all, and turns per thread; the oldest are dropped first.
MAX_CHANGES: Final = 200
MAX_SCOPES: Final = 1_000
MAX_TURNS: Final = 1_000
# Estimated bytes of all recorded states; the newest of each layer and scope always stays.
MAX_BYTES: Final = 64 * 1024 * 1024
# Shrink to this share of the limit, so that the next write need not shrink again.
_KEPT: Final = 7 / 8


class StateChange(NamedTuple):
    """A write of a layer's state: its turn and `hook`, which can also be ``"edit"`` (by hand) or ``"rewind"`` (into a fork)."""

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
    """Estimated bytes in memory."""


class TurnEnd(NamedTuple):
    """The end of a turn: the number of log items, its last write (None in another process), its saved `places`."""

    items: int
    order: int | None
    places: Mapping[str, int | None] | None = None


class Written:
    """The writes of one layer in one scope."""

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        """The id of the layer and the key of the scope."""
        self.is_dropped = False
        """Whether it was dropped, so that nothing must be added any more."""
        # A list: most have a few rows, and a deque allocates room for 64.
        self.rows: list[StateChange] = []


def state_changed(where: Where, now_ms: float, layer_id: str, hook: str, kept: Any) -> LayerStateChanged:
    """Return the event of a write, given a copy of the state that is never modified."""
    return LayerStateChanged(where, now_ms, layer_id, hook, frozen_state(kept))


class StateHistory:
    """The recorded writes of layer states, and the ends of turns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: OrderedDict[tuple[str, str], Written] = OrderedDict()
        self._ends: dict[str, dict[int, TurnEnd]] = {}
        self._order = 0
        # Layers and scopes whose first writes were dropped, so that their early states are unknown.
        self._shortened: set[tuple[str, str]] = set()
        self._bytes = 0

    def note(self, layer_id: str, scope_key: str, where: Where, hook: str, kept: Any) -> None:
        """Record a write, given a copy of the state that is never modified."""
        self.add(self.written(layer_id, scope_key), where, hook, kept)

    def written(self, layer_id: str, scope_key: str) -> Written:
        """Return the record of a layer's writes in a scope, to which further writes are added."""
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
        """Record a write of a layer in a scope; returns its time in milliseconds."""
        rows, size = written.rows, size_of(kept)
        if len(rows) == MAX_CHANGES:
            self._shortened.add(written.key)
            self._bytes -= rows.pop(0).size
        self._order += 1
        now = self._clock.now_ms()
        thread_id, turn, execution_id = where.thread_id, where.turn, where.execution_id
        rows.append(StateChange(*written.key, thread_id, turn, execution_id, hook, now, self._order, kept, size))
        self._bytes += size
        if self._bytes > MAX_BYTES:
            self._forget_oldest()
        return now

    def _drop(self, key: tuple[str, str]) -> None:
        written = self._written.pop(key)
        written.is_dropped = True
        self._bytes -= sum([row.size for row in written.rows])

    def _forget_oldest(self) -> None:
        """Drop the oldest writes, except for the newest of each layer and scope."""
        earlier = [(row.order, key) for key, written in self._written.items() for row in written.rows[:-1]]
        for _, key in sorted(earlier):
            if self._bytes <= MAX_BYTES * _KEPT:
                return
            self._bytes -= self._written[key].rows.pop(0).size
            self._shortened.add(key)

    def turn_ended(self, thread_id: str, turn: int, items: int, places: Mapping[str, int | None] | None = None) -> None:
        """Record the end of a thread's turn: the number of log items and the last write."""
        self._note_end(thread_id, turn, TurnEnd(items, self._order, places))

    def turn_read(self, thread_id: str, turn: int, items: int, places: Mapping[str, int | None]) -> None:
        self._note_end(thread_id, turn, TurnEnd(items, None, places))

    def _note_end(self, thread_id: str, turn: int, end: TurnEnd) -> None:
        ends = self._ends.setdefault(thread_id, {})
        ends[turn] = end
        if len(ends) > MAX_TURNS:
            del ends[next(iter(ends))]

    def forget(self, thread_id: str) -> None:
        """Drop the ends of a closed thread's turns."""
        self._ends.pop(thread_id, None)

    def forget_changes(self, layer_id: str, scope_key: str) -> None:
        """Drop the writes of a layer in a scope, whose state there is gone."""
        if (layer_id, scope_key) in self._written:
            self._drop((layer_id, scope_key))

    def _changes(self, layer_id: str, scope_key: str) -> list[StateChange]:
        """Yield the recorded writes of a layer in a scope, newest first, without copying the states."""
        written = self._written.get((layer_id, scope_key))
        return [] if written is None else written.rows[::-1]

    def changes(self, layer_id: str, scope_key: str) -> tuple[StateChange, ...]:
        """Return copies of the recorded writes of a layer in a scope, oldest first."""
        found = [change._replace(state=deep_copy(change.state)) for change in self._changes(layer_id, scope_key)]
        return tuple(found[::-1])

    def latest(self, layer_id: str, scope_key: str) -> Any:
        """Return the last written state, not a copy; None if there is none."""
        found = self._changes(layer_id, scope_key)
        return found[0].state if found else None

    def end_of(self, thread_id: str, turn: int) -> TurnEnd | None:
        return self._ends.get(thread_id, {}).get(turn)

    def turns(self, thread_id: str) -> tuple[int, ...]:
        return tuple(self._ends.get(thread_id, ()))

    def is_forgotten(self, layer_id: str, scope_key: str) -> bool:
        """Tell whether earlier writes were dropped for newer ones."""
        return (layer_id, scope_key) in self._shortened

    def state_at(self, layer_id: str, scope_key: str, order: int) -> StateChange | None:
        """Return the last write up to a moment, or None if none is recorded."""
        return next((change for change in self._changes(layer_id, scope_key) if change.order <= order), None)


class LiveHistory:
    """Records states that live executions write into a `LayerStateStore`, and puts those of all executions into the run."""

    def __init__(
        self,
        history: StateHistory,
        layers: Iterable[MemoryLayer],
        live: Mapping[str, RunningExecution],
        find: Callable[[str], RunningExecution | None],
    ) -> None:
        self._history = history
        self._scopes = {layer.id: layer.scope for layer in layers}
        self._live = live
        self._find = find
        self.sink: EventSink | None = None
        """Receives writes as events; None without a subscriber."""

    def may_skip(self, execution_id: str, layer_id: str, state: Any) -> bool:
        """Tell whether a state that was just loaded is the last written one, and nobody follows the run."""
        execution = self._live.get(execution_id)
        return execution is not None and self.sink is None and self._is_as_left(execution, layer_id, state)

    def _is_as_left(self, execution: RunningExecution, layer_id: str, state: Any) -> bool:
        written = self._of(execution, layer_id)
        if written is None or not written.rows:
            return False
        last = written.rows[-1].state
        return state is last or is_same(last, state)

    def note(self, execution_id: str, layer_id: str, kept: Any, hook: str) -> None:
        """Record a write, given a copy of the state that is never modified."""
        execution, now = self._live.get(execution_id), None
        if execution is not None and not (hook == "init" and self._is_as_left(execution, layer_id, kept)):
            written = self._of(execution, layer_id)
            if written is not None:
                now = self._history.add(written, execution.where, hook, kept)
        if self.sink is not None and (ctx := execution or self._find(execution_id)) is not None:
            now = ctx.engine.clock.now_ms() if now is None else now
            self.sink.emit(state_changed(ctx.where, now, layer_id, hook, kept))

    def _of(self, execution: RunningExecution, layer_id: str) -> Written | None:
        """Return the writes of a layer in an execution, to which further writes are added."""
        written: Written | None = execution.written.get(layer_id)
        if written is not None and not written.is_dropped:
            return written
        scope = self._scopes.get(layer_id)
        if scope is None:
            return None
        key = execution.id
        if scope != "execution":
            key = resolve_scope_key(scope, ScopeIds(execution.id, execution.where.thread_id, execution.resource_id))
        found = execution.written[layer_id] = self._history.written(layer_id, key)
        return found
