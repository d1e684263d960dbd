"""The arguments of a foreign tool's call as a rule sees them: bound exactly as the tool will receive them."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, get_type_hints

from noetic_nb.errors import ItemValidationError, NoeticError
from noetic_nb.items._bound_values import copied, may_change
from noetic_nb.items._frozen import FrozenDict, frozen_or_none, thaw
from noetic_nb.items._json_form import HidingSerializer, json_form
from noetic_nb.items._json_text import compact_json
from noetic_nb.steps import Tool
from noetic_nb.steps._function_tools import make_tool
from noetic_nb.steps._schema import OutputSchema

# A method's calls change its object, so a copy would be useless.
_OBJECT: Final = "self"


class Bound(NamedTuple):
    """A call with its bound arguments."""

    name: str
    args: FrozenDict
    raw: Any  # as written by the model, None if it is not JSON data
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    """The arguments that the tool is called with: copies, except the framework's own and objects of other classes."""
    values: Mapping[str, Any]
    now: Callable[[], Any] | None = None
    """Returns the current form of `args`; None if no other code can change the values."""
    call_id: str = ""


Binder: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], Bound]
"""Binds the arguments of a call. Raises `NoeticError` ``tool_failed`` with ``reason`` if they do not fit."""


def shown(value: Any) -> Any:
    """Return a value as rules see it: JSON data, or the name of its class."""
    try:
        return json_form(value)
    except ItemValidationError:
        return f"<{type(value).__name__}>"


def unfit(name: str, problem: object, *, reason: str = "invalid", given: Any = None) -> NoeticError:
    """Return the error for arguments that do not fit a tool."""
    return NoeticError(
        "tool_failed", f"the arguments of {name!r} do not fit: {problem}", given=given, reason=reason, tool_name=name
    )


def function_binder(function: Callable[..., Any], name: str) -> Binder:
    """Return the binder of a plain function: by its annotations if they can be checked, else by its signature."""
    # Fails for parameters without a name or JSON form, unreadable annotations, or a missing signature.
    with contextlib.suppress(Exception):
        signature = inspect.signature(function)
        if next(iter(signature.parameters), "") != _OBJECT:
            return bound_by_schema(make_tool(function, name=name), signature)
    return bound_by_signature(function, name)


def bound_by_schema(tool: Tool, signature: inspect.Signature | None = None) -> Binder:
    """Return a binder that validates, coerces and fills in defaults, as for our own tools."""
    name, takes_context = tool.name, tool.wants_context

    def bind(positional: tuple[Any, ...], named: dict[str, Any]) -> Bound:
        given = named
        if positional:
            try:
                given = dict((signature or inspect.signature(tool.execute)).bind(*positional, **named).arguments)
            except TypeError as exc:
                raise unfit(name, exc) from exc
        context = {}
        if takes_context and "ctx" in given:
            context = {"ctx": given["ctx"]}
            given = {key: value for key, value in given.items() if key != "ctx"}
        values, args = tool.bind(given)
        return bound_values(tool, values, args)._replace(raw=frozen_or_none(given), named={**values, **context})

    return bind


def bound_values(tool: Tool, values: Mapping[str, Any], args: FrozenDict) -> Bound:
    """Return a call with values that a tool has checked."""
    return Bound(tool.name, args, None, (), values, values, partial(tool.shown, values) if may_change(values) else None)


def bound_by_signature(
    function: Callable[..., Any],
    name: str,
    *,
    left_out: Callable[[Mapping[str, Any]], Collection[str]] = lambda arguments: (),
    skip: int = 0,
    call_id: Callable[[tuple[Any, ...]], str] = lambda positional: "",
) -> Binder:
    """Return a binder by the signature of a function; `left_out` and `skip` are the framework's arguments, by name and place."""
    try:
        signature: inspect.Signature | None = inspect.signature(function)
    except (TypeError, ValueError):  # a built-in
        signature = None

    parameters = () if signature is None else tuple(signature.parameters)
    kept = max(skip, int(parameters[:1] == (_OBJECT,)))

    def bind(positional: tuple[Any, ...], named: dict[str, Any]) -> Bound:
        try:
            positional = (*positional[:kept], *map(copied, positional[kept:]))
            own = left_out(named)
            named = {key: value if key in own else copied(value) for key, value in named.items()}
            arguments, given = _flat(signature, positional, named, skip)
            hidden = left_out(arguments)
            values = {key: value for key, value in arguments.items() if key not in hidden}
            args = _judged(values)
        except (TypeError, ItemValidationError) as exc:
            raise unfit(name, exc) from exc
        raw = frozen_or_none({key: value for key, value in given.items() if key not in hidden})
        return Bound(name, args, raw, positional, named, values, partial(_judged, values), call_id(positional))

    return bind


def _judged(values: Mapping[str, Any]) -> FrozenDict:
    found = {}
    for key, value in values.items():
        try:
            found[key] = json_form(value)
        except HidingSerializer:
            raise
        except ItemValidationError:
            found[key] = shown(value)
    return FrozenDict(found)


def _flat(
    signature: inspect.Signature | None, positional: tuple[Any, ...], named: Mapping[str, Any], skip: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return arguments by name, with defaults and as given; raises `TypeError` if they do not fit or share a name."""
    if signature is None:
        pairs = [(f"arg{place}", value) for place, value in enumerate(positional[skip:])]
        found = _by_name([*pairs, *named.items()])
        return found, found
    bound = signature.bind(*positional, **named)
    framework = list(bound.signature.parameters)[:skip]
    given = _by_name(_pairs(bound, framework))
    bound.apply_defaults()
    return _by_name(_pairs(bound, framework)), given


def _pairs(bound: inspect.BoundArguments, framework: Collection[str]) -> Iterator[tuple[str, Any]]:
    for name, value in bound.arguments.items():
        if name in framework:
            continue
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        elif value != () or bound.signature.parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL:
            yield name, value


def _by_name(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise TypeError(f"{name!r} is given twice, by position and by name")
        found[name] = value
    return found


# Classes of a framework's run context, which it passes as the first argument.
_CONTEXTS: Final = ("RunContextWrapper", "ToolContext", "RunContext")


def json_binder(name: str, schema: Mapping[str, Any], function: Callable[..., Any] | None) -> Callable[[str], Bound]:
    """Return a binder for JSON text, by function or schema; the tool reads JSON that validates as judged."""
    tool = None if function is None else _behind(function, name)
    checked = None
    if tool is None:
        try:
            checked = OutputSchema({"type": "object"} | dict(schema))
        except Exception:  # such as a schema of another draft: the arguments are judged as written
            checked = None
    defaults = {
        key: part["default"]
        for key, part in dict(schema.get("properties") or {}).items()
        if isinstance(part, Mapping) and "default" in part
    }

    def bind(text: str) -> Bound:
        try:
            given = json.loads(text) if text and not text.isspace() else {}
        except (ValueError, RecursionError) as exc:
            raise unfit(name, f"malformed JSON: {text[:2000]}", reason="malformed") from exc
        if not isinstance(given, dict):
            raise unfit(name, "they are no object", given=given)
        if tool is not None:
            values, args = tool.bind(given)
            # The framework validates the same text again, so validation must be repeatable.
            if tool.bind(given).args != args:
                raise unfit(name, "their validators give other values each time", given=given)
            runs: Any = given
        else:
            found = {**defaults, **given}
            try:
                if checked is not None:
                    checked.check(found)
                args = json_form(found)
            except (ValueError, ItemValidationError) as exc:
                raise unfit(name, exc, given=given) from exc
            values = runs = thaw(args)
        return Bound(name, args, frozen_or_none(given), (compact_json(runs),), {}, values)

    return bind


def _behind(function: Callable[..., Any], name: str) -> Tool | None:
    """Return a tool that binds like a function whose first parameter may be the framework's context."""
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
        parameters = list(signature.parameters.values())
        if parameters and any(each in str(hints.get(parameters[0].name)) for each in _CONTEXTS):
            del parameters[0]

        def bare(**named: Any) -> None:
            """Stand in for the function; only its parameters matter."""

        bare.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        bare.__annotations__ = {each.name: hints[each.name] for each in parameters if each.name in hints}
        return make_tool(bare, name=name)
    except Exception:  # such a function is bound by its schema
        return None
