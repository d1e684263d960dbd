"""Procedural memory: procedures that the agent learns once and sees again for similar tasks."""

from __future__ import annotations

import copy
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb.layers._helpers.collaborators import as_embedder, check_score, check_whole, embed
from noetic_nb.layers._helpers.considered import Hit, consider, fitting_lines, tagged
from noetic_nb.layers._helpers.embedding import Embedder, EmbedTexts, cosine
from noetic_nb.layers._helpers.schemas import Arguments, StoredState, copy_to_child, init_hook, model_function
from noetic_nb.layers.handles import ProceduresHandle
from noetic_nb.memory import (
    BudgetConfig,
    ExecutionContext,
    MemoryHooks,
    MemoryLayer,
    MemoryScope,
    Slot,
    layer_data,
    params,
)
from noetic_nb.memory._layer_functions import built_in

DEFAULT_BUDGET: Final = {"min": 0, "max": 1500}
TAG: Final = "procedures"
MAX_STEPS: Final = 30  # a longer procedure should be several


class _Procedure(StoredState):
    when: str
    steps: list[str]
    learned: float


class _State(StoredState):
    procedures: dict[str, _Procedure]


class _Learn(Arguments):
    name: str
    """A short name; learning the same name again replaces the procedure."""
    when: str
    """In which situation it helps, in the words a person would use to ask."""
    steps: list[str]
    """What to do, one short sentence per step."""


class _Unlearn(Arguments):
    name: str
    """The procedure that turned out to be wrong."""


_EMPTY: Final[dict[str, Any]] = {"procedures": {}}


@built_in
@explained()
def procedural_memory(
    embedder: Embedder | EmbedTexts | None = None,
    *,
    id: str = "procedural-memory",
    scope: MemoryScope = "resource",
    top_k: int = 3,
    min_score: float = 0.1,
    max_procedures: int = 100,
    budget: BudgetConfig = None,
    slot: float = Slot.PROCEDURAL,
) -> MemoryLayer[ProceduresHandle]:
    """Make a layer in which the agent keeps procedures.

    Parameters
    ----------
    embedder : Embedder or callable, optional
        A function of a list of texts, sync or async, or an object with such a method ``embed``. It is tested once with
        two words. It selects the procedures similar to the query; `HashingEmbedder` by default.
    top_k : int
        The maximum number of procedures to show.
    min_score : float
        The cosine from which a procedure counts as similar.
    max_procedures : int
        The number of most recently learned procedures to keep.

    Returns
    -------
    MemoryLayer
        With functions ``learn`` and ``unlearn`` and data ``procedures``.

    Examples
    --------
    >>> sorted(procedural_memory().provides)
    ['learn', 'procedures', 'unlearn']
    """
    check_whole(top_k=top_k, max_procedures=max_procedures)
    check_score(min_score)
    nearness = as_embedder(embedder)

    async def recall(p: params.RecallParams) -> str | None:
        known: dict[str, dict[str, Any]] = (p.state or _EMPTY)["procedures"]
        if not known or not p.query.strip():
            return None
        # The query and all procedures in one call, because an embedder is often a service.
        wanted, *vectors = await embed(nearness, [p.query, *(f"{name} {known[name]['when']}" for name in known)])
        scores = dict(zip(known, [cosine(wanted, vector) for vector in vectors], strict=True))
        nearest = sorted(known, key=lambda name: -scores[name])
        consider(
            id,
            TAG,
            lambda: [Hit(((name, _shown(name, known[name])),), scores[name]) for name in nearest],
            top_k=top_k,
            min_score=min_score,
        )
        near = [name for name in nearest if scores[name] >= min_score][:top_k]
        kept = fitting_lines(TAG, [_shown(name, known[name]) for name in near], p.budget, p.ctx.tokenize)
        return tagged(TAG, "\n".join(kept)) if kept else None

    def learn(args: _Learn, state: Any, ctx: ExecutionContext) -> dict[str, Any]:
        return _learn(args, state, ctx.clock.now_ms(), max_procedures)

    return MemoryLayer(
        id=id,
        slot=slot,
        placement="suffix",  # it changes with the query, or with time
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        hooks=MemoryHooks(init=init_hook(_State, _EMPTY, layer_id=id), recall=recall, on_spawn=copy_to_child),
        provides={
            "procedures": layer_data(lambda state: copy.deepcopy((state or _EMPTY)["procedures"])),
            "learn": model_function(
                "Keep how something is done, for the next time the same kind of task comes up.", _Learn, learn
            ),
            "unlearn": model_function("Forget a procedure that turned out to be wrong.", _Unlearn, _unlearn),
        },
    )


def _learn(args: _Learn, state: Any, now_ms: float, max_procedures: int) -> dict[str, Any]:
    name, steps = _tidy(args.name), [step.strip() for step in args.steps if step.strip()]
    # A result rather than an error, so that the model reads it and can correct itself.
    if not name or not steps:
        return {"result": "Not learned: a procedure needs a name and at least one step."}
    if len(steps) > MAX_STEPS:
        return {"result": f"Not learned: {len(steps)} steps are more than {MAX_STEPS}; split it."}
    procedures = dict((state or _EMPTY)["procedures"])
    procedures.pop(name, None)  # a procedure that is learned again becomes the newest
    procedures[name] = {"when": args.when.strip(), "steps": steps, "learned": now_ms}
    kept = dict(list(procedures.items())[-max_procedures:])
    return {"result": f"{name} is learned.", "state": {"procedures": kept}}


def _unlearn(args: _Unlearn, state: Any, ctx: object) -> dict[str, Any]:
    name, procedures = _tidy(args.name), dict((state or _EMPTY)["procedures"])
    if procedures.pop(name, None) is None:
        return {"result": f"There is no procedure {name!r}. Known: {', '.join(procedures) or 'none'}."}
    return {"result": f"{name} is forgotten.", "state": {"procedures": procedures}}


def _tidy(name: str) -> str:
    # Models vary the spaces in a name, and would otherwise learn a procedure twice, or not find it again.
    return " ".join(name.split())


def _shown(name: str, procedure: dict[str, Any]) -> str:
    steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(procedure["steps"], start=1))
    return f"{name} (when: {procedure['when']})\n{steps}"
