"""The states of layers in a run: each write with its author, and the states handed to children."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from noetic_nb.events import ChildEnded, ChildStarted, LayersDropped, LayerStateChanged, RunEvent, ViewAssembled, Where

_NO_STATE: Final = object()


@dataclass(slots=True, eq=False)
class Write:
    """One write of a state; `last` is the previous write in the same execution, None for the first."""

    at: int  # index among the writes of its track
    event: LayerStateChanged
    last: Write | None
    changed: bool  # whether the state differs from before; the first recorded write counts as a change
    counts: tuple[int, int, int] | None = field(default=None, repr=False)
    """The numbers of added, removed and changed values, computed on demand."""

    @property
    def is_child(self) -> bool:
        """Whether a child wrote its own state."""
        return self.event.where.depth > 0


@dataclass(slots=True, eq=False)
class Flow:
    """The state of a layer that was handed to a child, and the outcome."""

    layer_id: str
    started: ChildStarted
    given: Any  # `Flow.NOTHING` if the layer handed over no state
    dropped: bool = False  # whether the step removed the layer from the child
    ended: ChildEnded | None = None
    own: LayerStateChanged | None = None  # the last state that the child wrote for itself

    NOTHING = _NO_STATE


@dataclass(slots=True, eq=False)
class Track:
    """One layer in one thread."""

    at: int
    layer_id: str
    thread_id: str
    writes: list[Write] = field(default_factory=list)
    changes: list[Write] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    newest: Write | None = None  # the last write that was not by a child
    of_children: dict[str, Write] = field(default_factory=dict)

    def at_end_of(self, turn: int) -> Write | None:
        """Return the last write before the end of a turn that was not by a child; None if none is recorded."""
        write = self.newest
        while write is not None and write.event.where.turn > turn:
            write = write.last
        return write


class StateIndex:
    """The tracks of a run, in order; `shows` tells whether the events of an execution are shown or only read for context."""

    reads: ClassVar = frozenset({ChildEnded, ChildStarted, LayersDropped, LayerStateChanged, ViewAssembled})
    """The event types that it reads."""

    def __init__(self, shows: Callable[[Where], bool] = lambda _where: True) -> None:
        self.tracks: list[Track] = []
        self._shows = shows
        self._of_thread: defaultdict[str, list[Track]] = defaultdict(list)
        self._by: dict[tuple[str, str], Track] = {}
        self.turn = -1
        """The turn of the newest event about a state."""
        self._children: dict[str, ChildStarted] = {}
        self._flows: dict[tuple[str, str], Flow] = {}
        self._dropped: dict[str, frozenset[str]] = {}

    def track(self, layer_id: str, thread_id: str) -> Track:
        key = (layer_id, thread_id)
        found = self._by.get(key)
        if found is None:
            found = self._by[key] = Track(len(self.tracks), layer_id, thread_id)
            self.tracks.append(found)
            self._of_thread[thread_id].append(found)
        return found

    def take(self, event: RunEvent, _seq: int | None = None, _call: int | None = None) -> Track | None:
        """Read one event; return its track (the first of several), or None if it does not concern a state."""
        track = self._read(event)
        if track is not None:
            self.turn = event.where.turn
        return track

    def _read(self, event: RunEvent) -> Track | None:
        match event:
            case LayerStateChanged():
                return self._write(event)
            case ViewAssembled():
                before = len(self.tracks)
                known = [self.track(part.layer_id, event.where.thread_id) for part in event.layers]
                return next((track for track in known if track.at >= before), None)
            case LayersDropped():
                self._dropped[event.where.execution_id] = frozenset(event.layer_ids)
                if (started := self._children.get(event.where.execution_id)) is not None:
                    return self._given(started)
            case ChildStarted():
                self._children[event.where.execution_id] = event
                return self._given(event)
            case ChildEnded():
                return self._came_back(event)
        return None

    def _write(self, event: LayerStateChanged) -> Track:
        where = event.where
        track = self.track(event.layer_id, where.thread_id)
        last = track.of_children.get(where.execution_id) if where.depth else track.newest
        changed = last is None or last.event.state != event.state
        write = Write(len(track.writes), event, last, changed)
        if self._shows(where):  # otherwise only keep it as the previous state
            track.writes.append(write)
            if changed:
                track.changes.append(write)
        if not where.depth:
            track.newest = write
        else:
            track.of_children[where.execution_id] = write
            if (flow := self._flows.get((event.layer_id, where.execution_id))) is not None:
                flow.own = event
        return track

    def _given(self, event: ChildStarted) -> Track | None:
        where = event.where
        dropped = self._dropped.get(where.execution_id, frozenset())
        # A parent's layer that is neither handed nor dropped gave the child nothing; show that as well.
        known = [track.layer_id for track in self._of_thread[where.thread_id]]
        first = None
        for layer_id in dict.fromkeys([*event.handed, *dropped, *known]):
            track = self.track(layer_id, where.thread_id)
            key = (layer_id, where.execution_id)
            flow = self._flows.get(key)
            if flow is None:
                flow = self._flows[key] = Flow(layer_id, event, event.handed.get(layer_id, Flow.NOTHING))
                if self._shows(where):
                    track.flows.append(flow)
                if (own := track.of_children.get(where.execution_id)) is not None:
                    flow.own = own.event
            flow.dropped = layer_id in dropped
            first = first or track
        return first

    def _came_back(self, event: ChildEnded) -> Track | None:
        started = self._children.pop(event.where.execution_id, None)
        self._dropped.pop(event.where.execution_id, None)
        first = None
        for track in self._of_thread[event.where.thread_id] if started is not None else ():
            track.of_children.pop(event.where.execution_id, None)
            flow = self._flows.pop((track.layer_id, event.where.execution_id), None)
            if flow is not None:
                flow.ended = event
                first = first or track
        return first
