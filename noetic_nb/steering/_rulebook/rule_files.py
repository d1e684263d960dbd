"""Rules in files: written as YAML or JSON, read back as rules. Reading a file never runs anything that is in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeAlias

from pydantic import ValidationError

from noetic_nb._core.atomic_write import owner_only, regular_file
from noetic_nb._core.names import nearest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering._rules.file_schema import JudgeData, RuleData, RuleFile
from noetic_nb.steering._rules.rule import SteeringRule
from noetic_nb.steering._rules.yaml_text import dump_yaml, parse_yaml

# A thousand rules of a kilobyte each.
MAX_BYTES: Final = 1_000_000

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
FileMark: TypeAlias = tuple[Path, str]
"""A file that was read or written, and the digest of its content."""


def _refuse(source: str, what: str, hint: str, cause: BaseException | None = None, **facts: Any) -> NoReturn:
    raise NoeticConfigError("INVALID_RULE_FILE", f"{source}: {what}", hint=hint, **facts) from cause


def dump_rules(rules: Iterable[SteeringRule], *, format: Literal["yaml", "json"] = "yaml") -> str:
    """Return rules as the text of a rule file.

    Parameters
    ----------
    rules : RuleBook or iterable of SteeringRule
        Python rules are written by name; whoever reads the file binds them.
    format : {"yaml", "json"}
        YAML needs the extra ``rules``.

    Examples
    --------
    >>> from noetic_nb.steering import RuleBook
    >>> rules = RuleBook()
    >>> _ = rules.at_most(3, "search")
    >>> print(dump_rules(rules), end="")
    version: 1
    rules:
    - id: at-most-3-search
      on:
      - before_tool_call
      tools:
      - search
      at_most: 3
    """
    data = RuleFile.data_of(tuple(rules))
    if format == "yaml":
        return dump_yaml(data)
    if format == "json":
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    raise NoeticConfigError("INVALID_FORMAT", "Rule files are YAML or JSON.", given=format, hint="'yaml' or 'json'.")


def write_rules(rules: Iterable[SteeringRule], path: str | PathLike[str]) -> FileMark:
    """Write rules to a file; see `noetic_nb.steering.save_rules`."""
    target = Path(path)
    text = dump_rules(rules, format=_format_of(target))
    with open(target, "w", encoding="utf-8", opener=owner_only) as file:
        file.write(text)
    return target.resolve(), _digest(target.read_bytes())


def is_unchanged(mark: FileMark | None, path: Path) -> bool:
    """Return whether a file is the one that was read or written before, with the same content."""
    try:
        return mark == (path.resolve(), _digest(path.read_bytes()))
    except OSError:
        return False


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_rules(
    path: str | PathLike[str], functions: Functions | None = None
) -> tuple[tuple[SteeringRule, ...], FileMark]:
    """Read the rules of a file; see `noetic_nb.steering.load_rules`."""
    source = Path(path)
    kind = _format_of(source)
    try:
        # One byte more than is allowed is enough to see that a file is too large.
        with regular_file(source) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as exc:
        _refuse(str(source), exc.strerror or str(exc), "Look at the path.", exc)
    try:
        # Editors on Windows write a byte order mark, which JSON refuses.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        _refuse(str(source), "it is not UTF-8", "Save it as UTF-8.", exc)
    return parsed_rules(text, kind, functions, str(source)), (source.resolve(), _digest(content))


def _format_of(path: Path) -> Literal["yaml", "json"]:
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return "yaml"
    if suffix == ".json":
        return "json"
    raise NoeticConfigError(
        "INVALID_FORMAT", "A rule file ends in .yaml, .yml or .json.", given=str(path), hint="Rename it."
    )


# JSON keeps the last of repeated keys in silence: half of a rule would be gone.
def _only_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands there twice")
        found[key] = value
    return found


def parsed_rules(
    text: str, format: Literal["yaml", "json"], functions: Functions | None, source: str
) -> tuple[SteeringRule, ...]:
    """Return the rules of a text; `source` names it in errors. See `noetic_nb.steering.parse_rules`."""
    # Before parsing: YAML takes seconds a megabyte.
    if len(text) > MAX_BYTES:
        _refuse(source, f"it has more than {MAX_BYTES:,} characters", "Split it, or drop what is no rule.")
    try:
        data = parse_yaml(text) if format == "yaml" else json.loads(text, object_pairs_hook=_only_once)
        file = RuleFile.model_validate(data)
    except ValidationError as exc:
        _explain(source, exc)
    except (ValueError, RecursionError) as exc:
        _refuse(source, f"it is no plain {format.upper()}: {str(exc)[:300]}", "Correct the text.", exc)
    return tuple([_rule(source, place, entry, functions or {}) for place, entry in enumerate(file.rules)])


def _rule(source: str, place: int, data: RuleData, functions: Functions) -> SteeringRule:
    predicate = None
    if data.python is not None:
        predicate = functions.get(data.python)
        if predicate is None:
            raise NoeticConfigError(
                "UNBOUND_RULE",
                f"{source}: rule {data.id!r} is a Python function that was not given.",
                given=data.python,
                hint=f"Pass functions={{{data.python!r}: ...}}; given are {', '.join(sorted(functions)) or 'none'}.",
                rule_id=data.id,
            )
    try:
        return SteeringRule(**data.fields(), predicate=predicate)
    except (ValueError, NoeticConfigError) as exc:
        _refuse(source, f"rules[{place}] ({data.id!r}): {exc}", "Correct the rule.", exc, rule_id=data.id)


def _explain(source: str, error: ValidationError) -> NoReturn:
    # A misspelt key also leaves the right one missing: the misspelling is what has to be corrected.
    found = error.errors()
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    hint = "Correct the file."
    if first["type"] == "extra_forbidden":
        fields = {1: RuleFile.model_fields, 3: RuleData.model_fields}.get(len(first["loc"]), JudgeData.model_fields)
        near = nearest(str(first["loc"][-1]), fields)
        hint = f"Did you mean {near!r}?" if near is not None else f"Known are {', '.join(fields)}."
        _refuse(source, f"{path} is not known", hint, error, field=path)
    _refuse(source, f"{path or 'the file'}: {first['msg']}", hint, error, field=path)
