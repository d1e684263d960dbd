"""Read two runs for their comparison: totals and the number of turns; pairs are read when the page asks."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.events import RunEvent
from noetic_nb.runs.plain_text import plain
from noetic_nb.widgets.base.feed import Place, Reading
from noetic_nb.widgets.base.moment import EVERYTHING, Moment
from noetic_nb.widgets.base.text_diff import text_parts
from noetic_nb.widgets.compare.compare_picture import EMPTY, ComparePicture
from noetic_nb.widgets.compare.compared_turns import TOTALS, ComparedTurns, Row, Side, TurnPart

__all__ = ["CompareReading", "number_text", "row_data", "total_rows"]

# Pairs on a page, and rows of one of them: a turn of hundreds of tool calls is asked for in the frame.
PAGE: Final = 10
ROWS: Final = 60
CELL_LENGTH: Final = 600
# What is compared as words; everything else as a whole.
_WORDS: Final = frozenset({"prompt", "tool call", "tool result", "reply"})


class CompareReading(Reading):
    """Two runs side by side.

    Parameters
    ----------
    names : (str, str)
        What the runs are called.
    moment : Moment, optional
        Which part of both is compared.
    """

    nothing = "No turns to compare in {part}."

    def __init__(self, names: tuple[str, str], moment: Moment = EVERYTHING) -> None:
        self.moment = moment
        self.sides = Side(), Side()
        self.turns = ComparedTurns(*self.sides)
        self.names = [f"{side}: {plain(name)}" for side, name in zip("ab", names, strict=True)]
        # While runs that are there are read, nobody waits for messages.
        self._is_followed = False
        self.snapshot = {
            "names": self.names,
            "empty": EMPTY,
            "totals": total_rows(*self.sides),
            "page": PAGE,
            "news": 0,
        }

    @property
    def has_any(self) -> bool:
        """Whether either run has a turn."""
        return any(side.turns for side in self.sides)

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event of the first run; returns the message about a turn that began or ended."""
        return self.take_of(0, event, place)

    def take_of(self, side: int, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event of either run."""
        if not self.sides[side].take(event, place.seq, place.call, shows=self.moment.shows(event.where)):
            return None
        self.turns.grown()
        if not self._is_followed:
            return None
        self.snapshot["totals"] = total_rows(*self.sides)
        self.snapshot["news"] += 1
        return {"type": "grown", "news": self.snapshot["news"], "totals": self.snapshot["totals"]}

    def begin(self) -> None:
        """Add up the totals of both runs: from now on pages follow."""
        self._is_followed = True
        self.snapshot["totals"] = total_rows(*self.sides)

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer ``{what: "pairs", start, only, kind, turn, thread}`` and ``{what: "strip", start}``.

        Raises `NoeticConfigError` ``UNKNOWN_REQUEST``.
        """
        match request:
            case {"what": "pairs"}:
                return self._page(request)
            case {"what": "strip", "start": int(start)} if start >= 0:
                stop = self.turns.stop_after(start)
                counts = [len(self.turns.differing(at)) for at in range(start, stop)]
                return {"start": start, "counts": counts, "of": len(self.turns.pairs)}
        return super().answer(request)

    def _page(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the next pairs: as many as a page holds, or as one go reaches; ``next`` is where the one after begins."""
        start, turn, kind = request.get("start"), request.get("turn"), request.get("kind")
        wanted = None
        if type(turn) is int:
            wanted = self.turns.place_of(request.get("thread"), turn)
        at = wanted if wanted is not None else start if type(start) is int and start > 0 else 0
        found: list[dict[str, Any]] = []
        first, stop = at, self.turns.stop_after(at)
        while at < stop and len(found) < PAGE:
            rows = [row for row in self.turns.rows(at) if not kind or row[0] == kind]
            shown = [row for row in rows if row[1] != row[2]] if request.get("only") is True else rows
            if shown or at == wanted:
                found.append(self._pair(at, shown, len(rows)))
            at += 1
        of = len(self.turns.pairs)
        return {"start": first, "pairs": found, "next": at if at < of else None, "of": of}

    def _pair(self, at: int, rows: list[Row], compared: int) -> dict[str, Any]:
        pair = self.turns.pairs[at]
        return {
            "at": at,
            "turns": [None if part is None else part.where.turn for part in pair],
            "threads": [None if part is None else plain(part.where.thread_id) for part in pair],
            "go": _go(pair[0]),
            "rows": [row_data(row) for row in rows[:ROWS]],
            "more": max(0, len(rows) - ROWS),
            "same": compared - len(rows),
        }

    def to_html(self) -> str:
        """Return the sums and the first differences as HTML without scripts."""
        return ComparePicture(self).to_html()

    def to_text(self) -> str:
        """Return the sums and the first differences as plain text."""
        return ComparePicture(self).to_text()


def _go(part: TurnPart | None) -> dict[str, Any] | None:
    if part is None:
        return None
    thread = part.where.thread_id
    return {"thread_id": thread if plain(thread) == thread else None, "turn": part.where.turn}


def number_text(value: float | None) -> str:
    """Return a number for people; None is not known.

    Examples
    --------
    >>> number_text(1234), number_text(0.0125), number_text(None)
    ('1,234', '0.0125', 'not known')
    """
    if value is None:
        return "not known"
    return f"{value:,}" if isinstance(value, int) and abs(value) < 10**15 else f"{float(value):,.4g}"


def total_rows(a: Side, b: Side) -> list[list[str]]:
    """Return the totals of both runs: name, both sums, and by how much the second is more."""
    rows = []
    for name in TOTALS:
        one, other = a.totals[name], b.totals[name]
        more = "" if one is None or other is None else "same" if one == other else _signed(other - one)
        rows.append([name, number_text(one), number_text(other), more])
    return rows


def _signed(number: float) -> str:
    return f"{'+' if number > 0 else '−'}{number_text(abs(number))}"


def row_data(row: Row) -> dict[str, Any]:
    """Return a row as a page gets it: what, whether it is the same, and both sides in parts with their signs."""
    what, a, b = row
    is_same = a == b
    if not is_same and what in _WORDS and isinstance(a, str) and isinstance(b, str):
        parts = text_parts(a, b)
        left, right = [part for part in parts if part[0] != "+"], [part for part in parts if part[0] != "-"]
    else:
        # A side that has no such thing has nothing to strike or underline.
        left = [["" if is_same or a is None else "-", _cell(a)]]
        right = [["" if is_same or b is None else "+", _cell(b)]]
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        if numbers and not is_same:
            right.append(["", f" ({_signed(b - a)})"])
    sides = [[[sign, plain(text, CELL_LENGTH)] for sign, text in parts] for parts in (left, right)]
    return {"what": what, "same": is_same, "a": sides[0], "b": sides[1], "lacks": [a is None, b is None]}


def _cell(value: Any) -> str:
    if value is None:
        return "—"
    return value if isinstance(value, str) else number_text(value) if isinstance(value, int | float) else str(value)
