"""The token allocation: its picture, the items of a call, and the effect of other budgets."""

from __future__ import annotations

import json
import math
import random
import time
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ContextCompacted, ItemsAppended, ModelCalled, RequestPrepared, ViewAssembled, Where
from noetic_nb.items import input_message
from noetic_nb.lab import datasets
from noetic_nb.memory import MemoryLayer, allocate_budgets
from noetic_nb.runs import Run
from noetic_nb.runs._requests.model_calls import NO_PLANS
from noetic_nb.runs._requests.sent_request import sent_stretches
from noetic_nb.widgets import Selection, TokenAllocation
from noetic_nb.widgets._allocation.allocation_reading import AllocationReading
from noetic_nb.widgets.base._feed import Feed
from noetic_nb.widgets.base._selection import EVERYTHING
from tests.matrix import several
from tests.widgets.rows import part
from tests.widgets.scenes import demo_run, planned_run, turn


@pytest.fixture(scope="module")
def planned() -> Run:
    return planned_run()


def random_budget(rng: random.Random) -> tuple[Any, Any]:
    """Return a budget in the form of `what_if`, and in that of a layer."""
    low = rng.choice([0, rng.randrange(300), rng.random() * 300])
    high = rng.choice([math.inf, low, low + rng.randrange(400), low + 400 * rng.random()])
    as_layer = {"min": low, "max": high}
    return rng.choice([(low, high), as_layer, [low, high]]), as_layer


@pytest.mark.matrix
def test_what_if_is_the_real_allocation_in_random_cases(planned: Run) -> None:
    rng = random.Random(7)
    with TokenAllocation(planned) as view:
        recorded = {"notes": {"min": 20, "max": 60}, "policy": {"min": 0, "max": 120}}
        system = view.what_if(-1).system
        for _ in range(several(1_000, 10_000)):
            changed = {name: random_budget(rng) for name in recorded if rng.random() < 0.6}
            total = rng.choice([None, rng.randrange(3_000), 3_000 * rng.random()])
            reserve = rng.choice([None, rng.randrange(500)])
            layers = [
                MemoryLayer(id=name, slot=0, scope="thread", budget=changed[name][1] if name in changed else budget)
                for name, budget in recorded.items()
            ]

            plan = view.what_if(-1, {name: pair[0] for name, pair in changed.items()}, total, reserve)

            assert plan.budgets == allocate_budgets(
                layers,
                total_budget=900 if total is None else total,
                system_prompt_tokens=system,
                response_reserve=150 if reserve is None else reserve,
            )
            for used in plan.layers:
                assert used.used <= used.allocated


def test_what_if_with_nothing_changed_is_what_was_sent(planned: Run) -> None:
    with TokenAllocation(planned) as view:
        for call, sent in enumerate(planned.select(nn.events.ViewAssembled)):
            plan = view.what_if(call)
            assert plan.as_event(sent.where, sent.t_ms, sent.step, duration_ms=sent.duration_ms) == sent


def test_a_call_is_named_by_its_place_from_either_end_or_by_its_event(planned: Run) -> None:
    with TokenAllocation(planned) as view:
        called = planned.select(ModelCalled)[1]

        assert view.what_if(1) == view.what_if(-5) == view.what_if(called) != view.what_if(2)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"call": 6}, "UNKNOWN_CALL"),
        ({"call": -7}, "UNKNOWN_CALL"),
        ({"call": True}, "UNKNOWN_CALL"),
        ({"call": 0, "thread_id": "nobody"}, "UNKNOWN_CALL"),
        ({"budgets": {"note": 5}}, "UNKNOWN_LAYER_REFERENCE"),
        ({"budgets": 5}, "INVALID_BUDGET"),
        ({"budgets": {"notes": (50, 10)}}, "INVALID_BUDGET"),
        ({"budgets": {"notes": -1}}, "INVALID_BUDGET"),
        ({"budgets": {"notes": math.nan}}, "INVALID_BUDGET"),
        ({"budgets": {"notes": (math.nan, 9)}}, "INVALID_BUDGET"),
        ({"budgets": {"notes": "much"}}, "INVALID_BUDGET"),
        ({"total": -1}, "INVALID_PROJECTION"),
        ({"total": math.nan}, "INVALID_PROJECTION"),
        ({"total": "900"}, "INVALID_PROJECTION"),
        ({"total": True}, "INVALID_PROJECTION"),
        ({"reserve": -1}, "INVALID_PROJECTION"),
        ({"reserve": math.nan}, "INVALID_PROJECTION"),
        ({"total": math.inf, "reserve": math.inf}, "INVALID_BUDGET_INPUT"),
    ],
)
def test_what_makes_no_sense_is_refused(planned: Run, given: dict[str, Any], code: str) -> None:
    with TokenAllocation(planned) as view, pytest.raises(NoeticConfigError) as caught:
        view.what_if(**{"call": 0, **given})

    assert caught.value.code == code


def test_a_call_whose_plan_was_not_recorded_says_what_is_missing() -> None:
    with (
        TokenAllocation(demo_run()) as view,
        pytest.raises(NoeticConfigError, match="instructions, tools and budgets") as caught,
    ):
        view.what_if(0)

    assert caught.value.code == "NOT_RECORDED"


def test_a_page_learns_what_would_be_left_out_and_what_would_come_back(planned: Run) -> None:
    with TokenAllocation(planned) as view:
        ask = view.reading.answer
        settings = ask({"what": "settings", "at": 5})

        more = ask({"what": "what_if", "at": 5, "budgets": {"0": [20, 200]}, "total": 1_400})
        less = ask({"what": "what_if", "at": 5, "budgets": {"1": [0, 0]}, "total": 400})

    assert [row[1:] for row in settings["layers"]] == [["notes", 20, 60], ["policy", 0.0, 120]]
    assert (settings["total"], settings["reserve"]) == (900, 150)
    (returned,), (dropped,) = more["changes"], less["changes"]
    assert (returned["key"], dropped["key"]) == ("returned", "dropped")
    assert "She would rather not" in part(returned, "nn-list nn-items")
    listed = dropped["html"].count("<li>") + int(
        "0" + part(dropped, "nn-note").removeprefix("and ").removesuffix(" more")
    )
    assert part(dropped, "nn-change").startswith(f"{listed} items would be left out")
    assert json.loads(json.dumps([settings, more, less], allow_nan=False)) == [settings, more, less]


def test_a_dragged_budget_draws_every_call_as_it_would_be_planned(planned: Run) -> None:
    rng, changed, views = random.Random(3), 0, planned.select(ViewAssembled)
    with TokenAllocation(planned) as view:
        reading: Any = view.reading
        picture = reading.picture(range(6))
        assert picture["handles"]["total"]["values"][picture["handles"]["total"]["at"]] == 900
        names = ["system", "layer:notes", "layer:policy", "framing", "user", "assistant"]
        for _ in range(60):
            total = rng.choice([None, 900, rng.randrange(100, 2_000)])
            most = {name: rng.choice([None, 5, 60, 300]) for name in ("0", "1") if rng.random() < 0.5}
            asked = {"first": 0, "last": 5, "budgets": {key: [0, high] for key, high in most.items()}}
            asked |= {} if total is None else {"total": total}
            budgets = {
                ("notes", "policy")[int(key)]: (0, math.inf if high is None else high) for key, high in most.items()
            }
            plans = [view.what_if(at, budgets, total) for at in range(6)]
            again = [plan.as_event(was.where, was.t_ms, was.step) for plan, was in zip(plans, views, strict=True)]

            found, known = (reading.answer({"what": what, **asked}) for what in ("drag", "known_until"))

            parts = [
                reading.parts.planned(request, each, sent_stretches(each))
                for request, each in zip(reading.requests(), again, strict=True)
            ]
            assert found["rows"] == [[*[each.get(name, 0) for name in names], 0] for each in parts]
            differ = [at for at, plan in enumerate(plans) if [*plan.items] != [*view.what_if(at).items]]
            assert known["at"] == (differ[0] if differ else None)
            assert ("known to the end" in known["text"]) == (not differ)
            changed += bool(differ)
    assert 10 < changed < 60


def test_a_call_that_cannot_be_planned_again_has_no_handles_and_stays_as_it_was() -> None:
    with TokenAllocation(demo_run()) as view:
        reading: Any = view.reading
        asked = {"first": 0, "last": reading.total - 1, "total": 50}
        assert reading.picture(range(reading.total))["handles"] == {}
        assert reading.answer({"what": "drag", **asked}) == {
            "rows": [None] * reading.total,
            "text": "The same items would be sent.",
        }


def test_a_page_that_asks_for_what_is_not_there_is_told(planned: Run) -> None:
    with TokenAllocation(planned) as view:
        for request in (
            {"what": "call", "at": 6}, {"what": "items", "at": -1}, {"what": "settings"}, {"what": "picture", "first": 0},
            {"what": "what_if", "at": 0, "budgets": {"9": [0, 1]}}, {"what": "what_if", "at": 0, "budgets": {"0": [5]}},
            {"what": "what_if", "at": 0, "total": -3}, {"what": "text", "at": 0, "key": 9}, {"what": "else"}, {},
        ):  # fmt: skip
            with pytest.raises(NoeticConfigError):
                view.reading.answer(request)


def asked_rows(reading: Any, at: int, parts: list[str | int]) -> Any:
    return reading.answer({"what": "items", "at": at, "parts": parts})


def test_a_band_lists_the_items_that_its_tokens_are_of(planned: Run) -> None:
    with TokenAllocation(planned) as view:
        reading: Any = view.reading
        bands = reading.picture(range(reading.total))["bands"]
        for at, request in enumerate(reading.requests()):
            tokens = list(reading.parts.call(request).parts.values())
            heads = [asked_rows(reading, at, band)["head"] for band in bands]
            assert [int(head.split(", ")[1].split()[0].replace(",", "")) for head in heads if head[0] != "0"] == tokens
        notes = asked_rows(reading, 5, [0])
        asked = asked_rows(reading, 5, ["user"])

    assert bands == [["system"], [0], [1], ["framing"], ["user"], ["assistant"]]
    assert [part(row, "nn-t-why") for row in notes["rows"]] == ["", "", "Not sent: over the layer's allocation."]
    assert [(row["item"], row["sent"]) for row in asked["rows"]] == [(at, at >= 4) for at in range(0, 12, 2)]
    assert part(asked["rows"][5], "nn-t-words") == "Question 6: is there a later flight to Oslo that day?"


def test_the_bands_of_a_call_of_others_list_its_conversation_without_what_was_compacted() -> None:
    where = Where("t", "e", 1)
    texts = [input_message(f"question {at}") for at in range(4)]
    run = Run()
    run.append(ItemsAppended(where, 0.0, 0, tuple(texts), "input"))
    run.append(ContextCompacted(where, 2.0, "claude-code", items=(input_message("in short"),), replaced=((0, 3),)))
    run.append(ModelCalled(where, 3.0, 1, "m", "agent", 1.0, "ok", (), 0, 3))
    with TokenAllocation(run) as view:
        user, rest = (asked_rows(view.reading, 0, [name]) for name in ("user", "rest"))

    assert [(part(row, "nn-t-words"), row["sent"]) for row in user["rows"]] == [
        (f"question {at}", at == 3) for at in range(4)
    ]
    assert part(user["rows"][0], "nn-t-why") == "Not sent: replaced by a compaction."
    assert [part(row, "nn-t-words") for row in rest["rows"]] == ["in short"]


def test_a_band_of_many_items_lists_the_last_and_gives_a_long_text_whole() -> None:
    where = Where("t", "e", 1)
    texts = [*[f"note {at}" for at in range(150)], "a long text\n" * 50]
    run = Run()
    run.append(ItemsAppended(where, 0.0, 0, tuple(map(input_message, texts)), "input"))
    run.append(ModelCalled(where, 3.0, 1, "m", "agent", 1.0, "ok", (), 0, 3))
    with TokenAllocation(run) as view:
        found = asked_rows(view.reading, 0, ["user"])
        last = found["rows"][-1]
        whole = view.reading.answer({"what": "text", "at": 0, "parts": ["user"], "key": last["key"]})

    assert (len(found["rows"]), part(found["rows"][0], "nn-t-words")) == (100, "note 51")
    assert "151 items" in found["head"]
    assert "the last 100 shown" in found["head"]
    assert (part(last, "nn-t-more"), whole) == ("Show all 50 lines", texts[-1])


def test_a_shared_selection_moves_the_view_to_a_call_or_to_a_turn(planned: Run) -> None:
    selection = Selection()
    with TokenAllocation(planned, selection=selection) as view:
        selection.select(call=2)
        assert (view.position, view.follow) == (2, False)
        assert "Turn 3, call 1" in view.to_text()

        selection.select(turn=5)
        assert view.position == 4
        selection.select(turn=99)
        assert view.position == 4


def test_the_place_of_a_call_is_that_among_all_calls_of_the_run_also_where_one_thread_is_shown() -> None:
    run = Run()
    for number in range(1, 4):
        for thread in ("a", "b"):
            for event in turn(number, thread=thread):
                run.append(event)

    with TokenAllocation(run, thread_id="b") as view:
        assert [call["place"] for call in view.snapshot["calls"]] == [1, 3, 5]


def test_a_request_that_was_never_sent_is_no_model_call() -> None:
    with TokenAllocation(demo_run()) as view:  # three of its nine requests were directly followed by another
        assert [call["place"] for call in view.snapshot["calls"]] == [None, 0, 1, None, 2, 3, None, 4, 5]


def test_a_page_that_chose_is_not_moved_and_other_views_are() -> None:
    selection = Selection()
    with (
        TokenAllocation(demo_run(), selection=selection) as one,
        TokenAllocation(demo_run(), selection=selection) as two,
    ):
        one.position, one.follow = 6, False
        one._handle_custom_msg({"type": "select", "id": "p1", "turn": 5, "call": 4}, [])

        assert (one.position, two.position) == (6, 7)


@pytest.mark.matrix
def test_the_picture_of_thousands_of_calls_stays_small_and_its_messages_do_not_grow() -> None:
    reading = AllocationReading()
    reading.begin()
    feed = Feed(reading, EVERYTHING)
    sizes = []
    began = time.process_time()
    calls = several(2_000, 10_000)
    for number in range(1, calls + 1):
        for event in turn(number, history=number % 97):
            feed.take(event)
        message = reading.growth()
        assert message is not None
        assert message["type"] == "calls"
        sizes.append(len(json.dumps(message)))
    reading.begin()
    spent = time.process_time() - began

    picture = reading.snapshot["picture"]
    assert (picture["last"], picture["size"], picture["start"]) == (400, calls // 400, 0)
    assert len(json.dumps(reading.snapshot)) < 1_000_000
    assert max(sizes[1:]) < sizes[1] + 100
    print(f"{calls} calls read in {spent:.2f} s, the picture has {len(json.dumps(picture)):,} characters")
    part = reading.answer({"what": "picture", "first": 100, "last": 149})
    assert (part["last"], part["size"], part["start"]) == (50, 1, 100)
    assert part["stops"][0][2].startswith("Call 101, turn 101: ")
    assert reading.answer({"what": "call", "at": 3})["turn"] == 4


def test_a_run_of_others_has_the_picture_on_a_page_too() -> None:
    reading = AllocationReading(run=(run := datasets.airline_run(26)))
    feed = Feed(reading, EVERYTHING)
    early, late = run.events[:20], run.events[20:]
    feed.take_all(early)
    reading.begin()
    known = reading.snapshot["plain"]
    messages = [message for event in late for _ in [feed.take(event)] if (message := reading.growth()) is not None]

    called = [event for event in run.select(ModelCalled) if event.purpose == "agent"]
    assert 0 < known < len(called) == reading.snapshot["plain"] == reading.total
    assert messages == [{"type": "plain", "count": at, "text": NO_PLANS} for at in range(known + 1, len(called) + 1)]
    picture = reading.answer({"what": "picture", "first": 0, "last": len(called) - 1})
    bands = [f"band-{at}" for at in range(len(picture["bands"]))]
    tops = [
        max(points[3] for band in bands for points, *_ in picture["marks"][band] if points[0] == at)
        for at in range(len(called))
    ]
    assert tops == [event.input_tokens for event in called]
    assert "parts estimated from the texts" in picture["captions"]["context"]
    call = reading.answer({"what": "call", "at": 3})
    assert (call["place"], call["thread"]) == (3, called[3].where.thread_id)
    assert f"{called[3].input_tokens:,} tokens (parts estimated)" in call["plain"]
    assert reading.at_of({"call": 3, "turn": None, "thread_id": None}) == 3


def test_an_agent_that_goes_on_with_a_run_of_others_shows_its_own_calls() -> None:
    reading = AllocationReading(run=(run := datasets.airline_run(26)))
    feed = Feed(reading, EVERYTHING)
    feed.take_all(run.events)
    reading.begin()
    for event in turn(1):
        feed.take(event)
    reading.growth()

    assert (reading.total, reading.snapshot["plain"], len(reading.snapshot["calls"])) == (1, 0, 1)
    assert reading.answer({"what": "picture", "first": 0, "last": 0})["last"] == 1


def billed_run(reported: int) -> Run:
    """Return one call that was planned at 200 tokens."""
    where = Where("t", "e", 1)
    run = Run("billed")
    view = ViewAssembled(where, 0.0, 0, (0, 1), (), (), (), 1_000, 100, 50, 30, 0, 120, 900, 1)
    run.append(
        RequestPrepared(
            where, 0.0, "s", "m", "", (), {}, None, "truncate", None, (), "o200k_base", tokenizer_error=0.005
        )
    )
    run.append(view)
    run.append(ModelCalled(where, 1.0, 0, "m", "agent", 1.0, "ok", (), reported, 3))
    return run


@pytest.mark.parametrize(
    ("reported", "row", "said"),
    [
        (260, ["60"], "Billed 260 input tokens, 60 of them unexplained (23 %)."),
        (190, ["−10"], "Billed 190 input tokens, 10 fewer than planned (5.3 %)."),
        (200, [], "Billed 200 input tokens, 0 of them unexplained (0 %)."),
        (0, [], "Planned only: the model reported no usage."),
        (600, ["400"], "Billed 600 input tokens, 400 of them unexplained (67 %): planned is off by more than half."),
    ],
    ids=["more", "less", "the same", "nothing", "far more"],
)
def test_what_was_billed_and_not_planned_is_a_part_of_its_own(reported: int, row: list[str], said: str) -> None:
    with TokenAllocation(billed_run(reported)) as view:
        call = view.snapshot["calls"][0]

        assert [words for key, _, words in call["rows"] if key == "unexplained"] == row
        (table,) = view.reading.answer({"what": "table", "at": 0})
        assert table["html"] in view.reading.to_html()
        assert [bar[2] for bar in call["bars"][0] if bar[0] == "unexplained"] == [
            cell for cell in row if cell[0] != "−"
        ]
        assert call["counted"] == f"Counted by o200k_base (known error 0.5 %). {said}"
        assert said in view.to_text()
        assert said in view.to_html()


def test_a_call_is_drawn_again_when_it_is_billed() -> None:
    reading = AllocationReading()
    reading.begin()
    feed = Feed(reading, EVERYTHING)
    events = billed_run(260).events
    messages = [message for event in events for _ in [feed.take(event)] if (message := reading.growth()) is not None]

    assert [(message["type"], message["at"]) for message in messages] == [("calls", 0)] * 2
    (planned,), (billed,) = [message["calls"] for message in messages]
    assert planned["counted"] == ""
    assert [billed] == reading.snapshot["calls"]
    assert {("unexplained", "60"), ("free", "640")} < {(key, tokens) for key, _, tokens, *_ in billed["bars"][0]}
    assert planned["caching"] != ""


def test_calls_read_at_once_are_one_message_that_draws_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = AllocationReading()
    reading.begin()
    feed = Feed(reading, EVERYTHING)
    drawn: list[int] = []
    draw = AllocationReading._drawn_call
    monkeypatch.setattr(AllocationReading, "_drawn_call", lambda self, at: drawn.append(at) or draw(self, at))
    for event in (*turn(1), *turn(2), *turn(3)):
        assert feed.take(event) is None
    message = reading.growth()

    assert message is not None
    assert (message["at"], len(message["calls"])) == (0, 3)
    assert drawn == [0, 1, 2]
    assert reading.growth() is None


def test_the_table_of_an_agent_without_layers_has_the_parts_of_its_calls() -> None:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", instructions="Be brief."))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Yes."]))
    run = nn.record(harness)
    nn.run_sync(harness.execute("Is it here?"))

    with TokenAllocation(run) as view:
        frame = view.to_frame()
        assert view.to_csv().splitlines()[0] == "call,part,tokens,estimated"
    (planned,) = run.to_frame("tokens").planned

    assert frame.part.tolist() == ["system", "user"]
    assert frame.tokens.sum() == planned
    assert not frame.estimated.any()
