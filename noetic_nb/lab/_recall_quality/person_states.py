"""Likes, habits, states and standing wishes of people ("allergic to peanuts", "no longer eats meat"), by the grammar of a clause.

English is read by subject, adverbs and predicate; German and other languages by the words that mark most such sentences. A
question is none, and neither is what lasts a moment ("I'm ready", "I see").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from noetic_nb.lab._recall_quality.word_lists import WORDS

# A longer sentence is a paste.
_LONGEST_SENTENCE: Final = 400
_CONDITION: Final = re.compile(
    r"(?:allerg|intoleran|diabet|asthma|migrain|arthrit|epilep|phobi|celiac|coeliac|vegetarian|vegan|pescatarian|teetotal|kosher|"
    r"halal|anxiet|depress|tinnitus|eczema|psoriasis|vertigo|an(?:a)?emi|hypertens|thyroid|claustro|stutter|hernia|osteo|dyslexi|autis|adhd|insomnia|pregnan|pacemaker|wheelchair|lactose|deaf|sober)\w*$|\w*phobi[ac]$|"
    r"(?:left|right)-hande[dr]$|(?:near|short|long|far)-?sighted$|colou?r-?blind$|\w+-free$"
)
_REGULAR: Final = re.compile(
    r"\bevery (?:day|morning|evening|night|week|weekend|month|year|other|\w+day)\b|"
    r"\bon (?:mon|tues|wednes|thurs|fri|satur|sun)days\b|"
    r"\b(?:once|twice) an? |\bat night\b|\bthese days\b|\bnowadays\b|\bfrom now on\b"
)
_NO_LONGER: Final = re.compile(
    r"\bno longer\b|\banymore\b|\bany longer\b|\bany more\b(?=$| (?:when|because|since|at|in|on|after|than|these|now)\b)"
)
_FOR_NOW: Final = re.compile(r"\bstill\b|\bright now\b|\bat the moment\b|\btoday\b|\bcurrently\b|\balready\b|\byet\b")
_STANDING: Final = re.compile(
    r"\b(?:from now on|in (?:the )?future|going forward|whenever|by default|at all times|(?:each|every) time)\b"
)
_EFFECT: Final = re.compile(
    r"\b(?:makes?|gives?) (?:me|us|him|her|my [\w-]+) (?!a call|a minute|a moment|a second|the|think|wonder)\w|"
    r"\b(?:hurts?|upsets?|bothers?|scares?) (?:me|us|him|her|my)\b|"
    r"\b(?:bad|dangerous|deadly|unsafe|hard(?:er)?|painful|too \w+) for (?:me|us|him|her|my)\b|"
    r"\bagrees? with (?:me|him|her|my)\b|"
    r"\b(?:drives?|stress(?:es)?|annoys?|irritates?|bores?|calms?|relaxes|suits?|triggers?|"
    r"disgusts?|frightens?|worries|tires?) (?:me|us|him|her|my)\b|"
    r"\b(?:is|are) (?:one of )?(?:my|our|his|her) (?:favou?rites?|things?|passion|weakness|hobby|go-to)\b|"
    r"\b(?:is|are) what (?:i|we|he|she) (?:go for|goes for|likes?|prefers?|needs?)\b|"
    r"\b(?:i|we|he|she|they|my [\w-]+) (?:grew up|(?:was|were) (?:born|raised)|(?:was|were) diagnosed)\b|"
    r"\b(?:is|are|am) (?:currently )?on (?:an? |the )?(?:[\w-]+ ){0,2}"
    r"(?:diet|medication|meds|pills?|antibiotics|insulin|shifts?)\b|"
    r"\b(?:want|need|like) (?:all |your |every )?(?:\w+ )?"
    r"(?:replies|answers|responses|messages|dates|amounts|prices|names|letters) "
    r"(?:in|as|by|to|with|without|only)\b|\b(?:important|matters) to (?:me|us)\b|"
    r"\b(?:i|we|he|she) finds? (?:[\w-]+ ){1,4}(?:\w+(?:ful|ous|able|ible|ting|ring|sing|ying)|hard|difficult|easy)$|"
    r"\bmy cup of tea\b|\bnot (?:really )?(?:my|our) thing\b|"
    r"\b(?:doctor|dentist|physician|therapist|nurse|vet) (?:has )?(?:told|advised|ordered|forbade|forbids|wants|says)\b"
)
_SINCE: Final = re.compile(r"\bsince\b|\bfor (?:[a-z]+ )?(?:years|months|ages|decades)\b")
_SHORT_NO: Final = re.compile(r"^no (?:[\w-]+ ){1,4}(?:for (?:me|us|him|her)|please)\b")
_MANNER: Final = re.compile(
    r"^(?:keep|answer|reply|respond|speak|talk|write|address|call|use|stick)\b.*\b(?:short|brief|concise|simple|formal|informal|"
    r"me (?:by|in|as)|to me in|in (?:[a-z]+ish|german|french|italian|plain|one|bullet|metric)|(?:metric|bullet|plain) \w+|only)\b"
)
_GERMAN: Final = re.compile(
    r"\b(?:allergi\w*|unverträglich\w*|vertr(?:age|ägt|agen)|vegetari\w*|vegan\w*|schwanger|angst vor|lieber|am liebsten|"
    r"bevorzug\w*|mag|mögen|hass(?:e|t|en)|liebe|liebt|lieben|nicht mehr|kein\w*|nie|niemals|immer|nur noch|gern|gerne|"
    r"ungern|leiden|ausstehen|abgewöhnt|aufgehört|lieblings\w+|verzicht\w*|meid\w*|diabet\w*|rollstuhl|linkshänder\w*|"
    r"bitte (?:nie|immer|nicht|kein\w*))\b"
)
_GERMAN_PERSON: Final = re.compile(r"\b(?:ich|wir|er|sie|man|mich|mir|uns|bitte|(?:mein|unser|sein|ihr)\w*)\b")
_GERMAN_NONE: Final = re.compile(
    r"\b(?:möchte|würde|hätte|immer noch|nicht mehr lange|noch immer|liebe grüße|"
    r"keine (?:ahnung|frage|zeit|idee|sorge)|kein (?:problem|thema|stress))\b"
)
# What marks such a sentence in other languages.
_ABROAD: Final = re.compile(
    r"\b(?:allergi(?:que|c[oa])|al[ée]rgic[oa]|intoléran\w+|intolerante|végétari\w+|vegetarian[oa]|vegan[oa]|je préfère|"
    r"prefier[oe]|preferisco|prefiro|déteste|odio|odia|j'aime|n'aime|me gust\w+|me encanta|mi piac\w+|ne mange|"
    r"ne bois|non mangi\w|non bev\w|"
    r"ya no|non .* più|não .* mais|аллерги\w*|ненави\w+|предпочита\w+|не люб\w+|люблю|больше не|не ем|не пью)\b"
    r"|过敏|過敏|アレルギー|알레르기|喜欢|喜歡|不吃|不喝|好き|嫌い|좋아|싫어|苦手",
)
_CLAUSE: Final = re.compile(
    # A comma, or such a word, ends a clause where another subject follows; else it stands in a list.
    r"[;()–—]+\s*|\s-+\s|(?:[,:]\s*(?:(?:and|but|so)\s)?|\s(?:and|but|so|because|since|although|though|while)\s)"
    r"(?=(?:i|we|he|she|they|it|that|this|you|my|our|his|her|their|please|never|always|do not|don['’]t)\b)",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_SHORT: Final = {
    "can't": "can not",
    "cannot": "can not",
    "won't": "will not",
    "i'm": "i am",
    "let's": "let us",
    "gonna": "going to",
}
_SUFFIXES: Final = (("n't", "not"), ("'ve", "have"), ("'re", "are"), ("'d", "would"), ("'ll", "will"), ("'m", "am"))


def states_of(sentences: Iterable[re.Match[str]]) -> Iterator[tuple[int, str, bool]]:
    """Yield the clauses of sentences that tell a like, a habit, a state or a standing wish, and where they begin.

    A sentence of one clause is given whole. The last value is False where the words would fit an act as well: "lives in".
    """
    for match in sentences:
        sentence = match[0]
        if len(sentence) > _LONGEST_SENTENCE or sentence.rstrip().endswith(("?", "？", "؟")):
            continue
        if not sentence.isascii() and (_ABROAD.search(sentence.lower()) or _is_german(sentence)):
            yield *_placed(match.start(), sentence), True
            continue
        bounds = [(0, 0), *[one.span() for one in _CLAUSE.finditer(sentence)], (len(sentence), len(sentence))]
        clauses = [(start, stop) for (_, start), (stop, _) in pairwise(bounds) if stop - start > 1]
        told = [
            (start, stop, sure) for start, stop in clauses if (sure := _tells_state(sentence[start:stop])) is not None
        ]
        plain = sentence.lower()
        if not told and (_ABROAD.search(plain) or _is_german(sentence) or _STANDING.search(plain)):
            told = [(0, len(sentence), True)]
        for start, stop, sure in told if len(clauses) > 1 else [(0, len(sentence), one[2]) for one in told]:
            yield *_placed(match.start() + start, sentence[start:stop]), sure


def _placed(start: int, said: str) -> tuple[int, str]:
    return start + len(said) - len(said.lstrip()), said.strip()


def _is_german(sentence: str) -> bool:
    plain = sentence.lower()
    return bool(
        _GERMAN.search(plain)
        and _GERMAN_PERSON.search(plain)
        and not _GERMAN_NONE.search(plain)
        and len(plain.split()) > 3
        and _is_of_german(plain)
    )


def _is_of_german(plain: str) -> bool:
    return sum([word in WORDS["german_only"] for word in _TOKEN.findall(plain)]) >= 2


def _tokens(clause: str) -> tuple[list[str], list[str]]:
    """Return the words of a clause in small letters, contractions apart, and as they are written."""
    small: list[str] = []
    written: list[str] = []
    for word in _TOKEN.findall(clause):
        plain = word.lower().replace("’", "'")
        whole = _SHORT.get(plain)
        if whole is None:
            for end, full in _SUFFIXES:
                if plain.endswith(end) and len(plain) > len(end):
                    whole = f"{plain[: -len(end)]} {full}"
                    break
        if whole is None and plain.endswith("'s") and plain[:-2] in WORDS["pronouns"] | {"who", "there", "it", "that"}:
            whole = f"{plain[:-2]} is"
        parts = (whole or plain).split()
        small += parts
        written += [word, *parts[1:]]
    return small, written


def _tells_state(clause: str) -> bool | None:
    """Tell whether a clause surely states a like, a habit or a state of a person, or a standing wish; None where it does not."""
    words, written = _tokens(clause)
    at = 0
    while at < len(words) and words[at] in WORDS["leads"]:
        at += 1
    whole = " ".join(words)
    leads, words, written = words[:at], words[at:], written[at:]
    if len(words) < 3 and not (len(words) == 2 and words[0] in ("always", "never") and words[1] != "mind"):
        return _SHORT_NO.search(whole) is not None or None
    plain = " ".join(words)
    has_effect = _EFFECT.search(plain) and words[0] not in ("that", "this", "it", "which", "what")
    if has_effect or _SHORT_NO.search(whole) or _STANDING.search(plain):
        return True
    if _is_order(words, plain):
        return True
    if any(map(_CONDITION.match, words)) and not WORDS["of_person"].isdisjoint(words):
        return True
    stop, is_person, is_thing = _subject(words, written)
    if not (is_person or is_thing) and (words[0] in WORDS["fronted"] or not WORDS["fronted"].isdisjoint(leads)):
        # "Since the accident I walk with a stick": the subject stands behind where, when or why.
        front = next((at for at, word in enumerate(words[:7]) if word in WORDS["pronouns"]), 0)
        words, stop, is_person = words[front:], 1 if front else 0, front > 0
    if not stop:
        return None
    return _predicate(words[stop:], plain, is_person=is_person, is_thing=is_thing)


def _is_order(words: list[str], plain: str) -> bool:
    """Tell whether a clause is an order that stands: "never call me", "do not use emojis", "answer in German"."""
    if words[0] in ("always", "never") and words[1] not in ("mind", "been", "had", "the"):
        return True
    if words[:2] == ["do", "not"] and len(words) > 3:
        return words[2] not in WORDS["no_ban"] and words[3] not in ("it", "that")
    if {"always", "never"} & set(words) and words[0] in WORDS["ordered"]:
        return True
    if words[0] == "only" and words[1] in WORDS["ordered"]:
        return True
    if words[0] in ("avoid", "stop") and words[1] not in WORDS["vague"] | WORDS["leads"]:
        return True
    return bool(_MANNER.search(plain))


def _subject(words: list[str], written: list[str]) -> tuple[int, bool, bool]:
    """Return where the subject of a clause ends, whether it is a person, and whether it is a thing of a person."""
    if words[0] in WORDS["pronouns"]:
        return 1, True, False
    if words[0] == "the" and len(words) > 1 and words[1] in ("kids", "children", "dog", "cat", "baby"):
        return 2, True, False
    if words[0] in WORDS["owners"] or words[0].endswith("'s"):
        for at in range(1, min(4, len(words))):
            if words[at] in WORDS["people"] or words[at].removesuffix("s") in WORDS["people"]:
                return at + 1, True, False
        return 1, False, True
    if written[0][:1].isupper() and written[0].isalpha() and words[0] not in WORDS["not_names"] and len(words[0]) > 1:
        return 1, False, False  # a name: what is surely a like or a state counts, what may be an act does not
    return 0, False, False


class _Predicate:
    """The words behind a subject: its adverbs, whether it is negated, its auxiliary, and the rest from the verb on."""

    def __init__(self, words: list[str]) -> None:
        self.adverbs: set[str] = set()
        self.negated = self.perfect = self.being = False
        self.modal = ""
        at = 0
        while at < len(words) and self._takes(words, at):
            at += 1
        self.rest = words[at:]

    def _takes(self, words: list[str], at: int) -> bool:
        word, after = words[at], words[at + 1 : at + 2]
        if word in ("not", "never", "hardly", "rarely", "seldom"):
            self.negated = True
            self.adverbs.add(word)
        elif word in WORDS["be"] or word == "been":
            self.being = True
        elif word in ("have", "has", "need", "needs") and words[at + 1 : at + 2] == ["to"]:
            self.modal = "must"
        elif word == "to" and self.modal == "must":
            pass
        elif word in ("have", "has", "had") and after and _is_participle(words, at + 1):
            self.perfect = True
        elif after and word in WORDS["not_after"] and (word not in ("do", "does", "did") or after == ["not"]):
            self.modal = word
        elif _is_adverb(word, words[at - 1] if at else "", after):
            self.adverbs.add(word)
        else:
            return False
        return True


def _predicate(words: list[str], plain: str, *, is_person: bool, is_thing: bool) -> bool | None:
    """Tell the same of what is said of a subject."""
    if is_thing:  # "my favourite composer is", "my knees do not like"
        if WORDS["favourite"] & set(words[:3]) and WORDS["be"] & set(words):
            return True
        if words[0] in WORDS["body"] and WORDS["be"] & set(words[1:3]):
            return None if _FOR_NOW.search(plain) else True
        words = words[1:]
    said = _Predicate(words)
    rest = said.rest
    if not rest:
        return None
    verb, after = _stem_of(rest[0]), rest[1:]
    if _NO_LONGER.search(plain) and (said.negated or "no longer" in plain) and not is_thing:
        return None if rest[0] in ("need", "want", "needed", "wanted") else True
    if any(_CONDITION.match(word) for word in rest):
        return True
    if said.modal == "would":
        is_wish = bool({"rather", "sooner"} & said.adverbs) or verb in ("prefer", "rather", "sooner")
        return True if is_wish and (len(after) > 1 or not {*after} & WORDS["vague"]) else None
    if said.being:
        return None if is_thing or _FOR_NOW.search(plain) else _state(rest)
    if said.modal in ("can", "could", "must", "may") and (said.negated or said.adverbs & {"only", "hardly"}):
        is_lasting = (
            (
                verb in WORDS["cannot"]
                or not (verb in WORDS["passing"] | WORDS["of_screens"] or after[:1] in (["the"], ["my"]))
            )
            and after
            and after[0] not in WORDS["vague"]
            and not _FOR_NOW.search(plain)
        )
        return True if is_lasting else None
    if said.modal == "must" and verb == "avoid":
        return True if after and after[0] not in WORDS["vague"] else None
    if said.modal not in ("", "do", "does"):
        return None
    if verb in WORDS["liking"] or (said.negated and verb in ("mind", "care", "trust")):
        is_vague = not after or (after[0] in WORDS["vague"] - {"how", "to"} and "when" not in after)
        return None if is_vague or (verb == "like" and not (is_person or is_thing)) else True
    if is_thing or not is_person:
        return None
    if rest[0] == "used" and after[:1] == ["to"]:
        return True
    if rest[:3] == ["got", "rid", "of"] or (rest[0] in WORDS["ended"] and _has_ended(rest)):
        return True
    if said.perfect and _SINCE.search(plain):
        return None if rest[0] in ("waiting", "trying") else False
    is_done = said.perfect and rest[0] not in ("started", "begun", "learned", "learnt")
    return None if is_done or _FOR_NOW.search(plain) else _habit(rest, verb, plain, said)


def _is_adverb(word: str, before: str, after: list[str]) -> bool:
    if word in ("a", "bit", "little"):
        return after in (["bit"], ["little"]) or before == "a"
    ends = word.endswith("ly") and len(word) > 4 and word not in ("rely", "apply", "reply", "family")
    return word in WORDS["adverbs"] or ends


def _is_participle(words: list[str], at: int) -> bool:
    while at < len(words) and (words[at] in WORDS["adverbs"] or words[at] == "not"):
        at += 1
    return at < len(words) and (
        words[at].endswith(("ed", "en")) or words[at] in WORDS["past"] | WORDS["ended"] | {"been", "come", "put"}
    )


def _stem_of(verb: str) -> str:
    """Return a verb without its ending of the third person or of the past."""
    for end, other in (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("oes", "o")):
        if verb.endswith(end):
            return verb[: -len(end)] + other
    if verb.endswith("ed") and len(verb) > 4:
        return next(
            (one for one in (verb[:-1], verb[:-2], verb[:-3]) if one in WORDS["liking"] | WORDS["passing"]), verb
        )
    return verb[:-1] if verb.endswith("s") and not verb.endswith("ss") else verb


def _state(rest: list[str]) -> bool | None:
    """Tell whether what somebody is lasts: "afraid of dogs", "a night owl", "trying to avoid plastic"."""
    word, after = rest[0], rest[1:]
    if word in ("a", "an", "the", "of", "two", "three"):
        return False if after and after[0] not in WORDS["moment"] else None
    if word.endswith("ing") and word not in ("morning", "evening"):
        if word == "trying":
            aim = after[1] if after[:1] == ["to"] and len(after) > 1 else "get"
            return (
                None
                if aim in WORDS["passing"] | WORDS["of_screens"]
                else aim in ("avoid", "cut", "eat", "drink", "quit", "stop")
            )
        if word == "getting":
            return False if {"married", "divorced", "old", "older"} & set(after) else None
        return False if word in WORDS["lasting_acts"] and after else None
    has_preposition = bool(after) and after[0] in WORDS["prepositions"]
    if word in WORDS["lasting"]:
        about = after[1:2] if has_preposition else after[:1] if word in ("into", "off") else []
        is_whole = bool(about) and not {*about, after[-1]} & WORDS["vague"]
        return True if is_whole else None
    if word in WORDS["moment"] or word in WORDS["passing"] or (has_preposition and {*after[1:2]} & WORDS["vague"]):
        return None
    if word.endswith("ed"):
        return word in WORDS["felt"] if word in WORDS["felt"] | WORDS["settled"] or "-" in word else None
    return has_preposition and after[0] not in ("in", "by", "than", "around")


def _has_ended(rest: list[str]) -> bool:
    """Tell whether a change is meant that lasts: "gave up smoking", "switched to oat milk", "became a vegetarian"."""
    after = rest[1:]
    particle = {*after[:1], *after[-1:]} & {
        "gave": {"up", "away"},
        "given": {"up", "away"},
        "took": {"up"},
        "taken": {"up"},
    }.get(rest[0], {"out", "off"} if rest[0] in ("cut", "went", "gone") else set())
    while after and after[0] in WORDS["particles"] | {"a", "an", "the", "my", "all"}:
        after = after[1:]
    if not after or after[0] in WORDS["vague"]:
        return False
    if rest[0] in ("went", "gone", "turned", "took", "taken", "cut", "gave", "given"):
        return bool(particle) or _CONDITION.match(after[0]) is not None
    return True


def _habit(rest: list[str], verb: str, plain: str, said: _Predicate) -> bool | None:
    """Tell whether a verb in the present is what somebody does in general, and no act, thought or request."""
    written, after = rest[0], rest[1:]
    if verb in WORDS["alone"] and not written.endswith("ed"):
        return False
    if verb == "get" and not said.adverbs & WORDS["habit"]:
        is_state = (
            after
            and after[0] not in WORDS["vague"] | WORDS["owners"] | WORDS["no_state"]
            and not after[0].endswith("ed")
        )
        return False if is_state else None
    if written in WORDS["either"] and (said.adverbs & WORDS["habit"] or _REGULAR.search(plain)):
        return True
    if (verb, *after[:1]) in (("believe", "in"), ("insist", "on")):
        return False
    if (
        verb in ("go", "come")
        and after
        and (after[0].endswith("ing") or after[0] == ("to" if verb == "go" else "from"))
    ):
        return False
    if (
        verb == "do"
        and said.negated
        and after
        and after[0] not in WORDS["vague"] | WORDS["owners"] | {"the", "anything", "so", "much"}
    ):
        return False
    if written in ("started", "begun", "began"):
        return False if after and after[0].endswith("ing") else None
    if written in ("learned", "learnt") and said.negated:
        return False
    if written in WORDS["past"] or (written.endswith("ed") and written not in ("need", "feed", "breed")):
        return None
    if verb in ("have", "ha") and not said.modal:
        noun = next((word for word in after if word not in ("a", "an", "no", "very", "two", "three", "any", "bad")), "")
        is_passing = (
            {"the", "my", "our", "to", noun, *after[:3]}
            & (WORDS["owned"] | WORDS["vague"] | {"the", "my", "our"})
            & set(after[:3])
        )
        return None if not noun or is_passing or noun.endswith(("ed", "en")) else False
    after = after[1:] if after[:1] == ["to"] else after
    if not after or after[0] in WORDS["vague"] or after == ["now"]:
        return None
    if said.adverbs & WORDS["habit"] or _REGULAR.search(plain):
        return (
            None if verb in ("want", "need", "have", "think", "mean", "say", "know", "see", "worry", "hope") else True
        )
    if verb == "need":
        return False if {"when", "whenever", "because"} & set(after[1:]) and rest[1] != "to" else None
    return None if verb in WORDS["passing"] else False
