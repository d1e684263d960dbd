"""Scores of detectors: the score of a run, and the event at which each new height was first reached.

Higher scores are closer to a stop. A predicate's score is the highest value compared with its threshold at any point
where it could have stopped the run, so "the score reaches t" means "with threshold t it would have stopped the run".
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from noetic_nb import regulator as reg
from noetic_nb.errors import NoeticConfigError
from noetic_nb.regulator.decisions import CircuitBreak, CostCapReached, Decision
from noetic_nb.regulator.events import U32_MAX, U64_MAX
from noetic_nb.regulator.predicates.evidence import Evidence
from noetic_nb.regulator.predicates.explanation import Condition, Predicate, PredicateFinding, names_of
from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import model_calls, tool_calls
from noetic_nb.runs._plain_text import plain
from noetic_nb.runs._regulation.recorded_regulator import RegulatorFeed

_CAPS: Final = {"tokens_out": U32_MAX, "tokens_in": U32_MAX, "usd": 1e12, "wallclock_ms": U64_MAX}
WARNS: Final = (reg.ScopeDrift, reg.LowConfidence, reg.ProceduralWarning)
"""Warnings: their decisions stop nothing."""


@dataclass(frozen=True, slots=True)
class Varied:
    """A predicate and its main threshold: `field`, compared in `condition` and set by ``put(setting)``."""

    predicate: Predicate
    field: str
    condition: str
    least: float
    most: float
    whole: bool
    put: Callable[[Any], Predicate]

    def probe(self) -> Callable[[Evidence], float]:
        """Return a function that scores one piece of evidence; minus infinity if no setting makes the predicate fire."""
        predicate = self.put(int(self.least) if self.whole else self.least)
        return lambda evidence: self._score(predicate.explain(evidence))

    def _score(self, found: PredicateFinding) -> float:
        main: Condition | None = None
        for condition in found.conditions:
            if condition.name == self.condition:
                main = condition
            elif not condition.holds:
                return -inf
        for condition in found.any_of:
            if condition.name == self.condition:
                main = condition
            elif condition.holds:
                # Another limit is exceeded: it fires at any setting of this one.
                return inf
        value = None if main is None else main.value
        if main is None or value is None or math.isnan(value):
            return -inf
        match main.relation:
            case ">=":
                return -inf if value < self.least else min(value, self.most)
            case ">":
                return -inf if value <= self.least else min(value, self.most)
            case "<":
                # Mirrored, so that a higher score is always closer to firing.
                return -inf if value >= self.most else -value

    def at(self, score: float) -> Predicate:
        if isinstance(self.predicate, reg.LowConfidence):
            return self.put(min(max(math.nextafter(-score, inf), self.least), self.most))
        if isinstance(self.predicate, reg.CallBudget):
            score = math.ceil(score) - 1
        setting = min(max(score, self.least), self.most)
        return self.put(math.ceil(setting) if self.whole else setting)


_VARIED: Final[Mapping[type, tuple[str, str, float, float, bool]]] = {
    reg.ToolLoop: ("threshold", "repetitions", 2, inf, True),
    reg.RepeatedFailure: ("threshold", "failures", 1, inf, True),
    reg.QualityDecline: ("min_delta", "delta", 0.0, 1.0, False),
    reg.ScopeDrift: ("threshold", "drift_score", 0.0, 1.0, False),
    reg.LowConfidence: ("threshold", "confidence_of_worst_stretch", 0.0, 1.0, False),
    reg.ProceduralWarning: ("min_corrections", "corrections", 1, 20, True),
    reg.CallBudget: ("total", "calls", 0, inf, True),
}


def varied(predicate: Predicate) -> Varied | None:
    """Return the predicate with its varied threshold, the first of several limits; None for a custom predicate."""
    found = _VARIED.get(type(predicate))
    match predicate:
        case reg.CallBudget(total=None, per_tool=limits) if limits:
            tool = next(iter(limits))
            at = f"per_tool.{tool}", f"calls of {tool}", 0, inf, True
            return Varied(predicate, *at, lambda setting: replace(predicate, per_tool={**limits, tool: setting}))
        case reg.CostCap():
            cap = next((name for name in _CAPS if getattr(predicate, name) is not None), "tokens_out")
            found = cap, cap, 0, _CAPS[cap], cap != "usd"
    given: Any = predicate  # a dataclass, like every predicate in the table
    return found and Varied(predicate, *found, lambda setting: replace(given, **{found[0]: setting}))


Detector: TypeAlias = Callable[[Run], float] | Predicate | reg.Regulator
"""A function of a run, a regulator's predicate, or a regulator."""

# The harness ends a turn with such a decision; its content does not matter here.
_STOP: Final = CircuitBreak(CostCapReached(0, 0, 0.0, "tokens_out"), "Stop.")
_OWNER: Final = "calibrated"


class Unscored(Exception):
    """A run has no score; the message is the reason."""


class Reached(NamedTuple):
    """The point where a score first reached a height."""

    seq: int
    """Index of the event in the run; later events would not have happened."""
    score: float


@dataclass(frozen=True, slots=True)
class Detecting:
    """A detector with its name in tables."""

    name: str
    given: Any

    @property
    def is_steering(self) -> bool:
        """Whether it can be turned into a regulator."""
        return isinstance(self.given, reg.Regulator) or _is_predicate(self.given)

    def score(self, run: Run) -> float:
        """Return the score of a whole run, minus infinity if it could not have been stopped; or raise `Unscored`."""
        if not self.is_steering:
            return _called(self.given, run)
        reached = self.trace(run)
        return reached[-1].score if reached else -inf

    def trace(self, run: Run) -> list[Reached]:
        """Return each new height of the score in a run, with its event; a function is called at each call and the end."""
        if not self.is_steering:
            return _trace_of_function(self.given, run)
        if run.meta.get("dropped"):
            raise Unscored("its oldest turns were dropped")
        try:
            return (
                _trace_of_regulator(self.given, run)
                if isinstance(self.given, reg.Regulator)
                else _traced(self.given, run)
            )
        except Unscored:
            raise
        except Exception as exc:  # raised by a custom predicate or scorer
            raise Unscored(plain(f"{type(exc).__name__}: {exc}", 200)) from exc

    def setting(self, score: float) -> tuple[str, float] | None:
        """Return the predicate's field and the value that makes it fire from a score on."""
        found = varied(self.given) if _is_predicate(self.given) else None
        if found is None:
            return None
        at: Any = found.at(score)
        field, _, inside = found.field.partition(".")
        value = getattr(at, field)
        return found.field, value[inside] if inside else value

    def regulator(self, score: float | None) -> reg.Regulator:
        """Return a regulator that stops from a score on; with None, one without this detector."""
        if not self.is_steering:
            what = f"{self.name} is a function of a run; a regulator cannot evaluate it during the run."
            hint = "Calibrate a predicate of noetic_nb.regulator, or a Regulator."
            raise NoeticConfigError("NOT_A_PREDICATE", what, given=self.name, hint=hint)
        if score is None:
            return reg.Regulator.for_user(_OWNER).with_predicates()
        if isinstance(self.given, reg.Regulator):
            return self.given.fork()
        found = varied(self.given)
        return reg.Regulator.for_user(_OWNER).with_predicates(self.given if found is None else found.at(score))


def detectors_of(given: Any) -> tuple[Detecting, ...]:
    """Return named detectors from a single one, or from a mapping of names to detectors."""
    named = given if isinstance(given, Mapping) else {_name_of(given): given}
    for name, each in named.items():
        is_known = isinstance(each, reg.Regulator) or _is_predicate(each) or callable(each)
        if not isinstance(name, str) or isinstance(each, type) or not is_known:
            what = "A detector must be a function of a run, a predicate of a regulator, or a regulator."
            hint = "Pass ToolLoop(), lambda run: len(run.turns), a Regulator, or a dict of names to several of them."
            raise NoeticConfigError("INVALID_DETECTOR", what, given=each if isinstance(name, str) else name, hint=hint)
    if not named:
        raise NoeticConfigError("INVALID_DETECTOR", "No detector is there.", given=given, hint="Name one at least.")
    return tuple([Detecting(name, each) for name, each in named.items()])


def _name_of(given: Any) -> str:
    if isinstance(given, reg.Regulator):
        return "regulator"
    if _is_predicate(given):
        return names_of([given])[0]
    name = getattr(given, "__name__", None) or type(given).__name__
    return "function" if name == "<lambda>" else str(name)


def _is_predicate(given: Any) -> bool:
    return not isinstance(given, type) and all(hasattr(given, name) for name in ("kind", "check", "explain"))


class _Probe:
    """A predicate that records the score at each decision point, and says stop to learn whether a stop counts there."""

    kind: ClassVar[str] = "probe"
    name: ClassVar[str] = "probe"
    thresholds: ClassVar[dict[str, float]] = {}

    def __init__(self, score: Callable[[Evidence], float]) -> None:
        self._score = score
        self.last = -inf

    def check(self, evidence: Evidence, /) -> Decision | None:
        self.last = self._score(evidence)
        return _STOP

    def explain(self, evidence: Evidence, /) -> PredicateFinding:
        raise NotImplementedError("A probe decides nothing.")


def _traced(predicate: Predicate, run: Run) -> list[Reached]:
    _check_known(predicate, run)
    setting = varied(predicate)

    def fires(evidence: Evidence) -> float:
        return 1.0 if isinstance(predicate.check(evidence), CircuitBreak) else -inf

    probe = _Probe(fires if setting is None else setting.probe())
    stops = setting is None or not isinstance(predicate, WARNS)  # a warning breaks no circuit
    regulator = reg.Regulator.for_user(_OWNER).with_predicates(probe)
    feed = RegulatorFeed(regulator, None, deque(maxlen=0), "regulation")
    reached: list[Reached] = []
    # Between turns there is nothing to stop: such a break ends the thread's next turn, if there is one.
    latched: dict[str, float] = {}
    best = -inf
    for seq, event in enumerate(tuple(run.events)):
        for decided in feed.take(event):
            score, thread_id = probe.last, decided.where.thread_id
            if stops:
                if decided.at == "turn_start":
                    score = max(score, latched.pop(thread_id, -inf))
                if not decided.stops:
                    latched[thread_id] = max(score, latched.get(thread_id, -inf))
                    continue
            if score > best:
                best = score
                reached.append(Reached(seq, score))
    return reached


def _trace_of_regulator(regulator: reg.Regulator, run: Run) -> list[Reached]:
    feed = RegulatorFeed(regulator, None, deque(maxlen=0), "regulation")
    for seq, event in enumerate(tuple(run.events)):
        if any(decided.stops for decided in feed.take(event)):
            return [Reached(seq, 1.0)]
    return []


def _trace_of_function(function: Callable[[Run], float], run: Run) -> list[Reached]:
    events = tuple(run.events)
    places = sorted(
        [seq for seq, call in (*model_calls(run), *tool_calls(run)) if getattr(call, "purpose", "agent") == "agent"]
    )
    reached: list[Reached] = []
    best = -inf
    for seq in places:
        score = _called(function, Run(run.run_id, meta=run.meta, events=events[: seq + 1]))
        if score > best:
            best = score
            reached.append(Reached(seq, score))
    # Values derived from the end (a grade, the last reply) come too late to save anything.
    if (score := _called(function, run)) > best:
        reached.append(Reached(len(events) - 1, score))
    return reached


def _called(function: Callable[[Run], float], run: Run) -> float:
    try:
        found: Any = function(run)
        if isinstance(found, str | bytes):
            raise TypeError(f"A detector must return a number, not {found!r:.60}.")
        score = float(found)
    except Exception as exc:
        raise Unscored(plain(f"{type(exc).__name__}: {exc}", 200)) from exc
    if math.isnan(score):
        raise Unscored("it gave NaN")
    return score


def _check_known(predicate: Predicate, run: Run) -> None:
    """Refuse a run without the value that a predicate compares: an unmeasured zero would be a good score."""
    calls = [call for _, call in model_calls(run) if call.purpose == "agent" and call.status == "ok"]
    if isinstance(predicate, reg.LowConfidence) and not any(call.logprobs for call in calls):
        raise Unscored("no log-probabilities were recorded")
    if not isinstance(predicate, reg.CostCap):
        return
    if not calls:
        raise Unscored("no model call was recorded")
    caps = {name for name in ("tokens_out", "tokens_in", "usd", "wallclock_ms") if getattr(predicate, name) is not None}
    if (caps & {"tokens_out", "tokens_in"} or not caps) and not all(
        call.input_tokens or call.output_tokens for call in calls
    ):
        raise Unscored("the usage of some calls is unknown")
    if "usd" in caps and any(call.cost is None for call in calls):
        raise Unscored("the price of some calls is unknown")
    if "wallclock_ms" in caps and any(call.duration_ms is None for call in calls):
        raise Unscored("the duration of some calls is unknown")
