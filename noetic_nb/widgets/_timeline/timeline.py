"""The live view of a run's spans over time, nested and in parallel.

A page gets only the part that it shows, with one bar for spans that are too narrow to be told apart. So ten thousand
spans are as fast to view as a hundred.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import traitlets

from noetic_nb.redact import Redaction
from noetic_nb.runs._run_source import run_of
from noetic_nb.runs._timeline.run_spans import has_clock
from noetic_nb.widgets._timeline.timeline_reading import TimelineReading
from noetic_nb.widgets.base._host import enclosing_host
from noetic_nb.widgets.base._picture import PictureView
from noetic_nb.widgets.base._selection import Moment, Selection

FRAME: Final = {
    "run_id": "object", "thread_id": "object", "execution_id": "object", "turn": "int64", "seq": "int64", "kind": "object",
    "name": "object", "start_ms": "float64", "duration_ms": "float64", "status": "object", "depth": "int64",
    "parent": "Int64", "call": "Int64", "item": "Int64", "decision": "Int64", "error": "object",
}  # fmt: skip


class RunTimeline(PictureView):
    """Show turns, steps, children, model and tool calls, hooks and waits over time, nested and in parallel.

    Parameters
    ----------
    run : Run or object with a ``run``
        A growing run, or one that was loaded, imported or replayed.
    thread_id : str, optional
        Show only this thread.
    turn : int, optional
        Show only this turn, counted from 1 in each thread.
    until : int, optional
        Show the turns up to this one, inclusive.
    selection : Selection, optional
        The selection shared with other views: choosing a span selects its turn, and its call, item and decision if it
        has them; selections of other views are shown here.

    Attributes
    ----------
    scale : str
        ``"time"``, or ``"order"`` for equal widths. A recording without clock times only has the order.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN`` if `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD``;
        ``NOT_A_SELECTION``.

    References
    ----------
    .. [1] docs/behaviour/views.md, "Timeline" (kinds, columns, signs, how starts are computed).

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with RunTimeline(Run()) as view:
    ...     view
    Run timeline. Nothing has run yet. Turns, calls and hooks appear here as they run.
    """

    scale = traitlets.Enum(("time", "order"), "time").tag(sync=True)
    scripts: ClassVar[tuple[str, ...]] = ("base/scene", "timeline/timeline")

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
        is_timed = has_clock(run_of(run))
        self._timeline = TimelineReading(moment, is_timed=is_timed, run=run_of(run))
        self._timeline.snapshot["listed"] = enclosing_host() is not None
        super().__init__(run, self._timeline, moment=moment, selection=selection, scale="time" if is_timed else "order")
        self.observe(self._rescale, "scale")

    def to_frame(self) -> Any:
        """Return the shown spans as a table.

        Returns
        -------
        pandas.DataFrame
            One row per span, in the order of recording: ``run_id, thread_id, execution_id, turn, seq`` (of its first
            event), ``kind, name, start_ms`` (the run's clock), ``duration_ms, status, depth`` (the number of enclosing
            spans), ``parent`` (the row of the enclosing span), ``call, item, decision`` (as in `Selection`), ``error``.
            Unknown values are missing, not 0.
        """
        import pandas

        with self.up_to_date():
            timeline = self._timeline.timeline
            run_id = getattr(self.run, "run_id", None)
            rows = [
                (
                    run_id,
                    *(span.where.thread_id, span.where.execution_id, span.where.turn, span.seq, span.kind, span.name),
                    *(span.start_ms if timeline.is_timed else None, span.duration_ms, span.status, span.depth),
                    *(None if span.parent is None else span.parent.at, span.call, span.item, span.decision, span.error),
                )
                for span in timeline.spans
            ]
        rule = Redaction()
        return pandas.DataFrame(
            {
                name: pandas.Series(
                    [rule.data(row[place]) if dtype == "object" else row[place] for row in rows], dtype=dtype
                )
                for place, (name, dtype) in enumerate(FRAME.items())
            }
        )

    def _rescale(self, _change: Any) -> None:
        self._timeline.by_time = self.scale == "time"
