"""Edit the rules of a rule book while an agent runs, and see while typing what an edit would change.

The editor only shows; compiling, trying and replacing a rule is the rule book's work. A draft that fails there leaves the
last good version in force and the text in the editor, with the line that failed.
"""

from __future__ import annotations

from typing import Any, Final

import ipywidgets

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs.plain_text import TEXT_LENGTH, plain
from noetic_nb.runs.run_source import run_of
from noetic_nb.steering import RuleBook, RuleChange, SteeringRule
from noetic_nb.widgets.base.cells import enter_cell
from noetic_nb.widgets.base.display import DisplayMixin
from noetic_nb.widgets.base.notice import Notice
from noetic_nb.widgets.base.weakly import connect_weakly, subscribe_weakly
from noetic_nb.widgets.rules.debounced import TooLong, in_time
from noetic_nb.widgets.rules.draft import NEW_FORMS, draft_of, new_rule, rule_of
from noetic_nb.widgets.rules.draft_trial import DraftTrial, check_draft, sample_calls
from noetic_nb.widgets.rules.rule_fields import RuleFields
from noetic_nb.widgets.rules.rule_list import EMPTY, RuleHits, change_label, refusal, rule_label, rules_html

__all__ = ["RuleEditor"]

# Older changes are in `rulebook.changes`; a list of them all would grow with every pause.
CHANGES_SHOWN: Final = 50
NEW: Final = "New rule …"


class RuleEditor(DisplayMixin, ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    r"""List the rules of a rule book, edit one, see what the edit would change, and apply it.

    Parameters
    ----------
    rulebook : RuleBook
        Whose rules are edited; changes made elsewhere appear here too.
    run : Run, iterable of Run, or object with a ``run``, optional
        Recorded runs, or one that grows while an agent runs. While someone types, the draft is tried on them, and a new
        version is tried on their calls before it replaces the old one.

    Attributes
    ----------
    rules : ipywidgets.Select
        The list, with each rule's hits in the runs; its value is the id of the chosen rule.
    source : CodeText
        The text of the chosen rule: source, condition, or the judge's prompt. Control and Enter apply it.
    fields : RuleFields
        What its form has beside the text, such as ``action``, ``guidance``, ``mode`` and ``model``.
    enabled : ipywidgets.Checkbox
        Whether the chosen rule is evaluated.
    apply_button, undo_button, try_button, up_button, down_button, remove_button : ipywidgets.Button
        Apply the draft; take the last change of the rule book back; try the draft now; move or remove the chosen rule.
    new_form : ipywidgets.Dropdown
        Adds a rule, disabled until someone enables it.
    history : ipywidgets.Select
        The last changes, newest first.
    diff : RuleDiff or None
        What the draft would change; None without a run.
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
    _stop_watching: tuple[Any, ...] = ()
    _is_listing = False

    def __init__(self, rulebook: RuleBook, *, run: Any = None) -> None:
        if not isinstance(rulebook, RuleBook):
            raise NoeticConfigError(
                "NOT_A_RULE_BOOK", "An editor edits a RuleBook.", given=rulebook, hint="Pass the book that steers."
            )
        self.rulebook = rulebook
        rulebook.mark_used()
        self.runs: tuple[Any, ...] = _runs(run)
        self._hits = RuleHits(self.runs)
        self._trial = DraftTrial(rulebook, self.runs, self._failed) if self.runs else None
        self.diff = None if self._trial is None else self._trial.diff
        wide = {"width": "auto"}  # "100%" would add the margins to it and stick out
        self.rules = ipywidgets.Select(options=(), rows=8, layout=wide)
        self.history = ipywidgets.Select(options=(), rows=4, layout=wide)
        self.new_form = ipywidgets.Dropdown(options=[NEW, *NEW_FORMS], layout=wide)
        self.fields = RuleFields(self._edited)
        self.source = self.fields.source
        self.enabled = ipywidgets.Checkbox(description="Enabled", indent=False, layout=wide)
        self.apply_button = ipywidgets.Button(description="Apply", button_style="primary")
        self.undo_button = ipywidgets.Button(description="Undo last change", layout=wide)
        self.try_button = ipywidgets.Button(description="Try", layout=wide, disabled=not self.runs)
        self.up_button = ipywidgets.Button(description="Up", layout=wide)
        self.down_button = ipywidgets.Button(description="Down", layout=wide)
        self.remove_button = ipywidgets.Button(description="Remove", layout=wide)
        self.notice = Notice(static_name=self.static_id)
        flow = {"flex_flow": "row wrap"}
        self._order = ipywidgets.HBox(
            [self.up_button, self.down_button, self.remove_button, self.new_form], layout=flow
        )
        self._side = ipywidgets.VBox([self.rules, self._order, self.history])
        self._buttons = ipywidgets.HBox(
            [self.apply_button, self.undo_button, self.try_button, self.enabled], layout=flow
        )
        self._main = ipywidgets.VBox([self.source, self.fields.beside, self._buttons, self.notice])
        self._beside = ipywidgets.VBox([] if self.diff is None else [self.diff])
        shown = [self._side, self._main, *([] if self.diff is None else [self._beside])]
        self._row = ipywidgets.HBox(shown, layout={**flow, **wide})
        super().__init__([self._row])
        self._name_parts()
        self._update_lists()
        self._show()
        self._connect()
        enter_cell(self)
        connect_weakly(*self._widgets())
        self._stop_listening = subscribe_weakly(rulebook.listen, self._book_changed)
        self._stop_watching = tuple([subscribe_weakly(each.subscribe, self._count) for each in self.runs])

    def _connect(self) -> None:
        self.rules.observe(self._choose, "value")
        self.enabled.observe(self._switch, "value")
        self.new_form.observe(self._add, "value")
        self.apply_button.on_click(lambda _button: self.apply())
        self.undo_button.on_click(lambda _button: self.undo())
        self.try_button.on_click(lambda _button: self.try_now())
        self.up_button.on_click(lambda _button: self.move(-1))
        self.down_button.on_click(lambda _button: self.move(1))
        self.remove_button.on_click(lambda _button: self.remove())
        self.source.on_msg(lambda _widget, content, _buffers: self.apply() if content.get("type") == "apply" else None)

    def apply(self) -> bool:
        """Put the draft in place of the chosen rule; returns whether it was applied."""
        rule, draft = self._chosen(), self.fields.draft
        if rule is None or draft is None:
            self._notify("bad", EMPTY)
            return False
        samples = sample_calls(self.runs, rule)

        def checked() -> SteeringRule:
            # Compiling runs what stands beside the function, so it is held to the limit as well.
            candidate = rule_of(self.rulebook, rule, draft)
            check_draft(candidate, samples)
            return candidate

        try:
            self.rulebook.put(in_time(checked))
        except NoeticConfigError as exc:
            self._failed(exc)
            return False
        except Exception as exc:
            what = str(exc) if isinstance(exc, TooLong) else f"{type(exc).__name__}: {exc}"
            self._notify("bad", f"Not applied. {plain(what, TEXT_LENGTH)}")
            return False
        tried = f", tried on {len(samples)} recorded call{'' if len(samples) == 1 else 's'}" if samples else ""
        self._notify(
            "good", f"Applied as version {self.rulebook.version}{tried}. It counts from the next evaluation on."
        )
        return True

    def undo(self) -> bool:
        """Take the last change of the rule book back; returns whether there was one."""
        change = self.rulebook.undo()
        if change is None:
            self._notify("plain", "There is no change to take back.")
            return False
        self._notify("good", f"Took the last change of {plain(change.rule_id)} back.")
        return True

    def try_now(self) -> None:
        """Try the draft on the recorded runs, whatever it does beside deciding."""
        rule, draft = self._chosen(), self.fields.draft
        if self._trial is not None and rule is not None and draft is not None:
            self._trial.try_later(rule, draft, even_if_impure=True)

    def move(self, by: int) -> None:
        """Move the chosen rule up (-1) or down (1); at either end it stays."""
        rule = self._chosen()
        if rule is not None:
            place = [other.id for other in self.rulebook].index(rule.id) + by
            if 0 <= place < len(self.rulebook):
                self.rulebook.move(rule.id, place)

    def remove(self) -> None:
        """Take the chosen rule out; undo brings it back."""
        rule = self._chosen()
        if rule is not None:
            self.rulebook.remove(rule.id)
            self._notify("good", f"Removed {plain(rule.id)}. Undo brings it back.")

    def add(self, rule_id: str, form: str) -> SteeringRule:
        """Add a rule to begin with (``"Python"``, ``"Condition (CEL)"`` or ``"Judge"``), disabled, and choose it."""
        rule = self.rulebook.put(new_rule(rule_id, NEW_FORMS[form]).model_copy(update={"enabled": False}))
        self.rules.value = rule.id
        self._notify("plain", "Added, and not enabled yet.")
        return rule

    def to_html(self) -> str:
        """Return the rules and their texts as HTML without scripts."""
        return rules_html(self.rulebook, self._hits)

    def to_text(self) -> str:
        """Return the rules as plain text."""
        lines = [f"Rules, version {self.rulebook.version}."]
        lines += self._labels()
        return "\n".join(lines if len(lines) > 1 else [*lines, EMPTY])

    def _release(self) -> bool:
        if self._stop_listening is None:  # refused in `__init__`, or closed before
            return False
        for stop in (self._stop_listening, *self._stop_watching):
            stop()
        self._stop_listening = None
        if self._trial is not None:
            self._trial.cancel()
        return self.release_widget(*self._widgets())

    def _widgets(self) -> tuple[Any, ...]:
        buttons = (self.apply_button, self.undo_button, self.try_button, self.up_button, self.down_button)
        lists = (self.rules, self.history, self.new_form, self.enabled, self.remove_button, self.notice)
        boxes = (self._order, self._side, self._buttons, self._main, self._beside, self._row)
        diff = () if self.diff is None else (self.diff,)
        return (*self.fields.widgets, *buttons, *lists, *diff, *boxes, self)

    def _name_parts(self) -> None:
        self.add_class("nn-editor")
        for box, name in ((self._side, "nn-side"), (self._main, "nn-main"), (self._beside, "nn-trial")):
            box.add_class(name)
        self.rules.tooltip = "Rules, in the order in which they are asked"
        self.history.tooltip = "Changes of the rules, newest first"
        self.new_form.tooltip = "Add a rule"

    def _labels(self) -> list[str]:
        return [rule_label(at, rule, self._hits) for at, rule in enumerate(self.rulebook, start=1)]

    def _update_lists(self) -> None:
        """Bring the lists up to date and keep the chosen rule."""
        chosen = self.rules.value
        ids = [rule.id for rule in self.rulebook]
        self._is_listing = True  # new options choose nothing for a moment: that is no choice of the user's
        try:
            self.rules.options = list(zip(self._labels(), ids, strict=True))
            self.rules.value = chosen if chosen in ids else (ids[0] if ids else None)
            self.history.options = [change_label(change) for change in self.rulebook.changes[: -CHANGES_SHOWN - 1 : -1]]
            self.history.value = None  # a list to read: nothing stays chosen
        finally:
            self._is_listing = False

    def _choose(self, _change: Any) -> None:
        if not self._is_listing:
            self._show()

    def _show(self) -> None:
        rule = self._chosen()
        self.fields.show(rule)
        for button in (self.apply_button, self.up_button, self.down_button, self.remove_button, self.enabled):
            button.disabled = rule is None
        self.enabled.value = rule is not None and rule.enabled
        self._notify("plain", "")
        if self._trial is not None:
            self._trial.cancel()
            self._trial.diff.show_text(
                "Nothing is edited yet", "While you type, what the edit would change appears here."
            )

    def _chosen(self) -> SteeringRule | None:
        chosen = self.rules.value
        return self.rulebook[chosen] if chosen is not None and chosen in self.rulebook else None

    def _edited(self) -> None:
        rule, draft = self._chosen(), self.fields.draft
        if self.notice.mood == "bad":
            self._notify("plain", "")
        if self._trial is not None and rule is not None and draft is not None:
            self._trial.try_later(rule, draft)

    def _failed(self, error: NoeticConfigError) -> None:
        line = error.facts.get("line")
        self.source.error_line = line if isinstance(line, int) else 0
        self._notify("bad", refusal(error, self.source.value))

    def _switch(self, change: Any) -> None:
        rule = self._chosen()
        if rule is None or rule.enabled == change["new"]:
            return
        if change["new"]:
            self.rulebook.enable(rule.id)
        else:
            self.rulebook.disable(rule.id)

    def _add(self, change: Any) -> None:
        form = change["new"]
        if form not in NEW_FORMS:
            return
        self.new_form.value = NEW  # first, so that the same form can be chosen again
        number = 1
        while f"rule_{number}" in self.rulebook:
            number += 1
        try:
            self.add(f"rule_{number}", form)
        except NoeticConfigError as exc:  # the extra for conditions may not be installed
            self._notify("bad", f"Not added. {plain(exc.what)} {plain(exc.hint)}")

    def _count(self, event: Any) -> None:
        if self._hits.take(event):
            self._update_lists()

    def _book_changed(self, change: RuleChange) -> None:
        chosen, is_edited, draft = self.rules.value, self.fields.is_edited, self.fields.draft
        self._update_lists()
        rule = self._chosen()
        if is_edited and rule is not None and rule.id == chosen and draft_of(rule) != draft:
            # What someone is writing is not thrown away because a rule changed elsewhere.
            self.enabled.value = rule.enabled
            if change.rule_id == chosen and change.change != "move":
                self._notify("plain", "This rule was changed elsewhere meanwhile. Your text is not applied yet.")
        else:
            self._show()
        self.refresh_static()

    def _notify(self, mood: str, text: str) -> None:
        self.notice.mood = mood
        self.notice.text = text


def _runs(run: Any) -> tuple[Any, ...]:
    if run is None:
        return ()
    if isinstance(run, list | tuple):
        return tuple([run_of(each) for each in run])
    return (run_of(run),)
