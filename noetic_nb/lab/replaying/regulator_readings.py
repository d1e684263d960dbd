"""A run read once for many regulators: what each of them would decide at every moment."""

from __future__ import annotations

from noetic_nb.cards import Card, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab.replaying.recorded_tape import checked_run
from noetic_nb.regulator import Regulator
from noetic_nb.regulator.settings import RELEASE_SETTINGS
from noetic_nb.runs import Run
from noetic_nb.runs.regulator_tape import DecisionTape, Redecided, tape_of

__all__ = ["RegulatorReadings"]


@with_card
class RegulatorReadings:
    """The reading of one run, shared by regulators that differ in their predicates.

    Events are fed once for all regulators that read alike (topics, turns, learning); a predicate that the last regulator had in
    the same place is not evaluated again.

    Parameters
    ----------
    run : Run
        Any run that has all of its turns. Where a regulator decided in it, the moments are those of its decisions.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> from noetic_nb.regulator import ToolLoop
    >>> readings = RegulatorReadings(datasets.airline_run(26))
    >>> loops = [Regulator.for_user("ann").with_predicates(ToolLoop(threshold=times)) for times in (5, 50)]
    >>> [readings.first_stop(regulator) is None for regulator in loops]
    [False, True]
    """

    def _card(self) -> Card:
        return Card("RegulatorReadings", facts=[("run", self.run)])

    def __init__(self, run: Run) -> None:
        self.run = checked_run(run)
        # With what their regulator has learned, which is part of what is read.
        self._tapes: list[tuple[str, DecisionTape]] = []

    def decide(self, regulator: Regulator) -> list[Redecided]:
        """Return every decision of a regulator, in the order of the run.

        Raises
        ------
        NoeticConfigError
            ``INVALID_REGULATOR`` if it is none.
        """
        if not isinstance(regulator, Regulator):
            raise NoeticConfigError(
                "INVALID_REGULATOR", "That is no regulator.", given=regulator, hint="Use Regulator.for_user(name)."
            )
        learned = _known(regulator)
        for known, tape in self._tapes:
            if known == learned:
                try:
                    return tape.decide_under(regulator.settings)
                except NoeticConfigError as error:
                    if error.code != "OTHER_READING":
                        raise
        tape = tape_of(self.run, regulator)
        self._tapes.append((learned, tape))
        return tape.decide({})

    def first_stop(self, regulator: Regulator) -> Redecided | None:
        """Return the first decision that would have stopped a turn, None where there is none."""
        return next((moment for moment in self.decide(regulator) if moment.stops), None)


def _known(regulator: Regulator) -> str:
    """Return what a regulator has learned, as text."""
    return Regulator(regulator.person, RELEASE_SETTINGS).export_json("everything")
