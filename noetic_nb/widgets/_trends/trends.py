"""The live view of a regulator: quality, spending and drift against their thresholds.

Quality and spending belong to a task, and a task to a thread. So one thread is shown at a time: the most recently
active one, unless another is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import traitlets

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._replaying.regulator_readings import RegulatorBank, Stops
from noetic_nb.plots._scene.scene import PAD_PX, Mark, Scene, series_data
from noetic_nb.plots._trends.trends_chart import BRUSHED, ThreadChart
from noetic_nb.plots._trends.trends_conditions import condition_marks, condition_rows
from noetic_nb.plots._trends.trends_marks import lane_of
from noetic_nb.plots._trends.trends_panels import CELLS, SERIES
from noetic_nb.redact import redact_text
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._plain_text import sendable
from noetic_nb.runs._regulation.decision_words import KIND_NAMES
from noetic_nb.runs._regulation.recorded_regulator import checked_regulator, kept_regulator
from noetic_nb.runs._regulation.regulator_signals import Signals
from noetic_nb.runs._regulation.thread_signals import ThreadSignals, TurnSignals
from noetic_nb.runs._run_source import run_of
from noetic_nb.widgets._trends.trends_picture import EMPTY, LISTED, static_html, static_text, turns_table
from noetic_nb.widgets._trends.trends_what_if import WhatIf, outcome_of, sentence
from noetic_nb.widgets.base._feed import Reading
from noetic_nb.widgets.base._picture import PictureView
from noetic_nb.widgets.base._selection import EVERYTHING, Moment, Selection
from noetic_nb.widgets.base._table import keyed

# Columns of this many threads are sent initially, less than 1 MB; a page requests the others.
THREADS_SENT: Final = 6
# Most marks of hypothetical decisions: more would cover each other.
MARKS_ANSWERED: Final = 300


class TrendsReading(Reading):
    """The threads of a run as data for a page.

    Parameters
    ----------
    moment : Moment
        The part of the run to show.
    run : Run, optional
        The run, for data beyond its events; without it nothing can be decided again.
    regulator : Regulator, optional
        Decides again instead of the recorded regulator.
    bank : RegulatorBank, optional
        Runs for trying thresholds.

    Examples
    --------
    >>> TrendsReading().to_text()
    'Regulator trends. No turn yet. Grades, costs and decisions appear here as they come.'
    """

    counted = "regulator_decided", "decisions"
    reads = Signals.reads
    nothing = "{part} has no turns."

    def __init__(
        self,
        moment: Moment = EVERYTHING,
        run: Any = None,
        regulator: Regulator | None = None,
        bank: RegulatorBank | None = None,
    ) -> None:
        self.moment = moment
        self.bank = bank
        self._shows_all = moment.turn is None
        self.regulator = regulator
        self.what_if = WhatIf(run, moment)
        regulator_of = None if run is None else partial(kept_regulator, run)
        self.asks = self.signals = Signals(
            thread_id=moment.thread_id, regulator_of=regulator_of, meta=getattr(run, "meta", None)
        )
        self.signals.words.grows = False
        self.charts: list[ThreadChart] = []
        self.shown = -1
        self._places: dict[str, int] = {}
        # New or changed turns that pages do not know yet, by identity.
        self._untold: dict[int, tuple[int, TurnSignals]] = {}
        # The initial data of a page, updated in place: the widget syncs this very dict.
        self.snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "pad": PAD_PX,
            "listed": LISTED,
            "brushed": BRUSHED,
            "bank": bank is not None,
            "series": series_data(SERIES),
            "columns": [list(cell) for cell in CELLS],
            "latest": -1,
            "threads": [],
        }

    @property
    def has_any(self) -> bool:
        return bool(self.charts)

    def changed(self, moved: tuple[ThreadSignals, TurnSignals]) -> None:
        """Handle a turn changed by an event."""
        thread, turn = moved
        at = self._places.get(thread.thread_id)
        if at is None:
            at = self._new_chart(thread)
        if self._shows_all or self._is_shown(turn):  # a hidden turn is read only for its effect on the shown one
            self.snapshot["latest"] = at
            self._untold[id(turn)] = at, turn  # each turn is drawn once, however often it changed

    def growth(self) -> dict[str, Any] | None:
        """Return the changed columns of each thread, and what else has changed about it."""
        if not self._untold or not self.is_followed:
            return None
        moved: dict[int, set[int]] = {}
        are_all_new = False
        for at, turn in self._told():
            column, is_new = self.charts[at].take(turn)
            moved.setdefault(at, set()).add(column)
            are_all_new |= is_new
        told = [self._grown(at, columns) for at, columns in moved.items()]
        # If every column has changed, a page requests all of them.
        return {"type": "stale"} if are_all_new else {"type": "turns", "threads": told}

    def _told(self) -> Iterable[tuple[int, TurnSignals]]:
        told, self._untold = self._untold, {}
        return told.values()

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

    def _grown(self, at: int, columns: set[int]) -> dict[str, Any]:
        chart, known = self.charts[at], self.snapshot["threads"][at]
        rows = chart.rows()
        about = chart.changes()
        known.update(chart.about)
        if at < THREADS_SENT:
            known["turns"] = rows
        told = [[column, rows[column]] for column in sorted(columns)]
        return {"thread": at, "id": known["id"], "about": about, "rows": told}

    def begin(self) -> None:
        super().begin()
        self.signals.words.grows = True
        for at, turn in self._told():
            self.charts[at].take(turn)
        for at, chart in enumerate(self.charts):
            known = self.snapshot["threads"][at]
            chart.changes()
            known.update(chart.about)
            if at < THREADS_SENT:
                known["turns"] = chart.rows()

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a page: the columns of a thread, the turns of a column, or the decisions with other thresholds."""
        match request:
            case {"what": "thread", "thread": int(at)} if 0 <= at < len(self.charts):
                return self.charts[at].data()
            case {"what": "part", "thread": int(at), "first": int(first), "last": int(last)} if (
                0 <= at < len(self.charts)
            ):
                return self.charts[at].part(first, last).data()
            case {"what": str(what), "thread": int(at), **more} if 0 <= at < len(self.charts):
                match more.get("part"):
                    case [int(first), int(last)]:
                        chart = self.charts[at].part(first, last)
                    case _:
                        chart = self.charts[at]
                match what, more:
                    case "turns", {"at": int(column)}:
                        return self._inside(chart, column)
                    case "table", _:
                        data = chart.data()
                        return [keyed("table", turns_table(data["cells"], data["turns"], caption="Table"))]
                    case "conditions", {"thresholds": Mapping() as thresholds}:
                        return [list(mark[:3]) for mark in self._conditions(chart, thresholds)]
                    case "what_if", {"thresholds": Mapping() as thresholds}:
                        return self._decide_again(chart, thresholds)
                    case "bank", {"thresholds": Mapping() as thresholds}:
                        return {"text": str(self.stops_of(thresholds))}
        return super().answer(request)

    @staticmethod
    def _inside(chart: ThreadChart, column: int) -> dict[str, Any]:
        found = chart.detail(column)
        html = turns_table(chart.data()["cells"], found, caption="Turns of a column", is_live=True)
        turns = [each["turn"] for each in found]
        return {"turns": turns, "head": f"Turns {turns[0]} to {turns[-1]}", "parts": [keyed("turns", html)]}

    def _decide_again(self, chart: ThreadChart, thresholds: Mapping[str, Any]) -> dict[str, Any]:
        if self.what_if.run is None:
            raise NoeticConfigError("NO_RUN", "The events are not available.", hint="Use RegulatorTrends(run).")
        thread = chart.thread
        found = self.what_if.decide(thresholds, self.regulator)
        now = outcome_of(found, thread.thread_id)
        was = None if thread.regulator is None else self.what_if.recorded(found, thread.thread_id)
        last = len(chart.rows()) - 1
        kinds = {label: kind for kind, label in KIND_NAMES.items()}
        over: list[Mark] = []
        if thresholds or was is None:
            for first, end in now.bands:
                left = chart.column_of(first)
                over.append(
                    Mark(
                        "would-break",
                        [left, None, (last if end is None else max(left, chart.column_of(end))) + 1, None],
                    )
                )
            decided = [("circuit_break", name, [turn]) for turn, name in now.breaks]
            decided += [(kinds.get(name, "other"), name, turns) for name, turns in now.warned.items()]
            for kind, name, turns in decided:
                series = f"would-{kind}" if f"would-{kind}" in SERIES else "would-other"
                lane = lane_of(name)
                columns = {chart.column_of(turn): turn for turn in reversed(turns)}
                over += [Mark(series, [at + 0.5, lane], f"Turn {turn}: {name}") for at, turn in columns.items()]
        return {
            "text": sentence(now, was),
            "over": [list(mark[:3]) for mark in over[:MARKS_ANSWERED]],
            "note": self._doubt() if was is not None and not thresholds else "",
        }

    def _conditions(self, chart: ThreadChart, thresholds: Mapping[str, Any]) -> list[Mark]:
        return condition_marks(self.what_if.judged(thresholds, self.regulator), chart)

    def conditions_of(self, chart: ThreadChart) -> list[Mark]:
        """Return the recorded conditions of predicates for a picture; none if they are unknown or the run is long."""
        if self.what_if.run is None or chart.size > 1:
            return []
        try:
            return self._conditions(chart, {})
        except NoeticConfigError:  # the set-up of its regulator is unknown
            return []

    def stops_of(self, thresholds: Mapping[str, Any], regulator: Regulator | None = None) -> Stops:
        """Return the runs of the bank that thresholds would stop; raises `NoeticConfigError` as `RegulatorTrends.what_if`."""
        if self.bank is None:
            raise NoeticConfigError("NO_RUNS", "There is no bank of runs.", hint="Use RegulatorTrends(run, bank=runs).")
        tape = self.what_if.tape(self.regulator if regulator is None else regulator)
        return self.bank.stops(tape.template, tape.settings_under(thresholds))

    def _on_bank(self) -> tuple[str, ...]:
        """Describe the bank's runs stopped by the recorded thresholds."""
        try:
            return () if self.bank is None else (f"As it was set: {self.stops_of({})}",)
        except NoeticConfigError:  # the set-up of its regulator is unknown
            return ()

    def _doubt(self) -> str:
        same, total = self.what_if.tape(self.regulator).agreement()
        if same == total:
            return ""
        return (
            f"Decided again as it was set, {total - same} of {total} decisions differ: the recording lacks something."
        )

    def turns_shown(self) -> list[tuple[ThreadSignals, TurnSignals]]:
        return [(chart.thread, turn) for chart in self.charts for turn in chart.turns]

    def _shown(self) -> ThreadChart | None:
        at = self.shown if 0 <= self.shown < len(self.charts) else self.snapshot["latest"]
        if at < 0:
            return None
        self.charts[at].changes()
        return self.charts[at]

    def to_html(self) -> str:
        shown = self._shown()
        others = [chart.thread.thread for chart in self.charts if chart is not shown]
        over = () if shown is None else self.conditions_of(shown)
        return static_html(self.snapshot["empty"], shown, others, over, self._on_bank())

    def scene(self) -> Scene:
        """Return the picture of the shown thread."""
        shown = self._shown()
        return Scene(title="Regulator trends") if shown is None else shown.scene(self.conditions_of(shown))

    def to_text(self) -> str:
        return "\n".join([static_text(self.snapshot["empty"], self._shown()), *self._on_bank()])


FRAME: Final = {
    "thread_id": "object", "turn": "int64", "quality": "float64", "mean": "float64", "tokens": "Int64", "spent": "Int64",
    "cap": "float64", "tokens_in": "float64", "usd": "float64", "wallclock_ms": "float64", "drift": "float64",
    "confidence": "float64", "calls_in_a_row": "float64", "poor": "float64", "window": "float64", "decisions": "object",
    "stops": "bool", "broken": "bool", "thresholds": "object",
}  # fmt: skip


CONDITIONS: Final = {
    "thread_id": "object", "turn": "int64", "predicate": "object", "condition": "object", "value": "float64",
    "threshold": "float64", "met": "bool", "fired": "bool",
}  # fmt: skip


class RegulatorTrends(PictureView):
    """Show quality, spending, drift and tool calls per turn against the regulator's thresholds, with its decisions.

    Parameters
    ----------
    run : Run or object with a ``run``
        A growing run, or one that was loaded or replayed.
    thread_id : str, optional
        Show only this thread.
    turn : int, optional
        Show only this turn, counted from 1 in each thread.
    until : int, optional
        Show the turns up to this one, inclusive.
    selection : Selection, optional
        The selection shared with other views: clicking a turn selects it, the selected turn is marked.
    regulator : Regulator, optional
        Decides again instead of the recorded one when you drag thresholds; required for a run without a regulator.
    bank : Run or iterable of Run, optional
        Runs with an outcome: beside dragged thresholds, the view shows how many failed and good runs they would stop,
        with 95 % intervals.

    Attributes
    ----------
    thread_at : int
        The index of the shown thread; -1 for the most recently active one.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN`` if `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD``;
        ``NOT_A_SELECTION``; ``INVALID_REGULATOR``; ``INVALID_RUN``, ``NO_RUNS``, ``NO_LABELS``, ``RUN_INCOMPLETE`` or
        ``RUN_NOT_ENDED`` for the bank.

    Notes
    -----
    All grades of a turn are shown; the mean covers as many grades of the thread as the regulator averages, and is drawn
    against the regulator's limit for poor quality [1]_. All thresholds come from its decisions: without them there are none.

    References
    ----------
    .. [1] docs/behaviour/runs.md, "Readings".
    .. [2] docs/behaviour/views.md, "Trends" (columns, draggable thresholds, recomputed decisions).

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with RegulatorTrends(Run()) as view:
    ...     view
    Regulator trends. No turn yet. Grades, costs and decisions appear here as they come.
    """

    thread_at = traitlets.Int(-1).tag(sync=True)
    scripts = ("base/scene", "trends/trends")

    def __init__(
        self,
        run: Any,
        *,
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
        regulator: Regulator | None = None,
        bank: Run | Iterable[Run] | None = None,
    ) -> None:
        moment = Moment(thread_id, turn, until)
        if regulator is not None:
            checked_regulator(regulator)
        tried_on = None if bank is None else RegulatorBank(bank)
        self._trends = TrendsReading(moment, run_of(run), regulator, tried_on)
        super().__init__(run, self._trends, moment=moment, selection=selection)
        self.observe(self._choose, "thread_at")

    def what_if(
        self,
        thresholds: Mapping[str, Mapping[str, float | None]] | None = None,
        *,
        regulator: Regulator | None = None,
    ) -> Any:
        """Return the decisions of the regulator with other thresholds, at every recorded decision.

        The real regulator decides on the recorded data; the different answers that might have followed are not considered.

        Parameters
        ----------
        thresholds : mapping of str to mapping of str to float
            ``{predicate: {name: number}}``, named as in `Regulator.thresholds`; other numbers stay as recorded. None as
            a cap means no cap.
        regulator : Regulator, optional
            Its settings and memory replace the recorded ones; required if the run had none.

        Returns
        -------
        pandas.DataFrame
            One row per decision: the columns of ``run.to_frame("decisions")`` that a decision determines, and ``was``,
            ``was_reason``, ``was_stops`` as recorded (None and False if nothing was). `stops` is True if a turn would be
            stopped; a break stops every later turn until the task is reset. ``seq`` is missing if nothing was recorded.
            ``attrs["bank"]`` has the `Count` of the bank's runs that would be stopped, ``failed`` and ``good``.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_PREDICATE``, ``UNKNOWN_THRESHOLD``, ``INVALID_THRESHOLD``; ``NO_REGULATOR`` if the run had no
            regulator or its set-up is unknown; ``INVALID_REGULATOR``; ``INVALID_RECORDING``.

        Examples
        --------
        >>> from noetic_nb.lab import datasets, replay_regulator
        >>> run = replay_regulator(datasets.airline_run(26), Regulator.for_user("ann"))
        >>> with RegulatorTrends(run) as view:
        ...     found = view.what_if({"tool_loop": {"threshold": 3}})
        >>> first = found[found["stops"]].iloc[0]
        >>> int(first["turn"]), first["reason"], first["was"]
        (4, 'repeated_tool_call_loop', 'continue')
        """
        wanted = {} if thresholds is None else thresholds
        with self.up_to_date():
            found = self._trends.what_if.frame(wanted, self._trends.regulator if regulator is None else regulator)
            if self._trends.bank is not None:
                found.attrs["bank"] = self._trends.stops_of(wanted, regulator)._asdict()
        return found

    def conditions(self) -> Any:
        """Return each condition of each predicate in each turn, as the recorded regulator evaluated it.

        Returns
        -------
        pandas.DataFrame
            ``thread_id``, ``turn``, ``predicate``, ``condition``, ``value`` (missing if not defined), ``threshold``,
            ``met``, and ``fired``: whether the predicate decided in the turn. A turn is evaluated where the predicate
            held, otherwise at its last moment.

        Raises
        ------
        NoeticConfigError
            As `what_if`.

        Examples
        --------
        >>> from noetic_nb.lab import datasets, replay_regulator
        >>> run = replay_regulator(datasets.airline_run(26), Regulator.for_user("ann"))
        >>> with RegulatorTrends(run) as view:
        ...     found = view.conditions()
        >>> loop = found[(found["predicate"] == "tool_loop") & (found["turn"] == 1)].iloc[0]
        >>> loop["condition"], bool(loop["met"]), bool(loop["fired"])
        ('repetitions', False, False)
        """
        import pandas

        with self.up_to_date():
            rows = condition_rows(self._trends.what_if.judged({}, self._trends.regulator))
        frame = pandas.DataFrame(rows, columns=list(CONDITIONS)).astype(CONDITIONS)
        frame["thread_id"] = frame["thread_id"].map(redact_text)
        return frame

    def to_frame(self) -> Any:
        """Return the shown values as a table.

        Returns
        -------
        pandas.DataFrame
            One row per turn: its usage, the task's spending so far, the thresholds in force, and the decisions. Unknown
            values are missing, not 0.
        """
        import pandas

        with self.up_to_date():
            rows = [_row(thread.thread_id, turn) for thread, turn in self._trends.turns_shown()]
        return pandas.DataFrame(
            {name: pandas.Series([row[name] for row in rows], dtype=dtype) for name, dtype in FRAME.items()}
        )

    def _choose(self, _change: Any) -> None:
        self._trends.shown = self.thread_at


def _row(thread_id: str, turn: Any) -> dict[str, Any]:
    return {
        "thread_id": redact_text(thread_id),
        "turn": turn.turn,
        "quality": turn.qualities[-1] if turn.qualities else None,
        "mean": turn.mean,
        "tokens": turn.tokens,
        "spent": turn.total,
        "cap": turn.cap,
        "tokens_in": turn.totals.get("tokens_in"),
        "usd": turn.totals.get("usd"),
        "wallclock_ms": turn.totals.get("wallclock_ms"),
        "drift": turn.drift,
        "confidence": turn.confidence,
        "calls_in_a_row": turn.calls_in_a_row,
        "poor": turn.poor,
        "window": turn.window,
        "decisions": ", ".join(mark.label for mark in turn.marks),
        "stops": any(mark.stops for mark in turn.marks),
        "broken": turn.broken,
        "thresholds": {
            name: dict(numbers) for name, numbers in turn.thresholds.items() if isinstance(numbers, Mapping)
        },
    }
