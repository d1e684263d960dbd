"""Reads the conversation, the progress and the causes of decisions for a workbench, besides its panels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    ErrorRaised,
    ModelCalled,
    QualityGiven,
    RegulatorDecided,
    RunEvent,
    SteeringDecided,
    StepStarted,
    ToolCalled,
    ToolProgress,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.markup import dollars, escape, heading
from noetic_nb.runs._plain_text import plain
from noetic_nb.steering import RuleBook
from noetic_nb.widgets._workbench.chat import NO_HARNESS, Conversation, Questions
from noetic_nb.widgets._workbench.conversation_view import NO_TURN, Talk
from noetic_nb.widgets._workbench.explain_decision import Causes, cause_parts, without_parts
from noetic_nb.widgets._workbench.panels import PANELS, Subject
from noetic_nb.widgets.base._feed import Place, Reading
from noetic_nb.widgets.base._run_view import RunView
from noetic_nb.widgets.base._selection import EVERYTHING, FIELDS, Moment

# Most tool names to show; the others are counted.
_TOOLS_NAMED: Final = 3


class Progress:
    """Reads events and describes the current progress.

    Attributes
    ----------
    running : dict of str to Where
        The threads with a running turn, and its location.

    Examples
    --------
    >>> progress = Progress()
    >>> where = Where("t1", "e1", 2)
    >>> progress.take(TurnStarted(where, 0.0, "u", 0, 1, "Hi"))
    >>> progress.take(ModelCalled(where, 1.0, 0, "m", "agent", 1.0, "ok", (), 1200, 30, cost=0.002))
    >>> progress.text
    'Turn 2 runs · 1,230 tokens · $0.0020'
    """

    reads: ClassVar = frozenset({ModelCalled, StepStarted, ToolCalled, ToolProgress, TurnCompleted, TurnStarted})
    """The event types that it reads."""

    def __init__(self) -> None:
        self.running: dict[str, Where] = {}
        self._step = ""
        self._open: dict[str, str] = {}
        self._tokens = 0
        self._cost = 0.0
        self._unpriced = 0
        self._last: TurnCompleted | None = None
        self.is_live = True
        """Whether the run is being recorded."""

    def take(self, event: RunEvent) -> None:
        match event:  # the most frequent types first
            case ModelCalled():
                self._tokens += event.input_tokens + event.output_tokens
                self._cost += event.cost or 0.0
                self._unpriced += event.cost is None
                if event.purpose == "agent":
                    calls = [item for item in event.items if item["type"] == "function_call"]
                    self._open |= {str(item.get("callId")): str(item.get("name")) for item in calls}
            case TurnStarted(where):
                self.running[where.thread_id] = where
                self._step = ""
                self._open.clear()
            case StepStarted():
                self._step = event.step_id
            case ToolProgress():
                self._open.setdefault(event.call_id, event.name)
            case ToolCalled():
                self._open.pop(event.call_id, None)
            case TurnCompleted(where):
                self.running.pop(where.thread_id, None)
                self._last = event
                self._open.clear()

    @property
    def text(self) -> str:
        """The description in one line."""
        parts = []
        if self.running:
            where = list(self.running.values())[-1]
            thread = f" of {plain(where.thread_id)}" if len(self.running) > 1 else ""
            parts.append(f"Turn {where.turn}{thread} {'runs' if self.is_live else 'has not ended'}")
            if self._step:
                parts.append(f"step {plain(self._step)}")
            if self._open:
                names = [plain(name) for name in self._open.values()]
                more = f" and {len(names) - _TOOLS_NAMED} more" if len(names) > _TOOLS_NAMED else ""
                parts.append(f"tool {', '.join(names[:_TOOLS_NAMED])}{more}")
        elif self._last is not None:
            parts.append(f"Turn {self._last.where.turn} ended: {plain(self._last.outcome)}")
        else:
            parts.append("No turn yet")
        if self._tokens:
            parts.append(f"{self._tokens:,} tokens")
        if self._cost:
            known = dollars(self._cost) if self._cost < 1 else f"${self._cost:,.2f}"
            calls = f"{self._unpriced:,} call{'s' * (self._unpriced > 1)} without a price"
            parts.append(f"{known} and {calls}" if self._unpriced else known)
        return " · ".join(parts)


# A longer list does not help; set any other thread by name in a cell.
NAMES_SENT: Final = 200


class ThreadNames:
    """The names of a run's threads, in order of first appearance.

    Examples
    --------
    >>> from noetic_nb.events import QualityGiven, Where
    >>> names = ThreadNames()
    >>> [names.take(QualityGiven(Where(thread, "e1", 1), 0.0, 0.5, "user")) for thread in ("ann", "bob", "ann")]
    [0, 1, None]
    >>> names.offered("ann")
    [[0, 'ann'], [1, 'bob']]
    """

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    def take(self, event: RunEvent) -> int | None:
        """Read one event; returns the index of its thread if that is new."""
        name = event.where.thread_id
        if not name or name in self._at:
            return None
        self._at[name] = at = len(self._names)
        self._names.append(name)
        return at

    def read(self, events: Iterable[RunEvent]) -> None:
        known = self._at
        for event in events:
            if event.where.thread_id not in known:  # true for few events
                self.take(event)

    def name(self, at: int) -> str | None:
        return self._names[at] if 0 <= at < len(self._names) else None

    def place(self, name: str | None) -> int | None:
        return None if name is None else self._at.get(name)

    def row(self, at: int) -> list[object]:
        """Return the row of a thread for a page: its index, and its name as text."""
        return [at, plain(self._names[at])]

    def offered(self, chosen: str | None) -> list[list[object]]:
        """Return the newest threads, and the chosen one, for pages."""
        first = max(0, len(self._names) - NAMES_SENT)
        at = self.place(chosen)
        older = [] if at is None or at >= first else [self.row(at)]
        return older + [self.row(each) for each in range(first, len(self._names))]


def _titles(subject: Subject) -> list[list[str]]:
    return [[name, panel.title, panel.lacks(subject)] for name, panel in PANELS.items()]


_READ: Final = frozenset(
    {
        ErrorRaised, ModelCalled, QualityGiven, RegulatorDecided, SteeringDecided, StepStarted, ToolCalled, ToolProgress,
        TurnCompleted, TurnStarted,
    }
)  # fmt: skip
# An open page keeps the rows it has received; a page that opens later gets these.
_MOST_ROWS: Final = 40


class WorkbenchReading(Reading):
    """The parts of a workbench outside the panels, and the snapshot of the whole workbench.

    Parameters
    ----------
    subject : Subject
        The run with its rules, regulator and bank.
    moment : Moment, optional
        The part of the run to show.

    Attributes
    ----------
    views : dict of str to RunView
        The created views, by panel name.
    open, faults : list of str, dict of str to str
        For static forms: the open panels, and the reasons why some cannot be shown.
    talk, progress, causes, questions, threads : object
        The parts.
    conversation : Conversation or None
        The conversation with the harness, if there is one.

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> WorkbenchReading(Subject(Run())).snapshot["parts"]["progress"]
    'No turn yet'
    """

    reads = _READ

    def __init__(self, subject: Subject, moment: Moment = EVERYTHING) -> None:
        self.views: dict[str, RunView] = {}
        self._subject = subject
        self.threads = ThreadNames()
        self.open: list[str] = []
        self.faults: dict[str, str] = {}
        self.conversation: Conversation | None = None
        self.questions: Questions | None = None
        self._name = plain(getattr(subject.run, "run_id", "") or "run")
        self.snapshot: dict[str, Any] = {
            "name": self._name,
            "sizes": {name: list(panel.size) for name, panel in PANELS.items()},
            "selection": dict.fromkeys(FIELDS),
            "panels": {},
            "parts": {
                "progress": "",
                "busy": False,
                "canGrade": False,
                "chosen": None,
                "cause": None,
                "titles": _titles(subject),
                "chat": None,
                "whyNoChat": NO_HARNESS,
                "empty": NO_TURN,
                "questions": [],
                "talk": [],
                "hasThreads": False,
                "turns": 0,
                "threads": [],
                "threadCount": 0,
                "thread": None,
                "shown": 0,
            },
        }
        self.show(moment)

    def show(self, moment: Moment) -> None:
        """Forget all events and show another part of the run; its events must be read again."""
        self._moment = moment
        self.is_followed = self._has_reply = False
        self.talk = Talk(moment)
        self.progress = Progress()
        self._look()
        self.causes = Causes(self._subject.run, self._subject.rules)
        # A page drops the data it requested for the previous part.
        self.parts.update(progress=self.progress.text, shown=self.parts["shown"] + 1)

    def _look(self) -> None:
        """Note whether the run is being recorded: only then has a turn without an end not been cut off."""
        self.talk.is_live = self.progress.is_live = getattr(self._subject.run, "is_recording", False)

    @property
    def parts(self) -> dict[str, Any]:
        """The parts of a page outside the panels."""
        parts: dict[str, Any] = self.snapshot["parts"]
        return parts

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        kind = type(event)
        if kind in Progress.reads:
            self.progress.take(event)
        at = self.talk.take(event, place.seq) if kind in Talk.reads else None
        if not self.is_followed:
            return None
        self._look()
        news: dict[str, Any] = {}
        if at is not None:
            rows, row = self.parts["talk"], self.talk.row(at)
            known = [place for place, other in enumerate(rows) if other["key"] == at]
            if known:
                rows[known[0]] = row
            elif not rows or at > rows[-1]["key"]:
                rows.append(row)
                del rows[:-_MOST_ROWS]
            self.parts["turns"] = len(self.talk)
            news |= {"row": row, "turns": len(self.talk)}
        if isinstance(event, TurnCompleted):
            self._has_reply = self._has_reply or event.where.thread_id == self._chat_thread
        now = {
            "progress": self.progress.text,
            "busy": self.is_busy,
            "canGrade": self._has_reply,
            "hasThreads": self.talk.has_threads,
        }
        changed = {name: value for name, value in now.items() if value != self.parts[name]}
        self.parts.update(changed)
        news |= changed
        return news or None

    def selected(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        """Handle a selection; returns its conversation row and cause, if they changed."""
        now = {"chosen": self.talk.chosen(fields), "cause": self.causes.seq_of(fields)}
        news = {name: value for name, value in now.items() if value != self.parts[name]}
        self.parts.update(news)
        return news or None

    def take_rules(self, rules: RuleBook) -> dict[str, Any]:
        """Use a rule book if there was none; returns the changed parts."""
        self._subject = self._subject._replace(rules=rules)
        self.causes.rules = rules
        self.parts["titles"] = _titles(self._subject)
        return {"titles": self.parts["titles"]}

    def take_thread(self, event: RunEvent) -> dict[str, Any] | None:
        """Read one event of any thread; returns the changed parts."""
        if isinstance(event, TurnStarted) and self.conversation is not None:
            self.conversation.turn_started(event.where.thread_id)
        at = self.threads.take(event)
        if at is None or not self.is_followed:
            return None
        self.parts["threads"].append(self.threads.row(at))
        self.parts["threadCount"] = len(self.threads)
        # The shown thread may only have begun with this event.
        self.parts["thread"] = self.threads.place(self._moment.thread_id)
        return {"newThread": self.threads.row(at), "threadCount": len(self.threads), "thread": self.parts["thread"]}

    @property
    def _chat_thread(self) -> str | None:
        return None if self.conversation is None else self.conversation.thread_id

    def begin(self) -> None:
        """Create the snapshot of the events read so far."""
        super().begin()
        if not self.threads:  # otherwise each event was reported
            self.threads.read(list(self._subject.run.events))
        self._has_reply = self._chat_thread is not None and self.talk.has_reply(self._chat_thread)
        self.parts.update(
            progress=self.progress.text,
            busy=self.is_busy,
            canGrade=self._has_reply,
            talk=self.talk.newest(),
            hasThreads=self.talk.has_threads,
            turns=len(self.talk),
            chosen=self.talk.chosen(self.snapshot["selection"]),
            cause=self.causes.seq_of(self.snapshot["selection"]),
            threads=self.threads.offered(self._moment.thread_id),
            threadCount=len(self.threads),
            thread=self.threads.place(self._moment.thread_id),
        )

    @property
    def is_busy(self) -> bool:
        """Whether a turn of the conversation is running."""
        return self.conversation is not None and self.conversation.thread_id in self.progress.running

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer ``{what: "talk", before}``, ``{what: "cause", decision}`` and ``{what: "without", decision, rule}``."""
        match request:
            case {"what": "talk", "before": int(before)}:
                return self.talk.newest(before)
            case {"what": "cause", "decision": int(decision)}:
                cause = self.causes.of(decision)
                return {**cause, "parts": cause_parts(cause)}
            case {"what": "without", "decision": int(decision), "rule": int(place)}:
                trial = self.causes.without(self.causes.rule(decision, place))
                return {**trial, "parts": without_parts(trial)}
            case {"do": "answer", "id": int(number), "answer": str(answer), "reason": str(reason)}:
                return self.questions is not None and self.questions.take(number, answer, reason)
            case {"do": "say" | "stop" | "grade" | "correct"}:
                return self._do(request)
        return super().answer(request)

    def _do(self, request: dict[str, Any]) -> None:
        chat = self.conversation
        if chat is None:
            raise NoeticConfigError("NO_HARNESS", NO_HARNESS, hint="Workbench(harness)")
        match request:
            case {"do": "say", "text": str(text)} if text.strip():
                chat.begin(chat.say(text))
            case {"do": "stop"}:
                chat.begin(chat.stop())
            case {"do": "grade", "quality": int() | float() as quality}:
                chat.begin(chat.grade(quality))
            case {"do": "correct", "text": str(text)} if text.strip():
                chat.begin(chat.correct(text))
            case _:
                super().answer(request)

    def to_html(self) -> str:
        """Return the conversation and the static forms of the open panels, stacked."""
        head = f'{heading(f"Workbench: {self._name}")}<p class="nn-sub">{escape(self.progress.text)}</p>'
        panels = [
            f'<div class="nn-static-panel" data-panel="{name}"><div class="noetic-nb">{self._html(name)}</div></div>'
            for name in self.open
        ]
        return f"{head}{self.talk.to_html()}{''.join(panels)}"

    def _html(self, name: str) -> str:
        if name in self.faults:
            return f'<p class="nn-fault">{escape(PANELS[name].title)}: {escape(self.faults[name])}</p>'
        return self.views[name].form()

    def to_text(self) -> str:
        """Return the conversation and the texts of the open panels."""
        texts = [f"Workbench: {self._name}. {self.progress.text}", self.talk.to_text()]
        shown = [self.faults.get(name) or self.views[name].reading.to_text() for name in self.open]
        return "\n\n".join([*texts, *shown])
