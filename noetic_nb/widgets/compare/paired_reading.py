"""Two lists of runs in pairs, as a table with a small plot: mean differences and their intervals."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from noetic_nb.events import RunEvent
from noetic_nb.lab.replaying.paired_runs import PairedComparison
from noetic_nb.lab.statistics.intervals import CONFIDENCE
from noetic_nb.markup import escape
from noetic_nb.runs.plain_text import plain
from noetic_nb.widgets.base.feed import Place, Reading

__all__ = ["PairedReading"]

# Pixels; the scale of each row is its own, because metrics have units of their own.
WIDTH: Final = 220
HEIGHT: Final = 22
_PAD: Final = 8
HEADS: Final = ("Metric", "Mean of a", "Mean of b", "b − a", f"{100 * CONFIDENCE:.0f} % interval", "Pairs")


class PairedReading(Reading):
    """The differences between two lists of runs, which change no more.

    Parameters
    ----------
    found : PairedComparison
        The comparison.
    """

    def __init__(self, found: PairedComparison) -> None:
        self.found = found
        alone = len(found.unpaired)
        self.title = f"{found.pairs:,} pair{'' if found.pairs == 1 else 's'} by {found.paired_by}" + (
            f"; {alone:,} run{' has' if alone == 1 else 's have'} no counterpart" if alone else ""
        )
        self.rows = [_row(each) for each in found.rows]
        self.snapshot = {
            "paired": True,
            "title": self.title,
            "heads": list(HEADS),
            "rows": self.rows,
            "size": [WIDTH, HEIGHT],
        }

    def take(self, event: RunEvent, place: Place) -> None:
        """Take an event: lists do not grow."""

    def to_html(self) -> str:
        """Return the table as HTML without scripts."""
        heads = "".join([f'<th scope="col">{escape(name)}</th>' for name in (*HEADS, "b − a, zero in the middle")])
        body = "".join(
            [
                f'<tr><th scope="row">{escape(row["cells"][0])}</th>'
                f"{''.join([f'<td>{escape(cell)}</td>' for cell in row['cells'][1:]])}<td>{_plot(row)}</td></tr>"
                for row in self.rows
            ]
        )
        return (
            f'<p class="nn-title">Compare</p><p class="nn-sub">{escape(self.title)}</p><div class="nn-scroll">'
            f'<table class="nn-table nn-paired"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def to_text(self) -> str:
        """Return the table as plain text."""
        rows = [f"  {row['cells'][0]}: {row['said']}" for row in self.rows]
        return "\n".join([f"Compare. {self.title}", *rows])


def _row(each: Any) -> dict[str, Any]:
    name = plain(each.metric)
    if not each.n:
        return {
            "cells": [name, "", "", "", "not known", "0"],
            "said": "not known in any pair",
            "plot": None,
            "clear": False,
        }
    bounds = f"[{_number(each.low)}, {_number(each.high)}]"
    cells = [name, _number(each.a), _number(each.b), f"{each.difference:+.4g}", bounds, f"{each.n:,}"]
    clear = each.low > 0 or each.high < 0
    said = f"{cells[1]} | {cells[2]}, b − a = {cells[3]} {bounds}, {cells[5]} pairs" + (
        "" if clear else "; it may be none"
    )
    return {"cells": cells, "said": said, "plot": _places(each), "clear": clear}


def _number(value: float) -> str:
    return f"{value:,.4g}"


def _places(each: Any) -> list[float] | None:
    """Return where the ends of the interval and the mean stand, pixels from the left; zero is in the middle."""
    values = (each.low, each.difference, each.high)
    if not all(isfinite(value) for value in values):
        return None
    most = max([abs(value) for value in values]) or 1.0
    half = WIDTH / 2 - _PAD
    return [round(WIDTH / 2 + half * value / most, 1) for value in values]


def _plot(row: dict[str, Any]) -> str:
    if row["plot"] is None:
        return ""
    low, mean, high = row["plot"]
    middle, y = WIDTH / 2, HEIGHT / 2
    look = "nn-clear" if row["clear"] else "nn-open"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(row["said"])}">'
        f'<line class="nn-zero" x1="{middle}" x2="{middle}" y1="1" y2="{HEIGHT - 1}"/>'
        f'<line class="nn-interval" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>'
        f'<circle class="{look}" cx="{mean}" cy="{y}" r="4.5"/></svg>'
    )
