"""A replay reports its horizon: up to there it equals the changed agent's real behaviour, in every thread."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.events import (
    ModelCalled,
    RegulatorDecided,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    ViewAssembled,
)
from noetic_nb.ids import SYSTEM_IDS
from noetic_nb.items import item_text
from noetic_nb.lab import RegulatorReadings, backtest, datasets, economics, fork, replay, replay_regulator
from noetic_nb.layers import regulation
from noetic_nb.memory import MemoryHooks, MemoryLayer, ProjectionPolicy, Stop
from noetic_nb.regulator import CallBudget, Regulator, ToolLoop
from noetic_nb.runs import Run
from noetic_nb.testing import FakeClock, SeededIds
from tests.lab.random_agents import (
    find,
    offering_layer,
    pay,
    projecting_layer,
    random_answer,
    random_regulator,
    random_rules,
    storing_layer,
)
from tests.matrix import matrix

AGENTS = [(seed, tokenizer) for seed in range(30) for tokenizer in (None, "o200k_base")]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Suppress warnings about random agents' small budgets, which occur a thousand times."""
    caplog.set_level(logging.CRITICAL, logger="noetic_nb")


def greedy_layer(rng: random.Random, scope: Any) -> MemoryLayer:
    """Return a layer that offers as many of its notes as fit its budget, as text, which draws an id."""
    sizes = [rng.randrange(2, 30) for _ in range(6)]

    def recall(p: Any) -> Any:
        notes = [] if p.state is None else p.state
        offered, left = [], p.budget
        for note in (*notes, *["word " * size for size in sizes]):
            if p.ctx.tokenize(note) + 1 <= left:
                offered.append(note)
                left -= p.ctx.tokenize(note) + 1
        return "\n".join(offered) or None

    def store(p: Any) -> Any:
        return {"state": [*([] if p.state is None else p.state), f"{len(p.log)} items"][-3:]}

    hooks = MemoryHooks(recall=recall, store=store, on_spawn=lambda p: {"child_state": p.parent_state})
    return MemoryLayer(id="greedy", slot=4, scope=scope, budget=rng.choice(["auto", 60, 150]), hooks=hooks)


def content_of(request: Any) -> str:
    items = [(item["type"], item.get("role"), item.get("name"), item_text(item)) for item in request.items]
    return repr((request.instructions, items))


def answers(seed: int) -> nn.ScriptedModel:
    """Return a model whose answer is a function of its request."""

    def answer(request: Any) -> Any:
        drawn = hashlib.sha256(f"{seed} {content_of(request)}".encode()).digest()
        return random_answer(random.Random(drawn))

    # Counted ids would reveal the number of earlier calls.
    return nn.ScriptedModel(answer, ids=SYSTEM_IDS)


def approve(name: str, args: Any) -> bool:
    return hashlib.sha256(repr((name, sorted(args.items()))).encode()).digest()[0] < 128


class Agent:
    """A deterministic agent drawn from a seed, made anew each time with some parts exchanged."""

    def __init__(self, seed: int, tokenizer: str | None) -> None:
        self.seed, self.tokenizer = seed, tokenizer
        rng = random.Random(f"talk {seed}")
        self.talk = [
            (rng.choice(["t1", "t2"]), f"message {turn}, pay 40 " * rng.randrange(1, 6), rng.random())
            for turn in range(4)
        ]

    def config(self, **changes: Any) -> nn.AgentConfig:
        rng = random.Random(self.seed)
        layers: list[Any] = [offering_layer(rng, f"layer{at}") for at in range(rng.randrange(3))]
        layers += [storing_layer(rng, f"notes{at}") for at in range(rng.randrange(2))]
        if rng.random() < 0.5:
            layers.append(greedy_layer(rng, rng.choice(["thread", "resource"])))
        if rng.random() < 0.4:
            layers.append(projecting_layer(rng))
        if "layers" in changes:
            own = {layer.id: layer for layer in layers}
            layers = [own[layer] if isinstance(layer, str) else layer for layer in changes["layers"]]
        rules: Any = random_rules(rng) if rng.random() < 0.7 else None
        scope: Any = rng.choice(["execution", "thread", "resource"])
        if "rules" in changes:
            scope = "execution" if rules is None else scope
            rules = changes["rules"]
        if rules is not None:
            layers.append(nn.steering(rules, scope=scope))
        regulator = random_regulator(rng) if rng.random() < 0.6 else None
        regulator = changes.get("regulator", regulator)
        if regulator is not None:
            layers.append(regulation(regulator))
        inner = nn.react(model="scripted", instructions="Work.", max_steps=rng.choice([3, 6]))
        policy = {
            "token_budget": rng.choice([200, 600, 4_000]),
            "response_reserve": 20,
            "overflow": rng.choice(["truncate", "sliding_window"]),
        }
        for layer_id, given in changes.get("budgets", {}).items():
            at = next(at for at, layer in enumerate(layers) if layer.id == layer_id)
            layers[at] = nn.MemoryLayer(**{**_fields(layers[at]), "budget": given})
        return nn.AgentConfig(
            name="desk",
            step=inner if rng.random() < 0.7 else nn.spawn("child", inner),
            memory=layers,
            tools=[find, pay],
            projection=ProjectionPolicy(**{**policy, **changes.get("projection", {})}),
        )

    async def lived(self, **changes: Any) -> Run:
        harness = nn.AgentHarness(
            self.config(**changes),
            model=answers(self.seed),
            clock=FakeClock(step_ms=3),
            ids=SeededIds(self.seed),
            tokenizer=self.tokenizer,
            approve=approve,
        )
        run = nn.record(harness)
        for thread, text, quality in self.talk:
            with contextlib.suppress(NoeticError):
                await harness.execute(text, thread_id=thread, resource_id="ann")
            if quality < 0.4:
                await harness.feedback(thread, quality=quality)
        run.stop_recording()
        return run


def _fields(layer: MemoryLayer) -> dict[str, Any]:
    return {
        "id": layer.id,
        "slot": layer.slot,
        "scope": layer.scope,
        "hooks": layer.hooks,
        "placement": layer.placement,
    }


def happened(run: Run, thread: str, until: int | None = None) -> list[Any]:
    """Return the inputs of a thread's model and tools, and the decisions, without ids and times."""
    from noetic_nb.runs._requests.recorded_requests import RequestIndex

    index = RequestIndex()
    found: list[Any] = []
    requests: dict[int, int] = {}
    rows: list[tuple[int, Any]] = []
    for seq, event in enumerate(run.events):
        at = index.take(event)
        if event.where.thread_id != thread or (until is not None and seq >= until):
            continue
        match event:
            case ViewAssembled() if at is not None:
                requests[len(rows)] = at
                rows.append((seq, None))
            case ModelCalled(purpose="agent"):
                rows.append((seq, ("asked", event.status)))
            case SteeringDecided():
                rows.append((seq, (event.hook, event.tool_name, event.action, event.guidance, event.rule_ids)))
            case RegulatorDecided():
                rows.append((seq, (event.at, event.decision, event.stops)))
            case ToolCalled():
                rows.append((seq, (event.name, event.args, event.status, event.output)))
            case TurnCompleted():
                rows.append((seq, (event.outcome, event.text)))
    for place, (_, row) in enumerate(rows):
        if place in requests:
            request = index.requests[requests[place]]
            items = [sent.item for sent in request.items]
            row = ("sent", [None if item is None else (item["type"], item_text(item)) for item in items])
        found.append(row)
    return found


def differences(replayed: Run, real: Run) -> list[str]:
    """Return the threads in which a replay differs from reality before its horizon."""
    found = []
    for thread in real.threads:
        point = replayed.known_until.get(thread)
        known = happened(replayed, thread, None if point is None else point.seq)
        truth = happened(real, thread)
        if known != (truth if point is None else truth[: len(known)]):
            found.append(thread)
    return found


def changes_of(seed: int, agent: Agent) -> list[dict[str, Any]]:
    """Return changed configurations of every kind, new for each use."""
    rng = random.Random(f"changes {seed}")
    config = agent.config()
    own = [layer.id for layer in config.memory if layer.id not in ("steering", "regulation")]
    found: list[dict[str, Any]] = [
        {"rules": random_rules(random.Random(rng.random()))},
        {"regulator": random_regulator(random.Random(rng.random()))},
        {"projection": {"token_budget": rng.choice([150, 300, 900, 8_000])}},
        {"layers": [name for name in own if rng.random() < 0.5]},
        {"layers": [*own, offering_layer(random.Random(rng.random()), "more")]},
        {
            "rules": random_rules(random.Random(rng.random())),
            "regulator": random_regulator(random.Random(rng.random())),
            "projection": {"token_budget": rng.choice([400, 2_000])},
        },
    ]
    if own:
        found.append({"budgets": {rng.choice(own): rng.choice([10, 100, {"min": 20, "max": 90}])}})
    return found


async def tried(seed: int, tokenizer: str | None) -> list[str]:
    """Replay a random agent in every way; return the differences from reality."""
    agent = Agent(seed, tokenizer)
    run = await agent.lived()
    faults: list[str] = []

    async def check(name: str, real: Run, **given: Any) -> None:
        try:
            replayed = await asyncio.to_thread(replay, run, **given)
        except nn.NoeticConfigError as error:
            if error.code != "NOT_RECORDED":  # a run without a model call
                raise
            return
        faults.extend(f"{seed} {name}: {thread}" for thread in differences(replayed, real))

    await check("open", run)
    await check("closed", run, mode="closed")
    for changes in changes_of(seed, agent):
        name = "+".join(changes)
        real = await agent.lived(**changes)
        await check(f"open {name}", real, **changes)
        await check(f"closed {name}", real, mode="closed", **changes)
        live: dict[str, Any] = {"model": answers(seed), "tools": [find, pay]}
        await check(f"asked {name}", real, mode="closed", **changes, **live)
    return faults


@matrix("agent", AGENTS, keep=3)
async def test_a_replay_is_what_the_changed_agent_does_as_far_as_it_is_known(agent: tuple[int, str | None]) -> None:
    assert await tried(*agent) == []


def talked(
    *memory: Any,
    replies: Sequence[Any],
    threads: Sequence[str] = ("t1", "t2"),
    resources: Sequence[str | None] = (None,) * 3,
) -> Run:
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted", tools=[find, pay]), memory=memory)
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(replies))
    run = nn.record(harness)

    async def talk() -> None:
        for thread_id, owner in zip(threads, resources, strict=False):
            await harness.execute("Pay.", thread_id=thread_id, resource_id=owner)

    nn.run_sync(talk())
    run.stop_recording()
    return run


REPLIES = [
    nn.CallTool("pay", amount=5),
    nn.CallTool("pay", amount=60),
    nn.CallTool("pay", amount=70),
    "Paid.",
    "Hello.",
]
LARGE = {"id": "large", "applies_to": "before_tool_call", "tools": "pay", "when": "tool.args.amount > 50"}


def test_a_denial_is_known_and_its_call_is_not(tmp_path: Path) -> None:
    run = talked(replies=REPLIES)
    replayed = replay(run, rules=[LARGE])

    assert set(replayed.known_until) == {"t1"}
    point = replayed.known_until["t1"]
    call = replayed.events[point.seq]
    assert isinstance(call, ToolCalled)
    assert (point.turn, call.args) == (1, {"amount": 60.0})
    decisions = replayed.meta["replay"]["decisions"]
    assert decisions["after"]["deny"] == 2
    assert decisions["after_known"]["deny"] == 1
    assert "turn 1 of 't1'" in replayed.meta["replay"]["known"]
    assert nn.load_run(replayed.save(tmp_path / "run.jsonl.gz")).known_until == replayed.known_until
    assert replay(replayed).known_until == replayed.known_until


def test_what_happened_or_was_asked_is_known_to_its_end() -> None:
    run = talked(replies=REPLIES)
    assert run.known_until == replay(run).known_until == replay(run, mode="closed").known_until == {}
    forked = fork(run, at=1, model=nn.ScriptedModel(["Enough."]))
    assert (forked.known_until, forked.meta["replay"]["known"]) == ({}, "Known to its end.")

    stopped = replay(run, mode="closed", rules=[LARGE])
    assert set(stopped.known_until) == {"t1", "t2"}
    assert isinstance(stopped.events[stopped.known_until["t1"].seq], ModelCalled)
    assert stopped.known_until["t2"] == (1, len(stopped.events))


def test_a_regulator_is_known_up_to_its_stop() -> None:
    run = talked(replies=REPLIES)
    regulator = Regulator.for_user("ann").with_predicates(CallBudget(total=1, per_tool={}))
    for replayed in (
        replay(run, regulator=regulator),
        RegulatorReadings(run).replay(regulator),
        replay_regulator(run, regulator),
        replay_regulator(run, regulator, stop=True),
    ):
        stop = next(seq for seq, event in enumerate(replayed.events) if getattr(event, "stops", False))
        point = replayed.known_until["t1"]
        between = replayed.events[stop + 1 : point.seq]
        assert point.turn == 1
        assert all(getattr(event, "layer_id", None) == "regulation" for event in between)
    assert replay(datasets.airline_run(26), regulator=regulator).known_until


def test_rules_decide_before_a_regulator_also_where_executions_and_progress_lie_between() -> None:
    @nn.tool
    def stepwise(n: int) -> Any:
        """Work."""
        yield "half"
        return "done"

    child = nn.react(model="scripted", tools=[stepwise])
    both = nn.fork("both", mode="all", paths=[child, child], merge="concat")
    regulator = Regulator.for_user("ann").with_predicates(CallBudget(total=9, per_tool={}))
    config = nn.AgentConfig(name="desk", step=both, memory=[regulation(regulator)])

    def answer(request: Any) -> Any:
        return "Done." if request.items[-1]["type"] == "function_call_output" else nn.CallTool("stepwise", n=1)

    harness = nn.AgentHarness(config, model=nn.ScriptedModel(answer))
    run = nn.record(harness)
    nn.run_sync(harness.execute("Work."))
    run.stop_recording()
    replayed = replay(run, rules=[{"id": "none", "applies_to": "before_tool_call", "when": "false"}])
    decided: dict[str, list[str]] = {}
    for event in replayed.events:
        match event:
            case SteeringDecided(hook="before_tool_call") | RegulatorDecided(at="tool_call") | ToolCalled():
                decided.setdefault(event.where.execution_id, []).append(type(event).__name__)
    assert list(decided.values()) == [["SteeringDecided", "RegulatorDecided", "ToolCalled"]] * 2


def test_a_refused_approval_after_rules_that_allow_is_no_change() -> None:
    @nn.tool(needs_approval=True)
    def erase() -> str:
        """Erase."""
        return "erased"

    rules = nn.RuleBook()
    rules.when("false", id="none", on="before_tool_call")
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted", tools=[erase]), memory=[rules])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([nn.CallTool("erase"), "Done."]))
    run = nn.record(harness)
    nn.run_sync(harness.execute("Erase."))
    run.stop_recording()
    assert run.select(ToolCalled)[0].status == "denied"
    assert replay(run).known_until == replay(run, rules=rules).known_until == {}


def test_a_layer_with_a_hook_that_is_not_run_ends_what_is_known() -> None:
    def failed(p: Any) -> Any:
        return {"state": (p.state or 0) + 1}

    hooks = MemoryHooks(on_tool_outcome=failed, recall=lambda p: p.state and f"{p.state} calls.")
    replayed = replay(talked(replies=REPLIES), layers=[MemoryLayer(id="calls", slot=1, scope="thread", hooks=hooks)])
    assert {thread: point.turn for thread, point in replayed.known_until.items()} == {"t1": 1, "t2": 1}
    assert "hook on_tool_outcome of layer calls is not run" in [row["why"] for row in replayed.meta["replay"]["kept"]]


def test_all_resources_of_a_thread_share_what_is_unknown() -> None:
    hooks = MemoryHooks(store=lambda p: {"state": "stored"}, recall=lambda p: p.state)
    shared = MemoryLayer(id="shared", slot=1, scope="resource", hooks=hooks)
    run = talked(shared, replies=[*REPLIES, "Hello."], threads=("t1", "t2", "t1"), resources=("ann", "ann", "bob"))
    assert set(replay(run, rules=[LARGE]).known_until) == {"t1", "t2"}


def test_a_call_that_a_layer_stopped_is_not_known_under_other_rules() -> None:
    def stop(p: Any) -> Any:
        return {"stop": Stop({"kind": "own"}, "Enough.")} if p.tool_args["amount"] > 50 else None

    hooks = MemoryHooks(before_tool_call=stop)
    run = talked(MemoryLayer(id="guard", slot=1, scope="execution", hooks=hooks), replies=REPLIES)
    assert run.turns[0].outcome == "aborted"
    first, *_ = [seq for seq, event in enumerate(run.events) if isinstance(event, ToolCalled)]
    assert replay(run, rules=[LARGE]).known_until["t1"].seq > first
    assert replay(run).known_until == {}


def test_a_horizon_at_one_of_several_decisions_stays_in_a_replay_of_the_replay() -> None:
    @nn.tool(needs_approval=True)
    def erase(what: str) -> str:
        """Erase."""
        return "erased"

    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted", tools=[erase]), memory=[nn.RuleBook()])
    calls = [nn.CallTool("erase", what=what) for what in "abb"]
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([*calls, "Done."]), approve=lambda name, args: False)
    run = nn.record(harness)
    nn.run_sync(harness.execute("Erase."))
    run.stop_recording()
    # Its thresholds do not say what it counts, so a replay of the replay keeps its decisions.
    loop = ToolLoop(threshold=2, by="call", across_turns=True)
    replayed = replay(run, regulator=Regulator.for_user("ann").with_predicates(loop))
    assert isinstance(replayed.events[replayed.known_until["default"].seq], SteeringDecided)
    assert replay(replayed).known_until == replayed.known_until


def test_a_grade_after_a_stop_is_not_known() -> None:
    async def talk() -> Run:
        config = nn.AgentConfig(name="desk", step=nn.react(model="scripted", tools=[pay]))
        harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello.", nn.CallTool("pay", amount=60), "Paid."]))
        run = nn.record(harness)
        await harness.execute("Hi.", thread_id="t1")
        await harness.execute("Pay.", thread_id="t2")
        await harness.feedback("t1", quality=0.5)
        run.stop_recording()
        return run

    stopped = replay(asyncio.run(talk()), mode="closed", rules=[LARGE])
    assert set(stopped.known_until) == {"t1", "t2"}
    assert stopped.known_until["t1"] == (1, len(stopped.events))


def test_another_order_of_a_request_ends_what_is_known() -> None:
    hooks = MemoryHooks(recall=lambda p: "A fact.")
    layer = MemoryLayer(id="facts", slot=1, scope="thread", hooks=hooks, placement="suffix")
    run = talked(layer, replies=["Hello.", "Bye.", "Hello again."], threads=("t1", "t2", "t1"))
    # A request of one message has only one order.
    assert {thread: point.turn for thread, point in replay(run, projection={"order": "cache"}).known_until.items()} == {
        "t1": 2
    }


def test_what_a_new_summary_would_say_is_unknown() -> None:
    policy = ProjectionPolicy(token_budget=4_000, response_reserve=0, overflow="summarize")
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), projection=policy)
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["words " * 80, "Yes."]))
    run = nn.record(harness)

    async def talk() -> None:
        await harness.execute("Tell me.", thread_id="t1")
        await harness.execute("Was that all?", thread_id="t1")

    nn.run_sync(talk())
    run.stop_recording()
    replayed = replay(run, projection={"token_budget": 100})
    assert replayed.known_until["t1"].turn == 2
    assert isinstance(replayed.events[replayed.known_until["t1"].seq], ViewAssembled)


def test_a_comparison_has_the_counts_up_to_the_change_beside_those_behind_it() -> None:
    run = talked(replies=REPLIES)
    assert list(nn.compare(run, run).to_frame().columns) == ["turn", "what", "a", "b"]

    compared = nn.compare(run, replay(run, rules=[LARGE]))
    table = compared.to_frame()

    assert list(table.columns) == ["turn", "what", "a", "b", "b_known"]
    denied = table[(table.what == "decision") & (table.b == "deny pay by large")]
    assert [value for value in denied.b_known if value is not None] == ["deny pay by large"]
    calls = table[table.what == "model calls"]
    assert list(zip(calls.b, calls.b_known, strict=True)) == [(4, 2), (1, 1)]
    assert "Known up to turn 1 of 't1'" in repr(compared)


def test_a_backtest_counts_changes_up_to_the_first() -> None:
    table = backtest([], talked(replies=REPLIES), candidate=LARGE)
    assert (table.attrs["summary"]["newly_denied"], table.attrs["summary_known"]["newly_denied"]) == (2, 1)
    assert table.attrs["summary"]["unchanged"] > table.attrs["summary_known"]["unchanged"]


def test_lists_of_runs_are_compared_up_to_the_change_too() -> None:
    run = talked(replies=REPLIES)
    replayed = replay(run, rules=[LARGE])
    found = nn.compare([run, run], [replayed, run])
    frame = found.to_frame().set_index("metric")
    assert list(frame.columns[-3:]) == ["a_known", "b_known", "difference_known"]
    assert (frame.b["denied"], frame.b_known["denied"]) == (1.0, 0.5)
    assert (frame.b["tool calls"], frame.b_known["tool calls"]) == (3.0, 2.0)
    assert frame.a["tool calls"] == frame.a_known["tool calls"] == 3.0
    assert "Some runs are known up to a first change only" in repr(found)
    assert "difference_known" not in nn.compare([run], [run]).to_frame()

    def replies(each: Run) -> float:
        return float(len(each.turns[0].text) / len(each.turns[0].text))

    # A metric that needs the end of a run has no number for a known part.
    (row,) = nn.compare([run, run], [replayed, run], metrics={"replied": replies}).rows
    assert (row.n, row.a_known, row.b_known) == (2, 1.0, 1.0)


def test_what_stopping_saves_in_replays_is_counted_up_to_the_change() -> None:
    runs = []
    for task, outcome in ((1, False), (2, True)):
        run = talked(replies=REPLIES)
        replayed = replay(run, rules=[LARGE])
        replayed.meta.update(task_id=task, outcome=outcome)
        runs.append(replayed)
    frame = economics(CallBudget(), runs, samples=20)
    row = frame[(frame.policy == "detector") & (frame.domain == "all") & (frame.threshold == 1)].iloc[0]
    assert (row.failed_stopped, row.failed_stopped_known) == (1.0, 1.0)
    spent = [call.input_tokens + call.output_tokens for call in runs[0].select(ModelCalled)]
    # The first tool call comes after the first model call; the denied one and its thread's end come after the second.
    assert row.tokens_saved == sum(spent[1:])
    assert row.tokens_saved_known == spent[1] + spent[-1]
    late = frame[(frame.policy == "detector") & (frame.domain == "all") & (frame.threshold == 3)].iloc[0]
    assert (late.good_lost, late.good_lost_known) == (1.0, 0.0)
    assert frame.attrs["known"].startswith("2 of 2 runs are replays")
    recorded = talked(replies=REPLIES)
    recorded.meta.update(task_id=1, outcome=False)
    other = economics(CallBudget(), [recorded, runs[1]], samples=20)
    assert other.attrs["known"].startswith("1 of 2 runs")
    good = talked(replies=REPLIES)
    good.meta.update(task_id=2, outcome=True)
    alone = economics(CallBudget(), [recorded, good], samples=20)
    assert alone.attrs["known"] == "Every run is known to its end."
    assert "tokens_saved_known" not in alone
