"""The complete configuration of a regulator, as data; user-defined predicates and scorers are code, stored by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.regulator import predicates as built_in
from noetic_nb.regulator._measures.topics import RANKED_TOPICS, RELEASE_TOPICS, RELEASE_WORDS, Topics, WordLists
from noetic_nb.regulator.predicates.call_budget import CallBudget
from noetic_nb.regulator.predicates.context_scorer import CONTEXT_SCORER, CONTEXT_THRESHOLD, ContextScorer
from noetic_nb.regulator.predicates.core import CostCap, ProceduralWarning, QualityDecline, ScopeDrift
from noetic_nb.regulator.predicates.drift import NEWER_KEYWORDS, RELEASE_KEYWORDS, DriftScorer, KeywordScorer
from noetic_nb.regulator.predicates.explanation import Predicate, fields_of, names_of, require_number, require_whole
from noetic_nb.regulator.predicates.low_confidence import LowConfidence
from noetic_nb.regulator.predicates.tool_loops import RepeatedFailure, ToolLoop

TurnRules: TypeAlias = Literal["release", "strict"]
"""How turns are separated. With strict turns, an ungraded reply is dropped when the next turn starts, a graded reply's
text is kept for `confidence` until then, grades are clamped before learning, non-finite grades are ignored, at most one
implicit correction counts per completed reply, and a text counts once per turn."""

SnapshotForm: TypeAlias = Literal["release", "everything"]
"""The content of a snapshot: the data of the original, or also settings and every correction."""

RELEASE_PREDICATES: Final[tuple[Predicate, ...]] = (
    CostCap(),
    QualityDecline(),
    ToolLoop(),
    ScopeDrift(),
    ProceduralWarning(),
)
"""The fixed priority of release 0.4.1."""

# Exporting a predicate registers it: there is no second list to maintain.
_PREDICATES: Final[dict[str, type[Any]]] = {
    cls.kind: cls for cls in map(vars(built_in).__getitem__, built_in.__all__) if cls is not Predicate
}


def _is_built_in(predicate: Predicate) -> bool:
    # The class itself: a subclass may have overridden `check`, which data cannot express.
    return _PREDICATES.get(predicate.kind) is type(predicate)


def _name_of(thing: object) -> str:
    name = next(filter(None, (getattr(thing, key, None) for key in ("name", "__name__", "kind"))), None)
    if not isinstance(name, str):
        raise ValueError(
            f"Only named predicates can be saved: {thing!r:.80} needs a `name`, by which a snapshot refers to it."
        )
    return name


@dataclass(frozen=True, slots=True)
class Settings:
    """Configuration of a regulator.

    Parameters
    ----------
    predicates : tuple of Predicate
        In order of priority; the first that holds decides.
    topics : Topics
        How clusters are computed from messages, for corrections and for learning.
    cluster_from : Topics
        Source of the correction cluster; equal to `topics` except for the rule of the newest original.
    turns : {"release", "strict"}
        How turns are separated.
    snapshots : {"release", "everything"}
        The default form of `export`.
    implicit_window_s : float, optional, seconds
        A message on the same topic this soon after a reply counts as a correction; None disables that.
    max_clusters : int, optional
        Most remembered topic clusters with corrections.
    """

    predicates: tuple[Predicate, ...] = RELEASE_PREDICATES
    topics: Topics = RELEASE_TOPICS
    turns: TurnRules = "release"
    snapshots: SnapshotForm = "release"
    implicit_window_s: float | None = None
    max_clusters: int | None = None
    cluster_from: Topics | None = None

    def __post_init__(self) -> None:
        if self.turns not in ("release", "strict"):
            raise ValueError(f"turns must be 'release' or 'strict'. Given: {self.turns!r}.")
        if self.snapshots not in ("release", "everything"):
            raise ValueError(f"snapshots must be 'release' or 'everything'. Given: {self.snapshots!r}.")
        if self.implicit_window_s is not None:
            require_number("implicit_window_s", self.implicit_window_s, 5e-324, 1.7976931348623157e308)
        if self.max_clusters is not None:
            require_whole("max_clusters", self.max_clusters, 1)
        own: dict[str, Predicate] = {}
        for predicate in self.predicates:
            if isinstance(predicate, type):
                raise TypeError(
                    f"Pass a predicate object, not its class. Given: {predicate.__name__}. Write {predicate.__name__}()."
                )
            if not (hasattr(predicate, "check") and hasattr(predicate, "explain") and hasattr(predicate, "kind")):
                raise TypeError(f"A predicate needs `kind`, `check` and `explain`. Given: {predicate!r}.")
            # Raise here and not when a snapshot is written, which may be days later.
            if not _is_built_in(predicate) and own.setdefault(_name_of(predicate), predicate) != predicate:
                raise ValueError(
                    f"Two predicates share the name {_name_of(predicate)!r}, by which snapshots refer to them. Given: "
                    f"{predicate!r:.80}. Give each a `name` of its own."
                )

    def with_cost_cap(self, tokens: int) -> Settings:
        """Return settings whose first cost cap has this many output tokens; if there is none, one is inserted first.

        A cost cap stops a task only if its grades are poor as well; see `with_token_cap`.
        """
        # The first one, because `Regulator.cost_cap_tokens` shows its cap.
        predicates = list(self.predicates)
        for place, predicate in enumerate(predicates):
            if isinstance(predicate, CostCap):
                predicates[place] = replace(predicate, tokens_out=tokens)
                break
        else:
            predicates.insert(0, CostCap(tokens_out=tokens))
        return replace(self, predicates=tuple(predicates))

    def with_token_cap(self, tokens: int) -> Settings:
        """Return settings that stop a task at this many output tokens regardless of its grades; replaces an earlier cap."""
        plain = [each for each in self.predicates if isinstance(each, CostCap) and each == _plain_cap(each.tokens_out)]
        rest = [each for each in self.predicates if each not in plain]
        return replace(self, predicates=(_plain_cap(tokens), *rest))

    def with_drift(self, **changes: Any) -> Settings:
        """Return settings with every scope-drift predicate changed; if there is none, one is appended."""
        changed = tuple(
            replace(predicate, **changes) if isinstance(predicate, ScopeDrift) else predicate
            for predicate in self.predicates
        )
        if not any(isinstance(predicate, ScopeDrift) for predicate in changed):
            changed = (*changed, ScopeDrift(**changes))
        return replace(self, predicates=changed)

    def with_thresholds(self, thresholds: Mapping[str, Mapping[str, float | None]]) -> Settings:
        """Return settings with other numbers in some predicates: the inverse of `Regulator.thresholds`.

        Parameters
        ----------
        thresholds : mapping of str to mapping of str to float
            New numbers by predicate, named as in `Regulator.thresholds`, and by the name of the number. None as a cap
            means no cap.

        Raises
        ------
        KeyError
            For a predicate or number that these settings do not have; the second argument lists the existing names.
        TypeError, ValueError
            If a number has the wrong type or is out of range.

        Examples
        --------
        >>> RELEASE_SETTINGS.with_thresholds({"scope_drift": {"threshold": 0.7}}).predicates[3].threshold
        0.7
        """
        names = names_of(self.predicates)
        for name in thresholds:
            if name not in names:
                raise KeyError(name, names)
        changed = tuple(
            _with_numbers(name, predicate, thresholds[name]) if thresholds.get(name) else predicate
            for name, predicate in zip(names, self.predicates, strict=True)
        )
        return replace(self, predicates=changed)

    def reads_as(self, other: Settings) -> bool:
        """Tell whether both derive the same evidence from events, so that only their predicates may differ.

        Examples
        --------
        >>> RELEASE_SETTINGS.reads_as(RELEASE_SETTINGS.with_cost_cap(5)), RELEASE_SETTINGS.reads_as(RECOMMENDED_SETTINGS)
        (True, False)
        """
        return all(getattr(self, name) == getattr(other, name) for name in _READING)

    def with_words(self, words: WordLists) -> Settings:
        """Return settings with other word lists, for clusters and for every keyword scorer."""
        changed = tuple(
            replace(predicate, scorer=replace(predicate.scorer, topics=replace(predicate.scorer.topics, words=words)))
            if isinstance(predicate, ScopeDrift) and isinstance(predicate.scorer, KeywordScorer)
            else predicate
            for predicate in self.predicates
        )
        source = self.cluster_from
        return replace(
            self,
            predicates=changed,
            topics=replace(self.topics, words=words),
            cluster_from=None if source is None else replace(source, words=words),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; a user-defined predicate or scorer is stored by `name`, a predicate without a name by `kind`."""
        return {
            "predicates": [_predicate_to_dict(predicate) for predicate in self.predicates],
            "topics": _topics_to_dict(self.topics),
            "turns": self.turns,
            "snapshots": self.snapshots,
            "implicit_window_s": self.implicit_window_s,
            "max_clusters": self.max_clusters,
            "cluster_from": None if self.cluster_from is None else _topics_to_dict(self.cluster_from),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, named: Mapping[str, Any] | None = None) -> Settings:
        """Parse settings.

        Parameters
        ----------
        data : mapping
            The result of `to_dict`; unknown keys are ignored, missing ones have default values.
        named : mapping of str to object, optional
            Your own scorers and predicates by name.

        Raises
        ------
        ValueError
            If a key has the wrong shape or a name is not in `named`; the message names the key.
        """
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        try:
            if "predicates" in known:
                known["predicates"] = tuple(_predicate_from_dict(item, named or {}) for item in known["predicates"])
            for key in ("topics", "cluster_from"):
                if known.get(key) is not None:
                    known[key] = _topics_from_dict(known[key])
            return cls(**known)
        # A wrong shape may cause any of these errors; report them all alike.
        except (TypeError, KeyError, AttributeError) as exc:
            raise ValueError(f"The settings of a snapshot cannot be read: {exc}. Given: {data!r:.160}.") from exc


def _plain_cap(tokens: int | None) -> CostCap:
    return CostCap(tokens_out=tokens, poor_mean=None)


_READING: Final = tuple(field.name for field in fields(Settings) if field.name != "predicates")

RELEASE_SETTINGS: Final = Settings()

NEWER_SETTINGS: Final = Settings(
    predicates=(CostCap(), QualityDecline(), ToolLoop(), ScopeDrift(scorer=NEWER_KEYWORDS), ProceduralWarning()),
    cluster_from=RANKED_TOPICS,
)
"""The newest original: ranked topics with prefix anchoring, and its rule for correction clusters."""

RECOMMENDED_SETTINGS: Final = Settings(
    predicates=(
        # Both need grades, which recorded runs do not have during the run: not measured.
        CostCap(),
        QualityDecline(),
        # A third more than `presets.most_calls` of any good run. Agents that write code or browse need a different limit.
        CallBudget(total=20),
        # A safeguard: an agent that repeats identical calls, or whose calls all fail, will not succeed.
        ToolLoop(threshold=3, by="call", across_turns=True),
        ToolLoop(threshold=3, by="call", period=2, across_turns=True),
        ToolLoop(threshold=3, by="call", period=3, across_turns=True),
        ToolLoop(threshold=3, by="result", across_turns=True),
        RepeatedFailure(threshold=3),
        ProceduralWarning(),
        LowConfidence(),
        # Last, because it only annotates a reply: it masks no other decision and never stops anything. A short reply, a first
        # turn or a conversation without tools has too little evidence for drift; three unknown details can be looked up.
        ScopeDrift(
            scorer=CONTEXT_SCORER,
            threshold=CONTEXT_THRESHOLD,
            min_words=20,
            min_earlier=1,
            min_tool_texts=1,
            min_drift_tokens=3,
        ),
    ),
    turns="strict",
    snapshots="everything",
    max_clusters=512,
)
"""The recommended settings: a budget of calls, identical calls as a safeguard, drift as an annotation, strict turns,
complete snapshots, limited memory. ``presets.describe()`` reports the measured effect."""


def _with_numbers(name: str, predicate: Predicate, numbers: Mapping[str, Any]) -> Predicate:
    record: Any = predicate
    values: dict[str, Any] = {item.name: getattr(record, item.name) for item in fields_of(record)}
    # A cap of None is a number as well; a choice such as `by` is not.
    known = [key for key, value in values.items() if value is None or _is_number(value)]
    limits = {key: dict(value) for key, value in values.items() if isinstance(value, Mapping)}
    known += [f"{key}.{inside}" for key, inner in limits.items() for inside in inner]
    changes: dict[str, Any] = {}
    for key, value in numbers.items():
        if key not in known:
            raise KeyError(f"{name}.{key}", tuple(f"{name}.{each}" for each in known))
        number = value
        if _is_number(value):
            number = int(value) if isinstance(value, Integral) else float(value)
        field, _, inside = key.partition(".")
        if inside:
            limits[field][inside] = number
            changes[field] = limits[field]
        else:
            changes[key] = number
    built: Predicate = replace(record, **changes)
    return built


def _is_number(value: object) -> bool:
    # In Python `True` is a number, but not a valid setting.
    return isinstance(value, Real) and not isinstance(value, bool)


def _predicate_to_dict(predicate: Predicate) -> dict[str, Any]:
    if not _is_built_in(predicate):
        return {"$ref": _name_of(predicate)}
    body: dict[str, Any] = {f.name: getattr(predicate, f.name) for f in fields(_PREDICATES[predicate.kind])}
    if isinstance(predicate, CallBudget):
        body["per_tool"] = dict(predicate.per_tool)
    if isinstance(predicate, ScopeDrift):
        # The minimum numbers were added later: write a snapshot without any as it was read.
        body = {"scorer": _scorer_to_dict(predicate.scorer), **predicate.thresholds}
    return {"kind": predicate.kind, **body}


def _predicate_from_dict(data: Mapping[str, Any], named: Mapping[str, Any]) -> Predicate:
    if "$ref" in data:
        predicate: Predicate = _lookup(data["$ref"], named)
        return predicate
    cls = _PREDICATES.get(data.get("kind", ""))
    if cls is None:
        raise ValueError(f"Settings key `predicates` holds an unknown kind. Given: {data!r:.120}.")
    body = {f.name: data[f.name] for f in fields(cls) if f.name in data}
    if "scorer" in body:
        body["scorer"] = _scorer_from_dict(body["scorer"], named)
    built: Predicate = cls(**body)
    return built


def _scorer_to_dict(scorer: DriftScorer) -> dict[str, Any]:
    if isinstance(scorer, KeywordScorer):
        return {"kind": "keywords", "topics": _topics_to_dict(scorer.topics), "anchoring": scorer.anchoring}
    if isinstance(scorer, ContextScorer):
        return {"kind": "context", "bias": scorer.bias, "weights": list(scorer.weights)}
    return {"$ref": _name_of(scorer)}


def _scorer_from_dict(data: Mapping[str, Any], named: Mapping[str, Any]) -> DriftScorer:
    if "$ref" in data:
        scorer: DriftScorer = _lookup(data["$ref"], named)
        return scorer
    if data["kind"] == "context":
        fitted = ContextScorer(bias=float(data["bias"]), weights=tuple(map(float, data["weights"])))
        return CONTEXT_SCORER if fitted == CONTEXT_SCORER else fitted
    read = KeywordScorer(topics=_topics_from_dict(data["topics"]), anchoring=data["anchoring"])
    # Scores are cached by scorer identity, so return the ready-made scorers themselves.
    return next((known for known in (RELEASE_KEYWORDS, NEWER_KEYWORDS) if known == read), read)


def _topics_to_dict(topics: Topics) -> dict[str, Any]:
    words = topics.words
    return {
        "order": topics.order,
        "limit": topics.limit,
        "words": "release"
        if words == RELEASE_WORDS
        else {
            "stop_words": sorted(words.stop_words),
            "short_terms": sorted(words.short_terms),
            "drop_numbers": words.drop_numbers,
        },
    }


def _topics_from_dict(data: Mapping[str, Any]) -> Topics:
    words = data["words"]
    if words != "release":
        words = WordLists(frozenset(words["stop_words"]), frozenset(words["short_terms"]), bool(words["drop_numbers"]))
    return Topics(order=data["order"], limit=data["limit"], words=RELEASE_WORDS if words == "release" else words)


def _lookup(name: str, named: Mapping[str, Any]) -> Any:
    if name not in named:
        raise ValueError(f"Settings refer to {name!r}, which is code. Pass it as named={{{name!r}: ...}}.")
    return named[name]
