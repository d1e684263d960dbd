"""The texts of layer states: rows, differences, whole states. Secrets are removed before comparing."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from noetic_nb.items import thaw
from noetic_nb.redact import MARGIN, clip_data, redact
from noetic_nb.runs._layer_states import Flow, Write
from noetic_nb.runs._plain_text import plain, plain_data, plain_line
from noetic_nb.widgets.base._text_diff import Parts, text_parts

# Lists with a larger product of lengths are only compared from both ends: more would take too long.
_MOST: Final = 250_000
# Deeper data is compared as a whole: Python allows about a thousand nested calls, recorded data is at most 200 deep.
_DEEPEST: Final = 100


class Change(NamedTuple):
    """One difference: path, kind, and both values; None for a missing side."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Any
    after: Any


def state_diff(before: Any, after: Any) -> list[Change]:
    """Return the differences between two states, in the order of the older one, additions in their places.

    Keys of mappings are matched by name, and list items by content; list items between two matches are paired by
    position. An index refers to the newer list, for removed items to the older one.

    Examples
    --------
    >>> for change in state_diff({"city": "Rome", "days": [1, 2]}, {"city": "Oslo", "days": [1, 5, 2], "pets": 0}):
    ...     print(*change)
    city changed Rome Oslo
    days[1] added None 5
    pets added None 0
    """
    return list(_between("", before, after, 0))


def _between(path: str, before: Any, after: Any, depth: int) -> Iterator[Change]:
    if _same(before, after):
        return
    if depth < _DEEPEST and isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in (*before, *[key for key in after if key not in before]):
            inside = _key(path, key)
            if key not in after:
                yield Change(inside, "removed", before[key], None)
            elif key not in before:
                yield Change(inside, "added", None, after[key])
            else:
                yield from _between(inside, before[key], after[key], depth + 1)
    elif depth < _DEEPEST and _is_list(before) and _is_list(after):
        yield from _items(path, before, after, depth)
    else:
        yield Change(path, "changed", before, after)


def _items(path: str, before: Sequence[Any], after: Sequence[Any], depth: int) -> Iterator[Change]:
    old, new = [_name(item) for item in before], [_name(item) for item in after]
    start, stop, shorter = 0, 0, min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    while stop < shorter - start and old[-1 - stop] == new[-1 - stop]:
        stop += 1
    left, right = old[start : len(old) - stop], new[start : len(new) - stop]
    if len(left) * len(right) > _MOST:
        codes = [("replace", 0, len(left), 0, len(right))]
    else:
        codes = list(difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
    for tag, a, b, c, d in codes:
        if tag == "equal":
            continue
        for at in range(max(b - a, d - c)):
            i, j = start + a + at, start + c + at
            if at >= d - c:
                yield Change(f"{path}[{i}]", "removed", before[i], None)
            elif at >= b - a:
                yield Change(f"{path}[{j}]", "added", None, after[j])
            else:
                yield from _between(f"{path}[{j}]", before[i], after[j], depth + 1)


def _key(path: str, key: Any) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key, ensure_ascii=False, default=str)}]"


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _name(value: Any) -> str:
    """Return a text that is the same for equal data."""
    return json.dumps(value, sort_keys=True, default=str) if _is_nested(value) else f"{type(value).__name__} {value!r}"


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_list(value)


def _same(before: Any, after: Any) -> bool:
    if _is_nested(before) and _is_nested(after):
        return before is after
    if isinstance(before, float) and isinstance(after, float) and math.isnan(before):
        return math.isnan(after)
    # In Python `True == 1`, but they are different data.
    return isinstance(before, bool) is isinstance(after, bool) and bool(before == after)


KINDS: Final = {"added": "+", "removed": "−", "changed": "~"}
UNKNOWN_BEFORE: Final = "The first recorded state; the state before it is unknown."
FIRST_OF_CHILD: Final = "The state at the child's start."

# Characters of JSON: of a larger state only the beginning is compared, and its changes are not counted in lists.
COMPARED: Final = 100_000
COUNTED: Final = 20_000
# Limits: rows of a difference, and characters of a value in it, of a whole state and of its beginning in a list.
MOST_ROWS: Final = 200
VALUE_LENGTH: Final = 600
STATE_LENGTH: Final = 20_000
LINE_LENGTH: Final = 120

_BY: Final = {
    "init": "loaded",
    "edit": "edited by hand",
    "rewind": "carried into a fork",
    "seed": "begun anew",
    "on_spawn": "given by its parent",
    "on_return": "on_return of a child",
}


def by_words(hook: str) -> str:
    """Describe the hook that wrote a state.

    Examples
    --------
    >>> by_words("edit"), by_words("store")
    ('edited by hand', 'store')
    """
    return _BY.get(hook) or plain(hook)


def shown_state(state: Any, length: int = COMPARED) -> tuple[Any, bool]:
    """Return a state without its secrets, and whether it was cut to about `length` characters."""
    small, is_cut = clip_data(thaw(state), length + MARGIN)
    return redact(small), is_cut


def difference(before: Any, after: Any, length: int = COMPARED) -> tuple[list[Change], bool]:
    """Return the differences between two states without their secrets, and whether one of them was cut."""
    (old, old_cut), (new, new_cut) = shown_state(before, length), shown_state(after, length)
    return state_diff(old, new), old_cut or new_cut


def is_secret_change(before: Any, after: Any) -> bool:
    """Tell whether two states differ only in redacted parts.

    Examples
    --------
    >>> is_secret_change({"api_key": "a"}, {"api_key": "b"}), is_secret_change({"n": 1}, {"n": 2})
    (True, False)
    """
    return bool(before != after) and bool(shown_state(before)[0] == shown_state(after)[0])


def counts_of(write: Write) -> tuple[int, int, int] | None:
    """Return how many values a write added, removed and changed; None if unknown or too large to count."""
    if write.last is None or not write.changed:
        return None
    if write.counts is None:
        changes, is_cut = difference(write.last.event.state, write.event.state, COUNTED)
        kinds = [change.kind for change in changes]
        write.counts = (
            (-1, -1, -1) if is_cut else (kinds.count("added"), kinds.count("removed"), kinds.count("changed"))
        )
    return None if write.counts[0] < 0 else write.counts


def count_words(write: Write) -> str:
    if write.last is None:
        return "given" if write.is_child else "first recorded"
    if not write.changed:
        return "no change"
    counts = counts_of(write)
    if counts is None:
        return "a large state"
    signs = [f"{sign}{number}" for sign, number in zip(KINDS.values(), counts, strict=True) if number]
    return " ".join(signs) or "a secret"


def writer_words(write: Write) -> str:
    """Describe where a state was written."""
    where = write.event.where
    return by_words(write.event.hook) + (f", in child {plain(where.execution_id, 40)}" if write.is_child else "")


def state_line(state: Any) -> str:
    return "empty" if state is None else plain_line(plain_data(thaw(state), 4 * LINE_LENGTH), LINE_LENGTH)


def state_text(state: Any) -> tuple[str, bool]:
    r"""Return a state as indented JSON, and whether its end is missing.

    Examples
    --------
    >>> state_text({"city": "Rome"})[0]
    '{\n  "city": "Rome"\n}'
    """
    if state is None:
        return "empty", False
    small, is_cut = shown_state(state, STATE_LENGTH)
    text = json.dumps(small, indent=2, ensure_ascii=False, default=str)
    return plain(text, 2 * STATE_LENGTH), is_cut or len(text) > 2 * STATE_LENGTH


def change_rows(changes: list[Change]) -> list[tuple[str, str, Parts]]:
    """Return the first differences as rows: path, kind, and the values in parts."""
    return [
        (plain(change.path, 160) or "the whole state", change.kind, _parts(change)) for change in changes[:MOST_ROWS]
    ]


def _parts(change: Change) -> Parts:
    if change.kind == "changed" and isinstance(change.before, str) and isinstance(change.after, str):
        parts = text_parts(change.before, change.after)
    else:
        parts = []
        if change.kind != "added":
            parts.append(["-", _value(change.before)])
        if change.kind != "removed":
            parts.append(["+", _value(change.after)])
    return [[sign, plain(text, VALUE_LENGTH)] for sign, text in parts]


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def flow_texts(flow: Flow) -> tuple[str, str, str, str, str]:
    """Return a child's turn and name, the state it was given, its own state at the end, and the returned state."""
    started = flow.started
    if flow.dropped:
        given = "nothing: its step drops the layer"
    elif flow.given is Flow.NOTHING:
        given = "no state"
    else:
        given = state_line(flow.given)
    own = flow.own
    if own is None:
        left = "no state of its own is recorded"
    elif own.state == flow.given:
        left = "as it was given"
    else:
        left = state_line(own.state)
    ended = flow.ended
    if ended is None:
        back = "it has not ended" if not flow.dropped else ""
    elif flow.layer_id in ended.returned:
        back = "merged by on_return"
    else:
        back = "nothing was merged"
    child = plain(started.step_id) or plain(started.where.execution_id, 40)
    kind = f" ({plain(started.step_kind)})" if started.step_kind else ""
    return str(started.where.turn), f"{child}{kind}", given, left, back
