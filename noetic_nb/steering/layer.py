"""Steering as a memory layer: rules before tool calls and after model responses, and a ledger of what they decided."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory.context import ExecutionContext
from noetic_nb.memory.decision import SteeringAction, SteeringDecision
from noetic_nb.memory.layer import MemoryHooks, MemoryLayer, Slot
from noetic_nb.memory.params import (
    AfterModelCallParams,
    BeforeToolCallParams,
    CompleteParams,
    DisposeParams,
    HookFailure,
    InitParams,
    RecallParams,
    SpawnParams,
)
from noetic_nb.memory.scope import MemoryScope
from noetic_nb.steering.evaluate import Evaluation, OnError, OnUnparseable, Params, Policy, evaluate
from noetic_nb.steering.feedback import Entry, FeedbackQueues
from noetic_nb.steering.rule import Point, SteeringRule
from noetic_nb.steering.rulebook import RuleBook
from noetic_nb.steering.verdict import ask_judge

__all__ = ["LAYER_ID", "steering"]

LAYER_ID: Final = "steering"

# Runtime specification, section 8: recall only delivers late verdicts, so little is enough.
RECALL_BUDGET: Final = {"min": 0, "max": 500}
TIMEOUTS_MS: Final = {"before_tool_call": 5_000, "after_model_call": 10_000}
# A synchronous predicate blocks the loop and cannot be timed out; longer than this is reported.
SLOW_PREDICATE_MS: Final = 50.0


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
        How often a judge is asked again after an answer that cannot be read.
    scope : {"execution", "thread", "resource", "global"}
        How long the ledger lives.
    on_error : {"deny", "allow", "raise"}
        What a rule means that raises, hangs or answers nonsense.
    on_unparseable : {"allow", "deny"}
        What a judge means whose answer cannot be read.
    timeouts : mapping of str to float, optional
        Milliseconds for ``before_tool_call`` (5 000) and ``after_model_call`` (10 000).

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
    .. [1] Runtime specification, section 8 (steering).

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
    for name, value, known in (
        ("on_error", on_error, ("deny", "allow", "raise")),
        ("on_unparseable", on_unparseable, ("allow", "deny")),
    ):
        if value not in known:
            raise NoeticConfigError(
                "INVALID_STEERING", f"There is no such {name}.", given=value, hint=f"Use one of {', '.join(known)}."
            )
    for name, count in (("max_ledger_entries", max_ledger_entries), ("max_retries", max_retries)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise NoeticConfigError("INVALID_STEERING", f"{name} is a number >= 0.", given=count)
    layer = _Steering(book, max_ledger_entries, Policy(on_error, on_unparseable, max_retries), scope)
    return MemoryLayer(
        id=LAYER_ID,
        slot=Slot.STEERING,
        scope=scope,
        budget=RECALL_BUDGET,
        hooks=MemoryHooks(
            init=layer.init,
            recall=layer.recall,
            before_tool_call=layer.before_tool_call,
            after_model_call=layer.after_model_call,
            on_spawn=layer.on_spawn,
            on_complete=layer.on_complete,
            dispose=layer.dispose,
            on_hook_failure=layer.on_hook_failure,
            delivered=layer.delivered,
        ),
        timeouts={**TIMEOUTS_MS, **(timeouts or {})},
        enforces=True,
        on_steering_error=on_error,
    )


class _Steering:
    """The hooks of one steering layer. What belongs to an execution is in its state or its feedback queue."""

    def __init__(self, book: RuleBook, max_entries: int, policy: Policy, scope: MemoryScope) -> None:
        self.book = book
        self.max_entries = max_entries
        self.policy = policy
        self.scope = scope
        self.queues = FeedbackQueues()

    async def init(self, p: InitParams) -> Mapping[str, Any]:
        # An execution's own namespace is empty when it begins, so there is nothing to read.
        stored = None if self.scope == "execution" else await p.storage.get("state")
        ledger: list[dict[str, Any]] = []
        waiting: list[Entry] = []
        if stored is not None:
            ledger, waiting = _checked(stored)
        return {"state": {"ledger": self._capped(ledger), "pendingAsync": self.queues.open(p.ctx, waiting)}}

    def recall(self, p: RecallParams) -> Mapping[str, Any] | None:
        waiting = self.queues.pending(p.ctx, None if p.state is None else p.state["pendingAsync"])
        message = self.queues.take(p.ctx, p.budget, p.ctx.tokenize)
        if message is None:
            return None
        # The state is returned so that a durable queue is written without what was taken.
        return {"items": [message], "state": {"ledger": [], **(p.state or {}), "pendingAsync": waiting}}

    def delivered(self, ctx: ExecutionContext, sent: frozenset[str]) -> None:
        self.queues.delivered(ctx, sent)

    async def before_tool_call(self, p: BeforeToolCallParams) -> Mapping[str, Any]:
        return await self._decide("before_tool_call", p)

    async def after_model_call(self, p: AfterModelCallParams) -> Mapping[str, Any]:
        return await self._decide("after_model_call", p)

    async def _decide(self, point: Point, p: Params) -> Mapping[str, Any]:
        if p.state is None or p.state.get("uninitialised"):
            raise SteeringNotReady(f"The steering layer was never initialised for execution {p.ctx.execution_id!r}.")
        clock = p.ctx.clock
        start = clock.monotonic_ms()
        result = await evaluate(
            self.book.snapshot, point, p, self.policy, ask_now=self._ask_now, ask_later=self._ask_later
        )
        duration = clock.monotonic_ms() - start
        for fault in result.faults:
            if fault.error is not None:
                p.ctx.diagnostic(LAYER_ID, point, fault.error)
        entry = self._entry(point, p, result.decision, duration, result)
        if duration > SLOW_PREDICATE_MS and not _waits(self.book.snapshot.applicable(point, _tool(p))):
            entry["slow"] = True  # nothing else could run meanwhile, and no limit could have stopped it
        return {"decision": result.decision, "state": self._with(p, entry)}

    def on_hook_failure(self, p: HookFailure) -> Mapping[str, Any]:
        point: Point = p.hook
        entry = self._entry(point, p.params, p.decision, p.duration_ms, None) | {"failure": p.reason}
        state = self._with(p.params, entry, p.state)
        if p.reason in ("uninitialised", "disabled"):
            state["uninitialised"] = True
        return {"state": state}

    def _entry(
        self, point: Point, p: Params, decision: SteeringDecision, duration_ms: float, result: Evaluation | None
    ) -> dict[str, Any]:
        entry: dict[str, Any] = {"timestamp": p.ctx.clock.now_ms()}
        if isinstance(p, BeforeToolCallParams):
            entry |= {"kind": "tool_call", "toolName": p.tool_name, "toolArgs": copy.deepcopy(dict(p.tool_args))}
        else:
            usage = p.response.usage
            entry |= {"kind": "model_turn", "tokenUsage": {"input": usage.input_tokens, "output": usage.output_tokens}}
        entry["action"] = str(decision.action)
        if decision.guidance is not None:
            entry["guidance"] = decision.guidance
        if decision.rule_ids:
            entry["ruleId"] = decision.rule_ids[0]
            entry["ruleIds"] = list(decision.rule_ids)
        entry["durationMs"] = duration_ms
        if result is not None and result.faults:
            entry["faults"] = [{"ruleId": fault.rule_id, "reason": fault.reason} for fault in result.faults]
        return entry

    def _with(self, p: Params, entry: dict[str, Any], state: Any = None) -> dict[str, Any]:
        state = p.state if state is None else state
        ledger = [] if state is None else state["ledger"]
        waiting = self.queues.pending(p.ctx, None if state is None else state["pendingAsync"])
        kept = {key: value for key, value in (state or {}).items() if key not in ("ledger", "pendingAsync")}
        return {"ledger": self._capped([*ledger, entry]), "pendingAsync": waiting, **kept}

    def _capped(self, ledger: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return ledger[-self.max_entries :] if self.max_entries else []

    async def _ask_now(self, rule: SteeringRule, p: Params) -> SteeringDecision | None:
        asking = asyncio.ensure_future(self._verdict(rule, p))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            # Too late for this call, but not lost: a deny that arrives now is queued for the next prompt.
            self.queues.form(p.ctx, self._entry_of(rule, p, asking))
            raise

    def _ask_later(self, rule: SteeringRule, p: Params) -> None:
        self.queues.form(p.ctx, self._entry_of(rule, p, self._verdict(rule, p)))

    async def _verdict(self, rule: SteeringRule, p: Params) -> SteeringDecision | None:
        assert rule.llm_eval is not None
        decision, _ = await ask_judge(rule.llm_eval, p, max_retries=self.policy.max_retries)
        return decision

    async def _entry_of(
        self, rule: SteeringRule, p: Params, verdict: Awaitable[SteeringDecision | None]
    ) -> Entry | None:
        try:
            decision = await verdict
        except Exception as exc:
            point = "before_tool_call" if isinstance(p, BeforeToolCallParams) else "after_model_call"
            p.ctx.diagnostic(LAYER_ID, point, exc)
            return None
        if decision is None or decision.action is SteeringAction.ALLOW:
            return None
        return {"ruleId": rule.id, "guidance": decision.guidance or f"Rule {rule.id}: {decision.action}"}

    def on_spawn(self, p: SpawnParams) -> Mapping[str, Any]:
        ledger = [] if p.parent_state is None else copy.deepcopy(p.parent_state["ledger"])
        return {"child_state": {"ledger": ledger, "pendingAsync": self.queues.open(p.child_ctx, [])}}

    def on_complete(self, p: CompleteParams) -> Mapping[str, Any]:
        entry = {"kind": "custom", "timestamp": p.ctx.clock.now_ms(), "custom": {"outcome": p.outcome}}
        state = p.state or {"ledger": [], "pendingAsync": self.queues.pending(p.ctx)}
        if self.scope != "execution":
            self.queues.saved(p.ctx)
        return {"state": {**state, "ledger": self._capped([*state["ledger"], entry])}}

    def dispose(self, p: DisposeParams) -> None:
        self.queues.close(p.ctx)


def _tool(p: Params) -> str | None:
    return p.tool_name if isinstance(p, BeforeToolCallParams) else None


def _waits(rules: Iterable[SteeringRule]) -> bool:
    """Tell whether any of the rules may wait for something, so that its time is not the loop's."""
    return any(
        rule.llm_eval is not None or rule.isolate or inspect.iscoroutinefunction(rule.predicate) for rule in rules
    )


class SteeringNotReady(RuntimeError):
    """The layer was asked before it was initialised: an error of the run, which the policy turns into a deny."""


def _checked(stored: Any) -> tuple[list[dict[str, Any]], list[Entry]]:
    """Return ledger and queue of a stored state.

    Raises
    ------
    TypeError
        If it is not the state of a steering layer.
    """
    ledger = stored.get("ledger") if isinstance(stored, Mapping) else None
    waiting = stored.get("pendingAsync", []) if isinstance(stored, Mapping) else None
    fine = (
        isinstance(ledger, list)
        and all(isinstance(entry, dict) for entry in ledger)
        and isinstance(waiting, list)
        and all(isinstance(e, dict) and {"ruleId", "guidance"} <= set(e) for e in waiting)
    )
    if not fine or ledger is None or waiting is None:
        raise TypeError(f"The stored state of the steering layer is damaged: {stored!r:.200}.")
    return ledger, waiting
