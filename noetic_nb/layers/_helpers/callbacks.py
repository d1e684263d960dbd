"""Call a model by name on behalf of a layer."""

from __future__ import annotations

from collections.abc import Sequence

from noetic_nb.errors import NoeticError
from noetic_nb.items import Item, assistant_text
from noetic_nb.memory import ExecutionContext
from noetic_nb.memory._execution_context import HookModelRequest, as_response

__all__ = ["model_text"]


async def model_text(
    ctx: ExecutionContext, model: str, items: Sequence[Item], *, purpose: str, instructions: str | None = None
) -> str:
    """Call a model on behalf of a layer and return its text; `purpose` is a verb for the error, such as ``"summarise"``.

    Raises `NoeticError` ``llm_failed`` where the execution has no model to call.
    """
    if ctx.call_model is None:
        raise NoeticError("llm_failed", f"No model {model!r} to {purpose} with", hint="Pass a function instead.")
    response = as_response(await ctx.call_model(HookModelRequest(model, tuple(items), instructions)))
    return assistant_text(response.items)
