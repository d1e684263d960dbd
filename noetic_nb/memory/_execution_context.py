"""The execution as a hook sees it. Read-only: a layer changes state through its results.

A hook's trace has attributes, and events in chronological order. Both belong to the running call of the hook; outside a
hook, and without a sink, they are discarded at no cost.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from noetic_nb._core.names import finish_reason_of
from noetic_nb._core.shell import Shell
from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.events import EventSink, Where
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items import Item
from noetic_nb.items._registry import ANY_ITEMS
from noetic_nb.models._client import NO_USAGE, ModelResponse, Usage, usage_from
from noetic_nb.redact import redact_text, safe_logger
from noetic_nb.tokens import Tokenizer, estimate_tokens

# A hook may fail at every step of a long run: the innermost frames and the end of the text are the useful parts.
MAX_FRAMES: Final = 12
MAX_STACK_CHARS: Final = 4_000

TraceValue: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Compacted:
    """A part of the context that a layer replaced; the fields are those of `events.ContextCompacted`."""

    items_removed: int
    tokens_before: int
    tokens_after: int
    text: str = ""  # the replacement text
    replaced: tuple[tuple[int, int], ...] = ()


HookNotes: TypeAlias = list[tuple[str, TraceValue] | Mapping[str, Any] | Compacted]
"""Notes of one hook call, in order: an attribute as a (key, value) pair, an event as a mapping."""


# A context variable, because stores run concurrently and each hook must find its own notes.
CURRENT_NOTES: Final[ContextVar[HookNotes | None]] = ContextVar("noetic_nb_hook_notes", default=None)


class Trace:
    """The trace of the running hook: ``ctx.trace``. Outside a hook it is discarded."""

    __slots__ = ()

    def set_attribute(self, key: str, value: TraceValue) -> None:
        """Note a fact about this call; a later value replaces an earlier one. Only text, numbers and booleans (`TypeError`)."""
        _check(key, value)
        notes = CURRENT_NOTES.get()
        if notes is not None:
            notes.append((key, value))

    def add_event(self, name: str, attributes: Mapping[str, TraceValue] | None = None) -> None:
        """Note an event. Raises `TypeError` for an attribute that is not text, a number or a boolean."""
        given = dict(attributes or {})
        for key, value in given.items():
            _check(key, value)
        notes = CURRENT_NOTES.get()
        if notes is not None:
            notes.append({"name": name, "attributes": given})


TRACE: Final = Trace()


def _check(key: str, value: object) -> None:
    if not isinstance(value, str | int | float | bool):
        raise TypeError(f"A trace can contain text, numbers and booleans, not {type(value).__name__} under {key!r}.")


def compacted(note: Compacted) -> None:
    """Note that the layer of the running hook has replaced a part of the context."""
    notes = CURRENT_NOTES.get()
    if notes is not None:
        notes.append(note)


def noted(notes: HookNotes) -> tuple[dict[str, TraceValue] | None, tuple[Mapping[str, Any], ...]]:
    """Return the attributes among the notes, or None if there are none, and the events."""
    attributes = dict([note for note in notes if isinstance(note, tuple)])
    return attributes or None, tuple([note for note in notes if isinstance(note, Mapping)])


def error_facts(error: BaseException) -> tuple[str, str, str]:
    """Return the type, message and traceback of an error, without secrets."""
    stack = "".join(traceback.format_exception(error, limit=-MAX_FRAMES))
    # Cut twice: a secret halved by the first cut cannot be detected, and is removed by the second.
    stack = redact_text(stack[-2 * MAX_STACK_CHARS :])[-MAX_STACK_CHARS:]
    return type(error).__name__, redact_text(str(error)), stack


Diagnostic: TypeAlias = Callable[[str, str, BaseException], None]
"""Called with an error that does not fail the run: ``diagnostic(layer_id, hook, error)``."""

_log: Final = safe_logger("noetic_nb")


def log_diagnostic(layer_id: str, hook: str, error: BaseException) -> None:
    """Log a warning: the default diagnostic."""
    _log.warning("Layer %r, hook %r: %s: %s", layer_id, hook, type(error).__name__, error)


@dataclass(frozen=True, slots=True)
class HookModelRequest:
    """A layer's request to a model: the reduced form for hooks and judges. Fields can also be read as keys."""

    model: str
    items: Sequence[Item]
    instructions: str | None = None
    purpose: Literal["judge", "layer", "summary"] = "layer"

    def __getitem__(self, key: str) -> Any:
        if key in ("model", "items", "instructions"):
            return getattr(self, key)
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a field, or a default if there is no such field."""
        return getattr(self, key) if key in ("model", "items", "instructions") else default


CallModel: TypeAlias = Callable[[HookModelRequest], Awaitable[Any]]
"""Calls a model for a layer; returns a `ModelResponse` or its wire form."""


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class ExecutionContext:
    """The execution as hooks see it.

    Parameters
    ----------
    execution_id, thread_id : str
        Ids of the execution and its thread.
    resource_id : str, optional
        The person, tenant or project.
    depth : int
        0 for a root execution, one more for each spawn or fork.
    step_number : int
        Steps dispatched so far.
    call_model : callable, optional
        ``await call_model(HookModelRequest(...))``; None if no model is configured.
    token_usage : Usage
        Tokens spent so far in this execution.
    cost : float
        US dollars spent so far.
    tokenize : callable
        Function from a text to its number of tokens.
    read_layer_state : callable
        Returns a copy of the current state of another layer, given its id; None if it has none.
    turn : int
        Number of the turn in its thread, starting at 1; 0 outside turns.
    clock, ids : Clock, Ids
        Sources of time and of unique ids.
    diagnostic : callable
        Called with errors that do not fail the run, such as those of background work.
    warn : callable
        Called with mistakes that are not errors: they appear in the reply's warnings, but not in the diagnostic.
    sink : EventSink, optional
        Sink in which a layer may record its actions.
    fs : fsspec filesystem, folder or URL, optional
        The agent's files: ``fs.cat_file("a.md")``, ``fs.ls("")``; None if none was configured.
    shell : Shell, optional
        Runs commands: ``await shell.run("ls")``; None if none was configured.
    home : object
        The storage of the harness. Data that a layer keeps in the process must be separate for each, as other agents
        may have threads with the same names.
    past_calls : callable
        Returns the tool calls of the whole execution tree so far, as `PastCall`.
    known_tools : callable
        Returns the JSON Schemas of the tools that may be offered, by name, as `known_tools(is_over)`; None if functions
        choose them and none has been offered yet. At the end of an execution, with `is_over`, the offered tools count.

    Examples
    --------
    >>> ExecutionContext(execution_id="e1", thread_id="t1").tokenize("eight ch")
    2
    """

    execution_id: str
    thread_id: str
    resource_id: str | None = None
    depth: int = 0
    step_number: int = 0
    call_model: CallModel | None = None
    token_usage: Usage = NO_USAGE
    cost: float = 0.0
    tokenize: Tokenizer = estimate_tokens
    read_layer_state: Callable[[str], Any] = field(default=_nothing)
    turn: int = 0
    clock: Clock = SYSTEM_CLOCK
    ids: Ids = SYSTEM_IDS
    diagnostic: Diagnostic = log_diagnostic
    warn: Diagnostic = field(default=_nothing)
    sink: EventSink | None = None
    fs: Any = None  # of a library without types
    shell: Shell | None = None
    home: object = field(default=None, repr=False)
    past_calls: Callable[[], Sequence[Any]] = tuple  # of PastCall, which imports this class
    known_tools: Callable[[bool], Mapping[str, Mapping[str, Any] | None] | None] = field(default=_nothing)

    def __post_init__(self) -> None:
        """Convert a folder or URL, which a test may pass, to a filesystem."""
        if self.fs is not None and isinstance(self.fs, str | os.PathLike):
            from noetic_nb._core.filesystem import as_filesystem  # imports fsspec, which most agents do not need

            object.__setattr__(self, "fs", as_filesystem(self.fs))

    @property
    def trace(self) -> Trace:
        """The trace of a hook: ``trace.set_attribute(key, value)``, ``trace.add_event(name, attributes)``."""
        return TRACE

    # Cached on the object: each hook needs several.
    @cached_property
    def where(self) -> Where:
        """The place of this execution in a run's events."""
        return Where(self.thread_id, self.execution_id, self.turn, self.depth)


def as_response(value: Any) -> ModelResponse:
    """Read a model response from a record or its wire form; raises `TypeError` if it has no items."""
    if isinstance(value, ModelResponse):
        return value
    if not isinstance(value, Mapping):
        # On a mapping, `items` is a method; on a record, the items themselves.
        found = getattr(value, "items", None)
        if found is None or callable(found):
            raise TypeError(f"A model response needs items and usage, not {type(value).__name__}: {value!r}.")
        value = {"items": found} | {name: getattr(value, name, None) for name in ("usage", "cost", "finish_reason")}
    items = value.get("items")
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise TypeError(f"The items of a model response must be a list, not {type(items).__name__}: {items!r}.")
    usage = value.get("usage") or {}
    if not isinstance(usage, Usage):
        usage = usage_from(usage)
    reason = finish_reason_of(value.get("finishReason", value.get("finish_reason")))
    parsed = tuple([ANY_ITEMS.parse(item) for item in items])
    return ModelResponse(parsed, usage, value.get("cost"), finish_reason=reason)
