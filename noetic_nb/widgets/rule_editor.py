"""Edit the rules of a rule book while an agent runs.

The editor shows and asks; compiling, trying and replacing a rule is the rule book's work. What does not hold up there leaves
the last good version in force and the text in the editor, with the line that failed.
"""

from __future__ import annotations

from typing import Any, Final

import ipywidgets

from noetic_nb.errors import NoeticConfigError
from noetic_nb.markup import escape
from noetic_nb.steering import RuleBook, RuleChange
from noetic_nb.steering.rule import SteeringRule
from noetic_nb.widgets.cells import enter_cell
from noetic_nb.widgets.notice import Notice
from noetic_nb.widgets.samples import recorded_calls
from noetic_nb.widgets.shown import Shown, static_frame
from noetic_nb.widgets.view import run_of
from noetic_nb.widgets.words import TEXT_LENGTH, plain

__all__ = ["RuleEditor"]

# A saved notebook shows a rule's text, not a library pasted into it.
PAGE_LENGTH: Final = 20_000
EMPTY: Final = "No rule yet. A function decorated with @rules.rule(...) appears here."


class RuleEditor(Shown, ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    r"""List the rules of a rule book, edit one, and apply the edit.

    Parameters
    ----------
    rulebook : RuleBook
        Whose rules are edited; changes made elsewhere appear here too.
    run : Run or object with a ``run``, optional
        A new version of a rule is tried on the tool calls recorded here before it replaces the old one.

    Attributes
    ----------
    rules : ipywidgets.Select
        The list; its value is the id of the chosen rule.
    source : ipywidgets.Textarea
        The text of the chosen rule.
    enabled : ipywidgets.Checkbox
        Whether the chosen rule is asked.
    apply_button, undo_button : ipywidgets.Button
        Apply the text; take the last change of the rule book back.
    notice : Notice
        What came of it.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RULE_BOOK`` or ``NOT_A_RUN``.

    Examples
    --------
    >>> rules = RuleBook([{"id": "quiet", "applies_to": ["before_tool_call"], "predicate": lambda call: None}])
    >>> with RuleEditor(rules) as editor:
    ...     editor.source.value = "def quiet(call):\n    return deny('Quiet, please.')"
    ...     editor.apply()
    True
    >>> rules["quiet"].predicate(None).guidance
    'Quiet, please.'
    """

    _stop_listening: Any = None
    _is_listing = False

    def __init__(self, rulebook: RuleBook, *, run: Any = None) -> None:
        if not isinstance(rulebook, RuleBook):
            raise NoeticConfigError(
                "NOT_A_RULE_BOOK", "An editor edits a RuleBook.", given=rulebook, hint="Pass the book that steers."
            )
        self.rulebook = rulebook
        self.run = None if run is None else run_of(run)
        wide = {"width": "auto"}  # "100%" would add the margins to it and stick out
        self.rules = ipywidgets.Select(options=(), rows=8, layout=wide)
        self.source = ipywidgets.Textarea(rows=12, layout=wide)
        self.enabled = ipywidgets.Checkbox(description="Enabled", indent=False, layout={"width": "auto"})
        self.apply_button = ipywidgets.Button(description="Apply", button_style="primary")
        self.undo_button = ipywidgets.Button(description="Undo last change", layout={"width": "auto"})
        self.notice = Notice()
        self._side = ipywidgets.VBox([self.rules])
        self._buttons = ipywidgets.HBox(
            [self.apply_button, self.undo_button, self.enabled], layout={"flex_flow": "row wrap"}
        )
        self._main = ipywidgets.VBox([self.source, self._buttons])
        self._row = ipywidgets.HBox([self._side, self._main], layout={"flex_flow": "row wrap", **wide})
        self._shown_text = ""
        super().__init__([self._row, self.notice])
        self._name()
        self._list()
        self._show()
        self.rules.observe(self._choose, "value")
        self.enabled.observe(self._switch, "value")
        self.apply_button.on_click(lambda _button: self.apply())
        self.undo_button.on_click(lambda _button: self.undo())
        self.notice.on_msg(lambda _widget, content, _buffers: self.hear_page(content))
        enter_cell(self)
        self._stop_listening = rulebook.listen(self._hear)

    def apply(self) -> bool:
        """Put the text in place of the chosen rule; returns whether it holds up."""
        rule_id = self.rules.value
        if rule_id is None:
            self._say("bad", EMPTY)
            return False
        text = self.source.value
        try:
            samples = () if self.run is None else recorded_calls(self.run, self.rulebook[rule_id])
            self.rulebook.replace_source(rule_id, text, samples=samples)
        except NoeticConfigError as exc:
            self._say("bad", _refusal(exc, text))
            return False
        tried = f", tried on {len(samples)} recorded call{'' if len(samples) == 1 else 's'}" if samples else ""
        self._say("good", f"Applied as version {self.rulebook.version}{tried}. It counts from the next evaluation on.")
        return True

    def undo(self) -> bool:
        """Take the last change of the rule book back; returns whether there was one."""
        change = self.rulebook.undo()
        if change is None:
            self._say("plain", "There is no change to take back.")
            return False
        self._say("good", f"Took the last change of {plain(change.rule_id)} back.")
        return True

    def to_html(self) -> str:
        """Return the rules and their texts as HTML without scripts."""
        rows = "".join(
            f'<tr><th scope="row">{at}. {escape(plain(rule.id))}</th><td class="nn-text">{escape(_places(rule))}</td>'
            f'<td class="nn-text">{"on" if rule.enabled else "off"}</td>'
            f'<td class="nn-text"><pre class="nn-code">{escape(plain(_text(rule), PAGE_LENGTH))}</pre></td></tr>'
            for at, rule in enumerate(self.rulebook, start=1)
        )
        names = "".join(f'<th scope="col" class="nn-text">{name}</th>' for name in ("Rule", "Where", "Enabled", "Text"))
        head = f"<thead><tr>{names}</tr></thead>"
        table = f'<div class="nn-scroll"><table class="nn-table">{head}<tbody>{rows}</tbody></table></div>'
        title = f'<p class="nn-title">Rules, version {self.rulebook.version}</p>'
        return static_frame(f"{title}{table if rows else f'<p class=nn-empty>{escape(EMPTY)}</p>'}")

    def to_text(self) -> str:
        """Return the rules as plain text."""
        lines = [f"Rules, version {self.rulebook.version}."]
        lines += [_label(at, rule) for at, rule in enumerate(self.rulebook, start=1)]
        return "\n".join(lines if len(lines) > 1 else [*lines, EMPTY])

    def close(self) -> None:
        """Stop listening, release all widgets, and leave the static form. May be repeated."""
        if self._release():
            self.publish_static()

    def discard(self) -> None:
        """Close without leaving anything: the cell that showed the editor is running again."""
        self._release()

    def __enter__(self) -> RuleEditor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _release(self) -> bool:
        if self._stop_listening is None:  # refused in `__init__`, or closed before
            return False
        self._stop_listening()
        self._stop_listening = None
        return self.release_widget(
            self.rules,
            self.source,
            self.enabled,
            self.apply_button,
            self.undo_button,
            self.notice,
            self._side,
            self._buttons,
            self._main,
            self._row,
            self,
        )

    def _name(self) -> None:
        self.add_class("nn-editor")
        self._side.add_class("nn-side")
        self._main.add_class("nn-main")
        self.rules.tooltip = "Rules, in the order in which they are asked"
        self.source.tooltip = "Text of the rule"
        self.source.placeholder = "def rule(call):\n    ..."

    def _list(self) -> None:
        """Bring the list up to date and keep the chosen rule."""
        chosen = self.rules.value
        options = [(_label(at, rule), rule.id) for at, rule in enumerate(self.rulebook, start=1)]
        ids = [rule_id for _, rule_id in options]
        self._is_listing = True  # new options choose nothing for a moment: that is no choice of the user's
        try:
            self.rules.options = options
            self.rules.value = chosen if chosen in ids else (ids[0] if ids else None)
        finally:
            self._is_listing = False

    def _choose(self, _change: Any) -> None:
        if not self._is_listing:
            self._show()

    def _show(self) -> None:
        rule = self._chosen()
        self._shown_text = "" if rule is None else _text(rule)
        self.source.value = self._shown_text
        editable = rule is not None and rule.form in ("python", "none")
        self.source.disabled = self.apply_button.disabled = not editable
        self.enabled.disabled = rule is None
        self.enabled.value = rule is not None and rule.enabled
        self._say("plain", "" if editable or rule is None else f"A rule of the form {rule.form!r} is shown only.")

    def _chosen(self) -> SteeringRule | None:
        chosen = self.rules.value
        return self.rulebook[chosen] if chosen is not None and chosen in self.rulebook else None

    def _switch(self, change: Any) -> None:
        rule = self._chosen()
        if rule is None or rule.enabled == change["new"]:
            return
        if change["new"]:
            self.rulebook.enable(rule.id)
        else:
            self.rulebook.disable(rule.id)

    def _hear(self, change: RuleChange) -> None:
        chosen, text = self.rules.value, self.source.value
        is_edited = text != self._shown_text
        self._list()
        rule = self._chosen()
        if is_edited and rule is not None and rule.id == chosen and _text(rule) != text:
            # What someone is writing is not thrown away because a rule changed elsewhere.
            self.enabled.value = rule.enabled
            if change.rule_id == chosen:
                self._say("plain", "This rule was changed elsewhere meanwhile. Your text is not applied yet.")
        else:
            self._show()
        self.refresh_static()

    def _say(self, mood: str, text: str) -> None:
        self.notice.mood = mood
        self.notice.text = text


def _label(at: int, rule: SteeringRule) -> str:
    state = "" if rule.enabled else " (off)"
    name = f" · {plain(rule.name)}" if rule.name else ""
    return f"{at}. {plain(rule.id)}{name} · {_places(rule)}{state}"


def _places(rule: SteeringRule) -> str:
    points = ", ".join(point.replace("_", " ") for point in rule.applies_to)
    tools = "" if rule.tools is None else f": {plain(', '.join(plain(tool) for tool in rule.tools))}"
    return points + tools


def _text(rule: SteeringRule) -> str:
    if rule.source is not None:
        return rule.source
    match rule.form:
        case "cel":
            return f"when: {rule.when}\naction: {rule.action or 'deny'}\nguidance: {rule.guidance or ''}"
        case "sequence":
            return f"sequence: {rule.sequence!r}"
        case "judge":
            return "" if rule.llm_eval is None else f"judge: {rule.llm_eval.prompt}"
        case _:
            return ""


def _refusal(error: NoeticConfigError, text: str) -> str:
    line = error.facts.get("line")
    lines = text.splitlines()
    place = (
        f"\n{line:>4} | {plain(lines[line - 1], TEXT_LENGTH)}"
        if isinstance(line, int) and 0 < line <= len(lines)
        else ""
    )
    return f"Not applied; the last good version stays in force. {plain(error.what, TEXT_LENGTH)}{place}"
