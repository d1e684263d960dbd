"""Run an agent: threads of conversation over one configuration, its models, its storage and its sources of time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import EventSink, LayerStateChanged, QualityGiven
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items import ItemLog, thaw
from noetic_nb.memory import LayerStack, LayerStateStore
from noetic_nb.memory.diagnostics import Diagnostic, log_diagnostic
from noetic_nb.models.base import ModelClient
from noetic_nb.runtime.asking import as_input_items, log_items
from noetic_nb.runtime.config import AgentConfig
from noetic_nb.runtime.context import Context
from noetic_nb.runtime.describe import describe
from noetic_nb.runtime.engine import Approve, Engine, EventHub
from noetic_nb.runtime.errors import StoppedError
from noetic_nb.runtime.findings import Finding, find, llm_steps
from noetic_nb.runtime.interpreter import run_step
from noetic_nb.runtime.plan import TurnPlan, plan_turn
from noetic_nb.runtime.reply import AgentReply
from noetic_nb.runtime.session import Message, Session
from noetic_nb.runtime.turn import close_execution, new_context, run_turn
from noetic_nb.steps import Step
from noetic_nb.storage import StorageAdapter
from noetic_nb.tokens import Tokenizer, estimate_tokens

__all__ = ["AgentHarness"]


class AgentHarness:
    """An agent that can be talked to.

    Parameters
    ----------
    config : AgentConfig
        What it does.
    model : ModelClient or mapping of str to ModelClient
        One client for every model name, or clients by name.
    storage : StorageAdapter, optional
        Where state outlives executions; in memory by default.
    clock, ids : Clock, Ids, optional
        Sources of time and identity.
    tokenizer : callable, optional
        Counts tokens; see `noetic_nb.tokens`.
    approve : callable, optional
        Asked before a call that needs approval: ``approve(tool_name, args)`` answers True, False, or a text that says
        why not; may be async. Without it such calls are denied at once.
    diagnostic : callable, optional
        Told of errors that do not fail a turn: ``diagnostic(layer_id, hook, error)``; a warning is logged by default.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> config = nn.AgentConfig(name="echo", step=nn.react(model="scripted"))
    >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello!"]))
    >>> asyncio.run(harness.execute("Hi")).text
    'Hello!'
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        model: ModelClient | Mapping[str, ModelClient],
        storage: StorageAdapter | None = None,
        clock: Clock = SYSTEM_CLOCK,
        ids: Ids = SYSTEM_IDS,
        tokenizer: Tokenizer = estimate_tokens,
        approve: Approve | None = None,
        diagnostic: Diagnostic = log_diagnostic,
    ) -> None:
        _check_models(model)
        self.config = config
        self._hub = EventHub(diagnostic)
        state = LayerStateStore(diagnostic)
        self._stack = LayerStack(
            config.memory,
            storage=storage,
            state=state,
            force_atomic_recall=config.force_atomic_recall,
            on_steering_error=config.on_steering_error,
            clock=clock,
            ids=ids,
        )
        self._engine = Engine(
            config,
            model=model,
            stack=self._stack,
            hub=self._hub,
            clock=clock,
            ids=ids,
            tokenizer=tokenizer,
            approve=approve,
        )
        self._sessions: dict[str, Session] = {}
        self._live: dict[str, Context] = {}
        self._stop_listening: Any = None

    # -- talking --------------------------------------------------------------------------------------------------

    async def execute(
        self,
        text_or_items: str | Sequence[Mapping[str, Any]],
        *,
        thread_id: str = "default",
        resource_id: str | None = None,
    ) -> AgentReply:
        """Say something and wait for the turn it becomes part of.

        Parameters
        ----------
        text_or_items : str or sequence of items
            What is said.
        thread_id : str
            The conversation. Turns of one thread never overlap; what is said meanwhile shares the next turn.
        resource_id : str, optional
            The person, tenant or project; what layers of that scope know is shared between its threads.

        Returns
        -------
        AgentReply
            The reply, with what the turn cost.

        Raises
        ------
        NoeticError
            What went wrong: ``steering_denied``, ``llm_failed``, ``cancelled``, ... The user's items stay in the log and
            the thread can be used again.
        NoeticConfigError
            Where something cannot work as it is set up.
        """
        items = as_input_items(self._engine, text_or_items, "execute")
        session = self._session(thread_id)
        return await session.say(Message(items, resource_id), self._run)

    async def _run(self, session: Session, messages: Sequence[Message]) -> AgentReply:
        session.turn += 1
        first = messages[0]
        ctx = new_context(
            self._engine,
            thread_id=session.thread_id,
            resource_id=first.resource_id if first.resource_id is not None else session.resource_id,
            log=session.log,
            turn=session.turn,
        )
        session.resource_id = ctx.resource_id
        session.ctx, session.task = ctx, asyncio.current_task()
        self._live[ctx.id] = ctx
        try:
            return await run_turn(self._engine, ctx, [item for message in messages for item in message.items])
        finally:
            session.last, session.ctx, session.task = ctx, None, None
            self._live.pop(ctx.id, None)

    async def cancel(self, thread_id: str = "default", reason: str = "cancelled by the caller") -> bool:
        """Cancel the turn that is running on a thread; whoever waits for it gets ``cancelled``.

        Returns
        -------
        bool
            False where no turn was running.
        """
        session = self._sessions.get(thread_id)
        if session is None or session.ctx is None:
            return False
        session.ctx.abort(reason)
        if session.task is not None and session.task is not asyncio.current_task():
            session.task.cancel()
        return True

    @asynccontextmanager
    async def execution(self, *, thread_id: str = "default", resource_id: str | None = None) -> AsyncIterator[Context]:
        """Hold one execution open over several steps, or several cells; its layers complete and dispose once.

        Raises
        ------
        NoeticError
            ``step_failed`` where a turn of the thread is running.
        """
        session = self._resting(thread_id)
        session.busy = True
        session.turn += 1
        ctx = new_context(
            self._engine,
            thread_id=thread_id,
            resource_id=session.resource_id if resource_id is None else resource_id,
            log=session.log,
            turn=session.turn,
        )
        self._live[ctx.id] = ctx
        outcome: Any = "failure"
        try:
            await self._stack.init(self._engine.hook_context(ctx))
            yield ctx
            outcome = "success"
        except asyncio.CancelledError:
            outcome = "aborted"
            raise
        finally:
            session.last = ctx
            self._live.pop(ctx.id, None)
            try:
                await close_execution(self._engine, ctx, outcome)
            finally:
                session.release(self._run)

    async def run(self, step: Step, value: Any, ctx: Context) -> Any:
        """Run one step inside an open execution.

        Raises
        ------
        NoeticError
            ``aborted`` turns of a layer arrive as ``cancelled`` with the suggestion as the reason.
        """
        try:
            return await run_step(self._engine, step, value, ctx)
        except StoppedError as stopped:
            raise NoeticError(
                "cancelled",
                f"A layer stopped the execution: {stopped.stop.suggestion}",
                reason=stopped.stop.suggestion,
                decision=stopped.stop.decision,
            ) from None

    # -- feedback -------------------------------------------------------------------------------------------------

    async def feedback(self, thread_id: str = "default", *, quality: float, source: str = "user") -> None:
        """Judge the last reply of a thread.

        Parameters
        ----------
        quality : float
            From 0 (useless) to 1 (perfect); values outside are clamped by the regulator.
        source : str
            Who judges.

        Raises
        ------
        NoeticConfigError
            ``INVALID_FEEDBACK`` for what is not a finite number.
        """
        if isinstance(quality, bool) or not isinstance(quality, int | float) or not math.isfinite(quality):
            raise NoeticConfigError("INVALID_FEEDBACK", "Quality is a finite number from 0 to 1.", given=quality)
        ctx = self._context_of(thread_id)
        if self._engine.sink is not None:
            now = self._engine.clock.now_ms()
            self._engine.sink.emit(QualityGiven(ctx.where, now, float(quality), source))
        await self._stack.feedback(self._engine.hook_context(ctx), kind="quality", value=float(quality), source=source)

    async def correct(self, thread_id: str, message: str, *, source: str = "user") -> None:
        """Tell the agent what was wrong with the last reply of a thread, so that it is remembered.

        Raises
        ------
        NoeticConfigError
            ``INVALID_FEEDBACK`` for what is not text.
        """
        if not isinstance(message, str) or not message.strip():
            raise NoeticConfigError("INVALID_FEEDBACK", "A correction is a text.", given=message)
        ctx = self._context_of(thread_id)
        await self._stack.feedback(self._engine.hook_context(ctx), kind="correction", value=message, source=source)

    async def reset_task(self, thread_id: str = "default") -> None:
        """Begin a new task on a thread: what a regulator counted for the old one no longer stops it."""
        ctx = self._context_of(thread_id)
        await self._stack.feedback(self._engine.hook_context(ctx), kind="reset_task", value=None, source="user")

    def _context_of(self, thread_id: str) -> Context:
        """Return the context a remark about a thread belongs to: its last turn's."""
        session = self._session(thread_id)
        found = session.ctx or session.last
        if found is not None:
            return found
        return new_context(
            self._engine, thread_id=thread_id, resource_id=session.resource_id, log=session.log, turn=session.turn
        )

    # -- looking --------------------------------------------------------------------------------------------------

    def preview(self, thread_id: str = "default") -> TurnPlan:
        """Return what the next model call of a thread would send, without calling anything.

        The layers' part is what they last recalled on the thread; no hook is run.
        """
        session = self._session(thread_id)
        step = next(iter(llm_steps(self.config.step)), None)
        instructions = step.instructions if step is not None and isinstance(step.instructions, str) else ""
        last = session.ctx or session.last
        return plan_turn(
            session.log,
            self.config.memory,
            self.config.projection if step is None or step.projection is None else step.projection,
            () if last is None else last.recalled,
            instructions=instructions,
            tool_tokens=0 if step is None else self._engine.toolset(step).tokens,
            tokenizer=self._engine.tokenizer,
        )

    def check(self) -> tuple[Finding, ...]:
        """Look the configuration over; returns findings, worst first."""
        return find(self._engine)

    def describe(self) -> dict[str, Any]:
        """Return the configuration and the models' names as plain data, for the head of a run."""
        return describe(self.config, self._engine.models)

    def log(self, thread_id: str = "default") -> ItemLog:
        """Return a copy of a thread's log."""
        return self._session(thread_id).log.fork()

    def seed(self, thread_id: str, items: Iterable[Mapping[str, Any]]) -> None:
        """Begin a thread with what was said before, without asking anyone.

        Raises
        ------
        NoeticError
            ``step_failed`` where a turn of the thread is running.
        ItemValidationError
            For what is no item; nothing is logged then.
        """
        self._resting(thread_id)
        log_items(self._engine, self._context_of(thread_id), items, "seed")

    def close_thread(self, thread_id: str) -> bool:
        """Forget a thread: its log and what is kept for it in memory. What layers stored stays in storage.

        Returns
        -------
        bool
            False where there was no such thread.

        Raises
        ------
        NoeticError
            ``step_failed`` where a turn of the thread is running.
        """
        if thread_id not in self._sessions:
            return False
        self._resting(thread_id)
        del self._sessions[thread_id]
        self._engine.summaries.pop(thread_id, None)
        return True

    def _resting(self, thread_id: str) -> Session:
        session = self._session(thread_id)
        if session.busy:
            raise NoeticError(
                "step_failed", f"A turn of thread {thread_id!r} is running", hint="Await it first.", step_id="execution"
            )
        return session

    @property
    def threads(self) -> tuple[str, ...]:
        """The threads there are."""
        return tuple(self._sessions)

    def _session(self, thread_id: str) -> Session:
        session = self._sessions.get(thread_id)
        if session is None:
            if not isinstance(thread_id, str) or not thread_id:
                raise NoeticConfigError("INVALID_THREAD", "A thread needs a non-empty id.", given=thread_id)
            session = Session(thread_id, ItemLog(tokenizer=self._engine.tokenizer))
            self._sessions[thread_id] = session
        return session

    # -- recording ------------------------------------------------------------------------------------------------

    def subscribe(self, sink: EventSink) -> Any:
        """Send every event to a sink; returns a function that ends this."""
        self._hub.add(sink)
        self._listen()

        def unsubscribe() -> None:
            self._hub.remove(sink)
            self._listen()

        return unsubscribe

    def _listen(self) -> None:
        """Make events only while someone listens."""
        heard = bool(self._hub)
        self._engine.sink = self._hub if heard else None
        self._stack.sink = self._hub if heard else None
        if heard and self._stop_listening is None:
            begun = [layer.hooks.on_record for layer in self._stack.layers if layer.hooks.on_record is not None]
            ends = [self._stack.state.listen(self._state_written)]
            ends += [begin(self._hub, self._engine.clock) for begin in begun]
            self._stop_listening = lambda: [end() for end in ends]
        elif not heard and self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None

    def _state_written(self, execution_id: str, layer_id: str, state: Any, hook: str) -> None:
        ctx = self._live.get(execution_id)
        if ctx is not None:
            now = self._engine.clock.now_ms()
            self._hub.emit(LayerStateChanged(ctx.where, now, layer_id, hook, thaw(state)))

    def __repr__(self) -> str:
        return f"AgentHarness({self.config.name!r}, {len(self._sessions)} threads)"


def _check_models(model: object) -> None:
    clients = model.values() if isinstance(model, Mapping) else [model]
    for client in clients:
        if not isinstance(client, ModelClient):
            raise NoeticConfigError(
                "INVALID_MODEL",
                "A harness needs a model client, or a mapping of names to clients.",
                given=client,
                hint="Use nn.ScriptedModel([...]), nn.OpenAIModel('...'), or anything with `async complete(request)`.",
            )
