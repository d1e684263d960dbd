"""How well a detector tells failed runs from good ones, and the threshold that follows; or that none does.

What is reported was not fitted on: thresholds come from half of the tasks, figures from the other half, and those of a domain
that was left out from a threshold of the other domains.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.metadata import PackageNotFoundError, version
from math import isfinite, isnan, nan
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab.detection.detectors import Detecting, Detector, Unscored, detectors_of
from noetic_nb.lab.statistics.labels import By, Outcome, groups_of, labels_of, runs_in
from noetic_nb.regulator import Regulator, Settings
from noetic_nb.runs import Run

if TYPE_CHECKING:
    import pandas

__all__ = ["Calibration", "Failure", "calibrate", "domain_of", "labelled"]

OFF: Final = "off"
CHANCE: Final = 0.5
_FORM: Final = "noetic_nb calibration 1"
_ABOUT: Final = (
    "Intervals: 95 %, whole tasks drawn again over the scores of the row, nothing fitted again; "
    "a share of 0 or 1: Wilson's over tasks."
)


class Failure(NamedTuple):
    """A run without a score."""

    detector: str
    run_id: str
    why: str


@dataclass(frozen=True, repr=False)
class Calibration:
    """What detectors are worth on some runs, beside baselines.

    Attributes
    ----------
    detector : str or None
        The detector that was chosen; None where it is off.
    threshold : float or None
        Its threshold: a run whose score reaches it is stopped. None where it is off.
    reasons : dict of str to str
        Of each detector that was tried, why it is off.
    curves : dict of str to dict
        By detector, on held-out tasks: ``threshold, stopped_failed, stopped_good, precision``, each a list.
    failures : tuple of Failure
        Runs that a detector could not score; its rows leave them out.
    unlabelled : int
        Runs that were left out as nobody knows how they went.
    made_of : dict
        Numbers of runs and tasks, ``max_stopped_good``, ``samples``, ``seed`` and versions.
    """

    detector: str | None
    threshold: float | None
    reasons: Mapping[str, str]
    curves: Mapping[str, Mapping[str, Sequence[float]]]
    failures: tuple[Failure, ...]
    unlabelled: int
    made_of: Mapping[str, Any]
    _rows: tuple[Mapping[str, Any], ...] = field(repr=False)
    _tried: tuple[Detecting, ...] = field(repr=False)

    @property
    def table(self) -> pandas.DataFrame:
        """One row for each detector, baselines too, domain and split.

        Returns
        -------
        pandas.DataFrame
            ``detector``, ``baseline``, ``domain`` (``"all"`` and each), ``split`` (``"in sample"``, ``"held out"``, ``"domain
            left out"``: fitted on the other domains), ``runs``, ``failed`` and ``not_scored`` runs, ``threshold`` (missing:
            off), and with their ``_low`` and ``_high`` ``stopped_failed``, ``stopped_good``, ``precision``, ``recall``,
            ``base_rate`` (of failed runs), ``auc`` and ``auc_within`` (pairs of one domain only). ``auc_within_corrected`` is
            the lower end that holds for all detectors that were tried, on the row that decides.
        """
        import pandas

        return pandas.DataFrame([dict(row) for row in self._rows])

    def curve(self, detector: str | None = None) -> pandas.DataFrame:
        """Return what each threshold does on held-out tasks: the ROC and the precision-recall curve.

        Parameters
        ----------
        detector : str, optional
            One of the table; the chosen one, or the first that was tried, by default.

        Returns
        -------
        pandas.DataFrame
            ``threshold``, descending, ``stopped_failed`` (the recall), ``stopped_good``, ``precision``.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_DETECTOR`` for one that is not in the table.
        """
        import pandas

        name = detector or self.detector or self._tried[0].name
        if name not in self.curves:
            raise NoeticConfigError(
                "UNKNOWN_DETECTOR", "The table has no such detector.", given=name, hint=f"Use {', '.join(self.curves)}."
            )
        return pandas.DataFrame({key: list(values) for key, values in self.curves[name].items()})

    def regulator(self) -> Regulator:
        """Return a regulator with the predicate at the threshold; without it where it is off.

        Raises
        ------
        NoeticConfigError
            ``NOT_A_PREDICATE`` for a function of a run.
        """
        chosen = next((each for each in self._tried if each.name == self.detector), None)
        if chosen is not None:
            return chosen.regulator(self.threshold)
        known = [each for each in self._tried if each.is_steering]
        return (known or self._tried)[0].regulator(None)

    def plot(self, ax: Any = None) -> Any:
        """Draw the ROC curves on held-out tasks: detectors that were tried as lines, baselines dashed, chance dotted.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; axes of their own by default.

        Returns
        -------
        matplotlib Axes
            The axes.
        """
        import pandas

        baselines = {row["detector"] for row in self._rows if row["baseline"]}
        x, y = "good runs stopped", "failed runs stopped"
        chance = pandas.DataFrame({x: [0.0, 1.0], y: [0.0, 1.0]})
        ax = chance.plot.line(x=x, y=y, ax=ax, label="chance", color="0.6", linestyle=":")
        for name, curve in self.curves.items():
            points = {x: [0.0, *curve["stopped_good"], 1.0], y: [0.0, *curve["stopped_failed"], 1.0]}
            style = {"linestyle": "--", "linewidth": 1.0} if name in baselines else {"linewidth": 2.0}
            pandas.DataFrame(points).plot.line(x=x, y=y, ax=ax, label=name, **style)
        row = next((row for row in self._rows if row["detector"] == self.detector and _is_judged(row)), None)
        if row is not None:
            ax.plot([row["stopped_good"]], [row["stopped_failed"]], "o", label=f"threshold {self.threshold:g}")
            ax.legend()
        ax.set_ylabel(y)
        ax.set_title("Held-out tasks" if self.detector else f"Held-out tasks: {OFF}")
        return ax

    # As text and as a file

    def _headline(self) -> str:
        if self.detector is None or self.threshold is None:
            return OFF
        found = next(each for each in self._tried if each.name == self.detector).setting(self.threshold)
        shown = "" if found is None else f" ({found[0]}={found[1]:g})"
        return f"{self.detector}: stop from a score of {self.threshold:g}{shown}"

    def _notes(self) -> list[str]:
        notes = [f"{name} is {OFF}: {why}" for name, why in self.reasons.items()]
        if self.unlabelled:
            notes.append(f"{self.unlabelled} runs without a label are left out.")
        by_detector: dict[str, list[Failure]] = {}
        for failure in self.failures:
            by_detector.setdefault(failure.detector, []).append(failure)
        notes += [
            f"{name} could not score {len(some)} runs, which its rows leave out: {some[0].run_id}: {some[0].why}"
            for name, some in by_detector.items()
        ]
        return [*notes, _ABOUT]

    def _cells(self) -> list[tuple[str, ...]]:
        head = (
            "detector",
            "domain",
            "split",
            "threshold",
            "failed runs stopped",
            "good runs stopped",
            "AUC",
            "AUC in a domain",
        )
        lines: list[tuple[str, ...]] = [head]
        for row in self._rows:
            shares = [_interval(row, name, 100, "{:.0f} %") for name in ("stopped_failed", "stopped_good")]
            scores = [_interval(row, name, 1, "{:.2f}") for name in ("auc", "auc_within")]
            threshold = OFF if isnan(row["threshold"]) else f"{row['threshold']:.4g}"
            lines.append((row["detector"], row["domain"], row["split"], threshold, *shares, *scores))
        return lines

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
        rows = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
        return "\n".join([f"Calibration: {self._headline()}", *rows, *self._notes()])

    def _repr_html_(self) -> str:
        head, *lines = self._cells()
        top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes())
        return (
            f"<table><caption>Calibration: {escape(self._headline())}</caption><thead><tr>{top}</tr></thead>"
            f"<tbody>{body}</tbody></table>{notes}"
        )

    def save(self, path: str | PathLike[str]) -> Path:
        """Write everything but functions as JSON.

        Parameters
        ----------
        path : path-like
            The file; replaced where it is there.

        Returns
        -------
        Path
            The file.
        """
        data = {
            "form": _FORM,
            "detector": self.detector,
            "threshold": self.threshold,
            "reasons": dict(self.reasons),
            "made_of": dict(self.made_of),
            "unlabelled": self.unlabelled,
            "failures": [list(failure) for failure in self.failures],
            "tried": [[each.name, _settings(each)] for each in self._tried],
            "rows": [{key: _plain(value) for key, value in row.items()} for row in self._rows],
            "curves": {
                name: {key: list(values) for key, values in curve.items()} for name, curve in self.curves.items()
            },
        }
        target = Path(path)
        target.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        return target

    @classmethod
    def load(cls, path: str | PathLike[str], *, named: Mapping[str, Any] | None = None) -> Calibration:
        """Read a calibration back.

        Parameters
        ----------
        path : path-like
            What `save` wrote.
        named : mapping of str to object, optional
            Predicates and scorers of one's own, by their name.

        Returns
        -------
        Calibration
            The same, except that functions are names only.

        Raises
        ------
        NoeticConfigError
            ``INVALID_CALIBRATION`` for a file that is none, or that needs code which is not in `named`.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            if data["form"] != _FORM:
                raise ValueError(f"the form is {data['form']!r}")
            return cls(
                detector=data["detector"],
                threshold=data["threshold"],
                reasons=data["reasons"],
                curves=data["curves"],
                failures=tuple([Failure(*failure) for failure in data["failures"]]),
                unlabelled=data["unlabelled"],
                made_of=data["made_of"],
                _rows=tuple(
                    [{key: nan if value is None else value for key, value in row.items()} for row in data["rows"]]
                ),
                _tried=tuple([Detecting(name, _given(settings, named)) for name, settings in data["tried"]]),
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as exc:
            raise NoeticConfigError(
                "INVALID_CALIBRATION",
                f"The file holds no calibration that can be read: {exc}",
                given=str(path),
                hint="Use what Calibration.save wrote, and pass predicates of your own as named={name: predicate}.",
            ) from exc


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value


def _settings(each: Detecting) -> dict[str, Any] | None:
    """Return a predicate or a regulator as data, None for a function."""
    if isinstance(each.given, Regulator):
        return {"regulator": each.given.settings.to_dict()}
    return {"predicate": Settings(predicates=(each.given,)).to_dict()} if each.is_steering else None


def _given(data: Mapping[str, Any] | None, named: Mapping[str, Any] | None) -> Any:
    if data is None:
        return None
    (kind, settings), *_ = data.items()
    read = Settings.from_dict(settings, named=named)
    return Regulator.for_user("calibrated").with_settings(read) if kind == "regulator" else read.predicates[0]


def _interval(row: Mapping[str, Any], name: str, scale: float, form: str) -> str:
    value, low, high = (scale * row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if isnan(value):
        return "?"
    ends = "" if isnan(low) else f" [{form.format(low)}, {form.format(high)}]".replace(" %", "")
    return f"{form.format(value)}{ends}"


def _is_judged(row: Mapping[str, Any]) -> bool:
    return bool(row["split"] == "held out" and row["domain"] == "all")


def domain_of(run: Run) -> str:
    """Return the domain of a run, the suite where it has none."""
    return str(run.meta.get("domain") or run.meta.get("suite") or "unnamed")


def labelled(runs: Run | Iterable[Run], outcome: Outcome) -> tuple[list[Run], list[bool], int]:
    """Return the runs that somebody judged, whether each failed, and how many nobody judged."""
    found = runs_in(runs)
    labels = labels_of(found, outcome, both=True)
    kept = [(run, not label) for run, label in zip(found, labels, strict=True) if label is not None]
    return [run for run, _ in kept], [has_failed for _, has_failed in kept], len(found) - len(kept)


def check_samples(samples: int) -> None:
    """Refuse what is no number of samples; raises `NoeticConfigError` ``INVALID_COUNT``."""
    if type(samples) is not int or not 1 <= samples <= 1_000_000:
        raise NoeticConfigError(
            "INVALID_COUNT", "Samples are counted.", given=samples, hint="Use 1 000, or 1 to 1 000 000."
        )


def calibrate(
    detector: Detector | Mapping[str, Detector],
    runs: Run | Iterable[Run],
    *,
    outcome: Outcome = "outcome",
    max_stopped_good: float = 0.05,
    by: By = "task",
    samples: int = 1_000,
    seed: int = 0,
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
    if len(set(groups)) < 2:
        raise NoeticConfigError(
            "TOO_FEW_TASKS",
            "Thresholds are fitted on some tasks and reported on others, but all runs are of one.",
            given={"runs": len(found), "tasks": 1},
            hint="Add runs of other tasks, or name the groups: by=lambda run: run.run_id.",
        )
    # Loaded here, as numpy and scikit-learn are slow to load.
    import numpy as np

    from noetic_nb.lab.detection.baselines import COUNTS, FOLDS, WORDS, WordModel
    from noetic_nb.lab.detection.fitting import Fitting, Scored, folds_of

    if taken := {each.name for each in tried} & {*COUNTS, WORDS}:
        raise NoeticConfigError(
            "INVALID_DETECTOR", "A baseline has this name.", given=sorted(taken), hint="Give the detector another name."
        )
    labels = np.asarray(failed)
    domains = [domain_of(run) for run in found]
    words = WordModel(found, labels)
    failures: list[Failure] = []
    detectors = []
    for each in (*tried, *[Detecting(name, count) for name, count in COUNTS.items()]):
        scores = np.asarray(_scores(each, found, failures))
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
    rows = fitting.table(detectors)
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
            "versions": {name: _version(name) for name in ("noetic_nb", "numpy", "scikit-learn")},
        },
        _rows=tuple(rows),
        _tried=tried,
    )


def _scores(each: Detecting, runs: Sequence[Run], failures: list[Failure]) -> list[float]:
    scores = []
    for run in runs:
        try:
            scores.append(each.score(run))
        except Unscored as why:
            scores.append(nan)
            failures.append(Failure(each.name, run.run_id, str(why)))
    return scores


def _why_off(rows: Sequence[Mapping[str, Any]], name: str, threshold: float | None) -> str | None:
    row = next(row for row in rows if row["detector"] == name and _is_judged(row))
    low = row["auc_within_corrected"]
    if not row["runs"]:
        return "it scored none of the held-out runs."
    if isnan(low):
        return "held-out tasks do not have enough runs of both kinds to tell it from chance."
    if not low > CHANCE:
        return f"on held-out tasks it cannot be told from chance (AUC {row['auc_within']:.2f}, lower end {low:.2f})."
    if threshold is None:
        return "no threshold stops a failed run and few enough of the good ones."
    return None


def _best(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str | None:
    """Return the detector that stops most failed runs where thresholds are fitted, by the area where they are equal."""
    fitted = {row["detector"]: row for row in rows if row["split"] == "in sample"}
    return max(names, key=lambda name: (fitted[name]["stopped_failed"], fitted[name]["auc"]), default=None)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "source"
