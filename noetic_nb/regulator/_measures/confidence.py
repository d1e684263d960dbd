"""The confidence of the model, from log-probabilities below zero, or else from the shape of the reply."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

from noetic_nb.regulator.events import Token

DEFAULT_WINDOW_SIZE: Final = 128
LOGPROB_UNAVAILABLE: Final = 0.0
MEAN_NLL_CONFIDENCE_MIDPOINT: Final = 4.0
MEAN_NLL_CONFIDENCE_HALF_RANGE: Final = 3.0
STRUCT_MIN_LENGTH_CHARS: Final = 40
STRUCT_HIGH_QUESTION_RATIO: Final = 0.02
STRUCT_FALLBACK_DEFAULT: Final = 0.7
STRUCT_FALLBACK_WEAK: Final = 0.4
STRUCT_FALLBACK_STRONG: Final = 0.2
NEUTRAL_CONFIDENCE: Final = 0.5
"""Constants of the original; midpoint and half range in nats."""

MOST_KEPT: Final = 16_384
"""Tokens of one turn kept for low-confidence spans; beyond that, the oldest half is only counted. Ours: about 2 MB."""


def usable_logprob(logprob: float) -> bool:
    """Tell whether a log-probability was reported: finite and below 0."""
    return logprob < LOGPROB_UNAVAILABLE and math.isfinite(logprob)


def mean_nll(logprobs: Sequence[float]) -> float:
    """Return the average surprise of usable log-probabilities, in nats; summed oldest first."""
    # Not sum(), which compensates rounding from Python 3.12: the plain left-to-right sum is part of the specification.
    total = 0.0
    for logprob in logprobs:
        total += -logprob
    return total / len(logprobs)


def confidence_of_nll(nll: float) -> float:
    """Map an average surprise in nats to [0, 1] (docs/behaviour/regulator.md, "Confidence")."""
    value = 0.5 + 0.5 * ((MEAN_NLL_CONFIDENCE_MIDPOINT - nll) / MEAN_NLL_CONFIDENCE_HALF_RANGE)
    return min(max(value, 0.0), 1.0)


def structural_confidence(text: str) -> float:
    """Estimate confidence only from length and question marks (docs/behaviour/regulator.md, "Confidence")."""
    length = len(text)
    if length == 0:
        return NEUTRAL_CONFIDENCE
    short = length < STRUCT_MIN_LENGTH_CHARS
    questioning = text.count("?") / length >= STRUCT_HIGH_QUESTION_RATIO
    if short and questioning:
        return STRUCT_FALLBACK_STRONG
    return STRUCT_FALLBACK_WEAK if short or questioning else STRUCT_FALLBACK_DEFAULT


class TokenStats:
    """The tokens of one turn: appended on arrival, counted when read."""

    __slots__ = ("_read", "_total", "_unavailable", "_window", "first_char", "tokens")

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.first_char = 0
        """Offset in the reply of the first kept token, in characters."""
        self._read = 0
        self._total = 0
        self._unavailable = 0
        self._window: deque[float] = deque(maxlen=DEFAULT_WINDOW_SIZE)

    def _catch_up(self) -> None:
        tokens = self.tokens
        # By index: a slice would copy the tokens since the last reading.
        for place in range(self._read, len(tokens)):
            logprob = tokens[place].logprob
            if usable_logprob(logprob):
                self._window.append(logprob)
            else:
                self._unavailable += 1
        self._total += len(tokens) - self._read
        self._read = len(tokens)

    def add(self, token: Token) -> None:
        """Add a token; if there are very many, the text of the oldest half is dropped."""
        self.tokens.append(token)
        if len(self.tokens) > MOST_KEPT:
            self._catch_up()
            half = len(self.tokens) // 2
            self.first_char += sum(len(token.token) for token in self.tokens[:half])
            del self.tokens[:half]
            self._read = len(self.tokens)

    def clear(self) -> None:
        """Start a new turn with a new list, because readers keep the old one."""
        self.tokens = []
        self.first_char = self._read = self._total = self._unavailable = 0
        self._window.clear()

    @property
    def window(self) -> tuple[float, ...]:
        """The newest 128 usable log-probabilities, oldest first."""
        self._catch_up()
        return tuple(self._window)

    @property
    def coverage(self) -> float:
        """Share of the turn's tokens with a usable log-probability; 0 without tokens."""
        self._catch_up()
        return (self._total - self._unavailable) / self._total if self._total else 0.0
