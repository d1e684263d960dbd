"""The state of a steering layer by execution: its initialisation, growth, copies for children, and stored part."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from noetic_nb._core.arguments import is_number
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory.params import CompleteParams, InitParams, SpawnParams, ToolOutcome
from noetic_nb.memory.scope import MemoryScope, resolve_scope_key
from noetic_nb.steering import _ledger as rows
from noetic_nb.steering._evaluation.evaluate import RuleSnapshot
from noetic_nb.steering._evaluation.judging import LAYER_ID, LateVerdicts, QueuedVerdict, Row
from noetic_nb.steering._predicates.bindings import Params
from noetic_nb.steering._rulebook.rulebook import RuleBook

if TYPE_CHECKING:
    from noetic_nb.steering._evaluation.rule_reading import UnknownTarget
from collections.abc import Callable

from noetic_nb.errors import NoeticError


def checked_ledger(stored: Any, key: str) -> list[rows.LedgerEntry]:
    """Return the validated ledger of a stored state; raises ``storage_failed`` with ``layer_id`` and ``key``."""
    problem = _problem(stored)
    if problem is not None:
        # Rules fail closed: a layer with an unreadable past must not begin with an empty one.
        what = f"The stored state of layer 'steering' is damaged: {problem}"
        hint = f"Repair or delete the key {key!r}; nothing was changed."
        raise NoeticError("storage_failed", what, given=stored, hint=hint, layer_id="steering", key=key)
    ledger: list[rows.LedgerEntry] = stored["ledger"]
    return ledger


# The fields that the layer reads of its records; other fields are kept unchanged.
_RECORDS: Final[dict[str, tuple[tuple[str, ...], dict[str, str]]]] = {
    "ledger": (
        (),
        {
            "kind": "text",
            "timestamp": "number",
            "durationMs": "number",
            "toolName": "text",
            "action": "text",
            "guidance": "text",
            "ruleId": "text",
            "ruleIds": "texts",
            "faults": "records",
        },
    ),
    "pendingAsync": (("ruleId", "guidance"), {"ruleId": "text", "guidance": "text"}),
}
_CALL: Final = {"name": "text", "status": "text", "callId": "text", "executionId": "text", "args": "object"}
_RECORDS["calls"] = _RECORDS["made"] = (("name", "status"), {**_CALL, "output": "text"})
_WANTED: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "text": ("text", lambda value: isinstance(value, str)),
    "number": ("a finite number", is_number),
    "texts": ("a list of texts", lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value)),
    "records": ("a list of objects", lambda value: isinstance(value, list) and all(isinstance(v, dict) for v in value)),
    "object": ("an object", lambda value: isinstance(value, dict)),
}
_MAX_DEPTH: Final = 200  # the limit of nesting for items and events


def _problem(stored: Any) -> str | None:
    if not isinstance(stored, dict):
        return "it is not an object"
    if _depth(stored) > _MAX_DEPTH:
        return f"it is nested more than {_MAX_DEPTH} deep"
    if "ledger" not in stored:
        return "`ledger` is missing"
    if not isinstance(stored.get("earlier", ""), str):
        return "earlier is not text"
    for name, (required, known) in _RECORDS.items():
        records = stored.get(name, [])
        if not isinstance(records, list):
            return f"{name} is not a list"
        for place, record in enumerate(records):
            # A dict, as from JSON: every turn checks every entry of a ledger, and checking for `Mapping` is slow.
            if not isinstance(record, dict):
                return f"{name}[{place}] is not an object"
            for key in required:
                if key not in record:
                    return f"{name}[{place}].{key} is missing"
            for key, value in record.items():
                kind = known.get(key)
                # None stands for an unknown output or arguments.
                if kind is None or (value is None and key not in required):
                    continue
                wanted, holds = _WANTED[kind]
                if not holds(value):
                    return f"{name}[{place}].{key} is not {wanted}"
    return None


def _depth(value: Any) -> int:
    # No recursion: the data may be nested deeper than the interpreter can recurse.
    deepest, level = 0, [value]
    while level and deepest <= _MAX_DEPTH:
        deepest += 1
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
    return deepest


# The number of threads whose states are kept for reuse: a ledger of 100 entries takes about 100 kB.
MAX_LEFT: Final = 64


class ExecutionStates:
    """The state of one steering layer per execution: a ledger, waiting verdicts, and calls of a wider scope."""

    def __init__(self, book: RuleBook, max_entries: int, scope: MemoryScope, late: LateVerdicts) -> None:
        self.book = book
        self.max_entries = max_entries
        self.scope = scope
        self.late = late
        self.known_changes: dict[str, int] = {}
        """By execution: the number of rule book changes in its ledger."""
        # The last compared rules and tools, and the names in the rules that no tool has.
        self._compared: tuple[RuleSnapshot, int, tuple[UnknownTarget, ...]] | None = None
        self._unchecked: set[str] = set()  # executions whose tools were still unknown when they began
        self._left: dict[str, rows.State] = {}

    def init(self, p: InitParams) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
        """Begin an execution's state, with the stored state if the scope is wider."""
        # An execution's own namespace is empty when it begins, so there is nothing to read.
        return self._begun(p, None) if self.scope == "execution" else self._read(p)

    async def _read(self, p: InitParams) -> Mapping[str, Any]:
        return self._begun(p, await self._stored(p))

    def _begun(self, p: InitParams, stored: Mapping[str, Any] | None) -> Mapping[str, Any]:
        ledger: Sequence[rows.LedgerEntry] = ()
        waiting: list[QueuedVerdict] = []
        if stored is not None:
            ledger, waiting = stored["ledger"], stored.get("pendingAsync", [])
        self.known_changes[p.ctx.execution_id] = self.book.change_count
        ledger = [*ledger, *self._unknown(p.ctx)]
        kept = rows.Ledger(ledger[-self.max_entries :] if self.max_entries else ())
        state: dict[str, Any] = {"ledger": kept, "pendingAsync": self.late.open(p.ctx, waiting)}
        if self.scope != "execution":
            # Calls of an execution that never ended count too, because they may have had effects.
            state["earlier"] = (
                "" if stored is None else rows.appended(rows.earlier_calls(stored), stored.get("made", ()))
            )
        return {"state": rows.State(state)}

    def _unknown(self, ctx: ExecutionContext, *, is_over: bool = False) -> Sequence[rows.LedgerEntry]:
        """Report tools and arguments that only rules name, at a thread's first turn and after an edit; return entries."""
        snapshot, compared = self.book.snapshot, self._compared
        if not is_over and ctx.turn > 1 and compared is not None and compared[0] is snapshot:
            return ()
        tools = ctx.known_tools(is_over)
        if tools is None:
            self._unchecked.add(ctx.execution_id)
            return ()
        if compared is None or compared[0] is not snapshot or compared[1] != len(tools):
            from noetic_nb.steering._evaluation.rule_reading import unknown_targets  # it parses rules

            self.book.known_tools = tools
            compared = self._compared = (snapshot, len(tools), unknown_targets(snapshot, tools))
        for target in compared[2]:
            ctx.warn(LAYER_ID, "init", target)
        now = ctx.clock.now_ms()
        return [rows.target_entry(target.rule_id, target.name, str(target), now) for target in compared[2]]

    def forget(self, execution_id: str) -> None:
        self.known_changes.pop(execution_id, None)
        self._unchecked.discard(execution_id)

    async def _stored(self, p: InitParams) -> Mapping[str, Any] | None:
        """Return the stored state; usually its text is unchanged, and this is the object of the previous execution."""
        left = self._left.get(p.scope_key)
        if left is not None and await p.storage.get_text("state") == left.json_text():
            return {**left, "pendingAsync": [{**verdict} for verdict in left["pendingAsync"]]}
        stored = await p.storage.get("state")
        if stored is None:
            return None
        ledger = checked_ledger(stored, f"{p.storage.prefix}state")
        return {**stored, "ledger": [rows.Entry(entry) for entry in ledger]}

    def on_tool_outcome(self, p: ToolOutcome) -> Mapping[str, Any] | None:
        """Remember the calls of an execution in a state that outlives it."""
        if p.state is None:
            return None
        made = rows.rows_of(p.ctx.past_calls())
        if not made:  # a runtime that keeps no history
            made = rows.Ledger([*p.state.get("made", []), {"name": p.name, "status": "ok" if p.success else "error"}])
        return {"state": rows.State({**p.state, "made": made})}

    def with_entry(
        self, p: Params, entry: rows.LedgerEntry, state: Any = None, *, row: Row | None = None
    ) -> dict[str, Any]:
        """Return a state with one more entry, the entry of a judges' row if there is one."""
        state, ctx = p.state if state is None else state, p.ctx
        made = rows.State({"ledger": [], "pendingAsync": None} if state is None else state)
        waiting, queue = made["pendingAsync"], self.late.queues.get(ctx.execution_id)
        if queue is None or waiting is not queue.pending:
            made["pendingAsync"] = self.late.pending(ctx, waiting)
        entry = rows.Entry(entry)
        made["ledger"] = self.longer(made["ledger"], *self._edits(ctx), entry if row is None else row.fill(entry))
        return made

    def longer(self, ledger: Sequence[rows.LedgerEntry], *entries: rows.LedgerEntry) -> rows.Ledger:
        """Return a ledger with further entries; a new one, because the existing one may be shared."""
        longer = rows.Ledger(
            [*ledger, *[entry if type(entry) is rows.Entry else rows.Entry(entry) for entry in entries]]
        )
        if (more := len(longer) - self.max_entries) > 0:
            del longer[:more]
        return longer

    def _edits(self, ctx: ExecutionContext) -> Sequence[rows.LedgerEntry]:
        count = self.book.change_count
        known = self.known_changes.get(ctx.execution_id, count)
        if known == count:
            return ()
        new = self.book.changes[known:]
        self.known_changes[ctx.execution_id] = known + len(new)
        now = ctx.clock.now_ms()
        return [rows.change_entry(change.change, change.rule_id, change.version, now) for change in new]

    def on_spawn(self, p: SpawnParams) -> Mapping[str, Any]:
        """Give a child the ledger so far, and its own queue."""
        # Deep, because parent and child may run at the same time.
        ledger = [] if p.parent_state is None else copy.deepcopy(p.parent_state["ledger"])
        self.known_changes[p.child_ctx.execution_id] = self.book.change_count
        state: dict[str, Any] = {"ledger": ledger, "pendingAsync": self.late.open(p.child_ctx, [])}
        if self.scope != "execution":
            parent = p.parent_state or {}
            # Calls in this tree are already in its history.
            made = [] if p.child_ctx.past_calls() else parent.get("made", [])
            state["earlier"] = rows.appended(rows.earlier_calls(parent), made)
            state["ledger"] = rows.Ledger([rows.Entry(entry) for entry in ledger])
        return {"child_state": rows.State(state)}

    def on_complete(self, p: CompleteParams) -> Mapping[str, Any]:
        """Record the outcome of an execution, and keep the state for the next one in a wider scope."""
        now = p.ctx.clock.now_ms()
        if p.ctx.execution_id in self._unchecked and (entries := self._unknown(p.ctx, is_over=True)):
            ledger = rows.Ledger([*(p.state or {"ledger": ()})["ledger"], *entries])
            p = p._replace(
                state=rows.State({"pendingAsync": self.late.pending(p.ctx), **(p.state or {}), "ledger": ledger})
            )
        entry = {"kind": "custom", "timestamp": now, "custom": {"outcome": p.outcome}}
        state = p.state or {"ledger": [], "pendingAsync": self.late.pending(p.ctx)}
        if self.scope != "execution":
            # Before the queue is closed, so that saved entries are not carried over as well.
            self.late.saved(p.ctx)
            made = rows.rows_of(p.ctx.past_calls()) or state.get("made", ())
            state = {key: value for key, value in state.items() if key != "calls"}
            state |= {"earlier": rows.appended(rows.earlier_calls(p.state), made), "made": []}
        state = rows.State({**state, "ledger": self.longer(state["ledger"], *self._edits(p.ctx), entry)})
        if self.scope != "execution":
            key = resolve_scope_key(self.scope, p.ctx)
            self._left.pop(key, None)  # the newest last
            self._left[key] = state
            if len(self._left) > MAX_LEFT:
                del self._left[next(iter(self._left))]
        return {"state": state}
