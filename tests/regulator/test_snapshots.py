"""Snapshots: kept data, rejected data, and complete snapshots on request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.regulator import (
    CostCap,
    DriftInput,
    DriftScore,
    KeywordScorer,
    LowConfidence,
    ProceduralWarning,
    QualityDecline,
    Regulator,
    RegulatorState,
    RepeatedFailure,
    ScopeDrift,
    Settings,
    ToolLoop,
    Topics,
    WordLists,
)
from noetic_nb.regulator._measures.topics import RELEASE_WORDS
from noetic_nb.regulator.events import TurnComplete, TurnStart, UserCorrection
from noetic_nb.regulator.predicates.context_scorer import CONTEXT_SCORER
from noetic_nb.regulator.predicates.drift import NEWER_KEYWORDS

FRESH = (
    '{"user_id":"u","learned":{"gain_mode":"neutral","tick":0,"response_success":{},"response_strategies":{}},'
    '"correction_patterns":{}}'
)


def snapshot() -> dict[str, Any]:
    rate = {"success_rate": 0.5, "count": 1}
    pattern = {
        "user_id": "u",
        "topic_cluster": "a+b",
        "pattern_name": "p",
        "learned_from_turns": 3,
        "confidence": 0.15,
        "example_corrections": ["z", "y", "x"],
    }
    return {
        "user_id": "u",
        "learned": {
            "gain_mode": "tonic",
            "tick": 7,
            "response_success": {"a+b": rate},
            "response_strategies": {"a+b": {"DirectAnswer": rate, "Foreign": rate}},
        },
        "correction_patterns": {"auth+async": pattern},
    }


def corrected(regulator: Regulator, message: str, *texts: str) -> Regulator:
    regulator.on_event(TurnStart(message))
    for text in texts:
        regulator.on_event(UserCorrection(text, corrects_last=True))
    return regulator


def test_a_fresh_snapshot_is_that_of_the_original() -> None:
    assert Regulator.for_user("u").export_json() == FRESH


def test_the_maps_key_decides_the_cluster_and_the_pattern_is_recomputed() -> None:
    restored = Regulator.from_json(json.dumps(snapshot())).export().to_dict()

    assert restored["correction_patterns"]["auth+async"]["pattern_name"] == "corrections_on_auth+async"
    assert restored["correction_patterns"]["auth+async"]["topic_cluster"] == "auth+async"
    assert restored["learned"] == snapshot()["learned"]


def test_release_snapshots_lose_what_the_original_loses() -> None:
    regulator = corrected(Regulator.for_user("u").with_cost_cap(5), "async auth", *(f"c{i}" for i in range(7)))
    corrected(regulator, "gamma delta", "only", "two")

    restored = Regulator.from_json(regulator.export_json())

    assert restored.person.corrections.texts("async+auth") == ("c4", "c5", "c6")
    assert restored.person.corrections.texts("delta+gamma") == ()
    assert restored.cost_cap_tokens() == 10_000


def test_nothing_is_lost_when_asked() -> None:
    regulator = corrected(Regulator.for_user("u").with_cost_cap(5), "async auth", *(f"c{i}" for i in range(7)))
    corrected(regulator, "gamma delta", "only", "two")

    restored = Regulator.from_json(regulator.export_json("everything"))

    assert restored.person.corrections.texts("async+auth") == tuple(f"c{i}" for i in range(7))
    assert restored.person.corrections.texts("delta+gamma") == ("only", "two")
    assert restored.settings == regulator.settings
    assert Regulator.from_json(regulator.export_json("everything"), as_original=True).cost_cap_tokens() == 10_000


EVERYTHING = Settings(
    predicates=(
        CostCap(tokens_out=None, usd=0.5, poor_mean=None),
        QualityDecline(window=4),
        ToolLoop(3, by="call", period=2, across_turns=True),
        RepeatedFailure(2),
        ScopeDrift(scorer=NEWER_KEYWORDS, threshold=0.7),
        ScopeDrift(scorer=CONTEXT_SCORER),
        ScopeDrift(scorer=KeywordScorer(Topics(words=WordLists(frozenset({"der", "die"}), drop_numbers=True)))),
        ProceduralWarning(2),
        LowConfidence(0.2),
    ),
    turns="strict",
    snapshots="everything",
    implicit_window_s=2.5,
    max_clusters=9,
    cluster_from=Topics(order="ranked", limit=20),
)


def test_settings_survive_json() -> None:
    assert Settings.from_dict(json.loads(json.dumps(EVERYTHING.to_dict()))) == EVERYTHING
    assert Settings.from_dict({}) == Settings()
    assert Settings.from_dict({"unknown": 1, "turns": "strict"}) == Settings(turns="strict")


@pytest.mark.parametrize("preset", [Regulator.for_user, Regulator.newer, Regulator.recommended])
def test_presets_survive_a_snapshot(preset: Any) -> None:
    regulator = preset("u")

    assert Regulator.from_json(regulator.export_json("everything")).settings == regulator.settings


def own_scorer(given: DriftInput) -> DriftScore | None:
    return DriftScore(0.9, (), ())


def test_a_scorer_of_ones_own_is_handed_back_by_name() -> None:
    text = Regulator.for_user("u").with_scope_scorer(own_scorer).export_json("everything")

    restored = Regulator.from_json(text, named={"own_scorer": own_scorer})
    restored.on_event(TurnStart("alpha"))
    restored.on_event(TurnComplete("beta"))

    assert restored.decide().kind == "scope_drift_warn"
    with pytest.raises(ValueError, match="own_scorer"):
        Regulator.from_json(text)


def test_code_without_a_name_cannot_be_saved() -> None:
    class Nameless:
        def __call__(self, given: DriftInput, /) -> DriftScore | None:
            return None

    with pytest.raises(ValueError, match="name"):
        Regulator.for_user("u").with_scope_scorer(Nameless()).export_json("everything")


def without(path: str) -> str:
    data: Any = snapshot()
    *above, last = path.split(".")
    record = data
    for key in above:
        record = record[key]
    del record[last]
    return json.dumps(data)


def replaced(path: str, value: Any) -> str:
    data: Any = snapshot()
    *above, last = path.split(".")
    record = data
    for key in above:
        record = record[key]
    record[last] = value
    return json.dumps(data)


PATTERN = "correction_patterns.auth+async"


@pytest.mark.parametrize(
    "path",
    [
        "user_id",
        "learned",
        "learned.gain_mode",
        "learned.tick",
        "learned.response_success",
        "learned.response_strategies",
        "learned.response_success.a+b.count",
        "learned.response_strategies.a+b.DirectAnswer.success_rate",
        *(
            f"{PATTERN}.{key}"
            for key in ("user_id", "topic_cluster", "pattern_name", "learned_from_turns", "confidence")
        ),
    ],
)
def test_a_missing_key_is_named(path: str) -> None:
    with pytest.raises(ValueError, match=path.rsplit(".", 1)[-1]):
        Regulator.from_json(without(path))


@pytest.mark.parametrize("path", ["correction_patterns", f"{PATTERN}.example_corrections"])
def test_optional_keys_have_defaults(path: str) -> None:
    assert Regulator.from_json(without(path)).export().correction_patterns == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("user_id", 5),
        ("user_id", "\ud800"),
        ("learned", None),
        ("learned", []),
        ("learned.gain_mode", "Tonic"),
        ("learned.gain_mode", ["tonic"]),
        ("learned.tick", 1.0),
        ("learned.tick", -1),
        ("learned.tick", 2**32),
        ("learned.tick", True),
        ("learned.response_success", None),
        ("learned.response_success.a+b", 5),
        ("learned.response_success.a+b.success_rate", "x"),
        ("learned.response_success.a+b.success_rate", None),
        ("learned.response_success.a+b.success_rate", 10**400),
        ("learned.response_success.a+b.count", 1.5),
        ("learned.response_strategies.a+b", []),
        ("correction_patterns", None),
        (PATTERN, None),
        (f"{PATTERN}.learned_from_turns", -1),
        (f"{PATTERN}.confidence", None),
        (f"{PATTERN}.example_corrections", None),
        (f"{PATTERN}.example_corrections", "abc"),
        (f"{PATTERN}.example_corrections", [5]),
        (f"{PATTERN}.example_corrections", ["\udfff"]),
    ],
    ids=str,
)
def test_a_wrong_value_is_named(path: str, value: Any) -> None:
    with pytest.raises(ValueError, match=path.split("+")[0].rsplit(".", 1)[-1]):
        Regulator.from_json(replaced(path, value))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "5",
        f"{FRESH} x",
        FRESH.replace('"tick":0', '"tick":-0'),
        FRESH.replace('"tick":0', '"tick":' + "1" * 5000),
        FRESH.replace('"tick":0', '"tick":NaN'),
        FRESH.replace('"tick":0', '"tick":0,"tick":0'),
        FRESH.replace('"user_id":"u"', '"user_id":"u","user_id":"u"'),
        FRESH.replace('"user_id":"u"', '"x":Infinity,"user_id":"u"'),
        FRESH.replace('"user_id":"u"', '"x":' + "[" * 100_000 + ',"user_id":"u"'),
        "\ufeff" + FRESH,
    ],
    ids=lambda text: text[:60],
)
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"snapshot|Snapshot"):
        Regulator.from_json(text)


@pytest.mark.parametrize(
    "text",
    [
        FRESH.replace('"user_id":"u"', '"old":{"deep":[1e999,"\\ud800"]},"user_id":"u"'),
        FRESH.replace('"user_id":"u"', '"old":1,"old":2,"user_id":"u"'),
        FRESH.replace('"tick":0', '"tick":0,"removed":null'),
        f" \n{FRESH}\t",
        FRESH.replace('"tick":0', '"tick":0,"digits":' + "1" * 5000),
    ],
    ids=lambda text: text[:60],
)
def test_unknown_keys_are_ignored(text: str) -> None:
    assert Regulator.from_json(text).export_json() == FRESH


@pytest.mark.parametrize(
    "extra",
    [
        {"corrections": {}},
        {"corrections": [["a"]]},
        {"corrections": [["a", [5]]]},
        {"settings": {"predicates": 5}},
        {"settings": {"predicates": [{"kind": "unknown"}]}},
        {"settings": {"predicates": [{"kind": "cost_cap", "tokens_out": -5}]}},
        {"settings": {"turns": "loose"}},
        {"settings": {"topics": {"order": "ranked"}}},
        {"settings": {"predicates": [{"kind": "scope_drift", "scorer": {"kind": "context"}}]}},
        [],
        5,
    ],
    ids=str,
)
def test_a_malformed_extra_key_is_refused_and_the_original_reading_ignores_it(extra: Any) -> None:
    text = json.dumps(json.loads(FRESH) | {"noetic_nb": extra})

    with pytest.raises(ValueError, match=r"noetic_nb|settings|predicates|turns|tokens_out"):
        Regulator.from_json(text)
    if isinstance(extra, dict):
        assert Regulator.from_json(text, as_original=True).export_json() == FRESH


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "user_id",
    "learned",
    "gain_mode",
    "tick",
    "response_success",
    "response_strategies",
    "correction_patterns",
    "noetic_nb",
]


@given(st.sampled_from(KEYS), json_values)
def test_any_value_anywhere_is_read_or_refused_with_a_value_error(key: str, value: Any) -> None:
    data = snapshot() | {"noetic_nb": {"version": 1, "settings": Settings().to_dict(), "corrections": []}}
    (data if key in data else data["learned"])[key] = value

    try:
        state = RegulatorState.from_json(json.dumps(data))
        regulator = Regulator.import_state(state)
    except ValueError:
        return
    written = regulator.export_json("everything")
    assert Regulator.import_state(RegulatorState.from_json(written)).export_json("everything") == written


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@given(st.dictionaries(texts.filter(bool), st.lists(texts, min_size=1, max_size=25), max_size=4), texts)
def test_memory_survives_everything_snapshots_exactly(corrections: dict[str, list[str]], user: str) -> None:
    regulator = Regulator.for_user(user)
    for cluster, items in corrections.items():
        regulator.person.corrections.extend(cluster, items)

    text = regulator.export_json("everything")

    assert Regulator.from_json(text).export_json("everything") == text


def test_bounded_clusters_forget_the_one_corrected_longest_ago() -> None:
    regulator = Regulator.for_user("u").with_max_clusters(2)
    for message in ("alpha beta", "gamma delta", "alpha beta", "omega sigma"):
        corrected(regulator, message, "c")

    assert list(regulator.person.corrections.clusters()) == ["alpha+beta", "omega+sigma"]
    assert list(regulator.with_max_clusters(1).person.corrections.clusters()) == ["omega+sigma"]


def test_word_lists_are_pluggable() -> None:
    german = WordLists(frozenset({"bitte", "die"}), frozenset({"ki"}), drop_numbers=True)
    regulator = Regulator.for_user("u").with_words(german)

    regulator.on_event(TurnStart("Bitte die Rechnung 12345 prüfen"))

    assert regulator.cluster == "prüfen+rechnung"
    assert RELEASE_WORDS.drop_numbers is False


def test_only_a_state_is_imported() -> None:
    with pytest.raises(TypeError, match="from_json"):
        Regulator.import_state(FRESH)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="string"):
        Regulator.from_json(FRESH.encode())  # type: ignore[arg-type]
