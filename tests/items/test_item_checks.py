"""Items of known types are validated wherever they enter; items saved by earlier versions are kept and noted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import ItemValidationError, NoeticError
from noetic_nb.items import Item, ItemLog, ItemRegistry, assistant_message, dump_item, input_message, parse_item
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryHooks, MemoryLayer
from noetic_nb.models import ModelResponse
from noetic_nb.runs import load_run
from noetic_nb.storage import InMemoryStorage
from tests.runtime.factories import make_harness, texts


def message(**fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}], **fields}


CALL = {"type": "function_call", "callId": "c", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "callId": "c", "output": "ok"}
MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "role": (message(role="king"), "role"),
    "no role": ({"type": "message", "content": []}, "role"),
    "no content": ({"type": "message", "role": "user"}, "content"),
    "content of a number": (message(content=5), "content"),
    "content of texts": (message(content=["hi"]), "content"),
    "part without a type": (message(content=[{"text": "hi"}]), "content"),
    "part of no type": (message(content=[{"type": "zzz"}]), "zzz"),
    "part without text": (message(content=[{"type": "input_text"}]), "text"),
    "part of a chat": (message(content=[{"type": "text", "text": "hi"}]), "'text'"),
    "status": (message(status="done"), "status"),
    "id": (message(id=3), "id"),
    "call without an id": ({key: CALL[key] for key in ("type", "name", "arguments")}, "callId"),
    "call without a name": ({key: CALL[key] for key in ("type", "callId", "arguments")}, "name"),
    "call with an object": ({**CALL, "arguments": {}}, "arguments"),
    "output without an id": ({"type": "function_call_output", "output": "ok"}, "callId"),
    "output of an object": ({**OUTPUT, "output": {"a": 1}}, "output"),
    "thoughts of text": ({"type": "reasoning", "content": "hm"}, "content"),
    "thoughts of no type": ({"type": "reasoning", "summary": [{"type": "zzz"}]}, "summary"),
}
every = pytest.mark.parametrize(("item", "field"), MALFORMED.values(), ids=MALFORMED)
FORMS = {"plain": dict, "frozen": Item}


@every
@pytest.mark.parametrize("form", FORMS)
def test_a_malformed_item_is_refused_with_its_field(item: dict[str, Any], field: str, form: str) -> None:
    given, log = FORMS[form](item), ItemLog([input_message("hi")])

    for enter in (parse_item, ItemRegistry(strict=False).parse, log.append):
        with pytest.raises(ItemValidationError, match=field):
            enter(given)

    assert len(log) == 1


@pytest.mark.parametrize(
    "item",
    [
        message(),
        message(content=[]),
        message(content=[{"type": "vendor:part", "x": 1}, {"type": "input_image", "imageUrl": "a.png"}]),
        message(role="assistant", content=[{"type": "refusal", "refusal": "No."}], status=None, id=None, more=[1]),
        CALL,
        {**CALL, "arguments": "not JSON", "status": "incomplete"},
        OUTPUT,
        {"type": "reasoning", "encrypted_content": "x"},
        {"type": "web_search_call", "status": "searching"},
        {"type": "openrouter:x", "content": 5},
    ],
)
def test_an_item_that_is_as_it_must_be_keeps_every_key(item: dict[str, Any]) -> None:
    parsed = parse_item(item)

    assert dump_item(parsed) == item
    assert parse_item(parsed) is parsed


def test_text_in_place_of_parts_is_one_part() -> None:
    assert dump_item(parse_item(message(content="hi"))) == message()


@every
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hook", ["recall", "on_item_append", "project_history"])
async def test_a_hook_that_returns_a_malformed_item_changes_nothing_and_is_reported(
    hook: str, item: dict[str, Any], field: str, form: str
) -> None:
    layer = MemoryLayer(
        id="odd", slot=1, scope="thread", hooks=MemoryHooks(**{hook: lambda p: {"items": [FORMS[form](item)]}})
    )
    harness = make_harness(["ok"], memory=[layer])

    reply = await harness.execute("hi", thread_id="t")

    assert [(warning.layer_id, field in warning.text) for warning in reply.warnings] == [("odd", True)]
    assert [*texts(harness.log("t").items)] == ["user: hi", "assistant: ok"]


@every
async def test_a_child_gets_no_malformed_item(item: dict[str, Any], field: str) -> None:
    seen: list[Any] = []
    spawning = MemoryHooks(on_spawn=lambda p: {"child_state": 1, "items": [item]})
    stack = LayerStack([MemoryLayer(id="odd", slot=1, scope="thread", hooks=spawning)])
    stack.state.diagnostic = lambda *told: seen.append(told)
    contexts = [ExecutionContext(execution_id=name, thread_id="t") for name in ("e", "c")]

    assert await stack.spawn(*contexts) == ()
    assert field in str(seen[0][2])


@pytest.mark.parametrize(
    "name", ["content of a number", "part without text", "call without a name", "call with an object", "status"]
)
async def test_a_malformed_item_of_a_model_is_no_response(name: str) -> None:
    class Client:
        async def complete(self, request: Any) -> ModelResponse:
            return ModelResponse((Item(MALFORMED[name][0]),))

    harness = make_harness(Client())

    with pytest.raises(NoeticError, match=MALFORMED[name][1]) as caught:
        await harness.execute("hi", thread_id="t")

    assert caught.value.kind == "llm_failed"
    assert [*texts(harness.log("t").items)] == ["user: hi"]


def durable(answer: str, storage: InMemoryStorage, **more: Any) -> nn.AgentHarness:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"))
    return nn.AgentHarness(config, model=nn.ScriptedModel([answer]), storage=storage, checkpoints=True, **more)


@pytest.mark.parametrize(
    "item",
    [
        {**CALL, "name": ""},
        message(role="assistant", content=[{"type": "zzz", "x": 1}, {"type": "output_text", "text": "ok"}]),
    ],
    ids=["call without a name", "part of a provider's own"],
)
async def test_what_a_model_may_write_is_logged_and_read_again_without_a_note(
    item: dict[str, Any], tmp_path: Path
) -> None:
    answers = [Item(item), assistant_message("ok")]

    class Client:
        async def complete(self, request: Any) -> ModelResponse:
            return ModelResponse((answers.pop(0),))

    storage, noted = InMemoryStorage(), []
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"))
    first = nn.AgentHarness(config, model=Client(), storage=storage, checkpoints=True)
    run = nn.record(first)
    await first.execute("hi", thread_id="t")
    run.save(tmp_path / "a.jsonl.gz")

    second = durable("two", storage, diagnostic=lambda *told: noted.append(told))
    await second.execute("and now?", thread_id="t")

    logged = [dump_item(one) for one in first.log("t").items]
    assert item in logged
    assert [dump_item(one) for one in second.log("t").items][: len(logged)] == logged
    assert noted == []
    assert "unmapped" not in load_run(tmp_path / "a.jsonl.gz").meta


async def test_a_saved_thread_of_an_earlier_version_is_kept_and_noted() -> None:
    storage, noted = InMemoryStorage(), []
    await durable("one", storage).execute("hi", thread_id="t")
    [key] = await storage.list("thread:t:part:")
    part: Any = await storage.get(key)
    part = json.loads(json.dumps(part, default=dict))
    part["items"][0]["role"] = "king"
    await storage.set(key, part)

    harness = durable("two", storage, diagnostic=lambda *told: noted.append(told))
    reply = await harness.execute("and now?", thread_id="t")

    assert reply.text == "two"
    assert next(texts(harness.log("t").items)) == "king: hi"
    assert [(where, hook, "role" in str(error)) for where, hook, error in noted] == [("thread 't'", "load", True)]


async def test_a_run_file_of_an_earlier_version_is_read_and_noted(tmp_path: Path) -> None:
    harness = make_harness(["one"])
    recorded = nn.record(harness)
    await harness.execute("hi", thread_id="t")
    recorded.save(tmp_path / "a.jsonl.gz")
    lines = gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).decode()
    assert '"role":"user"' in lines
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines.replace('"role":"user"', '"role":"king"').encode()))

    run = load_run(tmp_path / "b.jsonl.gz")
    [note] = run.meta["unmapped"]
    run.save(tmp_path / "c.jsonl.gz")

    assert (note["place"], note["thread_id"], "role" in note["what"]) == ("item 0", "t", True)
    assert load_run(tmp_path / "c.jsonl.gz").meta["unmapped"] == [note]
    assert "unmapped" not in load_run(tmp_path / "a.jsonl.gz").meta
    with pytest.raises(ItemValidationError, match="role"):
        make_harness(["ok"]).seed("t", run)
