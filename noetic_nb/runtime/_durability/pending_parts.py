"""The stored parts of a thread that were not read here: later parts, and a turn that was cut off."""

from __future__ import annotations

from collections.abc import Container, Sequence

from noetic_nb.items import Item, ItemLog
from noetic_nb.runtime._durability.corruption import unreadable
from noetic_nb.runtime._durability.snapshot import Snapshot, noticing_checkpoint
from noetic_nb.runtime._durability.thread_log import Part, ThreadStore
from noetic_nb.runtime._durability.thread_writer import ThreadWriter, snapshot_key


async def newer(
    store: ThreadStore, writer: ThreadWriter, live: Container[str], *, is_cut_off: bool = True
) -> tuple[list[Part], Snapshot | None]:
    """Return the parts beyond those that a writer counts, and where the turn stands that is under way.

    Another process may write between two of these reads: a snapshot that follows more parts than were there a moment
    ago is no damage, and what it follows is there when it is looked for again.
    """
    parts: list[Part] = []
    number, position, is_ahead = writer.parts, writer.items, False
    while True:
        later, execution_id = await store.after(writer.thread_id, number, position)
        parts += later
        number += len(later)
        position += sum(len(part.items) for part in later)
        cut = await _snapshot(store, writer, live, execution_id) if is_cut_off else None
        if cut is None or cut.parts <= number or (is_ahead and not later):
            return parts, cut
        is_ahead = True


async def _snapshot(
    store: ThreadStore, writer: ThreadWriter, live: Container[str], execution_id: str | None
) -> Snapshot | None:
    """Read where a turn stands that is none of ours."""
    if execution_id is None or execution_id in writer.ended or execution_id in live:
        return None
    with noticing_checkpoint(execution_id):
        data = await store.storage.get(snapshot_key(execution_id))
    return None if data is None else Snapshot.read(data, execution_id, store.registry)


def cut_off(writer: ThreadWriter, snapshot: Snapshot | None) -> Snapshot | None:
    """Take over the turn that was under way when its process ended; None where the thread holds it already."""
    if snapshot is None:
        return None
    # The next write removes its checkpoints: by then the thread holds what they hold.
    writer.ended.append(snapshot.execution_id)
    if snapshot.parts < writer.parts:
        return None  # its end was written, and its snapshot not yet removed
    unsaved(snapshot, writer)
    return snapshot


def unsaved(snapshot: Snapshot, writer: ThreadWriter) -> tuple[Item, ...]:
    """Return the items that only a snapshot holds; it must follow the parts there are."""
    follows = (snapshot.thread_id, snapshot.parts, snapshot.recorded)
    if follows != (writer.thread_id, writer.parts, writer.items):
        raise unreadable(
            f"The checkpoint of this execution follows {snapshot.parts} parts with {snapshot.recorded} items of "
            f"thread {snapshot.thread_id!r}, of which there are {writer.parts} with {writer.items}, and",
            snapshot.execution_id,
            "something between them is missing",
            "parts of it were deleted; remove it with `await harness.clear_checkpoint(...)`.",
        )
    return snapshot.items


def mark(log: ItemLog, *saved: Part | Snapshot) -> None:
    """Note the origins of the items that were read, where their roles do not say them."""
    for each in saved:
        start = each.first if isinstance(each, Part) else each.recorded
        log.mark({start + place: origin for place, origin in each.origins.items()})


def joined(writer: ThreadWriter, parts: Sequence[Part]) -> list[Item]:
    """Return the items of all parts, counted by a writer."""
    items: list[Item] = []
    for part in parts:
        items += part.items
        writer.took(part)
    return items
