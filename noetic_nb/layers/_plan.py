"""Plan memory: plan before acting; while a plan is being made, only read-only tools may be called."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticConfigError
from noetic_nb.layers._helpers.collaborators import as_names, check_function
from noetic_nb.layers._helpers.considered import cut_block, tagged
from noetic_nb.layers._helpers.schemas import Arguments, StoredState, copy_to_child, init_hook, model_function
from noetic_nb.layers.handles import PlanHandle
from noetic_nb.memory import (
    BudgetConfig,
    MemoryHooks,
    MemoryLayer,
    MemoryScope,
    SteeringAction,
    SteeringDecision,
    layer_data,
    params,
)
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.sync import awaited

# Deeper or longer parts belong in a named workflow, so that a plan stays readable in a prompt.
MAX_DEPTH: Final = 5
MAX_CHARS: Final = 20_000
_SLUG: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SLUG_CHARS: Final = 64


class PlanProblem(ValueError):
    """A plan cannot be stored; the message tells the model why."""


def slug_problem(name: str) -> str | None:
    if len(name) <= _SLUG_CHARS and _SLUG.fullmatch(name):
        return None
    return (
        f"{name!r} is not a name: use lowercase letters and digits joined by hyphens, at most {_SLUG_CHARS} characters."
    )


def read_document(document: Any, *, limit_chars: bool = True) -> dict[str, Any]:
    """Return a validated document from an object or JSON text; raises `PlanProblem` if it could not be loaded."""
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as exc:
            raise PlanProblem(f"The document is not JSON: {exc}.") from exc
    if not isinstance(document, Mapping):
        raise PlanProblem(f"A document must be an object with version and root, not {type(document).__name__}.")
    # A bare node is accepted as well, because models often omit the enclosing object.
    if "root" not in document and "kind" in document:
        document = {"version": 1, "root": document}
    try:
        # A JSON round trip, so that the stored document is plain data and independent of the arguments.
        text = json.dumps({"version": 1, **document}, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise PlanProblem(f"The document is not JSON: {exc}.") from exc
    if limit_chars and len(text) > MAX_CHARS:
        raise PlanProblem(f"The document has {len(text)} characters; at most {MAX_CHARS} are kept.")
    found: dict[str, Any] = json.loads(text)
    # Imported with the first plan, because most agents make none.
    from noetic_nb.steps._json.workflow import check_workflow, workflow_depth

    try:
        check_workflow(found)
    except NoeticConfigError as exc:
        raise PlanProblem(str(exc).removeprefix(f"[{exc.code}] ")) from exc
    if workflow_depth(found["root"]) > MAX_DEPTH:
        raise PlanProblem(f"It is nested more than {MAX_DEPTH} deep; use a named workflow and a subflow.")
    for name in references(found):
        if problem := slug_problem(name):
            raise PlanProblem(problem)
    return found


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    from noetic_nb.steps._json.workflow import child_nodes

    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(reversed(child_nodes(found)))


def references(document: Mapping[str, Any]) -> list[str]:
    """Return the names of workflows a checked document refers to, each once, in order."""
    return list(dict.fromkeys(str(node["ref"]) for node in _nodes(document["root"]) if node.get("ref") is not None))


def cycle_in(
    start: Mapping[str, Any], workflows: Mapping[str, Mapping[str, Any]], *, clear: set[str] | None = None
) -> list[str] | None:
    """Return names that refer to each other in a cycle, or None if there is none; names in `clear` lead to no cycle."""
    clear = set() if clear is None else clear

    def walk(document: Mapping[str, Any], path: list[str]) -> list[str] | None:
        for name in references(document):
            if name in path:
                return [*path[path.index(name) :], name]
            if name in workflows and name not in clear:
                found = walk(workflows[name], [*path, name])
                if found is not None:
                    return found
                clear.add(name)
        return None

    return walk(start, [])


def summary_of(name: str, document: Mapping[str, Any]) -> str:
    """Return one line about a workflow: its name, and the number and kinds of its nodes."""
    kinds = Counter(str(node["kind"]) for node in _nodes(document["root"]))
    count = kinds.total()
    counted = ", ".join(f"{kind} x{number}" for kind, number in sorted(kinds.items()))
    return f"- {name}: {count} node{'s' if count != 1 else ''} ({counted})"


Approve = Callable[[dict[str, Any]], "bool | str | Awaitable[bool | str]"]
"""Returns whether a plan may be executed: True, False, or the reason for a refusal."""

SLOT: Final = 240
DEFAULT_BUDGET: Final = {"min": 100, "max": 3000}
MAX_PRD_CHARS: Final = 50_000
MAX_WORKFLOWS: Final = 20
MAX_LOG: Final = 10
# The usual names of such tools; the effect of a tool cannot be determined from outside.
READ_ONLY_TOOLS: Final = frozenset({"read", "read_file", "list_files", "list", "glob", "grep", "search", "web_search"})


class _State(StoredState):
    phase: Literal["idle", "planning", "executing", "completed", "failed"]
    prd: str | None
    planTree: dict[str, Any] | None
    workflows: dict[str, dict[str, Any]]
    executionLog: list[dict[str, Any]]
    version: int


class _Enter(Arguments):
    goal: str | None = None
    """What the plan is for."""


class _Prd(Arguments):
    content: str
    """The whole requirements document, in Markdown."""


class _Tree(Arguments):
    document: dict[str, Any] | str
    """The plan as {"version": 1, "root": node}, or that as JSON text."""


class _Workflow(Arguments):
    name: str
    """Lowercase letters and digits joined by hyphens."""
    document: dict[str, Any] | str
    """The workflow as {"version": 1, "root": node}, or that as JSON text."""


class _Name(Arguments):
    name: str
    """Name of the workflow."""


class _Exit(Arguments):
    action: Literal["execute", "cancel"]
    """Carry the plan out, or drop it."""


_EMPTY: Final[dict[str, Any]] = {
    "phase": "idle",
    "prd": None,
    "planTree": None,
    "workflows": {},
    "executionLog": [],
    "version": 0,
}
_NOT_PLANNING: Final = "Not done: no plan is being made. Call enter_plan_mode first."
_HOW: Final = (
    "You are making a plan; nothing is carried out yet and tools that change something are refused. Write the requirements "
    "with update_prd, the plan with set_plan_tree and parts that are used more than once with set_workflow. When the plan "
    "stands, call exit_plan_mode with action execute, or cancel to drop it."
)


@built_in
@explained()
def plan_memory(
    *,
    id: str = "plan",
    scope: MemoryScope = "thread",
    additional_allowed_tools: Iterable[str] = (),
    approve: Approve | None = None,
    budget: BudgetConfig = None,
    slot: float = SLOT,
) -> MemoryLayer[PlanHandle]:
    """Make a layer in which the agent plans before it acts.

    Parameters
    ----------
    additional_allowed_tools : iterable of str
        Tools that may be called while planning, besides read-only ones and this layer's own.
    approve : callable, optional
        Called before a plan is executed: ``approve(state)`` returns True, False, or the reason of a refusal; maybe async.

    Returns
    -------
    MemoryLayer
        With functions ``enter_plan_mode``, ``update_prd``, ``set_plan_tree``, ``set_workflow``, ``remove_workflow``,
        ``get_workflow``, ``exit_plan_mode`` and data ``status``.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Plan memory".

    Examples
    --------
    >>> plan_memory().hooks.names()
    ('init', 'recall', 'on_spawn', 'on_complete', 'before_tool_call')
    """
    check_function(approve, "approve", "the state")
    allowed = READ_ONLY_TOOLS | set(as_names(additional_allowed_tools, "additional_allowed_tools"))

    def before_tool_call(p: params.BeforeToolCallParams) -> SteeringDecision | None:
        # Canonical names: the layer's own functions are `<id>/...`, even if a provider renames them.
        if (p.state or _EMPTY)["phase"] != "planning" or p.tool_name in allowed or p.tool_name.startswith(f"{id}/"):
            return None
        text = f"A plan is being made: {p.tool_name} may change something. Finish with {id}/exit_plan_mode first."
        return SteeringDecision(SteeringAction.DENY, text, (f"{id}:planning",))

    def exit_plan_mode(args: _Exit, state: Any, ctx: object) -> Awaitable[dict[str, Any]]:
        return _exit(args, state, approve)

    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        hooks=MemoryHooks(
            init=init_hook(_State, _EMPTY, layer_id=id),
            recall=_recall,
            before_tool_call=before_tool_call,
            on_spawn=copy_to_child,
            on_complete=_on_complete,
        ),
        provides={
            "status": layer_data(_status),
            "enter_plan_mode": model_function("Begin to make a plan before acting.", _Enter, _enter),
            "update_prd": model_function("Write the requirements document of the plan.", _Prd, _update_prd),
            "set_plan_tree": model_function("Set the plan itself.", _Tree, _set_plan_tree),
            "set_workflow": model_function("Add or replace a named part of the plan.", _Workflow, _set_workflow),
            "remove_workflow": model_function("Remove a named part of the plan.", _Name, _remove_workflow),
            "get_workflow": model_function("Read a named part of the plan.", _Name, _get_workflow),
            "exit_plan_mode": model_function("Carry the plan out, or drop it.", _Exit, exit_plan_mode),
        },
    )


def _recall(p: params.RecallParams) -> str | None:
    tag, text = _shown(p.state or _EMPTY)
    return cut_block(tag, text, p.budget, p.ctx.tokenize) if text else None


def _on_complete(p: params.CompleteParams) -> dict[str, Any] | None:
    # Making a plan may take several turns; only one that is being executed has an outcome.
    if (p.state or _EMPTY)["phase"] != "executing":
        return None
    phase = "completed" if p.outcome == "success" else "failed"
    entry = {"outcome": phase, "version": p.state["version"], "timestamp": p.ctx.clock.now_ms()}
    return {"state": {**p.state, "phase": phase, "executionLog": [*p.state["executionLog"], entry][-MAX_LOG:]}}


async def _exit(args: _Exit, state: Any, approve: Approve | None) -> dict[str, Any]:
    if (state or _EMPTY)["phase"] != "planning":
        return {"result": _NOT_PLANNING}
    if args.action == "cancel":
        return {"result": "The plan is dropped.", "state": copy.deepcopy(_EMPTY)}
    problem = _not_ready(state)
    if problem is None and approve is not None:
        # A copy, because the user's function may modify it.
        answer = await awaited(approve(copy.deepcopy(state)))
        # Only True approves: a text is the reason for a refusal.
        if answer is not True:
            reason = answer if isinstance(answer, str) and answer else "it was not approved"
            problem = f"Not done: {reason}. The plan can still be changed."
    if problem is not None:
        return {"result": problem}
    return {"result": "The plan is being carried out.", "state": {**state, "phase": "executing"}}


def _status(state: Any) -> dict[str, Any]:
    state = state or _EMPTY
    return {
        "phase": state["phase"],
        "hasPrd": bool(state["prd"]),
        "hasPlanTree": state["planTree"] is not None,
        "workflowNames": list(state["workflows"]),
        "version": state["version"],
    }


def _enter(args: _Enter, state: Any, ctx: object) -> dict[str, Any]:
    state = state or _EMPTY
    if state["phase"] in ("planning", "executing"):
        return {"result": f"Not done: a plan is {state['phase']} already."}
    # The version keeps counting, so that two plans of one thread are never confused.
    fresh = copy.deepcopy(_EMPTY) | {
        "phase": "planning",
        "prd": f"# {args.goal.strip()}\n" if args.goal and args.goal.strip() else None,
        "version": state["version"] + 1,
    }
    return {"result": _HOW, "state": fresh}


def _planning(state: Any) -> bool:
    return bool(state) and state["phase"] == "planning"


def _update_prd(args: _Prd, state: Any, ctx: object) -> dict[str, Any]:
    if not _planning(state):
        return {"result": _NOT_PLANNING}
    if len(args.content) > MAX_PRD_CHARS:
        return {"result": f"Not done: {len(args.content)} characters; at most {MAX_PRD_CHARS} are kept."}
    return {"result": "The requirements are kept.", "state": {**state, "prd": args.content}}


def _set_plan_tree(args: _Tree, state: Any, ctx: object) -> dict[str, Any]:
    if not _planning(state):
        return {"result": _NOT_PLANNING}
    try:
        document = read_document(args.document, limit_chars=False)
    except PlanProblem as exc:
        return {"result": f"Not done: {exc}"}
    # Allowed while planning, because a plan is usually written top-down.
    missing = [name for name in references(document) if name not in state["workflows"]]
    notice = f" Still to be written: {', '.join(missing)}." if missing else ""
    return {"result": f"The plan is kept.{notice}", "state": {**state, "planTree": document}}


def _set_workflow(args: _Workflow, state: Any, ctx: object) -> dict[str, Any]:
    if not _planning(state):
        return {"result": _NOT_PLANNING}
    workflows = state["workflows"]
    problem = slug_problem(args.name)
    if problem is None and args.name not in workflows and len(workflows) >= MAX_WORKFLOWS:
        # Replacing one is always possible, or a full plan could not be corrected.
        problem = f"there are {MAX_WORKFLOWS} workflows already; remove one first."
    try:
        document = read_document(args.document)
    except PlanProblem as exc:
        problem = problem or str(exc)
    if problem is not None:
        return {"result": f"Not done: {problem}"}
    return {"result": f"{args.name} is kept.", "state": {**state, "workflows": {**workflows, args.name: document}}}


def _remove_workflow(args: _Name, state: Any, ctx: object) -> dict[str, Any]:
    if not _planning(state):
        return {"result": _NOT_PLANNING}
    if args.name not in state["workflows"]:
        return {"result": _unknown(args.name, state)}
    left = {name: document for name, document in state["workflows"].items() if name != args.name}
    return {"result": f"{args.name} is removed.", "state": {**state, "workflows": left}}


def _get_workflow(args: _Name, state: Any, ctx: object) -> dict[str, Any]:
    state = state or _EMPTY
    if args.name not in state["workflows"]:
        return {"result": _unknown(args.name, state)}
    return {"result": json.dumps(state["workflows"][args.name], ensure_ascii=False)}


def _unknown(name: str, state: dict[str, Any]) -> str:
    return f"There is no workflow {name!r}. Known: {', '.join(state['workflows']) or 'none'}."


def _not_ready(state: dict[str, Any]) -> str | None:
    """Return why a plan cannot be executed yet, or None if it can."""
    if not state["prd"]:
        return "Not done: the requirements are missing; write them with update_prd."
    if state["planTree"] is None:
        return "Not done: the plan is missing; write it with set_plan_tree."
    workflows = state["workflows"]
    documents = (state["planTree"], *workflows.values())
    missing = {name for document in documents for name in references(document)} - set(workflows)
    if missing:
        return f"Not done: the plan refers to workflows that do not exist: {', '.join(sorted(missing))}."
    clear: set[str] = set()
    for document in documents:
        circle = cycle_in(document, workflows, clear=clear)
        if circle is not None:
            return f"Not done: workflows refer to each other in a circle: {' -> '.join(circle)}."
    return None


def _shown(state: dict[str, Any]) -> tuple[str, str]:
    """Return the tag and text that show a plan to the model; no text when idle."""
    phase = state["phase"]
    if phase == "idle":
        return "", ""
    if phase in ("completed", "failed"):
        return "plan_outcome", f"Plan v{state['version']} {phase}."
    parts = [_HOW] if phase == "planning" else []
    if state["prd"]:
        parts.append(tagged("prd", state["prd"].strip()))
    if state["planTree"] is not None:
        parts.append(tagged("plan_tree", json.dumps(state["planTree"], ensure_ascii=False)))
    if state["workflows"]:
        lines = [summary_of(name, document) for name, document in state["workflows"].items()]
        parts.append(tagged("workflows", "\n".join(lines)))
    return ("plan_mode" if phase == "planning" else "active_plan"), "\n".join(parts)
