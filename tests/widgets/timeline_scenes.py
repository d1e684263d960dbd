"""Runs built from events for tests of the timeline: parallel, timed out, waiting, long, paused, without a clock."""

from __future__ import annotations

from collections.abc import Iterator

from noetic_nb.events import (
    ChildEnded,
    ChildStarted,
    ErrorRaised,
    ItemsAppended,
    MemoryTraceSpan,
    ModelCalled,
    RunEvent,
    SteeringDecided,
    StepEnded,
    StepStarted,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.items import input_message, parse_item
from noetic_nb.runs import Run

TURN = Where("t1", "e1", 1)


def branches(where: Where = TURN, begin: float = 1_000.0) -> Iterator[RunEvent]:
    """Yield one turn: a hook times out, a person is waited for, a tool fails, and three children run in parallel."""

    def at(ms: float) -> float:
        return begin + ms

    yield MemoryTraceSpan(where, at(2), "notes", "init", 2.0, "ok")
    yield TurnStarted(where, at(3), "u1", 0, 1, "Refund order A17, please.")
    yield ItemsAppended(where, at(3), 0, (input_message("Refund order A17, please."),), "user")
    yield StepStarted(where, at(4), "agent", "loop", "/agent#1")
    yield MemoryTraceSpan(where, at(54), "notes", "recall", 50.0, "timeout", error="It took more than 50 ms.")
    yield MemoryTraceSpan(where, at(60), "facts", "recall", 6.0, "ok")
    yield ModelCalled(where, at(460), 1, "fast", "agent", 400.0, "ok", input_tokens=900, output_tokens=30)
    call = parse_item({"type": "function_call", "name": "refund", "callId": "c1", "arguments": "{}"})
    yield ItemsAppended(where, at(460), 1, (call,), "model")
    yield ModelCalled(where, at(520), 1, "judge", "judge", 55.0, "ok")
    yield MemoryTraceSpan(where, at(522), "steering", "before_tool_call", 60.0, "ok")
    yield SteeringDecided(where, at(522), "steering", "before_tool_call", "refund", {}, "ask", "?", ("large",), 60.0)
    yield SteeringDecided(
        where, at(1_722), "approval", "before_tool_call", "refund", {}, "allow", None, ("large",), 1_200.0, "approved"
    )
    yield ToolCalled(
        where, at(1_800), "refund", "c1", {}, "", 70.0, "error", "The bank is closed.", error_type="Closed"
    )
    yield StepEnded(where, at(1_810), "agent", "loop", "/agent#1", 1_806.0, "ok")
    yield StepStarted(where, at(1_811), "ask_three", "fork", "/ask_three#1")
    kids = [Where(where.thread_id, f"{where.execution_id}.{n}", where.turn, 1) for n in range(3)]
    for n, kid in enumerate(kids):
        yield ChildStarted(kid, at(1_812 + n), where.execution_id, "ask_three", "fork", 1, (), {})
        yield StepStarted(kid, at(1_813 + n), f"path_{n}", "llm", f"/ask_three#1/[{n}]/path_{n}#1")
    for n, kid in reversed(list(enumerate(kids))):
        end = at(2_300 + 200 * (3 - n))
        failed = n == 1
        yield ModelCalled(kid, end - 2, 1, f"model_{n}", "agent", 400.0 + 60 * n, "error" if failed else "ok")
        status = "error" if failed else "ok"
        yield StepEnded(kid, end - 1, f"path_{n}", "llm", f"/ask_three#1/[{n}]/path_{n}#1", end - at(1_813 + n), status)
        outcome = "failure" if failed else "success"
        yield ChildEnded(kid, end, where.execution_id, "ask_three", outcome, 1.0, "", (), 1, 1, 0.0)
    yield StepEnded(where, at(2_910), "ask_three", "fork", "/ask_three#1", 1_099.0, "ok")
    yield TurnCompleted(where, at(2_920), "u1", "success", 2_920.0, "It is refunded.", 900, 30, 0.01, 4, 1)


def branches_run() -> Run:
    return Run("branches", events=list(branches()))


def out_of_time_run() -> Run:
    """Return a failing turn: its tool waits too long for an answer, and the turn ends."""
    first = TURN
    return Run(
        "failed",
        events=[
            TurnStarted(first, 0.0, "u1", 0, 1, "Book the flight."),
            StepStarted(first, 1.0, "agent", "loop", "/agent#1"),
            ModelCalled(first, 900.0, 1, "fast", "agent", 890.0, "ok"),
            ToolCalled(
                first, 30_950.0, "book", "c1", {}, "", 30_000.0, "error", "No answer.", error_type="channel_timeout"
            ),
            ErrorRaised(first, 30_960.0, "channel_timeout", "No answer within 30 s.", "agent"),
            StepEnded(first, 30_970.0, "agent", "loop", "/agent#1", 30_969.0, "error", "No answer within 30 s."),
            TurnCompleted(first, 30_980.0, "u1", "failure", 30_980.0, "", 900, 30, 0.01, 1, 1),
        ],
    )


def many_turns(turns: int = 2_000) -> Run:
    """Return turns of five spans each, one in a hundred with a failing tool, and a night in the middle."""
    events: list[RunEvent] = []
    for n in range(1, turns + 1):
        where, at = Where("t1", f"e{n}", n), 1_000.0 * n + (36_000_000.0 if n > turns // 2 else 0.0)
        status = "error" if n % 100 == 0 else "ok"
        events += [
            TurnStarted(where, at, f"u{n}", 2 * n, 2 * n + 1, "Next."),
            MemoryTraceSpan(where, at + 20, "notes", "recall", 15.0, "ok"),
            ModelCalled(where, at + 500, 1, "fast", "agent", 450.0, "ok"),
            ToolCalled(where, at + 600, "look", f"c{n}", {}, "", 80.0, status, "Gone." if status == "error" else None),
            ModelCalled(where, at + 900, 2, "fast", "agent", 250.0, "ok"),
            TurnCompleted(where, at + 920, f"u{n}", "success", 920.0, "Done.", 1, 1, 0.0, 2, 1),
        ]
    return Run("many", events=events)


def ten_thousand_spans() -> Run:
    return many_turns(2_000)


def untimed_run() -> Run:
    """Return an imported conversation whose messages have an order but no times."""
    from noetic_nb.lab import datasets

    return datasets.agentdojo("workspace", 1)[0]
