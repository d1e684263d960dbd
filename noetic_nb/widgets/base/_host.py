"""Views inside another widget: all of them share one comm, one snapshot and one message per event.

A view created inside `hosted_by` opens no comm. It passes its messages and changed traits to its host, which knows the
view by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

import anywidget


class Host(Protocol):
    """The receiver of messages from the views inside it."""

    _reading_lock: Any

    def panel_sent(self, panel: str, content: dict[str, Any]) -> None:
        """Handle a view's message to its page."""
        ...

    def panel_changed(self, panel: str, traits: dict[str, Any]) -> None:
        """Handle new values of a view's synced traits."""
        ...

    def catch_up(self) -> None:
        """Read the new events, and pass them to the views."""
        ...


_INSIDE: Final[ContextVar[tuple[Host, str] | None]] = ContextVar("noetic_nb_host", default=None)


@contextmanager
def hosted_by(host: Host, panel: str) -> Iterator[None]:
    """Make the views created inside the block parts of a host, under the given name."""
    token = _INSIDE.set((host, panel))
    try:
        yield
    finally:
        _INSIDE.reset(token)


def enclosing_host() -> Host | None:
    """Return the host of a view created now, None outside a host."""
    inside = _INSIDE.get()
    return None if inside is None else inside[0]


class HostedMixin:
    """Mixin (listed before the base class) for widgets that have no comm of their own inside a host.

    Attributes
    ----------
    host : Host or None
        The enclosing host; None for a separate widget.
    panel : str
        Its name in the host.
    """

    host: Host | None = None
    panel: str = ""

    def open(self) -> None:
        """Open a comm, unless there is a host."""
        inside = _INSIDE.get()
        if inside is None:
            super().open()  # type: ignore[misc]
        else:
            self.host, self.panel = inside

    def add_traits(self, **traits: Any) -> None:
        """Add traits, using one class for all views of a kind; inside a host, script and style come from the host.

        The base class would create a new class for each view, even with the same script and style.
        """
        if _INSIDE.get() is not None:
            return
        kind: Any = type(self)
        given = {name: (type(trait), trait.default_value, trait.metadata) for name, trait in traits.items()}
        made, made_for = vars(kind).get("_with_traits", (None, None))
        if made is None or given != made_for:
            super().add_traits(**traits)  # type: ignore[misc]
            kind._with_traits = (type(self), given)
            return
        self.__class__ = made
        for name in traits:
            getattr(made, name).instance_init(self)
            self.keys.append(name)  # type: ignore[attr-defined]  # of the widget this is mixed into

    def send(self, content: dict[str, Any], buffers: Any = None) -> None:
        """Send a message to the page, through the host if there is one."""
        if self.host is None:
            super().send(content, buffers)  # type: ignore[misc]
        else:
            self.host.panel_sent(self.panel, content)

    def notify_change(self, change: Any) -> None:
        """Notify observers, and the page through the host."""
        super().notify_change(change)  # type: ignore[misc]
        if self.host is not None and change["name"] in self.keys:  # type: ignore[attr-defined]
            self.host.panel_changed(self.panel, {change["name"]: change["new"]})

    def take_state(self, values: dict[str, Any]) -> None:
        """Set synced traits requested by a page; names that a page may not set are ignored."""
        known = page_traits(self)
        with self.hold_trait_notifications():  # type: ignore[attr-defined]
            for name, value in values.items():
                if name in known and name != "fault":
                    self.set_trait(name, value)  # type: ignore[attr-defined]


def page_traits(view: Any) -> dict[str, Any]:
    """Return a view's own synced traits, and its fault."""
    own = set(view.class_trait_names(sync=True)) - set(anywidget.AnyWidget.class_trait_names(sync=True))
    # Scripts and style sheets are traits as well.
    own = {name for name in own if not name.startswith("_")}
    return {name: getattr(view, name) for name in sorted(own - {"snapshot", "sent", "static_name"})}
