"""Join several rankings into one by the ranks alone: scores of different kinds cannot be added up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final, TypeVar

__all__ = ["fused"]

T = TypeVar("T", bound=Hashable)

# How little the very first ranks count above those behind them. Cormack et al. found 60 in a pilot study, and little
# difference to other values.
K: Final = 60


def fused(rankings: Sequence[Sequence[T]]) -> list[T]:
    """Return the members of several rankings, by the sum of ``1 / (60 + rank)``, rank from 1.

    Of two with the same sum, the one that a ranking names first stands first, and of the rankings the first.

    References
    ----------
    .. [1] Cormack, G., Clarke, C. and Buettcher, S. (2009). Reciprocal Rank Fusion outperforms Condorcet and individual Rank
       Learning Methods. SIGIR 2009, 758-759.

    Examples
    --------
    >>> fused([["a", "b", "c"], ["c", "a"]])
    ['a', 'c', 'b']
    """
    sums: defaultdict[T, float] = defaultdict(float)
    for ranking in rankings:
        for rank, one in enumerate(ranking, 1):
            sums[one] += 1 / (K + rank)
    return sorted(sums, key=lambda one: -sums[one])
