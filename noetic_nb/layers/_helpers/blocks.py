"""Text blocks for the prompt, held to a budget with their tags in place.

The stack would cut what is too long at the end and lose the closing tag; a layer knows better what to leave out.
"""

from __future__ import annotations

from collections.abc import Sequence

from noetic_nb.tokens import Tokenizer, most_that_fit


def tagged(tag: str, body: str) -> str:
    return f"<{tag}>\n{body}\n</{tag}>"


def cut_block(tag: str, body: str, budget: float, tokenize: Tokenizer) -> str | None:
    """Return the block, its body cut at the end where it must be; None where not even the tags fit."""
    whole = tagged(tag, body)
    if tokenize(whole) <= budget:
        return whole

    def block(size: int) -> str:
        return tagged(tag, f"{body[:size]}…")

    if tokenize(block(0)) > budget:
        return None
    # Searched by halving, as only the tokenizer knows how many characters a token has.
    return block(most_that_fit(len(body), lambda size: tokenize(block(size)) <= budget))


def fitting_lines(tag: str, lines: Sequence[str], budget: float, tokenize: Tokenizer) -> list[str]:
    """Return the longest head of `lines` whose block fits a budget in tokens: pass the most important line first."""
    count = most_that_fit(len(lines), lambda n: tokenize(tagged(tag, "\n".join(lines[:n]))) <= budget)
    return list(lines[:count])
