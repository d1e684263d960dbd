"""The reading behind the transcript: calls, requests, differences, outcomes, and the requests of pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    ContextCompacted,
    ErrorRaised,
    ItemFate,
    ItemsAppended,
    LayerTokens,
    ModelCalled,
    RegulatorDecided,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    ViewAssembled,
    Where,
)
from noetic_nb.items import Item, assistant_message, function_call, input_message
from noetic_nb.runs import Run
from noetic_nb.runs._requests.recorded_requests import CallBook
from noetic_nb.widgets import Selection, Transcript
from noetic_nb.widgets._transcript.call_content import folded
from noetic_nb.widgets._transcript.call_outcome import outcome_lines
from noetic_nb.widgets._transcript.request_rows import RequestRow, request_diff
from noetic_nb.widgets._transcript.transcript import PAGE_ROWS, TranscriptReading
from tests.widgets.rows import part as text_of
from tests.widgets.scenes import run_of_events
from tests.widgets.transcript_scenes import desk_run, hostile_transcript, imported_run, large_request, many_calls
from tests.widgets.views import watching

HERE = Where("t1", "e1", 1)
CHILD = Where("t1", "e2", 1, 1)


@pytest.fixture(scope="module")
def desk() -> Run:
    return desk_run()


def asked(where: Where = HERE, *items: Any, **known: Any) -> ModelCalled:
    return ModelCalled(where, 1.0, 0, "m", known.pop("purpose", "agent"), 5.0, "ok", items, **known)


def decided(hook: str = "before_tool_call", action: Any = "deny", where: Where = HERE) -> SteeringDecided:
    rules = () if action == "allow" else ("r1",)
    return SteeringDecided(where, 1.0, "steering", hook, "pay", {}, action, None if not rules else "No.", rules, 0.1)


def book_of(*events: RunEvent) -> CallBook:
    book, calls = CallBook(), 0
    for seq, event in enumerate(events):
        is_call = isinstance(event, ModelCalled) and event.purpose == "agent"
        book.take(event, seq, calls if is_call else None)
        calls += is_call
    return book


def paid(call_id: str = "c1", status: Any = "ok", where: Where = HERE) -> ToolCalled:
    return ToolCalled(where, 2.0, "pay", call_id, {"amount": 3}, "done", 1.0, status)


def row(text: str, item_id: str | None = None, **known: Any) -> RequestRow:
    return RequestRow(known.pop("origin", "history"), "user", text, item_id=item_id, **known)


# Calls and outcomes


def test_judges_and_layers_are_no_calls_of_the_agent() -> None:
    book = book_of(asked(purpose="judge"), asked(), asked(purpose="summary"))

    assert [record.seq for record in book.calls] == [1]


def test_what_follows_a_call_is_its_own_until_the_next_request_of_that_execution() -> None:
    view = ViewAssembled(HERE, 0.0, 0, (0, 0), (), (), (), 9.0, 0.0, 0, 0, 0, 0, 0.0, 0)
    book = book_of(
        asked(), asked(CHILD), paid(), paid(where=CHILD), view, decided(), asked(), decided("after_model_call")
    )

    assert [[seq for seq, _ in record.after] for record in map(book.shown, range(3))] == [[2], [3], [7]]
    assert [seq for seq, _ in book.shown(2).before] == [5]
    assert [book.of_decision(seq) for seq in (5, 7, 99)] == [2, 2, None]


def test_a_decision_stands_behind_the_call_that_it_is_about_and_before_its_result() -> None:
    answer = (
        assistant_message("I pay."),
        function_call("pay", '{"amount": 3}', "c1"),
        function_call("pay", "{}", "c2"),
    )
    stopped = RegulatorDecided(HERE, 2.0, "regulation", "tool_call", {"kind": "continue"})
    book = book_of(
        asked(HERE, *answer), decided("after_model_call", "allow"), decided(), stopped, paid("c1", "denied"), paid("c2")
    )

    lines = outcome_lines(book.shown(0))

    assert [(line.kind, line.level, line.is_quiet) for line in lines] == [
        ("message", 0, False),
        ("steering", 0, True),
        ("call", 0, False),
        ("steering", 1, False),
        ("regulator", 1, True),
        ("result", 1, False),
        ("call", 0, False),
        ("result", 1, False),
    ]
    assert lines[3].heading == "steering denied by r1"
    assert (lines[3].text, lines[3].seq, lines[5].tone) == ("No.", 2, "deny")


def test_a_call_that_was_never_made_and_one_that_code_made_are_told_apart() -> None:
    book = book_of(asked(HERE, function_call("pay", "{}", "c1")), paid("by-code"))

    headings = [line.heading for line in outcome_lines(book.shown(0))]

    assert headings == ["pay (called by code)", "Result: ok, 1 ms", "pay", "Not run, as far as is recorded"]


def test_a_call_that_failed_shows_its_error() -> None:
    failed = ModelCalled(HERE, 1.0, 0, "m", "agent", 2_500.0, "error", error="Too many requests.")
    book = book_of(failed, ErrorRaised(HERE, 1.0, "llm_failed", "The model failed."))

    assert [(line.tone, line.text) for line in outcome_lines(book.shown(0))] == [
        ("error", "Too many requests."),
        ("error", "The model failed."),
    ]


# Differences


def test_an_item_is_known_by_its_id_then_by_its_text() -> None:
    others = [
        row("You are kind.", origin="system"),
        row("a", "1"),
        row("b", "2"),
        row("note", "x", origin="layer", layer="n"),
    ]
    rows = [
        row("You are brief.", origin="system"),
        row("note", "y", origin="layer", layer="n"),
        row("b!", "2"),
        row("c", "3"),
    ]

    found = [(each.row.text, each.change, each.own) for each in request_diff(rows, others)]

    assert found == [
        ("You are brief.", "changed", True),
        ("a", "removed", False),
        ("note", "", True),
        ("b!", "changed", True),
        ("c", "added", True),
    ]


def test_what_is_absent_counts_as_not_there() -> None:
    here, gone = row("a", "1"), row("a", "1", is_sent=False, reason="over_budget")

    assert [each.change for each in request_diff([here], [gone])] == ["added"]
    assert [each.change for each in request_diff([gone], [here])] == ["removed"]
    assert [each.change for each in request_diff([gone], [gone])] == [""]
    assert [each.row for each in request_diff([], [gone])] == []


def test_a_request_does_not_differ_from_itself(desk: Run) -> None:
    with Transcript(desk) as opened:
        reading = opened.reading
        for at in range(len(reading.book.calls)):
            assert reading.call(at, at).difference.startswith("No difference against")


def test_going_back_and_forth_swaps_added_and_removed(desk: Run) -> None:
    with Transcript(desk) as opened:
        forth = [each for each in opened.reading.call(6, 5).rows if each.change]
        back = [each for each in opened.reading.call(5, 6).rows if each.change]

    swapped = {"added": "removed", "removed": "added", "changed": "changed"}
    assert sorted((each.change, each.row.role) for each in forth) == sorted(
        (swapped[each.change], each.row.role) for each in back
    )


# The request


def test_rows_of_a_request_add_up_to_what_was_sent(desk: Run) -> None:
    with Transcript(desk) as opened:
        for record in opened.reading.book.calls:
            view = record.view
            assert view is not None
            sent = view.system + view.tools + view.framing + view.history + sum(layer.used for layer in view.layers)
            opened.position = record.number
            table = opened.to_frame()
            assert table[table["sent"]]["tokens"].sum() == sent


def test_an_absent_item_stands_in_its_place_with_its_reason_and_the_smallest_budget(desk: Run) -> None:
    with Transcript(desk) as opened:
        table = opened.to_frame()

    absent = table[~table["sent"]]
    assert absent[["origin", "reason", "smallest_budget", "budget_of"]].to_numpy().tolist() == [
        ["layer:profile", "over_allocation", 109.0, "layer:profile"],
        ["layer:profile", "over_allocation", 1382.0, "total; layer:profile 194"],
        ["history", "over_budget", 979.0, "total"],
        ["history", "over_budget", 864.0, "total"],
        ["tool", "over_budget", 864.0, "total"],
        ["history", "over_budget", 782.0, "total"],
    ]
    # After its layer's sent items, and before the sent history.
    origins = [origin for origin in table["origin"] if origin not in ("system", "tools")]
    assert origins[:7] == [*["layer:profile"] * 4, "layer:mood", "framing", "history"]
    assert table["place"].tolist() == list(range(len(table)))
    assert list(table.columns) == [
        "place", "origin", "role", "tool", "tokens", "sent", "reason", "smallest_budget", "budget_of", "text",
    ]  # fmt: skip


def test_an_imported_run_shows_the_conversation_and_says_what_it_does_not_have() -> None:
    with Transcript(imported_run()) as opened:
        text, table = opened.to_text(), opened.to_frame()

    assert text.count("This run does not have its requests") == 1
    assert table["text"].tolist() == [
        "You book flights.",
        "Find me a flight to Rome.",
        '{"to": "FCO"}',
        '{"flights": ["AZ 610"]}',
    ]
    assert table["tool"].tolist() == ["", "", "find", "find"]
    assert table["sent"].all()


def test_a_run_of_an_earlier_version_says_that_its_instructions_are_not_there() -> None:
    items = tuple(input_message(f"m{at}", item_id=f"i{at}") for at in range(4))
    fates = (ItemFate("history", 3, 9, "unresolved_call"), ItemFate("layer:notes", 1, 40, "over_allocation"))
    notes = (LayerTokens("notes", 50.0, 5, 45.0, 1),)
    view = ViewAssembled(
        HERE, 0.0, 0, (2, 4), fates, notes, (("notes", items[0]),), 99.0, 0.0, 7, 0, 5, 30, 50.0, 1, floor=1
    )
    run = run_of_events([ItemsAppended(HERE, 0.0, 0, items, "user"), view, asked()])

    with Transcript(run) as opened:
        table, text = opened.to_frame(), opened.to_text()

    assert "does not contain the instructions" in text
    absent = table[~table["sent"]]
    assert absent["reason"].tolist() == ["over_allocation", "outside_window", "over_budget", "unresolved_call"]
    assert absent["smallest_budget"].isna().all()
    assert table["tokens"].tolist()[0] == 7


def test_secrets_are_nowhere() -> None:
    secret = "sk-proj-" + "a1B2c3D4" * 5
    items = (input_message(f"My key is {secret}", item_id="i0"),)
    run = run_of_events(
        [
            ItemsAppended(HERE, 0.0, 0, items, "user"),
            asked(HERE, assistant_message(f"Your key is {secret}")),
            ToolCalled(HERE, 1.0, "pay", "c", {"password": "hunter2hunter2"}, secret, 1.0, "ok"),
        ]
    )
    with Transcript(run) as opened:
        page = opened.reading.answer({"what": "call", "at": 0})
        whole = opened.reading.answer({"what": "text", "at": 0, "key": 0})
        shown = json.dumps([page, whole, opened.to_html(), opened.to_text(), opened.to_frame()["text"].tolist()])

    assert secret not in shown
    assert "hunter2hunter2" not in shown


# Choosing the call


def test_a_call_is_named_by_its_place_from_either_end_or_by_its_event(desk: Run) -> None:
    event = [event for event in desk.events if isinstance(event, ModelCalled)][2]
    for call in (2, -5, event):
        with Transcript(desk, call=call) as opened:
            assert (opened.position, opened.follow) == (2, False)
            assert "Turn 2, call 1" in opened.to_text()


@pytest.mark.parametrize("call", [7, -8, True, "2", 1.0])
def test_a_call_that_is_not_there_is_refused_and_nothing_stays_open(desk: Run, call: Any) -> None:
    before = watching(desk)

    with pytest.raises(NoeticConfigError) as caught:
        Transcript(desk, call=call)

    assert caught.value.code == "UNKNOWN_CALL"
    assert watching(desk) == before


def test_with_a_thread_a_call_is_counted_in_it() -> None:
    run = run_of_events([asked(), asked(Where("t2", "e3", 1)), asked(Where("t2", "e3", 1))])

    with Transcript(run, thread_id="t2", call=1) as opened:
        assert opened.reading.book.calls[opened.position].number == 2
    with pytest.raises(NoeticConfigError):
        Transcript(run, thread_id="t2", call=2)


def test_a_moment_hides_what_came_later(desk: Run) -> None:
    with Transcript(desk, until=2) as opened:
        assert "Turn 2, call 2" in opened.to_text()
    with Transcript(desk, turn=3) as opened:
        assert [row[1] for row in opened.snapshot["calls"]] == [3, 3]
        # The earlier history is still known, because it was sent.
        assert "Will it be here by Friday?" in opened.to_html()


def test_a_selection_of_any_kind_brings_its_call(desk: Run) -> None:
    selection = Selection()
    seq = next(
        at for at, event in enumerate(desk.events) if isinstance(event, SteeringDecided) and event.action == "deny"
    )
    with Transcript(desk, selection=selection) as opened:
        for fields, position in (
            ({"call": 1}, 1),
            ({"turn": 2}, 3),
            ({"decision": seq}, 4),
            ({"item": 2}, 4),
            ({"call": 99}, 4),
        ):
            selection.select(**fields)
            assert opened.position == position, fields
    with Transcript(desk, selection=selection) as opened:
        assert opened.follow
    selection.select(call=2)
    with Transcript(desk, selection=selection) as opened:
        assert (opened.position, opened.follow) == (2, False)


# Requests of pages


def test_a_page_is_sent_a_choice_before_the_call_that_it_leads_to(desk: Run, sent: list[dict[str, Any]]) -> None:
    denied = next(at for at, event in enumerate(desk.events) if getattr(event, "action", None) == "deny")
    selection = Selection()
    with Transcript(desk, selection=selection) as opened:
        selection.select(call=0)
        sent.clear()
        selection.select(decision=denied)

        # In the opposite order, a page that has not drawn the first selection yet would go back to its call.
        assert [message["type"] for message in sent if message["type"] in ("selected", "show")] == ["selected", "show"]
        assert sent[-1]["at"] == opened.position > 0


def test_the_index_of_ten_thousand_calls_is_light_and_a_call_is_a_page() -> None:
    run = many_calls()
    with Transcript(run) as opened:
        assert len(json.dumps(opened.snapshot)) < 400_000
        page = opened.reading.answer({"what": "call", "at": 9_999})

    assert len(json.dumps(page)) < 20_000
    assert any(row.get("fold") is not None for row in page["rows"])


def test_a_large_request_is_paged_and_an_item_is_found_in_its_page() -> None:
    with Transcript(large_request()) as opened:
        first = opened.reading.answer({"what": "call", "at": 0})
        found = opened.reading.answer({"what": "call", "at": 0, "item": 777})
        last = opened.reading.answer({"what": "call", "at": 0, "first": 10**9})

    assert (len(first["rows"]), first["total"]) == (PAGE_ROWS, 1_003)
    assert found["first"] == 700
    assert found["rows"][79]["item"] == 777
    assert last["first"] == 1_000


def test_a_folded_item_is_unfolded_when_it_is_wanted() -> None:
    with Transcript(many_calls(100)) as opened:
        folded_page = opened.reading.answer({"what": "call", "at": 99})
        page = opened.reading.answer({"what": "call", "at": 99, "item": 7})
        again = opened.reading.answer({"what": "call", "at": 99, "open": page["open"], "first": page["first"]})

    assert folded_page["total"] < 20 < page["total"] == again["total"]
    assert [row["item"] for row in page["rows"] if row.get("key") == page["wanted"]] == [7]


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"what": "call", "at": 99},
        {"what": "call", "at": -1},
        {"what": "call", "at": True},
        {"what": "call", "at": 0, "against": 99},
        {"what": "call", "at": 0, "against": "constructor"},
        {"what": "text", "at": 0, "key": "constructor"},
        {"what": "text", "at": 0, "key": 10_000},
        {"what": "text", "at": 0, "key": "a99"},
        {"what": "budget", "at": 0, "key": 10_000},
    ],
)
def test_what_cannot_be_answered_is_refused(desk: Run, request_: dict[str, Any]) -> None:
    with Transcript(desk) as opened, pytest.raises(NoeticConfigError):
        opened.reading.answer(request_)


def test_all_of_a_text_is_there_by_its_key(desk: Run) -> None:
    with Transcript(desk) as opened:
        reading = opened.reading
        assert '"properties"' in reading.answer({"what": "text", "at": 0, "key": 1})
        assert "3 times" in reading.answer({"what": "text", "at": 6, "key": "w7", "against": 5})
        assert reading.answer({"what": "text", "at": 1, "key": "a0"}) == "Order A17 is packed and due on 14 March."
        asked = {"what": "call", "at": 6}
        before = next(row for row in reading.answer(asked)["rows"] if row["key"] == 5)
        row = reading.answer({"what": "budget", "at": 6, "key": 5})
        assert text_of(row, "nn-t-why").startswith(f"{text_of(before, 'nn-t-why')} A maximum of 109 tokens")
        assert (before["remedy"], row["remedy"]) == (True, False)
        assert row in reading.answer(asked)["rows"]


def test_a_live_run_sends_small_messages_and_ends_as_a_loaded_one(desk: Run) -> None:
    live, sent = Run(run_id="live"), []
    with Transcript(live) as opened, Transcript(desk) as whole:
        opened.send = lambda message, *_: sent.append(message)
        for event in desk.events:
            live.append(event)
        assert opened.to_html() == whole.to_html()
        assert opened.snapshot == whole.snapshot

    assert [message["at"] for message in sent if message["type"] == "call"] == list(range(7))
    assert max(len(json.dumps(message)) for message in sent) < 400


@pytest.mark.parametrize("bad", ["next", 99, 1.5, [1]])
def test_a_comparison_with_nothing_is_refused(desk: Run, bad: Any) -> None:
    with Transcript(desk) as opened, pytest.raises(NoeticConfigError) as caught:
        opened.compare_with = bad
    assert caught.value.code == "UNKNOWN_CALL"


def test_before_any_call_there_is_a_table_without_rows() -> None:
    with Transcript(Run()) as opened:
        table = opened.to_frame()

    assert len(table) == 0
    assert table["tokens"].dtype == "float64"


def test_hostile_texts_are_data_in_every_answer() -> None:
    with Transcript(hostile_transcript()) as opened:
        page = opened.reading.answer({"what": "call", "at": 0})
        json.dumps(page).encode()
        page_of_all = opened.to_html()

    assert "<script" not in page_of_all.lower()
    assert "<img" not in page_of_all.lower()
    assert any(text_of(row, "nn-t-origin") == "__proto__" for row in page["rows"])


def test_a_text_is_folded_by_lines_and_by_length() -> None:
    assert folded("a\n" * 8) == ("a\n" * 7 + "a", "")
    assert folded("line\n" * 9) == ("line\n" * 7 + "line…", "9 lines")
    head, more = folded("x" * 5_000)
    assert (len(head) < 500, more) == (True, "5,000 characters")


def test_a_reading_of_nothing_knows_no_call() -> None:
    with pytest.raises(NoeticConfigError):
        TranscriptReading().answer({"what": "call", "at": 0})


# Compactions


def compacted(where: Where = HERE, **known: Any) -> ContextCompacted:
    return ContextCompacted(where, 2.0, "codex", tokens_before=31_900, tokens_after=2_735, trigger="auto", **known)


def test_a_compaction_stands_before_the_next_call_of_its_thread_and_until_then_behind_the_last() -> None:
    later = Where("t1", "e9", 2)
    events = [asked(), compacted(), asked(CHILD), asked(Where("t2", "e3", 1))]
    waits, done = book_of(*events), book_of(*events, asked(later))

    assert [type(event) for _, event in waits.shown(0).after] == [ContextCompacted]
    assert done.shown(0).after == []
    assert [type(event) for _, event in done.shown(len(done.calls) - 1).before] == [ContextCompacted]
    assert not any(done.shown(at).before for at in range(len(done.calls) - 1))


@pytest.mark.parametrize(
    ("known", "went", "came"),
    [
        (
            {"items": (input_message("They look for a lamp."),), "replaced": ((0, 2),), "items_removed": 2},
            ("What went: 2 items (0 to 1 of the log)", "A lamp, please.\nWhich one?"),
            "They look for a lamp.",
        ),
        (
            {"opaque": True, "items": (Item(type="compaction", id="c1", encrypted_content="b3BhcXVl"),)},
            ("What went: a part of the context; which one is not recorded, the log keeps all", ""),
            "An opaque block of the provider: only its models can read it.",
        ),
        (
            {"items_removed": 3},
            ("What went: 3 items; which one is not recorded, the log keeps all", ""),
            "Nothing: the part was left out.",
        ),
    ],
)
def test_a_compaction_says_what_went_and_what_came_in_its_place(
    known: dict[str, Any], went: tuple[str, str], came: str
) -> None:
    said = (input_message("A lamp, please."), assistant_message("Which one?"))
    run = run_of_events([ItemsAppended(HERE, 0.0, 0, said, "user"), asked(), compacted(**known), asked()])
    with Transcript(run) as view:
        call = view._transcript.current()
        assert call is not None
        lines = [(line.heading, line.text, line.level) for line in call.before]
        text, page = repr(view), view.to_html()

    assert lines == [
        ("Context compacted by codex (auto): 31,900 → 2,735 tokens", "", 0),
        (*went, 1),
        ("In its place", came, 1),
    ]
    assert "b3BhcXVl" not in text + page
    for part in (lines[0][0], went[0], came):
        assert part in text
        assert part in page
    assert page.index(came) < page.index(">Request<")


def test_an_opaque_block_of_a_provider_is_shown_as_opaque() -> None:
    block = Item(type="compaction", id="c1", encrypted_content="b3BhcXVl")
    run = run_of_events([asked(HERE, block), ItemsAppended(HERE, 1.0, 0, (block,), "model"), asked()])
    with Transcript(run, call=0) as answered, Transcript(run, call=1) as sent:
        for view in (answered, sent):
            assert "An opaque block of the provider" in repr(view)
            assert "b3BhcXVl" not in repr(view) + view.to_html()
