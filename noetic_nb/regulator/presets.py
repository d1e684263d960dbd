"""Ready-made settings by name, and their measured effect on recorded runs with known outcomes.

No figures are written by hand: `figures` reads the table created by ``benchmarks/studies/presets.py``, by domain and
model, with intervals over tasks. A figure says if its thresholds were chosen on the same runs, because it is then too
optimistic. Presets do not transfer between domains; measure on your own runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from noetic_nb.regulator._settings import NEWER_SETTINGS, RECOMMENDED_SETTINGS, RELEASE_SETTINGS, Settings
from noetic_nb.regulator.predicates import (
    CallBudget,
    CostCap,
    Predicate,
    QualityDecline,
    RepeatedFailure,
    ScopeDrift,
    ToolLoop,
)
from noetic_nb.regulator.predicates.context_scorer import CONTEXT_SCORER, CONTEXT_THRESHOLD
from noetic_nb.regulator.predicates.drift import NEWER_KEYWORDS

__all__ = ["MEASURED", "PRESETS", "TABLE", "Figure", "Share", "describe", "figures", "most_calls"]

TABLE: Final = Path(__file__).with_name("presets.json")
"""The results of the study."""

PRESETS: Final[dict[str, Settings]] = {
    "release": RELEASE_SETTINGS,
    "newer": NEWER_SETTINGS,
    "recommended": RECOMMENDED_SETTINGS,
}
"""By name: the settings of `Regulator.for_user`, `Regulator.newer` and `Regulator.recommended`."""


def _of(kind: type[Predicate]) -> tuple[Predicate, ...]:
    """Return the predicates of one kind in the recommended preset."""
    return tuple(predicate for predicate in RECOMMENDED_SETTINGS.predicates if isinstance(predicate, kind))


MEASURED: Final[dict[str, tuple[Predicate, ...]]] = {
    "same tool 5 times in a row": (ToolLoop(),),
    "same tool 8 times in a row": (ToolLoop(threshold=8),),
    "identical calls 3 times": _of(ToolLoop),
    "3 failures in a row": (RepeatedFailure(threshold=3),),
    "more than 12 calls": (CallBudget(total=12),),
    "more than 20 calls": (CallBudget(total=20),),
    "keyword drift": (ScopeDrift(),),
    "keyword drift, newer": (ScopeDrift(scorer=NEWER_KEYWORDS),),
    "drift in context": (ScopeDrift(scorer=CONTEXT_SCORER, threshold=CONTEXT_THRESHOLD),),
    "drift in context, as recommended": _of(ScopeDrift),
}
"""Predicates that the study measures separately, by their names there."""


CHOSEN_ON: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(
        (
            "recommended",
            "identical calls 3 times",
            "3 failures in a row",
            "more than 20 calls",
            "drift in context, as recommended",
        ),
        frozenset({"airline", "retail", "telecom"}),
    ),
    "drift in context": frozenset({"airline"}),
}
"""By preset or predicate, the domains whose recorded runs determined its thresholds. The originals brought theirs."""


@dataclass(frozen=True, slots=True)
class Share:
    """A count out of a total, with a 95 % interval of the rate; without interval if the tasks of the runs are unknown.

    Examples
    --------
    >>> str(Share(1, 50, 0.004, 0.105)), str(Share(1, 50))
    ('1 of 50 (2 %, 0 to 10 %)', '1 of 50 (2 %)')
    """

    n: int
    of: int
    low: float | None = None
    high: float | None = None

    @property
    def rate(self) -> float:
        """The share itself; 0 of 0 is 0."""
        return self.n / self.of if self.of else 0.0

    def __str__(self) -> str:
        ends = "" if self.low is None or self.high is None else f", {100 * self.low:.0f} to {100 * self.high:.0f} %"
        return f"{self.n} of {self.of} ({100 * self.rate:.0f} %{ends})"


@dataclass(frozen=True, slots=True)
class Figure:
    """The effect of a preset or predicate on the runs of one domain and model.

    Parameters
    ----------
    detector : str
        A key of `PRESETS`, for which stops count, or of `MEASURED`, for which warnings count as well.
    domain : str
        The domain; ``"all domains"`` for all runs together on which its thresholds were not chosen.
    failed, good : Share
        How many failed runs, and how many others, it fired in.
    precision : Share
        Of the runs it fired in, how many had failed.
    base_rate : Share
        Of all runs, how many had failed: a precision that is not higher is meaningless.
    model : str
        The model, and the source of the runs if another source has the same domain.
    chosen_here : bool
        Whether its thresholds were chosen on these runs.
    """

    detector: str
    domain: str
    failed: Share
    good: Share
    precision: Share
    base_rate: Share
    model: str = ""
    chosen_here: bool = False

    def __str__(self) -> str:
        where = f"{self.domain}, {self.model}" if self.model else self.domain
        runs = f"{where}: {self.failed} failed runs, {self.good} good ones"
        chosen = " Its numbers were chosen on these runs." if self.chosen_here else ""
        if not self.precision.of:
            return f"{runs}.{chosen}"
        return f"{runs}. Of those it fell on {self.precision} had failed, of all {self.base_rate}.{chosen}"


@cache
def _table() -> tuple[tuple[Figure, ...], dict[str, int]]:
    data: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    shares = ("failed", "good", "precision", "base_rate")
    rows = [Figure(**{**row, **{name: Share(*row[name]) for name in shares}}) for row in data["rows"]]
    return tuple(rows), data["most_calls"]


def figures(detector: str | None = None, domain: str | None = None) -> tuple[Figure, ...]:
    """Return the measured figures, optionally of one preset or predicate and in one domain.

    Examples
    --------
    >>> [figure.model for figure in figures("recommended", "retail") if not figure.chosen_here]
    ['another agent (AgentRx)']
    """
    return tuple(
        figure for figure in _table()[0] if detector in (None, figure.detector) and domain in (None, figure.domain)
    )


def most_calls() -> dict[str, int]:
    """Return the tool calls in the longest good run of each domain whose runs determined the recommended budget."""
    return dict(_table()[1])


def describe(detector: str = "recommended") -> str:
    """Describe the effect of a preset or predicate on recorded runs, one line per domain and model, with 95 % intervals.

    Lines for runs on which its thresholds were not chosen come first.

    Parameters
    ----------
    detector : str
        A key of `PRESETS` or `MEASURED`.

    Raises
    ------
    ValueError
        If it was not measured; the message lists the measured ones.

    References
    ----------
    .. [1] docs/studies/presets.md.
    """
    found = figures(detector)
    if not found:
        known = ", ".join(map(repr, (*PRESETS, *MEASURED)))
        raise ValueError(f"Figures exist for {known}. Given: {detector!r:.80}.")
    verb = "stops" if detector in PRESETS else "falls on"
    ordered = sorted(found, key=lambda figure: figure.chosen_here)
    lines = [f"{detector} {verb} (95 % intervals over tasks)", *(f"  {figure}" for figure in ordered)]
    if detector in PRESETS and any(isinstance(each, CostCap | QualityDecline) for each in PRESETS[detector].predicates):
        lines.append("  Cost cap and quality decline need grades, which these runs do not have: they are not in it.")
    return "\n".join(lines)
