"""A resumed turn still has its limits, its calls, the user's messages and the earlier failures."""

from __future__ import annotations

import enum
import json
from collections import defaultdict
from typing import Any

import pytest
from pydantic import BaseModel

import noetic_nb as nn
from noetic_nb.runtime._durability.checkpoints import Checkpoints
from noetic_nb.steps import branch, fork, json_lines, loop, spawn, step, until
from tests.runtime.crash_points import TRACES, Disk, harness, pay, texts_of


class Cut(Exception):
    """The process ends here."""


class Once:
    """Interrupts a run at one moment: the storage of that moment is kept, and nothing fails in the next process."""

    def __init__(self) -> None:
        self.store = Disk()
        self.disk: Disk | None = None

    def now(self) -> None:
        if self.disk is None:
            self.disk = Disk(self.store.texts)
            raise Cut

    def step(self, name: str = "cut", output: Any = None) -> Any:
        def execute(value: Any, ctx: Any) -> Any:
            self.now()
            return value if output is None else output

        return step.run(name, execute)

    async def first(self, agent: Any, model: Any = None, *, limits: Any = None, **more: Any) -> None:
        with pytest.raises((nn.NoeticError, Cut)):
            await harness(agent, self.store, model, **more).execute("hello", limits=limits)

    async def again(self, agent: Any, model: Any = None, **more: Any) -> tuple[nn.AgentHarness, nn.AgentReply]:
        second = harness(agent, self.disk, model, **more)
        (execution_id,) = await second.unfinished()
        return second, await second.resume(execution_id)


def whole(*steps: Any) -> Any:
    return loop("whole", list(steps), until=until.max_steps(1))


class Size(enum.IntEnum):
    LARGE = 3


class Mood(enum.StrEnum):
    GOOD = "good"


@pytest.mark.parametrize(
    "output", [Size.LARGE, Mood.GOOD, {"size": Size.LARGE}, [Mood.GOOD], {Mood.GOOD: 1}, defaultdict(list, a=[1])]
)
async def test_what_json_would_change_keeps_its_type(output: Any) -> None:
    """An output that JSON would change is recomputed rather than read."""
    once, seen = Once(), []
    agent = whole(
        step.run("made", lambda value, ctx: output),
        once.step("cut"),
        step.run("use", lambda v, ctx: seen.append(v) or ""),
    )
    await once.first(agent)
    await once.again(agent)

    assert repr(seen) == repr([output])


# -- limits ---------------------------------------------------------------------------------------------------------------


async def test_a_turn_keeps_its_own_limits() -> None:
    once = Once()
    calls = [0]

    def model(request: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            once.now()
        return nn.Reply(tool_calls=nn.CallTool("pay", amount=1), cost=1.0)

    agent = nn.react(model="m", tools=[pay], max_steps=20)
    await once.first(agent, model, limits={"max_cost": 2.5})

    with pytest.raises(nn.NoeticError) as caught:
        await once.again(agent, model)

    assert (caught.value.kind, caught.value.field, caught.value.actual) == ("budget_exceeded", "cost", 3.0)


async def test_steps_that_are_not_run_again_are_not_counted_again() -> None:
    once = Once()
    steps = [step.run(name, lambda value, ctx: name_of(ctx)) for name in "abcd"]
    agent = whole(*steps, spawn("s", whole(*steps)), once.step(), step.run("count", lambda value, ctx: ctx.tree.steps))
    await once.first(agent, limits={"max_steps": 13})

    _, reply = await once.again(agent)

    assert reply.output == 13


def name_of(ctx: Any) -> str:
    return str(ctx.place)


class Ticking:
    """A clock that advances one second per reading, in all processes."""

    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> float:
        return self.ms

    def monotonic_ms(self) -> float:
        return self.ms


async def test_time_before_the_process_ended_counts_and_time_between_does_not() -> None:
    once, clock, seen = Once(), Ticking(), []

    def body(value: Any, ctx: Any) -> str:
        clock.ms += 10
        return "x"

    def check(snapshot: Any) -> bool:
        seen.append(snapshot.elapsed_ms)
        return snapshot.elapsed_ms >= 40

    def cutting(value: Any, ctx: Any) -> Any:
        if ctx.elapsed_ms == 30:
            once.now()
        return value

    agent = whole(loop("l", [step.run("b", body), step.run("c", cutting)], until=until.custom(check)))
    config = nn.AgentConfig(name="a", step=agent)
    first = nn.AgentHarness(config, storage=once.store, checkpoints=True, clock=clock)
    with pytest.raises(nn.NoeticError):
        await first.execute("go", limits={"max_duration_ms": 1_000})
    clock.ms = 1_000_000.0
    second = nn.AgentHarness(config, storage=once.disk, checkpoints=True, clock=clock)

    await second.resume((await second.unfinished())[0])

    assert seen == [10, 20, 10, 20, 30, 40]


# -- calls ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda agent: agent, lambda agent: spawn("s", agent)], ids=["turn", "child"])
async def test_rules_see_the_calls_of_the_whole_turn(wrap: Any) -> None:
    once, seen = Once(), []

    def watching() -> nn.MemoryLayer:
        def before(p: Any) -> None:
            seen.append([(call.name, dict(call.args), call.status, call.output) for call in p.history])

        hooks = nn.MemoryHooks(before_tool_call=before, on_spawn=lambda p: {"child_state": {}})
        return nn.MemoryLayer(id="watch", slot=90, scope="execution", hooks=hooks)

    def model(request: Any) -> Any:
        paid = sum(item["type"] == "function_call_output" for item in request.items)
        if paid == 1:
            once.now()
        return nn.CallTool("pay", amount=paid) if paid < 2 else "done"

    agent = wrap(nn.react(model="m", tools=[pay], max_steps=5))
    await once.first(agent, model, memory=[watching()])
    await once.again(agent, model, memory=[watching()])

    assert seen == [[], [("pay", {"amount": 0}, "ok", "paid 0")]]


# -- what was said --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "passing", [lambda: branch("b", lambda value, ctx: None), lambda: step.run("b", lambda value, ctx: value)]
)
async def test_what_the_user_said_is_not_said_twice(passing: Any) -> None:
    once, asked = Once(), []

    def model(request: Any) -> Any:
        asked.append(texts_of(request.items))
        once.now()
        return "ok"

    agent = whole(passing(), step.llm("ask", model="m"))
    await once.first(agent, model)
    second, _ = await once.again(agent, model)

    assert asked == [["user: hello"], ["user: hello"]]
    assert texts_of(second.log()) == ["user: hello", "assistant: ok"]


async def test_what_the_user_said_is_known_in_a_fork() -> None:
    once, asked = Once(), []

    def model(request: Any) -> Any:
        asked.append(texts_of(request.items))
        once.now()
        return "ok"

    path = whole(branch("b", lambda value, ctx: None), step.llm("ask", model="m"))
    agent = whole(fork("f", mode="all", paths=[path], merge="first"))
    await once.first(agent, model)
    await once.again(agent, model)

    assert asked == [["user: hello"], ["user: hello"]]


# -- what cannot be written -----------------------------------------------------------------------------------------------


class Plan(BaseModel):
    goal: str


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Plan, '{"goal": "home"}', Plan(goal="home")),
        (json_lines(Plan), '{"goal": "a"}\n{"goal": "b"}', [Plan(goal="a"), Plan(goal="b")]),
        ({"type": "object"}, '{"goal": "home"}', {"goal": "home"}),
        (None, "words", "words"),
    ],
)
@pytest.mark.parametrize("size", [2, 100], ids=["small", "larger than an entry may be"])
async def test_an_answer_is_read_again_and_not_asked_for(output: Any, text: str, value: Any, size: int) -> None:
    once, asked, got = Once(), [], []

    def model(request: Any) -> Any:
        asked.append(1)
        return text.replace("home", "home" * size).replace("words", "words" * size)

    def act(given: Any, ctx: Any) -> str:
        once.now()
        got.append(given)
        return "acted"

    agent = whole(step.llm("plan", model="m", output=output), step.run("act", act))
    options = {"checkpoints": Checkpoints(max_entry_bytes=700 if size == 2 else 450)}
    await once.first(agent, model, **options)
    second, _ = await once.again(agent, model, **options)

    assert len(asked) == 1
    assert texts_of(second.log())[1:] == [f"assistant: {model(None)}"]
    again = json.dumps(got[0], default=lambda plan: plan.model_dump())
    assert again == json.dumps(value, default=lambda plan: plan.model_dump()).replace("home", "home" * size).replace(
        "words", "words" * size
    )
    assert type(got[0]) is type(value)


async def test_calls_too_large_for_an_entry_are_not_made_again() -> None:
    once, asked = Once(), []

    @nn.tool
    def write(text: str) -> str:
        """Write."""
        asked.append(len(text))
        return "written"

    def model(request: Any) -> Any:
        if request.items[-1]["type"] == "function_call_output":
            once.now()
            return "done"
        return nn.CallTool("write", text="x" * 1_000)

    agent = nn.react(model="m", tools=[write])
    options = {"checkpoints": Checkpoints(max_entry_bytes=600)}
    await once.first(agent, model, **options)
    await once.again(agent, model, **options)

    assert asked == [1_000]


class Handle:
    """An object that is not JSON data."""


async def test_a_step_that_cannot_be_written_logs_once_and_keeps_its_keys() -> None:
    once = Once()

    def model(request: Any) -> Any:
        return f"answer {sum(item.get('role') == 'user' for item in request.items)}"

    async def opens(value: Any, ctx: Any) -> Handle:
        ctx.item_log.append(nn.items.input_message("noted", "developer"))
        ctx.state["opened"] = ctx.state.get("opened", 0) + 1
        return Handle()

    ask = step.llm("ask", model="m")
    agent = whole(
        step.run("open", opens),
        step.run("word", lambda value, ctx: "word"),
        ask,
        step.run("args", lambda value, ctx: {}),
        step.tool("charge", pay, {"amount": 1}),
        once.step(),
        step.run("count", lambda value, ctx: ctx.state["opened"]),
    )
    agent = loop("outer", [agent], until=until.max_steps(1))
    await once.first(agent, model)
    second, reply = await once.again(agent, model)

    assert texts_of(second.log()) == ["user: hello", "developer: noted", "user: word", "assistant: answer 2"]
    assert reply.output == 1
    assert TRACES[-1].keys == TRACES[-2].keys


async def test_a_step_that_cannot_be_written_and_changed_nothing_holds_nothing_up() -> None:
    once = Once()
    agent = whole(
        step.run("open", lambda value, ctx: Handle()),
        step.run("word", lambda value, ctx: {}),
        step.tool("charge", pay, {"amount": 1}),
        once.step(),
    )
    await once.first(agent)
    await once.again(agent)

    assert [place.rsplit("/", 1)[1] for place in TRACES[-1].ran] == ["whole#1", "open#1", "cut#1"]
    assert TRACES[-1].keys == []


async def test_after_a_step_that_ends_around_it_all_is_written_again() -> None:
    once = Once()

    def opens(value: Any, ctx: Any) -> Handle:
        ctx.state["opened"] = ctx.state.get("opened", 0) + 1
        return Handle()

    inner = loop(
        "inner", [step.run("open", opens), step.run("word", lambda value, ctx: "word")], until=until.max_steps(1)
    )
    agent = whole(inner, step.run("next", lambda value, ctx: "next"), once.step())
    await once.first(agent)
    await once.again(agent)

    assert [place.rsplit("/", 1)[1] for place in TRACES[-1].ran] == ["whole#1", "cut#1"]


# -- failures a loop went on after ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["retry", "skip"])
async def test_a_failure_a_loop_went_on_after_is_not_tried_again(answer: str) -> None:
    once, ran = Once(), []

    def body(value: Any, ctx: Any) -> str:
        ran.append(ctx.place.rsplit("/", 1)[1])
        if len(ran) == 2:
            raise ValueError("flaky")
        if len(ran) == 4:
            once.now()
        return ran[-1]

    def on_error(error: Any, ctx: Any) -> str:
        return "abort" if isinstance(error.__cause__, Cut) else answer

    agent = whole(loop("l", [step.run("b", body)], until=until.max_steps(3), on_error=on_error))
    await once.first(agent)
    _, reply = await once.again(agent)

    assert ran == ["b#1", "b#2", "b#3", "b#4", "b#4"]
    assert reply.output == "b#4"
