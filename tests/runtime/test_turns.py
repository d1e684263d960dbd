"""One turn asks, runs tools and answers; and the effects of faulty models and tools."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import innermost
from noetic_nb.items import assistant_message, input_message, item_text
from noetic_nb.models import ModelRequest, ModelResponse
from tests.runtime.factories import OddModel, lookup, make_harness, outputs, record_events, texts


async def test_a_turn_without_tools_logs_question_and_answer() -> None:
    harness = make_harness(["Hello!"])

    reply = await harness.execute("Hi")

    assert (reply.text, str(reply), reply.stopped, reply.thread_id) == ("Hello!", "Hello!", None, "default")
    assert list(texts(reply.items)) == ["user: Hi", "assistant: Hello!"]
    assert list(harness.log()) == list(reply.items)


def noting(p: Any) -> Any:
    """Insert a note before the logged items."""
    return {"items": [input_message("note", "developer"), *p.items]}


@pytest.mark.parametrize("hook", [None, noting])
async def test_a_turn_is_in_the_run_before_the_items_it_begins_with(hook: Any) -> None:
    hooks = nn.MemoryHooks() if hook is None else nn.MemoryHooks(on_item_append=hook)
    harness = make_harness(["Hello!"], memory=[nn.MemoryLayer(id="notes", slot=100, scope="thread", hooks=hooks)])
    events = record_events(harness)

    await harness.execute("Hi")

    order = [event.kind for event in events if event.kind in ("turn_started", "items_appended")]
    assert order[:2] == ["turn_started", "items_appended"]
    (started,) = events.of("turn_started")
    assert (started.start, started.stop, started.query) == (0, 1 if hook is None else 2, "Hi")
    assert [event.origin for event in events.of("items_appended")][-2:] == ["user", "model"]


async def test_a_turn_whose_layer_fails_is_in_the_run_before_its_items() -> None:
    def init(p: Any) -> Any:
        raise ValueError("no")

    layer = nn.MemoryLayer(id="notes", slot=100, scope="thread", hooks=nn.MemoryHooks(init=init))
    harness = make_harness(["Hello!"], memory=[layer])
    events = record_events(harness)

    with pytest.raises(ValueError, match="no"):
        await harness.execute("Hi")

    order = [event.kind for event in events if event.kind in ("turn_started", "items_appended")]
    assert order == ["turn_started", "items_appended"]


async def test_a_tool_is_run_and_the_model_reads_its_result() -> None:
    model = nn.ScriptedModel([nn.CallTool("lookup", order_id="A17"), "Packed."])
    harness = make_harness(model)

    reply = await harness.execute("Where is A17?")

    assert reply.text == "Packed."
    assert json.loads(outputs(model.requests[1].items)[0]) == {"order": "A17", "state": "packed"}
    assert [item["type"] for item in reply.items] == ["message", "function_call", "function_call_output", "message"]


async def test_the_reply_carries_what_the_turn_cost() -> None:
    usage = {"input_tokens": 10, "output_tokens": 2}
    replies = [nn.Reply(tool_calls=nn.CallTool("lookup", order_id="A"), usage=usage, cost=0.25),
               nn.Reply("done", usage=usage, cost=0.5), nn.Reply("again", usage=usage, cost=1.0)]  # fmt: skip
    harness = make_harness(replies)

    first, second = await harness.execute("one"), await harness.execute("two")

    assert (first.usage.input_tokens, first.usage.output_tokens, first.cost) == (20, 4, 0.75)
    assert (second.usage.input_tokens, second.cost) == (10, 1.0)


async def test_several_calls_of_one_response_run_in_order() -> None:
    calls = [nn.CallTool("lookup", order_id="A"), nn.CallTool("lookup", order_id="B")]
    harness = make_harness([calls, "both"])

    reply = await harness.execute("two orders")

    assert [json.loads(text)["order"] for text in outputs(reply.items)] == ["A", "B"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (nn.CallTool("lookpu", order_id="A"), "unknown tool 'lookpu'"),
        (nn.CallTool.raw("lookup", '{"order_id": '), "malformed JSON in tool arguments"),
        (nn.CallTool.raw("lookup", "[1]"), "do not fit"),
        (nn.CallTool.raw("lookup", '"A17"'), "do not fit"),
        (nn.CallTool("lookup"), "order_id: Field required"),
        (nn.CallTool("lookup", order_id=17), "order_id: Input should be a valid string"),
        (nn.CallTool("lookup", order_id="A", colour="red"), "colour: Extra inputs"),
        (nn.CallTool("fails", reason="no paper"), "Error: no paper"),
    ],
)
async def test_the_model_reads_why_its_call_failed_and_goes_on(call: nn.CallTool, says: str) -> None:
    harness = make_harness([call, "I see."])

    reply = await harness.execute("try")

    assert says in outputs(reply.items)[0]
    assert reply.text == "I see."


async def test_a_deeply_nested_argument_text_is_refused_and_not_a_crash() -> None:
    harness = make_harness([nn.CallTool.raw("lookup", "[" * 100_000), "I see."])

    reply = await harness.execute("try")

    assert outputs(reply.items)[0].startswith("Error: malformed JSON")


async def test_a_tool_result_that_does_not_fit_its_annotation_is_an_error_for_the_model() -> None:
    @nn.tool
    def count() -> int:
        """Count."""
        return "many"  # type: ignore[return-value]

    harness = make_harness([nn.CallTool("count"), "I see."], tools=[count])
    events = record_events(harness)

    reply = await harness.execute("count")

    assert "does not fit its annotation" in outputs(reply.items)[0]
    assert [event.status for event in events.of("tool_called")] == ["invalid_result"]


async def test_a_tool_that_returns_nothing_still_answers_its_call() -> None:
    @nn.tool
    def ping() -> None:
        """Do nothing."""

    harness = make_harness([nn.CallTool("ping"), "ok"], tools=[ping])

    assert outputs((await harness.execute("ping")).items) == ["null"]


async def test_a_tool_is_told_its_context() -> None:
    seen: list[Any] = []

    @nn.tool
    def peek(ctx: Any) -> str:
        """Look."""
        seen.append((ctx.thread_id, ctx.resource_id))
        return "ok"

    await make_harness([nn.CallTool("peek"), "done"], tools=[peek]).execute("look", thread_id="t9", resource_id="ann")

    assert seen == [("t9", "ann")]


@pytest.mark.parametrize("value", [None, 3, {"items": [{"text": "?"}]}, {"items": "text"}, object(), {"items": [3]}])
async def test_garbage_from_a_model_is_one_clear_error(value: Any) -> None:
    class Garbage:
        async def complete(self, request: Any) -> ModelResponse:
            return value

    harness = make_harness(Garbage())

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("hi")

    assert caught.value.kind == "llm_failed"
    assert "not a response" in str(caught.value)


async def test_an_unknown_item_type_from_a_model_is_refused() -> None:
    with pytest.raises(nn.NoeticError) as caught:
        await make_harness(OddModel()).execute("hi")

    assert caught.value.kind == "item_schema_mismatch"


async def test_an_empty_answer_is_asked_for_again_without_a_trace_in_the_log() -> None:
    model = nn.ScriptedModel([nn.Fault("empty"), nn.Fault("empty"), "There."])
    harness = make_harness(model)

    reply = await harness.execute("hi")

    assert list(texts(reply.items)) == ["user: hi", "assistant: There."]
    assert list(texts(model.requests[1].items))[-1] == "user: continue"
    assert list(texts(model.requests[0].items))[-1] == "user: hi"


async def test_four_empty_answers_in_a_row_fail_the_turn() -> None:
    model = nn.ScriptedModel([nn.Fault("empty")] * 9)

    with pytest.raises(nn.NoeticError) as caught:
        await make_harness(model).execute("hi")

    assert caught.value.kind == "llm_failed"
    assert len(model.requests) == 4


@pytest.mark.parametrize("line", [nn.Fault("refusal", message="No."), nn.Reply(refusal="No.")])
async def test_a_refusal_is_an_error_of_its_own_and_is_not_logged(line: Any) -> None:
    harness = make_harness([line])

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("hi")

    assert (caught.value.kind, caught.value.refusal) == ("llm_refused", "No.")
    assert list(texts(harness.log())) == ["user: hi"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (nn.Fault("rate_limit", retry_after_ms=2_000), "llm_rate_limit"),
        (nn.Fault("server_error"), "llm_failed"),
        (nn.Fault("disconnect"), "llm_failed"),
        (ValueError("boom"), "llm_failed"),
    ],
)
async def test_a_failed_turn_keeps_the_question_and_the_thread_usable(fault: Any, kind: str) -> None:
    harness = make_harness([fault, "Better now."])
    events = record_events(harness)

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("first")
    reply = await harness.execute("second")

    assert caught.value.kind == kind
    assert list(texts(harness.log())) == ["user: first", "user: second", "assistant: Better now."]
    assert list(texts(reply.items)) == ["user: second", "assistant: Better now."]
    assert [event.outcome for event in events.of("turn_completed")] == ["failure", "success"]
    assert [event.error_kind for event in events.of("error_raised")] == [kind]


async def test_max_steps_counts_model_calls() -> None:
    model = nn.ScriptedModel(lambda request: nn.CallTool("lookup", order_id="A"))

    reply = await make_harness(model, max_steps=3).execute("loop")

    assert len(model.requests) == 3
    assert [item["type"] for item in reply.items][-1] == "function_call_output", "no call is left without an answer"


async def test_an_llm_step_of_its_own_runs_all_rounds_and_says_so_when_they_never_end() -> None:
    step = nn.step.llm("ask", model="scripted", tools=[lookup], tool_rounds=3)
    model = nn.ScriptedModel(lambda request: nn.CallTool("lookup", order_id="A"))
    harness = make_harness(model, step=step)

    with pytest.raises(nn.NoeticError, match="still calling tools after 6 rounds") as caught:
        await harness.execute("go")

    assert (caught.value.kind, caught.value.step_id) == ("step_failed", "ask")
    said = [item_text(request.items[-1]) for request in model.requests]
    assert said[3:] == ["continue"] * 3, "three more rounds, each led by a word that is not logged"
    assert "continue" not in said[:3]
    assert [item_text(item) for item in harness.log() if item["type"] == "message"] == ["go"]


async def test_a_model_that_answers_when_told_to_continue_has_answered() -> None:
    step = nn.step.llm("ask", model="scripted", tools=[lookup], tool_rounds=2)

    def answer(request: Any) -> Any:
        return "Enough." if item_text(request.items[-1]) == "continue" else nn.CallTool("lookup", order_id="A")

    assert (await make_harness(answer, step=step).execute("go")).text == "Enough."


@pytest.mark.parametrize("arguments", ['{"x": NaN}', '{"x": -Infinity}', '{"x": ' + "[" * 250 + "]" * 250 + "}"])
async def test_arguments_that_are_no_json_data_are_told_to_the_model(arguments: str) -> None:
    ran: list[Any] = []

    @nn.tool
    def keep(x: Any) -> str:
        """Keep anything."""
        ran.append(x)
        return "kept"

    reply = await make_harness([nn.CallTool.raw("keep", arguments), "I see."], tools=[keep]).execute("go")

    assert (reply.text, ran) == ("I see.", [])
    assert outputs(reply.items)[0].startswith("Error: ")


async def test_arguments_of_a_tool_step_that_are_no_json_data_fail_the_step() -> None:
    @nn.tool
    def keep(x: object) -> str:
        """Keep anything."""
        return "kept"

    harness = make_harness([])
    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError) as caught:
            await harness.run(nn.step.tool("keep", keep), {"x": object()}, ctx)

    assert caught.value.kind == "step_failed"


async def test_a_failed_step_is_not_wrapped_again_by_one_that_tried_it_twice() -> None:
    def fails(value: Any, ctx: Any) -> Any:
        raise ValueError("no")

    async def outer(value: Any, ctx: Any) -> Any:
        return await ctx.run(nn.step.run("inner", fails), value)

    harness = make_harness([], step=nn.step.run("outer", outer, retry={"max_attempts": 2}))
    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("go")

    assert (caught.value.kind, caught.value.step_id) == ("step_failed", "inner")


async def test_the_innermost_error_says_what_failed_not_what_it_was_raised_from() -> None:
    async def asks(value: Any, ctx: Any) -> Any:
        return await ctx.run(nn.step.llm("ask", model="m", output=int), "How many?")

    with pytest.raises(nn.NoeticError) as caught:
        await make_harness(["no number"], step=nn.step.run("outer", asks)).execute("go")

    assert caught.value.kind == "step_failed"
    assert innermost(caught.value).kind == "llm_parse_error"  # type: ignore[attr-defined]


async def test_what_has_been_spent_is_known_at_each_round_of_a_step() -> None:
    seen: list[float] = []
    layer = nn.MemoryLayer(
        id="watch",
        slot=1,
        scope="execution",
        hooks=nn.MemoryHooks(before_tool_call=lambda p: seen.append(p.ctx.cost)),
    )
    call = nn.Reply(tool_calls=[nn.CallTool("lookup", order_id="A")], cost=1.0)
    step = nn.step.llm("ask", model="scripted", tools=[lookup], tool_rounds=8)

    await make_harness([call, call, call, "done"], step=step, memory=[layer]).execute("go")

    assert seen == [1.0, 2.0, 3.0]


async def test_another_agents_reply_is_read_by_its_names_and_said_by_its_text() -> None:
    other = make_harness(["It is packed."])

    @nn.tool
    async def delegate() -> Any:
        """Ask another agent."""
        return await other.execute("Where?")

    model = nn.ScriptedModel([nn.CallTool("delegate"), "Packed."])
    reply = await make_harness(model, tools=[delegate]).execute("go")
    told = json.loads(outputs(reply.items)[0])
    assert (told["text"], told["usage"]["output_tokens"] > 0) == ("It is packed.", True)

    async def ask(value: Any, ctx: Any) -> Any:
        return await other.execute("Where?")

    other._engine.models = nn.ScriptedModel(["On its way."])
    model = nn.ScriptedModel(["ok"])
    both = nn.loop("both", [nn.step.run("ask", ask), nn.step.llm("say", model="m")], until=nn.until.max_steps(1))
    await make_harness(model, step=both).execute("go")
    assert item_text(model.requests[0].items[-1]) == "On its way."


async def test_a_hook_may_hand_on_what_a_model_answered() -> None:
    async def recall(p: Any) -> Any:
        return await p.ctx.call_model({"model": "m", "items": [input_message("Summarise.")]})

    layer = nn.MemoryLayer(id="asks", slot=1, scope="execution", hooks=nn.MemoryHooks(recall=recall))
    model = nn.ScriptedModel(lambda request: "a summary" if request.purpose == "layer" else "ok")

    await make_harness(model, memory=[layer]).execute("go")

    assert [item_text(item) for item in model.requests[-1].items] == ["a summary", "go"]


async def test_instructions_may_be_computed_from_the_context() -> None:
    model = nn.ScriptedModel(["ok"])

    async def instructions(ctx: nn.Context) -> str:
        return f"You serve {ctx.resource_id}."

    await make_harness(model, instructions=instructions).execute("hi", resource_id="ann")

    assert model.requests[0].instructions == "You serve ann."


async def test_items_can_be_said_as_they_are() -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"},
                                                           {"type": "input_image", "image_url": "a.png"}]}  # fmt: skip
    harness = make_harness(["nice"])

    reply = await harness.execute([item])

    assert reply.items[0]["content"][1]["imageUrl"] == "a.png"


@pytest.mark.parametrize("value", [3, {"text": "hi"}, [{"role": "user"}], object()])
async def test_what_is_no_item_is_refused_before_anything_happens(value: Any) -> None:
    harness = make_harness(["never"])

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute(value)

    assert caught.value.kind == "step_failed"
    assert len(harness.log()) == 0


async def test_recall_sees_the_text_of_the_latest_user_message_as_its_query() -> None:
    queries: list[str] = []
    layer = nn.MemoryLayer(
        id="q", slot=1, scope="thread", hooks=nn.MemoryHooks(recall=lambda p: queries.append(p.query))
    )
    harness = make_harness(["a", "b"], memory=[layer])

    await harness.execute("first")
    await harness.execute("second")

    assert queries == ["first", "second"]


async def test_layers_complete_and_dispose_whether_a_turn_ends_well_or_not() -> None:
    ended: list[Any] = []
    hooks = nn.MemoryHooks(on_complete=lambda p: ended.append(p.outcome), dispose=lambda p: ended.append("disposed"))
    harness = make_harness(
        ["a", nn.Fault("server_error")], memory=[nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=hooks)]
    )

    await harness.execute("first")
    with pytest.raises(nn.NoeticError):
        await harness.execute("second")

    assert ended == ["success", "disposed", "failure", "disposed"]


async def test_a_layer_that_cannot_start_fails_the_turn_and_keeps_the_message() -> None:
    def init(p: Any) -> Any:
        raise RuntimeError("no disk")

    told: list[Any] = []
    layer = nn.MemoryLayer(id="disk", slot=1, scope="thread", hooks=nn.MemoryHooks(init=init))
    harness = make_harness(["never"], memory=[layer], diagnostic=lambda *what: told.append(what[:2]))

    with pytest.raises(RuntimeError, match="no disk"):
        await harness.execute("hi")

    assert list(texts(harness.log())) == ["user: hi"]
    assert told == [("disk", "init")]


async def test_user_messages_and_tool_outputs_pass_through_the_layers() -> None:
    seen: list[str] = []

    def on_append(p: Any) -> None:
        seen.extend(item["type"] for item in p.items)

    layer = nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=nn.MemoryHooks(on_item_append=on_append))
    await make_harness([nn.CallTool("lookup", order_id="A"), "ok"], memory=[layer]).execute("hi")

    assert seen == ["message", "function_call_output"]


async def test_history_beyond_the_budget_is_left_out_with_a_reason() -> None:
    model = nn.ScriptedModel(lambda request: "x" * 400)
    policy = nn.ProjectionPolicy(token_budget=400, response_reserve=50, overflow="truncate")
    harness = make_harness(model, tools=[], projection=policy)
    events = record_events(harness)

    for number in range(4):
        await harness.execute(f"question {number}")

    last = events.of("view_assembled")[-1]
    assert len(model.requests[-1].items) < len(harness.log()) - 1
    assert last.window[0] > 0
    assert last.system + last.tools + last.framing + last.history <= 350


async def test_history_can_be_summarised_once_for_what_falls_out() -> None:
    asked: list[str] = []

    def answer(request: Any) -> str:
        asked.append(request.purpose)
        return "They spoke of orders." if request.purpose == "summary" else "y" * 200

    model = nn.ScriptedModel({"scripted": answer})
    policy = nn.ProjectionPolicy(token_budget=500, response_reserve=50, overflow="summarize")
    harness = make_harness(model, tools=[], projection=policy)

    for number in range(8):
        await harness.execute(f"question {number}")

    sent = list(texts(model.requests[-1].items))
    assert "summary" in asked
    assert sent[0] == "developer: <summary>\nThey spoke of orders.\n</summary>"
    assert sent[-1] == "user: question 7"


async def test_a_summary_that_cannot_be_made_leaves_a_truncated_view() -> None:
    def answer(request: Any) -> Any:
        return nn.Fault("server_error") if request.purpose == "summary" else "y" * 400

    harness = make_harness(
        nn.ScriptedModel({"scripted": answer}),
        tools=[],
        projection=nn.ProjectionPolicy(token_budget=400, response_reserve=50, overflow="summarize"),
    )
    events = record_events(harness)

    for number in range(4):
        reply = await harness.execute(f"question {number}")

    assert reply.text == "y" * 400
    assert {event.step_id for event in events.of("error_raised")} == {"summary"}


async def test_no_step_is_a_configuration_error_that_keeps_the_message() -> None:
    harness = nn.AgentHarness(nn.AgentConfig(name="idle"), model=nn.ScriptedModel([]))

    with pytest.raises(nn.NoeticConfigError) as caught:
        await harness.execute("hi")

    assert caught.value.code == "NO_STEP_CONFIGURED"
    assert list(texts(harness.log())) == ["user: hi"]


class Answers:
    """A model whose answers are messages of the given texts, in order."""

    def __init__(self, answers: list[list[str]]) -> None:
        self.answers = iter(answers)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(tuple([assistant_message(text) for text in next(self.answers)]))


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([["one"], ["two"]], id="one message"),
        pytest.param([["one"], ["aloud", "two"]], id="two messages"),
        pytest.param([["aloud", "one"], ["two"]], id="one message after two"),
        pytest.param([["one"], [""]], id="an empty one"),
    ],
)
async def test_the_text_of_a_reply_is_that_of_the_last_message_of_its_turn(answers: list[list[str]]) -> None:
    steps = [nn.step.llm("a", model="scripted"), nn.step.llm("b", model="scripted")]
    harness = make_harness(Answers(answers), step=nn.loop("both", steps, until=nn.until.max_steps(1)))

    reply = await harness.execute("Hi")

    assert (reply.text, item_text(reply.items[-1])) == (answers[-1][-1], answers[-1][-1])


async def test_what_code_logs_after_the_answer_is_the_text_of_the_reply() -> None:
    def correct(value: Any, ctx: nn.Context) -> Any:
        ctx.item_log.append(assistant_message("corrected"))
        return value

    steps = [nn.step.llm("a", model="scripted"), nn.step.run("b", correct)]
    harness = make_harness(["answered"], step=nn.loop("both", steps, until=nn.until.max_steps(1)))

    reply = await harness.execute("Hi")

    assert (reply.text, reply.output) == ("corrected", "answered")


async def test_a_loop_that_shows_its_tasks_names_the_call_behind_a_turn() -> None:
    task = asyncio.get_running_loop().create_task(make_harness(["Hello!"]).execute("Hi"))

    shown = repr(task)

    assert "AgentHarness.execute" in shown
    assert (await task).text == "Hello!"
