"""One turn: open an execution, let the agent work, close it whatever happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import TurnCompleted, TurnStarted
from noetic_nb.items import Item, ItemLog, assistant_text
from noetic_nb.memory import ExecutionContext, Stop
from noetic_nb.runtime.asking import append_input, log_items, query_of
from noetic_nb.runtime.context import Context
from noetic_nb.runtime.engine import Engine
from noetic_nb.runtime.errors import StoppedError
from noetic_nb.runtime.interpreter import run_step
from noetic_nb.runtime.reply import AgentReply

__all__ = ["close_execution", "new_context", "run_turn"]

_log: Final = logging.getLogger("noetic_nb")

ExecutionEnd = Literal["success", "failure", "aborted"]


@dataclass(slots=True)
class _Turn:
    """What is known of a turn while it runs."""

    turn_id: str
    first: int
    started_ms: float
    outcome: ExecutionEnd = "failure"
    stop: Stop | None = None


def new_context(engine: Engine, *, thread_id: str, resource_id: str | None, log: ItemLog, turn: int) -> Context:
    """Return the context of a new root execution."""
    return Context(
        id=engine.ids.new("execution"),
        thread_id=thread_id,
        resource_id=resource_id,
        log=log,
        turn=turn,
        started_ms=engine.clock.monotonic_ms(),
    )


async def run_turn(engine: Engine, ctx: Context, items: Sequence[Mapping[str, Any]]) -> AgentReply:
    """Log what the user said and let the agent answer.

    Raises
    ------
    NoeticConfigError
        ``NO_STEP_CONFIGURED``, or where something cannot work as it is set up.
    NoeticError
        What went wrong; the user's items stay in the log and the thread can be used again.
    """
    step = engine.config.step
    if step is None:
        log_items(engine, ctx, items, "user")
        raise NoeticConfigError(
            "NO_STEP_CONFIGURED",
            "The agent has no step to run.",
            hint="Pass step=... to AgentConfig, such as nn.react(...).",
        )
    turn = _Turn(engine.ids.new("turn"), len(ctx.item_log), engine.clock.monotonic_ms())
    try:
        await _begin(engine, ctx, turn, items)
        await run_step(engine, step, None, ctx)
        turn.outcome = "success"
    except StoppedError as stopped:
        turn.stop, turn.outcome = stopped.stop, "aborted"
    except asyncio.CancelledError:
        turn.outcome = "aborted"
        _raise_if_cancelled_by_us(engine, ctx)
        raise
    except NoeticError as exc:
        turn.outcome = "aborted" if exc.kind == "cancelled" else "failure"
        engine.report(ctx, exc)
        raise
    except Exception as exc:
        engine.report(ctx, exc)
        raise
    finally:
        late = await close_execution(engine, ctx, turn.outcome)
        if late is not None and turn.stop is None and turn.outcome == "success":
            turn.stop, turn.outcome = late, "aborted"
        reply = _reply(ctx, turn)
        _completed(engine, ctx, turn, reply)
    return reply


async def _begin(engine: Engine, ctx: Context, turn: _Turn, items: Sequence[Mapping[str, Any]]) -> None:
    """Initialise the layers and log what the user said; what was said is kept even where a layer cannot be."""
    if engine.stack.layers:
        hctx = engine.hook_context(ctx)
        try:
            await engine.stack.init(hctx)
        except BaseException:
            logged = log_items(engine, ctx, items, "user")
            _started(engine, ctx, turn, logged)
            raise
        logged, _ = await append_input(engine, ctx, hctx, items, "user")
    else:
        logged = log_items(engine, ctx, items, "user")
    ctx.query = query_of(logged)
    _started(engine, ctx, turn, logged)


def _started(engine: Engine, ctx: Context, turn: _Turn, logged: Sequence[Item]) -> None:
    if engine.sink is not None:
        stop = turn.first + len(logged)
        engine.sink.emit(
            TurnStarted(
                ctx.where, engine.clock.now_ms(), turn.turn_id, turn.first, stop, query_of(logged), ctx.resource_id
            )
        )


def _raise_if_cancelled_by_us(engine: Engine, ctx: Context) -> None:
    """Turn a cancellation that `cancel` asked for into the error its caller expects."""
    if ctx.aborted:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        error = NoeticError("cancelled", f"The turn was cancelled: {ctx.abort_reason}", reason=ctx.abort_reason)
        engine.report(ctx, error)
        raise error from None


async def close_execution(engine: Engine, ctx: Context, outcome: ExecutionEnd) -> Stop | None:
    """Complete and dispose the layers, always; returns a stop that one of them asked for at the end.

    Every hook in here has its own limit, so the whole is bounded; a cancellation that arrives meanwhile waits until the
    state is written.
    """
    if not engine.stack.layers:
        return None
    hctx = engine.hook_context(ctx)

    async def close() -> Stop | None:
        try:
            await engine.stack.complete(hctx, log=ctx.item_log, outcome=outcome)
            return engine.stack.take_stop(hctx)
        finally:
            await engine.stack.dispose(hctx)

    if not _needs_protection(engine, hctx):
        return await close()
    task = asyncio.ensure_future(close())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            _log.error("Closing an execution failed.", exc_info=task.exception())
        raise


def _needs_protection(engine: Engine, hctx: ExecutionContext) -> bool:
    """Tell whether closing has anything to do at which a cancellation could strike."""
    stack = engine.stack
    return bool(stack.having("on_complete") or stack.having("dispose") or stack.writes_durably)


def _reply(ctx: Context, turn: _Turn) -> AgentReply:
    items = tuple(ctx.item_log[turn.first :])
    text = assistant_text(items) if turn.stop is None else turn.stop.suggestion
    stopped = None if turn.stop is None else turn.stop.decision
    return AgentReply(text, items, ctx.tokens, ctx.cost, stopped, turn.turn_id, ctx.thread_id)


def _completed(engine: Engine, ctx: Context, turn: _Turn, reply: AgentReply) -> None:
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
                ctx.cost,
                ctx.model_calls,
                ctx.tool_calls,
                reply.stopped,
            )
        )
