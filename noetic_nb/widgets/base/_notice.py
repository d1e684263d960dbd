"""A line of plain text that a screen reader announces: the outcome of an action in an editor."""

from __future__ import annotations

import anywidget
import traitlets

from noetic_nb.widgets.base._assets import script, style


class Notice(anywidget.AnyWidget):
    """Text below an editor, never markup; empty text hides the notice, `mood` is whether it went well.

    While it is live, the static form called `static_name` is hidden.
    """

    text = traitlets.Unicode("").tag(sync=True)
    mood = traitlets.Enum(("good", "bad", "plain"), "plain").tag(sync=True)
    static_name = traitlets.Unicode("").tag(sync=True)
    _esm = script("base/notice")
    _css = style("base/notice")
