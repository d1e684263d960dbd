"""Live views in a kernel: they follow, they release everything, and running a cell again leaves nothing behind."""

from __future__ import annotations

import gc
import inspect
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ipywidgets.embed import embed_data

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, QualityGiven, ToolCalled, ViewAssembled, Where
from noetic_nb.runs import Run
from noetic_nb.widgets import RegulatorTrends, Selection, TokenAllocation
from noetic_nb.widgets.base import _display as cells
from noetic_nb.widgets.base._reading_thread import follower_of
from tests.matrix import several
from tests.widgets.scenes import demo_run, hostile_run, layer, turn, view
from tests.widgets.views import MAKERS, NOT_FOLLOWING, OFFERED, RUN_VIEWS, VIEWS, comms

BROWSER_TESTS = Path(__file__).parents[1] / "browser"
WIDGETS = Path(inspect.getfile(cells)).parents[1]


@pytest.fixture
def in_cell(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend that a cell runs: call it with the ids of the cell and the request."""
    shell = SimpleNamespace(parent_header={})
    monkeypatch.setitem(__import__("sys").modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(cells, "_open", {})

    def enter(cell: str, request: str) -> None:
        shell.parent_header = {"header": {"msg_id": request}, "metadata": {"cellId": cell}, "content": {"code": ""}}

    return enter


def busy_run() -> Run:
    """Return a run that includes tool calls."""
    run = demo_run()
    for name in ("search", "pay", "cancel"):
        run.append(ToolCalled(Where("t1", "e-t1-6", 6), 4.0, name, "c", {}, "Done.", 1.0, "ok"))
    return run


def listeners(run: Run) -> int:
    return len(follower_of(run).views)


def test_every_folder_has_a_view_that_is_offered() -> None:
    assert {path.parent for path in WIDGETS.glob("_*/*.js")} <= {Path(inspect.getfile(view)).parent for view in OFFERED}


@pytest.mark.parametrize("offered", OFFERED)
def test_every_offered_class_has_its_section_and_its_tests_here_and_in_the_browser(offered: Any) -> None:
    module = Path(inspect.getfile(offered))

    page = (WIDGETS.parents[1] / "docs/behaviour/views.md").read_text(encoding="utf-8")
    titles = [title.replace(" ", "").lower() for title in re.findall("^## (.+)", page, re.MULTILINE)]
    assert offered is Selection or any(title in offered.__name__.lower() for title in titles)
    assert offered in RUN_VIEWS or offered in MAKERS or not hasattr(offered, "to_html"), "tests/widgets/views.py"
    assert (BROWSER_TESTS / f"test_{module.stem.lstrip('_')}_in_lab.py").exists()


@pytest.mark.parametrize("offered", RUN_VIEWS)
def test_a_view_of_a_run_has_its_script_and_its_style_beside_it(offered: type[Any]) -> None:
    module = Path(inspect.getfile(offered))

    text = module.with_suffix(".js").read_text(encoding="utf-8").replace("export default ", "return ")
    assert text in str(offered._esm)
    assert module.with_suffix(".css").read_text(encoding="utf-8") in str(offered._css)
    assert json.dumps(offered._css) in str(offered._esm), "a page has the sheet from the script"
    assert "store.guard(render)" in str(offered._esm), "a fault while it renders would leave an empty box"


@pytest.mark.parametrize("offered", RUN_VIEWS)
def test_views_of_a_kind_share_a_class_as_long_as_their_script_is_the_same(
    offered: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with offered(demo_run()) as one, offered(demo_run()) as two:
        assert type(one) is type(two) is not offered
        assert one.get_state().keys() == two.get_state().keys()
        two.static_name = "its own"
        assert one.static_name != two.static_name
        monkeypatch.setattr(offered, "_esm", "another script")
        with offered(demo_run()) as three, offered(demo_run()) as four:
            assert [view.get_state("_esm")["_esm"] == "another script" for view in (two, three, four)] == [
                False,
                True,
                True,
            ]


@pytest.mark.parametrize("path", sorted(WIDGETS.rglob("*.css")), ids=lambda path: str(path.name))
def test_a_rule_that_asks_for_the_theme_of_a_page_says_where_the_view_stands_in_it(path: Path) -> None:
    # The sheet is nested in its view's element: a rule without `&` would look for the page inside it.
    asking = re.findall(r"^\s*(?:body|html|:root)\b.*", path.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert [rule for rule in asking if " & " not in rule] == []


# The interface guaranteed to anywidgets [1]; Jupyter's models have more, which other hosts silently ignore.
#
# .. [1] Anywidget Front-End Module, https://anywidget.dev/en/afm/, "interface AnyModel".
MODEL = frozenset({"get", "set", "save_changes", "on", "off", "send"})


@pytest.mark.parametrize("path", sorted(WIDGETS.rglob("*.js")), ids=lambda path: str(path.name))
def test_a_script_takes_of_its_model_what_every_front_end_has(path: Path) -> None:
    script = path.read_text(encoding="utf-8")

    # A workbench gives its panels data sent along; members accessed with `?.` may be missing.
    used = set(re.findall(r"\b(?:model|host)\.(\w+)(?!\w|\?\.\()", script))
    assert used <= MODEL
    # One trait at a time: only Backbone accepts an object of several.
    assert re.findall(r"\bmodel\.set\((?!\"?\w+\"?, )[^)]*", script) == []


@pytest.mark.parametrize("make", RUN_VIEWS)
def test_a_page_of_embedded_widgets_has_all_that_a_view_is_drawn_from(make: Any) -> None:
    with make(demo_run()) as view:
        saved = embed_data(views=[view])["manager_state"]["state"][view.model_id]["state"]

        assert saved["_esm"] == str(view._esm)
        assert saved["_view_name"] == "AnyView"
        assert saved["snapshot"] == json.loads(json.dumps(view.snapshot))
        assert set(saved) == set(view.keys)


@pytest.mark.parametrize("offered", RUN_VIEWS)
def test_every_view_of_a_run_is_pinned_and_linked_by_the_same_arguments(offered: type[Any]) -> None:
    parameters = inspect.signature(offered).parameters

    for name in ("thread_id", "turn", "until", "selection"):
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default is None


@pytest.mark.matrix
@pytest.mark.parametrize("make", VIEWS)
def test_many_runs_of_a_cell_leave_one_view_one_observer_and_its_comms(make: Any, in_cell: Any) -> None:
    gc.collect()  # otherwise unreferenced views of earlier tests would end in between
    run = demo_run()
    in_cell("cell-1", "request-0")
    kept = make(run)
    comms_of_one, listeners_of_one = comms(), listeners(run)

    for again in range(1, several(10, 50) + 1):
        in_cell("cell-1", f"request-{again}")
        kept = make(run)

    assert (comms(), listeners(run)) == (comms_of_one, listeners_of_one)
    assert kept.comm is not None
    kept.close()
    assert listeners(run) == 0


@pytest.mark.parametrize("make", VIEWS)
def test_two_views_of_one_cell_live_side_by_side_until_the_cell_runs_again(make: Any, in_cell: Any) -> None:
    run = demo_run()
    in_cell("cell-1", "request-1")
    first, second = make(run), make(run)
    in_cell("cell-2", "request-2")
    elsewhere = make(run)
    assert listeners(run) == (0 if make in NOT_FOLLOWING else 3)

    in_cell("cell-1", "request-3")
    third = make(run)

    assert [first.comm, second.comm] == [None, None]
    assert elsewhere.comm is not None
    for each in (elsewhere, third):
        each.close()


@pytest.mark.parametrize("make", VIEWS)
def test_closing_undoes_opening_and_may_be_repeated(make: Any) -> None:
    run = demo_run()
    before = comms()

    with make(run) as opened:
        assert comms() > before
        assert listeners(run) == (0 if make in NOT_FOLLOWING else 1)
    assert listeners(run) == 0
    opened.close()

    assert comms() == before
    assert listeners(run) == 0
    data, _ = opened._repr_mimebundle_()
    assert sorted(data) == ["text/html", "text/plain"]


@pytest.mark.parametrize("make", VIEWS)
def test_the_output_of_a_live_view_holds_the_widget_and_nothing_else(make: Any) -> None:
    with make(demo_run()) as opened:
        data, metadata = opened._repr_mimebundle_()

    assert sorted(data) == ["application/vnd.jupyter.widget-view+json"]
    assert metadata == {}


@pytest.mark.parametrize("make", VIEWS)
def test_the_static_form_runs_nothing_and_fetches_nothing(make: Any) -> None:
    with make(busy_run()) as opened:
        page, text = opened.to_html(), opened.to_text()

    assert "<script" not in page
    # An inline picture fetches nothing, and as an image it runs nothing.
    bare = re.sub(r'src="data:image/svg\+xml;base64,[A-Za-z0-9+/=]*"', "", page).replace(
        "http://www.w3.org/2000/svg", ""
    )
    assert not re.search(r"@import|url\(|https?:|src=|href=", bare)
    assert Elements(page).handlers == []
    assert len(text.splitlines()) > 3
    assert "mathjax_ignore" in page
    assert "tex2jax_ignore" in page


class Elements(HTMLParser):
    """Every element of a page, and every attribute that could run code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            is_own = tag == "img" and (value or "").startswith("data:image/svg+xml;base64,")
            if name.startswith("on") or (name in {"href", "src"} and not is_own):
                self.handlers.append(name)


@pytest.mark.parametrize("make", VIEWS)
def test_hostile_names_never_become_elements_of_the_static_form(make: Any) -> None:
    with make(busy_run()) as tame, make(hostile_run()) as hostile:
        expected, found = Elements(tame.to_html()), Elements(hostile.to_html())

    assert found.tags <= expected.tags
    assert found.handlers == []


@pytest.mark.parametrize("make", VIEWS)
def test_a_holder_of_a_run_will_do_and_anything_else_is_refused(make: Any) -> None:
    with make(SimpleNamespace(run=demo_run())) as opened:
        assert opened.to_html()

    with pytest.raises(NoeticConfigError) as caught:
        make("a path")
    assert caught.value.code == "NOT_A_RUN"


def test_a_new_call_travels_as_one_small_message_and_joins_the_snapshot(sent: list[dict[str, Any]]) -> None:
    run = Run()
    with TokenAllocation(run) as opened:
        for event in turn(1):
            run.append(event)

        calls = [message for message in sent if message["type"] == "calls"]
        assert calls[-1]["calls"] == opened.snapshot["calls"]
        assert len(opened.snapshot["calls"]) == 1
        assert max(len(json.dumps(message)) for message in calls) < 2048


def test_a_turn_of_the_trends_is_one_row_that_is_replaced_as_the_turn_goes_on(sent: list[dict[str, Any]]) -> None:
    run = Run()
    with RegulatorTrends(run) as opened:
        for number in (1, 2):
            for quality in (0.9, 0.4):
                run.append(QualityGiven(Where("t1", "e1", number), 0.0, quality, "user"))

        rows = opened.snapshot["threads"][0]["turns"]
        assert [row["cells"][:2] for row in rows] == [["1", "0.90, 0.40"], ["2", "0.90, 0.40"]]
        told = [row for message in sent for thread in message["threads"] for row in thread["rows"]]
        assert [column for column, _ in told] == [0, 0, 1, 1]
        assert told[-1][1] == rows[-1]


def test_a_page_that_missed_a_message_is_sent_everything(sent: list[dict[str, Any]]) -> None:
    with TokenAllocation(demo_run()) as opened:
        opened._handle_custom_msg({"type": "again"}, [])

        assert sent == [{"type": "all", "snapshot": opened.snapshot}]


def test_a_snapshot_is_json_even_without_limits() -> None:
    run = Run()
    run.append(view(total=float("inf"), layers=(layer("a", float("inf"), 3),)))

    with TokenAllocation(run) as opened:
        assert json.loads(json.dumps(opened.snapshot, allow_nan=False)) == opened.snapshot


def test_a_view_that_fails_says_so_and_leaves_the_agent_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run()
    with TokenAllocation(run) as opened:
        monkeypatch.setattr(opened.reading, "take", lambda *_: 1 / 0)

        run.append(ModelCalled(Where("t1", "e1", 1), 0.0, 0, "m", "agent", 1.0, "ok"))

        assert "division by zero" in opened.fault
        assert listeners(run) == 0
        assert "no longer follows" in caplog.text


def test_a_page_can_move_to_another_call_and_the_static_form_goes_along() -> None:
    with TokenAllocation(demo_run()) as opened:
        opened.set_state({"position": 0, "follow": False})
        assert "Turn 1, call 1" in opened.to_text()

        opened.follow = True
        assert "Turn 6, call 1" in opened.to_text()


def test_a_loaded_run_and_a_live_one_give_the_same_picture() -> None:
    loaded = demo_run()
    live = Run(run_id="run-1")
    with TokenAllocation(live) as growing:
        for event in loaded.events:
            live.append(event)
        with TokenAllocation(loaded) as whole:
            assert growing.to_html() == whole.to_html()
            # A page fetches the picture only if the one in the snapshot is older than the run.
            assert (whole.snapshot["is_new"], growing.snapshot["is_new"]) == (True, False)
            later = {"picture": None, "is_new": None}
            assert {**growing.snapshot, **later} == {**whole.snapshot, **later}
            request = {"what": "picture", "first": 0, "last": 5}
            answer = growing._answer(request)
            assert answer == whole._answer(request)
            assert answer["data"]["series"]


@pytest.mark.parametrize("bad", [-1, 1.5, True, "2"])
def test_a_turn_that_is_no_turn_is_refused(bad: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        TokenAllocation(demo_run(), turn=bad)

    assert caught.value.code == "INVALID_TURN"


def test_one_turn_of_a_run_can_be_shown() -> None:
    with TokenAllocation(demo_run(), turn=3) as opened:
        turns = {call["turn"] for call in opened.snapshot["calls"]}

    assert turns == {3}
    assert any(isinstance(event, ViewAssembled) for event in demo_run().events)


@pytest.mark.parametrize("view_type", VIEWS)
def test_a_view_in_a_with_block_is_closed_at_its_end(view_type: Any, sent: list[dict[str, Any]]) -> None:
    run = demo_run()
    with view_type(run) as opened:
        pass
    sent.clear()

    run.append(QualityGiven(Where("t1", "e-t1-1", 1), 0.0, 0.25, "grader"))

    assert sent == []
    assert opened.comm is None


def test_trends_of_a_live_run_have_one_row_a_turn(sent: list[dict[str, Any]]) -> None:
    live = Run(run_id="live")
    with RegulatorTrends(live) as growing:
        for number in (1, 2, 3):
            for event in turn(number, quality=0.5, spent=100 * number):
                live.append(event)
        live.append(QualityGiven(Where("t1", "e-t1-2", 2), 0.0, 0.25, "grader"))  # a late grade

        rows = growing.snapshot["threads"][0]["turns"]
        assert [row["cells"][0] for row in rows] == ["1", "2", "3"]
        with RegulatorTrends(live) as whole:
            assert whole.snapshot == growing.snapshot
