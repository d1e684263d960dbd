"""The base class of all live views: follows a run, sends changes, answers pages, and leaves a static form behind.

Events are read shortly after they happen, without delaying the agent; any access to a view's data reads pending events first.

A view has one synced `snapshot` that grows in place, so the kernel never sends it twice, while each event travels as a small
message. A page that opens later gets the snapshot. A page that missed a message requests it again, and any data outside it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from math import inf
from typing import Any, ClassVar, Final

import anywidget
import traitlets

from noetic_nb._core.worker_threads import thread_time
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import RunEvent, TurnCompleted
from noetic_nb.redact import safe_logger
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain, sendable
from noetic_nb.runs._run import known_events, said_of
from noetic_nb.runs._run_source import run_of
from noetic_nb.widgets.base._assets import once_a_page, script, static_frame, style
from noetic_nb.widgets.base._display import FILES, DisplayMixin, FilesMixin, enter_cell
from noetic_nb.widgets.base._feed import Feed, Reading, changes
from noetic_nb.widgets.base._host import HostedMixin, enclosing_host
from noetic_nb.widgets.base._page_thread import connect_weakly, subscribe_weakly
from noetic_nb.widgets.base._reading_thread import BACKLOG, READINGS, Follower, follower_of, has_time, watch_cells
from noetic_nb.widgets.base._selection import EVERYTHING, FIELDS, Moment, Selection, selection_of, sendable_fields

log = safe_logger(__name__)

# At most this many concurrently appended events are already in the run but not passed on yet.
_ON_THE_WAY: Final = 100
# How long the reading thread waits for one that answers a page, before it turns to other views.
_BUSY_S: Final = 0.02


def _threads_of(events: Sequence[RunEvent]) -> tuple[list[str], dict[str, int]]:
    """Return the threads of some events in order, and the last turn of each."""
    last: dict[str, int] = {}
    for event in events:
        where = event.where
        if where.thread_id:
            last[where.thread_id] = max(last.get(where.thread_id, 0), where.turn)
    return list(last), last


class _UpToDate(traitlets.Dict):
    """A snapshot that reads pending events on access."""

    def get(self, obj: Any, cls: Any = None) -> Any:
        """Return the snapshot, up to date."""
        obj.look()
        return super().get(obj, cls)


class RunView(DisplayMixin, FilesMixin, HostedMixin, anywidget.AnyWidget):
    """Base class of views of a run.

    Parameters
    ----------
    source : Run or object with a ``run``
        The run to show; a growing run is followed.
    reading : Reading
        The data that the view reads from it.
    moment : Moment, optional
        The part of the run to show; all of it by default.
    selection : Selection, optional
        The selection shared with other views; a new one by default.
    **traits
        Initial values of the view's traits.
    """

    snapshot = _UpToDate().tag(sync=True)
    # The number of messages already in the snapshot; also updated in place.
    sent = traitlets.Dict().tag(sync=True)
    fault = traitlets.Unicode("").tag(sync=True)
    static_name = traitlets.Unicode("").tag(sync=True)

    table: ClassVar[str] = ""
    """The table of the run that the view shows; a view without one defines its own `to_frame`."""

    scripts: ClassVar[tuple[str, ...]] = ()
    """Its script files without suffix; the last one has the ``export`` and a style sheet of the same name."""

    # Defaults on the class: a widget whose `__init__` failed is closed like any other when it is collected.
    _unsubscribe: tuple[Callable[[], object], ...] = ()
    _followers: tuple[Follower, ...] = ()
    is_awake = False
    _is_following = True
    _tells_when_drawn = True
    _is_made = False
    _is_reading = False
    _has_page = False
    """Whether a page shows this view, or has shown it."""
    _known = ""
    _last_read: RunEvent | None = None
    """The newest event at the time when the view was created."""

    def __init__(
        self,
        source: Any,
        reading: Reading,
        *,
        moment: Moment = EVERYTHING,
        selection: Selection | None = None,
        **traits: Any,
    ) -> None:
        self.run = run_of(source)
        self.moment = moment
        self.selection = selection_of(selection)
        self.reading = reading
        self._feed = Feed(reading, self.moment)
        # Handle events, questions and pictures one at a time; a host and its views in one order, so under one lock.
        host = enclosing_host()
        self._reading_lock = threading.RLock() if host is None else host._reading_lock
        self._unread: deque[RunEvent] = deque()
        self._asked_by: Any = None
        # The last two answers by question id; two, because another page may show this view as well.
        self._answers: dict[Any, Any] = {}
        reading.snapshot["selection"] = sendable_fields(self.selection.fields)
        with self._reading_lock:
            # Subscribe first, so that no event is lost; events that arrive while the widget is created are stored.
            if host is None:  # otherwise its host passes events and selections
                self._unsubscribe = (
                    self._follow(self.run, self.take),
                    subscribe_weakly(self.selection.observe, self._selected),
                )
            events = self._feed.read(self.run)
            self._last_read = events[-1] if events else None
            if events and not reading.has_any and not getattr(self.run, "is_recording", False):
                part = (
                    "this recording"
                    if moment.thread_id is None and moment.turn is None
                    else "this part of the recording"
                )
                nothing = reading.nothing.format(part=part)
                reading.snapshot["empty"] = nothing[:1].upper() + nothing[1:]
            if events and moment != EVERYTHING and (missing := moment.missing(*_threads_of(events))):
                reading.snapshot["empty"] = missing
            self._known = self._known_part(events)
            if self._known:
                reading.snapshot["known"] = self._known
            reading.snapshot["files"] = self._file_kinds
            self._begin()
            # The dict itself, not a copy: traitlets does not notice in-place changes, so it is not sent again.
            super().__init__(snapshot=reading.snapshot, sent={"messages": 0}, static_name=self.static_id, **traits)
            # Stored events may already have been read; usually there are none, and only the newest may still arrive.
            self._already = {id(event): event for event in (events if self._unread else events[-_ON_THE_WAY:])}
        if self.host is None:
            connect_weakly(self)
            enter_cell(self)
            watch_cells()
        self.on_msg(self._message_received)
        self._is_made = True

    def __init_subclass__(cls, **options: Any) -> None:
        """Load script and style sheet of a view with `scripts`, unless it defines its own."""
        if "scripts" in vars(cls) and "_esm" not in vars(cls):
            cls._css = style(*cls.scripts)
            cls._esm = once_a_page(script(*cls.scripts), cls._css, cls.scripts[-1])
        super().__init_subclass__(**options)

    def add_traits(self, **traits: Any) -> None:
        """Add traits for script and style sheet; drops a sheet that the script already contains."""
        if self.scripts:
            traits.pop("_css", None)
        super().add_traits(**traits)

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the synced traits, including those with default values: a page of saved widgets does not know our defaults."""
        state: dict[str, Any] = super().get_state(key=key, drop_defaults=False)
        return state

    def _begin(self) -> None:
        """Create the snapshot of the events read so far."""
        self.reading.begin()

    def _known_part(self, events: Sequence[RunEvent]) -> str:
        """Return how far a replayed run is known, and how much of it; empty for other runs."""
        points = getattr(self.run, "known_until", {})
        if not points:
            return ""
        said = said_of(points) if enclosing_host() is None else ""  # a host shows it once for all its panels
        kind, name = self.reading.counted or ("", "")
        shown = [event for event in events if event.kind == kind and self.moment.shows(event.where)]
        if not shown:
            return said
        known = {id(event) for event in known_events(events, points)}
        return f"{said} {sum([id(event) in known for event in shown])} of {len(shown)} {name} are known.".lstrip()

    def to_frame(self) -> Any:
        """Return the content of the view as a table.

        Returns
        -------
        pandas.DataFrame
            A new frame: the rows of the run's table within the moment.
        """
        return self.moment.rows(self.run.to_frame(self.table))

    def to_html(self) -> str:
        """Return the view as HTML without scripts, for a page without kernel and network."""
        with self.up_to_date():
            known = f'<p class="nn-note">{escape(self._known)}</p>' if self._known else ""
            return static_frame(known + self.form(), self._css, "".join(self.scripts[-1:]))

    def to_text(self) -> str:
        """Return the view as plain text."""
        with self.up_to_date():
            return "\n".join([self.reading.to_text(), *([self._known] if self._known else [])])

    def send(self, content: dict[str, Any], buffers: Any = None) -> None:
        """Send a message to the page; messages that a page must not miss are counted."""
        if content.get("type") not in ("got", "all"):
            self.sent["messages"] += 1
        super().send(content, buffers)

    # Following a run

    def _follow(self, run: Any, take: Callable[[RunEvent], None]) -> Callable[[], object]:
        follower = follower_of(run)
        self._followers = (*self._followers, follower)
        return follower.join(self, take)

    def take(self, event: RunEvent) -> None:
        """Store an event to read later."""
        self._unread.append(event)

    def catch_up(self) -> None:
        """Read all pending events now."""
        if self._is_made:
            with self._caught_up():
                pass

    def look(self) -> None:
        """Catch up, unless another thread is busy: the caller does not wait for an answer to a page."""
        if self._is_made and self._reading_lock.acquire(blocking=self._is_reading):
            try:
                with self.up_to_date():
                    pass
            finally:
                self._reading_lock.release()

    @contextmanager
    def up_to_date(self) -> Iterator[None]:
        """Read all events so far, and complete the snapshot; inside the block nothing is read, and new events wait."""
        with self._caught_up():
            self._complete()
            yield

    def _complete(self) -> None:
        """Bring the snapshot up to date, which a backlog leaves to the first page that needs it."""
        if not self.reading.is_followed and self._is_following and not self._is_reading:
            try:
                self.reading.begin()
            except Exception as exc:
                self._fail(exc)

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        if self.host is not None:  # its stored events wait with the host
            self.host.catch_up()
        try:
            with self._reading_lock:
                if not self._is_reading:  # otherwise the picture being drawn asks for its own data
                    for follower in self._followers:
                        follower.hand_out()
                    self.read_some(inf)
                yield
        finally:
            # Other threads have left pending events to this one.
            if self._unread and not self._is_reading and not self.is_awake:
                READINGS.wake(self)

    def read_some(self, until: float) -> bool:
        """Read until nothing is left or `thread_time` exceeds `until`; returns whether nothing is left.

        If another thread holds the view, for example to answer a page, reading is retried later; with `until` infinite,
        the events are left to that thread, because an agent never waits for a view.
        """
        while self._unread and self._is_made:
            if not (self._reading_lock.acquire(timeout=_BUSY_S) if until < inf else self._reading_lock.acquire(False)):
                return until == inf
            try:
                if self._is_reading:
                    return True
                self._is_reading = True
                try:
                    if not self._read_until(until):
                        return False
                finally:
                    self._is_reading = False
            finally:
                self._reading_lock.release()
        return True

    def _read_until(self, until: float) -> bool:
        turns = 0
        try:
            if len(self._unread) > BACKLOG and has_time(until):
                events = [self._unread.popleft() for _ in range(len(self._unread))]
                self._read_backlog([event for event in events if id(event) not in self._already])
                self._already, turns = {}, 1
            while self._unread:
                event = self._unread.popleft()
                if self._already:
                    if id(event) in self._already:
                        continue
                    self._already = {}
                self._read_event(event)
                turns += isinstance(event, TurnCompleted)
                if until is not inf and thread_time() >= until:
                    return not self._unread
            return True
        finally:
            if self.host is None:
                self._tell()
            # Not at every event: the static form is a whole page, meant for later readers.
            if turns and self._is_following:
                self.refresh_static()

    def _read_event(self, event: RunEvent) -> None:
        if not self._is_following:
            return
        try:
            news = self._feed.take(event)
            if news is not None:
                self.send(news)
        except Exception as exc:
            self._fail(exc)

    def _tell(self) -> None:
        """Send the message about everything that was just read."""
        if not self._is_following:
            return
        try:
            news = self.reading.growth()
            if news is not None:
                self.send(news)
        except Exception as exc:
            self._fail(exc)

    def _read_backlog(self, events: Sequence[RunEvent]) -> None:
        """Read many events in bulk: a page gets no single messages, but one complete snapshot at the end.

        It need not ask for it: a kernel without subshells answers only when its cell has ended.
        """
        if not self._is_following:
            return
        self.reading.is_followed = False
        try:
            self._feed.take_all(events)
            if self._has_page:
                self.reading.begin()
                self._send_all()
        except Exception as exc:
            self._fail(exc)

    def _send_all(self) -> None:
        self.send({"type": "all", "snapshot": self.reading.snapshot})

    def _fail(self, exc: Exception) -> None:
        # A failing view must not stop the agent: it reports the fault and stops itself.
        log.exception("A view of a run failed and no longer follows it.")
        self._stop_following()
        self.fault = f"This view stopped following the run: {type(exc).__name__}: {plain(exc, TEXT_LENGTH)}"

    def _message_received(self, _widget: Any, content: Any, _buffers: Any) -> None:
        self._has_page = True
        match content:
            # Messages sent while a page still loads its script are lost.
            case {"type": "here", "messages": int(sent)} if sent == self.sent["messages"] and self.reading.is_followed:
                pass
            case {"type": "drawn"}:
                self.drawn()
            case {"type": "again" | "here"}:  # the page noticed a missed message, or did miss one
                with self.up_to_date():
                    self._send_all()
            case {"type": "get", "id": asked, "request": dict(request)}:
                answer = self._answer(request)
                if "since" in content and "data" in answer:  # for a picture that a page requests repeatedly
                    before = self._answers.get(content["since"])
                    self._answers = {**dict([*self._answers.items()][-1:]), asked: answer["data"]}
                    answer = answer if before is None else {"changed": changes(before, answer["data"])}
                self.send({"type": "got", "id": asked, **answer})
            case {"type": "select", "id": asked}:
                self._select(asked, {name: content.get(name) for name in FIELDS})
            case {"type": "fault", "text": str(text)}:
                log.error("A view failed in its page: %s", plain(text, TEXT_LENGTH))
            case _:
                log.warning("A page sent an unknown message: %.200r", content)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            with self.up_to_date():
                match request:
                    case {"what": "file", "kind": str(kind)} if kind in FILES:
                        return {"data": self._file(kind)}
                return {"data": self.reading.answer(request)}
        except (NoeticConfigError, NoeticError) as exc:
            return {"fault": plain(exc, TEXT_LENGTH)}
        except Exception as exc:
            log.exception("A view could not answer its page.")
            return {"fault": f"{type(exc).__name__}: {plain(exc, TEXT_LENGTH)}"}

    def _select(self, asked: Any, fields: dict[str, Any]) -> None:
        self._asked_by = asked
        given = fields["thread_id"]
        known = getattr(self.run, "threads", ())
        if isinstance(given, str) and given not in known:
            fields["thread_id"] = next((name for name in known if sendable(name) == given), given)
        try:
            self.selection.select(**fields)
        except NoeticConfigError:
            log.exception("A page chose something that cannot be.")
            self._selected(self.selection.fields)
        finally:
            self._asked_by = None

    def _selected(self, fields: dict[str, Any]) -> None:
        try:
            with self.up_to_date():
                self.reading.snapshot["selection"] = sent = sendable_fields(fields)
                # The id tells the page which of its selections this is.
                self.send({"type": "selected", "id": self._asked_by, "fields": sent})
                news = self.reading.selected(fields)
                if news is not None:
                    self.send(news)
        except Exception as exc:
            self._fail(exc)

    def _stop_following(self) -> None:
        self._is_following = False
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = ()
        self._followers = ()

    def __del__(self) -> None:
        """Close without reading: garbage collection may do this in a thread that holds the lock of the run."""
        self._is_made, self._unsubscribe = False, ()
        super().__del__()

    def _release(self) -> bool:
        self.catch_up()  # the final static form includes all events
        self._stop_following()
        return self.release_widget(self)
