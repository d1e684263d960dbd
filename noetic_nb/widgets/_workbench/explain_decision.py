"""The cause of a decision or call: its rules, the source of each argument, and the outcome without a rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RegulatorDecided, SteeringDecided, ToolCalled
from noetic_nb.items import item_text
from noetic_nb.items._origins import members
from noetic_nb.lab._rule_backtest import Trials
from noetic_nb.lab._rule_scores.rule_candidates import draft_rule
from noetic_nb.markup import escape
from noetic_nb.runs._cause import CauseReader
from noetic_nb.runs._events.run_log import call_at, number_at, place_of
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain, plain_data, plain_line, sendable
from noetic_nb.runs._regulation.decision_words import decision_detail, decision_label
from noetic_nb.runs._run_source import RunLike
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.widgets._approval import origin_words
from noetic_nb.widgets._rules.draft_trial import trial_data
from noetic_nb.widgets.base._table import keyed, table

# Characters of an item shown around the value.
_WORDS: Final = 100
# Most arguments and decisions; the details of the ledger and the trial of the editor have the others.
_ARGUMENTS: Final = 12
_LISTED: Final = 6
GONE: Final = "The run has let the call go that this is about."
_EXPLAINED: Final = (SteeringDecided, ToolCalled, RegulatorDecided)
_NOTHING: Final[Mapping[str, Any]] = {
    "guidance": "", "request": None, "arguments": [], "rules": [], "note": "", "canDraft": False,
}  # fmt: skip


class Causes:
    """Explains why a decision or a tool call was made, and what would happen without one of its rules.

    Parameters
    ----------
    run : Run
        The run of the decisions and calls.
    rules : RuleBook, optional
        The rules in force, if available.

    Examples
    --------
    >>> from noetic_nb.events import ToolCalled, Where
    >>> from noetic_nb.runs import Run
    >>> where, args = Where("t1", "e1", 1), {"n": 1}
    >>> denied = SteeringDecided(where, 0.0, "steering", "before_tool_call", "pay", args, "deny", "No.", ("few",), 0.1)
    >>> made = ToolCalled(where, 0.0, "look", "c1", args, "1", 0.1, "ok")
    >>> causes = Causes(Run(events=[denied, made]))
    >>> causes.of(0)["head"], causes.of(1)["head"]
    ('deny: pay', 'call: look')
    """

    def __init__(self, run: RunLike, rules: RuleBook | None = None) -> None:
        self._run = run
        self.rules = rules
        self._reader = CauseReader(run)
        self._trials: tuple[Any, Trials] | None = None

    def seq_of(self, fields: Mapping[str, Any]) -> int | None:
        """Return the number of the selected decision or call, or None.

        `fields` are those of a `Selection`; a log item counts as a call if it requests one.
        """
        seq, thread_id, item = fields["decision"], fields["thread_id"], fields["item"]
        place = None
        if seq is not None:
            place = place_of(self._run, seq)
            if place is None:
                return seq if self._is_gone(seq) else None
        elif item is not None and thread_id is not None:
            place = self._reader.call_of(thread_id, item)
        if place is None or not isinstance(self._run.events[place], _EXPLAINED):
            return None
        return number_at(self._run, self._reader.decided(place))

    def of(self, seq: int) -> dict[str, Any]:
        """Return the data of a decision or call for a page.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_DECISION`` if the event with that number is neither.
        """
        if self._is_gone(seq):
            return {**_NOTHING, "decision": seq, "head": "this", "note": GONE}
        place, event = self._event(seq)
        call = call_at(self._run, place)
        go = {"thread_id": sendable(event.where.thread_id), "turn": event.where.turn, "call": call, "decision": seq}
        known = {**_NOTHING, "decision": seq, "request": None if call is None else {**go, "item": None}}
        if isinstance(event, RegulatorDecided):
            detail = decision_detail(event.decision, event.suggestion)
            return {**known, "head": decision_label(event.decision), "guidance": detail}
        known["arguments"] = self._arguments(event, place, go)
        if isinstance(event, ToolCalled):
            note = plain(self._reader.judged(place), TEXT_LENGTH)
            return {**known, "head": f"call: {plain(event.name)}", "canDraft": True, "note": note}
        what = plain("the response" if event.tool_name is None else event.tool_name)
        is_allow = event.action == "allow"
        return {
            **known,
            "head": f"{plain(event.action)}{'' if event.enforced else ' (not enforced)'}: {what}",
            "canDraft": is_allow and event.tool_name is not None,
            "guidance": plain(event.guidance or "", TEXT_LENGTH),
            "rules": [[plain(rule_id), self._has(rule_id)] for rule_id in event.rule_ids],
            "note": self._note(event, place),
        }

    def draft(self, seq: int) -> SteeringRule:
        """Return a first draft of a rule against one call; raises `NoeticConfigError` as `lab.draft_rule`."""
        return draft_rule(self._run, self._event(seq)[1])  # type: ignore[arg-type]  # has all that is needed of a run

    def _event(self, seq: int) -> tuple[int, Any]:
        place = place_of(self._run, seq) if isinstance(seq, int) else None
        if place is None or not isinstance(self._run.events[place], _EXPLAINED):
            raise _unknown(seq)
        return place, self._run.events[place]

    def _is_gone(self, seq: int) -> bool:
        """Tell whether a run has dropped the event with a number."""
        events = self._run.events
        return place_of(self._run, seq) is None and len(events) > 0 and 0 <= seq < number_at(self._run, len(events) - 1)

    def rule(self, seq: int, place: int) -> str:
        """Return the id of a rule by its index in a decision, because some ids cannot be sent to a page.

        Raises `NoeticConfigError` ``UNKNOWN_DECISION``.
        """
        event = self._event(seq)[1]
        if not isinstance(event, SteeringDecided) or not 0 <= place < len(event.rule_ids):
            raise _unknown(seq)
        return event.rule_ids[place]

    def without(self, rule_id: str) -> dict[str, Any]:
        """Return the outcome of the recorded calls with one rule disabled.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_RULE`` if the rule is not available.
        """
        if not self._has(rule_id):
            hint = "Pass rules= to the workbench."
            raise NoeticConfigError("UNKNOWN_RULE", "That rule is not at hand.", given=rule_id, hint=hint)
        assert self.rules is not None
        last = self._run.events[-1] if self._run.events else None
        if self._trials is None or self._trials[0] is not last:
            self._trials = last, Trials([self._run])  # type: ignore[list-item]  # has all that is needed of a run
        rules = self.rules.snapshot
        off = self.rules[rule_id].model_copy(update={"enabled": False})
        found = trial_data([self._run], self._trials[1].diff(rules, off))  # type: ignore[list-item]
        return {**found, "title": f"Without {plain(rule_id)}: {found['title'].lower()}"}

    def _has(self, rule_id: str) -> bool:
        return self.rules is not None and rule_id in self.rules

    def _note(self, event: SteeringDecided, place: int) -> str:
        if event.action == "allow":
            return plain(self._reader.judged(place), TEXT_LENGTH)
        if event.rule_ids and not any(self._has(rule_id) for rule_id in event.rule_ids):
            why = "no rule book is known here: pass rules=" if self.rules is None else "the rule book has it no more"
            return f"The effect of removing the rule cannot be tried: {why}."
        return ""

    def _arguments(self, event: SteeringDecided | ToolCalled, place: int, go: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "name": plain(cause.argument),
                "value": plain_data(cause.value, 160),
                "origin": origin_words(cause.origin),
                "words": _around(self._reader.item_of(event, cause.origin), cause.member),
                # None if the item is not in the log of the thread.
                "go": None if cause.item is None else {**go, "item": cause.item},
            }
            for cause in self._reader.rows(event, place, _ARGUMENTS)
        ]


def cause_parts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert a cause from `Causes.of` to parts of a page; buttons name their action and the argument or rule."""
    request = _button("request", "Show the request") if found["request"] else ""
    close = _button("close", "Close", more='aria-label="Close why"')
    parts = {"head": f'<span class="nn-detail-head">Why {escape(found["head"])}</span>{request}{close}'}
    parts = {key: f'<div class="nn-toolbar">{html}</div>' for key, html in parts.items()}
    if found["guidance"]:
        parts["guidance"] = f'<p class="nn-quote">{escape(found["guidance"])}</p>'
    if found["arguments"]:
        columns = [(name, "nn-text") for name in ("Argument", "Value", "First written by", "Item")]
        rows = [_argument(at, each) for at, each in enumerate(found["arguments"])]
        parts["arguments"] = table("", columns, rows, caption="Where the arguments came from")
    for at, (label, is_known) in enumerate(found["rules"]):
        acts = _button("without", "Outcome without it", at) + _button("edit", "Edit it", at) if is_known else ""
        parts[f"rule {at}"] = f'<div class="nn-toolbar"><span>Rule {escape(label)}</span>{acts}</div>'
    if found["note"]:
        parts["note"] = f'<p class="nn-note">{escape(found["note"])}</p>'
    if found["canDraft"]:
        title = 'title="A rule against this call, to be read and enabled"'
        parts["draft"] = _button("draft", "Draft a rule", more=title)
    return [keyed(key, html) for key, html in parts.items()]


def _argument(at: int, each: Mapping[str, Any]) -> list[str]:
    item = escape(each["words"])
    if each["go"]:
        more = 'class="nn-item-link" title="Show this item in the request"'
        item = _button("item", each["words"] or "Show", at, more)
    return [*map(escape, (each["name"], each["value"], each["origin"])), item]


def without_parts(trial: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert an outcome from `Causes.without` to parts of a page."""
    counts = [f"{count:,} {name}" for change, name, count in trial["counts"] if change != "unchanged"]
    said = f"{trial['title']}: {', '.join(counts) or 'nothing would differ'}."
    links = [
        _button("place", f"{row['where']}: {row['verdict']}, {row['what']}", at, 'class="nn-item-link"')
        for at, row in enumerate(trial["rows"][:_LISTED])
    ]
    listed = "".join([f"<li>{link}</li>" for link in links])
    note = f'<p class="nn-note">{escape(trial["note"])}</p>' if trial["note"] else ""
    head = f'<p class="nn-trial-head" role="status">{escape(said)}</p>'
    return [keyed("without", f'<div>{head}<ul class="nn-list">{listed}</ul>{note}</div>')]


def _button(act: str, words: str, at: object = "", more: str = "") -> str:
    return f'<button type="button" data-do="{act}" data-at="{at}" {more}>{escape(words)}</button>'


def _unknown(seq: int) -> NoeticConfigError:
    return NoeticConfigError(
        "UNKNOWN_DECISION",
        "This is not a decision or tool call of this run.",
        given=seq,
        hint='`run.to_frame("ledger")` and `to_frame("tools")` have the seq of each.',
    )


def _around(item: Any, value: Any) -> str:
    """Return the text of an item around a value, or its beginning."""
    if item is None:
        return ""
    text = _words(item)
    needle = next((str(member) for member in members(value)), "")
    at = text.find(needle)
    start = max(0, at - _WORDS // 3)
    return plain_line(f"{'…' if start else ''}{text[start : start + 4 * _WORDS]}", _WORDS)


def _words(item: Any) -> str:
    if item["type"] == "function_call":
        return f"{item.get('name')} {item.get('arguments') or ''}"
    output = item.get("output")
    return output if isinstance(output, str) else item_text(item)
