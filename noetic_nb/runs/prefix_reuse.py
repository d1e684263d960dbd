"""What each request of a run has in common with those before it, and what of it a provider's cache would hold.

A request is compared part by part: tools, instructions, items. The history is compared by its places in the log, so that a long
conversation costs no more than a short one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from noetic_nb.events import ModelCalled, RequestPrepared, RunEvent, ViewAssembled
from noetic_nb.items import Item, item_tokens
from noetic_nb.items.json_text import compact_json
from noetic_nb.items.log import ItemView
from noetic_nb.items.shared_prefix import leading_text, leading_tokens, same_when_sent
from noetic_nb.models.prompt_caching import CacheRules, cache_rules
from noetic_nb.runs.recorded_requests import RecordedRequest, RequestIndex, SentItem
from noetic_nb.tokens import Tokenizer, estimate_tokens

__all__ = ["CacheReader", "PartReuse", "PrefixReuse", "RequestPart", "Shared", "parts_of", "shared_prefix"]


class RequestPart(NamedTuple):
    """A stretch of a request: tools or instructions as their text, or items.

    `origin` is ``tools``, ``system``, ``layer:<id>``, ``history`` (with what layers wrote in its place), or ``appended``.
    """

    origin: str
    body: str | Sequence[Item]
    tokens: int

    @property
    def size(self) -> int:
        """How many items it is; a text is one."""
        return 1 if isinstance(self.body, str) else len(self.body)


class Shared(NamedTuple):
    """What a request has in common with the beginning of another one.

    `tokens` are those of the later request, by origin in `by_origin`; `whole` counts the items that are the same. `ends_at` is
    where they cease to be alike: the layer that the later request has there, or else what the earlier one has. It is None where
    the earlier request is the beginning of the later one.
    """

    tokens: int
    by_origin: Mapping[str, int]
    whole: int
    ends_at: str | None


def parts_of(request: RecordedRequest) -> tuple[RequestPart, ...]:
    """Return the parts of a recorded request in the order sent; empty where the run does not have it."""
    view, prepared, known = request.view, request.prepared, request.known
    if view is None:
        return ()
    parts: list[RequestPart] = []
    if prepared is not None and (view.tools or prepared.tools or prepared.output_schema):
        parts.append(RequestPart("tools", _tools_text(prepared), view.tools))
    if view.system or (prepared is not None and prepared.instructions):
        parts.append(RequestPart("system", "" if prepared is None else prepared.instructions, view.system))
    counter = request.tokenizer or estimate_tokens
    if _is_plain(request) and known is not None and view.window[1] - request.first <= len(known):
        start, stop = view.window[0] - request.first, view.window[1] - request.first
        parts += _items(view.layer_items, counter)
        if stop > start:
            history = known[start:stop]
            assert isinstance(history, ItemView)
            parts.append(RequestPart("history", history, view.history))
    else:
        parts += _joined(request.items)
    appended = sum([item_tokens(item, counter) for item in view.appended])
    return (*parts, RequestPart("appended", view.appended, appended)) if view.appended else tuple(parts)


def _is_plain(request: RecordedRequest) -> bool:
    """Tell whether a request is layers' items and then one stretch of the log, as most are."""
    view, prepared, known = request.view, request.prepared, request.known
    assert view is not None
    late = prepared is not None and prepared.order == "cache" and bool(prepared.suffixes) and bool(view.layer_items)
    skips = any(fate.origin == "history" for fate in view.fates) or view.hidden or view.kept
    return not (late or skips or view.projection or known is None or known.has_system or known.repeats_calls)


def _tools_text(prepared: RequestPrepared) -> str:
    tools = [[tool.name, tool.description, tool.parameters, tool.strict] for tool in prepared.tools]
    return compact_json([tools, prepared.output_schema])


def _items(layer_items: Iterable[tuple[str, Item]], counter: Tokenizer) -> list[RequestPart]:
    return [RequestPart(f"layer:{name}", (item,), item_tokens(item, counter)) for name, item in layer_items]


def _joined(sent: Iterable[SentItem]) -> list[RequestPart]:
    parts: list[RequestPart] = []
    for one in sent:
        if one.origin == "appended":
            continue
        origin = one.origin if one.origin.startswith("layer:") else "history"
        if one.item is None:  # the same place of a log is the same item, whatever it was
            parts.append(RequestPart(origin, f"item {one.position} of the log, which was not recorded", one.tokens))
        else:
            parts.append(RequestPart(origin, (one.item,), one.tokens))
    return parts


class _Cursor:
    """A place in a request."""

    __slots__ = ("at", "body", "offset", "parts")

    def __init__(self, parts: Sequence[RequestPart]) -> None:
        self.parts, self.at, self.offset = parts, 0, 0
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
        """Tokens of the next items, all of one part."""
        part = self.parts[self.at]
        if count == part.size:
            return part.tokens
        assert not isinstance(part.body, str)
        stretch = part.body[self.offset : self.offset + count]
        if isinstance(stretch, ItemView) and stretch.tokenizer is counter:
            return stretch.tokens
        return sum([item_tokens(item, counter) for item in stretch])

    def text(self) -> tuple[str, str]:
        """Return what the next item is, and its text."""
        body = self.body
        assert body is not None
        return (self.origin, body) if isinstance(body, str) else leading_text(body[self.offset])


def shared_prefix(
    before: Sequence[RequestPart], now: Sequence[RequestPart], counter: Tokenizer = estimate_tokens
) -> Shared:
    """Return what a request has in common with the beginning of another one.

    Parameters
    ----------
    before, now : sequence of RequestPart
        The earlier request and the later one.
    counter : callable
        From text to tokens, as the requests were counted.

    References
    ----------
    .. [1] docs/behaviour/runs.md, "What caching does".

    Examples
    --------
    >>> from noetic_nb.items import input_message
    >>> hello, note = input_message("hello", item_id="1"), input_message("note", "developer", item_id="2")
    >>> system = RequestPart("system", "Be brief.", 3)
    >>> one = (system, RequestPart("history", (hello,), 29))
    >>> shared_prefix(one, (system, RequestPart("layer:notes", (note,), 30), RequestPart("history", (hello,), 29)))
    Shared(tokens=3, by_origin={'system': 3}, whole=1, ends_at='layer:notes')
    """
    old, new = _Cursor(before), _Cursor(now)
    shared: dict[str, int] = {}
    whole = 0
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


def _same(old: _Cursor, new: _Cursor) -> int:
    """Return how many of the next items are the same in two requests."""
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


class PartReuse(NamedTuple):
    """What of one part of a request is in the prefix shared with the call before it, and what the cache would hold. Tokens."""

    origin: str
    tokens: int
    shared: int
    cached: int
    written: int
    broke: bool


@dataclass(frozen=True, slots=True)
class PrefixReuse:
    """What a request has in common with the call before it, of the same model in the same thread. All amounts in tokens.

    `cached` is predicted by `rules`, from all calls of the same model in the run; it is None where nothing is known of how the
    model caches, as `rules` is. `written` is what the cache takes up where that has a price.
    """

    request: RecordedRequest = field(repr=False)
    model: str
    rules: CacheRules | None
    tokens: int
    shared: int
    cached: int | None
    written: int
    broken_by: str | None
    """The origin of the part at which the request ceases to be like the one before; None where it only goes on."""
    is_first: bool
    """Whether there was no such call."""
    parts: tuple[PartReuse, ...]

    @property
    def paid(self) -> float | None:
        """Tokens at the price of ordinary input tokens, None where nothing is predicted."""
        if self.rules is None or self.cached is None:
            return None
        rest = self.tokens - self.cached - self.written
        return rest + self.cached * self.rules.read + self.written * self.rules.write


class _Sent(NamedTuple):
    parts: tuple[RequestPart, ...]
    tokens: int
    counter: Tokenizer


@dataclass(slots=True)
class _Entry:
    """What the cache holds of an earlier request: all of it, or of marked rules its first `depth` items."""

    sent: _Sent
    depth: int | None
    used_ms: float


_NO_MODEL: Final = ""


class CacheReader:
    """Reads what each call has in common with those before it; grows with `take`.

    Parameters
    ----------
    rules : CacheRules, optional
        By which all models cache; as their providers publish it where absent.

    Examples
    --------
    >>> from noetic_nb.items import input_message
    >>> from noetic_nb.events import ItemsAppended, Where
    >>> here, reader = Where("t1", "e1", 1), CacheReader()
    >>> say = lambda text, at: ItemsAppended(here, 0.0, at, (input_message(text, item_id=text),), "user")
    >>> view = lambda size, tokens: ViewAssembled(here, 0.0, 0, (0, size), (), (), (), 100, 0, 0, 0, 0, tokens, 0, size)
    >>> answer = ModelCalled(here, 0.0, 0, "m", "agent", 1.0, "ok")
    >>> found = [reader.take(event) for event in (say("a", 0), view(1, 27), answer, say("b", 1), view(2, 54))]
    >>> found[1].is_first, found[-1].shared, found[-1].broken_by, found[-1].cached
    (True, 27, None, None)
    """

    def __init__(self, rules: CacheRules | None = None) -> None:
        self._rules = rules
        self.index = RequestIndex()
        self._last: dict[tuple[str, str], _Sent] = {}
        self._open: dict[tuple[str, str], tuple[str, _Sent, float, list[_Entry]]] = {}
        self._entries: dict[str, list[_Entry]] = {}

    def take(self, event: RunEvent, *, seq: int | None = None, call: int | None = None) -> PrefixReuse | None:
        """Read one event; returns what a request that it is has in common with earlier ones, None for all others."""
        at = self.index.take(event, seq=seq, call=call)
        return self.read(event, None if at is None else self.index.requests[at])

    def read(self, event: RunEvent, request: RecordedRequest | None) -> PrefixReuse | None:
        """Do the same for an event that another index has read, with the request that began or ended with it."""
        if request is None:
            return None
        if isinstance(event, ViewAssembled):
            return self.begin(request, parts_of(request), event.t_ms)
        if isinstance(event, ModelCalled):
            self.end(event)
        return None

    def begin(self, request: RecordedRequest, parts: tuple[RequestPart, ...], t_ms: float) -> PrefixReuse:
        """Compare a request, given as its parts, with those before it."""
        where, prepared = request.where, request.prepared
        model = _NO_MODEL if prepared is None else prepared.model
        sent = _Sent(parts, sum([part.tokens for part in parts]), request.tokenizer or estimate_tokens)
        thread = where.thread_id, model
        before = self._last.get(thread)
        nothing = Shared(0, {}, 0, None)
        shared = nothing if before is None else shared_prefix(before.parts, parts, sent.counter)
        rules = self._rules or cache_rules(model)
        cached, hits = (None, []) if rules is None else self._cached(rules, model, sent, t_ms)
        written = _written(rules, sent, cached or 0)
        self._last[thread] = sent
        self._open[where.thread_id, where.execution_id] = model, sent, t_ms, hits
        return PrefixReuse(
            request,
            model,
            rules,
            sent.tokens,
            shared.tokens,
            cached,
            written,
            shared.ends_at,
            before is None,
            tuple(_by_origin(sent, shared, cached or 0, written)),
        )

    def end(self, event: ModelCalled) -> None:
        """Take what the cache holds once a call was answered."""
        opened = self._open.pop((event.where.thread_id, event.where.execution_id), None)
        if opened is None or event.status != "ok":
            return
        model, sent, t_ms, hits = opened
        rules = self._rules or cache_rules(model)
        if rules is None:
            return
        for entry in hits:
            entry.used_ms = max(entry.used_ms, t_ms)
        # What has expired by this request has expired by all that follow.
        alive = [one for one in self._entries.get(model, []) if t_ms - one.used_ms <= rules.lifetime_ms]
        depths = [depth for depth, tokens in _marks(sent) if tokens >= rules.minimum] if rules.marked else [None]
        self._entries[model] = alive + [_Entry(sent, depth, t_ms) for depth in depths]

    def _cached(self, rules: CacheRules, model: str, sent: _Sent, t_ms: float) -> tuple[int, list[_Entry]]:
        """Return how many tokens the cache holds of a request, and the entries that were of use."""
        best, hits = 0, list[_Entry]()
        known: dict[int, Shared] = {}
        # The newest first, as it is nearly always the best and the others need no look then.
        for entry in reversed(self._entries.get(model, [])):
            if t_ms - entry.used_ms > rules.lifetime_ms:
                continue
            if not rules.marked and min(entry.sent.tokens, sent.tokens) <= best:
                continue
            shared = known.get(id(entry.sent))
            if shared is None:
                shared = known[id(entry.sent)] = shared_prefix(entry.sent.parts, sent.parts, sent.counter)
            if entry.depth is None:
                best = max(best, rules.whole(shared.tokens))
                continue
            if entry.depth > shared.whole or not _in_reach(rules, sent, entry.depth):
                continue
            tokens = _first_tokens(sent, entry.depth)
            if tokens >= best:
                hits = [*(hits if tokens == best else ()), entry]
                best = tokens
        return best, hits


def _marks(sent: _Sent) -> list[tuple[int, int]]:
    """Return where the marks of a request stand: how many items are before each, and their tokens."""
    marks: dict[int, int] = {}
    depth = tokens = 0
    for part in sent.parts:
        depth, tokens = depth + part.size, tokens + part.tokens
        if part.origin in ("tools", "system"):
            marks[depth] = tokens
    marks[depth] = tokens
    marks.pop(0, None)
    return sorted(marks.items())


def _in_reach(rules: CacheRules, sent: _Sent, depth: int) -> bool:
    return any(0 <= mark - depth < rules.lookback for mark, _ in _marks(sent))


def _first_tokens(sent: _Sent, depth: int) -> int:
    """Return the tokens of the first items."""
    tokens, cursor = 0, _Cursor(sent.parts)
    while depth > 0 and cursor.body is not None:
        count = min(depth, cursor.parts[cursor.at].size - cursor.offset)
        tokens += cursor.tokens(count, sent.counter)
        cursor.move(count)
        depth -= count
    return tokens


def _written(rules: CacheRules | None, sent: _Sent, cached: int) -> int:
    """Return what a request puts into a cache that charges for it: all up to its last mark, which is its end."""
    if rules is None or rules.write == 1 or sent.tokens < rules.minimum:
        return 0
    return sent.tokens - cached


def _by_origin(sent: _Sent, shared: Shared, cached: int, written: int) -> Iterable[PartReuse]:
    tokens: dict[str, int] = {}
    held: dict[str, int] = {}
    left = cached
    for part in sent.parts:
        took = min(left, part.tokens)
        left -= took
        tokens[part.origin] = tokens.get(part.origin, 0) + part.tokens
        held[part.origin] = held.get(part.origin, 0) + took
    if shared.ends_at is not None:
        tokens.setdefault(shared.ends_at, 0)
    for origin, count in tokens.items():
        took = held.get(origin, 0)
        put = count - took if written else 0
        yield PartReuse(origin, count, shared.by_origin.get(origin, 0), took, put, origin == shared.ends_at)
