"""Likes, habits, states and standing wishes of people ("allergic to peanuts", "no longer eats meat"), by the grammar of a clause.

English is read by subject, adverbs and predicate; German and other languages by the words that mark most such sentences. A
question is none, and neither is what lasts a moment ("I'm ready", "I see").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from noetic_nb.lab._recall_quality import state_words as known
from noetic_nb.lab._recall_quality.fact_words import NOT_NAMES


def states_of(sentences: Iterable[re.Match[str]]) -> Iterator[tuple[int, str, bool]]:
    """Yield the clauses of sentences that tell a like, a habit, a state or a standing wish, and where they begin.

    A sentence of one clause is given whole. The last value is False where the words would fit an act as well: "lives in".
    """
    for match in sentences:
        sentence = match[0]
        if len(sentence) > known.LONGEST_SENTENCE or sentence.rstrip().endswith(("?", "？", "؟")):
            continue
        if not sentence.isascii() and (known.ABROAD.search(sentence.lower()) or _is_german(sentence)):
            yield *_placed(match.start(), sentence), True
            continue
        bounds = [(0, 0), *[one.span() for one in known.CLAUSE.finditer(sentence)], (len(sentence), len(sentence))]
        clauses = [(start, stop) for (_, start), (stop, _) in pairwise(bounds) if stop - start > 1]
        told = [
            (start, stop, sure) for start, stop in clauses if (sure := _tells_state(sentence[start:stop])) is not None
        ]
        plain = sentence.lower()
        if not told and (known.ABROAD.search(plain) or _is_german(sentence) or known.STANDING.search(plain)):
            told = [(0, len(sentence), True)]
        for start, stop, sure in told if len(clauses) > 1 else [(0, len(sentence), one[2]) for one in told]:
            yield *_placed(match.start() + start, sentence[start:stop]), sure


def _placed(start: int, said: str) -> tuple[int, str]:
    return start + len(said) - len(said.lstrip()), said.strip()


def _is_german(sentence: str) -> bool:
    plain = sentence.lower()
    return bool(
        known.GERMAN.search(plain)
        and known.GERMAN_PERSON.search(plain)
        and not known.GERMAN_NONE.search(plain)
        and len(plain.split()) > 3
        and _is_of_german(plain)
    )


def _is_of_german(plain: str) -> bool:
    return sum([word in known.GERMAN_ONLY for word in known.TOKEN.findall(plain)]) >= 2


def _tokens(clause: str) -> tuple[list[str], list[str]]:
    """Return the words of a clause in small letters, contractions apart, and as they are written."""
    small: list[str] = []
    written: list[str] = []
    for word in known.TOKEN.findall(clause):
        plain = word.lower().replace("’", "'")
        whole = known.SHORT.get(plain)
        if whole is None:
            for end, full in known.SUFFIXES:
                if plain.endswith(end) and len(plain) > len(end):
                    whole = f"{plain[: -len(end)]} {full}"
                    break
        if whole is None and plain.endswith("'s") and plain[:-2] in known.PRONOUNS | {"who", "there", "it", "that"}:
            whole = f"{plain[:-2]} is"
        parts = (whole or plain).split()
        small += parts
        written += [word, *parts[1:]]
    return small, written


def _tells_state(clause: str) -> bool | None:
    """Tell whether a clause surely states a like, a habit or a state of a person, or a standing wish; None where it does not."""
    words, written = _tokens(clause)
    at = 0
    while at < len(words) and words[at] in known.LEADS:
        at += 1
    whole = " ".join(words)
    leads, words, written = words[:at], words[at:], written[at:]
    if len(words) < 3 and not (len(words) == 2 and words[0] in ("always", "never") and words[1] != "mind"):
        return known.SHORT_NO.search(whole) is not None or None
    plain = " ".join(words)
    has_effect = known.EFFECT.search(plain) and words[0] not in ("that", "this", "it", "which", "what")
    if has_effect or known.SHORT_NO.search(whole) or known.STANDING.search(plain):
        return True
    if _is_order(words, plain):
        return True
    if any(map(known.CONDITION.match, words)) and not known.OF_PERSON.isdisjoint(words):
        return True
    stop, is_person, is_thing = _subject(words, written)
    if not (is_person or is_thing) and (words[0] in known.FRONTED or not known.FRONTED.isdisjoint(leads)):
        # "Since the accident I walk with a stick": the subject stands behind where, when or why.
        front = next((at for at, word in enumerate(words[:7]) if word in known.PRONOUNS), 0)
        words, stop, is_person = words[front:], 1 if front else 0, front > 0
    if not stop:
        return None
    return _predicate(words[stop:], plain, is_person=is_person, is_thing=is_thing)


def _is_order(words: list[str], plain: str) -> bool:
    """Tell whether a clause is an order that stands: "never call me", "do not use emojis", "answer in German"."""
    if words[0] in ("always", "never") and words[1] not in ("mind", "been", "had", "the"):
        return True
    if words[:2] == ["do", "not"] and len(words) > 3:
        return words[2] not in known.NO_BAN and words[3] not in ("it", "that")
    if {"always", "never"} & set(words) and words[0] in known.ORDERED:
        return True
    if words[0] == "only" and words[1] in known.ORDERED:
        return True
    if words[0] in ("avoid", "stop") and words[1] not in known.VAGUE | known.LEADS:
        return True
    return bool(known.MANNER.search(plain))


def _subject(words: list[str], written: list[str]) -> tuple[int, bool, bool]:
    """Return where the subject of a clause ends, whether it is a person, and whether it is a thing of a person."""
    if words[0] in known.PRONOUNS:
        return 1, True, False
    if words[0] == "the" and len(words) > 1 and words[1] in ("kids", "children", "dog", "cat", "baby"):
        return 2, True, False
    if words[0] in known.OWNERS or words[0].endswith("'s"):
        for at in range(1, min(4, len(words))):
            if words[at] in known.PEOPLE or words[at].removesuffix("s") in known.PEOPLE:
                return at + 1, True, False
        return 1, False, True
    if written[0][:1].isupper() and written[0].isalpha() and words[0] not in NOT_NAMES and len(words[0]) > 1:
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
        elif word in known.BE or word == "been":
            self.being = True
        elif word in ("have", "has", "need", "needs") and words[at + 1 : at + 2] == ["to"]:
            self.modal = "must"
        elif word == "to" and self.modal == "must":
            pass
        elif word in ("have", "has", "had") and after and _is_participle(words, at + 1):
            self.perfect = True
        elif after and word in known.NOT_AFTER and (word not in ("do", "does", "did") or after == ["not"]):
            self.modal = word
        elif _is_adverb(word, words[at - 1] if at else "", after):
            self.adverbs.add(word)
        else:
            return False
        return True


def _predicate(words: list[str], plain: str, *, is_person: bool, is_thing: bool) -> bool | None:
    """Tell the same of what is said of a subject."""
    if is_thing:  # "my favourite composer is", "my knees do not like"
        if known.FAVOURITE & set(words[:3]) and known.BE & set(words):
            return True
        if words[0] in known.BODY and known.BE & set(words[1:3]):
            return None if known.FOR_NOW.search(plain) else True
        words = words[1:]
    said = _Predicate(words)
    rest = said.rest
    if not rest:
        return None
    verb, after = _stem_of(rest[0]), rest[1:]
    if known.NO_LONGER.search(plain) and (said.negated or "no longer" in plain) and not is_thing:
        return None if rest[0] in ("need", "want", "needed", "wanted") else True
    if any(known.CONDITION.match(word) for word in rest):
        return True
    if said.modal == "would":
        is_wish = bool({"rather", "sooner"} & said.adverbs) or verb in ("prefer", "rather", "sooner")
        return True if is_wish and (len(after) > 1 or not {*after} & known.VAGUE) else None
    if said.being:
        return None if is_thing or known.FOR_NOW.search(plain) else _state(rest)
    if said.modal in ("can", "could", "must", "may") and (said.negated or said.adverbs & {"only", "hardly"}):
        is_lasting = (
            (verb in known.CANNOT or not (verb in known.PASSING | known.OF_SCREENS or after[:1] in (["the"], ["my"])))
            and after
            and after[0] not in known.VAGUE
            and not known.FOR_NOW.search(plain)
        )
        return True if is_lasting else None
    if said.modal == "must" and verb == "avoid":
        return True if after and after[0] not in known.VAGUE else None
    if said.modal not in ("", "do", "does"):
        return None
    if verb in known.LIKING or (said.negated and verb in ("mind", "care", "trust")):
        is_vague = not after or (after[0] in known.VAGUE - {"how", "to"} and "when" not in after)
        return None if is_vague or (verb == "like" and not (is_person or is_thing)) else True
    if is_thing or not is_person:
        return None
    if rest[0] == "used" and after[:1] == ["to"]:
        return True
    if rest[:3] == ["got", "rid", "of"] or (rest[0] in known.ENDED and _has_ended(rest)):
        return True
    if said.perfect and known.SINCE.search(plain):
        return None if rest[0] in ("waiting", "trying") else False
    is_done = said.perfect and rest[0] not in ("started", "begun", "learned", "learnt")
    return None if is_done or known.FOR_NOW.search(plain) else _habit(rest, verb, plain, said)


def _is_adverb(word: str, before: str, after: list[str]) -> bool:
    if word in ("a", "bit", "little"):
        return after in (["bit"], ["little"]) or before == "a"
    ends = word.endswith("ly") and len(word) > 4 and word not in ("rely", "apply", "reply", "family")
    return word in known.ADVERBS or ends


def _is_participle(words: list[str], at: int) -> bool:
    while at < len(words) and (words[at] in known.ADVERBS or words[at] == "not"):
        at += 1
    return at < len(words) and (
        words[at].endswith(("ed", "en")) or words[at] in known.PAST | known.ENDED | {"been", "come", "put"}
    )


def _stem_of(verb: str) -> str:
    """Return a verb without its ending of the third person or of the past."""
    for end, other in (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("oes", "o")):
        if verb.endswith(end):
            return verb[: -len(end)] + other
    if verb.endswith("ed") and len(verb) > 4:
        return next((one for one in (verb[:-1], verb[:-2], verb[:-3]) if one in known.LIKING | known.PASSING), verb)
    return verb[:-1] if verb.endswith("s") and not verb.endswith("ss") else verb


def _state(rest: list[str]) -> bool | None:
    """Tell whether what somebody is lasts: "afraid of dogs", "a night owl", "trying to avoid plastic"."""
    word, after = rest[0], rest[1:]
    if word in ("a", "an", "the", "of", "two", "three"):
        return False if after and after[0] not in known.MOMENT else None
    if word.endswith("ing") and word not in ("morning", "evening"):
        if word == "trying":
            aim = after[1] if after[:1] == ["to"] and len(after) > 1 else "get"
            return (
                None
                if aim in known.PASSING | known.OF_SCREENS
                else aim in ("avoid", "cut", "eat", "drink", "quit", "stop")
            )
        if word == "getting":
            return False if {"married", "divorced", "old", "older"} & set(after) else None
        return False if word in known.LASTING_ACTS and after else None
    has_preposition = bool(after) and after[0] in known.PREPOSITIONS
    if word in known.LASTING:
        about = after[1:2] if has_preposition else after[:1] if word in ("into", "off") else []
        is_whole = bool(about) and not {*about, after[-1]} & known.VAGUE
        return True if is_whole else None
    if word in known.MOMENT or word in known.PASSING or (has_preposition and {*after[1:2]} & known.VAGUE):
        return None
    if word.endswith("ed"):
        return word in known.FELT if word in known.FELT | known.SETTLED or "-" in word else None
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
    while after and after[0] in known.PARTICLES | {"a", "an", "the", "my", "all"}:
        after = after[1:]
    if not after or after[0] in known.VAGUE:
        return False
    if rest[0] in ("went", "gone", "turned", "took", "taken", "cut", "gave", "given"):
        return bool(particle) or known.CONDITION.match(after[0]) is not None
    return True


def _habit(rest: list[str], verb: str, plain: str, said: _Predicate) -> bool | None:
    """Tell whether a verb in the present is what somebody does in general, and no act, thought or request."""
    written, after = rest[0], rest[1:]
    if verb in known.ALONE and not written.endswith("ed"):
        return False
    if verb == "get" and not said.adverbs & known.HABIT:
        is_state = after and after[0] not in known.VAGUE | known.OWNERS | known.NO_STATE and not after[0].endswith("ed")
        return False if is_state else None
    if written in known.EITHER and (said.adverbs & known.HABIT or known.REGULAR.search(plain)):
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
        and after[0] not in known.VAGUE | known.OWNERS | {"the", "anything", "so", "much"}
    ):
        return False
    if written in ("started", "begun", "began"):
        return False if after and after[0].endswith("ing") else None
    if written in ("learned", "learnt") and said.negated:
        return False
    if written in known.PAST or (written.endswith("ed") and written not in ("need", "feed", "breed")):
        return None
    if verb in ("have", "ha") and not said.modal:
        noun = next((word for word in after if word not in ("a", "an", "no", "very", "two", "three", "any", "bad")), "")
        is_passing = (
            {"the", "my", "our", "to", noun, *after[:3]}
            & (known.OWNED | known.VAGUE | {"the", "my", "our"})
            & set(after[:3])
        )
        return None if not noun or is_passing or noun.endswith(("ed", "en")) else False
    after = after[1:] if after[:1] == ["to"] else after
    if not after or after[0] in known.VAGUE or after == ["now"]:
        return None
    if said.adverbs & known.HABIT or known.REGULAR.search(plain):
        return (
            None if verb in ("want", "need", "have", "think", "mean", "say", "know", "see", "worry", "hope") else True
        )
    if verb == "need":
        return False if {"when", "whenever", "because"} & set(after[1:]) and rest[1] != "to" else None
    return None if verb in known.PASSING else False
