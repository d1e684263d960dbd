"""How far a reply has drifted from its task, scored by any callable of one `DriftInput`; None if no score is defined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from noetic_nb.regulator._measures.topics import RANKED_TOPICS, RELEASE_TOPICS, Topics, byte_length

__all__ = [
    "NEWER_KEYWORDS",
    "RELEASE_KEYWORDS",
    "Anchoring",
    "DriftInput",
    "DriftScore",
    "DriftScorer",
    "KeywordScorer",
]

Anchoring: TypeAlias = Literal["exact", "prefix"]

DRIFT_WARN_THRESHOLD: Final = 0.5
MIN_STEM_PREFIX_LEN: Final = 4
"""Minimum bytes of both tokens for one to be a prefix of the other."""


class DriftScore(NamedTuple):
    """How much of a reply has no anchor in its task, 0 to 1, and the evidence."""

    score: float
    drift_tokens: tuple[str, ...]
    task_tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DriftInput:
    """The inputs of a scorer.

    Parameters
    ----------
    task, response : str
        The user message and the reply.
    earlier : sequence of str
        A limited number of messages and replies of earlier turns, oldest first.
    tool_texts : sequence of str
        A limited number of names, arguments and outputs of recent tool calls, oldest first.
    """

    task: str
    response: str
    earlier: Sequence[str] = ()
    tool_texts: Sequence[str] = ()


class DriftScorer(Protocol):
    """Scores a reply against its task; must have no side effects, and return the same score for the same input."""

    def __call__(self, given: DriftInput, /) -> DriftScore | None:
        """Return the score, or None if undefined."""


@dataclass(frozen=True, slots=True)
class KeywordScorer:
    """The share of a reply's topics that its task does not mention.

    Parameters
    ----------
    topics : Topics
        How both bags are extracted.
    anchoring : {"exact", "prefix"}
        Whether a topic must equal one of the task, or may also be a prefix of one or have one as its prefix.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Scope drift".

    Examples
    --------
    >>> given = DriftInput("user table", "users tables userland")
    >>> RELEASE_KEYWORDS(given).score, NEWER_KEYWORDS(given).score
    (1.0, 0.0)
    >>> RELEASE_KEYWORDS(DriftInput("alpha beta", "")) is None
    True
    """

    topics: Topics = field(default=RELEASE_TOPICS)
    anchoring: Anchoring = "exact"

    def __post_init__(self) -> None:
        if self.anchoring not in ("exact", "prefix"):
            raise ValueError(f"anchoring must be 'exact' or 'prefix'. Given: {self.anchoring!r}.")

    def __call__(self, given: DriftInput, /) -> DriftScore | None:
        """Return the share of unanchored topics, or None if either side has no topics."""
        # The reply first: if it has no topics, those of the task are not needed.
        response = self.topics(given.response)
        if not response:
            return None
        task = self.topics(given.task)
        if not task:
            return None
        if self.anchoring == "prefix":
            unanchored = tuple(token for token in response if not _anchored(token, task))
        else:
            unanchored = tuple(token for token in response if token not in task)
        return DriftScore(len(unanchored) / len(response), unanchored, task)


def _anchored(token: str, task: Sequence[str]) -> bool:
    if token in task:
        return True
    # Short words are prefixes of too many others: "car" would anchor "career".
    if byte_length(token) < MIN_STEM_PREFIX_LEN:
        return False
    return any(
        byte_length(other) >= MIN_STEM_PREFIX_LEN and (token.startswith(other) or other.startswith(token))
        for other in task
    )


RELEASE_KEYWORDS: Final = KeywordScorer()
"""The keyword scorer of release 0.4.1."""
NEWER_KEYWORDS: Final = KeywordScorer(topics=RANKED_TOPICS, anchoring="prefix")
"""The keyword scorer of the newest original: ranked topics, prefix anchoring."""
