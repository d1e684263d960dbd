"""Likes, habits, states and standing wishes of people ("allergic to peanuts"), by the grammar of a clause.

English is parsed by subject, adverbs and predicate; German and other languages by typical words. Questions and
momentary states ("I'm ready", "I see") do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from noetic_nb.lab._recall_quality.word_lists import WORDS

# A longer sentence is pasted text.
_LONGEST_SENTENCE: Final = 400
_CONDITION: Final = re.compile(
    r"(?:allerg|intoleran|diabet|asthma|migrain|arthrit|epilep|phobi|celiac|coeliac|vegetarian|vegan|pescatarian|teetotal|kosher|"
    r"halal|anxiet|depress|tinnitus|eczema|psoriasis|vertigo|an(?:a)?emi|hypertens|thyroid|claustro|stutter|hernia|osteo|dyslexi|autis|adhd|insomnia|pregnan|pacemaker|wheelchair|lactose|deaf|sober)\w*$|\w*phobi[ac]$|"
    r"(?:left|right)-hande[dr]$|(?:near|short|long|far)-?sighted$|colou?r-?blind$|\w+-free$"
)
_REGULAR: Final = re.compile(
    r"\bevery (?:day|morning|evening|night|week|weekend|month|year|other|\w+day)\b|\bon (?:mon|tues|wednes|thurs|fri|"
    r"satur|sun)days\b|\b(?:once|twice) an? |\bat night\b|\bthese days\b|\bnowadays\b|\bfrom now on\b"
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
    r"\b(?:hurts?|upsets?|bothers?|scares?|drives?|stress(?:es)?|annoys?|irritates?|bores?|calms?|relaxes|suits?|triggers?|"
    r"disgusts?|frightens?|worries|tires?|agrees? with|(?:bad|dangerous|deadly|unsafe|hard(?:er)?|painful|too \w+) for) "
    r"(?:me|us|him|her|my)\b|\b(?:is|are) what (?:i|we|he|she) (?:go for|goes for|likes?|prefers?|needs?)\b|"
    r"\b(?:is|are) (?:one of )?(?:my|our|his|her) (?:favou?rites?|things?|passion|weakness|hobby|go-to)\b|"
    r"\b(?:i|we|he|she|they|my [\w-]+) (?:grew up|(?:was|were) (?:born|raised|diagnosed))\b|"
    r"\b(?:is|are|am) (?:currently )?on (?:an? |the )?(?:[\w-]+ ){0,2}(?:diet|medication|meds|pills?|antibiotics|insulin|"
    r"shifts?)\b|\b(?:want|need|like) (?:all |your |every )?(?:\w+ )?(?:replies|answers|responses|messages|dates|amounts|"
    r"prices|names|letters) (?:in|as|by|to|with|without|only)\b|\b(?:important|matters) to (?:me|us)\b|"
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
# Words that mark such a sentence in other languages.
_ABROAD: Final = re.compile(
    r"\b(?:allergi(?:que|c[oa])|al[ée]rgic[oa]|intoléran\w+|intolerante|végétari\w+|vegetarian[oa]|vegan[oa]|je préfère|"
    r"prefier[oe]|preferisco|prefiro|déteste|odio|odia|j'aime|n'aime|me gust\w+|me encanta|mi piac\w+|ne mange|"
    r"ne bois|non mangi\w|non bev\w|"
    r"ya no|non .* più|não .* mais|аллерги\w*|ненави\w+|предпочита\w+|не люб\w+|люблю|больше не|не ем|не пью)\b"
    r"|过敏|過敏|アレルギー|알레르기|喜欢|喜歡|不吃|不喝|好き|嫌い|좋아|싫어|苦手"
)
_CLAUSE: Final = re.compile(
    # A comma or such a word ends a clause if another subject follows; otherwise it separates items of a list.
    r"[;()–—]+\s*|\s-+\s|(?:[,:]\s*(?:(?:and|but|so)\s)?|\s(?:and|but|so|because|since|although|though|while)\s)"
    r"(?=(?:i|we|he|she|they|it|that|this|you|my|our|his|her|their|please|never|always|do not|don['’]t)\b)",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_SHORT: Final = {"can't": "can not", "cannot": "can not", "won't": "will not", "let's": "let us", "gonna": "going to"}
_SUFFIXES: Final = {"n't": "not", "'ve": "have", "'re": "are", "'d": "would", "'ll": "will", "'m": "am"}
# Particles that turn a verb into one of ending.
_ENDED_BY: Final = dict.fromkeys(("gave", "given"), "up away") | dict.fromkeys(("cut", "went", "gone"), "out off")
_ENDED_BY.update(took="up", taken="up", turned="")


def states_of(sentences: Iterable[re.Match[str]]) -> Iterator[tuple[int, str, bool]]:
    """Yield the clauses that state a like, habit, state or wish, where they begin, and whether they cannot be actions."""
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
    is_state = _GERMAN.search(plain) and _GERMAN_PERSON.search(plain) and not _GERMAN_NONE.search(plain)
    own = [word for word in _TOKEN.findall(plain) if word in WORDS["german_only"]]
    return bool(is_state) and len(plain.split()) > 3 and len(own) > 1


def _tokens(clause: str) -> tuple[list[str], list[str]]:
    """Return the words of a clause, in lower case with contractions split, and as written."""
    small: list[str] = []
    written: list[str] = []
    for word in _TOKEN.findall(clause):
        plain = word.lower().replace("’", "'")
        ends = [(end, full) for end, full in _SUFFIXES.items() if plain.endswith(end) and len(plain) > len(end)]
        if plain in _SHORT:
            plain = _SHORT[plain]
        elif ends:
            plain = f"{plain.removesuffix(ends[0][0])} {ends[0][1]}"
        elif plain.endswith("'s") and plain[:-2] in WORDS["pronouns"] | {"who", "there", "it", "that"}:
            plain = f"{plain[:-2]} is"
        small += plain.split()
        written += [word, *plain.split()[1:]]
    return small, written


def _tells_state(clause: str) -> bool | None:
    """Tell whether a clause surely states a like, habit, state or standing wish of a person; None if it does not."""
    words, written = _tokens(clause)
    at = next((at for at, word in enumerate(words) if word not in WORDS["leads"]), len(words))
    whole = " ".join(words)
    leads, words, written = words[:at], words[at:], written[at:]
    if len(words) < 3 and not (len(words) == 2 and words[0] in ("always", "never") and words[1] != "mind"):
        return _SHORT_NO.search(whole) is not None or None
    plain = " ".join(words)
    has_effect = _EFFECT.search(plain) and words[0] not in ("that", "this", "it", "which", "what")
    if has_effect or _SHORT_NO.search(whole) or _STANDING.search(plain) or _is_order(words, plain):
        return True
    if any(map(_CONDITION.match, words)) and not WORDS["of_person"].isdisjoint(words):
        return True
    stop, is_person, is_thing = _subject(words, written)
    if not (is_person or is_thing) and (words[0] in WORDS["fronted"] or not WORDS["fronted"].isdisjoint(leads)):
        # "Since the accident I walk with a stick": the subject comes after a clause of time, place or reason.
        front = next((at for at, word in enumerate(words[:7]) if word in WORDS["pronouns"]), 0)
        words, stop, is_person = words[front:], 1 if front else 0, front > 0
    return _predicate(words[stop:], plain, is_person=is_person, is_thing=is_thing) if stop else None


def _is_order(words: list[str], plain: str) -> bool:
    """Tell whether a clause is a standing order: "never call me", "do not use emojis", "answer in German"."""
    if words[0] in ("always", "never") and words[1] not in ("mind", "been", "had", "the"):
        return True
    if words[:2] == ["do", "not"] and len(words) > 3:
        return words[2] not in WORDS["no_ban"] and words[3] not in ("it", "that")
    return bool(
        (words[0] in WORDS["ordered"] and {"always", "never"} & set(words))
        or (words[0] == "only" and words[1] in WORDS["ordered"])
        or (words[0] in ("avoid", "stop") and words[1] not in WORDS["vague"] | WORDS["leads"])
        or _MANNER.search(plain)
    )


def _subject(words: list[str], written: list[str]) -> tuple[int, bool, bool]:
    """Return where the subject of a clause ends, whether it is a person, and whether it belongs to a person."""
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
        return 1, False, False  # a name: sure likes and states count, possible actions do not
    return 0, False, False


class _Predicate:
    """The words after a subject: its adverbs, negation, auxiliary, and the rest from the verb on."""

    def __init__(self, words: list[str]) -> None:
        self.adverbs: set[str] = set()
        self.negated = self.perfect = self.being = False
        self.modal = ""
        self.rest = words[next((at for at in range(len(words)) if not self._takes(words, at)), len(words)) :]

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
        elif word in ("have", "has", "had") and after and _is_participle(words[at + 1 :]):
            self.perfect = True
        elif after and word in WORDS["not_after"] and (word not in ("do", "does", "did") or after == ["not"]):
            self.modal = word
        elif _is_adverb(word, words[at - 1] if at else "", after):
            self.adverbs.add(word)
        else:
            return False
        return True


def _predicate(words: list[str], plain: str, *, is_person: bool, is_thing: bool) -> bool | None:
    """Answer `_tells_state` for the predicate of a subject."""
    if is_thing:  # "my favourite composer is", "my knees do not like"
        if WORDS["favourite"] & set(words[:3]) and WORDS["be"] & set(words):
            return True
        if words[0] in WORDS["body"] and WORDS["be"] & set(words[1:3]):
            return None if _FOR_NOW.search(plain) else True
        words = words[1:]
    said = _Predicate(words)
    if not said.rest:
        return None
    written, *after = said.rest
    verb, is_vague = _stem_of(written), not after or after[0] in WORDS["vague"]
    if _NO_LONGER.search(plain) and (said.negated or "no longer" in plain) and not is_thing:
        return None if written in ("need", "want", "needed", "wanted") else True
    if any(map(_CONDITION.match, said.rest)):
        return True
    if said.modal == "would":
        is_wish = {"rather", "sooner"} & said.adverbs or verb in ("prefer", "rather", "sooner")
        return True if is_wish and (len(after) != 1 or not is_vague) else None
    if said.being:
        return None if is_thing or _FOR_NOW.search(plain) else _state(written, after)
    if said.modal in ("can", "could", "must", "may") and (said.negated or said.adverbs & {"only", "hardly"}):
        is_act = verb in WORDS["passing"] | WORDS["of_screens"] or after[:1] in (["the"], ["my"])
        is_moment = (is_act and verb not in WORDS["cannot"]) or is_vague or _FOR_NOW.search(plain)
        return None if is_moment else True
    if said.modal == "must" and verb == "avoid":
        return None if is_vague else True
    if said.modal not in ("", "do", "does"):
        return None
    if verb in WORDS["liking"] or (said.negated and verb in ("mind", "care", "trust")):
        is_vague = is_vague and not (after and (after[0] in ("how", "to") or "when" in after))
        return None if is_vague or (verb == "like" and not (is_person or is_thing)) else True
    if is_thing or not is_person:
        return None
    if said.rest[:2] == ["used", "to"] or said.rest[:3] == ["got", "rid", "of"]:
        return True
    if written in WORDS["ended"] and _has_ended(written, after):
        return True
    if said.perfect and _SINCE.search(plain):
        return None if written in ("waiting", "trying") else False
    is_done = said.perfect and written not in ("started", "begun", "learned", "learnt")
    return None if is_done or _FOR_NOW.search(plain) else _habit(written, after, verb, plain, said)


def _is_adverb(word: str, before: str, after: list[str]) -> bool:
    if word in ("a", "bit", "little"):
        return after in (["bit"], ["little"]) or before == "a"
    ends = word.endswith("ly") and len(word) > 4 and word not in ("rely", "apply", "reply", "family")
    return word in WORDS["adverbs"] or ends


def _is_participle(words: list[str]) -> bool:
    word = next((word for word in words if word not in WORDS["adverbs"] and word != "not"), "")
    return word.endswith(("ed", "en")) or word in WORDS["past"] | WORDS["ended"] | {"been", "come", "put"}


def _stem_of(verb: str) -> str:
    """Return a verb without its ending of the third person or the past."""
    for end, other in (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("oes", "o")):
        if verb.endswith(end):
            return verb[: -len(end)] + other
    if verb.endswith("ed") and len(verb) > 4:
        known = WORDS["liking"] | WORDS["passing"]
        return next((verb[:-cut] for cut in (1, 2, 3) if verb[:-cut] in known), verb)
    return verb[:-1] if verb.endswith("s") and not verb.endswith("ss") else verb


def _state(word: str, after: list[str]) -> bool | None:
    """Tell whether a state of a person lasts: "afraid of dogs", "a night owl", "trying to avoid plastic"."""
    if word in ("a", "an", "the", "of", "two", "three"):
        return False if after and after[0] not in WORDS["moment"] else None
    if word == "trying":
        aim = after[1] if after[:1] == ["to"] and len(after) > 1 else "get"
        is_passing = aim in WORDS["passing"] | WORDS["of_screens"]
        return None if is_passing else aim in ("avoid", "cut", "eat", "drink", "quit", "stop")
    if word == "getting":
        return False if {"married", "divorced", "old", "older"} & set(after) else None
    if word.endswith("ing") and word not in ("morning", "evening"):
        return False if word in WORDS["lasting_acts"] and after else None
    has_preposition = bool(after) and after[0] in WORDS["prepositions"]
    if word in WORDS["lasting"]:
        about = after[1:2] if has_preposition else after[:1] if word in ("into", "off") else []
        return True if about and not {*about, after[-1]} & WORDS["vague"] else None
    if word in WORDS["moment"] | WORDS["passing"] or (has_preposition and {*after[1:2]} & WORDS["vague"]):
        return None
    if word.endswith("ed"):
        return word in WORDS["felt"] if word in WORDS["felt"] | WORDS["settled"] or "-" in word else None
    return has_preposition and after[0] not in ("in", "by", "than", "around")


def _has_ended(verb: str, after: list[str]) -> bool:
    """Tell whether a lasting change is stated: "gave up smoking", "switched to oat milk", "became a vegetarian"."""
    has_particle = not {*after[:1], *after[-1:]}.isdisjoint(_ENDED_BY.get(verb, "").split())
    passed = WORDS["particles"] | {"a", "an", "the", "my", "all"}
    new = next((word for word in after if word not in passed), "")
    if not new or new in WORDS["vague"]:
        return False
    return has_particle or verb not in _ENDED_BY or _CONDITION.match(new) is not None


def _habit(written: str, after: list[str], verb: str, plain: str, said: _Predicate) -> bool | None:
    """Tell whether a verb in the present states a habit, not an action, thought or request."""
    is_regular = bool(said.adverbs & WORDS["habit"] or _REGULAR.search(plain))
    first = after[0] if after else ""
    if verb in WORDS["alone"] and not written.endswith("ed"):
        return False
    of_moment = WORDS["vague"] | WORDS["owners"] | {""}
    if verb == "get" and not said.adverbs & WORDS["habit"]:
        return None if first in of_moment | WORDS["no_state"] or first.endswith("ed") else False
    if written in WORDS["either"] and is_regular:
        return True
    is_state = (
        (verb, first) in (("believe", "in"), ("insist", "on"), ("go", "to"), ("come", "from"))
        or (verb in ("go", "come") and first.endswith("ing"))
        or (verb == "do" and said.negated and first not in of_moment | {"the", "anything", "so", "much"})
        or (written in ("learned", "learnt") and said.negated)
    )
    if is_state or (written in ("started", "begun", "began") and first.endswith("ing")):
        return False
    if written in WORDS["past"] | {"begun"} or (written.endswith("ed") and written not in ("need", "feed", "breed")):
        return None
    if verb in ("have", "ha") and not said.modal:
        noun = next((word for word in after if word not in ("a", "an", "no", "very", "two", "three", "any", "bad")), "")
        is_passing = {*after[:3]} & (WORDS["owned"] | WORDS["vague"] | {"the", "my", "our"})
        return None if not noun or is_passing or noun.endswith(("ed", "en")) else False
    after = after[1:] if first == "to" else after
    if not after or after[0] in WORDS["vague"] or after == ["now"]:
        return None
    if is_regular:
        thinks = ("want", "need", "have", "think", "mean", "say", "know", "see", "worry", "hope")
        return None if verb in thinks else True
    if verb == "need":
        return False if {"when", "whenever", "because"} & set(after[1:]) and first != "to" else None
    return None if verb in WORDS["passing"] else False
