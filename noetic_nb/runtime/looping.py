"""A loop: its steps again and again, until its predicate says stop and its inbox has nothing to add."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from noetic_nb.errors import NoeticError
from noetic_nb.items import input_message
from noetic_nb.models.base import NO_USAGE
from noetic_nb.runtime.context import Context
from noetic_nb.runtime.engine import Engine
from noetic_nb.runtime.errors import StoppedError, step_failed
from noetic_nb.runtime.saying import log_items
from noetic_nb.steps import LoopSnapshot, LoopStep, Verdict
from noetic_nb.steps.channel import EMPTY
from noetic_nb.steps.snapshot import output_text

__all__ = ["run_loop"]

RunStep: TypeAlias = Callable[[Engine, Any, Any, Context], Awaitable[Any]]


async def run_loop(engine: Engine, step: LoopStep, value: Any, ctx: Context, run: RunStep) -> Any:
    """Run a loop; returns the output of its last successful iteration.

    Raises
    ------
    NoeticError
        What its body raises, unless `on_error` deals with it; ``step_failed`` where it does not stop in time.
    """
    check = step.until.start()
    started = engine.clock.monotonic_ms()
    usage, cost = ctx.tokens, ctx.cost
    if ctx.tree.checkpoint is not None:
        usage, cost = ctx.tree.checkpoint.loop_began(ctx.place, usage, cost)
    history: deque[Any] = deque(maxlen=step.max_history_size)
    count = iterations = 0
    output: Any = None
    while True:
        ctx.check_abort()
        iterations += 1
        if iterations > step.max_iterations:
            raise step_failed(
                step.id,
                f"Loop {step.id!r} did not stop within {step.max_iterations} iterations",
                hint="Raise `max_iterations`, or look at why its predicate never holds.",
            )
        try:
            made = value
            for inner in step.steps:
                made = await run(engine, inner, made, ctx)
        except NoeticError as exc:
            match await _on_error(step, exc, ctx):
                case "retry":
                    continue
                case "skip":
                    if count and step.feed_output:
                        value = output
                    continue
                case _:
                    raise
        output = made
        count += 1
        history.append(output)
        verdict = await _judged(
            check,
            LoopSnapshot(
                step_count=count,
                tokens=ctx.tokens if usage is NO_USAGE else ctx.tokens - usage,
                cost=ctx.cost - cost,
                elapsed_ms=engine.clock.monotonic_ms() - started,
                last_output=output,
                last_text=output_text(output),
                history=tuple(history),
                depth=ctx.depth,
                last_step_meta=ctx.last_step_meta,
            ),
        )
        if verdict.stop and not await _read_inbox(engine, step, ctx):
            return output
        value = await _next_input(step, output, verdict, ctx)


async def _judged(check: Any, snapshot: LoopSnapshot) -> Verdict:
    """Ask the predicate; one that cannot answer ends the loop, or it would never end."""
    try:
        verdict = check(snapshot)
        if type(verdict) is Verdict:
            return verdict
        made: Verdict = await verdict if hasattr(verdict, "__await__") else verdict
    except StoppedError:
        raise
    except Exception as exc:
        return Verdict(True, f"Predicate error: {exc}")
    return made


async def _on_error(step: LoopStep, error: NoeticError, ctx: Context) -> str:
    """Return what to do about an error of the body; a cancellation is never dealt with here."""
    if step.on_error is None or error.kind == "cancelled" or ctx.aborted:
        return "abort"
    if isinstance(step.on_error, str):
        return step.on_error
    answer = step.on_error(error, ctx)
    if hasattr(answer, "__await__"):
        answer = await answer
    return answer if isinstance(answer, str) else "abort"


async def _read_inbox(engine: Engine, step: LoopStep, ctx: Context) -> bool:
    """Log a message of the loop's inbox as a developer message; False where there is none."""
    if step.inbox is None:
        return False
    if step.park_timeout_ms <= 0:
        message = ctx.try_recv(step.inbox)
    else:
        try:
            message = await ctx.recv(step.inbox, timeout_ms=step.park_timeout_ms)
        except NoeticError as exc:
            if exc.kind != "channel_timeout":
                raise
            message = EMPTY
    if message is EMPTY:
        return False
    log_items(engine, ctx, [input_message(output_text(message), "developer", ids=engine.ids)], "guidance")
    return True


async def _next_input(step: LoopStep, output: Any, verdict: Verdict, ctx: Context) -> Any:
    if step.prepare_next is None:
        return output if step.feed_output else None
    made = step.prepare_next(output, verdict, ctx)
    return await made if hasattr(made, "__await__") else made
