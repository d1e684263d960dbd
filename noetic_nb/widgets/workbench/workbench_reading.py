"""What a workbench reads beside what its panels read: the conversation, what is going on, and why something was decided."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent, TurnStarted
from noetic_nb.markup import escape
from noetic_nb.runs.plain_text import plain
from noetic_nb.widgets.base.feed import Place, Reading
from noetic_nb.widgets.base.moment import EVERYTHING, Moment
from noetic_nb.widgets.base.run_view import RunView
from noetic_nb.widgets.workbench.cause import Causes
from noetic_nb.widgets.workbench.conversation import NO_HARNESS, Conversation
from noetic_nb.widgets.workbench.panels import PANELS, Subject
from noetic_nb.widgets.workbench.progress import Progress
from noetic_nb.widgets.workbench.questions import Questions
from noetic_nb.widgets.workbench.talk import Talk

__all__ = ["WorkbenchReading"]

# A page that is open keeps what it has been sent; one that opens later has these.
_MOST_ROWS: Final = 40


class WorkbenchReading(Reading):
    """The parts of a workbench that are no panels, and the snapshot of all of it.

    Parameters
    ----------
    subject : Subject
        What is looked at.
    moment : Moment, optional
        Which part of the run is shown.

    Attributes
    ----------
    views : dict of str to RunView
        The views that have been made, by the names of their panels.
    talk, progress, causes, questions : object
        The parts.
    conversation : Conversation or None
        With the harness, where there is one.

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> WorkbenchReading(Subject(Run())).snapshot["parts"]["progress"]
    'No turn yet'
    """

    def __init__(self, subject: Subject, moment: Moment = EVERYTHING) -> None:
        self.views: dict[str, RunView] = {}
        self.talk = Talk(moment)
        self.progress = Progress()
        self.causes = Causes(subject.run, subject.rules)
        self.conversation: Conversation | None = None
        self.questions: Questions | None = None
        self._name = plain(getattr(subject.run, "run_id", "") or "run")
        self._was_busy = False
        self.snapshot: dict[str, Any] = {
            "name": self._name,
            "titles": [[name, panel.title, panel.lacks(subject)] for name, panel in PANELS.items()],
            "sizes": {name: list(panel.size) for name, panel in PANELS.items()},
            "panels": {},
            "parts": {
                "progress": self.progress.text,
                "busy": False,
                "chat": None,
                "whyNoChat": NO_HARNESS,
                "questions": [],
                "talk": [],
                "turns": 0,
            },
        }

    @property
    def parts(self) -> dict[str, Any]:
        """What a page shows beside the panels."""
        parts: dict[str, Any] = self.snapshot["parts"]
        return parts

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the parts that are others now."""
        self.progress.take(event)
        self.causes.take(event, place.seq)
        row = self.talk.take(event, place.seq)
        if not self._is_begun:
            return None
        if isinstance(event, TurnStarted) and self.conversation is not None:
            self.conversation.turn_started(event.where.thread_id)
        news: dict[str, Any] = {}
        if row is not None:
            rows = self.parts["talk"]
            known = [at for at, other in enumerate(rows) if other["at"] == row["at"]]
            if known:
                rows[known[0]] = row
            elif not rows or row["at"] > rows[-1]["at"]:
                rows.append(row)
                del rows[:-_MOST_ROWS]
            self.parts["turns"] = len(self.talk)
            news |= {"row": row, "turns": len(self.talk)}
        for name, value in (("progress", self.progress.text), ("busy", self.is_busy)):
            if self.parts[name] != value:
                self.parts[name] = news[name] = value
        return news or None

    _is_begun = False

    def begin(self) -> None:
        """Make the snapshot of what has been read."""
        self._is_begun = True
        self.parts.update(
            progress=self.progress.text, busy=self.is_busy, talk=self.talk.newest(), turns=len(self.talk)
        )

    @property
    def is_busy(self) -> bool:
        """Whether a turn of the conversation runs."""
        return self.conversation is not None and self.conversation.thread_id in self.progress.running

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer ``{what: "talk", before}``, ``{what: "cause", decision}`` and ``{what: "without", rule}``."""
        match request:
            case {"what": "talk", "before": int(before)}:
                return self.talk.newest(before)
            case {"what": "cause", "decision": int(decision)}:
                return self.causes.of(decision)
            case {"what": "without", "rule": str(rule_id)}:
                return self.causes.without(rule_id)
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
        """Return the conversation and the static forms of the open panels, one below the other."""
        head = (
            f'<p class="nn-title">Workbench: {escape(self._name)}</p><p class="nn-sub">{escape(self.progress.text)}</p>'
        )
        panels = [f'<div class="nn-static-panel">{view.reading.to_html()}</div>' for view in self._open]
        return f"{head}{self.talk.to_html()}{''.join(panels)}"

    def to_text(self) -> str:
        """Return the conversation and the texts of the open panels."""
        texts = [f"Workbench: {self._name}. {self.progress.text}", self.talk.to_text()]
        return "\n\n".join([*texts, *[view.reading.to_text() for view in self._open]])

    @property
    def _open(self) -> list[RunView]:
        return [view for name, view in self.views.items() if name in self.snapshot["panels"]]
