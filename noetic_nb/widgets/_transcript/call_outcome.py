"""The outcome of one model call, in order: answer, tool calls, and all decisions about them; and its labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    ContextCompacted,
    ErrorRaised,
    ModelCalled,
    RegulatorDecided,
    SteeringDecided,
    ToolCalled,
)
from noetic_nb.items import Item, item_text
from noetic_nb.items._json_text import compact_json
from noetic_nb.runs import Run
from noetic_nb.runs._labelled import agent_calls, visible_labels
from noetic_nb.runs._labels import codebook_of
from noetic_nb.runs._plain_text import (
    NAME_LENGTH,
    OPAQUE,
    TEXT_LENGTH,
    compaction_parts,
    count,
    heading_words,
    is_opaque,
    plain,
    sendable,
)
from noetic_nb.runs._regulation.decision_words import decision_detail, decision_label
from noetic_nb.runs._requests.recorded_requests import CallRecord, Outcome, requests_of

# The digit keys.
MOST_VALUES: Final = 9


def names_for(run: Any, by: Any, of: str) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
    """Return the values that a rater can give to parts of a kind by keys, by name, and the same for a page.

    Raises `NoeticConfigError` ``NO_CODEBOOK``.
    """
    book = codebook_of(run.meta, run._label_store.path) if isinstance(run, Run) else None
    found = {name: code for name, code in (book or {}).items() if code.of in (None, of) and code.values}
    if not found or not isinstance(by, str) or not by.strip():
        hint = (
            f"run.meta['codebook'] = {{'verdict': {{'values': ['right', 'wrong'], 'of': {of!r}}}}}, or codebook.json."
        )
        raise NoeticConfigError(
            "NO_CODEBOOK", f"Each {of} is labelled by a named rater with the values of a codebook.", given=by, hint=hint
        )
    names = [
        {
            "name": plain(name),
            "description": plain(code.description, TEXT_LENGTH),
            "values": [plain(str(value)) for value in code.values[:MOST_VALUES]],
            "meanings": [plain(text, TEXT_LENGTH) for text in code.meanings[:MOST_VALUES]],
        }
        for name, code in found.items()
    ]
    return {name: list(code.values[:MOST_VALUES]) for name, code in found.items()}, names


class CallLabels:
    """The labels of one rater for the calls of a run; without a rater it only finds the first step to inspect."""

    def __init__(self, run: Any, by: str | None) -> None:
        self.run, self.by = run, by
        self.names: dict[str, list[Any]] = {}
        self.data: dict[str, Any] = {"looks": isinstance(run, Run)}
        if by is None:
            return
        self.names, names = names_for(run, by, "call")
        self.data |= {"by": plain(by), "names": names}

    def of(self, record: CallRecord) -> list[dict[str, Any]]:
        """Return, for each name, the rater's label of a call, the visible labels of others, and how many there are."""
        if self.by is None:
            return []
        shown, calls = visible_labels(self.run, self.by), sum(1 for _ in agent_calls(self.run))
        found = []
        for name, values in self.names.items():
            named = [label for label in shown if label.name == name and label.call is not None and label.item is None]
            here = [label for label in named if label.call == record.number]
            own = [label.value for label in here if label.by == self.by]
            others = [f"{plain(label.by)}: {plain(str(label.value))}" for label in here if label.by != self.by]
            value = next((at for at, each in enumerate(values) if own and _same(own[0], each)), None)
            done = sum(label.by == self.by for label in named)
            found.append({"own": value, "others": others, "done": f"{done} of {calls}"})
        return found

    def give(self, record: CallRecord, name: int, value: int | None) -> list[dict[str, Any]]:
        """Label a call with a value, given as an index in the codebook (None removes it); returns its labels."""
        named = list(self.names)[name]
        self.run.label(named, None if value is None else self.names[named][value], call=record.number, by=self.by)
        return self.of(record)

    def first_look(self) -> dict[str, Any]:
        """Return a description of the first step to inspect, and the selection that shows it."""
        from noetic_nb.lab import first_failure  # most runs are never asked for this

        found = first_failure(self.run)
        if found is None:
            return {"text": "No evidence in the run; that says nothing about it.", "fields": None}
        fields = {"thread_id": sendable(found.thread_id), "turn": found.turn, "item": found.item}
        fields |= {"call": self._call_with(found.thread_id, found.item), "decision": None}
        return {"text": f"{found.reason}: {plain(found.evidence, TEXT_LENGTH)}", "fields": fields}

    def _call_with(self, thread_id: str, item: int) -> int | None:
        """Return the first call whose request can have an item, which is the next call, or else the last of the thread."""
        calls = {id(event): number for number, event in agent_calls(self.run)}
        here = [one for one in requests_of(self.run).requests if one.where.thread_id == thread_id and one.called]
        have = [one for one in here if one.known is not None and one.first <= item < one.first + len(one.known)]
        return calls[id((have or here[-1:])[0].called)] if here else None


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


_ACTIONS: Final = {"allow": "allowed", "guide": "guided", "deny": "denied", "ask": "asked a person"}
_FINISHED: Final = {
    "length": "cut off at its length",
    "content_filter": "cut off by a content filter",
}


@dataclass(frozen=True, slots=True)
class OutcomeLine:
    """One line of an outcome: its kind, title and text."""

    kind: str
    """``message`` (or another kind of item), ``call``, ``result``, ``steering``, ``regulator``, ``compaction``, ``fault``."""
    tone: str
    """How it ended: an action of steering, ``stop``, ``warn``, ``error``, ``ok``; empty if it has no outcome."""
    heading: str
    text: str = ""
    level: int = 0
    """1 for lines that belong to the tool call or the compaction above."""
    seq: int | None = None
    """The index of a decision or tool call among the events of the run."""
    is_quiet: bool = False
    """Whether it is a check that found nothing."""


def answer_headline(event: ModelCalled) -> str:
    """Describe the result of a model call in one line.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> answer_headline(ModelCalled(Where("t1", "e1", 1), 0.0, 0, "fast", "agent", 1234.0, "ok", (), 2000, 180))
    'fast answered after 1.23 s: 2,000 tokens in, 180 out'
    """
    model = plain(event.model)
    if event.status != "ok":
        how = "was cancelled" if event.status == "cancelled" else "failed"
        return f"{model} {how}{_after(event.duration_ms)}"
    sent = f"{count(event.input_tokens)} token{'s' * (event.input_tokens != 1)} in"
    parts = ((event.cached_tokens, "from the cache"), (event.cache_write_tokens, "written to it"))
    cached = ", ".join([f"{count(tokens)} {said}" for tokens, said in parts if tokens])
    cached = cached and f" ({cached})"
    thought = f" ({count(event.reasoning_tokens)} of reasoning)" if event.reasoning_tokens else ""
    end = _FINISHED.get(event.finish_reason or "")
    return (
        f"{model} answered{_after(event.duration_ms)}: {sent}{cached}, "
        f"{count(event.output_tokens)} out{thought}{'' if end is None else f', {end}'}"
    )


def _after(duration_ms: float | None) -> str:
    return "" if duration_ms is None else f" after {_duration(duration_ms)}"


def _duration(duration_ms: float) -> str:
    if duration_ms < 1:
        return "less than 1 ms"
    return f"{duration_ms:.0f} ms" if duration_ms < 1_000 else f"{duration_ms / 1_000:.3g} s"


LogItem: TypeAlias = Callable[[int], Item | None]


def _not_recorded(_position: int) -> None:
    return None


def previous_decisions(record: CallRecord, log_item: LogItem = _not_recorded) -> list[OutcomeLine]:
    """Return the decisions and compactions since the previous call, or since the start of the execution."""
    return list(_lines(record.before, set(), log_item))


def outcome_lines(record: CallRecord, log_item: LogItem = _not_recorded) -> list[OutcomeLine]:
    """Return the answer with its decisions, then each tool call with its decisions and its result."""
    event = record.event
    lines = []
    if event.error:
        lines.append(OutcomeLine("fault", "error", "Error", event.error))
    calls = {}
    for item in event.items:
        kind = item["type"]
        if kind == "function_call":
            calls[item.get("callId")] = item
            continue
        text = OPAQUE if is_opaque(item) else item_text(item) or ("" if kind == "message" else compact_json(item))
        lines.append(OutcomeLine(kind, "", "" if kind == "message" else plain(kind.replace("_", " ")), text))
    made = {outcome.call_id for _, outcome in record.after if isinstance(outcome, ToolCalled)}
    lines += _lines(record.after, set(calls), log_item)
    for call_id, item in calls.items():
        if call_id not in made:
            lines.append(OutcomeLine("call", "", _name(item.get("name")), str(item.get("arguments") or "")))
            lines.append(OutcomeLine("result", "", "Not run, as far as is recorded", level=1))
    return lines


def _lines(outcomes: Iterable[tuple[int, Outcome]], asked: set[Any], log_item: LogItem) -> Iterator[OutcomeLine]:
    """Yield outcomes, with decisions about a tool call after its title; `asked` are the calls requested by the model."""
    waiting: list[OutcomeLine] = []
    level = 0
    for seq, outcome in outcomes:
        if isinstance(outcome, ToolCalled):
            by = "" if outcome.call_id in asked else " (called by code)"
            args = outcome.raw_args if outcome.args is None else outcome.args
            text = "" if args is None else compact_json(args)
            yield OutcomeLine("call", "", f"{_name(outcome.name)}{by}", text, seq=seq)
            yield from waiting
            waiting, level = [], 1
            yield _result(outcome)
        elif isinstance(outcome, SteeringDecided):
            line = _steering(seq, outcome, level=1 if outcome.hook == "before_tool_call" else 0)
            if line.level:
                waiting.append(line)
            else:
                yield line
        elif isinstance(outcome, RegulatorDecided):
            is_of_call = outcome.at == "tool_call"
            # Decisions come before and after a call; waiting ones belong to the next call.
            if is_of_call and waiting:
                waiting.append(_regulator(seq, outcome, level=1))
            else:
                yield _regulator(seq, outcome, level=level if is_of_call else 0)
        elif isinstance(outcome, ContextCompacted):
            yield OutcomeLine("compaction", "", heading_words(outcome))
            for heading, text in compaction_parts(outcome, log_item):
                yield OutcomeLine("compaction", "", heading, text, level=1)
        elif isinstance(outcome, ErrorRaised):
            yield OutcomeLine("fault", "error", f"Error: {_name(outcome.error_kind)}", outcome.message)
        else:
            yield OutcomeLine("fault", "warn", f"Warning: {_name(outcome.code)}", outcome.text)
    yield from waiting


def _result(event: ToolCalled) -> OutcomeLine:
    status = plain(str(event.status).replace("_", " "))
    took = "" if event.duration_ms is None else f", {_duration(event.duration_ms)}"
    tone = "ok" if event.status == "ok" else {"denied": "deny", "guided": "guide"}.get(event.status, "error")
    text = event.output if not event.error or event.error in event.output else f"{event.error}\n{event.output}"
    return OutcomeLine("result", tone, f"Result: {status}{took}", text, level=1)


def _steering(seq: int, event: SteeringDecided, *, level: int) -> OutcomeLine:
    action = _ACTIONS.get(event.action, str(event.action))
    rules = plain(", ".join(plain(rule) for rule in event.rule_ids), TEXT_LENGTH)
    parts = [plain(event.layer_id), plain(action), *([f"by {rules}"] if rules else [])]
    if not event.enforced:
        parts.append("(not enforced)")
    if event.outcome:
        parts.append(f"· {plain(event.outcome)}")
    quiet = event.action == "allow" and not event.rule_ids and not event.guidance and not event.outcome
    return OutcomeLine("steering", plain(event.action), " ".join(parts), event.guidance or "", level, seq, quiet)


def _regulator(seq: int, event: RegulatorDecided, *, level: int) -> OutcomeLine:
    label, detail = decision_label(event.decision), decision_detail(event.decision, event.suggestion)
    quiet = event.decision.get("kind") == "continue"
    tone = "stop" if event.stops else "allow" if quiet else "warn"
    notes = "".join([", the turn stops" if event.stops else "", "" if event.enforced else " (not enforced)"])
    text = detail if not event.suggestion or str(event.suggestion) in detail else f"{detail}\n{event.suggestion}"
    heading = f"{plain(event.layer_id)}: {label}{notes}"
    return OutcomeLine("regulator", tone, heading, text.strip(), level, seq, quiet)


def _name(value: object) -> str:
    return plain(value, NAME_LENGTH)
