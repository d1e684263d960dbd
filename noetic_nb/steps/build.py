"""Builders of steps: the short way to write them down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory.projection import ProjectionPolicy
from noetic_nb.models.base import ModelParams
from noetic_nb.steps.records import LLMStep, LoopStep, RunStep, Step, ToolStep
from noetic_nb.steps.tool import Tool
from noetic_nb.steps.until import UntilPredicate

__all__ = ["loop", "step"]


class step:
    """Builders of the plain steps.

    Examples
    --------
    >>> step.llm("answer", model="scripted", instructions="Be brief.").kind
    'llm'
    """

    @staticmethod
    def run(id: str, execute: Callable[..., Any]) -> RunStep:
        """Run a function of the input and the context."""
        if not callable(execute):
            raise NoeticConfigError("MISSING_EXECUTE_FUNCTION", "A run step needs a function.", given=execute)
        return RunStep(id=id, execute=execute)

    @staticmethod
    def llm(
        id: str,
        *,
        model: str,
        instructions: str | Callable[..., Any] | None = None,
        tools: Iterable[Tool | Callable[..., Any]] | None = None,
        params: ModelParams | None = None,
        projection: ProjectionPolicy | None = None,
        tool_rounds: int | None = None,
    ) -> LLMStep:
        """Ask a model."""
        rounds = {} if tool_rounds is None else {"tool_rounds": tool_rounds}
        return LLMStep(
            id=id,
            model=model,
            instructions=instructions,
            tools=None if tools is None else tuple(tools),
            params=params,
            projection=projection,
            **rounds,
        )

    @staticmethod
    def tool(id: str, tool: Tool, args: Mapping[str, Any] | None = None) -> ToolStep:
        """Call a tool."""
        if not isinstance(tool, Tool):
            raise NoeticConfigError("MISSING_TOOL", "A tool step needs a tool.", given=tool, hint="Use @nn.tool.")
        return ToolStep(id=id, tool=tool, args=None if args is None else dict(args))


def loop(
    id: str,
    steps: Step | Iterable[Step] | None = None,
    *,
    until: UntilPredicate,
    body: Step | Iterable[Step] | None = None,
    max_iterations: int = 1000,
    feed_output: bool = True,
) -> LoopStep:
    """Repeat steps until a predicate says stop.

    Parameters
    ----------
    steps, body : step or iterable of steps
        What is repeated; either name.
    until : predicate
        See `noetic_nb.steps.until`.

    Raises
    ------
    NoeticConfigError
        ``MISSING_LOOP_BODY``.

    Examples
    --------
    >>> from noetic_nb.steps import until
    >>> loop("think", step.llm("ask", model="scripted"), until=until.no_tool_calls()).steps[0].id
    'ask'
    """
    given = body if steps is None else steps
    listed = () if given is None else tuple(given) if isinstance(given, Iterable) and not _is_step(given) else (given,)
    if not listed:
        raise NoeticConfigError("MISSING_LOOP_BODY", "A loop needs at least one step.", given=given)
    return LoopStep(id=id, steps=listed, until=until, max_iterations=max_iterations, feed_output=feed_output)


def _is_step(value: object) -> bool:
    return isinstance(value, RunStep | LLMStep | ToolStep | LoopStep)
