"""Figures of runs show the data of the run, for long, empty and hostile runs as well, without global state."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text
from msgspec.structs import replace

import noetic_nb as nn
from noetic_nb import plots
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import MemoryTraceSpan, ModelCalled, RegulatorDecided, TurnCompleted, TurnStarted, Where
from noetic_nb.plots._trends.trends_panels import SERIES
from noetic_nb.runs import Run
from noetic_nb.runs._palette import SPAN_COLOURS
from noetic_nb.widgets import RegulatorTrends
from tests.matrix import matrix
from tests.widgets.scenes import demo_run, hostile_run, long_run, many_layers_run, two_threads_run

SCENES: list[Callable[[], Run]] = [demo_run, many_layers_run, hostile_run, long_run, two_threads_run, Run]


def texts(axes: Axes) -> str:
    figure: Any = axes.figure
    found: Any = figure.findobj(match=lambda artist: hasattr(artist, "get_text"))
    return "\n".join(artist.get_text() for artist in found)


def legend_of(axes: Axes) -> list[Text]:
    legend = axes.get_legend()
    return [] if legend is None else legend.get_texts()


@matrix("draw,scene", product([plots.trends, plots.allocation, plots.ledger], SCENES), keep=9)
def test_every_run_can_be_drawn_without_a_warning(draw: Callable[..., Axes], scene: Callable[[], Run]) -> None:
    axes = draw(scene())

    png = axes._repr_png_()  # type: ignore[attr-defined]  # as displayed by notebooks

    assert png.startswith(b"\x89PNG")


@pytest.mark.parametrize("poor", [0.3, 0.0, 1.0, None])
def test_only_a_recorded_threshold_is_drawn(poor: float | None) -> None:
    run = Run()
    for event in demo_run().events:
        if isinstance(event, RegulatorDecided):
            numbers = {} if poor is None else {"quality_decline": {"window": 2, "poor_mean": poor}}
            event = replace(event, thresholds=numbers)
        run.append(event)

    axes = plots.trends(run)
    html, text = RegulatorTrends(run).to_html(), RegulatorTrends(run).to_text()

    drawn = [label.get_text() for label in axes.child_axes[0].get_yticklabels()]
    legend = [entry.get_text() for entry in legend_of(axes)]
    is_known = poor is not None
    assert [label for label in drawn if "poor" in label] == ([f"poor {poor:g}"] if is_known else [])
    assert ("poor " in html) == is_known
    assert (
        ("mean of the last 2" in legend) == ("mean of the last 2" in html) == ("mean of the last 2" in text) == is_known
    )
    assert ("This recording does not say" in html) == ("This recording does not say" in text) == (not is_known)
    for words in (*drawn, *legend, html, text):
        assert "last 3" not in words
        assert "poor 0.5" not in words


def test_a_run_that_nobody_graded_says_so_in_the_figure() -> None:
    ungraded = Run.from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}])

    assert "No turn was graded" in texts(plots.trends(ungraded))
    assert "No turn was graded" not in texts(plots.trends(demo_run()))


def test_quality_and_cost_draws_grades_mean_tokens_cap_and_decisions() -> None:
    axes = plots.trends(demo_run())
    upper, lower = axes.child_axes

    lines = {line.get_label(): list(line.get_ydata()) for line in (*upper.lines, *lower.lines)}
    assert lines["quality of a turn"] == [0.86, 0.81, 0.72, 0.55, 0.41, 0.28]
    assert lines["mean of the last 3"] == pytest.approx([0.796667, 0.693333, 0.56, 0.413333], abs=1e-5)
    assert lines["_spent"] == [210, 470, 810, 1230, 1740, 2220]
    for words in ("cap 2,000", "circuit break", "cost cap", "scope drift", "poor 0.5"):
        assert words in texts(axes)


def test_the_figure_and_the_view_draw_the_same_marks() -> None:
    run = long_run()
    with RegulatorTrends(run) as view:
        scene = view.reading.scene()
    spent = [mark.points for mark in scene.marks if mark.series == "spent"]
    _, lower = plots.trends(run).child_axes

    (line,) = [line for line in lower.lines if line.get_label() == "_spent"]
    assert line.get_xydata().tolist() == spent
    panel = next(panel for panel in scene.panels if panel.key == "spent")
    assert [label.get_text() for label in lower.get_yticklabels()] == [text for _, text in panel.ticks]


def test_values_that_are_all_alike_are_seen_where_a_column_is_of_several_turns() -> None:
    run = long_run()
    with RegulatorTrends(run) as view:
        assert {mark.series for mark in view.reading.scene().marks} >= {"drift-range", "confidence-range"}
    upper, _ = plots.trends(run).child_axes

    for name in ("drift-range", "confidence-range"):
        assert "stroke-opacity:0.6" in SERIES[name].style()
    (area,) = [each for each in upper.collections if each.get_label() == "_quality-range"]
    assert area.get_linewidths()[0] > 0


def test_allocation_draws_sent_and_planned_bars_to_the_budget() -> None:
    axes = plots.allocation(demo_run(), turn=6)

    at = {
        y: sum(p.get_width() for p in axes.patches if abs(p.get_y() + p.get_height() / 2 - y) < 1e-9)
        for y in (1.0, 0.25)
    }

    assert at == {1.0: 8000, 0.25: 8000}
    assert axes.get_xlim() == (0, 8000)


@pytest.mark.parametrize(("width", "height"), [(10.0, 5.0), (85 / 25.4, 65 / 25.4), (3.3, 2.0)])
@pytest.mark.parametrize("layout", ["constrained", None])
def test_every_layer_that_is_drawn_is_in_the_legend_and_the_title_in_the_figure(
    width: float, height: float, layout: Any
) -> None:
    layers = [nn.static_content("Be brief."), nn.working_memory(), nn.steering(nn.RuleBook())]
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m"),
        memory=layers,
        projection=nn.ProjectionPolicy(token_budget=2_000, response_reserve=400),
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello."]))
    run = nn.record(harness)
    nn.run_sync(harness.execute("Hi"))
    figure = Figure(figsize=(width, height), layout=layout)
    axes = plots.allocation(run, ax=figure.subplots())
    figure.draw_without_rendering()

    names = " ".join(text.get_text() for text in legend_of(axes))
    assert [layer.id for layer in layers if layer.id not in names] == []
    box = axes.title.get_window_extent() if axes.get_title() else axes._left_title.get_window_extent()  # type: ignore[attr-defined]
    assert box.y1 <= figure.bbox.y1 + 1


def test_what_history_may_not_plan_with_is_named_and_ends_at_the_budget() -> None:
    harness = nn.AgentHarness(nn.AgentConfig(name="desk", step=nn.react(model="m")), model=nn.ScriptedModel(["Hello."]))
    run = nn.record(harness)
    nn.run_sync(harness.execute("Hi"))
    axes = plots.allocation(run)

    planned = [patch for patch in axes.patches if abs(patch.get_y() + patch.get_height() / 2 - 0.25) < 1e-9]  # type: ignore[attr-defined]
    assert sum(patch.get_width() for patch in planned) == pytest.approx(128_000)  # type: ignore[attr-defined]
    assert "Not planned" in [text.get_text() for text in axes.texts]


def test_a_name_with_dollars_is_text_and_not_a_formula() -> None:
    axes = plots.allocation(hostile_run(), ax=Figure(figsize=(16, 20)).subplots())

    named = [text for text in (*axes.texts, *legend_of(axes)) if "$" in text.get_text()]
    assert named
    assert not any(text.get_parse_math() for text in named)


def test_given_axes_are_drawn_on() -> None:
    figure = Figure()
    upper, lower = figure.subplots(2, 1)

    assert plots.trends(demo_run(), ax=(upper, lower)) is upper
    assert lower.lines
    one = Figure().subplots()
    assert plots.allocation(demo_run(), ax=one) is one
    assert one.patches
    both = Figure().subplots()
    assert plots.trends(demo_run(), ax=both) is both
    assert both.child_axes[1].lines


def test_pyplot_is_never_imported() -> None:
    before = "matplotlib.pyplot" in sys.modules
    plots.trends(demo_run()).figure.savefig(io.BytesIO())

    assert ("matplotlib.pyplot" in sys.modules) == before


def test_figures_load_matplotlib_and_nothing_of_jupyter() -> None:
    loads = "print(*{name.partition('.')[0] for name in sys.modules})"
    code = f"import sys; from noetic_nb import plots; {loads}; plots.allocation; {loads}"

    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, loaded = [line.split() for line in shown.splitlines()]

    assert "matplotlib" not in before  # a browser without it can still import the package
    assert "matplotlib" in loaded
    assert not {"IPython", "ipywidgets", "anywidget", "traitlets", "ipykernel", "jupyter_client"} & set(loaded)


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(NoeticConfigError) as turn:
        plots.allocation(demo_run(), turn=99)
    with pytest.raises(NoeticConfigError) as thread:
        plots.trends(demo_run(), thread_id="nobody")
    with pytest.raises(NoeticConfigError) as axes:
        plots.trends(demo_run(), ax=[Figure().subplots()])

    assert [caught.value.code for caught in (turn, thread, axes)] == ["UNKNOWN_TURN", "UNKNOWN_THREAD", "INVALID_AXES"]


def test_a_turn_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(NoeticConfigError, match="There are turn 1 of thread"):
        plots.allocation(demo_run(), turn=99)


def test_a_turn_of_a_run_without_model_calls_is_told_that_there_are_none() -> None:
    with pytest.raises(NoeticConfigError, match="This run has no model request"):
        plots.allocation(Run(), turn=3)


def test_model_calls_are_seen_in_a_timeline_although_hooks_beside_them_take_longer() -> None:
    where = Where("t1", "e1", 1)
    events: list[Any] = [TurnStarted(where, 0.0, "u1", 0, 1, "Hi")]
    for step in range(5):
        at = 1_000.0 * step
        events.append(MemoryTraceSpan(where, at + 2.0, "notes", "recall", 2.0, "ok"))
        events.append(ModelCalled(where, at + 3.0, step, "fast", "agent", 0.5, "ok"))
        events.append(MemoryTraceSpan(where, at + 900.0, "notes", "store", 896.0, "ok"))
    events.append(TurnCompleted(where, 5_000.0, "u1", "success", 5_000.0, "Hello", 9, 2, 0.0, 5, 0))

    axes = plots.timeline(Run(events=events))

    colour = to_rgba(SPAN_COLOURS["model"])
    calls = [bar for bar in axes.patches if bar.get_facecolor() == colour]
    above = {bar.get_zorder() for bar in axes.patches if bar.get_facecolor() != colour}
    assert len(calls) == 5
    assert min(bar.get_zorder() for bar in calls) > max(above)
