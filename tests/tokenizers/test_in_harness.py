"""Counters in a harness: plans, warnings, tables and learning, all from calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import RequestPrepared
from noetic_nb.items import assistant_message
from noetic_nb.lab import replay
from noetic_nb.lab.datasets import retail
from noetic_nb.models._client import ModelRequest
from noetic_nb.runs._requests.recorded_requests import recorded_request
from noetic_nb.runs.token_calibration import token_calibration
from noetic_nb.runtime._config.config import dump_config, load_config
from noetic_nb.tokenizers import TokenCalibration, get
from noetic_nb.tokens import KNOWN_ERRORS

INSTRUCTIONS = "Sei freundlich, antworte kurz und erfinde nichts. " * 12
QUESTION = "您的订单今天早上已经寄出，星期四送到。"


def true() -> Any:
    """Return the counter used for billing."""
    return get("gpt-4.1")


class Billing:
    """A model that bills its input by a rule."""

    def __init__(self, bill: Callable[[ModelRequest, int], int] | None = None) -> None:
        self.calls = 0
        self.bill = bill or billed

    async def complete(self, request: ModelRequest) -> nn.ModelResponse:
        self.calls += 1
        usage = nn.Usage(self.bill(request, self.calls), 3)
        return nn.ModelResponse((assistant_message("Ist erledigt."),), usage)


def billed(request: ModelRequest, call: int) -> int:
    """Return gpt-4.1's bill for a request."""
    return (
        sum(map(true().count_item, request.items))
        + true().count_system(request.instructions)
        + true().count_tools(request.tools)
    )


def config(**more: Any) -> nn.AgentConfig:
    return nn.AgentConfig(name="desk", step=nn.react(model="gpt-4.1", instructions=INSTRUCTIONS), **more)


def talked(turns: int, model: Any = None, **more: Any) -> tuple[nn.Run, list[nn.AgentReply]]:
    harness = nn.AgentHarness(config(), model=model or Billing(), **more)
    run = nn.record(harness)

    async def talk() -> list[nn.AgentReply]:
        return [await harness.execute(QUESTION * (1 + turn % 5)) for turn in range(turns)]

    return run, asyncio.run(talk())


def test_a_plan_by_the_vocabulary_is_what_is_billed() -> None:
    run, replies = talked(4, tokenizer="o200k_base")

    table = run.to_frame("tokens")
    assert table.planned.to_list() == table.reported.to_list()
    assert table.unexplained.to_list() == [0] * 4
    assert {*table.counter} == {"o200k_base"}
    assert {*table.known_error} == {KNOWN_ERRORS["o200k_base"]}
    assert [reply.warnings for reply in replies] == [()] * 4
    assert {*run.to_frame("items").counter} == {"o200k_base"}
    request = recorded_request(run, 3)
    assert request.plan.total_tokens == table.reported.to_list()[3]
    assert (request.plan.counter, request.plan.known_error) == ("o200k_base", KNOWN_ERRORS["o200k_base"])


def test_every_plan_says_what_counted() -> None:
    harness = nn.AgentHarness(config(), model=Billing())

    plan = harness.preview()

    assert (plan.counter, plan.known_error) == (
        "noetic_nb.tokens.estimate_tokens",
        KNOWN_ERRORS["noetic_nb.tokens.estimate_tokens"],
    )
    mine = nn.AgentHarness(config(), model=Billing(), tokenizer=lambda text: len(text.split())).preview()
    assert (mine.known_error, "lambda" in mine.counter) == (None, True)


def test_a_calibrated_counter_learns_while_it_talks() -> None:
    run, _ = talked(24, tokenizer="calibrated")

    table = run.to_frame("tokens")
    assert table.error.abs().iloc[:8].max() > 0.3
    assert table.error.abs().iloc[8:].max() < 0.03
    assert "7 of 8 calls of gpt-4.1 seen" in table.counter.iloc[7]
    assert table.counter.iloc[8].endswith("8 calls of gpt-4.1)")
    assert table.counter.iloc[16].endswith("16 calls of gpt-4.1)")
    prepared = [event.tokenizer for event in run.select(RequestPrepared)]
    assert {*prepared} == {*table.counter}
    assert table.known_error.iloc[-1] < 0.05


def test_what_one_harness_learned_serves_another() -> None:
    first, _ = talked(16, tokenizer="calibrated")

    second, _ = talked(2, tokenizer=token_calibration(first))

    assert second.to_frame("tokens").error.abs().max() < 0.03


def test_what_was_learned_and_saved_serves_later(tmp_path: Path) -> None:
    first, _ = talked(16, tokenizer="calibrated")
    saved = token_calibration(first).save(tmp_path / "counts.json")

    second, _ = talked(2, tokenizer=TokenCalibration.load(saved))

    assert second.to_frame("tokens").error.abs().max() < 0.03
    assert QUESTION not in saved.read_text(encoding="utf-8")


@pytest.mark.parametrize("base", ["estimate", "cl100k_base"])
def test_calls_by_a_learned_counter_are_planned_again_from_the_run_alone(base: str, tmp_path: Path) -> None:
    run, _ = talked(18, tokenizer=TokenCalibration(get(base)))
    loaded = nn.Run.load(run.save(tmp_path / "run.jsonl"))

    for call in (0, 8, 17):
        request = recorded_request(loaded, call)
        assert request.missing == ()
        assert request.plan.total_tokens == run.to_frame("tokens").planned[call]
        assert sum(sent.tokens for sent in request.items) + request.plan.system == request.plan.total_tokens
    # The counter has learned in between: the same question has another count.
    assert recorded_request(loaded, 0).items[0].tokens != recorded_request(loaded, 17).items[0].tokens


def test_on_top_of_a_function_of_ones_own_the_counter_is_asked_for() -> None:
    def words(text: str) -> int:
        return len(text.split())

    calibration = TokenCalibration(words)
    run, _ = talked(1, tokenizer=calibration)

    with pytest.raises(nn.NoeticConfigError, match="pass it as tokenizer="):
        recorded_request(run, 0).replan()
    assert recorded_request(run, 0, tokenizer=calibration.tokenizer("gpt-4.1")).can_replan


def test_a_calibration_learned_from_public_runs_is_given_to_a_harness() -> None:
    calibration = token_calibration(retail(10))
    run, _ = talked(1, tokenizer=calibration)

    assert run.to_frame("tokens").counter[0] == calibration.tokenizer("gpt-4.1").name


def test_what_is_learned_is_the_same_at_every_time() -> None:
    one, other = (talked(20, tokenizer="calibrated")[0].to_frame("tokens") for _ in range(2))

    assert one.planned.to_list() == other.planned.to_list()


def test_models_are_learned_apart() -> None:
    calibration = TokenCalibration()
    steps = [nn.step.llm(model, model=model) for model in ("cheap", "dear")]

    def bill(request: ModelRequest, call: int) -> int:
        items = sum(map(TokenCalibration().tokenizer(request.model).count_item, request.items))
        return items * (3 if request.model == "dear" else 1)

    for step in steps:
        harness = nn.AgentHarness(nn.AgentConfig(name="a", step=step), model=Billing(bill), tokenizer=calibration)
        for turn in range(8):
            asyncio.run(harness.execute("x" * 400 * (1 + turn % 3)))

    assert calibration.factors("cheap").of("user") == pytest.approx(1, rel=0.1)
    assert calibration.factors("dear").of("user") == pytest.approx(3, rel=0.1)


USAGE: dict[str, tuple[Callable[[ModelRequest, int], int], str, str]] = {
    "missing": (lambda request, call: 0, "calibrated", "usage_missing"),
    "negative": (lambda request, call: -7, "o200k_base", "usage_negative"),
    "backwards": (lambda request, call: 400 - call, "o200k_base", "usage_backwards"),
    "disagrees": (lambda request, call: 9_000 + call, "o200k_base", "usage_disagrees"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage_that_cannot_be_is_said(case: str) -> None:
    bill, tokenizer, code = USAGE[case]
    run, replies = talked(3, Billing(bill), tokenizer=tokenizer)

    assert code in {warning.code for reply in replies for warning in reply.warnings}
    table = run.to_frame("tokens")
    assert case in {*table.problem}
    assert table.reported.isna().all() == (case in ("missing", "negative"))
    assert {*run.to_frame("warnings").code} >= {code}


def test_the_default_estimate_is_reconciled_without_warnings() -> None:
    run, replies = talked(3, Billing(lambda request, call: 9_000 + call))

    assert [reply.warnings for reply in replies] == [()] * 3
    assert {*run.to_frame("tokens").problem} == {"disagrees"}


def test_a_tokenizer_that_raises_is_said_and_the_estimate_counts() -> None:
    def moody(text: str) -> int:
        if text != "eight ch":  # the probe text when the harness is created
            raise RuntimeError("token=hunter2-hunter2-hunter2")
        return 2

    run, replies = talked(2, tokenizer=moody)

    (warning,) = [w for w in replies[0].warnings if w.code == "tokenizer_failed"]
    assert "48 %" in warning.text
    assert "hunter2" not in warning.text
    default, _ = talked(2)
    assert run.to_frame("tokens").planned.to_list() == default.to_frame("tokens").planned.to_list()


@pytest.mark.parametrize("name", ["o200k_base", "calibrated", "gpt-4.1", "estimate"])
def test_a_name_survives_json(name: str) -> None:
    data = dump_config(config(tokenizer=name))
    read = load_config(data)

    assert (data["tokenizer"], read.tokenizer) == (name, name)
    plan = nn.AgentHarness(read, model=Billing()).preview()
    assert plan.counter.startswith({"gpt-4.1": "o200k_base", "estimate": "noetic_nb.tokens"}.get(name, name))


def test_the_harness_comes_before_the_configuration() -> None:
    harness = nn.AgentHarness(config(tokenizer="calibrated"), model=Billing(), tokenizer="cl100k_base")

    assert harness.preview().counter == "cl100k_base"


@pytest.mark.parametrize("given", ["gtp-5", "claude-opus-4", "calibratd"])
def test_an_unknown_name_is_refused_before_anything_is_said(given: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        nn.AgentHarness(config(), model=Billing(), tokenizer=given)

    assert caught.value.code == "UNKNOWN_TOKENIZER"


def test_tools_and_layers_are_part_of_what_is_learned() -> None:
    def look(order: str) -> str:
        """Look an order up."""
        return "sent " * 40

    made = nn.AgentConfig(
        name="desk",
        step=nn.react(model="gpt-4.1", instructions=INSTRUCTIONS, tools=[look]),
        memory=[nn.static_content("Die Öffnungszeiten sind von neun bis fünf Uhr. " * 5, id="hours")],
    )
    harness = nn.AgentHarness(made, model=Billing(), tokenizer="calibrated")
    run = nn.record(harness)

    async def talk() -> None:
        for turn in range(12):
            await harness.execute(QUESTION * (1 + turn % 5))

    asyncio.run(talk())

    table = run.to_frame("tokens").query("part == 'request'")
    assert table.error.abs().iloc[8:].max() < 0.1
    rows = run.to_frame("allocations")
    assert rows.unexplained.to_list() == table.unexplained.to_list()
    assert rows.counter.to_list() == table.counter.to_list()


@pytest.mark.parametrize("name", ["o200k_base", "calibrated"])
def test_a_replay_counts_as_the_run_did(name: str) -> None:
    harness = nn.AgentHarness(config(tokenizer=name), model=Billing())
    run = nn.record(harness)

    async def talk() -> None:
        for turn in range(10):
            await harness.execute(QUESTION * (1 + turn % 5))

    asyncio.run(talk())

    again = replay(run, rules=nn.RuleBook())

    assert again.to_frame("tokens").planned.to_list() == run.to_frame("tokens").planned.to_list()


def test_a_replay_finds_the_encoding_that_a_harness_was_given() -> None:
    run, _ = talked(2, tokenizer="o200k_base")

    again = replay(run, rules=nn.RuleBook())

    assert {*again.to_frame("tokens").counter} == {"o200k_base"}
    assert again.to_frame("tokens").planned.to_list() == run.to_frame("tokens").planned.to_list()
