"""The search for a threshold: scores of every detector and baseline, fitted on some tasks, judged on others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import isnan, nan
from typing import Any, Final

from noetic_nb._core.long_work import Progress, Work
from noetic_nb._core.package_versions import version_of
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._detection.calibration import Calibration, Failure, is_judged
from noetic_nb.lab._detection.detectors import Detecting, Detector, Unscored, detectors_of
from noetic_nb.lab._detection.labelled_runs import check_samples, domain_of, labelled
from noetic_nb.lab._statistics.labels import By, Outcome, groups_of
from noetic_nb.runs import Run

__all__ = ["calibrate"]

CHANCE: Final = 0.5


def calibrate(
    detector: Detector | Mapping[str, Detector],
    runs: Run | Iterable[Run],
    *,
    outcome: Outcome = "outcome",
    max_stopped_good: float = 0.05,
    by: By = "task",
    samples: int = 1_000,
    seed: int = 0,
    progress: Progress = True,
) -> Calibration:
    """Find the threshold of a detector that stops failed runs and hardly any good one, or find that there is none.

    Parameters
    ----------
    detector : function of a run, predicate, Regulator, or mapping of str to these
        What gives a score, higher for a stop. The score of a predicate is the highest value that its threshold is compared with
        where it could have stopped the run (a warning: have warned); a regulator stops a run (1) or does not (0). Several are
        corrected for, and the best of them is chosen on the tasks that are fitted on.
    runs : Run or iterable of Run
        What was recorded. Runs without a label are left out and counted.
    outcome : str or callable
        A key of ``run.meta`` or a function of a run: True good, False failed, None unknown.
    max_stopped_good : float
        Most of the good runs that a threshold may stop where it is fitted, 0 to 1.
    by : str or callable
        ``"task"``, or a function of a run that names what it belongs to; runs of one task are fitted on or reported, never both.
    samples : int
        How many samples of tasks an interval is taken of.
    seed : int
        Which tasks are fitted on, and which samples are drawn.
    progress : bool or callable
        Called with how many runs are scored, of how many, and then with how many detectors are fitted; by default a line of text
        in a terminal or notebook if it takes long. False shows nothing.

    Returns
    -------
    Calibration
        Its `table` has the detectors and the baselines, `threshold` what was found. It is off where the lower end of the area
        under the ROC curve, over pairs of one domain and corrected for the detectors that were tried, is not above one half on
        held-out tasks, and where no threshold stops a failed run and few enough good ones.

    Raises
    ------
    NoeticConfigError
        ``INVALID_DETECTOR``, ``INVALID_SHARE``, ``INVALID_COUNT``, ``INVALID_RUN``, ``NO_RUNS``, ``NO_LABELS``, ``ONE_CLASS``,
        ``INVALID_OUTCOME``, ``NO_TASK``, ``INVALID_GROUP``; ``TOO_FEW_TASKS`` for less than two; ``DETECTOR_FAILED`` where no
        detector could score any run; ``MISSING_PACKAGE`` without scikit-learn.

    Warns
    -----
    Interrupted
        If it is interrupted while it scores runs: it is the calibration on the runs that were scored, where these are enough.

    Notes
    -----
    Intervals draw whole tasks again over the scores that are there; no threshold and no model is fitted again, so that they say
    how sure the figures of *this* threshold are. Of several detectors, the lower ends hold together (single-step maxT [1]_).

    References
    ----------
    .. [1] Westfall, P. H., and Young, S. S. (1993). Resampling-based multiple testing. Wiley.
    .. [2] docs/behaviour/lab.md, "Thresholds from outcomes".

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> from noetic_nb.regulator import ToolLoop
    >>> found = calibrate(ToolLoop(), datasets.airline(), samples=100)
    >>> found.threshold is None, found.regulator().settings.predicates
    (True, ())
    """
    tried = detectors_of(detector)
    is_number = isinstance(max_stopped_good, int | float) and not isinstance(max_stopped_good, bool)
    if not (is_number and 0 <= max_stopped_good <= 1):
        raise NoeticConfigError(
            "INVALID_SHARE",
            "max_stopped_good is a share of the good runs.",
            given=max_stopped_good,
            hint="Use 0 to 1, such as 0.05.",
        )
    check_samples(samples)
    found, failed, unlabelled = labelled(runs, outcome)
    groups = groups_of(found, by)
    if not _are_enough(groups, failed):
        raise NoeticConfigError(
            "TOO_FEW_TASKS",
            "Thresholds are fitted on some tasks and reported on others, but all runs are of one.",
            given={"runs": len(found), "tasks": 1},
            hint="Add runs of other tasks, or name the groups: by=lambda run: run.run_id.",
        )
    # Loaded here, as numpy and scikit-learn are slow to load.
    import numpy as np

    from noetic_nb.lab._detection.baselines import COUNTS, FOLDS, WORDS, WordModel
    from noetic_nb.lab._detection.fitting import Fitting, Scored, folds_of

    if taken := {each.name for each in tried} & {*COUNTS, WORDS}:
        raise NoeticConfigError(
            "INVALID_DETECTOR", "A baseline has this name.", given=sorted(taken), hint="Give the detector another name."
        )
    failures: list[Failure] = []
    scoring = (*tried, *[Detecting(name, count) for name, count in COUNTS.items()])
    scores_of: list[list[float]] = []
    with Work("calibrate", "runs", progress, of=len(found)) as work:
        for run in work.each(found):
            scores_of.append([_score(each, run, failures) for each in scoring])
    if work.cut:
        found, failed, groups = found[: work.done], failed[: work.done], groups[: work.done]
        if not _are_enough(groups, failed):
            raise KeyboardInterrupt
    labels = np.asarray(failed)
    domains = [domain_of(run) for run in found]
    words = WordModel(found, labels)
    detectors = []
    for each, column in zip(scoring, zip(*scores_of, strict=True), strict=True):
        scores = np.asarray(column)
        detectors.append(Scored(each.name, each.name in COUNTS, lambda _, scores=scores: scores))  # type: ignore[misc]
    if len(failures) >= len(tried) * len(found):
        first = failures[0]
        raise NoeticConfigError(
            "DETECTOR_FAILED",
            f"{first.detector} could not score any run; the first, {first.run_id}: {first.why}",
            given={"detectors": [each.name for each in tried], "runs": len(found)},
            hint="Call it on that run, or pass runs that know what it looks at.",
        )
    folds = folds_of(groups, domains, failed, FOLDS, seed)
    learned: dict[bytes, Any] = {}

    def of_words(fitted: Any) -> Any:
        key = fitted.tobytes()
        if key not in learned:
            learned[key] = words.scores(fitted, folds)
        return learned[key]

    detectors.append(Scored(WORDS, True, of_words))
    fitting = Fitting(labels, groups, domains, max_stopped_good=float(max_stopped_good), samples=samples, seed=seed)
    with Work("calibrate", "detectors", progress, of=len(detectors), keeps=False) as work:
        rows = fitting.table(detectors, work)
    thresholds = {each.name: fitting.threshold_of(each) for each in detectors}
    reasons = {each.name: why for each in tried if (why := _why_off(rows, each.name, thresholds[each.name]))}
    chosen = _best(rows, [each.name for each in tried if each.name not in reasons])
    return Calibration(
        detector=chosen,
        threshold=None if chosen is None else thresholds[chosen],
        reasons=reasons,
        curves={each.name: fitting.curve_of(each) for each in detectors},
        failures=tuple(failures),
        unlabelled=unlabelled,
        made_of={
            "runs": len(found),
            "failed": sum(failed),
            "tasks": len(set(groups)),
            "tasks_fitted_on": len({group for group, is_fit in zip(groups, fitting.fit, strict=True) if is_fit}),
            "max_stopped_good": float(max_stopped_good),
            "samples": samples,
            "seed": seed,
            "versions": {name: version_of(name) for name in ("noetic_nb", "numpy", "scikit-learn")},
        },
        _rows=tuple(rows),
        _tried=tried,
    )


def _are_enough(groups: Sequence[Hashable], failed: Sequence[bool]) -> bool:
    """Tell whether runs are of several tasks, and both good and failed."""
    return len(set(groups)) > 1 and len(set(failed)) > 1


def _score(each: Detecting, run: Run, failures: list[Failure]) -> float:
    try:
        return each.score(run)
    except Unscored as why:
        failures.append(Failure(each.name, run.run_id, str(why)))
        return nan


def _why_off(rows: Sequence[Mapping[str, Any]], name: str, threshold: float | None) -> str | None:
    row = next(row for row in rows if row["detector"] == name and is_judged(row))
    low = row["auc_within_corrected"]
    if not row["runs"]:
        return "it scored none of the held-out runs."
    if isnan(low):
        return "held-out tasks do not have enough runs of both kinds to tell it from chance."
    if not low > CHANCE:
        return f"on held-out tasks it cannot be distinguished from chance (AUC {row['auc_within']:.2f}, lower end {low:.2f})."
    if threshold is None:
        return "no threshold stops a failed run and few enough of the good ones."
    return None


def _best(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str | None:
    """Return the detector that stops most failed runs where thresholds are fitted, by the area where they are equal."""
    fitted = {row["detector"]: row for row in rows if row["split"] == "in sample"}
    return max(names, key=lambda name: (fitted[name]["stopped_failed"], fitted[name]["auc"]), default=None)
