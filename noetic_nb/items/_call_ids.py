"""Call ids that name one call each, even where a server repeats ids.

Servers that imitate an API may count their calls from 1 in every answer, or give calls side by side one id. Outputs are
paired with their calls by id, so the second call of an id would lose its output, or get that of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from noetic_nb.items._item import Item

_CALL: Final = "function_call"
_OUTPUT: Final = "function_call_output"


def with_own_call_ids(items: Sequence[Item], is_taken: Callable[[str], bool] = lambda call_id: False) -> Sequence[Item]:
    """Return frozen items in which every call has an id that no other call has; the same sequence where that is so already.

    A repeated id, also one that `is_taken` knows from before, gets a count behind it, ``call_1~2``, and the call keeps the
    server's own under ``serverCallId``. A call without any gets that of its item. Outputs, each behind its call, follow their
    calls: those of one answer in the order of its calls.
    """
    calls: list[Any] = [item.get("callId") for item in items if item["type"] == _CALL]
    # Nearly always: every answer and every message passes here.
    if not calls or (len(set(calls)) == len(calls) and all(calls) and not any(map(is_taken, calls))):
        return items
    used: set[str] = set()
    # By the id that the server gave: the calls that have no output yet, each with the answer it is part of.
    waiting: dict[str, list[tuple[int, str]]] = {}
    made: list[Item] = []
    answer, changed, in_calls = 0, False, False
    for item in items:
        kind = item["type"]
        if kind == _CALL:
            answer += not in_calls
            given = item.get("callId") or item.get("id") or "call"
            own, count = given, 1
            while own in used or is_taken(own):
                count += 1
                own = f"{given}~{count}"
            used.add(own)
            waiting.setdefault(given, []).append((answer, own))
            if own != given:
                item = Item({**item, "callId": own, "serverCallId": given})
            elif item.get("callId") != own:
                item = Item({**item, "callId": own})
        elif kind == _OUTPUT and (open_calls := waiting.get(item.get("callId") or "")):
            # The last answer that waits, as an earlier one may have been left without outputs.
            latest = open_calls[-1][0]
            place = next(place for place, (number, _) in enumerate(open_calls) if number == latest)
            own = open_calls.pop(place)[1]
            if item["callId"] != own:
                item = Item({**item, "callId": own})
        in_calls = kind == _CALL
        changed = changed or item is not items[len(made)]
        made.append(item)
    return tuple(made) if changed else items
