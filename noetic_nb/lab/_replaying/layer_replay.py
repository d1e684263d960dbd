"""The items that other layers offer at each recorded call: their hooks, run over the recorded log.

A layer is begun with each turn, recalls where the agent did, stores at the end of each step of the model and completes with the
turn, and chooses of the history where no recorded layer did. What it does to items as they are logged is not repeated: the log is
the recorded one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

from noetic_nb.events import (
    BudgetsAllocated,
    ItemsAppended,
    LogStretch,
    ModelCalled,
    RunEvent,
    StepEnded,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
)
from noetic_nb.items import ItemLog
from noetic_nb.items._log import ItemView
from noetic_nb.lab._replaying.kept_decisions import Kept
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryLayer
from noetic_nb.memory._hooks.recall import RecallEntry
from noetic_nb.models._client import ModelResponse, Usage
from noetic_nb.runs import Run
from noetic_nb.runs._requests.recorded_requests import RequestIndex
from noetic_nb.runtime._planning.log_stretches import log_stretches
from noetic_nb.tokens import Tokenizer, estimate_tokens

__all__ = ["LayersAlong", "offers_of"]


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

    async def take(self, event: RunEvent, index: RequestIndex) -> None:
        """Read an event that `index` has read already: a turn's begin, answers, the end of a step and of a turn."""
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
        from noetic_nb.models._client import ModelRequest

        return await self.model.complete(
            ModelRequest(request.model, request.items, request.instructions, purpose=request.purpose)
        )

    async def offer(self, execution_id: str, log: ItemLog) -> dict[str, RecallEntry] | None:
        """Return the items that the layers offer for a call, None where its turn did not begin."""
        turn = self.turns.get(execution_id)
        if turn is None:
            return None
        found = await self.stack.recall(turn.ctx, query=turn.query, log=log, budgets=self.budgets)
        return {entry.layer_id: entry for entry in found}

    async def choose(self, execution_id: str, log: ItemView) -> tuple[LogStretch, ...] | None:
        """Return the history as the layers project it, None where that is all of it."""
        shown = await self.stack.project_history(self.turns[execution_id].ctx, log)
        return None if shown is log else log_stretches(shown, log)

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


class Along(NamedTuple):
    """By the place of the request in the run, the items that layers offer, and their projection of the history."""

    offers: dict[int, dict[str, RecallEntry]]
    chosen: dict[int, tuple[LogStretch, ...] | None]


async def offers_of(
    run: Run,
    layers: Sequence[MemoryLayer],
    kept: Kept,
    model: Any = None,
    tokenizer: Tokenizer = estimate_tokens,
    *,
    alone: bool = False,
) -> Along:
    """Ask layers at every request; children of a turn are left out.

    They choose of the history where nothing else did, or where they are `alone`: a run does not say which recorded layer did.
    """
    for layer in layers:
        if layer.hooks.on_item_append is not None:
            kept.add("layers", f"hook on_item_append of layer {layer.id} is not run")
    choosing = [layer.id for layer in layers if layer.hooks.project_history is not None]
    live = LayersAlong(layers, model, tokenizer)
    index = RequestIndex()
    due: set[str] = set()
    last: dict[str, dict[str, RecallEntry]] = {}
    found = Along({}, {})
    # Of a step: how long the log was, and what was chosen of it. What is logged during the step follows as it is.
    begun: dict[str, tuple[int, tuple[LogStretch, ...] | None]] = {}
    for seq, event in enumerate(tuple(run.events)):
        at = index.take(event)
        execution_id = event.where.execution_id
        await live.take(event, index)
        match event:
            case BudgetsAllocated():
                due.add(execution_id)
            case ViewAssembled() if at is not None:
                if execution_id in due:
                    due.discard(execution_id)
                    log = index.log_of(event.where)
                    offered = await live.offer(execution_id, ItemLog(log))
                    if offered is None:
                        kept.add("layers", "requests of children have what was offered then", seq)
                        continue
                    last[execution_id] = offered
                    if choosing:
                        begun[execution_id] = len(log), await live.choose(execution_id, log)
                if execution_id not in last:
                    continue
                found.offers[seq] = last[execution_id]
                if choosing and event.projection is not None and not alone:
                    for layer_id in choosing:
                        kept.add("layers", f"hook project_history of layer {layer_id} is not run", seq)
                elif choosing:
                    known, chosen = begun[execution_id]
                    size = len(index.log_of(event.where))
                    later = (LogStretch(known, size),) if size > known else ()
                    found.chosen[seq] = None if chosen is None else (*chosen, *later)
    return found
