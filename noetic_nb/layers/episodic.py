"""Episodic memory: what became of past executions, one summary each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

from noetic_nb.errors import NoeticError
from noetic_nb.items import Item, assistant_text, input_message, item_text
from noetic_nb.layers.blocks import fitting_lines, tagged
from noetic_nb.layers.embedding import Embedder, HashingEmbedder, cosine, embed
from noetic_nb.layers.state_loading import StoredState, load_state, option_error
from noetic_nb.memory import (
    BudgetConfig,
    CompleteParams,
    HookModelRequest,
    InitParams,
    MemoryHooks,
    MemoryLayer,
    MemoryScope,
    RecallParams,
    Slot,
)
from noetic_nb.memory.execution_context import as_response

__all__ = ["Retrieval", "Summarise", "episodic_memory"]

Summarise = Callable[[Sequence[Item]], "str | Awaitable[str]"]
"""Reads the items of an execution and says in a few sentences what became of it."""

Retrieval = Literal["recency", "similarity", "both"]

# Runtime specification, sections 11.1 and 11.11.
DEFAULT_BUDGET: Final = {"min": 0, "max": 2000}
TAG: Final = "past_experiences"
# Without a model an episode is what was asked and how it ended, each cut to about two sentences.
CUT: Final = 240

_ASK: Final = (
    "Summarise the conversation above in at most three sentences for an assistant that will meet the same person again: what was "
    "asked, what was done, how it ended. Answer with the summary only."
)


class _Episode(StoredState):
    id: str
    summary: str
    timestamp: float
    outcome: Literal["success", "failure", "aborted"]
    tokenCount: int


class _State(StoredState):
    episodes: list[_Episode]


_EMPTY: Final[dict[str, Any]] = {"episodes": []}


def episodic_memory(
    summarise: Summarise | None = None,
    *,
    model: str | None = None,
    retrieval: Retrieval = "recency",
    embedder: Embedder | None = None,
    id: str = "episodic-memory",
    scope: MemoryScope = "resource",
    max_episodes: int = 20,
    budget: BudgetConfig = None,
    slot: float = Slot.EPISODIC,
) -> MemoryLayer:
    """Make a layer that remembers past executions.

    Parameters
    ----------
    summarise : callable, optional
        ``summarise(items)`` says what became of an execution, sync or async.
    model : str, optional
        Asked to summarise where there is no function. With neither, an episode is the question and the last answer, cut.
    retrieval : {"recency", "similarity", "both"}
        Which episodes come first where not all fit: the newest, those nearest to the query, or in turn one of each.
    embedder : Embedder, optional
        Says what is near; `HashingEmbedder` by default.
    max_episodes : int
        The newest so many are kept.

    References
    ----------
    .. [1] Runtime specification, section 11.11 (episodic memory).

    Examples
    --------
    >>> episodic_memory(retrieval="both").hooks.names()
    ('init', 'recall', 'on_complete')
    """
    if retrieval not in get_args(Retrieval):
        raise option_error("There is no such retrieval.", retrieval, f"Use one of {', '.join(get_args(Retrieval))}.")
    if max_episodes < 1:
        raise option_error("At least one episode is kept.", max_episodes, "Use 20.")
    nearness = HashingEmbedder() if embedder is None else embedder

    async def init(p: InitParams) -> dict[str, Any]:
        return {"state": await load_state(p, _State, _EMPTY, layer_id=id)}

    async def recall(p: RecallParams) -> str | None:
        episodes: list[dict[str, Any]] = (p.state or _EMPTY)["episodes"]
        if not episodes:
            return None
        order = await _ranked(episodes, p.query, retrieval, nearness)
        lines = [_line(episodes[position]) for position in order]
        chosen = order[: len(fitting_lines(TAG, lines, p.budget, p.ctx.tokenize))]
        # Whatever chose them, they are told in the order in which they happened.
        return tagged(TAG, "\n".join(_line(episodes[position]) for position in sorted(chosen))) if chosen else None

    async def on_complete(p: CompleteParams) -> dict[str, Any] | None:
        said = [item for item in p.log if item["type"] == "message"]
        if not said:
            return None
        summary = (await _summary(p, summarise, model)).strip()
        if not summary:
            return None
        episode = {
            "id": p.ctx.execution_id,
            "summary": summary,
            "timestamp": p.ctx.clock.now_ms(),
            "outcome": p.outcome,
            "tokenCount": p.ctx.tokenize(summary),
        }
        before = [known for known in (p.state or _EMPTY)["episodes"] if known["summary"] != summary]
        return {"state": {"episodes": [*before, episode][-max_episodes:]}}

    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        hooks=MemoryHooks(init=init, recall=recall, on_complete=on_complete),
    )


def _line(episode: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(episode["timestamp"] / 1000, UTC).isoformat(timespec="seconds")
    return f"[{moment.replace('+00:00', 'Z')}] {episode['summary']}"


async def _ranked(episodes: Sequence[dict[str, Any]], query: str, retrieval: str, embedder: Embedder) -> list[int]:
    newest = list(range(len(episodes) - 1, -1, -1))
    if retrieval == "recency" or not query.strip():
        return newest
    asked, *known = await embed(embedder, [query, *(episode["summary"] for episode in episodes)])
    nearest = sorted(newest, key=lambda position: -cosine(asked, known[position]))
    if retrieval == "similarity":
        return nearest
    in_turn = [position for pair in zip(nearest, newest, strict=True) for position in pair]
    return list(dict.fromkeys(in_turn))


async def _summary(p: CompleteParams, summarise: Summarise | None, model: str | None) -> str:
    turn = _of_this_execution(p.log)
    if summarise is not None:
        found: Any = summarise(turn)
        return str(await found if hasattr(found, "__await__") else found)
    if model is not None:
        if p.ctx.call_model is None:
            raise NoeticError("llm_failed", f"No model {model!r} to summarise with", hint="Pass a function instead.")
        told = "\n".join(f"{item.role or item['type']}: {item_text(item)}" for item in turn)
        items = (input_message(told, ids=p.ctx.ids), input_message(_ASK, ids=p.ctx.ids))
        return assistant_text(as_response(await p.ctx.call_model(HookModelRequest(model, items))).items)
    asked = next((item_text(item) for item in turn if item.get("role") == "user"), "")
    answered = assistant_text(turn)
    ending = "" if p.outcome == "success" else f" ({p.outcome})"
    return f"Asked: {_cut(asked)} Answered: {_cut(answered) or 'nothing'}{ending}" if asked or answered else ""


def _of_this_execution(log: Sequence[Item]) -> list[Item]:
    """Return the items from the last user message on, which began this execution, or all where there is none."""
    for position in range(len(log) - 1, -1, -1):
        if log[position].get("role") == "user" and log[position]["type"] == "message":
            return list(log[position:])
    return list(log)


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= CUT else f"{flat[:CUT].rstrip()}…"
