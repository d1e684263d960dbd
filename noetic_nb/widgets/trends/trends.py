"""Quality, spending and drift walking towards the thresholds: the live view of a regulator.

Quality and spending belong to a task, and a task to a thread: one thread is shown at a time, the one that moved last
unless another is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import traitlets

from noetic_nb.errors import NoeticConfigError
from noetic_nb.redact import redact_text
from noetic_nb.regulator import Regulator
from noetic_nb.runs.run_source import run_of
from noetic_nb.widgets.base.assets import once_a_page, script, style
from noetic_nb.widgets.base.moment import Moment
from noetic_nb.widgets.base.run_view import RunView
from noetic_nb.widgets.base.selection import Selection
from noetic_nb.widgets.trends.trends_reading import TrendsReading

__all__ = ["RegulatorTrends"]

FRAME: Final = {
    "thread_id": "object", "turn": "int64", "quality": "float64", "mean": "float64", "tokens": "Int64", "spent": "Int64",
    "cap": "float64", "tokens_in": "float64", "usd": "float64", "wallclock_ms": "float64", "drift": "float64",
    "confidence": "float64", "calls_in_a_row": "float64", "poor": "float64", "window": "float64", "decisions": "object",
    "stops": "bool", "broken": "bool", "thresholds": "object",
}  # fmt: skip


class RegulatorTrends(RunView):
    """Show quality, spending, drift and tool calls per turn against the regulator's thresholds, with its decisions.

    Parameters
    ----------
    run : Run or object with a ``run``
        A run that grows, or one that was loaded or replayed.
    thread_id : str, optional
        Show only this thread.
    turn : int, optional
        Show only this turn, 1 for the first of a thread.
    until : int, optional
        Show the turns up to this one, inclusive.
    selection : Selection, optional
        What someone points at, shared with other views: a turn that is clicked is chosen, a chosen one is marked.
    regulator : Regulator, optional
        Decides again in place of the recorded one when thresholds are dragged; needed for a run that no regulator watched.

    Attributes
    ----------
    thread_at : int
        Which thread is shown, 0 for the first of the run; -1 for the one that moved last.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN`` where `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD``;
        ``NOT_A_SELECTION``; ``INVALID_REGULATOR``.

    Notes
    -----
    A turn with several grades shows all of them; the mean is that of as many grades of the thread as the regulator averages,
    drawn against what it calls poor [1]_. All thresholds are read off its decisions: a recording that lacks them shows none.

    References
    ----------
    .. [1] docs/behaviour/runs.md, "Readings".
    .. [2] docs/behaviour/views.md, "Trends" (columns, what is dragged, what is decided again).

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with RegulatorTrends(Run()) as view:
    ...     view
    Regulator trends. No turn yet. Grades, costs and decisions appear here as they come.
    """

    thread_at = traitlets.Int(-1).tag(sync=True)
    scripts = ("trends/trends",)
    _css = style("trends/trends")
    _esm = once_a_page(script(*scripts), _css, scripts[-1])

    def __init__(
        self,
        run: Any,
        *,
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
        regulator: Regulator | None = None,
    ) -> None:
        moment = Moment(thread_id, turn, until)
        if regulator is not None and not isinstance(regulator, Regulator):
            raise NoeticConfigError(
                "INVALID_REGULATOR", "That is no regulator.", given=regulator, hint="Use Regulator.for_user(name)."
            )
        self._trends = TrendsReading(moment, run_of(run), regulator)
        super().__init__(run, self._trends, moment=moment, selection=selection)
        self.observe(self._choose, "thread_at")

    def what_if(
        self,
        thresholds: Mapping[str, Mapping[str, float | None]] | None = None,
        *,
        regulator: Regulator | None = None,
    ) -> Any:
        """Return the decisions of the regulator under other thresholds, at every moment of a recorded decision.

        The real regulator decides, on what was recorded: that other answers would have followed is not in it.

        Parameters
        ----------
        thresholds : mapping of str to mapping of str to float
            ``{predicate: {name: number}}``, named as in `Regulator.thresholds`; the numbers that are not named stay as they
            were recorded. A cap that is None is none.
        regulator : Regulator, optional
            Whose settings and memory count in place of the recorded ones; needed where the run had none.

        Returns
        -------
        pandas.DataFrame
            A row for each decision: the columns of ``run.to_frame("decisions")`` that another decision changes, and ``was``,
            ``was_reason``, ``was_stops`` as recorded (None and False where nothing was). `stops` is True where a turn would be
            stopped; a break stops every later turn until the task is reset. ``seq`` is missing where nothing was recorded.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_PREDICATE``, ``UNKNOWN_THRESHOLD``, ``INVALID_THRESHOLD``; ``NO_REGULATOR`` where the run had no
            regulator, or does not say how it was set up; ``INVALID_REGULATOR``; ``INVALID_RECORDING``.

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
        with self.up_to_date():
            return self._trends.what_if.frame(
                {} if thresholds is None else thresholds, self._trends.regulator if regulator is None else regulator
            )

    def to_frame(self) -> Any:
        """Return the shown values as a table.

        Returns
        -------
        pandas.DataFrame
            A row for each turn: what it used, what the task had spent by then, the thresholds in force, and the decisions.
            What nobody knows is missing, not 0.
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
