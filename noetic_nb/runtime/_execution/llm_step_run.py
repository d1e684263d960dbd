"""The answers of one llm step: send, review, log, run the called tools.

Every response is reviewed before any tool that it calls is run. If a rule guides, the model is called again, at most
three times; a response that is still guided after that is denied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noetic_nb._core.worker_threads import let_loop_run
from noetic_nb.errors import NoeticError
from noetic_nb.items import Item, function_call_output, input_message
from noetic_nb.items._build import response_text, with_own_call_ids
from noetic_nb.items._log import ItemView
from noetic_nb.memory import SteeringAction, SteeringDecision
from noetic_nb.memory._steering_decision import ALLOW, denied
from noetic_nb.models._client import CUT_OFF, NO_USAGE, ModelDelta, ModelResponse
from noetic_nb.redact import redact_head
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.messages import append_input, log_items, query_of
from noetic_nb.runtime._context.protocols import FollowedAnswer
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.step_errors import TurnStopped
from noetic_nb.runtime._execution import truncated_answers as answers
from noetic_nb.runtime._execution.approval import RESPONSE, approval
from noetic_nb.runtime._execution.planned_step import PlannedStep
from noetic_nb.runtime._execution.tool_call import call_tool
from noetic_nb.runtime._planning.turn_plan import TurnPlan
from noetic_nb.steps import LLMStep
from noetic_nb.steps._output_codec import CodecOutput, OutputReader
from noetic_nb.tokenizers._reconciling import percent, reconciled
from noetic_nb.tokens import estimate_tokens, known_error, tokenizer_name

if TYPE_CHECKING:
    from noetic_nb.tokenizers._factors import Tally

# Number of conversations whose last call is kept.
MAX_BILLED: Final = 256
_WORDS: Final = {
    "missing": "reported no usage, so that its count is planned only and nothing is learned from it",
    "negative": "reported {reported} input tokens, which cannot be; its count is planned only",
    "backwards": "reported {reported} input tokens, less than {before} for the request before, which it has all of",
    "disagrees": "reported {reported} input tokens for a request that {counter} counted as {planned}",
}


class Billed(NamedTuple):
    """The last request of a conversation, for comparison with the next one."""

    model: str
    instructions: str
    tools: Any
    start: int
    size: int
    is_log: bool
    """Whether it was a contiguous stretch of the log."""
    reported: int
    tally: Tally | None

    def is_begun_by(self, before: Billed) -> bool:
        """Tell whether this request repeats all items of the earlier one, followed by the new ones."""
        same = (self.model, self.instructions, self.start) == (before.model, before.instructions, before.start)
        return same and self.is_log and before.is_log and self.tools is before.tools and self.size >= before.size


def reconcile(run: PlannedStep, plan: TurnPlan, reported: int) -> None:
    """Compare the plan of a call with its usage: warn of impossible numbers, and calibrate a learning counter with valid ones."""
    ctx, counter = run.ctx, run.tokenizer
    fault = getattr(counter, "fault", None)
    if fault is not None:
        ctx.warn(
            "tokenizer_failed",
            f"The tokenizer {tokenizer_name(counter)!r} failed ({redact_head(fault, 200)}): the default estimate "
            f"counted instead, {percent(known_error(estimate_tokens))}.",
        )
    key = ctx.thread_id, "" if ctx.parent is None else ctx.id
    billed = run.engine.billed
    before = billed.pop(key, None)
    if run.ephemeral:  # a request to continue is sent in addition to the plan
        return
    is_log = isinstance(plan.items, ItemView)
    now = Billed(run.model, run.instructions, run.tools.specs, plan.window[0], len(plan.items), is_log, reported, None)
    known = before if before is not None and now.is_begun_by(before) else None
    found = reconciled(plan.total_tokens, reported, before=None if known is None else known.reported)
    # Any: the class of learning counters is only loaded if one is used.
    learning: Any = counter if hasattr(counter, "calibration") else None
    if found.problem is not None and (learning or found.problem != "missing"):
        words = _WORDS[found.problem].format(
            reported=reported,
            planned=found.planned,
            before=None if known is None else known.reported,
            counter=f"{tokenizer_name(counter)} ({percent(known_error(counter))})",
        )
        ctx.warn(f"usage_{found.problem}", f"Model {run.model!r} {words}.")
    if found.problem in ("missing", "negative", "backwards"):
        return
    if learning is not None:
        if known is not None and known.tally is not None:
            tally = known.tally + learning.tally(plan.items[known.size :])
        else:
            tally = learning.tally(plan.items, instructions=run.instructions, tools=run.tools.specs)
        same = before is not None and before.model == run.model
        past = (before.tally, before.reported) if same and before is not None and before.tally is not None else None
        learning.calibration.observe(run.model, tally, reported, before=past)
        now = now._replace(tally=tally)
    billed[key] = now
    if len(billed) > MAX_BILLED:
        del billed[next(iter(billed))]


# At most four model calls per response: a rule that no answer satisfies must not spend without limit.
MAX_GUIDED_RETRIES: Final = 3
DEFAULT_GUIDANCE: Final = "Adjust your last answer and try again."


class LLMStepRun(PlannedStep):
    def __init__(self, engine: Engine, step: LLMStep, ctx: RunningExecution, model: str, instructions: str) -> None:
        super().__init__(engine, step, ctx, model, instructions)
        self.incomplete = step.incomplete or engine.config.incomplete
        self.continued = 0
        """How often the last answer was continued."""
        self.produced: list[Item] = []
        self.usage, self.cost = NO_USAGE, 0.0
        self.answers: list[FollowedAnswer] = []
        """The answer in progress, if the turn is streamed."""
        self.on_delta: Callable[[ModelDelta], None] | None = None
        self.reading: OutputReader | None = None
        """The reader of the last answer, if a codec parses it while it is written."""

    async def respond(self) -> ModelResponse:
        """Call the model until a response is accepted."""
        guided = empty = 0
        begun: ModelResponse | None = None  # a truncated answer that is being continued
        ctx, engine = self.ctx, self.engine
        while True:
            if ctx.aborted:
                raise ctx.stopped()
            if ctx.tree.inbox and begun is None:
                await self.take_inbox()
            # Most steps have neither, and plan without waiting.
            is_chosen = "project_history" in engine.stack.hooks or self.policy.overflow == "summarize"
            plan = await self.planned() if is_chosen else self.plan()
            self.report_plan(plan)
            response, failed = await self.call(plan, is_continuation=begun is not None)
            if ctx.aborted:  # a client that ignores cancellation still returns
                raise ctx.stopped()
            if begun is not None:
                response = answers.joined(begun, response, engine)
            if response.finish_reason in CUT_OFF and self.incomplete == "error":
                raise answers.cut_error(response, self.model, self.step.id)
            if not response.items:
                empty += 1
                if empty > answers.MAX_EMPTY_RETRIES:
                    raise answers.empty_error(self.model, empty) from failed
                self.ephemeral = (input_message("continue", ids=engine.ids),)
                continue
            answers.raise_refusal(response, self.step.id)
            if answers.may_continue(response, self.incomplete, self.continued) and not _calls_of(response.items):
                begun = response
                self.continued += 1
                self.ephemeral = answers.asking_for_rest(response, engine)
                continue
            begun, self.ephemeral = None, ()
            if "after_model_call" not in engine.stack.hooks:
                return response
            response, decision = await self.review(response)
            if decision.action is SteeringAction.ALLOW:
                return response
            guided += 1
            if decision.action is not SteeringAction.GUIDE or guided > MAX_GUIDED_RETRIES:
                raise denied(decision, f"A response of model {self.model!r} was denied.", step_id=self.step.id)
            self.continued = 0
            self.settle_answer()
            guidance = input_message(decision.guidance or DEFAULT_GUIDANCE, "developer", ids=engine.ids)
            log_items(engine, ctx, [guidance], "guidance")

    async def call(self, plan: TurnPlan, *, is_continuation: bool) -> tuple[ModelResponse, NoeticError | None]:
        """Send one request. An error that means an empty answer is returned with one; all others are raised."""
        ctx, engine = self.ctx, self.engine
        hooks, tree = engine.stack.hooks, ctx.tree
        try:
            if not is_continuation and tree.follow:
                self.on_delta = self.listener("after_model_call" in hooks and engine.stack.reviews_responses())
            response, duration = await engine.call_model(
                ctx, self.request(plan), step=ctx.step_count, on_delta=self.on_delta
            )
            self._hook_ctx = None  # the spending has changed
            if self.tokenizer is not estimate_tokens:  # the estimate's error is known and shown with its counts
                reconcile(self, plan, response.usage.input_tokens)
            if "on_model_outcome" in hooks:
                await self.report_outcome(response, duration)
        except NoeticError as exc:
            if exc.kind.startswith("llm_") and exc.facts.get("step_id") is None:
                exc.facts["step_id"] = self.step.id  # clients know nothing of steps
            if not answers.is_asked_again(exc, self.incomplete, is_continuation=is_continuation):
                raise
            return ModelResponse(()), exc  # some clients raise where others return an empty answer
        return response, None

    async def answer_whole(self) -> tuple[ModelResponse, tuple[Item, ...]]:
        """Log an accepted answer and, if it was truncated, its continuations; returns the last part and its calls."""
        engine, ctx = self.engine, self.ctx
        while True:
            try:
                response = await self.respond()
            except BaseException:
                self.settle_answer()
                raise
            self.settle_answer(stands=True)
            logged = log_items(engine, ctx, response.items, "model")
            self.produced += logged
            self.usage, self.cost = self.usage + response.usage, self.cost + (response.cost or 0.0)
            ctx.tree.finish_reason = response.finish_reason
            calls = _calls_of(logged)  # from the log: a server may give several calls the same id
            if response.finish_reason not in CUT_OFF:
                self.continued = 0
                return response, calls
            if calls:
                answers.refuse_calls(engine, ctx, calls)
                calls = ()
            if not answers.may_continue(response, self.incomplete, self.continued):
                answers.warn_cut(ctx, response, self.model)
                return response, calls
            self.continued += 1

    def listener(self, is_reviewed: bool) -> Callable[[ModelDelta], None]:
        """Start forwarding the model's text to the streams of the turn and to the codec of the output."""
        self.settle_answer()
        self.answers = [follow(self.ctx, is_reviewed) for follow in self.ctx.tree.follow]
        listeners = [answer.add for answer in self.answers]
        if isinstance(self.step.output, CodecOutput):
            self.reading = OutputReader(self.step.output.codec)
            listeners.append(self.reading.take)

        def forward(delta: ModelDelta) -> None:
            for listener in listeners:
                listener(delta)

        return forward

    def settle_answer(self, *, stands: bool = False) -> None:
        """Tell the streams of the turn whether their answer was accepted."""
        answers, self.answers = self.answers, []
        for answer in answers:
            if stands:
                answer.stood()
            else:
                answer.take_back()

    async def take_inbox(self) -> None:
        """Log the messages that arrived while the agent was working."""
        inbox = self.ctx.tree.inbox
        if not inbox or self.ctx.parent is not None or self.ctx.model_calls == 0:
            return
        messages = list(inbox)
        inbox.clear()
        logged, requests = await append_input(
            self.engine, self.ctx, self.hook_ctx, [item for message in messages for item in message.take()], "user"
        )
        self.ctx.query = query_of(logged) or self.ctx.query
        self.requests += requests
        if self.requests:
            await self.rerender()

    async def report_outcome(self, response: ModelResponse, duration_ms: float) -> None:
        """Report the cost of the call to the layers, even if its response is rejected."""
        await self.engine.stack.model_outcome(
            self.hook_ctx,
            model=self.model,
            usage=response.usage,
            cost=response.cost,
            duration_ms=duration_ms,
            logprobs=response.logprobs,
        )

    async def review(self, response: ModelResponse) -> tuple[ModelResponse, SteeringDecision]:
        """Let the rules, and a person if they ask for one, decide on a response before any of its tools is run."""
        engine, ctx = self.engine, self.ctx
        # Reviewed with the final ids of its calls, as rules about calls see them.
        items = with_own_call_ids(response.items, ctx.item_log.has_call)
        if items is not response.items:
            response = response._replace(items=tuple(items))
        history = ctx.tree.calls.so_far()
        decision = await engine.stack.after_model_call(self.hook_ctx, response=response, history=history)
        stop = engine.stack.take_stop(self.hook_ctx) or decision.stop
        if stop is not None:
            raise TurnStopped(stop)
        if decision.action is SteeringAction.ASK:
            shown = {"text": response_text(response.items)}
            decision = await approval(engine, ctx, RESPONSE, shown, decision) or ALLOW
        return response, decision

    async def run_calls(self, calls: Sequence[Item]) -> None:
        """Run tools in order. Every call gets an answer in the log."""
        first = len(self.ctx.item_log)
        try:
            for call in calls:
                await self._run_call(call)
                await let_loop_run()
        except BaseException as exc:
            # Providers reject a log with an unanswered call, which would make the thread unusable.
            answered = {item.get("callId") for item in self.ctx.item_log.since(first)}
            left = [call for call in calls if call["callId"] not in answered]
            outputs = [
                function_call_output(call["callId"], self._left(call, exc), ids=self.engine.ids) for call in left
            ]
            log_items(self.engine, self.ctx, outputs, "tool")
            raise

    async def _run_call(self, call: Item) -> None:
        ctx = self.ctx
        hook_ctx = self.hook_ctx if self.engine.stack.hooks else None
        name = call.get("name")
        ctx.check_abort()
        ctx.check_limits()
        end = await call_tool(
            self.engine,
            ctx,
            hook_ctx,
            self.tools.find(name),
            name=str(name),
            arguments=call.get("arguments") or "",
            call_id=call["callId"],
        )
        output = function_call_output(call["callId"], end.output, ids=self.engine.ids)
        _, requests = await append_input(self.engine, ctx, hook_ctx, [output], "tool")
        if requests:
            self.requests += tuple([request for request in requests if request.timing == "immediate"])
            ctx.rerenders += tuple([request for request in requests if request.timing == "batched"])

    def _left(self, call: Item, error: BaseException) -> str:
        """Return the output for a call that was unanswered at the end of its turn: it may have run all the same."""
        for place in reversed(self.ctx.calls):
            if place.call.call_id == call["callId"] and place.call.execution_id == self.ctx.id:
                if place.call.output is not None:
                    return place.call.output
                break
        why = f"the turn was stopped: {error.stop.suggestion}" if isinstance(error, TurnStopped) else str(error)
        return f"Error: not run, {why or 'the turn was cancelled'}"


def _calls_of(items: Sequence[Item]) -> tuple[Item, ...]:
    return tuple([item for item in items if item["type"] == "function_call"])
