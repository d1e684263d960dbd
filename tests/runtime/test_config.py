"""An agent's own parameters and items: checked on creation, visible to its steps, preserved in JSON."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

import noetic_nb as nn
from noetic_nb.steps import Registry, fork, spawn, step
from tests.runtime.factories import make_harness, requests_of


class Desk(BaseModel):
    city: str
    limits: dict[str, int] = {}


class Badge(BaseModel):
    type: Literal["my:badge"]
    level: int


def accepts_notes(item: Any) -> Any:
    return item["type"] == "my:note"


BADGE = {"type": "my:badge", "level": 3}
NOTE = {"type": "my:note", "text": "hi"}
BADGE_SCHEMA = {
    "type": "object",
    "properties": {"type": {"const": "my:badge"}, "level": {"type": "integer"}},
    "required": ["level"],
}
REGISTRY = Registry([accepts_notes], schemas={"desk": Desk, "badge": Badge, "adapter": TypeAdapter(Badge)})


def config(**fields: Any) -> nn.AgentConfig:
    return nn.AgentConfig(name="desk", **fields)


def accepts(one: nn.AgentConfig, item: Any) -> bool:
    try:
        one.item_registry.parse(item)
    except nn.NoeticError as exc:
        return exc.kind != "item_schema_mismatch"
    return True


# -- parameters ---------------------------------------------------------------------------------------------------------


async def test_every_function_of_a_step_reads_the_parameters() -> None:
    @nn.tool
    def where(ctx: Any) -> str:
        """Say where."""
        return str(ctx.params["city"])

    reads = step.run("reads", lambda value, ctx: ctx.params["city"])
    ask = step.llm("ask", model="m", instructions=lambda ctx: f"You are in {ctx.params.city}.", tools=[where])
    everywhere = fork("f", mode="all", paths=[reads, spawn("s", reads, memory=[])], merge=lambda found, ctx: found)
    harness = make_harness([nn.CallTool("where"), "ok"], step=ask, params={"city": "Ulm"})

    reply = await harness.execute("go")
    async with harness.execution() as ctx:
        found = await harness.run(everywhere, None, ctx)

    assert [item["output"] for item in reply.items if item["type"] == "function_call_output"] == ["Ulm"]
    assert requests_of(harness)[0].instructions == "You are in Ulm."
    assert found == ["Ulm", "Ulm"]


async def test_parameters_do_not_change() -> None:
    given = {"city": "Ulm", "list": [1, {"a": 1}]}
    harness = make_harness([], params=given)
    given["list"].append(2)  # type: ignore[attr-defined]

    async with harness.execution() as ctx:
        with pytest.raises(TypeError):
            ctx.params["city"] = "Bonn"
        assert ctx.params == {"city": "Ulm", "list": (1, {"a": 1})}
        assert ctx.params is harness.config.params


@pytest.mark.parametrize(
    "schema", [Desk, TypeAdapter(Desk), Desk.model_json_schema()], ids=["model", "adapter", "json"]
)
def test_parameters_are_checked_and_kept_as_they_are(schema: Any) -> None:
    assert config(params={"city": "Ulm"}, params_schema=schema).params == {"city": "Ulm"}


@pytest.mark.parametrize(
    ("params", "schema", "field"),
    [
        ({"city": "Ulm", "limits": {"max": "many"}}, Desk, "params.limits.max"),
        ({"city": "Ulm", "limits": {"max": "many"}}, Desk.model_json_schema(), "params.limits.max"),
        ({}, Desk, "params.city"),
        ({}, {"required": ["city"]}, "params.city"),
        ({"city": "Ulm"}, {"maxProperties": 0}, "params"),
        ([], None, "params"),
        ("city", None, "params"),
        ({"at": object()}, None, "params"),
        ({"n": float("nan")}, None, "params"),
        ({1: "one"}, None, "params"),
    ],
)
def test_parameters_that_do_not_fit_say_where(params: Any, schema: Any, field: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        config(params=params, params_schema=schema)

    assert (caught.value.code, caught.value.field) == ("INVALID_AGENT_PARAMS", field)


def test_the_head_of_a_run_holds_the_parameters() -> None:
    assert make_harness([], params={"city": "Ulm"}).describe()["config"]["params"] == {"city": "Ulm"}
    assert "params" not in make_harness([]).describe()["config"]


# -- items --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [Badge, TypeAdapter(Badge), BADGE_SCHEMA, lambda item: item.get("level") == 3],
    ids=["model", "adapter", "json", "function"],
)
async def test_everyone_may_log_an_item_that_the_agent_declares(schema: Any) -> None:
    seen: list[Any] = []
    hooks = nn.MemoryHooks(
        recall=lambda p: {"items": [BADGE], "token_count": 8},
        on_item_append=lambda p: {"items": p.items},
        store=lambda p: seen.extend(item["type"] for item in p.log),
    )
    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=hooks)

    class Model:
        def __init__(self) -> None:
            self.requests: list[Any] = []

        async def complete(self, request: Any) -> Any:
            self.requests.append(request)
            text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
            return {"items": [BADGE, text]}

    model, failures = Model(), list[Any]()
    harness = make_harness(
        model, item_schemas={"items": [schema]}, memory=[layer], diagnostic=lambda *error: failures.append(error)
    )
    harness.seed("default", [BADGE])

    reply = await harness.execute([BADGE, {"type": "message", "role": "user", "content": []}])

    assert [item["type"] for item in reply.items] == ["my:badge", "message", "my:badge", "message"]
    assert [item["type"] for item in model.requests[0].items].count("my:badge") == 3, "recalled, seeded and said"
    assert seen.count("my:badge") == 3
    assert failures == []
    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute([{"type": "my:badge", "level": "high"}])
    assert (caught.value.kind, caught.value.item_type) == ("item_schema_mismatch", "my:badge")


async def test_a_child_may_log_them_too() -> None:
    def log(value: Any, ctx: Any) -> str:
        return str(ctx.item_log.append(BADGE)["type"])

    harness = make_harness([], item_schemas={"items": [Badge]})
    async with harness.execution() as ctx:
        for memory in (None, []):
            assert await harness.run(spawn("s", step.run("log", log), memory=memory), None, ctx) == "my:badge"


async def test_a_layer_of_a_child_may_recall_them_too() -> None:
    hooks = nn.MemoryHooks(recall=lambda p: {"items": [BADGE], "token_count": 8})
    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=hooks)
    harness = make_harness(["ok"], item_schemas={"items": [Badge]})

    async with harness.execution() as ctx:
        await harness.run(spawn("s", step.llm("ask", model="m"), memory=[layer]), "go", ctx)

    assert requests_of(harness)[0].items[0] == BADGE


async def test_an_agent_that_is_not_strict_takes_what_it_does_not_know() -> None:
    harness = make_harness(["ok"], strict_item_schemas=False)

    reply = await harness.execute([NOTE])

    assert reply.items[0] == NOTE
    with pytest.raises(nn.NoeticError, match="my:note"):
        await make_harness(["ok"]).execute([NOTE])


async def test_layers_add_their_own_to_what_the_agent_declares() -> None:
    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", item_schemas={"items": [accepts_notes]})
    harness = make_harness(["ok"], item_schemas={"items": [Badge]}, memory=[layer])

    assert [item["type"] for item in (await harness.execute([BADGE, NOTE])).items[:2]] == ["my:badge", "my:note"]


async def test_a_turn_with_such_items_goes_on_after_a_crash() -> None:
    storage, left = nn.InMemoryStorage(), nn.InMemoryStorage()

    async def main(value: Any, ctx: Any) -> str:
        if not await left.list(""):  # as storage would be if the process ended here
            for key in await storage.list(""):
                await left.set(key, await storage.get(key))
        return "out"

    one = config(step=step.run("main", main), item_schemas={"items": [Badge]})
    await nn.AgentHarness(one, storage=storage, checkpoints=True).execute([BADGE])
    again = nn.AgentHarness(one, storage=left, checkpoints=True)

    await again.resume((await again.unfinished())[0])

    assert again.log()[0] == BADGE


@pytest.mark.parametrize(
    ("schemas", "code"),
    [
        ({"things": [Badge]}, "UNKNOWN_ITEM_CATEGORY"),
        ({"items": [{"type": "object", "dance": 1}]}, "INVALID_SCHEMA"),
        ({"items": ["Badge"]}, "INVALID_SCHEMA"),
        ({"items": Badge}, "INVALID_AGENT_CONFIG"),
        ([Badge], "INVALID_AGENT_CONFIG"),
    ],
)
def test_item_schemas_that_cannot_work_are_refused(schemas: Any, code: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        config(item_schemas=schemas)

    assert caught.value.code == code


# -- as JSON ------------------------------------------------------------------------------------------------------------


def test_schemas_are_dumped_by_name_or_as_json_schema() -> None:
    one = config(
        params={"city": "Ulm"},
        params_schema=Desk,
        item_schemas={
            "items": [Badge, {"type": "object"}, accepts_notes],
            "developer_messages": [{"minProperties": 1}],
        },
        strict_item_schemas=False,
    )

    assert nn.dump_config(one, REGISTRY) == {
        "name": "desk",
        "params": {"city": "Ulm"},
        "paramsSchema": {"$ref": "schema:desk"},
        "itemSchemas": {
            "items": [{"$ref": "schema:badge"}, {"type": "object"}, {"$ref": "fn:accepts_notes"}],
            "developerMessages": [{"minProperties": 1}],
        },
        "strictItemSchemas": False,
    }
    unnamed = nn.dump_config(config(params_schema=Desk, params={"city": "x"}))["paramsSchema"]
    assert unnamed == Desk.model_json_schema()
    with pytest.raises(nn.NoeticConfigError) as caught:
        nn.dump_config(one, Registry(schemas={"desk": Desk}))
    assert (caught.value.code, caught.value.where) == ("UNREGISTERED_FUNCTION", "desk.itemSchemas.items[2]")


def test_a_layer_that_is_referred_to_brings_its_item_schemas() -> None:
    layer = nn.MemoryLayer(id="badges", slot=1, scope="execution", item_schemas={"items": [Badge]})
    registry = Registry(layers=[layer])

    back = nn.load_config(json.dumps(nn.dump_config(config(memory=[layer]), registry)), registry)

    assert nn.AgentHarness(back)._engine.stack.registry.parse(BADGE).level == 3


@pytest.mark.parametrize("spelling", ["camel", "snake"])
def test_parameters_that_look_like_references_are_data(spelling: str) -> None:
    params = {
        "topP": {"stopSequences": 1},
        "list": [{"$ref": "fn:nobody"}],
        "ref": {"$ref": "fn:nobody", "more": 1},
        "output": {"$ref": "schema:x"},
    }
    named = {"camel": ("paramsSchema", "itemSchemas"), "snake": ("params_schema", "item_schemas")}[spelling]
    schema = {"type": "object", "properties": {"params": {"type": "object", "maxLength": 3}}}

    back = nn.load_config({"name": "x", "params": params, named[0]: schema, named[1]: {"items": [schema]}})

    assert nn.dump_config(back) == {
        "name": "x", "params": params, "paramsSchema": schema, "itemSchemas": {"items": [schema]},
    }  # fmt: skip


def test_an_unknown_schema_is_named() -> None:
    for data in ({"paramsSchema": {"$ref": "schema:x"}}, {"itemSchemas": {"items": [{"$ref": "schema:x"}]}}):
        with pytest.raises(nn.NoeticConfigError) as caught:
            nn.load_config({"name": "x", **data}, REGISTRY)
        assert (caught.value.code, caught.value.known) == ("UNKNOWN_SCHEMA_REFERENCE", ("adapter", "badge", "desk"))


KEYS = st.sampled_from(["city", "limits", "level", "type", "params", "output", "args", "$ref", "maxTokens", "a b"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["fn:x", "Ulm", "my:badge", ""])
    | st.floats(-1, 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
SCHEMAS = st.sampled_from(
    [
        Badge,
        REGISTRY.resolve("schema:adapter"),
        BADGE_SCHEMA,
        {"required": ["city"]},
        {"properties": {"params": {"type": "string"}, "output": {"minimum": 0}}},
        accepts_notes,
    ]
)
ITEMS = st.builds(
    lambda kind, more: {**more, "type": kind}, st.sampled_from(["my:badge", "my:note", "x"]),
    st.dictionaries(KEYS, VALUES, max_size=3),
)  # fmt: skip


@given(
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.sampled_from([None, Desk, {"type": "object"}, {"maxProperties": 2}, Desk.model_json_schema()]),
    st.dictionaries(st.sampled_from(["items", "toolCalls", "developer_messages"]), st.lists(SCHEMAS, max_size=3)),
    st.booleans(),
    st.lists(ITEMS, max_size=5),
)
def test_a_configuration_behaves_the_same_after_json(
    params: Any, schema: Any, items: Any, strict: bool, said: list[Any]
) -> None:
    fields = {"params_schema": schema, "item_schemas": items, "strict_item_schemas": strict}
    try:
        one = config(params=params, **fields)
    except nn.NoeticConfigError:
        params = {"city": "Ulm"}
        one = config(params=params, **fields)

    text = json.dumps(nn.dump_config(one, REGISTRY), allow_nan=False)
    back = nn.load_config(text, REGISTRY)

    assert back.params == one.params == nn.AgentConfig(name="x", params=params).params
    assert json.dumps(nn.dump_config(back, REGISTRY)) == text
    assert [accepts(back, item) for item in said] == [accepts(one, item) for item in said]
    for other in ({}, {"city": 3}, {"city": "Ulm", "limits": {"a": "b"}}, {"a": 1, "b": 2, "c": 3}):
        assert _fits(back, other) == _fits(one, other)


def _fits(one: nn.AgentConfig, params: Any) -> bool:
    try:
        config(params=params, params_schema=one.params_schema)
    except nn.NoeticConfigError:
        return False
    return True


def test_what_a_configuration_leaves_out_is_what_is_documented() -> None:
    config = nn.AgentConfig(name="a")

    left_out = {name: getattr(config, name) for name in type(config).model_fields if name not in ("name", "projection")}
    assert {name: value for name, value in left_out.items() if value} == {
        "incomplete": "return",
        "on_steering_error": "deny",
        "stream_idle_timeout_ms": 120_000,
        "strict_item_schemas": True,
    }
    assert config.force_atomic_recall is False
