"""Two lists of runs, or two evaluations, in pairs: mean differences with intervals over tasks.

References
----------
.. [1] Yao, S., Shinn, N., Razavi, P., and Narasimhan, K. (2024). tau-bench: a benchmark for tool-agent-user interaction in
   real-world domains, section 3. arXiv:2406.12045.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, isnan, nan
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._replaying.replay_report import costs_of, drops_of, known_part, sent_tokens, tokens_of
from noetic_nb.lab._rule_scores.evaluation import LINES, Evaluation
from noetic_nb.lab._statistics.intervals import NO_TASKS, Cluster, counted, student_interval
from noetic_nb.lab._statistics.labels import By, clusters_of, runs_in
from noetic_nb.runs import Run

if TYPE_CHECKING:
    import pandas


class Difference(NamedTuple):
    """One metric: the mean of both sides, the mean of ``b - a`` with its 95 % interval over tasks, and the pairs.

    ``p`` is the sign test's: the probability of so many tasks leaning one way if neither side is better. If user tasks
    are crossed with injections, it is the larger of the two. With few tasks, rely on it rather than the interval. The
    means of known parts are None if all runs are known to their ends.
    """

    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    n: int
    p: float = nan
    a_known: float | None = None
    b_known: float | None = None
    difference_known: float | None = None


_KNOWN: Final = "Some runs are known up to a first change only; means of known parts count up to there"
_COLUMNS: Final = Difference._fields[:8]


@with_card(shown="as HTML")
@dataclass(frozen=True)
class PairedComparison:
    """Two lists of runs in pairs.

    Attributes
    ----------
    rows : tuple of Difference
        One per metric.
    paired_by : {"task and trial", "position"}
        The rule by which runs were paired.
    pairs : int
        The number of pairs; each metric uses only pairs in which both numbers are known.
    unpaired : tuple of str
        Runs without a counterpart, which are not used.
    """

    rows: tuple[Difference, ...]
    paired_by: str
    pairs: int
    unpaired: tuple[str, ...]

    def to_frame(self) -> pandas.DataFrame:
        """Return ``metric, a, b, difference, low, high, n, p``.

        If a side is only known up to some point, ``a_known, b_known, difference_known`` follow: the means up to there.
        """
        import pandas

        columns = Difference._fields if self._is_partly_known else _COLUMNS
        return pandas.DataFrame([row._asdict() for row in self.rows], columns=list(columns))

    @property
    def _is_partly_known(self) -> bool:
        return any(row.difference_known is not None for row in self.rows)

    def _title(self) -> str:
        alone = f"; {len(self.unpaired)} without a counterpart" if self.unpaired else ""
        known = f". {_KNOWN}" if self._is_partly_known else ""
        intervals = f"; {NO_TASKS}" if any(row.n and isnan(row.p) for row in self.rows) else ""
        return f"{self.pairs} pairs by {self.paired_by}{alone}{intervals}{known}"

    def __repr__(self) -> str:
        lines = [f"Comparison of {self._title()}"]
        for row in self.rows:
            bounds = "no interval" if isnan(row.low) else f"[{row.low:.4g}, {row.high:.4g}]"
            known = "" if row.difference_known is None else f", known {row.difference_known:+.4g}"
            numbers = f"{row.a:>10.4g} {row.b:>10.4g} {row.difference:>+10.4g} {bounds}"
            sign = "" if isnan(row.p) else f", sign test p = {row.p:.2g}"
            lines.append(f"  {row.metric:<13} {numbers}, n = {row.n}{sign}{known}")
        return "\n".join(lines)

    def _card(self) -> Card:
        rows = [[cell if isinstance(cell, str | int) else f"{cell:.4g}" for cell in row[:8]] for row in self.rows]
        return Card("Comparison", facts=[("", self._title())], table=Table(_COLUMNS, rows))


def _views(run: Run, number: Callable[[Any], int]) -> int | None:
    views = [view for turn in run.turns for view in turn.views]
    return sum([number(view) for view in views]) if views else None


def _good(run: Run) -> float | None:
    label = run.meta.get("outcome")
    return float(label) if isinstance(label, bool) else None


def _tokens(run: Run) -> int | None:
    known = [tokens_of(turn) for turn in run.turns]
    return None if None in known else sum([number or 0 for number in known])


METRICS: Final[Mapping[str, Callable[[Run], Any]]] = {
    "outcome": _good,
    "turns": lambda run: len(run.turns),
    "model calls": lambda run: sum([len(turn.model_calls) for turn in run.turns]),
    "tool calls": lambda run: sum([len(turn.tool_calls) for turn in run.turns]),
    "tokens": _tokens,
    "sent tokens": lambda run: _views(run, sent_tokens),
    "drops": lambda run: _views(run, drops_of),
    "cost": lambda run: costs_of(run.events),
    "denied": lambda run: sum([event.action == "deny" for turn in run.turns for event in turn.steering]),
}
"""The default metrics."""


def compare_paired(
    a: Iterable[Run], b: Iterable[Run], *, metrics: Mapping[str, Callable[[Run], Any]] | None = None, by: By = "task"
) -> PairedComparison:
    """Compare two lists of runs in pairs; see `compare`."""
    given: object = metrics
    if given is not None and not isinstance(given, Mapping):
        hint = "For example: metrics={'turns': lambda run: len(run.turns)}."
        raise NoeticConfigError("INVALID_METRIC", "Metrics must map names to functions.", given=given, hint=hint)
    left, right = runs_in(a), runs_in(b)
    pairs, paired_by, unpaired = _paired(left, right)
    clusters = clusters_of([run for run, _ in pairs], by)
    parts = [(known_part(one), known_part(other)) for one, other in pairs]
    is_partly = any(run.known_until for pair in pairs for run in pair)
    rows = []
    for name, metric in (METRICS if metrics is None else metrics).items():
        sides = [(_number(metric, name, one), _number(metric, name, other)) for one, other in pairs]
        known = [at for at, (one, other) in enumerate(sides) if not isnan(one) and not isnan(other)]
        if not known and metrics is None:
            continue  # unknown, such as drops in runs of other packages
        is_share = metrics is not None or name == "outcome"
        row = _difference(name, [sides[at] for at in known], [clusters[at] for at in known], is_share=is_share)
        if is_partly:
            row = _with_known(row, [_known_side(metric, name, pairs[at], parts[at], sides[at]) for at in known])
        rows.append(row)
        if name == "outcome" and metrics is None:
            rows += _all_succeed([sides[at] for at in known], [clusters[at] for at in known])
    return PairedComparison(tuple(rows), paired_by, len(pairs), unpaired)


def compare_evaluations(a: Evaluation, b: Evaluation, *, by: By = "task") -> PairedComparison:
    """Compare two rule books on the same runs, or on runs of the same tasks, as far as runs have a counterpart."""
    pairs, paired_by, unpaired = _paired([each.run for each in a.judged], [each.run for each in b.judged])
    clusters = clusters_of([run for run, _ in pairs], by)
    of_a, of_b = ({id(each.run): each for each in one.judged} for one in (a, b))
    rows = []
    for line in LINES:
        sides: list[tuple[float, float]] = []
        known: list[tuple[float, float]] = []
        groups: list[Cluster | None] = []
        for (one, other), cluster in zip(pairs, clusters, strict=True):
            # For calls only their share matters, not which calls of a run are denied.
            numbers = [a.hits(line, of_a[id(one)]), b.hits(line, of_b[id(other)])]
            if len(numbers[0]) == len(numbers[1]):
                sides += zip(*numbers, strict=True)
                groups += [cluster] * len(numbers[0])
                both = (a.hits(line, of_a[id(one)], known=True), b.hits(line, of_b[id(other)], known=True))
                known += zip(*both, strict=True)
        if sides:
            row = _difference(line, sides, groups)
            rows.append(_with_known(row, known) if known != sides else row)
    return PairedComparison(tuple(rows), paired_by, len(pairs), unpaired)


def _difference(
    name: str, sides: Sequence[tuple[float, float]], clusters: Sequence[Cluster | None], *, is_share: bool = True
) -> Difference:
    """Return the row of a metric; `is_share` is False for an amount, which is no share even if all values are 0 or 1."""
    n = len(sides)
    if not n:
        return Difference(name, nan, nan, nan, nan, nan, 0)
    gaps = [other - one for one, other in sides]
    low, high = student_interval(gaps, clusters)
    values = {value for side in sides for value in side}
    if is_share and len(set(gaps)) == 1 and values <= {0, 1}:
        # All pairs agree: use an upper bound of the share of pairs that would differ.
        beyond = counted([0] * n, clusters).high
        low, high = gaps[0] - beyond, gaps[0] + beyond
    elif not any(gaps):
        low = high = nan  # nothing bounds an amount that never differs
    if is_share and all(0 <= value <= 1 for value in values):
        low, high = max(low, -1.0), min(high, 1.0)  # unknown ends stay NaN
    a, b = sum([one for one, _ in sides]) / n, sum([other for _, other in sides]) / n
    return Difference(name, a, b, sum(gaps) / n, low, high, n, _sign_test(gaps, clusters))


def _sign_test(gaps: Sequence[float], clusters: Sequence[Cluster | None]) -> float:
    """Return the two-sided p-value of the sign test over tasks; tasks without a difference do not count.

    If tasks are crossed with injections, it is the larger p-value of the tests over either.
    """
    known = [cluster for cluster in clusters if cluster is not None]
    if len(known) < len(clusters):
        return nan
    ways = [[cluster.task for cluster in known], [cluster.injection for cluster in known]]
    usable = [way for way in ways if None not in way and len(set(way)) > 1] or ways[:1]
    found = []
    for way in usable:
        sums: defaultdict[Hashable, float] = defaultdict(float)
        for gap, group in zip(gaps, way, strict=True):
            sums[group] += gap
        leans = [gap > 0 for gap in sums.values() if gap]
        rarer = min(sum(leans), len(leans) - sum(leans))
        found.append(float(sum([comb(len(leans), k) for k in range(rarer + 1)])) / 2.0 ** (len(leans) - 1))
    return min(1.0, max(found))


def _all_succeed(sides: Sequence[tuple[float, float]], clusters: Sequence[Cluster | None]) -> list[Difference]:
    """Return a row for each k: the unbiased estimate that k trials of a task all succeed (pass^k [1]_)."""
    by_task: defaultdict[Cluster | None, list[tuple[float, float]]] = defaultdict(list)
    for side, cluster in zip(sides, clusters, strict=True):
        by_task[cluster].append(side)
    if None in by_task:
        return []
    rows = []
    for k in range(2, min(map(len, by_task.values()), default=0) + 1):
        chances = []
        for some in by_task.values():
            one, other = (comb(round(sum(trials)), k) / comb(len(some), k) for trials in zip(*some, strict=True))
            chances.append((one, other))
        rows.append(_difference(f"pass^{k}", chances, list(by_task)))
    return rows


def _with_known(row: Difference, sides: Sequence[tuple[float, float]]) -> Difference:
    """Add the means of the known parts of runs, over pairs in which both numbers are known."""
    known = [side for side in sides if not isnan(side[0]) and not isnan(side[1])]
    a, b = (sum([side[at] for side in known]) / len(known) if known else nan for at in (0, 1))
    return row._replace(a_known=a, b_known=b, difference_known=b - a)


def _known_side(
    metric: Callable[[Run], Any], name: str, runs: tuple[Run, Run], parts: tuple[Run, Run], side: tuple[float, float]
) -> tuple[float, float]:
    found = []
    for run, part, number in zip(runs, parts, side, strict=True):
        try:
            found.append(number if part is run else _number(metric, name, part))
        except NoeticConfigError:  # the metric needs the end of a run, which is unknown
            found.append(nan)
    return found[0], found[1]


def _number(metric: Callable[[Run], Any], name: str, run: Run) -> float:
    try:
        value = metric(run)
        return nan if value is None else float(value)
    except Exception as error:
        what = f"Metric {name!r} of {run.run_id} could not be computed: {type(error).__name__}: {error}"
        hint = "It must be a function of a run that returns a number, or None if it is unknown."
        raise NoeticConfigError("INVALID_METRIC", what, given=metric, hint=hint) from error


def _paired(left: Sequence[Run], right: Sequence[Run]) -> tuple[list[tuple[Run, Run]], str, tuple[str, ...]]:
    if all(run.meta.get("task_id") is not None for run in (*left, *right)):
        keys, others = _keys(left), _keys(right)
        pairs = [(run, others[key]) for key, run in keys.items() if key in others]
        alone = [run.run_id for key, run in keys.items() if key not in others]
        alone += [run.run_id for key, run in others.items() if key not in keys]
        if pairs:
            return pairs, "task and trial", tuple(alone)
        raise _unpaired(left, right, "The lists have no task and trial in common.")
    if len(left) != len(right):
        raise _unpaired(left, right, "Runs without a task id are paired by position, and one list is longer.")
    return list(zip(left, right, strict=True)), "position", ()


def _unpaired(left: Sequence[Run], right: Sequence[Run], what: str) -> NoeticConfigError:
    hint = "Set run.meta['task_id'] and run.meta['trial'], or pass lists that belong together."
    return NoeticConfigError("UNPAIRED_RUNS", what, given={"a": len(left), "b": len(right)}, hint=hint)


def _keys(runs: Sequence[Run]) -> dict[tuple[Hashable, ...], Run]:
    """Return runs by domain, suite, task and trial; equal keys are numbered, so that they are paired in order."""
    seen: Counter[tuple[Hashable, ...]] = Counter()
    found: dict[tuple[Hashable, ...], Run] = {}
    for run in runs:
        meta = run.meta
        key = (meta.get("domain"), meta.get("suite"), repr(meta["task_id"]), repr(meta.get("trial")))
        found[(*key, seen[key])] = run
        seen[key] += 1
    return found
