"""The request of one model call as rows: what was sent in its order, and in between what was not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.events import OfferedTool, UnsentOffer, ViewAssembled
from noetic_nb.items import Item, item_text, item_tokens, thaw
from noetic_nb.items.json_text import compact_json
from noetic_nb.runs.recorded_requests import RecordedRequest, SentItem

__all__ = ["RequestRow", "RowOrigin", "request_rows", "settings_of", "unknown_of"]

RowOrigin: TypeAlias = Literal["system", "tools", "layer", "history", "tool", "guidance", "projection", "appended"]

UNRECORDED: Final = (
    "This run does not have its requests: shown is the conversation up to the call, and not which of it was sent, "
    "what layers and tools were offered, or how a budget was split."
)
OLDER: Final = "This run does not have the instructions and the tools that were sent, nor what a budget was split by."
_CALL: Final = "function_call"
_KINDS: Final = {_CALL: "call", "function_call_output": "result"}


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One item of a request, or one that is absent from it."""

    origin: RowOrigin
    role: str
    text: str
    tokens: int | None = None
    is_sent: bool = True
    reason: str = ""
    """Why it was not sent; a reason of `ItemFate`. ``forced`` is one that was sent all the same."""
    smallest_budget: float | None = None
    """The smallest budget that would have admitted it, in tokens; None where none would, or nobody knows it."""
    layer: str = ""
    tool: str = ""
    item_id: str | None = None
    position: int | None = None
    """Its place in the log of the thread; None for what is in no log."""
    whole: str = ""
    """All that was sent, where `text` is a short form of it."""

    @property
    def source(self) -> str:
        """Where it came from, in one word; layers with their name.

        Examples
        --------
        >>> RequestRow("layer", "developer", "Likes blue.", layer="notes").source
        'layer:notes'
        """
        return f"layer:{self.layer}" if self.origin == "layer" else self.origin


def unknown_of(request: RecordedRequest) -> str:
    """Return in one sentence what the run does not have of a request; empty where it has all.

    Examples
    --------
    >>> unknown_of(RecordedRequest(0, 0, None, None, None))[:41]
    'This run does not have its requests: show'
    """
    if request.view is None:
        return UNRECORDED
    if request.prepared is None:
        return OLDER
    return f"The first {request.first:,} items of the conversation were not recorded." if request.first else ""


def settings_of(request: RecordedRequest) -> str:
    """Return what beside the items was sent, in one line: sampling, and a schema of the answer."""
    prepared = request.prepared
    if prepared is None:
        return ""
    parts = [f"{name} {compact_json(thaw(value))}" for name, value in prepared.params.items()]
    if prepared.output_schema is not None:
        parts.append("an answer by a JSON Schema")
    return ", ".join(parts)


def request_rows(request: RecordedRequest, meta: Mapping[str, Any]) -> list[RequestRow]:
    """Return a request as rows; where the run does not have it, its policy and the conversation before the call."""
    names = _tool_names(request.known or ())
    view = request.view
    if view is None:
        return [*_policy(request, meta), *_conversation(request, names)]
    rows = [*_instructions(request, view), *_tools(request, view)]
    absent = _Absent(request, view, names)
    offered = 0
    for sent in request.items:
        if sent.origin.startswith("layer:"):
            rows += absent.offers(offered)
            offered += 1
        elif sent.origin != "system":
            rows += absent.offers(offered + 1)
            rows += absent.log_before(sent.position)
        rows.append(_sent_row(sent, names, absent.forced))
    return [*rows, *absent.offers(offered + 1), *absent.log_before(None)]


def _tool_names(known: Iterable[Item]) -> dict[Any, str]:
    return {item.get("callId"): str(item.get("name") or "") for item in known if item["type"] == _CALL}


def _policy(request: RecordedRequest, meta: Mapping[str, Any]) -> Iterator[RequestRow]:
    policy = meta.get("policy")
    if isinstance(policy, str) and policy and not any(item_text(item) == policy for item in request.known or ()):
        yield RequestRow("system", "system", policy)


def _conversation(request: RecordedRequest, names: Mapping[Any, str]) -> Iterator[RequestRow]:
    for position, item in enumerate(request.known or (), request.first):
        origin: RowOrigin = "tool" if item["type"] == "function_call_output" else "history"
        yield _row(item, "guidance" if position in request.guidance else origin, names, position=position)


def _instructions(request: RecordedRequest, view: ViewAssembled) -> Iterator[RequestRow]:
    if view.system or request.instructions:
        yield RequestRow("system", "instructions", request.instructions or "", view.system)


def _tools(request: RecordedRequest, view: ViewAssembled) -> Iterator[RequestRow]:
    tools = request.tools or ()
    if view.tools or tools:
        number = f"{len(tools):,} offered" if request.tools is not None else "offered"
        whole = "\n\n".join(map(_tool_text, tools))
        yield RequestRow("tools", number, "\n".join(map(_tool_line, tools)), view.tools, whole=whole)


def _tool_line(tool: OfferedTool) -> str:
    properties = tool.parameters.get("properties")
    names = ", ".join(map(str, properties)) if isinstance(properties, Mapping) else ""
    return f"{tool.name}({names}): {tool.description.strip().partition(chr(10))[0]}"


def _tool_text(tool: OfferedTool) -> str:
    schema = json.dumps(thaw(tool.parameters), ensure_ascii=False, indent=1)
    return f"{tool.name}{' (strict)' if tool.strict else ''}\n{tool.description}\n{schema}"


def _sent_row(sent: SentItem, names: Mapping[Any, str], forced: frozenset[int]) -> RequestRow:
    origin, _, layer = sent.origin.partition(":")
    if sent.item is None:
        return RequestRow("history", "not recorded", "", position=sent.position)
    reason = "forced" if sent.position in forced else ""
    known: dict[str, Any] = {"tokens": sent.tokens, "layer": layer, "position": sent.position, "reason": reason}
    return _row(sent.item, origin, names, **known)


def _row(item: Item, origin: Any, names: Mapping[Any, str], **known: Any) -> RequestRow:
    kind = item["type"]
    if kind == _CALL:
        text = str(item.get("arguments") or "")
    else:
        text = item_text(item)
        extra = [part for part in item.get("content") or () if isinstance(part, Mapping) and "text" not in part]
        if extra or (not text and kind not in ("message", "function_call_output")):
            text = "\n".join([*([text] if text else []), *map(compact_json, extra or [item])])
    role = str(item.get("role") or "") if kind == "message" else _KINDS.get(kind, kind)
    tool = names.get(item.get("callId"), "") if kind in _KINDS else ""
    known.setdefault("tokens", item_tokens(item))
    return RequestRow(origin, role, text, tool=tool, item_id=item.get("id"), **known)


class _Absent:
    """What was not sent, handed out in the places where it would have stood."""

    def __init__(self, request: RecordedRequest, view: ViewAssembled, names: Mapping[Any, str]) -> None:
        self._request = request
        self._view = view
        self._names = names
        self._offers = list(view.unsent)
        self._fates = {fate.position: fate for fate in view.fates if fate.origin == "history"}
        self.forced = frozenset(at for at, fate in self._fates.items() if fate.reason == "forced")
        self._sent = {sent.position for sent in request.items if sent.position is not None}
        self._next = request.first
        if not view.unsent:  # older runs know of an offer no more than its size
            self._sizes = [fate for fate in view.fates if fate.origin.startswith("layer:")]
        else:
            self._sizes = []

    def offers(self, stop: int) -> Iterator[RequestRow]:
        """Yield the offers of layers that stood before so many of their items that were sent."""
        while self._offers and self._offers[0].before <= stop:
            yield self._offer(self._offers.pop(0))
        if stop > len(self._view.layer_items):
            for fate in self._sizes:
                layer = fate.origin.partition(":")[2]
                yield RequestRow("layer", "", "", fate.tokens, is_sent=False, reason=fate.reason, layer=layer)
            self._sizes = []

    def _offer(self, offer: UnsentOffer) -> RequestRow:
        return _row(offer.item, "layer", self._names, is_sent=False, reason=offer.reason, layer=offer.layer_id)

    def log_before(self, position: int | None) -> Iterator[RequestRow]:
        """Yield the items of the log that were not sent, up to a place in it; None is its end."""
        end = self._request.first + len(self._request.known or ())
        for at in range(self._next, end if position is None else min(position, end)):
            item = self._request.log_item(at)
            if at in self._sent or item is None:
                continue
            origin = "tool" if item["type"] == "function_call_output" else "history"
            if at in self._request.guidance:
                origin = "guidance"
            yield _row(item, origin, self._names, is_sent=False, reason=self._reason(at), position=at)
        if position is None or position > self._next:
            self._next = end if position is None else position

    def _reason(self, at: int) -> str:
        fate = self._fates.get(at)
        if fate is not None:
            return fate.reason
        if any(start <= at < stop for start, stop, _ in self._view.hidden):
            return "hidden"
        return "outside_window" if at < self._view.floor else "over_budget"
