"""Names in texts, recognised by capital letters, or by their neighbours in scripts without capitals.

The first word of a sentence is always capitalised. It is a name if it is one elsewhere, or if a person's verb follows;
so all texts are read before any such word is decided on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from noetic_nb.lab._recall_quality.normal_forms import MONTHS, WEEKDAYS
from noetic_nb.lab._recall_quality.word_lists import WORDS

_TOKEN: Final = re.compile(r"(?<!\w)[^\W\d_]+(?:['’\-.](?=[^\W\d_])[^\W\d_]+)*(?!\w)")
_POSSESSIVE: Final = re.compile(r"['’]s?$")
_NOUN_END: Final = re.compile(r"(?:ing|tion|sion|ment|ness|ity|ship|ance|ence|ism|ly|ung|heit|keit|schaft|tät)$")
_GERMAN_ARTICLES: Final = re.compile(
    r"(?:der|die|das|den|dem|des|(?:k|m|d|s)?ein(?:e[nmrs]?)?|ihre?[nmrs]?|unser[enmrs]*|eure?[nmrs]?|dies\w*|jed\w*|welch\w*|"
    r"zum|zur|im|am|vom|beim|ins|ans|viele?n?|alle[nmrs]?|manche\w*|wenige?|mehr|kein\w*|ohne|per|pro|vor|seit|zu|als|"
    r"\w{3,}(?:e[nmrs]?|ig|lich|isch))$"
)
# Names in scripts without capital letters are recognised by adjacent words.
_HAN_SURNAME: Final = (
    "[王李张張刘劉陈陳杨楊赵趙黄黃周吴吳徐孙孫胡朱高林何郭马馬罗羅梁宋郑鄭谢謝韩韓唐冯馮于董萧蕭程曹袁邓鄧许許傅沈曾彭吕呂蔡苏蘇卢盧丁叶葉余潘杜戴"
    "夏钟鐘田姜]"
)
_INTRODUCED: Final = re.compile(
    "(?:我叫|名叫|叫做|姓名是|名字是|名字叫)(?P<han>[\u4e00-\u9fff·]{2,5}?)(?=[，,。.！!、\\s住在今是]|$)"
    f"|(?P<sir>{_HAN_SURNAME}[\u4e00-\u9fff]{{0,2}}?)(?=先生|女士|小姐|老师|老師|经理|经理|医生|醫生)"
    "|(?P<san>[\u4e00-\u9fff]{1,4}|[\u30a0-\u30ff]{2,12})(?=さん|様|さま|氏|くん|ちゃん)"
    "|(?:私は|名前は|わたしは)(?P<desu>[\u4e00-\u9fff\u3040-\u30ff・]{2,12}?)(?=さん|です|と申し)"
    "|(?P<ssi>[\uac00-\ud7a3]{2,4}) ?(?=씨|님)|제 이름은 (?P<ireum>[\uac00-\ud7a3]{2,4}?)(?=입니다|이에요|예요)"
    "|(?:اسمي|السيدة|السيد|الدكتورة|الدكتور)\\s+(?P<arabic>\\w+(?:\\s(?:بن\\s|بنت\\s|أبو\\s)?\\w+)?)"
    "|(?:שמי|קוראים לי|השם שלי הוא)\\s+(?P<hebrew>\\w+(?:\\s\\w+)?)"
    "|(?:मेरा नाम|श्रीमती|श्री)\\s+(?P<hindi>[\u0900-\u097f]+(?:\\s[\u0900-\u097f]+)?)(?=\\s+(?:है|ने|को|से|का|की)|[।,.]|$)"
    "|(?:ชื่อ|คุณ)(?P<thai>[\u0e00-\u0e7f]{2,12})"
)
_NO_NAMES: Final = WORDS["not_names"].union(MONTHS, WEEKDAYS)
_ENDS: Final = frozenset('.!?;\n•…。！？"“„«»‹<*#>|')
# More capitalised words in a row are a heading or shouting.
MOST_WORDS: Final = 6


class _Run(NamedTuple):
    """Capitalised words in a row."""

    start: int
    words: tuple[str, ...]
    is_first: bool
    """At the beginning of a sentence."""
    after: str
    """The next word, in lower case."""
    text: str


class NameReader:
    """Reads texts for names; a name learned from one text is found in all."""

    def __init__(self) -> None:
        self._solid: set[str] = set()
        self._small: set[str] = set()

    def read(self, text: str, *, is_value: bool = False, taken: Sequence[tuple[int, int]] = ()) -> list[_Run]:
        """Return the candidates for names that are not `taken`; `is_value` marks a data field, which is not a sentence."""
        found: list[_Run] = []
        whole = text
        if taken:  # an id or a date, replaced by digits
            bounds = [(0, 0), *taken, (len(text), len(text))]
            text = "".join(["0" * (end - start) + text[end:then] for (start, end), (then, _) in pairwise(bounds)])
        tokens = [(one.start(), one.end(), one[0]) for one in _TOKEN.finditer(text)]
        is_german: bool | None = None
        small: list[str] = []
        at = 0
        while at < len(tokens):
            word = tokens[at][2]
            if not word[0].isupper():
                small.append(word)
                at += 1
                continue
            last = self._run_end(text, tokens, at)
            run = self._run(text, tokens, at, last, is_value)
            at = last + 1
            if run is None:
                continue
            if len(run.words) == 1 and not run.is_first and not is_value:
                if is_german is None:
                    known = sum([word in WORDS["german"] for _, _, word in tokens])
                    is_german = known >= 2 or (known == 1 and len(tokens) < 8)
                if is_german and not run.words[0].isupper() and self._is_noun(text, run):
                    continue
            if not run.is_first:
                self._solid.add(" ".join(run.words))
                self._solid.update(run.words)
            found.append(run)
        self._small.update(small)
        if not whole.isascii():
            found += [
                _Run(match.start(kind), (match[kind],), False, "", match[kind])
                for match in _INTRODUCED.finditer(whole)
                if (kind := match.lastgroup) is not None
            ]
        return found

    @staticmethod
    def _run_end(text: str, tokens: list[tuple[int, int, str]], at: int) -> int:
        """Return the last token of a run of capitalised words, including particles inside it."""
        last = at
        while last + 1 < len(tokens):
            between = text[tokens[last][1] : tokens[last + 1][0]]
            word, before = tokens[last + 1][2], tokens[last][2]
            is_joined = between == " " or (
                between == ". " and (before.casefold() in WORDS["titles"] or (len(before) == 1 and before != "I"))
            )
            if not is_joined or before.endswith(("'s", "’s")):
                break
            if word[0].isupper():
                last += 1
                continue
            ahead = last + 2
            while (
                ahead < len(tokens)
                and tokens[ahead][2] in WORDS["name_particles"]
                and text[tokens[ahead - 1][1] : tokens[ahead][0]] == " "
            ):
                ahead += 1
            is_inside = word in WORDS["name_particles"] and ahead < len(tokens) and tokens[ahead][2][0].isupper()
            if not is_inside or text[tokens[ahead - 1][1] : tokens[ahead][0]] != " ":
                break
            last = ahead
        return last

    @staticmethod
    def _run(text: str, tokens: list[tuple[int, int, str]], at: int, last: int, is_value: bool) -> _Run | None:
        is_first = not is_value and _begins(text, tokens[at][0])
        while at <= last:
            plain = tokens[at][2].casefold().replace("’", "'")
            if plain not in _NO_NAMES:
                break
            if plain in ("may", "august", "mars", "april", "june") and at < last:
                break
            at, is_first = at + 1, False
        while last >= at and tokens[last][2].casefold().replace("’", "'") in _NO_NAMES:
            last -= 1
        if at > last or last - at >= MOST_WORDS:
            return None
        words = [word for _, _, word in tokens[at : last + 1]]
        if len(words) > 2 and all(len(word) > 1 and word.isupper() for word in words):
            return None  # a heading
        words[-1] = _POSSESSIVE.sub("", words[-1])
        start = tokens[at][0]
        stop = tokens[last][0] + len(words[-1])
        if len(words) == 1 and (len(words[0]) < 2 or words[0].casefold() in WORDS["titles"]):
            return None
        after = tokens[last + 1][2].casefold() if last + 1 < len(tokens) else ""
        if words[-1] != tokens[last][2]:
            after = "is"  # a possessive: something belongs to a person
        return _Run(start, tuple(words), is_first, after, text[start:stop])

    @staticmethod
    def _is_noun(text: str, run: _Run) -> bool:
        start, stop = run.start, run.start + len(run.text)
        if text[stop : stop + 1] == " " and text[stop + 1 : stop + 2].isdigit():
            return False  # a street, a room
        before = re.search(r"([^\W\d_]+|\d+)\s$", text[max(0, start - 24) : start])
        if before is None:
            return False
        word = before[1].casefold()
        return word.isdigit() or (bool(_GERMAN_ARTICLES.fullmatch(word)) and word not in ("heiße", "heisse"))

    def found(self, runs: Sequence[_Run]) -> list[tuple[int, str]]:
        """Return the positions of names and their spelling there; call it after all texts have been read."""
        names: list[tuple[int, str]] = []
        for run in runs:
            if not run.is_first:
                names.append((run.start, run.text))
                continue
            head, *rest = run.words
            plain = head.casefold()
            is_noun = {plain, plain.removesuffix("s")} & WORDS["common"] or _NOUN_END.search(plain)
            acts = run.after in WORDS["person_words"] and plain not in self._small and not is_noun
            if len(rest) == 1 and rest[0] in self._solid and head not in self._solid:
                names.append((run.start + len(head) + 1, run.text[len(head) + 1 :]))
            elif rest or head in self._solid or acts:
                names.append((run.start, run.text))
        return names


def _begins(text: str, start: int) -> bool:
    at = start - 1
    while at >= 0 and text[at] in " \t'’‘":
        at -= 1
    if at < 0:
        return True
    if text[at] in "-–—*" and (at == 0 or text[at - 1] in "\n \t"):
        return True
    return text[at] in _ENDS
