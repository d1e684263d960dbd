"""One item of a conversation: a message, a call, its output, reasoning, or an extension.

An item keeps every given key, in order; an absent key differs from null. Read it like a mapping with camelCase keys, or
through snake_case attributes, which are None for absent known fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from noetic_nb._core.cards import Card, with_card
from noetic_nb._core.names import keys
from noetic_nb.errors import ItemValidationError
from noetic_nb.items._frozen import MAPPINGS, FrozenDict, freeze, thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.tokens import Tokenizer, estimate_tokens

BASE_TYPES: Final = keys(
    "message function_call function_call_output reasoning web_search_call file_search_call image_generation_call"
    " compaction mcp_list_tools mcp_approval_request mcp_approval_response additional_tools"
)
"""Item types known without registration; types with the prefix ``openrouter:`` are known as well."""

# Only this library's own names are converted; provider-specific items are not changed.
_FIELDS: Final[dict[str, dict[str, str]]] = {
    "message": {},
    "function_call": {"call_id": "callId"},
    "function_call_output": {"call_id": "callId"},
}
_PART_FIELDS: Final = {"image_url": "imageUrl", "file_data": "fileData", "file_id": "fileId", "file_url": "fileUrl"}


@with_card(shown="in cells")
class Item(FrozenDict):
    """An immutable item. Create one with `parse_item` or the builders in `noetic_nb.items`.

    Examples
    --------
    >>> from noetic_nb.items import parse_item
    >>> call = parse_item({"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": "{}"})
    >>> call.call_id, call["callId"], call.status
    ('c1', 'c1', None)
    """

    __slots__ = ("_checked", "_content", "_counted", "_tally", "_tokens")

    def __repr__(self) -> str:
        return f"Item({dict.__repr__(self)})"

    def _card(self) -> Card:
        first, last = ("type", "role", "name"), ("status", "callId", "id")
        keys = [*first, *[key for key in self if key not in (*first, *last)], *last]
        return Card("Item", facts=[(key, _said(self[key])) for key in keys if self.get(key)])


def _said(value: Any) -> Any:
    """Return the text of a value: for content parts, their texts."""
    is_content = isinstance(value, tuple) and value and all(isinstance(part, FrozenDict) for part in value)
    texts = [part.get("text") or part.get("refusal") for part in value] if is_content else []
    return " ".join(texts) if texts and all(isinstance(text, str) for text in texts) else value


# Access the slots directly: attribute access would look up the item's data.
remember_tokens: Final = Item._tokens.__set__  # type: ignore[attr-defined]
_known_tokens: Final = Item._tokens.__get__  # type: ignore[attr-defined]
_remember_counted: Final = Item._counted.__set__  # type: ignore[attr-defined]
_known_counted: Final = Item._counted.__get__  # type: ignore[attr-defined]
remember_content: Final = Item._content.__set__  # type: ignore[attr-defined]
_known_content: Final = Item._content.__get__  # type: ignore[attr-defined]
remember_tally: Final = Item._tally.__set__  # type: ignore[attr-defined]
_known_tally: Final = Item._tally.__get__  # type: ignore[attr-defined]


def _kept(read: Any, item: Item) -> Any:
    """Return the cached value for an item, or None if there is none."""
    try:
        return read(item)
    except AttributeError:
        return None


def tally_of(item: Item, counter: Tokenizer) -> tuple[Tokenizer, str, int] | None:
    """Return the tally cached by `remember_tally`: counter, kind and tokens of the text; None for another counter."""
    known: tuple[Tokenizer, str, int] | None = _kept(_known_tally, item)
    return known if known is not None and known[0] is counter else None


def content_count(item: Item, counter: Tokenizer) -> int | None:
    """Return the tokens of an item's text cached by `remember_content`; None for another counter."""
    known: tuple[Tokenizer, int] | None = _kept(_known_content, item)
    return known[1] if known is not None and known[0] is counter else None


def is_base_type(kind: str) -> bool:
    """Tell whether an item type is known without registration, including all types with the prefix ``openrouter:``."""
    return kind in BASE_TYPES or kind.startswith("openrouter:")


def _renamed(value: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    if value.keys().isdisjoint(names):
        return value
    for snake, wire in names.items():
        if snake in value and wire in value:
            raise ItemValidationError(f"An item has both {snake!r} and {wire!r}.", given=dict(value), hint="Keep one.")
    return {names.get(key, key): inner for key, inner in value.items()}


def parse_shape(value: object) -> Item:
    """Check that a value is a mapping with a ``type``, and freeze it; raises `ItemValidationError`. The type may be unknown."""
    if type(value) is Item:
        return value
    if not isinstance(value, MAPPINGS):
        raise ItemValidationError("An item is a mapping.", given=value)
    kind = value.get("type")
    if not isinstance(kind, str) or not kind:
        raise ItemValidationError("An item needs a non-empty string `type`.", given=dict(value))
    # Rename by type: a provider's own item may have a field call_id, which must stay unchanged.
    names = _FIELDS.get(kind)
    if names is not None:
        value = _renamed(value, names)
        content = value.get("content")
        if kind == "message" and isinstance(content, list | tuple):
            parts = [_renamed(part, _PART_FIELDS) if isinstance(part, MAPPINGS) else part for part in content]
            value = {**value, "content": parts}
    return Item(freeze(dict(value)))


def dump_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an item to plain, mutable data with camelCase keys in their original order.

    Examples
    --------
    >>> from noetic_nb.items import parse_item
    >>> dump_item(parse_item({"type": "function_call_output", "call_id": "c1", "output": "ok"}))
    {'type': 'function_call_output', 'callId': 'c1', 'output': 'ok'}
    """
    plain: dict[str, Any] = thaw(item)
    return plain


def item_tokens(item: Mapping[str, Any], tokenizer: Tokenizer = estimate_tokens) -> int:
    """Count the tokens of a whole item: of its compact JSON with all keys, or as the tokenizer counts items.

    Parameters
    ----------
    item : mapping
        A frozen or plain item. The count of a frozen item is cached; another tokenizer counts again.
    tokenizer : callable, optional
        Maps text to a number of tokens. If it has a method ``count_item``, that counts the whole item, as the provider does.

    References
    ----------
    .. [1] docs/behaviour/memory.md, "Tokens".

    Examples
    --------
    >>> item_tokens({"id": "id-1", "status": "completed", "type": "message", "role": "user",
    ...              "content": [{"type": "input_text", "text": "hello"}]})
    29
    """
    if tokenizer is estimate_tokens and type(item) is Item:
        try:
            known: int = _known_tokens(item)
        except AttributeError:
            known = estimate_tokens(compact_json(item))
            remember_tokens(item, known)
        return known
    if type(item) is not Item:
        return _count(item, tokenizer)
    counted_by, count = _kept(_known_counted, item) or (None, 0)
    if counted_by is not tokenizer:
        count = _count(item, tokenizer)
        _remember_counted(item, (tokenizer, count))
    return count


def tokens_of(items: Sequence[Mapping[str, Any]]) -> int:
    """Count the tokens of several items, by the estimate."""
    return sum(map(item_tokens, items))


def _count(item: Mapping[str, Any], tokenizer: Tokenizer) -> int:
    if not isinstance(item, Mapping):
        raise ItemValidationError(
            "Only items are counted.", given=item, hint="Count a text with nn.estimate_tokens(text)."
        )
    count = getattr(tokenizer, "count_item", None)
    found: int = tokenizer(compact_json(item)) if count is None else count(item)
    return found
