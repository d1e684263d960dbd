"""Turn what a model said into items, whoever said it: text, reasoning, calls of tools, a refusal.

The order is fixed: reasoning, then the message, then the calls. What says nothing makes no item.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from noetic_nb.ids import Ids
from noetic_nb.items import FrozenDict, Item

__all__ = ["answer_items", "text_item"]

_CUT_OFF: Final = frozenset({"length", "content_filter"})


def text_item(text: str, item_id: str, status: Literal["completed", "incomplete"] = "completed") -> Item:
    """Make an assistant message of one text part.

    Examples
    --------
    >>> text_item("hello", "m1")["content"][0]["text"]
    'hello'
    """
    return Item(
        id=item_id,
        status=status,
        type="message",
        role="assistant",
        content=(FrozenDict(type="output_text", text=text, annotations=()),),
    )


def answer_items(
    *,
    text: str = "",
    calls: Iterable[tuple[str, str, str]] = (),
    reasoning: str = "",
    refusal: str = "",
    finish_reason: str | None = None,
    ids: Ids,
) -> tuple[Item, ...]:
    """Make the items of one answer.

    Parameters
    ----------
    text, reasoning, refusal : str
        What was said; empty for nothing.
    calls : iterable of (call id, name, arguments)
        Calls of tools, `arguments` as the model wrote them.
    finish_reason : str, optional
        ``"length"`` and ``"content_filter"`` make the message ``incomplete``.
    ids : Ids
        Source of item ids.

    Returns
    -------
    tuple of Item

    Examples
    --------
    >>> from noetic_nb.ids import SYSTEM_IDS
    >>> [i.type for i in answer_items(text="One moment.", calls=[("c1", "lookup", "{}")], ids=SYSTEM_IDS)]
    ['message', 'function_call']
    """
    items: list[Item] = []
    if reasoning:
        part = FrozenDict(type="reasoning_text", text=reasoning)
        items.append(Item(id=ids.new("item"), type="reasoning", summary=(), content=(part,)))
    status: Literal["completed", "incomplete"] = "incomplete" if finish_reason in _CUT_OFF else "completed"
    if refusal:
        parts: tuple[FrozenDict, ...] = (FrozenDict(type="refusal", refusal=refusal),)
        if text:
            parts = (FrozenDict(type="output_text", text=text, annotations=()), *parts)
        message: dict[str, Any] = {"status": status, "type": "message", "role": "assistant", "content": parts}
        items.append(Item(id=ids.new("item"), **message))
    elif text:
        items.append(text_item(text, ids.new("item"), status))
    for call_id, name, arguments in calls:
        items.append(
            Item(
                id=ids.new("item"),
                status="completed",
                type="function_call",
                callId=call_id,
                name=name,
                arguments=arguments,
            )
        )
    return tuple(items)
