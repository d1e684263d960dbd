"""Every secret of a text, also within JSON escapes and in JSON inside JSON."""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from noetic_nb.redact._assignments import assigned, may_assign
from noetic_nb.redact._places import may_place, placed
from noetic_nb.redact._secret_names import Span
from noetic_nb.redact._shapes import cookies, is_hinted, issued, may_hold_cookies

_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")
_PEM_BODY: Final = re.compile(r"(?:[A-Za-z0-9+/=\s:,.\-()@]|\\[nrt])*+")
_PEM_LINES: Final = re.compile(
    r"(?:\s|\\[nr])*+(?:[A-Za-z0-9+/=]{16,}+(?:\s|\\[nr])*+)*+(?:[A-Za-z0-9+/]{1,64}={1,2})?"
)
_PEM_RUN: Final = re.compile(r"(?:(?!\\[nrt])|(?<=\\[nrt]))([A-Za-z0-9+/]{16,}={0,2})")


def private_keys_in(text: str) -> Iterator[Span]:
    last = text.rfind("-----END")
    done = 0
    for match in _PEM.finditer(text):
        if match.start() < done:
            continue
        end = _PEM_END.search(text, match.end()) if match.end() <= last else None
        if end is None:
            lines = _PEM_LINES.match(text, match.end())
            stop = match.end() + len(lines[0].rstrip()) if lines else match.end()
            if stop > match.end():
                yield Span(match.start(), stop, text[match.start() : stop])
                done = stop
            continue
        done = end.end()
        body = _PEM_BODY.match(text, match.end(), end.start())
        if body is not None and body.end() == end.start():
            if _PEM_RUN.search(text, match.end(), end.start()):
                yield Span(match.start(), end.end(), text[match.start() : end.end()])
        else:  # each line separately: pieces of a program or a list
            for run in _PEM_RUN.finditer(text, match.end(), end.start()):
                yield Span(*run.span(1), run[1])


_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[\"\\/bfnrt])")
_SIGNS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# JSON in JSON doubles its backslashes at every level, so that real text is never much deeper.
MAX_LEVELS: Final = 8


# Letters and signs of another width or style that each correspond to one ASCII character.
_STYLED: Final = re.compile("[\uff01-\uff5e\u3000\U0001d400-\U0001d7ff]")


def _folded(text: str) -> str:
    """Return a text with letters and signs of another width replaced by ASCII, at the same positions."""
    if text.isascii():
        return text
    return _STYLED.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)


def _read(match: re.Match[str]) -> str:
    escape = match[0]
    return chr(int(escape[2:], 16)) if escape[1] == "u" else _SIGNS.get(escape[1], escape[1])


class _Level:
    """A text with its escapes decoded, and the position of each of its characters in the encoded text."""

    __slots__ = ("_before", "_places", "_sources", "text")

    def __init__(self, source: str) -> None:
        self.text = _folded(_ESCAPE.sub(_read, source))
        self._before = source
        self._places: array[int] | None = None

    def _map(self) -> array[int]:
        """Record the positions of the escapes, which are only needed if a secret is found."""
        places, sources = array("q", [0]), array("q", [0])
        length = done = 0
        for match in _ESCAPE.finditer(self._before):
            start, end = match.span()
            length += start - done
            places.extend((length, length + 1))
            sources.extend((start, end))
            length, done = length + 1, end
        self._places, self._sources = places, sources
        return places

    def source(self, start: int, end: int) -> tuple[int, int]:
        """Return the corresponding range of the encoded text."""
        places = self._places or self._map()
        sources = self._sources
        at = bisect_right(places, start) - 1
        # A decoded character begins where its escape does, whatever the escape's length.
        first = sources[at] + start - places[at]
        at = bisect_right(places, end) - 1
        return first, sources[at] + end - places[at]


def _flat(text: str, raw: Callable[[int, int], str]) -> Iterator[Span]:
    """Find the secrets of one level of a text; `raw` returns the original spelling of a range."""
    yield from issued(text)
    if "PRIVATE KEY" in text:
        yield from private_keys_in(text)
    lower = text.lower()
    yield from cookies(text, lower)
    yield from assigned(text, raw)
    yield from placed(text, raw)


def may_hold(lines: list[str]) -> bool:
    """Tell whether lines may hold a secret: False if the quick checks of `spans_of` find none within any line."""
    for _ in range(MAX_LEVELS + 1):
        text = _folded("\n".join(lines))
        if may_place(text.lower()):
            return True
        if is_hinted(text) or "PRIVATE KEY" in text or may_hold_cookies(text, text.lower()):
            return True
        # A name and the sign after it are on one line.
        if may_assign("\n".join([line for line in text.split("\n") if ":" in line or "=" in line]).lower()):
            return True
        # The other lines do not change by decoding.
        escaped = "\n".join([line for line in lines if "\\" in line]) if "\\" in text else ""
        if not _ESCAPE.search(escaped):
            return False
        lines = _ESCAPE.sub(_read, escaped).split("\n")
    return False


def spans_of(text: str) -> list[Span]:
    """Find every secret of a text, as ranges of the text itself, in order and without overlap."""
    levels: list[_Level] = []

    def source(start: int, end: int) -> tuple[int, int]:
        for level in reversed(levels):
            start, end = level.source(start, end)
        return start, end

    def raw(start: int, end: int) -> str:
        first, last = source(start, end)
        return text[first:last]

    view = _folded(text)
    found: list[Span] = []
    while True:
        for span in _flat(view, raw):
            start, end = source(span.start, span.end)
            found.append(Span(start, end, span.secret, span.quote))
        if len(levels) == MAX_LEVELS or "\\" not in view or not _ESCAPE.search(view):
            break
        levels.append(_Level(view))
        view = levels[-1].text
    if len(found) < 2:
        return found
    # Of spans that begin together, the longest comes first and is kept.
    found.sort(key=lambda span: (span.start, -span.end))
    apart = [found[0]]
    for span in found[1:]:
        last = apart[-1]
        if span.start >= last.end:
            apart.append(span)
        elif span.end > last.end:
            apart[-1] = Span(last.start, span.end, text[last.start : span.end], last.quote)
    return apart
