"""The predicates of the original except tool loops: frozen records whose thresholds are data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from noetic_nb.regulator import decisions
from noetic_nb.regulator._measures.corrections import MIN_CORRECTIONS_FOR_PATTERN
from noetic_nb.regulator.decisions import (
    CircuitBreak,
    CostCapReached,
    Decision,
    QualityDeclineNoRecovery,
    ScopeDriftWarn,
)
from noetic_nb.regulator.events import U32_MAX, U64_MAX
from noetic_nb.regulator.predicates.drift import DRIFT_WARN_THRESHOLD, RELEASE_KEYWORDS, DriftScore, DriftScorer
from noetic_nb.regulator.predicates.evidence import Evidence, mean_of_last
from noetic_nb.regulator.predicates.explanation import (
    Change,
    Condition,
    PredicateFinding,
    finding,
    require_number,
    require_whole,
)

__all__ = ["CostCap", "ProceduralWarning", "QualityDecline", "ScopeDrift"]

DEFAULT_TOKEN_CAP: Final = 10_000
QUALITY_DECLINE_WINDOW: Final = 3
QUALITY_DECLINE_MIN_DELTA: Final = 0.15
POOR_QUALITY_MEAN: Final = 0.5
DEFAULT_HISTORY_WINDOW: Final = 20
"""Constants of the original."""

_LEAST: Final = ("min_words", "min_earlier", "min_tool_texts", "min_drift_tokens")

_COST_SUGGESTION: Final = (
    "The budget of this task is spent and recent answers were poor. "
    "Ask the user to narrow the request, or give the task up."
)
_DECLINE_SUGGESTION: Final = (
    "The answers keep getting worse. Redirect the attempt or simplify the request before trying again."
)


@dataclass(frozen=True, slots=True)
class CostCap:
    """A budget is spent while answers are poor.

    Parameters
    ----------
    tokens_out, tokens_in : int, optional, tokens
        Caps on the task's totals; None is no cap in that currency.
    usd : float, optional
        Cap on the sum of `Cost.usd`; costs without a price count as zero, which `explain` notes.
    wallclock_ms : int, optional, milliseconds
        Cap on the summed durations.
    window : int
        How many grades to average; with fewer grades, quality counts as 1.
    poor_mean : float, optional
        The mean must be below this; None makes the cap unconditional.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Cost cap". The other currencies and the unconditional cap are ours.

    Examples
    --------
    >>> CostCap(tokens_out=2_000, usd=0.5).tokens_out
    2000
    """

    kind: ClassVar[str] = "cost_cap"
    tokens_out: int | None = DEFAULT_TOKEN_CAP
    tokens_in: int | None = None
    usd: float | None = None
    wallclock_ms: int | None = None
    window: int = QUALITY_DECLINE_WINDOW
    poor_mean: float | None = POOR_QUALITY_MEAN

    def __post_init__(self) -> None:
        for name, most in (("tokens_out", U32_MAX), ("tokens_in", U32_MAX), ("wallclock_ms", U64_MAX)):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), 0, most)
        if self.usd is not None:
            require_number("usd", self.usd, 0, 1e12)
        require_whole("window", self.window, 1, DEFAULT_HISTORY_WINDOW)
        if self.poor_mean is not None:
            require_number("poor_mean", self.poor_mean, 0, 1)

    def _mean(self, qualities: Sequence[float]) -> float:
        mean = mean_of_last(qualities, self.window)
        return 1.0 if mean is None else mean

    def check(self, evidence: Evidence, /) -> Decision | None:
        """Return a circuit break if any cap is reached and recent quality is poor."""
        for currency in ("tokens_out", "tokens_in", "usd", "wallclock_ms"):
            cap = getattr(self, currency)
            if cap is not None and getattr(evidence, currency) >= cap:
                return self._break(currency, getattr(evidence, currency), cap, evidence)
        return None

    def _break(self, currency: str, spent: float, cap: float, evidence: Evidence) -> Decision | None:
        mean = self._mean(evidence.qualities)
        if self.poor_mean is not None and not mean < self.poor_mean:
            return None
        return CircuitBreak(CostCapReached(spent, cap, mean, currency), _COST_SUGGESTION)

    def explain(self, evidence: Evidence, /) -> PredicateFinding:
        """Return the finding; changing one cap suffices only if no other cap is reached."""
        caps = [
            Condition(name, getattr(evidence, name), ">=", getattr(self, name))
            for name in ("tokens_out", "tokens_in", "usd", "wallclock_ms")
            if getattr(self, name) is not None
        ]
        mean = self._mean(evidence.qualities)
        quality = [] if self.poor_mean is None else [Condition("mean_quality", mean, "<", self.poor_mean)]
        changes: list[Change] = []
        if self.poor_mean is not None:
            # Events before settings: readers first ask what should have gone better.
            changes += _better_newest(evidence.qualities, self.window, self.poor_mean, None)
        reached = [cap for cap in caps if cap.holds]
        if len(reached) == 1 and reached[0].value is not None:
            cap = reached[0]
            spent = reached[0].value
            # The smallest cap that is not reached yet: dollars are fractional, the other currencies integers.
            room = math.nextafter(spent, math.inf) if cap.name == "usd" else spent + 1
            changes.append(Change(cap.name, cap.threshold, room, is_threshold=True))
        # Without caps, an empty group would hold trivially; an impossible condition states the reason instead.
        never = [Condition("caps_set", 0, ">=", 1)] if not caps else []
        notes = []
        if self.usd is not None and evidence.unpriced:
            notes.append(f"{evidence.unpriced} costs had no price and count as nothing.")
        return finding(self.kind, self.check(evidence), [*quality, *never], changes, any_of=caps, notes=notes)


@dataclass(frozen=True, slots=True)
class QualityDecline:
    """Answers got worse and are poor on average.

    Parameters
    ----------
    window : int
        How many of the newest grades to use.
    min_delta : float
        Minimum of oldest minus newest grade. Compared as doubles: 0.50 to 0.35 counts, 0.35 to 0.20 does not.
    poor_mean : float
        In addition, the mean must be below this.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Quality decline".

    Examples
    --------
    >>> QualityDecline(window=4).min_delta
    0.15
    """

    kind: ClassVar[str] = "quality_decline"
    window: int = QUALITY_DECLINE_WINDOW
    min_delta: float = QUALITY_DECLINE_MIN_DELTA
    poor_mean: float = POOR_QUALITY_MEAN

    def __post_init__(self) -> None:
        require_whole("window", self.window, 2, DEFAULT_HISTORY_WINDOW)
        require_number("min_delta", self.min_delta, 0, 1)
        require_number("poor_mean", self.poor_mean, 0, 1)

    def check(self, evidence: Evidence, /) -> Decision | None:
        """Return a circuit break if the newest grades fall and are poor."""
        qualities = evidence.qualities
        if len(qualities) < self.window:
            return None
        delta = qualities[-self.window] - qualities[-1]
        # Written with `not`, here and elsewhere, so that a NaN never fires.
        if not delta >= self.min_delta:
            return None
        mean = mean_of_last(qualities, self.window)
        if mean is None or not mean < self.poor_mean:
            return None
        return CircuitBreak(QualityDeclineNoRecovery(self.window, delta), _DECLINE_SUGGESTION)

    def explain(self, evidence: Evidence, /) -> PredicateFinding:
        """Return the finding."""
        qualities = evidence.qualities
        enough = len(qualities) >= self.window
        # None, not 0: with too few grades, the distance to a decline is undefined.
        delta = qualities[-self.window] - qualities[-1] if enough else None
        conditions = [
            Condition("grades", len(qualities), ">=", self.window),
            Condition("delta", delta, ">=", self.min_delta),
            Condition("mean_quality", mean_of_last(qualities, self.window), "<", self.poor_mean),
        ]
        changes = _better_newest(qualities, self.window, self.poor_mean, self.min_delta)
        # `min_delta` is at most 1, so no setting would tolerate a drop of 1.
        if delta is not None and delta < 1:
            changes.append(Change("min_delta", self.min_delta, math.nextafter(delta, math.inf), is_threshold=True))
        return finding(self.kind, self.check(evidence), conditions, changes)


def _better_newest(qualities: Sequence[float], window: int, poor_mean: float, min_delta: float | None) -> list[Change]:
    """Return the smallest increase of the newest grade with which the mean or the drop no longer counts."""
    recent = list(qualities)[-window:]
    if len(recent) < window:
        return []

    def counts(newest: float) -> bool:
        mean = mean_of_last([*recent[:-1], newest], window)
        falls = min_delta is None or recent[0] - newest >= min_delta
        return falls and mean is not None and mean < poor_mean

    # Nothing to improve, or even a perfect answer would not suffice.
    if not counts(recent[-1]) or counts(1.0):
        return []
    low, high = recent[-1], 1.0
    # Both conditions are monotone in the newest grade, so bisection to neighbouring doubles finds the exact limit.
    while True:
        middle = low + (high - low) / 2
        if middle in (low, high):
            return [Change("newest_quality", recent[-1], high, is_threshold=False)]
        if counts(middle):
            low = middle
        else:
            high = middle


@dataclass(frozen=True, slots=True)
class ScopeDrift:
    """The reply is not anchored in the task.

    Parameters
    ----------
    scorer : DriftScorer
        Any callable of one `DriftInput`.
    threshold : float
        Warn at this score or above; 0 warns at every defined score.
    min_words : int
        Minimum number of words in a reply: a short one has too little evidence.
    min_earlier : int
        Minimum number of earlier messages and replies in the task; 1 excludes the first turn.
    min_tool_texts : int
        Minimum number of tool arguments and outputs: without any, every detail of a reply is unknown.
    min_drift_tokens : int
        Minimum number of words that the warning can name.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Scope drift".

    Examples
    --------
    >>> ScopeDrift(threshold=0.7).threshold
    0.7
    """

    kind: ClassVar[str] = "scope_drift"
    scorer: DriftScorer = RELEASE_KEYWORDS
    threshold: float = DRIFT_WARN_THRESHOLD
    min_words: int = 0
    min_earlier: int = 0
    min_tool_texts: int = 0
    min_drift_tokens: int = 0

    def __post_init__(self) -> None:
        require_number("threshold", self.threshold, 0, 1)
        for name in _LEAST:
            require_whole(name, getattr(self, name), 0)
        if not callable(self.scorer):
            raise TypeError(f"scorer must be callable with a DriftInput. Given: {self.scorer!r}.")

    @property
    def thresholds(self) -> dict[str, float]:
        """The thresholds in force; minimum numbers only if set."""
        least = {name: getattr(self, name) for name in _LEAST if getattr(self, name)}
        return {"threshold": self.threshold, **least}

    def _least(self, evidence: Evidence, found: DriftScore | None) -> list[Condition]:
        """Return the conditions for a score to count."""
        if not (self.min_words or self.min_earlier or self.min_tool_texts or self.min_drift_tokens):
            return []
        given = evidence.drift_input
        texts = (0, 0, 0) if given is None else (len(given.response.split()), len(given.earlier), len(given.tool_texts))
        found_tokens = 0 if found is None else len(found.drift_tokens)
        return [
            Condition(name.removeprefix("min_"), value, ">=", getattr(self, name))
            for name, value in zip(_LEAST, (*texts, found_tokens), strict=True)
            if getattr(self, name)
        ]

    def check(self, evidence: Evidence, /) -> Decision | None:
        """Return a warning if the score is defined and high enough, and there is sufficient evidence."""
        found = evidence.drift(self.scorer)
        if found is None or not found.score >= self.threshold:
            return None
        if not all(condition.holds for condition in self._least(evidence, found)):
            return None
        return ScopeDriftWarn(found.drift_tokens, found.score, found.task_tokens)

    def explain(self, evidence: Evidence, /) -> PredicateFinding:
        """Return the finding; for keyword bags, also how many of the drift words would need an anchor."""
        found = evidence.drift(self.scorer)
        changes: list[Change] = []
        notes: list[str] = []
        if found is None:
            notes.append("Undefined: the task or the reply has no topics yet.")
        else:
            unanchored = len(found.drift_tokens)
            # The score is a share of the bag, so it determines the size of the bag.
            bag = round(unanchored / found.score) if found.score else 0
            if bag and unanchored / bag == found.score:  # a bag score; other scorers have no word count to change
                fewer = next((left for left in range(unanchored - 1, -1, -1) if left / bag < self.threshold), None)
                if fewer is not None:
                    changes.append(Change("drift_tokens", unanchored, fewer, is_threshold=False))
            # Thresholds above 1 are invalid, so at a score of 1 no setting would help.
            if found.score < 1:
                changes.append(
                    Change("threshold", self.threshold, math.nextafter(found.score, math.inf), is_threshold=True)
                )
        score = None if found is None else found.score
        least = self._least(evidence, found)
        # Raising a minimum number is a setting as well; longer replies would not help.
        changes += [
            Change(f"min_{each.name}", each.threshold, each.value + 1, is_threshold=True)
            for each in least
            if each.value is not None
        ]
        conditions = [Condition("drift_score", score, ">=", self.threshold), *least]
        return finding(self.kind, self.check(evidence), conditions, changes, notes=notes)


@dataclass(frozen=True, slots=True)
class ProceduralWarning:
    """The user has corrected answers on this topic before.

    Parameters
    ----------
    min_corrections : int
        How many corrections form a pattern.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Procedural warning".

    Examples
    --------
    >>> ProceduralWarning().min_corrections
    3
    """

    kind: ClassVar[str] = "procedural_warning"
    min_corrections: int = MIN_CORRECTIONS_FOR_PATTERN

    def __post_init__(self) -> None:
        require_whole("min_corrections", self.min_corrections, 1, 20)

    def check(self, evidence: Evidence, /) -> Decision | None:
        """Return a warning with the pattern of the current topic, if there is one."""
        pattern = evidence.correction_pattern(self.min_corrections)
        return None if pattern is None else decisions.ProceduralWarning((pattern,))

    def explain(self, evidence: Evidence, /) -> PredicateFinding:
        """Return the finding."""
        count = evidence.correction_count()
        conditions = [Condition("corrections", count, ">=", self.min_corrections)]
        changes = [Change("corrections", count, self.min_corrections - 1, is_threshold=False)]
        # 20 is the largest valid setting.
        if count < 20:
            changes.append(Change("min_corrections", self.min_corrections, count + 1, is_threshold=True))
        return finding(self.kind, self.check(evidence), conditions, changes)
