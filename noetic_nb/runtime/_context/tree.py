"""The state that a root execution shares with all its descendants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from noetic_nb._core.worker_threads import Worker
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._enforcement import CallHistory
from noetic_nb.models._client import FinishReason, ModelDelta
from noetic_nb.runtime._config.limits import Limits
from noetic_nb.runtime._context.channels import Channels
from noetic_nb.runtime._context.protocols import FollowedAnswer, Inbox
from noetic_nb.runtime._context.reply import ReplyWarning


class Tree:
    """The state that a root execution shares with all its descendants."""

    __slots__ = (
        "_channels", "_worker", "calls", "cut", "ended", "finish_reason", "follow", "inbox", "limits", "missing", "occurrences",
        "on_delta", "steps", "warnings",
    )  # fmt: skip

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits
        self._channels: Channels | None = None
        self._worker: Worker | None = None
        self.ended = False
        self.steps = 0
        self.calls = CallHistory()
        # Tasks that an abort cut short and that have not noticed yet.
        self.cut: frozenset[asyncio.Task[Any]] = frozenset()
        # Messages that arrived while the agent was working, taken in before its next model call.
        self.inbox: Inbox | None = None
        self.occurrences: dict[str, int] = {}
        # Gets the pieces of every answer; those that rules review, when the answer stands.
        self.on_delta: Callable[[ModelDelta], None] | None = None
        # Begins to follow an answer for whoever streams the turn. Any, as `Context` stands above.
        self.follow: Callable[[Any, bool], FollowedAnswer] | None = None
        # Why the last answer of any of its executions ended.
        self.finish_reason: FinishReason | None = None
        # The error of a judge whose model does not exist, to be raised at the end where nobody waited for the judge.
        self.missing: NoeticConfigError | None = None
        self.warnings: tuple[ReplyWarning, ...] = ()

    @property
    def channels(self) -> Channels:
        """The channels of the tree, made when the first is used."""
        if self._channels is None:
            self._channels = Channels()
            self._channels.closed = self.ended
        return self._channels

    @property
    def worker(self) -> Worker:
        """The thread in which tools run that may block, begun with the first of them."""
        if self._worker is None:
            self._worker = Worker("noetic_nb tools")
        return self._worker

    def end(self) -> None:
        """Take no more messages: the root execution has ended."""
        self.ended = True
        if self._channels is not None:
            self._channels.close()
        if self._worker is not None:
            self._worker.end()
