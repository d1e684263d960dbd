"""The pictures of a thread, one below the other, their thresholds, and a row of data for each column of turns.

Rows are data, drawn twice: as the static form, and as elements by the page. The page is sent each row once and again when it
changes; all that depends on other columns (how wide one is, how high an axis ends) it works out itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noetic_nb.runs._palette import CATEGORY, DECISION_LOOKS, OTHER_LOOK, QUALITY_COLOUR, TOKENS_COLOUR
from noetic_nb.runs._plain_text import plain, sendable
from noetic_nb.runs._regulation.thread_signals import ThreadSignals, TurnSignals
from noetic_nb.widgets._trends.trends_marks import falls, headline, marks_of
from noetic_nb.widgets._trends.trends_scales import FORMATS, column_size, nice_top, spread

QUALITY_PX: Final = 124
TOTAL_PX: Final = 76
SMALL_PX: Final = 48
# Grades of one turn that are drawn each; more than these are a range.
DOTS_SENT: Final = 8
UNKNOWN: Final = "This recording does not say below which mean quality counts as poor."
UNWATCHED: Final = (
    "No regulator watched this run, so no threshold is drawn. Pass regulator= to see what it would have decided."
)
GIVEN: Final = (
    "No regulator watched this run: the thresholds are those of the one that was passed, which decided nothing."
)


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: the value it shows of a turn, its unit, and its threshold."""

    key: str
    title: str
    unit: str
    height: int
    look: str
    """``dots`` on a line, a ``line``, or ``bars``."""
    colour: str
    value: Callable[[TurnSignals], float | None]
    rule: tuple[str, str] | None = None
    """Kind of predicate and name of the number."""
    top: float | None = None
    """Where the axis ends; None for as far as values and thresholds go."""
    limit: str = "limit"
    """What its threshold is called on the axis."""


PANELS: Final = (
    Panel(
        "quality", "quality", "share", QUALITY_PX, "dots", QUALITY_COLOUR,
        lambda turn: turn.qualities[-1] if turn.qualities else None, ("quality_decline", "poor_mean"), 1, "poor",
    ),
    Panel(
        "spent", "output tokens so far", "whole", TOTAL_PX, "line", TOKENS_COLOUR,
        lambda turn: turn.total, ("cost_cap", "tokens_out"), limit="cap",
    ),
    Panel("tokens", "tokens a turn", "whole", SMALL_PX, "bars", TOKENS_COLOUR, lambda turn: turn.tokens),
    Panel(
        "tokens_in", "input tokens so far", "whole", SMALL_PX, "line", CATEGORY["tools"],
        lambda turn: turn.totals.get("tokens_in"), ("cost_cap", "tokens_in"), limit="cap",
    ),
    Panel(
        "usd", "money so far", "usd", SMALL_PX, "line", CATEGORY["tools"],
        lambda turn: turn.totals.get("usd"), ("cost_cap", "usd"), limit="cap",
    ),
    Panel(
        "wallclock_ms", "time in models so far", "ms", SMALL_PX, "line", CATEGORY["tools"],
        lambda turn: turn.totals.get("wallclock_ms"), ("cost_cap", "wallclock_ms"), limit="cap",
    ),
    Panel(
        "drift", "drift", "share", SMALL_PX, "dots", DECISION_LOOKS["scope_drift_warn"][0],
        lambda turn: turn.drift, ("scope_drift", "threshold"), 1,
    ),
    Panel(
        "confidence", "confidence", "share", SMALL_PX, "dots", DECISION_LOOKS["low_confidence_spans"][0],
        lambda turn: turn.confidence, ("low_confidence", "threshold"), 1,
    ),
    Panel(
        "calls", "calls in a row", "whole", SMALL_PX, "bars", OTHER_LOOK[0],
        lambda turn: turn.calls_in_a_row, ("tool_loop", "threshold"),
    ),
)  # fmt: skip
"""The pictures from the top down; the small ones only where something is known of them."""

_BY_KEY: Final = {panel.key: panel for panel in PANELS}
_TOKENS: Final = frozenset({"spent", "tokens"})
NOT_MEASURED: Final = "not measured"
# A value that is always there says little; only where it is more than nothing, or capped.
_IF_ANY: Final = frozenset({"usd", "wallclock_ms"})
_IF_CAPPED: Final = frozenset({"tokens_in"})

CELLS: Final = (
    ("turn", "Turn"),
    ("quality", "Quality"),
    ("mean", "Rolling mean"),
    ("tokens", "Output tokens"),
    ("spent", "Output tokens so far"),
    ("tokens_in", "Input tokens so far"),
    ("usd", "Money so far"),
    ("wallclock_ms", "Time in models so far"),
    ("drift", "Drift"),
    ("confidence", "Confidence"),
    ("calls", "Calls in a row"),
    ("decisions", "Decisions"),
)
"""The table behind the pictures: key and name of each cell."""

# Words for the numbers of predicates; one that is not here is named as it is.
NUMBER_NAMES: Final = {
    "poor_mean": "poor mean",
    "min_delta": "least fall",
    "tokens_out": "cap on output tokens",
    "tokens_in": "cap on input tokens",
    "usd": "cap on money",
    "wallclock_ms": "cap on time",
    "total": "most calls",
    "min_corrections": "least corrections",
    "min_tokens": "least tokens",
    "min_words": "least words",
    "min_earlier": "least earlier texts",
    "min_tool_texts": "least tool texts",
    "min_drift_tokens": "least drift words",
}
# The least legal values that are not 0; the predicates refuse what is below.
LEAST: Final = {"tool_loop.threshold": 2, "quality_decline.window": 2, "cost_cap.window": 1, "repeated_failure.threshold": 1,
                "low_confidence.min_tokens": 1, "procedural_warning.min_corrections": 1}  # fmt: skip
MOST: Final = {"window": 20, "min_corrections": 20}
_SHARES: Final = frozenset({"poor_mean", "min_delta", "scope_drift.threshold", "low_confidence.threshold"})


def panel_data() -> list[dict[str, Any]]:
    """Return the data of the pictures that a page needs once."""
    return [
        {"key": panel.key, "title": panel.title, "unit": panel.unit, "height": panel.height, "look": panel.look,
         "colour": panel.colour, "limit": panel.limit, "fixed": panel.top is not None}
        for panel in PANELS
    ]  # fmt: skip


def kind_of(predicate: str) -> str:
    """Return the kind of a predicate by its name among others of its kind.

    Examples
    --------
    >>> kind_of("tool_loop(by=call, across_turns)"), kind_of("cost_cap #2")
    ('tool_loop', 'cost_cap')
    """
    return predicate.partition("(")[0].partition(" #")[0]


def _sendable(thresholds: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((sendable(predicate), numbers) for predicate, numbers in thresholds.items())


def lines_of(
    thresholds: Mapping[str, Any], *, poor: float | None = None, cap: float | None = None
) -> dict[str, list[Any]]:
    """Return the threshold of each picture: predicate, name of the number, and the number.

    `poor` and `cap` are those that a recording has beside its thresholds, which it may lack.

    Examples
    --------
    >>> lines_of({"scope_drift": {"threshold": 0.5}}, cap=2000)
    {'drift': ['scope_drift', 'threshold', 0.5], 'spent': ['', '', 2000]}
    """
    found: dict[str, list[Any]] = {}
    for predicate, numbers in _sendable(thresholds):
        kind = kind_of(predicate)
        if not isinstance(numbers, Mapping) or (
            kind == "tool_loop" and (numbers.get("period", 1) != 1 or "by=result" in predicate)
        ):
            continue
        for panel in PANELS:
            if panel.rule is None or panel.rule[0] != kind or panel.key in found:
                continue
            number = numbers.get(panel.rule[1])
            if isinstance(number, int | float) and not isinstance(number, bool):
                found[panel.key] = [predicate, panel.rule[1], number]
    if "quality" not in found and poor is not None:
        predicate = next((sendable(name) for name in thresholds if kind_of(name) == "cost_cap"), "")
        found["quality"] = [predicate, "poor_mean", poor]
    if "spent" not in found and cap is not None:
        found["spent"] = ["", "", cap]
    return found


def handles_of(thresholds: Mapping[str, Any], lines: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every number of the thresholds in force that can be dragged, in the order of the predicates."""
    drawn = {(line[0], line[1]): key for key, line in lines.items()}
    found: list[dict[str, Any]] = []
    for predicate, numbers in _sendable(thresholds):
        if not isinstance(numbers, Mapping):
            continue
        kind = kind_of(predicate)
        for name, value in numbers.items():
            if name == "period" or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            key = drawn.get((predicate, name))
            is_share = name in _SHARES or f"{kind}.{name}" in _SHARES
            unit = _BY_KEY[key].unit if key else "share" if is_share else "usd" if name == "usd" else "whole"
            most = 1 if is_share else MOST.get(name, max(10, 2 * value))
            label = f"{kind.replace('_', ' ')}: {plain(NUMBER_NAMES.get(name, name))}"
            found.append(
                {"predicate": predicate, "name": sendable(name), "label": label, "value": value, "panel": key, "unit": unit,
                 "low": LEAST.get(f"{kind}.{name}", 0), "high": most, "step": 0.01 if unit in ("share", "usd") else 1}
            )  # fmt: skip
    return found


class ThreadChart:
    """The columns of one thread, kept up to date turn by turn.

    Parameters
    ----------
    thread : ThreadSignals
        What is known of the thread; it grows.

    Examples
    --------
    >>> thread = ThreadSignals("t1", [TurnSignals(1, [0.4], None, 120)], [0.4])
    >>> chart = ThreadChart(thread)
    >>> chart.take(thread.turns[0])
    (0, False)
    >>> chart.rows()[0]["cells"][:5]
    ['1', '0.40', '', '120', '120']
    """

    def __init__(self, thread: ThreadSignals) -> None:
        self.thread = thread
        self.turns: list[TurnSignals] = []
        self.size = 1
        self.about: dict[str, Any] = {}
        self.given: Mapping[str, Any] = {}
        """Thresholds of a regulator that watches in thought only."""
        self._rows: list[dict[str, Any]] = []
        self._stale: set[int] = set()
        self._places: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._lines: tuple[Any, dict[str, list[Any]]] = (None, {})
        # Of all columns: how many have a value of a picture, and the greatest number in it, thresholds included.
        self._known: Counter[str] = Counter()
        self._ruled: Counter[str] = Counter()
        self._tops: dict[str, float] = {}
        self._fallen: list[TurnSignals] = []

    def take(self, turn: TurnSignals) -> tuple[int, bool]:
        """Take note of a turn that is new or has changed; returns its column, and whether all columns are new."""
        place = self._places.setdefault(id(turn), len(self.turns))
        if place == len(self.turns):
            self.turns.append(turn)
            self._numbers[turn.turn] = place
        if any(mark.fall for mark in turn.marks) and turn not in self._fallen[-1:]:
            self._fallen.append(turn)
        size = column_size(len(self.turns))
        is_new = size != self.size
        if is_new:
            self.size = size
            self._stale = set(range(-(-len(self.turns) // size)))
        self._stale.add(place // size)
        return place // size, is_new

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all columns, always the same list."""
        columns = -(-len(self.turns) // self.size)
        lost, made = [*self._rows[columns:]], []
        del self._rows[columns:]
        for column in sorted(self._stale):
            lost += self._rows[column : column + 1]
            row = self._row(column)
            made.append(row)
            self._rows[column : column + 1] = [row]
            self._known.update(row["values"].keys())
            self._ruled.update(row["rule"].keys())
            for key, number in _highs(row):
                self._tops[key] = max(self._tops.get(key, 0), number)
        self._stale.clear()
        self._forget(lost, made)
        return self._rows

    def _forget(self, lost: Sequence[Mapping[str, Any]], made: Sequence[Mapping[str, Any]]) -> None:
        again: set[str] = set()
        for row in lost:
            self._known.subtract(row["values"].keys())
            self._ruled.subtract(row["rule"].keys())
            again |= {key for key, number in _highs(row) if number >= self._tops.get(key, 0)}
        # Mostly the row in its place is as high: a threshold stays, and what is added up grows.
        for row in made if again else ():
            again -= {key for key, number in _highs(row) if number >= self._tops[key]}
        if not again:
            return
        # The greatest is gone: it is looked for anew.
        for key in again:
            self._tops[key] = 0
        for row in self._rows:
            for key, number in _highs(row):
                if key in again and number > self._tops[key]:
                    self._tops[key] = number

    def turns_of(self, column: int) -> list[TurnSignals]:
        """Return the turns that share a column."""
        return self.turns[column * self.size : (column + 1) * self.size]

    def column_of(self, turn: int) -> int:
        """Return the column of a turn by its number; the last one before it where it has none."""
        place = self._numbers.get(turn)
        if place is None:
            place = max((at for at, each in enumerate(self.turns) if each.turn <= turn), default=0)
        return place // self.size

    def detail(self, column: int) -> list[dict[str, Any]]:
        """Return the cells of each turn of a column."""
        return [
            {"turn": turn.turn, "cells": _cells([turn], _values([turn])), "marks": marks_of([turn])}
            for turn in self.turns_of(max(0, column))
        ]

    def changes(self) -> dict[str, Any]:
        """Return the changes of the thread beside its rows."""
        self.rows()
        now = self._about()
        new = {name: value for name, value in now.items() if self.about.get(name) != value}
        self.about = now
        return new

    def _row(self, column: int) -> dict[str, Any]:
        turns = self.turns_of(column)
        values = _values(turns)
        row = {
            "cells": _cells(turns, values),
            "turns": [turns[0].turn, turns[-1].turn],
            "values": values,
            "rule": {key: line[2] for key, line in self.lines(turns[-1]).items()},
        }
        grades = turns[0].qualities
        if len(turns) == 1 and 1 < len(grades) <= DOTS_SENT:
            row["dots"] = grades
        marks = marks_of(turns)
        if marks:
            row["marks"] = marks
        if any(turn.broken for turn in turns):
            row["broken"] = 1
        return row

    def lines(self, turn: TurnSignals) -> dict[str, list[Any]]:
        """Return the threshold of each picture in force at a turn: predicate, name of the number, and the number."""
        thresholds = turn.thresholds or self.given
        key = (thresholds, turn.cap, turn.poor)
        if self._lines[0] != key:
            self._lines = key, lines_of(thresholds, poor=turn.poor, cap=turn.cap)
        return self._lines[1]

    def _about(self) -> dict[str, Any]:
        thread = self.thread
        shown = [panel.key for panel in PANELS if self._is_shown(panel.key)]
        last = self.turns[-1] if self.turns else None
        window = thread.window
        return {
            "name": thread.thread,
            "head": headline(thread) if thread.turns else "",
            "size": self.size,
            "shown": shown,
            "tops": {key: _BY_KEY[key].top or nice_top(self._tops.get(key, 0)) for key in shown},
            "handles": [] if last is None else handles_of(last.thresholds or self.given, self.lines(last)),
            "brackets": falls(thread, self._fallen),
            "window": window,
            "cells": [key for key, _ in CELLS if key in ("turn", "decisions") or self._is_known(key, shown)],
            "note": self._note(),
        }

    def _is_shown(self, key: str) -> bool:
        # A threshold that was lifted later is still drawn where it was in force.
        if key == "quality" or self._ruled[key] > 0:
            return True
        return key not in _IF_CAPPED and self._known[key] > 0 and (key not in _IF_ANY or self._tops.get(key, 0) > 0)

    def _is_known(self, key: str, shown: Sequence[str]) -> bool:
        return key == "quality" or key in _TOKENS or (self._known[key] > 0 and (key in shown or key == "mean"))

    def _note(self) -> str:
        if self.thread.regulator is None and not self.thread.thresholds and self.thread.cap is None:
            return GIVEN if self.given else UNWATCHED
        return "" if self.thread.poor is not None or not self.thread.qualities else UNKNOWN


def _highs(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    rule = row["rule"]
    return [*((key, max(found)) for key, found in row["values"].items()), *rule.items()]


def _values(turns: Sequence[TurnSignals]) -> dict[str, list[float]]:
    found = {panel.key: spread(panel.value(turn) for turn in turns) for panel in PANELS}
    found["quality"] = spread(quality for turn in turns for quality in turn.qualities)
    # A mean is drawn where there is a grade to take it after.
    found["mean"] = spread(turn.mean for turn in turns if turn.qualities)
    return {key: value for key, value in found.items() if value is not None}


def _cells(turns: Sequence[TurnSignals], values: Mapping[str, Sequence[float]]) -> list[str]:
    first, last = turns[0], turns[-1]
    cells = [str(first.turn) if first is last else f"{first.turn}–{last.turn}"]
    for key, _ in CELLS[1:-1]:
        found = values.get(key)
        write = FORMATS[_BY_KEY[key].unit] if key in _BY_KEY else FORMATS["share"]
        if found is None:
            cells.append(NOT_MEASURED if key in _TOKENS else "")
        elif key == "quality" and first is last:
            cells.append(", ".join(f"{quality:.2f}" for quality in first.qualities[:DOTS_SENT]))
        elif len(found) == 1 or found[0] == found[1]:
            cells.append(write(found[0]))
        elif key in ("spent", *_IF_ANY, *_IF_CAPPED):
            cells.append(write(found[-1]))
        else:
            cells.append(f"{write(found[0])}–{write(found[1])}")
    labels = dict.fromkeys(mark.label for turn in turns for mark in turn.marks)
    held = any(turn.broken for turn in turns) and not any(label.startswith("circuit break") for label in labels)
    cells.append(", ".join([*list(labels)[:4], *(["still broken"] if held else [])]))
    return cells
