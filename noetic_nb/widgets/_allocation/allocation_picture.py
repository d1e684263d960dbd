"""The picture of one model call: computed once, for HTML without scripts, plain text, or a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from noetic_nb.markup import escape
from noetic_nb.plots._scene.svg import swatch, to_html
from noetic_nb.runs._plain_text import REASONS, count, plain
from noetic_nb.runs._requests.model_calls import CallShare, LayerShare, LeftOut, Part
from noetic_nb.widgets._allocation.call_bars import (
    BROKE,
    LANES,
    NO_CACHING,
    CallCaching,
    bars_of,
    call_scene,
    key_of,
    limit_of,
    ticks,
)
from noetic_nb.widgets.base._table import table

EMPTY: Final = "No model call yet. Each call appears here as soon as the agent sends one."
NOTE: Final = (
    "Planned is the split of the budget before the call; tools and framing come off history. "
    "Pale with a dashed edge: allocated to a layer, not used by it, yielded to history. "
    "Unexplained is what was billed beyond all that was planned: the provider's own additions, and the error of the counter. "
    "Shaded: tokens shared with the prefix of the call before. ▼ marks the part that broke the prefix."
)
COLUMNS: Final = ("Part", "Used", "Allocated", "Yielded", "Items", "Shared")
# Keeps a message to the page near 2 kB; further left-out items are counted, and are in the run's tables.
FATES_SENT: Final = 12


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table behind the bars, with tokens as text; a cell is empty if it does not apply."""

    part: Part
    used: str = ""
    allocated: str = ""
    yielded: str = ""
    items: str = ""
    shared: str = ""
    broke: bool = False

    @property
    def cells(self) -> tuple[str, ...]:
        """The columns beside the name."""
        return self.used, self.allocated, self.yielded, self.items, f"{self.shared} ▼" if self.broke else self.shared

    @property
    def words(self) -> str:
        """The row as text for a legend.

        Examples
        --------
        >>> Row(Part("layer", "notes", 40, 0), "40", "100", "60", "1").words
        '40 of 100, 60 yielded'
        """
        mark = f"; {BROKE}" if self.broke else ""
        if self.part.kind == "history":
            return (self.used if self.used == self.allocated else f"{self.used}, {self.allocated} planned") + mark
        of = f"{self.used} of {self.allocated}" if self.used and self.allocated else self.used or self.allocated
        return (f"{of}, {self.yielded} yielded" if self.yielded not in ("", "0") else of) + mark


def rows(call: CallShare, order: dict[str, int], caching: CallCaching = NO_CACHING) -> list[Row]:
    """Return the table behind the bars, from the system prompt to the reserve."""
    shared = {**caching.shared}
    for layer in call.layers:  # framing is a part of its own
        key = order[layer.name]
        if key in shared and (around := shared[key] - layer.used) > 0:
            shared[key] -= around
            shared["framing"] = shared.get("framing", 0) + around
    found = [(row, key_of(row.part)) for row in _rows(call, order)]
    return [
        replace(row, shared=count(shared[key]) if key in shared else "", broke=caching.broke == key)
        for row, key in found
    ]


def _rows(call: CallShare, order: dict[str, int]) -> list[Row]:
    free = count(call.free) if call.total is not None else "no limit"
    front, late = (
        [_layer_row(layer, order) for layer in call.layers if layer.is_late is late] for late in (False, True)
    )
    return [
        Row(Part("system", "System", call.system), count(call.system)),
        Row(Part("tools", "Tools", call.tools), count(call.tools)),
        *front,
        Row(Part("framing", "Framing", call.framing), count(call.framing)),
        Row(
            Part("history", "History", call.history),
            count(call.history),
            count(call.history_budget),
            "",
            str(call.history_items),
        ),
        *late,
        *_unexplained(call),
        Row(Part("free", "Free", call.free), free),
        Row(Part("reserve", "Reserve", call.reserve), "", count(call.reserve)),
    ]


def _layer_row(layer: LayerShare, order: dict[str, int]) -> Row:
    return Row(
        Part("layer", layer.name, layer.used, order[layer.name]),
        count(layer.used),
        count(layer.allocated),
        "" if layer.yielded is None else count(layer.yielded),
        str(layer.items),
    )


def _unexplained(call: CallShare) -> list[Row]:
    if not call.unexplained:
        return []
    tokens = count(call.unexplained) if call.unexplained > 0 else f"−{count(-call.unexplained)}"
    return [Row(Part("unexplained", "Unexplained", max(0, call.unexplained)), tokens)]


def left_out_text(entry: LeftOut) -> str:
    """Describe left-out items in a sentence.

    Examples
    --------
    >>> left_out_text(LeftOut("history", "outside_window", 0, 3, 4, None))
    'history, items 0 to 3: outside the window (4 items)'
    """
    places = f"item {entry.first}" if entry.first == entry.last else f"items {entry.first} to {entry.last}"
    size = f"{entry.count} item{'' if entry.count == 1 else 's'}"
    tokens = "" if entry.tokens is None else f", {count(entry.tokens)} tokens"
    return f"{entry.origin}, {places}: {REASONS.get(entry.reason, entry.reason)} ({size}{tokens})"


def tools_text(call: CallShare) -> str:
    """Return the tools with their tokens, largest first; empty if the run does not have their definitions."""
    largest = sorted(call.offered, key=lambda tool: -tool[1])
    return f"Tools: {', '.join(f'{plain(name)} {count(tokens)}' for name, tokens in largest)}." if largest else ""


def dropped_text(call: CallShare) -> str:
    """Return how many items were left out, with their tokens if all are known."""
    number, tokens = call.dropped
    size = f", {count(tokens)} tokens" if tokens and all(entry.tokens is not None for entry in call.left_out) else ""
    return f"Left out: {count(number)} item{'' if number == 1 else 's'}{size}"


def call_data(
    call: CallShare,
    order: dict[str, int],
    caching: CallCaching = NO_CACHING,
    names: Sequence[str] = LANES,
) -> dict[str, Any]:
    """Return the picture of a call as JSON data for the page, which computes nothing."""
    left_out = [left_out_text(entry) for entry in call.left_out[:FATES_SENT]]
    if len(call.left_out) > FATES_SENT:
        left_out.append(f'and {len(call.left_out) - FATES_SENT} more; the table "items" of the run has all')
    return {
        "title": call.title,
        "head": call.headline,
        "counted": call.counted,
        "turn": call.turn,
        "bars": _bars(call, order, caching),
        "limit": limit_of(call, order),
        "lanes": list(names),
        "ticks": [list(tick) for tick in ticks(call.scale(order))],
        "rows": [[f"{key_of(row.part)}", row.part.label, row.words] for row in rows(call, order, caching)],
        "caching": caching.line,
        "dropped": dropped_text(call),
        "out": left_out,
    }


def _bars(call: CallShare, order: dict[str, int], caching: CallCaching) -> list[list[list[Any]]]:
    """Return the bars of a call in few characters: key, right end, tokens, room, and whether it broke the prefix."""
    return [
        [[f"{key_of(bar.part)}", bar.right, count(bar.part.tokens), bar.room, *[1] * bar.broke] for bar in row]
        for row in bars_of(call, order, caching)
    ]


def call_table(call: CallShare, order: dict[str, int], caching: CallCaching) -> str:
    """Return the table behind the bars as HTML."""
    scene = call_scene(call, order, caching)
    body = (
        [
            f'<span class="nn-cell">{swatch(scene, f"{key_of(row.part)}")}<span>{escape(row.part.label)}</span></span>',
            *map(escape, row.cells),
        ]
        for row in rows(call, order, caching)
    )
    return table("", COLUMNS, body, caption="Tokens by part")


def _left_out(call: CallShare) -> str:
    if not call.left_out:
        return '<p class="nn-note">Nothing was left out.</p>'
    entries = "".join(f"<li>{escape(left_out_text(entry))}</li>" for entry in call.left_out)
    return f'<details open><summary>{dropped_text(call)}</summary><ul class="nn-list">{entries}</ul></details>'


def _counted(call: CallShare) -> str:
    tools = f'<p class="nn-note">{escape(tools_text(call))}</p>' if call.offered else ""
    return (f'<p class="nn-note nn-counted">{escape(call.counted)}</p>' if call.counted else "") + tools


def call_html(call: CallShare, order: dict[str, int], caching: CallCaching) -> str:
    """Return one call as HTML without scripts."""
    picture = to_html(call_scene(call, order, caching))
    return (
        f'<p class="nn-sub">{escape(call.title)}: {escape(call.headline)}</p>{picture}'
        f'<p class="nn-caching">{escape(caching.line)}</p>{_counted(call)}<p class="nn-note">{NOTE}</p>'
        f"{call_table(call, order, caching)}{_left_out(call)}"
    )


def call_text(call: CallShare, order: dict[str, int], caching: CallCaching) -> str:
    table = rows(call, order, caching)
    width = max(len(row.part.label) for row in table)
    lines = [call.title, call.headline, *([call.counted] if call.counted else [])]
    lines += [f"  {row.part.label:<{width}}  {row.words}" for row in table]
    lines += [line for line in (tools_text(call), caching.line) if line]
    if call.dropped[0]:
        lines += [dropped_text(call), *(f"  {left_out_text(entry)}" for entry in call.left_out)]
    return "\n".join(lines)
