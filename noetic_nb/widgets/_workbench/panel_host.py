"""Sends one message for all panels of a workbench: their messages are collected while they work."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from noetic_nb.widgets._workbench.workbench_reading import WorkbenchReading
from noetic_nb.widgets.base._host import page_traits
from noetic_nb.widgets.base._run_view import RunView

# The key of the workbench's own data among that of its panels.
OWN: Final = ""


class PanelHost(RunView):
    """A view that contains others and sends their messages to its page."""

    reading: WorkbenchReading

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Messages of panels wait here until the work that caused them is done, and are then sent as one.
        self._news: deque[tuple[str, dict[str, Any]]] = deque()
        self._depth = threading.local()
        # Panels that a page has fetched: it has their snapshot, and gets their messages.
        self._fetched: set[str] = set()
        super().__init__(*args, **kwargs)

    def panel_sent(self, panel: str, content: dict[str, Any]) -> None:
        """Handle a panel's message to its page; messages of closed panels are dropped."""
        if panel in self._fetched:
            sent = self.reading.snapshot["panels"].get(panel, {})
            sent["ahead"] = []  # the prepared answer may be outdated
            self._news.append((panel, content))
            self._flush()

    def panel_changed(self, panel: str, traits: dict[str, Any]) -> None:
        """Handle new values of a panel's synced traits."""
        view = self.reading.views.get(panel)  # None while it is created
        own = {} if view is None else {name: value for name, value in traits.items() if name in page_traits(view)}
        if own:
            self.reading.snapshot["panels"].get(panel, {}).get("traits", {}).update(own)
            self.panel_sent(panel, {"type": "traits", "traits": own})

    def _part_changed(self, **parts: Any) -> None:
        """Send changed parts of the workbench itself."""
        self.reading.parts.update(parts)
        self._news.append((OWN, {"type": "parts", **parts}))
        self._flush()

    @contextmanager
    def _gathered(self) -> Iterator[None]:
        """Collect the messages of panels inside the block, and send them as one message."""
        with self.up_to_date():
            depth = getattr(self._depth, "now", 0)
            self._depth.now = depth + 1
            try:
                yield
            finally:
                self._depth.now = depth
        self._flush()

    def _flush(self) -> None:
        # The thread that holds the lock also sends the messages that other threads leave here meanwhile.
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
        """Read as all views do; then send messages that other threads left here meanwhile."""
        try:
            with super().up_to_date():
                yield
        finally:
            self._flush()

    def _complete(self) -> None:
        """Complete the snapshots of the open panels too, which are in that of the workbench."""
        super()._complete()
        for name in self._fetched & self.reading.views.keys():
            self.reading.views[name]._complete()

    def _tell(self) -> None:
        super()._tell()
        for view in tuple(self.reading.views.values()):
            view._tell()

    def read_some(self, until: float) -> bool:
        """Read as all views do, then send the messages of the panels."""
        is_done = super().read_some(until)
        self._flush()
        return is_done

    def _read_until(self, until: float) -> bool:
        with self._gathered():  # one message for everything read at once
            return super()._read_until(until)
