"""What all live views of a run share: they follow it, send what is new, and leave a static form behind.

A view keeps one synced `snapshot` that is grown in place, so that the kernel never sends it twice, while each event
travels as a small message. A page that opens later gets the snapshot; one that missed a message requests it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import anywidget
import traitlets

from noetic_nb.events import RunEvent, TurnCompleted
from noetic_nb.redact import safe_logger
from noetic_nb.runs.plain_text import TEXT_LENGTH, plain
from noetic_nb.runs.run_source import run_of
from noetic_nb.widgets.base.assets import static_frame
from noetic_nb.widgets.base.cells import enter_cell
from noetic_nb.widgets.base.display import DisplayMixin

__all__ = ["Reading", "RunView"]

log = safe_logger(__name__)


class Reading(Protocol):
    """What one kind of view reads out of a run; knows nothing of widgets."""

    snapshot: dict[str, Any]
    """Everything read so far as JSON data: always the same object, grown by `take`."""

    def take(self, event: RunEvent) -> dict[str, Any] | None:
        """Read one event; returns what is new as JSON data, None where nothing is."""
        ...

    def to_html(self) -> str:
        """Return the picture as HTML without scripts."""
        ...

    def to_text(self) -> str:
        """Return the picture as plain text."""
        ...


class RunView(DisplayMixin, anywidget.AnyWidget):
    """Base of the views of a run.

    Parameters
    ----------
    source : Run or object with a ``run``
        What to look at; a run that grows is followed.
    reading : Reading
        What the view reads out of it.
    **traits
        First values of the traits of the view.
    """

    snapshot = traitlets.Dict().tag(sync=True)
    fault = traitlets.Unicode("").tag(sync=True)

    # On the class too: a widget that was refused in `__init__` is closed like any other when it is collected.
    _unsubscribe: Callable[[], None] | None = None

    def __init__(self, source: Any, reading: Reading, **traits: Any) -> None:
        self.run = run_of(source)
        self.reading = reading
        for event in self.run.events:
            reading.take(event)
        # The dict itself, not a copy: it grows in place, which traitlets does not notice, so it is not sent again.
        super().__init__(snapshot=reading.snapshot, **traits)
        enter_cell(self)
        self.on_msg(self._message_received)
        # Last: an event that comes while the widget is being made would be sent nowhere.
        self._unsubscribe = self.run.subscribe(self._take)

    def to_html(self) -> str:
        """Return the view as HTML without scripts: what a page shows that has no kernel and no network."""
        return static_frame(self.reading.to_html(), self._css)

    def to_text(self) -> str:
        """Return the view as plain text."""
        return self.reading.to_text()

    def _take(self, event: RunEvent) -> None:
        try:
            news = self.reading.take(event)
            if news is not None:
                self.send(news)
            # Not at every event: the static form is a whole page, and is for readers who come later.
            if isinstance(event, TurnCompleted):
                self.refresh_static()
        except Exception as exc:
            # A picture that fails must not stop the agent it shows: it reports the fault and stops itself.
            log.exception("A view of a run failed and no longer follows it.")
            self._stop_following()
            self.fault = f"This view stopped following the run: {type(exc).__name__}: {plain(exc, TEXT_LENGTH)}"

    def _message_received(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if content == {"type": "again"}:  # a page saw that it missed a message
            self.send({"type": "all", "snapshot": self.reading.snapshot})
        elif not self.page_changed(content):
            log.warning("A page sent a message that no view knows: %.200r", content)

    def _stop_following(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _release(self) -> bool:
        self._stop_following()
        return self.release_widget(self)
