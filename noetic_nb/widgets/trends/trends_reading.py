"""Read the trends out of a run: one chart a thread, grown event by event, and answers to the requests of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RegulatorDecided, RunEvent
from noetic_nb.regulator import Regulator
from noetic_nb.runs.palette import DECISION_LOOKS, MEAN_COLOUR, OTHER_LOOK, QUALITY_COLOUR
from noetic_nb.runs.plain_text import sendable
from noetic_nb.runs.regulation.decision_words import KIND_NAMES
from noetic_nb.runs.regulation.recorded_settings import kept_regulator
from noetic_nb.runs.regulation.regulator_signals import Signals, ThreadSignals, TurnSignals
from noetic_nb.widgets.base.feed import Place, Reading
from noetic_nb.widgets.base.moment import EVERYTHING, Moment
from noetic_nb.widgets.trends.trends_marks import MARK_SIZES
from noetic_nb.widgets.trends.trends_panels import CELLS, ThreadChart, panel_data
from noetic_nb.widgets.trends.trends_picture import EMPTY, LISTED, static_html, static_text
from noetic_nb.widgets.trends.trends_scales import PAD_PX
from noetic_nb.widgets.trends.trends_what_if import WhatIf, outcome_of, sentence

__all__ = ["TrendsReading"]

# The columns of so many threads are sent at first, which is below 1 MB; a page asks for those of others.
THREADS_SENT: Final = 6
# Marks of what would have been decided, at most: more would cover each other.
MARKS_ANSWERED: Final = 300


class TrendsReading(Reading):
    """The threads of a run as the page needs them.

    Parameters
    ----------
    moment : Moment
        What is shown.
    run : Run, optional
        The run, for what its events alone do not say; without it nothing can be decided again.
    regulator : Regulator, optional
        Decides again in place of the recorded one.

    Examples
    --------
    >>> TrendsReading().to_text()
    'Regulator trends. No turn yet. Grades, costs and decisions appear here as they come.'
    """

    reads = Signals.reads
    nothing = "{part} has no turns."

    def __init__(self, moment: Moment = EVERYTHING, run: Any = None, regulator: Regulator | None = None) -> None:
        self.moment = moment
        self._shows_all = moment.turn is None
        self.regulator = regulator
        self.what_if = WhatIf(run, moment)
        self.signals = Signals(
            thread_id=moment.thread_id, regulator_of=self._regulator_of, meta=getattr(run, "meta", None)
        )
        self.signals.words.grows = False
        self.charts: list[ThreadChart] = []
        self.shown = -1
        self._places: dict[str, int] = {}
        self._is_followed = False
        # Everything that a page needs at first, grown in place: the widget syncs this very dict.
        self.snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "sizes": {**MARK_SIZES, "pad": PAD_PX, "listed": LISTED},
            "panels": panel_data(),
            "columns": dict(CELLS),
            "looks": {kind: list(look) for kind, look in {**DECISION_LOOKS, "": OTHER_LOOK}.items()},
            "colours": {"quality": QUALITY_COLOUR, "mean": MEAN_COLOUR},
            "latest": -1,
            "threads": [],
        }

    def _regulator_of(self, decided: RegulatorDecided) -> Regulator | None:
        return None if self.what_if.run is None else kept_regulator(self.what_if.run, decided)

    @property
    def has_any(self) -> bool:
        """Whether there is something to show, or it is known why there is not."""
        return bool(self.charts)

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message about the column it changed, None while no page follows yet."""
        changed = self.signals.take(event)
        if changed is None:
            return None
        thread, turn = changed
        at = self._places.get(thread.thread_id)
        if at is None:
            at = self._new_chart(thread)
        if not (self._shows_all or self._is_shown(turn)):
            return None  # read for what it leaves to the turn that is shown
        self.snapshot["latest"] = at
        if not self._is_followed:
            return None  # `begin` takes every turn once, however often it changed
        column, is_new = self.charts[at].take(turn)
        return self._message(at, column, is_new)

    def _is_shown(self, turn: TurnSignals) -> bool:
        return self.moment.turn in (None, turn.turn)

    def _new_chart(self, thread: ThreadSignals) -> int:
        at = self._places[thread.thread_id] = len(self.charts)
        self.charts.append(ThreadChart(thread))
        given = None if self.regulator is None or thread.regulator is not None else self.regulator
        self.snapshot["threads"].append({"id": sendable(thread.thread_id), "name": thread.thread, "turns": None})
        if given is not None:
            self.charts[at].given = given.thresholds
        return at

    def _message(self, at: int, column: int, is_new: bool) -> dict[str, Any]:
        chart, known = self.charts[at], self.snapshot["threads"][at]
        is_sent = at < THREADS_SENT
        is_first = is_sent and known["turns"] is None
        rows = chart.rows()
        about = chart.changes()
        known.update(about)
        if is_sent:
            known["turns"] = rows
        if is_new:
            return {"type": "stale"}  # every column is another: a page asks for all of them
        message = {"type": "turn", "thread": at, "at": column, "about": about, "row": rows[column]}
        if is_first or len(rows) == 1:
            message["id"] = known["id"]
        return message

    def begin(self) -> None:
        """Bring the snapshot up to date: from now on pages follow."""
        self._is_followed = self.signals.words.grows = True
        for at, chart in enumerate(self.charts):
            for turn in filter(self._is_shown, chart.thread.turns):
                chart.take(turn)
            known = self.snapshot["threads"][at]
            known.update(chart.changes())
            if at < THREADS_SENT:
                known["turns"] = chart.rows()

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a page: the columns of a thread, the turns of a column, or the decisions under other thresholds."""
        match request:
            case {"what": "thread", "thread": int(at)} if 0 <= at < len(self.charts):
                chart = self.charts[at]
                chart.changes()
                return {**chart.about, "turns": chart.rows()}
            case {"what": "turns", "thread": int(at), "at": int(column)} if 0 <= at < len(self.charts):
                return self.charts[at].detail(column)
            case {"what": "what_if", "thread": int(at), "thresholds": Mapping() as thresholds} if (
                0 <= at < len(self.charts)
            ):
                return self._decide_again(self.charts[at], thresholds)
        return super().answer(request)

    def _decide_again(self, chart: ThreadChart, thresholds: Mapping[str, Any]) -> dict[str, Any]:
        if self.what_if.run is None:
            raise NoeticConfigError("NO_RUN", "The events are not at hand.", hint="Use RegulatorTrends(run).")
        thread = chart.thread
        found = self.what_if.decide(thresholds, self.regulator)
        now = outcome_of(found, thread.thread_id)
        was = None if thread.regulator is None else outcome_of(found, thread.thread_id, recorded=True)
        last = len(chart.rows()) - 1
        bands = [
            [chart.column_of(first), last if end is None else max(chart.column_of(first), chart.column_of(end))]
            for first, end in now.bands
        ]
        marks = [[chart.column_of(turn), "circuit_break", f"Turn {turn}: {name}"] for turn, name in now.breaks]
        kinds = {label: kind for kind, label in KIND_NAMES.items()}
        for label, turns in now.warned.items():
            columns: dict[int, int] = {}
            for turn in turns:
                columns.setdefault(chart.column_of(turn), turn)
            marks += [[column, kinds.get(label, ""), f"Turn {turn}: {label}"] for column, turn in columns.items()]
        return {
            "text": sentence(now, was),
            "bands": bands,
            "marks": marks[:MARKS_ANSWERED],
            "note": self._doubt() if was is not None and not thresholds else "",
        }

    def _doubt(self) -> str:
        same, total = self.what_if.tape(self.regulator).agreement()
        if same == total:
            return ""
        return (
            f"Decided again as it was set, {total - same} of {total} decisions differ: the recording lacks something."
        )

    def turns_shown(self) -> list[tuple[ThreadSignals, TurnSignals]]:
        """Return every turn that is shown, thread by thread."""
        return [(chart.thread, turn) for chart in self.charts for turn in chart.turns]

    def _shown(self) -> ThreadChart | None:
        at = self.shown if 0 <= self.shown < len(self.charts) else self.snapshot["latest"]
        if at < 0:
            return None
        self.charts[at].changes()
        return self.charts[at]

    def to_html(self) -> str:
        """Return the shown thread as HTML without scripts."""
        shown = self._shown()
        return static_html(
            self.snapshot["empty"], shown, [chart.thread.thread for chart in self.charts if chart is not shown]
        )

    def to_text(self) -> str:
        """Return the shown thread as plain text."""
        return static_text(self.snapshot["empty"], self._shown())
