"""Normal forms of numbers, dates and times: different spellings of the same value are equal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import date
from typing import Final

# English, German, French, Spanish, Italian, Portuguese and Russian (as in a date), with the usual short forms.
_MONTH_NAMES: Final = (
    "january jan januar janvier enero gennaio janeiro января jänner",
    "february feb februar février fevrier febrero febbraio fevereiro февраля",
    "march mar märz maerz mars marzo março marco марта",
    "april apr avril abril aprile апреля",
    "may mai mayo maggio maio мая",
    "june jun juni juin junio giugno junho июня",
    "july jul juli juillet julio luglio julho июля",
    "august aug août aout agosto августа",
    "september sep sept septembre septiembre settembre setembro сентября",
    "october oct oktober okt octobre octubre ottobre outubro октября",
    "november nov novembre noviembre novembro ноября",
    "december dec dezember dez décembre decembre diciembre dicembre dezembro декабря",
)
MONTHS: Final = {name: number for number, names in enumerate(_MONTH_NAMES, 1) for name in names.split()}
"""Numbers of months by their names in lower case."""

_WEEKDAY_NAMES: Final = (
    "monday montag lundi lunes lunedì segunda-feira понедельник",
    "tuesday dienstag mardi martes martedì terça-feira вторник",
    "wednesday mittwoch mercredi miércoles mercoledì quarta-feira среда среду",
    "thursday donnerstag jeudi jueves giovedì quinta-feira четверг",
    "friday freitag vendredi viernes venerdì sexta-feira пятница пятницу",
    "saturday samstag sonnabend samedi sábado sabato суббота субботу",
    "sunday sonntag dimanche domingo domenica воскресенье",
)
WEEKDAYS: Final = {name: number for number, names in enumerate(_WEEKDAY_NAMES) for name in names.split()}
"""Numbers of days of the week, 0 is Monday, by their names in lower case."""

_DIGITS: Final = re.compile(r"\d+")
_GROUPING: Final = re.compile(r"[ \u00a0\u202f\u2009'’٬]")
# A year in two digits is one of this century below this number, as POSIX reads it.
_CENTURY_TURNS: Final = 69


def ascii_digits(text: str) -> str:
    """Return a text with the digits of all scripts as 0 to 9."""
    if text.isascii():
        return text
    return "".join([str(unicodedata.decimal(one)) if one.isdecimal() else one for one in text]).replace("٫", ".")


def number_keys(text: str) -> tuple[str, ...]:
    """Return the values that a written number may have; several where it is a list without blanks.

    One mark before exactly three digits groups them; the last of two different marks is that of decimals.
    """
    plain = _GROUPING.sub("", ascii_digits(text))
    found = re.search(r"\d[\d.,]*", plain)
    if found is None:
        return ()
    digits = found[0].rstrip(".,")
    marks = [one for one in digits if one in ".,"]
    if len(set(marks)) == 2:
        decimal = marks[-1]
        if marks.count(decimal) > 1:
            return tuple([_value(part) for part in re.split("[.,]", digits)])
        whole, _, rest = digits.rpartition(decimal)
        return (_value(re.sub("[.,]", "", whole), rest),)
    if not marks:
        return (_value(digits),)
    parts = re.split("[.,]", digits)
    grouped = len(parts[0]) <= 3 and parts[0].strip("0") != "" and all(len(part) == 3 for part in parts[1:])
    if grouped:
        return (_value("".join(parts)),)
    return (_value(*parts),) if len(parts) == 2 else tuple([_value(part) for part in parts])


def _value(whole: str, rest: str = "") -> str:
    whole, rest = whole.lstrip("0") or "0", rest.rstrip("0")
    return f"{whole}.{rest}" if rest else whole


def time_keys(text: str) -> tuple[str, ...]:
    """Return a time of day on 24 hours."""
    numbers = [int(one) for one in _DIGITS.findall(ascii_digits(text))]
    hour, minute = numbers[0], numbers[1] if len(numbers) > 1 else 0
    half = re.search(r"([ap])\.?\s?m", text.casefold())
    if half and hour <= 12:
        hour = hour % 12 + (12 if half[1] == "p" else 0)
    if hour > 24 or minute > 59:
        return ()
    second = numbers[2] if len(numbers) > 2 else 0
    return (f"{hour:02}:{minute:02}" + (f":{second:02}" if second else ""),)


def date_keys(text: str) -> tuple[str, ...]:
    """Return the days that a written date may mean, ``--MM-DD`` where there is no year."""
    return tuple(dict.fromkeys(_date_keys(ascii_digits(text).casefold())))


def _date_keys(text: str) -> Iterator[str]:
    numbers = [int(one) for one in _DIGITS.findall(text)]
    words = re.findall(r"[^\W\d_]+", text)
    month = next((MONTHS[word] for word in words if word in MONTHS), None)
    if month is not None:
        day = next((one for one in numbers if 1 <= one <= 31), None)
        year = next((one for one in numbers if one > 31), None)
        if day is None:
            if year is not None:
                yield f"{year:04}-{month:02}"
        else:
            yield from _day(year, month, day)
    elif len(numbers) == 3 and numbers[0] > 31:
        yield from _day(*numbers)
    elif len(numbers) == 3:
        year = numbers[2] + (0 if numbers[2] > 99 else 2000 if numbers[2] < _CENTURY_TURNS else 1900)
        # With dots the day comes first everywhere; with strokes it depends on the country.
        orders = [(numbers[1], numbers[0])] if "." in text else [(numbers[0], numbers[1]), (numbers[1], numbers[0])]
        for at, day in orders:
            yield from _day(year, at, day)
    elif len(numbers) == 2:
        yield from _day(None, *numbers)


def _day(year: int | None, month: int, day: int) -> Iterator[str]:
    try:
        made = date(2000 if year is None else year, month, day)
    except ValueError:
        return
    yield f"--{made:%m-%d}" if year is None else f"{made.year:04}-{made:%m-%d}"
