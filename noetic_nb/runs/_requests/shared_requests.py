"""The common prefix of two requests, part by part: tools, instructions, items, history by place in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from noetic_nb.items import Item, item_tokens
from noetic_nb.items._build import leading_text, leading_tokens, same_when_sent
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._log import ItemView
from noetic_nb.runs._requests.sent_request import RecordedRequest, SentItem
from noetic_nb.tokens import Tokenizer, estimate_tokens

HEAD: Final = ("tools", "system")
"""The origins that all conversations with one agent begin with."""


class RequestPart(NamedTuple):
    """A stretch of a request: text or items of ``tools``, ``system``, ``layer:<id>``, ``history`` or ``appended``."""

    origin: str
    body: str | Sequence[Item]
    tokens: int

    @property
    def size(self) -> int:
        """The number of items; a text counts as one."""
        return 1 if isinstance(self.body, str) else len(self.body)


class Shared(NamedTuple):
    """The prefix that a request shares with another one.

    `tokens` and `by_origin` count tokens of the later request; `whole` counts equal items. `ends_at` is the origin of
    the first difference: a layer of the later request, otherwise the part of the earlier request. It is None if the
    earlier request is a prefix of the later one.
    """

    tokens: int
    by_origin: Mapping[str, int]
    whole: int
    ends_at: str | None


def parts_of(request: RecordedRequest) -> tuple[RequestPart, ...]:
    """Return the parts of a recorded request in the order sent; empty if the run does not have it."""
    view, prepared, known = request.view, request.prepared, request.known
    if view is None:
        return ()
    parts: list[RequestPart] = []
    if prepared is not None and (view.tools or prepared.tools or prepared.output_schema):
        tools = [[tool.name, tool.description, tool.parameters, tool.strict] for tool in prepared.tools]
        parts.append(RequestPart("tools", compact_json([tools, prepared.output_schema]), view.tools))
    if view.system or (prepared is not None and prepared.instructions):
        parts.append(RequestPart("system", "" if prepared is None else prepared.instructions, view.system))
    counter = request.counter
    if _is_plain(request) and known is not None and view.window[1] - request.first <= len(known):
        start, stop = view.window[0] - request.first, view.window[1] - request.first
        parts += [RequestPart(f"layer:{name}", (item,), item_tokens(item, counter)) for name, item in view.layer_items]
        if stop > start:
            history = known[start:stop]
            assert isinstance(history, ItemView)
            parts.append(RequestPart("history", history, view.history))
    else:
        parts += _joined(request.items)
    appended = sum([item_tokens(item, counter) for item in view.appended])
    return (*parts, RequestPart("appended", view.appended, appended)) if view.appended else tuple(parts)


def may_be_whole(request: RecordedRequest) -> bool:
    """Tell quickly, without checking items, whether a run may have a complete request."""
    view, known = request.view, request.known
    if view is None or request.prepared is None:
        return False
    return bool(view.projection) or (known is not None and view.window[1] - request.first <= len(known))


def is_whole(request: RecordedRequest, parts: Sequence[RequestPart]) -> bool:
    """Tell whether a run has a complete request: instructions, tools and every item."""
    view = request.view
    if view is None or not may_be_whole(request):
        return False
    sizes = {True: 0, False: 0}
    for part in parts:
        if part.origin == "history" or part.origin.startswith("layer:"):
            sizes[part.origin == "history"] += 0 if isinstance(part.body, str) else len(part.body)
    offered = sum([layer.items for layer in view.layers])
    return sizes[True] == view.history_items and sizes[False] == len(view.layer_items) >= offered


def _is_plain(request: RecordedRequest) -> bool:
    """Tell whether a request consists of layer items followed by one stretch of the log, as most do."""
    view, prepared, known = request.view, request.prepared, request.known
    assert view is not None
    late = prepared is not None and prepared.order == "cache" and bool(prepared.suffixes) and bool(view.layer_items)
    skips = any(fate.origin == "history" for fate in view.fates) or view.hidden or view.kept
    return not (late or skips or view.projection or known is None or known.has_system or known.repeats_calls)


def _joined(sent: Iterable[SentItem]) -> list[RequestPart]:
    parts: list[RequestPart] = []
    for one in sent:
        if one.origin == "appended":
            continue
        origin = one.origin if one.origin.startswith("layer:") else "history"
        if one.item is None:  # an equal place in the log is an equal item, even if unknown
            parts.append(RequestPart(origin, f"item {one.position} of the log, which was not recorded", one.tokens))
        else:
            parts.append(RequestPart(origin, (one.item,), one.tokens))
    return parts


class _Cursor:
    """A position in a request."""

    __slots__ = ("at", "body", "offset", "parts")

    def __init__(self, parts: Sequence[RequestPart], at: int = 0) -> None:
        self.parts, self.at, self.offset = parts, at, 0
        self._settle()

    def _settle(self) -> None:
        while self.at < len(self.parts) and self.offset >= self.parts[self.at].size:
            self.at, self.offset = self.at + 1, 0
        self.body = self.parts[self.at].body if self.at < len(self.parts) else None

    @property
    def origin(self) -> str:
        return self.parts[self.at].origin

    def move(self, count: int) -> None:
        self.offset += count
        self._settle()

    def tokens(self, count: int, counter: Tokenizer) -> int:
        """Count the tokens of the next items, all in one part."""
        part = self.parts[self.at]
        if count == part.size:
            return part.tokens
        assert not isinstance(part.body, str)
        stretch = part.body[self.offset : self.offset + count]
        if isinstance(stretch, ItemView) and stretch.tokenizer is counter:
            return stretch.tokens
        return sum([item_tokens(item, counter) for item in stretch])

    def text(self) -> tuple[str, str]:
        """Return the kind of the next item, and its text."""
        body = self.body
        assert body is not None
        return (self.origin, body) if isinstance(body, str) else leading_text(body[self.offset])


def shared_prefix(
    before: Sequence[RequestPart], now: Sequence[RequestPart], counter: Tokenizer = estimate_tokens
) -> Shared:
    """Return the prefix that a request shares with an earlier one; `counter` must be the counter of the request."""
    shared: dict[str, int] = {}
    at = whole = 0
    # Most requests begin with equal parts; use cursors only for the rest.
    for part, later in zip(before, now, strict=False):
        if not _same_part(part, later):
            break
        shared[later.origin] = shared.get(later.origin, 0) + later.tokens
        at, whole = at + 1, whole + later.size
    old, new = _Cursor(before, at), _Cursor(now, at)
    ends_at: str | None = None
    while old.body is not None and new.body is not None:
        count = _same(old, new)
        origin = new.origin
        if not count:
            (kind, one), (other_kind, other) = old.text(), new.text()
            if kind == other_kind:
                most = new.tokens(1, counter)
                shared[origin] = shared.get(origin, 0) + leading_tokens(one, other, most, counter)
            ends_at = old.origin if origin in ("history", "appended") else origin
            break
        shared[origin] = shared.get(origin, 0) + new.tokens(count, counter)
        whole += count
        old.move(count)
        new.move(count)
    else:
        if old.body is not None:
            ends_at = old.origin
    return Shared(sum(shared.values()), shared, whole, ends_at)


def _same_part(one: RequestPart, other: RequestPart) -> bool:
    """Tell whether two parts are the same text or item, or stretches of the same log from the same place."""
    if one is other:
        return True
    a, b = one.body, other.body
    if isinstance(a, str):
        return a == b and one.origin == other.origin
    return len(a) == len(b) == 1 and not isinstance(b, str) and same_when_sent(a[0], b[0])


def _same(old: _Cursor, new: _Cursor) -> int:
    one, other = old.body, new.body
    assert one is not None
    assert other is not None
    if isinstance(one, str) or isinstance(other, str):
        return int(one == other and old.origin == new.origin)
    if isinstance(one, ItemView) and isinstance(other, ItemView) and old.offset == new.offset:
        same = one.same_start(other) - old.offset
        if same > 0:
            return same
    return int(same_when_sent(one[old.offset], other[new.offset]))


def first_tokens(parts: Sequence[RequestPart], depth: int, counter: Tokenizer) -> int:
    tokens, cursor = 0, _Cursor(parts)
    while depth > 0 and cursor.body is not None:
        count = min(depth, cursor.parts[cursor.at].size - cursor.offset)
        tokens += cursor.tokens(count, counter)
        cursor.move(count)
        depth -= count
    return tokens
