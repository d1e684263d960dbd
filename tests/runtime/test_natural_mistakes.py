"""Common mistakes: each is rejected with the given value and a suggestion."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb import lab, widgets
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory import MemoryHooks, MemoryLayer


def client() -> nn.ScriptedModel:
    return nn.ScriptedModel(["Hello.", "Hello again."])


def config(**more: Any) -> nn.AgentConfig:
    return nn.AgentConfig(**({"name": "desk", "step": nn.react(model="m")} | more))


def harness(**more: Any) -> nn.AgentHarness:
    return nn.AgentHarness(config(), **({"model": client()} | more))


def talked() -> nn.AgentHarness:
    made = harness()
    nn.run_sync(made.execute("Hi", thread_id="ann"))
    return made


def search(query: str) -> str:
    """Search."""
    return query


class SyncClient:
    def complete(self, request: Any) -> Any:
        return nn.ModelResponse(())


class OtherClient:
    """A class of another package."""


async def read(stream: Any) -> None:
    async for _ in stream:
        pass


# The mistake, the code, the part of the value that is named, and the hint.
MISTAKES: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    # Agents and harnesses
    "react(model=client)": (
        lambda: nn.react(model=client()),  # type: ignore[arg-type]
        "INVALID_STEP",
        "ScriptedModel",
        "AgentHarness(config, model=client)",
    ),
    "react(model=other)": (lambda: nn.react(model=OtherClient()), "INVALID_STEP", "OtherClient", "AgentHarness("),  # type: ignore[arg-type]
    'react("m")': (lambda: nn.react("m"), "INVALID_ARGUMENTS", "'m'", "react(model='gpt-4o')"),  # type: ignore[misc]
    "react(temperature=)": (
        lambda: nn.react(model="m", temperature=1),  # type: ignore[call-arg]
        "INVALID_ARGUMENTS",
        "temperature",
        "ModelParams(temperature=0)",
    ),
    "react(prompt=)": (lambda: nn.react(model="m", prompt="x"), "INVALID_ARGUMENTS", "prompt", "instructions="),  # type: ignore[call-arg]
    "react(tools=[name])": (
        lambda: nn.react(model="m", tools=["search"]),
        "INVALID_STEP",
        "'search'",
        "tools=[search]",
    ),  # type: ignore[list-item]
    "react(tools=[schema])": (
        lambda: nn.react(model="m", tools=[{"type": "function"}]),  # type: ignore[list-item]
        "INVALID_STEP",
        "'function'",
        "Pass the function itself",
    ),
    "AgentHarness(react(...))": (
        lambda: nn.AgentHarness(nn.react(model="m"), model=client()),  # type: ignore[arg-type]
        "INVALID_AGENT_CONFIG",
        "LoopStep",
        "AgentConfig(name='desk', step=...)",
    ),
    "AgentHarness(client)": (
        lambda: nn.AgentHarness(client()),
        "INVALID_AGENT_CONFIG",
        "ScriptedModel",
        "model=client",
    ),  # type: ignore[arg-type]
    "AgentHarness(dict)": (lambda: nn.AgentHarness({"name": "x"}), "INVALID_AGENT_CONFIG", "'name'", "load_config"),  # type: ignore[arg-type]
    "AgentHarness(config, client)": (
        lambda: nn.AgentHarness(config(), client()),  # type: ignore[misc]
        "INVALID_ARGUMENTS",
        "ScriptedModel",
        "AgentHarness(config, model=client)",
    ),
    "AgentHarness(memory=)": (
        lambda: harness(memory=[nn.working_memory()]),
        "INVALID_ARGUMENTS",
        "memory",
        "AgentConfig(memory=[...])",
    ),
    "AgentHarness(model=name)": (lambda: harness(model="gpt-4o"), "INVALID_MODEL", "'gpt-4o'", "OpenAIModel('...')"),
    "AgentHarness(model=class)": (
        lambda: harness(model=nn.ScriptedModel),
        "INVALID_MODEL",
        "ScriptedModel",
        "ScriptedModel(...)",
    ),
    "a sync client": (
        lambda: nn.run_sync(harness(model=SyncClient()).execute("Hi")),
        "INVALID_MODEL",
        "SyncClient",
        "async def complete",
    ),
    "storage=path": (lambda: harness(storage="desk.db"), "INVALID_OPTION", "'desk.db'", "SQLiteStorage('desk.db')"),
    "storage=class": (
        lambda: harness(storage=nn.InMemoryStorage),
        "INVALID_OPTION",
        "InMemoryStorage",
        "InMemoryStorage(",
    ),
    "approve=True": (lambda: harness(approve=True), "INVALID_OPTION", "True", "approve=lambda"),
    "tokenizer=name": (lambda: harness(tokenizer="cl100k"), "UNKNOWN_TOKENIZER", "'cl100k'", "'cl100k_base'"),
    "tokenizer=number": (lambda: harness(tokenizer=4), "INVALID_OPTION", "4", "tokenizer='gpt-4.1'"),
    "tokenizer=encode": (lambda: harness(tokenizer=str.split), "INVALID_OPTION", "list", "len(encode(text))"),
    "clock=function": (lambda: harness(clock=time.time), "INVALID_OPTION", "time", "now_ms"),
    "checkpoints=storage": (
        lambda: harness(checkpoints=nn.InMemoryStorage()),
        "INVALID_OPTION",
        "InMemoryStorage",
        "Pass True",
    ),
    # Configurations
    "AgentConfig(name)": (lambda: nn.AgentConfig("desk"), "INVALID_ARGUMENTS", "'desk'", "name, step"),  # type: ignore[call-arg,misc]
    "AgentConfig(model=)": (lambda: config(model="m"), "INVALID_AGENT_CONFIG", "'m'", "step=react(model="),
    "AgentConfig(instructions=)": (
        lambda: config(instructions="Be kind."),
        "INVALID_AGENT_CONFIG",
        "Be kind.",
        "react(model=..., instructions=",
    ),
    "AgentConfig(storage=)": (
        lambda: config(storage="x"),
        "INVALID_AGENT_CONFIG",
        "storage",
        "AgentHarness(config, storage=",
    ),
    "AgentConfig(projecton=)": (lambda: config(projecton=1), "INVALID_AGENT_CONFIG", "projecton", "'projection'"),
    "step=[...]": (lambda: config(step=[nn.react(model="m")]), "INVALID_AGENT_CONFIG", "LoopStep", "step=react("),
    "step=function": (lambda: config(step=search), "INVALID_AGENT_CONFIG", "search", "step=react("),
    "projection=4000": (lambda: config(projection=4000), "INVALID_AGENT_CONFIG", "4000", "token_budget="),
    "ProjectionPolicy(4000)": (lambda: nn.ProjectionPolicy(4000), "INVALID_ARGUMENTS", "4000", "token_budget="),  # type: ignore[misc]
    "limits=5": (lambda: config(limits=5), "INVALID_AGENT_CONFIG", "5", "Limits(max_steps=5)"),
    "a misspelt limit": (lambda: config(limits={"max_step": 5}), "INVALID_LIMITS", "max_step", "'max_steps'"),
    "a misspelt sampling parameter": (
        lambda: nn.ModelParams(temprature=1),  # type: ignore[call-arg]
        "INVALID_MODEL_PARAMS",
        "temprature",
        "'temperature'",
    ),
    "load_config(path)": (lambda: nn.load_config("agent.json"), "INVALID_AGENT_CONFIG", "agent.json", "read_text()"),
    "dump_config(harness)": (
        lambda: nn.dump_config(harness()),
        "INVALID_AGENT_CONFIG",
        "AgentHarness",
        "harness.config",
    ),  # type: ignore[arg-type]
    # Layers
    "memory=[factory]": (
        lambda: config(memory=[nn.working_memory]),
        "INVALID_LAYER",
        "working_memory",
        "working_memory()",
    ),
    "memory=[regulator]": (
        lambda: config(memory=[nn.Regulator.for_user("ann")]),
        "INVALID_LAYER",
        "Regulator",
        "nn.regulation(regulator)",
    ),
    "memory=[hook]": (lambda: config(memory=[search]), "INVALID_LAYER", "search", "MemoryHooks(recall=search)"),
    "memory={...}": (lambda: config(memory={"notes": 1}), "INVALID_LAYER", "'notes'", "list of layers"),
    "memory=text": (lambda: config(memory="notes"), "INVALID_LAYER", "'notes'", "list of layers"),
    "memory=number": (lambda: config(memory=5), "INVALID_LAYER", "5", "list of layers"),
    "MemoryHooks(recal=)": (lambda: MemoryHooks(recal=search), "INVALID_ARGUMENTS", "recal", "'recall'"),  # type: ignore[call-arg]
    "MemoryLayer(recall=)": (
        lambda: MemoryLayer(id="x", slot=1, scope="thread", recall=search),  # type: ignore[call-arg]
        "INVALID_ARGUMENTS",
        "recall",
        "hooks=MemoryHooks(recall=...)",
    ),
    **{
        f"MemoryLayer({option}=text)": (
            lambda option=option: MemoryLayer(id="x", slot=1, scope="thread", **{option: "no"}),
            "INVALID_LAYER_OPTION",
            "'no'",
            option,
        )
        for option in ("enforces", "foreign", "placement", "recall_mode")
    },
    "a hook without parameters": (lambda: MemoryHooks(recall=lambda: "x"), "INVALID_HOOK", "recall", "def recall(p)"),  # type: ignore[arg-type,misc]
    "a scope of another library": (lambda: nn.working_memory(scope="user"), "UNKNOWN_SCOPE", "'user'", "resource"),  # type: ignore[arg-type]
    "working_memory(name)": (lambda: nn.working_memory("notes"), "INVALID_ARGUMENTS", "'notes'", "id, scope"),  # type: ignore[misc]
    "working_memory(schema=json)": (
        lambda: nn.working_memory(schema={"type": "object"}),  # type: ignore[arg-type]
        "INVALID_LAYER_OPTION",
        "'object'",
        "BaseModel",
    ),
    "semantic_recall(top_k=text)": (
        lambda: nn.semantic_recall(top_k="3"),  # type: ignore[arg-type]
        "INVALID_LAYER_OPTION",
        "'3'",
        "top_k=3",
    ),
    "regulation(name)": (lambda: nn.regulation("ann"), "INVALID_REGULATION", "'ann'", "Regulator.for_user"),  # type: ignore[arg-type]
    # Rules
    'at_most("search", 3)': (
        lambda: nn.RuleBook().at_most("search", 3),  # type: ignore[arg-type]
        "INVALID_RULE",
        "('search', 3)",
        "at_most(3, 'search')",
    ),
    "at_most(search, 3)": (lambda: nn.RuleBook().at_most(search, 3), "INVALID_RULE", "search", "at_most(3, 'search')"),  # type: ignore[arg-type]
    "at_most(3)": (lambda: nn.RuleBook().at_most(3), "INVALID_ARGUMENTS", "3", "at_most(3, 'search')"),  # type: ignore[call-arg]
    'never("pay")': (lambda: nn.RuleBook().never("pay"), "INVALID_ARGUMENTS", "'pay'", "at_most(0, "),  # type: ignore[call-arg]
    "when(function)": (lambda: nn.RuleBook().when(search, id="r"), "INVALID_RULE", "search", "rules.rule(f, on="),  # type: ignore[arg-type]
    "when(deny=)": (
        lambda: nn.RuleBook().when("true", id="r", deny="No."),  # type: ignore[call-arg]
        "INVALID_ARGUMENTS",
        "deny",
        "action='deny', guidance=",
    ),
    "when(condition, name)": (
        lambda: nn.RuleBook().when("true", "r"),  # type: ignore[misc,call-arg]
        "INVALID_ARGUMENTS",
        "'r'",
        "id='no-pay'",
    ),
    "rule(function)": (lambda: nn.RuleBook().rule(search), "INVALID_ARGUMENTS", "search", "on='before_tool_call'"),  # type: ignore[call-overload]
    "RuleBook([function])": (lambda: nn.RuleBook([search]), "INVALID_RULE", "search", "rules.rule(f, on="),  # type: ignore[list-item]
    "steering(text)": (lambda: nn.steering("No refunds."), "INVALID_RULE", "'No refunds.'", "rules.when("),  # type: ignore[arg-type]
    # Steps and tools
    "step.run(function)": (
        lambda: nn.step.run(search),
        "INVALID_ARGUMENTS",
        "search",
        "step.run('clean', lambda value, ctx",
    ),  # type: ignore[call-arg,arg-type]
    'step.run("clean")': (
        lambda: nn.step.run("clean"),
        "INVALID_ARGUMENTS",
        "'clean'",
        "step.run('clean', lambda value, ctx",
    ),  # type: ignore[call-arg]
    "a function of one parameter": (
        lambda: nn.step.run("clean", lambda value: value),
        "INVALID_STEP",
        "(value)",
        "lambda value, ctx",
    ),
    "step(name)": (lambda: nn.step("ask"), "INVALID_ARGUMENTS", "'ask'", "step.llm("),
    "step.llm()": (lambda: nn.step.llm(model="m"), "INVALID_ARGUMENTS", "id", "step.llm('ask'"),  # type: ignore[call-arg]
    "loop(until=3)": (lambda: nn.loop("l", nn.react(model="m"), until=3), "INVALID_STEP", "3", "until.max_steps(3)"),  # type: ignore[arg-type]
    "loop(until=method)": (
        lambda: nn.loop("l", nn.react(model="m"), until=nn.until.no_tool_calls),  # type: ignore[arg-type]
        "INVALID_STEP",
        "no_tool_calls",
        "until.no_tool_calls()",
    ),
    "spawn(config)": (lambda: nn.spawn("c", config()), "INVALID_STEP", "AgentConfig", "config.step"),  # type: ignore[arg-type]
    "fork([...])": (lambda: nn.fork([nn.react(model="m")]), "INVALID_ARGUMENTS", "LoopStep", "mode='all'"),  # type: ignore[call-arg,arg-type]
    "tool(name)": (lambda: nn.tool("search"), "INVALID_TOOL", "'search'", "tools=[search]"),  # type: ignore[call-overload]
    "tool(inline='yes')": (lambda: nn.tool(abs, name="abs", inline="yes"), "INVALID_TOOL", "'yes'", "`inline` must"),  # type: ignore[call-overload]
    "tool(needs_approval=0)": (
        lambda: nn.tool(abs, name="abs", needs_approval=0),  # type: ignore[call-overload]
        "INVALID_TOOL",
        "0",
        "`needs_approval` must",
    ),
    # Running
    "execute(text, thread)": (lambda: harness().execute("Hi", "ann"), "INVALID_ARGUMENTS", "'ann'", "thread_id='ann'"),  # type: ignore[misc]
    "execute(thread=)": (
        lambda: harness().execute("Hi", thread="ann"),
        "INVALID_ARGUMENTS",
        "thread",
        "thread_id='ann'",
    ),  # type: ignore[call-arg]
    "execute(None)": (lambda: nn.run_sync(harness().execute(None)), "INVALID_OPTION", "None", "execute('Hi')"),  # type: ignore[arg-type]
    "execute(limits=5)": (lambda: nn.run_sync(harness().execute("Hi", limits=5)), "INVALID_OPTION", "5", "max_steps"),  # type: ignore[arg-type]
    "execute(state=[...])": (
        lambda: nn.run_sync(harness().execute("Hi", state=[1])),
        "INVALID_OPTION",
        "[1]",
        "state={",
    ),  # type: ignore[arg-type]
    "harness.run(text)": (lambda: harness().run("Hi"), "INVALID_ARGUMENTS", "'Hi'", "harness.execute('Hi')"),  # type: ignore[call-arg,arg-type]
    "run_sync(function)": (
        lambda: nn.run_sync(harness().execute),
        "INVALID_ARGUMENTS",
        "execute",
        "run_sync(harness.execute(",
    ),  # type: ignore[arg-type]
    "run_sync(reply)": (
        lambda: nn.run_sync(nn.run_sync(harness().execute("Hi"))),  # type: ignore[arg-type]
        "INVALID_ARGUMENTS",
        "AgentReply",
        "the result already",
    ),
    "async for in stream": (
        lambda: nn.run_sync(read(harness().stream("Hi"))),
        "INVALID_ARGUMENTS",
        "TurnStream",
        "async for piece in stream.text",
    ),
    "for in stream": (lambda: list(harness().stream("Hi")), "INVALID_ARGUMENTS", "TurnStream", "stream.text"),
    "await stream": (
        lambda: nn.run_sync(harness().stream("Hi")),
        "INVALID_ARGUMENTS",
        "TurnStream",
        "await stream.reply",
    ),
    "async for in execute": (
        lambda: nn.run_sync(read(harness().execute("Hi"))),
        "INVALID_ARGUMENTS",
        "a turn that has not begun",
        "harness.stream('Hi').text",
    ),
    "the log of a misspelt thread": (lambda: talked().log("anna"), "UNKNOWN_THREAD", "'anna'", "Did you mean 'ann'?"),
    "the log of no thread": (lambda: talked().log(), "UNKNOWN_THREAD", "'default'", "Threads here are 'ann'"),
    "feedback on a misspelt thread": (
        lambda: nn.run_sync(talked().feedback("anna", quality=0.5)),
        "UNKNOWN_THREAD",
        "'anna'",
        "Did you mean 'ann'?",
    ),
    "correction of a misspelt thread": (
        lambda: nn.run_sync(talked().correct("anna", "No.")),
        "UNKNOWN_THREAD",
        "'anna'",
        "Did you mean 'ann'?",
    ),
    "reset of a misspelt thread": (
        lambda: nn.run_sync(talked().reset_task("anna")),
        "UNKNOWN_THREAD",
        "'anna'",
        "Did you mean 'ann'?",
    ),
    "feedback(0.5)": (lambda: harness().feedback(0.5), "INVALID_ARGUMENTS", "0.5", "quality=0.5"),  # type: ignore[call-arg,arg-type]
    "correct(text)": (lambda: harness().correct("No."), "INVALID_ARGUMENTS", "'No.'", "correct('default', "),  # type: ignore[call-arg]
    "seed(items)": (lambda: harness().seed([]), "INVALID_ARGUMENTS", "[]", "seed('ann', items)"),  # type: ignore[call-arg,arg-type]
    "subscribe(function)": (
        lambda: harness().subscribe(print),
        "INVALID_OPTION",
        "print",
        "nn.record(harness).subscribe",
    ),  # type: ignore[arg-type]
    # Runs, views, storage, models
    "record(config)": (lambda: nn.record(config()), "NOT_RECORDABLE", "AgentConfig", "AgentHarness"),  # type: ignore[arg-type]
    "load_run(harness)": (lambda: nn.load_run(harness()), "INVALID_OPTION", "AgentHarness", "nn.record(harness)"),  # type: ignore[arg-type]
    "a view of a harness": (lambda: widgets.Ledger(harness()), "NOT_A_RUN", "AgentHarness", "nn.record(harness)"),
    "an editor of a list": (lambda: widgets.RuleEditor([]), "NOT_A_RULE_BOOK", "[]", "book"),
    "to_frame(tool)": (lambda: nn.record(harness()).to_frame("tool"), "UNKNOWN_TABLE", "'tool'", "tools"),  # type: ignore[arg-type]
    "to_frame()": (lambda: nn.record(harness()).to_frame(), "INVALID_ARGUMENTS", "name", "to_frame('turns')"),  # type: ignore[call-arg]
    "AgentConfig(system=)": (lambda: config(system="Be kind."), "INVALID_AGENT_CONFIG", "Be kind.", "instructions="),
    "memory=[RuleBook]": (lambda: config(memory=[nn.RuleBook]), "INVALID_LAYER", "RuleBook", "RuleBook(...)"),
    "replay(run, rules)": (
        lambda: lab.replay(nn.record(harness()), nn.RuleBook()),  # type: ignore[misc]
        "INVALID_ARGUMENTS",
        "RuleBook",
        "lab.replay(run, rules=rules)",
    ),
    "replay(path)": (lambda: lab.replay("a.jsonl"), "INVALID_RUN", "'a.jsonl'", "nn.load_run(path)"),  # type: ignore[arg-type]
    "evaluate(rules, folder)": (
        lambda: lab.evaluate(nn.RuleBook(), "runs/"),  # type: ignore[arg-type]
        "INVALID_RUN",
        "'runs/'",
        "nn.open_runs(folder)",
    ),
    "SQLiteStorage()": (lambda: nn.SQLiteStorage(), "INVALID_ARGUMENTS", "path", "SQLiteStorage('desk.db')"),  # type: ignore[call-arg]
    "SQLiteStorage(folder)": (lambda: nn.SQLiteStorage(Path("/")), "INVALID_STORAGE_PATH", "/", "file inside it"),
    "OpenAIModel(apikey=)": (lambda: nn.OpenAIModel("m", apikey="x"), "INVALID_ARGUMENTS", "apikey", "'api_key'"),  # type: ignore[call-arg]
    "ScriptedModel(text)": (lambda: nn.ScriptedModel("Hi"), "INVALID_SCRIPT", "'Hi'", "list of replies"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_what_to_write_instead(name: str) -> None:
    make, code, given, advice = MISTAKES[name]

    with pytest.raises(NoeticConfigError) as caught:
        make()

    text = str(caught.value)
    assert caught.value.code == code
    assert given in text
    assert advice in text
    assert len(text) < 700


@pytest.mark.parametrize(
    ("hook", "name", "words"), [("recall", "messages", "Write p.log"), ("store", "query", "log, new_items")]
)
def test_a_field_that_a_hook_does_not_get_is_answered_with_those_it_gets(hook: str, name: str, words: str) -> None:
    layer = MemoryLayer(
        id="notes", slot=120, scope="thread", budget=50, hooks=MemoryHooks(**{hook: lambda p: getattr(p, name)})
    )

    reply = nn.run_sync(nn.AgentHarness(config(memory=[layer]), model=client()).execute("Hi"))

    assert [words in warning.text for warning in reply.warnings] == [True]


def test_arguments_that_do_not_fit_are_a_type_error_as_well() -> None:
    with pytest.raises(TypeError):
        nn.react("m")  # type: ignore[misc]


def test_an_error_from_inside_of_a_call_is_not_taken_for_one_of_its_arguments() -> None:
    def tokenizer(text: str) -> int:
        return len(None)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="NoneType") as caught:
        harness(tokenizer=tokenizer)

    assert not isinstance(caught.value, NoeticConfigError)


def test_a_single_layer_needs_no_list() -> None:
    assert [layer.id for layer in config(memory=nn.working_memory()).memory] == ["working-memory"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("invoke", "harness.execute"), ("chat", "run_sync"), ("excute", "'execute'"), ("colour", "no attribute 'colour'")],
)
def test_a_method_of_another_library_leads_to_that_of_this_one(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        getattr(harness(), name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Harness", "AgentHarness"),
        ("Agent", "AgentConfig"),
        ("Rulebook", "RuleBook"),
        ("semantic_recal", "semantic_recall"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"Did you mean .*{meant}"):
        getattr(nn, name)


def test_a_field_that_a_reply_has_not_is_answered_with_those_it_has() -> None:
    with pytest.raises(AttributeError, match=r"no 'content'\. Its fields are text, items"):
        nn.run_sync(harness().execute("Hi")).content  # type: ignore[attr-defined]


# -- execute without await -----------------------------------------------------------------------------------------------


def test_a_turn_that_is_not_awaited_says_how_to() -> None:
    turn = harness().execute("Hi")

    assert "await harness.execute(...)" in repr(turn)
    assert "nn.run_sync(harness.execute(...))" in repr(turn)
    with pytest.raises(AttributeError, match=r"has no 'text': write .*run_sync"):
        turn.text  # type: ignore[attr-defined]
    turn.close()


def test_a_turn_that_is_never_awaited_warns_once_and_sends_nothing() -> None:
    made = harness()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made.execute("Hi")  # type: ignore[unused-coroutine]
        gc.collect()

    assert [warning.category for warning in caught] == [RuntimeWarning]
    assert "nn.run_sync(harness.execute(...))" in str(caught[0].message)
    assert made.threads == ()


async def test_a_turn_is_a_coroutine_wherever_one_is_wanted() -> None:
    import asyncio
    import inspect

    made = harness(model=nn.ScriptedModel(lambda request: "Hello."))

    awaited = await made.execute("Hi")
    task = await asyncio.create_task(made.execute("Hi"))
    gathered = await asyncio.gather(made.execute("Hi"), made.execute("Hi", thread_id="b"))
    waited = await asyncio.wait_for(made.execute("Hi"), 5)
    async with asyncio.TaskGroup() as group:
        in_group = group.create_task(made.execute("Hi"))

    replies = [awaited, task, *gathered, waited, in_group.result()]
    assert [reply.text for reply in replies] == ["Hello."] * 6
    turn = made.execute("Hi")
    assert asyncio.iscoroutine(turn)
    assert inspect.isawaitable(turn)
    turn.close()


async def test_a_turn_can_be_cancelled_as_any_task() -> None:
    import asyncio

    made = harness(model=nn.ScriptedModel([nn.Fault("hang"), "Hello."]))
    task = asyncio.create_task(made.execute("Hi"))
    while not made.executions:
        await asyncio.sleep(0)

    task.cancel()

    with pytest.raises((asyncio.CancelledError, nn.NoeticError)):
        await task
    assert (await made.execute("Hi")).text == "Hello."


def test_a_turn_that_was_closed_cannot_be_awaited() -> None:
    turn = harness().execute("Hi")
    turn.close()

    with pytest.raises(RuntimeError, match="closed"):
        nn.run_sync(turn)


def test_an_answer_whose_content_is_plain_text_is_read_like_one_of_parts() -> None:
    class Plain:
        async def complete(self, request: nn.ModelRequest) -> nn.ModelResponse:
            return nn.ModelResponse((nn.parse_item({"type": "message", "role": "assistant", "content": "Hello."}),))

    desk = nn.AgentHarness(config(), model=Plain())

    assert nn.run_sync(desk.execute("Hi", thread_id="ann")).text == "Hello."
    assert desk.log("ann")[-1]["content"][0]["text"] == "Hello."


def answers(content: Any) -> nn.AgentHarness:
    class Client:
        async def complete(self, request: nn.ModelRequest) -> nn.ModelResponse:
            return nn.ModelResponse((nn.Item(type="message", role="assistant", content=content),))

    rules = nn.RuleBook()
    rules.when('response.text.contains("forbidden")', id="words", guidance="Not that word.")
    return nn.AgentHarness(config(memory=[rules]), model=Client())


class Text(str):
    """A text of a client's own class."""


@pytest.mark.parametrize(
    "content",
    [
        "forbidden",
        Text("forbidden"),
        [{"type": "text", "text": "forbidden"}],
        ({"type": "output_text", "text": "forbidden"},),
    ],
    ids=["text", "text-of-a-class", "chat-part", "part"],
)
def test_rules_read_an_answer_in_whatever_form_its_text_comes(content: Any) -> None:
    with pytest.raises(nn.NoeticError) as denied:
        nn.run_sync(answers(content).execute("Hi", thread_id="ann"))
    assert "Not that word." in str(denied.value)


@pytest.mark.parametrize(
    "content",
    [["forbidden"], 5, {"type": "output_text", "text": "forbidden"}, [{"type": "output_text", "text": 5}]],
    ids=["texts", "number", "part-alone", "number-in-a-part"],
)
def test_an_answer_whose_text_would_be_lost_is_refused(content: Any) -> None:
    with pytest.raises(nn.NoeticError) as refused:
        nn.run_sync(answers(content).execute("Hi", thread_id="ann"))
    assert refused.value.kind == "llm_failed"
    assert "message" in str(refused.value) or "part" in str(refused.value)
