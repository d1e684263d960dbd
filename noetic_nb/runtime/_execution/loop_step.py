"""A loop repeats its steps until its predicate is met and its inbox is empty."""

from __future__ import annotations

from collections import deque
from typing import Any

from noetic_nb.errors import NoeticError
from noetic_nb.items import input_message
from noetic_nb.models._client import NO_USAGE
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.messages import log_items
from noetic_nb.runtime._context.protocols import StepValue
from noetic_nb.runtime._context.running_execution import RUNNING, RunningExecution, StepRunner
from noetic_nb.runtime._context.step_errors import TurnStopped, step_failed
from noetic_nb.steps import Channel, LoopSnapshot, LoopStep, Verdict
from noetic_nb.steps._channel_type import EMPTY
from noetic_nb.steps._loops import flowing_text, output_text
from noetic_nb.sync import awaited


async def run_loop(
    engine: Engine, step: LoopStep, value: StepValue, ctx: RunningExecution, run: StepRunner
) -> StepValue:
    """Run a loop; returns the output of its last successful iteration."""
    check = step.until.start()
    recorder = ctx.record
    around = None if recorder is None else RUNNING.get()
    record = None if around is None else around[3]
    meter = _Meter(engine, step, ctx, record)
    iterations = 0
    output: StepValue = None
    while True:
        if ctx.aborted:
            raise ctx.stopped()
        iterations += 1
        if iterations > step.max_iterations:
            what = f"Loop {step.id!r} did not stop within {step.max_iterations} iterations"
            raise step_failed(step.id, what, hint="Raise `max_iterations`, or look at why its predicate never holds.")
        answer = None if recorder is None else recorder.failure_of(record, iterations)
        if answer is None:
            try:
                if len(step.steps) == 1:
                    made = await run(engine, step.steps[0], value, ctx)
                else:
                    made = await _iteration(engine, step, value, ctx, run)
            except NoeticError as exc:
                if recorder is not None and recorder.put_off:
                    await recorder.catch_up()
                answer = await _on_error(step, exc, ctx)
                if answer not in ("retry", "skip"):
                    raise
                if recorder is not None:
                    await recorder.iteration_failed(record, step, iterations, answer)
        if answer is not None:
            # A failed iteration counts against `max_iterations`, or a persistent error would never end the loop.
            # Before the first success there is no output, and the loop's own input is used.
            if answer == "skip" and meter.count and step.feed_output:
                value = output
            continue
        output = made
        try:
            verdict = check(meter.snapshot(output))
            # The type first, which is faster than checking for an attribute that a verdict does not have.
            if type(verdict) is not Verdict and hasattr(verdict, "__await__"):
                verdict = await verdict
        except TurnStopped:  # a judge in the predicate ends the turn, not the loop
            raise
        except Exception as exc:  # a failing predicate ends the loop, or it would never end
            verdict = Verdict(True, f"Predicate error: {exc}")
        if verdict.stop and (step.inbox is None or not await _read_inbox(step.inbox, engine, step, ctx)):
            if output is None and step.needs_output:
                what = f"Loop {step.id!r} stopped without an output: {verdict.reason or 'its predicate said so'}"
                raise step_failed(step.id, what, hint="Let its last step return something, or pass needs_output=False.")
            return output
        if recorder is not None and recorder.put_off:
            await recorder.catch_up()
        if step.prepare_next is None:
            value = output if step.feed_output else None
        else:
            value = await awaited(step.prepare_next(output, verdict, ctx))


async def _iteration(
    engine: Engine, step: LoopStep, value: StepValue, ctx: RunningExecution, run: StepRunner
) -> StepValue:
    first, *others = step.steps
    made = await run(engine, first, value, ctx)
    for inner in others:
        made = await run(engine, inner, flowing_text(made) if step.text_between else made, ctx)
    return made


class _Meter:
    """The spending and outputs of a loop since it began, for its predicate."""

    # Any: a recorder's step record is private to it.
    def __init__(self, engine: Engine, step: LoopStep, ctx: RunningExecution, record: Any) -> None:
        self._engine, self._ctx = engine, ctx
        self._history: deque[Any] = deque(maxlen=step.max_history_size)
        self.count = 0
        self._started = engine.clock.monotonic_ms()
        self._usage, self._cost = ctx.tokens, ctx.cost
        if ctx.record is not None:  # the loop may have begun in another process
            self._usage, self._cost, self._started = ctx.record.loop_began(record, self._started)

    def snapshot(self, output: StepValue) -> LoopSnapshot:
        """Count an iteration and return the snapshot for the predicate."""
        ctx = self._ctx
        self.count += 1
        self._history.append(output)
        if ctx.record is None:
            tokens, cost, now = ctx.tokens, ctx.cost, self._engine.clock.monotonic_ms()
        else:
            tokens, cost, now = ctx.record.spent_then()
        fields = (
            self.count,
            tokens if self._usage is NO_USAGE else tokens - self._usage,
            cost - self._cost,
            now - self._started,
            output,
            output_text(output),
            tuple(self._history),
            ctx.depth,
            ctx.last_step_meta,
        )
        return tuple.__new__(LoopSnapshot, fields)  # half the time of calling the class


async def _on_error(step: LoopStep, error: NoeticError, ctx: RunningExecution) -> str:
    """Return the action for an error of the body; never called for cancellations."""
    if step.on_error is None or error.kind == "cancelled" or ctx.aborted:
        return "abort"
    if isinstance(step.on_error, str):
        return step.on_error
    answer = await awaited(step.on_error(error, ctx))
    # Continuing requires an explicit answer; a function that forgot to return one ends the loop.
    return answer if isinstance(answer, str) else "abort"


async def _read_inbox(inbox: Channel, engine: Engine, step: LoopStep, ctx: RunningExecution) -> bool:
    """Log a message from the loop's inbox as a developer message; False if there is none."""
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
