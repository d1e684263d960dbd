"""Handles of steps that run in parallel to their execution, and the end of those steps with it.

A started step never silently outlives its execution: it is aborted and, after a grace period, abandoned with an error.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final

from noetic_nb.errors import NoeticError
from noetic_nb.memory import Stop
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.protocols import StepValue
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.step_errors import step_failed

# Milliseconds: enough to close files and connections, too short to feel like a hang.
GRACE_PERIOD_MS: Final = 500

# Abandoned tasks: the loop holds tasks weakly, and a waiting task that is collected logs a complaint.
_LEFT_BEHIND: Final[set[asyncio.Task[None]]] = set()


class Handle:
    """A step that runs in the background of an execution. Created by `Context.start`.

    Attributes
    ----------
    id, step_id : str
        Ids of the handle and its step.
    execution_id : str
        The child execution it runs in, as named in the run's events.
    """

    def __init__(self, id: str, step_id: str, ctx: RunningExecution) -> None:
        self.id = id
        self.step_id = step_id
        self.execution_id = ctx.id
        self._ctx: RunningExecution | None = ctx
        self.task: asyncio.Task[None] | None = None
        """The task that runs the step."""
        self._settled = asyncio.Event()
        # Whether the outcome is known, even if its execution is still cleaning up.
        self.over = self._was_awaited = False
        self._waiting = 0
        self._value: StepValue = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._settled.is_set()

    async def result(self) -> StepValue:
        """Wait for the step's output; can be awaited by several callers, and repeatedly.

        Raises
        ------
        NoeticError
            The error of the step; ``cancelled``; or ``handle_evicted``, with ``handle_id``, ``step_id`` and
            ``grace_period_ms``, if it was still running some time after its execution had ended.
        """
        if not self.done:
            if asyncio.current_task() is self.task:
                raise step_failed(self.step_id, f"Step {self.step_id!r} waits for its own result")
            self._waiting += 1
            try:
                await self._settled.wait()
            finally:
                self._waiting -= 1
        self._was_awaited = True
        if self._error is not None:
            raise self._error.with_traceback(None)  # one instance for all callers: it must not accumulate their frames
        return self._value

    def cancel(self, reason: str = "cancelled by the holder of its handle") -> bool:
        """Abort the step: its waits are interrupted now, all else stops at its next boundary.

        Returns
        -------
        bool
            False if it had already ended.
        """
        if self.over or self._ctx is None:
            return False
        self._ctx.abort(reason)
        return True

    def __repr__(self) -> str:
        state = "running" if not self.done else "done" if self._error is None else type(self._error).__name__
        return f"Handle({self.id!r}, step {self.step_id!r}, {state})"

    def succeed(self, value: StepValue) -> None:
        """Store the output; the first outcome counts."""
        if not self.over:
            self.over, self._value = True, value

    def fail(self, error: BaseException) -> None:
        """Store the error; the first outcome counts."""
        if not self.over:
            self.over, self._error = True, error

    def settle(self) -> None:
        self._ctx = None
        self._settled.set()

    @property
    def unreported(self) -> BaseException | None:
        """An error that no caller has received; a cancellation is not one."""
        # Waiting callers get the error as soon as it is settled.
        if self._error is None or self._was_awaited or self._waiting:
            return None
        cancelled = isinstance(self._error, NoeticError) and self._error.kind == "cancelled"
        return None if cancelled else self._error

    def evict(self) -> BaseException | None:
        """Stop waiting for the step; returns an error to report. A step that was only cleaning up keeps its outcome."""
        error = self.unreported
        if not self.over:
            error = NoeticError(
                "handle_evicted",
                f"Step {self.step_id!r} was still running {GRACE_PERIOD_MS} ms after the execution that started it "
                "had ended, and was abandoned",
                hint="Await handle.result() before the execution ends, or let the step end when it is cancelled.",
                handle_id=self.id,
                step_id=self.step_id,
                grace_period_ms=GRACE_PERIOD_MS,
            )
            # Before the cancellation: the first outcome counts, and it must say that the step was abandoned.
            self.fail(error)
            if self.task is not None:
                self.task.cancel()
        if self.task is not None:
            _LEFT_BEHIND.add(self.task)
            self.task.add_done_callback(_LEFT_BEHIND.discard)
        self.settle()
        return error


@dataclass(slots=True)
class Started:
    """The started steps that an execution is responsible for; `merging` lets one child at a time merge its memory back."""

    handles: dict[str, Handle] = field(default_factory=dict)
    merging: asyncio.Lock = field(default_factory=asyncio.Lock)
    counts: dict[str, int] = field(default_factory=dict)
    closing: bool = False
    stop: Stop | None = None

    def number(self, place: str) -> int:
        """Return how many steps were started at a place before; the same when the execution is resumed."""
        number = self.counts.get(place, 0)
        self.counts[place] = number + 1
        return number

    def ended(self, handle: Handle) -> None:
        if handle.unreported is None:
            self.handles.pop(handle.id, None)


def started_by(engine: Engine, ctx: RunningExecution) -> Started:
    """Return the record of steps that an execution has started, to append to."""
    ctx.check_abort()
    started: Started | None = engine.handles.get(ctx.id)
    left = ctx.parent is not None and ctx not in ctx.parent.children
    if left or ctx.tree.channels.closed or (started is not None and started.closing):
        hint = "Start it in a running execution."
        raise step_failed("start", "The execution of this step has ended", hint=hint)
    if started is None:
        started = engine.handles[ctx.id] = Started()
    return started


async def end_handles(engine: Engine, ctx: RunningExecution) -> Stop | None:
    """Abort an execution's handles within the grace period; returns a layer's stop, and re-raises a cancellation at the end."""
    closing = asyncio.ensure_future(_close(engine, ctx, engine.handles[ctx.id]))
    try:
        return await asyncio.shield(closing)
    except asyncio.CancelledError:
        # Each further cancellation ends one wait only.
        while not closing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([closing])
        raise


async def _close(engine: Engine, ctx: RunningExecution, started: Started) -> Stop | None:
    # First: an aborted step may start another one on its way out, which would never be awaited.
    started.closing = True
    try:
        tasks = [handle.task for handle in started.handles.values() if handle.task is not None and not handle.done]
        for handle in tuple(started.handles.values()):
            handle.cancel("the execution that started it ended")
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_PERIOD_MS / 1000)
        for handle in tuple(started.handles.values()):
            error = handle.unreported if handle.done else handle.evict()
            if error is not None:
                engine.report(ctx, error, handle.step_id)
                ctx.report_problem("started_step_failed", handle.step_id, "handle", error)
    finally:
        engine.handles.pop(ctx.id, None)
    return started.stop
