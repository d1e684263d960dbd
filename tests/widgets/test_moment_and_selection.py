"""The moment and selection of a view, and the requests of its pages."""

from __future__ import annotations

import gc
import html
import json
import threading
import weakref
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, QualityGiven, RunEvent, SteeringDecided, ToolCalled, Where
from noetic_nb.runs import Run
from noetic_nb.widgets import Selection, TokenAllocation
from noetic_nb.widgets.base._feed import Feed, Place, Reading, changes
from noetic_nb.widgets.base._page_thread import PAGES, PageThread, subscribe_weakly
from noetic_nb.widgets.base._run_view import RunView
from noetic_nb.widgets.base._selection import Moment
from tests.widgets.scenes import demo_run, turn
from tests.widgets.views import RUN_VIEWS, watching


class Events(Reading):
    """Records everything it receives."""

    def __init__(self) -> None:
        self.snapshot: dict[str, Any] = {"taken": 0}
        self.taken: list[tuple[RunEvent, Place]] = []

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        self.taken.append((event, place))
        self.snapshot["taken"] += 1
        return {"type": "taken"}

    def answer(self, request: dict[str, Any]) -> Any:
        if request == {"what": "nothing"}:
            return super().answer(request)
        if request == {"what": "a fault"}:
            raise RuntimeError("not today")
        return [request["what"], self.snapshot["taken"]]

    def to_html(self) -> str:
        return f"<p>{self.snapshot['taken']} events</p>"

    def to_text(self) -> str:
        return f"{self.snapshot['taken']} events"


def given(thread: str, number: int) -> QualityGiven:
    return QualityGiven(Where(thread, "e1", number), 0.0, 0.5, "user")


def denied(thread: str, number: int) -> SteeringDecided:
    where = Where(thread, "e1", number)
    return SteeringDecided(where, 0.0, "steering", "before_tool_call", "pay", {}, "deny", "No.", ("large",), 0.1)


def done(thread: str, number: int) -> ToolCalled:
    return ToolCalled(Where(thread, "e1", number), 0.0, "look", "c1", {}, "Done.", 1.0, "ok")


def called(purpose: Any = "agent") -> ModelCalled:
    return ModelCalled(Where("t1", "e1", 1), 0.0, 0, "m", purpose, 1.0, "ok")


def page_says(view: RunView, content: dict[str, Any]) -> None:
    """Deliver a message as the kernel does."""
    view.comm.handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})


@pytest.mark.parametrize("bad", [-1, 1.5, True, "2"])
@pytest.mark.parametrize("name", ["turn", "until"])
@pytest.mark.parametrize("view", RUN_VIEWS)
def test_a_turn_that_is_no_turn_is_refused(view: Any, name: str, bad: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        view(demo_run(), **{name: bad})

    assert caught.value.code == "INVALID_TURN"


@pytest.mark.parametrize(
    ("key", "bad", "code"), [("thread_id", 3, "INVALID_THREAD"), ("selection", {}, "NOT_A_SELECTION")]
)
@pytest.mark.parametrize("view", RUN_VIEWS)
def test_a_thread_without_a_name_and_a_foreign_selection_are_refused(view: Any, key: str, bad: Any, code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        view(demo_run(), **{key: bad})

    assert caught.value.code == code


@pytest.mark.parametrize("view", RUN_VIEWS)
def test_a_thread_that_a_run_has_not_yet_is_no_error(view: Any) -> None:
    with view(Run(), thread_id="later") as opened:
        assert opened.to_text()


@pytest.mark.parametrize("view", [view for view in RUN_VIEWS if view.table])
def test_the_table_of_a_view_has_the_rows_of_its_moment(view: Any) -> None:
    places = [(number, thread) for number in (1, 2, 3) for thread in ("a", "b")]
    run = Run(
        events=[
            event
            for number, thread in places
            for event in [*turn(number, thread=thread), denied(thread, number), done(thread, number)]
        ]
    )
    with view(run) as whole, view(run, thread_id="b", until=2) as part, view(run, turn=3) as one:
        frames = whole.to_frame(), part.to_frame(), one.to_frame()

    assert set(frames[0]["thread_id"]) == {"a", "b"}
    assert set(frames[0]["turn"]) == {1, 2, 3}
    assert set(frames[1]["thread_id"]) == {"b"}
    assert set(frames[1]["turn"]) == {1, 2}
    assert set(frames[2]["turn"]) == {3}


@pytest.mark.parametrize("view", RUN_VIEWS)
def test_a_pinned_view_of_a_run_that_goes_on_is_that_of_the_run_as_it_was(view: Any) -> None:
    def grown(turns: int) -> Run:
        return Run("r", events=[event for n in range(1, turns + 1) for event in turn(n, quality=0.5)])

    with view(grown(2)) as short, view(grown(5), until=2) as pinned:
        pinned.run.append(given("t1", 0))

        assert pinned.to_html() == short.to_html()
        assert pinned.snapshot == short.snapshot


def test_a_reading_is_given_the_places_of_all_events_also_of_those_it_does_not_see() -> None:
    reading = Events()
    feed = Feed(reading, Moment(thread_id="t1"))

    for event in (given("t2", 1), called(), called("judge"), called(), given("t1", 1)):
        feed.take(event)

    assert [place for _, place in reading.taken] == [Place(1, 0), Place(2), Place(3, 1), Place(4)]


def test_a_turn_is_drawn_alone_and_read_with_those_before_it() -> None:
    moment = Moment(turn=2)

    assert [moment.reaches(given("t1", number)) for number in (0, 1, 2, 3)] == [True, True, True, False]
    assert [moment.shows(Where("t1", "e1", number)) for number in (0, 1, 2, 3)] == [False, False, True, False]


def test_a_choice_reaches_every_view_that_shares_it_and_pages_that_open_later(sent: list[dict[str, Any]]) -> None:
    selection = Selection()
    with RunView(Run(), Events(), selection=selection) as one, RunView(Run(), Events(), selection=selection) as other:
        page_says(one, {"type": "select", "id": "p-1", "call": 3, "thread_id": "t1"})
        assert PAGES.wait()

        fields = {"thread_id": "t1", "turn": None, "call": 3, "item": None, "decision": None}
        assert selection.fields == one.snapshot["selection"] == other.snapshot["selection"] == fields
        assert [(m["type"], m["id"], m["fields"]) for m in sent] == [
            ("selected", "p-1", fields),
            ("selected", None, fields),
        ]


def test_what_a_page_cannot_choose_changes_nothing_and_is_answered(sent: list[dict[str, Any]]) -> None:
    with RunView(Run(), Events()) as view:
        view.selection.select(turn=2)
        for bad in ({"call": -1}, {"turn": True}, {"item": "3"}, {"thread_id": 5}):
            page_says(view, {"type": "select", "id": "p-1", **bad})
        assert PAGES.wait()

        assert view.selection.turn == 2
        assert [message["fields"]["turn"] for message in sent] == [2] * 5


def test_a_question_of_a_page_is_answered_with_data_or_with_what_is_wrong(sent: list[dict[str, Any]]) -> None:
    with RunView(demo_run(), Events()) as view:
        for number, what in enumerate(("rows", "nothing", "a fault")):
            page_says(view, {"type": "get", "id": number, "request": {"what": what}})
        assert PAGES.wait()

    assert [(message["type"], message["id"]) for message in sent] == [("got", 0), ("got", 1), ("got", 2)]
    assert sent[0]["data"] == ["rows", len(demo_run().events)]
    assert "UNKNOWN_REQUEST" in sent[1]["fault"]
    assert "not today" in sent[2]["fault"]


def test_of_a_picture_that_a_page_has_only_what_is_new_is_sent(sent: list[dict[str, Any]]) -> None:
    run, pictures = Run(), dict[str, Any]()
    with TokenAllocation(run) as view:
        for number in range(1, 31):
            for event in turn(number):
                run.append(event)
            request = {"what": "picture", "first": 0, "last": number - 1}
            # Two pages take turns; one refers to an answer that is no longer stored.
            since = {1: None, 2: None, 20: "page-1"}.get(number, f"page-{number - 2}")
            page_says(view, {"type": "get", "id": f"page-{number}", "request": request, "since": since})
            assert PAGES.wait()
            answer = next(message for message in sent if message.get("id") == f"page-{number}")
            known = pictures[f"page-{number}"] = json.loads(json.dumps(view.reading.picture(range(number))))
            if number in (1, 2, 20):
                assert answer["data"] == known
            else:
                assert answer["changed"] == changes(pictures[since], known)
                assert len(json.dumps(answer)) < 2_500 < len(json.dumps(known))


def test_an_agent_does_not_wait_for_an_answer_and_nothing_is_lost() -> None:
    run, reading = Run(), Events()
    began, go_on = threading.Event(), threading.Event()

    def slow(request: dict[str, Any]) -> Any:
        began.set()
        assert go_on.wait(30)
        return reading.snapshot["taken"]

    reading.answer = slow  # type: ignore[method-assign]
    with RunView(run, reading) as view:
        page_says(view, {"type": "get", "id": 1, "request": {}})
        assert began.wait(30)

        for number in (1, 2, 3):
            run.append(given("t1", number))
        assert reading.snapshot["taken"] == 0

        go_on.set()
        assert PAGES.wait()
        assert [event.where.turn for event, _ in reading.taken] == [1, 2, 3]


def test_events_that_come_while_a_view_is_made_are_taken_once() -> None:
    class Late(Run):
        """A run that another thread appends to while a view reads it."""

        left = 2

        @property
        def events(self) -> Any:
            if self.left and self._listeners:
                self.left -= 1
                other = threading.Thread(target=self.append, args=(given("t1", 7),))
                other.start()
                other.join(30)
            return super().events

    run, reading = Late(events=[given("t1", 1)]), Events()
    with RunView(run, reading):
        run.append(given("t1", 9))

    assert [place.seq for _, place in reading.taken] == list(range(len(run.events)))
    assert [event for event, _ in reading.taken] == list(run.events)


def test_messages_of_all_pages_are_handled_by_one_thread_in_their_order() -> None:
    pages, done = PageThread(), []
    gate = threading.Event()
    pages.do(gate.wait, 30)

    def send(names: range) -> None:
        for name in names:
            pages.do(lambda name=name: done.append((name, threading.get_ident())))

    senders = [threading.Thread(target=send, args=(range(n * 100, n * 100 + 100),)) for n in range(4)]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    gate.set()

    assert pages.wait()
    assert {thread for _, thread in done} != {threading.get_ident()}
    assert len({thread for _, thread in done}) == 1
    for n in range(4):
        assert [name for name, _ in done if name // 100 == n] == list(range(n * 100, n * 100 + 100))


def test_the_thread_ends_when_it_is_idle_and_comes_back() -> None:
    pages, done = PageThread(idle_s=0.0), []
    for _ in range(3):
        pages.do(done.append, threading.active_count)
        thread = pages._thread
        if thread is not None:
            thread.join(30)
        assert pages._thread is None

    assert len(done) == 3


def test_without_threads_messages_are_handled_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pages, done = PageThread(), []

    pages.do(done.append, 1)

    assert done == [1]


def test_a_failing_message_is_logged_and_the_next_is_handled(caplog: pytest.LogCaptureFixture) -> None:
    pages, done = PageThread(), []
    pages.do(lambda: 1 / 0)
    pages.do(done.append, 1)

    assert pages.wait()
    assert done == [1]
    assert "A message of a page failed" in caplog.text


def test_neither_run_nor_selection_keeps_an_object_alive_that_only_listens() -> None:
    class Listener:
        def heard(self, news: Any) -> None:
            raise AssertionError(news)

    run, selection, listener = Run(), Selection(), Listener()
    subscribe_weakly(run.subscribe, listener.heard)
    subscribe_weakly(selection.observe, listener.heard)
    gone = weakref.ref(listener)
    del listener
    gc.collect()

    run.append(given("t1", 1))
    selection.select(turn=1)

    assert gone() is None
    assert (watching(run), selection._observers) == (0, [])


@pytest.mark.parametrize("view", RUN_VIEWS)
def test_a_thread_or_a_turn_that_is_not_there_is_named(view: Any) -> None:
    run = demo_run()
    name = run.threads[0]
    last = max(event.where.turn for event in run.events if event.where.thread_id == name)
    for pinned, words in (
        ({"thread_id": f"{name}x"}, f"There is no thread '{name}x' yet. Did you mean '{name}'?"),
        ({"thread_id": name, "turn": 99}, f"There is no turn 99 yet. The last one is {last}."),
    ):
        with view(run, **pinned) as opened:
            assert words in opened.to_text()
            assert words in html.unescape(opened.to_html())


def test_nothing_is_missing_while_nothing_has_happened() -> None:
    moment = Moment("ann", turn=3)

    assert moment.missing([], {}) == ""
    assert moment.missing(["ann"], {"ann": 0}) == ""
    assert "and 3 more" in moment.missing([f"thread {number}" for number in range(13)], {})
