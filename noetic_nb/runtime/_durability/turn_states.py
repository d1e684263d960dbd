"""The states of layers as each turn left them, kept beside the parts of a thread so that one can go back to any of them.

A state is written where it has changed, under ``thread:<id>:states:<8 digits>`` with the number of its part; each part names,
by layer, the number under which its state is. So a thread is read without any state, and who goes back reads those of one
turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from noetic_nb.items import thaw

__all__ = ["KeptStates", "NewStates"]

# Parts one can go back to; docs/behaviour/durability.md, "Constants".
MAX_PARTS: Final = 1_000


class NewStates(NamedTuple):
    """The layers' states that are written together with a part.

    `places` is, by layer, the number under which the state of that moment is, None where it is no JSON data; `changed` the
    states that are written now; `gone` the numbers that no part one can go back to names any more.
    """

    places: dict[str, int | None]
    changed: dict[str, Any]
    gone: tuple[int, ...]
    states: dict[str, Any]


_NOTHING: Final = NewStates({}, {}, (), {})


@dataclass(slots=True)
class KeptStates:
    """Which states of a thread are in storage, and which parts name them."""

    places: dict[str, int | None] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    # By number, the last part that names it. In that order, so that the oldest are found without a search.
    named_by: dict[int, int] = field(default_factory=dict)

    def next(self, number: int, states: Mapping[str, Any]) -> NewStates:
        """Return the states to be written with part `number`; nothing has changed yet."""
        if not (states or self.named_by):
            return _NOTHING
        places: dict[str, int | None] = {}
        changed: dict[str, Any] = {}
        for layer_id, state in states.items():
            if layer_id in self.places and self.states.get(layer_id) is state:
                places[layer_id] = self.places[layer_id]
                continue
            plain = _plain(state)
            if plain is None:
                places[layer_id] = None
            elif self.places.get(layer_id) is not None and self.states.get(layer_id) == state:
                places[layer_id] = self.places[layer_id]
            else:
                places[layer_id], changed[layer_id] = number, plain
        gone = []
        for old, last in self.named_by.items():
            if last > number - MAX_PARTS:
                break
            if old not in places.values():
                gone.append(old)
        return NewStates(places, changed, tuple(gone), dict(states))

    def written(self, number: int, new: NewStates) -> None:
        """Count the states that were written with a part."""
        if new.places or self.places:
            self.read(number, new.places)
        self.states = new.states
        for old in new.gone:
            self.named_by.pop(old, None)

    def read(self, number: int, places: Mapping[str, int | None]) -> None:
        """Count the states that a part in storage names; their contents are not known."""
        self.places, self.states = dict(places), {}
        for place in set(places.values()):
            if place is not None:
                self.named_by.pop(place, None)
                self.named_by[place] = number


def _plain(state: Any) -> Any:
    """Return a state as JSON data, None for one that is not: the part must not fail for it."""
    try:
        plain = thaw(state)
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return plain
