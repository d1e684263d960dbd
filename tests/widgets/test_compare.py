"""Two runs side by side: the same rows as `nn.compare`, compared as far as needed, while both grow."""

from __future__ import annotations

import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, SteeringDecided, ToolCalled, TurnCompleted, TurnStarted, Where
from noetic_nb.lab import datasets
from noetic_nb.runs import Run
from noetic_nb.widgets import Compare, Selection
from noetic_nb.widgets._compare.compare_reading import row_data
from noetic_nb.widgets.base._text_diff import parts_text
from tests.matrix import matrix
from tests.widgets.hostile_texts import HOSTILE_TEXTS, hostile_run
from tests.widgets.rows import texts, words
from tests.widgets.scenes import demo_run, planned_run
from tests.widgets.views import watching


def said(number: int, reply: str, *, query: str | None = None, cost: float | None = 0.01) -> list[Any]:
    where = Where("t1", f"e{number}", number)
    return [
        TurnStarted(where, 0.0, f"u{number}", 0, 1, f"Question {number}" if query is None else query),
        ToolCalled(where, 0.0, "find", "c", {"n": number}, f"{reply}.", 1.0, "ok"),
        TurnCompleted(where, 1.0, f"u{number}", "success", 5.0, reply, 100, 10, cost, 1, 1),
    ]


def made(*replies: str, name: str = "a") -> Run:
    return Run(name, events=[event for number, reply in enumerate(replies, 1) for event in said(number, reply)])


def asked(view: Compare, **request: Any) -> Any:
    return json.loads(json.dumps(view.reading.page(request), allow_nan=False))


RUNS = [("demo", demo_run(), made("x")), ("planned", planned_run(4), planned_run(5))]


@pytest.mark.parametrize(("a", "b"), [case[1:] for case in RUNS], ids=[case[0] for case in RUNS])
def test_the_view_compares_what_compare_compares(a: Run, b: Run) -> None:
    with Compare(a, b) as view:
        frame = view.to_frame()

    assert list(frame.columns) == ["turn", "what", "a", "b"]
    assert frame.equals(nn.compare(a, b).to_frame())


def test_recorded_runs_of_one_task_are_compared() -> None:
    a, b = datasets.airline_run(26), datasets.airline_run(29)
    with Compare(a, b) as view:
        assert view.to_frame().equals(nn.compare(a, b).to_frame())
        assert "Compare" in view.to_html()


def test_what_differs_is_shown_word_by_word() -> None:
    with Compare(made("It is Rome", "same"), made("It is Oslo", "same", name="b")) as view:
        (pair,) = asked(view, only=True)["pairs"]
        reply = pair["rows"][-1]

    assert pair["turn"] == "1"
    assert (reply["what"], reply["a"], reply["b"]) == (
        "reply",
        [["", "It is "], ["-", "Rome"]],
        [["", "It is "], ["+", "Oslo"]],
    )
    assert "It is [-Rome-] | It is {+Oslo+}" in view.to_text()


def test_a_page_gets_the_rows_of_the_static_form() -> None:
    a, b = made("same", "It is Rome", *["x"] * 3), made("same", "It is Oslo", *["x"] * 3, name="b")
    with Compare(a, b) as view:
        pairs = view.reading.answer({"what": "pairs", "only": True})["pairs"]
        html = view.to_html()
        (same,) = view.reading.answer({"what": "pairs", "only": True, "turn": 1, "thread": "t1"})["pairs"][:1]

    rows = [row for pair in pairs for row in pair["rows"]]
    assert [pair["go"]["turn"] for pair in pairs] == [2]
    assert "".join([row["html"] for row in rows]) in html
    assert len({row["key"] for row in rows}) == len(rows) > 1
    assert words(same["rows"]) == "1nothing differs"


def totals_of(view: Compare) -> dict[str, list[str]]:
    (sums,) = view.snapshot["totals"]
    assert sums["html"] in view.to_html()
    rows = [texts({"html": row}) for row in sums["html"].split("<tr>")[2:]]
    return {name: found for name, *found in rows}


def test_sums_say_what_is_not_known() -> None:
    b = Run(events=[*said(1, "x"), *said(2, "x", cost=None)])
    with Compare(made("x", "x", "x"), b) as view:
        totals = totals_of(view)

    assert totals["turns"] == ["3", "2", "−1"]
    assert totals["tokens in"] == ["300", "200", "−100"]
    assert totals["cost"] == ["0.03", "not known", ""]


def test_sums_and_costs_are_those_of_the_table_of_turns_for_turns_without_an_end_and_for_children() -> None:
    open_turn, child = Where("t1", "e2", 2), Where("t1", "e3", 2, 1)
    run = Run(events=said(1, "x"))
    for where in (open_turn, child):
        run.append(ModelCalled(where, 2.0, 0, "m", "agent", 1.0, "ok", (), 40, 4, cost=0.02))
    with Compare(run, run) as view:
        totals = {name: cells[0] for name, cells in totals_of(view).items()}
        costs = [mark.points[3] for mark in view.reading.scene().marks if mark.series == "a-cost"]  # type: ignore[attr-defined]
        table = view.to_frame()

    turns = run.to_frame("turns")
    columns = {name: name.replace(" ", "_") for name in ("model calls", "tool calls", "cost")}
    columns |= {"tokens in": "input_tokens", "tokens out": "output_tokens"}
    assert {name: totals[name] for name in columns} == {name: f"{turns[of].sum():.4g}" for name, of in columns.items()}
    assert costs == turns["cost"].tolist() == table[table["what"] == "cost"]["a"].tolist()


def test_turns_without_a_counterpart_are_shown_as_such() -> None:
    with Compare(made("x"), made("x", "y")) as view:
        (pair,) = asked(view, only=True)["pairs"]

    assert pair["turn"] == "— | 2"
    assert pair["go"] is None
    assert pair["rows"][0]["lacks"] == [True, False]


def test_a_look_goes_only_so_far_in_one_go() -> None:
    a, b = made(*["x"] * 950), made(*["x"] * 949, "y", name="b")
    with Compare(a, b) as view:
        looks, start = 0, 0
        while start is not None:
            page = asked(view, start=start, only=True)
            start, looks = page["next"], looks + 1
            found = page["pairs"]

        assert looks == 10
        assert [pair["at"] for pair in found] == [949]
    with Compare(a, b) as view:
        picture: Any = {"looked": 0}
        goes = 0
        while picture["looked"] < 950:
            picture, goes = view.reading.answer({"what": "picture", "start": picture["looked"]}), goes + 1
        assert (goes, picture["said"]) == (10, "1 of 950 pairs of turns differ")
        bars = {mark.key: mark for mark in view.reading.scene().marks if mark.key}
        assert [key for key, mark in bars.items() if mark.points[3]] == ["940"]
        assert bars["940"].text == "turns 941 to 950: 1 of 10 pairs differ, at most in 2 rows"


def test_a_chosen_turn_is_on_the_page_though_it_is_the_same() -> None:
    with Compare(made(*["x"] * 50), made(*["x"] * 50)) as view:
        page = asked(view, only=True, turn=40, thread="t1")

    assert [pair["turn"] for pair in page["pairs"]] == ["40"]


def test_equal_prompts_in_the_thousands_are_paired_at_once() -> None:
    # Searching would have to try the square of the number of turns.
    long = [event for number in range(1, 3_001) for event in said(number, "x", query="go on")]
    with Compare(Run(events=long), Run(events=[*said(1, "x", query="first"), *long])) as view:
        assert asked(view, start=0)["of"] >= 3_000


def test_both_runs_are_followed_and_each_turn_is_a_small_message(sent: list[dict[str, Any]]) -> None:
    a, b = Run("a"), Run("b")
    with Compare(a, b) as view:
        for run in (a, b):
            for event in said(1, run.run_id * 10_000):
                run.append(event)

        assert [message["news"] for message in sent] == [1, 2, 3, 4]
        assert max([len(json.dumps(message)) for message in sent]) < 2_048
        assert [row["what"] for row in asked(view, only=True)["pairs"][0]["rows"]] == ["tool result", "reply"]
        with Compare(a, b) as whole:
            assert whole.to_html() == view.to_html()
    assert (watching(a), watching(b)) == (0, 0)


def test_a_turn_that_goes_on_is_compared_anew() -> None:
    a, b = made("x"), made("x")
    with Compare(a, b) as view:
        assert asked(view, only=True)["pairs"] == []
        where = Where("t1", "e1", 1)
        b.append(SteeringDecided(where, 0.0, "steering", "before_tool_call", "find", {}, "deny", "No.", ("r",), 0.1))

        assert [row["what"] for row in asked(view, only=True)["pairs"][0]["rows"]] == ["decision"]


def test_a_part_of_both_is_compared() -> None:
    a, b = made("x", "x", "x"), made("y", "y", "y")
    with Compare(a, b, turn=2) as one, Compare(a, b, until=2) as two:
        assert [pair["turn"] for pair in asked(one)["pairs"]] == ["2"]
        assert [pair["turn"] for pair in asked(two)["pairs"]] == ["1", "2"]


def test_lists_are_compared_in_pairs_with_intervals() -> None:
    a = [made(*["x"] * n) for n in range(1, 9)]
    b = [made(*["x"] * (n + 1)) for n in range(1, 9)]
    with Compare(a, b, by="run") as view:
        frame = view.to_frame()
        rows = {texts({"html": row})[0] for row in view.snapshot["table"].split("<tr>")[2:]}

        assert frame.equals(nn.compare(a, b, by="run").to_frame())
        means = {mark.text.partition(":")[0]: mark for mark in view.reading.scene().marks if mark.key}
        assert (means["turns"].series, means["denied"].series) == ("clear", "open")
        assert sum(means["turns"].points[::2]) / 2 == pytest.approx(1, abs=0.02)  # all differ by the same amount
        assert set(means) == set(rows) == set(frame["metric"])
        assert view.snapshot["table"] in view.to_html()
        assert "; it may be none" in view.to_text()
        assert all(f"<title>{mark.text}</title>" in view.to_html() for mark in means.values())


def test_large_numbers_and_missing_intervals_of_lists_are_readable() -> None:
    a, b = ([said_once(number, f"task {number}", tokens) for number in range(9)] for tokens in (1_234_567, 2_345_678))
    with Compare(a, b) as view:
        lines = dict(line.strip().split(": ", 1) for line in view.to_text().splitlines()[1:])

    assert lines["tokens"].startswith("1,234,577 | 2,345,688, b − a = +1,111,111")
    assert lines["denied"] == "0 | 0, b − a = +0 (no interval), 9 pairs; it may be none"


def said_once(number: int, task: str, tokens: int) -> Run:
    where = Where("t1", f"e{number}", 1)
    end = TurnCompleted(where, 1.0, "u", "success", 5.0, "Yes.", tokens, 10, 0.0, 1, 1)
    return Run(f"{task}-{tokens}", events=[TurnStarted(where, 0.0, "u", 0, 1, "Hi"), end], meta={"task_id": task})


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (([made("x")], [made("x")], {"turn": 1}), "INVALID_MOMENT"),
        (([made("x")], [made("x"), made("y")], {}), "UNPAIRED_RUNS"),
        ((made("x"), made("x"), {"metrics": {}}), "INVALID_METRIC"),
        ((made("x"), "a path", {}), "NOT_A_RUN"),
        ((made("x"), [made("x")], {}), "NOT_A_RUN"),
        ((made("x"), made("x"), {"selection": 3}), "NOT_A_SELECTION"),
        ((made("x"), made("x"), {"turn": -1}), "INVALID_TURN"),
    ],
    ids=["moment", "pairs", "metrics", "path", "list", "selection", "turn"],
)
def test_what_cannot_be_compared_is_refused_and_nothing_stays_open(arguments: Any, code: str) -> None:
    a, b, more = arguments
    with pytest.raises(NoeticConfigError) as caught:
        Compare(a, b, **more)

    assert caught.value.code == code
    assert not any(watching(run) for run in (a, b) if isinstance(run, Run))


@matrix("name", list(HOSTILE_TEXTS), keep=12, start=2)
def test_answers_with_hostile_text_travel_as_json(name: str) -> None:
    with Compare(hostile_run(HOSTILE_TEXTS[name]), demo_run(), selection=Selection()) as view:
        for request in ({}, {"only": True}, {"kind": "reply"}):
            text = json.dumps(asked(view, **request), ensure_ascii=False)
            assert len(text.encode()) < 1_000_000


def test_requests_are_shown_without_the_hashes_that_tell_them_apart() -> None:
    same, other, longer = "6 items, 40 tokens, c78d0b18", "6 items, 40 tokens, 12345678", "7 items, 40 tokens, 12345678"

    rows = [row_data(("request", same, second)) for second in (same, other, longer, None)]

    assert [(row["same"], parts_text(row["a"]), parts_text(row["b"])) for row in rows] == [
        (True, "6 items, 40 tokens", "6 items, 40 tokens"),
        (False, "[-6 items, 40 tokens-]", "{+6 items, 40 tokens, other texts+}"),
        (False, "[-6 items, 40 tokens-]", "{+7 items, 40 tokens+}"),
        (False, "[-6 items, 40 tokens-]", "—"),
    ]
