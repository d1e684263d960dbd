"""A running execution, with the parts that only the runtime needs; users see a `Context`.

A child execution has its own context. Its spending is charged to all its ancestors at once, and an abort reaches all
its descendants at once.
"""

from __future__ import annotations

import asyncio
from asyncio import current_task
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from noetic_nb._core.shell import Shell
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import WarningRaised, Where
from noetic_nb.items import Item, ItemLog
from noetic_nb.memory import ExecutionContext, RerenderRequest
from noetic_nb.memory._declared import TypedMemory
from noetic_nb.memory._enforcement import Place as CallPlace
from noetic_nb.memory._hooks.recall import RecallEntry
from noetic_nb.models._client import NO_USAGE, ModelResponse
from noetic_nb.runtime._config.config import Limits
from noetic_nb.runtime._context.context import ABORTED, Context, Runner, Tree
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.protocols import ExecutionRecorder, StepValue
from noetic_nb.runtime._context.reply import MAX_WARNINGS, ReplyWarning, problem_text
from noetic_nb.steps import Channel, Step
from noetic_nb.steps._channel_type import DEFAULT_TIMEOUT_MS as WAIT_MS

if TYPE_CHECKING:
    from noetic_nb.items._origin_index import KeptTexts, Provenance
    from noetic_nb.runtime._context.sent_history import KeptBy, SentTexts

T = TypeVar("T")


RUNNING: Final[ContextVar[tuple[RunningExecution, tuple[str, ...], int, Any] | None]] = ContextVar(
    "noetic_nb_running", default=None
)
"""The execution running in this task, its step frames, and the number of nested steps across all executions. Tasks
started by a step inherit it."""


StepRunner: TypeAlias = Callable[[Engine, Step, StepValue, "RunningExecution"], Awaitable[StepValue]]
"""Runs one step. Passed to steps that contain others, because the module that knows all kinds imports theirs."""

OpenMemory: TypeAlias = Callable[[Engine, "RunningExecution"], TypedMemory]
"""Creates the value of `Context.memory`."""


class RunningExecution(Context):
    """The state of an execution, with the parts that only the runtime needs."""

    parent: RunningExecution | None

    def __init__(
        self,
        id: str,
        thread_id: str,
        resource_id: str | None,
        log: ItemLog,
        turn: int,
        started_ms: float,
        *,
        engine: Engine,
        harness: Runner,
        open_memory: OpenMemory,
        parent: RunningExecution | None = None,
        state: dict[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.id = id
        self.thread_id = thread_id
        self.resource_id = resource_id
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.item_log = log
        # Start of its own part of the log; a fork's log begins with items of its parent.
        self.first = 0 if parent is None else len(log)
        self.sent: SentTexts | None = None
        self.kept: KeptBy | None = None
        # The reported common parts of its last request and the next one.
        self.prepared: tuple[Any, ...] | None = None
        self.turn = turn
        self.turn_id: str | None = None
        self.started_ms = started_ms
        self.state: dict[str, Any] = {} if state is None else state
        self.step_count = 0
        self.tokens = NO_USAGE
        self.cost = 0.0
        # Whether the price of any model call is known; otherwise a `cost` of 0 means nothing.
        self.priced = False
        self.last_step_meta = None
        # The item and text of the last llm step if it answered with a single item; valid for this very item only.
        self.answer: tuple[Item, str] | None = None
        # The calls to write into its record: its own, and those of children that have ended.
        self.calls: list[CallPlace] = []
        self.query: str = "" if parent is None else parent.query
        self.recalled: tuple[RecallEntry, ...] = ()
        # Re-renders requested by layers, due at the next llm step.
        self.rerenders: tuple[RerenderRequest, ...] = ()
        self.model_calls = 0
        self.tool_calls = 0
        self.locks: dict[str, asyncio.Lock] = {}
        self.aborted = False
        self.abort_reason: str | None = None
        self.abort_error: BaseException | None = None
        self.where = Where(thread_id, id, turn, self.depth)
        """The place of this execution in a run's events."""
        self.children: set[RunningExecution] = set()
        self.waiting: set[asyncio.Task[Any]] = set()
        self.running = 0
        # For a child: the steps around this execution.
        self.base_frames: tuple[str, ...] = ()
        around = RUNNING.get()
        self.base_nesting = 0 if around is None else around[2]
        self.engine = engine
        # The engine and the context for the hooks of its layers, created on first use.
        self.hook_base: tuple[Any, ExecutionContext] | None = None
        # Remembered data about the states of each layer, looked up once per writer.
        self.written: dict[str, Any] = {}
        self.harness = harness
        self.open_memory = open_memory
        # Records the progress of the execution if the harness keeps checkpoints.
        self.record: ExecutionRecorder[RunningExecution, Any] | None = None
        self.tree: Tree = Tree(limits) if parent is None else parent.tree
        if parent is not None:
            parent.children.add(self)
            if parent.aborted:
                self.aborted, self.abort_reason, self.abort_error = True, parent.abort_reason, parent.abort_error

    def warn(self, code: str, text: str, layer_id: str | None = None) -> None:
        """Add a warning to the reply of the turn and to the run; the same text only once."""
        warning = ReplyWarning(code, text, layer_id, self.turn)
        if warning in self.tree.warnings:  # a layer that fails at every step is reported once
            return
        if len(self.tree.warnings) < MAX_WARNINGS:
            self.tree.warnings += (warning,)
        if self.engine.sink is not None:
            self.engine.sink.emit(WarningRaised(self.where, self.engine.clock.now_ms(), code, text, layer_id))

    def report_problem(self, code: str, source: str, hook: str, error: BaseException) -> None:
        self.warn(code, problem_text(source, hook, error))
        self.engine.stack.state.diagnostic(source, hook, error)

    @property
    def root(self) -> RunningExecution:
        ctx = self
        while ctx.parent is not None:
            ctx = ctx.parent
        return ctx

    @property
    def params(self) -> Mapping[str, Any]:
        return self.engine.config.params

    @property
    def memory(self) -> TypedMemory:
        return self.open_memory(self.engine, self)

    @property
    def fs(self) -> Any:
        return self.engine.fs

    @property
    def shell(self) -> Shell | None:
        return self.engine.shell

    @property
    def elapsed_ms(self) -> float:
        return self.engine.clock.monotonic_ms() - self.started_ms

    def lock(self, layer_id: str) -> asyncio.Lock:
        return self.locks.setdefault(layer_id, asyncio.Lock())

    def entered(self, step_id: str, around: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Count a step that is about to run; returns its path, such as ``/think#1/ask#2``, and the parts of that path."""
        step_id = step_id.replace("~", "~0").replace("/", "~1")
        prefix = "".join([f"/{frame}" for frame in (*around, step_id)])
        count = self.tree.occurrences[prefix] = self.tree.occurrences.get(prefix, 0) + 1
        return f"{prefix}#{count}", (*around, f"{step_id}#{count}")

    @property
    def frames(self) -> tuple[str, ...]:
        """The running steps around the caller, outermost first; known only while steps are watched."""
        around = RUNNING.get()
        return around[1] if around is not None and around[0] is self else self.base_frames

    @property
    def place(self) -> str:
        """The running steps as a path, outermost first."""
        return "".join([f"/{frame}" for frame in self.frames])

    def noting(self) -> SentTexts:
        """Return the record of texts sent beside the log, for callers to extend."""
        if self.sent is None:
            from noetic_nb.runtime._context.sent_history import SentTexts

            self.sent = SentTexts()
        return self.sent

    def provenance(self, schema: Mapping[str, Any] | None = None) -> Provenance:
        """Return the origins of the values sent so far; `schema` is that of the call's arguments."""
        above = None if self.parent is None else self.parent.provenance()
        found = self.noting().provenance(self.item_log, self.first, self.calls, self.id, above)
        found.schema = schema
        found.kept = self.kept_texts
        return found

    @property
    def kept_texts(self) -> Mapping[str, KeptTexts]:
        """The source texts of its layers, and those of ended children whose words it now contains."""
        below = {} if self.sent is None else self.sent.kept
        return {**below, **({} if self.kept is None else self.kept.texts)}

    def charge(self, response: ModelResponse) -> None:
        ctx: RunningExecution | None = self
        usage = response.usage
        if usage.input_tokens < 0:  # would raise every limit of tokens
            usage = usage._replace(input_tokens=0)
        while ctx is not None:
            ctx.tokens = ctx.tokens + usage
            ctx.model_calls += 1
            if response.cost is not None:
                ctx.priced = True
                ctx.cost += response.cost
            ctx = ctx.parent

    @property
    def known_cost(self) -> float | None:
        return self.cost if self.priced or not self.model_calls else None

    def check_limits(self) -> None:
        limits = self.tree.limits
        if limits is None:
            return
        root = self.root
        limits.check(root.cost, root.tokens.total_tokens, self.tree.steps, root.elapsed_ms)

    def note_missing_judge(self, error: NoeticConfigError) -> None:
        self.tree.missing = error

    def check_judges(self) -> None:
        """Raise `NoeticConfigError` ``MISSING_CALL_MODEL`` if a judge that was never awaited turned out to have no model."""
        error, self.tree.missing = self.tree.missing, None
        if error is not None:
            self.engine.unanswered.discard(str(error.given))  # the next turn tries again
            raise error

    def abort(self, reason: str = ABORTED, *, error: BaseException | None = None) -> None:
        tasks: set[asyncio.Task[Any]] = set()
        self._mark(reason, error, tasks)
        if not tasks:
            return
        try:
            current = asyncio.current_task()
        except RuntimeError:
            current = None
        for task in tasks - self.tree.cut:
            if task is not current and not task.done():
                self.tree.cut |= {task}
                task.cancel()

    def _mark(self, reason: str, error: BaseException | None, tasks: set[asyncio.Task[Any]]) -> None:
        if self.aborted:
            return
        self.aborted, self.abort_reason, self.abort_error = True, reason, error
        tasks |= self.waiting
        for child in self.children:
            child._mark(reason, error, tasks)

    def check_abort(self) -> None:
        """Raise `NoeticError` ``cancelled`` if the execution was aborted."""
        if self.aborted:
            raise self.stopped()

    def stopped(self) -> BaseException:
        if self.abort_error is not None:
            return self.abort_error
        return NoeticError("cancelled", f"The execution was cancelled: {self.abort_reason}", reason=self.abort_reason)

    async def until_aborted(self, awaitable: Awaitable[T]) -> T:
        if self.aborted:
            if isinstance(awaitable, Coroutine):
                awaitable.close()
            raise self.stopped()
        task, waiting = current_task(), self.waiting
        if task is None or task in waiting:  # an outer wait of this task is already interrupted
            return await awaitable
        # A cancellation from outside may coincide with ours: only ours is taken back.
        before = task.cancelling()
        waiting.add(task)
        try:
            return await awaitable
        except asyncio.CancelledError:
            if task in self.tree.cut:
                self.tree.cut -= {task}
                if task.uncancel() <= before:
                    raise self.stopped() from None
            raise
        finally:
            waiting.discard(task)
            if task in self.tree.cut:  # the awaited code swallowed the cancellation: the next boundary raises
                self.tree.cut -= {task}
                task.uncancel()

    def leave(self) -> None:
        """Detach a child from its parent, which takes over its calls."""
        if self.parent is None:
            return
        self.parent.calls += self.calls
        self.calls = []
        self.parent.children.discard(self)

    async def send(self, channel: Channel, value: Any, timeout_ms: float = WAIT_MS) -> None:
        await self.tree.channels.send(channel, value, timeout_ms, self.until_aborted)

    async def recv(self, channel: Channel, timeout_ms: float = WAIT_MS) -> Any:
        self.check_abort()
        return await self.tree.channels.recv(channel, timeout_ms, self.until_aborted)
