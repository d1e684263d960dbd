"""A model falls silent during a stream: the call fails in time, its stream is closed, the thread stays usable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import pytest

import noetic_nb as nn
from noetic_nb.models import ModelDelta, ModelRequest, ModelResponse
from noetic_nb.models._client_answers import streamed
from noetic_nb.runtime import dump_config, load_config
from noetic_nb.testing import drive_loop
from tests.runtime.factories import make_harness, record_events, texts

pytestmark = pytest.mark.virtual_time


class Halting:
    """A client that streams pieces after pauses, in seconds; None means for ever."""

    def __init__(self, *pauses: float | None, stubborn: bool = False) -> None:
        self.pauses = pauses
        self.stubborn = stubborn
        self.closed = 0
        self.cancelled = 0

    async def complete(self, request: Any) -> ModelResponse:
        await asyncio.sleep(10_000)
        return await nn.ScriptedModel(["whole"]).complete(request)

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        try:
            for pause in self.pauses:
                try:
                    await (asyncio.Event().wait() if pause is None else asyncio.sleep(pause))
                except asyncio.CancelledError:
                    self.cancelled += 1
                    if not self.stubborn:
                        raise
                yield ModelDelta("text", "piece ")
            yield await nn.ScriptedModel(["whole"]).complete(request)
        finally:
            self.closed += 1


def followed(model: Any, **config: Any) -> tuple[nn.AgentHarness, Any, list[str], float]:
    """Stream a turn; return the harness, its outcome, the pieces and their times."""
    harness = make_harness(model, tools=[], **config)

    async def main() -> tuple[Any, list[str], float]:
        turn, pieces = harness.stream("hi"), []
        try:
            async for piece in turn.text:
                pieces.append(piece)
            end: Any = (await turn.reply).text
        except nn.NoeticError as exc:
            end = exc
        assert model.closed == 1, "closed before anyone is told"
        return end, pieces, asyncio.get_running_loop().time()

    return harness, *drive_loop(main())


def test_a_stream_that_falls_silent_fails_the_call_and_closes_the_stream() -> None:
    model = Halting(1, 100, None)

    harness, end, pieces, seconds = followed(model)

    assert (end.kind, end.reason, end.model, end.idle_timeout_ms) == ("llm_failed", "idle", "scripted", 120_000)
    assert str(end).startswith("The stream of model 'scripted' was silent for 120 s.")
    assert "`stream_idle_timeout_ms`" in str(end)
    assert (pieces, seconds, model.closed) == (["piece ", "piece "], 221.0, 1)
    assert list(texts(harness.log())) == ["user: hi"]


def test_a_slow_stream_is_heard_to_its_end() -> None:
    model = Halting(*[119.0] * 20)

    _, end, pieces, seconds = followed(model)

    assert (end, len(pieces), seconds, model.closed) == ("whole", 20, 119.0 * 20, 1)


def test_the_thread_can_be_used_after_a_silence() -> None:
    harness, end, _, _ = followed(Halting(None), stream_idle_timeout_ms=50)
    events = record_events(harness)

    async def again() -> str:
        harness._engine.models = nn.ScriptedModel(["Better now."])
        task = asyncio.current_task()
        assert task is not None
        reply = await harness.stream("and now?").reply
        assert task.cancelling() == 0
        return reply.text

    assert end.idle_timeout_ms == 50
    assert drive_loop(again()) == "Better now."
    assert list(texts(harness.log())) == ["user: hi", "user: and now?", "assistant: Better now."]
    assert events.of("error_raised") == []


@pytest.mark.parametrize("limit", [0, -1, 0.0])
def test_no_limit_is_no_limit(limit: float) -> None:
    _, end, _, seconds = followed(Halting(100_000), stream_idle_timeout_ms=limit)

    assert (end, seconds) == ("whole", 100_000.0)


def test_an_answer_that_is_not_streamed_may_take_its_time() -> None:
    harness = make_harness(Halting(None), tools=[], stream_idle_timeout_ms=50)

    assert drive_loop(harness.execute("hi")).text == "whole"


def test_a_client_that_swallows_its_cancellation_is_left_all_the_same() -> None:
    model = Halting(None, 5, 5, stubborn=True)

    harness, end, pieces, _ = followed(model, stream_idle_timeout_ms=50)

    assert (end.reason, pieces, model.closed, model.cancelled) == ("idle", [], 1, 1)
    assert list(texts(harness.log())) == ["user: hi"]


class Translating(Halting):
    """A client that turns any cancellation into its own error, or an answer."""

    def __init__(self, outcome: Any) -> None:
        super().__init__(None)
        self.outcome = outcome

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        try:
            async for part in super().stream(request):
                yield part
        except asyncio.CancelledError:
            if self.outcome is not None:
                raise self.outcome from None


@pytest.mark.parametrize("outcome", [ConnectionError("gone"), nn.NoeticError("llm_failed", "cut"), None])
def test_one_silence_is_one_error(outcome: Any) -> None:
    harness = make_harness(Translating(outcome), tools=[], stream_idle_timeout_ms=50)
    events = record_events(harness)

    async def main() -> Any:
        task = asyncio.create_task(_reply(harness))
        await asyncio.wait([task])
        return task.exception(), task.cancelling()

    error, cancelling = drive_loop(main())

    assert (error.kind, error.reason, cancelling) == ("llm_failed", "idle", 0)
    assert [event.error_kind for event in events.of("error_raised")] == ["llm_failed"]
    assert [event.status for event in events.of("model_called")] == ["error"]


async def _reply(harness: nn.AgentHarness) -> Any:
    return await harness.stream("hi").reply


async def followed_to_its_end(client: Halting) -> ModelResponse:
    return await streamed(client, ModelRequest("m", ()), lambda delta: None, 50)


def test_a_limit_leaves_its_task_as_it_found_it() -> None:
    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        await followed_to_its_end(Halting(0.01))
        await asyncio.sleep(1)  # no timer is left behind
        with pytest.raises(nn.NoeticError):
            await followed_to_its_end(Halting(None))
        return task.cancelling()

    assert drive_loop(main()) == 0


def test_who_cancels_during_a_silence_is_not_told_of_the_silence() -> None:
    async def silent() -> None:
        await followed_to_its_end(Halting(None))

    async def main() -> bool:
        task = asyncio.create_task(silent())
        asyncio.get_running_loop().call_later(0.05, task.cancel)
        await asyncio.wait([task])
        return task.cancelled()

    assert drive_loop(main())


def test_a_client_that_minds_silence_itself_is_left_to_it() -> None:
    class Minding(Halting):
        watches_silence = True

    assert followed(Minding(100_000), stream_idle_timeout_ms=50)[1] == "whole"
    assert nn.OpenAIModel("m").watches_silence
    assert not hasattr(nn.ScriptedModel([]), "watches_silence")


def test_a_cassette_minds_silence_as_the_model_it_records(tmp_path: Any) -> None:
    assert nn.CassetteModel(tmp_path / "a.jsonl", nn.OpenAIModel("m"), mode="record").watches_silence
    assert not nn.CassetteModel(tmp_path / "b.jsonl", nn.ScriptedModel(["x"]), mode="record").watches_silence


@pytest.mark.parametrize("first", ["cancel", "silence"])
def test_a_cancellation_beside_a_silence_stays_one(first: str) -> None:
    """If both happen in one iteration of the loop, the user's own request is reported."""
    harness = make_harness(Halting(None), tools=[], stream_idle_timeout_ms=50)

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(_reply(harness))
        await asyncio.sleep(0)
        delay = 0.05 if first == "silence" else 0.049_999_999_9
        loop.call_later(delay, lambda: asyncio.ensure_future(harness.cancel(reason="enough")))
        await asyncio.wait([task])
        return task.exception()

    error = drive_loop(main())

    assert error.kind == "cancelled" if first == "cancel" else error.kind in ("cancelled", "llm_failed")
    assert drive_loop(_again(harness)) == "fine"


async def _again(harness: nn.AgentHarness) -> str:
    harness._engine.models = nn.ScriptedModel(["fine"])
    return (await harness.stream("again").reply).text


def test_the_stop_button_during_a_silence_is_a_cancellation() -> None:
    model = Halting(None)
    harness = make_harness(model, tools=[], stream_idle_timeout_ms=50)

    async def main() -> None:
        message = harness._threads.message("hi", None, "next_turn", None, None)
        message.watch = lambda ctx: ctx.tree.follow.append(lambda *of: Mock())
        await harness._threads.thread("default").send(message, harness._threads.run)

    for at in range(1, 5):
        with pytest.raises((asyncio.CancelledError, nn.NoeticError)) as caught:
            drive_loop(main(), cancel_at=at)
        assert isinstance(caught.value, asyncio.CancelledError) or caught.value.reason == "idle"
    assert model.closed == 4


def test_the_limit_is_part_of_the_configuration() -> None:
    config = nn.AgentConfig(name="a", step=nn.step.llm("ask", model="m"), stream_idle_timeout_ms=5)

    assert nn.AgentConfig(name="a").stream_idle_timeout_ms == 120_000
    assert dump_config(config)["streamIdleTimeoutMs"] == 5
    assert load_config(dump_config(config)) == config
    with pytest.raises(nn.NoeticConfigError) as caught:
        nn.AgentConfig(name="a", stream_idle_timeout_ms=float("nan"))
    assert caught.value.code == "INVALID_AGENT_CONFIG"
