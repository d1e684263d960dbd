"""What one harness shares between its executions: models, layers, budgets, where events go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from noetic_nb.clock import Clock
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ErrorRaised, ModelCalled
from noetic_nb.ids import Ids
from noetic_nb.memory import (
    BudgetPlan,
    ExecutionContext,
    HookModelRequest,
    LayerStack,
    MemoryLayer,
    ProjectionPolicy,
    allocate_budgets,
)
from noetic_nb.memory.execution_context import as_response
from noetic_nb.models.client import (
    ModelClient,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    StreamingModelClient,
    Usage,
)
from noetic_nb.models.stream_timeout import IdleTimeout
from noetic_nb.runtime.config.config import AgentConfig
from noetic_nb.runtime.context.context import Context
from noetic_nb.runtime.context.hub import EventHub
from noetic_nb.runtime.context.step_errors import said_by
from noetic_nb.steps import LLMStep, Tool
from noetic_nb.steps.output_codec import system_instructions
from noetic_nb.steps.tools import ToolSet
from noetic_nb.steps.traverse import listed_tools, llm_steps
from noetic_nb.tokens import Tokenizer

__all__ = ["Approve", "Engine"]

Approve: TypeAlias = Callable[[str, Mapping[str, Any]], Any]
"""Asks a person: ``approve(tool_name, args)`` answers True, False, or a text that says why not; may be async."""


# Instructions that change at every step, and steps that are made anew each time, would fill the tables for ever.
MAX_SETUPS: Final = 256
NO_TOOLS: Final = ToolSet(())


class StepSetup(NamedTuple):
    """What an llm step needs that stays the same from one time to the next."""

    policy: ProjectionPolicy
    tools: ToolSet
    system_tokens: int
    budgets: BudgetPlan
    instructions: str


class Engine:
    """The live side of an `AgentConfig`; everything an execution needs that is not its own."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        model: ModelClient | Mapping[str, ModelClient] | None,
        stack: LayerStack,
        hub: EventHub,
        clock: Clock,
        ids: Ids,
        tokenizer: Tokenizer,
        approve: Approve | None,
    ) -> None:
        self.config = config
        self.models = model
        # The client for every name; whether something is a mapping takes longer to see than who it is.
        self._only: ModelClient | None = None if isinstance(model, Mapping) else model
        self.stack = stack
        self.hub = hub
        self.clock = clock
        self.ids = ids
        self.tokenizer = tokenizer
        self.approve = approve
        self.summaries: dict[str, dict[int, str]] = {}
        # Steps whose state or checkpoint was found too large; each is told of once.
        self.told_large: set[tuple[str, str]] = set()
        # From an engine and a context to what layers provide there; above this file, so the harness hands it in.
        self.open_memory: Callable[[Engine, Context], Any] | None = None
        self.layer_tools = self._provided()
        # By execution: what it has started and not heard of to the end; see the file on handles, above this one.
        self.handles: dict[str, Any] = {}
        self._inner: dict[int, tuple[object, Engine]] = {}
        self._toolsets: dict[int, tuple[LLMStep, ToolSet]] = {}
        self._setups: dict[tuple[int, str], tuple[LLMStep, StepSetup]] = {}
        self.sink: EventHub | None = None
        """Where events go; None while nobody listens, so that none are made in vain."""
        self.watches_steps = False
        """Whether anyone wants to know of each step."""
        self.listen()

    def _provided(self) -> tuple[Tool, ...]:
        """Return what the layers provide for the model; loaded with the first layer that does."""
        if not any(layer.provides for layer in self.stack.layers):
            return ()
        from noetic_nb.runtime.context.layer_tools import provided_tools

        return provided_tools(self.stack.layers, stack=self.stack, hook_context=self.hook_context)

    async def sleep(self, ms: float) -> None:
        """Wait so many milliseconds."""
        await asyncio.sleep(ms / 1000)

    def stack_of(self, layers: tuple[MemoryLayer, ...]) -> LayerStack:
        """Return a stack of some layers over the same state and storage."""
        return LayerStack(
            layers,
            storage=self.stack.storage,
            state=self.stack.state,
            force_atomic_recall=self.config.force_atomic_recall,
            on_steering_error=self.config.on_steering_error,
            sink=self.sink,
            clock=self.clock,
            ids=self.ids,
            registry=self.config.item_registry,
        )

    def with_layers(self, step: object, layers: tuple[MemoryLayer, ...]) -> Engine:
        """Return this engine with other layers, the same one for the same step."""
        known = self._inner.get(id(step))
        if known is not None and known[0] is step:
            return known[1]
        inner = Engine(
            self.config,
            model=self.models,
            stack=self.stack_of(layers),
            hub=self.hub,
            clock=self.clock,
            ids=self.ids,
            tokenizer=self.tokenizer,
            approve=self.approve,
        )
        inner.summaries, inner.open_memory, inner.handles = self.summaries, self.open_memory, self.handles
        inner.told_large = self.told_large
        if len(self._inner) >= MAX_SETUPS:
            del self._inner[next(iter(self._inner))]
        self._inner[id(step)] = (step, inner)
        return inner

    def listen(self) -> None:
        """Take note of whether anyone listens, and tell the stacks."""
        self.sink = self.stack.sink = self.hub or None
        config = self.config
        self.watches_steps = self.sink is not None or config.before_step is not None or config.after_step is not None
        for _, inner in self._inner.values():
            inner.listen()

    def has_model(self, name: str) -> bool:
        """Tell whether a client answers a model's name."""
        return name in self.models if isinstance(self.models, Mapping) else self.models is not None

    def client(self, name: str) -> ModelClient:
        """Return the client that answers a model's name.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_MODEL``, or ``NO_LLM_PROVIDER`` where there is no client at all.
        """
        models = self.models
        if models is not None and (models is self._only or not isinstance(models, Mapping)):
            return models
        if models is None:
            raise NoeticConfigError(
                "NO_LLM_PROVIDER",
                "The agent asks a model, and the harness has none.",
                given=name,
                hint="Pass model=... to AgentHarness.",
            )
        found = models.get(name)
        if found is None:
            raise NoeticConfigError(
                "UNKNOWN_MODEL",
                "No client answers this model's name.",
                given=name,
                hint=f"The harness has {', '.join(map(repr, models)) or 'none'}.",
            )
        return found

    def toolset(self, step: LLMStep) -> ToolSet:
        """Return the tools of an llm step: its own or all the agent has, and what layers provide."""
        known = self._toolsets.get(id(step))
        if known is not None and known[0] is step:
            return known[1]
        # What a function will choose is not known here; what layers provide comes with nearly all it can choose.
        found = ToolSet(self.layer_tools) if callable(step.tools) else self.tools_of(step.tools)
        if len(self._toolsets) >= MAX_SETUPS:
            self._toolsets.clear()
        self._toolsets[id(step)] = (step, found)
        return found

    def tools_of(self, listed: tuple[Tool, ...] | None) -> ToolSet:
        """Return the tools of a list, or all the agent has, and what layers provide; of an empty list, none at all."""
        if listed is None:
            listed = (*self.config.tools, *[t for s in llm_steps(self.config.step) for t in listed_tools(s)])
        elif not listed:
            return NO_TOOLS
        return ToolSet((*listed, *self.layer_tools))

    def setup(self, step: LLMStep, instructions: str) -> StepSetup:
        """Return the policy, tools, budgets and system text of an llm step; worked out once for the same instructions.

        Tools that a function of the context chooses are the caller's business.
        """
        key = (id(step), instructions)
        known = self._setups.get(key)
        if known is not None and known[0] is step:
            return known[1]
        policy = step.projection or self.config.projection
        instructions = system_instructions(instructions, step.output)
        system_tokens = self.tokenizer(instructions) if instructions else 0
        budgets = allocate_budgets(
            self.stack.layers,
            total_budget=policy.token_budget,
            system_prompt_tokens=system_tokens,
            response_reserve=policy.response_reserve,
        )
        if len(self._setups) >= MAX_SETUPS:
            self._setups.clear()
        tools = NO_TOOLS if callable(step.tools) else self.toolset(step)
        found = StepSetup(policy, tools, system_tokens, budgets, instructions)
        self._setups[key] = (step, found)
        return found

    def hook_context(self, ctx: Context) -> ExecutionContext:
        """Return the execution as hooks see it now."""
        return ExecutionContext(
            execution_id=ctx.id,
            thread_id=ctx.thread_id,
            resource_id=ctx.resource_id,
            depth=ctx.depth,
            step_number=ctx.step_count,
            call_model=lambda request: self.ask_for_layer(ctx, request),
            token_usage=ctx.tokens,
            cost=ctx.cost,
            tokenize=self.tokenizer,
            read_layer_state=lambda layer_id: self.stack.state.get(ctx.id, layer_id),
            turn=ctx.turn,
            clock=self.clock,
            ids=self.ids,
            diagnostic=self.stack.state.diagnostic,
            sink=self.sink,
        )

    def ask_for_layer(self, ctx: Context, request: Any) -> Coroutine[Any, Any, ModelResponse]:
        """Ask a model on behalf of a layer or a judge; the execution pays.

        Raises
        ------
        NoeticConfigError
            ``MISSING_CALL_MODEL`` at once, before anything is awaited: a background task would raise it to nobody.
        """
        if isinstance(request, Mapping):
            request = HookModelRequest(request["model"], request["items"], request.get("instructions"))
        if isinstance(self.models, Mapping) and request.model not in self.models:
            raise NoeticConfigError(
                "MISSING_CALL_MODEL",
                "A layer asks a model that no client answers.",
                given=request.model,
                hint=f"Add it to the harness's models; it has {', '.join(map(repr, self.models)) or 'none'}.",
            )
        full = ModelRequest(
            request.model,
            request.items,
            request.instructions,
            purpose=getattr(request, "purpose", "layer"),
            thread_id=ctx.thread_id,
        )
        return self._answer_for_layer(ctx, full)

    async def _answer_for_layer(self, ctx: Context, request: ModelRequest) -> ModelResponse:
        response, _ = await self.ask(ctx, request, step=ctx.step_count)
        return response

    async def ask(
        self, ctx: Context, request: ModelRequest, *, step: int, tell: Callable[[ModelDelta], None] | None = None
    ) -> tuple[ModelResponse, float]:
        """Ask a model and charge the execution; where the turn is streamed, `tell` hears the pieces instead of the tree.

        Returns
        -------
        response : ModelResponse
            With items that are items.
        duration_ms : float
            How long it took; 0 where nobody wants to know.

        Raises
        ------
        NoeticError
            What the client raises, or ``llm_failed`` for any other exception and for an answer that is none.
        """
        client = self.client(request.model)
        if ctx.tree.limits is not None:
            ctx.check_limits()
        start = self.clock.monotonic_ms()
        try:
            if (
                ctx.tree.on_delta is not None
                and request.purpose == "agent"
                and isinstance(client, StreamingModelClient)
            ):
                limit_ms = 0.0 if getattr(client, "watches_silence", False) else self.config.stream_idle_timeout_ms
                response = await ctx.until_aborted(_streamed(client, request, tell or ctx.tree.on_delta, limit_ms))
            else:
                response = await ctx.until_aborted(client.complete(request))
            if type(response) is not ModelResponse:
                response = as_response(response, ctx.item_log.registry)
            parse = ctx.item_log.registry.parse
            for item in response.items:
                parse(item)
        except asyncio.CancelledError:
            self._called(ctx, request, step, start, "cancelled", None, None)
            raise
        except (NoeticError, NoeticConfigError) as exc:
            spent = exc.facts.get("usage")
            # A refusal, or an answer that broke off, costs what an answer costs.
            paid = ModelResponse((), spent, exc.facts.get("cost")) if isinstance(spent, Usage) else None
            self._called(ctx, request, step, start, "cancelled" if ctx.aborted else "error", paid, exc)
            if paid is not None:
                ctx.charge(paid)
            raise
        except Exception as exc:
            self._called(ctx, request, step, start, "error", None, exc)
            raise NoeticError(
                "llm_failed",
                f"Model {request.model!r} failed or answered something that is no response: {type(exc).__name__}: {said_by(exc)}",
                hint="The conversation is kept; ask again, or look at the model client.",
                model=request.model,
            ) from exc
        ctx.charge(response)
        if self.sink is None and "on_model_outcome" not in self.stack.hooks:
            return response, 0.0
        return response, self._called(ctx, request, step, start, "ok", response, None)

    def _called(
        self,
        ctx: Context,
        request: ModelRequest,
        step: int,
        start: float,
        status: Any,
        response: ModelResponse | None,
        error: BaseException | None,
    ) -> float:
        duration = self.clock.monotonic_ms() - start
        if self.sink is not None:
            answer = ModelResponse(()) if response is None else response
            self.sink.emit(
                ModelCalled(
                    ctx.where,
                    self.clock.now_ms(),
                    step,
                    request.model,
                    request.purpose,
                    duration,
                    status,
                    answer.items,
                    answer.usage.input_tokens,
                    answer.usage.output_tokens,
                    answer.usage.cached_tokens,
                    answer.cost or 0.0,
                    tuple([(token.token, token.logprob) for token in answer.logprobs]),
                    None if error is None else said_by(error),
                )
            )
        return duration

    def report(self, ctx: Context, error: BaseException, step_id: str | None = None) -> None:
        """Put an error into the run."""
        if self.sink is not None:
            kind = error.kind if isinstance(error, NoeticError) else getattr(error, "code", type(error).__name__)
            self.sink.emit(ErrorRaised(ctx.where, self.clock.now_ms(), str(kind), said_by(error), step_id))


async def _streamed(
    client: StreamingModelClient, request: ModelRequest, tell: Callable[[ModelDelta], None], limit_ms: float
) -> ModelResponse:
    """Ask with a stream, passing on what is written while it is written."""
    response: ModelResponse | None = None
    parts = client.stream(request)
    try:
        with IdleTimeout(limit_ms, request.model) as idle:
            async for part in parts:
                idle.note_activity()
                if isinstance(part, ModelDelta):
                    tell(part)
                else:
                    response = part
    finally:
        close = getattr(parts, "aclose", None)
        if close is not None:
            await close()
    if response is None:
        raise NoeticError("llm_failed", f"The stream of model {request.model!r} ended without an answer")
    return response
