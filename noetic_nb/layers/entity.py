"""Entity memory: facts about named people, places and things, shown when their names come up."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from noetic_nb.arguments import explained
from noetic_nb.layers.blocks import fitting_lines, tagged
from noetic_nb.layers.collaborators import check_function, check_whole
from noetic_nb.layers.considered import consider, plain_hits
from noetic_nb.layers.gathering import GATHERING_TIMEOUTS_MS, gathering_hooks
from noetic_nb.layers.handles import EntityHandle
from noetic_nb.layers.schemas import Arguments, StoredState, option_error
from noetic_nb.memory import (
    BudgetConfig,
    ExecutionContext,
    MemoryLayer,
    MemoryScope,
    RecallParams,
    Slot,
    layer_data,
    layer_fn,
)
from noetic_nb.memory.built_in import built_in
from noetic_nb.sync import awaited

__all__ = ["ExtractEntities", "entity_memory"]

ExtractEntities = Callable[[str], "Mapping[str, Sequence[str]] | Awaitable[Mapping[str, Sequence[str]]]"]
"""Reads a text and returns facts by the name of what they are about."""

DEFAULT_BUDGET: Final = {"min": 0, "max": 1000}
TAG: Final = "entities"
# A fact is a sentence; a longer one is a document that belongs elsewhere.
LONGEST: Final = 1_000


class _Entity(StoredState):
    facts: list[str]
    seen: float


class _State(StoredState):
    entities: dict[str, _Entity]


class _Remember(Arguments):
    name: str
    """The person, place or thing."""
    fact: str
    """One short sentence about it."""


class _Forget(Arguments):
    name: str
    """The person, place or thing of which nothing shall be remembered."""


_EMPTY: Final[dict[str, Any]] = {"entities": {}}


@built_in
@explained()
def entity_memory(
    extract: ExtractEntities | None = None,
    *,
    id: str = "entity-memory",
    scope: MemoryScope = "resource",
    max_entities: int = 200,
    max_facts: int = 20,
    budget: BudgetConfig = None,
    slot: float = Slot.ENTITY,
) -> MemoryLayer[EntityHandle]:
    """Make a layer that keeps facts by the name of what they are about.

    Parameters
    ----------
    extract : callable, optional
        ``extract(text)`` returns facts by name, sync or async; it reads every message. Without it only the agent
        itself keeps facts, by calling ``<id>/remember``.
    max_entities, max_facts : int
        The entities seen last, and the newest facts of each, are kept.

    Returns
    -------
    MemoryLayer
        With functions ``remember`` and ``forget`` and data ``entities``. Entities named in the query are shown first, then
        those seen last.

    Examples
    --------
    >>> sorted(entity_memory().provides)
    ['entities', 'forget', 'remember']
    """
    check_function(extract, "extract", "a text")
    check_whole(max_entities=max_entities, max_facts=max_facts)
    if max_entities < 1 or max_facts < 1:
        raise option_error("At least one entity and one fact are kept.", (max_entities, max_facts), "Raise it.")

    async def add(state: Any, texts: Sequence[str], ctx: ExecutionContext, hook: str) -> dict[str, Any] | None:
        if extract is None:
            return None
        for text in texts:
            if text.strip():
                found = await awaited(extract(text))
                if found:
                    state = _with_facts(state, found, ctx.clock.now_ms(), max_entities, max_facts)
        return {"state": state}

    def remember(args: _Remember, state: Any, ctx: ExecutionContext) -> dict[str, Any]:
        facts = {args.name: [args.fact]}
        return {"result": None, "state": _with_facts(state, facts, ctx.clock.now_ms(), max_entities, max_facts)}

    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        timeouts=GATHERING_TIMEOUTS_MS,
        hooks=gathering_hooks(add, recall=partial(_recall, id), shape=_State, empty=_EMPTY, layer_id=id),
        provides={
            "entities": layer_data(_facts_by_name),
            "remember": layer_fn(
                description="Remember a fact about a person, place or thing.",
                input=_Remember,
                output=None,
                execute=remember,
            ),
            "forget": layer_fn(
                description="Forget all that is known of a person, place or thing.",
                input=_Forget,
                output=str,
                execute=_forget,
            ),
        },
    )


def _with_facts(
    state: Any, facts: Mapping[str, Sequence[str]], now_ms: float, max_entities: int, max_facts: int
) -> dict[str, Any]:
    """Return a state with more facts, the newest of each entity and the entities seen last.

    Raises `TypeError` if facts are not lists of texts by name.
    """
    entities = copy.deepcopy((state or _EMPTY)["entities"])
    for name, texts in facts.items():
        if not isinstance(name, str) or isinstance(texts, str) or not all(isinstance(fact, str) for fact in texts):
            raise TypeError(f"Facts are lists of texts by name, not {name!r}: {texts!r:.80}.")
        key = _key(entities, name)
        before = entities.get(key, {"facts": []})["facts"]
        fresh = [fact.strip()[:LONGEST] for fact in texts if fact.strip()]
        # A fact that is learned again moves to the end, so that it is kept as long as a new one.
        merged = [*(fact for fact in before if fact not in fresh), *fresh]
        entities[key] = {"facts": merged[-max_facts:], "seen": now_ms}
    # Chosen by when they were seen, but kept in the order in which they came: a stored state changes little.
    newest = sorted(entities, key=lambda name: entities[name]["seen"])[-max_entities:]
    return {"entities": {name: entities[name] for name in entities if name in newest}}


def _recall(layer_id: str, p: RecallParams) -> str | None:
    entities = (p.state or _EMPTY)["entities"]
    query = p.query.casefold()
    order = sorted(entities, key=lambda name: (name.casefold() not in query, -entities[name]["seen"]))
    lines = [f"- {name}: {fact}" for name in order for fact in reversed(entities[name]["facts"])]
    consider(layer_id, TAG, lambda: plain_hits(lines))
    kept = fitting_lines(TAG, lines, p.budget, p.ctx.tokenize)
    return tagged(TAG, "\n".join(kept)) if kept else None


def _forget(args: _Forget, state: Any, ctx: object) -> dict[str, Any]:
    entities = (state or _EMPTY)["entities"]
    key = _key(entities, args.name)
    if key not in entities:
        return {"result": f"Nothing is known of {args.name}."}
    left = {name: entity for name, entity in entities.items() if name != key}
    return {"result": f"{key} is forgotten.", "state": {"entities": left}}


def _facts_by_name(state: Any) -> dict[str, tuple[str, ...]]:
    return {name: tuple(known["facts"]) for name, known in (state or _EMPTY)["entities"].items()}


def _key(entities: Mapping[str, Any], name: str) -> str:
    """Return the spelling under which an entity is known already, or the name itself."""
    plain = " ".join(name.split())
    # Models vary upper and lower case, and one person would have two records.
    return next((known for known in entities if known.casefold() == plain.casefold()), plain)
