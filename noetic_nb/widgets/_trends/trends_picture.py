"""The trends as HTML and SVG without scripts, and as plain text.

Turns lie in percent of the width and values in pixels of the height, so that text keeps its size on every page. Lines are paths
in a box of their own, which is stretched to the width of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from noetic_nb.markup import escape, heading
from noetic_nb.runs._palette import DECISION_LOOKS, MEAN_COLOUR, OTHER_LOOK, QUALITY_COLOUR
from noetic_nb.runs._regulation.thread_signals import TurnSignals
from noetic_nb.widgets._trends.trends_marks import LANE_PX, headline, lanes, mark_text
from noetic_nb.widgets._trends.trends_panels import CELLS, PANELS, Panel, ThreadChart
from noetic_nb.widgets._trends.trends_scales import FORMATS, Scale, centre, runs_of

EMPTY: Final = "No turn yet. Grades, costs and decisions appear here as they come."
# Beyond this many columns dots would run together; a list of more decisions would fill the page.
CROWDED: Final = 80
LISTED: Final = 8
_BY_CHANCE: Final = frozenset(panel.key for panel in PANELS if panel.look == "dots")
LIST_LENGTH: Final = 200
BRACKET_PX: Final = 24
BAND: Final = "Decisions"
NO_DECISION: Final = "No decision to warn, change or stop."


def _svg(height: float, label: str, inside: str, kind: str = "nn-plot") -> str:
    role = f'role="img" aria-label="{escape(label)}"' if label else 'aria-hidden="true"'
    return (
        f'<svg class="{kind}" {role} width="100%" height="{height}" xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )


def _text(x: str, y: float, text: str, anchor: str = "end") -> str:
    return f'<text x="{x}" y="{y:.1f}" text-anchor="{anchor}" font-size="11" fill="currentColor">{escape(text)}</text>'


def _stretched(columns: int, height: int, inside: str) -> str:
    return (
        f'<svg class="nn-lines" width="100%" height="{height}" viewBox="0 0 {columns} {height}" preserveAspectRatio="none">'
        f"{inside}</svg>"
    )


def _path(points: Sequence[tuple[float, float]], colour: str, width: float, kind: str = "") -> str:
    if len(points) < 2:
        return ""
    steps = "L".join(f"{x:g},{y:g}" for x, y in points)
    return f'<path class="nn-line {kind}" d="M{steps}" stroke="{colour}" stroke-width="{width}"/>'


def _bands(chart: ThreadChart) -> str:
    rows = chart.rows()
    step = 100 / len(rows)
    return "".join(
        f'<rect class="nn-mark nn-broken" x="{first * step:.3f}%" width="{(last - first + 1) * step:.3f}%" height="100%"/>'
        for first, last in runs_of([bool(row.get("broken")) for row in rows])
    )


def _steps(chart: ThreadChart, panel: Panel, scale: Scale) -> str:
    """Return the threshold of a picture: a line, stepped where the number in force changed."""
    rows = chart.rows()
    numbers = [row["rule"].get(panel.key) for row in rows]
    step = 100 / len(rows)
    parts = []
    at = 0
    for number, group in groupby(numbers):
        many = len(list(group))
        x, wide = at * step, many * step
        at += many
        if number is None:
            continue
        y = scale.y(number)
        if panel.key == "quality":
            parts.append(
                f'<rect class="nn-mark nn-poor" x="{x:.3f}%" width="{wide:.3f}%" y="{y}" height="{panel.height - y:.1f}">'
                f"<title>Poor: below {number:.3g}</title></rect>"
            )
        parts.append(f'<rect class="nn-rule" x="{x:.3f}%" width="{wide:.3f}%" y="{y - 0.75:.2f}" height="1.5"/>')
    return "".join(parts)


def _series(chart: ThreadChart, key: str, scale: Scale, colour: str, width: float, *, kind: str = "") -> str:
    """Return a line through the last values of the columns, and the range of those that have one."""
    found = [(at, row["values"][key]) for at, row in enumerate(chart.rows()) if key in row["values"]]
    line = _path([(at + 0.5, scale.y(values[-1])) for at, values in found], colour, width, kind)
    if chart.size == 1 or key == "mean" or len(found) < 2:
        return line
    upper = [(at + 0.5, scale.y(values[1] if len(values) > 1 else values[0])) for at, values in found]
    lower = [(at + 0.5, scale.y(values[0])) for at, values in found]
    outline = "L".join(f"{x:g},{y:g}" for x, y in [*upper, *lower[::-1]])
    area = f'<path class="nn-range {kind}-range" d="M{outline}Z" fill="{colour}" stroke="{colour}"/>'
    # The last of many values is any of them; where values only grow it is where they are.
    return area + (line if key not in _BY_CHANCE else "")


def _dots(chart: ThreadChart, panel: Panel, scale: Scale) -> str:
    rows = chart.rows()
    if len(rows) > CROWDED:
        return ""
    radius = 4 if panel.key == "quality" else 2.5
    spots = []
    for at, row in enumerate(rows):
        for value in (
            row.get("dots") or row["values"].get(panel.key, [])[-1:]
            if panel.key == "quality"
            else (row["values"].get(panel.key, [])[-1:])
        ):
            tip = f"Turn {row['cells'][0]}: {panel.title} {FORMATS[panel.unit](value)}"
            spots.append(
                f'<circle class="nn-mark nn-{panel.key}" cx="{centre(at, len(rows)):.3f}%" cy="{scale.y(value)}" r="{radius}" '
                f'fill="{panel.colour}"><title>{escape(tip)}</title></circle>'
            )
    return "".join(spots)


def _bars(chart: ThreadChart, panel: Panel, scale: Scale) -> str:
    rows = chart.rows()
    step = 100 / len(rows)
    # Where columns are narrower than gaps would be, they touch.
    inset = 0.18 if len(rows) <= CROWDED else 0
    foot = scale.y(0)
    parts = []
    for at, row in enumerate(rows):
        values = row["values"].get(panel.key)
        if not values or not max(values):
            continue
        tip = f"Turn {row['cells'][0]}: {panel.title} {FORMATS[panel.unit](values[-1])}"
        x, wide = (at + inset) * step, (1 - 2 * inset) * step
        # A range is a pale bar to its greatest value with a full one to its least.
        heights = [(values[1], "nn-most"), (values[0], "")] if len(values) > 1 else [(values[0], "")]
        for value, kind in heights:
            height = max(1.0, foot - scale.y(value))
            parts.append(
                f'<rect class="nn-mark {kind}" x="{x:.3f}%" width="{wide:.3f}%" y="{foot - height:.2f}" height="{height:.2f}" '
                f'fill="{panel.colour}"><title>{escape(tip)}</title></rect>'
            )
    return "".join(parts)


def _plot(chart: ThreadChart, panel: Panel) -> str:
    rows = chart.rows()
    scale = Scale(0, chart.about["tops"][panel.key], panel.height)
    inside = _bands(chart) + _steps(chart, panel, scale)
    if panel.look == "bars":
        inside += _bars(chart, panel, scale)
    else:
        wide = {"quality": 1.25, "spent": 2.5}.get(panel.key, 1.5)
        lines = _series(chart, panel.key, scale, panel.colour, wide, kind=f"nn-{panel.key}")
        if panel.key == "quality":
            lines += _series(chart, "mean", scale, MEAN_COLOUR, 3, kind="nn-mean")
        inside += _stretched(len(rows), panel.height, lines)
        # A line needs two points to be seen.
        inside += _dots(chart, panel, scale) if panel.look == "dots" or len(rows) == 1 else ""
    return _svg(panel.height, f"{panel.title}, last {_last(chart, panel) or 'unknown'}", inside)


def _last(chart: ThreadChart, panel: Panel) -> str:
    found = next((row["values"][panel.key] for row in reversed(chart.rows()) if panel.key in row["values"]), None)
    return "" if found is None else FORMATS[panel.unit](found[-1])


def ticks(chart: ThreadChart, panel: Panel) -> list[tuple[float, str]]:
    """Return the labels of an axis: its threshold, and those ends that it does not cover."""
    scale = Scale(0, chart.about["tops"][panel.key], panel.height)
    line = chart.rows()[-1]["rule"].get(panel.key)
    write = FORMATS[panel.unit]
    found = []
    if line is not None:
        text = f"{line:.3g}" if panel.unit == "share" else write(line)
        found.append((scale.y(line), f"{panel.limit} {text}"))
    ends = [0.0, 1.0] if panel.top is not None else [0.0]
    for end in ends:
        if all(abs(scale.y(end) - y) >= 12 for y, _ in found):
            found.append((scale.y(end), f"{end:.0f}"))
    return found


def _axis(chart: ThreadChart, panel: Panel) -> str:
    # Kept whole at both edges of the picture.
    labels = [_text("100%", min(max(y + 4, 9), panel.height - 1), text) for y, text in ticks(chart, panel)]
    return _svg(panel.height, "", "".join(labels), "nn-plot nn-axis")


def _brackets(chart: ThreadChart) -> str:
    brackets = chart.about["brackets"]
    columns = len(chart.rows())
    if not brackets or not columns:
        return ""
    parts, texts = [], []
    for first, last, _, _, text, broke in brackets:
        left, right = chart.column_of(first) + 0.5, chart.column_of(last) + 0.5
        if right <= left:
            left, right = left - 0.3, right + 0.3
        kind = "nn-fell" if broke else "nn-window"
        parts.append(f'<path class="nn-line {kind}" d="M{left:g},23L{left:g},17L{right:g},17L{right:g},23"/>')
        x = 100 * (left + right) / 2 / columns
        anchor = "start" if x < 12 else "end" if x > 88 else "middle"
        texts.append(_text(f"{x:.3f}%", 12, text.replace("->", "→"), anchor))
    inside = _stretched(columns, BRACKET_PX, "".join(parts)) + "".join(texts)
    return f"<span></span>{_svg(BRACKET_PX, 'Windows of grades', inside)}"


def _marks(chart: ThreadChart) -> str:
    rows = chart.rows()
    placed = lanes([row.get("marks", []) for row in rows])
    if not placed:
        return ""
    height = LANE_PX * (1 + max(mark.lane for mark in placed))
    step = 100 / len(rows)
    # A break holds until the task is reset, which a line after its mark shows.
    shapes = [
        f'<rect class="nn-mark nn-held" x="{(first + 0.5) * step:.3f}%" width="{(last - first + 0.5) * step:.3f}%" '
        f'y="{height - 2}" height="2"/>'
        for first, last in runs_of([bool(row.get("broken")) for row in rows])
    ]
    for spot in placed:
        colour, path = DECISION_LOOKS.get(spot.kind, OTHER_LOOK)
        anchor, dx = ("end", -11) if spot.left else ("start", 11)
        shapes.append(
            f'<svg x="{spot.x:.3f}%" y="{spot.lane * LANE_PX + LANE_PX / 2}" overflow="visible">'
            f"<title>{escape(spot.text)}</title>"
            f'<path class="nn-mark{" nn-small" if spot.small else ""}" d="{path}" fill="{colour}"/>'
            + (
                f'<text x="{dx}" y="4" text-anchor="{anchor}" font-size="11.5" fill="currentColor">{escape(spot.label)}</text>'
                if spot.label
                else ""
            )
            + "</svg>"
        )
    return f"<span></span>{_svg(height, BAND, ''.join(shapes), 'nn-plot nn-axis')}"


def _turn_axis(chart: ThreadChart) -> str:
    rows = chart.rows()
    every = -(-len(rows) // 10)
    texts = [
        _text(
            f"{centre(at, len(rows)):.3f}%",
            13,
            str(rows[at]["turns"][0]),
            "start" if at == 0 and every > 1 else "middle",
        )  # the first of many is too close to the edge
        for at in range(0, len(rows), every)
    ]
    return f'<span class="nn-axis-name">turn</span>{_svg(18, "", "".join(texts), "nn-plot nn-axis")}'


def _picture(chart: ThreadChart) -> str:
    parts = [_marks(chart)]
    for panel in PANELS:
        if panel.key not in chart.about["shown"]:
            continue
        known = _last(chart, panel)
        parts.append(f'<span></span><span class="nn-caption">{panel.title}{f" · {known}" if known else ""}</span>')
        if panel.key == "quality":
            parts.append(_brackets(chart))
        parts.append(_axis(chart, panel) + _plot(chart, panel))
    parts.append(_turn_axis(chart))
    return f'<div class="nn-grid">{"".join(parts)}</div>'


def _legend(chart: ThreadChart) -> str:
    window = chart.thread.window
    entries = [(QUALITY_COLOUR, "nn-quality", "quality of a turn")]
    if window is not None:
        entries.append((MEAN_COLOUR, "", f"mean of the last {window}"))
    if any(row.get("broken") for row in chart.rows()):
        entries.append((MEAN_COLOUR, "nn-broken-key", "broken"))
    items = "".join(
        '<li><svg class="nn-swatch" width="12" height="12" aria-hidden="true" xmlns="http://www.w3.org/2000/svg">'
        f'<rect class="{kind}" width="12" height="12" fill="{colour}"/></svg><span>{name}</span></li>'
        for colour, kind, name in entries
    )
    return f'<ul class="nn-keys">{items}</ul>'


def _table(chart: ThreadChart) -> str:
    shown = [at for at, (key, _) in enumerate(CELLS) if key in chart.about["cells"]]
    names = [CELLS[at][1] for at in shown]
    head = "".join(f'<th scope="col"{" class=" + chr(34) + "nn-text" + chr(34) if name == "Decisions" else ""}>{name}</th>'
                   for name in names)  # fmt: skip
    body = []
    for row in chart.rows():
        first, *others = [row["cells"][at] for at in shown]
        middle = "".join(f"<td>{cell}</td>" for cell in others[:-1])
        body.append(f'<tr><th scope="row">{first}</th>{middle}<td class="nn-text">{escape(others[-1])}</td></tr>')
    return (
        f'<div class="nn-scroll nn-tall"><table class="nn-table"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _decided(turns: Sequence[TurnSignals]) -> list[str]:
    return [mark_text(turn, mark).replace("->", "→") for turn in turns for mark in turn.marks]


def _decisions(turns: Sequence[TurnSignals]) -> str:
    found = _decided(turns)
    if not found:
        return f'<p class="nn-note">{NO_DECISION}</p>'
    is_open = " open" if len(found) <= LISTED else ""
    more = f"<li>And {len(found) - LIST_LENGTH} more.</li>" if len(found) > LIST_LENGTH else ""
    entries = "".join(f"<li>{escape(text)}</li>" for text in found[:LIST_LENGTH])
    return f'<details{is_open}><summary>Decisions: {len(found)}</summary><ul class="nn-list">{entries}{more}</ul></details>'


def static_html(empty: str, chart: ThreadChart | None, others: Sequence[str]) -> str:
    """Return the pictures of one thread as HTML without scripts, with its table below; `empty` where there is none."""
    head = heading("Regulator trends")
    if chart is None or not chart.turns:
        return f'{head}<p class="nn-empty">{escape(empty)}</p>'
    notes = (
        [f"Each column is {chart.size} turns: the least and the greatest of their values."] if chart.size > 1 else []
    )
    notes += [chart.about["note"]] if chart.about["note"] else []
    if others:
        notes.append(f"Other threads of this run: {', '.join(others[:10])}{'…' if len(others) > 10 else ''}")
    return (
        f'{head}<p class="nn-sub">{escape(headline(chart.thread))}</p>{_legend(chart)}{_picture(chart)}'
        + "".join(f'<p class="nn-note">{escape(note)}</p>' for note in notes)
        + _decisions(chart.turns)
        + f"<details{' open' if len(chart.rows()) <= 20 else ''}><summary>Table</summary>{_table(chart)}</details>"
    )


def static_text(empty: str, chart: ThreadChart | None) -> str:
    """Return one thread as plain text; `empty` where there is none."""
    if chart is None or not chart.turns:
        return f"Regulator trends. {empty}"
    lines = [f"Regulator trends. {headline(chart.thread)}", "  turn  quality       mean  tokens so far"]
    for row in chart.rows():
        turn, quality, mean, _, spent, *_ = row["cells"]
        lines.append(f"  {turn:>4}  {quality:>7}  {mean:>9}  {spent:>13}")
    lines += [chart.about["note"]] if chart.about["note"] else []
    decided = [mark_text(turn, mark) for turn in chart.turns for mark in turn.marks]
    return "\n".join([*lines, *decided[:LIST_LENGTH]])
