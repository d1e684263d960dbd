"""A field for code: monospaced, with line numbers, the failing line marked, and Tab for indentation.

Escape, then Tab leaves the field: without that the keyboard would be caught in it.
"""

from __future__ import annotations

import anywidget
import traitlets

from noetic_nb.widgets.assets import script, sheet

__all__ = ["CodeText"]


class CodeText(anywidget.AnyWidget):
    """A text someone writes code in; the text is never markup.

    Attributes
    ----------
    value : str
        The text, as it is being written.
    error_line : int
        The line to mark, counted from 1; 0 marks none.
    disabled : bool
        Whether it is shown only.
    label : str
        What it is, for screen readers.
    placeholder : str
        Shown while it is empty.
    """

    value = traitlets.Unicode("").tag(sync=True)
    error_line = traitlets.Int(0).tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
    label = traitlets.Unicode("Text").tag(sync=True)
    placeholder = traitlets.Unicode("").tag(sync=True)
    _esm = script("code_text")
    _css = sheet("rules")
