"""Runs a regulator over a recorded run: the recorded one, or one that was not there, fed event by event.

Forks observe the events in order, so that the given regulator learns nothing; time is the run's time. The settings come
from the run's configuration, the layer's state, or the data beside a replay; otherwise only names and numbers of
thresholds are known, which is enough for the presets and for predicates defined by data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from noetic_nb import events as ev
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import freeze
from noetic_nb.items._build import assistant_text
from noetic_nb.items._json_text import compact_json
from noetic_nb.regulator import Regulator, decisions, events
from noetic_nb.regulator._settings import NEWER_SETTINGS, RECOMMENDED_SETTINGS, RELEASE_SETTINGS, Settings
from noetic_nb.regulator._state import Person
from noetic_nb.regulator.events import accepted_text
from noetic_nb.regulator.predicates import Predicate
from noetic_nb.regulator.predicates.explanation import names_of
from noetic_nb.runtime._context.messages import query_of

LAYER_KIND: Final = "regulation"
PRESETS: Final = (RELEASE_SETTINGS, NEWER_SETTINGS, RECOMMENDED_SETTINGS)


def checked_regulator(given: Any) -> Regulator:
    """Return a regulator; raises `NoeticConfigError` ``INVALID_REGULATOR`` for any other object."""
    if not isinstance(given, Regulator):
        hint = "Use Regulator.for_user(name)."
        raise NoeticConfigError("INVALID_REGULATOR", "That is not a regulator.", given=given, hint=hint)
    return given


def recorded_regulators(run: Any) -> list[Regulator]:
    """Return the candidates for a run's first regulator: several if thresholds alone fit more than one preset."""
    first = next((event for event in run.events if isinstance(event, ev.RegulatorDecided)), None)
    if first is None:
        return []
    kept = kept_regulator(run, first)
    if kept is not None:
        return [kept]
    return [Regulator(Person("recorded"), settings) for settings in _like(first.thresholds)]


def kept_regulator(run: Any, decided: ev.RegulatorDecided) -> Regulator | None:
    """Return a regulator with the stored settings of the one that decided; None if the run stores none."""
    for person, settings in _kept(run, decided.layer_id):
        if _same_names(settings, decided.thresholds):
            return Regulator(person, as_recorded(settings, decided.thresholds))
    return None


def _kept(run: Any, layer_id: str) -> Iterator[tuple[Person, Settings]]:
    for state in _states(run, layer_id):
        try:
            found = Regulator.from_json(compact_json(state))
        except (TypeError, ValueError):
            continue  # settings with code; another source may have data
        yield found.person, found.settings
    match getattr(run, "meta", None):
        case {"regulator": {"settings": Mapping() as data}}:
            try:
                yield Person("recorded"), Settings.from_dict(data)
            except (TypeError, ValueError):
                return


def _states(run: Any, layer_id: str) -> Iterator[Any]:
    match getattr(run, "bundle", None):
        case {"config": {"memory": list() | tuple() as layers}}:
            for layer in layers:
                match layer:
                    case {"kind": "regulation", "options": {"regulator": state, **options}}:
                        if options.get("id", LAYER_KIND) == layer_id:
                            yield state
    events: Iterable[ev.RunEvent] = run.events
    for event in events:
        if type(event) is ev.LayerStateChanged and event.layer_id == layer_id and isinstance(event.state, Mapping):
            # Only a complete state has settings; all states of a layer have the same form.
            if "noetic_nb" in event.state:
                yield event.state
            return


def _same_names(settings: Settings, thresholds: Mapping[str, Any]) -> bool:
    return not thresholds or set(names_of(settings.predicates)) == set(thresholds)


def as_recorded(settings: Settings, thresholds: Mapping[str, Any]) -> Settings:
    """Return settings with the thresholds in force; unchanged if the thresholds do not fit them."""
    try:
        return settings.with_thresholds({name: numbers for name, numbers in thresholds.items() if numbers})
    except (KeyError, TypeError, ValueError, AttributeError):
        return settings


def _like(thresholds: Mapping[str, Any]) -> list[Settings]:
    if not thresholds:
        return []
    presets = [as_recorded(preset, thresholds) for preset in PRESETS if _same_names(preset, thresholds)]
    if presets:
        return presets
    built = [_predicate(name, numbers) for name, numbers in thresholds.items()]
    known = [predicate for predicate in built if predicate is not None]
    return [replace(RELEASE_SETTINGS, predicates=tuple(known))] if len(known) == len(built) else []


def _predicate(name: str, numbers: Any) -> Predicate | None:
    """Return a predicate by name and thresholds; None for a custom predicate."""
    kind, _, rest = name.partition("(")
    data: dict[str, Any] = {"kind": kind.partition(" #")[0]}
    if not isinstance(numbers, Mapping):
        return None
    for word in rest.partition(")")[0].split(", ") if rest else ():
        key, equals, value = word.partition("=")
        data[key] = value if equals else True
    for key, number in numbers.items():
        field, _, inside = key.partition(".")
        if inside:
            data.setdefault(field, {})[inside] = number
        else:
            data[key] = number
    if kind.startswith("cost_cap"):
        data.setdefault("tokens_out", None)
        data.setdefault("poor_mean", None)
    scorer = data.pop("scorer", None)
    try:
        found = Settings.from_dict({"predicates": [data]}).predicates[0]
    except (TypeError, ValueError):
        return None
    return None if scorer is not None else found


Grader: TypeAlias = "Callable[[RecordedReply], float | None]"

# Calls that never ran are excluded: the regulation layer observes only allowed calls.
_RAN: Final = frozenset({"ok", "error", "invalid_result"})
_MOST: Final = events.U32_MAX


class Appendable(Protocol):
    """A destination for events, such as a run."""

    def append(self, event: ev.RunEvent) -> Any:
        """Add an event."""
        ...


class RecordedReply(str):
    """A recorded reply for graders: a string with the attributes of a live reply."""

    __slots__ = ("query", "thread_id")

    query: str
    thread_id: str

    @property
    def text(self) -> str:
        return str(self)


def _whole(number: float | None) -> int:
    # A regulator's events hold 32-bit counts; a recorded run may have any number, or none.
    return min(max(round(number), 0), _MOST) if number is not None and math.isfinite(number) else 0


def _price(cost: float | None) -> float | None:
    # As in the regulation layer: None if unknown, 0 if the call is known to be free.
    return cost if cost is not None and 0 <= cost < math.inf else None


class _Thread:
    """One thread of the run with its own task, as in the regulation layer."""

    def __init__(self, regulator: Regulator, person: Person, run: Appendable, layer_id: str) -> None:
        self.now_ms = 0.0
        self.regulator = Regulator(person, regulator.settings, clock=lambda: self.now_ms / 1000)
        self.run, self.layer_id = run, layer_id
        # One object for all decisions of the thread, because its settings never change.
        self.thresholds = freeze(regulator.thresholds)
        self.turn_is_open = False
        self.query = ""
        # The execution of the last answer, and the last text of a child, because a child's answer does not go to the user.
        self.answered_in: str | None = None
        self.is_due = False  # whether a turn has begun and no layer was asked yet
        self.answer: str | None = None  # of a step of the turn that has not ended yet
        self.child_text: str | None = None
        self.asked: set[str] = set()  # executions whose next call needs a person's approval
        self.latched: decisions.CircuitBreak | None = None

    def observe(self, where: ev.Where, t_ms: float, event: events.Event) -> None:
        self.now_ms = t_ms
        self.regulator.on_event(event)
        self.run.append(ev.RegulatorSaw(where, t_ms, self.layer_id, events.to_dict(event)))

    def decide(self, where: ev.Where, t_ms: float, at: str) -> ev.RegulatorDecided:
        decision = self.regulator.decide()
        if at == "turn_start" and self.latched is not None:
            decision, self.latched = self.latched, None
        circuit_break = decision if isinstance(decision, decisions.CircuitBreak) else None
        if circuit_break is not None and not self.turn_is_open:
            # There is no turn to stop; the next one is stopped, even if better grades follow.
            self.latched = circuit_break
        decided = ev.RegulatorDecided(
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
    """Replays a recorded run once, and appends its events with the decisions to another run."""

    def __init__(self, regulator: Regulator, grader: Grader | None, into: Appendable, layer_id: str) -> None:
        self.regulator, self.grader, self.into, self.layer_id = regulator, grader, into, layer_id
        self.is_planned = False
        self.queries: dict[str, str] = {}  # the last text that an execution was given
        self.persons: dict[str, Person] = {}
        self.tasks: dict[tuple[str, str], _Thread] = {}
        self.threads: dict[str, _Thread] = {}

    def _thread(self, where: ev.Where) -> _Thread:
        return self.threads.get(where.thread_id) or self._task(where, None)

    def _task(self, where: ev.Where, resource_id: str | None) -> _Thread:
        """Return a thread's task; a thread that changes its resource begins a new task, and a circuit break stays."""
        owner = where.thread_id if resource_id is None else resource_id
        found = self.tasks.get((where.thread_id, owner))
        if found is None:
            # Threads of one resource learn together, as live; the template learns nothing, and only its own user shares its data.
            own = resource_id in (None, self.regulator.user_id())
            person = self.persons.setdefault(owner, self.regulator.person.copy() if own else Person(owner))
            found = self.tasks[where.thread_id, owner] = _Thread(self.regulator, person, self.into, self.layer_id)
        before = self.threads.get(where.thread_id, found)
        found.latched = before.latched
        self.threads[where.thread_id] = found
        return found

    def read(self, events: Iterable[ev.RunEvent]) -> None:
        """Append events, with the regulator's observations and decisions."""
        events = tuple(events)
        self.expect(events)
        for event in events:
            for _ in self.take(event):
                pass

    def expect(self, events: Iterable[ev.RunEvent]) -> None:
        """Note whether the requests of a run are planned in it: layers are then asked when a step begins, as live."""
        self.is_planned = any(isinstance(event, ev.BudgetsAllocated) for event in events)

    def take(self, event: ev.RunEvent) -> Iterator[ev.RegulatorDecided]:
        """Append an event and let the regulator observe it; yields each decision before the next events are appended."""
        # A call is decided before it is appended, and a reply before its turn completes: as in a live harness, where the decision
        # can still stop the next action.
        match event:
            case ev.TurnStarted():
                self.into.append(event)
                yield from self._turn_started(event)
            case ev.BudgetsAllocated():
                self.into.append(event)
                thread = self._thread(event.where)
                if thread.is_due:
                    thread.is_due = False
                    thread.query = self.queries.get(event.where.execution_id) or thread.query
                    yield self._begun(thread, event)
            case ev.SteeringDecided(hook="before_tool_call", action="ask"):
                self._thread(event.where).asked.add(event.where.execution_id)
                self.into.append(event)
            case ev.SteeringDecided(hook="before_tool_call", layer_id="approval", tool_name=str() as name):
                asked = self._thread(event.where).asked
                if event.where.execution_id not in asked:  # the tool itself needs approval, after all layers
                    asked.add(event.where.execution_id)
                    yield self._tool_called(event, name)
                self.into.append(event)
            case ev.ToolCalled() if event.status in _RAN or event.status == "cancelled":
                asked = self._thread(event.where).asked
                if event.where.execution_id not in asked:  # rules have not allowed a call that waits for approval
                    yield self._tool_called(event, event.name)
                asked.discard(event.where.execution_id)
                self.into.append(event)
                if event.status in _RAN:
                    self._tool_returned(event)
            case ev.StepEnded(step_kind="llm") if not event.where.depth:
                thread = self._thread(event.where)
                if thread.answer is not None:
                    yield from self._replied(event, thread.answer)
                thread.answer = None
                self.into.append(event)
            case ev.TurnCompleted():
                yield from self._turn_completed(event)
                self._thread(event.where).turn_is_open = False
                self.into.append(event)
            case ev.RegulatorSaw() | ev.RegulatorDecided():
                yield from self._corrected(event)
            case ev.QualityGiven():
                self.into.append(event)
                # A grader replaces the recorded grades; using both would count a reply twice.
                if self.grader is None:
                    yield self._graded(event.where, event.t_ms, event.quality, "quality")
            case _:
                self.into.append(event)
                if isinstance(event, ev.ToolCalled):
                    self._thread(event.where).asked.discard(event.where.execution_id)
                if isinstance(event, ev.ItemsAppended) and event.origin in ("user", "step"):
                    known = self.queries.get(event.where.execution_id, "")
                    self.queries[event.where.execution_id] = query_of(event.items) or known
                if isinstance(event, ev.ChildEnded):
                    self._thread(event.where).child_text = event.text
                if isinstance(event, ev.ModelCalled) and event.purpose == "agent" and event.status == "ok":
                    self._model_called(event)
                if isinstance(event, ev.ItemsAppended) and event.origin == "model" and not event.where.depth:
                    calls = any(item["type"] == "function_call" for item in event.items)
                    self._thread(event.where).answer = None if calls else assistant_text(event.items)

    def _turn_started(self, event: ev.TurnStarted) -> Iterator[ev.RegulatorDecided]:
        thread = self._task(event.where, event.resource_id)
        thread.turn_is_open, thread.query = True, event.query
        thread.answered_in = thread.child_text = thread.answer = None
        thread.is_due = self.is_planned
        if not thread.is_due:
            yield self._begun(thread, event)

    def _begun(self, thread: _Thread, event: ev.TurnStarted | ev.BudgetsAllocated) -> ev.RegulatorDecided:
        thread.observe(event.where, event.t_ms, events.TurnStart(accepted_text(thread.query)))
        return thread.decide(event.where, event.t_ms, "turn_start")

    def _model_called(self, event: ev.ModelCalled) -> None:
        thread = self._thread(event.where)
        thread.answered_in = event.where.execution_id
        for index, (token, logprob) in enumerate(event.logprobs):
            # Observed but not recorded: the run already has the tokens, and they would be most events of a turn.
            thread.regulator.on_event(events.Token(accepted_text(token), float(logprob), index))
        tokens_in, tokens_out = _whole(event.input_tokens), _whole(event.output_tokens)
        duration_ms, usd = _whole(event.duration_ms), _price(event.cost)
        cost = events.Cost(tokens_in, tokens_out, duration_ms, provider=accepted_text(event.model), usd=usd)
        thread.observe(event.where, event.t_ms, cost)

    def _tool_called(self, event: ev.ToolCalled | ev.SteeringDecided, name: str) -> ev.RegulatorDecided:
        thread = self._thread(event.where)
        thread.observe(event.where, event.t_ms, events.ToolCall(accepted_text(name), _arguments(event.args)))
        return thread.decide(event.where, event.t_ms, "tool_call")

    def _tool_returned(self, event: ev.ToolCalled) -> None:
        error = None if event.error is None else accepted_text(event.error)
        result = events.ToolResult(
            accepted_text(event.name),
            event.status == "ok",
            _whole(event.duration_ms),
            error,
            accepted_text(event.output),
        )
        self._thread(event.where).observe(event.where, event.t_ms, result)

    def _turn_completed(self, event: ev.TurnCompleted) -> Iterator[ev.RegulatorDecided]:
        thread = self._thread(event.where)
        if self.is_planned:
            # The step of an answer that is still there has hidden events.
            if thread.answer is not None and thread.answered_in in (None, event.where.execution_id):
                yield from self._replied(event, thread.answer)
            return
        # A suggestion that replaced a reply is the old regulator's text, not the agent's.
        if not event.text or event.stopped is not None:
            return
        if thread.answered_in in (None, event.where.execution_id) or thread.child_text != event.text:
            yield from self._replied(event, event.text)

    def _replied(self, event: ev.StepEnded | ev.TurnCompleted, text: str) -> Iterator[ev.RegulatorDecided]:
        thread = self._thread(event.where)
        thread.observe(event.where, event.t_ms, events.TurnComplete(accepted_text(text)))
        yield thread.decide(event.where, event.t_ms, "turn_complete")
        if self.grader is None:
            return
        reply = RecordedReply(text)
        reply.query, reply.thread_id = thread.query, event.where.thread_id
        quality = _grade(self.grader, reply)
        if quality is not None:
            self.into.append(ev.QualityGiven(event.where, event.t_ms, quality, "grader"))
            yield self._graded(event.where, event.t_ms, quality, "quality_feedback")

    def _graded(self, where: ev.Where, t_ms: float, quality: float, at: str) -> ev.RegulatorDecided:
        thread = self._thread(where)
        thread.observe(where, t_ms, events.QualityFeedback(float(quality)))
        return thread.decide(where, t_ms, at)

    def _corrected(self, event: ev.RegulatorSaw | ev.RegulatorDecided) -> Iterator[ev.RegulatorDecided]:
        """Replay corrections; other observations and decisions of the recorded regulator are not repeated."""
        if not isinstance(event, ev.RegulatorSaw) or event.event.get("kind") != events.UserCorrection.kind:
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
    except ValueError:  # not a JSON number; loops are still found by the tool's name
        return json.dumps(args)


def _grade(grader: Grader, reply: RecordedReply) -> float | None:
    quality: object = grader(reply)
    if quality is None:
        return None
    if isinstance(quality, Coroutine):
        quality.close()
        raise NoeticConfigError(
            "INVALID_GRADE",
            "A replay needs a synchronous grader; this one is async.",
            given=grader,
            hint="Pass a plain function.",
        )
    if isinstance(quality, bool) or not isinstance(quality, int | float) or not math.isfinite(quality):
        raise NoeticConfigError(
            "INVALID_GRADE", "A grader must return a finite number or None.", given=quality, hint="Return 0.0 to 1.0."
        )
    return float(quality)
