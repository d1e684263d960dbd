"""Static content: a text that the agent always sees, such as a policy or a persona."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticConfigError
from noetic_nb.layers._helpers.collaborators import check_function
from noetic_nb.layers._helpers.considered import cut_block
from noetic_nb.layers.handles import NothingProvided
from noetic_nb.memory import BudgetConfig, InitParams, MemoryHooks, MemoryLayer, MemoryScope, RecallParams
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.sync import awaited

SLOT: Final = 105  # between working memory and durable task state


@built_in
@explained(content="Pass the text: static_content('Be kind.').")
def static_content(
    content: str | Callable[[], str | Awaitable[str]],
    *,
    id: str = "static-content",
    tag: str = "instructions",
    scope: MemoryScope = "resource",
    budget: BudgetConfig = "auto",
    slot: float = SLOT,
) -> MemoryLayer[NothingProvided]:
    """Make a layer that shows a text.

    Parameters
    ----------
    content : str or callable
        The text, or a function that loads it once per execution, sync or async.
    tag : str
        Name of the block around it.
    budget : optional
        Tokens; text beyond it is cut at the end, before the closing tag.

    Examples
    --------
    >>> static_content("Be kind.").id
    'static-content'
    """
    given: object = content
    if not isinstance(given, str) and not callable(given):
        what, hint = "`content` is a text, or a function that returns it.", "For example: static_content('Be kind.')."
        raise NoeticConfigError("INVALID_LAYER_OPTION", what, given=given, hint=hint)
    if callable(content):
        check_function(content, "content", "no argument", 0)
    if not isinstance(tag, str) or not tag.isidentifier():
        raise NoeticConfigError(
            "INVALID_LAYER_OPTION", "A tag is an identifier.", given=tag, hint="For example: 'policy'."
        )

    async def init(p: InitParams) -> dict[str, Any]:
        # At `init` rather than at each recall, because the text may come from a file or a service.
        text = await awaited(content() if callable(content) else content)
        if not isinstance(text, str):
            raise TypeError(f"Static content must be text, not {type(text).__name__}: {text!r:.80}.")
        return {"state": text}

    def recall(p: RecallParams) -> str | None:
        return cut_block(tag, p.state, p.budget, p.ctx.tokenize) if p.state else None

    return MemoryLayer(id=id, slot=slot, scope=scope, budget=budget, hooks=MemoryHooks(init=init, recall=recall))
