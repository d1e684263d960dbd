"""A drift scorer that uses the whole conversation: does the reply address the request, and are its details known?

Its word lists are English, but its weights only use overlaps and counts. They were fitted on one public set of airline
conversations (``benchmarks/drift_study.py`` prints the results on held-out tasks); elsewhere, the order of scores is more
reliable than their level, so choose the threshold on your own runs. Swapped replies are an easy kind of drift;
``presets.describe("drift in context")`` reports by domain which real runs get warnings.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from noetic_nb.regulator._measures.topics import RELEASE_TOPICS, RELEASE_WORDS
from noetic_nb.regulator.predicates.drift import DriftInput, DriftScore

__all__ = ["CONTEXT_SCORER", "CONTEXT_THRESHOLD", "FEATURES", "ContextScorer", "drift_features"]

_WORD: Final = re.compile(r"[^\W_]+(?:['.:/_-][^\W_]+)*")
_PART: Final = re.compile(r"[\w$]+(?:['.,:/-][\w]+)*|[.!?\n:*-]")
_ENDS_SENTENCE: Final = frozenset(".!?\n:*-")
_STEM: Final = 5
"""How many characters of a word are compared; crude, but as good here as a stemmer."""
_GRAM: Final = 4
_RECENT: Final = 5
_MOST_CHARS: Final = 6_000
"""Limit for each earlier text, because tool outputs may be huge."""

FEATURES: Final = (
    "task_coverage",
    "reply_overlap",
    "opening_coverage",
    "similarity_to_recent",
    "unknown_numbers_share",
    "unknown_numbers",
    "unknown_details",
    "details",
    "unknown_details_early",
    "question_late",
    "all_unknown_late",
)
"""Names of the features, in the order of summation."""


def _stems(text: str) -> frozenset[str]:
    words = (word.lower() for word in _WORD.findall(text))
    return frozenset(word[:_STEM] for word in words if len(word) > 2 and word not in RELEASE_WORDS.stop_words)


def _details(text: str) -> list[str]:
    """Return the tokens that make a text specific: those with digits, and capitalised ones that do not start a sentence."""
    found: list[str] = []
    opens = True
    for match in _PART.finditer(text):
        part = match.group()
        if part in _ENDS_SENTENCE:
            opens = True
            continue
        # Different conversations do not share numbers, codes and dates.
        if any(map(str.isdigit, part)):
            found.append(part.lower().strip("$"))
        elif part[0].isupper() and not opens and part.lower() not in RELEASE_WORDS.stop_words:
            found.append(part.lower())
        opens = False
    return found


def _grams(text: str) -> Counter[str]:
    # Normalise white space: line breaks differ between tools and people without changing the meaning.
    flat = " ".join(text.lower().split())
    return Counter(map("".join, zip(*[flat[place:] for place in range(_GRAM)], strict=False)))


def _similarity(one: Counter[str], other: Counter[str]) -> float:
    if not one or not other:
        return 0.0
    shared = sum(math.sqrt(count * other[gram]) for gram, count in one.items() if gram in other)
    return shared / math.sqrt(sum(one.values()) * sum(other.values()))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(text[:_MOST_CHARS] for text in texts)


def drift_features(given: DriftInput) -> dict[str, float]:
    """Return the features of the scorer, one value per name in `FEATURES`: shares in [0, 1], counts capped at 10 or 30.

    Examples
    --------
    >>> found = drift_features(DriftInput("change flight HAT136", "Flight HAT136 is changed; the refund is $700."))
    >>> found["unknown_numbers"], found["details"]
    (1.0, 2.0)
    """
    earlier, tools = list(given.earlier), list(given.tool_texts)
    context = _joined([*earlier, given.task, *tools]).lower()
    # Similarity fades with distance, so it is computed with the most recent texts; knowledge of a detail does not fade.
    recent = _joined([*earlier[-_RECENT + 1 :], given.task, *tools[-_RECENT:]])
    first = earlier[0] if earlier else given.task
    reply, task = _stems(given.response), _stems(given.task)
    opening = _stems(first)
    details = _details(given.response)
    unknown = [detail for detail in details if detail not in context]
    numbers = [detail for detail in details if any(map(str.isdigit, detail))]
    unknown_numbers = [detail for detail in numbers if detail not in context]
    texts_so_far = 1 + len(earlier) + len(tools)
    return {
        "task_coverage": _share(len(reply & task), len(task)),
        "reply_overlap": _share(len(reply & task), len(reply)),
        "opening_coverage": _share(len(reply & opening), len(opening)),
        "similarity_to_recent": _similarity(_grams(given.response), _grams(recent)),
        "unknown_numbers_share": _share(len(unknown_numbers), len(numbers)),
        "unknown_numbers": float(min(len(unknown_numbers), 10)),
        "unknown_details": float(min(len(unknown), 10)),
        "details": float(min(len(details), 30)),
        "unknown_details_early": min(len(unknown), 10) / (1 + texts_so_far),
        "question_late": math.log1p(texts_so_far) if "?" in given.response else 0.0,
        "all_unknown_late": math.log1p(texts_so_far) if len(unknown) == len(details) else 0.0,
    }


# Fitted on all 615 replies of 100 public airline runs by benchmarks/drift_study.py --weights.
_BIAS: Final = 2.4692
_WEIGHTS: Final = (-3.9945, -4.4077, 2.5998, -8.7338, 1.0839, 0.4091, 0.4342, -0.1626, -0.8674, 0.2072, -0.1701)

CONTEXT_THRESHOLD: Final = 0.68
"""The lowest score with at most 10 % false alarms on held-out tasks of the same study, finding 72 % of swapped replies."""


@dataclass(frozen=True, slots=True)
class ContextScorer:
    """The probability that a reply belongs to another conversation, from overlaps and unknown details.

    Parameters
    ----------
    bias : float
        Log-odds of a reply whose features are all 0.
    weights : tuple of float, shape (11,)
        Log-odds per unit of each feature, in the order of `FEATURES`.

    References
    ----------
    .. [1] Yao et al., "tau-bench: a benchmark for tool-agent-user interaction in real-world domains", 2024: the airline
       trajectories (MIT licence) that the weights were fitted on by logistic regression.

    Examples
    --------
    >>> scorer = ContextScorer()
    >>> on_topic = DriftInput("Please move my booking K7Q2 to Friday.", "Your booking K7Q2 is moved to Friday.")
    >>> off_topic = DriftInput("Please move my booking K7Q2 to Friday.", "The refund of $541 goes to card 9914.")
    >>> scorer(on_topic).score < scorer(off_topic).score
    True
    """

    name = "context"
    bias: float = _BIAS
    weights: tuple[float, ...] = _WEIGHTS

    def __post_init__(self) -> None:
        if len(self.weights) != len(FEATURES) or not all(map(math.isfinite, (self.bias, *self.weights))):
            raise ValueError(
                f"weights must be {len(FEATURES)} finite numbers, as must the bias. Given: {self.weights!r:.80}."
            )

    def __call__(self, given: DriftInput, /) -> DriftScore | None:
        """Return the score, or None if the task or the reply has no topics."""
        task = RELEASE_TOPICS(given.task)
        # Undefined in the same cases as the keyword scorer, so that the two are interchangeable.
        if not task or not RELEASE_TOPICS(given.response):
            return None
        features = drift_features(given)
        odds = self.bias + sum(weight * features[name] for name, weight in zip(FEATURES, self.weights, strict=True))
        context = _joined([*given.earlier, given.task, *given.tool_texts]).lower()
        unknown = dict.fromkeys(detail for detail in _details(given.response) if detail not in context)
        # Two forms, because exp of a large positive number overflows.
        score = 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))
        return DriftScore(score, tuple(unknown), task)


CONTEXT_SCORER: Final = ContextScorer()
"""The scorer with the fitted weights."""
