"""One turn: open an execution, run the agent's step, and always close it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import TurnCompleted, TurnStarted
from noetic_nb.items import Item, ItemLog, assistant_message, assistant_text
from noetic_nb.memory import Stop
from noetic_nb.memory._declared import TypedMemory
from noetic_nb.runtime._config.config import Limits, exceeded
from noetic_nb.runtime._context.context import Runner
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.keeping import keeper_of
from noetic_nb.runtime._context.messages import TurnInput, append_input, log_items, query_of, warn_if_redacted
from noetic_nb.runtime._context.protocols import TurnRecorder
from noetic_nb.runtime._context.reply import AgentReply
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.step_errors import TurnStopped, layers_not_saved, not_saved, note_saved
from noetic_nb.runtime._execution.run_step import run_step
from noetic_nb.steps._loops import output_text
from noetic_nb.sync import protected

ExecutionEnd = Literal["success", "failure", "aborted"]


@dataclass(slots=True, eq=False)
class _Turn:
    turn_id: str
    first: int
    started_ms: float
    waited_ms: float | None = None
    outcome: ExecutionEnd = "failure"
    stop: Stop | None = None
    output: Any = None  # any value that the agent's step returns
    error: BaseException | None = None


def new_context(
    engine: Engine,
    *,
    thread_id: str,
    resource_id: str | None,
    log: ItemLog,
    turn: int,
    limits: Limits | None = None,
    state: dict[str, Any] | None = None,
    execution_id: str | None = None,
    harness: Runner,
) -> RunningExecution:
    return RunningExecution(
        engine.ids.new("execution") if execution_id is None else execution_id,
        thread_id,
        resource_id,
        log,
        turn,
        engine.clock.monotonic_ms(),
        state=state,
        limits=engine.config.limits if limits is None else limits,
        engine=engine,
        harness=harness,
        open_memory=_open_memory,
    )


def _open_memory(engine: Engine, ctx: RunningExecution) -> TypedMemory:
    """Return the functions and data of layers, loaded when a step first uses them."""
    from noetic_nb.runtime._execution.context_memory import ContextMemory

    return ContextMemory(engine, ctx)


async def run_turn(
    engine: Engine,
    ctx: RunningExecution,
    items: Sequence[Mapping[str, Any]],
    *,
    resumed: Resumed | None = None,
    waited_ms: float | None = None,
) -> AgentReply:
    """Log the user's items, which waited `waited_ms` for other turns, and run the agent's step.

    An interrupted turn, `resumed`, already has its items logged and its layer states loaded. Raises `NoeticConfigError`
    ``NO_STEP_CONFIGURED`` or for a set-up that cannot work, and `NoeticError` for other problems; the user's items stay
    in the log and the thread can be used again.
    """
    step = engine.config.step
    if step is None:
        log_items(engine, ctx, items, "user")
        raise NoeticConfigError(
            "NO_STEP_CONFIGURED",
            "The agent has no step to run.",
            hint="Pass step=... to AgentConfig, such as nn.react(...).",
        )
    first = len(ctx.item_log) if resumed is None else resumed.first
    turn = _Turn(engine.ids.new("turn"), first, ctx.started_ms, waited_ms)
    ctx.turn_id = turn.turn_id
    timer = None
    if ctx.tree.limits is not None:
        timer = arm_deadline(ctx, 0.0 if resumed is None else resumed.used_ms)
    try:
        if resumed is not None and engine.remembering:
            await keeper_of(engine).begin(engine, ctx, resumed.first)
        given = await _begin(engine, ctx, turn, items) if resumed is None else resumed.given
        if ctx.record is not None:
            # Not earlier: a turn resumed without its user's items would have nothing to answer.
            await ctx.record.turn.begin(first)
        turn.output = await run_step(engine, step, given, ctx)
        if len(ctx.item_log) <= turn.first or ctx.item_log[-1].get("role") != "assistant":
            _log_answer(engine, ctx, turn)
        ctx.check_judges()
        turn.outcome = "success"
    except TurnStopped as stopped:
        turn.stop, turn.outcome = stopped.stop, "aborted"
    except asyncio.CancelledError as exc:
        turn.outcome, turn.error = "aborted", exc
        raise
    except NoeticError as exc:
        turn.outcome, turn.error = "aborted" if exc.kind == "cancelled" else "failure", exc
        engine.report(ctx, exc)
        raise
    except Exception as exc:
        turn.error = exc
        engine.report(ctx, exc)
        raise
    finally:
        if timer is not None:
            timer.cancel()
        # A layer may ask for a stop only when it completes; that must not hide an error or an earlier stop.
        late = await close_execution(engine, ctx, turn.outcome)
        if late is not None and turn.stop is None and turn.outcome == "success":
            turn.stop, turn.outcome = late, "aborted"
        reply = _reply(ctx, turn)
        unsaved = None if ctx.record is None else _unsaved(ctx, ctx.record.turn, turn.error, reply)
        if unsaved is not None:
            engine.report(ctx, unsaved)
        _completed(engine, ctx, turn, reply)
    # After the turn is complete: the answer exists, and only its record is missing.
    if unsaved is not None:
        raise unsaved
    return reply


def _unsaved(
    ctx: RunningExecution, record: TurnRecorder, error: BaseException | None, reply: AgentReply
) -> NoeticError | None:
    """Return the error for a turn that is not in storage; if the turn failed, its error gets a note instead."""
    if error is not None:
        note_saved(error, record.problem)
        return None
    return not_saved(ctx.thread_id, record.problem, reply) if record.problem is not None and record.raises else None


class Resumed(NamedTuple):
    """The state of an interrupted turn: its first item, the user's message, and the time it had taken."""

    first: int
    given: TurnInput
    used_ms: float = 0.0


def arm_deadline(ctx: RunningExecution, used_ms: float = 0.0) -> asyncio.TimerHandle | None:
    """Abort an execution at its time limit, interrupting a running model call; `used_ms` of the time are already used."""
    limits = ctx.tree.limits
    if limits is None or limits.max_duration_ms is None:
        return None
    limit = limits.max_duration_ms

    def expire() -> None:
        # The timer uses the loop's clock, which may be ahead of ours: the error must not name less time than the limit.
        ctx.abort("out of time", error=exceeded("duration", limit, max(limit, ctx.elapsed_ms)))

    return asyncio.get_running_loop().call_later(max(0.0, limit - used_ms) / 1000, expire)


async def _begin(engine: Engine, ctx: RunningExecution, turn: _Turn, items: Sequence[Mapping[str, Any]]) -> TurnInput:
    """Initialise the layers and log the user's items, which are kept even if a layer fails."""
    if ctx.turn == 1 and turn.first:  # seeded outside a turn, so no reply has warned of it yet
        warn_if_redacted(ctx, ctx.item_log, "The conversation that the thread began with")

    def announce(logged: Sequence[Item]) -> None:
        if engine.sink is not None:
            stop, query = turn.first + len(logged), query_of(logged)
            news = () if ctx.kept is None else keeper_of(engine).news(engine, ctx)
            about = (turn.turn_id, turn.first, stop, query, ctx.resource_id, turn.waited_ms, news)
            engine.sink.emit(TurnStarted(ctx.where, engine.clock.now_ms(), *about))

    if engine.stack.layers:
        hook_ctx = engine.hook_context(ctx)
        try:
            await engine.stack.init(hook_ctx)
            if engine.remembering:
                await keeper_of(engine).begin(engine, ctx)
        except BaseException:
            log_items(engine, ctx, items, "user", announce)
            raise
        logged, ctx.rerenders = await append_input(engine, ctx, hook_ctx, items, "user", announce)
        ctx.query = query_of(logged)
        return turn_input(ctx.query, ctx.item_log, turn.first)
    logged = log_items(engine, ctx, items, "user", announce)
    ctx.query = query_of(logged)
    # Without an await in between, the first of these is the first of the turn.
    return TurnInput(ctx.query, logged[0] if logged else None, turn.first)


def turn_input(text: str, log: ItemLog, first: int) -> TurnInput:
    """Return the input of a turn's first step: the text of the items logged from `first` on."""
    # A turn without items is legal: code may start one with an empty list.
    return TurnInput(text, log[first] if first < len(log) else None, first)


def _log_answer(engine: Engine, ctx: RunningExecution, turn: _Turn) -> None:
    """Log an answer that came from the agent's children: the conversation must contain the text that the user read."""
    text = output_text(turn.output)
    # A step that returned its input unchanged has answered nothing: that text is the user's own.
    if not text or isinstance(turn.output, TurnInput):
        return
    if not any(item.get("role") == "assistant" for item in ctx.item_log[turn.first :]):
        log_items(engine, ctx, [assistant_message(text, ids=engine.ids)], "model")


async def close_execution(engine: Engine, ctx: RunningExecution, outcome: ExecutionEnd) -> Stop | None:
    """Complete and dispose the layers, always, each hook within its limit; returns a stop requested by one of them."""
    if engine.handles and ctx.id in engine.handles:
        from noetic_nb.runtime._execution.handle import end_handles  # loaded with the first started step

        late = None
        try:
            # It removes the handles even if it raises, so the call below does not come here again.
            late = await end_handles(engine, ctx)
        finally:
            stop = await close_execution(engine, ctx, outcome)
        return stop or late
    ctx.tree.end()
    if ctx.record is None:
        return await _close_layers(engine, ctx, outcome) if engine.stack.layers else None
    try:
        if engine.stack.layers:
            return await _close_layers(engine, ctx, outcome)
        ctx.hook_base = None
        return None
    finally:
        # Last: a turn killed before this is resumed, and its layers complete then.
        await ctx.record.turn.end()


async def _close_layers(engine: Engine, ctx: RunningExecution, outcome: ExecutionEnd) -> Stop | None:
    try:
        return await protected(_ended_layers(engine, ctx, outcome), "Closing an execution")
    finally:
        ctx.hook_base = None  # it refers to the execution, which should be freed with its last user


async def _ended_layers(engine: Engine, ctx: RunningExecution, outcome: ExecutionEnd) -> Stop | None:
    """Store the source texts of an execution before its layers complete."""
    hook_ctx = engine.hook_context(ctx)
    try:
        try:
            if engine.remembering:
                await keeper_of(engine).keep(engine, ctx)
        finally:
            await engine.stack.complete(hook_ctx, log=ctx.item_log, outcome=outcome)
        return engine.stack.take_stop(hook_ctx)
    finally:
        failed = await engine.stack.dispose(hook_ctx)
        if failed and ctx.record is not None:
            ctx.record.turn.problem = layers_not_saved(failed)


def _reply(ctx: RunningExecution, turn: _Turn) -> AgentReply:
    items = ctx.item_log.since(turn.first)
    if turn.stop is not None:
        text = turn.stop.suggestion
    elif ctx.answer is not None and items and items[-1] is ctx.answer[0]:
        text = ctx.answer[1]  # already extracted by the step
    else:
        text = assistant_text(items)
    stopped = None if turn.stop is None else turn.stop.decision
    meta, reason = ctx.last_step_meta, ctx.tree.finish_reason
    if turn.stop is not None:
        reason = None
    elif meta is not None:
        reason = meta.finish_reason
    return AgentReply(
        text,
        items,
        ctx.tokens,
        ctx.cost,
        stopped,
        turn.turn_id,
        ctx.thread_id,
        turn.output,
        reason,
        ctx.tree.warnings,
        None if ctx.record is None else ctx.record.turn.problem is None,
    )


def _completed(engine: Engine, ctx: RunningExecution, turn: _Turn, reply: AgentReply) -> None:
    storage_ms = engine.stack.state.storage_ms.pop((ctx.thread_id, ctx.turn), 0.0)
    if engine.sink is not None:
        engine.sink.emit(
            TurnCompleted(
                ctx.where,
                engine.clock.now_ms(),
                turn.turn_id,
                turn.outcome,
                engine.clock.monotonic_ms() - turn.started_ms,
                reply.text,
                ctx.tokens.input_tokens,
                ctx.tokens.output_tokens,
                ctx.known_cost,
                ctx.model_calls,
                ctx.tool_calls,
                reply.stopped,
                reply.finish_reason,
                storage_ms,
            )
        )
