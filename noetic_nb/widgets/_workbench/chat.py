"""Actions on a harness from a page: send, stop, grade or correct a turn, and answer a question of an `Approval`.

Turns run on the event loop of the cell that created the workbench, where the harness's models and tools live; page
messages arrive on another thread. The harness orders the turns: a message sent during a turn waits for the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from copy import copy
from typing import Any, Final

from noetic_nb._core.nested_loop import running_loop
from noetic_nb.errors import NoeticConfigError
from noetic_nb.redact import safe_logger
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain
from noetic_nb.runtime._context.reply import AgentReply
from noetic_nb.runtime._harness import AgentHarness
from noetic_nb.widgets._approval import OpenQuestion, QuestionWords

CLOSED: Final = "The question was withdrawn: its workbench was closed."


class _Asked(OpenQuestion):
    """A question in a workbench, by its number; `done` is called when it is settled."""

    def __init__(self, number: int, words: QuestionWords, done: Callable[[_Asked], object]) -> None:
        super().__init__(words)
        self.number, self._done = number, done

    def settle(self, answer: str | None = None) -> None:
        """Use the answer, the first one only; without one the question is withdrawn."""
        super().settle(answer)
        self._done(self)


class Questions:
    """The open questions of a workbench, oldest first; `changed` is called when one is added or removed."""

    def __init__(self, changed: Callable[[], object]) -> None:
        self._changed = changed
        self._count = 0
        self._open: dict[int, _Asked] = {}

    def ask(self, words: QuestionWords) -> _Asked:
        """Add a question."""
        self._count += 1
        asked = _Asked(self._count, words, self._settled)
        self._open[asked.number] = asked
        self._changed()
        return asked

    def take(self, number: int, answer: str, reason: str = "") -> bool:
        """Handle a page's answer: ``"once"``, ``"always"`` or ``"deny"``; returns False if the question is no longer open."""
        asked = self._open.get(number)
        if asked is None:
            return False
        asked.take(answer, reason)
        return True

    def withdraw(self) -> None:
        """Withdraw all questions, which denies them: they are no longer visible."""
        for asked in tuple(self._open.values()):
            asked.take("deny", CLOSED)

    def data(self) -> list[dict[str, Any]]:
        """Return the open questions for a page."""
        return [
            {"key": asked.number, "asked": asked.asked, "call": asked.call, "why": list(asked.why)}
            for asked in self._open.values()
        ]

    def _settled(self, asked: _Asked) -> None:
        if self._open.pop(asked.number, None) is not None:
            self._changed()


log = safe_logger(__name__)

NO_HARNESS: Final = "This is a recording: there is no agent here to talk to. Open the workbench on a harness for that."
NOBODY_LISTENS: Final = (
    "No layer of this agent takes feedback: a grade is recorded and changes nothing, and a correction would be lost. "
    "Add nn.regulation(...) to its memory."
)
STOPPED: Final = "stopped in the workbench"


class Conversation:
    """One harness and one of its threads, as used by a page.

    Parameters
    ----------
    harness : AgentHarness
        The harness to talk to.
    thread_id : str
        The thread of the conversation.
    changed : callable
        Called when `data` has changed.

    Examples
    --------
    >>> import noetic_nb as nn
    >>> harness = nn.AgentHarness(nn.AgentConfig(name="echo", step=nn.react(model="m")), model=nn.ScriptedModel(["Hello!"]))
    >>> conversation = Conversation(harness, "default", lambda: None)
    >>> asyncio.run(conversation.say("Hi")).text
    'Hello!'
    """

    def __init__(self, harness: AgentHarness, thread_id: str, changed: Callable[[], object]) -> None:
        self.harness = harness
        self.thread_id = thread_id
        self._changed = changed
        # Messages with their threads.
        self._waiting: list[tuple[str, str]] = []
        self._notice = ("plain", "")
        self._loop = running_loop()
        listens = any(layer.hooks.on_feedback is not None for layer in harness.config.memory)
        self.deaf = "" if listens else NOBODY_LISTENS

    def data(self) -> dict[str, Any]:
        return {
            "agent": plain(self.harness.config.name),
            "thread": plain(self.thread_id),
            "waiting": [plain(text, TEXT_LENGTH) for thread_id, text in self._waiting if thread_id == self.thread_id],
            "notice": list(self._notice),
            "deaf": self.deaf,
        }

    def in_thread(self, thread_id: str) -> Conversation:
        """Return the conversation with the same agent in another thread; running work of this one continues."""
        other = copy(self)
        other.thread_id, other._notice = thread_id, ("plain", "")
        return other

    def turn_started(self, thread_id: str) -> None:
        """Note that a turn began: it includes the waiting messages."""
        if any(waiting == thread_id for waiting, _ in self._waiting):
            self._waiting[:] = [each for each in self._waiting if each[0] != thread_id]
            self._changed()

    def notify(self, mood: str, text: str) -> None:
        """Show a message; `mood` is ``good``, ``bad`` or ``plain``."""
        self._notice = (mood, text)
        self._changed()

    async def say(self, text: str) -> AgentReply:
        """Send a message and wait for its reply; raises the errors of `AgentHarness.execute`."""
        waits = self.thread_id, text
        self._waiting.append(waits)
        self.notify("plain", "")
        try:
            return await self.harness.execute(text, thread_id=self.thread_id)
        finally:
            if waits in self._waiting:
                self._waiting.remove(waits)
                self._changed()

    async def stop(self) -> bool:
        """Cancel the running turn; waiting messages are part of the next turn. Returns False if none was running."""
        stopped = await self.harness.cancel(self.thread_id, STOPPED)
        self.notify("plain", "Stopping: the turn ends at its next step." if stopped else "No turn is running.")
        return stopped

    async def grade(self, quality: float) -> None:
        """Grade the last reply, 0 (useless) to 1 (perfect)."""
        await self.harness.feedback(self.thread_id, quality=quality)
        what = "recorded; no layer of this agent takes it" if self.deaf else "given to the regulator"
        self.notify("good", f"Grade {quality:g} {what}.")

    async def correct(self, text: str) -> None:
        """Correct the last reply.

        Raises `NoeticConfigError` ``NO_FEEDBACK`` if no layer accepts it.
        """
        if self.deaf:
            raise NoeticConfigError("NO_FEEDBACK", self.deaf, given=text[:80], hint="Write it in the next message.")
        await self.harness.correct(self.thread_id, text)
        self.notify("good", "Correction given to the regulator.")

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start work requested by a page; errors are shown.

        Raises `NoeticConfigError` ``NO_LOOP``.
        """
        if self._loop is None or self._loop.is_closed():
            work.close()
            raise NoeticConfigError(
                "NO_LOOP", "The agent has no running loop here.", hint="Make the workbench in a cell of a notebook."
            )
        asyncio.run_coroutine_threadsafe(self._shown(work), self._loop)

    async def _shown(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            self.notify("bad", "It was cancelled.")
            raise
        except Exception as exc:
            log.info("A request from a page to the harness failed.", exc_info=True)
            self.notify("bad", plain(exc, TEXT_LENGTH))
