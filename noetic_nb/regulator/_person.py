"""The memory of one person across tasks: corrections, and the learning of a session.

Several live regulators may share one person by reference; a correction made in one of them counts in all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from noetic_nb.regulator._measures.corrections import CorrectionStore
from noetic_nb.regulator._session import Session


@dataclass(slots=True, eq=False)
class Person:
    """Person memory: texts of corrections by topic cluster, and the learned success of strategies. Never mix two people."""

    user_id: str
    corrections: CorrectionStore = field(default_factory=CorrectionStore)
    session: Session = field(default_factory=Session)

    def replace(self, other: Person) -> None:
        """Take over another memory; regulators that share this one use it from now on."""
        version = max(self.corrections.version, other.corrections.version) + 1
        # A copy, so that the two never share a memory by accident.
        taken = other.copy()
        self.user_id, self.corrections, self.session = taken.user_id, taken.corrections, taken.session
        self.corrections.version = version  # never falls, so that no cached decision looks fresh

    def copy(self, *, user_id: str | None = None) -> Person:
        """Return an independent person with the same memory."""
        return Person(self.user_id if user_id is None else user_id, self.corrections.copy(), self.session.copy())
