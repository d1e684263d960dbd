"""Rules about what came before, as sentences: never `send_email` after `read_secrets`; at most 3 `search` calls.

A call counts if it was let through, whether or not it succeeded: what failed may have had its effect. For *only after*, what
came before must have succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from noetic_nb.memory.params import PastCall
from noetic_nb.memory.steering_decision import SteeringAction, SteeringDecision
from noetic_nb.names import skeleton
from noetic_nb.steering.predicates.guidance_template import Guidance
from noetic_nb.steering.rules.rule import SteeringRule

__all__ = ["broken", "sentence_rule", "words_of"]

# How a call ends that was never made.
_NOT_MADE: Final = frozenset({"denied", "guided", "invalid_args", "unknown"})


def _names(tools: str | Iterable[str]) -> tuple[str, ...]:
    return (tools,) if isinstance(tools, str) else tuple(tools)


def _listed(names: Iterable[str], word: str) -> str:
    *head, last = names
    return f"{', '.join(head)} {word} {last}" if head else last


def words_of(rule: SteeringRule) -> str:
    """Return the sentence of a rule in words.

    Examples
    --------
    >>> words_of(sentence_rule("never_after", "send_email", others="read_secrets"))
    'send_email must not be called after read_secrets.'
    """
    assert rule.sequence is not None
    tools = _listed(rule.tools or ("any tool",), "or")
    sentence = rule.sequence
    if sentence.kind == "never_after":
        return f"{tools} must not be called after {_listed(sentence.others, 'or')}."
    if sentence.kind == "only_after":
        return f"{tools} may be called only after {_listed(sentence.others, 'and')}."
    times = {0: "not at all", 1: "once", 2: "twice"}.get(sentence.count or 0, f"{sentence.count} times")
    return f"{tools} may be called at most {times}." if sentence.count else f"{tools} may not be called."


def sentence_rule(
    kind: str,
    tools: str | Iterable[str],
    *,
    others: str | Iterable[str] = (),
    count: int | None = None,
    id: str | None = None,
    action: str | None = None,
    guidance: str | None = None,
) -> SteeringRule:
    """Return a rule made of a sentence.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RULE``.
    """
    names, before = _names(tools), _names(others)
    title = {"never_after": "never", "only_after": "only", "at_most": f"at-most-{count}"}.get(kind, kind)
    made = "-".join([title, *names, *(["after", *before] if before else [])])
    facts: dict[str, Any] = {"kind": kind, "others": before, "count": count}
    return SteeringRule(
        id=id or made,
        applies_to="before_tool_call",
        tools=names,
        sequence=facts,
        action=action,
        guidance=guidance,
    )


def broken(rule: SteeringRule, params: Any, earlier: Sequence[PastCall] = ()) -> SteeringDecision | None:
    """Return what a call leads to that breaks the rule's sentence, None where it does not.

    Parameters
    ----------
    rule : SteeringRule
        With a sentence.
    params : BeforeToolCallParams
        The call; its `history` is read whole, however long it is.
    earlier : sequence of PastCall
        Calls of earlier executions that count as well.
    """
    sentence = rule.sequence
    assert sentence is not None
    made = [call for call in (*earlier, *params.history) if call.status not in _NOT_MADE]
    if sentence.kind == "at_most":
        own = {skeleton(name) for name in rule.tools or ()}
        assert sentence.count is not None
        wrong = sum(skeleton(call.name) in own for call in made) >= sentence.count
    else:
        others = {skeleton(name) for name in sentence.others}
        if sentence.kind == "never_after":
            wrong = any(skeleton(call.name) in others for call in made)
        else:
            wrong = not others <= {skeleton(call.name) for call in made if call.status == "ok"}
    if not wrong:
        return None
    text = words_of(rule) if rule.guidance is None else Guidance(rule.id, rule.guidance).fill(params)
    return SteeringDecision(SteeringAction(rule.action or "deny"), text, (rule.id,))
