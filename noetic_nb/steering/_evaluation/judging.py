"""Judges at run time: parsing, awaiting and requesting verdicts, beside the call or after the decision.

A late verdict is delivered to the model exactly once. Each execution has a queue. A recall moves waiting verdicts into
flight; only an explicit "not sent" puts them back. When a root execution ends, the remaining ones are carried to the
next execution of its thread, including verdicts of judges that are still running.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.events import SteeringDecided
from noetic_nb.items import Item, assistant_text, input_message, thaw
from noetic_nb.items._build import content_tokens
from noetic_nb.items._json_text import compact_json
from noetic_nb.memory._enforcement import FAILED_GUIDANCE, fault_text
from noetic_nb.memory._execution_context import ExecutionContext, HookModelRequest, as_response
from noetic_nb.memory._hook_timeout import is_cancelled
from noetic_nb.memory._steering_decision import ALLOW, SteeringAction, SteeringDecision
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.steering._evaluation.evaluate import UNREADABLE_GUIDANCE, Evaluation, Policy
from noetic_nb.steering._ledger import LedgerEntry, mark_late_fault
from noetic_nb.steering._predicates.bindings import Params
from noetic_nb.steering._predicates.guidance_template import capped
from noetic_nb.steering._rules.rule import LLMEval, Point, SteeringRule
from noetic_nb.sync import begun_anew
from noetic_nb.tokens import Tokenizer

# White space as trimmed by ECMAScript (ECMA-262, WhiteSpace and LineTerminator).
_SPACE: Final = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_TRIM: Final = re.compile(f"^[{_SPACE}]+|[{_SPACE}]+$")
_VERDICT: Final = re.compile(r"(allow|deny|guide)\b", re.ASCII | re.IGNORECASE)
_LEAD: Final = re.compile(f"^[:{_SPACE}]+")
# The reasoning at the start of an answer, up to its last end tag: verdicts quoted there do not count.
_THOUGHT: Final = re.compile(r"<(think|thinking|thought|reasoning)\b[^>]*>.*</\1>", re.DOTALL | re.IGNORECASE)
_MARKED: Final = re.compile(rf"[*_]+[{_SPACE}]*(deny|guide)(?![a-z0-9])(:?[*_]*)", re.ASCII | re.IGNORECASE)
_UNPRINTED: Final = re.compile(r"[^ -~]")

# `parse_verdict` reads exactly these three; with any other wording, judges explain instead of deciding.
_ANSWER_WITH: Final = (
    "Answer with exactly one of these three forms and nothing else: "
    "ALLOW, or DENY: followed by the reason, or GUIDE: followed by what to do instead."
)


def parse_verdict(text: str) -> SteeringDecision | None:
    r"""Read a judge's answer.

    Parameters
    ----------
    text : str
        The unmodified answer.

    Returns
    -------
    SteeringDecision or None
        None if the answer does not begin with ALLOW, DENY or GUIDE as a separate word, in any case. For a deny or a
        guide, the rest without leading colons and white space is the guidance. These two may be marked, as in
        ``**DENY**``, and follow ``<think>...</think>``; an ALLOW may not.

    References
    ----------
    .. [1] docs/behaviour/steering.md, "Judges".

    Examples
    --------
    >>> parse_verdict("Guide:  Keep Case ").guidance
    'Keep Case'
    >>> parse_verdict("ALLOWED") is None, parse_verdict("I think ALLOW") is None, parse_verdict("**ALLOW**") is None
    (True, True, True)
    >>> parse_verdict("<think>Is it safe?</think>**DENY**: no").guidance
    'no'
    """
    # Not str.strip: Python and ECMAScript define white space differently, and verdicts must not depend on that.
    trimmed = _TRIM.sub("", text)
    # Only at the beginning, because a later word may be quoted from the judged call.
    match = _VERDICT.match(trimmed)
    if match is None:
        thought = _THOUGHT.match(trimmed)
        trimmed = _TRIM.sub("", trimmed[thought.end() :]) if thought is not None else trimmed
        match = _MARKED.match(trimmed) or _VERDICT.match(trimmed)
        if match is None or match.group(1).lower() == "allow":
            return None
    action = SteeringAction(match.group(1).lower())
    if action is SteeringAction.ALLOW:
        return SteeringDecision(action)
    guidance = _TRIM.sub("", _LEAD.sub("", trimmed[match.end() :]))
    if match.re is _MARKED and match.group(2)[-1:] not in ("*", "_"):  # **DENY: no**
        guidance = guidance.rstrip("*_")
    return SteeringDecision(action, guidance or None)


def _one_line(text: str) -> str:
    """Return a text with every invisible character escaped as in JSON."""
    return _UNPRINTED.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)


def request_verdict(judge: LLMEval, params: BeforeToolCallParams | AfterModelCallParams) -> Any:
    """Call a judge once; return the client's result, which may be awaitable. Raises ``MISSING_CALL_MODEL``."""
    call_model: Any = params.ctx.call_model
    if isinstance(params, BeforeToolCallParams):
        context = _one_line(f"Tool: {params.tool_name}, Args: {compact_json(thaw(params.tool_args))}")
    else:
        context = f"Response items: {len(params.response.items)}"
    prompt = input_message(f"{judge.prompt}\n\n{context}\n\n{_ANSWER_WITH}", ids=params.ctx.ids)
    return call_model(HookModelRequest(judge.model, (prompt,), purpose="judge"))


async def call_judge(
    judge: LLMEval, params: BeforeToolCallParams | AfterModelCallParams, *, max_retries: int, first: Any = None
) -> tuple[SteeringDecision | None, int]:
    """Call a judge until its answer can be parsed; return the decision or None, and the number of calls."""
    for call in range(1, max_retries + 2):
        answer = first if call == 1 and first is not None else request_verdict(judge, params)
        if hasattr(answer, "__await__"):
            answer = await answer
        decision = parse_verdict(assistant_text(as_response(answer).items))
        if decision is not None:
            return decision, call
    return None, max_retries + 1


QueuedVerdict: TypeAlias = dict[str, str]
"""``{"ruleId": ..., "guidance": ...}``, as in the layer's state."""


def feedback_message(entries: list[QueuedVerdict], ctx: ExecutionContext) -> Item:
    """Return the developer message that delivers verdicts, one line each."""
    lines = [f"[{entry['ruleId']}] {entry['guidance']}" for entry in entries]
    return input_message("\n".join(["<steering_feedback>", *lines, "</steering_feedback>"]), "developer", ids=ctx.ids)


@dataclass(slots=True)
class Queue:
    """The verdicts of one execution: waiting, and in flight in a message."""

    thread_id: str
    depth: int
    pending: list[QueuedVerdict] = field(default_factory=list)
    in_flight: dict[str, list[QueuedVerdict]] = field(default_factory=dict)
    saved: list[QueuedVerdict] = field(default_factory=list)
    ended: bool = False


class LateVerdicts:
    """The queues of one steering layer, one per execution."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        """By execution."""
        self._carried: dict[str, list[QueuedVerdict]] = {}
        # asyncio holds tasks weakly, so an unreferenced task may be collected before it is done.
        self._running: set[asyncio.Task[None]] = set()

    def open(self, ctx: ExecutionContext, entries: list[QueuedVerdict]) -> list[QueuedVerdict]:
        """Begin an execution's queue and return its live list of waiting entries."""
        queue = self._queue(ctx)
        # Changed in place, never replaced: the layer's state holds this list.
        if entries or queue.pending:
            queue.pending[:] = entries
        # Never to a child, which is another conversation that the verdict is not about.
        if ctx.depth == 0 and self._carried:
            queue.pending += self._carried.pop(ctx.thread_id, [])
        return queue.pending

    def _queue(self, ctx: ExecutionContext) -> Queue:
        found = self.queues.get(ctx.execution_id)
        if found is None:
            found = self.queues[ctx.execution_id] = Queue(ctx.thread_id, ctx.depth, [], {}, [])
        return found

    def pending(self, ctx: ExecutionContext, stated: list[QueuedVerdict] | None = None) -> list[QueuedVerdict]:
        """Return the live list of waiting entries; a list that replaced it in the layer's state is used instead."""
        queue = self._queue(ctx)
        # The layer's state may have been replaced: the list in it is the valid one.
        if stated is not None and stated is not queue.pending:
            queue.pending = stated
        return queue.pending

    def take(self, ctx: ExecutionContext, budget: float, tokenize: Tokenizer) -> Item | None:
        """Put as many entries as fit into one message and into flight; the first always goes, cut if necessary."""
        queue = self._queue(ctx)
        if not queue.pending:
            return None
        count = len(queue.pending)
        message = feedback_message(queue.pending, ctx)
        while count > 1 and content_tokens(message, tokenize) > budget:
            count -= 1
            message = feedback_message(queue.pending[:count], ctx)
        taken = queue.pending[:count]
        if count == 1 and content_tokens(message, tokenize) > budget:
            cut = self._cut(taken[0], ctx, budget, tokenize)
            if cut is None:
                return None
            message = cut
        del queue.pending[:count]
        queue.in_flight[message["id"]] = taken
        return message

    @staticmethod
    def _cut(entry: QueuedVerdict, ctx: ExecutionContext, budget: float, tokenize: Tokenizer) -> Item | None:
        # By bisection, because tokens are not proportional to characters, and a tokenizer may be slow.
        low, high, best = 0, len(entry["guidance"]), None
        while low <= high:
            middle = (low + high) // 2
            message = feedback_message([{**entry, "guidance": entry["guidance"][:middle] + "…"}], ctx)
            if content_tokens(message, tokenize) <= budget:
                best, low = message, middle + 1
            else:
                high = middle - 1
        return best

    def delivered(self, ctx: ExecutionContext, sent: frozenset[str]) -> None:
        """Receive the ids of sent items: verdicts in flight that were not sent wait again, at the front."""
        queue = self._queue(ctx)
        for item_id, entries in list(queue.in_flight.items()):
            del queue.in_flight[item_id]
            # In place and at the front: verdicts stay in the order of the calls.
            if item_id not in sent:
                queue.pending[:0] = entries

    def queue_later(self, ctx: ExecutionContext, verdict: Coroutine[Any, Any, QueuedVerdict | None]) -> None:
        """Await a verdict in the background and queue it, if there is one; this may outlive the execution."""
        queue = self._queue(ctx)

        async def run() -> None:
            entry = await verdict
            if entry is not None:
                # Looked up only now, because the execution may have ended while the judge was running.
                self._destination(queue).append(entry)

        task = asyncio.get_running_loop().create_task(run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _destination(self, queue: Queue) -> list[QueuedVerdict]:
        """Return the queue for a verdict: its execution's, or that of the thread's current or next root execution."""
        if not queue.ended:
            return queue.pending
        for other in self.queues.values():
            if other.thread_id == queue.thread_id and other.depth == 0:
                return other.pending
        return self._carried.setdefault(queue.thread_id, [])

    def saved(self, ctx: ExecutionContext) -> None:
        """Mark the waiting verdicts as stored in durable state, from which the next execution loads them."""
        queue = self._queue(ctx)
        queue.saved = list(queue.pending)

    def close(self, ctx: ExecutionContext) -> None:
        """End an execution's queue: undelivered verdicts go to the thread's next root execution."""
        queue = self.queues.pop(ctx.execution_id, None)
        if queue is None:
            return
        queue.ended = True
        if not queue.pending:  # the usual case
            return
        # Compared by identity: two judges may give the same text, and each is delivered once.
        left = [entry for entry in queue.pending if not any(entry is kept for kept in queue.saved)]
        if left:
            self._carried.setdefault(queue.thread_id, []).extend(left)


LAYER_ID: Final = "steering"


@dataclass(slots=True)
class Row(Evaluation):
    """An evaluation, its future ledger entry, and the verdicts of its judges before or after it."""

    entry: LedgerEntry | None = None
    late_faults: tuple[tuple[str, str], ...] = ()

    def fill(self, entry: LedgerEntry) -> LedgerEntry:
        """Fill in the entry that is about to be written, with earlier failures."""
        self.entry = entry
        for rule_id, reason in self.late_faults:
            mark_late_fault(entry, rule_id, reason)
        return entry

    def failed(self, rule_id: str, reason: str) -> None:
        """Record a judge that failed after the decision."""
        if self.entry is None:
            self.late_faults += ((rule_id, reason),)
        else:
            mark_late_fault(self.entry, rule_id, reason)


class UnreadableVerdict(UserWarning):
    """A judge's answer was not a verdict."""

    def __init__(self, rule_id: str, meaning: str) -> None:
        super().__init__(
            f"The answer of the judge of rule {rule_id!r} could not be read as ALLOW, DENY or GUIDE, and was taken for "
            f"{meaning!r}. Set on_unparseable='deny', or use a model that follows the form."
        )


class Judging:
    """The judges of one steering layer, and their late verdicts."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.late = LateVerdicts()
        self.unreadable: Counter[str] = Counter()
        """The number of unreadable answers by rule."""

    async def now(self, rule: SteeringRule, judge: LLMEval, p: Params, row: Row) -> SteeringDecision | None:
        """Wait for a judge's verdict."""
        # A shielded task, because the hook's time limit ends the waiting, not the judge.
        verdict = asyncio.ensure_future(self._verdict(judge, p))
        try:
            return await asyncio.shield(verdict)
        except asyncio.CancelledError:
            # Too late for this call, but not lost: a late deny is recorded and queued for the next prompt.
            if not verdict.done():
                self.late.queue_later(p.ctx, self._late_verdict(row, rule, p, verdict, late=True))
            raise

    def not_read(self, rule_id: str, p: Params, point: Point) -> None:
        """Report an unreadable answer, in the warnings of the turn and for `check`."""
        self.unreadable[rule_id] += 1
        p.ctx.warn(LAYER_ID, point, UnreadableVerdict(rule_id, self.policy.on_unparseable))

    def later(self, rule: SteeringRule, judge: LLMEval, p: Params, row: Row) -> None:
        """Start a judge without waiting for its verdict."""
        # The model is called at once, so that a missing client is an error here and not in the background.
        verdict = asyncio.ensure_future(self._verdict(judge, p, request_verdict(judge, p)))
        self.late.queue_later(p.ctx, self._late_verdict(row, rule, p, verdict))

    async def _verdict(self, judge: LLMEval, p: Params, first: Any = None) -> SteeringDecision | None:
        asked = call_judge(judge, p, max_retries=self.policy.max_retries, first=first)
        decision: SteeringDecision | None = (await begun_anew(asked))[0]
        return decision

    async def _late_verdict(
        self,
        row: Row,
        rule: SteeringRule,
        p: Params,
        verdict: Awaitable[SteeringDecision | None],
        *,
        late: bool = False,
    ) -> QueuedVerdict | None:
        point: Point = "before_tool_call" if isinstance(p, BeforeToolCallParams) else "after_model_call"
        decision, reason, guidance, why = None, None, UNREADABLE_GUIDANCE, ""
        try:
            decision = await begun_anew(verdict)
            if decision is None:
                reason = why = "unparseable"
                self.not_read(rule.id, p, point)
        except (Exception, asyncio.CancelledError) as exc:
            if is_cancelled():  # this task itself should end, with the loop
                raise
            p.ctx.diagnostic(LAYER_ID, point, exc)
            reason, guidance, why = "error", FAILED_GUIDANCE, fault_text(exc, point)
        if reason is not None:
            # The call was decided long ago: the row keeps its action and records that a judge failed.
            row.failed(rule.id, reason)
            if self.policy.on_unparseable == "deny":
                decision = SteeringDecision(SteeringAction.DENY, guidance)
        # Recorded even for an allow, because the hook had denied for lack of this verdict.
        if (late or reason is not None) and p.ctx.sink is not None:
            outcome: Literal["late", "late_fault"] = "late" if reason is None else "late_fault"
            p.ctx.sink.emit(_late_event(rule, p, point, ALLOW if decision is None else decision, outcome, why))
        if decision is None or decision.action is SteeringAction.ALLOW:
            return None
        return {"ruleId": rule.id, "guidance": capped(decision.guidance or f"Rule {rule.id}: {decision.action}")}


def _late_event(
    rule: SteeringRule,
    p: Params,
    point: Point,
    decision: SteeringDecision,
    outcome: Literal["late", "late_fault"],
    why: str,
) -> SteeringDecided:
    call = p if isinstance(p, BeforeToolCallParams) else None
    return SteeringDecided(
        p.ctx.where,
        p.ctx.clock.now_ms(),
        LAYER_ID,
        point,
        None if call is None else call.tool_name,
        None if call is None else call.tool_args,
        decision.action.value,
        decision.guidance,
        (rule.id,),
        0.0,
        outcome,
        faults=((rule.id, why),) if why else (),
    )
