"""A turn that was requested and has not begun: the return value of `AgentHarness.execute` until it is awaited."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, NoReturn

from noetic_nb._core.arguments import ArgumentError
from noetic_nb.runtime._context.reply import AgentReply
from noetic_nb.sync import shortened

_HINT: Final = (
    "write `reply = await harness.{name}(...)` in a notebook, or `nn.run_sync(harness.{name}(...))` in a script"
)


class PendingReply(Coroutine[Any, Any, AgentReply]):
    """A coroutine that explains itself: its repr, a field of the reply, and its end without an `await` name the way out.

    Nothing is sent before it is awaited. It is taken wherever a coroutine is: by `asyncio.run`, by tasks, by `run_sync`.
    """

    __slots__ = ("__name__", "__weakref__", "_begin", "_coroutine")

    def __init__(self, name: str, begin: Callable[[], Coroutine[Any, Any, AgentReply]]) -> None:
        self.__name__ = name
        self._begin: Callable[[], Coroutine[Any, Any, AgentReply]] | None = begin
        self._coroutine: Coroutine[Any, Any, AgentReply] | None = None

    def _begun(self) -> Coroutine[Any, Any, AgentReply]:
        if self._coroutine is None:
            begin, self._begin = self._begin, None
            if begin is None:
                raise RuntimeError(f"This call of {self.__qualname__} was closed before it began.")
            self._coroutine = begin()
        return self._coroutine

    def __aiter__(self) -> NoReturn:
        hint = "Write `async for piece in harness.stream('Hi').text` to follow a turn."
        error = ArgumentError("A reply is one value", given=self, hint=hint)
        self.close()  # one complaint is enough
        raise error

    def __await__(self) -> Generator[Any, Any, AgentReply]:
        try:
            return (yield from self._begun().__await__())
        except asyncio.CancelledError as exc:
            raise shortened(exc) from None

    def send(self, value: Any, /) -> Any:
        """Go on to the next wait; for event loops."""
        try:
            return self._begun().send(value)
        except asyncio.CancelledError as exc:
            raise shortened(exc) from None

    def throw(self, *error: Any) -> Any:
        """Raise an exception where it waits; for event loops."""
        try:
            return self._begun().throw(*error)
        except asyncio.CancelledError as exc:
            raise shortened(exc) from None

    def close(self) -> None:
        """End it without a result."""
        self._begin = None
        if self._coroutine is not None:
            self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        if name == "__qualname__":  # for loops that show their tasks
            return f"AgentHarness.{self.__name__}"
        if name in AgentReply._fields:
            hint = _HINT.format(name=self.__name__)
            raise AttributeError(f"The turn has not run yet, so it has no {name!r}: {hint}.", name=name, obj=self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return (
            f"<a turn that has {'begun' if self._begin is None else 'not begun'}: {_HINT.format(name=self.__name__)}>"
        )

    def __del__(self) -> None:
        if self._begin is not None:
            hint = _HINT.format(name=self.__name__)
            warnings.warn(
                f"{self.__qualname__}(...) was never awaited, so nothing was sent: {hint}.", RuntimeWarning, 2
            )
