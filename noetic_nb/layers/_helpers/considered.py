"""The candidates of a layer's recall, for listeners: nothing is gathered without one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Hit(NamedTuple):
    """One memory that might be recalled, with those that come along: keys and lines, as the layer writes them."""

    lines: tuple[tuple[Hashable, str], ...]
    score: float | None = None
    """How near it is to the query; None where the layer has an order and no scores."""
    floor: float | None = None
    """The threshold with which it would be chosen, where that is not simply its score being below the one of all."""
    ahead: tuple[Hit, ...] | None = None
    """With that threshold, the hits that stand before it; None for all that are named before it."""


class Considered(NamedTuple):
    """All that a layer chose among, best first."""

    layer_id: str
    tag: str
    hits: tuple[Hit, ...]
    top_k: int | None = None
    """So many hits are recalled at most."""
    min_score: float | None = None
    """Hits of a smaller score are not recalled."""
    beside: int = 0
    """Tokens of what the layer writes before these lines."""


_LISTENING: ContextVar[list[Considered] | None] = ContextVar("noetic_nb_considered", default=None)


@contextmanager
def considering() -> Iterator[list[Considered]]:
    """Gather the candidates of the layers that are recalled inside the block."""
    found: list[Considered] = []
    before = _LISTENING.set(found)
    try:
        yield found
    finally:
        _LISTENING.reset(before)


def consider(
    layer_id: str,
    tag: str,
    hits: Callable[[], Iterable[Hit]],
    *,
    top_k: int | None = None,
    min_score: float | None = None,
    beside: Callable[[], int] | None = None,
) -> None:
    """Report the candidates of a layer, best first; `hits` is called only where there is a listener."""
    found = _LISTENING.get()
    if found is not None:
        taken = 0 if beside is None else beside()
        found.append(Considered(layer_id, tag, tuple(hits()), top_k, min_score, taken))


def plain_hits(lines: Iterable[str]) -> list[Hit]:
    """Return lines that have an order and no scores as hits."""
    return [Hit(((place, line),)) for place, line in enumerate(lines)]
