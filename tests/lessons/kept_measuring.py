"""Kept answers to the exercises on measuring memory; ten of those that are too short for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from noetic_nb.lessons._measuring_exercises import is_told, shared_words

# 9.1: whose is it


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def sentences(sent: Sequence[str], ends: str = r"[.!?;](?=\s|$)") -> list[str]:
    return [sentence for text in sent for sentence in re.split(ends, text)]


def evident(
    parts: Callable[[Sequence[str]], list[str]] = sentences,
    within: Callable[[str, str], bool] = lambda name, text: (
        f" {' '.join(words(name))} " in f" {' '.join(words(text))} "
    ),
    *,
    owns: bool = True,
    alone: bool = True,
) -> Callable[[Any, str, Any, str], bool]:
    def answer(sent: Any, owner: str, others: Any, value: str) -> bool:
        return any(
            within(value, part)
            and (within(owner, part) or not owns)
            and not (alone and any(within(name, part) for name in others))
            for part in parts(sent)
        )

    return answer


def by_regex(sent: Sequence[str], owner: str, others: Collection[str], value: str) -> bool:
    def names(name: str, text: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None

    return any(
        names(owner, one) and names(value, one) and not any(names(name, one) for name in others)
        for one in sentences(sent)
    )


# 9.2: words in common


def overlap(
    question: str, message: str, stop: Any, *, text: Callable[[str], Any] = words, of: str = "question"
) -> float:
    asked, told = set(text(question)) - set(stop), set(text(message)) - set(stop)
    base = {"question": asked, "message": told, "both": asked | told}[of]
    return len(asked & told) / len(base) if base else 0.0


def one_by_one(question: str, message: str, stop: Any) -> float:
    found: dict[str, bool] = {}
    for word in words(question):
        if word not in stop:
            found[word] = word in words(message)
    return sum(found.values()) / max(len(found), 1)


# 9.3: a summary that forgets

TOLD = r"The (.+) of (\w+) is (now )?(\w+)\."
GONE = r"Please forget the (.+) of (\w+)\."


def summed(
    messages: Sequence[str],
    *,
    key: Callable[[str, str], Any] = lambda thing, who: (thing, who),
    line: str = "The {} of {} is {}.",
    newest: bool = True,
    forgets: bool = True,
    forever: bool = False,
    corrects: bool = True,
) -> str:
    facts: dict[Any, tuple[str, str, str]] = {}
    banned = set()
    for message in messages:
        if told := re.fullmatch(TOLD, message):
            at = key(told[1], told[2])
            if at not in banned and (newest or at not in facts) and (corrects or not told[3]):
                facts[at] = (told[1], told[2], told[4])
        elif (gone := re.fullmatch(GONE, message)) and forgets:
            facts.pop(key(gone[1], gone[2]), None)
            banned |= {key(gone[1], gone[2])} if forever else set()
    return "\n".join(line.format(*fact) for fact in facts.values())


def backwards(messages: Sequence[str]) -> str:
    known, lines = set(), []
    for message in reversed(messages):
        found = re.search(r"(?:The|the) (.+) of (\w+)", message)
        if not found or found.groups() in known or not re.match("The |Please forget", message):
            continue
        known.add(found.groups())
        lines += [] if "forget" in message else [message]
    return "\n".join(lines)


def kept(keeps: Callable[[str], Any], last: int = 1000) -> Callable[[Sequence[str]], str]:
    return lambda messages: "\n".join([text for text in messages if keeps(text)][-last:])


RIGHT: dict[str, dict[str, Any]] = {
    "9.1": {"whole words": evident(), "a regular expression": by_regex, "the library's": is_told},
    "9.2": {"sets": overlap, "one by one": one_by_one, "the library's": shared_words},
    "9.3": {
        "a dictionary": summed,
        "from the end": backwards,
        "notes": lambda messages: summed(messages, line="{1}: {0} {2}"),
    },
}

WRONG: dict[str, dict[str, Any]] = {
    "9.1": {
        "off by one": evident(lambda sent: sentences(sent, r"[.!?;]")),
        "inverted": lambda *given: not is_told(*given),
        "hard-coded": lambda sent, owner, others, value: "locker" in " ".join(sent),
        "right value by the wrong rule": lambda sent, owner, others, value: value in " ".join(sent),
        "a whole text": evident(list),
        "all texts": evident(lambda sent: [" ".join(sent)]),
        "whoever owns it": evident(owns=False),
        "whoever else is named": evident(alone=False),
        "parts of words": evident(within=lambda name, text: name.lower() in text.lower()),
        "with case": evident(within=lambda name, text: name in re.findall(r"[\w.]+(?<!\.)", text)),
        "blanks alone": evident(within=lambda name, text: name in text.split()),
        "always": lambda *given: True,
        "never": lambda *given: False,
        "the first sentence": evident(lambda sent: sentences(sent)[:1]),
    },
    "9.2": {
        "off by one": lambda question, message, stop: overlap(question, message, {*stop, words(question)[0]}) * 0.99,
        "inverted": lambda question, message, stop: 1 - overlap(question, message, stop),
        "hard-coded": lambda question, message, stop: 0.5,
        "right value by the wrong rule": lambda question, message, stop: overlap(question, message, ()),
        "share of the message": lambda *given: overlap(*given, of="message"),
        "share of both": lambda *given: overlap(*given, of="both"),
        "other way round": lambda question, message, stop: overlap(message, question, stop),
        "with case": lambda *given: overlap(*given, text=lambda text: re.findall(r"\w+", text)),
        "with punctuation": lambda *given: overlap(*given, text=lambda text: text.lower().split()),
        "letters": lambda *given: overlap(*given, text=lambda text: text.lower()),
        "how many": lambda question, message, stop: len(set(words(question)) & set(words(message)) - set(stop)),
        "repeated words": lambda question, message, stop: (
            sum(word in words(message) for word in words(question) if word not in stop)
            / max(1, sum(word not in stop for word in words(question)))
        ),
        "parts of words": lambda question, message, stop: (
            sum(word in message.lower() for word in set(words(question)) - stop)
            / max(1, len(set(words(question)) - stop))
        ),
        "without words 1": lambda question, message, stop: (
            overlap(question, message, stop) if set(words(question)) - stop else 1.0
        ),
    },
    "9.3": {
        "off by one": lambda messages: summed(messages[:-1]),
        "inverted": lambda messages: summed(messages, newest=False),
        "hard-coded": lambda messages: "The locker code of Ann is 2048.",
        "right value by the wrong rule": lambda messages: summed(messages, line="The {0} is {2}."),
        "nothing": lambda messages: "",
        "the newest messages": kept(lambda text: True, 7),
        "the newest facts": kept(lambda text: re.fullmatch(TOLD, text), 5),
        "every fact": kept(lambda text: re.fullmatch(TOLD, text)),
        "digits": kept(lambda text: re.search(r"\d", text)),
        "corrections alone": kept(lambda text: " is now " in text),
        "never forgets": lambda messages: summed(messages, forgets=False),
        "forgets for ever": lambda messages: summed(messages, forever=True),
        "takes no correction": lambda messages: summed(messages, corrects=False),
        "by thing": lambda messages: summed(messages, key=lambda thing, who: thing),
        "by owner": lambda messages: summed(messages, key=lambda thing, who: who),
        "values": lambda messages: summed(messages, line="{2}"),
        "in one sentence": lambda messages: summed(messages).replace(".\n", " and "),
        "lines": lambda messages: summed(messages).splitlines(),
    },
}
