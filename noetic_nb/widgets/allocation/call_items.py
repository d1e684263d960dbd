"""The items of one request, by the part of the bar they belong to: their first words, tokens, and fate."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item, item_text
from noetic_nb.runs.model_calls import Calls
from noetic_nb.runs.plain_text import REASONS, count, plain_line
from noetic_nb.runs.recorded_requests import RecordedRequest

__all__ = ["WORDS_LENGTH", "items_of", "words_of"]

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

    Those that were not sent stand at the end of each part.
    """
    rows: list[list[Any]] = []
    if request.instructions:
        assert request.view is not None
        rows.append(["system", plain_line(request.instructions, WORDS_LENGTH), count(request.view.system), None, ""])
    for tool in request.tools or ():
        rows.append(["tools", plain_line(f"{tool.name}: {tool.description}", WORDS_LENGTH), "", None, ""])
    rows += [
        [part_of(sent.origin, calls), words_of(sent.item), count(sent.tokens), sent.position, ""]
        for sent in request.items
    ]
    note = ""
    try:
        rows += [
            [
                part_of(gone.origin, calls),
                words_of(gone.item),
                count(gone.tokens),
                gone.position if gone.origin == "history" else None,
                REASONS.get(gone.reason, gone.reason),
            ]
            for gone in request.absent
            if gone.reason != "forced"
        ]
    except NoeticConfigError as exc:
        note = plain_line(exc, 300)
    # The newest of the history are what people look for; what is left out of it is counted.
    shown: dict[str | int, list[list[Any]]] = {}
    for row in rows:
        shown.setdefault(row[0], []).append(row)
    return {
        "parts": [[key, len(of), [row[1:] for row in of[-ITEMS_SHOWN:]]] for key, of in shown.items()],
        "note": note,
    }
