"""History window: only a limited number of items of the conversation is sent, whatever the budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb.items import Item, strip_unresolved
from noetic_nb.layers._helpers.schemas import option_error
from noetic_nb.layers.handles import NothingProvided
from noetic_nb.memory import BudgetConfig, MemoryHooks, MemoryLayer, ProjectHistoryParams
from noetic_nb.memory._layer_functions import built_in

SLOT: Final = 275
SMALLEST: Final = 2
LARGEST: Final = 10_000
# A window grows to include a whole exchange, up to this multiple.
MAX_GROWTH: Final = 4
# A system message among the first items belongs to the conversation as a whole.
HEAD: Final = 4


def _is(item: Item, role: str) -> bool:
    return item["type"] == "message" and item.get("role") == role


def window_of(items: Sequence[Item], max_items: int) -> list[Item]:
    """Return the newest items, without unpaired calls, and the first system message; up to four times `max_items`."""
    size = len(items)
    if size <= max_items:
        return list(items)
    # A long tool loop may have no user message nearby; the window must not become the whole log.
    lowest = max(0, size - MAX_GROWTH * max_items)
    start = size - max_items
    missing = {"user", "assistant"} - {str(item.get("role")) for item in items[start:] if item["type"] == "message"}
    while missing and start > lowest:
        start -= 1
        missing.discard(str(items[start].get("role")))
    kept = list(items[start:])
    head = next((item for item in items[: min(HEAD, start)] if _is(item, "system")), None)
    if head is not None:
        kept.insert(0, head)
    # The cut may separate a call from its output, which providers refuse.
    return [item for item in strip_unresolved(kept) if isinstance(item, Item)]


@built_in
@explained()
def history_window(
    max_items: int = 40, *, id: str = "history-window", slot: float = SLOT, budget: BudgetConfig = 0
) -> MemoryLayer[NothingProvided]:
    """Make a layer that sends only the newest `max_items` items of history. The log keeps everything.

    Parameters
    ----------
    max_items : int
        From 2 to 10 000. The window grows to include a user and an assistant message, up to four times this.

    Raises
    ------
    NoeticConfigError
        ``INVALID_HISTORY_WINDOW_MAX_ITEMS``.

    Examples
    --------
    >>> history_window(20).hooks.names()
    ('project_history',)
    """
    if isinstance(max_items, bool) or not isinstance(max_items, int) or not SMALLEST <= max_items <= LARGEST:
        raise option_error(
            f"A history window must have {SMALLEST} to {LARGEST} items.",
            max_items,
            "Use a whole number in that range.",
            code="INVALID_HISTORY_WINDOW_MAX_ITEMS",
        )

    def project_history(p: ProjectHistoryParams) -> dict[str, Any] | None:
        return None if len(p.items) <= max_items else {"items": window_of(p.items, max_items)}

    return MemoryLayer(
        id=id, slot=slot, scope="execution", budget=budget, hooks=MemoryHooks(project_history=project_history)
    )
