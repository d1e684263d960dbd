"""The report of a replay: the equal parts, the differences, and the horizon.

A recording has the answers to the requests that were sent. If the model or a tool would have received other input, or a
turn would have been stopped, the recorded answer is unusable, and so is the rest of the thread and of threads that
share a memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from noetic_nb import events as ev
from noetic_nb.items import Item, item_text
from noetic_nb.runs import Run
from noetic_nb.runs._labelled import with_labels_of
from noetic_nb.runs._run import KnownUntil, known_events, run_of_settled, said_of
from noetic_nb.runs._turns import TurnSummary


class Kept:
    """Counts by part and reason, with the first positions in the run."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], list[int | None]] = {}

    def add(self, what: str, why: str, seq: int | None = None) -> None:
        """Record a part that stays equal."""
        self._places.setdefault((what, why), []).append(seq)

    def places(self, *whats: str) -> list[int | None]:
        """Return the positions where parts stay equal; None for parts that are equal everywhere."""
        return [place for (what, _), places in self._places.items() if what in whats for place in places]

    def copy(self) -> Kept:
        """Return a copy that further counts can be added to."""
        other = Kept()
        other._places = {key: list(places) for key, places in self._places.items()}
        return other

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per reason, as JSON data."""
        return [
            {"what": what, "why": why, "count": len(places), "first": places[0]}
            for (what, why), places in self._places.items()
        ]


def note_counts(run: Run, again: Run, kept: Kept) -> None:
    """Record requests whose tokens were counted with another tokenizer than those of the run that ran again."""
    before, after = ({event.tokenizer for event in each.select(ev.RequestPrepared)} for each in (run, again))
    for name in sorted(before - after) if after else ():
        kept.add("tokens", f"counted with {name!r} in the recorded run, and not here: pass tokenizer=")


_RAN = frozenset({"ok", "error", "invalid_result"})


def sent_tokens(view: ev.ViewAssembled) -> int:
    return view.system + view.tools + view.framing + sum([layer.used for layer in view.layers]) + view.history


def tokens_of(turn: TurnSummary) -> int | None:
    """Return a turn's input and output tokens; None if they are unknown."""
    if turn.input_tokens is None or turn.output_tokens is None:
        return None
    return turn.input_tokens + turn.output_tokens


def drops_of(view: ev.ViewAssembled) -> int:
    """Return the number of items left out of a request; the latest user message is always sent."""
    stretches = sum([stop - start for start, stop, _ in view.hidden])
    # Items before the window are listed without individual outcomes.
    left = view.window[0] - len([at for at in view.kept if at < view.window[0]])
    named = [fate for fate in view.fates if fate.reason != "forced"]
    below = sum([1 for fate in named if fate.origin == "history" and fate.position < view.window[0]])
    return len(named) + stretches + max(0, left - below)


def costs_of(events: Iterable[ev.RunEvent]) -> float | None:
    """Return the cost of the model calls in US dollars; None if a price is unknown."""
    costs = [event.cost for event in events if isinstance(event, ev.ModelCalled) and event.status == "ok"]
    return None if any(cost is None for cost in costs) else sum([cost or 0.0 for cost in costs])


def summary(before: Run, after: Run, *, views_changed: bool) -> dict[str, Any]:
    """Return the difference as JSON data; None for unknown numbers, such as the cost of changed requests."""
    old, new = tuple(before.events), tuple(after.events)
    return {
        name: {"before": count(old), "after": None if name == "cost" and views_changed else count(new)}
        for name, count in _COUNTED.items()
    }


def note_known(run: Run, points: Mapping[str, KnownUntil]) -> None:
    """Record the horizon of a replayed run, and the counts up to it as ``after_known`` in its summary."""
    about = run.meta["replay"]
    about["known_until"] = {thread_id: point._asdict() for thread_id, point in points.items()}
    about["known"] = said_of(points)
    known = known_events(tuple(run.events), points) if points else ()
    for name, count in _COUNTED.items():
        if name in about:
            about[name]["after_known"] = count(known) if points else about[name]["after"]


def known_part(run: Run) -> Run:
    """Return the known part of a replayed run with its counts; the run itself if it is known to its end."""
    points = run.known_until
    if not points:
        return run
    about = {
        name: {**part, "after": part["after_known"]} if name in _COUNTED and "after_known" in part else part
        for name, part in run.meta["replay"].items()
    }
    meta = {**run.meta, "replay": {**about, "known_until": {}}}
    return with_labels_of(run_of_settled(run.run_id, meta, list(known_events(run.events, points))), run)


def actions_of(events: Iterable[ev.RunEvent]) -> dict[str, int]:
    """Return the number of rule decisions by action."""
    return dict(sorted(Counter(event.action for event in events if isinstance(event, ev.SteeringDecided)).items()))


def kinds_of(events: Iterable[ev.RunEvent]) -> dict[str, int]:
    """Return the number of regulator decisions by kind, and how many of them stopped a turn."""
    decided = [event for event in events if isinstance(event, ev.RegulatorDecided)]
    kinds = Counter(str(event.decision.get("kind")) for event in decided)
    return {**dict(sorted(kinds.items())), "stops": sum([event.stops for event in decided])}


def _calls(events: Iterable[ev.RunEvent]) -> dict[str, int]:
    model = tool = 0
    for event in events:
        model += isinstance(event, ev.ModelCalled)
        tool += isinstance(event, ev.ToolCalled) and event.status in _RAN
    return {"model": model, "tool": tool}


def _sum(events: Iterable[ev.RunEvent], number: Any) -> int | None:
    views = [event for event in events if isinstance(event, ev.ViewAssembled)]
    return sum([number(view) for view in views]) if views else None


_COUNTED: Final[Mapping[str, Callable[[Sequence[ev.RunEvent]], Any]]] = {
    "decisions": actions_of,
    "regulator": kinds_of,
    "calls": _calls,
    "tokens": lambda events: _sum(events, sent_tokens),
    "drops": lambda events: _sum(events, drops_of),
    "cost": costs_of,
}
_DECISIONS: Final = (ev.SteeringDecided, ev.RegulatorDecided, ev.RegulatorSaw, ev.QualityGiven)
# Diagnostics, which do not affect the run.
_NOTES: Final = (ev.MemoryTraceSpan, ev.LayerStateChanged, ev.WarningRaised, ev.ErrorRaised, ev.ToolProgress)
_NOT_SHARED: Final = frozenset({"execution", "thread"})


def contents(items: Iterable[Item | None], instructions: str | None) -> tuple[Any, ...]:
    """Return the contents of a request without ids, which differ between two runs of one agent."""
    said: list[Any] = [instructions or ""]
    for item in items:
        if item is not None:
            said.append((item["type"], item.get("role"), item.get("name"), item.get("arguments"), item_text(item)))
    return tuple(said)


@dataclass(frozen=True)
class Unknown:
    """The unknown events of a replay (`at`), and the changed requests whose answers are unknown (`after`)."""

    at: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()
    is_given: bool = False
    """Whether rules or a regulator were given: they are enforced, even if the recorded ones only observed."""
    scope: str = "thread"
    """The widest scope of the memories involved."""


def horizon(run: Run, events: Sequence[ev.RunEvent], unknown: Unknown) -> dict[str, KnownUntil]:
    """Return, by thread, the first unknown point of a run replayed over its recording into other `events`."""
    walk = _Walk(run, events, unknown)
    walk.go()
    if unknown.scope not in _NOT_SHARED:
        walk.share(unknown.scope)
    return walk.points


def horizon_of_tape(run: Run, again: Run, *, stopped: str | None, approvals: Sequence[bool]) -> dict[str, KnownUntil]:
    """Return, by thread, the first unknown point of a run that was really run `again` on its tape."""
    events = tuple(again.events)
    walk = _Walk(run, events, Unknown())
    answers = iter(approvals)
    for place, event in enumerate(events):
        if isinstance(event, ev.SteeringDecided) and event.layer_id == "approval" and not next(answers, True):
            walk._end(event.where.thread_id, place)
            walk.share("global")
            break
        if stopped is not None and isinstance(event, ev.ModelCalled | ev.ToolCalled) and stopped in (event.error or ""):
            walk._end(event.where.thread_id, place)
            break
    if stopped is not None:
        begun = {(turn.where.thread_id, turn.where.turn) for turn in again.turns}
        # The user's grades and corrections after the stop are left out as well.
        for thread_id, number in _said(run.events) - _said(events):
            walk.points.setdefault(thread_id, KnownUntil(number, len(events)))
        for turn in run.turns:
            if (turn.where.thread_id, turn.where.turn) not in begun:
                walk.points.setdefault(turn.where.thread_id, KnownUntil(turn.where.turn, len(events)))
    return walk.points


def _said(events: Iterable[ev.RunEvent]) -> Counter[tuple[str, int]]:
    """Count the user's grades and corrections by thread and turn."""
    return Counter(
        [
            (event.where.thread_id, event.where.turn)
            for event in events
            if (isinstance(event, ev.QualityGiven) and event.source != "grader")
            or (isinstance(event, ev.RegulatorSaw) and event.event.get("kind") == "user_correction")
        ]
    )


@dataclass
class _Walk:
    run: Run
    events: Sequence[ev.RunEvent]
    unknown: Unknown
    points: dict[str, KnownUntil] = field(default_factory=dict)
    # Threads whose next event is unknown, each with the layer whose own denial carries out the decision, if any.
    _next: dict[str, str | None] = field(default_factory=dict)
    # Threads whose next model answer is unknown.
    _answer: set[str] = field(default_factory=set)

    def go(self) -> None:
        """Compare both runs side by side."""
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
                while i < stop and old[i] is new[j]:  # the usual case
                    i, j = i + 1, j + 1
                if j == len(new):
                    break
            if i in ends:
                self._end(ends[i], j)
            was = old[i] if i < len(old) else None
            if was is not None and was is not new[j]:
                if isinstance(was, _DECISIONS) or isinstance(new[j], _DECISIONS):
                    first, start = i, j
                    i, j = self._decided(old, i, j)
                    for place in range(first, i):
                        if place in ends or place in at:
                            ended = ends.get(place, old[place].where.thread_id)
                            self._end(ended, max(start, min(start + place - first, j - 1)))
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

    def _pass(self, event: ev.RunEvent, place: int) -> None:
        """End the known part at an event that makes the rest unknown."""
        thread_id = event.where.thread_id
        if thread_id in self._next and not isinstance(event, _NOTES):
            layer_id = self._next[thread_id]
            if not (layer_id is not None and isinstance(event, ev.SteeringDecided) and event.layer_id == layer_id):
                self._end(thread_id, place)
        if thread_id in self._answer and isinstance(event, ev.ModelCalled):
            self._end(thread_id, place)

    def _decided(self, old: Sequence[ev.RunEvent], i: int, j: int) -> tuple[int, int]:
        """Compare the decisions between two other events."""
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
            elif (effect is not None or (due and _is_about(event, due[0]))) and thread_id not in self.points:
                self._next.setdefault(thread_id, event.layer_id if isinstance(event, ev.RegulatorDecided) else None)
        for thread_id, due in effects.items():
            if due and thread_id not in self.points:
                self._next.setdefault(thread_id, None)
        return i_end, j_end

    def share(self, scope: str) -> None:
        """End the threads that share a memory with an ended one, at their next event."""
        owners: dict[str, set[str]] = {}
        for event in self.run.select(ev.TurnStarted):
            owner = "" if scope == "global" else event.resource_id or event.where.thread_id
            owners.setdefault(event.where.thread_id, set()).add(owner)
        first: dict[str, float] = {}
        for thread_id, point in self.points.items():
            for owner in owners.get(thread_id, {thread_id}):
                first[owner] = min(point.seq, first.get(owner, inf))
        if not first:
            return
        since = {thread_id: min([first.get(owner, inf) for owner in known]) for thread_id, known in owners.items()}
        for place in range(int(min(first.values())), len(self.events)):
            event = self.events[place]
            thread_id = event.where.thread_id
            if place <= since.get(thread_id, inf) or isinstance(event, _NOTES):
                continue
            if thread_id not in self.points or self.points[thread_id].seq > place:
                self.points[thread_id] = KnownUntil(event.where.turn, place)


def _decisions_end(events: Sequence[ev.RunEvent], place: int) -> int:
    while place < len(events) and isinstance(events[place], _DECISIONS):
        place += 1
    return place


def _effect(event: ev.RunEvent) -> Any:
    """Return a decision's effect on the input of the model and tools, or None."""
    match event:
        case ev.SteeringDecided(outcome="late" | "late_fault") | ev.SteeringDecided(action="allow"):
            return None
        case ev.SteeringDecided():
            about = event.hook, event.tool_name, event.args, event.layer_id
            return *about, event.action, event.guidance, event.rule_ids
        case ev.RegulatorDecided(stops=True):
            return event.at, event.suggestion
        case ev.RegulatorDecided() if event.decision.get("kind") == "procedural_warning":
            return event.at, event.decision
    return None


def _is_about(event: ev.RunEvent, effect: Any) -> bool:
    """Tell whether a decision is about the same call or moment as one of the same layer with some effect."""
    if isinstance(event, ev.SteeringDecided):
        return bool(effect[:4] == (event.hook, event.tool_name, event.args, event.layer_id))
    return isinstance(event, ev.RegulatorDecided) and bool(effect[0] == event.at)
