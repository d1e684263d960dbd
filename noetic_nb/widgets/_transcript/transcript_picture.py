"""The picture of one call without scripts: as HTML for the static form, and as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from noetic_nb.markup import escape, heading
from noetic_nb.runs._plain_text import count, plain, plain_line
from noetic_nb.widgets._transcript.call_content import Entry, Fold, ShownCall, ShownRows, folded, title_of
from noetic_nb.widgets._transcript.call_outcome import OutcomeLine
from noetic_nb.widgets.base._table import keyed

EMPTY: Final = "No model call yet. Each call appears here as soon as the agent has made one."
# Keeps saved pages small: the first and last entries of a long request.
STATIC_ENTRIES: Final = 120
# Characters of a folded text in a page without scripts.
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
"""Colour and shape by outcome; the SVG path is drawn as a line, in a field of 12 by 12 pixels."""

OTHER_MARK: Final = ("currentColor", "M4,2.5l3.5,3.5l-3.5,3.5")
"""The same for an entry without an outcome: a call."""


def _mark(tone: str) -> str:
    colour, path = MARKS.get(tone, OTHER_MARK)
    return (
        '<svg class="nn-t-tone" width="12" height="12" viewBox="0 0 12 12" aria-hidden="true" '
        f'xmlns="http://www.w3.org/2000/svg"><path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/></svg>'
    )


def _text(text: object, whole: str = "", *, key: object = None) -> str:
    """Return a foldable text: with a `key`, a button requests the rest; without one, the whole text is included."""
    head, more = folded(text, whole)
    if not head and not more:
        return ""
    words, said = f'<div class="nn-t-words">{escape(head)}</div>', f"Show all {escape(more)}"
    if more and key is not None:
        kind = f'type="button" class="nn-t-more" tabindex="-1" aria-expanded="false" data-key="{key}"'
        words += f"<button {kind}>{said}</button>"
    elif more:
        inside = escape(plain(whole or text, STATIC_LENGTH))
        words = (
            f'<details class="nn-t-whole"><summary><span class="nn-t-words">{escape(head)}</span> '
            f'<span class="nn-t-more">{said}</span></summary><div class="nn-t-words">{inside}</div></details>'
        )
    return f'<div class="nn-t-long">{words}</div>'


def entry_row(shown: ShownRows, entry: Entry, remedy: str | None, *, is_live: bool = True) -> dict[str, Any]:
    """Return a listed entry as a row; `remedy` is None if it is slow to compute, and requested later by the page."""
    if isinstance(entry, Fold):
        kind = f'type="button" class="nn-t-more" tabindex="-1" data-fold="{entry.first}"'
        show = f"<button {kind}>Show them</button>" if is_live else ""
        html = f'<li class="nn-t-fold"><span>{escape(entry.words)}</span>{show}</li>'
        return keyed(f"f{entry.first}", html, fold=entry.first)
    found = shown.rows[entry]
    row = found.row
    name, fill, _ = shown.chip(entry)
    facts = [plain(fact) for fact in (row.role, row.tool) if fact and fact != name]
    tokens = "" if row.tokens is None else f"{count(row.tokens)} token{'s' * (row.tokens != 1)}"
    swatch = f'<span class="nn-t-origin-swatch" style="--nn-fill:{fill}" aria-hidden="true"></span>'
    change = f'<span class="nn-t-change">{shown.change_words(found.change)}</span>' if found.change else ""
    reason = f"{shown.why(entry)} {remedy or ''}".strip()
    why = f'<div class="nn-t-why">{escape(reason)}</div>' if reason else ""
    was = ""
    if found.change == "changed" and found.other is not None:
        before = _text(found.other.text, key=f"w{entry}" if is_live else None)
        was = f'<div class="nn-t-was"><span class="nn-t-change">before</span>{before}</div>'
    sent = str(row.is_sent).lower()
    html = (
        f'<li class="nn-t-item" data-sent="{sent}" data-change="{found.change}"><div class="nn-t-item-head">'
        f'{change}{swatch}<span class="nn-t-origin">{escape(name)}</span>'
        f'<span class="nn-t-facts">{escape(" · ".join(facts))}</span><span class="nn-number">{tokens}</span></div>'
        f"{why}{_text(row.text, row.whole, key=entry if is_live else None)}{was}</li>"
    )
    item = row.position if found.own else None
    return keyed(entry, html, item=item, sent=row.is_sent, remedy=remedy is None)


def line_row(key: str, line: OutcomeLine, *, is_live: bool = True) -> dict[str, Any]:
    """Return a line of a call's outcome, or of the time before the call, as a row."""
    named = f"{_mark(line.tone)}<span>{escape(line.heading)}</span>"
    head = f'<div class="nn-t-line-head">{named}</div>' if line.heading else ""
    kind = f'class="nn-t-line" data-kind="{escape(line.kind)}" data-level="{line.level}"'
    html = f"<li {kind}>{head}{_text(line.text, key=key if is_live else None)}</li>"
    return keyed(key, html, seq=line.seq, quiet=line.is_quiet)


def _line(line: OutcomeLine) -> str:
    html: str = line_row("", line, is_live=False)["html"]
    return html


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
    """Return a label with the number of checks that found nothing.

    Examples
    --------
    >>> quiet_words(1), quiet_words(3)
    ('1 check that found nothing', '3 checks that found nothing')
    """
    return f"{number:,} check{'' if number == 1 else 's'} that found nothing"


def _shortened(entries: Sequence[Entry], most: int) -> tuple[Sequence[Entry], int, Sequence[Entry]]:
    """Return the first and last entries of a long list, with the number of entries left out between them."""
    if len(entries) <= most:
        return entries, 0, ()
    return entries[: most // 2], len(entries) - most, entries[len(entries) - most // 2 :]


def static_html(call: ShownCall | None, empty: str = EMPTY) -> str:
    """Return a call as HTML without scripts; `empty` if there is none."""
    head = heading("Transcript")
    if call is None:
        return f'{head}<p class="nn-empty">{escape(empty)}</p>'
    first, left, last = _shortened(call.entries(only_changes=True), STATIC_ENTRIES)
    remedies = _remedies(call, (*first, *last))
    rows = [entry_row(call, entry, remedies.get(entry, ""), is_live=False)["html"] for entry in (*first, *last)]
    if left:
        rows.insert(len(first), f'<li class="nn-t-fold">{left:,} more, all of them in to_frame()</li>')
    notes = "".join(
        f'<p class="nn-note">{escape(note)}</p>' for note in (call.settings, call.unknown, call.difference) if note
    )
    before = f'<p class="nn-t-part">Before the call</p>{_lines(call.before)}' if _is_loud(call.before) else ""
    return (
        f'{head}<p class="nn-sub">{escape(title_of(call.record))}: {escape(call.headline)}</p>{notes}{before}'
        f'<p class="nn-t-part">Request</p><ol class="nn-t-items">{"".join(rows)}</ol>'
        f'<p class="nn-t-part">Answer</p><p class="nn-sub">{escape(call.answer)}</p>{_lines(call.outcome)}'
    )


def _remedies(call: ShownCall, entries: Sequence[Entry]) -> Mapping[Entry, str]:
    return call.remedies([entry for entry in entries if not isinstance(entry, Fold)])


def _is_loud(lines: Sequence[OutcomeLine]) -> bool:
    return any(not line.is_quiet for line in lines)


def static_text(call: ShownCall | None, empty: str = EMPTY) -> str:
    """Return a call as plain text; `empty` if there is none."""
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


def _entry_text(call: ShownCall, entry: Entry, remedies: Mapping[Entry, str]) -> str:
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
