"""The prefix that each request of a run shares with earlier ones, and the part of it that a provider's cache would hold."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Final, NamedTuple, TypeAlias

from noetic_nb.events import ModelCalled, RunEvent, ViewAssembled
from noetic_nb.items import item_tokens
from noetic_nb.items._build import leading_text, leading_tokens, sent_hash
from noetic_nb.models.prompt_caching import CacheRules, cache_rules
from noetic_nb.runs._requests.recorded_requests import RequestIndex
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runs._requests.shared_requests import (
    HEAD,
    RequestPart,
    Shared,
    first_tokens,
    is_whole,
    may_be_whole,
    parts_of,
    shared_prefix,
)
from noetic_nb.tokens import Tokenizer


class PartReuse(NamedTuple):
    """One part of a request: its tokens within the prefix shared with the previous call, and its tokens in the cache."""

    origin: str
    tokens: int
    shared: int
    cached: int
    written: int
    broke: bool


@dataclass(frozen=True, slots=True)
class PrefixReuse:
    """The prefix that a request shares with the previous call of the same model and thread. All amounts in tokens.

    `cached` is predicted by `rules`, from all calls of the same model in the run; both are None if the model's caching is
    unknown. `written` counts the cache writes, if they have a price.
    """

    request: RecordedRequest = field(repr=False)
    model: str
    rules: CacheRules | None
    tokens: int
    shared: int
    cached: int | None
    written: int
    broken_by: str | None
    """The origin of the first part that differs from the previous request; None if the previous request is a prefix."""
    is_first: bool  # whether there was no previous call
    by_part: tuple[tuple[RequestPart, ...], Mapping[str, int]] = field(repr=False)
    """The parts of the request, and the shared tokens by origin."""

    @property
    def parts(self) -> tuple[PartReuse, ...]:
        """The shared and cached tokens of each part."""
        parts, shared = self.by_part
        return tuple(_by_origin(parts, shared, self.broken_by, self.cached or 0, self.written))

    @property
    def paid(self) -> float | None:
        """The equivalent number of ordinary input tokens, or None if there is no prediction."""
        if self.rules is None or self.cached is None:
            return None
        rest = self.tokens - self.cached - self.written
        return rest + self.cached * self.rules.read + self.written * self.rules.write


_Chain: TypeAlias = int


class _Piece(NamedTuple):
    """One item or text at the front of a request; equal `chain` means that it and everything before it are equal."""

    before: _Chain
    kind: str
    text: str
    chain: _Chain
    tokens: int


@dataclass(frozen=True, slots=True)
class _Sent:
    parts: tuple[RequestPart, ...]
    tokens: int
    counter: Tokenizer
    pieces: tuple[_Piece, ...] = ()


@dataclass(slots=True)
class _Mark:
    """The part of an earlier request in a cache of marked prefixes: its first `depth` items."""

    sent: _Sent
    depth: int
    used_ms: float


_NO_MODEL: Final = ""
# How many requests with the same front and the same first history item to compare, newest first. If the history only
# grows, the newest has everything that the others have.
MOST_COMPARED: Final = 8


class _Front(NamedTuple):
    """The kept part of an answered request, and when it was sent."""

    sent: _Sent
    t_ms: float


class _Fronts:
    """Requests indexed by their beginnings: by chain for equal fronts, and sorted to find the nearest differing text."""

    def __init__(self) -> None:
        self._kept: deque[_Front] = deque()
        self._by_chain: dict[_Chain, list[_Front]] = {}
        # Sorted and distinct, with a count for each: most requests begin like the previous one.
        self._beginnings: list[tuple[_Chain, str, str]] = []
        self._times: dict[tuple[_Chain, str, str], int] = {}

    def add(self, sent: _Sent, t_ms: float) -> None:
        front = _Front(sent, t_ms)
        self._kept.append(front)
        for piece in sent.pieces:
            beginning = piece[:3]
            times = self._times[beginning] = self._times.get(beginning, 0) + 1
            if times == 1:
                insort(self._beginnings, beginning)
            fronts = self._by_chain.get(piece.chain)
            if fronts is None:
                self._by_chain[piece.chain] = [front]
            else:
                fronts.append(front)

    def forget(self, before_ms: float) -> None:
        """Forget the requests sent before a given time."""
        while self._kept and self._kept[0].t_ms < before_ms:
            gone = self._kept.popleft()
            for piece in gone.sent.pieces:
                fronts = self._by_chain[piece.chain]
                del fronts[0]  # the oldest request is also the oldest of its chain
                if not fronts:
                    del self._by_chain[piece.chain]
                beginning = piece[:3]
                self._times[beginning] -= 1
                if not self._times[beginning]:
                    del self._times[beginning]
                    del self._beginnings[bisect_left(self._beginnings, beginning)]

    def most(self, sent: _Sent) -> int:
        """Return the most leading tokens that a request shares with any of these."""
        chain = tokens = 0
        for piece in sent.pieces:
            if piece.chain not in self._by_chain:
                return tokens + self._alike(piece[:3], piece.tokens, sent.counter)
            chain, tokens = piece.chain, tokens + piece.tokens
        for other in reversed(self._by_chain.get(chain, [])[-MOST_COMPARED:]):
            if min(other.sent.tokens, sent.tokens) > tokens:
                tokens = max(tokens, shared_prefix(other.sent.parts, sent.parts, sent.counter).tokens)
        return tokens

    def _alike(self, beginning: tuple[_Chain, str, str], most: int, counter: Tokenizer) -> int:
        """Return the leading tokens that a text shares with the nearest text on the same chain."""
        place = bisect_left(self._beginnings, beginning)
        near = self._beginnings[max(0, place - 1) : place + 1]
        # Many requests begin alike: compare equal texts only once.
        texts = {text for chain, kind, text in near if chain == beginning[0] and kind == beginning[1]}
        return max([leading_tokens(text, beginning[2], most, counter) for text in texts], default=0)


def _pieces(parts: Sequence[RequestPart], counter: Tokenizer, known: Sequence[_Piece]) -> Iterable[_Piece]:
    """Yield the front of a request item by item, and the first item behind it; `known` has the first pieces."""
    chain = 0
    for at, (origin, body, tokens) in enumerate(parts):
        if len(body) > 1 and not isinstance(body, str):
            tokens = item_tokens(body[0], counter)
        if at < len(known):
            piece = known[at]
            if piece.tokens != tokens:  # an item with another id may have another count
                piece = piece._replace(tokens=tokens)
        elif isinstance(body, str):
            piece = _Piece(chain, origin, body, hash((chain, origin, body)), tokens)
        else:
            piece = _Piece(chain, *leading_text(body[0]), hash((chain, sent_hash(body[0]))), tokens)
        chain = piece.chain
        yield piece
        if origin in ("history", "appended") and not isinstance(body, str) and body[0].get("role") != "system":
            return


class Desk(NamedTuple):
    """When other conversations of an agent last sent the same head, in ms since 1970; None for the first conversation."""

    head_sent_ms: float | None

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Desk | None:
        """Return the caching data of an imported run, or None if it has none."""
        sent_ms = meta.get("head_sent_ms", "")
        return cls(sent_ms) if isinstance(sent_ms, int | float | None) else None


class CacheReader:
    """Finds the prefix that each call shares with earlier ones, with `rules` or the provider's published rules."""

    def __init__(
        self, rules: CacheRules | None = None, tokenizer: Tokenizer | None = None, desk: Desk | None = None
    ) -> None:
        self._rules = rules
        self._tokenizer = tokenizer
        self._desk = desk
        self.index = RequestIndex()
        self._last: dict[tuple[str, str], _Sent] = {}
        self._open: dict[tuple[str, str], tuple[str, _Sent, float, list[_Mark]]] = {}
        # The cache content by model: prefixes at marks, and other prefixes.
        self._marks: dict[str, list[_Mark]] = {}
        self._fronts: dict[str, _Fronts] = {}

    def take(self, event: RunEvent, *, seq: int | None = None, call: int | None = None) -> PrefixReuse | None:
        """Read one event; returns the prefix that a complete request shares with earlier ones, or None."""
        at = self.index.take(event, seq=seq, call=call)
        return None if at is None else self.read(event, self.index.requests[at])

    def read(self, event: RunEvent, request: RecordedRequest | None) -> PrefixReuse | None:
        """Do the same for an event that another index has read, given the request that began or ended with it."""
        if request is None:
            return None
        if isinstance(event, ViewAssembled):
            request = request if self._tokenizer is None else replace(request, tokenizer=self._tokenizer)
            parts = parts_of(request) if may_be_whole(request) else ()
            if parts and is_whole(request, parts):
                return self.begin(request, parts, event.t_ms)
            # The next request has nothing to compare with.
            gone = [key for key in self._last if key[0] == request.where.thread_id]
            for key in gone:
                del self._last[key]
        if isinstance(event, ModelCalled):
            self.end(event)
        return None

    def begin(self, request: RecordedRequest, parts: tuple[RequestPart, ...], t_ms: float) -> PrefixReuse:
        """Compare a request, given as its parts, with earlier ones."""
        where, prepared = request.where, request.prepared
        called = _NO_MODEL if request.called is None else request.called.model
        model = called if prepared is None else prepared.model
        counter = request.counter
        rules = self._rules or cache_rules(model)
        thread = where.thread_id, model
        before = self._last.get(thread)
        nothing = Shared(0, {}, 0, None)
        shared = nothing if before is None else shared_prefix(before.parts, parts, counter)
        pieces: tuple[_Piece, ...] = ()
        if rules is not None and not rules.marked:
            # Each part of the front is one item; skip the equal ones.
            known = () if before is None or before.counter is not counter else before.pieces[: shared.whole]
            pieces = tuple(_pieces(parts, counter, known))
        sent = _Sent(parts, sum([part.tokens for part in parts]), counter, pieces)
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
            (parts, shared.by_origin),
        )

    def end(self, event: ModelCalled) -> None:
        """Update the cache content when a call was answered."""
        opened = self._open.pop((event.where.thread_id, event.where.execution_id), None)
        if opened is None or event.status != "ok":
            return
        model, sent, t_ms, hits = opened
        rules = self._rules or cache_rules(model)
        if rules is None:
            return
        if not rules.marked:
            self._fronts.setdefault(model, _Fronts()).add(sent, t_ms)
            return
        for mark in hits:
            mark.used_ms = max(mark.used_ms, t_ms)
        # A prefix that has expired now stays expired for all later requests.
        alive = [one for one in self._marks.get(model, []) if t_ms - one.used_ms <= rules.lifetime_ms]
        fresh = [_Mark(sent, depth, t_ms) for depth, tokens in _marks(sent) if tokens >= rules.minimum]
        self._marks[model] = alive + fresh

    def _cached(self, rules: CacheRules, model: str, sent: _Sent, t_ms: float) -> tuple[int, list[_Mark]]:
        """Return how many tokens of a request are in the cache, and the marks that were hit."""
        head = _head(sent)
        sent_ms = None if self._desk is None else self._desk.head_sent_ms
        best = 0 if sent_ms is None or t_ms - sent_ms > rules.lifetime_ms else head
        if not rules.marked:
            fronts = self._fronts.get(model)
            if fronts is not None:
                fronts.forget(t_ms - rules.lifetime_ms)
                best = max(best, min(fronts.most(sent), sent.tokens))
            return rules.whole(best) if self._desk is None else rules.found(best, head), []
        best, hits = rules.whole(best), list[_Mark]()
        known: dict[int, Shared] = {}
        for mark in reversed(self._marks.get(model, [])):
            if t_ms - mark.used_ms > rules.lifetime_ms:
                continue
            shared = known.get(id(mark.sent))
            if shared is None:
                shared = known[id(mark.sent)] = shared_prefix(mark.sent.parts, sent.parts, sent.counter)
            if mark.depth > shared.whole or not any(0 <= at - mark.depth < rules.lookback for at, _ in _marks(sent)):
                continue
            tokens = first_tokens(sent.parts, mark.depth, sent.counter)
            if tokens >= best:
                hits = [*(hits if tokens == best else ()), mark]
                best = tokens
        return best, hits


def _head(sent: _Sent) -> int:
    """Return the tokens that a request shares with other conversations: tools and instructions."""
    return sum([part.tokens for part in takewhile(lambda part: part.origin in HEAD, sent.parts)])


def _marks(sent: _Sent) -> list[tuple[int, int]]:
    """Return the marks of a request: how many items precede each, and their tokens."""
    marks: dict[int, int] = {}
    depth = tokens = 0
    for part in sent.parts:
        depth, tokens = depth + part.size, tokens + part.tokens
        if part.origin in ("tools", "system"):
            marks[depth] = tokens
    marks[depth] = tokens
    marks.pop(0, None)
    return sorted(marks.items())


def _written(rules: CacheRules | None, sent: _Sent, cached: int) -> int:
    """Return the tokens that a request writes to a cache with a write price: all up to its last mark, which is its end."""
    if rules is None or rules.write == 1 or sent.tokens < rules.minimum:
        return 0
    return sent.tokens - cached


def _by_origin(
    parts: Iterable[RequestPart], shared: Mapping[str, int], ends_at: str | None, cached: int, written: int
) -> Iterable[PartReuse]:
    tokens: dict[str, int] = {}
    held: dict[str, int] = {}
    left = cached
    for part in parts:
        took = min(left, part.tokens)
        left -= took
        tokens[part.origin] = tokens.get(part.origin, 0) + part.tokens
        held[part.origin] = held.get(part.origin, 0) + took
    if ends_at is not None:
        tokens.setdefault(ends_at, 0)
    for origin, count in tokens.items():
        took = held.get(origin, 0)
        put = count - took if written else 0
        yield PartReuse(origin, count, min(shared.get(origin, 0), count), took, put, origin == ends_at)
