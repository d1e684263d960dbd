"""Client for OpenAI-compatible endpoints, through the ``openai`` package: OpenAI itself, OpenRouter, vLLM, Ollama and others.

The package is imported and the key looked up with the first call; creating an `OpenAIModel` needs neither. The package's own
retries are switched off, because they would hide spent time and attempts from the accounting.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, Literal, Self
from weakref import WeakKeyDictionary

from noetic_nb._core.arguments import explained
from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items import thaw
from noetic_nb.items._build import with_own_call_ids
from noetic_nb.items._messages import openai_chat
from noetic_nb.models import _openai_wire as wire
from noetic_nb.models._client import ModelRequest, ModelResponse, StreamPart
from noetic_nb.models._model_errors import SLOW, Failure, backoff_ms, classify, failed
from noetic_nb.models._openai_chat_response import ChatStream, read_chat
from noetic_nb.models._openai_responses import ResponsesStream, read_response, responses_body
from noetic_nb.models._pricing import Price, check_price, cost_of
from noetic_nb.models._response_items import Answer, settle
from noetic_nb.redact import redact, safe_logger


def chat_body(request: ModelRequest, names: wire.WireNames, options: wire.WireOptions) -> dict[str, Any]:
    """Return the keyword arguments of ``chat.completions.create``; raises `NoeticConfigError` ``UNSUPPORTED_BY_API``."""
    system, items = wire.system_text(request)
    messages = [{"role": "system", "content": system}] if system else []
    messages += openai_chat.encode(with_own_call_ids(items), to_wire=names.to_wire)
    body: dict[str, Any] = {"model": options.model, "messages": messages}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": names.to_wire(tool.name),
                    "description": tool.description,
                    "parameters": thaw(tool.parameters),
                    # Omitted if not set, because not every server knows the keyword.
                    **({"strict": True} if tool.strict else {}),
                },
            }
            for tool in request.tools
        ]
    if request.output_schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": wire.schema_name(request.output_schema),
                "schema": thaw(request.output_schema),
                "strict": wire.enforceable(request.output_schema),
            },
        }
    if request.params is not None:
        # Servers that imitate the API only know the older name; OpenAI's newer models reject it.
        limit = "max_completion_tokens" if options.official else "max_tokens"
        wanted = {
            "temperature": request.params.temperature,
            "top_p": request.params.top_p,
            limit: request.params.max_tokens,
            "stop": list(request.params.stop_sequences or ()) or None,
        }
        body |= {name: value for name, value in wanted.items() if value is not None}
    if options.logprobs is not None:
        body["logprobs"] = True
        if options.logprobs:
            body["top_logprobs"] = options.logprobs
    return body


log = safe_logger(__name__)

# Ten minutes, the openai package's default: reasoning models may be silent for several.
TIMEOUT_MS: Final = 600_000
# Two minutes; docs/behaviour/models.md, "Silence within a stream".
IDLE_TIMEOUT_MS: Final = 120_000
MAX_RETRIES: Final = 2
# A server that does not even accept the end of a stream must not delay a cancellation.
_CLOSE_SECONDS: Final = 5.0
# Local servers need no key, but the package refuses to send none.
_NO_KEY: Final = "not-needed"


class OpenAIModel:
    """Answer through an OpenAI-compatible endpoint.

    See docs/behaviour/models.md, "OpenAI client".

    Parameters
    ----------
    model : str, optional
        Name of the model, overriding the step's; by default the step's own name is sent.
    api : {"chat", "responses"}
        Chat completions, which every server supports, or the responses API.
    api_key : str, optional
        By default ``OPENAI_API_KEY``; not needed with your own `base_url`.
    base_url : str, optional
        By default ``OPENAI_BASE_URL``, otherwise OpenAI's.
    timeout_ms : float, default 600 000
        Limit for a whole answer, or for the first event of a streamed one; per attempt.
    max_retries : int, default 2
        Retries after a temporary failure: no connection, no answer in time, status 408, 409, 429, 5xx. A stream is not
        retried once part of it was received.
    idle_timeout_ms : float, default 120 000
        Longest silence within a stream; 0 or less means no limit.
    logprobs : bool or int, default False
        Request the log-probability of each token; a number also requests that many alternatives.
    price : tuple or callable, optional
        US dollars per million (input, output) tokens, or a function (model, usage). By default the provider's own
        figure, else the list of ``genai-prices`` if it is installed, else the cost is None.
    extra_headers, extra_body : mapping, optional
        Sent with every request.
    http_client : object, optional
        The HTTP client for the package, for proxies and certificates.
    client : openai.AsyncOpenAI, optional
        Your own client; it then defines `api_key`, `base_url`, `http_client` and `extra_headers`.
    sleep : callable, optional
        Waits for a number of seconds between attempts.
    seed : int, optional
        Seed of the jitter in those waits.
    clock, ids : optional
        Sources of time, for providers that send a date to wait for, and of ids.

    Raises
    ------
    NoeticConfigError
        ``INVALID_MODEL_OPTION`` or ``INVALID_PRICE``. A missing key is reported on the first call.

    Examples
    --------
    >>> OpenAIModel("qwen3:4b", base_url="http://localhost:11434/v1")
    OpenAIModel('qwen3:4b', api='chat', base_url='http://localhost:11434/v1')
    """

    watches_silence: Final = True
    """The harness leaves silence within a stream to `idle_timeout_ms`."""

    @explained(
        positional="Only the model's name has no name of its own: OpenAIModel('gpt-4o', api_key='...').",
        temperature="Sampling belongs to the step: react(model='gpt-4o', params=ModelParams(temperature=0)).",
    )
    def __init__(
        self,
        model: str | None = None,
        *,
        api: Literal["chat", "responses"] = "chat",
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_ms: float = TIMEOUT_MS,
        max_retries: int = MAX_RETRIES,
        idle_timeout_ms: float = IDLE_TIMEOUT_MS,
        logprobs: bool | int = False,
        price: Price | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        http_client: Any = None,
        client: Any = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        seed: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
        ids: Ids = SYSTEM_IDS,
    ) -> None:
        def wrong(what: str, given: object, hint: str) -> NoeticConfigError:
            return NoeticConfigError("INVALID_MODEL_OPTION", what, given=given, hint=hint)

        if api not in ("chat", "responses"):
            raise wrong("There is no such API", api, "Use 'chat' or 'responses'.")
        if model is not None and (not isinstance(model, str) or not model.strip()):
            hint = "Pass a name, or leave it out to use each step's own."
            raise wrong("The name of a model is a text that is not empty", model, hint)
        if not timeout_ms > 0:
            raise wrong("`timeout_ms` must be positive", timeout_ms, "Milliseconds, such as 60_000.")
        # The exact type: True would count as 1, and its author means something else.
        if type(max_retries) is not int or max_retries < 0:
            raise wrong("`max_retries` counts attempts", max_retries, "Use 0 or more.")
        if not (isinstance(logprobs, bool) or (isinstance(logprobs, int) and 0 <= logprobs <= 20)):
            raise wrong("`logprobs` must be True, False or a number of alternatives", logprobs, "Use True, or 0 to 20.")
        if client is not None and (api_key, base_url, http_client, extra_headers) != (None, None, None, None):
            raise wrong(
                "A client of your own has its own key, address and headers",
                type(client).__name__,
                "Leave out api_key, base_url, http_client and extra_headers, or the client.",
            )
        # The package's other client, openai.OpenAI, has the same methods, but would block the loop for a whole answer.
        if client is not None and not inspect.iscoroutinefunction(getattr(client, "close", None)):
            raise wrong("The client is not asynchronous", type(client).__name__, "Pass an openai.AsyncOpenAI.")
        check_price(price)
        self.model = model
        self.api = api
        self._timeout_s = timeout_ms / 1_000
        self._idle_s = idle_timeout_ms / 1_000 if idle_timeout_ms > 0 else None
        self._max_retries = max_retries
        self._logprobs = None if logprobs is False else 0 if logprobs is True else logprobs
        self._price = price
        self._key = wire.Secret(api_key)
        self._base_url = base_url
        self._headers = wire.Headers(extra_headers or {})
        self._extra_body = dict(extra_body) if extra_body else None
        self._http_client = http_client
        self._own_client = client
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
        self._sleep = sleep
        self._rng = random.Random(seed)
        self._clock = clock
        self._ids = ids

    def __repr__(self) -> str:
        where = f", base_url={wire.shown_address(self._base_url)!r}" if self._base_url else ""
        return f"OpenAIModel({redact(self.model)!r}, api={self.api!r}{where})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that this object opened on the running loop, but not a client or HTTP client that was passed in.

        The object may be used again afterwards.
        """
        client = self._clients.pop(asyncio.get_running_loop(), None)
        # Closing the package's client also closes the HTTP client, which is not ours if it was passed in.
        if client is not None and self._http_client is None:
            await client.close()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Request a whole answer.

        Raises
        ------
        NoeticError
            ``llm_rate_limit`` (`retry_after_ms`), ``llm_refused`` (`refusal`), ``llm_failed`` (`reason`, `status`);
            each with the `usage` and `cost` spent until then.
        NoeticConfigError
            ``MISSING_API_KEY``, or ``UNSUPPORTED_BY_API`` for a request that the API does not support.
        """
        try:
            return await self._complete(request)
        except NoeticError as error:
            wire.mask(error, self._secret())
            raise

    async def _complete(self, request: ModelRequest) -> ModelResponse:
        names = wire.names_of(request)
        client, body = self._client(), self._body(request, names)
        create = client.chat.completions.create if self.api == "chat" else client.responses.create
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(self._timeout_s) as deadline:
                    result = await create(**body)
                failure = None
            except TimeoutError as exc:
                failure = self._too_slow() if deadline.expired() else self._classified(exc)
            except Exception as exc:
                failure = self._classified(exc)
            # Outside the except clause: the error must not carry the SDK's exception, with its headers, as context.
            if failure is None:
                read = read_chat if self.api == "chat" else read_response
                return self._settled(read(wire.plain(result), names, self._ids), request)
            await self._wait_or_raise(failure, attempt)
            attempt += 1

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Request an answer piece by piece; close the iterator (or cancel) to close the connection.

        Raises
        ------
        NoeticError
            As `complete`, and ``llm_failed`` with reason ``"idle"`` if the stream is silent for too long.
        """
        try:
            async with aclosing(self._stream(request)) as parts:
                async for part in parts:
                    yield part
        except NoeticError as error:
            wire.mask(error, self._secret())
            raise

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        names = wire.names_of(request)
        client, body = self._client(), self._body(request, names)
        body["stream"] = True
        create = client.responses.create
        if self.api == "chat":
            create = client.chat.completions.create
            # Without it, the chat API does not report the usage of a stream.
            body["stream_options"] = {"include_usage": True}
        attempt = 0
        while True:
            answer: ChatStream | ResponsesStream
            answer = ChatStream(names, self._ids) if self.api == "chat" else ResponsesStream(names, self._ids)
            seen = False
            failure: Failure | None = None
            async with self._opened(create, body) as opened:
                if isinstance(opened, Failure):
                    failure = opened
                else:
                    while True:
                        event = await self._next_event(opened)
                        if event is None or isinstance(event, Failure):
                            failure = event
                            break
                        for delta in answer.feed(wire.plain(event)):
                            seen = True
                            yield delta
            if failure is None:
                yield self._settled(answer.finish(), request)
                return
            if seen:  # a second attempt would repeat text that the reader has already seen
                raise failure.error
            await self._wait_or_raise(failure, attempt)
            attempt += 1

    @asynccontextmanager
    async def _opened(self, create: Callable[..., Awaitable[Any]], body: dict[str, Any]) -> AsyncIterator[Any]:
        """Open a stream or raise the failure; always close it, also on cancellation."""
        stream: Any = None
        failure: Failure | None = None
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                stream = await create(**body)
        except TimeoutError as exc:
            failure = self._too_slow() if deadline.expired() else self._classified(exc)
        except Exception as exc:
            failure = self._classified(exc)
        try:
            yield stream if failure is None else failure
        finally:
            # Until it is closed, the server keeps writing, and charging.
            if stream is not None and hasattr(stream, "close"):
                try:
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await stream.close()
                except Exception as exc:  # must not replace the exception being raised, above all a cancellation
                    log.warning("A stream could not be closed: %s", type(exc).__name__)

    async def _next_event(self, stream: Any) -> Any:
        """Return the next event, None at the end, or a `Failure`."""
        try:
            async with asyncio.timeout(self._idle_s) as deadline:
                return await anext(stream)
        except StopAsyncIteration:
            return None
        except TimeoutError as exc:
            if not deadline.expired():
                return self._classified(exc, answering=True)
            error = failed(
                f"The stream was silent for {self._idle_s:g} s",
                reason="idle",
                hint="Raise `idle_timeout_ms`, or set it to 0 for no limit.",
            )
            return Failure(error, retryable=True)
        except Exception as exc:
            return self._classified(exc, answering=True)

    def _client(self) -> Any:
        if self._own_client is not None:
            # A copy that shares its connections; the caller's own object keeps its retries.
            return self._own_client.with_options(max_retries=0)
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # Connections belong to the loop that opened them, and a notebook may have several. They also keep it alive:
            # each `run_sync` of a script has its own loop, and would leave an open one behind.
            for ended in [each for each in self._clients if each.is_closed()]:
                self._clients.pop(ended, None)
            client = self._clients[loop] = self._made_client()
        return client

    def _made_client(self) -> Any:
        # Imported here: the package is slow to load, and users of other models never need it.
        import openai

        base_url = self._address()
        key = self._secret()
        if key is None and base_url is None:
            hint = "Set OPENAI_API_KEY or pass api_key=...; for a server of your own pass base_url=... (no key needed)."
            raise NoeticConfigError("MISSING_API_KEY", "OpenAIModel has no API key", hint=hint)
        return openai.AsyncOpenAI(
            api_key=key or _NO_KEY,
            base_url=base_url,
            max_retries=0,
            timeout=None,  # `asyncio.timeout` is used instead, so that a slow trickle of bytes cannot extend it
            default_headers=dict(self._headers) or None,
            # The package's default closes itself on collection, in whichever loop runs then, which fails with a traceback.
            http_client=self._http_client or openai.DefaultAsyncHttpxClient(),
        )

    def _secret(self) -> str | None:
        if self._own_client is not None:
            key = self._own_client.api_key
            return key if isinstance(key, str) else None
        return self._key.reveal() or os.environ.get("OPENAI_API_KEY") or None

    def _address(self) -> str | None:
        if self._own_client is not None:
            return str(self._own_client.base_url)
        return self._base_url or os.environ.get("OPENAI_BASE_URL") or None

    def _body(self, request: ModelRequest, names: Any) -> dict[str, Any]:
        official = wire.is_official(self._address())
        name = self.model or request.model
        # OpenAI itself does not know its models by the prefixed names of routers.
        name = name.removeprefix("openai/") if official else name
        options = wire.WireOptions(model=name, official=official, logprobs=self._logprobs)
        body = (chat_body if self.api == "chat" else responses_body)(request, names, options)
        # In the package's own argument, because it rejects unknown fields.
        if self._extra_body:
            body["extra_body"] = self._extra_body
        return body

    def _settled(self, answer: Answer, request: ModelRequest) -> ModelResponse:
        cost = cost_of(
            answer.usage,
            model=answer.model or self.model or request.model,
            price=self._price,
            reported=answer.cost,
            base_url=self._address(),
        )
        return settle(answer, cost)

    def _classified(self, exc: Exception, *, answering: bool = False) -> Failure:
        return classify(exc, clock=self._clock, answering=answering)

    def _too_slow(self) -> Failure:
        error = failed(f"The provider did not answer within {self._timeout_s:g} s", reason="timeout", hint=SLOW)
        return Failure(error, retryable=True)

    async def _wait_or_raise(self, failure: Failure, attempt: int) -> None:
        wait_ms = backoff_ms(attempt, failure.wait_ms, self._rng)
        if not failure.retryable or attempt >= self._max_retries or wait_ms is None:
            failure.error.facts["attempts"] = attempt + 1
            raise failure.error
        await self._sleep(wait_ms / 1_000)
