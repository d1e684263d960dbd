"""The answers of a model client: streamed, immediate, or "no such model"; a stream that sends nothing for too long is ended.

A client that has an idle limit of its own, as `OpenAIModel` has, sets an attribute ``watches_silence = True`` and is left to
it, so that one silence is not two errors.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final, Self

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.models._client import ModelClient, ModelDelta, ModelRequest, ModelResponse, StreamingModelClient
from noetic_nb.models._model_errors import failed

# Milliseconds; docs/behaviour/models.md, "Silence within a stream". 0 or less disables it.
IDLE_TIMEOUT_MS: Final = 120_000


class IdleTimeout:
    """Cancels the code inside it when `note_activity` is not called for too long, and raises instead.

    One timer for a whole stream: a part only notes the time, and the timer, when it fires, compares that note and sleeps on for
    the rest. A timer set anew with every part would cost more than the part itself. No limit where `limit_ms` is 0, less or
    infinite. Raises `NoeticError` ``llm_failed`` with reason ``"idle"``, from the block or from `note_activity`.
    """

    __slots__ = ("_before", "_last_activity", "_limit_s", "_loop", "_model", "_task", "_timer", "expired")

    def __init__(self, limit_ms: float, model: str) -> None:
        self._limit_s = limit_ms / 1000
        self._model = model
        self._timer: asyncio.TimerHandle | None = None
        self.expired = False

    def note_activity(self) -> None:
        """Note that a part of the stream arrived."""
        self._last_activity = self._loop.time()
        if self.expired:  # the client swallowed its cancellation and goes on
            raise self._error()

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        if self._task is not None and 0 < self._limit_s < math.inf:
            # Cancellations that were asked for before are not ours to take back.
            self._before = self._task.cancelling()
            self._last_activity = self._loop.time()
            self._timer = self._loop.call_at(self._last_activity + self._limit_s, self._check)
        return self

    def _check(self) -> None:
        due = self._last_activity + self._limit_s
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._check)
            return
        assert self._task is not None
        self.expired = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.expired or self._task is None:
            return
        # Somebody else may have cancelled it as well, and that goes first; so does the end of the interpreter.
        is_ours = self._task.uncancel() <= self._before and kind is asyncio.CancelledError
        if kind is not None and not is_ours and not issubclass(kind, Exception):
            return
        raise self._error() from None

    def _error(self) -> NoeticError:
        return failed(
            f"The stream of model {self._model!r} was silent for {self._limit_s:g} s",
            reason="idle",
            hint="The conversation is kept; ask again, or raise `stream_idle_timeout_ms` of the agent (0 for no limit).",
            model=self._model,
            idle_timeout_ms=self._limit_s * 1000,
        )


def not_async(client: ModelClient, request: ModelRequest) -> NoeticConfigError:
    """Return the error for a client whose `complete` blocks."""
    what = f"The client of model {request.model!r} is not asynchronous: its `complete` is not an async function."
    hint = "Write `async def complete(self, request): return await asyncio.to_thread(ask, request)` around what blocks."
    return NoeticConfigError("INVALID_MODEL", what, given=client, hint=hint)


def is_unknown_model(error: NoeticError) -> bool:
    """Tell whether a model call failed because there is no such model."""
    facts, status = error.facts, getattr(error.__cause__, "status_code", None)
    return bool(
        facts.get("unknown_model")
        or 404 in (facts.get("status"), status)
        or facts.get("code") in ("model_not_found", "invalid_model")
    )


async def streamed(
    client: StreamingModelClient, request: ModelRequest, on_delta: Callable[[ModelDelta], None], limit_ms: float
) -> ModelResponse:
    """Call a model that streams, passing on its text as it is written."""
    response: ModelResponse | None = None
    parts = client.stream(request)
    try:
        with IdleTimeout(limit_ms, request.model) as idle:
            async for part in parts:
                idle.note_activity()
                if isinstance(part, ModelDelta):
                    on_delta(part)
                else:
                    response = part
    finally:
        # At once, not when it is collected: the connection behind it is open until then.
        close = getattr(parts, "aclose", None)
        if close is not None:
            await close()
    if response is None:
        raise NoeticError("llm_failed", f"The stream of model {request.model!r} ended without an answer")
    return response
