"""The counter without a vocabulary, compared with o200k_base on packaged runs and on texts in several scripts."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items import item_text
from noetic_nb.lab import datasets
from noetic_nb.tokenizers import TokenCalibration
from noetic_nb.tokenizers._framing import kind_of
from noetic_nb.tokenizers._named import best_tokenizer

TRANSLATED = {
    "Chinese": "您的订单今天早上已经寄出，星期四送到。如果夹克不合身，可以在三十天内退货，退款会回到您付款时用的卡上。",
    "Japanese": "ご注文の品は今朝発送され、木曜日に届きます。合わない場合は三十日以内に返品できます。",
    "Korean": "주문하신 상품은 오늘 아침에 발송되어 목요일에 도착합니다. 맞지 않으면 삼십 일 안에 반품할 수 있습니다.",
    "Russian": "Ваш заказ отправлен сегодня утром и придёт в четверг. Её можно вернуть в течение тридцати дней.",
    "Arabic": "تم إرسال طلبك هذا الصباح وسيصل يوم الخميس. إذا لم تناسبك السترة فيمكنك إعادتها خلال ثلاثين يومًا.",
}  # fmt: skip


def texts() -> Iterator[tuple[str, str, str]]:
    runs = [*datasets.airline(), *datasets.retail(), *datasets.telecom(), *datasets.agentdojo("banking")]
    for run in runs:
        for thread in run.threads:
            for item in run.log(thread):
                if text := item_text(item):
                    yield str(run.meta["suite"] or run.meta["domain"]), kind_of(item), text


def test_it_is_close_to_the_vocabulary_by_domain_and_kind() -> None:
    exact, offline = nn.tokenizers.get("o200k_base"), nn.tokenizers.get("calibrated-offline")
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    known: dict[str, tuple[int, int]] = {}
    for domain, kind, text in texts():
        if text not in known:
            known[text] = offline(text), exact(text)
        sums[domain, kind][0] += known[text][0]
        sums[domain, kind][1] += known[text][1]

    whole = [sum(values) for values in zip(*sums.values(), strict=True)]
    assert abs(whole[0] / whole[1] - 1) < 0.03
    assert len(sums) >= 16
    assert {key: count / true for key, (count, true) in sums.items() if abs(count / true - 1) > 0.1} == {}


def test_code_is_counted_as_code() -> None:
    exact, offline = nn.tokenizers.get("o200k_base"), nn.tokenizers.get("calibrated-offline")
    paths = sorted(Path(str(sys.modules["json"].__file__)).parents[1].glob("[a-f]*.py"))[:60]
    code = [path.read_text("utf-8")[:20_000] for path in paths]

    assert abs(sum(map(offline, code)) / sum(map(exact, code)) - 1) < 0.1


@pytest.mark.parametrize("language", TRANSLATED)
def test_other_scripts_are_not_counted_as_english(language: str) -> None:
    text = TRANSLATED[language]

    assert nn.tokenizers.get("calibrated-offline")(text) == pytest.approx(
        nn.tokenizers.get("o200k_base")(text), rel=0.2
    )


@pytest.mark.parametrize("text", ["", "\ud800", "\n" * 50_000, "x" * 100_000, "😀" * 1_000, " ", "1", "\x00"])
def test_any_text_has_a_count(text: str) -> None:
    count = nn.tokenizers.get("calibrated-offline")(text)

    assert isinstance(count, int)
    assert (count > 0) == bool(text)


def test_a_harness_plans_with_it_and_its_calls_are_planned_again_from_the_run(tmp_path: Path) -> None:
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), tokenizer="calibrated-offline")
    run = nn.record(harness := nn.AgentHarness(config, model=nn.ScriptedModel(["It was sent."])))
    nn.run_sync(harness.execute("Where is my order?", thread_id="t"))

    table = run.to_frame("tokens")
    assert table.counter.tolist() == ["calibrated-offline"]
    assert table.planned.tolist() == [nn.tokenizers.get("calibrated-offline")("Where is my order?") + 4]
    again = nn.load_run(run.save(tmp_path / "run.jsonl"))
    assert recorded(again).plan.total_tokens == table.planned[0]
    assert set(again.to_frame("items").counter) == {"calibrated-offline"}


def recorded(run: Any) -> Any:
    from noetic_nb.runs._requests.recorded_requests import recorded_request

    return recorded_request(run, 0)


def test_a_calibration_learns_on_top_of_it(tmp_path: Path) -> None:
    calibration = TokenCalibration(nn.tokenizers.get("calibrated-offline"))

    assert TokenCalibration.load(calibration.save(tmp_path / "counts.json")).base is calibration.base


def test_without_the_extra_it_is_the_counter_of_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    best_tokenizer.cache_clear()
    assert best_tokenizer("gpt-4").name == "cl100k_base"  # type: ignore[attr-defined]
    assert best_tokenizer("claude-x").name == "o200k_base"  # type: ignore[attr-defined]

    best_tokenizer.cache_clear()
    monkeypatch.setattr("noetic_nb.tokenizers._from_files._CARRIERS", ())
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    from noetic_nb.tokenizers import _from_files

    for cached in (_from_files._encode_of, _from_files._made):
        cached.cache_clear()
    try:
        run = nn.import_run(
            [{"role": "user", "content": "Where is my order?"}, {"role": "assistant", "content": "Sent."}]
        )
        [call] = run.select(nn.events.ModelCalled)
        count = nn.tokenizers.get("calibrated-offline")
        assert run.meta["counter"] == "calibrated-offline"
        assert call.input_tokens == count("Where is my order?") + 4
        assert set(run.to_frame("items").counter) == {"calibrated-offline"}
    finally:
        best_tokenizer.cache_clear()


def test_an_imported_run_names_the_counter_of_what_it_estimates() -> None:
    asked = {"role": "user", "content": "Where is my order?"}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    silent = nn.import_run([asked, {"role": "assistant", "content": "Sent."}])
    told = nn.import_run(
        {
            "model": "gpt-4.1",
            "messages": [asked],
            "choices": [{"message": {"role": "assistant", "content": "Sent."}}],
            "usage": usage,
        }
    )

    assert silent.meta["counter"] == "o200k_base"
    assert told.meta["counter"] is None
