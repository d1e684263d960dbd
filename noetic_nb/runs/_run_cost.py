"""The cost of a run: that of its calls as recorded, else by the list of prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from noetic_nb.events import ContextCompacted, ModelCalled
from noetic_nb.models._client import Usage
from noetic_nb.models._pricing import cost_of


def cost_of_run(
    meta: Mapping[str, Any], calls: Iterable[ModelCalled], compactions: Iterable[ContextCompacted]
) -> float | None:
    """Return the cost in US dollars; see `Run.cost`."""
    calls, named = tuple(calls), meta.get("estimated")
    estimated = set(named) if isinstance(named, list | tuple) else set()  # of a file, it may be anything
    reported = meta.get("cost")
    if isinstance(reported, int | float) and not any(call.cost is not None for call in calls):
        return float(reported)
    is_counted = not {"input_tokens", "output_tokens"} & estimated

    def listed(event: ModelCalled | ContextCompacted, counts: Usage) -> float | None:
        return cost_of(counts, model=event.model or "", at_ms=None if "t_ms" in estimated else event.t_ms)

    costs = [
        call.cost if call.cost is not None or not is_counted else listed(call, Usage(*call.counts)) for call in calls
    ]
    costs += [listed(event, Usage(**event.usage)) for event in compactions if event.usage is not None]
    return None if None in costs else sum([cost for cost in costs if cost is not None], 0.0)
