"""A call under other budgets: where its sliders stand, and what they change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs._plain_text import count, plain
from noetic_nb.runs._requests.model_calls import Calls, CallShare
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runtime._planning.plan_inputs import ItemChange, plan_difference
from noetic_nb.widgets._allocation.allocation_picture import call_data
from noetic_nb.widgets._allocation.call_items import words_of

# As many as are read at a glance while a slider moves; all are counted.
CHANGES_SHOWN: Final = 12


def settings_of(request: RecordedRequest, calls: Calls) -> dict[str, Any]:
    """Return where the sliders of a call stand: each layer's least and most tokens, the total and the reserve.

    None is no limit; `most` is where the sliders end. Raises `NoeticConfigError` ``NOT_RECORDED``.
    """
    inputs, view = request.inputs, request.view
    assert view is not None
    finite = [number for _, low, high in inputs.limits for number in (low, high) if number != math.inf]
    size = view.total if view.total != math.inf else request.plan.total_tokens + view.reserve
    whole = inputs.log.tokens + view.system + view.tools + sum([layer.used for layer in view.layers]) + view.reserve
    most = max(100.0, 1.5 * size if size >= whole else min(1.2 * whole, 4 * max(size, 1.0)), *finite)
    return {
        "layers": [
            [calls.number(layer_id), plain(layer_id), low, None if high == math.inf else high]
            for layer_id, low, high in inputs.limits
        ],
        "total": None if view.total == math.inf else view.total,
        "reserve": None if view.reserve == math.inf else view.reserve,
        "most": _step(most),
    }


def _step(number: float) -> int:
    """Return a round number of at least this."""
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return int(math.ceil(number / unit) * unit)


def what_if_data(request: RecordedRequest, calls: Calls, share: CallShare, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the picture of a call under other budgets, with the items that would be dropped or come back.

    `asked` has ``budgets``, pairs of numbers by the place of the layer in `settings_of`, ``total`` and ``reserve``; None
    is no limit, what is left out stays as it was.
    """
    inputs, view = request.inputs, request.view
    assert view is not None
    budgets = {}
    given = asked.get("budgets")
    for place, limits in given.items() if isinstance(given, dict) else ():
        known = [layer_id for layer_id, _, _ in inputs.limits]
        if not place.isdecimal() or int(place) >= len(known) or not isinstance(limits, list) or len(limits) != 2:
            raise NoeticConfigError("INVALID_BUDGET", "No layer has this budget.", given=given)
        budgets[known[int(place)]] = (limits[0], math.inf if limits[1] is None else limits[1])
    changes: dict[str, Any] = {name: asked[name] for name in ("total", "reserve") if name in asked}
    changes = {name: math.inf if number is None else number for name, number in changes.items()}
    plan = inputs.replan(budgets=budgets, **changes)
    difference = plan_difference(inputs, request.plan, plan)
    again = plan.as_event(view.where, view.t_ms, view.step, view.projection, view.appended, view.duration_ms)
    data = call_data(calls.share(again, share.call), calls.order)
    return {
        "picture": data,
        "dropped": _changes("would be left out", difference.dropped),
        "returned": _changes(
            "would be sent again" if difference.returned else "would be sent as well", difference.returned
        ),
    }


def _changes(what: str, changes: Sequence[ItemChange]) -> dict[str, Any]:
    items = f"{len(changes)} item{'' if len(changes) == 1 else 's'}"
    head = f"{items} {what}, {count(sum([change.tokens for change in changes]))} tokens" if changes else ""
    # Of history the newest matter most.
    shown = [*[c for c in changes if c.origin != "history"], *[c for c in changes if c.origin == "history"][::-1]]
    return {
        "head": head,
        "items": [
            [
                "history" if change.origin == "history" else plain(change.origin.replace("layer:", "", 1)),
                words_of(change.item),
                count(change.tokens),
                change.position if change.origin == "history" else None,
            ]
            for change in shown[:CHANGES_SHOWN]
        ],
        "more": max(0, len(changes) - CHANGES_SHOWN),
    }
