"""Follow one turn while it happens: as text, as items, or as events.

Everything begins with the first await or iteration; until then nothing is sent. Each iterator sees the turn from its
beginning, however many there are, because what came before it began is kept, up to a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, Final, Protocol

from noetic_nb.events import EventSink, ItemsAppended, RunEvent
from noetic_nb.items import Item
from noetic_nb.models.client import ModelDelta
from noetic_nb.runtime.context.context import Context
from noetic_nb.runtime.context.reply import AgentReply
from noetic_nb.runtime.threads.thread import Message

__all__ = ["TurnStream"]

# What is kept for a reader that has not come yet, or is slow; docs/behaviour/runtime.md, "Constants".
BUFFER: Final = 10_000


class _Pipe:
    """What is given to every reader: the newest parts, and how many went before them."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.gone = 0
        self.news = asyncio.Event()
        self.over = False

    def put(self, part: Any) -> None:
        self.parts.append(part)
        # Cut at twice the limit: a deletion at the front moves all that stays, so it is made once in many parts.
        if len(self.parts) >= 2 * BUFFER:
            self.gone += len(self.parts) - BUFFER
            del self.parts[:-BUFFER]
        self.news.set()

    async def read(self) -> AsyncIterator[Any]:
        """Give everything that is kept, and then what comes."""
        place = 0
        while True:
            place = max(place, self.gone, self.gone + len(self.parts) - BUFFER)
            if place < self.gone + len(self.parts):
                yield self.parts[place - self.gone]
                place += 1
            elif self.over:
                return
            else:
                # Several readers share the event. Nothing is awaited between the look above and the wait, so no part is
                # missed.
                self.news.clear()
                await self.news.wait()

    def end(self) -> None:
        self.over = True
        self.news.set()


class _Reply:
    """A reply to be awaited, as often as one likes: nothing is left over where nobody does."""

    def __init__(self, start: Callable[[], asyncio.Task[AgentReply]]) -> None:
        self._start = start

    def __await__(self) -> Generator[Any, None, AgentReply]:
        # Shielded: one who waits may give up, and the turn is still there for the others.
        return asyncio.shield(self._start()).__await__()


class _Harness(Protocol):
    """What a stream needs of a harness."""

    def subscribe(self, sink: EventSink) -> Callable[[], None]:
        """Send every event to a sink; returns a function that ends this."""
        ...


class TurnStream:
    """A turn to follow; made by `AgentHarness.stream`.

    Leaving an iterator early does not stop the turn: `AgentHarness.cancel` does.
    """

    def __init__(self, harness: _Harness, message: Message, send: Callable[[], Awaitable[AgentReply]]) -> None:
        self._harness = harness
        self._send = send
        self._task: asyncio.Task[AgentReply] | None = None
        self._pipes: dict[str, _Pipe] = {name: _Pipe() for name in ("text", "reasoning", "items", "events")}
        self._ctx: Context | None = None
        self._executions: set[str] = set()
        self._has_text = False
        message.watch = self._watch

    def _watch(self, ctx: Context) -> None:
        """Begin to follow: called when the turn's context is made."""
        self._ctx = ctx
        # Messages that were taken into one turn may each have a stream.
        others = ctx.tree.on_delta

        def forward(delta: ModelDelta) -> None:
            if others is not None:
                others(delta)
            if delta.kind == "text":
                self._has_text = True
            if delta.kind in ("text", "reasoning"):
                self._pipes[delta.kind].put(delta.text)

        ctx.tree.on_delta = forward

    def emit(self, event: RunEvent) -> None:
        """Take an event of the harness; those of other turns are left out."""
        if self._ctx is None or event.where.turn != self._ctx.turn or event.where.thread_id != self._ctx.thread_id:
            return
        self._pipes["events"].put(event)
        # Children have logs of their own, which are no part of this conversation.
        if isinstance(event, ItemsAppended) and event.where.depth == 0:
            for item in event.items:
                self._pipes["items"].put(item)

    def _start(self) -> asyncio.Task[AgentReply]:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._whole())
        return self._task

    async def _whole(self) -> AgentReply:
        unsubscribe = self._harness.subscribe(self)
        try:
            reply = await self._send()
            if not self._has_text and reply.text:  # the model does not stream, or a layer spoke instead of it
                self._pipes["text"].put(reply.text)
            return reply
        finally:
            unsubscribe()
            for pipe in self._pipes.values():
                pipe.end()

    async def _read(self, name: str) -> AsyncIterator[Any]:
        task = self._start()
        async for part in self._pipes[name].read():
            yield part
        await asyncio.shield(task)  # an error of the turn is an error of whoever follows it

    @property
    def text(self) -> AsyncIterator[str]:
        """The answer's text, piece by piece."""
        return self._read("text")

    @property
    def reasoning(self) -> AsyncIterator[str]:
        """What the model thought, piece by piece, where it streams that."""
        return self._read("reasoning")

    @property
    def items(self) -> AsyncIterator[Item]:
        """Items as they are logged, the user's first."""
        return self._read("items")

    @property
    def events(self) -> AsyncIterator[RunEvent]:
        """Everything that happens in the turn."""
        return self._read("events")

    @property
    def reply(self) -> Awaitable[AgentReply]:
        """The reply, when the turn is over; may be awaited by several."""
        return _Reply(self._start)
