"""Semantic recall: every message is stored, and those similar to the query are retrieved.

Messages are stored one by one, not in the layer's state, which only holds a count: neither turns nor runs grow with the
number of stored messages.
"""

from __future__ import annotations

import math
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter, mul
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticError
from noetic_nb.items import Item
from noetic_nb.items._build import input_texts, output_texts
from noetic_nb.layers._helpers.collaborators import Embed, as_embedder, check_score, check_whole, embed
from noetic_nb.layers._helpers.considered import Hit, consider, fitting_lines, tagged
from noetic_nb.layers._helpers.embedding import Embedder, EmbedTexts, KeywordIndex
from noetic_nb.layers._helpers.schemas import Arguments, StoredState, load_state, model_function
from noetic_nb.layers.handles import SemanticHandle
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
from noetic_nb.storage import ScopedStorage

DEFAULT_BUDGET: Final = {"min": 0, "max": 4000}
TAG: Final = "semantic_recall"
PREFIX: Final = "said/"  # the storage key prefix; a number follows that keeps the order of the messages
# Characters kept per message; a longer one is more than a prompt can use.
LONGEST: Final = 8_000
# The number of scopes whose index is kept in memory between executions.
MAX_INDEXES: Final = 64
_DIGITS: Final = 10
# The number of messages that a search finds if recall is limited only by its budget.
SEARCHED: Final = 10


class _State(StoredState):
    count: int


class _Search(Arguments):
    query: str
    """What to look for in all messages there ever were."""


class OtherVectors(Warning):
    """Stored messages cannot be compared because another embedder made their vectors."""

    def __init__(self, count: int, total: int) -> None:
        super().__init__(
            f"{count} of {total} stored messages are not compared by nearness: their vectors have another length than "
            "those of the embedder. Use the embedder they were stored with, or another id for this layer."
        )


@dataclass(slots=True)
class _Message:
    key: str
    id: str
    role: str
    text: str
    vector: Sequence[float]
    length: float = field(init=False)

    def __post_init__(self) -> None:
        self.length = math.sqrt(sum([x * x for x in self.vector]))


@dataclass(slots=True)
class MessageIndex:
    """All messages of one scope, oldest first."""

    storage: ScopedStorage | None
    messages: list[_Message] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    # Storage keys of messages that are being written to storage.
    writing: set[str] = field(default_factory=set)
    words: KeywordIndex | None = None
    """Their words, for layers that search for words; updated at each search."""
    # For the last query: all comparable messages, with their cosines.
    scored: list[tuple[float, int]] = field(default_factory=list)
    # For the last query: messages that share words with it, best first, for layers that search for words.
    worded: list[int] = field(default_factory=list)
    other: int = 0
    """The number of messages that the last query could not be compared with, because their vectors differ in length."""

    def lines(self, positions: Sequence[int]) -> list[str]:
        return [f"{self.messages[n].role}: {self.messages[n].text}" for n in positions]


@built_in
@explained()
def semantic_recall(
    embedder: Embedder | EmbedTexts | None = None,
    *,
    id: str = "semantic-recall",
    scope: MemoryScope = "resource",
    top_k: int | None = 10,
    min_score: float = 0.1,
    neighbours: int = 0,
    skip_recent: int = 6,
    max_entries: int = 2_000,
    budget: BudgetConfig = None,
    slot: float = Slot.SEMANTIC_RECALL,
) -> MemoryLayer[SemanticHandle]:
    """Make a layer that retrieves messages similar to the query.

    Parameters
    ----------
    embedder : Embedder or callable, optional
        A function of a list of texts, sync or async, or an object with such a method ``embed``. It is tested once with
        two words. By default `HashingEmbedder`, which needs no network.
    top_k : int, optional
        The maximum number of messages to retrieve; None retrieves as many as the layer's budget holds.
    min_score : float
        The cosine from which a message counts as similar, from -1 to 1.
    neighbours : int
        The number of messages before and after each hit to include.
    skip_recent : int
        The number of newest messages to skip, because the history contains them.
    max_entries : int
        The number of newest messages to keep.

    Returns
    -------
    MemoryLayer
        With function ``search`` and data ``count``.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Semantic recall".

    Examples
    --------
    >>> semantic_recall(top_k=3).id
    'semantic-recall'
    """
    nearness = as_embedder(embedder)
    layer = MessageRecall(id, TAG, scope, nearness, top_k, min_score, neighbours, skip_recent, max_entries)
    return recalling(layer, budget, slot)


def recalling(layer: MessageRecall, budget: BudgetConfig, slot: float) -> MemoryLayer[SemanticHandle]:
    """Make a layer from its hooks, after checking their options."""
    check_whole(max_entries=layer.max_entries, **({} if layer.top_k is None else {"top_k": layer.top_k}))
    check_whole(0, neighbours=layer.neighbours, skip_recent=layer.skip_recent)
    check_score(layer.min_score)
    return MemoryLayer(
        id=layer.layer_id,
        slot=slot,
        placement="suffix",  # it changes with the query, or with time
        scope=layer.scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        hooks=MemoryHooks(init=layer.init, recall=layer.recall, store=layer.store, dispose=layer.dispose),
        provides={
            "count": layer_data(lambda state: (state or {"count": 0})["count"]),
            "search": model_function(
                "Search everything that was ever said for what is near to a query.", _Search, layer.search, list[str]
            ),
        },
    )


def _unknown(log: Sequence[Item], index: MessageIndex, thread_id: str) -> list[Item]:
    """Return the unindexed end of a log; the first indexed item ends the search, so this is O(new items)."""
    found: list[Item] = []
    for position in range(len(log) - 1, -1, -1):
        if any(key in index.ids for key, _, _ in _messages(log[position : position + 1], thread_id)):
            break
        found.append(log[position])
    return found[::-1]


def _messages(items: Sequence[Item], thread_id: str) -> Iterator[tuple[str, str, str]]:
    """Return key, role and text of messages; the key has a checksum because ids repeat between threads."""
    for item in items:
        role = str(item.get("role") or "")
        if item["type"] != "message" or role not in ("user", "assistant"):
            continue
        text = "".join(output_texts([item]) if role == "assistant" else input_texts([item])).strip()[:LONGEST]
        if text:
            checksum = zlib.crc32(text.encode("utf-8", "surrogatepass"))
            yield f"{thread_id}:{item.get('id') or ''}:{checksum:08x}", role, text


def _key_behind(index: MessageIndex, item_key: str) -> str:
    """Return a storage key after all others; its checksum prevents two processes from overwriting each other."""
    number = int(index.messages[-1].key.removeprefix(PREFIX)[:_DIGITS]) + 1 if index.messages else 0
    return f"{PREFIX}{number:0{_DIGITS}}-{zlib.crc32(item_key.encode('utf-8', 'surrogatepass')):08x}"


def _read(layer_id: str, key: str, entry: Any) -> _Message:
    """Return a stored message; raises `NoeticError` ``storage_failed`` if it is damaged."""
    try:
        vector = [float(x) for x in entry["vector"]]
        return _Message(key, str(entry["id"]), str(entry["role"]), str(entry["text"]), vector)
    except (KeyError, TypeError, ValueError) as exc:
        raise NoeticError(
            "storage_failed",
            f"What layer {layer_id!r} stored under {key!r} is damaged: {type(exc).__name__}: {exc}",
            given=entry,
            hint="Delete this key; nothing was changed.",
            layer_id=layer_id,
            key=key,
        ) from exc


@dataclass(slots=True)
class MessageRecall:
    """The hooks of one layer, and its indexes: one per scope, shared by the scope's live executions."""

    layer_id: str
    tag: str
    scope: MemoryScope
    embedder: Embed
    top_k: int | None
    min_score: float
    neighbours: int
    skip_recent: int
    max_entries: int
    live: dict[str, MessageIndex] = field(default_factory=dict)
    # Indexes of recently used scopes: the next execution only reads messages that others have added since.
    known: OrderedDict[tuple[int, str], MessageIndex] = field(default_factory=OrderedDict)

    async def init(self, p: params.InitParams) -> dict[str, Any]:
        await load_state(p, _State, {"count": 0}, layer_id=self.layer_id)
        return {"state": {"count": await self.open(p)}}

    async def recall(self, p: params.RecallParams) -> str | None:
        index = self.live.get(p.ctx.execution_id)
        if index is None or not p.query.strip() or not index.messages:
            return None
        recent: Sequence[Item] = ()
        if self.skip_recent:
            # Calls and outputs lie between messages; four items per message are enough to examine.
            recent = [item for item in p.log[-4 * self.skip_recent :] if item["type"] == "message"]
        hidden = {key for key, _, _ in _messages(recent[-self.skip_recent :], p.ctx.thread_id)}
        order = await self.ranked(index, p.query, hidden, p.ctx)
        self.report(index, order, hidden)
        hits = self.chosen(index, order, hidden)
        if index.other:
            p.ctx.diagnostic(self.layer_id, "recall", OtherVectors(index.other, len(index.messages)))
        lines = index.lines(hits)
        chosen = sorted(hits[: len(fitting_lines(self.tag, lines, p.budget, p.ctx.tokenize))])
        return tagged(self.tag, "\n".join(index.lines(chosen))) if chosen else None

    async def store(self, p: params.StoreParams) -> dict[str, Any] | None:
        index = self.live.get(p.ctx.execution_id)
        if index is None:
            return None
        added = await self.add(index, [*_unknown(p.log, index, p.ctx.thread_id), *p.new_items], p.ctx.thread_id)
        return {"state": {"count": len(index.messages)}} if added else None

    def dispose(self, p: params.DisposeParams) -> None:
        self.live.pop(p.ctx.execution_id, None)

    async def search(self, args: _Search, state: Any, ctx: Any) -> dict[str, Any]:
        index = self.live.get(ctx.execution_id)
        order = [] if index is None else await self.ranked(index, args.query, set(), ctx)
        # Only `top_k` limits the number of results for the model.
        found = [] if index is None else self.chosen(index, order[: self.top_k or SEARCHED], set())
        return {"result": [] if index is None else index.lines(sorted(found))}

    async def open(self, p: params.InitParams) -> int:
        """Update the index of a scope to the stored state; return its length."""
        if self.scope == "execution":
            self.live[p.ctx.execution_id] = MessageIndex(None)
            return 0
        place = (id(p.storage.storage), p.storage.prefix)  # the index holds the storage, so its id is not reused
        index = self.known.setdefault(place, MessageIndex(p.storage))
        self.known.move_to_end(place)
        while len(self.known) > MAX_INDEXES:
            self.known.popitem(last=False)
        # Messages missing in storage were deleted by another process, except those that are being written.
        stored = {message.key for message in index.messages} - index.writing
        keys = await p.storage.list(PREFIX)
        if keys != [message.key for message in index.messages]:
            known = {message.key for message in index.messages}
            found = await p.storage.get_many([key for key in keys if key not in known])
            fresh = {key: _read(self.layer_id, key, entry) for key, entry in found.items()}
            gone = stored.difference(keys)
            kept = {message.key: message for message in index.messages if message.key not in gone}
            index.messages = [message for _, message in sorted((fresh | kept).items())]  # in the order of storage
            index.ids = {message.id for message in index.messages}
        self.live[p.ctx.execution_id] = index
        return len(index.messages)

    async def add(self, index: MessageIndex, items: Sequence[Item], thread_id: str) -> int:
        """Index the new messages among some items; return their number."""
        fresh: dict[str, tuple[str, str]] = {}
        for key, role, text in _messages(items, thread_id):
            if key not in index.ids:
                fresh[key] = (role, text)
        vectors = await embed(self.embedder, [text for _, text in fresh.values()])
        for (key, (role, text)), vector in zip(fresh.items(), vectors, strict=True):
            # Another live execution of the scope may have indexed it meanwhile.
            if key in index.ids:
                continue
            # Six digits are enough for a cosine, and less than half the text in storage.
            rounded = [round(x, 6) for x in vector]
            message = _Message(_key_behind(index, key), key, role, text, rounded)
            index.messages.append(message)
            index.ids.add(key)
            if index.storage is not None:
                index.writing.add(message.key)
                try:
                    await index.storage.set(message.key, {"id": key, "role": role, "text": text, "vector": rounded})
                finally:
                    index.writing.discard(message.key)
        while len(index.messages) > self.max_entries:
            gone = index.messages.pop(0)
            index.ids.discard(gone.id)
            if index.storage is not None:
                await index.storage.delete(gone.key)
        return len(fresh)

    def chosen(self, index: MessageIndex, order: Sequence[int], hidden: set[str]) -> list[int]:
        """Return the first positions of a ranking, each followed by its neighbours."""
        return self.along(index, order[: self.top_k], hidden)

    def along(self, index: MessageIndex, hits: Sequence[int], hidden: set[str]) -> list[int]:
        """Return the positions of hits, each followed by its neighbours, most similar first."""
        steps = [0, *[step for distance in range(1, self.neighbours + 1) for step in (-distance, distance)]]
        around, messages = dict.fromkeys([hit + step for hit in hits for step in steps]), index.messages
        return [near for near in around if 0 <= near < len(messages) and messages[near].id not in hidden]

    def hit(self, index: MessageIndex, position: int, hidden: set[str], score: float | None) -> Hit:
        """Return a hit in the form for listeners of candidates."""
        at = self.along(index, [position], hidden)
        return Hit(tuple(zip(at, index.lines(at), strict=True)), score)

    def report(self, index: MessageIndex, order: Sequence[int], hidden: set[str]) -> None:
        consider(
            self.layer_id,
            self.tag,
            lambda: [
                self.hit(index, position, hidden, score) for score, position in sorted(index.scored, reverse=True)
            ],
            top_k=self.top_k,
            min_score=self.min_score,
        )

    async def ranked(self, index: MessageIndex, query: str, hidden: set[str], ctx: ExecutionContext) -> list[int]:
        """Return the positions of messages similar to a query, best first."""
        (wanted,) = await embed(self.embedder, [query])
        # Hashed vectors are sparse, so only the query's dimensions are used: thousands of messages take a few
        # milliseconds, without a numerical library.
        places = [place for place, x in enumerate(wanted) if x]
        own = [wanted[place] for place in places]
        size = math.sqrt(sum(map(mul, own, own)))
        if not size:
            index.scored = []
            return []
        # A getter of one place returns no tuple; the additional place is ignored.
        at_places = itemgetter(*places, places[0])
        scored = index.scored = [
            (sum(map(mul, own, at_places(message.vector))) / (size * message.length), position)
            for position, message in enumerate(index.messages)
            # Vectors of a previous embedder may have another length: they are skipped, not deleted.
            if message.id not in hidden and message.length and len(message.vector) == len(wanted)
        ]
        index.other = 0
        if len(scored) + len(hidden & index.ids) < len(index.messages):
            index.other = sum(
                [bool(message.length) and len(message.vector) != len(wanted) for message in index.messages]
            )
        return [
            position for _, position in sorted((pair for pair in scored if pair[0] >= self.min_score), reverse=True)
        ]
