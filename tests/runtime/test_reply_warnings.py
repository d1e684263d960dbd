"""Problems that do not end a turn are in the reply, in the run, and in its tables."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import noetic_nb as nn
import noetic_nb.layers
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import WarningRaised
from noetic_nb.items import item_text
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.runtime import WARNING_CODES


def agent(
    *memory: Any, replies: Any = ("Hello.", "Hello again."), storage: Any = None, **config: Any
) -> nn.AgentHarness:
    made = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=list(memory), **config)
    return nn.AgentHarness(made, model=nn.ScriptedModel(list(replies)), storage=storage, diagnostic=lambda *_: None)


def failing(*_: Any) -> Any:
    raise KeyError("gone")


def layer(**hooks: Any) -> MemoryLayer:
    return MemoryLayer(id="notes", slot=100, scope="thread", hooks=MemoryHooks(**hooks))


class FullDisk(nn.InMemoryStorage):
    async def set(self, key: str, value: Any) -> None:
        raise OSError("No space left on device")


def stored(p: Any) -> dict[str, Any]:
    return {"state": {"n": 1}}


def much(p: Any) -> str:
    return "word " * 900


def large(p: Any) -> dict[str, Any]:
    return {"items": [{"type": "message", "role": "developer", "content": "word " * 400}], "token_count": 1}


CASES: dict[str, tuple[Callable[[], nn.AgentHarness], str, str | None]] = {
    "store": (lambda: agent(layer(store=failing)), "layer_failed", "notes"),
    "append": (lambda: agent(layer(on_item_append=failing)), "layer_failed", "notes"),
    "complete": (lambda: agent(layer(on_complete=failing)), "layer_failed", "notes"),
    "dispose": (lambda: agent(layer(dispose=failing)), "layer_failed", "notes"),
    "recall": (lambda: agent(layer(recall=failing)), "recall_failed", "notes"),
    "recall of another type": (lambda: agent(layer(recall=lambda p: 42)), "recall_failed", "notes"),
    "init": (
        lambda: agent(
            MemoryLayer(
                id="notes",
                slot=100,
                scope="thread",
                on_init_error="disable",
                hooks=MemoryHooks(init=failing, recall=lambda p: "x"),
            )
        ),
        "layer_failed",
        "notes",
    ),
    "init without a state": (
        lambda: agent(layer(init=lambda p: None, recall=lambda p: "never")),
        "layer_idle",
        "notes",
    ),
    "too much": (lambda: agent(layer(recall=lambda p: "word " * 90_000)), "recall_cut", "notes"),
    "miscounted": (lambda: agent(layer(recall=large)), "tokens_miscounted", "notes"),
    "disk full": (lambda: agent(layer(store=stored), storage=FullDisk()), "state_not_saved", "notes"),
    "rule": (lambda: agent(layer(after_model_call=failing), on_steering_error="allow"), "rule_failed", "notes"),
    "grader that answers text": (
        lambda: agent(nn.regulation(nn.Regulator.for_user("ann"), grader=lambda reply: "good")),
        "layer_failed",
        "regulation",
    ),
    "grader that answers a number as text": (
        lambda: agent(nn.regulation(nn.Regulator.for_user("ann"), grader=lambda reply: "0.1")),
        "layer_failed",
        "regulation",
    ),
    "budget": (
        lambda: agent(projection=nn.ProjectionPolicy(token_budget=20, response_reserve=5)),
        "over_budget",
        None,
    ),
    "redacted answer": (lambda: agent(replies=["Your key is [redacted]."]), "text_redacted", None),
    "redacted recall": (lambda: agent(layer(recall=lambda p: "key: [redacted 2]")), "text_redacted", "notes"),
}


@pytest.mark.parametrize("name", CASES)
async def test_what_goes_wrong_is_in_the_reply_the_run_and_its_table(name: str) -> None:
    make, code, layer_id = CASES[name]
    harness = make()
    run = nn.record(harness)

    reply = await harness.execute("Where is order A17?")

    assert [(w.code, w.layer_id, w.turn) for w in reply.warnings] == [(code, layer_id, 1)]
    assert code in WARNING_CODES
    (event,) = run.select(WarningRaised)
    assert (event.code, event.text, event.layer_id) == reply.warnings[0][:3]
    table = run.to_frame("warnings")
    assert list(table[["code", "text", "layer_id", "turn"]].itertuples(index=False, name=None)) == [
        (code, reply.warnings[0].text, layer_id, 1)
    ]
    assert f"{code}: {reply.warnings[0].text}" in repr(reply)
    assert [warning.code for warning in run.turns[0].warnings] == [code]
    assert f"success; {code}" in run._repr_html_()


async def test_an_embedder_that_fails_when_it_is_used_is_in_the_reply() -> None:
    def embed(texts: list[str]) -> Any:
        if "one" in texts:
            return [[1.0, 0.0]] * len(texts)
        raise OSError("no route to host")

    reply = await agent(nn.semantic_recall(embed)).execute("Hi")

    assert [(w.code, w.layer_id) for w in reply.warnings] == [("layer_failed", "semantic-recall")]
    assert "no route to host" in reply.warnings[0].text


async def test_messages_that_another_embedder_stored_are_not_silently_passed_over() -> None:
    store = nn.InMemoryStorage()
    await agent(nn.semantic_recall(vectors), storage=store).execute("order A17", resource_id="ann")
    later = agent(nn.semantic_recall(), storage=store)

    reply = await later.execute("A17?", resource_id="ann", thread_id="t2")

    assert [(w.code, w.layer_id) for w in reply.warnings] == [("recall_failed", "semantic-recall")]
    assert reply.warnings[0].text.startswith("2 of 2 stored messages are not compared by nearness")


async def test_a_turn_without_trouble_has_no_warnings() -> None:
    harness = agent(nn.working_memory(), nn.semantic_recall(), layer(init=stored, recall=lambda p: "n = 1"))
    run = nn.record(harness)

    reply = await harness.execute("Hi")

    assert (reply.warnings, run.select(WarningRaised)) == ((), ())
    assert "warning" not in repr(reply)


async def test_warnings_belong_to_their_turn_and_are_said_once_in_it() -> None:
    look = nn.tool(lambda: "nothing", name="look", description="Look.")
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[look]), memory=[layer(recall=failing)])
    script = [nn.CallTool("look"), nn.CallTool("look"), "One.", "Two."]
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(script), diagnostic=lambda *_: None)

    one, two = await harness.execute("a"), await harness.execute("b")

    assert [(w.code, w.turn) for w in one.warnings + two.warnings] == [("recall_failed", 1), ("recall_failed", 2)]


async def test_the_layers_of_a_child_warn_in_the_reply_of_its_parent() -> None:
    child = nn.spawn("child", nn.react(model="m"), memory=[layer(recall=failing)])
    harness = nn.AgentHarness(
        nn.AgentConfig(name="desk", step=child), model=nn.ScriptedModel(["Done."]), diagnostic=lambda *_: None
    )

    reply = await harness.execute("go")

    assert [(w.code, w.layer_id) for w in reply.warnings] == [("recall_failed", "notes")]


async def test_a_secret_in_an_error_is_not_in_the_warning() -> None:
    def store(p: Any) -> Any:
        raise RuntimeError("401 for api_key=sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD")

    reply = await agent(layer(store=store)).execute("Hi")

    assert "sk-abc" not in reply.warnings[0].text
    assert "sk-abc" not in repr(reply)


async def test_a_summary_that_cannot_be_made_is_in_the_reply() -> None:
    policy = nn.ProjectionPolicy(token_budget=260, response_reserve=10, overflow="summarize", overflow_model="small")
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), projection=policy)
    model = {"m": nn.ScriptedModel(["word " * 40] * 9), "small": nn.ScriptedModel([nn.Fault("server_error")] * 9)}
    harness = nn.AgentHarness(config, model=model, diagnostic=lambda *_: None)
    replies = [await harness.execute("word " * 40) for _ in range(5)]

    assert "summary_failed" in {w.code for reply in replies for w in reply.warnings}


async def test_an_approval_that_raises_is_in_the_reply() -> None:
    pay = nn.tool(lambda: "paid", name="pay", description="Pay.", needs_approval=True)
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[pay]))
    model = nn.ScriptedModel([nn.CallTool("pay"), "Denied."])
    harness = nn.AgentHarness(config, model=model, approve=failing, diagnostic=lambda *_: None)

    reply = await harness.execute("Pay")

    assert [w.code for w in reply.warnings] == ["approval_failed"]


async def test_a_subscriber_that_is_taken_off_is_in_the_reply() -> None:
    class Sink:
        def emit(self, event: Any) -> None:
            raise OSError("disk full")

    harness = agent()
    harness.subscribe(Sink())

    reply = await harness.execute("Hi")

    assert [(w.code, w.layer_id) for w in reply.warnings] == [("events_lost", None)]
    assert "Sink" in reply.warnings[0].text


async def test_a_conversation_begun_from_a_redacted_file_is_known_for_it(tmp_path: Path) -> None:
    first = agent(replies=["The key is sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD, keep it."])
    run = nn.record(first)
    await first.execute("Which key?")
    run.save(tmp_path / "run.json")
    items = [item for event in nn.load_run(tmp_path / "run.json").events for item in getattr(event, "items", ())]
    later = agent()
    later.seed("default", [item for item in items if item["type"] == "message"][:2])

    one, two = await later.execute("And now?"), await later.execute("And now?")

    assert ([w.code for w in one.warnings], two.warnings) == (["text_redacted"], ())


async def test_a_grader_that_fails_takes_no_stop_back() -> None:
    template = nn.Regulator.for_user("ann").with_cost_cap(1_000)
    grades = iter([0.2, 0.2, 0.2, "good"])
    layer = nn.regulation(template, grader=lambda reply: next(grades))
    harness = agent(layer, replies=["Yes.", "No.", "Yes.", "word " * 2_000])
    for _ in range(3):
        await harness.execute("Hi")

    reply = await harness.execute("Hi")

    assert reply.stopped is not None
    assert reply.stopped["reason"]["kind"].startswith("cost_cap")
    assert [w.layer_id for w in reply.warnings] == ["regulation"]


async def test_no_more_than_a_hundred_warnings_are_in_a_reply() -> None:
    count = iter(range(1000))

    def recall(p: Any) -> Any:
        raise KeyError(next(count))

    look = nn.tool(lambda: "nothing", name="look", description="Look.")
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="m", tools=[look], max_steps=200), memory=[layer(recall=recall)]
    )
    harness = nn.AgentHarness(
        config, model=nn.ScriptedModel([*[nn.CallTool("look")] * 120, "Done."]), diagnostic=lambda *_: None
    )
    run = nn.record(harness)

    reply = await harness.execute("go")

    assert (len(reply.warnings), len(run.select(WarningRaised))) == (100, 121)


def test_every_code_is_on_the_page_of_behaviour() -> None:
    page = (Path(__file__).parents[2] / "docs/behaviour/runtime.md").read_text()
    assert [code for code in WARNING_CODES if f"| `{code}` |" not in page] == []


# -- embedders ----------------------------------------------------------------------------------------------------------


def vectors(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


async def async_vectors(texts: list[str]) -> list[list[float]]:
    return vectors(texts)


async def slow_vectors(texts: list[str]) -> list[list[float]]:
    await asyncio.sleep(0)
    return vectors(texts)


class AsyncEmbedder:
    async def embed(self, texts: list[str]) -> list[list[float]]:
        return vectors(texts)


def array_vectors(texts: list[str]) -> Any:
    import numpy

    return numpy.array(vectors(texts), dtype="float32")


@pytest.mark.parametrize("embedder", [vectors, async_vectors, slow_vectors, AsyncEmbedder(), array_vectors])
async def test_an_embedder_is_a_function_or_an_object_sync_or_async(embedder: Any) -> None:
    model = nn.ScriptedModel(["Hello.", "It is."])
    layers = [nn.semantic_recall(embedder, skip_recent=0, min_score=-1)]
    harness = nn.AgentHarness(nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=layers), model=model)

    replies = [await harness.execute("order A17 is packed"), await harness.execute("A17?")]

    assert [reply.warnings for reply in replies] == [(), ()]
    assert "user: order A17 is packed" in "".join(map(item_text, model.requests[1].items[:1]))


async def async_text(texts: list[str]) -> Any:
    return "vectors"


WRONG_EMBEDDERS: dict[str, tuple[Any, str]] = {
    "an object": (object(), "no `embed`"),
    "a text": ("text-embedding-3", "no `embed`"),
    "a class": (nn.layers.HashingEmbedder, r"HashingEmbedder\(\.\.\.\)"),
    "of one text": (lambda text: [float(ord(c)) for c in text.lower()], "fails for two words"),
    "of two arguments": (lambda texts, model: [[1.0]] * len(texts), "parameters"),
    "text": (lambda texts: "vectors", "not str"),
    "nothing": (lambda texts: None, "not NoneType"),
    "one vector": (lambda texts: [1.0, 2.0], "one of them is float"),
    "too few": (lambda texts: [[1.0]], "returned 1"),
    "other lengths": (lambda texts: [[1.0] * len(text) for text in ("a", "bb")], "1, 2"),
    "empty": (lambda texts: [[] for _ in texts], "theirs are 0"),
    "not finite": (lambda texts: [[math.nan] for _ in texts], "not finite"),
    "words": (lambda texts: [["one"] for _ in texts], "something else"),
    "async text": (async_text, "not str"),
}


@pytest.mark.parametrize("name", WRONG_EMBEDDERS)
@pytest.mark.parametrize("make", [nn.semantic_recall, nn.procedural_memory, lambda e: nn.episodic_memory(embedder=e)])
async def test_what_is_no_embedder_is_refused_when_it_is_given(name: str, make: Any) -> None:
    embedder, words = WRONG_EMBEDDERS[name]

    with pytest.raises(NoeticConfigError, match=words) as caught:
        make(embedder)

    assert caught.value.code == "INVALID_LAYER_OPTION"
    assert "list of texts" in str(caught.value) or name == "a class"


def test_an_embedder_that_cannot_be_reached_now_is_taken() -> None:
    def offline(texts: list[str]) -> Any:
        raise OSError("no route to host")

    async def needs_a_loop(texts: list[str]) -> Any:
        await asyncio.sleep(0.01)
        return vectors(texts)

    assert [nn.semantic_recall(e).id for e in (offline, needs_a_loop)] == ["semantic-recall"] * 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.observational_memory("observe"), "`observer` is a function"),
        (lambda: nn.observational_memory(lambda: ["x"]), "`observer` is called with"),
        (lambda: nn.observational_memory(model=nn.ScriptedModel([])), "name of a model"),
        (lambda: nn.episodic_memory(lambda: ""), "`summarise` is called with"),
        (lambda: nn.episodic_memory(model=nn.ScriptedModel([])), "name of a model"),
        (lambda: nn.entity_memory({"Ann": ["is a person"]}), "`extract` is a function"),
        (lambda: nn.temporal_memory(extract=lambda texts: {}), "`extract` is called with"),
        (lambda: nn.temporal_memory(now="noon"), "`now` is a function"),
        (lambda: nn.static_content(lambda p: "text"), "`content` is called with"),
        (lambda: nn.static_content(42), "`content` is a text, or a function"),
        (lambda: nn.tool_memory("cart", show="items"), "`show` is a function"),
        (lambda: nn.file_reference(scoring_model=nn.ScriptedModel([])), "name of a model"),
        (lambda: nn.regulation(nn.Regulator.for_user("ann"), grader=lambda: 1.0), "`grader` is called with"),
        (lambda: nn.regulation(nn.Regulator.for_user("ann"), grader=0.5), "`grader` is a function"),
    ],
)
def test_functions_are_checked_when_they_are_given(make: Any, words: str) -> None:
    with pytest.raises(NoeticConfigError, match=words):
        make()


async def test_a_share_of_a_budget_is_said_with_one_decimal() -> None:
    crowd = [
        MemoryLayer(
            id=f"notes{n}",
            slot=100 + n,
            scope="thread",
            budget={"min": 0, "max": 70 + n},
            hooks=MemoryHooks(recall=much),
        )
        for n in range(3)
    ]
    harness = agent(*crowd, projection=nn.ProjectionPolicy(token_budget=145, response_reserve=5))

    reply = await harness.execute("Where is order A17?")

    said = [re.search(r"for a budget of (\S+);", w.text) for w in reply.warnings if w.code == "recall_cut"]
    budgets = [found[1] for found in said if found]
    assert budgets == ["27.6", "28", "28.4"]  # 84 tokens between 70, 71 and 72


@pytest.mark.parametrize(("cost", "shown"), [(None, None), (0.0123, "$0.0123"), (0.0000123, "$0.000012")])
async def test_a_model_without_a_price_is_not_shown_as_one_that_costs_nothing(
    cost: float | None, shown: str | None
) -> None:
    async def answer(request: Any) -> nn.ModelResponse:
        said = await nn.ScriptedModel(["Hello."]).complete(request)
        return nn.ModelResponse(items=said.items, usage=nn.Usage(10, 5), cost=cost)

    config = nn.AgentConfig(name="desk", step=nn.react(model="m"))
    harness = nn.AgentHarness(config, model=SimpleNamespace(complete=answer))
    run = nn.record(harness)

    reply = await harness.execute("Hi")

    for text in (repr(reply), reply._repr_html_(), run.turns[0]._repr_html_()):
        assert "$0.0000<" not in text
        assert "$0.0000)" not in text
        assert (shown or "") in text
    assert ("$" in repr(reply)) == (cost is not None)
    assert reply.cost == (cost or 0.0)
