"""How numbers and other people's text are put before a reader.

Ids, tool names and model text come from anywhere: what is shown is cut to a length, and characters that hide or reorder
text are spelled out. None of this makes text safe inside HTML; `noetic_nb.markup.escape` does that.
"""

from __future__ import annotations

import html
from functools import lru_cache
from typing import Final

from noetic_nb.markup import escape
from noetic_nb.redact import redact_text

__all__ = ["NAME_LENGTH", "REASONS", "TEXT_LENGTH", "clip", "count", "plain"]

# A label is read at a glance, a guidance is read; neither may outgrow the message that carries it to the page.
NAME_LENGTH: Final = 80
TEXT_LENGTH: Final = 600

REASONS: Final = {
    "over_budget": "over the budget",
    "outside_window": "outside the window",
    "unresolved_call": "a call without its output",
    "over_allocation": "over the layer's allocation",
    "trimmed": "trimmed to fit",
    "forced": "sent although over the budget",
    "hidden": "hidden by a layer",
}
"""Why an item was not sent, for people."""


def clip(text: str, length: int) -> str:
    """Return text of at most `length` characters; what is cut from the middle becomes an ellipsis.

    Examples
    --------
    >>> clip("working_memory", 9), clip("notes", 9)
    ('work…mory', 'notes')
    """
    if len(text) <= length:
        return text
    head = length // 2
    return f"{text[:head]}…{text[len(text) - (length - head - 1) :]}"


def plain(value: object, length: int = NAME_LENGTH) -> str:
    r"""Return a value as short text in which every character shows and no credential does.

    Examples
    --------
    >>> plain("a<b\u202e")
    'a<b[U+202E]'
    """
    # Redacted before it is cut, because half a credential no longer looks like one; cut again, because characters that
    # are spelled out take more room.
    return clip(html.unescape(escape(clip(redact_text(str(value)), length))), length)


@lru_cache(maxsize=4096)  # the same few numbers again at each event of a live view
def count(number: float | None) -> str:
    """Return a number of tokens for people; None is no limit.

    Examples
    --------
    >>> count(1234.4), count(None)
    ('1,234', 'no limit')
    """
    return "no limit" if number is None else f"{round(number):,}"
