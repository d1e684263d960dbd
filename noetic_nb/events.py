"""Everything observable, as frozen records. A run is the list of them; tables, plots and widgets read nothing else.

Events name items by their position in the thread's log and never copy lists of history: what a turn emits does not grow
with the conversation. Every event says where it happened (`Where`) and when (milliseconds of the run's clock).
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
    """How long the first of its messages had waited for other turns; None if none had to."""
    memory: tuple[MemoryTexts, ...] = ()
    """By scope, the layers that remember, and what their memories were made from before the run."""


class ItemsAppended(Event, frozen=True, tag="items_appended"):
    """Items joined the log at `start`; each item is recorded here once and referred to by position elsewhere."""

    start: Whole
    items: tuple[Item, ...]
    origin: Word[Literal["user", "model", "tool", "guidance", "layer", "seed", "step"]]
    layer_id: str | None = None
    """Of items whose origin is a layer."""


class BudgetsAllocated(Event, frozen=True, tag="budgets_allocated"):
    """The token budget was split. All amounts in tokens."""

    # Floats, as a budget may be infinite.
    total: Number
    system: Whole
    reserve: Number
    # Pairs and no mapping, so that an event cannot be changed by whoever reads it.
    allocations: tuple[tuple[str, Number], ...]
    history_budget: Number


class RequestPrepared(Event, frozen=True, tag="request_prepared"):
    """The parts that the requests of an execution have in common, and that their plans start from.

    It stands before the first request of each execution, and again before one for which something of it has changed.
    """

    step_id: str
    model: str
    instructions: str
    tools: tuple[OfferedTool, ...]
    params: Data
    """Of sampling; what the provider decides is not in it."""
    output_schema: Data | None
    overflow: str
    window_size: Whole | None
    limits: tuple[tuple[str, Number, Number], ...]
    """Each layer, with the least and the most tokens it is configured to get, in the order of the allocation."""
    tokenizer: str
    """Name of what counts tokens."""
    order: str = "slot"
    """In which order layers are sent, as `ProjectionPolicy` has it."""
    suffixes: tuple[str, ...] = ()
    """Layers with ``placement="suffix"``, which another order sends behind the history."""
    tokenizer_error: Number | None = None
    """How far its requests are off reported usage on average, relative; None if nobody has measured it."""
    counter: Data | None = None
    """Of a counter that learns: its base, the model, and the factors by which it counts now; None for all others."""


# The tag is not the name of the class: saved runs and exports know it by this one.
class MemoryTraceSpan(Event, frozen=True, tag="hook_called"):
    """One call of one hook of one layer."""

    layer_id: str
    hook: Word[HookName]
    duration_ms: Number
    status: Word[Literal["ok", "error", "timeout", "skipped"]]
    budget: LayerTokens | None = None
    item_count: Whole | None = None
    error: str | None = None
    """The message of the error where it failed, without secrets; so with its type and its stack."""
    attributes: Data | None = None
    """What the hook noted of itself, with ``ctx.trace.set_attribute``."""
    notes: tuple[Data, ...] = ()
    """What it said happened, with ``ctx.trace.add_event``: ``{"name": ..., "attributes": {...}}`` each."""
    error_type: str | None = None
    error_stack: str | None = None
    """Where the error was raised, as Python prints it, causes included."""


class ViewAssembled(Event, frozen=True, tag="view_assembled"):
    """The request to the model: a window of the log without its exclusions, after the layers' items.

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
    # With a default, as every field needs that came later: runs that were saved before it can still be read.
    floor: Whole = 0
    """Where the policy's item window begins: log items below it are ``outside_window``, those from it to ``window[0]``
    ``over_budget``."""
    hidden: tuple[tuple[int, int, int], ...] = ()
    """Long stretches of the log that layers left out, as first place, place behind the last, and tokens: their items have no
    fates of their own."""
    unsent: tuple[UnsentOffer, ...] = ()
    """What layers offered and was not sent, in their order."""
    projection: tuple[LogStretch, ...] | None = None
    """What layers made of the history, in its order; None if they left it as it is."""
    appended: tuple[Item, ...] = ()
    """What was sent behind the log and is not logged: a request to continue."""
    texts: tuple[str, ...] = ()
    """Layers whose offer is one text, which may be cut."""
    kept: tuple[int, ...] = ()
    """Places before the window that are sent all the same: system messages."""
    duration_ms: Number | None = None
    """How long the call took to plan; None if nobody knows."""


class ModelCalled(Event, frozen=True, tag="model_called", repr_omit_defaults=True):
    """One model call ended, well or not. `items` is its answer: the tape of a replay.

    `duration_ms`, `cost` (US dollars), `cached_tokens`, `cache_write_tokens` and `reasoning_tokens` are None if nobody
    knows them. The counts are parts of each other as in `models.Usage`.
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
    """A tool call was settled: run, failed, or kept from running. `args` are the arguments that the tool got, as JSON data.

    `duration_ms` is None if it is unknown.
    """

    name: str
    call_id: str
    # None for an unknown tool, and where what the model wrote does not fit the one it called.
    args: Data | None
    output: str
    duration_ms: Number | None
    status: Word[Literal["ok", "error", "denied", "guided", "invalid_args", "invalid_result", "unknown", "cancelled"]]
    error: str | None = None
    raw_args: FreeData = None
    """What the model wrote, as parsed JSON; None if it was no JSON, or nobody knows."""
    place: Whole | None = None
    """Where it stands among the calls of its execution tree, by the order of decision; None in runs of others."""
    behind: tuple[int, ...] = ()
    """The places before it of calls that had not ended when its decision began."""
    error_type: str | None = None
    """The class of the error, or the kind where it is one of this library; None if there was none, or nobody knows."""


class ToolProgress(Event, frozen=True, tag="tool_progress"):
    """A tool that is at work has yielded something; `value` is that as JSON data, its text where it has no such form."""

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
    """Whether it was acted on; False if a call was judged after it had been made."""
    faults: tuple[tuple[str, str], ...] = ()
    """Each rule that could not be evaluated, and why: ``unparseable`` for a judge, else the error."""
    matched: tuple[str, ...] = ()
    """The parts of the response that the rules decided on; empty if nobody knows them."""
    rules_ms: tuple[tuple[str, Number], ...] = ()
    """Each rule that was evaluated, in order, and how long it took, waiting for its judge included; empty if nobody knows."""


class RegulatorSaw(Event, frozen=True, tag="regulator_saw"):
    """The regulator was told something; `event` is its plain form, with its own ``kind``."""

    layer_id: str
    # Data and no object of the regulator: events are read where nothing of it was imported.
    event: Data


class RegulatorDecided(Event, frozen=True, tag="regulator_decided"):
    """The regulator was asked; `decision` is its plain form, with its own ``kind``.

    `thresholds` are the numbers in force at that moment, ``{predicate: {name: number}}``; empty in runs that do not have them.
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
    """Whether it was acted on; False if it was decided after the fact."""


class LayerStateChanged(Event, frozen=True, tag="layer_state_changed"):
    """A layer's state was written; `state` is a copy of it as JSON data that cannot change, None when it was cleared."""

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
    """Someone judged the thread's last reply, from 0 (useless) to 1 (perfect)."""

    quality: Number
    source: str


class ErrorRaised(Event, frozen=True, tag="error_raised"):
    """Something went wrong; redacted like everything else."""

    # Not `kind`, which is the tag of the event itself; `step_kind` is called so for the same reason.
    error_kind: str
    message: str
    step_id: str | None = None


class WarningRaised(Event, frozen=True, tag="warning_raised"):
    """Something went wrong and did not end the turn; the reply has it in its ``warnings``.

    `code` is one of `noetic_nb.runtime.WARNING_CODES`.
    """

    code: str
    text: str
    layer_id: str | None = None


class TurnCompleted(Event, frozen=True, tag="turn_completed"):
    """A turn ended. Tokens and cost are those of the turn, judges and layers included.

    `duration_ms` and tokens are None if nobody knows them, `cost` where it called models and no price is known.
    """

    turn_id: str
    outcome: Word[Literal["success", "failure", "aborted"]]
    # By the monotonic clock, so it is not the difference of two `t_ms` where the wall clock was set meanwhile.
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
    """How long the turn waited for storage: states that were loaded and written, and checkpoints; None if nobody knows."""


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

    Its log starts with the parent's first `inherited` items, which are not repeated here; `items` are those that follow them:
    what the step and the layers gave it. `handed` are the layers' states.
    """

    parent_id: str
    step_id: str
    step_kind: str
    inherited: Whole
    items: tuple[Item, ...]
    handed: Data
    memory: tuple[MemoryTexts, ...] = ()
    """As of `TurnStarted`."""


class ChildEnded(Event, frozen=True, tag="child_ended"):
    """A child execution ended (`where` is its own), with its result. `returned` are states its parent's layers merged.

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
    """A child execution begins (`where` is its own) without layers of its parent: its step drops them by name."""

    parent_id: str
    step_id: str
    layer_ids: tuple[str, ...]


class ContextCompacted(Event, frozen=True, tag="context_compacted"):
    """A part of the context was replaced by a shorter one: later calls get `items` in its place; the log keeps all.

    Counts are None if nobody knows them.
    """

    by: str
    """The mechanism: the id of a layer, ``summarize`` of a projection, or the program or provider that did it."""
    items_removed: Whole | None = None
    items: tuple[Item, ...] = ()
    """The items that stand in their place; none where a part was only left out."""
    tokens_before: Whole | None = None
    tokens_after: Whole | None = None
    """Tokens of the context (of the removed part, where it is one layer's) before and after."""
    opaque: bool = False
    """Whether only the provider can read the items in their place."""
    replaced: tuple[tuple[int, int], ...] = ()
    """Stretches of the log that were replaced, as first place and place behind the last; empty if nobody knows."""
    trigger: str | None = None
    """Its cause, such as ``auto`` or ``manual``."""
    model: str | None = None
    usage: Data | None = None
    """Tokens of this model that were billed for it beside those of all model calls, by the names of `models.Usage`."""


# Saving and loading take their types from here: an event that is missing can be neither written nor read.
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
    """Somewhere events go. Must return at once and never raise."""

    def emit(self, event: RunEvent) -> None:
        """Take one event."""
