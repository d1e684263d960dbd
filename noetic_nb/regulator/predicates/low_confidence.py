"""The parts of a streamed reply about which the model was unsure, in characters of its concatenated tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from noetic_nb.regulator._measures.confidence import confidence_of_nll, mean_nll, usable_logprob
from noetic_nb.regulator.decisions import Decision, LowConfidenceSpans, Span
from noetic_nb.regulator.predicates import explanation
from noetic_nb.regulator.predicates.evidence import Evidence

__all__ = ["LowConfidence"]


@dataclass(frozen=True, slots=True)
class LowConfidence:
    """A series of tokens had low probability.

    Parameters
    ----------
    threshold : float
        A token is low below this confidence; 0.5 is a surprise of 4 nats.
    min_tokens : int
        Minimum length of a series; a token without a log-probability ends it.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Low confidence": the original reserves the decision; which tokens count is ours.

    Examples
    --------
    >>> LowConfidence(threshold=0.3).min_tokens
    2
    """

    kind: ClassVar[str] = "low_confidence"
    threshold: float = 0.4
    min_tokens: int = 2

    def __post_init__(self) -> None:
        explanation.require_number("threshold", self.threshold, 0, 1)
        explanation.require_whole("min_tokens", self.min_tokens, 1)

    def _stretches(self, evidence: Evidence, threshold: float) -> list[Span]:
        place, tokens = evidence.streamed()
        spans: list[Span] = []
        start, low = place, list[float]()
        for token in tokens:
            if usable_logprob(token.logprob) and confidence_of_nll(-token.logprob) < threshold:
                start = start if low else place  # the series starts at its first low token
                low.append(token.logprob)
            else:
                self._close(spans, start, place, low)
                low = []
            place += len(token.token)
        self._close(spans, start, place, low)
        return spans

    def _close(self, spans: list[Span], start: int, end: int, low: list[float]) -> None:
        if len(low) >= self.min_tokens:
            nll = mean_nll(low)
            spans.append(Span(start, end, confidence_of_nll(nll), -nll))

    def check(self, evidence: Evidence, /) -> Decision | None:
        """Return the unsure parts, if there are any."""
        spans = self._stretches(evidence, self.threshold)
        return LowConfidenceSpans(tuple(spans)) if spans else None

    def explain(self, evidence: Evidence, /) -> explanation.PredicateFinding:
        """Return the finding; the worst series is the one with the lowest maximum confidence."""
        worst = self._worst(evidence)
        conditions = [explanation.Condition("confidence_of_worst_stretch", worst, "<", self.threshold)]
        changes = [] if worst is None else [explanation.Change("threshold", self.threshold, worst, is_threshold=True)]
        return explanation.finding(self.kind, self.check(evidence), conditions, changes)

    def _worst(self, evidence: Evidence) -> float | None:
        """Return the minimum, over windows of `min_tokens` adjacent tokens with values, of the highest confidence in each."""
        worst: float | None = None
        window: list[float] = []
        for token in evidence.streamed()[1]:
            if not usable_logprob(token.logprob):
                window = []
                continue
            window = [*window, confidence_of_nll(-token.logprob)][-self.min_tokens :]
            if len(window) == self.min_tokens:
                # A series is found once all tokens of some window are below the threshold, hence the maximum of each window.
                worst = min(max(window), math.inf if worst is None else worst)
        return worst
