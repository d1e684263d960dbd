"""The regulator whose decisions a run has: its settings, as far as the run says them.

They are in the configuration that the run was made with, in the state of the layer, or beside a replay. Where none is kept, the
names and numbers of the thresholds in force are left: enough for the presets and for predicates that are data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from noetic_nb.events import LayerStateChanged, RegulatorDecided, RunEvent
from noetic_nb.items._json_text import compact_json
from noetic_nb.regulator import Regulator
from noetic_nb.regulator._person import Person
from noetic_nb.regulator._settings import NEWER_SETTINGS, RECOMMENDED_SETTINGS, RELEASE_SETTINGS, Settings
from noetic_nb.regulator.predicates import Predicate
from noetic_nb.regulator.predicates.explanation import names_of

__all__ = ["as_recorded", "kept_regulator", "recorded_regulators"]

LAYER_KIND: Final = "regulation"
PRESETS: Final = (RELEASE_SETTINGS, NEWER_SETTINGS, RECOMMENDED_SETTINGS)


def recorded_regulators(run: Any) -> list[Regulator]:
    """Return regulators as the first one that decided in a run may have been: one where the run says, none where nothing decided.

    Several where only thresholds are kept and several presets have them: what they decide tells them apart.

    Examples
    --------
    >>> from noetic_nb.lab import datasets, replay_regulator
    >>> run = replay_regulator(datasets.airline_run(26), Regulator.for_user("ann").with_cost_cap(900))
    >>> [found.thresholds["cost_cap"]["tokens_out"] for found in recorded_regulators(run)]
    [900]
    """
    first = next((event for event in run.events if isinstance(event, RegulatorDecided)), None)
    if first is None:
        return []
    kept = kept_regulator(run, first)
    if kept is not None:
        return [kept]
    return [Regulator(Person("recorded"), settings) for settings in _like(first.thresholds)]


def kept_regulator(run: Any, decided: RegulatorDecided) -> Regulator | None:
    """Return a regulator with the settings that a run keeps of the one that decided; None where it keeps none."""
    for person, settings in _kept(run, decided.layer_id):
        if _same_names(settings, decided.thresholds):
            return Regulator(person, as_recorded(settings, decided.thresholds))
    return None


def _kept(run: Any, layer_id: str) -> Iterator[tuple[Person, Settings]]:
    for state in _states(run, layer_id):
        try:
            found = Regulator.from_json(compact_json(state))
        except (TypeError, ValueError):
            continue  # settings that refer to code; another source may do without
        yield found.person, found.settings
    match getattr(run, "meta", None):
        case {"regulator": {"settings": Mapping() as data}}:
            try:
                yield Person("recorded"), Settings.from_dict(data)
            except (TypeError, ValueError):
                return


def _states(run: Any, layer_id: str) -> Iterator[Any]:
    match getattr(run, "bundle", None):
        case {"config": {"memory": list() | tuple() as layers}}:
            for layer in layers:
                match layer:
                    case {"kind": "regulation", "options": {"regulator": state, **options}}:
                        if options.get("id", LAYER_KIND) == layer_id:
                            yield state
    events: Iterable[RunEvent] = run.events
    for event in events:
        if type(event) is LayerStateChanged and event.layer_id == layer_id and isinstance(event.state, Mapping):
            # Only the complete form of a state has settings; all states of a layer have one form.
            if "noetic_nb" in event.state:
                yield event.state
            return


def _same_names(settings: Settings, thresholds: Mapping[str, Any]) -> bool:
    return not thresholds or set(names_of(settings.predicates)) == set(thresholds)


def as_recorded(settings: Settings, thresholds: Mapping[str, Any]) -> Settings:
    """Return settings with the numbers that were in force; as they are where the numbers are not theirs."""
    try:
        return settings.with_thresholds({name: numbers for name, numbers in thresholds.items() if numbers})
    except (KeyError, TypeError, ValueError, AttributeError):
        return settings


def _like(thresholds: Mapping[str, Any]) -> list[Settings]:
    if not thresholds:
        return []
    presets = [as_recorded(preset, thresholds) for preset in PRESETS if _same_names(preset, thresholds)]
    if presets:
        return presets
    built = [_predicate(name, numbers) for name, numbers in thresholds.items()]
    known = [predicate for predicate in built if predicate is not None]
    return [replace(RELEASE_SETTINGS, predicates=tuple(known))] if len(known) == len(built) else []


def _predicate(name: str, numbers: Any) -> Predicate | None:
    """Return a predicate by its name and numbers; None for one of another's own."""
    kind, _, rest = name.partition("(")
    data: dict[str, Any] = {"kind": kind.partition(" #")[0]}
    if not isinstance(numbers, Mapping):
        return None
    for word in rest.partition(")")[0].split(", ") if rest else ():
        key, equals, value = word.partition("=")
        data[key] = value if equals else True
    for key, number in numbers.items():
        field, _, inside = key.partition(".")
        if inside:
            data.setdefault(field, {})[inside] = number
        else:
            data[key] = number
    if kind.startswith("cost_cap"):
        data.setdefault("tokens_out", None)
        data.setdefault("poor_mean", None)
    scorer = data.pop("scorer", None)
    try:
        found = Settings.from_dict({"predicates": [data]}).predicates[0]
    except (TypeError, ValueError):
        return None
    return None if scorer is not None else found
