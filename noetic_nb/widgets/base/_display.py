"""Displays a widget as two outputs: the live view with a static form below it; each cell has one live view.

The live view's output contains only the widget and never changes while it is open, because a change would redraw it.
The static form appears in saved notebooks, exports and pages without a kernel; its style sheet hides it while the live
view is on the page. It is updated once at the end of the running cell or after a pause, however many turns there were.
If a page is known to be open, the update is sent after the page has drawn the live view, so as not to delay that.
"""

from __future__ import annotations

import asyncio
import sys
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final, Protocol, Self
from uuid import uuid4
from weakref import WeakSet

from noetic_nb._core.atomic_write import as_path, write_whole
from noetic_nb._core.nested_loop import running_loop
from noetic_nb.markup import escape, html_page
from noetic_nb.redact import Redaction
from noetic_nb.widgets.base._assets import output_frame


class Discardable(Protocol):
    """A view opened by a cell."""

    def discard(self) -> None:
        """Undo the opening and remove the view."""
        ...


@dataclass(slots=True)
class _Cell:
    """One execution of a cell."""

    request: str
    opened: WeakSet[Any] = field(default_factory=WeakSet)
    """Weak references, because an unreferenced view needs no closing."""
    shown: list[Discardable] = field(default_factory=list)


_open: dict[str, _Cell] = {}


def running_shell() -> Any:
    """Return IPython's shell, None without IPython."""
    ipython = sys.modules.get("IPython")  # do not import it: if it is not loaded, there is no notebook
    return ipython.get_ipython() if ipython is not None else None


def current_cell() -> tuple[str, str] | None:
    """Return the running cell and its execution, or None outside a notebook.

    The first value stays the same when the cell is run again (it is the cell id, or the cell text in a front end
    without ids), the second changes.

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
    """Tell whether a page shows the output of the running cell: front ends name the cell, plain programs do not.

    Examples
    --------
    >>> has_page()
    False
    """
    return bool(_parent().get("metadata", {}).get("cellId"))


def _parent() -> dict[str, Any]:
    """Return the request being handled; empty outside a notebook."""
    parent = getattr(running_shell(), "parent_header", None)
    return parent if isinstance(parent, dict) else {}


def enter_cell(view: Discardable) -> None:
    """Record that the running cell opened `view`, and close the views from an earlier execution of the cell."""
    cell = _running_cell()
    if cell is not None:
        cell.opened.add(view)


def hold_in_cell(shown: Discardable) -> None:
    """Keep a view that the running cell shows alive until the cell runs again."""
    cell = _running_cell()
    if cell is not None:
        cell.shown.append(shown)


def drop_from_cell(shown: Discardable) -> None:
    """Release a closed view that a cell kept alive."""
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
    # Replace the entry first: if closing an old view fails, later executions do not try again.
    _open[name] = now = _Cell(request)
    if known is not None:
        for old in (*known.shown, *known.opened):
            old.discard()
    return now


FILES: Final = {
    "csv": ("to_csv", "text/csv"),
    "html": ("to_page", "text/html"),
    "svg": ("to_svg", "image/svg+xml"),
    "png": ("to_png", "image/png"),
}
"""The kinds of files, each with its media type and the method that makes it, if the view has it."""


class FilesMixin:
    """Mixin for views with `to_frame` and `to_html`."""

    def to_csv(self, path: str | PathLike[str] | None = None) -> str:
        """Return the table of the view as CSV, secrets replaced; with `path`, also write it to a file.

        Parameters
        ----------
        path : path-like, optional
            The file, written atomically.

        Returns
        -------
        str
            `to_frame()` without its index; the first line has the column names.

        Raises
        ------
        NoeticConfigError
            ``CANNOT_WRITE``.
        """
        frame, rule = self.to_frame(), Redaction()  # type: ignore[attr-defined]  # of the view this is mixed into
        for name in [name for name, dtype in frame.dtypes.items() if dtype.kind == "O"]:
            frame[name] = [rule.data(value) for value in frame[name]]
        return _written(frame.to_csv(index=False), path)

    def to_page(self, path: str | PathLike[str] | None = None) -> str:
        """Return the static form of the view as one HTML page that needs no kernel and no network.

        Parameters
        ----------
        path : path-like, optional
            The file to write to as well, written atomically.

        Returns
        -------
        str
            The page.

        Raises
        ------
        NoeticConfigError
            ``CANNOT_WRITE``.
        """
        title = self.to_text().partition("\n")[0]  # type: ignore[attr-defined]
        return _written(html_page(title[:120], self.to_html()), path)  # type: ignore[attr-defined]

    def form(self) -> str:
        """Return the view as HTML, with a second copy of its picture for pages that drop styles."""
        reading = self.reading  # type: ignore[attr-defined]
        picture = ""
        if hasattr(self, "to_svg") and reading.has_any:
            alt, data = escape(reading.to_text().partition("\n")[0]), b64encode(self.to_svg().encode()).decode()
            picture = f'<p class="nn-plain"><img alt="{alt}" src="data:image/svg+xml;base64,{data}"></p>'
        return f"{reading.to_html()}{picture}"

    @property
    def _file_kinds(self) -> list[str]:
        return [kind for kind, (method, _) in FILES.items() if hasattr(type(self), method)]

    def _file(self, kind: str) -> dict[str, Any]:
        """Return a file for a page: its name, its type, and its bytes as base64."""
        method, mime = FILES[kind]
        made = getattr(self, method)()
        data = made if isinstance(made, bytes) else made.encode("utf-8", "backslashreplace")
        return {"name": f"{type(self).__name__.lower()}.{kind}", "type": mime, "base64": b64encode(data).decode()}


def _written(text: str, path: str | PathLike[str] | None) -> str:
    if path is not None:
        write_whole(as_path(path), text)
    return text


# Turns in quick succession cause a single update after the last one.
PAUSE_S: Final = 2.0
WIDGET_VIEW: Final = "application/vnd.jupyter.widget-view+json"


class Shown:
    """One place where a view is shown: the outputs of the live view and of its static form."""

    def __init__(self, view: DisplayMixin, live: Any, static: Any) -> None:
        self.view: DisplayMixin | None = view
        place = current_cell()
        self.cell = None if place is None else place[0]
        self.live = live
        self.static = static

    def discard(self) -> None:
        """Remove the place: its cell runs again."""
        if self.view is not None:
            self.view.forget_place(self)
            self.view = None


class DisplayMixin:
    """Mixin for widgets with `to_html` and `to_text`."""

    _places: tuple[Shown, ...] = ()
    _tells_when_drawn = False
    """Whether its page sends a message when it has drawn the view, as `store.show` does."""
    _waits_for = ""
    """The shell event at which the static form will be updated; empty if it is up to date."""
    _timer: asyncio.TimerHandle | None = None
    _shown_on: asyncio.AbstractEventLoop | None = None
    """The event loop of the cell that last showed the view."""
    _id = ""

    @property
    def static_id(self) -> str:
        """The id that links the live view to its static form on a page."""
        if not self._id:
            self._id = uuid4().hex
        return self._id

    def to_html(self) -> str:
        """Return the static form."""
        return ""

    def to_text(self) -> str:
        """Return the view as plain text."""
        return ""

    def close(self) -> None:
        """Stop following, release the widgets, and leave the static form where the view was shown. Safe to call again."""
        self._close(but_in=None)

    def discard(self) -> None:
        """Close; the cell runs again, so its outputs stay empty."""
        place = current_cell()
        self._close(but_in=None if place is None else place[0])

    def _close(self, *, but_in: str | None) -> None:
        if not self._release():
            return
        for place in self._places:
            if but_in is None or place.cell != but_in:
                # Update the hidden static form first, so that the old one never becomes visible.
                place.static.update(self._static_bundle(), raw=True)
                place.live.update({}, raw=True)
            place.view = None
            drop_from_cell(place)
        self._places = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return self.to_text()

    def _alone(self) -> dict[str, Any]:
        return {"text/html": self.to_html(), "text/plain": self.to_text()}

    def _static_bundle(self) -> dict[str, Any]:
        alone = self._alone()
        return {**alone, "text/html": output_frame(alone["text/html"], self.static_id)}

    def _empty_bundle(self) -> dict[str, Any]:
        return {"text/html": output_frame("", self.static_id), "text/plain": ""}

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.comm is None:  # type: ignore[attr-defined]  # of the widget this is mixed into
            return self._alone(), {}
        # Text or HTML here would appear on a page that cannot load the widget, or has not yet. Also, the base classes would first
        # create a text of the whole view and discard it.
        model_id = self.model_id  # type: ignore[attr-defined]
        return {WIDGET_VIEW: {"version_major": 2, "version_minor": 1, "model_id": model_id}}, {}

    def _ipython_display_(self) -> None:
        from IPython.display import display

        def show(bundle: dict[str, Any]) -> Any:
            return display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]

        if getattr(running_shell(), "kernel", None) is None:  # a terminal
            display({"text/plain": self.to_text()}, raw=True)  # type: ignore[no-untyped-call]
        elif self.comm is None:  # type: ignore[attr-defined]
            show(self._alone())
        else:
            live = show(self._repr_mimebundle_()[0])
            # Update before the next cell at the latest: the kernel may end in that cell.
            is_later = self._tells_when_drawn and has_page() and running_loop() is not None
            if is_later:
                self._publish_at("pre_run_cell")
            place = Shown(self, live, show(self._empty_bundle() if is_later else self._static_bundle()))
            self._places = (*self._places, place)
            self._shown_on = running_loop()
            # The user may keep no reference to a view on the page.
            hold_in_cell(place)

    def forget_place(self, place: Shown) -> None:
        """Stop updating this place."""
        self._places = tuple([other for other in self._places if other is not place])

    def publish_static(self) -> None:
        """Update the static form now."""
        self._stop_waiting()
        if self._places:
            bundle = self._static_bundle()
            for place in self._places:
                place.static.update(bundle, raw=True)

    def refresh_static(self) -> None:
        """Update the static form when the cell ends or after a pause."""
        if self._places:
            # A notebook that is only executed accepts updates until the end of the cell.
            self._publish_at("post_run_cell")

    def drawn(self) -> None:
        """Handle a page's message that it has drawn the live view: send the waiting static form."""
        if self._waits_for == "pre_run_cell":
            self.publish_static()

    def _publish_at(self, event: str) -> None:
        """Update the static form at a shell event, or after a pause."""
        self._stop_waiting()  # restart the pause
        self._waits_for = event
        shell = running_shell()
        if shell is not None:
            shell.events.register(event, self._bring_up_to_date)
        loop = running_loop()
        if loop is not None:
            self._timer = loop.call_later(PAUSE_S, self._bring_up_to_date)
        elif self._shown_on is not None and not self._shown_on.is_closed():
            # The reading thread has no event loop: use the loop on which the view was shown.
            self._shown_on.call_soon_threadsafe(self._begin_pause)

    def _begin_pause(self) -> None:
        if self._waits_for and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._bring_up_to_date)

    @property
    def is_shown(self) -> bool:
        """Whether the view is on some page."""
        return bool(self._places)

    def publish_if_waiting(self) -> None:
        """Update the static form now if it waits for the end of the cell, but not if it waits for its page."""
        if self._waits_for == "post_run_cell":
            self.publish_static()

    def _bring_up_to_date(self, *_result: Any) -> None:
        if self._waits_for:
            self.publish_static()

    def _stop_waiting(self) -> None:
        event, self._waits_for = self._waits_for, ""
        if not event:
            return
        shell = running_shell()
        if shell is not None:
            shell.events.unregister(event, self._bring_up_to_date)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self) -> bool:
        return self.release_widget(self)

    def release_widget(self, *widgets: Any) -> bool:
        """Close the comms of the given widgets, their layouts and their styles; False if already done."""
        self._stop_waiting()
        if self.comm is None:  # type: ignore[attr-defined]  # of the widget this is mixed into
            return False
        # Layouts and styles are widgets with a comm of their own; ipywidgets leaves them open.
        for widget in widgets:
            for part in _parts(widget):
                part.close()
            if widget is not self:
                widget.close()
        super().close()  # type: ignore[misc]
        # The base class hides a closed widget by shadowing this method, which would hide its static form as well.
        self.__dict__.pop("_repr_mimebundle_", None)
        return True


def _parts(widget: Any) -> Iterable[Any]:
    return [part for part in (getattr(widget, "layout", None), getattr(widget, "style", None)) if part is not None]
