"""What OpenAIModel makes of every way an endpoint can fail, over both APIs, whole and streamed."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import traceback
from collections.abc import Callable
from contextlib import aclosing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import pytest

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import assistant_text, input_message
from noetic_nb.models import ModelDelta, ModelRequest, ModelResponse, OpenAIModel, Usage
from tests.models.conftest import KEY
from tests.models.endpoint import Behaviour, Endpoint, chat, chat_chunks, response, response_events, sse

Make = Callable[..., OpenAIModel]
Api = Literal["chat", "responses"]
REQUEST = ModelRequest(model="m", items=(input_message("hi"),))
APIS: list[Api] = ["chat", "responses"]

both_apis = pytest.mark.parametrize("api", APIS)
whole_or_streamed = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def text_of(api: Api, text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}
    return chat(text) if api == "chat" else response(message)


def good(api: Api, streamed: bool) -> Any:
    if not streamed:
        return text_of(api, "Fine.")
    if api == "chat":
        return sse(chat_chunks({"content": "Fine."}))
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "Fine."}
    return sse(response_events(text_of(api, "Fine."), delta), named=True)


async def run(model: OpenAIModel, streamed: bool) -> ModelResponse:
    if not streamed:
        return await model.complete(REQUEST)
    async with aclosing(model.stream(REQUEST)) as stream:  # type: ignore[type-var]
        parts = [part async for part in stream]
    assert isinstance(parts[-1], ModelResponse)
    return parts[-1]


async def failure_of(model: OpenAIModel, streamed: bool = False) -> NoeticError:
    async with asyncio.timeout(10):
        with pytest.raises(NoeticError) as caught:
            await run(model, streamed)
    return caught.value


# Failures that pass


@both_apis
@whole_or_streamed
@pytest.mark.parametrize(
    "fault",
    [
        Behaviour(status=500),
        Behaviour(status=503, pieces=(b"<html>down</html>",), content_type="text/html"),
        Behaviour(status=429, headers=(("Retry-After", "0"),)),
        Behaviour(status=408),
        Behaviour(ending="drop"),
        Behaviour((b'{"id": "c1", "cho',), ending="cut"),
    ],
    ids=["500", "503-html", "429", "408", "drop", "cut"],
)
async def test_a_failure_that_passes_is_tried_again(
    endpoint: Endpoint, client: Make, waits: list[float], api: Api, streamed: bool, fault: Behaviour
) -> None:
    endpoint.then(fault).then(fault).then(good(api, streamed))

    answer = await run(client(api=api), streamed)

    assert assistant_text(answer.items) == "Fine."
    assert len(endpoint.seen) == 3
    assert 0.25 <= waits[0] <= 0.5 <= waits[1] <= 1.0


@whole_or_streamed
async def test_retry_after_is_honoured_to_the_millisecond(
    endpoint: Endpoint, client: Make, waits: list[float], streamed: bool
) -> None:
    endpoint.then(Behaviour(status=429, headers=(("Retry-After", "7"),)))
    endpoint.then(Behaviour(status=429, headers=(("retry-after-ms", "1250"),))).then(good("chat", streamed))

    await run(client(), streamed)

    assert waits == [7.0, 1.25]


async def test_retry_after_may_be_a_date(endpoint: Endpoint, client: Make, waits: list[float]) -> None:
    class Clock:
        def now_ms(self) -> float:
            return 1_445_412_480_000.0  # ten seconds before the date below

        def monotonic_ms(self) -> float:
            return 0.0

    endpoint.then(Behaviour(status=503, headers=(("Retry-After", "Wed, 21 Oct 2015 07:28:10 GMT"),)))
    endpoint.then(chat("Fine."))

    await client(clock=Clock()).complete(REQUEST)

    assert waits == [10.0]


# Failures that stay


@both_apis
@whole_or_streamed
async def test_a_rate_limit_that_stays_is_reported_with_its_wait(
    endpoint: Endpoint, client: Make, waits: list[float], api: Api, streamed: bool
) -> None:
    limit = Behaviour((b'{"error":{"message":"too fast"}}',), 429, headers=(("Retry-After", "2"),))
    for _ in range(3):
        endpoint.then(limit)

    error = await failure_of(client(api=api), streamed)

    assert (error.kind, error.retry_after_ms, error.attempts) == ("llm_rate_limit", 2_000.0, 3)
    assert "too fast" in str(error)
    assert waits == [2.0, 2.0]


async def test_nobody_waits_longer_than_a_minute(endpoint: Endpoint, client: Make, waits: list[float]) -> None:
    endpoint.then(Behaviour(status=429, headers=(("Retry-After", "3600"),)))

    error = await failure_of(client())

    assert (error.kind, error.retry_after_ms) == ("llm_rate_limit", 3_600_000.0)
    assert waits == []


async def test_an_empty_account_is_not_asked_again(endpoint: Endpoint, client: Make, waits: list[float]) -> None:
    endpoint.then({"error": {"message": "no money", "code": "insufficient_quota"}}, status=429)

    error = await failure_of(client())

    assert (error.kind, error.code, waits) == ("llm_rate_limit", "insufficient_quota", [])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_request_that_is_refused_is_not_sent_again(
    endpoint: Endpoint, client: Make, waits: list[float], status: int
) -> None:
    endpoint.then({"error": {"message": "not like this"}}, status=status)

    error = await failure_of(client())

    assert (error.kind, error.reason, error.status, waits) == ("llm_failed", "status", status, [])
    assert "not like this" in str(error)


async def test_the_provider_may_forbid_another_attempt(endpoint: Endpoint, client: Make, waits: list[float]) -> None:
    endpoint.then(Behaviour(status=500, headers=(("x-should-retry", "false"),)))

    error = await failure_of(client())

    assert (error.status, waits) == (500, [])


@whole_or_streamed
async def test_an_endpoint_that_never_answers_runs_into_the_time_limit(
    endpoint: Endpoint, client: Make, streamed: bool
) -> None:
    endpoint.then(Behaviour(ending="mute"))

    limits = iter([50, 500, 5_000, 50_000])
    # On a busy machine a short limit passes before the request is out, and then nobody is there to hang up.
    while not endpoint.asked.is_set():
        error = await failure_of(client(timeout_ms=next(limits), max_retries=0), streamed)

        assert (error.kind, error.reason) == ("llm_failed", "timeout")
    async with asyncio.timeout(5):
        await endpoint.hung_up.wait()


async def test_an_endpoint_that_is_not_there_is_a_connection_failure(client: Make) -> None:
    error = await failure_of(client(base_url="http://127.0.0.1:1/v1", max_retries=0))

    assert (error.kind, error.reason) == ("llm_failed", "connection")


# Streams that break


@pytest.mark.parametrize("ending", ["cut", "whole"])
@both_apis
async def test_a_stream_that_breaks_off_is_not_tried_again_once_it_was_seen(
    endpoint: Endpoint, client: Make, waits: list[float], api: Api, ending: str
) -> None:
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "Fi"}
    half = chat_chunks({"content": "Fi"}, finish_reason=None) if api == "chat" else [delta]
    endpoint.then(sse(half, ending=ending, done=False, named=api == "responses"))
    seen = []

    async def watch() -> None:
        async for part in client(api=api).stream(REQUEST):
            seen.append(part)

    with pytest.raises(NoeticError) as caught:
        await watch()

    assert (caught.value.kind, caught.value.reason) == ("llm_failed", "disconnect")
    assert [part.text for part in seen if isinstance(part, ModelDelta)] == ["Fi"]
    assert waits == []


async def test_a_silent_stream_wakes_the_watchdog(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(sse(chat_chunks({"content": "Fi"}), ending="hang", done=False))
    endpoint.behaviours[0] = Behaviour(
        endpoint.behaviours[0].pieces[:1], content_type="text/event-stream", ending="hang"
    )

    error = await failure_of(client(idle_timeout_ms=50, max_retries=0), streamed=True)

    assert (error.kind, error.reason) == ("llm_failed", "idle")
    async with asyncio.timeout(5):
        await endpoint.hung_up.wait()


async def test_an_error_in_the_middle_of_a_stream_is_reported(endpoint: Endpoint, client: Make) -> None:
    chunks = chat_chunks({"content": "Fi"}, finish_reason=None)
    endpoint.then(sse([*chunks, {"error": {"message": "upstream died", "code": 502}}], done=False))

    error = await failure_of(client(), streamed=True)

    assert (error.kind, error.status) == ("llm_failed", 502)
    assert "upstream died" in str(error)


@whole_or_streamed
async def test_cancelling_hangs_up(endpoint: Endpoint, client: Make, streamed: bool) -> None:
    hanging = Behaviour((b"data: {}\n\n",) if streamed else (), content_type="text/event-stream", ending="hang")
    endpoint.then(hanging)

    async with asyncio.timeout(5):
        task = asyncio.create_task(run(client(), streamed))
        await endpoint.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await endpoint.hung_up.wait()


async def test_a_reader_who_leaves_early_hangs_up(endpoint: Endpoint, client: Make) -> None:
    pieces = sse(chat_chunks({"content": "Fi"}, {"content": "ne"})).pieces[:2]
    endpoint.then(Behaviour(pieces, content_type="text/event-stream", ending="hang"))

    async with asyncio.timeout(5):
        async with aclosing(client().stream(REQUEST)) as stream:  # type: ignore[type-var]
            first = await anext(stream)
        await endpoint.hung_up.wait()

    assert first == ModelDelta("text", "Fi")


# Answers that are none


@both_apis
@pytest.mark.parametrize(
    "body",
    [
        Behaviour((b"<html>Log in</html>",), content_type="text/html"),
        Behaviour((b'{"id": ',)),
        Behaviour((b"[]",)),
        Behaviour((b'"text"',)),
        Behaviour((b"null",)),
        Behaviour((b"{}",)),
        Behaviour((b'{"choices": "?", "output": "?"}',)),
        Behaviour((b'{"choices": [], "output": {}}',)),
        Behaviour((b'{"choices": [{}], "output": [7]}',)),
        Behaviour((b'{"choices": [{"message": []}], "output": [{"type": ""}]}',)),
        Behaviour((b'{"choices": [{"message": {"content": 7}}], "output": [{"type": "message", "content": [7]}]}',)),
        Behaviour((b'{"choices": [{"message": {"tool_calls": [7]}}], "output": [{"type": "function_call"}]}',)),
    ],
    ids=lambda body: body.pieces[0].decode()[:40] if isinstance(body, Behaviour) else None,
)
async def test_garbage_is_called_garbage(endpoint: Endpoint, client: Make, api: Api, body: Behaviour) -> None:
    endpoint.then(body)

    error = await failure_of(client(api=api))

    assert (error.kind, error.reason) == ("llm_failed", "garbage")
    assert len(endpoint.seen) == 1


@both_apis
@pytest.mark.parametrize(
    "stream",
    [
        sse(["not json"]),
        sse(["[1, 2]"]),
        sse(['"text"']),
        Behaviour((b'{"choices": []}',)),
        Behaviour((b"<html>Log in</html>",), content_type="text/html"),
        Behaviour((), content_type="text/event-stream"),
    ],
    ids=["no-json", "list", "string", "json-body", "html", "nothing"],
)
async def test_a_garbage_stream_is_called_garbage(
    endpoint: Endpoint, client: Make, api: Api, stream: Behaviour
) -> None:
    endpoint.then(stream)

    error = await failure_of(client(api=api), streamed=True)

    assert (error.kind, error.reason) == ("llm_failed", "garbage")


@both_apis
@pytest.mark.parametrize("text", ["", None])
async def test_an_empty_answer_fails_and_is_charged(
    endpoint: Endpoint, client: Make, api: Api, text: str | None
) -> None:
    endpoint.then(chat(text) if api == "chat" else response())

    error = await failure_of(client(api=api, price=(1.0, 1.0)))

    assert (error.kind, error.reason) == ("llm_failed", "empty")
    assert error.usage.total_tokens == 25
    assert error.cost == pytest.approx(25e-6)


@both_apis
async def test_a_refusal_is_raised_with_its_words(endpoint: Endpoint, client: Make, api: Api) -> None:
    part = {"type": "refusal", "refusal": "I cannot help with that."}
    message = {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [part]}
    endpoint.then(chat(None, refusal=part["refusal"]) if api == "chat" else response(message))

    error = await failure_of(client(api=api))

    assert (error.kind, error.refusal) == ("llm_refused", "I cannot help with that.")
    assert error.usage.output_tokens == 5


async def test_what_the_content_filter_withheld_is_a_refusal(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("", finish_reason="content_filter"))

    error = await failure_of(client())

    assert error.kind == "llm_refused"


async def test_missing_usage_counts_as_zero(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("Fine.", usage=None))

    answer = await client().complete(REQUEST)

    assert (answer.usage, answer.cost) == (Usage(), None)


# Keys


@pytest.mark.parametrize(
    "fault",
    [
        Behaviour((f'{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}'.encode(),), 401),
        Behaviour((f"<p>{KEY}</p>".encode(),), 502, "text/html"),
        Behaviour((f'{{"echo": "{KEY}"}}'.encode(),)),
        sse([{"error": {"message": f"bad key {KEY}"}}], done=False),
    ],
    ids=["401", "502", "garbage", "stream"],
)
async def test_no_error_shows_the_key(endpoint: Endpoint, client: Make, fault: Behaviour) -> None:
    endpoint.then(fault)
    streamed = fault.content_type == "text/event-stream"

    error = await failure_of(client(max_retries=0), streamed)

    shown = "".join(traceback.format_exception(error))
    assert endpoint.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in f"{shown}{error!r}{error.facts!r}{error.to_dict()!r}"
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize("status", [401, 429, 500])
async def test_no_error_shows_somebody_elses_key(endpoint: Endpoint, client: Make, status: int) -> None:
    endpoint.then({"error": {"message": "bad key sk-proj-abcdefghijklmnopqrstuvwx"}}, status=status)

    error = await failure_of(client(max_retries=0))

    assert "bad key [redacted]" in str(error)


def test_no_repr_shows_a_key() -> None:
    model = OpenAIModel("m", api_key=KEY, base_url=f"https://me:{KEY}@host/v1?key={KEY}", extra_headers={"X": KEY})

    assert repr(model) == "OpenAIModel('m', api='chat', base_url='https://host/v1')"
    assert KEY not in repr({name: value for name, value in vars(model).items() if name != "_base_url"})


async def test_a_missing_key_is_reported_when_a_call_is_made() -> None:
    model = OpenAIModel("gpt-5-mini")

    with pytest.raises(NoeticConfigError) as caught:
        await model.complete(REQUEST)

    assert caught.value.code == "MISSING_API_KEY"
    assert "OPENAI_API_KEY" in caught.value.hint


async def test_key_and_address_come_from_the_environment(
    endpoint: Endpoint, client: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    endpoint.then(chat("Fine."))

    await client(api_key=None, base_url=None).complete(REQUEST)

    assert endpoint.seen[0].headers["authorization"] == "Bearer from-environment"


async def test_a_server_of_ones_own_needs_no_key(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("Fine."))

    answer = await client(api_key=None).complete(REQUEST)

    assert assistant_text(answer.items) == "Fine."


# Clients and options


async def test_a_client_of_ones_own_is_used_without_its_retries(endpoint: Endpoint, client: Make) -> None:
    import openai

    endpoint.then(Behaviour(status=500))
    async with openai.AsyncOpenAI(api_key="own", base_url=endpoint.url, max_retries=5) as own:
        error = await failure_of(client(client=own, api_key=None, base_url=None, max_retries=0))

    assert (error.status, len(endpoint.seen)) == (500, 1)
    assert endpoint.seen[0].headers["authorization"] == "Bearer own"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"api": "completions"}, "INVALID_MODEL_OPTION"),
        ({"model": " "}, "INVALID_MODEL_OPTION"),
        ({"timeout_ms": 0}, "INVALID_MODEL_OPTION"),
        ({"timeout_ms": float("nan")}, "INVALID_MODEL_OPTION"),
        ({"max_retries": -1}, "INVALID_MODEL_OPTION"),
        ({"logprobs": 21}, "INVALID_MODEL_OPTION"),
        ({"client": object()}, "INVALID_MODEL_OPTION"),
        ({"client": object(), "api_key": "k"}, "INVALID_MODEL_OPTION"),
        ({"price": (1.0,)}, "INVALID_PRICE"),
        ({"price": (1.0, -1.0)}, "INVALID_PRICE"),
        ({"price": (1.0, float("nan"))}, "INVALID_PRICE"),
        ({"price": lambda usage: 1.0}, "INVALID_PRICE"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(options: dict[str, Any], code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        OpenAIModel(**options)

    assert caught.value.code == code
    assert "'k'" not in str(caught.value)


def test_one_object_serves_several_loops(endpoint_thread: str) -> None:
    model = OpenAIModel("m", base_url=endpoint_thread)

    async def once() -> str:
        async with model:
            return assistant_text((await model.complete(REQUEST)).items)

    assert [asyncio.run(once()) for _ in range(2)] == ["Fine.", "Fine."]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_connections_of_a_loop_that_has_ended_are_closed_in_silence() -> None:
    ended, told, words = threading.Semaphore(0), list[dict[str, Any]](), json.dumps(chat("Fine.")).encode()

    class Kept(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # which keeps the connection

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)

        def finish(self) -> None:
            super().finish()
            ended.release()

        def log_message(self, *args: object) -> None: ...

    async def collected() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        for _ in range(3):  # what is collected may begin a task, whose error is told once it is collected itself
            gc.collect()
            for _ in range(5):
                await asyncio.sleep(0)

    with ThreadingHTTPServer(("127.0.0.1", 0), Kept) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            model = OpenAIModel("m", base_url=f"http://127.0.0.1:{server.server_port}")
            for _ in range(3):
                asyncio.run(model.complete(REQUEST))
            asyncio.run(collected())
            assert [ended.acquire(timeout=5) for _ in range(2)] == [True, True]  # those before the last
            del model
            asyncio.run(collected())
            assert ended.acquire(timeout=5)
        finally:
            server.shutdown()
            serving.join()
    assert told == []


@pytest.fixture
def endpoint_thread() -> Any:
    """An endpoint on a loop and thread of its own."""
    from tests.models.endpoint import running

    started, address, stop = threading.Event(), [], []

    async def serve() -> None:
        async with running() as served:
            served.then(chat("Fine.")).then(chat("Fine."))
            address.append(served.url)
            done = asyncio.Event()
            stop.append((asyncio.get_running_loop(), done))
            started.set()
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(5)
    yield address[0]
    loop, done = stop[0]
    loop.call_soon_threadsafe(done.set)
    thread.join(5)
