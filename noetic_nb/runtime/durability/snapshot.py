"""Where executions were, as it is written and as it is read: a turn's own, and each of its children's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from noetic_nb.items import Item, ItemRegistry, dump_item, freeze, thaw
from noetic_nb.items.origins import Origin
from noetic_nb.items.registry import DEFAULT_REGISTRY
from noetic_nb.memory import PastCall
from noetic_nb.memory.call_history import PENDING
from noetic_nb.models.client import NO_USAGE, Usage
from noetic_nb.quick_records import dataclass
from noetic_nb.runtime.config.limits import Limits
from noetic_nb.runtime.context.context import Context
from noetic_nb.runtime.durability.damage import MAX_COUNT, amount, count, mapping, noticing, text_or_none
from noetic_nb.runtime.durability.thread_log import origins_data, read_origins
from noetic_nb.storage import JsonValue

__all__ = [
    "USAGE_FIELDS",
    "ChildSnapshot",
    "Snapshot",
    "Spent",
    "child_data",
    "noticing_checkpoint",
    "place_of",
    "snapshot_data",
]

# Version 1 held the whole conversation, version 2 nothing of children, what tools had been called, or limits.
VERSION: Final = 3
USAGE_FIELDS: Final = ("input_tokens", "output_tokens", "cached_tokens")

T = TypeVar("T")


def place_of(ctx: Context) -> str:
    """Return which execution of a turn this is: the path of the steps around it, empty for the turn's own."""
    return "".join([f"/{frame}" for frame in ctx.base_frames])


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
    }


@dataclass(frozen=True, slots=True)
class Spent:
    """What an execution and all below it had spent."""

    usage: Usage = NO_USAGE
    cost: float = 0.0
    model_calls: int = 0
    priced: bool = False

    @classmethod
    def of(cls, ctx: Context) -> Spent:
        """Return what an execution has spent by now."""
        return cls(ctx.tokens, ctx.cost, ctx.model_calls, ctx.priced)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Spent:
        """Read the stored form."""
        usage = Usage(**{name: count(data["tokens"][name], name) for name in USAGE_FIELDS})
        cost = amount(data["cost"], "cost")
        return cls(usage, cost, count(data["modelCalls"], "modelCalls"), bool(data.get("priced", cost > 0)))

    def dump(self) -> dict[str, Any]:
        """Return the stored form."""
        data = {"tokens": _usage(self.usage), "cost": self.cost, "modelCalls": self.model_calls}
        # Where something was paid, a price is known: the key is for calls that are known to be free.
        return {**data, "priced": True} if self.priced and not self.cost else data

    def or_more(self, other: Spent) -> Spent:
        """Return the later of two: what is spent only grows."""
        usage = Usage(**{name: max(getattr(self.usage, name), getattr(other.usage, name)) for name in USAGE_FIELDS})
        calls = max(self.model_calls, other.model_calls)
        return Spent(usage, max(self.cost, other.cost), calls, self.priced or other.priced)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSnapshot:
    """What is the same of every execution."""

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

    def put_back(self, ctx: Context, spent: Spent) -> None:
        """Let a context continue from here; `spent` is the most that is known of."""
        ctx.tokens, ctx.cost, ctx.model_calls = spent.usage, spent.cost, spent.model_calls
        ctx.priced = spent.priced
        ctx.step_count, ctx.tool_calls = self.steps, self.tool_calls
        ctx.calls = ctx.tree.calls.restore(self.calls)
        ctx.query = self.query


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSnapshot(ExecutionSnapshot):
    """Where a child was: its items follow the first `inherited` of its parent's; `above` is what its parents had spent."""

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
    """Where a turn was."""

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
        """Read the stored form.

        Raises `NoeticConfigError` ``CHECKPOINT_SCHEMA_MISMATCH``, for what an earlier version wrote, too.
        """

        def read() -> Snapshot:
            if data["version"] != VERSION or data["executionId"] != execution_id:
                raise ValueError(f"version {data['version']!r}, execution {data['executionId']!r}")
            if not isinstance(data["threadId"], str):
                raise TypeError("the thread id is no text")
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
    items = tuple([registry.parse(item) for item in data["itemLog"]["items"]])
    query = data["query"]
    if not isinstance(query, str):
        raise TypeError("'query' is no text")
    returned = mapping(data, "returned")
    return {
        "sequence": count(data["sequence"], "sequence"),
        "items": items,
        "origins": read_origins(data["itemLog"], len(items)),
        "layers": mapping(data, "layers"),
        "state": mapping(data, "state"),
        "spent": Spent.read(data),
        # Steps that will be run again are taken off, and a step may be left behind: below zero for a moment is no damage.
        "steps": count(data["stepCount"], "stepCount", -MAX_COUNT),
        "tree_steps": count(data["treeSteps"], "treeSteps", -MAX_COUNT),
        "tool_calls": count(data["toolCalls"], "toolCalls", -MAX_COUNT),
        "calls": tuple([_past_call(*call) for call in data["calls"]]),
        "query": query,
        "loops": {place: _began(numbers) for place, numbers in mapping(data, "loops").items()},
        "returned": {place: mapping(returned, place) for place in returned},
    }


def _began(numbers: JsonValue) -> list[float]:
    """Return what had been spent when a loop began: three kinds of tokens, dollars, milliseconds."""
    *tokens, cost, elapsed = numbers
    if len(tokens) != len(USAGE_FIELDS):
        raise ValueError("a loop began with other numbers")
    spent = [count(token, "tokens") for token in tokens]
    return [*spent, amount(cost, "cost"), amount(elapsed, "elapsedMs")]


def _past_call(
    name: str,
    args: JsonValue,
    call_id: str,
    status: str | None,
    output: str | None,
    execution_id: str = "",
    number: int | None = None,  # earlier versions wrote neither
) -> tuple[int | None, PastCall]:
    if not isinstance(name, str) or not isinstance(execution_id, str):
        raise TypeError("a past call has no name")
    if number is not None:
        count(number, "number")
    return number, PastCall(name, freeze(args), call_id, status, output, execution_id)


def _read(read: Callable[[], T], execution_id: str) -> T:
    with noticing_checkpoint(execution_id):
        return read()


def noticing_checkpoint(execution_id: str) -> AbstractContextManager[None]:
    """Raise whatever reading the records of an execution raises as ``CHECKPOINT_SCHEMA_MISMATCH``."""
    return noticing(
        "The checkpoint of this execution",
        execution_id,
        "written by another version; remove it with `await harness.clear_checkpoint(...)` and say it again.",
    )


def _data(
    ctx: Context,
    start: int,
    *,
    sequence: int,
    loops: Mapping[str, Any],
    returned: Mapping[str, Any],
    ended: int,
    again: tuple[int, int],
) -> dict[str, Any]:
    stack = ctx.engine.stack
    return {
        "sequence": sequence,
        "itemLog": {
            "items": [dump_item(item) for item in ctx.item_log.since(start)],
            **origins_data(ctx.item_log, start),
        },
        "layers": {
            layer.id: thaw(stack.state.get(ctx.id, layer.id))
            for layer in stack.layers
            if stack.state.has(ctx.id, layer.id)
        },
        "state": ctx.state,
        # Steps that are under way, or will be run again, will be counted then.
        "stepCount": ctx.step_count - ctx.running + ended - again[0],
        "treeSteps": ctx.tree.steps - _under_way(ctx.root) + ended - again[1],
        "toolCalls": ctx.tool_calls,
        # What is being decided on, or runs, will be called again.
        "calls": [
            [place.call.name, thaw(place.call.args), *place.call[2:], place.number]
            for place in ctx.calls
            if place.call.status != PENDING
        ],
        "query": ctx.query,
        "loops": loops,
        "returned": returned,
        "capturedAt": ctx.engine.clock.now_ms(),
        **Spent.of(ctx).dump(),
    }


def _under_way(ctx: Context) -> int:
    return ctx.running + sum(map(_under_way, ctx.children)) if ctx.children else ctx.running


def snapshot_data(ctx: Context, *, first: int, parts: int, recorded: int, **more: Any) -> dict[str, Any]:
    """Return where a turn is, as it is written.

    The turn begins at `first` in the log. `parts` parts and `recorded` items of the thread are in storage; the
    snapshot holds the items that follow. `sequence` ends of steps have been written. By place there is what had been
    spent when each loop began (`loops`) and what came of children that have given back (`returned`). `ended` is 1
    where a step has just ended and is still counted as running; `again` is how many steps have ended that will be run
    again, of this execution and of all.
    """
    limits = ctx.tree.limits
    return {
        "version": VERSION,
        "executionId": ctx.id,
        "threadId": ctx.thread_id,
        "resourceId": ctx.resource_id,
        "turn": ctx.turn,
        "first": first,
        "parts": parts,
        "recorded": recorded,
        "frontier": list(ctx.frames),
        "limits": None if limits is None else limits.model_dump(mode="json", by_alias=False),
        # A length of time and no moment: the monotonic clock of the process that resumes begins elsewhere.
        "elapsedMs": ctx.elapsed_ms,
        **_data(ctx, recorded, **more),
    }


def child_data(ctx: Context, place: str, inherited: int, **more: Any) -> dict[str, Any]:
    """Return where a child is, as it is written; `more` as for `snapshot_data`."""
    # A child is often written later than its parents, who pay for it: what they have spent by now is known from here
    # alone.
    above = {}
    parent = ctx.parent
    while parent is not None:
        above[place_of(parent)] = Spent.of(parent).dump()
        parent = parent.parent
    return {
        "place": place,
        "inherited": inherited,
        "above": above,
        **_data(ctx, inherited, **more),
    }
