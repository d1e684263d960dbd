"""Handle an answer that is not whole: cut off, empty, or nothing but a refusal.

The llm step asks here whether to go on, with what, and which error it is where it does not. Nothing here calls a model.
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

# An empty response is tried again at most so often in a row.
MAX_EMPTY_RETRIES: Final = 3
# With incomplete="continue", an answer that was cut off is continued at most so often; longer ones are runaways.
MAX_CONTINUATIONS: Final = 3

CONTINUE: Final = "Your answer was cut off. Continue it exactly where it stopped, without repeating anything."
NOT_RUN: Final = "Error: not run: the answer was cut off"


def may_continue(response: ModelResponse, incomplete: str, continued: int) -> bool:
    """Tell whether to ask for the rest of an answer. An answer that a filter ended would be ended again."""
    return response.finish_reason == "length" and incomplete == "continue" and continued < MAX_CONTINUATIONS


def asking_for_rest(response: ModelResponse, engine: Engine) -> tuple[Item, ...]:
    """Return the items sent after the log, and not logged, to have an answer continued."""
    said = [item for item in response.items if item["type"] == "message"]
    return (*said, input_message(CONTINUE, ids=engine.ids))


def is_asked_again(exc: NoeticError, incomplete: str, *, is_continuation: bool) -> bool:
    """Tell whether an error of a client stands for an answer that is asked for again; else it gets that answer's reason."""
    if exc.facts.get("reason") == "truncated" and incomplete == "error":
        exc.facts["reason"] = "incomplete"
    return exc.facts.get("reason") in (("empty", "truncated") if is_continuation else ("empty",))


def warn_cut(ctx: RunningExecution, response: ModelResponse, model: str) -> None:
    """Put into the reply that an answer was cut off."""
    why = "the limit of generated tokens was reached"
    if response.finish_reason == "content_filter":
        why = "the provider's content filter ended it"
    ctx.warn("answer_cut", f"The answer of model {model!r} was cut off: {why}.")


def refuse_calls(engine: Engine, ctx: RunningExecution, calls: Sequence[Item]) -> None:
    """Answer the calls of a truncated response: their arguments may be incomplete."""
    outputs = [function_call_output(call["callId"], NOT_RUN, ids=engine.ids) for call in calls]
    # Nothing is awaited between the calls and their outputs: an abort in between would leave calls unanswered.
    log_items(engine, ctx, outputs, "tool")


def joined(begun: ModelResponse, more: ModelResponse, engine: Engine) -> ModelResponse:
    """Return an answer with its continuation: one message with the text of both, as they are."""
    items = list(begun.items)
    place = next((n for n in range(len(items) - 1, -1, -1) if items[n]["type"] == "message"), None)
    for item in more.items:
        if item["type"] == "message" and place is not None:
            # A new id: the provider knows its own as those of half the message.
            fields = {**items[place], "id": engine.ids.new("item"), "status": item.get("status") or "completed"}
            items[place] = answer_item(Item(fields | {"content": (*items[place]["content"], *item["content"])}))
        elif item["type"] == "reasoning" and place is not None:
            items.insert(place, item)
            place += 1
        else:
            items.append(item)
    cost = None if begun.cost is None and more.cost is None else (begun.cost or 0.0) + (more.cost or 0.0)
    # A continuation without a word says nothing about the answer, so that stays cut off.
    reason = more.finish_reason if more.items else begun.finish_reason
    logprobs = (*begun.logprobs, *more.logprobs)
    return ModelResponse(tuple(items), begun.usage + more.usage, cost, logprobs, more.model or begun.model, reason)


def cut_error(response: ModelResponse, model: str, step_id: str) -> NoeticError:
    """Return the error for an answer that was cut off, with incomplete="error"."""
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
    """Return the error for a model that says nothing, however often it is asked."""
    what = f"Model {model!r} gave {count} empty answers in a row"
    return NoeticError("llm_failed", what, hint="Try again later, or use another model.", model=model, reason="empty")


def raise_refusal(response: ModelResponse, step_id: str) -> None:
    """Raise for a response that is nothing but a refusal."""
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
    """Return the error for a cut-off answer that cannot be read as the step's output, from that of the reader."""
    return NoeticError(
        exc.kind,
        f"The answer of step {step_id!r} was cut off ({response.finish_reason}) and cannot be read: "
        f"{exc.validation_error}",
        given=text,
        hint="Raise `max_tokens`, or pass incomplete='continue'.",
        **exc.facts,
        finish_reason=response.finish_reason,
    )
