"""The decisions of a regulator in a recorded run: repeated at recorded decisions, or made where there were none.

A run is fed once. The predicates' evidence is kept for every moment, so that other settings need no second feeding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from msgspec import structs

from noetic_nb.events import RegulatorDecided, RunEvent, SteeringDecided, ToolCalled, TurnCompleted, TurnStarted
from noetic_nb.items import freeze
from noetic_nb.lab._replaying.replay_report import Kept
from noetic_nb.regulator import Regulator, decisions
from noetic_nb.regulator._settings import RELEASE_SETTINGS, Settings
from noetic_nb.regulator._state import Person
from noetic_nb.runs._regulation.recorded_decisions import DecisionTape, Redecided
from noetic_nb.runs._regulation.recorded_regulator import LAYER_KIND, RegulatorFeed, as_recorded, checked_regulator

# The most frequent decision.
_GO_ON: Final = freeze(decisions.to_dict(decisions.CONTINUE))


@dataclass(frozen=True, slots=True)
class RegulatorTemplate:
    """Settings and memory of a regulator at this moment, made once for all replayed runs; later learning has no effect."""

    person: Person
    settings: Settings
    learned: str
    """What the user has taught it, as text."""
    thresholds: Mapping[str, Any]
    """The numbers in force, as a decision records them."""
    cost_cap: int | None

    @classmethod
    def of(cls, regulator: Any) -> Self:
        """Return the template of a regulator, or a given template; raises `NoeticConfigError` ``INVALID_REGULATOR``."""
        if isinstance(regulator, cls):
            return regulator
        person = checked_regulator(regulator).person.copy()
        # A copy, because creating a regulator applies its settings to the person.
        learned = Regulator(person.copy(), RELEASE_SETTINGS).export_json("everything")
        return cls(person, regulator.settings, learned, freeze(regulator.thresholds), regulator.cost_cap_tokens())

    def with_settings(self, settings: Settings) -> Self:
        """Return the template of a regulator with the same memory and other settings."""
        numbers = Regulator(Person("numbers"), settings)
        return type(self)(self.person, settings, self.learned, freeze(numbers.thresholds), numbers.cost_cap_tokens())

    def with_numbers_of(self, other: RegulatorTemplate) -> Self:
        """Return the template of a regulator with the same memory and the settings of another."""
        return type(self)(self.person, other.settings, self.learned, other.thresholds, other.cost_cap)

    def regulator(self) -> Regulator:
        return Regulator(self.person.copy(), self.settings)

    def reads_as(self, other: RegulatorTemplate) -> bool:
        """Tell whether both regulators read the same from a run, that is, differ only in predicates."""
        return self.learned == other.learned and self.settings.reads_as(other.settings)


def fed_events(events: Iterable[RunEvent], template: RegulatorTemplate) -> list[RunEvent]:
    """Return events plus those that a regulator reads, with a decision to continue at every decision point."""
    # Without predicates, because their numbers are not yet known at this point.
    bare = Regulator(template.person.copy(), replace(template.settings, predicates=()))
    fed: list[RunEvent] = []
    RegulatorFeed(bare, None, fed, LAYER_KIND).read(events)
    return fed


class DecisionsAgain:
    """The moments at which a regulator decided in a run, and its layer's denials that carry out its decisions."""

    def __init__(self, events: Iterable[RunEvent], tape: DecisionTape) -> None:
        self._tape, self._events = tape, tuple(events)
        # For each denial, the index of the decision behind it.
        self._behind: dict[int, int] = {}
        last: dict[str, int] = {}
        for seq, event in enumerate(self._events):
            match event:
                case ToolCalled():
                    last.clear()
                case RegulatorDecided():
                    last[event.layer_id] = seq
                case SteeringDecided(hook="before_tool_call") if event.layer_id in last:
                    self._behind[seq] = last[event.layer_id]
        # The token cap under recorded numbers, by the identity of these numbers.
        self._caps: dict[int, tuple[Any, int | None]] = {}

    def under(self, template: RegulatorTemplate | None, kept: Kept) -> dict[int, RunEvent | None]:
        """Return decisions by the index of those they replace; None removes a denial."""
        moments = self._tape.decide({}) if template is None else self._tape.decide_under(template.settings)
        # By thread, the break that stops each later turn.
        held: dict[str, RegulatorDecided] = {}
        found: dict[int, RunEvent | None] = {}
        for moment in moments:
            assert moment.seq is not None
            found[moment.seq] = self._made(moment, template, held)
        for seq, event in enumerate(self._events):
            if isinstance(event, RegulatorDecided) and seq not in found:
                kept.add("regulator", f"decisions of a second regulator, {event.layer_id}", seq)
        for seq, behind in self._behind.items():
            stop: Any = found.get(behind)
            if stop is not None:
                denial: Any = self._events[seq]
                found[seq] = structs.replace(denial, guidance=stop.suggestion) if stop.stops else None
        return found

    def _made(
        self, moment: Redecided, template: RegulatorTemplate | None, held: dict[str, RegulatorDecided]
    ) -> RegulatorDecided:
        recorded, thread_id = moment.recorded, moment.recorded.where.thread_id
        if moment.begins_task:
            held.pop(thread_id, None)
        earlier = held.get(thread_id) if recorded.at == "turn_start" else None
        decision = moment.decision
        own = decision.suggestion if isinstance(decision, decisions.CircuitBreak) else None
        now = structs.replace(
            recorded,
            decision=freeze(decisions.to_dict(decision)) if earlier is None else earlier.decision,
            suggestion=own if earlier is None else earlier.suggestion,
            confidence=moment.confidence,
            tokens_out=moment.tokens_out,
            cost_cap=self._cap(recorded) if template is None else template.cost_cap,
            stops=moment.stops,
            thresholds=recorded.thresholds if template is None else template.thresholds,
        )
        if own is not None and earlier is None:
            held[thread_id] = now
        is_other = now.decision != recorded.decision or now.stops != recorded.stops
        return structs.replace(now, enforced=False) if is_other else now

    def _cap(self, recorded: RegulatorDecided) -> int | None:
        numbers: Any = recorded.thresholds
        known = self._caps.get(id(numbers))
        if known is None or known[0] is not numbers:
            settings = as_recorded(self._tape.template.settings, numbers)
            known = self._caps[id(numbers)] = numbers, Regulator(Person("cap"), settings).cost_cap_tokens()
        return known[1]

    def denials(self, made: Mapping[int, RunEvent | None]) -> dict[int, SteeringDecided]:
        """Return the denials that would follow from decisions of `under`, by the index of the call that was made."""
        waiting: dict[tuple[str, str], Any] = {}
        found: dict[int, SteeringDecided] = {}
        for seq, event in enumerate(self._events):
            key = event.where.thread_id, event.where.execution_id
            match event:
                case RegulatorDecided(at="tool_call"):
                    now: Any = made.get(seq, event)
                    waiting.pop(key, None)
                    if now.stops:
                        waiting[key] = now
                case SteeringDecided(hook="before_tool_call") if (
                    key in waiting and event.layer_id == waiting[key].layer_id
                ):
                    del waiting[key]  # it was denied
                case ToolCalled() if key in waiting:
                    now = waiting.pop(key)
                    found[seq] = SteeringDecided(
                        *(now.where, now.t_ms, now.layer_id, "before_tool_call", event.name, event.args),
                        *("deny", now.suggestion, (), 0.0),
                        enforced=False,
                    )
        return found


class DecisionsAdded:
    """The moments at which an added regulator would have decided, in the `fed_events` of a run."""

    def __init__(self, events: Iterable[RunEvent], tape: DecisionTape) -> None:
        self._tape = tape
        # Each with its index, and whether there is a turn to stop.
        self._moments: list[tuple[RegulatorDecided, int, bool]] = []
        running: set[str] = set()
        for seq, event in enumerate(events):
            match event:
                case TurnStarted():
                    running.add(event.where.thread_id)
                case TurnCompleted():
                    running.discard(event.where.thread_id)
                case RegulatorDecided():
                    self._moments.append((event, seq, event.where.thread_id in running))
        # The last regulator's decisions as plain data; most of them recur with the next regulator.
        self._plain: list[tuple[Any, Any]] = [(decisions.CONTINUE, _GO_ON)] * len(self._moments)

    def under(self, template: RegulatorTemplate) -> dict[int, RegulatorDecided]:
        """Return the decisions of a regulator by their index in the events; it reads the same as the tape."""
        found: dict[int, RegulatorDecided] = {}
        # By thread, a break between turns, which stops the next turn.
        latched: dict[str, decisions.CircuitBreak] = {}
        thresholds, cost_cap = template.thresholds, template.cost_cap
        moments = self._tape.decide_under(template.settings)
        for at, ((made, seq, is_open), moment) in enumerate(zip(self._moments, moments, strict=True)):
            decision = moment.decision
            if latched and made.at == "turn_start":
                decision = latched.pop(made.where.thread_id, decision)
            own = decision if isinstance(decision, decisions.CircuitBreak) else None
            if own is not None and not is_open:
                latched[made.where.thread_id] = own
            known = self._plain[at]
            if known[0] is not decision:
                known = self._plain[at] = decision, freeze(decisions.to_dict(decision))
            suggestion, stops = None if own is None else own.suggestion, own is not None and is_open
            found[seq] = RegulatorDecided(
                *(made.where, made.t_ms, made.layer_id, made.at, known[1], suggestion),
                *(made.confidence, made.tokens_out, cost_cap, stops, thresholds),
            )
        return found
