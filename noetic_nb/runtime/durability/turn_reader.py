"""Read what a process that has ended recorded of a turn into the record of the process that resumes it."""

from __future__ import annotations

from collections.abc import Mapping

from noetic_nb.runtime.durability.snapshot import ChildSnapshot, Snapshot
from noetic_nb.runtime.durability.thread_writer import execution_prefix
from noetic_nb.runtime.durability.turn_record import ExecutionRecord, TurnRecord
from noetic_nb.storage import JsonValue
from noetic_nb.storage.adapter import get_many, write_together

__all__ = ["read_turn"]


async def read_turn(turn: TurnRecord, snapshot: Snapshot) -> None:
    """Read what has ended; an end that no record of its execution knows of is forgotten, with what came of it."""
    root, tree = turn.root, turn.root.start
    found = await get_many(turn.storage, await turn.storage.list(execution_prefix(turn.execution_id)))
    _take_in(turn, root, snapshot)
    totals = {"": snapshot.spent}
    tree_steps, known = snapshot.tree_steps, {"": snapshot.sequence}
    # Sorted, so that `written` begins with the oldest ends: these go first when there are too many.
    for key in sorted(found):
        kind = key.split(":")[2]
        if kind == "ledger":
            turn.written.append(key)
            turn.sequence = _number(key) + 1
        elif kind == "child":
            turn.child_keys.append(key)
            turn.next_child = _number(key) + 1
            child = ChildSnapshot.read(found[key], turn.execution_id, root.ctx.item_log.registry)
            start = tree.at_path(child.place)
            record = ExecutionRecord(turn, start, key=key, inherited=child.inherited, snapshot=child)
            turn.children[start] = record
            _take_in(turn, record, child)
            known[child.place] = child.sequence
            tree_steps = max(tree_steps, child.tree_steps)
            # Who wrote last knows best what the executions above had spent, and that may have been a child.
            for place, spent in {**child.above, child.place: child.spent}.items():
                totals[place] = totals.get(place, spent).or_more(spent)
    for record in turn.children.values():
        record.spent = totals[record.start.path]
    # Records may know of numbers whose entries are gone: these are not given again.
    turn.sequence = max(turn.sequence, *known.values())
    ahead = [key for key in turn.written if not _take_entry(turn, found[key], _number(key), known)]
    snapshot.put_back(root.ctx, totals[""])
    for record in turn.children.values():
        # Before any of them is begun again: what one of them did counts for all. Earlier versions did not number calls.
        if record.snapshot is not None:
            root.ctx.tree.calls.restore([call for call in record.snapshot.calls if call[0] is not None])
    root.ctx.tree.steps = tree_steps
    # Moved back, so that whatever measures the turn counts on from the time it had taken.
    root.ctx.started_ms -= snapshot.elapsed_ms
    # Deleted before the first write: the next record counts beyond their numbers, and after another crash they would
    # seem to be known.
    if ahead:
        await write_together(turn.storage, {}, delete=ahead)


def _take_in(turn: TurnRecord, record: ExecutionRecord, snapshot: Snapshot | ChildSnapshot) -> None:
    tree = turn.root.start
    record.returned = {tree.at_path(place): dict(result) for place, result in snapshot.returned.items()}
    turn.loops |= {tree.at_path(place): began for place, began in snapshot.loops.items()}


def _take_entry(turn: TurnRecord, entry: JsonValue, number: int, known: Mapping[str, int]) -> bool:
    """Put the end of a step where it will be looked for; False for one that no record knows of."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("path"), str):
        return True  # damaged: the step is run again
    if number >= known.get(entry.get("in", ""), -1):
        return False
    turn.replays = True
    if "places" in entry:
        path, _, iteration = entry["path"].rpartition("!")
        turn.root.start.at_path(path).failures[int(iteration)] = entry
    else:
        turn.root.start.at_path(entry["path"]).entry = entry
    return True


def _number(key: str) -> int:
    return int(key.rsplit(":", 1)[1])
