"""The value of stopping: the spending saved in failed runs, against the good runs that are lost.

The recording is not changed: a stopped run ends there, and its alternative continuation is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress
from math import inf, isnan, nan
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from noetic_nb._core.arguments import check_seed
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._detection.calibration import Failure, none_scored
from noetic_nb.lab._detection.detectors import Detecting, Detector, Reached, Unscored, detectors_of
from noetic_nb.lab._detection.fitting import Booleans, Floats, percentiles, share, weights_of
from noetic_nb.lab._replaying.replay_report import known_part
from noetic_nb.lab._statistics.intervals import Cluster
from noetic_nb.lab._statistics.labels import By, Outcome, check_samples, clusters_of, domain_of, groups_of, labelled
from noetic_nb.models import Usage
from noetic_nb.models._pricing import Price, check_price, cost_of
from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import ended, model_calls

if TYPE_CHECKING:
    import pandas

Left: TypeAlias = Callable[[int], tuple[float, float, float]]
"""Maps a place in a run to the tokens, the cost and the seconds after it."""

_SAVED: Final = ("tokens_saved", "cost_saved", "time_saved_s")


def table_of(
    policies: Mapping[str, tuple[Sequence[float], Sequence[Sequence[Reached]]]],
    left: Sequence[Left],
    failed: Sequence[bool],
    clusters: Sequence[Cluster],
    domains: Sequence[str],
    *,
    samples: int,
    seed: int,
) -> pandas.DataFrame:
    """Return the rows of each policy, given by its thresholds and the points where each run reaches each height."""
    import pandas

    rows: list[dict[str, Any]] = []
    here = np.asarray(domains)
    parts = [("all", np.ones(len(here), dtype=bool)), *[(name, here == name) for name in sorted(set(domains))]]
    labels = np.asarray(failed)
    clusters_in = {name: list(compress(clusters, part)) for name, part in parts}
    weights = {name: weights_of([one.task for one in some], samples, seed) for name, some in clusters_in.items()}
    for policy, (thresholds, traces) in policies.items():
        stopped, saved = _stopped(thresholds, traces, left)
        for name, part in parts:
            # A sum with an unknown part is unknown at every threshold: a row of zeros would look measured.
            wholes = np.asarray([after(-1) for after in left])[part & labels]
            known = (~np.isnan(wholes).any(axis=0)).tolist()
            for place, threshold in enumerate(thresholds):
                row = _row(
                    stopped[place][part], saved[place][part], labels[part], known, weights[name], clusters_in[name]
                )
                rows.append({"policy": policy, "domain": name, "threshold": float(threshold), **row})
    return pandas.DataFrame(rows)


def _stopped(
    thresholds: Sequence[float], traces: Sequence[Sequence[Reached]], left: Sequence[Left]
) -> tuple[Booleans, Floats]:
    """Return the runs stopped at each threshold, and the spending after that point."""
    stopped = np.zeros((len(thresholds), len(traces)), dtype=bool)
    saved = np.zeros((len(thresholds), len(traces), len(_SAVED)))
    wanted = np.asarray(thresholds)
    for at, (trace, after) in enumerate(zip(traces, left, strict=True)):
        # Heights only grow, so a run is stopped at the first one that is high enough.
        first = np.searchsorted([score for _, score in trace], wanted, side="left")
        remaining = [after(seq) for seq, _ in trace]
        for place, height in enumerate(first):
            if height < len(trace):
                stopped[place, at] = True
                saved[place, at] = np.nan_to_num(remaining[height])
    return stopped, saved


def _row(
    stopped: Booleans,
    saved: Floats,
    failed: Booleans,
    known: Sequence[bool],
    weights: Floats,
    clusters: Sequence[Cluster],
) -> dict[str, float]:
    row: dict[str, float] = {"good": int((~failed).sum()), "failed": int(failed.sum())}
    of_failed = np.where((stopped & failed)[:, None], saved, 0.0)
    drawn = weights @ of_failed
    for place, name in enumerate(_SAVED):
        row[name] = float(of_failed[:, place].sum()) if known[place] else nan
        has_ends = known[place] and len({one.task for one in clusters}) > 1
        row[f"{name}_low"], row[f"{name}_high"] = percentiles(drawn[:, place]) if has_ends else (nan, nan)
    for name, among in (("good_lost", ~failed), ("failed_stopped", failed)):
        row[name], row[f"{name}_low"], row[f"{name}_high"] = share(stopped, among, clusters)
    return row


CAP: Final = "cap on steps"
DETECTOR: Final = "detector"
MOST_THRESHOLDS: Final = 200
"""The maximum number of rows; of more thresholds, only every n-th is used."""

UNITS: Final = {"tokens_saved": "tokens", "cost_saved": "US dollars", "time_saved_s": "s"}
_ABOUT: Final = (
    "95 %, nothing fitted again; sums: whole tasks drawn again; shares: Wilson's, from the spread between tasks"
)

_Price: TypeAlias = Price | str | None


@dataclass(frozen=True, slots=True)
class _Spent:
    """The spending of one run, model call by model call."""

    seqs: tuple[int, ...]
    """Event indices of its calls."""
    after: Mapping[str, tuple[float, ...]]
    """By resource: the amount from each call to the end, then 0; NaN if one of the calls does not report it."""
    ends_ms: float
    t_ms: tuple[float, ...]
    """The time of each event; empty if not measured."""

    def left(self, seq: int) -> tuple[float, float, float]:
        """Return tokens, cost and seconds after a place."""
        place = next((at for at, call in enumerate(self.seqs) if call > seq), len(self.seqs))
        seconds = nan
        if self.t_ms:
            seconds = max(0.0, self.ends_ms - self.t_ms[max(seq, 0)]) / 1_000
        return self.after["tokens"][place], self.after["cost"][place], seconds


def _sums_to_the_end(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(accumulate(reversed(values), initial=0.0))[::-1]


def _cost(model: str, usage: Usage, known: float | None, price: _Price) -> float:
    if price is None:
        return nan if known is None else known
    if not usage.total_tokens:
        return nan
    if isinstance(price, str):
        cost = cost_of(usage, model=price)
    else:
        cost = cost_of(usage, model=model, price=price)
    return nan if cost is None else cost


def _spent(run: Run, price: _Price) -> _Spent:
    places = model_calls(run)
    tokens = [
        float(call.input_tokens + call.output_tokens) if call.input_tokens or call.output_tokens else nan
        for _, call in places
    ]
    after = {
        # A run without model calls was recorded by a program that does not see them.
        "tokens": _sums_to_the_end(tokens) if places else (nan,),
        "cost": _sums_to_the_end([_cost(call.model, Usage(*call.counts), call.cost, price) for _, call in places])
        if places
        else (nan,),
    }
    is_timed = "t_ms" not in (run.meta.get("estimated") or ())
    ends = [event.t_ms for _, event in ended(run)]
    return _Spent(
        tuple([seq for seq, _ in places]),
        after,
        max(ends, default=0.0),
        tuple([event.t_ms for event in run.events]) if is_timed else (),
    )


def _steps(run: Run) -> list[Reached]:
    """Return the points where a step cap stops: after its last step, if another one followed."""
    places = [seq for seq, call in model_calls(run) if call.purpose == "agent"]
    return [Reached(seq, float(steps)) for steps, seq in enumerate(places[:-1], start=1)]


def economics(
    detector: Detector,
    runs: Run | Iterable[Run],
    *,
    price: _Price = None,
    outcome: Outcome = "outcome",
    by: By = "task",
    samples: int = 1_000,
    seed: int = 0,
) -> pandas.DataFrame:
    """Return the savings and losses of stopping, at every threshold, compared with a plain cap on steps.

    A run is stopped at the event where its score first reaches the threshold. The later spending of failed runs is
    saved; a good run that is stopped is lost. See docs/behaviour/lab.md, "What stopping is worth".

    Parameters
    ----------
    detector : function of a run, predicate or Regulator
        The source of a score, see `calibrate`. A function is called with the run so far, at each model or tool call.
    runs : Run or iterable of Run
        Recorded runs. Those without a label are left out and counted.
    price : tuple of float, callable or str, optional
        US dollars per million (input, output) tokens, a function of the model's name and the usage, or a model in the
        price list of the extra ``prices``. By default the recorded cost.
    outcome : str or callable
        A key of ``run.meta`` or a function of a run: True good, False failed, None unknown.
    by : str or callable
        ``"task"``, ``"run"``, or a function of a run that returns its group.
    samples, seed : int
        The number of bootstrap samples of tasks for the intervals, and their seed.

    Returns
    -------
    pandas.DataFrame
        One row per ``policy`` (``"detector"``, ``"cap on steps"``), ``domain`` (``"all"`` and each) and ``threshold``:
        the score from which a run is stopped, or the maximum number of model calls. With their ``_low`` and ``_high``:
        ``tokens_saved``, ``cost_saved`` (US dollars) and ``time_saved_s`` of failed runs, and the shares of runs
        ``good_lost`` and ``failed_stopped``; ``good`` and ``failed`` are the numbers of runs. A value that a failed run
        of a domain lacks is missing in all rows of the domain. For replays that are only known up to some point,
        ``tokens_saved_known`` and so on count up to there; ``attrs["known"]`` has their number. ``attrs`` also has the
        ``units``, by domain the number of runs whose tokens, cost or time are ``unknown`` or ``estimated``, the runs
        that the detector could not score (``failures``, left out), and the number of ``unlabelled`` runs.

    Raises
    ------
    NoeticConfigError
        As `calibrate`, and ``INVALID_PRICE``.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> from noetic_nb.regulator import CallBudget
    >>> frame = economics(CallBudget(), datasets.airline(), samples=100)
    >>> row = frame[(frame.policy == "detector") & (frame.domain == "all") & (frame.threshold == 13)].iloc[0]
    >>> int(row.tokens_saved), float(row.good_lost), bool(frame.cost_saved.isna().all())
    (177565, 0.1, True)
    """
    detecting = detectors_of(detector)
    if len(detecting) > 1:
        what = "The value of only one detector can be computed at a time."
        hint = "Call economics for each of them."
        raise NoeticConfigError("INVALID_DETECTOR", what, given=[each.name for each in detecting], hint=hint)
    if not isinstance(price, str):
        check_price(price)
    elif cost_of(Usage(1_000, 1_000), model=price) is None:
        hint = "Run: pip install 'noetic_nb[prices]', or pass US dollars per million (input, output) tokens."
        raise NoeticConfigError("INVALID_PRICE", "The price of this model is unknown.", given=price, hint=hint)
    check_samples(samples)
    check_seed(seed)
    found, failed, unlabelled = labelled(runs, outcome)
    groups_of(found, by)  # checked before any work is done
    traces: list[list[Reached]] = []
    failures: list[Failure] = []
    kept: list[Run] = []
    labels: list[bool] = []
    for run, has_failed in zip(found, failed, strict=True):
        try:
            traces.append(detecting[0].trace(run))
        except Unscored as why:
            failures.append(Failure(detecting[0].name, run.run_id, str(why)))
        else:
            kept.append(run)
            labels.append(has_failed)
    if not kept:
        raise none_scored(failures[0], runs=len(found))
    spent = [_spent(run, price) for run in kept]
    domains = [domain_of(run) for run in kept]
    heights, steps = _thresholds(traces), [_steps(run) for run in kept]
    # One more than any run needs, so that the last threshold stops none.
    caps = [float(cap) for cap in range(1, max(map(len, steps)) + 2)]
    about = labels, [each for each in clusters_of(kept, by) if each is not None], domains
    frame = table_of(
        {DETECTOR: (heights, traces), CAP: (caps, steps)},
        [each.left for each in spent],
        *about,
        samples=samples,
        seed=seed,
    )
    parts = [known_part(run) for run in kept]
    partly = sum([part is not run for part, run in zip(parts, kept, strict=True)])
    if partly:
        # In replays, a stop after the known part, and spending there, belong to the original run.
        cut = [
            trace if part is run else _known_trace(detecting[0], part)
            for trace, part, run in zip(traces, parts, kept, strict=True)
        ]
        steps = [_steps(part) for part in parts]
        left = [_spent(part, price).left for part in parts]
        known = table_of({DETECTOR: (heights, cut), CAP: (caps, steps)}, left, *about, samples=1, seed=seed)
        for name in (*_SAVED, "good_lost", "failed_stopped"):
            frame[f"{name}_known"] = known[name]
    frame.attrs = {
        "detector": detecting[0].name,
        "units": dict(UNITS),
        "unknown": {
            "tokens": _count(domains, [isnan(each.after["tokens"][0]) for each in spent]),
            "cost": _count(domains, [isnan(each.after["cost"][0]) for each in spent]),
            "time": _count(domains, [not each.t_ms for each in spent]),
        },
        "estimated": {
            "tokens": _count(
                domains,
                [not {"input_tokens", "output_tokens"}.isdisjoint(run.meta.get("estimated") or ()) for run in kept],
            )
        },
        "failures": [tuple(failure) for failure in failures],
        "unlabelled": unlabelled,
        "known": _said(partly, len(kept)),
        "intervals": _ABOUT,
        "samples": samples,
        "seed": seed,
    }
    return frame


def _known_trace(detecting: Detecting, part: Run) -> list[Reached]:
    try:
        return detecting.trace(part)
    except Unscored:  # the detector needs an unknown value
        return []


def _said(partly: int, of: int) -> str:
    if not partly:
        return "Every run is known to its end."
    return f"{partly} of {of} runs are replays known up to a first change only; columns that end in _known count up to there."


def _count(domains: Sequence[str], are: Sequence[bool]) -> dict[str, int]:
    return dict(Counter(compress(domains, are)))


def _thresholds(traces: Iterable[Sequence[Reached]]) -> list[float]:
    heights = sorted({score for trace in traces for _, score in trace if -inf < score < inf})
    if len(heights) <= MOST_THRESHOLDS:
        return heights
    step = (len(heights) - 1) / (MOST_THRESHOLDS - 1)
    return [heights[round(place * step)] for place in range(MOST_THRESHOLDS)]
