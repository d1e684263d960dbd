"""The threads of one harness: their turns, and the open executions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, get_args

from noetic_nb._core.arguments import closest
from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError
from noetic_nb.events import ItemsAppended, LayerStateChanged
from noetic_nb.items import Item, ItemLog
from noetic_nb.items._origins import with_origin
from noetic_nb.memory import resolve_scope_key
from noetic_nb.redact import safe_logger
from noetic_nb.runtime._config.config import Limits
from noetic_nb.runtime._context.context import Runner
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.keeping import keeper_of
from noetic_nb.runtime._context.messages import as_input_items, input_items, log_items
from noetic_nb.runtime._context.reply import AgentReply, problem_code, problem_text
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._threads.state_history import LiveHistory, StateHistory
from noetic_nb.runtime._threads.thread import Delivery, Message, Thread
from noetic_nb.runtime._threads.turn import ExecutionEnd, Resumed, arm_deadline, close_execution, new_context, run_turn
from noetic_nb.steps import SpawnStep
from noetic_nb.steps._records import steps_within
from noetic_nb.storage import ScopedStorage
from noetic_nb.sync import interruptible

if TYPE_CHECKING:
    from noetic_nb.runtime._threads.memory_view import MemoryView

_log: Final = safe_logger("noetic_nb")
_DELIVERIES: Final = get_args(Delivery)
_SUCH_AS: Final = {"limits": "{'max_steps': 5}", "state": "{'cart': []}"}


def _no_thread(thread_id: object) -> NoeticConfigError:
    hint = "For example: thread_id='ann'."
    return NoeticConfigError(
        "INVALID_THREAD", "The id of a thread must be a non-empty text.", given=thread_id, hint=hint
    )


def _check_resource(resource_id: object) -> None:
    if resource_id is not None and not isinstance(resource_id, str):
        hint = "Pass text, such as resource_id=str(5), or None."
        raise NoeticConfigError(
            "INVALID_RESOURCE", "The id of a resource must be a text.", given=resource_id, hint=hint
        )


class Conversations(Protocol):
    """A run or a harness: threads by name."""

    @property
    def threads(self) -> tuple[str, ...]:
        """The names of the threads."""

    # Positional, because its parameter has different names in the two classes.
    def log(self, thread_id: str, /) -> Iterable[Item]:
        """Return the items of a thread."""


class AddedItems(tuple[Item, ...]):
    """The items added to a log; awaiting it waits until the items that they replaced are gone from storage, too."""

    _settle: Callable[[], Awaitable[None]]

    def __await__(self) -> Generator[Any, None, AddedItems]:
        yield from self._settle().__await__()
        return self


class Threads:
    """Threads by id, contexts by execution. The engine runs their turns; a context belongs to the harness."""

    def __init__(self, engine: Engine, harness: Runner) -> None:
        self.by_id: dict[str, Thread] = {}
        self.live: dict[str, RunningExecution] = {}
        self._engine = engine
        self._harness = harness
        # For each thread that started over: layer ids and keys whose old data is still in storage.
        self.stale: dict[str, tuple[tuple[str, str], ...]] = {}
        self._clearing = asyncio.Lock()
        # Whether the next turn must warn that conversations are not saved although there is a storage.
        self.forgets = False
        # Threads that were only looked at.
        self._looked_at: set[str] = set()
        self._history = StateHistory(engine.clock)
        # `live` has only root executions. States of children are separate, and appear in the write of their parent's merge.
        self.written = engine.stack.state.history = LiveHistory(
            self._history, engine.stack.layers, self.live, self.find
        )
        engine.stack.state.on_problem = self._warn

    def there(self, thread_id: str) -> Thread | None:
        """Return a thread, None if there is none yet; raises `NoeticConfigError` ``INVALID_THREAD`` for what is no id."""
        if not isinstance(thread_id, str):
            raise _no_thread(thread_id)
        return self.by_id.get(thread_id)

    def thread(self, thread_id: str) -> Thread:
        """Return a thread, creating it if needed; raises `NoeticConfigError` ``INVALID_THREAD``."""
        thread = self.there(thread_id)
        if thread is None:
            if not thread_id:
                raise _no_thread(thread_id)
            thread = Thread(thread_id, ItemLog(registry=self._engine.stack.registry, tokenizer=self._engine.tokenizer))
            self.by_id[thread_id] = thread
        return thread

    def known(self, thread_id: str) -> None:
        """Raise for an unknown thread if others exist: a misspelt id would otherwise return an empty conversation."""
        there = [name for name in self.by_id if name not in self._looked_at or self._is_used(name)]
        if there and thread_id not in there:
            names = ", ".join(map(repr, sorted(there)[:10]))
            hint = f"{closest(thread_id, there)} Threads here are {names}; `load_thread` reads a saved one."
            raise NoeticConfigError("UNKNOWN_THREAD", "There is no such thread.", given=thread_id, hint=hint.strip())

    def _is_used(self, thread_id: str) -> bool:
        thread = self.by_id[thread_id]
        return thread.busy or thread.turn > 0 or len(thread.log) > 0

    def drop(self, thread_id: str) -> None:
        self.by_id.pop(thread_id, None)
        self._history.forget(thread_id)
        # The engine outlives its threads: without this, a server would keep data of every thread it ever had.
        self._engine.summaries.pop(thread_id, None)

    def resting(self, thread_id: str) -> Thread:
        """Return an idle thread; raises `NoeticError` ``step_failed`` if a turn is running."""
        thread = self.thread(thread_id)
        if thread.busy:
            raise NoeticError(
                "step_failed", f"A turn of thread {thread_id!r} is running", hint="Await it first.", step_id="execution"
            )
        return thread

    def close(self, thread_id: str) -> bool:
        """Remove an idle thread; False if there is none."""
        if thread_id not in self.by_id:
            return False
        self.resting(thread_id)
        self.drop(thread_id)
        return True

    def seed(self, thread_id: str, given: Any, replace: bool) -> AddedItems:
        """Begin a thread with items; see `AgentHarness.seed`."""
        if not isinstance(replace, bool):  # the text "no" would delete a thread
            raise NoeticConfigError("INVALID_OPTION", "`replace` must be True or False.", given=replace)
        items = self._read(_conversation(given, thread_id))
        thread = self.resting(thread_id)
        if len(thread.log) and not replace:
            raise NoeticConfigError(
                "THREAD_EXISTS",
                f"Thread {thread_id!r} has {len(thread.log)} items already.",
                given=thread_id,
                hint="append() adds to it; replace=True deletes its items and the layer states about them.",
            )
        if replace:
            self._begin_anew(thread)
        logged = self._add(thread_id, items)
        if replace:
            self._clear_at_once(thread_id)
        return logged

    def append(self, thread_id: str, given: Any) -> AddedItems:
        """Add items to a thread, skipping those that it has; see `AgentHarness.append`."""
        items = self._read(_conversation(given, thread_id))
        log = self.resting(thread_id).log
        known = {item["id"]: item for item in log if item.get("id")} if any(item.get("id") for item in items) else {}
        fresh = []
        for item in items:
            there = known.get(item.get("id"))
            if there is None:
                fresh.append(item)
                if item.get("id"):
                    known[item["id"]] = item
            elif _without_call_id(there) != _without_call_id(item):
                raise ItemValidationError(
                    f"Thread {thread_id!r} has another item with the id {item['id']!r}.",
                    given=item,
                    hint="Omit the id, or use another; nothing was added.",
                )
        return self._add(thread_id, fresh)

    def _read(self, given: Iterable[Any]) -> tuple[Item, ...]:
        return input_items(given, registry=self._engine.stack.registry, ids=self._engine.ids)

    def _add(self, thread_id: str, items: Sequence[Item]) -> AddedItems:
        logged = AddedItems(log_items(self._engine, self.context_of(thread_id), items, "seed"))
        logged._settle = lambda: self.cleared(thread_id)
        return logged

    def _begin_anew(self, thread: Thread) -> None:
        """Drop the data of a thread in memory, and note the keys to delete from storage."""
        engine, thread_id = self._engine, thread.thread_id
        old = self.context_of(thread_id)
        ctx = engine.hook_context(old)
        inner = [found.memory or () for found in steps_within(engine.config.step) if isinstance(found, SpawnStep)]
        stale = []
        for layer in (*engine.stack.layers, *(layer for layers in inner for layer in layers)):
            # Data shared with other threads, such as by a resource, is not this thread's to drop.
            if layer.scope in ("thread", "resource") and resolve_scope_key(layer.scope, ctx) == thread_id:
                stale.append((layer.id, thread_id))
                self._history.forget_changes(layer.id, thread_id)
                engine.stack.forget_recalled(layer.id, thread_id)
                if layer.hooks.on_edit is not None and ctx.resource_id is None:
                    layer.hooks.on_edit(ctx, None)()
                if engine.sink is not None:
                    now = engine.clock.now_ms()
                    engine.sink.emit(LayerStateChanged(old.where, now, layer.id, "seed", None))
        self.stale[thread_id] = tuple(dict.fromkeys(stale))
        thread.log = ItemLog(registry=engine.stack.registry, tokenizer=engine.tokenizer)
        thread.turn, thread.last, thread.writer = 0, None, None
        self._history.forget(thread_id)
        engine.summaries.pop(thread_id, None)
        if engine.sink is not None:
            # An empty event: from here on the thread's log in the run starts over, too.
            engine.sink.emit(ItemsAppended(self.context_of(thread_id).where, engine.clock.now_ms(), 0, (), "seed"))

    def _clear_at_once(self, thread_id: str) -> None:
        """Clear storage now if it answers at once; otherwise the next user of the thread does."""
        clearing = self.cleared(thread_id)
        try:
            clearing.send(None)
        except StopIteration:
            return
        except Exception as exc:  # the next user of the thread tries again and gets the error
            _log.warning("The data of thread %r is not yet deleted from storage. %s", thread_id, exc)
        finally:
            clearing.close()

    async def cleared(self, thread_id: str) -> None:
        """Delete the remaining keys of a thread that started over; may be called repeatedly."""
        if thread_id in self.stale:
            # One at a time: a second call would delete the writes of a turn that followed the first.
            async with self._clearing:
                if thread_id in self.stale:
                    await self._clear(thread_id)

    async def _clear(self, thread_id: str) -> None:
        for layer_id, scope_key in self.stale[thread_id]:
            storage = ScopedStorage(self._engine.stack.storage, layer_id, scope_key)
            for key in await storage.list():
                await storage.delete(key)
        del self.stale[thread_id]

    def context_of(self, thread_id: str) -> RunningExecution:
        """Return the context for an event about a thread: that of its last turn."""
        thread = self.thread(thread_id)
        found = thread.ctx or thread.last
        if found is not None:
            return found
        # No turn has run here, but an event needs a context. It is not added to `live`, because nothing runs in it.
        return new_context(
            self._engine,
            thread_id=thread_id,
            resource_id=thread.resource_id,
            log=thread.log,
            turn=thread.turn,
            harness=self._harness,
        )

    def memory(self, thread_id: str) -> MemoryView:
        from noetic_nb.runtime._threads.memory_view import MemoryView  # most programs never inspect memory

        if thread_id not in self.by_id:
            self._looked_at.add(thread_id)
        ctx = self.context_of(thread_id)
        return MemoryView(
            self._engine,
            self._history,
            self._engine.hook_context(ctx),
            self.thread(thread_id).log,
            is_live=ctx.id in self.live,
            open_thread=self._open_thread,
            threads=tuple(self.by_id),
            settle=lambda: self.cleared(thread_id),
            known=lambda: self.known(thread_id),
        )

    def _open_thread(self, thread_id: str, log: ItemLog, turn: int) -> None:
        self.by_id[thread_id] = Thread(thread_id, log, turn=turn)

    def find(self, execution_id: str) -> RunningExecution | None:
        """Return the context of an open execution, including children."""
        found = self.live.get(execution_id)
        below = [] if found is not None else list(self.live.values())
        while below:
            ctx = below.pop()
            if ctx.id == execution_id:
                return ctx
            below.extend(ctx.children)
        return found

    def _turn_ended(self, thread: Thread) -> None:
        """Record the end of a thread's turn, so that it can be rewound to."""
        self._history.turn_ended(thread.thread_id, thread.turn, len(thread.log))

    def _warn(self, execution_id: str, source: str, hook: str, error: BaseException) -> None:
        ctx = self.find(execution_id)
        if ctx is not None:  # after a turn is over, no reply of it can report a problem
            ctx.warn(problem_code(hook, error), problem_text(source, hook, error), None if hook == "emit" else source)

    def message(
        self,
        content: str | Sequence[Mapping[str, Any]],
        resource_id: str | None,
        delivery: str,
        limits: Limits | Mapping[str, Any] | None,
        state: Mapping[str, Any] | None,
    ) -> Message:
        """Validate a message and its options, without side effects."""
        if delivery not in _DELIVERIES:
            raise NoeticConfigError(
                "INVALID_OPTION", "There is no such delivery mode.", given=delivery, hint=f"Use one of {_DELIVERIES}."
            )
        if content is None:
            raise NoeticConfigError(
                "INVALID_OPTION",
                "There is no message.",
                given=content,
                hint="Write execute('Hi'); [] begins a turn without one.",
            )
        for option, value in () if limits is state is None else (("limits", limits), ("state", state)):
            if value is not None and not isinstance(value, Limits | Mapping):
                raise NoeticConfigError(
                    "INVALID_OPTION",
                    f"`{option}` is a mapping.",
                    given=value,
                    hint=f"For example: {option}={_SUCH_AS[option]}.",
                )
        _check_resource(resource_id)
        items = as_input_items(self._engine, content, "execute", serialise=False)
        # Checked now rather than when its turn begins: by then other messages may wait with it.
        checked = limits if limits is None or isinstance(limits, Limits) else Limits(**limits)
        now = self._engine.clock.monotonic_ms
        return Message(items, resource_id, checked, None if state is None else dict(state), now=now)

    def run(self, thread: Thread, messages: Sequence[Message]) -> Awaitable[AgentReply]:
        """Run one turn for all waiting messages; its options are those of the first message."""
        if thread.thread_id in self.stale:
            return self._run_cleared(thread, messages)
        first = messages[0]
        ctx = self._open(thread, first.resource_id, first.limits, first.state)
        # Before any event of the turn: a stream skips events of contexts that it does not know.
        for message in messages:
            if message.watch is not None:
                message.watch(ctx)
        if len(messages) == 1 and first.queued_ms is None:
            return self._turn(thread, ctx, first.take())
        queued = [message.queued_ms for message in messages if message.queued_ms is not None]
        waited = self._engine.clock.monotonic_ms() - min(queued) if queued else None
        return self._turn(thread, ctx, [item for message in messages for item in message.take()], waited_ms=waited)

    async def _run_cleared(self, thread: Thread, messages: Sequence[Message]) -> AgentReply:
        await self.cleared(thread.thread_id)
        return await self.run(thread, messages)

    async def _turn(
        self,
        thread: Thread,
        ctx: RunningExecution,
        items: Sequence[Mapping[str, Any]],
        resumed: Resumed | None = None,
        waited_ms: float | None = None,
    ) -> AgentReply:
        thread.ctx = ctx
        ctx.tree.inbox = thread.between
        end_waking = interruptible()
        try:
            return await run_turn(self._engine, ctx, items, resumed=resumed, waited_ms=waited_ms)
        finally:
            end_waking()
            # `last` first: a status read in between must find one of the two.
            thread.last, thread.ctx = ctx, None
            # Not before the turn was closed: writes of completing layers are only recorded for executions in `live`.
            self.live.pop(ctx.id, None)
            self._turn_ended(thread)
            if ctx.record is not None:
                ctx.record.turn.close()

    def _open(
        self,
        thread: Thread,
        resource_id: str | None,
        limits: Limits | None,
        state: dict[str, Any] | None,
        execution_id: str | None = None,
    ) -> RunningExecution:
        """Create the context of a thread's next turn."""
        thread.turn += 1
        ctx = new_context(
            self._engine,
            thread_id=thread.thread_id,
            resource_id=thread.resource_id if resource_id is None else resource_id,
            log=thread.log,
            turn=thread.turn,
            harness=self._harness,
            limits=limits,
            state=state,
            execution_id=execution_id,
        )
        thread.resource_id = ctx.resource_id
        self.live[ctx.id] = ctx
        if self.forgets:
            self.forgets = False
            ctx.warn(
                "conversation_not_kept",
                "The harness has a storage and keeps no checkpoints: a new process cannot continue this conversation. "
                "Pass checkpoints=True to keep it, or checkpoints=False to silence this warning.",
            )
        return ctx

    @asynccontextmanager
    async def execution(
        self, thread_id: str, resource_id: str | None, limits: Limits | None, state: Mapping[str, Any] | None
    ) -> AsyncIterator[RunningExecution]:
        _check_resource(resource_id)
        thread = self.resting(thread_id)
        thread.busy = True
        try:
            await self.cleared(thread_id)
        except BaseException:
            thread.release(self.run)
            raise
        ctx = self._open(thread, resource_id, limits, None if state is None else dict(state))
        thread.ctx = ctx
        timer, end_waking = arm_deadline(ctx), interruptible()
        outcome: ExecutionEnd = "failure"
        try:
            # Inside the `try`: if one layer fails to begin, those that have begun are closed.
            await self._engine.stack.init(self._engine.hook_context(ctx))
            if self._engine.remembering:
                await keeper_of(self._engine).begin(self._engine, ctx)
            yield ctx
            ctx.check_judges()
            outcome = "aborted" if ctx.aborted else "success"
        except asyncio.CancelledError:
            outcome = "aborted"
            raise
        except NoeticError as exc:
            outcome = "aborted" if exc.kind == "cancelled" else "failure"
            raise
        finally:
            end_waking()
            if timer is not None:
                timer.cancel()
            thread.last, thread.ctx = ctx, None
            try:
                await close_execution(self._engine, ctx, outcome)
            finally:
                self.live.pop(ctx.id, None)
                self._turn_ended(thread)
                # Last, so that no waiting message begins a turn while the layers are still writing.
                thread.release(self.run)


def _conversation(given: Any, thread_id: str) -> Iterable[Any]:
    """Return the given items; from a run, those of its only thread or of the thread of this name."""
    is_run = hasattr(given, "threads") and callable(getattr(given, "log", None))
    if isinstance(given, str | bytes | Mapping) or not (is_run or isinstance(given, Iterable)):
        raise ItemValidationError("A conversation must be a list of items.", given=given, hint="Pass [item, ...].")
    if isinstance(given, ItemLog):
        marked = given.marked()
        return [with_origin(item, marked[at]) if at in marked else item for at, item in enumerate(given)]
    if not is_run:
        return cast(Iterable[Any], given)
    if thread_id not in given.threads and len(given.threads) != 1:
        raise NoeticConfigError(
            "UNKNOWN_THREAD",
            "It has several threads, but none of this name.",
            given=thread_id,
            hint=f"Pass run.log(...) with one of {', '.join(map(repr, given.threads)) or 'none'}.",
        )
    return cast(Iterable[Any], given.log(thread_id if thread_id in given.threads else given.threads[0]))


def _without_call_id(item: Item) -> dict[str, Any]:
    """Return an item without its call id, which may differ in a log."""
    return {key: value for key, value in item.items() if key not in ("callId", "serverCallId")}
