"""The items of one request, by the part of the bar they belong to: their first words, tokens, and fate."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item, item_text
from noetic_nb.runs._plain_text import REASONS, count, plain_line
from noetic_nb.runs._requests.model_calls import Calls
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runs._requests.tool_shares import tool_tokens

# Enough to know an item again.
WORDS_LENGTH: Final = 64
# A list that nobody reads to its end; all are in the run, and the transcript shows them.
ITEMS_SHOWN: Final = 200


def words_of(item: Item | None) -> str:
    """Return the first words of an item, with the role or the tool in front.

    Examples
    --------
    >>> from noetic_nb.items import function_call, input_message
    >>> words_of(input_message("Where is order A17?")), words_of(function_call("lookup", "{}", "c1"))
    ('user: Where is order A17?', 'calls lookup: {}')
    """
    if item is None:
        return "not recorded"
    kind = item["type"]
    if kind == "function_call":
        who, text = f"calls {item.get('name')}", item.get("arguments") or ""
    else:
        who, text = item.get("role") or ("result" if kind == "function_call_output" else kind), item_text(item)
    return plain_line(f"{who}: {text}", WORDS_LENGTH)


def part_of(origin: str, calls: Calls) -> str | int:
    """Return the key of the part of the bar that an item belongs to."""
    if origin.startswith("layer:"):
        number = calls.number(origin.removeprefix("layer:"))
        return "history" if number is None else number
    return "system" if origin == "instructions" else "history"


def items_of(request: RecordedRequest, calls: Calls) -> dict[str, Any]:
    """Return the items of a request as JSON data: part, words, tokens, place in the log, and why it is absent.

    Those of the history are in the order of the log; what a layer offered and was not sent stands at the end.
    """
    parts: dict[str | int, list[tuple[str | Item | None, int | None, int | None, str]]] = {}
    if request.instructions:
        assert request.view is not None
        parts["system"] = [(request.instructions, request.view.system, None, "")]
    if request.tools:
        assert request.view is not None
        sizes = tool_tokens(request.prepared, request.view.tools)
        parts["tools"] = [
            (f"{tool.name}: {tool.description}", tokens, None, "")
            for tool, (_, tokens) in zip(request.tools, sizes, strict=True)
        ]
    for sent in request.items:
        parts.setdefault(part_of(sent.origin, calls), []).append(
            (sent.item, sent.tokens - sent.framing, sent.position, "")
        )
    note = ""
    try:
        for gone in request.absent:
            if gone.reason != "forced":
                place = gone.position if gone.origin == "history" else None
                row = gone.item, gone.tokens, place, REASONS.get(gone.reason, gone.reason)
                parts.setdefault(part_of(gone.origin, calls), []).append(row)
    except NoeticConfigError as exc:
        note = plain_line(exc, 300)
    if "history" in parts:  # in the order of the log, what was left out in its place
        parts["history"].sort(key=lambda row: -1 if row[2] is None else row[2])
    # The newest of the history are what people look for; what is before them is counted.
    return {
        "parts": [[key, len(rows), [_row(*row) for row in rows[-ITEMS_SHOWN:]]] for key, rows in parts.items()],
        "note": note,
    }


def _row(item: str | Item | None, tokens: int | None, position: int | None, why: str) -> list[Any]:
    words = plain_line(item, WORDS_LENGTH) if isinstance(item, str) else words_of(item)
    return [words, "" if tokens is None else count(tokens), position, why]
