"""All views of one run in one widget, with one comm, one snapshot, one message per event, and one selection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final

import traitlets

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent
from noetic_nb.redact import safe_logger
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain
from noetic_nb.runtime._context.reply import AgentReply
from noetic_nb.steering import RuleBook
from noetic_nb.widgets._approval import Approval, Asked, QuestionWords
from noetic_nb.widgets._workbench.chat import NO_HARNESS, Conversation, Questions
from noetic_nb.widgets._workbench.panel_host import OWN, PanelHost
from noetic_nb.widgets._workbench.panels import PANELS, Subject, checked_names, checked_size, names_to_open, subject_of
from noetic_nb.widgets._workbench.workbench_reading import WorkbenchReading
from noetic_nb.widgets.base._assets import joint_script, joint_style, once_a_page
from noetic_nb.widgets.base._feed import Feed
from noetic_nb.widgets.base._host import hosted_by, page_traits
from noetic_nb.widgets.base._run_view import RunView
from noetic_nb.widgets.base._selection import Moment, Selection, selection_of, sendable_fields

__all__ = ["Workbench"]

log = safe_logger(__name__)

DEFAULT_THREAD: Final = "default"
# For runs of up to this many events, open panels are sent at once: requesting them would take a page longer than reading.
SHORT_RUN: Final = 2_000
# Characters of data sent at once; a page requests panels with very long texts one by one.
_MOST_ALONG: Final = 500_000


class Workbench(PanelHost):
    """Show one run in all views at once, linked by one selection; with a harness, you can also talk to the agent.

    Parameters
    ----------
    run : Run, AgentHarness or object with a ``run``
        A growing run, or one that was loaded or replayed. A harness is recorded, unless it already is: then its newest
        run is shown. Recording continues after the workbench is closed.
    panels : sequence of str, optional
        The open panels: ``"ledger"``, ``"transcript"``, ``"allocation"`` (the context), ``"trends"``, ``"timeline"``
        (the events), ``"memory"``, ``"rules"``; by default the context, the events and the rules, if there are any.
    rules : RuleBook, optional
        The rules used for steering; by default the harness's own.
    regulator : Regulator, optional
        As for `RegulatorTrends`.
    bank : Run or iterable of Run, optional
        Recorded runs for trying rules and thresholds, such as attacks and labelled runs.
    thread_id : str, optional
        Show only this thread at first, and talk in it; by default all threads are shown, and messages go to
        ``"default"``. A page offers the threads of the run.
    turn : int, optional
        Show only this turn, counted from 1 in each thread.
    until : int, optional
        Show the turns up to this one, inclusive.
    selection : Selection, optional
        The selection shared by all panels and with other views.

    Attributes
    ----------
    panels : list of str
        The open panels, in page order. Can be set.
    sizes : dict of str to (int, int)
        Columns of 12, and pixels of height, of resized panels. Can be set.
    thread_id : str or None
        The shown thread. Can be set, which replaces the views.
    ledger, transcript, allocation, trends, timeline, memory, rules : RunView
        The views, created on first access; ``bench.allocation.what_if(...)``.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``UNKNOWN_PANEL``, ``PANEL_NOT_AVAILABLE``; ``NOT_A_RULE_BOOK``; ``INVALID_REGULATOR``;
        ``INVALID_TURN``, ``INVALID_THREAD``, ``NOT_A_SELECTION``.

    References
    ----------
    .. [1] docs/behaviour/views.md, "Workbench".

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with Workbench(Run("r1"), panels=["ledger"]) as bench:
    ...     bench
    Workbench: r1. No turn yet
    <BLANKLINE>
    No turn yet.
    <BLANKLINE>
    Ledger. No steering decision yet. Each evaluation of the rules appears here.
    """

    table = "turns"
    panels = traitlets.List(traitlets.Unicode()).tag(sync=True)
    sizes = traitlets.Dict().tag(sync=True)
    scripts = ("base/question", "workbench/workbench_parts", "workbench/workbench")
    _css = joint_style({name: panel.view.scripts for name, panel in PANELS.items()}, scripts[-1])
    _esm = once_a_page(
        joint_script({name: panel.view.scripts for name, panel in PANELS.items()}, *scripts), _css, scripts[-1]
    )
    # Default on the class: a widget whose `__init__` failed is closed like any other.
    _subject: Subject | None = None
    _is_ready = False
    _last_taken: RunEvent | None = None

    def __init__(
        self,
        run: Any,
        *,
        panels: Sequence[str] | None = None,
        rules: RuleBook | None = None,
        regulator: Regulator | None = None,
        bank: Run | Iterable[Run] | None = None,
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        moment = Moment(thread_id, turn, until)
        self._subject = subject_of(run, rules, regulator, bank)
        selection = selection_of(selection)
        self._first_open = names_to_open(self._subject, panels)
        self._arguments = {"turn": turn, "until": until, "selection": selection}
        reading = WorkbenchReading(self._subject, moment)
        if self._subject.harness is not None:
            reading.conversation = Conversation(self._subject.harness, thread_id or DEFAULT_THREAD, self._chat_changed)
            reading.parts["chat"] = reading.conversation.data()
            reading.questions = Questions(self._questions_changed)
        self._behind: dict[str, RunEvent] = {}
        super().__init__(self._subject.run, reading, moment=moment, selection=selection, panels=self._first_open)
        # An event may have arrived while the widget was created.
        self._last_taken = self._last_taken or self._last_read
        self._is_ready = True
        self.observe(self._open_and_close, "panels")
        self._ends = _asked_here(self)

    # Actions from code

    async def say(self, text: str) -> AgentReply:
        """Send a message to the agent and wait for its reply, as the chat box does.

        Raises
        ------
        NoeticError
            As `AgentHarness.execute`.
        NoeticConfigError
            ``NO_HARNESS`` if the workbench shows a recording.
        """
        return await self._conversation.say(text)

    async def stop(self) -> bool:
        """Cancel the running turn; returns False if none was running. Waiting messages are part of the next turn."""
        return await self._conversation.stop()

    async def grade(self, quality: float) -> None:
        """Grade the last reply from 0 (useless, thumbs down) to 1 (perfect, thumbs up); see `AgentHarness.feedback`."""
        await self._conversation.grade(quality)

    async def correct(self, text: str) -> None:
        """Correct the last reply; see `AgentHarness.correct`.

        Raises `NoeticConfigError` ``NO_FEEDBACK`` if no layer of the agent accepts corrections.
        """
        await self._conversation.correct(text)

    @property
    def _conversation(self) -> Conversation:
        found = self.reading.conversation
        if found is None:
            raise NoeticConfigError("NO_HARNESS", NO_HARNESS, hint="Workbench(harness)")
        return found

    def ask(self, words: QuestionWords) -> Asked | None:
        """Ask for an approval inside the workbench; returns None if it is not shown."""
        if self.comm is None or not self._places or self.reading.questions is None:
            return None
        return self.reading.questions.ask(words)

    def __getattr__(self, name: str) -> Any:
        # Only called for missing attributes.
        if name in PANELS and self._is_ready:
            with self._gathered():
                return self._view(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *PANELS]

    # Panels

    def _view(self, name: str) -> RunView:
        view = self.reading.views.get(name)
        if view is None:
            assert self._subject is not None
            why = PANELS[name].lacks(self._subject)
            if why:
                raise NoeticConfigError("PANEL_NOT_AVAILABLE", why, given=name, hint="Workbench(run, rules=book)")
            thread_id = self.thread_id if PANELS[name].is_of_thread else None
            with hosted_by(self, name):
                view = PANELS[name].make(self._subject, thread_id=thread_id, **self._arguments)
            # The new view has already read the events that still wait here.
            if view._last_read is not None and view._last_read is not self._last_taken:
                self._behind[name] = view._last_read
            self.reading.views[name] = view
        return view

    def _begin(self) -> None:
        super()._begin()
        self._last_taken = self._last_read
        self._send_along(self._first_open)

    def _send_along(self, names: Sequence[str]) -> None:
        """Put the data of panels into the snapshot, if that is quick."""
        panels: dict[str, Any] = {}
        room = _MOST_ALONG
        for name in names if len(self.run.events) <= SHORT_RUN else ():
            sent = self._fetch(name)
            size = len(json.dumps(sent, ensure_ascii=False))
            if size <= room:
                panels[name] = sent
                room -= size
            else:
                self._fetched.discard(name)
        self.reading.snapshot["panels"] = panels

    def _fetch(self, name: str) -> dict[str, Any]:
        """Return a panel's data for a page, which follows it from now on."""
        try:
            view = self._view(name)
            ahead = [[request, view._answer(request)] for request in view.reading.asked_first()]
        except Exception as exc:
            log.exception("A panel of a workbench could not be opened.")
            return {"fault": f"This panel could not be opened: {type(exc).__name__}: {plain(exc, TEXT_LENGTH)}"}
        self._fetched.add(name)
        view._has_page = True
        return {"snapshot": view.snapshot, "traits": page_traits(view), "ahead": ahead}

    @traitlets.validate("panels")
    def _known_panels(self, proposal: Any) -> list[str]:
        assert self._subject is not None
        return names_to_open(self._subject, proposal["value"])

    @traitlets.validate("sizes")
    def _known_sizes(self, proposal: Any) -> dict[str, list[int]]:
        return {name: checked_size(size) for name, size in proposal["value"].items() if checked_names([name])}

    def _open_and_close(self, change: Any) -> None:
        self._fetched.intersection_update(change.new)
        for name in set(self.reading.snapshot["panels"]) - set(change.new):
            del self.reading.snapshot["panels"][name]
        for name in self.reading.views.keys() - set(change.new):
            view = self.reading.views[name]
            view._has_page = view.reading.is_followed = False  # it reads on without drawing until it is opened again
        self.refresh_static()

    @property
    def thread_id(self) -> str | None:
        """The thread that is shown and used for messages; None shows all."""
        return self.moment.thread_id

    @thread_id.setter
    def thread_id(self, thread_id: str | None) -> None:
        moment = Moment(thread_id, self.moment.turn, self.moment.until)
        if moment == self.moment:
            return
        with self._gathered():
            self.moment = moment
            self._show_moment()
        chosen = self.selection.fields["thread_id"]
        if thread_id is not None and chosen not in (None, thread_id):  # the selection is no longer visible
            self.selection.select(thread_id=thread_id)
        self.refresh_static()

    def _show_moment(self) -> None:
        """Read the run again for another moment; pages request their panels again."""
        reading = self.reading
        for name in [name for name in reading.views if PANELS[name].is_of_thread]:
            reading.views.pop(name)._release()
            self._behind.pop(name, None)
        self._fetched.clear()
        if reading.conversation is not None:
            reading.conversation = reading.conversation.in_thread(self.thread_id or DEFAULT_THREAD)
            reading.parts["chat"] = reading.conversation.data()
        reading.show(self.moment)
        self._feed = Feed(reading, self.moment)
        events = self._feed.read(self.run)
        # The new view has already read the events that still wait here.
        self._behind.pop(OWN, None)
        if events and events[-1] is not self._last_taken:
            self._behind[OWN] = events[-1]
        reading.begin()
        self._send_along(self.panels)
        self._news.append((OWN, {"type": "all", "snapshot": reading.snapshot}))

    # Input from the run, the conversation and pages

    def _chat_changed(self) -> None:
        chat = getattr(self.reading, "conversation", None)
        if chat is not None:
            self._part_changed(chat=chat.data())

    def _questions_changed(self) -> None:
        if self.reading.questions is not None:
            self._part_changed(questions=self.reading.questions.data())

    def _read_event(self, event: RunEvent) -> None:
        if not self._is_following:
            return
        with self._gathered():
            self._last_taken = event
            for name, view in tuple(self.reading.views.items()):
                if name not in self._behind:
                    view.take(event)
                    view.read_some(inf)
                elif self._behind[name] is event:
                    del self._behind[name]
            if OWN not in self._behind:
                self._take_part(event)
            elif self._behind[OWN] is event:
                del self._behind[OWN]

    def _read_backlog(self, events: Sequence[RunEvent]) -> None:
        self._last_taken = events[-1] if events else self._last_taken
        for name, view in tuple(self.reading.views.items()):
            view._read_backlog(self._unread_of(name, events))
        if self.fault:
            return
        self.reading.is_followed = False
        try:
            for event in events:
                self.reading.take_thread(event)
            self._feed.take_all(self._unread_of(OWN, events))
            self.reading.begin()
            self._news.append((OWN, {"type": "parts", **self.reading.parts}))
        except Exception as exc:
            self._fail_alone(exc)

    def _unread_of(self, name: str, events: Sequence[RunEvent]) -> Sequence[RunEvent]:
        """Return the events that a part, which started later than the others, has not read."""
        last = self._behind.pop(name, None)
        if last is None:
            return events
        for at, event in enumerate(events, 1):
            if event is last:
                return events[at:]
        self._behind[name] = last
        return []

    def _take_part(self, event: RunEvent) -> None:
        """Read an event for the parts outside the panels; an error there does not affect the panels."""
        if self.fault:
            return
        try:
            for parts in (self.reading.take_thread(event), self._feed.take(event)):
                if parts:
                    self._news.append((OWN, {"type": "parts", **parts}))
        except Exception as exc:
            self._fail_alone(exc)

    def _fail_alone(self, exc: Exception) -> None:
        log.exception("A workbench failed; its panels go on.")
        self.fault = f"The workbench itself failed: {type(exc).__name__}: {plain(exc, TEXT_LENGTH)}"

    def _selected(self, fields: dict[str, Any]) -> None:
        with self._gathered():
            self.reading.snapshot["selection"] = sent = sendable_fields(fields)
            self._news.append((OWN, {"type": "selected", "id": self._asked_by, "fields": sent}))
            chosen = self.reading.selected(fields)
            if chosen is not None:
                self._news.append((OWN, {"type": "parts", **chosen}))
            for view in tuple(self.reading.views.values()):
                view._selected(fields)

    def _message_received(self, widget: Any, content: Any, buffers: Any) -> None:
        match content:
            case {"type": "panel", "panel": str(name), "set": dict(values)} if name in self.reading.views:
                with self._gathered():
                    self.reading.views[name].take_state(values)
            case {"type": "panel", "panel": str(name), "message": message} if name in self.reading.views:
                with self._gathered():
                    self.reading.views[name]._message_received(widget, message, buffers)
            case _:
                super()._message_received(widget, content, buffers)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request:
            case {"do": "panel", "panel": str(name)} if name in PANELS:
                with self._gathered():
                    return {"data": self._fetch(name)}
            case {"do": "choose", "at": int(at), "why": bool(why)} if 0 <= at < len(self.reading.talk):
                self.selection.select(**self.reading.talk.fields(at, decision=why))
                return {"data": None}
            case {"do": "thread", "at": int(at)}:
                self.thread_id = self.reading.threads.name(at)
                return {"data": None}
            case {"do": "edit", "decision": int(seq), "rule": None | int() as place}:
                try:
                    self.edit(seq, place)
                except NoeticConfigError as exc:
                    return {"fault": plain(exc, TEXT_LENGTH)}
                return {"data": None}
        return super()._answer(request)

    def edit(self, seq: int, rule: int | None = None) -> None:
        """Open a decision's rule in the editor, or a draft of a rule against a call.

        Parameters
        ----------
        seq : int
            The ``seq`` of a decision or tool call of the run.
        rule : int, optional
            The index of a rule among those of the decision; without it, a disabled rule is drafted (`lab.draft_rule`).
            If there is no rule book, it goes to a new one, ``bench.rules.rulebook``.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_DECISION``; ``UNKNOWN_CALL`` if no rule can be drafted; ``PANEL_NOT_AVAILABLE``.
        """
        assert self._subject is not None
        if rule is not None:
            self.rules.choose(self.reading.causes.rule(seq, rule))
        else:
            draft = self.reading.causes.draft(seq)
            if self._subject.rules is None:
                book = RuleBook()
                self._subject = self._subject._replace(rules=book)
                self._part_changed(**self.reading.take_rules(book))
            self.rules.begin_with(draft)
        self.panels = [*self.panels, "rules"]

    def to_html(self) -> str:
        """Return the conversation and the static forms of the open panels as HTML without scripts."""
        self._make_all()
        return super().to_html()

    def to_text(self) -> str:
        """Return the conversation and the texts of the open panels."""
        self._make_all()
        return super().to_text()

    def _make_all(self) -> None:
        """Create the views of the open panels; if one fails, the page shows the reason."""
        for name in self.panels:
            with self._gathered():
                self.reading.faults.pop(name, None)
                try:
                    self._view(name)
                except Exception as exc:
                    self.reading.faults[name] = f"{type(exc).__name__}: {plain(exc, TEXT_LENGTH)}"
        self.reading.open = list(self.panels)

    def _release(self) -> bool:
        self.catch_up()
        if isinstance(getattr(self, "reading", None), WorkbenchReading):
            if self.reading.questions is not None:
                self.reading.questions.withdraw()
            for end in getattr(self, "_ends", ()):
                end()
            for view in self.reading.views.values():
                view._release()
        return super()._release()


def _asked_here(bench: Workbench) -> tuple[Callable[[], None], ...]:
    """Show the harness's approval questions inside the workbench, if it asks a user at all."""
    harness = None if bench._subject is None else bench._subject.harness
    approve = getattr(harness, "approve", None)
    return (approve.ask_in(bench),) if isinstance(approve, Approval) else ()
