"""Call a judge and read its verdict. The grammar is exact: a verdict is the first word, or there is none."""

from __future__ import annotations

import re
from typing import Any, Final

from noetic_nb.items import assistant_text, input_message, thaw
from noetic_nb.items.json_text import compact_json
from noetic_nb.memory.execution_context import HookModelRequest, as_response
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.memory.steering_decision import SteeringAction, SteeringDecision
from noetic_nb.steering.rules.rule import LLMEval

__all__ = ["call_judge", "judge_prompt", "parse_verdict", "request_verdict"]

# White space as ECMAScript trims it (ECMA-262, WhiteSpace and LineTerminator).
_SPACE: Final = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_TRIM: Final = re.compile(f"^[{_SPACE}]+|[{_SPACE}]+$")
_VERDICT: Final = re.compile(r"(allow|deny|guide)\b", re.ASCII | re.IGNORECASE)
_LEAD: Final = re.compile(f"^[:{_SPACE}]+")

# `parse_verdict` reads exactly these three; every other wording makes judges explain instead of decide.
_ANSWER_WITH: Final = (
    "Answer with exactly one of these three forms and nothing else: "
    "ALLOW, or DENY: followed by the reason, or GUIDE: followed by what to do instead."
)


def parse_verdict(text: str) -> SteeringDecision | None:
    r"""Read a judge's answer.

    Parameters
    ----------
    text : str
        The answer as it came.

    Returns
    -------
    SteeringDecision or None
        None where the answer does not begin with ALLOW, DENY or GUIDE as a word of its own, in any case. What follows,
        without leading colons and white space, is the guidance of a deny or a guide.

    References
    ----------
    .. [1] docs/behaviour/steering.md, "Judges".

    Examples
    --------
    >>> parse_verdict("Guide:  Keep Case ").guidance
    'Keep Case'
    >>> parse_verdict("ALLOWED") is None, parse_verdict("I think ALLOW") is None
    (True, True)
    """
    # Not str.strip: Python and ECMAScript disagree on what is white space, and verdicts must not depend on it.
    trimmed = _TRIM.sub("", text)
    # Only at the beginning: a word further on may be quoted from the very call that is judged.
    match = _VERDICT.match(trimmed)
    if match is None:
        return None
    action = SteeringAction(match.group(1).lower())
    if action is SteeringAction.ALLOW:
        return SteeringDecision(action)
    guidance = _TRIM.sub("", _LEAD.sub("", trimmed[match.end() :]))
    return SteeringDecision(action, guidance or None)


def judge_prompt(judge: LLMEval, params: BeforeToolCallParams | AfterModelCallParams) -> str:
    """Return what a judge is shown: the rule, the call or the size of the response, and the forms of an answer.

    The arguments are written as JSON on one line, so that text inside them cannot pass for the instructions around them.
    """
    if isinstance(params, BeforeToolCallParams):
        context = f"Tool: {params.tool_name}, Args: {compact_json(thaw(params.tool_args))}"
    else:
        context = f"Response items: {len(params.response.items)}"
    return f"{judge.prompt}\n\n{context}\n\n{_ANSWER_WITH}"


def request_verdict(judge: LLMEval, params: BeforeToolCallParams | AfterModelCallParams) -> Any:
    """Call a judge once; returns what the model client returned, to be awaited where that can be awaited.

    Raises
    ------
    NoeticConfigError
        ``MISSING_CALL_MODEL`` where no model answers the judge's name.
    """
    call_model: Any = params.ctx.call_model
    prompt = input_message(judge_prompt(judge, params), ids=params.ctx.ids)
    return call_model(HookModelRequest(judge.model, (prompt,), purpose="judge"))


async def call_judge(
    judge: LLMEval,
    params: BeforeToolCallParams | AfterModelCallParams,
    *,
    max_retries: int,
    first: Any = None,
) -> tuple[SteeringDecision | None, int]:
    """Call a judge until its answer can be read.

    Parameters
    ----------
    judge : LLMEval
        The judge.
    params : BeforeToolCallParams or AfterModelCallParams
        What it judges; its context must be able to call a model.
    max_retries : int
        How often the identical request is repeated after an answer that cannot be read.
    first : object, optional
        The first answer where it was requested already.

    Returns
    -------
    decision : SteeringDecision or None
        None where no answer could be read.
    calls : int
        How often the model was called.

    Raises
    ------
    Exception
        What the model client raises.
    """
    for call in range(1, max_retries + 2):
        answer = first if call == 1 and first is not None else request_verdict(judge, params)
        if hasattr(answer, "__await__"):
            answer = await answer
        decision = parse_verdict(assistant_text(as_response(answer).items))
        if decision is not None:
            return decision, call
    return None, max_retries + 1
