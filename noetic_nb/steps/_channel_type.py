"""Channels: messages between the parts of one execution, and from outside into it.

A channel here is only a declaration. Its contents belong to a root execution, so two executions never share messages.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from pydantic import Field, field_validator

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.steps._base import Frozen, InstanceField
from noetic_nb.steps._schema import OutputSchema, as_schema

# Messages and milliseconds; docs/decisions/limits.md, "Steps".
DEFAULT_CAPACITY: Final = 1_000
DEFAULT_TIMEOUT_MS: Final = 30_000.0


class _Empty:
    """Nothing to read; not None, which may be a message."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "channel.EMPTY"

    def __bool__(self) -> bool:
        return False


EMPTY: Final = _Empty()


class Channel(Frozen):
    """A declared channel.

    Raises
    ------
    NoeticConfigError
        ``INVALID_CHANNEL``.
    """

    name: str = Field(min_length=1)
    mode: Literal["value", "queue", "topic"] = "queue"
    capacity: int | None = None
    external: bool = False
    payload: InstanceField[OutputSchema] | None = None
    """The schema of its messages, or None for any."""

    error_code: ClassVar[str] = "INVALID_CHANNEL"

    def model_post_init(self, context: object) -> None:
        """Check the capacity."""
        if self.capacity is not None and (self.mode != "queue" or self.capacity < 1):
            what = f"Channel {self.name!r} cannot have this capacity."
            hint = "Only queues have one, of at least 1."
            raise NoeticConfigError("INVALID_CHANNEL", what, given=self.capacity, hint=hint)

    @field_validator("payload", mode="before")
    @classmethod
    def _payload_is_schema(cls, value: Any) -> Any:
        return as_schema(value)

    @property
    def room(self) -> int:
        """The number of messages in a queue before a sender waits."""
        return DEFAULT_CAPACITY if self.capacity is None else self.capacity

    def checked(self, value: Any) -> Any:
        """Return a message that matches the schema.

        Raises
        ------
        NoeticError
            ``step_failed`` with ``reason`` ``"invalid_payload"``.
        """
        if self.payload is None:
            return value
        try:
            # Strict, so that readers get the message as it was sent: "3" is not converted to 3.
            return self.payload.check(value, strict=True)
        except ValueError as exc:
            raise NoeticError(
                "step_failed",
                f"A message does not fit channel {self.name!r}: {exc}",
                given=value,
                hint="Send a message that fits its schema.",
                step_id=self.name,
                channel_name=self.name,
                reason="invalid_payload",
                retries_exhausted=False,
            ) from exc

    def same_as(self, other: Channel) -> bool:
        """Tell whether two declarations with one name mean the same channel."""
        # Compared by schema: a declaration is often made twice, with different objects for the same type.
        mine, others = (None if c.payload is None else c.payload.json_schema for c in (self, other))
        return (self.mode, self.room, mine) == (other.mode, other.room, others)


class _ChannelBuilder:
    """Declares channels; reading an empty one without waiting returns `EMPTY`."""

    EMPTY: Final = EMPTY

    def __call__(
        self,
        name: str,
        *,
        schema: Any = None,
        mode: Literal["value", "queue", "topic"] = "queue",
        capacity: int | None = None,
        external: bool = False,
    ) -> Channel:
        """Declare a channel.

        Parameters
        ----------
        name : str
            Unique within an execution.
        schema : type, optional
            Type of its messages; checked on sending.
        mode : {"value", "queue", "topic"}
            The latest value for everyone; each message for one reader; each message for all current waiting readers.
        capacity : int, optional
            For a queue, default 1 000: a full queue makes a sender wait; a sender outside drops its oldest message.
        external : bool, default False
            Whether code outside may write to it, through ``harness.channel_handle``.

        Raises
        ------
        NoeticConfigError
            ``INVALID_CHANNEL``.

        Examples
        --------
        >>> channel("orders", schema=int, capacity=2).room
        2
        """
        return Channel(name=name, payload=schema, mode=mode, capacity=capacity, external=external)


channel: Final = _ChannelBuilder()
