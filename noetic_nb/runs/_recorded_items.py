"""The log of a thread, rebuilt from the recorded events."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ItemsAppended
from noetic_nb.items import Item


def recorded_items(threads: Collection[str], appended: Iterable[ItemsAppended], thread_id: str) -> list[Item]:
    """Return the items of one of the threads of a run, of all that was appended in the run; as `Run.log` does.

    Raises `NoeticConfigError` ``UNKNOWN_THREAD``, `NoeticError` ``tape_missing``.
    """
    if thread_id not in threads:
        raise NoeticConfigError(
            "UNKNOWN_THREAD",
            "The run has no such thread.",
            given=thread_id,
            hint=f"It has {', '.join(map(repr, threads)) or 'none yet'}.",
        )
    here = [event for event in appended if event.where.thread_id == thread_id]
    depth = min((event.where.depth for event in here), default=0)
    items: list[Item] = []
    for event in here:
        if event.where.depth > depth:  # a child's log of its own
            continue
        if event.start > len(items):
            raise NoeticError(
                "tape_missing",
                f"Items {len(items)} to {event.start - 1} of thread {thread_id!r} were not recorded.",
                hint="Attach the run before the thread's first turn; turns that it has dropped are in its "
                'meta["dropped"].',
                thread_id=thread_id,
            )
        items[event.start :] = event.items
    return items
