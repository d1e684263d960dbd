"""How the time of recorded turns was spent: models, tools, hooks, rules, planning, storage, people, and the rest.

Each moment of a turn belongs to one part, so the parts add up to the turn. Among concurrent activities, a model call
has priority, then waiting for a person, then hooks and planning, then tools; equal ones share the time. Unrecorded
parts are NaN, never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import nan
from typing import Any, Final, NamedTuple, TypeAlias

from noetic_nb import events as ev
from noetic_nb.runs._events.run_log import placed

PARTS: Final = ("model", "tool", "person", "hook", "rule", "planning", "storage", "own", "unsplit")
"""The parts of a turn. ``own`` is the library's overhead: everything outside the other parts; if a run lacks some of
these parts, the rest is ``unsplit`` instead."""

# Priority among concurrent activities: higher wins. A tool encloses its children, a hook the calls of its judges.
_RANK: Final = {"model": 3, "person": 2, "hook": 1, "planning": 1, "tool": 0}

_Part: TypeAlias = tuple[str, str]  # the part, and the name of a model, tool, layer or rule


class _Stretch(NamedTuple):
    start: float
    end: float
    part: _Part
    rules: tuple[tuple[str, float], ...] = ()  # for a hook that evaluated rules, the time of each rule


class TurnParts(NamedTuple):
    """The parts of one turn in milliseconds, NaN where unknown; the known ones add up to `duration_ms`."""

    thread_id: str
    turn: int
    duration_ms: float | None
    ms: dict[_Part, float]
    counts: dict[_Part, int]


def _shares(stretches: Iterable[_Stretch], start: float, end: float) -> dict[int, float]:
    """Return how much of the time between two moments belongs to each stretch, by index."""
    all_of_them = list(stretches)
    bounds: list[tuple[float, int, int]] = []
    for at, stretch in enumerate(all_of_them):
        begin, stop = max(start, stretch.start), min(end, stretch.end)
        if begin < stop:
            bounds += [(begin, 1, at), (stop, 0, at)]
    found: dict[int, float] = defaultdict(float)
    running: list[int] = []
    before = start
    for moment, begins, at in sorted(bounds):
        if running and moment > before:
            highest = max(_RANK[all_of_them[one].part[0]] for one in running)
            first = [one for one in running if _RANK[all_of_them[one].part[0]] == highest]
            for one in first:
                found[one] += (moment - before) / len(first)
        before = moment
        if begins:
            running.append(at)
        else:
            running.remove(at)
    return found


def _rules_of(stretch: _Stretch, share: float) -> dict[str, float]:
    """Return the share of each rule in a hook's own time: time waiting for a judge belongs to the model."""
    took = dict.fromkeys([rule_id for rule_id, _ in stretch.rules], 0.0)
    for rule_id, ms in stretch.rules:
        took[rule_id] += ms
    elsewhere = max(stretch.end - stretch.start - share, sum(took.values()) - share, 0.0)
    for rule_id in sorted(took, key=took.__getitem__, reverse=True):
        less = min(elsewhere, took[rule_id])
        took[rule_id] -= less
        elsewhere -= less
    return took


class _Turn:
    """The collected times of one turn."""

    def __init__(self) -> None:
        self.stretches: list[_Stretch] = []
        self.count: dict[_Part, int] = defaultdict(int)
        self.unknown: set[_Part] = set()
        self.completed: ev.TurnCompleted | None = None

    def add(self, part: str, name: str, event: Any, duration_ms: float | None) -> None:
        key = part, name
        self.count[key] += 1
        if duration_ms is None:
            self.unknown.add(key)
        else:
            self.stretches.append(_Stretch(event.t_ms - duration_ms, event.t_ms, key))

    def take(self, event: ev.RunEvent) -> None:
        match event:
            case ev.ModelCalled():
                self.add("model", event.model, event, event.duration_ms)
            case ev.ToolCalled():
                self.add("tool", event.name, event, event.duration_ms)
            case ev.MemoryTraceSpan() if event.status != "skipped":
                self.add("hook", event.layer_id, event, event.duration_ms)
            case ev.SteeringDecided() if event.layer_id == "approval":
                self.add("person", "approval", event, event.duration_ms)
            case ev.SteeringDecided():
                self._decided(event)
            case ev.ViewAssembled():
                self.add("planning", "", event, event.duration_ms)
            case ev.TurnCompleted():
                self.completed = event

    def _decided(self, event: ev.SteeringDecided) -> None:
        for rule_id, _ in event.rules_ms:
            self.count["rule", rule_id] += 1
        for rule_id in event.rule_ids if not event.rules_ms else ():
            self.count["rule", rule_id] += 1
            self.unknown.add(("rule", rule_id))
        # The hook that decided was reported just before.
        if self.stretches and event.rules_ms and self.stretches[-1].part == ("hook", event.layer_id):
            self.stretches[-1] = self.stretches[-1]._replace(rules=event.rules_ms)

    def parts(self, *, is_timed: bool) -> TurnParts | None:
        """Return the parts of the turn; None if it has not ended."""
        done = self.completed
        if done is None:
            return None
        thread_id, turn, duration = done.where.thread_id, done.where.turn, done.duration_ms
        if ("planning", "") not in self.count and any(part == "model" for part, _ in self.count):
            self.unknown.add(("planning", ""))
        if done.storage_ms is None:
            self.unknown.add(("storage", ""))
        ms = dict.fromkeys([*self.count, ("planning", ""), ("storage", ""), ("own", "")], 0.0)
        if not is_timed or duration is None:
            return TurnParts(thread_id, turn, None, dict.fromkeys(ms, nan), dict(self.count))
        shares = _shares(self.stretches, done.t_ms - duration, done.t_ms)
        for at, share in shares.items():
            stretch = self.stretches[at]
            rules = _rules_of(stretch, share) if stretch.rules else {}
            for rule_id, took in rules.items():
                ms["rule", rule_id] += took
            ms[stretch.part] += share - sum(rules.values())
        left = max(0.0, duration - sum(shares.values()))
        if done.storage_ms is not None:
            ms["storage", ""] = min(done.storage_ms, left)
            left -= ms["storage", ""]
        # The time of unmeasured rules is part of their layer's time.
        if all(part == "rule" for part, _ in self.unknown):
            ms["own", ""] = left
        else:
            ms["own", ""], ms["unsplit", ""] = nan, left
        for key in self.unknown:
            known = ms.get(key, 0.0)
            if known and key[0] != "rule":  # only some calls of one model have a time
                ms["unsplit", ""] += known
            ms[key] = nan
        return TurnParts(thread_id, turn, duration, ms, dict(self.count))


def parts_of_turns(run: Any, *, is_timed: bool = True, only: tuple[str, int] | None = None) -> list[TurnParts]:
    """Return the parts of the ended turns, children included, or only of the turn `only` (thread and number)."""
    turns: dict[tuple[str, int], _Turn] = {}
    for _, event in placed(run, *_READ):
        where = event.where
        if where.turn > 0 and only in (None, (where.thread_id, where.turn)):
            turns.setdefault((where.thread_id, where.turn), _Turn()).take(event)
    found = [turn.parts(is_timed=is_timed) for turn in turns.values()]
    return [parts for parts in found if parts is not None]


_READ: Final = frozenset(
    {ev.MemoryTraceSpan, ev.ModelCalled, ev.SteeringDecided, ev.ToolCalled, ev.TurnCompleted, ev.ViewAssembled}
)
