"""The cost of a call, in US dollars: as defined by the caller, else as reported by the provider, else from a price list.

The price list is the optional package ``genai-prices``; its version dates it. An unknown price is None, never 0, because
free and unknown differ.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from numbers import Real
from typing import Any, Final, TypeAlias

from noetic_nb.errors import NoeticConfigError
from noetic_nb.models._client import Usage

Price: TypeAlias = tuple[float, float] | Callable[[str, Usage], float | None]
"""US dollars per million (input, output) tokens, or a function of the model's name and the usage."""

_PER_MILLION: Final = 1e-6
_HINT: Final = "Pass (US dollars per million input tokens, per million output tokens) or a function (model, usage)."


def check_price(price: Price | None) -> None:
    """Reject an unusable price; raises `NoeticConfigError` ``INVALID_PRICE``."""
    if price is None or (callable(price) and _takes_two(price)):
        return
    pair = price if isinstance(price, tuple | list) else ()
    if len(pair) == 2 and all(isinstance(usd, int | float) and math.isfinite(usd) and usd >= 0 for usd in pair):
        return
    raise NoeticConfigError("INVALID_PRICE", "The price of a model is not valid", given=price, hint=_HINT)


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind("model", "usage")
    except TypeError:
        return False
    except ValueError:  # some functions written in C have no signature
        return True
    return True


@cache
def _price_list() -> Any | None:
    try:
        import genai_prices
    except ImportError:
        return None
    return genai_prices


# Bedrock ids name the maker, optionally after a region: us.anthropic.claude-sonnet-4-5-20250929-v1:0.
_BEDROCK: Final = re.compile(r"([a-z-]+\.)?[a-z0-9]+\.[a-z]")
# Prefixes that name a route rather than a provider that charges.
_ROUTES: Final = ("litellm/", "models/")


def _places(model: str, base_url: str | None) -> Iterator[dict[str, str]]:
    """Yield lookups for a model's price: by address, or by the provider in the name."""
    if base_url is not None:
        yield {"model_ref": model, "provider_api_url": base_url}
        return
    for route in _ROUTES:
        model = model.removeprefix(route)
    yield {"model_ref": model}
    for sign in "/:":  # openrouter/anthropic/claude-sonnet-4, anthropic:claude-sonnet-4-5
        provider, _, name = model.partition(sign)
        if name:
            yield {"model_ref": name, "provider_id": provider}
    if _BEDROCK.match(model):
        yield {"model_ref": model, "provider_id": "aws"}
    yield {"model_ref": model, "provider_id": "openai"}  # names without a provider, such as codex-mini


def _listed(model: str, usage: Usage, base_url: str | None, at_ms: float | None) -> float | None:
    prices = _price_list()
    if prices is None:
        return None
    counted = prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    at = None if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC)
    for place in _places(model, base_url):
        try:
            return float(prices.calc_price(counted, **place, genai_request_timestamp=at).total_price)
        except (LookupError, ValueError):  # a model or provider missing from the list, such as a local one
            continue
    return None


def cost_of(
    usage: Usage,
    *,
    model: str,
    price: Price | None = None,
    reported: float | None = None,
    base_url: str | None = None,
    at_ms: float | None = None,
) -> float | None:
    """Return the cost of a call in US dollars: by `price`, else as `reported`, else from the price list, else None."""
    if price is not None:
        if callable(price):
            cost: object = price(model, usage)
            if cost is not None and not isinstance(cost, Real):
                what = f"The price of {model!r} is no number: the function returned {cost!r}"
                raise NoeticConfigError(
                    "INVALID_PRICE", what, given=price, hint="Return US dollars, or None if unknown."
                )
            return None if cost is None else float(cost)
        return (usage.input_tokens * price[0] + usage.output_tokens * price[1]) * _PER_MILLION
    if reported is not None:
        return reported
    if not usage.total_tokens:  # nothing was counted, which does not mean that nothing is charged
        return None
    return _listed(model, usage, base_url, at_ms)
