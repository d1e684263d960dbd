"""How far raters agree, and where they do not.

References
----------
.. [1] Cohen, J. (1960). A coefficient of agreement for nominal scales. Educational and Psychological Measurement 20, 37-46.
.. [2] Krippendorff, K. (2019). Content analysis, 4th edition, chapter 12. Sage.
.. [3] Efron, B., and Tibshirani, R. (1993). An introduction to the bootstrap, chapter 11. Chapman and Hall.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from math import isnan, nan, sqrt
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import check_one_of, check_run
from noetic_nb.lab._statistics.intervals import Cluster, counted, student
from noetic_nb.lab._statistics.labels import clusters_of
from noetic_nb.runs import Run
from noetic_nb.runs._labelled import labels_in
from noetic_nb.runs._labels import CONSENSUS, Value

if TYPE_CHECKING:
    import pandas

_LEVELS: Final = ("nominal", "ordinal", "interval")
_COLUMNS: Final = {
    "raters": "object",
    "units": "int64",
    "missing": "int64",
    "agreed": "float64",
    **dict.fromkeys([f"{measure}{end}" for measure in ("kappa", "alpha") for end in ("", "_low", "_high")], "float64"),
    "clusters": "int64",
}

# A value with its type, since True is no 1.
_Typed: TypeAlias = tuple[str, Value]
_Pairs: TypeAlias = Counter[tuple[_Typed, _Typed]]


class _Unit(NamedTuple):
    """A part of a run that somebody labelled."""

    run_id: str
    cluster: Hashable
    target: tuple[Any, ...]
    values: dict[str, _Typed]
    """By rater."""


def _units(runs: Run | Iterable[Run], name: str) -> list[_Unit]:
    found: dict[tuple[int, tuple[Any, ...]], _Unit] = {}
    names: set[str] = set()
    given: Iterable[Any] = [runs] if isinstance(runs, Run) else runs
    for place, run in enumerate(given):
        check_run(run, "Labels are those of runs.")
        (task,) = clusters_of([run])
        cluster = ("run", place) if task is None else task.task
        for label in labels_in(run):
            names.add(label.name)
            if label.name == name and label.value is not None:
                unit = found.setdefault((place, label.target), _Unit(run.run_id, cluster, label.target, {}))
                unit.values[label.by] = (type(label.value).__name__, label.value)
    raters = {by for unit in found.values() for by in unit.values if by != CONSENSUS}
    if len(raters) < 2:
        has = f"The runs have labels {', '.join(map(repr, sorted(names)))}." if names else "The runs have no labels."
        what = f"Agreement needs labels of two raters; {len(raters)} gave {name!r}."
        hint = f"{has} Label them with run.label(name, value, by=...)."
        raise NoeticConfigError("NO_LABELS", what, given=name, hint=hint)
    return list(found.values())


def agreement(collection: Run | Iterable[Run], name: str, *, level: str = "nominal") -> pandas.DataFrame:
    """Measure how far raters agree on a label: Cohen's kappa [1]_ and Krippendorff's alpha [2]_.

    Parameters
    ----------
    collection : Run or iterable of Run
        The labelled runs.
    name : str
        The label.
    level : {"nominal", "ordinal", "interval"}
        For alpha: whether values only differ, are in an order, or have distances. Kappa takes them as nominal.

    Returns
    -------
    pandas.DataFrame
        One row for each pair of raters, and one for ``all`` where there are more than two, which has no kappa. ``raters``;
        ``units`` (targets that at least two of them labelled) and ``missing`` (that only one did: left out); ``agreed`` (share of
        units with one value); ``kappa``, ``alpha``, each with the ends of its 95 % interval, ``_low`` and ``_high``;
        ``clusters``. Not a number where all labels have one value, as nothing could disagree.

    Raises
    ------
    NoeticConfigError
        ``NO_LABELS`` where fewer than two raters gave the label, ``INVALID_LEVEL``, ``INVALID_RUN``.

    Notes
    -----
    Intervals are those of the jackknife that leaves out one task at a time [3]_ (one run where it names no task), with the
    quantile of Student's t. Where all labels agree the lower end follows from that of the share of agreement, as `Count` has it.
    Labels by ``"consensus"`` are left out.

    References
    ----------
    .. [1] Cohen, J. (1960). A coefficient of agreement for nominal scales. Educational and Psychological Measurement 20, 37-46.
    .. [2] Krippendorff, K. (2019). Content analysis, 4th edition, chapter 12. Sage.
    .. [3] Efron, B., and Tibshirani, R. (1993). An introduction to the bootstrap, chapter 11. Chapman and Hall.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> runs = datasets.airline(8)
    >>> for run, ann, bob in zip(runs, "yyynnnyn", "yynnnnyy", strict=True):
    ...     run.label("polite", ann == "y", by="ann")
    ...     run.label("polite", bob == "y", by="bob")
    >>> agreement(runs, "polite")[["raters", "units", "agreed", "kappa", "alpha"]].round(3).values.tolist()
    [['ann, bob', 8, 0.75, 0.5, 0.531]]
    """
    import pandas

    check_one_of(_LEVELS, "INVALID_LEVEL", level=level)
    units = _units(collection, name)
    raters = sorted({by for unit in units for by in unit.values} - {CONSENSUS})
    kinds = {kind for unit in units for kind, _ in unit.values.values()}
    if level != "nominal" and "str" in kinds:
        hint = "Use numbers as the labels of ordered values."
        raise NoeticConfigError("INVALID_LEVEL", "Texts have no order.", given=sorted(kinds), hint=hint)
    groups: list[tuple[str, ...]] = [*combinations(raters, 2), *([tuple(raters)] if len(raters) > 2 else [])]
    rows = [_row(units, group, level) for group in groups]
    return pandas.DataFrame(rows, columns=[*_COLUMNS]).astype(_COLUMNS)


def _row(units: Sequence[_Unit], raters: tuple[str, ...], level: str) -> tuple[Any, ...]:
    values = [[unit.values[by] for by in raters if by in unit.values] for unit in units]
    both = [(unit.cluster, some) for unit, some in zip(units, values, strict=True) if len(some) > 1]
    agreed = [len(set(some)) == 1 for _, some in both]
    clusters = [cluster for cluster, _ in both]
    pairs: defaultdict[Hashable, _Pairs] = defaultdict(Counter)
    together: defaultdict[Hashable, _Pairs] = defaultdict(Counter)
    for cluster, some in both:
        pairs[cluster][some[0], some[1]] += 1
        for at, one in enumerate(some):
            for other in some[:at] + some[at + 1 :]:
                together[cluster][one, other] += 1 / (len(some) - 1)  # type: ignore[assignment]  # a Counter of floats
    kappa = _measured(pairs, _kappa, agreed, clusters) if len(raters) == 2 else (nan, nan, nan)
    alpha = _measured(together, lambda counts: _alpha(counts, level), agreed, clusters)
    share = sum(agreed) / len(agreed) if agreed else nan
    only = sum(len(some) == 1 for some in values)
    named = ", ".join(raters) if len(raters) == 2 else "all"
    return (named, len(both), only, share, *kappa, *alpha, len(set(clusters)))


def _measured(
    counts: Mapping[Hashable, _Pairs],
    measure: Callable[[_Pairs], float],
    agreed: Sequence[bool],
    clusters: Sequence[Hashable],
) -> tuple[float, float, float]:
    total: _Pairs = Counter()
    for each in counts.values():
        total.update(each)
    value, many = measure(total), len(counts)
    if isnan(value) or many < 2:
        return value, nan, nan
    if all(agreed):
        chance = _chance(total)
        low = counted(agreed, [Cluster(cluster) for cluster in clusters]).low
        return value, 1 - (1 - low) / (1 - chance), value
    without = [measure(Counter({pair: total[pair] - each[pair] for pair in total})) for each in counts.values()]
    known = [one for one in without if not isnan(one)]
    if len(known) < many:
        return value, nan, nan
    mean = sum(known) / many
    half = student(many - 1) * sqrt((many - 1) / many * sum([(one - mean) ** 2 for one in known]))
    return value, max(-1.0, value - half), min(1.0, value + half)


def _margins(pairs: _Pairs) -> tuple[dict[_Typed, float], dict[_Typed, float], float]:
    first: defaultdict[_Typed, float] = defaultdict(float)
    second: defaultdict[_Typed, float] = defaultdict(float)
    for (one, other), count in pairs.items():
        first[one] += count
        second[other] += count
    return first, second, sum(first.values())


def _chance(pairs: _Pairs) -> float:
    first, second, total = _margins(pairs)
    return sum([count * second.get(value, 0.0) for value, count in first.items()]) / total**2 if total else nan


def _kappa(pairs: _Pairs) -> float:
    chance, total = _chance(pairs), sum(pairs.values())
    if isnan(chance) or chance >= 1:
        return nan
    return (sum([count for (one, other), count in pairs.items() if one == other]) / total - chance) / (1 - chance)


def _alpha(together: _Pairs, level: str) -> float:
    counts, _, total = _margins(together)
    values = sorted(
        [value for value, count in counts.items() if count > 1e-9], key=lambda value: (value[0] == "str", value[1])
    )
    distance = _distances(values, counts, level)
    expected = sum([counts[one] * counts[other] * distance(one, other) for one in values for other in values])
    if total <= 1 or expected <= 1e-12:
        return nan
    observed = sum([count * distance(*pair) for pair, count in together.items() if count > 1e-9])
    return 1 - (total - 1) * observed / expected


def _distances(
    values: Sequence[_Typed], counts: Mapping[_Typed, float], level: str
) -> Callable[[_Typed, _Typed], float]:
    if level == "nominal":
        return lambda one, other: float(one != other)
    if level == "interval":
        return lambda one, other: (float(one[1]) - float(other[1])) ** 2
    place, seen = {}, 0.0
    for value in values:
        place[value] = seen + counts[value] / 2
        seen += counts[value]
    return lambda one, other: (place[one] - place[other]) ** 2


def disagreements(collection: Run | Iterable[Run], name: str) -> pandas.DataFrame:
    """List the targets on which raters differ, to be resolved with ``run.label(..., by="consensus")``.

    Parameters
    ----------
    collection : Run or iterable of Run
        The labelled runs.
    name : str
        The label.

    Returns
    -------
    pandas.DataFrame
        One row a target: ``run_id``, ``thread_id``, ``turn``, ``call``, ``item``, and a column with the value of each rater,
        missing if there is none. A target with a consensus is not listed.

    Raises
    ------
    NoeticConfigError
        ``NO_LABELS``, ``INVALID_RUN``.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> run = datasets.airline_run(26)
    >>> for by, value in (("ann", "wrong"), ("bob", "right")):
    ...     run.label("verdict", value, call=0, by=by)
    >>> disagreements(run, "verdict")[["call", "ann", "bob"]].values.tolist()
    [[0, 'wrong', 'right']]
    >>> run.label("verdict", "right", call=0, by="consensus")
    >>> len(disagreements(run, "verdict"))
    0
    """
    import pandas

    units = _units(collection, name)
    raters = sorted({by for unit in units for by in unit.values} - {CONSENSUS})
    open_ = [unit for unit in units if CONSENSUS not in unit.values and len(set(unit.values.values())) > 1]
    rows = [
        (unit.run_id, *unit.target, *[unit.values[by][1] if by in unit.values else None for by in raters])
        for unit in open_
    ]
    frame = pandas.DataFrame(rows, columns=["run_id", "thread_id", "turn", "call", "item", *raters], dtype="object")
    return frame.astype(dict.fromkeys(("turn", "call", "item"), "Int64"))
