"""A memory layer: a plain record whose hooks are callables, so that a cell can redefine one function and swap it in."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from types import GenericAlias
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from noetic_nb._core.arguments import explained
from noetic_nb._core.cards import Card, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import ItemRegistry
from noetic_nb.memory import params
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._layer_functions import BuiltIn, LayerProvides, checked_provides
from noetic_nb.memory.scope import SCOPES, MemoryScope, unknown_scope

Handle = TypeVar("Handle", covariant=True, default=Any)
"""The members that a layer provides: a protocol with its data as attributes and its functions as async methods."""

Record = TypeVar("Record", default=Any)

Hook: TypeAlias = Callable[[Record], Awaitable[Any] | Any]
"""A callable of one parameter record, sync or async; a sync hook cannot be timed out."""

BudgetConfig: TypeAlias = float | Mapping[str, float] | Literal["auto"] | None
"""Tokens: a number, ``{"min": a, "max": b}``, or ``"auto"`` (also None): as many as are left."""


class Slot(IntEnum):
    """Position of a layer in the prompt; lower comes first. Any other number works, too.

    References
    ----------
    .. [1] docs/decisions/limits.md, "Memory".
    """

    REMINDER = 80
    STEERING = 90
    WORKING_MEMORY = 100
    ENTITY = 150
    OBSERVATIONS = 200
    PROCEDURAL = 250
    EPISODIC = 300
    RAG = 350
    SEMANTIC_RECALL = 400


# Milliseconds. Hooks that may call a model get half a minute, those between two model calls five seconds.
DEFAULT_TIMEOUTS_MS: Final[Mapping[str, float]] = {
    "init": 10_000,
    "recall": 5_000,
    "store": 30_000,
    "on_spawn": 10_000,
    "on_return": 10_000,
    "on_complete": 30_000,
    "dispose": 5_000,
    "before_tool_call": 5_000,
    "after_model_call": 10_000,
    "on_item_append": 5_000,
    "project_history": 5_000,
    "on_tool_outcome": 5_000,
    "on_model_outcome": 5_000,
    "on_feedback": 5_000,
    "on_hook_failure": 5_000,
}


@with_card
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHooks:
    """The moments at which a layer is called; a moment without a hook is skipped.

    A hook takes one record, ``p``, is sync or async, and returns None, a mapping, or a record with the fields listed here.
    Every record has ``p.ctx``, the `ExecutionContext`, and ``p.state``, unless stated otherwise; ``stop=Stop(...)`` in any
    result ends the turn. The help of a record describes its fields: ``noetic_nb.memory.params.RecallParams?``.

    Parameters
    ----------
    init : callable, ``init(p: InitParams) -> {"state"}``
        An execution begins; has ``p.storage`` and ``p.scope_key`` but no state. Without it, or without ``state`` in its
        result, the stored state is loaded.
    recall : callable, ``recall(p: RecallParams) -> str | {"items", "token_count", "state"}``
        The model is about to be called: return what to show it, in at most ``p.budget`` tokens; ``p.query``, ``p.log``.
    store : callable, ``store(p: StoreParams) -> {"state"}``
        A response was accepted: keep the important parts of ``p.new_items``. The state is a copy; None clears it.
    on_spawn : callable, ``on_spawn(p: SpawnParams) -> {"child_state", "items"}``
        A child execution begins: has ``p.parent_state`` and ``p.child_ctx``, but neither ``ctx`` nor ``state``.
    on_return : callable, ``on_return(p: ReturnParams) -> {"parent_state", "result"}``
        A child has ended: ``p.child_state``, ``p.child_log``, ``p.parent_state``, ``p.result``, ``p.child_ctx``, likewise.
    on_complete : callable, ``on_complete(p: CompleteParams) -> {"state"}``
        The execution ends, with ``p.outcome``; ``p.log``. None clears the state.
    dispose : callable, ``dispose(p: DisposeParams) -> None``
        Called after that: release the layer's resources.
    before_tool_call : callable, ``before_tool_call(p: BeforeToolCallParams) -> {"decision", "state"}``
        A tool is about to be called: return a `SteeringDecision` about ``p.tool_name`` and ``p.tool_args``.
    after_model_call : callable, ``after_model_call(p: AfterModelCallParams) -> {"decision", "state"}``
        The model has responded: return a `SteeringDecision` about ``p.text`` and ``p.items``.
    on_item_append : callable, ``on_item_append(p: OnItemAppendParams) -> {"items", "state", "rerender", "timing", "scope"}``
        Input or tool output is about to be logged: change, drop or add ``p.items``.
    project_history : callable, ``project_history(p: ProjectHistoryParams) -> {"items"}``
        The history is about to be sent: select from ``p.items``.
    on_tool_outcome : callable, ``on_tool_outcome(p: ToolOutcome) -> {"state"}``
        A tool call has ended: ``p.name``, ``p.success``, ``p.output``, ``p.error``.
    on_model_outcome : callable, ``on_model_outcome(p: ModelOutcome) -> {"state"}``
        A model call has ended: ``p.model``, ``p.usage``, ``p.cost``, ``p.error``.
    on_feedback : callable, ``on_feedback(p: Feedback) -> None``
        A reply was graded or corrected, outside executions; writes ``p.storage`` itself and has no state.
    on_hook_failure : callable, ``on_hook_failure(p: HookFailure) -> {"state", "rule_ids"}``
        An enforcement hook of this layer has failed, and ``p.decision`` was made in its place; ``p.params`` are the
        parameters of that hook, including its ``ctx``.
    delivered : callable, ``delivered(ctx, item_ids) -> None``
        A request with these items was sent. A plain function that must not wait.
    on_edit : callable, ``on_edit(ctx, state) -> callable``
        A user replaces the state of a layer that also keeps data elsewhere. Reads the new state, or raises if it
        cannot; returns a function that is called once the state is written.
    on_record : callable, ``on_record(sink, clock) -> callable``
        A recording begins; returns a function that ends it. For events outside hooks.

    References
    ----------
    .. [1] docs/behaviour/memory.md, "Hooks".

    Examples
    --------
    >>> def recall(p):
    ...     return f"Seen {p.state['n']} answers." if p.state else None
    >>> def store(p):
    ...     return {"state": {"n": (p.state or {"n": 0})["n"] + 1}}
    >>> MemoryHooks(recall=recall, store=store).names()
    ('recall', 'store')
    """

    init: Hook[params.InitParams] | None = None
    recall: Hook[params.RecallParams] | None = None
    store: Hook[params.StoreParams] | None = None
    on_spawn: Hook[params.SpawnParams] | None = None
    on_return: Hook[params.ReturnParams] | None = None
    on_complete: Hook[params.CompleteParams] | None = None
    dispose: Hook[params.DisposeParams] | None = None
    before_tool_call: Hook[params.BeforeToolCallParams] | None = None
    after_model_call: Hook[params.AfterModelCallParams] | None = None
    on_item_append: Hook[params.OnItemAppendParams] | None = None
    project_history: Hook[params.ProjectHistoryParams] | None = None
    on_tool_outcome: Hook[params.ToolOutcome] | None = None
    on_model_outcome: Hook[params.ModelOutcome] | None = None
    on_feedback: Hook[params.Feedback] | None = None
    on_hook_failure: Hook[params.HookFailure] | None = None
    delivered: Callable[[ExecutionContext, frozenset[str]], None] | None = None
    on_edit: Callable[[ExecutionContext, Any], Callable[[], None]] | None = None
    on_record: Callable[[Any, Any], Callable[[], None]] | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            hook = getattr(self, item.name)
            if hook is not None and not callable(hook):
                raise NoeticConfigError(
                    "INVALID_HOOK",
                    f"The hook {item.name!r} cannot be called.",
                    given=hook,
                    hint="Pass a function of one parameter record, or leave the hook out.",
                )
            if hook is not None and item.name not in _SEVERAL:
                _takes_one(item.name, hook)

    def _card(self) -> Card:
        return Card("MemoryHooks", facts=[("", ", ".join(self.names()) or "none")])

    def names(self) -> tuple[str, ...]:
        """Return the names of the defined hooks."""
        return tuple(item.name for item in fields(self) if getattr(self, item.name) is not None)


# Called with more than one parameter record.
_SEVERAL: Final = frozenset({"delivered", "on_edit", "on_record"})


def _takes_one(name: str, hook: Hook) -> None:
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    try:
        signature.bind(None)
    except TypeError as exc:
        raise NoeticConfigError(
            "INVALID_HOOK",
            f"The hook {name!r} is called with one record of parameters; its own are {signature}",
            given=hook,
            hint=f"Write def {name}(p): ..., and read p.state, p.ctx and the like.",
        ) from exc


# On the class, because `dataclass` generates `__init__`.
MemoryHooks.__init__ = explained()(MemoryHooks.__init__)  # type: ignore[method-assign]


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def budget_range(budget: BudgetConfig, *, layer_id: str) -> tuple[float, float]:
    """Return the minimum and maximum tokens that a layer asks for; raises ``INVALID_BUDGET`` for any other shape."""
    if budget is None or budget == "auto":
        return 0.0, math.inf
    low: object
    high: object
    if isinstance(budget, Mapping) and set(budget) == {"min", "max"}:
        low, high = budget["min"], budget["max"]
    else:
        low, high = 0.0, budget
    numbers = [x for x in (low, high) if isinstance(x, int | float) and not isinstance(x, bool)]
    if len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1] or numbers[0] == math.inf:
        raise NoeticConfigError(
            "INVALID_BUDGET",
            f"The budget of layer {layer_id!r} is not a range of tokens.",
            given=budget,
            hint="Use a number >= 0, {'min': a, 'max': b} with 0 <= a <= b, or 'auto'.",
            layer_id=layer_id,
        )
    return numbers[0], numbers[1]


@with_card
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLayer(Generic[Handle]):
    """One kind of thing that an agent remembers, and when.

    Declare the provided members as ``MemoryLayer[Handle]``: ``ctx.memory[layer]`` is then a `Handle`, which editors complete.

    Parameters
    ----------
    id : str
        Unique among the layers of an agent.
    slot : float
        Order in the prompt and of most hooks, lower first; see `Slot`.
    scope : {"execution", "thread", "resource", "global"}
        How long the state lives. Each execution begins with the stored state of the scope, unless `init` returns one.
    budget : float, mapping or "auto", optional
        Tokens for recall.
    hooks : MemoryHooks
        The functions that the layer runs; a layer without hooks is legal.
    timeouts : mapping of str to float, optional
        Milliseconds per hook, overriding `DEFAULT_TIMEOUTS_MS`; 0 or less means no limit.
    on_init_error : {"throw", "disable"}
        Whether a failing `init` fails the execution or only disables the layer.
    recall_mode : {"atomic", "eventual"}
        Whether recall waits for the hook, or serves the last value and refreshes it after `store`.
    provides : mapping, optional
        Data and functions for code and model; see `layer_data` and `layer_fn`.
    item_schemas : mapping, optional
        Extension schemas of the items that this layer recalls.
    rerender_timing : {"immediate", "batched"}
        When to run a re-render requested by `on_item_append`.
    enforces : bool
        Whether it runs before all other layers at the two enforcement points.
    on_steering_error : {"deny", "allow", "raise"}, optional
        How a failing enforcement hook counts; the default of the stack is deny.
    name : str, optional
        Name for display.
    placement : {"prefix", "suffix"}, optional
        Position of its items with ``ProjectionPolicy(order="cache")``: before the history (also for None), or before
        the latest user message, which suits items that change from call to call.
    foreign : bool
        Whether parties other than the agent can write to its source, such as an external store. Values that the agent
        is not known to have stored are then trusted as little as the model's own.
    reviews_responses : callable, optional
        Whether `after_model_call` may currently reject a response, for which streams are held. None means always.

    Raises
    ------
    NoeticConfigError
        ``INVALID_LAYER_ID``, ``INVALID_SLOT``, ``UNKNOWN_SCOPE``, ``INVALID_BUDGET``, ``INVALID_TIMEOUT``,
        ``INVALID_LAYER_OPTION``, ``INVALID_HOOK``, ``INVALID_PROVIDES``, ``UNKNOWN_ITEM_CATEGORY``.

    Examples
    --------
    >>> def recall(p):
    ...     return p.state or None
    >>> MemoryLayer(id="notes", slot=Slot.WORKING_MEMORY, scope="thread", hooks=MemoryHooks(recall=recall)).id
    'notes'
    """

    id: str
    slot: float
    scope: MemoryScope
    budget: BudgetConfig = None
    hooks: MemoryHooks = field(default_factory=MemoryHooks)
    timeouts: Mapping[str, float] = field(default_factory=dict)
    on_init_error: Literal["throw", "disable"] = "throw"
    recall_mode: Literal["atomic", "eventual"] = "atomic"
    provides: LayerProvides | None = None
    item_schemas: Mapping[str, Any] | None = None
    rerender_timing: Literal["immediate", "batched"] = "batched"
    enforces: bool = False
    on_steering_error: Literal["deny", "allow", "raise"] | None = None
    name: str | None = None
    placement: Literal["prefix", "suffix"] | None = None
    foreign: bool = False
    reviews_responses: Callable[[], bool] | None = field(default=None, repr=False, compare=False)
    original_id: str | None = field(default=None, repr=False)
    """The id in the parent, if a child inherits the layer next to one of its own with that id."""
    limits: tuple[float, float] = field(init=False, repr=False, compare=False, default=(0.0, math.inf))
    """Minimum and maximum number of tokens, read from `budget` once."""
    # Not copied by `replace`: a modified layer is no longer one that a library function makes.
    made_by: BuiltIn | None = field(init=False, repr=False, compare=False, default=None)
    """How a built-in layer was made; None for a user's layer."""

    # `Generic` would create an alias whose call sets an attribute, which a frozen record with slots does not allow.
    __class_getitem__: ClassVar[Any] = classmethod(GenericAlias)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id.strip():
            raise NoeticConfigError("INVALID_LAYER_ID", "A layer needs a non-blank id.", given=self.id)
        if isinstance(self.slot, bool) or not isinstance(self.slot, int | float) or not math.isfinite(self.slot):
            raise self._refused("INVALID_SLOT", "slot", self.slot, "Use a finite number, such as Slot.WORKING_MEMORY.")
        if self.scope not in SCOPES:
            raise unknown_scope(self.scope)
        hooks: object = self.hooks  # callers may pass anything at run time
        if not isinstance(hooks, MemoryHooks):
            raise self._refused("INVALID_HOOK", "hooks", self.hooks, "Use MemoryHooks(recall=..., ...).")
        object.__setattr__(self, "limits", budget_range(self.budget, layer_id=self.id))
        given: object = self.timeouts
        if not isinstance(given, Mapping):
            raise self._refused("INVALID_TIMEOUT", "timeouts", given, "Use a mapping of hooks to milliseconds.")
        timeouts = {_snake(name): value for name, value in self.timeouts.items()}
        for name, value in timeouts.items():
            if name not in DEFAULT_TIMEOUTS_MS:
                raise self._refused("INVALID_TIMEOUT", "timeouts", name, f"Hooks are {', '.join(DEFAULT_TIMEOUTS_MS)}.")
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
                raise self._refused(
                    "INVALID_TIMEOUT", f"timeouts[{name!r}]", value, "Use milliseconds; 0 means no limit."
                )
        object.__setattr__(self, "timeouts", timeouts)
        object.__setattr__(self, "provides", checked_provides(self.provides, layer_id=self.id))
        if self.item_schemas is not None:
            # Checked here rather than at the first item, which may come hours later.
            ItemRegistry(self.item_schemas)  # raises UNKNOWN_ITEM_CATEGORY
        for option, given, known in (
            ("on_init_error", self.on_init_error, ("throw", "disable")),
            ("recall_mode", self.recall_mode, ("atomic", "eventual")),
            ("rerender_timing", self.rerender_timing, ("immediate", "batched")),
            ("placement", self.placement, (None, "prefix", "suffix")),
            ("enforces", self.enforces, (False, True)),
            ("foreign", self.foreign, (False, True)),
            ("on_steering_error", self.on_steering_error, (None, "deny", "allow", "raise")),
        ):
            if given not in known:
                raise self._refused("INVALID_LAYER_OPTION", option, given, f"Use one of {', '.join(map(repr, known))}.")

    def _refused(self, code: str, what: str, given: object, hint: str) -> NoeticConfigError:
        return NoeticConfigError(
            code, f"Layer {self.id!r} has an invalid {what}.", given=given, hint=hint, layer_id=self.id
        )

    def _card(self) -> Card:
        low, high = self.limits
        most = "no limit" if high == math.inf else f"{high:,.0f}"
        facts: list[tuple[str, Any]] = [
            ("slot", self.slot.name.lower().replace("_", " ") if isinstance(self.slot, Slot) else self.slot),
            ("scope", self.scope),
            ("tokens", f"{low:,.0f} to {most}"),
            ("hooks", self.hooks.names()),
        ]
        if self.provides:
            facts.append(("provides", tuple(self.provides)))
        if self.made_by is not None:
            facts.append(("made by", self.made_by.kind))
        return Card("MemoryLayer", self.id, facts)

    @property
    def recorded_id(self) -> str:
        """The id under which decisions are recorded, and by which a child drops the layer."""
        return self.original_id or self.id

    @property
    def is_guard(self) -> bool:
        """Whether it decides on calls or answers: every child inherits it."""
        return self.hooks.before_tool_call is not None or self.hooks.after_model_call is not None

    def timeout_ms(self, hook: str) -> float:
        """Return the time limit of a hook in milliseconds; 0 or less means none."""
        return self.timeouts.get(hook, DEFAULT_TIMEOUTS_MS[hook])

    def with_hooks(self, **hooks: Hook | None) -> MemoryLayer[Handle]:
        """Return the same layer with some hooks replaced.

        Examples
        --------
        >>> layer = MemoryLayer(id="notes", slot=100, scope="thread")
        >>> layer.with_hooks(recall=lambda p: "hello").hooks.names()
        ('recall',)
        """
        return replace(self, hooks=replace(self.hooks, **hooks))  # type: ignore[arg-type]

    def placed(self, placement: Literal["prefix", "suffix"]) -> MemoryLayer[Handle]:
        """Return the same layer with another `placement`; a built-in layer keeps its JSON form.

        Raises
        ------
        NoeticConfigError
            ``INVALID_LAYER_OPTION``.

        Examples
        --------
        >>> from noetic_nb.layers import working_memory
        >>> layer = working_memory().placed("suffix")
        >>> layer.placement, layer.made_by.kind
        ('suffix', 'working_memory')
        """
        if placement not in ("prefix", "suffix"):
            raise self._refused("INVALID_LAYER_OPTION", "placement", placement, "Use 'prefix' or 'suffix'.")
        other = replace(self, placement=placement)
        if self.made_by is not None:
            object.__setattr__(other, "made_by", replace(self.made_by, placement=placement))
        return other


_IN_HOOKS: Final = {
    item.name: f"Hooks are put together: hooks=MemoryHooks({item.name}=...)." for item in fields(MemoryHooks)
}
MemoryLayer.__init__ = explained(**_IN_HOOKS)(MemoryLayer.__init__)  # type: ignore[method-assign]
