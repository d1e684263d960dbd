"""The decisions of a run's regulator, made again at the moments at which it decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RegulatorDecided, SteeringDecided, ToolCalled
from noetic_nb.items import freeze
from noetic_nb.lab.replaying.kept_decisions import Kept
from noetic_nb.regulator import Regulator, decisions
from noetic_nb.regulator.person import Person
from noetic_nb.runs import Run
from noetic_nb.runs.recorded_settings import as_recorded
from noetic_nb.runs.regulator_tape import DecisionTape, Redecided, tape_of

__all__ = ["decide_moments", "denied_calls", "was_regulated"]


def was_regulated(run: Run) -> bool:
    """Tell whether a regulator decided in a run."""
    return any(isinstance(event, RegulatorDecided) for event in run.events)


def decide_moments(
    run: Run, regulator: Regulator | None, kept: Kept
) -> dict[int, RegulatorDecided | SteeringDecided | None]:
    """Return decisions by the place of those they stand for; None for a deny that would not have been.

    Parameters
    ----------
    run : Run
        One with decisions of a regulator.
    regulator : Regulator, optional
        Whose settings and memory count in place of the recorded ones.
    kept : Kept
        Takes note of decisions that stay as they were recorded.
    """
    try:
        tape = tape_of(run, regulator)
    except NoeticConfigError as error:
        if regulator is not None or error.code != "NO_REGULATOR":
            raise
        for seq, event in enumerate(run.events):
            if isinstance(event, RegulatorDecided):
                kept.add("regulator", "its settings are not in the run", seq)
        return {}
    return _Again(run, tape, regulator is not None).of(kept)


def denied_calls(run: Run, decided: Mapping[int, Any]) -> dict[int, SteeringDecided]:
    """Return the denies that would have followed decisions, by the place of the call that was made all the same.

    Parameters
    ----------
    run : Run
        What was recorded.
    decided : mapping of int to events
        What `decide_moments` returned.
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


class _Again:
    def __init__(self, run: Run, tape: DecisionTape, is_new: bool) -> None:
        self.events = tuple(run.events)
        self.tape = tape
        self.is_new = is_new
        self.thresholds = freeze(tape.template.thresholds)
        self.caps: dict[int, tuple[Any, int | None]] = {}
        # By thread, the break that stops each later turn.
        self.held: dict[str, RegulatorDecided] = {}

    def of(self, kept: Kept) -> dict[int, RegulatorDecided | SteeringDecided | None]:
        found: dict[int, RegulatorDecided | SteeringDecided | None] = {}
        for moment in self.tape.decide({}):
            assert moment.seq is not None
            found[moment.seq] = self._decided(moment)
        for seq, event in enumerate(self.events):
            if isinstance(event, RegulatorDecided) and seq not in found:
                kept.add("regulator", f"decisions of a second regulator, {event.layer_id}", seq)
            elif isinstance(event, SteeringDecided) and event.hook == "before_tool_call":
                decided = self._behind(seq, found)
                if decided is not None:
                    found[seq] = replace(event, guidance=decided.suggestion) if decided.stops else None
        return found

    def _decided(self, moment: Redecided) -> RegulatorDecided:
        recorded, thread_id = moment.recorded, moment.recorded.where.thread_id
        if moment.begins_task:
            self.held.pop(thread_id, None)
        held = self.held.get(thread_id) if recorded.at == "turn_start" else None
        decision = moment.decision
        own = decision.suggestion if isinstance(decision, decisions.CircuitBreak) else None
        now = replace(
            recorded,
            decision=freeze(decisions.to_dict(decision)) if held is None else held.decision,
            suggestion=own if held is None else held.suggestion,
            confidence=moment.confidence,
            tokens_out=moment.tokens_out,
            cost_cap=self._cap(recorded),
            stops=moment.stops,
            thresholds=self.thresholds if self.is_new else recorded.thresholds,
        )
        if own is not None and held is None:
            self.held[thread_id] = now
        is_other = now.decision != recorded.decision or now.stops != recorded.stops
        return replace(now, enforced=False) if is_other else now

    def _cap(self, recorded: RegulatorDecided) -> int | None:
        numbers: Any = None if self.is_new else recorded.thresholds
        known = self.caps.get(id(numbers))
        if known is None or known[0] is not numbers:
            settings = self.tape.template.settings
            settings = settings if numbers is None else as_recorded(settings, numbers)
            known = self.caps[id(numbers)] = numbers, Regulator(Person("cap"), settings).cost_cap_tokens()
        return known[1]

    def _behind(self, seq: int, found: dict[int, Any]) -> RegulatorDecided | None:
        """Return the decision of the regulator that a deny of its layer carries out."""
        event: Any = self.events[seq]
        for at in range(seq - 1, -1, -1):
            before = self.events[at]
            if isinstance(before, ToolCalled):
                return None
            if isinstance(before, RegulatorDecided) and before.layer_id == event.layer_id:
                return found.get(at)
        return None
