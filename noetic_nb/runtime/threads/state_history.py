"""What a harness remembers of its layers' states: who wrote what, in which turn, and where each turn ended.

Kept in memory and bounded, so that a notebook can look back and rewind; the run's events hold the same for good.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from noetic_nb.clock import Clock
from noetic_nb.events import Where
from noetic_nb.memory import MemoryLayer, resolve_scope_key
from noetic_nb.memory.state_copy import Snapshot, deep_copy
from noetic_nb.runtime.threads.state_size import size_of

__all__ = ["ScopeIds", "StateChange", "StateHistory", "TurnEnd"]

# Changes kept of one layer in one scope, scopes kept in all, and turns of one thread; the oldest go first.
MAX_CHANGES: Final = 200
MAX_SCOPES: Final = 1_000
MAX_TURNS: Final = 1_000
# Bytes of all states that are remembered, estimated; the newest of each layer and scope stays whatever it takes.
MAX_BYTES: Final = 64 * 1024 * 1024
# When there are more, so much is forgotten at once that it need not be done again with the next write.
_KEPT: Final = 7 / 8
# States of one layer in one scope grow slowly: one in so many is measured, and those that follow are taken to be like it.
_MEASURED: Final = 8


class StateChange(NamedTuple):
    """A layer's state as it was written: by which hook or function, in which turn of which thread.

    `hook` is ``"edit"`` for a change made by hand, ``"rewind"`` for one carried into a fork.
    """

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
    """Where a turn ended: the items of its log, the last write then, and where the layers' states of then are saved.

    `order` is None for a turn of another process, `places` for one that is not saved.
    """

    items: int
    order: int | None
    places: Mapping[str, int | None] | None = None


class ScopeIds(NamedTuple):
    """What the key of a scope is made of."""

    execution_id: str
    thread_id: str
    resource_id: str | None


class StateHistory:
    """Listens to every write of a layer's state."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes: OrderedDict[tuple[str, str], deque[StateChange]] = OrderedDict()
        self._ends: dict[str, dict[int, TurnEnd]] = {}
        self._order = 0
        # Of which layers and scopes the first writes were forgotten: what they were then is not known any more.
        self._shortened: set[tuple[str, str]] = set()
        # By layer and scope the bytes of one state, as last measured, and how many writes are taken to be like it; the bytes of
        # all that are remembered.
        self._sizes: dict[tuple[str, str], tuple[int, int]] = {}
        self._bytes = 0

    def keeper(
        self, layers: Iterable[MemoryLayer], place_of: Callable[[str], tuple[str | None, Where] | None]
    ) -> Callable[[str, str, Snapshot, str], None]:
        """Return what notes the states of some layers that are written into a `LayerStateStore`.

        `place_of` leads from an execution's id to its resource id and where it runs, None where that is not known any
        more.
        """
        scopes = {layer.id: layer.scope for layer in layers}

        def written(execution_id: str, layer_id: str, state: Snapshot, hook: str) -> None:
            scope, place = scopes.get(layer_id), place_of(execution_id)
            if scope is None or place is None:
                return
            resource_id, where = place
            if scope == "thread":  # most are
                key = where.thread_id
            else:
                key = resolve_scope_key(scope, ScopeIds(execution_id, where.thread_id, resource_id))
            self.note(layer_id, key, where, hook, state)

        return written

    def note(self, layer_id: str, scope_key: str, where: Where, hook: str, state: Snapshot) -> None:
        """Note one write."""
        key = (layer_id, scope_key)
        changes = self._changes.get(key)
        if changes is None:
            changes = self._changes[key] = deque(maxlen=MAX_CHANGES)
            while len(self._changes) > MAX_SCOPES:
                oldest = next(iter(self._changes))
                self._drop(oldest)
                self._shortened.discard(oldest)
        if hook == "init" and changes and changes[-1].state == state.state:
            return  # loaded as it was left
        self._order += 1
        if len(changes) == MAX_CHANGES:
            self._shortened.add(key)
            self._bytes -= changes[0].size
        # Layers may change their state in place; what was must stay as it was.
        kept = state.take()
        size, left = self._sizes.get(key, (0, 0))
        if left == 0:
            size, left = size_of(kept), min(len(changes) + 1, _MEASURED)
        self._sizes[key] = size, left - 1
        self._bytes += size
        changes.append(
            StateChange(
                layer_id,
                scope_key,
                where.thread_id,
                where.turn,
                where.execution_id,
                hook,
                self._clock.now_ms(),
                self._order,
                kept,
                size,
            )
        )
        if self._bytes > MAX_BYTES:
            self._forget_oldest()

    def _drop(self, key: tuple[str, str]) -> None:
        """Forget all writes of a layer in one scope."""
        self._bytes -= sum(change.size for change in self._changes.pop(key))
        self._sizes.pop(key, None)

    def _forget_oldest(self) -> None:
        """Forget the oldest writes of all, but for the newest of each layer and scope."""
        earlier = [(change.order, key) for key, changes in self._changes.items() for change in [*changes][:-1]]
        for _, key in sorted(earlier):
            if self._bytes <= MAX_BYTES * _KEPT:
                return
            self._bytes -= self._changes[key].popleft().size
            self._shortened.add(key)

    def turn_ended(self, thread_id: str, turn: int, items: int, places: Mapping[str, int | None] | None = None) -> None:
        """Note where a turn of a thread ended: how many items its log had, and which write was the last."""
        self._note_end(thread_id, turn, TurnEnd(items, self._order, places))

    def turn_read(self, thread_id: str, turn: int, items: int, places: Mapping[str, int | None]) -> None:
        """Note where a turn ended that was read from storage."""
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
        """Forget the writes of a layer in one scope: what it knew there is gone."""
        if (layer_id, scope_key) in self._changes:
            self._drop((layer_id, scope_key))

    def changes(self, layer_id: str, scope_key: str) -> tuple[StateChange, ...]:
        """Return copies of the writes of a layer in one scope that are remembered, oldest first."""
        found = self._changes.get((layer_id, scope_key), ())
        return tuple([change._replace(state=deep_copy(change.state)) for change in found])

    def latest(self, layer_id: str, scope_key: str) -> Any:
        """Return the state that was written last, the very object that is remembered; None where none is."""
        changes = self._changes.get((layer_id, scope_key))
        return changes[-1].state if changes else None

    def end_of(self, thread_id: str, turn: int) -> TurnEnd | None:
        """Return where a turn ended."""
        return self._ends.get(thread_id, {}).get(turn)

    def turns(self, thread_id: str) -> tuple[int, ...]:
        """Return the turns of a thread whose end is known."""
        return tuple(self._ends.get(thread_id, ()))

    def is_forgotten(self, layer_id: str, scope_key: str) -> bool:
        """Tell whether earlier writes were forgotten for newer ones."""
        return (layer_id, scope_key) in self._shortened

    def state_at(self, layer_id: str, scope_key: str, order: int) -> StateChange | None:
        """Return the last write up to a moment, None where none is remembered."""
        found = None
        for change in self._changes.get((layer_id, scope_key), ()):
            if change.order > order:
                break
            found = change
        return found
