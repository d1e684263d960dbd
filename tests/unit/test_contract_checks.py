"""Contract tests pass what is built in, and name what is broken in what is not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb import layers
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import assistant_message, input_message
from noetic_nb.memory import MemoryLayer
from noetic_nb.models import CassetteModel, Fault, ModelRequest, ModelResponse
from noetic_nb.models._client import ModelDelta
from noetic_nb.storage import InMemoryStorage, ScopedStorage, SQLiteStorage
from noetic_nb.testing import check_layer, check_model, check_storage
from tests.memory.stacks import layer, returning


class Notes:
    """A store of one person's messages."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, messages: Any, *, session: str, when: Any) -> None:
        self.texts += [message["content"] for message in messages]

    def search(self, query: str, *, limit: int) -> list[str]:
        return [text for text in self.texts if set(query.split()) & set(text.split())][:limit]


def notes_of_each() -> Callable[[str], Notes]:
    stores: dict[str, Notes] = {}
    return lambda resource: stores.setdefault(resource, Notes())


FIRST: dict[str, tuple[Any, ...]] = {
    "static_content": ("Be kind.",),
    "tool_memory": ("cart",),
    "external_memory": (notes_of_each(),),
}
BUILT_IN = sorted(name for name in layers.__all__ if name.islower() and name != "regulation")


def book_with_a_rule() -> nn.RuleBook:
    book = nn.RuleBook()
    book.rule("no_pay", on="before_tool_call", tools=["pay"])(lambda call: nn.deny("No payments."))
    return book


OTHERS: dict[str, Callable[[], Any]] = {
    "regulation": lambda: nn.regulation(lambda who: nn.Regulator.for_user(who).with_cost_cap(10)),
    "rule book": lambda: nn.RuleBook(),
    "steering, thread": lambda: nn.steering(book_with_a_rule(), scope="thread"),
    "episodic, with a model": lambda: layers.episodic_memory(model="m"),
    "observational, with a model": lambda: layers.observational_memory(model="m", buffer_threshold=10),
    "working memory of a person": lambda: layers.working_memory(scope="resource", initial={"n": 1}),
    "a window": lambda: layers.history_window(2),
}  # fmt: skip


@pytest.mark.parametrize("name", BUILT_IN)
async def test_built_in_layers_keep_the_contract(name: str) -> None:
    assert await check_layer(getattr(layers, name)(*FIRST.get(name, ()))) == ()


@pytest.mark.parametrize("name", OTHERS)
async def test_so_do_layers_with_options(name: str) -> None:
    assert await check_layer(OTHERS[name]()) == ()


def count(p: Any) -> dict[str, Any]:
    return {"state": {"n": (p.state or {"n": 0})["n"] + 1}}


def collect(p: Any) -> dict[str, Any]:
    texts = [str(item.get("content")) for item in p.new_items]
    return {"state": {"texts": [*(p.state or {"texts": []})["texts"], *texts]}}


LOCK = threading.Lock()
GOOD: dict[str, MemoryLayer] = {
    "nothing": layer("a"),
    "a counter without an init": layer("a", store=count, recall=lambda p: p.state and f"n={p.state['n']}"),
    "a cut text": layer("a", store=collect, recall=lambda p: str(p.state)[: int(p.budget) * 4]),
    "a state of one execution": layer("a", scope="execution", init=returning({"state": {"n": 0}}), store=count),
    "a new form of an old state": layer("a", init=lambda p: _migrated(p), store=count),
    "what differs each time": layer("a", recall=lambda p: str(time.perf_counter_ns())),
    "the time": layer("a", recall=lambda p: time.strftime("%H:%M:%S")),
    "its own ids": layer("a", recall=lambda p: f"{p.ctx.thread_id} {p.ctx.turn}"),
    "a lock outside of the state": layer("a", store=lambda p: (LOCK.acquire() and LOCK.release()) or count(p)),
}


async def _migrated(p: Any) -> dict[str, Any]:
    stored = await p.storage.get("state")
    return {"state": {"n": 0} if stored is None else {**stored, "form": 2}}


@pytest.mark.parametrize("name", GOOD)
async def test_layers_of_ones_own_that_keep_it_have_no_findings(name: str) -> None:
    assert await check_layer(GOOD[name]) == ()


def in_place(p: Any) -> None:
    p.state["n"] = p.state.get("n", 0) + 1


def sleeps(p: Any) -> None:
    """Hold the loop, as a request or a large file does."""
    time.sleep(0.051)  # that of the fewest milliseconds that count, however slow the machine


async def sleeps_async(p: Any) -> None:
    await asyncio.sleep(0)
    sleeps(p)


def raises(p: Any) -> None:
    raise KeyError("drawer")


HEARD: list[str] = []


def remembers_outside(p: Any) -> None:
    HEARD.extend(str(item.get("content")) for item in p.new_items)


EMPTY = {"state": {}}
BROKEN: dict[str, tuple[str, Callable[[], MemoryLayer]]] = {
    "an init that forgets": ("state_lost", lambda: layer("a", init=lambda p: {"state": {"n": 0}}, store=count)),
    "a store that returns nothing": ("state_lost", lambda: layer("a", init=lambda p: {"state": {}}, store=in_place)),
    "a store that changes its copy": ("params_mutated", lambda: layer("a", init=lambda p: {"state": {}}, store=in_place)),
    "a recall that writes in place": ("params_mutated", lambda: layer("a", init=lambda p: {"state": {}}, recall=in_place)),
    "a recall whose write is not saved": ("state_lost", lambda: layer("a", init=lambda p: {"state": {}}, recall=in_place)),
    "an append that writes in place": (
        "params_mutated", lambda: layer("a", init=lambda p: {"state": {}}, on_item_append=in_place)),
    "a changed item": ("params_mutated", lambda: layer("a", on_item_append=lambda p: p.items[0].update(x=1))),
    "a changed history": ("params_mutated", lambda: layer("a", project_history=lambda p: p.items.pop())),
    "an overlong recall": ("budget_ignored", lambda: layer("a", recall=lambda p: "word " * 500)),
    "a recall beyond its own maximum": ("budget_ignored", lambda: layer("a", recall=lambda p: "word " * 50, budget=20)),
    "a miscount": ("tokens_miscounted", lambda: layer("a", recall=lambda p: {
        "items": [input_message("twelve and more words stand in this sentence")], "token_count": 1})),
    "a lock in the state": ("not_copyable", lambda: layer("a", init=lambda p: {"state": {"lock": threading.Lock()}})),
    "a set in the state": ("state_not_json", lambda: layer("a", store=lambda p: {"state": {"seen": {1, 2}}})),
    "a child with the parent's state": (
        "child_shares_state",
        lambda: layer(
            "a", init=lambda p: {"state": {}}, on_spawn=lambda p: {"child_state": p.parent_state}, on_item_append=in_place)),
    "memory outside of the state": (
        "scope_leak",
        lambda: layer("a", store=remembers_outside, recall=lambda p: " ".join(HEARD)[: int(min(p.budget, 200))])),
    "a count outside of the state": (
        "scope_leak", lambda: layer("a", store=remembers_outside, recall=lambda p: f"{len(HEARD)} messages")),
    "a hook that sleeps": ("blocks_loop", lambda: layer("a", recall=sleeps)),
    "an async hook that sleeps": ("blocks_loop", lambda: layer("a", store=sleeps_async)),
    "a failing recall": ("hook_failed", lambda: layer("a", recall=raises)),
    "a failing init": ("hook_failed", lambda: layer("a", init=raises)),
    "a failing guard": ("hook_failed", lambda: layer("a", before_tool_call=raises)),
    "a failing end": ("hook_failed", lambda: layer("a", on_complete=raises)),
    "a result of the wrong shape": ("hook_failed", lambda: layer("a", store=returning("text"))),
    "an init that returns nothing": ("never_runs", lambda: layer("a", init=returning(None), store=count)),
    "data that cannot be read": ("data_failed", lambda: layer("a", provides={"n": nn.layer_data(lambda state: state["n"])})),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_broken_in_a_layer_is_named(name: str) -> None:
    HEARD.clear()
    code, make = BROKEN[name]

    found = await check_layer(make())

    assert code in {finding.code for finding in found}, found
    assert all(finding.text for finding in found)


@pytest.mark.virtual_time
async def test_a_hook_that_hangs_is_named() -> None:
    async def hang(p: Any) -> None:
        await asyncio.Event().wait()

    assert {finding.code for finding in await check_layer(layer("a", recall=hang))} == {"hook_timeout"}


def test_without_a_loop_the_findings_are_there_when_they_are_looked_at() -> None:
    good, bad = check_layer(layers.working_memory()), check_layer(layer("a", recall=raises))

    assert not good
    assert list(good) == [] == good
    assert (len(bad), bad[0].code, bad.codes) == (1, "hook_failed", ("hook_failed",))
    assert (repr(good), repr(bad).splitlines()[0]) == ("layer 'working-memory': no findings", "layer 'a': 1 findings")


async def test_inside_a_loop_they_can_be_looked_at_without_await_too() -> None:
    assert check_layer(layer("a", recall=raises)).codes == ("hook_failed",)
    assert list(check_storage(InMemoryStorage())) == []


async def test_a_check_runs_once_however_often_it_is_looked_at() -> None:
    model = nn.ScriptedModel(["one"] * 50)
    check = check_model(model)

    first = await check
    seen = len(model.requests)

    assert (await check, list(check), first, len(model.requests)) == ((), [], (), seen)


@pytest.mark.parametrize("check", [check_layer, check_model, check_storage])
def test_what_is_none_of_them_is_refused_at_once(check: Any) -> None:
    with pytest.raises(NoeticConfigError):
        check(object())


# -- models -----------------------------------------------------------------------------------------------------------

MODELS: dict[str, Callable[[Path], Any]] = {
    "texts": lambda path: nn.ScriptedModel(["Hello."] * 9),
    "one line": lambda path: nn.ScriptedModel(["Hello."]),
    "calls": lambda path: nn.ScriptedModel(lambda request: nn.CallTool("lookup", order_id="A17")),
    "everything": lambda path: nn.ScriptedModel(
        lambda request: nn.Reply("Packed.", reasoning="Hm.", tool_calls=(nn.CallTool("a", b=1),), cost=0.1)),
    "faults": lambda path: nn.ScriptedModel([Fault("rate_limit"), Fault("refusal"), Fault("timeout"), Fault("disconnect")] * 3),
    "by name": lambda path: nn.ScriptedModel({"scripted": lambda request: "ok"}),
    "a tape": lambda path: CassetteModel(path / "a.jsonl", nn.ScriptedModel(["Hello."] * 9)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
async def test_scripted_models_keep_the_contract(name: str, tmp_path: Path) -> None:
    assert await check_model(MODELS[name](tmp_path)) == ()


ANSWER = {"items": [assistant_message("Hello there.")], "usage": {"inputTokens": 3, "outputTokens": 2}}


class Client:
    """Answers what it is given; an exception is raised, a function called."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def complete(self, request: ModelRequest) -> Any:
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return await self.answer() if callable(self.answer) else self.answer


class Streaming(Client):
    """Streams the parts it is given."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(ANSWER)
        self.parts = parts

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        for part in self.parts:
            await asyncio.sleep(0)
            yield part


class Sync:
    """Answers without being awaited."""

    def complete(self, request: ModelRequest) -> Any:
        return ANSWER


class Awaited(Client):
    """Has a stream that must be awaited first."""

    async def stream(self, request: ModelRequest) -> Any:
        return []


async def blocks() -> Any:
    sleeps(None)
    return ANSWER


async def stubborn() -> Any:
    try:
        await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        return ANSWER
    return ANSWER


def call(**fields: Any) -> dict[str, Any]:
    made = {"type": "function_call", "id": "f1", "callId": "c1", "name": "a", "arguments": "{}", "status": "completed"}
    return {"items": [made | fields], "usage": {}}


RESPONSE = ModelResponse((assistant_message("Hello there."),))
BAD_MODELS: dict[str, tuple[str, Any]] = {
    "not async": ("not_async", Sync()),
    "a bare text": ("wrong_response", Client("Hello.")),
    "nothing": ("wrong_response", Client(None)),
    "a wrong item": ("wrong_items", Client(ModelResponse(({"no": "type"},)))),  # type: ignore[arg-type]
    "a user's message": ("wrong_items", Client({"items": [input_message("hi")], "usage": {}})),
    "arguments as an object": ("wrong_items", Client(ModelResponse((call(arguments={"a": 1})["items"][0],)))),
    "two calls of one id": ("wrong_items", Client({"items": call()["items"] * 2, "usage": {}})),
    "negative usage": ("wrong_usage", Client(RESPONSE._replace(usage=nn.Usage(-1, 2)))),
    "usage as a mapping": ("wrong_usage", Client(RESPONSE._replace(usage={"input_tokens": 1}))),  # type: ignore[arg-type]
    "cost as a text": ("wrong_usage", Client(RESPONSE._replace(cost="0.1"))),  # type: ignore[arg-type]
    "an unknown reason": ("wrong_finish_reason", Client(RESPONSE._replace(finish_reason="gone fishing"))),  # type: ignore[arg-type]
    "an error of its own": ("wrong_error", Client(ConnectionError("refused"))),
    "an error of another kind": ("wrong_error", Client(NoeticError("tool_failed", "no"))),
    "one that holds the loop": ("blocks_loop", Client(blocks)),
    "one that goes on": ("ignores_cancel", Client(stubborn)),
    "a stream without an answer": ("wrong_stream", Streaming(ModelDelta("text", "Hello"))),
    "a stream that goes on": ("wrong_stream", Streaming(RESPONSE, ModelDelta("text", "Hello"))),
    "a stream with two answers": ("wrong_stream", Streaming(RESPONSE, RESPONSE)),
    "a stream of another text": ("wrong_stream", Streaming(ModelDelta("text", "Goodbye"), RESPONSE)),
    "a stream of an unknown kind": ("wrong_stream", Streaming(ModelDelta("smell", "x"), RESPONSE)),  # type: ignore[arg-type]
    "a stream to be awaited": ("wrong_stream", Awaited(ANSWER)),
    "a stream of texts": ("wrong_response", Streaming("Hello")),
}


@pytest.mark.parametrize("name", BAD_MODELS)
async def test_what_is_broken_in_a_model_is_named(name: str) -> None:
    code, client = BAD_MODELS[name]

    found = await check_model(client)

    assert {finding.code for finding in found} == {code}, found


async def test_clients_that_answer_in_the_wires_form_are_fine() -> None:
    assert await check_model(Client(ANSWER)) == ()
    assert await check_model(Streaming(ModelDelta("text", "Hello there."), ANSWER)) == ()


# -- stores -----------------------------------------------------------------------------------------------------------


async def test_built_in_stores_keep_the_contract_and_are_left_as_they_were(tmp_path: Path) -> None:
    in_memory = InMemoryStorage({"mine": 1})
    assert await check_storage(in_memory) == ()
    assert await check_storage(ScopedStorage(in_memory, "notes", "t1")) == ()
    assert await in_memory.list("") == ["mine"]
    async with SQLiteStorage(tmp_path / "a.db") as storage:
        assert await check_storage(storage) == ()
        assert await storage.list("") == []


class Versioned(InMemoryStorage):
    """Counts the writes of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int] = {}
        self.gap = False

    async def set(self, key: str, value: Any) -> None:
        self.versions[key] = self.versions.get(key, 0) + 1
        await super().set(key, value)

    async def get_versioned(self, key: str) -> Any:
        return type("V", (), {"value": await self.get(key), "version": self.versions.get(key)})

    async def compare_and_set(self, key: str, expected: Any, value: Any) -> Any:
        found = self.versions.get(key)
        if found != expected:
            raise NoeticError("state_conflict", "changed", key=key)
        if self.gap:
            await asyncio.sleep(0)
        await self.set(key, value)
        return self.versions[key]


def store(base: type[InMemoryStorage] = InMemoryStorage, /, **methods: Any) -> Any:
    """Return a store with some methods replaced."""
    return type("Own", (base,), methods)()


class References:
    """Keeps what it is given, not copies."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def get(self, key: str) -> Any:
        return self.kept.get(key)

    async def set(self, key: str, value: Any) -> None:
        self.kept[key] = value

    async def delete(self, key: str) -> None:
        self.kept.pop(key, None)

    async def list(self, prefix: str) -> list[str]:
        return sorted(key for key in self.kept if key.startswith(prefix))


async def raw_list(self: Any, prefix: str) -> list[str]:
    return [key for key in self._texts if key.startswith(prefix)]


async def containing(self: Any, prefix: str) -> list[str]:
    return sorted(key for key in self._texts if prefix.rstrip("/") in key)


async def folded_get(self: Any, key: str) -> Any:
    return await InMemoryStorage.get(self, key.lower())


async def folded_set(self: Any, key: str, value: Any) -> None:
    await InMemoryStorage.set(self, key.lower(), value)


async def text_get(self: Any, key: str) -> Any:
    found = await InMemoryStorage.get(self, key)
    return str(found) if isinstance(found, int) else found


async def missing_get(self: Any, key: str) -> Any:
    return await InMemoryStorage.get(self, key) if key in self._texts else {}


async def strict_get(self: Any, key: str) -> Any:
    return await InMemoryStorage.get(self, key) if key in self._texts else self._texts[key]


async def strict_delete(self: Any, key: str) -> None:
    del self._texts[key]


async def no_delete(self: Any, key: str) -> None:
    return None


async def greedy_delete(self: Any, key: str) -> None:
    for other in [name for name in self._texts if name.startswith(key)]:
        del self._texts[other]


async def first_only(self: Any, key: str, value: Any) -> None:
    if key not in self._texts:
        await InMemoryStorage.set(self, key, value)


async def blocking_get(self: Any, key: str) -> Any:
    sleeps(None)
    return await InMemoryStorage.get(self, key)


async def all_keys(self: Any, keys: list[str]) -> dict[str, Any]:
    return {key: await self.get(key) for key in keys}


async def half_set(self: Any, values: Any, *, delete: Any = (), absent: Any = ()) -> None:
    taken = any(key in self._texts for key in absent)
    for key, value in values.items():
        await self.set(key, value)
    for key in delete:
        await self.delete(key)
    if taken:
        raise NoeticError("state_conflict", "taken")


async def any_set(self: Any, key: str, expected: Any, value: Any) -> Any:
    await self.set(key, value)
    return self.versions[key]


async def other_error(self: Any, key: str, expected: Any, value: Any) -> Any:
    if self.versions.get(key) != expected:
        raise NoeticError("storage_failed", "changed")
    return await any_set(self, key, expected, value)


async def same_version(self: Any, key: str, value: Any) -> None:
    self.versions[key] = self.versions.get(key, 1)
    await InMemoryStorage.set(self, key, value)


def with_gap() -> Any:
    made = Versioned()
    made.gap = True
    return made


BAD_STORES: dict[str, tuple[str, Callable[[], Any]]] = {
    "references": ("value_shared", References),
    "no delete at all": ("missing_method", lambda: type("Own", (), {"get": 1, "set": folded_set, "list": raw_list})()),
    "sync": ("not_async", lambda: store(get=lambda self, key: None)),
    "unsorted": ("list_unsorted", lambda: store(list=raw_list)),
    "no prefix": ("list_wrong", lambda: store(list=containing)),
    "folded keys": ("keys_mixed", lambda: store(get=folded_get, set=folded_set)),
    "numbers as texts": ("value_changed", lambda: store(get=text_get)),
    "an empty value for a missing key": ("missing_not_none", lambda: store(get=missing_get)),
    "an error for a missing key": ("call_failed", lambda: store(get=strict_get)),
    "an error where nothing is to delete": ("call_failed", lambda: store(delete=strict_delete)),
    "a delete that does nothing": ("not_deleted", lambda: store(delete=no_delete)),
    "a delete that takes more": ("keys_mixed", lambda: store(delete=greedy_delete)),
    "the first value stays": ("not_replaced", lambda: store(set=first_only)),
    "one that holds the loop": ("blocks_loop", lambda: store(get=blocking_get)),
    "missing keys in get_many": ("get_many_wrong", lambda: store(get_many=all_keys)),
    "half of a set_many": ("set_many_wrong", lambda: store(set_many=half_set)),
    "half of the versions": ("half_versioned", lambda: store(get_versioned=folded_get)),
    "a compare_and_set that does not compare": (
        "compare_and_set_wrong",
        lambda: store(Versioned, compare_and_set=any_set),
    ),
    "a conflict of another kind": ("compare_and_set_wrong", lambda: store(Versioned, compare_and_set=other_error)),
    "a set without a version": ("compare_and_set_wrong", lambda: store(Versioned, set=same_version)),
    "a wait between compare and set": ("write_lost", with_gap),
}


@pytest.mark.parametrize("name", BAD_STORES)
async def test_what_is_broken_in_a_store_is_named(name: str) -> None:
    code, make = BAD_STORES[name]

    found = await check_storage(make())

    assert code in {finding.code for finding in found}, found


async def test_a_store_that_counts_its_writes_is_fine() -> None:
    assert await check_storage(Versioned()) == ()
