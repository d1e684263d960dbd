"""Read the names in a CEL expression before evaluation, so that unknown ones are reported with their line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from noetic_nb._core.names import keys, nearest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.models import Usage

VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "tool": ("name", "args"),
    "response": ("text", "answer", "items", "usage"),
    "history": ("name", "args", "status", "output", "ok", "call_id", "execution_id"),
    "ctx": (
        "execution_id",
        "thread_id",
        "resource_id",
        "depth",
        "step",
        "turn",
        "cost",
        "input_tokens",
        "output_tokens",
    ),
}
"""The names allowed in an expression, and the fields of each; those of ``history`` are the fields of one call."""

_USAGE: Final = Usage._fields
_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_TYPES: Final = keys("int uint double string bool bytes list map type null_type true false null in")

FUNCTIONS: Final = frozenset(
    {
        *("size", "contains", "startsWith", "endsWith", "matches", "has", "max", "min"),
        *("string", "int", "uint", "double", "bytes", "bool", "duration", "timestamp", "type"),
        *("origin", "origins"),
        *("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
"""Functions of the language, and two of ours; none of them reads a clock or has an effect."""

PYTHON: Final = {
    "and": "Write && for `and`.",
    "or": "Write || for `or`.",
    "not": "Write ! for `not`.",
    "is": "Write == for `is`.",
    "True": "Write true.",
    "False": "Write false.",
    "None": "Write null.",
    "if": "Write condition ? one : other.",
    "else": "Write condition ? one : other.",
    "in": "A list has square brackets: tool.name in ['a', 'b'].",
    "len": "Write size(...).",
    "any": "Write list.exists(x, ...).",
    "all": "Write list.all(x, ...).",
}
"""A hint for each word of Python that is not a word of CEL."""

ORIGIN: Final = "tool.origin"  # required by an expression that calls ``origin`` or ``origins``

# Longer operators before shorter ones, and `.` last: any other character is an operator of one character.
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<string>[rRbB]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      | (?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?[uU]?|\.\d+|0[xX][0-9a-fA-F]+[uU]?)
      | (?P<ident>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>&&|\|\||[=!<>]=|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Analysis:
    """The names in an expression: ``tool.args``, ``history.status``, and plain ``history`` if only its length matters."""

    needs: frozenset[str]
    nested: bool  # whether comprehensions are nested: their time is a product, not a sum
    loops: bool = False


@dataclass(slots=True)
class _Open:
    """An open bracket; for a comprehension also the variable it binds."""

    variable: str | None = None
    over_history: bool = False
    keeps: bool = False


def does_not_compile(
    rule_id: str,
    what: str,
    line: int | None,
    hint: str = "Correct the expression.",
    *,
    said: str = "does not compile",
    **facts: Any,
) -> NoeticConfigError:
    place = "" if line is None else f" in line {line}"
    return NoeticConfigError(
        "RULE_DOES_NOT_COMPILE",
        f"Rule {rule_id!r} {said}: {what}{place}",
        hint=hint,
        rule_id=rule_id,
        line=line,
        **facts,
    )


Place: TypeAlias = tuple[int, int]  # line and column of a word, both from 1


def cel_tokens(text: str) -> Iterator[tuple[str, str, Place]]:
    """Yield the words of an expression: kind, text and position."""
    line, begin = 1, 0
    for match in _TOKEN.finditer(text):
        kind, value = str(match.lastgroup), match.group()
        if kind != "space":
            yield kind, value, (line, match.start() - begin + 1)
        if "\n" in value:
            line += value.count("\n")
            begin = match.start() + value.rindex("\n") + 1


class _Reader:
    """Walks over the tokens once, keeping the open brackets and the last token."""

    def __init__(self, rule_id: str, text: str) -> None:
        self.rule_id = rule_id
        self.tokens = list(cel_tokens(text))
        self.needs: set[str] = set()
        self.open: list[_Open] = []
        self.nested = self.loops = False
        self.calls = False  # whether the expression just read is a list of calls

    def mark(self, at: int) -> str:
        return self.tokens[at][1] if 0 <= at < len(self.tokens) else ""

    def read(self) -> Analysis:
        for kind, value, (line, column) in self.tokens:
            if kind == "mark" and value in "\"'`":
                hint = (
                    f"Close the text with {value}." if value != "`" else "Write text in 'single' or \"double\" quotes."
                )
                what = f"a text begins with {value} and does not end"
                raise does_not_compile(self.rule_id, what, line, hint, column=column)
        at = 0
        while at < len(self.tokens):
            kind, value, place = self.tokens[at]
            at += 1
            if kind == "ident":
                at = self.member(at, value, place) if self.mark(at - 2) == "." else self.root(at, value, place)
            elif value in "([{":
                if value == "[" and self.calls:
                    self.all_of("history")
                self.open.append(_Open())
                self.calls = False
            elif value in ")]}":
                closed = self.open.pop() if self.open else _Open()
                self.calls = closed.keeps
            elif value != ".":
                self.calls = False
        return Analysis(frozenset(self.needs), self.nested, self.loops)

    def all_of(self, root: str) -> None:
        self.needs |= {f"{root}.{name}" for name in VARIABLES[root]}

    def member(self, at: int, name: str, place: Place) -> int:
        if self.mark(at) != "(":
            self.calls = False
            return at
        if (
            name in _MACROS
            and at + 2 < len(self.tokens)
            and self.tokens[at + 1][0] == "ident"
            and self.mark(at + 2) == ","
        ):
            # Nested comprehensions multiply their times; three over a long history take hours.
            self.loops = True
            self.nested = self.nested or any(frame.variable is not None for frame in self.open)
            self.open.append(_Open(self.mark(at + 1), self.calls, self.calls and name == "filter"))
            self.calls = False
            return at + 3
        self.known(name, FUNCTIONS | _MACROS, "function", place)
        self.calls = False
        return at

    def root(self, at: int, name: str, place: Place) -> int:
        self.calls = False
        # A variable of a comprehension hides one of ours with the same name.
        bound = next((frame for frame in reversed(self.open) if frame.variable == name), None)
        if bound is not None:
            if bound.over_history:
                at = self.field("history", at)
            return at
        if self.mark(at) == "(":
            self.known(name, FUNCTIONS, "function", place)
            if name in ("origin", "origins"):
                self.needs.add(ORIGIN)
        elif name == "history":
            self.needs.add("history")
            self.calls = True
        elif name in VARIABLES:
            at = self.field(name, at)
        elif name not in _TYPES:
            self.known(name, VARIABLES, "variable", place)
        return at

    def field(self, root: str, at: int) -> int:
        """Read the field after a variable; a variable without one needs all fields."""
        # `tool == x` or `tool["args"]`: the required field is unknown, so all are bound.
        if self.mark(at) != "." or at + 1 >= len(self.tokens) or self.tokens[at + 1][0] != "ident":
            self.all_of(root)
            return at
        name = self.mark(at + 1)
        what = f"field of {root if root != 'history' else 'a call in history'}"
        self.known(name, VARIABLES[root], what, self.tokens[at + 1][2])
        self.needs.add(f"{root}.{name}")
        if (root, name) == ("response", "usage") and self.mark(at + 2) == "." and at + 3 < len(self.tokens):
            self.known(self.mark(at + 3), _USAGE, "field of response.usage", self.tokens[at + 3][2])
        return at + 2

    def known(
        self, name: str, names: frozenset[str] | Mapping[str, object] | tuple[str, ...], what: str, place: Place
    ) -> None:
        if name in names:
            return
        if name in PYTHON:
            what, hint = "word of CEL", PYTHON[name]
            raise does_not_compile(self.rule_id, f"{name!r} is not a {what}", place[0], hint, column=place[1])
        near = nearest(name, names)
        hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(sorted(names))}."
        raise does_not_compile(self.rule_id, f"{name!r} is not a {what}", place[0], hint, column=place[1])


def analyse(rule_id: str, text: str) -> Analysis:
    """Return the names in an expression; raises ``RULE_DOES_NOT_COMPILE`` with the `line` of an unknown one."""
    return _Reader(rule_id, text).read()
