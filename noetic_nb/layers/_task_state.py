"""Durable task state: the progress of a long task, the files it made, and data to find again later."""

from __future__ import annotations

import copy
import json
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from noetic_nb._core.arguments import explained
from noetic_nb.layers._helpers import schemas
from noetic_nb.layers._helpers.considered import cut_block, tagged
from noetic_nb.layers.handles import TaskStateHandle
from noetic_nb.memory import BudgetConfig, MemoryHooks, MemoryLayer, MemoryScope, layer_data, params
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.tokens import Tokenizer

SLOT: Final = 110
DEFAULT_BUDGET: Final = {"min": 100, "max": 800}
MAX_CHECKPOINTS: Final = 50
TAG: Final = "task_state"
OUTCOME_KEY: Final = "__outcome"


class _Checkpoint(schemas.StoredState):
    timestamp: float
    depth: int


class _State(schemas.StoredState):
    checkpoints: list[_Checkpoint]
    files: list[str]
    data: dict[str, Any]


# Neither empty nor blank, because an entry is found by its name.
_Name: TypeAlias = Annotated[str, Field(min_length=1, pattern=r"\S")]


class _Artifact(schemas.Arguments):
    path: _Name
    """Path of a file this task made or changed."""


class _Entry(schemas.Arguments):
    key: _Name
    value: Any
    """JSON data."""


_EMPTY: Final[dict[str, Any]] = {"checkpoints": [], "files": [], "data": {}}


@built_in
@explained()
def durable_task_state(
    *,
    merge_data: Literal["shallow", "namespace"] = "shallow",
    id: str = "durable-task-state",
    scope: MemoryScope = "thread",
    budget: BudgetConfig = None,
    slot: float = SLOT,
) -> MemoryLayer[TaskStateHandle]:
    """Make a layer that keeps the state of a task across turns, crashes and child executions.

    Parameters
    ----------
    merge_data : {"shallow", "namespace"}
        Whether a child's data overwrites the parent's key by key, or is stored under the child's execution id.
    budget : optional
        Tokens; 100 to 800 by default. If the state is larger, the oldest checkpoints are omitted first.

    Returns
    -------
    MemoryLayer
        With functions ``record_artifact`` and ``set_task_data`` and data ``files`` and ``task_data``.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Durable task state".

    Examples
    --------
    >>> sorted(durable_task_state().provides)
    ['files', 'record_artifact', 'set_task_data', 'task_data']
    """
    if merge_data not in ("shallow", "namespace"):
        raise schemas.option_error("There is no merge mode of this name.", merge_data, "Use 'shallow' or 'namespace'.")

    def on_return(p: params.ReturnParams) -> dict[str, Any]:
        return {"parent_state": _merged(p, merge_data)}

    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        hooks=MemoryHooks(
            init=schemas.init_hook(_State, _EMPTY, layer_id=id),
            recall=_recall,
            store=_store,
            on_spawn=schemas.copy_to_child,
            on_return=on_return,
            on_complete=_on_complete,
        ),
        provides={
            "files": layer_data(lambda state: tuple((state or _EMPTY)["files"])),
            "task_data": layer_data(lambda state: copy.deepcopy((state or _EMPTY)["data"])),
            "record_artifact": schemas.model_function(
                "Note a file that this task made or changed.", _Artifact, _record_artifact
            ),
            "set_task_data": schemas.model_function(
                "Keep a value for later steps of this task.", _Entry, _set_task_data
            ),
        },
    )


def _recall(p: params.RecallParams) -> str | None:
    # An empty record would only cost tokens.
    return None if not p.state or p.state == _EMPTY else _shown(p.state, p.budget, p.ctx.tokenize)


def _store(p: params.StoreParams) -> dict[str, Any]:
    return {"state": _with_checkpoint(p.state, p.ctx.clock.now_ms(), p.ctx.depth)}


def _on_complete(p: params.CompleteParams) -> dict[str, Any]:
    state = _with_checkpoint(p.state, p.ctx.clock.now_ms(), p.ctx.depth)
    return {"state": {**state, "data": {**state["data"], OUTCOME_KEY: p.outcome}}}


def _merged(p: params.ReturnParams, merge_data: str) -> dict[str, Any]:
    """Return the parent's state with the additions of a child to its own."""
    parent, child = p.parent_state or _EMPTY, p.child_state
    data = child["data"] if merge_data == "shallow" else {p.child_ctx.execution_id: child["data"]}
    # The child returns inherited entries as well; only new ones count.
    fresh = [point for point in child["checkpoints"] if point not in parent["checkpoints"]]
    return {
        "checkpoints": [*parent["checkpoints"], *fresh][-MAX_CHECKPOINTS:],
        "files": list(dict.fromkeys([*parent["files"], *child["files"]])),
        "data": {**parent["data"], **copy.deepcopy(data)},
    }


def _with_checkpoint(state: Any, now_ms: float, depth: int) -> dict[str, Any]:
    state = state or _EMPTY
    points = [*state["checkpoints"], {"timestamp": now_ms, "depth": depth}]
    return {**state, "checkpoints": points[-MAX_CHECKPOINTS:]}


def _record_artifact(args: _Artifact, state: Any, ctx: object) -> dict[str, Any]:
    state = state or _EMPTY
    if args.path in state["files"]:
        return {"result": f"{args.path} was noted before."}
    return {"result": f"{args.path} is noted.", "state": {**state, "files": [*state["files"], args.path]}}


def _set_task_data(args: _Entry, state: Any, ctx: object) -> dict[str, Any]:
    # The layer sets this key when the execution ends, which would overwrite the model's value.
    if args.key == OUTCOME_KEY:
        return {"result": f"The key {OUTCOME_KEY} is reserved; choose another."}
    state = state or _EMPTY
    return {"result": f"{args.key} is kept.", "state": {**state, "data": {**state["data"], args.key: args.value}}}


def _shown(state: dict[str, Any], budget: float, tokenize: Tokenizer) -> str | None:
    """Return the state as indented JSON, without its oldest checkpoints if it is too large."""
    points = state["checkpoints"]
    while True:
        text = json.dumps({**state, "checkpoints": points}, indent=2, ensure_ascii=False)
        whole = tagged(TAG, text)
        if tokenize(whole) <= budget:
            return whole
        if not points:
            return cut_block(TAG, text, budget, tokenize)
        # Halved each time, because each attempt formats the whole state.
        points = points[len(points) // 2 + 1 :] if len(points) > 1 else []
