"""Properties of every figure: no global state, unchanged inputs, and reproducible drawings."""

from __future__ import annotations

import io
import re
import sys
from base64 import b64decode
from collections.abc import Callable
from functools import cache
from html import escape
from itertools import product
from math import nan
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.formatters import DisplayFormatter
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread

from noetic_nb import lab, plots
from noetic_nb.lab import datasets
from noetic_nb.plots._figure_style import named, series
from noetic_nb.regulator import CallBudget
from noetic_nb.runs import Run
from noetic_nb.runs._palette import ink_on
from notebooks.build import is_static_form
from tests.matrix import matrix, several
from tests.plots.decided_runs import decided_run
from tests.plots.test_table_figures import remembered, tried
from tests.widgets.hostile_texts import HOSTILE_TEXTS
from tests.widgets.scenes import demo_run

RUN, DECIDED = demo_run(), decided_run(12)
TRIED, REMEMBERED = tried(), remembered()
SHARES = pandas.DataFrame(
    {"layer": ["notes $x$", "plain"], "alone": [0.4, nan], "left_out": [-0.1, 0.2], "shapley": [0.1, 0.3]}
)
KEPT = pandas.DataFrame({"layers": ["notes $x$", "plain"], "recall": [0.4, 0.0], "precision": [0.9, nan]})
for column in ("recall", "precision"):
    KEPT[f"{column}_low"], KEPT[f"{column}_high"] = KEPT[column] - 0.1, KEPT[column] + 0.1
SURVIVED = pandas.DataFrame({"kind": ["id", "name"], "rate": [0.4, 0.8], "low": [0.3, nan], "high": [0.5, nan]})
CURVE = REMEMBERED.assign(budget=500, age=[1.0, 4.0, 2.0, 8.0][: len(REMEMBERED)])


@cache
def calibration() -> Any:
    return lab.calibrate(CallBudget(), datasets.airline(), samples=20)


@cache
def worth() -> pandas.DataFrame:
    return lab.economics(CallBudget(), datasets.airline(), samples=20)


FIGURES: dict[str, Callable[..., Axes]] = {
    "allocation": lambda **given: plots.allocation(RUN, **given),
    "context": lambda **given: plots.context(RUN, **given),
    "economics": lambda **given: plots.economics(worth(), **given),
    "layer_shares": lambda **given: plots.layer_shares(SHARES, **given),
    "ledger": lambda **given: plots.ledger(DECIDED, **given),
    "memory_bench": lambda **given: plots.memory_bench(REMEMBERED, **given),
    "pareto": lambda **given: plots.pareto(TRIED, "t", "s", label="word", **given),
    "quality_and_cost": lambda **given: plots.quality_and_cost(RUN, **given),
    "recall_curve": lambda **given: plots.recall_curve(CURVE, **given),
    "roc": lambda **given: plots.roc(calibration(), **given),
    "survival": lambda **given: plots.survival(SURVIVED, **given),
    "sweep": lambda **given: plots.sweep(TRIED, "cap", "s", **given),
    "timeline": lambda **given: plots.timeline(RUN, **given),
    "trends": lambda **given: plots.trends(RUN, **given),
    "write_fidelity": lambda **given: plots.write_fidelity(KEPT, **given),
}
EMPTY: dict[str, Callable[[], Axes]] = {
    "allocation": lambda: plots.allocation(Run()),
    "context": lambda: plots.context(Run()),
    "economics": lambda: plots.economics(worth().iloc[:0]),
    "layer_shares": lambda: plots.layer_shares(SHARES.iloc[:0]),
    "ledger": lambda: plots.ledger(Run()),
    "memory_bench": lambda: plots.memory_bench(REMEMBERED.iloc[:0]),
    "pareto": lambda: plots.pareto(TRIED.iloc[:0], "t", "s"),
    "recall_curve": lambda: plots.recall_curve(CURVE.iloc[:0]),
    "survival": lambda: plots.survival(SURVIVED.iloc[:0]),
    "sweep": lambda: plots.sweep(TRIED.iloc[:0], "cap", "s"),
    "timeline": lambda: plots.timeline(Run()),
    "trends": lambda: plots.trends(Run()).child_axes[0],
    "write_fidelity": lambda: plots.write_fidelity(KEPT.iloc[:0]),
}


def fresh(width: float = 6.0, height: float = 4.0, **options: Any) -> Axes:
    return Figure(figsize=(width, height), **options).subplots()


def drawn(axes: Axes) -> np.ndarray[Any, Any]:
    figure: Any = axes.get_figure(root=True)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()).copy()


def facts(axes: Axes) -> list[Any]:
    """Return the comparable properties of all artists."""
    found: list[Any] = []
    for artist in axes.findobj():
        given: Any = artist
        said = given.get_text() if hasattr(artist, "get_text") else str(given.get_label())
        colour = given.get_facecolor() if hasattr(artist, "get_facecolor") else getattr(artist, "_color", None)
        place = given.get_xydata() if hasattr(artist, "get_xydata") else getattr(artist, "_x0", None)
        found.append((type(artist).__name__, said, str(colour), str(place), artist.get_zorder()))
    return found


def test_every_public_figure_is_here() -> None:
    docs = Path(plots.__file__).parents[2] / "docs"
    page, script = [(docs / name).read_text(encoding="utf-8") for name in ("behaviour/views.md", "figures.py")]
    current = set(FIGURES) - {"quality_and_cost"}  # an older name of `trends`

    assert sorted(FIGURES) == plots.__all__
    assert set(EMPTY) == current - {"roc"}  # a calibration is never empty
    assert [name for name in current if f"`{name}(" not in page or f"plots.{name}(" not in script] == []


@matrix("name", sorted(FIGURES), keep=8)
def test_the_same_input_draws_the_same(name: str) -> None:
    first, second = (FIGURES[name](ax=fresh()) for _ in range(2))

    assert facts(first) == facts(second)
    assert (drawn(first) == drawn(second)).all()


@matrix("name", sorted(FIGURES), keep=8)
def test_nothing_global_and_no_input_is_changed(name: str) -> None:
    before = dict(matplotlib.rcParams)
    tables = [table.copy() for table in (worth(), TRIED, REMEMBERED, calibration().table)]
    events = [len(run.events) for run in (RUN, DECIDED)]

    own = FIGURES[name](theme="dark")
    own._repr_png_()  # type: ignore[attr-defined]

    assert dict(matplotlib.rcParams) == before
    for table, copy in zip((worth(), TRIED, REMEMBERED, calibration().table), tables, strict=True):
        pandas.testing.assert_frame_equal(table, copy)
        assert table.attrs == copy.attrs
    assert [len(run.events) for run in (RUN, DECIDED)] == events
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


@matrix("name,ground", product(sorted(FIGURES), ["white", "#002B36", "none"]), keep=20)
def test_inks_follow_the_ground_of_the_figure(name: str, ground: str) -> None:
    axes = FIGURES[name](ax=fresh(facecolor=ground))

    shown = "#FFFFFF" if ground == "none" else to_hex(ground).upper()
    panel: Any = axes.child_axes[0] if axes.child_axes else axes
    assert to_hex(panel.xaxis.label.get_color()).upper() == ink_on(shown)
    assert to_hex(panel.get_facecolor()).upper() == shown
    assert {to_hex(text.get_color()).upper() for text in axes.get_legend().get_texts()} == {ink_on(shown)}  # type: ignore[union-attr]


@matrix("name", sorted(FIGURES), keep=8)
def test_a_theme_that_is_given_wins_and_is_the_ground_of_an_own_figure(name: str) -> None:
    own = FIGURES[name](theme="dark")
    on_white = FIGURES[name](ax=fresh(facecolor="white"), theme="dark")

    assert to_hex(own.figure.get_facecolor()) == "#121212"
    for axes in (own, on_white):
        panel: Any = axes.child_axes[0] if axes.child_axes else axes
        assert panel.yaxis.label.get_color() == "#FFFFFF"
    assert to_hex(on_white.figure.get_facecolor()) == "#ffffff"


@matrix(
    "case", list(product(sorted(FIGURES), [("constrained", 85 / 25.4), ("constrained", 14.0), (None, 4.2)])), keep=11
)
def test_everything_is_inside_the_figure_and_the_legend_outside_of_the_data(case: Any) -> None:
    name, (layout, width) = case
    axes = FIGURES[name](ax=fresh(width, max(2.56, width / 2), layout=layout))
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # places everything

    legend = axes.get_legend()
    assert legend is not None
    box = legend.get_window_extent()
    panels: list[Any] = [*axes.child_axes, axes]
    assert all(box.y1 <= panel.get_window_extent().y0 for panel in panels)
    whole = axes.figure.bbox
    assert box.y0 >= whole.y0 - 1
    assert box.x1 <= whole.x1 + 1
    assert min(text.get_fontsize() for text in legend.get_texts()) >= 6


@pytest.mark.parametrize("name", sorted(EMPTY))
def test_an_empty_figure_says_what_is_missing(name: str) -> None:
    axes = EMPTY[name]()

    (text,) = axes.texts
    assert len(text.get_text().split()) >= 3
    assert drawn(axes).std() > 0


def test_names_are_one_line_and_lines_differ_where_colours_are_used_up() -> None:
    assert [named("pay\nnow\u202e"), named(0.5), named(" ")] == ["pay now[U+202E]", "0.5", "(blank)"]
    assert len({series(place) for place in range(60)}) == 60


@matrix("text", HOSTILE_TEXTS, keep=8, start=4)
def test_a_hostile_name_is_text(text: str) -> None:
    table = tried().assign(word=[text] * 2 + ["b"] * 2)
    table.attrs["space"] = ["cap", "word"]

    for axes in (
        plots.sweep(table, "cap", "s", ax=fresh()),
        plots.pareto(table.rename(columns={"t": text}), text, "s", ax=fresh(), label="word"),
        plots.memory_bench(remembered().assign(layers=[text] * 2 + ["b"] * 2), ax=fresh()),
        plots.economics(worth().assign(policy=text), ax=fresh()),
    ):
        words = [*axes.get_legend().get_texts(), axes.xaxis.label]  # type: ignore[union-attr]
        assert not any(each.get_parse_math() for each in words)
        assert not any(ord(letter) < 32 for each in words for letter in each.get_text())


@settings(max_examples=several(5, 100))
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.one_of(st.just(float("nan")), st.floats(-1e6, 1e6)), st.sampled_from("ab$")),
        max_size=12,
    )
)
def test_any_table_is_drawn_and_left_as_it_was(rows: list[tuple[int, float, str]]) -> None:
    frame = pandas.DataFrame(rows, columns=["x", "y", "name"]).astype({"x": float, "y": float})
    frame.attrs["space"] = ["x", "name"]
    copy = frame.copy()

    for draw in (plots.sweep, plots.pareto):
        axes = draw(frame, "x", "y", fresh())
        drawn(axes)
        points = sum(len(line.get_xydata()) for line in axes.lines)  # type: ignore[arg-type]
        assert points >= frame.y.notna().sum() if frame.y.notna().any() else axes.texts

    pandas.testing.assert_frame_equal(frame, copy)


FONTS = {"pdf": (b"/Type3", b"/CIDFontType2"), "ps": (b"/FontType 3", b"/FontType 42")}


@matrix("case", list(product(sorted(FIGURES), [True, False], FONTS)), keep=2)
def test_vector_files_have_whole_fonts_and_no_type_3(case: tuple[str, bool, str]) -> None:
    name, is_own, kind = case
    axes = FIGURES[name]() if is_own else FIGURES[name](ax=fresh())
    whole: Any = axes.get_figure(root=True)
    before = dict(matplotlib.rcParams)

    forbidden, wanted = FONTS[kind]
    file = io.BytesIO()
    with matplotlib.rc_context({"pdf.compression": 0}):
        whole.savefig(file, format=kind)
    assert forbidden not in file.getvalue()
    assert wanted in file.getvalue()
    assert dict(matplotlib.rcParams) == before


def pictures_in(html: str) -> dict[str, np.ndarray[Any, Any]]:
    found = {
        "day": re.findall(r'<img alt="[^"]+" src="data:image/png;base64,([^"]+)">', html),
        "night": re.findall(r'--nn-night: url\("data:image/png;base64,([^"]+)"\)', html),
    }
    return {name: (255 * imread(io.BytesIO(b64decode(data)))).round().astype(int) for name, (data,) in found.items()}


@matrix("name", sorted(FIGURES), keep=3)
def test_a_notebook_shows_an_own_figure_in_the_theme_of_the_page(name: str) -> None:
    axes: Any = FIGURES[name]()
    data, about = DisplayFormatter().format(axes)

    pictures = pictures_in(data["text/html"])
    assert {name: picture[0, 0, :3].tolist() for name, picture in pictures.items()} == {
        "day": [255, 255, 255],
        "night": [18, 18, 18],
    }
    assert pictures["day"].shape == pictures["night"].shape
    assert data["image/png"]
    assert escape(about["image/png"]["alt"]) in data["text/html"]
    assert len(about["image/png"]["alt"].split()) > 3
    assert is_static_form(data["text/html"])  # the static form is not saved, because web sites remove its style sheet


@matrix("name", sorted(FIGURES), keep=3, start=1)
def test_a_ground_that_was_chosen_is_kept(name: str) -> None:
    chosen: list[Any] = [FIGURES[name](theme=theme) for theme in ("light", "dark")]
    with matplotlib.rc_context({"figure.facecolor": "#002B36"}):
        chosen.append(FIGURES[name]())

    for axes in chosen:
        data, about = DisplayFormatter().format(axes)
        assert "text/html" not in data
        assert data["image/png"]
        assert about["image/png"]["alt"]


def test_the_words_of_a_picture_are_words() -> None:
    run = Run.from_messages([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}])
    axes: Any = plots.trends(run, thread_id=run.threads[0])
    axes.set_title('<img src=x onerror="a">', loc="left")
    html = DisplayFormatter().format(axes)[0]["text/html"]

    assert "<img src=x" not in html
    assert "&lt;img src=x onerror=&quot;a&quot;&gt;" in html
