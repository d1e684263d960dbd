"""Functions that layers provide, as tools: checked both ways, and one at a time for each layer of an execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from pydantic import RootModel, TypeAdapter, ValidationError

from noetic_nb.errors import NoeticError
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryLayer
from noetic_nb.memory._hooks.hook_results import UNSET, field_of, misnamed
from noetic_nb.memory._layer_functions import LayerFunction
from noetic_nb.models._client import ToolSpec
from noetic_nb.runtime._context.protocols import Execution
from noetic_nb.steps import Tool
from noetic_nb.steps._tools import spec_tokens
from noetic_nb.sync import awaited

HookContextOf: TypeAlias = Callable[[Execution], ExecutionContext]

# By what checks the arguments, which is made once for a function and never changes; kept as long as that. To work a schema out
# takes longer than all else of a tool, which is made for every harness and for every call from code.
_SCHEMAS: Final[WeakKeyDictionary[TypeAdapter[Any], dict[str, Any]]] = WeakKeyDictionary()


def provided_tools(
    layers: Iterable[MemoryLayer], *, stack: LayerStack, hook_context: HookContextOf
) -> tuple[Tool, ...]:
    """Return a tool for every function the layers provide for the model, named ``<layer id>/<function>``."""
    return tuple(
        [
            function_tool(layer, name, declared, stack, hook_context)
            for layer in layers
            for name, declared in (layer.provides or {}).items()
            if isinstance(declared, LayerFunction) and declared.for_model
        ]
    )


def function_tool(
    layer: MemoryLayer,
    name: str,
    declared: LayerFunction,
    stack: LayerStack,
    hook_context: HookContextOf,
) -> Tool:
    """Return one function of a layer as a tool.

    The function is given a copy of the state, and what it returns counts only once its result has been checked: a call
    that fails changes nothing.
    """

    # Any: what a layer's function takes and returns is the layer's own.
    async def execute(*, root: Any, ctx: Execution) -> Any:
        if not stack.runs(layer, ctx.id):
            raise NoeticError(
                "tool_failed",
                f"The layer {layer.id!r} does not take part in this execution",
                hint="Look at why its `init` failed.",
                tool_name=full_name,
            )
        lock = ctx.lock(layer.id)
        async with lock:  # read, change, write: two calls at once would lose one change
            state = stack.state.copy_of(ctx.id, layer.id, name)
            value = await awaited(declared.execute(root, state, hook_context(ctx)))
            if (warning := misnamed(value, "function", f"The function {full_name!r}")) is not None:
                stack.state.report(ctx.id, layer.id, name, warning)
            result = field_of(value, "result", hook=name)
            state = field_of(value, "state", hook=name)
            checked = _checked(declared, None if result is UNSET else result, full_name)
            if state is not UNSET:
                stack.state.set(ctx.id, layer.id, state, hook=name)
            return checked

    full_name = f"{layer.id}/{name}"
    # Any: a class that is made at run time has no name for a type checker.
    root_model: Any = RootModel[declared.input_type]  # type: ignore[name-defined]
    spec = ToolSpec(full_name, declared.description, _schema(declared.input))
    return Tool(
        name=full_name,
        description=declared.description,
        input=root_model,
        output=declared.output,
        execute=execute,
        wants_context=True,
        spec=spec,
        tokens=spec_tokens(spec),
    )


def _schema(checked: TypeAdapter[Any]) -> dict[str, Any]:
    """Return the JSON Schema of arguments; of its own for each tool, so that a client that changes one changes no other."""
    known = _SCHEMAS.get(checked)
    if known is None:
        known = _SCHEMAS[checked] = checked.json_schema()
    return deepcopy(known)


def _checked(declared: LayerFunction, result: object, name: str) -> Any:
    """Check a result before the state that goes with it is written."""
    try:
        return declared.output.validate_python(result)
    except ValidationError as exc:
        raise NoeticError(
            "tool_failed",
            f"the result of {name!r} does not fit its annotation: {exc.errors()[0]['msg']}",
            given=result,
            reason="invalid_result",
            tool_name=name,
        ) from exc
