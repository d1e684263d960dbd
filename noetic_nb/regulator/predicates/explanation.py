"""Why a regulator answers as it does: every predicate, what it read, and what hides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from noetic_nb.regulator.decisions import CONTINUE, Decision
from noetic_nb.regulator.predicates.core import Predicate
from noetic_nb.regulator.predicates.evidence import Evidence
from noetic_nb.regulator.predicates.finding import Change, Finding

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and every predicate behind it.

    Parameters
    ----------
    decision : Decision
        What `decide` answers.
    findings : tuple of Finding
        One per predicate, in order of priority.
    """

    decision: Decision
    findings: tuple[Finding, ...]

    @property
    def deciding(self) -> Finding | None:
        """The finding that made the decision; None for `Continue`."""
        return next((found for found in self.findings if found.holds), None)

    @property
    def changes(self) -> tuple[Change, ...]:
        """What would un-fire the current decision, each change least in its own unit; what happened before settings."""
        deciding = self.deciding
        return () if deciding is None else deciding.changes

    @property
    def smallest_change(self) -> Change | None:
        """The first of `changes`: the least that would have had to happen otherwise."""
        return self.changes[0] if self.changes else None


def explain(predicates: Sequence[Predicate], evidence: Evidence) -> Explanation:
    """Return every predicate's finding on one piece of evidence.

    Parameters
    ----------
    predicates : sequence of Predicate
        In order of priority.
    evidence : Evidence
        The live task, or a reading of one.
    """
    findings: list[Finding] = []
    winner: Finding | None = None
    for predicate in predicates:
        found = predicate.explain(evidence)
        if winner is not None:
            found = replace(found, masked_by=winner.predicate)
        findings.append(found)
        if winner is None and found.holds:
            winner = found
    decision = CONTINUE if winner is None or winner.decision is None else winner.decision
    return Explanation(decision, tuple(findings))
