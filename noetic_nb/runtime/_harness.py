"""Run an agent: threads of conversation over one configuration, its models, its storage, its clock and its ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, overload

from noetic_nb._core.arguments import explained
from noetic_nb._core.cards import Card, with_card
from noetic_nb._core.shell import Shell, checked_shell
from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import EventSink, TextRetracted
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.markup import plain, plain_line
from noetic_nb.memory import LayerStack, LayerStateStore
from noetic_nb.memory._execution_context import Diagnostic, log_diagnostic
from noetic_nb.models._client import ModelClient, check_clients
from noetic_nb.runtime._config.config import AgentConfig, Limits
from noetic_nb.runtime._config.harness_arguments import (
    HINTS,
    check_arguments,
    counter_of,
    filesystem_of,
    unknown_name,
)
from noetic_nb.runtime._context.channels import ChannelHandle
from noetic_nb.runtime._context.context import Context
from noetic_nb.runtime._context.engine import Approve, Engine
from noetic_nb.runtime._context.event_hub import EventHub
from noetic_nb.runtime._context.protocols import StepValue
from noetic_nb.runtime._context.reply import AgentReply
from noetic_nb.runtime._context.step_errors import TurnStopped
from noetic_nb.runtime._execution.run_step import run_step
from noetic_nb.runtime._execution.tool_call import own_context
from noetic_nb.runtime._harness_threads import HarnessThreads
from noetic_nb.runtime._threads.thread import Delivery, PendingReply
from noetic_nb.runtime._threads.threads import Threads
from noetic_nb.steps import Channel, Step
from noetic_nb.steps._records import as_step
from noetic_nb.storage import InMemoryStorage, StorageAdapter
from noetic_nb.tokens import Tokenizer

if TYPE_CHECKING:  # loaded when first needed
    from noetic_nb.runtime._durability.checkpoints import Checkpoints
    from noetic_nb.runtime._execution.handle import Handle
    from noetic_nb.runtime._threads.durable_threads import DurableThreads
    from noetic_nb.runtime._threads.turn_stream import Release, TurnStream
    from noetic_nb.tokenizers import TokenCalibration


@with_card(shown="in cells")
class AgentHarness(HarnessThreads):
    """An agent that you can talk to.

    Parameters
    ----------
    config : AgentConfig
        Configuration of the agent.
    model : ModelClient or mapping of str to ModelClient, optional
        One client for all model names, or clients by name; an agent without llm steps needs none.
    storage : StorageAdapter, optional
        Storage for state that outlives executions; in memory by default.
    clock, ids : Clock, Ids, optional
        Sources of time and of unique ids.
    tokenizer : str or callable, optional
        Counts tokens: a name for `noetic_nb.tokenizers.get`, such as ``"gpt-4.1"`` or ``"calibrated"``, a
        `TokenCalibration`, or a function of a text. It overrides the configuration's tokenizer; the default is an estimate.
    approve : callable, optional
        Called before a tool call that needs approval: ``approve(tool_name, args)`` returns True, False, or a text with the
        reason to refuse; may be async. Without it such calls are denied at once. If it has parameters named `question`,
        `rules` or `origins`, it gets the text of the asking rule, the ids of such rules, and the origin of each argument.
    diagnostic : callable, optional
        Called with errors that do not fail a turn: ``diagnostic(layer_id, hook, error)``; the default logs a warning.
    fs : str, path or fsspec filesystem, optional
        The agent's files, as ``ctx.fs`` in hooks, tools and steps: a folder that no path can escape, a URL such as
        ``memory://notes``, or any fsspec filesystem. It overrides the configuration's.
    shell : Shell, optional
        Runs commands, as ``ctx.shell``: a `LocalShell`, a `ScriptedShell`, or your own. It overrides the configuration's.
    checkpoints : bool or Checkpoints, optional
        Save conversations and turns to the storage: a new harness continues every thread where it was left, and
        `resume` continues a turn that a crash interrupted. Use each thread in one harness at a time.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> config = nn.AgentConfig(name="echo", step=nn.react(model="scripted"))
    >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello!"]))
    >>> asyncio.run(harness.execute("Hi")).text
    'Hello!'
    """

    @explained(**HINTS["__init__"])
    def __init__(
        self,
        config: AgentConfig,
        *,
        model: ModelClient | Mapping[str, ModelClient] | None = None,
        storage: StorageAdapter | None = None,
        clock: Clock = SYSTEM_CLOCK,
        ids: Ids = SYSTEM_IDS,
        tokenizer: str | Tokenizer | TokenCalibration | None = None,
        approve: Approve | None = None,
        diagnostic: Diagnostic = log_diagnostic,
        fs: Any = None,  # a filesystem of fsspec, which has no types
        shell: Shell | None = None,
        checkpoints: bool | Checkpoints | None = None,
    ) -> None:
        check_arguments(config, storage, clock, ids, tokenizer, approve, diagnostic)
        counted_by = counter_of(config.tokenizer if tokenizer is None else tokenizer)
        check_clients(model)
        self.config = config
        self.clock = clock
        self.ids = ids
        state = LayerStateStore(diagnostic)
        self._hub = EventHub(state.report, self._subscribers_changed)
        self._stack = LayerStack(
            config.memory,
            storage=storage,
            state=state,
            force_atomic_recall=config.force_atomic_recall,
            on_steering_error=config.on_steering_error,
            clock=clock,
            ids=ids,
            registry=config.item_registry,
        )
        self._engine = Engine(
            config,
            model=model,
            stack=self._stack,
            hub=self._hub,
            clock=clock,
            ids=ids,
            tokenizer=counted_by,
            approve=approve,
            fs=filesystem_of(config.fs if fs is None else fs),
            shell=checked_shell(config.shell if shell is None else shell),
        )
        self._record_ends: list[Callable[[], None]] | None = None
        self._durable: DurableThreads | None = None
        if checkpoints is not None and checkpoints is not False:
            # Loaded here, with the storage formats it needs, as most harnesses keep no checkpoints.
            from noetic_nb.runtime._threads.durable_threads import durable_threads

            self._durable = durable_threads(self._engine, self, checkpoints)
        self._threads = self._durable or Threads(self._engine, self)
        self._threads.forgets = checkpoints is None and storage is not None and not isinstance(storage, InMemoryStorage)

    @explained(**HINTS["execute"])
    def execute(
        self,
        text_or_items: str | Sequence[Mapping[str, Any]],
        *,
        thread_id: str = "default",
        resource_id: str | None = None,
        delivery: Delivery = "next_turn",
        limits: Limits | Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, AgentReply]:
        """Send a message and wait for the turn that answers it.

        Parameters
        ----------
        text_or_items : str or sequence of items
            The message.
        thread_id : str
            The conversation. Turns of one thread never overlap; messages sent in the meantime share the next turn.
        resource_id : str, optional
            The person, tenant or project; layers of that scope share their knowledge between its threads.
        delivery : {"next_turn", "between_rounds", "interrupt"}
            If a turn of the thread is running: wait for the next turn; join the running one from its next model call
            on, and get its reply; or cancel it and be answered instead.
        limits : Limits or mapping, optional
            Spending limits of the turn, instead of the agent's limits.
        state : mapping, optional
            Initial value of ``ctx.state``.

        Returns
        -------
        coroutine of AgentReply
            The reply, with the costs of the turn and its problems (`warnings`), once it is awaited: ``await`` it in a
            notebook, or use ``nn.run_sync(...)`` in a script. Nothing is sent before that.

        Raises
        ------
        NoeticError
            The problem: ``steering_denied``, ``llm_failed``, ``cancelled``, ... The user's items stay in the log and
            the thread can be used again. ``not_saved`` if all went well but the checkpoints could not be written; its
            ``reply`` is the reply.
        NoeticConfigError
            For a set-up that cannot work.
        """

        async def begin() -> AgentReply:
            message = self._threads.message(text_or_items, resource_id, delivery, limits, state)
            return await self._threads.thread(thread_id).send(message, self._threads.run, delivery)

        return PendingReply("execute", begin)

    @overload
    def stream(
        self,
        text_or_items: str | Sequence[Mapping[str, Any]],
        *,
        thread_id: str = ...,
        resource_id: str | None = ...,
        delivery: Delivery = ...,
        limits: Limits | Mapping[str, Any] | None = ...,
        state: Mapping[str, Any] | None = ...,
        release: Literal["judged"] = ...,
    ) -> TurnStream[str]: ...

    @overload
    def stream(
        self,
        text_or_items: str | Sequence[Mapping[str, Any]],
        *,
        thread_id: str = ...,
        resource_id: str | None = ...,
        delivery: Delivery = ...,
        limits: Limits | Mapping[str, Any] | None = ...,
        state: Mapping[str, Any] | None = ...,
        release: Literal["live"],
    ) -> TurnStream[str | TextRetracted]: ...

    @explained(**HINTS["stream"])
    def stream(
        self,
        text_or_items: str | Sequence[Mapping[str, Any]],
        *,
        thread_id: str = "default",
        resource_id: str | None = None,
        delivery: Delivery = "next_turn",
        limits: Limits | Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        release: Release = "judged",
    ) -> TurnStream[Any]:
        """Send a message and follow its turn: text as it is written, items as they are logged, events as they happen.

        Parameters
        ----------
        text_or_items, thread_id, resource_id, delivery, limits, state
            As for `execute`.
        release : {"judged", "live"}
            If rules review the model's answers: release each answer once it is accepted, so that rejected text is never
            seen; or release its pieces at once, followed by `TextRetracted` for rejected ones. If nothing reviews
            answers, both release pieces at once.

        Returns
        -------
        TurnStream
            Iterate over ``.text``, ``.items`` or ``.events``, even over several at a time; await ``.reply``. The turn
            begins with the first of these.

        Raises
        ------
        NoeticError
            ``step_failed``, at once, for a value that is not a message. An error of the turn is raised to its consumer.
        NoeticConfigError
            ``INVALID_OPTION``, ``INVALID_LIMITS`` or ``INVALID_THREAD``, at once.

        Examples
        --------
        >>> import asyncio
        >>> import noetic_nb as nn
        >>> config = nn.AgentConfig(name="echo", step=nn.react(model="scripted"))
        >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello, world!"]))
        >>> async def main():
        ...     return [piece async for piece in harness.stream("Hi").text]
        >>> asyncio.run(main())
        ['Hello, ', 'world!']
        """
        message = self._threads.message(text_or_items, resource_id, delivery, limits, state)
        if release not in ("judged", "live"):
            raise NoeticConfigError(
                "INVALID_OPTION", "There is no such release.", given=release, hint="Use 'judged' or 'live'."
            )
        session = self._threads.thread(thread_id)
        from noetic_nb.runtime._threads.turn_stream import TurnStream

        return TurnStream(self.subscribe, message, lambda: session.send(message, self._threads.run, delivery), release)

    async def cancel(self, thread_id: str = "default", reason: str = "cancelled by the caller") -> bool:
        """Cancel the running turn of a thread; its waiting caller gets ``cancelled``.

        Returns
        -------
        bool
            False if no turn was running.
        """
        session = self._threads.there(thread_id)
        return session is not None and session.abort(reason)

    @asynccontextmanager
    async def execution(
        self,
        *,
        thread_id: str = "default",
        resource_id: str | None = None,
        limits: Limits | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Context]:
        """Hold one execution open over several steps or cells; its layers complete and dispose once.

        Raises
        ------
        NoeticError
            ``step_failed`` if a turn of the thread is running.
        """
        async with self._threads.execution(thread_id, resource_id, limits, state) as ctx:
            yield ctx

    @explained(**HINTS["run"])
    async def run(self, step: Step | Mapping[str, Any], value: StepValue, ctx: Context) -> StepValue:
        """Run one step inside an open execution.

        Raises
        ------
        NoeticError
            The error of the step; if a layer stops the execution, ``cancelled`` with the suggestion as the reason.
        """
        try:
            own = own_context(ctx)
            return await run_step(own.engine, as_step(step, "what was to run"), value, own)
        except TurnStopped as stopped:
            raise stopped.as_error() from None

    def start(
        self, step: Step | Mapping[str, Any], value: StepValue, ctx: Context, *, drop: Iterable[str] = ()
    ) -> Handle:
        """Start one step in parallel to an open execution and return at once; ``ctx.start(step, value)`` is the same.

        It runs in a child execution with its own log, and the parent pays. If it is still running when the parent ends,
        it is aborted, and abandoned 500 ms later.

        Parameters
        ----------
        drop : iterable of str
            Ids of layers that the child does not inherit.

        Raises
        ------
        NoeticError
            ``cancelled``, or ``step_failed`` if the execution has ended.

        Examples
        --------
        >>> import asyncio
        >>> import noetic_nb as nn
        >>> harness = nn.AgentHarness(nn.AgentConfig(name="desk"))
        >>> async def main():
        ...     async with harness.execution() as ctx:
        ...         handle = harness.start(nn.step.run("double", lambda n, ctx: 2 * n), 21, ctx)
        ...         return handle.done, await handle.result()
        >>> asyncio.run(main())
        (False, 42)
        """
        from noetic_nb.runtime._execution.spawn_step import start_step

        own = own_context(ctx)
        return start_step(own.engine, as_step(step, "what was to start"), value, own, run_step, drop)

    def channel_handle(self, channel: Channel, execution_id: str) -> ChannelHandle:
        """Return the handle of an external channel of a running execution, for sending to it from outside.

        Raises
        ------
        NoeticConfigError
            ``INVALID_CHANNEL`` for a channel that is not declared external.
        """
        ctx = self._threads.find(execution_id)
        return ChannelHandle.open(None if ctx is None else ctx.tree.channels, channel)

    @property
    def executions(self) -> tuple[str, ...]:
        """Ids of the currently open executions."""
        return tuple(self._threads.live)

    def subscribe(self, sink: EventSink) -> Callable[[], None]:
        """Send every event to a sink; returns a function that unsubscribes it.

        Raises
        ------
        NoeticConfigError
            ``INVALID_OPTION`` for an object without ``emit``.
        """
        if not callable(getattr(sink, "emit", None)):
            raise NoeticConfigError(
                "INVALID_OPTION",
                "A sink needs a method emit(event).",
                given=sink,
                hint="To call a function for each event, use nn.record(harness).subscribe(function).",
            )
        self._hub.add(sink)
        return lambda: self._hub.remove(sink)

    @property
    def sinks(self) -> tuple[EventSink, ...]:
        """The event sinks, in order of subscription."""
        return self._hub.sinks

    @property
    def approve(self) -> Approve | None:
        """The callback that approves calls; None if calls that need approval are denied at once."""
        return self._engine.approve

    def _subscribers_changed(self) -> None:
        """Watch the states of layers only while there is a subscriber: without one, no events are created."""
        self._engine.update_sinks()
        self._threads.written.sink = self._engine.sink
        if self._hub and self._record_ends is None:
            begun = [layer.hooks.on_record for layer in self._stack.layers if layer.hooks.on_record is not None]
            self._record_ends = [begin(self._hub, self._engine.clock) for begin in begun]
        elif not self._hub and self._record_ends is not None:
            for end in self._record_ends:
                end()
            self._record_ends = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(unknown_name(type(self), name), name=name, obj=self)

    def _card(self) -> Card:
        engine, saved = self._engine, self._durable is not None
        models = engine.models if isinstance(engine.models, Mapping) else {"model": engine.models}
        facts: list[tuple[str, Any]] = [(plain(name, 40), client) for name, client in models.items()]
        facts += [("storage", self._stack.storage), ("checkpoints", saved), ("threads", len(self._threads.by_id))]
        return Card("AgentHarness", self.config.name, facts, [("config", self.config)])

    def __repr__(self) -> str:
        return f"AgentHarness({plain_line(self.config.name)!r}, {len(self._threads.by_id)} threads)"
