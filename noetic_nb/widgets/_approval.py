"""Asks the user of the notebook for approval: a small form in the output, answered by click or keyboard.

Pass it to the harness as ``approve=``. Interrupting the kernel denies. While a cell awaits the agent, clicks
need a kernel with subshells (ipykernel 7.4); elsewhere run the turn as a task: ``asyncio.create_task(...)``.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

import anywidget
import traitlets

from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.items._origins import Origin
from noetic_nb.markup import escape, heading
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain, plain_data
from noetic_nb.widgets.base._assets import script, static_frame, style
from noetic_nb.widgets.base._display import DisplayMixin, enter_cell
from noetic_nb.widgets.base._page_thread import keep_off_main_shell

REFUSED: Final = "A person said no."
REPLACED: Final = "The question was withdrawn: its cell ran again."
WITHDRAWN: Final = "Withdrawn: the turn ended before anyone answered."
WAITING: Final = "Not answered yet."


class Asked(Protocol):
    """A question to the user."""

    answer: asyncio.Future[str]
    """``"once"``, ``"always"``, or the reason for a refusal."""

    def settle(self, answer: str | None = None) -> None:
        """Accept the answer if it is the first; None withdraws the question."""
        ...


class Place(Protocol):
    """A place for questions other than below the cell."""

    def ask(self, words: QuestionWords) -> Asked | None:
        """Ask; returns None if the question would not be visible."""
        ...


class Approval:
    """Asks the user whether to allow a call, or to keep a response.

    An answer applies once, or to every later call of the same tool until `forget`.

    Examples
    --------
    >>> approval = Approval()
    >>> approval.always
    frozenset()
    """

    def __init__(self) -> None:
        self._always: set[str] = set()
        self._open: dict[Asked, None] = {}  # in the order of asking
        self._elsewhere: list[weakref.ref[Place]] = []

    @property
    def always(self) -> frozenset[str]:
        """Tools that are always allowed."""
        return frozenset(self._always)

    def forget(self) -> None:
        """Ask about every tool again."""
        self._always.clear()

    def ask_in(self, place: Place) -> Callable[[], None]:
        """Ask in a place, such as a workbench, while it is shown; the newest place is used. Returns a function to end it."""
        held = weakref.ref(place)
        self._elsewhere.append(held)
        return lambda: self._elsewhere.remove(held) if held in self._elsewhere else None

    def _ask(self, words: QuestionWords) -> Asked:
        for held in reversed(self._elsewhere):
            place = held()
            asked = None if place is None else place.ask(words)
            if asked is not None:
                return asked
        from IPython.display import display

        form = Question(words)
        try:
            display(form)  # type: ignore[no-untyped-call]
        except BaseException:
            form.settle()
            raise
        return form

    async def __call__(
        self,
        name: str,
        args: Mapping[str, Any],
        *,
        question: str | None = None,
        rules: Sequence[str] = (),
        origins: Mapping[str, Origin] | None = None,
    ) -> bool | str:
        """Show the question and wait for the answer: True, or the reason for a refusal."""
        if name in self._always:
            return True
        form = self._ask(question_words(name, args, question, rules, origins))
        self._open[form] = None
        try:
            answer = await form.answer
        finally:
            del self._open[form]
            form.settle()
            del form  # a kept traceback of a cancelled turn would otherwise keep the form alive
        if answer == "always":
            self._always.add(name)
        return True if answer in ("once", "always") else answer

    @property
    def questions(self) -> tuple[Asked, ...]:
        """The open questions, oldest first."""
        return tuple(self._open)


class QuestionWords(NamedTuple):
    """The texts of a question, secrets replaced."""

    asked: str
    call: str
    why: tuple[str, ...] = ()
    """The rules that ask, and the origin of each argument."""


def question_words(
    name: str,
    args: Mapping[str, Any],
    question: str | None,
    rules: Sequence[str] = (),
    origins: Mapping[str, Origin] | None = None,
) -> QuestionWords:
    """Return the texts of a question about a call.

    Examples
    --------
    >>> question_words("pay", {"amount": 3}, None)
    QuestionWords(asked='May pay be called?', call='pay {"amount": 3}', why=())
    >>> question_words("pay", {"to": "ann"}, "Pay?", ["large"], {"to": Origin("tool", "get_contacts")}).why
    ('Asked by the rule large.', 'to: written by the tool get_contacts.')
    """
    asked = plain(question, TEXT_LENGTH) if question else f"May {plain(name)} be called?"
    why = [f"{plain(argument)}: written by {origin_words(origin)}." for argument, origin in (origins or {}).items()]
    if rules:
        named = ", ".join([plain(rule_id) for rule_id in rules])
        why.insert(0, f"Asked by the rule{'s' * (len(rules) > 1)} {named}.")
    return QuestionWords(asked, f"{plain(name)} {plain_data(args, TEXT_LENGTH)}", tuple(why))


def origin_words(origin: Origin) -> str:
    """Describe the origin of a value.

    Examples
    --------
    >>> origin_words(Origin("tool", "get_contacts", field="email")), origin_words(Origin("user"))
    ('the tool get_contacts, its email', 'the user')
    """
    if origin.kind == "model":
        return "the model itself: nobody wrote it before"
    name = "" if origin.name is None else f" {plain(origin.name)}"
    of = "" if origin.field is None else f", its {plain(origin.field)}"
    return f"the {origin.kind}{name}{of}"


class OpenQuestion:
    """One question that waits for its answer, the first one it gets.

    Examples
    --------
    >>> async def main():
    ...     question = OpenQuestion(QuestionWords("Pay?", "pay {}"))
    ...     question.take("deny", "Too much.")
    ...     question.take("once")
    ...     return await question.answer
    >>> asyncio.run(main())
    'Too much.'
    """

    def __init__(self, words: QuestionWords, /, **traits: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[str] = self._loop.create_future()
        self.asked, self.call, self.why = words
        super().__init__(**traits)

    def take(self, answer: str, reason: str = "") -> None:
        """Take an answer from any thread: ``"once"``, ``"always"``, or anything else for a no with its reason."""
        given = answer if answer in ("once", "always") else refusal(reason)
        with contextlib.suppress(RuntimeError):  # if the loop has ended, nobody waits for the answer
            self._loop.call_soon_threadsafe(self.settle, given)

    def settle(self, answer: str | None = None) -> None:
        """Use the answer; without one the question is withdrawn."""
        if self.answer.done():
            return
        if answer is None:  # the turn was cancelled, or the kernel interrupted
            self.answer.cancel()
        else:
            self.answer.set_result(answer)


class Question(OpenQuestion, DisplayMixin, anywidget.AnyWidget):
    """A question below a cell: allow once, allow for this run, or deny with a reason.

    Once it is answered its widget is closed; the question, the answer and its time stay on the page.
    """

    words = traitlets.Dict().tag(sync=True)
    static_name = traitlets.Unicode("").tag(sync=True)
    _esm = script("base/question", "base/approval")
    _css = style("base/approval")

    def __init__(self, words: QuestionWords, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.outcome = WAITING
        self.times = [self._time(), ""]
        super().__init__(words, words=words._asdict(), static_name=self.static_id)
        self.on_msg(self._answered)
        enter_cell(self)

    def open(self) -> None:
        """Open a comm whose messages may come by any shell."""
        super().open()
        keep_off_main_shell(self.comm)

    def _answered(self, _widget: Any, content: Any, _buffers: Any) -> None:
        match content:
            case {"answer": str(answer), "reason": str(reason)}:
                self.take(answer, reason)

    def _time(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1_000).astimezone().isoformat(" ", "seconds")

    def discard(self) -> None:
        """Withdraw the question: the cell that asked it runs again, and nobody can answer any more."""
        self.settle(REPLACED)

    def settle(self, answer: str | None = None) -> None:
        """Use the answer, the first one only, and close the form; without an answer the question is withdrawn."""
        super().settle(answer)
        if self.comm is None:
            return
        given = None if self.answer.cancelled() else self.answer.result()
        words = {"once": "Allowed once.", "always": "Allowed for this run.", None: WITHDRAWN}
        self.outcome = words[given] if given in words else f"Denied: {plain(given, TEXT_LENGTH)}"
        self.times[1] = self._time()
        self.close()

    def to_html(self) -> str:
        """Return the question, the answer and its time as HTML without scripts."""
        asked, answered = self.times
        facts = [
            ("Asked", asked),
            ("Call", self.call),
            ("Why", " ".join(self.why)),
            ("Answer", self.outcome),
            ("Answered", answered),
        ]
        rows = "".join(
            [
                f'<tr><th scope="row">{name}</th><td class="nn-text">{escape(text)}</td></tr>'
                for name, text in facts
                if text
            ]
        )
        inside = f'{heading(self.asked)}<table class="nn-table"><tbody>{rows}</tbody></table>'
        return static_frame(inside, style("base/approval"))

    def to_text(self) -> str:
        """Return the same as plain text."""
        asked, answered = self.times
        when = f", answered {answered}" if answered else ""
        return "\n".join([self.asked, self.call, *self.why, f"{self.outcome} (asked {asked}{when})"])


def refusal(text: str) -> str:
    """Return a typed refusal, changed if it would read as approval."""
    reason = text.strip()
    return REFUSED if not reason or reason in ("once", "always") else reason
