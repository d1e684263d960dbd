"""Learns a token counter from the usage reported for the agent's calls, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item
from noetic_nb.runs._requests.recorded_requests import requests_of
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.tokenizers._factors import Tally
from noetic_nb.tokenizers._learning import TokenCalibration
from noetic_nb.tokenizers._named import as_tokenizer
from noetic_nb.tokens import Tokenizer, estimate_tokens

if TYPE_CHECKING:
    from noetic_nb.runs._run import Run

__all__ = ["CountedCall", "counted_calls", "token_calibration"]


class CountedCall(NamedTuple):
    """One call as a counter sees it: its item counts by kind, its bill, and the same for the call it continues."""

    model: str
    tally: Tally
    reported: int
    before: tuple[Tally, int] | None
    new: tuple[Item, ...]
    """The items that the previous call did not send."""


def counted_calls(run: Run, calibration: TokenCalibration) -> Iterator[CountedCall]:
    """Yield the agent's calls with usage; an import's first call absorbs the request parts missing in the run."""
    index = requests_of(run)
    last: dict[tuple[str, str], tuple[Sequence[Item], Tally, int, Tally]] = {}
    for at in index.places:
        request = index.requests[at]
        called = request.called
        if called is None or called.input_tokens <= 0:
            continue
        items = _sent(request)
        if items is None:
            continue
        where = called.where
        key = where.thread_id, "" if where.depth == 0 else where.execution_id
        counter = calibration.tokenizer(called.model)
        before = last.pop(key, None)
        is_longer = before is not None and len(before[0]) <= len(items)
        if before is not None and not (is_longer and all(map(is_, before[0], items))):
            new, base = items, None
        else:
            new, base = items[0 if before is None else len(before[0]) :], before
        if request.prepared is not None:
            beside = counter.tally((), instructions=request.prepared.instructions, tools=request.prepared.tools)
        else:
            beside = Tally({}) if before is None else before[3]
        tally = (beside if base is None else base[1]) + counter.tally(new)
        if request.prepared is None and before is None:
            beside = Tally({}, max(0, called.input_tokens - sum(tally.counts.values()) - tally.framing))
            tally = tally + beside
        past = None if before is None else (before[1], before[2])
        if past is None or called.input_tokens >= past[1] or not tally.has_all_of(past[0]):
            yield CountedCall(called.model, tally, called.input_tokens, past, tuple(new))
            last[key] = (items, tally, called.input_tokens, beside)


def _sent(request: RecordedRequest) -> Sequence[Item] | None:
    """Return the sent items, or the whole log if the request is not in the run; None if items are missing."""
    if request.view is None:
        return None if request.first or request.known is None else tuple(request.known)
    found = [sent.item for sent in request.items]
    return None if None in found else [item for item in found if item is not None]


def token_calibration(runs: Run | Iterable[Run], base: str | Tokenizer = estimate_tokens) -> TokenCalibration:
    """Return a calibration learned from runs; pass it to a harness as its ``tokenizer``, or get a model's tokenizer from it.

    Parameters
    ----------
    runs : Run or iterable of Run
        With usage; calls without usage are skipped.
    base : str or callable
        The base counter: a name for `noetic_nb.tokenizers.get`, or a function.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUNS`` for a value that is not a run, and the errors of `get`.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> learned = token_calibration(datasets.retail(8))
    >>> learned.models, learned.factors("gpt-4.1").of("tool") > 1
    (('gpt-4.1',), True)
    """
    calibration = TokenCalibration(as_tokenizer(base))
    given: Any = runs if isinstance(runs, Iterable) and not hasattr(runs, "events") else [runs]
    for run in given:
        if not hasattr(run, "events"):
            raise NoeticConfigError("INVALID_RUNS", "A calibration needs runs.", given=run)
        for call in counted_calls(run, calibration):
            calibration.observe(call.model, call.tally, call.reported, before=call.before)
    calibration.learn()
    return calibration
