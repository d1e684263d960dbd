"""The live view of two runs side by side, turn by turn, or of two lists of runs in pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan
from typing import Any, Final, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent, TurnCompleted
from noetic_nb.lab._comparing.comparison import Comparison
from noetic_nb.lab._comparing.paired_runs import PairedComparison, compare_paired
from noetic_nb.lab._statistics.intervals import CONFIDENCE
from noetic_nb.lab._statistics.labels import By
from noetic_nb.markup import escape, heading
from noetic_nb.plots._compare_scene import INTERVALS, TITLE, differences_scene
from noetic_nb.plots._scene.scene import Scene, series_data
from noetic_nb.plots._scene.svg import legend_html, to_html
from noetic_nb.runs import Run
from noetic_nb.runs._plain_text import plain
from noetic_nb.runs._run_source import RunLike, run_of
from noetic_nb.widgets._compare.compare_reading import CompareReading
from noetic_nb.widgets.base._feed import Feed, Place, Reading
from noetic_nb.widgets.base._picture import PictureView
from noetic_nb.widgets.base._selection import EVERYTHING, Moment, Selection
from noetic_nb.widgets.base._table import table

HEADS: Final = ("Metric", "Mean of a", "Mean of b", "b − a", f"{100 * CONFIDENCE:.0f} % interval", "Pairs")


class PairedReading(Reading):
    """The differences between two lists of runs, which do not change."""

    def __init__(self, found: PairedComparison) -> None:
        self.found = found
        alone = len(found.unpaired)
        self.title = f"{found.pairs:,} pair{'' if found.pairs == 1 else 's'} by {found.paired_by}" + (
            f"; {alone:,} run{' has' if alone == 1 else 's have'} no counterpart" if alone else ""
        )
        self.rows = [_row(each) for each in found.rows]
        cells = ([escape(cell) for cell in row["cells"]] for row in self.rows)
        self._table = table("nn-paired", HEADS, cells, caption="Differences")
        self.snapshot = {
            "paired": True,
            "title": self.title,
            "table": self._table,
            "scene": self.scene().data(),
            "series": series_data(INTERVALS),
        }

    def scene(self) -> Scene:
        """Return the picture of the differences."""
        title = f"{TITLE}. {self.title}"
        return differences_scene(self.found.rows, [row["said"] for row in self.rows], title)

    def take(self, event: RunEvent, place: Place) -> None:
        """Ignore an event: lists do not grow."""

    def to_html(self) -> str:
        scene = self.scene()
        head = f'{heading(TITLE)}<p class="nn-sub">{escape(self.title)}</p>'
        return f"{head}{legend_html(scene)}{to_html(scene)}{self._table}"

    def to_text(self) -> str:
        rows = [f"  {row['cells'][0]}: {row['said']}" for row in self.rows]
        return "\n".join([f"Compare. {self.title}", *rows])


def _row(each: Any) -> dict[str, Any]:
    name = plain(each.metric)
    if not each.n:
        return {
            "cells": [name, "", "", "", "not known", "0"],
            "said": "not known in any pair",
        }
    bounds = "(no interval)" if isnan(each.low) else f"[{_number(each.low)}, {_number(each.high)}]"
    cells = [name, _number(each.a), _number(each.b), _number(each.difference, "+"), bounds, f"{each.n:,}"]
    clear = each.low > 0 or each.high < 0
    said = f"{cells[1]} | {cells[2]}, b − a = {cells[3]} {bounds}, {cells[5]} pair{'s' * (each.n > 1)}" + (
        "" if clear else "; it may be none"
    )
    return {"cells": cells, "said": said}


def _number(value: float, sign: str = "") -> str:
    return f"{value:{sign},.0f}" if abs(value) >= 1e4 else f"{value:{sign},.4g}"


class Compare(PictureView):
    """Show the differences between two runs, turn by turn: prompts, requests, decisions, tools, tokens, cost, replies.

    Both runs may grow. Two lists of runs are compared in pairs, as they are now: mean differences with confidence intervals.

    Parameters
    ----------
    a, b : Run or object with a ``run``, or iterable of Run
        The runs to compare, as for `noetic_nb.compare`.
    metrics, by : optional
        For lists; see `noetic_nb.compare`.
    thread_id : str, optional
        Compare only this thread of both runs.
    turn : int, optional
        Compare only this turn of both runs, counted from 1 in each thread.
    until : int, optional
        Compare the turns up to and including this one.
    selection : Selection, optional
        The selection in `a`, shared with other views of it.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN``, ``INVALID_THREAD``, ``NOT_A_SELECTION``; for lists ``INVALID_RUN``, ``UNPAIRED_RUNS``,
        ``INVALID_METRIC``, and ``INVALID_MOMENT`` if only a part of them is requested.

    Examples
    --------
    >>> one = Run.from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}])
    >>> other = Run.from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Good day."}])
    >>> with Compare(one, other) as view:
    ...     print(view.to_text().splitlines()[-1])
      reply: [-Hello-]. | {+Good day+}.
    """

    scripts = ("base/scene", "compare/compare")

    def __init__(
        self,
        a: Any,
        b: Any,
        *,
        metrics: Mapping[str, Callable[[Run], Any]] | None = None,
        by: By = "task",
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        moment = Moment(thread_id, turn, until)
        if _is_list(a) and _is_list(b):
            if moment != EVERYTHING:
                raise NoeticConfigError(
                    "INVALID_MOMENT",
                    "Lists of runs are only compared as a whole.",
                    given=moment,
                    hint="Compare two of the runs.",
                )
            self.other: RunLike | None = None
            paired = PairedReading(compare_paired(a, b, metrics=metrics, by=by))
            # Nothing is followed: an empty run stands for the compared runs.
            super().__init__(Run(), paired, selection=selection)
            return
        if metrics is not None:
            raise NoeticConfigError(
                "INVALID_METRIC",
                "Metrics only apply to lists of runs.",
                given=metrics,
                hint="Pass Compare([a], [b], metrics=...).",
            )
        one, self.other = run_of(a), run_of(b)
        reading = CompareReading((_name(one), _name(self.other)), moment)
        self._early: list[RunEvent] | None = []
        # Subscribe first, so that no event is lost; events that arrive while the widget is created are stored.
        unsubscribe = self._follow(self.other, self._take_second)
        self._second = Feed(_SecondSide(reading), moment)
        events = self._second.read(self.other)
        try:
            super().__init__(one, reading, moment=moment, selection=selection)
        except BaseException:
            unsubscribe()
            raise
        self._unsubscribe = (*self._unsubscribe, unsubscribe)
        early, self._early = self._early, None
        if early:
            both = {id(event) for event in events}
            self._unread.extend([_OfSecond(event) for event in early if id(event) not in both])  # type: ignore[misc]

    def _take_second(self, event: RunEvent) -> None:
        if self._early is not None:
            self._early.append(event)
            return
        self._unread.append(_OfSecond(event))  # type: ignore[arg-type]  # distinguished by type below

    def _read_event(self, event: Any) -> None:
        if not isinstance(event, _OfSecond):
            super()._read_event(event)
            return
        try:
            news = self._second.take(event.event)
            if news is not None:
                self.send(news)
            if isinstance(event.event, TurnCompleted):
                self.refresh_static()
        except Exception as exc:
            self._fail(exc)

    def _read_backlog(self, events: Any) -> None:
        self.reading.is_followed = False
        self._second.take_all([event.event for event in events if isinstance(event, _OfSecond)])
        super()._read_backlog([event for event in events if not isinstance(event, _OfSecond)])

    def to_frame(self) -> Any:
        """Return the compared values as a table.

        Returns
        -------
        pandas.DataFrame
            ``turn, what, a, b``, as in `noetic_nb.compare`; for lists ``metric, a, b, difference, low, high, n``.
        """
        reading: Any = self.reading
        if isinstance(reading, PairedReading):
            return reading.found.to_frame()
        with self.up_to_date():
            turns = reading.turns
            rows = [(at + 1, *row) for at in range(len(turns.pairs)) for row in turns.rows(at)]
        one: Any = self.run
        other: Any = self.other
        return Comparison(one, other, tuple(rows)).to_frame()


class _OfSecond(NamedTuple):
    """A pending event of the second run."""

    event: RunEvent


class _SecondSide:
    """Passes the events of the second run to the common reading."""

    reads = CompareReading.reads

    def __init__(self, both: CompareReading) -> None:
        self._both = both

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        return self._both.take_of(1, event, place)


def _is_list(source: Any) -> bool:
    return (
        not isinstance(source, str | bytes | Mapping) and hasattr(source, "__iter__") and not hasattr(source, "events")
    )


def _name(run: RunLike) -> str:
    return str(getattr(run, "run_id", "a run"))
