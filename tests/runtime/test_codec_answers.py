"""Answers parsed by a codec: format rules in the prompt, parsing during the stream, no state shared between answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.runtime._planning.turn_plan import TurnPlan
from noetic_nb.steps import fenced_json, fork, json_lines, loop, step, until
from noetic_nb.tokens import estimate_tokens
from tests.runtime.factories import WrittenInPieces, lookup, make_harness, record_events


class Tape:
    """A codec that records every piece fed to each of its runs, and how the run ended."""

    instructions = "Answer in words of one syllable."

    def __init__(self) -> None:
        self.runs: list[list[str]] = []
        self.finished: list[int] = []

    def start(self) -> Any:
        self.runs.append([])
        return TapeRun(self, len(self.runs) - 1)


class TapeRun:
    def __init__(self, tape: Tape, number: int) -> None:
        self.tape, self.number = tape, number

    def feed(self, piece: str) -> None:
        self.tape.runs[self.number].append(piece)
        if "!" in piece:
            raise ValueError("do not shout")

    def finish(self) -> Any:
        self.tape.finished.append(self.number)
        return "".join(self.tape.runs[self.number]).upper()


async def streamed(harness: nn.AgentHarness, text: str = "go") -> tuple[Any, list[str]]:
    turn = harness.stream(text)
    pieces = [piece async for piece in turn.text]
    return await turn.reply, pieces


def agent(codec: Any, replies: Any, *, instructions: Any = "Be kind.", **more: Any) -> nn.AgentHarness:
    one = step.llm("ask", model="m", instructions=instructions, output=codec, tools=[lookup])
    return make_harness(replies, step=one, **more)


async def test_the_model_is_told_how_to_answer_and_it_is_counted() -> None:
    tape, model = Tape(), nn.ScriptedModel(["so", "so"])
    harness = agent(tape, model, memory=[nn.MemoryLayer(id="l", slot=1, scope="thread")])
    events = record_events(harness)
    said = "Be kind.\n\nAnswer in words of one syllable."

    planned: TurnPlan = harness.preview()
    reply = await harness.execute("go")

    assert (reply.output, reply.text) == ("SO", "so")
    assert [(request.instructions, request.output_schema) for request in model.requests] == [(said, None)]
    assert events.of("budgets_allocated")[0].system == estimate_tokens(said)
    assert events.of("view_assembled")[0].system == planned.system == estimate_tokens(said)


async def test_instructions_of_a_function_are_followed_by_those_of_the_codec() -> None:
    model = nn.ScriptedModel(["so", "so"])
    harness = agent(Tape(), model, instructions=lambda ctx: f"Turn {ctx.turn}.")

    for _ in range(2):
        await harness.execute("go")

    assert [request.instructions.split("\n\n")[0] for request in model.requests] == ["Turn 1.", "Turn 2."]
    assert all(request.instructions.endswith("\n\n" + Tape.instructions) for request in model.requests)


async def test_a_finished_text_is_read_in_one_piece_and_a_streamed_one_as_it_comes() -> None:
    whole, cut = Tape(), Tape()

    reply = await agent(whole, ["so be it"]).execute("go")
    other, pieces = await streamed(agent(cut, ["so be it"]))

    assert reply.output == other.output == "SO BE IT"
    assert whole.runs == [["so be it"]]
    assert cut.runs == [["so ", "be ", "it"]]
    assert pieces == ["so ", "be ", "it"], "who follows the turn hears it as before"


@given(st.lists(st.sampled_from(["```json\n", "```", "\n", '{"id": ', '"A"}', "[1]", "x", " "]), max_size=8), st.data())
def test_a_streamed_answer_is_read_like_a_finished_one(parts: list[str], data: Any) -> None:
    text = "".join(parts) + "."  # an empty answer is requested again
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    codec = data.draw(st.sampled_from([fenced_json(), json_lines(), Tape()]))

    async def outcome(stream: bool) -> Any:
        harness = agent(codec, WrittenInPieces((pieces, text), thought="hm"))
        try:
            return (await streamed(harness))[0].output if stream else (await harness.execute("go")).output
        except nn.NoeticError as exc:
            return exc.kind, exc.raw, exc.validation_error

    assert asyncio.run(outcome(True)) == asyncio.run(outcome(False))


async def test_what_counts_is_what_the_model_says_in_the_end() -> None:
    tape = Tape()

    reply, _ = await streamed(agent(tape, WrittenInPieces((["so ", "so"], "so be it"), thought="hm")))

    assert reply.output == "SO BE IT"
    assert tape.runs == [["so ", "so"], ["so be it"]]
    assert tape.finished == [1]


async def test_each_attempt_and_each_round_is_read_by_a_run_of_its_own() -> None:
    tape = Tape()
    guided = iter(["guide", "allow", "allow"])
    hooks = nn.MemoryHooks(after_model_call=lambda p: {"decision": nn.SteeringDecision(next(guided), "again")})
    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=hooks)
    replies = ["no!", nn.Reply("let me see", tool_calls=(nn.CallTool("lookup", order_id="A"),)), "so be it"]

    reply, _ = await streamed(agent(tape, replies, memory=[layer]))

    assert reply.output == "SO BE IT"
    assert tape.runs == [["no!"], ["let ", "me ", "see"], ["so ", "be ", "it"]]
    assert tape.finished == [2]


async def test_turns_leave_nothing_to_each_other() -> None:
    tape = Tape()
    harness = agent(tape, ["a", "b"])

    outputs = [(await harness.execute("go")).output, (await streamed(harness))[0].output]

    assert outputs == ["A", "B"]
    assert tape.runs == [["a"], ["b"]]


async def test_steps_side_by_side_read_their_own_answers() -> None:
    tapes = [Tape(), Tape()]
    asks = [step.llm(f"ask{n}", model=f"m{n}", output=tape) for n, tape in enumerate(tapes)]
    both = fork("f", mode="all", paths=asks, merge=lambda found, ctx: found)
    model = nn.ScriptedModel({"m0": ["so be it"], "m1": ["no way out"]})

    reply, _ = await streamed(make_harness(model, step=both))

    assert reply.output == ["SO BE IT", "NO WAY OUT"]
    assert [tape.runs for tape in tapes] == [[["so ", "be ", "it"]], [["no ", "way ", "out"]]]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_cannot_be_read_is_logged_and_stored_first(stream: bool) -> None:
    stored: list[str] = []
    hooks = nn.MemoryHooks(store=lambda p: stored.extend(item["type"] for item in p.response.items))
    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=hooks)
    harness = agent(Tape(), ["so be it! yes"], memory=[layer])

    with pytest.raises(nn.NoeticError) as caught:
        await (streamed(harness) if stream else harness.execute("go"))

    assert (caught.value.kind, caught.value.raw, caught.value.validation_error) == (
        "llm_parse_error",
        "so be it! yes",
        "do not shout",
    )
    assert stored == ["message"]
    assert [item["role"] for item in harness.log()] == ["user", "assistant"]


async def test_a_loop_feeds_on_what_the_codec_read() -> None:
    ask = step.llm("ask", model="m", output=fenced_json(dict[str, bool]))
    seen: list[Any] = []

    def done(output: Any) -> Any:
        seen.append(output)
        return {"pass": output["done"], "feedback": "go on"}

    whole = loop("l", ask, until=until.verified(done))
    replies = ['Thinking.\n```json\n{"done": false}\n```', '```json\n{"done": true}\n```']

    reply = await make_harness(replies, step=whole).execute("go")

    assert reply.output == {"done": True}
    assert seen == [{"done": False}, {"done": True}]
