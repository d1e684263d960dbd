"""Tool result clearing: outputs of old calls are replaced by one line each, once the history has grown long.

Clearing depends only on the items of the log, each examined once and in order. So a cleared result stays cleared, in
the next turn and in another process, and between two clearings all requests have the same prefix.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from noetic_nb._core.arguments import explained
from noetic_nb._core.names import skeleton
from noetic_nb.items import Item, item_text, item_tokens, parse_item
from noetic_nb.items._build import content_tokens
from noetic_nb.items._json_text import compact_json
from noetic_nb.layers._helpers.collaborators import as_names, check_whole
from noetic_nb.layers._helpers.considered import fitting_lines, tagged
from noetic_nb.layers._helpers.schemas import Arguments, model_function
from noetic_nb.layers.handles import ResultsHandle
from noetic_nb.memory import BudgetConfig, ExecutionContext, MemoryHooks, MemoryLayer, params
from noetic_nb.memory._execution_context import Compacted, compacted
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.tokens import Tokenizer

# Before the history window, so that it counts the whole log and not only the window.
SLOT: Final = 270
DEFAULT_BUDGET: Final = {"min": 0, "max": 500}
# The number of threads whose recorded clearings are remembered; those of older threads would be recorded again.
MAX_TOLD: Final = 1_000
TAG: Final = "cleared_results"
THRESHOLD: Final = 30_000
CLEAR_AT_LEAST: Final = 5_000
KEEP: Final = 3
LONGEST_READ: Final = 20_000  # characters of a cleared result that one call shows
# Characters of a call's arguments in the index: enough to tell two calls of one tool apart.
CUT: Final = 80


class _Read(Arguments):
    number: int
    """The number of the result, as in its place and in the index."""
    offset: int = 0
    """Where to begin, in characters, for a result that is too long to be read at once."""


class _Result(NamedTuple):
    """The output of one call, and the item that is sent in its place."""

    number: int
    position: int
    name: str
    arguments: str
    size: int
    freed: int
    stub: Item


@dataclass(slots=True)
class _Walk:
    """The state of clearing a log, item by item."""

    seen: list[Item] = field(default_factory=list)
    shown: int = 0  # tokens of the items as they are sent
    outputs: int = 0
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    newest: deque[_Result] = field(default_factory=deque)
    due: list[_Result] = field(default_factory=list)  # results to be cleared once they are enough
    due_tokens: int = 0
    cleared: list[_Result] = field(default_factory=list)


@built_in
@explained()
def tool_result_clearing(
    threshold: int = THRESHOLD,
    *,
    clear_at_least: int = CLEAR_AT_LEAST,
    keep: int = KEEP,
    exclude: Iterable[str] = (),
    id: str = "tool-result-clearing",
    slot: float = SLOT,
    budget: BudgetConfig = None,
) -> MemoryLayer[ResultsHandle]:
    """Make a layer that omits the results of old tool calls once the history is long. The log keeps everything.

    Parameters
    ----------
    threshold : int, tokens
        Results are cleared only if the history, as it is sent, is larger than this.
    clear_at_least : int, tokens
        Results are cleared only if this much can be cleared at once: every clearing changes the prefix of the request,
        which invalidates a provider's cache.
    keep : int
        This many of the newest results are always sent whole, as are those that the model has not answered yet.
    exclude : iterable of str
        Tools whose results are never cleared.

    Returns
    -------
    MemoryLayer
        With function ``read_result``. One line with its number replaces a result; calls are unchanged. Cleared results
        are listed in ``<cleared_results>``, newest first, within the budget.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Tool result clearing".

    Examples
    --------
    >>> tool_result_clearing(8_000, keep=2).hooks.names()
    ('recall', 'dispose', 'project_history')
    """
    check_whole(0, threshold=threshold, clear_at_least=clear_at_least, keep=keep)
    names = as_names(exclude, "exclude")
    layer = _ResultClearing(id, threshold, clear_at_least, keep, frozenset(map(skeleton, names)))
    return MemoryLayer(
        id=id,
        slot=slot,
        scope="execution",
        budget=DEFAULT_BUDGET if budget is None else budget,
        hooks=MemoryHooks(recall=layer.recall, project_history=layer.project_history, dispose=layer.dispose),
        provides={
            "read_result": model_function(
                "Read a tool result again that was cleared from the conversation.", _Read, layer.read_result
            )
        },
    )


@dataclass(slots=True)
class _ResultClearing:
    """The hooks of one layer, and the position reached in each live execution's log."""

    layer_id: str
    threshold: int
    clear_at_least: int
    keep: int
    exclude: frozenset[str]
    live: dict[str, _Walk] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    """The number of cleared results recorded as compactions, by thread, the most recently used last."""

    def walked(self, items: Sequence[Item], ctx: ExecutionContext) -> _Walk:
        """Return the state of clearing a log; if the log has only grown, only new items are examined."""
        walk = self.live.get(ctx.execution_id)
        size = 0 if walk is None else len(walk.seen)
        if walk is None or size > len(items) or (size and walk.seen[-1] is not items[size - 1]):
            walk = self.live[ctx.execution_id] = _Walk()
        for position in range(len(walk.seen), len(items)):
            self.take(walk, position, items[position], ctx.tokenize)
        return walk

    def take(self, walk: _Walk, position: int, item: Item, tokenize: Tokenizer) -> None:
        """Examine one more item, and clear results if due."""
        walk.seen.append(item)
        tokens = item_tokens(item, tokenize)
        walk.shown += tokens
        kind = item["type"]
        if kind == "function_call_output":
            walk.outputs += 1
            name, arguments = walk.calls.get(str(item.get("callId")), ("", ""))
            size = content_tokens(item, tokenize)
            stub = self.stub(item, walk.outputs, name, size)
            freed = tokens - item_tokens(stub, tokenize)
            walk.newest.append(_Result(walk.outputs, position, name, arguments, size, freed, stub))
        elif kind != "message" or item.get("role") == "assistant":
            self.age(walk)
        if kind == "function_call":
            walk.calls[str(item.get("callId"))] = (str(item.get("name") or ""), str(item.get("arguments") or ""))
        if walk.due and walk.shown > self.threshold and walk.due_tokens >= self.clear_at_least:
            walk.cleared += walk.due
            walk.shown -= walk.due_tokens
            walk.due, walk.due_tokens = [], 0

    def age(self, walk: _Walk) -> None:
        """Mark all but the newest results as due, now that the model has answered after them."""
        while len(walk.newest) > self.keep:
            result = walk.newest.popleft()
            if result.freed > 0 and skeleton(result.name) not in self.exclude:
                walk.due.append(result)
                walk.due_tokens += result.freed

    def stub(self, item: Item, number: int, name: str, size: int) -> Item:
        """Return the item sent in place of a result: the same item, so that its call has its output."""
        own = f"{self.layer_id}/read_result"
        # A repeated result is read under its first number. Short, because there is one line per cleared result.
        again = "" if skeleton(name) == skeleton(own) else f" {own} shows it again."
        return parse_item({**item, "output": f"[Result {number} was cleared: {size} tokens.{again}]"})

    def project_history(self, p: params.ProjectHistoryParams) -> dict[str, Any] | None:
        walk = self.walked(p.items, p.ctx)
        if not walk.cleared:
            return None
        items = list(p.items)
        for result in walk.cleared:
            items[result.position] = result.stub
        thread_id = p.ctx.thread_id
        if new := walk.cleared[self.told.pop(thread_id, 0) :]:
            before = sum([result.size for result in new])
            places = tuple([(result.position, result.position + 1) for result in new])
            compacted(Compacted(len(new), before, before - sum([result.freed for result in new]), replaced=places))
        self.told[thread_id] = len(walk.cleared)
        if len(self.told) > MAX_TOLD:
            del self.told[next(iter(self.told))]
        return {"items": items}

    def recall(self, p: params.RecallParams) -> str | None:
        own = skeleton(f"{self.layer_id}/read_result")
        cleared = [result for result in self.walked(p.log, p.ctx).cleared if skeleton(result.name) != own]
        lines = [f"{result.number}. {_call(result)}: {result.size} tokens" for result in reversed(cleared)]
        kept = fitting_lines(TAG, lines, p.budget, p.ctx.tokenize)
        return tagged(TAG, "\n".join(kept)) if kept else None

    def read_result(self, args: _Read, state: object, ctx: ExecutionContext) -> dict[str, Any]:
        walk = self.live.get(ctx.execution_id, _Walk())
        result = next((one for one in walk.cleared if one.number == args.number), None)
        if result is None:
            cleared = ", ".join([str(one.number) for one in walk.cleared]) or "none"
            return {"result": f"Not done: no result {args.number} was cleared. Cleared are: {cleared}."}
        item = walk.seen[result.position]
        # An output of several parts, such as images, has no text of its own.
        text = item_text(item) or compact_json(item.get("output"))
        if not 0 <= args.offset < len(text):
            return {"result": f"Not done: result {args.number} has {len(text)} characters; begin within them."}
        end = args.offset + LONGEST_READ
        more = f"\n[{len(text) - end} more characters: read on with offset {end}.]" if end < len(text) else ""
        return {"result": text[args.offset : end] + more}

    def dispose(self, p: params.DisposeParams) -> None:
        self.live.pop(p.ctx.execution_id, None)


def _call(result: _Result) -> str:
    arguments = " ".join(result.arguments.split())
    return f"{result.name or 'unknown tool'}({arguments if len(arguments) <= CUT else f'{arguments[:CUT]}…'})"
