"""The tool calls of earlier turns, as a steering layer of a wider scope remembers them: text, one call a line.

A turn loads and saves them and most rules never look: text is copied for nothing and read when a rule wants a history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, overload

from noetic_nb.items import thaw
from noetic_nb.memory._enforcement.call_history import PENDING
from noetic_nb.memory.params import PastCall
from noetic_nb.steering._ledger import Ledger
from noetic_nb.steering._predicates.bindings import MAX_HISTORY

# A sequence rule over a thread looks this far back; of all but the latest `MAX_HISTORY` names and ends only, some 60 KB.
MAX_CALLS: Final = 1_000
# Characters of what a call of an earlier turn returned: enough to know it by.
MAX_SAVED_OUTPUT: Final = 200
_FIELDS: Final = ("callId", "executionId", "args", "output")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./-]+")


def rows_of(calls: Sequence[PastCall]) -> Ledger:
    """Return calls that have ended as they are saved."""
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
    """Return the calls of earlier turns out of a state, whichever version wrote it."""
    if state is None:
        return ""
    # A list, until it became too long to be copied at every write.
    text: str = state["earlier"] if "earlier" in state else "\n".join(map(_line, state.get("calls", ())))
    return text


def appended(text: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the calls with some more: the newest `MAX_CALLS`, the older of them by name and end only."""
    if not rows:
        return text
    lines = [*without(text, rows).splitlines(), *map(_line, rows)][-MAX_CALLS:]
    # Those further back are short already: only what this has pushed behind the border is read.
    border = max(0, len(lines) - MAX_HISTORY)
    for at in range(max(0, border - len(rows)), border):
        call = _call(lines[at])
        lines[at] = _line({"name": call.name, "status": call.status})
    return "\n".join(lines)


def without(text: str, calls: Sequence[Any]) -> str:
    """Leave out the calls of executions that some others are of: a child may have saved them before."""
    ids = {call.execution_id if isinstance(call, PastCall) else call.get("executionId") for call in calls} - {"", None}
    # Looked for in the text as a whole, as there are none but after a child.
    if not any(json.dumps(execution_id) in text for execution_id in ids):
        return text
    return "\n".join([line for line in text.splitlines() if _call(line).execution_id not in ids])


def _line(row: Mapping[str, Any]) -> str:
    """Return a call as a line without needless quotes, each of which is escaped when the state is saved."""
    short = [row["name"], row["status"]]
    if len(row) > len(short):
        return json.dumps([*short, *[row.get(key) for key in _FIELDS]], separators=(",", ":"))
    return " ".join(short) if _PLAIN.fullmatch(short[0]) else json.dumps(short)


@lru_cache(maxsize=4 * MAX_CALLS)  # the calls of a few threads, of which a turn adds one or two
def _call(line: str) -> PastCall:
    """Return the call of a line; raises `TypeError` where the line is damaged."""
    try:
        row: Any = json.loads(line) if line.startswith("[") else line.split(" ")
        name, status, call_id, execution_id, args, output = row if len(row) > 2 else (*row, "", "", {}, None)
        return PastCall(name, args or {}, call_id or "", status, output, execution_id or "")
    except (ValueError, TypeError) as exc:
        raise TypeError(f"The stored calls of the steering layer are damaged: {line!r:.200}.") from exc


class ThreadHistory(Sequence[PastCall]):
    """The calls of earlier turns and those of this one, read when a rule looks."""

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
