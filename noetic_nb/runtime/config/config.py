"""An agent as data: what it does, what it remembers, how much it may send. Nothing here is alive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.items import FrozenDict, ItemRegistry, freeze, thaw
from noetic_nb.memory import MemoryConfig, MemoryLayer, ProjectionPolicy, memory
from noetic_nb.models.stream_timeout import IDLE_TIMEOUT_MS
from noetic_nb.runtime.config.extensions import as_item_schemas, item_registry
from noetic_nb.runtime.config.limits import Limits
from noetic_nb.steps import Step, Tool, make_tool
from noetic_nb.steps.base import Frozen, InstanceField
from noetic_nb.steps.schema import OutputSchema, as_schema

__all__ = ["AgentConfig"]


class AgentConfig(Frozen):
    """The configuration of an agent.

    Raises
    ------
    NoeticConfigError
        ``INVALID_AGENT_CONFIG``, ``INVALID_AGENT_PARAMS``, ``DUPLICATE_LAYER_ID``, or what a step, layer or policy
        raises.

    Examples
    --------
    >>> from noetic_nb.steps import react
    >>> config = AgentConfig(name="desk", step=react(model="scripted"))
    >>> config.name, config.projection.token_budget
    ('desk', 128000)
    >>> AgentConfig(name="desk", params={"max": 0}, params_schema={"properties": {"max": {"minimum": 1}}})
    Traceback (most recent call last):
    ...
    noetic_nb.errors.NoeticConfigError: [INVALID_AGENT_PARAMS] AgentConfig 'desk', params.max: minimum 1...
    """

    error_code: ClassVar[str] = "INVALID_AGENT_CONFIG"

    name: str = Field(min_length=1)
    step: Step | None = None
    """What `execute` runs."""
    memory: tuple[InstanceField[MemoryLayer], ...] = ()
    tools: tuple[InstanceField[Tool], ...] = ()
    """Tools of llm steps that name none of their own."""
    projection: ProjectionPolicy = Field(default_factory=ProjectionPolicy)
    force_atomic_recall: bool = False
    """Treat eventual layers as atomic."""
    on_steering_error: Literal["deny", "allow", "raise"] = "deny"
    """What a failing enforcement hook means where its layer does not say."""

    stream_idle_timeout_ms: float = Field(default=IDLE_TIMEOUT_MS, allow_inf_nan=False)
    """Longest silence within a streamed answer, milliseconds, before the model call fails with ``llm_failed``; 0 or less for
    no limit. A client with a limit of its own, such as `OpenAIModel`, keeps that one."""
    limits: Limits | None = None
    """What one turn may spend; more raises ``budget_exceeded``."""
    params: InstanceField[FrozenDict] = FrozenDict()
    """Settings of your own, JSON data: functions of steps read them as ``ctx.params``."""
    params_schema: InstanceField[OutputSchema] | None = None
    """What `params` must look like, a type or a JSON Schema; a gate, which adds no defaults."""
    item_schemas: InstanceField[FrozenDict] = FrozenDict()
    """Extension items that anyone may log: schemas by category ``items``, ``developerMessages``, ``toolCalls``,
    ``toolResults``. Layers declare their own."""
    strict_item_schemas: bool = True
    """Whether an item of an unknown type that no schema accepts is an error."""
    before_step: Callable[..., Any] | None = None
    """``before_step(step, input, ctx)``, sync or async; what it raises fails the step."""
    after_step: Callable[..., Any] | None = None
    """``after_step(step, output, ctx)``, after each step that succeeded."""

    @field_validator("memory", mode="before")
    @classmethod
    def _layers(cls, value: object) -> object:
        if isinstance(value, MemoryConfig):
            return value.layers
        return memory(value).layers if isinstance(value, Iterable) else value

    @field_validator("tools", mode="before")
    @classmethod
    def _tools(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return tuple([tool if isinstance(tool, Tool) or not callable(tool) else make_tool(tool) for tool in value])
        return value

    @field_validator("params", mode="before")
    @classmethod
    def _params(cls, value: object) -> object:
        try:
            frozen = freeze(value)
        except ItemValidationError as exc:
            raise _invalid_params(
                "Parameters are text, finite numbers, booleans, None, lists and dicts.", value
            ) from exc
        if not isinstance(frozen, FrozenDict):
            raise _invalid_params("Parameters are a mapping.", value)
        return frozen

    @field_validator("params_schema", mode="before")
    @classmethod
    def _params_schema(cls, value: object) -> object:
        return as_schema(value)

    @field_validator("item_schemas", mode="before")
    @classmethod
    def _item_schemas(cls, value: object) -> object:
        return as_item_schemas(value)

    def model_post_init(self, context: object) -> None:
        """Check the parameters against their schema."""
        if self.params_schema is None:
            return
        try:
            self.params_schema.check(thaw(self.params))
        except ValueError as exc:
            place, _, problem = str(exc).partition(": ")
            field = "params" if place == "value" else f"params.{place}"
            raise _invalid_params(f"AgentConfig {self.name!r}, {field}: {problem}", self.params, field) from exc

    @property
    def item_registry(self) -> ItemRegistry:
        """Which items the agent may log, before what its layers add."""
        return item_registry(self.item_schemas, strict=self.strict_item_schemas)


def _invalid_params(what: str, given: object, field: str = "params") -> NoeticConfigError:
    hint = "Pass JSON data that fits `params_schema`."
    return NoeticConfigError("INVALID_AGENT_PARAMS", what, given=given, hint=hint, field=field)
