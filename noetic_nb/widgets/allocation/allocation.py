"""Where every token of a model call went: the live view of budgets.

The upper bar is what was sent, the lower one what had been planned; a layer's pale part was yielded to history. Loaded and
live runs look the same: both are runs.
"""

from __future__ import annotations

from typing import Any

import traitlets

from noetic_nb.events import RunEvent
from noetic_nb.runs.model_calls import NO_PLANS, Calls
from noetic_nb.runs.palette import ink_on, layer_colour
from noetic_nb.widgets.allocation.allocation_picture import (
    COLUMNS,
    EMPTY,
    LOOKS,
    NOTE,
    call_data,
    fixed_parts,
    static_html,
    static_text,
)
from noetic_nb.widgets.base.assets import script, style
from noetic_nb.widgets.base.feed import Place, Reading
from noetic_nb.widgets.base.moment import EVERYTHING, Moment
from noetic_nb.widgets.base.run_view import RunView
from noetic_nb.widgets.base.selection import Selection

__all__ = ["AllocationReading", "TokenAllocation"]


class AllocationReading(Reading):
    """The model calls of a run as the page needs them; those that `moment` shows.

    Examples
    --------
    >>> AllocationReading().to_text()
    'Token allocation. No model call yet. Each call appears here as soon as the agent sends one.'
    """

    def __init__(self, moment: Moment = EVERYTHING) -> None:
        self.moment = moment
        self.calls = Calls()
        self.shown = -1
        # Everything read so far, grown in place: the widget syncs this very dict.
        self.snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "note": NOTE,
            "looks": LOOKS,
            "fixed": fixed_parts(),
            "columns": list(COLUMNS),
            "layers": [],
            "calls": [],
        }

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message about a new call."""
        if not self.moment.shows(event.where):
            return None
        share = self.calls.take(event)
        if share is None:
            if not self.calls.lacks_plans or self.snapshot["empty"] == NO_PLANS:
                return None
            self.snapshot["empty"] = NO_PLANS
            return {"type": "empty", "text": NO_PLANS}
        # A page colours layers by their place, so it needs to know new ones before the call that names them.
        known = len(self.snapshot["layers"])
        fresh = [self._layer(name, place) for name, place in list(self.calls.order.items())[known:]]
        data = call_data(share, self.calls.order)
        self.snapshot["layers"].extend(fresh)
        self.snapshot["calls"].append(data)
        return {"type": "call", "at": len(self.calls.all) - 1, "layersAt": known, "layers": fresh, "call": data}

    def _layer(self, name: str, place: int) -> list[str]:
        fill = layer_colour(place)
        return [name, fill, ink_on(fill)]

    def to_html(self) -> str:
        """Return the shown call as HTML without scripts."""
        return static_html(self.calls.all, self.shown, self.calls.order, self.snapshot["empty"])

    def to_text(self) -> str:
        """Return the shown call as plain text."""
        return static_text(self.calls.all, self.shown, self.calls.order, self.snapshot["empty"])


class TokenAllocation(RunView):
    """Show where the tokens of each model call went.

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
    follow : bool
        Whether the newest call is shown.
    position : int
        Which call is shown when it is not the newest, 0 for the first.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN`` where `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD``;
        ``NOT_A_SELECTION``.

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with TokenAllocation(Run()) as view:
    ...     view
    Token allocation. No model call yet. Each call appears here as soon as the agent sends one.
    """

    table = "allocations"
    follow = traitlets.Bool(True).tag(sync=True)
    position = traitlets.Int(-1).tag(sync=True)
    _esm = script("allocation/allocation")
    _css = style("allocation/allocation")

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
        self._allocation = AllocationReading(moment)
        super().__init__(run, self._allocation, moment=moment, selection=selection)
        self.observe(self._move, ["follow", "position"])

    def _move(self, _change: Any = None) -> None:
        calls = len(self._allocation.calls.all)
        # A page that was saved with another run may name a call that is not there.
        self._allocation.shown = -1 if self.follow or not 0 <= self.position < calls else self.position
