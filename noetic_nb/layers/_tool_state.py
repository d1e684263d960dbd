"""Tool memory: state that tools with one id share within an execution, and that the model sees."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb.layers._helpers.collaborators import check_function
from noetic_nb.layers._helpers.schemas import Arguments
from noetic_nb.layers.handles import ToolStateHandle
from noetic_nb.memory import BudgetConfig, MemoryHooks, MemoryLayer, MemoryScope, layer_data, layer_fn, params
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.sync import awaited

SLOT: Final = 110
# Stored for a state that was set to None; without it the next execution would begin with `initial` again.
NOTHING: Final = {"__none__": True}


class _Set(Arguments):
    value: Any
    """The new state, JSON data where it outlives the execution."""


@built_in
@explained(id="Name the state: tool_memory('cart').")
def tool_memory(
    id: str,
    *,
    initial: Any | Callable[[], Any | Awaitable[Any]] = None,
    show: Callable[[Any], str | None] | None = None,
    scope: MemoryScope = "execution",
    budget: BudgetConfig = "auto",
    slot: float = SLOT,
) -> MemoryLayer[ToolStateHandle]:
    """Make the layer whose state tools access by ``ctx.memory[id]``.

    Parameters
    ----------
    id : str
        Tools that name the same id share the state.
    initial : object or callable, optional
        The initial state, or a function that makes it, sync or async.
    show : callable, optional
        Makes the text for the model from the state; None shows nothing.
    scope : {"execution", "thread", "resource", "global"}
        How long the state lives.

    Returns
    -------
    MemoryLayer
        With data ``value`` and, for code only, function ``set``.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Tool memory".

    Examples
    --------
    A tool writes ``await ctx.memory["cart"].set(value={"items": [...]})`` and reads ``ctx.memory["cart"].value``.

    >>> tool_memory("cart", initial={"items": []}).scope
    'execution'
    """
    check_function(show, "show", "the state")

    async def init(p: params.InitParams) -> dict[str, Any]:
        # State of an execution is never written, so a lookup would only cost a read.
        stored = None if scope == "execution" else await p.storage.get("state")
        if stored is not None:
            return {"state": stored}
        # A copy, so that no execution sees the changes of another.
        first = initial() if callable(initial) else copy.deepcopy(initial)
        return {"state": await awaited(first)}

    def recall(p: params.RecallParams) -> str | None:
        value = _value(p.state)
        return None if show is None or value is None else show(value)

    def set_value(args: _Set, state: Any, ctx: object) -> dict[str, Any]:
        keeps_nothing = args.value is None and scope != "execution" and initial is not None
        return {"state": dict(NOTHING) if keeps_nothing else args.value}

    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=budget,
        hooks=MemoryHooks(init=init, recall=recall),
        provides={
            "value": layer_data(lambda state: copy.deepcopy(_value(state))),
            "set": layer_fn(
                description="Replace the state.",
                input=_Set,
                output=None,
                execute=set_value,
                # The state belongs to the tools; a model that wrote it could invalidate it.
                for_model=False,
            ),
        },
    )


def _value(state: Any) -> Any:
    return None if state == NOTHING else state
