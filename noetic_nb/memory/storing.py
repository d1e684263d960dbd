"""What layers keep of a response: every `store` hook begins with the same, and who was quicker shows in nothing."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from noetic_nb.items import Item
from noetic_nb.memory.execution_context import ExecutionContext, as_response
from noetic_nb.memory.hook_results import UNSET
from noetic_nb.memory.hook_runner import HookRunner, Outcome
from noetic_nb.memory.layer import MemoryLayer
from noetic_nb.memory.params import StoreParams
from noetic_nb.memory.side_by_side import side_by_side
from noetic_nb.memory.state_copy import StateNotCopied, flat_copy, nested_copy

__all__ = ["store_response"]


async def store_response(runner: HookRunner, ctx: ExecutionContext, response: Any, view: Sequence[Item]) -> None:
    """Call every ``store`` with a response and the conversation, all at once, each with a copy of its layer's state."""
    states, execution_id = runner.state, ctx.execution_id
    # Judged before any of them runs: stores do not decide on each other.
    layers = runner.order.active_now("store", ctx)
    if not layers:
        return
    answer = as_response(response)
    items, live = answer.items, states.of(execution_id)

    def one(layer: MemoryLayer) -> Outcome | tuple[Any] | Coroutine[Any, Any, Outcome]:
        state = live.get(layer.id)
        try:
            flat = flat_copy(state) if type(state) is dict else None  # as most are
            state = nested_copy(state) if flat is None else flat
        except Exception as exc:  # this layer's fault, not that of the turn
            error = StateNotCopied(layer.id, "store", state, exc)
            states.report(execution_id, layer.id, "store", error)
            return Outcome.failed(error)
        # A record of all its fields, in half the time of a call of its class.
        params = tuple.__new__(StoreParams, (items, view, answer, ctx, state))
        return runner.begin_store(layer, params, ctx)

    outcomes: list[Outcome | tuple[Any]] = await side_by_side(one, layers)
    # Written when all have ended, in the order of the layers: who was quicker must not show in what is stored.
    for layer, outcome in zip(layers, outcomes, strict=True):
        if isinstance(outcome, tuple):
            state = outcome[0]
        else:
            state = outcome.value if outcome.error is None else UNSET
        if state is not UNSET:
            try:
                states.set(execution_id, layer.id, state, hook="store")
            except StateNotCopied as exc:
                states.report(execution_id, layer.id, "store", exc)
    if not states.is_idle:
        await runner.flush(ctx)
