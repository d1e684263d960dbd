"""The workbench without a browser: one comm and one message per event, isolated faults, and a harness inside."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    ItemsAppended,
    ModelCalled,
    QualityGiven,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.items import function_call, function_call_output, input_message
from noetic_nb.lab import datasets
from noetic_nb.models import CallTool
from noetic_nb.runs import Run
from noetic_nb.widgets import Approval, Ledger, Selection, TokenAllocation, Workbench
from noetic_nb.widgets._allocation.allocation import CALLS_HOSTED
from noetic_nb.widgets._workbench.panels import PANELS
from noetic_nb.widgets._workbench.workbench_reading import NAMES_SENT, Progress
from noetic_nb.widgets.base._host import page_traits
from noetic_nb.widgets.base._page_thread import PAGES
from tests.matrix import matrix
from tests.widgets.hostile_texts import HOSTILE_TEXTS, hostile_run
from tests.widgets.rows import part, words
from tests.widgets.scenes import decisions, demo_run, turn
from tests.widgets.test_hostile_texts import INVISIBLE, wire
from tests.widgets.views import comms, watching

WHERE = Where("t1", "e1", 1)


def rules() -> nn.RuleBook:
    book = nn.RuleBook()
    book.when('tool.name == "pay"', id="no_pay", guidance="Do not pay.")
    return book


def fetch(bench: Workbench, *names: str) -> dict[str, Any]:
    """Open panels as a page does; returns the data of the last one."""
    data: dict[str, Any] = {}
    for name in names:
        data = bench._answer({"do": "panel", "panel": name})["data"]
    return data


def test_all_panels_are_one_widget_with_one_observer() -> None:
    run, before = demo_run(), comms()
    with TokenAllocation(run):
        of_one = comms() - before

    with Workbench(run, rules=rules(), panels=list(PANELS)) as bench:
        assert comms() - before == of_one
        assert watching(run) == 1
        assert bench.panels == list(PANELS)
        assert isinstance(bench.ledger, Ledger)
        assert bench.ledger is bench.ledger
        assert bench.ledger.comm is None
        assert bench.ledger.selection is bench.selection is bench.allocation.selection


@pytest.mark.parametrize("name", PANELS)
def test_a_view_inside_shows_what_it_shows_alone(name: str) -> None:
    run, book = Run(run_id="run-1"), rules()
    with Workbench(run, rules=book, panels=[name]) as bench:
        for event in demo_run().events:
            run.append(event)
        alone = PANELS[name].make(bench._subject)
        with alone:
            inside = getattr(bench, name)
            assert inside.reading.to_html() == alone.reading.to_html()
            known = dict(alone.snapshot)
            if name == "allocation":  # older calls are requested earlier
                known["calls"] = known["calls"][-CALLS_HOSTED:]
                known["first"] += len(alone.snapshot["calls"]) - CALLS_HOSTED
                for field in ("picture", "is_new"):  # requested again when the page opens
                    known[field] = inside.snapshot[field]
                asked = {"what": "picture", "first": 0, "last": 8}
                assert inside.reading.answer(asked) == alone.reading.answer(asked)
            if name == "timeline":  # a page starts with this, and requests as much as it has room for
                known["listed"] = True
                known["window"] = inside.snapshot["window"]
                asked = {"what": "window"}
                assert inside.reading.answer(asked) == alone.reading.answer(asked)
            assert fetch(bench, name)["snapshot"] == known
            assert inside.to_frame().equals(alone.to_frame())


def test_a_workbench_opens_on_what_a_recording_has() -> None:
    run = datasets.airline_run(26)
    with Workbench(run) as bench, Workbench(run, panels=["ledger", "memory"]) as asked, Workbench(Run()) as empty:
        assert bench.panels == ["allocation", "timeline"]
        assert "lab.replay(run, rules=rules)" in asked.to_text()
        assert "AgentConfig(memory=[...])" in asked.to_text()
        assert empty.panels == ["allocation", "timeline"]
    with Workbench(Run(), rules=rules()) as steered:
        assert steered.panels == ["allocation", "timeline", "rules"]


def test_an_event_is_one_message_with_the_news_of_every_open_panel(sent: list[dict[str, Any]]) -> None:
    run = Run()
    with Workbench(run, panels=["allocation", "transcript"]) as bench:
        fetch(bench, "allocation", "transcript")
        for event in turn(1):
            sent.clear()
            run.append(event)
            assert len(sent) <= 1
            told = [name for message in sent for name, _ in message["news"]]
            assert told == {"ViewAssembled": ["allocation"], "ModelCalled": ["transcript", "", "allocation"]}.get(
                type(event).__name__, told
            )
            assert all(len(json.dumps(message)) < 2048 for message in sent)
        assert len(bench.allocation.snapshot["calls"]) == 1


def test_a_closed_panel_is_sent_nothing_and_is_whole_when_it_is_opened_again(sent: list[dict[str, Any]]) -> None:
    run = Run()
    with Workbench(run, panels=["ledger", "transcript"]) as bench:
        fetch(bench, "ledger", "transcript")
        ledger = bench.ledger
        bench.panels = ["transcript"]
        for event in decisions():
            run.append(event)
        assert not [name for message in sent for name, _ in message.get("news", ()) if name == "ledger"]

        bench.panels = ["transcript", "ledger"]

        assert bench.panels == ["ledger", "transcript"]
        assert bench.ledger is ledger
        assert fetch(bench, "ledger")["snapshot"]["total"] == 4
        sent.clear()
        run.append(decisions()[0])
        assert [name for message in sent for name, _ in message["news"]] == ["ledger"]


def test_a_panel_that_is_made_while_events_wait_reads_each_of_them_once() -> None:
    run = Run()
    with Workbench(run, panels=["transcript"]) as bench:
        # As while a page is answered: the page thread holds the lock, and the agent continues.
        done = threading.Event()

        def agent() -> None:
            for event in (*decisions(), *turn(1)):
                run.append(event)
            done.set()

        with bench._gathered():
            thread = threading.Thread(target=agent)
            thread.start()
            assert done.wait(10)
            fetch(bench, "ledger")
        thread.join()

        assert bench.ledger.snapshot["total"] == 4
        run.append(decisions()[0])
        assert bench.ledger.snapshot["total"] == 5
        assert len(bench.transcript.snapshot["calls"]) == 1


def test_one_selection_links_the_panels_and_views_outside(sent: list[dict[str, Any]]) -> None:
    run, chosen = demo_run(), Selection()
    panels = ["ledger", "transcript", "allocation", "timeline"]
    with Workbench(run, selection=chosen, panels=panels) as bench, TokenAllocation(run, selection=chosen) as lone:
        fetch(bench, *bench.panels)
        sent.clear()
        bench._handle_custom_msg(
            {"type": "panel", "panel": "ledger", "message": {"type": "select", "id": "p-1", "turn": 2, "call": 1}}, []
        )

        assert (chosen.turn, chosen.call) == (2, 1)
        assert "Turn 2, call 1" in lone.to_text()
        assert lone.to_text() == bench.allocation.to_text()
        assert bench.transcript.position == 1
        joint = [message for message in sent if message["type"] == "panels"]
        assert len(joint) == 1
        ids = {name: content["id"] for name, content in joint[0]["news"] if content["type"] == "selected"}
        assert ids == {"": None, "ledger": "p-1", "transcript": None, "allocation": None, "timeline": None}
        traits = [content["traits"] for name, content in joint[0]["news"] if content["type"] == "traits"]
        assert {"position": bench.allocation.position} in traits


def test_a_page_sets_the_traits_of_a_panel_and_no_others() -> None:
    with Workbench(demo_run()) as bench:
        fetch(bench, "allocation")
        bench._handle_custom_msg(
            {
                "type": "panel",
                "panel": "allocation",
                "set": {"position": 0, "follow": False, "_esm": "x", "fault": "y"},
            },
            [],
        )

        assert (bench.allocation.position, bench.allocation.follow) == (0, False)
        assert bench.allocation.fault == ""
        assert len(bench.allocation._esm) > 1
        assert fetch(bench, "allocation")["traits"]["position"] == 0


def test_a_panel_that_fails_shows_it_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, sent: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    run = Run()
    with Workbench(run, panels=["ledger", "allocation"]) as bench:
        fetch(bench, "ledger", "allocation")
        sent.clear()
        monkeypatch.setattr(bench.ledger.reading, "take", lambda *_: 1 / 0)
        for event in turn(1):
            run.append(event)

        assert "division by zero" in bench.ledger.fault
        assert len(bench.allocation.snapshot["calls"]) == 1
        told = [content for message in sent for name, content in message["news"] if name == "ledger"]
        assert ["division by zero" in content["traits"]["fault"] for content in told] == [True]
        assert (bench.fault, bench.allocation.fault) == ("", "")


def test_a_panel_that_cannot_be_made_says_why_and_the_others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "__init__", lambda *_, **__: 1 / 0)
    with Workbench(demo_run(), panels=["ledger", "trends"]) as bench:
        assert "division by zero" in fetch(bench, "ledger")["fault"]
        assert fetch(bench, "trends")["snapshot"]["threads"]
        assert "Regulator trends" in bench.to_text()
        assert "division by zero" in bench.to_html()


def test_a_fault_in_the_conversation_leaves_the_panels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    with Workbench(run, panels=["allocation"]) as bench:
        fetch(bench, "allocation")
        monkeypatch.setattr(bench.reading.talk, "take", lambda *_: 1 / 0)
        for event in turn(1):
            run.append(event)

        assert "division by zero" in bench.fault
        assert len(bench.allocation.snapshot["calls"]) == 1


@pytest.mark.usefixtures("little_to_collect")
def test_a_closed_panel_is_read_and_drawn_when_it_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    with Workbench(run, panels=["allocation"]) as bench:
        bench._answer({"do": "panel", "panel": "allocation"})
        reading = bench.reading.views["allocation"].reading
        drawn: list[int] = []
        draw = reading._drawn_call
        monkeypatch.setattr(reading, "_drawn_call", lambda at: drawn.append(at) or draw(at))
        bench.panels = []
        for event in (*turn(1), *turn(2)):
            run.append(event)
        bench.catch_up()
        assert (bench.snapshot["panels"], len(reading.calls.all), drawn) == ({}, 2, [])
        bench.panels = ["allocation"]
        opened = bench._answer({"do": "panel", "panel": "allocation"})["data"]

        assert [call["turn"] for call in opened["snapshot"]["calls"]] == [1, 2]
        assert drawn == [0, 1]


def test_two_hundred_open_and_close_leave_nothing_behind() -> None:
    run, chosen, book = demo_run(), Selection(), rules()
    comms_before, listeners = comms(), len(book._listeners)
    kept = []
    for _ in range(200):
        bench = Workbench(run, selection=chosen, rules=book, panels=["ledger", "rules"])
        fetch(bench, "ledger", "rules")
        kept.append(weakref.ref(bench))
        bench.close()
    del bench
    gc.collect()

    assert comms() == comms_before
    assert (watching(run), len(chosen._observers), len(book._listeners)) == (0, 0, listeners)
    assert not [ref for ref in kept if ref() is not None]


@pytest.mark.usefixtures("little_to_collect")
def test_a_workbench_that_nobody_holds_is_collected_with_its_views() -> None:
    run = demo_run()
    bench = Workbench(run)
    fetch(bench, *bench.panels)
    ledger = weakref.ref(bench.ledger)
    del bench
    gc.collect()

    assert ledger() is None
    assert watching(run) == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"panels": ["nothing"]}, "UNKNOWN_PANEL"),
        ({"panels": 3}, "UNKNOWN_PANEL"),
        ({"panels": [["ledger"]]}, "UNKNOWN_PANEL"),
        ({"panels": ["rules"]}, "PANEL_NOT_AVAILABLE"),
        ({"rules": []}, "NOT_A_RULE_BOOK"),
        ({"regulator": 3}, "INVALID_REGULATOR"),
        ({"selection": 3}, "NOT_A_SELECTION"),
    ],
    ids=["panel", "number", "list", "rules", "book", "regulator", "selection"],
)
def test_what_a_workbench_cannot_show_is_refused(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        Workbench(demo_run(), **arguments)

    assert caught.value.code == code


def test_panels_and_sizes_from_code_are_checked() -> None:
    with Workbench(demo_run()) as bench:
        bench.sizes = {"ledger": (40, 20)}
        assert bench.sizes == {"ledger": [12, 160]}
        for name, value, code in (
            ("panels", ["x"], "UNKNOWN_PANEL"),
            ("sizes", {"x": (1, 2)}, "UNKNOWN_PANEL"),
            ("sizes", {"ledger": "wide"}, "INVALID_SIZE"),
        ):
            with pytest.raises(NoeticConfigError) as caught:
                setattr(bench, name, value)
            assert caught.value.code == code
        with pytest.raises(NoeticConfigError) as caught:
            _ = bench.rules
        assert caught.value.code == "PANEL_NOT_AVAILABLE"


# Causes of decisions


def denied_run() -> Run:
    """Return a run in which a tool returns an account, the model pays to it, and a rule denies that."""
    said = input_message("Pay my bill, 50 dollars.", item_id="i0")
    call = function_call("read_bill", {}, call_id="c1", item_id="i1")
    bill = function_call_output("c1", '{"note": "bill", "iban": "DE89370400440532013000"}', item_id="i2")
    args = {"to": "DE89370400440532013000", "amount": 50, "memo": "invented"}
    return Run(
        events=[
            TurnStarted(WHERE, 0.0, "u1", 0, 1, "Pay my bill, 50 dollars."),
            ItemsAppended(WHERE, 0.0, 0, (said,), "user"),
            ItemsAppended(WHERE, 1.0, 1, (call, bill), "tool"),
            SteeringDecided(WHERE, 2.0, "steering", "before_tool_call", "pay", args, "deny", "No.", ("no_pay",), 0.1),
            ToolCalled(WHERE, 2.0, "pay", "c2", args, "No.", 0.1, "denied"),
            TurnCompleted(WHERE, 3.0, "u1", "failure", 1.0, "", 1, 1, None, 1, 1),
        ]
    )


def ask(bench: Workbench, request: dict[str, Any]) -> dict[str, Any]:
    return bench._answer(request)


def test_a_deny_names_the_item_that_each_argument_came_from() -> None:
    with Workbench(denied_run(), rules=rules()) as bench:
        bench.selection.select(**bench.reading.talk.fields(0, decision=True))
        cause = ask(bench, {"what": "cause", "decision": bench.selection.decision})["data"]

        assert cause["head"] == "deny: pay"
        by_name = {row["name"]: row for row in cause["arguments"]}
        assert by_name["to"]["origin"] == "the tool read_bill, its iban"
        assert by_name["to"]["go"]["item"] == 2
        assert "DE89370400440532013000" in by_name["to"]["words"]
        assert by_name["amount"]["origin"] == "the user"
        assert by_name["amount"]["go"]["item"] == 0
        assert by_name["memo"]["origin"].startswith("the model itself")
        assert by_name["memo"]["go"] is None
        assert cause["rules"] == [["no_pay", True]]


def replies(bench: Workbench) -> list[str]:
    return [part(row, "nn-reply") for row in bench.reading.parts["talk"]]


def threads(rows: list[dict[str, Any]]) -> list[str]:
    return [part(row, "nn-turn-thread").removeprefix("of ") for row in rows]


def test_guides_and_denials_of_a_turn_are_counted_apart() -> None:
    run = Run("r1", events=[TurnStarted(WHERE, 0.0, "u1", 0, 1, "Refund all")])
    kinds = [("guide", True), ("deny", True), ("guide", True), ("deny", False), ("guide", False), ("allow", True)]
    for action, enforced in kinds:
        args = {"amount": 5}
        run.append(
            SteeringDecided(
                WHERE, 1.0, "steering", "before_tool_call", "pay", args, action, "No.", ("r",), 0.1, enforced=enforced
            )
        )
    with Workbench(run, panels=[]) as bench:
        [row] = bench.reading.snapshot["parts"]["talk"]
        held = "1 denied, 1 would have been denied, 2 guided, 1 would have been guided"
        assert part(row, "nn-turn-marks") == f"{held}: why?"
        assert f'<p class="nn-turn-marks">{held}</p>' in bench.to_html()
        assert bench.reading.talk.fields(0, decision=True)["decision"] == 2


def test_what_would_have_been_without_a_rule_is_tried_where_the_rules_are_known() -> None:
    with Workbench(denied_run(), rules=rules()) as bench:
        found = ask(bench, {"what": "without", "decision": 3, "rule": 0})["data"]
        assert ["newly_allowed", "newly allowed", 1] in found["counts"]
    with Workbench(denied_run()) as bench:
        assert "pass rules=" in ask(bench, {"what": "cause", "decision": 3})["data"]["note"]
        assert "UNKNOWN_RULE" in ask(bench, {"what": "without", "decision": 3, "rule": 0})["fault"]
        assert "UNKNOWN_DECISION" in ask(bench, {"what": "cause", "decision": 0})["fault"]


@matrix("name", list(HOSTILE_TEXTS), keep=12, start=5)
def test_hostile_text_stays_text_in_what_a_workbench_says_itself(name: str) -> None:
    run = hostile_run(HOSTILE_TEXTS[name])
    with Workbench(run, panels=["ledger"]) as bench:
        reading = bench.reading
        wire(reading.parts)
        for seq, event in enumerate(run.events):
            if isinstance(event, SteeringDecided):
                wire(reading.answer({"what": "cause", "decision": seq}))
        said = json.dumps(
            [reading.parts["talk"], reading.parts["progress"], reading.talk.to_text()], ensure_ascii=False
        )
        assert not INVISIBLE.search(said)


def test_the_static_conversation_names_threads_and_marks_and_what_has_no_end() -> None:
    run = demo_run()
    for event in [
        TurnStarted(Where("t2", "e", 1), 0.0, "u", 0, 1, "And the hotel?"),
        *decisions(),
        QualityGiven(Where("t1", "e-t1-6", 6), 9.0, 1.0, "reward"),
    ]:
        run.append(event)
    with Workbench(run) as bench:
        text, html = bench.to_text(), bench.to_html()

    for form in (text, words(html)):
        assert "6 of t1" in form
        assert "2 denied" in form
        assert "whole conversation graded 1.00" in form
        assert "no answer so far" in form
        assert "Turn 1 has not ended" in form
    assert "answering" not in text


def test_the_headline_counts_one_call_without_a_price() -> None:
    progress = Progress()
    for cost in (0.5, None):
        progress.take(ModelCalled(Where("t", "e", 1), 1.0, 0, "m", "agent", 1.0, "ok", (), 1, 1, cost=cost))

    assert progress.text.endswith("$0.5000 and 1 call without a price")


# With a harness


def harness(*memory: Any, answers: Any = ("Hello!", "Again!"), approve: Any = None, tools: Any = ()) -> nn.AgentHarness:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=list(tools)), memory=list(memory))
    return nn.AgentHarness(config, model=nn.ScriptedModel(list(answers)), approve=approve)


async def until(check: Any) -> None:
    """Let the event loop and the page thread work until a condition holds."""
    for _ in range(10_000):
        if check():
            return
        PAGES.wait()
        await asyncio.sleep(0)
    raise AssertionError("It never was.")


async def test_a_page_talks_to_a_harness_and_a_second_workbench_shows_the_same_run() -> None:
    agent = harness()
    with Workbench(agent) as bench:
        assert ask(bench, {"do": "say", "text": "Hi"}) == {"data": None}
        await until(lambda: replies(bench) == ["Hello!"])

        (row,) = bench.reading.parts["talk"]
        assert (part(row, "nn-said"), part(row, "nn-reply")) == ("Hi", "Hello!")
        assert "data-state" not in row["html"]
        assert (bench.reading.parts["busy"], bench.reading.parts["canGrade"]) == (False, True)
        assert "tokens" in bench.reading.parts["progress"]
    with Workbench(agent) as again:
        assert again.run is bench.run
        assert (await again.say("And?")).text == "Again!"
        assert replies(again) == ["Hello!", "Again!"]
    assert len(agent.sinks) == 1


async def test_what_is_said_while_a_turn_runs_waits_and_stop_cancels_the_turn() -> None:
    go = asyncio.Event()

    @nn.tool
    async def wait() -> str:
        """Wait."""
        await go.wait()
        return "waited"

    agent = harness(answers=[CallTool("wait"), "Second."], tools=[wait])
    with Workbench(agent) as bench:
        ask(bench, {"do": "say", "text": "Wait."})
        await until(lambda: "tool wait" in bench.reading.parts["progress"])
        ask(bench, {"do": "say", "text": "More."})
        await until(lambda: bench.reading.parts["chat"]["waiting"] == ["More."])
        assert bench.reading.parts["busy"]

        ask(bench, {"do": "stop"})
        await until(lambda: replies(bench) == ["no answer: cancelled", "Second."])

        assert ['data-state="none"' in row["html"] for row in bench.reading.parts["talk"]] == [True, False]
        assert bench.reading.parts["chat"]["waiting"] == []
        assert not bench.reading.parts["busy"]
        assert await bench.stop() is False


async def test_grades_and_corrections_reach_the_regulator() -> None:
    agent = harness(nn.regulation(nn.Regulator.for_user("ann")))
    with Workbench(agent) as bench:
        await bench.say("Hi")
        await bench.grade(0.0)
        await bench.correct("Say my name.")

        saw = [event.event for event in bench.run.events if type(event).__name__ == "RegulatorSaw"]
        assert [event["quality"] for event in saw if event["kind"] == "quality_feedback"][-1] == 0.0
        assert [event["correction_message"] for event in saw if event["kind"] == "user_correction"] == ["Say my name."]
        assert part(bench.reading.parts["talk"][0], "nn-turn-marks") == "grade 0.00"


async def test_where_no_layer_takes_feedback_the_workbench_says_so() -> None:
    with Workbench(harness()) as bench:
        await bench.say("Hi")
        assert "No layer of this agent takes feedback" in bench.reading.parts["chat"]["deaf"]
        await bench.grade(1.0)
        assert bench.reading.parts["chat"]["notice"] == ["good", "Grade 1 recorded; no layer of this agent takes it."]
        with pytest.raises(NoeticConfigError) as caught:
            await bench.correct("No.")
        assert caught.value.code == "NO_FEEDBACK"


async def test_what_goes_wrong_in_a_turn_is_shown() -> None:
    with Workbench(harness(answers=[])) as bench:
        ask(bench, {"do": "say", "text": "Hi"})
        await until(lambda: bench.reading.parts["chat"]["notice"][0] == "bad")
        assert replies(bench)[0].startswith("no answer")


async def test_a_recording_has_no_chat_and_says_so() -> None:
    with Workbench(demo_run()) as bench:
        assert bench.reading.parts["chat"] is None
        assert "This is a recording" in bench.reading.parts["whyNoChat"]
        assert "NO_HARNESS" in ask(bench, {"do": "say", "text": "Hi"})["fault"]
        for work in (bench.say("x"), bench.stop(), bench.grade(1.0), bench.correct("x")):
            with pytest.raises(NoeticConfigError) as caught:
                await work
            assert caught.value.code == "NO_HARNESS"


@nn.tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def asking(approval: Approval) -> nn.AgentHarness:
    book = nn.RuleBook()
    book.when('tool.name == "pay"', id="ask", action="ask", guidance="May this be paid?")
    return harness(nn.steering(book), answers=[CallTool("pay", amount=7), "Done."], approve=approval, tools=[pay])


@pytest.mark.parametrize(("answer", "status"), [("once", "ok"), ("always", "ok"), ("deny", "denied")], ids=str)
async def test_a_question_is_asked_and_answered_inside(answer: str, status: str) -> None:
    approval = Approval()
    with Workbench(asking(approval)) as bench:
        bench._places = (object(),)  # it is shown on a page
        ask(bench, {"do": "say", "text": "Pay 7."})
        await until(lambda: bench.reading.parts["questions"])
        (question,) = bench.reading.parts["questions"]
        assert (question["asked"], question["call"]) == ("May this be paid?", 'pay {"amount": 7}')
        assert question["why"] == ["Asked by the rule ask.", "amount: written by the user."]
        assert ask(bench, {"do": "answer", "id": 99, "answer": "once", "reason": ""}) == {"data": False}

        ask(bench, {"do": "answer", "id": question["key"], "answer": answer, "reason": "once"})
        await until(lambda: not bench.reading.parts["busy"] and bench.reading.parts["canGrade"])

        (called,) = bench.run.select(ToolCalled)
        assert called.status == status
        assert bench.reading.parts["questions"] == []
        assert approval.questions == ()
        assert approval.always == (frozenset({"pay"}) if answer == "always" else frozenset())
        bench._places = ()


async def test_closing_answers_open_questions_with_no() -> None:
    approval = Approval()
    bench = Workbench(asking(approval))
    bench._places = (object(),)
    turn = asyncio.ensure_future(bench.say("Pay 7."))
    await until(lambda: bench.reading.parts["questions"])

    bench._places = ()
    bench.close()
    reply = await turn

    assert reply.text == "Done."
    (called,) = bench.run.select(ToolCalled)
    assert called.status == "denied"
    assert approval._elsewhere == []


# One of several threads


def two_threads() -> Run:
    return Run(events=[*turn(1, thread="ann"), *turn(1, thread="bob"), *turn(2, thread="bob")])


def test_a_page_chooses_a_thread_and_everything_shows_only_that(sent: list[dict[str, Any]]) -> None:
    run = two_threads()
    with Workbench(run, rules=rules()) as bench:
        fetch(bench, "allocation", "rules")
        offered = bench.reading.parts["threads"]
        rule_editor, allocation = bench.rules, bench.allocation
        sent.clear()

        assert ask(bench, {"do": "thread", "at": offered[1][0]}) == {"data": None}

        assert offered == [[0, "ann"], [1, "bob"]]
        (message,) = [each for each in sent if each.get("type") == "panels"]
        assert [(panel, content["type"]) for panel, content in message["news"]] == [("", "all")]
        parts = message["news"][0][1]["snapshot"]["parts"]
        assert (threads(parts["talk"]), parts["hasThreads"], parts["thread"]) == (["bob", "bob"], False, 1)
        assert set(bench.to_frame()["thread_id"]) == {"bob"}
        # The data of open panels is sent along; rules apply to all threads, and the draft is kept.
        panels = message["news"][0][1]["snapshot"]["panels"]
        assert set(panels) == bench._fetched == set(bench.panels)
        assert panels["allocation"]["snapshot"] is bench.allocation.reading.snapshot
        assert bench.rules is rule_editor
        assert bench.allocation is not allocation
        assert fetch(bench, "allocation") == {
            "snapshot": bench.allocation.reading.snapshot,
            "traits": page_traits(bench.allocation),
            "ahead": [],
        }
        assert {each["thread_id"] for each in bench.allocation.to_frame().to_dict("records")} == {"bob"}

        ask(bench, {"do": "thread", "at": -1})
        assert bench.thread_id is None
        assert threads(bench.reading.parts["talk"]) == ["ann", "bob", "bob"]


def test_what_happens_in_other_threads_is_not_shown_and_new_ones_are_offered(sent: list[dict[str, Any]]) -> None:
    run = two_threads()
    with Workbench(run, thread_id="ann") as bench:
        fetch(bench, "allocation")
        sent.clear()

        for event in [*turn(1, thread="eve"), *turn(3, thread="bob")]:
            run.append(event)

        news = [each for message in sent for each in message.get("news", ())]
        assert news == [("", {"type": "parts", "newThread": [2, "eve"], "threadCount": 3, "thread": 0})]
        assert threads(bench.reading.parts["talk"]) == ["ann"]


def test_a_choice_of_another_thread_ends_with_the_thread_that_it_is_in() -> None:
    with Workbench(two_threads()) as bench:
        bench.selection.select(thread_id="bob", turn=2)
        bench.thread_id = "ann"
        assert bench.selection.fields == {**dict.fromkeys(bench.selection.fields), "thread_id": "ann"}
        with pytest.raises(NoeticConfigError) as caught:
            bench.thread_id = 3  # type: ignore[assignment]
        assert (caught.value.code, bench.thread_id) == ("INVALID_THREAD", "ann")


def test_events_that_wait_while_a_thread_is_chosen_are_read_once() -> None:
    run = two_threads()
    with Workbench(run) as bench:
        with bench._reading_lock:
            # Another thread appends meanwhile: its events wait.
            adding = threading.Thread(target=lambda: [run.append(event) for event in turn(3, thread="bob")])
            adding.start()
            adding.join()
            bench._show_moment()
        bench.catch_up()
        run.append(decisions()[0])

        again = Workbench(run)
        assert bench.reading.parts["progress"] == again.reading.parts["progress"]
        assert bench.reading.talk.newest() == again.reading.talk.newest()
        again.close()


def test_a_long_list_of_threads_has_the_newest_and_the_chosen_one() -> None:
    run = Run(events=[event for n in range(NAMES_SENT + 5) for event in turn(1, thread=f"t{n}")])
    with Workbench(run, thread_id="t2") as bench:
        offered = bench.reading.parts["threads"]
        assert [offered[0], offered[1], len(offered)] == [[2, "t2"], [5, "t5"], NAMES_SENT + 1]
        assert bench.reading.parts["threadCount"] == NAMES_SENT + 5


async def test_a_page_talks_in_the_thread_that_it_chose() -> None:
    agent = harness(answers=["To ann.", "To bob."])
    with Workbench(agent) as bench:
        await agent.execute("I am Ann.", thread_id="ann")
        bench.thread_id = "ann"
        assert (bench.reading.parts["chat"]["thread"], bench.reading.parts["canGrade"]) == ("ann", True)
        bench.thread_id = "bob"
        assert (bench.reading.parts["chat"]["thread"], bench.reading.parts["canGrade"]) == ("bob", False)

        assert (await bench.say("I am Bob.")).text == "To bob."

        assert bench.run.threads == ("ann", "bob")
        assert replies(bench) == ["To bob."]
        bench.thread_id = None
        assert replies(bench) == ["To ann.", "To bob."]


async def test_what_waits_in_a_thread_waits_there_when_another_is_shown() -> None:
    go = asyncio.Event()

    @nn.tool
    async def wait() -> str:
        """Wait."""
        await go.wait()
        return "waited"

    agent = harness(answers=[CallTool("wait"), "First.", "Second."], tools=[wait])
    with Workbench(agent, thread_id="ann") as bench:
        ask(bench, {"do": "say", "text": "Wait."})
        await until(lambda: "tool wait" in bench.reading.parts["progress"])
        ask(bench, {"do": "say", "text": "More."})
        await until(lambda: bench.reading.parts["chat"]["waiting"] == ["More."])

        bench.thread_id = "bob"
        assert (bench.reading.parts["chat"]["waiting"], bench.reading.parts["busy"]) == ([], False)
        bench.thread_id = "ann"
        assert (bench.reading.parts["chat"]["waiting"], bench.reading.parts["busy"]) == (["More."], True)

        bench.thread_id = "bob"
        go.set()
        await until(lambda: len([e for e in bench.run.events if isinstance(e, TurnCompleted)]) == 2)
        bench.thread_id = "ann"
        assert bench.reading.parts["chat"]["waiting"] == []


def test_a_turn_that_failed_says_why() -> None:
    agent = nn.AgentConfig(name="a", step=nn.react(model="m"))
    harness = nn.AgentHarness(agent, model=nn.ScriptedModel([nn.Fault("server_error")]))
    run = nn.record(harness)
    with pytest.raises(nn.NoeticError):
        nn.run_sync(harness.execute("hi"))

    with Workbench(run) as bench:
        assert "no answer: llm_failed (The provider failed with status 500.)" in bench.to_text()
