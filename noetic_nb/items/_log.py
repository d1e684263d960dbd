"""The append-only log of a conversation: items never change, move or disappear.

Appending, snapshots and forks are O(1): logs share one growing store, which is copied only when two forks of the same
log both grow. Tokens are counted once, on append, and kept as running sums.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, overload

from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb.items._build import item_text, unresolved_positions, with_own_call_ids
from noetic_nb.items._item import Item, item_tokens
from noetic_nb.items._origins import Origin
from noetic_nb.items._registry import DEFAULT_REGISTRY, ItemRegistry
from noetic_nb.tokens import Tokenizer, estimate_tokens

if TYPE_CHECKING:
    from noetic_nb.items._origin_index import OriginIndex

_NONE: Final[frozenset[int]] = frozenset()
_PAIRED: Final = ("function_call", "function_call_output")


class _Store:
    """The data that logs share: items, running token sums, and the positions of calls and outputs."""

    __slots__ = (
        "_placed",
        "_places",
        "first_seen",
        "has_system",
        "items",
        "origins",
        "repeats_calls",
        "sums",
        "tokenizer",
        "twins",
        "unpaired",
        "users",
        "widest_pair",
    )

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.items: list[Item] = []
        self.sums: list[int] = [0]
        self.tokenizer = tokenizer
        # By call id, the last seen type and its position; entries are removed when the other half arrives.
        self.unpaired: dict[object, list[int]] = {}
        self.first_seen: dict[object, int] = {}
        self.widest_pair = 0
        self.repeats_calls = False
        self.has_system = False
        self.users: list[int] = []
        self.twins: list[_Store] = []  # the same items, counted by other tokenizers
        self.origins: dict[int, Origin] = {}  # by position, origins that the role does not imply
        # By identity, which is stable while the item is in the log; created on demand.
        self._places: dict[int, tuple[int, ...]] = {}
        self._placed = 0

    def places(self) -> Mapping[int, tuple[int, ...]]:
        """Return the positions of each item by identity; processes only items added since the last call."""
        for at in range(self._placed, len(self.items)):
            key = id(self.items[at])
            self._places[key] = (*self._places.get(key, ()), at)
        self._placed = len(self.items)
        return self._places

    def extend(self, items: Iterable[Item]) -> None:
        known, sums, tokenizer = self.items, self.sums, self.tokenizer
        for item in items:
            sums.append(sums[-1] + item_tokens(item, tokenizer))
            known.append(item)
            kind = item["type"]
            if kind in _PAIRED:
                self._pair(item, kind, len(known) - 1)
                continue
            role = item.get("role")
            if role == "user" and kind == "message":
                self.users.append(len(known) - 1)
            elif role == "system":
                self.has_system = True

    def _pair(self, item: Item, kind: str, position: int) -> None:
        call_id = item.get("callId")
        first = self.first_seen.setdefault(call_id, position)
        if position - first > self.widest_pair:
            self.widest_pair = position - first
        waiting = self.unpaired.get(call_id)
        if waiting is None:
            # A third item with this id is a repetition: the pair is already complete.
            if first == position:
                self.unpaired[call_id] = [position]
            else:
                self.repeats_calls = True
        elif self.items[waiting[0]]["type"] == kind:
            waiting.append(position)
            self.repeats_calls = True
        else:
            del self.unpaired[call_id]

    def copy(self, length: int) -> _Store:
        new = _Store(self.tokenizer)
        new.extend(self.items[:length])
        new.origins = {position: origin for position, origin in self.origins.items() if position < length}
        return new


@with_card(shown="in cells")
class ItemSequence(Sequence[Item]):
    """A read-only sequence of items; equal to any sequence of equal items."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"

    def _card(self) -> Card:
        tokens = getattr(self, "tokens", None)
        counts = [f"{len(self):,} item{'' if len(self) == 1 else 's'}"]
        counts += [] if tokens is None else [f"{tokens:,} tokens"]
        return Card(type(self).__name__, facts=[("", ", ".join(counts))], table=_table(self))


class ItemView(ItemSequence):
    """A read-only range of a log. Slices are views as well and cost O(1)."""

    __slots__ = ("_start", "_stop", "_store")

    def __init__(self, store: _Store, start: int, stop: int) -> None:
        self._store, self._start, self._stop = store, start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[Item]:
        return iter(self._store.items[self._start : self._stop])

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return ItemView(self._store, self._start + start, self._start + max(start, stop))
            return tuple(self._store.items[self._start : self._stop][index])
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"Item {index} of a view with {len(self)} items.")
        return self._store.items[self._start + index]

    @property
    def tokens(self) -> int:
        """Tokens of all items in the view, from the running sums: O(1)."""
        return self._store.sums[self._stop] - self._store.sums[self._start]

    def token_count(self, position: int) -> int:
        """Tokens of the item at a position of this view."""
        absolute = self._start + position
        return self._store.sums[absolute + 1] - self._store.sums[absolute]

    def counted_by(self, tokenizer: Tokenizer) -> ItemView:
        """Return this range counted by another tokenizer; all ranges of one log share its counts."""
        store = self._store
        if tokenizer is not store.tokenizer:
            twin = next((twin for twin in store.twins if twin.tokenizer is tokenizer), None)
            if twin is None:
                store.twins.append(twin := _Store(tokenizer))
            twin.extend(store.items[len(twin.items) : self._stop])
            store = twin
        return ItemView(store, self._start, self._stop)

    def same_start(self, other: ItemView) -> int:
        """Return how many items two views have in common at their start, as positions of one log; O(1)."""
        if self._store is not other._store or self._start != other._start:
            return 0
        return min(self._stop, other._stop) - self._start

    def places_of(self, items: Iterable[Item]) -> list[int]:
        """Return the positions of these items (by identity) in this view, in order; O(items), whatever the length of the log."""
        places, start, stop = self._store.places(), self._start, self._stop
        found = {at - start for item in items for at in places.get(id(item), ()) if start <= at < stop}
        return sorted(found)

    @property
    def has_system(self) -> bool:
        """Whether the log may have a system message, inside or outside the view."""
        return self._store.has_system

    @property
    def repeats_calls(self) -> bool:
        """Whether the log may have two calls with the same id."""
        return self._store.repeats_calls

    @property
    def tokenizer(self) -> Tokenizer:
        """The counter of the items."""
        return self._store.tokenizer

    def tail_start(self, budget: float) -> int:
        """Return the start of the longest tail that fits a token budget, in O(log n); ``len(view)`` if nothing fits."""
        sums = self._store.sums
        start = bisect_left(sums, sums[self._stop] - max(budget, 0), self._start, self._stop + 1)
        return start - self._start

    def latest_user(self) -> int | None:
        """Return the position of the newest user message in this view, or None; O(log n)."""
        users = self._store.users
        found = bisect_left(users, self._stop) - 1
        return users[found] - self._start if found >= 0 and users[found] >= self._start else None

    def unresolved(self) -> AbstractSet[int]:
        """Return the positions of calls without output and outputs without call, considering only this view.

        O(open calls + longest distance between a call and its output); O(n) inside a log that continues and repeats calls.
        """
        store = self._store
        if not store.first_seen:
            return _NONE  # there are no calls
        if not store.unpaired and self._start == 0 and self._stop == len(store.items):
            return _NONE
        goes_on = self._stop != len(store.items)
        if goes_on and store.repeats_calls:
            return unresolved_positions(list(self))
        open_calls = [p for waiting in store.unpaired.values() for p in waiting]
        found = {p - self._start for p in open_calls if self._start <= p < self._stop}
        # Only pairs across an end can have lost their other half, and no pair is wider than the widest.
        if goes_on:
            first = max(self._start, self._stop - store.widest_pair)
            last = store.items[first : self._stop]
            alone = Counter([item.get("callId") for item in last if item["type"] in _PAIRED])
            found |= {
                at - self._start
                for at, item in enumerate(last, first)
                if alone[item.get("callId")] == 1
                and item["type"] in _PAIRED
                and store.first_seen[item.get("callId")] == at
            }
        near = store.items[self._start : min(self._stop, self._start + store.widest_pair)]
        for offset, item in enumerate(near):
            kind = item["type"]
            if kind not in _PAIRED:
                continue
            if store.first_seen[item.get("callId")] < self._start and not self._has_partner(item, kind):
                found.add(offset)
        return found

    def _has_partner(self, item: Item, kind: str) -> bool:
        call_id = item.get("callId")
        reach = self._store.items[self._start : min(self._stop, self._start + 2 * self._store.widest_pair + 1)]
        other = "function_call_output" if kind == "function_call" else "function_call"
        return any(near["type"] == other and near.get("callId") == call_id for near in reach)


@with_card(shown="as HTML")
class ItemLog:
    """An append-only log.

    Parameters
    ----------
    items : iterable of mapping, optional
        The initial items.
    registry : ItemRegistry, optional
        The allowed item types.
    tokenizer : callable, optional
        Counts each item once, on append.

    Examples
    --------
    >>> from noetic_nb.items import input_message
    >>> log = ItemLog([input_message("hello", item_id="id-1")])
    >>> before = log.items
    >>> _ = log.append({"type": "function_call_output", "callId": "c", "output": "ok"})
    >>> len(before), len(log), before.tokens
    (1, 2, 29)
    """

    __slots__ = ("_length", "_origin_index", "_registry", "_store", "_view")

    def __init__(
        self,
        items: Iterable[Mapping[str, Any]] = (),
        *,
        registry: ItemRegistry = DEFAULT_REGISTRY,
        tokenizer: Tokenizer = estimate_tokens,
    ) -> None:
        self._store = _Store(tokenizer)
        self._length = 0
        self._registry = registry
        self._view: ItemView | None = None
        self._origin_index: OriginIndex | None = None
        if items is not None:
            self.extend(items)

    def append(self, item: Mapping[str, Any]) -> Item:
        """Add one item at the end, after checking and freezing it.

        Raises
        ------
        ItemValidationError, NoeticError
            As `parse_item`; the log is then unchanged.
        """
        return self.extend((item,))[0]

    def recount(self, tokenizer: Tokenizer) -> None:
        """Count the items with another tokenizer from now on; existing views keep their counts."""
        if tokenizer is self._store.tokenizer:
            return
        origins = self._store.origins
        store = _Store(tokenizer)
        store.extend(self._store.items[: self._length])
        store.origins = {position: origin for position, origin in origins.items() if position < self._length}
        self._store, self._view = store, None

    def extend(self, items: Iterable[Mapping[str, Any]], *, own_call_ids: bool = False) -> tuple[Item, ...]:
        """Add several items; all are checked before the first is added.

        Parameters
        ----------
        own_call_ids : bool, default False
            Whether to give a call a unique id if the log already has its id; see `with_own_call_ids`.
        """
        parse = self._registry.parse
        # What holds no items is none: parsing it says so.
        parsed = tuple([parse(item) for item in (items if hasattr(items, "__iter__") else (items,))])
        if not parsed:
            return parsed
        if own_call_ids:
            for item in parsed:
                if item["type"] == "function_call":  # only calls may share an id with another item
                    parsed = tuple(with_own_call_ids(parsed, self.has_call))
                    break
        if self._length != len(self._store.items):  # another fork of this log has grown: copy the store
            self._store = self._store.copy(self._length)
        self._store.extend(parsed)  # only after parsing all of them: an invalid item leaves the log unchanged
        self._length += len(parsed)
        self._view = None
        return parsed

    @property
    def items(self) -> ItemView:
        """The current items of the log, as a view that never changes; the same object until the next append."""
        if self._view is None:
            self._view = ItemView(self._store, 0, self._length)
        return self._view

    def since(self, position: int, stop: int | None = None) -> tuple[Item, ...]:
        """Return the items from a position on, to the end or before another position."""
        return tuple(self._store.items[position : self._length if stop is None else min(stop, self._length)])

    @property
    def registry(self) -> ItemRegistry:
        """The allowed item types."""
        return self._registry

    @property
    def tokenizer(self) -> Tokenizer:
        """The counter of the items."""
        return self._store.tokenizer

    @property
    def tokens(self) -> int:
        """Tokens of the whole log."""
        return self._store.sums[self._length]

    def mark(self, origins: Mapping[int, Origin]) -> None:
        """Store the origins of items, by position, where their roles do not imply them."""
        self._store.origins.update(origins)

    def marked(self, start: int = 0) -> dict[int, Origin]:
        """Return the stored origins of the items from a position on."""
        # Usually empty: messages of users, models and tools need no stored origins.
        if not self._store.origins:
            return {}
        return {at: origin for at, origin in self._store.origins.items() if start <= at < self._length}

    def origin_index(self, start: int = 0, *, is_child: bool = False) -> OriginIndex:
        """Return the current index of origins; the first call creates it from the log, starting at `start`."""
        index = self._origin_index
        if index is None:
            from noetic_nb.items._origin_index import OriginIndex  # only loaded for rules that need it

            index = self._origin_index = OriginIndex()
            index.read = start
        if index.read < self._length:
            index.read_log(self.items, self._store.origins, is_child=is_child)
        return index

    def has_call(self, call_id: object) -> bool:
        """Tell whether a call with this id, or its output, is in the log."""
        # Ignore what another fork of this log has added.
        return self._store.first_seen.get(call_id, self._length) < self._length

    @property
    def repeats_calls(self) -> bool:
        """Whether the log may have two calls with the same id, as logs of earlier versions do."""
        return self._store.repeats_calls

    def fork(self) -> ItemLog:
        """Return a log with the same items that grows independently. O(1)."""
        twin = ItemLog(registry=self._registry, tokenizer=self._store.tokenizer)
        twin._store, twin._length = self._store, self._length
        return twin

    def until(self, length: int) -> ItemLog:
        """Return a log of the first `length` items that grows independently. O(1)."""
        twin = self.fork()
        twin._length = min(max(length, 0), self._length)
        return twin

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, int):
            length = self._length
            if 0 <= index < length:
                return self._store.items[index]
            if -length <= index < 0:
                return self._store.items[index + length]
        return self.items[index]

    def __repr__(self) -> str:
        return f"ItemLog({self._length} items, {self.tokens} tokens)"

    def _card(self) -> Card:
        return Card("ItemLog", facts=self.items._card().facts, table=_table(self.items))


def _table(items: Sequence[Item]) -> Table:
    rows = (
        (position, item["type"], item.get("role") or item.get("name"), item_tokens(item), item_text(item))
        for position, item in enumerate(items)
    )
    return Table(("", "type", "who", "tokens", "text"), rows, len(items), "no items yet")
