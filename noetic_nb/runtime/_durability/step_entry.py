"""The stored end of a step and how it is reused, and the tree of a turn's step records.

The model's text and calls are already in the log: an entry that would be too large refers to their position there. An
output that was parsed from a model's text is parsed again, so that its type is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from noetic_nb.items import Item, assistant_text, dump_item
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._registry import DEFAULT_REGISTRY
from noetic_nb.models._client import Usage
from noetic_nb.runtime._context.messages import TurnInput
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._durability.corruption import amount, count, mapping
from noetic_nb.runtime._durability.snapshot import Spent, place_of, stored_usage
from noetic_nb.steps import Step
from noetic_nb.steps._loops import StepMeta
from noetic_nb.steps._output_codec import parse_output
from noetic_nb.storage import JsonValue

_NONE: Final[Mapping[int, Mapping[str, Any]]] = {}


class StepRecord:
    """The record of a step and everything inside it, dropped once its end is stored; the path of a root is empty."""

    # Class defaults, because most steps set only a few of these.
    execution: object | None = None
    """The record of its execution; None until this process runs it."""
    entry: Mapping[str, Any] | None = None
    """Its end, as recorded by an earlier process."""
    failures: Mapping[int, Mapping[str, Any]] = _NONE
    """For a loop: the failed iterations that an earlier process handled, by number."""
    is_open_llm = False
    """Whether it is an llm step that is running or has failed."""
    ends_at_once = False
    """Whether it ends or starts its next step as soon as an inner step ends, with no user code in between."""
    text: str | None = None
    """The model's text from which its output was parsed."""

    def __init__(self, parent: StepRecord | None = None, frame: str = "") -> None:
        self.parent = parent
        self.frame = frame
        self.path: str = "" if parent is None else f"{parent.path}/{frame}"
        self.below: dict[str, StepRecord] = {}

    def clear(self) -> None:
        self.below, self.entry, self.failures = {}, None, _NONE

    def take_apart(self) -> None:
        """Break the reference cycles between steps, which only the garbage collector would find."""
        waiting = [self]
        while waiting:
            step = waiting.pop()
            if step.below:
                waiting += step.below.values()
                step.below = {}

    def drop(self) -> None:
        """Remove the step and all steps inside it from the tree."""
        if self.parent is not None and self.parent.below.get(self.frame) is self:
            del self.parent.below[self.frame]

    def at(self, frames: Iterable[str]) -> StepRecord:
        """Return the step at the end of a path that starts here, creating missing steps."""
        step = self
        for frame in frames:
            found = step.below.get(frame)
            if found is None:
                found = step.below[frame] = StepRecord(step, frame)
            step = found
        return step

    def at_path(self, path: str) -> StepRecord:
        """Return the step at a stored path; call this on the root of a turn."""
        return self.at(path.split("/")[1:])

    def subtree(self) -> Iterator[StepRecord]:
        waiting = [self]
        while waiting:
            step = waiting.pop()
            yield step
            waiting.extend(step.below.values())

    def around(self) -> Iterator[StepRecord]:
        step = self.parent
        while step is not None:
            yield step
            step = step.parent

    def has_entry_inside(self) -> bool:
        """Tell whether an earlier process recorded the end of any step inside this one."""
        return any(step is not self and (step.entry is not None or step.failures) for step in self.subtree())

    def __repr__(self) -> str:
        return f"StepRecord({self.path!r})"


# Steps of these kinds run others in the same execution, which can change the last model call.
_WITH_META: Final = ("llm", "loop", "branch", "run")


def entry_data(
    path: str, step: Step, output: Any, ctx: RunningExecution, *, text: str | None, max_bytes: int
) -> dict[str, Any] | None:
    """Return a step's end, in at most `max_bytes`, with the `text` its output was parsed from; None if it cannot be recorded."""
    root = ctx.root
    spent: list[list[float | None]] = []
    above: RunningExecution | None = ctx
    while above is not None:
        spent.append([*above.tokens, above.cost])
        above = above.parent
    entry: dict[str, Any] = {
        "path": path,
        "stepId": step.id,
        "kind": step.kind,
        "depth": ctx.depth,
        # Names the record that must know this entry's number before the entry counts; see `read_turn`.
        "in": place_of(ctx),
        "completedAt": ctx.engine.clock.now_ms(),
        "elapsedMs": root.elapsed_ms,
        "spent": spent,
    }
    meta = ctx.last_step_meta
    if step.kind in _WITH_META and meta is not None:
        calls = [_position(ctx, item) for item in meta.tool_calls]
        entry["meta"] = {"toolCalls": calls, "finishReason": meta.finish_reason, **Spent(meta.usage, meta.cost).dump()}
    if isinstance(output, TurnInput):
        entry["turnInput"] = True
    if text is None:
        if not is_plain(output):
            return None
        entry["output"] = output
    else:
        entry["said"] = text
    if _size(entry) <= max_bytes:
        return entry
    logged = output if text is None and step.kind == "llm" else text
    position = None if type(logged) is not str else _position_of_text(ctx, logged)
    if position is None:
        return None
    entry.pop("output", None)
    entry["said"] = position
    entry["read"] = text is not None
    return entry if _size(entry) <= max_bytes else None


def check_entry(entry: JsonValue) -> None:
    """Raise for an invalid entry; if it were ignored, its step would run, and cost money, twice."""
    for name in ("path", "stepId", "kind"):
        if not isinstance(entry[name], str):
            raise TypeError(f"{name!r} is not text")
    amount(entry["elapsedMs"], "elapsedMs")
    for level in entry["spent"]:
        _usage_and_cost(level)
    if "places" in entry:
        places = mapping(entry, "places")
        for place in places:
            count(places[place], place)
        # A loop's response to a failure; the path ends with the number of the iteration.
        if not isinstance(entry["output"], str) or not entry["path"].rpartition("!")[2].isdecimal():
            raise ValueError("a failed iteration has no number or no answer")
    elif "said" not in entry:
        if not is_plain(entry["output"]):
            raise ValueError("'output' is no JSON data")
    elif not isinstance(entry["said"], str):
        count(entry["said"], "said")
    if entry.get("meta") is not None:
        Spent.read(entry["meta"])


def _usage_and_cost(level: Sequence[Any]) -> tuple[Usage, float]:
    *tokens, cost = level
    return stored_usage(tokens), amount(cost, "cost")


def is_plain(value: Any) -> bool:
    """Tell whether a value survives a JSON round trip unchanged."""
    try:
        # Compared, not just dumped: a tuple would come back as a list, an integer key as text, an enum as its value.
        return _is_same(json.loads(json.dumps(value, allow_nan=False)), value)
    except (TypeError, ValueError, RecursionError):
        return False


def _is_same(read: Any, value: Any) -> bool:
    if isinstance(read, list):
        return type(value) is list and len(value) == len(read) and all(map(_is_same, read, value))
    if isinstance(read, dict):
        # A frozen mapping reads like a dict and may come back as one; a `defaultdict` would lose its default.
        is_mapping = (type(value) is dict or isinstance(value, FrozenDict)) and len(value) == len(read)
        return is_mapping and all(type(key) is str and key in read and _is_same(read[key], value[key]) for key in value)
    # The text of a turn comes back as a `TurnInput`; see `output_of`.
    return type(read) is (str if type(value) is TurnInput else type(value)) and bool(read == value)


def output_of(entry: Mapping[str, Any], step: Step, ctx: RunningExecution, first: int) -> Any:
    """Return the output recorded in an entry; `first` is where the turn begins in the log."""
    if entry.get("turnInput"):
        log = ctx.root.item_log
        return TurnInput(entry["output"], log[first] if first < len(log) else None, first)
    if "said" not in entry:
        return entry["output"]
    said = entry["said"]
    text = said if isinstance(said, str) else assistant_text([ctx.item_log[said]])
    output = getattr(step, "output", None)
    return text if output is None or not entry.get("read", True) else parse_output(output, text, step.id, None)


def restore_meta(entry: Mapping[str, Any], ctx: RunningExecution) -> None:
    """Restore the metadata of the last model call at that time."""
    meta = entry.get("meta")
    if meta is not None:
        calls = tuple(
            [
                ctx.item_log[item] if isinstance(item, int) else DEFAULT_REGISTRY.parse_kept(item)
                for item in meta["toolCalls"]
            ]
        )
        spent = Spent.read(meta)
        ctx.last_step_meta = StepMeta(calls, spent.usage, spent.cost, (), meta.get("finishReason"))


def spent_by(entry: Mapping[str, Any], level: int) -> tuple[Usage, float]:
    """Return the spending when the step ended, of the execution `level` levels above its own."""
    return _usage_and_cost(entry["spent"][level])


# Searched from the end, because the calls of the last model call are among the newest items; by identity, which is
# faster than comparing and never mistakes one call for another.
def _position(ctx: RunningExecution, item: Item) -> int | dict[str, Any]:
    """Return the position of an item in the log, or the item itself if it is missing."""
    for position in range(len(ctx.item_log) - 1, -1, -1):
        if ctx.item_log[position] is item:
            return position
    return dump_item(item)


def _position_of_text(ctx: RunningExecution, text: str) -> int | None:
    for position in range(len(ctx.item_log) - 1, -1, -1):
        item = ctx.item_log[position]
        if item.get("role") == "assistant" and assistant_text([item]) == text:
            return position
    return None


def _size(entry: Mapping[str, Any] | Sequence[Any]) -> int:
    # With everything escaped to ASCII, a character is a byte, and a store's UTF-8 is never longer.
    return len(json.dumps(entry, allow_nan=False))
