"""Recomputes the decisions of a recorded regulator with other thresholds, using the real predicates.

Fresh tasks with the recorded settings are fed once with a run, and the evidence for the predicates is kept for every
decision. Only predicates use thresholds, so a changed threshold needs no second feeding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import LayerStateChanged, ModelCalled, RegulatorDecided, RegulatorSaw, RunEvent, TurnStarted
from noetic_nb.items._json_text import compact_json
from noetic_nb.regulator import Regulator, decisions, events
from noetic_nb.regulator._adapters.replay import MomentEvidence, evidence_of
from noetic_nb.regulator._settings import Settings
from noetic_nb.regulator._state import Person
from noetic_nb.regulator.events import accepted_text
from noetic_nb.regulator.predicates import Predicate
from noetic_nb.regulator.predicates.explanation import PredicateFinding, names_of
from noetic_nb.runs._regulation.recorded_regulator import (
    LAYER_KIND,
    RegulatorFeed,
    as_recorded,
    checked_regulator,
    recorded_regulators,
)
from noetic_nb.runs._regulation.regulator_signals import BETWEEN_TURNS


class Redecided(NamedTuple):
    """The new and the recorded decision at one moment."""

    recorded: RegulatorDecided
    seq: int | None
    """Index of the recorded decision among the run's events; None if there is none."""
    turn: int
    decision: decisions.Decision
    stops: bool  # whether a turn would be stopped here: a break holds until the task is reset
    begins_task: bool  # whether the task was reset since the last decision
    confidence: float
    tokens_out: int


@dataclass(frozen=True, slots=True)
class Judged:
    """One predicate in one turn: its conditions, and whether it decided."""

    thread_id: str
    turn: int
    predicate: str
    finding: PredicateFinding
    decided: bool


@dataclass(slots=True)
class _Moment:
    recorded: RegulatorDecided
    seq: int | None
    turn: int
    begins_task: bool
    reading: MomentEvidence
    confidence: float
    rule: int  # index of the recorded thresholds in force
    place: int  # index among the moments with these thresholds


class _Thread:
    """One thread's own regulator, fed in the order of the recording."""

    def __init__(self, layer_id: str, person: Person, settings: Settings) -> None:
        self.layer_id = layer_id
        self.now_ms = 0.0
        self.regulator = Regulator(person, settings, clock=lambda: self.now_ms / 1000)
        self.waiting: list[tuple[float, events.Event]] = []
        self.counted = 0
        self.turn = 0
        self.last: MomentEvidence | None = None
        self.index = 0

    def feed(self) -> None:
        for t_ms, event in self.waiting:
            self.now_ms = t_ms
            self.regulator.on_event(event)
        self.waiting.clear()


class DecisionTape:
    """The moments at which each thread's first regulator decided; uses a copy that learns nothing, or `as_recorded`."""

    def __init__(self, regulator: Regulator, *, as_recorded: bool = False) -> None:
        self.template = regulator
        self._as_recorded = as_recorded
        self._moments: list[_Moment] = []
        self._rules: list[tuple[Mapping[str, Any], list[MomentEvidence]]] = [] if as_recorded else [({}, [])]
        self._in_force: dict[int, tuple[Settings, Settings]] = {}
        """By rule, the template's settings and the same settings with the thresholds in force."""
        self._owners: dict[str, str] = {}
        self._threads: dict[tuple[str, str], _Thread] = {}
        self._people: dict[str, Person] = {}
        self._known: dict[tuple[str, str], Any] = {}
        self._early: dict[tuple[str, str], list[tuple[float, events.Event]]] = {}
        # The last answers of each predicate: moving a slider re-evaluates only its predicate.
        self._answers: dict[tuple[int, int], tuple[Predicate, list[decisions.Decision | None]]] = {}
        self._findings: dict[tuple[int, int], tuple[Predicate, dict[int, PredicateFinding]]] = {}

    @classmethod
    def of_unwatched(cls, recorded: Iterable[RunEvent], regulator: Regulator) -> DecisionTape:
        """Return the moments at which a regulator would have decided in a run without one."""
        tape = cls(regulator)
        RegulatorFeed(regulator, None, tape, LAYER_KIND).read(recorded)
        return tape

    def __len__(self) -> int:
        return len(self._moments)

    def append(self, event: RunEvent, seq: int | None = None) -> None:
        """Read the next event of the run; `seq` is its index."""
        match event:
            case RegulatorSaw():
                thread = self._thread(event)
                if thread is not None:
                    thread.waiting.append((event.t_ms, _event(event)))
            case RegulatorDecided():
                thread = self._thread(event)
                if thread is not None:
                    self._decided(thread, event, seq)
            case ModelCalled(purpose="agent", status="ok", logprobs=logprobs) if logprobs:
                # Tokens are recorded only with their call, which may come before all regulator events.
                task = self._task(event)
                known = self._threads.get(task)
                waiting = self._early.setdefault(task, []) if known is None else known.waiting
                for index, (token, logprob) in enumerate(logprobs):
                    waiting.append((event.t_ms, events.Token(accepted_text(token), float(logprob), index)))
            case TurnStarted():
                self._owners[event.where.thread_id] = event.resource_id or event.where.thread_id
            case LayerStateChanged(hook="init", state=state) if state is not None:
                self._known[event.where.thread_id, event.layer_id] = state

    def _task(self, event: RunEvent) -> tuple[str, str]:
        """Return the thread and its resource; a thread that changes its resource begins a new task."""
        thread_id = event.where.thread_id
        return thread_id, self._owners.get(thread_id, thread_id)

    def _thread(self, event: RegulatorSaw | RegulatorDecided) -> _Thread | None:
        task = self._task(event)
        thread = self._threads.get(task)
        if thread is None:
            owner = task[1]
            # Threads of one resource learn together, as in the live run.
            if owner not in self._people:
                self._people[owner] = self._person(self._known.get((task[0], event.layer_id)))
            thread = self._threads[task] = _Thread(event.layer_id, self._people[owner], self.template.settings)
            thread.waiting = self._early.pop(task, [])
        return thread if thread.layer_id == event.layer_id else None

    def _person(self, state: Any) -> Person:
        if state is not None:
            try:
                return Regulator.from_json(compact_json(state), as_original="noetic_nb" not in state).person
            except (TypeError, ValueError):
                pass  # settings with code, or another layer's state: use the template's memory
        return self.template.person.copy()

    def _decided(self, thread: _Thread, event: RegulatorDecided, seq: int | None) -> None:
        # Resets are not recorded. A lower token count reveals one; it precedes the waiting events.
        begins_task = event.tokens_out < thread.counted
        if begins_task:
            thread.regulator.reset_task()
        thread.counted = event.tokens_out
        thread.feed()
        thread.turn = event.where.turn if event.where.turn > 0 else thread.turn
        thread.last = evidence_of(thread.regulator.evidence, thread.index, event.at, thread.last)
        thread.index += 1
        rule = self._rule(event.thresholds) if self._as_recorded else 0
        readings = self._rules[rule][1]
        readings.append(thread.last)
        confidence = thread.regulator.confidence()
        self._moments.append(
            _Moment(event, seq, thread.turn, begins_task, thread.last, confidence, rule, len(readings) - 1)
        )

    def _rule(self, thresholds: Mapping[str, Any]) -> int:
        # Newest first: thresholds seldom change, and rarely change back.
        for place in range(len(self._rules) - 1, -1, -1):
            if self._rules[place][0] is thresholds or self._rules[place][0] == thresholds:
                return place
        self._rules.append((thresholds, []))
        return len(self._rules) - 1

    def decide(self, thresholds: Mapping[str, Mapping[str, float | None]]) -> list[Redecided]:
        """Return every decision made with other thresholds; thresholds that are not named stay as recorded."""
        if not self._rules:  # raise for invalid thresholds even without decisions
            with_thresholds(self.template.settings, thresholds)
        answers = [
            self._answers_under(rule, with_thresholds(self._recorded_settings(rule), thresholds), readings)
            for rule, (_, readings) in enumerate(self._rules)
        ]
        return self._redecided(answers)

    def _recorded_settings(self, rule: int) -> Settings:
        """Return the settings in force under a rule; recomputed when the template has new settings."""
        base = self.template.settings
        known = self._in_force.get(rule)
        if known is None or known[0] is not base:
            known = self._in_force[rule] = (base, as_recorded(base, self._rules[rule][0]))
        return known[1]

    def settings_under(self, thresholds: Mapping[str, Mapping[str, float | None]]) -> Settings:
        """Return the last settings in force, with other thresholds."""
        base = self._recorded_settings(len(self._rules) - 1) if self._rules else self.template.settings
        return with_thresholds(base, thresholds)

    def decide_under(self, settings: Settings) -> list[Redecided]:
        """Return every decision of a regulator that differs only in predicates; it reuses the recorded measurements."""
        if not settings.reads_as(self.template.settings):
            raise NoeticConfigError(
                "OTHER_READING",
                "These settings cannot reuse the recorded measures: topics, turns, learning or measures differ.",
                given=settings,
                hint="Read the run again, with a regulator that has them.",
            )
        return self._redecided(
            [self._answers_under(r, settings, readings) for r, (_, readings) in enumerate(self._rules)]
        )

    def _redecided(self, answers: list[list[list[decisions.Decision | None]]]) -> list[Redecided]:
        held: set[str] = set()
        found: list[Redecided] = []
        decided = [_first_of(of_rule) for of_rule in answers]
        for moment in self._moments:
            decision = decided[moment.rule][moment.place] or decisions.CONTINUE
            recorded = moment.recorded
            thread_id = recorded.where.thread_id
            if moment.begins_task:
                held.discard(thread_id)
            is_break = decision.kind == decisions.CircuitBreak.kind
            between = recorded.at in BETWEEN_TURNS
            stops = (is_break and not between) or (recorded.at == "turn_start" and thread_id in held)
            if is_break:
                held.add(thread_id)
            found.append(
                Redecided(
                    recorded,
                    moment.seq,
                    moment.turn,
                    decision,
                    stops,
                    moment.begins_task,
                    moment.confidence,
                    moment.reading.tokens_out,
                )
            )
        return found

    def _answers_under(
        self, rule: int, settings: Settings, readings: list[MomentEvidence]
    ) -> list[list[decisions.Decision | None]]:
        answers = []
        for place, predicate in enumerate(settings.predicates):
            known = self._answers.get((rule, place))
            found = known[1] if known is not None and (known[0] is predicate or known[0] == predicate) else []
            if len(found) < len(readings):
                check = predicate.check
                # A growing run adds moments; the earlier ones are already answered.
                found += [check(reading) for reading in readings[len(found) :]]
            self._answers[rule, place] = predicate, found
            answers.append(found)
        return answers

    def judged(self, thresholds: Mapping[str, Mapping[str, float | None]]) -> list[Judged]:
        """Return every predicate in every turn, at its decision or else at the end of the turn; raises as `decide` does."""
        rules = [with_thresholds(self._recorded_settings(rule), thresholds) for rule in range(len(self._rules))]
        answers = [self._answers_under(rule, rules[rule], self._rules[rule][1]) for rule in range(len(rules))]
        named = [list(zip(names_of(each.predicates), each.predicates, strict=True)) for each in rules]
        turns: dict[tuple[str, int], list[_Moment]] = {}
        for moment in self._moments:
            turns.setdefault((moment.recorded.where.thread_id, moment.turn), []).append(moment)
        found = []
        for (thread_id, turn), moments in turns.items():
            rule = moments[-1].rule
            held: dict[int, _Moment] = {}
            decided = set()
            for moment in moments:
                holding = [
                    place for place, of_predicate in enumerate(answers[moment.rule]) if of_predicate[moment.place]
                ]
                decided.update(holding[:1])
                held.update(dict.fromkeys(holding, moment))
            for place, (name, predicate) in enumerate(named[rule]):
                moment = held.get(place, moments[-1])
                if moment.rule != rule:
                    moment = moments[-1]
                known = self._findings.get((moment.rule, place))
                if known is None or (known[0] is not predicate and known[0] != predicate):
                    known = self._findings[moment.rule, place] = predicate, {}
                if moment.place not in known[1]:
                    known[1][moment.place] = predicate.explain(moment.reading)
                found.append(Judged(thread_id, turn, name, known[1][moment.place], place in decided))
        return found

    def agreement(self) -> tuple[int, int]:
        """Return how many recorded decisions are reproduced, and the total; incomplete recordings reproduce fewer."""
        same = total = 0
        held: dict[str, Any] = {}
        for each in self.decide({}):
            recorded, thread_id = each.recorded, each.recorded.where.thread_id
            was = _kind_of(recorded.decision)
            total += 1
            # A break from an earlier turn is repeated unchanged, whatever is decided later.
            repeats = recorded.at == "turn_start" and was == held.get(thread_id)
            same += repeats or was == (each.decision.kind, _reason_of(each.decision))
            if was[0] == decisions.CircuitBreak.kind:
                held[thread_id] = was
        return same, total


def _first_of(answers: Sequence[list[decisions.Decision | None]]) -> list[decisions.Decision | None]:
    """Return the answer of the first predicate that has one, for each reading."""
    *others, found = answers or [[]]
    for own in reversed(others):
        found = [answer or later for answer, later in zip(own, found, strict=True)]
    return found


def _kind_of(decision: Mapping[str, Any]) -> tuple[Any, Any]:
    reason = decision.get("reason")
    return decision.get("kind"), reason.get("kind") if isinstance(reason, Mapping) else None


def _reason_of(decision: decisions.Decision) -> str | None:
    return decision.reason.kind if isinstance(decision, decisions.CircuitBreak) else None


def _event(saw: RegulatorSaw) -> events.Event:
    try:
        return events.from_dict(saw.event)
    except (TypeError, ValueError) as error:
        raise NoeticConfigError(
            "INVALID_RECORDING",
            f"A recorded event cannot be sent to the regulator again: {error}",
            given=saw.event,
            hint="Load the run from an undamaged file.",
        ) from error


def tape_of(
    run: Any,
    regulator: Regulator | None = None,
    recorded: Iterable[tuple[int, RunEvent]] | None = None,
    others: Iterable[Regulator] = (),
) -> DecisionTape:
    """Return the recomputable decisions of a run; `regulator` is required if nothing was decided.

    `others` may have decided in it, if it does not have the settings itself.
    """
    if regulator is not None:
        checked_regulator(regulator)
    placed = tuple(enumerate(run.events) if recorded is None else recorded)
    was_watched = any(isinstance(event, RegulatorDecided) for _, event in placed)
    if regulator is not None and not was_watched:
        return DecisionTape.of_unwatched((event for _, event in placed), regulator)
    candidates = [*recorded_regulators(run), *others] if regulator is None else [regulator]
    if not candidates:
        what = "does not say how its regulator was set up" if was_watched else "had no regulator"
        raise NoeticConfigError(
            "NO_REGULATOR", f"This run {what}.", hint="Pass one, such as regulator=Regulator.recommended('ann')."
        )
    tapes = []
    for candidate in candidates:
        tape = DecisionTape(candidate, as_recorded=regulator is None)
        for seq, event in placed:
            tape.append(event, seq)
        tapes.append(tape)
        if len(candidates) == 1 or tape.agreement()[0] == len(tape):
            return tape
    return max(tapes, key=lambda tape: tape.agreement()[0])


def with_thresholds(settings: Settings, thresholds: Mapping[str, Mapping[str, float | None]]) -> Settings:
    hint = "Thresholds are {predicate: {name: number}}, as in `Regulator.thresholds`."
    is_mapping = isinstance(thresholds, Mapping) and all(isinstance(each, Mapping) for each in thresholds.values())
    if not is_mapping:
        raise NoeticConfigError(
            "INVALID_THRESHOLD", "Thresholds must be a mapping of mappings.", given=thresholds, hint=hint
        )
    for name, numbers in thresholds.items():
        try:
            settings = settings.with_thresholds({name: numbers})
        except KeyError as error:
            what, known = error.args
            kind = "predicate" if what == name else "threshold"
            raise NoeticConfigError(
                f"UNKNOWN_{kind.upper()}",
                f"The regulator has no {kind} {what!r:.80}.",
                given=what,
                hint=f"It has {', '.join(map(str, known)) or 'none'}.",
            ) from None
        except (TypeError, ValueError) as error:
            message = str(error).split(" Given:")[0].rstrip(".")
            raise NoeticConfigError("INVALID_THRESHOLD", f"{message}.", given=dict(numbers), hint=hint) from error
    return settings
