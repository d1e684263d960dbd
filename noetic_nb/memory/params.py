"""The parameters of each hook: one frozen record per hook.

State is passed by reference, except to `store`, which gets a copy; state changes through results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from noetic_nb._core.cards import with_card
from noetic_nb.items import Item
from noetic_nb.items._bound_values import copied
from noetic_nb.items._build import output_texts, response_text
from noetic_nb.items._frozen import own_copy
from noetic_nb.items._origins import MODEL, Origin, least_trusted, members
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._steering_decision import ALLOW, SteeringDecision
from noetic_nb.models._client import ModelResponse, TokenLogprob, Usage
from noetic_nb.storage import ScopedStorage

if TYPE_CHECKING:
    from noetic_nb.items._origin_index import Provenance

__all__ = [
    "AfterModelCallParams",
    "BeforeToolCallParams",
    "CompleteParams",
    "DisposeParams",
    "ExecutionOutcome",
    "Feedback",
    "HookFailure",
    "InitParams",
    "ModelOutcome",
    "OnItemAppendParams",
    "PastCall",
    "ProjectHistoryParams",
    "RecallParams",
    "ReturnParams",
    "SpawnParams",
    "StoreParams",
    "ToolOutcome",
]

R = TypeVar("R")

ExecutionOutcome: TypeAlias = Literal["success", "failure", "aborted"]


# Common mistakes in place of an attribute.
_ARGUMENTS: Final = dict.fromkeys(("args", "arguments", "input", "params", "kwargs"), "call.tool_args")
_OF_CALL: Final = (
    _ARGUMENTS
    | dict.fromkeys(("name", "tool", "function", "tool_call"), "call.tool_name")
    | {"id": "call.call_id", "calls": "call.history"}
)
_OF_PAST: Final = {
    "tool_args": "past.args",
    "arguments": "past.args",
    "tool_name": "past.name",
    "ok": "past.status == 'ok'",
}
_OF_HOOK: Final = (
    dict.fromkeys(("messages", "history", "items", "conversation"), "p.log")
    | dict.fromkeys(("text", "message", "user"), "p.query")
    | dict.fromkeys(("max_tokens", "tokens"), "p.budget")
    | {name: f"p.ctx.{name}" for name in ("thread_id", "resource_id", "tokenize")}
)
_OF_RESPONSE: Final = dict.fromkeys(("content", "message", "output", "answer"), "response.text") | {
    "usage": "response.response.usage",
    "tool_calls": "response.items",
}


def _no_attribute(params: tuple[Any, ...], what: str, name: str, meant: Mapping[str, str]) -> AttributeError:
    """Return the error of a rule or hook that reads a field missing from its parameters."""
    if name.startswith("__"):  # Python probes these names and handles a missing one
        return AttributeError(name)
    known = [each for each in dir(type(params)) if not each.startswith("_") and each not in ("count", "index")]
    from noetic_nb._core.arguments import closest  # only needed for unknown names

    hint = f"Write {meant[name]}." if name in meant else closest(name, known)
    text = f"{what} has no attribute {name!r}. {hint} There are {', '.join(known)}."
    return AttributeError(" ".join(text.split()), name=name, obj=params)


def _with_hints(record: type[R]) -> type[R]:
    """Explain attributes that the parameters of a memory hook do not have."""

    def missing(self: tuple[Any, ...], name: str) -> Any:
        known = {each: use for each, use in _OF_HOOK.items() if hasattr(record, use.split(".")[1])}
        raise _no_attribute(self, "The hook's input", name, known)

    # Set here, not in the class: type checkers should still refuse unknown attributes.
    record.__getattr__ = missing  # type: ignore[attr-defined]
    return record


@with_card
@_with_hints
class InitParams(NamedTuple):
    """An execution begins: load the state."""

    storage: ScopedStorage
    scope_key: str
    ctx: ExecutionContext


@with_card
@_with_hints
class RecallParams(NamedTuple):
    """The model is about to be called: offer something for the prompt, in at most `budget` tokens."""

    log: Sequence[Item]
    query: str
    ctx: ExecutionContext
    state: Any
    budget: float


@with_card
@_with_hints
class StoreParams(NamedTuple):
    """The model has responded: keep the important facts. `state` is a copy, because stores run concurrently."""

    new_items: tuple[Item, ...]
    log: Sequence[Item]
    response: ModelResponse
    ctx: ExecutionContext
    state: Any


@with_card
@_with_hints
class SpawnParams(NamedTuple):
    """A child execution is created: choose its initial state."""

    parent_state: Any
    child_ctx: ExecutionContext


@with_card
@_with_hints
class ReturnParams(NamedTuple):
    """A child execution has ended: merge its knowledge, and pass on its result."""

    child_state: Any
    child_log: Sequence[Item]
    parent_state: Any
    result: Any
    child_ctx: ExecutionContext


@with_card
@_with_hints
class CompleteParams(NamedTuple):
    """The execution ends."""

    log: Sequence[Item]
    ctx: ExecutionContext
    state: Any
    outcome: ExecutionOutcome


@with_card
@_with_hints
class DisposeParams(NamedTuple):
    """Release the resources of the layer."""

    state: Any
    ctx: ExecutionContext


@with_card
class _PastCall(NamedTuple):
    name: str
    args: Mapping[str, Any]
    call_id: str
    status: str | None = None
    output: str | None = None
    execution_id: str = ""


@with_card
class PastCall(_PastCall):
    """A tool call of an execution tree and how it ended; `status` is ``"pending"`` from its decision until it has ended.

    `args` are the tool's arguments; each access returns a copy, as for the call being judged.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise _no_attribute(self, "A past call", name, _OF_PAST)

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments of the tool, as JSON data."""
        found: Mapping[str, Any] = own_copy(self[1])
        return found


@with_card
class _BeforeToolCall(NamedTuple):
    tool_name: str
    tool_args: Mapping[str, Any]
    ctx: ExecutionContext
    state: Any
    call_id: str = ""
    history: Sequence[PastCall] = ()
    depth: int = 0
    so_far: SteeringDecision = ALLOW
    raw_args: Any = None
    provenance: Callable[[], Provenance] | None = None
    tool_values: Mapping[str, Any] | None = None


@with_card
class BeforeToolCallParams(_BeforeToolCall):
    """A tool is about to be called: `tool_name` is canonical, `history` has the calls of the whole tree so far.

    Attributes
    ----------
    tool_args : mapping
        The tool's arguments as JSON data: validated, coerced, with defaults, by the keys of its schema.
    raw_args : object
        The model's arguments as parsed JSON; None if unknown, as for most imported runs.
    so_far : SteeringDecision
        The combined decision of the layers before this one.
    provenance : callable or None
        Reads the texts sent so far when a rule asks for an origin.
    tool_values : mapping
        The same arguments as Python values, by parameter: models, dates, secrets that the JSON data masks. For a
        recorded call, or if only the JSON data is known, the JSON data.

    Notes
    -----
    Each access to the arguments returns a copy: a rule that modifies it affects nothing else.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise _no_attribute(self, "A tool call", name, _OF_CALL)

    @property
    def tool_args(self) -> Mapping[str, Any]:
        """The tool's arguments as JSON data."""
        found: Mapping[str, Any] = own_copy(self[1])
        return found

    @property
    def raw_args(self) -> Any:
        """The model's arguments as parsed JSON; None if unknown."""
        return own_copy(self[8])

    @property
    def tool_values(self) -> Mapping[str, Any]:
        """The tool's arguments as Python values."""
        return self.tool_args if self[10] is None else copied(self[10])

    def origin(self, value: Any) -> Origin:
        """Return the first author of a value; for a list, that of its least trusted member.

        Parameters
        ----------
        value : JSON data, number or date
            Usually from `tool_args`. Letters are compared without case, other characters exactly, numbers and dates by value.

        Returns
        -------
        Origin
            ``kind`` is ``"user"``, ``"system"``, ``"layer"``, ``"tool"`` or ``"model"``, from the most to the least trusted;
            ``name`` is that of a tool or layer; ``item`` the id of the item; ``field`` the key next to the value in a tool's
            result; ``chain`` has every author if a memory stored it, first to last; the least trusted of them counts.

        References
        ----------
        .. [1] docs/behaviour/steering.md, "Where a value comes from".
        """
        return least_trusted(self.origins(value))

    def origins(self, value: Any) -> tuple[Origin, ...]:
        """Return the origins of all members of a list or mapping, in order; for a text or number, one origin.

        The keys of a mapping are members too, except for the properties of the tool's schema.
        """
        if self.provenance is None:  # the sent texts are unknown
            return tuple([MODEL for _ in members(value, self[1])])
        return self.provenance().origins(value, self[1])

    def is_vouched(self, value: Any, trusted: Sequence[str] = ("user",)) -> bool:
        """Tell whether a value occurs entirely in texts of trusted authors: ``user``, ``tool``, ``tool.field``."""
        if self.provenance is None:
            return not any(True for _ in members(value, self[1]))
        return self.provenance().vouched(value, trusted, self[1])


@with_card
class AfterModelCallParams(NamedTuple):
    """The model has responded: accept, guide or deny the response before it counts."""

    response: ModelResponse
    ctx: ExecutionContext
    state: Any
    history: Sequence[PastCall] = ()
    so_far: SteeringDecision = ALLOW

    def __getattr__(self, name: str) -> Any:
        raise _no_attribute(self, "A response", name, _OF_RESPONSE)

    @property
    def text(self) -> str:
        """All texts of the response: its messages, one per line, then refusals and other data, then reasoning."""
        return response_text(self.response.items)

    @property
    def answer(self) -> str:
        """The answer for the reader: the texts of its messages, one per line."""
        return "\n".join(output_texts(self.response.items))

    @property
    def items(self) -> tuple[Item, ...]:
        """All items of the response."""
        return self.response.items


@with_card
@_with_hints
class ToolOutcome(NamedTuple):
    """A tool call has ended."""

    name: str
    call_id: str
    success: bool
    duration_ms: float
    error: str | None
    ctx: ExecutionContext
    state: Any
    output: str | None = None
    """The text that the model reads."""
    error_type: str | None = None
    """The class of the error, or the kind for an error of this library."""


@with_card
@_with_hints
class ModelOutcome(NamedTuple):
    """A model call of the agent has ended, whether or not its response will be accepted."""

    model: str
    usage: Usage
    cost: float | None
    duration_ms: float
    logprobs: Sequence[TokenLogprob]
    error: str | None
    ctx: ExecutionContext
    state: Any


@with_card
@_with_hints
class Feedback(NamedTuple):
    """A user or grader rated or corrected the thread's last reply, or began a new task, outside any execution.

    `value` is the quality (0 to 1) or the text of the correction; None for ``"reset_task"``.
    """

    kind: Literal["quality", "correction", "reset_task"]
    value: Any
    storage: ScopedStorage
    ctx: ExecutionContext
    source: str = "user"


@with_card
@_with_hints
class OnItemAppendParams(NamedTuple):
    """User messages or tool outputs are about to be logged: change, drop or add some."""

    items: tuple[Item, ...]
    log: Sequence[Item]
    ctx: ExecutionContext
    state: Any


@with_card
@_with_hints
class ProjectHistoryParams(NamedTuple):
    """The history is about to be sent: choose from it. The log itself never changes."""

    items: Sequence[Item]
    ctx: ExecutionContext
    state: Any


@dataclass(frozen=True, slots=True)
class HookFailure:
    """An enforcement hook of this layer failed, timed out or was never initialised, and `decision` was made in its place."""

    hook: Literal["before_tool_call", "after_model_call"]
    error: BaseException | None
    decision: Any
    params: BeforeToolCallParams | AfterModelCallParams
    state: Any
    reason: Literal["error", "timeout", "cancelled", "uninitialised", "disabled"]
    duration_ms: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
