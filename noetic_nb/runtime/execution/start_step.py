"""Start a step and go on without waiting for it: a child execution of its own, known by its handle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from noetic_nb.errors import NoeticError
from noetic_nb.items import ItemLog
from noetic_nb.runtime.context.context import Context
from noetic_nb.runtime.context.engine import Engine
from noetic_nb.runtime.context.step_errors import StoppedError
from noetic_nb.runtime.execution.child import Child, outcome_of
from noetic_nb.runtime.execution.handle import Handle, Started, started_by
from noetic_nb.steps import Step

__all__ = ["start_step"]

RunStep: TypeAlias = Callable[[Engine, Any, Any, Context], Awaitable[Any]]


def start_step(engine: Engine, step: Step, value: Any, ctx: Context, run: RunStep) -> Handle:
    """Start a step in a child execution with a log of its own, as a spawn does; returns at once.

    Raises
    ------
    NoeticError
        ``cancelled``, or ``step_failed`` where the execution has ended.
    """
    started = started_by(engine, ctx)
    log = ItemLog(registry=ctx.item_log.registry, tokenizer=ctx.item_log.tokenizer)
    child = Child(engine, engine, ctx, step.id, "start", log)
    # Steps of one name that run side by side must not take each other's place in the record.
    child.ctx.base_frames += (f"[{started.number(child.ctx.place)}]",)
    handle = Handle(engine.ids.new("handle"), step.id, child.ctx)
    started.add(handle)
    handle.run_by(asyncio.get_running_loop().create_task(_run(started, handle, child, step, value, run)))
    return handle


async def _run(started: Started, handle: Handle, child: Child, step: Step, value: Any, run: RunStep) -> None:
    outcome: Any = "failure"
    result: Any = None
    merged: tuple[str, ...] = ()
    try:
        await child.begin()
        output = await run(child.engine, step, value, child.ctx)
        async with started.merging:
            if handle.over:
                outcome = "aborted"
                return  # left behind: what it knows comes too late
            result, merged = await child.give_back(output)
        outcome = "success"
        handle.succeed(result)
    except StoppedError as stopped:
        outcome = "aborted"
        started.stop = started.stop or stopped.stop
        handle.fail(_stopped_by_layer(stopped))
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
            handle.tell()
            started.ended(handle)


def _stopped_by_layer(stopped: StoppedError) -> NoeticError:
    return NoeticError(
        "cancelled",
        f"A layer stopped the execution: {stopped.stop.suggestion}",
        reason=stopped.stop.suggestion,
        decision=stopped.stop.decision,
    )
