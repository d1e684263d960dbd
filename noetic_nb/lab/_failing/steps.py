"""A thread as steps: its texts, calls and results in order, with the subject of each call."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from noetic_nb.items import item_text
from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import appended, tool_calls


class Evidence(NamedTuple):
    """A step with a reason to look there, and a description."""

    step: Step
    reason: str
    text: str


# First words of the names of tools that only read, or only think.
_LOOKS: Final = (
    "calculate check compute count describe estimate fetch find get inspect list load look lookup preview query read retrieve "
    "search show think transfer verify view"
)
_READS: Final = frozenset(_LOOKS.split())
_FAILED: Final = re.compile(r"\s*[\"'{\[]*\s*(?:error|exception|traceback|failed|failure)\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[a-z]+|[A-Z][a-z]*")
_NAMED: Final = re.compile(r"#?[\w-]*\d[\w-]*")
# Sizes and dates are not names: 15-inch, 512GB, 2024-05-20.
_MEASURED: Final = re.compile(r"\d+-?[A-Za-z]+|\d{4}-\d\d-\d\d\S*")
_SHORTEST_NAME: Final = 6

Kind = Literal["user", "text", "call", "result"]


@dataclass(slots=True)
class Step:
    """An item of a thread: a text of the user or agent, a tool call, or its result."""

    item: int
    turn: int
    kind: Kind
    text: str
    name: str = ""
    args: Any = None
    call_id: str = ""
    result: Step | None = None
    """The result of a call."""
    place: int | None = None
    """The index of a call among the run's tool calls."""
    seq: int = -1
    """The event that settled a call."""
    status: str = ""
    names: frozenset[str] = frozenset()
    """The identifiers in its text, or in a call's arguments."""

    @property
    def failed(self) -> bool:
        """Whether a call has failed, by its status or the first word of its result."""
        is_told = self.status not in ("", "ok", "unknown")
        return self.kind == "call" and (is_told or (self.result is not None and bool(_FAILED.match(self.result.text))))

    @property
    def writes(self) -> bool:
        """Whether a call may change state, by the name of its tool."""
        words = [word.lower() for word in _WORD.findall(self.name)]
        return self.kind == "call" and not _READS & set(words[:1])


@dataclass
class Thread:
    thread_id: str
    steps: list[Step] = field(default_factory=list)

    @cached_property
    def calls(self) -> list[Step]:
        return [step for step in self.steps if step.kind == "call"]

    @cached_property
    def data(self) -> dict[int, Any]:
        return {
            step.item: data for step in self.steps if step.kind == "result" and (data := parsed(step.text)) is not None
        }

    @cached_property
    def having(self) -> dict[Any, list[tuple[int, Mapping[str, Any]]]]:
        """The records in results by each text and number directly in them, with the item of the result."""
        found: dict[Any, list[tuple[int, Mapping[str, Any]]]] = {}
        for item, data in self.data.items():
            for record in records(data):
                for leaf in {leaf for leaf in record.values() if isinstance(leaf, str | int | float)}:
                    if not isinstance(leaf, bool):
                        found.setdefault(leaf, []).append((item, record))
        return found

    @cached_property
    def truths(self) -> dict[str, int]:
        """The first item in which a boolean is true, by its key."""
        found: dict[str, int] = {}
        for item, data in self.data.items():
            for record in records(data):
                for key, value in record.items():
                    if value is True:
                        found.setdefault(key, item)
        return found

    @cached_property
    def calls_about(self) -> dict[str, list[Step]]:
        found: dict[str, list[Step]] = {}
        for call in self.calls:
            for name in call.names:
                found.setdefault(name, []).append(call)
        return found

    @cached_property
    def results_with(self) -> dict[str, list[Step]]:
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            for name in step.names if step.kind == "result" else ():
                found.setdefault(name, []).append(step)
        return found

    @cached_property
    def first_said(self) -> dict[str, int]:
        """The first item of the user or a tool that contains an identifier, ignoring case."""
        found: dict[str, int] = {}
        for step in self.steps:
            for name in step.names if step.kind in ("user", "result") else ():
                found.setdefault(name.strip("#").casefold(), step.item)
        return found

    def before(self, step: Step, *kinds: Kind) -> list[Step]:
        return [other for other in self.steps if other.item < step.item and other.kind in kinds]


def parsed(text: str) -> Any:
    """Return a result as data, or None if it is not a JSON object or list."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def leaves(value: Any) -> Iterator[Any]:
    """Yield the texts, numbers and booleans in a value."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Mapping):
            waiting += found.values()
        elif isinstance(found, Sequence) and not isinstance(found, str):
            waiting += found
        elif found is not None:
            yield found


def records(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings in a value, outer ones first."""
    waiting = [value]
    while waiting:
        found = waiting.pop(0)
        if isinstance(found, Mapping):
            yield found
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def names_in(value: Any) -> set[str]:
    """Return the identifiers in a value: words with a digit and a minimum length."""
    found = {text for leaf in leaves(value) if isinstance(leaf, str) for text in _NAMED.findall(leaf)}
    return {text for text in found if len(text) >= _SHORTEST_NAME and not _MEASURED.fullmatch(text)}


def threads_of(run: Run) -> Iterator[Thread]:
    """Yield the threads of a run whose log was recorded from its start."""
    settled = {call.call_id: (place, seq, call) for place, (seq, call) in enumerate(tool_calls(run))}
    for thread_id in run.threads:
        thread = Thread(thread_id)
        items: dict[int, tuple[int, Any]] = {}
        here = [event for _, event in appended(run) if event.where.thread_id == thread_id]
        depth = min([event.where.depth for event in here], default=0)
        for event in here:
            if event.where.depth == depth:
                items |= {event.start + at: (event.where.turn, item) for at, item in enumerate(event.items)}
        open_: dict[str, Step] = {}
        for number, (turn, item) in sorted(items.items()):
            step = _step(number, turn, item)
            if step is None:
                continue
            if step.kind == "call":
                if step.call_id in settled:
                    step.place, step.seq, call = settled[step.call_id]
                    step.status = call.status
                open_[step.call_id] = step
            elif step.kind == "result" and step.call_id in open_:
                open_[step.call_id].result = step
            step.names = frozenset(names_in(step.args if step.kind == "call" else step.text))
            thread.steps.append(step)
        yield thread


def _step(number: int, turn: int, item: Any) -> Step | None:
    match item["type"]:
        case "message" if item.get("role") in ("user", "assistant"):
            text = item_text(item)
            kind: Kind = "user" if item["role"] == "user" else "text"
            return Step(number, turn, kind, text) if text.strip() else None
        case "function_call":
            args = parsed(item.get("arguments") or "")
            return Step(number, turn, "call", "", item["name"], {} if args is None else args, item.get("callId") or "")
        case "function_call_output":
            output = item.get("output")
            return Step(
                number,
                turn,
                "result",
                output if isinstance(output, str) else item_text(item),
                call_id=item.get("callId") or "",
            )
    return None
