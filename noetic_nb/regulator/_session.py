"""The session of the original, for compatible snapshots and signals. It does not influence `decide`.

A regulator writes to it and never reads it: decisions, confidence and metrics do not depend on it, and neither measures
nor predicates import it. Its results only appear in `RegulatorState.learned` and `Regulator.signals`. Events are
queued, and processed on reading. As in the original, all word lists are English; other languages only contribute
punctuation and capitals.
"""

from __future__ import annotations

import copy
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.regulator._measures.topics import (
    RELEASE_TOPICS,
    Topics,
    any_of,
    cluster_of,
    emoji,
    folded,
    is_letter,
    lexicon,
)
from noetic_nb.regulator.events import U32_MAX

Valence: TypeAlias = Literal["negative", "neutral", "positive"]

_WHITE_SPACE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LEAST_LETTERS: Final = 8  # shorter texts do not count as shouting

TYPICAL_TURN_TOKENS_OUT: Final = 1000
TYPICAL_TURN_WALLCLOCK_MS: Final = 10_000
TOKEN_COST_WEIGHT: Final = 0.7
"""The original's typical costly turn, and the weight of its tokens."""


def normalize_cost(tokens_out: int, wallclock_ms: int) -> float:
    """Return the cost of one turn relative to a typical costly one, in [0, 1] (docs/decisions/noos.md, "Cost")."""
    tokens = min(tokens_out / TYPICAL_TURN_TOKENS_OUT, 1.0)
    time = min(wallclock_ms / TYPICAL_TURN_WALLCLOCK_MS, 1.0)
    return TOKEN_COST_WEIGHT * tokens + (1.0 - TOKEN_COST_WEIGHT) * time


@dataclass(frozen=True, slots=True)
class Impression:
    """The impression made by the wording of a message; `arousal` is 0 to 1, an acknowledgement is routine."""

    arousal: float
    valence: Valence
    is_urgent: bool
    is_routine: bool
    mentions_past: bool


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    lists = lexicon()
    pairs = [
        rf"{any_of(pair['first_words'], whole=True)}.*{any_of(pair['then_stems'], whole=False)}"
        for pair in lists["negative_moderate_pairs"]
    ]
    moderate = [
        any_of(lists["negative_moderate_stems"] + lists["negative_moderate_pressure_stems"], whole=False),
        *pairs,
    ]
    sources = {
        "negative_high": any_of(lists["negative_high_stems"], whole=False),
        "negative_moderate": "|".join(moderate),
        "positive_high": any_of(lists["positive_high_words"], whole=True),
        "positive_moderate": any_of(lists["positive_moderate_words"], whole=True),
        "negated": rf"{any_of(lists['negators'], whole=True)}\s+(?:\w+\s+){{0,2}}{any_of(lists['negated_stems'], whole=False)}",
        "urgent": "|".join([any_of(lists["urgent_stems"], whole=False), any_of(lists["urgent_words"], whole=True)]),
        "routine": rf"(?:{'|'.join(map(re.escape, lists['routine_phrases']))})\.?!?",
    }
    return {name: re.compile(source, re.IGNORECASE) for name, source in sources.items()}


def _is_alphabetic(char: str) -> bool:
    return char.isalpha() or (is_letter(char) and unicodedata.category(char) not in ("Nd", "No"))


def _capital_share(text: str) -> float:
    letters = sum(map(_is_alphabetic, text))
    return sum(map(str.isupper, text)) / letters if letters >= _LEAST_LETTERS else 0.0


def _is_routine(text: str, shape: str) -> bool:
    if len(text.encode("utf-8", "surrogatepass")) <= 20 and _patterns()["routine"].fullmatch(shape):
        return True
    if 1 <= len(text) <= 4 and all(char in emoji() or char in _WHITE_SPACE for char in text):
        return True
    digits = text.removesuffix(".")
    return 1 <= len(digits) <= 2 and digits.isdecimal()


def impression_of(message: str) -> Impression:
    """Return the impression made by the wording of a user message (docs/decisions/noos.md, "Arousal")."""
    shape = folded(message)
    patterns = _patterns()
    shouts = message.count("!")
    arousal = 0.2 if shouts >= 3 else 0.05 * shouts
    capitals = _capital_share(message)
    if capitals >= 0.5:
        arousal += 0.2
    elif capitals >= 0.3:
        arousal += 0.1
    negative = positive = 0.0
    high = patterns["negative_high"].search(shape)
    moderate = patterns["negative_moderate"].search(shape)
    # As in the original, one negation anywhere in the text clears both.
    if (high or moderate) and not patterns["negated"].search(shape):
        if high:
            arousal += 0.3
            negative += 0.4
        if moderate:
            arousal += 0.15
            negative += 0.2
    if patterns["positive_high"].search(shape):
        arousal += 0.3
        positive += 0.4
    if patterns["positive_moderate"].search(shape):
        arousal += 0.1
        positive += 0.2
    if message.count("?") >= 3:
        arousal += 0.1
    if "..." in message or "!!!" in message:
        arousal += 0.05
    bare = message.strip(_WHITE_SPACE)
    bare_shape = folded(bare)
    lower = message.lower()
    return Impression(
        arousal=min(max(arousal, 0.0), 1.0),
        valence="negative" if negative > positive else "positive" if positive > negative else "neutral",
        is_urgent=_capital_share(bare) >= 0.5 or patterns["urgent"].search(bare_shape) is not None,
        is_routine=_is_routine(bare, bare_shape),
        mentions_past=any(word in lower for word in lexicon()["memory_words"]),
    )


Strategy: TypeAlias = Literal["ClarifyFirst", "StepByStep", "StructuredAnalysis", "ExecuteTask", "DirectAnswer"]
"""Names as in snapshots."""

STRATEGY_LABELS: Final[dict[str, str]] = {
    "ClarifyFirst": "clarify-first",
    "StepByStep": "step-by-step",
    "StructuredAnalysis": "structured-analysis",
    "ExecuteTask": "execute-task",
    "DirectAnswer": "direct-answer",
}
"""Names as in session signals."""

_NUMBERED: Final = re.compile(r"\s*\d+[.)]\s")
_HEADING: Final = re.compile(r"#{1,4}\s")
# A block includes its fences; an opening fence that is never closed does not count.
_BLOCK: Final = re.compile(r"```.*?```", re.DOTALL)


@cache
def _sequence_words() -> re.Pattern[str]:
    return re.compile(rf"{any_of(lexicon()['sequence_words'], whole=True)}|\bstep\s*\d+\b", re.IGNORECASE)


def classify_strategy(text: str) -> Strategy | None:
    """Return the first matching strategy of a whole reply, or None (docs/decisions/noos.md, "Strategy")."""
    size = len(text.encode("utf-8", "surrogatepass"))
    # The order of the rules matters: a list of questions is a question first.
    questions = text.count("?")
    if questions >= 2 and size < 800:
        return "ClarifyFirst"
    shape = folded(text)
    lines = shape.split("\n")
    numbered = sum(1 for line in lines if _NUMBERED.match(line))
    if numbered >= 2 and len(_sequence_words().findall(shape)) >= 2:
        return "StepByStep"
    headings = sum(1 for line in lines if _HEADING.match(line))
    count = len(lines) - 1 if lines[-1] == "" else len(lines)
    if headings >= 3 or ("|" in text and count > 3):
        return "StructuredAnalysis"
    blocks = _BLOCK.findall(text)
    fenced = sum(len(block.encode("utf-8", "surrogatepass")) for block in blocks)
    if len(blocks) >= 3 or (blocks and fenced / size >= 0.4):
        return "ExecuteTask"
    if 0 < size <= 200 and not (questions or numbered or headings or blocks):
        return "DirectAnswer"
    return None


GainMode: TypeAlias = Literal["phasic", "tonic", "neutral"]
Gate: TypeAlias = Literal["urgent", "novel", "routine"]

_MOST_QUEUED: Final = 4096
_MOST_CHARS: Final = 1_000_000
"""Longest queue before it is processed, to limit memory (ours)."""


@dataclass(frozen=True, slots=True)
class Rate:
    """An exponential mean of grades, and the number of grades in it."""

    success_rate: float = 0.5
    count: int = 0

    def after(self, quality: float, rate: float) -> Rate:
        """Return the mean moved towards one grade."""
        return Rate((1.0 - rate) * self.success_rate + rate * quality, min(self.count + 1, U32_MAX))


@dataclass(slots=True)
class Learned:
    """The part of a session that is kept in snapshots."""

    gain_mode: GainMode = "neutral"
    tick: int = 0
    response_success: dict[str, Rate] = field(default_factory=dict)
    response_strategies: dict[str, dict[str, Rate]] = field(default_factory=dict)

    def copy(self) -> Learned:
        return Learned(
            self.gain_mode,
            self.tick,
            dict(self.response_success),
            {cluster: dict(rates) for cluster, rates in self.response_strategies.items()},
        )


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals that the session would report to an agent (docs/decisions/noos.md, "Signals")."""

    conservation: float
    salience: float
    confidence: float
    strategy: str | None
    gain_mode: GainMode
    valence: Valence
    recent_quality: float
    rpe: float


_SETTLING: Final = ("arousal", "certainty", "sustained", "sensory_pe", "resource_pressure", "gate_confidence")
"""The values that each settling step moves halfway to their targets."""
_settling_values: Final[Callable[[Any], tuple[float, ...]]] = attrgetter(*_SETTLING)


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def _clamp(value: float) -> float:
    # NaN differs from itself; the original maps it to the lower bound.
    return min(max(value, 0.0), 1.0) if value == value else 0.0


def _spread(values: list[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = _plain_sum(values) / len(values)
    return math.sqrt(_plain_sum([(value - mean) ** 2 for value in values]) / len(values))


def _plain_sum(values: list[float]) -> float:
    # sum() compensates rounding from Python 3.12; thresholds are compared with the plain left-to-right sum.
    total = 0.0
    for value in values:
        total += value
    return total


class Session:
    """One user's session values, including learned ones from earlier sessions (docs/decisions/noos.md, "Session")."""

    def __init__(self, learned: Learned | None = None, *, topics: Topics = RELEASE_TOPICS) -> None:
        self.topics = topics
        self._learned = Learned() if learned is None else learned
        self._queue: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._chars = 0
        self.arousal = 0.0
        self.valence: Valence = "neutral"
        self.certainty = 0.5
        self.sustained = 1.0
        self.sensory_pe = 0.0
        self.pe_history: list[float] = []
        self.pe_volatility = 0.0
        self.body_budget = 1.0
        self.resource_pressure = 0.0
        self.gate: Gate = "novel"
        self.gate_confidence = 0.5
        self.predicted_quality = 0.5
        self.rpe = 0.0
        self.message = ""
        self.cluster = ""
        self.recommended: str | None = None
        self.turns = 0
        self.smoothed = 0.5

    def add_message(self, message: str) -> None:
        """Queue a user message."""
        self._enqueue(len(message), self._process_message, message)

    def add_cost(self, tokens_out: int, wallclock_ms: int) -> None:
        """Add the usage of a provider call."""
        self._enqueue(0, self._process_cost, normalize_cost(tokens_out, wallclock_ms))

    def add_grade(self, response: str, quality: float, message: str | None = None) -> None:
        """Learn from a finite grade, for the topic of `message` (by default the newest message)."""
        self._enqueue(len(response), self._process_grade, response, quality, message)

    def _enqueue(self, chars: int, process: Callable[..., None], *arguments: object) -> None:
        self._queue.append((process, arguments))
        self._chars += chars
        if self._chars > _MOST_CHARS or len(self._queue) > _MOST_QUEUED:
            self.settle()

    def settle(self) -> None:
        """Process everything queued; reading `learned` or `signals` does this."""
        queue, self._queue, self._chars = self._queue, [], 0
        for process, arguments in queue:
            process(*arguments)

    @property
    def learned(self) -> Learned:
        """The part that is kept in snapshots; live, not a copy."""
        self.settle()
        return self._learned

    def copy(self) -> Session:
        self.settle()  # settle first: the queue has bound methods of this session
        duplicate = copy.copy(self)
        duplicate._queue = []
        duplicate._learned = self._learned.copy()
        return duplicate

    @property
    def signals(self) -> Signals:
        """The signals that the session would report to an agent now."""
        self.settle()
        arousal = self._modulated(self.arousal)
        pe, confidence = self.sensory_pe, self.gate_confidence
        if self.body_budget < 0.70:
            depletion = 0.70 - self.body_budget
            pe, confidence = pe + 0.15 * depletion, confidence - 0.1 * depletion
        pe, confidence = _clamp(pe), _clamp(confidence)
        threshold = 0.70 * (1.0 + 0.10 * (pe - 0.5) + 0.05 * arousal - 0.10 * (confidence - 0.5))
        threshold = min(max(threshold, 0.40), 0.85)
        budget_factor = 0.0
        if self.body_budget < threshold:
            budget_factor = (threshold - self.body_budget) / max(threshold, 0.01)
        return Signals(
            conservation=_clamp(budget_factor + 0.3 * self.resource_pressure + 0.2 * max(1.0 - self.sustained, 0.0)),
            salience=_clamp(
                self.arousal + {"urgent": 0.3, "novel": 0.15, "routine": 0.0}[self.gate] + 0.2 * self.sensory_pe
            ),
            confidence=_clamp(self.gate_confidence * (1.0 - 0.5 * self.pe_volatility)),
            strategy=None if self.recommended is None else STRATEGY_LABELS.get(self.recommended, self.recommended),
            gain_mode=self._learned.gain_mode,
            valence=self.valence,
            recent_quality=self.predicted_quality,
            rpe=self.rpe,
        )

    def _modulated(self, arousal: float) -> float:
        factor = {"negative": 1.15, "positive": 0.9, "neutral": 1.0}[self.valence]
        return _clamp(arousal * factor)

    def _process_cost(self, cost: float) -> None:
        self.body_budget = _clamp(self.body_budget - 0.02 * cost)

    def _process_message(self, message: str) -> None:
        # Compute everything that depends only on the text once; the settling below is arithmetic.
        impression = impression_of(message)
        self.message = message
        self.cluster = cluster_of(self.topics(message))
        self._perceive(impression)
        previous: tuple[float, ...] | None = None
        previous_gate = self.gate
        for _ in range(5):
            before = _settling_values(self)
            self._perceive(impression)
            self._update_gate(impression)
            values = _settling_values(self)
            settled = previous is not None and previous_gate == self.gate and _distance(previous, values) < 0.01
            for name, old, new in zip(_SETTLING, before, values, strict=True):
                setattr(self, name, 0.5 * new + 0.5 * old)
            previous, previous_gate = values, self.gate
            if settled:
                break
        self.turns += 1

    def _perceive(self, impression: Impression) -> None:
        arousal = impression.arousal
        self.sensory_pe = abs(arousal - self.arousal)
        self.arousal, self.valence = arousal, impression.valence
        self.certainty = 0.8 if arousal >= 0.6 else 0.55 if arousal >= 0.3 else 0.3
        self.sustained = _clamp(self.sustained + (-0.10 if arousal >= 0.6 else -0.05 if arousal >= 0.3 else 0.05))
        self.pe_history = [*self.pe_history, self.sensory_pe][-5:]
        self.pe_volatility = _spread(self.pe_history)
        self.body_budget = _clamp(self.body_budget - (0.02 * self.sensory_pe + 0.01 * arousal) + 0.005)
        if self.cluster:
            self.recommended = self._recommendation(self.cluster)

    def _update_gate(self, impression: Impression) -> None:
        learned = self._learned
        self.gate, self.gate_confidence = self._gate_of(impression)
        # Before the smoothed rule, which may switch back to tonic in the same step.
        if self.arousal >= 0.35:
            learned.gain_mode = "phasic"
        adjusted = _clamp(self.gate_confidence + 0.15 * self.rpe)
        learned.tick = min(learned.tick + 1, U32_MAX)
        self.smoothed = 0.65 * self.smoothed + 0.35 * adjusted
        if adjusted < 0.4 and learned.gain_mode != "tonic" and self.smoothed <= 0.3:
            learned.gain_mode = "tonic"
        elif adjusted > 0.85 and learned.gain_mode != "phasic" and self.smoothed >= 0.7:
            learned.gain_mode = "phasic"
        memory = 0.6 if impression.mentions_past else 0.3
        self.resource_pressure = _clamp(0.5 * memory + (0.2 if self.turns >= 20 else 0.0))

    def _gate_of(self, impression: Impression) -> tuple[Gate, float]:
        arousal = self._modulated(self.arousal)
        if arousal >= 0.6:
            return "urgent", 0.85
        if impression.is_urgent:
            return "urgent", 0.7
        if self.gate == "urgent" and arousal >= 0.4:
            return "urgent", 0.7
        return ("routine", 0.95) if impression.is_routine else ("novel", 0.5)

    def _recommendation(self, cluster: str) -> str | None:
        fit = [
            (-rate.success_rate, name)
            for name, rate in self._learned.response_strategies.get(cluster, {}).items()
            if (rate.count >= 12 and rate.success_rate >= 0.75)
            or (rate.count >= 8 and rate.success_rate >= 0.65)
            or (rate.count >= 5 and rate.success_rate >= 0.5)
        ]
        return min(fit)[1] if fit else None

    def _process_grade(self, response: str, quality: float, message: str | None) -> None:
        self.rpe = quality - self.predicted_quality
        self.predicted_quality = _clamp(0.75 * self.predicted_quality + 0.25 * quality)
        self.body_budget = _clamp(self.body_budget + self.rpe * (0.05 if self.rpe > 0 else 0.02))
        rate = 0.375 if self.pe_volatility > 0.5 else 0.15 if self.pe_volatility < 0.2 else 0.25
        # A person shared by several tasks may have received another task's message since.
        is_last = message is None or message == self.message
        topic = self.cluster if is_last else cluster_of(self.topics(message or ""))
        if not topic:
            return
        successes = self._learned.response_success
        successes[topic] = successes.get(topic, Rate()).after(quality, rate)
        strategy = classify_strategy(response)
        if strategy is not None:
            strategies = self._learned.response_strategies.setdefault(topic, {})
            strategies[strategy] = strategies.get(strategy, Rate()).after(quality, rate)
