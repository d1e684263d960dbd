"""A regulator as it is now, with the parts that are the same in all replayed runs worked out once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import freeze
from noetic_nb.regulator import Regulator
from noetic_nb.regulator._person import Person
from noetic_nb.regulator._settings import RELEASE_SETTINGS, Settings

__all__ = ["RegulatorTemplate"]


@dataclass(frozen=True, slots=True)
class RegulatorTemplate:
    """Settings and memory of a regulator; it learns nothing, and later learning of its regulator does not reach it.

    Build one with `of`.

    Examples
    --------
    >>> template = RegulatorTemplate.of(Regulator.for_user("ann").with_cost_cap(900))
    >>> template.cost_cap, template.thresholds["tool_loop"]["threshold"]
    (900, 5)
    """

    person: Person
    settings: Settings
    learned: str
    """What the person has taught it, as text."""
    thresholds: Mapping[str, Any]
    """The numbers in force, as a decision records them."""
    cost_cap: int | None

    @classmethod
    def of(cls, regulator: Regulator) -> Self:
        """Return the template of a regulator.

        Raises
        ------
        NoeticConfigError
            ``INVALID_REGULATOR`` if it is none.
        """
        if not isinstance(regulator, Regulator):
            raise NoeticConfigError(
                "INVALID_REGULATOR", "That is no regulator.", given=regulator, hint="Use Regulator.for_user(name)."
            )
        person = regulator.person.copy()
        # Of a copy, as a regulator lays its settings upon its person.
        learned = Regulator(person.copy(), RELEASE_SETTINGS).export_json("everything")
        return cls(person, regulator.settings, learned, freeze(regulator.thresholds), regulator.cost_cap_tokens())

    def with_settings(self, settings: Settings) -> Self:
        """Return the template of a regulator with the same memory and other settings."""
        numbers = Regulator(Person("numbers"), settings)
        return type(self)(self.person, settings, self.learned, freeze(numbers.thresholds), numbers.cost_cap_tokens())

    def with_numbers_of(self, other: RegulatorTemplate) -> Self:
        """Return the template of a regulator with the same memory and the settings of another."""
        return type(self)(self.person, other.settings, self.learned, other.thresholds, other.cost_cap)

    def regulator(self) -> Regulator:
        """Return a regulator with these settings and this memory."""
        return Regulator(self.person.copy(), self.settings)

    def reads_as(self, other: RegulatorTemplate) -> bool:
        """Tell whether both regulators read the same from a run: they differ in predicates only."""
        return self.learned == other.learned and self.settings.reads_as(other.settings)
