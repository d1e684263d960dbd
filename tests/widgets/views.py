"""Every view offered by the package, and how to show it in a test. An offered class that is missing here is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ipywidgets

from noetic_nb import widgets
from noetic_nb.runs._run_source import run_of
from noetic_nb.steering import RuleBook
from noetic_nb.widgets import Approval, Compare, RuleEditor, Runs, Selection
from noetic_nb.widgets.base._run_view import RunView


def watching(run: Any) -> int:
    """Return how many subscribers and readers a run has."""
    return len(run._listeners) + len(run._cursors)


def _editor(run: Any) -> RuleEditor:
    rules = [
        {
            "id": f"rule_{n}",
            "applies_to": ["before_tool_call"],
            "predicate": lambda call: None,
            "source": "def r(call): ...",
        }
        for n in range(3)
    ]
    return RuleEditor(RuleBook(rules), run=run)


def _compare(run: Any) -> Compare:
    """Compare a run with its first half, as another run of the same task."""
    from noetic_nb.runs import Run

    events = list(getattr(getattr(run, "run", run), "events", ()))
    return Compare(run, Run("other", events=events[: len(events) // 2]))


def _runs(run: Any) -> Runs:
    """Show the events of a run so far among other runs."""
    from noetic_nb.runs import Run

    run = run_of(run)
    made = Run(getattr(run, "run_id", "one"), meta=getattr(run, "meta", {}), events=list(getattr(run, "events", ())))
    made.label("note", made.run_id, by="ann")
    return Runs([made, Run("other"), Run("third")])


# Views that are not created from a run alone.
NOT_FOLLOWING: Final = {_runs}
"""The makers of views that show a fixed state of their runs."""
MAKERS: Final[dict[type[Any], Callable[[Any], Any]]] = {RuleEditor: _editor, Compare: _compare, Runs: _runs}
# A form opened by the harness, and the link between views: they do not follow a run.
NO_VIEWS: Final = {Approval, Selection}

OFFERED: Final = [getattr(widgets, name) for name in widgets.__all__ if isinstance(getattr(widgets, name), type)]
RUN_VIEWS: Final = [view for view in OFFERED if issubclass(view, RunView) and view not in MAKERS]
VIEWS: Final = [MAKERS.get(view, view) for view in OFFERED if view not in NO_VIEWS]


def comms() -> int:
    """Return how many widgets are open."""
    return len(ipywidgets.widgets.widget._instances)
