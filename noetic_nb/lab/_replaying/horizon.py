"""How far a replayed run is known: up to the first point at which the changed agent would have gone another way.

A recording has the answers to what was sent. Where the model or a tool would have received something else, or a turn would
have been stopped, its answers are to another question; so is all that follows in the thread, and in threads that share a memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from noetic_nb.events import (
    ErrorRaised,
    LayerStateChanged,
    MemoryTraceSpan,
    ModelCalled,
    QualityGiven,
    RegulatorDecided,
    RegulatorSaw,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    ToolProgress,
    TurnStarted,
    WarningRaised,
)
from noetic_nb.runs import Run
from noetic_nb.runs._known_until import KnownUntil

__all__ = ["Unknown", "horizon", "horizon_of_tape"]

_DECISIONS: Final = (SteeringDecided, RegulatorDecided, RegulatorSaw, QualityGiven)
# They are about what happens, and are nothing that happens.
_NOTES: Final = (MemoryTraceSpan, LayerStateChanged, WarningRaised, ErrorRaised, ToolProgress)
_NOT_SHARED: Final = frozenset({"execution", "thread"})


@dataclass(frozen=True)
class Unknown:
    """The parts of a replay that are known to differ from the recording, or not known, by places in the recorded run.

    Attributes
    ----------
    at : frozenset of int
        Events that are not known.
    after : frozenset of int
        Requests that are others than they were, and known: their answers are not.
    is_given : bool
        Whether rules or a regulator were given: they are enforced, also where the recorded ones only watched.
    scope : str
        The widest scope of memory in play.
    """

    at: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()
    is_given: bool = False
    scope: str = "thread"


def horizon(run: Run, events: Sequence[RunEvent], unknown: Unknown) -> dict[str, KnownUntil]:
    """Return, by thread, the first point that is not known of a run replayed over its recording.

    Parameters
    ----------
    run : Run
        What was recorded.
    events : sequence of RunEvent
        Those of the replay: the recorded ones in their order, with other decisions, plans and an earlier end.
    unknown : Unknown
        What is not to be seen in the events.
    """
    walk = _Walk(run, events, unknown)
    walk.go()
    if unknown.scope not in _NOT_SHARED:
        walk.share(unknown.scope)
    return walk.points


def horizon_of_tape(run: Run, again: Run, *, stopped: str | None, approvals: Sequence[bool]) -> dict[str, KnownUntil]:
    """Return, by thread, the first point that is not known of a run that was really run again on its tape.

    Parameters
    ----------
    run, again : Run
        What was recorded, and what it became.
    stopped : str, optional
        Why it ended early.
    approvals : sequence of bool
        For each approval, whether somebody had been asked the same in the recorded run.
    """
    events = tuple(again.events)
    walk = _Walk(run, events, Unknown())
    answers = iter(approvals)
    for place, event in enumerate(events):
        if isinstance(event, SteeringDecided) and event.layer_id == "approval" and not next(answers, True):
            walk._end(event.where.thread_id, place)
            walk.share("global")
            break
        if stopped is not None and isinstance(event, ModelCalled | ToolCalled) and stopped in (event.error or ""):
            walk._end(event.where.thread_id, place)
            break
    if stopped is not None:
        begun = {(turn.where.thread_id, turn.where.turn) for turn in again.turns}
        for turn in run.turns:
            if (turn.where.thread_id, turn.where.turn) not in begun:
                walk.points.setdefault(turn.where.thread_id, KnownUntil(turn.where.turn, len(events)))
    return walk.points


@dataclass
class _Walk:
    run: Run
    events: Sequence[RunEvent]
    unknown: Unknown
    points: dict[str, KnownUntil] = field(default_factory=dict)
    # Threads whose next event is not known, each with the layer whose own denial carries the decision out, if any.
    _next: dict[str, str | None] = field(default_factory=dict)
    # Threads whose next answer of a model is not known.
    _answer: set[str] = field(default_factory=set)

    def go(self) -> None:
        """Read both runs side by side."""
        old, new = tuple(self.run.events), self.events
        ends = {point.seq: thread_id for thread_id, point in self.run.known_until.items()}
        at, after = self.unknown.at, self.unknown.after
        marks = [*sorted({*at, *after, *ends}), len(old) + len(new)]
        mark = i = j = 0
        while j < len(new):
            while marks[mark] < i:
                mark += 1
            if not self._next and not self._answer:
                stop = min(marks[mark], len(old), i + len(new) - j)
                while i < stop and old[i] is new[j]:  # as most events are
                    i, j = i + 1, j + 1
                if j == len(new):
                    break
            if i in ends:
                self._end(ends[i], j)
            was = old[i] if i < len(old) else None
            if was is not None and was is not new[j]:
                if isinstance(was, _DECISIONS) or isinstance(new[j], _DECISIONS):
                    i, j = self._decided(old, i, j)
                    continue
                if was.where.thread_id in self.points and type(was) is not type(new[j]):  # the thread was cut
                    i += 1
                    continue
            self._pass(new[j], j)
            thread_id = new[j].where.thread_id
            if i in at:
                self._end(thread_id, j)
            if i in after:
                self._answer.add(thread_id)
            i, j = i + 1, j + 1

    def _end(self, thread_id: str, place: int) -> None:
        if thread_id not in self.points:
            event = self.events[place] if place < len(self.events) else self.events[-1]
            self.points[thread_id] = KnownUntil(event.where.turn, place)
        self._next.pop(thread_id, None)
        self._answer.discard(thread_id)

    def _pass(self, event: RunEvent, place: int) -> None:
        """End the known part at an event that makes the rest unknown."""
        thread_id = event.where.thread_id
        if thread_id in self._next and not isinstance(event, _NOTES):
            layer_id = self._next[thread_id]
            if not (layer_id is not None and isinstance(event, SteeringDecided) and event.layer_id == layer_id):
                self._end(thread_id, place)
        if thread_id in self._answer and isinstance(event, ModelCalled):
            self._end(thread_id, place)

    def _decided(self, old: Sequence[RunEvent], i: int, j: int) -> tuple[int, int]:
        """Compare the decisions between two events that are no decisions."""
        new = self.events
        i_end, j_end = _decisions_end(old, i), _decisions_end(new, j)
        effects: dict[str, list[Any]] = {}
        known = set()
        for event in old[i:i_end]:
            effect = _effect(event) if getattr(event, "enforced", True) else None
            known.add(id(event))
            if effect is not None:
                effects.setdefault(event.where.thread_id, []).append(effect)
        same = [event for event in old[i:i_end] if not getattr(event, "enforced", True)]
        for place in range(j, j_end):
            event = new[place]
            thread_id = event.where.thread_id
            self._pass(event, place)
            effect = None if not self.unknown.is_given and event in same else _effect(event)
            due = effects.get(thread_id, [])
            if effect is not None and due and due[0] == effect:
                due.pop(0)
            elif effect is not None or (due and _is_about(event, due[0])):
                self._lose(event)
        for thread_id, due in effects.items():
            if due and thread_id not in self.points:
                self._next.setdefault(thread_id, None)
        return i_end, j_end

    def _lose(self, event: RunEvent) -> None:
        if event.where.thread_id not in self.points:
            layer_id = event.layer_id if isinstance(event, RegulatorDecided) else None
            self._next.setdefault(event.where.thread_id, layer_id)

    def share(self, scope: str) -> None:
        """End the threads that share a memory with one that has ended, at their next event."""
        owners = {
            event.where.thread_id: "" if scope == "global" else event.resource_id or event.where.thread_id
            for event in self.run.events
            if isinstance(event, TurnStarted)
        }
        first: dict[str, float] = {}
        for thread_id, point in self.points.items():
            owner = owners.get(thread_id, thread_id)
            first[owner] = min(point.seq, first.get(owner, inf))
        if not first:
            return
        for place in range(int(min(first.values())), len(self.events)):
            event = self.events[place]
            thread_id = event.where.thread_id
            if place <= first.get(owners.get(thread_id, thread_id), inf) or isinstance(event, _NOTES):
                continue
            if thread_id not in self.points or self.points[thread_id].seq > place:
                self.points[thread_id] = KnownUntil(event.where.turn, place)


def _decisions_end(events: Sequence[RunEvent], place: int) -> int:
    while place < len(events) and isinstance(events[place], _DECISIONS):
        place += 1
    return place


def _effect(event: RunEvent) -> Any:
    """Return the effect of a decision on the input of the model and tools, None where there is none."""
    match event:
        case SteeringDecided(outcome="late" | "late_fault") | SteeringDecided(action="allow"):
            return None
        case SteeringDecided():
            return event.hook, event.tool_name, event.args, event.action, event.guidance, event.rule_ids
        case RegulatorDecided(stops=True):
            return event.at, event.suggestion
        case RegulatorDecided() if event.decision.get("kind") == "procedural_warning":
            return event.at, event.decision
    return None


def _is_about(event: RunEvent, effect: Any) -> bool:
    """Tell whether a decision is about the same call or moment as one of some effect."""
    if isinstance(event, SteeringDecided):
        return bool(effect[:3] == (event.hook, event.tool_name, event.args))
    return isinstance(event, RegulatorDecided) and bool(effect[0] == event.at)
