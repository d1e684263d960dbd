"""Views that nobody holds are collected: neither the run they follow, nor a kernel's list of widgets keeps them alive."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import Any

from ipywidgets.widgets import widget as ipywidgets_widget

from noetic_nb.widgets.base._page_thread import PAGES, take_from_any_shell

_connected: weakref.WeakSet[Any] = weakref.WeakSet()


def subscribe_weakly(
    subscribe: Callable[[Callable[[Any], None]], Callable[[], None]], method: Any
) -> Callable[[], object]:
    """Subscribe a method without keeping its object alive; returns a function that ends it, as does the end of the object.

    Examples
    --------
    >>> class Listener:
    ...     def take(self, news):
    ...         print(news)
    >>> heard, listener = [], Listener()
    >>> end = subscribe_weakly(lambda callback: heard.append(callback) or heard.clear, listener.take)
    >>> heard[0]("news")
    news
    >>> del listener
    >>> heard
    []
    """
    held = weakref.WeakMethod(method)

    def relay(news: Any) -> None:
        target = held()
        if target is not None:
            target(news)

    ended = weakref.finalize(method.__self__, subscribe(relay))
    ended.atexit = False
    return ended


def connect_weakly(*widgets: Any) -> None:
    """Let widgets be collected that nobody else holds, and have their pages' messages handled in the order of all pages."""
    for widget in widgets:
        held = weakref.ref(widget)

        def deliver(msg: dict[str, Any], held: Any = held) -> None:
            target = held()
            if target is not None:
                PAGES.do(_handle, target, msg)

        widget.comm.on_msg(deliver)
        take_from_any_shell(widget.comm)
        # Kept in the list, because a page that is loaded again asks for every widget in it.
        ipywidgets_widget._instances[widget.model_id] = weakref.proxy(widget)
        _connected.add(widget)


@atexit.register
def _hold_at_exit() -> None:
    # A kernel that ends drops its variables when its sockets are closed already: comms could not be closed any more.
    ipywidgets_widget._instances.update({widget.model_id: widget for widget in tuple(_connected) if widget.comm})


def _handle(widget: Any, msg: dict[str, Any]) -> None:
    if widget.comm is not None:  # closed while the message waited
        widget._handle_msg(msg)
