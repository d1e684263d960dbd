"""A thread as a scene: its turns in columns with their marks, updated turn by turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noetic_nb.plots._scene.scene import LANE_PX, Mark, Panel, Row, Scene, placed
from noetic_nb.plots._trends import trends_panels as given_panels
from noetic_nb.plots._trends.trends_marks import (
    FORMATS,
    LANES,
    column_size,
    falls,
    headline,
    lane_of,
    marks_of,
    nice_top,
    spread,
)
from noetic_nb.plots._trends.trends_panels import (
    BY_KEY,
    CELLS,
    DECISIONS,
    FALLS,
    NOT_MEASURED,
    PANELS,
    PLACES,
    SERIES,
    handles_of,
    kind_of,
    lines_of,
)
from noetic_nb.runs._regulation.thread_signals import ThreadSignals, TurnSignals

# Up to this many grades of a turn are drawn separately; more are drawn as a range.
DOTS_SENT: Final = 8
# Beyond this many columns, dots would merge, and only the gaps between bars would be visible.
CROWDED: Final = 80
# Longer runs can be viewed in parts.
BRUSHED: Final = 200
FALLS_PX: Final = 24
TICKS: Final = 10
NESTED: Final = frozenset({"panels", "captions", "handles", "stops"})
"""Fields that are sent entry by entry; a removed entry is None."""


@dataclass(slots=True)
class Column:
    """One column: its marks for a page, and the numbers that determine the scales."""

    row: dict[str, Any]
    values: Mapping[str, Sequence[float]]
    rule: Mapping[str, float]
    lanes: Sequence[str] = ()
    """The lanes of its decisions."""
    broke: str = ""
    """The lane of its circuit break."""
    kinds: Sequence[str] = ()
    """The series of its decisions."""
    is_broken: bool = False

    def highs(self) -> list[tuple[str, float]]:
        """Return the maximum of each panel."""
        return [*((key, max(found)) for key, found in self.values.items()), *self.rule.items()]


class ThreadChart:
    """The columns of one thread, updated turn by turn.

    Parameters
    ----------
    thread : ThreadSignals
        The signals of the thread, which may grow.

    Examples
    --------
    >>> thread = ThreadSignals("t1", [TurnSignals(1, [0.4], None, 120)], [0.4])
    >>> chart = ThreadChart(thread)
    >>> chart.take(thread.turns[0])
    (0, False)
    >>> chart.rows()[0]["cells"][:5]
    ['1', '0.40', '', '120', '120']
    """

    def __init__(self, thread: ThreadSignals, given: Mapping[str, Any] | None = None) -> None:
        self.thread = thread
        self.turns: list[TurnSignals] = []
        self.size = 1
        self.about: dict[str, Any] = {}
        self.given: Mapping[str, Any] = given or {}
        """Thresholds of a regulator in shadow mode."""
        self.columns: list[Column] = []
        self._rows: list[dict[str, Any]] = []
        self._stale: set[int] = set()
        self._places: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._lines: tuple[Any, dict[str, list[Any]]] = (None, {})
        self._handles: tuple[Any, dict[str, Any]] = (None, {})
        # Over all columns, the number of values per panel, and the maximum in it, thresholds included.
        self._known: Counter[str] = Counter()
        self._ruled: Counter[str] = Counter()
        self._tops: dict[str, float] = {}
        self._fallen: list[TurnSignals] = []

    def take(self, turn: TurnSignals) -> tuple[int, bool]:
        """Handle a new or changed turn; returns its column, and whether all columns are new."""
        before = self._layout
        place = self._places.setdefault(id(turn), len(self.turns))
        if place == len(self.turns):
            self.turns.append(turn)
            self._numbers[turn.turn] = place
        if turn.marks and turn not in self._fallen[-1:] and any(mark.fall for mark in turn.marks):
            self._fallen.append(turn)
        self.size = column_size(len(self.turns))
        is_new = before != self._layout
        if is_new:
            self._stale = set(range(-(-len(self.turns) // self.size)))
        self._stale.add(place // self.size)
        return place // self.size, is_new

    @property
    def _layout(self) -> tuple[int, bool]:
        return self.size, len(self.turns) > CROWDED

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all columns, always the same list."""
        columns = -(-len(self.turns) // self.size)
        lost, made = [*self.columns[columns:]], []
        del self.columns[columns:], self._rows[columns:]
        for at in sorted(self._stale):
            lost += self.columns[at : at + 1]
            column = self._column(at)
            made.append(column)
            self.columns[at : at + 1] = [column]
            self._rows[at : at + 1] = [column.row]
            self._known.update(column.values.keys())
            self._ruled.update(column.rule.keys())
            for key, number in column.highs():
                self._tops[key] = max(self._tops.get(key, 0), number)
        self._stale.clear()
        self._forget(lost, made)
        return self._rows

    def _forget(self, lost: Sequence[Column], made: Sequence[Column]) -> None:
        again: set[str] = set()
        for column in lost:
            self._known.subtract(column.values.keys())
            self._ruled.subtract(column.rule.keys())
            again |= {key for key, number in column.highs() if number >= self._tops.get(key, 0)}
        # Usually the new column is as high: thresholds stay, and sums grow.
        for column in made if again else ():
            again -= {key for key, number in column.highs() if number >= self._tops[key]}
        if not again:
            return
        # The maximum is gone: search for the new one.
        for key in again:
            self._tops[key] = 0
        for column in self.columns:
            for key, number in column.highs():
                if key in again and number > self._tops[key]:
                    self._tops[key] = number

    def turns_of(self, column: int) -> list[TurnSignals]:
        return self.turns[column * self.size : (column + 1) * self.size]

    def column_of(self, turn: int) -> int:
        """Return the column of a turn by number; if the turn has none, the previous column."""
        place = self._numbers.get(turn)
        if place is None:
            place = max((at for at, each in enumerate(self.turns) if each.turn <= turn), default=0)
        return place // self.size

    def detail(self, column: int) -> list[dict[str, Any]]:
        return [{"turn": turn.turn, "cells": _cells([turn], _values([turn]))} for turn in self.turns_of(max(0, column))]

    def part(self, first: int, last: int) -> ThreadChart:
        """Return a chart of only the turns in some columns."""
        chart = ThreadChart(self.thread, self.given)
        for turn in self.turns[max(0, first) * self.size : (last + 1) * self.size]:
            chart.take(turn)
        return chart

    def data(self) -> dict[str, Any]:
        """Return the whole thread; does not affect `changes`, because other pages wait for it."""
        rows = self.rows()
        return {**self._about(), "turns": rows}

    def changes(self) -> dict[str, Any]:
        """Return the changes of the thread, without its rows."""
        self.rows()
        now = self._about()
        new = {name: value for name, value in now.items() if self.about.get(name) != value}
        for name in NESTED & new.keys():  # keeps messages small: usually one entry of many changes
            was, value = self.about.get(name, {}), now[name]
            new[name] = {
                **dict.fromkeys(was.keys() - value.keys()),
                **{k: v for k, v in value.items() if was.get(k) != v},
            }
        self.about = now
        return new

    def lines(self, turn: TurnSignals) -> dict[str, list[Any]]:
        """Return the threshold of each panel in force at a turn: predicate, name of the number, and the number."""
        thresholds = turn.thresholds or self.given
        key = (thresholds, turn.cap, turn.poor)
        if self._lines[0] != key:
            self._lines = key, lines_of(thresholds, poor=turn.poor, cap=turn.cap)
        return self._lines[1]

    def _column(self, at: int) -> Column:
        turns = self.turns_of(at)
        values = _values(turns)
        rule = {key: line[2] for key, line in self.lines(turns[-1]).items()}
        cells, said = _cells(turns, values), marks_of(turns)
        lanes = [lane_of(label) for _, label, _ in said]
        broke = next((lane_of(label) for kind, label, _ in said if kind == "circuit_break"), "")
        marks = self._marks(turns, values, rule)
        kinds = [kind if kind in SERIES else "other" for kind, _, _ in said]
        marks += [[PLACES[kind], lane_of(label), text] for kind, (_, label, text) in zip(kinds, said, strict=True)]
        is_broken = any(turn.broken for turn in turns)
        if is_broken:
            marks.append([PLACES["broken"], None, None])
        row = {"turns": [turns[0].turn, turns[-1].turn], "cells": cells, "marks": marks}
        return Column(row, values, rule, lanes, broke, kinds, is_broken)

    def _marks(self, turns: Sequence[TurnSignals], values: Mapping[str, Any], rule: Mapping[str, float]) -> Row:
        is_crowded = self._layout[1]
        marks: Row = []
        for panel in PANELS:
            key, found = panel.key, values.get(panel.key)
            if key in rule:
                marks.append([PLACES[f"rule-{key}"], rule[key]])
                if key == "quality":
                    marks.append([PLACES["poor"], None, rule[key]])
            if found is None:
                if key == "quality" and not is_crowded:
                    marks.append([PLACES[key]])
            elif panel.look == "bars":
                # A range is a pale bar up to its maximum, with a full one up to its minimum.
                if len(found) > 1 and found[1]:
                    marks.append([PLACES[f"{key}-most"], 0, found[1]])
                if found[0]:
                    marks.append([PLACES[key], 0, found[0]])
            else:
                if self.size > 1:
                    marks.append([PLACES[f"{key}-range"], found[0], found[min(1, len(found) - 1)]])
                # The last of several values is arbitrary, except where values only grow.
                if self.size == 1 or panel.look == "line":
                    marks.append([PLACES[key], found[-1]])
                if not is_crowded and panel.look == "dots":
                    grades = turns[0].qualities if key == "quality" else []
                    dots = grades if 1 < len(grades) <= DOTS_SENT else found[-1:]
                    marks += [[PLACES[f"{key}-dot"], value] for value in dots]
            if key == "quality" and "mean" in values:
                marks.append([PLACES["mean"], values["mean"][-1]])
        return marks

    def _about(self) -> dict[str, Any]:
        thread = self.thread
        last = self.turns[-1] if self.turns else None
        shown = [panel.key for panel in PANELS if self._is_shown(panel.key)]
        tops = {key: BY_KEY[key].top or nice_top(self._tops.get(key, 0)) for key in shown}
        thresholds = {} if last is None else last.thresholds or self.given
        lanes = self._lanes(thresholds)
        whole = self._whole(lanes)
        drawn = (
            [Panel(DECISIONS, LANE_PX * len(lanes), lanes=lanes, ticks=[(lane, lane) for lane in lanes])]
            if lanes
            else []
        )
        for key in shown:
            if key == "quality" and any(SERIES[mark.series].panel == FALLS for mark in whole):
                drawn.append(Panel(FALLS, FALLS_PX))
            drawn.append(self._panel(key, tops[key]))
        return {
            "name": thread.thread,
            "head": headline(thread) if thread.turns else "",
            "size": self.size,
            "shown": shown,
            "order": [panel.key for panel in drawn],
            "panels": {panel.key: panel.data() for panel in drawn},
            "captions": {key: self._caption(key) for key in shown},
            "whole": [list(mark[:3]) for mark in whole],
            **self._draggable(thresholds, {} if last is None else self.lines(last), tops),
            "ticks": self._ticks(),
            "legend": self._legend(),
            "cells": [key for key, *_ in CELLS if key in ("turn", DECISIONS) or self._is_known(key, shown)],
            "note": self._note(),
        }

    def _draggable(
        self, thresholds: Mapping[str, Any], lines: Mapping[str, Any], tops: Mapping[str, float]
    ) -> dict[str, Any]:
        key = (thresholds, {name: line[:2] for name, line in lines.items()}, tops)
        if self._handles[0] != key:
            handles = handles_of(thresholds, lines, tops)
            # Send each set of stops once, because many handles share them.
            stops: dict[str, dict[str, Any]] = {}
            for handle in handles:
                stop = {"values": handle.pop("values"), "texts": handle.pop("texts")}
                handle["of"] = (
                    f"{stop['texts'][0]} {stop['texts'][-1]} {len(stop['texts'])} {hash(tuple(stop['values']))}"
                )
                stops[handle["of"]] = stop
            named = {f"{handle['predicate']} {handle['name']}": handle for handle in handles}
            self._handles = key, {"handles": named, "stops": stops}
        return self._handles[1]

    def _panel(self, key: str, top: float) -> Panel:
        spec = BY_KEY[key]
        panel = Panel(key, spec.height, high=top)
        write = FORMATS[spec.unit]
        limit = self.columns[-1].rule.get(key) if self.columns else None
        if limit is not None:
            panel.ticks = [(limit, f"{spec.limit} {f'{limit:.3g}' if spec.unit == 'share' else write(limit)}")]
        panel.add_ticks([(0, "0"), (top, "1" if spec.top else write(top))])
        return panel

    def _caption(self, key: str) -> str:
        known = next((column.values[key][-1] for column in reversed(self.columns) if key in column.values), None)
        return BY_KEY[key].title if known is None else f"{BY_KEY[key].title} · {FORMATS[BY_KEY[key].unit](known)}"

    def _lanes(self, thresholds: Mapping[str, Any]) -> list[str]:
        """Return a lane for each predicate in force, and for each other decision, so that lanes stay while thresholds move."""
        watched = {lane_of(LANES.get(kind_of(str(name)), kind_of(str(name)))) for name in thresholds}
        used = [lane for column in self.columns for lane in column.lanes]
        order = {lane: place for place, lane in enumerate(LANES.values())}
        return sorted(watched.union(used), key=lambda lane: (order.get(lane, len(order)), lane))

    def _whole(self, lanes: Sequence[str]) -> list[Mark]:
        """Return the marks across columns: lanes, how long breaks hold, and the grades over which quality fell."""
        found, lane, begins = [Mark("lane", [0, name, len(self.columns)]) for name in lanes], "", 0.0
        for at, column in enumerate([*self.columns, None]):
            is_held = column is not None and column.is_broken
            if lane and (not is_held or (column is not None and column.broke)):
                found.append(Mark("held", [begins, lane, at]))
                lane = ""
            if column is not None and is_held and column.broke:
                lane, begins = column.broke, at + 0.5
        for first, last, _, _, text, broke in falls(self.thread, self._fallen):
            left, right = self.column_of(first) + 0.5, self.column_of(last) + 0.5
            if right <= left:
                left, right = left - 0.3, right + 0.3
            series = "fell" if broke else "window"
            found += [
                Mark(series, []), Mark(series, [left, 0, left, 0.1, right, 0.1, right, 0]),
                Mark("fall", [(left + right) / 2, 0.45], text.replace("->", "→")),
            ]  # fmt: skip
        return found

    def _ticks(self) -> list[list[Any]]:
        every = max(1, -(-len(self._rows) // TICKS))
        return [[at + 0.5, str(self._rows[at]["turns"][0])] for at in range(0, len(self._rows), every)]

    def _legend(self) -> list[list[str]]:
        window = self.thread.window
        found = [["quality-dot", "quality of a turn"], *([["mean", f"mean of the last {window}"]] if window else [])]
        kinds = {kind for column in self.columns for kind in column.kinds}
        found += [["half", "conditions half met"], ["met", "met"]] if self.thread.thresholds or self.given else []
        found += [["circuit_break", "circuit break"]] if "circuit_break" in kinds else []
        found += [["scope_drift_warn", "warning"]] if kinds - {"circuit_break"} else []
        return [
            *found,
            *([["broken", "stopped until the task is reset"]] if any(c.is_broken for c in self.columns) else []),
        ]

    def _is_shown(self, key: str) -> bool:
        # A threshold that was later removed is still drawn where it was in force.
        if key == "quality" or self._ruled[key] > 0:
            return True
        is_any = key not in given_panels.IF_ANY or self._tops.get(key, 0) > 0
        return key not in given_panels.IF_CAPPED and self._known[key] > 0 and is_any

    def _is_known(self, key: str, shown: Sequence[str]) -> bool:
        return (
            key == "quality" or key in given_panels.TOKENS or (self._known[key] > 0 and (key in shown or key == "mean"))
        )

    def _note(self) -> str:
        if self.thread.regulator is None and not self.thread.thresholds and self.thread.cap is None:
            return given_panels.GIVEN if self.given else given_panels.UNWATCHED
        return "" if self.thread.poor is not None or not self.thread.qualities else given_panels.UNKNOWN

    def scene(self, over: Sequence[Mark] = ()) -> Scene:
        """Return the picture of the thread; `over` are marks in front, such as the conditions of predicates."""
        self.changes()
        about, stops = self.about, []
        keys = [(place, prefix) for place, (key, _, prefix) in enumerate(CELLS) if key in about["cells"]]
        for at, row in enumerate(self._rows):
            told = [
                mark.text
                for mark in over
                if len(mark.points) > 3 and mark.text and mark.points[0] <= at < mark.points[2]
            ]
            stops.append((at, at + 1, "\n".join([said_of(keys, row["cells"]), *told])))
        panels = [
            Panel(one["key"], one["height"], one.get("low", 0), one.get("high", 1), one.get("lanes", ()),
                  one["ticks"], about["captions"].get(one["key"], ""))
            for one in map(about["panels"].__getitem__, about["order"])
        ]  # fmt: skip
        marks = [Mark(*mark) for mark in about["whole"]]
        for at, row in enumerate(self._rows):
            marks += placed(SERIES, list(SERIES), at, row["marks"])
        return Scene(
            panels, [*marks, *over], 0, max(1, len(self._rows)), SERIES, about["ticks"], "turn", stops,
            f"Regulator trends, thread {self.thread.thread}", about["legend"],
        )  # fmt: skip


def said_of(keys: Sequence[tuple[int, str]], cells: Sequence[str]) -> str:
    """Describe a column in one line: its cells by index, each after its label."""
    return " · ".join([f"{prefix} {cells[place]}".strip() for place, prefix in keys if cells[place]])


def _values(turns: Sequence[TurnSignals]) -> dict[str, list[float]]:
    found = {panel.key: spread(panel.value(turn) for turn in turns) for panel in PANELS}
    found["quality"] = spread(quality for turn in turns for quality in turn.qualities)
    # A mean is only drawn at turns with a grade.
    found["mean"] = spread(turn.mean for turn in turns if turn.qualities)
    return {key: value for key, value in found.items() if value is not None}


def _cells(turns: Sequence[TurnSignals], values: Mapping[str, Sequence[float]]) -> list[str]:
    first, last = turns[0], turns[-1]
    cells = [str(first.turn) if first is last else f"{first.turn}–{last.turn}"]
    for key, *_ in CELLS[1:-1]:
        found = values.get(key)
        write = FORMATS[BY_KEY[key].unit] if key in BY_KEY else FORMATS["share"]
        if found is None:
            cells.append(NOT_MEASURED if key in given_panels.TOKENS else "")
        elif key == "quality" and first is last:
            cells.append(", ".join(f"{quality:.2f}" for quality in first.qualities[:DOTS_SENT]))
        elif len(found) == 1 or found[0] == found[1]:
            cells.append(write(found[0]))
        elif key in ("spent", *given_panels.IF_ANY, *given_panels.IF_CAPPED):
            cells.append(write(found[-1]))
        else:
            cells.append(f"{write(found[0])}–{write(found[1])}")
    labels = dict.fromkeys(mark.label for turn in turns for mark in turn.marks)
    held = any(turn.broken for turn in turns) and not any(label.startswith("circuit break") for label in labels)
    cells.append(", ".join([*list(labels)[:4], *(["still broken"] if held else [])]))
    return cells
