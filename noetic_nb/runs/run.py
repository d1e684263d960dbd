"""A run: everything that happened, in order, as data that grows.

Tables, plots and widgets read a `Run` and nothing else, so they cannot tell a live run from a loaded or replayed one. An
event's number (``seq``) is its position; events are never changed. Only a recorded run that has grown beyond its bound drops
its oldest turns, whole, and says which.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import compress
from os import PathLike
from pathlib import Path
from sys import maxsize
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from noetic_nb.cards import Card, with_card
from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ItemsAppended, RunEvent, ToolCalled, TurnCompleted
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items import Item
from noetic_nb.items.kept_data import plain_data
from noetic_nb.late_events import Row, event_of, place_of
from noetic_nb.redact import safe_logger
from noetic_nb.runs.event_codec import EVENT_TYPES, PLAIN_TYPES, SCHEMA_VERSION, settled
from noetic_nb.runs.kept_events import Events, Keeper
from noetic_nb.runs.numbering import Numbering, Numbers
from noetic_nb.runs.plain_text import plain
from noetic_nb.runs.save import save_events
from noetic_nb.runs.tables import Recorded, frame
from noetic_nb.runs.turns import TurnBook, TurnSummary, turns_card
from noetic_nb.runs.unread_events import LEAST_PARTS, UnreadEvents, whole

if TYPE_CHECKING:
    import pandas

    from noetic_nb.items.messages import MessageFormat
    from noetic_nb.models.pricing import Price
    from noetic_nb.models.prompt_caching import CacheRules
    from noetic_nb.tokens import Tokenizer

__all__ = ["Events", "Run"]

Listener: TypeAlias = Callable[[RunEvent], None]

_LOG: Final = safe_logger("noetic_nb.runs")


@cache
def _library_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("noetic_nb")
    except PackageNotFoundError:  # used from a source tree that was never installed
        return "source"


_EMPTY_BUNDLE: Final[Mapping[str, Any]] = {"config": None, "rules": None, "sources": {}, "notes": ""}


class _Follower:
    """What is woken when an event has come that is the first since events were made, and takes events when they are."""

    __slots__ = ("take", "wake")

    def __init__(self, wake: Callable[[], object], take: Callable[[list[RunEvent]], object]) -> None:
        self.wake, self.take = wake, take


@with_card(shown="as HTML")
class Run:
    """Everything that happened, as data.

    Parameters
    ----------
    run_id : str, optional
        Its name; a fresh one by default.
    meta : mapping, optional
        JSON data about the run, added to what every run has: ``schema_version``, ``library_version``,
        ``created_ms``, ``source`` (``"recorded"``, ``"file"``, ``"replay"``, a data set's name), ``config`` and ``models``.
    events : iterable of RunEvent, optional
        What it begins with.
    clock : Clock, optional
        Source of ``created_ms``.
    ids : Ids, optional
        Source of the name.

    Examples
    --------
    >>> from noetic_nb.events import QualityGiven, Where
    >>> run = Run("demo")
    >>> run.append(QualityGiven(Where("t1", "e1", 1), 5.0, 0.25, "grader"))
    0
    >>> run, run.turns[0].qualities
    (<Run 'demo': 1 event, 1 turn, 1 thread>, (0.25,))
    """

    __hash__ = None  # type: ignore[assignment]  # equal by content, and it grows

    def __init__(
        self,
        run_id: str | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        events: Iterable[RunEvent] = (),
        clock: Clock = SYSTEM_CLOCK,
        ids: Ids = SYSTEM_IDS,
    ) -> None:
        self.run_id: str = ids.new("run") if run_id is None else run_id
        # Plain JSON data from the start, so that a loaded run equals the saved one and shares nothing with the caller.
        given = plain_data(meta or {})
        own = {"schema_version": SCHEMA_VERSION, "source": "recorded", "config": None, "models": None}
        if "created_ms" not in given:
            own["created_ms"] = clock.now_ms()
        if "library_version" not in given:
            own["library_version"] = _library_version()
        self.meta: dict[str, Any] = own | given
        # At once, as nobody listens yet.
        self._read: list[RunEvent] = [settled(event) for event in events]
        # What came since somebody read, in order: events, and rows of events that nobody has made yet.
        self._unread = UnreadEvents()
        self._parts: Final = self._unread.parts
        self._keeper: Keeper | None = None
        # Whether those who follow are to be told of the next event. With so many parts of unread ones there is more to do than
        # to add an event, and with so many there may be as many as its keeper looks at.
        self._is_armed = True
        self._look_at = self._full_at = maxsize
        self._listen([])
        self._attached: list[tuple[object, Callable[[], None]]] = []
        # Reentrant, because a listener may read the run it listens to.
        self._lock = threading.RLock()
        self._book = TurnBook()
        self._numbers: Numbering | None = None
        self._config: object = None
        self._bundle: dict[str, Any] | None = None

    @classmethod
    def of_settled(cls, run_id: str | None, meta: Mapping[str, Any], events: list[RunEvent]) -> Run:
        """Return a run of events whose free data can change no more: for makers of runs that freeze it themselves."""
        run = cls(run_id, meta=meta)
        run._read = events
        return run

    @property
    def _events(self) -> list[RunEvent]:
        """All events; those that are rows still are made."""
        if self._unread:
            self.make_events()
        return self._read

    def make_events(self, most: int | None = None) -> bool:
        """Make events of rows, of the oldest that nobody has read and so many at most; returns whether none is left."""
        with self._lock:
            # First: of what comes from here on, those who follow are told.
            self._is_armed = True
            self._expect()
            made = self._unread.take(most)
            self._read += made
            for follower in self._followers:
                follower.take(made)
            self._expect()
            return not self._unread

    def _expect(self) -> None:
        """Take note of when something is to be done but to add an event."""
        keeper = self._keeper
        if keeper is not None:
            place, count = self._unread.counted
            self._full_at = place + LEAST_PARTS * (keeper.look_at - len(self._read) - count)
        if self._is_armed and self._followers:
            self._look_at = 0
        elif keeper is None:
            self._look_at = maxsize
        else:
            self._look_at = self._full_at if keeper.has_room else 0

    def parts(self, start: int) -> tuple[Sequence[Any], int]:
        """Return what it has from an event on, as it is held: a list and a place in it, from which on there is nothing else.

        There are events, and parts of rows where nobody has read. It is for who holds the lock of the run, as a keeper does.
        """
        count = len(self._read)
        return (
            (self._parts, self._unread.place_of(start - count))
            if start >= count
            else ([*self._read[start:], *self._parts[self._unread.place_of(0) :]], 0)
        )

    def held(self, start: int) -> list[RunEvent | Row]:
        """Return what it has from an event on: rows where nobody has read."""
        with self._lock:
            return whole(*self.parts(start))

    # Growing

    def append(self, event: RunEvent) -> int:
        """Add an event and call the listeners with it.

        Parameters
        ----------
        event : RunEvent
            Any event; its free data (arguments, states, decisions) is frozen, so that later changes do not reach the run.

        Returns
        -------
        int
            Its ``seq``: the position in the run.

        Raises
        ------
        NoeticConfigError
            ``INVALID_RUN_EVENT`` if it is not an event.
        """
        kind = type(event)
        if kind not in PLAIN_TYPES:
            event = settled(event)
        with self._lock:
            count = len(self._read) + self._unread.add(event) + 1
            keeper = self._keeper
            # What happens in the middle of a turn is looked at when it ends: it is to be recorded quickly.
            if keeper is not None and (
                count >= keeper.look_at
                or (not keeper.has_room and (kind is TurnCompleted or place_of(event.where) != keeper.middle))
            ):
                self._keep(keeper.take())
                count = len(self._read) + self._unread.count()
            told, followers = self._told, self._to_wake()
            self._expect()
        # Called outside the lock: a listener may wait for a thread that appends.
        for listener in told:
            try:
                listener(event)
            except Exception:
                # What watches a run must not break it, and a broken watcher must not fail again at every event.
                _LOG.exception("A listener of %r failed and was removed; the run goes on.", self)
                self._forget(listener)
        for follower in followers:
            follower.wake()
        return count - 1

    def note_row(self, row: Row) -> None:
        """Add an event that is made when somebody reads it; who listens is one who reads. Raises nothing."""
        try:
            if self._told:
                self.append(event_of(row))
                return
            # Without the lock: the list is always the same, and under it only what stands in front is taken off.
            parts = self._parts
            parts.extend(row)
            if len(parts) < self._look_at:  # nearly always
                return
            keeper = self._keeper
            if keeper is not None and (
                len(parts) >= self._full_at or (not keeper.has_room and row[1] != keeper.middle)
            ):
                with self._lock:
                    count = len(self._read) + self._unread.count()
                    if count >= keeper.look_at or (not keeper.has_room and row[1] != keeper.middle):
                        self._keep(keeper.take())
                    self._expect()
            if self._is_armed and self._followers:
                with self._lock:
                    followers = self._to_wake()
                    self._expect()
                for follower in followers:
                    follower.wake()
        except Exception:
            _LOG.exception("An event was not recorded; %r goes on without it.", self.run_id)

    def _to_wake(self) -> Sequence[_Follower]:
        """Return those who are to be told of an event that has come: nobody, where they know that there is news."""
        if not self._is_armed:
            return ()
        self._is_armed = False
        return self._followers

    def extend(self, events: Iterable[RunEvent]) -> None:
        """Add events in their order, each as `append` does.

        Raises
        ------
        NoeticConfigError
            ``INVALID_RUN_EVENT`` if one is not an event; then none is added.
        """
        made = [event if type(event) in PLAIN_TYPES else settled(event) for event in events]
        with self._lock:
            if self._keeper is None and not self._listeners:  # nobody looks at one after the other
                self._parts.extend(made)
                return
        for event in made:
            self.append(event)

    def _keep(self, stays: Sequence[bool] | None) -> None:
        """Keep the events that stay, None for all; a new list, so that whoever iterates over the old one loses nothing."""
        self._unread.mark()  # which its keeper goes on from
        if stays is not None:
            if self._followers:
                self.make_events()  # who follows has what goes
            if self._numbers is None:
                self._numbers = Numbering(())
            self._number()
            self._numbers.keep(stays)
            # Rows stay rows; what has come meanwhile stays.
            count = len(self._read)
            self._unread.keep(stays[count:])
            self._read = list(compress(self._read, stays))
            self._book = TurnBook()

    def _number(self) -> Numbering | None:
        """Give numbers to the events that have none yet, where events have numbers."""
        if self._numbers is not None:
            with self._lock:
                self._numbers.add(self.held(len(self._numbers.seqs)))
        return self._numbers

    @property
    def numbers(self) -> Numbering | None:
        """The numbers that the events had when they were added; None while no turns were dropped: then they are their places."""
        return self._number()

    def numbered(self) -> tuple[list[RunEvent], Numbers | None]:
        """Return the events so far with their numbers, as of one moment; None for numbers that are places."""
        with self._lock:
            events, numbers = list(self._events), self._number()
            if numbers is None:
                return events, None
            return events, (tuple(numbers.seqs[: len(events)]), tuple(numbers.calls[: len(events)]))

    @property
    def keeper(self) -> Keeper | None:
        """What decides what is kept, and where; None keeps everything in memory."""
        return self._keeper

    def keep_with(self, keeper: Keeper) -> None:
        """Let something else decide what is kept from now on, and where."""
        with self._lock:
            self._keeper = keeper
            self._keep(keeper.begin(self._events))
            self._expect()

    def follow(self, wake: Callable[[], object], take: Callable[[list[RunEvent]], object]) -> Callable[[], object]:
        """Have events made later than they come.

        Parameters
        ----------
        wake : callable
            Is called when an event has come, in the thread that adds it: once, until events are made again.
        take : callable
            Takes the events that have come, in order, when somebody reads the run; it must return at once and not raise.

        Returns
        -------
        callable
            Ends this; calling it again changes nothing.
        """
        follower = _Follower(wake, take)
        with self._lock:
            self.make_events()  # what came before is not for this one
            self._listen([*self._listeners, follower])
        return lambda: self._forget(follower)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event to come, in the thread that appends it.

        Parameters
        ----------
        listener : callable
            Takes the event. If it raises, the error is logged and the listener removed.

        Returns
        -------
        callable
            Ends the subscription; calling it again changes nothing.
        """

        def relay(event: RunEvent) -> None:  # one per subscription: the same function may subscribe twice
            listener(event)

        with self._lock:
            self._listen([*self._listeners, relay])
        return lambda: self._forget(relay)

    def _forget(self, listener: Listener | _Follower) -> None:
        with self._lock:
            self._listen([each for each in self._listeners if each != listener])

    def _listen(self, listeners: Sequence[Listener | _Follower]) -> None:
        # New lists with every change, so that they can be gone through meanwhile.
        self._listeners = list(listeners)
        self._followers = [each for each in listeners if isinstance(each, _Follower)]
        self._told = [each for each in listeners if not isinstance(each, _Follower)]
        self._expect()

    def attach(self, source: object, connect: Callable[[], Callable[[], None]]) -> bool:
        """Connect a source of events once; a source that is connected already is left as it is.

        Parameters
        ----------
        source : object
            What emits, by identity.
        connect : callable
            Starts the stream and returns what ends it.

        Returns
        -------
        bool
            Whether it was connected now.
        """
        with self._lock:
            if any(known is source for known, _ in self._attached):
                return False
            self._attached.append((source, connect()))
            return True

    def stop_recording(self) -> None:
        """Detach every source and close the file of `autosave`; what was recorded stays. May be repeated."""
        with self._lock:
            attached, self._attached = self._attached, []
        for _, disconnect in attached:
            disconnect()
        if self._keeper is not None:
            with self._lock:
                self._keeper.close()

    # Reading

    @property
    def events(self) -> Events:
        """Every event so far, oldest first; an event's place is its ``seq``."""
        return Events(lambda: self._events)  # a view, not a copy: a run is read at every event

    def select(self, *event_types: type[Any]) -> tuple[Any, ...]:
        """Return the events of some types, in order; all of them without an argument.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_EVENT_TYPE`` for a type that is no event.
        """
        unknown = [kind for kind in event_types if kind not in EVENT_TYPES]
        if unknown:
            raise NoeticConfigError(
                "UNKNOWN_EVENT_TYPE",
                "Only event types can be selected.",
                given=unknown,
                hint=f"Use {', '.join(kind.__name__ for kind in EVENT_TYPES)} from noetic_nb.events.",
            )
        return tuple([event for event in self._events if not event_types or isinstance(event, event_types)])

    @property
    def turns(self) -> tuple[TurnSummary, ...]:
        """Every turn in short, in the order they began; the last may still be running."""
        with self._lock:
            return self._book.read(self._events)

    @property
    def threads(self) -> tuple[str, ...]:
        """Every thread that has an event, in order of first appearance; an edited rule belongs to none."""
        return tuple(dict.fromkeys([event.where.thread_id for event in self._events if event.where.thread_id]))

    def log(self, thread_id: str) -> list[Item]:
        """Return the items of a thread, rebuilt from what was appended; positions are those the events refer to.

        Parameters
        ----------
        thread_id : str
            One of `threads`. Of a thread's executions the outermost recorded ones count.

        Returns
        -------
        list of Item
            A new list.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_THREAD`` if the run has no such thread.
        NoeticError
            ``tape_missing`` if recording began after items had been appended.
        """
        if thread_id not in self.threads:
            raise NoeticConfigError(
                "UNKNOWN_THREAD",
                "The run has no such thread.",
                given=thread_id,
                hint=f"It has {', '.join(map(repr, self.threads)) or 'none yet'}.",
            )
        appended = [event for event in self.select(ItemsAppended) if event.where.thread_id == thread_id]
        depth = min((event.where.depth for event in appended), default=0)
        items: list[Item] = []
        for event in appended:
            if event.where.depth > depth:  # a child's log of its own
                continue
            if event.start > len(items):
                raise NoeticError(
                    "tape_missing",
                    f"Items {len(items)} to {event.start - 1} of thread {thread_id!r} were not recorded.",
                    hint="Attach the run before the thread's first turn; turns that it has dropped are in its "
                    'meta["dropped"].',
                    thread_id=thread_id,
                )
            items[event.start :] = event.items
        return items

    def to_frame(self, name: str) -> pandas.DataFrame:
        """Return one of the run's tables.

        Parameters
        ----------
        name : str
            ``turns``, ``allocations``, ``tokens``, ``items``, ``spans``, ``tools``, ``ledger``, ``decisions``, ``regulator`` or
            ``warnings``; what their columns mean is described in `noetic_nb.runs.tables`.

        Returns
        -------
        pandas.DataFrame
            One row per thing that happened, a new frame at each call. It begins with ``run_id``, ``thread_id``,
            ``execution_id``, ``turn``, ``seq`` and ``t_ms``, and has every column, with its type, when it has no row.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_TABLE`` for another name.
        """
        return frame(Recorded(self.run_id, self._events[:], self.turns), name)

    def caching(
        self,
        *,
        rules: CacheRules | str | None = None,
        price: Price | None = None,
        tokenizer: str | Tokenizer | None = None,
    ) -> pandas.DataFrame:
        """Return what caching of prompts does to the agent's model calls: what each has in common with the call before it.

        Parameters
        ----------
        rules : CacheRules or str, optional
            By which all models are taken to cache, or the name of a model whose rules these are. Where absent, what the provider
            of each model publishes; of a model of which nothing is known, nothing is predicted.
        price : pair of float or callable, optional
            US dollars per million (input, output) tokens, or a function of model and usage; that of the price list where absent.
        tokenizer : str, TokenCalibration or callable, optional
            What counted the tokens of the run, where its name alone does not say so.

        Returns
        -------
        pandas.DataFrame
            One row for each part of each request that the run has all of, after the columns that every table of a run begins
            with. ``call`` is its place among the agent's model calls (missing while it is under way), ``provider`` that of the
            rules (None: nothing is known of the ``model``), ``part``: ``tools``, ``system``, ``layer:<id>``, ``history`` or
            ``appended``.

            In tokens: ``tokens`` of the part, its framing included; ``shared``, those in the prefix shared with the call before
            it, of the same model in the same thread; ``cached``, those that the cache is predicted to hold, of all calls of the
            model in the run; ``written``, those that it is paid to take up; ``paid``, all of them at the price of ordinary input
            tokens. ``broke``: the shared prefix ends in this part.

            In US dollars: ``cost_fresh`` without a cache, ``cost_cached`` with it, missing where the price is not known. Of the
            whole call, as the provider counted: ``input_tokens``, and ``reported``, the cached ones of them.

        Raises
        ------
        NoeticConfigError
            ``INVALID_CACHE_RULES``, ``INVALID_PRICE``.

        References
        ----------
        .. [1] docs/behaviour/runs.md, "What caching does".

        Examples
        --------
        >>> Run("empty").caching().columns[6:12].to_list()
        ['call', 'model', 'provider', 'part', 'tokens', 'shared']
        """
        from noetic_nb.runs.caching_table import caching_frame  # most runs are not asked

        return caching_frame(self.run_id, self._events[:], rules, price, tokenizer)

    # Messages of others

    @classmethod
    def from_messages(
        cls,
        messages: Iterable[Any],
        *,
        format: MessageFormat | None = None,
        outcome: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Run:
        """Make a run of messages that another agent kept.

        Parameters
        ----------
        messages : iterable
            Dictionaries, or the packages' own objects: OpenAI's chat messages or items of its responses API, Anthropic's,
            LangChain's, pydantic-ai's.
        format : {"openai", "openai-responses", "anthropic", "langchain", "pydantic-ai"}, optional
            How they are written; recognised where it is not given.
        outcome : bool, optional
            Whether it ended well.
        meta : mapping, optional
            Added to the run's own.

        Returns
        -------
        Run
            One thread, with a turn for each time the user writes. Secrets are replaced. ``meta["unmapped"]`` lists what has no
            place in a run, ``meta["estimated"]`` what is no measurement.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_FORMAT``.

        References
        ----------
        .. [1] docs/behaviour/interop.md, "Messages".

        Examples
        --------
        >>> run = Run.from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}])
        >>> [(turn.query, turn.text) for turn in run.turns], run.meta["source"]
        ([('hi', 'Hello.')], 'openai')
        """
        from noetic_nb.items.messages import decode_messages
        from noetic_nb.runs.conversation import run_of_conversation

        found, unmapped, name = decode_messages(messages, format=format)
        about = {"source": name, "outcome": outcome, **(meta or {})}
        return run_of_conversation(found, meta=about, unmapped=unmapped)

    def to_messages(self, format: str = "openai", *, thread_id: str | None = None) -> list[dict[str, Any]]:
        """Return the log of a thread as messages that others read.

        Parameters
        ----------
        format : {"openai", "openai-responses", "anthropic", "langchain"}
            How they are written.
        thread_id : str, optional
            Whose; it must be named where the run has several.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_FORMAT``; ``UNKNOWN_THREAD`` if there is no such thread, or several and none is named.

        Examples
        --------
        >>> Run.from_messages([{"role": "user", "content": "hi"}]).to_messages("anthropic")
        [{'role': 'user', 'content': [{'type': 'text', 'text': 'hi'}]}]
        """
        from noetic_nb.items.messages import encode_messages

        if thread_id is None:
            if len(self.threads) != 1:
                raise NoeticConfigError(
                    "UNKNOWN_THREAD",
                    "Name one of the threads.",
                    given=thread_id,
                    hint=f"The run has {', '.join(map(repr, self.threads)) or 'none yet'}.",
                )
            thread_id = self.threads[0]
        calls = self.select(ToolCalled)
        failed = {call.call_id for call in calls if call.where.thread_id == thread_id and call.status != "ok"}
        return encode_messages(self.log(thread_id), format, failed=failed)

    # Keeping

    @property
    def bundle(self) -> dict[str, Any] | None:
        """What the run was made with, as data: None where nobody knows.

        ``config`` is what `load_config` reads, ``rules`` what a rule file holds (None without rules), as they are now;
        ``sources`` are the texts of Python rules by their ids, and ``notes`` those of `notes`. Functions, tools and layers of
        your own are references.

        Examples
        --------
        >>> import json, tempfile
        >>> import noetic_nb as nn
        >>> rules = nn.RuleBook()
        >>> _ = rules.at_most(3, "search")
        >>> config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[rules])
        >>> run = nn.record(nn.AgentHarness(config, model=nn.ScriptedModel([])))
        >>> run.notes = "A first try."
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bundle = nn.load_run(run.save(f"{folder}/run.jsonl.gz", bundle=True)).bundle
        >>> bundle["config"]["name"], bundle["notes"]
        ('desk', 'A first try.')
        >>> nn.steering.parse_rules(json.dumps(bundle["rules"]), format="json")["at-most-3-search"].tools
        ('search',)
        """
        if self._config is None:
            return self._bundle
        from noetic_nb.runs.bundle import bundle_of  # with the configuration of agents, which most readers never need

        return bundle_of(self._config, self.meta.get("config"), self.notes)

    @bundle.setter
    def bundle(self, value: dict[str, Any] | None) -> None:
        self._bundle = value

    def made_with(self, config: object) -> None:
        """Take note of the configuration of the agent that is recorded."""
        self._config = config

    @property
    def made_by(self) -> object:
        """The configuration itself, where the agent is in this process; None otherwise."""
        return self._config

    @property
    def is_recording(self) -> bool:
        """Whether something is attached that may add events."""
        return bool(self._attached)

    @property
    def notes(self) -> str:
        """Your notes on the run, a text; it is saved with it, secrets replaced."""
        found = self.meta.get("notes", "")
        return found if isinstance(found, str) else ""

    @notes.setter
    def notes(self, text: str) -> None:
        if not isinstance(text, str):
            raise NoeticConfigError("INVALID_NOTES", "Notes are a text.", given=text, hint="Such as run.notes = 'Odd.'")
        self.meta["notes"] = text

    def save(self, path: str | PathLike[str], *, bundle: bool = False) -> Path:
        """Write the run to one file, secrets replaced.

        Parameters
        ----------
        path : path-like
            Where to; ``.jsonl.gz`` by custom. An existing file is replaced once the new one is complete.
        bundle : bool
            Keep in it, too, what the run was made with: see `bundle`.

        Returns
        -------
        Path
            The file; `noetic_nb.runs.load_run` reads it.

        Raises
        ------
        NoeticError
            ``storage_failed`` if it cannot be written, ``invalid_run_file`` if a field cannot be put in words of JSON.
        """
        more = {"bundle": self.bundle or {**_EMPTY_BUNDLE, "config": self.meta.get("config"), "notes": self.notes}}
        return save_events(path, run_id=self.run_id, meta=self.meta, events=self._events[:], **(more if bundle else {}))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Run:
        """Read a run that `save` wrote, as `noetic_nb.runs.load_run` does."""
        from noetic_nb.runs.load import load_run  # which makes runs, so it stands above this module

        return load_run(path)

    def copy(self) -> Run:
        """Return an independent run with the same content and no listeners."""
        copied = Run(self.run_id, meta=self.meta, events=tuple(self._events))
        copied._config, copied._bundle = self._config, self._bundle
        return copied

    def with_events(self, instead: Mapping[int, RunEvent | tuple[RunEvent, ...]]) -> Run:
        """Return an independent run with other events at some places; for many runs that differ in little.

        Parameters
        ----------
        instead : mapping of int to RunEvent
            By the place of the event that each stands for; a tuple of several, or of none.

        Examples
        --------
        >>> from noetic_nb.events import QualityGiven, Where
        >>> grade = QualityGiven(Where("t1", "e1", 1), 5.0, 0.25, "grader")
        >>> Run("demo", events=[grade]).with_events({0: grade}).turns[0].qualities
        (0.25,)
        """
        changed = Run(self.run_id, meta=self.meta)
        events: list[Any] = list(self._events)
        known: dict[int, tuple[Any, Any]] = {}
        # From the end, so that places in front stay what they are.
        for seq in sorted(instead, reverse=True):
            event = instead[seq]
            if isinstance(event, tuple):
                events[seq : seq + 1] = [settled(each, known) for each in event]
            else:
                events[seq] = settled(event, known)
        changed._read = events
        return changed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        return self.run_id == other.run_id and self.meta == other.meta and self._events == other._events

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.run_id, self.meta, tuple(self._events))

    def __repr__(self) -> str:
        counts = [(len(self._events), "event"), (len(self.turns), "turn"), (len(self.threads), "thread")]
        words = ", ".join(f"{n} {word}" if n == 1 else f"{n} {word}s" for n, word in counts)
        problem = None if self._keeper is None else self._keeper.problem
        return f"<Run {plain(self.run_id)!r}: {words}{'' if problem is None else f'; NOT SAVED: {plain(problem)}'}>"

    def _card(self) -> Card:
        return turns_card(self.run_id, self.turns, problem=None if self._keeper is None else self._keeper.problem)


def _rebuilt(run_id: str, meta: dict[str, Any], events: tuple[RunEvent, ...]) -> Run:
    return Run(run_id, meta=meta, events=events)
