"""A thread of conversation: its log, and the queue of what is said while a turn is running.

Turns of a thread never overlap. What is queued while one runs is taken together into the next, and everyone who waits for
it gets that reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noetic_nb.items import ItemLog
from noetic_nb.runtime.context import Context
from noetic_nb.runtime.reply import AgentReply

__all__ = ["Message", "Session"]


@dataclass(slots=True)
class Message:
    """What someone said, and where their reply goes."""

    items: Sequence[Mapping[str, Any]]
    resource_id: str | None
    reply: asyncio.Future[AgentReply] | None = None


RunMessages = Callable[["Session", Sequence[Message]], Awaitable[AgentReply]]


@dataclass(slots=True)
class Session:
    """One thread."""

    thread_id: str
    log: ItemLog
    turn: int = 0
    resource_id: str | None = None
    ctx: Context | None = None
    last: Context | None = None
    task: asyncio.Task[Any] | None = None
    busy: bool = False
    waiting: list[Message] = field(default_factory=list)
    draining: asyncio.Task[None] | None = None

    async def say(self, message: Message, run: RunMessages) -> AgentReply:
        """Run a turn for a message now, or queue it behind the one that runs."""
        if self.busy:
            message.reply = asyncio.get_running_loop().create_future()
            self.waiting.append(message)
            return await message.reply
        self.busy = True
        try:
            return await run(self, [message])
        finally:
            self.release(run)

    def release(self, run: RunMessages) -> None:
        """Let the next turn begin: of what was said meanwhile, if anything was."""
        self.busy = bool(self.waiting)
        if self.busy:
            self.draining = asyncio.get_running_loop().create_task(self._drain(run))

    async def _drain(self, run: RunMessages) -> None:
        """Run turns until nobody waits; what came together is answered together."""
        try:
            while messages := [m for m in self.waiting if m.reply is not None and not m.reply.done()]:
                self.waiting.clear()
                try:
                    reply = await run(self, messages)
                except BaseException as exc:
                    for message in messages:
                        _fail(message, exc)
                    if not isinstance(exc, Exception):
                        raise
                else:
                    for message in messages:
                        if message.reply is not None and not message.reply.done():
                            message.reply.set_result(reply)
        finally:
            self.waiting.clear()
            self.busy = False


def _fail(message: Message, error: BaseException) -> None:
    if message.reply is None or message.reply.done():
        return
    if isinstance(error, asyncio.CancelledError):
        message.reply.cancel()
    else:
        message.reply.set_exception(error)
