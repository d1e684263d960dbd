"""A run: everything that happened, in order, as data that grows.

Tables, plots and widgets read only a `Run`, so they treat live, loaded and replayed runs alike. An event's number (``seq``)
is its position; events never change. Only a recorded run above its size limit drops whole turns, oldest first, and says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noetic_nb._core.cards import Card, with_card
from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import RunEvent, ToolCalled
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items._frozen import plain_data
from noetic_nb.runs._computed import ComputedEvents
from noetic_nb.runs._events.event_json import SCHEMA_VERSION, settled
from noetic_nb.runs._labelled import label_beside
from noetic_nb.runs._labels import LabelStore
from noetic_nb.runs._load import MAX_BYTES, MAX_LINE_BYTES, RunFile, note_unfinished, read_run
from noetic_nb.runs._plain_text import plain
from noetic_nb.runs._save import save_events
from noetic_nb.runs._turns import turns_card

if TYPE_CHECKING:
    from noetic_nb.items._messages import MessageFormat

_MOST = 3


class KnownUntil(NamedTuple):
    """The first point of a thread where a replay may differ from a real run."""

    turn: int  # number of the turn in its thread
    seq: int
    """Place in the replayed run of the first event that might differ; all earlier events of the thread are known."""


def known_events(events: Sequence[RunEvent], points: Mapping[str, KnownUntil]) -> Sequence[RunEvent]:
    """Return the events before the given points of their threads."""
    if not points:
        return events
    first = {thread_id: point.seq for thread_id, point in points.items()}
    begin, end = min(first.values()), len(events)
    later = [event for seq, event in enumerate(events[begin:], begin) if seq < first.get(event.where.thread_id, end)]
    return [*events[:begin], *later]


def said_of(points: Mapping[str, KnownUntil]) -> str:
    """Return one sentence about how far a replay is known."""
    if not points:
        return "Known to its end."
    places = [f"turn {point.turn} of {thread_id!r} (event {point.seq})" for thread_id, point in points.items()]
    shown = ", ".join(places[:_MOST]) + (f" and {len(places) - _MOST} more" if len(places) > _MOST else "")
    return f"Known up to {shown}: there the agent goes another way, and later counts are those of the old way."


@cache  # never cleared: an imported package keeps its version while the process lives
def version_of(package: str) -> str:
    """Return the version of an installed package; ``"source"`` if it runs from a source tree without installation."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version(package)
    except PackageNotFoundError:
        return "source"


def _checked_meta(meta: object) -> Mapping[str, Any]:
    """Return the given meta, empty for None; raises `NoeticConfigError` ``INVALID_META``."""
    if meta is not None and not isinstance(meta, Mapping):
        hint = 'For example: meta={"task": "refund"}.'
        raise NoeticConfigError("INVALID_META", "The meta of a run is a mapping of names.", given=meta, hint=hint)
    return meta or {}


@with_card(shown="as HTML")
class Run(ComputedEvents):
    """Everything that happened, as data.

    Parameters
    ----------
    run_id : str, optional
        Its name; a fresh one by default.
    meta : mapping, optional
        JSON data about the run, added to the standard keys ``schema_version``, ``library_version``, ``created_ms``,
        ``source`` (``"recorded"``, ``"file"``, ``"replay"`` or a data set's name), ``config`` and ``models``.
    events : iterable of RunEvent, optional
        The initial events.
    clock : Clock, optional
        Source of ``created_ms``.
    ids : Ids, optional
        Source of the name.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUN_ID``, ``INVALID_META``, ``INVALID_RUN_EVENT``.

    Examples
    --------
    >>> from noetic_nb.events import QualityGiven, Where
    >>> run = Run("demo")
    >>> run.append(QualityGiven(Where("t1", "e1", 1), 5.0, 0.25, "grader"))
    0
    >>> run, run.turns[0].qualities
    (<Run 'demo': 1 event, 1 turn, 1 thread>, (0.25,))
    """

    __hash__ = None  # type: ignore[assignment]  # compared by content, and mutable

    def __init__(
        self,
        run_id: str | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        events: Iterable[RunEvent] = (),
        clock: Clock = SYSTEM_CLOCK,
        ids: Ids = SYSTEM_IDS,
    ) -> None:
        name = ids.new("run") if run_id is None else run_id
        if not isinstance(name, str):
            raise NoeticConfigError("INVALID_RUN_ID", "The name of a run is text.", given=name, hint="nn.Run('first')")
        if not isinstance(events, Iterable):
            hint = "Pass events of another run: nn.Run(events=run.events)."  # type: ignore[unreachable]
            raise NoeticConfigError("INVALID_RUN_EVENT", "The events of a run are a list.", given=events, hint=hint)
        # Convert to plain JSON data now, so that a loaded run equals the saved one and shares no objects with the caller.
        given = plain_data(_checked_meta(meta))
        own = {"schema_version": SCHEMA_VERSION, "source": "recorded", "config": None, "models": None}
        if "created_ms" not in given:
            own["created_ms"] = clock.now_ms()
        if "library_version" not in given:
            own["library_version"] = version_of("noetic_nb")
        self.meta: dict[str, Any] = own | given
        super().__init__(name, [settled(event) for event in events])  # all at once: no subscribers yet
        self._config: object = None
        self._bundle: dict[str, Any] | None = None

    # Reading

    @property
    def known_until(self) -> Mapping[str, KnownUntil]:
        """For each thread, the first point from which a replayed run may differ from a real one.

        There, the model or a tool would have received different input than in the recording, or a stop takes effect. Empty if
        everything really happened or was sent to a model, as in every run that is not a replay.
        """
        match self.meta.get("replay"):
            case {"known_until": Mapping() as found}:
                try:
                    return {thread_id: KnownUntil(int(at["turn"]), int(at["seq"])) for thread_id, at in found.items()}
                except (KeyError, TypeError, ValueError) as error:
                    what = "The horizon of this run is not a mapping of threads to their points."
                    hint = "Load the run from an undamaged file."
                    raise NoeticError("invalid_run_file", what, hint=hint, path=None, line=None) from error
        return {}

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
        """Make a run from messages of another agent framework.

        Parameters
        ----------
        messages : iterable
            Dictionaries, or the packages' own objects: OpenAI chat messages or Responses API items, Anthropic, LangChain or
            pydantic-ai messages.
        format : {"openai", "openai-responses", "anthropic", "langchain", "pydantic-ai"}, optional
            Their format; detected if not given.
        outcome : bool, optional
            Whether the run ended well.
        meta : mapping, optional
            Added to the run's meta.

        Returns
        -------
        Run
            One thread, with a turn for each user message. Secrets are replaced. ``meta["unmapped"]`` lists the content that does
            not fit in a run, ``meta["estimated"]`` the values that are estimates.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_FORMAT``, ``INVALID_META``.

        References
        ----------
        .. [1] docs/behaviour/interop.md, "Messages".

        Examples
        --------
        >>> run = Run.from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}])
        >>> [(turn.query, turn.text) for turn in run.turns], run.meta["source"]
        ([('hi', 'Hello.')], 'openai')
        """
        from noetic_nb.items._messages import decode_messages
        from noetic_nb.runs._conversation import conversation_events

        own = _checked_meta(meta)
        found, unmapped, name = decode_messages(messages, format=format)
        about = {"source": name, "outcome": outcome, **own}
        return run_of_settled(None, *conversation_events(found, meta=about, unmapped=unmapped))

    def to_messages(self, format: str = "openai", *, thread_id: str | None = None) -> list[dict[str, Any]]:
        """Convert the log of a thread to messages of another format.

        Parameters
        ----------
        format : {"openai", "openai-responses", "anthropic", "langchain"}
            The target format.
        thread_id : str, optional
            The thread; required if the run has several.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_FORMAT``; ``UNKNOWN_THREAD`` if there is no such thread, or several and none is given.

        Examples
        --------
        >>> Run.from_messages([{"role": "user", "content": "hi"}]).to_messages("anthropic")
        [{'role': 'user', 'content': [{'type': 'text', 'text': 'hi'}]}]
        """
        from noetic_nb.items._messages import encode_messages

        thread_id = self._one_thread(thread_id)
        calls = self.select(ToolCalled)
        failed = {call.call_id for call in calls if call.where.thread_id == thread_id and call.status != "ok"}
        return encode_messages(self.log(thread_id), format, failed=failed)

    def to_atif(self, thread_id: str | None = None) -> dict[str, Any]:
        """Convert a thread to a trajectory in ATIF 1.8, the Agent Trajectory Interchange Format.

        Parameters
        ----------
        thread_id : str, optional
            The thread; required if the run has several.

        Returns
        -------
        dict
            JSON data. Facts that the format has no field for are in ``extra``, where `import_run` finds them again.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_THREAD`` if there is no such thread, or several and none is given.

        Examples
        --------
        >>> told = Run.from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}])
        >>> [(step["source"], step["message"]) for step in told.to_atif()["steps"]]
        [('user', 'hi'), ('agent', 'Hello.')]
        """
        from noetic_nb.runs._trajectory_export import trajectory

        return trajectory(self, self._one_thread(thread_id), self.events)

    # What it was made with

    @property
    def bundle(self) -> dict[str, Any] | None:
        """The set-up of the run, as data; None if unknown.

        ``config`` is input for `load_config`, ``rules`` the content of a rule file (None without rules), both as they are now;
        ``sources`` has the source texts of Python rules by id, and ``notes`` the text of `notes`. Your own functions, tools and
        layers are references.

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
        from noetic_nb.runs._computed import bundle_of  # imports agent configuration, which most readers never need

        return bundle_of(self._config, self.meta.get("config"), self.notes)

    @bundle.setter
    def bundle(self, value: dict[str, Any] | None) -> None:
        self._bundle = value

    def made_with(self, config: object) -> None:
        """Store the configuration of the recorded agent."""
        self._config = config

    @property
    def notes(self) -> str:
        """Your notes on the run, a text; saved with the run, secrets replaced."""
        found = self.meta.get("notes", "")
        return found if isinstance(found, str) else ""

    @notes.setter
    def notes(self, text: str) -> None:
        if not isinstance(text, str):
            raise NoeticConfigError("INVALID_NOTES", "Notes are a text.", given=text, hint="Write run.notes = 'Odd.'")
        self.meta["notes"] = text

    # Keeping

    def save(self, path: str | PathLike[str], *, bundle: bool = False) -> Path:
        """Write the run to one file, secrets replaced, and its labels beside it.

        Parameters
        ----------
        path : path-like
            The file, by convention ``.jsonl.gz``. An existing file is replaced once the new one is complete.
        bundle : bool
            Also save the run's set-up: see `bundle`.

        Returns
        -------
        Path
            The file; `noetic_nb.runs.load_run` reads it.

        Raises
        ------
        NoeticError
            ``storage_failed`` if the file cannot be written, ``invalid_run_file`` if a field cannot be written as JSON.
        """
        more: dict[str, Any] = {}
        if bundle:
            config = self.meta.get("config")
            more["bundle"] = self.bundle or {"config": config, "rules": None, "sources": {}, "notes": self.notes}
        file = save_events(path, run_id=self.run_id, meta=self.meta, events=self._events[:], **more)
        self._label_store.save_beside(file, self.run_id)
        return file

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Run:
        """Read a run that `save` wrote, as `noetic_nb.runs.load_run` does."""
        return load_run(path)

    def copy(self) -> Run:
        """Return an independent run with the same content and no subscribers."""
        copied = Run(self.run_id, meta=self.meta, events=tuple(self._events))
        copied._config, copied._bundle, copied._label_store = self._config, self._bundle, self._label_store.copy()
        return copied

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        return self.run_id == other.run_id and self.meta == other.meta and self._events == other._events

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.run_id, self.meta, tuple(self._events), self._label_store.copy())

    def __repr__(self) -> str:
        counts = [(len(self._events), "event"), (len(self.turns), "turn"), (len(self.threads), "thread")]
        words = ", ".join(f"{n} {word}" if n == 1 else f"{n} {word}s" for n, word in counts)
        problem = None if self._keeper is None else self._keeper.problem
        return f"<Run {plain(self.run_id)!r}: {words}{'' if problem is None else f'; NOT SAVED: {plain(problem)}'}>"

    def _card(self) -> Card:
        return turns_card(self.run_id, self.turns, problem=None if self._keeper is None else self._keeper.problem)


def load_run(path: str | PathLike[str], *, max_bytes: int = MAX_BYTES, max_line_bytes: int = MAX_LINE_BYTES) -> Run:
    """Read a run that `Run.save` wrote.

    Parameters
    ----------
    path : path-like
        The file.
    max_bytes : int, bytes
        Most bytes the file may unpack to; a small file can unpack to a very large text.
    max_line_bytes : int, bytes
        Most bytes of one line.

    Returns
    -------
    Run
        Equal to the saved one, with secrets replaced. ``meta["unfinished"]`` is set if the process that was saving the run was
        killed: `nn.recover` completes it.

    Raises
    ------
    NoeticError
        ``invalid_run_file`` with ``path`` and ``line`` if the file is missing, damaged, too large, from a newer version, or
        contains anything but valid events.

    Examples
    --------
    >>> load_run("no-such-run.jsonl.gz")
    Traceback (most recent call last):
    ...
    noetic_nb.errors.NoeticError: 'no-such-run.jsonl.gz' cannot be read: there is no such file. Check the path.
    """
    run = run_of_file(read_run(path, max_bytes=max_bytes, max_line_bytes=max_line_bytes))
    note_unfinished(path, run.meta)
    label_beside(run, str(path), run.run_id)
    return run


def run_of_file(read: RunFile) -> Run:
    run = Run(read.run_id, meta=read.meta, events=read.events)
    run.bundle = read.bundle
    return run


def run_of_settled(run_id: str | None, meta: Mapping[str, Any], events: list[RunEvent]) -> Run:
    """Make a run from events whose free data is already frozen."""
    run = Run(run_id, meta=meta)
    run._events = events
    return run


def _rebuilt(run_id: str, meta: dict[str, Any], events: tuple[RunEvent, ...], labels: LabelStore | None = None) -> Run:
    run = Run(run_id, meta=meta, events=events)
    run._label_store = labels or run._label_store
    return run
