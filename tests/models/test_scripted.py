"""The scripted model: what it performs, in which order, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import ItemLog, assistant_text, input_message, item_tokens
from noetic_nb.models import (
    CallTool,
    Fault,
    ModelClient,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    Reply,
    ScriptedModel,
    StreamingModelClient,
    StreamPart,
    TokenLogprob,
    ToolSpec,
    Usage,
)
from noetic_nb.tokens import estimate_tokens
from tests.models.conftest import parts_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def ask(text: str = "hi", **fields: Any) -> ModelRequest:
    return ModelRequest(**{"model": "m", "items": (input_message(text, item_id="u1"),), **fields})


# What it performs


async def test_lines_are_performed_in_order() -> None:
    model = ScriptedModel(["one", CallTool("look", at="two"), Reply("three")])

    answers = [await model.complete(ask()) for _ in range(3)]

    assert [a.items[0].type for a in answers] == ["message", "function_call", "message"]
    assert [assistant_text(a.items) for a in answers] == ["one", "", "three"]
    assert [a.finish_reason for a in answers] == ["stop", "tool_calls", "stop"]


@given(st.dictionaries(st.text(min_size=1, max_size=6), JSON, max_size=4))
def test_arguments_of_a_call_survive_as_json(args: dict[str, Any]) -> None:
    call = CallTool("tool", **args)

    assert json.loads(call.arguments) == args


def test_an_argument_may_be_called_name_or_self() -> None:
    call = CallTool("rename", name="a", self="b")

    assert (call.name, json.loads(call.arguments)) == ("rename", {"name": "a", "self": "b"})


async def test_raw_arguments_reach_the_runtime_as_they_are() -> None:
    model = ScriptedModel([CallTool.raw("look", '{"at": ')])

    response = await model.complete(ask())

    assert response.items[0].arguments == '{"at": '


async def test_calls_in_a_list_come_in_one_response_with_ids_of_their_own() -> None:
    model = ScriptedModel([[CallTool("a"), CallTool("b")]])

    response = await model.complete(ask())

    assert [item.name for item in response.items] == ["a", "b"]
    assert len({item.call_id for item in response.items}) == 2


async def test_a_whole_reply_keeps_everything_it_was_given() -> None:
    reply = Reply(
        "Packed.",
        tool_calls=[CallTool("ship")],
        usage={"inputTokens": 7, "output_tokens": 3},
        logprobs=[-0.5, ("ed", -0.25), TokenLogprob(".", -1.0)],
        cost=0.002,
        reasoning="First pack.",
        finish_reason="length",
    )

    response = await ScriptedModel([reply]).complete(ask())

    assert [item.type for item in response.items] == ["reasoning", "message", "function_call"]
    assert response.items[1].status == "incomplete"
    assert response.usage == Usage(7, 3)
    assert response.logprobs == (TokenLogprob("", -0.5), TokenLogprob("ed", -0.25), TokenLogprob(".", -1.0))
    assert (response.cost, response.finish_reason) == (0.002, "length")


async def test_a_refusing_reply_is_a_message_with_a_refusal_part() -> None:
    response = await ScriptedModel([Reply(refusal="No.")]).complete(ask())

    assert response.items[0].content == ({"type": "refusal", "refusal": "No."},)


@pytest.mark.parametrize("line", ["", Reply(), Fault("empty")])
async def test_saying_nothing_makes_no_item(line: Any) -> None:
    response = await ScriptedModel([line]).complete(ask())

    assert response.items == ()


async def test_a_function_of_the_request_may_be_sync_or_async() -> None:
    async def later(request: ModelRequest) -> Reply:
        return Reply(f"async {request.model}")

    sync = await ScriptedModel(lambda request: f"sync {len(request.items)}").complete(ask())
    awaited = await ScriptedModel(later).complete(ask())

    assert (assistant_text(sync.items), assistant_text(awaited.items)) == ("sync 1", "async m")


async def test_a_mapping_serves_each_model_by_its_name_and_any_purpose() -> None:
    model = ScriptedModel({"m": ["hello"], "judge": lambda request: "ALLOW"})

    verdict = await model.complete(ask(model="judge", purpose="judge"))
    hello = await model.complete(ask())

    assert (assistant_text(verdict.items), assistant_text(hello.items)) == ("ALLOW", "hello")
    assert model.remaining == 0


async def test_an_exception_in_the_script_is_raised_without_a_growing_traceback() -> None:
    boom = ValueError("boom")
    model = ScriptedModel([boom])

    depths = []
    for _ in range(3):
        model.reset()
        with pytest.raises(ValueError, match="boom") as caught:
            await model.complete(ask())
        depths.append(len(caught.traceback))

    assert len(set(depths)) == 1


# Determinism and counting


async def test_two_models_with_one_script_answer_alike_and_reset_starts_again() -> None:
    script = [CallTool("a"), "b", Reply("c", reasoning="because")]
    first, second = ScriptedModel(script), ScriptedModel(script)

    one = [await first.complete(ask()) for _ in script]
    two = [await second.complete(ask()) for _ in script]
    first.reset()
    again = [await first.complete(ask()) for _ in script]

    assert one == two == again
    assert len(first.requests) == 3


async def test_seeds_keep_the_call_ids_of_two_models_apart() -> None:
    ids = {(await ScriptedModel([CallTool("a")], seed=seed).complete(ask())).items[0].call_id for seed in range(3)}

    assert len(ids) == 3


async def test_the_script_is_copied_and_never_changed() -> None:
    script: list[Any] = ["one", [CallTool("a")]]
    model = ScriptedModel(script)
    script.clear()

    await model.complete(ask())

    assert model.remaining == 1


async def test_usage_is_estimated_from_items_instructions_tools_and_answer() -> None:
    tool = ToolSpec("look", "Look.", {"type": "object"})
    request = ask(instructions="Be brief.", tools=(tool,))

    response = await ScriptedModel(["fine"]).complete(request)

    tools = estimate_tokens('["look","Look.",{"type":"object"}]')
    assert response.usage.input_tokens == item_tokens(request.items[0]) + estimate_tokens("Be brief.") + tools
    assert response.usage.output_tokens == item_tokens(response.items[0])


async def test_a_view_of_a_log_is_not_counted_again() -> None:
    log = ItemLog([input_message("hi")] * 3, tokenizer=lambda text: 1_000)

    response = await ScriptedModel(["fine"]).complete(ask(items=log.items))

    assert response.usage.input_tokens == 3_000


async def test_usage_none_reports_zeros() -> None:
    response = await ScriptedModel(["fine"], usage="none").complete(ask())

    assert response.usage == Usage()


# Faults


@pytest.mark.parametrize(
    ("fault", "kind", "facts"),
    [
        (Fault("rate_limit", retry_after_ms=1_500), "llm_rate_limit", {"retry_after_ms": 1_500, "status": 429}),
        (Fault("server_error"), "llm_failed", {"status": 500, "reason": "status"}),
        (Fault("server_error", status=503), "llm_failed", {"status": 503}),
        (Fault("timeout"), "llm_failed", {"reason": "timeout"}),
        (Fault("disconnect"), "llm_failed", {"reason": "disconnect"}),
        (Fault("refusal", message="No."), "llm_refused", {"refusal": "No."}),
    ],
)
async def test_faults_raise_what_an_endpoint_would(fault: Fault, kind: str, facts: dict[str, Any]) -> None:
    model = ScriptedModel([fault, "back again"])

    with pytest.raises(NoeticError) as caught:
        await model.complete(ask())

    assert caught.value.kind == kind
    assert {name: caught.value.facts[name] for name in facts} == facts
    assert isinstance(caught.value.usage, Usage)
    assert assistant_text((await model.complete(ask())).items) == "back again"


async def test_garbage_is_no_response() -> None:
    garbage = await ScriptedModel([Fault("garbage")]).complete(ask())
    chosen = await ScriptedModel([Fault("garbage", value=42)]).complete(ask())

    assert not isinstance(garbage, ModelResponse)
    assert chosen == 42


async def test_a_hanging_model_can_be_cancelled() -> None:
    async with asyncio.timeout(5):
        task = asyncio.create_task(ScriptedModel([Fault("hang")]).complete(ask()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_stream_breaks_off_after_the_deltas_it_was_told() -> None:
    seen: list[StreamPart] = []

    async def watch() -> None:
        async for part in ScriptedModel([Fault("disconnect", after=12)]).stream(ask()):
            seen.append(part)

    with pytest.raises(NoeticError) as caught:
        await watch()

    assert caught.value.reason == "disconnect"
    assert len(seen) == 12
    assert all(isinstance(part, ModelDelta) for part in seen)


# Streaming


@given(st.text(min_size=1, max_size=60))
def test_deltas_of_a_stream_join_to_the_text(text: str) -> None:
    parts = asyncio.run(parts_of(ScriptedModel([text]), ask()))

    assert "".join(part.text for part in parts[:-1] if isinstance(part, ModelDelta)) == text
    assert isinstance(parts[-1], ModelResponse)
    assert assistant_text(parts[-1].items) == text


async def test_a_stream_ends_with_the_response_complete_would_give() -> None:
    script = [Reply("Wait a moment.", tool_calls=[CallTool("a", x=1), CallTool("b")], reasoning="Think it over.")]

    whole = await ScriptedModel(script).complete(ask())
    parts = await parts_of(ScriptedModel(script), ask())

    assert parts[-1] == whole
    deltas = [part for part in parts if isinstance(part, ModelDelta)]
    assert {d.kind for d in deltas} == {"reasoning", "text", "tool_call"}
    assert {d.facts["name"]: d.text for d in deltas if d.kind == "tool_call"} == {"a": '{"x":1}', "b": "{}"}


def test_it_satisfies_both_protocols() -> None:
    model = ScriptedModel([])

    assert isinstance(model, ModelClient)
    assert isinstance(model, StreamingModelClient)


# What it says when it cannot


async def test_a_used_up_script_says_so() -> None:
    model = ScriptedModel(["only one"])
    await model.complete(ask())

    with pytest.raises(NoeticError, match="used up: it had 1 reply,") as caught:
        await model.complete(ask())

    assert (caught.value.kind, caught.value.reason) == ("llm_failed", "script")


@pytest.mark.parametrize("purpose", ["judge", "layer", "summary"])
async def test_a_bare_list_serves_nobody_but_the_agent_and_keeps_its_lines(purpose: str) -> None:
    model = ScriptedModel(["for the agent"])

    with pytest.raises(NoeticError, match=f"serves the agent only; a {purpose} asked it") as caught:
        await model.complete(ask(purpose=purpose))

    assert caught.value.kind == "llm_failed"
    assert model.remaining == 1


async def test_a_model_name_that_is_not_in_the_mapping_is_named() -> None:
    with pytest.raises(NoeticError, match=r"no lines for model 'x'.*has lines for 'm'"):
        await ScriptedModel({"m": ["hello"]}).complete(ask(model="x"))


@pytest.mark.parametrize(
    "build",
    [
        lambda: ScriptedModel("hello"),
        lambda: ScriptedModel([42]),
        lambda: ScriptedModel([[]]),
        lambda: ScriptedModel([["text", CallTool("a")]]),
        lambda: ScriptedModel({"m": "hello"}),
        lambda: ScriptedModel(["a"], usage="guess"),
        lambda: CallTool(""),
        lambda: CallTool("a", x=object()),
        lambda: CallTool("a", x=float("nan")),
        lambda: CallTool.raw("a", {"x": 1}),
        lambda: Reply(None),
        lambda: Reply("a", tool_calls=["b"]),
        lambda: Reply("a", usage={"tokens": 1}),
        lambda: Reply("a", usage={"input_tokens": -1}),
        lambda: Reply("a", logprobs=["x"]),
        lambda: Reply("a", logprobs=[0.5]),
        lambda: Reply("a", logprobs=[float("nan")]),
        lambda: Reply("a", cost=-1),
        lambda: Reply("a", cost=float("nan")),
        lambda: Fault("explode"),
        lambda: Fault("timeout", retry_after_ms=5),
        lambda: Fault("hang", after=-1),
    ],
)
def test_a_wrong_script_fails_where_it_is_written(build: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        build()

    assert caught.value.code == "INVALID_SCRIPT"
    assert caught.value.hint


async def test_a_function_that_returns_no_line_is_told_so() -> None:
    with pytest.raises(NoeticConfigError, match="cannot answer with a dict"):
        await ScriptedModel(lambda request: {"text": "hi"}).complete(ask())  # type: ignore[return-value, arg-type]


def test_reprs_show_what_a_script_does() -> None:
    line = [CallTool("a", x=1), CallTool.raw("a", "{"), Fault("hang", after=2)]

    assert [repr(entry) for entry in line] == ["CallTool('a', x=1)", "CallTool.raw('a', '{')", "Fault('hang', after=2)"]
    assert repr(ScriptedModel({"m": ["x"]})) == "<ScriptedModel for 'm': 1 left, 0 requests seen>"
