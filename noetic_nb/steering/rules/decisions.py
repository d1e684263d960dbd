"""What a rule may answer, in one word each. No opinion is None."""

from __future__ import annotations

from noetic_nb.memory.steering_decision import ALLOW, SteeringAction, SteeringDecision

__all__ = ["allow", "ask", "deny", "guide"]


def allow() -> SteeringDecision:
    """Let it pass; a judge of the same rule is not asked.

    Examples
    --------
    >>> str(allow().action)
    'allow'
    """
    return ALLOW


def deny(guidance: str | None = None) -> SteeringDecision:
    """Keep it from happening; the text tells the model why.

    Examples
    --------
    >>> deny("Only orders starting with A may be read.").guidance
    'Only orders starting with A may be read.'
    """
    return SteeringDecision(SteeringAction.DENY, guidance)


def ask(question: str | None = None) -> SteeringDecision:
    """Let a person decide; where nobody is there to ask, it does not happen.

    Examples
    --------
    >>> ask("Pay 120 EUR?").action.value
    'ask'
    """
    return SteeringDecision(SteeringAction.ASK, question)


def guide(guidance: str | None = None) -> SteeringDecision:
    """Keep it from happening, and tell the model what to do instead.

    Examples
    --------
    >>> str(guide("Search first.").action)
    'guide'
    """
    return SteeringDecision(SteeringAction.GUIDE, guidance)
