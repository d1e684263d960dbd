"""Call a hook under a time limit whose timer is armed only when the hook really waits.

Most hooks return at once; a timeout scope around each of them would cost more than all of them together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from noetic_nb.errors import NoeticError

__all__ = ["HookTimeout", "call_hook"]


class HookTimeout(NoeticError, TimeoutError):
    """A hook ran out of time; it was cancelled.

    Examples
    --------
    >>> HookTimeout("notes", "recall", 20).kind
    'hook_timeout'
    """

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


class _Limited:
    """Awaits something; starts the clock at its first suspension."""

    __slots__ = ("_awaitable", "_seconds", "expired")

    def __init__(self, awaitable: Awaitable[Any], seconds: float) -> None:
        self._awaitable = awaitable
        self._seconds = seconds
        self.expired = False

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._awaitable.__await__()
        try:
            waiting = steps.send(None)
        except StopIteration as done:
            return done.value
        return (yield from self._rest(steps, waiting))

    def _rest(self, steps: Any, waiting: Any) -> Generator[Any, Any, Any]:
        scope = asyncio.timeout(self._seconds)
        yield from scope.__aenter__().__await__()
        try:
            while True:
                try:
                    sent = yield waiting
                except BaseException as exc:
                    waiting = steps.throw(exc)
                else:
                    waiting = steps.send(sent)
        except StopIteration as done:
            yield from scope.__aexit__(None, None, None).__await__()
            return done.value
        except BaseException as exc:
            try:
                # Turns our own cancellation into TimeoutError and leaves every other one alone.
                yield from scope.__aexit__(type(exc), exc, exc.__traceback__).__await__()
            except TimeoutError:
                self.expired = True
                raise
            raise


async def call_hook(hook: Callable[[Any], Any], params: Any, *, layer_id: str, name: str, timeout_ms: float) -> Any:
    """Call a hook, sync or async, and wait for it at most so long.

    Parameters
    ----------
    hook : callable
        Takes `params`.
    params : object
        The parameter record.
    layer_id, name : str
        For the error.
    timeout_ms : float
        Limit in milliseconds; 0 or less means none. A sync hook cannot be limited.

    Raises
    ------
    HookTimeout
        When the limit was ours; a `TimeoutError` of the hook's own passes as it is.

    Examples
    --------
    >>> import asyncio
    >>> asyncio.run(call_hook(lambda p: p + 1, 1, layer_id="a", name="recall", timeout_ms=10))
    2
    """
    result = hook(params)
    if not hasattr(result, "__await__"):
        return result
    if timeout_ms <= 0 or timeout_ms == float("inf"):
        return await result
    limited = _Limited(result, timeout_ms / 1000)
    try:
        return await limited
    except TimeoutError as exc:
        if limited.expired:
            raise HookTimeout(layer_id, name, timeout_ms) from exc
        raise
