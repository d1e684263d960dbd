"""The answers of a model client: streamed, immediate, or "no such model"; a stream that is silent for too long is ended.

A client with its own idle limit, such as `OpenAIModel`, sets an attribute ``watches_silence = True`` and keeps that limit,
so that one silence does not cause two errors.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.models._client import (
    ModelClient,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    StreamingModelClient,
    StreamPart,
    Usage,
    usage_from,
)
from noetic_nb.models._model_errors import failed

# Milliseconds; docs/behaviour/models.md, "Silence within a stream". 0 or less disables it.
IDLE_TIMEOUT_MS: Final = 120_000


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def checked_spend(response: ModelResponse) -> ModelResponse:
    """Return a response whose usage and cost can be added up; raises `ValueError` for others.

    A negative count of input tokens stays: the turn warns of it, and it counts as nothing.
    """
    usage: Any = response.usage
    if not isinstance(usage, Usage):  # unknown counts as nothing
        usage = usage_from({} if usage is None else usage)
        response = response._replace(usage=usage)
    counts = [0 if type(usage.input_tokens) is int else usage.input_tokens, usage.output_tokens]
    counts += [count for count in usage[2:] if count is not None]
    if not all(map(_is_amount, counts)):
        raise ValueError(f"usage must be counts of at least 0, not {usage!r:.200}")
    # No limit is ever reached by a sum with NaN in it.
    if response.cost is not None and not _is_amount(response.cost):
        raise ValueError(f"cost must be US dollars, at least 0, not {response.cost!r:.80}")
    return response


def not_async(client: ModelClient, request: ModelRequest) -> NoeticConfigError:
    what = f"The client of model {request.model!r} is not asynchronous: its `complete` is not an async function."
    hint = "Write `async def complete(self, request): return await asyncio.to_thread(ask, request)` around the blocking call."
    return NoeticConfigError("INVALID_MODEL", what, given=client, hint=hint)


def is_unknown_model(error: NoeticError) -> bool:
    """Tell whether a model call failed because the model does not exist."""
    facts, status = error.facts, getattr(error.__cause__, "status_code", None)
    return bool(
        facts.get("unknown_model")
        or 404 in (facts.get("status"), status)
        or facts.get("code") in ("model_not_found", "invalid_model")
    )


async def streamed(
    client: StreamingModelClient, request: ModelRequest, on_delta: Callable[[ModelDelta], None], limit_ms: float
) -> ModelResponse:
    """Call a streaming model, passing on its text as it is written; a limit of silence that is 0, less or infinite is off."""
    response: ModelResponse | None = None
    limit_s = limit_ms / 1000 if 0 < limit_ms < math.inf else None
    stream = client.stream(request)
    try:
        parts = aiter(stream)
        while (part := await _next_part(parts, limit_s, request.model)) is not None:
            if isinstance(part, ModelDelta):
                on_delta(part)
            else:
                response = part
    finally:
        # At once rather than on garbage collection: until then, its connection stays open.
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    if response is None:
        raise NoeticError("llm_failed", f"The stream of model {request.model!r} ended without an answer")
    return response


async def _next_part(parts: AsyncIterator[StreamPart], limit_s: float | None, model: str) -> StreamPart | None:
    """Return the next part of a stream, None at its end; an error if it is silent for too long."""
    part = None
    try:
        async with asyncio.timeout(limit_s) as deadline:
            part = await anext(parts, None)
    except Exception:
        if not deadline.expired():
            raise
    if limit_s is not None and deadline.expired():  # also if the client swallowed its cancellation and continues
        raise failed(
            f"The stream of model {model!r} was silent for {limit_s:g} s",
            reason="idle",
            hint="The conversation is kept; ask again, or raise `stream_idle_timeout_ms` of the agent (0 for no limit).",
            model=model,
            idle_timeout_ms=limit_s * 1000,
        )
    return part
