"""The script and style of the views, read from the package, never from the network.

Each view has one script and one style sheet. The common parts come first in both, because an inline module cannot import
others. A page loads each view's script and style once, however many views of the kind it shows.
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
    # The folders of views are private.
    return files("noetic_nb.widgets") / (name if name.startswith("base/") else f"_{name}")


# Cached, so that live and static forms agree even if the package is upgraded while the kernel runs.
@cache
def _text(name: str) -> str:
    return _place(name).read_text(encoding="utf-8")


_SHARED: Final = ("base/common", "base/rows")


def script(*names: str) -> str:
    """Return the module of a view, starting with the common functions; the last of several files has the ``export``.

    Examples
    --------
    >>> script("allocation/allocation").count("export default")
    1
    """
    return "\n".join([_text(f"{name}.js") for name in dict.fromkeys((*_SHARED, *names))])


def joint_script(panels: Mapping[str, Sequence[str]], *names: str) -> str:
    """Return one module for several views: ``PANEL_SCRIPTS`` has their functions by name, each in its own scope.

    Parts shared by several views come first, once.

    Parameters
    ----------
    panels : mapping of str to sequence of str
        The files of each view's script.
    *names : str
        The files of the module that shows them; the last one has the ``export``.

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


# Jupyter evaluates a module again for each model, and replacing a style sheet recomputes all styles of the page. An adopted
# sheet is one shared object. A view rendered before it is attached to its document adopts the sheet in the next frame.
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
    """Return a module with its style sheet that a page evaluates only once for all models.

    Each model has the complete text, so that an exported page works; a page recognises it by its hash.

    Parameters
    ----------
    module : str
        A script that ends in the ``export default`` of a function that creates a view.
    sheet : str
        Its style sheet.
    name : str
        The file of the view: the style sheet applies inside elements with its ``data-view``.

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
    """Return the joined style sheets of a view's scripts, for those that have one."""
    names = (f"{name}.css" for name in scripts)
    return "\n".join([_text(name) for name in names if _place(name).is_file()])


def joint_style(panels: Mapping[str, Sequence[str]], last: str) -> str:
    """Return one style sheet for several views; the rules of each apply only inside its ``data-panel`` element.

    Examples
    --------
    >>> joint_style({"ledger": ["ledger/ledger"]}, "workbench/workbench").count('[data-panel="ledger"] {')
    1
    """
    parts = [f'[data-panel="{name}"] {{\n{_sheet(scripts)}\n}}' for name, scripts in panels.items()]
    return "\n".join([_text("base/common.css"), *parts, _text(f"{last}.css")])


def _stem(name: str) -> str:
    return name.rsplit("/", 1)[-1]


@cache
def style(*scripts: str) -> str:
    """Return the style sheet of a view, live or static, with the common one in front.

    The view's own rules apply inside elements with its ``data-view``, because neighbouring views use the same class names.

    Examples
    --------
    >>> style("ledger/ledger").startswith(style("base/approval")[:80])
    True
    """
    own = _sheet(scripts)
    if not scripts[-1].startswith("base/"):
        own = f'[data-view="{_stem(scripts[-1])}"] {{\n{own}\n}}'
    return f"{_text('base/common.css')}\n{own}"


# Prices such as $1 and $2 in one line are not formulas: these classes disable MathJax 2 and 3.
_PLAIN: Final = "tex2jax_ignore mathjax_ignore"
# The first rule hides the static form while its live view is on the page. The second hides the output of a widget without
# a live view, so that no "model not found" appears above the picture. Both selectors match few elements and begin with a
# cheap test, because every change of the page evaluates them.
_BESIDE: Final = """
:root:has(.nn-live-@) #nn-@, :root:has(.nn-live-@) .jp-OutputArea-child:has(#nn-@) { display: none; }
.jp-OutputArea-child:has(+ * #nn-@):has(> :is(.jupyter-widgets, .jp-OutputArea-output.lm-Panel)):not(:has(.nn-live-@)) {
  display: none;
}
"""

# Elements separated only by styles: if a page drops the styles or tags, their words would run together.
_BESIDE_EACH_OTHER: Final = re.compile(r"(</(?:span|text|title|svg)>)(?=<)")


def static_frame(inside: str, sheet: str, name: str = "") -> str:
    """Return the static form of a view with its style sheet; `name` limits the sheet to the view with that file.

    Examples
    --------
    >>> static_frame("<span>history</span><span>43</span>", "").partition("</style>")[2]
    '<span>history</span> <span>43</span></div>'
    """
    inside = _BESIDE_EACH_OTHER.sub(r"\1 ", inside)
    form = f'<div class="noetic-nb noetic-nb-static {_PLAIN}"><style>{sheet}</style>{inside}</div>'
    return f'<div data-view="{_stem(name)}">{form}</div>' if name else form


def output_frame(html: str, name: str) -> str:
    """Return a static form as the output beside the live view with that name.

    Examples
    --------
    >>> output_frame("<p>42</p>", "a1").endswith('<p>42</p></div>')
    True
    """
    return f'<div id="nn-{name}"><style>{_BESIDE.replace("@", name)}</style>{html}</div>'
