"""Counts with a provider's vocabulary or, offline, by rates (docs/studies/offline_tokens.md), including the framing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from noetic_nb.items._build import item_text
from noetic_nb.tokenizers._framing import KINDS, Framing, counted_text, framing_of, kind_of
from noetic_nb.tokens import KNOWN_ERRORS, no_text

OFFLINE: Final = "calibrated-offline"  # the name of the counter

_MARK: Final = r"!-/:-@\[-`{-~"
_ACCENTED: Final = r"\u00c0-\u024f\u1e00-\u1eff"
# Frequent characters that only exist in traditional Chinese: they indicate that the text uses this script.
_TRADITIONAL: Final = "們個來這為說對會國學過發經點實還樣與從現開關機將讓電長門問題間時後動"


class Piece(NamedTuple):
    """A kind of piece: a regular expression that matches one, and its average number of tokens."""

    pattern: str
    tokens: float


PIECES: Final = {
    "word": Piece(r" [A-Z]?[a-z]{1,6}", 0.95),
    "letter of a word beyond the sixth": Piece(r"[a-z](?<=[A-Za-z]{7})", 0.11),
    "word without a blank": Piece(r"[A-Z]?[a-z]{1,6}", 0.60),
    "mark before a word": Piece(rf"[{_MARK}](?<![{_MARK}][{_MARK}])(?=[A-Za-z])", 0.71),
    "mark": Piece(rf"[{_MARK}](?<![{_MARK}][{_MARK}])", 1.09),
    "mark after another": Piece(rf"[{_MARK}]", 0.23),
    "three digits": Piece(r"[0-9]{1,3}", 1.00),
    "capital": Piece(r"[A-Z](?<![A-Z][A-Z])", 0.78),
    "capital after another": Piece(r"[A-Z]", 0.11),
    "end of a line": Piece(r"\s*\n", 0.47),
    "indent": Piece(r"[ \t]+(?=[ \t]\S)|[ \t]{2,}", 1.00),
    "blank": Piece(r"[ \t](?![\d\s])", 0.07),
    "blank before a digit": Piece(r"\s", 1.31),
    "accented letter": Piece(rf"[{_ACCENTED}][a-z]?", 0.48),
    "Cyrillic word": Piece(r"[\u0400-\u052f](?<![\u0400-\u052f].)", 0.77),
    "Cyrillic": Piece(r"[\u0400-\u052f]", 0.17),
    "Arabic word": Piece(r"[\u0600-\u06ff](?<![\u0600-\u06ff].)", 0.78),
    "Arabic": Piece(r"[\u0600-\u06ff]", 0.23),
    "traditional Chinese": Piece(f"[{_TRADITIONAL}]", 1.90),
    "Han after another script": Piece(r"[\u3400-\u9fff](?<![\u3400-\u9fff].)", 0.98),
    "Han": Piece(r"[\u3400-\u9fff]", 0.81),
    "hiragana": Piece(r"[\u3040-\u309f]", 0.67),
    "katakana": Piece(r"[\u30a0-\u30ff]", 0.73),
    "Hangul word": Piece(r"[\uac00-\ud7af](?<![\uac00-\ud7af].)", 0.69),
    "Hangul": Piece(r"[\uac00-\ud7af]", 0.76),
    "letter of another script": Piece(r"[^\W\d_]|[\u0590-\u1fff]", 0.39),
    "other": Piece(r"\S", 0.84),
}
"""By name; if several match at a position, the first one counts."""

CUT: Final = re.compile("|".join(f"({piece.pattern})" for piece in PIECES.values()))
_TOKENS: Final = (0.0, *(piece.tokens for piece in PIECES.values()))


def _encode(text: str) -> range:
    """Return a sequence as long as the expected number of tokens in a text."""
    tokens = sum([_TOKENS[found.lastindex or 0] for found in CUT.finditer(text)])
    return range(max(1, round(tokens)) if text else 0)


@cache
def offline_tokenizer() -> EncodingTokenizer:
    """Return the offline counter, with the framing of current OpenAI models.

    Examples
    --------
    >>> offline_tokenizer()("Where is my order?"), offline_tokenizer()("")
    (5, 0)
    """
    return EncodingTokenizer(OFFLINE, _encode, framing_of(""), KNOWN_ERRORS[OFFLINE])


# The library splits text with a regular expression that panics on a run of a million spaces. It never does below this
# limit, and most items are shorter, so they are counted in one call.
MAX_PIECE: Final = 16_384
# Recent texts up to this limit are cached: a layer's text is counted when it is chosen, offered and planned, and the
# runs of one study share most of their texts.
MOST_KNOWN: Final = 1_024
# After a letter or digit, before a sign, space or line end: a piece always ends there, whatever follows.
_SAFE: Final = re.compile(r"[A-Za-z0-9](?=[\x00-&(-/:-@\[-`{-~])")


def pieces(text: str, most: int = MAX_PIECE) -> Iterable[str]:
    """Cut a text into pieces of at most `most` characters, where possible at places that do not change the tokens."""
    start = 0
    while len(text) - start > most:
        end = start + most
        cut = _last_safe(text, start, end)
        # For the vocabulary, the two halves of a surrogate pair are one character.
        if cut is None:
            is_pair = "\ud800" <= text[end - 1] <= "\udbff" and "\udc00" <= text[end] <= "\udfff" and most > 1
            cut = end - 1 if is_pair else end
        yield text[start:cut]
        start = cut
    yield text[start:]


def _last_safe(text: str, start: int, end: int) -> int | None:
    """Return the last safe place to cut after `start` and up to `end`, or None."""
    low = end
    # Search backwards in growing steps: most texts have a safe place within a few words.
    for reach in (128, 1024, end - start):
        low, before = max(start, end - reach), low
        found = None
        for match in _SAFE.finditer(text, low, before + 1):
            found = match.end()
        if found is not None or low == start:
            return found
    return None


class EncodingTokenizer:
    """Counts the tokens of a text, of an item as a provider bills it, and of tool definitions.

    Created by `get` or `from_ranks`. Text that looks like a special token counts as plain text, and a lone surrogate
    counts as the replacement character that is sent instead.

    Attributes
    ----------
    name : str
        The name of the encoding.
    known_error : float or None
        Mean absolute relative error of a whole request against reported usage; None if not measured.
    framing : Framing
        The tokens added around texts.
    """

    __slots__ = ("_around", "_encode", "_known", "framing", "known_error", "name")

    def __init__(
        self, name: str, encode: Callable[[str], Sequence[int]], framing: Framing, known_error: float | None
    ) -> None:
        self.name = name
        self.framing = framing
        self.known_error = known_error
        self._encode = encode
        self._known: dict[str, int] = {}
        self._around = {kind: framing.item(kind) for kind in KINDS}

    def __call__(self, text: str) -> int:
        """Count the tokens of a text."""
        if not isinstance(text, str):
            raise no_text(text)
        if len(text) > MAX_PIECE:
            return sum(map(self, pieces(text)))
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[text] = len(self._encode(text))
        return found

    def count_item(self, item: Mapping[str, Any]) -> int:
        """Count an item as billed: its text and the tokens around it."""
        # Inlined, because most items are short and function calls would add a tenth to the time.
        kind = kind_of(item)
        text = item_text(item)
        if not text and kind == "other":
            text = counted_text(item, kind)
        tokens = self._known.get(text)
        return (self(text) if tokens is None else tokens) + self._around[kind]

    def count_system(self, text: str) -> int:
        """Count the instructions as billed: a message, and the start of the answer that ends every request."""
        return self(text) + self.framing.message + self.framing.reply

    def count_tools(self, tools: Iterable[Any]) -> int:
        """Count tool definitions, each with a name, a description and parameters."""
        return self.framing.definitions(tools, self)

    def __repr__(self) -> str:
        return f"<tokenizer {self.name}>"
