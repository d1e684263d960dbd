"""Truncated answers: their calls are not run, and readers can see that they are incomplete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items import function_call
from noetic_nb.models._client import ModelRequest, ModelResponse
from noetic_nb.steps import dump_step, load_step, step
from tests.models.endpoint import chat, chat_chunks, response, running, sse
from tests.runtime.factories import make_harness, outputs, record_events, requests_of, texts

NOT_RUN = "Error: not run: the answer was cut off"
CUT = ["length", "content_filter"]


class Deletions:
    """A tool with defaults that records its calls."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @property
    def tool(self) -> Any:
        @nn.tool
        def delete(path: str = "/", recursive: bool = True) -> str:
            """Delete files."""
            self.ran.append(path)
            return "deleted"

        return delete


def half(text: str, **more: Any) -> nn.Reply:
    return nn.Reply(text, finish_reason="length", **more)


@pytest.mark.parametrize("reason", CUT)
@pytest.mark.parametrize("arguments", ["", "{}", '{"path": "/tm', '{"path": "/tmp"}'])
@pytest.mark.parametrize("stream", [True, False])
async def test_calls_of_an_answer_that_was_cut_off_are_not_run(reason: str, arguments: str, stream: bool) -> None:
    files = Deletions()
    call = nn.CallTool.raw("delete", arguments)
    harness = make_harness([nn.Reply(tool_calls=[call, call], finish_reason=reason), "Done."], tools=[files.tool])
    events = record_events(harness)

    reply = await (harness.stream("go").reply if stream else harness.execute("go"))

    assert files.ran == []
    assert outputs(reply.items) == [NOT_RUN, NOT_RUN]
    assert (reply.text, reply.finish_reason, events.of("tool_called")) == ("", reason, [])


@pytest.mark.parametrize("reason", ["stop", "tool_calls", None])
async def test_calls_of_a_whole_answer_without_arguments_are_run(reason: str | None) -> None:
    files = Deletions()
    call = nn.CallTool.raw("delete", "")
    harness = make_harness([nn.Reply(tool_calls=[call], finish_reason=reason), "Done."], tools=[files.tool])

    assert (await harness.execute("go")).text == "Done."
    assert files.ran == ["/"]


class Client:
    """A user's client, which reports finish reasons in its own words."""

    def __init__(self, reason: str, *, as_mapping: bool) -> None:
        self.reason, self.as_mapping = reason, as_mapping

    async def complete(self, request: ModelRequest) -> Any:
        call = function_call("delete", "", "c1")
        if self.as_mapping:
            return {"items": [call], "finishReason": self.reason}
        return ModelResponse((call,), finish_reason=self.reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("as_mapping", [True, False])
@pytest.mark.parametrize(
    ("given", "known"), [("MAX_TOKENS", "length"), ("max_output_tokens", "length"), ("SAFETY", "content_filter")]
)
async def test_a_client_may_say_in_its_own_words_that_an_answer_was_cut_off(
    given: str, known: str, as_mapping: bool
) -> None:
    files = Deletions()

    reply = await make_harness(Client(given, as_mapping=as_mapping), tools=[files.tool]).execute("go")

    assert (files.ran, reply.finish_reason) == ([], known)


def _function(arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "delete", "arguments": arguments}}


def _chat_stream(reason: str) -> Any:
    call = {"index": 0, **_function("")}
    return sse([*chat_chunks({"tool_calls": [call]}, finish_reason=reason), *chat_chunks(finish_reason="stop")])


def _wire_call(**more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "delete", "arguments": "", **more}


def _responses(reason: str, **more: Any) -> dict[str, Any]:
    given = "max_output_tokens" if reason == "length" else reason
    return response(_wire_call(), status="incomplete", incomplete_details={"reason": given}, **more)


def _responses_stream(reason: str) -> Any:
    body = _responses(reason)
    del body["status"]  # the event says it
    return sse([{"type": "response.incomplete", "response": body}])


WIRES: dict[str, Any] = {
    "chat": lambda reason: chat(finish_reason=reason, tool_calls=[_function("")]),
    "chat stream": _chat_stream,
    "responses": _responses,
    "responses stream": _responses_stream,
}


@pytest.mark.parametrize("reason", CUT)
@pytest.mark.parametrize("wire", WIRES)
async def test_calls_cut_off_on_the_wire_are_not_run(wire: str, reason: str) -> None:
    files = Deletions()
    async with running() as endpoint:
        endpoint.then(WIRES[wire](reason))
        endpoint.then(chat("Done.")).then(chat("Done."))
        api: Any = wire.split()[0]
        model = nn.OpenAIModel("m", base_url=endpoint.url, api=api, max_retries=0)
        harness = make_harness(model, tools=[files.tool])
        reply = await (harness.stream("go").reply if "stream" in wire else harness.execute("go"))
        await model.aclose()

    assert files.ran == []
    assert outputs(reply.items) == [NOT_RUN]
    assert reply.finish_reason == reason


async def test_a_call_that_the_provider_marks_as_incomplete_is_not_run() -> None:
    files = Deletions()
    async with running() as endpoint:
        endpoint.then(response(_wire_call(status="incomplete")))
        model = nn.OpenAIModel("m", base_url=endpoint.url, api="responses")
        reply = await make_harness(model, tools=[files.tool]).execute("go")
        await model.aclose()

    assert (files.ran, reply.finish_reason) == ([], "length")


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_half_a_call_is_sent_as_one_that_servers_can_read(api: Any) -> None:
    async with running() as endpoint:
        call = _function('{"path": "/tm')
        cut = response({**_wire_call(), "arguments": '{"path": "/tm'}, status="incomplete")
        endpoint.then(chat(finish_reason="length", tool_calls=[call]) if api == "chat" else cut)
        endpoint.then(
            chat("ok") if api == "chat" else response({**_wire_call(), "arguments": "{}"}, status="incomplete")
        )
        model = nn.OpenAIModel("m", base_url=endpoint.url, api=api)
        harness = make_harness(model, tools=[Deletions().tool])
        first = await harness.execute("go")
        await harness.execute("and now?")
        await model.aclose()

    sent = endpoint.seen[1].body
    calls = [c["function"] for m in sent.get("messages", ()) for c in m.get("tool_calls") or ()]
    calls += [item for item in sent.get("input", ()) if item.get("type") == "function_call"]
    assert [c["arguments"] for c in calls] == ["{}"]
    assert [item["arguments"] for item in first.items if item["type"] == "function_call"] == ['{"path": "/tm']


# What becomes of the answer


async def test_an_answer_that_was_cut_off_is_returned_with_a_mark_and_a_warning() -> None:
    harness = make_harness([half("It is pack"), "It is packed."])

    cut, whole = await harness.execute("Where?"), await harness.execute("And?")

    assert (cut.text, cut.finish_reason) == ("It is pack", "length")
    assert [(w.code, w.layer_id, w.turn) for w in cut.warnings] == [("answer_cut", None, 1)]
    assert "limit of generated tokens" in cut.warnings[0].text
    assert (whole.finish_reason, whole.warnings) == ("stop", ())


async def test_the_reason_is_in_the_run_its_file_and_its_table(tmp_path: Path) -> None:
    harness = make_harness([half("It is pack"), nn.CallTool("lookup", order_id="A"), "It is packed."])
    run = nn.record(harness)
    for _ in range(2):
        await harness.execute("Where?")

    loaded = nn.load_run(run.save(tmp_path / "run.jsonl.gz"))

    for one in (run, loaded):
        assert list(one.to_frame("turns")["finish_reason"]) == ["length", "stop"]
        called = [event.finish_reason for event in one.events if event.kind == "model_called"]
        assert called == ["length", "tool_calls", "stop"]


async def test_layers_are_given_the_reason() -> None:
    seen: list[Any] = []
    hooks = nn.MemoryHooks(
        after_model_call=lambda p: seen.append(p.response.finish_reason),
        store=lambda p: seen.append(p.response.finish_reason),
    )

    await make_harness([half("x")], memory=[nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=hooks)]).execute("hi")

    assert seen == ["length", "length"]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_is_continued_and_joined_as_it_is(stream: bool) -> None:
    harness = make_harness([half("It is "), half("pack"), "ed."], incomplete="continue")

    turn = harness.stream("Where?")
    pieces = [piece async for piece in turn.text] if stream else []
    reply = await (turn.reply if stream else harness.execute("Where?"))

    assert (reply.text, reply.finish_reason, reply.warnings) == ("It is packed.", "stop", ())
    assert list(texts(reply.items)) == ["user: Where?", "assistant: It is packed."]
    assert "".join(pieces) == (reply.text if stream else "")
    last = requests_of(harness)[-1].items
    assert [item["role"] for item in last] == ["user", "assistant", "user"]
    assert list(texts(last))[1] == "assistant: It is pack"
    assert reply.usage.output_tokens > 2


async def test_an_answer_is_continued_at_most_three_times() -> None:
    harness = make_harness([half(word) for word in "abcdef"], incomplete="continue")

    reply = await harness.execute("Go.")

    assert (reply.text, reply.finish_reason, len(requests_of(harness))) == ("abcd", "length", 4)
    assert [warning.code for warning in reply.warnings] == ["answer_cut"]


async def test_a_continuation_without_a_word_leaves_the_answer_cut_off() -> None:
    harness = make_harness([half("a"), *[nn.Fault("empty")] * 3], incomplete="continue")

    reply = await harness.execute("Go.")

    assert (reply.text, reply.finish_reason) == ("a", "length")


async def test_what_a_filter_ended_is_not_continued() -> None:
    harness = make_harness([nn.Reply("How to", finish_reason="content_filter"), "no"], incomplete="continue")

    reply = await harness.execute("Go.")

    assert (reply.text, reply.finish_reason, len(requests_of(harness))) == ("How to", "content_filter", 1)
    assert "filter" in reply.warnings[0].text


async def test_cut_calls_are_answered_and_the_model_is_asked_for_the_rest() -> None:
    files = Deletions()
    cut = half("Let me see.", tool_calls=[nn.CallTool.raw("delete", "")])
    harness = make_harness(
        [cut, nn.CallTool("delete", path="/tmp/x"), "Done."], tools=[files.tool], incomplete="continue"
    )

    reply = await harness.execute("Go.")

    assert files.ran == ["/tmp/x"]
    assert outputs(reply.items) == [NOT_RUN, "deleted"]
    assert (reply.text, reply.finish_reason, reply.warnings) == ("Done.", "stop", ())


async def test_a_model_that_only_writes_half_calls_is_asked_no_more_than_three_times() -> None:
    files = Deletions()
    cut = half("", tool_calls=[nn.CallTool.raw("delete", "")])
    harness = make_harness([cut] * 9, tools=[files.tool], incomplete="continue")

    reply = await harness.execute("Go.")

    assert (files.ran, len(requests_of(harness)), reply.finish_reason) == ([], 4, "length")


async def test_rules_review_the_joined_answer() -> None:
    rules = nn.RuleBook()

    @rules.rule(on="after_model_call")
    def discreet(answer: Any) -> Any:
        return nn.deny("No.") if "secret word" in answer.text else None

    harness = make_harness([half("the secret "), "word"], incomplete="continue", memory=[nn.steering(rules)])

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("Go.")

    assert caught.value.kind == "steering_denied"
    assert list(texts(harness.log())) == ["user: Go."]


async def test_an_answer_that_was_cut_off_may_be_an_error() -> None:
    harness = make_harness([half("It is pack"), "fine"], incomplete="error")

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("Where?")

    assert (caught.value.kind, caught.value.reason, caught.value.finish_reason) == (
        "llm_failed",
        "incomplete",
        "length",
    )
    assert list(texts(harness.log())) == ["user: Where?"]
    assert (await harness.execute("Again?")).text == "fine"


@pytest.mark.parametrize("where", ["step", "react", "agent"])
async def test_the_step_decides_and_else_the_agent(where: str) -> None:
    own: Any = {} if where == "agent" else {"incomplete": "error"}
    one = nn.react(model="m", **own) if where == "react" else step.llm("ask", model="m", **own)
    harness = make_harness([half("x")], step=one, incomplete="error" if where == "agent" else "continue")

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("Go.")

    assert caught.value.reason == "incomplete"


@pytest.mark.parametrize("output", [dict[str, int], None])
async def test_a_cut_answer_that_cannot_be_read_says_that_it_was_cut(output: Any) -> None:
    from noetic_nb.steps import fenced_json

    said = '```json\n{"count": 1' if output is None else '{"count": 1'
    ask = step.llm("ask", model="m", output=fenced_json() if output is None else output)

    with pytest.raises(nn.NoeticError) as caught:
        await make_harness([half(said)], step=ask).execute("Go.")

    assert (caught.value.kind, caught.value.finish_reason, caught.value.raw) == ("llm_parse_error", "length", said)
    assert "cut off" in str(caught.value)


async def test_a_continued_answer_is_read_as_one() -> None:
    ask = step.llm("ask", model="m", output=dict[str, int], incomplete="continue")

    reply = await make_harness([half('{"cou'), 'nt": 1}'], step=ask).execute("Go.")

    assert reply.output == {"count": 1}


async def test_a_cut_answer_of_a_child_marks_the_reply() -> None:
    harness = make_harness([half("It is pack")], step=nn.react(model="m", memory=[]))

    reply = await harness.execute("Where?")

    assert (reply.text, reply.finish_reason, len(reply.warnings)) == ("It is pack", "length", 1)


async def test_a_turn_that_a_layer_stopped_has_no_reason() -> None:
    hooks = nn.MemoryHooks(after_model_call=lambda p: {"stop": nn.Stop({"kind": "enough"}, "Stop here.")})
    layer = nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=hooks)

    assert (await make_harness(["x"], memory=[layer]).execute("hi")).finish_reason is None


def test_the_choice_travels_as_json() -> None:
    ask = step.llm("ask", model="m", incomplete="continue")

    assert dump_step(ask)["incomplete"] == "continue"
    assert load_step(dump_step(ask)) == ask
    assert "incomplete" not in dump_step(step.llm("ask", model="m"))
    config = nn.AgentConfig(name="a", step=nn.react(model="m", incomplete="error"), incomplete="continue")
    assert nn.load_config(nn.dump_config(config)) == config
    with pytest.raises(nn.NoeticConfigError) as caught:
        nn.AgentConfig(name="a", incomplete="maybe")  # type: ignore[arg-type]
    assert caught.value.code == "INVALID_AGENT_CONFIG"
