"""Data and functions of layers in code: ``ctx.memory["notes"].snapshot`` and ``await ctx.memory["notes"].update(...)``.

The layer itself can replace its id, ``ctx.memory[notes]``, which lets type checkers and editors see its members.

A function called here follows the same path as a call by the model: its arguments are checked, the rules decide, the
call is recorded, and only one call at a time changes a layer's state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.memory import MemoryLayer
from noetic_nb.memory._declared import TypedMemory, id_of
from noetic_nb.memory._layer_functions import LayerData, LayerFunction
from noetic_nb.memory._steering_decision import denied
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.step_errors import TurnStopped
from noetic_nb.runtime._context.step_setup import function_tool
from noetic_nb.runtime._execution.tool_call import call_tool


class LayerHandle:
    """One layer within one execution. Data are attributes, functions are async methods; other names raise `AttributeError`."""

    def __init__(self, engine: Engine, ctx: RunningExecution, layer: MemoryLayer) -> None:
        self._engine, self._ctx, self._layer = engine, ctx, layer

    def __getattr__(self, name: str) -> Any:
        declared = (self._layer.provides or {}).get(name)
        if isinstance(declared, LayerData):
            return declared.read(self._engine.stack.state.get(self._ctx.id, self._layer.id))
        if isinstance(declared, LayerFunction):
            return self._function(name, declared)
        raise AttributeError(f"Layer {self._layer.id!r} provides no {name!r}; it provides {dir(self) or 'nothing'}.")

    def _function(self, name: str, declared: LayerFunction) -> Callable[..., Awaitable[Any]]:
        engine, ctx = self._engine, self._ctx
        tool = function_tool(self._layer, name, declared, engine.stack, engine.hook_context)

        async def call(value: Any = None, /, **args: Any) -> Any:
            """Call the layer's function with one value or with named arguments.

            Raises `NoeticError` ``steering_denied``, or ``tool_failed``, also for arguments or results that do not fit.
            """
            end = await call_tool(
                engine,
                ctx,
                engine.hook_context(ctx),
                tool,
                name=tool.name,
                arguments=args if value is None else value,
                call_id=engine.ids.new("call"),
            )
            if end.status == "ok":
                return end.value
            # The model reads these as text; code gets them as errors.
            if end.decision is not None:
                raise denied(end.decision, f"The call of {tool.name!r} was denied.", tool_name=tool.name)
            if isinstance(end.error, NoeticError | NoeticConfigError | TurnStopped):
                raise end.error
            what = f"{tool.name!r} failed: {end.output.removeprefix('Error: ')}"
            raise NoeticError("tool_failed", what, tool_name=tool.name) from end.error

        return call

    def __dir__(self) -> list[str]:
        return sorted(self._layer.provides or ())

    def __repr__(self) -> str:
        return f"LayerHandle({self._layer.id!r}, {', '.join(dir(self)) or 'nothing provided'})"


class ContextMemory(TypedMemory):
    """The layers of an execution, by layer or by id."""

    def __init__(self, engine: Engine, ctx: RunningExecution) -> None:
        self._engine, self._ctx = engine, ctx

    def __getitem__(self, wanted: Any, /) -> Any:
        layer_id = id_of(wanted)
        for layer in self._engine.stack.layers:
            if layer.id == layer_id:
                return LayerHandle(self._engine, self._ctx, layer)
        known = ", ".join(repr(layer.id) for layer in self._engine.stack.layers) or "none"
        hint = f"It has {known}."
        raise NoeticConfigError("UNKNOWN_LAYER_REFERENCE", "The agent has no such layer.", given=layer_id, hint=hint)

    def __iter__(self) -> Iterator[str]:
        return iter([layer.id for layer in self._engine.stack.layers])

    def __len__(self) -> int:
        return len(self._engine.stack.layers)

    def __repr__(self) -> str:
        return f"ContextMemory({', '.join(self)})"
