"""The parts that a harness shares between its executions: models, layers, budgets, event sinks."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from noetic_nb._core.names import FinishReason, finish_reason_of
from noetic_nb._core.shell import Shell
from noetic_nb.clock import Clock
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ErrorRaised, EventSink, ModelCalled
from noetic_nb.ids import Ids
from noetic_nb.items._item import Item
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryLayer
from noetic_nb.memory._execution_context import HookModelRequest, as_response
from noetic_nb.memory._hooks.hook_runner import NO_SOURCES
from noetic_nb.models._client import (
    CUT_OFF,
    ModelClient,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    StreamingModelClient,
    Usage,
)
from noetic_nb.models._client_answers import checked_spend, is_unknown_model, not_async, streamed
from noetic_nb.runtime._config.config import AgentConfig
from noetic_nb.runtime._context.event_hub import EventHub, StepEvents
from noetic_nb.runtime._context.protocols import Execution
from noetic_nb.runtime._context.step_errors import error_text
from noetic_nb.runtime._context.step_setup import MAX_SETUPS, StepSetups
from noetic_nb.steps import LLMStep, Tool
from noetic_nb.steps._tools import ToolSet
from noetic_nb.tokens import Tokenizer

T = TypeVar("T")
_FINISH_REASONS: Final = frozenset({None, *get_args(FinishReason)})
# The answer is Any, as it may be awaitable; the arguments are those of any tool.
Approve: TypeAlias = Callable[[str, Mapping[str, Any]], Any]
"""Asks a person to decide: ``approve(tool_name, args)`` returns True, False or a reason to refuse; may be async."""


CallStatus: TypeAlias = Literal["ok", "error", "cancelled"]


# Hooks in which a layer can read texts of the conversation and remember them.
_TAKES_IN: Final = ("store", "on_complete", "on_return", "on_item_append", "on_tool_outcome", "on_model_outcome")


def _remembers(layer: MemoryLayer) -> bool:
    """Tell whether a layer shows later executions anything derived from the texts of this one."""
    takes_in = bool(layer.provides) or any(getattr(layer.hooks, hook) is not None for hook in _TAKES_IN)
    is_kept = layer.foreign or (takes_in and layer.scope != "execution")
    return is_kept and layer.hooks.recall is not None and not layer.is_guard


class Engine:
    """The live side of an `AgentConfig`: everything that an execution needs and shares with others."""

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
        fs: Any = None,
        shell: Shell | None = None,
        outer: Engine | None = None,
    ) -> None:
        self.config = config
        self.models = model
        self.stack = stack
        self.hub = hub
        self.clock = clock
        self.ids = ids
        self.tokenizer = tokenizer
        self.approve = approve
        # A filesystem of fsspec, which has no types.
        self.fs = fs
        self.shell = shell
        # Summaries by thread, and then by the number of items they cover.
        self.summaries: dict[str, dict[int, str]] = {} if outer is None else outer.summaries
        # The last request of each conversation and its billed tokens. Any, as that class is a floor up.
        self.billed: dict[tuple[str, str], Any] = {} if outer is None else outer.billed
        # Steps already reported for a too large state or checkpoint; each is reported once.
        self.warned_steps: set[tuple[str, str]] = set() if outer is None else outer.warned_steps
        # The `Started` records of each execution. Any, as that class is two floors up.
        self.handles: dict[str, Any] = {} if outer is None else outer.handles
        self.unanswered: set[str] = set() if outer is None else outer.unanswered
        provided = self._provided()
        self._providing = tuple(
            [
                (layer, names)
                for layer in stack.layers
                if (names := tuple([one.name for one in provided if one.name.startswith(f"{layer.id}/")]))
            ]
        )
        """The layers that provide functions for the model, with the tool names of these functions."""
        self.setups: StepSetups = StepSetups(config, stack, provided, None if outer is None else outer.setups)
        self.prepared: tuple[tuple[Any, ...], tuple[Any, ...]] | None = None
        """The inputs of the last recorded request, and the parts of them that go into a run."""
        self._inner: dict[tuple[int, tuple[str, ...], bool], tuple[object, Engine]] = {}
        self.depth: int = 0 if outer is None else outer.depth + 1
        """The number of enclosing engines with other layers."""
        self.sources: Mapping[str, str] = NO_SOURCES
        """Layers that were renamed: their id here, mapped to their id in the enclosing engine."""
        self.dropped: tuple[str, ...] = ()
        """The layers of the enclosing engine that were dropped by name."""
        self.remembering = tuple([layer for layer in stack.layers if _remembers(layer)])
        """The layers that show later executions data derived from this one."""
        # The `Keeper`, once a layer remembers. Any, as that class is a floor up.
        self.keepers: list[Any] = [] if outer is None else outer.keepers
        self.sink: EventSink | None = None
        """The sink for events; None without a subscriber, so that no events are created in vain."""
        self.watches_steps = False
        """Whether a subscriber or a callback needs to know of each step."""
        self.update_sinks()

    def _provided(self) -> tuple[Tool, ...]:
        """Return the tools that layers provide for the model; their module is loaded with the first such layer."""
        if not any(layer.provides for layer in self.stack.layers):
            return ()
        from noetic_nb.runtime._context.step_setup import provided_tools

        return provided_tools(self.stack.layers, stack=self.stack, hook_context=self.hook_context)

    def offered(self, tools: ToolSet, ctx: Execution) -> ToolSet:
        """Return the tools of a step, without functions of layers that take no part in the execution."""
        if not self._providing:
            return tools
        left = [name for layer, names in self._providing if not self.stack.runs(layer, ctx.id) for name in names]
        return tools.without(tuple(left)) if left else tools

    async def sleep(self, ms: float) -> None:
        await asyncio.sleep(ms / 1000)

    def stack_of(self, layers: tuple[MemoryLayer, ...]) -> LayerStack:
        """Return a stack of the given layers over the same state and storage."""
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

    def with_layers(self, step: object, layers: tuple[MemoryLayer, ...] | None, drop: tuple[str, ...] = ()) -> Engine:
        """Return this engine with `layers` (None: the current ones) plus its guards, and without the layers in `drop`."""
        if layers is None and not drop:
            return self
        key = id(step), drop, layers is None
        known = self._inner.get(key)
        if known is not None and known[0] is step:
            return known[1]
        kept = [layer for layer in self.stack.layers if layer.recorded_id not in drop]
        sources: dict[str, str] = {}
        if layers is not None:
            kept, sources = self._beside([layer for layer in kept if layer.is_guard], layers)
        inner = Engine(
            self.config,
            model=self.models,
            stack=self.stack_of(tuple(kept)),
            hub=self.hub,
            clock=self.clock,
            ids=self.ids,
            tokenizer=self.tokenizer,
            approve=self.approve,
            fs=self.fs,
            shell=self.shell,
            outer=self,
        )
        inner.sources = sources
        found = [layer.recorded_id for layer in self.stack.layers if layer.recorded_id in drop]
        inner.dropped = tuple(dict.fromkeys(found))
        if len(self._inner) >= MAX_SETUPS:
            del self._inner[next(iter(self._inner))]
        self._inner[key] = (step, inner)
        return inner

    def _beside(
        self, guards: list[MemoryLayer], layers: tuple[MemoryLayer, ...]
    ) -> tuple[list[MemoryLayer], dict[str, str]]:
        """Return the guards followed by a child's own layers, and the original ids of guards whose id is taken."""
        own = {layer.id: layer for layer in layers}
        made, sources = [], {}
        for guard in guards:
            rival = own.get(guard.id)
            if rival is not None and rival.hooks == guard.hooks:
                del own[guard.id]  # the same guard given again decides once, as strictly as before
            elif rival is not None:
                # The depth separates the ids of generations, and is the same when a turn is resumed.
                sources[f"{guard.id}@{self.depth}"] = guard.id
                guard = replace(
                    guard,
                    id=f"{guard.id}@{self.depth}",
                    original_id=guard.id,
                    slot=min(guard.slot, rival.slot),  # the parent decides first
                    enforces=guard.enforces or rival.enforces,
                    provides=None,
                )
            made.append(guard)
        return [*made, *own.values()], sources

    def showing(self, step: LLMStep) -> Engine:
        """Return a twin of this engine that shares everything but emits only the events that the step's `emit` allows."""
        twin = copy.copy(self)
        twin.sink = StepEvents(self.hub, step, self.stack.state.report)
        return twin

    def update_sinks(self) -> None:
        """Update whether there is a subscriber, here and in the stacks."""
        self.sink = self.stack.sink = self.hub or None
        config = self.config
        self.watches_steps = self.sink is not None or config.before_step is not None or config.after_step is not None
        for _, inner in self._inner.values():
            inner.update_sinks()

    def has_model(self, name: str) -> bool:
        return name in self.models if isinstance(self.models, Mapping) else self.models is not None

    def answers(self, model: str, purpose: str) -> bool:
        """Tell whether a client serves a model name for a purpose; a client may define ``answers(model, purpose)`` to decide."""
        client: Any = self.models.get(model) if isinstance(self.models, Mapping) else self.models
        if client is None or model in self.unanswered:
            return False
        known = getattr(client, "answers", None)
        return known is None or bool(known(model, purpose))

    def client(self, name: str) -> ModelClient:
        models = self.models
        if models is not None and not isinstance(models, Mapping):
            return models
        if models is None:
            what = "The agent asks a model, and the harness has none."
            raise NoeticConfigError("NO_LLM_PROVIDER", what, given=name, hint="Pass model=... to AgentHarness.")
        found = models.get(name)
        if found is None:
            hint = f"The harness has {', '.join(map(repr, models)) or 'none'}."
            raise NoeticConfigError("UNKNOWN_MODEL", "No client has this model name.", given=name, hint=hint)
        return found

    def tokenizer_of(self, model: str) -> Tokenizer:
        """Return the token counter for a model: the harness's tokenizer, or the one calibrated for this model."""
        learning = getattr(self.tokenizer, "calibration", None)
        found: Tokenizer = self.tokenizer if learning is None else learning.tokenizer(model)
        return found

    def hook_context(self, ctx: Execution) -> ExecutionContext:
        known = ctx.hook_base
        spent = {"token_usage": ctx.tokens, "cost": ctx.cost}
        now: dict[str, Any] = {"sink": self.sink, "step_number": ctx.step_count, **spent}
        if known is None or known[0] is not self:
            made = ExecutionContext(
                execution_id=ctx.id,
                thread_id=ctx.thread_id,
                resource_id=ctx.resource_id,
                depth=ctx.depth,
                call_model=None if self.models is None else lambda request: self.call_model_for_layer(ctx, request),
                tokenize=self.tokenizer,
                read_layer_state=lambda layer_id: self.stack.state.copy_of(ctx.id, layer_id, "read_layer_state"),
                turn=ctx.turn,
                clock=self.clock,
                ids=self.ids,
                diagnostic=partial(self.stack.state.report, ctx.id),
                warn=partial(self.stack.state.note, ctx.id),
                fs=self.fs,
                shell=self.shell,
                home=self.stack.storage,
                past_calls=ctx.tree.calls.so_far,
                known_tools=self.setups.known,
                **now,
            )
            vars(made)["where"] = ctx.where  # the same record in all events of an execution
        elif vars(known[1]).items() >= now.items():
            return known[1]
        else:
            made = copy.copy(known[1])
            vars(made).update(now)
        ctx.hook_base = self, made
        return made

    def call_model_for_layer(
        self, ctx: Execution, request: HookModelRequest | Mapping[str, Any]
    ) -> Coroutine[Any, Any, ModelResponse]:
        """Call a model for a layer or a judge and charge the execution; if no client serves it, fail before awaiting anything."""
        if isinstance(request, Mapping):
            request = HookModelRequest(request["model"], request["items"], request.get("instructions"))
        purpose: Any = getattr(request, "purpose", "layer")
        if not self.answers(request.model, purpose):
            self.unanswered.discard(request.model)  # so that the next call tries again
            raise self._missing(request.model, purpose)
        full = ModelRequest(
            request.model, request.items, request.instructions, purpose=purpose, thread_id=ctx.thread_id
        )
        return self._call_for_layer(ctx, full)

    async def _call_for_layer(self, ctx: Execution, request: ModelRequest) -> ModelResponse:
        try:
            response, _ = await self.call_model(ctx, request, step=ctx.step_count)
        except NoeticError as exc:
            if not is_unknown_model(exc):
                raise
            # Kept because a judge may not be awaited: either its next call fails at once, or its turn fails at the end.
            self.unanswered.add(request.model)
            missing = self._missing(request.model, request.purpose)
            if request.purpose == "judge":
                ctx.note_missing_judge(missing)
            raise missing from exc
        return response

    def _missing(self, model: str, purpose: str) -> NoeticConfigError:
        known = (
            ", ".join(map(repr, self.models)) or "none" if isinstance(self.models, Mapping) else "one client for all"
        )
        what = f"A {purpose} asks a model that no client answers."
        hint = f"Give the harness a client that answers this name; it has {known}."
        return NoeticConfigError("MISSING_CALL_MODEL", what, given=model, hint=hint)

    async def call_model(
        self, ctx: Execution, request: ModelRequest, *, step: int, on_delta: Callable[[ModelDelta], None] | None = None
    ) -> tuple[ModelResponse, float]:
        """Call a model, streaming to `on_delta`, and charge the execution; returns the response and its duration in ms."""
        client = self.client(request.model)
        if ctx.tree.limits is not None:
            ctx.check_limits()
        start = self.clock.monotonic_ms()
        try:
            if on_delta is not None and isinstance(client, StreamingModelClient):
                limit_ms = 0.0 if getattr(client, "watches_silence", False) else self.config.stream_idle_timeout_ms
                response = await ctx.until_aborted(streamed(client, request, on_delta, limit_ms))
            else:
                answer: Any = client.complete(request)
                if not hasattr(answer, "__await__"):
                    raise not_async(client, request)
                response = await ctx.until_aborted(answer)
            if type(response) is not ModelResponse:
                response = as_response(response)
            response = checked_spend(response)
            if (reason := response.finish_reason) not in _FINISH_REASONS:
                response = response._replace(finish_reason=finish_reason_of(reason))
            items = tuple(map(ctx.item_log.registry.parse_answer, response.items))
            if items != response.items:
                response = response._replace(items=items)
            if response.finish_reason not in CUT_OFF and any(map(_is_unfinished, items)):
                response = response._replace(finish_reason="length")
        except asyncio.CancelledError:
            self._record_call(ctx, request, step, start, "cancelled", None, None)
            raise
        except (NoeticError, NoeticConfigError) as exc:
            spent = exc.facts.get("usage")
            # A refusal or an interrupted answer costs as much as any answer.
            paid = ModelResponse((), spent, exc.facts.get("cost")) if isinstance(spent, Usage) else None
            self._record_call(ctx, request, step, start, "cancelled" if ctx.aborted else "error", paid, exc)
            if paid is not None:
                ctx.charge(paid)
            raise
        except Exception as exc:
            self._record_call(ctx, request, step, start, "error", None, exc)
            raise NoeticError(
                "llm_failed",
                f"Model {request.model!r} failed, or its answer is not a response: "
                f"{type(exc).__name__}: {error_text(exc)}",
                hint="The conversation is kept; try again, or check the model client.",
                model=request.model,
            ) from exc
        ctx.charge(response)
        if self.sink is None and "on_model_outcome" not in self.stack.hooks:
            return response, 0.0
        return response, self._record_call(ctx, request, step, start, "ok", response, None)

    def _record_call(
        self,
        ctx: Execution,
        request: ModelRequest,
        step: int,
        start: float,
        status: CallStatus,
        response: ModelResponse | None,
        error: BaseException | None,
    ) -> float:
        duration = self.clock.monotonic_ms() - start
        if self.sink is not None:
            answer = _NO_ANSWER if response is None else response
            usage, logprobs = answer.usage, answer.logprobs
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
                    usage.input_tokens,
                    usage.output_tokens,
                    usage.cached_tokens,
                    answer.cost,
                    tuple([(token.token, token.logprob) for token in logprobs]) if logprobs else (),
                    None if error is None else error_text(error),
                    answer.finish_reason,
                    usage.cache_write_tokens,
                    usage.reasoning_tokens,
                )
            )
        return duration

    def report(self, ctx: Execution, error: BaseException, step_id: str | None = None) -> None:
        if self.sink is not None:
            kind = error.kind if isinstance(error, NoeticError) else getattr(error, "code", type(error).__name__)
            self.sink.emit(ErrorRaised(ctx.where, self.clock.now_ms(), str(kind), error_text(error), step_id))


_NO_ANSWER: Final = ModelResponse(())


def _is_unfinished(item: Item) -> bool:
    """Tell whether an item is a call that the model did not finish writing."""
    return item["type"] == "function_call" and item.get("status") not in (None, "completed")
