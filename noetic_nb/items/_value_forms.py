"""Normalises numbers, amounts, dates, times and grouped identifiers in a text: ``#50 eur``, ``@2022-03-01``."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

Marks = dict[str, tuple[int, int]]  # each mark with the first and last token that it was read from

GLUE: Final = "\u203f"
"""Inserted before a sign without spaces around it, and after one at the start of a word."""

# With fewer digits, adjacent groups are separate numbers, not an identifier.
MIN_JOINED: Final = 6
# Account, card and telephone numbers are shorter.
MAX_JOINED: Final = 34
MAX_DIGITS: Final = 30  # a longer number is an identifier, compared by its digits
READ: Final = "\ue000"  # replaces a date or time that was read, so that its parts are not taken for amounts


def _table(text: str) -> dict[str, int]:
    """Parse a table of words and numbers, as in ``1 one un; 2 two``."""
    return {word: int(number) for line in text.split(";") for number, *words in [line.split()] for word in words}


_MONTHS: Final = _table(
    "1 january jan januar janvier enero gennaio janeiro januari; 2 february feb februar février fevrier febrero febbraio "
    "fevereiro februari; 3 march mar märz maerz mars marzo março maart; 4 april apr avril abril aprile; 5 may mai mayo maggio "
    "maio mei; 6 june jun juni juin junio giugno junho; 7 july jul juli juillet julio luglio julho; 8 august aug août aout "
    "agosto augustus; 9 september sep sept septembre septiembre settembre setembro; 10 october oct oktober octobre octubre "
    "ottobre outubro; 11 november nov novembre noviembre novembro; 12 december dec dezember dez décembre diciembre dicembre "
    "dezembro"
)
_MONTH: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_MONTHS_BEGIN: Final = tuple({name[:3] for name in _MONTHS})
# Excludes "once", "due", "elf", "cent" and the like: English words that are numbers in other languages.
_NUMBER_WORDS: Final = _table(
    "0 zero null zéro cero; 1 one eins uno; 2 two zwei deux dos; 3 three drei trois tres; 4 four vier quatre cuatro; "
    "5 five fünf cinq cinco; 6 six sechs seis; 7 seven sieben siete; 8 eight acht huit ocho; 9 nine neun neuf nueve; "
    "10 ten zehn diez; 11 eleven onze; 12 twelve zwölf douze doce; 13 thirteen dreizehn treize trece; 14 fourteen vierzehn "
    "quatorze catorce; 15 fifteen fünfzehn quinze quince; 16 sixteen sechzehn seize dieciséis; 17 seventeen siebzehn diecisiete; "
    "18 eighteen achtzehn dieciocho; 19 nineteen neunzehn diecinueve; 20 twenty zwanzig vingt veinte; 30 thirty dreißig "
    "dreissig trente treinta; 40 forty vierzig quarante cuarenta; 50 fifty fünfzig cinquante cincuenta; 60 sixty sechzig "
    "soixante sesenta; 70 seventy siebzig setenta; 80 eighty achtzig ochenta; 90 ninety neunzig noventa"
)
_SCALES: Final = _table(
    "100 hundred hundert cien ciento; 1000 k thousand tausend mille mil; 1000000 million millionen millones mio; "
    "1000000000 billion milliarde milliarden mrd"
)
_JOINED_SCALES: Final = ("tausend", "hundert")
_UNITS: Final = {
    alias: names.split()[0]
    for names in (
        "eur € euro euros евро", "usd $ us$ dollar dollars dólares", "gbp £ pound pounds", "jpy ¥ yen 円",
        "chf fr. franken francs", "cny 元 yuan",
        "inr ₹ rupees", "% percent prozent pourcent", "h hour hours hr hrs stunden", "min mins minute minutes minuten",
        "s sec secs second seconds sekunden", "day days tage", "kg kilo kilos kilogram kilograms", "g gram grams", "mg",
        "lb lbs", "km kilometers kilometres", "m meter meters", "cm", "mm", "mi mile miles", "l liter liters litres", "ml",
        "gb", "mb", "kb", "x", "st", "nd", "rd", "th",
    )
    for alias in names.split()
}  # fmt: skip
_CURRENCIES: Final = frozenset({"eur", "usd", "gbp", "chf"})
_ORDINALS: Final = frozenset({"st", "nd", "rd", "th"})

_PLAIN_NUMBER: Final = (
    r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|[1-9]\d{0,2}(?:\.\d{3})+,\d+|[1-9]\d{0,2}(?:\.\d{3}){2,}"
    r"|[1-9]\d{0,2}(?:'\d{3})+(?:\.\d+)?|\d+,\d{1,2}|\d*\.\d+|\d+"
)
_SUFFIX: Final = "|".join(map(re.escape, sorted([*_UNITS, "k"], key=len, reverse=True)))
_AMOUNT: Final = re.compile(
    rf"(-?)([$€£¥₹]|us\$|eur|usd|gbp|chf)?(-?)({_PLAIN_NUMBER})({_SUFFIX})?"
    r"(?:\.-{1,2})?(?:/[^\W\d_]+)?"
)
_SPACED: Final = re.compile(
    r"(?<![\w.,/+-])(?P<cur>[$€£¥] ?)?([1-9]\d{0,2}(?:[ \u00a0\u202f]\d{3})+)(,\d{1,2}|\.\d{1,2})?"
    r"(?![\w.,]*\d)(?P<unit>\s?(?:[$€£¥]|(?:eur|usd|chf)\b))?"
)
_ISO: Final = re.compile(r"(?<!\d)(\d{4})(?:[-/.](\d{1,2})[-/.](\d{1,2})|年(\d{1,2})月(\d{1,2})日)(?!\d)")
_SLASHED: Final = re.compile(r"(?<![\d/.-])(\d{1,2})[/.-](\d{1,2})[/.-](\d{4}|\d{2})(?![\d/-]|\.\d)")
_NAMED: Final = re.compile(
    rf"(?<!\d)(\d{{1,2}})(?:st|nd|rd|th|er|º|\.)?[\s-]+(?:of\s+|de\s+)?({_MONTH})\b\.?,?[\s-]+(?:del?\s+)?(\d{{4}})(?!\d)"
    rf"|\b({_MONTH})\b\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}})(?!\d)"
)
_TIME: Final = re.compile(
    r"(?<![\w:.])t?(\d{1,2}):(\d{2})(?::\d{2}(?:\.\d+)?)?(?:z|[+-]\d{2}:?\d{2})?(?:\s?([ap])\.?m\b\.?)?(?!\w|:\d)"
    r"|(?<![\w:.])(\d{1,2})\s?([ap])\.?m\b\.?|(?<![\w:.])(\d{1,2})(?:[:.](\d{2}))?\suhr\b|(?<![\w:.])(\d{1,2})h(\d{2})(?!\w)"
)
_DIGIT: Final = re.compile(r"\d")
_GROUPED: Final = re.compile(r"\+?\d+(?:[-./]\d+)*")
_GROUP_FOLLOWS: Final = re.compile(rf"\d|{GLUE}?[()]")
_DOTTED: Final = re.compile(r"\d{3}\.\d{3}\.\d{4}")
_IBAN_PART: Final = re.compile(r"[a-z0-9]{1,4}")


def number_mark(text: str) -> str | None:
    """Normalise a plain number, ``1e3`` to ``#1000``; None for other text."""
    if len(text) > MAX_DIGITS:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) > MAX_DIGITS:
        return None
    return f"#{number.normalize() + 0:f}"


def _date(year: str, month: str | int, day: str) -> str | None:
    try:
        return f"@{datetime.date(int(year) + 2_000 * (len(year) == 2), int(month), int(day))}"
    except ValueError:
        return None


def _time(match: re.Match[str]) -> str | None:
    hour, minute, half, hour_only, half_only, uhr, uhr_minute, h, h_minute = match.groups()
    number, half = int(hour or hour_only or uhr or h), half or half_only
    if half:
        if not 1 <= number <= 12:
            return None
        number = number % 12 + 12 * (half == "p")
    minute = minute or uhr_minute or h_minute or "00"
    return f"@{number:02d}:{int(minute):02d}" if number < 24 and int(minute) < 60 else None


def without_dates(text: str) -> tuple[str, list[tuple[str, ...]]]:
    """Return a text with a placeholder for each date and time, and the readings of each: 01/02/2024 has two."""
    found: list[tuple[str, ...]] = []
    text = text.replace(READ, " ")

    def take(match: re.Match[str], *readings: str | None) -> str:
        known = tuple(dict.fromkeys([each for each in readings if each]))
        if not known:
            return match.group()
        found.append(known)
        return f" {READ}{len(found) - 1} "

    def iso(match: re.Match[str]) -> str:
        year, *parts = match.groups()
        month, day = [part for part in parts if part]
        return take(match, _date(year, month, day))

    def slashed(match: re.Match[str]) -> str:
        # 01/02/2024 may be the first of February or the second of January: accept both.
        first, second, year = match.groups()
        return take(match, _date(year, second, first), _date(year, first, second))

    def named(match: re.Match[str]) -> str:
        day, month, year, other_month, other_day, other_year = match.groups()
        return take(match, _date(year or other_year, _MONTHS[month or other_month], day or other_day))

    if _DIGIT.search(text) is None:
        return text, found
    text = _SLASHED.sub(slashed, _ISO.sub(iso, text))
    # Looking for a few words first is much faster than running the regular expression.
    if any(month in text for month in _MONTHS_BEGIN):
        text = _NAMED.sub(named, text)
    text = _TIME.sub(lambda match: take(match, _time(match)), text)
    return _SPACED.sub(_closed, text), found


def _closed(match: re.Match[str]) -> str:
    """Write 1 234,50 without its space, if a fraction or currency shows that it is one number."""
    number, fraction = match.group(2), match.group(3)
    if not (fraction or match.group("cur") or match.group("unit")):
        return match.group()
    cents = (fraction or "").replace(",", ".")
    return f"{match.group('cur') or ''}{''.join(number.split())}{cents}{match.group('unit') or ''}"


def marks_of(tokens: Sequence[str]) -> tuple[Marks, list[str]]:
    """Return the numbers, amounts and grouped identifiers in a text's tokens, and the tokens with each of them joined."""
    marks: Marks = {}
    kept: list[str] = []
    place = 0
    while place < len(tokens):
        begin = place
        token = tokens[place]
        if token.isalpha():  # true for most tokens
            named = token in _NUMBER_WORDS or token in _SCALES or "und" in token or "tausend" in token
            words, value = _spoken(tokens, place) if named else (0, Decimal())
            place = _number(tokens, place, place + max(words, 1) - 1, (value, None) if words else None, marks) + 1
        elif token == "(" or _DIGIT.search(token):
            end, is_only = _identifier(tokens, place, marks)
            if is_only:
                kept.append(
                    next(mark for mark, span in reversed(marks.items()) if mark[0] == "~" and span == (place, end))
                )
                place = end + 1
                continue
            while place <= end:
                place = _number(tokens, place, place, _amount(tokens[place]), marks) + 1
            place = max(place, end + 1)
        elif "-" in token and (spoken := _spoken(tokens, place))[0]:
            place = _number(tokens, place, place + spoken[0] - 1, (spoken[1], None), marks) + 1
        else:
            place += 1
        kept += tokens[begin:place]
    return marks, kept


def is_amount(token: str) -> bool:
    """Tell whether a word is a single number, optionally with a unit."""
    return _AMOUNT.fullmatch(token) is not None


def _amount(token: str) -> tuple[Decimal, str | None] | None:
    match = _AMOUNT.fullmatch(token)
    if match is None:
        return None
    sign, currency, other_sign, digits, unit = match.groups()
    if len(digits) > MAX_DIGITS or (digits[0] == "0" and digits[1:2].isdecimal()):
        return None  # identifiers have leading zeros
    head, comma, tail = digits.replace("'", "").rpartition(",")
    if comma and (len(tail) < 3 or "." in head):
        digits = f"{head.replace('.', '')}.{tail}"
    elif digits.count(".") > 1:
        digits = digits.replace(".", "")
    digits = digits.replace(",", "").replace("'", "")
    value = Decimal(digits)
    if unit == "k":
        value, unit = value * 1_000, None
    return -value if sign or other_sign else value, _UNITS.get(currency or unit or "")


def _number(
    tokens: Sequence[str], first: int, last: int, found: tuple[Decimal, str | None] | None, marks: Marks
) -> int:
    """Add a number with the unit beside it; returns the index of its last token."""
    if found is None:
        return last
    value, unit = found
    while last + 1 < len(tokens) and tokens[last + 1] in _SCALES:
        last += 1
        value *= _SCALES[tokens[last]]
    begin = first
    if unit is None and last + 1 < len(tokens) and (unit := _UNITS.get(tokens[last + 1])) is not None:
        last += 1
    elif unit is None and first and (unit := _UNITS.get(tokens[first - 1])) is not None:
        begin = first - 1
    mark = number_mark(str(value))
    if unit == "%" and mark is not None:
        marks[number_mark(str(value / 100)) or mark] = (first, first - 1)
    # 1.000 € is a thousand with a decimal comma, and one with a decimal point: accept both.
    if unit in _CURRENCIES and value.as_tuple().exponent == -3 and (thousand := number_mark(str(value * 1_000))):
        marks[thousand] = (first, first - 1)
        marks[f"{thousand} {unit}"] = (begin, last)
    if mark is not None:
        has_unit = unit is not None and unit not in _ORDINALS
        marks[mark] = (first, last) if not has_unit else (first, first - 1)
        if has_unit:
            marks[f"{mark} {unit}"] = (begin, last)
    return last


def _spoken(tokens: Sequence[str], first: int) -> tuple[int, Decimal]:
    """Return how many tokens from an index on form one number word, and its value; none if they do not."""
    total = current = 0
    count = read = 0
    is_open = True  # whether a smaller number may follow
    for token in tokens[first:]:
        read += 1
        parts = _parts(token)
        if parts is None:
            if token == "and" and count:
                continue
            break
        for value in parts:
            if value in _SCALES.values():
                if value == 100:
                    current = (current or 1) * value
                else:
                    total, current = total + (current or 1) * value, 0
                is_open = True
            elif not is_open or (current % 100 and not (current % 100 >= 20 > current % 10 + 10 and value < 10)):
                return count, Decimal(total + current)
            else:
                current += value
        count = read
    return count, Decimal(total + current)


def _parts(token: str) -> list[int] | None:
    """Return the numbers in a compound word: twenty-five, fünfundzwanzig."""
    value = _NUMBER_WORDS.get(token) or _SCALES.get(token)
    if value is not None or token in _NUMBER_WORDS:
        return [value or 0]
    for scale in _JOINED_SCALES:
        before, found, after = token.partition(scale)
        if found:
            head, tail = _parts({"ein": "eins"}.get(before, before)) if before else [], _parts(after) if after else []
            return None if head is None or tail is None else [*head, _SCALES[scale], *tail]
    tens, hyphen, ones = token.partition("-")
    if not hyphen:
        ones, _, tens = token.partition("und")
        ones = {"ein": "eins"}.get(ones, ones)
    big, small = _NUMBER_WORDS.get(tens, 0), _NUMBER_WORDS.get(ones, 0)
    return [big, small] if big >= 20 and 0 < small < 10 else None


def _identifier(tokens: Sequence[str], first: int, marks: Marks) -> tuple[int, bool]:
    """Add a grouped identifier; returns the index of its last token, and whether its groups are not separate numbers."""
    groups, last, is_only = _account(tokens, first) or _digits(tokens, first)
    joined = "".join(groups)
    if len(groups) < 2 or not MIN_JOINED <= len(joined.lstrip("+")) <= MAX_JOINED:
        return max(first, last), False
    marks[f"={joined}"] = marks[f"~{GLUE.join(groups)}"] = (first, last)
    if joined[0] == "+":
        marks[f"={joined[1:]}"] = (first, first - 1)
    elif joined.startswith("00"):
        marks[f"=+{joined[2:]}"] = (first, first - 1)
    return last, is_only


def _account(tokens: Sequence[str], first: int) -> tuple[list[str], int, bool] | None:
    """Parse an account number in groups of four: DE89 3704 0044."""
    groups = tokens[first].split("-")
    if not (len(groups[0]) == 4 and groups[0][:2].isalpha() and groups[0].isascii() and groups[0][2:].isdecimal()):
        return None
    last = first
    while (
        len(groups) < 9
        and last + 1 < len(tokens)
        and len(groups[-1]) == 4
        and _IBAN_PART.fullmatch(part := tokens[last + 1])
    ):
        # A group of letters is the bank code if it follows the country and precedes a number; otherwise it is part of the text.
        if part.isalpha() and not (
            len(groups) == 1 and len(part) == 4 and "".join(tokens[last + 2 : last + 3])[:1].isdigit()
        ):
            break
        last += 1
        groups.append(part)
        if _is_valid("".join(groups)):  # an amount may follow
            break
    if not all(map(_IBAN_PART.fullmatch, groups)) or len(groups) < 2:
        return None
    return groups, last, True


def _is_valid(account: str) -> bool:
    """Tell whether the check digits of an account number are valid (ISO 13616)."""
    return len(account) >= 15 and int("".join([str(int(sign, 36)) for sign in account[4:] + account[:4]])) % 97 == 1


def _digits(tokens: Sequence[str], first: int) -> tuple[list[str], int, bool]:
    """Parse digits in groups: a card number, a telephone number."""
    if tokens[first].isdecimal() and not (first + 1 < len(tokens) and _GROUP_FOLLOWS.match(tokens[first + 1])):
        return [tokens[first]], first, False
    groups: list[str] = []
    last, place, in_parentheses = first - 1, first, False
    lead = next((token for token in tokens[first : first + 2] if token != "("), "")[:1]
    for place in range(first, len(tokens)):
        token = tokens[place]
        if token in ("(", ")", f"{GLUE}(", f"{GLUE})"):
            in_parentheses = token[-1] == "("
            continue
        if not _GROUPED.fullmatch(token) or ("/" in token and lead not in ("+", "0")):
            break
        # 555.123.4567 is neither a version nor an IP address.
        if "." in token and lead != "+" and not _DOTTED.fullmatch(token):
            break
        if token[0] == "+" and groups:
            break
        if token == "0" and in_parentheses and groups:  # +49 (0) 170
            continue
        sign = "+" if token[0] == "+" else ""
        parts = re.split(r"[-./]", token.lstrip("+"))
        groups += [sign + parts[0], *parts[1:]]
        last = place
    digits = sum(map(len, groups))
    is_only = (
        lead == "+"
        or tokens[first] == "("
        or any(len(group) > 1 and group[0] == "0" for group in groups)
        or "-" in tokens[first]
        or "." in tokens[first]
        or (len(groups) > 2 and digits >= 9)
    )
    return groups, last, is_only
