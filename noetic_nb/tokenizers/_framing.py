"""The tokens that a provider adds around texts: for messages, calls and tool definitions. Data, with source and date.

They are not part of the texts, but are billed. Numbers that a provider does not publish were measured on recorded usage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from noetic_nb.items._build import item_text
from noetic_nb.items._json_text import compact_json


@dataclass(frozen=True, slots=True)
class Framing:
    """Tokens that a provider adds to those of the texts."""

    provider: str
    message: int
    """A message: its role and its delimiters."""
    call: int
    """A tool call, in addition to its name and arguments."""
    output: int
    """The output of a call, in addition to its text."""
    reply: int
    """The start of the answer, once per request."""
    tools: int
    """All definitions together, once per request that offers any."""
    function: int
    """A tool definition, in addition to its name and description."""
    properties: int
    """A list of parameters."""
    property: int
    """A parameter, in addition to its name, type and description."""
    enum: int
    """A list of values; may be negative."""
    enum_value: int
    """A value of such a list, in addition to its text."""
    source: str
    as_of: str

    def item(self, kind: str) -> int:
        """Return the tokens around an item of a kind; see `kind_of`."""
        if kind == "call":
            return self.call
        return self.output if kind == "tool" else self.message

    def definitions(self, tools: Iterable[Any], tokenizer: Callable[[str], int]) -> int:
        """Count tool definitions, each with ``name``, ``description`` and ``parameters``, a JSON Schema."""
        total = 0
        for tool in tools:
            total += self.function + tokenizer(f"{tool.name}:{tool.description}")
            total += self._schema(tool.parameters, tokenizer)
        return total + self.tools if total else 0

    def _schema(self, schema: Mapping[str, Any], tokenizer: Callable[[str], int]) -> int:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return 0
        total = self.properties
        for name, inner in properties.items():
            total += self.property
            if not isinstance(inner, Mapping):
                continue
            shown = inner.get("type", "")
            words = shown if isinstance(shown, str) else compact_json(shown)
            total += tokenizer(f"{name}:{words}:{inner.get('description', '')}")
            values = inner.get("enum")
            if isinstance(values, list | tuple) and values:
                total += self.enum
                total += sum([self.enum_value + tokenizer(str(value)) for value in values])
            total += self._schema(inner, tokenizer)
            items = inner.get("items")
            if isinstance(items, Mapping):
                total += self._schema(items, tokenizer)
        return total


_COOKBOOK: Final = "OpenAI Cookbook, How to count tokens with tiktoken: messages and tools of gpt-4o and gpt-4o-mini"
_MEASURED: Final = (
    "calls and outputs: medians over 382 differences of usage between calls of gpt-4.1, tau2 retail and telecom, see "
    "docs/studies/token_counts.md"
)

_OPENAI: Final = Framing("openai", 4, 10, 6, 3, 12, 7, 3, 3, -3, 3, f"{_COOKBOOK}; {_MEASURED}", "2026-11-22")

FRAMINGS: Final[Mapping[str, Framing]] = {
    "openai": _OPENAI,
    # Definitions need three more tokens each in earlier models.
    "openai-cl100k": replace(_OPENAI, provider="openai-cl100k", function=10, source=f"{_COOKBOOK}, gpt-4; {_MEASURED}"),
    # Only the system prompt for tools is published, by model: this is Claude 3 Haiku with tool choice `auto`.
    "anthropic": replace(
        _OPENAI,
        provider="anthropic",
        tools=264,
        source="docs.anthropic.com, Tool use pricing and tokens: the system prompt for tools; the rest is not published and "
        "taken as that of openai",
    ),
}
"""By provider."""

_PROVIDERS: Final = (("claude", "anthropic"), ("gpt-4-", "openai-cl100k"), ("gpt-3.5", "openai-cl100k"))


def framing_of(model: str) -> Framing:
    """Return the tokens that a model's provider adds; for an unknown model, those of current OpenAI models.

    Examples
    --------
    >>> framing_of("claude-3-haiku").provider, framing_of("gpt-4.1").message, framing_of("gpt-4").function
    ('anthropic', 4, 10)
    """
    name = model.rpartition("/")[2]
    if name in ("gpt-4", "cl100k_base"):
        return FRAMINGS["openai-cl100k"]
    return FRAMINGS[next((provider for prefix, provider in _PROVIDERS if name.startswith(prefix)), "openai")]


KINDS: Final = ("user", "assistant", "system", "call", "tool", "other")  # kinds of items, for counting


def kind_of(item: Mapping[str, Any]) -> str:
    """Return the kind of an item for counting: ``user``, ``assistant``, ``system``, ``call``, ``tool`` or ``other``."""
    kind = item.get("type")
    if kind == "message":
        role = item.get("role")
        return role if role in ("user", "assistant") else "system"
    return _KINDS.get(kind, "other")  # type: ignore[arg-type]  # the dict has no other values


_KINDS: Final = {"function_call": "call", "function_call_output": "tool"}


def counted_text(item: Mapping[str, Any], kind: str) -> str:
    """Return the counted text of an item: all its JSON if its type has no known text."""
    text = item_text(item)
    return text if text or kind != "other" or item.get("type") == "reasoning" else compact_json(item)
