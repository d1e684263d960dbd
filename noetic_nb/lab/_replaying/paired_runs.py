"""Two lists of runs, or two evaluations of them, in pairs: mean differences with intervals, whole tasks drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import SteeringDecided, ToolCalled, ViewAssembled
from noetic_nb.lab._replaying.replay_report import costs_of, drops_of, sent_tokens, tokens_of
from noetic_nb.lab._rule_scores.evaluation import LINES, Evaluation
from noetic_nb.lab._statistics.intervals import interval
from noetic_nb.lab._statistics.labels import runs_in
from noetic_nb.runs import Run

if TYPE_CHECKING:
    import pandas

__all__ = ["Difference", "PairedComparison", "compare_evaluations", "compare_paired"]


class Difference(NamedTuple):
    """One metric: means of both sides, the mean of ``b - a`` with its 95 % interval, and over how many pairs."""

    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    n: int


@with_card(shown="as HTML")
@dataclass(frozen=True)
class PairedComparison:
    """Two lists of runs in pairs.

    Attributes
    ----------
    rows : tuple of Difference
        One for each metric.
    paired_by : {"task and trial", "position"}
        What belongs together.
    pairs : int
        How many pairs there are; a metric counts those in which both numbers are known.
    unpaired : tuple of str
        Runs without a counterpart, which count nowhere.
    """

    rows: tuple[Difference, ...]
    paired_by: str
    pairs: int
    unpaired: tuple[str, ...]

    def to_frame(self) -> pandas.DataFrame:
        """Return ``metric, a, b, difference, low, high, n``."""
        import pandas

        return pandas.DataFrame([row._asdict() for row in self.rows], columns=list(Difference._fields))

    def _title(self) -> str:
        alone = f"; {len(self.unpaired)} runs without a counterpart" if self.unpaired else ""
        return f"{self.pairs} pairs by {self.paired_by}{alone}"

    def __repr__(self) -> str:
        lines = [f"Comparison of {self._title()}"]
        for row in self.rows:
            bounds = f"[{row.low:.4g}, {row.high:.4g}]"
            lines.append(
                f"  {row.metric:<13} {row.a:>10.4g} {row.b:>10.4g} {row.difference:>+10.4g} {bounds}, n = {row.n}"
            )
        return "\n".join(lines)

    def _card(self) -> Card:
        rows = [[cell if isinstance(cell, str | int) else f"{cell:.4g}" for cell in row] for row in self.rows]
        return Card("Comparison", facts=[("", self._title())], table=Table(Difference._fields, rows))


def _views(run: Run, number: Callable[[ViewAssembled], int]) -> int | None:
    views = run.select(ViewAssembled)
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
    "tool calls": lambda run: len(run.select(ToolCalled)),
    "tokens": _tokens,
    "sent tokens": lambda run: _views(run, sent_tokens),
    "drops": lambda run: _views(run, drops_of),
    "cost": lambda run: costs_of(run.events),
    "denied": lambda run: sum([event.action == "deny" for event in run.select(SteeringDecided)]),
}
"""What is compared where nothing else is named."""


def compare_paired(
    a: Iterable[Run],
    b: Iterable[Run],
    *,
    metrics: Mapping[str, Callable[[Run], Any]] | None = None,
    samples: int = 1_000,
    seed: int = 0,
) -> PairedComparison:
    """Compare two lists of runs in pairs; see `compare`."""
    left, right = runs_in(a), runs_in(b)
    pairs, tasks, paired_by, unpaired = _paired(left, right)
    rows = []
    for name, metric in (METRICS if metrics is None else metrics).items():
        sides = [(_number(metric, name, one), _number(metric, name, other)) for one, other in pairs]
        known = [at for at, (one, other) in enumerate(sides) if not isnan(one) and not isnan(other)]
        if not known and metrics is None:
            continue  # nobody knows it, such as drops in runs of others
        rows.append(_difference(name, [sides[at] for at in known], [tasks[at] for at in known], samples, seed))
    return PairedComparison(tuple(rows), paired_by, len(pairs), unpaired)


def compare_evaluations(a: Evaluation, b: Evaluation, *, samples: int = 1_000, seed: int = 0) -> PairedComparison:
    """Compare what two rule books do to the same runs, or to others of the same tasks; see `compare`.

    The figures of each line are those of the evaluations, as far as its runs have a counterpart.
    """
    pairs, tasks, paired_by, unpaired = _paired([each.run for each in a.judged], [each.run for each in b.judged])
    of_a, of_b = ({id(each.run): each for each in one.judged} for one in (a, b))
    rows = []
    for line in LINES:
        sides: list[tuple[float, float]] = []
        groups: list[Hashable] = []
        for (one, other), task in zip(pairs, tasks, strict=True):
            # Of calls, which of a run is denied does not matter: only how many of how many.
            numbers = [a.hits(line, of_a[id(one)]), b.hits(line, of_b[id(other)])]
            if len(numbers[0]) == len(numbers[1]):
                sides += zip(*numbers, strict=True)
                groups += [task] * len(numbers[0])
        if sides:
            rows.append(_difference(line, sides, groups, samples, seed))
    return PairedComparison(tuple(rows), paired_by, len(pairs), unpaired)


def _difference(
    name: str, sides: Sequence[tuple[float, float]], tasks: Sequence[Hashable], samples: int, seed: int
) -> Difference:
    n = len(sides)
    if not n:
        return Difference(name, nan, nan, nan, nan, nan, 0)
    gaps = [other - one for one, other in sides]
    low, high = interval(lambda at: sum([gaps[i] for i in at]) / len(at), tasks, samples=samples, seed=seed)
    a, b = sum([one for one, _ in sides]) / n, sum([other for _, other in sides]) / n
    return Difference(name, a, b, sum(gaps) / n, low, high, n)


def _number(metric: Callable[[Run], Any], name: str, run: Run) -> float:
    try:
        value = metric(run)
        return nan if value is None else float(value)
    except Exception as error:
        raise NoeticConfigError(
            "INVALID_METRIC",
            f"Metric {name!r} of {run.run_id} could not be had: {type(error).__name__}: {error}",
            given=metric,
            hint="It is a function of a run that returns a number, or None where it is not known.",
        ) from error


def _paired(
    left: Sequence[Run], right: Sequence[Run]
) -> tuple[list[tuple[Run, Run]], list[Hashable], str, tuple[str, ...]]:
    if all(run.meta.get("task_id") is not None for run in (*left, *right)):
        keys, others = _keys(left), _keys(right)
        pairs = [(run, others[key]) for key, run in keys.items() if key in others]
        tasks: list[Hashable] = [key[:3] for key in keys if key in others]
        alone = [run.run_id for key, run in keys.items() if key not in others]
        alone += [run.run_id for key, run in others.items() if key not in keys]
        if pairs:
            return pairs, tasks, "task and trial", tuple(alone)
        raise _unpaired(left, right, "No task and trial is in both lists.")
    if len(left) != len(right):
        raise _unpaired(left, right, "Runs without a task id are paired by position, and one list is longer.")
    # Without tasks each pair counts for itself.
    return list(zip(left, right, strict=True)), list(range(len(left))), "position", ()


def _unpaired(left: Sequence[Run], right: Sequence[Run], what: str) -> NoeticConfigError:
    return NoeticConfigError(
        "UNPAIRED_RUNS",
        what,
        given={"a": len(left), "b": len(right)},
        hint="Set run.meta['task_id'] and run.meta['trial'], or pass lists that belong together.",
    )


def _keys(runs: Sequence[Run]) -> dict[tuple[Hashable, ...], Run]:
    """Return runs by domain, suite, task and trial; of several with one name, the first belongs to the first."""
    seen: Counter[tuple[Hashable, ...]] = Counter()
    found: dict[tuple[Hashable, ...], Run] = {}
    for run in runs:
        meta = run.meta
        key = (meta.get("domain"), meta.get("suite"), repr(meta["task_id"]), repr(meta.get("trial")))
        found[(*key, seen[key])] = run
        seen[key] += 1
    return found
