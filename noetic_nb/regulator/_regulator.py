"""The regulator: events in, decisions out; no model, no clock of its own, no side effects.

`decide` only reads: call it as often as you like, between any two events. Not thread-safe; use `ThreadSafeRegulator` for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

from noetic_nb.regulator._measures import corrections
from noetic_nb.regulator._measures.topics import WordLists
from noetic_nb.regulator._session import Signals
from noetic_nb.regulator._settings import (
    NEWER_SETTINGS,
    RECOMMENDED_SETTINGS,
    RELEASE_SETTINGS,
    Settings,
    SnapshotForm,
    TurnRules,
)
from noetic_nb.regulator._state import Person, RegulatorState, restore, snapshot
from noetic_nb.regulator._task import HANDLERS, Task
from noetic_nb.regulator.decisions import CONTINUE, Decision, ProceduralWarning
from noetic_nb.regulator.events import Event, Token, plain, require_text, shown
from noetic_nb.regulator.predicates.core import CostCap, ScopeDrift
from noetic_nb.regulator.predicates.drift import DriftScorer
from noetic_nb.regulator.predicates.explanation import Explanation, Predicate, explain, thresholds_of


class Readings:
    """The measurements of a `Regulator`; none of them changes it."""

    __slots__ = ("_person", "_settings", "_task")

    _person: Person
    _settings: Settings
    _task: Task

    def user_id(self) -> str:
        """Return the user whose memory it keeps."""
        return self._person.user_id

    @property
    def person(self) -> Person:
        """The memory that outlives the task; pass it to `fork` to share it."""
        return self._person

    @property
    def settings(self) -> Settings:
        """The complete configuration, as data."""
        return self._settings

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """The predicates, in order of priority."""
        return self._settings.predicates

    @property
    def thresholds(self) -> dict[str, dict[str, float]]:
        """The thresholds, windows and minimum counts in force, by predicate and name."""
        return thresholds_of(self._settings.predicates)

    @property
    def qualities(self) -> tuple[float, ...]:
        """The newest grades, at most 20, oldest first."""
        return tuple(self._task.qualities)

    @property
    def cluster(self) -> str:
        """Topic cluster of the current message; empty means none."""
        return self._task.cluster

    @property
    def signals(self) -> Signals:
        """The signals that the session would report to an agent; `decide` does not depend on them."""
        return self._person.session.signals

    @property
    def evidence(self) -> Task:
        """The live evidence for the predicates; do not change it."""
        return self._task

    def confidence(self) -> float:
        """Return the model's confidence, 0 to 1: from logprobs, otherwise from the shape of the reply, otherwise 0.5."""
        return self._task.confidence()

    def logprob_coverage(self) -> float:
        """Return the share of this turn's tokens with a usable logprob."""
        return self._task.token_stats.coverage

    def total_tokens_out(self) -> int:
        """Return the output tokens spent by the task."""
        return self._task.tokens_out

    def total_tokens_in(self) -> int:
        """Return the input tokens spent by the task."""
        return self._task.tokens_in

    def total_wallclock_ms(self) -> int:
        """Return the milliseconds spent by the task."""
        return self._task.wallclock_ms

    def total_usd(self) -> float:
        """Return the known cost of the task in US dollars."""
        return self._task.usd

    def cost_cap_tokens(self) -> int | None:
        """Return the cap on output tokens; None if there is none."""
        caps = (predicate.tokens_out for predicate in self._settings.predicates if isinstance(predicate, CostCap))
        return next(caps, None)

    def scope_drift_threshold(self) -> float | None:
        """Return the score from which a reply counts as drifting; None without a drift predicate."""
        found = (predicate.threshold for predicate in self._settings.predicates if isinstance(predicate, ScopeDrift))
        return next(found, None)

    def tool_total_calls(self) -> int:
        """Return the calls of this turn."""
        return len(self._task.tools.calls)

    def tool_counts_by_name(self) -> dict[str, int]:
        """Return the calls of this turn by tool."""
        return self._task.tools.counts_by_name()

    def tool_total_duration_ms(self) -> int:
        """Return the summed duration of this turn's results, in milliseconds."""
        return self._task.tools.duration_ms

    def tool_failure_count(self) -> int:
        """Return the failed results of this turn."""
        return self._task.tools.failures

    def implicit_corrections_count(self) -> int:
        """Return how many messages counted as corrections by their timing."""
        return self._task.implicit_count

    def metrics_snapshot(self) -> dict[str, float]:
        """Return every measurement as a flat mapping of floats, without caps and thresholds that are not set.

        Returns
        -------
        dict of str to float
            The keys of the original, and ``noos.scope_drift_threshold`` of its newer releases.
        """
        readings: dict[str, float | None] = {
            "noos.confidence": self.confidence(),
            "noos.logprob_coverage": self.logprob_coverage(),
            "noos.total_tokens_out": self.total_tokens_out(),
            "noos.cost_cap_tokens": self.cost_cap_tokens(),
            "noos.tool_total_calls": self.tool_total_calls(),
            "noos.tool_total_duration_ms": self.tool_total_duration_ms(),
            "noos.tool_failure_count": self.tool_failure_count(),
            "noos.implicit_corrections_count": self.implicit_corrections_count(),
            "noos.scope_drift_threshold": self.scope_drift_threshold(),
        }
        return {name: float(value) for name, value in readings.items() if value is not None}


class Regulator(Readings):
    """Watches one task of one user.

    Create one with `for_user` (exactly release 0.4.1) or `recommended`, feed it events, read its decision.

    Examples
    --------
    >>> from noetic_nb.regulator.events import Cost, QualityFeedback, TurnStart
    >>> regulator = Regulator.for_user("ann").with_cost_cap(1_000)
    >>> for quality in (0.5, 0.35, 0.2):
    ...     regulator.on_event(TurnStart("speed up the slow report"))
    ...     regulator.on_event(Cost(tokens_in=25, tokens_out=400, wallclock_ms=1_800))
    ...     regulator.on_event(QualityFeedback(quality))
    >>> regulator.decide().reason
    CostCapReached(tokens_spent=1200, tokens_cap=1000, mean_quality_last_n=0.35000000000000003, currency='tokens_out')
    """

    __slots__ = ("_cached", "_cached_version", "_clock")

    def __init__(
        self, person: Person, settings: Settings = RELEASE_SETTINGS, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not isinstance(person, Person):
            raise TypeError(f"A regulator needs a user id. Given: {person!r:.80}. Use Regulator.for_user('ann').")
        self._clock = clock
        self._person = person
        self._settings = settings
        self._cached: Decision | None = None
        self._cached_version = -1
        self._configure(settings)  # also limits the corrections of a given person
        self._task = Task(person, settings, clock)

    # Construction

    @classmethod
    def for_user(cls, user_id: str, *, clock: Callable[[], float] = time.monotonic) -> Self:
        """Return a fresh regulator that behaves exactly like release 0.4.1.

        This includes keyword drift, which warns in nearly every recorded run, good or failed, and a cost cap that requires
        poor grades. `recommended` has no keyword drift and no false alarms for loops; `with_predicates` selects others.

        Parameters
        ----------
        user_id : str
            The user whose memory it keeps.
        clock : callable, optional
            Monotonic seconds; read only for implicit corrections.

        Raises
        ------
        TypeError
            If `user_id` is not a string.
        ValueError
            If `user_id` contains a lone surrogate.
        """
        require_text("user_id", user_id)
        return cls(Person(user_id), clock=clock)

    @classmethod
    def newer(cls, user_id: str, *, clock: Callable[[], float] = time.monotonic) -> Self:
        """Return a fresh regulator that behaves like the newest original: ranked topics, prefix anchoring."""
        require_text("user_id", user_id)
        return cls(Person(user_id), NEWER_SETTINGS, clock=clock)

    @classmethod
    def recommended(cls, user_id: str, *, clock: Callable[[], float] = time.monotonic) -> Self:
        """Return a fresh regulator with settings for practical use.

        `noetic_nb.regulator.presets` gives the reasons, and ``presets.describe()`` its effect on recorded runs, by domain.
        """
        require_text("user_id", user_id)
        return cls(Person(user_id), RECOMMENDED_SETTINGS, clock=clock)

    def fork(self, *, user_id: str | None = None, person: Person | None = None) -> Regulator:
        """Return a regulator with the same settings and a fresh task.

        Parameters
        ----------
        user_id : str, optional
            Owner of the copied memory; ignored if `person` is given.
        person : Person, optional
            Memory to share by reference, so that several live tasks of one person learn together. By default a copy of
            this regulator's memory.
        """
        return type(self)(
            self._person.copy(user_id=user_id) if person is None else person, self._settings, clock=self._clock
        )

    def reset_task(self, *, keep_corrections: bool = True) -> None:
        """Start a new task: counters, windows, bags and tools are reset; settings and learned values stay.

        Parameters
        ----------
        keep_corrections : bool
            False also forgets every correction, including those below the threshold.
        """
        if not keep_corrections:
            self._person.corrections.clear()
        self._task = Task(self._person, self._settings, self._clock)
        self._cached = None

    # Configuration: every method changes this regulator and returns it, for chaining

    def _configure(self, settings: Settings) -> None:
        self._settings = settings
        self._cached = None
        self._person.corrections.bound(settings.max_clusters)
        self._person.session.topics = settings.topics

    def with_settings(self, settings: Settings) -> Self:
        """Replace the whole configuration; the state of the task stays."""
        self._configure(settings)
        self._task.reconfigure(settings)
        return self

    def with_predicates(self, *predicates: Predicate) -> Self:
        """Replace the predicates, in order of priority."""
        return self.with_settings(replace(self._settings, predicates=predicates))

    def with_cost_cap(self, tokens: int) -> Self:
        """Set the cap on output tokens, 0 to 4294967295; totals stay.

        As in the original, it stops the task only if the mean of its last three grades is poor, so never without grades.
        `with_token_cap` stops it whatever the grades.
        """
        return self.with_settings(self._settings.with_cost_cap(tokens))

    def with_token_cap(self, tokens: int) -> Self:
        """Stop the task at this many output tokens, 0 to 4294967295, regardless of its grades.

        Examples
        --------
        >>> from noetic_nb.regulator.events import Cost
        >>> regulator = Regulator.recommended("ann").with_token_cap(1_000)
        >>> regulator.on_event(Cost(tokens_in=25, tokens_out=1_200, wallclock_ms=1_800))
        >>> regulator.decide().reason.tokens_cap
        1000
        """
        return self.with_settings(self._settings.with_token_cap(tokens))

    def with_scope_drift_threshold(self, threshold: float) -> Self:
        """Set the score from which a reply counts as drifting, 0 to 1."""
        return self.with_settings(self._settings.with_drift(threshold=threshold))

    def with_scope_scorer(self, scorer: DriftScorer) -> Self:
        """Set the drift scorer, for example ``NEWER_KEYWORDS``."""
        return self.with_settings(self._settings.with_drift(scorer=scorer))

    def with_implicit_correction_window_secs(self, seconds: float) -> Self:
        """Count a message on the same topic within this many seconds of a reply as a correction."""
        return self.with_settings(replace(self._settings, implicit_window_s=seconds))

    def with_turns(self, rules: TurnRules) -> Self:
        """Set how turns are separated: ``"release"`` or ``"strict"``."""
        return self.with_settings(replace(self._settings, turns=rules))

    def with_words(self, words: WordLists) -> Self:
        """Replace stop words and short terms, for clusters and for every keyword scorer."""
        return self.with_settings(self._settings.with_words(words))

    def with_max_clusters(self, most: int | None) -> Self:
        """Limit how many topic clusters with corrections are remembered."""
        return self.with_settings(replace(self._settings, max_clusters=most))

    # Events and decisions

    def on_event(self, event: Event) -> None:
        """Process one event.

        Parameters
        ----------
        event : Event
            Any event, in any order; events may be missing or repeated.

        Raises
        ------
        TypeError
            If it is not an event, or one of its fields has the wrong type. Then nothing changes.
        ValueError
            If a number is out of range or a text contains a lone surrogate. Then nothing changes.
        """
        self._cached = None
        # The class itself, not isinstance: a subclass may have fields that were never checked.
        handler = HANDLERS.get(event.__class__)
        if handler is None:
            raise TypeError(f"A regulator only accepts events such as TurnStart(...). Given: {shown(event)}.")
        # Only check the used fields of a token: some models emit lone surrogates.
        if not (isinstance(event, Token) and type(event.logprob) is float and type(event.token) is str):
            event = plain(event)
        handler(self._task, event)

    def decide(self) -> Decision:
        """Return the decision of the first predicate that holds, otherwise `Continue`."""
        # Another task of the same person may have added a correction since.
        version = self._person.corrections.version
        if self._cached is not None and self._cached_version == version:
            return self._cached
        task = self._task
        decision: Decision = CONTINUE
        for predicate in self._settings.predicates:
            found = predicate.check(task)
            if found is not None:
                decision = found
                break
        self._cached, self._cached_version = decision, version
        return decision

    def decide_all(self) -> tuple[Decision, ...]:
        """Return the decision of every predicate that holds, in order of priority; empty if none holds."""
        found = (predicate.check(self._task) for predicate in self._settings.predicates)
        return tuple(decision for decision in found if decision is not None)

    def explain(self) -> Explanation:
        """Return every predicate with its inputs, thresholds, distance to firing and the predicates that mask it."""
        return explain(self._settings.predicates, self._task)

    # Corrections

    def corrections_prelude(self, *, header: str = corrections.HEADER) -> str | None:
        """Return past corrections for a prompt, or None unless the current decision is a procedural warning."""
        decision = Regulator.decide(self)  # a compatibility layer may override `decide` and return its own class
        if not isinstance(decision, ProceduralWarning):
            return None
        return corrections.prelude(decision.patterns, header=header)

    def inject_corrections(
        self, prompt: str, *, header: str = corrections.HEADER, label: str = corrections.REQUEST_LABEL
    ) -> str:
        """Return the prompt with past corrections above it, or unchanged if there are none to show."""
        return corrections.inject(self.corrections_prelude(header=header), prompt, label=label)

    # Snapshots

    def export(self, keep: SnapshotForm | None = None) -> RegulatorState:
        """Return a snapshot of the learned values about the user.

        Parameters
        ----------
        keep : {"release", "everything"}, optional
            The data of the original, or also the settings and every correction; by default `Settings.snapshots`.
        """
        return snapshot(self._person, self._settings, keep or self._settings.snapshots)

    def export_json(self, keep: SnapshotForm | None = None) -> str:
        """Return a snapshot as JSON text; it contains text by the user."""
        return self.export(keep).to_json()

    @classmethod
    def import_state(
        cls,
        state: RegulatorState,
        *,
        as_original: bool = False,
        named: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Return a regulator with the memory of a snapshot and a fresh task.

        Parameters
        ----------
        state : RegulatorState
            The snapshot.
        as_original : bool
            Ignore this library's additions: settings, and corrections below the threshold.
        named : mapping of str to object, optional
            Your own scorers and predicates that the settings refer to by name.
        clock : callable, optional
            Monotonic seconds.
        """
        if not isinstance(state, RegulatorState):
            raise TypeError(
                f"import_state takes a RegulatorState; from_json reads text. Given: {type(state).__name__}."
            )
        # The whole task is reset, as in the original: a snapshot describes a person.
        person, settings = restore(state, use_extra=not as_original, named=named)
        return cls(person, settings, clock=clock)

    @classmethod
    def from_json(
        cls,
        text: str,
        *,
        as_original: bool = False,
        named: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Return a regulator from JSON text, written by this library or by the original.

        Raises
        ------
        ValueError
            If the text is not a snapshot; the message names the key.

        Examples
        --------
        >>> Regulator.from_json(Regulator.for_user("ann").export_json())
        Regulator(user_id='ann', total_tokens_out=0)
        """
        return cls.import_state(RegulatorState.from_json(text), as_original=as_original, named=named, clock=clock)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(user_id={self._person.user_id!r}, total_tokens_out={self.total_tokens_out()})"
