"""Layers are keys of their own handles, whose members editors know; typed_layers.py tests this for type checkers."""

from __future__ import annotations

import inspect
from typing import Any, Protocol, get_args, get_type_hints

import pytest

import noetic_nb as nn
from noetic_nb import layers
from noetic_nb.errors import NoeticConfigError
from noetic_nb.layers import handles
from noetic_nb.memory._layer_functions import LayerData
from tests.memory.stacks import layer
from tests.unit.test_contract_checks import notes_of_each

FIRST: dict[str, tuple[Any, ...]] = {
    "static_content": ("Be kind.",),
    "tool_memory": ("cart",),
    "external_memory": (notes_of_each(),),
}
NAMES = sorted(name for name in layers.__all__ if name.islower() and name != "regulation")


def agent(*memory: nn.MemoryLayer) -> nn.AgentHarness:
    config = nn.AgentConfig(name="a", step=nn.react(model="m"), memory=nn.memory(memory))
    return nn.AgentHarness(config, model=nn.ScriptedModel(["ok"] * 9))


async def test_a_layer_is_looked_up_by_itself_as_by_its_id() -> None:
    notes, cart = nn.working_memory(id="notes"), layers.tool_memory("cart")

    async with agent(notes, cart).execution(thread_id="t1") as ctx:
        await ctx.memory[notes].update(city="Rome")
        await ctx.memory[cart].set(value=[1])

        assert (ctx.memory["notes"].snapshot, ctx.memory[cart].value) == ({"city": "Rome"}, [1])
        assert (notes in ctx.memory, "cart" in ctx.memory, layer("other") in ctx.memory) == (True, True, False)
        assert ctx.memory._ipython_key_completions_() == ["notes", "cart"]


async def test_what_was_collected_is_a_view_of_its_own_layers() -> None:
    notes, cart = nn.working_memory(id="notes"), layers.tool_memory("cart", initial=3)
    mine = nn.memory([notes])

    async with agent(notes, cart).execution(thread_id="t1") as ctx:
        await mine.view(ctx)[notes].update(city="Rome")

        assert mine.view(ctx)["notes"].snapshot == {"city": "Rome"}
        assert (list(mine.view(ctx)), cart in mine.view(ctx)) == (["notes"], False)
        with pytest.raises(NoeticConfigError, match="'notes'") as caught:
            mine.view(ctx)[cart]
        assert caught.value.code == "UNKNOWN_LAYER_REFERENCE"


def handle_of(name: str) -> type:
    [found] = get_args(get_type_hints(inspect.unwrap(getattr(layers, name)))["return"])
    assert isinstance(found, type)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_type_of_a_built_in_layer_lists_what_it_provides(name: str) -> None:
    made = getattr(layers, name)(*FIRST.get(name, ()))
    members = {key: value for key, value in vars(handle_of(name)).items() if not key.startswith("_")}
    provided = made.provides or {}

    assert handle_of(name).__name__ in handles.__all__
    assert set(members) == set(provided)
    for key, declared in provided.items():
        if isinstance(declared, LayerData):
            assert isinstance(members[key], property)
            continue
        assert inspect.iscoroutinefunction(members[key])
        if name == "working_memory":
            continue  # takes whatever the notes hold
        schema = declared.input.json_schema()
        options = dict(list(inspect.signature(members[key]).parameters.items())[1:])
        needed = {option for option, parameter in options.items() if parameter.default is inspect.Parameter.empty}
        assert (set(options), needed) == (set(schema["properties"]), set(schema.get("required", ())))


class Counter(Protocol):
    """Of a layer of one's own."""

    @property
    def total(self) -> int: ...


def test_a_layer_of_ones_own_may_state_what_it_provides() -> None:
    made = nn.MemoryLayer[Counter](id="counter", slot=1, scope="thread", provides={"total": nn.layer_data(len)})

    assert (made.id, type(made)) == ("counter", nn.MemoryLayer)
