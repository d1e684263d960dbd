"""Replace what does not fit by a summary, where the policy asks for it.

A summary is made once for each stretch of history and kept with the execution's thread; where it cannot be made, the
view is truncated and the reason reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from noetic_nb.items import assistant_text, content_tokens, input_message, item_text
from noetic_nb.memory import ProjectionPolicy, RecallEntry
from noetic_nb.models.base import ModelRequest
from noetic_nb.runtime.context import Context
from noetic_nb.runtime.engine import Engine
from noetic_nb.runtime.plan import TurnPlan

__all__ = ["SUMMARY_ORIGIN", "summarised"]

SUMMARY_ORIGIN: Final = "summary"

_log: Final = logging.getLogger("noetic_nb")
_ASK: Final = (
    "Summarise the conversation above for an assistant that will go on with it and no longer sees it. Keep names, "
    "numbers, decisions and open questions. Answer with the summary only."
)
# A summary may take this share of what is left for items; more would push out the history it stands beside.
SUMMARY_SHARE: Final = 0.25


async def summarised(
    engine: Engine,
    ctx: Context,
    model: str,
    policy: ProjectionPolicy,
    plan: TurnPlan,
    replan: Callable[[tuple[RecallEntry, ...]], TurnPlan],
) -> TurnPlan:
    """Return a plan in which a developer message stands for the history that `plan` leaves out.

    Parameters
    ----------
    model : str
        Writes the summary, unless the policy names another.
    plan : TurnPlan
        The view without a summary; what lies before its window is summarised.
    replan : callable
        Makes the plan again with further entries.
    """
    stop = plan.window[0]
    if policy.window_size:
        stop = min(stop, max(0, len(ctx.item_log) - policy.window_size))
    if stop <= 0:
        return plan
    text = await _text(engine, ctx, policy.overflow_model or model, stop)
    if not text:
        return plan
    limit = policy.view_budget(plan.system + plan.tools) * SUMMARY_SHARE
    body = text
    while body and engine.tokenizer(body) > limit:
        body = body[: len(body) // 2]
    if not body:
        return plan
    item = input_message(f"<summary>\n{body}\n</summary>", "developer", ids=engine.ids)
    return replan((RecallEntry(SUMMARY_ORIGIN, (item,), content_tokens(item, engine.tokenizer)),))


async def _text(engine: Engine, ctx: Context, model: str, stop: int) -> str:
    """Return the summary of the first `stop` items, made once for each of these prefixes."""
    cache = engine.summaries.setdefault(ctx.thread_id, {})
    if stop in cache:
        return cache[stop]
    told = "\n".join(f"{item.role or item['type']}: {item_text(item)}" for item in ctx.item_log[:stop])
    items = (input_message(told, ids=engine.ids), input_message(_ASK, ids=engine.ids))
    try:
        response, _ = await engine.ask(
            ctx, ModelRequest(model, items, purpose="summary", thread_id=ctx.thread_id), step=ctx.step_count
        )
    except Exception as exc:
        _log.warning("History was truncated: its summary could not be made. %s", exc)
        engine.report(ctx, exc, SUMMARY_ORIGIN)
        return ""
    cache.clear()  # an older prefix is never asked for again
    cache[stop] = assistant_text(response.items)
    return cache[stop]
