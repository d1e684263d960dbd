"""Costs of imported runs, compared with the recorded cost of each packaged message that has usage and cost."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.lab.datasets import DATA, load_tau2
from noetic_nb.models import Usage
from noetic_nb.models._pricing import cost_of
from noetic_nb.runs import Run

pytest.importorskip("genai_prices", reason="the list of prices is not installed")

# US dollars per token of gpt-4.1: input, cached input, output.
_IN, _CACHED, _OUT = 2e-6, 0.5e-6, 8e-6
_BLOCK, _LEAST = 128, 1_024
FILES = ("retail-gpt-4.1", "telecom-gpt-4.1")


def recorded(name: str, *roles: str) -> list[list[dict[str, Any]]]:
    """Return the messages with usage and cost of each conversation of a packaged file."""
    data = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    talks = [simulation["messages"] for simulation in data["simulations"]]
    return [
        [each for each in talk if each["role"] in roles and each.get("usage") and each.get("cost") is not None]
        for talk in talks
    ]


def cached(message: dict[str, Any]) -> float:
    """Return the cached tokens implied by the cost of a message."""
    sent, written = message["usage"]["prompt_tokens"], message["usage"]["completion_tokens"]
    return float((_IN * sent + _OUT * written - message["cost"]) / (_IN - _CACHED))


def as_messages(messages: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    """Return messages as answers of one conversation without costs, with cached tokens in whole cache steps."""
    told: list[dict[str, Any]] = [{"role": "user", "content": "Hello."}]
    for each in messages:
        details = {"cached_tokens": max(0, round(cached(each) / _BLOCK) * _BLOCK)}
        usage = {**each["usage"], "prompt_tokens_details": details}
        told.append({"role": "assistant", "content": "Yes.", "model": "gpt-4.1", "usage": usage, **more})
    return told


@pytest.mark.parametrize("name", FILES)
def test_the_cost_of_each_message_is_that_of_a_cache_in_whole_steps(name: str) -> None:
    # With any other of the three prices, the cached tokens would not be whole steps.
    found = [cached(each) for talk in recorded(name, "assistant", "user") for each in talk]

    assert all(abs(tokens - round(tokens / _BLOCK) * _BLOCK) < 0.1 for tokens in found)
    assert all(round(tokens) == 0 or tokens > _LEAST - 0.1 for tokens in found)


def test_the_cost_by_tokens_and_prices_is_the_recorded_one() -> None:
    talks = [talk for name in FILES for talk in recorded(name, "assistant", "user") if talk]

    runs = [Run.from_messages(as_messages(talk)) for talk in talks]

    assert sum(map(len, talks)) == 2_275
    assert all(call.cost is None for run in runs for call in run.select(nn.events.ModelCalled))
    paid = sum(each["cost"] for talk in talks for each in talk)
    assert sum(run.cost() or 0.0 for run in runs) == pytest.approx(paid, rel=0.0001)
    for run, talk in zip(runs, talks, strict=True):
        assert run.cost() == pytest.approx(sum(each["cost"] for each in talk), rel=0.005)


def test_a_price_that_leaves_the_cache_out_is_far_off() -> None:
    talk = max(recorded(FILES[0], "assistant"), key=len)
    fresh = [{**each, "usage": {**each["usage"], "prompt_tokens_details": None}} for each in as_messages(talk)[1:]]

    cost = Run.from_messages([{"role": "user", "content": "Hello."}, *fresh]).cost()

    assert cost is not None
    assert cost > 2 * sum(each["cost"] for each in talk)


@pytest.mark.parametrize("name", FILES)
def test_recorded_costs_are_preferred_and_the_simulated_user_is_apart(name: str) -> None:
    runs = load_tau2(DATA / f"{name}.json.gz")

    agents, users = (
        sum(each["cost"] for talk in recorded(name, role) for each in talk) for role in ("assistant", "user")
    )

    assert sum(run.cost() or 0.0 for run in runs) == pytest.approx(agents)
    assert sum(run.meta["user_model"]["cost"] for run in runs) == pytest.approx(users)
    assert sum(run.meta["user_model"]["calls"] for run in runs) == sum(map(len, recorded(name, "user")))


# By name, the provider whose price applies, and its name for the model.
NAMED = {
    "claude-sonnet-4-5-20250929": ("anthropic", "claude-sonnet-4-5"),
    "gemini-2.5-pro": ("google", "gemini-2.5-pro"),
    "grok-4": ("x-ai", "grok-4-0709"),
    "chatgpt-4o-latest": ("openai", "chatgpt-4o-latest"),
    "ft:gpt-4o-mini-2024-07-18:org::id": ("openai", "ft:gpt-4o-mini-2024-07-18:org::id"),
    "openai/gpt-4o": ("openai", "gpt-4o"),
    "openai:gpt-4o": ("openai", "gpt-4o"),
    "azure/gpt-4o": ("azure", "gpt-4o"),
    "anthropic/claude-sonnet-4-5": ("anthropic", "claude-sonnet-4-5"),
    "anthropic:claude-sonnet-4-5": ("anthropic", "claude-sonnet-4-5"),
    "google-gla:gemini-2.5-flash": ("google", "gemini-2.5-flash"),
    "vertex_ai/gemini-2.5-pro": ("google", "gemini-2.5-pro"),
    "models/gemini-2.5-pro": ("google", "gemini-2.5-pro"),
    "litellm/openai/gpt-4o": ("openai", "gpt-4o"),
    "openrouter/anthropic/claude-sonnet-4": ("openrouter", "anthropic/claude-sonnet-4"),
    "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0": ("aws", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0": ("aws", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
}


@pytest.mark.parametrize("name", NAMED)
def test_the_name_of_a_model_tells_its_provider(name: str) -> None:
    import genai_prices

    usage = Usage(1_000, 100, 500, 200)
    counts = {"input_tokens": 1_000, "output_tokens": 100, "cache_read_tokens": 500, "cache_write_tokens": 200}
    provider, model = NAMED[name]
    listed = genai_prices.calc_price(genai_prices.Usage(**counts), model_ref=model, provider_id=provider)

    assert cost_of(usage, model=name) == pytest.approx(float(listed.total_price))


@pytest.mark.parametrize(
    "name", ["", "recorded", "scripted", "simulated-gpt-4o", "ollama/gpt-4o", "ollama/llama3", "qwen2.5"]
)
def test_a_model_that_no_provider_of_the_list_sells_has_no_price(name: str) -> None:
    assert cost_of(Usage(1_000, 100), model=name) is None


def test_an_imported_run_of_claude_has_a_cost_with_all_kinds_of_tokens() -> None:
    def cost(**usage: int) -> float:
        answer = {
            "role": "assistant",
            "model": "claude-sonnet-4-5-20250929",
            "content": [{"type": "text", "text": "Yes."}],
            "usage": {"input_tokens": 1_000, "output_tokens": 100, **usage},
        }
        found = Run.from_messages([{"role": "user", "content": "Hi"}, answer], format="anthropic").cost()
        assert found is not None
        return found

    # 3 and 15 US dollars per million, a tenth for a cached token and a quarter more for a cache write.
    assert cost() == pytest.approx(0.0045)
    assert cost(cache_read_input_tokens=1_000) == pytest.approx(0.0045 + 0.0003)
    assert cost(cache_creation_input_tokens=1_000) == pytest.approx(0.0045 + 0.00375)


def test_a_call_is_priced_by_its_time() -> None:
    usage = Usage(1_000, 100)
    new, old = cost_of(usage, model="o3"), cost_of(usage, model="o3", at_ms=1_746_057_600_000.0)  # 1 May 2025

    assert new is not None
    assert old == pytest.approx(5 * new)
