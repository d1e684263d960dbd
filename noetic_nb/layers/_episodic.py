"""Episodic memory: the outcomes of past executions, with one summary each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

from noetic_nb._core.arguments import explained
from noetic_nb.items import Item, assistant_text, input_message, item_text
from noetic_nb.layers._helpers import collaborators
from noetic_nb.layers._helpers.considered import consider, fitting_lines, plain_hits, tagged
from noetic_nb.layers._helpers.embedding import Embedder, EmbedTexts, cosine
from noetic_nb.layers._helpers.schemas import StoredState, init_hook, option_error
from noetic_nb.layers.handles import NothingProvided
from noetic_nb.memory import BudgetConfig, MemoryHooks, MemoryLayer, MemoryScope, Slot, params
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.sync import awaited

Summarise = Callable[[Sequence[Item]], "str | Awaitable[str]"]
"""Reads the items of an execution and returns a summary of the outcome in a few sentences."""

Retrieval = Literal["recency", "similarity", "both"]

DEFAULT_BUDGET: Final = {"min": 0, "max": 2000}
TAG: Final = "past_experiences"
# Without a model, an episode is the query and the outcome, each cut to about two sentences.
CUT: Final = 240

_INSTRUCTIONS: Final = (
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


@built_in
@explained()
def episodic_memory(
    summarise: Summarise | None = None,
    *,
    model: str | None = None,
    retrieval: Retrieval = "recency",
    embedder: Embedder | EmbedTexts | None = None,
    id: str = "episodic-memory",
    scope: MemoryScope = "resource",
    max_episodes: int = 20,
    budget: BudgetConfig = None,
    slot: float = Slot.EPISODIC,
) -> MemoryLayer[NothingProvided]:
    """Make a layer that remembers past executions.

    Parameters
    ----------
    summarise : callable, optional
        ``summarise(items)`` returns a summary of an execution, sync or async.
    model : str, optional
        The model that summarises if there is no function. With neither, an episode is the shortened query and last answer.
    retrieval : {"recency", "similarity", "both"}
        Which episodes come first if not all fit: the newest, those most similar to the query, or both in turn.
    embedder : Embedder or callable, optional
        A function of a list of texts, sync or async, or an object with such a method ``embed``. It is tested once with
        two words. It determines similarity; `HashingEmbedder` by default.
    max_episodes : int
        The number of newest episodes to keep.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Episodic memory".

    Examples
    --------
    >>> episodic_memory(retrieval="both").hooks.names()
    ('init', 'recall', 'on_complete')
    """
    if retrieval not in get_args(Retrieval):
        raise option_error(
            "There is no retrieval of this name.", retrieval, f"Use one of {', '.join(get_args(Retrieval))}."
        )
    collaborators.check_whole(max_episodes=max_episodes)
    collaborators.check_function(summarise, "summarise", "the items of an execution")
    collaborators.check_model_name(model)
    nearness = collaborators.as_embedder(embedder)

    async def recall(p: params.RecallParams) -> str | None:
        episodes: list[dict[str, Any]] = (p.state or _EMPTY)["episodes"]
        if not episodes:
            return None
        order = await _ranked(episodes, p.query, retrieval, nearness)
        lines = [_line(episodes[position]) for position in order]
        consider(id, TAG, lambda: plain_hits(lines))
        chosen = order[: len(fitting_lines(TAG, lines, p.budget, p.ctx.tokenize))]
        return tagged(TAG, "\n".join(_line(episodes[position]) for position in sorted(chosen))) if chosen else None

    async def on_complete(p: params.CompleteParams) -> dict[str, Any] | None:
        # Without messages there is nothing to remember, whatever the outcome.
        if not any(item["type"] == "message" for item in p.log):
            return None
        summary = (await _summary(p, summarise, model)).strip()
        if not summary:
            return None
        # Otherwise a task that is repeated would fill the memory with one sentence.
        before = [known for known in (p.state or _EMPTY)["episodes"] if known["summary"] != summary]
        return {"state": {"episodes": [*before, _episode(p, summary)][-max_episodes:]}}

    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        hooks=MemoryHooks(init=init_hook(_State, _EMPTY, layer_id=id), recall=recall, on_complete=on_complete),
    )


def _episode(p: params.CompleteParams, summary: str) -> dict[str, Any]:
    return {
        "id": p.ctx.execution_id,
        "summary": summary,
        "timestamp": p.ctx.clock.now_ms(),
        "outcome": p.outcome,
        "tokenCount": p.ctx.tokenize(summary),
    }


def _line(episode: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(episode["timestamp"] / 1000, UTC).isoformat(timespec="seconds")
    return f"[{moment.replace('+00:00', 'Z')}] {episode['summary']}"


async def _ranked(
    episodes: Sequence[dict[str, Any]], query: str, retrieval: str, embedder: collaborators.Embed
) -> list[int]:
    newest = list(range(len(episodes) - 1, -1, -1))
    if retrieval == "recency" or not query.strip():
        return newest
    wanted, *known = await collaborators.embed(embedder, [query, *(episode["summary"] for episode in episodes)])
    # From the newest on, so that of two equally similar episodes the newer one comes first.
    nearest = sorted(newest, key=lambda position: -cosine(wanted, known[position]))
    if retrieval == "similarity":
        return nearest
    # Neither ranking can displace the other, even with a small budget.
    in_turn = [position for pair in zip(nearest, newest, strict=True) for position in pair]
    return list(dict.fromkeys(in_turn))


async def _summary(p: params.CompleteParams, summarise: Summarise | None, model: str | None) -> str:
    turn = _of_this_execution(p.log)
    if summarise is not None:
        return str(await awaited(summarise(turn)))
    if model is not None:
        transcript = "\n".join(f"{item.role or item['type']}: {item_text(item)}" for item in turn)
        # A transcript as one message: a model that gets the items themselves tends to continue the conversation.
        items = [input_message(text, ids=p.ctx.ids) for text in (transcript, _INSTRUCTIONS)]
        return await collaborators.model_text(p.ctx, model, items, purpose="summarise")
    question = next((item_text(item) for item in turn if item.get("role") == "user"), "")
    answer = assistant_text(turn)
    ending = "" if p.outcome == "success" else f" ({p.outcome})"
    return f"Asked: {_cut(question)} Answered: {_cut(answer) or 'nothing'}{ending}" if question or answer else ""


def _of_this_execution(log: Sequence[Item]) -> list[Item]:
    """Return the items from the last user message on, which began this execution, or all if there is none."""
    for position in range(len(log) - 1, -1, -1):
        if log[position].get("role") == "user" and log[position]["type"] == "message":
            return list(log[position:])
    return list(log)


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= CUT else f"{flat[:CUT].rstrip()}…"
