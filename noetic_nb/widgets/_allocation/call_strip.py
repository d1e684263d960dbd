"""The strip of all calls: a thin stacked bar each, or for several together where there are many.

A page grows the strip by the same rule from what each new call adds, so that a message does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noetic_nb.runs._requests.model_calls import Calls, leaves_out

MOST_BARS: Final = 200


def bar_of(calls: Calls, at: int) -> list[Any]:
    """Return the bar of a call in the strip: tokens sent, items left out, and the tokens of each part by its key."""
    return _bar_of(calls, range(at, at + 1))[1:]


def new_strip(first: int = 0, size: int = 1) -> dict[str, Any]:
    """Return an empty strip from a call on; `size` calls share a bar."""
    return {"first": first, "size": size, "bars": []}


def add_bar(strip: dict[str, Any], bar: Sequence[Any]) -> None:
    """Add a call to a strip; where it would have too many bars, each two become one.

    A bar is the number of its calls, the most tokens one of them sent, the items they left out, and the tokens of each part.

    Examples
    --------
    >>> strip = new_strip()
    >>> for call in range(401):
    ...     add_bar(strip, [call, 0, [["history", call]]])
    >>> strip["size"], len(strip["bars"]), strip["bars"][0], strip["bars"][-1]
    (4, 101, [4, 3, 0, [['history', 6]]], [1, 400, 0, [['history', 400]]])
    """
    bars = strip["bars"]
    if len(bars) == MOST_BARS and bars[-1][0] == strip["size"]:
        bars[:] = [_joined(bars[at], bars[at + 1]) for at in range(0, MOST_BARS, 2)]
        strip["size"] *= 2
    one = [1, *bar]
    if bars and bars[-1][0] < strip["size"]:
        bars[-1] = _joined(bars[-1], one)
    else:
        bars.append(one)


def _joined(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    parts = dict(map(tuple, one[3]))
    for key, tokens in other[3]:
        parts[key] = parts.get(key, 0) + tokens
    return [one[0] + other[0], max(one[1], other[1]), one[2] + other[2], [[key, parts[key]] for key in parts]]


def strip_of(calls: Calls, first: int, last: int) -> dict[str, Any]:
    """Return the strip of some calls, the last included: the same as call by call, but in one go.

    Examples
    --------
    >>> strip_of(Calls(), 0, -1)
    {'first': 0, 'size': 1, 'bars': []}
    """
    shown, size = range(len(calls.all))[first : last + 1], 1
    while len(shown) > MOST_BARS * size:
        size *= 2
    strip = new_strip(first, size)
    strip["bars"] = [_bar_of(calls, shown[at : at + size]) for at in range(0, len(shown), size)]
    return strip


def _bar_of(calls: Calls, places: range) -> list[Any]:
    most = out = 0
    parts: dict[str | int, int] = {}
    number = calls.numbers()
    # Tens of thousands, when a long run is opened: read from what was sent, before it is a `CallShare`.
    for at in places:
        view = calls.all.views[at]
        sent = 0
        named: list[tuple[str | int, int]] = [(number[layer.layer_id], layer.used) for layer in view.layers]
        for key, tokens in (
            ("system", view.system), ("tools", view.tools), *named, ("framing", view.framing), ("history", view.history),
        ):  # fmt: skip
            sent += tokens
            if tokens > 0:
                parts[key] = parts.get(key, 0) + round(tokens)
        if sent > most:
            most = sent
        if leaves_out(view):
            out += calls.all[at].dropped[0]
    return [len(places), most, out, [[key, tokens] for key, tokens in parts.items()]]
