"""When views read: not while an agent works, soon after, and before any request is answered."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from time import thread_time
from types import SimpleNamespace
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import QualityGiven, RunEvent, Where
from noetic_nb.runs import Run, record
from noetic_nb.runs._events.run_log import Cursor
from noetic_nb.widgets import Compare, Ledger, RuleEditor, TokenAllocation, Workbench
from noetic_nb.widgets._workbench.panels import PANELS
from noetic_nb.widgets.base import _display as cells
from noetic_nb.widgets.base import _reading_thread as readings
from noetic_nb.widgets.base._feed import Place, Reading
from noetic_nb.widgets.base._reading_thread import READINGS, Follower, Readings, follower_of
from noetic_nb.widgets.base._run_view import RunView
from noetic_nb.widgets.base._selection import Selection
from tests.widgets.scenes import decisions, memory_run, planned_run, turn, watched_run
from tests.widgets.views import MAKERS, NOT_FOLLOWING, VIEWS, watching

pytestmark = pytest.mark.reads_later
LONG_S = 60
TOO_LONG_S = 10


class Held(Readings):
    """Readings whose thread waits until it is released."""

    def __init__(self) -> None:
        super().__init__(idle_s=0.0)
        self.go = threading.Event()

    def _slice(self, until: float) -> bool:
        assert self.go.wait(LONG_S)
        return super()._slice(until)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Delay all reading until the test releases it; then wait until everything is read."""
    made = Held()
    monkeypatch.setattr(readings, "READINGS", made)
    monkeypatch.setattr("noetic_nb.widgets.base._run_view.READINGS", made)
    yield made
    made.go.set()


class Counted(Reading):
    """Counts the events it has read."""

    def __init__(self) -> None:
        self.snapshot = {"taken": 0}
        self.chosen_at: list[int] = []
        self.all_read = threading.Event()
        self.threads: set[str] = set()

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        if isinstance(event, QualityGiven) and event.quality == 0.0:
            raise RuntimeError("a grade of nothing")
        self.threads.add(threading.current_thread().name)
        self.snapshot["taken"] += 1
        if isinstance(event, QualityGiven) and event.quality == 1.0:
            self.all_read.set()
        return {"type": "taken", "seq": place.seq}

    def answer(self, request: dict[str, Any]) -> Any:
        return self.snapshot["taken"]

    def selected(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        self.chosen_at.append(self.snapshot["taken"])
        return None

    def to_html(self) -> str:
        return f"<p>{self.snapshot['taken']}</p>"

    def to_text(self) -> str:
        return str(self.snapshot["taken"])


class View(RunView):
    _css = ""


def grade(quality: float = 0.5) -> QualityGiven:
    return QualityGiven(Where("t1", "e1", 1), 0.0, quality, "user")


ASKED = {
    "answer": lambda view: view._answer({"what": "count"})["data"],
    "html": lambda view: int(view.to_html().split("<p>")[1].split("</p>")[0]),
    "text": lambda view: int(view.to_text()),
    "snapshot": lambda view: view.snapshot["taken"],
}


@pytest.mark.parametrize("ask", ASKED)
def test_an_event_only_wakes_a_view_and_whoever_asks_finds_it_up_to_date(held: Held, ask: str) -> None:
    run, reading = Run(), Counted()
    with View(run, reading) as view:
        for _ in range(5):
            run.append(grade())
        assert reading.snapshot["taken"] == 0

        assert ASKED[ask](view) == 5
        run.append(grade())
        assert ASKED[ask](view) == 6


def test_a_choice_finds_everything_read(held: Held) -> None:
    run, reading, selection = Run(), Counted(), Selection()
    with View(run, reading, selection=selection):
        run.append(grade())
        run.append(grade())
        selection.select(turn=1)
        assert reading.chosen_at == [2]


def test_what_is_left_is_read_without_anyone_asking_and_not_by_the_agent() -> None:
    run, reading = Run(), Counted()
    with View(run, reading):
        for _ in range(200):
            run.append(grade())
        run.append(grade(1.0))

        assert reading.all_read.wait(LONG_S)
        assert reading.snapshot["taken"] == 201
        assert reading.threads == {"noetic_nb readings"}


def test_what_was_met_while_another_thread_was_at_the_view_is_read_after_it() -> None:
    run, reading, met = Run(), Counted(), threading.Event()
    with View(run, reading) as view:
        read = view.read_some

        def watched(until: float) -> bool:
            done = read(until)
            met.set()
            return done

        view.read_some = watched  # type: ignore[method-assign]
        with view._reading_lock:
            run.append(grade(1.0))
            assert met.wait(LONG_S)
            assert reading.snapshot["taken"] == 0
        assert reading.all_read.wait(LONG_S)


def test_what_was_said_while_a_page_was_answered_is_sent_after_it() -> None:
    with Workbench(Run()) as bench:
        sent: list[Any] = []
        bench.send = lambda content, buffers=None: sent.append(content)  # type: ignore[method-assign]
        with bench.up_to_date():
            other = threading.Thread(target=lambda: bench._part_changed(chat=None))
            other.start()
            other.join()
            assert sent == []
        assert [content["type"] for content in sent] == ["panels"]


def test_a_panel_that_is_read_while_its_workbench_answers_a_page_does_not_wait_for_ever() -> None:
    with Workbench(Run(), panels=["ledger"]) as bench:
        ledger, is_held, is_asked = bench.ledger, threading.Event(), threading.Event()
        catch_up = bench.catch_up

        def noted() -> None:
            is_asked.set()
            catch_up()

        def answer() -> None:
            with bench.up_to_date():
                is_held.set()
                assert is_asked.wait(LONG_S)
                ledger.catch_up()

        def look() -> None:
            assert is_held.wait(LONG_S)
            ledger.look()
            is_asked.set()

        bench.catch_up = noted  # type: ignore[method-assign]
        threads = [threading.Thread(target=work, daemon=True) for work in (answer, look)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TOO_LONG_S)
        assert [thread.is_alive() for thread in threads] == [False, False]


def test_a_view_collected_in_the_middle_of_an_append_does_not_wait_for_the_reading_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, is_reading, take = Run(), threading.Event(), Cursor.take
    views = [View(run, Counted())]
    follower = follower_of(run)

    def noted(cursor: Cursor, most: int | None = None) -> list[RunEvent]:
        is_reading.set()
        return take(cursor, most)

    def append() -> None:
        with run._lock:
            reading.start()
            assert is_reading.wait(LONG_S)
            views[0].__del__()  # garbage collection calls it in any thread

    monkeypatch.setattr(Cursor, "take", noted)
    threads = reading, appending = [threading.Thread(target=work, daemon=True) for work in (follower.hand_out, append)]
    appending.start()
    for thread in (appending, reading):
        thread.join(TOO_LONG_S)
    assert [thread.is_alive() for thread in threads] == [False, False]
    views.clear()
    gc.collect()
    assert watching(run) == 0


def test_a_loop_that_ended_leaves_nothing_unread() -> None:
    run, reading = Run(), Counted()

    async def work() -> None:
        run.append(grade())
        run.append(grade(1.0))

    with View(run, reading):
        asyncio.run(work())
        assert reading.all_read.wait(LONG_S)
        assert reading.snapshot["taken"] == 2


def test_events_of_many_threads_are_read_once_each_in_the_order_of_the_run() -> None:
    run, reading = Run(), Counted()
    seen: list[RunEvent] = []
    with View(run, reading) as view:
        take = reading.take
        reading.take = lambda event, place: (seen.append(event), take(event, place))[1]  # type: ignore[method-assign]
        threads = [threading.Thread(target=lambda: [run.append(grade()) for _ in range(100)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert view.snapshot["taken"] == 400
    assert sorted(map(id, seen)) == sorted(map(id, run.events))


def test_views_of_a_run_share_what_follows_it_and_it_ends_with_the_last() -> None:
    run = Run()
    with View(run, Counted()) as one, View(run, Counted()) as other:
        assert watching(run) == 1
        assert follower_of(run).views == [one, other]
        one.close()
        assert follower_of(run).views == [other]
    assert watching(run) == 0


def test_a_view_that_joins_reads_nothing_twice(held: Held) -> None:
    run, first, second = Run(), Counted(), Counted()
    with View(run, first) as one:
        run.append(grade())
        run.append(grade())  # both wait when the next view is created
        with View(run, second) as other:
            run.append(grade())
            assert (one.snapshot["taken"], other.snapshot["taken"]) == (3, 3)


def test_a_closed_view_leaves_its_last_state_behind(held: Held) -> None:
    run, reading = Run(), Counted()
    view = View(run, reading)
    run.append(grade())
    view.close()
    assert view.to_text() == "1"
    run.append(grade())
    assert view.to_text() == "1"


def test_a_fault_in_a_reading_is_shown_and_the_other_views_go_on(held: Held) -> None:
    run, broken, whole = Run(), Counted(), Counted()
    whole.take = lambda event, place: whole.snapshot.update(taken=place.seq + 1)  # type: ignore[method-assign]
    with View(run, broken) as one, View(run, whole) as other:
        run.append(grade())
        run.append(grade(0.0))
        run.append(grade(1.0))
        held.go.set()
        assert other.snapshot["taken"] == 3
        assert "a grade of nothing" in one.fault or one.snapshot["taken"] == 1
        assert "a grade of nothing" in one.fault


def test_the_end_of_a_cell_reads_and_shows_everything(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Any] = []
    shell = SimpleNamespace(
        parent_header={}, events=SimpleNamespace(register=lambda _, end: ends.append(end), unregister=lambda *_: None)
    )
    for module in (cells, readings, nn.widgets.base._display):
        monkeypatch.setattr(module, "running_shell", lambda: shell)
    run, reading = Run(), Counted()
    with View(run, reading) as view:
        shown: list[str] = []
        place = SimpleNamespace(
            static=SimpleNamespace(update=lambda bundle, raw: shown.append(bundle["text/plain"])),
            live=SimpleNamespace(update=lambda *_, **__: None),
            cell=None,
            view=view,
        )
        view._places = (place,)
        for event in turn(1):
            run.append(event)
        ends[0]()
        assert shown == [str(len(turn(1)))]


def test_the_end_of_a_cell_asks_a_view_of_many_runs_once(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, caught = [Run() for _ in range(5)], []
    with RuleEditor(nn.RuleBook(), runs=runs) as editor, Ledger(runs[0]) as ledger:
        for view in (editor, ledger):
            view._places = (SimpleNamespace(static=None, live=None, cell=None, view=view),)
            monkeypatch.setattr(view, "catch_up", lambda view=view: caught.append(view))
        readings.at_cell_end()
        assert sorted(map(id, caught)) == sorted(map(id, (editor, ledger)))
        for view in (editor, ledger):
            view._places = ()


def test_where_there_are_no_threads_events_are_read_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(readings, "READINGS", Readings())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    run, reading = Run(), Counted()
    with View(run, reading):
        for count in (1, 2):
            run.append(grade())
            assert reading.snapshot["taken"] == count


@pytest.mark.parametrize("is_quiet", [True, False])
def test_events_are_read_without_pauses_if_others_wait(is_quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    done = threading.Event()

    class Noted(Readings):
        def _slice(self, until: float) -> bool:
            shares.append(until - thread_time())
            return super()._slice(until)

    def read_some(until: float) -> bool:
        done.set()
        return True

    monkeypatch.setattr(readings, "_others_wait", lambda *_pause: is_quiet)
    Noted(idle_s=0.0).wake(SimpleNamespace(is_awake=False, read_some=read_some, catch_up=done.set))
    assert done.wait(LONG_S)
    assert (shares[0] > readings.QUIET_S / 2) is is_quiet


def test_a_reading_gives_way_after_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10_000))
    monkeypatch.setattr(readings.time, "thread_time", lambda: next(now))
    monkeypatch.setattr("noetic_nb.widgets.base._run_view.thread_time", lambda: next(now))
    monkeypatch.setattr(READINGS, "wake", lambda stale: setattr(stale, "is_awake", True))
    run, reading = Run(), Counted()
    with View(run, reading):
        follower: Follower = follower_of(run)
        for _ in range(100):
            run.append(grade())
        assert follower.read_some(10) is False
        assert 0 < reading.snapshot["taken"] < 20
        assert follower.read_some(1_000_000) is True
        assert reading.snapshot["taken"] == 100


async def test_a_workbench_shows_the_end_of_a_conversation() -> None:
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["One.", "Two."]))
    run = record(harness)
    with Workbench(run) as bench, Ledger(run):
        for _ in range(2):
            await harness.execute("Hm?", thread_id="t1")
        assert "Two." in bench.to_text()
        assert bench.transcript.to_text() == bench.transcript.to_text()
        assert len(bench.reading.talk) == 2


def every_panel(run: Any) -> Workbench:
    """Return a workbench whose page has every panel."""
    book = nn.RuleBook([{"id": "late", "applies_to": "before_tool_call", "predicate": lambda call: None}])
    bench = Workbench(run, rules=book)
    for name in PANELS:
        bench._answer({"do": "panel", "panel": name})
    return bench


def everything_of(view: Any) -> Any:
    """Return all data that the view's pages have."""
    panels = {name: panel.reading.snapshot for name, panel in getattr(view.reading, "views", {}).items()}
    shown = json.loads(json.dumps([view.snapshot, panels]))
    for snapshot in [shown[0], *shown[1].values()]:
        # Open pages request older calls on demand.
        for name in ("panels", "calls", "first", "news", "empty"):
            snapshot.pop(name, None)
    return shown


@pytest.mark.parametrize(
    "make", [*(view for view in VIEWS if view is not Workbench and view not in NOT_FOLLOWING), every_panel]
)
def test_a_long_backlog_is_read_as_a_run_is_opened(held: Held, make: Any) -> None:
    watched = watched_run(60)
    events = [*watched.events, *planned_run(60).events, *memory_run(30).events, *decisions()]
    whole = Run(run_id="watched", meta=watched.meta, events=events)
    assert len(events) > 1.5 * readings.BACKLOG
    other = Run(events=events)
    made = Compare if make is MAKERS[Compare] else None
    run = Run(run_id="watched", meta=watched.meta, events=events[:100])
    with made(run, other) if made else make(run) as view, made(whole, other) if made else make(whole) as opened:
        view._message_received(view, {"type": "drawn"}, [])
        sent: list[Any] = []
        view.send = lambda content, buffers=None: sent.append(content)  # type: ignore[method-assign]
        for event in events[100:]:
            run.append(event)
        view.catch_up()

        assert len(sent) == 1
        assert everything_of(view) == everything_of(opened)
        for event in (*turn(151), *memory_run(1).events, *decisions()):
            run.append(event)
        view.catch_up()
        assert len(sent) > 1


def test_a_long_backlog_waits_while_the_agent_works_and_is_then_read_in_one_go(held: Held) -> None:
    run, reading = Run(), Counted()
    with View(run, reading) as view:
        sent: list[Any] = []
        view.send = lambda content, buffers=None: sent.append(content)  # type: ignore[method-assign]
        for _ in range(2 * readings.BACKLOG):
            run.append(grade())
        assert not follower_of(run).read_some(0.0)
        assert reading.snapshot["taken"] <= readings.CHUNK

        sent.clear()
        assert follower_of(run).read_some(thread_time() + readings.QUIET_S)
        assert reading.snapshot["taken"] == 2 * readings.BACKLOG
        assert sent == []


def test_a_backlog_is_drawn_for_a_page_that_asks(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    run, drawn = Run(), []
    with TokenAllocation(run) as view:
        monkeypatch.setattr(view.reading, "picture", lambda part: drawn.append(part) or {})
        sent: list[Any] = []
        view.send = lambda content, buffers=None: sent.append(content)  # type: ignore[method-assign]
        for event in (event for number in range(1, 1_001) for event in turn(number)):
            run.append(event)
        view.catch_up()
        assert (sent, drawn) == ([], [])
        view._message_received(view, {"type": "here", "messages": view.sent["messages"]}, [])

        assert drawn == [range(1_000)]
        assert [message["type"] for message in sent] == ["all"]
        assert sent[0]["snapshot"]["calls"][-1]["turn"] == 1_000

        for event in (event for number in range(1_001, 2_001) for event in turn(number)):
            run.append(event)
        view.catch_up()  # the page need not ask again, which a busy kernel could not answer

        assert [message["type"] for message in sent] == ["all", "all"]
        assert sent[1]["snapshot"]["calls"][-1]["turn"] == 2_000


def test_one_message_of_a_workbench_holds_what_is_read_in_one_go(held: Held) -> None:
    run = Run()
    with Workbench(run, panels=["ledger"]) as bench:
        bench._answer({"do": "panel", "panel": "ledger"})
        sent: list[Any] = []
        bench.send = lambda content, buffers=None: sent.append(content)  # type: ignore[method-assign]
        for event in (*turn(1), *decisions()):
            run.append(event)
        bench.catch_up()
        assert [content["type"] for content in sent] == ["panels"]
        assert len(sent[0]["news"]) > 1
