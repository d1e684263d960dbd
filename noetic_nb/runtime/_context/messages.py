"""Turn input into log items and validate it at once: user messages, input of a step from code, results of tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from noetic_nb.errors import ItemValidationError, NoeticError
from noetic_nb.events import ItemsAppended
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items import Item, ItemLog, freeze, input_message, item_text
from noetic_nb.items._frozen import MAPPINGS, FrozenDict
from noetic_nb.items._item import is_base_type
from noetic_nb.items._item_checks import MalformedItem, checked_item
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._origins import MODEL, Origin
from noetic_nb.items._registry import DEFAULT_REGISTRY, ItemRegistry
from noetic_nb.memory import ExecutionContext, RerenderRequest
from noetic_nb.redact._secret_names import PLACEHOLDER
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.protocols import StepValue
from noetic_nb.runtime._context.reply import AgentReply
from noetic_nb.runtime._context.running_execution import RunningExecution

if TYPE_CHECKING:
    from noetic_nb.items._messages import MessageFormat


def is_given_item(value: object) -> bool:
    """Tell whether a value is an item or a message in another format: a mapping with a type or a role, or a record."""
    if isinstance(value, Mapping) and "type" in value:
        return True
    return _format(value) is not None or (hasattr(value, "role") and hasattr(value, "model_dump"))


def _format(value: Any) -> MessageFormat | None:
    """Return the format of a message that is not one of our items."""
    # Imported only when a user gives items: readers of foreign formats.
    from noetic_nb.items._messages import recognise

    found = recognise([value])
    kind = value.get("type") if isinstance(value, Mapping) else None
    # Anthropic's answers have the type "message", too, but contain blocks that our items do not have.
    is_ours = isinstance(kind, str) and is_base_type(kind) and found != "anthropic"
    if kind == "function_call_output" and isinstance(value.get("output"), list | tuple):
        is_ours = False  # an item of the Responses API, with parts
    return None if is_ours else found


def input_items(
    given: Iterable[Any], *, registry: ItemRegistry = DEFAULT_REGISTRY, ids: Ids = SYSTEM_IDS
) -> tuple[Item, ...]:
    """Validate and freeze items given by a user, or messages in any format that `Run.from_messages` reads."""
    from noetic_nb.items._messages.formats import decode_one, plain_message
    from noetic_nb.items._messages.message import Message

    made: list[Item] = []
    waiting: list[str] = []
    for place, value in enumerate(given):
        value = plain_message(value)
        try:
            if (format := _format(value)) is not None:
                found = decode_one(value, format, waiting=waiting, place=f"Item {place}")
                made += [
                    checked_item(_with_id(item, ids)) for one in found if isinstance(one, Message) for item in one.items
                ]
            else:
                item = registry.parse(value)
                if (
                    item["type"] == "function_call" and not item["name"]
                ):  # a model may leave the name out, a user may not
                    raise MalformedItem("function_call", "a call needs text as 'name'.", given="")
                made.append(item)
        except MalformedItem as exc:
            raise ItemValidationError(f"Item {place}: {exc.problem}", given=exc.given, hint=exc.hint) from None
    return tuple(made)


def _with_id(item: Item, ids: Ids) -> Item:
    return item if item.get("id") is not None else Item({"id": ids.new("item"), **item})


ItemOrigin: TypeAlias = Literal["user", "model", "tool", "guidance", "layer", "seed", "step"]
"""The source of a logged item."""

Announce: TypeAlias = Callable[[tuple[Item, ...]], None]
"""Emits events that must precede the items just logged."""


async def append_input(
    engine: Engine,
    ctx: RunningExecution,
    hook_ctx: ExecutionContext | None,
    items: Iterable[Mapping[str, Any]],
    origin: ItemOrigin,
    announce: Announce | None = None,
) -> tuple[tuple[Item, ...], tuple[RerenderRequest, ...]]:
    """Log items after the `on_item_append` hooks of layers; returns the logged items and the requested re-renders."""
    if "on_item_append" not in engine.stack.hooks:
        return log_items(engine, ctx, items, origin, announce), ()
    result = await engine.stack.append(hook_ctx or engine.hook_context(ctx), items, log=ctx.item_log)
    # A tool's result stays the tool's, even if a layer shortened it.
    layers = {place: by for place, by in result.made_by.items() if result.items[place]["type"] == "message"}
    start = len(ctx.item_log)
    logged = log_items(engine, ctx, result.items, origin, announce, layers)
    if result.made_by:
        ctx.item_log.mark({start + place: Origin("layer", by) for place, by in result.made_by.items()})
        if origin == "user" and ctx.parent is None:
            ctx.noting().given += result.replaced
    return logged, result.rerender_requests


_SOURCES: Final = {
    "user": "A message",
    "model": "An answer",
    "tool": "The output of a tool",
    "seed": "The conversation that the thread began with",
}


def warn_if_redacted(ctx: RunningExecution, items: Iterable[Item], source: str, layer_id: str | None = None) -> None:
    """Warn if a text contains the placeholder of a removed secret, and so is not the original."""
    for item in items:
        # This runs for every logged item: the full text is built only if it may contain a placeholder.
        content = item.get("content")
        if type(content) is not tuple:
            content = (content or item.get("output") or item.get("arguments"),)
        for part in content:
            text = part.get("text") if type(part) is FrozenDict else part
            if "[redacted" in (text if type(text) is str else str(text)) and PLACEHOLDER.search(item_text(item)):
                ctx.warn(
                    "text_redacted",
                    f"{source} contains the placeholder of a removed secret; the placeholder was kept as text.",
                    layer_id,
                )
                return


def log_items(
    engine: Engine,
    ctx: RunningExecution,
    items: Iterable[Mapping[str, Any]],
    origin: ItemOrigin,
    announce: Announce | None = None,
    layers: Mapping[int, str] = {},
) -> tuple[Item, ...]:
    """Log items unchanged, except for call ids that the log already has; `announce` runs before any event about them."""
    start = len(ctx.item_log)
    logged = ctx.item_log.extend(items, own_call_ids=True)
    if origin in ("step", "model"):
        # Messages and model calls are recognised by their type; an output inside a model's response is not a tool's.
        is_step = origin == "step"
        made = [at for at, item in enumerate(logged, start) if is_step or item["type"] == "function_call_output"]
        if made:
            ctx.item_log.mark(dict.fromkeys(made, MODEL))
    if announce is not None:
        announce(logged)
    warn_if_redacted(ctx, logged, _SOURCES.get(origin, "An item"))
    if engine.sink is not None and logged:
        now = engine.clock.now_ms()
        if not layers:
            engine.sink.emit(ItemsAppended(ctx.where, now, start, logged, origin))
            return logged
        for place, item in enumerate(logged):
            made_by: ItemOrigin = "layer" if place in layers else origin
            engine.sink.emit(ItemsAppended(ctx.where, now, start + place, (item,), made_by, layers.get(place)))
    return logged


def as_input_items(
    engine: Engine, value: StepValue, step_id: str, *, serialise: bool = True
) -> list[Mapping[str, Any]]:
    """Return the items for an input: a user message for text, validated items for items, nothing for None and ''.

    With `serialise`, other JSON data and another agent's reply become a user message of their text, so that the model
    can read the output of a tool step or a function. Without it, a mapping with a role is a chat message. Raises
    `ItemValidationError` for an item that does not match its known type, and `NoeticError` ``step_failed`` for any
    other value: no input is silently dropped.
    """
    if value is None or (isinstance(value, str) and not value):
        return []
    if isinstance(value, str):
        return [input_message(value, ids=engine.ids)]
    if isinstance(value, AgentReply) and serialise:
        return [input_message(value.text, ids=engine.ids)] if value.text else []
    found: Sequence[Any] = value if isinstance(value, Sequence) else [value]
    # Data with a role, such as a person's record, is not a chat message when a step passes it on.
    is_item = _has_type if serialise else is_given_item
    if all(is_item(item) for item in found):
        return list(input_items(found, registry=engine.stack.registry, ids=engine.ids))
    if serialise:
        try:
            return [input_message(compact_json(freeze(value)), ids=engine.ids)]
        except ItemValidationError:
            pass  # reported below, in terms of the step
    what = f"The llm step {step_id!r} cannot send a value of type {type(value).__name__}."
    hint = "Pass text, an item, a list of items, or JSON data."
    raise NoeticError("step_failed", what, given=value, hint=hint, step_id=step_id, retries_exhausted=False)


def _has_type(value: object) -> bool:
    return isinstance(value, Mapping) and "type" in value


class TurnInput(str):
    """The text of a turn's user message: the input of the agent's first step, which must not be logged twice."""

    _item: Item | None
    _position: int

    def __new__(cls, text: str, item: Item | None, position: int) -> TurnInput:
        made = super().__new__(cls, text)
        made._item, made._position = item, position
        return made

    def is_in(self, log: ItemLog) -> bool:
        """Tell whether a log contains the item of this text."""
        return self._item is None or (self._position < len(log) and log[self._position] is self._item)


def query_of(items: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of the last user message among items, or an empty text."""
    text = ""
    for item in items:
        if item.get("type") == "message" and item.get("role") == "user":
            content = item.get("content") or ()
            if len(content) == 1 and type(content) is tuple and type(content[0]) is FrozenDict:
                text = content[0].get("text") or ""  # the form of nearly every message
                continue
            parts = [part.get("text") or "" for part in content if isinstance(part, MAPPINGS)]
            text = parts[0] if len(parts) == 1 else "".join(parts)
    return text
