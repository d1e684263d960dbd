"""The request of each model call, read from a run: the one reading behind the live view, its static form and the figure.

Two sums matter. *Sent* is what the model got; *planned* is what the budget promised beforehand. A layer that uses less
than its allocation yields the rest to history, so that history may be sent more than was planned for it.
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
    "This recording has no plans: it has what models answered, not what they were sent or how a budget was split."
)

PartKind: TypeAlias = Literal[
    "system", "tools", "layer", "yielded", "framing", "history", "unexplained", "free", "reserve"
]


@dataclass(frozen=True, slots=True)
class LayerShare:
    """One layer in one call, in tokens; `allocated` None is no limit, `is_late` is sent behind the history."""

    name: str
    allocated: float | None
    used: int
    yielded: float | None
    items: int
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Neighbouring items with one fate; `tokens` None is not known."""

    origin: str
    reason: str
    first: int
    last: int
    count: int
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Part:
    """One segment of a bar; `layer` is the position of the layer among those of the run."""

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
    usage: CallUsage | None = None  # what the call was billed at, once it has ended
    offered: tuple[tuple[str, int], ...] = ()
    """The tools with their tokens, where the run has their definitions."""

    @property
    def unexplained(self) -> int:
        """Billed tokens that no part of the plan accounts for, negative where less was billed; 0 where nobody knows."""
        return 0 if self.usage is None else self.usage.unexplained or 0

    @property
    def counted(self) -> str:
        """The counter, its known error, and the billed tokens; empty while the call is under way."""
        return "" if self.usage is None else usage_words(self.usage)

    @property
    def title(self) -> str:
        """Which call this is."""
        inner = f" · depth {self.depth}" if self.depth else ""
        return f"Turn {self.turn}, call {self.call} · thread {self.thread}{inner}"

    @property
    def headline(self) -> str:
        """The sums of the call in one line."""
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
        """Tokens that nothing claimed; 0 where there is no limit or it is exceeded."""
        return 0.0 if self.total is None else max(0.0, self.total - self.reserve - self.sent)

    @property
    def over(self) -> float:
        """Tokens by which the request and its reserve exceed the budget."""
        return 0.0 if self.total is None else max(0.0, self.sent + self.reserve - self.total)

    @property
    def dropped(self) -> tuple[int, int]:
        """How many items were left out, and their tokens as far as they are known."""
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
        """Return the segments of the plan, each in its used and its yielded part; tools and framing come off history."""
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
        """Return the tokens that a whole bar stands for: the budget, or more where more was sent or planned."""
        return self.scale_of(self.sent_parts(order), self.planned_parts(order))

    def scale_of(self, *bars: Sequence[Part]) -> float:
        """Return the same for parts that are known already: a view draws them at every event."""
        return max(1.0, self.total or 0.0, *[sum([part.tokens for part in bar]) for bar in bars])


class Shares(Sequence[CallShare]):
    """The calls in their order, each made when it is looked at: of a long run few are."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.views: list[ViewAssembled] = []
        """What each call was sent."""
        self._prepared: list[RequestPrepared | None] = []
        self._numbers: list[int] = []
        self._billed: dict[int, Billed] = {}

    def add(self, view: ViewAssembled, number: int, prepared: RequestPrepared | None) -> None:
        """Add a call, the one of that number in its turn."""
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
    """The model calls of a run so far, of one turn or thread, and its layers; without plans in recordings of others."""

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
        self._open: dict[tuple[str, str], int] = {}  # by execution, the call that is under way
        self.ended: int | None = None
        """The place in `all` of the call that ended with the event that was read last."""

    @classmethod
    def of(cls, events: Iterable[RunEvent], *, turn: int | None = None, thread_id: str | None = None) -> Calls:
        """Return the model calls of some events."""
        calls = cls(turn=turn, thread_id=thread_id)
        for event in events:
            calls.read(event)
        return calls

    def take(self, event: RunEvent) -> CallShare | None:
        """Read one event; returns the call it describes, None for all others."""
        return self.all[-1] if self.read(event) else None

    def read(self, event: RunEvent) -> bool:
        """Read one event; returns whether it is a call, which is then the last of `all`."""
        self.ended = None
        billed = self._usage.read(event)
        if not isinstance(event, (ViewAssembled, ModelCalled)):  # a union would be made anew each time
            return False
        where = event.where
        if (self.turn is not None and where.turn != self.turn) or (
            self.thread_id is not None and where.thread_id != self.thread_id
        ):
            return False
        if isinstance(event, ModelCalled):
            # Judges and layers are called without a plan; the agent never is.
            if event.purpose == "agent":
                self._answered = True
                at = self._open.pop((where.thread_id, where.execution_id), None)
                if at is not None and billed is not None:
                    self.all.billed(at, billed)
                    self.ended = at
            return False
        place = (where.thread_id, where.turn)
        self._in_turn[place] = self._in_turn.get(place, 0) + 1
        for part in event.layers:  # layers are numbered in their order, whichever call is looked at first
            if part.layer_id not in self._names:
                self._name(part.layer_id)
        self._open[where.thread_id, where.execution_id] = len(self.all)
        self.all.add(event, self._in_turn[place], self._usage.prepared(where))
        return True

    def share(
        self, event: ViewAssembled, number: int, usage: CallUsage | None = None, prepared: RequestPrepared | None = None
    ) -> CallShare:
        """Return the parts on which a request spent its budget; `number` counts the calls of its turn, from 1."""
        where = event.where
        late = () if prepared is None or prepared.order != "cache" else prepared.suffixes
        # As they are sent: in the order of their items, those that sent nothing at the end.
        sent = {
            layer_id: place for place, layer_id in enumerate(dict.fromkeys([name for name, _ in event.layer_items]))
        }
        layers = sorted(event.layers, key=lambda each: sent.get(each.layer_id, len(sent)))
        key = id(prepared), event.tools
        if key not in self._offered:  # with what it is known by, which stays alive
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
        """Whether models were called and no request is in the run."""
        return self._answered and not self.all

    def numbers(self) -> dict[str, int]:
        """Return the places of the layers among those of the run, by their ids."""
        return {layer_id: self.order[name] for layer_id, name in self._names.items()}

    def number(self, layer_id: str) -> int | None:
        """Return the place of a layer among those of the run, None for one that no call had."""
        name = self._names.get(layer_id)
        return None if name is None else self.order[name]

    def _name(self, layer_id: str) -> str:
        """Return the name of a layer here; two ids that look alike once cut get a number."""
        name = self._names.get(layer_id)  # by id, because shortened names of different layers may be equal
        if name is None:
            name = shown = plain(layer_id)
            again = 1
            while name in self.order:
                again += 1
                name = f"{shown} ({again})"
            self._names[layer_id] = name
            self.order[name] = len(self.order)
        return name


_thread = lru_cache(maxsize=256)(plain)  # a few again and again


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def leaves_out(event: ViewAssembled) -> bool:
    """Return whether a request may lack something that there was."""
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
    # A reason is a word of ours, or whatever stands in a file.
    origin, reason = plain(str(run["origin"]).replace("layer:", "layer ", 1)), plain(run["reason"])
    return LeftOut(**{**run, "origin": origin, "reason": reason})
