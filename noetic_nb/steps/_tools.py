"""Tools: functions that an agent can call. Their arguments and results are checked against their annotations."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from noetic_nb._core.cards import Card, with_card
from noetic_nb._core.names import skeleton
from noetic_nb._core.worker_threads import ON_THE_SPOT, OnTheSpot
from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError
from noetic_nb.events import OfferedTool
from noetic_nb.items import freeze, thaw
from noetic_nb.items._bound_values import copied
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._json_form import form_of
from noetic_nb.items._json_text import compact_json
from noetic_nb.models._client import ToolSpec
from noetic_nb.sync import awaited
from noetic_nb.tokens import Tokenizer, estimate_tokens

_NOT_WIRE: Final = re.compile(r"[^A-Za-z0-9_-]")


def wire_name(name: str) -> str:
    """Return the form of a tool's name that providers accept."""
    return _NOT_WIRE.sub("_", name)


def _problems(error: ValidationError) -> str:
    parts = []
    for problem in error.errors():
        place = ".".join(map(str, problem["loc"])) or "value"
        parts.append(f"{place}: {problem['msg']}")
    return "; ".join(parts)


class BoundArguments(NamedTuple):
    """The arguments of one call: validated, coerced, with defaults."""

    values: dict[str, Any]
    """Arguments of `execute`, by parameter: containers, models and dataclasses are private copies."""
    args: FrozenDict
    """The same as JSON data, by the keys of the schema that the model was shown."""


@with_card
@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as a record.

    See docs/behaviour/steps.md, "Tools".

    Parameters
    ----------
    name, description : str
        For the model; the name may contain any characters, as in ``plan/update``.
    input : pydantic model, optional
        Its arguments, from which ``parameters`` is derived.
    output : TypeAdapter
        Its result type.
    execute : callable
        Sync or async function, called with keyword arguments.
    needs_approval : bool
        Whether each call needs a person's approval.
    wants_context : bool
        Whether `execute` takes the execution's context as ``ctx``.
    streams : bool
        Whether `execute` is a generator, whose yielded values are progress; see `drained`.
    inline : bool
        In a turn, call `execute` on the thread of the event loop instead of the turn's worker thread. Tools with
        `wants_context` always do so.

    Raises
    ------
    NoeticConfigError
        ``EMPTY_TOOL_NAME``.
    """

    name: str
    description: str
    input: type[BaseModel]
    output: TypeAdapter[Any]
    execute: Callable[..., Awaitable[Any] | Any]
    needs_approval: bool = False
    wants_context: bool = False
    streams: bool = False
    inline: bool = False
    spec: ToolSpec
    tokens: int

    def _card(self) -> Card:
        facts: list[tuple[str, Any]] = [("description", self.description)]
        facts.append(("arguments", tuple(self.spec.parameters.get("properties", ()))))
        said = (self.needs_approval, "waits for approval"), (self.streams, "streams")
        facts += [(text, True) for holds, text in said if holds]
        lack = lacking(self)
        notes = [f"This tool {lack}. {DESCRIBE}"] if lack else []
        return Card("Tool", self.name, [*facts, ("tokens", self.tokens)], notes=notes)

    def arguments(self, text: str | Mapping[str, Any]) -> dict[str, Any]:
        """Check arguments, given as JSON text from a model or as a mapping.

        Returns
        -------
        dict
            The arguments of the tool as JSON data: coerced, with defaults, under the keys of its schema.

        Raises
        ------
        NoeticError
            ``tool_failed`` with ``reason`` ``"malformed"`` or ``"invalid"``.
        """
        found: dict[str, Any] = thaw(self.bind(self.read(text)).args)
        return found

    def read(self, text: str | Mapping[str, Any]) -> Any:
        """Return arguments as unchecked data.

        Raises
        ------
        NoeticError
            ``tool_failed`` with ``reason`` ``"malformed"``.
        """
        if not isinstance(text, str):
            return dict(text)
        try:
            # Some models write nothing at all for a tool without parameters.
            return json.loads(text) if text and not text.isspace() else {}
        except (ValueError, RecursionError) as exc:
            raise NoeticError(
                "tool_failed",
                # The model reads this to correct its call; a long text in full would only fill its context.
                f"malformed JSON in tool arguments: {text[:2000]}",
                reason="malformed",
                tool_name=self.name,
            ) from exc

    def bind(self, args: Any) -> BoundArguments:
        """Check and coerce arguments and fill in defaults, once, so that rules judge the values that the tool gets.

        Raises
        ------
        NoeticError
            ``tool_failed`` with ``reason`` ``"invalid"``, naming every invalid field.
        """
        try:
            form = form_of(self.input)
            bound = form.validate(args)
            values = {name: copied(value) for name, value in vars(bound).items()}
            vars(bound).update(values)  # so that the shown arguments are the ones that run
            shown = _as_mapping(form.dump(bound))
        except (ValidationError, ItemValidationError) as exc:
            problem = _problems(exc) if isinstance(exc, ValidationError) else exc.what
            what = f"the arguments of {self.name!r} do not fit: {problem}"
            raise NoeticError("tool_failed", what, given=args, reason="invalid", tool_name=self.name) from exc
        return BoundArguments(values, shown)

    def shown(self, values: Mapping[str, Any]) -> FrozenDict:
        """Return values that `bind` has checked in their JSON form, without running a validator again.

        Raises
        ------
        ItemValidationError
            If they no longer have a JSON form.
        """
        return _as_mapping(form_of(self.input).dump_fields(values))

    async def call(self, args: Any, ctx: Any = None) -> Any:
        """Check arguments, run, check the result.

        Raises
        ------
        NoeticError
            ``tool_failed`` with ``reason`` ``"invalid"`` or ``"invalid_result"``.
        Exception
            Any exception of the tool.
        """
        result = self.begin(self.bind(args).values, ctx)
        if self.streams:
            result = drained(result)
        return self.checked(await result if hasattr(result, "__await__") else result)

    def begin(self, values: Mapping[str, Any], ctx: Any = None) -> Any:
        """Run with the values that `bind` has checked; an async function returns an awaitable."""
        return self.execute(**values, ctx=ctx) if self.wants_context else self.execute(**values)

    def checked(self, result: Any) -> Any:
        """Check a result.

        Raises
        ------
        NoeticError
            ``tool_failed`` with ``reason`` ``"invalid_result"``.
        """
        try:
            return self.output.validator.validate_python(result)
        except ValidationError as exc:
            what = f"the result of {self.name!r} does not fit its annotation: {_problems(exc)}"
            raise NoeticError("tool_failed", what, given=result, reason="invalid_result", tool_name=self.name) from exc

    def render(self, result: Any) -> str:
        """Return a result as the text the model reads: a string unchanged, any other value as JSON."""
        if isinstance(result, str):
            return result
        if isinstance(result, tuple) and hasattr(result, "_fields"):  # a record, such as another agent's reply
            return compact_json(to_jsonable_python(thaw(result)))
        try:
            text = self.output.serializer.to_json(result).decode()
        except ValueError:
            text = "."  # such as a lone surrogate, which compact JSON can write
        # Numbers with a fraction are formatted as in ECMAScript, which is slower.
        if "." in text or "e-" in text or "e+" in text:
            try:
                return compact_json(self.output.serializer.to_python(result, mode="json"))
            except (ValueError, TypeError) as exc:
                what = f"the result of {self.name!r}, of type {type(result).__name__}, cannot be sent to a model"
                hint = "Return text or JSON data; of a DataFrame frame.to_string() or frame.to_dict('records')."
                raise NoeticError(
                    "tool_failed", what, given=result, hint=hint, reason="invalid_result", tool_name=self.name
                ) from exc
        return text

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the original function, unchecked."""
        return self.execute(*args, **kwargs)


def _as_mapping(shown: Any) -> FrozenDict:
    # A layer's function may take a single, unnamed value.
    return shown if isinstance(shown, FrozenDict) else FrozenDict(value=shown)


async def drained(
    pieces: Any,
    report: Callable[[Any], None] = lambda piece: None,
    wait: Callable[[Awaitable[Any]], Awaitable[Any]] = awaited,
    worker: OnTheSpot = ON_THE_SPOT,
) -> Any:
    """Run a generator to its end and return its value; `report` gets each piece, and `wait` may close it early."""
    piece = None
    if isinstance(pieces, AsyncIterator):
        try:
            while True:
                try:
                    piece = await wait(anext(pieces))
                except StopAsyncIteration:
                    return piece
                report(piece)
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]
    try:
        while True:
            found, is_end = await wait(worker.call(_advance, pieces))
            if is_end:
                return piece if found is None else found
            piece = found
            report(piece)
            # Lets subscribers and cancellations run between two pieces.
            await wait(asyncio.sleep(0))
    finally:
        worker.post(pieces.close)


def _advance(pieces: Iterator[Any]) -> tuple[Any, bool]:
    """Return the next piece or, at the end, the generator's return value, and whether it has ended."""
    try:
        return next(pieces), False
    except StopIteration as end:
        return end.value, True


def spec_tokens(spec: ToolSpec | OfferedTool, tokenizer: Tokenizer = estimate_tokens) -> int:
    """Count the tokens of a tool in a request, from the JSON sent to a provider."""
    shown = {"name": wire_name(spec.name), "description": spec.description, "parameters": dict(spec.parameters)}
    return tokenizer(compact_json(shown))


DESCRIBE: Final = "The model chooses by these words: write a docstring, and annotate each parameter."


def lacking(tool: Tool) -> str:
    """Return the gaps in a tool's definition as a sentence for the model; empty if it is complete."""
    properties = tool.spec.parameters.get("properties")
    fields = properties.items() if isinstance(properties, Mapping) else ()
    untyped = [name for name, field in fields if isinstance(field, Mapping) and not field.keys() & _TYPED]
    parts = [] if tool.description.strip() else ["has no description"]
    parts += [f"the types of {', '.join(map(repr, untyped))} are not known"] if untyped else []
    return "; ".join(parts)


# Keys that describe the type or meaning of a field.
_TYPED: Final = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "description"})


def twin_error(name: str) -> NoeticConfigError:
    """Return the error for two different tools with one name, of which a model could only reach one."""
    what = f"Two tools are called {name!r}: the model could not tell them apart."
    hint = "Rename one of them: nn.tool(function, name='...')."
    return NoeticConfigError("TOOL_NAME_COLLISION", what, given=name, hint=hint)


class ToolSet:
    """The tools of one llm step, found by canonical name or by wire name."""

    def __init__(self, tools: Iterable[Tool], *, reserved: Iterable[Tool] = ()) -> None:
        """Collect tools; `reserved` are the functions of layers, whose names no other tool may have."""
        self._by_name: dict[str, Tool] = {}
        reserved = tuple(reserved)
        if reserved:
            tools = tuple(tools)
            taken = {skeleton(one.name): one for one in reserved}
            for one in tools:
                layer_function = taken.get(skeleton(one.name), one)
                if layer_function is not one:
                    what = f"The tool {one.name!r} is named like {layer_function.name!r}, which a layer provides."
                    hint = "Rename the tool: the layer's function would be out of reach, and rules would mean either."
                    raise NoeticConfigError("TOOL_NAME_COLLISION", what, given=one.name, hint=hint)
            tools = (*tools, *reserved)
        kept: list[Tool] = []
        for one in tools:
            known = self._by_name.get(wire_name(one.name))
            # The same tool twice is not an error: it may come from two sources.
            if known is one:
                continue
            if known is not None and known.name != one.name:
                what = f"The tools {known.name!r} and {one.name!r} have the same name on the wire."
                hint = "Rename one of them."
                raise NoeticConfigError("TOOL_NAME_COLLISION", what, given=wire_name(one.name), hint=hint)
            if known is not None:
                if known.execute is one.execute:
                    continue  # made twice from one function
                raise twin_error(one.name)
            self._by_name[wire_name(one.name)] = one
            self._by_name[one.name] = one
            kept.append(one)
        self.tools = tuple(kept)
        self.specs: tuple[ToolSpec, ...] = tuple([one.spec for one in kept])
        self.tokens = sum(one.tokens for one in kept)
        self._offered: tuple[OfferedTool, ...] | None = None
        self._others: dict[tuple[str, ...], ToolSet] = {}
        self._counted: tuple[Tokenizer, int] = (estimate_tokens, self.tokens)

    def without(self, names: tuple[str, ...]) -> ToolSet:
        """Return the same tools without some; cached, because the same ones may be left out at every turn."""
        found = self._others.get(names)
        if found is None:
            found = self._others[names] = ToolSet([one for one in self.tools if one.name not in names])
        return found

    def count(self, tokenizer: Tokenizer) -> int:
        """Return the tokens of all definitions, cached for the same tokenizer."""
        counted_by, known = self._counted
        if counted_by is not tokenizer:
            count = getattr(tokenizer, "count_tools", None)
            known = sum([spec_tokens(s, tokenizer) for s in self.specs]) if count is None else count(self.specs)
            self._counted = (tokenizer, known)
        return known

    @property
    def offered(self) -> tuple[OfferedTool, ...]:
        # Cached, because the same tools are offered at every turn.
        if self._offered is None:
            self._offered = tuple(
                [OfferedTool(s.name, s.description, freeze(s.parameters), s.strict) for s in self.specs]
            )
        return self._offered

    def find(self, name: object) -> Tool | None:
        """Return the tool with a name in either form, or None if there is none."""
        return self._by_name.get(name) if isinstance(name, str) else None
