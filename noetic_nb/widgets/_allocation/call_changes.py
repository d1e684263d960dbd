"""The items of a call by part, and calls with other budgets: positions of sliders and handles, and their effect."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ViewAssembled
from noetic_nb.items import Item, item_text
from noetic_nb.markup import escape
from noetic_nb.plots._trends.trends_marks import steps_of
from noetic_nb.runs._plain_text import count, plain, plain_line
from noetic_nb.runs._requests.context_parts import HISTORY, REST, ContextParts, compactions_before, replaced_in
from noetic_nb.runs._requests.item_lives import Compactions, only_in
from noetic_nb.runs._requests.model_calls import Calls, CallShare
from noetic_nb.runs._requests.sent_request import RecordedRequest, sent_stretches
from noetic_nb.runtime._planning.plan_inputs import ItemChange, plan_difference
from noetic_nb.runtime._planning.turn_plan import TurnPlan
from noetic_nb.widgets._allocation.allocation_picture import call_data
from noetic_nb.widgets._transcript.call_content import ShownRows
from noetic_nb.widgets._transcript.request_rows import DiffRow, RequestRow, request_rows
from noetic_nb.widgets._transcript.transcript_picture import entry_row
from noetic_nb.widgets.base._table import keyed

# Enough to recognise an item.
WORDS_LENGTH: Final = 64
# Longer lists are not read to the end; the transcript has all rows.
ROWS_SHOWN: Final = 100


def words_of(item: Item | None) -> str:
    """Return the beginning of an item, prefixed with the role or the tool.

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
    """Return the key of a row's band: a layer's number, or the name of the band."""
    if row.origin == "layer":
        number = calls.number(row.layer)
        return REST if number is None else number  # a summary that replaces history
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
    """Return the rows of a request in some parts, with absent items in their places.

    `compactions` are those of the run: later imported requests lack the items that they replaced.
    """
    before = compactions_before(request, compactions)
    is_planned, gone, found = request.view is not None, replaced_in(before), []
    for row in request_rows(request, meta):
        is_of = part_of(row, calls, is_planned=is_planned) in parts
        # One row stands for older items of all kinds.
        if is_of or (row.count > 1 and not {*parts}.isdisjoint(HISTORY)):
            found.append(replace(row, is_sent=False, reason="compacted") if row.position in gone else row)
    if REST in parts:
        texts = [item_text(item) for event in before for item in event.items]
        found += [RequestRow("projection", "compaction", text, request.counter(text)) for text in texts]
    return ShownRows([DiffRow(row) for row in found], calls.numbers())


def rows_data(shown: ShownRows, unfolded: Collection[int]) -> dict[str, Any]:
    """Return rows for a page; if there are many, the last ones, because the newest history is the most relevant."""
    entries = shown.entries(unfolded=unfolded)
    rows = [found.row for found in shown.rows]
    sent = [row for row in rows if row.is_sent]
    absent = sum([not row.is_sent for row in rows if row.count == 1])
    older = " and older ones" if any(row.count > 1 for row in rows) else ""
    size = f"{len(sent):,} item{'' if len(sent) == 1 else 's'}, {count(sum([row.tokens or 0 for row in sent]))} tokens"
    more = f", {absent:,}{older} not sent" if absent else ""
    cut = f"; the last {ROWS_SHOWN} shown, the transcript has all" if len(entries) > ROWS_SHOWN else ""
    return {"head": f"{size}{more}{cut}", "rows": [entry_row(shown, entry, "") for entry in entries[-ROWS_SHOWN:]]}


# How many requests of a very long run to plan again when looking for the first that differs.
MOST_LOOKED: Final = 2_000
# As many as can be read at a glance while a slider moves; all are counted.
CHANGES_SHOWN: Final = 12


def settings_of(request: RecordedRequest, calls: Calls) -> dict[str, Any]:
    """Return the slider positions of a call: each layer's minimum and maximum tokens, the total and the reserve.

    None is no limit; `most` is the end of the sliders. Raises `NoeticConfigError` ``NOT_RECORDED``.
    """
    inputs, view = request.inputs, request.view
    assert view is not None
    finite = [number for _, low, high in inputs.limits for number in (low, high) if number != math.inf]
    size = view.total if view.total != math.inf else request.plan.total_tokens + view.reserve
    whole = inputs.log.tokens + view.system + view.tools + sum([layer.used for layer in view.layers]) + view.reserve
    most = max(100.0, 1.5 * size if size >= whole else min(1.2 * whole, 4 * max(size, 1.0)), *finite)
    return {
        "layers": [
            [calls.number(layer_id), plain(layer_id), low, None if high == math.inf else high]
            for layer_id, low, high in inputs.limits
        ],
        "total": None if view.total == math.inf else view.total,
        "reserve": None if view.reserve == math.inf else view.reserve,
        "most": _step(most),
    }


def _limit(number: Any) -> Any:
    return math.inf if number is None else number


def _step(number: float) -> int:
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return int(math.ceil(number / unit) * unit)


def what_if_data(request: RecordedRequest, calls: Calls, share: CallShare, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the picture of a call with other budgets, with the items that would be dropped or come back.

    `asked` is as for `OtherBudgets`.
    """
    plan = OtherBudgets(calls, asked).plan(request)
    difference = plan_difference(request.inputs, request.plan, plan)
    planned = calls.share(request.event_of(plan), share.call)
    data = call_data(planned, calls.order, names=("Would be sent", "Would be planned"))
    return {
        "picture": data,
        "changes": [
            *_changes("dropped", "would be left out", difference.dropped),
            *_changes("returned", "would be sent again", difference.returned),
        ]
        or [keyed("same", '<p class="nn-change">The same items would be sent.</p>')],
    }


def _changes(name: str, what: str, changes: Sequence[ItemChange]) -> list[dict[str, Any]]:
    """Return the items that another plan adds or leaves out, as a part of a page; none without items."""
    if not changes:
        return []
    items = f"{len(changes)} item{'' if len(changes) == 1 else 's'}"
    head = f"{items} {what}, {count(sum([change.tokens for change in changes]))} tokens"
    # For history, the newest items matter most.
    shown = [*[c for c in changes if c.origin != "history"], *[c for c in changes if c.origin == "history"][::-1]]
    rows = "".join([_change_html(change) for change in shown[:CHANGES_SHOWN]])
    more = len(changes) - CHANGES_SHOWN
    note = f'<p class="nn-note">and {more} more</p>' if more > 0 else ""
    html = f'<p class="nn-change">{head}</p><ul class="nn-list nn-items">{rows}</ul>{note}'
    return [keyed(name, f'<div class="nn-{name}">{html}</div>')]


def _change_html(change: ItemChange) -> str:
    """Return an item as a list entry; one of the log is a button that selects it."""
    is_history = change.origin == "history"
    origin = "history" if is_history else plain(change.origin.replace("layer:", "", 1))
    words = f'<span class="nn-words">{escape(origin)} · {escape(words_of(change.item))}</span>'
    inside = f'{words}<span class="nn-number">{count(change.tokens)}</span>'
    if is_history:
        return f'<li><button type="button" class="nn-item" data-item="{change.position}">{inside}</button></li>'
    return f'<li><div class="nn-item">{inside}</div></li>'


def handles_of(request: RecordedRequest, calls: Calls) -> dict[str, Any]:
    """Return the draggable limits in the picture, by ``total`` and layer number; empty if the call cannot be planned again.

    Each has its minimum, the stops of its maximum, and the recorded stop; the last stop is no limit if `endless`.
    """
    view, prepared = request.view, request.prepared
    if view is None or prepared is None or request.missing:
        return {}
    found: dict[str, Any] = {}
    if math.isfinite(view.total):
        found["total"] = _handle("Budget", 1, view.total, 2 * view.total)
    used = {layer.layer_id: layer.used for layer in view.layers}
    for layer_id, low, high in prepared.limits:
        most = max(2 * used.get(layer_id, 0), 2 * low, 100.0, *([2 * high] if math.isfinite(high) else []))
        found[str(calls.number(layer_id))] = _handle(f"{plain(layer_id)}, most", low, high, most)
    return found


def _handle(label: str, least: float, now: float, most: float) -> dict[str, Any]:
    is_endless = not math.isfinite(now)
    most = _step(max(most, 100.0))
    recorded = most if is_endless else now
    values = steps_of(min(least, recorded), most, recorded, is_whole=float(recorded).is_integer())
    at = len(values) - 1 if is_endless else values.index(recorded)
    return {"label": label, "low": least, "values": values, "at": at, "endless": is_endless}


class OtherBudgets:
    """Calls with other budgets: `asked` has ``budgets`` (pairs of tokens by layer number), ``total`` and ``reserve``.

    None is no limit; omitted values stay unchanged.
    """

    def __init__(self, calls: Calls, asked: dict[str, Any]) -> None:
        self._tokens = {name: _limit(asked[name]) for name in ("total", "reserve") if name in asked}
        self._by_id: dict[str, tuple[float, float]] = {}
        ids = {str(number): layer_id for layer_id, number in calls.numbers().items()}
        given = asked.get("budgets")
        for number, pair in given.items() if isinstance(given, dict) else ():
            if number not in ids or not isinstance(pair, list) or len(pair) != 2:
                raise NoeticConfigError("INVALID_BUDGET", "No layer has this budget.", given=given)
            self._by_id[ids[number]] = pair[0], _limit(pair[1])

    def plan(self, request: RecordedRequest) -> TurnPlan:
        """Return the plan of a request; raises as `RecordedRequest.replan`."""
        given = {name: self._by_id[name] for name, _, _ in request.inputs.limits if name in self._by_id}
        return request.replan(budgets=given, **self._tokens)

    def view(self, request: RecordedRequest) -> ViewAssembled | None:
        """Return the request as it would be sent, the same view if nothing can change; None if unknown."""
        view = request.view
        if view is None or request.missing:
            return None
        if self._is_roomy(view):
            return view
        return request.event_of(self.plan(request)) if request.can_replan else None

    def _is_roomy(self, view: ViewAssembled) -> bool:
        """Tell whether everything was sent, and the new budgets leave at least as much room."""
        is_whole = not (view.fates or view.unsent or view.hidden or view.window[0])
        is_less = self._tokens.get("total", view.total) < view.total
        held = [layer for layer in view.layers if layer.used > self._by_id.get(layer.layer_id, (0, math.inf))[1]]
        return is_whole and not is_less and not held

    def rows(self, requests: Sequence[RecordedRequest], parts: ContextParts, bands: Sequence[str]) -> dict[str, Any]:
        """Return the tokens of each call by band, others last (None if unknown), and a sentence."""
        rows: list[list[int] | None] = []
        changes: list[tuple[int, int]] = []
        for request in requests:
            view, was = self.view(request), request.view
            if view is None or was is None:
                rows.append(None)
                continue
            sent = request.stretches if view is was else sent_stretches(view)
            row = parts.planned(request, view, sent)
            rows.append([*[row.pop(band, 0) for band in bands], sum(row.values())])
            changes.append((0, 0) if view is was else _changes_of(request, view, sent))
        return {"rows": rows, "text": _said(changes)}

    def known_until(self, requests: Sequence[RecordedRequest]) -> tuple[int | None, bool]:
        """Return the first call that would be sent different items, and whether it is only where the search stopped."""
        looked = 0
        for at, request in enumerate(requests):
            view = self.view(request)
            if view is not None and view is not request.view:
                assert request.view is not None
                sent, was = sent_stretches(view), request.stretches
                if view.layer_items != request.view.layer_items or only_in(sent, was) or only_in(was, sent):
                    return at, False
                looked += 1
                if looked >= MOST_LOOKED:
                    return at, True
        return None, False


def _changes_of(request: RecordedRequest, view: ViewAssembled, sent: Sequence[range]) -> tuple[int, int]:
    """Return how many items only the new request has, and how many only the recorded one."""
    come, gone = len(only_in(sent, request.stretches)), len(only_in(request.stretches, sent))
    assert request.view is not None
    before = {layer.layer_id: layer.items for layer in request.view.layers}
    layers = [layer.items - before.get(layer.layer_id, 0) for layer in view.layers]
    more, fewer = [each for each in layers if each > 0], [-each for each in layers if each < 0]
    return come + sum(more), gone + sum(fewer)


def _said(changes: Sequence[tuple[int, int]]) -> str:
    said = []
    for each, word in zip(zip(*changes, strict=True), ("come back", "be left out"), strict=False):
        calls = [number for number in each if number]
        if calls:
            items = f"{count(sum(calls))} item{'' if sum(calls) == 1 else 's'}"
            said.append(f"{items} would {word} in {len(calls)} call{'' if len(calls) == 1 else 's'}")
    return f"{', '.join(said)}." if said else "The same items would be sent."
