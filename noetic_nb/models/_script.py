"""The lines of a scripted model: an answer, a tool call, a particular failure.

All three are plain frozen data, checked on creation: a mistake in a script fails where it is written.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from noetic_nb._core.arguments import explained
from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.items import freeze
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._json_text import compact_json
from noetic_nb.models._client import TokenLogprob, Usage, usage_from
from noetic_nb.redact import redact, redact_text


def _wrong(what: str, *, given: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError("INVALID_SCRIPT", what, given=given, hint=hint)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class CallTool:
    """The model calls a tool.

    Parameters
    ----------
    name : str
        Name of the tool. Positional, so that an argument may be called ``name`` too.
    **args
        The arguments, JSON data.

    Raises
    ------
    NoeticConfigError
        ``INVALID_SCRIPT`` if the name is empty or an argument is not JSON data.

    Examples
    --------
    >>> CallTool("rename", name="a", to="b")
    CallTool('rename', name='a', to='b')
    >>> CallTool.raw("rename", '{"name": ').arguments
    '{"name": '
    """

    name: str
    arguments: str
    """The arguments as the JSON text that a model would write."""
    args: Mapping[str, Any] | None = field(compare=False)
    """The arguments as data; None for raw text."""

    @explained(
        positional="Name the arguments: CallTool('f', x=1). A mapping is unpacked: CallTool('f', **args).",
        name="Name the tool: CallTool('f', x=1).",
    )
    def __init__(self, name: str, /, **args: Any) -> None:
        try:
            frozen = freeze(args)
        except ItemValidationError as exc:
            raise _wrong(
                f"An argument of the call of {name!r} is not JSON data: {exc.what}",
                given=args,
                hint="Use text, finite numbers, booleans, None, lists and dicts.",
            ) from exc
        self._fill(name, compact_json(frozen), frozen)

    @classmethod
    def raw(cls, name: str, arguments: str, /) -> CallTool:
        """Make a call whose arguments are exactly this text, JSON or not: models do write broken JSON."""
        if not isinstance(arguments, str):
            raise _wrong("Raw arguments are text.", given=arguments, hint="Pass data as CallTool(name, key=value).")
        call = cls.__new__(cls)
        call._fill(name, arguments, None)
        return call

    def _fill(self, name: str, arguments: str, args: FrozenDict | None) -> None:
        if not isinstance(name, str) or not name:
            raise _wrong("A call names its tool.", given=name, hint="Use CallTool('tool', key=value).")
        # The record is frozen, even for its own code.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", arguments)
        object.__setattr__(self, "args", args)

    def __repr__(self) -> str:
        if self.args is None:
            return f"CallTool.raw({self.name!r}, {redact_text(self.arguments)!r})"
        return f"CallTool({', '.join([repr(self.name), *(f'{k}={v!r}' for k, v in redact(self.args).items())])})"


def _as_usage(value: object) -> Usage | None:
    if value is None or isinstance(value, Usage):
        return value
    if isinstance(value, Mapping):
        with contextlib.suppress(ValueError):
            return usage_from(value)
    hint = "Pass Usage(input_tokens, output_tokens, cached_tokens)."
    raise _wrong("Usage must be counts of tokens.", given=value, hint=hint)


def _as_logprob(value: object) -> TokenLogprob:
    if isinstance(value, TokenLogprob):
        return value
    token, number = value if isinstance(value, tuple | list) and len(value) == 2 else ("", value)
    if isinstance(token, str) and isinstance(number, int | float) and not math.isnan(number) and number <= 0:
        return TokenLogprob(token, float(number))
    hint = "Pass TokenLogprob(token, logprob), ('token', -0.1) or -0.1."
    raise _wrong("A logprob is a number of nats, at most 0, or a pair of token and number.", given=value, hint=hint)


@dataclass(frozen=True, slots=True)
class Reply:
    """The model answers.

    Parameters
    ----------
    text : str, default ""
        Text of the answer.
    tool_calls : sequence of CallTool, keyword-only
        Calls in one response.
    usage : Usage or mapping, optional
        Token usage; estimated from the request and the answer by default.
    logprobs : sequence, optional
        A sequence of `TokenLogprob`, of (token, nats), or of nats alone.
    refusal : str, optional
        Text of a refusal part in the message.
    cost : float, optional
        US dollars.
    reasoning : str, optional
        Text of a reasoning item before the message.
    finish_reason : str, optional
        By default ``"tool_calls"`` or ``"stop"``. ``"length"`` and ``"content_filter"`` mean a truncated answer: its
        items are ``incomplete``, and its tool calls are not run.

    Raises
    ------
    NoeticConfigError
        ``INVALID_SCRIPT`` for any other value. An empty reply is legal: an answer without items.

    Examples
    --------
    >>> Reply("Packed.", usage={"input_tokens": 40, "output_tokens": 2}, logprobs=[-0.5, -0.25]).usage.total_tokens
    42
    """

    text: str = ""
    tool_calls: Sequence[CallTool] = field(default=(), kw_only=True)
    usage: Usage | Mapping[str, int] | None = field(default=None, kw_only=True)
    logprobs: Sequence[Any] | None = field(default=None, kw_only=True)
    refusal: str | None = field(default=None, kw_only=True)
    cost: float | None = field(default=None, kw_only=True)
    reasoning: str | None = field(default=None, kw_only=True)
    finish_reason: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("text", "refusal", "reasoning", "finish_reason"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name == "text"):
                raise _wrong(f"`{name}` of a reply is text.", given=value, hint="Data belongs in the text as JSON.")
        # A single call may be given without a list, as in a line of a script.
        given: Any = self.tool_calls
        calls: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(isinstance(call, CallTool) for call in calls):
            raise _wrong("`tool_calls` holds CallTool.", given=calls, hint="Use CallTool('tool', key=value).")
        if self.cost is not None and not (
            isinstance(self.cost, int | float) and math.isfinite(self.cost) and self.cost >= 0
        ):
            raise _wrong("`cost` must be US dollars, 0 or more.", given=self.cost, hint="Leave it out when unknown.")
        logprobs: Any = () if self.logprobs is None else self.logprobs
        listed = logprobs if isinstance(logprobs, Iterable) else (logprobs,)
        object.__setattr__(self, "tool_calls", calls)
        object.__setattr__(self, "usage", _as_usage(self.usage))
        object.__setattr__(self, "logprobs", tuple(_as_logprob(entry) for entry in listed))


FaultKind: TypeAlias = Literal[
    "rate_limit", "server_error", "timeout", "disconnect", "empty", "refusal", "garbage", "hang"
]
"""How a scripted model can fail."""

FAULT_KINDS: Final[tuple[str, ...]] = get_args(FaultKind)


@dataclass(frozen=True, slots=True)
class Fault:
    """The model fails, exactly as a real endpoint would.

    Parameters
    ----------
    kind : str
        - ``"rate_limit"``: raises ``llm_rate_limit`` with `retry_after_ms`;
        - ``"server_error"``: raises ``llm_failed`` with `status`;
        - ``"timeout"``: raises ``llm_failed`` at once, without waiting;
        - ``"disconnect"``: raises ``llm_failed``; a stream yields `after` deltas first;
        - ``"empty"``: answers without a single item;
        - ``"refusal"``: raises ``llm_refused`` with `message`;
        - ``"garbage"``: answers `value`, which is not a response at all;
        - ``"hang"``: never answers, until the caller gives up; a stream yields `after` deltas first.
    retry_after_ms : float, optional
        The wait requested by the provider.
    status : int, default 500
        HTTP status of a server error.
    after : int, default 0
        Deltas before a stream breaks.
    message : str, optional
        Message of the provider.
    value : object, optional
        The garbage; by default a mapping that is not an item.

    Raises
    ------
    NoeticConfigError
        ``INVALID_SCRIPT`` for an unknown kind, or a field that its kind does not have.

    Examples
    --------
    >>> Fault("rate_limit", retry_after_ms=2_000)
    Fault('rate_limit', retry_after_ms=2000)
    """

    kind: FaultKind
    retry_after_ms: float | None = field(default=None, kw_only=True)
    status: int | None = field(default=None, kw_only=True)
    after: int = field(default=0, kw_only=True)
    message: str | None = field(default=None, kw_only=True)
    value: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in FAULT_KINDS:
            raise _wrong(f"There is no fault {self.kind!r}.", given=self.kind, hint=f"Use {', '.join(FAULT_KINDS)}.")
        owners: dict[str, tuple[str, ...]] = {
            "retry_after_ms": ("rate_limit",),
            "status": ("server_error",),
            "after": ("disconnect", "hang"),
            "message": ("rate_limit", "server_error", "timeout", "disconnect", "refusal"),
            "value": ("garbage",),
        }
        for name, kinds in owners.items():
            # By truth value, so that a default such as `after=0` does not count as given.
            if getattr(self, name) and self.kind not in kinds:
                hint = f"`{name}` belongs to {', '.join(kinds)}."
                raise _wrong(f"A fault of kind {self.kind!r} has no `{name}`.", given=getattr(self, name), hint=hint)
        if self.after < 0:
            raise _wrong("`after` counts deltas.", given=self.after, hint="Use 0 or more.")

    def __repr__(self) -> str:
        given = [f"{n}={redact(getattr(self, n))!r}" for n in ("retry_after_ms", "status", "after", "message", "value")]
        defaults = ("retry_after_ms=None", "status=None", "after=0", "message=None", "value=None")
        return f"Fault({', '.join([repr(self.kind), *(text for text in given if text not in defaults)])})"
