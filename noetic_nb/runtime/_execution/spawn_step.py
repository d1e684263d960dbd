"""Child executions: spawns, with four kinds of input and three of output, and steps started without waiting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import ItemLog, assistant_text, input_message
from noetic_nb.models._client import ModelRequest
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.protocols import StepValue
from noetic_nb.runtime._context.running_execution import RunningExecution, StepRunner
from noetic_nb.runtime._context.step_errors import TurnStopped
from noetic_nb.runtime._execution.child import Child, Outcome, outcome_of
from noetic_nb.runtime._execution.handle import Handle, Started, started_by
from noetic_nb.steps import SpawnStep, Step
from noetic_nb.steps import _records as records
from noetic_nb.steps._loops import json_text
from noetic_nb.sync import awaited


async def run_spawn(
    engine: Engine, step: SpawnStep, value: StepValue, ctx: RunningExecution, run: StepRunner
) -> StepValue:
    """Run a spawn; returns its child's output in the form that the parent wants."""
    inner = engine.with_layers(step, step.memory, step.drop)
    inherit = isinstance(step.context_in, records.InheritContext)
    items = () if inherit else await _items_in(step, value, ctx)
    registry, tokenizer = ctx.item_log.registry, ctx.item_log.tokenizer
    log = ctx.item_log.fork() if inherit else ItemLog(registry=registry, tokenizer=tokenizer)
    child = Child(engine, inner, ctx, step.id, "spawn", log)
    # Started here, so that the time of the layers' `on_spawn` counts, too.
    timer = _arm(step, child.ctx)
    outcome: Outcome = "failure"
    result: StepValue = None
    merged: tuple[str, ...] = ()
    try:
        await child.begin(items)
        output = await run(inner, step.child, value, child.ctx)
        # A child may have finished after its time ran out: it still counts as too late.
        child.ctx.check_abort()
        # Before the merge: a rejected output must leave nothing in the parent's layers.
        output = await _result_of(inner, step, output, child.ctx)
        result, merged = await child.merge_into_parent(output)
        outcome = "success"
        return result
    except BaseException as exc:
        # A cancellation is an outcome, too: the layers complete with it.
        outcome = outcome_of(exc)
        raise
    finally:
        if timer is not None:
            timer.cancel()
        await child.end(outcome, result, merged)


def _arm(step: SpawnStep, child: RunningExecution) -> asyncio.TimerHandle | None:
    """Schedule an abort of the child at its time limit."""
    if step.timeout_ms is None:
        return None
    error = NoeticError(
        "step_failed",
        f"The child of spawn {step.id!r} ran out of time",
        given=f"{step.timeout_ms:g} ms",
        hint="Raise its timeout_ms, or give it less to do.",
        step_id=step.id,
        timeout=step.timeout_ms,
        retries_exhausted=False,
    )
    loop = asyncio.get_running_loop()
    return loop.call_later(step.timeout_ms / 1000, lambda: child.abort("out of time", error=error))


async def _items_in(step: SpawnStep, value: StepValue, ctx: RunningExecution) -> tuple[Mapping[str, Any], ...]:
    """Return a child's initial items, chosen or created by the input strategies."""
    match step.context_in:
        case records.SubsetContext(select=select):
            made = select(tuple(ctx.item_log), ctx.state)
        case records.CustomContext(build=build):
            made = build(value, ctx)
        case _:
            return ()
    made = await awaited(made)
    if isinstance(made, Mapping | str) or not isinstance(made, Iterable):
        what = f"The {step.context_in.strategy!r} strategy of spawn {step.id!r} returned no list of items."
        hint = "Return a list of items; an empty one for none."
        raise NoeticConfigError("INVALID_STEP", what, given=made, hint=hint, step_id=step.id)
    return tuple(made)


async def _result_of(engine: Engine, step: SpawnStep, output: StepValue, child: RunningExecution) -> StepValue:
    """Return the part of a child's output that the parent gets."""
    match step.context_out:
        case records.SchemaResult(schema_=schema):
            try:
                return schema.check(output)
            except ValueError as exc:
                problem: Exception = exc
                if isinstance(output, str):
                    # A model answers in text, so its JSON is parsed and checked.
                    try:
                        value = json.loads(output)
                        return schema.check(value)
                    except json.JSONDecodeError:
                        pass
                    except (ValueError, RecursionError) as inner:
                        problem = inner
                raise schema.refusal(json_text(output), str(problem), step.id) from problem
        case records.SummaryResult() as wanted:
            return await _summary(engine, step, wanted, output, child)
        case _:
            return output


def _writer(engine: Engine, step: SpawnStep, wanted: records.SummaryResult) -> str | None:
    """Return the model for the summary: the named one, that of a nearby step, or the only one."""
    if wanted.model is not None:
        return wanted.model if engine.has_model(wanted.model) else None
    named = (inner.model for within in (step.child, engine.config.step) for inner in records.llm_steps(within))
    found = next((model for model in named if isinstance(model, str) and engine.has_model(model)), None)
    if found is not None or engine.models is None:
        return found
    if not isinstance(engine.models, Mapping):
        return "summary"  # a single client serves every model name
    return next(iter(engine.models)) if len(engine.models) == 1 else None


async def _summary(
    engine: Engine, step: SpawnStep, wanted: records.SummaryResult, output: StepValue, child: RunningExecution
) -> str:
    """Ask a model for a summary of the child's conversation; the parents pay."""
    model = _writer(engine, step, wanted)
    if model is None:
        raise NoeticError(
            "step_failed",
            f"No model can summarise what the child of spawn {step.id!r} did",
            given=wanted.model,
            hint="Pass one: context_out={'strategy': 'summary', 'model': ...}.",
            step_id=step.id,
            child_output=output,
            retries_exhausted=False,
        )
    # The child's log ends with the child, so the prompt never appears in the parent's conversation.
    child.item_log.append(input_message(wanted.prompt, ids=engine.ids))
    request = ModelRequest(model, child.item_log.items, purpose="summary", thread_id=child.thread_id)
    try:
        response, _ = await engine.call_model(child, request, step=child.step_count)
        text = assistant_text(response.items)
        if not text:
            raise NoeticError("llm_failed", f"Model {model!r} wrote no summary", model=model)
    except (NoeticError, NoeticConfigError) as exc:
        # These end more than the summary: wrapped, they would look like a failure that can be handled.
        if isinstance(exc, NoeticError) and exc.kind in ("cancelled", "budget_exceeded"):
            raise
        raise NoeticError(
            "spawn_summary_failed",
            f"What the child of spawn {step.id!r} did could not be summarised: {exc}",
            hint="The error has its output as `child_output`.",
            step_id=step.id,
            child_output=output,
            summary_cause=exc,
        ) from exc
    return text


def start_step(
    engine: Engine, step: Step, value: StepValue, ctx: RunningExecution, run: StepRunner, drop: Iterable[str] = ()
) -> Handle:
    """Start a step in a child execution with its own log, as a spawn does; returns at once."""
    dropped = () if isinstance(drop, str) or not isinstance(drop, Iterable) else tuple(drop)
    if (not dropped and drop != () and drop != []) or not all(isinstance(name, str) and name for name in dropped):
        hint = 'Pass drop=("steering",).'
        raise NoeticConfigError("INVALID_OPTION", "drop must be a list of layer ids.", given=drop, hint=hint)
    started = started_by(engine, ctx)
    log = ItemLog(registry=ctx.item_log.registry, tokenizer=ctx.item_log.tokenizer)
    child = Child(engine, engine.with_layers(step, None, dropped), ctx, step.id, "start", log)
    # Parallel steps with the same id must not overwrite each other's record.
    child.ctx.base_frames += (f"[{started.number(child.ctx.place)}]",)
    handle = Handle(engine.ids.new("handle"), step.id, child.ctx)
    started.handles[handle.id] = handle
    handle.task = asyncio.get_running_loop().create_task(_run(started, handle, child, step, value, run))
    return handle


async def _run(started: Started, handle: Handle, child: Child, step: Step, value: StepValue, run: StepRunner) -> None:
    outcome: Outcome = "failure"
    result: StepValue = None
    merged: tuple[str, ...] = ()
    try:
        await child.begin()
        output = await run(child.engine, step, value, child.ctx)
        async with started.merging:
            if handle.over:
                outcome = "aborted"
                return  # abandoned: its parent may be closed, and must not be merged into any more
            result, merged = await child.merge_into_parent(output)
        outcome = "success"
        handle.succeed(result)
    except TurnStopped as stopped:
        outcome = "aborted"
        started.stop = started.stop or stopped.stop
        handle.fail(stopped.as_error())
        child.ctx.root.abort("a layer stopped the execution", error=stopped)
    except Exception as exc:
        outcome = outcome_of(exc)
        handle.fail(exc)
    except BaseException as exc:
        outcome = outcome_of(exc)
        error = NoeticError("cancelled", f"Step {step.id!r} was cancelled", reason=str(exc) or "its task was cancelled")
        error.__cause__ = exc
        handle.fail(error)
        raise
    finally:
        try:
            await child.end(outcome, result, merged)
        finally:
            handle.settle()
            started.ended(handle)
