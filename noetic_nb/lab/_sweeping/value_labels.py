"""Values of a configuration as they stand in a table: short, hashable, the same on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from types import CodeType
from typing import Any, Final

from noetic_nb.items import thaw
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._events.event_json import dump_event
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._evaluation.rule_snapshot import RuleSnapshot

# Letters of a digest in a table: 48 bits, so that one clash is expected among some ten million values.
SHOWN: Final = 12
# Words of a plain value before its digest stands for it.
LONGEST: Final = 60


def digest_of(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:SHOWN]


def data_digest(runs: Iterable[Run]) -> str:
    """Return a digest of the contents and origin of runs; the time of reading does not count."""
    total = hashlib.sha256()
    # Many runs are of one agent; an agent kept here keeps its id.
    made: dict[int, tuple[Any, str]] = {}
    for run in runs:
        agent = run._config
        if agent is None or id(agent) not in made:
            made[id(agent)] = agent, digest_of(run.bundle)
        total.update(made[id(agent)][1].encode())
        meta = {key: value for key, value in run.meta.items() if key != "created_ms"}
        total.update(digest_of(run.run_id, meta).encode())
        for event in run.events:
            total.update(json.dumps(dump_event(event), sort_keys=True, default=str).encode())
    return total.hexdigest()[:SHOWN]


def labels_in(values: Iterable[Any]) -> list[Any]:
    """Return the labels of some values; two different ones never share theirs."""
    found: list[Any] = []
    for value in values:
        label = label_of(value)
        number = sum(known == label or str(known).startswith(f"{label} #") for known in found)
        found.append(f"{label} #{number + 1}" if number and isinstance(label, str) else label)
    return found


def label_of(value: Any) -> Any:
    """Return a value as a table shows it."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, RuleBook | RuleSnapshot):
        rules = value.snapshot if isinstance(value, RuleBook) else value
        return f"{len(rules)} rules, version {rules.version}, {digest_of([_of_rule(rule) for rule in rules])}"
    if isinstance(value, SteeringRule):
        return f"{value.id}, {digest_of(_of_rule(value))}"
    if isinstance(value, Regulator):
        try:
            kept: Any = value.settings.to_dict()
        except ValueError:  # a scorer of one's own without a name
            kept = repr(value.settings)
        return f"regulator {digest_of(thaw(value.thresholds), kept)}"
    if isinstance(value, list | tuple) and value and all(isinstance(one, SteeringRule) for one in value):
        return f"{len(value)} rules, {digest_of([_of_rule(rule) for rule in value])}"
    try:
        text = json.dumps(thaw(value), sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError):
        text = ""
    if text:
        return text if len(text) <= LONGEST else f"{type(value).__name__} {digest_of(text)}"
    if callable(value):
        return f"{getattr(value, '__name__', type(value).__name__)} {digest_of(code_of(value))}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(str(label_of(one)) for one in value)}]"
    shown = repr(value)
    # The address of an object is another one in every process.
    named = getattr(value, "id", None) or getattr(value, "name", None)
    return (f"{type(value).__name__} {named}" if named else type(value).__name__) if " at 0x" in shown else shown


def _of_rule(rule: SteeringRule) -> Any:
    data = {name: getattr(rule, name, None) for name in type(rule).model_fields}
    return {name: code_of(value) if callable(value) else str(value) for name, value in data.items()}


def code_of(function: Any) -> Any:
    """Return a function as data: its code and the values that it closes over."""
    inner = getattr(function, "func", None)
    if inner is not None and hasattr(function, "keywords"):
        return [code_of(inner), *map(_plain, function.args), *map(_plain, sorted(function.keywords.items()))]
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return f"{type(function).__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    cells = [_plain(cell.cell_contents) for cell in getattr(function, "__closure__", None) or ()]
    return [_of_code(code), cells, [_plain(value) for value in getattr(function, "__defaults__", None) or ()]]


def _of_code(code: CodeType) -> list[Any]:
    constants = [_of_code(one) if isinstance(one, CodeType) else _plain(one) for one in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), constants]


def _plain(value: Any) -> Any:
    if callable(value) and not isinstance(value, Mapping):
        return code_of(value)
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    shown = repr(value)
    return type(value).__name__ if " at 0x" in shown else shown
