"""All observable events, as frozen records. A run is a list of them; tables, plots and widgets read nothing else.

Events refer to items by position in the thread's log and never copy history, so the data of a turn does not grow with
the conversation. Every event says where it happened (`Where`) and when (milliseconds of the run's clock).
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, get_args

from msgspec import field

from noetic_nb._core.event_parts import (
    Data,
    Event,
    FreeData,
    HookName,
    ItemFate,
    LayerTokens,
    LogStretch,
    MemoryTexts,
    Number,
    OfferedTool,
    TextRetracted,
    Thresholds,
    UnsentOffer,
    Where,
    Whole,
    Word,
)
from noetic_nb.items import Item
from noetic_nb.items._frozen import FrozenDict

__all__ = [
    "BudgetsAllocated",
    "ChildEnded",
    "ChildStarted",
    "ErrorRaised",
    "EventSink",
    "ItemFate",
    "ItemsAppended",
    "LayerStateChanged",
    "LayerTokens",
    "LayersDropped",
    "LogStretch",
    "MemoryTexts",
    "MemoryTraceSpan",
    "ModelCalled",
    "OfferedTool",
    "QualityGiven",
    "RegulatorDecided",
    "RegulatorSaw",
    "RequestPrepared",
    "RuleChanged",
    "RunEvent",
    "SteeringDecided",
    "StepEnded",
    "StepStarted",
    "TextRetracted",
    "ToolCalled",
    "ToolProgress",
    "TurnCompleted",
    "TurnStarted",
    "UnsentOffer",
    "ViewAssembled",
    "WarningRaised",
    "Where",
]


def __dir__() -> list[str]:
    return sorted(__all__)


class TurnStarted(Event, frozen=True, tag="turn_started"):
    """A turn begins; the user's items are at ``start <= position < stop`` of the log."""

    turn_id: str
    start: Whole
    stop: Whole
    query: str
    resource_id: str | None = None
    waited_ms: Number | None = None
    """How long the first of its messages waited for other turns; None if none had to wait."""
    memory: tuple[MemoryTexts, ...] = ()
    """By scope, the layers that remember, and the source texts of their memories from before the run."""


class ItemsAppended(Event, frozen=True, tag="items_appended"):
    """Items joined the log at `start`; each is recorded here once and referred to by position elsewhere."""

    start: Whole
    items: tuple[Item, ...]
    origin: Word[Literal["user", "model", "tool", "guidance", "layer", "seed", "step"]]
    layer_id: str | None = None
    """The layer, for items that a layer produced."""


class BudgetsAllocated(Event, frozen=True, tag="budgets_allocated"):
    """The token budget was split. All amounts are in tokens."""

    # Floats, because a budget may be infinite.
    total: Number
    system: Whole
    reserve: Number
    # Pairs rather than a mapping, so that readers cannot modify an event.
    allocations: tuple[tuple[str, Number], ...]
    history_budget: Number


class RequestPrepared(Event, frozen=True, tag="request_prepared"):
    """The parts that the requests of an execution share, and on which their plans are based.

    It precedes the first request of each execution, and each later request for which one of these parts has changed.
    """

    step_id: str
    model: str
    instructions: str
    tools: tuple[OfferedTool, ...]
    params: Data
    """Sampling parameters, without those left to the provider."""
    output_schema: Data | None
    overflow: str
    window_size: Whole | None
    limits: tuple[tuple[str, Number, Number], ...]
    """Each layer with its configured minimum and maximum tokens, in the order of the allocation."""
    tokenizer: str
    """Name of the tokenizer."""
    order: str = "slot"
    """The order of layers in requests, as in `ProjectionPolicy`."""
    suffixes: tuple[str, ...] = ()
    """Layers with ``placement="suffix"``, which another order puts after the history."""
    tokenizer_error: Number | None = None
    """Average relative error of its counts against reported usage; None if it was never measured."""
    counter: Data | None = None
    """For a learning counter: its base, the model, and its current factors; None for all others."""


# The tag differs from the class name: saved runs and exports use the tag.
class MemoryTraceSpan(Event, frozen=True, tag="hook_called"):
    """One call of one hook of one layer."""

    layer_id: str
    hook: Word[HookName]
    duration_ms: Number
    status: Word[Literal["ok", "error", "timeout", "skipped"]]
    budget: LayerTokens | None = None
    item_count: Whole | None = None
    error: str | None = None
    """The message of the error, without secrets, if the call failed; likewise its type and stack."""
    attributes: Data | None = None
    """Attributes that the hook set with ``ctx.trace.set_attribute``."""
    notes: tuple[Data, ...] = ()
    """Events that it added with ``ctx.trace.add_event``, each ``{"name": ..., "attributes": {...}}``."""
    error_type: str | None = None
    error_stack: str | None = None
    """The traceback of the error, as Python prints it, including causes."""


class ViewAssembled(Event, frozen=True, tag="view_assembled"):
    """The request to the model: layers' items, then a window of the log without its exclusions.

    Tokens by origin add up to what was sent: ``system + tools + framing + sum(layer.used) + history``.
    """

    step: Whole
    window: tuple[int, int]
    fates: tuple[ItemFate, ...]
    layers: tuple[LayerTokens, ...]
    layer_items: tuple[tuple[str, Item], ...]
    total: Number
    reserve: Number
    system: Whole
    tools: Whole
    framing: Whole
    history: Whole
    history_budget: Number
    history_items: Whole
    # With a default, like every field added later, so that runs saved before it can still be read.
    floor: Whole = 0
    """Start of the policy's item window: log items below it are ``outside_window``, those from it to ``window[0]`` are
    ``over_budget``."""
    hidden: tuple[tuple[int, int, int], ...] = ()
    """Long stretches of the log that layers left out, as (start, stop, tokens): their items have no individual
    fates."""
    unsent: tuple[UnsentOffer, ...] = ()
    """Items that layers offered and that were not sent, in their order."""
    projection: tuple[LogStretch, ...] | None = None
    """The history as layers changed it, in its order; None if they left it unchanged."""
    appended: tuple[Item, ...] = ()
    """Unlogged items sent after the log: a request to continue."""
    texts: tuple[str, ...] = ()
    """Layers that offer a single text, which may be truncated."""
    kept: tuple[int, ...] = ()
    """Positions of system messages before the window, which are sent all the same."""
    duration_ms: Number | None = None
    """Duration of planning the call; None if unknown."""


class ModelCalled(Event, frozen=True, tag="model_called", repr_omit_defaults=True):
    """One model call ended, successfully or not. `items` is its answer, used by replays.

    `duration_ms`, `cost` (US dollars), `cached_tokens`, `cache_write_tokens` and `reasoning_tokens` are None if
    unknown. The counts are parts of each other as in `models.Usage`.
    """

    step: Whole
    model: str
    purpose: Word[Literal["agent", "judge", "layer", "summary"]]
    duration_ms: Number | None
    status: Word[Literal["ok", "error", "cancelled"]]
    items: tuple[Item, ...] = ()
    input_tokens: Whole = 0
    output_tokens: Whole = 0
    cached_tokens: Whole | None = None
    cost: Number | None = None
    logprobs: tuple[tuple[str, Number], ...] = ()
    error: str | None = None
    finish_reason: Word[Literal["stop", "tool_calls", "length", "content_filter"]] | None = None
    cache_write_tokens: Whole | None = None
    reasoning_tokens: Whole | None = None

    @property
    def counts(self) -> tuple[int, int, int | None, int | None, int | None]:
        """The tokens of the call, in the order of `models.Usage`."""
        special = self.cached_tokens, self.cache_write_tokens, self.reasoning_tokens
        return self.input_tokens, self.output_tokens, *special


class ToolCalled(Event, frozen=True, tag="tool_called"):
    """A tool call was settled: run, failed, or prevented. `args` are the arguments of the tool, as JSON data.

    `duration_ms` is None if it is unknown.
    """

    name: str
    call_id: str
    # None for an unknown tool, and for arguments that do not fit the tool.
    args: Data | None
    output: str
    duration_ms: Number | None
    status: Word[Literal["ok", "error", "denied", "guided", "invalid_args", "invalid_result", "unknown", "cancelled"]]
    error: str | None = None
    raw_args: FreeData = None
    """The model's arguments as parsed JSON; None if they were not JSON, or are unknown."""
    place: Whole | None = None
    """Its index among the calls of its execution tree, in order of decision; None in runs of other agents."""
    behind: tuple[int, ...] = ()
    """Indices of the earlier calls that had not ended when its decision began."""
    error_type: str | None = None
    """The class of the error, or the kind for an error of this library; None if there was none, or if it is unknown."""


class ToolProgress(Event, frozen=True, tag="tool_progress"):
    """A running tool has yielded a value; `value` is its JSON form, or its text if it has none."""

    name: str
    call_id: str
    value: FreeData


class SteeringDecided(Event, frozen=True, tag="steering_decided"):
    """An entry of the ledger: the decision of a layer at an enforcement point, and the rules behind it."""

    layer_id: str
    hook: str
    tool_name: str | None
    args: Data | None
    action: Word[Literal["allow", "guide", "deny", "ask"]]
    guidance: str | None
    rule_ids: tuple[str, ...]
    duration_ms: Number
    outcome: str | None = None
    enforced: bool = True
    """Whether it was enforced; False if a call was judged after it had been made."""
    faults: tuple[tuple[str, str], ...] = ()
    """Each rule that could not be evaluated, and why: ``unparseable`` for a judge, otherwise the error."""
    matched: tuple[str, ...] = ()
    """The parts of the response that the rules matched; empty if unknown."""
    rules_ms: tuple[tuple[str, Number], ...] = ()
    """Each evaluated rule, in order, and its duration, including the wait for its judge; empty if unknown."""


class RegulatorSaw(Event, frozen=True, tag="regulator_saw"):
    """The regulator received an event; `event` is its plain form, with its own ``kind``."""

    layer_id: str
    # Data rather than an object of the regulator, so that events can be read without importing it.
    event: Data


class RegulatorDecided(Event, frozen=True, tag="regulator_decided"):
    """The regulator decided; `decision` is its plain form, with its own ``kind``.

    `thresholds` are the numbers in force then, ``{predicate: {name: number}}``; empty in runs without them.
    """

    layer_id: str
    at: str
    decision: Data
    suggestion: str | None = None
    confidence: Number | None = None
    tokens_out: Whole = 0
    cost_cap: Number | None = None
    stops: bool = False
    thresholds: Thresholds = field(default_factory=FrozenDict)
    enforced: bool = True
    """Whether it was enforced; False if it was decided afterwards."""


class LayerStateChanged(Event, frozen=True, tag="layer_state_changed"):
    """A layer's state was written; `state` is an immutable copy as JSON data, None if it was cleared."""

    layer_id: str
    hook: str
    state: FreeData


class RuleChanged(Event, frozen=True, tag="rule_changed"):
    """A rule book moved to a new version; `old` and `new` are the texts of the rule, or None if it did not exist."""

    rule_id: str
    change: Word[Literal["add", "replace", "remove", "enable", "disable", "move", "undo"]]
    version: Whole
    old: str | None
    new: str | None


class QualityGiven(Event, frozen=True, tag="quality_given"):
    """The thread's last reply was rated, from 0 (useless) to 1 (perfect)."""

    quality: Number
    source: str


class ErrorRaised(Event, frozen=True, tag="error_raised"):
    """An error occurred; redacted like all events."""

    # Not `kind`, which is the tag of the event itself; the same applies to `step_kind`.
    error_kind: str
    message: str
    step_id: str | None = None


class WarningRaised(Event, frozen=True, tag="warning_raised"):
    """A problem did not end the turn; the reply has it in its ``warnings``.

    `code` is one of `noetic_nb.runtime.WARNING_CODES`.
    """

    code: str
    text: str
    layer_id: str | None = None


class TurnCompleted(Event, frozen=True, tag="turn_completed"):
    """A turn ended. Tokens and cost include those of judges and layers.

    `duration_ms` and tokens are None if unknown, and `cost` if models were called and no price is known.
    """

    turn_id: str
    outcome: Word[Literal["success", "failure", "aborted"]]
    # By the monotonic clock: it differs from the difference of two `t_ms` if the wall clock was set meanwhile.
    duration_ms: Number | None
    text: str
    input_tokens: Whole | None
    output_tokens: Whole | None
    cost: Number | None
    model_calls: Whole
    tool_calls: Whole
    stopped: Data | None = None
    finish_reason: Word[Literal["stop", "tool_calls", "length", "content_filter"]] | None = None
    storage_ms: Number | None = None
    """How long the turn waited for storage: loading and writing states, and checkpoints; None if unknown."""


class StepStarted(Event, frozen=True, tag="step_started"):
    """A step begins. Its `path` names the steps around it: ``/think#2/ask#1`` is the first `ask` in the second `think`."""

    step_id: str
    step_kind: str
    path: str


class StepEnded(Event, frozen=True, tag="step_ended"):
    """A step ended: it ran, it failed, it was cancelled, or its recorded output was used instead of running it again."""

    step_id: str
    step_kind: str
    path: str
    duration_ms: Number
    status: Word[Literal["ok", "error", "cancelled", "stopped", "replayed"]]
    error: str | None = None


class ChildStarted(Event, frozen=True, tag="child_started"):
    """A child execution begins (`where` is its own), with the states and items that its parent gave it.

    Its log starts with the parent's first `inherited` items, which are not repeated here; `items` are those after them,
    given by the step and the layers. `handed` are the layers' states.
    """

    parent_id: str
    step_id: str
    step_kind: str
    inherited: Whole
    items: tuple[Item, ...]
    handed: Data
    memory: tuple[MemoryTexts, ...] = ()
    """As in `TurnStarted`."""


class ChildEnded(Event, frozen=True, tag="child_ended"):
    """A child execution ended (`where` is its own), with its result. `returned` are the states that its parent's layers merged.

    `cost` is None if it called models and no price is known.
    """

    parent_id: str
    step_id: str
    outcome: Word[Literal["success", "failure", "aborted"]]
    duration_ms: Number
    text: str
    returned: tuple[str, ...]
    input_tokens: Whole
    output_tokens: Whole
    cost: Number | None


class LayersDropped(Event, frozen=True, tag="layers_dropped"):
    """A child execution begins (`where` is its own) without some layers of its parent, which its step drops by name."""

    parent_id: str
    step_id: str
    layer_ids: tuple[str, ...]


class ContextCompacted(Event, frozen=True, tag="context_compacted"):
    """A part of the context was replaced by a shorter one: later calls get `items` in its place; the log keeps all items.

    Counts are None if unknown.
    """

    by: str
    """The mechanism: the id of a layer, ``summarize`` for a projection, or a program or provider."""
    items_removed: Whole | None = None
    items: tuple[Item, ...] = ()
    """The replacement items; none if the part was only left out."""
    tokens_before: Whole | None = None
    tokens_after: Whole | None = None
    """Tokens of the context before and after (of the removed part, if a layer compacted)."""
    opaque: bool = False
    """Whether only the provider can read the replacement items."""
    replaced: tuple[tuple[int, int], ...] = ()
    """The replaced stretches of the log, as (start, stop); empty if unknown."""
    trigger: str | None = None
    """Its cause, such as ``auto`` or ``manual``."""
    model: str | None = None
    usage: Data | None = None
    """Tokens billed for it in addition to those of all model calls, by the names of `models.Usage`."""


# Saving and loading use this union: an event that is missing here can be neither written nor read.
RunEvent: TypeAlias = (
    TurnStarted
    | ItemsAppended
    | BudgetsAllocated
    | RequestPrepared
    | MemoryTraceSpan
    | ViewAssembled
    | ModelCalled
    | ToolCalled
    | SteeringDecided
    | RegulatorSaw
    | RegulatorDecided
    | LayerStateChanged
    | RuleChanged
    | QualityGiven
    | ErrorRaised
    | TurnCompleted
    | StepStarted
    | StepEnded
    | ChildStarted
    | ChildEnded
    | LayersDropped
    | WarningRaised
    | ToolProgress
    | ContextCompacted
)

for _kind in (*get_args(RunEvent), TextRetracted):
    _kind.kind = _kind.__struct_config__.tag


class EventSink(Protocol):
    """A receiver of events. Must return at once and never raise."""

    def emit(self, event: RunEvent) -> None:
        """Receive one event."""
