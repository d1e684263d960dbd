"""Events that are made when somebody reads them: until then each is a row, a plain tuple of its kind, its place and its fields.

Most of what a turn emits is recorded and never looked at, or looked at when the turn is long over. A row takes a tenth of the
time of its event, and the garbage collector need not look through the fields of one that holds numbers and texts only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from noetic_nb.events import (
    BudgetsAllocated,
    EventSink,
    HookName,
    ItemsAppended,
    LayerStateChanged,
    LayerTokens,
    MemoryTraceSpan,
    ModelCalled,
    RequestPrepared,
    RunEvent,
    SteeringDecided,
    StepEnded,
    StepStarted,
    ToolCalled,
    ViewAssembled,
    Where,
)
from noetic_nb.items.build import input_message
from noetic_nb.late_data import Later, written_state

__all__ = ["ROW_LENGTHS", "Note", "Place", "Row", "event_of", "noting", "one_where", "own_note", "place_of"]

Place: TypeAlias = tuple[str, str, int, int]
"""The fields of a `Where`."""
Row: TypeAlias = tuple[Any, ...]
"""Kind of the event, `Place`, milliseconds, and what its maker takes."""
Note: TypeAlias = Callable[[Row], None]

# The same for a whole turn: looking one up costs a fifth of making one.
one_where: Final = lru_cache(maxsize=64)(Where)
"""The place of a turn, the same record for all its events: who takes them sees quickly that a turn goes on."""


def _hook_called(
    where: Where,
    t_ms: float,
    layer_id: str,
    hook: HookName,
    duration_ms: float,
    item_count: int | None = None,
    budget: float | None = None,
    used: int = 0,
) -> MemoryTraceSpan:
    tokens = None
    if budget is not None:
        tokens = LayerTokens(layer_id, budget, used, max(0.0, budget - used), item_count or 0)
    return MemoryTraceSpan(where, t_ms, layer_id, hook, duration_ms, "ok", tokens, item_count)


def _state_changed(where: Where, t_ms: float, layer_id: str, hook: HookName, state: Any) -> LayerStateChanged:
    return LayerStateChanged(where, t_ms, layer_id, hook, Later(written_state(state)))


def _budgets_allocated(
    where: Where, t_ms: float, total: float, system: int, reserve: float, allocations: Any, history: float
) -> BudgetsAllocated:
    pairs = tuple([(layer_id, allocated) for layer_id, allocated in allocations])
    return BudgetsAllocated(where, t_ms, total, system, reserve, pairs, history)


def _view_assembled(
    where: Where,
    t_ms: float,
    step: int,
    window: tuple[int, int],
    fates: Any,
    layers: Any,
    offered: tuple[Any, ...],
    *more: Any,
) -> ViewAssembled:
    # Flat in the row, and of messages only what tells one from another: each pair, and each of the three records that a message
    # is, would be one more thing that the collector looks through.
    pairs = tuple(
        [
            (layer_id, what if item_id is None else input_message(what, "developer", item_id=item_id))
            for layer_id, item_id, what in zip(offered[::3], offered[1::3], offered[2::3], strict=True)
        ]
    )
    return ViewAssembled(where, t_ms, step, window, fates, layers, pairs, *more)


def _decided(where: Where, t_ms: float, *fields: Any) -> SteeringDecided:
    # Two tuples of texts and numbers, which the collector does not look through, in the place of a pair for each rule.
    *most, rules, took = fields
    made: Callable[..., SteeringDecided] = SteeringDecided
    return made(where, t_ms, *most, tuple(zip(rules, took, strict=False)))


# By the kind of the event. What a row holds can change no more: `hook_called` is of a hook that ended well and noted nothing, and
# the state of `layer_state_changed` is nobody's to write into.
_MAKERS: Final[Mapping[str, Callable[..., RunEvent]]] = {
    "hook_called": _hook_called,
    "layer_state_changed": _state_changed,
    "step_started": StepStarted,
    "step_ended": StepEnded,
    "items_appended": ItemsAppended,
    "model_called": ModelCalled,
    "budgets_allocated": _budgets_allocated,
    "request_prepared": RequestPrepared,
    "steering_decided": _decided,
    "tool_called": ToolCalled,
    "view_assembled": _view_assembled,
}


ROW_LENGTHS: Final[Mapping[str, int]] = {
    "hook_called": 9, "layer_state_changed": 6, "step_started": 6, "step_ended": 9, "items_appended": 6,
    "budgets_allocated": 8, "request_prepared": 17, "steering_decided": 17, "view_assembled": 24, "model_called": 16,
    "tool_called": 14,
}  # fmt: skip
"""How many parts a row has, by its kind: all of them are given, so that rows can stand one after the other."""


def event_of(row: Row) -> RunEvent:
    """Make the event of a row.

    Examples
    --------
    >>> begun = event_of(("step_started", ("t1", "e1", 1, 0), 5.0, "ask", "llm", "/ask#1"))
    >>> begun.kind, begun.where.turn, begun.path
    ('step_started', 1, '/ask#1')
    """
    return _MAKERS[row[0]](one_where(*row[1]), *row[2:])


def place_of(where: Where) -> Place:
    """Return a place as a row has it."""
    return where.thread_id, where.execution_id, where.turn, where.depth


def own_note(sink: EventSink) -> Note | None:
    """Return the method `note_row` of a sink, which must not raise; None where it has none beside its `emit`.

    A class with an `emit` of its own wants events, whatever it inherits.
    """
    emits = next((cls for cls in type(sink).__mro__ if "emit" in vars(cls)), None)
    if emits is None or "note_row" not in vars(emits) or "emit" in getattr(sink, "__dict__", ()):
        return None
    own: Note = sink.note_row  # type: ignore[attr-defined]  # just seen
    return own


def noting(sink: EventSink) -> Note:
    """Return what takes rows for a sink: its own method, or what makes the event and emits it.

    Examples
    --------
    >>> class Sink:
    ...     def emit(self, event):
    ...         print(event.kind)
    >>> noting(Sink())(("step_started", ("t1", "e1", 1, 0), 5.0, "ask", "llm", "/ask#1"))
    step_started
    """
    return own_note(sink) or (lambda row: sink.emit(event_of(row)))
