"""The fields that a dialect of spans can read; one that does not have a field answers None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from noetic_nb.interop._spans.span_history import History
from noetic_nb.interop._spans.span_messages import SpanMessage
from noetic_nb.interop._spans.span_record import Span
from noetic_nb.items._messages.message import count, money

Kind: TypeAlias = Literal["model", "tool", "agent", "memory", "plan", "check", "other"]


class Dialect:
    """One way to write the calls of an agent on spans.

    Every method answers None where this way does not say it, so that the next one is tried.
    """

    name = ""

    def kind(self, span: Span) -> Kind | None:
        """Return the kind of a span; "other" for structure around calls."""
        return None

    def conversation(self, span: Span) -> str | None:
        """Return the id of the conversation."""
        return None

    def system(self, span: Span) -> str | None:
        """Return the system prompt that was sent apart."""
        return None

    def inputs(self, span: Span) -> History | None:
        """Return the messages sent to a model or an agent."""
        return None

    def outputs(self, span: Span) -> list[SpanMessage] | None:
        """Return the messages of the answer."""
        return None

    def tool_input(self, span: Span) -> Any:
        """Return the arguments of a tool call, as they are written."""
        return None

    def tool_output(self, span: Span) -> Any:
        """Return the result of the tool."""
        return None

    def tool_name(self, span: Span) -> str | None:
        return None

    def call_id(self, span: Span) -> str | None:
        """Return the id of the tool call."""
        return None

    def agent_name(self, span: Span) -> str | None:
        return None

    def model(self, span: Span) -> str | None:
        """Return the name of the model."""
        return None

    def usage(self, span: Span) -> Mapping[str, int] | None:
        """Return the tokens by the names of `models.Usage`, as far as they are known."""
        return None

    def cost(self, span: Span) -> float | None:
        """Return the cost of a call, in US dollars."""
        return None

    def params(self, span: Span) -> Mapping[str, Any] | None:
        """Return the parameters of the model."""
        return None

    def finish(self, span: Span) -> str | None:
        """Return why an answer ended, in the provider's word."""
        return None


def counted(span: Span, numbers: Mapping[str, Sequence[str]]) -> dict[str, int] | None:
    """Return the numbers of tokens that are known, each by the first of its attributes; None where none is."""
    about = span.attributes
    found: dict[str, int] = {}
    for number, names in numbers.items():
        for name in names:
            if name in about and (tokens := count(about[name])) is not None:
                found[number] = tokens
                break
    return found or None


def amount(span: Span, *names: str) -> float | None:
    """Return the first of some attributes that is an amount of money."""
    about = span.attributes
    for name in names:
        if name in about and (found := money(about[name])) is not None:
            return found
    return None
