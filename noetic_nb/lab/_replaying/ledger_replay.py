"""The ledger that rules read as ``call.state`` in a replay: as it was recorded, or as other rules would have written it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from noetic_nb.events import ChildStarted, LayerStateChanged, RunEvent, SteeringDecided, TurnCompleted, TurnStarted
from noetic_nb.items import thaw
from noetic_nb.lab._recorded_calls import RecordedCall
from noetic_nb.memory import SteeringDecision
from noetic_nb.steering._layer import LAYER_ID
from noetic_nb.steering._ledger import decision_entry

__all__ = ["MAX_ENTRIES", "WrittenLedger", "owner_of", "recorded_states", "with_state"]

# What the layer keeps where nothing else is said.
MAX_ENTRIES: Final = 100
_POINTS: Final = frozenset({"before_tool_call", "after_model_call"})


def owner_of(event: TurnStarted, scope: str) -> str:
    """Return the owner of a layer's memory that outlives a turn.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> started = TurnStarted(Where("t1", "e1", 1), 0.0, "turn-1", 0, 1, "Hi", "ann")
    >>> owner_of(started, "thread"), owner_of(started, "resource"), owner_of(started, "global")
    ('t1', 'ann', '')
    """
    if scope == "global":
        return ""
    thread_id = event.where.thread_id
    return thread_id if scope == "thread" or event.resource_id is None else event.resource_id


def with_state(call: RecordedCall, state: Any) -> RecordedCall:
    """Return a call at which rules find this state, which they may write into."""
    params: Any = call.params
    return replace(call, params=params._replace(state=state))


def recorded_states(events: Sequence[RunEvent]) -> dict[int, Any]:
    """Return the state of steering as it was before each of its recorded decisions, by their places; each a copy of its own."""
    now: dict[tuple[str, str], Any] = {}
    before: dict[tuple[str, str], Any] = {}
    found: dict[int, Any] = {}
    for seq, event in enumerate(events):
        key = event.where.thread_id, event.where.execution_id
        match event:
            case LayerStateChanged(layer_id=layer_id) if layer_id == LAYER_ID:
                if event.hook in _POINTS:
                    before[key] = now.get(key)
                now[key] = event.state
            case SteeringDecided(layer_id=layer_id) if layer_id == LAYER_ID and before.get(key) is not None:
                found[seq] = thaw(before[key])
    return found


@dataclass(slots=True)
class WrittenLedger:
    """A ledger that is written while rules are evaluated, call by call, in the order of the run.

    Parameters
    ----------
    events : sequence of events
        Of the run: where turns and children begin and end.
    scope : str
        That of the layer.
    max_entries : int
        How many entries are kept.
    durations : mapping of int to float
        How long recorded evaluations took, milliseconds, by the place of their call.
    stay : set of int
        Places of decisions that stay as they were recorded.
    """

    events: Sequence[RunEvent]
    scope: str
    max_entries: int
    durations: Mapping[int, float] = field(default_factory=dict)
    stay: frozenset[int] = frozenset()
    _read: int = 0
    _entries: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    _owners: dict[tuple[str, str], str] = field(default_factory=dict)
    _left: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def given(self, call: RecordedCall) -> RecordedCall:
        """Return a call as rules see it."""
        while self._read < call.seq:
            self._take(self._read, self.events[self._read])
            self._read += 1
        return with_state(call, {"ledger": [{**entry} for entry in self._of(call)], "pendingAsync": []})

    def took(self, call: RecordedCall, decision: SteeringDecision) -> None:
        """Write an entry."""
        entry = decision_entry(call.params, decision, self.durations.get(call.seq, 0.0))
        self._write((call.where.thread_id, call.where.execution_id), entry)

    def _of(self, call: RecordedCall) -> list[dict[str, Any]]:
        return self._entries.get((call.where.thread_id, call.where.execution_id), [])

    def _write(self, key: tuple[str, str], entry: dict[str, Any]) -> None:
        entries = [*self._entries.get(key, ()), entry]
        self._entries[key] = entries[-self.max_entries :] if self.max_entries else []

    def _take(self, seq: int, event: RunEvent) -> None:
        key = event.where.thread_id, event.where.execution_id
        match event:
            case TurnStarted() if self.scope != "execution":
                self._owners[key] = owner_of(event, self.scope)
                self._entries[key] = self._left.get(self._owners[key], [])
            case SteeringDecided() if seq in self.stay:
                self._write(key, _entry(event))
            case ChildStarted():
                self._entries[key] = self._entries.get((key[0], event.parent_id), [])
            case TurnCompleted() if key in self._owners:
                outcome = {"kind": "custom", "timestamp": event.t_ms, "custom": {"outcome": event.outcome}}
                self._write(key, outcome)
                self._left[self._owners[key]] = self._entries[key]


def _entry(event: SteeringDecided) -> dict[str, Any]:
    """Return the entry of a recorded decision."""
    about = {"kind": "model_turn"}
    if event.tool_name is not None:
        about = {"kind": "tool_call", "toolName": event.tool_name, "toolArgs": thaw(event.args or {})}
    entry: dict[str, Any] = {"timestamp": event.t_ms, **about, "action": event.action, "durationMs": event.duration_ms}
    if event.guidance is not None:
        entry["guidance"] = event.guidance
    if event.rule_ids:
        entry |= {"ruleId": event.rule_ids[0], "ruleIds": list(event.rule_ids)}
    return entry
