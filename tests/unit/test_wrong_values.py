"""Values of the wrong kind, at every entry point: refused with a typed error that says what was given."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noetic_nb as nn
from noetic_nb import lab, plots, tokenizers
from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError
from noetic_nb.memory import ExecutionContext, LayerStack, allocate_budgets
from noetic_nb.runs.token_calibration import token_calibration
from noetic_nb.steering import save_rules
from noetic_nb.storage import ScopedStorage
from noetic_nb.widgets import TokenAllocation

TYPED = (NoeticError, NoeticConfigError, ItemValidationError)
NO_RUNS = [None, 5, math.nan, True, object(), len, [None], [5], "runs", Path("runs")]


def refusal(function: Callable[..., Any], *args: Any, **options: Any) -> str:
    """Return the message with which a call is refused."""

    async def call() -> None:
        answer = function(*args, **options)
        if inspect.isawaitable(answer):
            await answer

    with pytest.raises(TYPED) as caught:
        asyncio.run(call())
    return str(caught.value)


# Without types, because the calls are wrong.
ANY: Any = nn


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: ANY.import_run("a.json", "openai"), "nn.import_run(path, format='openai')"),
        (lambda: ANY.lab.fork(ANY.Run("r")), "lab.fork(run, at=3"),
        (lambda: ANY.lab.sweep({"call_budget.total": [5]}, []), "metrics={"),
        (lambda: ANY.lab.lost(ANY.Run("r")), "lab.lost(run, -1)"),
        (lambda: ANY.Run("r").label("good", True), "Run.label() needs 'by'"),
        (lambda: ANY.guard([len]), "nn.guard(tools, rules)"),
        (lambda: ANY.tool(dict), "Wrap it in a function"),
        (lambda: ANY.react(model="m", max_steps="3"), "`max_steps` is a whole number of at least 1"),
        (lambda: ANY.OpenAIModel(ANY.ScriptedModel(["a"])), "is a text"),
        (lambda: ANY.static_content(3), "is a text, or a function that returns it"),
        (lambda: ANY.lab.profile([]), "This is not a run"),
        (lambda: ANY.widgets.TokenAllocation("run.json"), "nn.import_run(path)"),
        (lambda: ANY.plots.context("run.json"), "This is not a run"),
        (lambda: ANY.testing.check_layer("notes"), "This is not a layer"),
    ],
    ids=range(14),
)
def test_a_plausible_mistake_is_answered_with_the_right_call(call: Callable[[], Any], expected: str) -> None:
    assert expected in refusal(call)


def book() -> nn.RuleBook:
    """Return one rule."""
    rules = nn.RuleBook()
    rules.at_most(1, "pay")
    return rules


ON_RUNS: dict[str, Callable[[Any], Any]] = {
    "lint": lambda runs: lab.lint(book(), runs),
    "backtest": lambda runs: lab.backtest(book(), runs),
    "evaluate": lambda runs: lab.evaluate(book(), runs),
    "agreement": lambda runs: lab.agreement(runs, "outcome"),
    "disagreements": lambda runs: lab.disagreements(runs, "outcome"),
    "survival": lab.survival,
    "first_stop": lab.first_stop,
    "suggest": lambda runs: lab.suggest(runs, outcome="outcome"),
    "economics": lambda runs: lab.economics(lambda run: 1.0, runs),
    "draft_rule": lambda runs: lab.draft_rule(runs, 0),
    "what_if_cached": lab.what_if_cached,
    "token_calibration": token_calibration,
    "sweep": lambda runs: lab.sweep({"rules": [book()]}, runs, metrics={"one": lambda run: 1.0}, n_jobs=1),
}


@pytest.mark.parametrize("name", ON_RUNS)
def test_what_is_no_run_is_refused(name: str) -> None:
    for value in NO_RUNS:
        assert "Given: " in refusal(ON_RUNS[name], value)


SEEDED: dict[str, Callable[[Any], Any]] = {
    "made_dialogues": lambda seed: lab.made_dialogues(1, seed=seed),
    "with_filler": lambda seed: lab.with_filler(lab.made_dialogues(1), 2_000, seed=seed),
    "memory_bench": lambda seed: lab.memory_bench({"none": []}, lab.made_dialogues(1), budgets=[100], seed=seed),
    "suggest": lambda seed: lab.suggest(lab.datasets.airline(4), seed=seed),
    "calibrate": lambda seed: lab.calibrate(lambda run: 1.0, lab.datasets.airline(4), seed=seed),
    "economics": lambda seed: lab.economics(lambda run: 1.0, lab.datasets.airline(4), seed=seed),
    "sweep": lambda seed: lab.sweep(
        {"rules": [book()]}, lab.datasets.airline(2), metrics={"one": lambda run: 1.0}, n_jobs=1, seed=seed
    ),
    "dojo": lambda seed: lab.dojo(suites=[], seed=seed),
    "sample": lambda seed: nn.open_runs(lab.datasets.airline(4)).sample(2, seed=seed),
    "split": lambda seed: nn.open_runs(lab.datasets.airline(4)).split(seed=seed),
}


@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_is_a_whole_number(name: str) -> None:
    for value in (None, "x", "\ud800", -1, 1.5, math.nan, True, [1], object()):
        assert "[INVALID_SEED]" in refusal(SEEDED[name], value)


def test_numbers_to_plan_with_may_come_from_iterators() -> None:
    lists = lab.power(0.1, share=0.5, tasks=[50, 100], trials=[1, 2])
    assert lab.power(0.1, share=0.5, tasks=iter([50, 100]), trials=iter([1, 2])).equals(lists)
    for value in (None, 1.5, math.nan, object(), len):
        assert "[INVALID_COUNT]" in refusal(lab.power, 0.1, share=0.5, tasks=value, trials=1)
        assert "[INVALID_COUNT]" in refusal(lab.power, 0.1, share=0.5, tasks=50, trials=value)


def test_a_tool_without_a_name_proves_nothing() -> None:
    for tools in ("", " ", [""]):
        assert "[INVALID_TOOL]" in refusal(lab.prove, book(), 'tool.name != "pay"', tools=tools)
        assert "[INVALID_TOOL]" in refusal(lab.lint, book(), tools=tools)


def test_only_texts_and_items_are_counted() -> None:
    for value in (None, 5, math.nan, b"text", ["text"], {"text": 1}, object()):
        for count in (nn.estimate_tokens, tokenizers.get("calibrated-offline")):
            assert "[INVALID_TEXT]" in refusal(count, value)
    for value in (None, 5, "text", b"text", [], object(), len):
        assert "Given: " in refusal(nn.item_tokens, value)


@pytest.mark.parametrize("value", [None, 5, "text", [5], {"a": 1}, object()])
def test_budgets_and_views_are_of_layers_and_items(value: Any) -> None:
    assert "[INVALID_LAYER]" in refusal(nn.allocate_budgets, value, total_budget=10)
    if value is not None:
        assert "[INVALID_PROJECTION]" in refusal(nn.assemble_view, [], [], [], value)
        assert "Given: " in refusal(nn.ItemLog, value)
    for place in range(3):
        assert "Given: " in refusal(nn.assemble_view, *[value if at == place else [] for at in range(3)])


def test_a_misspelt_mode_of_recall_is_refused() -> None:
    ctx = ExecutionContext(execution_id="e", thread_id="t")
    assert "[INVALID_OPTION]" in refusal(LayerStack([]).recall, ctx, budgets={}, mode="atomik")


@pytest.mark.parametrize("key", [None, 5, b"key", ["key"], {"a": 1}, object()])
def test_keys_of_a_store_are_text(key: Any) -> None:
    store = nn.InMemoryStorage()
    for one in (store, ScopedStorage(store, "layer", "scope")):
        for call in (one.get, one.delete, one.list):
            assert "A key must be text" in refusal(call, key)
        assert "A key must be text" in refusal(one.set, key, 1)
    assert asyncio.run(store.list("")) == []
    for wrong in (ScopedStorage(store, key, "scope"), ScopedStorage(store, "layer", key)):
        assert "A key must be text" in refusal(wrong.get, "state")


def agent() -> nn.AgentHarness:
    """Return an agent that says hello."""
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"))
    return nn.AgentHarness(config, model=nn.ScriptedModel(lambda request: "Hello."))


@pytest.mark.parametrize("value", [5, ["t"], {"a": 1}, b"t", object()])
def test_ids_of_threads_and_resources_are_text(value: Any) -> None:
    for call in (
        lambda desk: desk.execute("Hi", thread_id=value),
        lambda desk: desk.stream("Hi", thread_id=value),
        lambda desk: desk.execution(thread_id=value).__aenter__(),
        lambda desk: desk.feedback(value, quality=0.5),
        lambda desk: desk.correct(value, "No."),
        lambda desk: desk.preview(value),
        lambda desk: desk.cancel(value),
        lambda desk: desk.status(value),
        lambda desk: desk.seed(value, []),
        lambda desk: desk.append(value, []),
    ):
        assert "Given: " in refusal(call, agent())
    for call in (
        lambda desk: desk.execute("Hi", resource_id=value),
        lambda desk: desk.stream("Hi", resource_id=value),
        lambda desk: desk.execution(resource_id=value).__aenter__(),
    ):
        assert "[INVALID_RESOURCE]" in refusal(call, agent())


def test_numbers_that_no_float_can_hold_are_refused() -> None:
    for name in ("total_budget", "system_prompt_tokens", "response_reserve"):
        given = {"total_budget": 100, name: 10**400}
        assert "[INVALID_BUDGET_INPUT]" in refusal(allocate_budgets, [], **given)
    assert "[INVALID_SHARE]" in refusal(lab.power, 10**400, share=0.5, tasks=9, trials=2)


def test_values_of_other_kinds_among_names_messages_and_tools_are_refused() -> None:
    run = lab.datasets.airline_run(26)
    assert "[UNKNOWN_FORMAT]" in refusal(nn.Run.from_messages, 5)
    assert "[UNKNOWN_FORMAT]" in refusal(run.to_messages, ["openai"])
    assert "[UNKNOWN_KIND]" in refusal(lab.made_dialogues, 1, kinds=[["date"]])
    assert "[INVALID_TOOL]" in refusal(lab.lint, book(), tools=[int])
    for name in ("a\0b", "\ud800"):
        assert "The index cannot be used" in refusal(nn.open_runs, [run], index=name)
        assert "[INVALID_SET]" in refusal(nn.open_runs([run]).freeze, name, why="A test.")
    for meta in (-1, [1], "task"):
        assert "[INVALID_META]" in refusal(nn.Run, meta=meta)
        assert "[INVALID_META]" in refusal(nn.Run.from_messages, [{"role": "user", "content": "Hi"}], meta=meta)
    assert "[INVALID_RUN_ID]" in refusal(nn.Run, np.array([1, 2]))
    assert "[INVALID_RUN_EVENT]" in refusal(nn.Run, events=5)
    assert "[INVALID_AGENT_CONFIG]" in refusal(nn.AgentConfig, name=np.array([1, 2]), step=nn.react(model="m"))
    assert "`model`" in refusal(nn.react, model=np.array([1, 2]))


def test_a_seed_may_be_a_number_of_numpy() -> None:
    runs, few = nn.open_runs(lab.datasets.airline(12)), nn.RuleBook()
    few.at_most(1, "search_direct_flight")
    space, metrics = {"rules": [few, nn.RuleBook()]}, {"turns": lambda run: len(run.turns)}

    for draw in (
        lambda seed: [run.run_id for run in runs.sample(3, seed=seed)],
        lambda seed: [len(part) for part in runs.split(seed=seed)],
        lambda seed: lab.sweep(space, [runs[0]], metrics=metrics, n=1, seed=seed, n_jobs=1).digest.tolist(),
    ):
        assert draw(np.int64(7)) == draw(7)


@pytest.mark.parametrize("value", ["no", "", 0, 1, None, [], object()])
def test_a_switch_is_true_or_false(value: Any) -> None:
    for call in (
        lambda: nn.working_memory(read_only=value),
        lambda: nn.file_reference(follow_symlinks=value),
        lambda: nn.temporal_memory(ground_date_time=value),
        lambda: nn.temporal_memory(inject_ledger=value),
        lambda: nn.hybrid_recall(roots=value),
        lambda: nn.steering([], late_verdicts=value),
        lambda: agent().seed("t", [], replace=value),
    ):
        assert "must be True or False" in refusal(call)


@pytest.mark.parametrize("value", [0, "", False, b"", {}])
def test_a_value_that_is_false_is_no_empty_list_of_rules(value: Any) -> None:
    for call in (
        lambda: nn.steering(value),
        lambda: nn.steering(rules=value),
        lambda: nn.guard(len, value),
        lambda: nn.watch(rules=value),
    ):
        assert "Given: " in refusal(call)


def test_a_guard_without_rules_and_regulator_is_refused() -> None:
    assert "[INVALID_STEERING]" in refusal(nn.guard, len, None)
    assert "[INVALID_RUN]" in refusal(nn.guard, len, book(), run=5)
    assert "[INVALID_TIMEOUT]" in refusal(nn.steering, book(), timeouts=5)


def test_options_of_layers_are_named() -> None:
    for call in (
        lambda: nn.plan_memory(approve=False),
        lambda: nn.plan_memory(additional_allowed_tools=5),
        lambda: nn.plan_memory(additional_allowed_tools=[5]),
        lambda: nn.tool_result_clearing(exclude=5),
        lambda: nn.file_reference(allowed_extensions=5),
        lambda: nn.file_memory(initial=5),
        lambda: nn.file_memory(initial="text"),
        lambda: nn.semantic_recall(min_score=None),
        lambda: nn.hybrid_recall(min_score=[]),
        lambda: nn.working_memory(schema=5),
        lambda: nn.working_memory(schema=""),
        lambda: nn.layer_fn(description="d", input={"type": "object"}, output=int, execute=len),
        lambda: nn.layer_fn(description="d", input=dict, output=5, execute=len),
        lambda: nn.layer_fn(description="d", input=dict, output={}, execute=len),
    ):
        assert "[INVALID_" in refusal(call)


def test_a_name_alone_is_one_tool_that_a_plan_allows() -> None:
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", tools=[nn.tool(lambda: "found", name="look", description="Look.")]),
        memory=[nn.plan_memory(additional_allowed_tools="look")],
    )
    model = nn.ScriptedModel([nn.CallTool("plan_enter_plan_mode"), nn.CallTool("look"), "Done."])
    run = nn.record(harness := nn.AgentHarness(config, model=model))
    asyncio.run(harness.execute("Plan it."))
    assert run.to_frame("tools").status.tolist() == ["ok", "ok"]


def test_parts_of_a_script_a_step_and_a_rule_are_checked() -> None:
    for call in (
        lambda: nn.react(model="m", tools=5),
        lambda: nn.Reply("Hi", tool_calls=5),
        lambda: nn.Reply("Hi", tool_calls=None),
        lambda: nn.Reply("Hi", logprobs=[None]),
        lambda: nn.RuleBook().rule("r", on=5)(lambda call: None),
        lambda: nn.RuleBook().rule("r", on=None)(lambda call: None),
        lambda: nn.RuleBook().rule("r", on="before_tool_call", tools=5)(lambda call: None),
        lambda: nn.RuleBook().rule("r", on="before_tool_call", tools=iter([]))(lambda call: None),
        lambda: nn.RuleBook().rule("r", on="before_tool_call", tools=set())(lambda call: None),
        lambda: nn.SteeringRule(id="r", applies_to="before_tool_call", predicate=lambda call: None, tools=set()),
        lambda: nn.RuleBook().when("true", id="r", tools=iter([])),
        lambda: nn.RuleBook().only_from_user(5, "to"),
        lambda: nn.RuleBook().only_from_user("pay", "to", trust=5),
        lambda: nn.RuleBook().at_most(1, None),
        lambda: nn.fork("f", mode="all", paths=5, merge=len),
        lambda: nn.step.tool("t", nn.tool(lambda: 1, name="look", description="Look."), args=5),
        lambda: nn.dump_step(5),
        lambda: nn.dump_step(None),
        lambda: nn.static_content("Be kind.", tag=5),
        lambda: save_rules(5, "rules.json"),
        lambda: save_rules(["rule"], "rules.json"),
        lambda: nn.recover("run.jsonl.gz", 5),
        lambda: nn.recover("run.jsonl.gz", []),
    ):
        assert "[INVALID_" in refusal(call)


@pytest.mark.parametrize("path", [5, True, ["x"], b"x", object()])
def test_a_file_has_a_name(path: Any) -> None:
    run = lab.datasets.airline_run(26)
    for call in (
        lambda: run.save(path),
        lambda: book().save(path),
        lambda: nn.RuleBook.load(path),
        lambda: TokenAllocation(run).to_csv(path),
        lambda: TokenAllocation(run).to_png(path),
        lambda: nn.recover(path, nn.InMemoryStorage()),
        lambda: nn.open_runs([run], index=path),
        lambda: nn.open_runs([run]).freeze(path, why="A test."),
        lambda: lab.save_labels(run, path),
        lambda: lab.load_labels(run, path),
        lambda: nn.record(agent(), autosave=path),
        lambda: nn.CassetteModel(path),
        lambda: lab.datasets.load_airline(path),
        lambda: lab.datasets.load_tau2(path),
        lambda: lab.datasets.load_agentdojo(path),
        lambda: lab.datasets.load_who_and_when(path),
        lambda: lab.datasets.load_locomo(path),
        lambda: lab.datasets.load_longmemeval(path),
        lambda: lab.datasets.load_memory_agent_bench(path),
    ):
        assert "[INVALID_ARGUMENTS]" in refusal(call)
    assert "[INVALID_STORAGE_PATH]" in refusal(nn.SQLiteStorage, path)


def test_a_theme_is_one_of_those_there_are() -> None:
    run = lab.datasets.airline_run(26)
    for theme in ([], {}, "blue"):
        assert "Given: " in refusal(TokenAllocation(run).to_png, theme=theme)
        assert "Given: " in refusal(plots.context, run, theme=theme)
