"""Temporal memory: the current date, and facts that are valid at a time."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb.layers._helpers.collaborators import check_function, check_switch, check_whole
from noetic_nb.layers._helpers.considered import consider, fitting_lines, plain_hits, tagged
from noetic_nb.layers._helpers.gathering import GATHERING_TIMEOUTS_MS, BufferedState, TextBuffer, gathering_hooks
from noetic_nb.layers._helpers.schemas import Arguments, model_function
from noetic_nb.layers.handles import TemporalHandle
from noetic_nb.memory import BudgetConfig, ExecutionContext, MemoryLayer, MemoryScope, Slot, layer_data, params
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.sync import awaited

Facts = Mapping[str, Sequence[str]]

Extract = Callable[[Sequence[str], datetime], "Facts | Awaitable[Facts]"]
"""Reads texts and the time when they were written, and returns facts by the ISO time at which they are valid."""

SearchFacts = Callable[[str, Facts], "Facts | Awaitable[Facts]"]
"""Returns the facts that answer a query."""

BUDGET: Final = {"min": 0, "max": 200}
LEDGER_BUDGET: Final = {"min": 0, "max": 800}
NOW_TAG: Final = "current_datetime"
FACTS_TAG: Final = "remembered_facts"
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")  # strftime would follow the locale
_ADVICE: Final = (
    "Resolve relative dates such as 'yesterday', 'last week' or 'in two days' against this moment before you answer, "
    "store or pass them on, and write dates out in full."
)


class _State(BufferedState):
    facts: dict[str, list[str]]


class _Query(Arguments):
    query: str
    """What to look for among remembered facts."""


_EMPTY: Final[dict[str, Any]] = {"facts": {}, "buffer": [], "bufferTokens": 0, "version": 0}


@built_in
@explained()
def temporal_memory(
    *,
    now: Callable[[], datetime] | None = None,
    extract: Extract | None = None,
    search: SearchFacts | None = None,
    buffer_threshold: int = 2_000,
    max_facts: int = 200,
    ground_date_time: bool = True,
    inject_ledger: bool = False,
    id: str = "temporal",
    scope: MemoryScope = "resource",
    budget: BudgetConfig = None,
    slot: float = Slot.REMINDER,
) -> MemoryLayer[TemporalHandle]:
    """Make a layer that recalls the time, and facts with the time at which they are valid.

    Parameters
    ----------
    now : callable, optional
        The local time; the execution's clock in the machine's time zone by default.
    extract : callable, optional
        ``extract(texts, now)`` returns facts by ISO time, sync or async. Without it no facts are collected.
    search : callable, optional
        ``search(query, facts)``; without it the function ``search_memory`` returns facts that share a word with the query, or
        all of them.
    buffer_threshold : int, tokens
        The size of the buffer from which facts are extracted.
    max_facts : int
        The number of newest facts to keep.
    ground_date_time, inject_ledger : bool
        Whether to recall the time, and the facts.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Temporal memory".

    Examples
    --------
    >>> temporal_memory(inject_ledger=True).budget
    {'min': 0, 'max': 800}
    """
    check_function(now, "now", "nothing", 0)
    check_function(extract, "extract", "texts and a time", 2)
    check_function(search, "search", "a query and facts", 2)
    check_whole(buffer_threshold=buffer_threshold, max_facts=max_facts)
    check_switch(ground_date_time=ground_date_time, inject_ledger=inject_ledger)

    def moment(ctx: ExecutionContext) -> datetime:
        return datetime.fromtimestamp(ctx.clock.now_ms() / 1000) if now is None else now()

    def recall(p: params.RecallParams) -> str | None:
        return _shown(id, p, moment(p.ctx) if ground_date_time else None, inject_ledger=inject_ledger)

    async def distil(state: dict[str, Any], ctx: ExecutionContext) -> dict[str, Any]:
        assert extract is not None
        found = await awaited(extract(tuple(state["buffer"]), moment(ctx)))
        return {"facts": _merged(state["facts"], found, max_facts)}

    buffer = TextBuffer(id, _EMPTY, buffer_threshold, distil, _without_older_half)

    async def add(state: Any, texts: Sequence[str], ctx: ExecutionContext, hook: str) -> dict[str, Any] | None:
        return None if extract is None else await buffer.add(state, texts, ctx, hook)

    async def search_memory(args: _Query, state: Any, ctx: Any) -> dict[str, Any]:
        facts = (state or _EMPTY)["facts"]
        if search is None:
            lines = _lines(facts)
            words = set(args.query.casefold().split())
            # All rather than none, because a model that finds nothing concludes that there is nothing.
            return {"result": [line for line in lines if words & set(line.casefold().split())] or lines}
        return {"result": _lines(await awaited(search(args.query, copy.deepcopy(facts))))}

    # The time alone takes a few lines; facts need more space.
    default = LEDGER_BUDGET if inject_ledger else BUDGET
    return MemoryLayer(
        id=id,
        slot=slot,
        placement="suffix",  # it changes with the query, or with time
        scope=scope,
        budget=default if budget is None else budget,
        timeouts=GATHERING_TIMEOUTS_MS,
        hooks=gathering_hooks(add, recall=recall, shape=_State, empty=_EMPTY, layer_id=id),
        provides={
            "facts": layer_data(lambda state: copy.deepcopy((state or _EMPTY)["facts"])),
            "search_memory": model_function(
                "Look for remembered facts and when they hold.", _Query, search_memory, list[str]
            ),
        },
    )


def _shown(layer_id: str, p: params.RecallParams, now: datetime | None, *, inject_ledger: bool) -> str | None:
    """Return the time, if any, and as many facts as fit beside it."""
    parts: list[str] = []
    left = p.budget
    block = ""
    if now is not None:
        # One token is reserved: the parts are counted separately and rounded, so their sum may be one more.
        block = tagged(NOW_TAG, f"Now: {now:%Y/%m/%d} ({_DAYS[now.weekday()]}) {now:%H:%M}\n{_ADVICE}")
        if p.ctx.tokenize(block) <= left:
            parts.append(block)
            left -= p.ctx.tokenize(block) + 1
    if inject_ledger:
        newest = _lines((p.state or _EMPTY)["facts"])
        consider(
            layer_id, FACTS_TAG, lambda: plain_hits(newest), beside=lambda: p.ctx.tokenize(block) + 1 if block else 0
        )
        lines = fitting_lines(FACTS_TAG, newest, left, p.ctx.tokenize)
        if lines:
            parts.append(tagged(FACTS_TAG, "\n".join(lines)))
    return "\n".join(parts) or None


def _without_older_half(state: dict[str, Any], ctx: ExecutionContext) -> dict[str, Any]:
    """Return a state without the older half of its buffer: texts are not facts, so they are not kept as such."""
    texts = state["buffer"][len(state["buffer"]) // 2 + 1 :]
    return {**state, "buffer": texts, "bufferTokens": sum(ctx.tokenize(text) for text in texts)}


def _lines(facts: Facts) -> list[str]:
    return [f"- [{when}] {fact}" for when in sorted(facts, reverse=True) for fact in facts[when]]


def _merged(old: Mapping[str, list[str]], found: Any, max_facts: int) -> dict[str, list[str]]:
    """Return old and new facts without repeats, the newest by time; raises `TypeError` for malformed facts."""
    if not isinstance(found, Mapping):
        raise TypeError(
            f"An extractor must return a mapping of ISO times to texts, not {type(found).__name__}: {found!r:.80}."
        )
    merged = {when: list(facts) for when, facts in old.items()}
    for when, facts in found.items():
        # A string is a sequence of strings too: each of its letters would be a fact.
        if not isinstance(when, str) or isinstance(facts, str) or not all(isinstance(fact, str) for fact in facts):
            raise TypeError(
                f"An extractor must return a mapping of ISO times to lists of texts, not {when!r}: {facts!r:.80}."
            )
        merged[when] = list(dict.fromkeys([*merged.get(when, []), *facts]))
    # ISO times sort as text, even if facts are valid on a day and not at a moment.
    newest = [(when, fact) for when in sorted(merged, reverse=True) for fact in merged[when]][:max_facts]
    kept: dict[str, list[str]] = {}
    for when, fact in reversed(newest):
        # The loop goes backwards through the facts of a time, so each is inserted before the later ones.
        kept.setdefault(when, []).insert(0, fact)
    return kept
