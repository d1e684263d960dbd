"""Figures of tables show the data of the table; unknown numbers are gaps."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

import pandas
import pytest
from matplotlib.figure import Figure

from noetic_nb import lab, plots
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab import datasets
from noetic_nb.plots._study_figures import SAVED
from noetic_nb.regulator import CallBudget


def tried() -> pandas.DataFrame:
    frame = pandas.DataFrame(
        {"cap": [1, 2, 1, 2], "word": list("aabb"), "s": [0.1, 0.2, 0.3, nan], "t": [1.0, 2.0, 3.0, 4.0]}
    )
    frame["low"], frame["high"] = frame["s"] - 0.1, frame["s"] + 0.1
    frame.attrs["space"] = ["cap", "word"]
    return frame


def remembered() -> pandas.DataFrame:
    return pandas.DataFrame(
        {
            "layers": ["plain", "plain", "notes $x$", "notes $x$"],
            "budget": [500, 1_000, 500, 1_000],
            "recall": [0.2, 0.5, 0.4, nan],
            "low": [0.1, 0.4, 0.3, nan],
            "high": [0.3, 0.6, 0.5, nan],
            "tokens": [400, 900, 450, 800],
            "ms": [nan] * 4,
        }
    )


@pytest.fixture(scope="module")
def worth() -> pandas.DataFrame:
    return lab.economics(CallBudget(), datasets.airline(), samples=20)


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def said(axes: Any) -> str:
    return " ".join(text.get_text() for text in axes.texts)


def test_a_sweep_has_a_line_for_each_combination_of_the_other_values() -> None:
    axes = plots.sweep(tried(), "cap", "s")

    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cap", "s")
    first, second = (container.lines[0].get_ydata().tolist() for container in axes.containers)
    assert first == [0.1, 0.2]
    assert second[0] == 0.3
    assert isnan(second[1])
    assert legend_of(axes) == ["word a", "word b"]


def test_values_that_are_no_numbers_stand_side_by_side() -> None:
    frame = pandas.DataFrame({"model": ["large", "$small$"], "s": [0.1, 0.2]})

    axes = plots.sweep(frame, "model", "s")

    assert [label.get_text() for label in axes.get_xticklabels()] == ["large", "$small$"]
    assert not any(label.get_parse_math() for label in axes.get_xticklabels())


def test_the_rows_that_none_beats_are_named_in_the_legend() -> None:
    own = Figure().subplots()

    axes = plots.pareto(tried(), "t", "s", ax=own, label="word")

    assert axes is own
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3"]
    assert legend_of(axes)[2:] == ["1 a", "2 a", "3 b"]


def test_economics_draws_the_chosen_domain_by_threshold(worth: pandas.DataFrame) -> None:
    axes = plots.economics(worth)

    rows = worth[(worth.policy == "detector") & (worth.domain == "all")].sort_values("threshold", ascending=False)
    line = axes.lines[0]
    assert list(line.get_xdata()) == rows.good_lost.tolist()
    assert list(line.get_ydata()) == rows.tokens_saved.tolist()
    assert legend_of(axes) == ["call_budget", "cap on steps"]
    assert said(plots.economics(worth, saved="cost_saved")) == "The cost of the failed runs is unknown"


def test_a_memory_bench_rings_what_no_other_row_beats() -> None:
    axes = plots.memory_bench(remembered())

    ring = next(line for line in axes.lines if line.get_label() == "not beaten")
    front = lab.pareto(remembered(), minimise="tokens", maximise="recall")
    assert list(ring.get_xdata()) == front.tokens.tolist() == [400, 900, 450]
    assert legend_of(axes) == ["plain", "notes $x$", "not beaten"]
    assert not any(text.get_parse_math() for text in axes.get_legend().get_texts())
    assert said(plots.memory_bench(remembered(), cost="ms")) == "The table has no rows"


def test_a_memory_bench_draws_one_rung() -> None:
    rungs = [remembered().assign(rung=rung, recall=recall) for rung, recall in (("value", 0.5), ("owned", 0.25))]
    table = pandas.concat([*rungs, remembered().assign(rung="answerable", recall=float("nan"))])

    heights = [plots.memory_bench(table, rung=rung).lines[0].get_ydata() for rung in ("value", "owned")]

    assert [set(map(float, found)) for found in heights] == [{0.5}, {0.25}]
    assert plots.memory_bench(table, rung="owned").get_ylabel() == "values sent with their owner"
    assert said(plots.memory_bench(table, rung="answerable")) == "The table has no rows"


def test_a_table_without_rows_says_so() -> None:
    empty = tried().iloc[:0]

    assert said(plots.sweep(empty, "cap", "s")) == "The table has no rows"
    assert said(plots.pareto(empty, "t", "s")) == "The table has no rows"
    assert lab.pareto(empty, maximise="s").columns.tolist() == empty.columns.tolist()
    assert said(plots.sweep(tried().iloc[3:], "cap", "s")) == "Nothing is known about s"
    assert said(plots.pareto(tried().iloc[3:], "t", "s")) == "No row has both numbers"


@pytest.mark.parametrize(
    ("code", "draw"),
    [
        ("UNKNOWN_COLUMN", lambda: plots.sweep(tried(), "cap", "nothing")),
        ("UNKNOWN_COLUMN", lambda: plots.pareto(tried(), "t", "s", label="gone")),
        ("UNKNOWN_COLUMN", lambda: plots.memory_bench(tried())),
        ("UNKNOWN_COLUMN", lambda: plots.economics(tried())),
        ("INVALID_OBJECTIVES", lambda: plots.pareto(tried(), "word", "s")),
        ("INVALID_FRAME", lambda: plots.sweep([], "cap", "s")),
        ("INVALID_COST", lambda: plots.memory_bench(remembered(), cost="recall")),
        ("INVALID_RUNG", lambda: plots.memory_bench(remembered(), rung="top")),
        ("INVALID_CALIBRATION", lambda: plots.roc(tried())),
        ("INVALID_THEME", lambda: plots.sweep(tried(), "cap", "s", theme="sepia")),  # type: ignore[arg-type]
        ("INVALID_AXES", lambda: plots.sweep(tried(), "cap", "s", ax=[Figure().subplots()])),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_drawn_is_refused(code: str, draw: Any) -> None:
    with pytest.raises(NoeticConfigError) as refused:
        draw()
    assert refused.value.code == code


def test_an_unknown_domain_is_refused(worth: pandas.DataFrame) -> None:
    with pytest.raises(NoeticConfigError) as refused:
        plots.economics(worth, domain="hotel")
    assert refused.value.code == "UNKNOWN_DOMAIN"


@pytest.mark.parametrize("saved", SAVED)
def test_the_name_of_what_is_saved_fits_a_column(saved: str) -> None:
    rows = [("detector", "all", float(at), 0.1 * at, 9_000.0 * at) for at in range(5)]
    frame = pandas.DataFrame(rows, columns=["policy", "domain", "threshold", "good_lost", saved])
    figure = Figure(figsize=(85 / 25.4, 45 / 25.4), layout="constrained")

    axes = plots.economics(frame, saved=saved, ax=figure.subplots())

    figure.draw_without_rendering()
    name, drawn = axes.yaxis.label.get_window_extent(), axes.get_window_extent()
    assert drawn.y0 <= name.y0 < name.y1 <= drawn.y1
    assert name.x0 >= 0


@pytest.mark.parametrize("draw", [plots.pareto, plots.sweep])
def test_axes_say_the_units_that_a_table_says(draw: Any) -> None:
    frame = pandas.DataFrame({"cost_cached": [0.1, 0.2], "recall": [0.5, 0.6]})
    assert draw(frame, "cost_cached", "recall").get_xlabel() == "cost_cached"

    frame.attrs["units"] = {"cost_cached": "US dollars", "recall": "share"}

    axes = draw(frame, "cost_cached", "recall")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cost_cached (US dollars)", "recall (share)")


@pytest.mark.parametrize("width", [85 / 25.4, 10.0])
def test_numbers_of_rows_do_not_touch(width: float) -> None:
    frame = pandas.DataFrame(
        {"x": [0.0, 0.5, 0.51, 0.52, 1.0], "y": [0.0, 0.5, 0.52, 0.54, 1.0], "name": ["a", "b", "c", "d", "e"]}
    )
    figure = Figure(figsize=(width, 0.7 * width), layout="constrained")

    axes = plots.pareto(frame, "x", "y", ax=figure.subplots(), label="name")

    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 5
    assert [(a, b) for a in range(5) for b in range(a) if boxes[a].overlaps(boxes[b])] == []


def test_dots_stand_in_the_row_of_their_name_with_their_intervals() -> None:
    ends = {
        "recall_low": [0.3, 0.0],
        "recall_high": [0.6, 0.2],
        "precision_low": [0.8, nan],
        "precision_high": [1.0, nan],
    }
    kept = pandas.DataFrame({"layers": ["notes", "plain"], "recall": [0.4, 0.1], "precision": [0.9, nan], **ends})

    axes = plots.write_fidelity(kept)

    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["notes", "plain"]
    assert legend_of(axes) == ["recall: said facts that were kept", "precision: kept facts that were said"]
    recall, precision = axes.containers
    assert recall.lines[0].get_xdata().tolist() == [0.4, 0.1]
    assert [round(row) for row in recall.lines[0].get_ydata()] == [0, 1]
    assert [segment[:, 0].tolist() for segment in recall.lines[2][0].get_segments()] == [[0.3, 0.6], [0.0, 0.2]]
    assert precision.lines[0].get_xdata()[0] == 0.9
    assert isnan(precision.lines[0].get_xdata()[1])


def test_a_layer_that_takes_the_room_of_others_is_left_of_a_line_at_zero() -> None:
    shares = pandas.DataFrame(
        {"layer": ["a", "b"], "alone": [0.4, 0.1], "left_out": [0.5, -0.2], "shapley": [0.4, 0.0]}
    )

    axes = plots.layer_shares(shares)

    assert axes.get_xlim()[0] < -0.2
    assert [0.0, 0.0] in [list(line.get_xdata()) for line in axes.lines]
