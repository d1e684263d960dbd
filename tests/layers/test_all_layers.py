"""What every built-in layer owes: its place, its budget, JSON state that survives, damage that is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noetic_nb.layers as layers
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import item_text
from noetic_nb.memory import MemoryLayer
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from noetic_nb.tokens import estimate_tokens
from tests.layers.layer_driver import Conversation
from tests.memory.stacks import boom

# Id, slot, scope and budget as the table at the top of docs/behaviour/layers.md has them.
PLACES: dict[str, tuple[str, float, str, Any]] = {
    "temporal_memory": ("temporal", 80, "resource", {"min": 0, "max": 200}),
    "working_memory": ("working-memory", 100, "thread", {"min": 200, "max": 1500}),
    "static_content": ("static-content", 105, "resource", "auto"),
    "durable_task_state": ("durable-task-state", 110, "thread", {"min": 100, "max": 800}),
    "tool_memory": ("cart", 110, "execution", "auto"),
    "file_memory": ("file-memory", 120, "resource", {"min": 0, "max": 1000}),
    "entity_memory": ("entity-memory", 150, "resource", {"min": 0, "max": 1000}),
    "observational_memory": ("observational-memory", 200, "resource", {"min": 500, "max": 2500}),
    "plan_memory": ("plan", 240, "thread", {"min": 100, "max": 3000}),
    "procedural_memory": ("procedural-memory", 250, "resource", {"min": 0, "max": 1500}),
    "tool_result_clearing": ("tool-result-clearing", 270, "execution", {"min": 0, "max": 500}),
    "history_window": ("history-window", 275, "execution", 0),
    "episodic_memory": ("episodic-memory", 300, "resource", {"min": 0, "max": 2000}),
    "file_reference": ("file-reference", 350, "thread", "auto"),
    "hybrid_recall": ("hybrid-recall", 400, "resource", {"min": 0, "max": 4000}),
    "semantic_recall": ("semantic-recall", 400, "resource", {"min": 0, "max": 4000}),
}
FIRST: dict[str, tuple[Any, ...]] = {"static_content": ("Be kind.",), "tool_memory": ("cart",)}


def made(name: str, **options: Any) -> MemoryLayer:
    layer: MemoryLayer = getattr(layers, name)(*FIRST.get(name, ()), **options)
    return layer


@pytest.mark.parametrize("name", PLACES)
def test_a_layer_stands_where_the_table_says(name: str) -> None:
    layer = made(name)

    assert (layer.id, layer.slot, layer.scope, layer.budget) == PLACES[name]


def test_the_table_names_every_layer_but_those_with_chapters_of_their_own() -> None:
    factories = {name for name in layers.__all__ if name.islower()} - {"deep_merge", "regulation"}

    assert factories == set(PLACES)


def test_the_page_has_the_place_of_every_layer() -> None:
    page = Path(layers.__file__).parents[2] / "docs" / "behaviour" / "layers.md"
    cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in page.read_text().splitlines()]
    rows = {row[0]: row[1:5] for row in cells if len(row) == 6}

    for name, (id, slot, scope, budget) in PLACES.items():
        found = rows[name]
        size = f"{budget['min']:,}-{budget['max']:,}".replace(",", " ") if isinstance(budget, dict) else str(budget)
        assert found[0] == ("its id" if name == "tool_memory" else id)
        assert found[1:3] == [f"{slot}", scope]
        assert found[3].split(",")[0] == size


KEEPERS = [name for name, (_, _, scope, _) in PLACES.items() if scope != "execution" and name != "static_content"]


@pytest.mark.parametrize("damaged", [7, "text", [], {"unknown": 1}, {"episodes": 3}], ids=repr)
@pytest.mark.parametrize("name", [name for name in KEEPERS if name not in ("working_memory",)])
async def test_damaged_state_is_an_error_that_names_its_key(name: str, damaged: Any) -> None:
    layer = made(name)
    scope = "ann" if layer.scope == "resource" else "t1"
    key = f"layers/{layer.id}/{scope}/state"

    with pytest.raises(Exception, match="damaged") as caught:
        await Conversation(layer, storage=InMemoryStorage({key: damaged})).begin()

    assert (caught.value.kind, caught.value.key) == ("storage_failed", key)  # type: ignore[attr-defined]


async def exercise(talk: Conversation, id: str, name: str) -> None:
    """Bring a layer to hold something."""
    match name:
        case "working_memory":
            await talk.call(id, "update", note="hello")
        case "durable_task_state":
            await talk.call(id, "record_artifact", path="a.txt")
        case "entity_memory":
            await talk.call(id, "remember", name="Ann", fact="likes tea")
        case "file_memory":
            await talk.call(id, "create", path="people/ann.md", text="Ann likes tea.\nShe lives in Rome.")
        case "plan_memory":
            await talk.call(id, "enter_plan_mode", goal="Ship it")
        case "procedural_memory":
            await talk.call(id, "learn", name="deploy", when="deploy the app", steps=["build", "push"])


@pytest.mark.parametrize("name", KEEPERS)
async def test_state_survives_in_a_file_and_reads_back_the_same(name: str, tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "a.db") as storage:
        layer = made(name)
        talk = Conversation(layer, storage=storage)
        await talk.begin("hello")
        await exercise(talk, layer.id, name)
        await talk.end("There you are.")
        again = Conversation(made(name), storage=storage)
        await again.begin()

        before = await storage.list(f"layers/{layer.id}/")
        assert before or name in ("temporal_memory", "file_reference")
        if before:
            assert again.state(layer.id) == await storage.get(next(key for key in before if key.endswith("/state")))
        json.dumps(again.state(layer.id))
        assert talk.stack.notes == again.stack.notes == []


@pytest.mark.parametrize("budget", [0, 1, 5, 12, 40, 200])
@pytest.mark.parametrize("name", PLACES)
async def test_a_layer_keeps_to_any_budget_without_being_cut(name: str, budget: int) -> None:
    talk = Conversation(made(name))
    for n in range(4):
        await talk.turn(f"My name is Ann and my order is A{n}. " + "word " * 40, "Noted, order A17 is packed.")
    await talk.begin("What about order A17 of Ann?")
    await exercise(talk, talk.stack.layers[0].id, name)

    shown = await talk.shown("What about order A17 of Ann?", budget)

    assert estimate_tokens(shown) <= budget
    # A layer that offers too much is cut by the stack, which is a diagnostic: none of ours may need that.
    assert [str(error) for _, hook, error in talk.stack.notes if hook == "recall"] == []


@given(text=st.text(max_size=400), budget=st.integers(0, 120))
@settings(max_examples=60)
def test_static_content_keeps_its_tags_whatever_the_budget(text: str, budget: int) -> None:
    import asyncio

    async def run() -> str:
        talk = Conversation(layers.static_content(text))
        await talk.begin()
        return await talk.shown(budget=budget)

    shown = asyncio.run(run())

    assert shown == "" or (shown.startswith("<instructions>\n") and shown.endswith("\n</instructions>"))


BAD: list[tuple[str, dict[str, Any]]] = [
    ("history_window", {"max_items": 1}),
    ("history_window", {"max_items": 10_001}),
    ("history_window", {"max_items": 2.5}),
    ("history_window", {"max_items": True}),
    ("observational_memory", {"buffer_threshold": 0}),
    ("observational_memory", {"max_observations": 0}),
    ("episodic_memory", {"retrieval": "luck"}),
    ("episodic_memory", {"max_episodes": 0}),
    ("semantic_recall", {"top_k": 0}),
    ("hybrid_recall", {"top_k": 0}),
    ("hybrid_recall", {"min_score": -2}),
    ("semantic_recall", {"min_score": 2}),
    ("semantic_recall", {"neighbours": -1}),
    ("durable_task_state", {"merge_data": "somehow"}),
    ("temporal_memory", {"max_facts": 0}),
    ("file_reference", {"allowed_extensions": ["py"]}),
    ("file_reference", {"allowed_extensions": []}),
    ("file_reference", {"max_file_size": 0}),
    ("entity_memory", {"max_facts": 0}),
    ("file_memory", {"max_files": 0}),
    ("file_memory", {"max_chars": 0}),
    ("file_memory", {"max_file_chars": "many"}),
    ("file_memory", {"initial": {"../a": "x"}}),
    ("file_memory", {"initial": {"a": 7}}),
    ("procedural_memory", {"top_k": 0}),
    ("procedural_memory", {"min_score": -2}),
]


@pytest.mark.parametrize(("name", "options"), BAD, ids=[f"{n}-{o}" for n, o in BAD])
def test_an_option_that_makes_no_sense_is_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        made(name, **options)

    assert caught.value.code in ("INVALID_LAYER_OPTION", "INVALID_HISTORY_WINDOW_MAX_ITEMS")


def test_an_embedder_without_dimensions_is_refused() -> None:
    with pytest.raises(NoeticConfigError):
        layers.HashingEmbedder(0)


@pytest.mark.parametrize("name", PLACES)
async def test_a_layer_beside_a_broken_one_works_on(name: str) -> None:
    broken = MemoryLayer(id="broken", slot=1, scope="thread", hooks=layers.working_memory().hooks).with_hooks(
        recall=boom, store=boom
    )
    alone, beside = Conversation(made(name)), Conversation(broken, made(name))

    for talk in (alone, beside):
        await talk.turn("hello", "hi")

    assert await alone.begin("hello") == await beside.begin("hello")


async def test_what_is_shown_is_one_developer_message_per_layer() -> None:
    talk = Conversation(
        layers.static_content("Be kind."), layers.episodic_memory(), layers.semantic_recall(skip_recent=0)
    )
    await talk.turn("The order is A17.", "Noted.")
    await talk.begin("Which order?")

    entries = await talk.stack.recall(talk.context(), query="Which order?", log=talk.log, budgets={})

    assert [(entry.layer_id, len(entry.items), entry.items[0]["role"]) for entry in entries] == [
        ("static-content", 1, "developer"),
        ("episodic-memory", 1, "developer"),
        ("semantic-recall", 1, "developer"),
    ]
    assert all(item_text(entry.items[0]).startswith("<") for entry in entries)
