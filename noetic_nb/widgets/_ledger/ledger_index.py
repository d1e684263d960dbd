"""The decisions of a run, searchable by action, subject and words, and their texts. Independent of pages.

Texts are created on demand, so reading a run of ten thousand turns takes little more than visiting its events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ErrorRaised, ModelCalled, SteeringDecided
from noetic_nb.items._build import response_text
from noetic_nb.redact import MARGIN, clip_data, redact, redact_text
from noetic_nb.runs._plain_text import plain, plain_data, plain_line
from noetic_nb.runs._tables import FAULTY_OUTCOMES, is_faulty

OUTCOMES: Final = {
    "error": "a rule failed",
    "unparseable": "judge unreadable",
    "timeout": "out of time",
    "cancelled": "cut off",
    "uninitialised": "never initialised",
    "disabled": "layer disabled",
    "unknown_rule_target": "names what no tool has",
    "late": "late verdict",
    "late_fault": "judge failed later",
    "approved": "a person approved",
    "refused": "a person refused",
    "nobody": "nobody to ask",
    "stopped": "turn stopped",
}
"""The outcome of an evaluation, in words."""

# A row can be read at a glance and fits a message of 2 kB; the details below the table have everything.
ARGS_LENGTH: Final = 160
GUIDANCE_LENGTH: Final = 200
RULES_LENGTH: Final = 160
FULL_LENGTH: Final = 8_000
# Searched characters per decision.
SEARCHED: Final = 20_000
_AROUND: Final = 60


def answer_text(answer: ModelCalled | None) -> str:
    """Return the text of a response, as rules receive it."""
    return "" if answer is None else response_text(answer.items)


def answer_parts(text: str, matched: Iterable[str], length: int) -> list[list[Any]]:
    """Return an excerpt of a response as texts, each with whether the rules decided on it.

    The excerpt is around the first match; text that looks like a credential is hidden.

    Examples
    --------
    >>> answer_parts("We promise everything.", ("promise",), 80)
    [['We ', False], ['promise', True], [' everything.', False]]
    """
    wanted = [part for part in matched if part]
    first = min([place for part in wanted if (place := text.find(part)) >= 0], default=0)
    begin = max(0, first - MARGIN)
    clean = redact_text(text[begin : first + length + MARGIN])
    place = min([place for part in wanted if (place := clean.find(part)) >= 0], default=0)
    start = 0 if place < length // 2 else place - _AROUND
    piece = clean[start : start + length]
    parts: list[list[Any]] = [["…", False]] if start or begin else []
    parts += _split(piece, wanted)
    if len(clean) > start + length or len(text) > first + length + MARGIN:
        parts.append(["…", False])
    return [[plain(part, length + MARGIN), found] for part, found in parts]


def _split(text: str, wanted: list[str]) -> list[list[Any]]:
    parts: list[list[Any]] = []
    while text:
        places = [(place, -len(part), part) for part in wanted if (place := text.find(part)) >= 0]
        if not places:
            parts.append([text, False])
            break
        place, _, part = min(places)
        if place:
            parts.append([text[:place], False])
        parts.append([part, True])
        text = text[place + len(part) :]
    return parts


def row_texts(event: SteeringDecided | ErrorRaised, answer: ModelCalled | None) -> dict[str, Any]:
    """Return the texts of a row: ``tool``, ``about`` (parts, as in `answer_parts`), ``guidance`` and ``rules``."""
    if isinstance(event, ErrorRaised):
        about = [["The turn ended; nothing was decided.", False]]
        return {"tool": "", "about": about, "guidance": plain(event.message, GUIDANCE_LENGTH), "rules": ""}
    if event.args is not None:
        about = [[plain_data(event.args, ARGS_LENGTH), False]]
    elif answer is not None:
        about = answer_parts(answer_text(answer), event.matched, ARGS_LENGTH)
    else:
        about = [[plain(part, ARGS_LENGTH), True] for part in event.matched]
    return {
        "tool": "" if event.hook == "init" else plain("response" if event.tool_name is None else event.tool_name),
        "about": about,
        "guidance": "" if event.guidance is None else plain_line(event.guidance, GUIDANCE_LENGTH),
        "rules": plain(", ".join([plain(rule_id) for rule_id in event.rule_ids]), RULES_LENGTH),
    }


def argument_rows(args: Mapping[str, Any]) -> list[list[str]]:
    """Return every argument with its whole value.

    Examples
    --------
    >>> argument_rows({"path": "/etc", "token": "hunter22"})
    [['path', '"/etc"'], ['token', '"[redacted]"']]
    """
    small, _ = clip_data(args, FULL_LENGTH + MARGIN)
    known: Mapping[str, Any] = redact(small)
    return [[plain(name), plain_data(value, FULL_LENGTH)] for name, value in known.items()]


def search_text(event: SteeringDecided | ErrorRaised, answer: ModelCalled | None) -> str:
    """Return the searchable text of a decision: its arguments or response, guidance, faults and rules."""
    if isinstance(event, ErrorRaised):
        return f"{event.error_kind} {event.message[:SEARCHED]}"
    parts = [
        event.action,
        event.hook.replace("_", " "),
        event.tool_name or "",
        event.guidance or "",
        event.where.thread_id,
    ]
    if event.outcome is not None:
        parts += [event.outcome, OUTCOMES.get(event.outcome, "")]
    parts += event.rule_ids
    parts += event.matched
    for fault in event.faults:
        parts += fault
    if event.args:
        parts.append(json.dumps(event.args, ensure_ascii=False, default=str)[:SEARCHED])
    if answer is not None:
        parts.append(answer_text(answer)[:SEARCHED])
    return " ".join(parts)


NOT_DECIDED: Final = "not decided"
"""Shown instead of an action if the rules reached no decision and the turn ended."""

FAULTS: Final = "a rule failed"
NOT_ENFORCED: Final = "not enforced"

FACETS: Final = ("chip", "action", "outcome", "point", "tool", "rule", "thread")
"""The search criteria for decisions, besides the turn and words."""


@dataclass(slots=True, eq=False)
class Entry:
    """One decision, or the error of rules that could not decide, with its context in the run."""

    at: int
    """Its index among the entries."""
    seq: int
    event: SteeringDecided | ErrorRaised
    call: int | None = None
    item: int | None = None
    answer: ModelCalled | None = None
    """The judged response."""
    status: str | None = None
    """How the tool call ended."""
    words: str | None = field(default=None, repr=False)

    @property
    def action(self) -> str:
        """The action; `NOT_DECIDED` if there is none."""
        return plain(self.event.action) if isinstance(self.event, SteeringDecided) else NOT_DECIDED

    @property
    def faults(self) -> tuple[tuple[str, str], ...]:
        """Each rule that failed, and the reason."""
        event = self.event
        if isinstance(event, ErrorRaised):
            return (("", event.message),)
        if event.faults or event.outcome not in FAULTY_OUTCOMES:
            return event.faults
        return tuple([(rule_id, event.outcome) for rule_id in event.rule_ids or ("",)])

    @property
    def is_faulty(self) -> bool:
        """Whether a rule, a judge or a whole layer failed."""
        event = self.event
        return not isinstance(event, SteeringDecided) or is_faulty(event)

    @property
    def is_enforced(self) -> bool:
        """Whether it took effect."""
        return not isinstance(self.event, SteeringDecided) or self.event.enforced

    @property
    def is_plain(self) -> bool:
        """Whether it is an allow with nothing else to report."""
        event = self.event
        return isinstance(event, SteeringDecided) and (
            event.action == "allow" and event.outcome is None and not event.faults and not event.matched
        )

    @property
    def chips(self) -> list[str]:
        """Its labels: its action, and whether a rule failed or it was not enforced."""
        names = [self.action]
        if self.is_faulty:
            names.append(FAULTS)
        if not self.is_enforced:
            names.append(NOT_ENFORCED)
        return names

    def facets(self) -> Iterator[tuple[str, str]]:
        """Yield its search terms."""
        event = self.event
        for chip in self.chips:
            yield "chip", chip
        yield "action", self.action
        yield "thread", plain(event.where.thread_id)
        if isinstance(event, ErrorRaised):
            yield "outcome", plain(event.error_kind)
            return
        if event.outcome is not None:
            yield "outcome", OUTCOMES.get(event.outcome) or plain(event.outcome)
        yield "point", plain(event.hook.replace("_", " "))
        if event.tool_name is not None:
            yield "tool", plain(event.tool_name)
        for rule_id in dict.fromkeys([*event.rule_ids, *[rule_id for rule_id, _ in event.faults]]):
            yield "rule", plain(rule_id)


@dataclass(frozen=True, slots=True)
class Fold:
    """Consecutive allows as one line: the count, and the indices of the first and the last."""

    count: int
    first: int
    last: int


Line: TypeAlias = Entry | Fold


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of decisions; an empty field matches everything.

    Examples
    --------
    >>> Filter.of({"chips": ["deny"], "tool": "pay", "text": "refund  A17"}).words
    ('refund', 'a17')
    >>> Filter.of({"tool": 3})
    Traceback (most recent call last):
    ...
    noetic_nb.errors.NoeticConfigError: [INVALID_FILTER] `tool` is a text. Given: 3. ...
    """

    chips: tuple[str, ...] = ()
    named: tuple[tuple[str, str], ...] = ()
    turn: int | None = None
    words: tuple[str, ...] = ()
    within: tuple[int, int] | None = None

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Filter:
        """Parse the filter in a page's request.

        Raises `NoeticConfigError` ``INVALID_FILTER``.
        """
        chips, text, turn, within = (request.get(name) for name in ("chips", "text", "turn", "within"))
        if not isinstance(chips or [], list) or not all(isinstance(chip, str) for chip in chips or ()):
            raise _invalid("chips", "a list of texts", chips)
        named = []
        for name in FACETS[1:]:
            value = request.get(name)
            if value is not None and not isinstance(value, str):
                raise _invalid(name, "a text", value)
            if value:
                named.append((name, value))
        if text is not None and not isinstance(text, str):
            raise _invalid("text", "a text", text)
        if turn is not None and not _is_count(turn):
            raise _invalid("turn", "a whole number", turn)
        if within is not None and not (isinstance(within, list) and len(within) == 2 and all(map(_is_count, within))):
            raise _invalid("within", "the places of two decisions", within)
        words = tuple((text or "")[:MAX_QUERY].casefold().split())
        return cls(tuple(chips or ()), tuple(named), turn, words, None if within is None else (within[0], within[1]))

    @property
    def folds(self) -> bool:
        """Whether allows are folded: not when searching for words or for allows."""
        return not self.words and "allow" not in self.chips and self.within is None


# A query longer than this is pasted text.
MAX_QUERY: Final = 1_000


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _invalid(name: str, wanted: str, given: Any) -> NoeticConfigError:
    return NoeticConfigError(
        "INVALID_FILTER", f"`{name}` is {wanted}.", given=given, hint="Clear the filters and choose again."
    )


class LedgerIndex:
    """All decisions in order, and where each name occurs.

    Examples
    --------
    >>> LedgerIndex().lines(Filter())
    []
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._places: dict[tuple[str, str], list[int]] = {}
        self._lines: list[Line] = []

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        for key in entry.facets():
            self._places.setdefault(key, []).append(entry.at)
        _join(self._lines, entry)

    def counts(self, kind: str) -> list[tuple[str, int]]:
        """Return the names of one kind, in the order of their first appearance, and how often each occurs."""
        return [(name, len(places)) for (of, name), places in self._places.items() if of == kind]

    def find(self, wanted: Filter) -> list[Entry]:
        """Return the entries that match a filter, oldest first."""
        found: Iterable[Entry] = self.entries
        groups = [[("chip", chip) for chip in wanted.chips]] if wanted.chips else []
        groups += [[key] for key in wanted.named]
        if groups:
            # Start with the smallest set, and intersect it with the others.
            sets = [{place for key in group for place in self._places.get(key, ())} for group in groups]
            sets.sort(key=len)
            found = [self.entries[place] for place in sorted(sets[0].intersection(*sets[1:]))]
        if wanted.within is not None:
            first, last = wanted.within
            found = [entry for entry in found if first <= entry.at <= last]
        if wanted.turn is not None:
            found = [entry for entry in found if entry.event.where.turn == wanted.turn]
        if wanted.words:
            found = [entry for entry in found if all(word in self._words(entry) for word in wanted.words)]
        return found if isinstance(found, list) else list(found)

    def lines(self, wanted: Filter) -> list[Line]:
        """Return the entries that match a filter, oldest first, with consecutive allows folded."""
        if wanted == Filter():
            return self._lines
        found = self.find(wanted)
        if not wanted.folds:
            return list(found)
        lines: list[Line] = []
        for entry in found:
            _join(lines, entry)
        return lines

    def _words(self, entry: Entry) -> str:
        if entry.words is None:
            entry.words = search_text(entry.event, entry.answer).casefold()
        return entry.words


def _join(lines: list[Line], entry: Entry) -> None:
    last = lines[-1] if lines else None
    if last is None or not entry.is_plain:
        lines.append(entry)
    elif isinstance(last, Fold):
        lines[-1] = Fold(last.count + 1, last.first, entry.at)
    elif last.is_plain:
        lines[-1] = Fold(2, last.at, entry.at)
    else:
        lines.append(entry)
