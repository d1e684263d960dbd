"""Many configurations on many recorded runs, in parallel processes; and the rows that no other row dominates.

References
----------
.. [1] Westfall, P. H., and Young, S. S. (1993). Resampling-based multiple testing. Wiley.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from math import fsum, nan
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from noetic_nb._core.arguments import closest, explained
from noetic_nb._core.long_work import Progress, Work
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.lab._checks import check_one_of
from noetic_nb.lab._statistics.intervals import CONFIDENCE, NO_TASKS, Cluster, mean_interval, student
from noetic_nb.lab._statistics.labels import By, clusters_of, runs_in
from noetic_nb.lab._sweeping.measured_runs import Ceiling, Job, Measured, ResumeFile, is_live
from noetic_nb.lab._sweeping.space import REPLAYED, code_of, configurations, data_digest, digest_of, label_of
from noetic_nb.lab._sweeping.workers import Workers
from noetic_nb.models._client import check_clients
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._regulation.recorded_regulator import checked_regulator
from noetic_nb.runs._run import version_of

if TYPE_CHECKING:
    import pandas


def pareto(
    frame: pandas.DataFrame, *, maximise: str | Iterable[str] = (), minimise: str | Iterable[str] = ()
) -> pandas.DataFrame:
    """Return the rows that are not dominated: no other is as good in every column and better in one.

    Parameters
    ----------
    frame : pandas.DataFrame
        Such as from `sweep`.
    maximise, minimise : str or iterable of str
        Columns to maximise and to minimise.

    Returns
    -------
    pandas.DataFrame
        Rows in their order, with their index and ``attrs``. Rows that are equal in every named column are all kept; a
        row with a missing number in one of them is left out, and counted in ``attrs["left_out"]``.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME``, ``UNKNOWN_COLUMN``, or ``INVALID_OBJECTIVES`` for no columns, one in both lists, or no numbers.

    References
    ----------
    .. [1] Deb, K. (2001). Multi-objective optimization using evolutionary algorithms, section 2.4.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"caught": [0.5, 0.9, 0.4], "blocked": [0.1, 0.3, 0.2]})
    >>> pareto(frame, maximise="caught", minimise="blocked").index.tolist()
    [0, 1]
    """
    import numpy
    import pandas

    if not isinstance(frame, pandas.DataFrame):
        raise NoeticConfigError(
            "INVALID_FRAME", "That is not a table.", given=frame, hint="Pass the result of lab.sweep."
        )
    more, less = _listed(maximise), _listed(minimise)
    columns = [*more, *less]
    if not columns or len(set(columns)) < len(columns):
        what = "Name each column once, in maximise or in minimise."
        hint = 'For example: maximise="caught", minimise="blocked".'
        raise NoeticConfigError("INVALID_OBJECTIVES", what, given={"maximise": more, "minimise": less}, hint=hint)
    for name in columns:
        if name not in frame.columns:
            known = list(map(str, frame.columns))
            hint = closest(str(name), known) or f"There are {', '.join(known)}."
            raise NoeticConfigError("UNKNOWN_COLUMN", "The table has no column of this name.", given=name, hint=hint)
        if not pandas.api.types.is_numeric_dtype(frame[name]):
            hint = "Name columns of numbers."
            raise NoeticConfigError("INVALID_OBJECTIVES", "A column has no numbers.", given=name, hint=hint)
    signs = numpy.array([1.0] * len(more) + [-1.0] * len(less))
    points = frame[columns].to_numpy(dtype=float) * signs
    known_rows = ~numpy.isnan(points).any(axis=1)
    keeps = [
        bool(is_known) and not ((points >= point).all(axis=1) & (points > point).any(axis=1)).any()
        for is_known, point in zip(known_rows, points, strict=True)
    ]
    found = frame.loc[keeps].copy()
    found.attrs = {**frame.attrs, "left_out": int((~known_rows).sum())}
    return found


def _listed(names: Any) -> list[Any]:
    return [names] if isinstance(names, str) else list(names)


SAMPLES: Final = 1_000
"""Draws for the correction for the number of configurations."""


def widening_of(values: Sequence[Sequence[float | None]], clusters: Sequence[Cluster | None], seed: int) -> float:
    """Return the factor, at least 1, by which the intervals of all configurations widen to hold simultaneously.

    Clusters get random weights. In each draw, the mean with the largest deviation in its own standard errors counts
    (maxT [1]_). Configurations that stop the same runs deviate together, so many of them widen the intervals little.
    """
    import numpy

    known = [cluster for cluster in clusters if cluster is not None]
    labels = [
        [cluster.task for cluster in known],
        [cluster.injection for cluster in known if cluster.injection is not None],
    ]
    if len(known) < len(clusters):
        return 1.0  # there are no intervals
    numbers = numpy.array([[nan if value is None else value for value in row] for row in values])
    counts = numpy.maximum((~numpy.isnan(numbers)).sum(axis=1, keepdims=True), 1)
    residuals = numpy.nan_to_num(numbers - numpy.nansum(numbers, axis=1, keepdims=True) / counts)
    sums = []
    for some in labels:
        if len(some) == len(clusters):
            places = numpy.unique([repr(label) for label in some], return_inverse=True)[1]
            sums.append(numpy.stack([numpy.bincount(places, row) for row in residuals]))
    totals = numpy.concatenate(sums, axis=1)
    errors = numpy.sqrt((totals**2).sum(axis=1))
    kept = errors > 1e-12
    if not kept.any():
        return 1.0
    weights = numpy.random.default_rng(seed).standard_normal((totals.shape[1], SAMPLES))
    strays = numpy.abs(totals[kept] @ weights / errors[kept, None]).max(axis=0)
    return max(1.0, float(numpy.quantile(strays, CONFIDENCE)) / student(100_000))


def ends_of(metric: str, *, is_only: bool, corrected: bool = False) -> tuple[str, str]:
    """Return the columns of the interval of a metric, alone or corrected for the number of configurations."""
    low, high = ("low_corrected", "high_corrected") if corrected else ("low", "high")
    return (low, high) if is_only else (f"{metric}_{low}", f"{metric}_{high}")


def table(job: Job, rows: Mapping[int, Measured], clusters: Sequence[Cluster | None], seed: int) -> pandas.DataFrame:
    """Return one row per finished configuration, in the order of the space."""
    import pandas

    is_only = len(job.metrics) == 1
    widenings = {
        metric: widening_of([row.values[metric] for row in rows.values()], clusters, seed) for metric in job.metrics
    }
    partly = any(row.partly for row in rows.values())
    ends = {metric: ends_of(metric, is_only=is_only) for metric in job.metrics}
    corrected = {metric: ends_of(metric, is_only=is_only, corrected=True) for metric in job.metrics}
    names = [
        *job.space.names,
        *(column for metric in job.metrics for column in (metric, *ends[metric])),
        *(f"{metric}_n" for metric in job.metrics if not is_only),
        *("n", "failed", "nan", "seed", "digest"),
        *(column for metric in job.metrics for column in corrected[metric]),
        *(f"{metric}_known" for metric in job.metrics if partly),
    ]
    found = []
    for place in sorted(rows):
        row, labels = rows[place], job.space.labels[place]
        cells: list[Any] = list(labels)
        counts: list[int] = []
        last: list[float] = []
        for metric in job.metrics:
            some = [pair for pair in zip(row.values[metric], clusters, strict=True) if pair[0] is not None]
            known, of_known = [value for value, _ in some if value is not None], [cluster for _, cluster in some]
            cells += [_mean(known), *mean_interval(known, of_known)]
            last += mean_interval(known, of_known, widening=widenings[metric])
            counts.append(len(known))
        failed = {at for at, _, _ in row.failures}
        whole = [all(values[at] is not None for values in row.values.values()) for at in range(len(job.runs))]
        cells += [] if is_only else counts
        missing = len(job.runs) - sum(whole) - len(failed)
        cells += [sum(whole), len(failed), missing, seed, digest_of(job.digest, labels), *last]
        for metric in job.metrics if partly else ():
            cells.append(_mean([value for value in row.known.get(metric, row.values[metric]) if value is not None]))
        found.append(cells)
    frame = pandas.DataFrame(found, columns=names)
    for metric in job.metrics:
        for column in (metric, *ends[metric], *corrected[metric], *([f"{metric}_known"] if partly else [])):
            frame[column] = frame[column].astype(float)
    return frame


def _mean(values: Sequence[float]) -> float:
    # An exact sum, independent of the order.
    return fsum(values) / len(values) if values else nan


@explained(metrics="For example: metrics={'stopped': lambda run: lab.first_stop(run) is not None}.")
def sweep(
    space: Mapping[str, Any],
    runs: Run | Iterable[Run],
    *,
    metrics: Mapping[str, Callable[[Run], float | None]],
    n: int | None = None,
    n_jobs: int = -1,
    seed: int = 0,
    resume: str | PathLike[str] | None = None,
    max_cost: float | Mapping[str, float] | None = None,
    regulator: Regulator | None = None,
    apply: Callable[..., Run] | None = None,
    model: Any = None,
    mode: str = "open",
    by: By = "task",
    progress: Progress = True,
) -> pandas.DataFrame:
    """Replay recorded runs under many configurations and measure each.

    See docs/behaviour/lab.md, "Sweeps".

    Parameters
    ----------
    space : mapping of str to values
        By name a list of values: `rules`, `budgets`, `projection`, `layers`, `regulator` of `replay`, thresholds such
        as ``"cost_cap.tokens_out"``, or with `apply` any names. Every combination is tried; see `n`.
    runs : Run or iterable of Run
        Recorded runs.
    metrics : mapping of str to callable
        By name a function of a replayed run that returns a number, or None if there is none.
    n : int, optional
        Draw this many configurations, without repetition for a grid. Values may then also be a distribution with
        ``rvs``, or a range ``{"low": 0.1, "high": 0.9}``.
    n_jobs : int
        The number of parallel workers; -1 for one per processor, after the first seconds in this process. An active
        ``joblib.parallel_config`` selects processes (the default), threads, Dask or Ray. From 2 on, a metric that ends
        its process does not end this one.
    seed : int
        The seed of the draws and of the corrected intervals.
    resume : str or path, optional
        A file that stores finished rows; an interrupted sweep continues from it.
    max_cost : float or mapping, optional
        The cost limit of live models: US dollars, or ``{"usd": 5.0, "tokens": 2_000_000}``.
    regulator : Regulator, optional
        The regulator whose thresholds vary, if the space has none; the recorded one by default.
    apply : callable, optional
        Makes a run from a run and a configuration instead of `replay`: ``apply(run, **configuration)``, with ``model=``
        if one is given.
    model : ModelClient or mapping, optional
        For `replay` or `apply`; a live one needs `max_cost`, and is called from threads of this process.
    mode : {"open", "closed"}
        As for `replay`.
    by : str or callable
        The grouping of runs for the intervals: ``"task"``; ``"run"`` if each run is its own task; or a function of a
        run. If the task of a run is unknown there is no interval.
    progress : bool or callable
        Called with the numbers of finished and of all configurations; by default a line of text in a terminal or
        notebook if it takes long. False shows nothing.

    Returns
    -------
    pandas.DataFrame
        One row per configuration: its values; for each metric the mean over runs, its 95 % interval (``low, high``) and
        a wider interval that also holds for the best of all rows (``low_corrected, high_corrected``; with several
        metrics ``<metric>_low`` and so on, and ``<metric>_n``); ``n``, the runs with a number for every metric;
        ``failed`` runs, ``nan`` runs without a number, ``seed``, ``digest``. If replays are only known up to some
        point, ``<metric>_known`` is the mean over the known parts, and ``attrs["known"]`` has their number. ``attrs``
        has ``seed``, ``space``, ``configurations``, ``versions``, ``data``, ``backend``, ``interval``, ``failures``
        (the first) and ``stopped`` (why rows are missing, or None).

    Raises
    ------
    NoeticConfigError
        ``INVALID_SPACE``, ``UNKNOWN_NAME``, ``INVALID_N``, ``NO_RUNS``, ``INVALID_RUN``, ``SWAPPED_ARGUMENTS``,
        ``INVALID_METRICS``, ``INVALID_N_JOBS``, ``NOT_PICKLABLE``, ``COST_CEILING``, ``OTHER_SWEEP``,
        ``INVALID_GROUP``, and the error of `replay` if it raises on every run of every configuration.
    NoeticError
        ``worker_died`` if workers die before any work is finished, ``storage_failed``.

    Examples
    --------
    >>> from noetic_nb.lab import datasets, first_stop
    >>> stopped = lambda run: first_stop(run) is not None
    >>> frame = sweep({"call_budget.total": [5, 20]}, datasets.airline(20), metrics={"stopped": stopped},
    ...               regulator=Regulator.recommended("ann"), n_jobs=1)
    >>> frame[["call_budget.total", "stopped", "n"]].values.tolist()
    [[5.0, 0.7, 20.0], [20.0, 0.05, 20.0]]
    """
    if isinstance(runs, Mapping):
        given = f"{type(space).__name__}, {type(runs).__name__}"
        hint = 'Write lab.sweep({"call_budget.total": [5, 10]}, runs, ...).'
        raise NoeticConfigError(
            "SWAPPED_ARGUMENTS", "sweep takes the space first, then the runs.", given=given, hint=hint
        )
    found = runs_in(runs)
    _check(metrics, apply, mode)
    check_clients(model)
    fixed: dict[str, Any] = {} if apply is not None else {"mode": mode}
    if regulator is not None:
        fixed["regulator"] = checked_regulator(regulator)
    points = configurations(space, n=n, seed=seed, regulator=regulator, free=apply is not None)
    seed = int(seed)
    live = is_live(model)
    ceiling = Ceiling(max_cost) if live or max_cost is not None else None
    if model is not None:
        fixed["model"] = ceiling.metered(model) if live and ceiling is not None else model
    clusters = clusters_of(found, by)
    data = data_digest(found)
    about = {name: _names(model) if name == "model" else label_of(value) for name, value in fixed.items()}
    made_by = None if apply is None else code_of(apply)
    measures = {name: code_of(metric) for name, metric in metrics.items()}
    versions = {"python": platform.python_version()}
    versions |= {name: version_of(name) for name in ("noetic_nb", "joblib", "numpy", "pandas")}
    digest = digest_of(data, points.names, points.labels, about, made_by, measures, seed, versions["noetic_nb"])
    job = Job(digest, points, found, dict(metrics), fixed, apply, ceiling if live else None)
    workers = Workers(n_jobs, in_threads=live)
    # An interrupted sweep itself reports its state and how to continue, so `keeps` is False.
    with (
        Work("sweep", "configurations", progress, of=len(points), keeps=False) as work,
        nullcontext() if resume is None else ResumeFile(resume, job.digest) as file,
    ):
        rows: dict[int, Measured] = {} if file is None else {**file.rows}
        stopped = _fill(rows, job, workers, file, ceiling, work)
    _raise_where_all_failed(job, rows)
    _raise_where_a_metric_failed(job, rows)
    frame = table(job, rows, clusters, seed)
    failures = [(each.place, *failure) for each in rows.values() for failure in each.failures]
    frame.attrs |= {
        "seed": seed,
        "space": list(points.names),
        "configurations": len(points),
        "versions": versions,
        "data": data,
        "backend": workers.name,
        "interval": NO_TASKS if None in clusters else "95 % over tasks; corrected: for all configurations",
        "failures": _first_failures(job, failures),
        "stopped": stopped,
        "known": _known(job, rows),
    }
    return frame


def _known(job: Job, rows: Mapping[int, Measured]) -> str:
    """Return one sentence about how far the runs of a sweep are known."""
    partly, of = sum([row.partly for row in rows.values()]), len(rows) * len(job.runs)
    if not partly:
        return "Every run is known to its end."
    return (
        f"{partly} of {of} runs are known up to a first change only, where the agent goes another way; "
        "columns that end in _known count up to there."
    )


def _check(metrics: Any, apply: Any, mode: Any) -> None:
    named = isinstance(metrics, Mapping) and metrics and all(isinstance(name, str) and name for name in metrics)
    if not named or not all(callable(metric) for metric in metrics.values()):
        hint = 'For example: metrics={"stopped": lambda run: lab.first_stop(run) is not None}.'
        raise NoeticConfigError("INVALID_METRICS", "Metrics must map names to functions.", given=metrics, hint=hint)
    if apply is not None and not callable(apply):
        hint = "It is called as apply(run, **configuration)."
        raise NoeticConfigError("INVALID_SPACE", "apply= is a function.", given=apply, hint=hint)
    check_one_of(("open", "closed"), "INVALID_MODE", mode=mode)


def _fill(
    rows: dict[int, Measured], job: Job, workers: Workers, file: ResumeFile | None, ceiling: Ceiling | None, work: Work
) -> str | None:
    """Add the missing values; return why some are still missing."""
    # Configurations that differ only in their regulator are adjacent, because they share one reading of a run.
    rest = [at for at, name in enumerate(job.space.names) if name in REPLAYED and name != "regulator"]
    left = [place for place in range(len(job.space)) if place not in rows]
    left.sort(key=lambda place: [str(job.space.labels[place][at]) for at in rest])
    try:
        with closing(workers.measured(job, left)) as chunks:
            for chunk in chunks:
                if ceiling is not None and ceiling.error is not None:
                    raise ceiling.error
                for row in chunk:
                    if row.is_cut:
                        continue
                    rows[row.place] = row
                    if file is not None:
                        file.add(row)
                work.at(len(rows))
    except KeyboardInterrupt:
        return _stopped(rows, job, file, "it was interrupted")
    except NoeticError as error:
        if error.kind != "worker_died" or not rows:
            raise
        return _stopped(rows, job, file, str(error))
    if len(rows) < len(job.space):
        return _stopped(rows, job, file, "the limit max_cost was reached")
    return None


def _names(model: Any) -> Any:
    """Return the classes of the models that answer: their state changes with every answer."""
    return (
        {name: _names(one) for name, one in model.items()} if isinstance(model, Mapping) else type(model).__qualname__
    )


def _stopped(rows: Mapping[int, Measured], job: Job, file: ResumeFile | None, why: str) -> str:
    how = "with resume=<a path> it would go on" if file is None else f"resume={str(file.path)!r} goes on"
    text = f"The sweep has {len(rows)} of {len(job.space)} configurations: {why}; {how}"
    warnings.warn(text, RuntimeWarning, stacklevel=5)
    return text


def _raise_where_all_failed(job: Job, rows: Mapping[int, Measured]) -> None:
    lost = [sum(metric is None for _, metric, _ in row.failures) for row in rows.values()]
    if not lost or min(lost) < len(job.runs):
        return
    first = rows[min(rows)].failures[0]
    what = f"No run could be replayed under any configuration: {first[2]}"
    hint = "Try one: lab.replay(run, ...), or apply(run, ...)."
    raise NoeticConfigError("NOTHING_REPLAYED", what, given=job.runs[first[0]].run_id, hint=hint)


def _raise_where_a_metric_failed(job: Job, rows: Mapping[int, Measured]) -> None:
    """Refuse a table in which a metric failed on every run."""
    failures = [failure for row in rows.values() for failure in row.failures]
    made = len(rows) * len(job.runs) - sum([metric is None for _, metric, _ in failures])
    for name in job.metrics:
        lost = [(at, what) for at, metric, what in failures if metric == name]
        if lost and len(lost) >= made:
            raise NoeticConfigError(
                "METRIC_FAILED",
                f"Metric {name!r} failed on every run: {lost[0][1]}",
                given=job.runs[lost[0][0]].run_id,
                hint="Try it on one run: it returns a number, or None where it is not known.",
            )


def _first_failures(job: Job, failures: Sequence[tuple[int, int, str | None, str]]) -> list[dict[str, Any]]:
    """Return the first failure of each metric, and of replays, with the number of failures."""
    first: dict[str | None, dict[str, Any]] = {}
    for place, at, metric, what in sorted(failures, key=lambda one: one[:2]):
        known = first.setdefault(
            metric,
            {
                "metric": metric,
                "run_id": job.runs[at].run_id,
                "configuration": dict(zip(job.space.names, job.space.labels[place], strict=True)),
                "error": what,
                "count": 0,
            },
        )
        known["count"] += 1
    return list(first.values())
