"""The two enforcement points: may this tool be called, may this response stand?

Fail-closed. A hook that raises, hangs, returns no decision or was never initialised counts as a deny with a fixed guidance,
unless its layer is set to do otherwise; `on_hook_failure` of the layer is called, so that its ledger is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import MemoryTraceSpan, SteeringDecided
from noetic_nb.items.frozen import FrozenDict
from noetic_nb.items.origins import Provenance
from noetic_nb.late_events import Place, Row, event_of
from noetic_nb.memory.call_history import CallsSoFar
from noetic_nb.memory.execution_context import ExecutionContext
from noetic_nb.memory.hook_results import UNSET, field_of
from noetic_nb.memory.hook_runner import HookRunner, Outcome
from noetic_nb.memory.hook_timeout import is_cancelled
from noetic_nb.memory.layer import MemoryLayer
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams, HookFailure, PastCall, tool_call_params
from noetic_nb.memory.steering_decision import (
    ALLOW,
    SteeringAction,
    SteeringDecision,
    Stop,
    as_decision,
    most_restrictive,
)
from noetic_nb.models.client import ModelResponse
from noetic_nb.quick_records import NamedTuple
from noetic_nb.redact import REDACTED, redact_head, redact_text

__all__ = ["FAILED_GUIDANCE", "OnSteeringError", "RuleTimes", "decide", "fault_text", "lets_pass", "shown_matches"]

OnSteeringError: TypeAlias = Literal["deny", "allow", "raise"]

FAILED_GUIDANCE: Final = (
    "A steering rule could not be evaluated, so this is not allowed. Tell the user and go on without it."
)
"""What the model reads when a rule failed; fixed, so that no error text of a rule reaches the model."""

# An error may quote a whole argument.
MAX_FAULT: Final = 300

_FIELDS: Final = ("decision", "stop", "state", "outcome", "faults", "rules_ms")
_Faults: TypeAlias = tuple[tuple[str, str], ...]


class RuleTimes(NamedTuple):
    """Rules and how long each took, in milliseconds, as a layer of this library has measured them: nothing to check."""

    ids: tuple[str, ...] = ()
    took: tuple[float, ...] = ()
    """Of the first of them, as far as they were asked."""


_NO_TIMES: Final = RuleTimes()


_Point: TypeAlias = Literal["before_tool_call", "after_model_call"]


def _read(value: Any, hook: str) -> tuple[SteeringDecision, Any, str | None, _Faults, RuleTimes]:
    """Return the decision, the new state (or `UNSET`), what went wrong, which rules failed and how long each took."""
    if value is None:
        return ALLOW, UNSET, None, (), _NO_TIMES
    # Looked up directly, because this runs before every tool call.
    if type(value) is dict and type(value.get("decision")) is SteeringDecision and "stop" not in value:
        outcome, faults, rules_ms = value.get("outcome"), value.get("faults"), value.get("rules_ms")
        found, took = faults and _pairs(faults, str), _NO_TIMES if rules_ms is None else _times(rules_ms)
        state = value.get("state", UNSET)
        return value["decision"], state, outcome if isinstance(outcome, str) else None, found or (), took
    if isinstance(value, SteeringDecision):
        return value, UNSET, None, (), _NO_TIMES
    if type(value) is dict:  # the fields of this hook are spelled the same in both forms
        get = value.get
        given, stop = get("decision", UNSET), get("stop", UNSET)
        state, outcome, faults, rules_ms = [get(name, UNSET) for name in _FIELDS[2:]]
    else:
        given, stop, state, outcome, faults, rules_ms = [field_of(value, name, hook=hook) for name in _FIELDS]
    if given is UNSET:
        # A result with only a state or a stop is no opinion; anything else without a decision is an error, never an allow.
        decision = ALLOW if stop is not UNSET or state is not UNSET else as_decision(value)
    else:
        decision = ALLOW if given is None else as_decision(given)
    if isinstance(stop, Stop):
        decision = SteeringDecision(decision.action, decision.guidance, decision.rule_ids, stop, decision.matched)
    elif stop is not UNSET and stop is not None:
        raise TypeError(f"`stop` is a Stop(decision, suggestion), not {type(stop).__name__}: {stop!r:.80}.")
    wrong = outcome if isinstance(outcome, str) else None
    return decision, state, wrong, _pairs(faults, str), _times(rules_ms)


_READERS: Final = {point: partial(_read, hook=point) for point in ("before_tool_call", "after_model_call")}


def _pairs(found: Any, kind: type) -> tuple[tuple[str, Any], ...]:
    """Return what is said of each rule, and nothing of what somebody else's hook calls by the same name."""
    if type(found) is not tuple:
        return ()
    for pair in found:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not kind:
            return tuple([each for each in found if type(each) is tuple and [*map(type, each)] == [str, kind]])
    return found


def _times(found: Any) -> RuleTimes:
    """Return the rules and how long each took; of somebody else's hook, what can be read of it."""
    return found if type(found) is RuleTimes else RuleTimes(*zip(*_pairs(found, float), strict=True))


def shown_matches(matched: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the parts of a response as they are recorded: one that is or holds a secret there is hidden.

    Examples
    --------
    >>> shown_matches(["refund", "hunter22"], "No refund. password: hunter22")
    ('refund', '[redacted]')
    """
    clean = redact_text(text)
    # By itself a password is a word like any other.
    return tuple([part if part in clean else REDACTED if part in text else redact_text(part) for part in matched])


def fault_text(error: BaseException, point: str) -> str:
    """Return why a rule could not be evaluated, for people who read the ledger.

    Examples
    --------
    >>> fault_text(KeyError("amount"), "before_tool_call"), fault_text(ValueError("it said 'x'"), "after_model_call")
    ("KeyError: 'amount'", 'ValueError')
    """
    name = type(error).__name__
    if point == "after_model_call":
        return name  # its message may quote an answer that is rejected because of it
    try:
        text = redact_head(str(error), MAX_FAULT)[:MAX_FAULT]
    except Exception:  # of a class of the user's own
        return name
    return f"{name}: {text}" if text.strip() else name


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
        # Late, where nobody has looked at it: rules that do see it made.
        state = states.peek(execution_id, layer.id)
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
                tool_name, tool_args, ctx, state, call_id, history, ctx.depth, so_far, raw_args, provenance
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


def lets_pass(runner: HookRunner, execution_id: str, place: Place, response: ModelResponse) -> bool:
    """Tell whether a response passes without a layer being asked, as none has anything to judge; it is in their ledgers then."""
    states, note = runner.state, runner.traces.note
    if not runner.order.passing or states.has_disabled:
        return False
    after = []
    for layer, passes in runner.order.passing:
        start = runner.clock.monotonic_ms()
        state = passes(execution_id, states.peek(execution_id, layer.id), response, runner.clock)
        if state is None:
            return False
        after.append((layer, state, start if note is None else runner.clock.monotonic_ms() - start))
    for layer, state, duration_ms in after:
        if note is not None:
            now = runner.clock.now_ms()
            note((MemoryTraceSpan.kind, place, now, layer.id, "after_model_call", duration_ms, None, None, 0))
        states.set(execution_id, layer.id, state, hook="after_model_call")
        if note is not None and layer.enforces:
            note(_decided(place, runner, layer, "after_model_call", ALLOW, duration_ms))
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
    """Let a layer decide as far as that goes without waiting: its decision, None for no opinion, or what has to be awaited."""
    call: Callable[[Any], Any] = getattr(layer.hooks, point)
    start = None
    if runner.traces.note is None:
        # Nearly always a decision at once and a new state: nothing else is to be read of it, or recorded.
        start = runner.clock.monotonic_ms()
        try:
            value = call(params)
        except GeneratorExit:
            raise
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
    except GeneratorExit:
        raise
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
    """Return what it means that a layer takes no part."""
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
    """Return what follows where a hook was ended: Ctrl-C, the end of the program or of the task go on, but not without a row."""
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
    """Take what a hook decided: write its state and record it; what follows where it failed is to be awaited."""
    error: BaseException | None = outcome.error
    if error is None:
        decision: SteeringDecision
        decision, state, wrong, faults, times = outcome.value
        error = None if state is UNSET or state is None else runner.put(ctx, layer, point, state)
        if error is None:
            if runner.traces.note is not None:
                _record(runner, layer, point, params, ctx, decision, outcome.duration_ms, wrong, faults, times)
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
    _record(runner, layer, point, params, ctx, decision, duration_ms, reason, faults)
    if policy == "raise":
        raise error
    return decision


def _record(
    runner: HookRunner,
    layer: MemoryLayer,
    point: _Point,
    params: BeforeToolCallParams | AfterModelCallParams,
    ctx: ExecutionContext,
    decision: SteeringDecision,
    duration_ms: float,
    outcome: str | None,
    faults: _Faults = (),
    times: RuleTimes = _NO_TIMES,
) -> None:
    """Put a decision into the run's ledger: all of a layer that enforces, of others what is more than an allow."""
    if runner.traces.sink is None or not (layer.enforces or decision.action is not SteeringAction.ALLOW):
        return
    name, args = params[:2] if isinstance(params, BeforeToolCallParams) else (None, None)
    matched = decision.matched and shown_matches(decision.matched, getattr(params, "text", ""))
    more = (name, args, outcome, faults, matched, times)
    row = _decided(ctx.event_place, runner, layer, point, decision, duration_ms, *more)
    if runner.traces.note is not None and (args is None or type(args) is FrozenDict):  # which nobody can write into
        runner.traces.note(row)
    else:
        runner.traces.sink.emit(event_of(row))


def _decided(
    place: Place,
    runner: HookRunner,
    layer: MemoryLayer,
    point: _Point,
    decision: SteeringDecision,
    duration_ms: float,
    name: str | None = None,
    args: Any = None,
    outcome: str | None = None,
    faults: _Faults = (),
    matched: Sequence[str] = (),
    times: RuleTimes = _NO_TIMES,
) -> Row:
    """Return the row of a decision, as it is now."""
    return (
        SteeringDecided.kind,
        place,
        runner.clock.now_ms(),
        layer.recorded_id,
        point,
        name,
        args,
        decision.action._value_,
        decision.guidance,
        decision.rule_ids,
        duration_ms,
        outcome,
        True,
        faults,
        matched,
        *times,
    )
