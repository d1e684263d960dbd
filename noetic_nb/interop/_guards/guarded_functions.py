"""A function that decides before it runs, of the same kind as the one it stands for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, TypeAlias

from noetic_nb.errors import NoeticError
from noetic_nb.interop._guards.guard_arguments import Binder, Bound
from noetic_nb.interop._guards.guarded_calls import Guard, GuardedCall, OnDeny, is_async
from noetic_nb.sync import drive

Reply: TypeAlias = Callable[[str], Any]
"""From the text of a refusal to what a framework's tool returns."""


def plain_text(text: str) -> Any:
    """Return the text itself: the `Reply` of most frameworks."""
    return text


def guarded_function(
    function: Callable[..., Any],
    guard: Guard,
    bind: Binder,
    name: str,
    *,
    needs_approval: bool = False,
    reply: Reply | None = None,
) -> Any:
    """Return a function of the same kind that decides first.

    A framework's tool answers a refusal by `reply` and returns it by default; a plain function raises it by default.
    """
    wrapped: Any
    guard.names.add(name)
    on_deny: OnDeny = "return" if reply else "raise"
    reply = reply or plain_text

    async def admitted(args: Any, kwargs: Any) -> tuple[GuardedCall, Bound] | str:
        try:
            bound = bind(args, kwargs)
        except NoeticError as exc:
            return guard.unfit(name, exc, on_deny)
        call = guard.call(bound, needs_approval=needs_approval)
        return call.refusal(on_deny) if await call.refused() else (call, bound)

    if inspect.isasyncgenfunction(function):

        async def wrapped(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            found = await admitted(args, kwargs)
            if isinstance(found, str):
                yield reply(found)
                return
            call, bound = found
            with call:
                pieces = function(*bound.positional, **bound.named)
                try:
                    async for call.value in pieces:
                        yield call.value
                finally:
                    await pieces.aclose()

    elif inspect.isgeneratorfunction(function):

        def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            found = drive(admitted(args, kwargs))
            if isinstance(found, str):
                yield reply(found)
                return None
            call, bound = found
            with call:
                call.value = yield from function(*bound.positional, **bound.named)
            return call.value

    elif is_async(function):

        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            found = await admitted(args, kwargs)
            if isinstance(found, str):
                return reply(found)
            call, bound = found
            with call:
                call.value = await function(*bound.positional, **bound.named)
            return call.value

    else:

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            found = drive(admitted(args, kwargs))
            if isinstance(found, str):
                return reply(found)
            call, bound = found
            with call:
                value = call.value = function(*bound.positional, **bound.named)
                if not hasattr(value, "__await__"):
                    return value
                call.postpone()  # a plain function that returns something to await has not ended yet
            return _ended_later(call, value)

    wrapped.__name__ = name  # of an object that has none
    functools.update_wrapper(wrapped, function)
    wrapped.run = guard.run
    return wrapped


async def _ended_later(call: GuardedCall, awaitable: Any) -> Any:
    with call:
        call.value = await awaitable
    return call.value
