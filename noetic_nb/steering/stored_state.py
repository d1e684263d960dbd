"""The state of a steering layer as storage has it, checked before anything is made of it: others may have written there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.steering.ledger import LedgerEntry

__all__ = ["checked_ledger"]


def checked_ledger(stored: Any, key: str) -> list[LedgerEntry]:
    """Return the ledger of a stored state, all of which is looked through.

    Parameters
    ----------
    stored : JSON data
        What was read.
    key : str
        Where from, for the error.

    Raises
    ------
    NoeticError
        ``storage_failed``, with ``layer_id`` and ``key``, if it is not the state of a steering layer.

    Examples
    --------
    >>> checked_ledger({"ledger": [{"timestamp": "noon"}]}, "layers/steering/t1/state")
    Traceback (most recent call last):
    ...
    noetic_nb.errors.NoeticError: The stored state of layer 'steering' is damaged: ledger[0].timestamp is no finite number...
    """
    problem = _problem(stored)
    if problem is not None:
        # Rules fail closed: a layer whose past cannot be read must not begin with an empty one.
        raise NoeticError(
            "storage_failed",
            f"The stored state of layer 'steering' is damaged: {problem}",
            given=stored,
            hint=f"Repair or delete the key {key!r}; nothing was changed.",
            layer_id="steering",
            key=key,
        )
    ledger: list[LedgerEntry] = stored["ledger"]
    return ledger


# What the layer reads of its records; all else in them is kept as it is.
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
    "number": ("finite number", lambda value: _is_number(value)),
    "texts": ("list of texts", lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value)),
    "records": ("list of objects", lambda value: isinstance(value, list) and all(isinstance(v, dict) for v in value)),
    "object": ("object", lambda value: isinstance(value, dict)),
}
# As deep as items and events may be nested.
_MAX_DEPTH: Final = 200


def _problem(stored: Any) -> str | None:
    if not isinstance(stored, dict):
        return "it is no object"
    if _depth(stored) > _MAX_DEPTH:
        return f"it is nested more than {_MAX_DEPTH} deep"
    if "ledger" not in stored:
        return "`ledger` is missing"
    if not isinstance(stored.get("earlier", ""), str):
        return "earlier is no text"
    for name, (required, known) in _RECORDS.items():
        records = stored.get(name, [])
        if not isinstance(records, list):
            return f"{name} is no list"
        for place, record in enumerate(records):
            # A dict, as JSON gives it: this is done for every entry of a ledger at every turn, and a mapping is found slowly.
            if not isinstance(record, dict):
                return f"{name}[{place}] is no object"
            for key in required:
                if key not in record:
                    return f"{name}[{place}].{key} is missing"
            for key, value in record.items():
                kind = known.get(key)
                # None stands for an output or arguments that nobody knows.
                if kind is None or (value is None and key not in required):
                    continue
                wanted, holds = _WANTED[kind]
                if not holds(value):
                    return f"{name}[{place}].{key} is no {wanted}"
    return None


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _depth(value: Any) -> int:
    # No recursion: the data may be nested deeper than the interpreter can call.
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
