"""A run read once for many regulators: the decisions of each at every moment, and the run that would result.

No model or tool is called; a regulator that is passed in does not learn; the clock is the run's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, NamedTuple

from noetic_nb._core.cards import Card, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RegulatorDecided, RunEvent, TurnCompleted, ViewAssembled
from noetic_nb.lab._checks import check_run
from noetic_nb.lab._replaying.open_replay import OpenPoints, checked_run, layers_in
from noetic_nb.lab._replaying.regulator_replay import DecisionsAdded, DecisionsAgain, RegulatorTemplate, fed_events
from noetic_nb.lab._replaying.replay_report import Kept, Unknown, actions_of, horizon, kinds_of, note_known
from noetic_nb.lab._statistics.intervals import Count, counted
from noetic_nb.lab._statistics.labels import clusters_of, labels_of, runs_in
from noetic_nb.layers._regulator_layer import regulator_of
from noetic_nb.models._client import ModelClient, check_clients
from noetic_nb.regulator import Regulator
from noetic_nb.regulator._settings import Settings
from noetic_nb.runs import Run
from noetic_nb.runs._labelled import with_labels_of
from noetic_nb.runs._regulation.recorded_decisions import DecisionTape, Redecided, tape_of
from noetic_nb.runs._regulation.recorded_regulator import (
    Grader,
    RecordedReply,
    RegulatorFeed,
    checked_regulator,
    kept_regulator,
)
from noetic_nb.runs._run import run_of_settled
from noetic_nb.steering._layer import rulebook_of
from noetic_nb.tokenizers._named import asked_tokenizer
from noetic_nb.tokens import Tokenizer

__all__ = ["RecordedReply", "RegulatorReadings", "StopPoint", "first_stop", "replay_regulator"]


class Stops(NamedTuple):
    """The failed and the good runs of a bank that are stopped."""

    failed: Count
    good: Count

    def __str__(self) -> str:
        runs = self.failed.of + self.good.of
        return f"Of the {runs} runs of the bank it would stop {_said(self.failed, 'failed')} and {_said(self.good, 'good')}."


def _said(found: Count, kind: str) -> str:
    if not found.of:
        return f"none of 0 {kind} ones"
    ends = "no interval" if isnan(found.low) else f"95 % interval {100 * found.low:.0f} to {100 * found.high:.0f} %"
    return f"{found.n} of {found.of} {kind} ones ({100 * found.rate:.0f} %, {ends})"


class RegulatorBank:
    """Labelled runs for trying regulators with different predicates; runs without a label do not count."""

    def __init__(self, runs: Run | Iterable[Run]) -> None:
        found = runs_in(runs)
        labels = labels_of(found, "outcome")
        kept = [(run, label) for run, label in zip(found, labels, strict=True) if label is not None]
        self._runs = [RegulatorReadings(run) for run, _ in kept]
        self._labels = [label for _, label in kept]
        self._clusters = clusters_of([run for run, _ in kept])
        # The last regulator with its template, which is computed once.
        self._template: tuple[Regulator, RegulatorTemplate] | None = None

    def stops(self, regulator: Regulator, settings: Settings) -> Stops:
        """Return the runs that would be stopped by a regulator with another one's memory and other settings."""
        if self._template is None or self._template[0] is not regulator:
            self._template = regulator, RegulatorTemplate.of(regulator)
        template = self._template[1].with_settings(settings)
        stopped = [readings.first_stop(template) is not None for readings in self._runs]
        return Stops(*[self._counted(stopped, label) for label in (False, True)])

    def _counted(self, stopped: list[bool], wanted: bool) -> Count:
        places = [place for place, label in enumerate(self._labels) if label is wanted]
        return counted([stopped[place] for place in places], [self._clusters[place] for place in places])


@dataclass(slots=True)
class _SharedReading:
    """The events that a regulator reads from the run, shared by all regulators that read the same."""

    template: RegulatorTemplate
    tape: DecisionTape | None = None
    again: DecisionsAgain | None = None
    added: tuple[list[RunEvent], DecisionsAdded] | None = None


def _with_events(run: Run, given: Iterable[RunEvent], instead: Mapping[int, RunEvent | tuple[RunEvent, ...]]) -> Run:
    """Return a run of frozen events, with frozen replacements at some indices: one event, several, or none."""
    events: list[RunEvent] = list(given)
    # From the end, so that earlier indices stay valid.
    for place in sorted(instead, reverse=True):
        event = instead[place]
        events[place : place + 1] = event if isinstance(event, tuple) else (event,)
    return with_labels_of(run_of_settled(run.run_id, run.meta, events), run)


@with_card
class RegulatorReadings:
    """The reading of one run, shared by regulators that differ in their predicates.

    Events are fed once for all regulators with the same reading (topics, turns, learning). A predicate that the last
    regulator had at the same position is not evaluated again. Rules, plans and layers are computed once.

    Parameters
    ----------
    run : Run
        A run with all of its turns. If a regulator decided in it, the moments are those of its decisions.
    rules, budgets, projection, layers, model, tokenizer
        The other changes, as for `replay`.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUN``, ``RUN_INCOMPLETE``, ``RUN_NOT_ENDED``, ``INVALID_LAYER``.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> from noetic_nb.regulator import ToolLoop
    >>> readings = RegulatorReadings(datasets.airline_run(26))
    >>> loops = [Regulator.for_user("ann").with_predicates(ToolLoop(threshold=times)) for times in (5, 50)]
    >>> [readings.first_stop(regulator) is None for regulator in loops]
    [False, True]
    >>> [readings.replay(regulator).meta["replay"]["regulator"]["after"]["stops"] for regulator in loops]
    [11, 0]
    """

    def __init__(
        self,
        run: Run,
        *,
        rules: Any = None,
        budgets: Mapping[str, Any] | None = None,
        projection: Any = None,
        layers: Iterable[Any] | None = None,
        model: ModelClient | Mapping[str, ModelClient] | None = None,
        tokenizer: str | Tokenizer | None = None,
    ) -> None:
        self.run = checked_run(run)
        check_clients(model)
        counter = asked_tokenizer(tokenizer)
        listed = None if layers is None else layers_in(layers)
        self._of_layer: Regulator | None = None
        # Enforcing layers are evaluated like rules and a regulator, and their offers are unchanged.
        for layer in [layer for layer in listed or () if not isinstance(layer, str)]:
            book, regulator = rulebook_of(layer), regulator_of(layer)
            rules = book if rules is None and book is not None else rules
            self._of_layer = regulator if self._of_layer is None else self._of_layer
        self._changes: dict[str, Any] = {
            "rules": rules,
            "budgets": budgets,
            "projection": projection,
            "layers": listed,
            "model": model,
            "tokenizer": counter,
        }
        self._is_watched = bool(run.select(RegulatorDecided))
        self._points: OpenPoints | None = None
        self._recorded: tuple[DecisionTape, DecisionsAgain] | None = None
        self._readings: list[_SharedReading] = []

    def _card(self) -> Card:
        return Card("RegulatorReadings", facts=[("run", self.run)])

    @property
    def recorded(self) -> Regulator:
        """The regulator that decided in the run, as far as the run describes it.

        Raises
        ------
        NoeticConfigError
            ``NO_REGULATOR`` if there was none, or the run lacks its settings.
        """
        return self._as_recorded()[0].template

    def decide(self, regulator: Regulator | RegulatorTemplate) -> list[Redecided]:
        """Return every decision of a regulator, in the order of the run.

        If no regulator decided in the run, the `recorded` decisions are to continue.

        Raises
        ------
        NoeticConfigError
            ``INVALID_REGULATOR`` if it is not a regulator.
        """
        template = RegulatorTemplate.of(regulator)
        return self._tape(self._reading(template)).decide_under(template.settings)

    def first_stop(self, regulator: Regulator | RegulatorTemplate) -> Redecided | None:
        """Return the first decision that would have stopped a turn, or None if there is none."""
        return next((moment for moment in self.decide(regulator) if moment.stops), None)

    def replay(self, regulator: Regulator | RegulatorTemplate | None = None) -> Run:
        """Return the run as `replay` does, under a regulator or under the recorded one.

        Raises
        ------
        NoeticConfigError
            ``INVALID_REGULATOR`` if it is not a regulator, and the errors of `replay` for the other changes.
        """
        given = self._of_layer if regulator is None else regulator
        template = None if given is None else RegulatorTemplate.of(given)
        if self._points is None:
            self._points = OpenPoints(self.run, **self._changes)
        points, kept = self._points, self._points.kept.copy()
        if self._is_watched:
            again, made = self._decided_again(template, kept)
            instead: dict[int, Any] = {
                points.places[seq]: () if event is None else event
                for seq, event in made.items()
                if seq not in points.decided
            }
            for seq, denied in ({} if again is None else again.denials(made)).items():
                place = points.places[seq]
                instead[place] = denied, points.run.events[place]
            into = _with_events(points.run, points.run.events, instead)
        elif template is None:
            into = _with_events(points.run, points.run.events, {})
        else:
            fed, added = self._added(self._reading(template), points)
            into = _with_events(points.run, fed, added.under(template))
        if template is None and self._changes["rules"] is None:
            into.made_with(self.run._config)
            if self.run._config is None:
                into.bundle = self.run.bundle
        about = into.meta["replay"]
        names = ("rules", "budgets", "projection", "layers", "regulator", "model")
        others = {**self._changes, "regulator": template}
        about["changed"] = [name for name in names if others[name] is not None]
        about["kept"] = kept.rows()
        events = tuple(into.events)
        # The rest of the summary is the same under every regulator.
        about["decisions"]["after"] = actions_of(events)
        about["regulator"]["after"] = kinds_of(events)
        note_known(into, horizon(self.run, events, points.unknown(regulator=template is not None)))
        return into

    def _decided_again(
        self, template: RegulatorTemplate | None, kept: Kept
    ) -> tuple[DecisionsAgain | None, dict[int, RunEvent | None]]:
        if template is not None:
            reading = self._reading(template)
            if reading.again is None:
                reading.again = DecisionsAgain(self.run.events, self._tape(reading))
            return reading.again, reading.again.under(template, kept)
        try:
            tape, again = self._as_recorded()
            decided = self.run.select(RegulatorDecided)
            # Settings that are known by their thresholds only may lack what those do not say.
            is_known = tape.agreement()[0] == len(tape) or kept_regulator(self.run, decided[0]) is not None
        except NoeticConfigError as error:
            if error.code != "NO_REGULATOR":
                raise
            is_known = False
        if is_known:
            return again, again.under(None, kept)
        for seq, event in enumerate(self.run.events):
            if isinstance(event, RegulatorDecided):
                kept.add("regulator", "its settings are not in the run", seq)
        return None, {}

    def _as_recorded(self) -> tuple[DecisionTape, DecisionsAgain]:
        if self._recorded is None:
            layers = getattr(self.run._config, "memory", ())
            tape = tape_of(self.run, others=[made for layer in layers if (made := regulator_of(layer)) is not None])
            self._recorded = tape, DecisionsAgain(self.run.events, tape)
        return self._recorded

    def _reading(self, template: RegulatorTemplate) -> _SharedReading:
        for known in self._readings:
            if known.template.reads_as(template):
                return known
        found = _SharedReading(template)
        self._readings.append(found)
        return found

    def _tape(self, reading: _SharedReading) -> DecisionTape:
        if reading.tape is None:
            if self._is_watched:
                reading.tape = tape_of(self.run, reading.template.regulator())
            else:
                reading.tape = _read(fed_events(tuple(self.run.events), reading.template), reading.template)
        return reading.tape

    def _added(self, reading: _SharedReading, points: OpenPoints) -> tuple[list[RunEvent], DecisionsAdded]:
        if reading.added is None:
            fed = fed_events(points.run.events, reading.template)
            if reading.tape is None:  # other rules or plans do not affect a regulator
                reading.tape = _read(fed, reading.template)
            reading.added = fed, DecisionsAdded(fed, reading.tape)
        return reading.added


def _read(fed: Iterable[RunEvent], template: RegulatorTemplate) -> DecisionTape:
    tape = DecisionTape(template.regulator())
    for event in fed:
        tape.append(event)
    return tape


class StopPoint(NamedTuple):
    """The point where a run would have been stopped, and the reason."""

    turn: int
    """Number of the turn in its thread."""
    position: int
    """Index of the decision in the replayed run: ``run.events[position]``."""
    decision: Mapping[str, Any]
    """The circuit break as plain data, with its ``reason``."""
    suggestion: str
    """The text that the user would have received instead."""


def _cut(into: Run, decided: RegulatorDecided, t_ms: float) -> None:
    """End the turn as the harness would have: aborted, with the suggestion in place of a reply."""
    thread_id = decided.where.thread_id
    turn = next(turn for turn in reversed(into.turns) if turn.where.thread_id == thread_id)
    into.append(
        TurnCompleted(
            turn.where,
            t_ms,
            turn.turn_id,
            "aborted",
            # The times of some recordings only count messages.
            None if "t_ms" in (into.meta.get("estimated") or ()) else max(0.0, t_ms - turn.t_ms),
            decided.suggestion or "",
            turn.input_tokens,
            turn.output_tokens,
            turn.cost,
            len(turn.model_calls),
            len(turn.tool_calls),
            stopped=decided.decision,
        )
    )


def _settings(regulator: Regulator) -> dict[str, Any]:
    try:
        return {"regulator": {"settings": regulator.settings.to_dict()}}
    except ValueError:  # an unnamed custom scorer
        return {}


def replay_regulator(
    run: Run, regulator: Regulator, *, grader: Grader | None = None, stop: bool = False, layer_id: str = "regulation"
) -> Run:
    """Replay a recorded run through a regulator and record its decisions.

    Decision points are the start of a turn, each executed tool call, each answer and each grade, as in a live harness.

    Parameters
    ----------
    run : Run
        Any run; it is not changed. Observations and decisions of another regulator in it are left out, except for the
        user's corrections, which are repeated.
    regulator : Regulator
        The template. Each thread has a new task with its settings, each resource a copy of its learned state.
    grader : callable, optional
        Grades a reply (a `RecordedReply`, which is text) with its quality, 0 to 1, or None. Without it the recorded
        grades count; with it only the grader's.
    stop : bool
        Cut a thread at the turn that would have been stopped: the turn ends as ``"aborted"`` with the suggestion as its
        text, and later events of that thread are left out. By default everything is kept and only marked.
    layer_id : str
        The layer id under which the decisions are recorded.

    Returns
    -------
    Run
        The recorded events with ``RegulatorSaw`` and ``RegulatorDecided`` at the corresponding points. ``stops`` is
        True if a circuit break ends a turn; one between turns (a late grade) stops the next.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUN``; ``INVALID_REGULATOR`` if it is not a `Regulator`; ``INVALID_GRADE`` if the grader is not a function or
        returns anything but a number.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> replayed = replay_regulator(datasets.airline_run(26), Regulator.for_user("airline"))
    >>> stop = first_stop(replayed)
    >>> stop.turn, stop.decision["reason"]["tool_name"], stop.decision["reason"]["consecutive_count"]
    (4, 'get_reservation_details', 5)
    """
    check_run(run, "Only a run can be replayed.")
    checked_regulator(regulator)
    grades: object = grader
    if grades is not None and not callable(grades):
        hint = "It is called with each reply and returns its quality, 0 to 1, or None."
        raise NoeticConfigError("INVALID_GRADE", "A grader must be a function.", given=grades, hint=hint)
    about = {"of": run.run_id, "stop": stop, "graded": grader is not None, "layer_id": layer_id}
    meta = {**run.meta, "source": "replay", "replay": about, **_settings(regulator)}
    into = with_labels_of(Run(f"{run.run_id}-replay", meta=meta), run)
    replaying = RegulatorFeed(regulator, grader, into, layer_id)
    stopped: set[str] = set()
    # A copy, because a run may still be recorded into.
    events = tuple(run.events)
    replaying.expect(events)
    for event in events:
        if event.where.thread_id in stopped:
            continue
        for decided in replaying.take(event):
            if stop and decided.stops:
                _cut(into, decided, event.t_ms)
                stopped.add(event.where.thread_id)
                break
    # Without planned requests, a regulator takes no tokens from layers.
    unknown = (
        OpenPoints(run).unknown(regulator=True)
        if run.select(ViewAssembled)
        else Unknown(is_given=True, scope="resource")
    )
    note_known(into, horizon(run, tuple(into.events), unknown))
    return into


def first_stop(run: Run) -> StopPoint | None:
    """Return the point where a regulator first stops a run; None if it never does.

    Parameters
    ----------
    run : Run
        A replayed run, or a live one with a regulation layer.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUN``.
    """
    for position, event in enumerate(check_run(run, "Only a run has a first stop.").events):
        if isinstance(event, RegulatorDecided) and event.stops:
            return StopPoint(event.where.turn, position, event.decision, event.suggestion or "")
    return None
