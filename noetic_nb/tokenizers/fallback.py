"""A foreign counter, which may fail: the default estimate counts the items that it cannot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from noetic_nb.items.json_text import compact_json
from noetic_nb.tokens import Tokenizer, estimate_tokens, known_error, tokenizer_name

__all__ = ["FallbackTokenizer"]


class FallbackTokenizer:
    """Counts by another counter, and by the default estimate where that one raises or answers no number of tokens.

    Attributes
    ----------
    name : str
        Of the other counter.
    known_error : float or None
        Of the other counter; of the default estimate once that had to count.
    fault : str or None
        What was wrong the first time, None while nothing was.

    Examples
    --------
    >>> def broken(text):
    ...     return {"short": 1}[text]
    >>> counter = FallbackTokenizer(broken)
    >>> counter("short"), counter("eight ch"), counter.fault
    (1, 2, "KeyError: 'eight ch'")
    """

    __slots__ = ("_inner", "fault", "name")

    def __init__(self, inner: Tokenizer) -> None:
        self._inner = inner
        self.name = tokenizer_name(inner)
        self.fault: str | None = None

    @property
    def known_error(self) -> float | None:  # noqa: D102  # said above
        return known_error(self._inner if self.fault is None else estimate_tokens)

    def __call__(self, text: str) -> int:
        """Count the tokens of a text."""
        try:
            count = self._inner(text)
            if isinstance(count, int | float) and not isinstance(count, bool) and math.isfinite(count) and count >= 0:
                return count
            problem = f"it answered {count!r}"
        except Exception as exc:
            problem = f"{type(exc).__name__}: {exc}"
        if self.fault is None:
            self.fault = problem[:200]
        return estimate_tokens(text)

    def count_item(self, item: Mapping[str, Any]) -> int:
        """Count an item: as the other counter does where it can, else its compact JSON."""
        count = getattr(self._inner, "count_item", None)
        if count is not None:
            try:
                return int(count(item))
            except Exception as exc:
                self.fault = self.fault or f"{type(exc).__name__}: {exc}"[:200]
        return self(compact_json(item))

    def __repr__(self) -> str:
        return f"<tokenizer {self.name}>"
