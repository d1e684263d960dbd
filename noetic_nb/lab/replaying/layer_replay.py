"""What other layers would have offered at each recorded call: their hooks, run over the recorded log.

A layer is begun with each turn, recalls where the agent did, stores at the end of each step of the model and completes with the
turn. What it does to history or to items as they are logged is not repeated: the log is the recorded one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from noetic_nb.events import (
    BudgetsAllocated,
    ItemsAppended,
    ModelCalled,
    RunEvent,
    StepEnded,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
)
from noetic_nb.items import ItemLog
from noetic_nb.lab.replaying.kept_decisions import Kept
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryLayer
from noetic_nb.memory.recall import RecallEntry
from noetic_nb.models.client import ModelResponse, Usage
from noetic_nb.runs import Run
from noetic_nb.runs.recorded_requests import RequestIndex
from noetic_nb.tokens import Tokenizer, estimate_tokens

__all__ = ["LayersAlong", "offers_of"]

_NOT_RUN = ("project_history", "on_item_append")


class _Turn(NamedTuple):
    ctx: ExecutionContext
    query: str


class LayersAlong:
    """Layers that go along with a recorded run: begun, asked and stored where the agent's were."""

    def __init__(self, layers: Sequence[MemoryLayer], model: Any, tokenizer: Tokenizer) -> None:
        self.stack = LayerStack(layers)
        self.budgets = dict.fromkeys([layer.id for layer in layers], inf)
        self.model = model
        self.tokenizer = tokenizer
        self.turns: dict[str, _Turn] = {}
        # What a step of the model has produced so far, with what it took.
        self.answered: dict[str, ModelResponse] = {}

    async def hear(self, event: RunEvent, index: RequestIndex) -> None:
        """Take what happened, which `index` has read already: a turn's begin, answers, the end of a step and of a turn."""
        match event:
            case TurnStarted():
                await self._begin(event)
            case ModelCalled(purpose="agent", status="ok"):
                self._answer(event)
            case ItemsAppended(origin="model"):
                self._produce(event)
            case StepEnded(step_kind="llm", status="ok"):
                await self._store(event.where.execution_id, ItemLog(index.log_of(event.where)))
            case TurnCompleted():
                await self._complete(event, ItemLog(index.log_of(event.where)))

    async def _begin(self, event: TurnStarted) -> None:
        where = event.where
        ctx = ExecutionContext(
            execution_id=where.execution_id,
            thread_id=where.thread_id,
            resource_id=event.resource_id,
            turn=where.turn,
            tokenize=self.tokenizer,
            call_model=None if self.model is None else self._ask,
        )
        self.turns[where.execution_id] = _Turn(ctx, event.query)
        await self.stack.init(ctx)

    async def _ask(self, request: Any) -> Any:
        from noetic_nb.models.client import ModelRequest

        return await self.model.complete(
            ModelRequest(request.model, request.items, request.instructions, purpose=request.purpose)
        )

    async def offer(self, execution_id: str, log: ItemLog) -> dict[str, RecallEntry] | None:
        """Return what the layers offer for a call, None where its turn did not begin."""
        turn = self.turns.get(execution_id)
        if turn is None:
            return None
        found = await self.stack.recall(turn.ctx, query=turn.query, log=log, budgets=self.budgets)
        return {entry.layer_id: entry for entry in found}

    def _answer(self, event: ModelCalled) -> None:
        usage = Usage(event.input_tokens, event.output_tokens, event.cached_tokens)
        before = self.answered.get(event.where.execution_id, ModelResponse((), Usage(0, 0)))
        cost = (before.cost or 0.0) + (event.cost or 0.0) or None
        self.answered[event.where.execution_id] = before._replace(usage=before.usage + usage, cost=cost)

    def _produce(self, event: ItemsAppended) -> None:
        before = self.answered.get(event.where.execution_id)
        if before is not None:
            self.answered[event.where.execution_id] = before._replace(items=(*before.items, *event.items))

    async def _store(self, execution_id: str, log: ItemLog) -> None:
        response = self.answered.pop(execution_id, None)
        if response is not None and execution_id in self.turns:
            await self.stack.store(self.turns[execution_id].ctx, response=response, log=log)

    async def _complete(self, event: TurnCompleted, log: ItemLog) -> None:
        self.answered.pop(event.where.execution_id, None)
        turn = self.turns.pop(event.where.execution_id, None)
        if turn is not None:
            await self.stack.complete(turn.ctx, log=log, outcome=event.outcome)
            await self.stack.dispose(turn.ctx)


async def offers_of(
    run: Run,
    layers: Sequence[MemoryLayer],
    kept: Kept,
    model: Any = None,
    tokenizer: Tokenizer = estimate_tokens,
) -> Mapping[int, Mapping[str, RecallEntry]]:
    """Return what layers offer, by the place of the request in the run; children of a turn are left out."""
    for layer in layers:
        for hook in _NOT_RUN:
            if getattr(layer.hooks, hook) is not None:
                kept.add("layers", f"hook {hook} of layer {layer.id} is not run")
    live = LayersAlong(layers, model, tokenizer)
    index = RequestIndex()
    due: set[str] = set()
    last: dict[str, dict[str, RecallEntry]] = {}
    found: dict[int, dict[str, RecallEntry]] = {}
    for seq, event in enumerate(tuple(run.events)):
        at = index.take(event)
        execution_id = event.where.execution_id
        await live.hear(event, index)
        match event:
            case BudgetsAllocated():
                due.add(execution_id)
            case ViewAssembled() if at is not None:
                if execution_id in due:
                    due.discard(execution_id)
                    offered = await live.offer(execution_id, ItemLog(index.log_of(event.where)))
                    if offered is None:
                        kept.add("layers", "requests of children have what was offered then", seq)
                        continue
                    last[execution_id] = offered
                if execution_id in last:
                    found[seq] = last[execution_id]
    return found
