"""The memory view: every write and its changes, the states of children, and edits that reach a live harness."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ChildStarted, LayersDropped, LayerStateChanged, Where
from noetic_nb.lab import datasets
from noetic_nb.runs import Run
from noetic_nb.runs._recording.recorder import recorded
from noetic_nb.widgets import MemoryView, Selection
from noetic_nb.widgets._memory.state_texts import state_diff
from noetic_nb.widgets.base._page_thread import PAGES
from noetic_nb.widgets.base._text_diff import text_parts
from tests.matrix import matrix
from tests.widgets.hostile_texts import HOSTILE_TEXTS, hostile_run
from tests.widgets.rows import cells, words
from tests.widgets.scenes import memory_harness, memory_run, memory_turns

DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=4),
    max_leaves=12,
)


def wrote(state: Any, turn: int = 1, *, hook: str = "store", thread: str = "t1", layer: str = "notes") -> Any:
    return LayerStateChanged(Where(thread, f"e{turn}", turn), 0.0, layer, hook, state)


def asked(view: MemoryView, **request: Any) -> Any:
    return json.loads(json.dumps(view.reading.answer({"layer": 0, **request}), allow_nan=False))


def test_the_layer_that_changed_most_is_shown_first_and_stays_while_the_run_grows() -> None:
    events = [wrote({"n": 0}, layer="plan"), *(wrote({"n": n}, turn=n) for n in range(1, 4))]
    events.append(wrote({"n": 0}, layer="empty"))
    run = Run(events=events)
    with MemoryView(run) as view, MemoryView(run, layer="plan") as named:
        assert view.reading.shown.layer_id == "notes"
        assert named.reading.shown.layer_id == "plan"
        assert "Changes of notes" in view.to_html()
        for n in range(9):
            run.append(wrote({"n": n + 1}, turn=4, layer="plan"))
        assert view.snapshot["layers"][0][3] == 10
        assert view.reading.shown.layer_id == "notes"


def test_a_view_that_was_there_before_anything_changed_follows_to_the_layer_that_changes_most() -> None:
    run = Run()
    with MemoryView(run) as view, MemoryView(run) as chosen:
        for layer in ("plan", "notes", "other"):
            run.append(wrote({"n": 0}, hook="init", layer=layer))
        chosen.position = 2
        assert view.reading.shown.layer_id == "plan"
        run.append(wrote({"n": 1}, layer="plan"))
        for n in range(3):
            run.append(wrote({"n": n + 1}, layer="notes"))

        assert view.reading.shown.layer_id == "notes"
        assert view.snapshot["first"] == 1
        assert chosen.reading.shown.layer_id == "other"
        for n in range(9):
            run.append(wrote({"n": n + 5}, turn=2, layer="plan"))
        assert view.reading.shown.layer_id == "notes"


@pytest.mark.parametrize("turns", [1, 7, 900])
def test_the_picture_has_every_change_of_the_table(turns: int) -> None:
    events = [wrote({"n": n // 2}, turn=n, layer=layer) for n in range(1, turns + 1) for layer in ("notes", "plan")]
    events += [wrote({"n": -1}, turn=turns, thread="t2"), wrote({"n": 9}, turn=turns, layer="plan")]
    with MemoryView(Run(events=events), thread_id="t1") as view:
        table, scene = view.to_frame(), view.reading.scene()

    bars = [mark for mark in scene.marks if mark.key]
    assert len(scene.panels[0].lanes) == 2
    assert len(bars) <= 2 * 120
    for at, layer in enumerate(("notes", "plan")):
        numbers = [int(mark.words or 0) for mark in bars if mark.points[1] == str(at)]
        assert sum(numbers) == table[table["layer_id"] == layer]["changed"].sum()


# -- differences ------------------------------------------------------------------------------------------------------


@given(DATA, DATA)
def test_states_differ_where_they_are_not_the_same_data(before: Any, after: Any) -> None:
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)

    assert (state_diff(before, after) == []) is same


@given(DATA, DATA)
def test_a_difference_of_flat_mappings_makes_one_out_of_the_other(before: Any, after: Any) -> None:
    changes = state_diff({"a": before}, {"b": after})

    assert [(change.path, change.kind, change.before, change.after) for change in changes] == [
        ("a", "removed", before, None),
        ("b", "added", None, after),
    ]


def test_an_item_that_is_put_in_front_is_one_addition() -> None:
    old = [{"id": n, "text": f"note {n}"} for n in range(50)]

    changes = state_diff({"notes": old}, {"notes": [{"id": 99, "text": "new"}, *old]})

    assert [(change.path, change.kind) for change in changes] == [("notes[0]", "added")]


def test_true_is_not_one() -> None:
    assert [change.kind for change in state_diff({"done": 1}, {"done": True})] == ["changed"]


@given(st.text("ab \n,", max_size=40), st.text("ab \n,", max_size=40))
def test_the_parts_of_a_text_are_both_texts(before: str, after: str) -> None:
    parts = text_parts(before, after)

    assert "".join([text for sign, text in parts if sign != "+"]) == before
    assert "".join([text for sign, text in parts if sign != "-"]) == after


def test_long_texts_are_compared_in_little_work_and_cut_where_they_are_the_same() -> None:
    words = " ".join([f"w{n}" for n in range(20_000)])

    parts = text_parts(f"{words} Rome {words}", f"{words} Oslo {words}")

    assert [text for sign, text in parts if sign] == ["Rome", "Oslo"]
    assert sum([len(text) for _, text in parts]) < 300


# -- what is read -----------------------------------------------------------------------------------------------------


def differences(detail: dict[str, Any]) -> list[list[str]]:
    """Return the differences in a detail: path, kind, and the values with their signs."""
    html = (
        "".join([row["html"] for row in detail["rows"] if row["key"] == "changes"])
        .replace("<del>", "-")
        .replace("<ins>", "+")
    )
    return [[words(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in html.split("<tr>")[2:]]


def test_each_write_says_who_made_it_and_what_it_changed() -> None:
    with MemoryView(memory_run(2)) as view:
        rows = asked(view, what="writes", all=True)["rows"]
        newest = asked(view, what="change", at=1, against="write")

    assert [
        (row["turn"], *[re.sub("child .*", "child", text) for text in list(cells(row).values())[:3]]) for row in rows
    ] == [
        (3, "3", "on_return of a child", "+1"),
        (3, "3", "given by its parent, in child", "given"),
        (3, "3", "loaded", "no change"),
        (2, "2", "store", "+2 ~1"),
        (2, "2", "loaded", "no change"),
        (1, "1", "store", "+1 ~1"),
        (1, "1", "loaded", "first recorded"),
    ]
    assert differences(newest) == [
        ["city", "~ changed", "-Bergen+Oslo, by train"],
        ["visits[0]", "+ added", '+{"turn": 1, "place": "Oslo, by train"}'],
    ]


def test_writes_that_changed_nothing_are_left_out_until_they_are_asked_for() -> None:
    run = Run(events=[wrote({"n": n // 3}, n) for n in range(1, 31)])
    with MemoryView(run) as view:
        assert [row["turn"] for row in asked(view, what="writes")["rows"]] == [30, 27, 24, 21, 18, 15, 12, 9, 6, 3, 1]
        assert asked(view, what="writes", all=True)["count"] == 30
        assert view.snapshot["layers"] == [["notes", 0, 30, 11, 30, 0]]


def test_what_a_state_was_before_is_not_invented() -> None:
    with MemoryView(Run(events=[wrote({"n": 1}, 4)])) as view:
        for against in ("write", "turn", 2):
            detail = asked(view, what="change", at=0, against=against)
            assert differences(detail) == []
            assert re.search("is unknown|No state is recorded", words(detail["rows"]))
        with pytest.raises(NoeticConfigError, match="UNKNOWN_TURN"):
            view.difference("notes", 4)


def test_turns_are_compared_by_the_states_they_left() -> None:
    states = {1: {"a": 1}, 2: {"a": 2}, 3: {"a": 3}}
    run = Run(events=[wrote({**state, "n": n}, turn) for turn, state in states.items() for n in (1, 2)])
    with MemoryView(run) as view:
        last = asked(view, what="change", at=5, against=1)

        assert last["against"] == "the end of turn 1"
        assert differences(last) == [["a", "~ changed", "-1+3"]]
        table = view.difference("notes", 3, against=1)
        assert table.values.tolist() == [["a", "changed", 1, 3]]


def test_a_turn_alone_is_compared_with_what_was_before_it() -> None:
    run = Run(events=[wrote({"n": turn}, turn) for turn in (1, 2, 3)])
    with MemoryView(run, turn=2) as view:
        (row,) = asked(view, what="writes")["rows"]
        assert differences(asked(view, what="change", at=row["key"])) == [["n", "~ changed", "-1+2"]]
        assert view.to_frame()["turn"].tolist() == [2]


def test_a_layer_that_only_recalls_is_named_with_no_state() -> None:
    with MemoryView(memory_run(1)) as view:
        assert "preferences: no state recorded" in view.to_text()
        assert "no state recorded" in view.to_html()


def test_children_say_what_they_were_given_and_what_came_back() -> None:
    with MemoryView(memory_run(1)) as view:
        flow = cells(*asked(view, what="flows")["rows"])
        names = [row[0] for row in view.snapshot["layers"]]
        other = cells(*asked(view, what="flows", layer=names.index("preferences"))["rows"])

    assert (flow["Child"], flow["Was given"]) == ("look (spawn)", '{"city": "Oslo, by train", "found": []}')
    assert (flow["Its own"], flow["Came back"]) == ("as it was given", "merged by on_return")
    assert (other["Was given"], other["Came back"]) == ("no state", "nothing was merged")


def test_a_layer_that_a_step_drops_is_said_to_be_dropped() -> None:
    child = Where("t1", "c1", 1, 1)
    events = [wrote({"n": 1}), ChildStarted(child, 0.0, "e1", "s", "spawn", 0, (), {})]
    with MemoryView(Run(events=[*events, LayersDropped(child, 0.0, "e1", "s", ("notes",))])) as view:
        flow = cells(*asked(view, what="flows")["rows"])

    assert "drops the layer" in flow["Was given"]


def test_a_secret_is_never_shown_and_its_change_is_said() -> None:
    states = ({"api_key": "hunter2hunter2", "n": 1}, {"api_key": "other-secret-1", "n": 1})
    with MemoryView(Run(events=[wrote(state, turn) for turn, state in enumerate(states, 1)])) as view:
        detail = asked(view, what="change", at=1)
        everything = json.dumps(
            [detail, asked(view, what="writes"), view.to_html(), view.to_text(), view.to_frame().to_json()]
        )

    assert words(detail["rows"]).startswith("The difference is a secret, which is not shown.")
    assert "hunter2" not in everything
    assert "other-secret" not in everything


def test_large_states_are_cut_and_it_is_said() -> None:
    states = [{"notes": ["word " * 50] * 2_000, "n": n} for n in (1, 2)]
    with MemoryView(Run(events=[wrote(state, turn) for turn, state in enumerate(states, 1)])) as view:
        detail = asked(view, what="change", at=1)

        assert words(detail["rows"]).endswith("\n… (its end is left out)")
        assert "beginning" in words(detail["rows"][0])
        assert len(json.dumps(detail)) < 100_000
        assert [cells(row)["Changed"] for row in asked(view, what="writes")["rows"]] == [
            "a large state",
            "first recorded",
        ]


@matrix("name", list(HOSTILE_TEXTS), keep=12, start=7)
def test_answers_with_hostile_text_travel_as_json(name: str) -> None:
    text = HOSTILE_TEXTS[name]
    run = hostile_run(text)
    for event in (wrote({text: [text]}, 3, layer=text), wrote({text: [text, text], "n": text}, 4, layer=text)):
        run.append(event)
    with MemoryView(run) as view:
        for at in range(len(view.snapshot["layers"])):
            for what in ("writes", "flows"):
                assert (
                    len(json.dumps(asked(view, what=what, layer=at, all=True), ensure_ascii=False).encode()) < 500_000
                )
            for row in asked(view, what="writes", layer=at, all=True)["rows"]:
                detail = asked(view, what="change", layer=at, at=row["key"])
                json.dumps(detail, ensure_ascii=False).encode()


def test_an_imported_recording_says_that_it_names_no_layer() -> None:
    with MemoryView(datasets.airline_run(26)) as view:
        assert "No layer is named in this recording." in view.to_text()


def test_a_layer_that_a_finished_run_does_not_name_is_refused() -> None:
    run = Run(events=[wrote({"n": 1})])
    with MemoryView(run, layer="notes") as view:
        assert "notes" in view.to_text()

    with pytest.raises(NoeticConfigError, match="UNKNOWN_LAYER_REFERENCE"):
        MemoryView(memory_run(1), layer="nobody").difference("nobody", 1)
    with pytest.raises(NoeticConfigError, match="UNKNOWN_LAYER_REFERENCE"):
        MemoryView(run, layer=["notes"])  # type: ignore[arg-type]


def test_a_chosen_turn_leads_to_the_last_change_up_to_its_end() -> None:
    run = Run(events=[wrote({"n": turn // 5}, turn) for turn in range(1, 200)])
    with MemoryView(run) as view:
        page = asked(view, what="writes", turn=52)

    assert [row["turn"] for row in page["rows"] if row["key"] == page["picked"]] == [50]


# -- while it grows ---------------------------------------------------------------------------------------------------


def test_a_write_travels_as_one_small_message_and_joins_the_snapshot(sent: list[dict[str, Any]]) -> None:
    run = Run()
    with MemoryView(run) as view:
        for turn in range(1, 6):
            run.append(wrote({"text": "x" * 50_000, "n": turn}, turn))

        assert [message["rows"] for message in sent] == [[[0, ["notes", 0, n, n, n, 0]]] for n in range(1, 6)]
        assert max([len(json.dumps(message)) for message in sent]) < 2_048
        with MemoryView(run) as whole:
            assert whole.snapshot == view.snapshot
            assert whole.to_html() == view.to_html()


# -- editing ----------------------------------------------------------------------------------------------------------


async def edits(view: MemoryView, sent: list[dict[str, Any]], **request: Any) -> dict[str, Any]:
    """Send a page's request, and wait for the result."""
    sent.clear()
    content = {"type": "get", "id": "1", "request": {"layer": 0, "asked": "a", **request}}
    view.comm.handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})
    assert await asyncio.to_thread(PAGES.wait)
    while view._works:
        await asyncio.sleep(0)
    return next((m for m in sent if m["type"] == "edited"), None) or next(m for m in sent if m["type"] == "got")


async def test_an_edit_reaches_the_harness_the_run_and_the_next_turn(sent: list[dict[str, Any]]) -> None:
    harness = memory_harness()
    await memory_turns(harness, 1, child=False)
    with MemoryView(harness) as view:
        opened = await edits(view, sent, what="edit")
        changed = json.loads(opened["text"]) | {"travellers": 5}
        saved = await edits(view, sent, what="save", token=opened["token"], text=json.dumps(changed))

        assert "Saved" in saved["done"]
        assert await harness.memory("ann").state("trip") == changed
        assert asked(view, what="writes")["rows"][0]["html"].count(">edited by hand<") == 1
        await memory_turns(harness, 1, child=False)
        assert (await harness.memory("ann").state("trip"))["travellers"] == 5
    assert view.run is recorded(harness)


@pytest.mark.parametrize(
    ("text", "code"), [("{", "INVALID_STATE"), ('{"n": NaN}', "INVALID_STATE"), ("[" * 200_000, "INVALID_STATE")]
)
async def test_what_is_no_json_is_refused_and_the_editor_stays_open(
    text: str, code: str, sent: list[dict[str, Any]]
) -> None:
    harness = memory_harness()
    await memory_turns(harness, 1, child=False)
    with MemoryView(harness) as view:
        opened = await edits(view, sent, what="edit")
        refused = await edits(view, sent, what="save", token=opened["token"], text=text)

        assert code in refused["fault"]
        assert "Saved" in (await edits(view, sent, what="save", token=opened["token"], text=opened["text"]))["done"]


async def test_a_state_that_was_written_meanwhile_is_not_overwritten(sent: list[dict[str, Any]]) -> None:
    harness = memory_harness()
    await memory_turns(harness, 1, child=False)
    with MemoryView(harness) as view:
        opened = await edits(view, sent, what="edit")
        await memory_turns(harness, 2, child=False)
        before = await harness.memory("ann").state("trip")

        refused = await edits(view, sent, what="save", token=opened["token"], text="{}")

        assert "STATE_CHANGED" in refused["fault"]
        assert await harness.memory("ann").state("trip") == before


async def test_a_layer_decides_what_it_can_read(sent: list[dict[str, Any]]) -> None:
    harness = nn.AgentHarness(
        nn.AgentConfig(name="a", step=nn.react(model="m"), memory=[nn.episodic_memory()]),
        model=nn.ScriptedModel(["Hi."]),
    )
    nn.record(harness)
    await harness.execute("Hello", thread_id="ann")
    with MemoryView(harness) as view:
        opened = await edits(view, sent, what="edit")
        before = await harness.memory("ann").state("episodic-memory")
        refused = await edits(view, sent, what="save", token=opened["token"], text='"nonsense"')

        assert "storage_failed" in refused["fault"] or "cannot read" in refused["fault"]
        assert await harness.memory("ann").state("episodic-memory") == before


async def test_a_state_with_secrets_is_not_opened_because_they_would_be_lost(sent: list[dict[str, Any]]) -> None:
    harness = memory_harness()
    await memory_turns(harness, 1, child=False)
    await harness.memory("ann").edit(
        "trip", {"city": "Rome", "visits": [], "travellers": 1, "api_key": "hunter2hunter2"}
    )
    with MemoryView(harness) as view:
        refused = await edits(view, sent, what="edit")

    assert "NOT_EDITABLE" in refused["fault"]
    assert "hunter2" not in json.dumps(refused)


async def test_a_recording_is_not_edited(sent: list[dict[str, Any]]) -> None:
    with MemoryView(Run(events=[wrote({"n": 1})])) as view:
        assert view.snapshot["editable"] is False
        assert "NOT_EDITABLE" in (await edits(view, sent, what="edit"))["fault"]


async def test_going_back_opens_a_fork(sent: list[dict[str, Any]]) -> None:
    harness = memory_harness()
    await memory_turns(harness, 2, child=False)
    with MemoryView(harness) as view:
        done = await edits(view, sent, what="rewind", turn=1)
        assert "ann@1" in done["done"]
        assert (await harness.memory("ann@1").state("trip"))["city"] == "Oslo, by train"
        assert "carried into a fork" in view.to_text()
        assert "UNKNOWN_TURN" in (await edits(view, sent, what="rewind", turn=9))["fault"]


def test_what_is_no_harness_is_refused() -> None:
    with pytest.raises(NoeticConfigError, match="NOT_A_HARNESS"):
        MemoryView(Run(), harness=3)


def test_without_a_loop_an_edit_is_made_all_the_same(sent: list[dict[str, Any]]) -> None:
    harness = memory_harness()
    nn.run_sync(memory_turns(harness, 1, child=False))
    with MemoryView(harness) as view:
        view.reading.answer({"what": "edit", "layer": 0, "asked": "a"})

    assert [message["type"] for message in sent if "token" in message] == ["edited"]


def test_two_threads_are_told_apart() -> None:
    selection = Selection()
    run = Run(events=[wrote({"n": 1}, thread="t1"), wrote({"n": 2}, thread="t2")])
    with MemoryView(run, selection=selection) as view:
        assert view.snapshot["threads"] == [["t1", "t1"], ["t2", "t2"]]
        assert "notes of thread t2" in view.to_text()
        with pytest.raises(NoeticConfigError, match="INVALID_THREAD"):
            view.difference("notes", 1)
