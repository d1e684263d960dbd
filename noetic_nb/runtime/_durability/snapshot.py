"""Where executions were, as it is read: a turn's own, and each of its children's. How it is written is in `written_snapshot`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from noetic_nb.items import Item, ItemRegistry, freeze
from noetic_nb.items._origins import Origin
from noetic_nb.items._registry import DEFAULT_REGISTRY
from noetic_nb.memory import PastCall
from noetic_nb.models._client import NO_USAGE, Usage
from noetic_nb.runtime._config.limits import Limits
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._durability.corruption import MAX_COUNT, amount, count, mapping, noticing, text_or_none
from noetic_nb.runtime._durability.thread_log import read_origins
from noetic_nb.storage import JsonValue

# Version 1 held the whole conversation, version 2 nothing of children, what tools had been called, or limits.
VERSION: Final = 3

T = TypeVar("T")


def place_of(ctx: RunningExecution) -> str:
    """Return which execution of a turn this is: the path of the steps around it, empty for the turn's own."""
    return "".join([f"/{frame}" for frame in ctx.base_frames])


@dataclass(frozen=True, slots=True)
class Spent:
    """The spending of an execution and all below it."""

    usage: Usage = NO_USAGE
    cost: float = 0.0
    model_calls: int = 0
    priced: bool = False

    @classmethod
    def of(cls, ctx: RunningExecution) -> Spent:
        """Return what an execution has spent by now."""
        return cls(ctx.tokens, ctx.cost, ctx.model_calls, ctx.priced)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Spent:
        """Read the stored form."""
        usage = stored_usage([data["tokens"].get(name) for name in Usage._fields])
        cost = amount(data["cost"], "cost")
        return cls(usage, cost, count(data["modelCalls"], "modelCalls"), bool(data.get("priced", cost > 0)))

    def dump(self) -> dict[str, Any]:
        """Return the stored form."""
        data = {"tokens": self.usage._asdict(), "cost": self.cost, "modelCalls": self.model_calls}
        # Where something was paid, a price is known: the key is for calls that are known to be free.
        return {**data, "priced": True} if self.priced and not self.cost else data

    def or_more(self, other: Spent) -> Spent:
        """Return the later of two: spending only grows."""
        pairs = zip(self.usage, other.usage, strict=True)
        usage = Usage._make([max([count for count in pair if count is not None], default=None) for pair in pairs])
        calls = max(self.model_calls, other.model_calls)
        return Spent(usage, max(self.cost, other.cost), calls, self.priced or other.priced)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSnapshot:
    """The fields that every execution has."""

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
        """Let a context continue from here; `spent` is the most that is known of."""
        ctx.tokens, ctx.cost, ctx.model_calls = spent.usage, spent.cost, spent.model_calls
        ctx.priced = spent.priced
        ctx.step_count, ctx.tool_calls = self.steps, self.tool_calls
        ctx.calls = ctx.tree.calls.restore(self.calls)
        ctx.query = self.query


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSnapshot(ExecutionSnapshot):
    """The place of a child: its items follow the first `inherited` of its parent's; `above` is the spending of its parents."""

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
    items = tuple([registry.parse_kept(item) for item in data["itemLog"]["items"]])
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
        "calls": tuple([past_call(*call) for call in data["calls"]]),
        "query": query,
        "loops": {place: _began(numbers) for place, numbers in mapping(data, "loops").items()},
        "returned": {place: mapping(returned, place) for place in returned},
    }


def stored_usage(tokens: Sequence[Any]) -> Usage:
    """Return stored counts as usage; older snapshots hold the first three. Raises `ValueError` for other numbers."""
    if not 3 <= len(tokens) <= len(Usage._fields):
        raise ValueError("a usage has three to five counts")
    sums = [count(token, "tokens") for token in tokens[:2]]
    return Usage(*sums, *[None if token is None else count(token, "tokens") for token in tokens[2:]])


def _began(numbers: JsonValue) -> list[Any]:
    """Return the spending when a loop began: the counts of `Usage`, dollars, milliseconds."""
    *tokens, cost, elapsed = numbers
    return [*stored_usage(tokens), amount(cost, "cost"), amount(elapsed, "elapsedMs")]


def past_call(
    name: str,
    args: JsonValue,
    call_id: str,
    status: str | None,
    output: str | None,
    execution_id: str = "",
    number: int | None = None,  # earlier versions wrote neither
) -> tuple[int | None, PastCall]:
    """Return a tool call as it is stored, and its number in the history of the tree."""
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
