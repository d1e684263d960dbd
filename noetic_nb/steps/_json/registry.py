"""Names for values that JSON cannot hold: functions, tools, layers, schemas, codecs, two of them built in. Files hold no code."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, MethodType
from typing import Any, Final, TypeVar, overload

from noetic_nb._core.cards import Card, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items._json_text import compact_json
from noetic_nb.memory._declared import MemoryConfig
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.steps._function_tools import make_tool
from noetic_nb.steps._output_codec import CodecOutput, OutputCodec
from noetic_nb.steps._schema import OutputSchema, as_schema
from noetic_nb.steps._tools import Tool

_FENCE: Final = "```"
# A JSON block is marked as such, or unmarked and not starting with a word; its first line may be on the fence's line.
_OPENING: Final = re.compile(r"`{3,}\s*(?:json\b\s*(?P<json>.*)|(?P<bare>[^\w].*)?)", re.IGNORECASE)


def fenced_json(schema: Any = None) -> FencedJSON:
    """Parse the JSON in an answer: its last fenced block, with any text around it.

    An answer without a block is parsed as JSON itself. Models that think before they answer write better JSON this way
    than when the whole answer must be JSON.

    Parameters
    ----------
    schema : type or mapping, optional
        Type or JSON Schema of the value.

    Examples
    --------
    >>> from noetic_nb.steps import step
    >>> ask = step.llm("ask", model="m", output=fenced_json(dict[str, int]))
    >>> ask.output.parse('''Two and two:
    ... ```json
    ... {"sum": 4}
    ... ```''', step_id="ask")
    {'sum': 4}
    """
    return FencedJSON(as_schema(schema))


def json_lines(schema: Any = None) -> JSONLines:
    r"""Parse a list, one JSON value per line; each line is checked as soon as it is complete.

    Parameters
    ----------
    schema : type or mapping, optional
        Type or JSON Schema of each value.

    Examples
    --------
    >>> run = json_lines(int).start()
    >>> for piece in ("1\n", "2", "3\n"):
    ...     run.feed(piece)
    >>> run.finish()
    [1, 23]
    """
    return JSONLines(as_schema(schema))


def _with_schema(text: str, schema: OutputSchema | None) -> str:
    return text if schema is None else f"{text} {compact_json(schema.json_schema)}"


@dataclass(frozen=True, slots=True)
class FencedJSON:
    """The codec returned by `fenced_json`."""

    schema: OutputSchema | None = None

    @property
    def instructions(self) -> str:
        """The format rules for the model."""
        text = "End your answer with its result as JSON, in one block that begins with ```json and ends with ```."
        return text if self.schema is None else _with_schema(f"{text} It must fit this JSON Schema:", self.schema)

    def start(self) -> _FencedRun:
        return _FencedRun(self.schema)


@dataclass(frozen=True, slots=True)
class JSONLines:
    """The codec returned by `json_lines`."""

    schema: OutputSchema | None = None

    @property
    def instructions(self) -> str:
        """The format rules for the model."""
        text = "Answer with one JSON value per line and nothing else."
        return text if self.schema is None else _with_schema(f"{text} Each must fit this JSON Schema:", self.schema)

    def start(self) -> _LinesRun:
        return _LinesRun(self.schema)


@dataclass(slots=True)
class _Lines:
    """Splits text that arrives in pieces into complete lines."""

    parts: list[str] = field(default_factory=list)

    def add(self, piece: str) -> list[str]:
        first, *others = piece.split("\n")
        self.parts.append(first)
        if not others:
            return []
        whole = "".join(self.parts)
        self.parts = [others.pop()]
        return [whole, *others]

    def rest(self) -> str:
        """Return the last line, which has no line end."""
        return "".join(self.parts)


def _value(text: str, schema: OutputSchema | None) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"it is not JSON: {exc}") from exc
    return value if schema is None else schema.check(value)


@dataclass(slots=True)
class _FencedRun:
    """Collects the last block, line by line."""

    schema: OutputSchema | None
    lines: _Lines = field(default_factory=_Lines)
    prose: list[str] = field(default_factory=list)
    block: list[str] | None = None
    """The lines of the open block, or of the last JSON block."""
    state: str = "outside"

    def feed(self, piece: str) -> None:
        for line in self.lines.add(piece):
            self._line(line)

    def _line(self, line: str) -> None:
        text = line.strip()
        if self.state == "outside":
            if not text.startswith(_FENCE):
                if self.block is None:
                    self.prose.append(line)
                return
            # A fence that opens and closes on one line leaves nothing open; any other opens a block in another
            # language, which is skipped.
            opening = _OPENING.fullmatch(text)
            if opening is None:
                self.state = "outside" if text.endswith(_FENCE) else "other"
                return
            # Start over: the last block counts, because models experiment before their result.
            self.state, self.block = "json", []
            line = text = opening["json"] or opening["bare"] or ""
        if text.endswith(_FENCE):  # a line of JSON never ends like this
            if self.state == "json" and self.block is not None:
                self.block.append(text.rstrip("`"))
            self.state = "outside"
        elif self.state == "json" and self.block is not None:
            self.block.append(line)

    def finish(self) -> Any:
        self._line(self.lines.rest())
        return _value("\n".join(self.prose if self.block is None else self.block), self.schema)


@dataclass(slots=True)
class _LinesRun:
    """Checks each line once it is complete."""

    schema: OutputSchema | None
    lines: _Lines = field(default_factory=_Lines)
    values: list[Any] = field(default_factory=list)
    count: int = 0

    def feed(self, piece: str) -> None:
        for line in self.lines.add(piece):
            self._line(line)

    def _line(self, line: str) -> None:
        self.count += 1
        text = line.strip()
        if not text or text.startswith(_FENCE):  # many models add a fence, asked or not
            return
        try:
            self.values.append(_value(text, self.schema))
        except ValueError as exc:
            # Without the number, nobody could find the wrong line among many.
            raise ValueError(f"line {self.count}: {exc}") from exc

    def finish(self) -> Any:
        self._line(self.lines.rest())
        return self.values


READY: Final = MappingProxyType[str, OutputCodec]({"fenced_json": fenced_json(), "json_lines": json_lines()})
"""Codecs in every `Registry`."""


F = TypeVar("F", bound=Callable[..., Any])

_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "fn": ("function", "UNKNOWN_FUNCTION_REFERENCE"),
    "tool": ("tool", "UNKNOWN_TOOL_REFERENCE"),
    "layer": ("layer", "UNKNOWN_LAYER_REFERENCE"),
    "schema": ("schema", "UNKNOWN_SCHEMA_REFERENCE"),
    "codec": ("codec", "UNKNOWN_CODEC_REFERENCE"),
    "workflow": ("workflow", "UNKNOWN_WORKFLOW_REFERENCE"),
}


@with_card
class Registry:
    """The names that references are resolved against.

    Parameters
    ----------
    functions : mapping of str to callable, or iterable of callable
        Functions by name; an iterable uses their own names.
    tools : iterable of Tool or callable
        Tools, under their own names.
    layers : iterable of MemoryLayer
        Layers, under their own ids.
    schemas : mapping of str to type
        Types of structured outputs and messages.
    workflows : mapping of str to mapping
        Workflow documents that others can refer to.
    codecs : mapping of str to OutputCodec
        Codecs of structured outputs, in addition to ``fenced_json`` and ``json_lines``.

    Raises
    ------
    NoeticConfigError
        ``DUPLICATE_REFERENCE`` if one name would refer to two objects.

    Examples
    --------
    >>> registry = Registry()
    >>> @registry.fn
    ... def double(value, ctx):
    ...     return 2 * value
    >>> registry.resolve("fn:double")(4, None)
    8
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]] = (),
        *,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        layers: MemoryConfig | Iterable[MemoryLayer] = (),
        schemas: Mapping[str, Any] | None = None,
        workflows: Mapping[str, Mapping[str, Any]] | None = None,
        codecs: Mapping[str, OutputCodec] | None = None,
    ) -> None:
        self._known: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
        # Before the user's own, so that a user's codec with one of these names is rejected.
        self._known["codec"].update(READY)
        named = functions if isinstance(functions, Mapping) else {_name_of(f): f for f in functions}
        for name, function in named.items():
            self.fn(function, name=name)
        for tool in tools:
            self.tool(tool)
        for layer in layers:
            self.layer(layer)
        for name, schema in (schemas or {}).items():
            self.schema(name, schema)
        for name, document in (workflows or {}).items():
            self._add("workflow", name, document)
        for name, codec in (codecs or {}).items():
            self.codec(name, codec)

    @overload
    def fn(self, function: F, /, *, name: str | None = None) -> F: ...
    @overload
    def fn(self, function: None = None, /, *, name: str | None = None) -> Callable[[F], F]: ...
    def fn(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Register a function; as a decorator, with or without a name."""
        if function is None:
            return lambda wrapped: self.fn(wrapped, name=name)
        if not callable(function):
            what = "Only callables are registered as functions."
            hint = "Pass a function, or use tools=, layers= and schemas= for other objects."
            raise NoeticConfigError("INVALID_REFERENCE", what, given=function, hint=hint)
        self._add("fn", name or _name_of(function), function)
        return function

    def tool(self, tool: Tool | Callable[..., Any]) -> Tool:
        """Register a tool under its own name."""
        made = tool if isinstance(tool, Tool) else make_tool(tool)
        self._add("tool", made.name, made)
        return made

    def layer(self, layer: MemoryLayer) -> MemoryLayer:
        """Register a layer under its own id."""
        self._add("layer", layer.id, layer)
        return layer

    def has_layer(self, layer: MemoryLayer) -> bool:
        """Tell whether this very layer is registered."""
        return self._known["layer"].get(layer.id) is layer

    def schema(self, name: str, schema: Any) -> Any:
        """Register a type of structured outputs or messages."""
        self._add("schema", name, schema)
        return schema

    def codec(self, name: str, codec: OutputCodec) -> OutputCodec:
        """Register a codec of structured outputs."""
        if not isinstance(codec, OutputCodec):
            raise NoeticConfigError(
                "INVALID_REFERENCE", "A codec needs instructions and start().", given=codec, hint="See OutputCodec."
            )
        self._add("codec", name, codec)
        return codec

    def _add(self, kind: str, name: str, thing: Any) -> None:
        known = self._known[kind]
        if name in known and not _same(known[name], thing):
            what = f"Two {_KINDS[kind][0]}s would have the name {name!r}."
            raise NoeticConfigError("DUPLICATE_REFERENCE", what, given=name, hint="Give one of them another name.")
        known[name] = thing

    def _card(self) -> Card:
        return Card("Registry", facts=[(kind, tuple(known)) for kind, known in self._known.items() if known])

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the registered names of a kind: ``fn``, ``tool``, ``layer``, ``schema``, ``codec`` or ``workflow``."""
        return tuple(sorted(self._known[kind]))

    def resolve(self, ref: str, args: Mapping[str, Any] | None = None) -> Any:
        """Return the object of a reference such as ``fn:double``; with `args`, a function with these arguments already set.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_FUNCTION_REFERENCE`` and similar codes, with the registered names.
        """
        kind, _, name = ref.partition(":")
        if kind not in _KINDS:
            hint = f"Use {', '.join(_KINDS)}, as in 'fn:name'."
            raise NoeticConfigError("INVALID_REFERENCE", "This is no reference.", given=ref, hint=hint)
        what, code = _KINDS[kind]
        if name not in self._known[kind]:
            known = ", ".join(map(repr, self.names(kind))) or "none"
            hint = f"Known are {known}."
            raise NoeticConfigError(
                code, f"No {what} of this name is registered.", given=name, hint=hint, known=self.names(kind)
            )
        if args is not None and (not isinstance(args, Mapping) or not all(isinstance(key, str) for key in args)):
            raise NoeticConfigError(
                "INVALID_REFERENCE",
                f"The arguments of {ref!r} must be a mapping of names to values.",
                given=args,
                hint="Write for example {'$ref': 'fn:add', 'args': {'n': 3}}.",
            )
        found = self._known[kind][name]
        # Without arguments, the function itself, so that saving the step again finds its name.
        return functools.partial(found, **args) if args else found

    def reference(self, thing: Any, where: str) -> dict[str, Any]:
        """Return the reference of a function, tool, layer or schema.

        Raises
        ------
        NoeticConfigError
            ``UNREGISTERED_FUNCTION``, ``UNREGISTERED_TOOL`` or ``UNREGISTERED_LAYER``.
        """
        if isinstance(thing, Tool):
            return self._named("tool", thing.name, thing, where)
        if isinstance(thing, MemoryLayer):
            return self._named("layer", thing.id, thing, where)
        name = self._function_name(thing)
        if name is not None:
            return {"$ref": f"fn:{name}"}
        # References hold arguments by name, so positional arguments cannot be saved.
        if isinstance(thing, functools.partial) and not thing.args:
            name = self._function_name(thing.func)
            if name is not None:
                return {"$ref": f"fn:{name}", **({"args": dict(thing.keywords)} if thing.keywords else {})}
        raise self._unregistered("fn", thing, where)

    def _function_name(self, function: Any) -> str | None:
        return next((name for name, known in self._known["fn"].items() if _same(known, function)), None)

    def schema_reference(self, schema: OutputSchema) -> dict[str, Any]:
        """Return the reference of a schema, or, without a name, the schema itself as JSON Schema."""
        for name, known in self._known["schema"].items():
            # By identity: two equal types may have different names for a reason.
            if known is schema.given or known is schema:
                return {"$ref": f"schema:{name}"}
        return schema.to_json()

    def codec_reference(self, output: CodecOutput, where: str) -> dict[str, Any]:
        """Return the reference of a codec.

        Raises
        ------
        NoeticConfigError
            ``UNREGISTERED_CODEC``.
        """
        for name, known in self._known["codec"].items():
            if known is output.codec or known == output.codec:
                return {"$ref": f"codec:{name}"}
        raise self._unregistered("codec", output.codec, where)

    def _named(self, kind: str, name: str, thing: Any, where: str) -> dict[str, Any]:
        # A tool of the same name but another identity would be called instead after loading the step.
        if self._known[kind].get(name) is not thing:
            raise self._unregistered(kind, thing, where)
        return {"$ref": f"{kind}:{name}"}

    def _unregistered(self, kind: str, thing: Any, where: str) -> NoeticConfigError:
        what = _KINDS[kind][0]
        known = ", ".join(map(repr, self.names(kind))) or "none"
        return NoeticConfigError(
            f"UNREGISTERED_{what.upper()}",
            f"The {what} at {where} is not registered, so JSON cannot name it.",
            given=getattr(thing, "__name__", None) or getattr(thing, "name", None) or thing,
            hint=f"Add it to the Registry; known are {known}.",
            where=where,
        )


def _same(known: Any, thing: Any) -> bool:
    """Tell whether two objects are the same; a method is a new object on each access."""
    return known is thing or (isinstance(thing, MethodType) and bool(known == thing))


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise NoeticConfigError(
            "INVALID_REFERENCE", "This function has no name of its own.", given=function, hint="Pass name='...'."
        )
    return str(name)
