"""The cause part of a workbench: for decisions, stops and tool calls, and the draft of a rule against a call."""

from __future__ import annotations

import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, RegulatorDecided, SteeringDecided, ToolCalled
from noetic_nb.lab import datasets
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook
from noetic_nb.widgets import RuleEditor, Workbench
from noetic_nb.widgets._timeline.timeline_reading import go_of
from tests.lab.test_rule_drafts import NOT_LOOKED, PAGE, USER, denying, limited, paying, recorded
from tests.widgets.rows import cells
from tests.widgets.scenes import demo_run


def calls(run: Run) -> list[int]:
    return [at for at, event in enumerate(run.events) if isinstance(event, ToolCalled)]


def banked(number: int, **meta: Any) -> Run:
    run = recorded(None, paying(PAGE), paying(USER))
    return Run(f"bank-{number}", events=list(run.events), meta={**run.meta, **meta})


def cause(bench: Workbench) -> dict[str, Any]:
    """Return the cause that a page shows for the selection."""
    seq = bench.reading.parts["cause"]
    return dict(bench._answer({"what": "cause", "decision": seq})["data"])


def tried(bench: Workbench) -> dict[str, Any]:
    """Return the first trial that an editor shows."""
    bench.rules._answer({"do": "try_in_force"})
    return dict(bench.rules.trial or {})


def answered(bench: Workbench, seq: int, rule: int | None = None) -> str:
    return str(bench._answer({"do": "edit", "decision": seq, "rule": rule}).get("fault", ""))


@pytest.mark.parametrize(
    "run",
    [
        lambda: recorded(None, paying(USER), paying(PAGE)),
        lambda: recorded(limited(), paying(PAGE), paying(USER)),
        lambda: recorded(denying(), paying(PAGE), paying(USER)),
        lambda: datasets.airline_run(26),
        demo_run,
    ],
    ids=["no steering", "allowed", "denied", "imported", "demo"],
)
def test_every_tool_call_has_its_cause_from_the_timeline_the_transcript_and_the_log(run: Any) -> None:
    run = run()
    items = {item["callId"]: at for at, item in enumerate(run.log(run.threads[0])) if item["type"] == "function_call"}
    with Workbench(run, panels=[]) as bench:
        spans = {span.seq: span for span in bench.timeline.reading.timeline.spans if span.kind == "tool"}
        for seq in calls(run):
            event = run.events[seq]
            known = bench.reading.causes._reader.decided(seq)
            chosen = [{"decision": seq}, go_of(spans[seq])]
            if event.call_id in items:
                chosen.append({"thread_id": event.where.thread_id, "item": items[event.call_id]})
            for fields in chosen:
                bench.selection.select(**fields)
                assert bench.reading.parts["cause"] == known
                found = cause(bench)
                assert [row["name"] for row in found["arguments"]][:3] == list(run.cause(seq=seq).argument)[:3]
                assert event.name in found["head"]
                assert found["canDraft"] is found["head"].startswith(("allow", "call"))


def test_what_is_no_decision_or_call_has_no_cause() -> None:
    run = recorded(None, paying(USER))
    said = next(at for at, event in enumerate(run.events) if isinstance(event, ModelCalled))
    with Workbench(run, panels=[]) as bench:
        for fields in ({"decision": said}, {"decision": 10**6}, {"thread_id": "t1", "item": 0}, {"turn": 1}):
            bench.selection.select(**fields)
            assert bench.reading.parts["cause"] is None
        assert "UNKNOWN_DECISION" in bench._answer({"what": "cause", "decision": said})["fault"]
        assert "UNKNOWN_DECISION" in answered(bench, said)
        with pytest.raises(NoeticConfigError, match="UNKNOWN_DECISION"):
            bench.edit(said)


def test_a_stop_is_explained_from_its_turn() -> None:
    found = next(event for event in demo_run().events if isinstance(event, RegulatorDecided) and event.stops)
    run, stop = Run(events=[found]), 0
    with Workbench(run, panels=[]) as bench:
        at = next(row["key"] for row in bench.reading.parts["talk"] if "stopped by the regulator: why?" in row["html"])
        bench._answer({"do": "choose", "at": at, "why": True})
        assert bench.selection.decision == bench.reading.parts["cause"] == stop
        assert cause(bench)["head"].startswith("circuit break")
        assert cause(bench)["canDraft"] is False


def test_a_call_that_no_rule_looked_at_is_drafted_against_and_scored_on_the_bank_before_the_first_key() -> None:
    bank = [banked(number, outcome=number == 2) for number in range(3)]
    run, book = recorded(limited(), paying(PAGE)), limited()
    with Workbench(run, rules=book, bank=bank, panels=["ledger"]) as bench:
        bench.selection.select(decision=calls(run)[0])  # read_page
        assert cause(bench)["note"] == NOT_LOOKED
        assert answered(bench, bench.reading.parts["cause"]) == ""

        assert bench.panels == ["ledger", "rules"]
        chosen = book[str(bench.rules.chosen)]
        assert chosen.id == nn.lab.draft_rule(run, 0).id
        assert not chosen.enabled
        assert bench.rules.trial is not None
        assert bench.rules.trial["of"] == "nothing"
        trial = tried(bench)
        assert trial["title"].endswith("of 4 runs")
        assert [count for change, _, count in trial["counts"] if change == "newly_denied"] == [4]
        assert {line["name"]: line["after"][:2] for line in trial["lines"]}["blocked"] == [1, 1]
        places = [row["place"] for row in trial["rows"]]
        assert [place is not None for place in places] == [row["run"] == run.run_id for row in trial["rows"]]

        # The same draft again finds the same rule; a different draft with the same name is added.
        assert answered(bench, bench.reading.parts["cause"]) == ""
        assert len(book) == 2
        bench.rules.write(guidance="Ask first.")
        assert bench.rules.apply()
        assert answered(bench, bench.reading.parts["cause"]) == ""
        assert [rule.id for rule in book][1:] == [chosen.id, f"{chosen.id}-2"]


def test_a_recording_without_a_rule_book_gets_one_with_the_draft() -> None:
    run = datasets.airline_run(26)
    with Workbench(run, panels=["transcript"]) as bench:
        assert {name: why for name, _, why in bench.reading.parts["titles"]}["rules"]
        bench.edit(calls(run)[-1])

        assert bench.panels == ["transcript", "rules"]
        assert not {name: why for name, _, why in bench.reading.parts["titles"]}["rules"]
        assert [rule.enabled for rule in bench.rules.rulebook] == [False]
        [rule] = bench.rules.rulebook
        replayed = nn.lab.replay(run, rules=[rule.model_copy(update={"enabled": True})])
        denied = [event for event in replayed.select(SteeringDecided) if event.action == "deny"]
        assert denied
        assert f"Rule {rule.id}" not in json.dumps(bench._answer({"what": "cause", "decision": calls(run)[-1]}))


def test_the_rule_of_a_denial_is_opened_with_the_score_of_the_book() -> None:
    run, book = recorded(denying(), paying(PAGE)), denying()
    denied = next(
        at for at, event in enumerate(run.events) if isinstance(event, SteeringDecided) and event.action == "deny"
    )
    with Workbench(run, rules=book, bank=banked(0), panels=[]) as bench:
        assert answered(bench, denied, 0) == ""
        assert bench.rules.chosen == "only-from-user-recipient-of-pay"
        trial = tried(bench)
        assert trial["of"] == "rules"
        assert ["newly_denied", "denied", 2] in trial["counts"]


def test_a_bank_without_outcomes_is_for_the_rules_alone() -> None:
    labelled, attack = banked(0, outcome=True), banked(1)
    with Workbench(recorded(None, paying(USER)), bank=attack, panels=["trends"]) as bench:
        assert bench.trends.reading.bank is None
    with Workbench(recorded(None, paying(USER)), bank=[labelled, attack], panels=["trends"]) as bench:
        assert bench.trends.reading.bank is not None
    with pytest.raises(NoeticConfigError, match="INVALID_RUN"):
        Workbench(recorded(None, paying(USER)), bank=[3])


def test_the_list_of_events_has_decisions_by_their_tool_with_their_action_and_why() -> None:
    run = recorded(denying(), paying(PAGE), paying(USER))
    with Workbench(run, panels=[]) as bench:
        rows = bench.timeline.reading.answer({"what": "list"})["rows"]
    listed = [cells(row) for row in rows]
    decided = [row for row in listed if row["Kind"] == "decision" and row["Name"].endswith("pay")]
    assert [row["Status"] for row in decided] == ["⊘ deny", "allow"]
    assert decided[0]["Why"].startswith("only-from-user-recipient-of-pay: pay may be called only")
    assert not [row for row in listed if row["Kind"] == "hook"]


@pytest.mark.parametrize("name", ["transcript", "allocation", "timeline", "ledger", "trends", "memory"])
def test_a_panel_opens_on_what_was_chosen_before_it_was_made(name: str) -> None:
    run = recorded(limited(), paying(PAGE))
    with Workbench(run, panels=[]) as bench:
        bench.selection.select(thread_id="t1", turn=1, call=0, decision=calls(run)[0])
        data = bench._answer({"do": "panel", "panel": name})["data"]
        assert data.get("fault") is None
        assert data["snapshot"]["selection"]["call"] == 0


@pytest.mark.parametrize("given", [None, 5, "x", {}])
def test_a_number_a_bank_and_a_draft_of_another_type_are_refused(given: Any) -> None:
    bench = Workbench(demo_run())
    for code, use in (
        ("UNKNOWN_DECISION", lambda: bench.edit("x" if given == 5 else given)),
        ("NOT_A_RULE", lambda: RuleEditor(RuleBook()).begin_with(given)),
        ("INVALID_RUN", lambda: Workbench(demo_run(), bank=given or 5)),
    ):
        with pytest.raises(NoeticConfigError) as caught:
            use()
        assert caught.value.code == code
