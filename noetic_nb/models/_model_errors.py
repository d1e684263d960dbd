"""The errors of model clients, made in one place so that a scripted fault looks exactly like a real one.

Every one carries `usage` and `cost`: what the provider had charged when it failed, zero and None where it did not say.
A failed call still costs money, and whoever keeps the books needs the figures.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from noetic_nb.errors import NoeticError
from noetic_nb.models._client import NO_USAGE, Usage
from noetic_nb.redact import redact_text

FailureReason: TypeAlias = Literal[
    "connection", "disconnect", "timeout", "idle", "status", "empty", "garbage", "truncated", "script"
]
"""Why a call of a model failed: the fact `reason` of an ``llm_failed`` error."""


def failed(
    what: str,
    *,
    reason: FailureReason,
    hint: str = "",
    status: int | None = None,
    usage: Usage = NO_USAGE,
    cost: float | None = None,
    **facts: Any,
) -> NoeticError:
    """Make an ``llm_failed`` error; credentials in its text are hidden.

    The `reason` is one of `FailureReason`, stable, unlike the wording; `status` is the HTTP status of the answer; `usage` and
    `cost` were spent all the same; `facts` are further fields of the error.
    """
    return NoeticError(
        "llm_failed",
        # Providers repeat parts of a request in their messages, sometimes the key.
        redact_text(what),
        hint=redact_text(hint),
        reason=reason,
        status=status,
        usage=usage,
        cost=cost,
        **facts,
    )


def cut_off() -> NoeticError:
    """Make the ``llm_failed`` error of a stream that ended before its answer did."""
    hint = "Ask again; a proxy between here and the model may cut long answers."
    return failed("The stream ended before the answer did", reason="disconnect", hint=hint)


def rate_limited(retry_after_ms: float | None, *, message: str = "", **facts: Any) -> NoeticError:
    """Make an ``llm_rate_limit`` error; `retry_after_ms` is the delay the provider asked for, None when it did not say."""
    detail = f": {redact_text(message)}" if message else ""
    wait = "" if retry_after_ms is None else f" It asks to wait {retry_after_ms:g} ms."
    return NoeticError(
        "llm_rate_limit",
        f"The provider turned the request away because of its rate limit{detail}",
        hint=f"Wait, send less, or raise `max_retries`.{wait}",
        retry_after_ms=retry_after_ms,
        status=429,
        # A request that was turned away costs nothing, unless the facts say so.
        **{"usage": NO_USAGE, "cost": None, **facts},
    )


def refused(refusal: str, *, usage: Usage = NO_USAGE, cost: float | None = None) -> NoeticError:
    """Make an ``llm_refused`` error; `refusal` is the model's own wording."""
    what = f"The model refused to answer: {redact_text(refusal) or 'it gave no reason'}"
    hint = "Change the request or the instructions."
    return NoeticError("llm_refused", what, hint=hint, refusal=refusal, usage=usage, cost=cost)
