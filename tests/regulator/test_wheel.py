"""Our compatibility module against the compiled wheel: the same sessions, every observable, no difference."""

from __future__ import annotations

import gc
import json
import math
import platform
import sys
from array import array
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from noetic_nb.compat import noos as ours
from tests.matrix import several
from tests.regulator.sessions import SCRIPTS, VOCABULARY, Pair, run_session

try:
    import noos as wheel
except ImportError:
    if platform.machine() == "x86_64" and sys.platform == "linux":
        raise
    pytest.skip("There is no noos wheel for this platform.", allow_module_level=True)

EVENTS = several(5_000, 1_000_000)


@pytest.fixture(autouse=True, scope="module")
def regulators_go_where_they_were_made() -> Iterator[None]:
    """Collect the remaining regulators of the wheel: they cannot be freed in a thread of a later test."""
    yield
    gc.collect()


# Without unassigned code points, because the two sides have different Unicode versions.
characters = st.characters(exclude_categories=("Cn", "Cs", "Co"), max_codepoint=0x1FFFF)
words = st.one_of(st.sampled_from(VOCABULARY), st.sampled_from(SCRIPTS), st.text(characters, max_size=4))
texts = st.lists(st.tuples(words, st.sampled_from([" ", " ", ", ", "? ", "! ", "\n", "```"])), max_size=8).map(
    lambda parts: "".join(word + mark for word, mark in parts)
)
counts = st.integers(0, 2**32 - 1)


class SameSession(RuleBasedStateMachine):
    """Any events in any order."""

    @initialize(user=texts)
    def start(self, user: str) -> None:
        self.pair = Pair(ours, wheel, user)

    @rule(message=texts)
    def turn_start(self, message: str) -> None:
        self.pair.feed("turn_start", (message,))

    @rule(text=texts, logprob=st.floats(), index=st.integers(0, 2**64 - 1))
    def token(self, text: str, logprob: float, index: int) -> None:
        self.pair.feed("token", (text, logprob, index))

    @rule(response=texts)
    def turn_complete(self, response: str) -> None:
        self.pair.feed("turn_complete", (response,))

    @rule(tokens_in=counts, tokens_out=counts, time=counts, provider=st.none() | texts)
    def cost(self, tokens_in: int, tokens_out: int, time: int, provider: str | None) -> None:
        self.pair.feed("cost", (tokens_in, tokens_out, time, provider))

    @rule(quality=st.floats(0, 0.6) | st.floats())
    def quality_feedback(self, quality: float) -> None:
        self.pair.feed("quality_feedback", (quality,))

    @rule(text=texts, corrects_last=st.booleans())
    def user_correction(self, text: str, corrects_last: bool) -> None:
        self.pair.feed("user_correction", (text, corrects_last))

    @rule(name=st.sampled_from(["search", "search", "read", ""]), args=st.none() | texts, times=st.integers(1, 5))
    def tool_call(self, name: str, args: str | None, times: int) -> None:
        for _ in range(times):
            self.pair.feed("tool_call", (name, args))

    @rule(name=texts, success=st.booleans(), duration=st.integers(0, 2**50), error=st.none() | texts)
    def tool_result(self, name: str, success: bool, duration: int, error: str | None) -> None:
        self.pair.feed("tool_result", (name, success, duration, error))

    @rule(cap=counts)
    def cap(self, cap: int) -> None:
        self.pair.configure("with_cost_cap", cap)

    @rule()
    def swap_snapshots(self) -> None:
        self.pair.swap_snapshots()

    @invariant()
    def everything_visible_is_equal(self) -> None:
        self.pair.compare()
        self.pair.compare_snapshots()


TestSameSession = pytest.mark.matrix(SameSession.TestCase)
TestSameSession.settings = settings(
    max_examples=several(20, 400), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.matrix
def test_random_sessions_look_alike_after_every_event() -> None:
    fed, seed = 0, 0

    while fed < EVENTS:
        fed += run_session(ours, wheel, seed, most_events=60)
        seed += 1

    assert fed >= EVENTS


def outcome(call: Any) -> Any:
    """Return the result of a call, or the documented exception that it raises."""
    try:
        return repr(call())
    except (TypeError, ValueError, OverflowError) as error:
        return "ValueError" if isinstance(error, ValueError) else type(error).__name__


class Indexed:
    def __index__(self) -> int:
        return 3

    def __repr__(self) -> str:
        return "Indexed()"  # an address in a test id would differ between the workers of a parallel run


BAD_ARGUMENTS: list[tuple[str, tuple[Any, ...]]] = [
    ("token", ("a\ud800", 0.1, 0)),
    ("token", ("a", "x", 0)),
    ("token", ("a", -1.0, -1)),
    ("token", ("a", -1.0, 2**64)),
    ("token", ("a", -1.0, 1.0)),
    ("token", ("a", 10**400, 1)),
    ("token", (b"a", 1.0, 1)),
    ("token", ("a", True, Indexed())),
    ("turn_start", (5,)),
    ("turn_start", ("\ud800",)),
    ("turn_complete", (None,)),
    ("cost", (True, 1, 2)),
    ("cost", (1.0, 1, 2)),
    ("cost", (-1, 1, 2)),
    ("cost", (1, 2**32, 2)),
    ("cost", (1, 1, 2**70)),
    ("cost", (1, 1, 2, 5)),
    ("cost", ("1", 1, 2)),
    ("cost", (Indexed(), 1, 2)),
    ("quality_feedback", ("x",)),
    ("quality_feedback", (1, [(1, 2)])),
    ("quality_feedback", (1, [(1, -2)])),
    ("quality_feedback", (1, [[1, 2]])),
    ("quality_feedback", (1, ((1, 2),))),
    ("quality_feedback", (1, [(1, 2, 3)])),
    ("quality_feedback", (1, "ab")),
    ("quality_feedback", (1, 5)),
    ("quality_feedback", (10**400,)),
    ("user_correction", ("x", 1)),
    ("user_correction", ("x", None)),
    ("tool_call", (None,)),
    ("tool_call", ("x", {})),
    ("tool_result", ("x", 1, 2)),
    ("tool_result", ("x", True, -2)),
    ("tool_result", ("x", True, 2**64)),
    ("tool_result", ("x", True, 2**64 - 1)),
    ("tool_result", ("x", True, 2, 5)),
    ("tool_result", ("x", True, 2.0)),
    ("from_otel_span_json", ("x",)),
    ("from_otel_span_json", ("[]",)),
    ("from_otel_span_json", (5,)),
]


@pytest.mark.parametrize(("factory", "arguments"), BAD_ARGUMENTS, ids=str)
def test_arguments_are_accepted_and_refused_alike(factory: str, arguments: tuple[Any, ...]) -> None:
    mine = outcome(lambda: getattr(ours.LLMEvent, factory)(*arguments))

    assert mine == outcome(lambda: getattr(wheel.LLMEvent, factory)(*arguments))


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("with_cost_cap", -1),
        ("with_cost_cap", 2**32),
        ("with_cost_cap", 1.5),
        ("with_cost_cap", True),
        ("with_cost_cap", "x"),
        ("with_implicit_correction_window_secs", 0),
        ("with_implicit_correction_window_secs", -1),
        ("with_implicit_correction_window_secs", float("nan")),
        ("with_implicit_correction_window_secs", float("inf")),
        ("with_implicit_correction_window_secs", "x"),
        ("with_implicit_correction_window_secs", 5),
        ("on_event", 5),
        ("on_event", None),
        ("inject_corrections", 5),
        ("inject_corrections", "\ud800"),
    ],
    ids=str,
)
def test_methods_accept_and_refuse_alike(method: str, value: Any) -> None:
    mine = outcome(lambda: getattr(ours.Regulator.for_user("u"), method)(value))

    assert mine == outcome(lambda: getattr(wheel.Regulator.for_user("u"), method)(value))


class Subscripted:
    def __getitem__(self, place: int) -> object:
        raise IndexError


class Real:
    def __float__(self) -> float:
        return 0.5


class Truth:
    def __bool__(self) -> bool:
        return True


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, 0, 3, -1, 2**32, 2**64, 10**400, -0.5, math.nan, "", "x", "\ud800", b"x", 1j, object()),
    *([], [(1, 2)], ((1, 2),), [[1, 2]], [(1,)], [(1.0, 2)], [(2**64, 1)], {}, {0: (1, 2)}, set(), range(0), range(2)),
    *(OrderedDict(), MappingProxyType({}), UserDict(), UserList([(1, 2)]), deque(), iter([]), Subscripted()),
    *(Indexed(), Real(), Truth(), Decimal("0.5"), Fraction(1, 2), array("i", [1]), memoryview(b"ab")),
    *(np.bool_(True), np.int64(3), np.int64(-3), np.uint8(3), np.float64(0.5), np.float16(0.5), np.str_("x")),
    *(np.array(3), np.array([1]), np.array([]), [(np.int64(1), np.uint8(2))], np.datetime64("2020"), pd.NA, pd.NaT),
    *(
        pd.Series([1]),
        pd.Series([], dtype=object),
        pd.array([1], dtype="Int64")[0],
        pd.array([True], dtype="boolean")[0],
    ),
)
ORDINARY: dict[str, tuple[Any, ...]] = {
    "turn_start": ("x",),
    "token": ("x", -1.0, 0),
    "turn_complete": ("x",),
    "cost": (1, 2, 3, None),
    "quality_feedback": (0.5, None),
    "user_correction": ("x", True),
    "tool_call": ("x", None),
    "tool_result": ("x", True, 1, None),
}


@pytest.mark.parametrize(
    ("factory", "place"), [(name, at) for name, given in ORDINARY.items() for at in range(len(given))]
)
def test_whatever_is_given_is_accepted_or_refused_alike(factory: str, place: int) -> None:
    def taken(module: Any, value: Any) -> Any:
        given = list(ORDINARY[factory])
        given[place] = value
        regulator = module.Regulator.for_user("u")
        regulator.on_event(getattr(module.LLMEvent, factory)(*given))
        return sorted(regulator.metrics_snapshot().items())

    for value in ODD_VALUES:
        mine, theirs = (outcome(lambda module=module: taken(module, value)) for module in (ours, wheel))  # noqa: B023
        assert mine == theirs, f"{type(value).__name__} {value!r:.40}"


@pytest.mark.parametrize("cls", ["LLMEvent", "Regulator", "Decision", "CircuitBreakReason", "CorrectionPattern"])
@pytest.mark.parametrize("arguments", [(), (1,), ("ann",), (None,)], ids=str)
def test_classes_are_built_by_factories_only(cls: str, arguments: tuple[Any, ...]) -> None:
    for module in (ours, wheel):
        with pytest.raises(TypeError, match=f"No constructor defined for {cls}"):
            getattr(module, cls)(*arguments)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *[(("correction_patterns", "a", "example_corrections"), value) for value in ({}, {"a": "b"}, [], None, "abc")],
        (("correction_patterns", "a"), ["u", "a", "corrections_on_a", 3, 0.15, ["c", "b", "a"]]),
        (("correction_patterns", "a"), ["u", "a", "corrections_on_a", 3, 0.15]),
        (("correction_patterns", "a"), ["u", "a", "corrections_on_a", 3]),
        (("correction_patterns", "a"), ["u", "a", "corrections_on_a", 3, 0.15, [], 7]),
        *[(("correction_patterns",), value) for value in ([], None)],
        *[(("learned",), value) for value in (["tonic", 3, {}, {}], ["tonic", 3, {}], [])],
        *[
            (("learned", "gain_mode"), value)
            for value in ({"phasic": None}, {"phasic": 1}, {"x": None}, {}, ["phasic"])
        ],
        *[(("learned", "response_success"), value) for value in ({"a": [0.5, 2]}, {"a": [0.5]}, {"a": []}, [])],
        *[(("learned", "response_strategies"), value) for value in ({"a": []}, {"a": {"StepByStep": [0.5, 2]}})],
        *[((), value) for value in (["u", ["tonic", 3, {}, {}], {}], ["u", ["tonic", 3, {}, {}]], ["u"], [])],
    ],
    ids=repr,
)
def test_odd_snapshots_are_read_and_refused_alike(path: tuple[str, ...], value: Any) -> None:
    pattern = ["u", "a", "corrections_on_a", 3, 0.15, ["c", "b", "a"]]
    names = ("user_id", "topic_cluster", "pattern_name", "learned_from_turns", "confidence", "example_corrections")
    snapshot: Any = {"root": json.loads(wheel.Regulator.for_user("u").export_json())}
    snapshot["root"]["correction_patterns"]["a"] = dict(zip(names, pattern, strict=True))
    *above, last = ("root", *path)
    inside = snapshot
    for key in above:
        inside = inside[key]
    inside[last] = value
    text = json.dumps(snapshot["root"])

    mine, theirs = (
        outcome(lambda module=module: json.loads(module.Regulator.from_json(text).export_json()))
        for module in (ours, wheel)
    )

    assert mine == theirs


def test_metrics_have_the_keys_of_the_wheel_under_the_settings_it_has() -> None:
    for change in (lambda r: r, lambda r: r.with_cost_cap(7), lambda r: r.with_implicit_correction_window_secs(3)):
        mine, theirs = (change(module.Regulator.for_user("u")).metrics_snapshot() for module in (ours, wheel))
        assert mine == theirs


def test_every_public_name_of_the_wheel_is_here() -> None:
    for name in wheel.__all__:
        theirs = getattr(wheel, name)
        for attribute in dir(theirs) if isinstance(theirs, type) else ():
            assert hasattr(getattr(ours, name), attribute), f"{name}.{attribute}"


SPAN = {
    "start_time_unix_nano": 1_000_000_000,
    "end_time_unix_nano": 3_500_000_000,
    "attributes": {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 9, "gen_ai.system": "s"},
    "events": [
        {
            "name": "gen_ai.tool.message",
            "attributes": {"gen_ai.tool.name": "t", "gen_ai.tool.arguments": {"b": "é", "a": 1}},
        },
        {
            "name": "gen_ai.tool.message",
            "attributes": {"gen_ai.tool.name": "t", "gen_ai.tool.duration_ms": 5, "gen_ai.tool.error": ""},
        },
        {
            "name": "gen_ai.tool.message",
            "attributes": {"gen_ai.tool.name": "t", "gen_ai.tool.duration_ms": 5, "error.type": 3},
        },
        {"name": "gen_ai.assistant.message", "attributes": {"content": "the answer"}},
        {"name": "gen_ai.user.message", "attributes": {"content": 5}},
        {"name": "gen_ai.user.message", "attributes": {"content": "async auth"}},
        "odd",
    ],
}


@pytest.mark.parametrize(
    "change", [{}, {"events": {}}, {"attributes": []}, {"end_time_unix_nano": 0}, {"attributes": None}], ids=str
)
def test_spans_become_the_same_events(change: dict[str, Any]) -> None:
    text = json.dumps(SPAN | change)
    pair = Pair(ours, wheel, "u")

    for module, regulator in zip(pair.modules, pair.regulators, strict=True):
        for event in module.LLMEvent.from_otel_span_json(text):
            regulator.on_event(event)

    assert [e.kind for e in ours.LLMEvent.from_otel_span_json(text)] == [
        e.kind for e in wheel.LLMEvent.from_otel_span_json(text)
    ]
    pair.compare()
    pair.compare_snapshots()
