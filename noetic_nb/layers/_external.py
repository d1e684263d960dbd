"""External memory: a layer over any store that can add messages and search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeAlias

from noetic_nb._core.arguments import explained
from noetic_nb.clock import Clock
from noetic_nb.errors import NoeticError
from noetic_nb.items import Item, freeze, input_message, item_text
from noetic_nb.layers._helpers.collaborators import check_function, check_whole
from noetic_nb.layers._helpers.considered import consider, fitting_lines, plain_hits, tagged
from noetic_nb.layers._helpers.schemas import Arguments, StoredState, init_hook, model_function, option_error
from noetic_nb.layers.handles import ExternalHandle
from noetic_nb.memory import BudgetConfig, ExecutionContext, MemoryHooks, MemoryLayer, MemoryScope, Slot, params
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.sync import awaited


@dataclass(slots=True)
class Spent:
    """The model calls that stores made, their tokens, and the time spent in stores."""

    timer: Clock | None = None
    calls: int = 0
    tokens: int = 0
    ms: float = 0.0


_LISTENING: ContextVar[Spent | None] = ContextVar("noetic_nb_spent", default=None)


@contextmanager
def counting(spent: Spent) -> Iterator[None]:
    """Record the spending within the block."""
    before = _LISTENING.set(spent)
    try:
        yield
    finally:
        _LISTENING.reset(before)


@contextmanager
def spending(store: Any) -> Iterator[None]:
    """Record the model calls that a store adds to ``spent`` within the block, if a caller is counting."""
    spent = _LISTENING.get()
    if spent is None:
        yield
        return
    before = len(getattr(store, "spent", ()))
    began = spent.timer.monotonic_ms() if spent.timer is not None else 0.0
    try:
        yield
    finally:
        for usage in list(getattr(store, "spent", ()))[before:]:
            spent.calls += 1
            spent.tokens += usage.input_tokens + usage.output_tokens
        if spent.timer is not None:
            spent.ms += spent.timer.monotonic_ms() - began


TAG: Final = "external_memory"
DEFAULT_BUDGET: Final = {"min": 0, "max": 4_000}
# A store often calls a model before it stores a memory, which may take a minute.
TIMEOUTS_MS: Final[Mapping[str, float]] = {"on_complete": 60_000, "recall": 60_000}


class ExternalStore(Protocol):
    """A memory outside this library; its methods are sync or async.

    It may also have ``update(id, text)`` and ``delete(id)``, which are then offered to the model, and ``spent``, a list
    with the `Usage` of each of its model calls, which `noetic_nb.lab.memory_bench` counts.
    """

    def add(self, messages: Sequence[Mapping[str, str]], *, session: str, when: datetime) -> Any:
        """Add the messages of a turn, each with ``role`` and ``content``."""
        ...

    def search(self, query: str, *, limit: int) -> Any:
        """Return memories, best first: texts, or records with ``text`` and, if known, ``origin`` and ``id``."""
        ...


StoreOf: TypeAlias = Callable[[str], ExternalStore]


class _State(StoredState):
    pending: list[dict[str, Any]]
    """Turns that the store has not accepted yet."""


_EMPTY: Final[dict[str, Any]] = {"pending": []}


class _Search(Arguments):
    query: str
    """What to look for."""


class _Update(Arguments):
    id: str
    """Of a memory that was found."""
    text: str
    """What holds now."""


class _Delete(Arguments):
    id: str
    """Of a memory that was found."""


@built_in
@explained()
def external_memory(
    store: ExternalStore | StoreOf,
    *,
    id: str = "external",
    scope: MemoryScope = "resource",
    limit: int = 20,
    budget: BudgetConfig = None,
    slot: float = Slot.SEMANTIC_RECALL,
) -> MemoryLayer[ExternalHandle]:
    """Make a layer over a memory outside this library, such as mem0 or LangMem.

    Parameters
    ----------
    store : ExternalStore, or callable
        ``add(messages, *, session, when)`` is called with the messages of each turn, ``search(query, *, limit)``
        returns texts, or records with ``text``, ``origin`` and ``id``. A function from a resource id to a store keeps
        users apart; a single store is shared by all.
    limit : int
        The number of memories to request.

    Returns
    -------
    MemoryLayer
        With function ``search``, and ``update`` and ``delete`` if the store has them. Turns that a store fails to add
        are kept and tried again with the next one.

    Raises
    ------
    NoeticConfigError
        ``INVALID_LAYER_OPTION`` for a value that is not a store.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "External memory"; docs/recipes/external_memory.md.

    Examples
    --------
    >>> class Notes:
    ...     said = []
    ...     def add(self, messages, *, session, when):
    ...         self.said += [message["content"] for message in messages]
    ...     def search(self, query, *, limit):
    ...         return self.said[-limit:]
    >>> external_memory(Notes()).id
    'external'
    """
    check_whole(limit=limit)
    is_store = hasattr(store, "search") and callable(getattr(store, "add", None))
    if not is_store and (hasattr(store, "search") or not callable(store)):
        raise option_error(
            "This is not a store.", store, "Give it add(messages, *, session, when) and search(query, *, limit)."
        )
    if not is_store:
        check_function(store, "store", "the id of a resource")
    kept: dict[str, ExternalStore] = {}

    def of(ctx: ExecutionContext) -> Any:
        if is_store:
            return store
        resource = ctx.resource_id or ctx.thread_id
        if resource not in kept:
            kept[resource] = store(resource)  # type: ignore[operator]
        return kept[resource]

    async def found(ctx: ExecutionContext, query: str) -> list[_Memory]:
        asked = of(ctx)
        with spending(asked):
            answer = await awaited(asked.search(query, limit=limit))
        if isinstance(answer, str | Mapping) or not isinstance(answer, Sequence):
            raise NoeticError("tool_failed", "`search` of a store must return a list.", given=answer)
        return [_memory(one) for one in answer][:limit]

    async def recall(p: params.RecallParams) -> dict[str, Any] | None:
        if not p.query.strip():
            return None
        memories = await found(p.ctx, p.query)
        lines = [one.line for one in memories]
        consider(id, TAG, lambda: plain_hits(lines))
        shown = fitting_lines(TAG, lines, p.budget, p.ctx.tokenize)
        if not shown:
            return None
        block = input_message(tagged(TAG, "\n".join(shown)), "developer", ids=p.ctx.ids)
        return {"items": [_with_authors(block, [one.origin for one in memories[: len(shown)]], shown)]}

    async def on_complete(p: params.CompleteParams) -> dict[str, Any] | None:
        pending = list((p.state or _EMPTY)["pending"])
        messages = _messages(p.log)
        if messages:
            pending.append({"messages": messages, "session": p.ctx.thread_id, "when": p.ctx.clock.now_ms()})
        asked = of(p.ctx)
        while pending:
            turn = pending[0]
            when = datetime.fromtimestamp(turn["when"] / 1_000, UTC)
            try:
                with spending(asked):
                    await awaited(asked.add(turn["messages"], session=turn["session"], when=when))
            except Exception as exc:
                p.ctx.diagnostic(id, "on_complete", exc)
                break
            pending.pop(0)
        return {"state": {"pending": pending}}

    async def search(args: _Search, state: Any, ctx: Any) -> dict[str, Any]:
        return {"result": [one.named for one in await found(ctx, args.query)]}

    async def update(args: _Update, state: Any, ctx: Any) -> dict[str, Any]:
        await awaited(of(ctx).update(args.id, args.text))
        return {"result": "Updated."}

    async def delete(args: _Delete, state: Any, ctx: Any) -> dict[str, Any]:
        await awaited(of(ctx).delete(args.id))
        return {"result": "Deleted."}

    provides = {"search": model_function("Search the memory.", _Search, search, list[str])}
    if hasattr(store, "update"):
        provides["update"] = model_function("Correct a memory.", _Update, update)
    if hasattr(store, "delete"):
        provides["delete"] = model_function("Delete a memory.", _Delete, delete)
    return MemoryLayer(
        id=id,
        slot=slot,
        placement="suffix",  # it changes with every query
        foreign=True,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        timeouts=TIMEOUTS_MS,
        hooks=MemoryHooks(init=init_hook(_State, _EMPTY, layer_id=id), recall=recall, on_complete=on_complete),
        provides=provides,
    )


@dataclass(frozen=True, slots=True)
class _Memory:
    text: str
    origin: str
    id: str

    @property
    def line(self) -> str:
        """The text of the memory in a request."""
        return f"- {self.text} (from {self.origin})" if self.origin else f"- {self.text}"

    @property
    def named(self) -> str:
        """The text of the memory for a model that may change it."""
        return f"[{self.id}] {self.text}" if self.id else self.text


def _memory(given: Any) -> _Memory:
    if isinstance(given, str):
        return _Memory(given, "", "")

    def part(name: str) -> Any:
        return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)

    if not isinstance(part("text"), str):
        raise NoeticError("tool_failed", "A memory must be text, or a record with `text`.", given=given)
    origin = part("origin")
    kind = getattr(origin, "kind", None)
    named = origin if kind is None else " ".join([kind, getattr(origin, "name", None) or ""]).strip()
    return _Memory(part("text"), str(named or ""), str(part("id") or ""))


def _with_authors(block: Item, origins: Sequence[str], lines: Sequence[str]) -> Item:
    """Return a block in which each line that names its author is a separate part with that author."""
    if not any(origins):
        return block
    texts = [(f"<{TAG}>", ""), *zip(lines, origins, strict=True), (f"</{TAG}>", "")]
    parts = []
    for place, (text, origin) in enumerate(texts):
        kind, _, name = origin.replace(":", " ", 1).partition(" ")
        about = {"origin": f"{kind}:{name}" if name else kind} if origin else {}
        parts.append({"type": "input_text", "text": f"\n{text}" if place else text, **about})
    return Item({**block, "content": freeze(parts)})


def _messages(log: Sequence[Item]) -> list[dict[str, str]]:
    """Return the messages of users and agents from the last user message on."""
    found: list[dict[str, str]] = []
    for item in reversed(log):
        role = item.get("role")
        if item["type"] != "message" or role not in ("user", "assistant"):
            continue
        if text := item_text(item).strip():
            found.append({"role": str(role), "content": text})
        if role == "user":
            break
    return found[::-1]
