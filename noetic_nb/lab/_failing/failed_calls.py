"""Calls that went wrong, or stood in the way of what was wanted later."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Final

from noetic_nb.lab._failing.seen_steps import Evidence
from noetic_nb.lab._failing.steps import Step, Thread

_OBJECTS: Final = re.compile(
    r"^\s*no\b|\b(?:only wanted|didn['’]t (?:want|ask)|don['’]t want|not what|wrong|mistake|instead of|rather not|prefer not"
    r"|not the (?:whole|entire)|undo|revert|take (?:it|that) back)\b",
    re.IGNORECASE,
)
_REFUSES: Final = re.compile(
    r"\b(?:cannot|can['’]?t|unable|unfortunately|not possible|already|no longer)\b", re.IGNORECASE
)
_STOPS: Final = re.compile(
    r"###\s*[A-Z-]+\s*###|\b(?:bye|goodbye|thanks|thank you|that['’]s all|that is all|all set)\b", re.IGNORECASE
)
_WANTS: Final = re.compile(
    r"\b(?:go ahead|proceed|finali[sz]e|please (?:do|make|process|cancel|return|exchange|change|update|book|pay))\b",
    re.IGNORECASE,
)
_CHANGES: Final = re.compile(
    r"\b(?:might as well|chang\w* my mind|never ?mind|on second thought"
    r"|(?:do ?n['’]t|no longer) (?:need|want) .{0,40}\bany ?more)\b",
    re.IGNORECASE,
)
_OFTEN: Final = 3
_STATES: Final = 5


def in_the_way(thread: Thread) -> Iterator[Evidence]:
    """Yield writes that the user objected to and the agent could not take back, and those that made a later call fail."""
    done: list[Step] = []
    was_done: set[int] = set()
    for at, step in enumerate(thread.steps):
        if step.kind == "call" and step.writes and step.result is not None:
            if not step.failed:
                done.append(step)
                was_done.add(step.item)
                continue
            about = {other.item: other for name in step.names for other in thread.calls_about[name]}
            for other in (about[item] for item in sorted(about, reverse=True) if item in was_done):
                if changed := _changed(thread, other, step.names, step.result.text):
                    said = f"It changed {changed}, and then {step.name} failed: {step.result.text:.100}"
                    yield Evidence(other, "in the way of a later call", said)
                    break
        elif step.kind == "user" and done and _OBJECTS.search(step.text):
            answer = next((other for other in thread.steps[at + 1 :] if other.kind != "result"), None)
            if answer is not None and answer.kind == "text" and _REFUSES.search(answer.text):
                yield Evidence(
                    done[-1], "the user objects", f"{step.text!r:.100}, and it cannot be undone: {answer.text!r:.80}"
                )


def _changed(thread: Thread, write: Step, names: frozenset[str], error: str) -> str:
    """Return the field that a write changed of something with one of these names, if the error has a word of it."""
    if write.result is None:
        return ""
    for name in sorted(names & write.result.names):
        known = thread.having.get(name, ())
        after = [record for item, record in known if item == write.result.item]
        # The newest state before the write, result by result.
        before = [record for item, record in known if item < write.item][::-1][:_STATES]
        for record, old in product(after, before):
            for key, value in record.items():
                was = old.get(key, value)
                if isinstance(value, str) and isinstance(was, str) and was != value:
                    words = re.findall(r"[a-z]{4,}", f"{was} {value}".lower())
                    if any(word in error.lower() for word in words):
                        return f"{key} from {was!r} to {value!r}"
    return ""


def not_recovered(thread: Thread) -> Iterator[Evidence]:
    """Yield failed writes after which nothing did what they were for."""
    for at, step in enumerate(thread.calls):
        if not step.failed or not step.writes or step.result is None:
            continue
        wanted = step.names
        later = [
            other for other in thread.calls[at + 1 :] if other.writes and other.result is not None and not other.failed
        ]
        if not any(len(wanted & other.names) * 2 > len(wanted) for other in later):
            yield Evidence(
                step,
                "an error ignored",
                f"{step.name} failed, and nothing after it did the same: {step.result.text:.100}",
            )


def repeated(thread: Thread) -> Iterator[Evidence]:
    """Yield the second of several equal calls with equal results, without a word of the user between them."""
    seen: dict[tuple[str, str, str], list[Step]] = {}
    for step in thread.steps:
        if step.kind == "user":
            seen.clear()
        elif step.kind == "call" and step.result is not None:
            key = step.name, json.dumps(step.args, sort_keys=True, default=str), step.result.text
            same = seen.setdefault(key, [])
            same.append(step)
            if len(same) == _OFTEN or (step.failed and len(same) > 1):
                yield Evidence(
                    same[1],
                    "a repeated call",
                    f"{step.name} was called {len(same)} times with the same arguments and result.",
                )


def not_read(thread: Thread) -> Iterator[Evidence]:
    """Yield writes about a thing that no result before has shown."""
    for step in thread.calls:
        if step.writes and step.result is not None:
            known = thread.results_with
            unread = {name for name in step.names if name not in known or known[name][0].item > step.item}
            if unread and unread == step.names:
                named = ", ".join(sorted(unread)[:3])
                yield Evidence(
                    step, "a write before a read", f"{step.name} is about {named}, which no result before it shows."
                )


def unanswered(thread: Thread) -> Iterator[Evidence]:
    """Yield the last words of the user, where nothing follows them although they want something done, or say no farewell."""
    last = thread.steps[-1] if thread.steps else None
    if last is None or last.kind != "user" or not thread.before(last, "text", "call"):
        return
    if _WANTS.search(last.text) or not _STOPS.search(last.text):
        yield Evidence(last, "no answer", f"The recording ends with it: {last.text!r:.100}")


def changes_of_wish(thread: Thread) -> Iterator[Evidence]:
    """Yield words with which the user takes back an earlier wish, where a write follows them."""
    first = next((step.item for step in thread.steps if step.kind == "user"), 0)
    for step in thread.steps:
        acted_on = any(call.item > step.item and call.writes and not call.failed for call in thread.calls)
        if acted_on and step.kind == "user" and step.item > first and _CHANGES.search(step.text):
            yield Evidence(step, "the user changes the wish", f"{step.text!r:.120}")
