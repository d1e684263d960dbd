"""Reads the ledger of a run: the newest lines for the page, everything else on request."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from noetic_nb.events import (
    ChildEnded,
    ErrorRaised,
    ItemsAppended,
    ModelCalled,
    RuleChanged,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    WarningRaised,
)
from noetic_nb.items._origin_index import Provenance
from noetic_nb.markup import escape, heading
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain
from noetic_nb.runs._tables import ledger_line
from noetic_nb.widgets._ledger.ledger_index import (
    FACETS,
    FULL_LENGTH,
    NOT_ENFORCED,
    OUTCOMES,
    Entry,
    Filter,
    Fold,
    LedgerIndex,
    Line,
    answer_parts,
    answer_text,
    argument_rows,
    row_texts,
)
from noetic_nb.widgets.base._feed import Place, Reading
from noetic_nb.widgets.base._selection import EVERYTHING, Moment
from noetic_nb.widgets.base._table import keyed, named_row, table

EMPTY: Final = "No steering decision yet. Each evaluation of the rules appears here."
COLUMNS: Final = {
    "Turn": "nn-turn",
    "Decision": "nn-action",
    "Call": "nn-text nn-tool",
    "About": "nn-text nn-about",
    "Guidance": "nn-text nn-guidance",
    "Rules": "nn-text nn-rules",
    "ms": "nn-ms",
}
"""Column names, and the CSS class of each."""

# Keeps saved pages small; the table of the run has all rows.
LINES_SHOWN: Final = 200
FOLDED_SHOWN: Final = 20
# Characters at which a long name may break; none occurs inside an HTML character reference.
_SIGNS: Final = re.compile(r"[_.:/-](?!$)")


def line_data(line: Line) -> dict[str, Any]:
    """Return a line of an index for a page: a row, or the number of folded allows."""
    if isinstance(line, Fold):
        return _fold_row(f"f{line.first}", fold_words(line), fold=line.count, first=line.first, last=line.last)
    where = line.event.where
    go = {
        # The id that other views use; None if it contains characters that are not displayable and perhaps not valid JSON.
        "thread_id": where.thread_id if plain(where.thread_id) == where.thread_id else None,
        "turn": where.turn,
        "call": line.call,
        "item": line.item,
        "decision": line.seq,
    }
    return keyed(f"r{line.at}", _row(line), at=line.at, go=go)


def fold_words(fold: Fold) -> str:
    """Describe folded allows.

    Examples
    --------
    >>> fold_words(Fold(1200, 0, 1199))
    '1,200 allowed'
    """
    return f"{fold.count:,} allowed"


def _fold_row(key: str, inside: str, **more: Any) -> dict[str, Any]:
    return keyed(key, f'<tr class="nn-fold"><td colspan="{len(COLUMNS)}">{inside}</td></tr>', **more)


def _outcome(event: SteeringDecided | ErrorRaised) -> str:
    if isinstance(event, ErrorRaised):
        return plain(event.error_kind)
    return "" if event.outcome is None else OUTCOMES.get(event.outcome) or plain(event.outcome)


def _line(entry: Entry) -> str:
    row, action, outcome = row_texts(entry.event, entry.answer), entry.action, _outcome(entry.event)
    because = f" by {row['rules']}" if row["rules"] else ""
    guidance = f": {row['guidance']}" if row["guidance"] else ""
    would = "".join([f" ({each})" for each in (outcome, "" if entry.is_enforced else NOT_ENFORCED) if each])
    faults = "".join([f" [{plain(rule_id)}: {plain(why)}]" for rule_id, why in entry.faults if rule_id])
    about = " ".join("".join([text for text, _ in row["about"]]).split())
    what = f"{row['tool']} {about}".strip()
    return f"turn {entry.event.where.turn}  {action:<5}{would}  {what}{because}{guidance}{faults}"


def _row(entry: Entry) -> str:
    event, row = entry.event, row_texts(entry.event, entry.answer)
    cells = (
        str(event.where.turn),
        _decision(entry),
        _SIGNS.sub(r"\g<0><wbr>", escape(row["tool"])),
        _marked(row["about"]),
        escape(row["guidance"]),
        escape(row["rules"]),
        f"{event.duration_ms:,.1f}" if isinstance(event, SteeringDecided) else "",
    )
    return named_row(COLUMNS, cells)


def _marked(parts: Iterable[Any]) -> str:
    return "".join([f"<mark>{escape(text)}</mark>" if found else escape(text) for text, found in parts])


def _decision(entry: Entry) -> str:
    action, outcome = escape(entry.action), escape(_outcome(entry.event))
    faulty = ' data-faulty="true"' if entry.is_faulty else ""
    badge = f'<span class="nn-badge" data-action="{action}">{action}</span>'
    badge += f' <span class="nn-outcome"{faulty}>{outcome}</span>' if outcome else ""
    return badge + ("" if entry.is_enforced else f' <span class="nn-outcome">{NOT_ENFORCED}</span>')


# Rows per page; the newest page is sent with the snapshot.
PAGE: Final = 60
MOST_ASKED: Final = 200
# Further names can be found by typing them.
NAMES_SENT: Final = 100
# Errors that end a turn instead of a decision.
_INSTEAD: Final = frozenset({"MISSING_CALL_MODEL", "rule_failed"})

_Execution = tuple[str, str]


class LedgerReading(Reading):
    """The decisions of a run: the newest lines and the counts as a snapshot, everything else through `answer`.

    Parameters
    ----------
    moment : Moment, optional
        The part of the run to draw.
    origins : callable, optional
        Returns the origins of the values in a call, or None if unknown, given its decision and the decision's ``seq``.
    rule_texts : callable, optional
        Returns the current texts of the rules, by id.
    note : str
        A remark besides the decisions, such as rules that were not evaluated.

    Examples
    --------
    >>> LedgerReading().to_text()
    'Ledger. No steering decision yet. Each evaluation of the rules appears here.'
    """

    counted = "steering_decided", "decisions"
    reads = frozenset(
        {
            ChildEnded, ErrorRaised, ItemsAppended, ModelCalled, RuleChanged, SteeringDecided, ToolCalled, TurnCompleted,
            WarningRaised,
        }
    )  # fmt: skip
    nothing = "No rules decided in {part}. For the decisions that rules would have made: lab.replay(run, rules=rules)."

    def __init__(
        self,
        moment: Moment = EVERYTHING,
        *,
        origins: Callable[[SteeringDecided, int], Provenance | None] | None = None,
        rule_texts: Callable[[], Mapping[str, str]] | None = None,
        note: str = "",
    ) -> None:
        self.moment = moment
        self.index = LedgerIndex()
        self.note = note
        self._origins = origins
        self._rule_texts = rule_texts
        self._changes: dict[str, list[tuple[int, RuleChanged]]] = defaultdict(list)
        self._calls: dict[_Execution, int] = {}
        self._answers: dict[_Execution, ModelCalled] = {}
        # Unfinished calls requested by the model, by id, with their position in the log and their entries.
        self._open: dict[_Execution, dict[str, tuple[str, int, list[Entry]]]] = defaultdict(dict)
        self.snapshot = {
            "page": PAGE,
            "empty": EMPTY,
            "note": note,
            "columns": list(COLUMNS),
        }

    def begin(self) -> None:
        """Put the newest page into the snapshot, and how often each name occurs."""
        super().begin()
        lines = self.index.lines(Filter())
        self.snapshot["total"] = len(self.index.entries)
        self.snapshot["count"] = len(lines)
        self.snapshot["facets"] = self._facets()
        self.snapshot["lines"] = list(map(line_data, lines[-PAGE:]))

    @property
    def has_any(self) -> bool:
        return bool(self.index.entries)

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message about a new decision."""
        execution = (event.where.thread_id, event.where.execution_id)
        match event:
            case SteeringDecided() if self.moment.shows(event.where):
                return self._add(event, place.seq, execution)
            case WarningRaised() if self.moment.shows(event.where) and (line := ledger_line(event)) is not None:
                return self._add(line, place.seq, execution)
            case ErrorRaised() if event.error_kind in _INSTEAD and self.moment.shows(event.where):
                return self._add(event, place.seq, execution)
            case ModelCalled(purpose="agent"):
                if place.call is not None:
                    self._calls[execution] = place.call
                self._answers[execution] = event
            case ItemsAppended():
                for at, item in enumerate(event.items, event.start):
                    if item["type"] == "function_call":
                        known = self._open[execution]
                        known[str(item.get("callId"))] = (str(item.get("name")), at, [])
            case ToolCalled():
                for entry in self._open[execution].pop(event.call_id, ("", 0, []))[2]:
                    entry.status = event.status
            case RuleChanged():
                self._changes[event.rule_id].append((place.seq, event))
            case TurnCompleted() | ChildEnded():
                for known_by in (self._calls, self._answers, self._open):
                    known_by.pop(execution, None)
        return None

    def _add(self, event: SteeringDecided | ErrorRaised, seq: int, execution: _Execution) -> dict[str, Any] | None:
        entry = Entry(len(self.index.entries), seq, event, self._calls.get(execution))
        if isinstance(event, SteeringDecided):
            if event.hook == "init":
                pass  # an error of the rules themselves
            elif event.tool_name is None:
                entry.answer = self._answers.get(execution)
            else:
                self._join_call(entry, event.tool_name, execution)
        self.index.add(entry)
        if not self.is_followed:
            return None
        data = self.snapshot
        lines = self.index.lines(Filter())
        sent = line_data(lines[-1])
        if len(lines) == data["count"]:  # one more consecutive allow
            data["lines"][-1] = sent
        else:
            data["lines"].append(sent)
            del data["lines"][:-PAGE]
        data["total"], data["count"] = len(self.index.entries), len(lines)
        facets = [self._count(FACETS.index(kind), name) for kind, name in entry.facets()]
        facets = [found for found in facets if found is not None]
        return {"type": "line", "total": data["total"], "count": data["count"], "line": sent, "facets": facets}

    def _count(self, kind: int, name: str) -> list[Any] | None:
        """Count a name in the snapshot; returns its places there and its new count, None for a name beyond the listed ones."""
        pairs = self.snapshot["facets"][kind][1]
        at = next((at for at, pair in enumerate(pairs) if pair[0] == name), len(pairs))
        if at == NAMES_SENT:
            return None
        pairs[at : at + 1] = [[name, 1 + (pairs[at][1] if at < len(pairs) else 0)]]
        return [kind, at, pairs[at]]

    def _join_call(self, entry: Entry, tool: str, execution: _Execution) -> None:
        """Find the call in the log that a decision is about: the first open call, with that name if there is one."""
        calls = [call for call in self._open[execution].values() if call[0] == tool or not call[2]]
        if calls:
            _, item, entries = next((call for call in calls if call[0] == tool), calls[0])
            entries.append(entry)
            # A child has its own log, which no view shows.
            entry.item = item if entry.event.where.depth == 0 else None

    def _facets(self) -> list[list[Any]]:
        # Pairs, because a JavaScript object has built-in names, such as "constructor".
        return [[kind, [list(pair) for pair in self.index.counts(kind)[:NAMES_SENT]]] for kind in FACETS]

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer ``{what: "lines", start, count, ...}``, ``{what: "detail", at}`` and ``{what: "origins", at}``.

        Raises `NoeticConfigError` ``INVALID_FILTER`` or ``UNKNOWN_REQUEST``.
        """
        match request:
            case {"what": "lines"}:
                return self._page(request)
            case {"what": "detail" | "origins" as what, "at": int(at)} if 0 <= at < len(self.index.entries):
                # Finding the origins of values is slower.
                entry = self.index.entries[at]
                return self._detail(entry, self._origins_of(entry) if what == "origins" else [])
        return super().answer(request)

    def _page(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = Filter.of(request)
        lines = self.index.lines(wanted)
        start, count, decision = (request.get(name) for name in ("start", "count", "decision"))
        start = start if type(start) is int else 0
        count = min(count if type(count) is int and count > 0 else PAGE, MOST_ASKED)
        if type(decision) is int:
            place = next((at for at, line in enumerate(lines) if _holds(line, decision, self.index)), None)
            if place is not None:
                start = (len(lines) - 1 - place) // count * count
        start = max(0, min(start, len(lines) - 1))
        # Newest first: the page counts from the end.
        stop = len(lines) - start
        shown = lines[max(0, stop - count) : stop]
        matched = sum([line.count if isinstance(line, Fold) else 1 for line in lines])
        page: dict[str, Any] = {
            "start": start,
            "count": len(lines),
            "matched": matched,
            "total": len(self.index.entries),
        }
        if wanted.within is not None and (rest := stop - len(shown)):
            # Follow the rows of an open fold.
            first, last = wanted.within[0], shown[0].at - 1  # type: ignore[union-attr]  # nothing is folded in a fold
            page["rest"] = _fold_row(f"m{first}", f"Show more of {rest:,}", rest=rest, first=first, last=last)
        return {**page, "lines": list(map(line_data, shown))}

    def _detail(self, entry: Entry, origins: list[str]) -> list[dict[str, Any]]:
        """Return all details of a decision, section by section; the last column of its arguments has their origins."""
        event = entry.event
        where = event.where
        facts = [f"Turn: {where.turn}", f"Thread: {plain(where.thread_id)}"]
        parts = {"head": f'<p class="nn-detail-head">{escape(_head(entry))}</p>'}
        if isinstance(event, ErrorRaised):
            parts |= {"facts": _facts(facts), **_quoted("Guidance", escape(plain(event.message, FULL_LENGTH)))}
            return [keyed(key, html) for key, html in parts.items()]
        facts.append(f"Evaluated in: {event.duration_ms:,.1f} ms")
        if entry.status is not None:
            facts.append(f"The call ended: {plain(entry.status)}")
        if event.layer_id != "steering":
            facts.append(f"Layer: {plain(event.layer_id)}")
        parts["facts"] = _facts(facts)
        for at, (rule_id, why) in enumerate(entry.faults):
            said = f"{plain(rule_id)} could not be evaluated: {_why(why)}".strip()
            parts[f"fault {at}"] = f'<p class="nn-why">{escape(said)}</p>'
        if event.guidance is not None:
            parts |= _quoted("Guidance", escape(plain(event.guidance, FULL_LENGTH)))
        if event.args:
            rows = argument_rows(event.args)
            names = ["Argument", "Value", *(["Written by"] if origins else [])]
            cells = [[*row, *origins[at : at + 1]] for at, row in enumerate(rows)]
            parts["arguments"] = table(
                "",
                [(name, "nn-text") for name in names],
                [list(map(escape, row)) for row in cells],
                caption="Arguments",
            )
        if entry.answer is not None:
            parts |= _quoted("Response", _marked(answer_parts(answer_text(entry.answer), event.matched, FULL_LENGTH)))
        elif event.matched:
            parts |= _quoted("Response", _marked([(plain(part, TEXT_LENGTH), True) for part in event.matched]))
        named = dict.fromkeys([*event.rule_ids, *[rule_id for rule_id, _ in entry.faults if rule_id]])
        parts |= {f"rule {at} {plain(rule_id)}": self._rule(rule_id, entry.seq) for at, rule_id in enumerate(named)}
        return [keyed(key, html) for key, html in parts.items()]

    def _rule(self, rule_id: str, seq: int) -> str:
        """Return a rule as it was at a given time: its id, version and text."""
        changes = self._changes.get(rule_id, [])
        before = [change for at, change in changes if at < seq]
        if before:
            version, text = f"version {before[-1].version}, {before[-1].change}", before[-1].new
        elif changes:
            version, text = f"as before version {changes[0][1].version}", changes[0][1].old
        else:
            version = "not changed in this run"
            text = self._rule_texts().get(rule_id) if self._rule_texts is not None else None
        shown = escape(plain(text or "", FULL_LENGTH) or "Its text is not in the run.")
        head = f"<summary>Rule {escape(plain(rule_id))}, {version}</summary>"
        return f'<details>{head}<pre class="nn-quote" tabindex="0">{shown}</pre></details>'

    def _origins_of(self, entry: Entry) -> list[str]:
        event = entry.event
        if self._origins is None or isinstance(event, ErrorRaised) or not event.args:
            return []
        known = self._origins(event, entry.seq)
        if known is None:
            return []
        return [plain(known.origin(value, event.args).text) for value in event.args.values()]

    def headline(self) -> str:
        """Return the number of decisions with each label, in one line."""
        total = len(self.index.entries)
        counts = ", ".join([f"{number:,} {name}" for name, number in sorted(self.index.counts("chip"))])
        return f"{total:,} decision{'' if total == 1 else 's'}: {counts}"

    def _newest(self) -> tuple[list[Line], int]:
        lines = self.index.lines(Filter())
        return lines[-LINES_SHOWN:][::-1], max(0, len(lines) - LINES_SHOWN)

    def to_html(self) -> str:
        head = heading("Ledger")
        note = f'<p class="nn-note">{escape(self.note)}</p>' if self.note else ""
        if not self.index.entries:
            return f'{head}<p class="nn-empty">{escape(self.snapshot["empty"])}</p>{note}'
        lines, earlier = self._newest()
        rows = table(
            "nn-ledger", COLUMNS, [self._fold(line) if isinstance(line, Fold) else _row(line) for line in lines]
        )
        if earlier:
            note += f'<p class="nn-note">{earlier:,} earlier lines are in <code>to_frame()</code>.</p>'
        return f'{head}<p class="nn-sub">{escape(self.headline())}</p>{rows}{note}'

    def _fold(self, fold: Fold) -> str:
        shown = self.index.entries[max(fold.first, fold.last - FOLDED_SHOWN + 1) : fold.last + 1][::-1]
        rows = table("nn-ledger", COLUMNS, map(_row, shown), scroll="")
        more = fold.count - len(shown)
        rest = f'<p class="nn-note">and {more:,} more</p>' if more > 0 else ""
        inside = f"<details><summary>{fold_words(fold)}</summary>{rows}{rest}</details>"
        html: str = _fold_row("", inside)["html"]
        return html

    def to_text(self) -> str:
        note = [self.note] if self.note else []
        if not self.index.entries:
            return "\n".join([f"Ledger. {self.snapshot['empty']}", *note])
        lines, earlier = self._newest()
        texts = [f"Ledger. {self.headline()}", *note]
        for line in lines:
            texts.append(f"  {fold_words(line)}" if isinstance(line, Fold) else f"  {_line(line)}")
        if earlier:
            texts.append(f"  {earlier:,} earlier lines are in to_frame().")
        return "\n".join(texts)


def _head(entry: Entry) -> str:
    event = entry.event
    if isinstance(event, ErrorRaised):
        return f"{entry.action}: {plain(event.error_kind)}"
    what = (
        "the rules" if event.hook == "init" else plain("the response" if event.tool_name is None else event.tool_name)
    )
    would = "" if event.enforced else "would have been "
    outcome = "" if event.outcome is None else f" ({OUTCOMES.get(event.outcome) or plain(event.outcome)})"
    return f"{would}{entry.action}{outcome}: {what}"


def _facts(facts: Iterable[str]) -> str:
    return f'<p class="nn-facts">{" ".join([f"<span>{escape(fact)}</span>" for fact in facts])}</p>'


def _quoted(label: str, html: str) -> dict[str, str]:
    return {f"label {label}": f'<p class="nn-label">{label}</p>', label: f'<p class="nn-quote">{html}</p>'}


def _why(why: str) -> str:
    return "its judge gave no readable verdict" if why == "unparseable" else plain(why, TEXT_LENGTH)


def _holds(line: Line, decision: int, index: LedgerIndex) -> bool:
    if isinstance(line, Entry):
        return line.seq == decision
    return index.entries[line.first].seq <= decision <= index.entries[line.last].seq
