"""Additions of the drop-in module to the compiled package, and settings that differ from the release's."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from noetic_nb import NoeticConfigError
from noetic_nb.compat import noos
from noetic_nb.regulator.predicates.drift import NEWER_KEYWORDS

EVENTS = (
    noos.LLMEvent.turn_start("async auth"),
    noos.LLMEvent.token("a", -0.5, 0),
    noos.LLMEvent.turn_complete("done"),
    noos.LLMEvent.cost(1, 2, 3, "openai"),
    noos.LLMEvent.quality_feedback(0.5, [(1, 2)]),
    noos.LLMEvent.user_correction("shorter", True),
    noos.LLMEvent.tool_call("search", "{}"),
    noos.LLMEvent.tool_result("search", False, 5, "down"),
)
COPIES: tuple[Callable[[Any], Any], ...] = (copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)))


def broken() -> noos.Regulator:
    regulator = noos.Regulator.for_user("ann")
    for _ in range(5):
        regulator.on_event(noos.LLMEvent.tool_call("search"))
    return regulator


@pytest.mark.parametrize("event", EVENTS, ids=repr)
@pytest.mark.parametrize("copied", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_a_copied_event_is_the_same_event_and_is_taken(event: noos.LLMEvent, copied: Callable[[Any], Any]) -> None:
    made = copied(event)

    assert (type(made), made, repr(made)) == (type(event), event, repr(event))
    noos.Regulator.for_user("ann").on_event(made)


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_a_copied_decision_reads_alike(copied: Callable[[Any], Any]) -> None:
    made = copied(broken().decide())

    assert (made.kind, made.reason.tool_name, made.reason.consecutive_count) == ("circuit_break", "search", 5)


@pytest.mark.parametrize("thing", [EVENTS[0], broken().decide(), broken().decide().reason], ids=repr)
def test_nothing_of_an_event_or_decision_can_be_deleted(thing: Any) -> None:
    with pytest.raises(AttributeError, match="not writable"):
        del thing.kind


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.with_scope_drift_threshold(0.7),
        lambda r: r.with_scope_drift_threshold(0.7).with_cost_cap(5),
        lambda r: r.with_scope_drift_threshold(0.7).fork(),
        lambda r: r.with_scope_scorer(NEWER_KEYWORDS),
        lambda r: r.with_turns("strict"),
        lambda r: noos.Regulator.newer("ann"),
        lambda r: noos.Regulator.recommended("ann"),
    ],
)
def test_the_drift_threshold_is_a_metric_where_the_settings_are_not_the_releases(change: Callable[[Any], Any]) -> None:
    regulator = change(noos.Regulator.for_user("ann"))

    assert regulator.metrics_snapshot()["noos.scope_drift_threshold"] == regulator.scope_drift_threshold()


def test_packages_that_import_noos_get_this_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "noos", raising=False)

    noos.install()
    noos.install()

    assert importlib.import_module("noos") is noos
    monkeypatch.delitem(sys.modules, "noos")


def test_it_is_not_installed_over_the_compiled_package(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = ModuleType("noos")
    monkeypatch.setitem(sys.modules, "noos", theirs)

    with pytest.raises(NoeticConfigError, match="ALREADY_IMPORTED"):
        noos.install()

    assert sys.modules["noos"] is theirs
