"""The runs that somebody judged, and the domains that they belong to."""

from __future__ import annotations

from collections.abc import Iterable

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._statistics.labels import Outcome, labels_of, runs_in
from noetic_nb.runs import Run


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
    """Refuse an invalid number of samples; raises `NoeticConfigError` ``INVALID_COUNT``."""
    if type(samples) is not int or not 1 <= samples <= 1_000_000:
        raise NoeticConfigError(
            "INVALID_COUNT", "Samples are counted.", given=samples, hint="Use 1 000, or 1 to 1 000 000."
        )
