"""One model call as data for a page or a static form: rows of short, plain texts without secrets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from noetic_nb.runs._palette import CATEGORY, ink_on, layer_colour
from noetic_nb.runs._plain_text import REASONS, TEXT_LENGTH, count, plain
from noetic_nb.runs._requests.billing_differences import counter_words
from noetic_nb.runs._requests.recorded_requests import CallRecord
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runtime._planning.least_budget import LeastBudget
from noetic_nb.tokens import tokenizer_name
from noetic_nb.widgets._transcript.call_outcome import OutcomeLine, answer_headline, outcome_lines, previous_decisions
from noetic_nb.widgets._transcript.request_rows import Change, DiffRow, budget_words, settings_of, unknown_of

# Longer texts are folded, and opened by one key.
FOLD_LINES: Final = 8
FOLD_LENGTH: Final = 480
# A page stays quick with this much of a text; the frame has the rest.
FULL_LENGTH: Final = 100_000
# Each may take a few tenths of a second.
REMEDIES: Final = 6
# From this many on, neighbours of one kind share a line: equal items, and items that were not sent.
FOLD_SAME: Final = 3
FOLD_ABSENT: Final = 8

CHANGE_MARKS: Final = {"added": "+", "removed": "−", "changed": "≠"}
"""The sign before a row that differs; shown with the word, so that neither colour nor shape is needed."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Neighbouring rows shown in one line: rows from `first` up to, but not including, `stop`."""

    first: int
    stop: int
    words: str


Entry = int | Fold
"""A row by index, or several folded rows."""


def folded(text: object, whole_text: str = "") -> tuple[str, str]:
    r"""Return the beginning of a text, and a description of its total size; the latter is empty if nothing is cut.

    `whole_text` is the complete text if `text` is a short form.

    Examples
    --------
    >>> folded("short"), folded("line\n" * 40)[1]
    (('short', ''), '40 lines')
    """
    if whole_text:
        return folded(text)[0], folded("\n" * FOLD_LINES + whole_text)[1]
    whole = plain(text, 2 * FOLD_LENGTH).rstrip("\n")
    lines = whole[:FOLD_LENGTH].split("\n")
    head = "\n".join(lines[:FOLD_LINES])
    # Do not fold a text that is only a few words too long.
    if head == whole or (len(whole) <= FOLD_LENGTH * 4 / 3 and whole.count("\n") < FOLD_LINES):
        return whole, ""
    full = str(text)
    size = full.count("\n") + (not full.endswith("\n"))
    return f"{head.rstrip()}…", f"{size:,} lines" if size > FOLD_LINES else f"{len(full):,} characters"


def title_of(record: CallRecord) -> str:
    """Return the name of the call, as in the allocation."""
    where = record.where
    inner = f" · depth {where.depth}" if where.depth else ""
    return f"Turn {where.turn}, call {record.in_turn} · thread {plain(where.thread_id)}{inner}"


@dataclass(slots=True)
class ShownRows:
    """The rows of a request as listed on a page."""

    rows: Sequence[DiffRow]
    layers: Mapping[str, int]
    """The indices of the layers in the run, which determine their colours."""
    against: CallRecord | None = field(default=None, kw_only=True)
    """The call to compare with."""

    def entries(self, *, only_changes: bool = False, unfolded: Collection[int] = ()) -> list[Entry]:
        """Return the listed entries: rows, and folded series of rows of one kind.

        `only_changes` folds equal rows of both requests; `unfolded` has the first index of each open series.
        """
        entries: list[Entry] = []
        for first, stop, kind in self._runs(only_changes=only_changes):
            is_long = bool(kind) and stop - first >= (FOLD_SAME if kind == "same" else FOLD_ABSENT)
            if is_long and first not in unfolded:
                entries.append(Fold(first, stop, self._fold_words(kind, first, stop)))
            else:
                entries += range(first, stop)
        return entries

    def run_of(self, place: int, *, only_changes: bool) -> int:
        """Return the first index of the series that a row belongs to."""
        return next(first for first, stop, _ in self._runs(only_changes=only_changes) if place < stop)

    def _runs(self, *, only_changes: bool) -> Iterator[tuple[int, int, str]]:
        only_changes = only_changes and self.against is not None
        first = 0
        while first < len(self.rows):
            kind = self._kind(first, only_changes=only_changes)
            stop = first + 1
            while kind and stop < len(self.rows) and self._kind(stop, only_changes=only_changes) == kind:
                stop += 1
            yield first, stop, kind
            first = stop

    def _kind(self, at: int, *, only_changes: bool) -> str:
        found = self.rows[at]
        if found.change:
            return ""
        if not found.row.is_sent:
            return found.row.reason or "not sent"
        if found.row.origin == "tools" and not only_changes:
            return "tools"
        return "same" if only_changes else ""

    def _fold_words(self, kind: str, first: int, stop: int) -> str:
        number = sum(found.row.count for found in self.rows[first:stop])
        if kind == "same":
            return f"{number:,} items are the same"
        rows = [found.row for found in self.rows[first:stop]]
        tokens = sum(row.tokens or 0 for row in rows)
        size = f", {count(tokens)} tokens" if tokens else ""
        if kind == "tools":
            return f"{number:,} tools offered{size}"
        return f"{number:,} items not sent: {REASONS.get(kind, plain(kind))}{size}"

    def change_words(self, change: Change) -> str:
        return f"{CHANGE_MARKS[change]} {change}" if change else ""

    def chip(self, at: int) -> list[str]:
        """Return the name of a row's origin, its fill, and its text colour."""
        row = self.rows[at].row
        if row.origin == "layer":
            fill = layer_colour(self.layers.get(row.layer, 0))
            return [plain(row.layer), fill, ink_on(fill)]
        # The colours of the allocation, in which items from tools and rules belong to the history.
        fill = CATEGORY.get(row.origin, CATEGORY["history"])
        return [row.origin, fill, ink_on(fill)]

    def why(self, at: int) -> str:
        """Return why a row was not sent, or was sent despite a reason against it."""
        row = self.rows[at].row
        if not row.reason:
            return "" if row.is_sent else "Not sent."
        reason = REASONS.get(row.reason, plain(row.reason))
        return f"{reason[:1].upper()}{reason[1:]}." if row.is_sent else f"Not sent: {reason}."

    def text_of(self, key: object) -> str | None:
        """Return a complete text by key: of a row, or of its other version (``w3``); None for other keys."""
        if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(self.rows):
            row = self.rows[key].row
            return plain(row.whole or row.text, FULL_LENGTH)
        if isinstance(key, str) and (at := _number_in(key)) is not None and key[0] == "w" and at < len(self.rows):
            other = self.rows[at].other
            return None if other is None else plain(other.text, FULL_LENGTH)
        return None


def _number_in(key: str) -> int | None:
    return int(key[1:]) if key[1:].isdigit() and key[1:].isascii() and len(key) < 9 else None


@dataclass(slots=True)
class ShownCall(ShownRows):
    """The rows of one call, optionally compared with another, and its outcome."""

    record: CallRecord
    request: RecordedRequest
    budgets: dict[Any, LeastBudget | None]
    """The smallest budgets computed so far."""
    _lines: tuple[list[OutcomeLine], list[OutcomeLine]] | None = field(default=None, repr=False)

    @property
    def settings(self) -> str:
        """The settings that were sent besides the items, in one line."""
        return plain(settings_of(self.request), TEXT_LENGTH)

    @property
    def unknown(self) -> str:
        """The unknown parts of the request, in one sentence."""
        return unknown_of(self.request)

    @property
    def before(self) -> list[OutcomeLine]:
        return self._outcome[0]

    @property
    def outcome(self) -> list[OutcomeLine]:
        return self._outcome[1]

    @property
    def _outcome(self) -> tuple[list[OutcomeLine], list[OutcomeLine]]:
        if self._lines is None:
            log_item = self.request.log_item
            self._lines = previous_decisions(self.record, log_item), outcome_lines(self.record, log_item)
        return self._lines

    @property
    def headline(self) -> str:
        """The totals of the request in one line."""
        own = [found.row for found in self.rows if found.own]
        items = [row for row in own if row.origin not in ("system", "tools", "framing")]
        sent = sum(row.is_sent for row in items)
        absent = sum(row.count for row in items) - sent
        where = "sent" if self.request.view is not None else "before the call"
        parts = [f"{sent:,} item{'' if sent == 1 else 's'} {where}"]
        if absent:
            parts.append(f"{absent:,} not sent")
        view = self.record.view
        if view is not None:
            tokens = view.system + view.tools + view.framing + view.history + sum(layer.used for layer in view.layers)
            of = "" if view.total == float("inf") else f" of {count(view.total)}"
            parts.append(f"{count(tokens)}{of} tokens")
        return f"{', '.join(parts)}, counted by {self._counter}"

    @property
    def _counter(self) -> str:
        prepared = self.request.prepared
        return counter_words(tokenizer_name(self.request.counter) if prepared is None else prepared.tokenizer)

    @property
    def difference(self) -> str:
        """The difference from the other request, in one line; empty without a comparison."""
        if self.against is None:
            return ""
        numbers = {kind: sum(found.change == kind for found in self.rows) for kind in CHANGE_MARKS}
        words = [f"{CHANGE_MARKS[kind]} {number:,} {kind}" for kind, number in numbers.items() if number]
        return f"{', '.join(words) or 'No difference'} against {title_of(self.against)}"

    def place_of(self, position: object) -> int:
        """Return the index of the row of a log item, -1 if there is none."""
        if isinstance(position, bool) or not isinstance(position, int):
            return -1
        return next((at for at, found in enumerate(self.rows) if found.own and found.row.position == position), -1)

    def budget(self, at: int) -> LeastBudget | None:
        """Return the smallest budget that would have admitted a row; computed once."""
        absent = self.rows[at].row.absent
        if absent is None:
            return None
        key = absent.origin, absent.position, absent.reason
        if key not in self.budgets:
            self.budgets[key] = self.request.least_budget(absent)
        return self.budgets[key]

    def remedy(self, at: int) -> str:
        """Describe this budget in a sentence; empty for sent items, and if unknown."""
        found = self.rows[at]
        return budget_words(self.budget(at)) if found.own and found.row.absent is not None else ""

    def known_remedy(self, entry: Entry) -> str | None:
        """Return the same if already computed, else None."""
        absent = None if isinstance(entry, Fold) or not self.rows[entry].own else self.rows[entry].row.absent
        if isinstance(entry, Fold) or absent is None:
            return ""
        return self.remedy(entry) if (absent.origin, absent.position, absent.reason) in self.budgets else None

    def remedies(self, places: Iterable[int]) -> dict[Entry, str]:
        """Return the sentences of the first `REMEDIES` unsent rows; a static form must be made quickly."""
        asked = [at for at in places if self.rows[at].own and self.rows[at].row.absent is not None]
        return {at: self.remedy(at) for at in asked[:REMEDIES]}

    def text_of(self, key: object) -> str | None:
        """Return a complete text by key, including lines before the call (``b0``) or after it (``a0``)."""
        if isinstance(key, str) and (at := _number_in(key)) is not None and key[0] in "ba":
            lines = self.before if key[0] == "b" else self.outcome
            return plain(lines[at].text, FULL_LENGTH) if at < len(lines) else None
        return ShownRows.text_of(self, key)

    @property
    def answer(self) -> str:
        """The result of the call, in one line."""
        return answer_headline(self.record.event)
