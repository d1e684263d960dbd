"""Follow a running turn as text, as items, or as events.

The turn begins with the first await or iteration; nothing is sent before. Every iterator sees the turn from its
beginning, because earlier parts are kept, up to a limit.

An answer that rules review is held until it is accepted. The streamed text is the text that the turn logs: answers of
its own execution while they are written, texts of children only if the turn adopts them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, NoReturn, TypeAlias, TypeVar

from msgspec import structs

from noetic_nb import events as ev
from noetic_nb._core.arguments import ArgumentError
from noetic_nb.items import Item
from noetic_nb.items._build import output_texts
from noetic_nb.models._client import ModelDelta
from noetic_nb.models._response_items import deltas_of
from noetic_nb.runtime._context.reply import AgentReply
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._threads.thread import Message
from noetic_nb.sync import shortened

Release: TypeAlias = Literal["judged", "live"]
"""When a reviewed answer is released: once it is accepted, or while it is written."""

Piece = TypeVar("Piece")

# Parts kept for a reader that is late or slow; docs/decisions/limits.md, "Runtime".
BUFFER: Final = 10_000


class _Pipe:
    """The parts for every reader: the newest ones, and the number of dropped ones before them."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.gone = 0
        self.news = asyncio.Event()
        self.over = False

    def put(self, part: Any) -> None:
        self.parts.append(part)
        # Cut at twice the limit: deleting at the front moves all remaining parts, so it is done rarely.
        if len(self.parts) >= 2 * BUFFER:
            self.gone += len(self.parts) - BUFFER
            del self.parts[:-BUFFER]
        self.news.set()

    async def read(self) -> AsyncIterator[Any]:
        """Yield all kept parts, and then new ones."""
        place = 0
        while True:
            place = max(place, self.gone, self.gone + len(self.parts) - BUFFER)
            if place < self.gone + len(self.parts):
                yield self.parts[place - self.gone]
                place += 1
            elif self.over:
                return
            else:
                # Readers share the event. Without an await between the check above and the wait, no part is missed.
                self.news.clear()
                await self.news.wait()

    def end(self) -> None:
        self.over = True
        self.news.set()


class _Reply:
    """An awaitable reply that may be awaited repeatedly, or ignored without a warning."""

    def __init__(self, wait: Callable[[], Coroutine[Any, Any, AgentReply]]) -> None:
        self._wait = wait

    def __await__(self) -> Generator[Any, None, AgentReply]:
        return self._wait().__await__()


def _not_itself(what: str, write: str, stream: TurnStream[Any]) -> ArgumentError:
    hint = f"Write `{write}`; there are .text, .reasoning, .items, .events and .reply."
    return ArgumentError(what, given=stream, hint=hint)


@dataclass(slots=True, eq=False)
class _Answer:
    """One answer while it is written, and the part of it that was released."""

    stream: TurnStream[Any]
    number: int
    where: ev.Where
    is_held: bool
    """Whether its pieces and the events around them wait until it is accepted."""
    shows_text: bool
    """Whether its text is released while it is written."""
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    is_open: bool = True

    def add(self, delta: ModelDelta) -> None:
        if delta.kind == "text":
            self.text.append(delta.text)
            if self.shows_text:
                self.stream.put("text", delta.text)
        elif delta.kind == "reasoning":
            self.reasoning.append(delta.text)
            if not self.is_held:
                self.stream.put("reasoning", delta.text)

    def stood(self) -> None:
        self.stream.standing = self

    def take_back(self) -> None:
        if self.is_open:
            self.is_open = False
            self.stream.close(self, stands=False)
            self.stream.retract(self)


@dataclass(slots=True, eq=False)
class _Held:
    """Events of one execution while an answer of it is under review."""

    answers: int = 0
    was_rejected: bool = False
    events: list[ev.RunEvent] = field(default_factory=list)


def _without_text(event: ev.RunEvent) -> ev.RunEvent | None:
    """Return an event about a rejected answer without fields that may contain its text; None if nothing is left."""
    if isinstance(event, ev.ModelCalled):
        return structs.replace(event, items=(), logprobs=())
    if isinstance(event, ev.MemoryTraceSpan):
        # The type stays: unlike message and stack, it cannot quote the answer.
        return structs.replace(event, attributes=None, notes=(), error=event.error and "withheld", error_stack=None)
    return None if isinstance(event, ev.LayerStateChanged) else event


class TurnStream(Generic[Piece]):
    """A turn to follow; created by `AgentHarness.stream`.

    Leaving an iterator early does not stop the turn. `AgentHarness.cancel` does, and so does cancelling the last
    reader, such as with the stop button. See docs/behaviour/runtime.md, "Streams".
    """

    def __init__(
        self,
        subscribe: Callable[[ev.EventSink], Callable[[], None]],
        message: Message,
        send: Callable[[], Awaitable[AgentReply]],
        release: Release = "judged",
    ) -> None:
        self._subscribe = subscribe
        self._send = send
        self._is_live = release == "live"
        self._task: asyncio.Task[AgentReply] | None = None
        self._readers = 0
        self._pipes: dict[str, _Pipe] = {name: _Pipe() for name in ("text", "reasoning", "items", "events")}
        self._ctx: RunningExecution | None = None
        self._answers = 0
        self._held: dict[str, _Held] = {}
        # Answers of children that the turn has not logged so far.
        self._unlogged: list[_Answer] = []
        self.standing: _Answer | None = None
        message.watch = self._watch

    def __aiter__(self) -> NoReturn:
        raise _not_itself("A stream has several sides", "async for piece in stream.text", self)

    def __iter__(self) -> NoReturn:
        raise _not_itself("A stream is read in an async loop", "async for piece in stream.text", self)

    def __await__(self) -> NoReturn:
        raise _not_itself("A stream is no reply", "reply = await stream.reply", self)

    def __repr__(self) -> str:
        state = "not begun" if self._task is None else "over" if self._task.done() else "running"
        return f"TurnStream({state}; read `.text`, `.items` or `.events` with `async for`, or await `.reply`)"

    def _watch(self, ctx: RunningExecution) -> None:
        """Begin to follow; called when the turn's context is created."""
        self._ctx = ctx
        # Messages that share a turn may each have a stream.
        ctx.tree.follow.append(self._begin)

    def _begin(self, ctx: RunningExecution, is_reviewed: bool) -> _Answer:
        is_held = is_reviewed and not self._is_live
        shows_text = self._is_live or (not is_held and ctx is self._ctx)
        answer = _Answer(self, self._answers, ctx.where, is_held, shows_text)
        self._answers += 1
        if is_held:
            self._held.setdefault(ctx.id, _Held()).answers += 1
        return answer

    def put(self, name: str, part: Any) -> None:
        self._pipes[name].put(part)

    def _put_pieces(self, name: str, pieces: list[str]) -> None:
        """Release the held pieces at once; as one piece if they are too many for a reader's buffer."""
        for piece in pieces if len(pieces) <= BUFFER // 2 else ["".join(pieces)]:
            self.put(name, piece)

    def _put_judged(self, name: str, pieces: list[str], judged: str) -> None:
        """Release an accepted text, in the pieces it was written in if they match it."""
        self._put_pieces(name, pieces if "".join(pieces) == judged else [judged] * bool(judged))

    def close(self, answer: _Answer, *, stands: bool) -> None:
        """Release the events held for an answer; without its text if it was rejected."""
        held = self._held.get(answer.where.execution_id) if answer.is_held else None
        if held is None:
            return
        held.answers -= 1
        held.was_rejected |= not stands
        if held.answers == 0:  # otherwise another answer of this execution is still under review
            del self._held[answer.where.execution_id]
            self._put_events(held.events, held.was_rejected)

    def _put_events(self, events: Iterable[ev.RunEvent], is_rejected: bool) -> None:
        for event in events:
            shown = _without_text(event) if is_rejected else event
            if shown is not None:
                self.put("events", shown)

    def retract(self, answer: _Answer) -> None:
        """Report that the released part of an answer is retracted."""
        text = "".join(answer.text) if answer.shows_text else ""
        thoughts = "" if answer.is_held else "".join(answer.reasoning)
        if not text and not thoughts:
            return
        now = 0.0 if self._ctx is None else self._ctx.engine.clock.now_ms()
        self.put("events", ev.TextRetracted(answer.number, text, answer.where, now))
        if self._is_live:
            for name, taken in (("text", text), ("reasoning", thoughts)):
                if taken:
                    self.put(name, ev.TextRetracted(answer.number, taken, answer.where, now))

    def emit(self, event: ev.RunEvent) -> None:
        """Receive an event of the harness; events of other turns are skipped."""
        where = event.where
        if self._ctx is None or where.turn != self._ctx.turn or where.thread_id != self._ctx.thread_id:
            return
        if isinstance(event, ev.ItemsAppended):
            answer = self.standing
            if answer is not None and where.execution_id == answer.where.execution_id:
                self.standing = None
                self._hand_out(answer, event.items)
            elif where.execution_id == self._ctx.id:
                self._hand_out_logged("".join(output_texts(event.items)))
        held = self._held.get(where.execution_id)
        if held is None:
            self.put("events", event)
        else:
            held.events.append(event)
        if isinstance(event, ev.ItemsAppended) and where.depth == 0:
            for item in event.items:
                self.put("items", item)

    def _hand_out(self, answer: _Answer, items: Iterable[Item]) -> None:
        """Release an accepted answer that was just logged."""
        answer.is_open = False
        self.close(answer, stands=True)
        if answer.is_held:
            # Only the judged text: a client may stream more than its response contains.
            found = [item for item in items if item["type"] == "reasoning"]
            self._put_judged("reasoning", answer.reasoning, "".join([delta.text for delta in deltas_of(found)]))
        answer.reasoning = []  # the reasoning of an accepted answer is never retracted, even if its text is
        written, logged = "".join(answer.text), "".join(output_texts(items))
        if self._ctx is None or answer.where.execution_id != self._ctx.id:
            if written:
                self._unlogged.append(answer)
        elif not answer.shows_text:
            self._put_judged("text", answer.text, logged)
        elif logged.startswith(written):
            self._put_pieces("text", [logged[len(written) :]] * (written != logged))
        elif self._is_live:  # the client contradicts itself; without `live`, released pieces cannot be retracted
            self.retract(answer)
            self._put_pieces("text", [logged] * bool(logged))

    def _hand_out_logged(self, text: str) -> None:
        """Release texts logged by the turn's own execution besides its answers: those of a child or a function."""
        for place in range(len(self._unlogged) - 1, -1, -1):
            if "".join(self._unlogged[place].text) == text:
                answer = self._unlogged.pop(place)
                if not answer.shows_text:
                    self._put_pieces("text", answer.text)
                return
        if text:
            self.put("text", text)

    async def _whole(self) -> AgentReply:
        unsubscribe = self._subscribe(self)
        try:
            reply = await self._send()
            if self._ctx is None:  # the message became part of a running turn
                for item in reply.items:
                    self.put("items", item)
                self._put_pieces("text", output_texts(reply.items))
            return reply
        finally:
            unsubscribe()
            for answer in self._unlogged:
                self.retract(answer)
            for held in self._held.values():  # of abandoned steps
                self._put_events(held.events, is_rejected=True)
            for pipe in self._pipes.values():
                pipe.end()

    @contextmanager
    def _reading(self) -> Iterator[asyncio.Task[AgentReply]]:
        """Follow the turn, shielded: if one reader gives up, the turn continues for the others."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._whole())
        task = self._task
        self._readers += 1
        try:
            yield task
        except asyncio.CancelledError as exc:
            if self._readers == 1:
                task.cancel()
            raise shortened(exc) from None
        finally:
            self._readers -= 1

    async def _read(self, name: str) -> AsyncIterator[Any]:
        with self._reading() as task:
            async for part in self._pipes[name].read():
                yield part
            await asyncio.shield(task)  # an error of the turn is raised to its readers

    async def _wait(self) -> AgentReply:
        with self._reading() as task:
            return await asyncio.shield(task)

    @property
    def text(self) -> AsyncIterator[Piece]:
        """The text of the turn, piece by piece: joined, it is the text of all assistant messages that it logs, in order.

        With ``release="live"``, a `TextRetracted` among the pieces retracts those of one answer.
        """
        return self._read("text")

    @property
    def reasoning(self) -> AsyncIterator[Piece]:
        """The model's reasoning, piece by piece, if it streams that; held and retracted like the text."""
        return self._read("reasoning")

    @property
    def items(self) -> AsyncIterator[Item]:
        """Items as they are logged, the user's first."""
        return self._read("items")

    @property
    def events(self) -> AsyncIterator[ev.RunEvent | ev.TextRetracted]:
        """All events of the turn, without the text of rejected answers."""
        return self._read("events")

    @property
    def reply(self) -> Awaitable[AgentReply]:
        """The reply, once the turn is over; several callers may await it."""
        return _Reply(self._wait)
