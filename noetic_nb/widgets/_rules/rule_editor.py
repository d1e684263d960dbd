"""Edits the rules of a rule book while an agent runs, and shows the effect of an edit while you type.

The editor only displays; the rule book compiles, tries and replaces rules. If a draft fails, the last good version
stays in force, and the text stays in the editor with the place of the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from os import PathLike
from typing import Any, NamedTuple
from weakref import WeakMethod

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._statistics.labels import Outcome
from noetic_nb.runs import Run
from noetic_nb.runs._plain_text import plain
from noetic_nb.runs._run_source import run_of
from noetic_nb.steering import RuleBook, RuleChange, SteeringRule
from noetic_nb.widgets._rules.draft import book_code, rule_code
from noetic_nb.widgets._rules.editor_reading import EditorReading
from noetic_nb.widgets._rules.rule_table import rules_frame
from noetic_nb.widgets.base._page_thread import subscribe_weakly
from noetic_nb.widgets.base._reading_thread import READINGS
from noetic_nb.widgets.base._run_view import RunView
from noetic_nb.widgets.base._selection import Moment, Selection


class Notice(NamedTuple):
    """The outcome of the last action in the editor."""

    mood: str
    """``good``, ``bad`` or ``plain``."""
    text: str
    line: int | None = None
    """The line of the error, from 1."""
    column: int | None = None


class RuleEditor(RunView):
    r"""List the rules of a rule book, edit one, see the effect of the edit on recorded runs, and apply it.

    Parameters
    ----------
    rulebook : RuleBook
        The book to edit; changes made elsewhere appear here as well.
    run : Run, iterable of Run, or object with a ``run``, optional
        Recorded or imported runs, or a growing run of an agent. While you type, the draft is tried on them, and a new
        version is checked on their calls before it replaces the old one.
    runs : iterable of Run, optional
        More runs.
    outcome : str or callable
        The outcome of a run: a key of ``run.meta``, or a function of a run that returns True (good), False (failed) or
        None (unknown). If there are outcomes, or attacks (``meta["attack"]``), a trial is split by them.
    thread_id : str, optional
        Count only hits of this thread.
    turn : int, optional
        Count only hits of this turn, counted from 1 in each thread.
    until : int, optional
        Count only hits of turns up to and including this one.
    selection : Selection, optional
        The selection shared with other views: clicking a decision that differs selects it.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RULE_BOOK``, ``NOT_A_RUN``, ``INVALID_TURN``, ``INVALID_THREAD`` or ``NOT_A_SELECTION``.

    References
    ----------
    .. [1] docs/behaviour/views.md, "Rule editor".

    Examples
    --------
    >>> rules = RuleBook([{"id": "quiet", "applies_to": ["before_tool_call"], "predicate": lambda call: None}])
    >>> with RuleEditor(rules) as editor:
    ...     editor.write(text="def quiet(call):\n    return deny('Quiet, please.')")
    ...     editor.apply()
    True
    >>> rules["quiet"].predicate(None).guidance
    'Quiet, please.'
    """

    reading: EditorReading
    scripts = ("rules/code_text", "rules/rule_editor")

    def __init__(
        self,
        rulebook: RuleBook,
        *,
        run: Any = None,
        runs: Any = None,
        outcome: Outcome = "outcome",
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        if not isinstance(rulebook, RuleBook):
            raise NoeticConfigError(
                "NOT_A_RULE_BOOK", "An editor needs a RuleBook.", given=rulebook, hint="Pass the agent's rule book."
            )
        self.rulebook = rulebook
        self._is_of_one = len(_runs(run)) == 1
        self.runs = tuple({id(each): each for each in (*_runs(run), *_runs(runs))}.values())
        moment = Moment(thread_id, turn, until)
        report = WeakMethod(self._trial_done)
        reading = EditorReading(
            rulebook,
            self.runs,
            lambda data, error: (found := report()) and found(data, error),
            moment=moment,
            outcome=outcome,
        )
        rulebook.mark_used()
        first = self.runs[0] if self.runs else Run()
        super().__init__(first, reading, moment=moment, selection=selection)
        self._unsubscribe = (
            *self._unsubscribe,
            subscribe_weakly(rulebook.listen, self._book_changed),
            *(self._follow(each, self.take) for each in self.runs[1:]),
        )
        # The book may have changed while the widget was created.
        with self._doing():
            if reading.snapshot["version"] != rulebook.version:
                reading.book_changed(rulebook.changes[-1])

    @property
    def chosen(self) -> str | None:
        """The id of the shown rule."""
        return self.reading.chosen

    @property
    def values(self) -> dict[str, str]:
        """The contents of the fields."""
        draft = self.reading.draft
        return {} if draft is None else dict(draft.values)

    @property
    def notice(self) -> Notice:
        """The outcome of the last action in the editor."""
        notice = self.reading.snapshot["notice"]
        return Notice(notice["mood"], notice["text"], notice.get("line"), notice.get("column"))

    @property
    def trial(self) -> dict[str, Any] | None:
        """The results of the last trial, as the page shows them; None without runs."""
        found: dict[str, Any] | None = self.reading.snapshot["trial"]
        return found

    def choose(self, rule_id: str) -> None:
        """Show another rule; raises `NoeticConfigError` ``UNKNOWN_RULE``."""
        with self._doing():
            self.reading.choose(rule_id)

    def write(self, **values: str | int) -> None:
        """Set fields of the chosen rule, such as ``text=`` or ``count=``, as if typed.

        Raises `NoeticConfigError` ``INVALID_FIELD``.
        """
        with self._doing():
            self.reading.typed(values)

    def apply(self) -> bool:
        """Replace the chosen rule by the draft; returns whether it was applied."""
        with self._doing():
            return self.reading.apply()

    def undo(self) -> bool:
        """Undo the last change of the rule book; returns whether there was one."""
        with self._doing():
            return self.reading.undo()

    def try_now(self) -> None:
        """Try the draft on the recorded runs, even if it has side effects."""
        with self._doing():
            self.reading.try_now()

    def restore(self, version: int, rule_id: str | None = None) -> None:
        """Put an earlier version of a rule (by default the chosen one) in force again.

        Raises `NoeticConfigError` ``UNKNOWN_VERSION``.
        """
        with self._doing():
            self.reading.restore(rule_id or self.chosen or "", version)

    def move(self, by: int) -> None:
        """Move the chosen rule up (-1) or down (1); at either end it stays."""
        with self._doing():
            if self.chosen is not None:
                self.reading.move(self.chosen, by)

    def remove(self) -> None:
        """Remove the chosen rule; undo brings it back."""
        with self._doing():
            if self.chosen is not None:
                self.reading.remove(self.chosen)

    def add(self, rule_id: str, form: str) -> SteeringRule:
        """Add a new rule, not enabled yet, and choose it.

        Parameters
        ----------
        rule_id : str
            Its name.
        form : str
            ``"python"``, ``"cel"``, ``"judge"``, ``"at_most"``, ``"never_after"``, ``"only_after"`` or ``"only_from_user"``.

        Raises
        ------
        NoeticConfigError
            ``INVALID_FORM``, ``DUPLICATE_RULE_ID`` or ``MISSING_PACKAGE``.
        """
        with self._doing():
            return self.reading.add(rule_id, form)

    def begin_with(self, rule: SteeringRule) -> SteeringRule:
        """Add a rule as a disabled draft, such as one from `lab.draft_rule`, and choose it.

        Returns the rule in the book: renamed if its name is taken, or the existing rule if it is equal.
        """
        with self._doing():
            return self.reading.begin_with(rule)

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> bool:
        """Write the rule book to a rule file; returns whether it was written. `notice` describes the outcome.

        A file that the book was not read from, or that changed since, is replaced only with `overwrite`.
        """
        with self._doing():
            self.reading.save(str(path), overwrite=overwrite)
            return self.notice.mood == "good"

    def code(self, rule_id: str | None = None) -> str:
        """Return the Python code of the rule book, or of one rule."""
        return book_code(self.rulebook) if rule_id is None else rule_code(self.rulebook[rule_id])

    def to_frame(self) -> Any:
        """Return the rules as a table.

        Returns
        -------
        pandas.DataFrame
            One row per rule: ``id, form, hooks, enabled, hits, version, text``. `version` is the book's version in
            which the rule last changed, 0 for an initial rule.
        """
        with self.up_to_date():
            return rules_frame(self.rulebook, self.reading.hits)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return super()._answer(request)
        finally:
            self._send_news()

    def _book_changed(self, change: RuleChange) -> None:
        # Handle it now, so that the editor's own message about a change comes after it. If another thread is busy, for
        # example answering a page, changes wait with the events: changing a rule never waits for a view.
        self._unread.append(change)  # type: ignore[arg-type]
        self.read_some(inf)
        if self._unread and not self.is_awake:
            READINGS.wake(self)

    def _read_event(self, event: Any) -> None:
        if not isinstance(event, RuleChange):
            super()._read_event(event)
        elif self._is_following:
            try:
                self.reading.book_changed(event)
                self.refresh_static()
            except Exception as exc:
                self._fail(exc)
        self._send_news()

    def _read_backlog(self, events: Any) -> None:
        super()._read_backlog([event for event in events if not isinstance(event, RuleChange)])
        for change in events:
            if isinstance(change, RuleChange):
                self._read_event(change)

    def _trial_done(self, data: dict[str, Any], error: NoeticConfigError | None) -> None:
        if self._is_of_one:  # a selection only makes sense for a single run
            for row in data["rows"]:
                row["place"] = row["place"] if row["run"] == plain(self.runs[0].run_id) else None
        with self._doing():
            self.reading.trial_done(data, error)

    @contextmanager
    def _doing(self) -> Iterator[None]:
        with self.up_to_date():
            yield
            self._send_news()

    def _send_news(self) -> None:
        # In the order of the changes: two threads must not send concurrently.
        with self._reading_lock:
            news, self.reading.news = self.reading.news, []
            # Of parts that were replaced several times, only the last version counts.
            last = {message["part"]: message for message in news}
            for message in last.values():
                self.send(message)

    def _release(self) -> bool:
        if isinstance(getattr(self, "reading", None), EditorReading) and self.reading.trial is not None:
            self.reading.trial.cancel()
        return super()._release()


def _runs(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    if isinstance(given, Run) or hasattr(given, "run"):
        return (run_of(given),)
    try:
        return tuple([run_of(each) for each in given])
    except TypeError:
        return (run_of(given),)
