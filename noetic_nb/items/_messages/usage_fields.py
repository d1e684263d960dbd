"""Maps the usage fields of each provider to our counts: one table of the fields that are read, and those that are ignored.

Our counts overlap: cached and written tokens are included in ``input_tokens``, reasoning in ``output_tokens``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noetic_nb.items._messages.message import count, is_odd_count


@dataclass(frozen=True, slots=True)
class UsageFields:
    """The fields of one format: dots select nested fields, ``[kind]`` the entries of a list with this type.

    Parameters
    ----------
    read : mapping of str to tuple of str
        By name of `models.Usage`: for messages, fields to add, of which the first is required; for spans, attributes of
        which the first existing one counts.
    ignored : mapping of str to str
        The other fields, each with the reason.
    """

    read: Mapping[str, tuple[str, ...]]
    ignored: Mapping[str, str] = field(default_factory=dict)


def known_usage(value: object, source: str) -> dict[str, int] | None:
    """Return the tokens counted in a message, by names of `models.Usage`; None if nothing was counted.

    A sum with a part that is no number is not known.

    Examples
    --------
    >>> known_usage({"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 7}, "anthropic")
    {'input_tokens': 95, 'output_tokens': 7, 'cached_tokens': 90}
    """
    if not isinstance(value, Mapping):
        return None
    found = {}
    for name, paths in USAGE[source].read.items():
        parts = [_part(value, path) for path in paths]
        if parts[0] is not None and not any(map(is_odd_count, parts)):
            found[name] = sum(count(part) or 0 for part in parts)
    return found or None


def _part(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _read(table: str) -> dict[str, tuple[str, ...]]:
    """Return the fields of each count, from one line of the table each."""
    return {name: tuple(paths) for name, *paths in map(str.split, table.strip().splitlines())}


_SUM: Final = "the sum of two others"
_PART: Final = "a part that no list of prices here tells from the rest"
_NO_COUNT: Final = "no number of tokens"
_LIFETIME: Final = "parts of the written tokens by how long they are kept"
_MONEY: Final = "money that is given back, no tokens; it is listed"
_REQUESTS: Final = "a number of requests, no tokens; it is listed"
_ABOVE: Final = "parts of the numbers above"
_CHOICE: Final = "of a model that chooses and writes no text: a run has no event for it"
_ANTHROPIC: Final = _read("""
    input_tokens       input_tokens cache_read_input_tokens cache_creation_input_tokens
    output_tokens      output_tokens
    cached_tokens      cache_read_input_tokens
    cache_write_tokens cache_creation_input_tokens
    reasoning_tokens   output_tokens_details.thinking_tokens
""")

USAGE: Final[Mapping[str, UsageFields]] = {
    "openai": UsageFields(
        _read("""
            input_tokens       prompt_tokens
            output_tokens      completion_tokens
            cached_tokens      prompt_tokens_details.cached_tokens
            cache_write_tokens prompt_tokens_details.cache_write_tokens
            reasoning_tokens   completion_tokens_details.reasoning_tokens
        """),
        {
            "total_tokens": _SUM,
            **{f"prompt_tokens_details.{part}_tokens": _PART for part in ("audio", "image", "text")},
            **{
                f"completion_tokens_details.{part}_tokens": _PART
                for part in ("audio", "text", "accepted_prediction", "rejected_prediction")
            },
        },
    ),
    "openai-responses": UsageFields(
        _read("""
            input_tokens       input_tokens
            output_tokens      output_tokens
            cached_tokens      input_tokens_details.cached_tokens
            cache_write_tokens input_tokens_details.cache_write_tokens
            reasoning_tokens   output_tokens_details.reasoning_tokens
        """),
        {
            "total_tokens": _SUM,
            "input_tokens_details.cache_write_tokens_details.ttl_12h_tokens": _LIFETIME,
            "input_tokens_details.cache_write_tokens_details.ttl_30m_tokens": _LIFETIME,
        },
    ),
    "anthropic": UsageFields(
        _ANTHROPIC,
        {
            "cache_creation.ephemeral_1h_input_tokens": _LIFETIME,
            "cache_creation.ephemeral_5m_input_tokens": _LIFETIME,
            **dict.fromkeys(("inference_geo", "service_tier", "speed"), _NO_COUNT),
            **dict.fromkeys(("fallback_credit.status.type", "fallback_credit.status.reason"), _MONEY),
            **dict.fromkeys(("server_tool_use.web_search_requests", "server_tool_use.web_fetch_requests"), _REQUESTS),
            **dict.fromkeys(("iterations[message]", "iterations[fallback_message]"), _ABOVE),
        },
    ),
    # Each entry of the list is counted like an answer; these two are not included in any sum.
    "anthropic iterations[compaction]": UsageFields(_ANTHROPIC),
    "anthropic iterations[advisor_message]": UsageFields(_ANTHROPIC),
    "inspect": UsageFields(
        _read("""
            input_tokens       input_tokens input_tokens_cache_read input_tokens_cache_write
            output_tokens      output_tokens
            cached_tokens      input_tokens_cache_read
            cache_write_tokens input_tokens_cache_write
            reasoning_tokens   reasoning_tokens
        """),
        {"total_tokens": _SUM, "total_cost": "the cost of the call, which is read as such"},
    ),
    "genai": UsageFields(
        _read("""
            input_tokens  gen_ai.usage.input_tokens gen_ai.usage.prompt_tokens gen_ai.aggregated_usage.input_tokens
            output_tokens gen_ai.usage.output_tokens gen_ai.usage.completion_tokens gen_ai.aggregated_usage.output_tokens
            cached_tokens gen_ai.usage.cache_read.input_tokens gen_ai.usage.cache_read_input_tokens \
                          gen_ai.usage.details.cache_read_tokens
            cache_write_tokens gen_ai.usage.cache_creation.input_tokens gen_ai.usage.cache_creation_input_tokens \
                               gen_ai.usage.cache_write_input_tokens gen_ai.usage.details.cache_write_tokens
            reasoning_tokens gen_ai.usage.reasoning.output_tokens gen_ai.usage.details.reasoning_tokens
        """)
    ),
    "openinference": UsageFields(
        _read("""
            input_tokens       llm.token_count.prompt
            output_tokens      llm.token_count.completion
            cached_tokens      llm.token_count.prompt_details.cache_read llm.token_count.prompt_details.cache_input
            cache_write_tokens llm.token_count.prompt_details.cache_write
            reasoning_tokens   llm.token_count.completion_details.reasoning
        """),
        {
            "llm.token_count.total": _SUM,
            "llm.token_count.prompt_details.audio": _PART,
            "llm.token_count.completion_details.audio": _PART,
            "llm.token_count.prompt_details": "the prefix of parts, which are read or named here",
            **dict.fromkeys(("decision.token_count.input", "decision.token_count.output"), _CHOICE),
        },
    ),
}
"""By format."""
