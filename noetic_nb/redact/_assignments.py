"""Values assigned to a secret name inside text: in prose, in code and in JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final

from noetic_nb.redact._secret_names import ALWAYS, PLACEHOLDER, SMALLEST_NUMBER, Span, secret_word
from noetic_nb.redact._shapes import longest_run

NAME_HINTS: Final = [
    "pass",
    "secret",
    "token",
    "key",
    "cred",
    "auth",
    "cookie",
    "session",
    "dsn",
    "pin",
    "otp",
    "webhook",
    "pwd",
    "bearer",
    "connection",
]
_ASSIGNED: Final = re.compile(
    # A command-line option begins with dashes.
    r"(?<![A-Za-z0-9_])(?<![A-Za-z0-9_]-)(?P<name>[A-Za-z_][A-Za-z0-9_\-]*+)(?P<quote>[\"'`]?)(?:\]|\*\*)?"
    r"[ \t]{0,4}(?:=>|:=|==?|:)(?:\*\*)?\s{0,4}(?:(?i:bearer|basic|token|digest|apikey)[ \t]+(?=[^\s\"']))?"
    r"(?P<value>\"(?P<double>(?:[^\"\\\r\n]|\\.)*+)\"?|'(?P<single>(?:[^'\"\\\r\n]|\\.)*+)'?"
    r"|(?P<bare>[^\s\"'`,;&<>(){}\[\]|\\?]++)|(?P<open>[\[{]))"
)
# The text between a hint and the assigned value: the rest of the name, up to a limit, or "session id".
_TAIL: Final = r"[a-z0-9_\-]{0,128}+(?: (?:string|id|code))?[\"'`]?(?:\]|\*\*)?[ \t]{0,4}"
_IN_LINE: Final = re.compile(_TAIL + "(?=[:=])")
# With the first character of a value, which may be on a later line.
_WITH_VALUE: Final = re.compile(_TAIL + r"(?=(?:=>|:=|==?|:)(?:\*\*)?\s{0,4}[^\s`,;&<>()}\]|\\?])")
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+\-]?[0-9]+)?")
_NUMERIC: Final = re.compile(r"[0-9.,:/+\-%TZ ]+")
_LETTERS: Final = re.compile(r"[^\W\d]+(?:[_.'’/ \-]+[^\W\d]+)*[.!?:…]*")
_DOTTED: Final = re.compile(r"[A-Za-z_]{1,24}[0-9]{0,2}(?:\.[A-Za-z_]{1,24}[0-9]{0,2})+")
_FILLER: Final = re.compile(r"[*•xX.…_\-]+|[<{$%].*|(?:https?|file|ftp)://.*|[./~].{0,80}", re.S)
_PAIR_START: Final = frozenset("{,")
_HEADERS: Final = frozenset({"authorization", "bearer"})


def is_value(text: str, word: str, after: str, *, quoted: bool) -> bool:
    """Tell whether a value assigned in prose or code is a secret, not a word, number or expression."""
    if PLACEHOLDER.fullmatch(text) or _FILLER.fullmatch(text):
        return False
    if word in _HEADERS and len(text) >= 8:
        return not text.islower() or longest_run(text) >= 16
    if _NUMERIC.fullmatch(text):
        return word in ALWAYS and text.isdigit() and 4 <= len(text) <= 10
    if not quoted and (after in ("(", "[") or _DOTTED.fullmatch(text)):
        return False
    if len(text) < (5 if quoted else 6) or (quoted and text.count(" ") > 5):
        return False
    if _LETTERS.fullmatch(text):
        changes = len(re.findall(r"[a-z][A-Z]|[A-Z]{2}[a-z]", text))
        return longest_run(text) >= (12 if changes >= 3 else 24)
    return True


def _before(text: str, place: int) -> str:
    """Return the last non-blank character before a position."""
    head = text[max(0, place - 64) : place].rstrip()
    return head[-1:]


def behind_hints(lower: str, tail: re.Pattern[str], hints: Iterable[str] = NAME_HINTS) -> Iterator[int]:
    """Find the ends of the tails after names with a hint, hint by hint."""
    for hint in hints:
        place = lower.find(hint)
        while place >= 0:
            place += len(hint)
            if (match := tail.match(lower, place)) is not None:
                yield match.end()
            place = lower.find(hint, place)


def may_assign(lower: str) -> bool:
    """Tell whether a lower-case line of text may assign to a secret name; fast if it cannot."""
    return ("=" in lower or ":" in lower) and next(behind_hints(lower, _IN_LINE), None) is not None


def _line_start(text: str, place: int, first: int) -> int:
    """Return the start of a line, at or before a position, that no assignment crosses into; or `first`."""
    start = text.rfind("\n", first, place) + 1
    # Up to four blanks or line ends may separate a sign from its value.
    while start > first and text[max(0, start - 5) : start].rstrip().endswith((":", "=", ">", "*")):
        start = text.rfind("\n", first, start - 1) + 1
    return max(start, first)


def assigned(text: str, raw: Callable[[int, int], str]) -> Iterator[Span]:
    """Find the values assigned to a secret name; `raw` returns the original spelling of a range of the text."""
    if "=" not in text and ":" not in text:  # most texts; lower-casing never produces one of these
        return
    inside = 0  # the end of the range below a secret key
    place = 0
    # The one letter whose lower case has two characters occurs in no name.
    for sign in sorted(behind_hints(text.replace("İ", " ").lower(), _WITH_VALUE)):
        place = _line_start(text, sign, place)
        while place < sign:
            if (match := _ASSIGNED.search(text, place)) is None:
                return
            name, quote = match["name"], match["quote"]
            # A value may itself be an assignment, as in `--header=token:…`, so the search continues at its start.
            place = match.start("value")
            word = secret_word(name)
            if word is None and name.lower() in ("key", "keys", "string", "id", "code"):
                head = re.search(r"([A-Za-z]{2,12}) $", text[max(0, match.start() - 16) : match.start()])
                word = None if head is None else secret_word(f"{head[1]} {name}")
            if word is None:
                continue
            opening = match.start() - 1  # a pair of an object: its value is data, and hidden as in a mapping
            pair = bool(quote) and opening >= 0 and text[opening] == quote and _before(text, opening) in _PAIR_START
            if match["open"] is not None:
                if pair and match.start() >= inside:
                    inside = yield from _below(text, match.start("open"), raw)
                continue
            quoted = match["bare"] is None
            content = match["double"] if match["double"] is not None else match["single"]
            if content is None:
                content = match["bare"]
            start = match.start("value") + quoted
            if pair and not quoted:
                number = _NUMBER.fullmatch(content)
                if number and (word in ALWAYS or abs(float(content)) >= SMALLEST_NUMBER):
                    place = start + len(content)
                    yield Span(start, place, content, raw(match.end("name"), match.end("name") + 1))
                continue
            if not quoted:
                content = content.rstrip(".!?:*")
            end = start + len(content)
            if not content or PLACEHOLDER.fullmatch(content):
                continue
            if pair or is_value(content, word, text[end : end + 1], quoted=quoted):
                place = end
                yield Span(start, end, content)


_SCALAR: Final = re.compile(
    r"(?P<open>[\[{])|(?P<close>[\]}])|\"(?P<text>(?:[^\"\\]|\\.)*+)\"(?P<key>\s*+:)?|(?P<number>-?[0-9][0-9.eE+\-]*+)"
)
_SCHEMA_TYPE: Final = re.compile(
    r"\{\s*\"(?:type\"\s*:\s*\"(?:string|number|integer|boolean|object|array|null)\"|\$ref\"|anyOf\"|description\"|title\")"
)


def _below(text: str, start: int, raw: Callable[[int, int], str]) -> Generator[Span, None, int]:
    if _SCHEMA_TYPE.match(text, start):  # a description of the argument, not the argument
        return start
    depth = 0
    for match in _SCALAR.finditer(text, start):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
            if depth <= 0:
                return match.end()
        elif match["number"] is not None:
            if _NUMBER.fullmatch(match["number"]) and abs(float(match["number"])) >= SMALLEST_NUMBER:
                yield Span(*match.span(), match["number"], raw(start, start) or '"')
        # Words are kept: a list under "alternative_auth" names fields.
        elif match["key"] is None and match["text"] and is_value(match["text"], "secret", "", quoted=True):
            yield Span(*match.span("text"), match["text"])
    return len(text)
