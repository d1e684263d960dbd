"""The ledger: what was decided, by which rule, and what failed on the way. An entry is plain data with wire keys.

It knows nothing of rules or of their evaluation; the layer passes it the facts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from noetic_nb.items import freeze, thaw
from noetic_nb.items.frozen import FLAT, FrozenDict
from noetic_nb.late_data import LateState
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.memory.state_copy import deep_copy
from noetic_nb.memory.steering_decision import ALLOW, SteeringDecision
from noetic_nb.models.client import ModelResponse
from noetic_nb.storage.in_memory import encode

__all__ = [
    "SLOW_MS",
    "Entry",
    "LateLedger",
    "Ledger",
    "LedgerEntry",
    "State",
    "change_entry",
    "decision_entry",
    "late_entry",
    "mark_late_fault",
    "outcome_entry",
    "response_row",
    "target_entry",
]

LedgerEntry: TypeAlias = dict[str, Any]

# Keys, and the calls of as many threads as take their turns at the same time.
MAX_TEXTS: Final = 32
# A synchronous predicate blocks the loop and cannot be timed out; longer than this is marked.
SLOW_MS: Final = 50.0
# What a `LateLedger` takes for one entry, beside the name and arguments of a call: a tuple, three numbers and a text.
_ROW_BYTES: Final = 260


class Ledger(list[LedgerEntry]):
    """Entries that stay as they were written, but for faults that are known later: snapshots of a state share them.

    A copy that somebody asks for is a copy all the way down.
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[Any, Any]) -> Ledger:
        return Ledger([copy.deepcopy(entry, memo) for entry in self])


def _changing(name: str) -> Any:
    method = getattr(dict, name)

    def change(self: Entry, *args: Any, **kwargs: Any) -> Any:
        self.text = None
        return method(self, *args, **kwargs)

    return change


class Entry(dict[str, Any]):
    """An entry that is encoded once, however often the ledger is saved that it is in.

    What is in it does not change in place; its own keys may. A copy of it is a plain dictionary.

    Examples
    --------
    >>> entry = Entry({"action": "allow"})
    >>> entry.json_text(), entry.text
    ('{"action":"allow"}', '{"action":"allow"}')
    >>> mark_late_fault(entry, "fair", "error")
    >>> entry.text is None
    True
    """

    __slots__ = ("text",)

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(facts)
        self.text: str | None = None

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
        """Return the entry as JSON text."""
        if self.text is None:
            self.text = encode(self)
        return self.text


class State(dict[str, Any]):
    """The state of a layer: its text is put together from those of its parts.

    Snapshots share the ledger's entries; a copy that somebody asks for is a plain dictionary.

    Examples
    --------
    >>> State({"ledger": Ledger([Entry({"n": 1}), {"n": 2}]), "pendingAsync": []}).json_text()
    '{"ledger":[{"n":1},{"n":2}],"pendingAsync":[]}'
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[Any, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)

    def snapshot(self) -> State:
        """Return a copy that shares the entries, which stay as they were written but for faults that are known later."""
        made, ledger, waiting = State(self), self.get("ledger"), self.get("pendingAsync")
        if len(made) == 2 and type(ledger) is Ledger and type(waiting) is list:  # of an execution, as most
            made["ledger"], made["pendingAsync"] = Ledger(ledger), deep_copy(waiting) if waiting else []
            return made
        for key, value in self.items():
            kind = type(value)
            if kind is Ledger:
                made[key] = Ledger(value)
            elif kind is list:
                made[key] = deep_copy(value) if value else []
            elif kind is not str:
                made[key] = deep_copy(value)
        return made

    def as_late(self) -> LateLedger | None:
        """Return the state in the form that is kept where nobody looks at it; None with a verdict that waits, or more parts."""
        ledger, waiting = self.get("ledger"), self.get("pendingAsync")
        if len(self) == 2 and type(ledger) is Ledger and type(waiting) is list and not waiting:
            return LateLedger(tuple(ledger), waiting)
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def json_text(self) -> str:
        """Return the state as JSON text, to the byte what an encoder makes of it."""
        parts = []
        for key, value in self.items():
            if type(key) is not str:  # somebody else's, which JSON turns into text
                return encode(self)
            if type(value) is Ledger:
                rows = [(entry.text or entry.json_text()) if type(entry) is Entry else encode(entry) for entry in value]
                parts.append(f"{_text_of(key)}:[{','.join(rows)}]")
            else:
                parts.append(f"{_text_of(key)}:{_text_of(value) if type(value) is str else encode(value)}")
        return f"{{{','.join(parts)}}}"


class LateLedger(LateState):
    """The state of an execution in which nothing has happened but decisions that let pass: its entries are made when it is."""

    __slots__ = ("pending", "rows")

    def __init__(self, rows: tuple[Any, ...], pending: list[Any]) -> None:
        self.rows = rows
        """Entries, or what `late_entry` returned of them."""
        self.pending = pending
        """The live list of verdicts that wait: empty when this was written."""

    def size(self, size_of: Callable[[Any], int]) -> int:
        """Return about how many bytes it takes, with the arguments that an entry is about: they may outlive the log."""
        size = _ROW_BYTES * len(self.rows)
        for row in self.rows:
            if type(row) is not tuple:
                size += size_of(row)
            elif row[0] == "tool_call":
                size += len(row[2]) + size_of(row[3])
        return size

    def longer(self, row: tuple[Any, ...], most: int) -> LateLedger:
        """Return the state with one more entry; of more than `most` the oldest goes."""
        rows = self.rows + (row,)  # noqa: RUF005 - in half the time, at every decision
        return LateLedger(rows if len(rows) <= most else rows[len(rows) - most :], self.pending)

    def made(self) -> State:
        """Return the state with the live list."""
        return State({"ledger": Ledger(map(_made_entry, self.rows)), "pendingAsync": self.pending})

    def as_written(self) -> State:
        """Return the state as it was, when nothing waited."""
        return State({"ledger": Ledger(map(_made_entry, self.rows)), "pendingAsync": []})


# The calls of earlier turns are one text, which stands in several states before a call is added.
_text_of: Final = lru_cache(maxsize=MAX_TEXTS)(encode)


def decision_entry(
    params: BeforeToolCallParams | AfterModelCallParams,
    decision: SteeringDecision,
    duration_ms: float,
    *,
    faults: Sequence[tuple[str, str]] = (),
    blocked: bool = False,
) -> LedgerEntry:
    """Return the entry of one evaluation.

    Parameters
    ----------
    params : BeforeToolCallParams or AfterModelCallParams
        What was judged.
    decision : SteeringDecision
        What came of it.
    duration_ms : float, milliseconds
        How long it took.
    faults : sequence of tuple
        The id of each rule that failed, and the reason.
    blocked : bool
        Whether nothing else could run meanwhile: if it took long, it is marked as slow.

    References
    ----------
    .. [1] docs/behaviour/steering.md, "Ledger".
    """
    kind, now, first, second, _ = late_entry(params, duration_ms)
    entry = _first_facts(kind, now, first, second, decision.action._value_)
    if decision is not ALLOW:  # which has neither, as most decisions
        if decision.guidance is not None:
            entry["guidance"] = decision.guidance
        if decision.rule_ids:
            # One id for readers of the wire form, all of them for those who look closer.
            entry["ruleId"] = decision.rule_ids[0]
            entry["ruleIds"] = list(decision.rule_ids)
    entry["durationMs"] = duration_ms
    if faults:
        entry["faults"] = [{"ruleId": rule_id, "reason": reason} for rule_id, reason in faults]
    if blocked and duration_ms > SLOW_MS:
        entry["slow"] = True  # no timeout could have stopped it either
    return entry


def late_entry(params: BeforeToolCallParams | AfterModelCallParams, duration_ms: float) -> tuple[Any, ...]:
    """Return what the entry of a decision that lets pass is made of, for a `LateLedger`."""
    now = params.ctx.clock.now_ms()
    if isinstance(params, BeforeToolCallParams):
        return (
            "tool_call",
            now,
            params[0],
            params[1],
            duration_ms,
        )  # itself: each look at `tool_args` would be one more copy
    return response_row(params.response, now, duration_ms)


def response_row(response: ModelResponse, now_ms: float, duration_ms: float) -> tuple[Any, ...]:
    """Return the same of a response."""
    usage = response.usage
    return "model_turn", now_ms, usage.input_tokens, usage.output_tokens, duration_ms


def _first_facts(kind: str, now: float, first: Any, second: Any, action: str) -> LedgerEntry:
    """Return what every entry of a decision says."""
    if kind == "tool_call":
        return {"timestamp": now, "kind": kind, "toolName": first, "toolArgs": _copied(second), "action": action}
    return {"timestamp": now, "kind": kind, "tokenUsage": {"input": first, "output": second}, "action": action}


def _made_entry(row: Any) -> LedgerEntry:
    if type(row) is not tuple:
        found: LedgerEntry = row
        return found
    if len(row) == 2:
        return outcome_entry(*row)
    kind, now, first, second, duration_ms = row
    entry = _first_facts(kind, now, first, second, ALLOW.action._value_)
    entry["durationMs"] = duration_ms
    return entry


def outcome_entry(outcome: str, now_ms: float) -> LedgerEntry:
    """Return the entry of how an execution ended."""
    return {"kind": "custom", "timestamp": now_ms, "custom": {"outcome": outcome}}


def mark_late_fault(entry: LedgerEntry, rule_id: str, reason: str) -> None:
    """Note in an entry that a judge failed after the decision; what was decided stays as it is.

    Examples
    --------
    >>> entry = {"action": "allow"}
    >>> mark_late_fault(entry, "fair", "error")
    >>> entry["action"], entry["fault"], entry["ruleIds"]
    ('allow', 'error', ['fair'])
    """
    entry["fault"] = reason
    entry["faults"] = [*entry.get("faults", []), {"ruleId": rule_id, "reason": reason}]
    if rule_id not in entry.get("ruleIds", []):
        entry["ruleIds"] = [*entry.get("ruleIds", []), rule_id]
        entry.setdefault("ruleId", rule_id)


def _copied(args: Any) -> Any:
    """Return arguments that later changes do not reach, as plain data; what is no JSON data is kept as text."""
    kind = type(args)
    if kind is FrozenDict:  # as the runtime gives them: nothing in them needs to be checked
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
