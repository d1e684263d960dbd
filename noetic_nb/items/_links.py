"""Links in a text: addresses of the web and of mail, as a reader or his program would take them."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

LINKS: Final = "links"
"""Stands after the path of an argument that is a text."""
_BETWEEN: Final = re.compile(r"[\s<>\"]+|\]\(")
_AROUND: Final = "([{'`*_)]}.,;:!?"
_DOTS: Final = str.maketrans("。｡", "..")
_LINK: Final = re.compile(
    r"://|\S@\S|(?:data|javascript|mailto|tel):\S|[^\W_]\.[^\W\d_]{2,}|(?:\d{1,3}\.){3}\d{1,3}", re.IGNORECASE
)


def links_in(text: str) -> list[str]:
    """Return the links in a text, in order, each with what is glued to it: in doubt, a word is one.

    A host is found by its point: neither ``localhost`` nor "example dot com" is a link.
    """
    words = [word.strip(_AROUND) for word in _BETWEEN.split(text)]
    return [word for word in words if _LINK.search(unicodedata.normalize("NFKC", word).translate(_DOTS))]
