"""The decisions of an enforcement point: allow, guide, ask, deny, or stop the turn. The most restrictive decision counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from noetic_nb._core.cards import with_card
from noetic_nb.errors import NoeticError

# Limits of the matched parts shown to readers: enough to find them in the response.
MAX_MATCHED: Final = 200
MAX_PARTS: Final = 8


class SteeringAction(StrEnum):
    """The action on a call or a response."""

    ALLOW = "allow"
    GUIDE = "guide"
    DENY = "deny"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Stop:
    """Ends the turn: the reply is the suggestion, and `decision` is the reason as plain data with a ``kind``."""

    decision: Mapping[str, Any]
    suggestion: str


@with_card(shown="in cells")
@dataclass(frozen=True, slots=True)
class SteeringDecision:
    """The decision of a rule or a layer, or the combined decision.

    Parameters
    ----------
    action : SteeringAction or str
        ``"allow"``, ``"guide"`` (do not do it; do this instead), ``"deny"`` or ``"ask"`` a person.
    guidance : str, optional
        Text for the model.
    rule_ids : tuple of str
        The rules that determined the decision.
    stop : Stop, optional
        Also ends the turn.
    matched : tuple of str
        The parts of a response that the decision is about.

    Examples
    --------
    >>> SteeringDecision("deny", "Ask first.").action is SteeringAction.DENY
    True
    >>> SteeringDecision("perhaps")
    Traceback (most recent call last):
    ...
    ValueError: 'perhaps' is not a valid SteeringAction
    """

    action: SteeringAction
    guidance: str | None = None
    rule_ids: tuple[str, ...] = ()
    stop: Stop | None = field(default=None)
    matched: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        # Most decisions are created with the enum member, which needs no conversion.
        if type(self.action) is not SteeringAction:
            object.__setattr__(self, "action", SteeringAction(self.action))

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form: the action, and the guidance if there is any."""
        return {"action": str(self.action)} | ({} if self.guidance is None else {"guidance": self.guidance})


ALLOW: Final = SteeringDecision(SteeringAction.ALLOW)


def allow() -> SteeringDecision:
    """Allow the call or response; a judge of the same rule is then not consulted.

    Examples
    --------
    >>> str(allow().action)
    'allow'
    """
    return ALLOW


def deny(guidance: str | None = None, *, matched: str | Iterable[str] = ()) -> SteeringDecision:
    """Prevent the call or response; the text tells the model the reason, `matched` shows readers the offending parts.

    Examples
    --------
    >>> deny("Only orders starting with A may be read.").guidance
    'Only orders starting with A may be read.'
    >>> deny("Promise nothing.", matched="guaranteed").matched
    ('guaranteed',)
    """
    return SteeringDecision(SteeringAction.DENY, guidance, matched=_texts(matched))


def ask(question: str | None = None, *, matched: str | Iterable[str] = ()) -> SteeringDecision:
    """Let a person decide; if no one can answer, it is denied. `matched` is as for `deny`.

    Examples
    --------
    >>> ask("Pay 120 EUR?").action.value
    'ask'
    """
    return SteeringDecision(SteeringAction.ASK, question, matched=_texts(matched))


def guide(guidance: str | None = None, *, matched: str | Iterable[str] = ()) -> SteeringDecision:
    """Prevent the call or response and tell the model what to do instead. `matched` is as for `deny`.

    Examples
    --------
    >>> str(guide("Search first.").action)
    'guide'
    """
    return SteeringDecision(SteeringAction.GUIDE, guidance, matched=_texts(matched))


def _texts(matched: str | Iterable[str]) -> tuple[str, ...]:
    # Cut, because every record of the decision contains them.
    texts = (matched,) if isinstance(matched, str) else matched
    return tuple([text[:MAX_MATCHED] for text in texts if text][:MAX_PARTS])


def as_decision(value: object) -> SteeringDecision:
    """Read a decision, record or mapping; raises `TypeError` or `ValueError`, as a decision is never guessed."""
    if isinstance(value, SteeringDecision):
        return value
    if isinstance(value, Mapping) and "action" in value:
        guidance = value.get("guidance")
        if guidance is not None and not isinstance(guidance, str):
            raise TypeError(f"Guidance must be text, not {type(guidance).__name__}: {guidance!r}.")
        rule_ids = value.get("rule_ids", value.get("ruleIds", ()))
        return SteeringDecision(SteeringAction(value["action"]), guidance, tuple(rule_ids), value.get("stop"))
    raise TypeError(
        f"A steering decision must be deny(...), guide(...), allow() or a mapping with 'action', not {type(value).__name__}: "
        f"{value!r}."
    )


def most_restrictive(decisions: Iterable[SteeringDecision | Mapping[str, Any]]) -> SteeringDecision:
    r"""Combine several decisions into one: the first deny, else a question to a person, else guidance, else allow.

    Parameters
    ----------
    decisions : iterable of SteeringDecision or mapping
        Decisions in the order in which they were made.

    Returns
    -------
    SteeringDecision
        A deny keeps only its own guidance; the guidance of several guides is joined by newlines, without empty ones.

    References
    ----------
    .. [1] docs/behaviour/steering.md, "Decisions".

    Examples
    --------
    >>> most_restrictive([SteeringDecision("guide", "one"), SteeringDecision("guide"), SteeringDecision("guide", "two")])
    SteeringDecision(action=<SteeringAction.GUIDE: 'guide'>, guidance='one\ntwo', rule_ids=(), stop=None)
    """
    guides: list[SteeringDecision] = []
    question: SteeringDecision | None = None
    stop: Stop | None = None
    for value in decisions:
        decision = as_decision(value)
        if decision.action is SteeringAction.DENY:
            # Only its own guidance: that of others is about a call that will not be made.
            return decision
        if decision.action is SteeringAction.ASK:
            question = question or decision
        elif decision.action is SteeringAction.GUIDE:
            guides.append(decision)
        stop = stop or decision.stop
    if question is not None:
        return question
    if guides:
        texts = [each.guidance for each in guides if each.guidance]
        rule_ids = tuple(rule_id for each in guides for rule_id in each.rule_ids)
        matched = tuple(dict.fromkeys([part for each in guides for part in each.matched]))
        return SteeringDecision(SteeringAction.GUIDE, "\n".join(texts) or None, rule_ids, stop, matched)
    return ALLOW if stop is None else SteeringDecision(SteeringAction.ALLOW, stop=stop)


def denied(decision: SteeringDecision, what: str, **facts: Any) -> NoeticError:
    """Return the error that a denied call or response raises in code."""
    return NoeticError(
        "steering_denied",
        what,
        guidance=decision.guidance,
        rule_ids=decision.rule_ids,
        rule_id=decision.rule_ids[0] if decision.rule_ids else None,
        action=str(decision.action),
        **facts,
    )
