"""Facts and texts of a run, as an index keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from noetic_nb.events import ItemsAppended, ModelCalled, RegulatorDecided, SteeringDecided, ToolCalled
from noetic_nb.items import item_text
from noetic_nb.runs import Run

FACTS: Final[Mapping[str, str]] = {
    "run_id": "its name",
    "path": "its file; null where it has none",
    "place": "its place in the file, from 0",
    "source": "the format it was imported from",
    "task": "meta.task_id",
    "model": "of its last model call, else meta.model",
    "query": "the start of the user's first message",
    "turns": "how many",
    "threads": "how many",
    "model_calls": "how many",
    "tool_calls": "how many",
    "failed_calls": "tool calls that did not end well",
    "tools": "names of the tools that were called, sorted",
    "outcome": "true good, false failed, null unknown: the label on which raters agree, else meta.outcome",
    "cost": "US dollars",
    "tokens": "input and output tokens",
    "input_tokens": "of all model calls",
    "output_tokens": "of all model calls",
    "duration_ms": "of all turns",
    "decisions": "decisions of rules and regulators that let not everything pass, sorted",
    "denied": "calls and answers that rules denied",
    "labels": "of the whole run, by name",
    "meta": "short values of the run's meta, by key",
}
"""Names of the facts in an expression and in a frame."""
_MOST_TEXT: Final = 400
_MOST_POINTS: Final = 32


def facts_of(run: Run) -> dict[str, Any]:
    """Return the facts of a run but those of its place and labels; ``context`` and ``costs`` are the points of small pictures."""
    turns = run.turns
    calls = run.select(ModelCalled)
    tools = run.select(ToolCalled)
    rules = run.select(SteeringDecided)
    regulated = [str(event.decision.get("kind")) for event in run.select(RegulatorDecided)]
    decisions = {event.action for event in rules} - {"allow"} | set(regulated) - {"continue", "None"}
    inputs = _sum([turn.input_tokens for turn in turns])
    outputs = _sum([turn.output_tokens for turn in turns])
    return {
        "run_id": run.run_id,
        "source": run.meta.get("source"),
        "task": run.meta.get("task_id"),
        "model": calls[-1].model if calls else run.meta.get("model"),
        "query": turns[0].query[:_MOST_TEXT] if turns else "",
        "turns": len(turns),
        "threads": len(run.threads),
        "model_calls": len(calls),
        "tool_calls": len(tools),
        "failed_calls": sum([call.status != "ok" for call in tools]),
        "tools": sorted({call.name for call in tools}),
        "cost": run.cost(),
        "tokens": None if inputs is None or outputs is None else inputs + outputs,
        "input_tokens": inputs,
        "output_tokens": outputs,
        "duration_ms": _sum([turn.duration_ms for turn in turns]),
        "decisions": sorted(decisions),
        "denied": sum([event.action == "deny" for event in rules]),
        "meta": {
            str(key): value
            for key, value in run.meta.items()
            if value is None
            or isinstance(value, bool | int | float)
            or (isinstance(value, str) and len(value) <= _MOST_TEXT)
        },
        "context": _points([call.input_tokens for call in calls if call.purpose == "agent"]),
        "costs": _points(_growing([turn.cost for turn in turns])),
    }


def texts_of(run: Run) -> str:
    """Return all texts of a run: items of every log, and the name it has."""
    found = [item_text(item) for event in run.select(ItemsAppended) for item in event.items]
    return "\n".join([run.run_id, *found])


def _sum(values: Sequence[float | None]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _growing(values: Sequence[float | None]) -> list[float]:
    total, found = 0.0, []
    for value in values:
        total += value or 0.0
        found.append(total)
    return found if any(value is not None for value in values) else []


def _points(values: Sequence[float]) -> list[float]:
    """Return a few of many values, the last one among them."""
    step = max(1, -(-len(values) // _MOST_POINTS))
    return [round(value, 6) for value in values[::-1][::step][::-1]] if any(values) else []
