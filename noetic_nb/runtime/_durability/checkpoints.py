"""The progress of a turn, written after every step, so that another process can resume it.

A step whose end was recorded never runs again, even in a child: its recorded output is used. A step that was
interrupted runs again from its beginning, with the log and layer states from before it; its tools get the same
idempotency keys. `execution_record` describes the records of steps and children.

A snapshot holds the items of its turn; the conversation before it is in the thread's own parts (see `thread_log`). When
the turn ends, its items become a part of the thread and its snapshot is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from pydantic import Field, field_validator

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.markup import plain_line
from noetic_nb.memory import LayerStack, MemoryLayer
from noetic_nb.redact import redact_text
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.protocols import BegunCall
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.step_errors import unsaved_text
from noetic_nb.runtime._durability.corruption import count, is_damage
from noetic_nb.runtime._durability.execution_record import ExecutionRecord
from noetic_nb.runtime._durability.snapshot import ChildSnapshot, Snapshot, noticing_checkpoint, past_call
from noetic_nb.runtime._durability.step_entry import StepRecord, check_entry
from noetic_nb.runtime._durability.thread_log import ThreadStore, part_key
from noetic_nb.runtime._durability.thread_writer import ThreadWriter, attempt, execution_prefix, snapshot_key, timed
from noetic_nb.runtime._durability.turn_state import TurnState
from noetic_nb.steps._base import Frozen, InstanceField
from noetic_nb.storage import JsonValue
from noetic_nb.storage._adapter import get_many, write_together
from noetic_nb.sync import protected


@dataclass(slots=True, eq=False, repr=False)
class TurnRecord(TurnState[ExecutionRecord]):
    """Begins and ends the record of a turn; see `TurnState` for the parts that its executions share."""

    def __post_init__(self) -> None:
        self.root = ExecutionRecord(self, StepRecord(), key=snapshot_key(self.execution_id))

    async def begin(self, first: int) -> None:
        ctx, writer = self.root.ctx, self.writer
        self.first, self.is_turn = first, True
        # The snapshot holds only items of this turn, counted from the last part, so that part must be stored first.
        if writer.ended or writer.items < first or writer.turn < ctx.turn - 1 or writer.lost is not None:
            await timed(ctx, attempt(writer.keep(ctx, first, max(writer.turn, ctx.turn - 1))))
        if writer.lost is not None:
            # Raised before any model call: there is no point in paying for a turn that cannot be saved.
            raise writer.lost
        await self.root._write("turn", None, None, ended=0)

    async def end(self) -> None:
        writer = self.writer
        self.is_over = True  # before any await: abandoned steps must not write after the deletion below
        if self.is_turn:
            writer.end(self.execution_id, [*self.written, *self.child_keys, *[call.key for call in self.begun]])

        try:
            await protected(self._keep(), "Saving a turn")
        except asyncio.CancelledError as exc:
            if self.problem is not None:
                exc.add_note(unsaved_text(self.problem))
            raise

    def close(self) -> None:
        self.root.ctx.record = None
        if not self.children:  # abandoned children may still read it
            # Reference cycles that only the garbage collector would find.
            self.root.start.take_apart()
            self.root.put_off.clear()
            self.loops.clear()
            self.again.clear()
            del self.root

    async def _keep(self) -> None:
        """Write the items that the turn logged; a failure is noted where the reply is made."""
        ctx = self.root.ctx
        self.problem = await timed(ctx, self.writer.keep_all(ctx)) or self.problem
        if self.problem is not None:
            ctx.warn("not_saved", unsaved_text(self.problem))


OnError: TypeAlias = Literal["raise", "warn"]
"""How an unsaved turn is reported."""

# docs/decisions/limits.md, "Durability".
MAX_ENTRY_BYTES: Final = 128 * 1024
MAX_ENTRIES: Final = 1_000
# Characters of a call's arguments in a warning.
_MOST_SHOWN: Final = 200


class Checkpoints(Frozen):
    """The storage of a harness's checkpoints, and how much they hold [1]_.

    Parameters
    ----------
    storage : StorageAdapter, optional
        Default: the storage of the harness.
    max_entry_bytes, max_entries : int
        Limits of the step ledger.
    on_error : {"raise", "warn"}
        How to report a turn that ended but could not be saved. ``"raise"``: the error ``not_saved``, whose ``reply``
        has the reply, as tools have run and money is spent. ``"warn"``: a reply with ``saved=False`` and a warning with
        the reason.

    Raises
    ------
    NoeticConfigError
        ``STEP_LEDGER_RETENTION_INVALID``, or ``INVALID_OPTION`` for another `on_error`.

    References
    ----------
    .. [1] docs/behaviour/durability.md, "What is written when".

    Examples
    --------
    >>> Checkpoints(max_entries=10).max_entries
    10
    """

    error_code: ClassVar[str] = "STEP_LEDGER_RETENTION_INVALID"

    storage: Any = None  # a StorageAdapter; pydantic would call its methods to check a Protocol
    max_entry_bytes: int = Field(default=MAX_ENTRY_BYTES, ge=1)
    max_entries: int = Field(default=MAX_ENTRIES, ge=1)
    on_error: OnError = "raise"
    stack: InstanceField[LayerStack] | None = None

    @field_validator("on_error", mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if given not in get_args(OnError):
            what = "Checkpoints, on_error: there is no such choice."
            raise NoeticConfigError("INVALID_OPTION", what, given=given, hint="Use 'raise' or 'warn'.")
        return given

    @property
    def threads(self) -> ThreadStore:
        assert self.stack is not None
        return ThreadStore(self.storage, self.stack.registry)

    def open(self, ctx: RunningExecution, writer: ThreadWriter) -> None:
        turn = TurnRecord(self.storage, ctx.id, writer, self.max_entry_bytes, self.max_entries)
        turn.raises = self.on_error == "raise"
        turn.root.ctx, ctx.record = ctx, turn.root

    async def unfinished(self) -> tuple[str, ...]:
        """Return the executions that can be resumed; deletes snapshots whose items are all in their thread."""
        ids = [key.split(":")[1] for key in await self.storage.list("execution:") if key.endswith(":snapshot")]
        snapshots = await self._snapshots(ids)
        after = {}
        for execution_id in ids:
            data: JsonValue = snapshots.get(snapshot_key(execution_id))
            try:
                after[execution_id] = part_key(data["threadId"], data["parts"])
            except (KeyError, TypeError, ValueError, AttributeError):
                continue  # `load` raises the problem
        taken = await get_many(self.storage, after.values())
        for execution_id, key in after.items():
            # If that part holds other items, the snapshot is the only copy of the turn's items: it stays.
            if key in taken and _holds(taken[key], snapshots[snapshot_key(execution_id)]):
                await self.clear(execution_id)
        return tuple([execution_id for execution_id in ids if after.get(execution_id) not in taken])

    async def _snapshots(self, ids: Sequence[str]) -> dict[str, JsonValue]:
        """Return the snapshots of executions, without invalid JSON: one damaged snapshot must not hide the others."""
        keys = [snapshot_key(execution_id) for execution_id in ids]
        try:
            return await get_many(self.storage, keys)
        except Exception as exc:
            if not is_damage(exc):
                raise
            found = {}
            for execution_id, key in zip(ids, keys, strict=True):
                try:
                    with noticing_checkpoint(execution_id):
                        found[key] = await self.storage.get(key)
                except NoeticConfigError:
                    continue  # `load` raises the problem
            return found

    async def load(self, execution_id: str) -> Snapshot:
        """Read a snapshot.

        Raises
        ------
        NoeticConfigError
            ``NO_CHECKPOINT``, ``CHECKPOINT_SCHEMA_MISMATCH``.
        """
        with noticing_checkpoint(execution_id):
            found = await self.storage.get(snapshot_key(execution_id))
        if found is None:
            known = ", ".join(await self.unfinished()) or "none"
            what = "There is no such execution to resume."
            raise NoeticConfigError("NO_CHECKPOINT", what, given=execution_id, hint=f"There is {known}.")
        return Snapshot.read(found, execution_id, self.threads.registry)

    async def restore(self, ctx: RunningExecution, snapshot: Snapshot) -> None:
        """Restore a context from its snapshot: counters, layer states, and the step ledger."""
        record = ctx.record
        assert isinstance(record, ExecutionRecord)
        with noticing_checkpoint(snapshot.execution_id):
            await _read_turn(record.turn, snapshot)
        for one in record.turn.begun:
            if one.is_left:
                ctx.warn("call_unfinished", _unfinished(one))
        stack = self.stack
        assert stack is not None
        await load_states(ctx.engine, ctx, stack.layers, snapshot.layers)

    async def clear(self, execution_id: str) -> None:
        """Delete an execution; its snapshot goes last, so that remaining keys can be found again."""
        snapshot = snapshot_key(execution_id)
        keys = [key for key in await self.storage.list(execution_prefix(execution_id)) if key != snapshot]
        await write_together(self.storage, {}, delete=[*keys, snapshot])


def _holds(part: JsonValue, snapshot: JsonValue) -> bool:
    """Tell whether a part of a thread begins with all items of a snapshot."""
    try:
        items = snapshot["itemLog"]["items"]
        return bool(part["first"] == snapshot["recorded"] and part["items"][: len(items)] == items)
    except (KeyError, TypeError):
        return False


async def _read_turn(turn: TurnState[ExecutionRecord], snapshot: Snapshot) -> None:
    """Read the ended steps; an end that no execution record names is dropped, with its results."""
    root, tree = turn.root, turn.root.start
    found = await get_many(turn.storage, await turn.storage.list(execution_prefix(turn.execution_id)))
    _take_in(turn, root, snapshot)
    totals = {"": snapshot.spent}
    tree_steps, known = snapshot.tree_steps, {"": snapshot.sequence}
    # Sorted, so that `written` begins with the oldest ends, which are dropped first if there are too many.
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
            # The last writer, possibly a child, knows best what the executions above it had spent.
            for place, spent in {**child.above, child.place: child.spent}.items():
                totals[place] = totals.get(place, spent).or_more(spent)
    for record in turn.children.values():
        record.spent = totals[record.start.path]
    # Records may know numbers whose entries are gone: these must not be reused.
    turn.sequence = max(turn.sequence, *known.values())
    ahead = [key for key in turn.written if not _take_entry(turn, found[key], _number(key), known)]
    snapshot.put_back(root.ctx, totals[""])
    for record in turn.children.values():
        # Before any child restarts: the calls of one count for all. Earlier versions did not number calls.
        if record.snapshot is not None:
            root.ctx.tree.calls.restore([call for call in record.snapshot.calls if call[0] is not None])
    for key in sorted(found):
        if key.split(":")[2] == "begun":
            _take_call(turn, key, found[key])
    root.ctx.tree.steps = tree_steps
    # Moved back, so that measurements of the turn include the time it had taken.
    root.ctx.started_ms -= snapshot.elapsed_ms
    # Deleted before the first write: the next record counts past these numbers, so they would look valid after another
    # crash.
    if ahead:
        await write_together(turn.storage, {}, delete=ahead)


def _take_in(turn: TurnState[ExecutionRecord], record: ExecutionRecord, snapshot: Snapshot | ChildSnapshot) -> None:
    tree = turn.root.start
    record.returned = {tree.at_path(place): dict(result) for place, result in snapshot.returned.items()}
    turn.loops |= {tree.at_path(place): began for place, began in snapshot.loops.items()}


def _take_entry(turn: TurnState[ExecutionRecord], entry: JsonValue, number: int, known: Mapping[str, int]) -> bool:
    """Store the end of a step where it will be looked up; False for one that no record knows."""
    check_entry(entry)
    if number >= known.get(entry.get("in", ""), -1):
        return False
    turn.replays = True
    if "places" in entry:
        path, _, iteration = entry["path"].rpartition("!")
        loop = turn.root.start.at_path(path)
        loop.failures = {**loop.failures, int(iteration): entry}
    else:
        turn.root.start.at_path(entry["path"]).entry = entry
    return True


def _take_call(turn: TurnState[ExecutionRecord], key: str, data: JsonValue) -> None:
    """Add a begun call to the history, unless a record knows how it ended: it may have taken effect."""
    number, call = past_call(*data["call"])
    path, of_step = data["path"], data["number"]
    if not isinstance(path, str) or number is None:
        raise TypeError("a call that was started has no position")
    if of_step is not None:
        count(of_step, "number")
    calls = turn.root.ctx.tree.calls
    is_left = all(place.number != number for place in calls)
    (place,) = calls.restore([(number, call._replace(status="cancelled", output=None))])
    turn.begun.append(BegunCall(key, path, of_step, place, is_left))
    turn.next_call = _number(key) + 1


def _unfinished(one: BegunCall) -> str:
    args = plain_line(redact_text(compact_json(thaw(one.place.call.args))), _MOST_SHOWN)
    again = " Made once more with these arguments, it has the same idempotency key." if one.number is not None else ""
    return (
        f"The call of {one.place.call.name!r} with {args} had begun when the process ended. It may have run, so it counts "
        f"in rules.{again}"
    )


def _number(key: str) -> int:
    return int(key.rsplit(":", 1)[1])


async def load_states(
    engine: Engine, ctx: RunningExecution, layers: Iterable[MemoryLayer], states: Mapping[str, Any]
) -> None:
    """Start layers with their saved states; a layer without one starts as usual."""
    hook_ctx = engine.hook_context(ctx)
    missing = tuple([layer for layer in layers if layer.id not in states])
    if missing:
        await engine.stack_of(missing).init(hook_ctx)
    for layer in layers:
        if layer.id in states:
            # Loaded through an `init` hook, so that later writes are mirrored as usual.
            kept = layer.with_hooks(init=_loads(states[layer.id]))
            await engine.stack_of((kept,)).init(hook_ctx)


def _loads(state: JsonValue) -> Callable[[Any], Any]:
    return lambda params: {"state": state}


def as_checkpoints(given: bool | Checkpoints, stack: LayerStack) -> Checkpoints:
    found = Checkpoints() if given is True else given
    if not isinstance(found, Checkpoints):
        what = "checkpoints is True, False or Checkpoints(...)."
        raise NoeticConfigError("INVALID_OPTION", what, given=given, hint="Pass True.")
    # A copy: one record may be given to several harnesses, each with its own storage and layers.
    return found.model_copy(update={"storage": found.storage or stack.storage, "stack": stack})
