"""Handle an incomplete answer: truncated, empty, or only a refusal.

The llm step asks here whether to continue, with which items, and otherwise which error to raise. Nothing here calls a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetic_nb.errors import NoeticError
from noetic_nb.items import Item, function_call_output, input_message
from noetic_nb.items._item_checks import answer_item
from noetic_nb.models._client import ModelResponse
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.messages import log_items
from noetic_nb.runtime._context.running_execution import RunningExecution

# How often in a row an empty response is retried.
MAX_EMPTY_RETRIES: Final = 3
# How often a truncated answer is continued with incomplete="continue"; longer ones are runaways.
MAX_CONTINUATIONS: Final = 3

CONTINUE: Final = "Your answer was cut off. Continue it exactly where it stopped, without repeating anything."
NOT_RUN: Final = "Error: not run: the answer was cut off"


def may_continue(response: ModelResponse, incomplete: str, continued: int) -> bool:
    """Tell whether to ask for the rest of an answer. An answer that a content filter ended would be ended again."""
    return response.finish_reason == "length" and incomplete == "continue" and continued < MAX_CONTINUATIONS


def asking_for_rest(response: ModelResponse, engine: Engine) -> tuple[Item, ...]:
    """Return the unlogged items sent after the log to continue an answer."""
    said = [item for item in response.items if item["type"] == "message"]
    return (*said, input_message(CONTINUE, ids=engine.ids))


def is_asked_again(exc: NoeticError, incomplete: str, *, is_continuation: bool) -> bool:
    """Tell whether a client error means an answer that is requested again; otherwise set the reason to that of the answer."""
    if exc.facts.get("reason") == "truncated" and incomplete == "error":
        exc.facts["reason"] = "incomplete"
    return exc.facts.get("reason") in (("empty", "truncated") if is_continuation else ("empty",))


def warn_cut(ctx: RunningExecution, response: ModelResponse, model: str) -> None:
    """Add a warning to the reply that an answer was truncated."""
    why = "the limit of generated tokens was reached"
    if response.finish_reason == "content_filter":
        why = "the provider's content filter ended it"
    ctx.warn("answer_cut", f"The answer of model {model!r} was cut off: {why}.")


def refuse_calls(engine: Engine, ctx: RunningExecution, calls: Sequence[Item]) -> None:
    """Answer the calls of a truncated response with an error: their arguments may be incomplete."""
    outputs = [function_call_output(call["callId"], NOT_RUN, ids=engine.ids) for call in calls]
    # No await between the calls and their outputs: an abort in between would leave calls unanswered.
    log_items(engine, ctx, outputs, "tool")


def joined(begun: ModelResponse, more: ModelResponse, engine: Engine) -> ModelResponse:
    """Return an answer joined with its continuation: one message with both texts, unchanged."""
    items = list(begun.items)
    place = next((n for n in range(len(items) - 1, -1, -1) if items[n]["type"] == "message"), None)
    for item in more.items:
        if item["type"] == "message" and place is not None:
            # A new id: the provider's ids belong to half of the message each.
            fields = {**items[place], "id": engine.ids.new("item"), "status": item.get("status") or "completed"}
            items[place] = answer_item(Item(fields | {"content": (*items[place]["content"], *item["content"])}))
        elif item["type"] == "reasoning" and place is not None:
            items.insert(place, item)
            place += 1
        else:
            items.append(item)
    cost = None if begun.cost is None and more.cost is None else (begun.cost or 0.0) + (more.cost or 0.0)
    # An empty continuation says nothing about the answer, which therefore stays truncated.
    reason = more.finish_reason if more.items else begun.finish_reason
    logprobs = (*begun.logprobs, *more.logprobs)
    return ModelResponse(tuple(items), begun.usage + more.usage, cost, logprobs, more.model or begun.model, reason)


def cut_error(response: ModelResponse, model: str, step_id: str) -> NoeticError:
    """Return the error for a truncated answer, with incomplete="error"."""
    return NoeticError(
        "llm_failed",
        f"The answer of model {model!r} was cut off ({response.finish_reason})",
        hint="Raise `max_tokens`, or pass incomplete='continue' or 'return'.",
        model=model,
        reason="incomplete",
        finish_reason=response.finish_reason,
        step_id=step_id,
    )


def empty_error(model: str, count: int) -> NoeticError:
    """Return the error for a model that keeps returning empty answers."""
    what = f"Model {model!r} gave {count} empty answers in a row"
    return NoeticError("llm_failed", what, hint="Try again later, or use another model.", model=model, reason="empty")


def raise_refusal(response: ModelResponse, step_id: str) -> None:
    refusals: list[str] = []
    for item in response.items:
        if item["type"] != "message":
            if item["type"] == "function_call":
                return
            continue
        for part in item.get("content") or ():
            if part.get("type") == "refusal":
                refusals.append(str(part.get("refusal") or ""))
            elif part.get("text"):
                return
    if refusals:
        what = f"The model refused: {' '.join(refusals)}"
        hint = "Rephrase the request."
        raise NoeticError("llm_refused", what, hint=hint, step_id=step_id, refusal=" ".join(refusals))


def unreadable(exc: NoeticError, text: str, response: ModelResponse, step_id: str) -> NoeticError:
    """Return the error for a truncated answer that cannot be parsed as the step's output, given the parser's error."""
    return NoeticError(
        exc.kind,
        f"The answer of step {step_id!r} was cut off ({response.finish_reason}) and cannot be read: "
        f"{exc.validation_error}",
        given=text,
        hint="Raise `max_tokens`, or pass incomplete='continue'.",
        **exc.facts,
        finish_reason=response.finish_reason,
    )
