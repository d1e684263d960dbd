"""Hybrid recall: retrieve messages that share rare words with the query, or are similar to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticError
from noetic_nb.layers._helpers.collaborators import as_embedder, check_share, check_switch
from noetic_nb.layers._helpers.considered import Hit, consider
from noetic_nb.layers._helpers.embedding import Embedder, EmbedTexts, KeywordIndex
from noetic_nb.layers._semantic import MessageIndex, MessageRecall, recalling
from noetic_nb.layers.handles import SemanticHandle
from noetic_nb.memory import BudgetConfig, ExecutionContext, MemoryLayer, MemoryScope, Slot
from noetic_nb.memory._layer_functions import built_in

T = TypeVar("T", bound=Hashable)

# Damps the advantage of the first ranks. Cormack et al. found 60 in a pilot study, with little difference to other
# values.
K: Final = 60


def fused(rankings: Sequence[Sequence[T]]) -> list[T]:
    """Return the members of several rankings, by the sum of ``1 / (60 + rank)`` [1]_, rank from 1.

    Ties keep the order of the first ranking; members of later rankings only come after them.

    References
    ----------
    .. [1] Cormack, G., Clarke, C. and Buettcher, S. (2009). Reciprocal Rank Fusion outperforms Condorcet and individual Rank
       Learning Methods. SIGIR 2009, 758-759.
    """
    sums: defaultdict[T, float] = defaultdict(float)
    for ranking in rankings:
        for rank, one in enumerate(ranking, 1):
            sums[one] += 1 / (K + rank)
    return sorted(sums, key=sums.__getitem__, reverse=True)


TAG: Final = "hybrid_recall"


@built_in
@explained()
def hybrid_recall(
    embedder: Embedder | EmbedTexts | Literal[False] | None = None,
    *,
    id: str = "hybrid-recall",
    scope: MemoryScope = "resource",
    top_k: int | None = 10,
    min_score: float = 0.1,
    neighbours: int = 0,
    roots: bool = False,
    spread: float = 0.0,
    skip_recent: int = 6,
    max_entries: int = 2_000,
    budget: BudgetConfig = None,
    slot: float = Slot.SEMANTIC_RECALL,
) -> MemoryLayer[SemanticHandle]:
    """Make a layer that retrieves messages by keywords and by similarity, in one joint ranking.

    Parameters
    ----------
    embedder : Embedder or callable, optional
        As for `semantic_recall`. If it fails, only keywords are used, and the failure is reported. False disables
        vectors: without an embedder that knows meanings, keywords alone are better than hashed words.
    top_k : int, optional
        The maximum number of messages to retrieve; None retrieves as many as the layer's budget holds.
    min_score : float
        The cosine from which a message counts as similar, -1 to 1; not needed if it shares a word with the query.
    roots : bool
        Whether words are compared without their English endings.
    spread : float
        The share of a message's keyword score that its neighbours receive as well, from 0 to 1: an answer seldom
        repeats the words of its question.
    neighbours, skip_recent, max_entries : int
        As for `semantic_recall`.

    Returns
    -------
    MemoryLayer
        With function ``search`` and data ``count``.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Hybrid recall".

    Examples
    --------
    >>> hybrid_recall(top_k=3).id
    'hybrid-recall'
    >>> filling = hybrid_recall(False, top_k=None, neighbours=1, roots=True, spread=0.5)  # chosen on two dialogues of LoCoMo
    """
    nearness = _none if embedder is False else as_embedder(embedder)
    check_share(spread=spread)
    check_switch(roots=roots)
    options = top_k, min_score, neighbours, skip_recent, max_entries
    layer = HybridRecall(id, TAG, scope, nearness, *options, roots=roots, spread=spread)
    return recalling(layer, budget, slot)


def _none(texts: Sequence[str]) -> list[list[float]]:
    """Return vectors that are similar to nothing."""
    return [[0.0] for _ in texts]


@dataclass
class HybridRecall(MessageRecall):
    """The hooks of a layer that also searches for words."""

    roots: bool = False
    spread: float = 0.0

    async def ranked(self, index: MessageIndex, query: str, hidden: set[str], ctx: ExecutionContext) -> list[int]:
        """Return the positions of messages that share words with a query or are similar to it, best first."""
        try:
            near = await super().ranked(index, query, hidden, ctx)
        except NoeticError as exc:
            ctx.diagnostic(self.layer_id, "recall", exc)
            near, index.scored = [], []
        place = {message.id: position for position, message in enumerate(index.messages)}
        if index.words is None:
            index.words = KeywordIndex(roots=self.roots)
        words = index.words
        for gone in words.keys - place.keys():
            words.remove(gone)
        for new in place.keys() - words.keys:
            words.add(new, index.messages[place[new]].text)
        scores = {place[key]: score for key, score in words.scores(query).items() if key not in hidden}
        if self.spread:
            for position, score in list(scores.items()):
                for near_by in (position - 1, position + 1):
                    if 0 <= near_by < len(index.messages) and index.messages[near_by].id not in hidden:
                        scores[near_by] = scores.get(near_by, 0.0) + self.spread * score
        # Of two equally good ones, the newer comes first.
        index.worded = sorted(sorted(scores, reverse=True), key=scores.__getitem__, reverse=True)
        return fused([near, index.worded])

    def report(self, index: MessageIndex, order: Sequence[int], hidden: set[str]) -> None:
        """Report the candidates with their cosine: in the joint order, then those below the threshold, best first."""
        consider(self.layer_id, self.tag, lambda: self.all_hits(index, order, hidden), top_k=self.top_k)

    def all_hits(self, index: MessageIndex, order: Sequence[int], hidden: set[str]) -> list[Hit]:
        """Return every message that could be recalled; one below the threshold has the rank it would have above it."""
        nearest = sorted(index.scored, reverse=True)
        hits = {at: self.hit(index, at, hidden, score) for score, at in nearest}
        hits |= {at: self.hit(index, at, hidden, None) for at in order if at not in hits}
        found, chosen = [hits[at] for at in order], set(order)
        for score, at in nearest:
            if at not in chosen:
                joint = fused([[other for near, other in nearest if near >= score], index.worded])
                ahead = tuple([hits[other] for other in joint[: joint.index(at)]])
                found.append(hits[at]._replace(floor=score, ahead=ahead))
        return found
