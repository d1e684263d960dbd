"""Observational memory: the conversation is buffered, and distilled into observations once there is enough of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb.items import input_message
from noetic_nb.layers._helpers.collaborators import check_function, check_model_name, check_whole, model_text
from noetic_nb.layers._helpers.considered import consider, fitting_lines, plain_hits, tagged
from noetic_nb.layers._helpers.gathering import (
    GATHERING_TIMEOUTS_MS,
    BufferedState,
    TextBuffer,
    emptied,
    gathering_hooks,
)
from noetic_nb.layers.handles import NothingProvided
from noetic_nb.memory import BudgetConfig, ExecutionContext, MemoryLayer, MemoryScope, Slot, params
from noetic_nb.memory._execution_context import Compacted, compacted
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.sync import awaited

Observer = Callable[[Sequence[str]], "Sequence[str] | Awaitable[Sequence[str]]"]
"""Reads texts of the conversation, oldest first, and returns the observations to keep."""

DEFAULT_BUDGET: Final = {"min": 500, "max": 2500}
TAG: Final = "observations"

_INSTRUCTIONS: Final = (
    "Below is what was said in a conversation. Write down what is worth remembering about the people, their wishes, facts and "
    "decisions: one short sentence per line, nothing else."
)


class _State(BufferedState):
    observations: list[str]


_EMPTY: Final[dict[str, Any]] = {"observations": [], "buffer": [], "bufferTokens": 0, "version": 0}


@built_in
@explained()
def observational_memory(
    observer: Observer | None = None,
    *,
    model: str | None = None,
    id: str = "observational-memory",
    scope: MemoryScope = "resource",
    buffer_threshold: int = 2_000,
    max_observations: int = 50,
    budget: BudgetConfig = None,
    slot: float = Slot.OBSERVATIONS,
) -> MemoryLayer[NothingProvided]:
    """Make a layer that distils conversations into observations.

    Parameters
    ----------
    observer : callable, optional
        ``observer(texts)`` returns the observations, sync or async.
    model : str, optional
        The model that observes if there is no observer. With neither, the texts themselves are kept.
    buffer_threshold : int, tokens
        The size of the buffer at which it is distilled.
    max_observations : int
        The number of newest observations to keep.
    budget : optional
        Tokens; 500 to 2 500 by default.

    Returns
    -------
    MemoryLayer
        A failing observer loses nothing: its texts stay in the buffer and are tried again.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Observational memory".

    Examples
    --------
    >>> observational_memory(lambda texts: [f"{len(texts)} messages"]).slot
    <Slot.OBSERVATIONS: 200>
    """
    check_function(observer, "observer", "the texts of a conversation")
    check_model_name(model)
    check_whole(buffer_threshold=buffer_threshold, max_observations=max_observations)

    def kept(state: dict[str, Any], found: Sequence[str]) -> dict[str, Any]:
        return {"observations": [*state["observations"], *found][-max_observations:]}

    async def distil(state: dict[str, Any], ctx: ExecutionContext) -> dict[str, Any]:
        found = await _observe(state["buffer"], observer, model, ctx)
        text = "\n".join(found)
        compacted(Compacted(len(state["buffer"]), state["bufferTokens"], ctx.tokenize(text), text))
        return kept(state, found)

    def keep_texts(state: dict[str, Any], ctx: ExecutionContext) -> dict[str, Any]:
        # If no observer could distil the texts, they are kept unchanged rather than lost.
        return emptied(state | kept(state, state["buffer"]))

    def recall(p: params.RecallParams) -> str | None:
        newest_first = [f"- {text}" for text in reversed((p.state or _EMPTY)["observations"])]
        consider(id, TAG, lambda: plain_hits(newest_first))
        lines = fitting_lines(TAG, newest_first, p.budget, p.ctx.tokenize)
        return tagged(TAG, "\n".join(reversed(lines))) if lines else None

    buffer = TextBuffer(id, _EMPTY, buffer_threshold, distil, keep_texts)
    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        timeouts=GATHERING_TIMEOUTS_MS,
        hooks=gathering_hooks(buffer.add, recall=recall, shape=_State, empty=_EMPTY, layer_id=id),
    )


async def _observe(
    texts: Sequence[str], observer: Observer | None, model: str | None, ctx: ExecutionContext
) -> list[str]:
    """Return the observations of some texts: by the observer, by the model, or the texts themselves."""
    found: Any = texts
    if observer is not None:
        found = await awaited(observer(tuple(texts)))
    elif model is not None:
        message = input_message("\n".join(texts), ids=ctx.ids)
        answer = await model_text(ctx, model, [message], purpose="observe", instructions=_INSTRUCTIONS)
        # Models write a list, even if not asked to.
        found = [line.strip().removeprefix("- ") for line in answer.splitlines()]
    # A string is a sequence of strings too: each of its letters would be an observation.
    if isinstance(found, str) or not all(isinstance(text, str) for text in found):
        raise TypeError(f"An observer must return a list of texts, not {found!r:.80}.")
    return [text.strip() for text in found if text.strip()]
