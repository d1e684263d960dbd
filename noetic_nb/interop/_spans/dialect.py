"""The fields that a dialect of spans can read, and the messages sent to a model, of which only new ones are parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

from noetic_nb.interop._spans.span_messages import ROLES, Result, SpanMessage, parsed, read_messages
from noetic_nb.interop._spans.span_record import Span
from noetic_nb.items._messages.message import count, money

_ANSWERS: Final = frozenset([name for name, role in ROLES.items() if role == "assistant"])


class History:
    """The messages sent to a model: a conversation that grows with every call, read from its end as far as needed."""

    __slots__ = ("_raw", "_read", "_tail", "_text")

    def __init__(
        self, read: list[SpanMessage] | None = None, raw: list[Any] | None = None, text: str | None = None
    ) -> None:
        self._read, self._raw, self._text = read, raw, text
        self._tail: list[SpanMessage] | None = None

    def grown(self, text: str) -> History | None:
        """Return the history of a text that begins with this one, parsing only the rest; None for any other text."""
        known, raw = self._text, self._raw
        if known is None or raw is None or not text.startswith(known[:-1]):
            return None
        rest = text[len(known) - 1 :]
        if rest == "]":
            return self
        if rest[:1] != "," or text[-1] != "]":
            return None
        new = parsed(f"[{rest[1:]}")
        return History(raw=raw + new, text=text) if _is_plain(new) else None

    @property
    def messages(self) -> list[SpanMessage]:
        if self._read is None:
            self._read = read_messages(self._raw) or []
        return self._read

    def _new(self) -> list[Any] | None:
        """Return the unparsed messages after the last answer; None if unknown."""
        raw = self._raw
        if self._read is not None or raw is None:
            return None
        start = len(raw)
        while start and raw[start - 1]["role"] not in _ANSWERS:
            start -= 1
        return raw[start:]

    @property
    def tail(self) -> list[SpanMessage]:
        """The new messages of the call: all after the last answer."""
        if self._tail is None:
            new = self._new()
            if new is None:
                read = self.messages
                start = len(read)
                while start and read[start - 1].role != "assistant":
                    start -= 1
                self._tail = read[start:]
            else:
                self._tail = read_messages(new) or []
        return self._tail

    @property
    def results(self) -> list[Result]:
        """The tool results among the new messages."""
        return [block for msg in self.tail for block in msg.blocks if type(block) is Result]

    @property
    def asked(self) -> list[SpanMessage]:
        """The user's messages among the new ones."""
        return [msg for msg in self.tail if msg.role == "user" and msg.text]


def read_history(value: Any, before: History | None = None) -> History | None:
    """Read the messages sent to a model, None for none; if they begin with those sent `before`, parse only the rest."""
    if before is not None and type(value) is str and (grown := before.grown(value)) is not None:
        return grown
    found = parsed(value)
    if _is_plain(found):
        is_list = type(value) is str and value[0] == "[" and value[-1] == "]"
        return History(raw=found, text=value if is_list else None)
    read = read_messages(found)
    return None if read is None else History(read)


def _is_plain(value: Any) -> bool:
    """Tell whether messages are mappings with a role, as most are: their roles can then be checked without parsing."""
    if not isinstance(value, list):
        return False
    for msg in value:
        if type(msg) is not dict or type(msg.get("role")) is not str:
            return False
    return bool(value)


Kind: TypeAlias = Literal["model", "tool", "agent", "memory", "plan", "check", "other"]


class Dialect:
    """The way in which one instrumentation writes an agent's calls on spans.

    Each field is read by the method of its name, or is the first text among the attributes in `texts`. Fields are
    ``kind`` (`Kind`; "other" for structure around calls), ``conversation``, ``system`` (a prompt sent apart),
    ``inputs`` and ``outputs`` (of a model or an agent), ``tool_name``, ``call_id``, ``tool_input``, ``tool_output``,
    ``agent_name``, ``model``, ``usage``, ``cost`` (US dollars), ``params``, and ``finish`` (the finish reason).
    """

    texts: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    tokens: ClassVar[Mapping[str, Sequence[str]]] = {}
    costs: tuple[str, ...] = ()

    def usage(self, span: Span) -> Mapping[str, int] | None:
        """Return a call's tokens by the names of `models.Usage`; for an agent its totals."""
        return counted(span, self.tokens)

    def cost(self, span: Span) -> float | None:
        return amount(span, *self.costs)


def counted(span: Span, numbers: Mapping[str, Sequence[str]]) -> dict[str, int] | None:
    """Return the known token counts, each from its first attribute that is present; None if all are unknown."""
    about = span.attributes
    found: dict[str, int] = {}
    for number, names in numbers.items():
        for name in names:
            if name in about and (tokens := count(about[name])) is not None:
                found[number] = tokens
                break
    return found or None


def amount(span: Span, *names: str) -> float | None:
    """Return the first of some attributes that is an amount of money."""
    about = span.attributes
    for name in names:
        if name in about and (found := money(about[name])) is not None:
            return found
    return None
