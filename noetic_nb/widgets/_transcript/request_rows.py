"""The request of one model call as rows: sent items in order, left-out items between them, and differences."""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.items import Item, item_text, item_tokens, thaw
from noetic_nb.items._build import content_tokens
from noetic_nb.items._json_text import compact_json
from noetic_nb.runs._plain_text import OPAQUE, is_opaque, plain
from noetic_nb.runs._requests.sent_request import RecordedRequest, SentItem, tool_tokens
from noetic_nb.runtime._planning.least_budget import AbsentItem, LeastBudget
from noetic_nb.tokens import system_tokens

Change: TypeAlias = Literal["", "added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One row of the compared request, or one that only the other request has."""

    row: RequestRow
    change: Change = ""
    other: RequestRow | None = None
    """The same item in the other request, sent or absent; None if it has no such item."""
    own: bool = True
    """Whether `row` belongs to the compared request; False for a row that only the other request sent."""


def request_diff(rows: Sequence[RequestRow], others: Sequence[RequestRow]) -> list[DiffRow]:
    """Return the rows of a request with their differences from another one, and the removed rows between them.

    Items are the same if they have the same id; without an id, if origin, role and text are equal. If only one text of
    the same layer, the system or a tool remains on both sides, it counts as changed. Items that only one request sent
    count as added or removed.

    Examples
    --------
    >>> from noetic_nb.widgets._transcript.request_rows import RequestRow
    >>> one, two = RequestRow("history", "user", "Hello", item_id="i1"), RequestRow("history", "user", "Bye", item_id="i2")
    >>> [(found.row.text, found.change) for found in request_diff([two], [one])]
    [('Bye', 'added'), ('Hello', 'removed')]
    """
    partners = _partners(rows, others)
    of_others = {other: at for at, other in partners.items()}
    found: list[DiffRow] = []
    begun = 0

    def gone(stop: int) -> Iterator[DiffRow]:
        for at in range(begun, stop):
            if at not in of_others and others[at].is_sent:
                yield DiffRow(others[at], "removed", None, own=False)

    for at, row in enumerate(rows):
        place = partners.get(at)
        if place is not None and place >= begun:
            found += gone(place)
            begun = place + 1
        other = None if place is None else others[place]
        found.append(DiffRow(row, _change(row, other), other))
    found += gone(len(others))
    return found


def _change(row: RequestRow, other: RequestRow | None) -> Change:
    was_sent = other is not None and other.is_sent
    if row.is_sent != was_sent:
        return "added" if row.is_sent else "removed"
    return "changed" if was_sent and other is not None and other.text != row.text else ""


def _partners(rows: Sequence[RequestRow], others: Sequence[RequestRow]) -> dict[int, int]:
    """Map these rows to the same rows of the other request, by index."""
    partners: dict[int, int] = {}
    left, right = list(range(len(rows))), list(range(len(others)))
    for name in (_by_id, _by_text, _by_origin):
        mine, theirs = _places(left, rows, name), _places(right, others, name)
        for key, places in mine.items():
            found = theirs.get(key, [])
            if name is not _by_origin or len(places) == len(found) == 1:
                partners.update(zip(places, found, strict=False))
        taken = set(partners.values())
        left, right = [at for at in left if at not in partners], [at for at in right if at not in taken]
    return partners


def _places(
    places: Sequence[int], rows: Sequence[RequestRow], name: Callable[[RequestRow], Hashable]
) -> dict[Hashable, list[int]]:
    named: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at in places:
        key = name(rows[at])
        if key is not None:
            named[key].append(at)
    return named


def _by_id(row: RequestRow) -> Hashable:
    return None if row.item_id is None else (row.origin, row.layer, row.item_id)


def _by_text(row: RequestRow) -> Hashable:
    return row.origin, row.layer, row.role, row.text


def _by_origin(row: RequestRow) -> Hashable:
    # A layer rewrites its text at every call, with a new id; conversation items are independent of each other.
    return (row.origin, row.layer, row.tool) if row.origin in ("system", "tools", "layer", "framing") else None


RowOrigin: TypeAlias = Literal[
    "system", "tools", "layer", "framing", "history", "tool", "guidance", "projection", "appended"
]

UNRECORDED: Final = (
    "This run does not have its requests: shown is the conversation up to the call, and not which of it was sent, "
    "what layers and tools were offered, or how a budget was split."
)
OLDER: Final = "This run does not contain the instructions and tools that were sent, or the limits of the layers."
# Only the nearest ones: this many unsent items of a long conversation keep a page quick.
MOST_ABSENT: Final = 2_000
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
    """Why it was not sent, a reason of `ItemFate`; ``forced`` means it was sent nevertheless."""
    layer: str = ""
    tool: str = ""
    item_id: str | None = None
    position: int | None = None
    """Its position in the thread's log; None if it is in no log."""
    whole: str = ""
    """The complete sent text, if `text` is a short form."""
    absent: AbsentItem | None = None
    """The unsent item, if the call can be planned again."""
    count: int = 1
    """How many items the row stands for."""

    @property
    def source(self) -> str:
        """Its origin in one word; for layers with their name.

        Examples
        --------
        >>> RequestRow("layer", "developer", "Likes blue.", layer="notes").source
        'layer:notes'
        """
        return f"layer:{self.layer}" if self.origin == "layer" else self.origin


def unknown_of(request: RecordedRequest) -> str:
    """Name the parts of a request that the run lacks, in one sentence; empty if complete.

    Examples
    --------
    >>> unknown_of(RecordedRequest(0, 0, None, None, None))[:41]
    'This run does not have its requests: show'
    """
    if request.view is None:
        return UNRECORDED
    if request.prepared is None:
        return OLDER
    if not request.first:
        return ""
    first = "item" if request.first == 1 else f"{request.first:,} items"
    return f"The first {first} of the conversation {'was' if request.first == 1 else 'were'} not recorded."


def settings_of(request: RecordedRequest) -> str:
    """Return the settings sent besides the items, in one line: sampling, and a schema for the answer."""
    prepared = request.prepared
    if prepared is None:
        return ""
    parts = [f"{name} {compact_json(thaw(value))}" for name, value in prepared.params.items()]
    if prepared.output_schema is not None:
        parts.append("an answer by a JSON Schema")
    return ", ".join(parts)


def budget_words(found: LeastBudget | None) -> str:
    """Describe the smallest budget that would have admitted an item, in a sentence.

    Examples
    --------
    >>> budget_words(LeastBudget(total=1_200))
    'A total of 1,200 tokens would have admitted it.'
    >>> budget_words(LeastBudget(layer_id="notes", maximum=90)), budget_words(None)
    ('A maximum of 90 tokens for notes would have admitted it.', 'No budget would have admitted it.')
    """
    if found is None:
        return "No budget would have admitted it."
    parts = []
    if found.total is not None:
        parts.append(f"a total of {found.total:,} tokens")
    if found.window is not None:
        parts.append(f"a window of {found.window:,} item{'s' * (found.window != 1)}")
    if found.layer_id is not None:
        parts.append(f"a maximum of {found.maximum:,} tokens for {plain(found.layer_id)}")
    text = f"{' and '.join(parts)} would have admitted it."
    return f"{text[:1].upper()}{text[1:]}"


def budget_parts(found: LeastBudget) -> tuple[float, str]:
    """Return such a budget as a number, and its name with the other budgets that must be raised.

    Examples
    --------
    >>> budget_parts(LeastBudget(total=1_200)), budget_parts(LeastBudget(900, None, "notes", 90))
    ((1200, 'total'), (900, 'total; layer:notes 90'))
    """
    parts = [("total", found.total), ("window", found.window), (f"layer:{found.layer_id}", found.maximum)]
    (name, number), *others = [(name, number) for name, number in parts if number is not None]
    return number, "; ".join([name, *[f"{other} {more}" for other, more in others]])


def request_rows(request: RecordedRequest, meta: Mapping[str, Any]) -> list[RequestRow]:
    """Return a request as rows; if the run lacks it, its policy and the conversation before the call.

    If more than `MOST_ABSENT` history items were not sent, the excess is one row.
    """
    names = _tool_names(request.known or ())
    view = request.view
    if view is None:
        return [*_policy(request, meta), *_conversation(request, names)]
    rows = [*_before_items(request)]
    absent = _Absent(request, names)
    offered = 0
    for sent in request.items:
        if sent.origin.startswith("layer:"):
            rows += absent.offers(offered)
            offered += 1
        elif sent.origin != "system":
            rows += absent.offers(math.inf)
            rows += absent.history(-1 if sent.position is None else sent.position)
        rows.append(_sent_row(sent, names, absent.forced))
    rows += [*absent.offers(math.inf), *absent.history(math.inf)]
    if view.framing:
        behind = max([at for at, row in enumerate(rows, start=1) if row.origin == "layer"], default=len(rows))
        rows.insert(behind, RequestRow("framing", "around the items of layers", "", view.framing))
    return rows


def _tool_names(known: Iterable[Item]) -> dict[Any, str]:
    return {item.get("callId"): str(item.get("name") or "") for item in known if item["type"] == _CALL}


def _policy(request: RecordedRequest, meta: Mapping[str, Any]) -> Iterator[RequestRow]:
    policy = meta.get("policy")
    if isinstance(policy, str) and policy and not any(item_text(item) == policy for item in request.known or ()):
        yield RequestRow("system", "system", policy, system_tokens(request.counter, policy))


def _conversation(request: RecordedRequest, names: Mapping[Any, str]) -> Iterator[RequestRow]:
    for position, item in enumerate(request.known or (), request.first):
        origin: RowOrigin = "tool" if item["type"] == "function_call_output" else "history"
        if item.get("role") == "system":
            origin = "system"
        origin = "guidance" if position in request.guidance else origin
        yield _row(item, origin, names, position=position, tokens=item_tokens(item, request.counter))


def _before_items(request: RecordedRequest) -> Iterator[RequestRow]:
    """Yield the instructions of a planned request, and its tools."""
    view, tools = request.view, request.tools or ()
    assert view is not None
    if view.system or request.instructions:
        yield RequestRow("system", "instructions", request.instructions or "", view.system)
    if view.tools and not tools:
        yield RequestRow("tools", "offered", "", view.tools)
    for tool, (_, tokens) in zip(tools, tool_tokens(request.prepared, view.tools), strict=True):
        properties = tool.parameters.get("properties")
        names = ", ".join(map(str, properties)) if isinstance(properties, Mapping) else ""
        line = f"{tool.name}({names}): {tool.description.strip().partition(chr(10))[0]}"
        schema = json.dumps(thaw(tool.parameters), ensure_ascii=False, indent=1)
        whole = f"{tool.name}{' (strict)' if tool.strict else ''}\n{tool.description}\n{schema}"
        yield RequestRow("tools", "offered", line, tokens, tool=tool.name, whole=whole)


def _sent_row(sent: SentItem, names: Mapping[Any, str], forced: frozenset[int]) -> RequestRow:
    origin, _, layer = sent.origin.partition(":")
    if sent.item is None:
        return RequestRow("history", "not recorded", "", position=sent.position)
    reason = "forced" if sent.position in forced else ""
    known: dict[str, Any] = {
        "tokens": sent.tokens - sent.framing,
        "layer": layer,
        "position": sent.position,
        "reason": reason,
    }
    return _row(sent.item, origin, names, **known)


def _row(item: Item, origin: Any, names: Mapping[Any, str], **known: Any) -> RequestRow:
    kind = item["type"]
    if kind == _CALL:
        text = str(item.get("arguments") or "")
    elif is_opaque(item):
        text = OPAQUE
    else:
        text = item_text(item)
        content = item.get("content")
        parts = content if isinstance(content, list | tuple) else ()
        extra = [part for part in parts if isinstance(part, Mapping) and "text" not in part]
        if extra or (not text and kind not in ("message", "function_call_output")):
            text = "\n".join([*([text] if text else []), *map(compact_json, extra or [item])])
    role = str(item.get("role") or "") if kind == "message" else _KINDS.get(kind, kind)
    tool = names.get(item.get("callId"), "") if kind in _KINDS else ""
    return RequestRow(origin, role, text, tool=tool, item_id=item.get("id"), **known)


def _absent(request: RecordedRequest) -> tuple[AbsentItem, ...]:
    """Return the unsent items: by planning the call again, otherwise as far as recorded in the view."""
    if request.can_replan:
        return request.absent
    view = request.view
    assert view is not None
    offers = [
        AbsentItem(
            f"layer:{offer.layer_id}",
            offer.place,
            content_tokens(offer.item, request.counter),
            offer.reason,
            offer.item,
            offer.before,
        )
        for offer in view.unsent
    ]
    fates = {fate.position: fate for fate in view.fates if fate.origin == "history"}
    sent = {sent.position for sent in request.items if sent.position is not None}
    history = []
    for position, item in enumerate(request.known or (), request.first):
        if position in sent:
            continue
        fate = fates.get(position)
        if fate is not None:
            reason: str = fate.reason
        elif any(start <= position < stop for start, stop, _ in view.hidden):
            reason = "hidden"
        else:
            reason = "outside_window" if position < view.floor else "over_budget"
        history.append(AbsentItem("history", position, item_tokens(item, request.counter), reason, item))
    return (*offers, *history)


class _Absent:
    """The unsent items, yielded at the places where they would have been."""

    def __init__(self, request: RecordedRequest, names: Mapping[Any, str]) -> None:
        self._request, self._names = request, names
        self._can_replan = request.can_replan
        view, absent = request.view, _absent(request)
        assert view is not None
        forced = [fate.position for fate in view.fates if fate.origin == "history" and fate.reason == "forced"]
        self.forced = frozenset(forced)
        self._offers = deque([one for one in absent if one.origin != "history"])
        history = [one for one in absent if one.origin == "history" and one.reason != "forced"]
        self._older = history[: max(0, len(history) - MOST_ABSENT)]
        self._history = deque(history[len(self._older) :])
        # Older runs record only the size of an offer.
        self._sizes = [] if view.unsent else [fate for fate in view.fates if fate.origin.startswith("layer:")]

    def offers(self, stop: float) -> Iterator[RequestRow]:
        """Yield the offers of layers that came before the first `stop` of their sent items."""
        while self._offers and (self._offers[0].before or 0) <= stop:
            absent = self._offers.popleft()
            yield self._row(absent, "layer", layer=absent.origin.partition(":")[2])
        if stop == math.inf:
            for fate in self._sizes:
                layer = fate.origin.partition(":")[2]
                yield RequestRow("layer", "", "", fate.tokens, is_sent=False, reason=fate.reason, layer=layer)
            self._sizes = []

    def history(self, before: float) -> Iterator[RequestRow]:
        """Yield the unsent items of the log up to a position."""
        if self._older and before > self._older[0].position:
            tokens = sum([absent.tokens for absent in self._older])
            reason, number = self._older[-1].reason, len(self._older)
            yield RequestRow("history", f"{number:,} older items", "", tokens, False, reason, count=number)
            self._older = []
        while self._history and self._history[0].position < before:
            absent = self._history.popleft()
            origin: RowOrigin = "tool" if absent.item["type"] == "function_call_output" else "history"
            if absent.position in self._request.guidance:
                origin = "guidance"
            yield self._row(absent, origin, position=absent.position)

    def _row(self, absent: AbsentItem, origin: RowOrigin, **known: Any) -> RequestRow:
        known |= {"is_sent": False, "reason": absent.reason, "tokens": absent.tokens}
        return _row(absent.item, origin, self._names, absent=absent if self._can_replan else None, **known)
