"""The small parts of the clients: names on the wire, prices, waits, and what importing them costs."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb._core.names import finish_reason_of
from noetic_nb.clock import SYSTEM_CLOCK
from noetic_nb.errors import NoeticError
from noetic_nb.models import Usage
from noetic_nb.models import _pricing as pricing
from noetic_nb.models._client import TokenLogprob
from noetic_nb.models._model_errors import backoff_ms, retry_after_ms
from noetic_nb.models._openai_wire import (
    MAX_WIRE_NAME,
    Headers,
    Secret,
    WireNames,
    enforceable,
    is_official,
    mask,
    schema_name,
    shown_address,
)
from noetic_nb.models._pricing import cost_of
from noetic_nb.models._response_items import token_logprobs, usage_of_provider

# Few letters and many separators, so that collisions on the wire are common.
NAMES = st.lists(st.text("ab_/. -é", min_size=1, max_size=6) | st.text(min_size=1, max_size=90), max_size=12)


@given(NAMES)
def test_wire_names_are_legal_and_read_backwards(names: list[str]) -> None:
    wire = WireNames(names)

    sent = {name: wire.to_wire(name) for name in names}

    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in sent.values())
    assert len(set(sent.values())) == len(set(names))
    assert all(wire.from_wire(sent[name]) == name for name in names)


@given(NAMES, st.randoms())
def test_wire_names_do_not_depend_on_the_order_of_the_tools(names: list[str], rng: random.Random) -> None:
    shuffled = list(names)
    rng.shuffle(shuffled)
    one, two = WireNames(names), WireNames(shuffled)

    assert [one.to_wire(name) for name in names] == [two.to_wire(name) for name in names]


@given(st.from_regex(rf"[A-Za-z0-9_-]{{1,{MAX_WIRE_NAME}}}", fullmatch=True), NAMES)
def test_a_legal_name_is_sent_as_it_is(name: str, others: list[str]) -> None:
    assert WireNames([name, *others]).to_wire(name) == name


@given(st.integers(0, 40), st.integers())
def test_waits_grow_to_their_limit_with_up_to_a_half_taken_off(attempt: int, seed: int) -> None:
    wait = backoff_ms(attempt, None, random.Random(seed))

    full = min(500 * 2**attempt, 8_000)
    assert wait is not None
    assert full / 2 <= wait <= full


@given(st.floats(0.001, 60_000))
def test_what_the_provider_asks_for_is_what_is_waited(asked: float) -> None:
    assert backoff_ms(3, asked, random.Random(0)) == asked


@pytest.mark.parametrize("text", ["soon", "-5", "nan", "inf", "1e3", "", "Wed, 99 Foo 2015 07:28:00 GMT"])
def test_a_wait_that_makes_no_sense_is_ignored(text: str) -> None:
    assert retry_after_ms({"retry-after": text}, SYSTEM_CLOCK) is None


def test_a_date_in_the_past_asks_for_no_wait() -> None:
    assert retry_after_ms({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, SYSTEM_CLOCK) == 0.0


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.floats(0, 100), st.floats(0, 100))
def test_a_price_is_linear_in_tokens(tokens_in: int, tokens_out: int, usd_in: float, usd_out: float) -> None:
    cost = cost_of(Usage(tokens_in, tokens_out), model="m", price=(usd_in, usd_out))

    assert cost == pytest.approx((tokens_in * usd_in + tokens_out * usd_out) / 1e6)


def test_a_listed_model_is_priced_and_cached_tokens_are_cheaper() -> None:
    pytest.importorskip("genai_prices")

    fresh = cost_of(Usage(1_000, 100), model="gpt-4o-mini")
    cached = cost_of(Usage(1_000, 100, 1_000), model="gpt-4o-mini")

    assert fresh is not None
    assert cached is not None
    assert 0 < cached < fresh


def test_nobody_knows_the_price_of_a_model_on_this_machine() -> None:
    assert cost_of(Usage(1_000, 100), model="gpt-4o-mini", base_url="http://127.0.0.1:11434/v1") is None


def test_without_the_price_list_the_cost_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    pricing._price_list.cache_clear()
    try:
        cost = cost_of(Usage(1_000, 100), model="gpt-4o-mini")
    finally:
        pricing._price_list.cache_clear()

    assert cost is None


def test_the_providers_own_figure_wins_over_the_list() -> None:
    assert cost_of(Usage(1_000, 100), model="gpt-4o-mini", reported=0.0) == 0.0


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {}}, "required": [], "additionalProperties": False},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"anyOf": [{"type": "object", "properties": {}}]},
    ],
)
def test_an_open_schema_is_not_promised_to_be_enforced(schema: dict[str, object]) -> None:
    assert not enforceable(schema)


def test_a_host_that_only_looks_official_is_not() -> None:
    assert not is_official("https://api.openai.com.example.org/v1")


def test_importing_the_models_loads_neither_openai_nor_a_price_list() -> None:
    heavy = {"openai", "httpx", "httpx2", "genai_prices"}
    code = f"import sys, noetic_nb.models as m; m.OpenAIModel('m'); print({heavy!r} & {{n.split('.')[0] for n in sys.modules}})"

    root = Path(pricing.__file__).parents[2]
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)

    assert shown.stdout.strip() == "set()"


def test_secrets_stay_out_of_addresses_reprs_and_errors() -> None:
    error = NoeticError("llm_failed", "The provider said: bad key k-123456.", code="k-123456")

    mask(error, "k-123456")

    assert (error.code, str(error)) == ("[redacted]", "The provider said: bad key [redacted].")
    assert (repr(Secret("k-123")), repr(Headers({"X-Title": "lab"}))) == ("<hidden>", "<headers X-Title>")
    assert shown_address("https://me:secret@example.org/v1?key=abc") == "https://example.org/v1"


def test_a_schema_has_a_legal_name() -> None:
    assert (schema_name({"title": "Trip plan"}), schema_name({})) == ("Trip_plan", "output")


@pytest.mark.parametrize(("given", "ours"), [("MAX_TOKENS", "length"), ("stop", "stop"), ("gone fishing", None)])
def test_finish_reasons_of_providers_are_ours(given: str, ours: str | None) -> None:
    assert finish_reason_of(given) == ours


def test_counts_and_logprobs_are_read_in_the_shape_of_a_provider() -> None:
    entry = {"token": "a", "logprob": -0.5, "top_logprobs": [{"token": "b", "logprob": -1}]}

    details = {"cached_tokens": 8.0, "cache_write_tokens": 2}
    told = {"prompt_tokens": 12, "completion_tokens": -1, "prompt_tokens_details": details}
    assert usage_of_provider(told, "prompt_tokens", "completion_tokens") == (12, 0, 8, 2, None)
    assert usage_of_provider(None, "input_tokens", "output_tokens") == (0, 0, None, None, None)
    assert token_logprobs([entry, "odd"]) == (TokenLogprob("a", -0.5, (("b", -1.0),)),)
