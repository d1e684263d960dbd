"""A view on a page has two outputs: the live one, unchanged while it is open, and a static one that is kept up to date."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from types import SimpleNamespace
from typing import Any

import ipywidgets
import pytest

from noetic_nb.runs import Run
from noetic_nb.widgets import TokenAllocation
from noetic_nb.widgets.base import _display as cells
from noetic_nb.widgets.base import _display as display
from noetic_nb.widgets.base import _page_thread as weakly
from noetic_nb.widgets.base._reading_thread import at_cell_end
from tests.matrix import matrix, several
from tests.widgets.scenes import demo_run, short_run, turn
from tests.widgets.views import RUN_VIEWS, VIEWS, comms, watching

WIDGET = "application/vnd.jupyter.widget-view+json"


class Output:
    """IPython's handle of an output that can be updated."""

    def __init__(self, bundle: dict[str, Any], updated: list[Output]) -> None:
        self.bundles = [bundle]
        self.updated = updated

    def update(self, bundle: dict[str, Any], *, raw: bool) -> None:
        assert raw
        self.bundles.append(bundle)
        self.updated.append(self)


class Page:
    """A notebook with cells, without a browser."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.updated: list[Output] = []  # in the order of their updates
        self.began: list[Any] = []
        self.ended: list[Any] = []
        callbacks = {"pre_run_cell": self.began, "post_run_cell": self.ended}
        events = SimpleNamespace(
            register=lambda name, callback: callbacks[name].append(callback),
            unregister=lambda name, callback: callbacks[name].remove(callback),
        )
        self.shell = SimpleNamespace(kernel=object(), parent_header={}, events=events)

    def show(self, bundle: dict[str, Any], *, raw: bool, display_id: bool = False) -> Output:
        assert raw
        self.outputs.append(Output(bundle, self.updated))
        return self.outputs[-1]

    def run_cell(self, name: str, request: str) -> None:
        self.shell.parent_header = {
            "header": {"msg_id": request},
            "metadata": {"cellId": name},
            "content": {"code": ""},
        }
        for callback in tuple(self.began):
            callback()

    def end_cell(self) -> None:
        for callback in tuple(self.ended):
            callback()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    made = Page()
    module = SimpleNamespace(get_ipython=lambda: made.shell, display=SimpleNamespace(display=made.show))
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)
    monkeypatch.setattr(cells, "_open", {})
    return made


@pytest.mark.parametrize("make", VIEWS)
def test_a_view_is_shown_as_a_live_output_and_a_static_one_beside_it(make: Any, page: Page) -> None:
    with make(demo_run()) as opened:
        opened._ipython_display_()

        live, static = [output.bundles[0] for output in page.outputs]
        assert sorted(live) == [WIDGET]
        assert sorted(static) == ["text/html", "text/plain"]
        assert opened.to_html() in static["text/html"]
        assert f'id="nn-{opened.static_id}"' in static["text/html"]


async def drawn(page: Page, opened: Any) -> None:
    opened._message_received(opened, {"type": "drawn"}, [])


async def next_cell(page: Page, opened: Any) -> None:
    page.run_cell("c2", "r2")


async def pause(page: Page, opened: Any) -> None:
    while opened._waits_for:
        await asyncio.sleep(0)


async def end_of_a_cell_in_which_it_grew(page: Page, opened: Any) -> None:
    for event in turn(9):
        opened.run.append(event)
    page.end_cell()


@pytest.mark.parametrize("until", [drawn, next_cell, pause, end_of_a_cell_in_which_it_grew])
@pytest.mark.parametrize("make", RUN_VIEWS)
def test_where_a_page_is_the_static_form_waits_until_the_live_one_is_drawn(
    make: Any, until: Any, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    if until is pause:
        monkeypatch.setattr(display, "PAUSE_S", 0.0)

    async def shown() -> None:
        page.run_cell("c1", "r1")
        opened = make(demo_run())
        opened._ipython_display_()
        live, static = page.outputs
        assert len(static.bundles[0]["text/html"]) < 1_000
        assert f'id="nn-{opened.static_id}"' in static.bundles[0]["text/html"]

        page.end_cell()
        assert len(static.bundles) == 1, "the end of its cell comes before the page has drawn anything"
        await asyncio.wait_for(until(page, opened), 60)

        assert [opened.to_html() in bundle["text/html"] for bundle in static.bundles] == [False, True]
        assert opened.to_text() == static.bundles[-1]["text/plain"]
        await drawn(page, opened)  # of another page
        assert (len(live.bundles), len(static.bundles)) == (1, 2)
        assert opened._bring_up_to_date not in page.began + page.ended
        opened.close()

    asyncio.run(shown())


def test_where_nobody_looks_a_cell_ends_with_the_static_form(page: Page) -> None:
    async def executed() -> None:
        page.shell.parent_header = {"header": {"msg_id": "r1"}, "metadata": {}, "content": {"code": "view"}}
        with TokenAllocation(demo_run()) as opened:
            opened._ipython_display_()

            assert opened.to_html() in page.outputs[1].bundles[0]["text/html"]
            assert opened._bring_up_to_date not in page.began + page.ended

    asyncio.run(executed())


def test_closing_replaces_the_static_form_while_the_live_one_still_hides_it(page: Page) -> None:
    opened = TokenAllocation(demo_run())
    opened._ipython_display_()
    opened.close()

    live, static = page.outputs
    assert page.updated == [static, live]


@pytest.mark.parametrize("make", VIEWS)
def test_closing_empties_the_live_output_and_leaves_the_static_one(make: Any, page: Page) -> None:
    opened = make(demo_run())
    opened._ipython_display_()
    opened.close()
    opened.close()

    live, static = page.outputs
    assert live.bundles[1:] == [{}]
    assert static.bundles[-1]["text/plain"] == opened.to_text()

    opened._ipython_display_()
    assert sorted(page.outputs[-1].bundles[0]) == ["text/html", "text/plain"]
    assert len(page.outputs) == 3


def test_turns_bring_the_static_output_up_to_date_once_a_cell_and_never_touch_the_live_one(page: Page) -> None:
    run = Run()
    with TokenAllocation(run) as opened:
        opened._ipython_display_()
        for number in range(1, 30):
            for event in turn(number):
                run.append(event)
        page.end_cell()

        live, static = page.outputs
        assert len(live.bundles) == 1
        assert len(static.bundles) == 2
        assert "Turn 29, call 1" in static.bundles[1]["text/plain"]
        assert page.ended == [at_cell_end]


def test_after_a_cell_the_static_output_follows_with_a_pause(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "PAUSE_S", 0.0)
    run = Run()

    async def later() -> None:
        for number in (1, 2):
            for event in turn(number):
                run.append(event)
        while opened._waits_for:
            await asyncio.sleep(0)

    with TokenAllocation(run) as opened:
        opened._ipython_display_()
        asyncio.run(asyncio.wait_for(later(), 30))

        assert len(page.outputs[1].bundles) == 2


def test_a_terminal_shows_the_text_once(page: Page) -> None:
    del page.shell.kernel
    run = demo_run()
    with TokenAllocation(run) as opened:
        opened._ipython_display_()
        for event in turn(9):
            run.append(event)
        page.end_cell()

    assert [output.bundles for output in page.outputs] == [[{"text/plain": page.outputs[0].bundles[0]["text/plain"]}]]


def test_a_cell_that_runs_again_closes_its_view_and_touches_no_output_of_its_own(page: Page) -> None:
    page.run_cell("c1", "r1")
    opened = TokenAllocation(demo_run())
    opened._ipython_display_()
    page.run_cell("c2", "r2")
    opened._ipython_display_()

    page.run_cell("c1", "r3")
    TokenAllocation(demo_run()).close()

    assert opened.comm is None
    assert [len(output.bundles) for output in page.outputs] == [1, 1, 2, 2]
    assert page.outputs[2].bundles[1] == {}


def test_a_cell_that_shows_a_view_again_updates_its_newest_outputs_only(page: Page) -> None:
    with TokenAllocation(demo_run()) as opened:
        for request in ("r1", "r2", "r3"):
            page.run_cell("c1", request)
            opened._ipython_display_()
        opened.publish_static()

    assert [len(output.bundles) for output in page.outputs[:4]] == [1, 1, 1, 1]


@pytest.mark.usefixtures("little_to_collect")
@matrix("make", VIEWS, keep=5, start=2)
def test_views_that_are_dropped_without_closing_leave_nothing(make: Any) -> None:
    run = short_run()
    make(run).close()
    gc.collect()
    before, threads = comms(), threading.active_count()

    for _ in range(several(50, 200)):
        make(run)
    gc.collect()

    assert comms() == before
    assert watching(run) == 0
    assert threading.active_count() <= threads


@pytest.mark.usefixtures("little_to_collect")
@matrix("make", VIEWS, keep=5)
def test_opening_and_closing_many_times_leaves_no_memory_behind(make: Any) -> None:
    run = short_run()

    def open_and_close(times: int) -> int:
        for _ in range(times):
            make(run).close()
        gc.collect()
        return len(gc.get_objects())

    open_and_close(10)
    after_few = open_and_close(10)

    assert open_and_close(several(60, 200)) < after_few + several(30, 100)


@pytest.mark.usefixtures("little_to_collect")
def test_a_view_on_a_page_is_held_until_its_cell_runs_again(page: Page) -> None:
    run = Run()
    page.run_cell("c1", "r1")
    TokenAllocation(run)._ipython_display_()
    gc.collect()
    assert watching(run) == 1

    page.run_cell("c1", "r2")
    TokenAllocation(Run()).close()
    gc.collect()

    assert watching(run) == 0


def test_at_the_end_of_a_kernel_no_comm_is_closed_any_more() -> None:
    instances = ipywidgets.widgets.widget._instances
    with TokenAllocation(demo_run()) as opened:
        weakly._hold_at_exit()

        assert instances[opened.model_id] is opened
