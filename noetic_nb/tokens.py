"""The length of texts in tokens. The default is an estimate that needs no vocabulary and no network.

Four UTF-16 code units per token are right on average for English, and too few tokens for CJK text and emoji; pass
another `Tokenizer` if the difference matters: `noetic_nb.tokenizers` has them by name. A counter may also have methods
``count_item(item)``, ``count_content(item)``, ``count_tools(tools)`` and ``count_system(text)``, if more than the texts
is billed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

__all__ = [
    "KNOWN_ERRORS",
    "UNITS_PER_TOKEN",
    "Tokenizer",
    "estimate_tokens",
    "known_error",
    "most_that_fit",
    "system_tokens",
    "tokenizer_name",
    "utf16_units",
]

Tokenizer: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text. Must be pure: the same text always has the same count."""

# The rule of thumb of four characters per token of English text.
UNITS_PER_TOKEN: Final = 4


def tokenizer_name(tokenizer: Tokenizer) -> str:
    """Return the name of a tokenizer: its ``name``, or else the place of its definition.

    Examples
    --------
    >>> tokenizer_name(estimate_tokens)
    'noetic_nb.tokens.estimate_tokens'
    """
    name = getattr(tokenizer, "name", None)
    if isinstance(name, str):
        return name
    made_by = tokenizer if hasattr(tokenizer, "__qualname__") else type(tokenizer)
    return f"{made_by.__module__}.{made_by.__qualname__}"


def system_tokens(tokenizer: Tokenizer, instructions: str) -> int:
    """Return the tokens of a request's instructions, including their framing if the tokenizer knows it.

    Examples
    --------
    >>> system_tokens(estimate_tokens, "Be brief."), system_tokens(estimate_tokens, "")
    (3, 0)
    """
    if not instructions:
        return 0
    count = getattr(tokenizer, "count_system", None)
    found: int = tokenizer(instructions) if count is None else count(instructions)
    return found


KNOWN_ERRORS: Final[Mapping[str, float]] = {
    "noetic_nb.tokens.estimate_tokens": 0.478,
    # Uncalibrated: texts and framing, without the JSON of items.
    "calibrated(noetic_nb.tokens.estimate_tokens)": 0.112,
    "calibrated-offline": 0.013,
    "o200k_base": 0.005,
}
"""By the name of a counter, the mean absolute relative error of a conversation as planned against its reported usage,
on public runs of gpt-4.1: docs/studies/token_counts.md."""


def known_error(tokenizer: Tokenizer) -> float | None:
    """Return the known relative error of a tokenizer, or None if it was never measured.

    Examples
    --------
    >>> known_error(estimate_tokens) == KNOWN_ERRORS["noetic_nb.tokens.estimate_tokens"], known_error(len)
    (True, None)
    """
    error = getattr(tokenizer, "known_error", None)
    return float(error) if isinstance(error, int | float) and not isinstance(error, bool) else None


def utf16_units(text: str) -> int:
    r"""Return the number of UTF-16 code units of a text: one, or two for a character beyond the basic plane.

    Examples
    --------
    >>> utf16_units("abc"), utf16_units("\N{GRINNING FACE}")
    (3, 2)
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def no_text(given: object) -> Exception:
    """Return the error of a counter that is given no text."""
    from noetic_nb.errors import NoeticConfigError

    hint = "Count an item with nn.item_tokens(item), other data as JSON text."
    return NoeticConfigError("INVALID_TEXT", "Tokens are counted in a text.", given=given, hint=hint)


def estimate_tokens(text: str) -> int:
    r"""Estimate the tokens of a text as a quarter of its UTF-16 code units, rounded up.

    Parameters
    ----------
    text : str
        Any text; lone surrogates count as one unit each.

    Raises
    ------
    NoeticConfigError
        ``INVALID_TEXT`` for another value.

    References
    ----------
    .. [1] docs/behaviour/memory.md, "Tokens".

    Examples
    --------
    >>> estimate_tokens("hello world"), estimate_tokens(""), estimate_tokens("\N{GRINNING FACE}" * 3)
    (3, 0, 2)
    """
    if not isinstance(text, str):
        raise no_text(text)
    units = len(text) if text.isascii() else utf16_units(text)
    return -(-units // UNITS_PER_TOKEN)


# Every named counter has these attributes: its name and its error.
estimate_tokens.name = "noetic_nb.tokens.estimate_tokens"  # type: ignore[attr-defined]
estimate_tokens.known_error = KNOWN_ERRORS["noetic_nb.tokens.estimate_tokens"]  # type: ignore[attr-defined]


def most_that_fit(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to a limit (of characters, lines, ...) that fits, or 0 if no positive number does.

    If a number `fits`, so must all smaller ones.

    Examples
    --------
    >>> most_that_fit(100, lambda n: estimate_tokens("x" * n) <= 3)
    12
    """
    low, high = 0, limit
    # By bisection, because a tokenizer may be slow and its count is not proportional to length.
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
