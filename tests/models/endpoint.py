"""An OpenAI-compatible endpoint on loopback that answers what a test tells it to, faults included.

It speaks just enough HTTP/1.1 for one request per connection, which leaves every way of misbehaving open: any status,
any bytes, silence, a connection cut in the middle of a body.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Behaviour", "Endpoint", "Seen", "chat", "chat_chunks", "response", "response_events", "running", "sse"]

_REASONS: Final = {200: "OK", 429: "Too Many Requests"}


@dataclass(frozen=True)
class Behaviour:
    """How one request is answered: what is sent, and how it ends."""

    pieces: tuple[bytes, ...] = ()
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    ending: str = "whole"
    """``whole`` ends the body properly, ``cut`` drops the connection, ``hang`` goes on saying nothing, ``mute`` says
    nothing at all, ``drop`` hangs up before the first byte."""


@dataclass(frozen=True)
class Seen:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Endpoint:
    """The endpoint; tell it what to do with `then`, look at what it saw in `seen`."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    behaviours: list[Behaviour] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    def then(self, answer: Any = None, **how: Any) -> Endpoint:
        """Answer the next unplanned request with JSON data, or with a `Behaviour`."""
        if not isinstance(answer, Behaviour):
            pieces = () if answer is None else (json.dumps(answer).encode(),)
            answer = Behaviour(**{"pieces": pieces, **how})
        self.behaviours.append(answer)
        return self

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.seen.append(await _read(reader))
            self.asked.set()
            behaviour = self.behaviours.pop(0) if self.behaviours else Behaviour((b'{"error":"unplanned"}',), 418)
            await self._perform(behaviour, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()

    async def _perform(self, how: Behaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if how.ending == "drop":
            writer.transport.abort()
            return
        if how.ending != "mute":
            head = [f"HTTP/1.1 {how.status} {_REASONS.get(how.status, 'Status')}", f"Content-Type: {how.content_type}"]
            head += ["Connection: close", "Transfer-Encoding: chunked", *(f"{k}: {v}" for k, v in how.headers)]
            writer.write("\r\n".join([*head, "", ""]).encode())
            for piece in how.pieces:
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
        match how.ending:
            case "whole":
                writer.write(b"0\r\n\r\n")
                await writer.drain()
            case "cut":
                writer.close()
            case _:
                await reader.read()  # returns when the client has hung up
                self.hung_up.set()


async def _read(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Seen(path=first.split()[1], headers=headers, body=json.loads(body or b"{}"))


@asynccontextmanager
async def running() -> AsyncIterator[Endpoint]:
    """Serve on a free port of loopback."""
    endpoint = Endpoint()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield endpoint


# What endpoints say


def chat(
    text: str | None = None, *, finish_reason: str | None = None, usage: Any = ..., **message: Any
) -> dict[str, Any]:
    """A whole chat completion."""
    calls = message.get("tool_calls")
    said = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "message": said, "finish_reason": finish_reason or ("tool_calls" if calls else "stop")}
    default = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-2026",
        "choices": [choice],
        "usage": default if usage is ... else usage,
    }


def chat_chunks(*deltas: dict[str, Any], finish_reason: str | None = "stop") -> list[dict[str, Any]]:
    """The same in chunks: one per delta, then the reason, then the usage."""

    def chunk(choices: list[Any], **more: Any) -> dict[str, Any]:
        return {
            "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-2026", "choices": choices, **more
        }  # fmt: skip

    chunks = [chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    if finish_reason is not None:
        chunks.append(chunk([{"index": 0, "delta": {}, "finish_reason": finish_reason}]))
        details = {"cached_tokens": 4}
        chunks.append(
            chunk(
                [],
                usage={
                    "prompt_tokens": 20,
                    "completion_tokens": 5,
                    "total_tokens": 25,
                    "prompt_tokens_details": details,
                },
            )
        )
    return chunks


def sse(events: Iterable[Any], *, ending: str = "whole", done: bool = True, named: bool = False) -> Behaviour:
    """A stream of server-sent events, one piece each."""
    pieces = []
    for event in events:
        text = event if isinstance(event, str) else json.dumps(event)
        name = f"event: {event['type']}\n" if named else ""
        pieces.append(f"{name}data: {text}\n\n".encode())
    if done and not named and ending == "whole":
        pieces.append(b"data: [DONE]\n\n")
    return Behaviour(tuple(pieces), content_type="text/event-stream", ending=ending)


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A whole response of the responses API."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m-2026",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 20,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 25,
        },
        **more,
    }


def response_events(whole: dict[str, Any], *deltas: dict[str, Any], last: str = "completed") -> list[dict[str, Any]]:
    """The same as events: created, the deltas given, then the whole response."""
    events = [{"type": "response.created", "response": {**whole, "output": [], "status": "in_progress"}}, *deltas]
    events.append({"type": f"response.{last}", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]
