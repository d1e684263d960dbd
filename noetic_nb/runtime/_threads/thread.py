"""A thread of conversation: its log, and the queue of messages that arrive while a turn is running.

Turns of a thread never overlap. Messages queued during a turn share the next one, and all their callers get its reply,
each through a `PendingReply`.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from noetic_nb._core.arguments import ArgumentError
from noetic_nb.items import ItemLog
from noetic_nb.runtime._config.config import Limits
from noetic_nb.runtime._context.reply import AgentReply
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.sync import shortened

if TYPE_CHECKING:
    from noetic_nb.runtime._durability.thread_writer import ThreadWriter


Delivery: TypeAlias = Literal["next_turn", "between_rounds", "interrupt"]
"""When a message that arrives during a turn is used: in the next turn, before the next model call, or instead of the turn."""


@dataclass(slots=True, eq=False)
class Message:
    """A message to the agent, and the future of its reply."""

    items: Sequence[Mapping[str, Any]]
    resource_id: str | None = None
    limits: Limits | None = None
    state: dict[str, Any] | None = None
    watch: Callable[[RunningExecution], None] | None = None
    reply: asyncio.Future[AgentReply] | None = None
    taken: bool = False
    now: Callable[[], float] | None = None
    """The clock for its waiting time."""
    queued_ms: float | None = None
    """When it began to wait for the previous turn; None if it did not."""

    def take(self) -> Sequence[Mapping[str, Any]]:
        self.taken = True
        return self.items

    @property
    def waits(self) -> bool:
        """Whether its caller still waits for the reply."""
        return self.reply is not None and not self.reply.done()

    def answer(self, outcome: AgentReply | BaseException) -> None:
        """Give the reply or the error to the waiting caller."""
        if self.reply is None or self.reply.done():
            return
        if isinstance(outcome, AgentReply):
            self.reply.set_result(outcome)
        elif isinstance(outcome, asyncio.CancelledError):
            self.reply.cancel()
        else:
            self.reply.set_exception(outcome)


class ThreadStatus(NamedTuple):
    """The status of a thread: the running turn, its duration, and the number of messages waiting for the next."""

    state: Literal["idle", "generating", "aborting"]
    turn_id: str | None = None
    elapsed_ms: float = 0.0
    waiting: int = 0


RunMessages: TypeAlias = Callable[["Thread", Sequence[Message]], Awaitable[AgentReply]]


@dataclass(slots=True, eq=False)
class Thread:
    thread_id: str
    log: ItemLog
    turn: int = 0
    resource_id: str | None = None
    ctx: RunningExecution | None = None
    """The open execution."""
    last: RunningExecution | None = None
    """The previous execution."""
    busy: bool = False
    """Whether a turn is running or about to; all changes to the thread wait until it is False."""
    waiting: list[Message] = field(default_factory=list)
    """Messages for the next turn, in order."""
    between: list[Message] = field(default_factory=list)
    """Messages that the running turn has not used yet."""
    offered: list[Message] = field(default_factory=list)
    """All messages offered to this turn: those that it does not use wait for the next."""
    answered: Sequence[Message] = ()
    """The queued messages that the running turn answers."""
    draining: asyncio.Task[None] | None = None
    writer: ThreadWriter | None = None
    """The stored part of the log; None without checkpoints, and before the thread was read."""
    reading: asyncio.Future[None] | None = None
    """While the thread is being read: done once it has been read."""
    is_opening: bool = False
    """Whether a turn is about to begin and waits until the thread has been read."""
    aborted_early: str | None = None
    """Why that turn must be cancelled as soon as it begins."""

    async def send(self, message: Message, run: RunMessages, delivery: Delivery = "next_turn") -> AgentReply:
        """Run a turn for a message now, or queue it for the running or the next turn."""
        if not self.busy:
            self.busy = True
            try:
                # BaseException below: callers of a message within a cancelled turn must not wait for ever either.
                reply = await run(self, (message,))
            except BaseException as exc:
                self._share(exc)
                raise
            else:
                self._share(reply)
                return reply
            finally:
                self.release(run)
        message.reply = asyncio.get_running_loop().create_future()
        if message.now is not None:
            message.queued_ms = message.now()
        if delivery == "between_rounds" and self.ctx is not None:
            self.between.append(message)
            self.offered.append(message)
        elif delivery == "interrupt":
            self.waiting.insert(0, message)
            self.abort("interrupted by a newer message")
        else:
            self.waiting.append(message)
        try:
            return await message.reply
        except asyncio.CancelledError:
            # Its turn runs in a task of the thread, and only continues while a caller waits for it.
            if message in self.answered and not any(each.waits for each in (*self.answered, *self.offered)):
                self.abort("the caller was cancelled")
            raise

    def abort(self, reason: str) -> bool:
        """Cancel the running turn, or the one about to begin; False if there is none."""
        if self.ctx is not None:
            self.ctx.abort(reason)
            return True
        if self.is_opening:
            self.aborted_early = self.aborted_early or reason
        return self.is_opening

    @property
    def status(self) -> ThreadStatus:
        waiting = sum(message.waits for message in self.waiting)
        is_aborting = self.aborted_early is not None if self.ctx is None else self.ctx.aborted
        state: Literal["generating", "aborting"] = "aborting" if is_aborting else "generating"
        if self.ctx is None:
            return ThreadStatus(state if self.is_opening else "idle", waiting=waiting)
        return ThreadStatus(state, self.ctx.turn_id, self.ctx.elapsed_ms, waiting)

    def _share(self, outcome: AgentReply | BaseException) -> None:
        """Give the outcome of a turn to the callers whose messages it used."""
        if not self.offered:
            return
        for message in self.offered:
            if message.taken:
                message.answer(outcome)
            elif message.waits:  # too late for this turn
                self.waiting.append(message)
        self.offered.clear()
        self.between.clear()

    def release(self, run: RunMessages) -> None:
        """Let the next turn begin, for messages that arrived meanwhile."""
        if not self.waiting:
            self.busy = False
        else:
            # Kept, because a loop holds tasks weakly. `busy` stays True, so that no newer message overtakes these.
            self.draining = asyncio.get_running_loop().create_task(self._drain(run))

    async def _drain(self, run: RunMessages) -> None:
        """Run turns until no message waits; messages that arrived together are answered together."""
        try:
            while messages := [message for message in self.waiting if message.waits]:
                # Cleared before the turn runs: messages that arrive from now on are for the next one.
                self.waiting.clear()
                self.answered = messages
                try:
                    reply = await run(self, messages)
                except BaseException as exc:
                    self._share(exc)
                    for message in messages:
                        message.answer(exc)
                    # Errors are for these messages' callers, and the queue continues; a cancellation is for this task.
                    if not isinstance(exc, Exception):
                        raise
                else:
                    self._share(reply)
                    for message in messages:
                        message.answer(reply)
        finally:
            self.answered = ()
            for message in self.waiting:  # only if this task itself was cancelled
                message.answer(asyncio.CancelledError())
            self.waiting.clear()
            self.busy = False


_HINT: Final = (
    "write `reply = await harness.{name}(...)` in a notebook, or `nn.run_sync(harness.{name}(...))` in a script"
)


async def _briefly_cancelled(begin: Callable[[], Coroutine[Any, Any, AgentReply]]) -> AgentReply:
    """Run a turn; a cancellation is raised without the lines of the library in its traceback."""
    try:
        return await begin()
    except asyncio.CancelledError as exc:
        raise shortened(exc) from None


class PendingReply(Coroutine[Any, Any, AgentReply]):
    """A coroutine whose errors explain its use: its repr, access to reply fields, and the warning about a missing `await`.

    Nothing is sent before it is awaited. Works wherever a coroutine does: `asyncio.run`, tasks, `run_sync`.
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
            self._coroutine = _briefly_cancelled(begin)
        return self._coroutine

    def __aiter__(self) -> NoReturn:
        hint = "Write `async for piece in harness.stream('Hi').text` to follow a turn."
        error = ArgumentError("A reply is one value", given=self, hint=hint)
        self.close()  # one complaint is enough
        raise error

    def __await__(self) -> Generator[Any, Any, AgentReply]:
        return self._begun().__await__()

    def send(self, value: Any, /) -> Any:
        """Resume until the next wait; for event loops."""
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception where it waits; for event loops."""
        return self._begun().throw(*error)

    def close(self) -> None:
        """Close it without a result."""
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
