"""The picture of one call without scripts: as HTML for the static form, and as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from noetic_nb.markup import escape, heading
from noetic_nb.runs._plain_text import plain, plain_line
from noetic_nb.widgets._transcript.call_content import Entry, Fold, ShownCall, folded, title_of
from noetic_nb.widgets._transcript.call_outcome import OutcomeLine

EMPTY: Final = "No model call yet. Each call appears here as soon as the agent has made one."
# A saved page stays light: the first and the last of a long request.
STATIC_ENTRIES: Final = 120
# Behind a text that is folded, in a page without scripts.
STATIC_LENGTH: Final = 6_000
TEXT_ENTRIES: Final = 40
TEXT_WIDTH: Final = 100

MARKS: Final = {
    "allow": ("#009E73", "M1.5,6.5l3.5,3.5l5.5,-8"),
    "ok": ("#009E73", "M1.5,6.5l3.5,3.5l5.5,-8"),
    "guide": ("#E69F00", "M1,6h9M6.5,2.5l3.5,3.5l-3.5,3.5"),
    "deny": ("#D55E00", "M2,2l8,8M10,2l-8,8"),
    "ask": ("#0072B2", "M6,1.5a4.5,4.5 0 1,0 .01,0z"),
    "stop": ("#D55E00", "M2,2h8v8h-8z"),
    "warn": ("#E69F00", "M6,1.5L11,10.5H1z"),
    "error": ("#D55E00", "M6,1v6M6,9.5v1.5"),
}
"""Colour and shape of how something ended; the SVG path is drawn as a line, in a field of 12 by 12 pixels."""

OTHER_MARK: Final = ("currentColor", "M4,2.5l3.5,3.5l-3.5,3.5")
"""The same for what has no outcome: a call."""


def _mark(tone: str) -> str:
    colour, path = MARKS.get(tone, OTHER_MARK)
    return (
        '<svg class="nn-t-tone" width="12" height="12" viewBox="0 0 12 12" aria-hidden="true" '
        f'xmlns="http://www.w3.org/2000/svg"><path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/></svg>'
    )


def _text(text: object, kind: str = "nn-t-words") -> str:
    head, more = folded(text)
    if not head:
        return ""
    if not more:
        return f'<div class="{kind}">{escape(head)}</div>'
    whole = escape(plain(text, STATIC_LENGTH))
    return (
        f'<details class="nn-t-whole"><summary><span class="{kind}">{escape(head)}</span> '
        f'<span class="nn-t-more">{escape(more)}</span></summary><div class="{kind}">{whole}</div></details>'
    )


def _row(call: ShownCall, at: int, remedies: Mapping[int, str]) -> str:
    found = call.rows[at]
    row = found.row
    name, fill, _ = call.chip(at)
    facts = [plain(fact) for fact in (row.role, row.tool) if fact and fact != row.origin]
    tokens = "" if row.tokens is None else f"{row.tokens:,}"
    swatch = f'<span class="nn-t-origin-swatch" style="--nn-fill:{fill}"></span>'
    change = f'<span class="nn-t-change">{call.change_words(found.change)}</span>' if found.change else ""
    reason = f"{call.why(at)} {remedies.get(at, '')}".strip()
    why = f'<div class="nn-t-why">{escape(reason)}</div>' if reason else ""
    was = ""
    if found.change == "changed" and found.other is not None:
        was = f'<div class="nn-t-was"><span class="nn-t-change">before</span>{_text(found.other.text)}</div>'
    return (
        f'<li class="nn-t-item" data-sent="{str(row.is_sent).lower()}" data-change="{found.change}"><div class="nn-t-item-head">'
        f'{change}{swatch}<span class="nn-t-origin">{escape(name)}</span>'
        f'<span class="nn-t-facts">{escape(" · ".join(facts))}</span><span class="nn-number">{tokens}</span></div>'
        f"{why}{_text(row.text)}{was}</li>"
    )


def _entry(call: ShownCall, entry: Entry, remedies: Mapping[int, str]) -> str:
    if isinstance(entry, Fold):
        return f'<li class="nn-t-fold">{escape(entry.words)}</li>'
    return _row(call, entry, remedies)


def _line(line: OutcomeLine) -> str:
    return (
        f'<li class="nn-t-line" data-kind="{escape(line.kind)}" data-level="{line.level}"><div class="nn-t-line-head">'
        f"{_mark(line.tone)}<span>{escape(line.heading)}</span></div>{_text(line.text)}</li>"
    )


def _lines(lines: Sequence[OutcomeLine]) -> str:
    loud = "".join(_line(line) for line in lines if not line.is_quiet)
    quiet = [line for line in lines if line.is_quiet]
    listed = f'<ol class="nn-t-lines">{loud}</ol>' if loud else ""
    if not quiet:
        return listed
    inside = "".join(_line(line) for line in quiet)
    return (
        f'{listed}<details><summary>{quiet_words(len(quiet))}</summary><ol class="nn-t-lines">{inside}</ol></details>'
    )


def quiet_words(number: int) -> str:
    """Return how many checks found nothing.

    Examples
    --------
    >>> quiet_words(1), quiet_words(3)
    ('1 check found nothing', '3 checks found nothing')
    """
    return f"{number:,} check{'' if number == 1 else 's'} found nothing"


def _shortened(entries: Sequence[Entry], most: int) -> tuple[Sequence[Entry], int, Sequence[Entry]]:
    """Return the first and the last entries of a long list, and between them how many are left out."""
    if len(entries) <= most:
        return entries, 0, ()
    return entries[: most // 2], len(entries) - most, entries[len(entries) - most // 2 :]


def static_html(call: ShownCall | None, empty: str = EMPTY) -> str:
    """Return a call as HTML without scripts; `empty` where there is none."""
    head = heading("Transcript")
    if call is None:
        return f'{head}<p class="nn-empty">{escape(empty)}</p>'
    first, left, last = _shortened(call.entries(only_changes=True), STATIC_ENTRIES)
    remedies = _remedies(call, (*first, *last))
    items = "".join(_entry(call, entry, remedies) for entry in first)
    if left:
        items += f'<li class="nn-t-fold">{left:,} more, all of them in to_frame()</li>'
        items += "".join(_entry(call, entry, remedies) for entry in last)
    notes = "".join(
        f'<p class="nn-note">{escape(note)}</p>' for note in (call.settings, call.unknown, call.difference) if note
    )
    before = f'<p class="nn-t-part">Before the call</p>{_lines(call.before)}' if _is_loud(call.before) else ""
    return (
        f'{head}<p class="nn-sub">{escape(title_of(call.record))}: {escape(call.headline)}</p>{notes}{before}'
        f'<p class="nn-t-part">Request</p><ol class="nn-t-items">{items}</ol>'
        f'<p class="nn-t-part">Answer</p><p class="nn-sub">{escape(call.answer)}</p>{_lines(call.outcome)}'
    )


def _remedies(call: ShownCall, entries: Sequence[Entry]) -> dict[int, str]:
    return call.remedies([entry for entry in entries if not isinstance(entry, Fold)])


def _is_loud(lines: Sequence[OutcomeLine]) -> bool:
    return any(not line.is_quiet for line in lines)


def static_text(call: ShownCall | None, empty: str = EMPTY) -> str:
    """Return a call as plain text; `empty` where there is none."""
    if call is None:
        return f"Transcript. {empty}"
    lines = [f"Transcript. {title_of(call.record)}: {call.headline}"]
    lines += [note for note in (call.settings, call.unknown, call.difference) if note]
    lines += map(_line_text, [line for line in call.before if not line.is_quiet])
    first, left, last = _shortened(call.entries(only_changes=True), TEXT_ENTRIES)
    remedies = _remedies(call, (*first, *last))
    lines += [_entry_text(call, entry, remedies) for entry in first]
    if left:
        lines.append(f"    … {left:,} more …")
    lines += [_entry_text(call, entry, remedies) for entry in last]
    lines.append(call.answer)
    lines += map(_line_text, [line for line in call.outcome if not line.is_quiet])
    return "\n".join(lines)


def _line_text(line: OutcomeLine) -> str:
    between = ": " if line.heading and line.text else ""
    return f"  {'    ' * line.level}{line.heading}{between}{plain_line(line.text, TEXT_WIDTH)}"


def _entry_text(call: ShownCall, entry: Entry, remedies: Mapping[int, str]) -> str:
    if isinstance(entry, Fold):
        return f"    … {entry.words}"
    found = call.rows[entry]
    row = found.row
    facts = " ".join(plain(fact) for fact in (row.role, row.tool) if fact and fact != row.origin)
    mark = call.change_words(found.change)[:1] or (" " if row.is_sent else "×")
    tokens = "" if row.tokens is None else f" ({row.tokens:,})"
    reason = f"{call.why(entry)} {remedies.get(entry, '')}".strip()
    why = f" [{reason}]" if reason else ""
    return f"  {mark} {call.chip(entry)[0]} {facts}{tokens}{why}: {plain_line(row.text, TEXT_WIDTH)}"
