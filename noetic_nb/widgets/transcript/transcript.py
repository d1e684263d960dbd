"""The exact request of a model call, item by item, and its outcome: the live view of requests."""

from __future__ import annotations

from typing import Any, Final

import traitlets

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs.run_source import run_of
from noetic_nb.widgets.base.assets import once_a_page, script, style
from noetic_nb.widgets.base.moment import Moment
from noetic_nb.widgets.base.run_view import RunView
from noetic_nb.widgets.base.selection import Selection
from noetic_nb.widgets.transcript.transcript_reading import TranscriptReading

__all__ = ["Transcript"]

COLUMNS: Final = {
    "place": "int64",
    "origin": "object",
    "role": "object",
    "tool": "object",
    "tokens": "float64",
    "sent": "bool",
    "reason": "object",
    "smallest_budget": "float64",
    "budget_of": "object",
    "text": "object",
}


class Transcript(RunView):
    """Show exactly the request that a model call sent, item by item, and its outcome.

    Parameters
    ----------
    run : Run or object with a ``run``
        A run that grows, or one that was loaded or replayed.
    call : int or ModelCalled, optional
        The call that is shown: its place among the agent's model calls of the run, 0 for the first, negative from the
        end; of the thread where `thread_id` is given. The newest by default, and then those that come.
    thread_id : str, optional
        Show only this thread.
    turn : int, optional
        Show only this turn, 1 for the first of a thread.
    until : int, optional
        Show the turns up to this one, inclusive.
    selection : Selection, optional
        What someone points at, shared with other views: a call or an item that is selected elsewhere is shown here.

    Attributes
    ----------
    follow : bool
        Whether the newest call is shown.
    position : int
        Which call is shown when it is not the newest: its place among those that are shown, 0 for the first.
    compare_with : int, "previous" or None
        The call that the shown one is compared with: its place among the agent's model calls of the run.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``UNKNOWN_CALL``; ``INVALID_TURN`` where `turn` or `until` is not a whole number of at least 0;
        ``INVALID_THREAD``; ``NOT_A_SELECTION``.

    References
    ----------
    .. [1] docs/behaviour/views.md, "Transcript".

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with Transcript(Run()) as view:
    ...     view
    Transcript. No model call yet. Each call appears here as soon as the agent has made one.
    """

    follow = traitlets.Bool(True).tag(sync=True)
    # Not synced: while someone moves quickly, places that come back would make the picture jump.
    position = traitlets.Int(-1)
    compare_with = traitlets.Any(None, allow_none=True).tag(sync=True)
    scripts = ("transcript/transcript_parts", "transcript/transcript")
    _css = style("transcript/transcript")
    _esm = once_a_page(script(*scripts), _css, scripts[-1])
    _announces = True

    def __init__(
        self,
        run: Any,
        *,
        call: Any = None,
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        moment = Moment(thread_id, turn, until)
        self._transcript = TranscriptReading(moment, getattr(run_of(run), "meta", None))
        super().__init__(run, self._transcript, moment=moment, selection=selection)
        self.observe(self._move, ["follow", "position", "compare_with"])
        try:
            if call is not None:
                self._show(self._transcript.find(call))
        except NoeticConfigError:
            self.close()
            raise
        if call is None:
            self._show(self._transcript.place_of(self.selection.fields))

    def to_frame(self) -> Any:
        """Return the request of the shown call as a table.

        Returns
        -------
        pandas.DataFrame
            One row an item, in the order sent, absent ones in their places: ``place``, ``origin`` (``system``, ``tools``,
            ``history``, ``tool``, ``guidance``, ``layer:<id>``), ``role``, ``tool``, ``tokens``, ``sent``, ``reason`` (why
            it was not sent), ``smallest_budget`` (the smallest that would have admitted it, tokens), ``budget_of``
            (``total``, ``layer:<id>`` for its maximum, ``window``, which is in items, or several of them) and ``text``.
            Of many absent items the last 200 have a smallest budget.
        """
        import pandas

        with self.up_to_date():
            rows = self._transcript.rows()
        return pandas.DataFrame(
            {
                name: pandas.Series([row[at] for row in rows], dtype=dtype)
                for at, (name, dtype) in enumerate(COLUMNS.items())
            }
        )

    @traitlets.validate("compare_with")
    def _known_call(self, proposal: Any) -> Any:
        value = proposal["value"]
        if value is not None and value != "previous":
            self._transcript.find_number(value)
        return value

    def _selected(self, fields: dict[str, Any]) -> None:
        with self.up_to_date():
            place = self._transcript.place_of(fields)
            self._announces = False
            self._show(place)
            self._announces = True
        super()._selected(fields)
        # A page finds a call by itself, and what else is chosen by what it is sent: last, or a page that has yet to draw the
        # choice before this one would go back there.
        if place is not None and fields["call"] is None:
            self.send({"type": "show", "at": self._transcript.shown})

    def _show(self, place: int | None) -> None:
        if place is not None:
            self.set_trait("position", place)
            self.set_trait("follow", False)

    def _move(self, change: Any) -> None:
        reading = self._transcript
        if change.name == "position":
            self.set_trait("follow", False)
        # A page that was saved with another run may name a call that is not there.
        is_there = not self.follow and 0 <= self.position < len(reading.book.calls)
        reading.shown = reading.snapshot["at"] = self.position if is_there else -1
        reading.compared = self.compare_with
        if change.name == "position" and self._announces:
            self.send({"type": "show", "at": reading.shown})
