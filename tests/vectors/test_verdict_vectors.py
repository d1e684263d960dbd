"""Golden vectors of judges: one model rule, its replies, and what becomes of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory import ExecutionContext, LayerStack, LayerStateStore
from noetic_nb.steering import SteeringRule, steering
from noetic_nb.testing import drive_loop
from tests.vectors.cases import camel, cases, load


def reply_of(reply: dict[str, Any]) -> dict[str, Any]:
    if "throw" in reply:
        raise RuntimeError(reply["throw"])
    if "items" in reply:
        return {"items": copy.deepcopy(reply["items"]), "usage": {}}
    part = {"type": "output_text", "text": reply["text"]}
    message = {"id": "v", "status": "completed", "type": "message", "role": "assistant", "content": [part]}
    return {"items": [message], "usage": {"inputTokens": 1, "outputTokens": 1}}


async def judged(given: dict[str, Any]) -> dict[str, Any]:
    requests: list[Any] = []
    diagnostics: list[dict[str, str]] = []

    async def call_model(request: Any) -> dict[str, Any]:
        requests.append(request)
        return reply_of(given["replies"][len(requests) - 1])

    rule = given["rule"]
    judge = {"mode": "sync", **{key: rule[key] for key in ("prompt", "model") if key in rule}}
    retries = {} if "maxRetries" not in given else {"max_retries": given["maxRetries"]}
    state = LayerStateStore(
        diagnostic=lambda layer, hook, _: diagnostics.append({"layerId": layer, "hook": camel(hook)})
    )
    stack = LayerStack(
        [steering(rules=[SteeringRule(id=rule["id"], applies_to=(given["hook"],), llm_eval=judge)], **retries)],
        state=state,
    )
    ctx = ExecutionContext(execution_id="e1", thread_id="t1", call_model=call_model if given["callModel"] else None)
    await stack.init(ctx)
    out: dict[str, Any] = {}
    try:
        if given["hook"] == "beforeToolCall":
            decision = await stack.before_tool_call(ctx, tool_name=given["toolName"], tool_args=given["toolArgs"])
        else:
            decision = await stack.after_model_call(ctx, response={"items": given["responseItems"]})
        out["decision"] = decision.to_dict()
    except NoeticConfigError as exc:
        out["error"] = {"type": "config", "code": exc.code}
    prompts = ["".join(part["text"] for part in request.items[0]["content"]) for request in requests]
    return out | {
        "modelCalls": len(requests),
        "models": {request.model for request in requests},
        "prompts": set(prompts),
        "ledgerEntries": len(state.get("e1", "steering")["ledger"]),
        "diagnostics": diagnostics,
    }


def first_marked(given: dict[str, Any], expect: dict[str, Any]) -> int | None:
    """Return the place of the first `**GUIDE**` that was read: the original asked again, here a marked word decides."""
    texts = [reply.get("text") for reply in given.get("replies", ())][: expect.get("modelCalls", 0)]
    return texts.index("**GUIDE**") if "**GUIDE**" in texts else None


def test_the_cases_with_a_marked_guide_are_these() -> None:
    numbers = [
        case["name"][9:12] for case in cases("verdicts") if first_marked(case["given"], case["expect"]) is not None
    ]

    assert numbers == ["076", "083", "096", "100", "105", "106", "111", "112", "114"]


@pytest.mark.parametrize("case", load("verdicts"))
def test_judges_are_read_as_recorded(case: dict[str, Any]) -> None:
    expect = dict(case["expect"])
    model, included = expect.pop("model", None), expect.pop("promptIncludes", [])

    place = first_marked(case["given"], expect)
    if place is not None:
        expect |= {"decision": {"action": "guide"}, "modelCalls": place + 1}

    got = drive_loop(judged(case["given"]))

    models, prompts = got.pop("models"), got.pop("prompts")
    assert got == expect
    if model is not None:
        assert models == {model}
        (prompt,) = prompts  # a retry asks the identical question
        question, context, forms = prompt.rsplit("\n\n", 2)
        if case["given"]["hook"] == "beforeToolCall":
            assert [question, context] == [included[0], f"Tool: {included[1]}, Args: {included[2]}"]
        else:
            assert [question, context] == [included[0], f"Response items: {included[1]}"]
        assert all(word in forms for word in ("ALLOW", "DENY", "GUIDE"))
