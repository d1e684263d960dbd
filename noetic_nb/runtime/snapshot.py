"""Where an execution stood, as it is written and as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from noetic_nb.errors import ItemValidationError, NoeticError
from noetic_nb.items import DEFAULT_REGISTRY, Item, ItemRegistry, dump_item
from noetic_nb.runtime.context import Context
from noetic_nb.runtime.thread_store import unreadable

__all__ = ["USAGE_FIELDS", "Snapshot", "snapshot_data"]

# Version 1 held the whole conversation; version 2 holds the items of the turn, the rest is in the thread's parts.
VERSION: Final = 2
USAGE_FIELDS: Final = ("input_tokens", "output_tokens", "cached_tokens")


def snapshot_data(
    ctx: Context,
    states: Mapping[str, Any],
    *,
    first: int,
    parts: int,
    recorded: int,
    sequence: int,
    loops: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a snapshot as it is written.

    Parameters
    ----------
    states : mapping
        The layers' states by id.
    first : int
        Where the turn begins in the log.
    parts, recorded : int
        How many parts and items of the thread are in storage; the snapshot holds the items that follow.
    sequence : int
        How many ends of steps have been written.
    loops : mapping
        What had been spent when each loop began, by its place.
    """
    return {
        "version": VERSION,
        "executionId": ctx.id,
        "threadId": ctx.thread_id,
        "resourceId": ctx.resource_id,
        "turn": ctx.turn,
        "first": first,
        "parts": parts,
        "recorded": recorded,
        "sequence": sequence,
        "loops": loops,
        "frontier": list(ctx.frames),
        "layers": states,
        "state": ctx.state,
        "itemLog": {"items": [dump_item(item) for item in ctx.item_log[recorded:]]},
        "tokens": {name: getattr(ctx.tokens, name) for name in USAGE_FIELDS},
        "cost": ctx.cost,
        "stepCount": ctx.step_count,
        "modelCalls": ctx.model_calls,
        "toolCalls": ctx.tool_calls,
        "capturedAt": ctx.engine.clock.now_ms(),
    }


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where an execution stood."""

    thread_id: str
    resource_id: str | None
    turn: int
    first: int
    parts: int
    recorded: int
    sequence: int
    loops: Mapping[str, Any]
    items: tuple[Item, ...]
    layers: Mapping[str, Any]
    state: Mapping[str, Any]
    usage: Mapping[str, int]
    cost: float
    steps: int
    model_calls: int
    tool_calls: int

    @classmethod
    def read(cls, data: Any, execution_id: str, registry: ItemRegistry = DEFAULT_REGISTRY) -> Snapshot:
        """Read the stored form.

        Raises
        ------
        NoeticConfigError
            ``CHECKPOINT_SCHEMA_MISMATCH``, for what an earlier version wrote, too.
        """
        try:
            if data["version"] != VERSION or data["executionId"] != execution_id:
                raise ValueError(f"version {data['version']!r}, execution {data['executionId']!r}")
            usage = data["tokens"]
            if not isinstance(data["threadId"], str):
                raise TypeError("the thread id is no text")
            return cls(
                thread_id=data["threadId"],
                resource_id=data.get("resourceId"),
                turn=int(data["turn"]),
                first=int(data["first"]),
                parts=int(data["parts"]),
                recorded=int(data["recorded"]),
                sequence=int(data["sequence"]),
                loops=_loops(data["loops"]),
                items=tuple([registry.parse(item) for item in data["itemLog"]["items"]]),
                layers=dict(data["layers"]),
                state=dict(data["state"]),
                usage={name: int(usage[name]) for name in USAGE_FIELDS},
                cost=float(data["cost"]),
                steps=int(data["stepCount"]),
                model_calls=int(data["modelCalls"]),
                tool_calls=int(data["toolCalls"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, ItemValidationError, NoeticError) as exc:
            raise unreadable(
                "The checkpoint of this execution",
                execution_id,
                exc,
                "written by another version; remove it with `await harness.clear_checkpoint(...)` and say it again.",
            ) from exc


def _loops(data: Any) -> dict[str, Any]:
    return {
        place: [{name: int(usage[name]) for name in USAGE_FIELDS}, float(cost)] for place, (usage, cost) in data.items()
    }
