"""The inputs of a child execution, and the part of its output that its parent gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, field_validator

from noetic_nb.steps._base import Frozen, InstanceField
from noetic_nb.steps._schema import OutputSchema, as_schema

__all__ = [
    "SUMMARY_PROMPT",
    "ContextIn",
    "ContextOut",
    "CustomContext",
    "FreshContext",
    "FullResult",
    "InheritContext",
    "SchemaResult",
    "SubsetContext",
    "SummaryResult",
    "as_strategy",
]

SUMMARY_PROMPT: Final = "Summarise concisely what was done above and what came of it."


class InheritContext(Frozen):
    """The child starts with a copy of its parent's whole log."""

    strategy: Literal["inherit"] = "inherit"


class FreshContext(Frozen):
    """The child starts with its input and nothing else."""

    strategy: Literal["fresh"] = "fresh"


class SubsetContext(Frozen):
    """The child starts with the items that ``select(items, state)`` picks from a copy of its parent's log."""

    strategy: Literal["subset"] = "subset"
    select: Callable[..., Any]


class CustomContext(Frozen):
    """The child starts with the items that ``build(input, parent_ctx)`` makes."""

    strategy: Literal["custom"] = "custom"
    build: Callable[..., Any]


class FullResult(Frozen):
    """The parent gets the child's output as it is."""

    strategy: Literal["full"] = "full"


class SummaryResult(Frozen):
    """The parent gets a summary of the child's conversation, written by a model."""

    strategy: Literal["summary"] = "summary"
    model: str | None = None
    """Writes the summary; when absent, the first model that a step of the child names, or one of the agent, or the only one
    the harness has."""
    prompt: str = SUMMARY_PROMPT


class SchemaResult(Frozen):
    """The parent gets the child's output, checked."""

    strategy: Literal["schema"] = "schema"
    # With an underscore, as `schema` is a method of every pydantic model.
    schema_: InstanceField[OutputSchema] = Field(alias="schema")

    @field_validator("schema_", mode="before")
    @classmethod
    def _is_schema(cls, value: Any) -> Any:
        return as_schema(value)


ContextIn: TypeAlias = Annotated[
    InheritContext | FreshContext | SubsetContext | CustomContext, Field(discriminator="strategy")
]
ContextOut: TypeAlias = Annotated[FullResult | SummaryResult | SchemaResult, Field(discriminator="strategy")]


def as_strategy(value: Any) -> Any:
    """Return a strategy given by its name alone in its long form."""
    return {"strategy": value} if isinstance(value, str) else value
