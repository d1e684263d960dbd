"""The ledger: allows are folded, all decisions are reachable, and faults do not look like consent."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    ErrorRaised,
    ItemsAppended,
    ModelCalled,
    RuleChanged,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    Where,
)
from noetic_nb.items import assistant_message, input_message, parse_item
from noetic_nb.runs import Run
from noetic_nb.widgets import Ledger, Selection
from noetic_nb.widgets._ledger.ledger_index import FACETS
from noetic_nb.widgets._ledger.ledger_reading import LINES_SHOWN, PAGE, LedgerReading
from noetic_nb.widgets.base._feed import Place
from tests.widgets.rows import cells, words
from tests.widgets.scenes import HOSTILE, decisions, hostile_run, run_of_events

WHERE = Where("t1", "e1", 1)


def decided(tool: str | None = "pay", action: Any = "allow", *, turn: int = 1, **more: Any) -> SteeringDecided:
    facts: dict[str, Any] = {
        "args": {"amount": 5},
        "guidance": None,
        "rule_ids": (),
        "thread": "t1",
        "hook": "before_tool_call",
    }
    facts |= more
    where = Where(facts.pop("thread"), f"e{turn}", turn)
    args, guidance, rule_ids, hook = (facts.pop(name) for name in ("args", "guidance", "rule_ids", "hook"))
    return SteeringDecided(where, 4.0, "steering", hook, tool, args, action, guidance, rule_ids, 0.2, **facts)


def reading_of(*events: RunEvent) -> LedgerReading:
    reading = LedgerReading()
    reading.begin()
    calls = 0
    for seq, event in enumerate(events):
        is_call = isinstance(event, ModelCalled) and event.purpose == "agent"
        reading.take(event, Place(seq, calls if is_call else None))
        calls += is_call
    return reading


def lines_of(reading: LedgerReading, **request: Any) -> list[dict[str, Any]]:
    """Return the lines of a page, newest first."""
    lines: list[dict[str, Any]] = reading.answer({"what": "lines", **request})["lines"]
    return lines[::-1]


def a_thousand() -> list[RunEvent]:
    """Return 1 000 decisions, every tenth a denial."""
    return [
        decided("refund", "deny", turn=n, args={"order": f"A{n}"}, guidance=f"Not A{n}.", rule_ids=("late",))
        if n % 10 == 0
        else decided("search", turn=n)
        for n in range(1_000)
    ]


def test_newest_decisions_are_on_top_with_action_guidance_and_rules() -> None:
    with Ledger(run_of_events(decisions())) as opened:
        lines = opened.to_text().splitlines()

    assert lines[0] == "Ledger. 4 decisions: 2 allow, 1 deny, 1 guide"
    assert lines[2].startswith("  turn 6  deny   cancel_reservation")
    assert "by no_late_cancellation, confirm_before_writing: Basic economy" in lines[2]


def test_consecutive_allows_are_one_line_that_opens() -> None:
    reading = reading_of(*[decided() for _ in range(37)], decided(action="deny"), decided())

    lines = lines_of(reading)
    assert [line.get("fold") or cells(line)["Decision"] for line in lines] == ["allow", "deny", 37]
    assert words(lines[2]) == "37 allowed"
    fold = lines_of(reading)[2]
    inside = lines_of(reading, within=[fold["first"], fold["last"]])
    assert [row["at"] for row in inside] == list(range(36, -1, -1))
    assert "  37 allowed" in reading.to_text().splitlines()
    assert "<details><summary>37 allowed</summary>" in reading.to_html()


@pytest.mark.parametrize(
    ("request_", "places"),
    [
        ({"chips": ["deny"]}, range(990, -1, -10)),
        ({"tool": "refund", "turn": 500}, [500]),
        ({"text": "not a770"}, [770]),
        ({"text": "A770", "chips": ["allow"]}, []),
        ({"rule": "late", "text": "order"}, range(990, -1, -10)),
        ({"chips": ["deny", "allow"], "turn": 3}, [3]),
        ({"point": "after model call"}, []),
        ({"thread": "t1", "chips": ["deny"], "turn": 20}, [20]),
    ],
)
def test_every_decision_is_within_reach_of_a_filter(request_: dict[str, Any], places: Any) -> None:
    reading = reading_of(*a_thousand())
    found: list[int] = []
    start = 0
    while True:
        answer = reading.answer({"what": "lines", "start": start, "count": 30, **request_})
        found += [line["at"] for line in reversed(answer["lines"])]
        start += 30
        if start >= answer["count"]:
            break

    assert found == list(places)
    assert answer["matched"] == len(found)
    assert answer["total"] == 1_000


def test_the_page_of_a_decision_can_be_asked_for() -> None:
    reading = reading_of(*a_thousand())

    answer = reading.answer({"what": "lines", "count": 20, "decision": 503})

    held = [
        line for line in answer["lines"] if line.get("first", line.get("at")) <= 503 <= line.get("last", line.get("at"))
    ]
    assert len(held) == 1


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"what": "lines", "tool": 3}, "INVALID_FILTER"),
        ({"what": "lines", "chips": "deny"}, "INVALID_FILTER"),
        ({"what": "lines", "turn": True}, "INVALID_FILTER"),
        ({"what": "lines", "within": [1]}, "INVALID_FILTER"),
        ({"what": "lines", "text": ["a"]}, "INVALID_FILTER"),
        ({"what": "detail", "at": 9}, "UNKNOWN_REQUEST"),
        ({"what": "else"}, "UNKNOWN_REQUEST"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(request_: dict[str, Any], code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        reading_of(decided()).answer(request_)

    assert caught.value.code == code


@pytest.mark.parametrize(
    "event",
    [
        decided(outcome="unparseable", faults=(("fair", "unparseable"),)),
        decided(outcome="unparseable"),  # from a file without this field
        decided(outcome="error", rule_ids=("limit",), faults=(("limit", "KeyError: 'amount'"),)),
        decided(outcome="late_fault", rule_ids=("fair",)),
        ErrorRaised(WHERE, 4.0, "MISSING_CALL_MODEL", "Rule 'fair' has a judge, and there is no model to call."),
        ErrorRaised(WHERE, 4.0, "rule_failed", "KeyError: 'amount'"),
    ],
)
def test_an_evaluation_that_failed_is_never_folded_among_the_allows(event: RunEvent) -> None:
    reading = reading_of(decided(), decided(), event, decided(), decided())

    lines = lines_of(reading)

    assert [line.get("fold", 1) for line in lines] == [2, 1, 2]
    faulty = re.search('data-faulty="true">([^<]+)<', lines[1]["html"])
    assert faulty is not None
    assert cells(lines[1])["Decision"].endswith(faulty[1])
    assert lines_of(reading, chips=["a rule failed"]) == [lines[1]]
    detail = words(reading.answer({"what": "detail", "at": 2}))
    assert "could not be evaluated" in detail or detail.startswith("not decided")


def test_what_nobody_enforced_says_so() -> None:
    reading = reading_of(decided(action="deny", enforced=False))

    assert cells(lines_of(reading)[0])["Decision"] == "deny not enforced"
    assert lines_of(reading, chips=["not enforced"]) == lines_of(reading)
    assert "not enforced" in reading.to_html()
    assert "would have been deny" in words(reading.answer({"what": "detail", "at": 0}))


def test_the_static_forms_show_the_newest_rows_and_pages_show_all() -> None:
    denials = [decided("refund", "deny", turn=n, args={"order": f"A{n}"}, guidance=f"Not A{n}.") for n in range(500)]
    reading = reading_of(*denials)

    assert reading.to_html().count("Not A") == reading.to_text().count("Not A") == LINES_SHOWN

    pages = [lines_of(reading, start=start, count=200) for start in (400, 200, 0)]
    assert [cells(row)["Guidance"] for page in pages for row in reversed(page)] == [f"Not A{n}." for n in range(500)]


def test_decisions_that_differ_in_one_thing_only_are_found_by_their_own() -> None:
    alike = decided("pay", "deny")
    others: dict[str, Any] = {
        "action": "guide", "outcome": "timeout", "hook": "after_model_call", "tool_name": "refund", "enforced": False,
        "where": Where("t2", "e2", 1), "rule_ids": ("other",), "faults": (("limit", "ValueError"),),
    }  # fmt: skip
    events = [alike, *[replace(alike, **{name: value}) for name, value in others.items()], alike]
    index = reading_of(*events).index

    expected = Counter(key for entry in index.entries for key in entry.facets())
    assert {(kind, name): times for kind in FACETS for name, times in index.counts(kind)} == expected


def response(text: str) -> ModelCalled:
    items = (assistant_message(text),)
    return ModelCalled(WHERE, 1.0, 0, "m", "agent", 1.0, "ok", items)


def test_a_response_is_shown_with_the_part_that_was_found() -> None:
    judged = decided(None, "deny", args=None, hook="after_model_call", matched=("guaranteed",), rule_ids=("promises",))
    reading = reading_of(response(f"{'Well. ' * 60}It is guaranteed."), judged)

    (line,) = lines_of(reading)

    assert cells(line)["Call"] == "response"
    assert "<mark>guaranteed</mark>" in line["html"]
    assert line["html"] in reading.to_html()
    detail = reading.answer({"what": "detail", "at": 0})
    assert "\nResponse\nWell. Well." in words(detail)
    assert "<mark>guaranteed</mark>" in detail[-2]["html"]
    assert lines_of(reading, text="guaranteed") == [line]


def test_a_secret_in_a_response_is_hidden_although_it_was_found() -> None:
    judged = decided(None, "deny", args=None, hook="after_model_call", matched=("[redacted]",))
    reading = reading_of(response("Here: password: hunter22xyz"), judged)

    everything = json.dumps([lines_of(reading), reading.answer({"what": "detail", "at": 0})]) + reading.to_html()

    assert "hunter22xyz" not in everything


async def test_what_a_rule_found_is_recorded_without_secrets() -> None:
    rules = nn.RuleBook()
    rules.when('response.text.matches("hunter[0-9]+")', id="r", on="after_model_call")
    config = nn.AgentConfig(name="a", step=nn.react(model="m"), memory=[rules])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["password: hunter22xyz"]))
    run = nn.record(harness)
    with pytest.raises(nn.NoeticError):
        await harness.execute("?")

    (entry,) = [event for event in run.events if isinstance(event, SteeringDecided)]

    assert entry.matched == ("[redacted]",)


def test_a_row_names_the_call_and_the_item_that_it_is_about() -> None:
    call = parse_item({"type": "function_call", "name": "pay", "callId": "c1", "arguments": "{}"})
    run = Run()
    for event in (
        response("First."),
        response("I pay."),
        ItemsAppended(WHERE, 2.0, 7, (call,), "model"),
        decided(action="deny"),
        ToolCalled(WHERE, 5.0, "pay", "c1", {"amount": 5}, "no", None, "denied"),
    ):
        run.append(event)
    with Ledger(run) as opened:
        (line,) = opened.snapshot["lines"]
        detail = opened.reading.answer({"what": "detail", "at": 0})

    assert line["go"] == {"thread_id": "t1", "turn": 1, "call": 1, "item": 7, "decision": 3}
    assert "The call ended: denied" in words(detail)


def test_a_choice_in_the_page_reaches_other_views() -> None:
    selection = Selection()
    with Ledger(run_of_events(decisions()), selection=selection) as opened:
        go = opened.snapshot["lines"][-1]["go"]
        opened._message_received(opened, {"type": "select", "id": "p-1", **go}, [])

    assert selection.decision == go["decision"]
    assert selection.turn == 6


def test_the_detail_has_whole_arguments_their_origin_and_the_version_of_the_rule() -> None:
    text = "x" * 500
    run = Run()
    said = input_message("Pay A17, please.")
    for event in (
        ItemsAppended(WHERE, 0.0, 0, (said,), "user"),
        RuleChanged(Where("", "", 0), 1.0, "limit", "replace", 4, "old text", "new text"),
        decided(
            args={"order": "A17", "memo": text, "api_key": "sk-hidden-anyway-123456"},
            action="deny",
            rule_ids=("limit", "other"),
        ),
        RuleChanged(Where("", "", 0), 5.0, "other", "remove", 5, "was this", None),
    ):
        run.append(event)
    with Ledger(run) as opened:
        detail = opened.reading.answer({"what": "detail", "at": 0})
        origins = opened.reading.answer({"what": "origins", "at": 0})

    assert f'memo"{text}"' in words(detail)
    assert "hidden-anyway" not in json.dumps([detail, origins])
    assert [f"{key} {words(value)}" for key, value in written_by(origins)] == [
        "order user",
        "memo model",
        "api_key model",
    ]
    assert words(detail[-2:]).splitlines() == [
        "Rule limit, version 4, replacenew text",
        "Rule other, as before version 5was this",
    ]
    assert [row for row in origins if row["key"] != "arguments"] == [row for row in detail if row["key"] != "arguments"]


def written_by(detail: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the names and origins of the arguments in a detail."""
    html = next(row["html"] for row in detail if row["key"] == "arguments")
    return re.findall(r'<tr><th scope="row"[^>]*>([^<]*)</th>.*?<td class="nn-text">([^<]*)</td></tr>', html)


def test_the_rest_of_a_long_fold_is_named_and_asked_for() -> None:
    reading = reading_of(*[decided() for _ in range(250)])
    within, seen = [0, 249], []
    while True:
        answer = reading.answer({"what": "lines", "within": within, "count": 100})
        seen += [row["at"] for row in reversed(answer["lines"])]
        if "rest" not in answer:
            break
        rest = answer["rest"]
        assert words(rest) == f"Show more of {250 - len(seen)}"
        within = [rest["first"], rest["last"]]

    assert seen == list(range(249, -1, -1))


def test_secrets_in_arguments_are_redacted() -> None:
    with Ledger(run_of_events(decisions())) as opened:
        detail = opened.reading.answer({"what": "detail", "at": 2})
        everything = f"{opened.snapshot} {opened.to_html()} {opened.to_text()} {detail}"

    assert "hidden-anyway" not in everything
    assert "[redacted]" in everything


def test_a_live_decision_is_one_small_message_that_leaves_the_snapshot_as_a_new_view_has_it(
    sent: list[dict[str, Any]],
) -> None:
    run = Run()
    with Ledger(run) as opened:
        for event in a_thousand()[:200]:
            run.append(event)
        with Ledger(run) as whole:
            assert opened.snapshot == whole.snapshot
            assert opened.to_html() == whole.to_html()

    assert len(sent) == 200
    assert max(len(json.dumps(message)) for message in sent) < 2_000
    assert len(opened.snapshot["lines"]) == 40
    assert (sent[-1]["total"], sent[-1]["count"]) == (200, 40)


def test_the_snapshot_of_a_long_run_is_small() -> None:
    long = [
        decided("refund", "deny", turn=n, args={"order": f"A{n}" * 50}, guidance="No. " * 99, rule_ids=("late",))
        for n in range(10_000)
    ]
    reading = LedgerReading()
    for seq, event in enumerate(long):
        reading.take(event, Place(seq))
    reading.begin()

    assert len(reading.snapshot["lines"]) == PAGE
    assert len(json.dumps(reading.snapshot)) < 100_000
    assert len(reading.to_html()) < 400_000


def test_the_table_has_all_rows_of_the_moment_as_the_run_has_them() -> None:
    run = run_of_events(a_thousand(), [decided(thread="t2", turn=3)])
    with Ledger(run, thread_id="t1", until=500) as opened:
        table = opened.to_frame()
        assert opened.snapshot["total"] == 501

    whole = run.to_frame("ledger")
    assert list(table.columns) == list(whole.columns)
    assert len(table) == 501
    assert set(table["thread_id"]) == {"t1"}


def test_rules_that_were_not_evaluated_are_named() -> None:
    run = Run(meta={"rules_skipped": ["fair", "<b>"]})
    with Ledger(run) as opened:
        assert "Not evaluated" in opened.to_text()
        assert "fair, <b>" in opened.snapshot["note"]
        assert "<b>" not in opened.to_html()


def test_one_thread_can_be_chosen() -> None:
    with Ledger(run_of_events(decisions()), thread_id="other") as opened:
        assert opened.snapshot["total"] == 0


def test_hostile_text_never_becomes_html() -> None:
    with Ledger(hostile_run()) as opened:
        html = opened.to_html()

    for piece in ("<script", "<img", "<svg onload", "<b>"):
        assert piece not in html
    assert len(html) < 40_000 + sum(len(text) for text in HOSTILE[:-2])
    assert not re.search("[\u202e\x1b]", html)
