"""The data of a rule editor: the book as a table, the chosen rule, the contents of its fields, and the last outcome.

Independent of widgets. Changes for the pages are collected in `news`, one part of the snapshot at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, RunEvent, SteeringDecided, ToolCalled
from noetic_nb.lab._statistics.labels import Outcome
from noetic_nb.runs import Run
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain
from noetic_nb.steering import RuleBook, RuleChange, SteeringRule
from noetic_nb.steering._rulebook.rule_files import is_unchanged
from noetic_nb.widgets._rules.debounced import TooLong, in_time
from noetic_nb.widgets._rules.draft import (
    Draft,
    book_code,
    draft_of,
    new_rule,
    rule_at,
    rule_code,
    rule_of,
    text_diff,
    versions_data,
    whole_text,
)
from noetic_nb.widgets._rules.draft_trial import NOT_EDITED, DraftTrial, check_draft, sample_calls, trial_parts
from noetic_nb.widgets._rules.rule_fields import FORMS, fields_of
from noetic_nb.widgets._rules.rule_table import EMPTY, RuleHits, rule_rows, rules_html, rules_text, with_hits
from noetic_nb.widgets.base._feed import Place, Reading
from noetic_nb.widgets.base._selection import EVERYTHING, Moment


def save_book(rulebook: RuleBook, path: str | PathLike[str], *, overwrite: bool = False) -> str:
    """Write a rule book to a YAML or JSON file; returns a sentence about it. `overwrite` also replaces a changed file.

    Raises ``FILE_EXISTS``, ``INVALID_FORMAT``, ``MISSING_PACKAGE``, or ``NOT_WRITTEN`` if the system refuses.
    """
    if not str(path).strip():
        raise NoeticConfigError("INVALID_FORMAT", "A rule file has a name.", given=str(path), hint="Type rules.yaml.")
    target = Path(path).expanduser()
    try:
        if target.exists() and not overwrite and not is_unchanged(rulebook.file, target):
            raise NoeticConfigError(
                "FILE_EXISTS",
                "A file of this name exists. These rules were not read from it, or it has changed since.",
                given=str(target),
                hint="Confirm to replace it, or choose another name.",
            )
        rulebook.save(target)
        size = target.stat().st_size
    except OSError as exc:
        raise NoeticConfigError(
            "NOT_WRITTEN", exc.strerror or str(exc), given=str(target), hint="Choose another place."
        ) from exc
    functions = [plain(rule.id) for rule in rulebook if rule.form == "python"]
    count = len(rulebook)
    words = f"Wrote {count} rule{'' if count == 1 else 's'} ({size:,} bytes) to {plain(target.resolve(), TEXT_LENGTH)}."
    if functions:
        listed = plain(", ".join(functions), TEXT_LENGTH)
        words += f" Functions stand there by name only, and load_rules takes them as functions={{...}}: {listed}."
    return words


def _shown(trial: dict[str, Any]) -> dict[str, Any]:
    return {**trial, "parts": trial_parts(trial)}


# Most names offered in a field; a longer list does not help.
NAMES_OFFERED: Final = 200


class EditorReading(Reading):
    """The state of a rule book editor, whose drafts are tried on `runs`.

    The events of the first run arrive through `take`, those of the others are read here; hits within `moment` are counted,
    and `outcome` is that of `lab.evaluate`. `report` gets a trial's data and a draft's error, in the thread of the trial.

    Examples
    --------
    >>> rules = RuleBook()
    >>> _ = rules.at_most(3, "search", id="few")
    >>> reading = EditorReading(rules, (), lambda data, error: None)
    >>> reading.typed({"count": "5"})
    >>> reading.apply()
    True
    >>> rules["few"].sequence.count
    5
    """

    reads = frozenset({ModelCalled, SteeringDecided, ToolCalled})

    def __init__(
        self,
        rulebook: RuleBook,
        runs: Sequence[Run],
        report: Callable[[dict[str, Any], NoeticConfigError | None], object],
        *,
        moment: Moment = EVERYTHING,
        outcome: Outcome = "outcome",
    ) -> None:
        self.rulebook = rulebook
        self.runs = runs
        self.hits = RuleHits(moment)
        self.trial = DraftTrial(rulebook, runs, report, outcome=outcome) if runs else None
        self.news: list[dict[str, Any]] = []
        self.chosen: str | None = None
        self.draft: Draft | None = None
        self._shown: Draft | None = None
        self._generation = 0
        self._typed_at = 0.0
        self._offered: dict[str, dict[str, None]] = {"tools": {}, "args": {}, "models": {}}
        self.snapshot: dict[str, Any] = {
            "forms": [[form, words] for form, words in FORMS.items()],
            "empty": EMPTY,
            "file": "" if rulebook.file is None else str(rulebook.file[0]),
            "trial": _shown(NOT_EDITED) if runs else None,
            "notice": {"mood": "plain", "text": ""},
        }
        for run in runs[1:]:
            for event in tuple(run.events):
                self.hits.take(event)
                self._offer(event)
        self._put_rules()
        self._put("offered", self._offers())
        ids = [rule.id for rule in rulebook]
        self.choose(ids[0] if ids else None)
        self.news.clear()

    # Events of the run and changes of the book

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message about new hits."""
        is_new = self._offer(event)
        wide = self.hits.wide if self.is_followed else 0
        changed = self.hits.take(event)
        if not self.is_followed:
            return None  # count all hits of a long run first
        if is_new:
            self._put("offered", self._offers())
        if not changed:
            return None
        if wide != self.hits.wide:
            self._put_rules()
            return None
        rows = self.snapshot["rows"]
        new = {at: with_hits(row, self.hits) for at, row in enumerate(rows) if row["id"] in changed}
        for at, row in new.items():
            rows[at] = row
        return {"type": "hits", "rows": list(new.items())}

    def begin(self) -> None:
        super().begin()
        self._put_rules()
        self._put("offered", self._offers())
        self.news.clear()

    def book_changed(self, change: RuleChange) -> None:
        """Handle a change of the book, made here or elsewhere."""
        places = [row["id"] for row in self.snapshot["rows"]]
        self._put_rules()
        rule = self._rule()
        if rule is None:
            # The rule now in the place of the removed one, or the last rule.
            ids = [other.id for other in self.rulebook]
            at = places.index(self.chosen) if self.chosen in places else 0
            self.choose(ids[min(at, len(ids) - 1)] if ids else None)
            return
        self._put_versions()
        if self.is_edited and draft_of(rule) != self.draft:
            # Keep the text being typed when a rule changes elsewhere.
            if change.rule_id == self.chosen and change.change not in ("move", "enable", "disable"):
                self.notify("plain", "This rule was changed elsewhere meanwhile. Your text is not applied yet.")
        elif draft_of(rule) != self.draft or change.rule_id == self.chosen:
            self._show(rule, forced=False)

    # Actions from a page or the editor's methods

    def answer(self, request: dict[str, Any]) -> Any:
        """Carry out a request of a page; see the methods of the same names."""
        match request:
            case {"do": "typed", "rule_id": rule_id, "generation": generation, "at": at, "values": dict(values)}:
                # Ignore typing into a text that was replaced since. Messages of different subshells may overtake each other.
                if rule_id == self.chosen and generation == self._generation and at > self._typed_at:
                    self._typed_at = at
                    self.typed(values)
            case {"do": "apply", "rule_id": str(rule_id), "form": form, "values": dict(values)}:
                self.apply_to(rule_id, Draft(str(form), values))
            case {"do": "choose", "rule_id": str(rule_id)}:
                self.choose(rule_id)
            case {"do": "try"}:
                self.try_now()
            case {"do": "try_in_force"}:
                self.try_first()
            case {"do": "undo"}:
                self.undo()
            case {"do": "switch", "rule_id": str(rule_id), "on": bool(on)}:
                (self.rulebook.enable if on else self.rulebook.disable)(rule_id)
            case {"do": "move", "rule_id": str(rule_id), "by": int(by)}:
                self.move(rule_id, by)
            case {"do": "remove", "rule_id": str(rule_id)}:
                self.remove(rule_id)
            case {"do": "add", "rule_id": str(rule_id), "form": str(form)}:
                self.add(rule_id.strip() or self._free_name(), form)
            case {"do": "restore", "rule_id": str(rule_id), "version": int(version)}:
                self.restore(rule_id, version)
            case {"do": "compare", "rule_id": str(rule_id), "version": int(version)}:
                return self.compare(rule_id, version)
            case {"do": "save", "path": str(path), "overwrite": bool(overwrite)}:
                return self.save(path, overwrite=overwrite)
            case {"do": "code", "rule_id": rule_id}:
                return book_code(self.rulebook) if rule_id is None else rule_code(self.rulebook[str(rule_id)])
            case _:
                return super().answer(request)
        return None

    def choose(self, rule_id: str | None) -> None:
        """Show another rule; typed text that was not applied is dropped."""
        self.chosen = rule_id
        rule = None if rule_id is None else self.rulebook[rule_id]
        self.notify("plain", "")
        if self.trial is not None:
            self.trial.cancel()
            # For a disabled rule, show what it would change.
            is_on = rule is None or rule.enabled
            self._put("trial", _shown(self.trial.in_force if is_on else NOT_EDITED))
        self._show(rule, forced=True)
        self._put_versions()

    def typed(self, values: Mapping[str, object]) -> None:
        """Store the contents of some fields, and try them after a pause."""
        rule = self._rule()
        if rule is None or self.draft is None:
            return
        self.draft = self.draft.changed(values)
        self.snapshot["draft"] |= {"values": dict(self.draft.values)}
        if self.snapshot["notice"]["mood"] == "bad":
            self.notify("plain", "")
        if self.trial is not None:
            self.trial.try_later(rule, self.draft)

    @property
    def is_edited(self) -> bool:
        """Whether the fields differ from the shown rule."""
        return self.draft != self._shown

    def apply(self) -> bool:
        """Replace the chosen rule by the draft; returns whether it was applied."""
        if self.chosen is None or self.draft is None:
            self.notify("bad", EMPTY)
            return False
        return self.apply_to(self.chosen, self.draft)

    def apply_to(self, rule_id: str, draft: Draft) -> bool:
        """Apply the contents of the fields to a rule, even if the user has typed or chosen something else since."""
        if rule_id not in self.rulebook:
            self.notify("bad", f"Not applied. {plain(rule_id)} was removed meanwhile; undo brings it back.")
            return False
        rule = self.rulebook[rule_id]
        was = draft_of(rule)
        if was.form != draft.form:
            self.notify("bad", f"Not applied. {plain(rule_id)} has another form meanwhile.")
            return False
        samples = sample_calls(self.runs, rule)
        before = self.draft, self._shown

        def checked() -> SteeringRule:
            # Compiling runs top-level code, so the time limit applies here as well.
            candidate = rule_of(self.rulebook, rule, was.changed(draft.values))
            check_draft(candidate, samples)
            return candidate

        try:
            candidate = in_time(checked)
            if rule_id == self.chosen:
                self.draft = self._shown = was.changed(draft.values)
            self.rulebook.put(candidate)
        except NoeticConfigError as exc:
            self.draft, self._shown = before
            self.failed(exc, draft)
            return False
        except Exception as exc:
            what = str(exc) if isinstance(exc, TooLong) else f"{type(exc).__name__}: {exc}"
            self.notify("bad", f"Not applied. {plain(what, TEXT_LENGTH)}")
            return False
        tried = f", tried on {len(samples)} recorded call{'' if len(samples) == 1 else 's'}" if samples else ""
        self.notify(
            "good", f"Applied as version {self.rulebook.version}{tried}. It counts from the next evaluation on."
        )
        return True

    def failed(self, error: NoeticConfigError, draft: Draft) -> None:
        """Show why a draft fails, and where."""
        facts = error.facts
        line, column = facts.get("line"), facts.get("column")
        name = facts.get("field") or ("condition" if draft.form == "judge" else "text")
        lines = str(draft.values.get(str(name), "")).splitlines()
        hint = f" {plain(error.hint, TEXT_LENGTH)}" if error.hint else ""
        text = f"Not applied; the last good version stays in force. {plain(error.what, TEXT_LENGTH)}.{hint}"
        place = {}
        if isinstance(line, int) and 0 < line <= len(lines) and name in ("text", "condition"):
            text += f"\n{line:>4} | {plain(lines[line - 1], TEXT_LENGTH)}"
            place = {"field": name, "line": line, "column": column}
            if isinstance(column, int) and column > 0:
                text += f"\n     | {' ' * (column - 1)}^"
        self.notify("bad", text, **place)

    def trial_done(self, data: dict[str, Any], error: NoeticConfigError | None) -> None:
        """Show the outcome of a trial."""
        self._put("trial", _shown(data))
        if error is not None and self.draft is not None:
            self.failed(error, self.draft)

    def try_now(self) -> None:
        """Try the draft on the recorded runs, even if it has side effects."""
        rule = self._rule()
        if self.trial is not None and rule is not None and self.draft is not None:
            self.trial.try_later(rule, self.draft, even_if_impure=True)

    def try_first(self) -> None:
        """Try the initial content before any typing: the rules in force, or a disabled rule beside them."""
        rule = self._rule()
        if self.trial is None or self.is_edited:
            return
        if rule is None or rule.enabled or self.draft is None:
            self.trial.try_in_force()
        else:
            self.trial.try_later(rule, self.draft)

    def undo(self) -> bool:
        """Undo the last change of the book; returns whether there was one."""
        change = self.rulebook.undo()
        if change is None:
            self.notify("plain", "There is no change to take back.")
            return False
        if change.rule_id in self.rulebook and change.rule_id != self.chosen and not self.is_edited:
            self.choose(change.rule_id)
        self.notify("good", f"Took the last change of {plain(change.rule_id)} back.")
        return True

    def restore(self, rule_id: str, version: int) -> None:
        """Put an earlier version of a rule in force again, as a new change."""
        rule = self.rulebook.put(rule_at(self.rulebook, rule_id, version))
        self.choose(rule.id)
        self.notify(
            "good", f"{plain(rule_id)} is again as in version {version}; that is version {self.rulebook.version}."
        )

    def compare(self, rule_id: str, version: int) -> dict[str, Any]:
        """Return the differences between a version of a rule and the one in force."""
        old = whole_text(rule_at(self.rulebook, rule_id, version))
        now = whole_text(self.rulebook[rule_id]) if rule_id in self.rulebook else old
        lines = text_diff(old, now)
        same = all(mark == " " for mark, _ in lines)
        title = f"Version {version} and the one in force" + (" are the same." if same else ": − then, + now.")
        return {"title": title, "lines": lines}

    def move(self, rule_id: str, by: int) -> None:
        """Move a rule up (-1) or down (1); at either end it stays."""
        place = [other.id for other in self.rulebook].index(rule_id) + by
        if 0 <= place < len(self.rulebook):
            self.rulebook.move(rule_id, place)

    def remove(self, rule_id: str) -> None:
        """Remove a rule; undo brings it back."""
        self.rulebook.remove(rule_id)
        self.notify("good", f"Removed {plain(rule_id)}.", undo=True)

    def add(self, rule_id: str, form: str) -> SteeringRule:
        """Add a new rule, not enabled yet, and choose it."""
        if rule_id in self.rulebook:
            raise NoeticConfigError(
                "DUPLICATE_RULE_ID", "A rule of this name exists already.", given=rule_id, hint="Choose another name."
            )
        form = next((key for key, words in FORMS.items() if form == words), form)
        return self.begin_with(new_rule(rule_id, form, tool=next(iter(self._offered["tools"]), "tool")))

    def begin_with(self, rule: Any) -> SteeringRule:
        """Add a rule, not enabled yet, under a free name, and choose it; an equal existing rule is chosen instead."""
        if not isinstance(rule, SteeringRule):
            hint = "lab.draft_rule drafts one; RuleBook().only_from_user(...) returns one."
            raise NoeticConfigError("NOT_A_RULE", "A draft is a rule.", given=rule, hint=hint)
        same = [each for each in self.rulebook if each.id.startswith(rule.id) and draft_of(each) == draft_of(rule)]
        names = [rule.id, *[f"{rule.id}-{number}" for number in range(2, len(self.rulebook) + 2)]]
        name = next(name for name in names if name not in self.rulebook)
        found = same[0] if same else self.rulebook.put(rule.model_copy(update={"id": name, "enabled": False}))
        self.choose(found.id)
        self.notify("plain", "Added, and not enabled yet." if not found.enabled else "This rule is in force.")
        return found

    def save(self, path: str, *, overwrite: bool = False) -> dict[str, Any]:
        """Write the book to a file; returns whether an existing file prevents it."""
        try:
            self.notify("good", save_book(self.rulebook, path, overwrite=overwrite))
        except NoeticConfigError as exc:
            self.notify("bad", f"Not written. {plain(exc, TEXT_LENGTH)}")
            return {"exists": exc.code == "FILE_EXISTS"}
        assert self.rulebook.file is not None
        self._put("file", str(self.rulebook.file[0]))
        return {"exists": False}

    def notify(self, mood: str, text: str, **more: Any) -> None:
        """Show a message; `mood` is ``good``, ``bad`` or ``plain``."""
        self._put("notice", {"mood": mood, "text": text, **more})

    def to_html(self) -> str:
        return rules_html(self.rulebook, rule_rows(self.rulebook, self.hits), self.hits)

    def to_text(self) -> str:
        return rules_text(self.rulebook, rule_rows(self.rulebook, self.hits))

    def _rule(self) -> SteeringRule | None:
        return self.rulebook[self.chosen] if self.chosen is not None and self.chosen in self.rulebook else None

    def _show(self, rule: SteeringRule | None, *, forced: bool) -> None:
        """Show a rule in the fields; text typed on a page meanwhile is kept unless `forced`."""
        if forced:
            self._generation += 1
        self.draft = self._shown = None if rule is None else draft_of(rule)
        data = None
        if rule is not None and self.draft is not None:
            form = self.draft.form
            data = {
                "rule_id": rule.id,
                "label": plain(rule.id),
                "form": form,
                "words": FORMS[form],
                "fields": [field.data() for field in fields_of(form)],
                "values": dict(self.draft.values),
            }
        self._put("draft", None if data is None else {**data, "generation": self._generation, "forced": forced})

    def _put(self, part: str, value: Any) -> None:
        self.snapshot[part] = value
        self.news.append({"type": "put", "part": part, "value": value})

    def _put_rules(self) -> None:
        self._put("rows", rule_rows(self.rulebook, self.hits))
        self._put("version", self.rulebook.version)
        self._put("can_undo", self.rulebook.can_undo)

    def _put_versions(self) -> None:
        self._put("versions", versions_data(self.rulebook, self.chosen))

    def _free_name(self) -> str:
        number = 1
        while f"rule_{number}" in self.rulebook:
            number += 1
        return f"rule_{number}"

    def _offer(self, event: RunEvent) -> bool:
        """Store the names in an event that a field may suggest; returns whether one is new."""
        names: list[tuple[str, str]] = []
        if isinstance(event, ToolCalled):
            names = [("tools", event.name), *(("args", str(name)) for name in event.args or ())]
        elif isinstance(event, ModelCalled):
            names = [("models", event.model)]
        is_new = False
        for kind, name in names:
            known = self._offered[kind]
            if name not in known and len(known) < NAMES_OFFERED:
                known[name] = None
                is_new = True
        return is_new

    def _offers(self) -> dict[str, list[str]]:
        return {kind: [plain(name) for name in names] for kind, names in self._offered.items()}
