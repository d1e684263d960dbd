"""A field for code: monospaced, with line numbers, the failing line marked, and Tab for indentation.

What is typed travels as messages, in order with the clicks that follow it. The state of a widget is held back while the
kernel is busy, and a click would overtake it: what was applied would not be what was on the page. Escape, then Tab leaves the
field: without that the keyboard would be caught in it.
"""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from noetic_nb.widgets.base.assets import script, style

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

    Examples
    --------
    >>> field = CodeText(value="def rule(call): ...")
    >>> field.shown["text"]
    'def rule(call): ...'
    >>> field.close()
    """

    value = traitlets.Unicode("")
    shown: Any = traitlets.Dict({"text": "", "generation": 0}).tag(sync=True)
    """What the kernel last put into the field; what was typed since is in `value` only."""
    error_line = traitlets.Int(0).tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
    label = traitlets.Unicode("Text").tag(sync=True)
    placeholder = traitlets.Unicode("").tag(sync=True)
    _esm = script("rules/code_text")
    _css = style("rules/rule_editor")
    _is_receiving = False

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(self._message_received)

    @traitlets.observe("value")  # type: ignore[untyped-decorator, unused-ignore]
    def _put(self, change: Any) -> None:
        if not self._is_receiving:
            # A new generation: what was typed before it, and arrives after it, belongs to another text.
            self.shown = {"text": change["new"], "generation": self.shown["generation"] + 1}

    def _message_received(self, _widget: Any, content: Any, _buffers: Any) -> None:
        match content:
            case {"type": "text" | "apply", "text": str(text), "generation": generation}:
                # What was typed into a text that the kernel has replaced since belongs to no rule any more.
                if generation == self.shown["generation"] and not self.disabled:
                    self._is_receiving = True
                    try:
                        self.value = text
                    finally:
                        self._is_receiving = False
            # A page that opens later has only what the kernel put there, not what was typed in another view.
            case {"type": "again"}:
                self.send({"type": "text", "text": self.value, "generation": self.shown["generation"]})
