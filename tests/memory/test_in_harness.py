"""Memory in an agent: numbered defects of earlier runtimes, summaries, re-renders, accounting, traces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ErrorRaised, MemoryTraceSpan, ModelCalled, ViewAssembled
from noetic_nb.items import item_text, item_tokens
from noetic_nb.items._build import content_tokens, unresolved_positions
from noetic_nb.memory import MemoryLayer
from noetic_nb.runtime._planning import summary
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from noetic_nb.testing import drive_loop
from tests.memory.stacks import boom, layer


class Seen(list[Any]):
    """Collects events."""

    def emit(self, event: Any) -> None:
        self.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self if isinstance(event, kind)]


@nn.tool
def lookup(order_id: str) -> str:
    """Find an order."""
    return f"{order_id} is packed"


class Agent:
    """A harness, the requests to its model, its events and its diagnostics."""

    def __init__(self, *memory: MemoryLayer, replies: Any = None, step: Any = None, **config: Any) -> None:
        self.requests: list[Any] = []
        self.notes: list[tuple[str, str]] = []
        self.script = None if replies is None or callable(replies) else list(replies)
        self.answer = replies if callable(replies) else None
        storage = config.pop("storage", None)
        made = nn.AgentConfig(
            name="a",
            step=nn.react(model="m", tools=[lookup], max_steps=20) if step is None else step,
            memory=list(memory),
            **config,
        )
        self.harness = nn.AgentHarness(
            made,
            model=nn.ScriptedModel(self._reply),
            storage=storage,
            diagnostic=lambda layer_id, hook, error: self.notes.append((layer_id, hook)),
        )
        self.events = Seen()
        self.harness.subscribe(self.events)

    def _reply(self, request: Any) -> Any:
        self.requests.append(request)
        if self.answer is not None:
            return self.answer(request)
        return "ok" if self.script is None else self.script.pop(0)

    async def say(self, text: str, **options: Any) -> Any:
        return await self.harness.execute(text, **{"thread_id": "t1"} | options)

    def sent(self, number: int = -1) -> list[str]:
        """Return the texts of one request."""
        return [item_text(item) for item in self.requests[number].items]


def noting(seen: list[Any], name: str, value: Any = None) -> Any:
    def hook(params: Any) -> Any:
        seen.append((name, getattr(params, "outcome", None)))
        return value

    return hook


# -- defects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [(["ok"], "success"), ([nn.Fault("server_error")] * 9, "failure")],
    ids=["success", "failure"],
)
async def test_defect_7_completion_and_disposal_always_run_and_leave_nothing(replies: Any, outcome: str) -> None:
    seen: list[Any] = []
    made = layer(
        "a",
        init=lambda p: {"state": 1},
        on_complete=noting(seen, "complete"),
        dispose=noting(seen, "dispose"),
    )
    agent = Agent(made, replies=replies)

    try:
        await agent.say("hi")
    except nn.NoeticError:
        assert outcome == "failure"

    assert seen == [("complete", outcome), ("dispose", None)]
    assert agent.harness._stack.state._states == {}


def test_defect_7_a_cancelled_turn_completes_as_aborted() -> None:
    seen: list[Any] = []
    made = layer("a", on_complete=noting(seen, "complete"), dispose=noting(seen, "dispose"))

    async def slow(request: Any) -> str:
        await asyncio.sleep(60)
        return "late"

    async def run() -> None:
        agent = Agent(made, replies=slow)
        turn = asyncio.ensure_future(agent.say("hi"))
        await asyncio.sleep(1)
        await agent.harness.cancel("t1")
        with pytest.raises(nn.NoeticError, match="cancelled"):
            await turn

    drive_loop(run())
    assert seen == [("complete", "aborted"), ("dispose", None)]


async def test_defect_9_append_hooks_see_session_messages_and_tool_outputs_and_recall_gets_the_query() -> None:
    appended: list[str] = []
    queries: list[str] = []

    def on_item_append(p: Any) -> None:
        appended.extend(item_text(item) for item in p.items)

    def recall(p: Any) -> None:
        queries.append(p.query)

    agent = Agent(
        layer("a", on_item_append=on_item_append, recall=recall), replies=[nn.CallTool("lookup", order_id="A1"), "done"]
    )

    await agent.say("Where is A1?")

    assert appended == ["Where is A1?", "A1 is packed"]
    assert queries == ["Where is A1?", "Where is A1?"]


async def test_defect_9_what_a_layer_makes_of_a_message_is_what_is_logged_and_sent() -> None:
    def shout(p: Any) -> Any:
        from tests.items.strategies import message

        return {"items": [message("user", item_text(item).upper()) for item in p.items if item.get("role") == "user"]}

    agent = Agent(layer("a", on_item_append=shout))
    await agent.say("hello")

    assert agent.sent() == ["HELLO"]
    assert [item_text(item) for item in agent.harness.log("t1")][:1] == ["HELLO"]


def rerendering(timing: str, scope: str = "self") -> tuple[MemoryLayer, list[int]]:
    """A layer that counts appended items and requests a re-render at each tool output."""
    recalls: list[int] = []

    def on_item_append(p: Any) -> Any:
        if p.items[0]["type"] != "function_call_output":
            return None
        return {"state": (p.state or 0) + 1, "rerender": True, "timing": timing, "scope": scope}

    def recall(p: Any) -> str:
        recalls.append(p.state or 0)
        return f"outputs seen: {p.state or 0}"

    return layer("a", on_item_append=on_item_append, recall=recall), recalls


async def test_defect_11_an_immediate_re_render_changes_the_next_model_call_of_the_same_step() -> None:
    made, _ = rerendering("immediate")
    step = nn.step.llm(id="think", model="m", tools=[lookup], tool_rounds=5)
    calls = [nn.CallTool("lookup", order_id="A1"), nn.CallTool("lookup", order_id="A2"), "done"]
    agent = Agent(made, replies=calls, step=step)

    await agent.say("go")

    assert [agent.sent(n)[0] for n in range(3)] == [f"outputs seen: {n}" for n in range(3)]


async def test_defect_11_a_batched_re_render_waits_for_the_next_step() -> None:
    made, recalls = rerendering("batched")
    step = nn.step.llm(id="think", model="m", tools=[lookup], tool_rounds=5)
    calls = [nn.CallTool("lookup", order_id="A1"), nn.CallTool("lookup", order_id="A2"), "done"]
    agent = Agent(made, replies=calls, step=step)

    await agent.say("go")

    assert [agent.sent(n)[0] for n in range(3)] == ["outputs seen: 0"] * 3
    assert recalls == [0]


async def test_a_re_render_reaches_an_eventual_layer_past_its_cache() -> None:
    from dataclasses import replace

    made, _ = rerendering("batched")
    agent = Agent(replace(made, recall_mode="eventual"), replies=[nn.CallTool("lookup", order_id="A1"), "done"])

    await agent.say("go")

    assert agent.sent()[0] == "outputs seen: 1"


async def test_defect_d9_history_is_projected_once_per_step_whatever_the_retries() -> None:
    calls: list[int] = []

    def project(p: Any) -> Any:
        calls.append(len(p.items))
        return {"items": p.items}

    rules = nn.RuleBook()
    answers = iter([nn.guide("Politer."), nn.guide("Still politer."), None])

    @rules.rule(on="after_model_call")
    def polite(call: Any) -> Any:
        return next(answers)

    agent = Agent(nn.steering(rules), layer("a", project_history=project))
    await agent.say("hi")

    assert len(agent.requests) == 3
    assert calls == [1]
    assert agent.sent()[-2:] == ["Politer.", "Still politer."]


async def test_defect_15_the_policy_holds_without_layers_and_the_question_always_goes_along() -> None:
    policy = nn.ProjectionPolicy(token_budget=400, response_reserve=0, overflow="truncate")
    agent = Agent(projection=policy)

    for n in range(10):
        await agent.say(f"message {n} " + "x" * 200)

    assert agent.sent()[-1].startswith("message 9")
    assert all(sum(item_tokens(item) for item in request.items) <= 400 for request in agent.requests)


async def test_defect_15_what_a_layer_hides_of_the_history_never_includes_the_question() -> None:
    agent = Agent(layer("a", project_history=lambda p: {"items": []}), nn.history_window(2))

    await agent.say("the question")

    assert agent.sent() == ["the question"]


async def test_defect_15_usage_counts_what_was_sent_and_adds_up() -> None:
    policy = nn.ProjectionPolicy(token_budget=900, response_reserve=100, overflow="truncate")
    agent = Agent(
        layer("notes", 100, budget=50, recall=lambda p: "x" * 100),
        layer("big", 200, budget=100, recall=lambda p: {"items": [_dev("y" * 300), _dev("z" * 300)]}),
        projection=policy,
    )
    for n in range(8):
        await agent.say(f"message {n} " + "w" * 100)

    for view, request in zip(agent.events.of(ViewAssembled), agent.requests, strict=True):
        sent = sum(item_tokens(item) for item in request.items)
        used = {row.layer_id: row for row in view.layers}
        assert sent == view.framing + view.history + sum(row.used for row in view.layers)
        assert (
            used["notes"].used == 25 == sum(content_tokens(item) for name, item in view.layer_items if name == "notes")
        )
        assert (used["notes"].yielded, used["big"].used) == (used["notes"].allocated - 25, 75)
        assert [fate.reason for fate in view.fates if fate.origin == "layer:big"] == ["over_allocation"]
        assert unresolved_positions(request.items) == set()
    assert agent.notes == [("big", "recall")] * 8


def _dev(text: str) -> Any:
    from noetic_nb.items import input_message

    return input_message(text, "developer")


async def test_defect_15_yielded_tokens_go_to_history() -> None:
    policy = nn.ProjectionPolicy(token_budget=1_000, response_reserve=0, overflow="truncate")
    quiet, loud = (
        Agent(layer("a", budget={"min": 500, "max": 500}, recall=lambda p, t=text: t), projection=policy)
        for text in ("", "x" * 2_000)
    )
    for n in range(15):
        await quiet.say(f"message {n} " + "w" * 100)
        await loud.say(f"message {n} " + "w" * 100)

    assert len(quiet.sent()) > 2 * len(loud.sent())


async def test_defect_22_every_hook_leaves_a_span_with_its_status_and_budget() -> None:
    made = layer(
        "a",
        budget=100,
        init=lambda p: {"state": 1},
        recall=lambda p: "12345678",
        store=boom,
        before_tool_call=lambda p: None,
        after_model_call=lambda p: None,
        on_item_append=lambda p: None,
        project_history=lambda p: None,
        on_complete=lambda p: None,
        dispose=lambda p: None,
    )
    agent = Agent(made, replies=[nn.CallTool("lookup", order_id="A1"), "done"])
    run = nn.record(agent.harness)

    await agent.say("go")

    spans = agent.events.of(MemoryTraceSpan)
    assert {span.hook: span.status for span in spans} == {
        "init": "ok",
        "on_item_append": "ok",
        "project_history": "ok",
        "recall": "ok",
        "after_model_call": "ok",
        "before_tool_call": "ok",
        "store": "error",
        "on_complete": "ok",
        "dispose": "ok",
    }
    recall = next(span for span in spans if span.hook == "recall")
    assert (recall.budget.allocated, recall.budget.used, recall.item_count) == (100, 2, 1)
    assert next(span.error for span in spans if span.hook == "store") == "boom"
    assert len(run.to_frame("spans")) == len(spans)


async def test_defect_23_another_tokenizer_counts_everything() -> None:
    made = nn.AgentConfig(
        name="a",
        step=nn.react(model="m"),
        memory=[layer("a", budget=10, recall=lambda p: "x" * 100)],
        projection=nn.ProjectionPolicy(token_budget=2_000, response_reserve=0, overflow="truncate"),
    )
    harness = nn.AgentHarness(made, model=nn.ScriptedModel(["ok"] * 9), tokenizer=len, diagnostic=lambda *a: None)
    seen = Seen()
    harness.subscribe(seen)
    await harness.execute("hello")

    (view,) = seen.of(ViewAssembled)
    assert (view.layers[0].used, view.history) == (10, item_tokens(harness.log()[0], len))


async def test_defect_13_layers_that_cannot_work_never_reach_an_agent() -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        Agent(layer("a"), layer("a"))

    assert caught.value.code == "DUPLICATE_LAYER_ID"


async def test_extension_items_of_a_layer_can_be_logged() -> None:
    note = {"type": "my:note", "id": "n1", "text": "seen"}
    made = layer(
        "a",
        item_schemas={"items": [lambda value: value["type"] == "my:note"]},
        on_item_append=lambda p: {"items": [*p.items, note]} if p.items[0].get("role") == "user" else None,
    )
    agent = Agent(made)

    await agent.say("hi")

    assert [item["type"] for item in agent.harness.log("t1")] == ["message", "my:note", "message"]


# -- summaries --------------------------------------------------------------------------------------------------------

SUMMARY = nn.ProjectionPolicy(token_budget=900, response_reserve=100, overflow="summarize", overflow_model="small")


def summarising(**faults: Any) -> tuple[Agent, list[Any]]:
    asked: list[Any] = []

    def reply(request: Any) -> Any:
        if request.purpose != "summary":
            return "ok"
        asked.append(request)
        if faults.get("fails"):
            return nn.Fault("server_error")
        said = item_text(request.items[0])
        return "Known: " + " ".join(sorted({word for word in said.split() if word.startswith("fact")}))

    return Agent(replies=reply, projection=SUMMARY), asked


async def test_a_summary_covers_everything_that_is_not_sent() -> None:
    agent, asked = summarising()
    for n in range(30):
        await agent.say(f"fact{n} " + "w" * 100)
        whole = " ".join(agent.sent())
        assert all(f"fact{k}" in whole.split() for k in range(n + 1)), n
        sent = sum(item_tokens(item) for item in agent.requests[-1].items)
        assert sent <= 800

    assert {request.model for request in asked} == {"small"}
    assert 0 < len(asked) < 20, "a summary is used for several turns"


async def test_a_summary_covers_everything_even_where_it_reaches_no_further_than_it_must(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(summary, "AHEAD_SHARE", 0.0)
    agent, _ = summarising()
    for n in range(30):
        await agent.say(f"fact{n} " + "w" * 100)
        words = " ".join(agent.sent()).split()
        assert all(f"fact{k}" in words for k in range(n + 1)), n


async def test_what_summaries_cost_is_charged_and_recorded() -> None:
    agent, asked = summarising()
    replies = [await agent.say(f"fact{n} " + "w" * 150) for n in range(12)]

    purposes = [event.purpose for event in agent.events.of(ModelCalled)]
    assert purposes.count("summary") == len(asked) > 0
    total = sum(reply.usage.input_tokens for reply in replies)
    assert total == sum(event.input_tokens for event in agent.events.of(ModelCalled))


async def test_a_summary_that_cannot_be_made_is_a_diagnostic_and_the_view_is_truncated() -> None:
    agent, _ = summarising(fails=True)
    for n in range(12):
        reply = await agent.say(f"fact{n} " + "w" * 150)
        assert reply.text == "ok"

    assert ("summary", "project_history") in agent.notes
    assert any(event.step_id == "summary" for event in agent.events.of(ErrorRaised))
    assert agent.sent()[-1].startswith("fact11")
    assert sum(item_tokens(item) for item in agent.requests[-1].items) <= 800


async def test_the_newest_items_are_never_summarised() -> None:
    agent, asked = summarising()
    policy = SUMMARY.model_copy(update={"window_size": 4})
    agent = Agent(replies=agent.answer, projection=policy)
    for n in range(12):
        await agent.say(f"fact{n} " + "w" * 100)

    last = " ".join(item_text(request.items[0]) for request in asked[-1:])
    assert "fact11" not in last
    assert "fact10" not in last


# -- faults -----------------------------------------------------------------------------------------------------------


class Slow(InMemoryStorage):
    async def set(self, key: str, value: Any) -> None:
        await asyncio.sleep(5)
        await super().set(key, value)


def test_a_slow_store_loses_nothing_and_delays_only_the_end_of_the_turn() -> None:
    async def run() -> Any:
        storage = Slow()
        agent = Agent(nn.working_memory(initial={"n": 0}), nn.durable_task_state(), storage=storage)
        reply = await agent.say("hi")
        assert agent.notes == []
        return reply.text, await storage.get("layers/durable-task-state/t1/state")

    text, state = drive_loop(run())
    assert (text, state["data"]) == ("ok", {"__outcome": "success"})


class Failing(InMemoryStorage):
    async def set(self, key: str, value: Any) -> None:
        raise OSError("disk full")


async def test_a_failing_store_is_reported_and_the_conversation_goes_on() -> None:
    agent = Agent(nn.durable_task_state(), storage=Failing())

    assert (await agent.say("hi")).text == "ok"
    assert (await agent.say("again")).text == "ok"
    assert set(agent.notes) == {("durable-task-state", "persist")}
    assert {(e.error_kind, e.step_id) for e in agent.events.of(ErrorRaised)} == {("OSError", "durable-task-state")}


async def test_two_threads_of_one_person_report_the_state_they_replace(tmp_path: Path) -> None:
    started = asyncio.Event()
    other = asyncio.Event()

    async def reply(request: Any) -> str:
        if item_text(request.items[-1]) == "slow":
            started.set()
            await other.wait()
        return "ok"

    async with SQLiteStorage(tmp_path / "a.db") as storage:
        agent = Agent(nn.observational_memory(), replies=reply, storage=storage)
        slow = asyncio.ensure_future(agent.say("slow", thread_id="t1", resource_id="ann"))
        await started.wait()
        await agent.say("quick", thread_id="t2", resource_id="ann")
        other.set()
        await slow

    conflicts = [e for e in agent.events.of(ErrorRaised) if e.error_kind == "state_conflict"]
    # The slow store always replaces the quick one's write; the quick one may also have seen the slow one's first write.
    assert "t1" in {event.where.thread_id for event in conflicts}
    assert ("observational-memory", "persist") in agent.notes


async def test_hooks_that_hang_raise_or_babble_never_stop_the_conversation() -> None:
    def babble(p: Any) -> Any:
        return ["nonsense"]

    async def hang(p: Any) -> Any:
        await asyncio.Event().wait()

    hooks = ["recall", "store", "on_item_append", "project_history", "on_complete", "dispose"]
    bad = [
        layer(f"{kind}-{hook}", timeouts={hook: 5}, **{hook: fn})
        for kind, fn in (("raise", boom), ("babble", babble), ("hang", hang))
        for hook in hooks
        if not (kind == "babble" and hook == "dispose")  # the result of dispose is ignored
    ]
    agent = Agent(*bad, layer("good", recall=lambda p: "still here"))

    reply = await agent.say("hi")

    assert reply.text == "ok"
    assert agent.sent() == ["still here", "hi"]
    assert {hook for _, hook in agent.notes} == set(hooks)
    assert len(agent.notes) == len(bad)


async def test_what_a_child_stored_is_read_by_a_new_harness() -> None:
    """A child writes to its parent's storage; the process ends before the parent merges anything."""

    async def start(p: Any) -> Any:
        return {"state": await p.storage.get("state")}

    hooks = nn.MemoryHooks(
        init=start,
        on_spawn=lambda p: {"child_state": {"by": "nobody"}},
        store=lambda p: {"state": {"by": "the child"}} if p.ctx.depth else None,
    )
    notes = nn.MemoryLayer(id="notes", slot=100, scope="thread", hooks=hooks)

    class Gone(BaseException):
        """The process ends."""

    def die(value: Any, ctx: Any) -> Any:
        raise Gone

    def agent(*steps: Any) -> nn.AgentHarness:
        whole = nn.loop("all", list(steps), until=nn.until.max_steps(1))
        return nn.AgentHarness(
            nn.AgentConfig(name="a", step=whole, memory=[notes]), model=nn.ScriptedModel(["x"]), storage=store
        )

    store = InMemoryStorage()
    first = agent(nn.spawn("child", nn.loop("c", [nn.step.llm("l", model="m"), nn.step.run("die", die)],
                                            until=nn.until.max_steps(1))))  # fmt: skip
    with pytest.raises(Gone):
        await first.execute("go", thread_id="t")
    second = agent(nn.step.run("look", lambda value, ctx: second.memory("t").state("notes")))
    reply = await second.execute("again", thread_id="t")

    assert await store.get("layers/notes/t/state") == {"by": "the child"}
    assert reply.output == {"by": "the child"}


async def test_an_eventual_layer_of_a_child_is_asked_once_while_its_value_lasts() -> None:
    """A repeated step has the layers, and therefore the values, that it had before."""
    asked: list[str] = []

    def recall(p: Any) -> str:
        asked.append(p.ctx.execution_id)
        return "known"

    slow = nn.MemoryLayer(
        id="slow", slot=100, scope="resource", recall_mode="eventual", hooks=nn.MemoryHooks(recall=recall)
    )
    child = nn.spawn("child", nn.step.llm("l", model="m"), memory=[slow])
    model = nn.ScriptedModel(lambda request: "x")
    harness = nn.AgentHarness(nn.AgentConfig(name="a", step=child), model=model)

    for _ in range(3):
        await harness.execute("go", thread_id="t", resource_id="ann")

    assert len(asked) == 1
    assert all("known" in str(request.items) for request in model.requests)
