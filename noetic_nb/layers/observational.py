"""Observational memory: what was said is gathered, and once it is enough, distilled into short observations."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.items import assistant_text, input_message, input_texts
from noetic_nb.layers.blocks import fitting_lines, tagged
from noetic_nb.layers.state_loading import StoredState, load_state, option_error
from noetic_nb.memory import (
    BudgetConfig,
    ExecutionContext,
    HookModelRequest,
    InitParams,
    MemoryHooks,
    MemoryLayer,
    MemoryScope,
    OnItemAppendParams,
    RecallParams,
    Slot,
    SpawnParams,
    StoreParams,
)
from noetic_nb.memory.execution_context import as_response

__all__ = ["Observer", "observational_memory"]

Observer = Callable[[Sequence[str]], "Sequence[str] | Awaitable[Sequence[str]]"]
"""Reads what was said, oldest first, and returns what is worth keeping."""

# Runtime specification, sections 11.1 and 11.3.
DEFAULT_BUDGET: Final = {"min": 500, "max": 2500}
TIMEOUT_MS: Final = 60_000
TAG: Final = "observations"
# An observer that keeps failing must not make the buffer grow for ever: beyond this the oldest text is kept as it is.
MOST_THRESHOLDS: Final = 4

_ASK: Final = (
    "Below is what was said in a conversation. Write down what is worth remembering about the people, their wishes, facts and "
    "decisions: one short sentence per line, nothing else."
)


class _State(StoredState):
    observations: list[str]
    buffer: list[str]
    bufferTokens: int
    version: int


_EMPTY: Final[dict[str, Any]] = {"observations": [], "buffer": [], "bufferTokens": 0, "version": 0}


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
) -> MemoryLayer:
    """Make a layer that distils conversations into observations.

    Parameters
    ----------
    observer : callable, optional
        ``observer(texts)`` returns the observations, sync or async.
    model : str, optional
        Asked to observe where there is no observer. With neither, the texts themselves are kept.
    buffer_threshold : int, tokens
        How much must have been said before it is distilled.
    max_observations : int
        The newest so many are kept.
    budget : optional
        Tokens; 500 to 2 500 by default.

    Returns
    -------
    MemoryLayer
        An observer that fails loses nothing: what was said stays in the buffer and is tried again.

    References
    ----------
    .. [1] Runtime specification, section 11.3 (observational memory).

    Examples
    --------
    >>> observational_memory(lambda texts: [f"{len(texts)} remarks"]).slot
    <Slot.OBSERVATIONS: 200>
    """
    if buffer_threshold < 1 or max_observations < 1:
        raise option_error(
            "A threshold and a number of observations are at least 1.",
            (buffer_threshold, max_observations),
            "Raise it.",
        )

    async def observed(texts: Sequence[str], ctx: ExecutionContext) -> list[str]:
        if observer is not None:
            found: Any = observer(tuple(texts))
            if hasattr(found, "__await__"):
                found = await found
        elif model is not None:
            found = await _ask_model(model, texts, ctx)
        else:
            found = texts
        if isinstance(found, str) or not all(isinstance(text, str) for text in found):
            raise TypeError(f"An observer returns a list of texts, not {found!r:.80}.")
        return [text.strip() for text in found if text.strip()]

    async def add(state: Any, texts: Sequence[str], ctx: ExecutionContext, hook: str) -> dict[str, Any] | None:
        texts = [text for text in texts if text.strip()]
        if not texts:
            return None
        new: dict[str, Any] = copy.deepcopy(state or _EMPTY)
        new["buffer"] += texts
        new["bufferTokens"] += sum(ctx.tokenize(text) for text in texts)
        if new["bufferTokens"] < buffer_threshold:
            return {"state": new}
        try:
            found = await observed(new["buffer"], ctx)
        except Exception as exc:
            ctx.diagnostic(id, hook, exc)
            if new["bufferTokens"] < MOST_THRESHOLDS * buffer_threshold:
                return {"state": new}
            found = new["buffer"]
        return {
            "state": {
                "observations": [*new["observations"], *found][-max_observations:],
                "buffer": [],
                "bufferTokens": 0,
                "version": new["version"] + 1,
            }
        }

    async def init(p: InitParams) -> dict[str, Any]:
        return {"state": await load_state(p, _State, _EMPTY, layer_id=id)}

    def recall(p: RecallParams) -> str | None:
        newest_first = [f"- {text}" for text in reversed((p.state or _EMPTY)["observations"])]
        lines = fitting_lines(TAG, newest_first, p.budget, p.ctx.tokenize)
        return tagged(TAG, "\n".join(reversed(lines))) if lines else None

    async def store(p: StoreParams) -> dict[str, Any] | None:
        return await add(p.state, [assistant_text(p.new_items)], p.ctx, "store")

    async def on_item_append(p: OnItemAppendParams) -> dict[str, Any] | None:
        return await add(p.state, input_texts(p.items), p.ctx, "on_item_append")

    def on_spawn(p: SpawnParams) -> dict[str, Any]:
        return {"child_state": copy.deepcopy(p.parent_state)}

    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        timeouts={"store": TIMEOUT_MS, "on_item_append": TIMEOUT_MS},
        hooks=MemoryHooks(init=init, recall=recall, store=store, on_item_append=on_item_append, on_spawn=on_spawn),
    )


async def _ask_model(model: str, texts: Sequence[str], ctx: ExecutionContext) -> list[str]:
    if ctx.call_model is None:
        raise NoeticError(
            "llm_failed", f"No model {model!r} to observe with", hint="Pass an observer function instead."
        )
    request = HookModelRequest(model, (input_message("\n".join(texts), ids=ctx.ids),), _ASK)
    answer = assistant_text(as_response(await ctx.call_model(request)).items)
    return [line.strip().removeprefix("- ") for line in answer.splitlines() if line.strip()]
