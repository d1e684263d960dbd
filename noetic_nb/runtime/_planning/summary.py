"""Replace items that do not fit by a summary if the policy requires one.

Room for the summary is reserved first, so that every item is either sent or covered by it. A summary covers a little
more than necessary and is used until the history has outgrown it; the next one is made from it and the items since. If
no summary can be made, the view is truncated and the reason reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetic_nb.events import ContextCompacted
from noetic_nb.items import Item, assistant_text, input_message, item_text
from noetic_nb.items._build import content_tokens
from noetic_nb.layers._helpers.considered import cut_block
from noetic_nb.memory import ProjectionPolicy
from noetic_nb.memory._hooks.recall import RecallEntry
from noetic_nb.models._client import ModelRequest
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.runtime._context.sent_history import SUMMARY_ORIGIN
from noetic_nb.runtime._planning.turn_plan import TurnPlan

_REQUEST: Final = (
    "Summarise the conversation above for an assistant that will go on with it and no longer sees it. Keep names, "
    "numbers, decisions and open questions. Answer with the summary only."
)
# The share of the room for items that a summary may take; more would displace the history that it complements.
SUMMARY_SHARE: Final = 0.25
# The share of the still sent items that it also covers, so that not every turn needs a new one.
AHEAD_SHARE: Final = 0.25


async def summarised(
    engine: Engine,
    ctx: RunningExecution,
    model: str,
    policy: ProjectionPolicy,
    plan: TurnPlan,
    replan: Callable[[tuple[RecallEntry, ...]], TurnPlan],
) -> TurnPlan:
    """Return a plan with a summary of the history that `plan` leaves out, made by `replan`; otherwise `plan` itself."""
    limit = int(policy.view_budget(plan.system + plan.tools) * SUMMARY_SHARE)
    kept = policy.window_size or 0
    last = max(0, len(ctx.item_log) - kept)
    # A text of the maximum length: the room it takes decides which items have to be covered.
    room = _entry(engine, "word " * limit, limit)
    if room is None:
        return plan
    stop = min(replan((room,)).window[0], last)
    if stop <= 0:
        return plan
    ahead = min(stop + int((len(ctx.item_log) - stop) * AHEAD_SHARE), last)
    text = await _text(engine, ctx, policy, policy.overflow_model or model, stop, ahead)
    entry = _entry(engine, text, limit) if text else None
    return plan if entry is None else replan((entry,))


def _entry(engine: Engine, text: str, limit: int) -> RecallEntry | None:
    """Return a summary as a recalled item, cut to its limit; None if there is no room at all."""
    block = cut_block(SUMMARY_ORIGIN, text, limit, engine.tokenizer)
    if block is None:
        return None
    item = input_message(block, "developer", ids=engine.ids)
    return RecallEntry(SUMMARY_ORIGIN, (item,), content_tokens(item, engine.tokenizer))


async def _text(
    engine: Engine, ctx: RunningExecution, policy: ProjectionPolicy, model: str, stop: int, ahead: int
) -> str:
    """Return a summary that covers at least the first `stop` items, or an empty text if it cannot be made."""
    cache = engine.summaries.setdefault(ctx.thread_id, {})
    covered = max(cache, default=0)
    if covered >= stop:
        return cache[covered]
    try:
        # In chunks that fit a request of this policy: a first summary may have a long history to read.
        while covered < ahead:
            end = _chunk_end(ctx, covered, ahead, policy.view_budget(0))
            written = await _written(engine, ctx, model, cache.get(covered, ""), tuple(ctx.item_log[covered:end]))
            _report(engine, ctx, written, end)
            cache.clear()  # a shorter one is never needed again
            cache[end], covered = written, end
    except Exception as exc:
        ctx.report_problem("summary_failed", SUMMARY_ORIGIN, "project_history", exc)
        engine.report(ctx, exc, SUMMARY_ORIGIN)
        return ""
    return cache[covered]


def _report(engine: Engine, ctx: RunningExecution, text: str, end: int) -> None:
    """Emit the compaction: from now on a summary replaces the first `end` items."""
    if engine.sink is not None:
        item = input_message(text, "developer", ids=engine.ids)
        before = sum(map(ctx.item_log.items.token_count, range(end)))
        counts = (end, (item,), before, content_tokens(item, engine.tokenizer))
        now = engine.clock.now_ms()
        engine.sink.emit(
            ContextCompacted(ctx.where, now, SUMMARY_ORIGIN, *counts, replaced=((0, end),), trigger="auto")
        )


def _chunk_end(ctx: RunningExecution, start: int, stop: int, budget: float) -> int:
    left, end = budget, start
    while end < stop and (end == start or ctx.item_log.items.token_count(end) <= left):
        left -= ctx.item_log.items.token_count(end)
        end += 1
    return end


async def _written(engine: Engine, ctx: RunningExecution, model: str, before: str, items: tuple[Item, ...]) -> str:
    lines = [f"Summary of what came before: {before}"] if before else []
    lines += [f"{item.role or item['type']}: {item_text(item)}" for item in items]
    prompt = (input_message("\n".join(lines), ids=engine.ids), input_message(_REQUEST, ids=engine.ids))
    request = ModelRequest(model, prompt, purpose="summary", thread_id=ctx.thread_id)
    response, _ = await engine.call_model(ctx, request, step=ctx.step_count)
    return assistant_text(response.items)
