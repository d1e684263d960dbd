"""Rules in files: written as YAML or JSON, read back as rules. Reading a file never executes anything in it.

YAML is limited to plain data: no tags, anchors or repeated keys, and `on` is a string, not a boolean.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeAlias

from pydantic import ValidationError

from noetic_nb._core.atomic_write import as_path, regular_file, write_whole
from noetic_nb._core.names import nearest
from noetic_nb._core.optional_packages import optional_package
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering._rules.file_schema import JudgeData, RuleData, RuleFile
from noetic_nb.steering._rules.rule import SteeringRule

# Rule files have four levels; much deeper ones are hostile.
MAX_DEPTH: Final = 32

_ESCAPED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")

# Only the YAML 1.1 types that JSON has: `no`, `on`, dates and 0x1 remain text.
_PLAIN: Final = (
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), "tf"),
    ("tag:yaml.org,2002:null", re.compile(r"^(?:null|~|)$"), ("n", "~", "")),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), "-+0123456789"),  # without a leading zero, see below
    ("tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"), "-+.0123456789"),
)


def _yaml() -> Any:
    with optional_package("Rule files in YAML need the package pyyaml.", "pip install 'noetic_nb[rules]'"):
        return importlib.import_module("yaml")


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    found: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, firsts in _PLAIN:
        for first in firsts:
            found.setdefault(first, []).append((tag, pattern))
    return found


def _loader(yaml: Any) -> Any:
    base: Any = yaml.SafeLoader

    class PlainLoader(base):  # type: ignore[misc]
        yaml_implicit_resolvers = _resolvers()
        depth = 0

        def refuse(self, what: str, mark: Any) -> Any:
            raise yaml.MarkedYAMLError(problem=what, problem_mark=mark)

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                self.refuse("anchors and aliases are not allowed in rule files", event.start_mark)
            if getattr(event, "tag", None) is not None:
                self.refuse(f"tags such as {event.tag!r} are not allowed in rule files", event.start_mark)
            self.depth += 1
            if self.depth > MAX_DEPTH:
                self.refuse(f"it is nested more than {MAX_DEPTH} deep", event.start_mark)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_yaml_int(self, node: Any) -> int:
            text = str(node.value)
            # 010 is 8 in YAML 1.1 and 10 in YAML 1.2, so the meaning is ambiguous.
            if len(digits := text.lstrip("+-")) > 1 and digits[0] == "0":
                plain = digits.lstrip("0") or "0"
                self.refuse(
                    f"the number {text} begins with a zero, which some readers take for octal; write {plain}, "
                    f"or {text!r} in quotes for a text",
                    node.start_mark,
                )
            return int(text)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys: set[Any] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, str):
                    self.refuse(f"the key {key!r} is not text", key_node.start_mark)
                if key in keys:
                    self.refuse(f"the key {key!r} appears twice", key_node.start_mark)
                keys.add(key)
            return super().construct_mapping(node, deep=True)

    PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_yaml_int)
    return PlainLoader


def parse_yaml(text: str) -> Any:
    """Return the data of a YAML text; raises `ValueError`, with the line, for anything except plain data."""
    yaml = _yaml()
    loader: Any = None
    try:
        loader = _loader(yaml)(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as exc:
        place = f" in line {exc.problem_mark.line + 1}" if exc.problem_mark is not None else ""
        raise ValueError(f"{exc.problem or exc.context}{place}") from exc
    except yaml.YAMLError as exc:
        raise ValueError(str(exc)) from exc
    finally:
        if loader is not None:
            loader.dispose()


def dump_yaml(data: Any) -> str:
    """Return data as YAML, with long texts as blocks."""
    yaml = _yaml()

    base: Any = yaml.SafeDumper

    class PlainDumper(base):  # type: ignore[misc]
        yaml_implicit_resolvers = _resolvers()

        def ignore_aliases(self, data: Any) -> bool:
            return True  # the reader refuses anchors

    def text(dumper: Any, value: str) -> Any:
        # Some line breaks are lost by folding unless they are escaped.
        style = '"' if _ESCAPED.search(value) else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    PlainDumper.add_representer(str, text)
    written: str = yaml.dump(data, Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=100)
    return written


# A thousand rules of one kilobyte each.
MAX_BYTES: Final = 1_000_000

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
FileMark: TypeAlias = tuple[Path, str]  # a file that was read or written, and a digest of its content


def _refuse(source: str, what: str, hint: str, cause: BaseException | None = None, **facts: Any) -> NoReturn:
    raise NoeticConfigError("INVALID_RULE_FILE", f"{source}: {what}", hint=hint, **facts) from cause


def dump_rules(rules: Iterable[SteeringRule], *, format: Literal["yaml", "json"] = "yaml") -> str:
    """Return rules as the text of a rule file.

    Parameters
    ----------
    rules : RuleBook or iterable of SteeringRule
        Python rules are written by name; the reader of the file binds them.
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
    given: Any = rules
    listed: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) else (given,)
    for rule in listed:
        if not isinstance(rule, SteeringRule):
            hint = "Pass the RuleBook, or a list of its rules."
            raise NoeticConfigError("INVALID_RULE", "A rule file holds rules.", given=rule, hint=hint)
    data = RuleFile.data_of(listed)
    if format == "yaml":
        return dump_yaml(data)
    if format == "json":
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    raise NoeticConfigError("INVALID_FORMAT", "Rule files are YAML or JSON.", given=format, hint="'yaml' or 'json'.")


def write_rules(rules: Iterable[SteeringRule], path: str | PathLike[str]) -> FileMark:
    """Write rules to a file; see `noetic_nb.steering.save_rules`."""
    target = as_path(path)
    text = dump_rules(rules, format=_format_of(target))
    write_whole(target, text)
    return target.resolve(), _digest(target.read_bytes())


def is_unchanged(mark: FileMark | None, path: Path) -> bool:
    """Return whether a file still has the content that was last read or written."""
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
    source = as_path(path)
    kind = _format_of(source)
    try:
        # One byte more than allowed is enough to detect a file that is too large.
        with regular_file(source) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as exc:
        _refuse(str(source), exc.strerror or str(exc), "Look at the path.", exc)
    try:
        text = content.decode("utf-8-sig")  # editors on Windows write a byte order mark, which JSON refuses
    except UnicodeDecodeError as exc:
        _refuse(str(source), "it is not UTF-8", "Save it as UTF-8.", exc)
    return parsed_rules(text, kind, functions, str(source)), (source.resolve(), _digest(content))


def _format_of(path: Path) -> Literal["yaml", "json"]:
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return "yaml"
    if suffix == ".json":
        return "json"
    hint = "Rename it."
    raise NoeticConfigError("INVALID_FORMAT", "Rule files end in .yaml, .yml or .json.", given=str(path), hint=hint)


# JSON silently keeps the last of repeated keys, which would lose part of a rule.
def _only_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} appears twice")
        found[key] = value
    return found


def parsed_rules(
    text: str, format: Literal["yaml", "json"], functions: Functions | None, source: str
) -> tuple[SteeringRule, ...]:
    """Return the rules of a text; `source` names it in errors. See `noetic_nb.steering.parse_rules`."""
    # Before parsing, because YAML takes seconds per megabyte.
    if len(text) > MAX_BYTES:
        _refuse(source, f"it has more than {MAX_BYTES:,} characters", "Split it, or remove other content.")
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
            what = f"{source}: rule {data.id!r} is a Python function that was not given."
            hint = f"Pass functions={{{data.python!r}: ...}}; given are {', '.join(sorted(functions)) or 'none'}."
            raise NoeticConfigError("UNBOUND_RULE", what, given=data.python, hint=hint, rule_id=data.id)
    try:
        return SteeringRule(**data.fields(), predicate=predicate)
    except (ValueError, NoeticConfigError) as exc:
        _refuse(source, f"rules[{place}] ({data.id!r}): {exc}", "Correct the rule.", exc, rule_id=data.id)


_BEGINNING: Final = (
    "Begin it with `version: 1` and `rules:`, a list of rules such as "
    "`{id: twice, on: [before_tool_call], tools: [search], at_most: 2}`."
)


def _explain(source: str, error: ValidationError) -> NoReturn:
    # A misspelt key also leaves the correct one missing; report the misspelling.
    found = error.errors()
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    hint = "Correct the file."
    if not path:
        what = "the file is not a mapping with `version` and `rules`"
        _refuse(source, what, _BEGINNING, error, field=path)
    if path in ("version", "rules"):
        hint = _BEGINNING
    if first["type"] == "extra_forbidden":
        fields = {1: RuleFile.model_fields, 3: RuleData.model_fields}.get(len(first["loc"]), JudgeData.model_fields)
        near = nearest(str(first["loc"][-1]), fields)
        hint = f"Did you mean {near!r}?" if near is not None else f"Known are {', '.join(fields)}."
        _refuse(source, f"{path} is not known", hint, error, field=path)
    _refuse(source, f"{path or 'the file'}: {first['msg']}", hint, error, field=path)
