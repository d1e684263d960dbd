"""A scene as SVG: inside a page, where it fills the available width, or as a separate file.

Horizontal positions are percentages of the width, or in a stretched box; vertical ones are in pixels. Text is not scaled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from noetic_nb.markup import escape
from noetic_nb.plots._scene.scene import AXIS_PX, GROUNDS, SINGLE, Mark, Panel, Scene, Series, anchor_at
from noetic_nb.runs._plain_text import clip

GAP_PX: Final = 8
# Space in a separate file besides the panels: a margin, captions, and the axis below.
MARGIN_PX: Final = 14
CAPTION_PX: Final = 22
FOOT_PX: Final = 18
LINE_PX: Final = 20
LETTER_PX: Final = 6.4
# As shares of the width: minimum width of a bar, and of one with words; in letters, the whole width.
LEAST_WIDE: Final = 0.0045
WORDY: Final = 0.06
# Minimum height of a bar, in pixels.
LEAST_HIGH: Final = 2
LETTERS: Final = 140
# Labels beyond this share of the width are right-aligned.
EDGE: Final = 0.985
GROUND: Final = ' class="nn-ground"'
BAD: Final = "#D55E00"
DOT: Final = '<svg x="{x:.3f}%" y="{y:g}" overflow="visible">{inside}</svg>'


def path_of(kind: str, panel: Panel, marks: Iterable[Mark]) -> str:
    parts: list[str] = []
    area: list[tuple[float, float, float]] = []
    joined = False
    for _, points, *_ in marks:
        match kind:
            case "box":
                left, low, right, high = points
                top, foot = panel.span(low, high)
                parts.append(f"M{left:g},{top:g}H{right:g}V{foot:g}H{left:g}Z")
            case "line":
                for x, y in zip(points[::2], points[1::2], strict=True):
                    # The round line ends make a single point visible.
                    parts.append(f"L{x:g},{panel.y(y):g}" if joined else f"M{x:g},{panel.y(y):g}h0")
                    joined = True
                joined = joined and bool(points)
            case "step":
                left, y, right = points
                parts.append(f"M{left:g},{panel.y(y):g}H{right:g}")
            case "area":
                x, low, high = points
                area.append((x, panel.y(low), panel.y(high)))
            case _:
                x, y = points
                parts.append(f"M{x:g},{panel.y(y):g}h0")
    if area:
        edge = [f"{x:g},{high:g}" for x, _, high in area] + [f"{x:g},{low:g}" for x, low, _ in area[::-1]]
        parts.append(f"M{'L'.join(edge)}Z")
    return "".join(parts)


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def text(x: str, y: float, words: str, anchor: str = "end", more: str = "") -> str:
    """Return one line of text at a position."""
    return f'<text x="{x}" y="{y:g}" text-anchor="{anchor}" font-size="11" fill="currentColor"{more}>{escape(words)}</text>'


def plot(scene: Scene, panel: Panel, theme: str | None = None) -> str:
    paths, single = [], []
    for name, look, marks in scene.drawn(panel):
        if look.kind in SINGLE:
            single += [_single(scene, panel, mark, look, theme) for mark in marks]
        else:
            d = path_of(look.kind, panel, marks)
            paths.append(f'<path class="nn-mark nn-{name}" style="{look.style(theme)}" d="{d}"/>')
    span = scene.last - scene.first
    box = (
        f'<svg class="nn-lines" width="100%" height="{panel.height}" viewBox="{scene.first:g} 0 {span:g} {panel.height}" '
        f'preserveAspectRatio="none">{"".join(paths)}</svg>'
    )
    return box + "".join(single)


def _single(scene: Scene, panel: Panel, mark: Mark, look: Series, theme: str | None) -> str:
    share = scene.share(mark.points[0])
    x, y = 100 * share, panel.y(mark.points[1])
    if look.kind == "bar":
        return _bar(panel, mark, look, share, scene.share(mark.points[2]), theme)
    if look.kind == "text":
        # In a lane, text is centred on a background of its own.
        return text(f"{x:.3f}%", y + 4 * bool(panel.lanes), mark.text, anchor_at(share), GROUND * bool(panel.lanes))
    inside = f'<path class="nn-mark nn-{mark.series}" style="{look.style(theme)}" d="{look.path}"/>'
    return DOT.format(x=x, y=y, inside=_title(mark.text) + inside)


def _bar(panel: Panel, mark: Mark, look: Series, left: float, right: float, theme: str | None) -> str:
    top, foot = panel.span(*mark.points[1::2])
    wide, high = max(right - left, LEAST_WIDE), max(foot - top, LEAST_HIGH)
    left = min(left, 1 - wide)
    # Besides the sign, a problem has a frame, because the colour shows the kind.
    frame = f' stroke="{BAD}" stroke-width="2"' if "bad" in mark.tone else ""
    pale = ' opacity="0.8"' if "many" in mark.tone else ""
    box = f'<rect class="nn-mark" width="100%" height="{high:g}" rx="2" style="{look.style(theme)}"{frame}{pale}/>'
    words = " ".join(filter(None, (mark.sign, mark.words)))
    if wide >= WORDY and mark.words:
        fits = clip(words, max(3, round(wide * LETTERS)))
        box += f'<text x="4" y="{high - 5:g}" font-size="11" fill="{look.ink}">{escape(fits)}</text>'
    # A nested SVG clips the words at the end of the bar, but not its frame.
    bar = (
        f'<svg x="{100 * left:.3f}%" width="{100 * wide:.3f}%" y="{top:g}" height="{high:g}" '
        f'overflow="{"hidden" if words and not frame else "visible"}">{_title(mark.text)}{box}</svg>'
    )
    if not mark.sign or (wide >= WORDY and mark.words):
        return bar
    # With a background of its own, because it is wider than its bar.
    return bar + text(f"{100 * left:.3f}%", foot - 5, mark.sign, "end" if left > 0.97 else "start", GROUND)


def axis(panel: Panel, x: str = "100%") -> str:
    """Return the axis labels of a panel, so that both end labels fit."""
    return "".join(text(x, min(max(panel.y(y) + 4, 9), panel.height - 1), words) for y, words in panel.ticks)


def foot(scene: Scene) -> str:
    """Return the labels below the last panel; labels at the edges are not centred."""
    many = len(scene.ticks) > 5
    parts = []
    for at, (x, words) in enumerate(scene.ticks):
        share = scene.share(x)
        anchor = "start" if share < 0.01 or (many and at == 0) else "end" if share > EDGE else "middle"
        parts.append(text(f"{100 * share:.3f}%", 13, words, anchor))
    return "".join(parts)


def _svg(height: float, label: str, inside: str, kind: str = "nn-plot") -> str:
    role = f'role="img" aria-label="{escape(label)}"' if label else 'aria-hidden="true"'
    return (
        f'<svg class="{kind}" {role} width="100%" height="{height}" xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )


def to_html(scene: Scene) -> str:
    """Return the panels as a grid for a page: axes on the left, plots on the right, and a tooltip for each stop."""
    parts = []
    for panel in scene.panels:
        caption = f'<span></span><span class="nn-caption">{escape(panel.caption)}</span>' if panel.caption else ""
        label = panel.caption or panel.key
        parts.append(
            caption
            + _svg(panel.height, "", axis(panel), "nn-plot nn-axis")
            + _svg(panel.height, label, plot(scene, panel))
        )
    tips = "".join(
        f'<rect x="{100 * scene.share(left):.3f}%" width="{100 * (scene.share(right) - scene.share(left)):.3f}%" height="100%">'
        f"{_title(words)}</rect>"
        for left, right, words in scene.stops
    )
    over = f'<svg class="nn-tips" aria-hidden="true" width="100%" height="100%" xmlns="http://www.w3.org/2000/svg">{tips}</svg>'
    name = f'<span class="nn-axis-name">{escape(scene.axis) if scene.axis_px else ""}</span>'
    wide = "" if scene.axis_px == AXIS_PX else f' style="--nn-axis: {scene.axis_px}px"'
    body = f"{''.join(parts)}{name}{_svg(FOOT_PX, '', foot(scene), 'nn-plot nn-axis')}{over if tips else ''}"
    return f'<div class="nn-grid"{wide}>{body}</div>'


def legend_html(scene: Scene) -> str:
    items = "".join(f"<li>{swatch(scene, tone)}<span>{escape(name)}</span></li>" for tone, name in scene.legend)
    return f'<ul class="nn-keys">{items}</ul>' if items else ""


def swatch(scene: Scene, name: str, theme: str | None = None) -> str:
    """Return the legend sample of a series."""
    look = scene.series[name]
    return (
        '<svg class="nn-swatch" width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true" xmlns="http://www.w3.org/2000/svg">'
        f'<path class="nn-mark nn-{name}" style="{look.style(theme)}" stroke-linecap="round" d="{look.swatch}"/></svg>'
    )


def to_svg(scene: Scene, width: int = 960, theme: str = "light") -> str:
    """Return the scene as an SVG file: title, legend, panels and axis, with a background."""
    ground, ink = GROUNDS[theme]
    left = MARGIN_PX + (scene.axis_px + GAP_PX if scene.axis_px else 0)
    wide = max(80, width - left - MARGIN_PX)
    parts, y = [], float(MARGIN_PX)
    if scene.title:
        parts.append(
            f'<text x="{MARGIN_PX}" y="{y + 12:g}" font-size="14" font-weight="600">{escape(scene.title)}</text>'
        )
        y += 26
    x: float = MARGIN_PX
    for at, (tone, name) in enumerate(scene.legend):
        need = 20 + LETTER_PX * len(name) + 18
        if at and x + need > width:
            x, y = MARGIN_PX, y + LINE_PX
        parts.append(
            f'<g transform="translate({x:g},{y:g})">{swatch(scene, tone, theme)}{text("20", 11, name, "start")}</g>'
        )
        x += need
    y += LINE_PX + 4 if scene.legend else 0
    for panel in scene.panels:
        if panel.caption:
            parts.append(f'<text x="{left}" y="{y + 15:g}" font-size="11">{escape(panel.caption)}</text>')
            y += CAPTION_PX
        parts.append(f'<g transform="translate({MARGIN_PX},{y:g})">{axis(panel, str(scene.axis_px))}</g>')
        parts.append(
            f'<svg x="{left}" y="{y:g}" width="{wide}" height="{panel.height}">{plot(scene, panel, theme)}</svg>'
        )
        y += panel.height
    if scene.axis_px:
        parts.append(f'<g transform="translate({MARGIN_PX},{y:g})">{text(str(scene.axis_px), 13, scene.axis)}</g>')
    parts.append(f'<svg x="{left}" y="{y:g}" width="{wide}" height="{FOOT_PX}" overflow="visible">{foot(scene)}</svg>')
    height = y + FOOT_PX + MARGIN_PX
    lines = (
        ".nn-lines path { vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-linecap: round }"
        f".nn-ground {{ paint-order: stroke; stroke: {ground}; stroke-width: 3px }}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:g}" viewBox="0 0 {width} {height:g}" '
        f'role="img" aria-label="{escape(scene.title)}" color="{ink}" fill="{ink}" font-family="system-ui, sans-serif">'
        f'<style>{lines}</style><rect width="100%" height="100%" fill="{ground}"/>{"".join(parts)}</svg>\n'
    )
