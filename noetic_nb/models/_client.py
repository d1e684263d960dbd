"""The interface of a language model: one request, one response, nothing specific to a provider.

A response may contain a message, tool calls, or both. Tool names are canonical here (``plan/update``); a client that
needs other names on the wire translates them in both directions.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noetic_nb._core.arguments import closest, explained
from noetic_nb._core.cards import with_card
from noetic_nb._core.names import FinishReason
from noetic_nb._core.record_type import RecordType
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item


class Usage(NamedTuple):
    """Tokens of one or more model calls.

    `input_tokens` are all tokens of the requests; `cached_tokens` (read from the provider's cache) and
    `cache_write_tokens` (written to it) are parts of them. `reasoning_tokens` are part of `output_tokens`. A part is
    None if the provider does not report it; a sum counts the known parts.

    Examples
    --------
    >>> (Usage(10, 2) + Usage(5, 1, cached_tokens=4)).total_tokens
    18
    >>> Usage(10, 2) + Usage(5, 1, cached_tokens=4)
    Usage(input_tokens=15, output_tokens=3, cached_tokens=4, cache_write_tokens=None, reasoning_tokens=None)
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def total_tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:  # type: ignore[override]
        if self is NO_USAGE:  # most sums have one part
            return other
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            *[a if b is None else b if a is None else a + b for a, b in zip(self[2:], other[2:], strict=True)],
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            *[a if b is None else (a or 0) - b for a, b in zip(self[2:], other[2:], strict=True)],
        )


NO_USAGE: Final = Usage()
_CAMEL: Final = {name.split("_")[0] + "".join(map(str.title, name.split("_")[1:])): name for name in Usage._fields}


def usage_from(counts: Mapping[str, Any]) -> Usage:
    """Return counts by name, in either spelling, as usage."""
    named = {_CAMEL.get(name, name): value for name, value in counts.items() if value is not None}
    if not named.keys() <= set(Usage._fields) or not all(type(n) is int and n >= 0 for n in named.values()):
        raise ValueError(f"usage must be counts of {', '.join(Usage._fields)}, not {dict(counts)!r:.200}")
    return Usage(**named)


class TokenLogprob(NamedTuple):
    """One generated token and its log-probability in nats; 0.0 means that the provider gave none.

    `alternatives` are the most likely tokens at this place with their log-probabilities, if requested.
    """

    token: str
    logprob: float
    alternatives: tuple[tuple[str, float], ...] = ()


@with_card
class ModelParams(BaseModel, metaclass=RecordType):
    """Sampling parameters; None leaves a parameter to the provider."""

    # Unknown names are rejected: a misspelt parameter would be silently ignored. The validator is built on first use.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    temperature: float | None = Field(default=None, ge=0)
    """Randomness; 0 is the most deterministic."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling: the share of probability mass considered."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum number of generated tokens."""
    stop_sequences: tuple[str, ...] | None = None
    """Texts at which generation ends."""

    @explained(positional="Write ModelParams(temperature=0).")
    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as exc:
            first = exc.errors()[0]
            field, known = ".".join(map(str, first["loc"])), ", ".join(ModelParams.model_fields)
            is_unknown = first["type"] == "extra_forbidden"
            what = f"There is no sampling parameter {field!r}" if is_unknown else f"{field}: {first['msg']}"
            hint = f"{closest(field, ModelParams.model_fields) if is_unknown else ''} They are {known}.".strip()
            raise NoeticConfigError("INVALID_MODEL_PARAMS", what, given=first.get("input"), hint=hint) from exc


@with_card
class ToolSpec(NamedTuple):
    """A tool as the model sees it.

    `parameters` is a JSON Schema of an object; `strict` asks a provider to enforce it.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = False


@with_card
class ModelRequest(NamedTuple):
    """One request to a model: exactly the view that was planned."""

    model: str
    items: Sequence[Item]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    params: ModelParams | None = None
    output_schema: Mapping[str, Any] | None = None
    purpose: Literal["agent", "judge", "layer", "summary"] = "agent"
    thread_id: str = ""


CUT_OFF: Final = frozenset({"length", "content_filter"})
"""Reasons for which an answer ended early: its calls are not run."""


@with_card
class ModelResponse(NamedTuple):
    """A model's answer. `cost` is in US dollars, None if unknown.

    `finish_reason` says why it ended: ``"stop"``, ``"tool_calls"``, ``"length"``, ``"content_filter"``, or None if the
    client does not know. `finish_reason_of` converts a client's own names.
    """

    items: tuple[Item, ...]
    usage: Usage = NO_USAGE
    cost: float | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    model: str | None = None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class ModelDelta:
    """A piece of an answer while it is being written."""

    kind: Literal["text", "reasoning", "tool_call"]
    text: str
    index: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)


StreamPart: TypeAlias = ModelDelta | ModelResponse
"""A stream yields any number of deltas, then exactly one response."""


@runtime_checkable
class ModelClient(Protocol):
    """An object that answers requests. Cancelling the awaiting task must stop its work."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request.

        Raises
        ------
        NoeticError
            ``llm_rate_limit``, ``llm_refused`` or ``llm_failed``.
        """


@runtime_checkable
class StreamingModelClient(ModelClient, Protocol):
    """A client that can also stream its answer."""

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Yield deltas, then the whole response as the last part."""


def check_clients(model: object) -> None:
    """Reject an object that cannot answer requests; raises `NoeticConfigError` ``INVALID_MODEL``."""
    clients = model.values() if isinstance(model, Mapping) else [] if model is None else [model]
    for client in clients:
        if inspect.isclass(client):
            hint = f"Make one: {client.__name__}(...)."
            raise NoeticConfigError("INVALID_MODEL", "This is a class, not a client.", given=client, hint=hint)
        if not isinstance(client, ModelClient):
            what = "A harness needs a model client, or a mapping of names to clients."
            hint = "Use nn.ScriptedModel([...]), nn.OpenAIModel('...'), or anything with `async complete(request)`."
            raise NoeticConfigError("INVALID_MODEL", what, given=client, hint=hint)
