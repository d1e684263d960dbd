"""The text that a stream releases: only accepted text if rules review the answers, and all text that the turn logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items import assistant_message
from noetic_nb.items._build import output_texts
from noetic_nb.models._client import ModelDelta, ModelRequest, ModelResponse
from noetic_nb.steps import fork, spawn, step
from tests.runtime.factories import WrittenInPieces, make_harness, record_events
from tests.runtime.test_threads import Gate

SECRET = "hunter2"


def rules_against(word: str, decide: Any = nn.deny) -> Any:
    """Return a rule layer that rejects answers with a given word in their text or reasoning."""
    rules = nn.RuleBook()

    @rules.rule(on="after_model_call")
    def discreet(answer: Any) -> Any:
        return decide("Say it differently.") if word in str(answer.items) else None

    return nn.steering(rules)


async def collected(stream: Any) -> tuple[list[Any], BaseException | None]:
    parts: list[Any] = []
    try:
        async for part in stream:
            parts.append(part)
    except nn.NoeticError as exc:
        return parts, exc
    return parts, None


class Followed:
    """Everything that a turn releases."""

    def __init__(self, found: Any) -> None:
        (self.text, self.error), (self.reasoning, _), (self.items, _), (self.events, _) = found

    @property
    def joined(self) -> str:
        return "".join(self.text)


async def follow(harness: nn.AgentHarness, **options: Any) -> Followed:
    turn: Any = harness.stream("hi", **options)
    return Followed(await asyncio.gather(*map(collected, (turn.text, turn.reasoning, turn.items, turn.events))))


async def test_text_that_is_denied_is_never_handed_out() -> None:
    harness = make_harness([nn.Reply(f"It is {SECRET}", reasoning=f"{SECRET}?")], memory=[rules_against(SECRET)])

    seen = await follow(harness)

    assert (seen.text, seen.reasoning, len(seen.items)) == ([], [], 1)
    assert SECRET not in repr(seen.events)
    assert getattr(seen.error, "kind", None) == "steering_denied"
    calls = [event for event in seen.events if event.kind == "model_called"]
    assert [(event.items, event.output_tokens > 0) for event in calls] == [((), True)]


@pytest.mark.parametrize("part", ["text", "reasoning"])
async def test_an_answer_that_is_guided_away_is_never_handed_out(part: str) -> None:
    bad = nn.Reply(f"No, {SECRET}.") if part == "text" else nn.Reply("No, no.", reasoning=f"It is {SECRET}.")
    harness = make_harness([bad, nn.Reply("Ask the desk.", reasoning="So.")], memory=[rules_against(SECRET, nn.guide)])

    seen = await follow(harness)

    assert (seen.text, seen.reasoning, seen.error) == (["Ask ", "the ", "desk."], ["So."], None)
    assert SECRET not in repr(seen.events) + repr(seen.items)


class Layer:
    """A layer that reviews answers, waits on request, and records everything a layer can see."""

    def __init__(self, *answers: str) -> None:
        self.gate, self.asked, self.answers = asyncio.Event(), asyncio.Event(), list(answers)

    async def review(self, params: Any) -> Any:
        self.asked.set()
        params.ctx.trace.set_attribute("said", params.text)
        await self.gate.wait()
        return {"decision": nn.SteeringDecision(self.answers.pop(0), "No."), "state": {"said": params.text}}

    @property
    def layer(self) -> nn.MemoryLayer:
        hooks = nn.MemoryHooks(init=lambda p: {"state": {}}, after_model_call=self.review)
        return nn.MemoryLayer(id="review", slot=1, scope="execution", hooks=hooks)


async def test_nothing_is_handed_out_before_the_answer_stands() -> None:
    review = Layer("allow")
    harness = make_harness([nn.Reply("Packed and sent.", reasoning="Look.")], memory=[review.layer])
    recorded = record_events(harness)
    turn = harness.stream("hi")
    parts: dict[str, list[Any]] = {"text": [], "reasoning": [], "items": [], "events": []}

    async def read(name: str) -> None:
        async for part in getattr(turn, name):
            parts[name].append(part)

    reading = asyncio.gather(*map(read, parts))
    await review.asked.wait()
    for _ in range(5):
        await asyncio.sleep(0)

    assert (parts["text"], parts["reasoning"], len(parts["items"])) == ([], [], 1)
    assert "Packed" not in repr(parts["events"])
    assert "model_called" in {event.kind for event in recorded}, "whoever subscribes to the harness is not delayed"

    review.gate.set()
    await reading
    assert (parts["text"], parts["reasoning"]) == (["Packed ", "and ", "sent."], ["Look."])
    assert [event.kind for event in parts["events"]] == [event.kind for event in recorded]


async def test_what_layers_noted_of_a_rejected_answer_is_not_handed_out() -> None:
    review = Layer("deny")
    review.gate.set()
    harness = make_harness([f"It is {SECRET}"], memory=[review.layer])
    recorded = record_events(harness)

    seen = await follow(harness)

    assert SECRET in repr(recorded)
    assert SECRET not in repr(seen.events)
    assert "hook_called" in {event.kind for event in seen.events}


async def test_the_failure_of_a_review_does_not_hand_out_what_it_quotes() -> None:
    def review(params: Any) -> Any:
        raise ValueError(f"cannot judge {params.text}")

    hooks = nn.MemoryHooks(after_model_call=review)
    harness = make_harness([f"It is {SECRET}"], memory=[nn.MemoryLayer(id="r", slot=1, scope="execution", hooks=hooks)])

    seen = await follow(harness)

    (failed,) = [event for event in seen.events if event.kind == "hook_called" and event.status == "error"]
    assert (failed.error_type, failed.error, failed.error_stack) == ("ValueError", "withheld", None)
    assert SECRET not in repr(seen.events)


async def test_without_rules_each_piece_is_handed_out_when_it_is_written() -> None:
    gate = Gate()

    class Slow:
        async def complete(self, request: ModelRequest) -> ModelResponse:
            return ModelResponse((assistant_message("one two"),))

        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            yield ModelDelta("text", "one ")
            await gate.open.wait()
            yield ModelDelta("text", "two")
            yield await self.complete(request)

    turn = make_harness(Slow()).stream("hi")
    pieces = aiter(turn.text)

    assert await anext(pieces) == "one "
    gate.open.set()
    assert [piece async for piece in pieces] == ["two"]


class Whole:
    """A model that does not stream."""

    def __init__(self, *answers: Any) -> None:
        self.model = nn.ScriptedModel(list(answers))

    async def complete(self, request: ModelRequest) -> ModelResponse:
        return await self.model.complete(request)


ROUND = nn.Reply("Let me see. ", tool_calls=[nn.CallTool("lookup", order_id="A")])
ASK = step.llm("ask", model="m", tools=[])
TURNS: dict[str, Any] = {
    "one answer": lambda memory: make_harness(["It is packed."], memory=memory),
    "two rounds": lambda memory: make_harness([ROUND, "Packed."], memory=memory),
    "no stream": lambda memory: make_harness(Whole(ROUND, "Packed."), memory=memory),
    "more than was written": lambda memory: make_harness(WrittenInPieces((["so "], "so be it")), memory=memory),
    "another text than was written": lambda memory: make_harness(
        WrittenInPieces((["no ", "no"], "so be it")), memory=memory
    ),
    "function": lambda memory: make_harness([], step=step.run("f", lambda value, ctx: "made here"), memory=memory),
    "child": lambda memory: make_harness(["of a child"], step=spawn("s", ASK), memory=memory),
    "child with rounds": lambda memory: make_harness([ROUND, "Done."], step=nn.react(model="m", memory=memory)),
    "children": lambda memory: make_harness(
        ["a", "b", "c"],
        step=nn.loop(
            "l",
            [fork("f", mode="all", paths=[ASK, step.llm("x", model="m", tools=[])], merge="concat"), ASK],
            until=nn.until.max_steps(1),
        ),
        memory=memory,
    ),
    "cut off": lambda memory: make_harness(
        [nn.Reply("one ", finish_reason="length"), "two"], memory=memory, incomplete="continue"
    ),
    "nothing": lambda memory: make_harness([], step=step.run("f", lambda value, ctx: None), memory=memory),
}


@pytest.mark.parametrize("reviewed", [True, False])
@pytest.mark.parametrize("release", ["judged", "live"])
@pytest.mark.parametrize("turn", TURNS)
async def test_the_text_is_that_of_all_messages_the_turn_logged(turn: str, release: str, reviewed: bool) -> None:
    harness = TURNS[turn]([rules_against(SECRET, nn.guide)] if reviewed else [])

    seen = await follow(harness, release=release)

    if turn.startswith("another") and release == "judged" and not reviewed:
        assert seen.joined == "no no", "pieces that nothing reviews are out, and stay as they were written"
        return
    assert seen.error is None
    assert standing(seen.text) == "".join(output_texts(harness.log()))


def standing(parts: list[Any]) -> str:
    """Return the remaining pieces after all retractions."""
    text = ""
    for part in parts:
        if isinstance(part, nn.TextRetracted):
            before, taken, after = text.rpartition(part.text)
            assert taken == part.text
            text = before + after
        else:
            text += part
    return text


async def test_guided_answers_are_not_in_the_text() -> None:
    harness = make_harness([SECRET, SECRET, ROUND, SECRET, "Packed."], memory=[rules_against(SECRET, nn.guide)])

    seen = await follow(harness)

    assert seen.joined == "Let me see. Packed." == "".join(output_texts(harness.log()))


async def test_a_suggestion_is_in_the_reply_and_not_in_the_text() -> None:
    hooks = nn.MemoryHooks(after_model_call=lambda p: {"stop": nn.Stop({"kind": "enough"}, "Stop here.")})
    harness = make_harness([SECRET], memory=[nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=hooks)])
    turn = harness.stream("hi")

    text, events = await asyncio.gather(collected(turn.text), collected(turn.events))

    assert ((await turn.reply).text, text) == ("Stop here.", ([], None))
    assert SECRET not in repr(events)
    assert output_texts(harness.log()) == []


async def test_an_answer_longer_than_the_buffer_is_handed_out_whole() -> None:
    words = " ".join(map(str, range(12_000)))
    harness = make_harness([words], memory=[rules_against(SECRET)])

    assert (await follow(harness)).joined == words


async def test_live_pieces_come_at_once_and_are_taken_back() -> None:
    review = Layer("guide", "allow")
    harness = make_harness([nn.Reply("Bad one.", reasoning="Hm."), "Good."], memory=[review.layer])
    turn = harness.stream("hi", release="live")
    pieces, thoughts = aiter(turn.text), aiter(turn.reasoning)

    assert [await anext(pieces), await anext(pieces), await anext(thoughts)] == ["Bad ", "one.", "Hm."]
    await review.asked.wait()
    review.gate.set()
    taken = await anext(pieces)

    assert (taken.response, taken.text) == (0, "Bad one.")
    assert [piece async for piece in pieces] == ["Good."]
    assert (await anext(thoughts)).text == "Hm."
    events, _ = await collected(turn.events)
    assert [event for event in events if event.kind == "text_retracted"] == [taken]


async def test_a_denied_answer_that_was_live_is_taken_back_before_the_error() -> None:
    harness = make_harness([f"It is {SECRET}"], memory=[rules_against(SECRET)])

    seen = await follow(harness, release="live")

    assert standing(seen.text) == ""
    assert getattr(seen.error, "kind", None) == "steering_denied"


async def test_thoughts_of_a_child_stay_where_its_text_is_taken_back() -> None:
    whole = nn.loop(
        "l",
        [spawn("s", ASK), step.run("other", lambda value, ctx: "another answer")],
        until=nn.until.max_steps(1),
    )
    harness = make_harness([nn.Reply("a draft", reasoning="Hm.")], step=whole)

    seen = await follow(harness, release="live")

    assert seen.reasoning == ["Hm."]
    assert standing(seen.text) == "".join(output_texts(harness.log())) == "another answer"


async def test_several_streams_of_one_turn_each_release_as_they_were_told() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[], memory=[rules_against("nothing")])
    first = asyncio.ensure_future(harness.execute("1"))
    await gate.entered.wait()
    both = [harness.stream("2"), harness.stream("3", release="live")]
    reading = asyncio.gather(*(collected(turn.text) for turn in both))
    await asyncio.sleep(0)
    gate.open.set()
    await first

    (one, _), (two, _) = await reading

    assert "".join(one) == "".join(two) == (await both[0].reply).text != ""


async def test_a_stream_whose_message_joined_a_turn_gets_the_text_of_that_turn() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[])
    first = asyncio.ensure_future(harness.execute("1"))
    await gate.entered.wait()
    turn = harness.stream("2", delivery="between_rounds")
    reading = asyncio.ensure_future(collected(turn.text))
    await asyncio.sleep(0)
    gate.open.set()
    await first

    assert "".join((await reading)[0]) == (await turn.reply).text != ""


async def test_answers_side_by_side_in_one_execution_are_held_each() -> None:
    asks = [step.llm(name, model=name, tools=[]) for name in ("a", "b")]

    async def both(value: Any, ctx: nn.Context) -> Any:
        return "".join(await asyncio.gather(*(ctx.run(ask, value) for ask in asks)))

    model = nn.ScriptedModel({"a": [SECRET, "one"], "b": ["two"]})
    harness = make_harness(model, step=step.run("both", both), memory=[rules_against(SECRET, nn.guide)])

    seen = await follow(harness)

    assert seen.joined == "".join(output_texts(harness.log()))
    assert sorted(seen.text) == ["one", "two"]
    assert SECRET not in repr(seen.events)


class Broken:
    """A model whose stream breaks off after its first words."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse((assistant_message("whole"),))

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        yield ModelDelta("text", "half ")
        raise nn.NoeticError("llm_failed", "gone", reason="disconnect")


async def test_a_broken_stream_is_taken_back() -> None:
    turn = make_harness(Broken()).stream("hi")

    with pytest.raises(nn.NoeticError):
        await turn.reply

    seen, _ = await collected(turn.events)
    assert [event.text for event in seen if isinstance(event, nn.TextRetracted)] == ["half "]


def test_an_unknown_release_is_refused_at_once() -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        make_harness([]).stream("hi", release="now")  # type: ignore[call-overload]

    assert caught.value.code == "INVALID_OPTION"


class Pieces:
    """A model that streams two pieces and waits in between."""

    def __init__(self, gate: asyncio.Event) -> None:
        self.gate = gate

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelResponse]:
        yield ModelDelta("text", "first ")
        await self.gate.wait()
        yield ModelDelta("text", "second")
        yield ModelResponse((assistant_message("first second"),), finish_reason="stop")

    async def complete(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse((assistant_message("first second"),), finish_reason="stop")


async def test_rules_about_calls_alone_hold_nothing_back() -> None:
    gate = asyncio.Event()
    rules = nn.RuleBook()
    rules.at_most(1, "pay")
    harness = make_harness(Pieces(gate), memory=[nn.steering(rules)])

    pieces = harness.stream("hi").text.__aiter__()

    assert await anext(pieces) == "first "  # the model is still waiting
    gate.set()
    assert [piece async for piece in pieces] == ["second"]


async def test_a_rule_that_comes_while_text_is_handed_out_takes_it_back() -> None:
    gate = asyncio.Event()
    rules = nn.RuleBook()
    rules.at_most(1, "pay")
    harness = make_harness(Pieces(gate), memory=[nn.steering(rules)])
    turn = harness.stream("hi")
    events = asyncio.ensure_future(collected(turn.events))
    pieces = turn.text.__aiter__()
    assert await anext(pieces) == "first "

    rules.rule("late", on="after_model_call")(lambda answer: nn.deny("No."))
    gate.set()

    with pytest.raises(nn.NoeticError, match="denied"):
        _ = [piece async for piece in pieces]
    found, _ = await events
    assert [event.text for event in found if isinstance(event, nn.TextRetracted)] == ["first second"]
