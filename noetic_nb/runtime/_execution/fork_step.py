"""A fork: parallel paths, each in a child execution. A path that loses or comes too late leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._json_text import compact_json
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.protocols import StepValue
from noetic_nb.runtime._context.running_execution import RunningExecution, StepRunner
from noetic_nb.runtime._context.step_errors import ends_turn
from noetic_nb.runtime._execution.child import Child, Outcome, outcome_of
from noetic_nb.steps import ForkStep, Step
from noetic_nb.steps._loops import output_text
from noetic_nb.steps._records import as_step, suffixed
from noetic_nb.sync import awaited


@dataclass(slots=True, eq=False)
class _Path:
    index: int
    step: Step
    value: StepValue
    error: BaseException | None = None
    output: StepValue = None
    ended: bool = False

    def failed(self) -> FrozenDict:
        return FrozenDict(step_id=self.step.id, error=self.error)

    def outcome(self) -> FrozenDict:
        if self.error is None:
            return FrozenDict(step_id=self.step.id, status="fulfilled", value=self.output)
        return FrozenDict(step_id=self.step.id, status="rejected", error=self.error)


@dataclass(slots=True)
class _Fork:
    engine: Engine
    step: ForkStep
    ctx: RunningExecution
    run: StepRunner
    paths: list[_Path]
    queue: deque[_Path] = field(default_factory=deque)
    ended: list[_Path] = field(default_factory=list)
    running: dict[asyncio.Task[None], Child] = field(default_factory=dict)
    merging: asyncio.Lock = field(default_factory=asyncio.Lock)
    winner: _Path | None = None
    over: bool = False
    stop: BaseException | None = None

    async def run_paths(self) -> None:
        """Run every path, at most `concurrency` at a time."""
        self.queue.extend(self.paths)
        limit = self.step.concurrency or max(1, len(self.paths))
        try:
            while self.queue or self.running:
                while self.queue and len(self.running) < limit and not self.over:
                    self._start(self.queue.popleft())
                if self.over:
                    self._skip()
                if self.running:
                    await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._reap()

    def _start(self, path: _Path) -> None:
        child = Child(self.engine, self.engine, self.ctx, self.step.id, "fork", self.ctx.item_log.fork())
        child.ctx.base_frames += (f"[{path.index}]",)
        task = asyncio.get_running_loop().create_task(self._run_path(path, child))
        self.running[task] = child
        task.add_done_callback(lambda done: self.running.pop(done, None) and None)

    def _skip(self) -> None:
        """Count the paths that never started as cancelled."""
        while self.queue:
            path = self.queue.popleft()
            path.error = NoeticError("cancelled", f"Path {path.step.id!r} was not begun", reason="fork ended")
            self.ended.append(path)

    async def _reap(self) -> None:
        """Wait for running paths after the fork was cancelled: no path outlives it."""
        tasks = list(self.running)
        for task in tasks:
            task.cancel()
        # Checked first, because `asyncio.wait` refuses an empty list.
        while any(not task.done() for task in tasks):
            await asyncio.wait(tasks)

    async def _run_path(self, path: _Path, child: Child) -> None:
        outcome: Outcome = "failure"
        result: StepValue = None
        merged: tuple[str, ...] = ()
        try:
            await child.begin(append_spawned=False)
            output = await self.run(self.engine, path.step, path.value, child.ctx)
            child.ctx.check_abort()
            # An aborted step may still finish, hence the check above and another one below, once the lock is held.
            async with self.merging:  # one at a time, so that merges of one layer do not overwrite each other
                if self.over:
                    raise NoeticError("cancelled", "Another path was quicker", reason="race lost")
                if self.step.mode == "race":
                    # Before the merge, which awaits: a path that ends meanwhile must not win as well.
                    self.over, self.winner = True, path
                result, merged = await child.merge_into_parent(output)
            path.output, outcome = result, "success"
            if self.step.mode == "race":
                # Only in a race: with several successful paths, there is no single state to keep.
                self.ctx.state = child.ctx.state
                # After the merge: if that fails, another path may still win.
                self._abort_others(child, "race lost")
        except asyncio.CancelledError as exc:
            outcome, path.error = "aborted", exc
            # Re-raised only if this task was cancelled from outside; a path that cancels itself has failed.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            path.error = NoeticError(
                "cancelled", f"Path {path.step.id!r} gave up", reason=str(exc) or "it cancelled itself"
            )
            path.error.__cause__ = exc
            self._failed(path, child, path.error, is_own=True)
        except Exception as exc:
            outcome, path.error = outcome_of(exc), exc
            self._failed(path, child, exc)
        except BaseException as exc:  # such as a failing test: passed to the caller of the fork
            path.error = exc
            self._end(child, exc)
        finally:
            self.ended.append(path)
            await child.end(outcome, result, merged)

    def _failed(self, path: _Path, child: Child, error: Exception, *, is_own: bool = False) -> None:
        if ends_turn(error):
            self.stop = self.stop or error
        genuine = is_own or ends_turn(error) or outcome_of(error) == "failure"
        if genuine and not self.over and (self.step.mode == "all" or self.stop is not None):
            self.over = True
            self._abort_others(child, f"path {path.step.id!r} failed")
        if self.winner is path:  # its merge failed: the race continues
            self.winner, self.over = None, False

    def _end(self, child: Child, error: BaseException) -> None:
        """End the whole fork with an exception that is not the error of a path."""
        self.stop, self.over = self.stop or error, True
        self._abort_others(child, f"the fork ended with {type(error).__name__}")

    def _abort_others(self, mine: Child, reason: str) -> None:
        for child in list(self.running.values()):
            if child is not mine:
                child.ctx.abort(reason)


async def run_fork(
    engine: Engine, step: ForkStep, value: StepValue, ctx: RunningExecution, run: StepRunner
) -> StepValue:
    """Run a fork; it fails if a path of ``all`` failed, or every path of a race."""
    fork = _Fork(engine, step, ctx, run, await _paths(step, value, ctx))
    await fork.run_paths()
    if fork.stop is not None:
        raise fork.stop
    ctx.check_abort()
    ended = fork.ended
    if step.mode == "race":
        if fork.winner is not None:
            return fork.winner.output
        raise _partial(step, [], ended)
    failed = [path for path in fork.paths if path.error is not None]
    if step.mode == "all":
        if failed:
            raise _partial(step, [path for path in fork.paths if path.error is None], failed)
        return await _merged(step, [path.output for path in fork.paths], ctx)
    # The fork itself raises for an exceeded limit of a path: nothing more may be spent on its results.
    ctx.check_limits()
    for path in failed:
        if not isinstance(path.error, NoeticError):
            # Outcomes are data for the user's merge function, which should see only one kind of error.
            path.error = _wrapped(path)
    return await _merged(step, [path.outcome() for path in fork.paths], ctx)


def _wrapped(path: _Path) -> NoeticError:
    error = path.error
    return NoeticError(
        "step_failed",
        f"Path {path.step.id!r} failed: {type(error).__name__}: {error}",
        step_id=path.step.id,
        cause=error,
        retries_exhausted=False,
    )


def _partial(step: ForkStep, succeeded: list[_Path], failed: list[_Path]) -> NoeticError:
    causes = "; ".join(f"{path.step.id}: {_beneath(path.error)}" for path in failed)
    error = NoeticError(
        "fork_partial",
        f"Fork {step.id!r}: {len(failed)} of {len(succeeded) + len(failed)} paths failed{f' ({causes})' if causes else ''}",
        hint="The error has the results that succeeded; with mode='settle' failures are results too.",
        step_id=step.id,
        succeeded=[FrozenDict(step_id=path.step.id, value=path.output) for path in succeeded],
        failed=[path.failed() for path in failed],
    )
    first = next(
        (path.error for path in failed if path.error is not None and outcome_of(path.error) == "failure"), None
    )
    error.__cause__ = first
    return error


def _beneath(error: BaseException | None) -> BaseException | None:
    """Return the innermost error of nested forks: each would repeat the whole message of the next."""
    while isinstance(error, NoeticError) and error.kind == "fork_partial" and error.__cause__ is not None:
        error = error.__cause__
    return error


async def _paths(step: ForkStep, value: StepValue, ctx: RunningExecution) -> list[_Path]:
    if step.each is not None:
        return _each(step, step.each, value)
    made: Any = step.paths  # Any: the result of a user function, checked below
    if callable(made):
        made = await awaited(made(value, ctx))
    # Mappings and texts are iterable, too, but neither is meant as steps.
    if isinstance(made, Mapping | str) or not isinstance(made, Iterable):
        what = f"The paths of fork {step.id!r} are no list of steps."
        raise NoeticConfigError("INVALID_STEP", what, given=made, step_id=step.id)
    return [_Path(n, as_step(path, f"a path of fork {step.id!r}"), value) for n, path in enumerate(made)]


def _each(step: ForkStep, each: Step, value: StepValue) -> list[_Path]:
    """Return one path for each element of an input array."""
    found = value
    try:
        if isinstance(found, str):
            found = json.loads(found)
        if step.over is not None:
            found = found[step.over]
    except (ValueError, KeyError, TypeError) as exc:
        raise _no_array(step, value) from exc
    if not isinstance(found, list | tuple):
        raise _no_array(step, value)
    elements = [element if isinstance(element, str) else compact_json(element) for element in found]
    # Unique ids: errors and events identify a step by its id, and the elements share one definition.
    return [_Path(n, suffixed(each, f"-{n}"), element) for n, element in enumerate(elements)]


def _no_array(step: ForkStep, value: StepValue) -> NoeticConfigError:
    place = "" if step.over is None else f" under {step.over!r}"
    what = f"Fork {step.id!r} runs once for each element of an array, but its input is not an array{place}."
    hint = "Pass a list, or text that is a JSON array."
    return NoeticConfigError("INVALID_FORK_INPUT", what, given=value, hint=hint, step_id=step.id)


async def _merged(step: ForkStep, results: list[Any], ctx: RunningExecution) -> StepValue:
    match step.merge:
        case "first":
            return results[0] if results else None
        case "last":
            return results[-1] if results else None
        case "concat":
            return "\n".join([output_text(result) for result in results])
        case None:
            return results
        case merge:
            return await awaited(merge(results, ctx))
