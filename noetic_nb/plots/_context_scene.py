"""The context over time as a scene: tokens by part at each model call, and below them the items that left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noetic_nb.plots._scene.scene import LANE_PX, Mark, Panel, Scene, Series
from noetic_nb.plots._trends.trends_marks import nice_top
from noetic_nb.runs._palette import CATEGORY, layer_colour
from noetic_nb.runs._plain_text import count, plain_line
from noetic_nb.runs._requests.context_parts import REST, ContextCall, ContextParts, size_of
from noetic_nb.runs._requests.item_lives import LEFT, Compactions
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runs._run import KnownUntil

TITLE: Final = "Token allocation"
# More columns would be too thin to tell apart.
COLUMNS: Final = 400
BANDS: Final = 12
# Up to this many columns have room for a number each.
COUNTED: Final = 40
PANEL_PX: Final = 190
TICKS: Final = 12
# Total digits of all numbers that fit side by side at 420 px.
DIGITS: Final = 32
NAME_LENGTH: Final = 32
# Do not draw a budget this many times above the largest request: it would flatten the bands.
FAR: Final = 3
PAINT: Final = {
    "system": CATEGORY["system"], "tools": CATEGORY["tools"], "framing": CATEGORY["framing"], "user": CATEGORY["history"],
    "assistant": "#2E7DB0", "tool results": "#A9D8F2", REST: "#D9DDE3",
}  # fmt: skip
REASONS: Final = {
    "budget": "#D55E00", "window": "#E69F00", "summary": "#CC79A7", "compaction": "#0072B2", "cleared": "#8B2E5D",
}  # fmt: skip
ORDER: Final = {"system": 0, "tools": 1, "framing": 3, "user": 4, "assistant": 5, "tool results": 6, REST: 7}


@dataclass(slots=True)
class ContextScene(Scene):
    """The context over time; `bands` has the names of its bands from the bottom up."""

    bands: Sequence[str] = ()


def context_scene(
    parts: ContextParts,
    requests: Sequence[RecordedRequest],
    compactions: Compactions = (),
    layers: Mapping[str, int] | None = None,
    part: range | None = None,
    points: Mapping[str, KnownUntil] | None = None,
) -> ContextScene:
    """Return requests in at most 400 columns; a column with several calls draws the largest, and sums the items that left.

    `layers` has the index of each layer in the run, which determines its colour; `part` has the indices of the requests
    to draw, None for all; `points` are those of a replay, by thread: calls after them are as recorded.
    """
    shown = range(len(requests)) if part is None else part
    if not shown:
        return ContextScene(title=TITLE)
    places = columns_of(shown)
    calls = [parts.call(requests[largest(requests, some)], compactions) for some in places]
    every = parts.left(requests, compactions)
    left = [_sum([every[at] for at in some]) for some in places]
    ends = {} if points is None else points
    old = {
        at
        for at, call in enumerate(calls)
        if (end := ends.get(call.request.where.thread_id)) and call.request.seq >= end.seq
    }
    return _scene(calls, left, places, {} if layers is None else layers, parts.is_billed, old)


def calls_a_column(shown: range) -> int:
    """Return how many calls share a column."""
    return max(1, -(-len(shown) // COLUMNS))


def columns_of(shown: range) -> list[range]:
    size = calls_a_column(shown)
    return [shown[at : at + size] for at in range(0, len(shown), size)]


def call_ticks(places: Sequence[range]) -> list[tuple[float, str]]:
    """Return the number (from 1) of the first call in some columns."""
    if not places:
        return []
    room = min(TICKS, DIGITS // len(str(places[-1][-1] + 1)))
    step = -(-len(places) // max(1, room))
    return [(at + 0.5, str(places[at][0] + 1)) for at in range(0, len(places), step)]


def largest(requests: Sequence[RecordedRequest], places: range) -> int:
    """Return the index of the request that a column draws."""
    return max(places, key=lambda at: size_of(requests[at]))


def _sum(each: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {reason: sum([one.get(reason, 0) for one in each]) for reason in LEFT if any(reason in one for one in each)}


def folded(calls: Sequence[ContextCall]) -> tuple[list[str], list[dict[str, int]]]:
    """Return the bands from the bottom up, at most twelve, and the tokens of each call by band; the rest has small layers."""
    whole: dict[str, int] = {}
    for call in calls:
        for name, tokens in call.parts.items():
            whole[name] = whole.get(name, 0) + tokens
    layers = sorted((name for name in whole if name not in ORDER), key=lambda name: -whole[name])
    kept = {*[name for name in whole if name in ORDER], *layers}
    room = BANDS - len(kept - {*layers})
    if len(layers) > room:
        kept = {*kept, REST} - {*layers[BANDS - len({*[name for name in whole if name in ORDER], REST}) :]}
    bands = [name for name in whole if name in kept] + ([REST] if REST in kept and REST not in whole else [])
    found = []
    for call in calls:
        row = {name: tokens for name, tokens in call.parts.items() if name in kept}
        rest = sum(call.parts.values()) - sum(row.values())
        found.append({**row, REST: row.get(REST, 0) + rest} if rest else row)
    return sorted(bands, key=lambda name: ORDER.get(name, 2)), found


def _scene(
    calls: Sequence[ContextCall],
    left: Sequence[Mapping[str, int]],
    places: Sequence[range],
    layers: Mapping[str, int],
    is_billed: bool,
    old: Collection[int],
) -> ContextScene:
    bands, rows = folded(calls)
    sent = [sum(row.values()) for row in rows]
    budgets = [call.budget for call in calls]
    billed = [0 if call.request.called is None or not is_billed else call.request.called.input_tokens for call in calls]
    most = max([*sent, *billed, 1])
    limits = [budget[0] for budget in budgets if budget is not None]
    is_near = bool(limits) and max(limits) <= FAR * most
    top = nice_top(max([most, *(limits if is_near else [])]))
    series: dict[str, Series] = {
        f"band-{at}": Series(
            "box", "context", PAINT.get(name) or layer_colour(layers.get(name.removeprefix("layer:"), 0))
        )
        for at, name in enumerate(bands)
    }
    series["reserve"] = Series("box", "context", opacity=0.16)
    series["ceiling"] = Series("step", "context", width=1.5)
    series["more"] = Series("box", "context", PAINT[REST])  # tokens that other budgets would send outside all bands
    series["was"] = Series("step", "context", width=1.25, dash="4 3")
    series["billed"] = Series("step", "context", "#8B2E5D", "#E3A0C0", width=2)
    series["unknown"] = Series("box", "context", "paper", opacity=0.4)
    series["until"] = Series("box", "context", width=1.5, dash="2 4")
    reasons = [reason for reason in LEFT if any(reason in one for one in left)]
    series |= {f"left-{reason}": Series("box", "left", REASONS[reason]) for reason in LEFT}
    series["number"] = Series("text", "left")
    marks, stops = [], []
    for at, row in enumerate(rows):
        low = 0
        for number, name in enumerate(bands):
            if row.get(name):
                marks.append(Mark(f"band-{number}", [at, low, at + 1, low + row[name]]))
                low += row[name]
        budget = budgets[at]
        if is_near and budget is not None:
            marks.append(Mark("ceiling", [at, budget[0], at + 1]))
            if budget[1]:
                marks.append(Mark("reserve", [at, budget[0] - budget[1], at + 1, budget[0]]))
        if billed[at] > 0 and not calls[at].estimated:
            marks.append(Mark("billed", [at, billed[at], at + 1]))
        for reason in left[at]:
            marks.append(Mark(f"left-{reason}", [at + 0.1, reason, at + 0.9, reason]))
        stops.append((at, at + 1, _said(calls[at], row, left[at], places[at], billed[at], at in old)))
    edges = [at for at in range(len(rows) + 1) if (at in old) != (at - 1 in old)]
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        marks += [Mark(name, [begin, None, end, None]) for name in ("unknown", "until")]
    if len(rows) <= COUNTED:
        marks += [
            Mark("number", [at + 0.5, reason], str(number or "?"))
            for at, one in enumerate(left) for reason, number in one.items()
        ]  # fmt: skip
    panel = Panel("context", PANEL_PX, high=top, caption=_caption(calls, places, limits, is_near))
    panel.add_ticks([(0, "0"), (top, count(top)), (top / 2, count(top / 2))])
    panels = [panel]
    if reasons:
        panels.append(
            Panel("left", LANE_PX * len(reasons), lanes=reasons, ticks=[(each, each) for each in reasons],
                  caption="items that left the context, by reason")
        )  # fmt: skip
    used = {mark.series for mark in marks}
    legend = [(f"band-{at}", plain_line(name.removeprefix("layer:"), NAME_LENGTH)) for at, name in enumerate(bands)]
    legend += [("ceiling", "budget"), ("reserve", "reserve"), ("billed", "billed"), ("until", "not known")]
    return ContextScene(
        panels,
        marks,
        0,
        len(rows),
        series,
        call_ticks(places),
        "call",
        stops,
        TITLE,
        [entry for entry in legend if entry[0] in used],
        bands=bands,
    )


def _caption(calls: Sequence[ContextCall], places: Sequence[range], limits: Sequence[float], is_near: bool) -> str:
    said = ["tokens of each request"]
    if any(call.estimated for call in calls):
        said.append("parts estimated from the texts")
    if len(places[0]) > 1:
        said.append(f"of each {len(places[0])} calls the largest")
    if limits and not is_near:
        said.append(f"budget {count(max(limits))}, far above")
    return " · ".join(said)


def _said(
    call: ContextCall, row: Mapping[str, int], left: Mapping[str, int], places: range, billed: int, is_old: bool
) -> str:
    where: Any = call.request.where
    name = f"Call {places[0] + 1}" if len(places) == 1 else f"Calls {places[0] + 1} to {places[-1] + 1}"
    parts = [f"{plain_line(part.removeprefix('layer:'), NAME_LENGTH)} {count(tokens)}" for part, tokens in row.items()]
    about = [*(["parts estimated"] if call.estimated else []), *(["of the old way"] if is_old else [])]
    more = f" ({', '.join(about)})" if about else ""
    head = f"{name}, turn {where.turn}: {count(sum(row.values()))} tokens{more}"
    bill = [f"billed {count(billed)}"] if billed > 0 and not call.estimated else []
    gone = (
        [
            f"left {sum(left.values()) or 'an unknown number'}: "
            + ", ".join([f"{reason} {number or '?'}" for reason, number in left.items()])
        ]
        if left
        else []
    )
    return "\n".join([head, " · ".join([*parts, *bill]), *gone])
