"""The stored part of a thread's log, and the items still to be added there.

Only new items are ever written. Items of a failed write are written first the next time: storage never has gaps.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from noetic_nb.errors import NoeticError
from noetic_nb.items import ItemLog, thaw
from noetic_nb.redact import safe_logger
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._durability.thread_log import Part, ThreadStore, open_key, part_data, part_key, states_key
from noetic_nb.storage._adapter import set_many_of, write_together

# Parts that can be restored; docs/decisions/limits.md, "Durability".
MAX_PARTS: Final = 1_000

T = TypeVar("T")


class NewStates(NamedTuple):
    """The states written with a part (`changed`), the numbers of all states at that time, and those to delete (`gone`)."""

    places: dict[str, int | None]
    changed: dict[str, Any]
    gone: tuple[int, ...]
    states: dict[str, Any]


_NOTHING: Final = NewStates({}, {}, (), {})


@dataclass(slots=True)
class KeptStates:
    """The states of a thread that are in storage, and the parts that name them."""

    places: dict[str, int | None] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    # The last part that names each state, in that order, so that the oldest are found without a search.
    named_by: dict[int, int] = field(default_factory=dict)

    def next(self, number: int, states: Mapping[str, Any]) -> NewStates:
        """Return the states to write with part `number`; changes nothing."""
        if not (states or self.named_by):
            return _NOTHING
        places: dict[str, int | None] = {}
        changed: dict[str, Any] = {}
        for layer_id, state in states.items():
            if layer_id in self.places and self.states.get(layer_id) is state:
                places[layer_id] = self.places[layer_id]
                continue
            plain = _plain(state)
            if plain is None:
                places[layer_id] = None
            elif self.places.get(layer_id) is not None and self.states.get(layer_id) == state:
                places[layer_id] = self.places[layer_id]
            else:
                places[layer_id], changed[layer_id] = number, plain
        gone = []
        for old, last in self.named_by.items():
            if last > number - MAX_PARTS:
                break
            if old not in places.values():
                gone.append(old)
        return NewStates(places, changed, tuple(gone), dict(states))

    def written(self, number: int, new: NewStates) -> None:
        """Count the states written with a part."""
        if new.places or self.places:
            self.read(number, new.places)
        self.states = new.states
        for old in new.gone:
            self.named_by.pop(old, None)

    def read(self, number: int, places: Mapping[str, int | None]) -> None:
        """Count the states that a stored part names; their contents are unknown."""
        self.places, self.states = dict(places), {}
        for place in set(places.values()):
            if place is not None:
                self.named_by.pop(place, None)
                self.named_by[place] = number


def _plain(state: Any) -> Any:
    """Return a state as JSON data, or None if it is not: the part must not fail because of it."""
    try:
        plain = thaw(state)
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return plain


# Two harnesses that write one thread in turn resolve their conflict within one or two rounds.
MAX_ROUNDS: Final = 8
# A store that hangs must not delay the end of a turn for ever. Longer than the lock timeout of `SQLiteStorage`, so that
# the store's own error is reported.
END_LIMIT_S: Final = 40
# For checking whether a failed write is stored after all.
LOOK_LIMIT_S: Final = 5

_log: Final = safe_logger("noetic_nb")


def execution_prefix(execution_id: str) -> str:
    return f"execution:{execution_id}:"


def snapshot_key(execution_id: str) -> str:
    return f"execution:{execution_id}:snapshot"


def ledger_prefix(execution_id: str) -> str:
    return f"execution:{execution_id}:ledger:"


def begun_prefix(execution_id: str) -> str:
    """Return the key prefix for an execution's calls that have begun but not ended."""
    return f"execution:{execution_id}:begun:"


async def attempt(writing: Awaitable[None]) -> Exception | None:
    """Await a write; a failure is logged and returned, because only the end of a turn may fail for a missing write."""
    try:
        await writing
    except Exception as exc:
        _log.warning("A checkpoint could not be written; the turn continues without it. %s", exc)
        return exc
    return None


@dataclass(slots=True)
class ThreadWriter:
    """The stored part of a thread's log: the number of parts and items in storage, and the last turn there.

    `ended` are finished or abandoned executions whose checkpoints still exist. `lost` is why nothing can be added any
    more: another harness has continued the thread. `states_of` returns the current states of layers.
    """

    store: ThreadStore
    thread_id: str
    states_of: Callable[[RunningExecution], Mapping[str, Any]]
    parts: int = 0
    items: int = 0
    turn: int = 0
    ended: list[str] = field(default_factory=list)
    lost: NoeticError | None = None
    known: dict[str, list[str]] = field(default_factory=dict)
    states: KeptStates = field(default_factory=KeptStates)
    open_key: str = field(init=False)
    """The storage key that names the running execution."""

    def __post_init__(self) -> None:
        self.open_key = open_key(self.thread_id)

    @property
    def next_key(self) -> str:
        """The key of the next part: read before every turn, written at its end."""
        return part_key(self.thread_id, self.parts)

    def end(self, execution_id: str, keys: list[str]) -> None:
        """Remember that an execution is over, and all its keys but the snapshot's, to avoid listing them."""
        self.ended.append(execution_id)
        self.known[execution_id] = keys

    def took(self, part: Part) -> None:
        self.parts, self.items, self.turn = part.number + 1, part.first + len(part.items), part.turn
        self.states.read(part.number, part.states or {})

    async def keep(self, ctx: RunningExecution, stop: int, turn: int) -> None:
        """Write the unsaved items of the log up to `stop`, and delete the checkpoints of ended executions."""
        if self.lost is not None:
            raise self.lost
        for _ in range(MAX_ROUNDS):
            key = self.next_key
            # A turn without items is a part, too; otherwise another process would reuse its number.
            is_new = self.items < stop or self.turn < turn
            # In one group with the part: a store without groups writes the part first, so that the items are always somewhere.
            leftovers: list[str] = []
            for execution_id in self.ended:
                known = self.known.get(execution_id)
                leftovers += await self._saved_keys(execution_id) if known is None else known
                # Last: while it exists, the other keys can be found again.
                leftovers.append(snapshot_key(execution_id))
            if self.ended:
                leftovers.append(self.open_key)
            if not is_new and not leftovers:
                return
            values, new = self._part(key, ctx, stop, turn) if is_new else ({}, None)
            if new is not None and new.gone:
                leftovers += [states_key(self.thread_id, number) for number in new.gone]
            absent = (key,) if is_new else ()
            try:
                await write_together(self.store.storage, values, delete=leftovers, absent=absent)
            except NoeticError as exc:
                if exc.kind != "state_conflict" or exc.facts.get("key") != key:
                    raise
                # Either our own write, whose response was lost, or another harness: the next round shows.
                await self._take_over(ctx.item_log)
                continue
            if new is not None:
                if set_many_of(self.store.storage) is None:
                    await self._look_after(values[key], ctx.item_log)
                self.states.written(self.parts, new)
                self.parts, self.items, self.turn = self.parts + 1, max(self.items, stop), turn
            self.ended.clear()
            self.known.clear()
            return
        raise self.parted()

    async def _look_after(self, part: dict[str, Any], log: ItemLog) -> None:
        """Raise if another harness wrote this part at the same time: without groups, both may find the key free."""
        data = await self.store.storage.get(self.next_key)
        # Missing if the store returned an outdated value; that is no sign of another harness.
        if data is None or (data["items"] == part["items"] and data["turn"] == part["turn"]):
            return
        if not self.fits(self.store.part(data, self.thread_id, self.parts, self.items), log):
            raise self.parted()

    def _part(self, key: str, ctx: RunningExecution, stop: int, turn: int) -> tuple[dict[str, Any], NewStates]:
        """Return the next part by key, after the states that it names; a part without its states could not be restored."""
        new = self.states.next(self.parts, self.states_of(ctx))
        values: dict[str, Any] = {states_key(self.thread_id, self.parts): new.changed} if new.changed else {}
        items = ctx.item_log.since(self.items, stop)
        values[key] = part_data(ctx, (self.parts, self.items, turn), items, new.places)
        return values, new

    async def keep_all(self, ctx: RunningExecution) -> Exception | None:
        """Write all items that a turn logged, as `keep` does, within a time limit; returns why they are not stored, or None."""
        problem = await attempt(self._in_time(self.keep(ctx, len(ctx.item_log), ctx.turn)))
        if problem is None or await self._holds(ctx):
            return None
        return self.lost or problem

    async def _in_time(self, keeping: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(END_LIMIT_S) as deadline:
                await keeping
        except TimeoutError as exc:
            if not deadline.expired():
                raise
            raise NoeticError("storage_failed", f"The store did not answer within {END_LIMIT_S} seconds") from exc

    async def _holds(self, ctx: RunningExecution) -> bool:
        """Tell whether a turn is stored although its write failed: the response was lost, or a later deletion failed."""
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                if self.lost is None and (self.items < len(ctx.item_log) or self.turn < ctx.turn):
                    await self._take_over(ctx.item_log)
        except Exception as exc:
            _log.debug("Whether a turn is saved cannot be read. %s", exc)
        return self.lost is None and self.items >= len(ctx.item_log) and self.turn >= ctx.turn

    async def _take_over(self, log: ItemLog) -> None:
        """Count an existing part if it is our own: a write can succeed and its response be lost."""
        data = await self.store.storage.get(self.next_key)
        if data is None:
            return  # deleted meanwhile: try again
        part = self.store.part(data, self.thread_id, self.parts, self.items)
        if not self.fits(part, log):
            raise self.parted()
        self.took(part)

    def fits(self, part: Part, log: ItemLog) -> bool:
        """Tell whether a log holds the items of a part at its position."""
        stop = part.first + len(part.items)
        return stop <= len(log) and all(a == b for a, b in zip(part.items, log[part.first : stop], strict=True))

    def parted(self) -> NoeticError:
        """Return, and remember, the error for a thread that another harness has continued."""
        self.lost = NoeticError(
            "state_conflict",
            f"Another harness has continued thread {self.thread_id!r}: the items added here from item {self.items} on is "
            f"not in storage",
            hint="Run a thread in one harness at a time. close_thread() drops its thread here; the next turn then continues "
            "what is saved.",
            thread_id=self.thread_id,
            first=self.items,
        )
        return self.lost

    async def _saved_keys(self, execution_id: str) -> list[str]:
        keys = await self.store.storage.list(execution_prefix(execution_id))
        return [key for key in keys if key != snapshot_key(execution_id)]


def timed(ctx: RunningExecution, storing: Awaitable[T]) -> Awaitable[T]:
    """Wait for storage; if the run has a subscriber, add the wait to the turn's storage time."""
    return storing if ctx.engine.sink is None else _timed(ctx, storing)


async def _timed(ctx: RunningExecution, storing: Awaitable[T]) -> T:
    engine = ctx.engine
    start = engine.clock.monotonic_ms()
    try:
        return await storing
    finally:
        engine.stack.state.storage_ms[ctx.thread_id, ctx.turn] += engine.clock.monotonic_ms() - start
