"""One llm step: its input, its rounds of answers and tools, its output."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import Item, assistant_text, input_message
from noetic_nb.models._client import CUT_OFF, ModelResponse
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.keeping import keeper_of
from noetic_nb.runtime._context.messages import ItemOrigin, TurnInput, append_input, as_input_items, query_of
from noetic_nb.runtime._context.protocols import StepValue
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._execution.llm_step_run import LLMStepRun
from noetic_nb.runtime._execution.truncated_answers import unreadable
from noetic_nb.runtime._planning.turn_plan import budgets_event
from noetic_nb.steps import LLMStep
from noetic_nb.steps._function_tools import as_tools
from noetic_nb.steps._loops import StepMeta
from noetic_nb.steps._output_codec import CodecOutput, parse_output
from noetic_nb.steps._records import listed_tools
from noetic_nb.steps._schema import OutputSchema

# After the last round of tools, the number of times that "continue" is sent to the model, unlogged.
GRACE_ROUNDS: Final = 3


async def _chosen(value: StepValue, ctx: RunningExecution) -> Any:
    """Return the value of a step's field, which may be a function of the context."""
    if not callable(value):
        return value
    made = value(ctx)
    return await made if hasattr(made, "__await__") else made


async def _begin(engine: Engine, step: LLMStep, ctx: RunningExecution) -> LLMStepRun:
    """Resolve model, instructions and tools, in this order."""
    model = step.model if isinstance(step.model, str) else await _chosen(step.model, ctx)
    if not isinstance(model, str) or not model.strip():
        what = f"The llm step {step.id!r} has no model."
        hint = "Its function must return a name."
        raise NoeticConfigError("MISSING_MODEL", what, given=model, hint=hint, step_id=step.id)
    instructions = step.instructions
    if callable(instructions):
        instructions = await _chosen(instructions, ctx)
    run = LLMStepRun(engine, step, ctx, model, str(instructions or ""))
    if callable(step.tools):
        tools = await _chosen(step.tools, ctx)
        # As in a list: None for all the agent's tools, an empty list for none.
        listed = None if tools is None else listed_tools(LLMStep(id=step.id, model=model, tools=as_tools(tools) or ()))
        run.tools = engine.offered(engine.setups.tools_of(listed), ctx)
    return run


async def run_llm(engine: Engine, step: LLMStep, value: StepValue, ctx: RunningExecution) -> StepValue:
    """Run an llm step; returns the text of its last assistant message, or the value parsed from it."""
    if step.emit is not True:
        engine = engine.showing(step)
    if isinstance(step.model, str) and not callable(step.instructions) and not callable(step.tools):
        run = LLMStepRun(engine, step, ctx, step.model, step.instructions or "")
    else:
        run = await _begin(engine, step, ctx)
    is_logged = isinstance(value, TurnInput) and value.is_in(ctx.item_log)
    items = () if is_logged else as_input_items(engine, value, step.id)
    if items:
        # Only the user's input to the turn counts as the user's; outputs of other steps and texts from code do not.
        made_by: ItemOrigin = "user" if isinstance(value, TurnInput) or ctx.parent is not None else "step"
        logged, run.requests = await append_input(engine, ctx, run.hook_ctx, items, made_by)
        ctx.query = query_of(logged) or ctx.query
    if ctx.rerenders:
        run.requests, ctx.rerenders = (*ctx.rerenders, *run.requests), ()
    if engine.sink is not None:
        now = engine.clock.now_ms()
        engine.sink.emit(budgets_event(ctx.where, now, run.policy, run.system_tokens, run.budgets))
    if "recall" in engine.stack.hooks:
        await run.recall()
    ctx.recalled = run.recalled
    response, calls = await _rounds(run)
    if run.requests:  # requested after the last model call of this step, so due at the next step
        ctx.rerenders += run.requests
    made = tuple(run.produced)
    ctx.last_step_meta = tuple.__new__(StepMeta, (calls, run.usage, run.cost, made, response.finish_reason))
    if "store" in engine.stack.hooks:
        # Stored before any layer sees the answer.
        if engine.remembering:
            await keeper_of(engine).keep(engine, ctx, only_results=True)
        whole = tuple.__new__(ModelResponse, (made, run.usage, run.cost or None, *response[3:]))
        await engine.stack.store(run.hook_ctx, response=whole, log=ctx.item_log)
        run.raise_stop()
    if ctx.tree.limits is not None:
        ctx.check_limits()
    text = assistant_text(made)
    ctx.answer = (made[0], text) if text and len(made) == 1 else None
    # A round that only calls tools has not answered yet, so there is no output to parse.
    return text if step.output is None or calls else _output(run, step.output, text, response)


async def _rounds(run: LLMStepRun) -> tuple[ModelResponse, tuple[Item, ...]]:
    """Run the called tools until an answer calls none; returns the last answer and its calls."""
    step = run.step
    # A step of one round is part of a loop that has its own limits.
    rounds = step.tool_rounds + (GRACE_ROUNDS if step.tool_rounds > 1 else 0)
    for number in range(rounds):
        if number >= step.tool_rounds > 1:
            run.ephemeral = (input_message("continue", ids=run.engine.ids),)
        if run.requests:
            await run.rerender()
        response, calls = await run.answer_whole()
        if not calls:
            return response, calls
        await run.run_calls(calls)
    if step.tool_rounds > 1:
        what = f"The llm step {step.id!r} was still calling tools after {rounds} rounds"
        hint = "Raise `tool_rounds`, or steer the agent away from its loop."
        raise NoeticError("step_failed", what, hint=hint, step_id=step.id, retries_exhausted=False)
    return response, calls


def _output(run: LLMStepRun, output: OutputSchema | CodecOutput, text: str, response: ModelResponse) -> StepValue:
    try:
        value = parse_output(output, text, run.step.id, run.reading)
    except NoeticError as exc:
        if response.finish_reason not in CUT_OFF:
            raise
        raise unreadable(exc, text, response, run.step.id) from exc
    ctx = run.ctx
    if ctx.record is not None:
        ctx.record.step(ctx.frames).text = text
    return value
