"""The contract of a model client, tested with a few small requests."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from noetic_nb._core.names import finish_reason_of
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import Item, assistant_text, input_message
from noetic_nb.items._registry import DEFAULT_REGISTRY
from noetic_nb.memory._execution_context import as_response
from noetic_nb.models._client import ModelDelta, ModelParams, ModelRequest, ModelResponse, ToolSpec, Usage
from noetic_nb.testing._findings import ContractCheck, Finding, Notes, Stopwatch, first_line, limited, not_blocking

# Seconds; a large model may think for a minute before its first word.
LIMIT_S: Final = 120.0
# The time that a cancelled call may take to end; closing a connection takes a round trip.
CANCEL_S: Final = 5.0
# Iterations of the loop before the cancellation, so that the call is in progress.
HEAD_START: Final = 3
ERRORS: Final = ("llm_failed", "llm_refused", "llm_rate_limit", "tape_missing")
_NO_ANSWER: Final = object()
_LOOKUP: Final = ToolSpec(
    "orders/lookup",
    "Look an order up.",
    {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
)


def check_model(client: Any, *, model: str = "scripted") -> ContractCheck:
    """Test a model client against the runtime's expectations: the form of answers, streaming, errors, and cancellation.

    See docs/behaviour/models.md, "Contract tests".

    Parameters
    ----------
    client : ModelClient
        It receives about six small requests; a script loses as many lines, and a provider charges for them.
    model : str, default "scripted"
        The name of the model for the requests.

    Returns
    -------
    ContractCheck
        Findings ``(code, text)``; none means success. Await it, or read it without ``await``. An error of the client in
        a form that the runtime knows, such as ``llm_rate_limit``, is not a finding.

    Raises
    ------
    NoeticConfigError
        ``INVALID_MODEL`` for an object without a method ``complete``.

    Examples
    --------
    >>> from noetic_nb.models import CallTool, ScriptedModel
    >>> check_model(ScriptedModel(["Hello.", CallTool("lookup", order_id="A17")]))
    ScriptedModel: no findings
    """
    if not callable(getattr(client, "complete", None)):
        hint = "It needs `async complete(request)`."
        raise NoeticConfigError("INVALID_MODEL", "This is no model client.", given=client, hint=hint)

    async def run() -> tuple[Finding, ...]:
        notes = Notes()
        await _Trial(client, model, notes).run()
        return notes.found

    return ContractCheck(run, type(client).__name__)


class _Trial:
    """One client under test."""

    def __init__(self, client: Any, model: str, notes: Notes) -> None:
        self.client = client
        self.notes = notes
        self.watch = Stopwatch()
        question = input_message("Where is order A17? Answer in one short sentence.")
        self.plain = ModelRequest(model, (question,))
        self.full = ModelRequest(
            model, (question,), "Be brief.", (_LOOKUP,), ModelParams(temperature=0.0, max_tokens=64), thread_id="check"
        )

    async def run(self) -> None:
        for request in (self.plain, self.full):
            response = await self._complete(request)
            if response is not _NO_ANSWER:
                self._judge(response, request, "complete()")
        if self.notes.found and self.notes.found[0].code == "not_async":
            return  # the rest would only repeat it
        if hasattr(self.client, "stream"):
            await self._stream()
        await self._cancelled()
        # The calls so far are the first measurement, because each call of a provider costs money.
        measured = [self.watch]
        await not_blocking(self.notes, lambda: self._measure(measured), lambda name: f"{name}()")

    async def _measure(self, measured: list[Stopwatch]) -> Stopwatch:
        if measured:
            return measured.pop()
        self.watch = Stopwatch()
        await self._complete(self.plain)
        if hasattr(self.client, "stream"):
            await self._stream()
        return self.watch

    async def _complete(self, request: ModelRequest) -> Any:
        async def call() -> Any:
            result = self.client.complete(request)
            if inspect.isawaitable(result):
                return await result
            self.notes.add("not_async", "complete() is not async: the runtime awaits it.")
            return _NO_ANSWER

        return await self._answer("complete()", self.watch.call("complete", call))

    async def _answer(self, what: str, call: Awaitable[Any]) -> Any:
        """Await an answer; `_NO_ANSWER` if there is none, noted unless the client failed in an allowed way."""
        try:
            return await limited(call, LIMIT_S)
        except NoeticError as exc:
            if exc.kind not in ERRORS:
                self.notes.add("wrong_error", f"{what} raises {exc.kind!r}; the runtime knows {', '.join(ERRORS)}.")
        except NoeticConfigError:
            pass  # a configuration error, which the client reports
        except TimeoutError:
            self.notes.add("hangs", f"{what} did not answer within {LIMIT_S:g} s.")
        except Exception as exc:
            self.notes.add(
                "wrong_error",
                f"{what} raises {first_line(exc)}: raise NoeticError('llm_failed', ...), 'llm_refused' or 'llm_rate_limit'.",
            )
        return _NO_ANSWER

    def _judge(self, response: Any, request: ModelRequest, what: str) -> None:
        """Note the parts of a response that the runtime cannot read."""
        if type(response) is not ModelResponse:
            try:
                response = as_response(response)
            except Exception as exc:
                self.notes.add("wrong_response", f"{what} gives no ModelResponse: {first_line(exc)}")
                return
        for item in response.items:
            self._judge_item(item, what)
        usage = response.usage
        counts = [count for at, count in enumerate(usage) if at < 2 or count is not None]
        if not isinstance(usage, Usage) or not all(type(count) is int and count >= 0 for count in counts):
            self.notes.add("wrong_usage", f"{what}: usage is Usage(...) of whole numbers, not {usage!r:.80}.")
        elif (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0) > usage.input_tokens:
            self.notes.add("wrong_usage", f"{what}: cached tokens are a part of the input tokens: {usage!r:.80}.")
        elif (usage.reasoning_tokens or 0) > usage.output_tokens:
            self.notes.add("wrong_usage", f"{what}: reasoning is a part of the output tokens: {usage!r:.80}.")
        cost = response.cost
        if cost is not None and (isinstance(cost, bool) or not isinstance(cost, int | float) or not cost >= 0):
            self.notes.add("wrong_usage", f"{what}: cost is US dollars or None, not {cost!r:.80}.")
        reason = response.finish_reason
        if reason is not None and finish_reason_of(reason) is None:
            self.notes.add("wrong_finish_reason", f"{what}: unknown finish reason {reason!r:.80}.")
        calls = [item.get("callId") for item in response.items if item.get("type") == "function_call"]
        if len(set(calls)) < len(calls):
            self.notes.add("wrong_items", f"{what}: two calls of one answer share an id: {calls!r:.120}.")

    def _judge_item(self, item: Any, what: str) -> None:
        try:
            DEFAULT_REGISTRY.parse(item)
        except Exception as exc:
            self.notes.add("wrong_items", f"{what}: {first_line(exc)}")
            return
        if not isinstance(item, Item | Mapping):
            return
        kind = item.get("type")
        if kind == "message" and item.get("role") != "assistant":
            self.notes.add("wrong_items", f"{what}: a model writes as 'assistant', not as {item.get('role')!r:.40}.")
        if kind == "function_call_output":
            self.notes.add("wrong_items", f"{what}: a model calls tools; their outputs are the runtime's.")
        if kind == "function_call":
            try:
                fits = isinstance(json.loads(item.get("arguments") or ""), dict)
            except (TypeError, ValueError):
                fits = False
            # Models may write broken JSON, which the runtime handles; an object instead of text is the client's fault.
            if not isinstance(item.get("arguments"), str):
                self.notes.add("wrong_items", f"{what}: the arguments of a call are JSON text, not an object.")
            elif fits and not (item.get("callId") and item.get("name")):
                self.notes.add("wrong_items", f"{what}: a call has a name and a callId.")

    async def _stream(self) -> None:
        parts: list[Any] = []

        async def read() -> bool:
            stream = self.client.stream(self.plain)
            if not hasattr(stream, "__aiter__"):
                if inspect.iscoroutine(stream):
                    stream.close()
                self.notes.add("wrong_stream", "stream() is an async generator: it yields parts, and is not awaited.")
                return False
            async for part in stream:
                parts.append(part)
            return True

        if await self._answer("stream()", self.watch.call("stream", read)) is not True:
            return
        responses = [part for part in parts if not isinstance(part, ModelDelta)]
        if len(responses) != 1 or not parts or parts[-1] is not responses[0]:
            self.notes.add("wrong_stream", "stream() yields deltas, then exactly one response as its last part.")
            return
        self._judge(responses[0], self.plain, "stream()")
        for kind in {part.kind for part in parts[:-1]} - {"text", "reasoning", "tool_call"}:
            self.notes.add("wrong_stream", f"stream(): a delta is text, reasoning or tool_call, not {kind!r:.40}.")
        shown = "".join(part.text for part in parts[:-1] if part.kind == "text")
        try:
            text = assistant_text(as_response(responses[0]).items)
        except Exception:
            return
        if shown and text and shown.strip() != text.strip():
            self.notes.add("wrong_stream", f"stream(): the deltas say {shown!r:.60}, the response {text!r:.60}.")

    async def _cancelled(self) -> None:
        """Cancel a waiting call, and check that it ends."""
        result = self.client.complete(self.plain)
        if not inspect.isawaitable(result):
            return
        task = asyncio.ensure_future(result)
        for _ in range(HEAD_START):
            await asyncio.sleep(0)
        if task.done():
            task.exception() if not task.cancelled() else None  # retrieved, so that asyncio does not log it
            return
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=CANCEL_S)
        if not done:
            self.notes.add("ignores_cancel", f"complete() goes on {CANCEL_S:g} s after it was cancelled.")
        elif not task.cancelled() and task.exception() is None:
            self.notes.add("ignores_cancel", "complete() answers although it was cancelled: let CancelledError pass.")
