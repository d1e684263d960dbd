"""Where every token of a model call went: the live view of budgets.

The upper bar is what was sent, the lower one what had been planned; a layer's pale part was yielded to history. Loaded and
live runs look the same: both are runs.
"""

from __future__ import annotations

from typing import Any, Final

import traitlets

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent
from noetic_nb.runs.model_calls import Calls, CallShare
from noetic_nb.runs.palette import CATEGORY, ink_on, layer_colour
from noetic_nb.widgets.allocation.allocation_html import (
    EMPTY,
    NOTE,
    left_out_text,
    static_html,
    static_text,
)
from noetic_nb.widgets.base.assets import script, style
from noetic_nb.widgets.base.run_view import RunView

__all__ = ["AllocationReading", "TokenAllocation"]

# A message to the page stays near 2 kB however much was left out; the rest is counted, and is in the run's tables.
FATES_SENT: Final = 12


class AllocationReading:
    """The model calls of a run as the page needs them.

    Parameters
    ----------
    turn, thread_id : optional
        As in `TokenAllocation`.

    Examples
    --------
    >>> AllocationReading().to_text()
    'Token allocation. No model call yet. Each call appears here as soon as the agent sends one.'
    """

    def __init__(self, *, turn: int | None = None, thread_id: str | None = None) -> None:
        self.calls = Calls(turn=turn, thread_id=thread_id)
        self.shown = -1
        self._snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "note": NOTE,
            "fills": {kind: [fill, ink_on(fill)] for kind, fill in CATEGORY.items()},
            "layers": [],
            "calls": [],
        }

    @property
    def snapshot(self) -> dict[str, Any]:
        """Everything read so far, grown in place."""
        return self._snapshot

    def take(self, event: RunEvent) -> dict[str, Any] | None:
        """Read one event; returns the message about a new call."""
        share = self.calls.take(event)
        if share is None:
            return None
        known = len(self._snapshot["layers"])
        fresh = [self._layer(name, place) for name, place in list(self.calls.order.items())[known:]]
        wire = self._wire(share)
        self._snapshot["layers"].extend(fresh)
        self._snapshot["calls"].append(wire)
        return {"type": "call", "at": len(self.calls.all) - 1, "layersAt": known, "layers": fresh, "call": wire}

    def _layer(self, name: str, place: int) -> list[str]:
        fill = layer_colour(place)
        return [name, fill, ink_on(fill)]

    def _wire(self, share: CallShare) -> dict[str, Any]:
        order = self.calls.order
        return {
            "title": share.title,
            "head": share.headline,
            "turn": share.turn,
            "call": share.call,
            "total": share.total,
            "scale": _short(share.scale(order)),
            "sums": [
                share.system,
                share.tools,
                share.framing,
                share.history,
                _short(share.free),
                _short(share.reserve),
            ],
            "historyBudget": _short(share.history_budget),
            "historyItems": share.history_items,
            "layers": [
                [order[layer.name], layer.used, _short(layer.allocated), _short(layer.yielded), layer.items]
                for layer in share.layers
            ],
            "out": [left_out_text(entry) for entry in share.left_out[:FATES_SENT]],
            "more": max(0, len(share.left_out) - FATES_SENT),
            "dropped": list(share.dropped),
        }

    def to_html(self) -> str:
        """Return the shown call as HTML without scripts."""
        return static_html(self.calls.all, self.shown, self.calls.order)

    def to_text(self) -> str:
        """Return the shown call as plain text."""
        return static_text(self.calls.all, self.shown, self.calls.order)


def _short(number: float | None) -> float | int | None:
    if number is None:
        return None
    return int(number) if number == int(number) else round(number, 1)


class TokenAllocation(RunView):
    """Show where the tokens of each model call went.

    Parameters
    ----------
    run : Run or object with a ``run``
        A run that grows, or one that was loaded or replayed.
    turn : int, optional
        Show only this turn, 1 for the first of a thread.
    thread_id : str, optional
        Show only this thread.

    Attributes
    ----------
    follow : bool
        Whether the newest call is shown.
    position : int
        Which call is shown when it is not the newest, 0 for the first.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN`` where `turn` is not a whole number of at least 0.

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with TokenAllocation(Run()) as view:
    ...     view
    Token allocation. No model call yet. Each call appears here as soon as the agent sends one.
    """

    follow = traitlets.Bool(True).tag(sync=True)
    position = traitlets.Int(-1).tag(sync=True)
    _esm = script("allocation/allocation")
    _css = style()

    def __init__(self, run: Any, *, turn: int | None = None, thread_id: str | None = None) -> None:
        if turn is not None and (isinstance(turn, bool) or not isinstance(turn, int) or turn < 0):
            raise NoeticConfigError(
                "INVALID_TURN", "A turn is a whole number.", given=turn, hint="Turns of a thread count from 1."
            )
        self._allocation = AllocationReading(turn=turn, thread_id=thread_id)
        super().__init__(run, self._allocation)
        self.observe(self._move, ["follow", "position"])

    def _move(self, _change: Any = None) -> None:
        calls = len(self._allocation.calls.all)
        self._allocation.shown = -1 if self.follow or not 0 <= self.position < calls else self.position
