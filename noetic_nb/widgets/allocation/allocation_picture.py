"""The picture of one model call: computed once, drawn as HTML and SVG without scripts, as plain text, or sent to a page.

Lengths are in percent of the page, so that text keeps its size at every width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from noetic_nb.markup import escape
from noetic_nb.runs.model_calls import CallShare, LeftOut, Part
from noetic_nb.runs.palette import CATEGORY, ink_on, layer_colour
from noetic_nb.runs.plain_text import REASONS, count
from noetic_nb.widgets.allocation.call_strip import strip_html

__all__ = [
    "COLUMNS",
    "EMPTY",
    "LEAST_WIDTH",
    "LOOKS",
    "NOTE",
    "call_data",
    "fixed_parts",
    "static_html",
    "static_text",
    "ticks",
    "widths",
]

EMPTY: Final = "No model call yet. Each call appears here as soon as the agent sends one."
NOTE: Final = (
    "Planned is the split of the budget before the call; tools and framing come off history. "
    "Pale with a dashed edge: allocated to a layer, not used by it, yielded to history. "
    "Unexplained is what was billed beyond all that was planned: the provider's own additions, and the error of the counter."
)
# Older calls stay in the run's tables; a page of a saved notebook stays light. A short list is shown at once.
CALLS_SHOWN: Final = 60
CALLS_OPEN: Final = 12
# A part that exists is seen, however small: about two pixels on a narrow page.
LEAST_WIDTH: Final = 0.45
# A label is drawn where it fits a narrow page, or else a roomy one only; seven pixels are a wide letter of this size.
NARROW_PX: Final = 340
ROOMY_PX: Final = 700
LETTER_PX: Final = 7.0
COLUMNS: Final = ("Part", "Used", "Allocated", "Yielded", "Items")
# A message to the page stays near 2 kB however much was left out; the rest is counted, and is in the run's tables.
FATES_SENT: Final = 12

LOOKS: Final[dict[str, dict[str, str]]] = {
    **{kind: {"fill": "$"} for kind in ("system", "tools", "layer", "framing", "history", "unexplained")},
    "yielded": {"fill": "$", "fill-opacity": "0.22", "stroke": "$", "stroke-dasharray": "3 2"},
    # What is free is an empty frame, the reserve a light field.
    "free": {
        "fill": "currentColor",
        "fill-opacity": "0",
        "stroke": "currentColor",
        "stroke-opacity": "0.55",
        "stroke-dasharray": "3 3",
    },
    "reserve": {"fill": "currentColor", "fill-opacity": "0.16", "stroke": "currentColor", "stroke-opacity": "0.55"},
}
"""SVG attributes of a segment, by its kind; ``$`` is the colour of the layer or of the kind."""


def widths(tokens: Sequence[float], scale: float) -> list[float]:
    """Return the lengths of the segments of a bar, in percent of a scale.

    Each is at least `LEAST_WIDTH`; what small segments gain is taken from large ones, in proportion. Tokens are above
    0.

    Examples
    --------
    >>> widths([50, 25], 100)
    [50.0, 25.0]
    >>> [round(width, 2) for width in widths([1, 999_999], 1_000_000)]
    [0.45, 99.55]
    """
    exact = [100 * number / scale for number in tokens]
    wide = [max(width, LEAST_WIDTH) for width in exact]
    # Growing the small ones makes the bar too long; only what the large ones have above the least can shrink.
    excess = sum(wide) - sum(exact)
    slack = sum(wide) - LEAST_WIDTH * len(wide)
    if excess <= 0 or slack <= excess:
        return wide
    return [width - excess * (width - LEAST_WIDTH) / slack for width in wide]


def ticks(scale: float) -> list[list[Any]]:
    """Return the marks of a token axis: places in percent, and numbers.

    Examples
    --------
    >>> ticks(8_000)
    [[0.0, '0'], [25.0, '2,000'], [50.0, '4,000'], [75.0, '6,000'], [100.0, '8,000']]
    >>> ticks(37)
    [[0.0, '0'], [27.027, '10'], [54.054, '20'], [81.081, '30']]
    """
    unit = 10.0 ** math.floor(math.log10(scale / 4))
    # The coarsest of the usual steps that leaves at least three marks beside 0.
    step = next((unit * part for part in (10, 5, 2, 1) if unit * part >= 1 and scale / (unit * part) >= 3), 1.0)
    return [[round(100 * at * step / scale, 3), count(at * step)] for at in range(int(scale / step) + 1)]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table behind the bars, in tokens as text; empty where a column does not apply."""

    part: Part
    used: str = ""
    allocated: str = ""
    yielded: str = ""
    items: str = ""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The columns beside the name."""
        return self.used, self.allocated, self.yielded, self.items

    @property
    def words(self) -> str:
        """The line for a legend.

        Examples
        --------
        >>> Row(Part("layer", "notes", 40, 0), "40", "100", "60", "1").words
        '40 of 100, 60 yielded'
        """
        if self.part.kind == "history":
            return self.used if self.used == self.allocated else f"{self.used}, {self.allocated} planned"
        of = f"{self.used} of {self.allocated}" if self.used and self.allocated else self.used or self.allocated
        return f"{of}, {self.yielded} yielded" if self.yielded not in ("", "0") else of


def rows(call: CallShare, order: dict[str, int]) -> list[Row]:
    """Return the table behind the bars, from the system prompt to the reserve."""
    free = count(call.free) if call.total is not None else "no limit"
    return [
        Row(Part("system", "System", call.system), count(call.system)),
        Row(Part("tools", "Tools", call.tools), count(call.tools)),
        *(
            Row(
                Part("layer", layer.name, layer.used, order[layer.name]),
                count(layer.used),
                count(layer.allocated),
                "" if layer.yielded is None else count(layer.yielded),
                str(layer.items),
            )
            for layer in call.layers
        ),
        Row(Part("framing", "Framing", call.framing), count(call.framing)),
        Row(
            Part("history", "History", call.history),
            count(call.history),
            count(call.history_budget),
            "",
            str(call.history_items),
        ),
        *_unexplained(call),
        Row(Part("free", "Free", call.free), free),
        Row(Part("reserve", "Reserve", call.reserve), "", count(call.reserve)),
    ]


def _unexplained(call: CallShare) -> list[Row]:
    if not call.unexplained:
        return []
    tokens = count(call.unexplained) if call.unexplained > 0 else f"−{count(-call.unexplained)}"
    return [Row(Part("unexplained", "Unexplained", max(0, call.unexplained)), tokens)]


def left_out_text(entry: LeftOut) -> str:
    """Return one fate as a sentence.

    Examples
    --------
    >>> left_out_text(LeftOut("history", "outside_window", 0, 3, 4, None))
    'history, items 0 to 3: outside the window (4 items)'
    """
    places = f"item {entry.first}" if entry.first == entry.last else f"items {entry.first} to {entry.last}"
    size = f"{entry.count} item{'' if entry.count == 1 else 's'}"
    tokens = "" if entry.tokens is None else f", {count(entry.tokens)} tokens"
    return f"{entry.origin}, {places}: {REASONS.get(entry.reason, entry.reason)} ({size}{tokens})"


def dropped_text(call: CallShare) -> str:
    """Return how many items were left out; their tokens only where the run knows them, as inside the window."""
    number, tokens = call.dropped
    size = f", {count(tokens)} tokens" if tokens else ""
    return f"Left out: {number} item{'' if number == 1 else 's'}{size}"


def _key(part: Part) -> str | int:
    """Return what a part is called in messages; a layer is a number, because a call may have many of them."""
    if part.layer is None:
        return part.kind
    return -1 - part.layer if part.kind == "yielded" else part.layer


def call_data(call: CallShare, order: dict[str, int]) -> dict[str, Any]:
    """Return the picture of a call as JSON data for the page, which makes elements of it and computes nothing."""
    sent, planned = call.sent_parts(order), call.planned_parts(order)
    scale = call.scale_of(sent, planned)

    def segments(parts: Sequence[Part]) -> list[list[Any]]:
        lengths = widths([part.tokens for part in parts], scale)
        return [[_key(part), count(part.tokens), round(width, 3)] for part, width in zip(parts, lengths, strict=True)]

    left_out = [left_out_text(entry) for entry in call.left_out[:FATES_SENT]]
    if len(call.left_out) > FATES_SENT:
        left_out.append(f'and {len(call.left_out) - FATES_SENT} more; the table "items" of the run has all')
    return {
        "title": call.title,
        "head": call.headline,
        "counted": call.counted,
        "turn": call.turn,
        "limit": None if call.total is None or call.total >= scale else round(100 * call.total / scale, 3),
        "ticks": ticks(scale),
        "sent": segments(sent),
        "planned": segments(planned),
        "rows": [[_key(row.part), row.words, *row.cells] for row in rows(call, order)],
        "dropped": dropped_text(call),
        "out": left_out,
    }


def _fill_of(part: Part) -> str | None:
    """Return the colour of a segment, None for the parts that are drawn as an outline."""
    if part.layer is not None:
        return layer_colour(part.layer)
    return CATEGORY.get(part.kind)


def fixed_parts() -> dict[str, list[str]]:
    """Return label, fill and ink of the parts that every call has; a layer has the same three."""
    filled = {kind: [kind.capitalize(), fill, ink_on(fill)] for kind, fill in CATEGORY.items()}
    return {**filled, "free": ["Free", "", "currentColor"], "reserve": ["Reserve", "", "currentColor"]}


def _look(part: Part) -> str:
    fill = _fill_of(part) or ""
    return " ".join(f'{name}="{value.replace("$", fill)}"' for name, value in LOOKS[part.kind].items())


def _tip(part: Part) -> str:
    return f"{part.label}{' (yielded)' if part.kind == 'yielded' else ''}: {count(part.tokens)} tokens"


def _label(part: Part, width: float, height_px: int) -> str:
    needed = len(part.label) * LETTER_PX + 12
    # Static pages have no script to measure text: its width is estimated, and a query on the container hides the rest.
    if part.kind == "yielded" or needed > width / 100 * ROOMY_PX:
        return ""
    roomy = ' class="nn-roomy"' if needed > width / 100 * NARROW_PX else ""
    fill = _fill_of(part)
    ink = "currentColor" if fill is None else ink_on(fill)
    return f'<text{roomy} x="6" y="{height_px / 2 + 4.5}" font-size="12" fill="{ink}">{escape(part.label)}</text>'


def _bar(parts: Sequence[Part], scale: float, *, label: str, height_px: int, limit: float | None = None) -> str:
    """Return a stacked bar as an escaped ``svg`` element.

    The segments come from the left, `scale` tokens are the whole length, and `label` is for people who do not see it.
    `limit` is where the budget ends, in tokens, when the bar goes beyond it.
    """
    drawn = [
        f'<svg class="nn-bar" role="img" aria-label="{escape(label)}" width="100%" height="{height_px}" '
        'xmlns="http://www.w3.org/2000/svg">'
    ]
    left = 0.0
    for part, width in zip(parts, widths([part.tokens for part in parts], scale), strict=True):
        drawn.append(
            f'<svg x="{left:.3f}%" width="{width:.3f}%" height="{height_px}"><title>{escape(_tip(part))}</title>'
            f'<rect class="nn-mark" data-kind="{part.kind}" width="100%" height="{height_px}" {_look(part)}/>'
        )
        if height_px >= 20:
            drawn.append(_label(part, width, height_px))
        drawn.append("</svg>")
        left += width
    if limit is not None and limit < scale:
        at = 100 * limit / scale
        drawn.append(
            f'<rect class="nn-limit" x="{at:.3f}%" width="3" height="{height_px}"><title>Budget</title></rect>'
        )
    drawn.append("</svg>")
    return "".join(drawn)


def _swatch(part: Part) -> str:
    """Return a small square in the look of a segment."""
    return (
        '<svg class="nn-swatch" width="12" height="12" aria-hidden="true" xmlns="http://www.w3.org/2000/svg">'
        f'<rect x="0.5" y="0.5" width="11" height="11" {_look(part)}/></svg>'
    )


def _table(call: CallShare, order: dict[str, int]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    body = "".join(
        f'<tr><th scope="row"><span class="nn-cell">{_swatch(row.part)}<span>{escape(row.part.label)}</span></span></th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
        + "</tr>"
        for row in rows(call, order)
    )
    caption = '<caption class="nn-hidden">Tokens by part</caption>'
    return (
        f'<div class="nn-scroll"><table class="nn-table">{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _left_out(call: CallShare) -> str:
    if not call.left_out:
        return '<p class="nn-note">Nothing was left out.</p>'
    entries = "".join(f"<li>{escape(left_out_text(entry))}</li>" for entry in call.left_out)
    return f'<details open><summary>{dropped_text(call)}</summary><ul class="nn-list">{entries}</ul></details>'


def _all_calls(calls: Sequence[CallShare], order: dict[str, int]) -> str:
    if len(calls) < 2:
        return ""
    shown = calls[-CALLS_SHOWN:]
    scale = max(call.scale(order) for call in shown)
    # The thread is named only where it tells calls apart; most runs have one.
    several = len({call.thread for call in shown}) > 1 or any(call.depth for call in shown)
    lines = "".join(
        f'<tr><th scope="row">{escape(call.title if several else call.title.partition(" · ")[0])}</th><td class="nn-wide">'
        f"{_bar(call.sent_parts(order), scale, label=call.headline, height_px=12)}</td>"
        f"<td>{count(call.sent)}</td></tr>"
        for call in shown
    )
    earlier = f", the last {len(shown)} shown" if len(shown) < len(calls) else ""
    return (
        f"<details{' open' if len(shown) <= CALLS_OPEN else ''}><summary>All {len(calls)} model calls{earlier}</summary>"
        f'<div class="nn-scroll"><table class="nn-table"><thead><tr><th scope="col">Call</th>'
        f'<th scope="col">Sent</th><th scope="col">Tokens</th></tr></thead><tbody>{lines}</tbody></table></div></details>'
    )


def _counted(call: CallShare) -> str:
    return f'<p class="nn-note nn-counted">{escape(call.counted)}</p>' if call.counted else ""


def _axis(scale: float) -> str:
    """Return the token axis below the bars."""
    marks = ticks(scale)
    words = "".join(
        f'<text x="{place:.3f}%" y="18" font-size="11" text-anchor="{_anchor(place)}"{_roomy(at, len(marks))}>{number}</text>'
        f'<line x1="{place:.3f}%" x2="{place:.3f}%" y1="0" y2="5" stroke="currentColor"/>'
        for at, (place, number) in enumerate(marks)
    )
    return (
        '<svg class="nn-axis" aria-hidden="true" width="100%" height="22" fill="currentColor" '
        f'xmlns="http://www.w3.org/2000/svg">{words}</svg>'
    )


def _anchor(place: float) -> str:
    return "start" if place < 4 else "end" if place > 96 else "middle"


def _roomy(at: int, marks: int) -> str:
    # On a narrow page every other number: seven of them would run together.
    return ' class="nn-roomy"' if marks > 4 and at % 2 else ""


def static_html(
    calls: Sequence[CallShare], shown: int, order: dict[str, int], empty: str, strip: dict[str, Any]
) -> str:
    """Return the picture of one call, below that of all calls, as HTML without scripts; `empty` where there is none."""
    head = '<p class="nn-title">Token allocation</p>'
    if not calls:
        return f'{head}<p class="nn-empty">{empty}</p>'
    call = calls[shown]
    scale = call.scale(order)
    sent = _bar(call.sent_parts(order), scale, label=f"Sent: {call.headline}", height_px=34, limit=call.total)
    planned = _bar(call.planned_parts(order), scale, label="Planned before the call", height_px=16, limit=call.total)
    every = strip_html(strip, shown % len(calls)) if len(calls) > 1 else ""
    return (
        f'{head}{every}<p class="nn-sub">{escape(call.title)}: {escape(call.headline)}</p>'
        f'<div class="nn-rows"><span class="nn-row-name">Sent</span>{sent}'
        f'<span class="nn-row-name">Planned</span>{planned}'
        f'<span class="nn-row-name">Tokens</span>{_axis(scale)}</div>'
        f'{_counted(call)}<p class="nn-note">{NOTE}</p>'
        f"{_table(call, order)}{_left_out(call)}{_all_calls(calls, order)}"
    )


def static_text(calls: Sequence[CallShare], shown: int, order: dict[str, int], empty: str = EMPTY) -> str:
    """Return one call as plain text; `empty` where there is none."""
    if not calls:
        return f"Token allocation. {empty}"
    call = calls[shown]
    table = rows(call, order)
    width = max(len(row.part.label) for row in table)
    lines = [f"Token allocation. {call.title}", call.headline, *([call.counted] if call.counted else [])]
    lines += [f"  {row.part.label:<{width}}  {row.words}" for row in table]
    if call.dropped[0]:
        lines += [dropped_text(call), *(f"  {left_out_text(entry)}" for entry in call.left_out)]
    return "\n".join(lines)
