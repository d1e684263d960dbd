"""Ask a person to approve a call if a rule or a tool requires it. No callback, an error or an unclear answer means no.

There is no time limit for a person's decision; the enforcement hooks, which have one, are finished by then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from noetic_nb.events import SteeringDecided
from noetic_nb.items._frozen import own_copy
from noetic_nb.items._origins import Origin
from noetic_nb.memory import SteeringAction, SteeringDecision
from noetic_nb.runtime._context.protocols import Enforcing, SteeredExecution
from noetic_nb.sync import awaited

if TYPE_CHECKING:
    from noetic_nb.items._origin_index import Provenance

Outcome: TypeAlias = Literal["approved", "refused", "nobody", "error"]

RESPONSE: Final = "response"
"""Used in place of a tool name when a response needs approval; its args contain the ``text``."""

NO_APPROVAL: Final = "A person has to approve this call, and nobody did."


def _beside(
    approve: Callable[..., Any],
    question: str | None,
    rule_ids: tuple[str, ...],
    origins: Callable[[], Mapping[str, Origin]],
) -> dict[str, Any]:
    """Return the keyword arguments that `approve` accepts; `question` also goes to ``**kwargs``, the others only by name."""
    try:
        parameters = inspect.signature(approve).parameters
    except (TypeError, ValueError):  # a callable without a signature, such as some built-ins
        return {}
    found: dict[str, Any] = {}
    if "question" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        found["question"] = question
    if "rules" in parameters:
        found["rules"] = rule_ids
    if "origins" in parameters:
        found["origins"] = origins()
    return found


async def approval(
    engine: Enforcing,
    ctx: SteeredExecution,
    name: str,
    args: Mapping[str, Any],
    decision: SteeringDecision | None,
    provenance: Callable[[], Provenance] | None = None,
) -> SteeringDecision | None:
    """Ask the harness's `approve` about a tool or `RESPONSE` and record the answer: None for a yes, else the denial."""

    def origins() -> Mapping[str, Origin]:
        if provenance is None or (known := provenance()).is_empty:
            return {}
        return {argument: known.origin(value, args) for argument, value in args.items()}

    start = engine.clock.monotonic_ms()
    question = None if decision is None else decision.guidance
    rule_ids = () if decision is None else decision.rule_ids
    answer: Any = None  # any value of `approve`; only True means yes
    outcome: Outcome = "nobody"
    if engine.approve is not None:
        try:
            beside = _beside(engine.approve, question, rule_ids, origins)
            # A copy: a form that modifies it must not change the call or its record.
            answer = await awaited(engine.approve(name, own_copy(args), **beside))
            # `is True`: a text, a number or a mock that is merely truthy must not let a call through.
            outcome = "approved" if answer is True else "refused"
        except Exception as exc:
            ctx.report_problem("approval_failed", "approve", "before_tool_call", exc)
            outcome = "error"
    reason = answer if isinstance(answer, str) and answer else NO_APPROVAL
    refused = None if outcome == "approved" else SteeringDecision(SteeringAction.DENY, reason, rule_ids)
    if engine.sink is not None:
        engine.sink.emit(
            SteeringDecided(
                ctx.where,
                engine.clock.now_ms(),
                "approval",
                "after_model_call" if name == RESPONSE else "before_tool_call",
                None if name == RESPONSE else name,
                None if name == RESPONSE else args,
                "allow" if refused is None else "deny",
                question if refused is None else reason,
                rule_ids,
                engine.clock.monotonic_ms() - start,
                outcome,
            )
        )
    return refused
