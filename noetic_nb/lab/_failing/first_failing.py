"""A proposal where to look first in a run that failed, made of evidence in the run, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ErrorRaised
from noetic_nb.lab._failing.failure_signs import (
    changes_of_wish,
    contradictions,
    in_the_way,
    not_read,
    not_recovered,
    repeated,
    unanswered,
)
from noetic_nb.lab._failing.steps import Evidence, Thread, threads_of
from noetic_nb.lab._recorded_calls import RecordedCall, calls_of, schemas_of
from noetic_nb.lab._rule_backtest import Trials
from noetic_nb.memory._steering_decision import SteeringAction
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.redact import redact_text
from noetic_nb.runs import Run

_READINGS: Final = (contradictions, in_the_way, not_recovered, repeated, not_read, unanswered)
_WEAK: Final = "the user changes the wish"
"""What good runs have as often: it counts where there is nothing else."""


class FirstFailure(NamedTuple):
    """The step of a run at which to look first.

    Attributes
    ----------
    turn : int
        Its turn.
    item : int
        Its place in the log of the thread.
    call : int or None
        Its place among the tool calls of the run, as in ``to_frame("tools")``; None for a text.
    reason : str
        The kind of evidence: ``"a rule broken"``, ``"an argument of no origin"``, ``"an argument that does not fit"``,
        ``"contradicts a result"``, ``"in the way of a later call"``, ``"the user objects"``, ``"an error ignored"``,
        ``"a repeated call"``, ``"a write before a read"``, ``"no answer"``, ``"an error"``; where there is none of these,
        ``"the user changes the wish"``.
    evidence : str
        What is seen there, in words; secrets replaced.
    thread_id : str
        Its thread.
    """

    turn: int
    item: int
    call: int | None
    reason: str
    evidence: str
    thread_id: str


def first_failure(run: Run, *, rules: Any = None, tools: Any = None) -> FirstFailure | None:
    """Propose the first failing step of a run, from evidence in the run, without a model.

    Parameters
    ----------
    run : Run
        A run that went wrong; it is not asked whether it did.
    rules : RuleBook or iterable of rules, optional
        Calls that they would deny are evidence. Judges are not asked.
    tools : iterable of tools, or mapping of names to schemas, optional
        Calls of other tools, and arguments that do not fit, are evidence.

    Returns
    -------
    FirstFailure or None
        The earliest step with evidence: a call, a text of the agent, or words of the user. None where there is none, which says
        nothing about the run.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUN``; ``INVALID_TOOL``; those of rules.

    Notes
    -----
    Rewards, outcomes and expected actions are not read. Whether a tool changes something is told by the first word of its name.
    How often it is right: docs/studies/first_failure.md.

    Examples
    --------
    >>> import json
    >>> import noetic_nb as nn
    >>> call = {"id": "c1", "type": "function", "function": {"name": "list_sizes", "arguments": "{}"}}
    >>> sizes = [{"size": size, "available": size != "S"} for size in ("S", "M", "L", "XL")]
    >>> run = nn.import_run([
    ...     {"role": "user", "content": "How many sizes are there?"},
    ...     {"role": "assistant", "tool_calls": [call]},
    ...     {"role": "tool", "tool_call_id": "c1", "content": json.dumps(sizes)},
    ...     {"role": "assistant", "content": "There are 5 sizes."},
    ... ])
    >>> found = first_failure(run)
    >>> found.item, found.reason
    (3, 'contradicts a result')
    """
    given: object = run
    if not isinstance(given, Run):
        raise NoeticConfigError(
            "INVALID_RUN", "A run is looked at.", given=run, hint="Pass a run, such as nn.load_run(path)."
        )
    recorded = {call.seq: call for call in calls_of(run) if isinstance(call.params, BeforeToolCallParams)}
    denied = _denied(run, rules)
    schemas = None if tools is None else schemas_of(tools)
    found = [
        FirstFailure(
            each.step.turn, each.step.item, each.step.place, each.reason, redact_text(each.text), thread.thread_id
        )
        for thread in threads_of(run)
        for each in _evidence(run, thread, recorded, denied, schemas)
    ]
    places = {thread_id: place for place, thread_id in enumerate(run.threads)}
    return min(found, key=lambda one: (one.reason == _WEAK, places[one.thread_id], one.item), default=None)


def _denied(run: Run, rules: Any) -> dict[int, str]:
    """Return why rules would deny calls, by the number of the event."""
    if rules is None:
        return {}
    trials = Trials(run)
    return {
        call.seq: f"{', '.join(result.decision.rule_ids)}: {result.decision.guidance or 'denied'}"
        for call, result in zip(trials.calls, trials.results(rules), strict=True)
        if result.decision.action is SteeringAction.DENY and call.point == "before_tool_call"
    }


def _evidence(
    run: Run,
    thread: Thread,
    recorded: Mapping[int, RecordedCall],
    denied: Mapping[int, str],
    schemas: Mapping[str, Any] | None,
) -> Iterator[Evidence]:
    for step in thread.calls:
        if step.seq in denied:
            yield Evidence(step, "a rule broken", denied[step.seq])
        if schemas is not None and (misfit := _misfit(step.name, step.args, schemas)):
            yield Evidence(step, "an argument that does not fit", misfit)
        call = recorded.get(step.seq)
        if step.writes and not step.failed and call is not None and isinstance(call.params, BeforeToolCallParams):
            params = call.params
            made_up = [
                name
                for name in sorted(step.names)
                if thread.first_said.get(name.strip("#").casefold(), step.item) >= step.item
                and params.origin(name).kind == "model"
            ]
            if made_up:
                yield Evidence(
                    step, "an argument of no origin", f"Nobody wrote {made_up[0]!r} before the call of {step.name}."
                )
    for reading in _READINGS:
        yield from reading(thread)
    yield from changes_of_wish(thread)
    for error in run.select(ErrorRaised):
        last = [step for step in thread.steps if step.turn == error.where.turn]
        if error.where.thread_id == thread.thread_id and last:
            yield Evidence(last[-1], "an error", f"The turn ended with it: {error.message}")


def _misfit(name: str, args: Any, schemas: Mapping[str, Any]) -> str:
    if name not in schemas:
        return f"There is no tool {name!r}."
    schema: Mapping[str, Any] = schemas[name] or {}
    names: Iterable[str] = args if isinstance(args, Mapping) else ()
    missing = [key for key in schema.get("required", ()) if key not in names]
    unknown = [key for key in names if key not in schema["properties"]] if "properties" in schema else []
    if schema.get("additionalProperties"):
        unknown = []
    said = [f"{name} lacks {', '.join(missing)}."] if missing else []
    return " ".join([*said, *([f"{name} has no {', '.join(unknown)}."] if unknown else [])])
