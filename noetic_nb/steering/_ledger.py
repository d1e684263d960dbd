"""The ledger: each decision, its rules, and failures during evaluation; and the tool calls of earlier turns.

An entry is plain data with wire keys. The ledger does not depend on rules or their evaluation; the layer passes it the
Calls of earlier turns are text, one call per line: every turn loads and saves them, but most rules never read them.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, overload

from noetic_nb.items import freeze, thaw
from noetic_nb.items._frozen import FLAT, FrozenDict, frozen_data
from noetic_nb.memory._enforcement import PENDING
from noetic_nb.memory._state.state_copy import deep_copy
from noetic_nb.memory._steering_decision import ALLOW, SteeringDecision
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams, PastCall
from noetic_nb.steering._predicates.bindings import MAX_HISTORY
from noetic_nb.storage._in_memory import encode

LedgerEntry: TypeAlias = dict[str, Any]

MAX_TEXTS: Final = 32  # keys, and the calls of this many concurrent threads
# A synchronous predicate blocks the loop and cannot be timed out; slower ones are marked.
SLOW_MS: Final = 50.0
_ENTRY_BYTES: Final = 900  # an entry with the usual facts, besides the arguments of its call


class Ledger(list[LedgerEntry]):
    """Entries that do not change except for late faults; snapshots share them, a copy copies them deeply."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[Any, Any]) -> Ledger:
        return Ledger([copy.deepcopy(entry, memo) for entry in self])


def _changing(name: str) -> Any:
    method = getattr(dict, name)

    def change(self: Entry, *args: Any, **kwargs: Any) -> Any:
        self.text = self._frozen = None
        return method(self, *args, **kwargs)

    return change


class Entry(dict[str, Any]):
    """An entry that is encoded and frozen once: its values do not change in place, but its own keys may."""

    __slots__ = ("_frozen", "text")

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(facts)
        self.text: str | None = None
        self._frozen: FrozenDict | None = None

    __setitem__ = _changing("__setitem__")
    __delitem__ = _changing("__delitem__")
    __ior__ = _changing("__ior__")
    clear = _changing("clear")
    pop = _changing("pop")
    popitem = _changing("popitem")
    setdefault = _changing("setdefault")
    update = _changing("update")

    def __deepcopy__(self, memo: dict[Any, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def json_text(self) -> str:
        if self.text is None:
            self.text = encode(self)
        return self.text

    def frozen(self) -> FrozenDict:
        """Return the entry as immutable data."""
        if self._frozen is None:
            self._frozen = frozen_data(dict(self))
        return self._frozen


class State(dict[str, Any]):
    """The state of a layer, whose text is joined from its parts' texts; snapshots share the entries."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[Any, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)

    def snapshot(self) -> State:
        """Return a copy that shares the entries, which do not change except for faults that become known later."""
        made = State(self)
        for key, value in self.items():
            made[key] = Ledger(value) if type(value) is Ledger else deep_copy(value)
        return made

    def bytes_held(self, size_of: Callable[[Any], int]) -> int:
        """Return the approximate size in bytes, including the arguments in entries, which may outlive the log."""
        size = 0
        for value in self.values():
            if type(value) is Ledger:
                size += _ENTRY_BYTES * len(value) + sum(
                    [size_of(row["toolArgs"]) for row in value if "toolArgs" in row]
                )
            elif value:
                size += size_of(value)
        return size

    def frozen(self) -> FrozenDict:
        """Return the state as immutable data, made of the frozen entries."""
        made = {}
        for key, value in self.items():
            if type(value) is Ledger:
                made[key] = tuple([entry.frozen() if type(entry) is Entry else frozen_data(entry) for entry in value])
            else:
                made[key] = frozen_data(value)
        return FrozenDict(made)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def json_text(self) -> str:
        """Return the state as JSON text, identical to an encoder's text."""
        parts = []
        for key, value in self.items():
            if type(key) is not str:  # another program's, which JSON turns into text
                return encode(self)
            if type(value) is Ledger:
                rows = [(entry.text or entry.json_text()) if type(entry) is Entry else encode(entry) for entry in value]
                parts.append(f"{_text_of(key)}:[{','.join(rows)}]")
            else:
                parts.append(f"{_text_of(key)}:{_text_of(value) if type(value) is str else encode(value)}")
        return f"{{{','.join(parts)}}}"


# Calls of earlier turns are one text, which several states share until a call is added.
_text_of: Final = lru_cache(maxsize=MAX_TEXTS)(encode)


def decision_entry(
    params: BeforeToolCallParams | AfterModelCallParams,
    decision: SteeringDecision,
    duration_ms: float,
    *,
    faults: Sequence[tuple[str, str]] = (),
    blocked: bool = False,
) -> LedgerEntry:
    """Return the entry of one evaluation; `faults` has failed rules with reasons, and one that `blocked` long is slow."""
    now, action = params.ctx.clock.now_ms(), decision.action._value_
    entry: LedgerEntry
    if isinstance(params, BeforeToolCallParams):
        # Used directly: each access to `tool_args` would make another copy.
        entry = {
            "timestamp": now,
            "kind": "tool_call",
            "toolName": params[0],
            "toolArgs": _copied(params[1]),
            "action": action,
        }
    else:
        usage = params.response.usage
        entry = {
            "timestamp": now,
            "kind": "model_turn",
            "tokenUsage": {"input": usage.input_tokens, "output": usage.output_tokens},
            "action": action,
        }
    if decision is not ALLOW:  # `ALLOW`, the usual decision, has neither
        if decision.guidance is not None:
            entry["guidance"] = decision.guidance
        if decision.rule_ids:
            # One id for readers of the wire form, all of them for detailed use.
            entry["ruleId"] = decision.rule_ids[0]
            entry["ruleIds"] = list(decision.rule_ids)
    entry["durationMs"] = duration_ms
    if faults:
        entry["faults"] = [{"ruleId": rule_id, "reason": reason} for rule_id, reason in faults]
    if blocked and duration_ms > SLOW_MS:
        entry["slow"] = True  # a timeout could not have stopped it
    return entry


def mark_late_fault(entry: LedgerEntry, rule_id: str, reason: str) -> None:
    """Record in an entry that a judge failed after the decision, which stays unchanged."""
    entry["fault"] = reason
    entry["faults"] = [*entry.get("faults", []), {"ruleId": rule_id, "reason": reason}]
    if rule_id not in entry.get("ruleIds", []):
        entry["ruleIds"] = [*entry.get("ruleIds", []), rule_id]
        entry.setdefault("ruleId", rule_id)


def _copied(args: Any) -> Any:
    """Return an independent copy of arguments as plain data; values that are not JSON data become text."""
    kind = type(args)
    if kind is FrozenDict:  # as from the runtime: its contents need no validation
        return {key: inner if type(inner) in FLAT else _copied(inner) for key, inner in args.items()}
    if kind is tuple:
        return [inner if type(inner) in FLAT else _copied(inner) for inner in args]
    try:
        return thaw(freeze(args))
    except ValueError:
        return {str(key): repr(value)[:200] for key, value in args.items()}


def target_entry(rule_id: str, name: str, text: str, now_ms: float) -> LedgerEntry:
    """Return the entry of a rule that names a tool or an argument that the agent does not have."""
    facts = {"unknownTarget": name, "ruleId": rule_id, "text": text}
    return {"kind": "custom", "timestamp": now_ms, "custom": facts}


def change_entry(change: str, rule_id: str, version: int, now_ms: float) -> LedgerEntry:
    """Return the entry of an edit that took effect during an execution."""
    facts = {"ruleChange": change, "ruleId": rule_id, "version": version}
    return {"kind": "custom", "timestamp": now_ms, "custom": facts}


# A sequence rule over a thread looks this far back. Beyond `MAX_HISTORY` only names and ends are kept: 60 KB.
MAX_CALLS: Final = 1_000
# Characters of the result of an earlier turn's call: enough to identify it.
MAX_SAVED_OUTPUT: Final = 200
_FIELDS: Final = ("callId", "executionId", "args", "output")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./-]+")


def rows_of(calls: Sequence[PastCall]) -> Ledger:
    """Return completed calls in the form in which they are saved."""
    return Ledger(
        [
            {
                "name": call.name,
                "status": call.status,
                "callId": call.call_id,
                "executionId": call.execution_id,
                "args": thaw(call.args),
                "output": (call.output or "")[:MAX_SAVED_OUTPUT],
            }
            for call in calls
            if call.status != PENDING
        ]
    )


def earlier_calls(state: Mapping[str, Any] | None) -> str:
    """Return the calls of earlier turns from a state of any version."""
    if state is None:
        return ""
    # Older versions saved a list, which was slow to copy at every write.
    text: str = state["earlier"] if "earlier" in state else "\n".join(map(_line, state.get("calls", ())))
    return text


def appended(text: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the calls with additional ones: the newest `MAX_CALLS`, older ones only by name and end."""
    if not rows:
        return text
    lines = [*without(text, rows).splitlines(), *map(_line, rows)][-MAX_CALLS:]
    # Older calls are already short: only those that now cross the border are read.
    border = max(0, len(lines) - MAX_HISTORY)
    for at in range(max(0, border - len(rows)), border):
        call = _call(lines[at])
        lines[at] = _line({"name": call.name, "status": call.status})
    return "\n".join(lines)


def without(text: str, calls: Sequence[Any]) -> str:
    """Leave out calls whose executions are also in `calls`: a child may have saved them before."""
    ids = {call.execution_id if isinstance(call, PastCall) else call.get("executionId") for call in calls} - {"", None}
    # A search of the whole text first, because only a child leaves such calls.
    if not any(json.dumps(execution_id) in text for execution_id in ids):
        return text
    return "\n".join([line for line in text.splitlines() if _call(line).execution_id not in ids])


def _line(row: Mapping[str, Any]) -> str:
    """Return a call as a line without unnecessary quotes, which would be escaped when the state is saved."""
    short = [row["name"], row["status"]]
    if len(row) > len(short):
        return json.dumps([*short, *[row.get(key) for key in _FIELDS]], separators=(",", ":"))
    return " ".join(short) if _PLAIN.fullmatch(short[0]) else json.dumps(short)


@lru_cache(maxsize=4 * MAX_CALLS)  # the calls of a few threads, to which a turn adds one or two
def _call(line: str) -> PastCall:
    """Return the call of a line; raises `TypeError` if the line is damaged."""
    try:
        row: Any = json.loads(line) if line.startswith("[") else line.split(" ")
        name, status, call_id, execution_id, args, output = row if len(row) > 2 else (*row, "", "", {}, None)
        return PastCall(name, args or {}, call_id or "", status, output, execution_id or "")
    except (ValueError, TypeError) as exc:
        raise TypeError(f"The stored calls of the steering layer are damaged: {line!r:.200}.") from exc


class ThreadHistory(Sequence[PastCall]):
    """The calls of earlier turns and of this one, parsed on access."""

    __slots__ = ("_all", "_now", "_text")

    def __init__(self, text: str, now: Sequence[PastCall]) -> None:
        self._text = text
        self._now = now
        self._all: tuple[PastCall, ...] | None = None

    def _calls(self) -> tuple[PastCall, ...]:
        if self._all is None:
            self._all = (*map(_call, without(self._text, self._now).splitlines()), *self._now)
        return self._all

    def __len__(self) -> int:
        return len(self._calls())

    def __iter__(self) -> Iterator[PastCall]:
        return iter(self._calls())

    @overload
    def __getitem__(self, index: int) -> PastCall: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PastCall, ...]: ...
    def __getitem__(self, index: int | slice) -> PastCall | tuple[PastCall, ...]:
        return self._calls()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._calls() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._calls())

    def __repr__(self) -> str:
        return repr(self._calls())
