"""Finds values in texts, including JSON and YAML: a text is split once into words, addresses, numbers and so on.

Signs are part of a value: ``notes/..`` is not ``notes``, and the words of a sentence do not form an address. Only notation
may differ: upper and lower case, grouping of account numbers, units of numbers, forms of dates and web addresses.
"""

from __future__ import annotations

import datetime
import importlib
import json
import re
import unicodedata
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

from noetic_nb.items._value_forms import GLUE, MIN_JOINED, READ, is_amount, marks_of, number_mark, without_dates

MAX_LEAVES: Final = 20_000
# Parsing this much YAML is fast enough; longer results are treated as having no fields.
MAX_STRUCTURED: Final = 200_000


class Leaf(NamedTuple):
    """A value in a JSON or YAML text."""

    key: str | None  # the key beside the value
    text: str
    item: int  # the number of the enclosing mapping


def _leaves_of_json(data: Any) -> list[Leaf]:
    found: list[Leaf] = []
    waiting: list[tuple[str | None, Any, int]] = [(None, data, 0)]
    items = 0
    while waiting and len(found) < MAX_LEAVES:
        key, value, item = waiting.pop()
        if isinstance(value, dict):
            items += 1
            waiting += reversed([(str(name), inner, items) for name, inner in value.items()])
        elif isinstance(value, list):
            waiting += reversed([(key, inner, item) for inner in value])
        elif value is not None:
            found.append(Leaf(key, value_text(value), item))
    return found


def _leaves_of_yaml(text: str) -> list[Leaf]:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:  # optional package: without it only JSON has fields
        return []
    found: list[Leaf] = []
    # For every open collection: its key, in a mapping the key that waits for its value, and the number of the mapping.
    open_: list[list[Any]] = []
    items = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.AliasEvent) or len(found) > MAX_LEAVES:
                return []  # aliases could expand to any size
            if isinstance(event, yaml.ScalarEvent):
                if not open_:
                    return []  # prose is valid YAML, too
                top = open_[-1]
                if top[0] == "mapping" and top[2] is None:
                    top[2] = event.value
                    continue
                found.append(Leaf(top[2] if top[0] == "mapping" else top[1], event.value, top[3]))
                if top[0] == "mapping":
                    top[2] = None
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                key = None
                if open_:
                    key = open_[-1][2] if open_[-1][0] == "mapping" else open_[-1][1]
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                items += is_mapping
                open_.append(
                    ["mapping", key, None, items] if is_mapping else ["list", key, None, open_[-1][3] if open_ else 0]
                )
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                open_.pop()
                if open_ and open_[-1][0] == "mapping":
                    open_[-1][2] = None
    except yaml.YAMLError:
        return []
    return found


def leaves(text: str) -> list[Leaf]:
    """Return the values of a JSON or YAML text, each with its key and item; empty for other text."""
    if len(text) > MAX_STRUCTURED:
        return []
    start = text.lstrip()[:1]
    if start and start in '[{"':
        try:
            data = json.loads(text)
            # Some tools return JSON inside JSON text.
            if isinstance(data, str):
                data = json.loads(data)
        except (ValueError, RecursionError):
            pass
        else:
            return _leaves_of_json(data) if isinstance(data, dict | list) else []
    return _leaves_of_yaml(text) if ":" in text else []


# About ten bytes per character: at most 80 MB are cached, usually much less.
MAX_KEPT_LENGTH: Final = 4_000
MAX_READ: Final = 500_000  # a longer text is only read to here; the rest is never evidence
# Scripts without spaces have one token per character, so that a value is found next to others.
_UNSPACED: Final = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
_SIGNS: Final = r"\"`()\[\]{}<>|;,:=—–、。，：；！？（）「」『』《》،؛؟«»„“”"
_PIECE: Final = re.compile(
    r"(?P<url>(?:[a-z][a-z0-9+.-]{1,20}://|www\.|(?:[\w-]+\.)+[a-z]{2,}[/?])[^\s\"<>`{}|^\[\]]*)"
    rf"|(?P<wide>[{_UNSPACED}])|(?P<sign>[{_SIGNS}])"
    rf"|(?P<word>(?:[a-z]:(?=[\\/]))?(?:[^\s{_SIGNS}{_UNSPACED}]|(?<=\d)[,:](?=\d))+)"
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|\n[ \t]*(?:\\ )?|[nrtbf0 ]|([\"'\\/]))")
_EMPHASIS: Final = re.compile(r"(?<![^\s(\"])(\*{1,3}|_{1,3})(?=[^\s*_])(.+?)(?<=[^\s*_])\1(?![\w*])")
_NO_LETTERS: Final = re.compile(r"[\W_]+")
_HYPHENS: Final = str.maketrans({"\u2010": "-", "\u2011": "-", "–": "-"})
_FOLDED: Final = str.maketrans(
    {"’": "'", "‘": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "−": "-"}
)
# The first characters of normalised forms.
_MARK_SIGNS: Final = "#@=~/"
_TRAILING: Final = ".!?…'"
_URL: Final = re.compile(r"(?:(https?)://)?(www\.)?((?:[\w-]+\.)+[a-z]{2,}|localhost)(:\d+)?([/?#].*)?")
_ADDRESS: Final = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")
# File endings that are also top-level domains: `readme.md` is not a web address.
_FILE_ENDINGS: Final = frozenset(
    ["md", "sh", "py", "rs", "pl", "so", "zip", "mov", "app", "ps", "cc", "js", "ts", "go"]
)
_VISIBLE: Final = frozenset("\t\n")
# Letters and marks that are invisible.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_JOINERS: Final = "\u200c\u200d"


def hidden_character(text: str) -> str | None:
    """Return the first invisible character of a text, except newlines, tabs, and joiners in valid places."""
    if text.isprintable() and text.isascii():
        return None
    for place, sign in enumerate(text):
        if sign.isascii() and (sign.isprintable() or sign in _VISIBLE or text.startswith("\r\n", place)):
            continue
        kind = unicodedata.category(sign)
        if sign in _JOINERS or "\ufe00" <= sign <= "\ufe0f":
            # Emoji and Persian need joiners between two characters that they join or shape.
            before, after = text[place - 1 : place], text[place + 1 : place + 2]
            if sign == "\ufe0f" and before and (not before.isalpha() or not before.isascii()) and not before.isspace():
                continue
            if sign in _JOINERS and _is_joined(before) and _is_joined(after):
                continue
            return sign
        if kind in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") or sign in _BLANK or "\U000e0000" <= sign <= "\U000e0fff":
            return sign
    return None


def _is_joined(sign: str) -> bool:
    return bool(sign) and not sign.isascii() and (sign == "\ufe0f" or unicodedata.category(sign)[0] in "LMS")


def _unescaped(match: re.Match[str]) -> str:
    code = match.group(1) or match.group(2)
    return chr(int(code, 16)) if code else match.group(3) or " "


def _same_case(text: str) -> str:
    text = text.translate(_FOLDED)
    return (
        text.lower() if text.isascii() else unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    )


def _forms(text: str) -> list[str]:
    """Return the forms of a text in which a value may appear: as is, unescaped, in plain letters, without markup."""
    forms = [text]
    if "\\" in text:
        forms.append(_ESCAPE.sub(_unescaped, text))
    if not text.isascii():
        forms += [unicodedata.normalize("NFKC", form).translate(_HYPHENS) for form in tuple(forms)]
    forms = list(dict.fromkeys(map(_same_case, forms)))
    # Without emphasis, and with every apostrophe as a quote: Ann's, l'Oréal, 'ann@x.org'.
    plain = _EMPHASIS.sub(r"\2", forms[-1]) if "*" in text or "_" in text else forms[-1]
    plain = plain.replace("'", " ' ")
    return forms if plain == forms[-1] else [*forms, plain]


def _tokens(text: str) -> list[str]:
    """Split a lower-case text into values and signs."""
    found: list[str] = []
    for match in _PIECE.finditer(text):
        piece = match.group()
        kind = match.lastgroup
        if kind == "word" and piece.isalnum():  # true for most words
            found.append(piece)
        elif kind == "word" or kind == "url":
            _split(piece, kind == "url", found)
        elif kind == "wide":
            found.append(piece)
        else:
            start, end = match.span()
            glued = start and end < len(text) and not text[start - 1].isspace() and not text[end].isspace()
            found.append(GLUE + piece if glued else piece)
    return found


def _split(piece: str, is_url: bool, found: list[str]) -> None:
    """Strip the punctuation of the sentence from a word."""
    core = piece.lstrip("'¿¡") if piece[0] in "'¿¡" else piece
    core = core.rstrip(_TRAILING)
    if is_url:
        core = core.rstrip(_TRAILING + ",;:")
        if core.endswith(")") and "(" not in core:
            core = core.rstrip(").,;:!?'")
    if core[-1:] in ("/", "\\"):  # `notes/..` is not `notes`
        core = piece.lstrip("'¿¡")
        if core.endswith(("/.", "\\.")):
            core = core[:-1]
    if not core or not any(map(str.isalnum, core)):
        found.append(piece)
        return
    start = piece.index(core)
    if start:
        found.append(piece[:start])
    tail = piece[start + len(core) :]
    if core[0] in "@#" and core[1:2].isalnum():
        found.append(core[0] + GLUE)
        core = core[1:]
    if "," in core and not is_url and not is_amount(core):
        for place, part in enumerate(core.split(",")):
            found += [GLUE + ","] * (place > 0)
            _split(part, False, found)
    elif "/" in core or "\\" in core:
        while core.startswith("./") and core[2:3] not in ("/", ""):
            core = core[2:]
        found.append(_word(core.rstrip("/\\") or core))
    else:
        found.append(_word(core))
    if tail:
        found.append(GLUE + tail)


def _word(text: str) -> str:
    """Return a word with its leading sign: `/example.com` is a path, so `example.com` is no evidence for it."""
    return f"'{text}" if text[0] in _MARK_SIGNS else text


def _url_marks(token: str) -> tuple[list[str], str] | None:
    """Return the host of a web address, and its normalised form; None for other text."""
    match = _URL.fullmatch(token)
    if match is None:
        return None
    scheme, www, host, port, path = match.groups()
    if not (scheme or www or path) and host.rpartition(".")[2] in _FILE_ENDINGS:
        return None
    if port == {"http": ":80", "https": ":443"}.get(scheme or ""):
        port = None
    page = f"{host}{port or ''}{(path or '').rstrip('/')}"
    # An https address is evidence for the same http page, but not vice versa.
    schemes = ["https:", ""] if scheme == "https" else ["http:", "https:", ""]
    return [f"/{each}{page}" for each in schemes], f"/{scheme + ':' if scheme else ''}{page}"


class SearchedText:
    """A text prepared for searching: its tokens in order, and the normalised forms of its values."""

    __slots__ = ("joined", "keys", "tokens", "whole")

    def __init__(self, text: str) -> None:
        lists: list[list[str]] = []
        keys: set[str] = set()
        whole: set[str] = set()
        for form in _forms(text[:MAX_READ]):
            tokens, found, alone = _values(form)
            lists.append(tokens)
            keys.update(tokens, found)
            whole |= {mark for option in alone for mark in option if len(option) == 1}
        self.tokens = lists[0]
        # Values never extend from one form into the next.
        self.joined = "\0".join([f" {' '.join(tokens)} " for tokens in lists])
        self.keys = frozenset(keys)
        """Its tokens and the normalised forms of its values."""
        self.whole = frozenset(whole)
        """The normalised forms of the whole text."""


def _values(form: str) -> tuple[list[str], set[str], list[frozenset[str]]]:
    """Return the values of a text in order, their normalised forms, and those of the whole text."""
    text, dates = without_dates(form)
    split = _tokens(text)
    if dates:
        split = [dates[int(token[1:])][0] if token[0] == READ else token for token in split]
    marks, tokens = marks_of(split)
    found = {mark for readings in dates for mark in readings} | marks.keys()
    for token in tokens:
        if ("." in token or "://" in token) and "@" not in token and (known := _url_marks(token)) is not None:
            found.update(known[0])
    end = len(split) - 1
    while end > 0 and split[end][0] == GLUE:  # the end of a sentence
        end -= 1
    alone = [frozenset({mark}) for mark, span in marks.items() if span == (0, end)]
    if dates and len(dates) >= len(split):
        first, *others = dates
        alone += [frozenset({mark, *[other for each in others for other in each[:1]]}) for mark in first]
    return tokens, found, alone


def searched(text: str) -> SearchedText:
    """Return a text prepared for searching; short texts are cached, because runs of one environment repeat them."""
    return _searched(text) if len(text) <= MAX_KEPT_LENGTH else SearchedText(text)


_searched: Final = lru_cache(maxsize=2_048)(SearchedText)


class Needle:
    """A searched value: matches if a text has all keys of any of its `options`."""

    __slots__ = ("options", "phrase", "plain", "tokens")

    def __init__(self, value: Any) -> None:
        text = value_text(value)
        self.tokens: list[str] = []
        self.phrase = self.plain = ""
        self.options: tuple[frozenset[str], ...] = ()
        # A value with invisible characters, or of signs alone, never has an author.
        if hidden_character(text) is None:
            is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
            form = self.plain = _same_case(text).strip()
            found = self._number(str(value) if is_number else "") if is_number else self._text(form)
            self.options = tuple(found)

    def _number(self, text: str) -> list[frozenset[str]]:
        mark = number_mark(text)
        digits = value_text(Decimal(text)) if mark is None else mark[1:]
        # A card or account number that the schema declares as a number.
        grouped = [frozenset({f"={digits}"}), frozenset({digits})] if digits.isdecimal() and len(digits) >= 6 else []
        return [*([frozenset({mark})] if mark else []), *grouped]

    def _text(self, form: str) -> list[frozenset[str]]:
        if form.startswith("mailto:") and _ADDRESS.fullmatch(form[7:]) and "?" not in form:
            form = form[7:]
        tokens, _, alone = _values(form)
        if len(tokens) > 2 and tokens[-1][0] == GLUE and tokens[-1][1:].strip(".!?…") == "":
            tokens.pop()  # the end of a sentence
        if len(tokens) == 2 and tokens[0] == f"#{GLUE}":
            del tokens[0]
        # Signs alone occur in every text.
        if all(token.isascii() and not any(map(str.isalnum, token)) for token in tokens):
            return []
        self.tokens = tokens
        found = [frozenset(tokens)]
        if len(tokens) > 1:
            self.phrase = f" {' '.join(tokens)} "
        for option in alone:
            mark = next(iter(option))
            # Grouped digits match the same groups; with a country code they match as one number.
            if mark[0] != "=" or not mark[1:].isdecimal():
                found.append(option)
            if mark[0] == "=":
                found.append(frozenset({mark[1:]}))
        if len(tokens) == 1:
            if (url := _url_marks(tokens[0])) is not None and "@" not in tokens[0]:
                found.append(frozenset({url[1]}))
            if tokens[0].lstrip("+").isalnum() and any(map(str.isdecimal, tokens[0])):
                found.append(frozenset({f"={tokens[0]}"}))
        addresses = [token for token in tokens if token.strip(GLUE) not in (",", ";")]
        if len(addresses) > 1 and all(map(_ADDRESS.fullmatch, addresses)):
            found.append(frozenset(addresses))
        return found

    def is_in(self, text: SearchedText) -> bool:
        for place, option in enumerate(self.options):
            if option <= text.keys and (place or not self.phrase or self.phrase in text.joined):
                return True
        return False

    def equals(self, text: SearchedText) -> bool:
        if self.tokens and text.tokens == self.tokens:
            return True
        return any(option <= text.whole or (len(text.tokens) == 1 and option <= text.keys) for option in self.options)

    def is_echoed(self, text: SearchedText) -> bool:
        """Tell whether a text may contain the value in any notation, comparing only letters and digits."""
        plain = _NO_LETTERS.sub("", self.plain)
        return self.is_in(text) or (len(plain) >= MIN_JOINED and plain in _NO_LETTERS.sub("", text.joined))


def value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime.date):  # includes datetimes, a subclass
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(getattr(value, "value", value))


# Every rule of a call searches for the same few values.
@lru_cache(maxsize=1_024)
def _made(kind: str, value: Any) -> Needle:
    return Needle(value)


def needle_of(value: Any) -> Needle:
    """Return a value prepared for searching."""
    return _made(type(value).__name__, value)  # keyed by type as well: True is not 1 when texts are compared
