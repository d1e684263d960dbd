"""Caching tables of runs, compared with an independent provider simulation that caches by the same rules."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ModelCalled, ViewAssembled, Where
from noetic_nb.items import input_message
from noetic_nb.layers import history_window, semantic_recall
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.models.prompt_caching import CACHE_RULES, CacheRules, cache_rules
from noetic_nb.runs import Run
from noetic_nb.testing import FakeClock, SeededIds, SimulatedProvider

_SMALL = replace(cache_rules("gpt-4o") or CACHE_RULES[0], minimum=64, block=16)
_EVERY = replace(_SMALL, minimum=0, block=1)
_MARKED = replace(cache_rules("claude-sonnet-4-5") or CACHE_RULES[0], minimum=40, lookback=4)


@nn.tool
def find(place: int) -> str:
    """Find something."""
    return f"found {place} " * place


def said(rng: random.Random, words: int = 12) -> str:
    return " ".join(
        rng.choice(["order", "lyon", "blue", "cup", "train", "é", "\N{GRINNING FACE}"]) for _ in range(words)
    )


def changing(rng: random.Random, name: str) -> MemoryLayer:
    """Return a layer that recalls one of a few texts, nothing, or several items."""
    texts = [said(rng, rng.randrange(1, 30)) for _ in range(3)]
    shares = rng.random()

    def recall(p: Any) -> Any:
        if rng.random() < 0.1:
            return None
        text = texts[0] if rng.random() < shares else rng.choice(texts) + rng.choice(["", " and more", "!"])
        if rng.random() < 0.3:
            return {"items": [input_message(one, "developer") for one in texts[: rng.randrange(4)]]}
        return text

    placement: Any = rng.choice([None, "prefix", "suffix"])
    budget: Any = rng.choice([None, 20, 60])
    return MemoryLayer(
        id=name, slot=rng.choice([1, 2]), scope="thread", budget=budget, placement=placement,
        hooks=MemoryHooks(recall=recall),
    )  # fmt: skip


def random_run(seed: int, rules: CacheRules) -> Run:
    """Return a run of a random agent, answered by a provider that caches by some rules."""
    rng, clock = random.Random(seed), FakeClock()

    def answer(request: Any) -> Any:
        clock.advance(rng.choice([0, 1_000, 20_000]))
        drawn = rng.random()
        if drawn < 0.3:
            return [nn.CallTool("find", place=rng.randrange(5)) for _ in range(rng.randrange(1, 3))]
        if drawn < 0.35:
            return nn.Fault("rate_limit")
        return nn.Reply(text=said(rng), finish_reason=rng.choice(["stop"] * 5 + ["length"]))

    layers = [changing(rng, f"l{at}") for at in range(rng.randrange(4))]
    if rng.random() < 0.3:
        layers.append(history_window(rng.randrange(3, 12)))
    if rng.random() < 0.3:
        layers.append(semantic_recall())
    policy: Any = {
        "order": rng.choice(["slot", "cache"]),
        "token_budget": rng.choice([400, 1_000, 100_000]),
        "response_reserve": 20,
        "overflow": rng.choice(["truncate", "sliding_window"]),
    }
    if policy["overflow"] == "sliding_window":
        policy["window_size"] = rng.choice([None, 4, 9])
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(
            model="simulated-x", instructions=said(rng, rng.randrange(30)), tools=[find] * rng.randrange(2), max_steps=4
        ),
        memory=layers,
        projection=policy,
        incomplete="continue",
    )
    model = SimulatedProvider(nn.ScriptedModel(answer, ids=SeededIds(1)), rules=rules, clock=clock)
    harness = nn.AgentHarness(config, model=model, clock=clock, ids=SeededIds(seed))
    run = nn.record(harness)

    async def talk() -> None:
        for _ in range(6):
            with contextlib.suppress(NoeticError):
                await harness.execute(said(rng), thread_id=rng.choice(["a", "a", "b"]))
            clock.advance(rng.choice([0, 1_000, 290_000, 400_000]))

    asyncio.run(talk())
    return run


@pytest.mark.parametrize("rules", [_SMALL, _EVERY, _MARKED], ids=["in blocks", "every token", "marked"])
@given(seed=st.integers(0, 10**6))
def test_the_cached_tokens_are_predicted_to_the_token(rules: CacheRules, seed: int) -> None:
    run = random_run(seed, rules)

    table = run.caching(rules=rules)

    answered = [called for called in run.select(ModelCalled) if called.status == "ok"]
    for place, called in enumerate(run.select(ModelCalled)):
        if called.status == "ok":
            rows = table[table.call == place]
            assert (rows.cached.sum(), rows.tokens.sum()) == (called.cached_tokens, called.input_tokens), place
    assert answered


@given(seed=st.integers(0, 10**6))
def test_the_parts_of_a_request_add_up_to_what_was_sent(seed: int) -> None:
    run = random_run(seed, _MARKED)

    table = run.caching(rules=_MARKED)

    for seq, view in [(at, event) for at, event in enumerate(run.events) if isinstance(event, ViewAssembled)]:
        rows = table[table.seq == seq]
        sent = view.system + view.tools + view.framing + view.history + sum(layer.used for layer in view.layers)
        assert rows.tokens.sum() == sent + sum([nn.items.item_tokens(item) for item in view.appended])
        assert ((rows.shared <= rows.tokens) & (rows.cached <= rows.tokens)).all()
        assert rows.broke.sum() <= 1
        assert rows.paid.sum() == pytest.approx(rows.tokens.sum() - 0.9 * rows.cached.sum() + 0.25 * rows.written.sum())


def notes(says: Any, placement: Any = None) -> MemoryLayer:
    hooks = MemoryHooks(recall=lambda p: says(p.ctx.turn))
    return MemoryLayer(id="notes", slot=1, scope="thread", placement=placement, hooks=hooks)


def talk(*layers: MemoryLayer, model: str = "gpt-4o", turns: int = 3, words: int = 900) -> Run:
    step = nn.react(model=model, instructions="Be very brief. " * words)
    harness = nn.AgentHarness(
        nn.AgentConfig(name="desk", step=step, memory=layers),
        model=nn.ScriptedModel(lambda request: "Yes."),
        clock=FakeClock(),
    )
    run = nn.record(harness)

    async def ask() -> None:
        for turn in range(turns):
            await harness.execute(f"And {turn}?")

    asyncio.run(ask())
    return run


@pytest.mark.parametrize(
    ("says", "broken"),
    [
        (lambda turn: "Always the same.", [None, None, None]),
        (lambda turn: f"Turn {turn}.", [None, "layer:notes", "layer:notes"]),
        (lambda turn: None if turn == 2 else "Now and then.", [None, "layer:notes", "layer:notes"]),
    ],
    ids=["stays", "changes", "vanishes and returns"],
)
def test_the_layer_that_broke_the_prefix_is_named(says: Any, broken: list[str | None]) -> None:
    table = talk(notes(says)).caching()

    named = [table[(table.call == call) & table.broke].part.to_list() for call in range(3)]

    assert named == [[] if one is None else [one] for one in broken]


def test_costs_are_those_of_the_price_with_and_without_a_cache() -> None:
    table = talk().caching(price=(2.0, 8.0))
    last = table[table.call == 2]

    assert last.cost_fresh.sum() == pytest.approx(last.tokens.sum() * 2e-6)
    assert last.cached.sum() == 1_024 + (last.shared.sum() - 1_024) // 128 * 128
    assert last.cost_cached.sum() == pytest.approx((last.tokens.sum() - 0.5 * last.cached.sum()) * 2e-6)


def test_of_a_model_that_nothing_is_known_of_nothing_is_predicted() -> None:
    table = talk(model="home-made").caching()

    assert table.provider.isna().all()
    assert table.cached.isna().all()
    assert table.cost_cached.isna().all()
    assert table[table.call == 2].shared.sum() > 0


def test_a_run_of_others_has_no_requests_to_compare() -> None:
    run = Run.from_messages([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])

    assert run.caching().empty


def test_what_a_provider_reports_stands_beside_the_prediction() -> None:
    clock = FakeClock()
    config = nn.AgentConfig(name="desk", step=nn.react(model="simulated-gpt-4.1", instructions="Be very brief. " * 900))
    harness = nn.AgentHarness(
        config, model=SimulatedProvider(nn.ScriptedModel(["A.", "B.", "C."]), clock=clock), clock=clock
    )
    run = nn.record(harness)
    for wait in (0, 299_000, 301_000):
        clock.advance(wait)
        nn.run_sync(harness.execute("Next?"))

    calls = (
        run.caching()
        .groupby("call")
        .agg({"cached": "sum", "reported": "first", "provider": "first", "input_tokens": "first", "tokens": "sum"})
    )

    assert calls.reported.to_list() == calls.cached.to_list()
    assert [bool(count) for count in calls.cached] == [False, True, False]
    assert set(calls.provider) == {"simulated openai"}
    assert calls.input_tokens.to_list() == calls.tokens.to_list()


@pytest.mark.parametrize("model", ["gpt-4o", "simulated-home-made"])
def test_a_simulated_provider_serves_no_model_that_is_not_called_so(model: str) -> None:
    config = nn.AgentConfig(name="desk", step=nn.react(model=model))
    harness = nn.AgentHarness(config, model=SimulatedProvider(nn.ScriptedModel(["A."])))

    with pytest.raises(NoeticConfigError) as raised:
        nn.run_sync(harness.execute("Hi"))

    assert raised.value.code == "INVALID_MODEL"


@pytest.mark.parametrize("rules", CACHE_RULES, ids=lambda rules: rules.models[:24])
def test_every_rule_has_its_source_and_numbers_that_make_sense(rules: CacheRules) -> None:
    assert rules.source.startswith("https://")
    assert rules.prices.startswith("https://")
    assert len(rules.date.split("-")) == 3
    assert 0 < rules.read < 1 <= rules.write
    assert math.isfinite(rules.lifetime_ms)
    assert rules.whole(rules.minimum - 1) == 0
    assert rules.whole(rules.minimum) == rules.minimum
    assert rules.whole(rules.minimum + rules.block) == rules.minimum + rules.block


def test_a_model_fits_one_rule_at_most_and_others_none() -> None:
    def known(name: str) -> Any:
        return [rules.models for rules in CACHE_RULES if re.fullmatch(rules.models, name)]

    for name in ("gpt-4o-mini-2024-07-18", "gpt-5", "claude-haiku-4-5-20251001", "o4-mini"):
        assert len(known(name)) == 1, name
    for name in ("gpt-5.6", "claude-sonnet-4-6", "gemini-2.5-pro", "deepseek-chat", "gpt-4", ""):
        assert cache_rules(name) is None, name


def test_secrets_are_replaced_in_the_table() -> None:
    secret = "sk-" + "a1B2c3D4e5F6" * 3
    layer = replace(notes(lambda turn: "x"), id=f"key={secret}")

    assert secret not in talk(layer, turns=1).caching().to_csv()


def test_a_request_that_the_run_has_not_all_of_is_not_compared() -> None:
    run = talk(notes(lambda turn: "Always the same."))
    late = Run(events=[event for event in run.events if type(event).__name__ != "ItemsAppended"])

    assert run.caching().call.nunique() == 3
    assert late.caching().empty


def test_another_tokenizer_counts_all_parts() -> None:
    def words(text: str) -> int:
        return len(text.split())

    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", instructions="Be very brief."),
        memory=[notes(lambda turn: f"It is {turn}.")],
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["A b.", "C d."]), tokenizer=words)
    run = nn.record(harness)
    for text in ("One two three?", "Four five?"):
        nn.run_sync(harness.execute(text))

    table = run.caching(tokenizer=words)

    for seq, view in [(at, event) for at, event in enumerate(run.events) if isinstance(event, ViewAssembled)]:
        sent = view.system + view.tools + view.framing + view.history + sum(layer.used for layer in view.layers)
        assert table[table.seq == seq].tokens.sum() == sent


def test_requests_whose_items_were_not_recorded_are_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    # If only the plans of a long conversation are known, its history must not be read at every call.
    def looked(_request: object) -> None:
        raise AssertionError("the items of a request were looked through")

    monkeypatch.setattr("noetic_nb.runs._requests.prefix_reuse.parts_of", looked)
    where = Where("t1", "e1", 1)
    layers, window = (), (0, 5_000)
    view = ViewAssembled(where, 0.0, 1, window, (), layers, (), 8000.0, 1000.0, 0, 0, 0, 100, 2700.0, 5_000)
    answer = ModelCalled(where, 1.0, 1, "gpt-4o", "agent", 5.0, "ok", (), 500, 2)

    assert Run(events=[view, answer]).caching().empty
