"""The position of layers in a request: the order that keeps its beginning stable sends the same items."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import ItemLog, function_call, function_call_output, input_message, item_text
from noetic_nb.lab import replay
from noetic_nb.layers import procedural_memory, semantic_recall, working_memory
from noetic_nb.memory import MemoryHooks, MemoryLayer, ProjectionPolicy
from noetic_nb.memory._hooks.recall import RecallEntry
from noetic_nb.runs._requests.recorded_requests import recorded_request
from noetic_nb.runtime import plan_turn
from noetic_nb.runtime._config.config import dump_config, load_config
from noetic_nb.testing import check_layer

ITEMS = st.one_of(
    st.builds(
        lambda text, role: input_message(text, role),
        st.text("abc ", max_size=80),
        st.sampled_from(["user", "user", "developer", "system"]),
    ),
    st.builds(lambda n: function_call("look", "{}", f"c{n}"), st.integers(0, 3)),
    st.builds(lambda n: function_call_output(f"c{n}", "ok"), st.integers(0, 3)),
)
PLACES = st.sampled_from([None, "prefix", "suffix"])


@given(
    log=st.lists(ITEMS, max_size=14),
    offered=st.lists(st.tuples(PLACES, st.lists(st.text("xyz", min_size=1, max_size=60), max_size=3)), max_size=4),
    budget=st.integers(0, 900),
    window=st.sampled_from([None, 2, 5]),
    projected=st.booleans(),
)
def test_the_same_items_are_sent_whatever_the_order(
    log: list[Any], offered: list[Any], budget: int, window: int | None, projected: bool
) -> None:
    known = ItemLog(log)
    layers = [
        MemoryLayer(id=f"l{at}", slot=at, scope="thread", placement=place) for at, (place, _) in enumerate(offered)
    ]
    recalled = [
        RecallEntry(f"l{at}", tuple([input_message(text, "developer") for text in texts]), 0)
        for at, (_, texts) in enumerate(offered)
    ]
    plans = {}
    for order in ("slot", "cache"):
        policy: Any = {"token_budget": budget, "response_reserve": 0, "window_size": window, "order": order}
        some = known.items[::2] if projected else None
        plans[order] = plan_turn(known, layers, ProjectionPolicy(**policy), recalled, projected=some)

    slot, cache = plans["slot"], plans["cache"]
    assert Counter(map(id, slot.items)) == Counter(map(id, cache.items))
    assert slot._replace(items=(), policy=cache.policy) == cache._replace(items=())
    late = {id(item) for layer_id, item in cache.layer_items if layers[int(layer_id[1:])].placement == "suffix"}
    rest = [id(item) for item in cache.items if id(item) not in late]
    assert rest == [id(item) for item in slot.items if id(item) not in late]
    # Directly before the latest user message, in slot order.
    sent = list(cache.items)
    places = [at for at, item in enumerate(sent) if id(item) in late]
    users = [at for at, item in enumerate(sent) if item.get("role") == "user"]
    end = users[-1] if users else len(sent)
    assert places == list(range(end - len(places), end))
    assert [id(sent[at]) for at in places] == [id(item) for _, item in slot.layer_items if id(item) in late]


def says(name: str, *, slot: int, placement: Any = None) -> MemoryLayer:
    hooks = MemoryHooks(recall=lambda p: f"{name} of turn {p.ctx.turn if name == 'clock' else 1}")
    return MemoryLayer(id=name, slot=slot, scope="thread", placement=placement, hooks=hooks)


def run_of(order: str, model: Any) -> nn.Run:
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m"),
        memory=[says("clock", slot=1, placement="suffix"), says("facts", slot=2)],
        projection={"order": order},
    )
    harness = nn.AgentHarness(config, model=model)
    run = nn.record(harness)
    for text in ("First?", "Second?"):
        nn.run_sync(harness.execute(text))
    return run


def test_a_model_is_sent_what_was_planned_and_the_run_knows_the_order() -> None:
    model = nn.ScriptedModel(["One.", "Two."])

    run = run_of("cache", model)

    asked = [item_text(item) for item in model.requests[-1].items]
    assert asked == ["facts of turn 1", "First?", "One.", "clock of turn 2", "Second?"]
    request = recorded_request(run, 1)
    assert [sent.origin for sent in request.items] == ["layer:facts", "history", "history", "layer:clock", "history"]
    assert [item_text(item) for item in request.replan(order="slot").items][:2] == [
        "clock of turn 2",
        "facts of turn 1",
    ]


def test_a_replay_puts_layers_elsewhere() -> None:
    there = run_of("cache", nn.ScriptedModel(["One.", "Two."]))
    run = run_of("slot", nn.ScriptedModel(["One.", "Two."]))

    again = replay(run, projection={"order": "cache"})

    texts = [[item_text(sent.item or {}) for sent in recorded_request(one, 1).items] for one in (again, there)]
    assert texts[0] == texts[1]
    assert again.caching().shared.sum() == there.caching().shared.sum() > run.caching().shared.sum()


def test_placement_and_order_have_a_form_in_json() -> None:
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m"),
        memory=[working_memory().placed("suffix"), semantic_recall().placed("prefix"), procedural_memory()],
        projection={"order": "cache"},
    )

    data = dump_config(config)
    back = load_config(data)

    assert {layer["kind"]: layer.get("placement") for layer in data["memory"]} == {
        "working_memory": "suffix",
        "semantic_recall": "prefix",
        "procedural_memory": None,
    }
    assert [layer.placement for layer in back.memory] == ["suffix", "prefix", "suffix"]
    assert (back.projection.order, dump_config(back)) == ("cache", data)
    assert "order" not in dump_config(nn.AgentConfig(name="desk", step=nn.react(model="m"))).get("projection", {})


@pytest.mark.parametrize(
    "make",
    [
        lambda: says("x", slot=1, placement="last"),
        lambda: says("x", slot=1).placed("middle"),  # type: ignore[arg-type]
        lambda: ProjectionPolicy(order="best"),
        lambda: load_config({"name": "d", "memory": [{"kind": "working_memory", "placement": "top"}]}),
    ],
    ids=["layer", "placed", "policy", "json"],
)
def test_another_place_or_order_is_refused(make: Any) -> None:
    with pytest.raises(NoeticConfigError):
        make()


def test_a_layer_in_the_prefix_that_changes_by_itself_is_found() -> None:
    def recall(p: Any) -> str:
        return f"It is {p.ctx.clock.now_ms()} now."

    def layer(placement: Any) -> MemoryLayer:
        return MemoryLayer(id="x", slot=1, scope="thread", placement=placement, hooks=MemoryHooks(recall=recall))

    assert check_layer(layer("prefix")).codes == ("prefix_unstable",)
    assert check_layer(layer("suffix")).codes == check_layer(layer(None)).codes == ()
    assert "prefix_unstable" not in check_layer(working_memory().placed("prefix")).codes
