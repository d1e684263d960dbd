"""Whose calls count together: a session of another agent, found by a context variable.

Frameworks run each tool call in a task, or a thread, of its own, whose changes of context variables its siblings never see.
So a default session belongs to the whole tree of tasks, that is to the event loop whose root they have in common.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextvars import ContextVar, Token
from typing import Any, Final

from noetic_nb.ids import SYSTEM_IDS
from noetic_nb.nested_loop import running_loop

__all__ = ["GuardSession", "current_session", "guard_session"]


class GuardSession:
    """One conversation of another agent. Entered with ``with``; it may be entered again, and goes on then.

    Attributes
    ----------
    thread_id : str
        What the conversation is called in the run.
    """

    __slots__ = ("__weakref__", "_tokens", "thread_id")

    def __init__(self, thread_id: str | None = None) -> None:
        self.thread_id = SYSTEM_IDS.new("guarded") if thread_id is None else thread_id
        self._tokens: list[Token[GuardSession | None]] = []

    def __enter__(self) -> GuardSession:
        self._tokens.append(_SESSION.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        _SESSION.reset(self._tokens.pop())

    async def __aenter__(self) -> GuardSession:
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__()

    def __repr__(self) -> str:
        return f"<GuardSession {self.thread_id!r}>"


_SESSION: Final[ContextVar[GuardSession | None]] = ContextVar("noetic_nb_guard_session", default=None)


def guard_session(thread_id: str | None = None) -> GuardSession:
    """Make a session: within ``with``, tools that were guarded together see the calls of this conversation only.

    Parameters
    ----------
    thread_id : str, optional
        What the conversation is called in the run; a fresh name by default.

    Returns
    -------
    GuardSession
        A context manager, sync and async. Keep it where a conversation has several turns.

    References
    ----------
    .. [1] docs/behaviour/interop.md, "Guarding the tools of other agents".

    Examples
    --------
    >>> from noetic_nb.interop import guard
    >>> from noetic_nb.steering import RuleBook, deny
    >>> once = RuleBook()
    >>> @once.rule(on="before_tool_call")
    ... def only_once(call):
    ...     return deny("Once.") if call.history else None
    >>> look = guard(lambda: "seen", once, on_deny="return")
    >>> with guard_session():
    ...     look(), "Once." in look()
    ('seen', True)
    >>> with guard_session():
    ...     look()
    'seen'
    """
    return GuardSession(thread_id)


class _Defaults:
    """The sessions of those who opened none: one an event loop, shared with what runs beside it without a loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session = GuardSession()
        self._owner: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._others: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, GuardSession] = weakref.WeakKeyDictionary()

    def session(self) -> GuardSession:
        loop = running_loop()
        with self._lock:
            owner: Any = None if self._owner is None else self._owner()
            if owner is not None and owner is loop:
                return self._session
            if loop is not None and loop in self._others:
                return self._others[loop]
            if self._owner is not None and (owner is None or owner.is_closed()):
                # That tree has ended: what comes now is another conversation.
                self._session, self._owner, owner = GuardSession(), None, None
            if loop is None:
                # A tool that a framework runs in a thread belongs to the agent beside it, whose history it must not escape.
                return self._session
            if owner is None:
                self._owner = weakref.ref(loop)
                return self._session
            return self._others.setdefault(loop, GuardSession())


_DEFAULTS: Final = _Defaults()


def current_session() -> GuardSession:
    """Return the session that the code that runs here belongs to."""
    return _SESSION.get() or _DEFAULTS.session()
