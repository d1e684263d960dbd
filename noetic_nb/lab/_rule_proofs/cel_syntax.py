"""The syntax tree of a condition, which the CEL library does not expose; its own parser has accepted the text."""

from __future__ import annotations

import importlib
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from noetic_nb.steering._predicates.cel_names import cel_tokens

_RELATIONS: Final = ("==", "!=", "<", "<=", ">", ">=", "in")
# Lowest precedence first; all of them are left-associative.
_LEVELS: Final = (("||",), ("&&",), _RELATIONS, ("+", "-"), ("*", "/", "%"))
_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_CONSTANTS: Final = {"true": True, "false": False, "null": None}

Kind: TypeAlias = Literal["literal", "name", "field", "index", "call", "method", "macro", "operator", "list", "map"]


class Node(NamedTuple):
    """A part of an expression: its kind, its value (a literal, a name, an operator), and its parts, from left to right."""

    kind: Kind
    value: Any = None
    parts: tuple[Node, ...] = ()


class UnknownSyntax(Exception):
    """An expression contains syntax that is not supported here."""


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [(kind, value) for kind, value, _ in cel_tokens(text)]
        self._at = 0

    def _next(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, *wanted: str) -> str | None:
        is_text = self._at < len(self._tokens) and self._tokens[self._at][0] == "string"
        if is_text or self._next() not in wanted:
            return None
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _expect(self, wanted: str) -> None:
        if self._take(wanted) is None:
            raise UnknownSyntax(f"{wanted!r} expected, {self._next()!r} found")

    def whole(self) -> Node:
        found = self._choice()
        if self._at < len(self._tokens):
            raise UnknownSyntax(self._next())
        return found

    def _choice(self) -> Node:
        found = self._level(0)
        if self._take("?") is None:
            return found
        first = self._level(0)
        self._expect(":")
        return Node("operator", "?", (found, first, self._choice()))

    def _level(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        found = self._level(level + 1)
        while (operator := self._take(*_LEVELS[level])) is not None:
            found = Node("operator", operator, (found, self._level(level + 1)))
        return found

    def _unary(self) -> Node:
        operator = self._take("!", "-")
        if operator is None:
            return self._member()
        if operator == "-" and self._at < len(self._tokens) and self._tokens[self._at][0] == "number":
            self._tokens[self._at] = ("number", f"-{self._next()}")
            return self._member()
        return Node("operator", operator, (self._unary(),))

    def _member(self) -> Node:
        found = self._primary()
        while True:
            if self._take(".") is not None:
                kind, name = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
                if kind != "ident":
                    raise UnknownSyntax(name)
                self._at += 1
                if self._take("(") is None:
                    found = Node("field", name, (found,))
                else:
                    found = Node("macro" if name in _MACROS else "method", name, (found, *self._listed(")")))
            elif self._take("[") is not None:
                inner = self._choice()
                self._expect("]")
                found = Node("index", None, (found, inner))
            else:
                return found

    def _primary(self) -> Node:
        if self._take("(") is not None:
            found = self._choice()
            self._expect(")")
            return found
        if self._take("[") is not None:
            return Node("list", None, self._listed("]"))
        if self._take("{") is not None:
            parts: list[Node] = []
            while self._take("}") is None:
                parts.append(self._choice())
                self._expect(":")
                parts.append(self._choice())
                self._take(",")
            return Node("map", None, tuple(parts))
        kind, value = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        self._at += 1
        if kind in ("string", "number"):
            cel: Any = importlib.import_module("cel")  # unescapes string literals
            return Node("literal", cel.compile(value).execute({}))
        if kind != "ident":
            raise UnknownSyntax(value)
        if value in _CONSTANTS:
            return Node("literal", _CONSTANTS[value])
        return Node("name", value) if self._take("(") is None else Node("call", value, self._listed(")"))

    def _listed(self, end: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while self._take(end) is None:
            found.append(self._choice())
            if self._take(",") is None:
                self._expect(end)
                break
        return tuple(found)


def parse(text: str) -> Node:
    """Return the syntax tree of an expression that compiles; raises `UnknownSyntax` for unsupported syntax."""
    return _Parser(text).whole()
