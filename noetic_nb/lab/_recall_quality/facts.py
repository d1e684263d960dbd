"""Rules that extract facts: names, numbers, dates, ids, paths, commands, quotes, decisions, likes and states.

No model is used. docs/behaviour describes the rules. Facts outside the rules (a lower-case name, a number in words) are not
found.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import ceil
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from noetic_nb.lab._recall_quality import normal_forms as forms
from noetic_nb.lab._recall_quality.fact_names import NameReader
from noetic_nb.lab._recall_quality.person_states import states_of
from noetic_nb.lab._recall_quality.word_senses import FoldedTexts, core, denies, folded, sentence_stems, stems

FactKind: TypeAlias = Literal[
    "name", "number", "date", "time", "id", "path", "command", "quote", "decision", "preference"
]

# Limits, in characters, of the text that is read and of a single fact; anything longer is a document.
LONGEST_TEXT: Final = 200_000
LONGEST_FACT: Final = 300
# Suffix of the key of a state that may also be an action.
_UNSURE: Final = "?"
DEEPEST: Final = 32
# A sentence with this share of the words still states a decision, like or state, because a summary uses fewer words.
SENTENCE_SHARE: Final = 0.6

_MONTH: Final = "|".join(sorted([name for name in forms.MONTHS if "-" not in name], key=len, reverse=True))
_LATIN: Final = "A-Za-z\u00c0-\u024f\u0370-\u052f"
_CURRENCY: Final = r"[$€£¥₹₽₩]"
_STRUCTURED_TEXT: Final = (
    r"(?P<url>https?://[^\s<>\"'）」]+)"
    r"|(?P<mail>(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)"
    r"|(?P<iso>(?<![\d.])\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?!\d))"
    r"|(?P<dmy>(?<![\d./-])\d{1,2}(?P<mark>[./-])\d{1,2}(?P=mark)(?:\d{4}|\d{2})(?![\d/-]|\.\d))"
    rf"|(?P<day_month>(?<!\d)\d{{1,2}}(?:st|nd|rd|th|er|º|\.)?\s(?:de\s|of\s)?(?i:{_MONTH})\b\.?(?:,?\s(?:de\s)?\d{{4}}(?!\d))?)"
    rf"|(?P<month_day>\b(?i:{_MONTH})\b\.?\s\d{{1,2}}(?:st|nd|rd|th)?(?![\d:])(?:,?\s\d{{4}}(?!\d))?)"
    rf"|(?P<month_year>\b(?i:{_MONTH})\b\s\d{{4}}(?!\d))"
    r"|(?P<cjk>(?:\d{4}\s?[年년]\s?)?\d{1,2}\s?[月월]\s?\d{1,2}\s?[日号號일])"
    r"|(?P<time>(?<![\d:])\d{1,2}:\d{2}(?::\d{2})?(?!\d)(?:\s?[AaPp]\.?[Mm]\b\.?)?|(?<![\d.,])\d{1,2}\s?(?:[AaPp]\.?[Mm]\b\.?)"
    r"|(?<!\d)\d{1,2}(?:[.:]\d{2})?\sUhr\b)"
    r"|(?P<phone>\+\d[\d ()/.-]{6,}\d|\(\d{2,5}\)\s?\d[\d -]{4,}\d|(?<![\w-])\d{2,5}-\d{3,4}-\d{3,4}(?![\w-])"
    r"|(?<![\w-])\d{3,5}-\d{3,}(?![\w-]))"
    r"|(?P<iban>\b[A-Z]{2}\d{2}(?:\s[A-Z0-9]{4}){3,7}(?:\s[A-Z0-9]{1,4})?\b)"
    rf"|(?P<id>(?<![0-9{_LATIN}])\#?(?=[0-9{_LATIN}_./:-]{{0,100}}[0-9])(?=[0-9{_LATIN}_./:-]{{0,100}}[{_LATIN}_])"
    rf"[0-9{_LATIN}]+(?:[-_./:#][0-9{_LATIN}]+)*|\#\d+)"
    r"|(?P<version>(?<![\d.])\d+(?:\.\d+){2,}(?![\d,]))"
    rf"|(?P<number>(?:{_CURRENCY}\s?)?(?<![\d.,])(?:\d{{1,3}}(?:[ \u00a0\u202f\u2009'’]\d{{3}})+(?:[.,]\d+)?(?!\d)"
    r"|\d+(?:[.,٬٫]\d+)*)"
    rf"(?:\s?(?:{_CURRENCY}|%|EUR\b|USD\b|GBP\b|CHF\b|元|円|원))?)"
)
_STRUCTURED: Final = re.compile(_STRUCTURED_TEXT)
# Faster, for texts without a month's name: there are many names, and they are rare.
_WITHOUT_MONTHS: Final = re.compile(_STRUCTURED_TEXT.replace(_MONTH, "(?!)"))
_DATES: Final = frozenset({"iso", "dmy", "mark", "day_month", "month_day", "month_year", "cjk"})
_IDS: Final = frozenset({"url", "mail", "phone", "iban", "id", "version"})
# "5kg", "3rd": a number with its unit or ordinal ending.
_COUNTED: Final = re.compile(r"\d+(?:[.,]\d+)*[a-zµ°]{1,3}")
_DIGIT: Final = re.compile(r"\d")
_WORD: Final = re.compile(r"[^\W\d_]+")
_QUOTED: Final = re.compile(
    '"([^"\n]{2,200})"|“([^”\n]{2,200})”|„([^“”\n]{2,200})[“”]|«([^»\n]{2,200})»|‹([^›\n]{2,200})›'
    "|「([^」\n]{1,200})」|『([^』\n]{1,200})』|《([^》\n]{1,200})》|`([^`\n]{2,200})`"
    r"|(?<![\w'])'([^'\n]{2,100})'(?!\w)|(?<!\w)‘([^’\n]{2,100})’(?!\w)"
)
# A sentence with one of these words that is not a question is a decision.
_DECIDED: Final = re.compile(
    r"\b(?:decided|decision|we agreed|agreed (?:to|on|that)|have chosen|has chosen|chose|settled (?:on|for)|opted|"
    r"go(?:ing)? with|"
    r"approved|rejected|ruled out|the plan is|final answer|made up my mind|let's do|signed off|"
    r"entschieden|entschlossen|entscheidung|entscheide|beschlossen|beschluss|vereinbart|wir nehmen|geeinigt|genehmigt|abgelehnt|"
    r"décidé|décidons|décision|convenu|choisi|decidido|decidí|decisión|acordado|acordamos|elegido|"
    r"deciso|decisione|concordato|decidiu|decidimos|решил[аи]?|решено|договорил\w+|решение|αποφάσισ\w+)\b"
    r"|决定|決定|決め(?:た|ました)|同意了|商定|결정|قررنا|قررت|اتفقنا|החלטנו|החלטתי|फैसला|निर्णय|ตัดสินใจ",
    re.IGNORECASE,
)
# A full stop after a title, an initial or an abbreviation does not end a sentence.
_SENTENCE: Final = re.compile(
    r"(?:[^.!?。！？\n]|[.!?](?=\S)"
    r"|(?:(?<=\b[A-Z])|(?<=\b(?:Dr|Mr|Ms|St|Nr|No|Av))|(?<=\b(?:Mrs|Sra))|(?<=\bProf))\.(?=\s))+[.!?。！？]*"
)


class Fact(NamedTuple):
    text: str
    """As written."""
    kind: FactKind
    keys: tuple[str, ...]
    """Its normal forms; a date with an ambiguous order of day and month has two."""
    start: int
    """Its position in the text; for a data field, the position of the field."""
    sentence: str
    """The sentence that contains it."""


def facts_of(texts: Sequence[str]) -> list[list[Fact]]:
    """Return the facts of one conversation's texts, text by text, in order; a name in one text is a name in all."""
    reader = _Reader()
    read = [list(reader.parts(text[:LONGEST_TEXT])) for text in texts]
    found = reader.names.found
    return [[fact for part, start in parts for fact in _in_order(part, start, found(part.runs))] for parts in read]


_Value: TypeAlias = tuple[FactKind, str, tuple[str, ...]]
_Found: TypeAlias = tuple[int, FactKind, str, tuple[str, ...]]


class _Part(NamedTuple):
    """A text, or one field of data."""

    text: str
    found: list[_Found]
    runs: Sequence[Any]


class _Reader:
    """Reads texts; repeated data fields are read once."""

    def __init__(self) -> None:
        self.names = NameReader()
        self._known: dict[str, _Part] = {}

    def parts(self, text: str) -> Iterator[tuple[_Part, int]]:
        fields = _fields(text)
        if fields is None:
            yield self._part(text, is_value=False), 0
            return
        at = 0
        for field in fields:
            place = text.find(field, at)
            at = place if place >= 0 else at
            part = self._known.get(field)
            if part is None:
                # A short field is a value, not a sentence: an initial capital letter is meaningful.
                is_value = len(field) < 60 and len(field.split()) < 5
                part = self._known[field] = self._part(field, is_value=is_value)
            yield part, at

    def _part(self, text: str, *, is_value: bool) -> _Part:
        found, taken = _found(text, is_value=is_value)
        runs = [] if text.islower() or not text else self.names.read(text, is_value=is_value, taken=taken)
        return _Part(text, found, runs)


def _fields(text: str) -> list[str] | None:
    """Return the texts and numbers in data, in order; None for text that is not data."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        data = json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    found: list[str] = []
    levels: list[tuple[Any, int]] = [(data, 0)]
    while levels:
        value, depth = levels.pop()
        if isinstance(value, str):
            found.append(value)
        elif depth < DEEPEST:
            inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
            levels += [(one, depth + 1) for one in reversed(inside)]
    return found


def _found(text: str, *, is_value: bool) -> tuple[list[_Found], list[tuple[int, int]]]:
    """Return the facts of a text other than names, and the ranges that they occupy."""
    work = forms.work_facts(text, is_value=is_value)
    found: list[_Found] = [(one.start, one.kind, one.text, (folded(one.text),)) for one in work]
    taken = [(one.start, one.stop) for one in work]
    begins, ends = [one.start for one in work], [one.stop for one in work]

    def is_inside(place: int) -> bool:
        at = bisect_right(begins, place) - 1
        return at >= 0 and place < ends[at]

    for match, one in _structured_in(text):
        if one and not is_inside(match.start()):
            found += [(match.start(), *fact) for fact in one]
            taken.append(match.span())
    taken.sort()  # found kind by kind
    found += [
        (match.start(), "date", match[0], (f"day {forms.WEEKDAYS[word]}",))
        for match in _WORD.finditer(text)
        if (word := match[0].lower()) in forms.WEEKDAYS
    ]
    for match in _QUOTED.finditer(text):
        said, start = match[match.lastindex or 0].strip(), match.start(match.lastindex or 0)
        if folded(said) and not is_inside(start):
            found.append((start, "quote", said, (folded(said),)))
    decided = _DECIDED.search(text) is not None
    others = []
    for match in _SENTENCE.finditer(text):
        said = match[0].strip()
        if decided and _DECIDED.search(said) and not said.endswith(("?", "？")):
            found.append((match.start(), "decision", said[:LONGEST_FACT], (folded(said),)))
        else:
            others.append(match)
    for start, said, is_sure in () if is_value else states_of(others):
        key = folded(said)
        found.append((start, "preference", said[:LONGEST_FACT], (key,) if is_sure else (key, _UNSURE)))
    return found, taken


def _structured_in(text: str) -> Iterator[tuple[re.Match[str], list[_Value]]]:
    """Yield the numbers, dates, times and ids of a text."""
    if _DIGIT.search(text) or "@" in text or "://" in text:
        has_month = not forms.MONTHS.keys().isdisjoint(_WORD.findall(text.lower()))
        for match in (_STRUCTURED if has_month else _WITHOUT_MONTHS).finditer(text):
            yield match, _structured(str(match.lastgroup), match[0])


def _structured(group: str, text: str) -> list[_Value]:
    if group in _DATES:
        keys = forms.date_keys(text)
        text = text.rstrip(".")
        return [("date", text, keys)] if keys else [("number", text, forms.number_keys(text))]
    if group == "time":
        keys = forms.time_keys(text)
        text = text if re.search(r"\.[Mm]\.$", text) else text.rstrip(" .")
        return [("time", text, keys)] if keys else [("number", text, forms.number_keys(text))]
    if group in _IDS:
        text = text.rstrip(".,;:!?)")
        if group == "id" and _COUNTED.fullmatch(text):
            return [("number", text, forms.number_keys(text))]
        return [("id", text, (folded(text).replace(" ", ""),))]
    keys = forms.number_keys(text)
    if len(keys) > 1:  # a list without spaces
        return [("number", key, (key,)) for key in keys]
    return [("number", text.strip(), keys)] if keys else []


def _in_order(part: _Part, offset: int, names: list[tuple[int, str]]) -> list[Fact]:
    both: list[_Found] = [*part.found, *[(start, "name", name, (folded(name),)) for start, name in names]]
    if not both:
        return []
    both.sort(key=lambda one: one[0])
    text = part.text
    told = [(start, said) for start, kind, said, _ in both if kind not in ("decision", "preference")]
    ends = [match.end() for match in _SENTENCE.finditer(text)]
    facts, at, before = [], 0, 0
    for start, kind, said, keys in both:
        while at < len(ends) and ends[at] <= start:
            before, at = ends[at], at + 1
        end = ends[at] if at < len(ends) else len(text)
        if keys[-1] == _UNSURE:
            inside = told[bisect_left(told, (start,)) : bisect_left(told, (start + len(said),))]
            if inside and _says_no_more(said, [fact for _, fact in inside]):
                continue
            keys = keys[:1]
        if keys[0]:
            facts.append(Fact(said, kind, keys, offset + start, text[before:end].strip()[:LONGEST_FACT]))
    return facts


def _says_no_more(said: str, facts: Sequence[str]) -> bool:
    """Tell whether a state only adds a verb to other facts, as in "my sister lives in Graz": those facts suffice."""
    # The verb, and the subject unless it is a pronoun.
    small = 2 if said.lower().startswith(("my ", "our ", "his ", "her ", "their ")) else 1
    for fact in facts:
        said = said.replace(fact, " ")
    return len(core(said)) <= small


class KnownFacts:
    """An index of the facts in some texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = FoldedTexts(texts)

    @cached_property
    def _keys(self) -> set[tuple[str, str]]:
        """The normal forms of numbers, dates, times and ids, with their kinds."""
        known: set[tuple[str, str]] = set()
        parts = dict.fromkeys([part for text in self._texts.texts for part in _fields(text) or (text,)])
        for match, found in [one for part in parts for one in _structured_in(part)]:
            for kind, _, keys in found:
                known.update([(kind, key) for key in keys])
                if kind == "date":  # a date with a year is also found without it
                    known.update([(kind, f"-{key[4:]}") for key in keys if len(key) == 10 and key[0] != "-"])
            # The numbers within a date, a time or an id count as stated, whatever they mean.
            known.update(
                [("number", digits.lstrip("0") or "0") for digits in re.findall(r"\d+", forms.ascii_digits(match[0]))]
            )
        return known

    def __contains__(self, fact: object) -> bool:
        """Tell whether a fact is stated here, in any form."""
        if not isinstance(fact, Fact):
            return False
        is_value = fact.kind in ("number", "date", "time") and not fact.keys[0].startswith("day ")
        if not is_value and self._texts.has(fact.text):
            return True
        match fact.kind:
            case "number" | "date" | "time" | "id":
                has_key = any((fact.kind, key) in self._keys for key in fact.keys)
                return has_key or (fact.kind == "id" and self._texts.has_squeezed(fact.text))
            case "decision":
                return self._tells(stems([word for word in folded(fact.text).split() if len(word) > 2]))
            case "preference":
                return self._tells(core(fact.text), denied=denies(folded(fact.text)))
            case "name":  # without its first word, which may just have begun a sentence
                first, _, rest = fact.text.partition(" ")
                return " " in rest.strip() and not first.endswith(".") and self._texts.has(rest)
        return False

    def _tells(self, words: frozenset[str], *, denied: bool = False) -> bool:
        """Tell whether one sentence has enough of some words, and also a negation if `denied`."""
        least = ceil(SENTENCE_SHARE * len(words) - 1e-9)
        if not words:
            return False
        # A sentence with enough of them contains one of the rarest.
        rare = sorted([self._having.get(word, ()) for word in words], key=len)[: len(words) - least + 1]
        return any(
            len(words & self._sentences[at][0]) >= least and (self._sentences[at][1] or not denied)
            for places in rare
            for at in places
        )

    @cached_property
    def _sentences(self) -> list[tuple[frozenset[str], bool]]:
        return [(sentence_stems(words), denies(words)) for words in self._texts.sentences]

    @cached_property
    def _having(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for at, (words, _) in enumerate(self._sentences):
            for word in words:
                found.setdefault(word, []).append(at)
        return found
