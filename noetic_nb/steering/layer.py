"""Steering as a memory layer: rules before tool calls and after model responses, and a ledger of what they decided."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from noetic_nb.clock import Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import EventSink, RuleChanged, Where
from noetic_nb.items.frozen import FrozenDict
from noetic_nb.memory.built_in import built_in
from noetic_nb.memory.call_history import CallsSoFar
from noetic_nb.memory.enforcement import RuleTimes
from noetic_nb.memory.execution_context import ExecutionContext
from noetic_nb.memory.idle_hook import IdleHook, PassingHook
from noetic_nb.memory.layer import MemoryHooks, MemoryLayer, Slot
from noetic_nb.memory.params import (
    AfterModelCallParams,
    BeforeToolCallParams,
    CompleteParams,
    DisposeParams,
    HookFailure,
    InitParams,
    PastCall,
    RecallParams,
    SpawnParams,
    ToolOutcome,
)
from noetic_nb.memory.scope import MemoryScope, resolve_scope_key
from noetic_nb.memory.steering_decision import ALLOW, SteeringDecision
from noetic_nb.models.client import ModelResponse
from noetic_nb.steering.evaluation.evaluate import OnError, OnUnparseable, Params, Policy, evaluate
from noetic_nb.steering.evaluation.judging import LAYER_ID, Judging, Row
from noetic_nb.steering.evaluation.late_verdicts import QueuedVerdict
from noetic_nb.steering.evaluation.rule_snapshot import Asked, RuleSnapshot
from noetic_nb.steering.ledger import (
    SLOW_MS,
    Entry,
    LateLedger,
    Ledger,
    LedgerEntry,
    State,
    change_entry,
    checked_state,
    decision_entry,
    late_entry,
    outcome_entry,
    response_row,
)
from noetic_nb.steering.past_calls import ThreadHistory, appended, earlier_calls, rows_of
from noetic_nb.steering.rulebook.rulebook import RuleBook, RuleChange
from noetic_nb.steering.rules.rule import Point, SteeringRule
from noetic_nb.steering.rules.rule_text import rule_text

__all__ = ["LAYER_ID", "policy_of", "rulebook_of", "steering"]

# Recall only delivers late verdicts, so little is enough.
RECALL_BUDGET: Final = {"min": 0, "max": 500}
# Threads whose states are remembered, to be found unchanged: a ledger of 100 entries takes some 100 kB.
MAX_LEFT: Final = 64
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
        A rule book is read anew at each evaluation, so edits take effect at the next one.
    rules : iterable of SteeringRule or mapping, optional
        Fixed rules, instead.
    max_ledger_entries : int
        How many entries the ledger keeps; 0 keeps none.
    max_retries : int
        How often a judge is called again after an answer that cannot be read.
    scope : {"execution", "thread", "resource", "global"}
        How long the ledger lives, and how far back `call.history` goes: to the beginning of the execution tree (a turn), of
        the thread, or further.
    on_error : {"deny", "allow", "raise"}
        What a rule means that raises, hangs or returns nonsense.
    on_unparseable : {"allow", "deny"}
        What a judge means whose answer cannot be read.
    timeouts : mapping of str to float, optional
        Milliseconds for ``before_tool_call`` (5 000) and ``after_model_call`` (10 000).
    late_verdicts : bool, default True
        Let asynchronous judges answer later. Without, they are waited for like the others: where no prompt will deliver
        what they say.

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
            "INVALID_STEERING", "steering takes a rule book, or rules=[...].", given=(rulebook, rules), hint="Pass one."
        )
    book = rulebook if isinstance(rulebook, RuleBook) else RuleBook(rulebook or rules or ())
    book.mark_used()
    policy = _checked_policy(Policy(on_error, on_unparseable, max_retries, late_verdicts), max_ledger_entries)
    limits = {**TIMEOUTS_MS, **(timeouts or {})}
    return MemoryLayer(
        id=LAYER_ID,
        slot=Slot.STEERING,
        scope=scope,
        budget=RECALL_BUDGET,
        hooks=_Steering(book, max_ledger_entries, policy, scope, limits).hooks(),
        timeouts=limits,
        # Without this a layer that cannot be initialised would be left out, and nothing would be enforced.
        enforces=True,
        reviews_responses=lambda: any(rule.enabled and "after_model_call" in rule.applies_to for rule in book.snapshot),
        on_steering_error=on_error,
    )


def rulebook_of(layer: MemoryLayer) -> RuleBook | None:
    """Return the rule book that a layer evaluates; None for a layer that is not of `steering`.

    Examples
    --------
    >>> book = RuleBook()
    >>> rulebook_of(steering(book)) is book
    True
    """
    owner = getattr(layer.hooks.before_tool_call, "__self__", None)
    return owner.book if isinstance(owner, _Steering) else None


def policy_of(layer: MemoryLayer) -> Policy | None:
    """Return what failures mean to a layer of `steering`; None for any other layer.

    Examples
    --------
    >>> policy_of(steering(RuleBook(), on_error="allow")).on_error
    'allow'
    """
    owner = getattr(layer.hooks.before_tool_call, "__self__", None)
    return owner.policy if isinstance(owner, _Steering) else None


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
    for name, count in (("max_ledger_entries", max_ledger_entries), ("max_retries", policy.max_retries)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise NoeticConfigError("INVALID_STEERING", f"{name} is a number >= 0.", given=count)
    return policy


class _Steering:
    """The hooks of one steering layer. What belongs to an execution is in its state or in its queue of late verdicts."""

    def __init__(
        self, book: RuleBook, max_entries: int, policy: Policy, scope: MemoryScope, limits: Mapping[str, float]
    ) -> None:
        self.book = book
        self.max_entries = max_entries
        self.policy = policy
        self.scope = scope
        self.judging = Judging(policy, limits)
        self.late = self.judging.late
        # By execution: how many changes of the rule book its ledger has, and evaluations that were cancelled.
        self._known_changes: dict[str, int] = {}
        self._cancelled: dict[str, Row] = {}
        # By scope, the states that executions left last.
        self._left: dict[str, State] = {}

    def hooks(self) -> MemoryHooks:
        return MemoryHooks(
            init=self.init,
            recall=IdleHook(self.recall, self._offers_nothing),
            before_tool_call=self.before_tool_call,
            after_model_call=PassingHook(self.after_model_call, self._lets_pass),
            on_spawn=self.on_spawn,
            on_complete=self.on_complete,
            dispose=self.dispose,
            on_hook_failure=self.on_hook_failure,
            # Only a layer whose state outlives the execution has to remember what was called in it.
            on_tool_outcome=None if self.scope == "execution" else self.on_tool_outcome,
            delivered=IdleHook(self.delivered, self._sent_nothing),
            on_record=self.on_record,
        )

    def init(self, p: InitParams) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
        # An execution's own namespace is empty when it begins, so there is nothing to read.
        return self._begun(p, None) if self.scope == "execution" else self._read(p)

    async def _read(self, p: InitParams) -> Mapping[str, Any]:
        return self._begun(p, await self._stored(p))

    def _begun(self, p: InitParams, stored: Mapping[str, Any] | None) -> Mapping[str, Any]:
        ledger: Sequence[LedgerEntry] = ()
        waiting: list[QueuedVerdict] = []
        if stored is not None:
            ledger, waiting = stored["ledger"], stored.get("pendingAsync", [])
        self._known_changes[p.ctx.execution_id] = self.book.change_count
        state: dict[str, Any] = {"ledger": self._capped(ledger), "pendingAsync": self.late.open(p.ctx, waiting)}
        if self.scope != "execution":
            # Calls of an execution that never came to its end count too: they may have had their effect.
            state["earlier"] = "" if stored is None else appended(earlier_calls(stored), stored.get("made", ()))
        return {"state": State(state)}

    async def _stored(self, p: InitParams) -> Mapping[str, Any] | None:
        """Return what is stored: the very state that was left where its text is found unchanged, which is so at most turns."""
        left = self._left.get(p.scope_key)
        if left is not None and await p.storage.get_text("state") == left.json_text():
            return {**left, "pendingAsync": [{**verdict} for verdict in left["pendingAsync"]]}
        stored = await p.storage.get("state")
        if stored is None:
            return None
        ledger, _ = checked_state(stored, f"{p.storage.prefix}state")
        return {**stored, "ledger": [Entry(entry) for entry in ledger]}

    def on_tool_outcome(self, p: ToolOutcome) -> Mapping[str, Any] | None:
        if p.state is None:
            return None
        made = rows_of(p.ctx.past_calls())
        if not made:  # a runtime that keeps no history
            made = Ledger([*p.state.get("made", []), {"name": p.name, "status": "ok" if p.success else "error"}])
        return {"state": State({**p.state, "made": made})}

    def recall(self, p: RecallParams) -> Mapping[str, Any] | None:
        waiting = self.late.pending(p.ctx, None if p.state is None else p.state["pendingAsync"])
        if not waiting:
            return None
        message = self.late.take(p.ctx, p.budget, p.ctx.tokenize)
        if message is None:
            return None
        # The state is returned so that a durable queue is written without what was taken.
        return {"items": [message], "state": State({"ledger": [], **(p.state or {}), "pendingAsync": waiting})}

    def _offers_nothing(self, execution_id: str, state_of: Callable[[str, str], Any]) -> bool:
        queue = self.late.queues.get(execution_id)
        if queue is None or queue.pending:
            return False
        # A state of another kind was set by somebody else, and another list is to take the queue's place: recall looks at it.
        state = state_of(execution_id, LAYER_ID)
        if type(state) is LateLedger:
            return state.pending is queue.pending
        return type(state) is State and state.get("pendingAsync") is queue.pending

    def _sent_nothing(self, execution_id: str, state_of: Callable[[str, str], Any]) -> bool:
        queue = self.late.queues.get(execution_id)
        return queue is None or not queue.in_flight

    def delivered(self, ctx: ExecutionContext, sent: frozenset[str]) -> None:
        self.late.delivered(ctx, sent)

    def before_tool_call(self, p: BeforeToolCallParams) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
        return self._decide("before_tool_call", p)

    def after_model_call(self, p: AfterModelCallParams) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
        return self._decide("after_model_call", p)

    def _decide(self, point: Point, p: Params) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
        # Fail closed: no state means that nothing is known of the ledger, the queue or the calls so far.
        ctx, name, is_lasting = p.ctx, None, True
        state: Any
        if isinstance(p, BeforeToolCallParams):
            name, state = p[0], p[3]
            is_lasting = type(p[1]) is FrozenDict  # which nobody can write into
        else:
            state = p[2] if type(p) is AfterModelCallParams else p.state
        is_late = type(state) is LateLedger
        if state is None or (not is_late and state.get("uninitialised")):
            raise SteeringNotReady(f"The steering layer was never initialised for execution {ctx.execution_id!r}.")
        clock, snapshot = ctx.clock, self.book.snapshot
        start = clock.monotonic_ms()
        prepared = snapshot.prepared(point, name)
        calls_now: Callable[[], Sequence[PastCall]] | None = None
        took: list[float] | None = None
        if prepared.rules:
            if isinstance(p.history, CallsSoFar):
                calls_now = p.history.now
            # Of the thread, or wherever the scope reaches; of an execution there is nothing beside ledger and queue.
            if not is_late and len(state) > 2 and (text := earlier_calls(state)):
                p, calls_now = _with_earlier(text, p, calls_now)
            # Who follows the run learns how long each rule took.
            took = None if ctx.sink is None else []
            begun = prepared.asked(p, took)
            if begun is not None:
                times = list(zip(prepared.ids, took or (), strict=False))
                return self._evaluated(snapshot, point, p, start, calls_now, begun, times)
        # Most calls and responses: there are no rules for them, or none that has anything to say.
        duration = clock.monotonic_ms() - start
        longer: Any
        if is_late and is_lasting and duration <= SLOW_MS and self._goes_on(state, ctx.execution_id):
            longer = state.longer(late_entry(p, duration), self.max_entries)
        else:
            longer = self._with(p, decision_entry(p, ALLOW, duration, blocked=True))
        result: dict[str, Any] = {"decision": ALLOW, "state": longer}
        if took:
            result["rules_ms"] = RuleTimes(prepared.ids, tuple(took))
        return result

    async def _evaluated(
        self,
        snapshot: RuleSnapshot,
        point: Point,
        p: Params,
        start: float,
        calls_now: Callable[[], Sequence[PastCall]] | None,
        begun: Asked,
        took: list[tuple[str, float]],
    ) -> Mapping[str, Any]:
        """Go on with an evaluation; nothing is in the ledger yet when this raises."""
        row = Row(rules_ms=took)
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
                begun=begun,
            )
            if row.started:
                await self.judging.first_answers(point, row, p.ctx.clock.monotonic_ms() - start)
        except BaseException:
            # Kept for `on_hook_failure`, which names the rule that took too long, or that ended the program.
            self._cancelled[p.ctx.execution_id] = row
            raise
        duration = p.ctx.clock.monotonic_ms() - start
        # Reported in full to people; the model only reads the fixed guidance.
        for fault in row.faults:
            if fault.error is not None:
                p.ctx.diagnostic(LAYER_ID, point, fault.error)
        faults = tuple((fault.rule_id, fault.reason) for fault in row.faults) if row.faults else ()
        entry = decision_entry(p, row.decision, duration, faults=faults, blocked=not row.waited)
        outcome = row.faults[0].reason if row.faults else None
        result = {"decision": row.decision, "state": self._with(p, entry, row=row), "outcome": outcome}
        if row.rules_ms:
            result["rules_ms"] = RuleTimes(*zip(*row.rules_ms, strict=True))
        if row.faults:
            result["faults"] = tuple([fault.words(point) for fault in row.faults])
        return result

    def on_hook_failure(self, p: HookFailure) -> Mapping[str, Any]:
        row = self._cancelled.pop(p.params.ctx.execution_id, None) or Row()
        named = () if row.waiting_for is None else (row.waiting_for,)
        decision = SteeringDecision(p.decision.action, p.decision.guidance, named)
        entry = decision_entry(p.params, decision, p.duration_ms) | {"failure": p.reason}
        state = self._with(p.params, entry, p.state, row=row)
        if p.reason in ("uninitialised", "disabled"):
            # The state that carries this entry must not pass for that of a layer that is ready.
            state["uninitialised"] = True
        if p.reason == "timeout" and named and self.book.snapshot.isolated(named[0]) == "thread":
            p.params.ctx.diagnostic(LAYER_ID, p.hook, ThreadLeftBehind(named[0]))
        return {"state": state, "rule_ids": named}

    def _with(self, p: Params, entry: LedgerEntry, state: Any = None, *, row: Row | None = None) -> dict[str, Any]:
        """Return a state with one more entry, which is that of a row of judges, if there is one."""
        state, ctx = p.state if state is None else state, p.ctx
        made = State({"ledger": [], "pendingAsync": None} if state is None else state)
        waiting, queue = made["pendingAsync"], self.late.queues.get(ctx.execution_id)
        if queue is None or waiting is not queue.pending:
            made["pendingAsync"] = self.late.pending(ctx, waiting)
        if self.scope != "execution":
            entry = Entry(entry)
        made["ledger"] = self._longer(made["ledger"], ctx, entry if row is None else row.fill(entry))
        return made

    def _lets_pass(self, execution_id: str, state: Any, response: ModelResponse, clock: Clock) -> LateLedger | None:
        """Return the state with an entry for a response, where no rule is about responses; None where there is one."""
        start = clock.monotonic_ms()
        if type(state) is not LateLedger or self.book.snapshot.prepared("after_model_call", None).rules:
            return None
        if not self._goes_on(state, execution_id):
            return None
        duration = clock.monotonic_ms() - start
        return state.longer(response_row(response, clock.now_ms(), duration), self.max_entries)

    def _goes_on(self, state: LateLedger, execution_id: str) -> bool:
        """Tell whether an entry is all that is to be added to a state: no edit of a rule, and no verdict that waits."""
        return not state.pending and self.book.change_count == self._known_changes.get(execution_id)

    def _longer(self, ledger: Sequence[LedgerEntry], ctx: ExecutionContext, entry: LedgerEntry) -> Ledger:
        """Return a ledger with the edits since its last entry and one more, new because others may hold the one there is."""
        longer = Ledger(ledger)
        if self.book.change_count != self._known_changes.get(ctx.execution_id):
            longer += self._edits(ctx)
        longer.append(entry)
        if (more := len(longer) - self.max_entries) > 0:
            del longer[:more]
        return longer

    def _entry(self, facts: LedgerEntry) -> LedgerEntry:
        return facts if self.scope == "execution" else Entry(facts)

    def _edits(self, ctx: ExecutionContext) -> Sequence[LedgerEntry]:
        """Return entries for the edits that are not in this execution's ledger yet."""
        count = self.book.change_count
        known = self._known_changes.get(ctx.execution_id, count)
        if known == count:
            return ()
        new = self.book.changes[known:]
        self._known_changes[ctx.execution_id] = known + len(new)
        now = ctx.clock.now_ms()
        return [self._entry(change_entry(change.change, change.rule_id, change.version, now)) for change in new]

    def _capped(self, ledger: Sequence[LedgerEntry]) -> Ledger:
        return Ledger(ledger[-self.max_entries :] if self.max_entries else ())

    def on_spawn(self, p: SpawnParams) -> Mapping[str, Any]:
        # Deep, because parent and child may run at the same time.
        ledger = [] if p.parent_state is None else copy.deepcopy(p.parent_state["ledger"])
        self._known_changes[p.child_ctx.execution_id] = self.book.change_count
        state: dict[str, Any] = {"ledger": ledger, "pendingAsync": self.late.open(p.child_ctx, [])}
        if self.scope != "execution":
            parent = p.parent_state or {}
            # What was called in this tree is in its history already.
            made = [] if p.child_ctx.past_calls() else parent.get("made", [])
            state["earlier"] = appended(earlier_calls(parent), made)
            state["ledger"] = Ledger([Entry(entry) for entry in ledger])
        return {"child_state": State(state)}

    def on_complete(self, p: CompleteParams) -> Mapping[str, Any]:
        now = p.ctx.clock.now_ms()
        kept = p[2] if type(p) is CompleteParams else None  # itself: a look at `state` would make it
        if type(kept) is LateLedger and self._goes_on(kept, p.ctx.execution_id):
            return {"state": kept.longer((p.outcome, now), self.max_entries)}
        entry = self._entry(outcome_entry(p.outcome, now))
        state = p.state or {"ledger": [], "pendingAsync": self.late.pending(p.ctx)}
        if self.scope != "execution":
            # Before the queue is closed: what is saved must not be carried over as well.
            self.late.saved(p.ctx)
            made = rows_of(p.ctx.past_calls()) or state.get("made", ())
            state = {key: value for key, value in state.items() if key != "calls"}
            state |= {"earlier": appended(earlier_calls(p.state), made), "made": []}
        state = State({**state, "ledger": self._longer(state["ledger"], p.ctx, entry)})
        if self.scope != "execution":
            key = resolve_scope_key(self.scope, p.ctx)
            self._left.pop(key, None)  # the newest last
            self._left[key] = state
            if len(self._left) > MAX_LEFT:
                del self._left[next(iter(self._left))]
        return {"state": state}

    def dispose(self, p: DisposeParams) -> None:
        self._known_changes.pop(p.ctx.execution_id, None)
        self._cancelled.pop(p.ctx.execution_id, None)
        self.late.close(p.ctx)

    def on_record(self, sink: EventSink, clock: Clock) -> Callable[[], None]:
        """Record every edit of the rules from now on, whether or not a turn is running."""

        def changed(change: RuleChange) -> None:
            old = None if change.old is None else rule_text(change.old)
            new = None if change.new is None else rule_text(change.new)
            sink.emit(RuleChanged(OUTSIDE, clock.now_ms(), change.rule_id, change.change, change.version, old, new))

        return self.book.listen(changed)


def _with_earlier(
    text: str, p: Params, now: Callable[[], Sequence[PastCall]] | None
) -> tuple[Params, Callable[[], Sequence[PastCall]] | None]:
    """Let the history begin with the calls of earlier turns, which a layer of a wider scope remembers."""
    history = ThreadHistory(text, p.history)
    return p._replace(history=history), None if now is None else lambda: ThreadHistory(text, now())


# Rules belong to the agent, not to one of its threads.
OUTSIDE: Final = Where("", "", 0)


class SteeringNotReady(RuntimeError):
    """The layer was called before it was initialised: an error of the run, which the policy turns into a deny."""


class ThreadLeftBehind(RuntimeError):
    """A rule that ran in a thread took too long; Python cannot stop a thread, so it runs until it ends by itself."""

    def __init__(self, rule_id: str) -> None:
        super().__init__(
            f"Rule {rule_id!r} took too long and was abandoned; its thread cannot be stopped and was left behind. "
            "Give the predicate a limit of its own, or write it as a condition with isolate=True."
        )
