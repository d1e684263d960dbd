"""Entity memory: facts about named people, places and things, shown when their names are mentioned."""

from __future__ import annotations

import copy
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import Field

from noetic_nb._core.arguments import explained, is_number
from noetic_nb.layers._helpers.collaborators import check_function, check_whole
from noetic_nb.layers._helpers.considered import consider, fitting_lines, plain_hits, tagged
from noetic_nb.layers._helpers.gathering import GATHERING_TIMEOUTS_MS, gathering_hooks
from noetic_nb.layers._helpers.schemas import Arguments, StoredState, model_function, option_error
from noetic_nb.layers.handles import EntityHandle
from noetic_nb.memory import BudgetConfig, ExecutionContext, MemoryLayer, MemoryScope, Slot, layer_data, params
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.sync import awaited

Told: TypeAlias = "str | tuple[str, str]"
"""A fact: a sentence, or a pair of its subject and the sentence, ``("city", "lives in Rome")``."""

ExtractEntities = Callable[[str], "Mapping[str, Sequence[Told]] | Awaitable[Mapping[str, Sequence[Told]]]"]
"""Reads a text and returns facts by the name of their entity."""

Contradicts = Callable[[str, str], "bool | Awaitable[bool]"]
"""Tells whether a new fact makes an old one invalid."""

DEFAULT_BUDGET: Final = {"min": 0, "max": 1000}
TAG: Final = "entities"
# A fact is a sentence; longer text is a document and does not belong here.
LONGEST: Final = 1_000
# The number of times that are kept per fact: with a half-life of a month, earlier ones hardly count.
MAX_TIMES: Final = 10
# The smallest weight of a fact that is shown: that of a fact stated once, three half-lives ago.
FAINTEST: Final = 0.125
_DAY_MS: Final = 86_400_000.0


class _Past(StoredState):
    fact: str
    until: float
    by: str


class _Entity(StoredState):
    facts: list[str]
    seen: float
    # A factory, because a plain default is copied for each entity that is read.
    about: dict[str, str] = Field(default_factory=dict)
    """The subject of a fact, by the fact."""
    told: dict[str, list[float]] = Field(default_factory=dict)
    """The times at which a fact was stated, by the fact; without any, it counts from when the entity was last seen."""
    past: list[_Past] = Field(default_factory=list)
    """Facts that were replaced, oldest first."""


class _State(StoredState):
    entities: dict[str, _Entity]


class _Remember(Arguments):
    name: str
    """The person, place or thing."""
    fact: str
    """One short sentence about it."""
    about: str | None = None
    """What the fact is about where only one can hold at a time, such as city: it takes the place of an earlier one."""


class _Forget(Arguments):
    name: str
    """The person, place or thing of which nothing shall be remembered."""


_EMPTY: Final[dict[str, Any]] = {"entities": {}}


@built_in
@explained()
def entity_memory(
    extract: ExtractEntities | None = None,
    *,
    contradicts: Contradicts | None = None,
    half_life_days: float | None = None,
    id: str = "entity-memory",
    scope: MemoryScope = "resource",
    max_entities: int = 200,
    max_facts: int = 20,
    budget: BudgetConfig = None,
    slot: float = Slot.ENTITY,
) -> MemoryLayer[EntityHandle]:
    """Make a layer that keeps facts by the name of their entity.

    Parameters
    ----------
    extract : callable, optional
        ``extract(text)`` returns facts by name, sync or async; it reads every message. Without it, facts are only kept
        by the agent itself, which calls ``<id>/remember``.
    contradicts : callable, optional
        ``contradicts(old, new)`` tells, sync or async, whether a new fact makes an older one of the same entity
        invalid. It is not needed for facts with a subject: the newer of two facts with the same subject is valid.
    half_life_days : float, optional
        A fact has weight 1 when it is stated, halved after each period of this many days; repeated statements add up.
        Facts with more weight are shown first, and those below 1/8 are kept but not shown. 30 suits facts that users
        state about themselves. Without it, the newest are shown first.
    max_entities, max_facts : int
        The numbers of most recently seen entities, and of newest facts for each, to keep.

    Returns
    -------
    MemoryLayer
        With functions ``remember`` and ``forget`` and data ``entities`` and ``superseded``. Entities named in the query
        are shown first, then the most recently seen.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Entity memory".

    Examples
    --------
    >>> sorted(entity_memory().provides)
    ['entities', 'forget', 'remember', 'superseded']
    """
    check_function(extract, "extract", "a text")
    check_function(contradicts, "contradicts", "an old and a new fact", 2)
    if half_life_days is not None and not (is_number(half_life_days) and half_life_days > 0):
        raise option_error("A half-life must be a number of days above 0.", half_life_days, "Use 30, or leave it out.")
    check_whole(max_entities=max_entities, max_facts=max_facts)
    keep = _Keeping(contradicts, half_life_days is not None, max_entities, max_facts)

    async def add(state: Any, texts: Sequence[str], ctx: ExecutionContext, hook: str) -> dict[str, Any] | None:
        if extract is None:
            return None
        for text in texts:
            if text.strip():
                found = await awaited(extract(text))
                if found:
                    state = await keep.with_facts(state, found, ctx.clock.now_ms())
        return {"state": state}

    async def remember(args: _Remember, state: Any, ctx: ExecutionContext) -> dict[str, Any]:
        fact: Told = args.fact if args.about is None else (args.about, args.fact)
        return {"result": None, "state": await keep.with_facts(state, {args.name: [fact]}, ctx.clock.now_ms())}

    def recall(p: params.RecallParams) -> str | None:
        lines = _lines((p.state or _EMPTY)["entities"], p.query, half_life_days, p.ctx)
        consider(id, TAG, lambda: plain_hits(lines))
        kept = fitting_lines(TAG, lines, p.budget, p.ctx.tokenize)
        return tagged(TAG, "\n".join(kept)) if kept else None

    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        timeouts=GATHERING_TIMEOUTS_MS,
        hooks=gathering_hooks(add, recall=recall, shape=_State, empty=_EMPTY, layer_id=id),
        provides={
            "entities": layer_data(_facts_by_name),
            "superseded": layer_data(_past_by_name),
            "remember": model_function("Remember a fact about a person, place or thing.", _Remember, remember, None),
            "forget": model_function("Forget all that is known of a person, place or thing.", _Forget, _forget),
        },
    )


@dataclass(frozen=True, slots=True)
class _Keeping:
    """Applies new facts to a state."""

    contradicts: Contradicts | None
    keeps_times: bool
    max_entities: int
    max_facts: int

    async def with_facts(self, state: Any, facts: Mapping[str, Sequence[Told]], now_ms: float) -> dict[str, Any]:
        """Return a state with added facts, limited to recently seen entities; raises `TypeError` for malformed facts."""
        entities = dict((state or _EMPTY)["entities"])
        for name, given in facts.items():
            told = _told(name, given)
            key = _key(entities, name)
            entity = entities.get(key, {"facts": [], "seen": now_ms})
            for about, fact in told:
                entity = await self.with_fact(entity, about, fact, now_ms)
            entities[key] = entity | {"seen": now_ms}
        # Selected by last use, but kept in insertion order, so that a stored state changes little.
        newest = {*sorted(entities, key=lambda name: entities[name]["seen"])[-self.max_entities :]}
        return {"entities": {name: entities[name] for name in entities if name in newest}}

    async def with_fact(self, entity: dict[str, Any], about: str, fact: str, now_ms: float) -> dict[str, Any]:
        """Return an entity with one more fact, and without those that it replaces."""
        abouts: dict[str, str] = dict(entity.get("about", {}))
        past: list[dict[str, Any]] = list(entity.get("past", []))
        left: list[str] = []
        for old in entity["facts"]:
            if old == fact:
                continue  # a repeated fact moves to the end, so that it is kept as long as a new one
            is_over = bool(about) and abouts.get(old) == about
            if not is_over and self.contradicts is not None:
                is_over = bool(await awaited(self.contradicts(old, fact)))
            if is_over:
                past.append({"fact": old, "until": now_ms, "by": fact})
            else:
                left.append(old)
        kept = [*left, fact][-self.max_facts :]
        if about:
            abouts[fact] = about
        times = dict(entity.get("told", {}))
        if self.keeps_times:
            # Facts from before times were kept are as old as the entity was then.
            times = {old: times.get(old, [entity["seen"]]) for old in left} | {fact: times.get(fact, [])}
            times[fact] = [*times[fact], now_ms][-MAX_TIMES:]
        more = {
            "about": {one: abouts[one] for one in kept if one in abouts},
            "told": {one: times[one] for one in kept if one in times},
            "past": past[-self.max_facts :],
        }
        # Empty fields are left out, so that states of layers without these options keep their form.
        return {"facts": kept, "seen": entity["seen"]} | {name: value for name, value in more.items() if value}


def _told(name: Any, given: Any) -> list[tuple[str, str]]:
    """Return facts as pairs of subject (empty without one) and fact."""
    told: list[tuple[str, str]] = []
    for one in (None,) if isinstance(given, str) else given:
        pair: Any = ("", one) if isinstance(one, str) else one
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
        if not is_pair or not isinstance(name, str):
            raise TypeError(f"Facts are lists of texts, or of pairs of texts, by name, not {name!r}: {given!r:.80}.")
        if pair[1].strip():
            told.append((" ".join(pair[0].casefold().split()), pair[1].strip()[:LONGEST]))
    return told


def strength(times: Sequence[float], now_ms: float, half_life_days: float) -> float:
    """Return the weight of a fact: the sum of ``0.5 ** (age / half-life)`` over the times of its statements."""
    return math.fsum([math.pow(0.5, max(0.0, now_ms - time) / (half_life_days * _DAY_MS)) for time in times])


def _lines(entities: Mapping[str, Any], query: str, half_life_days: float | None, ctx: ExecutionContext) -> list[str]:
    asked = query.casefold()
    order = sorted(entities, key=lambda name: (name.casefold() not in asked, -entities[name]["seen"]))
    if half_life_days is None:
        return [f"- {name}: {fact}" for name in order for fact in reversed(entities[name]["facts"])]
    now_ms, lines = ctx.clock.now_ms(), []
    for name in order:
        entity = entities[name]
        times = entity.get("told", {})
        counts = {fact: strength(times.get(fact, [entity["seen"]]), now_ms, half_life_days) for fact in entity["facts"]}
        strong = [fact for fact in reversed(entity["facts"]) if counts[fact] >= FAINTEST]
        lines += [f"- {name}: {fact}" for fact in sorted(strong, key=lambda fact: -counts[fact])]
    return lines


def _forget(args: _Forget, state: Any, ctx: object) -> dict[str, Any]:
    entities = (state or _EMPTY)["entities"]
    key = _key(entities, args.name)
    if key not in entities:
        return {"result": f"Nothing is known about {args.name}."}
    left = {name: entity for name, entity in entities.items() if name != key}
    return {"result": f"{key} is forgotten.", "state": {"entities": left}}


def _facts_by_name(state: Any) -> dict[str, tuple[str, ...]]:
    return {name: tuple(known["facts"]) for name, known in (state or _EMPTY)["entities"].items()}


def _past_by_name(state: Any) -> dict[str, tuple[dict[str, Any], ...]]:
    entities = (state or _EMPTY)["entities"]
    return {name: tuple(copy.deepcopy(known["past"])) for name, known in entities.items() if known.get("past")}


def _key(entities: Mapping[str, Any], name: str) -> str:
    """Return the known spelling of an entity's name, or the name itself."""
    plain = " ".join(name.split())
    # Models vary the case of names, which would give one person two records.
    return next((known for known in entities if known.casefold() == plain.casefold()), plain)
