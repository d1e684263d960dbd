"""Layers that learn from the conversation: each message goes to one function, or waits in the state as text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from noetic_nb.items import assistant_text
from noetic_nb.items._build import input_texts
from noetic_nb.layers._helpers.schemas import StoredState, copy_to_child, init_hook
from noetic_nb.memory import ExecutionContext, MemoryHooks, OnItemAppendParams, RecallParams, StoreParams

AddTexts: TypeAlias = Callable[
    [Any, Sequence[str], ExecutionContext, str], Coroutine[Any, Any, "dict[str, Any] | None"]
]
"""``await add(state, texts, ctx, hook)`` returns the hook's result: ``{"state": ...}``, or None without changes."""

# An extractor is usually a model call, which may take a minute.
GATHERING_TIMEOUTS_MS: Final[Mapping[str, float]] = {"store": 60_000, "on_item_append": 60_000}
# The buffer must not grow for ever if an extractor always fails; beyond this, the layer drops a part of it.
MAX_THRESHOLDS: Final = 4


def gathering_hooks(
    add: AddTexts,
    *,
    recall: Callable[[RecallParams], Any],
    shape: type[StoredState],
    empty: Mapping[str, Any],
    layer_id: str,
) -> MemoryHooks:
    """Return the hooks of a layer whose `add` receives the texts of new input and of each answer immediately."""

    def store(p: StoreParams) -> Awaitable[dict[str, Any] | None]:
        return add(p.state, [assistant_text(p.new_items)], p.ctx, "store")

    def on_item_append(p: OnItemAppendParams) -> Awaitable[dict[str, Any] | None]:
        return add(p.state, input_texts(p.items), p.ctx, "on_item_append")

    return MemoryHooks(
        init=init_hook(shape, empty, layer_id=layer_id),
        recall=recall,
        store=store,
        on_item_append=on_item_append,
        on_spawn=copy_to_child,
    )


class BufferedState(StoredState):
    """The fields of a stored state that a `TextBuffer` uses."""

    buffer: list[str]
    bufferTokens: int
    version: int


def emptied(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with an empty buffer and the next version."""
    return state | {"buffer": [], "bufferTokens": 0, "version": state["version"] + 1}


@dataclass(frozen=True, slots=True)
class TextBuffer:
    """Buffers texts in a layer's state, of the form `BufferedState`, until there are `threshold` tokens to distil.

    ``await distil(state, ctx)`` returns fields that replace those of the state, and the buffer is emptied. If it raises, the
    texts stay for the next attempt; at `MAX_THRESHOLDS` times the threshold ``give_up(state, ctx)`` returns the next state.
    """

    layer_id: str
    empty: Mapping[str, Any]
    threshold: int
    distil: Callable[[dict[str, Any], ExecutionContext], Awaitable[Mapping[str, Any]]]
    give_up: Callable[[dict[str, Any], ExecutionContext], dict[str, Any]]

    async def add(self, state: Any, texts: Sequence[str], ctx: ExecutionContext, hook: str) -> dict[str, Any] | None:
        """Buffer texts, and distil them all once they reach the threshold; an `AddTexts`."""
        texts = [text for text in texts if text.strip()]
        if not texts:
            return None
        old = state or self.empty
        tokens = old["bufferTokens"] + sum([ctx.tokenize(text) for text in texts])
        # A copy, because the state of `on_item_append` is passed by reference and this may still fail.
        new: dict[str, Any] = {**old, "buffer": [*old["buffer"], *texts], "bufferTokens": tokens}
        if new["bufferTokens"] < self.threshold:
            return {"state": new}
        try:
            distilled = await self.distil(new, ctx)
        except Exception as exc:
            ctx.diagnostic(self.layer_id, hook, exc)
            is_full = new["bufferTokens"] >= MAX_THRESHOLDS * self.threshold
            return {"state": self.give_up(new, ctx) if is_full else new}
        # The buffer is emptied in the same write: a crash leaves either the texts or their result, never both or neither.
        return {"state": emptied({**new, **distilled})}
