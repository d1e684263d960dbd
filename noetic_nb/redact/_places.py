"""Secrets apart from their name: options, pairs, XML, YAML, netrc, tables, addresses; the patterns take linear time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from noetic_nb.redact._assignments import NAME_HINTS, behind_hints, is_value
from noetic_nb.redact._secret_names import (
    ALWAYS,
    NAME_KEYS,
    PLACEHOLDER,
    SMALLEST_NUMBER,
    VALUE_KEYS,
    Span,
    secret_word,
)
from noetic_nb.redact._sentences import commanded, may_say, said
from noetic_nb.redact._shapes import is_mixed

_NAME: Final = r"(?P<name>[A-Za-z_][\w.\-]{0,127}+(?: (?:key|keys|string|id|token))?)"
_QUOTED: Final = r"\"(?P<double>(?:[^\"\\\r\n]|\\.){1,2048}+)\"|'(?P<single>(?:[^'\\\r\n]|\\.){1,2048}+)'"
_BARE: Final = r"(?P<bare>[^\s\"'`,;&<>(){}\[\]|\\]{1,2048}+)"
_LABEL: Final = f"(?i:{'|'.join(sorted(NAME_KEYS))})"
_VALUE_LABEL: Final = f"(?i:{'|'.join(sorted(VALUE_KEYS))})"
# The wrapping of a value in a document of spans.
_WRAP: Final = r"(?:\{\s{0,40}\"(?:string|int)_?[vV]alue\"\s{0,4}:\s{0,40})?"

# A pattern for whole texts begins with a sign that is rare and fast to find, and looks back from there.
_OPTION: Final = re.compile(
    r"-(?<![\w\-]-)-?" + _NAME + rf"(?:[ \t]{{1,8}}(?!-)|[\"']\s{{0,8}},\s{{0,40}}(?=[\"']))(?:{_QUOTED}|{_BARE})", re.A
)
_USER: Final = re.compile(
    r"-(?<![\w\-]-)(?:u|U|-user|-proxy-user)(?:[\"']\s{0,8},\s{0,40}[\"']|[ \t=]{0,8}+[\"']?)"
    r"[^\s:\"'`/=,]{1,128}+:(?P<value>[^\s\"'`]{1,512}+)",
    re.A,
)
_PAIR: Final = re.compile(
    rf"(?<![\w.\-])(?P<label>[\"']?){_LABEL}[\"']?\s{{0,4}}[:=]\s{{0,40}}"
    rf"(?:[\"']{_NAME}[\"']|(?P<plain>[A-Za-z_][\w.\-]{{0,127}}+)[ \t]{{0,8}}(?=[,\r\n]))"
    rf"(?P<gap>(?:(?![\"']?{_LABEL}[\"']?\s{{0,4}}[:=])[^{{}}\[\]<>]){{0,200}}?)(?<![\w.\-])[\"']?{_VALUE_LABEL}[\"']?"
    rf"\s{{0,4}}[:=]\s{{0,40}}{_WRAP}(?:{_QUOTED}|{_BARE})",
    re.A,
)
# What both kinds of pairs have: looked for first, because it is fast.
_PAIR_HINT: Final = re.compile(rf"(?:{'|'.join(sorted(VALUE_KEYS))})[\"']?\s{{0,4}}[:=]", re.A)
_PAIR_BACKWARDS: Final = re.compile(
    rf"[\"']{_VALUE_LABEL}[\"']\s{{0,4}}:\s{{0,40}}(?:{_QUOTED}|{_BARE})\s{{0,40}},\s{{0,80}}"
    rf"(?P<label>[\"']){_LABEL}[\"']\s{{0,4}}:\s{{0,40}}[\"']{_NAME}[\"']",
    re.A,
)
_LIST: Final = re.compile(
    rf"[\[(]\s{{0,40}}[bu]?[\"']{_NAME}[\"']\s{{0,8}},\s{{0,40}}[bu]?(?:{_QUOTED})\s{{0,40}},?\s{{0,40}}[\])]", re.A
)
_CONTENT: Final = r"\s{0,80}+(?:<!\[CDATA\[)?(?P<content>[^<>]{1,4096}+)<?"
_ELEMENT: Final = re.compile(r"<(?:[\w.\-]{1,40}:)?" + _NAME + r"(?:\s[^<>]{0,400}+)?>" + _CONTENT, re.A)
_NAMED_ELEMENT: Final = re.compile(
    rf"<[\w.:\-]{{1,60}}\s[^<>]{{0,200}}?\b{_LABEL}\s?=\s?[\"']{_NAME}[\"'][^<>]{{0,200}}+>\s{{0,80}}(?:<{_VALUE_LABEL}>)?"
    + _CONTENT,
    re.A,
)
_TWO_ELEMENTS: Final = re.compile(
    rf"<{_LABEL}>\s{{0,40}}{_NAME}\s{{0,40}}</[^<>]{{1,40}}+>\s{{0,80}}+<(?:string|data|{_VALUE_LABEL})>" + _CONTENT,
    re.A,
)
_BLOCK: Final = re.compile(
    r"(?:^(?P<indent>[ \t]*+)(?:- {1,8})?[\"']?|(?<=\")(?:- {1,8})?)"
    + _NAME
    + r"[\"']?[ \t]{0,4}:[ \t]{0,4}[|>][+\-0-9]{0,3}[ \t]{0,8}\r?\n",
    re.A | re.M,
)
_BLOCK_HINT: Final = re.compile(r":[ \t]{0,4}[|>][+\-0-9]{0,3}[ \t]{0,8}\r?\n")
_NETRC: Final = re.compile(
    r"\b(?:machine\s{1,40}[^\s]{1,255}+|default)(?P<login>(?:\s{1,80}(?:login|account|user)\s{1,40}[^\s]{1,255}+){0,2})"
    r"\s{1,80}password\s{1,40}(?P<value>[^\s\"'\\]{1,512}+)(?P<after>\s{1,80}(?:login|account)\b)?",
    re.A,
)
_QUERY: Final = re.compile(r"[?&](?i:key|sig|signature|code)=(?P<value>[^\s&#\"'<>\\;]{8,2048}+)", re.A)


def _head(sign: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    blank = r" {0,40}+" if sign == "\t" else r"[ \t]{0,40}+"
    cell = blank + r"(?:[\"'*_`]{0,2}" + _NAME.replace("?P<name>", "?:") + r"[\"'*_`]{0,2}+)?" + blank
    last = rf"{re.escape(sign)}{cell}(?=\r?$)"
    head = rf"(?:^|(?<=\")){cell}(?:{re.escape(sign)}{cell}){{1,200}}+(?=\r?$)"
    return re.compile(last, re.A | re.M), re.compile(head, re.A | re.M)


# The last cell of the first line of a table, and that line, by the separator; in JSON it begins after a quote.
_HEADS: Final = {sign: _head(sign) for sign in ",;\t|"}
_CELLS: Final = {sign: re.compile(rf"\"(?:[^\"\n]|\"\")*+\"|[^{re.escape(sign)}\n\r\"]++") for sign in ",;\t|"}
_NAME_LIKE: Final = re.compile(r"[a-z]+(?:[_.\-][a-z]+)*[_\-]?[0-9]{0,2}|[A-Z]+(?:[_\-][A-Z]+)*")
_SETTING: Final = re.compile(r"[a-z_]{1,24}=.*", re.S)

_CLOSING: Final = re.compile(r"(?:[\"'][\"'\]}),\s]{0,60})?\Z")  # the end of the JSON around a text

# The text after a name in one of these places: a quote, a cell separator, an attribute, the end of its line.
_TAIL: Final = re.compile(
    r"[a-z0-9_.:\-]{0,128}+(?: (?:key|keys|string|id|token))?"
    r"(?:[\"'`*]|[ \t]{0,8}(?:[<>,;|:=\t]|\r?$)|[ \t]{1,8}[a-z.:\-]{1,40}=)",
    re.M,
)
_OPTION_HINT: Final = re.compile(r"-(?<![\w\-]-)-?[a-z_]", re.A)
_USER_HINT: Final = re.compile(r"-(?<![\w\-]-)(?:u|-user|-proxy-user)[\s\"'=a-z]", re.A)
_QUERY_HINT: Final = re.compile(r"=(?:(?<=[?&]key=)|(?<=[?&]sig=)|(?<=[?&]signature=)|(?<=[?&]code=))")


def _may_netrc(lower: str) -> bool:
    return "password" in lower and ("machine" in lower or "default" in lower)


def may_place(lower: str) -> bool:
    """Tell whether a lower-case text may hold a secret in one of these places."""
    if (":" in lower and _USER_HINT.search(lower)) or _QUERY_HINT.search(lower) or may_say(lower):
        return True
    hinted = [hint for hint in NAME_HINTS if hint in lower]
    if not hinted:
        return False
    if _may_netrc(lower) or _OPTION_HINT.search(lower):
        return True
    return next(behind_hints(lower, _TAIL, hinted), None) is not None


def _worth(content: str, word: str) -> bool:
    """Tell whether the content of a settings file is a secret, not prose or a number."""
    return not PLACEHOLDER.search(content) and is_value(content, word, "", quoted=True)


def in_pair(name: str, value: str) -> bool:
    """Tell whether two adjacent texts are a secret's name and a secret, rather than two names of a list."""
    word = secret_word(name)
    if word is None or _NAME_LIKE.fullmatch(value) or secret_word(value) is not None:
        return False
    return _worth(value, word)


def beside_option(option: str, value: str) -> int | None:
    """Return the start of the secret after an option of a command line, or None if there is none."""
    if option in ("-u", "-U", "--user", "--proxy-user"):
        name, sign, rest = value.partition(":")
        return len(name) + 1 if sign and _worth(rest, "password") else None
    word = secret_word(option.lstrip("-")) if option.startswith("-") else None
    return 0 if word is not None and not value.startswith("-") and _is_argument(value, word, quoted=True) else None


def _is_argument(value: str, word: str, *, quoted: bool) -> bool:
    return (
        not PLACEHOLDER.search(value)
        and is_value(value, word, "", quoted=quoted)
        and not (_SETTING.fullmatch(value) and not word.startswith("cookie"))
    )


def _given(match: re.Match[str]) -> tuple[str, str]:
    group = next(group for group in ("double", "single", "bare") if match[group] is not None)
    return group, match[group]


def placed(text: str, raw: Callable[[int, int], str]) -> Iterator[Span]:
    """Find the secrets of a text that are apart from their name; `raw` is that of `assigned`."""
    lower = text.lower()
    if not may_place(lower):
        return
    yield from _options(text)
    yield from commanded(text)
    yield from said(text)
    if _QUERY_HINT.search(lower):
        for match in _QUERY.finditer(text):
            if is_mixed(match["value"]):
                yield Span(*match.span("value"), match["value"])
    if _PAIR_HINT.search(lower):
        yield from _pairs(text, raw)
    if '"' in text or "'" in text:
        for match in _LIST.finditer(text):
            group, value = _given(match)
            if in_pair(match["name"], value):
                yield Span(*match.span(group), value)
    if "</" in text or "]]" in text:
        yield from _elements(text)
    if "\n" in text:
        yield from _blocks(text)
        yield from _columns(text)
    if _may_netrc(lower):
        for match in _NETRC.finditer(text):
            value = match["value"]
            if ((match["login"] or match["after"]) and not PLACEHOLDER.fullmatch(value)) or _worth(value, "password"):
                yield Span(*match.span("value"), value)


def _options(text: str) -> Iterator[Span]:
    for match in _OPTION.finditer(text):
        word = secret_word(match["name"])
        if word is not None:
            group, value = _given(match)
            if not value.startswith("-") and _is_argument(value, word, quoted=group != "bare"):
                yield Span(*match.span(group), value)
    for match in _USER.finditer(text):
        value = match["value"]
        # A command that is known to take a password here; others have a group after the colon.
        line = text[max(0, match.start() - 200) : match.start()].rpartition("\n")[2]
        is_curl = re.search(r"\b(?:curl|http|https|wget)\b", line) is not None and not value.isdigit()
        if _worth(value, "password") or (is_curl and not PLACEHOLDER.search(value) and value[0] not in "$<{%*"):
            yield Span(*match.span("value"), value)


def _pairs(text: str, raw: Callable[[int, int], str]) -> Iterator[Span]:
    for pattern in (_PAIR, _PAIR_BACKWARDS):
        for match in pattern.finditer(text):
            name = match["name"] if pattern is _PAIR_BACKWARDS else match["name"] or match["plain"]
            word = secret_word(name)
            if word is None:
                continue
            group, value = _given(match)
            if PLACEHOLDER.fullmatch(value):
                continue
            is_data = bool(match["label"])  # as in a mapping, where any value counts
            if group != "bare":
                if is_data or _worth(value, word):
                    yield Span(*match.span(group), value)
            elif is_data:
                number = re.fullmatch(r"-?[0-9]{1,300}(?:\.[0-9]+)?", value)
                if number and (word in ALWAYS or abs(float(value)) >= SMALLEST_NUMBER):
                    quote = raw(match.start("label"), match.end("label"))
                    yield Span(*match.span("bare"), value, quote)
            elif _is_argument(value, word, quoted=False):
                yield Span(*match.span("bare"), value)


def _elements(text: str) -> Iterator[Span]:
    for pattern in (_ELEMENT, _NAMED_ELEMENT, _TWO_ELEMENTS):
        for match in pattern.finditer(text):
            word = secret_word(match["name"].rpartition(":")[2])
            content = match["content"].removesuffix("]]")
            shown = content.strip()
            if word is not None and _worth(shown, word):
                start = match.start("content") + len(content) - len(content.lstrip())
                yield Span(start, start + len(shown), shown)


def _blocks(text: str) -> Iterator[Span]:
    if not _BLOCK_HINT.search(text):
        return
    place = 0
    while (match := _BLOCK.search(text, place)) is not None:
        place = match.end()
        word = secret_word(match["name"])
        if word is None:
            continue
        depth = len(match["indent"] or "")
        lines: list[tuple[int, int]] = []
        while place < len(text):
            end = text.find("\n", place)
            end = len(text) if end < 0 else end
            line = text[place:end]
            inner = line.lstrip(" \t")
            if inner.strip() and len(line) - len(inner) <= depth:
                break
            if inner.strip():
                lines.append((end - len(inner), place + len(line.rstrip())))
            place = end + 1
        if any(_worth(text[start:end], word) or _any_word(text[start:end]) for start, end in lines):
            start, end = lines[0][0], lines[-1][1]
            end -= len(_CLOSING.search(text, max(start, end - 64), end)[0])  # type: ignore[index]
            yield Span(start, end, text[start:end])


def _any_word(line: str) -> bool:
    return any(is_mixed(each) for each in line.split()) and not PLACEHOLDER.search(line)


def _columns(text: str) -> Iterator[Span]:
    for sign, (last, first) in _HEADS.items():
        place = 0
        while (cell := last.search(text, place)) is not None:
            start, place = max(place, text.rfind("\n", 0, cell.start()) + 1), cell.end()
            head = first.search(text, start, place)
            if head is None:
                continue
            names = {at: cell[0].strip("\"'*_` \t") for at, cell in _numbered(sign, text, *head.span()).items()}
            words = {at: word for at, name in names.items() if (word := secret_word(name)) is not None}
            width = head[0].count(sign) + 1
            if not words or len([name for name in names.values() if name]) < 2:
                continue
            place = text.find("\n", place) + 1
            while 0 < place < len(text):
                end = text.find("\n", place)
                end = len(text) if end < 0 else end
                cells = _numbered(sign, text, place, end)
                if not cells or text.count(sign, place, end) + 1 < width or max(cells) > width:
                    break
                for at, word in words.items():
                    if at in cells:
                        yield from _cell(cells[at], word)
                place = end + 1
            if place <= 0 or place >= len(text):
                break


def _numbered(sign: str, text: str, place: int, end: int) -> dict[int, re.Match[str]]:
    """Return the non-empty cells of a line by their number."""
    found: dict[int, re.Match[str]] = {}
    number, done = 0, place
    for cell in _CELLS[sign].finditer(text, place, end):
        number += text.count(sign, done, cell.start())
        found.setdefault(number, cell)
        done = cell.end()
    return found


def _cell(cell: re.Match[str], word: str) -> Iterator[Span]:
    content = cell[0].strip()
    start = cell.start() + len(cell[0]) - len(cell[0].lstrip())
    if len(content) > 1 and content[0] == content[-1] and content[0] in "\"'`":
        content, start = content[1:-1], start + 1
    if _worth(content, word):
        yield Span(start, start + len(content), content)
