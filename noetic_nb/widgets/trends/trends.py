"""Quality and cost walking towards the thresholds: the live view of a regulator.

Quality and spending belong to a task, and a task to a thread: one thread is shown at a time, the one that moved last
unless another is chosen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import traitlets

from noetic_nb.events import RunEvent
from noetic_nb.runs.palette import DECISION_LOOKS, OTHER_LOOK
from noetic_nb.runs.regulator_signals import Signals, ThreadSignals, TurnSignals
from noetic_nb.widgets.base.assets import script, style
from noetic_nb.widgets.base.feed import Place, Reading
from noetic_nb.widgets.base.moment import EVERYTHING, Moment
from noetic_nb.widgets.base.run_view import RunView
from noetic_nb.widgets.base.selection import Selection
from noetic_nb.widgets.trends.trends_picture import (
    COLOURS,
    COLUMNS,
    EMPTY,
    SIZES,
    static_html,
    static_text,
    thread_data,
    turn_data,
)

__all__ = ["RegulatorTrends", "TrendsReading"]


class TrendsReading(Reading):
    """The threads of a run as the page needs them.

    Examples
    --------
    >>> TrendsReading().to_text()
    'Regulator trends. No turn yet. Grades, costs and decisions appear here as they come.'
    """

    def __init__(self, moment: Moment = EVERYTHING) -> None:
        self.moment = moment
        self.signals = Signals(thread_id=moment.thread_id)
        self.shown = -1
        # Everything read so far, grown in place: the widget syncs this very dict.
        self.snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "sizes": SIZES,
            "columns": list(COLUMNS),
            "looks": {kind: list(look) for kind, look in {**DECISION_LOOKS, "": OTHER_LOOK}.items()},
            "colours": list(COLOURS),
            "latest": -1,
            "threads": [],
        }

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message about the turn it changed."""
        changed = self.signals.take(event)
        if changed is None:
            return None
        thread, turn = changed
        at = list(self.signals.threads).index(event.where.thread_id)
        threads = self.snapshot["threads"]
        if at == len(threads):
            threads.append({**thread_data(thread), "turns": []})
        if self.moment.turn not in (None, turn.turn):
            return None  # read for what it leaves to the turn that is shown
        turns = self._turns(thread)
        # From the end: nearly every event is about the newest turn.
        place_in_thread = next(n for n in range(len(turns) - 1, -1, -1) if turns[n] is turn)
        about, row = thread_data(thread), turn_data(turn)
        threads[at].update(about)
        threads[at]["turns"][place_in_thread : place_in_thread + 1] = [row]
        self.snapshot["latest"] = at
        return {"type": "turn", "thread": at, "at": place_in_thread, "about": about, "row": row}

    def _turns(self, thread: ThreadSignals) -> list[TurnSignals]:
        shown = self.moment.turn
        return thread.turns if shown is None else [turn for turn in thread.turns if turn.turn == shown]

    def _shown(self) -> ThreadSignals | None:
        threads = list(self.signals.threads.values())
        at = self.shown if 0 <= self.shown < len(threads) else self.snapshot["latest"]
        return replace(threads[at], turns=self._turns(threads[at])) if threads and at >= 0 else None

    def to_html(self) -> str:
        """Return the shown thread as HTML without scripts."""
        shown = self._shown()
        others = [t.thread for t in self.signals.threads.values() if shown is None or t.thread != shown.thread]
        return static_html(shown, others)

    def to_text(self) -> str:
        """Return the shown thread as plain text."""
        return static_text(self._shown())


class RegulatorTrends(RunView):
    """Show quality and output tokens per turn against the regulator's thresholds, with its decisions.

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
        What someone points at, shared with other views.

    Attributes
    ----------
    thread_at : int
        Which thread is shown, 0 for the first of the run; -1 for the one that moved last.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN`` where `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD``;
        ``NOT_A_SELECTION``.

    Notes
    -----
    A turn with several grades shows all of them; the mean is that of as many grades of the thread as the regulator averages,
    drawn against what it calls poor [1]_. Both are read off its decisions: a recording that lacks them shows neither.

    References
    ----------
    .. [1] docs/behaviour/runs.md, "Readings".

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with RegulatorTrends(Run()) as view:
    ...     view
    Regulator trends. No turn yet. Grades, costs and decisions appear here as they come.
    """

    table = "decisions"
    thread_at = traitlets.Int(-1).tag(sync=True)
    _esm = script("trends/trends")
    _css = style("trends/trends")

    def __init__(
        self,
        run: Any,
        *,
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        moment = Moment(thread_id, turn, until)
        self._trends = TrendsReading(moment)
        super().__init__(run, self._trends, moment=moment, selection=selection)
        self.observe(self._choose, "thread_at")

    def _choose(self, _change: Any) -> None:
        self._trends.shown = self.thread_at
