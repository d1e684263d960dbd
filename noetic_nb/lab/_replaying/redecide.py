"""The decisions of a run's regulator, made again at the moments at which it decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from noetic_nb.events import RegulatorDecided, RunEvent, SteeringDecided, ToolCalled
from noetic_nb.items import freeze
from noetic_nb.lab._replaying.regulator_template import RegulatorTemplate
from noetic_nb.lab._replaying.replay_report import Kept
from noetic_nb.regulator import Regulator, decisions
from noetic_nb.regulator._person import Person
from noetic_nb.regulator._settings import Settings
from noetic_nb.runs import Run
from noetic_nb.runs._regulation.recorded_decisions import DecisionTape, Redecided
from noetic_nb.runs._regulation.recorded_regulator import as_recorded

__all__ = ["DecisionsAgain", "denied_calls", "was_regulated"]


def was_regulated(run: Run) -> bool:
    """Tell whether a regulator decided in a run."""
    return any(isinstance(event, RegulatorDecided) for event in run.events)


class DecisionsAgain:
    """The moments of a regulator in a run, and which denials of its layer carry out its decisions.

    Parameters
    ----------
    run : Run
        One with decisions of a regulator.
    tape : DecisionTape
        What it read.
    """

    def __init__(self, run: Run, tape: DecisionTape) -> None:
        self._tape, self._events = tape, tuple(run.events)
        # By the place of a denial, that of the decision behind it.
        self._behind: dict[int, int] = {}
        for seq, event in enumerate(self._events):
            if isinstance(event, SteeringDecided) and event.hook == "before_tool_call":
                behind = _behind(self._events, seq)
                if behind is not None:
                    self._behind[seq] = behind

    def under(
        self, template: RegulatorTemplate | None, kept: Kept
    ) -> dict[int, RegulatorDecided | SteeringDecided | None]:
        """Return decisions by the place of those they stand for; None for a deny that would not have been.

        Parameters
        ----------
        template : RegulatorTemplate, optional
            In place of the recorded regulator; it takes the same from events as the tape.
        kept : Kept
            Takes note of decisions that stay as they were recorded.
        """
        moments = self._tape.decide({}) if template is None else self._tape.decide_under(template.settings)
        made = _Made(self._tape.template.settings, template)
        decided: dict[int, RegulatorDecided] = {}
        for moment in moments:
            assert moment.seq is not None
            decided[moment.seq] = made.of(moment)
        for seq, event in enumerate(self._events):
            if isinstance(event, RegulatorDecided) and seq not in decided:
                kept.add("regulator", f"decisions of a second regulator, {event.layer_id}", seq)
        found: dict[int, RegulatorDecided | SteeringDecided | None] = dict(decided)
        for seq, behind in self._behind.items():
            if behind in decided:
                denial: Any = self._events[seq]
                stop = decided[behind]
                found[seq] = structs.replace(denial, guidance=stop.suggestion) if stop.stops else None
        return found


def denied_calls(run: Run, decided: Mapping[int, Any]) -> dict[int, SteeringDecided]:
    """Return the denies that would have followed decisions, by the place of the call that was made all the same.

    Parameters
    ----------
    run : Run
        What was recorded.
    decided : mapping of int to events
        What `DecisionsAgain.under` returned.
    """
    waiting: dict[tuple[str, str], RegulatorDecided] = {}
    found: dict[int, SteeringDecided] = {}
    for seq, event in enumerate(run.events):
        key = event.where.thread_id, event.where.execution_id
        match event:
            case RegulatorDecided(at="tool_call"):
                now = decided.get(seq, event)
                waiting.pop(key, None)
                if now.stops:
                    waiting[key] = now
            case SteeringDecided(hook="before_tool_call") if key in waiting and event.layer_id == waiting[key].layer_id:
                del waiting[key]  # it was denied
            case ToolCalled() if key in waiting:
                now = waiting.pop(key)
                found[seq] = SteeringDecided(
                    *(now.where, now.t_ms, now.layer_id, "before_tool_call", event.name, event.args),
                    *("deny", now.suggestion, (), 0.0),
                    enforced=False,
                )
    return found


def _behind(events: Sequence[RunEvent], seq: int) -> int | None:
    """Return the place of the regulator's decision that a deny of its layer carries out."""
    denial: Any = events[seq]
    for at in range(seq - 1, -1, -1):
        before = events[at]
        if isinstance(before, ToolCalled):
            return None
        if isinstance(before, RegulatorDecided) and before.layer_id == denial.layer_id:
            return at
    return None


class _Made:
    def __init__(self, recorded: Settings, template: RegulatorTemplate | None) -> None:
        self.recorded, self.template = recorded, template
        self.caps: dict[int, tuple[Any, int | None]] = {}
        # By thread, the break that stops each later turn.
        self.held: dict[str, RegulatorDecided] = {}

    def of(self, moment: Redecided) -> RegulatorDecided:
        recorded, thread_id = moment.recorded, moment.recorded.where.thread_id
        if moment.begins_task:
            self.held.pop(thread_id, None)
        held = self.held.get(thread_id) if recorded.at == "turn_start" else None
        decision = moment.decision
        own = decision.suggestion if isinstance(decision, decisions.CircuitBreak) else None
        template = self.template
        now = structs.replace(
            recorded,
            decision=freeze(decisions.to_dict(decision)) if held is None else held.decision,
            suggestion=own if held is None else held.suggestion,
            confidence=moment.confidence,
            tokens_out=moment.tokens_out,
            cost_cap=self._cap(recorded) if template is None else template.cost_cap,
            stops=moment.stops,
            thresholds=recorded.thresholds if template is None else template.thresholds,
        )
        if own is not None and held is None:
            self.held[thread_id] = now
        is_other = now.decision != recorded.decision or now.stops != recorded.stops
        return structs.replace(now, enforced=False) if is_other else now

    def _cap(self, recorded: RegulatorDecided) -> int | None:
        numbers: Any = recorded.thresholds
        known = self.caps.get(id(numbers))
        if known is None or known[0] is not numbers:
            settings = as_recorded(self.recorded, numbers)
            known = self.caps[id(numbers)] = numbers, Regulator(Person("cap"), settings).cost_cap_tokens()
        return known[1]
