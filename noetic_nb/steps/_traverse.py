"""Walk through the steps inside a step. The choices of a function at run time cannot be known before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from noetic_nb.steps import BranchStep, ForkStep, LLMStep, LoopStep, SpawnStep, Step, Tool


def inner_steps(step: Step) -> tuple[Step, ...]:
    """Return the steps directly inside a step, in order."""
    match step:
        case LoopStep():
            return step.steps
        case SpawnStep():
            return (step.child,)
        case ForkStep():
            listed = step.paths if isinstance(step.paths, tuple) else ()
            return listed if step.each is None else (step.each,)
        case BranchStep():
            targets = tuple([route.target for route in step.routes])
            return targets if step.default is None else (*targets, step.default)
        case _:
            return ()


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
    match step:
        case LoopStep():
            return {"steps": tuple([one(inner) for inner in step.steps])}
        case SpawnStep():
            return {"child": one(step.child)}
        case ForkStep() if step.each is not None:
            return {"each": one(step.each)}
        case ForkStep(paths=tuple() as paths):
            return {"paths": tuple([one(path) for path in paths])}
        case BranchStep():
            routes = tuple([route.model_copy(update={"target": one(route.target)}) for route in step.routes])
            return {"routes": routes, "default": None if step.default is None else one(step.default)}
        case _:
            return {}


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
