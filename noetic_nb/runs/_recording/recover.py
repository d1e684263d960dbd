"""Restores turns that a killed process had saved to its storage but not yet to its run file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from noetic_nb._core.atomic_write import as_path
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ItemsAppended, RunEvent, TurnCompleted, TurnStarted, Where
from noetic_nb.items import Item, item_text
from noetic_nb.items._messages import Message
from noetic_nb.items._registry import ItemRegistry
from noetic_nb.redact import redact_text
from noetic_nb.runs._conversation import conversation_events
from noetic_nb.runs._load import UNFINISHED
from noetic_nb.runs._recording.retained_turns import KeptTurns
from noetic_nb.runs._recording.retention import is_saved_here, open_autosave
from noetic_nb.runs._run import Run, load_run
from noetic_nb.runtime._durability.thread_log import Part, ThreadStore, part_key
from noetic_nb.storage import StorageAdapter
from noetic_nb.sync import run_sync

_ITEMS: Final = ItemRegistry(strict=False)
_TURN_MARKS: Final = (TurnStarted, TurnCompleted)


class _Missing(NamedTuple):
    """A part of a saved thread that the run lacks: when it was written, and its items from a position on."""

    written_ms: float
    thread_id: str
    part: Part
    first: int
    items: tuple[Item, ...]


def recover(run_file: str | PathLike[str], storage: StorageAdapter) -> Run:
    """Complete the run file of a killed process with the turns that only its storage has.

    The items of these turns are known, and so are their calls; times, tokens and costs are not, as
    ``run.meta["estimated"]`` says. ``run.meta["recovered"]`` lists the turns. To continue an unfinished turn, use
    `AgentHarness.resume`. Recovering again changes nothing.

    Parameters
    ----------
    run_file : path-like
        The file of ``nn.record(harness, autosave=...)``; it is completed as well.
    storage : StorageAdapter
        The storage of the harness; read-only.

    Raises
    ------
    NoeticError
        ``invalid_run_file`` if the file cannot be read, ``storage_failed`` if it cannot be written.
    NoeticConfigError
        ``CHECKPOINT_SCHEMA_MISMATCH`` if a saved thread is damaged.

    References
    ----------
    .. [1] docs/behaviour/runs.md, "Saving as it grows".

    Examples
    --------
    >>> import asyncio, tempfile
    >>> import noetic_nb as nn
    >>> config = nn.AgentConfig(name="echo", step=nn.react(model="scripted"))
    >>> store = nn.InMemoryStorage()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for is_recorded in (True, False):  # as if the process had been killed before it wrote the second turn
    ...         model = nn.ScriptedModel(["Hello!"])
    ...         harness = nn.AgentHarness(config, model=model, storage=store, checkpoints=True)
    ...         run = nn.record(harness, autosave=f"{folder}/run.jsonl.gz") if is_recorded else run
    ...         _ = asyncio.run(harness.execute("Hi"))
    ...         run.stop_recording()
    ...     run = nn.recover(f"{folder}/run.jsonl.gz", store)
    ...     len(run.turns), run.meta["recovered"]
    (2, [{'thread_id': 'default', 'turn': 2}])
    """
    path = str(as_path(run_file))
    if not callable(getattr(storage, "list", None)):
        hint = "Pass the storage of the harness, such as SQLiteStorage('desk.db')."
        raise NoeticConfigError("INVALID_OPTION", "Turns are recovered from a store.", given=storage, hint=hint)
    load_run(path)  # raises a clear error, and creates no file if there is none
    is_live = is_saved_here(path)
    run = open_autosave(path, None, Run, KeptTurns())
    try:
        found = run_sync(_missing(run, ThreadStore(storage, _ITEMS)))
        recovered: list[dict[str, Any]] = []
        for missing in found:
            before = len(run.events)
            estimated: list[str] = []
            for event in _events(run, missing, estimated):
                run.append(event)
            if len(run.events) > before:
                recovered.append({"thread_id": missing.thread_id, "turn": missing.part.turn})
                known = run.meta.get("estimated")
                run.meta["estimated"] = list(dict.fromkeys([*(known if isinstance(known, list) else []), *estimated]))
        if recovered:
            known = run.meta.get("recovered")
            run.meta["recovered"] = [*(known if isinstance(known, list) else []), *recovered]
        run.meta.pop(UNFINISHED, None)
    finally:
        if not is_live:
            run.stop_recording()
    return run


async def _missing(run: Run, store: ThreadStore) -> list[_Missing]:
    """Return the turns that only storage has, in the order of writing."""
    ends: dict[str, int] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for event in run.events:
        where = event.where
        if where.depth == 0 and isinstance(event, ItemsAppended):
            ends[where.thread_id] = event.start + len(event.items)
        elif isinstance(event, TurnStarted):
            first.setdefault(where.thread_id, where.turn)
        elif isinstance(event, TurnCompleted):
            last[where.thread_id] = where.turn
    created_ms = run.meta.get("created_ms", 0.0)
    found: list[_Missing] = []
    for thread_id in await store.names():
        for part in await store.read(thread_id):
            start = max(0, ends.get(thread_id, 0) - part.first)
            if part.turn <= last.get(thread_id, 0) and start >= len(part.items):
                continue
            data: Any = await store.storage.get(part_key(thread_id, part.number))
            written_ms = data["writtenAt"]
            # Skip a thread from before the run; a thread known to the run was recorded from some turn on.
            is_own = part.turn >= first[thread_id] if thread_id in first else written_ms >= created_ms
            if is_own and part.turn >= last.get(thread_id, 0):
                found.append(_Missing(written_ms, thread_id, part, part.first + start, part.items[start:]))
    return sorted(found, key=lambda missing: (missing.written_ms, missing.thread_id, missing.part.number))


def _messages(items: Sequence[Item]) -> Iterator[Message]:
    """Yield items as messages; the items of one response stay together."""
    answer: list[Item] = []
    for item in items:
        role: Any = {"message": item.get("role"), "function_call_output": "tool"}.get(item["type"], "assistant")
        if role not in ("user", "tool", "system", "developer"):
            answer.append(item)
            continue
        if answer:
            yield Message("assistant", tuple(answer))
            answer = []
        yield Message("system" if role == "developer" else role, (item,))
    if answer:
        yield Message("assistant", tuple(answer))


def _events(run: Run, missing: _Missing, estimated: list[str]) -> Iterator[RunEvent]:
    """Yield the events of a turn, as far as they follow from its items."""
    thread_id, part, t_ms = missing.thread_id, missing.part, missing.written_ms
    about, told = conversation_events(list(_messages(missing.items)), thread_id=thread_id)
    estimated += about["estimated"]
    # The file may have the beginning of a long turn.
    own = [event for event in run.events if event.where.thread_id == thread_id and event.where.turn == part.turn]
    begun = next((event for event in reversed(own) if isinstance(event, _TURN_MARKS)), None)
    where = Where(thread_id, f"recovered-{thread_id}-{part.turn}", part.turn)
    turn_id = f"{thread_id}/t{part.turn}"
    is_between = isinstance(begun, TurnCompleted)  # items logged after the turn's end
    if isinstance(begun, TurnStarted):
        where, turn_id = begun.where, begun.turn_id
    elif not is_between:
        users = [message for message in _messages(missing.items) if message.role == "user"][:1]
        query = redact_text("".join([item_text(item) for message in users for item in message.items]))
        stop = missing.first + len(users)
        yield TurnStarted(where, t_ms, turn_id, missing.first, stop, query, part.resource_id)
    for event in told:
        if isinstance(event, ItemsAppended):
            yield replace(event, where=where, t_ms=t_ms, start=missing.first + event.start)
        elif not isinstance(event, _TURN_MARKS):
            yield replace(event, where=where, t_ms=t_ms)
    if is_between:
        return
    said = [
        item_text(item) for item in part.items[-1:] if item["type"] == "message" and item.get("role") == "assistant"
    ]
    calls = [event.kind for event in told]
    yield TurnCompleted(
        where,
        t_ms,
        turn_id,
        "success" if said else "failure",
        None,
        redact_text("".join(said)),
        None,
        None,
        None,
        calls.count("model_called"),
        calls.count("tool_called"),
    )
