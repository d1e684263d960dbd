"""A recorded run is replayed: unchanged, to the last byte, or under another configuration."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    BudgetsAllocated,
    RegulatorDecided,
    RequestPrepared,
    SteeringDecided,
    ViewAssembled,
)
from noetic_nb.items import freeze, item_text
from noetic_nb.lab import RegulatorReadings, datasets, replay, replay_regulator
from noetic_nb.lab._replaying import regulator_readings
from noetic_nb.lab._replaying.replays import Replay
from noetic_nb.layers import regulation
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.regulator import CallBudget, Regulator, ToolLoop, decisions
from noetic_nb.runs import Run, load_run
from noetic_nb.runs._events.event_json import dump_event
from noetic_nb.runs._requests.recorded_requests import recorded_request
from noetic_nb.steering import deny
from noetic_nb.steering._layer import rulebook_of
from noetic_nb.testing import FakeClock, SeededIds
from tests.lab.random_agents import find, offering_layer, pay, random_run
from tests.matrix import matrix

WORKED_OUT = (SteeringDecided, RegulatorDecided, BudgetsAllocated, ViewAssembled, RequestPrepared)


def worked_out(run: Run) -> list[Any]:
    return [dump_event(event) for event in run.events if isinstance(event, WORKED_OUT)]


@matrix("seed", range(40), keep=16)
async def test_a_replay_with_nothing_changed_gives_every_decision_and_plan_again(seed: int) -> None:
    run = await random_run(seed)

    again = await asyncio.to_thread(replay, run)

    assert worked_out(again) == worked_out(run)
    assert list(again.events) == list(run.events)
    kept = {(row["what"], row["why"]) for row in again.meta["replay"]["kept"] if row["what"] != "offers"}
    assert kept <= {("plans", "an allocation without a request"), ("rules", "a call that was never made")}


def ledger(run: Run) -> list[tuple[Any, ...]]:
    return [(e.hook, e.tool_name, e.action, e.rule_ids, e.enforced) for e in run.select(SteeringDecided)]


async def chat(layers: list[Any], replies: list[Any], *messages: str, **options: Any) -> Run:
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="scripted", instructions="Work."), memory=layers, tools=[find, pay]
    )
    harness = nn.AgentHarness(
        config, model=options.get("model") or nn.ScriptedModel(replies), clock=FakeClock(step_ms=3), ids=SeededIds()
    )
    run = nn.record(harness)
    for message in messages:
        await harness.execute(message)
    run.stop_recording()
    return run


PAYING = [nn.CallTool("find", place=2), nn.CallTool("pay", amount=60), "Paid.", nn.CallTool("pay", amount=5), "Done."]


async def test_other_rules_are_evaluated_at_every_recorded_call() -> None:
    rules = nn.RuleBook()
    rules.at_most(9, "pay", id="many")
    run = await chat([rules], PAYING, "pay 60", "pay 5")
    strict = nn.RuleBook()
    strict.when("tool.args.amount > 50", id="large", tools="pay")

    again = await asyncio.to_thread(lambda: replay(run, rules=strict))

    before = [row for row in ledger(run) if row[0] == "before_tool_call"]
    after = [row for row in ledger(again) if row[0] == "before_tool_call"]
    assert [row[2] for row in before] == ["allow"] * 3
    assert [(row[1], row[2], row[4]) for row in after] == [
        ("find", "allow", True),
        ("pay", "deny", False),  # not enforced
        ("pay", "allow", True),
    ]
    facts = again.meta["replay"]
    assert (facts["of"], facts["mode"], facts["changed"], facts["stopped"]) == (run.run_id, "open", ["rules"], None)
    assert facts["decisions"]["after"]["deny"] == 1
    assert facts["calls"]["before"] == facts["calls"]["after"] == {"model": 5, "tool": 3}


async def test_a_run_without_rules_gets_a_ledger_and_an_imported_one_too() -> None:
    run = await chat([], PAYING, "pay 60", "pay 5")
    rules = nn.RuleBook()
    rules.at_most(0, "pay", id="none")
    again = await asyncio.to_thread(lambda: replay(run, rules=rules))
    assert [row[2] for row in ledger(again) if row[1] == "pay"] == ["deny", "deny"]
    places = [type(event).__name__ for event in again.events]
    assert places.index("SteeringDecided") == places.index("ModelCalled") + 1  # the response is judged first
    airline = datasets.airline_run(26)
    rules.at_most(2, "get_reservation_details", id="look")
    judged = replay(airline, rules=rules)
    assert [row[2] for row in ledger(judged)].count("deny") == 4
    assert len(judged.events) > len(airline.events)
    assert not [event for event in judged.select(SteeringDecided) if event.enforced]


async def test_a_judge_without_a_model_keeps_what_was_decided_and_says_so() -> None:
    rules = nn.RuleBook()
    rules.judge("Is this kind?", id="kind", on="before_tool_call", tools="pay", model="judge")
    model = {
        "scripted": nn.ScriptedModel([nn.CallTool("pay", amount=5), "Done."]),
        "judge": nn.ScriptedModel({"judge": ["DENY: Unkind."]}),
    }
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[rules], tools=[pay])
    harness = nn.AgentHarness(config, model=model)
    run = nn.record(harness)
    await harness.execute("pay")
    run.stop_recording()
    assert [row[2] for row in ledger(run) if row[1] == "pay"] == ["deny"]

    again = await asyncio.to_thread(replay, run)
    assert list(again.events) == list(run.events)
    (row,) = [row for row in again.meta["replay"]["kept"] if row["what"] == "rules"]
    assert "kind" in row["why"]
    answered = nn.ScriptedModel({"judge": ["ALLOW"]})
    judged = await asyncio.to_thread(lambda: replay(run, rules=rules, model=answered))
    assert [row[2] for row in ledger(judged) if row[1] == "pay"] == ["allow"]


async def test_another_regulator_decides_at_the_moments_of_the_recorded_one() -> None:
    free = Regulator.for_user("ann").with_predicates(CallBudget(total=9, per_tool={}))
    tight = Regulator.for_user("ann").with_predicates(CallBudget(total=1, per_tool={}))
    run = await chat([regulation(free)], PAYING, "pay 60", "pay 5")
    again = replay(run, regulator=tight)
    stops = [event for event in again.select(RegulatorDecided) if event.stops]
    assert not [event for event in run.select(RegulatorDecided) if event.stops]
    assert stops[0].at == "tool_call"
    assert stops[0].decision["kind"] == "circuit_break"
    assert stops[0].suggestion
    assert not stops[0].enforced
    assert stops[0].thresholds == tight.thresholds
    assert len(again.select(RegulatorDecided)) == len(run.select(RegulatorDecided))
    denied = [event for event in again.select(SteeringDecided) if event.layer_id == "regulation"]
    assert [(event.tool_name, event.action, event.enforced) for event in denied] == [
        ("pay", "deny", False),
        ("pay", "deny", False),  # a stopped task stays stopped
    ]
    assert denied[0].guidance == stops[0].suggestion
    assert again.meta["replay"]["decisions"]["after"]["deny"] == 2
    assert again.to_frame("ledger").query("not enforced").action.tolist() == ["deny", "deny"]
    bare = await chat([], PAYING, "pay 60", "pay 5")
    assert [e.decision for e in replay(bare, regulator=tight).select(RegulatorDecided)] == [
        e.decision for e in replay_regulator(bare, tight).select(RegulatorDecided)
    ]


async def test_budgets_and_projection_go_through_the_planner_for_every_call() -> None:
    rng = random.Random(3)
    layer = offering_layer(rng, "facts")
    run = await chat([layer], PAYING, "pay 60 " * 40, "pay 5")
    again = replay(run, budgets={"facts": 40}, projection={"token_budget": 150, "response_reserve": 20})
    for place in range(5):
        asked = recorded_request(run, place).replan(budgets={"facts": 40}, total=150, reserve=20)
        view = again.select(ViewAssembled)[place]
        assert (view.fates, view.layers, view.window) == (asked.fates, asked.layers, asked.window)
        assert recorded_request(again, place).plan.fates == view.fates  # the replay can be analysed again
    assert all(event.total == 150 for event in again.select(BudgetsAllocated))
    facts = again.meta["replay"]
    assert facts["drops"]["after"] > facts["drops"]["before"] == 0
    assert facts["tokens"]["after"] < facts["tokens"]["before"]
    assert facts["cost"]["after"] is None  # the cost of another request is unknown
    bare = replay(run, layers=[])
    assert not [view for view in bare.select(ViewAssembled) if view.layer_items or view.layers]


@pytest.mark.parametrize("changes", [{"budgets": {"fact": 3}}, {"layers": ["fact"]}])
async def test_a_layer_that_no_call_has_is_told_also_where_there_is_none(changes: dict[str, Any]) -> None:
    for layers, words in (
        ([], r"'fact'\. It has none\."),
        ([offering_layer(random.Random(3), "facts")], r"'facts'\? It has 'facts'"),
    ):
        run = await chat(layers, ["Fine."], "Hello.")
        with pytest.raises(NoeticConfigError, match=words):
            replay(run, **changes)


async def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    run = await chat([offering_layer(random.Random(3), "facts")], PAYING, "pay 60", "pay 5")
    airline = datasets.airline_run(26)
    dropped = Run("d", meta={"dropped": [{"thread_id": "t1", "first": 1, "last": 2}]})
    for code, call in {
        "RUN_INCOMPLETE": lambda: replay(dropped),
        "INVALID_RUN": lambda: replay([run]),  # type: ignore[arg-type]
        "INVALID_MODE": lambda: replay(run, mode="half"),  # type: ignore[arg-type]
        "UNKNOWN_LAYER_REFERENCE": lambda: replay(run, budgets={"fact": 3}),
        "INVALID_BUDGET": lambda: replay(run, budgets={"facts": -3}),
        "INVALID_PROJECTION": lambda: replay(run, projection={"tokens": 3}),
        "INVALID_RULE": lambda: replay(run, rules="no"),
        "INVALID_REGULATOR": lambda: replay(run, regulator="no"),  # type: ignore[arg-type]
        "NOT_RECORDED": lambda: replay(airline, budgets={"facts": 3}),
    }.items():
        with pytest.raises(NoeticConfigError) as caught:
            call()
        assert caught.value.code == code
    with pytest.raises(NoeticConfigError) as caught:
        replay(run, layers=["fact"])
    assert caught.value.code == "UNKNOWN_LAYER_REFERENCE"
    with pytest.raises(NoeticConfigError) as caught:
        replay(airline, projection={"token_budget": 900})
    assert caught.value.code == "NOT_RECORDED"


async def test_a_run_that_grows_is_refused_while_a_turn_is_under_way() -> None:
    found: list[str] = []

    def look(request: Any) -> str:
        try:
            replay(run)
        except NoeticConfigError as error:
            found.append(error.code)
        return "Hello."

    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(look))
    run = nn.record(harness)
    await harness.execute("Hi")
    assert found == ["RUN_NOT_ENDED"]
    assert list(replay(run).events) == list(run.events)


async def test_a_loaded_bundle_is_replayed_with_the_rules_it_has(tmp_path: Path) -> None:
    rules = nn.RuleBook()
    rules.when("tool.args.amount > 50", id="large", tools="pay")
    run = await chat([rules, regulation(Regulator.for_user("ann"))], PAYING, "pay 60", "pay 5")
    loaded = load_run(run.save(tmp_path / "run.jsonl.gz", bundle=True))
    again = await asyncio.to_thread(replay, loaded)
    assert worked_out(again) == worked_out(loaded)
    assert not [row for row in again.meta["replay"]["kept"] if row["what"] in ("rules", "regulator")]
    bare = load_run(run.save(tmp_path / "bare.jsonl.gz"))
    (row,) = [row for row in replay(bare).meta["replay"]["kept"] if row["what"] == "rules"]
    assert row["why"] == "the run does not have them"


async def test_decisions_are_worked_out_and_not_copied() -> None:
    rules = nn.RuleBook()
    rules.at_most(0, "pay", id="none")
    run = await chat([rules, regulation(Regulator.for_user("ann"))], PAYING, "pay 60", "pay 5")
    forged = [
        event
        if not isinstance(event, SteeringDecided)
        else type(event)(
            event.where, event.t_ms, event.layer_id, event.hook, event.tool_name, event.args, "guide", "forged", (), 1.0
        )
        for event in run.events
    ]
    other = Run("forged", meta=run.meta, events=forged)
    other.made_with(run._config)
    again = await asyncio.to_thread(replay, other)
    assert [row[:4] for row in ledger(again)] == [row[:4] for row in ledger(run)]


def test_regulators_that_read_alike_share_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    run = datasets.airline_run(26)
    readings, fed = RegulatorReadings(run), []
    known = regulator_readings.fed_events
    monkeypatch.setattr(regulator_readings, "fed_events", lambda *given: fed.append(1) or known(*given))
    caps = [Regulator.for_user("ann").with_cost_cap(cap) for cap in (10, 900, 5, 100_000)]
    loops = [Regulator.for_user("ann").with_predicates(ToolLoop(threshold=count)) for count in (2, 3, 9)]
    for regulator in (*caps, *loops):
        alone = [event.decision for event in replay_regulator(run, regulator).select(RegulatorDecided)]
        assert [freeze(decisions.to_dict(moment.decision)) for moment in readings.decide(regulator)] == alone
    assert len(fed) == 1
    taught = Regulator.for_user("ann")
    taught.person.corrections.add("flight", "no layovers")
    readings.decide(taught)  # its learned state is read as well
    assert len(fed) == 2
    with pytest.raises(NoeticConfigError) as caught:
        readings.decide("no")  # type: ignore[arg-type]
    assert caught.value.code == "INVALID_REGULATOR"


async def test_other_layers_recall_over_the_recorded_log() -> None:
    lengths: list[tuple[str, int]] = []
    stored: list[str] = []

    def recall(p: Any) -> Any:
        lengths.append((p.query, len(p.log)))
        return f"{len(p.log)} items so far. " * 9

    def store(p: Any) -> None:
        stored.append(p.response.items[0]["type"])

    note = MemoryLayer(id="note", slot=5, scope="thread", budget=20, hooks=MemoryHooks(recall=recall, store=store))
    run = await chat([offering_layer(random.Random(3), "facts")], PAYING, "pay 60", "pay 5")
    again = await asyncio.to_thread(lambda: replay(run, layers=["facts", note]))
    assert lengths == [("pay 60", 1), ("pay 60", 3), ("pay 60", 5), ("pay 5", 7), ("pay 5", 9)]
    assert stored == ["function_call", "function_call", "message", "function_call", "message"]
    for place, view in enumerate(again.select(ViewAssembled)):
        assert {layer_id for layer_id, _ in view.layer_items} == {"facts", "note"}
        assert next(share for share in view.layers if share.layer_id == "note").used <= 20
        assert recorded_request(again, place).can_replan
    alone = await asyncio.to_thread(lambda: replay(run, layers=[note]))
    assert {layer_id for layer_id, _ in alone.select(ViewAssembled)[0].layer_items} == {"note"}


@pytest.mark.parametrize("settings", [{"threshold": 2, "by": "call"}, {"threshold": 2, "across_turns": True}])
async def test_a_regulator_that_a_function_made_decides_again_as_it_decided(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    layer = regulation(lambda owner: Regulator.for_user(owner).with_predicates(ToolLoop(**settings)))
    calls = [nn.CallTool("find", place=place) for place in (1, 2, 1)]
    run = await chat([layer], [*calls, "Yes.", "No."], "Find both.", "And now?")
    loaded = load_run(run.save(tmp_path / "run.jsonl"))

    def decided(each: Run) -> list[tuple[Any, ...]]:
        return [(event.at, event.decision, event.stops) for event in each.select(RegulatorDecided)]

    for each in (run, loaded):
        again = await asyncio.to_thread(replay, each)
        assert (decided(again), again.known_until) == (decided(run), {})


async def test_rules_see_an_answer_in_several_parts_once() -> None:
    cut = nn.Reply(text="One,", finish_reason="length")
    config = nn.AgentConfig(name="desk", step=nn.step.llm("ask", model="m", incomplete="continue"))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([cut, "two."]))
    run = nn.record(harness)
    await harness.execute("Count.")
    rule = {"id": "none", "when": "false", "applies_to": "after_model_call"}
    replayed = await asyncio.to_thread(replay, run, rules=[rule])
    assert replayed.select(SteeringDecided) == ()


async def test_rules_do_not_see_an_empty_answer_that_is_asked_for_again() -> None:
    run = await chat([], [nn.Fault("empty"), "Hello."], "Hi")
    replayed = await asyncio.to_thread(
        replay, run, rules=[{"id": "none", "when": "false", "applies_to": "after_model_call"}]
    )
    assert len(replayed.select(SteeringDecided)) == 1


async def test_a_thread_that_changes_its_resource_begins_a_task_and_a_break_stays() -> None:
    limit = CallBudget(total=1, per_tool={})
    calls = [nn.CallTool("find", place=1), nn.CallTool("find", place=2)]

    async def live(memory: list[MemoryLayer], replies: list[Any]) -> Run:
        config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[find]), memory=memory)
        harness = nn.AgentHarness(config, model=nn.ScriptedModel(replies))
        run = nn.record(harness)
        for owner in ("ann", "bob", "ann"):
            await harness.execute("Find it.", thread_id="t1", resource_id=owner)
        return run

    def decided(run: Run) -> list[tuple[str, str, bool]]:
        return [(event.at, event.decision["kind"], event.stops) for event in run.select(RegulatorDecided)]

    stopped = await live([regulation(lambda owner: Regulator.for_user(owner).with_predicates(limit))], calls)
    assert decided(stopped)[-1] == ("turn_start", "circuit_break", True)
    assert decided(await asyncio.to_thread(replay, stopped)) == decided(stopped)
    free = await live([], [calls[0], "Yes.", calls[0], "Yes.", "Yes."])
    regulator = Regulator.for_user("ann").with_predicates(limit)
    assert not any(stops for *_, stops in decided(await asyncio.to_thread(replay, free, regulator=regulator)))


async def test_another_layer_gets_the_query_and_the_time_of_each_call() -> None:
    @nn.tool(inline=True)
    def look() -> str:
        """Look."""
        return "What a tool found."

    recall = MemoryHooks(recall=lambda p: f"{p.query} in {p.ctx.clock.now_ms() // 1e9:g}")
    layer = MemoryLayer(id="shown", slot=10, scope="thread", hooks=recall)
    step = nn.loop(
        "both", [nn.step.tool("look", tool=look), nn.step.llm("ask", model="m")], until=nn.until.max_steps(1)
    )

    async def live(*layers: MemoryLayer) -> Run:
        config = nn.AgentConfig(name="desk", step=step, tools=[look], memory=layers)
        harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Yes."]), clock=FakeClock())
        run = nn.record(harness)
        await harness.execute("Look.")
        return run

    replayed = await asyncio.to_thread(replay, await live(), layers=[layer])
    assert [offered(view) for view in replayed.select(ViewAssembled)] == [
        offered(view) for view in (await live(layer)).select(ViewAssembled)
    ]


async def test_a_break_that_stops_later_turns_is_decided_again() -> None:
    looping = Regulator.for_user("ann").with_predicates(ToolLoop(threshold=3))
    run = await chat([regulation(looping)], [nn.CallTool("find", place=1)] * 9, "go", "go on", "and on")
    starts = [event for event in run.select(RegulatorDecided) if event.at == "turn_start"]
    assert [event.stops for event in starts] == [False, True, True]
    again = await asyncio.to_thread(replay, run)
    assert worked_out(again) == worked_out(run)
    free = replay(run, regulator=Regulator.for_user("ann").with_predicates(ToolLoop(threshold=9)))
    assert not [event for event in free.select(RegulatorDecided) if event.stops]
    assert not [event for event in free.select(SteeringDecided) if event.layer_id == "regulation"]


@matrix("seed", range(24), keep=10)
async def test_the_same_rules_given_as_others_write_the_recorded_ledger(seed: int) -> None:
    run = await random_run(seed, edits=False)
    book = next(book for layer in run._config.memory if (book := rulebook_of(layer)) is not None)  # type: ignore[attr-defined]

    again = await asyncio.to_thread(lambda: replay(run, rules=book))

    assert worked_out(again) == worked_out(run)


async def test_layers_that_enforce_are_evaluated() -> None:
    run = await chat([], PAYING, "pay 60", "pay 5")
    rules = nn.RuleBook()
    rules.at_most(0, "pay", id="none")
    tight = Regulator.for_user("ann").with_predicates(CallBudget(total=1, per_tool={}))
    again = await asyncio.to_thread(lambda: replay(run, layers=[nn.steering(rules), regulation(tight)]))
    assert [row[2] for row in ledger(again) if row[1] == "pay" and row[4] is False][:1] == ["deny"]
    assert [event for event in again.select(RegulatorDecided) if event.stops]


async def test_rules_read_the_ledger_that_they_would_have_written() -> None:
    run = await chat([], PAYING, "pay 60", "pay 5")
    seen: list[list[tuple[Any, ...]]] = []
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call")
    def once(call: Any) -> Any:
        seen.append([(entry["kind"], entry.get("toolName"), entry["action"]) for entry in call.state["ledger"]])
        call.state["ledger"].clear()  # only changes this copy
        return deny("Once.") if any(row[2] == "deny" for row in seen[-1]) or call.tool_name == "find" else None

    again = await asyncio.to_thread(lambda: replay(run, rules=rules))

    answer = ("model_turn", None, "allow")
    assert seen == [[answer], [answer, ("tool_call", "find", "deny"), answer], [answer]]  # the ledger covers one turn
    assert [row[2] for row in ledger(again) if row[0] == "before_tool_call"] == ["deny", "deny", "allow"]


@matrix("seed", range(24), keep=10)
async def test_the_layers_of_a_run_offer_over_its_log_what_they_had_offered(seed: int) -> None:
    run = await random_run(seed, edits=False)
    layers = run._config.memory  # type: ignore[attr-defined]
    again = await asyncio.to_thread(
        lambda: replay(run, layers=[layer.id if layer.id == "projecting" else layer for layer in layers])
    )
    assert [offered(view) for view in again.select(ViewAssembled)] == [
        offered(view) for view in run.select(ViewAssembled)
    ]
    in_children = {row["why"] for row in again.meta["replay"]["kept"] if row["what"] in ("offers", "layers")}
    assert bool(in_children) <= any(view.where.depth for view in run.select(ViewAssembled))


@pytest.mark.parametrize("seed", range(8))
async def test_layers_choose_of_the_history_what_they_had_chosen(seed: int) -> None:
    run = await random_run(seed, edits=False)
    again = await asyncio.to_thread(lambda: replay(run, layers=list(run._config.memory)))  # type: ignore[attr-defined]

    for view, other in zip(run.select(ViewAssembled), again.select(ViewAssembled), strict=True):
        assert other.projection == view.projection


async def test_another_layer_chooses_of_the_history_where_none_did() -> None:
    run = await chat([], PAYING, "pay 60", "pay 5")
    lived = await chat([nn.history_window(2)], PAYING, "pay 60", "pay 5")
    recorded = [view.projection for view in lived.select(ViewAssembled)]

    again = await asyncio.to_thread(lambda: replay(run, layers=[nn.history_window(2)]))
    assert [view.projection for view in again.select(ViewAssembled)] == recorded
    assert any(recorded)
    for place in range(len(recorded)):
        sent, then = recorded_request(again, place).items, recorded_request(lived, place).items
        assert [(one.origin, one.position) for one in sent] == [(one.origin, one.position) for one in then]
    # Without its layer the whole history is sent, or another layer can choose from all of it.
    bare = await asyncio.to_thread(lambda: replay(lived, layers=[]))
    assert [view.history_items for view in bare.select(ViewAssembled)] == [
        view.history_items for view in run.select(ViewAssembled)
    ]
    wider = await asyncio.to_thread(lambda: replay(lived, layers=[nn.history_window(8)]))
    assert wider.select(ViewAssembled)[-1].history_items > lived.select(ViewAssembled)[-1].history_items
    # It is unknown which recorded layer projected the history, so the projection stays, and this is reported.
    clearing = nn.layers.tool_result_clearing()
    kept = await asyncio.to_thread(lambda: replay(lived, layers=["history-window", clearing]))
    assert [view.projection for view in kept.select(ViewAssembled)] == recorded
    why = {row["why"] for row in kept.meta["replay"]["kept"]}
    assert {"what recorded layers chose of it", "hook project_history of layer tool-result-clearing is not run"} <= why


def offered(view: ViewAssembled) -> list[tuple[str, str]]:
    return [(layer_id, item_text(item)) for layer_id, item in view.layer_items]


def test_each_port_of_a_replay_is_recorded_given_or_asked() -> None:
    run = datasets.airline_run(26)
    recorded = dict.fromkeys(
        ("model", "tools", "clock", "ids", "rules", "regulator", "layers", "tokenizer"), "recorded"
    )
    assert Replay(run=run).ports == recorded
    judge = nn.ScriptedModel(["allow"])
    given = Replay(run=run, rules=[], regulator=Regulator.for_user("ann"), model=judge, budgets={}).ports
    assert given == {**recorded, "rules": "given", "regulator": "given", "model": "given", "layers": "given"}
    asked = Replay(run=run, mode="closed", model=judge, tools=[], layers=[], tokenizer="o200k_base").ports
    assert asked == {**recorded, "model": "asked", "tools": "asked", "layers": "given", "tokenizer": "given"}
    changed = Replay(run=run, rules=[]).result()
    assert changed.events[:] == replay(run, rules=[]).events[:]
