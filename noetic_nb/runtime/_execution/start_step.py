"""Start a step without waiting for it: a child execution of its own, known by its handle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import ItemLog
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.protocols import StepValue
from noetic_nb.runtime._context.running_execution import RunningExecution, StepRunner
from noetic_nb.runtime._context.step_errors import TurnStopped
from noetic_nb.runtime._execution.child import Child, Outcome, outcome_of
from noetic_nb.runtime._execution.handle import Handle, Started, started_by
from noetic_nb.steps import Step


def start_step(
    engine: Engine, step: Step, value: StepValue, ctx: RunningExecution, run: StepRunner, drop: Iterable[str] = ()
) -> Handle:
    """Start a step in a child execution with a log of its own, as a spawn does; returns at once.

    Raises `NoeticError` ``cancelled``, or ``step_failed`` where the execution has ended, and `NoeticConfigError`
    ``INVALID_OPTION`` where `drop` is no list of ids.
    """
    dropped = () if isinstance(drop, str) or not isinstance(drop, Iterable) else tuple(drop)
    if (not dropped and drop != () and drop != []) or not all(isinstance(name, str) and name for name in dropped):
        raise NoeticConfigError(
            "INVALID_OPTION", "drop is a list of ids of layers.", given=drop, hint='Pass drop=("steering",).'
        )
    started = started_by(engine, ctx)
    log = ItemLog(registry=ctx.item_log.registry, tokenizer=ctx.item_log.tokenizer)
    child = Child(engine, engine.with_layers(step, None, dropped), ctx, step.id, "start", log)
    # Steps of one name that run side by side must not take each other's place in the record.
    child.ctx.base_frames += (f"[{started.number(child.ctx.place)}]",)
    handle = Handle(engine.ids.new("handle"), step.id, child.ctx)
    started.add(handle)
    handle.run_by(asyncio.get_running_loop().create_task(_run(started, handle, child, step, value, run)))
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
                return  # left behind: its parent may be closed, and must not be merged into any more
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
