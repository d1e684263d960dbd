"""Call a hook under a time limit whose timer is only started when the hook really waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.sync import LOOP_NEEDED, Begun, begun_anew

_NO_LIMIT: Final = float("inf")


def cancellations() -> int:
    """Return how many times the running task was cancelled: an increase across an await means that the task must end."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop is running
        return 0
    return 0 if task is None else task.cancelling()


def is_cancelled() -> bool:
    """Tell whether the running task is being cancelled; if not, the called code raised a `CancelledError` by itself."""
    return cancellations() > 0


class HookTimeout(NoeticError, TimeoutError):
    """A hook ran out of time and was cancelled."""

    def __init__(self, layer_id: str, hook: str, timeout_ms: float) -> None:
        super().__init__(
            "hook_timeout",
            f"The hook {hook!r} of layer {layer_id!r} ran out of time and was cancelled",
            given=f"{timeout_ms:g} ms",
            hint="Raise this layer's `timeouts`, in milliseconds, or make the hook quicker.",
            layer_id=layer_id,
            hook=hook,
            timeout_ms=timeout_ms,
        )


class _Steps:
    """A coroutine under a time limit. If it keeps waiting after its timeout, it is closed once the same time has passed again."""

    __slots__ = ("_scope", "_seconds", "_steps", "_timer", "ended", "send")

    def __init__(self, steps: Any, scope: asyncio.Timeout, seconds: float) -> None:
        self._steps = steps
        self._scope = scope
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self.ended = False
        self.send = steps.send

    def throw(self, error: BaseException) -> Any:
        """Throw a cancellation, or an error of the awaited object, into the coroutine."""
        if self.ended:
            with suppress(RuntimeError):  # it keeps waiting
                self._steps.close()
            raise error
        if self._timer is None and self._scope.expired():
            task = asyncio.current_task()
            assert task is not None
            self._timer = task.get_loop().call_later(self._seconds, self._end, task)
        return self._steps.throw(error)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self.ended = True
        task.cancel()

    def leave(self) -> None:
        """Undo the cancellation that closed the coroutine."""
        if self._timer is not None:
            self._timer.cancel()
        if self.ended and (task := asyncio.current_task()) is not None:
            task.uncancel()


class Unfinished:
    """A hook that was called and is waiting: `finish` awaits it."""

    __slots__ = ("_result", "_steps", "_waiting")

    def __init__(self, result: Any, steps: Any = None, waiting: Any = None) -> None:
        self._result = result
        self._steps = steps
        self._waiting = waiting

    async def finish(self, layer_id: str, name: str, timeout_ms: float) -> Any:
        """Return the final result of the hook; raises `HookTimeout` if it runs out of time."""
        if self._steps is None:
            return await begun_anew(self._result)
        steps, waiting = self._steps, self._waiting
        if waiting is LOOP_NEEDED:  # its time starts once there is a loop to measure it
            await LOOP_NEEDED
            try:
                waiting = steps.send(None)
            except StopIteration as done:
                return done.value
        scope, before, error = asyncio.timeout(timeout_ms / 1000), cancellations(), None
        limited = _Steps(steps, scope, timeout_ms / 1000)
        result = None
        try:
            async with scope:
                try:
                    result = await Begun(limited, waiting)
                finally:
                    limited.leave()
        except BaseException as exc:
            error = exc
        # Expired is expired, however the hook reacted to the cancellation, unless another caller has cancelled it as well.
        if scope.expired() and cancellations() <= before:
            raise HookTimeout(layer_id, name, timeout_ms) from error
        if error is not None:
            raise error
        return result


def begun(result: Any, timeout_ms: float) -> Any:
    """Run a hook until it waits: returns its result, or `Unfinished`, which continues in the same task."""
    if not hasattr(result, "__await__"):
        return result
    if timeout_ms <= 0 or timeout_ms == _NO_LIMIT:
        return Unfinished(result)
    steps = result.__await__()
    try:
        return Unfinished(result, steps, steps.send(None))
    except StopIteration as done:
        return done.value


async def call_hook(hook: Callable[[Any], Any], params: Any, *, layer_id: str, name: str, timeout_ms: float) -> Any:
    """Call a hook; if it is async, wait at most `timeout_ms`. Raises `HookTimeout` only for that limit."""
    result = begun(hook(params), timeout_ms)
    return await result.finish(layer_id, name, timeout_ms) if type(result) is Unfinished else result
