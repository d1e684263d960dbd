"""File memory: what can be done with notes, what is answered where it cannot, and that no path leads out of them."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.layers import file_memory
from noetic_nb.storage import InMemoryStorage
from tests.layers.layer_driver import Conversation
from tests.matrix import matrix

ID = "file-memory"


async def talking(**options: Any) -> Conversation:
    talk = Conversation(file_memory(**options))
    await talk.begin()
    return talk


async def test_a_file_is_made_viewed_changed_moved_and_deleted() -> None:
    talk = await talking()

    answers = [
        await talk.call(ID, "create", path="people/ann.md", text="Ann\nlikes tea"),
        await talk.call(ID, "replace", path="people/ann.md", old="tea", new="coffee"),
        await talk.call(ID, "insert", path="people/ann.md", line=1, text="lives in Rome\n"),
        await talk.call(ID, "view", path="people/ann.md"),
        await talk.call(ID, "view", path="people/ann.md", first=2, last=2),
        await talk.call(ID, "rename", path="people", new_path="friends/old"),
        await talk.call(ID, "view"),
        await talk.call(ID, "delete", path="friends"),
        await talk.call(ID, "view"),
    ]

    assert answers == [
        "people/ann.md was made.",
        "people/ann.md was changed.",
        "people/ann.md was changed.",
        "    1  Ann\n    2  lives in Rome\n    3  likes coffee",
        "    2  lives in Rome",
        "people is now friends/old.",
        "- friends/old/ann.md: Ann",
        "friends was deleted, with 1 files.",
        "There are no notes yet.",
    ]


async def test_the_prompt_lists_the_files_with_their_first_lines() -> None:
    talk = await talking(initial={"b.md": "\n  Second file \nmore", "a/x.md": "First file"})

    assert await talk.shown() == "<notes>\n- a/x.md: First file\n- b.md: Second file\n</notes>"
    assert await talk.shown(budget=12) == "<notes>\n- a/x.md: First file\n</notes>"


async def test_notes_are_those_of_the_person_in_the_next_thread_too() -> None:
    storage = InMemoryStorage()
    first, second = (Conversation(file_memory(), storage=storage, thread_id=name) for name in "ab")
    other = Conversation(file_memory(), storage=storage, resource_id="bob")
    await first.begin()
    await first.call(ID, "create", path="a.md", text="tea")
    await first.end("Noted.")

    assert "tea" in await second.begin()
    assert await other.begin() == ""


FILES = {"a.md": "one\ntwo\ntwo", "dir/b.md": "text", "empty.md": ""}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("create", {"path": "a.md", "text": ""}, "there is a file 'a.md' already"),
    ("create", {"path": "A.MD", "text": ""}, "there is a file 'a.md' already"),
    ("create", {"path": "dir", "text": ""}, "'dir' is a folder"),
    ("create", {"path": "a.md/c.md", "text": ""}, "'a.md' is a file, not a folder"),
    ("create", {"path": "new.md", "text": "x" * 41}, "would have 41 characters; a file may have 40"),
    ("create", {"path": "new.md", "text": "\ud800"}, "a lone surrogate"),
    ("view", {"path": "none.md"}, "there is no 'none.md'"),
    ("view", {"path": "b.md"}, "Perhaps 'dir/b.md'?"),
    ("view", {"path": "a.md", "first": 9}, "are not a valid range; 'a.md' has 3"),
    ("view", {"path": "a.md", "first": 0}, "are not a valid range"),
    ("view", {"path": "a.md", "first": 4, "last": 9}, "has 3 lines only"),
    ("replace", {"path": "a.md", "old": "two", "new": "x"}, "occurs 2 times"),
    ("replace", {"path": "a.md", "old": "six", "new": "x"}, "does not occur"),
    ("replace", {"path": "a.md", "old": "", "new": "x"}, "is empty"),
    ("replace", {"path": "dir", "old": "a", "new": "x"}, "'dir' is a folder"),
    ("replace", {"path": "a.md", "old": "one", "new": "x" * 40}, "would have 48 characters"),
    ("insert", {"path": "a.md", "line": 4, "text": "x"}, "insert behind one of 0 to 3"),
    ("insert", {"path": "a.md", "line": -1, "text": "x"}, "insert behind one of 0 to 3"),
    ("insert", {"path": "none", "line": 0, "text": "x"}, "there is no 'none'"),
    ("delete", {"path": "none"}, "there is no 'none'"),
    ("rename", {"path": "none", "new_path": "x"}, "there is no 'none'"),
    ("rename", {"path": "a.md", "new_path": "dir/b.md"}, "there is a file 'dir/b.md' already"),
    ("rename", {"path": "a.md", "new_path": "dir"}, "'dir' is a folder"),
    ("rename", {"path": "dir", "new_path": "dir/in"}, "cannot be moved into itself"),
]


@pytest.mark.parametrize(
    ("name", "args", "answer"), REFUSED, ids=[f"{name}-{n}" for n, (name, _, _) in enumerate(REFUSED)]
)
async def test_what_cannot_be_done_is_answered_and_changes_nothing(
    name: str, args: dict[str, Any], answer: str
) -> None:
    talk = await talking(initial=FILES, max_file_chars=40)

    said = await talk.call(ID, name, **args)

    assert said.startswith("Not done: ")
    assert answer in said
    assert talk.data(ID, "files") == FILES


async def test_files_are_limited_in_number_and_together_in_size() -> None:
    talk = await talking(max_files=2, max_chars=10)

    first = await talk.call(ID, "create", path="a", text="12345")
    large = await talk.call(ID, "create", path="b", text="123456")
    second = await talk.call(ID, "create", path="b", text="12345")
    third = await talk.call(ID, "create", path="c", text="")

    assert (first, second) == ("a was made.", "b was made.")
    assert "all files together would have 11 characters; 10 are kept" in large
    assert "there are 2 files already" in third


HOSTILE = [
    "../a", "a/../../b", "..", "a/..", "/etc/passwd", "//a", "~/a", "~root/a", "C:/a", "c:a", "\\\\host\\a", "a\\b",
    "file:///a", "s3://a/b", "a\0b", "a\nb", "a\u200bb", "a\u202eb", "\ud800", ".. /a", " .", "a/ b", "a /b", "",
    "．．/a", "a／b", "‥/a", "..／a", "℀/../x", "\uff3c", "x" * 201, "/".join("abcdefghij"), "\x7f", "a\x1b[0m",
]  # fmt: skip


@matrix("name,path", product(["create", "rename", "delete"], HOSTILE), keep=44, ids=ascii)
async def test_a_path_that_leads_out_or_hides_something_is_refused(path: str, name: str) -> None:
    talk = await talking(initial=FILES)
    args = {
        "create": {"path": path, "text": "x"},
        "rename": {"path": "a.md", "new_path": path},
        "delete": {"path": path},
    }

    said = await talk.call(ID, name, **args[name])

    assert said.startswith("Not done: ")
    assert talk.data(ID, "files") == FILES
    said.encode()


@pytest.mark.parametrize("same", ["Café.md", "CAFÉ.MD", "cafe\u0301.md", "./café.md", "ｃafé.md"], ids=ascii)
async def test_spellings_that_look_the_same_are_one_file(same: str) -> None:
    talk = await talking(initial={"café.md": "tea"})

    assert await talk.call(ID, "view", path=same) == "    1  tea"
    assert "already" in await talk.call(ID, "create", path=same, text="x")
    assert await talk.call(ID, "delete", path=same) == "café.md was deleted."


async def test_a_path_is_kept_in_its_composed_form() -> None:
    talk = await talking()
    await talk.call(ID, "create", path="cafe\u0301.md", text="tea")

    assert list(talk.data(ID, "files")) == ["caf\u00e9.md"]


async def test_a_file_can_get_another_spelling_of_its_name() -> None:
    talk = await talking(initial={"Dir/a.md": "tea", "Dir/b.md": "cup"})

    await talk.call(ID, "rename", path="dir", new_path="DIR")
    await talk.call(ID, "create", path="dir/c.md", text="pot")

    assert list(talk.data(ID, "files")) == ["DIR/a.md", "DIR/b.md", "DIR/c.md"]


# Few different parts, so that paths meet, and everything that could lead elsewhere.
PARTS = st.sampled_from(
    ["a", "A", "b", "é", "e\u0301", "..", ".", "", " ", "~", "．．", "c:", "\0", "a\\b", "\u200b"]
) | st.text(st.characters(), max_size=4)
PATHS = st.lists(PARTS, max_size=4).map("/".join)
TEXTS = st.text(st.characters(), max_size=30)
CALLS = st.one_of(
    st.tuples(st.just("create"), st.fixed_dictionaries({"path": PATHS, "text": TEXTS})),
    st.tuples(st.just("view"), st.fixed_dictionaries({"path": PATHS, "first": st.integers(-1, 4)})),
    st.tuples(st.just("replace"), st.fixed_dictionaries({"path": PATHS, "old": TEXTS, "new": TEXTS})),
    st.tuples(st.just("insert"), st.fixed_dictionaries({"path": PATHS, "line": st.integers(-2, 4), "text": TEXTS})),
    st.tuples(st.just("delete"), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(st.just("rename"), st.fixed_dictionaries({"path": PATHS, "new_path": PATHS})),
)


@given(st.lists(CALLS, max_size=20))
def test_whatever_is_called_the_files_stay_files_below_the_root(calls: list[tuple[str, dict[str, Any]]]) -> None:
    async def run() -> None:
        talk = await talking(max_files=4, max_file_chars=40, max_chars=90)
        for name, args in calls:
            before = talk.data(ID, "files")
            said = await talk.call(ID, name, **args)
            files = talk.data(ID, "files")

            assert said.encode()
            assert name != "view" or files == before
            assert not said.startswith("Not done") or files == before
            assert len(files) <= 4
            assert all(len(text) <= 40 for text in files.values())
            assert sum(map(len, files.values())) <= 90
            for path in files:
                parts = path.split("/")
                assert all(part.strip(" .") and part == part.strip() and part.isprintable() for part in parts)
                assert not any("/".join(parts[:depth]) in files for depth in range(1, len(parts)))
                assert "there is a file" in await talk.call(ID, "create", path=path, text="")
            assert json.loads(json.dumps(talk.state(ID), ensure_ascii=False).encode()) == talk.state(ID)

    asyncio.run(run())


async def test_an_agent_edits_its_notes_and_rules_can_forbid_it() -> None:
    rules = nn.RuleBook()
    rules.when('tool.name == "file-memory/delete"', id="keep-notes", guidance="Notes stay.")
    calls = [nn.CallTool(f"{ID}/create", path="a.md", text="tea"), nn.CallTool(f"{ID}/delete", path="a.md"), "Done."]
    model = nn.ScriptedModel(calls)
    config = nn.AgentConfig(name="a", step=nn.react(model="m"), memory=[file_memory(), nn.steering(rules)])
    harness = nn.AgentHarness(config, model=model)

    await harness.execute("Note: tea.", thread_id="t")
    outputs = [item["output"] for item in harness.log("t") if item["type"] == "function_call_output"]

    assert outputs[0] == "a.md was made."
    assert "Notes stay." in outputs[1]
