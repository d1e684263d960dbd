"""The items of one request by the part that they belong to, as the rows of a transcript; and the first words of an item."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from noetic_nb.items import Item, item_text
from noetic_nb.runs._plain_text import count, plain_line
from noetic_nb.runs._requests.context_parts import HISTORY, REST, compactions_before, replaced_in
from noetic_nb.runs._requests.item_lives import Compactions
from noetic_nb.runs._requests.model_calls import Calls
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.widgets._transcript.call_content import ShownRows
from noetic_nb.widgets._transcript.request_rows import DiffRow, RequestRow, request_rows

# Enough to know an item again.
WORDS_LENGTH: Final = 64
# A list that nobody reads to its end; the transcript has all.
ROWS_SHOWN: Final = 100


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


def part_of(row: RequestRow, calls: Calls, *, is_planned: bool) -> str | int:
    """Return the key of the band of a row: a layer's number, or the name of the band."""
    if row.origin == "layer":
        number = calls.number(row.layer)
        return REST if number is None else number  # a summary that stands for history
    if row.origin in ("tools", "framing"):
        return row.origin
    if row.role in ("system", "developer", "instructions"):
        return REST if is_planned and row.position is not None else "system"
    if row.origin in ("projection", "appended") or row.role == "not recorded":
        return REST
    return {"user": "user", "result": "tool results"}.get(row.role, "assistant")


def rows_of(
    request: RecordedRequest,
    meta: Mapping[str, Any],
    calls: Calls,
    parts: Collection[str | int],
    compactions: Compactions = (),
) -> ShownRows:
    """Return the rows of a request that belong to some parts, absent ones in their places.

    `compactions` are those of the run: the items that they replaced are absent from a request of others behind them.
    """
    before = compactions_before(request, compactions)
    is_planned, gone, found = request.view is not None, replaced_in(before), []
    for row in request_rows(request, meta):
        is_of = part_of(row, calls, is_planned=is_planned) in parts
        # Older items of all kinds are one row.
        if is_of or (row.count > 1 and not {*parts}.isdisjoint(HISTORY)):
            found.append(replace(row, is_sent=False, reason="compacted") if row.position in gone else row)
    if REST in parts:
        texts = [item_text(item) for event in before for item in event.items]
        found += [RequestRow("projection", "compaction", text, request.counter(text)) for text in texts]
    return ShownRows([DiffRow(row) for row in found], calls.numbers())


def rows_data(shown: ShownRows, unfolded: Collection[int]) -> dict[str, Any]:
    """Return rows for a page: of many the last ones, since the newest of a history are looked for."""
    entries = shown.entries(unfolded=unfolded)
    rows = [found.row for found in shown.rows]
    sent = [row for row in rows if row.is_sent]
    absent = sum([not row.is_sent for row in rows if row.count == 1])
    older = " and older ones" if any(row.count > 1 for row in rows) else ""
    size = f"{len(sent):,} item{'' if len(sent) == 1 else 's'}, {count(sum([row.tokens or 0 for row in sent]))} tokens"
    more = f", {absent:,}{older} not sent" if absent else ""
    cut = f"; the last {ROWS_SHOWN} shown, the transcript has all" if len(entries) > ROWS_SHOWN else ""
    return {"head": f"{size}{more}{cut}", "rows": [shown.entry_data(entry) for entry in entries[-ROWS_SHOWN:]]}
