"""An agent as data: what it does, what it remembers, how much it may send. Nothing here is alive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from noetic_nb.memory import MemoryConfig, MemoryLayer, ProjectionPolicy, memory
from noetic_nb.runtime.idle import IDLE_TIMEOUT_MS
from noetic_nb.runtime.limits import Limits
from noetic_nb.steps import Step, Tool, make_tool
from noetic_nb.steps.base import Frozen, JustA

__all__ = ["AgentConfig"]


class AgentConfig(Frozen):
    """The configuration of an agent.

    Raises
    ------
    NoeticConfigError
        ``INVALID_AGENT_CONFIG``, ``DUPLICATE_LAYER_ID``, or what a step, layer or policy raises.

    Examples
    --------
    >>> from noetic_nb.steps import react
    >>> config = AgentConfig(name="desk", step=react(model="scripted"))
    >>> config.name, config.projection.token_budget
    ('desk', 128000)
    """

    error_code: ClassVar[str] = "INVALID_AGENT_CONFIG"

    name: str = Field(min_length=1)
    step: Step | None = None
    """What `execute` runs."""
    memory: tuple[JustA[MemoryLayer], ...] = ()
    tools: tuple[JustA[Tool], ...] = ()
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
