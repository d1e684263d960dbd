"""The two enforcement points: may this tool be called, may this response be accepted?

Fail-closed. A hook that raises, times out, returns no decision or was never initialised counts as a deny with fixed
guidance, unless its layer is configured otherwise; the layer's `on_hook_failure` is called, so that its ledger is
complete. Secrets are removed from a decision before it is recorded in a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import SteeringDecided
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hook_timeout import HookTimeout, is_cancelled
from noetic_nb.memory._hooks.hook_results import UNSET, field_of
from noetic_nb.memory._hooks.hook_runner import HookRunner
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._steering_decision import (
    ALLOW,
    SteeringAction,
    SteeringDecision,
    Stop,
    as_decision,
    most_restrictive,
)
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams, HookFailure, PastCall
from noetic_nb.redact import REDACTED, redact_head, redact_text

PENDING: Final = "pending"  # the status of a call that is being decided on, or is running

_number: Final = attrgetter("number")


class Place:
    """One call and its position; the number grows with every call of the tree."""

    __slots__ = ("behind", "call", "number", "resumes", "started")

    def __init__(self, number: int, call: PastCall, *, started: bool = False, behind: tuple[int, ...] = ()) -> None:
        self.number = number
        self.call = call
        self.started = started
        """Whether the call was allowed."""
        self.behind = behind
        """Numbers of the earlier calls that had not ended when its decision began."""
        self.resumes: Place | None = None
        """The call of an earlier process that this one repeats: rules count both as one call."""


class CallsSoFar(tuple[PastCall, ...]):
    """The calls before one, as of a certain moment; `now` returns their current form."""

    _history: CallHistory
    _own: Place | None
    _version: int

    def now(self) -> CallsSoFar:
        """Return the same calls with later outcomes, plus those allowed since."""
        return self if self._version == self._history.version else self._history.so_far(self._own)


class CallHistory:
    """The tool calls of an execution tree, in the order in which their decisions began: later ones see earlier ones."""

    __slots__ = ("_open", "_places", "version")

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._open: dict[int, Place] = {}  # a dict, because it keeps insertion order
        self.version = 0
        """Incremented by every change."""

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def reserve(self, call: PastCall) -> Place:
        number = self._places[-1].number + 1 if self._places else 0
        place = Place(number, call, behind=tuple(self._open))
        self._places.append(place)
        self._open[number] = place
        self.version += 1
        return place

    def start(self, place: Place) -> None:
        """Note that a call was allowed; it replaces the call that it repeats."""
        place.started = True
        if place.resumes is not None:
            self.give_back(place.resumes)
            place.resumes = None
        self.version += 1

    def settle(self, place: Place, status: str, output: str | None) -> None:
        """Note how a call ended, even if it was denied."""
        place.call = place.call._replace(status=status, output=output)
        self._open.pop(place.number, None)
        self.version += 1

    def give_back(self, place: Place) -> None:
        """Remove a call whose decision was not completed and that was not made."""
        self._places.remove(place)
        self._open.pop(place.number, None)
        self.version += 1

    def so_far(self, own: Place | None = None) -> CallsSoFar:
        """Return the calls before one, plus later ones that were allowed while it is being decided on."""
        places = self._places
        if own is not None:
            number, hidden = own.number, (own, own.resumes)
            places = [one for one in places if (one.number < number or one.started) and one not in hidden]
        found = CallsSoFar([one.call for one in places])
        found._history, found._own, found._version = self, own, self.version
        return found

    def restore(self, calls: Iterable[tuple[int | None, PastCall]]) -> list[Place]:
        """Restore calls of an earlier process at their positions; an existing number means the same call."""
        known = {place.number: place for place in self._places}
        found = []
        for number, call in calls:
            if number is None:
                number = max(known, default=-1) + 1
            if number not in known:
                known[number] = Place(number, call, started=True)
            found.append(known[number])
        self._places = [known[number] for number in sorted(known)]
        self.version += 1
        return found


_FIELDS: Final = ("decision", "stop", "state", "outcome", "faults", "rules_ms")
Faults: TypeAlias = tuple[tuple[str, str], ...]  # rules that failed, each with its error


class RuleTimes(NamedTuple):
    """Rules and their durations in milliseconds, as measured by a layer of this library: no need to validate."""

    ids: tuple[str, ...] = ()
    took: tuple[float, ...] = ()  # of the first rules, as far as they were evaluated


NO_TIMES: Final = RuleTimes()


def read_decision(value: Any, hook: str) -> tuple[SteeringDecision, Any, str | None, Faults, RuleTimes]:
    """Return the decision, the new state (or `UNSET`), the error, the failed rules and the duration of each rule."""
    if value is None:
        return ALLOW, UNSET, None, (), NO_TIMES
    if isinstance(value, SteeringDecision):
        return value, UNSET, None, (), NO_TIMES
    given, stop, state, outcome, faults, rules_ms = [field_of(value, name, hook=hook) for name in _FIELDS]
    if given is UNSET:
        # Only a state or a stop means no opinion; any other result without a decision is an error, never an allow.
        decision = ALLOW if stop is not UNSET or state is not UNSET else as_decision(value)
    else:
        decision = ALLOW if given is None else as_decision(given)
    if isinstance(stop, Stop):
        decision = SteeringDecision(decision.action, decision.guidance, decision.rule_ids, stop, decision.matched)
    elif stop is not UNSET and stop is not None:
        raise TypeError(f"`stop` must be a Stop(decision, suggestion), not {type(stop).__name__}: {stop!r:.80}.")
    wrong = outcome if isinstance(outcome, str) else None
    return decision, state, wrong, _pairs(faults, str), _times(rules_ms)


def _pairs(found: Any, kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the facts about each rule, ignoring a foreign hook's field of the same name."""
    if type(found) is not tuple:
        return ()
    for pair in found:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not kind:
            return tuple([each for each in found if type(each) is tuple and [*map(type, each)] == [str, kind]])
    return found


def _times(found: Any) -> RuleTimes:
    """Return the rules and their durations; from a foreign hook, the readable part."""
    return found if type(found) is RuleTimes else RuleTimes(*zip(*_pairs(found, float), strict=True))


MAX_FAULT: Final = 300  # an error may quote a whole argument


def shown_matches(matched: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the matched parts of a response for recording; parts that are or contain a secret are hidden."""
    clean = redact_text(text)
    # On its own, a password is a word like any other, so each part is looked up in the redacted text.
    return tuple([part if part in clean else REDACTED if part in text else redact_text(part) for part in matched])


def fault_text(error: BaseException, point: str) -> str:
    """Return why a rule could not be evaluated, for readers of the ledger."""
    name = type(error).__name__
    if point == "after_model_call":
        return name  # the message may quote an answer that is rejected because of it
    try:
        text = redact_head(str(error), MAX_FAULT)[:MAX_FAULT]
    except Exception:  # an exception class of the user
        return name
    return f"{name}: {text}" if text.strip() else name


OnSteeringError: TypeAlias = Literal["deny", "allow", "raise"]

FAILED_GUIDANCE: Final = (
    "A steering rule could not be evaluated, so this is not allowed. Tell the user and go on without it."
)
"""The model's text for a failed rule; fixed, so that no error text of a rule reaches the model."""

_Point: TypeAlias = Literal["before_tool_call", "after_model_call"]
_Reason: TypeAlias = Literal["error", "timeout", "cancelled", "uninitialised", "disabled"]


Params: TypeAlias = BeforeToolCallParams | AfterModelCallParams
MakeParams: TypeAlias = Callable[[Any, Sequence[PastCall], SteeringDecision], Params]
"""Creates the parameters of a layer's hook from its state, the calls so far, and the decision so far."""


async def decide(
    runner: HookRunner,
    point: _Point,
    ctx: ExecutionContext,
    make: MakeParams,
    history: Sequence[PastCall],
    default_on_error: OnSteeringError,
) -> SteeringDecision:
    """Call every layer that enforces at this point; the first deny or stop ends the round.

    Returns the most restrictive decision. Raises `NoeticConfigError` if a layer's set-up is wrong, such as
    ``MISSING_CALL_MODEL``, which no policy hides; under the policy ``"raise"``, also raises the error of a hook.
    """
    decisions: list[SteeringDecision] = []
    so_far, states, execution_id = ALLOW, runner.state, ctx.execution_id
    for layer in runner.order.layers_with(point):
        # The regulator, for example, must know whether the call will be made at all.
        if decisions:
            so_far = most_restrictive(decisions)
        if type(history) is CallsSoFar:  # the previous layer may have taken a while
            history = history.now()
        params = make(states.get(execution_id, layer.id), history, so_far)
        asked = _Asked(runner, layer, point, params, ctx, layer.on_steering_error or default_on_error)
        idle = runner.order.idle_reason(layer, execution_id)
        decision = await (asked.decision() if idle is None else asked.not_begun(idle))
        if decision is None or decision is ALLOW:
            continue
        decisions.append(decision)
        if decision.action is SteeringAction.DENY or decision.stop is not None:
            # A call that will not be made needs no further opinion, and a later judge would cost money.
            break
    return most_restrictive(decisions) if decisions else ALLOW


@dataclass(slots=True)
class _Asked:
    """One layer that decides whether a call may be made or a response accepted."""

    runner: HookRunner
    layer: MemoryLayer
    point: _Point
    params: Params
    ctx: ExecutionContext
    policy: OnSteeringError

    async def decision(self) -> SteeringDecision:
        """Run the layer's hook, write its state and record its decision."""
        runner, layer, point, ctx = self.runner, self.layer, self.point, self.ctx
        try:
            outcome = await runner.run(layer, point, self.params, ctx, read=partial(read_decision, hook=point))
        except GeneratorExit:
            raise  # the coroutine is being closed, so nothing may be awaited
        except BaseException as exc:
            # Ctrl-C and the end of the program or task pass through, but are recorded.
            if isinstance(exc, KeyboardInterrupt | SystemExit) or is_cancelled():
                reason: _Reason = "cancelled" if isinstance(exc, asyncio.CancelledError) else "error"
                return await self.failed(exc, reason, "raise")
            return await self.failed(_as_error(exc), "error", self.policy)
        error, policy = outcome.error, self.policy
        if error is None:
            decision: SteeringDecision
            decision, state, wrong, faults, times = outcome.value
            error = None if state is UNSET or state is None else runner.put(ctx, layer, point, state)
            if error is None:
                self.record(decision, outcome.duration_ms, wrong, faults, times)
                return decision
            # As for a hook that raises: its result is ignored.
        # A faulty set-up would deny every call and look like strict rules, so it is raised instead.
        if isinstance(error, NoeticConfigError):
            if error.code == "MISSING_CALL_MODEL":
                raise error  # nothing was evaluated, so nothing is recorded
            policy = "raise"
        reason = "timeout" if isinstance(error, HookTimeout) else "error"
        return await self.failed(error, reason, policy, outcome.duration_ms)

    async def not_begun(self, idle: Literal["disabled", "uninitialised"]) -> SteeringDecision | None:
        """Return the decision for a layer that takes no part."""
        runner, layer, ctx = self.runner, self.layer, self.ctx
        # A layer that only observes may be inactive; for one that enforces, its rules would be off unnoticed.
        if not layer.enforces:
            runner.traces.skipped(layer, self.point, ctx)
            return None
        hint = "Initialise it: run the agent through its harness, and check why its `init` failed."
        error: Exception = NoeticError(
            "step_failed", f"The layer {layer.id!r} enforces rules but is {idle}", hint=hint, step_id=layer.id
        )
        runner.state.report(ctx.execution_id, layer.id, self.point, error)
        return await self.failed(error, idle, self.policy)

    async def failed(
        self, error: BaseException, reason: _Reason, policy: OnSteeringError, duration_ms: float = 0.0
    ) -> SteeringDecision:
        """Return the decision of the policy; the layer may name the rules concerned."""
        runner, layer, point, ctx = self.runner, self.layer, self.point, self.ctx
        decision = ALLOW if policy == "allow" else SteeringDecision(SteeringAction.DENY, FAILED_GUIDANCE)
        if layer.hooks.on_hook_failure is not None:
            state = runner.state.get(ctx.execution_id, layer.id)
            failure = HookFailure(point, error, decision, self.params, state, reason, duration_ms)
            # A failure of this hook, too, is only a diagnostic: the decision stands.
            outcome = await runner.run(layer, "on_hook_failure", failure, ctx)
            if outcome.error is None:
                state = field_of(outcome.value, "state", hook="on_hook_failure")
                if state is not UNSET:
                    runner.put(ctx, layer, point, state)
                named = field_of(outcome.value, "rule_ids", hook="on_hook_failure")
                if named:
                    decision = SteeringDecision(decision.action, decision.guidance, tuple(named))
        # Recorded before it raises, so that the ledger has the call that ended the run, and the pending rules.
        faults = tuple([(rule_id, fault_text(error, point)) for rule_id in decision.rule_ids or (layer.recorded_id,)])
        self.record(decision, duration_ms, reason, faults)
        if policy == "raise":
            raise error
        return decision

    def record(
        self,
        decision: SteeringDecision,
        duration_ms: float,
        outcome: str | None,
        faults: Faults,
        times: RuleTimes = NO_TIMES,
    ) -> None:
        """Record a decision in the run's ledger: always for a layer that enforces, for others unless it is an allow."""
        runner, layer, params = self.runner, self.layer, self.params
        if runner.traces.sink is None or not (layer.enforces or decision.action is not SteeringAction.ALLOW):
            return
        name, args = params[:2] if isinstance(params, BeforeToolCallParams) else (None, None)
        matched = decision.matched and shown_matches(decision.matched, getattr(params, "text", ""))
        runner.traces.sink.emit(
            SteeringDecided(
                self.ctx.where,
                runner.clock.now_ms(),
                layer.recorded_id,
                self.point,
                name,
                args,
                decision.action.value,
                decision.guidance,
                decision.rule_ids,
                duration_ms,
                outcome,
                True,
                tuple(faults),
                tuple(matched),
                tuple(zip(*times, strict=False)),
            )
        )


def _as_error(error: BaseException) -> Exception:
    """Return a hook's error as one that neither ends the program nor looks like the end of the task."""
    if isinstance(error, Exception):
        return error
    found = RuntimeError(f"{type(error).__name__} from a hook: {error}")
    found.__cause__ = error
    return found
