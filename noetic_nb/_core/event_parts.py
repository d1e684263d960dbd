"""The parts of events: types for their fields in files, and the records that they contain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct

from noetic_nb._core.cards import with_card
from noetic_nb.items import Item
from noetic_nb.items._frozen import FrozenDict

if TYPE_CHECKING:
    _T = TypeVar("_T")
    Word: TypeAlias = Annotated[_T, "in a file any word"]
    Number: TypeAlias = float
    Whole: TypeAlias = int
    Data: TypeAlias = Mapping[str, Any]
    FreeData: TypeAlias = Any
    Thresholds: TypeAlias = Mapping[str, Mapping[str, float]]
else:
    # Types for reading files with msgspec; `runs/_events/event_json.py` checks numbers and data.
    class Word:
        """One of some words; in a file any word, because a layer or a newer version may use an unknown one."""

        def __class_getitem__(cls, words):
            return Annotated[str, words]

    Whole = Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)]  # table columns cannot hold more

    class _Checked(type):
        def __instancecheck__(cls, value):
            return True

    class Number(metaclass=_Checked):
        """A number, including infinity and NaN; integers stay integers."""

    class FreeData(metaclass=_Checked):
        """Data of any shape."""

    Data = Thresholds = FrozenDict


HookName: TypeAlias = Literal[
    "init",
    "recall",
    "store",
    "on_spawn",
    "on_return",
    "on_complete",
    "dispose",
    "before_tool_call",
    "after_model_call",
    "on_item_append",
    "project_history",
    "on_tool_outcome",
    "on_model_outcome",
    "on_feedback",
    "on_hook_failure",
    # Not a hook of a layer: the write of a state to storage, whose failures are reported like those of a hook.
    "persist",
]


@with_card(shown="in cells")
class Record(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The base of all records in events. `rename` and the tags of events define the names in files."""


class MemoryTexts(Record, frozen=True, gc=False):
    """Layers that remember in one scope, and the new source texts of their memories: author, name, text, a tool's arguments."""

    scope: Word[Literal["thread", "resource", "global"]]
    layer_ids: tuple[str, ...]
    texts: tuple[tuple[Word[Literal["user", "tool", "model"]], str | None, str, str | None], ...] = ()
    foreign: tuple[str, ...] = ()
    """Those of the layers whose memory others can write to."""


class Where(Record, frozen=True, gc=False):
    """The place of an event: its thread, execution and turn (1 is the first of a thread, 0 is outside turns)."""

    thread_id: str
    execution_id: str
    turn: Whole
    depth: Whole = 0


class LayerTokens(Record, frozen=True, gc=False):
    """The tokens that one layer was given, used, and yielded to history."""

    layer_id: str
    allocated: Number
    used: Whole
    yielded: Number
    items: Whole = 0


class ItemFate(Record, frozen=True, gc=False):
    """An item that was not sent, and why; `position` is its index in the log ("history") or in its layer's recall."""

    origin: str
    position: Whole
    tokens: Whole
    reason: Word[
        Literal["over_budget", "outside_window", "unresolved_call", "over_allocation", "trimmed", "forced", "hidden"]
    ]


class UnsentOffer(Record, frozen=True):
    """A layer's offered item that was not sent, for a reason of `ItemFate`; for a ``trimmed`` text, the removed rest."""

    layer_id: str
    place: Whole
    """Index in the layer's offer."""
    before: Whole
    """The number of layer items sent before it."""
    reason: Word[Literal["over_budget", "over_allocation", "trimmed"]]
    item: Item


class LogStretch(Record, frozen=True):
    """A part of the history as layers changed it: log items at ``start <= position < stop``, or unlogged `written` items."""

    start: Whole
    stop: Whole
    written: tuple[Item, ...] = ()


class OfferedTool(Record, frozen=True):
    """A tool as offered to the model; `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: Data
    strict: bool = False


class Event(Record, frozen=True, tag_field="kind"):
    """An event, with its place and time."""

    kind: ClassVar[str]
    """The name of its type, also in files and tables."""
    where: Where
    t_ms: Number


class TextRetracted(Record, frozen=True, tag_field="kind", tag="text_retracted"):
    """Streamed text of a turn's answer number `response` is retracted: rejected by rules, or never finished."""

    kind: ClassVar[str]
    response: Whole
    text: str
    where: Where = Where("", "", 0)
    t_ms: Number = 0.0
