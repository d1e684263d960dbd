"""The request of each model call, read from a run; used by the live view, its static form and the figure.

*Sent* is what the model received; *planned* is what the budget allowed beforehand. A layer that uses less than its
allocation yields the rest to history, so history may get more than planned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, overload

from noetic_nb.events import ItemFate, ModelCalled, RequestPrepared, RunEvent, ViewAssembled
from noetic_nb.runs._plain_text import count, plain
from noetic_nb.runs._requests.billing_differences import Billed, CallUsage, UsageIndex, usage_words
from noetic_nb.runs._requests.sent_request import tool_tokens

NO_PLANS: Final = (
    "This recording has no plans: it contains the answers of models, but not their requests or the split of the budget."
)

PartKind: TypeAlias = Literal[
    "system", "tools", "layer", "yielded", "framing", "history", "unexplained", "free", "reserve"
]


@dataclass(frozen=True, slots=True)
class LayerShare:
    """One layer in one call, in tokens; `allocated` None is no limit, `is_late` means sent after the history."""

    name: str
    allocated: float | None
    used: int
    yielded: float | None
    items: int
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Neighbouring items that were left out for the same reason; `tokens` is None if unknown."""

    origin: str
    reason: str
    first: int
    last: int
    count: int
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Part:
    """One segment of a bar; `layer` is the index of the layer among those of the run."""

    kind: PartKind
    label: str
    tokens: float
    layer: int | None = None


@dataclass(frozen=True, slots=True)
class CallShare:
    """How one model call spent its budget, in tokens; `total` None is no limit."""

    thread: str
    turn: int
    call: int
    depth: int
    total: float | None
    reserve: float
    system: int
    tools: int
    framing: int
    history: int
    history_budget: float | None
    history_items: int
    layers: tuple[LayerShare, ...]
    left_out: tuple[LeftOut, ...]
    usage: CallUsage | None = None  # the billed tokens, once the call has ended
    offered: tuple[tuple[str, int], ...] = ()
    """The tools with their tokens, if the run has their definitions."""

    @property
    def unexplained(self) -> int:
        """Billed tokens that no part of the plan explains, negative if less was billed; 0 if unknown."""
        return 0 if self.usage is None else self.usage.unexplained or 0

    @property
    def counted(self) -> str:
        """The counter, its known error, and the billed tokens; empty while the call is running."""
        return "" if self.usage is None else usage_words(self.usage)

    @property
    def title(self) -> str:
        """The name of this call."""
        inner = f" · depth {self.depth}" if self.depth else ""
        return f"Turn {self.turn}, call {self.call} · thread {self.thread}{inner}"

    @property
    def headline(self) -> str:
        """The totals of the call in one line."""
        if self.total is None:
            return f"{count(self.sent)} tokens sent, no limit"
        share = f" ({100 * self.sent / self.total:.0f}%)" if self.total else ""
        rest = f"{count(self.over)} over the budget" if self.over else f"{count(self.free)} free"
        return f"{count(self.sent)} of {count(self.total)} tokens sent{share}, {count(self.reserve)} in reserve, {rest}"

    @property
    def sent(self) -> int:
        """Tokens of the request."""
        return self.system + self.tools + self.framing + self.history + sum(layer.used for layer in self.layers)

    @property
    def free(self) -> float:
        """Unused tokens; 0 if there is no limit or it is exceeded."""
        return 0.0 if self.total is None else max(0.0, self.total - self.reserve - self.sent)

    @property
    def over(self) -> float:
        """Tokens by which the request and its reserve exceed the budget."""
        return 0.0 if self.total is None else max(0.0, self.sent + self.reserve - self.total)

    @property
    def dropped(self) -> tuple[int, int]:
        """The number of left-out items, and their tokens as far as known."""
        gone = [entry for entry in self.left_out if entry.reason != "forced"]
        return sum(entry.count for entry in gone), sum(entry.tokens or 0 for entry in gone)

    def sent_parts(self, order: dict[str, int]) -> tuple[Part, ...]:
        """Return the segments of the sent request; `order` numbers the layers of the run."""
        front, late = (
            [Part("layer", layer.name, layer.used, order[layer.name]) for layer in self.layers if layer.is_late is late]
            for late in (False, True)
        )
        parts = [
            Part("system", "System", self.system),
            Part("tools", "Tools", self.tools),
            *front,
            Part("framing", "Framing", self.framing),
            Part("history", "History", self.history),
            *late,
            Part("unexplained", "Unexplained", self.unexplained),
            Part("free", "Free", max(0.0, self.free - max(0, self.unexplained))),
            Part("reserve", "Reserve", self.reserve),
        ]
        return tuple(part for part in parts if part.tokens > 0)

    def planned_parts(self, order: dict[str, int]) -> tuple[Part, ...]:
        """Return the segments of the plan, each split into used and yielded; tools and framing are taken from history."""
        parts = [Part("system", "System", self.system)]
        for layer in self.layers:
            inside = layer.used if layer.allocated is None else min(layer.used, layer.allocated)
            parts.append(Part("layer", layer.name, inside, order[layer.name]))
            if layer.allocated is not None:
                parts.append(Part("yielded", layer.name, layer.allocated - inside, order[layer.name]))
        parts += [
            Part("history", "History", self.history if self.history_budget is None else self.history_budget),
            Part("reserve", "Reserve", self.reserve),
        ]
        return tuple(part for part in parts if part.tokens > 0)

    def scale(self, order: dict[str, int]) -> float:
        """Return the tokens of a full-length bar: the budget, or more if more was sent or planned."""
        return self.scale_of(self.sent_parts(order), self.planned_parts(order))

    def scale_of(self, *bars: Sequence[Part]) -> float:
        """Return the same for parts that are already computed: views redraw them at every event."""
        return max(1.0, self.total or 0.0, *[sum([part.tokens for part in bar]) for bar in bars])


class Shares(Sequence[CallShare]):
    """The calls in order, each computed on access, because few calls of a long run are viewed."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.views: list[ViewAssembled] = []
        """The sent view of each call."""
        self._prepared: list[RequestPrepared | None] = []
        self._numbers: list[int] = []
        self._billed: dict[int, Billed] = {}

    def add(self, view: ViewAssembled, number: int, prepared: RequestPrepared | None) -> None:
        self.views.append(view)
        self._prepared.append(prepared)
        self._numbers.append(number)

    def billed(self, at: int, billed: Billed) -> None:
        """Note the billed tokens of a call."""
        self._billed[at] = billed

    def __len__(self) -> int:
        return len(self.views)

    @overload
    def __getitem__(self, at: int) -> CallShare: ...
    @overload
    def __getitem__(self, at: slice) -> list[CallShare]: ...
    def __getitem__(self, at: int | slice) -> CallShare | list[CallShare]:
        places = range(len(self.views))[at]
        return self._share(places) if isinstance(places, int) else [self._share(place) for place in places]

    def _share(self, at: int) -> CallShare:
        billed = self._billed.get(at)
        usage = None if billed is None else billed.usage
        return self._calls.share(self.views[at], self._numbers[at], usage, self._prepared[at])


class Calls:
    """The model calls of a run so far, of one turn or thread, and its layers; imported runs have no plans."""

    def __init__(self, *, turn: int | None = None, thread_id: str | None = None) -> None:
        self.turn = turn
        self.thread_id = thread_id
        self.all = Shares(self)
        self.order: dict[str, int] = {}
        self._answered = False
        self._in_turn: dict[tuple[str, int], int] = {}
        self._names: dict[str, str] = {}
        self._usage = UsageIndex()
        self._offered: dict[tuple[int, int], tuple[RequestPrepared | None, tuple[tuple[str, int], ...]]] = {}
        self._open: dict[tuple[str, str], int] = {}  # by execution, the running call
        self.ended: int | None = None
        """The index in `all` of the call that ended with the last event."""

    @classmethod
    def of(cls, events: Iterable[RunEvent], *, turn: int | None = None, thread_id: str | None = None) -> Calls:
        calls = cls(turn=turn, thread_id=thread_id)
        for event in events:
            calls.read(event)
        return calls

    def take(self, event: RunEvent) -> CallShare | None:
        """Read one event; returns the call it describes, or None."""
        return self.all[-1] if self.read(event) else None

    def read(self, event: RunEvent) -> bool:
        """Read one event; returns whether it is a call, which is then the last of `all`."""
        self.ended = None
        billed = self._usage.read(event)
        if not isinstance(event, (ViewAssembled, ModelCalled)):  # a union type would be rebuilt at each use
            return False
        where = event.where
        if (self.turn is not None and where.turn != self.turn) or (
            self.thread_id is not None and where.thread_id != self.thread_id
        ):
            return False
        if isinstance(event, ModelCalled):
            # Judges and layers call models without a plan; the agent always has one.
            if event.purpose == "agent":
                self._answered = True
                at = self._open.pop((where.thread_id, where.execution_id), None)
                if at is not None and billed is not None:
                    self.all.billed(at, billed)
                    self.ended = at
            return False
        place = (where.thread_id, where.turn)
        self._in_turn[place] = self._in_turn.get(place, 0) + 1
        for part in event.layers:  # number layers in order, whichever call is viewed first
            if part.layer_id not in self._names:
                self._name(part.layer_id)
        self._open[where.thread_id, where.execution_id] = len(self.all)
        self.all.add(event, self._in_turn[place], self._usage.prepared(where))
        return True

    def share(
        self, event: ViewAssembled, number: int, usage: CallUsage | None = None, prepared: RequestPrepared | None = None
    ) -> CallShare:
        """Split the budget of a request into parts; `number` counts the calls of its turn, from 1."""
        where = event.where
        late = () if prepared is None or prepared.order != "cache" else prepared.suffixes
        # In the order sent, by their items; layers that sent nothing come last.
        sent = {
            layer_id: place for place, layer_id in enumerate(dict.fromkeys([name for name, _ in event.layer_items]))
        }
        layers = sorted(event.layers, key=lambda each: sent.get(each.layer_id, len(sent)))
        key = id(prepared), event.tools
        if key not in self._offered:  # store the key object as well, so that its id is not reused
            self._offered[key] = prepared, tool_tokens(prepared, event.tools)
        return CallShare(
            thread=_thread(where.thread_id),
            turn=where.turn,
            call=number,
            depth=where.depth,
            total=_finite(event.total),
            reserve=_finite(event.reserve) or 0.0,
            system=event.system,
            tools=event.tools,
            framing=event.framing,
            history=event.history,
            history_budget=_finite(event.history_budget),
            history_items=event.history_items,
            layers=tuple(
                [
                    LayerShare(
                        self._name(part.layer_id),
                        _finite(part.allocated),
                        part.used,
                        _finite(part.yielded),
                        part.items,
                        part.layer_id in late,
                    )
                    for part in layers
                ]
            ),
            left_out=tuple(_left_out(event)),
            usage=usage,
            offered=self._offered[key][1],
        )

    @property
    def lacks_plans(self) -> bool:
        """Whether models were called but the run has no requests."""
        return self._answered and not self.all

    def numbers(self) -> dict[str, int]:
        """Return the indices of the run's layers, by id."""
        return {layer_id: self.order[name] for layer_id, name in self._names.items()}

    def number(self, layer_id: str) -> int | None:
        """Return the index of a layer in the run, None if no call had it."""
        name = self._names.get(layer_id)
        return None if name is None else self.order[name]

    def _name(self, layer_id: str) -> str:
        """Return the display name of a layer; two ids that are equal after shortening get a number."""
        name = self._names.get(layer_id)  # by id, because the shortened names of layers may be equal
        if name is None:
            name = shown = plain(layer_id)
            again = 1
            while name in self.order:
                again += 1
                name = f"{shown} ({again})"
            self._names[layer_id] = name
            self.order[name] = len(self.order)
        return name


_thread = lru_cache(maxsize=256)(plain)  # the same few names repeat


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def leaves_out(event: ViewAssembled) -> bool:
    """Tell whether a request may lack some existing items."""
    return bool(event.window[0] or event.hidden or event.fates)


def _left_out(event: ViewAssembled) -> Iterator[LeftOut]:
    if not leaves_out(event):
        return
    before = event.window[0]
    listed = {fate.position for fate in event.fates if fate.origin == "history" and fate.position < before}
    # Items before the window have no fate of their own in the event; only the bounds are known.
    floor = min(event.floor, before)
    for reason, start, stop in (("outside_window", 0, floor), ("over_budget", floor, before)):
        sent = listed.union(event.kept)
        count = stop - start - len([position for position in sent if start <= position < stop])
        if count > 0:
            yield LeftOut("history", reason, start, stop - 1, count, None)
    for start, stop, tokens in event.hidden:
        yield LeftOut("history", "hidden", start, stop - 1, stop - start, tokens)
    yield from _runs(event.fates)


def _runs(fates: Iterable[ItemFate]) -> Iterator[LeftOut]:
    current: dict[str, Any] = {}
    for fate in sorted(fates, key=lambda fate: (fate.origin, fate.reason, fate.position)):
        follows = (
            current
            and (current["origin"], current["reason"]) == (fate.origin, fate.reason)
            and fate.position == current["last"] + 1
        )
        if follows:
            current["last"] = fate.position
            current["count"] += 1
            current["tokens"] += fate.tokens
            continue
        if current:
            yield _named(current)
        current = {
            "origin": fate.origin,
            "reason": fate.reason,
            "first": fate.position,
            "last": fate.position,
            "count": 1,
            "tokens": fate.tokens,
        }
    if current:
        yield _named(current)


def _named(run: dict[str, Any]) -> LeftOut:
    # A reason is one of ours, or any text from a file.
    origin, reason = plain(str(run["origin"]).replace("layer:", "layer ", 1)), plain(run["reason"])
    return LeftOut(**{**run, "origin": origin, "reason": reason})
