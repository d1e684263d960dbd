"""The two enforcement points: may this tool be called, may this response stand?

Fail-closed. A hook that raises, hangs, returns no decision or was never initialised counts as a deny with a fixed guidance,
unless its layer is set to do otherwise; `on_hook_failure` of the layer is called, so that its ledger is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import MemoryTraceSpan, Where
from noetic_nb.items._origins import Provenance
from noetic_nb.memory._enforcement.call_history import CallsSoFar
from noetic_nb.memory._enforcement.decision_records import decided, fault_text, record_decision
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hook_timeout import is_cancelled
from noetic_nb.memory._hooks.hook_decisions import read_decision
from noetic_nb.memory._hooks.hook_results import UNSET, field_of
from noetic_nb.memory._hooks.hook_runner import HookRunner, Outcome
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._steering_decision import (
    ALLOW,
    SteeringAction,
    SteeringDecision,
    most_restrictive,
)
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams, HookFailure, PastCall, tool_call_params
from noetic_nb.models._client import ModelResponse

__all__ = ["FAILED_GUIDANCE", "OnSteeringError", "decide", "lets_pass"]

OnSteeringError: TypeAlias = Literal["deny", "allow", "raise"]

FAILED_GUIDANCE: Final = (
    "A steering rule could not be evaluated, so this is not allowed. Tell the user and go on without it."
)
"""What the model reads when a rule failed; fixed, so that no error text of a rule reaches the model."""

_Point: TypeAlias = Literal["before_tool_call", "after_model_call"]
_READERS: Final = {point: partial(read_decision, hook=point) for point in ("before_tool_call", "after_model_call")}


async def decide(
    runner: HookRunner,
    point: _Point,
    ctx: ExecutionContext,
    *,
    default_on_error: OnSteeringError,
    tool_name: str = "",
    tool_args: Any = None,
    call_id: str = "",
    history: Sequence[PastCall] = (),
    raw_args: Any = None,
    provenance: Callable[[], Provenance] | None = None,
    tool_values: Mapping[str, Any] | None = None,
    response: ModelResponse | None = None,
) -> SteeringDecision:
    """Call every layer that enforces at this point; the first deny, or the first stop, ends the round.

    Returns
    -------
    SteeringDecision
        The most restrictive decision.

    Raises
    ------
    NoeticConfigError
        When a layer's set-up is wrong, such as ``MISSING_CALL_MODEL``: whatever the policy, such a hole is not hidden.
    NoeticError
        What a hook raised, where the policy is ``"raise"``.
    """
    decisions: list[SteeringDecision] = []
    so_far, states, execution_id = ALLOW, runner.state, ctx.execution_id
    for layer in runner.order.layers_with(point):
        state = states.get(execution_id, layer.id)
        # The regulator, for one, must know whether the call will be made at all.
        if decisions:
            so_far = most_restrictive(decisions)
        if type(history) is CallsSoFar:  # the layer before may have taken its time
            history = history.now()
        params: BeforeToolCallParams | AfterModelCallParams
        if response is not None:
            params = AfterModelCallParams(response, ctx, state, history, so_far)
        else:
            params = tool_call_params(
                *(tool_name, tool_args, ctx, state, call_id, history, ctx.depth, so_far, raw_args, provenance),
                tool_values,
            )
        if (state is None or states.has_disabled) and not runner.order.runs(layer, execution_id):
            found = _not_begun(runner, layer, point, params, ctx, default_on_error)
        else:
            found = _begin_layer(runner, layer, point, params, ctx, default_on_error)
        decision = found if found is None or isinstance(found, SteeringDecision) else await found
        # One that only allows adds nothing to the others.
        if decision is None or decision is ALLOW:
            continue
        decisions.append(decision)
        if decision.action is SteeringAction.DENY or decision.stop is not None:
            # A call that will not be made needs no further opinion, and a judge after this one would cost money.
            break
    return most_restrictive(decisions) if decisions else ALLOW


def lets_pass(runner: HookRunner, execution_id: str, where: Where, response: ModelResponse) -> bool:
    """Tell whether a response passes without a layer being asked, as none has anything to judge; it is in their ledgers then."""
    states, sink, passing = runner.state, runner.traces.sink, runner.order.passing
    if not passing or states.has_disabled:
        return False
    if sink is None and len(passing) == 1:  # as nearly always
        ((layer, passes),) = passing
        state = passes(execution_id, states.get(execution_id, layer.id), response, runner.clock)
        if state is not None:
            states.set(execution_id, layer.id, state, hook="after_model_call")
        return state is not None
    after = []
    for layer, passes in passing:
        start = 0.0 if sink is None else runner.clock.monotonic_ms()
        state = passes(execution_id, states.get(execution_id, layer.id), response, runner.clock)
        if state is None:
            return False
        after.append((layer, state, start if sink is None else runner.clock.monotonic_ms() - start))
    for layer, state, duration_ms in after:
        if sink is not None:
            now = runner.clock.now_ms()
            sink.emit(MemoryTraceSpan(where, now, layer.id, "after_model_call", duration_ms, "ok"))
        states.set(execution_id, layer.id, state, hook="after_model_call")
        if sink is not None and layer.enforces:
            sink.emit(decided(where, runner, layer, "after_model_call", ALLOW, duration_ms))
    return True


_Later: TypeAlias = Coroutine[Any, Any, SteeringDecision]


def _begin_layer(
    runner: HookRunner,
    layer: MemoryLayer,
    point: _Point,
    params: BeforeToolCallParams | AfterModelCallParams,
    ctx: ExecutionContext,
    default_on_error: OnSteeringError,
) -> Any:
    """Let a layer decide as far as that goes without waiting: its decision, None for no opinion, or an awaitable."""
    call: Callable[[Any], Any] = getattr(layer.hooks, point)
    start = None
    if runner.traces.sink is None:
        # Nearly always a decision at once and a new state: nothing else is to be read of it, or recorded.
        start = runner.clock.monotonic_ms()
        try:
            value = call(params)
        except BaseException as exc:
            call = partial(_raise, exc)
        else:
            if (
                type(value) is dict
                and len(value) == 2
                and type(decision := value.get("decision")) is SteeringDecision
                and (state := value.get("state")) is not None
            ):
                error = runner.put(ctx, layer, point, state)
                if error is None:
                    return decision
                policy = layer.on_steering_error or default_on_error
                return _failed(runner, layer, point, params, ctx, error, "error", policy, 0.0)
            call = partial(_same, value)
    try:
        outcome = runner.begin(layer, point, params, ctx, read=_READERS[point], call=call, start=start)
    except BaseException as exc:
        return _ended(runner, layer, point, params, ctx, exc, default_on_error)
    if isinstance(outcome, Outcome):
        return _taken(runner, layer, point, params, ctx, outcome, default_on_error)
    return _waited(runner, layer, point, params, ctx, outcome, default_on_error)


def _raise(error: BaseException, params: Any) -> Any:
    raise error


def _same(value: Any, params: Any) -> Any:
    return value


def _not_begun(
    runner: HookRunner,
    layer: MemoryLayer,
    point: _Point,
    params: BeforeToolCallParams | AfterModelCallParams,
    ctx: ExecutionContext,
    default_on_error: OnSteeringError,
) -> _Later | None:
    """Return the decision for a layer that takes no part."""
    idle: Any = runner.order.idle_reason(layer, ctx.execution_id)
    # A layer that only observes may be missing; one that enforces may not, or its rules would be off unnoticed.
    if not layer.enforces:
        runner.traces.skipped(layer, point, ctx)
        return None
    error: Exception = NoeticError(
        "step_failed",
        f"The layer {layer.id!r} enforces rules but is {idle}",
        hint="Initialise it: run the agent through its harness, and look at why `init` failed.",
        step_id=layer.id,
    )
    runner.state.report(ctx.execution_id, layer.id, point, error)
    policy = layer.on_steering_error or default_on_error
    return _failed(runner, layer, point, params, ctx, error, idle, policy, 0.0)


async def _waited(
    runner: HookRunner,
    layer: MemoryLayer,
    point: _Point,
    params: BeforeToolCallParams | AfterModelCallParams,
    ctx: ExecutionContext,
    waiting: Awaitable[Outcome],
    default_on_error: OnSteeringError,
) -> SteeringDecision:
    """Wait for a layer's decision."""
    try:
        outcome = await waiting
    except GeneratorExit:
        raise  # the coroutine is being closed, and nothing may be awaited any more
    except BaseException as exc:
        return await _ended(runner, layer, point, params, ctx, exc, default_on_error)
    found = _taken(runner, layer, point, params, ctx, outcome, default_on_error)
    return found if isinstance(found, SteeringDecision) else await found


def _ended(
    runner: HookRunner,
    layer: MemoryLayer,
    point: _Point,
    params: BeforeToolCallParams | AfterModelCallParams,
    ctx: ExecutionContext,
    error: BaseException,
    default_on_error: OnSteeringError,
) -> _Later:
    """Return the decision where a hook was ended: Ctrl-C, the end of the program or of the task go on, but not without a row."""
    ended = isinstance(error, KeyboardInterrupt | SystemExit) or is_cancelled()
    return _failed(
        runner,
        layer,
        point,
        params,
        ctx,
        error if ended else _as_error(error),
        "cancelled" if ended and isinstance(error, asyncio.CancelledError) else "error",
        "raise" if ended else layer.on_steering_error or default_on_error,
        0.0,
    )


def _taken(
    runner: HookRunner,
    layer: MemoryLayer,
    point: _Point,
    params: BeforeToolCallParams | AfterModelCallParams,
    ctx: ExecutionContext,
    outcome: Outcome,
    default_on_error: OnSteeringError,
) -> SteeringDecision | _Later:
    """Handle the decision of a hook: write its state and record it; the handling of a failure is to be awaited."""
    error: BaseException | None = outcome.error
    if error is None:
        decision: SteeringDecision
        decision, state, wrong, faults, times = outcome.value
        error = None if state is UNSET or state is None else runner.put(ctx, layer, point, state)
        if error is None:
            if runner.traces.sink is not None:
                record_decision(runner, layer, point, params, ctx, decision, outcome.duration_ms, wrong, faults, times)
            return decision
        # As with a hook that raises: nothing of what it returned counts.
    reason: Literal["error", "timeout"] = "timeout" if outcome.status == "timeout" else "error"
    policy = layer.on_steering_error or default_on_error
    # A hole in the set-up would deny every call and look like strict rules: it surfaces instead.
    if isinstance(error, NoeticConfigError):
        if error.code == "MISSING_CALL_MODEL":
            raise error  # nothing was evaluated, so there is no row
        policy = "raise"
    return _failed(runner, layer, point, params, ctx, error, reason, policy, outcome.duration_ms)


def _as_error(error: BaseException) -> Exception:
    """Return an error of a hook as one that neither ends the program nor passes for the end of the task."""
    if isinstance(error, Exception):
        return error
    found = RuntimeError(f"{type(error).__name__} from a hook: {error}")
    found.__cause__ = error
    return found


async def _failed(
    runner: HookRunner,
    layer: MemoryLayer,
    point: _Point,
    params: BeforeToolCallParams | AfterModelCallParams,
    ctx: ExecutionContext,
    error: BaseException,
    reason: Literal["error", "timeout", "cancelled", "uninitialised", "disabled"],
    policy: OnSteeringError,
    duration_ms: float,
) -> SteeringDecision:
    decision = ALLOW if policy == "allow" else SteeringDecision(SteeringAction.DENY, FAILED_GUIDANCE)
    if layer.hooks.on_hook_failure is not None:
        failure = HookFailure(
            point, error, decision, params, runner.state.get(ctx.execution_id, layer.id), reason, duration_ms
        )
        # A failure of this hook, too, is only a diagnostic: the decision stands either way.
        outcome = await runner.run(layer, "on_hook_failure", failure, ctx)
        if outcome.error is None:
            state = field_of(outcome.value, "state", hook="on_hook_failure")
            if state is not UNSET:
                runner.put(ctx, layer, point, state)
            named = field_of(outcome.value, "rule_ids", hook="on_hook_failure")
            if named:
                decision = SteeringDecision(decision.action, decision.guidance, tuple(named))
    # Recorded before it raises, so that the ledger has the call that ended the run.
    # The layer says which rule it was waiting for; whoever reads the run learns why nothing came of it.
    faults = tuple([(rule_id, fault_text(error, point)) for rule_id in decision.rule_ids or (layer.recorded_id,)])
    record_decision(runner, layer, point, params, ctx, decision, duration_ms, reason, faults)
    if policy == "raise":
        raise error
    return decision
