"""Turning a person and settings into a snapshot and back.

Release form loses what the original loses: corrections below the threshold, all but the newest three of the others, and
the settings. The other form keeps them in an extra key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noetic_nb.regulator.measures.corrections import CorrectionStore
from noetic_nb.regulator.person import Person
from noetic_nb.regulator.session.session import Session
from noetic_nb.regulator.settings import RELEASE_SETTINGS, Settings, SnapshotForm
from noetic_nb.regulator.state import EXTRA_KEY, RegulatorState

__all__ = ["restore", "snapshot"]

_VERSION = 1


def snapshot(person: Person, settings: Settings, form: SnapshotForm) -> RegulatorState:
    """Return what survives of a person, and with the form ``"everything"`` of the settings too."""
    if form not in ("release", "everything"):
        raise ValueError(f"A snapshot keeps 'release' or 'everything'. Given: {form!r}.")
    extra: dict[str, Any] | None = None
    if form == "everything":
        store = person.corrections
        extra = {
            "version": _VERSION,
            "settings": settings.to_dict(),
            # A list, because the order of use decides which cluster is forgotten first.
            "corrections": [[cluster, list(store.texts(cluster))] for cluster in store.clusters()],
        }
    return RegulatorState(
        user_id=person.user_id,
        learned=person.session.learned.copy(),
        correction_patterns=person.corrections.patterns(person.user_id),
        extra=extra,
    )


def restore(
    state: RegulatorState, *, use_extra: bool = True, named: Mapping[str, Any] | None = None
) -> tuple[Person, Settings]:
    """Return the person and the settings of a snapshot.

    Parameters
    ----------
    state : RegulatorState
        The snapshot.
    use_extra : bool
        False reads it as the original does.
    named : mapping of str to object, optional
        Scorers and predicates of one's own, by name.

    Raises
    ------
    ValueError
        If the extra key is malformed; the message names the key.
    """
    extra = state.extra if use_extra else None
    settings = RELEASE_SETTINGS
    if extra is not None and isinstance(extra.get("settings"), Mapping):
        settings = Settings.from_dict(extra["settings"], named=named)
    store = CorrectionStore.of(_texts(state, extra))
    learned = state.learned.copy()
    return Person(state.user_id, store, Session(learned, topics=settings.topics)), settings


def _texts(state: RegulatorState, extra: Mapping[str, Any] | None) -> list[tuple[str, Sequence[str]]]:
    kept = None if extra is None else extra.get("corrections")
    if kept is None:
        # The map's key decides the cluster; what a pattern says about itself is recomputed, as in the original.
        return [(key, found.example_corrections[::-1]) for key, found in state.correction_patterns.items()]
    if not isinstance(kept, list):
        raise ValueError(f"Snapshot key `{EXTRA_KEY}.corrections` must be a list. Given: {kept!r:.80}.")
    for entry in kept:
        if not (
            isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], list)
        ):
            raise ValueError(
                f"Snapshot key `{EXTRA_KEY}.corrections` must hold [cluster, texts]. Given: {entry!r:.80}."
            )
        if not all(isinstance(text, str) for text in entry[1]):
            raise ValueError(f"Snapshot key `{EXTRA_KEY}.corrections` must hold texts. Given: {entry[1]!r:.80}.")
    return [(cluster, texts) for cluster, texts in kept]
