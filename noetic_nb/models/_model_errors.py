"""The errors of model clients, made in one place so that a scripted fault looks exactly like a real one.

Each has `usage` and `cost`: the provider's charges before it failed, zero and None if it did not report them. A failed
call still costs money, which accounting needs to know. Exceptions of the SDK are translated here and then dropped, not
chained: they hold the request with its headers, and their message may repeat the key.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.clock import Clock
from noetic_nb.errors import NoeticError
from noetic_nb.models._client import NO_USAGE, Usage
from noetic_nb.redact import redact_text

FailureReason: TypeAlias = Literal[
    "connection", "disconnect", "timeout", "idle", "status", "empty", "garbage", "truncated", "script"
]
"""Why a model call failed: the fact `reason` of an ``llm_failed`` error."""


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
    """Make an ``llm_failed`` error with a stable `reason` and the spending; credentials in its text are hidden."""
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
    hint = "Try again; a proxy between you and the model may cut long answers."
    return failed("The stream ended before the answer did", reason="disconnect", hint=hint)


def rate_limited(retry_after_ms: float | None, *, message: str = "", **facts: Any) -> NoeticError:
    """Make an ``llm_rate_limit`` error; `retry_after_ms` is the delay requested by the provider, or None."""
    detail = f": {redact_text(message)}" if message else ""
    wait = "" if retry_after_ms is None else f" It asks to wait {retry_after_ms:g} ms."
    return NoeticError(
        "llm_rate_limit",
        f"The provider refused the request because of its rate limit{detail}",
        hint=f"Wait, send less, or raise `max_retries`.{wait}",
        retry_after_ms=retry_after_ms,
        status=429,
        # A rejected request costs nothing, unless the facts say so.
        **{"usage": NO_USAGE, "cost": None, **facts},
    )


def refused(refusal: str, *, usage: Usage = NO_USAGE, cost: float | None = None) -> NoeticError:
    """Make an ``llm_refused`` error; `refusal` is the model's own wording."""
    what = f"The model refused to answer: {redact_text(refusal) or 'it gave no reason'}"
    hint = "Change the request or the instructions."
    return NoeticError("llm_refused", what, hint=hint, refusal=refusal, usage=usage, cost=cost)


# First and longest wait, as in the openai package; the jitter separates clients that failed together.
FIRST_WAIT_MS: Final = 500.0
LONGEST_WAIT_MS: Final = 8_000.0
# A provider that asks for more than a minute will not recover within a turn: the caller gets the error instead.
LONGEST_ASKED_WAIT_MS: Final = 60_000.0

SLOW: Final = "Raise `timeout_ms`, or ask for less."
_RETRYABLE: Final = frozenset({408, 409, 429})
_HINTS: Final = {
    400: "The request itself was refused: look at the message above.",
    401: "Check the API key.",
    403: "This key may not use this model.",
    404: "Check the model's name and `base_url`.",
    413: "Send less: lower the token budget.",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt: its error, whether to retry instead of raising it, and the wait requested by the provider."""

    error: NoeticError
    retryable: bool
    wait_ms: float | None = None


def backoff_ms(attempt: int, asked_ms: float | None, rng: random.Random) -> float | None:
    """Return the milliseconds before the next attempt: as requested, or 500 doubled up to 8 s; None for more than a minute."""
    if asked_ms is not None and asked_ms > 0:
        return asked_ms if asked_ms <= LONGEST_ASKED_WAIT_MS else None
    # The exponent is capped to avoid overflowing a float; the longest wait is reached long before.
    full = min(FIRST_WAIT_MS * 2.0 ** min(attempt, 10), LONGEST_WAIT_MS)
    return full * (1.0 - 0.5 * rng.random())


def retry_after_ms(headers: Mapping[str, str], clock: Clock) -> float | None:
    """Read the wait requested by a provider from the headers of RFC 9110, section 10.2.3, or ``retry-after-ms``."""
    for name, unit in (("retry-after-ms", 1.0), ("retry-after", 1_000.0)):
        # The finer unit first: a provider that sends both has rounded the other one.
        text = (headers.get(name) or "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
            return float(text) * unit
        if text and name == "retry-after":
            from email.utils import parsedate_to_datetime  # rarely needed, and it imports sockets

            try:
                return max(parsedate_to_datetime(text).timestamp() * 1_000 - clock.now_ms(), 0.0)
            except (ValueError, OverflowError):
                return None
    return None


def _message(exc: Any) -> tuple[str, str | None]:
    body = getattr(exc, "body", None)
    details = body.get("error", body) if isinstance(body, Mapping) else None
    if isinstance(details, Mapping) and isinstance(details.get("message"), str):
        # `code` is often null where `type` names the error.
        code = details.get("code") or details.get("type")
        return details["message"], None if code is None else str(code)
    text = details if isinstance(details, str) else str(exc)
    return (text if len(text) <= 300 else text[:300] + "…"), None


def classify(exc: Exception, *, clock: Clock, answering: bool = False) -> Failure:
    """Translate an exception of the SDK or its transport; a connection lost while `answering` is a ``"disconnect"``."""
    import openai

    message, code = _message(exc)
    if isinstance(exc, openai.APIStatusError):
        return _status_failure(exc, message, code, clock)
    # Before connection errors, because it is a subclass of them.
    if isinstance(exc, openai.APITimeoutError):
        return Failure(failed("The provider did not answer in time", reason="timeout", hint=SLOW), True)
    if isinstance(exc, openai.APIConnectionError) and not answering:
        # The SDK only says "Connection error."; its cause says whether the host is unknown or does not answer.
        cause = str(exc.__cause__ or "") or message
        error = failed(
            f"The provider could not be reached: {cause}", reason="connection", hint="Check `base_url` and the network."
        )
        return Failure(error, True)
    if isinstance(exc, openai.APIResponseValidationError | ValueError):
        error = failed(
            f"The endpoint answered something that is not JSON: {message}",
            reason="garbage",
            hint="Check `base_url` and `api`: a proxy, a login page or another API may be answering.",
        )
        return Failure(error, False)
    # An error sent as data in the middle of a stream.
    if isinstance(exc, openai.APIError) and not isinstance(exc, openai.APIConnectionError):
        status = int(code) if code is not None and re.fullmatch(r"[45]\d\d", code) else None
        if status == 429 or code in ("rate_limit_exceeded", "rate_limit_error"):
            # An error inside a stream has no headers, so it cannot request a wait.
            return Failure(rate_limited(None, message=message, code=code), True)
        error = failed(
            f"The provider failed while answering: {message}",
            reason="status",
            status=status,
            hint="Ask again.",
            code=code,
        )
        return Failure(error, status is None or status >= 500)
    if isinstance(exc, openai.APIConnectionError | OSError | EOFError) or type(exc).__module__.startswith("httpx"):
        error = failed(
            f"The connection broke off ({type(exc).__name__}: {message})",
            reason="disconnect",
            hint="Try again; a proxy between you and the model may cut long answers.",
        )
        return Failure(error, True)
    return Failure(failed(f"The openai package failed ({type(exc).__name__}: {message})", reason="connection"), False)


def _status_failure(exc: Any, message: str, code: str | None, clock: Clock) -> Failure:
    status: int = exc.status_code
    headers = exc.response.headers
    wait_ms = retry_after_ms(headers, clock)
    # OpenAI decides retries itself when it sends this header, and its package obeys it, too.
    override = headers.get("x-should-retry")
    retryable = status in _RETRYABLE or status >= 500
    if override in ("true", "false"):
        retryable = override == "true"
    if status == 429:
        # An empty account also returns 429, and waiting does not fill it.
        retryable = retryable and code != "insufficient_quota"
        error = rate_limited(wait_ms, message=message, code=code)
    else:
        error = failed(
            f"The provider answered with status {status}: {message}",
            reason="status",
            status=status,
            hint=_HINTS.get(status, "Ask again later." if status >= 500 else ""),
            code=code,
            retry_after_ms=wait_ms,
        )
    return Failure(error, retryable, wait_ms)
