"""Inspect events: compactions, calls beside the conversation, agents of tools, branches, answers submitted with a tool."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ChildEnded, ChildStarted, ContextCompacted, ModelCalled, ToolCalled
from noetic_nb.items import item_text
from noetic_nb.runs import Run

SYSTEM = {"id": "s", "role": "system", "content": "You keep the garden."}
ASKED = {"id": "u", "role": "user", "content": "Which beds are dry?"}
SUMMARY = {"id": "sum", "role": "user", "content": "So far: bed 1 is dry.", "metadata": {"summary": True}}


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "function": name, "arguments": arguments, "type": "function"}


def answer(message_id: str, text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"id": message_id, "role": "assistant", "content": text, "tool_calls": list(calls), "model": "m"}


def result(message_id: str, call_id: str, text: str) -> dict[str, Any]:
    return {"id": message_id, "role": "tool", "tool_call_id": call_id, "content": text}


def model(message: dict[str, Any] | None, read: int, span: str = "main", **more: Any) -> dict[str, Any]:
    used = {"input_tokens": read, "output_tokens": 5, "input_tokens_cache_read": 20, "input_tokens_cache_write": 3}
    output = {
        "model": "m",
        "choices": [] if message is None else [{"message": message, "stop_reason": "stop"}],
        "usage": {**used, "reasoning_tokens": 2},
    }
    return {"event": "model", "span_id": span, "model": "m", "input": [], "output": output, **more}


def tool(call_id: str, name: str, text: str, span: str = "main", **more: Any) -> dict[str, Any]:
    return {"event": "tool", "span_id": span, "id": call_id, "function": name, "result": text, **more}


def began(span: str, kind: str, parent: str | None = None, name: str = "x") -> dict[str, Any]:
    return {"event": "span_begin", "id": span, "span_id": span, "parent_id": parent, "type": kind, "name": name}


def compaction(kind: str, **about: Any) -> dict[str, Any]:
    more = {"type": kind, "tokens_before": 90, "tokens_after": 30, "source": "inspect"}
    return {"event": "compaction", "span_id": "main", **more, "metadata": {"trigger": "threshold", **about}}


def run_of(messages: list[Any], events: list[Any], **more: Any) -> Run:
    sample = {"id": "q", "epoch": 1, "messages": messages, "events": events, **more}
    return nn.import_run({"version": 2, "eval": {"task": "garden"}, "samples": [sample]})


FIRST, SECOND = answer("a1", "", call("look", "c1", bed=1)), answer("a2", "Bed 1.")


def test_a_summary_is_a_compaction_with_its_model_call_and_no_turn() -> None:
    messages = [SYSTEM, ASKED, FIRST, result("r1", "c1", "dry"), SUMMARY, SECOND]
    events = [
        model(FIRST, 10),
        tool("c1", "look", "dry", message_id="r1"),
        model(answer("w", "Bed 1 is dry."), 50),
        compaction("summary"),
        model(SECOND, 7),
    ]

    run = run_of(messages, events)

    assert [turn.text for turn in run.turns] == ["Bed 1."]
    assert [(each.purpose, *each.counts) for each in run.select(ModelCalled)] == [
        ("agent", 33, 5, 20, 3, 2),
        ("summary", 73, 5, 20, 3, 2),
        ("agent", 30, 5, 20, 3, 2),
    ]
    row = run.to_frame("compactions").iloc[0]
    assert (row["call"], row["by"], row["trigger"], row["tokens_before"], row["tokens_after"]) == (
        *(1, "inspect", "auto", 90, 30),
    )
    assert (row["summary"], bool(row["opaque"])) == ("So far: bed 1 is dry.", False)
    assert [item_text(item) for item in run.log("t1")][-1] == "Bed 1."


def test_a_summary_without_events_is_no_turn() -> None:
    run = run_of([ASKED, FIRST, result("r1", "c1", "dry"), SUMMARY, SECOND], [])

    assert len(run.turns) == 1
    assert len(run.select(ContextCompacted)) == 1


def test_cleared_results_and_a_blob_of_the_provider_are_compactions_too() -> None:
    blob = {
        "id": "b",
        "role": "assistant",
        "content": [{"type": "data", "data": {"compaction_metadata": {"blob": "e"}}}],
    }
    told = {"type": "data", "data": {"compaction_metadata": {"type": "anthropic_compact", "content": "Bed 1: dry."}}}
    messages = [ASKED, FIRST, result("r1", "c1", "dry"), SECOND]
    for events, opaque, summary in (
        ([compaction("edit"), model(SECOND, 5)], False, ""),
        ([compaction("summary", strategy="CompactionNative"), model(SECOND, 5, input=[blob])], True, ""),
        ([compaction("summary"), model(SECOND, 5, input=[{**blob, "content": [told]}])], False, "Bed 1: dry."),
    ):
        run = run_of(messages, [model(FIRST, 10), tool("c1", "look", "dry"), *events])

        row = run.to_frame("compactions").iloc[0]
        assert (bool(row["opaque"]), row["summary"], row["call"]) == (opaque, summary, 1)


def test_an_answer_given_with_a_tool_is_a_call_of_it() -> None:
    given = answer("a2", "I submit.", call("submit", "c2", answer="Bed 1"))
    messages = [ASKED, FIRST, result("r1", "c1", "dry"), answer("a2", "I submit.\n\nBed 1")]
    events = [model(FIRST, 10), tool("c1", "look", "dry"), model(given, 5), tool("c2", "submit", "Bed 1")]

    run = run_of(messages, events)

    assert [(each.name, each.args, each.output) for each in run.select(ToolCalled)] == [
        ("look", {"bed": 1}, "dry"),
        ("submit", {"answer": "Bed 1"}, "Bed 1"),
    ]
    assert [turn.text for turn in run.turns] == ["Bed 1"]
    assert len(run.select(ModelCalled)) == 2


def test_an_agent_of_a_tool_is_a_child_with_calls_of_its_own() -> None:
    asked = answer("a1", "", call("digger", "c1", input="Dig bed 1."))
    events = [
        model(asked, 10),
        tool("c1", "digger", "Done.", agent_span_id="sub"),
        began("sub", "agent", "t", "digger"),
        model(
            answer("k1", "", call("dig", "d1", bed=1)), 4, "sub", input=[{**ASKED, "id": "v", "content": "Dig bed 1."}]
        ),
        tool("d1", "dig", "", "sub", error={"type": "unknown", "message": "too hard"}),
        model(answer("k2", "", call("submit", "d2", answer="Done.")), 6, "sub"),
        tool("d2", "submit", "Done.", "sub"),
        model(SECOND, 5),
    ]

    run = run_of([ASKED, asked, result("r1", "c1", "Done."), SECOND], events)

    assert [(each.name, each.where.depth, each.status) for each in run.select(ToolCalled)] == [
        ("dig", 1, "error"),
        ("submit", 1, "ok"),
        ("digger", 0, "ok"),
    ]
    assert [each.where.depth for each in run.select(ModelCalled)] == [0, 1, 1, 0]
    ended = run.select(ChildEnded)[0]
    assert (ended.step_id, ended.outcome, ended.text, ended.input_tokens) == ("digger", "success", "Done.", 56)


def test_a_pool_of_messages_and_events_inside_a_tool_are_read() -> None:
    asked = answer("a1", "", call("digger", "c1"))
    inner = model(answer("k1", "Dug."), 4, input_refs=[[1, 2]])
    events = [model(asked, 10), tool("c1", "digger", "Dug.", events=[inner]), model(SECOND, 5)]
    pool = {"messages": [ASKED, {**ASKED, "id": "v", "content": "attachment://x"}]}

    run = run_of(
        [ASKED, asked, result("r1", "c1", "Dug."), SECOND], events, events_data=pool, attachments={"x": "Dig."}
    )

    own = run.select(ChildStarted)[0].where.execution_id
    said = [
        item_text(item)
        for event in run.events
        if event.where.execution_id == own
        for item in getattr(event, "items", ())
    ]
    assert said == ["Dig.", "Dug.", "Dug."]


def test_messages_without_ids_are_matched_by_what_they_say() -> None:
    def bare(message: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in message.items() if key != "id"}

    given = {"role": "assistant", "content": "Bed 0 was dry.", "source": "input"}
    messages = [ASKED, given, ASKED, bare(FIRST), result("r1", "c1", "dry"), {**SECOND, "content": "attachment://t"}]
    events = [model(bare(FIRST), 10), tool("c1", "look", "dry"), model(bare(SECOND), 5)]

    run = run_of(messages, events, attachments={"t": "Bed 1."})

    assert [call.input_tokens for call in run.select(ModelCalled)] == [33, 28]
    assert [turn.text for turn in run.turns][-1] == "Bed 1."


def test_texts_that_an_agent_writes_to_itself_are_no_turns() -> None:
    handed = answer("a1", "[digger] look(bed=1)")
    messages = [{**ASKED, "source": "input"}, handed, {**ASKED, "id": "v", "content": "dry"}, SECOND]
    looked = answer("a1", "I look.", call("look", "c1", bed=1))
    events = [began("main", "agent"), model(looked, 10), tool("c1", "look", "dry"), model(SECOND, 5)]

    run = run_of(messages, events)

    assert [(turn.query, turn.text) for turn in run.turns] == [("Which beds are dry?", "Bed 1.")]
    assert [item_text(item) for item in run.log("t1")] == [
        *("Which beds are dry?", "I look.", 'look{"bed":1}', "dry", "dry", "Bed 1."),
    ]


def test_a_branch_is_a_child_that_forked_and_a_failed_call_is_kept() -> None:
    events = [
        model(None, 1, error="overloaded"),
        model(FIRST, 10),
        tool("c1", "look", "dry"),
        began("other", "branch", "main", "second try"),
        model(answer("x", "replayed"), 1, "other"),
        {"event": "branch", "span_id": "other", "from_anchor": "a1"},
        model(answer("b1", "Bed 2."), 8, "other", input=[ASKED, FIRST, result("r1", "c1", "dry")]),
        model(SECOND, 5),
        began("judge", "scorers"),
        model(answer("g", "Good."), 99, "judge"),
    ]

    run = run_of([ASKED, FIRST, result("r1", "c1", "dry"), SECOND], events)

    assert [(each.step_id, each.step_kind) for each in run.select(ChildStarted)] == [("second try", "fork")]
    assert run.select(ChildEnded)[0].text == "Bed 2."
    assert [(each.where.depth, each.status) for each in run.select(ModelCalled)] == [
        (0, "error"),
        (0, "ok"),
        (1, "ok"),
        (0, "ok"),
    ]
    assert [entry["what"] for entry in run.meta["unmapped"]] == ["a model call of a scorer"]


@pytest.mark.parametrize("junk", [7, [7], "x", [[]], {"a": 1}, None])
def test_a_damaged_event_spoils_no_sample(junk: Any) -> None:
    messages = [SYSTEM, ASKED, FIRST, result("r1", "c1", "dry"), SECOND]
    events = [model(FIRST, 10), tool("c1", "look", "dry", message_id="r1"), model(None, 50), model(SECOND, 7)]
    events[2]["output"]["choices"] = junk
    odd = [*events[:2], {"event": junk, "span_id": "main"}, *events[2:]]

    for given in (events, odd):
        run = run_of(messages, given)
        assert [turn.text for turn in run.turns] == ["Bed 1."]
        assert [each.input_tokens for each in run.select(ModelCalled)][-1] == 30


def test_a_repeated_event_is_read_once() -> None:
    messages = [SYSTEM, ASKED, FIRST, result("r1", "c1", "dry"), SECOND]
    events = [model(FIRST, 10, uuid="e1"), model(None, 7, uuid="e2"), tool("c1", "look", "dry", uuid="e3")]
    events.append(model(SECOND, 30, uuid="e4"))

    once, twice = run_of(messages, events), run_of(messages, [*events, *events])

    assert [call.input_tokens for call in once.select(ModelCalled)] == [33, 30, 53]
    assert [call.counts for call in twice.select(ModelCalled)] == [call.counts for call in once.select(ModelCalled)]
