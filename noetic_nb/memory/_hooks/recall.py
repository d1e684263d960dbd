"""Call the layers' recall hooks for the next prompt, and hold each layer to its allocation by our own count."""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items import Item, input_message
from noetic_nb.items._build import content_tokens
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hooks.hook_results import UNSET, RerenderRequest, field_of, misnamed, rerender_request
from noetic_nb.memory._hooks.hook_runner import HookRunner
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._state.state_copy import is_same
from noetic_nb.memory.params import RecallParams
from noetic_nb.memory.scope import resolve_scope_key
from noetic_nb.tokens import Tokenizer, most_that_fit

# Offers kept for eventual layers; the least recently served is dropped first, and recalled again when needed.
CACHE_ENTRIES: Final = 1024

Offer = TypeVar("Offer")
Call: TypeAlias = Callable[[MemoryLayer, RecallParams], Awaitable[Offer | None]]
"""Calls the recall hook of a layer; None if it offers nothing."""
_Key: TypeAlias = tuple[str, str]


class EventualRecalls(Generic[Offer]):
    """Stores the offers of eventual layers by scope, so that a value also serves the next execution of the thread."""

    def __init__(self, runner: HookRunner, layers: Iterable[MemoryLayer]) -> None:
        self.layers: Final = {layer.id: layer for layer in layers}
        """The eventual layers, by id."""
        self.refreshing: Final[dict[_Key, asyncio.Task[None]]] = {}
        """The running refreshes."""
        self._runner = runner
        self._cache: OrderedDict[_Key, Offer] = OrderedDict()
        # The last parameters of each eventual layer, for calling its hook again after a write of its state.
        self._last_params: OrderedDict[_Key, tuple[MemoryLayer, RecallParams]] = OrderedDict()
        self._live: dict[str, ExecutionContext] = {}
        self._stale: set[_Key] = set()

    def begin(self, ctx: ExecutionContext) -> None:
        """Register an execution, so that a state written before its first recall refreshes the right value."""
        self._live[ctx.execution_id] = ctx

    async def serve(self, layer: MemoryLayer, params: RecallParams, call: Call[Offer]) -> Offer | None:
        """Return the last offer of a layer; if there is none yet, recall it now."""
        key = (resolve_scope_key(layer.scope, params.ctx), layer.id)
        # Stored even if there is a value: a refresh should use the newest query and log.
        self._last_params[key] = (layer, params)
        self._last_params.move_to_end(key)
        while len(self._last_params) > CACHE_ENTRIES:
            self._last_params.popitem(last=False)
        refresh = self.refreshing.get(key)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        if refresh is not None:  # no value yet, but a refresh is running: wait for it
            await asyncio.shield(refresh)
            return self._cache.get(key)
        entry = await call(layer, params)
        self._keep(key, entry)
        return entry

    def _keep(self, key: _Key, entry: Offer | None) -> None:
        # A layer that now offers nothing must not keep serving an offer that it has withdrawn.
        if entry is None:
            self._cache.pop(key, None)
            return
        self._cache[key] = entry
        self._cache.move_to_end(key)
        while len(self._cache) > CACHE_ENTRIES:
            self._cache.popitem(last=False)

    def written(self, execution_id: str, layer_id: str, state: Any, hook: str, call: Call[Offer]) -> None:
        """Refresh the offer of a layer whose state was written."""
        layer = self.layers.get(layer_id)
        ctx = self._live.get(execution_id)
        if layer is None or ctx is None or hook == "recall":
            return
        # By scope, not by execution: the value also serves the next execution of the thread.
        key = (resolve_scope_key(layer.scope, ctx), layer_id)
        last = self._last_params.get(key)
        if last is None:
            return  # no value yet: the first recall sees this state
        if hook == "init" and is_same(last[1].state, state):
            return  # loaded unchanged
        self._last_params[key] = (layer, last[1]._replace(ctx=ctx, state=state))
        self._refresh(key, call)

    def _refresh(self, key: _Key, call: Call[Offer]) -> None:
        if key in self.refreshing:
            self._stale.add(key)  # one refresh at a time; it checks this mark at its end
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._cache.pop(key, None)  # no loop for a refresh: the next recall fills it
            return
        task = loop.create_task(self._refill(key, call))
        self.refreshing[key] = task
        task.add_done_callback(lambda _: self.refreshing.pop(key, None))

    async def _refill(self, key: _Key, call: Call[Offer]) -> None:
        again = True
        while again:
            self._stale.discard(key)
            last = self._last_params.get(key)
            if last is None:
                return
            layer, params = last
            execution_id = params.ctx.execution_id
            if self._runner.order.idle_reason(layer, execution_id) is not None:
                return
            # Read again, because the state may have been written while the refresh waited.
            state = self._runner.state.get(execution_id, layer.id)
            fresh = RecallParams(params.log, params.query, params.ctx, state, params.budget)
            self._keep(key, await call(layer, fresh))
            again = key in self._stale

    def drop(self, layer_id: str, scope_key: str) -> None:
        """Drop the last offer of a layer in a scope, because its state was edited by hand."""
        self._cache.pop((scope_key, layer_id), None)
        self._last_params.pop((scope_key, layer_id), None)

    async def settle(self) -> None:
        # A refresh may start another one by writing a state.
        while self.refreshing:
            await asyncio.gather(*self.refreshing.values(), return_exceptions=True)

    def forget(self, execution_id: str) -> None:
        self._live.pop(execution_id, None)
        for key, (layer, params) in list(self._last_params.items()):
            # Other scopes outlive the execution, and their values will be needed again.
            if layer.scope == "execution" and params.ctx.execution_id == execution_id:
                self._last_params.pop(key, None)
                self._cache.pop(key, None)


RecallMode: TypeAlias = Literal["all", "cached", "atomic", "eventual"]
RECALL_MODES: Final = get_args(RecallMode)

# A layer that miscounts its own tokens by more than this is reported; smaller differences are rounding.
COUNT_TOLERANCE: Final = 0.10


class RecallEntry(NamedTuple):
    """The offer of one layer; its budget had no room for `dropped`, whose original positions are `places`."""

    layer_id: str
    items: tuple[Item, ...]
    token_count: int
    dropped: tuple[Item, ...] = ()
    places: tuple[int, ...] = ()
    text: str | None = None  # if the layer returned a text: all of it; `items` has the part that fits


def places_that_fit(counts: Iterable[int], budget: float) -> list[int]:
    """Return the positions of the items that fit; one behind another that does not fit may still fit."""
    places: list[int] = []  # items are never cut: half a call or half an image is useless
    used = 0
    for place, count in enumerate(counts):
        if used + count <= budget:
            places.append(place)
            used += count
    return places


def text_that_fits(text: str, budget: float, tokenize: Tokenizer) -> str:
    """Return the beginning of a text that fits."""
    if tokenize(text) <= budget:
        return text
    return text[: most_that_fit(len(text), lambda size: tokenize(text[:size]) <= budget)]


class BudgetOverrun(Warning):
    """A layer offered more than its allocation; the rest was left out."""

    warning_code: ClassVar[str] = "recall_cut"


class MiscountedTokens(Warning):
    """A layer reported a wrong number of tokens for its items; the real number is used."""

    warning_code: ClassVar[str] = "tokens_miscounted"


class _Recalled(NamedTuple):
    entry: RecallEntry | None
    state: Any
    notes: tuple[Warning, ...]
    request: RerenderRequest | None = None


_NOTHING: Final = _Recalled(None, None, ())


class Recaller:
    def __init__(self, runner: HookRunner, *, ids: Ids = SYSTEM_IDS, force_atomic: bool = False) -> None:
        self._runner = runner
        self._ids = ids
        self._requests: dict[str, list[RerenderRequest]] = {}
        found = () if force_atomic else [layer for layer in runner.order.layers if layer.recall_mode == "eventual"]
        self.eventual: Final[EventualRecalls[RecallEntry]] = EventualRecalls(runner, found)
        """The last offers of eventual layers."""
        if self.eventual.layers:
            ref = weakref.ref(self)

            def on_write(execution_id: str, layer_id: str, value: Any, hook: str) -> None:
                alive = ref()
                if alive is None:
                    stop()
                else:
                    alive.eventual.written(execution_id, layer_id, value, hook, alive._call)

            stop = runner.state.listen(on_write)

    async def recall(
        self,
        ctx: ExecutionContext,
        *,
        query: str,
        log: Sequence[Item],
        budgets: Mapping[str, float],
        mode: RecallMode,
        only: Iterable[str] | None = None,
        with_empty: bool = False,
    ) -> tuple[RecallEntry, ...]:
        """Return the offers of the layers, in slot order; see `LayerStack.recall`."""
        # An execution may recall without `init`, for example in a test or when a single step is run.
        served = self.eventual
        if served.layers:
            served.begin(ctx)
        entries: list[RecallEntry] = []
        runner, execution_id, is_again = self._runner, ctx.execution_id, only is not None
        layers: Iterable[MemoryLayer] = runner.order.layers_with("recall")
        # A re-render requests a fresh value, so it bypasses the cache.
        cached: Container[str] = () if is_again or mode == "all" else served.layers
        if only is not None:
            wanted = set(only)
            layers = [layer for layer in layers if layer.id in wanted]
        if mode == "atomic" or mode == "eventual":
            layers = [layer for layer in layers if (layer.id in cached) is (mode == "eventual")]
        for layer in layers:
            layer_id = layer.id
            if runner.order.idle_reason(layer, execution_id) is not None:
                runner.traces.skipped(layer, "recall", ctx)
                continue
            params = RecallParams(log, query, ctx, runner.state.get(execution_id, layer_id), budgets.get(layer_id, inf))
            if layer_id in cached:
                found = await served.serve(layer, params, self._call)
            else:
                found = await self._call(layer, params, is_again)
            if found is not None and (with_empty or found.items or found.text is None):
                entries.append(found)
        return tuple(entries)

    async def _call(self, layer: MemoryLayer, params: RecallParams, again: bool = False) -> RecallEntry | None:
        def measure(found: _Recalled) -> Mapping[str, Any]:
            used, count = (0, 0) if found.entry is None else (found.entry.token_count, len(found.entry.items))
            return {"items": count, "budget": params.budget, "used": used}

        read = partial(self._read, layer, params)
        outcome = await self._runner.run(layer, "recall", params, params.ctx, read=read, measure=measure)
        if outcome.error is not None:
            return None
        recalled: _Recalled = outcome.value
        for note in recalled.notes:
            self._runner.state.report(params.ctx.execution_id, layer.id, "recall", note)
        # Outside a re-render, a request is meaningless: recall is already running.
        if again and recalled.request is not None:
            self._requests.setdefault(params.ctx.execution_id, []).append(recalled.request)
        kept = recalled.state is None or self._runner.write(params.ctx, layer, "recall", recalled.state)
        return recalled.entry if kept else None

    def _read(self, layer: MemoryLayer, params: RecallParams, value: Any) -> _Recalled:
        tokenize = params.ctx.tokenize
        if value is None or value == "":
            return _NOTHING
        if isinstance(value, str):
            notes: tuple[Warning, ...] = ()
            text, count = value, tokenize(value)
            if count > params.budget:
                notes = (_overrun(layer.id, count, params.budget),)
                text = text_that_fits(value, params.budget, tokenize)
                count = tokenize(text)
            if not text:  # a plan lists an offer without any room
                whole = input_message(value, "developer", ids=self._ids)
                return _Recalled(RecallEntry(layer.id, (), 0, (whole,), (0,), value), None, notes)
            message = input_message(text, "developer", ids=self._ids)
            return _Recalled(RecallEntry(layer.id, (message,), count, (), (), value), None, notes)
        warnings: list[Warning] = []
        new_state = field_of(value, "state", hook="recall")
        state = None if new_state is UNSET else new_state
        request = rerender_request(value, layer, hook="recall")
        # Checked against the layer's own schemas: its recalled items are sent but never logged.
        registry = self._runner.order.registry(layer)
        given = field_of(value, "items", hook="recall")
        if given is UNSET:
            if (
                new_state is not UNSET
                or request
                or field_of(value, "stop", hook="recall") is not UNSET
                or misnamed(value, "recall", "") is not None  # reported with the result
            ):
                given = None
            else:
                raise TypeError(f"The hook 'recall' returned {type(value).__name__} without `items`: {value!r:.80}.")
        if given is None:
            return _Recalled(None, state, (), request)
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise TypeError(f"Recalled items must be a list, not {type(given).__name__}: {given!r:.80}.")
        items = [registry.parse(item) for item in given]
        counts = [content_tokens(item, tokenize) for item in items]
        reported = field_of(value, "token_count", hook="recall")
        if isinstance(reported, int | float) and abs(reported - sum(counts)) > COUNT_TOLERANCE * sum(counts):
            warnings.append(MiscountedTokens(f"Layer {layer.id!r} reported {reported} tokens; they are {sum(counts)}."))
        kept = places_that_fit(counts, params.budget)
        used = sum([counts[place] for place in kept])
        entry = RecallEntry(layer.id, tuple([items[place] for place in kept]), used)
        if len(kept) < len(items):
            left = tuple(sorted({*range(len(items))}.difference(kept)))
            entry = entry._replace(dropped=tuple([items[place] for place in left]), places=left)
            warnings.append(_overrun(layer.id, sum(counts), params.budget))
        return _Recalled(entry, state, tuple(warnings), request)

    def take_requests(self, execution_id: str) -> tuple[RerenderRequest, ...]:
        """Return the re-renders that layers requested while being re-rendered, once."""
        return tuple(self._requests.pop(execution_id, ()))


def _overrun(layer_id: str, tokens: int, budget: float) -> BudgetOverrun:
    return BudgetOverrun(
        f"Layer {layer_id!r} offered {tokens} tokens for a budget of {round(budget, 1):g}; the rest was left out."
    )
