"""A person, and snapshots: the persistent part of a regulator, as JSON compatible with the compiled original.

A snapshot contains text written by a user: treat it as personal data. In release form it loses what the original loses:
corrections below the threshold, all but the newest three of the others, and the settings. The form ``"everything"`` keeps
them in one extra key, which the original ignores.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NoReturn

from noetic_nb.regulator._measures.corrections import CorrectionStore
from noetic_nb.regulator._session import Learned, Rate, Session
from noetic_nb.regulator._settings import RELEASE_SETTINGS, Settings, SnapshotForm
from noetic_nb.regulator.decisions import CorrectionPattern, body_of
from noetic_nb.regulator.events import U32_MAX, U64_MAX, shown


@dataclass(slots=True, eq=False)
class Person:
    """The memory of a person: correction texts by topic cluster, and learned success of strategies. Never mix two people."""

    user_id: str
    corrections: CorrectionStore = field(default_factory=CorrectionStore)
    session: Session = field(default_factory=Session)

    def replace(self, other: Person) -> None:
        """Copy another memory into this one; regulators that share this one use it from now on."""
        version = max(self.corrections.version, other.corrections.version) + 1
        taken = other.copy()  # a copy, so that the two never share data by accident
        self.user_id, self.corrections, self.session = taken.user_id, taken.corrections, taken.session
        self.corrections.version = version  # never decreases, so that cached decisions become stale

    def copy(self, *, user_id: str | None = None) -> Person:
        """Return an independent person with the same memory."""
        return Person(self.user_id if user_id is None else user_id, self.corrections.copy(), self.session.copy())


EXTRA_KEY: Final = "noetic_nb"
"""The key of settings and of corrections below the threshold."""
EXTRA_VERSION: Final = 1  # of the extra key; increased when an older reader could misread it


@dataclass(frozen=True, slots=True)
class RegulatorState:
    """One snapshot.

    Parameters
    ----------
    user_id : str
        The user it belongs to.
    learned : Learned
        Success of strategies by topic cluster.
    correction_patterns : mapping of str to CorrectionPattern
        By topic cluster; at least three corrections each, newest three as examples.
    extra : mapping, optional
        Settings and complete corrections, if the snapshot keeps everything.

    Examples
    --------
    >>> print(RegulatorState("ann").to_json())
    {"user_id":"ann","learned":{"gain_mode":"neutral","tick":0,"response_success":{},"response_strategies":{}},"correction_patterns":{}}
    >>> RegulatorState.from_json(RegulatorState("ann").to_json()) == RegulatorState("ann")
    True
    """

    user_id: str
    learned: Learned = field(default_factory=Learned)
    correction_patterns: Mapping[str, CorrectionPattern] = field(default_factory=dict)
    extra: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; fields in the format's order, map entries sorted."""
        learned = self.learned
        data: dict[str, Any] = {
            "user_id": self.user_id,
            "learned": {
                "gain_mode": learned.gain_mode,
                "tick": learned.tick,
                "response_success": {
                    key: _rate(learned.response_success[key]) for key in sorted(learned.response_success)
                },
                "response_strategies": {
                    key: {name: _rate(rates[name]) for name in sorted(rates)}
                    for key, rates in sorted(learned.response_strategies.items())
                },
            },
            "correction_patterns": {
                key: body_of(self.correction_patterns[key]) for key in sorted(self.correction_patterns)
            },
        }
        if self.extra is not None:
            data[EXTRA_KEY] = dict(self.extra)
        return data

    def to_json(self) -> str:
        """Return the snapshot as compact JSON text."""
        return _ENCODER.encode(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> RegulatorState:
        """Parse a snapshot written by this library or by the original.

        Parameters
        ----------
        text : str
            JSON text. Unknown keys are ignored at every level.

        Raises
        ------
        TypeError
            If `text` is not a string.
        ValueError
            If it is not JSON, or a key is missing, repeated, or of the wrong type or range; the message names the key.
        """
        if not isinstance(text, str):
            raise TypeError(f"A snapshot must be a string. Given: {type(text).__name__}.")
        try:
            data = _DECODER.decode(text)
        except RecursionError as exc:
            raise ValueError("The snapshot is nested too deeply. Give the text that export_json returned.") from exc
        except json.JSONDecodeError as exc:
            raise ValueError(
                f"The snapshot is not valid JSON: {exc}. Given: {text!r:.80}. Give the text that export_json returned."
            ) from exc
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: object) -> RegulatorState:
        """Parse a snapshot from parsed JSON; raises as `from_json` does."""
        root = _object(data, "the snapshot", ("user_id", "learned", "correction_patterns"))
        learned = _object(_need(root, "learned", ""), "learned", _LEARNED_KEYS)
        extra = root.get(EXTRA_KEY)
        return cls(
            user_id=_text(_need(root, "user_id", ""), "user_id"),
            learned=Learned(
                gain_mode=_gain(_need(learned, "gain_mode", "learned.")),
                tick=_whole(_need(learned, "tick", "learned."), "learned.tick", U32_MAX),
                response_success=_map(
                    _need(learned, "response_success", "learned."), "learned.response_success", _read_rate
                ),
                response_strategies=_map(
                    _need(learned, "response_strategies", "learned."), "learned.response_strategies", _read_rates
                ),
            ),
            correction_patterns=_map(
                _need(root, "correction_patterns", "", default={}), "correction_patterns", _read_pattern
            ),
            extra=None if extra is None else _object(_plain(extra), EXTRA_KEY),
        )


class _Repeating(dict[str, Any]):
    """A JSON object with repeated keys: an error in a record, harmless in a map."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: tuple[tuple[str, Any], ...]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.repeated = frozenset(key for key, count in counts.items() if count > 1)


def _fields(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    # The lengths only differ if a key is repeated; count keys only then.
    record = dict(pairs)
    return record if len(record) == len(pairs) else _Repeating(pairs)


def _plain(value: Any) -> Any:
    """Convert the decoder's tuples back to dicts recursively."""
    if isinstance(value, tuple):
        return {key: _plain(item) for key, item in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"The snapshot holds {name}, which is not JSON. Give the text that export_json returned.")


def _integer(digits: str) -> int | float:
    # "-0" is a float in the format; an integer of more than 400 digits is invalid anyway, and slow to parse.
    return float(digits) if digits == "-0" or len(digits) > 400 else int(digits)


# Objects become tuples of pairs, so that repeated keys can be detected; lists stay lists.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_DECODER: Final = json.JSONDecoder(object_pairs_hook=tuple, parse_constant=_no_constant, parse_int=_integer)


def _rate(rate: Rate) -> dict[str, Any]:
    return {"success_rate": rate.success_rate, "count": rate.count}


def _wrong(path: str, wanted: str, value: object) -> ValueError:
    return ValueError(f"Snapshot key `{path}` must be {wanted}. Given: {shown(value)}.")


def _object(value: object, path: str, order: Sequence[str] = ()) -> Mapping[str, Any]:
    if isinstance(value, tuple):
        return _fields(value)
    if isinstance(value, Mapping):
        return value
    # The original also accepts a record as the list of its fields.
    if order and isinstance(value, list) and len(value) <= len(order):
        return dict(zip(order, value, strict=False))
    raise _wrong(path, "an object", value)


def _need(record: Mapping[str, Any], key: str, path: str, *, default: object = None) -> Any:
    if isinstance(record, _Repeating) and key in record.repeated:
        raise ValueError(f"Snapshot key `{path}{key}` appears more than once. Remove one of them.")
    if key not in record:
        if default is not None:
            return default
        raise ValueError(f"Snapshot key `{path}{key}` is missing. Keys given: {sorted(map(str, record))!r:.120}.")
    return record[key]


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            raise _wrong(path, "text without lone surrogates", value) from exc
    return value


def _whole(value: object, path: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _wrong(path, f"an integer from 0 to {most}", value)
    return value


def _real(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(path, "a number", value)
    # JSON has integers too large for a double.
    try:
        number = float(value)
    except OverflowError as exc:
        raise _wrong(path, "a number that fits a double", "an integer with too many digits") from exc
    if not math.isfinite(number):
        raise _wrong(path, "a finite number", value)
    return number


def _gain(value: object) -> Any:
    if isinstance(value, tuple) and len(value) == 1 and value[0][1] is None:  # the original's other spelling of a name
        value = value[0][0]
    if not isinstance(value, str) or value not in ("phasic", "tonic", "neutral"):
        raise _wrong("learned.gain_mode", "'phasic', 'tonic' or 'neutral'", value)
    return value


def _map(value: object, path: str, read: Callable[[object, str, str], Any]) -> dict[str, Any]:
    pairs = value if isinstance(value, tuple) else _object(value, path).items()
    entries: dict[str, Any] = {}
    for key, item in pairs:
        if not key.isascii():
            _text(key, path)
        entries[key] = read(item, path, key)
    return entries


def _read_rates(value: object, above: str, key: str) -> dict[str, Rate]:
    return _map(value, f"{above}.{key}", _read_rate)


def _read_rate(value: object, above: str, key: str) -> Rate:
    path = f"{above}.{key}"
    record = _object(value, path, ("success_rate", "count"))
    return Rate(
        _real(_need(record, "success_rate", f"{path}."), f"{path}.success_rate"),
        _whole(_need(record, "count", f"{path}."), f"{path}.count", U32_MAX),
    )


_LEARNED_KEYS: Final = ("gain_mode", "tick", "response_success", "response_strategies")
_PATTERN_KEYS: Final = tuple(each.name for each in fields(CorrectionPattern))


def _read_pattern(value: object, above: str, key: str) -> CorrectionPattern:
    path = f"{above}.{key}"
    record = _object(value, path, _PATTERN_KEYS)
    inside = f"{path}."
    examples = _need(record, "example_corrections", inside, default=[])
    # Not a tuple: the decoder converts objects to tuples.
    if not isinstance(examples, list):
        raise _wrong(f"{inside}example_corrections", "a list of strings", examples)
    return CorrectionPattern(
        user_id=_text(_need(record, "user_id", inside), f"{inside}user_id"),
        topic_cluster=_text(_need(record, "topic_cluster", inside), f"{inside}topic_cluster"),
        pattern_name=_text(_need(record, "pattern_name", inside), f"{inside}pattern_name"),
        learned_from_turns=_whole(_need(record, "learned_from_turns", inside), f"{inside}learned_from_turns", U64_MAX),
        confidence=_real(_need(record, "confidence", inside), f"{inside}confidence"),
        example_corrections=tuple(_text(item, f"{inside}example_corrections") for item in examples),
    )


def snapshot(person: Person, settings: Settings, form: SnapshotForm) -> RegulatorState:
    """Return the persistent part of a person; the form ``"everything"`` includes the settings."""
    if form not in ("release", "everything"):
        raise ValueError(f"`snapshots` must be 'release' or 'everything'. Given: {form!r}.")
    extra: dict[str, Any] | None = None
    if form == "everything":
        store = person.corrections
        extra = {
            "version": EXTRA_VERSION,
            "settings": settings.to_dict(),
            # A list, because the order of use determines which cluster is dropped first.
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
    """Return the person and settings of a snapshot; `named` has user-defined scorers and predicates. Raises ValueError."""
    extra = state.extra if use_extra else None
    # Snapshots of the original have no settings.
    settings = RELEASE_SETTINGS
    if extra is not None and isinstance(extra.get("settings"), Mapping):
        settings = Settings.from_dict(extra["settings"], named=named)
    store = CorrectionStore.of(_texts(state, extra))
    learned = state.learned.copy()
    return Person(state.user_id, store, Session(learned, topics=settings.topics)), settings


def _texts(state: RegulatorState, extra: Mapping[str, Any] | None) -> list[tuple[str, Sequence[str]]]:
    kept = None if extra is None else extra.get("corrections")
    if kept is None:
        # The map's key is the cluster; the other fields of a pattern are recomputed, as in the original.
        return [(key, found.example_corrections[::-1]) for key, found in state.correction_patterns.items()]
    path = f"{EXTRA_KEY}.corrections"
    if not isinstance(kept, list):
        raise _wrong(path, "a list", kept)
    for entry in kept:
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], list)):
            raise _wrong(path, "a list of [cluster, texts]", entry)
        if not all(isinstance(text, str) for text in (entry[0], *entry[1])):
            raise _wrong(path, "a list of [cluster, texts], all of them strings", entry)
    return [(cluster, texts) for cluster, texts in kept]
