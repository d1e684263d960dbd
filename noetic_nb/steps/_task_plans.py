"""Plans as data, converted to steps: each task with its agent, in sequence or in parallel. Constraints are enforced."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from pydantic import Field

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.steps._base import Frozen
from noetic_nb.steps._builders import fork, loop, step
from noetic_nb.steps._loops import until
from noetic_nb.steps._records import RunStep, Step

Agents: TypeAlias = Mapping[str, Callable[[str], Step]]
"""By agent name: a function from the description of a task to the step that does it."""

# A deeper plan would exceed the nesting limit of steps in one execution.
MAX_PLAN_DEPTH: Final = 20


class PlanNode(Frozen):
    """A task, or a group of tasks."""

    is_part = True

    id: str = Field(min_length=1)
    description: str = ""
    """What to do; for a group, only a note for readers of the plan."""
    assignee: str | None = None
    """The agent for the task; a group has none."""
    execution: Literal["sequential", "parallel"] = "sequential"
    """How the tasks of a group are run."""
    children: tuple[PlanNode, ...] = ()


class PlanConstraints(Frozen):
    """The constraints of a plan; a plan that violates one is rejected before any task runs."""

    assignees: tuple[str, ...] | None = None
    """The only agents that may be given tasks."""
    max_tasks: int | None = Field(default=None, ge=1)
    validate_plan: Callable[[PlanNode], Any] | None = None
    """Returns None, or the problem with the plan."""


def task_tree(
    plan: PlanNode | Mapping[str, Any],
    agents: Agents,
    *,
    constraints: PlanConstraints | Mapping[str, Any] | None = None,
    merge: Callable[..., Any] | Literal["first", "last", "concat"] = "last",
    concurrency: int | None = None,
) -> Step:
    """Convert a plan to a step.

    Parameters
    ----------
    plan : PlanNode or mapping
        ``{"id", "description", "assignee"}`` for a task; ``{"id", "description", "execution", "children"}`` for a
        group, whose description is only a note for readers of the plan.
    agents : mapping of str to callable
        ``agents[assignee](description)`` returns the step of a task.
    constraints : PlanConstraints or mapping, optional
        Constraints that the plan must satisfy.
    merge : callable or {"first", "last", "concat"}
        How to combine the results of parallel tasks.
    concurrency : int, optional
        Maximum number of these that run at the same time.

    Raises
    ------
    NoeticConfigError
        ``INVALID_PLAN``, ``UNKNOWN_ASSIGNEE``.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> plan = {"id": "report", "children": [
    ...     {"id": "read", "description": "Read the files.", "assignee": "reader"},
    ...     {"id": "write", "description": "Write the report.", "assignee": "writer"}]}
    >>> agent = lambda task: nn.react(model="scripted", instructions=task)
    >>> tree = task_tree(plan, {"reader": agent, "writer": agent})
    >>> tree.kind, len(tree.steps)
    ('loop', 2)
    >>> model = nn.ScriptedModel(["Three files.", "All is well."])
    >>> asyncio.run(nn.AgentHarness(nn.AgentConfig(name="a", step=tree), model=model).execute("Report!")).text
    'All is well.'
    """
    node = plan if isinstance(plan, PlanNode) else _plan(plan)
    kept = constraints if isinstance(constraints, PlanConstraints) else PlanConstraints(**(constraints or {}))
    # The whole plan before any task starts: half of a rejected plan would already have had effects.
    _check(node, agents, kept)
    return _compiled(node, agents, merge, concurrency)


def _plan(given: Any) -> PlanNode:
    if not isinstance(given, Mapping):
        raise NoeticConfigError("INVALID_PLAN", "A plan is a mapping.", given=given, hint="See PlanNode.")
    return PlanNode(**given)


def _nodes(node: PlanNode, depth: int = 0) -> Iterator[tuple[PlanNode, int]]:
    yield node, depth
    for child in node.children:
        yield from _nodes(child, depth + 1)


def _check(plan: PlanNode, agents: Agents, constraints: PlanConstraints) -> None:
    nodes = list(_nodes(plan))
    tasks = [node for node, _ in nodes if not node.children]
    seen: set[str] = set()
    allowed: Collection[str] = agents if constraints.assignees is None else constraints.assignees
    for node, depth in nodes:
        if node.id in seen or depth > MAX_PLAN_DEPTH:
            why = "has an id that another one has" if node.id in seen else f"is nested more than {MAX_PLAN_DEPTH} deep"
            hint = "Give every task an id of its own." if node.id in seen else "Put its tasks further up."
            raise NoeticConfigError("INVALID_PLAN", f"Task {node.id!r} {why}.", given=node.id, hint=hint)
        seen.add(node.id)
        if node.children and node.assignee is not None:
            what = f"Group {node.id!r} has an assignee, who would have nothing to do."
            hint = "Make it a task of its own among its children."
            raise NoeticConfigError("INVALID_PLAN", what, given=node.id, hint=hint)
    for task in tasks:
        if task.assignee not in agents or task.assignee not in allowed:
            known = ", ".join(repr(name) for name in agents if name in allowed) or "nobody"
            what = f"Task {task.id!r} is for someone who may not do it."
            raise NoeticConfigError("UNKNOWN_ASSIGNEE", what, given=task.assignee, hint=f"It may be given to {known}.")
    if constraints.max_tasks is not None and len(tasks) > constraints.max_tasks:
        what = f"The plan has more than {constraints.max_tasks} tasks."
        raise NoeticConfigError("INVALID_PLAN", what, given=len(tasks), hint="Plan less.")
    wrong = None if constraints.validate_plan is None else constraints.validate_plan(plan)
    if wrong:
        hint = "See `validate_plan`."
        raise NoeticConfigError("INVALID_PLAN", f"The plan was refused: {wrong}", given=plan.id, hint=hint)


def _compiled(node: PlanNode, agents: Agents, merge: Any, concurrency: int | None) -> Step:
    if not node.children:
        assert node.assignee is not None
        return agents[node.assignee](node.description)
    steps = [_compiled(child, agents, merge, concurrency) for child in node.children]
    if node.execution == "parallel":
        return fork(node.id, mode="all", paths=steps, merge=merge, concurrency=concurrency)
    return loop(node.id, steps, until=until.max_steps(1), needs_output=False)


def adaptive_plan(
    *,
    planner: Step,
    agents: Agents,
    max_revisions: int = 3,
    constraints: PlanConstraints | Mapping[str, Any] | None = None,
    merge: Callable[..., Any] | Literal["first", "last", "concat"] = "last",
) -> RunStep:
    """Plan, run, and plan again with the errors so far.

    Parameters
    ----------
    planner : step
        Step from the task to a plan: a mapping, or its JSON text.
    agents, constraints, merge
        As for `task_tree`. A plan that violates a constraint is an error at once: retrying does not fix a planner.
    max_revisions : int
        Maximum number of plans; the last failure is raised.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> from noetic_nb.steps import adaptive_plan
    >>> plans = iter(["flaky", "solid"])
    >>> def plan(task, ctx):
    ...     return {"id": "p", "assignee": next(plans), "description": "go"}
    >>> def flaky(value, ctx):
    ...     raise ValueError("out of order")
    >>> agents = {"flaky": lambda task: nn.step.run("flaky", flaky),
    ...           "solid": lambda task: nn.step.run("solid", lambda value, ctx: "done")}
    >>> agent = adaptive_plan(planner=nn.step.run("plan", plan), agents=agents)
    >>> asyncio.run(nn.AgentHarness(nn.AgentConfig(name="a", step=agent)).execute("Do it")).text
    'done'
    """
    # A bool is an int in Python.
    if isinstance(max_revisions, bool) or not isinstance(max_revisions, int) or max_revisions < 1:
        hint = "max_revisions >= 1."
        raise NoeticConfigError("INVALID_STEP", "Try at least one plan.", given=max_revisions, hint=hint)

    async def execute(task: Any, ctx: Any) -> Any:
        prompt: Any = task
        for attempt in range(max_revisions):
            # Outside the `try`, like `task_tree`: a plan that is unreadable or rejected is not planned again.
            made = _read_plan(await ctx.run(planner, prompt))
            tree = task_tree(made, agents, constraints=constraints, merge=merge)
            try:
                return await ctx.run(tree, task)
            except NoeticError as exc:
                # Another plan cannot help if the run was stopped or its money is spent.
                if exc.kind in ("cancelled", "budget_exceeded") or attempt + 1 == max_revisions:
                    raise
                prompt = f"{task}\n\nThe last plan failed: {exc}\nMake another one."
        raise AssertionError("try at least one plan")

    return step.run("adaptive-plan", execute)


def _read_plan(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as exc:
        hint = "See PlanNode."
        raise NoeticConfigError("INVALID_PLAN", f"The plan is no JSON: {exc}", given=given, hint=hint) from exc
