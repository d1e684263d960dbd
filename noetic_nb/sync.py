"""Bridges between sync and async: wait where `await` is impossible, or for a result that may be either.

In a notebook the kernel's loop is already running. By default the work then runs in a background thread with its own
loop, which keeps working when cells are queued; `nested="patch"` runs it on the kernel's own loop instead, for objects
that are bound to it. In a browser, which has no threads, it runs in the same thread while the kernel's loop waits.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, Literal, TypeVar

from noetic_nb._core.arguments import ArgumentError
from noetic_nb._core.nested_loop import run_nested, running_loop
from noetic_nb._core.worker_threads import has_threads, in_worker, leaves_loop
from noetic_nb.errors import NoeticConfigError
from noetic_nb.redact import safe_logger

__all__ = [
    "LOOP_NEEDED",
    "Begun",
    "awaited",
    "begun_anew",
    "drive",
    "interruptible",
    "protected",
    "run_sync",
    "shortened",
]

T = TypeVar("T")
Interruption = TypeVar("Interruption", bound=BaseException)
_NOTHING_YET: Final = object()
# How often a waiting thread checks for the stop button, in seconds.
WAKE_S: Final = 0.1
# How long an interrupted call waits for its work to end, in seconds: enough for layers to write states, too short to notice.
GRACE_S: Final = 0.5
_log: Final = safe_logger("noetic_nb")


class _Background:
    """A daemon thread with an event loop, started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self.thread is None or not self.thread.is_alive():
                loop = asyncio.new_event_loop()
                try:
                    self.thread = threading.Thread(target=self._run, args=(loop,), name="noetic_nb", daemon=True)
                    self.thread.start()
                except RuntimeError as exc:  # the system has no threads left
                    loop.close()
                    hint = "Write `await ...` instead of run_sync(...)."
                    raise NoeticConfigError("NO_THREADS", "This Python cannot start threads.", hint=hint) from exc
                self._loop = loop
            return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        _here.inner = _background if self is _driven else _Background()
        while True:
            try:
                return loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                pass  # also the error of its task, whose caller raises it; other work goes on


_here: Final = threading.local()
# `inner` is the thread for calls made in a background thread: while such a call waits, the loop of its own thread is blocked.

_background: Final = _Background()
# A separate loop for work that `drive` cannot finish by hand: the call that waits for it may block the other loop.
_driven: Final = _Background()


class _ByHand(threading.local):
    """Whether this thread drives a coroutine by hand, and in which loop: in a loop nested inside, waiting works normally."""

    is_driving = False
    loop: asyncio.AbstractEventLoop | None = None

    def must_leave(self) -> bool:
        return self.is_driving and self.loop is running_loop()


_by_hand: Final = _ByHand()


class _LoopNeeded:
    """Awaited when a coroutine that is driven by hand is about to wait."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield self


LOOP_NEEDED: Final = _LoopNeeded()
"""Yielded by such a coroutine: a wrapper that drives another coroutine passes it on unchanged."""


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def awaited(value: Any) -> Any:
    """Return a value, or the result of an awaitable: for functions that may be sync or async."""
    if not hasattr(value, "__await__"):
        return value
    if _by_hand.must_leave():
        await LOOP_NEEDED
    return await value


async def protected(coroutine: Coroutine[Any, Any, T], name: str) -> T:
    """Run a coroutine to its end even if the caller is cancelled; the cancellation is raised afterwards, and an error logged."""
    task = asyncio.get_running_loop().create_task(coroutine)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        # The cancellation is raised; without this line the error would be lost.
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s failed.", name, exc_info=task.exception())
        raise


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that rarely waits, without a loop; it must wait through `awaited`, otherwise `RuntimeError`."""
    # One context for both parts: variables set in the first part are reset in the second.
    context = contextvars.copy_context()
    try:
        waiting = context.run(_first_step, coroutine)
    except StopIteration as done:
        result: T = done.value
        return result
    if waiting is not LOOP_NEEDED or threading.current_thread() is _driven.thread:
        coroutine.close()
        raise RuntimeError("A synchronous call cannot block here.")
    return _in_background(_rest(coroutine), _driven, context)


def _first_step(coroutine: Coroutine[Any, Any, Any]) -> Any:
    before = _by_hand.is_driving, _by_hand.loop
    _by_hand.is_driving, _by_hand.loop = True, running_loop()
    try:
        return coroutine.send(None)
    finally:
        _by_hand.is_driving, _by_hand.loop = before


async def _rest(coroutine: Coroutine[Any, Any, T], waiting: Any = _NOTHING_YET) -> T:
    result: T = await Begun(coroutine, waiting)
    return result


class Begun:
    """Continues a coroutine that was started elsewhere; `await` only accepts new ones.

    `waiting` is the object yielded by its first ``send``; without it, the coroutine is advanced at once. It continues
    in the given context or the caller's. A `GeneratorExit` that the coroutine raises itself becomes a `RuntimeError`.
    """

    __slots__ = ("_context", "_steps", "_waiting")

    def __init__(self, steps: Any, waiting: Any = _NOTHING_YET, context: contextvars.Context | None = None) -> None:
        self._steps = steps
        self._waiting = waiting
        self._context = context

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, waiting = self._steps, self._waiting
        send, throw = steps.send, steps.throw
        if self._context is not None:
            send, throw = partial(self._context.run, send), partial(self._context.run, throw)
        closing: BaseException | None = None
        try:
            if waiting is _NOTHING_YET:
                waiting = send(None)
            while True:
                try:
                    sent = yield waiting
                except BaseException as exc:
                    closing = exc if isinstance(exc, GeneratorExit) else None
                    waiting = throw(exc)
                else:
                    waiting = send(sent)
        except StopIteration as done:
            return done.value
        except GeneratorExit as exc:
            if closing is not None:
                raise
            raise RuntimeError(f"GeneratorExit was raised by code that nobody closes: {exc}") from exc


def begun_anew(awaitable: Awaitable[T]) -> Begun:
    """Return an awaitable that turns a `GeneratorExit` of its own into an error."""
    return Begun(_as_coroutine(awaitable))


def run_sync(awaitable: Awaitable[T], *, nested: Literal["thread", "patch"] = "thread") -> T:
    """Run an awaitable to its end and return its result.

    Parameters
    ----------
    awaitable : awaitable
        A coroutine, such as ``harness.execute("hi")``.
    nested : {"thread", "patch"}
        What to do if a loop is already running, as in a notebook. ``"thread"`` uses a background loop; contextvars are
        copied, exceptions pass through. In a browser, which has no threads, it uses a nested loop in the same thread:
        the work may wait for time and for its own tasks, not for the network. ``"patch"`` lets the running loop be
        entered again, for objects that already belong to it. It changes asyncio in this process permanently, and only
        works with asyncio's own loops, not with uvloop. It uses `nest_asyncio2` if installed, as with a current
        ipykernel. Otherwise it uses the archived `nest_asyncio`, which loses cells that are queued while one runs, and
        issues a `RuntimeWarning`.

    Raises
    ------
    BaseException
        Any exception of the awaitable.
    NoeticConfigError
        ``NO_THREADS`` if no thread can be started, or if in a browser the call waits for the loop that waits for it;
        ``INVALID_OPTION`` for another `nested`.

    Examples
    --------
    >>> async def answer():
    ...     return 42
    >>> run_sync(answer())
    42
    """
    if nested not in ("thread", "patch"):
        raise NoeticConfigError("INVALID_OPTION", "nested must be 'thread' or 'patch'.", given=nested)
    if not hasattr(awaitable, "__await__"):
        call = "Call it: run_sync(harness.execute('Hi'))." if callable(awaitable) else "It may be the result already."
        raise ArgumentError("run_sync needs an awaitable call", given=awaitable, hint=call)
    coroutine: Coroutine[Any, Any, T] = awaitable if asyncio.iscoroutine(awaitable) else _as_coroutine(awaitable)
    running = running_loop()
    # Calls from a tool's thread to another agent stay on one loop, to which clients may be bound.
    if running is None and not in_worker():
        return asyncio.run(coroutine)
    try:
        return _patched(running, coroutine) if running is not None and nested == "patch" else _in_background(coroutine)
    except KeyboardInterrupt as exc:
        raise shortened(exc) from None


def _patched(running: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    _reentrant().apply(running)
    task = running.create_task(coroutine)
    try:
        return running.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        raise


def _reentrant() -> Any:
    """Return the package that lets a running loop be entered again."""
    try:
        import nest_asyncio2
    except ImportError:
        import nest_asyncio

        warnings.warn(
            "nested='patch' uses nest_asyncio, which is archived and loses notebook cells that are queued while one runs. "
            "Run `pip install nest-asyncio2` for its maintained fork, or leave nested='thread'.",
            RuntimeWarning,
            stacklevel=3,
        )
        return nest_asyncio
    return nest_asyncio2


def _in_background(
    coroutine: Coroutine[Any, Any, T], background: _Background = _background, context: contextvars.Context | None = None
) -> T:
    if not has_threads():
        return run_nested(coroutine, context)
    loop = getattr(_here, "inner", background).loop()
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    context = contextvars.copy_context() if context is None else context

    def start() -> None:
        task = loop.create_task(coroutine, context=context)
        task.add_done_callback(finish)
        tasks.append(task)

    def finish(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            done.cancel()
            done.set_running_or_notify_cancel()
        elif (error := task.exception()) is not None:
            done.set_exception(error)
        else:
            done.set_result(task.result())

    def cancel() -> None:
        for task in tasks:
            task.cancel()

    tasks: list[asyncio.Task[T]] = []
    try:
        loop.call_soon_threadsafe(start)  # inside the `try`: the work may begin before this returns
        # A signal that arrives just before a wait begins does not end it: Python handles the signal when the wait is over.
        while not concurrent.futures.wait([done], WAKE_S).done:
            pass
        return done.result()
    except KeyboardInterrupt:
        # The stop button stops the work, not only the waiting. Resources that the work closes on its way out are closed
        # when the next cell runs, unless that takes long.
        loop.call_soon_threadsafe(cancel)
        concurrent.futures.wait([done], GRACE_S)
        raise


def interruptible() -> Callable[[], None]:
    """Let the stop button cancel the awaited work, by waking the loop ten times a second; returns a function that stops this."""
    loop = asyncio.get_running_loop()
    in_kernel = "ipykernel.kernelapp" in sys.modules and threading.current_thread() is threading.main_thread()
    if not in_kernel or not leaves_loop():
        return _nothing

    def wake() -> None:
        timers[0] = loop.call_later(WAKE_S, wake)

    timers = [loop.call_later(WAKE_S, wake)]
    return lambda: timers[0].cancel()


def _nothing() -> None: ...


def shortened(error: Interruption) -> Interruption:
    """Return an interruption without its traceback, because the place of the waiting does not help the user."""
    error._render_traceback_ = partial(_own_lines, error)  # type: ignore[attr-defined]  # looked up by IPython
    return error.with_traceback(None)


def _own_lines(error: BaseException) -> list[str]:
    last, root = error.__traceback__, __name__.partition(".")[0]
    while last is not None and last.tb_next is not None:
        if last.tb_next.tb_frame.f_globals.get("__name__", "").partition(".")[0] == root:
            last.tb_next = None
        last = last.tb_next
    shell = sys.modules["IPython"].get_ipython()
    shown: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    return shown
