"""The place of a secret in a text, and its replacement."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

REDACTED: Final = "[redacted]"
PLACEHOLDER: Final = re.compile(r"\[redacted(?: [0-9]+)?\]")
Placeholder: TypeAlias = Callable[[str], str]


class Span(NamedTuple):
    """A stretch of a text that is a secret."""

    start: int
    end: int
    secret: str
    quote: str = ""
    """Put around the placeholder, where a number of JSON becomes text."""
