"""Texts and arguments that contradict a result: numbers that nothing has, denials, values of something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from noetic_nb.lab._failing.seen_steps import Evidence
from noetic_nb.lab._failing.steps import Step, Thread, leaves, names_in, records

_SENTENCE: Final = re.compile(r"(?:[^.!?\n\\]|[.!?](?=\w)|\\(?!n))+")
_COUNTED: Final = re.compile(
    r"\b(?:there (?:are|is)|we have|you have|i found|i see|found|total of)\b[^.!?:\n]{0,30}?"
    r"\b(\d{1,4})((?: [a-z][\w-]*){0,2} [a-z][\w-]*s\b)",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(
    r"\b(?:(?:does|do|did|is|are|has|have)(?: not|n['’]t)(?: currently| yet)? (?:have|contain|include)"
    r"|(?:has|have) no|there (?:is|are) no)\b((?: (?!because|that|which|in|on|for|at|so|to|from|until)[\w-]+){1,4})",
    re.IGNORECASE,
)
_GIVEN: Final = re.compile(r"(.{3,100}) (?:is|are|was)\b:?\W*([#\w-]*\d[\w-]*)\W*$")
_FURTHER: Final = re.compile(r"\b(?:other|another|more|further|additional)\b", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d+\.\d+")
_LEAST: Final = 3  # records that are worth a count
_LONG_WORD: Final = 4


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"[a-z]+", text.lower()) if len(word) >= _LONG_WORD}


def contradictions(thread: Thread) -> Iterator[Evidence]:
    """Yield the texts and the calls of a thread that contradict a result before them."""
    for step in thread.steps:
        if step.kind == "text":
            yield from _miscounted(thread, step)
            yield from _denied(thread, step)
            yield from _of_another(thread, step)
        elif step.kind == "call" and not step.failed:
            yield from _ruled_out(thread, step)


def _miscounted(thread: Thread, step: Step) -> Iterator[Evidence]:
    """Find a number of things that is neither that of a listed result, nor that of the entries which share a value."""
    since = max([other.item for other in thread.before(step, "user", "text")], default=-1)
    calls = [call for call in thread.calls if call.result is not None and since < call.result.item < step.item]
    listed = [
        (call, thread.data[call.result.item]) for call in calls if call.result and call.result.item in thread.data
    ]
    groups = [group for _, data in listed for group in _groups(data)]
    if not groups:
        return
    told = " ".join([f"{call.name} {call.result.text}" for call, _ in listed if call.result]).lower()
    right = {count for group in groups for count in _counts(group)}
    for match in _COUNTED.finditer(step.text):
        number = int(match[1])
        is_of_them = any(word in told for word in _words(match[2]))
        if is_of_them and number not in right and number > min(map(max, map(_shared, groups))):
            sizes = ", ".join(map(str, sorted(right)[-3:]))
            yield Evidence(
                step, "contradicts a result", f"It says {match[0].strip()!r}; the result has {sizes} such entries."
            )
            return


def _groups(data: Any) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the collections of a result: lists of records, and mappings to records."""
    waiting = [data]
    while waiting:
        found = waiting.pop()
        inner = list(found.values()) if isinstance(found, Mapping) else found if isinstance(found, list) else []
        if len(inner) >= _LEAST and all(isinstance(each, Mapping) for each in inner):
            yield inner
        waiting += [each for each in inner if isinstance(each, Mapping | list)]


def _flags(group: list[Mapping[str, Any]]) -> Iterator[int]:
    for key in {key for each in group for key, value in each.items() if isinstance(value, bool)}:
        holds = sum(each.get(key) is True for each in group)
        yield from (holds, len(group) - holds)


def _counts(group: list[Mapping[str, Any]]) -> set[int]:
    return {len(group), *_flags(group), *_shared(group)}


def _shared(group: list[Mapping[str, Any]]) -> set[int]:
    """Return how many entries have a value in common, for each value that some have."""
    counts: dict[str, int] = {}
    for each in group:
        for value in {str(leaf).lower() for leaf in leaves(each) if not isinstance(leaf, bool)}:
            counts[value] = counts.get(value, 0) + 1
    return {count for count in counts.values() if count < len(group)} or {0}


def _denied(thread: Thread, step: Step) -> Iterator[Evidence]:
    """Find a denial of something that a result has."""
    for match in _SENTENCE.finditer(step.text):
        denial = _DENIED.search(match[0])
        about = names_in(match[0])
        # Other ones, or more of them, are not those that a result shows.
        wanted = _words(denial[1]) if denial is not None and not _FURTHER.search(denial[1]) else set()
        if denial is None or not about or not wanted:
            continue
        calls = {call.item: call for name in about for call in thread.calls_about.get(name, ())}
        for _, call in sorted(calls.items()):
            shown = call.result is not None and call.result.item < step.item
            data = thread.data.get(call.result.item) if shown and call.result is not None else None
            for record in records(data):
                for key, value in record.items():
                    is_there = value not in (None, "", [], {}, False, 0) and not about & names_in(value)
                    if is_there and wanted & _words(key.replace("_", " ")):
                        yield Evidence(
                            step,
                            "contradicts a result",
                            f"It denies {denial[1].strip()!r}; the result has {key} = {value!r:.60}.",
                        )
                        return


def _of_another(thread: Thread, step: Step) -> Iterator[Evidence]:
    """Find a value that is given for something which no result with the value mentions, though another does."""
    asked = {word for other in thread.before(step, "user")[-2:] for word in _words(other.text)}
    for match in _SENTENCE.finditer(step.text):
        given = _GIVEN.search(match[0])
        about = asked & _words(given[1]) if given else set()
        for name in names_in(given[2]) if given and about else ():
            # What the user named, or a call was about, is there to say of what the text is.
            if any(name in other.names for other in thread.before(step, "user")) or name in thread.calls_about:
                continue
            sources = [other for other in thread.results_with.get(name, ()) if other.item < step.item]
            told = {word for other in sources for word in _words(other.text)}
            others = {
                word for other in thread.steps if sources and other.kind == "result" for word in _words(other.text)
            }
            missing = (about - told) & others
            if sources and missing:
                named = ", ".join(sorted(missing))
                yield Evidence(
                    step, "contradicts a result", f"It gives {name!r} for {named}; the result it is from mentions none."
                )
                return


def _ruled_out(thread: Thread, step: Step) -> Iterator[Evidence]:
    """Find an argument of entries that a result marks as false in something, such as not available, where others are true."""
    values: set[Any] = set(step.names)
    values |= {float(found) for leaf in leaves(step.args) if isinstance(leaf, str) for found in _NUMBER.findall(leaf)}
    values |= {float(leaf) for leaf in leaves(step.args) if isinstance(leaf, float)}
    for value in sorted(values, key=str):
        having = [record for item, record in thread.having.get(value, ()) if item < step.item]
        flags = [{key for key, flag in record.items() if flag is False} for record in having]
        shared = set.intersection(*flags) if flags else set()
        varied = [key for key in sorted(shared) if thread.truths.get(key, step.item) < step.item]
        if varied and (step.writes or isinstance(value, float)):
            yield Evidence(step, "contradicts a result", f"It uses {value!r}, of an entry whose {varied[0]} is false.")
            return
