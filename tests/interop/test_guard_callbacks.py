"""A regulator fed by LangChain's callbacks, and the calls that it stops."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import RegulatorDecided, RegulatorSaw
from noetic_nb.interop import regulator_callback
from noetic_nb.regulator import CallBudget, CostCap

FIRST, SECOND, THIRD = (UUID(int=number) for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def langchain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for LangChain, of which only the base class of handlers is used."""
    package, callbacks = ModuleType("langchain_core"), ModuleType("langchain_core.callbacks")
    callbacks.BaseCallbackHandler = type("BaseCallbackHandler", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "langchain_core", package)
    monkeypatch.setitem(sys.modules, "langchain_core.callbacks", callbacks)


def result(text: str, *calls: str, tokens: int = 0) -> Any:
    message = SimpleNamespace(
        content=text,
        tool_calls=[{"name": name, "args": {}, "id": name} for name in calls],
        usage_metadata={"input_tokens": 1, "output_tokens": tokens},
    )
    return SimpleNamespace(generations=[[SimpleNamespace(message=message)]])


def asked(handler: Any, text: str = "Where is A17?") -> None:
    handler.on_chain_start({}, {}, run_id=UUID(int=9))
    human = SimpleNamespace(type="human", content=text)
    handler.on_chat_model_start({}, [[human]], run_id=FIRST, parent_run_id=UUID(int=9), metadata={"ls_model_name": "m"})


def kinds(handler: Any) -> list[str]:
    return [event.event["kind"] for event in handler.noetic_run.events if isinstance(event, RegulatorSaw)]


def test_a_run_is_a_turn_of_the_regulator() -> None:
    handler = regulator_callback(nn.Regulator.for_user("ann"), thread_id="t1")

    asked(handler)
    handler.on_llm_end(result("", "look", tokens=5), run_id=FIRST)
    handler.on_tool_start({"name": "look"}, "{}", run_id=SECOND, inputs={"order": "A17"})
    handler.on_tool_end("found", run_id=SECOND)
    handler.on_tool_start({"name": "look"}, "A18", run_id=THIRD)
    handler.on_tool_error(OSError("disk full"), run_id=THIRD)
    handler.on_chat_model_start({}, [[]], run_id=FIRST, parent_run_id=UUID(int=9))
    handler.on_llm_end(result("It is here.", tokens=5), run_id=FIRST)
    asked(handler, "And B2?")

    assert kinds(handler) == [
        "turn_start", "cost", "tool_call", "tool_result", "tool_call", "tool_result", "cost", "turn_complete", "turn_start",
    ]  # fmt: skip
    seen = [event.event for event in handler.noetic_run.events if isinstance(event, RegulatorSaw)]
    assert seen[0]["user_message"] == "Where is A17?"
    assert (seen[1]["tokens_out"], seen[1]["provider"]) == (5, "m")
    assert (seen[3]["success"], seen[5]["success"]) == (True, False)
    assert seen[5]["error_summary"] == "disk full"
    assert [event.where.turn for event in handler.noetic_run.events if isinstance(event, RegulatorSaw)][-1] == 2


def test_a_circuit_break_stops_the_run_and_whatever_comes_after_it() -> None:
    handler = regulator_callback(nn.Regulator.for_user("ann").with_predicates(CallBudget(total=1)))
    asked(handler)
    handler.on_llm_end(result("", "look", "look"), run_id=FIRST)
    handler.on_tool_start({"name": "look"}, "{}", run_id=SECOND)
    handler.on_tool_end("found", run_id=SECOND)

    steps = [
        lambda: handler.on_tool_start({"name": "look"}, "{}", run_id=THIRD),
        lambda: handler.on_tool_start({"name": "other"}, "{}", run_id=THIRD),
        lambda: handler.on_chat_model_start({}, [[]], run_id=FIRST, parent_run_id=UUID(int=9)),
        lambda: asked(handler),
    ]
    for step in steps:
        with pytest.raises(NoeticError) as caught:
            step()
        assert caught.value.kind == "cancelled"
        assert caught.value.facts["decision"]["kind"] == "circuit_break"
    handler.on_tool_error(caught.value, run_id=THIRD)

    assert handler.raise_error
    assert handler.run_inline
    assert [event for event in handler.noetic_run.events if isinstance(event, RegulatorDecided) and event.stops]


def test_a_cost_cap_stops_the_run_when_the_answer_is_there() -> None:
    handler = regulator_callback(nn.Regulator.for_user("ann").with_predicates(CostCap(100, poor_mean=None)))
    asked(handler)
    handler.on_llm_end(result("Short.", tokens=50), run_id=FIRST)
    asked(handler)
    with pytest.raises(NoeticError) as caught:
        handler.on_llm_end(result("A long answer.", tokens=500), run_id=FIRST)

    assert caught.value.kind == "cancelled"


def test_without_langchain_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core.callbacks", None)

    with pytest.raises(NoeticConfigError) as caught:
        regulator_callback(nn.Regulator.for_user("ann"))

    assert caught.value.code == "MISSING_PACKAGE"


def test_what_is_no_regulator_is_refused() -> None:
    with pytest.raises(NoeticConfigError) as caught:
        regulator_callback(3)  # type: ignore[arg-type]

    assert caught.value.code == "INVALID_REGULATION"
