"""The context at each model call by part, and how many history items left it, for recorded and imported runs.

The parts of a planned request come from its plan; its history is split by item sizes. The parts of an imported request
are estimated from the texts and scaled to the tokens of the call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from operator import add, sub
from typing import Any, Final, NamedTuple

from noetic_nb.events import ContextCompacted, ViewAssembled
from noetic_nb.items import item_tokens
from noetic_nb.items._log import ItemView
from noetic_nb.runs._requests.billing_differences import planned_tokens
from noetic_nb.runs._requests.item_lives import context_of, counted, missed, only_in, reason_of
from noetic_nb.runs._requests.sent_request import RecordedRequest, sent_stretches

HISTORY: Final = ("user", "assistant", "tool results")
REST: Final = "rest"
_KINDS: Final = ("system", *HISTORY, REST)
_NONE: Final = (0,) * len(_KINDS)
_SYSTEM: Final = ("system", "developer")


class ContextCall(NamedTuple):
    """The context of one model call, in tokens; the part of a layer is named ``layer:<id>``."""

    request: RecordedRequest
    parts: dict[str, int]
    estimated: bool

    @property
    def budget(self) -> tuple[float, float] | None:
        """The budget and its reserve; None if there is no limit."""
        view = self.request.view
        return None if view is None or not isfinite(view.total) else (view.total, min(view.reserve, view.total))


def divided(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """Scale sizes to a total, in whole numbers.

    Examples
    --------
    >>> divided({"user": 10, "assistant": 20}, 100)
    {'user': 33, 'assistant': 67}
    >>> divided({}, 7)
    {'rest': 7}
    """
    whole = sum(sizes.values())
    if not whole:
        return {REST: total} if total else {}
    found, done, given = {}, 0, 0
    for name, size in sizes.items():
        done += size
        found[name] = total * done // whole - given
        given += found[name]
    return found


class ContextParts:
    """Reads the contexts of a run's requests; caches the size of each item."""

    def __init__(self, meta: Mapping[str, Any] | None = None) -> None:
        self._meta = {} if meta is None else meta
        self._sizes: dict[tuple[int, int], tuple[Any, Any, int]] = {}
        self._sums: dict[Any, tuple[ItemView, list[tuple[int, ...]]]] = {}
        self._left: list[dict[str, int]] = []
        self._before: dict[tuple[str, str], tuple[RecordedRequest, list[range]]] = {}

    @property
    def is_billed(self) -> bool:
        """Whether the input tokens of calls are those of a provider."""
        estimated = self._meta.get("estimated")  # in a loaded file, it may have any type
        return not (isinstance(estimated, list | tuple) and "input_tokens" in estimated)

    def call(self, request: RecordedRequest, compactions: Sequence[tuple[int, ContextCompacted]] = ()) -> ContextCall:
        """Return the context of a request; `compactions` are those of the run, with their indices."""
        view, called = request.view, request.called
        if view is not None:
            return ContextCall(request, self.planned(request, view, request.stretches), False)
        sizes = {"system": 0, "tools": self._tools(request)}
        before = compactions_before(request, compactions)
        written = sum([self._size(item, request) for event in before for item in event.items])
        at, kept = request.first, list[range]()
        for start, stop in sorted([stretch for event in before for stretch in event.replaced]):
            kept += [range(at, start)] if at < start else []
            at = max(at, stop)
        found = self._kinds(request, [*kept, range(at, max(at, request.first + len(request.known or ())))])
        policy = self._meta.get("policy")
        if not found.get("system") and isinstance(policy, str):
            found["system"] = request.counter(policy)
        sizes.update(found)
        sizes[REST] = sizes.get(REST, 0) + written
        sent = 0 if called is None else called.input_tokens
        if not (sizes["system"] or sizes["tools"]):  # then much of the billed input is not in any recorded text
            sizes[REST] += max(0, sent - sum(sizes.values()))
        return ContextCall(request, _some(divided(sizes, sent) if sent > 0 else sizes), True)

    def planned(self, request: RecordedRequest, view: ViewAssembled, sent: Sequence[range]) -> dict[str, int]:
        """Return the parts of a request as planned, or as in another plan; `sent` has its stretches."""
        layers = {f"layer:{layer.layer_id}": layer.used for layer in view.layers}
        front = {"system": view.system, "tools": view.tools, **layers, "framing": view.framing}
        found = self._kinds(request, sent)
        rest = view.history - sum(found.values())
        history = divided(found, view.history) if rest < 0 else {**found, REST: found.get(REST, 0) + rest}
        return _some({**front, **history})

    def _kinds(self, request: RecordedRequest, stretches: Iterable[range]) -> dict[str, int]:
        known = request.known
        if known is None:
            return {}
        sums, first, last = self._sums_of(request, known), request.first, len(known)
        sent = _NONE
        for part in stretches:
            start, stop = [max(0, min(at - first, last)) for at in (part.start, part.stop)]
            sent = tuple(map(add, sent, map(sub, sums[stop], sums[start])))
        return {kind: tokens for kind, tokens in zip(_KINDS, sent, strict=True) if tokens}

    def _sums_of(self, request: RecordedRequest, known: ItemView) -> list[tuple[int, ...]]:
        """Return cumulative tokens of each kind for every place in a log; requests of one log share them."""
        key = context_of(request.where), id(request.counter), request.view is None
        read, sums = self._sums.get(key, (known, [_NONE]))
        if read.same_start(known) < min(len(sums) - 1, len(known)):  # the log has changed at an earlier place
            read, sums = known, [_NONE]
        for item in known[len(sums) - 1 :]:
            kind, size = kind_of(item, request.view is None), self._size(item, request)
            sums.append(tuple([total + size * (name == kind) for name, total in zip(_KINDS, sums[-1], strict=True)]))
        self._sums[key] = (read if len(read) > len(known) else known), sums
        return sums

    def _size(self, item: Any, request: RecordedRequest) -> int:
        counter = request.counter
        key = id(item), id(counter)
        known = self._sizes.get(key)
        if known is None:
            known = self._sizes[key] = item, counter, item_tokens(item, counter)
        return known[2]

    def _tools(self, request: RecordedRequest) -> int:
        tools = (
            self._meta.get("tools")
            if request.tools is None
            else [tool.name + tool.description for tool in request.tools]
        )
        return request.counter(json.dumps(tools, default=str)) if tools else 0

    def left(
        self, requests: Sequence[RecordedRequest], compactions: Sequence[tuple[int, ContextCompacted]] = ()
    ) -> list[dict[str, int]]:
        """Return, for each request, how many history items left with it, by reason; 0 is an unknown number."""
        for request in requests[len(self._left) :]:
            view, context = request.view, context_of(request.where)
            if view is None:
                self._left.append({})
                continue
            sent = sent_stretches(view)
            before, was = self._before.get(context, (request, sent))
            # A rewritten log has other items at these places.
            lost = [at for at in only_in(was, sent) if request.log_item(at) is before.log_item(at)]
            self._before[context] = request, sent
            self._left.append(counted(missed(view, lost)) if lost else {})
        found, last, gone = [], dict[tuple[str, str], int](), dict[tuple[str, str], set[int]]()
        by_context: dict[tuple[str, str], list[tuple[int, ContextCompacted]]] = {}
        for seq, event in compactions:
            by_context.setdefault(context_of(event.where), []).append((seq, event))
        for request, left in zip(requests, self._left, strict=True):
            context = context_of(request.where)
            if request.view is None and context in by_context:
                left = {**left}
                for seq, event in by_context[context]:
                    if last.get(context, -1) < seq < request.seq:
                        places, known = replaced_in([event]), gone.setdefault(context, set())
                        number = len(places - known) if places else event.items_removed or 0
                        left[reason_of(event)] = left.get(reason_of(event), 0) + number
                        known |= places
                last[context] = request.seq
            found.append(left)
        return found


def compactions_before(
    request: RecordedRequest, compactions: Sequence[tuple[int, ContextCompacted]]
) -> list[ContextCompacted]:
    """Return the compactions of an imported request, without those whose texts a later one replaced."""
    if request.view is not None:
        return []
    context, found, later = context_of(request.where), list[ContextCompacted](), list[tuple[int, int]]()
    for seq, event in reversed(compactions):
        if seq < request.seq and context_of(event.where) == context:
            is_in = [any(first <= start and stop <= last for first, last in later) for start, stop in event.replaced]
            found += [] if is_in and all(is_in) else [event]
            later += event.replaced
    return found[::-1]


def replaced_in(compactions: Iterable[ContextCompacted]) -> set[int]:
    """Return the places of log items that compactions replaced."""
    return {at for event in compactions for start, stop in event.replaced for at in range(start, stop)}


def size_of(request: RecordedRequest) -> int:
    """Return the tokens of a request, as planned or as its call reports."""
    if request.view is not None:
        return planned_tokens(request.view)
    return 0 if request.called is None else request.called.input_tokens


def _some(parts: Mapping[str, int]) -> dict[str, int]:
    return {name: tokens for name, tokens in parts.items() if tokens > 0}


def kind_of(item: Any, is_imported: bool) -> str:
    """Return the band (part of the chart) of a history item."""
    if item["type"] == "function_call_output":
        return "tool results"
    role = item.get("role")
    if role in _SYSTEM:
        return "system" if is_imported else REST
    return "user" if role == "user" else "assistant"
