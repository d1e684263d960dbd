"""Call a judge and read its verdict: the first word of its answer. Only an allow must be that and nothing else.

A model that thinks aloud or marks its words means its deny as much as any other; an allow is never read out of such an answer.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from noetic_nb.items import assistant_text, input_message, thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.memory._execution_context import HookModelRequest, as_response
from noetic_nb.memory._steering_decision import SteeringAction, SteeringDecision
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.steering._rules.rule import LLMEval

# White space as ECMAScript trims it (ECMA-262, WhiteSpace and LineTerminator).
_SPACE: Final = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_TRIM: Final = re.compile(f"^[{_SPACE}]+|[{_SPACE}]+$")
_VERDICT: Final = re.compile(r"(allow|deny|guide)\b", re.ASCII | re.IGNORECASE)
_LEAD: Final = re.compile(f"^[:{_SPACE}]+")
# What a thinking model says first, up to the last end of it: what is quoted there does not count.
_THOUGHT: Final = re.compile(r"<(think|thinking|thought|reasoning)\b[^>]*>.*</\1>", re.DOTALL | re.IGNORECASE)
_MARKED: Final = re.compile(rf"[*_]+[{_SPACE}]*(deny|guide)(?![a-z0-9])(:?[*_]*)", re.ASCII | re.IGNORECASE)
_UNPRINTED: Final = re.compile(r"[^ -~]")

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
        without leading colons and white space, is the guidance of a deny or a guide. These two may be marked, as in
        ``**DENY**``, and stand behind ``<think>...</think>``; an ALLOW may not.

    References
    ----------
    .. [1] docs/behaviour/steering.md, "Judges".

    Examples
    --------
    >>> parse_verdict("Guide:  Keep Case ").guidance
    'Keep Case'
    >>> parse_verdict("ALLOWED") is None, parse_verdict("I think ALLOW") is None, parse_verdict("**ALLOW**") is None
    (True, True, True)
    >>> parse_verdict("<think>Is it safe?</think>**DENY**: no").guidance
    'no'
    """
    # Not str.strip: Python and ECMAScript disagree on what is white space, and verdicts must not depend on it.
    trimmed = _TRIM.sub("", text)
    # Only at the beginning: a word further on may be quoted from the very call that is judged.
    match = _VERDICT.match(trimmed)
    if match is None:
        thought = _THOUGHT.match(trimmed)
        trimmed = _TRIM.sub("", trimmed[thought.end() :]) if thought is not None else trimmed
        match = _MARKED.match(trimmed) or _VERDICT.match(trimmed)
        if match is None or match.group(1).lower() == "allow":
            return None
    action = SteeringAction(match.group(1).lower())
    if action is SteeringAction.ALLOW:
        return SteeringDecision(action)
    guidance = _TRIM.sub("", _LEAD.sub("", trimmed[match.end() :]))
    if match.re is _MARKED and match.group(2)[-1:] not in ("*", "_"):  # **DENY: no**
        guidance = guidance.rstrip("*_")
    return SteeringDecision(action, guidance or None)


def judge_prompt(judge: LLMEval, params: BeforeToolCallParams | AfterModelCallParams) -> str:
    """Return the prompt of a judge: the rule, the call or the size of the response, and the forms of an answer.

    Name and arguments stand on one line, the arguments as JSON, so that text inside them cannot pass for the instructions
    around them: what may begin a line, or is not seen, is written as an escape.
    """
    if isinstance(params, BeforeToolCallParams):
        context = _one_line(f"Tool: {params.tool_name}, Args: {compact_json(thaw(params.tool_args))}")
    else:
        context = f"Response items: {len(params.response.items)}"
    return f"{judge.prompt}\n\n{context}\n\n{_ANSWER_WITH}"


def _one_line(text: str) -> str:
    """Return a text with every sign escaped, as JSON has it, that is no visible one."""
    return _UNPRINTED.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)


def request_verdict(judge: LLMEval, params: BeforeToolCallParams | AfterModelCallParams) -> Any:
    """Call a judge once; returns the model client's return value, to be awaited where that can be awaited.

    Raises `NoeticConfigError` ``MISSING_CALL_MODEL`` where no model answers the judge's name.
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
    """Call a judge until its answer can be read; returns the decision, None without one, and the number of calls.

    The identical request is repeated `max_retries` times at most; `first` is the first answer where it was requested already.
    """
    for call in range(1, max_retries + 2):
        answer = first if call == 1 and first is not None else request_verdict(judge, params)
        if hasattr(answer, "__await__"):
            answer = await answer
        decision = parse_verdict(assistant_text(as_response(answer).items))
        if decision is not None:
            return decision, call
    return None, max_retries + 1
