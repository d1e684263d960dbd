"""Runs built from events for tests of views: small, long, empty, over budget, hostile."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.events import (
    BudgetsAllocated,
    ItemFate,
    LayerTokens,
    ModelCalled,
    QualityGiven,
    RegulatorDecided,
    RegulatorSaw,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
    Where,
)
from noetic_nb.regulator import Regulator
from noetic_nb.regulator import decisions as decided_by
from noetic_nb.regulator import events as seen_by
from noetic_nb.runs import Run

HOSTILE: Final = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\u202eevil\u2066 right-to-left",
    "</style><svg onload=alert(3)>",
    '"><b>bold</b>&amp;',
    "\x00\x1b[31mred",
    "x" * 50_000,
    "${alert(4)} {{7*7}} $x^2$",
)

THRESHOLDS = {"quality_decline": {"window": 3, "min_delta": 0.15, "poor_mean": 0.5}}
"""The thresholds of a regulator with release settings, as recorded with each decision."""


def layer(layer_id: str, allocated: float, used: int, items: int = 1) -> LayerTokens:
    return LayerTokens(layer_id, allocated, used, max(0.0, allocated - used), items)


def view(
    *,
    turn: int = 1,
    step: int = 0,
    thread: str = "t1",
    layers: tuple[LayerTokens, ...] = (),
    history: int = 900,
    total: float = 8000,
    fates: tuple[ItemFate, ...] = (),
    window: tuple[int, int] = (0, 6),
    t_ms: float = 0.0,
) -> ViewAssembled:
    allocated = sum(part.allocated for part in layers)
    return ViewAssembled(
        where=Where(thread, f"e-{thread}-{turn}", turn),
        t_ms=t_ms,
        step=step,
        window=window,
        fates=fates,
        layers=layers,
        layer_items=(),
        total=total,
        reserve=1000,
        system=420,
        tools=310,
        framing=60,
        history=history,
        history_budget=max(0.0, total - 1000 - 420 - allocated),
        history_items=window[1] - window[0],
    )


def turn(
    number: int,
    *,
    quality: float | None = None,
    tokens_out: int = 180,
    spent: int = 0,
    cap: float | None = 2000,
    decision: dict[str, Any] | None = None,
    suggestion: str | None = None,
    layers: tuple[LayerTokens, ...] | None = None,
    history: int = 900,
    fates: tuple[ItemFate, ...] = (),
    window: tuple[int, int] = (0, 6),
    calls: int = 1,
    thread: str = "t1",
) -> list[RunEvent]:
    """Return one turn as recorded by a harness, including the regulator's events."""
    where = Where(thread, f"e-{thread}-{number}", number)
    default = (layer("working_memory", 600, 240), layer("episodic", 1500, 1320, 4), layer("rag", 2000, 700, 3))
    shown = layers if layers is not None else default
    events: list[RunEvent] = []
    for step in range(calls):
        events += [
            BudgetsAllocated(where, 0.0, 8000, 420, 1000, tuple((p.layer_id, p.allocated) for p in shown), 2000.0),
            view(turn=number, step=step, thread=thread, layers=shown, history=history, fates=fates, window=window),
        ]
    events += [
        ModelCalled(where, 1.0, 0, "scripted", "agent", 12.0, "ok", input_tokens=2000, output_tokens=tokens_out),
        RegulatorSaw(
            where, 1.0, "regulation", {"kind": "cost", "tokens_in": 2000, "tokens_out": tokens_out, "wallclock_ms": 12}
        ),
    ]
    if quality is not None:
        events += [
            QualityGiven(where, 2.0, quality, "grader"),
            RegulatorSaw(where, 2.0, "regulation", {"kind": "quality_feedback", "quality": quality}),
        ]
    plain = decision or {"kind": "continue"}
    stops = plain["kind"] == "circuit_break"
    events += [
        RegulatorDecided(
            where,
            2.0,
            "regulation",
            "quality_feedback",
            plain,
            suggestion,
            0.6,
            spent + tokens_out,
            cap,
            stops,
            thresholds={**THRESHOLDS, "cost_cap": {"tokens_out": cap, "window": 3, "poor_mean": 0.5}},
        ),
        TurnCompleted(
            where,
            3.0,
            f"turn-{number}",
            "aborted" if stops else "success",
            20.0,
            "text",
            2000,
            tokens_out,
            0.01,
            calls,
            0,
        ),
    ]
    return events


def run_of_events(*groups: list[RunEvent]) -> Run:
    run = Run(run_id="run-1")
    for group in groups:
        for event in group:
            run.append(event)
    return run


def demo_run() -> Run:
    """Return six turns: answers get worse, tokens add up, the sixth turn is stopped."""
    qualities = (0.86, 0.81, 0.72, 0.55, 0.41, 0.28)
    spends = (210, 260, 340, 420, 510, 480)
    groups: list[list[RunEvent]] = []
    spent = 0
    for number, (quality, tokens) in enumerate(zip(qualities, spends, strict=True), start=1):
        decision: dict[str, Any] | None = None
        suggestion = None
        if number == 4:
            decision = {
                "kind": "scope_drift_warn",
                "drift_tokens": ["refund", "hotel"],
                "drift_score": 0.67,
                "task_tokens": ["flight"],
            }
        if number == 6:
            reason = {
                "kind": "cost_cap_reached",
                "tokens_spent": spent + tokens,
                "tokens_cap": 2000,
                "mean_quality_last_n": 0.4133,
            }
            suggestion = "The budget is spent and the last answers were poor. Ask for one narrower thing."
            decision = {"kind": "circuit_break", "reason": reason, "suggestion": suggestion}
        fates = (
            ItemFate("history", 0, 120, "over_budget"),
            ItemFate("history", 1, 140, "over_budget"),
            ItemFate("layer:rag", 3, 260, "over_allocation"),
        )
        groups.append(
            turn(
                number,
                quality=quality,
                tokens_out=tokens,
                spent=spent,
                decision=decision,
                suggestion=suggestion,
                history=300 + 480 * number,
                fates=fates if number > 3 else (),
                calls=1 + number % 2,
            )
        )
        spent += tokens
    groups.append(decisions())
    return run_of_events(*groups)


def decisions() -> list[RunEvent]:
    """Return ledger entries, one of each action."""
    where = Where("t1", "e-t1-6", 6)

    def entry(tool: str, args: dict[str, Any], action: Any, guidance: str | None, *rules: str) -> SteeringDecided:
        return SteeringDecided(where, 4.0, "steering", "before_tool_call", tool, args, action, guidance, rules, 0.2)

    return [
        entry("get_reservation", {"reservation_id": "EHGLP3"}, "allow", None),
        entry("search_flights", {"origin": "JFK"}, "guide", "Ask for the date of travel first.", "date_before_search"),
        entry(
            "cancel_reservation",
            {"reservation_id": "EHGLP3", "api_key": "hidden-anyway"},
            "deny",
            "Basic economy cannot be cancelled after a day. Offer a change instead.",
            "no_late_cancellation",
            "confirm_before_writing",
        ),
        SteeringDecided(where, 5.0, "steering", "after_model_call", None, None, "allow", None, (), 0.1),
    ]


def short_run() -> Run:
    """Return one turn with a warning and ledger entries, with a bit of everything, for views that are created by the hundred."""
    drift = {"kind": "scope_drift_warn", "drift_tokens": ["hotel"], "drift_score": 0.67, "task_tokens": ["flight"]}
    fates = (ItemFate("history", 0, 120, "over_budget"), ItemFate("layer:rag", 3, 260, "over_allocation"))
    return run_of_events(turn(1, quality=0.4, decision=drift, fates=fates), decisions())


def many_layers_run(count: int = 30) -> Run:
    layers = tuple(layer(f"layer_{n:02d}", 150 + 7 * n, 60 + 5 * n) for n in range(count))
    return run_of_events([view(layers=layers, history=700, total=12000)])


def hostile_run() -> Run:
    """Return a run with names, reasons and guidance that imitate markup or code, or are endless or backwards."""
    run = run_of_events(
        turn(1, layers=tuple(layer(text, 300, 100) for text in HOSTILE), quality=0.4, thread=HOSTILE[0])
    )
    where = Where(HOSTILE[0], "e", 1)
    for text in HOSTILE:
        run.append(
            SteeringDecided(where, 4.0, "steering", "before_tool_call", text, {"a": text}, "deny", text, (text,), 0.1)
        )
        run.append(ToolCalled(where, 4.0, text, "c", {"a": text}, text, 0.1, "denied"))
        run.append(
            RegulatorDecided(
                where,
                5.0,
                "regulation",
                "tool_call",
                {"kind": text, "reason": {"kind": text}},
                text,
                0.5,
                10,
                5000,
                False,
            )
        )
    return run


def planned_run(turns: int = 6) -> Run:
    """Return a conversation planned by a harness: two layers, a small budget, and answers that soon do not fit."""
    import noetic_nb as nn
    from noetic_nb.items import input_message
    from noetic_nb.memory import MemoryHooks, MemoryLayer, ProjectionPolicy
    from noetic_nb.testing import FakeClock, SeededIds

    notes = [
        ("Ann flies from Bergen on the 3rd of May.", "a"),
        ("She would rather not change planes, and never in Frankfurt. " * 4, "b"),
        ("Her company pays for premium economy on flights of more than six hours.", "c"),
    ]
    facts = "Basic economy cannot be changed. Bags over 23 kg cost 60 euros each. " * 6

    def recall(p: Any) -> dict[str, Any]:
        return {"items": [input_message(text, "developer", item_id=f"note-{name}") for text, name in notes]}

    layers = [
        MemoryLayer(
            id="notes", slot=1, scope="thread", budget={"min": 20, "max": 60}, hooks=MemoryHooks(recall=recall)
        ),
        MemoryLayer(id="policy", slot=2, scope="thread", budget=120, hooks=MemoryHooks(recall=lambda p: facts)),
    ]
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(
            model="scripted", instructions="You sell flights. Be brief, and never promise what is not in the policy."
        ),
        memory=layers,
        projection=ProjectionPolicy(token_budget=900, response_reserve=150, overflow="truncate"),
    )
    model = nn.ScriptedModel(lambda request: "There is one at nine and one at noon; the later one has seats. " * 3)
    harness = nn.AgentHarness(config, model=model, clock=FakeClock(5_000), ids=SeededIds(), diagnostic=lambda *_: None)
    run = nn.record(harness)
    for number in range(1, turns + 1):
        nn.run_sync(harness.execute(f"Question {number}: is there a later flight to Oslo that day?", thread_id="ann"))
    return run


def two_threads_run() -> Run:
    return run_of_events(turn(1, quality=0.9), turn(1, quality=0.3, thread="t2"))


def long_run(turns: int = 400) -> Run:
    """Return enough turns that only the last ones are shown, with decisions close together."""
    drift = {"kind": "scope_drift_warn", "drift_tokens": ["hotel"], "drift_score": 0.5, "task_tokens": []}
    corrected = {
        "kind": "procedural_warning",
        "patterns": [{"pattern_name": "corrections_on_refund", "learned_from_turns": 3}],
    }
    groups = []
    for number in range(1, turns + 1):
        quality = 0.5 + 0.4 * ((number * 37) % 100 - 50) / 50
        decision = drift if number % 40 == 0 else corrected if number % 40 == 3 else None
        groups.append(
            turn(number, quality=quality, tokens_out=40, spent=40 * (number - 1), cap=12_000, decision=decision)
        )
    return run_of_events(*groups)


ASKED = ("Move my flight to Ulm to Friday.", "Is the hotel in Bonn free on Friday?", "How much is the fee?")
ANSWERED = (
    "Your flight to Ulm is moved to Friday.",
    "The hotel in Bonn is free on Friday.",
    "The fee is 40 euros; the museum opens at nine.",
)


def watched_turn(live: Regulator, number: int, quality: float | None, *, tokens: int, calls: int = 1) -> list[RunEvent]:
    """Return one turn with a real regulator, as recorded by the regulation layer."""
    where, t_ms = Where("t1", f"e-{number}", number), 1000.0 * number
    found: list[RunEvent] = [TurnStarted(where, t_ms, f"turn-{number}", 0, 1, ASKED[number % 3])]

    def see(event: Any) -> None:
        live.on_event(event)
        found.append(RegulatorSaw(where, t_ms, "regulation", seen_by.to_dict(event)))

    def decide(at: str) -> None:
        decision = live.decide()
        stops = decision.kind == "circuit_break"
        found.append(
            RegulatorDecided(
                where,
                t_ms,
                "regulation",
                at,
                decided_by.to_dict(decision),
                getattr(decision, "suggestion", None),
                live.confidence(),
                live.total_tokens_out(),
                live.cost_cap_tokens(),
                stops,
                live.thresholds,
            )
        )

    see(seen_by.TurnStart(ASKED[number % 3]))
    decide("turn_start")
    found.append(ModelCalled(where, t_ms, 0, "scripted", "agent", 900.0, "ok", output_tokens=tokens, cost=0.004))
    see(seen_by.Cost(900, tokens, 900, usd=0.004))
    for _ in range(calls):
        see(seen_by.ToolCall("find", "{}"))
        decide("tool_call")
        see(seen_by.ToolResult("find", True, 5, None, "found"))
    see(seen_by.TurnComplete(ANSWERED[number % 3]))
    decide("turn_complete")
    if quality is not None:
        found.append(QualityGiven(where, t_ms, quality, "grader"))
        see(seen_by.QualityFeedback(quality))
        decide("quality_feedback")
    found.append(TurnCompleted(where, t_ms, f"turn-{number}", "success", 900.0, "text", 900, tokens, 0.004, 1, calls))
    return found


def watched_run(turns: int = 50, *, cap: int = 30_000) -> Run:
    """Return many turns of one task with a real regulator: quality falls at the end of every fifty."""
    live = Regulator.for_user("ann").with_cost_cap(cap)
    run = Run(run_id="watched", meta={"regulator": {"settings": live.settings.to_dict()}})
    for number in range(1, turns + 1):
        place = (number - 1) % 50
        wave = 0.78 + 0.08 * ((number * 7) % 5 - 2) / 2
        quality = wave if place < 34 else max(0.12, wave - 0.1 * (place - 33))
        for event in watched_turn(live, number, quality, tokens=140 + 30 * (number % 7), calls=1 + number % 4):
            run.append(event)
    return run


def one_turn_run() -> Run:
    return watched_run(1)


def memory_harness() -> Any:
    """Return a desk whose layers store a trip, and whose child gets a part of it for research."""
    import noetic_nb as nn
    from noetic_nb.memory import MemoryHooks, MemoryLayer
    from noetic_nb.testing import FakeClock, SeededIds

    cities = ("Rome", "Oslo, by train", "Oslo, by night train")

    async def load(p: Any) -> dict[str, Any]:
        return {"state": await p.storage.get("state") or {"city": "Bergen", "visits": [], "travellers": 2}}

    def store(p: Any) -> dict[str, Any]:
        turn = p.ctx.turn
        visits = [*p.state["visits"], {"turn": turn, "place": cities[turn % 3]}][-3:]
        trip = {"city": cities[turn % 3], "visits": visits, "travellers": p.state["travellers"]}
        return {"state": {**trip, "paid": True} if turn % 2 == 0 else trip}

    trip = MemoryLayer(
        id="trip",
        slot=1,
        scope="thread",
        hooks=MemoryHooks(
            init=load,
            recall=lambda p: f"They go to {p.state['city']}.",
            store=store,
            on_spawn=lambda p: {"child_state": {"city": p.parent_state["city"], "found": []}},
            on_return=lambda p: {"parent_state": {**p.parent_state, "found": p.result}},
        ),
    )
    preferences = MemoryLayer(id="preferences", slot=2, scope="thread", hooks=MemoryHooks(recall=lambda p: "Window."))
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="scripted"), memory=[trip, preferences, nn.working_memory()]
    )
    model = nn.ScriptedModel(lambda request: "There is a train at nine.")
    harness = nn.AgentHarness(config, model=model, clock=FakeClock(5_000), ids=SeededIds(), diagnostic=lambda *_: None)
    nn.record(harness)
    return harness


async def memory_turns(harness: Any, turns: int, *, child: bool = True) -> None:
    """Continue a trip, and let a child do research."""
    import noetic_nb as nn

    for number in range(1, turns + 1):
        await harness.execute(f"Question {number}: where to next?", thread_id="ann")
    if child:
        async with harness.execution(thread_id="ann") as ctx:
            await harness.run(nn.spawn("look", nn.step.llm("ask", model="scripted")), "A hotel?", ctx)


def memory_run(turns: int = 3) -> Run:
    """Return a desk's knowledge of a trip over several turns."""
    import noetic_nb as nn
    from noetic_nb.runs._recording.recorder import recorded

    harness = memory_harness()
    nn.run_sync(memory_turns(harness, turns))
    found = recorded(harness)
    assert found is not None
    return found
