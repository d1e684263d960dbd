"""The label of a run, its value, and its task."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import each_run
from noetic_nb.lab._statistics.intervals import Cluster
from noetic_nb.runs import Run
from noetic_nb.runs._labelled import outcome_of


def domain_of(run: Run) -> str:
    """Return the domain of a run, or its suite if it has none."""
    return str(run.meta.get("domain") or run.meta.get("suite") or "unnamed")


def labelled(runs: Run | Iterable[Run], outcome: Outcome) -> tuple[list[Run], list[bool], int]:
    """Return the labelled runs, whether each failed, and the number of unlabelled runs."""
    found = runs_in(runs)
    labels = labels_of(found, outcome, both=True)
    kept = [(run, not label) for run, label in zip(found, labels, strict=True) if label is not None]
    return [run for run, _ in kept], [has_failed for _, has_failed in kept], len(found) - len(kept)


def check_samples(samples: int) -> None:
    """Refuse an invalid number of samples; raises `NoeticConfigError` ``INVALID_COUNT``."""
    if type(samples) is not int or not 1 <= samples <= 1_000_000:
        hint = "Use 1 000, or 1 to 1 000 000."
        raise NoeticConfigError("INVALID_COUNT", "Samples are counted.", given=samples, hint=hint)


Outcome: TypeAlias = str | Callable[[Run], bool | None]
"""The name of a label or of a key of ``run.meta``, or a function of a run: True good, False failed, None unknown."""

By: TypeAlias = str | Callable[[Run], Hashable]
"""``"task"``; ``"run"`` if each run is its own task; or a function of a run that returns its group."""


def runs_in(runs: Run | Iterable[Run]) -> tuple[Run, ...]:
    """Return some runs as a tuple; at least one is required."""
    found = tuple(each_run(runs, "An experiment is made on runs."))
    if not found:
        hint = "Pass a list of runs."
        raise NoeticConfigError("NO_RUNS", "An experiment needs at least one run.", given=runs, hint=hint)
    return found


def labels_of(runs: Sequence[Run], outcome: Outcome, *, both: bool = False) -> list[bool | None]:
    """Return the label of each run, or None if it is unknown; with `both` there must be good and failed runs."""
    labels = [_label(run, outcome) for run in runs]
    known = {label for label in labels if label is not None}
    if not known:
        raise NoeticConfigError(
            "NO_LABELS",
            f"None of the {len(labels)} runs has a known outcome.",
            given=outcome if isinstance(outcome, str) else getattr(outcome, "__name__", "a function"),
            hint="Set run.meta['outcome'] or run.label('outcome', ..., by=...) to True or False, or pass a function of a run.",
        )
    if both and len(known) == 1:
        raise NoeticConfigError(
            "ONE_CLASS",
            f"All labelled runs are {'good' if known == {True} else 'failed'}: there is nothing to tell apart.",
            given={"runs": len(labels), "labelled": sum(label is not None for label in labels)},
            hint="Add runs of the other kind.",
        )
    return labels


def _label(run: Run, outcome: Outcome) -> bool | None:
    if isinstance(outcome, str):
        label: Any = outcome_of(run, outcome)
    else:
        try:
            label = outcome(run)
        except Exception as exc:
            hint = "The function gets a run and returns True, False or None (unknown)."
            what = f"The outcome of {run.run_id} raised {type(exc).__name__}: {exc}"
            raise NoeticConfigError("INVALID_OUTCOME", what, given=outcome, hint=hint) from exc
    # Functions of a table return the booleans of NumPy and pandas.
    if type(label).__name__ in ("bool_", "bool") and not isinstance(label, bool):
        label = bool(label)
    if label is None or isinstance(label, bool):
        return label
    raise NoeticConfigError(
        "INVALID_OUTCOME",
        f"The outcome of {run.run_id} is neither True, False nor None.",
        given=label,
        hint="Compare a number with a threshold: outcome=lambda run: run.meta['reward'] >= 1. "
        "For labels, the codebook names the values that are `good`.",
    )


def groups_of(runs: Sequence[Run], by: By = "task") -> list[Hashable]:
    """Return each run's group; tasks are named by source, domain, suite and id, because domains may share ids."""
    groups = []
    for run, cluster in zip(runs, clusters_of(runs, by), strict=True):
        if cluster is None:
            what = f"{run.run_id} does not say which task it is of; runs of one task are not independent of each other."
            hint = 'Say how to group them: by="run" where each run is a task of its own, or by=<a function of a run>.'
            raise NoeticConfigError("NO_TASK", what, given={"task_id": None}, hint=hint)
        groups.append(cluster.task)
    return groups


def clusters_of(runs: Sequence[Run], by: By = "task") -> list[Cluster | None]:
    """Return the cluster of each run (user task and injection task) for intervals; None if its task is unknown."""
    if by == "task":
        return [_cluster(run) for run in runs]
    if by == "run":
        return [Cluster(place) for place in range(len(runs))]
    if not callable(by):
        hint = 'Use by="task", by="run" or a function of a run.'
        what = "Runs are grouped by task, by run or by a function."
        raise NoeticConfigError("INVALID_GROUP", what, given=by, hint=hint)
    clusters: list[Cluster | None] = []
    for run in runs:
        try:
            group = by(run)
            hash(group)
        except Exception as exc:
            what = f"The group of {run.run_id} could not be computed: {type(exc).__name__}: {exc}"
            hint = "The function gets a run and returns a name."
            raise NoeticConfigError("INVALID_GROUP", what, given=by, hint=hint) from exc
        clusters.append(Cluster(group))
    return clusters


def _cluster(run: Run) -> Cluster | None:
    meta = run.meta
    if meta.get("task_id") is None:
        return None
    place = (meta.get("source"), meta.get("domain"), meta.get("suite"))
    injection = meta.get("injection_task")
    try:
        cluster = Cluster((*place, meta["task_id"]), None if injection is None else (*place, injection))
        hash(cluster)
    except TypeError:  # a task id that is a list or mapping
        cluster = Cluster((*place, repr(meta["task_id"])), None if injection is None else (*place, repr(injection)))
    return cluster
