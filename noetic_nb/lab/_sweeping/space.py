"""The configurations to try: every combination of some values, or a random sample of them."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import CodeType
from typing import Any, Final

from noetic_nb._core.arguments import check_seed
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import thaw
from noetic_nb.lab._rule_trial import as_snapshot
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._events.event_json import dump_event
from noetic_nb.runs._regulation.recorded_decisions import with_thresholds
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._evaluation.evaluate import RuleSnapshot

# Hex digits of a digest in a table: 48 bits, so that a collision is expected among about ten million values.
SHOWN: Final = 12
# Longer plain values are replaced by their digest.
LONGEST: Final = 60


def digest_of(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:SHOWN]


def data_digest(runs: Iterable[Run]) -> str:
    """Return a digest of the contents and origin of runs; the time of reading does not matter."""
    total = hashlib.sha256()
    # Many runs share an agent; keeping the agent here keeps its id valid.
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
    """Return the labels of some values; different values never share a label."""
    found: list[Any] = []
    for value in values:
        label = label_of(value)
        number = sum(known == label or str(known).startswith(f"{label} #") for known in found)
        found.append(f"{label} #{number + 1}" if number and isinstance(label, str) else label)
    return found


def label_of(value: Any) -> Any:
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
        except ValueError:  # an unnamed custom scorer
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
    # The address of an object differs in every process.
    named = getattr(value, "id", None) or getattr(value, "name", None)
    return (f"{type(value).__name__} {named}" if named else type(value).__name__) if " at 0x" in shown else shown


def _of_rule(rule: SteeringRule) -> Any:
    data = {name: getattr(rule, name, None) for name in type(rule).model_fields}
    return {name: code_of(value) if callable(value) else str(value) for name, value in data.items()}


def code_of(function: Any) -> Any:
    """Return a function as data: its code and the values of its closure."""
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


REPLAYED: Final = ("rules", "budgets", "projection", "layers", "regulator")
"""Names that are arguments of `replay`."""

# A larger grid is a mistake, or should be sampled.
MAX_CONFIGURATIONS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Space:
    """Configurations in order, with their labels for a table."""

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    labels: tuple[tuple[Any, ...], ...]

    def __len__(self) -> int:
        return len(self.values)

    def at(self, place: int) -> dict[str, Any]:
        return dict(zip(self.names, self.values[place], strict=True))


def _wrong(what: str, given: Any, hint: str, code: str = "INVALID_SPACE") -> NoeticConfigError:
    return NoeticConfigError(code, what, given=given, hint=hint)


def configurations(
    space: Any, *, n: int | None = None, seed: int = 0, regulator: Regulator | None = None, free: bool = False
) -> Space:
    """Return the configurations of a space: all of a grid, or `n` random ones, without repetition for a grid.

    With `n`, a name may also have a distribution with ``rvs`` or a range ``{"low": number, "high": number}``, of
    integers if both are. Dotted names are thresholds of `regulator` if the space has none; `free` allows any name.
    Raises ``INVALID_SPACE``, ``UNKNOWN_NAME``, ``INVALID_N``, ``UNKNOWN_PREDICATE``, ``UNKNOWN_THRESHOLD`` or
    ``INVALID_THRESHOLD``.
    """
    check_seed(seed)
    hint = 'For example: {"cost_cap.tokens_out": [500, 1_000]}.'
    if not isinstance(space, Mapping):
        raise _wrong("A space must be a mapping of names to values.", space, hint)
    if not space:
        raise _wrong("The space is empty.", space, hint)
    names = tuple(space)
    for name in names:
        _check_name(name, free)
    # A book may be edited during the sweep; its current rules can also be sent to other processes.
    given = {name: _rules_now(values) if name == "rules" and not free else values for name, values in space.items()}
    kinds = [_values(name, given[name], n) for name in names]
    if any(isinstance(one, _Drawn) for one in kinds):
        assert n is not None
        rng, drawn = random.Random(int(seed)), range(_count(n, None))
        rows = [[one.draw(rng) if isinstance(one, _Drawn) else rng.choice(one) for one in kinds] for _ in drawn]
    else:
        rows = _grid([one for one in kinds if isinstance(one, list)], n, seed)
    if not free:
        _check_thresholds(names, rows, regulator)
    columns = []
    for at, kind in enumerate(kinds):
        if isinstance(kind, list):
            known = {id(value): label for value, label in zip(kind, labels_in(kind), strict=True)}
            columns.append([known[id(row[at])] for row in rows])
        else:
            columns.append([row[at] for row in rows])
    return Space(names, tuple(map(tuple, rows)), tuple(zip(*columns, strict=True)))


@dataclass(frozen=True, slots=True)
class _Drawn:
    low: Any = None
    high: Any = None
    distribution: Any = None

    def draw(self, rng: random.Random) -> Any:
        if self.distribution is not None:
            from numpy.random import default_rng

            value = self.distribution.rvs(random_state=default_rng(rng.getrandbits(64)))
            return value.item() if hasattr(value, "item") else value
        if isinstance(self.low, int) and isinstance(self.high, int):
            return rng.randint(self.low, self.high)
        return rng.uniform(self.low, self.high)


def _rules_now(books: Any) -> Any:
    if isinstance(books, list | tuple):
        return [as_snapshot(book) if isinstance(book, RuleBook) else book for book in books]
    return books


def _check_name(name: Any, free: bool) -> None:
    is_dotted = isinstance(name, str) and all(name.partition("."))
    if isinstance(name, str) and (free or name in REPLAYED or is_dotted):
        return
    raise _wrong(
        "A sweep cannot vary this.",
        name,
        f"There are {', '.join(REPLAYED)}, thresholds of the regulator such as cost_cap.tokens_out, and with apply= any name.",
        "UNKNOWN_NAME",
    )


def _values(name: str, values: Any, n: int | None) -> list[Any] | _Drawn:
    drawn: _Drawn | None = None
    if hasattr(values, "rvs"):
        drawn = _Drawn(distribution=values)
    elif isinstance(values, Mapping) and set(values) == {"low", "high"}:
        low, high = values["low"], values["high"]
        if not _is_finite(low) or not _is_finite(high) or low > high:
            raise _wrong(f"The range of {name} is none.", values, 'Give two numbers: {"low": 0.1, "high": 0.9}.')
        if isinstance(low, Integral) and isinstance(high, Integral):
            drawn = _Drawn(int(low), int(high))
        else:
            drawn = _Drawn(float(low), float(high))
    if drawn is not None:
        if n is None:
            raise _wrong(f"{name} has no list of values for a grid.", values, "Pass the number to draw: n=50.")
        return drawn
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _wrong(f"The values of {name} are not a list.", values, f'For example: {{"{name}": [value, another]}}.')
    listed = [one.item() if hasattr(one, "item") and not hasattr(one, "__len__") else one for one in values]
    if not listed:
        raise _wrong(f"{name} has no values.", values, "Give one value at least.")
    for at, one in enumerate(listed):
        if isinstance(one, float) and math.isnan(one):
            raise _wrong(f"A value of {name} is not a number.", values, "Omit it, or use None if that means no limit.")
        if any(other is one or (type(other) is type(one) and _equal(other, one, name)) for other in listed[:at]):
            raise _wrong(f"{name} has a value twice.", values, "Give each value once.")
    return listed


def _equal(one: Any, other: Any, name: str) -> bool:
    try:
        return bool(one == other)
    except Exception as exc:
        raise _wrong(
            f"Values of {name} cannot be compared: {exc}", [one, other], "Give values of which == says True or False."
        ) from exc


def _is_finite(number: Any) -> bool:
    return not isinstance(number, bool) and isinstance(number, Real) and math.isfinite(float(number))


def _count(n: Any, most: int | None) -> int:
    hint = "Give a whole number of 1 or more"
    if isinstance(n, bool) or not isinstance(n, Integral) or int(n) < 1:
        raise _wrong("n must be the number of configurations to draw.", n, f"{hint}.", "INVALID_N")
    if most is not None and int(n) > most:
        raise _wrong(
            f"The grid has {most} configurations, and each is drawn only once.",
            n,
            f"{hint}, {most} at most.",
            "INVALID_N",
        )
    return int(n)


def _grid(lists: list[list[Any]], n: int | None, seed: int) -> list[list[Any]]:
    total = math.prod(map(len, lists))
    if n is None and total > MAX_CONFIGURATIONS:
        raise _wrong(
            f"The grid has {total} configurations.", [len(one) for one in lists], "Draw some of them: n=1_000."
        )
    places = range(total) if n is None else sorted(random.Random(int(seed)).sample(range(total), _count(n, total)))
    return [_at(lists, place) for place in places]


def _at(lists: list[list[Any]], place: int) -> list[Any]:
    # The last name varies fastest, as in nested loops.
    row = []
    for values in reversed(lists):
        place, at = divmod(place, len(values))
        row.append(values[at])
    return row[::-1]


def _check_thresholds(names: tuple[str, ...], rows: list[list[Any]], regulator: Regulator | None) -> None:
    dotted = [at for at, name in enumerate(names) if name not in REPLAYED]
    place = names.index("regulator") if "regulator" in names else None
    for row in rows:
        known = regulator if place is None else row[place]
        if known is not None and not isinstance(known, Regulator):
            raise _wrong("That is not a regulator.", known, "Use Regulator.for_user(name).", "INVALID_REGULATOR")
        if known is not None and dotted:
            with_thresholds(known.settings, thresholds_in({names[at]: row[at] for at in dotted})[0])


def thresholds_in(configuration: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the thresholds of a configuration, by predicate, and its other values."""
    found: dict[str, dict[str, Any]] = {}
    rest: dict[str, Any] = {}
    for name, value in configuration.items():
        if name in REPLAYED:
            rest[name] = value
        else:
            predicate, _, number = name.partition(".")
            found.setdefault(predicate, {})[number] = value
    return found, rest
