"""The evidence available to predicates: the live task, or a frozen copy of its evidence from a recorded run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from noetic_nb.regulator._measures.tool_history import Outcome
from noetic_nb.regulator.decisions import CorrectionPattern
from noetic_nb.regulator.events import Token, ToolCall
from noetic_nb.regulator.predicates.drift import DriftInput, DriftScore, DriftScorer

__all__ = ["Evidence", "mean_of_last"]


class Evidence(Protocol):
    """The state of one task on which decisions may depend."""

    @property
    def tokens_in(self) -> int:
        """Input tokens spent by the task."""

    @property
    def tokens_out(self) -> int:
        """Output tokens spent by the task."""

    @property
    def wallclock_ms(self) -> int:
        """Milliseconds spent by the task."""

    @property
    def usd(self) -> float:
        """Known cost of the task in US dollars."""

    @property
    def unpriced(self) -> int:
        """How many costs came without a price."""

    @property
    def qualities(self) -> Sequence[float]:
        """The newest grades, at most 20, oldest first, each in [0, 1]."""

    @property
    def cluster(self) -> str:
        """Topic cluster of the current message; empty means none."""

    @property
    def call_counts(self) -> Mapping[str, int]:
        """How often the task has called each tool, over all turns."""

    @property
    def drift_input(self) -> DriftInput | None:
        """The current reply as input for scorers; None before the first reply."""

    def calls(self, *, across_turns: bool) -> Sequence[ToolCall]:
        """Tool calls of this turn, or the newest of the task."""

    def outcomes(self, *, across_turns: bool) -> Sequence[Outcome]:
        """Tool results of this turn, or the newest of the task."""

    def correction_count(self) -> int:
        """Return the number of corrections in the current cluster."""

    def correction_pattern(self, least: int) -> CorrectionPattern | None:
        """Return the correction pattern of the current cluster, None below `least` corrections."""

    def drift(self, scorer: DriftScorer) -> DriftScore | None:
        """Score of the current reply; computed once per scorer and reply."""

    def streamed(self) -> tuple[int, Sequence[Token]]:
        """Character offset of the first kept token, and this turn's tokens."""


def mean_of_last(qualities: Sequence[float], count: int) -> float | None:
    """Return the mean of the newest grades, or None if there are fewer.

    Examples
    --------
    >>> mean_of_last([0.9, 0.5, 0.35, 0.2], 3), mean_of_last([0.5], 3)
    (0.35000000000000003, None)
    """
    size = len(qualities)
    if count < 1 or size < count:
        return None
    # Not sum(): from Python 3.12 it compensates rounding, but the specified value is the plain left-to-right sum.
    total = 0.0
    for place in range(size - count, size):
        total += qualities[place]
    return total / count
