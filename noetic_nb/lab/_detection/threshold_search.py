"""The search for a threshold: scores of every detector and baseline, fitted on some tasks, tested on others."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import compress
from math import isnan, nan
from typing import Any, Final

import numpy as np

from noetic_nb._core.arguments import check_seed
from noetic_nb._core.long_work import Progress, Work
from noetic_nb._core.optional_packages import optional_package
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import item_tokens
from noetic_nb.items._build import item_text
from noetic_nb.lab._checks import check_share
from noetic_nb.lab._detection.calibration import (
    ACCEPTABLE,
    AGAINST,
    CHANCE,
    NO_EVIDENCE,
    ON,
    Calibration,
    Failure,
    none_scored,
)
from noetic_nb.lab._detection.detectors import Detecting, Detector, Unscored, detectors_of
from noetic_nb.lab._detection.fitting import Booleans, Evidence, Fitting, Floats, Scored, folds_of
from noetic_nb.lab._statistics.labels import By, Outcome, check_samples, clusters_of, domain_of, groups_of, labelled
from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import appended
from noetic_nb.runs._run import version_of

WORDS: Final = "TF-IDF of the words"
FOLDS: Final = 5
# The usual prefixes of tools that only read, or that change nothing outside the agent.
_LOOKS_UP: Final = (
    "get list read search find lookup look fetch view show check query count describe browse open calculate think"
)
_READS: Final = frozenset(_LOOKS_UP.split())
_WORD: Final = re.compile(r"[^\W_]+")


def changes_state(name: str) -> bool:
    """Tell by its name whether a tool changes state: it does not if the first word is one of reading."""
    words = _WORD.findall(re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    return not words or words[0] not in _READS


def _items(run: Run, kind: str | None = None) -> list[Any]:
    return [item for _, event in appended(run) for item in event.items if kind is None or item.get("type") == kind]


COUNTS: Final[dict[str, Callable[[Run], float]]] = {
    "calls": lambda run: sum([len(turn.tool_calls) for turn in run.turns]),
    "messages": lambda run: sum([item.get("role") in ("user", "assistant") for item in _items(run, "message")]),
    "state-changing calls": lambda run: sum(
        [changes_state(each.name) for turn in run.turns for each in turn.tool_calls]
    ),
    "length in tokens": lambda run: float(sum(map(item_tokens, _items(run)))),
    "length in characters": lambda run: sum([len(item_text(item)) for item in _items(run)]),
}
"""By name: tool calls, user and agent messages, state-changing calls, tokens and characters of all items."""


class WordModel:
    """A logistic regression on the words of runs, weighted by TF-IDF [1]_; each word counts once per run.

    Rarity and weights of words are learned from the runs to fit on. Raises `NoeticConfigError` ``MISSING_PACKAGE``
    without scikit-learn.

    References
    ----------
    .. [1] Pedregosa et al. (2011). Scikit-learn: machine learning in Python. JMLR 12, 2825-2830.
    """

    def __init__(self, runs: Sequence[Run], failed: Booleans) -> None:
        what = "Baselines are learned with scikit-learn, which is not installed."
        with optional_package(what, "Run: pip install 'noetic_nb[study]'", given="scikit-learn"):
            from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
            from sklearn.linear_model import LogisticRegression
        self._weigh, self._model = TfidfTransformer, LogisticRegression
        self._failed = failed
        texts = ["\n".join(item_text(item) for item in _items(run)) for run in runs]
        try:
            self._counts: Any = CountVectorizer(min_df=2).fit_transform(texts)
        except ValueError:  # no word occurs in two runs
            self._counts = None

    def scores(self, fitted: Booleans, folds: Sequence[int]) -> Floats:
        """Return a score for each run, by models that have not seen its fold; NaN if there is nothing to learn from."""
        scores = np.full(len(self._failed), nan)
        if self._counts is None:
            return scores
        of_fold = np.asarray(folds)
        for fold in np.unique(of_fold[fitted]):
            self._score(scores, fitted & (of_fold != fold), fitted & (of_fold == fold))
        self._score(scores, fitted, ~fitted)
        return scores

    def _score(self, scores: Floats, fitted: Booleans, scored: Booleans) -> None:
        if not scored.any() or len(np.unique(self._failed[fitted])) < 2:
            return
        weigh = self._weigh(sublinear_tf=True)
        model = self._model(class_weight="balanced", max_iter=1_000)
        model.fit(weigh.fit_transform(self._counts[fitted]), self._failed[fitted])
        scores[scored] = model.decision_function(weigh.transform(self._counts[scored]))


POWER_QUANTILE: Final = 0.8416212335729143
"""Quantile of the normal distribution for a power of 80 %."""


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
    """Find a detector threshold that stops failed runs and hardly any good ones, or find that there is none.

    Parameters
    ----------
    detector : function of a run, predicate, Regulator, or mapping of str to these
        The source of a score; higher scores are closer to a stop. A predicate's score is the highest value compared with
        its threshold where it could have stopped the run (a warning: have warned); a regulator stops a run (1) or does not
        (0). With several detectors, results are corrected for their number, and the best is chosen on the tasks to fit on.
    runs : Run or iterable of Run
        Recorded runs. Those without a label are left out and counted.
    outcome : str or callable
        A key of ``run.meta`` or a function of a run: True good, False failed, None unknown.
    max_stopped_good : float
        The largest share of good runs that a threshold may stop where it is fitted, 0 to 1.
    by : str or callable
        ``"task"``, ``"run"``, or a function of a run that returns its group; a group is fitted on or reported, never both.
    samples : int
        The number of bootstrap samples of tasks for an interval.
    seed : int
        Selects the tasks to fit on and the samples.
    progress : bool or callable
        Called with the numbers of scored runs and of all runs, then with the number of fitted detectors. By default a
        line of text in a terminal or notebook if it takes long. False shows nothing.

    Returns
    -------
    Calibration
        Its `table` has the detectors and baselines, `threshold` the result. A detector is off if the lower end of its area
        under the ROC curve (over pairs within a domain, corrected for the number of detectors) is not above one half, or if
        no threshold stops a failed run and few enough good ones; `verdict` tells missing evidence from evidence against.

    Raises
    ------
    NoeticConfigError
        ``INVALID_DETECTOR``, ``INVALID_SHARE``, ``INVALID_COUNT``, ``INVALID_RUN``, ``NO_RUNS``, ``NO_LABELS``,
        ``ONE_CLASS``, ``INVALID_OUTCOME``, ``NO_TASK``, ``INVALID_GROUP``; ``TOO_FEW_TASKS`` for fewer than two;
        ``DETECTOR_FAILED`` if no detector could score any run; ``MISSING_PACKAGE`` without scikit-learn.

    Warns
    -----
    Interrupted
        If scoring is interrupted; it holds the calibration on the runs scored so far, if these are enough.

    Notes
    -----
    Intervals resample whole tasks from the existing scores. Thresholds and models are not refitted: they show how certain
    the figures of *this* threshold are. For several detectors the lower ends hold simultaneously (single-step maxT [1]_).

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
    check_share(max_stopped_good=max_stopped_good)
    check_samples(samples)
    check_seed(seed)
    found, failed, unlabelled = labelled(runs, outcome)
    groups = groups_of(found, by)
    clusters = [cluster for cluster in clusters_of(found, by) if cluster is not None]
    if not _are_enough(groups, failed):
        what = "Thresholds are fitted on some tasks and reported on others, but all runs belong to one task."
        hint = 'Add runs of other tasks, or pass by="run" if each run is its own task.'
        raise NoeticConfigError("TOO_FEW_TASKS", what, given={"runs": len(found), "tasks": 1}, hint=hint)
    if taken := {each.name for each in tried} & {*COUNTS, WORDS}:
        hint = "Give the detector another name."
        raise NoeticConfigError("INVALID_DETECTOR", "A baseline has this name.", given=sorted(taken), hint=hint)
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
        raise none_scored(failures[0], detectors=[each.name for each in tried], runs=len(found))
    folds = folds_of(groups, domains, failed, FOLDS, seed)
    learned: dict[bytes, Any] = {}

    def of_words(fitted: Any) -> Any:
        key = fitted.tobytes()
        if key not in learned:
            learned[key] = words.scores(fitted, folds)
        return learned[key]

    detectors.append(Scored(WORDS, True, of_words))
    fitting = Fitting(
        labels, clusters[: len(found)], domains, max_stopped_good=float(max_stopped_good), samples=samples, seed=seed
    )
    with Work("calibrate", "detectors", progress, of=len(detectors), keeps=False) as work:
        rows = fitting.table(detectors, work)
    thresholds = {each.name: fitting.threshold_of(each) for each in detectors}
    scored = [each for each in detectors if not each.baseline]
    evidence = fitting.evidence(scored)
    reasons = {each.name: why for each in tried if (why := _why_off(evidence[each.name], thresholds[each.name]))}
    # The detector that stops most failed runs on the tasks to fit on; ties are broken by area.
    fitted = {row["detector"]: (row["stopped_failed"], row["auc"]) for row in rows if row["split"] == "in sample"}
    chosen = max([each.name for each in tried if each.name not in reasons], key=fitted.__getitem__, default=None)
    off = AGAINST if all(one.high < ACCEPTABLE for one in evidence.values()) else NO_EVIDENCE
    verdict = off if chosen is None else ON
    votes = fitting.verdicts(scored)
    # The margin of the test and the quantile of its power, in standard errors of the best detector.
    best = max(evidence.values(), key=lambda one: one.auc)
    detectable = min(1.0, CHANCE + (best.auc - best.low) + POWER_QUANTILE * best.error)
    return Calibration(
        detector=chosen,
        verdict=verdict,
        detectable=detectable,
        stability=sum(was_on == (verdict == ON) for was_on in votes) / len(votes),
        threshold=None if chosen is None else thresholds[chosen],
        reasons=reasons,
        curves={each.name: fitting.curve_of(each) for each in detectors},
        failures=tuple(failures),
        unlabelled=unlabelled,
        made_of={
            "runs": len(found),
            "failed": sum(failed),
            "tasks": len(set(groups)),
            "tasks_fitted_on": len(set(compress(groups, fitting.fit))),
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


def _why_off(found: Evidence, threshold: float | None) -> str | None:
    if isnan(found.auc):
        return "it scored no run, or only runs of one kind."
    if isnan(found.low):
        return "the runs do not have enough tasks of both kinds to tell it from chance."
    if not found.low > CHANCE:
        return f"it cannot be distinguished from chance (AUC {found.auc:.2f} [{found.low:.2f}, {found.high:.2f}])."
    if threshold is None:
        return "no threshold stops a failed run and few enough of the good ones."
    return None
