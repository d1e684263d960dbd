"""Predicted caching of imported runs, compared with the cached tokens implied by recorded costs of real calls."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.lab.datasets import DATA, airline, load_tau2
from noetic_nb.models.prompt_caching import CACHE_RULES, REACHED, cache_rules
from noetic_nb.runs import Run, load_run

# US dollars per million tokens of gpt-4.1.
_IN, _CACHED, _OUT = 2.0, 0.5, 8.0
FILES = ("retail-gpt-4.1", "telecom-gpt-4.1")


def documents(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return found


def really_cached(name: str) -> list[list[int]]:
    """Return, by conversation, the cached tokens of each call, computed from its cost."""
    return [
        [
            round(
                (_IN * each["usage"]["prompt_tokens"] + _OUT * each["usage"]["completion_tokens"] - 1e6 * each["cost"])
                / (_IN - _CACHED)
            )
            for each in simulation["messages"]
            if each["role"] == "assistant" and each.get("usage") and each.get("cost") is not None
        ]
        for simulation in documents(name)["simulations"]
    ]


@pytest.mark.parametrize("name", FILES)
def test_the_sum_of_cached_tokens_is_within_3_percent_on_each_desk(name: str) -> None:
    runs, real = load_tau2(DATA / f"{name}.json.gz"), really_cached(name)

    tables = [run.caching() for run in runs]

    assert [table.call.nunique() for table in tables] == [len(calls) for calls in real]
    predicted = sum(table.cached.sum() for table in tables)
    assert predicted == pytest.approx(sum(map(sum, real)), rel=0.03)
    # Only the first calls: all except that of the very first conversation find tools and policy in the cache.
    first = [table[table.call == 0].cached.sum() for table in tables]
    assert sum(first) == pytest.approx(sum(calls[0] for calls in real), rel=0.05)
    assert [bool(tokens) for tokens in first].count(False) == 1


@pytest.mark.parametrize("name", FILES)
def test_the_parts_of_an_imported_call_add_up_to_its_billed_input(name: str) -> None:
    for run in load_tau2(DATA / f"{name}.json.gz")[:10]:
        table = run.caching()
        calls = table.groupby("call")
        assert calls.tokens.sum().to_list() == calls.input_tokens.first().to_list()
        assert calls.provider.first().unique().tolist() == ["openai"]
        assert table.part.isin(["tools", "system", "history"]).all()
        assert table.reported.isna().all()  # not in the file, so unknown and not 0


def test_the_share_that_is_found_is_that_of_the_other_desk() -> None:
    # Fitted only on retail; a fit on telecom differs by less than 1 %.
    def fitted(name: str) -> float:
        kept = promised = 0.0
        for run, calls in zip(load_tau2(DATA / f"{name}.json.gz"), really_cached(name), strict=True):
            table = run.caching()
            head = table[(table.call == 0) & table.part.isin(["tools", "system"])].tokens.sum()
            whole = CACHE_RULES[0].whole
            for call, real in list(enumerate(calls))[1:]:
                promised += whole(table[table.call == call].shared.sum()) - whole(head)
                kept += real - whole(head)
        return kept / promised

    retail, telecom = map(fitted, FILES)

    assert retail == pytest.approx(REACHED["openai"], abs=0.005)
    assert telecom == pytest.approx(retail, abs=0.02)


def told(*inputs: int, cached: int | None = None, model: str = "gpt-4.1", **about: Any) -> Run:
    """Return an imported conversation whose calls were billed for these numbers of input tokens."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief. " * 400}]
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    for at, tokens in enumerate(inputs):
        usage = {"prompt_tokens": tokens, "completion_tokens": 5, **details}
        messages.append({"role": "user", "content": f"And {at}?"})
        messages.append({"role": "assistant", "content": "Yes.", "model": model, "usage": usage})
    return Run.from_messages(messages, meta=about)


def test_a_conversation_alone_is_predicted_by_the_rules() -> None:
    table = told(2_000, 2_300, 2_600).caching().groupby("call")

    assert table.shared.sum().to_list() == [0, 2_000, 2_300]
    assert table.cached.sum().to_list() == [0, 1_920, 2_176]


def test_another_conversation_of_the_desk_keeps_the_head_for_a_while() -> None:
    def first(sent_ms: float | None) -> float:
        table = told(2_000, 2_300, head_sent_ms=sent_ms).caching()
        return float(table[table.call == 0].cached.sum())

    lifetime = CACHE_RULES[0].lifetime_ms
    run = told(2_000, 2_300)
    head = run.caching().query("call == 0 and part in ['tools', 'system']").tokens.sum()

    assert first(None) == 0
    assert first(0.0) == CACHE_RULES[0].whole(head) > 0
    assert first(-2 * lifetime) == 0


def test_what_a_file_reports_is_shown_and_what_it_does_not_is_missing() -> None:
    assert told(2_000, 2_300, cached=0).caching().reported.eq(0).all()
    assert told(2_000, 2_300).caching().reported.isna().all()


def test_a_model_of_which_nothing_is_known_is_not_predicted_and_one_without_a_name_not_compared() -> None:
    assert told(2_000, 2_300, model="home-made").caching().cached.isna().all()
    assert (
        Run.from_messages([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])
        .caching()
        .empty
    )


def test_estimated_tokens_are_no_billed_ones() -> None:
    table = airline(1)[0].caching()

    assert len(table) > 0
    assert table.input_tokens.isna().all()
    assert table.reported.isna().all()


def test_after_a_compaction_only_the_head_is_as_it_was() -> None:
    text, summary = {"type": "text", "text": "Yes."}, {"type": "compaction", "content": "All went well."}
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief. " * 600}]
    for tokens, content in ((4_000, [text]), (4_100, [summary, text]), (3_800, [text]), (3_900, [text])):
        usage = {"input_tokens": tokens, "output_tokens": 9}
        messages.append({"role": "user", "content": "Go on. " * 200})
        messages.append({"role": "assistant", "model": "claude-sonnet-4-5", "content": content, "usage": usage})

    table = Run.from_messages(messages, format="anthropic").caching()

    head = table[(table.call == 0) & table.part.isin(["tools", "system"])].tokens.sum()
    assert 0 < head < 4_000
    # The compaction takes place before the answer that reports it.
    assert table.groupby("call").shared.sum().to_list() == [0, head, head, 3_800]


@given(inputs=st.lists(st.integers(1, 20_000), min_size=1, max_size=12), desk=st.booleans())
def test_no_part_has_more_tokens_shared_or_cached_than_it_has(inputs: list[int], desk: bool) -> None:
    run = told(*inputs, **({"head_sent_ms": 0.0} if desk else {}))

    table = run.caching()

    assert table.groupby("call").tokens.sum().to_list() == inputs
    assert (table.tokens >= table.shared).all()
    assert (table.tokens >= table.cached).all()
    assert (table.shared >= 0).all()


def test_a_saved_run_says_the_same(tmp_path: Any) -> None:
    run = load_tau2(DATA / f"{FILES[1]}.json.gz")[3]

    again = load_run(run.save(tmp_path / "run.jsonl.gz"))

    assert run.caching().equals(again.caching())


def test_rules_that_are_given_count() -> None:
    run = told(2_000, 2_300, model="home-made")

    assert run.caching(rules="gpt-4.1").cached.sum() == run.caching(rules=cache_rules("gpt-4.1")).cached.sum() == 1_920
