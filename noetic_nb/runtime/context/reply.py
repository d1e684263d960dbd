"""What a turn gives back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from noetic_nb.items import Item
from noetic_nb.models.client import Usage

__all__ = ["AgentReply"]


class AgentReply(NamedTuple):
    """The reply of one turn.

    `text` is the last assistant message of the turn, or the suggestion where the turn was stopped; `stopped` is the
    decision that stopped it, as plain data with a ``kind``, else None. `usage` and `cost` (US dollars) are those of the
    turn, judges, layers and children included. `output` is what the agent's step returned, the value where it has a schema.
    """

    text: str
    items: tuple[Item, ...]
    usage: Usage
    cost: float
    stopped: Mapping[str, Any] | None
    turn_id: str
    thread_id: str = "default"
    output: Any = None  # the user's own, as every output of a step

    def __str__(self) -> str:
        return self.text
