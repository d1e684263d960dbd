"""Rules judge a whole response: all messages, refusals, structured parts and reasoning; streams release just as much."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.items import Item, assistant_message, function_call
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory.params import AfterModelCallParams
from noetic_nb.models import ModelDelta, ModelResponse
from noetic_nb.models._response_items import deltas_of
from tests.runtime.factories import make_harness

SECRET = "XK-42"
LAST = assistant_message("Anything else?")


def message(*parts: dict[str, Any], role: str = "assistant") -> Item:
    return nn.parse_item({"id": "m", "status": "completed", "type": "message", "role": role, "content": list(parts)})


def text(said: str) -> dict[str, Any]:
    return {"type": "output_text", "text": said, "annotations": []}


SAID = f"It is {SECRET}."
RESPONSES = {
    "first message": (message(text(SAID)), LAST),
    "middle message": (LAST, message(text(SAID)), LAST),
    "two parts": (message(text("It is XK"), text("-42.")), LAST),
    "refusal": (message({"type": "refusal", "refusal": SAID}, text("Sorry.")), LAST),
    "reasoning": (nn.parse_item({"type": "reasoning", "content": [{"type": "reasoning_text", "text": SAID}]}), LAST),
    "summary": (nn.parse_item({"type": "reasoning", "summary": [{"type": "summary_text", "text": SAID}]}), LAST),
    "structured part": (message({"type": "my:json", "json": {"a": [{"b": SAID}]}}, text("Done.")), LAST),
    "key of a structured part": (message({"type": "my:json", "json": {SECRET: 1}}, text("Done.")), LAST),
    "citation": (message({**text("Look."), "annotations": [{"type": "url_citation", "url": f"http://a/{SECRET}"}]}),),
    "image": (nn.parse_item({"type": "image_generation_call", "revised_prompt": SAID}), LAST),
    "another role": (message({"type": "output_text", "text": SAID}, role="developer"), LAST),
}  # fmt: skip


class Client:
    """A client that answers with whole responses; when streaming, it first writes them in pieces."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def complete(self, request: nn.ModelRequest) -> ModelResponse:
        return ModelResponse(tuple(self.answers.pop(0)))


class Writing(Client):
    async def stream(self, request: nn.ModelRequest) -> Any:
        for delta in deltas_of([item for item in self.answers[0] if item["type"] in ("message", "reasoning")]):
            yield delta
        yield await self.complete(request)


def params(*items: Item) -> AfterModelCallParams:
    ctx = ExecutionContext(execution_id="e", thread_id="t")
    return AfterModelCallParams(ModelResponse(items), ctx, None)


def books() -> dict[str, nn.RuleBook]:
    """Return rules against the secret in every form."""
    condition, python, isolated = nn.RuleBook(), nn.RuleBook(), nn.RuleBook()
    condition.when(f"response.text.contains('{SECRET}')", id="no-secret", guidance="No.")
    isolated.when("response.text.matches('XK-[0-9]+')", id="no-secret", guidance="No.", isolate=True)

    @python.rule(on="after_model_call")
    def no_secret(answer: Any) -> Any:
        return nn.deny("No.") if SECRET in answer.text else None

    return {"condition": condition, "python": python, "isolated": isolated}


@pytest.mark.parametrize("form", ["condition", "python", "isolated"])
@pytest.mark.parametrize("place", RESPONSES)
async def test_a_rule_sees_every_part(place: str, form: str) -> None:
    harness = make_harness(Client(RESPONSES[place]), memory=[nn.steering(books()[form])])

    with pytest.raises(NoeticError) as caught:
        await harness.execute("Tell me.", thread_id="t")

    assert caught.value.kind == "steering_denied"
    assert SECRET not in str(harness.log("t").items)


@pytest.mark.parametrize("client", [Client, Writing])
@pytest.mark.parametrize("place", RESPONSES)
async def test_a_stream_releases_nothing_of_a_response_with_a_part_that_is_denied(place: str, client: Any) -> None:
    harness = make_harness(client(RESPONSES[place]), memory=[nn.steering(books()["python"])])
    turn = harness.stream("Tell me.", thread_id="t")
    seen: dict[str, list[Any]] = {"text": [], "reasoning": [], "items": [], "events": []}

    async def collect(side: str) -> None:
        async for piece in getattr(turn, side):
            seen[side].append(piece)

    for side in seen:
        with pytest.raises(NoeticError):
            await collect(side)

    assert (seen["text"], seen["reasoning"], len(seen["items"])) == ([], [], 1)
    assert SECRET not in str(seen["events"])


async def test_a_stream_hands_out_no_thought_that_the_rules_did_not_see() -> None:
    class Muttering(Client):
        async def stream(self, request: nn.ModelRequest) -> Any:
            yield ModelDelta("reasoning", SAID)
            yield ModelDelta("text", "Anything else?")
            yield await self.complete(request)

    harness = make_harness(Muttering([LAST]), memory=[nn.steering(books()["condition"])])
    turn = harness.stream("Tell me.", thread_id="t")

    assert "".join([piece async for piece in turn.text]) == "Anything else?"
    assert [piece async for piece in turn.reasoning] == []


async def test_a_person_is_shown_the_whole_response() -> None:
    rules, shown = nn.RuleBook(), []
    rules.when(f"response.text.contains('{SECRET}')", id="look", action="ask", guidance="Is this right?")

    def approve(name: str, args: Any) -> bool:
        shown.append((name, args["text"]))
        return True

    harness = make_harness(Client(RESPONSES["first message"]), memory=[nn.steering(rules)], approve=approve)

    await harness.execute("Tell me.")

    assert shown == [("response", f"{SAID}\nAnything else?")]


def test_the_answer_is_what_is_said() -> None:
    thought = RESPONSES["reasoning"][0]
    call = function_call("look", '{"for": "gold"}', "c1")

    both = params(thought, assistant_message("One."), assistant_message("Two."), call)

    assert both.answer == "One.\nTwo."
    assert both.text == f"One.\nTwo.\n{SAID}"
    assert params(call).text == params(call).answer == ""
    assert params(assistant_message("One.")).text == "One."


@pytest.mark.parametrize("condition", ["response.answer.endsWith('else?')", "response.answer == 'Anything else?'"])
async def test_a_condition_about_the_answer_leaves_thoughts_out(condition: str) -> None:
    rules = nn.RuleBook()
    rules.when(condition, id="ends", guidance="No question.")
    harness = make_harness(Client(RESPONSES["reasoning"]), memory=[nn.steering(rules)])

    with pytest.raises(NoeticError, match="No question"):
        await harness.execute("Tell me.")
