"""The token allocation without a kernel: HTML and SVG without scripts, and plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetic_nb.markup import escape
from noetic_nb.runs.model_calls import CallShare, LeftOut, Part
from noetic_nb.runs.plain_text import REASONS, count
from noetic_nb.widgets.allocation.bars import bar, swatch

__all__ = ["EMPTY", "NOTE", "left_out_text", "rows", "static_html", "static_text"]

EMPTY: Final = "No model call yet. Each call appears here as soon as the agent sends one."
NOTE: Final = (
    "Planned is the split of the budget before the call; tools and framing come off history. "
    "Pale with a dashed edge: allocated to a layer, not used by it, yielded to history."
)
# Older calls stay in the run's tables; a page of a saved notebook stays light. A short list is shown at once.
CALLS_SHOWN: Final = 60
CALLS_OPEN: Final = 12


def _known(tokens: int) -> str:
    """Return how many tokens that was; nothing where the run does not say, as for items before the window."""
    return f", {count(tokens)} tokens" if tokens else ""


def left_out_text(entry: LeftOut) -> str:
    """Return one fate as a sentence.

    Examples
    --------
    >>> left_out_text(LeftOut("history", "outside_window", 0, 3, 4, None))
    'history, items 0 to 3: outside the window (4 items)'
    """
    places = f"item {entry.first}" if entry.first == entry.last else f"items {entry.first} to {entry.last}"
    size = f"{entry.count} item{'' if entry.count == 1 else 's'}"
    tokens = "" if entry.tokens is None else f", {count(entry.tokens)} tokens"
    return f"{entry.origin}, {places}: {REASONS.get(entry.reason, entry.reason)} ({size}{tokens})"


def rows(call: CallShare, order: dict[str, int]) -> list[tuple[Part, str, str, str, str]]:
    """Return the table behind the bars: a part, then used, allocated, yielded and items as text."""
    found = [
        (Part("system", "System", call.system), count(call.system), "", "", ""),
        (Part("tools", "Tools", call.tools), count(call.tools), "", "", ""),
    ]
    for layer in call.layers:
        part = Part("layer", layer.name, layer.used, order[layer.name])
        yielded = "" if layer.yielded is None else count(layer.yielded)
        found.append((part, count(layer.used), count(layer.allocated), yielded, str(layer.items)))
    found += [
        (Part("framing", "Framing", call.framing), count(call.framing), "", "", ""),
        (
            Part("history", "History", call.history),
            count(call.history),
            count(call.history_budget),
            "",
            str(call.history_items),
        ),
        (Part("free", "Free", call.free), count(call.free) if call.total is not None else "no limit", "", "", ""),
        (Part("reserve", "Reserve", call.reserve), "", count(call.reserve), "", ""),
    ]
    return found


def _table(call: CallShare, order: dict[str, int]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Part", "Used", "Allocated", "Yielded", "Items"))
    body = "".join(
        f'<tr><th scope="row"><span class="nn-cell">{swatch(part)}<span>{escape(part.label)}</span></span></th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for part, *cells in rows(call, order)
    )
    caption = '<caption class="nn-hidden">Tokens by part</caption>'
    return (
        f'<div class="nn-scroll"><table class="nn-table">{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _left_out(call: CallShare) -> str:
    if not call.left_out:
        return '<p class="nn-note">Nothing was left out.</p>'
    number, tokens = call.dropped
    entries = "".join(f"<li>{escape(left_out_text(entry))}</li>" for entry in call.left_out)
    summary = f"Left out: {number} item{'' if number == 1 else 's'}{_known(tokens)}"
    return f'<details open><summary>{summary}</summary><ul class="nn-list">{entries}</ul></details>'


def _all_calls(calls: Sequence[CallShare], order: dict[str, int]) -> str:
    if len(calls) < 2:
        return ""
    shown = calls[-CALLS_SHOWN:]
    scale = max(call.scale(order) for call in shown)
    several = len({call.thread for call in shown}) > 1 or any(call.depth for call in shown)
    lines = "".join(
        f'<tr><th scope="row">{escape(call.title if several else call.title.partition(" · ")[0])}</th><td class="nn-wide">'
        f"{bar(call.sent_parts(order), scale, label=call.headline, height_px=12)}</td>"
        f"<td>{count(call.sent)}</td></tr>"
        for call in shown
    )
    earlier = f", the last {len(shown)} shown" if len(shown) < len(calls) else ""
    return (
        f"<details{' open' if len(shown) <= CALLS_OPEN else ''}><summary>All {len(calls)} model calls{earlier}</summary>"
        f'<div class="nn-scroll"><table class="nn-table"><thead><tr><th scope="col">Call</th>'
        f'<th scope="col">Sent</th><th scope="col">Tokens</th></tr></thead><tbody>{lines}</tbody></table></div></details>'
    )


def static_html(calls: Sequence[CallShare], shown: int, order: dict[str, int]) -> str:
    """Return the picture of one call, and of all calls below it, as HTML without scripts."""
    head = '<p class="nn-title">Token allocation</p>'
    if not calls:
        return f'{head}<p class="nn-empty">{EMPTY}</p>'
    call = calls[shown]
    scale = call.scale(order)
    sent = bar(call.sent_parts(order), scale, label=f"Sent: {call.headline}", height_px=34, limit=call.total)
    planned = bar(call.planned_parts(order), scale, label="Planned before the call", height_px=16, limit=call.total)
    return (
        f'{head}<p class="nn-sub">{escape(call.title)}: {escape(call.headline)}</p>'
        f'<div class="nn-rows"><span class="nn-row-name">Sent</span>{sent}'
        f'<span class="nn-row-name">Planned</span>{planned}</div>'
        f'<p class="nn-note">{NOTE}</p>'
        f"{_table(call, order)}{_left_out(call)}{_all_calls(calls, order)}"
    )


def static_text(calls: Sequence[CallShare], shown: int, order: dict[str, int]) -> str:
    """Return one call as plain text."""
    if not calls:
        return f"Token allocation. {EMPTY}"
    call = calls[shown]
    width = max((len(part.label) for part, *_ in rows(call, order)), default=0)
    lines = [f"Token allocation. {call.title}", call.headline]
    for part, used, allocated, yielded, _ in rows(call, order):
        of = f" of {allocated}" if allocated and used else allocated
        if part.kind == "history":
            of = "" if used == allocated else f", {allocated} planned"
        gave = f", {yielded} yielded" if yielded else ""
        lines.append(f"  {part.label:<{width}}  {used}{of}{gave}")
    number, tokens = call.dropped
    if number:
        lines.append(f"Left out: {number} item{'' if number == 1 else 's'}{_known(tokens)}")
        lines += [f"  {left_out_text(entry)}" for entry in call.left_out]
    return "\n".join(lines)
