"""One steering rule: when it applies, and what decides. A rule never changes; a rule book replaces it by a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from noetic_nb.errors import NoeticConfigError

__all__ = ["DEFAULT_JUDGE_MODEL", "LLMEval", "Point", "SteeringRule", "as_rule"]

Point: TypeAlias = Literal["before_tool_call", "after_model_call"]
"""The two enforcement points."""

# Runtime specification, section 8.1.
DEFAULT_JUDGE_MODEL: Final = "openai/gpt-4o-mini"

_POINTS: Final = {
    "before_tool_call": "before_tool_call",
    "beforeToolCall": "before_tool_call",
    "after_model_call": "after_model_call",
    "afterModelCall": "after_model_call",
}


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        arbitrary_types_allowed=True,
    )


class LLMEval(_Frozen):
    """A judge: a model that is shown the call or the response and answers ALLOW, DENY or GUIDE."""

    mode: Literal["sync", "async"]
    """``sync`` waits for the verdict; ``async`` lets the call pass and delivers the verdict with a later prompt."""
    prompt: str = Field(min_length=1)
    model: str = Field(default=DEFAULT_JUDGE_MODEL, min_length=1)


class SteeringRule(_Frozen):
    """A rule with a Python predicate, a judge, or both (then the judge is asked where the predicate has no opinion).

    Raises
    ------
    NoeticConfigError
        ``INVALID_RULE``.

    Examples
    --------
    >>> SteeringRule(id="quiet", applies_to="after_model_call", predicate=lambda response: None).applies_to
    ('after_model_call',)
    """

    id: str = Field(min_length=1)
    name: str | None = None
    applies_to: tuple[Point, ...] = Field(min_length=1)
    predicate: Callable[[Any], Any] | None = None
    llm_eval: LLMEval | None = None
    tools: tuple[str, ...] | None = None
    """Tools it is asked about before a call; None means every tool."""
    history: bool = False
    """Whether the predicate reads ``call.history``."""
    isolate: Literal["thread"] | None = None
    """Run a synchronous predicate in a thread, so that one that hangs is denied on time."""
    source: str | None = None
    """The text of the predicate, for people."""
    enabled: bool = True

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as exc:
            first = exc.errors()[0]
            where = ".".join(map(str, first["loc"])) or "rule"
            raise NoeticConfigError(
                "INVALID_RULE",
                f"{where}: {first['msg']}",
                given=first.get("input"),
                hint=f"Fields of a rule are {', '.join(SteeringRule.model_fields)}.",
                field=where,
                rule_id=data.get("id"),
            ) from exc

    @field_validator("applies_to", mode="before")
    @classmethod
    def _points(cls, value: object) -> object:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, Iterable):
            return value
        return tuple(_POINTS.get(name, name) if isinstance(name, str) else name for name in names)

    @field_validator("tools", mode="before")
    @classmethod
    def _tools(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


def as_rule(value: SteeringRule | Mapping[str, Any]) -> SteeringRule:
    """Return a rule given as a record or as a mapping.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RULE``.
    """
    if isinstance(value, SteeringRule):
        return value
    if isinstance(value, Mapping):
        return SteeringRule(**value)
    raise NoeticConfigError("INVALID_RULE", "A rule is a SteeringRule or a mapping.", given=value)
