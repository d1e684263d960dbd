"""The channels of one execution tree: their messages and waiting readers.

Waiting readers and senders are served in order of arrival. Delivery happens in the sender's call, so a message is never
handed to a reader that has given up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.redact import safe_logger
from noetic_nb.steps._channel_type import EMPTY, Channel

_log: Final = safe_logger("noetic_nb")
# Milliseconds: a topic stores nothing, so a reader without a limit could wait for ever.
MAX_TOPIC_WAIT_MS: Final = 300_000.0

# Messages are Any throughout: the channel's schema, checked on sending, defines their type.
T = TypeVar("T")
Guard: TypeAlias = Callable[[Awaitable[T]], Awaitable[T]]
"""Awaits an awaitable, but only until the execution is aborted."""


class _State:
    """One channel of one execution tree."""

    def __init__(self, declared: Channel) -> None:
        self.declared = declared
        self.value: Any = EMPTY
        self.messages: deque[Any] = deque()
        self.readers: deque[asyncio.Future[Any]] = deque()
        self.senders: deque[tuple[asyncio.Future[None], Any]] = deque()

    def hand_to_readers(self, value: Any, *, every: bool) -> bool:
        """Hand a message to the readers that are still waiting: to the first one, or to all."""
        handed = False
        while self.readers:
            reader = self.readers.popleft()
            if not reader.done():
                reader.set_result(value)
                handed = True
                if not every:
                    break
        return handed

    def take(self) -> Any:
        """Take the oldest message; the sender that has waited longest moves up."""
        value = self.messages.popleft()
        while self.senders and len(self.messages) < self.declared.room:
            sender, waiting = self.senders.popleft()
            if not sender.done():
                self.messages.append(waiting)
                sender.set_result(None)
        return value


class Channels:
    """The channels of one root execution."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self.closed = False

    def _state(self, channel: Channel) -> _State:
        state = self._states.get(channel.name)
        if state is None:
            state = self._states[channel.name] = _State(channel)
        elif state.declared is not channel and not state.declared.same_as(channel):
            raise NoeticConfigError(
                "CHANNEL_REDECLARED",
                f"Channel {channel.name!r} is in use with another mode, capacity or schema.",
                given=channel.mode,
                hint="Declare it once and reuse it, or choose another name.",
                channel_name=channel.name,
            )
        return state

    def _open(self, channel: Channel) -> _State:
        if self.closed:
            raise closed_error(channel)
        return self._state(channel)

    async def send(self, channel: Channel, value: Any, timeout_ms: float, guard: Guard[Any]) -> None:
        """Send a message; a full queue makes the sender wait."""
        value = channel.checked(value)
        state = self._open(channel)
        if self._delivered(channel, state, value):
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        state.senders.append((place, value))
        await self._wait(channel, place, timeout_ms, guard)

    def _delivered(self, channel: Channel, state: _State, value: Any) -> bool:
        """Deliver or store a message; False if the queue is full."""
        if channel.mode != "queue":
            if channel.mode == "value":
                state.value = value
            state.hand_to_readers(value, every=True)
        elif not state.hand_to_readers(value, every=False):
            if len(state.messages) >= channel.room:
                return False
            state.messages.append(value)
        return True

    async def recv(self, channel: Channel, timeout_ms: float, guard: Guard[Any]) -> Any:
        """Receive a message, waiting for one if necessary."""
        state = self._open(channel)
        if channel.mode == "value" and state.value is not EMPTY:
            return state.value
        if channel.mode == "queue" and state.messages:
            return state.take()
        if channel.mode == "topic" and timeout_ms <= 0:
            _log.warning("A reader of topic %r waits for at most %g ms.", channel.name, MAX_TOPIC_WAIT_MS)
            timeout_ms = MAX_TOPIC_WAIT_MS
        place: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        state.readers.append(place)
        try:
            return await self._wait(channel, place, timeout_ms, guard)
        except BaseException:
            self._pass_on(channel, state, place)
            raise

    def _pass_on(self, channel: Channel, state: _State, place: asyncio.Future[Any]) -> None:
        """Pass the message of a cancelled reader to the next in line, or put it back."""
        if channel.mode != "queue" or not place.done() or place.cancelled() or place.exception() is not None:
            return
        if not state.hand_to_readers(place.result(), every=False):
            state.messages.appendleft(place.result())

    async def _wait(self, channel: Channel, place: asyncio.Future[Any], timeout_ms: float, guard: Guard[Any]) -> Any:
        timer: asyncio.TimerHandle | None = None
        if timeout_ms > 0:

            def expire() -> None:
                if not place.done():
                    place.set_exception(timed_out(channel, timeout_ms))

            timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, expire)
        try:
            return await guard(place)
        finally:
            if timer is not None:
                timer.cancel()
            place.cancel()

    def try_recv(self, channel: Channel) -> Any:
        """Receive a message without waiting; `channel.EMPTY` if there is none."""
        state = self._state(channel)
        if channel.mode == "value":
            return state.value
        return state.take() if channel.mode == "queue" and state.messages else EMPTY

    def put(self, channel: Channel, value: Any) -> None:
        """Send a message from outside, at once; a full queue drops its oldest message."""
        value = channel.checked(value)
        state = self._open(channel)
        if not self._delivered(channel, state, value):
            state.messages.popleft()
            _log.warning("Channel %r was full; its oldest message was dropped.", channel.name)
            state.messages.append(value)

    def close(self) -> None:
        """Accept no more messages, because the execution has ended. Remaining messages can still be received without waiting."""
        self.closed = True


class ChannelHandle:
    """A handle for sending to a channel of a running execution from outside."""

    def __init__(self, channels: Channels, channel: Channel) -> None:
        self._channels = channels
        self.channel = channel

    def send(self, value: Any) -> None:
        """Send a message at once; a full queue drops its oldest message, with a warning."""
        self._channels.put(self.channel, value)

    @classmethod
    def open(cls, channels: Channels | None, channel: Channel) -> ChannelHandle:
        """Return the external handle of an execution's channel; a closed one if the execution has ended."""
        if not channel.external:
            what = f"Channel {channel.name!r} cannot be reached from outside."
            hint = "Declare it with external=True."
            raise NoeticConfigError("INVALID_CHANNEL", what, hint=hint, channel_name=channel.name)
        if channels is None:
            channels = Channels()
            channels.close()
        return cls(channels, channel)

    @property
    def closed(self) -> bool:
        """Whether the execution has ended."""
        return self._channels.closed


def timed_out(channel: Channel, timeout_ms: float) -> NoeticError:
    return NoeticError(
        "channel_timeout",
        f"Nothing happened on channel {channel.name!r} in time",
        given=f"{timeout_ms:g} ms",
        hint="Raise timeout_ms, or check whether the other side is still running.",
        channel_name=channel.name,
        timeout=timeout_ms,
    )


def closed_error(channel: Channel) -> NoeticError:
    what = f"The execution of channel {channel.name!r} has ended"
    hint = "Start another one; its messages are not carried over."
    return NoeticError("channel_closed", what, hint=hint, channel_name=channel.name)
