"""Word-level differences between two texts, drawn alike for layer states and for two runs side by side."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from noetic_nb.markup import escape

Parts: TypeAlias = list[list[str]]
"""Text parts with a sign: ``""`` unchanged, ``"-"`` removed, ``"+"`` added."""

_WORDS: Final = re.compile(r"\s+|\w+|[^\w\s]")
# Comparing takes time proportional to the product of both lengths; a table cell shows fewer than 400 words.
_MOST: Final = 160_000
# Unchanged text is shortened to this many characters at each end.
_KEPT: Final = 60


def text_parts(before: str, after: str) -> Parts:
    """Return the parts of two texts, with long unchanged stretches cut in the middle.

    Examples
    --------
    >>> text_parts("flies on Monday", "flies on Friday")
    [['', 'flies on '], ['-', 'Monday'], ['+', 'Friday']]
    >>> text_parts("", "new"), text_parts("same", "same")
    ([['+', 'new']], [['', 'same']])
    """
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    start = _shared(old, new)
    stop = _shared(old[start:][::-1], new[start:][::-1])
    middle = old[start : len(old) - stop], new[start : len(new) - stop]
    parts: Parts = []
    _add(parts, "", old[:start])
    if len(middle[0]) * len(middle[1]) > _MOST:
        _add(parts, "-", middle[0])
        _add(parts, "+", middle[1])
    else:
        for tag, a, b, c, d in difflib.SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
            # An unchanged single space would split a change in two.
            if tag == "equal" and "".join(middle[0][a:b]).strip():
                _add(parts, "", middle[0][a:b])
            else:
                _add(parts, "-", middle[0][a:b])
                _add(parts, "+", middle[1][c:d])
    _add(parts, "", old[len(old) - stop :])
    return [[sign, text if sign else _ends(text)] for sign, text in parts]


def _shared(old: Sequence[str], new: Sequence[str]) -> int:
    for at, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return at
    return min(len(old), len(new))


def _add(parts: Parts, sign: str, words: Sequence[str]) -> None:
    text = "".join(words)
    if not text:
        return
    # Between two unchanged stretches, put all removed text before all added text.
    tail = parts[-2:] if sign else parts[-1:]
    near = next((part for part in reversed(tail) if part[0] == sign), None)
    if near is not None and (near is parts[-1] or parts[-1][0]):
        near[1] += text
    elif sign == "-" and parts and parts[-1][0] == "+":
        parts.insert(-1, [sign, text])
    else:
        parts.append([sign, text])


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _KEPT + 1 else f"{text[:_KEPT]}…{text[-_KEPT:]}"


def parts_html(parts: Parts) -> str:
    """Return parts as HTML, with removed and added text also marked for screen readers.

    Examples
    --------
    >>> parts_html([["", "In "], ["-", "<a>"], ["+", "b"]])
    'In <del>&lt;a&gt;</del><ins>b</ins>'
    """
    tags = {"-": "del", "+": "ins"}
    return "".join([f"<{tags[sign]}>{escape(text)}</{tags[sign]}>" if sign else escape(text) for sign, text in parts])


def parts_text(parts: Parts) -> str:
    """Return parts as plain text.

    Examples
    --------
    >>> parts_text([["", "on "], ["-", "Monday"], ["+", "Friday"]])
    'on [-Monday-]{+Friday+}'
    """
    marks = {"-": "[-{}-]", "+": "{{+{}+}}", "": "{}"}
    return "".join([marks[sign].format(text) for sign, text in parts])
