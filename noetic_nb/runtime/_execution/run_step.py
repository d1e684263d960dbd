"""Run a step: every kind of step passes through here, with the same guards for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final, Literal, TypeAlias

from noetic_nb._core.worker_threads import let_loop_run
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import StepEnded, StepStarted
from noetic_nb.memory._steering_decision import denied
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.event_hub import is_shown
from noetic_nb.runtime._context.messages import TurnInput
from noetic_nb.runtime._context.protocols import StepValue
from noetic_nb.runtime._context.running_execution import RUNNING, RunningExecution
from noetic_nb.runtime._context.step_errors import TurnStopped, ends_turn, error_text, step_failed
from noetic_nb.runtime._execution.llm_step import run_llm
from noetic_nb.runtime._execution.loop_step import run_loop
from noetic_nb.runtime._execution.tool_call import call_tool
from noetic_nb.steps import BranchStep, ForkStep, LoopStep, RunStep, SpawnStep, Step, ToolStep
from noetic_nb.steps._loops import output_text
from noetic_nb.steps._records import as_step
from noetic_nb.sync import awaited

StepStatus: TypeAlias = Literal["ok", "error", "cancelled", "stopped", "replayed"]

# Deeper nesting of executions is a runaway recursion.
MAX_DEPTH: Final = 64
# Nested steps of one execution; a branch that routes to itself reaches this before Python's own limit.
MAX_NESTING: Final = 64
# Parallel steps of one execution; far more than any finite fan-out.
MAX_RUNNING: Final = 10_000


async def run_step(engine: Engine, step: Step, value: StepValue, ctx: RunningExecution) -> StepValue:
    if ctx.depth >= MAX_DEPTH:
        hint = "Bound the recursion by `ctx.depth`."
        raise step_failed(step.id, f"Executions are nested {ctx.depth} deep", hint=hint, retries_exhausted=True)
    around = RUNNING.get()
    nesting = 0 if around is None else around[2]
    if ctx.running >= MAX_NESTING and (ctx.running >= MAX_RUNNING or nesting - ctx.base_nesting >= MAX_NESTING):
        hint = "If a branch leads back to itself, use a loop."
        raise step_failed(step.id, f"Steps are nested more than {MAX_NESTING} deep", hint=hint, retries_exhausted=True)
    recorder = ctx.record
    if recorder is not None and recorder.put_off:
        await recorder.catch_up()  # before this step is counted
    if ctx.aborted:
        raise ctx.stopped()
    tree = ctx.tree
    ctx.step_count += 1
    tree.steps += 1
    frames, path, record = ctx.frames, "", None
    # Without observers a step adds no frame; frames of an observed enclosing step remain.
    if recorder is not None or engine.watches_steps:
        path, frames = ctx.entered(step.id, frames)
        record = None if recorder is None else recorder.step(frames)
    if tree.limits is not None and (record is None or record.entry is None):
        ctx.check_limits()  # a replayed step costs nothing
    config, sink, shown, start = engine.config, engine.sink, False, 0.0
    if sink is not None:
        start = engine.clock.monotonic_ms()
        begun = StepStarted(ctx.where, engine.clock.now_ms(), step.id, step.kind, path)
        # Decided once for both: an end event without its beginning would be useless.
        shown = step.kind != "llm" or step.emit is True or is_shown(step, begun, engine.stack.state.report)
        if shown:
            sink.emit(begun)
    status: StepStatus = "error"
    problem: BaseException | None = None
    RUNNING.set((ctx, frames, nesting + 1, record))
    ctx.running += 1
    try:
        if recorder is not None:
            found, output = recorder.replay(record, step)
            if found:
                status = "replayed"
                return output
        if config.before_step is not None:
            await awaited(config.before_step(step, value, ctx))
        output = await _HANDLERS[step.kind](engine, step, value, ctx)
        if config.after_step is not None:
            await awaited(config.after_step(step, output, ctx))
        if recorder is not None:
            writing = recorder.step_done(record, step, output)
            if writing is not None:
                await writing
        status = "ok"
        return output
    except BaseException as exc:
        problem, status = exc, _ended_by(exc)
        raise
    finally:
        ctx.running -= 1
        RUNNING.set(around)
        if shown and engine.sink is not None:
            duration = engine.clock.monotonic_ms() - start
            text = None if problem is None else error_text(problem)
            now = engine.clock.now_ms()
            engine.sink.emit(StepEnded(ctx.where, now, step.id, step.kind, path, duration, status, text))


def _ended_by(error: BaseException) -> StepStatus:
    if isinstance(error, TurnStopped):
        return "stopped"
    if isinstance(error, asyncio.CancelledError) or getattr(error, "kind", "") == "cancelled":
        return "cancelled"
    return "error"


async def _run_function(engine: Engine, step: RunStep, value: StepValue, ctx: RunningExecution) -> StepValue:
    attempts = 1 if step.retry is None else step.retry.max_attempts
    for attempt in range(attempts):
        ctx.check_abort()
        try:
            result = step.execute(value, ctx)
            if hasattr(result, "__await__"):
                return await ctx.until_aborted(result)
            await let_loop_run()
            return result
        except Exception as exc:
            if ends_turn(exc) or (isinstance(exc, NoeticError) and exc.kind in ("cancelled", "budget_exceeded")):
                raise
            if step.retry is None or attempt + 1 == attempts:
                if isinstance(exc, NoeticError) and exc.kind == "step_failed":
                    raise
                what = f"Run step {step.id!r} failed: {type(exc).__name__}: {error_text(exc)}"
                raise step_failed(step.id, what, exc, retries_exhausted=attempts > 1) from exc
            await ctx.until_aborted(engine.sleep(step.retry.delay_ms(attempt)))
    raise AssertionError("a retry policy needs at least one attempt")


async def _run_tool(engine: Engine, step: ToolStep, value: StepValue, ctx: RunningExecution) -> StepValue:
    if value is None or value == "" or isinstance(value, TurnInput) or not step.takes_input:
        value = {}
    if not isinstance(value, Mapping):
        hint = "Pass a mapping."
        raise step_failed(step.id, f"Tool step {step.id!r} needs arguments, not {type(value).__name__}", hint=hint)
    end = await call_tool(
        engine,
        ctx,
        engine.hook_context(ctx),
        step.tool,
        name=step.tool.name,
        arguments={**value, **(step.args or {})},
        call_id=engine.ids.new("call"),
    )
    await let_loop_run()
    if end.status == "ok":
        return end.value
    if end.decision is not None:
        raise denied(end.decision, f"The call of tool {step.tool.name!r} was denied.", step_id=step.id)
    if isinstance(end.error, NoeticConfigError) or (isinstance(end.error, NoeticError) and end.status == "error"):
        raise end.error
    what = f"Tool step {step.id!r} failed: {end.output.removeprefix('Error: ')}"
    raise step_failed(step.id, what, end.error) from end.error


async def _run_branch(engine: Engine, step: BranchStep, value: StepValue, ctx: RunningExecution) -> StepValue:
    if step.route is None:
        text = output_text(value).strip().casefold()
        # Any: a route may return a record, a mapping, or None; `as_step` checks it.
        chosen: Any = next((r.target for r in step.routes if r.match.casefold() in text), step.default)
    else:
        chosen = step.route(value, ctx)
        if hasattr(chosen, "__await__"):
            chosen = await ctx.until_aborted(chosen)
    if chosen is None:
        return value
    return await run_step(engine, as_step(chosen, f"the route of branch {step.id!r}"), value, ctx)


def _run_loop(engine: Engine, step: LoopStep, value: StepValue, ctx: RunningExecution) -> Awaitable[StepValue]:
    return run_loop(engine, step, value, ctx, run_step)


# Kinds of step that most agents never use are loaded on first use.
def _run_fork(engine: Engine, step: ForkStep, value: StepValue, ctx: RunningExecution) -> Awaitable[StepValue]:
    from noetic_nb.runtime._execution.fork_step import run_fork

    return run_fork(engine, step, value, ctx, run_step)


def _run_spawn(engine: Engine, step: SpawnStep, value: StepValue, ctx: RunningExecution) -> Awaitable[StepValue]:
    from noetic_nb.runtime._execution.spawn_step import run_spawn

    return run_spawn(engine, step, value, ctx, run_step)


# Any: each handler takes the record of its own kind, which a mapping type cannot express.
_HANDLERS: Final[Mapping[str, Any]] = {
    "run": _run_function,
    "llm": run_llm,
    "tool": _run_tool,
    "branch": _run_branch,
    "fork": _run_fork,
    "spawn": _run_spawn,
    "loop": _run_loop,
}
