"""Objective requirements for a picture, computed from the styles in the page."""

from __future__ import annotations

from typing import Any, Final

from tests.browser.lab import wait_for

# Blends colours with their backgrounds and reports every text with a contrast below 4.5 to 1 (WCAG 2.2, level AA).
CONTRAST: Final = r"""root => {
  const ctx = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const kept = (known, make) => key => { if (!known.has(key)) known.set(key, make(key)); return known.get(key); };
  const rgba = kept(new Map(), css => { ctx.clearRect(0, 0, 1, 1); ctx.fillStyle = "#000"; ctx.fillStyle = css;
    ctx.fillRect(0, 0, 1, 1); const [r, g, b, a] = ctx.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; });
  const over = (top, below, opacity = 1) => { const a = top[3] * opacity;
    return [0, 1, 2].map(i => top[i] * a + below[i] * (1 - a)).concat(1); };
  const lum = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [lum(a), lum(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const behind = kept(new Map(), node => { if (!node) return [255, 255, 255, 1];
    const bg = rgba(getComputedStyle(node).backgroundColor);
    return bg[3] === 1 ? bg : over(bg, behind(node.parentElement)); });
  const found = [];
  let checked = 0;
  for (const node of [root, ...root.querySelectorAll("*")]) {
    if (["STYLE", "TITLE", "title", "SCRIPT", "OPTION"].includes(node.tagName)) continue;
    const own = [...node.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join("").trim();
    if (!own) continue;
    const box = node.getBoundingClientRect();
    const style = getComputedStyle(node);
    if (!box.width || !box.height || style.visibility === "hidden") continue;
    if (node.disabled || node.closest(":disabled")) continue;  // inactive controls are exempt
    let ground = behind(node instanceof SVGElement ? node.closest("div") : node);
    if (node instanceof SVGElement) {
      const rect = node.parentElement.querySelector(":scope > rect.nn-mark");
      const mark = rect?.getBoundingClientRect();
      const middle = box.top + box.height / 2;  // a label above its mark stands on the page
      if (rect && middle > mark.top && middle < mark.bottom) {
        const s = getComputedStyle(rect);
        ground = over(rgba(s.fill), ground, Number(s.fillOpacity));
      }
    }
    const ink = over(rgba(node instanceof SVGElement ? style.fill : style.color), ground, Number(style.opacity));
    checked += 1;
    const value = ratio(ink, ground);
    if (value < 4.5) found.push(`${value.toFixed(2)}: ${own.slice(0, 40)}`);
  }
  return {checked, found};
}"""

# Nothing may extend beyond the view, except inside a scrollable part.
OVERFLOW: Final = r"""root => {
  const edge = root.getBoundingClientRect();
  const found = [];
  if (root.scrollWidth > root.clientWidth + 1) found.push(`root ${root.scrollWidth} > ${root.clientWidth}`);
  for (const node of root.querySelectorAll("*")) {
    if (node.closest(".nn-scroll") && !node.matches(".nn-scroll")) continue;
    if (node.closest(".nn-hidden, title, style") || (node instanceof SVGElement && node.parentElement.closest("svg"))) continue;
    const box = node.getBoundingClientRect();
    if (box.width && (box.right > edge.right + 1 || box.left < edge.left - 1))
      found.push(`${node.tagName}.${node.className.baseVal ?? node.className} ${box.left.toFixed(0)}..${box.right.toFixed(0)}`);
  }
  return found;
}"""

MARKS: Final = r"""root => {
  const boxes = [...root.querySelectorAll(".nn-mark")].map(m => { const b = m.getBoundingClientRect();
    const line = getComputedStyle(m).stroke === "none" ? 0 : parseFloat(getComputedStyle(m).strokeWidth);
    return [(b.width + line) * (b.height + line), m.dataset.kind ?? m.getAttribute("class")]; });
  return {total: boxes.length, flat: boxes.filter(([area]) => !(area > 0)).map(([, kind]) => kind)};
}"""


def assert_readable(root: Any) -> None:
    """Check that every text of the view has a contrast of at least 4.5 to 1."""
    # While a page replaces an old form by a new one, it has neither for a moment.
    result = wait_for(lambda: (found := root.evaluate(CONTRAST))["checked"] and found, "the view has text")
    assert result["found"] == [], result["found"]


def assert_contained(root: Any) -> None:
    """Check that nothing extends beyond the sides."""
    found = root.evaluate(OVERFLOW)
    assert found == [], found


def assert_each_readable_and_contained(roots: Any) -> None:
    """Check the contrast of every text and the extent of every element, in all views at once."""
    results = roots.evaluate_all(f"roots => roots.map(root => [({CONTRAST})(root), ({OVERFLOW})(root)])")
    for contrast, overflow in results:
        assert contrast["checked"]
        assert contrast["found"] == [], contrast["found"]
        assert overflow == [], overflow


def assert_marks_have_area(root: Any, *, at_least: int = 1) -> None:
    """Check that every mark of the picture is visible."""
    result = root.evaluate(MARKS)
    assert result["total"] >= at_least
    assert result["flat"] == [], result["flat"]


def at_width(root: Any, width_px: int) -> None:
    """Set the width of the view's page."""
    root.evaluate(
        "(root, width) => { for (const box of [root.parentElement, root]) { box.style.width = `${width}px`;"
        " Object.assign(box.style, {minWidth: '0', maxWidth: 'none', flex: 'none', boxSizing: 'border-box'}); } }",
        width_px,
    )
