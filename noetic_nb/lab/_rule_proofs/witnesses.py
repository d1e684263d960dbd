"""A solver's model as a call: its arguments, earlier calls, and texts that contain its values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import z3

from noetic_nb.clock import SystemClock
from noetic_nb.items import freeze
from noetic_nb.items._origin_index import OriginIndex, Provenance
from noetic_nb.items._origins import Origin, trusted_source
from noetic_nb.items._value_search import value_text
from noetic_nb.lab._rule_proofs.symbols import AUTHORS, MapValue, Value, World, plain_text
from noetic_nb.memory import ExecutionContext, PastCall
from noetic_nb.memory.params import BeforeToolCallParams

_MOST_CALLS: Final = 10_000


class NoWitness(Exception):
    """The solver's values do not form a possible call."""


def call_of(world: World, model: Any, tool: str, schema: Any, args: MapValue) -> BeforeToolCallParams:
    """Return the call that a solver's model describes; raises `NoWitness` if it describes none."""
    values = _object(model, args)
    provenance = _provenance(world, model, schema if isinstance(schema, Mapping) else None)
    ctx = ExecutionContext(execution_id="proof", thread_id="proof", clock=SystemClock())
    history = _history(world, model)
    return BeforeToolCallParams(
        tool, freeze(values), ctx, {"ledger": (), "pendingAsync": ()}, "proof", history, provenance=lambda: provenance
    )


def _holds(model: Any, guard: Any) -> bool:
    return bool(z3.is_true(model.eval(guard, model_completion=True)))


def _number(model: Any, term: Any) -> int:
    found: int = model.eval(term, model_completion=True).as_long()
    return found


def _value(model: Any, value: Value) -> Any:
    for guard, kind, payload in value:
        if not _holds(model, guard):
            continue
        match kind:
            case "null":
                return None
            case "map":
                return _object(model, payload)
            case "list":
                length, items = _number(model, payload.length), payload.items
                if length > _MOST_CALLS:
                    break
                return [_value(model, items[at % len(items)]) for at in range(length)]
            case "bool" | "int" | "double" | "text":
                return _scalar(model.eval(payload, model_completion=True))
    raise NoWitness


def _scalar(term: Any) -> Any:
    if z3.is_string_value(term):
        return plain_text(term)
    if z3.is_int_value(term):
        return term.as_long()
    if z3.is_rational_value(term):
        return float(term.as_fraction())
    if z3.is_bool(term):
        return z3.is_true(term)
    raise NoWitness  # such as an irrational number


def _object(model: Any, found: MapValue) -> dict[str, Any]:
    return {name: _value(model, value) for name, (is_there, value) in found.made.items() if _holds(model, is_there)}


def _history(world: World, model: Any) -> tuple[PastCall, ...]:
    """Return the earlier calls: as many per tool as the model says, the last with success if one succeeded."""
    names = {name: _number(model, made) for name, made in world.made.items()}
    others = _number(model, world.calls) - sum(names.values())
    if sum(names.values()) + others > _MOST_CALLS:
        raise NoWitness
    ends = [(world.names[name], "error") for name, made in names.items() for _ in range(made - 1)]
    for name, made in names.items():
        if made:
            ends.append((world.names[name], "ok" if _holds(model, world.succeeded[name]) else "error"))
    ends += [("another_tool", "denied")] * others
    return tuple([PastCall(name, {}, f"before-{at}", end, "", "proof") for at, (name, end) in enumerate(ends)])


def _provenance(world: World, model: Any, schema: Mapping[str, Any] | None) -> Provenance:
    """Return texts that contain each value once, written by its author."""
    log, before, beside = OriginIndex(), OriginIndex(), OriginIndex()
    written: set[tuple[str, str]] = set()
    for term, author in world.origins:
        value = value_text(_scalar(model.eval(term, model_completion=True)))
        kind = AUTHORS[_number(model, author.kind)]
        name = plain_text(model.eval(author.name, model_completion=True)) if kind in ("layer", "tool") else None
        kind = kind.removeprefix("a ")
        if not value or (value, kind) in written:
            continue
        written.add((value, kind))
        match kind:
            case "user":
                log.add(value, Origin("user"))
            case "system":
                before.add(value, Origin("system"))
            case "layer":
                beside.add(value, Origin("layer", name))
            case "tool":
                known = [
                    entry for entry, by, holds in world.vouched if by.kind.eq(author.kind) and _holds(model, holds)
                ]
                sources = [trusted_source(entry) for entry in known if entry.startswith(f"{name}.")]
                items = [
                    {one.name.removeprefix(f"{name}."): value} | ({one.key: one.value} if one.key else {})
                    for one in sources
                ]
                # A tool that was given a value does not vouch for it; a field does if the value is its whole content.
                is_trusted = bool(known) or not any(entry == name for entry, _, _ in world.vouched)
                text = json.dumps(items) if items else value
                log.add(text, Origin("tool", name), args=None if is_trusted else value)
    return Provenance(log, before, beside, schema=schema)
