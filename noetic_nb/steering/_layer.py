"""Steering as a memory layer: rules before tool calls and after model responses, and a ledger of their decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from noetic_nb.clock import Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import EventSink, RuleChanged, Where
from noetic_nb.memory import params
from noetic_nb.memory._enforcement import CallsSoFar, RuleTimes
from noetic_nb.memory._layer import MemoryHooks, MemoryLayer, Slot
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.memory._steering_decision import ALLOW, SteeringDecision
from noetic_nb.memory.scope import MemoryScope
from noetic_nb.steering._evaluation.evaluate import OnError, OnUnparseable, Policy, RuleSnapshot, evaluate
from noetic_nb.steering._evaluation.judging import LAYER_ID, Judging, Row
from noetic_nb.steering._execution_states import ExecutionStates
from noetic_nb.steering._ledger import State, ThreadHistory, decision_entry, earlier_calls
from noetic_nb.steering._predicates.bindings import Params
from noetic_nb.steering._rulebook.rulebook import RuleBook, RuleChange
from noetic_nb.steering._rules.file_schema import rule_text
from noetic_nb.steering._rules.rule import Point, SteeringRule

OUTSIDE: Final = Where("", "", 0)  # rules belong to the agent, not to one of its threads


class SteeringHooks:
    """The hooks of one steering layer. Executions keep their state in the layer state or the queue of late verdicts."""

    def __init__(self, book: RuleBook, max_entries: int, policy: Policy, scope: MemoryScope) -> None:
        self.book = book
        self.policy = policy
        self.judging = Judging(policy)
        self.late = self.judging.late
        self.states = ExecutionStates(book, max_entries, scope, self.late)
        self._cancelled: dict[str, Row] = {}

    def memory_hooks(self) -> MemoryHooks:
        """Return the hooks of the layer; those that only concern states are called directly."""
        states = self.states
        return MemoryHooks(
            init=states.init,
            recall=self.recall,
            before_tool_call=self.before_tool_call,
            after_model_call=self.after_model_call,
            on_spawn=states.on_spawn,
            on_complete=states.on_complete,
            dispose=self.dispose,
            on_hook_failure=self.on_hook_failure,
            # Only a layer whose state outlives the execution has to remember its calls.
            on_tool_outcome=None if states.scope == "execution" else states.on_tool_outcome,
            delivered=self.late.delivered,
            on_record=self.on_record,
        )

    def recall(self, p: params.RecallParams) -> Mapping[str, Any] | None:
        """Deliver late verdicts, as far as there is space."""
        waiting = self.late.pending(p.ctx, None if p.state is None else p.state["pendingAsync"])
        if not waiting:
            return None
        message = self.late.take(p.ctx, p.budget, p.ctx.tokenize)
        if message is None:
            return None
        # The state is returned so that a durable queue is written without the taken entries.
        return {"items": [message], "state": State({"ledger": [], **(p.state or {}), "pendingAsync": waiting})}

    def before_tool_call(self, p: params.BeforeToolCallParams) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
        """Decide whether a tool may be called."""
        return self._decide("before_tool_call", p)

    def after_model_call(self, p: params.AfterModelCallParams) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
        """Decide whether a response may stand."""
        return self._decide("after_model_call", p)

    def _decide(self, point: Point, p: Params) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
        # Fail closed: without a state, the ledger, queue and earlier calls are unknown.
        ctx, state = p.ctx, p.state
        name = p.tool_name if isinstance(p, params.BeforeToolCallParams) else None
        if state is None or state.get("uninitialised"):
            raise SteeringNotReady(f"The steering layer was never initialised for execution {ctx.execution_id!r}.")
        clock, snapshot = ctx.clock, self.book.snapshot
        start = clock.monotonic_ms()
        prepared = snapshot.prepared(point, name)
        calls_now: Callable[[], Sequence[params.PastCall]] | None = None
        if prepared.rules:
            if isinstance(p.history, CallsSoFar):
                calls_now = p.history.now
            # Earlier calls of the scope; a state limited to the execution only has the ledger and queue.
            if len(state) > 2 and (text := earlier_calls(state)):
                p, calls_now = _with_earlier(text, p, calls_now)
            # Rules may read the state; their changes to it have no effect.
            p = p._replace(state=state.snapshot() if type(state) is State else state)
            return self._evaluated(snapshot, point, p, state, start, calls_now)
        duration = clock.monotonic_ms() - start
        entry = decision_entry(p, ALLOW, duration, blocked=True)
        return {"decision": ALLOW, "state": self.states.with_entry(p, entry, state)}

    async def _evaluated(
        self,
        snapshot: RuleSnapshot,
        point: Point,
        p: Params,
        state: Any,
        start: float,
        calls_now: Callable[[], Sequence[params.PastCall]] | None,
    ) -> Mapping[str, Any]:
        """Continue an evaluation; if this raises, the ledger has no entry yet."""
        row = Row()
        try:
            await evaluate(
                snapshot,
                point,
                p,
                self.policy,
                judge_now=self.judging.now,
                judge_later=self.judging.later,
                result=row,
                history=calls_now,
            )
        except BaseException:
            # Kept for `on_hook_failure`, which names the rule that took too long or ended the program.
            self._cancelled[p.ctx.execution_id] = row
            raise
        duration = p.ctx.clock.monotonic_ms() - start
        # Reported in full to users; the model only reads the fixed guidance.
        for fault in row.faults:
            if fault.error is not None:
                p.ctx.diagnostic(LAYER_ID, point, fault.error)
            else:
                self.judging.not_read(fault.rule_id, p, point)
        faults = tuple((fault.rule_id, fault.reason) for fault in row.faults) if row.faults else ()
        entry = decision_entry(p, row.decision, duration, faults=faults, blocked=not row.waited)
        outcome = row.faults[0].reason if row.faults else None
        result = {
            "decision": row.decision,
            "state": self.states.with_entry(p, entry, state, row=row),
            "outcome": outcome,
        }
        if row.rules_ms:
            result["rules_ms"] = RuleTimes(*zip(*row.rules_ms, strict=True))
        if row.faults:
            result["faults"] = tuple([fault.words(point) for fault in row.faults])
        return result

    def on_hook_failure(self, p: params.HookFailure) -> Mapping[str, Any]:
        """Record the outcome of a failed or late evaluation."""
        row = self._cancelled.pop(p.params.ctx.execution_id, None) or Row()
        named = () if row.waiting_for is None else (row.waiting_for,)
        decision = SteeringDecision(p.decision.action, p.decision.guidance, named)
        entry = decision_entry(p.params, decision, p.duration_ms) | {"failure": p.reason}
        state = self.states.with_entry(p.params, entry, p.state, row=row)
        if p.reason in ("uninitialised", "disabled"):
            # The state with this entry must not look like that of an initialised layer.
            state["uninitialised"] = True
        if p.reason == "timeout" and named and self.book.snapshot.isolated(named[0]) == "thread":
            p.params.ctx.diagnostic(LAYER_ID, p.hook, ThreadLeftBehind(named[0]))
        return {"state": state, "rule_ids": named}

    def dispose(self, p: params.DisposeParams) -> None:
        """Forget an execution; verdicts that still wait go to the next one of its thread."""
        self.states.forget(p.ctx.execution_id)
        self._cancelled.pop(p.ctx.execution_id, None)
        self.late.close(p.ctx)

    def on_record(self, sink: EventSink, clock: Clock) -> Callable[[], None]:
        """Record every later edit of the rules, whether or not a turn is running."""

        def changed(change: RuleChange) -> None:
            old = None if change.old is None else rule_text(change.old)
            new = None if change.new is None else rule_text(change.new)
            sink.emit(RuleChanged(OUTSIDE, clock.now_ms(), change.rule_id, change.change, change.version, old, new))

        return self.book.listen(changed)


def _with_earlier(
    text: str, p: Params, now: Callable[[], Sequence[params.PastCall]] | None
) -> tuple[Params, Callable[[], Sequence[params.PastCall]] | None]:
    """Prepend the calls of earlier turns to the history, as a layer of a wider scope remembers them."""
    history = ThreadHistory(text, p.history)
    return p._replace(history=history), None if now is None else lambda: ThreadHistory(text, now())


class SteeringNotReady(RuntimeError):
    """The layer was called before it was initialised: a run error, which the policy turns into a deny."""


class ThreadLeftBehind(RuntimeError):
    """A rule in a thread took too long; Python cannot stop a thread, so it keeps running until it ends."""

    def __init__(self, rule_id: str) -> None:
        super().__init__(
            f"Rule {rule_id!r} took too long and was abandoned: its thread cannot be stopped. "
            "Give the predicate a limit of its own, or write it as a condition with isolate=True."
        )


# Recall only delivers late verdicts, so few tokens are enough.
RECALL_BUDGET: Final = {"min": 0, "max": 500}
TIMEOUTS_MS: Final = {"before_tool_call": 5_000, "after_model_call": 10_000}


@built_in
def steering(
    rulebook: RuleBook | Iterable[SteeringRule | Mapping[str, Any]] | None = None,
    *,
    rules: Iterable[SteeringRule | Mapping[str, Any]] | None = None,
    max_ledger_entries: int = 100,
    max_retries: int = 1,
    scope: MemoryScope = "execution",
    on_error: OnError = "deny",
    on_unparseable: OnUnparseable = "allow",
    timeouts: Mapping[str, float] | None = None,
    late_verdicts: bool = True,
) -> MemoryLayer:
    """Make the layer that enforces rules.

    Parameters
    ----------
    rulebook : RuleBook or iterable of rules, optional
        A rule book is read again at each evaluation, so edits apply from the next one on.
    rules : iterable of SteeringRule or mapping, optional
        Fixed rules instead of a rule book.
    max_ledger_entries : int
        The number of entries that the ledger keeps; 0 keeps none.
    max_retries : int
        How often a judge is called again after an unreadable answer.
    scope : {"execution", "thread", "resource", "global"}
        How long the ledger lives, and how far back `call.history` goes: to the beginning of the execution tree (a
        turn), of the thread, or further.
    on_error : {"deny", "allow", "raise"}
        How to treat a rule that raises, hangs or returns an invalid decision.
    on_unparseable : {"allow", "deny"}
        How to treat an unreadable answer of a judge.
    timeouts : mapping of str to float, optional
        Milliseconds for ``before_tool_call`` (5 000) and ``after_model_call`` (10 000).
    late_verdicts : bool, default True
        Let asynchronous judges answer later. With False they are awaited like the others, for when no later prompt can
        deliver their verdicts.

    Returns
    -------
    MemoryLayer
        With id ``"steering"``; its state is ``{"ledger": [...], "pendingAsync": [...]}``.

    Raises
    ------
    NoeticConfigError
        ``INVALID_STEERING`` or ``INVALID_RULE``.

    References
    ----------
    .. [1] docs/behaviour/steering.md.

    Examples
    --------
    >>> layer = steering(rules=[{"id": "none", "applies_to": ["before_tool_call"]}])
    >>> layer.id, int(layer.slot), layer.scope
    ('steering', 90, 'execution')
    """
    if (rulebook is None) == (rules is None):
        raise NoeticConfigError(
            "INVALID_STEERING", "steering needs a rule book, or rules=[...].", given=(rulebook, rules), hint="Pass one."
        )
    given: Any = rules if rulebook is None else rulebook
    book = given if isinstance(given, RuleBook) else RuleBook(given)
    book.mark_used()
    policy = _checked_policy(Policy(on_error, on_unparseable, max_retries, late_verdicts), max_ledger_entries)
    limits: Any = {} if timeouts is None else timeouts  # refused by the layer, where it is no mapping
    if isinstance(limits, Mapping):
        limits = {**TIMEOUTS_MS, **limits}
    return MemoryLayer(
        id=LAYER_ID,
        slot=Slot.STEERING,
        scope=scope,
        budget=RECALL_BUDGET,
        hooks=SteeringHooks(book, max_ledger_entries, policy, scope).memory_hooks(),
        timeouts=limits,
        # Otherwise a layer that cannot be initialised would be left out, and no rule would be enforced.
        enforces=True,
        reviews_responses=lambda: any(rule.enabled and "after_model_call" in rule.applies_to for rule in book.snapshot),
        on_steering_error=on_error,
    )


def rulebook_of(layer: MemoryLayer) -> RuleBook | None:
    """Return the rule book that a layer evaluates; None for a layer that is not from `steering`."""
    owner = getattr(layer.hooks.before_tool_call, "__self__", None)
    return owner.book if isinstance(owner, SteeringHooks) else None


def policy_of(layer: MemoryLayer) -> Policy | None:
    """Return the policy for failures of a layer of `steering`; None for any other layer."""
    owner = getattr(layer.hooks.before_tool_call, "__self__", None)
    return owner.policy if isinstance(owner, SteeringHooks) else None


RuleBook.make_layer = staticmethod(steering)


def _checked_policy(policy: Policy, max_ledger_entries: int) -> Policy:
    for name, value, known in (
        ("on_error", policy.on_error, get_args(OnError)),
        ("on_unparseable", policy.on_unparseable, get_args(OnUnparseable)),
    ):
        if value not in known:
            raise NoeticConfigError(
                "INVALID_STEERING", f"There is no such {name}.", given=value, hint=f"Use one of {', '.join(known)}."
            )
    if not isinstance(policy.late_verdicts, bool):
        raise NoeticConfigError("INVALID_STEERING", "late_verdicts must be True or False.", given=policy.late_verdicts)
    for name, count in (("max_ledger_entries", max_ledger_entries), ("max_retries", policy.max_retries)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise NoeticConfigError("INVALID_STEERING", f"{name} is a number >= 0.", given=count)
    return policy
