"""Values found in texts: escapes read, one form of every letter, number and date.

A value with other spaces or marks in it is the same value: DE89 3704 is DE893704.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from noetic_nb.late_pattern import late_pattern

__all__ = ["Needle", "SearchedText", "needle_of", "searched", "value_text"]

# Below this many characters two tokens that stand beside each other are not one value: "a b" is not "ab".
MIN_JOINED: Final = 6
# What people write in groups is short: account numbers, cards, telephone numbers.
MAX_JOINED: Final = 64
# Beyond these a number is an identifier, and its digits are what counts.
MAX_DIGITS: Final = 30
# Some ten bytes a character: at most 80 MB are kept, and far less of texts as they are.
MAX_KEPT_LENGTH: Final = 4_000
# Scripts without spaces have one token a character, so that a value is found beside its neighbours.
_UNSPACED: Final = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
_TOKEN: Final = late_pattern(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_ESCAPE: Final = late_pattern(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|\n[ \t]*(?:\\ )?|[nrtbf0 ]|([\"'\\/]))")
# Not inside an identifier, a date or a time: 04 of 2022-03-04 is no number anybody wrote.
_NUMBER: Final = late_pattern(
    r"(?<![^\W_])(?<!\d[-.,:/])-?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+,\d{1,2}(?!\d)|\d+(?:\.\d+)?)(?![^\W_])(?![-.,:/]\d)"
)
_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
         "september sep sept", "october oct", "november nov", "december dec"), 1
    )
    for name in names.split()
}  # fmt: skip
_MONTHS_BEGIN: Final = tuple({name[:3] for name in _MONTHS})
_MONTH: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_ISO: Final = late_pattern(r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[t ,]+(\d{1,2}):(\d{2}))?(?!\d)")
_SLASHED: Final = late_pattern(r"(?<![\d/.-])(\d{1,2})[/.-](\d{1,2})[/.-](\d{4})(?!\d)")
_DAY_FIRST: Final = late_pattern(rf"(?<!\d)(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\b\.?,?\s+(\d{{4}})(?!\d)")
_MONTH_FIRST: Final = late_pattern(rf"\b({_MONTH})\b\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}})(?!\d)")


def _plain(text: str) -> str:
    """Return a text as it is compared: escapes of JSON and YAML read, one form of every letter, no capitals."""
    if "\\" in text:
        text = _ESCAPE.sub(_unescaped, text)
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _unescaped(match: re.Match[str]) -> str:
    code = match.group(1) or match.group(2)
    return chr(int(code, 16)) if code else match.group(3) or " "


def _number(text: str) -> str | None:
    """Return a number in its one form, None where it is none."""
    head, comma, tail = text.rpartition(",")
    plain = f"{head}.{tail}" if comma and len(tail) < 3 else text.replace(",", "")
    if len(plain) > MAX_DIGITS:
        return None
    try:
        number = Decimal(plain)
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) > MAX_DIGITS:
        return None
    return f"#{number.normalize() + 0:f}"


def _date(year: str, month: str | int, day: str) -> str | None:
    try:
        return f"@{datetime.date(int(year), int(month), int(day))}"
    except ValueError:
        return None


def _dates(text: str) -> Iterator[str | None]:
    for year, month, day, hour, minute in _ISO.findall(text):
        yield (found := _date(year, month, day))
        if hour and found:
            yield f"{found} {int(hour):02d}:{minute}"
    for first, second, year in _SLASHED.findall(text):
        # 01/02/2024 is the first of February or the second of January: both were written.
        yield _date(year, second, first)
        yield _date(year, first, second)
    # Looking for twelve words is a tenth of the work of the expressions that begin with them.
    if not any(month in text for month in _MONTHS_BEGIN):
        return
    for day, month, year in _DAY_FIRST.findall(text):
        yield _date(year, _MONTHS[month], day)
    for month, day, year in _MONTH_FIRST.findall(text):
        yield _date(year, _MONTHS[month], day)


class SearchedText:
    """A text as it is searched: its tokens in order, and the numbers and dates in it."""

    __slots__ = ("_marks", "_plain", "joined", "squeezed", "tokens")

    def __init__(self, text: str) -> None:
        plain = self._plain = _plain(text)
        self.tokens = _TOKEN.findall(plain)
        self.joined = f" {' '.join(self.tokens)} "
        self.squeezed = "".join(self.tokens)
        self._marks: frozenset[str] | None = None

    @property
    def marks(self) -> frozenset[str]:
        """Its numbers and dates, in their one form: read when one is looked for."""
        if self._marks is None:
            plain = self._plain
            # Most tokens are words: without a digit there is neither a number nor a date.
            has_digits = any(digit in plain for digit in "0123456789")
            found = {*map(_number, _NUMBER.findall(plain)), *_dates(plain)} if has_digits else ()
            self._marks = frozenset([mark for mark in found if mark])
        return self._marks


def searched(text: str) -> SearchedText:
    """Return a text as it is searched; short ones that come again, as in runs of one environment, are read once."""
    return _searched(text) if len(text) <= MAX_KEPT_LENGTH else SearchedText(text)


_searched: Final = lru_cache(maxsize=2_048)(SearchedText)


class Needle:
    """A value that is looked for."""

    __slots__ = ("is_whole", "joined", "marks", "pattern", "squeezed", "tokens")

    def __init__(self, value: Any) -> None:
        text = value_text(value)
        plain = _plain(text).strip()
        self.tokens = _TOKEN.findall(plain)
        self.joined = f" {' '.join(self.tokens)} "
        self.squeezed = "".join(self.tokens)
        self.pattern: re.Pattern[str] | None = None
        marks: set[str | None] = set()
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if (whole := _NUMBER.fullmatch(plain)) and (is_number or not re.match(r"-?0\d", plain)):
            marks.add(_number(whole.group()))
        elif is_number:
            marks.add(_number(plain))
        times = {found for found in _dates(plain) if found}
        # A text that only mentions a date is not that date.
        if times and any(regex.fullmatch(_WITHOUT_ZONE.sub("", plain)) for regex in _WHOLE_DATES):
            timed = {found for found in times if " " in found}
            marks |= timed or times
        self.marks = frozenset([mark for mark in marks if mark])
        if is_number and len(self.squeezed) < MIN_JOINED:
            self.tokens = []  # 50 is a number only: it must not be found in 12-50
        self.is_whole = bool(self.tokens or self.marks)
        if MIN_JOINED <= len(self.squeezed) <= MAX_JOINED and self.tokens:
            self.pattern = re.compile(" " + " ?".join(map(re.escape, self.squeezed)) + " ")

    def is_in(self, text: SearchedText) -> bool:
        """Tell whether a text holds the value."""
        return self.is_plainly_in(text) or (bool(self.tokens) and self.is_spaced_in(text))

    def is_plainly_in(self, text: SearchedText) -> bool:
        """Tell whether a text holds the value with the same spaces and marks in it."""
        if self.tokens and self.joined in text.joined:
            return True
        return bool(self.marks) and not self.marks.isdisjoint(text.marks)

    def is_spaced_in(self, text: SearchedText) -> bool:
        """Tell whether a text holds the value with other spaces and marks in it."""
        if self.pattern is None or self.squeezed not in text.squeezed:
            return False
        return self.pattern.search(text.joined) is not None

    def equals(self, text: SearchedText) -> bool:
        """Tell whether a text is the value, and nothing beside it."""
        if self.tokens and "".join(text.tokens) == self.squeezed:
            return True
        return bool(self.marks) and not self.marks.isdisjoint(text.marks) and len(text.marks) == 1


_WITHOUT_ZONE: Final = late_pattern(r"(?::\d{2}(?:\.\d+)?)?(?:z|[+-]\d{2}:?\d{2})?$")
_WHOLE_DATES: Final = (_ISO, _SLASHED, _DAY_FIRST, _MONTH_FIRST)


def value_text(value: Any) -> str:
    """Return a value as the text that is compared."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime.date):  # and times, which are dates
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(getattr(value, "value", value))


# The same few values are asked for by every rule of a call.
@lru_cache(maxsize=1_024)
def _made(kind: str, value: Any) -> Needle:
    return Needle(value)


def needle_of(value: Any) -> Needle:
    """Return a value as it is looked for."""
    # By type as well: True is not 1 where texts are compared.
    return _made(type(value).__name__, value)
