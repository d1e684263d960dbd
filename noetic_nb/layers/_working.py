"""Working memory: a short record about the conversation that the agent writes itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel, ValidationError

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import Item
from noetic_nb.layers._helpers.collaborators import check_switch
from noetic_nb.layers._helpers.considered import cut_block
from noetic_nb.layers._helpers.schemas import model_function, option_error
from noetic_nb.layers.handles import WorkingMemoryHandle
from noetic_nb.memory import BudgetConfig, MemoryHooks, MemoryLayer, MemoryScope, Slot, layer_data, params
from noetic_nb.memory._layer_functions import built_in, type_adapter

DEFAULT_BUDGET: Final = {"min": 200, "max": 1500}
MAX_MERGE_DEPTH: Final = 32
REJECTED_KEY: Final = "rejected"  # the key for notes that no longer fit the schema
# A function name from earlier prompts: still understood, no longer offered.
LEGACY_CALL: Final = "updateWorkingMemory"
# Keys that would reach into objects of other languages when a state is shared.
FORBIDDEN_KEYS: Final = frozenset({"__proto__", "constructor"})


Check: TypeAlias = Callable[[Any], object]  # raises `ValueError` for invalid notes


@runtime_checkable
class Schema(Protocol):
    """A validator of values that is not a type."""

    def check(self, value: Any) -> object:
        """Return a valid value; raises `ValueError` otherwise."""
        ...


def deep_merge(old: Mapping[str, Any], new: Mapping[str, Any], *, depth: int = 0) -> dict[str, Any]:
    """Merge two records: objects are merged, lists and scalars replaced; raises ``tool_failed`` below 32 levels."""
    if depth > MAX_MERGE_DEPTH:
        raise NoeticError(
            "tool_failed", f"working memory is nested more than {MAX_MERGE_DEPTH} deep", hint="Keep it flat."
        )
    merged = dict(old)
    for key, value in new.items():
        if key in FORBIDDEN_KEYS:
            continue
        before = merged.get(key)
        if isinstance(value, Mapping):
            # Merged into an empty record rather than copied, so that forbidden keys and depth are checked at every
            # level.
            merged[key] = deep_merge(before if isinstance(before, Mapping) else {}, value, depth=depth + 1)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


@built_in
@explained()
def working_memory(
    *,
    id: str = "working-memory",
    scope: MemoryScope = "thread",
    schema: type[BaseModel] | Schema | None = None,
    read_only: bool = False,
    initial: str | Mapping[str, Any] | None = None,
    budget: BudgetConfig = None,
    slot: float = Slot.WORKING_MEMORY,
) -> MemoryLayer[WorkingMemoryHandle]:
    """Make a layer in which the agent keeps notes, by calling ``<id>/update``.

    Parameters
    ----------
    scope : {"thread", "resource", "execution", "global"}
        How long the notes live.
    schema : pydantic model or object with ``check``, optional
        The form of the notes after every update; an invalid update changes nothing. ``check(notes)`` raises
        `ValueError`, as that of `noetic_nb.steps._schema.OutputSchema` does.
    read_only : bool, default False
        Show the notes without letting the agent change them.
    initial : str or mapping, optional
        The initial notes.
    budget : optional
        Tokens; 200 to 1 500 by default.

    Returns
    -------
    MemoryLayer
        With data ``snapshot`` and, unless read-only, function ``update``.

    Examples
    --------
    >>> working_memory().id
    'working-memory'
    """
    if isinstance(schema, Mapping):
        raise option_error(
            "`schema` must be a type, not a JSON Schema.",
            schema,
            "Write class Notes(BaseModel): ..., and schema=Notes.",
        )
    check_switch(read_only=read_only)
    check: Check | None = None
    if schema is not None:
        check = (
            schema.check if isinstance(schema, Schema) else type_adapter(schema, "INVALID_LAYER_OPTION").validate_python
        )
    first: Any = initial if initial is not None else ("" if check is None else {})
    if check is not None and isinstance(first, str):
        raise NoeticConfigError("INVALID_LAYER_OPTION", "Notes with a schema must be an object.", given=initial)

    async def init(p: params.InitParams) -> dict[str, Any]:
        stored = await p.storage.get("state")
        # A copy, because every new execution receives this object.
        if stored is None:
            return {"state": copy.deepcopy(first)}
        if not _fits(stored, check):
            # Never silently emptied: the old notes stay in storage under another key, and the diagnostic reports it.
            await p.storage.set(REJECTED_KEY, stored)
            p.ctx.diagnostic(id, "init", _rejected(id, stored, p.storage.prefix))
            return {"state": {}}
        return {"state": stored}

    def recall(p: params.RecallParams) -> str | None:
        if not p.state:
            return None
        text = p.state if isinstance(p.state, str) else json.dumps(p.state, indent=2, ensure_ascii=False)
        return cut_block("working_memory", text, p.budget, p.ctx.tokenize)

    def on_spawn(p: params.SpawnParams) -> dict[str, Any] | None:
        return {"child_state": copy.deepcopy(p.parent_state)} if scope == "resource" else None

    def update(args: dict[str, Any], state: Any, ctx: object) -> dict[str, Any]:
        return {"result": None, "state": _updated(args, state, check)}

    def store(p: params.StoreParams) -> dict[str, Any] | None:
        args = None if read_only else _legacy_update(p.new_items)
        return None if args is None else {"state": _updated(args, p.state, check)}

    provides: dict[str, Any] = {"snapshot": layer_data(copy.deepcopy)}
    if not read_only:
        provides["update"] = model_function(
            "Update the working memory. Pass only what changes: objects are merged, lists and values replaced.",
            dict[str, Any],
            update,
            None,
        )
    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        hooks=MemoryHooks(init=init, recall=recall, store=store, on_spawn=on_spawn),
        provides=provides,
    )


def _updated(args: Mapping[str, Any], state: Any, check: Check | None) -> dict[str, Any]:
    """Return the notes with an update merged in; raises ``tool_failed`` if they would not fit the schema."""
    # Text cannot be merged with an object, and must not be lost.
    if isinstance(state, str):
        state = {"_previous": state} if state else {}
    merged = deep_merge(state or {}, args)
    if check is not None:
        try:
            check(merged)
        except ValueError as exc:
            raise NoeticError(
                "tool_failed",
                f"the notes would no longer fit their schema: {_problem(exc)}",
                given=args,
                reason="invalid",
            ) from exc
    return merged


def _legacy_update(items: Iterable[Item]) -> dict[str, Any] | None:
    """Return the arguments of the first call of the legacy function that passes an object."""
    for item in items:
        if item["type"] == "function_call" and item.get("name") == LEGACY_CALL:
            try:
                args = json.loads(item.get("arguments") or "")
            except ValueError:
                continue
            if isinstance(args, dict):
                return args
    return None


def _fits(stored: Any, check: Check | None) -> bool:
    """Tell whether stored notes fit the schema; raises ``storage_failed`` if they are neither text nor an object."""
    if not isinstance(stored, str | dict):
        raise NoeticError(
            "storage_failed",
            f"Stored working memory must be text or an object, not {type(stored).__name__}",
            given=stored,
            hint="Delete the key; nothing was changed.",
        )
    if check is None:
        return True
    try:
        check(stored)
    except ValueError:
        return False
    return True


def _problem(error: ValueError) -> str:
    """Return where notes are invalid, and why."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _rejected(layer_id: str, stored: Any, prefix: str) -> NoeticError:
    return NoeticError(
        "storage_failed",
        f"The stored notes of layer {layer_id!r} do not fit its schema; it starts with empty notes",
        given=stored,
        hint=f"The old notes are stored under {prefix + REJECTED_KEY!r}.",
        layer_id=layer_id,
    )
