"""Pass items through the layers before they are logged or sent, and recall again if a layer requests it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from noetic_nb.items import Item
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hooks.hook_results import UNSET, RerenderRequest, field_of, rerender_request
from noetic_nb.memory._hooks.hook_runner import HookRunner
from noetic_nb.memory._hooks.recall import RecallEntry, Recaller
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory.params import OnItemAppendParams, ProjectHistoryParams
from noetic_nb.redact import safe_logger

# Limit for chains of re-renders that cause re-renders; no layer was ever seen to need more than three.
MAX_RERENDER_DEPTH: Final = 3

NO_PLACES: Final[Mapping[int, str]] = {}

_log: Final = safe_logger("noetic_nb")


class AppendResult(NamedTuple):
    """The items to log, and the re-renders that layers requested."""

    items: tuple[Item, ...]
    rerender_requests: tuple[RerenderRequest, ...]
    made_by: Mapping[int, str] = NO_PLACES
    """For each item that a layer added or changed: its position, and the layer."""
    replaced: tuple[Item, ...] = ()  # given items that are not logged unchanged


async def append_items(
    runner: HookRunner, ctx: ExecutionContext, items: Iterable[Mapping[str, Any]], log: Sequence[Item]
) -> AppendResult:
    """Pass items through every ``on_item_append`` in slot order; a failing layer leaves them unchanged."""
    # The log contains items of all layers, so input may have any of their types.
    registry = runner.order.shared_registry()
    current = tuple([registry.parse(item) for item in items])
    given_items = current
    made_by: list[tuple[Item, str]] = []
    requests: list[RerenderRequest] = []
    for layer in runner.order.active("on_item_append", ctx) if current else ():
        params = OnItemAppendParams(current, log, ctx, runner.state.get(ctx.execution_id, layer.id))

        def read(value: Any, before: tuple[Item, ...] = current, layer: MemoryLayer = layer) -> Any:
            given = field_of(value, "items", hook="on_item_append")
            registry = runner.order.registry(layer)
            after = before if given is UNSET or given is None else tuple([registry.parse(item) for item in given])
            state = field_of(value, "state", hook="on_item_append")
            return after, state, rerender_request(value, layer, hook="on_item_append")

        outcome = await runner.run(
            layer, "on_item_append", params, ctx, read=read, measure=lambda value: {"items": len(value[0])}
        )
        if outcome.error is not None:
            continue
        before_it = current
        after, state, request = outcome.value
        if not runner.write(ctx, layer, "on_item_append", state):
            continue
        current = after
        if current is not before_it:
            made_by += [(item, layer.id) for item in current if item not in before_it]
        if request is not None:
            requests.append(request)
        if not current:  # nothing left to log
            break
    if current is given_items:
        return AppendResult(current, tuple(requests))
    # The last layer that produced an item: if two changed it in turn, the second's text is logged.
    makers = {
        place: next(by for made, by in reversed(made_by) if made == item)
        for place, item in enumerate(current)
        if item not in given_items
    }
    return AppendResult(current, tuple(requests), makers, tuple([item for item in given_items if item not in current]))


async def project_items(runner: HookRunner, ctx: ExecutionContext, items: Sequence[Item]) -> Sequence[Item]:
    """Pass a history through every ``project_history`` in slot order; a failing layer leaves it unchanged."""
    for layer in runner.order.active("project_history", ctx):
        params = ProjectHistoryParams(items, ctx, runner.state.get(ctx.execution_id, layer.id))

        def read(value: Any, before: Sequence[Item] = items, layer: MemoryLayer = layer) -> Sequence[Item]:
            given = field_of(value, "items", hook="project_history")
            if given is UNSET or given is None:
                return before
            registry = runner.order.registry(layer)
            return tuple([registry.parse(item) for item in given])

        outcome = await runner.run(
            layer, "project_history", params, ctx, read=read, measure=lambda value: {"items": len(value)}
        )
        if outcome.error is None:
            items = outcome.value
    return items


async def rerender(
    runner: HookRunner,
    recaller: Recaller,
    ctx: ExecutionContext,
    requests: Iterable[RerenderRequest | Mapping[str, Any]],
    *,
    current: Iterable[Any],
    query: str,
    log: Sequence[Item],
    budgets: Mapping[str, float],
    depth: int,
) -> tuple[RecallEntry, ...]:
    """Recall again for the requests, bypassing any cache; a chain of further requests ends at `MAX_RERENDER_DEPTH`."""
    entries = [entry if isinstance(entry, RecallEntry) else RecallEntry(*entry) for entry in current]
    wanted = [_as_request(request) for request in requests]
    if not wanted:
        return tuple(entries)
    if depth >= MAX_RERENDER_DEPTH:
        _log.warning(
            "Re-rendering stopped at depth %d: layers keep requesting it in turn (%s).", depth, wanted[0].layer_id
        )
        return tuple(entries)
    chosen = {
        layer.id
        for layer in runner.order.by_slot
        for request in wanted
        if request.scope == "all"
        or (request.scope == "self" and layer.id == request.layer_id)
        or (request.scope == "slot-after" and layer.slot >= request.slot)
    }
    # All requests together: two requests for one layer cause one recall.
    fresh = await recaller.recall(ctx, query=query, log=log, budgets=budgets, mode="all", only=chosen)
    again = recaller.take_requests(ctx.execution_id)
    merged = {entry.layer_id: entry for entry in entries} | {entry.layer_id: entry for entry in fresh}
    slots = {layer.id: layer.slot for layer in runner.order.by_slot}
    current = tuple(sorted(merged.values(), key=lambda entry: slots.get(entry.layer_id, 0.0)))
    if not again:
        return current
    return await rerender(
        runner, recaller, ctx, again, current=current, query=query, log=log, budgets=budgets, depth=depth + 1
    )


def _as_request(value: RerenderRequest | Mapping[str, Any]) -> RerenderRequest:
    if isinstance(value, RerenderRequest):
        return value
    layer_id = value.get("layer_id", value.get("layerId"))
    return RerenderRequest(
        str(layer_id), value["slot"], value.get("timing", "batched"), value.get("scope", "slot-after")
    )
