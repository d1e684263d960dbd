"""The script and style of the views, read from the package: nothing is fetched from anywhere.

Each view has one script; what all of them use stands in front of it, since an inline module cannot import its neighbour.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["script", "sheet", "static_style", "style"]


@cache
def _text(name: str) -> str:
    return (files("noetic_nb.widgets") / name).read_text(encoding="utf-8")


def script(name: str) -> str:
    """Return the module of a view, with the common functions in front.

    Examples
    --------
    >>> script("allocation/allocation").count("export default")
    1
    """
    return f"{_text('base/common.js')}\n{_text(f'{name}.js')}"


@cache
def style() -> str:
    """Return the style sheet of all views, live and static."""
    return _text("base/views.css")


@cache
def sheet(name: str) -> str:
    """Return the style sheet of all views with that of one of them after it."""
    return f"{style()}\n{_text(f'{name}.css')}"


@cache
def static_style() -> str:
    """Return the style sheet as an element for the static forms."""
    return f"<style>{style()}</style>"
