"""Convert an answer from any provider to items: text, reasoning, tool calls, a refusal.

The order is fixed: reasoning, then the message, then the calls. Empty parts produce no item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from noetic_nb._core.names import finish_reason_of
from noetic_nb.ids import Ids
from noetic_nb.items import Item, assistant_message, function_call
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.models._client import CUT_OFF, NO_USAGE, ModelDelta, ModelResponse, TokenLogprob, Usage
from noetic_nb.models._model_errors import failed, refused

# Pieces of a known answer in a simulated stream: a word and the following space, about as much as providers send.
PIECE: Final = re.compile(r"\S+\s*|\s+")


def text_item(text: str, item_id: str, status: Literal["completed", "incomplete"] = "completed") -> Item:
    if status == "completed":
        return assistant_message(text, item_id=item_id)
    return Item(
        id=item_id,
        status=status,
        type="message",
        role="assistant",
        content=(FrozenDict(type="output_text", text=text, annotations=()),),
    )


def answer_items(
    *,
    text: str = "",
    calls: Iterable[tuple[str, str, str]] = (),
    reasoning: str = "",
    refusal: str = "",
    finish_reason: str | None = None,
    ids: Ids,
) -> tuple[Item, ...]:
    """Make the items of one answer; `calls` are (call id, name, arguments), arguments as the model wrote them."""
    items: list[Item] = []
    if reasoning:
        part = FrozenDict(type="reasoning_text", text=reasoning)
        items.append(Item(id=ids.new("item"), type="reasoning", summary=(), content=(part,)))
    status: Literal["completed", "incomplete"] = "incomplete" if finish_reason in CUT_OFF else "completed"
    if refusal:
        parts: tuple[FrozenDict, ...] = (FrozenDict(type="refusal", refusal=refusal),)
        if text:
            parts = (FrozenDict(type="output_text", text=text, annotations=()), *parts)
        message: dict[str, Any] = {"status": status, "type": "message", "role": "assistant", "content": parts}
        items.append(Item(id=ids.new("item"), **message))
    elif text:
        items.append(text_item(text, ids.new("item"), status))
    for call_id, name, arguments in calls:
        call = function_call(name, arguments, call_id, ids=ids)
        items.append(call if status == "completed" else Item({**call, "status": status}))
    return tuple(items)


def deltas_of(items: Sequence[Item]) -> Iterator[ModelDelta]:
    """Split a known answer into the deltas of a stream."""
    for index, item in enumerate(items):
        if item["type"] == "function_call":
            facts = {"call_id": item["callId"], "name": item["name"]}
            for piece in PIECE.findall(item["arguments"]) or [""]:
                yield ModelDelta("tool_call", piece, index, facts)
            continue
        for part in (*(item.get("summary") or ()), *(item.get("content") or ())):
            for piece in PIECE.findall(part.get("text") or ""):
                yield ModelDelta("reasoning" if item["type"] == "reasoning" else "text", piece, index)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a provider, before it is known whether it is usable."""

    items: tuple[Item, ...]
    usage: Usage = NO_USAGE
    cost: float | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    model: str | None = None
    finish_reason: str | None = None
    refusal: str = ""


def settle(answer: Answer, cost: float | None) -> ModelResponse:
    """Return an answer as a response; a refusal or reasoning alone is an error, with usage and cost."""
    # Reasoning alone answers nothing, and a loop that accepted it would end with an empty reply.
    reason = finish_reason_of(answer.finish_reason)
    has_content = any(item["type"] != "reasoning" and not _only_refuses(item) for item in answer.items)
    if not has_content:
        if answer.refusal:
            raise refused(answer.refusal, usage=answer.usage, cost=cost)
        # Silence caused by a filter is a refusal: the same request would be filtered again.
        if reason == "content_filter":
            raise refused("The provider's content filter withheld the answer.", usage=answer.usage, cost=cost)
        if reason == "length":
            raise failed(
                "The answer is empty: the limit of generated tokens was reached",
                reason="truncated",
                hint="Raise `max_tokens`; models that reason spend tokens before the first word.",
                usage=answer.usage,
                cost=cost,
            )
        raise failed(
            "The provider answered with neither a text nor a call of a tool",
            reason="empty",
            hint="Ask again; if it persists, look at the model's chat template and its limits.",
            usage=answer.usage,
            cost=cost,
        )
    return ModelResponse(
        items=answer.items,
        usage=answer.usage,
        cost=cost,
        logprobs=answer.logprobs,
        model=answer.model,
        finish_reason=reason,
    )


def _only_refuses(item: Item) -> bool:
    content = item.get("content") or ()
    return bool(content) and all(part.get("type") == "refusal" for part in content)


def usage_of_provider(usage: object, sent: str, written: str) -> Usage:
    """Return the usage of a response in OpenAI's form, whose details are under ``<name>_details``."""
    read, reasoned = _field(usage, f"{sent}_details"), _field(usage, f"{written}_details")
    return Usage(
        _count(usage, sent) or 0,
        _count(usage, written) or 0,
        _count(read, "cached_tokens"),
        _count(read, "cache_write_tokens"),
        _count(reasoned, "reasoning_tokens"),
    )


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None


def _count(usage: object, name: str) -> int | None:
    count = _field(usage, name)
    # Some servers count in floats.
    if isinstance(count, int | float) and not isinstance(count, bool) and count >= 0:
        return int(count)
    return None


def token_logprobs(entries: object) -> tuple[TokenLogprob, ...]:
    """Read a provider's list of ``{"token", "logprob", "top_logprobs"}``, skipping entries of another shape."""
    found = []
    for entry in entries if isinstance(entries, list | tuple) else ():
        if not (isinstance(entry, Mapping) and isinstance(entry.get("logprob"), int | float)):
            continue
        others = tuple(
            (str(other["token"]), float(other["logprob"]))
            for other in entry.get("top_logprobs") or ()
            if isinstance(other, Mapping) and isinstance(other.get("logprob"), int | float) and "token" in other
        )
        found.append(TokenLogprob(str(entry.get("token", "")), float(entry["logprob"]), others))
    return tuple(found)
