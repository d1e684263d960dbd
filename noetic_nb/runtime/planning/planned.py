"""A planned model call as events: how the budget was split, and what is sent."""

from __future__ import annotations

from noetic_nb.events import BudgetsAllocated, ViewAssembled
from noetic_nb.memory import BudgetPlan, ProjectionPolicy
from noetic_nb.runtime.context.context import Context
from noetic_nb.runtime.planning.turn_plan import TurnPlan

__all__ = ["budgets_allocated", "view_assembled"]


def budgets_allocated(
    ctx: Context, now_ms: float, policy: ProjectionPolicy, system_tokens: int, budgets: BudgetPlan
) -> BudgetsAllocated:
    """Return what a run says of the split of a budget."""
    return BudgetsAllocated(
        ctx.where,
        now_ms,
        policy.token_budget,
        system_tokens,
        policy.response_reserve,
        tuple([(share.layer_id, share.allocated) for share in budgets.allocations]),
        budgets.history_budget,
    )


def view_assembled(ctx: Context, now_ms: float, plan: TurnPlan) -> ViewAssembled:
    """Return what a run says of a plan that is carried out."""
    return ViewAssembled(
        ctx.where,
        now_ms,
        ctx.step_count,
        plan.window,
        plan.fates,
        plan.layers,
        plan.layer_items,
        plan.policy.token_budget,
        plan.policy.response_reserve,
        plan.system,
        plan.tools,
        plan.framing,
        plan.history,
        plan.budgets.history_budget,
        plan.history_items,
        plan.floor,
    )
