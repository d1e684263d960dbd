"""One live view per cell: running a cell again closes the views its last run opened.

A cell may open several views in one go; only those of an *earlier* run of the same cell are closed. Outside a notebook
there are no cells and nothing is closed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakSet


class Discardable(Protocol):
    """A view that a cell opened."""

    def discard(self) -> None:
        """Undo the opening; nothing of it is shown any more."""
        ...


@dataclass(slots=True)
class _Cell:
    """One run of a cell."""

    request: str
    opened: WeakSet[Any] = field(default_factory=WeakSet)
    """Weakly, because a view that nobody holds needs no closing."""
    shown: list[Discardable] = field(default_factory=list)


_open: dict[str, _Cell] = {}


def running_shell() -> Any:
    """Return IPython's shell, None outside of it."""
    ipython = sys.modules.get("IPython")  # never imported here: without it there is no notebook
    return ipython.get_ipython() if ipython is not None else None


def current_cell() -> tuple[str, str] | None:
    """Return the running cell and the run of it, or None outside a notebook.

    The first stays when the cell is run again (its id, or its text where the front end names no cells), the second
    does not.

    Examples
    --------
    >>> current_cell() is None
    True
    """
    parent = _parent()
    request = parent.get("header", {}).get("msg_id")
    cell = parent.get("metadata", {}).get("cellId") or parent.get("content", {}).get("code")
    return (str(cell), str(request)) if request and cell else None


def has_page() -> bool:
    """Return whether a page shows the output of the running cell: front ends name the cell, plain programs do not.

    Examples
    --------
    >>> has_page()
    False
    """
    return bool(_parent().get("metadata", {}).get("cellId"))


def _parent() -> dict[str, Any]:
    """Return the request that is being answered; empty outside a notebook."""
    parent = getattr(running_shell(), "parent_header", None)
    return parent if isinstance(parent, dict) else {}


def enter_cell(view: Discardable) -> None:
    """Record that the running cell opened `view`, and close the views that an earlier run of the cell left open."""
    cell = _running_cell()
    if cell is not None:
        cell.opened.add(view)


def hold_in_cell(shown: Discardable) -> None:
    """Keep a view that the running cell shows until the cell runs again."""
    cell = _running_cell()
    if cell is not None:
        cell.shown.append(shown)


def drop_from_cell(shown: Discardable) -> None:
    """Stop keeping a view that a cell shows: it is closed."""
    for cell in tuple(_open.values()):
        if shown in cell.shown:
            cell.shown.remove(shown)


def _running_cell() -> _Cell | None:
    place = current_cell()
    if place is None:
        return None
    name, request = place
    known = _open.get(name)
    if known is not None and known.request == request:
        return known
    # Replaced first: if an old view cannot be closed, later runs of the cell do not meet it again.
    _open[name] = now = _Cell(request)
    if known is not None:
        for old in (*known.shown, *known.opened):
            old.discard()
    return now
