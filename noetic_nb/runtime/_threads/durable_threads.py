"""Threads that outlive their process: a log continues where it was left, and an interrupted turn can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import ItemLog
from noetic_nb.items._item_checks import kept_problem
from noetic_nb.memory import ExecutionContext, resolve_scope_key
from noetic_nb.memory.scope import ScopeIds
from noetic_nb.redact import safe_logger
from noetic_nb.runtime._config.config import Limits
from noetic_nb.runtime._context.context import Runner
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.protocols import TurnRecorder
from noetic_nb.runtime._context.reply import AgentReply
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.step_errors import not_saved, note_saved
from noetic_nb.runtime._durability.checkpoints import Checkpoints, as_checkpoints
from noetic_nb.runtime._durability.corruption import is_damage
from noetic_nb.runtime._durability.snapshot import Snapshot, cut_off, joined, mark, newer, unsaved
from noetic_nb.runtime._durability.thread_log import Part, part_data, part_key
from noetic_nb.runtime._durability.thread_writer import ThreadWriter
from noetic_nb.runtime._threads.memory_view import MemoryView
from noetic_nb.runtime._threads.thread import Message, Thread
from noetic_nb.runtime._threads.threads import Threads
from noetic_nb.runtime._threads.turn import Resumed, turn_input
from noetic_nb.storage._adapter import write_together

_log: Final = safe_logger("noetic_nb")


def durable_threads(engine: Engine, harness: Runner, checkpoints: bool | Checkpoints) -> DurableThreads:
    return DurableThreads(engine, harness, as_checkpoints(checkpoints, engine.stack))


class DurableThreads(Threads):
    """The threads of a harness that keeps checkpoints.

    A thread is read from storage on first use. The items of an interrupted turn are part of its log and can be resumed;
    with the next turn, the interrupted one counts as aborted.
    """

    def __init__(self, engine: Engine, harness: Runner, checkpoints: Checkpoints) -> None:
        super().__init__(engine, harness)
        self.checkpoints = checkpoints
        self.store = checkpoints.threads

    async def run(self, thread: Thread, messages: Sequence[Message]) -> AgentReply:
        thread.is_opening = True
        try:
            await self._ready(thread)
            return await super().run(thread, messages)
        finally:
            thread.is_opening, thread.aborted_early = False, None

    def _turn(
        self,
        thread: Thread,
        ctx: RunningExecution,
        items: Sequence[Mapping[str, Any]],
        resumed: Resumed | None = None,
        waited_ms: float | None = None,
    ) -> Coroutine[Any, Any, AgentReply]:
        if thread.aborted_early is not None:
            ctx.abort(thread.aborted_early)
        thread.is_opening, thread.aborted_early = False, None
        return super()._turn(thread, ctx, items, resumed, waited_ms)

    def _open(
        self,
        thread: Thread,
        resource_id: str | None,
        limits: Limits | None,
        state: dict[str, Any] | None,
        execution_id: str | None = None,
    ) -> RunningExecution:
        ctx = super()._open(thread, resource_id, limits, state, execution_id)
        assert thread.writer is not None, "a thread is read before it is used"
        self.checkpoints.open(ctx, thread.writer)
        return ctx

    @asynccontextmanager
    async def execution(
        self, thread_id: str, resource_id: str | None, limits: Limits | None, state: Mapping[str, Any] | None
    ) -> AsyncIterator[RunningExecution]:
        async with self._held(thread_id) as thread:
            await self._ready(thread)
        record: TurnRecorder | None = None
        try:
            async with super().execution(thread_id, resource_id, limits, state) as ctx:
                record = None if ctx.record is None else ctx.record.turn
                yield ctx
        except BaseException as exc:
            if record is not None:
                note_saved(exc, record.problem)
            raise
        if record is not None and record.problem is not None and record.raises:
            raise not_saved(thread_id, record.problem, None)

    async def resume(self, execution_id: str) -> AgentReply:
        snapshot = await self.checkpoints.load(execution_id)
        async with self._held(snapshot.thread_id) as thread:
            if thread.thread_id in self.stale:
                await self.cleared(thread.thread_id)
                snapshot = await self.checkpoints.load(execution_id)
            thread.is_opening = True
            try:
                ctx = await self._reopened(thread, snapshot, execution_id)
                given = turn_input(ctx.query, ctx.item_log, snapshot.first)
                return await self._turn(thread, ctx, (), Resumed(snapshot.first, given, snapshot.elapsed_ms))
            finally:
                thread.is_opening, thread.aborted_early = False, None

    async def _reopened(self, thread: Thread, snapshot: Snapshot, execution_id: str) -> RunningExecution:
        """Read the thread of an interrupted turn, and restore its context."""
        with _reading(thread):
            parts = await self.store.read(snapshot.thread_id)
            if snapshot.parts < len(parts):
                await self._is_over(snapshot, parts[snapshot.parts], execution_id)
            writer = ThreadWriter(self.store, snapshot.thread_id, self._states)
            items = [*joined(writer, parts), *unsaved(snapshot, writer)]
            # The log here may be a beginning of the saved one, but nothing else.
            if list(thread.log) != items[: len(thread.log)]:
                raise _begun_without(thread)
            engine = self._engine
            thread.log = ItemLog(items, registry=engine.stack.registry, tokenizer=engine.tokenizer)
            self._remember(thread.thread_id, parts)
            self._mark(thread, *parts, snapshot)
            # One less, because `_open` increments it.
            thread.turn, thread.writer = snapshot.turn - 1, writer
            ctx = self._open(thread, snapshot.resource_id, snapshot.limits, dict(snapshot.state), execution_id)
            # All that can fail because of stored data happens before the turn counts as running.
            try:
                await self.checkpoints.restore(ctx, snapshot)
            except BaseException:
                # The turn has not restarted: it must not be ended, and the thread is read again on its next use.
                self.live.pop(ctx.id, None)
                engine.stack.state.cleanup(ctx.id)
                self._forget(thread)
                raise
            return ctx

    async def _is_over(self, snapshot: Snapshot, part: Part, execution_id: str) -> None:
        """Refuse to resume a turn whose thread has continued; its snapshot is deleted if the thread has all of its items."""
        is_held = part.first == snapshot.recorded and part.items[: len(snapshot.items)] == snapshot.items
        if is_held:
            await self.checkpoints.clear(execution_id)
        raise NoeticConfigError(
            "NO_CHECKPOINT",
            "This turn is over: its thread has continued since.",
            given=execution_id,
            hint="The items that it logged are part of the thread."
            if is_held
            else "It continued without the items that this turn logged; `await harness.clear_checkpoint(...)` forgets that.",
        )

    async def _ready(self, thread: Thread) -> None:
        with _reading(thread):
            await self.cleared(thread.thread_id)
            if thread.writer is None:
                await self._load(thread)
            else:
                await self._catch_up(thread, thread.writer)

    async def _settled(self, thread_id: str) -> None:
        """Wait while another task reads a thread, or is about to."""
        while (known := self.by_id.get(thread_id)) is not None and known.busy:
            if known.reading is not None:
                await asyncio.wait([known.reading])
            elif known.writer is None:
                # Busy but not reading yet: its task has not run. One iteration of the loop lets it begin.
                await asyncio.sleep(0)
            else:
                return

    async def _load(self, thread: Thread) -> None:
        writer = ThreadWriter(self.store, thread.thread_id, self._states)
        parts = list(await self.store.read(thread.thread_id))
        items = joined(writer, parts)
        later, cut = await newer(self.store, writer, self.live)
        parts += later
        items += joined(writer, later)
        cut = cut_off(writer, cut)
        if cut is not None:
            items += cut.items
        if (parts or cut is not None) and len(thread.log):
            raise _begun_without(thread)
        thread.log.extend(items)
        self._remember(thread.thread_id, parts)
        self._mark(thread, *parts, *([] if cut is None else [cut]))
        if parts or cut is not None:
            last: Part | Snapshot = parts[-1] if cut is None else cut
            thread.turn, thread.resource_id = last.turn, last.resource_id
        thread.writer = writer

    async def _catch_up(self, thread: Thread, writer: ThreadWriter) -> None:
        """Read the items that another harness has added; fails if items that were added here would be lost."""
        if writer.lost is not None:
            raise writer.lost
        try:
            # Only unsaved items and ends can conflict; without them the saved log wins.
            has_news = len(thread.log) > writer.items or bool(writer.ended)
            parts, cut = await newer(self.store, writer, self.live, is_cut_off=not has_news)
            for part in parts:
                if has_news and not writer.fits(part, thread.log):
                    raise writer.parted()
                thread.log.extend(part.items[max(0, len(thread.log) - part.first) :])
                self._mark(thread, part)
                writer.took(part)
                self._remember(thread.thread_id, [part])
                thread.turn, thread.resource_id = max(thread.turn, part.turn), part.resource_id
                thread.last = None  # it describes a turn that is no longer the last
            cut = cut_off(writer, cut)
            if cut is not None:
                thread.log.extend(cut.items)
                self._mark(thread, cut)
                thread.turn, thread.resource_id, thread.last = cut.turn, cut.resource_id, None
        except NoeticConfigError:
            raise
        except Exception as exc:
            if writer.lost is not None:
                raise
            _log.warning("Thread %r could not be compared with what is saved. %s", thread.thread_id, exc)

    @asynccontextmanager
    async def _held(self, thread_id: str) -> AsyncIterator[Thread]:
        """Keep turns of a thread waiting."""
        await self._settled(thread_id)
        thread = self.resting(thread_id)
        thread.busy = True
        try:
            yield thread
        finally:
            thread.release(self.run)

    async def load(self, thread_id: str) -> bool:
        """Read a thread from storage; False if none is saved."""
        await self._settled(thread_id)
        known = self.by_id.get(thread_id)
        if known is not None and known.busy:
            return True  # a turn is running, so it has been read
        async with self._held(thread_id) as thread:
            await self._ready(thread)
            writer = thread.writer
            is_saved = writer is not None and bool(writer.parts or writer.ended)
            if not is_saved and not len(thread.log) and not thread.turn and not thread.waiting:
                # Looking up a thread must not create one.
                self.drop(thread_id)
            return is_saved

    async def forget(self, thread_id: str) -> bool:
        """Delete a thread and its checkpoints; False if there was none."""
        async with self._held(thread_id) as thread:
            with _reading(thread):
                await self.cleared(thread_id)
                executions, keys = await self._executions(thread_id), await self.store.keys(thread_id)
                for execution_id in executions:
                    await self.checkpoints.clear(execution_id)
                await write_together(self.store.storage, {}, delete=keys)
            found = bool(executions or keys or len(thread.log))
            self._forget(thread)
            return found

    async def _clear(self, thread_id: str) -> None:
        """Delete the remaining keys of a thread that started over, and write its first items."""
        thread, store = self.thread(thread_id), self.store
        for execution_id in await self._executions(thread_id):
            await self.checkpoints.clear(execution_id)
        # The first part last, and replaced in one write: if this is interrupted, a valid beginning remains.
        first = part_key(thread_id, 0)
        await write_together(store.storage, {}, delete=[key for key in await store.keys(thread_id) if key != first])
        writer, log = ThreadWriter(store, thread_id, self._states), thread.log.fork()
        if len(log):
            part = part_data(self.context_of(thread_id), (0, 0, 0), log.items, {})
            await write_together(store.storage, {first: part})
            writer.parts, writer.items = 1, len(log)
        else:
            await write_together(store.storage, {}, delete=[first])
        await super()._clear(thread_id)
        thread.writer = writer

    async def _executions(self, thread_id: str) -> list[str]:
        keys = [key for key in await self.store.storage.list("execution:") if key.endswith(":snapshot")]
        found = []
        for key in keys:
            try:
                data = await self.store.storage.get(key)
            except Exception as exc:
                if not is_damage(exc):
                    raise
                continue  # its thread cannot be read, which must not block deleting other threads
            if isinstance(data, Mapping) and data.get("threadId") == thread_id:
                found.append(key.split(":")[1])
        return found

    def memory(self, thread_id: str) -> MemoryView:
        """Return the memory of a thread, whose forks get names that are not in storage either."""
        view = super().memory(thread_id)
        view.saved = _SavedThread(self, thread_id)
        return view

    def hook_context(self, thread_id: str) -> ExecutionContext:
        return self._engine.hook_context(self.context_of(thread_id))

    def _states(self, ctx: RunningExecution) -> Mapping[str, Any]:
        """Return the states that a fork of the thread would take with it, by layer."""
        layers = self._engine.stack.layers
        if not layers:
            return {}
        found, where = {}, ScopeIds(ctx.id, ctx.thread_id, ctx.resource_id)
        for layer in layers:
            if layer.scope in ("thread", "resource"):
                state = self._history.latest(layer.id, resolve_scope_key(layer.scope, where))
                if state is not None:
                    found[layer.id] = state
        return found

    def _turn_ended(self, thread: Thread) -> None:
        writer = thread.writer
        items, turn = len(thread.log), thread.turn
        is_saved = writer is not None and writer.items == items and writer.turn == turn
        places = writer.states.places if writer is not None and is_saved else None
        self._history.turn_ended(thread.thread_id, turn, items, places)

    def _mark(self, thread: Thread, *saved: Part | Snapshot) -> None:
        """Mark the origins of the read items, and report items that an earlier version accepted but this one would not."""
        mark(thread.log, *saved)
        for each in saved:
            for item in each.items:
                if problem := kept_problem(item):
                    report = self._engine.stack.state.diagnostic
                    report(f"thread {thread.thread_id!r}", "load", KeptItem(f"It was kept as it is stored. {problem}"))

    def _remember(self, thread_id: str, parts: Iterable[Part]) -> None:
        """Record the turns read from storage, so that the thread can be rewound to them."""
        for part in parts:
            if part.states is not None:
                self._history.turn_read(thread_id, part.turn, part.first + len(part.items), part.states)

    async def saved(self) -> tuple[str, ...]:
        return await self.store.names()

    def _forget(self, thread: Thread) -> None:
        """Clear the memory of a thread; a waiting message begins it again."""
        thread.log = ItemLog(registry=self._engine.stack.registry, tokenizer=self._engine.tokenizer)
        thread.turn, thread.resource_id, thread.last, thread.writer = 0, None, None, None
        self.drop(thread.thread_id)
        if thread.waiting:
            self.by_id[thread.thread_id] = thread


class KeptItem(Warning):
    """A saved thread contains an item that does not match its type."""


class _SavedThread(NamedTuple):
    """A thread in storage, for its memory."""

    threads: DurableThreads
    thread_id: str

    async def load(self) -> tuple[ExecutionContext, ItemLog] | None:
        thread = self.threads.thread(self.thread_id)
        if thread.writer is not None:
            return None
        await self.threads.load(self.thread_id)
        return self.threads.hook_context(self.thread_id), self.threads.thread(self.thread_id).log

    async def has(self, thread_id: str) -> bool:
        return await self.threads.store.has(thread_id)

    async def states(self, places: Mapping[str, int | None]) -> dict[str, Any]:
        return await self.threads.store.states(self.thread_id, places)


@contextmanager
def _reading(thread: Thread) -> Iterator[None]:
    """Make other users of a thread wait until it has been read."""
    done = thread.reading = asyncio.get_running_loop().create_future()
    try:
        yield
    finally:
        thread.reading = None
        done.set_result(None)


def _begun_without(thread: Thread) -> NoeticConfigError:
    return NoeticConfigError(
        "THREAD_EXISTS",
        f"A thread {thread.thread_id!r} is saved, and this one was begun without it.",
        given=thread.thread_id,
        hint="close_thread() drops the new thread, `await load_thread()` reads the saved one, "
        "`await forget_thread()` deletes it; or use another id.",
    )
