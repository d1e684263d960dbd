"""Test vectors of the original: topics, drift, strategies, arousal, cost, and whole sessions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from noetic_nb.regulator import DriftInput, Regulator, decisions, events
from noetic_nb.regulator._measures.topics import RANKED_TOPICS, RELEASE_TOPICS, cluster_of
from noetic_nb.regulator._session import STRATEGY_LABELS, Session, classify_strategy, impression_of, normalize_cost
from noetic_nb.regulator.predicates.drift import NEWER_KEYWORDS, RELEASE_KEYWORDS

VECTORS = Path(__file__).parents[1] / "vectors" / "regulator"


def load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


CASES = load("regulator_vectors.json")
TRACES = load("regulator_traces.json")


@pytest.mark.parametrize("case", CASES["topics"], ids=lambda case: repr(case["text"][:30]))
def test_topics_and_cluster_are_those_of_the_original(case: dict[str, Any]) -> None:
    assert list(RELEASE_TOPICS(case["text"])) == case["topics"]
    assert cluster_of(RELEASE_TOPICS(case["text"])) == case["cluster"]
    if "ranked20" in case:
        assert list(RANKED_TOPICS(case["text"])) == case["ranked20"]


@pytest.mark.parametrize(("mode", "scorer"), [("exact", RELEASE_KEYWORDS), ("ranked_prefix", NEWER_KEYWORDS)])
@pytest.mark.parametrize("case", CASES["drift"], ids=lambda case: repr(case["response"][:30]))
def test_drift_is_that_of_the_original(case: dict[str, Any], mode: str, scorer: Any) -> None:
    found, expected = scorer(DriftInput(case["task"], case["response"])), case[mode]

    if expected is None:
        assert found is None
    else:
        assert found.score == expected["score"]
        assert list(found.drift_tokens) == expected["drift_tokens"]
        assert list(found.task_tokens) == expected.get("task_tokens", list(found.task_tokens))


@pytest.mark.parametrize("case", CASES["strategy"], ids=lambda case: repr(case["text"][:30]))
def test_strategy_is_that_of_the_original(case: dict[str, Any]) -> None:
    found = classify_strategy(case["text"])

    assert (None if found is None else STRATEGY_LABELS[found]) == case["strategy"]


@pytest.mark.parametrize("case", CASES["arousal"], ids=lambda case: case["text"])
def test_arousal_is_that_of_the_original(case: dict[str, Any]) -> None:
    found = impression_of(case["text"])

    assert (found.arousal, found.valence) == (case["arousal"], case["valence"])


@pytest.mark.parametrize("case", CASES["normalize_cost"], ids=str)
def test_normalised_cost_is_that_of_the_original(case: dict[str, Any]) -> None:
    assert normalize_cost(case["tokens_out"], case["wallclock_ms"]) == case["cost"]


@pytest.mark.parametrize("case", CASES["normalize_cost"], ids=str)
def test_a_session_pays_the_normalized_cost(case: dict[str, Any]) -> None:
    session = Session()
    session.add_cost(case["tokens_out"], case["wallclock_ms"])
    session.settle()

    assert session.body_budget == 1.0 - 0.02 * case["cost"]


def bare(decision: Any) -> Any:
    """Drop the suggestion, whose wording is ours; the traces then have the reason directly in the break."""
    if isinstance(decision, dict) and "CircuitBreak" in decision:
        return {"CircuitBreak": decision["CircuitBreak"].get("reason", decision["CircuitBreak"])}
    return decision


@pytest.mark.parametrize("number", range(len(TRACES)))
def test_a_whole_session_is_that_of_the_original(number: int) -> None:
    trace = TRACES[number]
    regulator = Regulator.for_user(trace["user"])
    if trace["cost_cap"] is not None:
        regulator.with_cost_cap(trace["cost_cap"])
    if trace["mode"] != "release":
        regulator.with_scope_scorer(NEWER_KEYWORDS)

    for step in trace["steps"]:
        regulator.on_event(events.from_dict(step["event"]))

        assert bare(decisions.to_camel(regulator.decide())) == bare(step["decision"])
        assert regulator.confidence() == step["confidence"]
        assert regulator.logprob_coverage() == step["coverage"]
        if "path1" in step:
            compare_session(regulator, step["path1"])
    assert json.loads(regulator.export_json()) == trace["export"]


def compare_session(regulator: Regulator, expected: dict[str, Any]) -> None:
    session, signals = regulator.person.session, regulator.signals
    found = {
        "body_budget": session.body_budget,
        "sustained": session.sustained,
        "pe_vol": session.pe_volatility,
        "resource_pressure": session.resource_pressure,
        "tick": session.learned.tick,
        "gain": session.learned.gain_mode,
    } | {name: getattr(signals, name) for name in expected["signals"]}
    for name, value in ({k: v for k, v in expected.items() if k in found} | expected["signals"]).items():
        if isinstance(value, float):
            assert math.isclose(found[name], value, rel_tol=1e-12, abs_tol=1e-15), name
        else:
            assert found[name] == value, name
