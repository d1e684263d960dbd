"""A loop: its steps again and again, until its predicate says stop and its inbox has nothing to add."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from noetic_nb.errors import NoeticError
from noetic_nb.items import input_message
from noetic_nb.models.client import NO_USAGE
from noetic_nb.runtime.context.context import Context
from noetic_nb.runtime.context.engine import Engine
from noetic_nb.runtime.context.messages import log_items
from noetic_nb.runtime.context.step_errors import StoppedError, step_failed
from noetic_nb.steps import Channel, LoopSnapshot, LoopStep, Verdict
from noetic_nb.steps.channel_type import EMPTY
from noetic_nb.steps.loop_snapshot import flowing_text, output_text

__all__ = ["run_loop"]

RunStep: TypeAlias = Callable[[Engine, Any, Any, Context], Awaitable[Any]]
"""Makes one step happen; the interpreter above hands it in."""


async def run_loop(engine: Engine, step: LoopStep, value: Any, ctx: Context, run: RunStep) -> Any:
    """Run a loop; returns the output of its last successful iteration.

    Raises
    ------
    NoeticError
        What its body raises, unless `on_error` deals with it; ``step_failed`` where it does not stop in time, or
        stops with nothing to show that must have something.
    """
    check = step.until.start()
    started = engine.clock.monotonic_ms()
    usage, cost = ctx.tokens, ctx.cost
    record = None if ctx.record is None else ctx.record.step(ctx.frames)
    if record is not None:
        usage, cost, started = ctx.record.loop_began(record, started)
    history: deque[Any] = deque(maxlen=step.max_history_size)
    count = iterations = 0
    output: Any = None
    first, *others = step.steps
    while True:
        if ctx.aborted:
            raise ctx.stopped()
        iterations += 1
        if iterations > step.max_iterations:
            raise step_failed(
                step.id,
                f"Loop {step.id!r} did not stop within {step.max_iterations} iterations",
                hint="Raise `max_iterations`, or look at why its predicate never holds.",
            )
        answer = None if record is None else ctx.record.failure_of(record, iterations)
        if answer is None:
            try:
                made = await run(engine, first, value, ctx)
                for inner in others:
                    made = await run(engine, inner, flowing_text(made) if step.text_between else made, ctx)
            except NoeticError as exc:
                answer = await _on_error(step, exc, ctx)
                if answer not in ("retry", "skip"):
                    raise
                if record is not None:
                    await ctx.record.iteration_failed(record, step, iterations, answer)
        if answer is not None:
            if answer == "skip" and count and step.feed_output:
                value = output
            continue
        output = made
        count += 1
        history.append(output)
        if record is None:
            tokens, paid, now = ctx.tokens, ctx.cost, engine.clock.monotonic_ms()
        else:
            tokens, paid, now = ctx.record.spent_then()
        snapshot = LoopSnapshot(
            count,
            tokens if usage is NO_USAGE else tokens - usage,
            paid - cost,
            now - started,
            output,
            output_text(output),
            tuple(history),
            ctx.depth,
            ctx.last_step_meta,
        )
        try:
            verdict = check(snapshot)
            if type(verdict) is not Verdict and hasattr(verdict, "__await__"):
                verdict = await verdict
        except StoppedError:
            raise
        except Exception as exc:  # a predicate that cannot answer ends the loop, or it would never end
            verdict = Verdict(True, f"Predicate error: {exc}")
        if verdict.stop and (step.inbox is None or not await _read_inbox(step.inbox, engine, step, ctx)):
            if output is None and step.needs_output:
                raise step_failed(
                    step.id,
                    f"Loop {step.id!r} stopped without an output: {verdict.reason or 'its predicate said so'}",
                    hint="Let its last step return something, or pass needs_output=False.",
                )
            return output
        if step.prepare_next is None:
            value = output if step.feed_output else None
        else:
            value = step.prepare_next(output, verdict, ctx)
            if hasattr(value, "__await__"):
                value = await value


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


async def _read_inbox(inbox: Channel, engine: Engine, step: LoopStep, ctx: Context) -> bool:
    """Log a message of the loop's inbox as a developer message; False where there is none."""
    if step.park_timeout_ms <= 0:
        message = ctx.try_recv(inbox)
    else:
        try:
            message = await ctx.recv(inbox, timeout_ms=step.park_timeout_ms)
        except NoeticError as exc:
            if exc.kind != "channel_timeout":
                raise
            message = EMPTY
    if message is EMPTY:
        return False
    log_items(engine, ctx, [input_message(output_text(message), "developer", ids=engine.ids)], "guidance")
    return True
