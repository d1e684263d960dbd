"""How well a detector separates failed from good runs, and the threshold to use, if any.

Thresholds are fitted on half of the tasks and reported on the other half; for a left-out domain, they are fitted on the
other domains. Whether a detector is on is decided on all tasks, because its scores are not fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite, isnan, nan
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noetic_nb._core.atomic_write import read_form, save_form
from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import check_one_of
from noetic_nb.lab._detection.detectors import Detecting
from noetic_nb.regulator import Regulator, Settings
from noetic_nb.runs._plain_text import plain_line

if TYPE_CHECKING:
    import pandas

OFF: Final = "off"
ON: Final = "on"
NO_EVIDENCE: Final = "no evidence"
AGAINST: Final = "evidence against"
_WORDS: Final = {NO_EVIDENCE: "off, not enough evidence", AGAINST: "off, evidence against"}
CHANCE: Final = 0.5
SPLITS: Final = 20
ACCEPTABLE: Final = 0.7
"""An area called acceptable by Hosmer, Lemeshow and Sturdivant (2013), Applied logistic regression, section 5.2.4."""
# The text is for reading; `table` and `reasons` are complete.
_MOST_LINES: Final = 12
_MOST_TEXT: Final = 300
_FORM: Final = "noetic_nb calibration 1"
_ABOUT: Final = (
    "Intervals: 95 %, nothing fitted again; areas: whole tasks drawn again over the scores of the row; "
    "shares: Wilson's, from the spread between tasks."
)


class Failure(NamedTuple):
    """A run without a score."""

    detector: str
    run_id: str
    why: str


def none_scored(first: Failure, **given: Any) -> NoeticConfigError:
    """Return the error for runs that a detector could not score at all."""
    what = f"{first.detector} could not score any run; the first, {first.run_id}: {first.why}"
    hint = "Call it on that run, or pass runs that contain its data."
    return NoeticConfigError("DETECTOR_FAILED", what, given=given, hint=hint)


@with_card(shown="as HTML")
@dataclass(frozen=True, repr=False)
class Calibration:
    """How well detectors separate failed runs from good ones, compared with baselines.

    Attributes
    ----------
    detector : str or None
        The chosen detector; None if it is off.
    threshold : float or None
        Its threshold: a run whose score reaches it is stopped. None if the detector is off.
    verdict : {"on", "no evidence", "evidence against"}
        ``"on"`` if a detector was chosen. ``"evidence against"``: no detector's interval over all tasks reaches an area
        of 0.7, which is called acceptable.
    detectable : float
        The smallest area under the ROC curve that these runs would have told from chance with 80 % power.
    stability : float
        The share of 20 splits whose held-out half of the tasks alone gives the same verdict, on or off.
    reasons : dict of str to str
        For each detector that was tried, the reason why it is off.
    curves : dict of str to dict
        By detector, on held-out tasks: ``threshold, stopped_failed, stopped_good, precision``, each a list.
    failures : tuple of Failure
        Runs that a detector could not score; its rows leave them out.
    unlabelled : int
        The number of runs left out because their outcome is unknown.
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
    verdict: str = NO_EVIDENCE
    detectable: float = nan
    stability: float = nan

    @property
    def table(self) -> pandas.DataFrame:
        """One row per detector (also baselines), domain and split.

        Returns
        -------
        pandas.DataFrame
            ``detector``, ``baseline``, ``domain`` (``"all"`` and each), ``split`` (``"in sample"``, ``"held out"``, or
            ``"domain left out"``, fitted on the other domains), the numbers of ``runs``, ``failed`` and ``not_scored``
            runs, and ``threshold`` (missing if off). With their ``_low`` and ``_high``: ``stopped_failed``,
            ``stopped_good``, ``precision``, ``recall``, ``base_rate`` (of failed runs), ``auc``, ``auc_within`` (only
            pairs within a domain) and ``gain`` (``auc_within`` minus that of ``best_baseline``, the best one on these
            runs; empty for baselines). ``auc_within_corrected``, in held-out rows of all domains, is the lower end over
            all tasks that decides; it is corrected for the number of detectors.
        """
        import pandas

        return pandas.DataFrame([dict(row) for row in self._rows])

    def curve(self, detector: str | None = None) -> pandas.DataFrame:
        """Return the effect of each threshold on held-out tasks: the ROC and precision-recall curves.

        Parameters
        ----------
        detector : str, optional
            A detector of the table; by default the chosen one, or the first one tried.

        Returns
        -------
        pandas.DataFrame
            ``threshold``, descending, ``stopped_failed`` (the recall), ``stopped_good``, ``precision``.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_DETECTOR`` if it is not in the table.
        """
        import pandas

        name = detector or self.detector or self._tried[0].name
        check_one_of(self.curves, "UNKNOWN_DETECTOR", detector=name)
        return pandas.DataFrame({key: list(values) for key, values in self.curves[name].items()})

    def regulator(self) -> Regulator:
        """Return a regulator with the predicate at the threshold, or without it if it is off.

        Raises
        ------
        NoeticConfigError
            ``NOT_A_PREDICATE`` if the detector is a function of a run.
        """
        chosen = next((each for each in self._tried if each.name == self.detector), None)
        if chosen is not None:
            return chosen.regulator(self.threshold)
        known = [each for each in self._tried if each.is_steering]
        return (known or self._tried)[0].regulator(None)

    def plot(self, ax: Any = None) -> Any:
        """Draw the ROC curves on held-out tasks, as `noetic_nb.plots.roc` does.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw on; new ones by default.

        Returns
        -------
        matplotlib Axes
            The axes.
        """
        # An import from an upper layer, because all figures are drawn in `plots`.
        from noetic_nb.plots import roc

        return roc(self, ax=ax)

    def _headline(self) -> str:
        if self.detector is None or self.threshold is None:
            return _WORDS[self.verdict]
        found = next(each for each in self._tried if each.name == self.detector).setting(self.threshold)
        shown = "" if found is None else f" ({found[0]}={found[1]:g})"
        return f"{plain_line(self.detector)}: stop from a score of {self.threshold:g}{shown}"

    def _notes(self) -> list[str]:
        notes = [f"{name} is {OFF}: {why}" for name, why in self.reasons.items()]
        row = next((row for row in self._rows if row["detector"] == self.detector and is_judged(row)), None)
        if row is not None and row.get("best_baseline") and not row["gain_low"] > 0:
            notes.append(
                f"On held-out tasks {self.detector} cannot be told from the baseline {row['best_baseline']} "
                f"(AUC {_interval(row, 'gain', 1, '{:+.2f}')})."
            )
        if not isnan(self.detectable):
            tasks = self.made_of["tasks"]
            needed = ceil(tasks * ((self.detectable - CHANCE) / (ACCEPTABLE - CHANCE)) ** 2)
            notes.append(
                f"These {tasks} tasks show an AUC of {self.detectable:.2f} or more in 8 of 10 cases; {ACCEPTABLE} needs "
                f"about {needed} tasks. Half of the tasks give the same verdict in {100 * self.stability:.0f} % of splits."
            )
        if self.unlabelled:
            notes.append(f"{self.unlabelled} runs without a label are left out.")
        by_detector: dict[str, list[Failure]] = {}
        for failure in self.failures:
            by_detector.setdefault(failure.detector, []).append(failure)
        notes += [
            f"{name} could not score {len(some)} runs, which its rows leave out: {some[0].run_id}: {some[0].why}"
            for name, some in by_detector.items()
        ]
        return [*[plain_line(note, _MOST_TEXT) for note in notes[:_MOST_LINES]], _ABOUT]

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
            "more than the best baseline",
        )
        lines: list[tuple[str, ...]] = [head]
        for row in self._rows:
            shares = [_interval(row, name, 100, "{:.0f} %") for name in ("stopped_failed", "stopped_good")]
            scores = [_interval(row, name, 1, "{:.2f}") for name in ("auc", "auc_within")]
            threshold = OFF if isnan(row["threshold"]) else f"{row['threshold']:.4g}"
            gain = f"{_interval(row, 'gain', 1, '{:+.2f}')} {row['best_baseline']}" if row.get("best_baseline") else ""
            named = (plain_line(row["detector"]), plain_line(row["domain"]))
            lines.append((*named, row["split"], threshold, *shares, *scores, gain))
        return lines

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
        rows = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells[: _MOST_LINES + 1]]
        rows += [f"… {len(cells) - _MOST_LINES - 1} rows more"] if len(cells) > _MOST_LINES + 1 else []
        return "\n".join([f"Calibration: {self._headline()}", *rows, *self._notes()])

    def _card(self) -> Card:
        head, *lines = self._cells()
        return Card("Calibration", facts=[("", self._headline())], table=Table(head, lines), notes=self._notes())

    def save(self, path: str | PathLike[str]) -> Path:
        """Write everything except functions as JSON.

        Parameters
        ----------
        path : path-like
            The file; replaced if it exists.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        NoeticConfigError
            ``CANNOT_WRITE``; an existing file is kept.
        """
        data = {
            "detector": self.detector,
            "threshold": self.threshold,
            "verdict": self.verdict,
            "detectable": _plain(self.detectable),
            "stability": _plain(self.stability),
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
        return save_form(path, _FORM, data)

    @classmethod
    def load(cls, path: str | PathLike[str], *, named: Mapping[str, Any] | None = None) -> Calibration:
        """Read a saved calibration.

        Parameters
        ----------
        path : path-like
            A file written by `save`.
        named : mapping of str to object, optional
            Custom predicates and scorers, by name.

        Returns
        -------
        Calibration
            The same, except that functions are only names.

        Raises
        ------
        NoeticConfigError
            ``INVALID_CALIBRATION`` for another kind of file, or one that needs code missing in `named`.
        """
        try:
            data = read_form(path, _FORM)
            return cls(
                detector=data["detector"],
                threshold=data["threshold"],
                verdict=data.get("verdict", NO_EVIDENCE if data["detector"] is None else ON),
                detectable=_number(data.get("detectable")),
                stability=_number(data.get("stability")),
                reasons=data["reasons"],
                curves=data["curves"],
                failures=tuple([Failure(*failure) for failure in data["failures"]]),
                unlabelled=data["unlabelled"],
                made_of=data["made_of"],
                _rows=tuple([{key: _number(value) for key, value in row.items()} for row in data["rows"]]),
                _tried=tuple([Detecting(name, _given(settings, named)) for name, settings in data["tried"]]),
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as exc:
            what = f"The file does not contain a valid calibration: {exc}"
            hint = "Use a file that Calibration.save wrote, and pass predicates of your own as named={name: predicate}."
            raise NoeticConfigError("INVALID_CALIBRATION", what, given=str(path), hint=hint) from exc


def _number(value: Any) -> Any:
    return nan if value is None else value


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


def is_judged(row: Mapping[str, Any]) -> bool:
    """Tell whether a row decides whether its detector is off."""
    return bool(row["split"] == "held out" and row["domain"] == "all")
