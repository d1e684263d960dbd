"""A recorded run, event by event, through a regulator that was not there, and its decisions.

Forks of the regulator observe the events in their order, so the one that is passed in learns nothing; time is the run's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import (
    ChildEnded,
    ModelCalled,
    QualityGiven,
    RegulatorDecided,
    RegulatorSaw,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.items import freeze
from noetic_nb.items._json_text import compact_json
from noetic_nb.regulator import Regulator, decisions, events
from noetic_nb.regulator._person import Person
from noetic_nb.regulator.events import accepted_text

__all__ = ["Grader", "RecordedReply", "RegulatorFeed"]

Grader: TypeAlias = "Callable[[RecordedReply], float | None]"

# Calls that never ran are left out: the regulation layer observes allowed calls only.
_RAN: Final = frozenset({"ok", "error", "invalid_result"})
_MOST: Final = events.U32_MAX


class Appendable(Protocol):
    """Where events go, such as a run."""

    def append(self, event: RunEvent) -> Any:
        """Add an event."""
        ...


class RecordedReply(str):
    """A recorded reply as a grader sees it: a text that also has the attributes of a live reply.

    A grader written for ``regulation(regulator, grader=…)`` works here as it is, and so does a function of text.
    """

    __slots__ = ("query", "thread_id")

    query: str
    thread_id: str

    @property
    def text(self) -> str:
        """The reply itself."""
        return str(self)


def _whole(number: float | None) -> int:
    # A regulator's events hold 32-bit counts; a recorded run may hold anything, or not know.
    return min(max(round(number), 0), _MOST) if number is not None and math.isfinite(number) else 0


def _price(cost: float | None) -> float | None:
    # As the regulation layer does: None where nobody knows, 0 where a call is known to be free.
    return cost if cost is not None and 0 <= cost < math.inf else None


class _Thread:
    """One thread of the run with its own task, as the regulation layer keeps it."""

    def __init__(self, regulator: Regulator, person: Person, run: Appendable, layer_id: str) -> None:
        self.now_ms = 0.0
        self.regulator = Regulator(person, regulator.settings, clock=lambda: self.now_ms / 1000)
        self.run, self.layer_id = run, layer_id
        # One object for all decisions of the thread, as its settings never change.
        self.thresholds = freeze(regulator.thresholds)
        self.turn_is_open = False
        self.query = ""
        # The execution of the last answer, and the text of the last child: the answer of a child is not one to the person.
        self.answered_in: str | None = None
        self.child_text: str | None = None
        # Executions whose next call a rule wants a person to approve.
        self.asked: set[str] = set()
        self.latched: decisions.CircuitBreak | None = None

    def observe(self, where: Where, t_ms: float, event: events.Event) -> None:
        self.now_ms = t_ms
        self.regulator.on_event(event)
        self.run.append(RegulatorSaw(where, t_ms, self.layer_id, events.to_dict(event)))

    def decide(self, where: Where, t_ms: float, at: str) -> RegulatorDecided:
        decision = self.regulator.decide()
        if at == "turn_start" and self.latched is not None:
            decision, self.latched = self.latched, None
        circuit_break = decision if isinstance(decision, decisions.CircuitBreak) else None
        if circuit_break is not None and not self.turn_is_open:
            # No turn is there to be stopped: the next one is, whatever better grades may still come.
            self.latched = circuit_break
        decided = RegulatorDecided(
            where,
            t_ms,
            self.layer_id,
            at,
            decisions.to_dict(decision),
            suggestion=None if circuit_break is None else circuit_break.suggestion,
            confidence=self.regulator.confidence(),
            tokens_out=self.regulator.total_tokens_out(),
            cost_cap=self.regulator.cost_cap_tokens(),
            stops=circuit_break is not None and self.turn_is_open,
            thresholds=self.thresholds,
        )
        self.run.append(decided)
        return decided


class RegulatorFeed:
    """Goes through a recorded run once, whose events and decisions it appends to another."""

    def __init__(self, regulator: Regulator, grader: Grader | None, into: Appendable, layer_id: str) -> None:
        self.regulator, self.grader, self.into, self.layer_id = regulator, grader, into, layer_id
        self.persons: dict[str, Person] = {}
        self.threads: dict[str, _Thread] = {}

    def _thread(self, where: Where, resource_id: str | None = None) -> _Thread:
        known = self.threads.get(where.thread_id)
        if known is None:
            owner = where.thread_id if resource_id is None else resource_id
            # Threads of one resource learn together, as live; none of them teaches the template.
            person = self.persons.setdefault(owner, self.regulator.person.copy())
            known = self.threads[where.thread_id] = _Thread(self.regulator, person, self.into, self.layer_id)
        return known

    def take(self, event: RunEvent) -> Iterator[RegulatorDecided]:
        """Append an event and let the regulator observe it; yield each decision before the events that follow it are appended."""
        # A call is decided before it is appended, a reply before its turn is completed: as in a live harness, where the
        # decision can still stop what follows.
        match event:
            case TurnStarted():
                self.into.append(event)
                yield self._turn_started(event)
            case SteeringDecided(hook="before_tool_call", action="ask"):
                self._thread(event.where).asked.add(event.where.execution_id)
                self.into.append(event)
            case ToolCalled() if event.status in _RAN or event.status == "cancelled":
                asked = self._thread(event.where).asked
                if event.where.execution_id not in asked:  # one that a person is asked about is none that rules allowed
                    yield self._tool_called(event)
                asked.discard(event.where.execution_id)
                self.into.append(event)
                if event.status in _RAN:
                    self._tool_returned(event)
            case TurnCompleted():
                yield from self._replied(event)
                self._thread(event.where).turn_is_open = False
                self.into.append(event)
            case RegulatorSaw() | RegulatorDecided():
                yield from self._corrected(event)
            case QualityGiven():
                self.into.append(event)
                # A grader replaces the recorded grades; both would count one reply twice.
                if self.grader is None:
                    yield self._graded(event.where, event.t_ms, event.quality, "quality")
            case _:
                self.into.append(event)
                if isinstance(event, ToolCalled):
                    self._thread(event.where).asked.discard(event.where.execution_id)
                if isinstance(event, ChildEnded):
                    self._thread(event.where).child_text = event.text
                if isinstance(event, ModelCalled) and event.purpose == "agent" and event.status == "ok":
                    self._model_called(event)

    def _turn_started(self, event: TurnStarted) -> RegulatorDecided:
        thread = self._thread(event.where, event.resource_id)
        thread.turn_is_open, thread.query = True, event.query
        thread.answered_in = thread.child_text = None
        thread.observe(event.where, event.t_ms, events.TurnStart(accepted_text(event.query)))
        return thread.decide(event.where, event.t_ms, "turn_start")

    def _model_called(self, event: ModelCalled) -> None:
        thread = self._thread(event.where)
        thread.answered_in = event.where.execution_id
        for index, (token, logprob) in enumerate(event.logprobs):
            # Observed but not recorded: the tokens are in the run already, and are most of the events of a turn.
            thread.regulator.on_event(events.Token(accepted_text(token), float(logprob), index))
        tokens_in, tokens_out = _whole(event.input_tokens), _whole(event.output_tokens)
        duration_ms, usd = _whole(event.duration_ms), _price(event.cost)
        cost = events.Cost(tokens_in, tokens_out, duration_ms, provider=accepted_text(event.model), usd=usd)
        thread.observe(event.where, event.t_ms, cost)

    def _tool_called(self, event: ToolCalled) -> RegulatorDecided:
        thread = self._thread(event.where)
        thread.observe(event.where, event.t_ms, events.ToolCall(accepted_text(event.name), _arguments(event.args)))
        return thread.decide(event.where, event.t_ms, "tool_call")

    def _tool_returned(self, event: ToolCalled) -> None:
        error = None if event.error is None else accepted_text(event.error)
        result = events.ToolResult(
            accepted_text(event.name),
            event.status == "ok",
            _whole(event.duration_ms),
            error,
            accepted_text(event.output),
        )
        self._thread(event.where).observe(event.where, event.t_ms, result)

    def _replied(self, event: TurnCompleted) -> Iterator[RegulatorDecided]:
        # A suggestion that took the place of a reply is the old regulator's text, not the agent's.
        if not event.text or event.stopped is not None:
            return
        thread = self._thread(event.where)
        if thread.answered_in not in (None, event.where.execution_id) and thread.child_text == event.text:
            return
        thread.observe(event.where, event.t_ms, events.TurnComplete(accepted_text(event.text)))
        yield thread.decide(event.where, event.t_ms, "turn_complete")
        if self.grader is None:
            return
        reply = RecordedReply(event.text)
        reply.query, reply.thread_id = thread.query, event.where.thread_id
        quality = _grade(self.grader, reply)
        if quality is not None:
            self.into.append(QualityGiven(event.where, event.t_ms, quality, "grader"))
            yield self._graded(event.where, event.t_ms, quality, "quality_feedback")

    def _graded(self, where: Where, t_ms: float, quality: float, at: str) -> RegulatorDecided:
        thread = self._thread(where)
        thread.observe(where, t_ms, events.QualityFeedback(float(quality)))
        return thread.decide(where, t_ms, at)

    def _corrected(self, event: RegulatorSaw | RegulatorDecided) -> Iterator[RegulatorDecided]:
        """Repeat corrections; all else that another regulator observed or decided is not part of this replay."""
        if not isinstance(event, RegulatorSaw) or event.event.get("kind") != events.UserCorrection.kind:
            return
        try:
            correction = events.from_dict(event.event)
        except (TypeError, ValueError) as error:
            raise NoeticError(
                "invalid_run_file",
                f"A recorded correction cannot be repeated: {error}",
                hint="Remove it from the run, or load the run from an undamaged file.",
                path=None,
                line=None,
            ) from error
        thread = self._thread(event.where)
        thread.observe(event.where, event.t_ms, correction)
        yield thread.decide(event.where, event.t_ms, "correction")


def _arguments(args: Mapping[str, Any] | None) -> str | None:
    if args is None:
        return None
    try:
        return accepted_text(compact_json(args))
    except ValueError:  # a number that JSON lacks; a loop is found by the tool's name anyway
        return json.dumps(args)


def _grade(grader: Grader, reply: RecordedReply) -> float | None:
    quality: object = grader(reply)
    if quality is None:
        return None
    if isinstance(quality, Coroutine):
        quality.close()
        raise NoeticConfigError(
            "INVALID_GRADE",
            "A replay is synchronous, and this grader is not.",
            given=grader,
            hint="Pass a plain function.",
        )
    if isinstance(quality, bool) or not isinstance(quality, int | float) or not math.isfinite(quality):
        raise NoeticConfigError(
            "INVALID_GRADE", "A grader returns a finite number or None.", given=quality, hint="Return 0.0 to 1.0."
        )
    return float(quality)
