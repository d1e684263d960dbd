"""The responses API: its request, and its answer, whole or as events, converted to items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from noetic_nb._core.names import FinishReason, finish_reason_of
from noetic_nb.errors import ItemValidationError
from noetic_nb.ids import Ids
from noetic_nb.items import Item, thaw
from noetic_nb.items._build import with_own_call_ids
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._messages import openai_responses
from noetic_nb.items._messages.message import unsendable
from noetic_nb.items._registry import ANY_ITEMS
from noetic_nb.models._client import CUT_OFF, ModelDelta, ModelRequest, TokenLogprob, Usage
from noetic_nb.models._model_errors import cut_off, failed, rate_limited
from noetic_nb.models._openai_wire import WireNames, WireOptions, enforceable, garbage, schema_name, system_text
from noetic_nb.models._response_items import Answer, text_item, token_logprobs, usage_of_provider

_API: Final = "responses"
# States of an unfinished response, whose contents are not an answer yet.
_UNFINISHED: Final = frozenset({"cancelled", "queued", "in_progress"})


def responses_body(request: ModelRequest, names: WireNames, options: WireOptions) -> dict[str, Any]:
    system, items = system_text(request)
    sent = openai_responses.encode(with_own_call_ids(items), to_wire=names.to_wire)
    body: dict[str, Any] = {"model": options.model, "input": sent}
    if system:
        body["instructions"] = system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": names.to_wire(tool.name),
                "description": tool.description,
                "parameters": thaw(tool.parameters),
                "strict": tool.strict,
            }
            for tool in request.tools
        ]
    if request.output_schema is not None:
        body["text"] = {
            "format": {
                "type": "json_schema",
                "name": schema_name(request.output_schema),
                "schema": thaw(request.output_schema),
                "strict": enforceable(request.output_schema),
            }
        }
    if request.params is not None:
        if request.params.stop_sequences:
            raise unsendable("stop sequences", request.params.stop_sequences, _API, "Omit them, or use api='chat'.")
        wanted = {
            "temperature": request.params.temperature,
            "top_p": request.params.top_p,
            "max_output_tokens": request.params.max_tokens,
        }
        body |= {name: value for name, value in wanted.items() if value is not None}
    if options.logprobs is not None:
        # This API has no switch for log-probabilities: they are one of the extras to include.
        body["include"] = ["message.output_text.logprobs"]
        body["top_logprobs"] = options.logprobs
    return body


def read_response(body: Any, names: WireNames, ids: Ids, logprobs: tuple[TokenLogprob, ...] = ()) -> Answer:
    """Read a whole answer; `logprobs` are those a stream reported, used if the response itself has none."""
    if not isinstance(body, Mapping):
        raise garbage("it is no JSON object", body)
    usage = usage_of_provider(body.get("usage"), "input_tokens", "output_tokens")
    if body.get("status") == "failed" or (body.get("error") and not body.get("output")):
        raise _failure(body.get("error"), usage)
    if body.get("status") in _UNFINISHED:
        raise failed(
            f"The provider's response is {body['status']!r}: it is incomplete",
            reason="status",
            hint="Ask again; responses in the background are not waited for.",
            usage=usage,
        )
    output = body.get("output")
    if not isinstance(output, list):
        raise garbage("it has no `output`", body)
    items: list[Item] = []
    refusals: list[str] = []
    found: list[TokenLogprob] = []
    for raw in output:
        try:
            items.append(_read_item(raw, names, ids, refusals, found))
        except (ItemValidationError, AttributeError, TypeError, KeyError) as exc:
            raise garbage(f"an item of its output cannot be read ({exc})", raw) from None
    # Some servers that imitate the API fill in only this shorthand.
    text = body.get("output_text")
    if isinstance(text, str) and text and not any(item["type"] == "message" for item in items):
        items.insert(0, text_item(text, ids.new("item")))
    reason = _finish_reason(body, items)
    if reason in CUT_OFF:
        items = [Item({**item, "status": "incomplete"}) if item["type"] == "function_call" else item for item in items]
    charged = body.get("usage")
    cost = charged.get("cost") if isinstance(charged, Mapping) else None
    return Answer(
        items=tuple(items),
        usage=usage,
        cost=float(cost) if isinstance(cost, int | float) and cost >= 0 else None,
        logprobs=tuple(found) or logprobs,
        model=body.get("model") if isinstance(body.get("model"), str) else None,
        finish_reason=reason,
        refusal="".join(refusals),
    )


def _read_item(raw: Any, names: WireNames, ids: Ids, refusals: list[str], found: list[TokenLogprob]) -> Item:
    if not isinstance(raw, Mapping):
        raise TypeError("it is not an object")
    kind = raw.get("type")
    fields = dict(raw)
    if not isinstance(fields.get("id"), str) or not fields["id"]:
        fields = {"id": ids.new("item"), **{key: value for key, value in fields.items() if key != "id"}}
    if kind == "function_call":
        fields["name"] = names.from_wire(fields["name"])
        fields["arguments"] = fields.get("arguments") or "{}"
        if not fields.get("call_id"):
            fields["call_id"] = ids.new("call")
    elif kind == "message":
        parts = []
        for part in fields.get("content") or ():
            found += token_logprobs(part.get("logprobs"))
            if part.get("type") == "refusal":
                refusals.append(str(part.get("refusal") or ""))
            # Log-probabilities are stored outside the items: inside, they would fill the context of the next request.
            parts.append(FrozenDict({key: thaw(value) for key, value in part.items() if key != "logprobs"}))
        fields["content"] = parts
    return ANY_ITEMS.parse(fields)


def _finish_reason(body: Mapping[str, Any], items: list[Item]) -> FinishReason:
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    # An incomplete item was truncated, whatever the status of the response.
    is_whole = body.get("status") in (None, "completed")
    if reason or not is_whole or any(item.get("status") == "incomplete" for item in items):
        return "content_filter" if finish_reason_of(reason) == "content_filter" else "length"
    return "tool_calls" if any(item["type"] == "function_call" for item in items) else "stop"


def _failure(error: Any, usage: Usage) -> Exception:
    details = error if isinstance(error, Mapping) else {}
    code, message = details.get("code"), str(details.get("message") or "it gave no reason")
    if code == "rate_limit_exceeded":
        return rate_limited(None, message=message, usage=usage)
    hint = "Ask again."
    return failed(f"The provider failed while answering: {message}", reason="status", hint=hint, usage=usage, code=code)


_DELTAS: Final[dict[str, Literal["text", "reasoning", "tool_call"]]] = {
    "response.output_text.delta": "text",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool_call",
}
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponsesStream:
    """Assembles a streamed answer: `feed` every event, then `finish`."""

    def __init__(self, names: WireNames, ids: Ids) -> None:
        self._names, self._ids = names, ids
        self._calls: dict[Any, dict[str, Any]] = {}
        self._logprobs: list[TokenLogprob] = []
        self._response: Any = None
        self._silent = True

    def feed(self, event: Any) -> list[ModelDelta]:
        """Return the additions of an event; raises `NoeticError` ``llm_failed`` for an invalid event or a failure."""
        if not isinstance(event, Mapping) or not isinstance(event.get("type"), str):
            raise garbage("a piece of the stream is not an event", event)
        self._silent = False
        kind, place = event["type"], event.get("output_index", 0)
        if kind in _ENDS:
            # The last event repeats the whole answer, so earlier pieces are only shown, not assembled.
            self._response = event.get("response")
            if kind == "response.incomplete" and isinstance(self._response, Mapping):
                self._response = {**self._response, "status": "incomplete"}
        elif kind == "error":
            raise _failure(event.get("error") or event, Usage())
        elif kind == "response.output_item.added":
            item = event.get("item")
            if isinstance(item, Mapping) and item.get("type") == "function_call":
                name = self._names.from_wire(str(item.get("name") or ""))
                self._calls[place] = {"call_id": item.get("call_id"), "name": name}
        elif kind in _DELTAS and isinstance(event.get("delta"), str):
            self._logprobs += token_logprobs(event.get("logprobs"))
            index = place if isinstance(place, int) else 0
            return [ModelDelta(_DELTAS[kind], event["delta"], index, self._calls.get(place, {}))]
        return []

    def finish(self) -> Answer:
        """Return the whole answer; a stream that ended early is an error with reason ``"disconnect"``."""
        if self._silent:
            raise garbage("the stream held no event", "")
        if self._response is None:
            raise cut_off()
        return read_response(self._response, self._names, self._ids, tuple(self._logprobs))
