"""The candidates of a layer's recall, reported to listeners, and the resulting block of text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from noetic_nb.tokens import Tokenizer, most_that_fit


def tagged(tag: str, body: str) -> str:
    return f"<{tag}>\n{body}\n</{tag}>"


def cut_block(tag: str, body: str, budget: float, tokenize: Tokenizer) -> str | None:
    """Return the block, its body cut at the end if necessary; None if not even the tags fit."""
    whole = tagged(tag, body)
    if tokenize(whole) <= budget:
        return whole

    def block(size: int) -> str:
        return tagged(tag, f"{body[:size]}…")

    if tokenize(block(0)) > budget:
        return None
    # Binary search, because only the tokenizer knows the number of characters per token.
    return block(most_that_fit(len(body), lambda size: tokenize(block(size)) <= budget))


def fitting_lines(tag: str, lines: Sequence[str], budget: float, tokenize: Tokenizer) -> list[str]:
    """Return the longest prefix of `lines` whose block fits a budget in tokens: pass the most important line first."""

    def fits(count: int) -> bool:
        return tokenize(tagged(tag, "\n".join(lines[:count]))) <= budget

    # The tokens of lines nearly add up, so the search starts at their sum and builds few blocks.
    count, total = 0, tokenize(tagged(tag, ""))
    while count < len(lines) and (total := total + tokenize(lines[count])) <= budget:
        count += 1
    while count and not fits(count):
        count -= 1
    while count < len(lines) and fits(count + 1):
        count += 1
    return list(lines[:count])


class Hit(NamedTuple):
    """One memory that may be recalled, with its companions: keys and lines, as the layer writes them."""

    lines: tuple[tuple[Hashable, str], ...]
    score: float | None = None  # similarity to the query; None if the layer has an order but no scores
    floor: float | None = None
    """The threshold that would select it, if that is not simply its own score."""
    ahead: tuple[Hit, ...] | None = None
    """With that threshold, the hits before it; None for all that are listed before it."""


class Considered(NamedTuple):
    """All candidates of a layer, best first."""

    layer_id: str
    tag: str
    hits: tuple[Hit, ...]
    top_k: int | None = None
    min_score: float | None = None
    beside: int = 0  # the tokens that the layer writes before these lines


_LISTENING: ContextVar[list[Considered] | None] = ContextVar("noetic_nb_considered", default=None)


@contextmanager
def considering() -> Iterator[list[Considered]]:
    """Collect the candidates of the layers that recall within the block."""
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
    """Report the candidates of a layer, best first; `hits` is called only if there is a listener."""
    found = _LISTENING.get()
    if found is not None:
        taken = 0 if beside is None else beside()
        found.append(Considered(layer_id, tag, tuple(hits()), top_k, min_score, taken))


def plain_hits(lines: Iterable[str]) -> list[Hit]:
    """Return lines with an order but no scores as hits."""
    return [Hit(((place, line),)) for place, line in enumerate(lines)]
