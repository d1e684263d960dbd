"""Walk through the steps inside a step. The choices of a function at run time cannot be known before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from noetic_nb.steps import LLMStep, Route, Step, Tool
from noetic_nb.steps._base import StepRecord


def inner_steps(step: Step) -> tuple[Step, ...]:
    """Return the steps directly inside a step, in order."""
    return tuple([inner for value in vars(step).values() for inner in _held(value)])


def _held(value: Any) -> Iterator[Step]:
    """Yield the steps in a field of a step of any kind."""
    if isinstance(value, StepRecord | Route):
        yield value.target if isinstance(value, Route) else cast(Step, value)
    elif isinstance(value, tuple):
        for each in value:
            yield from _held(each)


def suffixed(step: Step, suffix: str) -> Step:
    """Return a step in which the ids of all steps end in a suffix: one of several that run side by side."""
    return rebuilt(step, lambda inner: {"id": f"{inner.id}{suffix}"})


def rebuilt(step: Step, change: Callable[[Step], dict[str, Any]]) -> Step:
    """Return a copy of a step in which each step, itself included, has other values of some fields."""
    made: dict[int, Step] = {}

    def one(inner: Step) -> Step:
        known = made.get(id(inner))
        if known is None:
            made[id(inner)] = inner  # a step inside itself stays what it is
            known = made[id(inner)] = inner.model_copy(update={**change(inner), **_copied(inner, one)})
        return known

    return one(step)


def _copied(step: Step, one: Callable[[Step], Step]) -> dict[str, Any]:
    """Return the fields of a step that hold others, with these made anew."""
    return {name: _remade(value, one) for name, value in vars(step).items() if any(_held(value))}


def _remade(value: Any, one: Callable[[Step], Step]) -> Any:
    if isinstance(value, tuple):
        return tuple([_remade(each, one) for each in value])
    return value.model_copy(update={"target": one(value.target)}) if isinstance(value, Route) else one(value)


def steps_within(step: Step | None) -> Iterator[Step]:
    """Yield a step and all the steps inside it, outer ones first; one that occurs twice, once."""
    # By identity: equal steps in two places are two, and one step may be in several.
    seen: set[int] = set()
    waiting = [] if step is None else [step]
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        # Reversed, as the last in is the first out.
        waiting.extend(reversed(inner_steps(found)))


def llm_steps(step: Step | None) -> Iterator[LLMStep]:
    """Yield the llm steps inside a step, in order."""
    for found in steps_within(step):
        if isinstance(found, LLMStep):
            yield found


def listed_tools(step: LLMStep) -> tuple[Tool, ...]:
    """Return the tools an llm step names; none where it names none, or a function chooses them."""
    return step.tools if isinstance(step.tools, tuple) else ()
