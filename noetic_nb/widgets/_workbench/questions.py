"""Questions of an `Approval` that are asked inside a workbench instead of below the cell."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from noetic_nb.widgets._approval import QuestionWords, refusal

CLOSED: Final = "The question was withdrawn: its workbench was closed."


class OpenQuestion:
    """One question that waits for its answer; the same to an `Approval` as its form below a cell."""

    def __init__(self, number: int, words: QuestionWords, done: Callable[[OpenQuestion], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = done
        self.number = number
        self.asked, self.call, self.why = words
        self.answer: asyncio.Future[str] = self._loop.create_future()

    def take(self, answer: str) -> None:
        """Take an answer from any thread."""
        # Where the loop has ended nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.settle, answer)

    def settle(self, answer: str | None = None) -> None:
        """Take the answer, the first one only; without one the question is withdrawn."""
        if not self.answer.done():
            if answer is None:  # the turn was cancelled, or the kernel interrupted
                self.answer.cancel()
            else:
                self.answer.set_result(answer)
        self._done(self)


class Questions:
    """The open questions of a workbench, the oldest first; `changed` is called when one comes or goes."""

    def __init__(self, changed: Callable[[], object]) -> None:
        self._changed = changed
        self._count = 0
        self._open: dict[int, OpenQuestion] = {}

    def ask(self, words: QuestionWords) -> OpenQuestion:
        """Ask one more."""
        self._count += 1
        asked = OpenQuestion(self._count, words, self._settled)
        self._open[asked.number] = asked
        self._changed()
        return asked

    def take(self, number: int, answer: str, reason: str = "") -> bool:
        """Take an answer of a page: ``"once"``, ``"always"`` or ``"deny"``; False where the question is open no more."""
        asked = self._open.get(number)
        if asked is None:
            return False
        asked.take(answer if answer in ("once", "always") else refusal(reason))
        return True

    def withdraw(self) -> None:
        """Answer all with no: nobody can see them any more."""
        for asked in tuple(self._open.values()):
            asked.take(CLOSED)

    def data(self) -> list[dict[str, Any]]:
        """Return the open questions as a page shows them."""
        return [
            {"id": asked.number, "asked": asked.asked, "call": asked.call, "why": list(asked.why)}
            for asked in self._open.values()
        ]

    def _settled(self, asked: OpenQuestion) -> None:
        if self._open.pop(asked.number, None) is not None:
            self._changed()
