"""Ribbons of single items below the context over time: when known, when sent, and why no longer sent."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from noetic_nb.items import Item, item_text
from noetic_nb.plots._context_scene import ORDER, PAINT, REASONS, call_ticks, calls_a_column, columns_of
from noetic_nb.plots._scene.scene import LANE_PX, Mark, Panel, Scene, Series
from noetic_nb.runs._plain_text import plain_line
from noetic_nb.runs._requests.item_lives import LEFT, ItemLife

# More ribbons would be too thin to tell apart and to click.
RIBBONS: Final = 80
LEAST_PX: Final = 4
PANEL_PX: Final = 240
LABEL_PX: Final = 16
WORDS_LENGTH: Final = 90
# Sent stretches named in words, for an item that comes and goes.
STRETCHES: Final = 3
# Width of an end mark, in columns and as a share of all: visible with many columns, and small with few.
END: Final = 0.25
END_SHARE: Final = 120

SERIES: Final = {
    "known": Series("box", "items", opacity=0.13),
    **{f"item-{at}": Series("box", "items", PAINT[kind]) for kind, at in ORDER.items()},
    **{f"end-{reason}": Series("box", "items", REASONS[reason]) for reason in LEFT},
    "life": Series("bar", "items", "transparent"),
}
"""The series of the ribbon panel; an item has the colour of its band, and a clickable bar over its whole life."""


def ribbon_scene(
    lives: Sequence[ItemLife], kinds: Sequence[str], shown: Sequence[int], part: range, name: str
) -> Scene:
    """Return the ribbons of items, at most `RIBBONS`: the last ones.

    `kinds` are their bands, `shown` the indices of the shown calls among all of the run, and `part` the range to draw.
    """
    # Not by position: a rewritten log has several items at one position.
    lanes = [str(at) for at in range(len(lives[-RIBBONS:]))]
    if not lanes:
        return Scene()
    row = max(LEAST_PX, min(LANE_PX, PANEL_PX // len(lanes)))
    size = calls_a_column(part)
    last = -(-len(part) // size)
    marks: list[Mark] = []
    for life, kind, lane in zip(lives[-RIBBONS:], kinds[-RIBBONS:], lanes, strict=True):
        calls = _columns((life.known, life.last), shown, part, size)
        if calls is None:
            continue
        marks.append(Mark("known", [calls[0], lane, calls[1], lane]))
        marks.append(Mark("life", [calls[0], lane, calls[1]], said(life, kind, shown), key=f"{life.position} {lane}"))
        ends = [found for stretch in life.sent if (found := _columns(stretch, shown, part, size)) is not None]
        marks += [Mark(f"item-{ORDER[kind]}", [left, lane, right, lane]) for left, right in ends]
        for at, reason in life.dropped:
            column = _columns((at, at), shown, part, size)
            if column is not None:
                left = max([column[0], *[right for _, right in ends if right <= column[1]]])
                wide = max(END, last / END_SHARE)
                marks.append(Mark(f"end-{reason}", [left, lane, min(last, left + wide), lane]))
    more = f", the last {RIBBONS} of {len(lives):,}" if len(lives) > RIBBONS else ""
    panel = Panel(
        "items", row * len(lanes), lanes=lanes, caption=f"items of {name}{more}: sent, known (pale), and why they left"
    )
    step = -(-LABEL_PX // row)
    panel.ticks = [
        (lane, f"item {life.position}") for lane, life in list(zip(lanes, lives[-RIBBONS:], strict=True))[::step]
    ]
    return Scene([panel], marks, 0, last, SERIES, call_ticks(columns_of(part)), "call")


def _columns(stretch: tuple[int, int], shown: Sequence[int], part: range, size: int) -> tuple[int, int] | None:
    """Return the first column of a series of calls and the one after its last, or None if it is not in the drawn part."""
    first = max(bisect_left(shown, stretch[0]), part.start)
    stop = min(bisect_right(shown, stretch[1]), part.stop)
    return None if stop <= first else ((first - part.start) // size, (stop - 1 - part.start) // size + 1)


def said_first(item: Item, kind: str) -> str:
    """Return the band of an item and its beginning."""
    return f"{kind}: {item_text(item) or item.get('arguments') or item['type']}"


def said(life: ItemLife, kind: str, shown: Sequence[int]) -> str:
    """Describe in one line which calls knew an item, sent it and missed it, counted from 1 as below the picture."""

    def number(at: int) -> int:
        return bisect_left(shown, at) + 1

    def calls(first: int, last: int) -> str:
        one, other = number(first), bisect_right(shown, last)
        return f"call {one}" if other <= one else f"calls {one} to {other}"

    parts = [
        f"item {life.position}, {plain_line(said_first(life.item, kind), WORDS_LENGTH)}",
        f"known from call {number(life.known)}",
    ]
    sent = [calls(*stretch) for stretch in life.sent]
    parts += [f"sent with {' and '.join(sent[:STRETCHES])}"] if sent else []
    parts += [f"missing from call {number(at)} ({reason})" for at, reason in life.dropped[:STRETCHES]]
    more = max(len(sent), len(life.dropped)) - STRETCHES
    return " · ".join([*parts, *([f"and {more} more time{'s' * (more > 1)}"] if more > 0 else [])])
