"""Which calls count together: a session of a foreign agent, found by a context variable.

Frameworks run each tool call in its own task or thread, and sibling tasks never see each other's context variables. So
a default session belongs to the whole task tree: the event loop of its root, and the threads in which that loop runs
synchronous tools.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, Token
from typing import Any, Final

from noetic_nb._core.nested_loop import running_loop
from noetic_nb.errors import NoeticConfigError
from noetic_nb.ids import SYSTEM_IDS


class GuardSession:
    """One conversation of a foreign agent. Enter it with ``with``; entering it again continues the conversation.

    Attributes
    ----------
    thread_id : str
        The name of the conversation in the run.
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
    """Make a session: within ``with``, tools that were guarded together only see the calls of this conversation.

    Parameters
    ----------
    thread_id : str, optional
        The name of the conversation in the run; a new name by default.

    Returns
    -------
    GuardSession
        A context manager, sync and async. Keep it if a conversation has several turns.

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
    """The default sessions: one per event loop, shared with its threads and tasks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session = GuardSession()
        # Keyed by loop, or by the thread pool of an unseen loop. `_owner` has `_session`, others have their own.
        self._owner: weakref.ref[Any] | None = None
        self._others: weakref.WeakKeyDictionary[Any, GuardSession] = weakref.WeakKeyDictionary()

    def session(self) -> GuardSession:
        home = running_loop() or _loop_of_thread() or _pool_of_thread()
        with self._lock:
            owner = None if self._owner is None else self._owner()
            if self._owner is not None and (owner is None or _is_over(owner)):
                # That task tree has ended: this call begins another conversation.
                self._session, self._owner, owner = GuardSession(), None, None
            alive = [one for one in (owner, *self._others) if one is not None and not _is_over(one)]
            known = next((one for one in alive if home is not None and _is_same(one, home)), None)
            if known is None and home is not None and (not isinstance(home, ThreadPoolExecutor) or _is_default(home)):
                if owner is not None:
                    return self._others.setdefault(home, GuardSession())
                self._owner = weakref.ref(home)
                return self._session
            if known is None and len(alive) > 1:
                what = "A guarded tool was called in a thread that may belong to any of several event loops."
                hint = "Open a session around each conversation: with nn.guard_session(): ..."
                raise NoeticConfigError("SEVERAL_SESSIONS", what, given=threading.current_thread().name, hint=hint)
            # A thread of unknown origin joins the running agent's session, and so cannot escape its history.
            known = known or (alive[0] if alive else None)
            return self._session if known is owner else self._others[known]


def _loop_of_thread() -> Any:
    """Return the event loop that an anyio thread works for."""
    loop = getattr(threading.current_thread(), "loop", None)
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None


def _pool_of_thread() -> Any:
    """Return the pool of the current thread; Python keeps it in the arguments of the thread's function."""
    first = next(iter(getattr(threading.current_thread(), "_args", None) or ()), None)
    pool = first() if isinstance(first, weakref.ref) else None
    return pool if isinstance(pool, ThreadPoolExecutor) else None


def _is_default(pool: ThreadPoolExecutor) -> bool:
    """Tell whether a loop made a pool for its own threads; any other pool may serve several loops."""
    return getattr(pool, "_thread_name_prefix", "") == "asyncio"


def _is_same(one: Any, other: Any) -> bool:
    """Tell whether two are the same loop, or a loop and its own thread pool."""
    return one is other or other is _default_pool(one) or one is _default_pool(other)


def _default_pool(loop: Any) -> Any:
    return getattr(loop, "_default_executor", None)


def _is_over(home: Any) -> bool:
    return bool(home._shutdown if isinstance(home, ThreadPoolExecutor) else home.is_closed())


_DEFAULTS: Final = _Defaults()


def current_session() -> GuardSession:
    """Return the session of the calling code."""
    return _SESSION.get() or _DEFAULTS.session()
