"""One message for all that the panels of a workbench send: gathered while they work, sent when that is done."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from noetic_nb.widgets._workbench.workbench_reading import WorkbenchReading
from noetic_nb.widgets.base._host import page_traits
from noetic_nb.widgets.base._run_view import RunView

# What is the workbench's own among what its panels send and read.
OWN: Final = ""


class PanelHost(RunView):
    """A view with others inside, which hands their messages to its page."""

    reading: WorkbenchReading

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # What panels send waits here until the work that made it is done, and then leaves as one message.
        self._news: deque[tuple[str, dict[str, Any]]] = deque()
        self._depth = threading.local()
        # Panels that some page has: it was sent their snapshot, and is sent what comes.
        self._fetched: set[str] = set()
        super().__init__(*args, **kwargs)

    def panel_sent(self, panel: str, content: dict[str, Any]) -> None:
        """Take a message of a panel for its page; of one that is closed nobody needs it."""
        if panel in self._fetched:
            sent = self.reading.snapshot["panels"].get(panel, {})
            sent["ahead"] = []  # may be another answer now
            self._news.append((panel, content))
            self._flush()

    def panel_changed(self, panel: str, traits: dict[str, Any]) -> None:
        """Take new values of synced traits of a panel."""
        view = self.reading.views.get(panel)  # None while it is being made
        own = {} if view is None else {name: value for name, value in traits.items() if name in page_traits(view)}
        if own:
            self.reading.snapshot["panels"].get(panel, {}).get("traits", {}).update(own)
            self.panel_sent(panel, {"type": "traits", "traits": own})

    def _part_changed(self, **parts: Any) -> None:
        """Send parts of the workbench itself that are others now."""
        self.reading.parts.update(parts)
        self._news.append((OWN, {"type": "parts", **parts}))
        self._flush()

    @contextmanager
    def _gathered(self) -> Iterator[None]:
        """Gather the messages of panels inside the block, and send them as one message."""
        with self.up_to_date():
            depth = getattr(self._depth, "now", 0)
            self._depth.now = depth + 1
            try:
                yield
            finally:
                self._depth.now = depth
        self._flush()

    def _flush(self) -> None:
        # Whoever gathers sends for all: a thread that finds someone at it leaves its news there, as with events.
        while self._news and not getattr(self._depth, "now", 0) and self._reading_lock.acquire(blocking=False):
            try:
                news = []
                while self._news:
                    news.append(self._news.popleft())
                if news and self.comm is not None:
                    self.send({"type": "panels", "news": news})
            finally:
                self._reading_lock.release()

    @contextmanager
    def up_to_date(self) -> Iterator[None]:
        """Read as all views do; messages that were left here meanwhile are sent behind it."""
        try:
            with super().up_to_date():
                yield
        finally:
            self._flush()

    def read_some(self, until: float) -> bool:
        """Read as all views do, then send the messages of the panels."""
        is_done = super().read_some(until)
        self._flush()
        return is_done

    def _read_until(self, until: float) -> bool:
        with self._gathered():  # one message for all that is read in one go
            return super()._read_until(until)
