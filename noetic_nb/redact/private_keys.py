"""Private keys in PEM: whole, cut off, or as pieces of a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from noetic_nb.late_pattern import late_pattern
from noetic_nb.redact.marks import Span

__all__ = ["private_keys_in"]

_PEM: Final = late_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END: Final = late_pattern(r"-----END [A-Z0-9 ]{0,40}-----")
_PEM_BODY: Final = late_pattern(r"(?:[A-Za-z0-9+/=\s:,.\-()@]|\\[nrt])*+")
_PEM_LINES: Final = late_pattern(
    r"(?:\s|\\[nr])*+(?:[A-Za-z0-9+/=]{16,}+(?:\s|\\[nr])*+)*+(?:[A-Za-z0-9+/]{1,64}={1,2})?"
)
_PEM_RUN: Final = late_pattern(r"(?:(?!\\[nrt])|(?<=\\[nrt]))([A-Za-z0-9+/]{16,}={0,2})")


def private_keys_in(text: str) -> Iterator[Span]:
    """Find the private keys of a text."""
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
        else:  # lines as pieces of a program or a list: each by itself
            for run in _PEM_RUN.finditer(text, match.end(), end.start()):
                yield Span(*run.span(1), run[1])
