"""Edit the rules of a rule book while an agent runs, and see the effect of an edit while typing.

The editor only shows; compiling, trying and replacing a rule is the rule book's work. A draft that fails there leaves the
last good version in force and the text in the editor, with the place that failed.
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
    """The line that failed, from 1."""
    column: int | None = None


class RuleEditor(RunView):
    r"""List the rules of a rule book, edit one, see the effect of the edit on recorded runs, and apply it.

    Parameters
    ----------
    rulebook : RuleBook
        Whose rules are edited; changes made elsewhere appear here too.
    run : Run, iterable of Run, or object with a ``run``, optional
        Recorded or imported runs, or one that grows while an agent runs. While someone types, the draft is tried on them,
        and a new version is tried on their calls before it replaces the old one.
    runs : iterable of Run, optional
        More of them.
    outcome : str or callable
        How a run went: a key of ``run.meta`` or a function of a run, True good, False failed, None unknown. Where there are
        such labels, or attacks (``meta["attack"]``), a trial is split by them.
    thread_id : str, optional
        Count hits of this thread only.
    turn : int, optional
        Count hits of this turn only, 1 for the first of a thread.
    until : int, optional
        Count hits of the turns up to this one, inclusive.
    selection : Selection, optional
        What someone points at, shared with other views: a click on a decision that differs chooses it.

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
        # The book may have changed while the widget was made.
        with self._doing():
            if reading.snapshot["version"] != rulebook.version:
                reading.book_changed(rulebook.changes[-1])

    @property
    def chosen(self) -> str | None:
        """The id of the rule that is shown."""
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
        """The findings of the last trial, as the page shows them; None without runs."""
        found: dict[str, Any] | None = self.reading.snapshot["trial"]
        return found

    def choose(self, rule_id: str) -> None:
        """Show another rule; raises `NoeticConfigError` ``UNKNOWN_RULE``."""
        with self._doing():
            self.reading.choose(rule_id)

    def write(self, **values: str | int) -> None:
        """Put something into fields of the chosen rule, such as ``text=`` or ``count=``, as if it were typed.

        Raises `NoeticConfigError` ``INVALID_FIELD``.
        """
        with self._doing():
            self.reading.typed(values)

    def apply(self) -> bool:
        """Put the draft in place of the chosen rule; returns whether it was applied."""
        with self._doing():
            return self.reading.apply()

    def undo(self) -> bool:
        """Take the last change of the rule book back; returns whether there was one."""
        with self._doing():
            return self.reading.undo()

    def try_now(self) -> None:
        """Try the draft on the recorded runs, even where it has side effects."""
        with self._doing():
            self.reading.try_now()

    def restore(self, version: int, rule_id: str | None = None) -> None:
        """Put an earlier version of a rule, by default the chosen one, in force again.

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
        """Take the chosen rule out; undo brings it back."""
        with self._doing():
            if self.chosen is not None:
                self.reading.remove(self.chosen)

    def add(self, rule_id: str, form: str) -> SteeringRule:
        """Add a rule to begin with, which is not enabled yet, and choose it.

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
        """Add a rule as a draft that is not enabled yet, such as that of `lab.draft_rule`, and choose it.

        Returns the rule in the book: under another name where its own is taken, and the old one where that says the same.
        """
        with self._doing():
            return self.reading.begin_with(rule)

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> bool:
        """Write the rule book to a rule file; returns whether it was written, and `notice` says what.

        A file that the book was not read from, or that changed since, is only replaced with `overwrite`.
        """
        with self._doing():
            self.reading.save(str(path), overwrite=overwrite)
            return self.notice.mood == "good"

    def code(self, rule_id: str | None = None) -> str:
        """Return the Python code that makes the rule book, or one rule of it."""
        return book_code(self.rulebook) if rule_id is None else rule_code(self.rulebook[rule_id])

    def to_frame(self) -> Any:
        """Return the rules as a table.

        Returns
        -------
        pandas.DataFrame
            One row a rule: ``id, form, hooks, enabled, hits, version, text``. `version` is that of the book in which the rule
            was last changed, 0 for one that the book began with.
        """
        with self.up_to_date():
            return rules_frame(self.rulebook, self.reading.hits)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return super()._answer(request)
        finally:
            self._send_news()

    def _book_changed(self, change: RuleChange) -> None:
        # At once, so that what the editor says of a change of its own comes after it. While another thread is at something, such
        # as the answer to a page, changes wait with the events: whoever changes a rule does not wait for a view.
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
        if self._is_of_one:  # what is chosen in it is a place in that run, and in no other
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
        # In the order of the changes: two threads must not send at the same time.
        with self._reading_lock:
            news, self.reading.news = self.reading.news, []
            # Of parts that were replaced several times only the last counts.
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
