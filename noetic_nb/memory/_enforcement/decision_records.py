"""Read the decision in a hook's result, and record it in a run, without secrets: a row of its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from noetic_nb.events import SteeringDecided
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hooks.hook_results import UNSET, field_of
from noetic_nb.memory._hooks.hook_runner import HookRunner
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._steering_decision import ALLOW, SteeringAction, SteeringDecision, Stop, as_decision
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.redact import REDACTED, redact_head, redact_text

_FIELDS: Final = ("decision", "stop", "state", "outcome", "faults", "rules_ms")
Faults: TypeAlias = tuple[tuple[str, str], ...]
"""Rules that failed, each with what went wrong."""


class RuleTimes(NamedTuple):
    """Rules and how long each took, in milliseconds, as a layer of this library has measured them: nothing to check."""

    ids: tuple[str, ...] = ()
    took: tuple[float, ...] = ()
    """Of the first of them, as far as they were asked."""


NO_TIMES: Final = RuleTimes()


def read_decision(value: Any, hook: str) -> tuple[SteeringDecision, Any, str | None, Faults, RuleTimes]:
    """Return the decision, the new state (or `UNSET`), the error, the failed rules and the duration of each rule."""
    if value is None:
        return ALLOW, UNSET, None, (), NO_TIMES
    if isinstance(value, SteeringDecision):
        return value, UNSET, None, (), NO_TIMES
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


def _pairs(found: Any, kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the facts about each rule, and nothing of a foreign hook's field of the same name."""
    if type(found) is not tuple:
        return ()
    for pair in found:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not kind:
            return tuple([each for each in found if type(each) is tuple and [*map(type, each)] == [str, kind]])
    return found


def _times(found: Any) -> RuleTimes:
    """Return the rules and the duration of each; of a foreign hook, the readable part."""
    return found if type(found) is RuleTimes else RuleTimes(*zip(*_pairs(found, float), strict=True))


# An error may quote a whole argument.
MAX_FAULT: Final = 300


def shown_matches(matched: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the parts of a response as they are recorded: one that is or holds a secret there is hidden."""
    clean = redact_text(text)
    # By itself a password is a word like any other.
    return tuple([part if part in clean else REDACTED if part in text else redact_text(part) for part in matched])


def fault_text(error: BaseException, point: str) -> str:
    """Return why a rule could not be evaluated, for readers of the ledger."""
    name = type(error).__name__
    if point == "after_model_call":
        return name  # its message may quote an answer that is rejected because of it
    try:
        text = redact_head(str(error), MAX_FAULT)[:MAX_FAULT]
    except Exception:  # of a class of the user's own
        return name
    return f"{name}: {text}" if text.strip() else name


def record_decision(
    runner: HookRunner,
    layer: MemoryLayer,
    point: str,
    params: BeforeToolCallParams | AfterModelCallParams,
    ctx: ExecutionContext,
    decision: SteeringDecision,
    duration_ms: float,
    outcome: str | None,
    faults: Faults = (),
    times: RuleTimes = NO_TIMES,
) -> None:
    """Put a decision into the run's ledger: all of a layer that enforces, of others only more than an allow."""
    if runner.traces.sink is None or not (layer.enforces or decision.action is not SteeringAction.ALLOW):
        return
    name, args = params[:2] if isinstance(params, BeforeToolCallParams) else (None, None)
    matched = decision.matched and shown_matches(decision.matched, getattr(params, "text", ""))
    runner.traces.sink.emit(
        SteeringDecided(
            ctx.where,
            runner.clock.now_ms(),
            layer.recorded_id,
            point,
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
