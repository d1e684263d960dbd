"""The request of one model call as rows: what was sent in its order, and in between what was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.events import ItemsAppended, RunEvent
from noetic_nb.items import Item, item_text, item_tokens
from noetic_nb.widgets.transcript.call_book import CallRecord

__all__ = ["ORIGINS", "RequestRow", "RowOrigin", "rows_of_conversation"]

RowOrigin: TypeAlias = Literal["system", "tools", "layer", "history", "tool", "guidance"]

ORIGINS: Final[Mapping[str, RowOrigin]] = {"tool": "tool", "guidance": "guidance"}
"""What a logged item is called by the origin of its logging; all others are history."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One item of a request, or one that is absent from it."""

    origin: RowOrigin
    role: str
    text: str
    tokens: int | None = None
    is_sent: bool = True
    reason: str = ""
    """Why it was not sent, or was cut; a reason of `ItemFate`."""
    smallest_budget: float | None = None
    """The smallest budget that would have admitted it, in tokens; None where none would, or nobody knows it."""
    layer: str = ""
    tool: str = ""
    item_id: str | None = None
    position: int | None = None
    """Its place in the log of the thread; None for what is in no log."""

    @property
    def source(self) -> str:
        """Where it came from, in one word; layers with their name.

        Examples
        --------
        >>> RequestRow("layer", "developer", "Likes blue.", layer="notes").source
        'layer:notes'
        """
        return f"layer:{self.layer}" if self.origin == "layer" else self.origin


def rows_of_conversation(record: CallRecord, events: Sequence[RunEvent], meta: Mapping[str, Any]) -> list[RequestRow]:
    """Return what is known of a request that the run does not have: its policy, and the conversation before the call."""
    where = record.where
    items: list[tuple[Item, str]] = []
    for event in events:
        if event is record.event:
            break
        if type(event) is ItemsAppended and event.where.thread_id == where.thread_id and event.where.depth == 0:
            items[event.start :] = [(item, event.origin) for item in event.items]
    rows = []
    policy = meta.get("policy")
    if isinstance(policy, str) and policy and not any(item_text(item) == policy for item, _ in items):
        rows.append(RequestRow("system", "system", policy))
    names: dict[Any, str] = {}
    for position, (item, origin) in enumerate(items):
        rows.append(row_of_item(item, ORIGINS.get(origin, "history"), names, position=position))
    return rows


def row_of_item(item: Item, origin: RowOrigin, names: dict[Any, str], **known: Any) -> RequestRow:
    """Return an item as a row; `names` has the tools of the calls so far by their ids, and gets that of this one."""
    kind = item["type"]
    call_id = item.get("callId")
    if kind == "function_call":
        names[call_id] = str(item.get("name") or "")
        text, role = str(item.get("arguments") or ""), "call"
    else:
        text = item_text(item)
        role = {"function_call_output": "result", "message": str(item.get("role") or "")}.get(kind, kind)
    tool = names.get(call_id, "") if kind in ("function_call", "function_call_output") else ""
    known.setdefault("tokens", item_tokens(item))
    return RequestRow(origin, role, text, tool=tool, item_id=item.get("id"), **known)
