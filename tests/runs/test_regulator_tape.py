"""Recomputed decisions with other thresholds equal those of a regulator that sees the same events."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, RegulatorDecided, RegulatorSaw, TurnStarted, Where
from noetic_nb.items import freeze
from noetic_nb.lab import datasets, replay_regulator
from noetic_nb.regulator import Regulator, decisions, events
from noetic_nb.regulator._settings import NEWER_SETTINGS, RECOMMENDED_SETTINGS, RELEASE_SETTINGS, Settings
from noetic_nb.regulator._state import Person
from noetic_nb.regulator.predicates import CallBudget, CostCap, QualityDecline, ToolLoop
from noetic_nb.regulator.predicates.explanation import names_of
from noetic_nb.runs import Run, load_run
from noetic_nb.runs._regulation.recorded_decisions import DecisionTape, tape_of, with_thresholds
from noetic_nb.runs._regulation.recorded_regulator import recorded_regulators
from tests.matrix import matrix

PRESETS = (
    RELEASE_SETTINGS,
    NEWER_SETTINGS,
    RECOMMENDED_SETTINGS,
    Settings(
        predicates=(CostCap(tokens_out=None, usd=0.4, wallclock_ms=900), CallBudget(total=6, per_tool={"find": 3}))
    ),
)
TEXTS = (
    "move the flight to Ulm",
    "the hotel in Bonn",
    "refund of the flight to Ulm?",
    "ok",
    "Flight HAT136 costs $700 now",
)
# Ranges for the numbers of every predicate in a preset.
RANGES: dict[str, Any] = {
    "tokens_out": lambda dice: dice.randrange(0, 900),
    "usd": lambda dice: dice.random(),
    "wallclock_ms": lambda dice: dice.randrange(0, 2_000),
    "window": lambda dice: dice.randrange(2, 6),
    "poor_mean": lambda dice: dice.random(),
    "min_delta": lambda dice: dice.random() / 2,
    "total": lambda dice: dice.randrange(0, 9),
    "min_corrections": lambda dice: dice.randrange(1, 5),
    "min_tokens": lambda dice: dice.randrange(1, 4),
}


def seen(dice: random.Random) -> Any:
    """Return a regulator event."""
    tool = dice.choice(("find", "book"))
    return dice.choice(
        (
            lambda: events.TurnStart(dice.choice(TEXTS)),
            lambda: events.TurnComplete(dice.choice(TEXTS)),
            lambda: events.Cost(
                9, dice.randrange(200), dice.randrange(300), usd=dice.choice((None, dice.random() / 5))
            ),
            lambda: events.QualityFeedback(dice.choice((dice.random(), 0.35, 0.5, 0.2))),
            lambda: events.UserCorrection(dice.choice(TEXTS), True),
            lambda: events.ToolCall(tool, dice.choice(("{}", None))),
            lambda: events.ToolResult(tool, dice.random() < 0.5, 5, dice.choice((None, "no"))),
            lambda: events.Token("ab", -9 * dice.random(), 0),
        )
    )()


def recorded(dice: random.Random, settings: Settings, length: int = 24) -> tuple[Run, list[Any]]:
    """Return a run with a regulator's events and decisions, and the same as steps: an event, or None for a decision."""
    run = Run(meta={"regulator": {"settings": settings.to_dict()}})
    live = Regulator(Person("recorded"), settings)
    where = Where("t1", "e1", 1)
    steps: list[Any] = []
    for _ in range(length):
        event = seen(dice)
        live.on_event(event)
        steps.append(event)
        if isinstance(event, events.Token):
            run.append(ModelCalled(where, 0.0, 0, "m", "agent", 1.0, "ok", logprobs=((event.token, event.logprob),)))
            continue
        run.append(RegulatorSaw(where, 0.0, "regulation", events.to_dict(event)))
        if dice.random() < 0.6:
            decided = decisions.to_dict(live.decide())
            tokens = live.total_tokens_out()
            run.append(
                RegulatorDecided(
                    where, 0.0, "regulation", "tool_call", decided, tokens_out=tokens, thresholds=live.thresholds
                )
            )
            steps.append(None)
    return run, steps


def moved(dice: random.Random, settings: Settings) -> tuple[dict[str, dict[str, float]], Settings]:
    """Return other thresholds, and the settings with them, created without the code under test."""
    predicates = list(settings.predicates)
    names = names_of(predicates)
    before = Regulator.for_user("x").with_predicates(*predicates).thresholds
    thresholds: dict[str, dict[str, float]] = {}
    for place in dice.sample(range(len(names)), dice.randrange(1, min(4, len(names) + 1))):
        name = dice.choice([name for name in before[names[place]] if name != "period"])
        if name.startswith("per_tool."):
            value = dice.randrange(0, 5)
            predicates[place] = replace(predicates[place], per_tool={"find": value})
        else:
            whole = predicates[place].kind in ("tool_loop", "repeated_failure")
            value = dice.randrange(2, 6) if whole else RANGES.get(name, random.Random.random)(dice)
            if name.startswith("min_") and predicates[place].kind == "scope_drift":
                value = dice.randrange(0, 6)
            predicates[place] = replace(predicates[place], **{name: value})
        thresholds[names[place]] = {name: value}
    return thresholds, replace(settings, predicates=tuple(predicates))


def lived(steps: list[Any], settings: Settings) -> list[decisions.Decision]:
    """Return the decisions of a regulator with these settings on these events."""
    live = Regulator(Person("recorded"), settings)
    found = []
    for step in steps:
        if step is None:
            found.append(live.decide())
        else:
            live.on_event(step)
    return found


@matrix("seed", range(40), keep=4)
def test_moved_thresholds_decide_as_the_regulator_does(seed: int) -> None:
    dice = random.Random(seed)
    kinds = set()
    for _ in range(25):
        settings = dice.choice(PRESETS)
        run, steps = recorded(dice, settings)
        tape = tape_of(run)
        for _ in range(10):
            thresholds, expected = moved(dice, settings)
            found = [each.decision for each in tape.decide(thresholds)]
            assert found == lived(steps, expected), thresholds
            kinds |= {decision.kind for decision in found}
    assert {"continue", "circuit_break", "scope_drift_warn"} <= kinds


def test_unmoved_thresholds_give_what_was_recorded() -> None:
    run = replay_regulator(datasets.airline_run(26), Regulator.recommended("ann"))

    assert [freeze(decisions.to_dict(each.decision)) for each in tape_of(run).decide({})] == [
        event.decision for event in run.events if isinstance(event, RegulatorDecided)
    ]
    assert tape_of(run).agreement()[0] == len(tape_of(run)) > 10


def test_another_template_is_looked_at_in_place_of_the_one_before() -> None:
    tape = tape_of(replay_regulator(datasets.airline_run(26), Regulator.recommended("ann")))
    assert "circuit_break" in {each.decision.kind for each in tape.decide({})}

    tape.template = tape.template.fork().with_predicates(ToolLoop(threshold=99))

    assert {each.decision.kind for each in tape.decide({})} == {"continue"}


def test_a_run_without_a_regulator_is_decided_as_a_replay_of_it() -> None:
    imported = datasets.airline_run(26)
    regulator = Regulator.for_user("airline")
    moved_settings = regulator.fork().with_predicates(
        *(replace(each, threshold=3) if isinstance(each, ToolLoop) else each for each in regulator.predicates)
    )

    found = [each.decision for each in tape_of(imported, regulator).decide({"tool_loop": {"threshold": 3}})]

    replayed = replay_regulator(imported, moved_settings)
    decided = [event.decision for event in replayed.events if isinstance(event, RegulatorDecided)]
    assert [freeze(decisions.to_dict(each)) for each in found] == decided
    with pytest.raises(NoeticConfigError) as caught:
        tape_of(imported)
    assert caught.value.code == "NO_REGULATOR"


@pytest.mark.parametrize("preset", ["for_user", "newer", "recommended"])
def test_settings_are_found_where_only_thresholds_are_kept(preset: str) -> None:
    run = replay_regulator(datasets.airline_run(26), getattr(Regulator, preset)("ann"))
    bare = Run(meta={})
    for event in run.events:
        bare.append(event)

    assert tape_of(bare).agreement()[0] == len(tape_of(bare))
    assert getattr(Regulator, preset)("ann").settings in [found.settings for found in recorded_regulators(bare)]


def test_predicates_that_are_data_are_built_from_their_names_and_numbers() -> None:
    own = (
        ToolLoop(threshold=3, by="call", across_turns=True),
        ToolLoop(threshold=4, by="call", period=2),
        CallBudget(total=4, per_tool={"find": 2}),
        CostCap(tokens_out=None, usd=2.5, poor_mean=None),
        QualityDecline(window=4),
    )
    run = replay_regulator(datasets.airline_run(26), Regulator.for_user("ann").with_predicates(*own))
    bare = Run()
    for event in run.events:
        bare.append(event)

    assert recorded_regulators(bare)[0].predicates == own


def test_settings_survive_a_file(tmp_path: Any) -> None:
    run = replay_regulator(datasets.airline_run(26), Regulator.for_user("ann").with_predicates(ToolLoop(3, "call")))

    loaded = load_run(run.save(tmp_path / "run.jsonl.gz"))

    assert recorded_regulators(loaded)[0].predicates == (ToolLoop(3, "call"),)


def decided(number: int, quality: float, poor: float, tokens: int = 0) -> list[Any]:
    where = Where("t1", f"e{number}", number)
    rule = {"quality_decline": {"window": 2, "min_delta": 0.1, "poor_mean": poor}}
    return [
        TurnStarted(where, 0.0, f"turn-{number}", 0, 1, "q"),
        RegulatorSaw(where, 0.0, "regulation", {"kind": "turn_start", "user_message": "q"}),
        RegulatorDecided(
            where, 0.0, "regulation", "turn_start", {"kind": "continue"}, tokens_out=tokens, thresholds=rule
        ),
        RegulatorSaw(where, 0.0, "regulation", {"kind": "cost", "tokens_in": 1, "tokens_out": 10, "wallclock_ms": 1}),
        RegulatorSaw(where, 0.0, "regulation", {"kind": "quality_feedback", "quality": quality}),
        RegulatorDecided(
            where, 0.0, "regulation", "quality_feedback", {"kind": "continue"}, tokens_out=tokens + 10, thresholds=rule
        ),
    ]


def run_of(*groups: list[Any]) -> Run:
    run = Run()
    for event in (event for group in groups for event in group):
        run.append(event)
    return run


def test_thresholds_count_from_when_they_were_in_force() -> None:
    run = run_of(decided(1, 0.9, 0.3), decided(2, 0.4, 0.3, 10), decided(3, 0.2, 0.8, 20))

    assert [each.decision.kind for each in tape_of(run).decide({})] == [*["continue"] * 4, *["circuit_break"] * 2]
    # A changed number applies everywhere, the others stay as recorded.
    assert [each.decision.kind for each in tape_of(run).decide({"quality_decline": {"poor_mean": 0.7}})] == [
        *["continue"] * 3,
        *["circuit_break"] * 3,
    ]


def test_a_break_stops_every_later_turn_until_the_task_is_reset() -> None:
    better = decided(3, 0.9, 0.7, 20)
    run = run_of(decided(1, 0.9, 0.7), decided(2, 0.4, 0.7, 10), better, decided(4, 0.9, 0.7, 0))

    found = tape_of(run).decide({})

    assert [(each.turn, each.decision.kind == "circuit_break", each.stops) for each in found] == [
        (1, False, False),
        (1, False, False),
        (2, False, False),
        (2, True, True),
        (3, True, True),
        (3, False, False),
        (4, False, False),
        (4, False, False),
    ]
    assert [each.begins_task for each in found] == [*[False] * 6, True, False]


def test_a_tape_goes_on_where_a_run_grows() -> None:
    dice = random.Random(3)
    run, steps = recorded(dice, RELEASE_SETTINGS, 60)
    tape = DecisionTape(recorded_regulators(run)[0], as_recorded=True)
    found: list[Any] = []
    for seq, event in enumerate(run.events):
        tape.append(event, seq)
        found = tape.decide({"cost_cap": {"tokens_out": 50}}) if seq % 7 == 0 else found
    found = tape.decide({"cost_cap": {"tokens_out": 50}})

    expected = RELEASE_SETTINGS.with_cost_cap(50)
    assert [each.decision for each in found] == lived(steps, expected)
    assert [run.events[each.seq] for each in found if each.seq is not None] == [each.recorded for each in found]


@pytest.mark.parametrize(
    ("thresholds", "code"),
    [
        ({"cost": {"tokens_out": 1}}, "UNKNOWN_PREDICATE"),
        ({"__proto__": {}}, "UNKNOWN_PREDICATE"),
        ({"cost_cap": {"tokens": 1}}, "UNKNOWN_THRESHOLD"),
        ({"cost_cap": {"kind": 1}}, "UNKNOWN_THRESHOLD"),
        ({"tool_loop": {"by": 3}}, "UNKNOWN_THRESHOLD"),
        ({"cost_cap": {"tokens_out": -1}}, "INVALID_THRESHOLD"),
        ({"cost_cap": {"tokens_out": float("nan")}}, "INVALID_THRESHOLD"),
        ({"quality_decline": {"poor_mean": float("nan")}}, "INVALID_THRESHOLD"),
        ({"quality_decline": {"poor_mean": 1.5}}, "INVALID_THRESHOLD"),
        ({"quality_decline": {"poor_mean": "0.5"}}, "INVALID_THRESHOLD"),
        ({"quality_decline": {"window": True}}, "INVALID_THRESHOLD"),
        ({"quality_decline": 0.5}, "INVALID_THRESHOLD"),
        ([("cost_cap", 1)], "INVALID_THRESHOLD"),
    ],
    ids=str,
)
def test_thresholds_that_cannot_be_are_refused(thresholds: Any, code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        with_thresholds(RELEASE_SETTINGS, thresholds)

    assert caught.value.code == code
    assert len(str(caught.value)) < 600


def test_a_cap_can_be_set_and_taken_away() -> None:
    found = with_thresholds(RELEASE_SETTINGS, {"cost_cap": {"usd": 0.5, "tokens_out": None}}).predicates[0]

    assert found == CostCap(tokens_out=None, usd=0.5)


def test_a_damaged_recording_is_told_from_a_bad_request() -> None:
    run = run_of(decided(1, 0.5, 0.5))
    run.append(RegulatorSaw(Where("t1", "e1", 1), 0.0, "regulation", {"kind": "cost", "tokens_in": "many"}))
    run.append(RegulatorDecided(Where("t1", "e1", 1), 0.0, "regulation", "quality", {"kind": "continue"}))

    with pytest.raises(NoeticConfigError) as caught:
        tape_of(run)

    assert caught.value.code == "INVALID_RECORDING"
