"""What every built-in layer owes: its place, its budget, JSON state that survives, damage that is reported."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
import noetic_nb.layers as layers
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import item_text
from noetic_nb.layers._helpers.considered import cut_block, fitting_lines
from noetic_nb.memory import MemoryLayer
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from noetic_nb.tokens import estimate_tokens
from tests.layers.layer_driver import Conversation
from tests.matrix import matrix
from tests.memory.stacks import boom

DOCS = Path(layers.__file__).parents[2] / "docs"
PAGE = (DOCS / "behaviour/layers.md").read_text(encoding="utf-8")
ROWS = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in PAGE.splitlines()]
# Id, slot, scope and budget by the function, from the table at the top of the page.
PLACES = {row[0]: row[1:5] for row in ROWS if len(row) == 6 and row[0].islower() and row[0] != "regulation"}


class Notes:
    """A store outside of the library."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, messages: Any, *, session: str, when: Any) -> None:
        self.texts += [message["content"] for message in messages]

    def search(self, query: str, *, limit: int) -> list[str]:
        return self.texts[-limit:]


FIRST: dict[str, tuple[Any, ...]] = {
    "static_content": ("Be kind.",),
    "tool_memory": ("its id",),
    "external_memory": (Notes(),),
}


def made(name: str, **options: Any) -> MemoryLayer:
    layer: MemoryLayer = getattr(layers, name)(*FIRST.get(name, ()), **options)
    return layer


@pytest.mark.parametrize("name", PLACES)
def test_a_layer_stands_where_the_table_says(name: str) -> None:
    layer = made(name)
    budget = layer.budget
    size = f"{budget['min']:,}-{budget['max']:,}".replace(",", " ") if isinstance(budget, dict) else f"{budget}"
    slot = f"{layer.slot:,}".replace(",", " ")

    id, its_slot, scope, its_budget = PLACES[name]
    assert (layer.id, slot, layer.scope, size) == (id, its_slot, scope, its_budget.split(",")[0])


def test_every_layer_is_on_its_page_and_in_the_shop_window() -> None:
    factories = {name for name in layers.__all__ if name.islower()}

    assert factories == {*PLACES, "regulation"}
    assert factories <= set(nn.__all__)
    assert [name for name in factories if f"\n## {name.capitalize().replace('_', ' ')}\n" not in PAGE] == []


def test_every_constant_has_its_row() -> None:
    # "`plan.MAX_DEPTH`, `MAX_CHARS`": the first of a row has the module.
    limits = (DOCS / "decisions/limits.md").read_text(encoding="utf-8").splitlines()
    cells = [line.split("|")[1].strip(" `") for line in limits if line.count("|") == 5]
    known = {f"{cell.split('.')[0]}.{name}" for cell in cells for name in re.findall(r"\b[A-Z][A-Z_\d]*", cell)}
    # These are on the page of layers.
    constants = {
        f"{path.stem.lstrip('_')}.{name}"
        for path in Path(layers.__file__).parent.rglob("*.py")
        for name in re.findall(r"^([A-Z]\w*): Final = [\d.]", path.read_text(encoding="utf-8"), re.MULTILINE)
        if name not in ("SLOT", "TIMEOUT_MS")
    }

    assert constants - known == set()


def test_layers_that_choose_what_fits_say_among_which() -> None:
    sources = {path.stem: path.read_text(encoding="utf-8") for path in Path(layers.__file__).parent.glob("_*.py")}

    assert {name for name, text in sources.items() if "fitting_lines(" in text and "consider(" not in text} == {
        "_result_clearing"  # an index of results, none of them a memory
    }


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


@matrix("name,budget", product(PLACES, [0, 1, 5, 12, 40, 200]), keep=40)
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


def test_a_block_is_cut_inside_its_tags_and_a_list_behind_a_line() -> None:
    assert cut_block("a", "x" * 100, 5, estimate_tokens) == "<a>\nxxxxxxxxxx…\n</a>"
    assert cut_block("a", "x", 1, estimate_tokens) is None
    assert fitting_lines("a", ["first", "second", "third"], 6, estimate_tokens) == ["first", "second"]


@pytest.mark.parametrize(
    ("name", "option", "given"),
    [
        ("entity_memory", "max_entities", 0),
        ("episodic_memory", "max_episodes", 0),
        ("file_memory", "max_chars", 0),
        ("file_reference", "max_file_size", 0),
        ("hybrid_recall", "skip_recent", -1),
        ("observational_memory", "buffer_threshold", 0),
        ("procedural_memory", "min_score", 1.1),
        ("semantic_recall", "min_score", "0.5"),
        ("semantic_recall", "top_k", 0),
        ("temporal_memory", "max_facts", True),
        ("tool_result_clearing", "keep", -1),
    ],
)
def test_a_number_out_of_range_is_refused_by_its_name(name: str, option: str, given: Any) -> None:
    with pytest.raises(NoeticConfigError, match=f"`{option}` (is|must be) ") as caught:
        made(name, **{option: given})

    assert (caught.value.code, caught.value.given) == ("INVALID_LAYER_OPTION", given)
