"""About how large an event is, by the size of its JSON: what a bound of a run counts in.

Looked at for every event while a turn runs, so it is quick rather than exact: names and numbers count as so many bytes each, and
what may be of any length is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, get_type_hints

from noetic_nb.events import (
    BudgetsAllocated,
    ItemFate,
    ItemsAppended,
    LayerStateChanged,
    LayerTokens,
    MemoryTraceSpan,
    ModelCalled,
    OfferedTool,
    QualityGiven,
    RequestPrepared,
    RunEvent,
    SteeringDecided,
    StepEnded,
    StepStarted,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
    Where,
)
from noetic_nb.items import Item
from noetic_nb.items.item import MESSAGE_FRAMES, known_tokens
from noetic_nb.late_data import Later, held_by, written_state
from noetic_nb.late_events import ROW_LENGTHS, Place, Row, place_of
from noetic_nb.runs.events.row_stretches import RowStretch, RowStretches
from noetic_nb.tokens import UNITS_PER_TOKEN

__all__ = ["EventSizes"]

# What a record and one of its fields take beside their content, by the size of their JSON.
_RECORD_BYTES: Final = 48
_FIELD_BYTES: Final = 16
# Of more pairs than these the first stands for all: fates, times of rules.
_ALIKE: Final = 8
# Of each record the size of what has one always, and what gets the fields that have to be looked at.
_SHAPES: Final[dict[type[Any], tuple[int, Callable[[Any], tuple[Any, ...]]]]] = {}
_FIXED: Final = frozenset({int, float, bool, int | None, float | None, Where})
_SMALL: Final = frozenset({int, float, bool, type(None)})
# A message without its text: with an id as `SystemIds` makes them, and two quotes.
_MESSAGE_BYTES: Final = MESSAGE_FRAMES["developer"] + len("item_0123456789abcdef") + 2


# They hold names and numbers, and are many.
_FIXED_BYTES: Final[Mapping[type[Any], int]] = {
    StepStarted: 300, StepEnded: 360, BudgetsAllocated: 360, QualityGiven: 240, LayerTokens: 140, ItemFate: 120,
}  # fmt: skip


def _shape_of(cls: type[Any]) -> tuple[int, Callable[[Any], tuple[Any, ...]]]:
    hints = get_type_hints(cls)
    names = [each.name for each in fields(cls)]
    free = [name for name in names if hints[name] not in _FIXED]
    get: Callable[[Any], Any] = (
        attrgetter(*free) if len(free) > 1 else lambda record: [getattr(record, n) for n in free]
    )
    shape = _SHAPES[cls] = _RECORD_BYTES + _FIELD_BYTES * len(names), get
    return shape


def _size(value: Any) -> int:
    """Return about how large data is; looked at for every event, so it is quick rather than exact."""
    kind = type(value)
    if kind is str:
        return len(value)
    if kind in _SMALL:
        return 4
    if kind is Item and (tokens := known_tokens(value)) is not None:
        return UNITS_PER_TOKEN * tokens
    if isinstance(value, dict):
        size = _FIELD_BYTES * len(value)
        for inner in value.values():
            size += len(inner) if type(inner) is str else _size(inner)
        return size
    if kind is tuple or kind is list:
        if not value:
            return 0
        of = type(value[0])
        if of in _FIXED_BYTES:
            return len(value) * (4 + _FIXED_BYTES[of])
        if of is tuple and len(value) > _ALIKE:
            return len(value) * (4 + _size(value[0]))
        return 4 * len(value) + sum([_size(inner) for inner in value])
    if isinstance(value, str | int | float | tuple | list):  # of a class of its own, such as the input of a turn
        return len(value) if isinstance(value, str) else 4 if isinstance(value, int | float) else _size([*value])
    if kind in _FIXED_BYTES:
        return _FIXED_BYTES[kind]
    if kind is OfferedTool:
        return _tool_size(value)
    return _size_of_record(value)


def _size_of_record(value: Any) -> int:
    size, get = _SHAPES.get(type(value)) or _shape_of(type(value))
    for inner in get(value):
        of = type(inner)
        if of is str:
            size += len(inner)
        elif of not in _SMALL and inner:
            size += _size(inner)
    return size


# The same tools are offered at every turn. By identity, which stays a tool's own as long as it is here.
_TOOL_SIZES: Final[dict[int, tuple[OfferedTool, int]]] = {}
_MOST_TOOLS: Final = 512


def _tool_size(tool: OfferedTool) -> int:
    known = _TOOL_SIZES.get(id(tool))
    if known is None:
        if len(_TOOL_SIZES) >= _MOST_TOOLS:
            _TOOL_SIZES.clear()
        size = 4 * _FIELD_BYTES + len(tool.name) + len(tool.description) + _size(tool.parameters)
        known = _TOOL_SIZES[id(tool)] = tool, size
    return known[1]


def _size_of_items(items: Iterable[Item | str]) -> int:
    size = 0
    for item in items:
        if isinstance(item, str):  # all that a row has of a message
            size += _MESSAGE_BYTES + len(item)
            continue
        tokens = known_tokens(item)
        size += _size(item) if tokens is None else UNITS_PER_TOKEN * tokens
    return size


def _items(event: ItemsAppended) -> int:
    return 300 + _size_of_items(event.items)


def _model(event: ModelCalled) -> int:
    return _size_of_call(event.items, event.logprobs, event.error)


def _size_of_call(items: Iterable[Item], logprobs: Any, error: str | None) -> int:
    size = 520 + _size_of_items(items) + len(error or "")
    return size + _size(logprobs) if logprobs else size


def _tool(event: ToolCalled) -> int:
    return _size_of_tool(event.output, event.error, (event.args, event.raw_args))


def _size_of_tool(output: str, error: str | None, parts: tuple[Any, ...]) -> int:
    size = 520 + len(output) + len(error or "")
    for part in parts:
        if part:
            size += _size(part)
    return size


def _started(event: TurnStarted) -> int:
    return 320 + len(event.query)


def _completed(event: TurnCompleted) -> int:
    return 440 + len(event.text) + (_size(event.stopped) if event.stopped else 0)


def _decision(event: SteeringDecided) -> int:
    parts = event.args, event.rule_ids, event.faults, event.matched
    return _size_of_decision(event.rules_ms, event.guidance, parts)


def _size_of_decision(rules_ms: Any, guidance: str | None, parts: tuple[Any, ...]) -> int:
    size = 560 + 40 * len(rules_ms) + len(guidance or "")
    for part in parts:
        if part:
            size += _size(part)
    return size


def _view(event: ViewAssembled) -> int:
    parts = event.unsent, event.projection, event.appended, event.kept
    return _size_of_view(event.layers, event.fates, [item for _, item in event.layer_items], event.hidden, parts)


def _size_of_view(layers: Any, fates: Any, items: Any, hidden: Any, parts: tuple[Any, ...]) -> int:
    size = 700 + 140 * len(layers) + 120 * len(fates) + 12 * len(hidden) + 20 * len(items) + _size_of_items(items)
    for part in parts:
        if part:
            size += _size(part)
    return size


def _request(event: RequestPrepared) -> int:
    parts = event.tools, event.params, event.output_schema, event.counter
    return _size_of_request(event.limits, event.instructions, parts)


def _size_of_request(limits: Any, instructions: str, parts: tuple[Any, ...]) -> int:
    size = 600 + 60 * len(limits) + len(instructions)
    for part in parts:
        if part:
            size += _size(part)
    return size


_SIZES: Final[Mapping[type[Any], Callable[[Any], int]]] = {
    ItemsAppended: _items, SteeringDecided: _decision, ViewAssembled: _view,
    RequestPrepared: _request, ModelCalled: _model, ToolCalled: _tool, TurnStarted: _started, TurnCompleted: _completed,
}  # fmt: skip
_SPAN_BYTES: Final = 420
# Rows by their kind, likewise: what is of any length is in none of these.
_ROW_BYTES: Final[Mapping[str, int]] = {
    MemoryTraceSpan.kind: _SPAN_BYTES, StepStarted.kind: _FIXED_BYTES[StepStarted],
    StepEnded.kind: _FIXED_BYTES[StepEnded], BudgetsAllocated.kind: _FIXED_BYTES[BudgetsAllocated],
}  # fmt: skip
_EDGES: Final = frozenset({TurnStarted, TurnCompleted})
# Rows that are of about the same size in turns which have the same rows.
_ALIKE_ROWS: Final = frozenset({LayerStateChanged.kind, ViewAssembled.kind, RequestPrepared.kind, SteeringDecided.kind})
# Far from a bound, one turn in so many is measured closely. A prime, so that it is another turn of each conversation.
_LIKE_IT: Final = 17
# A layer's state grows slowly: one write in so many is looked at, and those that follow are taken to be like it.
_MEASURED: Final = 16
_MOST_THREADS: Final = 1_000
_state_of: Final = held_by(LayerStateChanged, "state")


# What else a row is of, by its parts; a state is measured by its layer.
_ROW_SIZES: Final[Mapping[str, Callable[[Sequence[Any]], int]]] = {
    ItemsAppended.kind: lambda row: 300 + _size_of_items(row[4]),
    ModelCalled.kind: lambda row: _size_of_call(row[8], row[13], row[14]),
    ToolCalled.kind: lambda row: _size_of_tool(row[6], row[9], (row[5], row[10])),
    ViewAssembled.kind: lambda row: _size_of_view(
        row[6], row[5], row[7][2::3], row[17], (row[18], row[19], row[20], row[22])
    ),
    RequestPrepared.kind: lambda row: _size_of_request(row[11], row[5], (row[6], row[7], row[8], row[16])),
    SteeringDecided.kind: lambda row: _size_of_decision(row[16], row[8], (row[6], row[9], row[13], row[14])),
}


class EventSizes:
    """Measures the events of a run, in their order.

    Examples
    --------
    >>> from noetic_nb.events import ToolCalled
    >>> sizes = EventSizes()
    >>> call = ToolCalled(Where("t1", "e1", 1), 0.0, "find", "c1", {}, "x" * 1_000, 1.0, "ok")
    >>> 1_000 < sizes.of(call) < 2_000
    True
    """

    def __init__(self) -> None:
        # By thread and layer, the size of a state as last looked at, and how many writes are taken to be like it.
        self._states: dict[str, dict[str, list[int]]] = {}
        self._stretches = RowStretches(_ROW_BYTES, _ALIKE_ROWS)

    def of(self, event: RunEvent | Row) -> int:
        """Return about how many bytes an event takes."""
        if isinstance(event, tuple):
            return self._of_row(event)
        if isinstance(event, MemoryTraceSpan):
            if event.attributes is None and event.error is None and not event.notes:
                return _SPAN_BYTES  # it had nothing to say, as most
            return _size_of_record(event)
        if isinstance(event, LayerStateChanged):
            held = _state_of(event)
            states = self._of_thread(event.where.thread_id)
            return self._state(states, event.layer_id, held.data if type(held) is Later else held)
        cls = type(event)
        return _FIXED_BYTES.get(cls) or _SIZES.get(cls, _size_of_record)(event)

    def of_turn(
        self, parts: Sequence[Any], start: int, most: int, place: Place, *, closely: bool = True
    ) -> tuple[int, int, int]:
        """Return how many events from a place on are of a turn that goes on, about how many bytes they take, and where they end.

        What is there are events, and rows by their parts. The turn is told by the place of its events; one begins and ends with
        an event of its own, which is not counted. Not `closely`, states, views, requests and decisions of most turns are taken to
        be like those of a turn before that had the same rows; questions, answers and outputs are measured always.
        """
        count = size = 0
        at, end = start, len(parts)
        where: Where | None = None
        kinds: list[str] = []  # of the rows since the last event that is none
        while at < end and count < most:
            kind = parts[at]
            if type(kind) is str:
                of = parts[at + 1]
                if of is not place:
                    if of != place:
                        break
                    place = of  # the same object in what follows
                stretch = None if kinds else self._stretches.find(parts, at, place)
                if stretch is not None and count + stretch.count <= most:
                    size += self._of_stretch(stretch, parts, at, closely)
                    count += stretch.count
                    at += stretch.length
                    continue
                after = at + ROW_LENGTHS[kind]
                size += _ROW_BYTES.get(kind) or self._of_row(parts[at:after])
                kinds.append(kind)
                at = after
            else:
                event: RunEvent = kind
                if kinds:
                    self._stretches.learn(kinds)
                    kinds = []
                if event.where is not where:
                    if place_of(event.where) != place:
                        break
                    where = event.where
                if type(event) in _EDGES:
                    break
                size += self.of(event)
                at += 1
            count += 1
        return count, size, at

    def _of_stretch(self, stretch: RowStretch, parts: Sequence[Any], at: int, closely: bool) -> int:
        """Return what its rows take: closely, what they take one by one."""
        size = stretch.size
        for start, after in stretch.others:
            size += self._of_row(parts[at + start : at + after])
        if closely or not stretch.to_come:
            stretch.like = sum([self._of_row(parts[at + start : at + after]) for start, after in stretch.alike])
            stretch.to_come = _LIKE_IT
        stretch.to_come -= 1
        return size + stretch.like

    def _of_row(self, row: Sequence[Any]) -> int:
        kind = row[0]
        measure = _ROW_SIZES.get(kind)
        if measure is not None:
            return measure(row)
        if kind == LayerStateChanged.kind:
            return self._state(self._of_thread(row[1][0]), row[3], row[5])
        return _ROW_BYTES[kind]

    def _of_thread(self, thread_id: str) -> dict[str, list[int]]:
        states = self._states.get(thread_id)
        if states is None:
            if len(self._states) >= _MOST_THREADS:
                self._states.clear()
            states = self._states[thread_id] = {}
        return states

    @staticmethod
    def _state(states: dict[str, list[int]], layer_id: str, state: Any) -> int:
        known = states.get(layer_id)
        if known is None:
            known = states[layer_id] = [0, 0]
        if known[1] == 0:
            # As it is held: nobody may ever want to read it.
            known[:] = 240 + _size(written_state(state)), _MEASURED
        known[1] -= 1
        return known[0]
