"""The parts of a conversation: frozen items, their wire form, and the append-only log."""

from noetic_nb.items._build import (
    assistant_message,
    assistant_text,
    function_call,
    function_call_output,
    input_message,
    item_text,
    strip_unresolved,
)
from noetic_nb.items._frozen import freeze, thaw
from noetic_nb.items._item import Item, dump_item, item_tokens
from noetic_nb.items._log import ItemLog
from noetic_nb.items._registry import ItemRegistry, parse_item

__all__ = [
    "Item",
    "ItemLog",
    "ItemRegistry",
    "assistant_message",
    "assistant_text",
    "dump_item",
    "freeze",
    "function_call",
    "function_call_output",
    "input_message",
    "item_text",
    "item_tokens",
    "parse_item",
    "strip_unresolved",
    "thaw",
]


def __dir__() -> list[str]:
    return sorted(__all__)
