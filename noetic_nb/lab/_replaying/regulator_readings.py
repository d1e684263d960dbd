"""A run read once for many regulators: the decisions of each at every moment, and the run that it would make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from noetic_nb._core.cards import Card, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RegulatorDecided, RunEvent, SteeringDecided
from noetic_nb.lab._replaying.added_decisions import DecisionsAdded, fed_events
from noetic_nb.lab._replaying.open_replay import OpenPoints, layers_in
from noetic_nb.lab._replaying.recorded_tape import checked_run
from noetic_nb.lab._replaying.redecide import DecisionsAgain, denied_calls, was_regulated
from noetic_nb.lab._replaying.regulator_template import RegulatorTemplate
from noetic_nb.lab._replaying.replay_report import Kept, actions_of, horizon, kinds_of, note_known
from noetic_nb.layers._regulator_layer import regulator_of
from noetic_nb.models._client import ModelClient, check_clients
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._events.event_json import settled
from noetic_nb.runs._regulation.recorded_decisions import DecisionTape, Redecided, tape_of
from noetic_nb.runs._run import run_of_settled
from noetic_nb.steering._layer import rulebook_of
from noetic_nb.tokenizers._named import asked_tokenizer
from noetic_nb.tokens import Tokenizer

__all__ = ["RegulatorReadings"]


class _SharedReading:
    """The events that one regulator reads from the run, shared by all that read alike."""

    def __init__(self, template: RegulatorTemplate) -> None:
        self.template = template
        self.tape: DecisionTape | None = None
        self.again: DecisionsAgain | None = None
        self.added: DecisionsAdded | None = None


def _with_events(run: Run, instead: Mapping[int, RunEvent | tuple[RunEvent, ...]]) -> Run:
    """Return an independent run with other events at some places: one each, several, or none."""
    events: list[RunEvent] = list(run.events)
    # From the end, so that places in front stay what they are.
    for place in sorted(instead, reverse=True):
        event = instead[place]
        events[place : place + 1] = map(settled, event if isinstance(event, tuple) else (event,))
    return run_of_settled(run.run_id, run.meta, events)


@with_card
class RegulatorReadings:
    """The reading of one run, shared by regulators that differ in their predicates.

    Events are fed once for all regulators that read alike (topics, turns, learning); a predicate that the last regulator had in
    the same place is not evaluated again. Rules, plans and layers do not depend on a regulator: they are worked out once.

    Parameters
    ----------
    run : Run
        Any run that has all of its turns. Where a regulator decided in it, the moments are those of its decisions.
    rules, budgets, projection, layers, model, tokenizer
        What else is another than it was, as in `replay`.

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
        # What enforces is evaluated as rules and a regulator are, and offers what it did.
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
        self._is_watched = was_regulated(run)
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
            ``NO_REGULATOR`` where there was none, or the run does not say how it was set up.
        """
        return self._as_recorded()[0].template

    def decide(self, regulator: Regulator | RegulatorTemplate) -> list[Redecided]:
        """Return every decision of a regulator, in the order of the run.

        Where nothing decided in the run, what was `recorded` is a decision to go on.

        Raises
        ------
        NoeticConfigError
            ``INVALID_REGULATOR`` if it is none.
        """
        template = _template(regulator)
        return self._tape(self._reading(template)).decide_under(template.settings)

    def first_stop(self, regulator: Regulator | RegulatorTemplate) -> Redecided | None:
        """Return the first decision that would have stopped a turn, None where there is none."""
        return next((moment for moment in self.decide(regulator) if moment.stops), None)

    def replay(self, regulator: Regulator | RegulatorTemplate | None = None) -> Run:
        """Return the run as `replay` gives it: under a regulator, or under the recorded one.

        Raises
        ------
        NoeticConfigError
            ``INVALID_REGULATOR`` if it is none, and what `replay` raises for the other changes.
        """
        given = self._of_layer if regulator is None else regulator
        template = None if given is None else _template(given)
        if self._points is None:
            self._points = OpenPoints(self.run, **self._changes)
        points, kept = self._points, self._points.kept.copy()
        if self._is_watched:
            made = self._decided_again(template, kept)
            instead: dict[int, Any] = {
                points.places[seq]: () if event is None else event
                for seq, event in made.items()
                if seq not in points.decided
            }
            for seq, denied in denied_calls(self.run, made).items():
                place = points.places[seq]
                instead[place] = denied, points.run.events[place]
            into = _with_events(points.run, instead)
        elif template is None:
            into = _with_events(points.run, {})
        else:
            added = self._added(self._reading(template), points)
            into = _with_events(added.run, added.under(template))
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
        # All else in the summary is the same under every regulator.
        about["decisions"]["after"] = actions_of(events)
        about["regulator"]["after"] = kinds_of(events)
        note_known(into, horizon(self.run, events, points.unknown(regulator=template is not None)))
        return into

    def _decided_again(
        self, template: RegulatorTemplate | None, kept: Kept
    ) -> dict[int, RegulatorDecided | SteeringDecided | None]:
        if template is not None:
            reading = self._reading(template)
            if reading.again is None:
                reading.again = DecisionsAgain(self.run, self._tape(reading))
            return reading.again.under(template, kept)
        try:
            again = self._as_recorded()[1]
        except NoeticConfigError as error:
            if error.code != "NO_REGULATOR":
                raise
            for seq, event in enumerate(self.run.events):
                if isinstance(event, RegulatorDecided):
                    kept.add("regulator", "its settings are not in the run", seq)
            return {}
        return again.under(None, kept)

    def _as_recorded(self) -> tuple[DecisionTape, DecisionsAgain]:
        if self._recorded is None:
            tape = tape_of(self.run)
            self._recorded = tape, DecisionsAgain(self.run, tape)
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

    def _added(self, reading: _SharedReading, points: OpenPoints) -> DecisionsAdded:
        if reading.added is None:
            fed = fed_events(points.run.events, reading.template)
            if reading.tape is None:  # other rules or plans are nothing to a regulator
                reading.tape = _read(fed, reading.template)
            reading.added = DecisionsAdded(Run(points.run.run_id, meta=points.run.meta, events=fed), reading.tape)
        return reading.added


def _template(regulator: Any) -> RegulatorTemplate:
    return regulator if isinstance(regulator, RegulatorTemplate) else RegulatorTemplate.of(regulator)


def _read(fed: Iterable[RunEvent], template: RegulatorTemplate) -> DecisionTape:
    tape = DecisionTape(template.regulator())
    for event in fed:
        tape.append(event)
    return tape
