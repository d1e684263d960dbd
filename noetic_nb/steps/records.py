"""The kinds of step, as data. What happens when they run is the runtime's business."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, InstanceOf, field_validator

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory.projection import ProjectionPolicy
from noetic_nb.models.base import ModelParams
from noetic_nb.steps.base import StepRecord
from noetic_nb.steps.tool import Tool, make_tool
from noetic_nb.steps.until import UntilPredicate

__all__ = ["LLMStep", "LoopStep", "RunStep", "Step", "ToolStep"]

# Rounds of tools inside one llm step; runtime specification, section 2.2.
MAX_TOOL_ROUNDS = 32


class RunStep(StepRecord):
    """Run a function ``execute(input, ctx)``, sync or async."""

    kind: Literal["run"] = "run"
    execute: Callable[..., Any]


class LLMStep(StepRecord):
    """Ask the model, run the tools it calls, and ask again until it calls none."""

    kind: Literal["llm"] = "llm"
    model: str = Field(min_length=1)
    """Name of the model, looked up in the harness's models."""
    instructions: str | Callable[..., Any] | None = None
    """System text, or a function of the context that returns it."""
    tools: tuple[InstanceOf[Tool], ...] | None = None
    """Tools the model may call; None means all the harness has, an empty tuple means none."""
    params: ModelParams | None = None
    projection: ProjectionPolicy | None = None
    """Instead of the agent's."""
    tool_rounds: int = Field(default=MAX_TOOL_ROUNDS, ge=1)
    """Rounds of tools before the step ends; 1 ends it after the first calls, as the loop of `react` wants it."""

    @field_validator("model", mode="before")
    @classmethod
    def _model_is_named(cls, value: object) -> object:
        if isinstance(value, str) and not value.strip():
            raise NoeticConfigError("MISSING_MODEL", "An llm step needs the name of a model.", given=value)
        return value

    @field_validator("tools", mode="before")
    @classmethod
    def _tools_are_tools(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return tuple([tool if isinstance(tool, Tool) or not callable(tool) else make_tool(tool) for tool in value])
        return value


class ToolStep(StepRecord):
    """Call a tool with the input merged under `args`; steering applies as everywhere."""

    kind: Literal["tool"] = "tool"
    tool: InstanceOf[Tool]
    args: dict[str, Any] | None = None


class LoopStep(StepRecord):
    """Run `steps` in order, again and again, until the predicate says stop."""

    kind: Literal["loop"] = "loop"
    steps: tuple[Step, ...] = Field(min_length=1)
    until: UntilPredicate
    max_iterations: int = Field(default=1000, ge=1)
    feed_output: bool = True
    """Give each iteration the output of the last one as its input; False leaves the later ones without input."""


Step: TypeAlias = Annotated[RunStep | LLMStep | ToolStep | LoopStep, Field(discriminator="kind")]
