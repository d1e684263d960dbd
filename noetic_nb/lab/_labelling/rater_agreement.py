"""Agreement and disagreement of raters; the references are those of `agreement`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations, permutations
from math import isnan, nan, sqrt
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import check_one_of, each_run
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

# A value with its kind, since True == 1; 1 and 1.0 are one value.
_Typed: TypeAlias = tuple[str, Value]
_Pairs: TypeAlias = NDArray[np.float64]
"""How often each value of one rater met each value of another, with rows for several clusters one after another."""


class _Unit(NamedTuple):
    """A part of a run that at least one rater labelled."""

    run_id: str
    cluster: Hashable
    target: tuple[Any, ...]
    values: dict[str, _Typed]
    """By rater."""


def _units(runs: Run | Iterable[Run], name: str) -> list[_Unit]:
    found: dict[tuple[int, tuple[Any, ...]], _Unit] = {}
    names: set[str] = set()
    for place, run in enumerate(each_run(runs, "Labels are those of runs.")):
        (task,) = clusters_of([run])
        cluster = ("run", place) if task is None else task.task
        for label in labels_in(run):
            names.add(label.name)
            if label.name == name and label.value is not None:
                unit = found.setdefault((place, label.target), _Unit(run.run_id, cluster, label.target, {}))
                kind = "number" if type(label.value) in (int, float) else type(label.value).__name__
                unit.values[label.by] = (kind, label.value)
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
        For alpha: whether values only differ, are ordered, or have distances. Kappa treats them as nominal.

    Returns
    -------
    pandas.DataFrame
        One row per pair of raters, and with more than two raters one for ``all``, without kappa. ``raters``; ``units``
        (targets labelled by at least two of them) and ``missing`` (labelled by only one: left out); ``agreed`` (share
        of units with one value); ``kappa`` and ``alpha`` with the ends of their 95 % intervals, ``_low`` and ``_high``;
        ``clusters``. NaN if all labels have one value, because no disagreement was possible.

    Raises
    ------
    NoeticConfigError
        ``NO_LABELS`` if fewer than two raters gave the label, ``INVALID_LEVEL``, ``INVALID_RUN``.

    Notes
    -----
    Intervals come from the jackknife that leaves out one task at a time [3]_ (one run if its task is unknown), with
    Student's t quantile. If all labels agree, the lower end follows from that of the share of agreement, as in `Count`.
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
    known = sorted({value for _, some in both for value in some}, key=lambda value: (value[0] == "str", value[1]))
    place, group = ({one: at for at, one in enumerate(some)} for some in (known, dict.fromkeys(clusters)))
    pairs = np.zeros((len(group), len(known), len(known)))
    together = np.zeros_like(pairs)
    for cluster, some in both:
        own, at = group[cluster], [place[value] for value in some]
        pairs[own, at[0], at[1]] += 1
        for one, other in permutations(at, 2):
            together[own, one, other] += 1 / (len(at) - 1)
    kappa = _measured(pairs, _kappa, agreed, clusters) if len(raters) == 2 else (nan, nan, nan)
    alpha = _measured(together, lambda counts: _alpha(counts, known, level), agreed, clusters)
    share = sum(agreed) / len(agreed) if agreed else nan
    only = sum(len(some) == 1 for some in values)
    named = ", ".join(raters) if len(raters) == 2 else "all"
    return (named, len(both), only, share, *kappa, *alpha, len(set(clusters)))


def _measured(
    counts: _Pairs, measure: Callable[[_Pairs], float], agreed: Sequence[bool], clusters: Sequence[Hashable]
) -> tuple[float, float, float]:
    total = counts.sum(axis=0)
    value, many = measure(total), len(counts)
    if isnan(value) or many < 2:
        return value, nan, nan
    if all(agreed):
        low = counted(agreed, [Cluster(cluster) for cluster in clusters]).low
        return value, 1 - (1 - low) / (1 - _chance(total)), value
    without = np.array([measure(total - each) for each in counts])
    if np.isnan(without).any():
        return value, nan, nan
    half = student(many - 1) * sqrt((many - 1) / many * ((without - without.mean()) ** 2).sum())
    return value, max(-1.0, value - half), min(1.0, value + half)


def _chance(pairs: _Pairs) -> float:
    total = pairs.sum()
    return float(pairs.sum(axis=1) @ pairs.sum(axis=0) / total**2) if total else nan


def _kappa(pairs: _Pairs) -> float:
    chance = _chance(pairs)
    return nan if isnan(chance) or chance >= 1 else float((pairs.trace() / pairs.sum() - chance) / (1 - chance))


def _alpha(together: _Pairs, values: Sequence[_Typed], level: str) -> float:
    together = np.where(together > 1e-9, together, 0.0)  # differences of sums leave rounding errors
    counts = together.sum(axis=1)
    if level == "nominal":
        distance = 1 - np.eye(len(values))
    else:
        # An ordered value is at the middle of its labels' ranks.
        middles = counts.cumsum() - counts / 2
        places = middles if level == "ordinal" else np.array([float(value) for _, value in values])
        distance = (places[:, None] - places) ** 2
    total, expected = counts.sum(), counts @ distance @ counts
    if total <= 1 or expected <= 1e-12:
        return nan
    return float(1 - (total - 1) * (together * distance).sum() / expected)


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
        One row per target: ``run_id``, ``thread_id``, ``turn``, ``call``, ``item``, and a column per rater with the
        value, missing if there is none. Targets with a consensus are not listed.

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
