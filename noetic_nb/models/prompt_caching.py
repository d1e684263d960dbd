"""Published rules of providers for prompt caching, as data, each with its source and the date it was read.

A provider keeps the beginning of a request for a while; another request with the same beginning is charged less for
that part. Only rules that are published and precise enough to predict a number of tokens are included; for all other
models, nothing is predicted. Only `REACHED` is measured.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from noetic_nb.errors import NoeticConfigError

__all__ = ["CACHE_RULES", "REACHED", "SIMULATED", "CacheRules", "cache_rules", "checked_rules"]

SIMULATED: Final = "simulated-"
"""Prefix of the model names of a simulated provider, which caches by the rules of the model named after it."""

_OPENAI: Final = "https://developers.openai.com/api/docs/guides/prompt-caching"
_OPENAI_PRICES: Final = "https://developers.openai.com/api/docs/pricing"
_ANTHROPIC: Final = "https://platform.claude.com/docs/en/build-with-claude/prompt-caching"
_READ_ON: Final = "2026-11-22"
_MINUTES: Final = 60_000.0


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The prompt caching of a provider for some models.

    Parameters
    ----------
    provider : str
        Provider that published the rules.
    models : str
        Regular expression that matches the whole name of a model.
    minimum : int
        Shortest prefix that is cached, in tokens.
    block : int
        Longer cached prefixes grow in steps of this many tokens; 1 for any length.
    lifetime_ms : float
        How long a prefix is kept after its last use, in milliseconds; the shortest time if a range is published.
    read : float
        Price of a cached token, relative to an ordinary input token.
    write : float
        Price of a token written to the cache; 1 means no surcharge.
    marked : bool
        Whether only prefixes that end at marks are cached. Marks are assumed after the tools, after the instructions,
        and after the last item.
    lookback : int
        For marked prefixes: how many items before a mark are searched for a cached one.
    source, prices, date : str
        Sources of the rules and the prices, and the date they were read, ISO 8601.

    Examples
    --------
    >>> rules = cache_rules("gpt-4.1-mini")
    >>> rules.minimum, rules.block, rules.read, [rules.whole(tokens) for tokens in (1_000, 1_024, 1_300)]
    (1024, 128, 0.25, [0, 1024, 1280])
    """

    provider: str
    models: str
    minimum: int
    block: int
    lifetime_ms: float
    read: float
    write: float = 1.0
    marked: bool = False
    lookback: int = 0
    source: str = ""
    prices: str = ""
    date: str = ""

    def whole(self, tokens: int) -> int:
        """Return the cached part of a prefix, in tokens."""
        return 0 if tokens < self.minimum else self.minimum + (tokens - self.minimum) // self.block * self.block

    def found(self, tokens: int, head: int) -> int:
        """Return the average cached part of a prefix if many conversations begin with the same `head` tokens.

        Every machine that serves them has the head in its cache; for the rest, the share is `REACHED`.
        """
        everywhere = self.whole(min(tokens, head))
        return everywhere + round(REACHED.get(self.provider, 1.0) * (self.whole(tokens) - everywhere))


def _openai(models: str, read: float) -> CacheRules:
    # 5 to 10 minutes without use and at most an hour, in blocks of 128 tokens from 1 024 on; writing is free in these
    # families. Some keep a prefix for 24 hours if a request asks for it, which is not assumed. For models before GPT-5.6, such
    # as these, the provider's cookbook says the same: github.com/openai/openai-cookbook, examples/Prompt_Caching_201.ipynb.
    return CacheRules(
        "openai", models, 1_024, 128, 5 * _MINUTES, read, source=_OPENAI, prices=_OPENAI_PRICES, date=_READ_ON
    )


def _anthropic(models: str, minimum: int) -> CacheRules:
    # The shorter of the two lifetimes, which is the default; the longer one, an hour, costs 2 to write.
    return CacheRules(
        "anthropic",
        models,
        minimum,
        1,
        5 * _MINUTES,
        0.1,
        1.25,
        marked=True,
        lookback=20,
        source=_ANTHROPIC,
        prices=_ANTHROPIC,
        date=_READ_ON,
    )


_DATED: Final = r"(-\d{4}-?\d{2}-?\d{2}|-latest)?"
CACHE_RULES: Final[tuple[CacheRules, ...]] = (
    _openai(r"gpt-4o(-mini)?" + _DATED, 0.5),
    _openai(r"gpt-4\.1(-mini|-nano)?" + _DATED, 0.25),
    _openai(r"(o3|o4-mini)" + _DATED, 0.25),
    _openai(r"gpt-5(-mini|-nano)?" + _DATED, 0.1),
    _anthropic(r"claude-(opus-4-1|opus-4|opus-4-0|sonnet-4|sonnet-4-0|sonnet-4-5|3-7-sonnet)" + _DATED, 1_024),
    _anthropic(r"claude-(opus-4-5|opus-4-6|haiku-4-5)" + _DATED, 4_096),
    _anthropic(r"claude-(3-5-haiku|3-haiku)" + _DATED, 2_048),
)
"""The first entry whose `models` matches a name counts."""

REACHED: Final = {"openai": 0.81}
"""By provider: the share of a cached conversation that its next call finds, with many conversations at a time and several
machines (OpenAI: from about 15 calls a minute with the same beginning). Measured: fitted on the 436 later calls of the 40
packaged conversations of a retail desk with gpt-4.1, August 2025, compared with another desk in docs/studies/prompt_caching.md.
"""


@cache
def cache_rules(model: str) -> CacheRules | None:
    """Return a provider's caching rules for a model, or None if they are unknown or not published precisely.

    A name may be prefixed by its provider (``openai/gpt-4o``), or by `SIMULATED`.
    See docs/behaviour/models.md, "Caching of prompts".

    Examples
    --------
    >>> cache_rules("openai/gpt-4o-2024-08-06").provider, cache_rules("simulated-gpt-4o").provider
    ('openai', 'simulated openai')
    >>> cache_rules("scripted") is None
    True
    """
    is_simulated = model.startswith(SIMULATED)
    name = model.removeprefix(SIMULATED).rpartition("/")[2]
    found = next((rules for rules in CACHE_RULES if re.fullmatch(rules.models, name)), None)
    return replace(found, provider=f"simulated {found.provider}") if found and is_simulated else found


def checked_rules(given: object) -> CacheRules | None:
    """Return rules, or those of a model given by name; None for None.

    Raises
    ------
    NoeticConfigError
        ``INVALID_CACHE_RULES``: another type, numbers that allow no prediction, or a model without known rules.
    """
    if given is None:
        return None
    rules = cache_rules(given) if isinstance(given, str) else given
    numbers: list[object] = []
    if isinstance(rules, CacheRules):
        numbers = [rules.minimum, rules.block, rules.lifetime_ms, rules.read, rules.write, rules.lookback]
        if all(isinstance(n, int | float) and not isinstance(n, bool) and n >= 0 for n in numbers) and rules.block >= 1:
            return rules
    raise NoeticConfigError(
        "INVALID_CACHE_RULES",
        "Caching rules must be a CacheRules (numbers of at least 0, blocks of at least 1 token) or the name of a known model.",
        given=numbers or given,
        hint="Pass for example 'gpt-4o', or dataclasses.replace(cache_rules('gpt-4o'), minimum=0).",
    )
