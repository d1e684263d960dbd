"""How a widget is put on a page: with a static form beside it, which a saved notebook keeps.

The static form of an output is what it was when its cell ended, and a live view has moved on since. So the output is brought
up to date, once at the end of the running cell or after a pause, however many turns there were. Not while someone works in
the view, though, because the page then draws it anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Self

from noetic_nb.widgets.base.cells import running_shell

__all__ = ["DisplayMixin"]

# Turns that follow each other make one update, when they are through.
PAUSE_S: Final = 2.0


class DisplayMixin:
    """Mixed into a widget that has `to_html` and `to_text`."""

    _handle: Any = None
    _is_busy = False
    _is_stale = False
    _is_waiting = False
    _timer: asyncio.TimerHandle | None = None

    def to_html(self) -> str:
        """Return the static form."""
        return ""

    def to_text(self) -> str:
        """Return the view as plain text."""
        return ""

    def close(self) -> None:
        """Stop following, release the widgets, and leave the static form where the view was shown. May be repeated."""
        if self._release():
            self.publish_static()

    def discard(self) -> None:
        """Close without leaving anything: the cell that showed the view is running again."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        # A closed widget still has its static form, though the page can make no live view of it.
        bundle: Any = super()._repr_mimebundle_(**kwargs) if self.comm is not None else {}  # type: ignore[misc,attr-defined]
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, "text/plain": self.to_text(), "text/html": self.to_html()}, dict(metadata)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        # Under a display id, so that the output can be brought up to date.
        self._handle = display(self._repr_mimebundle_()[0], raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def publish_static(self) -> None:
        """Bring the output up to date now."""
        self._is_stale = False
        self._stop_waiting()
        if self._handle is not None:
            self._handle.update(self._repr_mimebundle_()[0], raw=True)

    def refresh_static(self) -> None:
        """Bring the output up to date when the cell ends or after a pause, and when nobody is disturbed by it."""
        if self._handle is None:
            return
        self._is_stale = True
        if self._is_busy:
            return
        self._stop_waiting()  # the pause begins anew
        self._is_waiting = True
        shell = running_shell()
        if (
            shell is not None
        ):  # the end of a cell: the last moment at which a notebook that is only executed takes updates
            shell.events.register("post_run_cell", self._bring_up_to_date)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # a thread without a loop: the end of the cell it is
        self._timer = loop.call_later(PAUSE_S, self._bring_up_to_date)

    def _bring_up_to_date(self, *_result: Any) -> None:
        self._stop_waiting()
        if self._is_stale and not self._is_busy:
            self.publish_static()

    def _stop_waiting(self) -> None:
        if not self._is_waiting:
            return
        self._is_waiting = False
        shell = running_shell()
        if shell is not None:
            shell.events.unregister("post_run_cell", self._bring_up_to_date)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def page_changed(self, content: Any) -> bool:
        """Take a message of a page about being opened or worked in; False where it is about something else."""
        match content:
            case {"type": "page"}:
                self._is_busy = False  # a page that was left while someone worked in it cannot report its end
            case {"type": "busy", "busy": bool(busy)}:
                self._is_busy = busy
                if self._is_stale and not busy:
                    self.refresh_static()
            case _:
                return False
        return True

    def _release(self) -> bool:
        return self.release_widget(self)

    def release_widget(self, *widgets: Any) -> bool:
        """Close the comms of the given widgets, their layouts and their styles; False where that was done before."""
        self._stop_waiting()
        if self.comm is None:  # type: ignore[attr-defined]  # of the widget this is mixed into
            return False
        # Layouts and styles are widgets of their own with a comm each; ipywidgets leaves them open.
        for widget in widgets:
            for part in _parts(widget):
                part.close()
            if widget is not self:
                widget.close()
        super().close()  # type: ignore[misc]
        # The base class hides a closed widget by shadowing this method, and its static form with it.
        self.__dict__.pop("_repr_mimebundle_", None)
        return True


def _parts(widget: Any) -> Iterable[Any]:
    return [part for part in (getattr(widget, "layout", None), getattr(widget, "style", None)) if part is not None]
