"""After a call: its planned tokens beside the billed ones. Reports impossible numbers, and lets a counter learn."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from noetic_nb.items._log import ItemView
from noetic_nb.redact import redact_head
from noetic_nb.runtime._execution.planned_step import PlannedStep
from noetic_nb.runtime._planning.turn_plan import TurnPlan
from noetic_nb.tokenizers._factors import Tally
from noetic_nb.tokenizers._learning import CalibratedTokenizer
from noetic_nb.tokenizers._reconciling import percent, reconciled
from noetic_nb.tokens import estimate_tokens, known_error, tokenizer_name

__all__ = ["Billed", "reconcile"]

# Of so many conversations the last call is kept.
MAX_BILLED: Final = 256
_WORDS: Final = {
    "missing": "reported no usage, so that its count is planned only and nothing is learned from it",
    "negative": "reported {reported} input tokens, which cannot be; its count is planned only",
    "backwards": "reported {reported} input tokens, less than {before} for the request before, which it has all of",
    "disagrees": "reported {reported} input tokens for a request that {counter} counted as {planned}",
}


class Billed(NamedTuple):
    """The last request of a conversation, as far as the next one is compared with it."""

    model: str
    instructions: str
    tools: Any
    start: int
    size: int
    is_log: bool
    """Whether it was a stretch of the log and nothing else."""
    reported: int
    tally: Tally | None

    def is_begun_by(self, before: Billed) -> bool:
        """Tell whether all items of the earlier request are sent again, in front of the new ones."""
        same = (self.model, self.instructions, self.start) == (before.model, before.instructions, before.start)
        return same and self.is_log and before.is_log and self.tools is before.tools and self.size >= before.size


def reconcile(run: PlannedStep, plan: TurnPlan, reported: int) -> None:
    """Compare the plan of a call with its usage: warn of impossible numbers, and let a learning counter learn from the rest."""
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
    if run.ephemeral:  # a request to continue is sent beside the plan
        return
    is_log = isinstance(plan.items, ItemView)
    now = Billed(run.model, run.instructions, run.tools.specs, plan.window[0], len(plan.items), is_log, reported, None)
    known = before if before is not None and now.is_begun_by(before) else None
    found = reconciled(plan.total_tokens, reported, before=None if known is None else known.reported)
    learns = isinstance(counter, CalibratedTokenizer)
    if found.problem is not None and (learns or found.problem != "missing"):
        words = _WORDS[found.problem].format(
            reported=reported,
            planned=found.planned,
            before=None if known is None else known.reported,
            counter=f"{tokenizer_name(counter)} ({percent(known_error(counter))})",
        )
        ctx.warn(f"usage_{found.problem}", f"Model {run.model!r} {words}.")
    if found.problem in ("missing", "negative", "backwards"):
        return
    if isinstance(counter, CalibratedTokenizer):
        if known is not None and known.tally is not None:
            tally = known.tally + counter.tally(plan.items[known.size :])
        else:
            tally = counter.tally(plan.items, instructions=run.instructions, tools=run.tools.specs)
        same = before is not None and before.model == run.model
        past = (before.tally, before.reported) if same and before is not None and before.tally is not None else None
        counter.calibration.observe(run.model, tally, reported, before=past)
        now = now._replace(tally=tally)
    billed[key] = now
    if len(billed) > MAX_BILLED:
        del billed[next(iter(billed))]
