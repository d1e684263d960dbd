"""The corrections by one user, up to twenty per topic cluster; three or more form a *pattern*."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from noetic_nb.regulator.decisions import CorrectionPattern

MIN_CORRECTIONS_FOR_PATTERN: Final = 3
MAX_EXAMPLE_CORRECTIONS: Final = 3
MAX_CORRECTIONS_PER_CLUSTER: Final = 20
"""Constants of the original [1]_.

References
----------
.. [1] docs/decisions/noos.md, "Constants".
"""

HEADER: Final = "User has previously corrected responses on this topic with:"
REQUEST_LABEL: Final = "Current request: "  # the original's wording, so that prompts are identical


class CorrectionStore:
    """Correction texts by cluster, oldest first; above `max_clusters`, the least recently corrected cluster is dropped."""

    __slots__ = ("_texts", "max_clusters", "version")

    def __init__(self, max_clusters: int | None = None) -> None:
        self._texts: dict[str, list[str]] = {}
        self.max_clusters = max_clusters
        self.version = 0
        """Increases with every change, to detect stale cached decisions."""

    @classmethod
    def of(cls, texts: Iterable[tuple[str, Sequence[str]]]) -> CorrectionStore:
        """Return a store of earlier corrections, clusters in order of use, texts oldest first."""
        store = cls()
        store._texts = {
            cluster: list(some[-MAX_CORRECTIONS_PER_CLUSTER:]) for cluster, some in texts if cluster and some
        }
        return store

    def add(self, cluster: str, text: str) -> None:
        """Record one correction; ignored without a cluster."""
        self.extend(cluster, (text,))

    def extend(self, cluster: str, new: Sequence[str]) -> None:
        """Record several corrections, oldest first."""
        if not cluster or not new:
            return
        # Remove and re-insert, so that the dict's order is the order of use.
        texts = self._texts.pop(cluster, [])
        texts.extend(new)
        del texts[:-MAX_CORRECTIONS_PER_CLUSTER]
        self._texts[cluster] = texts
        self.version += 1
        self.bound(self.max_clusters)

    def bound(self, max_clusters: int | None) -> None:
        """Keep at most this many clusters, the most recently corrected ones."""
        self.max_clusters = max_clusters
        while max_clusters is not None and len(self._texts) > max_clusters:
            del self._texts[next(iter(self._texts))]
            self.version += 1

    def clear(self) -> None:
        """Remove everything; the version still increases, so that cached decisions become stale."""
        self._texts.clear()
        self.version += 1

    def texts(self, cluster: str) -> tuple[str, ...]:
        return tuple(self._texts.get(cluster, ()))

    def count(self, cluster: str) -> int:
        texts = self._texts.get(cluster)
        return 0 if texts is None else len(texts)

    def clusters(self) -> Iterator[str]:
        """Yield the clusters, least recently corrected first."""
        yield from self._texts

    def pattern(
        self, user_id: str, cluster: str, *, least: int = MIN_CORRECTIONS_FOR_PATTERN
    ) -> CorrectionPattern | None:
        """Return the correction pattern of a cluster, or None below `least` corrections."""
        return pattern_of(user_id, cluster, self._texts.get(cluster, ()), least)

    def patterns(self, user_id: str) -> dict[str, CorrectionPattern]:
        """Return every pattern in ascending order of cluster."""
        found = {cluster: self.pattern(user_id, cluster) for cluster in sorted(self._texts)}
        return {cluster: pattern for cluster, pattern in found.items() if pattern is not None}

    def copy(self) -> CorrectionStore:
        """Return an independent store with the same texts."""
        duplicate = CorrectionStore(self.max_clusters)
        duplicate._texts = {cluster: list(texts) for cluster, texts in self._texts.items()}
        return duplicate


def pattern_of(user_id: str, cluster: str, texts: Sequence[str], least: int) -> CorrectionPattern | None:
    """Return the pattern of the texts in one cluster, or None if there are fewer than `least`."""
    if not texts or len(texts) < least:
        return None
    return CorrectionPattern(
        user_id=user_id,
        topic_cluster=cluster,
        pattern_name=f"corrections_on_{cluster}",
        learned_from_turns=len(texts),
        confidence=min(len(texts) / MAX_CORRECTIONS_PER_CLUSTER, 1.0),
        example_corrections=tuple(reversed(texts[-MAX_EXAMPLE_CORRECTIONS:])),
    )


def prelude(patterns: Iterable[CorrectionPattern], *, header: str = HEADER) -> str:
    """Return the header and one line per example, in order; texts are unchanged."""
    return "\n".join([header, *(f"- {text}" for pattern in patterns for text in pattern.example_corrections)])


def inject(block: str | None, prompt: str, *, label: str = REQUEST_LABEL) -> str:
    """Return the prompt below a prelude, or unchanged without one."""
    return prompt if block is None else f"{block}\n\n{label}{prompt}"
