"""YAML for rule files: plain data only. No tags, no anchors, no repeated keys, and `on` is a word, not a truth value."""

from __future__ import annotations

import importlib
import re
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError

# Rule files are four deep; what is much deeper is hostile.
MAX_DEPTH: Final = 32

_ESCAPED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")

# Of YAML 1.1 only what JSON has: `no`, `on`, dates and 0x1 stay text.
_PLAIN: Final = (
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), "tf"),
    ("tag:yaml.org,2002:null", re.compile(r"^(?:null|~|)$"), "n~\0"),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), "-+0123456789"),  # without a zero in front, see below
    ("tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"), "-+.0123456789"),
)


def _yaml() -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError as exc:
        raise NoeticConfigError(
            "MISSING_PACKAGE", "Rule files in YAML need the package pyyaml.", hint="pip install 'noetic_nb[rules]'"
        ) from exc


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    found: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, firsts in _PLAIN:
        for first in firsts.replace("\0", ""):
            found.setdefault(first, []).append((tag, pattern))
        if "\0" in firsts:
            found.setdefault("", []).append((tag, pattern))
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
                self.refuse("anchors and aliases are not for rule files", event.start_mark)
            if getattr(event, "tag", None) is not None:
                self.refuse(f"tags such as {event.tag!r} are not for rule files", event.start_mark)
            self.depth += 1
            if self.depth > MAX_DEPTH:
                self.refuse(f"it is nested more than {MAX_DEPTH} deep", event.start_mark)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_yaml_int(self, node: Any) -> int:
            text = str(node.value)
            # 010 is 8 in YAML 1.1 and 10 in YAML 1.2; nobody sees which was meant.
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
                    self.refuse(f"the key {key!r} is no text", key_node.start_mark)
                if key in keys:
                    self.refuse(f"the key {key!r} stands there twice", key_node.start_mark)
                keys.add(key)
            return super().construct_mapping(node, deep=True)

    PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_yaml_int)
    return PlainLoader


def parse_yaml(text: str) -> Any:
    """Return the data of a YAML text; raises `ValueError`, with the line, for anything that is not plain data."""
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
    """Return data as YAML, longer texts as blocks."""
    yaml = _yaml()

    base: Any = yaml.SafeDumper

    class PlainDumper(base):  # type: ignore[misc]
        yaml_implicit_resolvers = _resolvers()

        def ignore_aliases(self, data: Any) -> bool:
            return True  # the reader refuses anchors

    def text(dumper: Any, value: str) -> Any:
        # Some line breaks are folded away unless they are written as escapes.
        style = '"' if _ESCAPED.search(value) else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    PlainDumper.add_representer(str, text)
    written: str = yaml.dump(data, Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=100)
    return written
