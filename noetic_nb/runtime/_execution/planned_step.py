"""The requests of one llm step: recalled items, selected history, the plan of the next call, and its request."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

from noetic_nb.events import LogStretch, RequestPrepared
from noetic_nb.items import Item, freeze
from noetic_nb.items._build import with_own_call_ids
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.memory import ExecutionContext, MemoryLayer, RerenderRequest
from noetic_nb.memory._hooks.recall import RecallEntry
from noetic_nb.models._client import ModelRequest
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.messages import warn_if_redacted
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.step_errors import TurnStopped
from noetic_nb.runtime._planning.make_plan import plan_turn
from noetic_nb.runtime._planning.turn_plan import TurnPlan, leaves_out, log_stretches
from noetic_nb.steps import LLMStep
from noetic_nb.steps._tools import ToolSet
from noetic_nb.tokens import known_error, tokenizer_name


def _parts(step: LLMStep, tools: ToolSet, layers: tuple[MemoryLayer, ...]) -> tuple[Any, ...]:
    schema = None if step.output is None else step.output.json_schema
    return (
        tools.offered,
        _NONE if step.params is None else freeze(step.params.model_dump(exclude_none=True)),
        None if schema is None else freeze(schema),
        tuple([(layer.id, *layer.limits) for layer in layers]),
        tuple([layer.id for layer in layers if layer.placement == "suffix"]),
    )


_NONE = FrozenDict()


class PlannedStep:
    def __init__(self, engine: Engine, step: LLMStep, ctx: RunningExecution, model: str, instructions: str) -> None:
        self.engine = engine
        self.step = step
        self.ctx = ctx
        self.model = model
        self.tokenizer = engine.tokenizer_of(model)
        setup = engine.setups.of(step, instructions, self.tokenizer)
        self.policy, tools, self.system_tokens, self.budgets, self.instructions, self.shares = setup
        self.tools = engine.offered(tools, ctx)
        ctx.item_log.recount(self.tokenizer)
        self._hook_ctx: ExecutionContext | None = None
        self.recalled: tuple[RecallEntry, ...] = ()
        self.requests: tuple[RerenderRequest, ...] = ()
        self._chosen: tuple[int, Sequence[Item] | None] | None = None
        self._stretches: tuple[LogStretch, ...] | None = None
        self.ephemeral: tuple[Item, ...] = ()
        self.planning_ms: float | None = None
        """Duration of planning the last call."""

    @property
    def hook_ctx(self) -> ExecutionContext:
        """The execution as hooks see it; created only if a hook reads it."""
        if self._hook_ctx is None:
            self._hook_ctx = self.engine.hook_context(self.ctx)
        return self._hook_ctx

    async def recall(self) -> None:
        """Recall from the layers, once per step."""
        self.recalled = await self.engine.stack.recall(
            self.hook_ctx,
            query=self.ctx.query,
            log=self.ctx.item_log,
            budgets=self.shares,
            mode="cached",
            with_empty=True,
        )
        self.warn_of_recalled()
        self.raise_stop()

    def warn_of_recalled(self) -> None:
        for entry in self.recalled:
            if entry.text is not None and "[redacted" not in entry.text:
                continue  # the entry has no text besides this one
            warn_if_redacted(self.ctx, entry.items, f"What layer {entry.layer_id!r} recalled", entry.layer_id)

    async def rerender(self) -> None:
        """Recall again from layers that requested it while tool outputs were logged."""
        self.recalled = await self.engine.stack.rerender(
            self.hook_ctx,
            self.requests,
            current=self.recalled,
            query=self.ctx.query,
            log=self.ctx.item_log,
            budgets=self.shares,
        )
        self.warn_of_recalled()
        self.requests = ()
        self.ctx.recalled = self.recalled

    def _projection(self) -> tuple[LogStretch, ...] | None:
        """Return the history that layers selected, as recorded in a run."""
        if self._chosen is None or self._chosen[1] is None:
            return None
        known, size = self._chosen[0], len(self.ctx.item_log)
        if self._stretches is None:
            self._stretches = log_stretches(self._chosen[1], self.ctx.item_log.items)
        return (*self._stretches, LogStretch(known, size)) if size > known else self._stretches

    async def _projected(self) -> Sequence[Item] | None:
        """Let layers select from the history, once per step; items logged during the step follow unchanged."""
        log = self.ctx.item_log
        if self._chosen is None:
            shown = await self.engine.stack.project_history(self.hook_ctx, log.items)
            self._chosen = (len(log), None if shown is log.items else shown)
            self._stretches = None
        known, shown_items = self._chosen
        return None if shown_items is None else (*shown_items, *log[known:])

    def plan(self, projected: Sequence[Item] | None = None, extra: tuple[RecallEntry, ...] = ()) -> TurnPlan:
        engine = self.engine
        start = engine.clock.monotonic_ms()
        plan = plan_turn(
            self.ctx.item_log,
            engine.stack.layers,
            self.policy,
            (*self.recalled, *extra) if extra else self.recalled,
            instructions=self.instructions,
            tool_tokens=self.tools.count(self.tokenizer),
            tokenizer=self.tokenizer,
            projected=projected,
            budgets=self.budgets,
            system_tokens=self.system_tokens,
        )
        self.planning_ms = engine.clock.monotonic_ms() - start
        return plan

    async def planned(self) -> TurnPlan:
        """Plan the next call on the history that layers select, with a summary if the policy requires one."""
        projected = await self._projected() if "project_history" in self.engine.stack.hooks else None
        plan = self.plan(projected)
        if projected is not None or not leaves_out(plan):
            return plan
        # Only one of three policies needs it, in long conversations.
        from noetic_nb.runtime._planning.summary import summarised

        return await summarised(
            self.engine, self.ctx, self.model, self.policy, plan, lambda extra: self.plan(None, extra)
        )

    def warn_over_budget(self, plan: TurnPlan) -> None:
        """Warn that a request is too large: the user's message is sent at any size."""
        policy = self.policy
        most = max(0.0, policy.token_budget - policy.response_reserve)
        self.ctx.warn(
            "over_budget",
            f"The request to model {self.model!r} has {plan.total_tokens} tokens and was sent all the same: the budget of "
            f"{policy.token_budget:g} less {policy.response_reserve:g} for the answer leaves {most:g}. "
            "Raise token_budget, or lower response_reserve, of the projection.",
        )

    def report_plan(self, plan: TurnPlan) -> None:
        """Report the request before it is sent: to layers, to rules about the origins of values, and to the run."""
        engine, ctx, hooks = self.engine, self.ctx, self.engine.stack.hooks
        room = self.policy.token_budget - self.policy.response_reserve
        # Not counting layers' items: they are only added if they fit.
        if plan.history + plan.system + plan.tools > room:
            self.warn_over_budget(plan)
        if "delivered" in hooks:
            engine.stack.delivered(self.hook_ctx, [item["id"] for _, item in plan.layer_items if "id" in item])
        if "before_tool_call" in hooks and (self.instructions or plan.layer_items):
            ctx.noting().note_call(len(ctx.item_log), self.instructions, plan.layer_items)
        if engine.sink is not None:
            self.report_prepared()
            now, projection = engine.clock.now_ms(), self._projection()
            sent = plan.as_event(ctx.where, now, ctx.step_count, projection, self.ephemeral, self.planning_ms)
            engine.sink.emit(sent)

    def report_prepared(self) -> None:
        """Report the common parts of this execution's requests if the run does not have them yet."""
        engine, ctx = self.engine, self.ctx
        # Includes the subscribers, because a new one has not seen these parts.
        now = (
            self.step,
            self.model,
            self.instructions,
            self.tools.specs,
            engine.hub.sinks,
            engine.stack.layers,
            self.tokenizer,
        )
        before = ctx.prepared
        if before is not None and all(map(is_, now, before)):
            return
        if before is None or before[4] is not now[4] or before[0] is not now[0] or before != now:
            self.emit_prepared()
        ctx.prepared = now

    def emit_prepared(self) -> None:
        """Record the parts of the next request, and how requests are planned, in the run."""
        engine, step, tools, policy = self.engine, self.step, self.tools, self.policy
        assert engine.sink is not None
        # The same at every turn of most conversations; recomputed for another step, or other tools or layers.
        told = (step, tools.specs, engine.stack.layers)
        if engine.prepared is None or not all(map(is_, engine.prepared[0], told)):
            engine.prepared = told, _parts(step, tools, engine.stack.layers)
        offered, params, schema, limits, suffixes = engine.prepared[1]
        # Set on learning counters, whose class is not loaded otherwise.
        learned = getattr(self.tokenizer, "recorded", None)
        engine.sink.emit(
            RequestPrepared(
                *(
                    self.ctx.where,
                    engine.clock.now_ms(),
                    step.id,
                    self.model,
                    self.instructions,
                    offered,
                    params,
                    schema,
                ),
                *(policy.overflow, policy.window_size, limits, tokenizer_name(self.tokenizer), policy.order, suffixes),
                known_error(self.tokenizer),
                None if learned is None else freeze(learned),
            )
        )

    def request(self, plan: TurnPlan) -> ModelRequest:
        step, items = self.step, plan.items
        if self.ctx.item_log.repeats_calls:
            items = with_own_call_ids(items)
        return ModelRequest(
            self.model,
            (*items, *self.ephemeral) if self.ephemeral else items,
            self.instructions or None,
            self.tools.specs,
            step.params,
            None if step.output is None else step.output.json_schema,
            "agent",
            self.ctx.thread_id,
        )

    def raise_stop(self) -> None:
        stop = self.engine.stack.take_stop(self.hook_ctx)
        if stop is not None:
            raise TurnStopped(stop)
