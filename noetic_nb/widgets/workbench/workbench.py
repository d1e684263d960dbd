"""All views of one run in one widget: one comm, one snapshot, one message an event, one selection."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent, TurnCompleted
from noetic_nb.widgets.allocation.allocation import TokenAllocation
from noetic_nb.widgets.base.assets import joint_script, joint_style
from noetic_nb.widgets.base.feed import Reading
from noetic_nb.widgets.base.host import hosted_by
from noetic_nb.widgets.base.moment import Moment
from noetic_nb.widgets.base.run_view import RunView
from noetic_nb.widgets.base.selection import Selection
from noetic_nb.widgets.ledger.ledger import Ledger
from noetic_nb.widgets.transcript.transcript import Transcript
from noetic_nb.widgets.trends.trends import RegulatorTrends

__all__ = ["Workbench"]


class _Panel(NamedTuple):
    title: str
    view: type[RunView]


PANELS: Final[dict[str, _Panel]] = {
    "transcript": _Panel("Transcript", Transcript),
    "allocation": _Panel("Tokens", TokenAllocation),
    "trends": _Panel("Quality and cost", RegulatorTrends),
    "ledger": _Panel("Ledger", Ledger),
}


class WorkbenchReading(Reading):
    """What the workbench itself reads: which panels there are, and what they show."""

    def __init__(self, panels: Sequence[str]) -> None:
        self.views: dict[str, RunView] = {}
        self.snapshot: dict[str, Any] = {
            "titles": [[name, panel.title] for name, panel in PANELS.items()],
            "open": list(panels),
            "panels": {},
        }

    def take(self, event: RunEvent, place: Any) -> None:
        """Read one event."""

    def to_html(self) -> str:
        """Return the static forms of all panels, one below the other."""
        return "".join([view.reading.to_html() for view in self.views.values()])

    def to_text(self) -> str:
        """Return the texts of all panels."""
        return "\n\n".join([view.reading.to_text() for view in self.views.values()])


class Workbench(RunView):
    """Show one run in all views at once, linked by one selection."""

    _esm = joint_script({name: panel.view.scripts for name, panel in PANELS.items()}, "workbench/workbench")
    _css = joint_style(*[panel.view.scripts[-1] for panel in PANELS.values()], "workbench/workbench")
    reading: WorkbenchReading

    def __init__(
        self,
        run: Any,
        *,
        panels: Sequence[str] = tuple(PANELS),
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        moment = Moment(thread_id, turn, until)
        self._gathered: list[tuple[str, dict[str, Any]]] | None = None
        self._changed: dict[str, dict[str, Any]] = {}
        self._gathering = threading.RLock()
        reading = WorkbenchReading(panels)
        selection = Selection() if selection is None else selection
        for name in panels:
            with hosted_by(self, name):
                view = PANELS[name].view(run, thread_id=thread_id, turn=turn, until=until, selection=selection)  # type: ignore[call-arg]
            reading.views[name] = view
            own = set(PANELS[name].view.class_trait_names(sync=True)) - set(RunView.class_trait_names(sync=True))
            traits = {key: getattr(view, key) for key in sorted(own)}
            reading.snapshot["panels"][name] = {"snapshot": view.reading.snapshot, "traits": traits}
        super().__init__(run, reading, moment=moment, selection=selection)

    # What panels send.

    def panel_sent(self, panel: str, content: dict[str, Any]) -> None:
        """Take a message of a panel for its page."""
        with self._together() as gathered:
            gathered.append((panel, content))

    def panel_changed(self, panel: str, traits: dict[str, Any]) -> None:
        """Take new values of synced traits of a panel."""
        known = self.reading.snapshot["panels"].get(panel) if hasattr(self, "reading") else None
        if known is not None:
            known["traits"].update(traits)
            with self._together():
                self._changed.setdefault(panel, {}).update(traits)

    @contextmanager
    def _together(self) -> Iterator[list[tuple[str, dict[str, Any]]]]:
        """Gather what panels send meanwhile, and send it as one message."""
        with self._gathering:
            if self._gathered is not None:
                yield self._gathered
                return
            self._gathered = []
            try:
                yield self._gathered
            finally:
                news, traits = self._gathered, self._changed
                self._gathered, self._changed = None, {}
                if news or traits:
                    self.send({"type": "panels", "news": news, "traits": traits})

    def _read_event(self, event: RunEvent) -> None:
        with self._together():
            for view in self.reading.views.values():
                view._take(event)
        if isinstance(event, TurnCompleted):
            self.refresh_static()

    def _selected(self, fields: dict[str, Any]) -> None:
        with self._together():
            for view in self.reading.views.values():
                view._selected(fields)

    def _message_received(self, widget: Any, content: Any, buffers: Any) -> None:
        match content:
            case {"type": "panel", "panel": str(name), "set": dict(values)} if name in self.reading.views:
                with self._together():
                    self.reading.views[name].take_state(values)
            case {"type": "panel", "panel": str(name), "message": message} if name in self.reading.views:
                with self._together():
                    self.reading.views[name]._message_received(widget, message, buffers)
            case _:
                super()._message_received(widget, content, buffers)
