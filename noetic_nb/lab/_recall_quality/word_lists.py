"""Word lists, one per name, that identify facts, names, states of people, paths and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_TEXT: Final = Path(__file__).with_name("data").joinpath("words.txt").read_text(encoding="utf-8")
WORDS: Final = {
    name.strip(): frozenset(words.split()) for name, _, words in (one.partition(":") for one in _TEXT.split(";"))
}
