"""Normal forms of values in texts: numbers, dates and times in one spelling, file paths, and shell commands."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import date
from typing import Final, Literal, NamedTuple

from noetic_nb.lab._recall_quality.word_lists import WORDS

LONGEST_PATH: Final = 260
LONGEST_COMMAND: Final = 300

_PIECE: Final = re.compile(r"[^\s\"'`<>|(),;=\[\]{}“”„«»]+")
_PLAIN: Final = re.compile(r"[\w.@+~/-]+")
_WINDOWS: Final = re.compile(r"[A-Za-z]:\\[^\s:*?\"<>|]+")
_LINE: Final = re.compile(r"(?::\d+)+$")

_TOLD: Final = re.compile(
    r"\b(?:run|ran|runs|running|executed?|executing|invoke|type|command(?:\sis|\swas)?:?|with|via|do|did)\s(?=[a-z.~/])"
)
_PROMPT: Final = re.compile(r"^[ \t]*\$[ \t]+(\S[^\n]*)", re.MULTILINE)
_TICKS: Final = re.compile(r"(?<!`)`([^`\n]{2,300})`(?!`)|\"([^\"\n]{4,300})\"|'([^'\n]{4,300})'")
_FENCE: Final = re.compile(r"```[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
_WORD: Final = re.compile(r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'`])+")


class WorkFact(NamedTuple):
    """A path or a command, and its position."""

    start: int
    stop: int
    kind: Literal["path", "command"]
    text: str


def work_facts(text: str, *, is_value: bool = False) -> list[WorkFact]:
    """Return the commands of a text, and the paths outside them, in order; `is_value` marks a data field."""
    found = list(_commands(text, is_value=is_value))
    kept: list[WorkFact] = []
    for one in sorted([*found, *_paths(text)]):
        if not kept or one.start >= kept[-1].stop:
            kept.append(one)
        elif one.kind == "command" and kept[-1].kind == "path":
            kept[-1] = one
    return kept


def _paths(text: str) -> Iterator[WorkFact]:
    for match in _PIECE.finditer(text) if any(mark in text for mark in ("/", "\\", ".", "file")) else ():
        piece = match[0]
        if any(mark in piece for mark in "/.\\") or piece in ("Makefile", "Dockerfile"):
            said = _LINE.sub("", piece.rstrip(".,:;!?*"))
            if len(said) <= LONGEST_PATH and _is_path(said):
                yield WorkFact(match.start(), match.start() + len(said), "path", said)


def _is_path(said: str) -> bool:
    if "\\" in said:
        return "://" not in said and _WINDOWS.fullmatch(said) is not None
    if said.lower() in WORDS["whole_names"]:
        return True
    if not _PLAIN.fullmatch(said) or not any(map(str.isalpha, said)):
        return False
    parts = [part for part in said.split("/") if part]
    name, _, end = parts[-1].rpartition(".")
    is_file = end.lower() in WORDS["file_ends"] and any(map(str.isalpha, name.partition(".")[0]))
    if "/" not in said:
        return is_file and "@" not in said and said.lower() not in WORDS["products"]
    begins = parts[0].lower().removeprefix(".") in WORDS["folders"]
    if is_file or said.startswith(("~/", "./", "../", "/")):
        return is_file or len(parts) > 1 or (begins and said.startswith("/"))
    return (begins and not parts[-1].isdigit()) or (said.endswith("/") and len(parts[0]) > 1)


def _commands(text: str, *, is_value: bool) -> Iterator[WorkFact]:
    if is_value:
        if is_command(text):
            yield WorkFact(0, len(text), "command", text.strip()[:LONGEST_COMMAND])
        return
    for match in _PROMPT.finditer(text) if "$" in text else ():
        yield _placed(match.start(1), match[1])
    if "`" in text or '"' in text or "'" in text:
        for match in _TICKS.finditer(text):
            if is_command(match[match.lastindex or 0]):
                yield _placed(match.start(match.lastindex or 0), match[match.lastindex or 0])
    for block in _FENCE.finditer(text) if "```" in text else ():
        at = block.start(1)
        for line in block[1].splitlines(keepends=True):
            if is_command(line.strip()):
                yield _placed(at + len(line) - len(line.lstrip()), line)
            at += len(line)
    for match in _TOLD.finditer(text):
        said = _in_prose(text, match.end(), WORDS["programs"] | WORDS["wordlike"])
        if said:
            yield _placed(match.end(), said)
    for match in _WORD.finditer(text):
        if match[0] in WORDS["programs"]:
            said = _in_prose(text, match.start(), WORDS["programs"])
            if said and (said.split()[1] in WORDS["does"] or any(word.startswith("-") for word in said.split()[1:])):
                yield _placed(match.start(), said)


def _placed(start: int, said: str) -> WorkFact:
    said = said.strip()
    return WorkFact(start, start + len(said), "command", said[:LONGEST_COMMAND])


def is_command(said: str) -> bool:
    """Tell whether a separate text is a command: a known program with arguments, or options after a word."""
    words = said.split()
    if len(words) < 2 or len(said) > LONGEST_COMMAND:
        return False
    first = words[1] if words[0] == "sudo" else words[0]
    name = first.rsplit("/", 1)[-1]
    if name in WORDS["programs"] or (name in WORDS["wordlike"] and words[1] not in WORDS["ends"] - {"a"}):
        return True
    has_option = any(re.fullmatch(r"--?[a-zA-Z][\w-]*(?:=\S+)?", word) for word in words[1:])
    return has_option and re.fullmatch(r"[a-z./][\w./-]*", words[0]) is not None


def _in_prose(text: str, start: int, programs: frozenset[str]) -> str:
    """Return the command that begins there in a sentence, or an empty text; it ends where prose continues."""
    stop, bare, count = start, 0, 0
    for match in _WORD.finditer(text, start, start + LONGEST_COMMAND):
        word = match[0]
        plain = word.rstrip(".,;:!?)")
        if count:
            is_marked = plain[:1] in "-\"'./~$*" or any(mark in plain for mark in "/=._*:")
            is_bare = not is_marked and plain not in ("|", "&&", ">")
            is_end = plain in WORDS["ends"] or (is_bare and (bare >= 3 or not plain.isascii()))
            if is_end or text[stop : match.start()].strip(" "):
                break
            bare += is_bare
        elif plain.rsplit("/", 1)[-1] not in programs:
            return ""
        stop, count = match.start() + len(plain), count + 1
        if plain != word:
            break
    return text[start:stop] if count > 1 else ""


# English, German, French, Spanish, Italian, Portuguese and Russian (as in a date), with the usual abbreviations.
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
"""Month numbers by lower-case name."""

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
"""Weekday numbers (0 is Monday) by lower-case name."""

_DIGITS: Final = re.compile(r"\d+")
_GROUPING: Final = re.compile(r"[ \u00a0\u202f\u2009'’٬]")
# Two-digit years below this number are in this century, as in POSIX.
_CENTURY_TURNS: Final = 69


def ascii_digits(text: str) -> str:
    """Return a text with the digits of all scripts as 0 to 9."""
    if text.isascii():
        return text
    return "".join([str(unicodedata.decimal(one)) if one.isdecimal() else one for one in text]).replace("٫", ".")


def number_keys(text: str) -> tuple[str, ...]:
    """Return the possible values of a written number; a single mark before exactly three digits groups them."""
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
    """Return a time of day in 24-hour form."""
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
    """Return the possible days of a written date, ``--MM-DD`` if there is no year."""
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
        # With dots the day always comes first; with slashes it depends on the country.
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
