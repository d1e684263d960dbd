"""The fields of one rule: its text, and what its form has beside it. They describe a draft; nothing is applied here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import anywidget
import ipywidgets
import traitlets

from noetic_nb.steering import SteeringRule
from noetic_nb.widgets.base.assets import script, style
from noetic_nb.widgets.rules.draft import Draft, draft_of

__all__ = ["CodeText", "RuleFields"]

_LABELS: Final = {
    "python": "Text of the rule",
    "cel": "Condition in CEL",
    "judge": "What the judge is asked",
    "sequence": "The rule in words",
}
_BESIDE: Final = {
    "cel": ("action", "guidance"),
    "sequence": ("action", "guidance"),
    "judge": ("mode", "model", "condition"),
}
_WIDE: Final = {"width": "auto"}  # "100%" would add the margins to it and stick out


class CodeText(anywidget.AnyWidget):
    """A text someone writes code in, with line numbers and the failing line marked; the text is never markup.

    What is typed travels as messages, in order with the clicks that follow it. The state of a widget is held back while the
    kernel is busy, and a click would overtake it: what was applied would not be what was on the page. Escape, then Tab
    leaves the field: without that the keyboard would be caught in it.

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


class RuleFields:
    """Text and further fields of the rule that is chosen; `edited` is called when someone, and not `show`, changed one."""

    def __init__(self, edited: Callable[[], None]) -> None:
        described: dict[str, Any] = {"style": {"description_width": "80px"}, "layout": _WIDE}
        self.source = CodeText(placeholder="def rule(call):\n    ...", label=_LABELS["python"])
        self.action = ipywidgets.Dropdown(options=["deny", "guide", "ask", "allow"], description="Action", **described)
        self.guidance = ipywidgets.Text(description="Guidance", placeholder="What the model is told", **described)
        self.mode = ipywidgets.Dropdown(
            options=[("wait for the verdict", "sync"), ("deliver it with a later prompt", "async")],
            description="Mode",
            **described,
        )
        self.model = ipywidgets.Text(description="Model", **described)
        self.condition = ipywidgets.Text(
            description="Only when", placeholder="a condition in CEL; empty: always", **described
        )
        self.beside = ipywidgets.VBox([])
        self.beside.add_class("nn-fields")
        self.shown: Draft | None = None
        self._edited = edited
        self._is_showing = False
        for field in (self.source, *self._by_name().values()):
            field.observe(self._field_changed, "value")

    def _by_name(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("action", "guidance", "mode", "model", "condition")}

    @property
    def widgets(self) -> tuple[Any, ...]:
        """All widgets, to be released."""
        return (self.source, *self._by_name().values(), self.beside)

    def show(self, rule: SteeringRule | None) -> None:
        """Show a rule; its fields are what is not edited yet."""
        draft = Draft("python", "") if rule is None else draft_of(rule)
        self.shown = None if rule is None else draft
        self._is_showing = True
        try:
            self.source.label = _LABELS[draft.form]
            self.source.disabled = rule is None or draft.form == "sequence"
            self.source.error_line = 0
            self.source.value = draft.text
            names = _BESIDE.get(draft.form, ())
            for name in names:
                getattr(self, name).value = getattr(draft, name)
            children = tuple([getattr(self, name) for name in names])
            if self.beside.children != children:
                self.beside.children = children
        finally:
            self._is_showing = False

    @property
    def draft(self) -> Draft | None:
        """What the fields hold now; None where no rule is shown."""
        if self.shown is None:
            return None
        names = _BESIDE.get(self.shown.form, ())
        return replace(self.shown, text=self.source.value, **{name: getattr(self, name).value for name in names})

    @property
    def is_edited(self) -> bool:
        """Whether the fields differ from the rule that was shown."""
        return self.draft != self.shown

    def _field_changed(self, _change: Any) -> None:
        if not self._is_showing:
            self.source.error_line = 0
            self._edited()
