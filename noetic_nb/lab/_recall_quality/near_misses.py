"""Near misses of a call: items and memories that were left out, and the least change that would have included them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noetic_nb.items import ItemLog, item_text
from noetic_nb.lab._checks import check_run
from noetic_nb.lab._replaying.plan_replay import LayersAlong
from noetic_nb.layers._helpers.considered import Considered, Hit, considering, fitting_lines, tagged
from noetic_nb.memory import MemoryLayer
from noetic_nb.redact import redact_text
from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import CallName, layer_states
from noetic_nb.runs._requests.recorded_requests import RequestIndex, recorded_request
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runtime import AgentConfig
from noetic_nb.sync import run_sync
from noetic_nb.tokens import Tokenizer

if TYPE_CHECKING:
    import pandas

# Characters of a text shown in a row.
SHOWN: Final = 200
# Tokens of joined lines do not simply add up: up to this many more than the sum are tried.
MOST_RAISED: Final = 64


class _Miss(NamedTuple):
    origin: str
    what: str
    position: int | None
    reason: str
    rank: int
    score: float | None
    tokens: int
    total: int | None = None
    window: int | None = None
    layer_tokens: int | None = None
    top_k: int | None = None
    min_score: float | None = None
    text: str = ""


def near_misses(
    run: Run, call: CallName, *, layers: Iterable[MemoryLayer] | None = None, thread_id: str | None = None
) -> pandas.DataFrame:
    """List the items that a call was not sent, and the smallest budget or threshold that would have admitted each.

    See docs/behaviour/lab.md, "Near misses".

    Parameters
    ----------
    run : Run
        Recorded by this library, with the inputs of the call's plan.
    call : int or ModelCalled
        Its index among the agent's model calls, negative from the end; or its event.
    layers : iterable of MemoryLayer, optional
        The layers whose memories are examined; by default those of the agent, if it is in this process. They follow the
        run as in `noetic_nb.lab.replay`, with the recorded states.
    thread_id : str, optional
        Count only the calls of this thread.

    Returns
    -------
    pandas.DataFrame
        One row per miss: ``origin`` (``history`` or ``layer:<id>``), ``what`` (``item``, or ``memory`` for one that a
        layer kept and did not recall), ``position`` (in the log, or in the layer's candidates), ``reason``, ``rank`` (1
        is the next to be admitted), ``score`` (to the query), ``tokens``, and the necessary changes, missing if
        unchanged: ``total`` of the budget, ``window`` in items, the layer's allocation ``layer_tokens``, its ``top_k``
        and ``min_score``; all changes of a row are needed together. A row without changes fits no budget. ``text`` is
        the start of the text. ``attrs["not_asked"]`` names layers whose memories cannot be examined.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_CALL``; ``NOT_RECORDED`` if the call cannot be planned again; ``INVALID_RUN``.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> policy = nn.ProjectionPolicy(token_budget=70, response_reserve=0, overflow="truncate")
    >>> config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), projection=policy)
    >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Noted."] * 2))
    >>> run = nn.record(harness)
    >>> for text in ("My order is A17-B.", "Thank you."):
    ...     _ = asyncio.run(harness.execute(text, thread_id="t"))
    >>> table = near_misses(run, -1)
    >>> table[["origin", "reason", "rank", "text"]].values.tolist()
    [['history', 'over_budget', 1, 'My order is A17-B.']]
    >>> recorded_request(run, -1).replan(total=int(table.total[0])).sends(0)
    True
    """
    import pandas

    check_run(run, "`near_misses` needs a run.")
    request = recorded_request(run, call, thread_id=thread_id)
    rows = _items(request)
    found, not_asked = _memories(run, request, layers)
    rows += found
    frame = pandas.DataFrame(rows, columns=_Miss._fields)
    whole = ("position", "rank", "tokens", "total", "window", "layer_tokens", "top_k")
    frame = frame.astype(dict.fromkeys(whole, "Int64") | dict.fromkeys(("score", "min_score"), "float64"))
    frame.attrs["not_asked"] = not_asked
    return frame


def _items(request: RecordedRequest) -> list[_Miss]:
    """Return the unsent items: those of each layer in its order, those of the history from the newest."""
    absent = [one for one in request.absent if one.reason != "forced"]
    left, seen = Counter([one.origin for one in absent]), Counter[str]()
    rows = []
    for one in absent:
        seen[one.origin] += 1
        rank = left["history"] + 1 - seen["history"] if one.origin == "history" else seen[one.origin]
        least, text = request.least_budget(one), redact_text(item_text(one.item))[:SHOWN]
        # For a layer's item, the planner's smallest maximum is the allocation that the layer needs.
        changes = (None, None, None) if least is None else (least.total, least.window, least.maximum)
        rows.append(_Miss(one.origin, "item", one.position, one.reason, rank, None, one.tokens, *changes, text=text))
    return rows


def _memories(
    run: Run, request: RecordedRequest, layers: Iterable[MemoryLayer] | None
) -> tuple[list[_Miss], tuple[str, ...]]:
    config = run._config
    if layers is None:
        layers = config.memory if isinstance(config, AgentConfig) else ()
    # New layers with the same settings, so that the state of the agent's own is untouched.
    asked = [
        layer if (made := layer.made_by) is None else made.make(*made.args, **made.named)
        for layer in layers
        if layer.hooks.recall is not None
    ]
    view = request.view
    assert view is not None  # otherwise its items could not have been planned again
    if view.where.depth or not asked:
        return [], tuple(share.layer_id for share in view.layers if view.where.depth or not asked)
    found = run_sync(_considered(run, request, asked))
    given = {share.layer_id: share.allocated for share in view.layers}
    tokenizer = request.counter
    rows = [miss for one in found for miss in _missed(one, given.get(one.layer_id, math.inf), tokenizer)]
    told = {one.layer_id for one in found}
    return rows, tuple([layer.id for layer in asked if layer.id not in told])


async def _considered(run: Run, request: RecordedRequest, layers: Sequence[MemoryLayer]) -> list[Considered]:
    """Let layers follow a run up to a call, and return the memories they would choose there."""
    live = LayersAlong(layers, None, request.counter)
    index = RequestIndex()
    states: dict[str, Any] = {}
    # Layers with these scopes know only this thread.
    narrow = {layer.id for layer in layers if layer.scope in ("thread", "execution")}
    where = request.where
    for event in tuple(run.events)[: request.seq]:
        index.take(event)
        await live.take(event, index)
    for seq, changed in layer_states(run):
        is_other = changed.where.thread_id != where.thread_id
        if seq < request.seq and not (is_other and changed.layer_id in narrow):
            states[changed.layer_id] = changed.state
    for layer in layers:
        if layer.id in states:
            live.stack.state.set(where.execution_id, layer.id, states[layer.id])
    with considering() as found:
        offered = await live.offer(where.execution_id, ItemLog(request.known or ()))
    return [] if offered is None else found


def _missed(one: Considered, allocated: float, tokenizer: Tokenizer) -> list[_Miss]:
    """Return the memories that a layer did not recall, and the change that would have admitted each."""
    least = -math.inf if one.min_score is None else one.min_score
    most = len(one.hits) if one.top_k is None else one.top_k
    floors = [_floor(hit, least) for hit in one.hits]
    passing = [hit for hit, floor in zip(one.hits, floors, strict=True) if floor is None][:most]
    shown: dict[Hashable, str] = {key: line for hit in passing for key, line in hit.lines}
    room = allocated - _beside(one, allocated)
    recalled = list(shown)[: len(fitting_lines(one.tag, list(shown.values()), room, tokenizer))]
    seen: dict[Hashable, str] = {}
    rows = []
    for place, (hit, floor) in enumerate(zip(one.hits, floors, strict=True)):
        lines, rank = seen, place + 1
        if hit.ahead is not None:
            lines, rank = {key: line for other in hit.ahead for key, line in other.lines}, len(hit.ahead) + 1
        for key, line in hit.lines:
            is_new = key not in seen
            lines[key] = seen[key] = line
            if not is_new or key in recalled:
                continue
            needed = _needed(one, list(lines.values()), allocated, tokenizer)
            reason = "below_threshold" if floor is not None else "beyond_top_k" if rank > most else "over_allocation"
            miss = _Miss(f"layer:{one.layer_id}", "memory", None, reason, rank, hit.score, tokenizer(line))
            top_k, text = rank if rank > most else None, redact_text(line)[:SHOWN]
            rows.append(miss._replace(layer_tokens=needed, top_k=top_k, min_score=floor, text=text))
    return rows


def _floor(hit: Hit, least: float) -> float | None:
    """Return the threshold that admits a hit, or None if the layer's own does."""
    if hit.floor is not None:
        return hit.floor
    return hit.score if hit.score is not None and hit.score < least else None


def _beside(one: Considered, allocated: float) -> int:
    # Text before the lines is left out if it does not fit.
    return one.beside if one.beside - 1 <= allocated else 0


def _needed(one: Considered, lines: Sequence[str], allocated: float, tokenizer: Tokenizer) -> int | None:
    """Return the tokens that admit the last of some lines; None if the allocation is enough."""
    block = tokenizer(tagged(one.tag, "\n".join(lines)))
    for start in (block, block + one.beside):
        if start <= allocated and start < block + one.beside:
            continue
        for tokens in range(start, start + MOST_RAISED):
            if len(fitting_lines(one.tag, lines, tokens - _beside(one, tokens), tokenizer)) == len(lines):
                return tokens if tokens > allocated else None
    return None
