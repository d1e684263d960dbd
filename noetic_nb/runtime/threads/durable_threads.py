"""Threads that outlive their process: a log is read where it was left, and a turn that was cut off is gone on with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item, ItemLog
from noetic_nb.runtime.config.limits import Limits
from noetic_nb.runtime.context.context import Context, Runner
from noetic_nb.runtime.context.engine import Engine
from noetic_nb.runtime.context.reply import AgentReply
from noetic_nb.runtime.durability.checkpoints import Checkpoints, as_checkpoints
from noetic_nb.runtime.durability.snapshot import Snapshot
from noetic_nb.runtime.durability.thread_log import Part, unreadable
from noetic_nb.runtime.durability.thread_writer import ThreadWriter, snapshot_key
from noetic_nb.runtime.threads.memory_view import MemoryView
from noetic_nb.runtime.threads.thread import Message, Session
from noetic_nb.runtime.threads.threads import Threads
from noetic_nb.runtime.threads.turn import Resumed, turn_input
from noetic_nb.storage import write_together

__all__ = ["DurableThreads", "durable_threads"]

_log: Final = logging.getLogger("noetic_nb")


def durable_threads(engine: Engine, harness: Runner, checkpoints: bool | Checkpoints) -> DurableThreads:
    """Return the threads of a harness that was asked to keep checkpoints.

    Raises
    ------
    NoeticConfigError
        ``INVALID_OPTION`` for what is neither True nor `Checkpoints`.
    """
    return DurableThreads(engine, harness, as_checkpoints(checkpoints, engine.stack))


class DurableThreads(Threads):
    """The threads of a harness that keeps checkpoints.

    A thread is read from storage when it is first used. What a turn was cut off in the middle of is part of its log, too,
    until somebody resumes it; with the next turn it counts as aborted.
    """

    def __init__(self, engine: Engine, harness: Runner, checkpoints: Checkpoints) -> None:
        super().__init__(engine, harness)
        self.checkpoints = checkpoints
        self._store = checkpoints.threads

    # -- turns ----------------------------------------------------------------------------------------------------

    async def run(self, session: Session, messages: Sequence[Message]) -> AgentReply:
        """Run one turn, on the log as it is in storage."""
        with _opening(session):
            await self._ready(session)
            return await super().run(session, messages)

    async def _turn(
        self, session: Session, ctx: Context, items: Sequence[Mapping[str, Any]], resumed: Resumed | None = None
    ) -> AgentReply:
        if session.aborted_early is not None:
            ctx.abort(session.aborted_early)
        session.is_opening, session.aborted_early = False, None
        return await super()._turn(session, ctx, items, resumed)

    def _open(self, session: Session, resource_id: str | None, **more: Any) -> Context:
        ctx = super()._open(session, resource_id, **more)
        assert session.journal is not None, "a thread is read before it is used"
        self.checkpoints.open(ctx, session.journal)
        return ctx

    @asynccontextmanager
    async def execution(
        self, thread_id: str, resource_id: str | None, limits: Limits | None, state: Mapping[str, Any] | None
    ) -> AsyncIterator[Context]:
        """Hold one execution of a thread open; what it logs is written after each of its steps."""
        async with self._held(thread_id) as session:
            await self._ready(session)
        async with super().execution(thread_id, resource_id, limits, state) as ctx:
            yield ctx

    async def resume(self, execution_id: str) -> AgentReply:
        """Go on with a turn of a process that has ended."""
        snapshot = await self.checkpoints.load(execution_id)
        async with self._held(snapshot.thread_id) as session:
            with _opening(session):
                ctx = await self._reopened(session, snapshot, execution_id)
                said = turn_input(ctx.query, ctx.item_log, snapshot.first)
                return await self._turn(session, ctx, (), Resumed(snapshot.first, said, snapshot.elapsed_ms))

    async def _reopened(self, session: Session, snapshot: Snapshot, execution_id: str) -> Context:
        """Read the thread of a turn that was cut off, and make its context as it was."""
        with _reading(session):
            parts = await self._store.read(snapshot.thread_id)
            if snapshot.parts < len(parts):
                await self._is_over(snapshot, parts[snapshot.parts], execution_id)
            journal = ThreadWriter(self._store, snapshot.thread_id)
            items = [*_joined(journal, parts), *self._unsaved(snapshot, execution_id, journal)]
            if list(session.log) != items[: len(session.log)]:
                raise _begun_without(session)
            engine = self._engine
            session.log = ItemLog(items, registry=engine.stack.registry, tokenizer=engine.tokenizer)
            session.turn, session.journal = snapshot.turn - 1, journal
            ctx = self._open(
                session,
                snapshot.resource_id,
                execution_id=execution_id,
                state=dict(snapshot.state),
                limits=snapshot.limits,
            )
            try:
                await self.checkpoints.restore(ctx, snapshot)
            except BaseException:
                # The turn has not begun again: it must not be ended, and the thread is read anew when it is next used.
                self.live.pop(ctx.id, None)
                engine.stack.state.cleanup(ctx.id)
                self._forget(session)
                raise
            return ctx

    async def _is_over(self, snapshot: Snapshot, part: Part, execution_id: str) -> None:
        """Refuse to go on with a turn whose thread has gone on; its snapshot goes where the thread holds what is in it."""
        is_held = part.first == snapshot.recorded and part.items[: len(snapshot.items)] == snapshot.items
        if is_held:
            await self.checkpoints.clear(execution_id)
        raise NoeticConfigError(
            "NO_CHECKPOINT",
            "That turn is over: its thread has gone on since.",
            given=execution_id,
            hint="What it logged is part of the thread."
            if is_held
            else "It went on without what this turn logged; `await harness.clear_checkpoint(...)` forgets that.",
        )

    # -- reading --------------------------------------------------------------------------------------------------

    async def _ready(self, session: Session) -> None:
        """See to it that a thread has all that is saved of it."""
        with _reading(session):
            if session.journal is None:
                await self._read(session)
            else:
                await self._catch_up(session, session.journal)

    async def _settled(self, thread_id: str) -> None:
        """Wait as long as somebody else reads a thread, or is just about to."""
        while (known := self.sessions.get(thread_id)) is not None and known.busy:
            if known.reading is not None:
                await asyncio.wait([known.reading])
            elif known.journal is None:
                await asyncio.sleep(0)
            else:
                return

    async def _read(self, session: Session) -> None:
        """Read a thread for the first time.

        Raises
        ------
        NoeticConfigError
            ``CHECKPOINT_SCHEMA_MISMATCH``, or ``THREAD_EXISTS`` for one that was begun anew while another is saved.
        """
        journal = ThreadWriter(self._store, session.thread_id)
        parts = await self._store.read(session.thread_id)
        items = _joined(journal, parts)
        _, opened = await self._store.after(session.thread_id, journal.parts, journal.items)
        cut = await self._cut_off(journal, opened)
        if cut is not None:
            items += cut.items
        if (parts or cut is not None) and len(session.log):
            raise _begun_without(session)
        session.log.extend(items)
        if parts or cut is not None:
            last: Part | Snapshot = parts[-1] if cut is None else cut
            session.turn, session.resource_id = last.turn, last.resource_id
        session.journal = journal

    async def _cut_off(self, journal: ThreadWriter, execution_id: str | None) -> Snapshot | None:
        """Return where the turn stood that was under way when its process ended."""
        if execution_id is None or execution_id in journal.ended or execution_id in self.live:
            return None
        data = await self._store.storage.get(snapshot_key(execution_id))
        if data is None:
            return None
        snapshot = Snapshot.read(data, execution_id, self._store.registry)
        journal.ended.append(execution_id)
        if snapshot.parts < journal.parts:
            return None  # its end was written, and its snapshot not yet removed
        self._unsaved(snapshot, execution_id, journal)
        return snapshot

    def _unsaved(self, snapshot: Snapshot, execution_id: str, journal: ThreadWriter) -> tuple[Item, ...]:
        """Return the items that only a snapshot holds; it must follow the parts there are."""
        told = (snapshot.thread_id, snapshot.parts, snapshot.recorded)
        if told != (journal.thread_id, journal.parts, journal.items):
            raise unreadable(
                f"The checkpoint of this execution follows {snapshot.parts} parts with {snapshot.recorded} items of "
                f"thread {snapshot.thread_id!r}, of which there are {journal.parts} with {journal.items}, and",
                execution_id,
                "something between them is missing",
                "parts of it were deleted; remove it with `await harness.clear_checkpoint(...)`.",
            )
        return snapshot.items

    async def _catch_up(self, session: Session, journal: ThreadWriter) -> None:
        """Take in what another harness has added; nothing is lost where this one has said something else meanwhile.

        Raises
        ------
        NoeticError
            ``state_conflict`` where both have gone on.
        """
        if journal.lost is not None:
            raise journal.lost
        try:
            parts, opened = await self._store.after(session.thread_id, journal.parts, journal.items)
            has_news = len(session.log) > journal.items or bool(journal.ended)
            cut = None
            for part in parts:
                if has_news and not journal.fits(part, session.log):
                    raise journal.parted()
                session.log.extend(part.items[max(0, len(session.log) - part.first) :])
                journal.took(part)
                session.turn, session.resource_id = max(session.turn, part.turn), part.resource_id
                session.last = None  # what is said of the last turn is not about the last one here
            if not has_news:
                cut = await self._cut_off(journal, opened)
            if cut is not None:
                session.log.extend(cut.items)
                session.turn, session.resource_id, session.last = cut.turn, cut.resource_id, None
        except NoeticConfigError:
            raise
        except Exception as exc:
            if journal.lost is not None:
                raise
            _log.warning("Thread %r could not be compared with what is saved. %s", session.thread_id, exc)

    # -- by name --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _held(self, thread_id: str) -> AsyncIterator[Session]:
        """Keep turns of a thread waiting."""
        await self._settled(thread_id)
        session = self.resting(thread_id)
        session.busy = True
        try:
            yield session
        finally:
            session.release(self.run)

    async def load(self, thread_id: str) -> bool:
        """Read a thread from storage; False where none is saved."""
        await self._settled(thread_id)
        known = self.sessions.get(thread_id)
        if known is not None and known.busy:
            return True  # a turn is running: it has been read
        async with self._held(thread_id) as session:
            await self._ready(session)
            journal = session.journal
            is_saved = journal is not None and bool(journal.parts or journal.ended)
            if not is_saved and not len(session.log) and not session.turn and not session.waiting:
                self.drop(thread_id)
            return is_saved

    async def forget(self, thread_id: str) -> bool:
        """Delete a thread and its checkpoints; False where there was none."""
        async with self._held(thread_id) as session:
            with _reading(session):
                executions, keys = await self._executions(thread_id), await self._store.keys(thread_id)
                for execution_id in executions:
                    await self.checkpoints.clear(execution_id)
                await write_together(self._store.storage, {}, delete=keys)
            found = bool(executions or keys or len(session.log))
            self._forget(session)
            return found

    async def _executions(self, thread_id: str) -> list[str]:
        """Return the executions of a thread that have a snapshot."""
        keys = [key for key in await self._store.storage.list("execution:") if key.endswith(":snapshot")]
        found = []
        for key in keys:
            data = await self._store.storage.get(key)
            if isinstance(data, Mapping) and data.get("threadId") == thread_id:
                found.append(key.split(":")[1])
        return found

    def memory(self, thread_id: str) -> MemoryView:
        """Return the memory of a thread, whose forks get names that are not in storage either."""
        view = super().memory(thread_id)
        view.is_saved = self._store.has
        return view

    async def saved(self) -> tuple[str, ...]:
        """Return the threads that are saved."""
        return await self._store.names()

    def _forget(self, session: Session) -> None:
        """Forget what is in memory of a thread; whoever waits to say something on it begins it anew."""
        session.log = ItemLog(registry=self._engine.stack.registry, tokenizer=self._engine.tokenizer)
        session.turn, session.resource_id, session.last, session.journal = 0, None, None, None
        self.drop(session.thread_id)
        if session.waiting:
            self.sessions[session.thread_id] = session


@contextmanager
def _reading(session: Session) -> Iterator[None]:
    """Let others who need a thread wait until it has been read."""
    done = session.reading = asyncio.get_running_loop().create_future()
    try:
        yield
    finally:
        session.reading = None
        done.set_result(None)


@contextmanager
def _opening(session: Session) -> Iterator[None]:
    """Let the turn that is about to begin be cancelled before it does."""
    session.is_opening = True
    try:
        yield
    finally:
        session.is_opening, session.aborted_early = False, None


def _begun_without(session: Session) -> NoeticConfigError:
    return NoeticConfigError(
        "THREAD_EXISTS",
        f"A thread {session.thread_id!r} is saved, and this one was begun without it.",
        given=session.thread_id,
        hint="close_thread() forgets what was begun, `await load_thread()` reads what is saved, "
        "`await forget_thread()` deletes it; or use another id.",
    )


def _joined(journal: ThreadWriter, parts: Sequence[Part]) -> list[Item]:
    """Return the items of all parts, counted by a journal."""
    items: list[Item] = []
    for part in parts:
        items += part.items
        journal.took(part)
    return items
