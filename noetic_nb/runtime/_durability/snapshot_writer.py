"""Where executions are, as it is written: a turn's own, and each of its children's. How it is read is in `snapshot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from noetic_nb.items import Item, thaw
from noetic_nb.items._item import known_tokens
from noetic_nb.memory._enforcement.call_history import PENDING
from noetic_nb.models._client import Usage
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.size_warnings import is_small
from noetic_nb.runtime._durability.lazy_json import LateText
from noetic_nb.runtime._durability.snapshot import VERSION, Spent, place_of
from noetic_nb.runtime._durability.thread_log import TEXT_OR_NONE, origins_data
from noetic_nb.runtime._durability.thread_writer import ThreadWriter
from noetic_nb.tokens import UNITS_PER_TOKEN

# A control character in JSON text is the longest: \\u0007.
_LONGEST_ESCAPE: Final = 6
# Names, ids and numbers, which take less than a thousand.
_MOST_OF_THE_REST: Final = 10_000
_NONE: Final[Mapping[str, Any]] = {}


class Moment(NamedTuple):
    """Where an execution is at one moment, but for its items; see `moment_of`."""

    place: Mapping[str, Any]
    """What comes first: which execution it is, and what it follows."""
    sequence: int
    origins: Mapping[str, Any]
    layers: Mapping[str, Any]
    state: Mapping[str, Any]
    steps: int
    tree_steps: int
    tool_calls: int
    calls: Sequence[Any]
    query: str
    loops: Mapping[str, Any]
    returned: Mapping[str, Any]
    now_ms: float
    spent: tuple[Usage, float, int, bool]

    def dump(self, items: list[Any]) -> dict[str, Any]:
        """Return the stored form."""
        return {
            **self.place,
            "sequence": self.sequence,
            "itemLog": {"items": items, **self.origins},
            "layers": self.layers,
            "state": self.state,
            "stepCount": self.steps,
            "treeSteps": self.tree_steps,
            "toolCalls": self.tool_calls,
            "calls": self.calls,
            "query": self.query,
            "loops": self.loops,
            "returned": self.returned,
            "capturedAt": self.now_ms,
            **Spent(*self.spent).dump(),
        }


def late_snapshot(moment: Moment, items: Sequence[Item]) -> LateText | None:
    """Return the snapshot of a turn without state, layers or calls for later; None where it may be large, or be no JSON data."""
    if type(moment.place["resourceId"]) not in TEXT_OR_NONE:
        return None
    characters = _MOST_OF_THE_REST + _LONGEST_ESCAPE * len(moment.query)
    for item in items:
        tokens = known_tokens(item)
        if tokens is None:
            return None
        characters += tokens * UNITS_PER_TOKEN
    return LateText(moment, items) if is_small(characters) else None


def moment_of(
    ctx: RunningExecution,
    place: dict[str, Any],
    start: int,
    sequence: int,
    loops: Mapping[str, Any],
    returned: Mapping[str, Any],
    ended: int,
    again: tuple[int, int],
) -> Moment:
    """Return where an execution is whose own items begin at `start` in its log.

    `sequence` ends of steps have been written; `loops` and `returned` are by place; `ended` is 1 where a step has just ended and
    is still counted as running; `again` counts ended steps that will be run again, of this execution and of all.
    """
    engine = ctx.engine
    stack, root = engine.stack, ctx if ctx.parent is None else ctx.root
    layers: Mapping[str, Any] = _NONE
    calls: Sequence[Any] = ()
    if stack.layers:
        has, get = stack.state.has, stack.state.get
        layers = {layer.id: thaw(get(ctx.id, layer.id)) for layer in stack.layers if has(ctx.id, layer.id)}
    if ctx.calls:
        # What is being decided on, or runs, will be called again.
        calls = [
            [place.call.name, thaw(place.call.args), *place.call[2:], place.number]
            for place in ctx.calls
            if place.call.status != PENDING
        ]
    fields = (
        place,
        sequence,
        origins_data(ctx.item_log, start),
        layers,
        ctx.state or _NONE,  # what is empty now need not stay so
        # Steps that are under way, or will be run again, will be counted then.
        ctx.step_count - ctx.running + ended - again[0],
        ctx.tree.steps - (_under_way(root) if root.children else root.running) + ended - again[1],
        ctx.tool_calls,
        calls,
        ctx.query,
        loops,
        returned,
        engine.clock.now_ms(),
        (ctx.tokens, ctx.cost, ctx.model_calls, ctx.priced),
    )
    return tuple.__new__(Moment, fields)  # in half the time of a call of its class


def _under_way(ctx: RunningExecution) -> int:
    return ctx.running + sum(map(_under_way, ctx.children))


def turn_place(ctx: RunningExecution, first: int, writer: ThreadWriter) -> dict[str, Any]:
    """Return which turn it is, from `first` on in the log, and what is in storage already; its snapshot holds what follows."""
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
        # A length of time and no moment: the monotonic clock of the process that resumes begins elsewhere.
        "elapsedMs": ctx.elapsed_ms,
    }


def child_place(ctx: RunningExecution, place: str, inherited: int) -> dict[str, Any]:
    """Return which child it is, and what those above it have spent."""
    # A child is often written later than its parents, who pay for it: what they have spent by now is known from here
    # alone.
    above = {}
    parent = ctx.parent
    while parent is not None:
        above[place_of(parent)] = Spent.of(parent).dump()
        parent = parent.parent
    return {"place": place, "inherited": inherited, "above": above}
