"""How numbers and other people's text are put before a reader.

Ids, tool names and model text come from anywhere: what is shown is cut to a length, and characters that hide or reorder
text are spelled out. None of this makes text safe inside HTML; `noetic_nb.markup.escape` does that.
"""

from __future__ import annotations

import html
import json
from functools import lru_cache
from typing import Final

from noetic_nb.markup import escape
from noetic_nb.redact import MARGIN, clip_data, redact, redact_head, redact_text

__all__ = ["NAME_LENGTH", "REASONS", "TEXT_LENGTH", "clip", "count", "plain", "plain_data", "plain_line", "sendable"]

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
    return _shown(_clean(value, length), length)


def plain_line(value: object, length: int = NAME_LENGTH) -> str:
    r"""Return a value as one line of such text, cut at its end.

    Examples
    --------
    >>> plain_line("What is\n  the state of order A17?", 20)
    'What is the state o…'
    """
    # Blanks go, so more is read than is shown.
    line = " ".join(plain(value, 4 * length).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def plain_data(value: object, length: int) -> str:
    """Return JSON-like data as such text.

    Examples
    --------
    >>> plain_data({"path": "/etc", "password": "hunter2"}, 80)
    '{"path": "/etc", "password": "[redacted]"}'
    """
    small, is_cut = clip_data(value, length + MARGIN)
    # Redacted as data first: in text, the key that gives a secret away is harder to find.
    text = json.dumps(redact(small), ensure_ascii=False, default=_text)
    return _shown(f"{text[: length - 1]}…" if is_cut else _clean(text, length), length)


def sendable(text: str) -> str:
    r"""Return a name as a page can be sent it: half a surrogate pair is no UTF-8 and is spelled out.

    Examples
    --------
    >>> sendable("t1"), sendable(chr(0xD800))
    ('t1', '\\ud800')
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _shown(text: str, length: int) -> str:
    # Cut again, because characters that are spelled out take more room.
    return clip(html.unescape(escape(clip(text, length))), length)


def _clean(value: object, length: int) -> str:
    # A text is cut generously, redacted and then cut to its length: half a credential does not look like one, and to
    # look through megabytes for a label takes seconds.
    text = _text(value)
    if len(text) <= length + MARGIN:
        return redact_text(text)
    return f"{redact_head(text, length)[: length - 1]}…"


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # a number with too many digits, or a class of the user's own
        return f"<{type(value).__name__}>"


@lru_cache(maxsize=4096)  # the same few numbers again at each event of a live view
def count(number: float | None) -> str:
    """Return a number of tokens for people; None is no limit.

    Examples
    --------
    >>> count(1234.4), count(None)
    ('1,234', 'no limit')
    """
    return "no limit" if number is None else f"{round(number):,}"
