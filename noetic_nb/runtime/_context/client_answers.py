"""The answers of a model client: streamed, immediate, or "no such model"."""

from __future__ import annotations

from collections.abc import Callable

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.models._client import ModelClient, ModelDelta, ModelRequest, ModelResponse, StreamingModelClient
from noetic_nb.models._stream_timeout import IdleTimeout


def not_async(client: ModelClient, request: ModelRequest) -> NoeticConfigError:
    """Return the error for a client whose `complete` blocks."""
    return NoeticConfigError(
        "INVALID_MODEL",
        f"The client of model {request.model!r} answers without being awaited: its `complete` is no async function.",
        given=client,
        hint="Write `async def complete(self, request): return await asyncio.to_thread(ask, request)` around what blocks.",
    )


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
