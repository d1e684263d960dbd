"""The static forms of two runs side by side: their totals, and the first differences."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.markup import escape
from noetic_nb.widgets.base.text_diff import parts_html, parts_text

__all__ = ["EMPTY", "ComparePicture"]

EMPTY: Final = "No turn yet. Turns of both runs appear here side by side."

# As much as a reader without a kernel scrolls through; `to_frame()` has everything.
PAIRS_SHOWN: Final = 10
GOES: Final = 3


class ComparePicture:
    """Two runs as HTML and as text."""

    def __init__(self, reading: Any) -> None:
        self.reading = reading
        self.names = reading.names
        self.totals: list[list[str]] = reading.snapshot["totals"]
        self.pairs, self.looked, self.of = self._first() if reading.has_any else ([], 0, 0)

    def _first(self) -> tuple[list[dict[str, Any]], int, int]:
        pairs: list[dict[str, Any]] = []
        start, of = 0, 0
        for _ in range(GOES):
            page = self.reading.answer({"what": "pairs", "start": start, "only": True})
            pairs += page["pairs"]
            start, of = page["next"], page["of"]
            if start is None or len(pairs) >= PAIRS_SHOWN:
                break
        return pairs[:PAIRS_SHOWN], of if start is None else start, of

    def _said(self) -> str:
        turns = f"{self.of:,} pair{'' if self.of == 1 else 's'} of turns"
        seen = f"the first {self.looked:,} of {turns}" if self.looked < self.of else turns
        if not self.pairs:
            return f"No difference in {seen}."
        more = " or more" if self.looked < self.of or len(self.pairs) == PAIRS_SHOWN else ""
        return f"{len(self.pairs)}{more} differ in {seen}."

    def to_html(self) -> str:
        """Return HTML without scripts."""
        head = '<p class="nn-title">Compare</p>'
        if not self.reading.has_any:
            return f'{head}<p class="nn-empty">{escape(self.reading.snapshot["empty"])}</p>'
        names = "".join([f'<th scope="col">{escape(name)}</th>' for name in ("", *self.names, "Difference")])
        totals = "".join(
            [
                f'<tr><th scope="row">{escape(name)}</th>{"".join([f"<td>{escape(cell)}</td>" for cell in cells])}</tr>'
                for name, *cells in self.totals
            ]
        )
        sums = _table("nn-totals", names, totals)
        body = "".join([_pair_html(pair) for pair in self.pairs])
        heads = "".join([f'<th scope="col">{escape(name)}</th>' for name in ("Turn", "What", *self.names)])
        table = _table("nn-compared", heads, body)
        return f'{head}{sums}<p class="nn-sub">{escape(self._said())}</p>{table if body else ""}'

    def to_text(self) -> str:
        """Return plain text."""
        if not self.reading.has_any:
            return f"Compare. {self.reading.snapshot['empty']}"
        lines = [f"Compare. {', '.join(self.names)}. {self._said()}"]
        lines += [f"  {name}: {a} | {b}{f' ({more})' if more else ''}" for name, a, b, more in self.totals]
        for pair in self.pairs:
            lines.append(f"Turn {turn_text(pair)}")
            lines += [f"  {row['what']}: {parts_text(row['a'])} | {parts_text(row['b'])}" for row in pair["rows"]]
        return "\n".join(lines)


def _table(kind: str, heads: str, body: str) -> str:
    table = f'<table class="nn-table {kind}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="nn-scroll">{table}</div>'


def turn_text(pair: dict[str, Any]) -> str:
    """Return the turns of a pair, once where they have the same number.

    Examples
    --------
    >>> turn_text({"turns": [3, 3]}), turn_text({"turns": [3, 4]}), turn_text({"turns": [None, 4]})
    ('3', '3 | 4', '— | 4')
    """
    a, b = ["—" if turn is None else f"{turn}" for turn in pair["turns"]]
    return a if a == b else f"{a} | {b}"


def _pair_html(pair: dict[str, Any]) -> str:
    rows = []
    for at, row in enumerate(pair["rows"]):
        turn = turn_text(pair) if at == 0 else ""
        rows.append(
            f'<tr{" data-first" if at == 0 else ""}><th scope="row">{escape(turn)}</th>'
            f'<td class="nn-what">{escape(row["what"])}</td>'
            f'<td class="nn-side">{parts_html(row["a"])}</td><td class="nn-side">{parts_html(row["b"])}</td></tr>'
        )
    return "".join(rows)
