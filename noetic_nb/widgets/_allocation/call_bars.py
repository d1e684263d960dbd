"""A model call as a scene: what was sent above what was planned, as bars on a token axis, and what is known of its caching."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from noetic_nb.plots._scene.scene import Mark, Panel, Scene, Series
from noetic_nb.runs._palette import CATEGORY, layer_colour
from noetic_nb.runs._plain_text import count, plain
from noetic_nb.runs._requests.model_calls import Calls, CallShare, Part
from noetic_nb.runs._requests.prefix_reuse import PrefixReuse

BROKE = "broke the prefix here"


@dataclass(frozen=True, slots=True)
class CallCaching:
    """A sentence about a call, the key of the part that broke its prefix, and the shared tokens by key."""

    line: str = ""
    broke: str | int | None = None
    shared: dict[str | int, int] = field(default_factory=dict)


NO_CACHING = CallCaching()
"""For a call that is not compared, such as one that was planned again."""


def caching_of(reuse: PrefixReuse | None, calls: Calls) -> CallCaching:
    """Return the caching to show for a call; items appended after the history count as history."""
    if reuse is None:
        return CallCaching("Caching: the run does not have all of this request.")
    shared: dict[str | int, int] = {}
    for part in reuse.parts:
        key = _key(part.origin, calls)
        shared[key] = shared.get(key, 0) + part.shared
    broke = None if reuse.broken_by is None else _key(reuse.broken_by, calls)
    line = f"{_shared(reuse)} {_cached(reuse)}"
    return CallCaching(line, broke, shared)


def _key(origin: str, calls: Calls) -> str | int:
    if origin.startswith("layer:"):
        number = calls.number(origin.removeprefix("layer:"))
        return "history" if number is None else number  # a summary that replaces history
    return "history" if origin == "appended" else origin


def _shared(reuse: PrefixReuse) -> str:
    if reuse.is_first:
        return "Caching: no call of this model before it in the thread."
    share = f" ({100 * reuse.shared / reuse.tokens:.0f}%)" if reuse.tokens else ""
    begins = f"Caching: begins like the call before for {count(reuse.shared)} of {count(reuse.tokens)} tokens{share}"
    if reuse.broken_by is None:
        return f"{begins}, and goes on."
    kind, _, name = reuse.broken_by.partition(":")
    words = {"layer": f"layer {plain(name)}", "system": "the instructions", "tools": "the tools"}
    return f"{begins}: {words.get(kind, 'the history')} {BROKE}."


def _cached(reuse: PrefixReuse) -> str:
    if reuse.rules is None or reuse.cached is None:
        model = plain(reuse.model) if reuse.model else "not recorded"
        return f"No caching estimate: the caching rules of the model ({model}) are unknown."
    least = "" if reuse.cached else f" (the least is {count(reuse.rules.minimum)})"
    return f"Predicted to be cached, by the rules of {plain(reuse.rules.provider)}: {count(reuse.cached)}{least}."


# A part that exists is seen, however small: about two pixels on a narrow page, which is so wide; a wide letter has seven.
LEAST_WIDTH: Final = 0.45
NARROW_PX: Final = 340
LETTER_PX: Final = 7.0
CALL: Final = "call"
CALL_PX: Final = 52
LANES: Final = ("Sent", "Planned")
LOOKS: Final = {
    **{kind: Series("bar", CALL, fill) for kind, fill in CATEGORY.items()},
    # What is free is an empty frame, the reserve a light field.
    "free": Series("bar", CALL, "ink", opacity=0.0, dash="3 3"),
    "reserve": Series("bar", CALL, "ink", opacity=0.16),
    "limit": Series("bar", CALL, "ink"),
}
"""Those of the parts that every call has, by key; `looks_of` has the others."""


def looks_of(fill: str) -> tuple[Series, Series]:
    """Return the looks of a layer and of what it yielded."""
    return Series("bar", CALL, fill), Series("bar", CALL, fill, opacity=0.22, dash="3 2")


def widths(tokens: Sequence[float], scale: float) -> list[float]:
    """Return the lengths of a bar's segments, in percent of a scale.

    Each is at least `LEAST_WIDTH`; the width that small segments gain is taken proportionally from large ones. All tokens
    must be positive.

    Examples
    --------
    >>> widths([50, 25], 100)
    [50.0, 25.0]
    >>> [round(width, 2) for width in widths([1, 999_999], 1_000_000)]
    [0.45, 99.55]
    """
    exact = [100 * number / scale for number in tokens]
    wide = [max(width, LEAST_WIDTH) for width in exact]
    # Enlarging small segments makes the bar too long; only the excess of the others over the minimum can shrink.
    excess = sum(wide) - sum(exact)
    slack = sum(wide) - LEAST_WIDTH * len(wide)
    if excess <= 0 or slack <= excess:
        return wide
    return [width - excess * (width - LEAST_WIDTH) / slack for width in wide]


def ticks(scale: float) -> list[tuple[float, str]]:
    """Return the ticks of a token axis: positions in percent, and labels.

    Examples
    --------
    >>> ticks(8_000)
    [(0.0, '0'), (25.0, '2,000'), (50.0, '4,000'), (75.0, '6,000'), (100.0, '8,000')]
    >>> ticks(37)
    [(0.0, '0'), (27.027, '10'), (54.054, '20'), (81.081, '30')]
    >>> [text for _, text in ticks(1_200)]
    ['0', '500', '1,000']
    """
    unit = 10.0 ** math.floor(math.log10(scale / 4))
    # The coarsest usual step that leaves at least two ticks besides 0; more than five would touch on a narrow page.
    step = next((unit * part for part in (10, 5, 2, 1) if unit * part >= 1 and scale / (unit * part) >= 2), 1.0)
    return [(round(100 * at * step / scale, 3), count(at * step)) for at in range(int(scale / step) + 1)]


def key_of(part: Part) -> str | int:
    """Return the key of a part in messages; for a layer a number, because a call may have many layers."""
    if part.layer is None:
        return part.kind
    return -1 - part.layer if part.kind == "yielded" else part.layer


class Bar(NamedTuple):
    """A part of a call between two places, in percent of its scale."""

    part: Part
    left: float
    right: float
    broke: bool
    """Whether it broke the prefix."""
    room: int
    """What fits on a narrow page: 0 nothing, 1 its name, cut where it is too long, 2 its tokens as well."""


def bars_of(call: CallShare, order: dict[str, int], caching: CallCaching = NO_CACHING) -> list[list[Bar]]:
    """Return the bars of what was sent and of what was planned; `order` numbers the layers of the run."""
    every = call.sent_parts(order), call.planned_parts(order)
    scale, rows = call.scale_of(*every), []
    for at, parts in enumerate(every):
        row: list[Bar] = []
        left = 0.0
        for part, width in zip(parts, widths([part.tokens for part in parts], scale), strict=True):
            letters = len(f"{part.label} {count(part.tokens)}")
            room = 2 if letters * LETTER_PX + 12 < width / 100 * NARROW_PX else 1
            broke = at == 0 and caching.broke == key_of(part)
            right = round(left + width, 3)
            row.append(Bar(part, left, right, broke, 0 if part.kind == "yielded" else room))
            left = right
        rows.append(row)
    return rows


def limit_of(call: CallShare, order: dict[str, int]) -> float | None:
    """Return where the budget ends if the call goes beyond it."""
    scale = call.scale(order)
    return None if call.total is None or call.total >= scale else round(100 * call.total / scale, 3)


def call_scene(call: CallShare, order: dict[str, int], caching: CallCaching = NO_CACHING) -> Scene:
    """Return a call as a scene, as pages make it of `bars_of`.

    Examples
    --------
    >>> from noetic_nb.runs._requests.model_calls import CallShare
    >>> call = CallShare("t", 1, 1, 0, 100.0, 20.0, 10, 0, 0, 40, 70.0, 2, (), ())
    >>> [mark.words for mark in call_scene(call, {}).marks if mark.points[1] == "Sent"]
    ['System', 'History 40', 'Free 30', 'Reserve']
    """
    marks, limit = [], limit_of(call, order)
    for lane, row in zip(LANES, bars_of(call, order, caching), strict=True):
        for part, left, right, broke, room in row:
            tokens = count(part.tokens)
            size = f"{tokens} token{'s' * (tokens != '1')}"
            tip = f"{part.label}{' (yielded)' * (part.kind == 'yielded')}: {size}{f'; {BROKE}' * broke}"
            words = ("", part.label, f"{part.label} {tokens}")[room]
            marks.append(Mark(f"{key_of(part)}", [left, lane, right], tip, words, "▼" * broke))
        if limit is not None:
            marks.append(Mark("limit", [limit, lane, limit], "Budget"))
    looks = dict(LOOKS)
    for number in order.values():
        looks[f"{number}"], looks[f"{-1 - number}"] = looks_of(layer_colour(number))
    panel = Panel(CALL, CALL_PX, lanes=LANES, ticks=[(name, name) for name in LANES])
    return Scene([panel], marks, 0, 100, looks, ticks(call.scale(order)), "tokens")
