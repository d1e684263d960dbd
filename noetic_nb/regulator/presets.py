"""Settings to begin with, by name, and their effect on recorded runs whose outcome is known.

No figure about them is written here by hand: `figures` reads the table that ``benchmarks/studies/presets.py`` has made, with an
interval and the domain of each. They do not carry over from one domain to the next; measure on runs of your own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from noetic_nb.regulator._settings import NEWER_SETTINGS, RECOMMENDED_SETTINGS, RELEASE_SETTINGS, Settings
from noetic_nb.regulator.predicates import CallBudget, Predicate, RepeatedFailure, ScopeDrift, ToolLoop
from noetic_nb.regulator.predicates.context_scorer import CONTEXT_SCORER, CONTEXT_THRESHOLD
from noetic_nb.regulator.predicates.drift import NEWER_KEYWORDS

__all__ = [
    "MEASURED",
    "PRESETS",
    "TABLE",
    "Figure",
    "Share",
    "describe",
    "figures",
    "most_calls",
]

TABLE: Final = Path(__file__).with_name("presets.json")
"""What the study has made."""

PRESETS: Final[dict[str, Settings]] = {
    "release": RELEASE_SETTINGS,
    "newer": NEWER_SETTINGS,
    "recommended": RECOMMENDED_SETTINGS,
}
"""By name: those of `Regulator.for_user`, `Regulator.newer` and `Regulator.recommended`."""


def _of(kind: type[Predicate]) -> tuple[Predicate, ...]:
    """Return the predicates of a kind that the recommended preset has."""
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
"""Predicates that the study measures alone, by what they are called there."""


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many, with a 95 % interval of the rate.

    Examples
    --------
    >>> str(Share(1, 50, 0.004, 0.105))
    '1 of 50 (2 %, 0 to 10 %)'
    """

    n: int
    of: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """The share itself; 0 of nothing is 0."""
        return self.n / self.of if self.of else 0.0

    def __str__(self) -> str:
        low, rate, high = (f"{100 * share:.0f}" for share in (self.low, self.rate, self.high))
        return f"{self.n} of {self.of} ({rate} %, {low} to {high} %)"


@dataclass(frozen=True, slots=True)
class Figure:
    """The effect of a preset or predicate in one domain.

    Parameters
    ----------
    detector : str
        A key of `PRESETS`, of which stops count, or of `MEASURED`, of which warnings count too.
    domain : str
        Where.
    failed, good : Share
        Of the runs that failed, and of those that did not, how many it fell on.
    precision : Share
        Of the runs it fell on, how many had failed.
    base_rate : Share
        Of all runs, how many had failed: a precision that is not above says nothing.
    """

    detector: str
    domain: str
    failed: Share
    good: Share
    precision: Share
    base_rate: Share

    def __str__(self) -> str:
        runs = f"{self.domain}: {self.failed} failed runs, {self.good} good ones"
        if not self.precision.of:
            return f"{runs}."
        return f"{runs}. Of those it fell on {self.precision} had failed, of all {self.base_rate}."


@cache
def _table() -> tuple[tuple[Figure, ...], dict[str, int]]:
    data: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    shares = ("failed", "good", "precision", "base_rate")
    rows = (Figure(row["detector"], row["domain"], *(Share(*row[name]) for name in shares)) for row in data["rows"])
    return tuple(rows), data["most_calls"]


def figures(detector: str | None = None, domain: str | None = None) -> tuple[Figure, ...]:
    """Return the measured figures, of one preset or predicate and in one domain where given.

    Examples
    --------
    >>> [figure.domain for figure in figures("recommended")]
    ['airline', 'retail', 'telecom']
    """
    return tuple(
        figure for figure in _table()[0] if detector in (None, figure.detector) and domain in (None, figure.domain)
    )


def most_calls() -> dict[str, int]:
    """Return how many tool calls the longest good run of each domain made."""
    return dict(_table()[1])


def describe(detector: str = "recommended") -> str:
    """Describe the effect of a preset or predicate on recorded runs, a line for each domain, with 95 % intervals.

    Parameters
    ----------
    detector : str
        A key of `PRESETS` or `MEASURED`.

    Raises
    ------
    ValueError
        If it was not measured; the message names what was.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Settings".
    """
    found = figures(detector)
    if not found:
        known = ", ".join(map(repr, (*PRESETS, *MEASURED)))
        raise ValueError(f"There are figures of {known}. Given: {detector!r:.80}.")
    verb = "stops" if detector in PRESETS else "falls on"
    return "\n".join((f"{detector} {verb} (95 % intervals)", *(f"  {figure}" for figure in found)))
