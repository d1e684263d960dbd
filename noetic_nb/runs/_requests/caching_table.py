"""The table of caching effects in a run; requests of imported runs are reconstructed for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import nan
from typing import TYPE_CHECKING, Any, Final

from noetic_nb.events import ContextCompacted, ModelCalled, RunEvent
from noetic_nb.items._build import content_tokens
from noetic_nb.models._client import Usage
from noetic_nb.models._pricing import Price, check_price, cost_of
from noetic_nb.models.prompt_caching import CacheRules, checked_rules
from noetic_nb.redact import Redaction
from noetic_nb.runs._requests.prefix_reuse import CacheReader, Desk, PrefixReuse
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runs._requests.shared_requests import HEAD, RequestPart
from noetic_nb.tokenizers._named import asked_tokenizer
from noetic_nb.tokens import Tokenizer, estimate_tokens

if TYPE_CHECKING:
    import pandas

UNNAMED: Final = "recorded"  # the model of a call whose source names none
_HEAD_ROLES: Final = ("system", "developer")


class ImportedRequests:
    """Reconstructs the requests of an imported run, each from the whole log before it, sized by the billed input tokens."""

    def __init__(self, meta: Mapping[str, Any]) -> None:
        policy = meta.get("policy")
        self._policy = policy if isinstance(policy, str) else ""
        self._sent: dict[tuple[str, str], tuple[list[RequestPart], int]] = {}
        self._compacted = 0

    def compacted(self, event: RunEvent) -> None:
        """Read an event: after a compaction, only the head of a request is unchanged."""
        sent = self._sent.get(_key(event)) if isinstance(event, ContextCompacted) else None
        if sent is None:
            return
        self._compacted += 1
        head = [part for part in sent[0] if part.origin in HEAD]
        body = f"the context after compaction {self._compacted}"
        self._sent[_key(event)] = [*head, RequestPart("history", body, 0)], sent[1]

    def parts(self, request: RecordedRequest) -> tuple[RequestPart, ...]:
        """Return the parts of a request; empty if its model or size is unknown."""
        event, log = request.called, request.known
        if request.view is not None or event is None or log is None or not event.input_tokens or event.model == UNNAMED:
            return ()
        known, length = self._sent.get(_key(event), ([], 0))
        if not known:
            known = self._first(log, event.input_tokens)
        else:
            known = _grown(known, log[length:], event.input_tokens, request.place)
        self._sent[_key(event)] = known, len(log)
        return tuple(known)

    def _first(self, log: Any, tokens: int) -> list[RequestPart]:
        front = next((at for at, item in enumerate(log) if item.get("role") not in _HEAD_ROLES), len(log))
        system = [RequestPart("system", (item,), content_tokens(item)) for item in log[:front]]
        if not front and self._policy:
            system = [RequestPart("system", self._policy, estimate_tokens(self._policy))]
        talk = min(tokens, sum(map(content_tokens, log[front:])))
        told = sum([part.tokens for part in system])
        if told > tokens - talk:  # counters disagree: nothing is left for tools
            shares = [part.tokens * (tokens - talk) // told for part in system]
            system = [part._replace(tokens=share) for part, share in zip(system, shares, strict=True)]
        rest = tokens - talk - sum([part.tokens for part in system])
        tools = [RequestPart("tools", "not recorded", rest)] if rest else []
        return [*tools, *system, *_stretch(log[front:], talk, 0)]


def _stretch(items: Any, tokens: int, place: int | None) -> list[RequestPart]:
    if len(items):
        return [RequestPart("history", items, tokens)]
    return [RequestPart("history", f"sent with call {place}", tokens)] if tokens else []


def _grown(parts: list[RequestPart], items: Any, tokens: int, place: int | None) -> list[RequestPart]:
    """Return a request that continues an earlier one; a smaller one was cut at an unknown point, assumed to be at the end."""
    kept, left = [], tokens
    for part in parts:
        if part.tokens > left:
            break
        kept.append(part)
        left -= part.tokens
    return [*kept, *_stretch(items if len(kept) == len(parts) else (), left, place)]


def _key(event: Any) -> tuple[str, str]:
    where = event.where
    return where.thread_id, "" if where.depth == 0 else where.execution_id


COLUMNS: Final = (
    "run_id:object thread_id:object execution_id:object turn:int64 seq:int64 t_ms:float64 call:float64 model:object "
    "provider:object part:object tokens:int64 shared:int64 broke:bool cached:float64 written:float64 paid:float64 "
    "cost_fresh:float64 cost_cached:float64 input_tokens:float64 reported:float64"
)
# Sample size for asking a price: long requests may cost more per token, and an empty one has no price.
_SAMPLE: Final = 1_000


def caching_frame(
    run_id: str,
    meta: Mapping[str, Any],
    events: Iterable[RunEvent],
    rules: CacheRules | str | None,
    price: Price | None,
    tokenizer: str | Tokenizer | None,
) -> pandas.DataFrame:
    """Return one row for each part of each request in some events; see `Run.caching`."""
    reader = CacheReader(checked_rules(rules), asked_tokenizer(tokenizer), Desk.of(meta))
    imported, reuses = ImportedRequests(meta), []
    for event in events:
        imported.compacted(event)
        at = reader.index.take(event)
        request = None if at is None else reader.index.requests[at]
        parts = () if request is None or not isinstance(event, ModelCalled) else imported.parts(request)
        reuse = None
        if request is not None and parts:
            reuse = reader.begin(request, parts, event.t_ms)
        reuse = reader.read(event, request) or reuse
        if reuse is not None:
            reuses.append(reuse)
    frame = reuse_frame(run_id, reuses, {request.seq: request for request in reader.index.requests}, price)
    return frame.assign(input_tokens=nan) if "input_tokens" in (meta.get("estimated") or ()) else frame


def reuse_frame(
    run_id: str, reuses: Iterable[PrefixReuse], requests: Mapping[int, RecordedRequest], price: Price | None
) -> pandas.DataFrame:
    """Return the table of shared prefixes; `requests` maps places in the run to requests with their ends."""
    import pandas

    check_price(price)
    prices: dict[str, float | None] = {}
    rows: list[tuple[Any, ...]] = []
    for reuse in reuses:
        if reuse.model not in prices:
            usd = cost_of(Usage(_SAMPLE), model=reuse.model, price=price)
            prices[reuse.model] = None if usd is None else usd / _SAMPLE
        rows += _rows(run_id, reuse, requests[reuse.request.seq], prices[reuse.model])
    rule = Redaction()
    names = [column.split(":") for column in COLUMNS.split()]
    return pandas.DataFrame(
        {
            name: pandas.Series([rule.data(row[at]) if dtype == "object" else row[at] for row in rows], dtype=dtype)
            for at, (name, dtype) in enumerate(names)
        }
    )


def _rows(run_id: str, reuse: PrefixReuse, request: RecordedRequest, usd: float | None) -> Iterator[tuple[Any, ...]]:
    where, rules, end = request.where, reuse.rules, request.called
    view = request.view
    head = (run_id, where.thread_id, where.execution_id, where.turn, request.seq, None if view is None else view.t_ms)
    named = (request.place, reuse.model, None if rules is None else rules.provider)
    reported = (None, None) if end is None or not end.input_tokens else (end.input_tokens, end.cached_tokens)
    for part in reuse.parts:
        paid = cached = written = None
        if rules is not None:
            cached, written = part.cached, part.written
            paid = part.tokens - cached - written + cached * rules.read + written * rules.write
        costs = (None if usd is None else part.tokens * usd, None if usd is None or paid is None else paid * usd)
        told = (part.origin, part.tokens, part.shared, part.broke, cached, written, paid)
        yield (*head, *named, *told, *costs, *reported)
