"""The stored state of executions: of a turn, of each of its children, and of parts that are not read yet."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from noetic_nb.items import Item, ItemLog, ItemRegistry, dump_item, freeze, thaw
from noetic_nb.items._origins import Origin
from noetic_nb.items._registry import DEFAULT_REGISTRY
from noetic_nb.memory import PastCall
from noetic_nb.memory._enforcement import PENDING
from noetic_nb.models._client import NO_USAGE, Usage
from noetic_nb.runtime._config.config import Limits
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._durability.corruption import (
    MAX_COUNT,
    amount,
    count,
    mapping,
    noticing,
    text_or_none,
    unreadable,
)
from noetic_nb.runtime._durability.thread_log import Part, ThreadStore, origins_data, read_origins
from noetic_nb.runtime._durability.thread_writer import ThreadWriter, snapshot_key
from noetic_nb.storage import JsonValue

# Version 1 held the whole conversation; version 2 held no children, tool calls or limits.
VERSION: Final = 3

T = TypeVar("T")


def place_of(ctx: RunningExecution) -> str:
    """Return the path of the steps around an execution, which identifies it in its turn; empty for the root."""
    return "".join([f"/{frame}" for frame in ctx.base_frames])


@dataclass(frozen=True, slots=True)
class Spent:
    """The spending of an execution and its descendants."""

    usage: Usage = NO_USAGE
    cost: float = 0.0
    model_calls: int = 0
    priced: bool = False

    @classmethod
    def of(cls, ctx: RunningExecution) -> Spent:
        return cls(ctx.tokens, ctx.cost, ctx.model_calls, ctx.priced)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Spent:
        usage = stored_usage([data["tokens"].get(name) for name in Usage._fields])
        cost = amount(data["cost"], "cost")
        return cls(usage, cost, count(data["modelCalls"], "modelCalls"), bool(data.get("priced", cost > 0)))

    def dump(self) -> dict[str, Any]:
        data = {"tokens": self.usage._asdict(), "cost": self.cost, "modelCalls": self.model_calls}
        # A paid cost implies a known price: the key is for calls that are known to be free.
        return {**data, "priced": True} if self.priced and not self.cost else data

    def or_more(self, other: Spent) -> Spent:
        """Return the larger of two: spending only grows."""
        pairs = zip(self.usage, other.usage, strict=True)
        usage = Usage._make([max([count for count in pair if count is not None], default=None) for pair in pairs])
        calls = max(self.model_calls, other.model_calls)
        return Spent(usage, max(self.cost, other.cost), calls, self.priced or other.priced)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSnapshot:
    """The fields common to all executions."""

    sequence: int
    items: tuple[Item, ...]
    origins: Mapping[int, Origin]
    layers: Mapping[str, Any]
    state: Mapping[str, Any]
    spent: Spent
    steps: int
    tree_steps: int
    tool_calls: int
    calls: tuple[tuple[int | None, PastCall], ...]
    query: str
    loops: Mapping[str, Any]
    returned: Mapping[str, dict[str, Any]]

    def put_back(self, ctx: RunningExecution, spent: Spent) -> None:
        ctx.tokens, ctx.cost, ctx.model_calls = spent.usage, spent.cost, spent.model_calls
        ctx.priced = spent.priced
        ctx.step_count, ctx.tool_calls = self.steps, self.tool_calls
        ctx.calls = ctx.tree.calls.restore(self.calls)
        ctx.query = self.query


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSnapshot(ExecutionSnapshot):
    """The state of a child, whose items follow `inherited` ones of its parent; `above` is the spending of its ancestors."""

    place: str
    inherited: int
    above: Mapping[str, Spent]

    @classmethod
    def read(cls, data: JsonValue, execution_id: str, registry: ItemRegistry) -> ChildSnapshot:
        """Read the stored form; raises `NoeticConfigError` ``CHECKPOINT_SCHEMA_MISMATCH``."""
        return _read(
            lambda: cls(
                place=str(data["place"]),
                inherited=count(data["inherited"], "inherited"),
                above={place: Spent.read(spent) for place, spent in data["above"].items()},
                **_fields(data, registry),
            ),
            execution_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(ExecutionSnapshot):
    execution_id: str
    thread_id: str
    resource_id: str | None
    turn: int
    first: int
    parts: int
    recorded: int
    limits: Limits | None
    elapsed_ms: float

    @classmethod
    def read(cls, data: JsonValue, execution_id: str, registry: ItemRegistry = DEFAULT_REGISTRY) -> Snapshot:

        def read() -> Snapshot:
            if data["version"] != VERSION or data["executionId"] != execution_id:
                raise ValueError(f"version {data['version']!r}, execution {data['executionId']!r}")
            if not isinstance(data["threadId"], str):
                raise TypeError("the thread id is not text")
            return cls(
                execution_id=execution_id,
                thread_id=data["threadId"],
                resource_id=text_or_none(data, "resourceId"),
                turn=count(data["turn"], "turn"),
                first=count(data["first"], "first"),
                parts=count(data["parts"], "parts"),
                recorded=count(data["recorded"], "recorded"),
                limits=None if data["limits"] is None else Limits(**data["limits"]),
                elapsed_ms=amount(data["elapsedMs"], "elapsedMs"),
                **_fields(data, registry),
            )

        return _read(read, execution_id)


def _fields(data: JsonValue, registry: ItemRegistry) -> dict[str, Any]:
    items = tuple([registry.parse_kept(item) for item in data["itemLog"]["items"]])
    query = data["query"]
    if not isinstance(query, str):
        raise TypeError("'query' is not text")
    returned = mapping(data, "returned")
    return {
        "sequence": count(data["sequence"], "sequence"),
        "items": items,
        "origins": read_origins(data["itemLog"], len(items)),
        "layers": mapping(data, "layers"),
        "state": mapping(data, "state"),
        "spent": Spent.read(data),
        # Counts exclude steps that will run again, and a step may be abandoned: a temporary negative count is not damage.
        "steps": count(data["stepCount"], "stepCount", -MAX_COUNT),
        "tree_steps": count(data["treeSteps"], "treeSteps", -MAX_COUNT),
        "tool_calls": count(data["toolCalls"], "toolCalls", -MAX_COUNT),
        "calls": tuple([past_call(*call) for call in data["calls"]]),
        "query": query,
        "loops": {place: _began(numbers) for place, numbers in mapping(data, "loops").items()},
        "returned": {place: mapping(returned, place) for place in returned},
    }


def stored_usage(tokens: Sequence[Any]) -> Usage:
    """Return stored counts as usage; older snapshots have only the first three. Raises `ValueError` for other numbers."""
    if not 3 <= len(tokens) <= len(Usage._fields):
        raise ValueError("a usage must have three to five counts")
    sums = [count(token, "tokens") for token in tokens[:2]]
    return Usage(*sums, *[None if token is None else count(token, "tokens") for token in tokens[2:]])


def _began(numbers: JsonValue) -> list[Any]:
    """Return the spending at the start of a loop: the counts of `Usage`, dollars, milliseconds."""
    *tokens, cost, elapsed = numbers
    return [*stored_usage(tokens), amount(cost, "cost"), amount(elapsed, "elapsedMs")]


def past_call(
    name: str,
    args: JsonValue,
    call_id: str,
    status: str | None,
    output: str | None,
    execution_id: str = "",
    number: int | None = None,  # earlier versions stored neither
) -> tuple[int | None, PastCall]:
    """Return a stored tool call and its number in the history of the tree."""
    if not isinstance(name, str) or not isinstance(execution_id, str):
        raise TypeError("a past call has no name")
    if number is not None:
        count(number, "number")
    return number, PastCall(name, freeze(args), call_id, status, output, execution_id)


def _read(read: Callable[[], T], execution_id: str) -> T:
    with noticing_checkpoint(execution_id):
        return read()


def noticing_checkpoint(execution_id: str) -> AbstractContextManager[None]:
    """Turn any error from reading the records of an execution into ``CHECKPOINT_SCHEMA_MISMATCH``."""
    return noticing(
        "The checkpoint of this execution",
        execution_id,
        "written by another version; remove it with `await harness.clear_checkpoint(...)` and say it again.",
    )


def snapshot_data(
    ctx: RunningExecution,
    place: dict[str, Any],
    start: int,
    sequence: int,
    loops: Mapping[str, Any],
    returned: Mapping[str, Any],
    ended: int,
    again: tuple[int, int],
) -> dict[str, Any]:
    """Return the stored form of an execution whose own items begin at `start` in its log.

    `sequence` step ends have been written; `loops` and `returned` are by path; `ended` is 1 if a step has just ended
    and still counts as running; `again` counts ended steps that will run again, in this execution and in all.
    """
    state, root = ctx.engine.stack.state, ctx.root
    layers = [layer.id for layer in ctx.engine.stack.layers if state.has(ctx.id, layer.id)]
    return {
        **place,
        "sequence": sequence,
        "itemLog": {
            "items": [dump_item(item) for item in ctx.item_log.since(start)],
            **origins_data(ctx.item_log, start),
        },
        "layers": {layer_id: thaw(state.get(ctx.id, layer_id)) for layer_id in layers},
        "state": ctx.state,
        # Running steps, and steps that will run again, are counted then.
        "stepCount": ctx.step_count - ctx.running + ended - again[0],
        "treeSteps": ctx.tree.steps - _under_way(root) + ended - again[1],
        "toolCalls": ctx.tool_calls,
        # Calls that are pending or running will be made again.
        "calls": [
            [each.call.name, thaw(each.call.args), *each.call[2:], each.number]
            for each in ctx.calls
            if each.call.status != PENDING
        ],
        "query": ctx.query,
        "loops": loops,
        "returned": returned,
        "capturedAt": ctx.engine.clock.now_ms(),
        **Spent.of(ctx).dump(),
    }


def _under_way(ctx: RunningExecution) -> int:
    return ctx.running + sum(map(_under_way, ctx.children))


def turn_place(ctx: RunningExecution, first: int, writer: ThreadWriter) -> dict[str, Any]:
    """Return the turn, from `first` on in the log, and the number of items in storage; its snapshot holds the rest."""
    limits = ctx.tree.limits
    return {
        "version": VERSION,
        "executionId": ctx.id,
        "threadId": ctx.thread_id,
        "resourceId": ctx.resource_id,
        "turn": ctx.turn,
        "first": first,
        "parts": writer.parts,
        "recorded": writer.items,
        "frontier": list(ctx.frames),
        "limits": None if limits is None else limits.model_dump(mode="json", by_alias=False),
        # A duration rather than a time: the monotonic clock of the resuming process has another origin.
        "elapsedMs": ctx.elapsed_ms,
    }


def child_place(ctx: RunningExecution, place: str, inherited: int) -> dict[str, Any]:
    """Return the child's place and the costs of the executions above it."""
    # A child is often written later than its ancestors, which pay for it: only its record has their current spending.
    above = {}
    parent = ctx.parent
    while parent is not None:
        above[place_of(parent)] = Spent.of(parent).dump()
        parent = parent.parent
    return {"place": place, "inherited": inherited, "above": above}


async def newer(
    store: ThreadStore, writer: ThreadWriter, live: Container[str], *, is_cut_off: bool = True
) -> tuple[list[Part], Snapshot | None]:
    """Return the parts after those that a writer counts, and the state of the running turn.

    Another process may write between the two reads: a snapshot that follows more parts than existed a moment ago is not
    damage, and the missing parts are there on the next read.
    """
    parts: list[Part] = []
    number, position, is_ahead = writer.parts, writer.items, False
    while True:
        later, execution_id = await store.after(writer.thread_id, number, position)
        parts += later
        number += len(later)
        position += sum(len(part.items) for part in later)
        cut = await _snapshot(store, writer, live, execution_id) if is_cut_off else None
        if cut is None or cut.parts <= number or (is_ahead and not later):
            return parts, cut
        is_ahead = True


async def _snapshot(
    store: ThreadStore, writer: ThreadWriter, live: Container[str], execution_id: str | None
) -> Snapshot | None:
    """Read the state of a turn that is not ours."""
    if execution_id is None or execution_id in writer.ended or execution_id in live:
        return None
    with noticing_checkpoint(execution_id):
        data = await store.storage.get(snapshot_key(execution_id))
    return None if data is None else Snapshot.read(data, execution_id, store.registry)


def cut_off(writer: ThreadWriter, snapshot: Snapshot | None) -> Snapshot | None:
    """Take over the turn that was running when its process ended; None if the thread already contains it."""
    if snapshot is None:
        return None
    # The next write removes its checkpoints; by then the thread has their contents.
    writer.ended.append(snapshot.execution_id)
    if snapshot.parts < writer.parts:
        return None  # its end was written, but its snapshot not yet removed
    unsaved(snapshot, writer)
    return snapshot


def unsaved(snapshot: Snapshot, writer: ThreadWriter) -> tuple[Item, ...]:
    """Return the items that only a snapshot holds; it must follow the existing parts."""
    follows = (snapshot.thread_id, snapshot.parts, snapshot.recorded)
    if follows != (writer.thread_id, writer.parts, writer.items):
        raise unreadable(
            f"The checkpoint of this execution follows {snapshot.parts} parts with {snapshot.recorded} items of "
            f"thread {snapshot.thread_id!r}, of which there are {writer.parts} with {writer.items}, and",
            snapshot.execution_id,
            "something between them is missing",
            "parts of it were deleted; remove it with `await harness.clear_checkpoint(...)`.",
        )
    return snapshot.items


def mark(log: ItemLog, *saved: Part | Snapshot) -> None:
    """Mark the read items with their origins where their roles do not imply them."""
    for each in saved:
        start = each.first if isinstance(each, Part) else each.recorded
        log.mark({start + place: origin for place, origin in each.origins.items()})


def joined(writer: ThreadWriter, parts: Sequence[Part]) -> list[Item]:
    """Return the items of all parts, which the writer counts."""
    items: list[Item] = []
    for part in parts:
        items += part.items
        writer.took(part)
    return items
