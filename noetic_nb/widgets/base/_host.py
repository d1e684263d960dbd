"""Views inside another widget: one comm, one snapshot and one message an event for all of them.

A view that is made inside `hosted_by` opens no comm. What it would send to its page, and the traits that change, it hands to
its host, which knows it by a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

import anywidget


class Host(Protocol):
    """The receiver of the messages of the views inside it."""

    def panel_sent(self, panel: str, content: dict[str, Any]) -> None:
        """Take a message of a view for its page."""
        ...

    def panel_changed(self, panel: str, traits: dict[str, Any]) -> None:
        """Take new values of synced traits of a view."""
        ...

    def catch_up(self) -> None:
        """Read the new events, and hand them to the views."""
        ...


_INSIDE: Final[ContextVar[tuple[Host, str] | None]] = ContextVar("noetic_nb_host", default=None)


@contextmanager
def hosted_by(host: Host, panel: str) -> Iterator[None]:
    """Make the views that are built here parts of a host, under a name."""
    token = _INSIDE.set((host, panel))
    try:
        yield
    finally:
        _INSIDE.reset(token)


def is_hosted() -> bool:
    """Return whether a view that is built now is inside a host."""
    return _INSIDE.get() is not None


class HostedMixin:
    """Mixed into a widget before its base: inside a host it has no comm of its own.

    Attributes
    ----------
    host : Host or None
        What it is inside of; None for a widget of its own.
    panel : str
        Its name there.
    """

    host: Host | None = None
    panel: str = ""

    def open(self) -> None:
        """Open a comm, unless a host has one."""
        inside = _INSIDE.get()
        if inside is None:
            super().open()  # type: ignore[misc]
        else:
            self.host, self.panel = inside

    def add_traits(self, **traits: Any) -> None:
        """Add traits, by a class that views of one kind share; inside a host they are the script and style that it has itself.

        The base class makes a class anew for each view, though it is given the same script and style each time.
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
        """Send a message to the page, by the host where there is one."""
        if self.host is None:
            super().send(content, buffers)  # type: ignore[misc]
        else:
            self.host.panel_sent(self.panel, content)

    def notify_change(self, change: Any) -> None:
        """Tell observers, and the page by the host."""
        super().notify_change(change)  # type: ignore[misc]
        if self.host is not None and change["name"] in self.keys:  # type: ignore[attr-defined]
            self.host.panel_changed(self.panel, {change["name"]: change["new"]})

    def take_state(self, values: dict[str, Any]) -> None:
        """Set synced traits as a page asked; names that no page may set are passed over."""
        known = page_traits(self)
        with self.hold_trait_notifications():  # type: ignore[attr-defined]
            for name, value in values.items():
                if name in known and name != "fault":
                    self.set_trait(name, value)  # type: ignore[attr-defined]


def page_traits(view: Any) -> dict[str, Any]:
    """Return the synced traits of a view that are its own, and the fault that it shows."""
    own = set(view.class_trait_names(sync=True)) - set(anywidget.AnyWidget.class_trait_names(sync=True))
    # Scripts and style sheets are traits, too.
    own = {name for name in own if not name.startswith("_")}
    return {name: getattr(view, name) for name in sorted(own - {"snapshot", "sent", "static_name"})}
