"""The script and style of the views, read from the package: nothing is fetched from anywhere.

Each view has one script and one sheet; what all views use stands in front of them, since an inline module cannot import its
neighbour. A page takes both of a view once, however many views of the kind it shows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final


def _place(name: str) -> Traversable:
    return files("noetic_nb.widgets") / (
        name if name.startswith("base/") else f"_{name}"
    )  # folders of views are private


# Cached, so that live and static forms of one kernel agree although the package is upgraded meanwhile.
@cache
def _text(name: str) -> str:
    return _place(name).read_text(encoding="utf-8")


_SHARED: Final = ("base/common", "base/rows")


def script(*names: str) -> str:
    """Return the module of a view, with the common functions in front; the last of several files has its ``export``.

    Examples
    --------
    >>> script("allocation/allocation").count("export default")
    1
    """
    return "\n".join([_text(f"{name}.js") for name in dict.fromkeys((*_SHARED, *names))])


def joint_script(panels: Mapping[str, Sequence[str]], *names: str) -> str:
    """Return one module of several views: ``PANEL_SCRIPTS`` has their functions by name, each in a scope of its own.

    What several of them use stands in front, once.

    Parameters
    ----------
    panels : mapping of str to sequence of str
        The files of each view's script.
    *names : str
        The files of what shows them; the last one has the ``export``.

    Examples
    --------
    >>> module = joint_script({"ledger": ["ledger/ledger"]}, "ledger/ledger")
    >>> module.count("export default"), module.count("PANEL_SCRIPTS")
    (1, 2)
    """
    of_panels = [each for files_of in panels.values() for each in files_of if each.startswith("base/")]
    shared = dict.fromkeys((*_SHARED, *of_panels))
    parts = [*(_text(f"{each}.js") for each in shared), "const PANEL_SCRIPTS = {};"]
    for name, files_of in panels.items():
        own = [_text(f"{each}.js") for each in files_of if each not in shared]
        inside = "\n".join(own).replace("export default ", "return ", 1)
        parts.append(f"PANEL_SCRIPTS[{name!r}] = (() => {{\n{inside}\n}})();")
    return "\n".join([*parts, *[_text(f"{name}.js") for name in names]])


# Hosts evaluate a module anew for each model, and replace a sheet by the same one, after which a page computes all styles anew.
# An adopted sheet is one object for all. What is rendered before it stands in its document is dressed again when it does.
_ONCE: Final = """const KNOWN = (globalThis[Symbol.for("noetic_nb views")] ??= new Map());
if (!KNOWN.has("@key")) KNOWN.set("@key", (() => {
const SHEET = new CSSStyleSheet();
SHEET.replaceSync(@sheet);
const wear = (el) => {
  el.dataset.view = "@view";
  const root = el.getRootNode();
  const place = root instanceof ShadowRoot ? root : el.ownerDocument;
  if (!place.adoptedStyleSheets.includes(SHEET)) place.adoptedStyleSheets = [...place.adoptedStyleSheets, SHEET];
};
const made = (() => {
@module
})();
return () => {
  const view = made();
  const render = (parts) => {
    wear(parts.el);
    requestAnimationFrame(() => wear(parts.el));
    return view.render(parts);
  };
  return { ...view, render };
};
})());
export default KNOWN.get("@key");
"""


def once_a_page(module: str, sheet: str, name: str) -> str:
    """Return a module with its style sheet that a page evaluates once, however many models bring it.

    The text is whole in each model, so that an exported page has it; a page knows it by its hash.

    Parameters
    ----------
    module : str
        A script that ends in the ``export default`` of a function which makes a view.
    sheet : str
        Its style sheet.
    name : str
        The file of the view: the sheet is for what stands in the element with its ``data-view``.

    Examples
    --------
    >>> module = once_a_page("export default () => ({ render() {} });", ".nn-note { color: red }", "notes/notes")
    >>> module.count("export default"), module == once_a_page("export default () => ({});", "", "notes/notes")
    (1, False)
    """
    key = hashlib.sha256(f"{module}\0{sheet}".encode()).hexdigest()[:16]
    body = module.replace("export default ", "return ", 1)
    parts = {"@key": key, "@sheet": json.dumps(sheet), "@view": _stem(name), "@module": body}
    return re.sub("|".join(parts), lambda found: parts[found[0]], _ONCE)


def _sheet(scripts: Sequence[str]) -> str:
    """Return the style sheets of those scripts of a view that have one."""
    names = (f"{name}.css" for name in scripts)
    return "\n".join([_text(name) for name in names if _place(name).is_file()])


def joint_style(panels: Mapping[str, Sequence[str]], last: str) -> str:
    """Return one style sheet for several views; the rules of each apply only inside its ``data-panel`` element.

    Examples
    --------
    >>> joint_style({"ledger": ["ledger/ledger"]}, "base/notice").count('[data-panel="ledger"] {')
    1
    """
    parts = [f'[data-panel="{name}"] {{\n{_sheet(scripts)}\n}}' for name, scripts in panels.items()]
    return "\n".join([_text("base/common.css"), *parts, _text(f"{last}.css")])


def _stem(name: str) -> str:
    return name.rsplit("/", 1)[-1]


@cache
def style(*scripts: str) -> str:
    """Return the style sheet of a view, live or static, with the common one in front.

    That of a view is for what stands in the element with its ``data-view``: neighbours on a page have classes of the same names.

    Examples
    --------
    >>> style("ledger/ledger").startswith(style("base/notice")[:80])
    True
    """
    own = _sheet(scripts)
    if not scripts[-1].startswith("base/"):
        own = f'[data-view="{_stem(scripts[-1])}"] {{\n{own}\n}}'
    return f"{_text('base/common.css')}\n{own}"


# Prices in one line are no formula: these classes keep MathJax 2 and 3 off.
_PLAIN: Final = "tex2jax_ignore mathjax_ignore"
# The first rule hides the static form while its live view is on the page. The second hides the output of a widget that
# shows no live view, so that no "model not found" stands above the picture. A page looks both up for few elements, and asks what
# is known quickly first: this is part of what each change of it costs.
_BESIDE: Final = """
:root:has(.nn-live-@) #nn-@, :root:has(.nn-live-@) .jp-OutputArea-child:has(#nn-@) { display: none; }
.jp-OutputArea-child:has(+ * #nn-@):has(> :is(.jupyter-widgets, .jp-OutputArea-output.lm-Panel)):not(:has(.nn-live-@)) {
  display: none;
}
"""

# Of elements that only a style sheet keeps apart: where a page drops it, or their tags, their words would run together.
_BESIDE_EACH_OTHER: Final = re.compile(r"(</(?:span|text|title|svg)>)(?=<)")


def static_frame(inside: str, sheet: str, name: str = "") -> str:
    """Return the static form of a view with its style sheet, and the file of the view where the sheet is for it only.

    Examples
    --------
    >>> static_frame("<span>history</span><span>43</span>", "").partition("</style>")[2]
    '<span>history</span> <span>43</span></div>'
    """
    inside = _BESIDE_EACH_OTHER.sub(r"\1 ", inside)
    form = f'<div class="noetic-nb noetic-nb-static {_PLAIN}"><style>{sheet}</style>{inside}</div>'
    return f'<div data-view="{_stem(name)}">{form}</div>' if name else form


def output_frame(html: str, name: str) -> str:
    """Return a static form as the output beside the live view of that name.

    Examples
    --------
    >>> output_frame("<p>42</p>", "a1").endswith('<p>42</p></div>')
    True
    """
    return f'<div id="nn-{name}"><style>{_BESIDE.replace("@", name)}</style>{html}</div>'
