"""What a conversation is made of: frozen items, their wire form, and the append-only log."""

from noetic_nb.items.build import (
    assistant_message,
    assistant_text,
    content_tokens,
    function_call,
    function_call_output,
    input_message,
    input_texts,
    item_text,
    output_texts,
    strip_unresolved,
    unresolved_positions,
)
from noetic_nb.items.frozen import FrozenDict, freeze, thaw
from noetic_nb.items.item import Item, dump_item, item_tokens
from noetic_nb.items.json_text import compact_json
from noetic_nb.items.log import ItemLog, ItemView
from noetic_nb.items.registry import DEFAULT_REGISTRY, ItemRegistry, parse_item

__all__ = [
    "DEFAULT_REGISTRY",
    "FrozenDict",
    "Item",
    "ItemLog",
    "ItemRegistry",
    "ItemView",
    "assistant_message",
    "assistant_text",
    "compact_json",
    "content_tokens",
    "dump_item",
    "freeze",
    "function_call",
    "function_call_output",
    "input_message",
    "input_texts",
    "item_text",
    "item_tokens",
    "output_texts",
    "parse_item",
    "strip_unresolved",
    "thaw",
    "unresolved_positions",
]
