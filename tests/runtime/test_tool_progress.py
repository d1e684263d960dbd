"""Generator tools: yielded values are progress, the return value is the result. Errors keep their type."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from datetime import date
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ToolCalled, ToolProgress
from noetic_nb.steps import step
from noetic_nb.testing import drive_loop
from tests.runtime.factories import make_harness, outputs, record_events


def plain(n: int):  # type: ignore[no-untyped-def]
    """Count."""
    yield from range(n)
    return "done"


def annotated(n: int) -> Generator[int, None, str]:
    """Count."""
    yield from range(n)
    return "done"


def described(n: int) -> Iterator[int]:
    """Count."""
    yield from range(n)
    return "done"


def by_its_value(n: int) -> str:
    """Count."""
    yield from range(n)  # type: ignore[misc]
    return "done"


def last_piece(n: int) -> Generator[Any, None, None]:
    """Count."""
    yield from range(n)
    yield "done"


async def asynchronous(n: int) -> AsyncIterator[Any]:
    """Count."""
    for i in range(n):
        await asyncio.sleep(0)
        yield i
    yield "done"


@pytest.mark.parametrize("count", [plain, annotated, described, by_its_value, last_piece, asynchronous])
async def test_what_a_tool_yields_is_progress_and_what_it_returns_the_result(count: Any) -> None:
    tool = nn.tool(count, name="count")
    harness = make_harness([nn.CallTool("count", n=2), "ok"], tools=[tool])
    events = record_events(harness)

    reply = await harness.execute("go")

    pieces = [0, 1, "done"] if count in (last_piece, asynchronous) else [0, 1]
    assert outputs(reply.items) == ["done"]
    seen = [event for event in events if isinstance(event, ToolProgress | ToolCalled)]
    assert [event.value for event in seen[:-1]] == pieces
    assert {event.call_id for event in seen} == {reply.items[1]["callId"]}
    assert (seen[-1].status, seen[-1].output) == ("ok", "done")
    assert await tool.call({"n": 1}) == "done"


async def test_progress_is_streamed_while_the_tool_is_at_work() -> None:
    followed = asyncio.Event()

    async def work() -> AsyncIterator[str]:
        """Work."""
        yield "half"
        await followed.wait()
        yield "all"

    harness = make_harness([nn.CallTool("work"), "ok"], tools=[nn.tool(work)])
    seen = []
    async for event in harness.stream("go").events:
        if isinstance(event, ToolProgress):
            seen.append(event.value)
            followed.set()

    assert seen == ["half", "all"]


async def test_pieces_are_json_data_of_their_moment_and_survive_a_file(tmp_path: Any) -> None:
    growing: list[int] = []

    def work() -> Iterator[Any]:
        """Work."""
        for n in range(2):
            growing.append(n)
            yield growing
        yield date(2026, 1, 2)
        yield object
        return None

    harness = make_harness([nn.CallTool("work"), "ok"], tools=[nn.tool(work)])
    run = nn.record(harness)
    await harness.execute("go")

    values = [event.value for event in run.select(ToolProgress)]
    assert values == [(0,), (0, 1), "2026-01-02", str(object)]
    loaded = nn.load_run(run.save(tmp_path / "run.jsonl.gz"))
    assert loaded.select(ToolProgress) == run.select(ToolProgress)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_is_cancelled_between_two_pieces_is_closed(is_async: bool) -> None:
    ended: list[str] = []

    def endless() -> Iterator[int]:
        """Work."""
        try:
            while True:
                yield 1
        finally:
            ended.append("closed")

    async def waiting() -> AsyncIterator[int]:
        """Work."""
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.append("closed")

    async def main() -> Any:
        tool = nn.tool(waiting if is_async else endless, name="work")
        harness = make_harness([nn.CallTool("work"), "ok"], tools=[tool])
        turn = asyncio.ensure_future(harness.execute("go"))
        for _ in range(20):
            await asyncio.sleep(0)
        await harness.cancel()
        with pytest.raises(nn.NoeticError) as caught:
            await turn
        return caught.value.kind

    assert (drive_loop(main()), ended) == ("cancelled", ["closed"])


async def test_a_result_that_does_not_fit_and_an_error_midway_are_answered() -> None:
    def wrong() -> Generator[int, None, int]:
        """Work."""
        yield 1
        return "many"  # type: ignore[return-value]

    def broken() -> Iterator[int]:
        """Work."""
        yield 1
        raise KeyError("A17")

    calls = [nn.CallTool("wrong"), nn.CallTool("broken")]
    harness = make_harness([calls, "ok"], tools=[nn.tool(wrong), nn.tool(broken)])
    events = record_events(harness)

    reply = await harness.execute("go")

    assert [event.status for event in events.of("tool_called")] == ["invalid_result", "error"]
    assert len(events.of("tool_progress")) == 2
    assert outputs(reply.items)[1] == "Error: 'A17' (KeyError)"


async def test_a_tool_step_has_progress_too_and_a_step_may_hide_it() -> None:
    harness = make_harness([], step=step.tool("count", nn.tool(annotated, name="count"), {"n": 1}))
    events = record_events(harness)
    assert (await harness.execute("go")).text == "done"
    assert [event.value for event in events.of("tool_progress")] == [0]

    quiet = step.llm("ask", model="m", tools=[nn.tool(annotated, name="count")], emit=False)
    harness = make_harness([nn.CallTool("count", n=1), "ok"], step=quiet)
    events = record_events(harness)
    await harness.execute("go")
    assert events.of("tool_progress") == []


# -- errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "text", "kind"),
    [
        (KeyError("A17"), "'A17' (KeyError)", "KeyError"),
        (ValueError("no paper"), "no paper (ValueError)", "ValueError"),
        (TimeoutError(), "TimeoutError", "TimeoutError"),
        (nn.NoeticError("tool_failed", "out of stock"), "out of stock", "tool_failed"),
    ],
)
async def test_the_error_of_a_tool_keeps_its_type(error: Exception, text: str, kind: str) -> None:
    told: list[Any] = []

    def order() -> str:
        """Order."""
        raise error

    hooks = nn.MemoryHooks(on_tool_outcome=lambda p: told.append((p.error, p.error_type)))
    watch = nn.MemoryLayer(id="watch", slot=1, scope="thread", hooks=hooks)
    harness = make_harness([nn.CallTool("order"), "ok"], tools=[nn.tool(order)], memory=[watch])
    run = nn.record(harness)

    reply = await harness.execute("go")

    assert outputs(reply.items) == [f"Error: {text}"]
    (event,) = run.select(ToolCalled)
    assert (event.error, event.error_type) == (str(error), kind)
    assert told == [(event.error, kind)]
    assert list(run.to_frame("tools")["error_type"]) == [kind]
