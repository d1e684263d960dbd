"""Each kind of step, with its duties: accounting, cancellation, memory passed to children and back."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import innermost
from noetic_nb.memory import layer_fn
from noetic_nb.runtime._context import step_setup
from noetic_nb.steps import branch, channel, fork, loop, spawn, step, until
from noetic_nb.testing import drive_loop
from tests.runtime.factories import fails as failing
from tests.runtime.factories import lookup, make_harness, outputs, record_events

pytestmark = pytest.mark.virtual_time


async def ran(one: Any, value: Any = None, replies: Any = (), **more: Any) -> Any:
    harness = make_harness(
        replies if callable(replies) or hasattr(replies, "complete") else list(replies), step=one, **more
    )
    async with harness.execution() as ctx:
        return await harness.run(one, value, ctx), ctx


def says(text: str) -> Any:
    return step.run(text, lambda value, ctx: text)


def fails(name: str, error: Any = None) -> Any:
    def execute(value: Any, ctx: Any) -> Any:
        raise error or ValueError(name)

    return step.run(name, execute)


def hangs(name: str, log: list[str]) -> Any:
    async def execute(value: Any, ctx: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            log.append(name)

    return step.run(name, execute)


# -- run ----------------------------------------------------------------------------------------------------------------


async def test_a_failure_is_wrapped_once_and_its_first_cause_can_be_found() -> None:
    inner = fails("deep", KeyError("x"))

    async def nested(value: Any, ctx: Any) -> Any:
        return await ctx.run(inner, value)

    with pytest.raises(nn.NoeticError) as caught:
        await ran(step.run("outer", nested))

    assert (caught.value.kind, caught.value.step_id) == ("step_failed", "deep")
    assert isinstance(innermost(caught.value), KeyError)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("watched", [False, True])
async def test_an_error_that_cannot_be_put_into_words_is_wrapped_like_any_other(watched: bool) -> None:
    harness = make_harness([])
    if watched:
        record_events(harness)

    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError, match="Mute") as caught:
            await harness.run(fails("mute", Mute()), None, ctx)

    assert caught.value.kind == "step_failed"
    assert isinstance(caught.value.cause, Mute)


async def test_a_tool_that_cannot_say_what_is_wrong_does_not_end_the_turn() -> None:
    @nn.tool
    def mute() -> str:
        """Fail."""
        raise Mute

    reply = await make_harness([nn.CallTool("mute"), "It failed."], tools=[mute]).execute("hi")

    assert reply.text == "It failed."
    assert outputs(reply.items)[0].startswith("Error: ")


@pytest.mark.parametrize("watched", [False, True])
async def test_an_error_without_words_that_is_not_wrapped_stays_what_it_is(watched: bool) -> None:
    def route(value: Any, ctx: Any) -> Any:
        raise Mute

    harness = make_harness([])
    if watched:
        record_events(harness)

    async with harness.execution() as ctx:
        with pytest.raises(Mute):
            await harness.run(branch("b", route), None, ctx)


def test_waiting_between_attempts_minds_an_abort() -> None:
    async def main() -> Any:
        harness = make_harness([])
        waiting = step.run("r", lambda value, ctx: 1 / 0, retry={"max_attempts": 5, "initial_delay_ms": 10_000})
        async with harness.execution() as ctx:
            task = asyncio.create_task(harness.run(waiting, None, ctx))
            await asyncio.sleep(0.001)
            ctx.abort("enough")
            try:
                await task
            except nn.NoeticError as exc:
                return exc.kind, exc.reason, asyncio.get_running_loop().time()

    assert drive_loop(main()) == ("cancelled", "enough", 0.001)


# -- branch -------------------------------------------------------------------------------------------------------------


async def test_a_branch_goes_where_it_is_told_or_hands_its_input_on() -> None:
    way = branch("b", lambda value, ctx: says("yes") if value else None)

    assert (await ran(way, 1))[0] == "yes"
    assert (await ran(way, 0))[0] == 0


@pytest.mark.parametrize("nonsense", ["a step", 3, {"id": "x"}, object(), ["step"]])
async def test_a_route_that_returns_nonsense_is_a_clear_error(nonsense: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        await ran(branch("b", lambda value, ctx: nonsense))

    assert caught.value.code == "NOT_A_STEP"


async def test_a_branch_that_leads_back_to_itself_is_caught() -> None:
    way: Any = branch("b", lambda value, ctx: way)

    with pytest.raises(nn.NoeticError, match="nested more than 64 deep"):
        await ran(way)


# -- fork ---------------------------------------------------------------------------------------------------------------


async def test_all_merges_in_the_order_of_the_paths() -> None:
    slow = step.run("slow", lambda value, ctx: asyncio.sleep(0.01, "slow"))
    both = fork("f", mode="all", paths=[slow, says("quick")], merge=lambda values, ctx: values)

    assert (await ran(both))[0] == ["slow", "quick"]


async def test_a_failure_of_all_cancels_the_others_and_tells_of_everyone() -> None:
    stopped: list[str] = []

    async def soon(value: Any, ctx: Any) -> Any:
        await asyncio.sleep(0.001)
        raise ValueError("bad")

    paths = [says("ok"), step.run("bad", soon), hangs("running", stopped), says("queued")]
    both = fork("f", mode="all", paths=paths, merge=lambda values, ctx: values, concurrency=2)

    with pytest.raises(nn.NoeticError) as caught:
        await ran(both)

    assert caught.value.kind == "fork_partial"
    assert [entry["step_id"] for entry in caught.value.succeeded] == ["ok"]
    assert {entry["step_id"]: entry["error"].kind for entry in caught.value.failed} == {
        "bad": "step_failed",
        "running": "cancelled",
        "queued": "cancelled",
    }
    assert stopped == ["running"]
    assert isinstance(innermost(caught.value), ValueError)


async def test_settle_takes_failures_as_they_come() -> None:
    both = fork("f", mode="settle", paths=[says("ok"), fails("bad")], merge=lambda outcomes, ctx: outcomes)

    first, second = (await ran(both))[0]

    assert (first["status"], first["value"]) == ("fulfilled", "ok")
    assert (second["status"], second["error"].kind) == ("rejected", "step_failed")


async def test_the_winner_of_a_race_brings_its_state_and_the_losers_leave_nothing() -> None:
    stopped: list[str] = []
    back: list[str] = []

    def win(value: Any, ctx: Any) -> str:
        ctx.state["who"] = "winner"
        return "won"

    hooks = nn.MemoryHooks(
        on_spawn=lambda p: {"child_state": {"n": 1}}, on_return=lambda p: back.append(p.child_ctx.execution_id)
    )
    race = fork("r", mode="race", paths=[hangs("loser", stopped), step.run("win", win)])
    outcome, ctx = await ran(race, memory=[nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=hooks)])

    assert (outcome, ctx.state, stopped, len(back)) == ("won", {"who": "winner"}, ["loser"], 1)
    assert ctx.children == set()


async def test_of_two_paths_that_finish_together_only_one_merges() -> None:
    back: list[str] = []

    async def merge(p: Any) -> None:
        back.append(p.result)
        await asyncio.sleep(0.001)

    hooks = nn.MemoryHooks(on_spawn=lambda p: {"child_state": 1}, on_return=merge)
    race = fork("r", mode="race", paths=[says("a"), says("b")])
    outcome, _ = await ran(race, memory=[nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=hooks)])

    assert back == [outcome]


async def test_a_race_goes_on_with_queued_paths_after_a_failure() -> None:
    race = fork("r", mode="race", paths=[fails("a"), fails("b"), says("c")], concurrency=1)

    assert (await ran(race))[0] == "c"


async def test_a_race_that_everyone_loses_is_partial() -> None:
    with pytest.raises(nn.NoeticError) as caught:
        await ran(fork("r", mode="race", paths=[fails("a"), fails("b")]))

    assert caught.value.kind == "fork_partial"
    assert [entry["step_id"] for entry in caught.value.failed] == ["a", "b"]


async def test_every_step_of_each_element_has_an_id_of_its_own() -> None:
    word = says("word")
    inner = loop(
        "l",
        [word, branch("b", routes=[{"match": "w", "target": says("found")}], default=word)],
        until=until.max_steps(1),
    )
    one = spawn("s", fork("g", mode="all", paths=[inner, word], merge="first"))
    each = fork("f", mode="all", each=one, merge="concat")
    harness = make_harness([], step=each)
    events = record_events(harness)

    async with harness.execution() as ctx:
        assert await harness.run(each, ["a", "b"], ctx) == "found\nfound"

    ids = [event.step_id for event in events.of("step_started")]
    assert sorted(ids) == sorted(
        ["f", *[f"{name}-{n}" for name in ("s", "g", "l", "b", "found", "word", "word") for n in (0, 1)]]
    )
    assert one.child.paths[0].steps[0].id == "word", "the step itself stays as it was"


@pytest.mark.parametrize("mode", ["all", "settle"])
async def test_no_paths_merge_nothing(mode: Any) -> None:
    assert (await ran(fork("f", mode=mode, paths=[], merge=lambda values, ctx: values)))[0] == []


async def test_an_empty_race_is_partial() -> None:
    with pytest.raises(nn.NoeticError) as caught:
        await ran(fork("r", mode="race", paths=[]))

    assert (caught.value.succeeded, caught.value.failed) == ([], [])


@pytest.mark.parametrize("mode", ["all", "race", "settle"])
async def test_a_fork_that_is_cancelled_is_cancelled_whatever_its_mode(mode: Any) -> None:
    stopped: list[str] = []
    merge = None if mode == "race" else (lambda values, ctx: values)
    both = fork("f", mode=mode, paths=[hangs("a", stopped), hangs("b", stopped)], merge=merge)
    harness = make_harness([])

    async with harness.execution() as ctx:
        task = asyncio.create_task(harness.run(both, None, ctx))
        while len(ctx.children) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        ctx.abort("enough")
        with pytest.raises(nn.NoeticError) as caught:
            await task

    assert (caught.value.kind, sorted(stopped)) == ("cancelled", ["a", "b"])


async def test_the_spend_of_every_path_is_the_parents() -> None:
    usage = {"input_tokens": 10, "output_tokens": 1}
    ask = [step.llm(name, model="m") for name in "ab"]
    paths = [*ask, step.run("late", lambda value, ctx: 1 / 0)]
    both = fork("f", mode="settle", paths=paths, merge=lambda outcomes, ctx: len(outcomes))
    _, ctx = await ran(both, "hi", [nn.Reply("x", usage=usage, cost=0.5), nn.Reply("y", usage=usage, cost=0.5)])

    assert (ctx.tokens.input_tokens, ctx.cost, ctx.model_calls) == (20, 1.0, 2)
    assert ctx.step_count == 1, "children count their own"


async def test_a_path_starts_with_a_copy_of_state_and_log() -> None:
    def change(value: Any, ctx: Any) -> tuple[int, int]:
        ctx.state["list"].append(1)
        ctx.item_log.append({"type": "message", "role": "user", "content": []})
        return len(ctx.item_log), ctx.depth

    harness = make_harness([])
    async with harness.execution(state={"list": []}) as ctx:
        both = fork("f", mode="all", paths=[step.run("a", change), step.run("b", change)], merge=lambda v, c: v)
        results = await harness.run(both, None, ctx)

    assert results == [(1, 1), (1, 1)]
    assert (ctx.state, len(ctx.item_log)) == ({"list": []}, 0)


@pytest.mark.parametrize("concurrency", [0, -1, 1.5])
def test_concurrency_is_at_least_one(concurrency: Any) -> None:
    with pytest.raises(nn.NoeticConfigError):
        fork("f", mode="race", paths=[says("a")], concurrency=concurrency)


# -- spawn --------------------------------------------------------------------------------------------------------------


async def children_view(context_in: Any) -> list[str]:
    seen: list[str] = []

    def look(value: Any, ctx: Any) -> str:
        seen.extend(part["text"] for item in ctx.item_log for part in item["content"])
        return "done"

    harness = make_harness(["hello"])
    async with harness.execution() as ctx:
        await harness.run(step.llm("ask", model="m"), "hi", ctx)
        await harness.run(spawn("s", step.run("look", look), context_in=context_in), "input", ctx)
        assert len(ctx.item_log) == 2
    return seen


def newest(items: Any, state: Any) -> Any:
    return items[-1:]


def built(value: Any, ctx: Any) -> Any:
    return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"built from {value}"}]}]


@pytest.mark.parametrize(
    ("context_in", "expected"),
    [
        ("fresh", []),
        ("inherit", ["hi", "hello"]),
        ({"strategy": "subset", "select": newest}, ["hello"]),
        ({"strategy": "custom", "build": built}, ["built from input"]),
    ],
)
async def test_a_child_starts_with_what_its_strategy_gives_it(context_in: Any, expected: list[str]) -> None:
    assert await children_view(context_in) == expected


async def test_a_summary_is_written_by_a_model_and_paid_by_the_parent() -> None:
    model = nn.ScriptedModel({"m": [nn.Reply("work done", cost=1.0), nn.Reply("In short: done.", cost=0.5)]})
    outcome, ctx = await ran(spawn("s", step.llm("ask", model="m"), context_out="summary"), "do it", model)

    assert (outcome, ctx.cost) == ("In short: done.", 1.5)
    assert model.requests[1].purpose == "summary"


async def test_a_summary_that_fails_does_not_lose_the_work() -> None:
    model = nn.ScriptedModel({"m": ["work done", nn.Fault("server_error")]})

    with pytest.raises(nn.NoeticError) as caught:
        await ran(spawn("s", step.llm("ask", model="m"), context_out="summary"), "do it", model)

    assert (caught.value.kind, caught.value.child_output) == ("spawn_summary_failed", "work done")
    assert caught.value.summary_cause.kind == "llm_failed"


@pytest.mark.parametrize(
    ("child", "model", "asked"),
    [
        (says("long"), nn.ScriptedModel(lambda request: "short"), None),
        (says("long"), {"only": nn.ScriptedModel(lambda request: "short")}, "only"),
        (loop("l", [step.llm("a", model="gone"), says("x")], until=until.max_steps(1)),
         {"gone": nn.ScriptedModel(lambda request: "short")}, "gone"),
    ],
)  # fmt: skip
async def test_a_summary_is_written_by_the_model_there_is(child: Any, model: Any, asked: str | None) -> None:
    harness = nn.AgentHarness(nn.AgentConfig(name="x"), model=model)

    async with harness.execution() as ctx:
        assert await harness.run(spawn("s", child, context_out="summary"), "do it", ctx) == "short"
    last = (model if asked is None else model[asked]).requests[-1]
    assert last.purpose == "summary"
    assert asked in (None, last.model)


@pytest.mark.parametrize("model", [None, {}, {"m": nn.ScriptedModel([]), "n": nn.ScriptedModel([])}])
async def test_a_summary_without_a_model_is_a_failed_step(model: Any) -> None:
    harness = nn.AgentHarness(nn.AgentConfig(name="x"), model=model)

    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError) as caught:
            await harness.run(spawn("s", says("x"), context_out="summary"), "do it", ctx)

    assert (caught.value.kind, caught.value.child_output) == ("step_failed", "x")


@pytest.mark.parametrize(
    ("output", "raw"), [("abc", '"abc"'), ({"a": 1}, '{"a":1}'), (None, "null"), ([1.0, {2}], "[1,[2]]")]
)
async def test_what_did_not_fit_is_kept_as_json(output: Any, raw: str) -> None:
    typed = {"strategy": "schema", "schema": int}

    with pytest.raises(nn.NoeticError) as caught:
        await ran(spawn("s", step.run("n", lambda v, c: output), context_out=typed))

    assert (caught.value.kind, caught.value.raw) == ("llm_parse_error", raw)


@pytest.mark.parametrize("one", [spawn("c", says("x")), fork("c", mode="all", paths=[says("x")], merge="last")])
async def test_state_that_cannot_be_copied_is_named(one: Any) -> None:
    harness = make_harness([])

    async with harness.execution() as ctx:
        ctx.state.update(fine=1, lock=threading.Lock())
        with pytest.raises(nn.NoeticError, match="'lock'") as caught:
            await harness.run(one, None, ctx)
        assert (caught.value.kind, caught.value.step_id) == ("step_failed", "c")
        assert isinstance(caught.value.cause, TypeError)
        del ctx.state["lock"]
        assert await harness.run(one, None, ctx) == "x"


async def test_a_childs_output_is_checked_where_a_schema_is_asked_for() -> None:
    typed = {"strategy": "schema", "schema": int}

    assert (await ran(spawn("s", step.run("n", lambda v, c: "4"), context_out=typed)))[0] == 4
    with pytest.raises(nn.NoeticError) as caught:
        await ran(spawn("s", step.run("n", lambda v, c: {"a": 1}), context_out=typed))
    assert (caught.value.kind, caught.value.raw) == ("llm_parse_error", '{"a":1}')


ANSWER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(("schema", "text"), [(ANSWER, ' {"n": 2}\n'), (dict[str, int], '{"n": 2}')])
async def test_a_child_that_answers_json_in_text_fits_its_schema(schema: Any, text: str) -> None:
    typed = {"strategy": "schema", "schema": schema}

    assert (await ran(spawn("s", says(text), context_out=typed)))[0] == {"n": 2}
    assert (await ran(spawn("s", says("4"), context_out={"strategy": "schema", "schema": str})))[0] == "4"


@pytest.mark.parametrize("text", ["two", '{"n": "two"}', '```json\n{"n": 2}\n```', "[" * 100_000])
async def test_text_whose_json_does_not_fit_is_refused_whole(text: str) -> None:
    with pytest.raises(nn.NoeticError) as caught:
        await ran(spawn("s", says(text), context_out={"strategy": "schema", "schema": ANSWER}))

    assert caught.value.kind == "llm_parse_error"
    assert json.loads(caught.value.raw) == text


def test_a_child_that_takes_too_long_is_aborted() -> None:
    stopped: list[str] = []

    async def main() -> Any:
        try:
            await ran(spawn("s", hangs("child", stopped), timeout_ms=50))
        except nn.NoeticError as exc:
            return exc.kind, exc.timeout, asyncio.get_running_loop().time()

    assert drive_loop(main()) == ("step_failed", 50, 0.05)
    assert stopped == ["child"]


async def test_the_spend_of_a_child_that_fails_is_the_parents() -> None:
    child = loop("c", [step.llm("ask", model="m"), fails("then")], until=until.never())
    harness = make_harness([nn.Reply("x", cost=0.5)])

    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError):
            await harness.run(spawn("s", child), "hi", ctx)

    assert ctx.cost == 0.5


async def test_layers_hand_state_and_items_down_and_merge_what_comes_back() -> None:
    hooks = nn.MemoryHooks(
        init=lambda p: {"state": {"seen": ["parent"]}},
        on_spawn=lambda p: {"child_state": {"seen": ["child"]}, "items": built("layer", None)},
        on_return=lambda p: {
            "parent_state": {"seen": [*p.parent_state["seen"], *p.child_state["seen"]]},
            "result": f"{p.result}!",
        },
        on_complete=lambda p: finished.append(p.state),
    )
    finished: list[Any] = []
    seen: list[int] = []
    child = step.run("look", lambda value, ctx: seen.append(len(ctx.item_log)) or "done")
    harness = make_harness([], memory=[nn.MemoryLayer(id="notes", slot=1, scope="execution", hooks=hooks)])
    events = record_events(harness)

    async with harness.execution() as ctx:
        outcome = await harness.run(spawn("s", child), "x", ctx)

    assert (outcome, seen, finished) == ("done!", [1], [{"seen": ["parent", "child"]}])
    began, ended = events.of("child_started")[0], events.of("child_ended")[0]
    assert (dict(began.handed), len(began.items), began.parent_id) == ({"notes": {"seen": ["child"]}}, 1, ctx.id)
    assert (ended.returned, ended.outcome, ended.where.depth) == (("notes",), "success", 1)


async def test_layers_that_only_a_spawn_has_are_initialised_and_completed() -> None:
    told: list[Any] = []
    hooks = nn.MemoryHooks(
        init=lambda p: {"state": "ready"},
        recall=lambda p: f"recalled {p.state}",
        on_complete=lambda p: told.append(p.outcome),
        dispose=lambda p: told.append("disposed"),
    )
    layer = nn.MemoryLayer(id="own", slot=1, scope="execution", hooks=hooks)
    model = nn.ScriptedModel(["ok"])

    await ran(spawn("s", step.llm("ask", model="m"), memory=[layer]), "hi", model)

    assert "recalled ready" in str(list(model.requests[0].items))
    assert told == ["success", "disposed"]


async def test_an_agent_made_of_a_spawn_hears_the_user_and_is_quoted_in_the_log() -> None:
    model = nn.ScriptedModel(["Hello!", "Again!"])
    harness = make_harness(model, step=spawn("s", step.llm("ask", model="m")))

    first = await harness.execute("Hi")
    second = await harness.execute("Hi again")

    assert (first.text, second.text) == ("Hello!", "Again!")
    assert [item["role"] for item in harness.log()] == ["user", "assistant", "user", "assistant"]
    assert len(model.requests[1].items) == 1, "a fresh child knows nothing of the first turn"


async def test_executions_nested_sixty_four_deep_are_refused() -> None:
    deepest: list[int] = []

    async def again(value: Any, ctx: Any) -> Any:
        deepest.append(ctx.depth)
        return await ctx.run(spawn("s", step.run("again", again)), value)

    with pytest.raises(nn.NoeticError, match="nested 64 deep") as caught:
        await ran(step.run("again", again))

    assert (caught.value.kind, max(deepest)) == ("step_failed", 63)


# -- loop ---------------------------------------------------------------------------------------------------------------


async def test_feedback_reaches_the_next_input() -> None:
    inputs: list[Any] = []
    body = step.run("body", lambda value, ctx: inputs.append(value) or len(inputs))
    again = loop(
        "l",
        body,
        until=until.any(until.verified(lambda n: (n >= 3, f"{n} is too few")), until.max_steps(9)),
        prepare_next=lambda output, verdict, ctx: verdict.feedback,
    )

    assert (await ran(again, "start"))[0] == 3
    assert inputs == ["start", "1 is too few", "2 is too few"]


async def test_converged_forgets_between_two_runs_of_one_loop() -> None:
    again = loop("l", says("same"), until=until.converged())
    harness = make_harness([])

    async with harness.execution() as ctx:
        before = ctx.step_count
        await harness.run(again, None, ctx)
        middle = ctx.step_count
        await harness.run(again, None, ctx)

    assert middle - before == ctx.step_count - middle == 3


async def test_a_predicate_that_raises_ends_the_loop_with_its_output() -> None:
    def broken(snapshot: Any) -> Any:
        raise RuntimeError("no")

    assert (await ran(loop("l", says("out"), until=until.custom(broken))))[0] == "out"


def wrong(snapshot: Any) -> bool:
    raise ValueError("cannot tell")


@pytest.mark.parametrize("stop", [until.max_steps(2), until.custom(wrong)])
async def test_a_loop_that_stops_without_output_fails(stop: Any) -> None:
    silent = step.run("silent", lambda value, ctx: None)

    with pytest.raises(nn.NoeticError, match="without an output") as caught:
        await ran(loop("l", silent, until=stop))

    assert (caught.value.kind, caught.value.step_id) == ("step_failed", "l")
    assert (await ran(loop("l", silent, until=stop, needs_output=False)))[0] is None
    for nearly in ("", 0, False, []):
        assert (await ran(loop("l", step.run("r", lambda value, ctx, made=nearly: made), until=until.max_steps(1))))[
            0
        ] == nearly


async def test_a_message_comes_before_the_want_of_an_output() -> None:
    inbox = channel("inbox")
    harness = make_harness([])
    told: list[str] = []

    def listen(value: Any, ctx: Any) -> Any:
        told.extend(part["text"] for item in ctx.item_log for part in item["content"])
        return "heard" if told else None

    async with harness.execution() as ctx:
        await ctx.send(inbox, "go on")
        assert (
            await harness.run(loop("l", step.run("r", listen), until=until.max_steps(1), inbox=inbox), None, ctx)
            == "heard"
        )


async def test_an_async_verifier_is_awaited() -> None:
    async def verify(output: Any) -> bool:
        await asyncio.sleep(0)
        return output == "out"

    stop = until.any(until.max_steps(5), until.verified(verify))

    assert (await ran(loop("l", says("out"), until=stop)))[1].step_count == 2


@pytest.mark.parametrize("stop", [until.any, until.all])
async def test_a_member_that_stops_without_a_reason_is_given_none(stop: Any) -> None:
    mute = until.custom(lambda s: s.step_count == 2)

    verdict = stop(mute).start()(nn.steps.LoopSnapshot(step_count=2))

    assert (verdict.stop, verdict.reason) == (True, None)
    both = until.any(until.all(mute), until.max_steps(2)).start()
    assert both(nn.steps.LoopSnapshot(step_count=2)).reason is None
    assert until.all().start()(nn.steps.LoopSnapshot(0)).reason == "Nothing is left to wait for"


async def test_an_inbox_keeps_a_loop_going() -> None:
    inbox = channel("inbox", external=True)
    body = step.run("body", lambda value, ctx: len(ctx.item_log))
    harness = make_harness([])

    async with harness.execution() as ctx:
        harness.channel_handle(inbox, ctx.id).send("one more thing")
        outcome = await harness.run(loop("l", body, until=until.max_steps(1), inbox=inbox), None, ctx)

    assert outcome == 1
    assert ctx.item_log[0]["role"] == "developer"


async def test_a_loop_that_never_stops_fails_on_its_ceiling() -> None:
    with pytest.raises(nn.NoeticError, match="did not stop within 4 iterations"):
        await ran(loop("l", says("x"), until=until.never(), max_iterations=4))


# -- structured output --------------------------------------------------------------------------------------------------


async def test_structured_output_is_read_and_checked() -> None:
    ask = step.llm("ask", model="m", output=dict[str, int])

    assert (await ran(ask, "count", ['{"n": 3}']))[0] == {"n": 3}


@pytest.mark.parametrize("text", ["not json", '{"n": "many"}', '```json\n{"n": 1}\n```', "[]", "[" * 100_000])
async def test_output_that_does_not_fit_is_an_error_after_it_was_logged(text: str) -> None:
    harness = make_harness([text])
    ask = step.llm("ask", model="m", output=dict[str, int])

    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError) as caught:
            await harness.run(ask, "count", ctx)

    assert (caught.value.kind, caught.value.raw, caught.value.step_id) == ("llm_parse_error", text, "ask")
    assert len(ctx.item_log) == 2


async def test_model_and_tools_may_be_chosen_by_the_context() -> None:
    ask = step.llm("ask", model=lambda ctx: "chosen", tools=lambda ctx: [lookup])
    model = nn.ScriptedModel([nn.CallTool("lookup", order_id="A"), "ok"])

    assert (await ran(ask, "hi", model, tools=[]))[0] == "ok"
    assert {request.model for request in model.requests} == {"chosen"}
    assert [spec.name for spec in model.requests[0].tools] == ["lookup"]


@pytest.mark.parametrize(
    ("chosen", "sent"),
    [
        ([], []),
        ((), []),
        (None, ["lookup", "fails", "tell"]),
        ([lookup], ["lookup", "tell"]),
    ],
    ids=["none", "none at all", "unlisted", "one"],
)
async def test_chosen_tools_mean_what_listed_ones_mean(chosen: Any, sent: list[str]) -> None:
    tell = layer_fn(description="Tell.", input=dict, output=str, execute=lambda args, state, ctx: {"result": ""})
    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", provides={"tell": tell})
    for tools in (chosen, lambda ctx: chosen):
        model = nn.ScriptedModel(["ok"])
        ask = step.llm("ask", model="m", tools=tools)
        config = nn.AgentConfig(name="x", step=ask, memory=[layer], tools=[lookup, failing])
        await nn.AgentHarness(config, model=model).execute("hi")
        assert [spec.name.removeprefix("l/") for spec in model.requests[0].tools] == sent


async def test_the_schema_of_a_layers_function_is_its_own_for_each_harness() -> None:
    told: dict[str, Any] = {"description": "Tell.", "execute": lambda args, state, ctx: {"result": ""}}
    provides = {
        "one": layer_fn(input=dict[str, int], output=str, **told),
        "two": layer_fn(input=int, output=str, **told),
    }
    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", provides=provides)
    config = nn.AgentConfig(name="x", step=nn.react(model="m"), memory=[layer])
    wanted = [{"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "integer"}]

    for _ in range(2):
        model = nn.ScriptedModel(["ok"])
        await nn.AgentHarness(config, model=model).execute("hi")
        sent: list[Any] = [spec.parameters for spec in model.requests[0].tools]
        assert sent == wanted
        sent[0]["additionalProperties"]["type"] = "string"  # a client that modifies its input


def test_a_schema_is_kept_as_long_as_the_function_it_is_of() -> None:
    step_setup._SCHEMAS.clear()
    checked = layer_fn(description="Tell.", input=dict[str, int], output=str, execute=print).input
    made = step_setup._schema(checked)
    assert (step_setup._schema(checked) == made, len(step_setup._SCHEMAS)) == (True, 1)

    del checked
    gc.collect()

    assert len(step_setup._SCHEMAS) == 0


async def test_other_json_data_is_sent_as_its_text() -> None:
    model = nn.ScriptedModel(["ok"])

    await ran(step.llm("ask", model="m"), {"order": "A"}, model)

    assert model.requests[0].items[0]["content"][0]["text"] == '{"order":"A"}'


async def test_an_agent_without_a_model_says_so_when_one_is_asked() -> None:
    harness = nn.AgentHarness(nn.AgentConfig(name="x", step=nn.react(model="m")))

    with pytest.raises(nn.NoeticConfigError) as caught:
        await harness.execute("hi")

    assert caught.value.code == "NO_LLM_PROVIDER"


@pytest.mark.parametrize(("after_ms", "runs"), [(None, 1), (30, 2), (60, 1)])
async def test_a_loop_waits_for_its_inbox_as_long_as_it_may(after_ms: float | None, runs: int) -> None:
    inbox = channel("inbox", external=True)
    seen: list[int] = []
    body = step.run("body", lambda value, ctx: seen.append(len(ctx.item_log)) or "out")
    harness = make_harness([])

    async with harness.execution() as ctx:
        pipe = harness.channel_handle(inbox, ctx.id)
        if after_ms is not None:
            asyncio.get_running_loop().call_later(after_ms / 1000, pipe.send, "one more thing")
        began = asyncio.get_running_loop().time()
        waiting = loop("l", body, until=until.custom(lambda snapshot: True), inbox=inbox, park_timeout_ms=50)
        assert await harness.run(waiting, None, ctx) == "out"
        waited = asyncio.get_running_loop().time() - began

    assert seen == list(range(runs))
    assert waited == pytest.approx(0.05 if runs == 1 else 0.08)


async def test_an_inbox_that_is_closed_while_a_loop_waits_fails_the_loop() -> None:
    inbox = channel("inbox", external=True)
    harness = make_harness([])

    async with harness.execution() as ctx:
        asyncio.get_running_loop().call_later(0.01, ctx.abort, "enough")
        waiting = loop("l", says("out"), until=until.max_steps(1), inbox=inbox, park_timeout_ms=50)
        with pytest.raises(nn.NoeticError) as caught:
            await harness.run(waiting, None, ctx)

    assert caught.value.kind == "cancelled"
