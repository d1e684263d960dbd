"""The table of the effect of caching on the calls of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import nan
from typing import TYPE_CHECKING, Any, Final

from noetic_nb.events import ModelCalled, RunEvent
from noetic_nb.models._client import Usage
from noetic_nb.models._pricing import Price, check_price, cost_of
from noetic_nb.models.prompt_caching import CacheRules, checked_rules
from noetic_nb.redact import Redaction
from noetic_nb.runs._requests.imported_requests import ImportedRequests
from noetic_nb.runs._requests.prefix_reuse import CacheReader, Desk, PrefixReuse
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.tokenizers._named import asked_tokenizer
from noetic_nb.tokens import Tokenizer

if TYPE_CHECKING:
    import pandas

COLUMNS: Final = (
    "run_id:object thread_id:object execution_id:object turn:int64 seq:int64 t_ms:float64 call:float64 model:object "
    "provider:object part:object tokens:int64 shared:int64 broke:bool cached:float64 written:float64 paid:float64 "
    "cost_fresh:float64 cost_cached:float64 input_tokens:float64 reported:float64"
)
# What a price is asked for: prices of long requests may be others, and of none there is none.
_SAMPLE: Final = 1_000


def caching_frame(
    run_id: str,
    meta: Mapping[str, Any],
    events: Iterable[RunEvent],
    rules: CacheRules | str | None,
    price: Price | None,
    tokenizer: str | Tokenizer | None,
) -> pandas.DataFrame:
    """Return one row for each part of each request of some events; see `Run.caching`."""
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
    """Return the table of shared prefixes; `requests` are the requests with their ends, by their places in the run."""
    import pandas

    check_price(price)
    prices: dict[str, float | None] = {}
    rows: list[tuple[Any, ...]] = []
    for reuse in reuses:
        if reuse.model not in prices:
            prices[reuse.model] = _usd_of_input(reuse.model, price)
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


def _usd_of_input(model: str, price: Price | None) -> float | None:
    """Return the price of an ordinary input token in US dollars, None where nobody knows it."""
    usd = cost_of(Usage(_SAMPLE), model=model, price=price)
    return None if usd is None else usd / _SAMPLE
