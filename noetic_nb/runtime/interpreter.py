"""Make a step happen: one place where every kind of step passes, with the same guards for all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, assert_never

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.memory import SteeringDecision
from noetic_nb.memory.decision import denied
from noetic_nb.runtime.asking import run_llm
from noetic_nb.runtime.calling import call_tool
from noetic_nb.runtime.context import Context
from noetic_nb.runtime.engine import Engine
from noetic_nb.runtime.errors import StoppedError
from noetic_nb.steps import LLMStep, LoopSnapshot, LoopStep, RunStep, Step, ToolStep

__all__ = ["MAX_DEPTH", "run_step"]

# Runtime specification, section 2: deeper nesting of executions is a runaway recursion.
MAX_DEPTH: Final = 64
# Outputs a loop remembers; runtime specification, section 2.8.
MAX_LOOP_HISTORY: Final = 100


def _failed(step_id: str, what: str, cause: BaseException | None = None, *, hint: str = "") -> NoeticError:
    return NoeticError("step_failed", what, hint=hint, step_id=step_id, cause=cause, retries_exhausted=False)


async def run_step(engine: Engine, step: Step, value: Any, ctx: Context) -> Any:
    """Run one step and return its output.

    Raises
    ------
    NoeticError
        ``step_failed``, ``cancelled``, or what the step's kind raises.
    NoeticConfigError
        Where something is set up in a way that cannot work.
    """
    if ctx.depth >= MAX_DEPTH:
        raise _failed(step.id, f"Executions are nested {ctx.depth} deep", hint="Bound the recursion by `ctx.depth`.")
    ctx.check_abort()
    ctx.step_count += 1
    match step:
        case LLMStep():
            return await run_llm(engine, step, value, ctx)
        case LoopStep():
            return await _run_loop(engine, step, value, ctx)
        case RunStep():
            return await _run_function(step, value, ctx)
        case ToolStep():
            return await _run_tool(engine, step, value, ctx)
        case _:
            assert_never(step)


async def _run_function(step: RunStep, value: Any, ctx: Context) -> Any:
    try:
        result = step.execute(value, ctx)
        return await result if hasattr(result, "__await__") else result
    except (asyncio.CancelledError, StoppedError):
        raise
    except Exception as exc:
        if isinstance(exc, NoeticError) and exc.kind in ("cancelled", "step_failed"):
            raise
        raise _failed(step.id, f"Run step {step.id!r} failed: {type(exc).__name__}: {exc}", exc) from exc


async def _run_tool(engine: Engine, step: ToolStep, value: Any, ctx: Context) -> Any:
    if value is None or value == "":
        value = {}
    if not isinstance(value, Mapping):
        raise _failed(
            step.id, f"Tool step {step.id!r} needs arguments, not {type(value).__name__}", hint="Pass a mapping."
        )
    end = await call_tool(
        engine,
        ctx,
        engine.hook_context(ctx),
        step.tool,
        name=step.tool.name,
        arguments={**value, **(step.args or {})},
        call_id=engine.ids.new("call"),
    )
    if end.status == "ok":
        return end.value
    if end.decision is not None:
        decision: SteeringDecision = end.decision
        raise denied(decision, f"The call of tool {step.tool.name!r} was denied.", step_id=step.id)
    if isinstance(end.error, NoeticConfigError):
        raise end.error
    raise _failed(
        step.id, f"Tool step {step.id!r} failed: {end.output.removeprefix('Error: ')}", end.error
    ) from end.error


def _as_text(value: Any) -> str:
    """Return what a predicate sees of an output as text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    text = value.get("text") if isinstance(value, Mapping) else getattr(value, "text", None)
    if isinstance(text, str):
        return text
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return str(value)


async def _run_loop(engine: Engine, step: LoopStep, value: Any, ctx: Context) -> Any:
    check = step.until.start()
    started = engine.clock.monotonic_ms()
    history: list[Any] = []
    count = 0
    while True:
        ctx.check_abort()
        if count >= step.max_iterations:
            raise _failed(
                step.id,
                f"Loop {step.id!r} did not stop within {step.max_iterations} iterations",
                hint="Raise `max_iterations`, or look at why its predicate never holds.",
            )
        output = value
        for inner in step.steps:
            output = await run_step(engine, inner, output, ctx)
        count += 1
        history = [*history[-(MAX_LOOP_HISTORY - 1) :], output]
        verdict = check(
            LoopSnapshot(
                step_count=count,
                tokens=ctx.tokens,
                cost=ctx.cost,
                elapsed_ms=engine.clock.monotonic_ms() - started,
                last_output=output,
                last_text=_as_text(output),
                history=history,
                depth=ctx.depth,
                last_tool_calls=0 if ctx.last_step is None else ctx.last_step.tool_calls,
            )
        )
        if verdict.stop:
            return output
        value = output if step.feed_output else None
