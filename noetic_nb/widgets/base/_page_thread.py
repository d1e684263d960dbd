"""One thread handles all messages from pages, in the order of arrival.

A notebook may send each widget's messages on a separate subshell, and kernels handle subshells concurrently: a click
could overtake the text typed before it. Where the kernel allows it, all messages therefore share one subshell, and need
not wait for the running cell. Without thread support, messages are handled immediately.
"""

from __future__ import annotations

import atexit
import contextvars
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ipywidgets.widgets import widget as ipywidgets_widget

from noetic_nb.redact import safe_logger
from noetic_nb.widgets.base._display import running_shell

_connected: weakref.WeakSet[Any] = weakref.WeakSet()


def subscribe_weakly(
    subscribe: Callable[[Callable[[Any], None]], Callable[[], None]], method: Any
) -> Callable[[], object]:
    """Subscribe a method without keeping its object alive; the subscription ends with the object or the returned function.

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
    """Let unreferenced widgets be garbage-collected, and handle all pages' messages in one order."""
    for widget in widgets:
        held = weakref.ref(widget)

        def deliver(msg: dict[str, Any], held: Any = held) -> None:
            target = held()
            if target is not None:
                PAGES.do(_handle, target, msg)

        widget.comm.on_msg(deliver)
        keep_off_main_shell(widget.comm)
        # Keep the entry, because a reloaded page requests every widget in the list.
        ipywidgets_widget._instances[widget.model_id] = weakref.proxy(widget)
        _connected.add(widget)


@atexit.register
def _hold_at_exit() -> None:
    # At exit, variables are dropped after the sockets are closed, which is too late to close comms.
    ipywidgets_widget._instances.update({widget.model_id: widget for widget in tuple(_connected) if widget.comm})


def _handle(widget: Any, msg: dict[str, Any]) -> None:
    if widget.comm is not None:  # closed while the message waited
        widget._handle_msg(msg)


log = safe_logger(__name__)

# An idle thread ends after this time; the next message starts another.
IDLE_S: Final = 5.0


class PageThread:
    """Runs functions one after the other in a thread that starts on demand and ends when idle.

    Examples
    --------
    >>> pages, done = PageThread(), []
    >>> for number in range(3):
    ...     pages.do(done.append, number)
    >>> pages.wait()
    True
    >>> done
    [0, 1, 2]
    """

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._works: deque[tuple[contextvars.Context, Callable[..., object], tuple[Any, ...]]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def do(self, work: Callable[..., object], *args: Any) -> None:
        """Run a function after all earlier ones; errors are logged."""
        # The caller's context identifies the page message that caused the call.
        entry = (contextvars.copy_context(), work, args)
        with self._changed:
            self._works.append(entry)
            if self._thread is not None:
                self._changed.notify_all()
                return
            self._thread = threading.Thread(target=self._run, name="noetic_nb pages", daemon=True)
            try:
                self._thread.start()
                return
            except RuntimeError:  # no thread support
                self._thread = None
                self._works.remove(entry)
        _do(*entry)

    def wait(self, timeout_s: float = 10.0) -> bool:
        """Wait until all functions have run; returns whether they have."""
        done = threading.Event()
        self.do(done.set)
        return done.wait(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._works and not self._changed.wait_for(lambda: self._works, self._idle_s):
                    self._thread = None
                    return
                entry = self._works.popleft()
            _do(*entry)
            del entry  # an idle thread must not keep the last widget alive


def keep_off_main_shell(comm: Any) -> None:
    """Let all messages of pages arrive on one subshell of the kernel, in order.

    A page names the main shell at first, and later a subshell: messages of different shells overtake each other. ipykernel
    7.4 also sends a message to the shell whose code last used the comm, which is the main shell for a view used in an
    agent's cell. There messages wait while code runs. If the code awaits, they are handled, but mix up which request has
    ended: the page then shows a cell as running for ever. Older versions have no choice of the shell.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = _subshell_for


_SUBSHELLS: Final[list[str]] = []
"""The subshell for messages of pages, as soon as there is one."""


def _subshell_for(_data: Any, named: str | None) -> str | None:
    """Return the subshell for a page's message, in the thread of the kernel that receives it."""
    try:
        manager = running_shell().kernel.shell_channel_thread.manager
        known = manager.list_subshell()
        if not _SUBSHELLS or _SUBSHELLS[-1] not in known:
            _SUBSHELLS[:] = [manager._create_subshell()]
        return _SUBSHELLS[-1]
    except Exception:  # another version of ipykernel
        log.exception("The kernel could not create a subshell; messages of pages use that of the page.")
        return named


def _do(context: contextvars.Context, work: Callable[..., object], args: tuple[Any, ...]) -> None:
    try:
        context.run(work, *args)
    except Exception:
        log.exception("A message of a page failed.")


PAGES: Final = PageThread()
"""The page thread of this kernel."""
