"""Expressions about runs, in the language of rules (CEL), over the facts in an index."""

from __future__ import annotations

import importlib
import sys
from ast import literal_eval
from collections.abc import Mapping, Sequence
from typing import Any, Final

from noetic_nb._core.names import nearest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.interop._collection.index_file import FACTS
from noetic_nb.steering._predicates.cel_names import FUNCTIONS, PYTHON, cel_tokens

_WORDS: Final = frozenset(
    {"true", "false", "null", "in", "int", "uint", "double", "string", "bool", "list", "map", "type"}
)
_FUNCTIONS: Final = FUNCTIONS - {"origin", "origins", "has"} | {"all", "exists", "exists_one", "map", "filter"}
_MOST: Final = int(sys.float_info.max)
_OPEN: Final = frozenset({"meta", "labels"})


def _key(after: Sequence[str]) -> str | None:
    """Return the key that is read from ``meta`` or ``labels``: ``.key`` or ``['key']``."""
    mark, key, end = after
    if mark == ".":
        return key
    try:
        return str(literal_eval(key)) if (mark, end) == ("[", "]") and key[-1:] in "\"'" else None
    except (SyntaxError, ValueError):  # a spelling of texts that CEL alone has
        return None


def _readable(value: Any) -> Any:
    """Return data as CEL takes it: lone surrogates are replaced, and whole numbers beyond 64 bits are fractional ones."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return {_readable(key): _readable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(each) for each in value]
    return float(max(min(value, _MOST), -_MOST)) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _invalid(what: str, text: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError("INVALID_EXPRESSION", what, given=text, hint=hint)


class Expression:
    """An expression over facts. Raises `NoeticConfigError` ``INVALID_EXPRESSION``, ``MISSING_PACKAGE``."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise _invalid(
                "An expression is a text.", text, "Such as where(\"outcome == false && 'refund' in tools\")."
            )
        self.text = text
        self._names = self._checked()
        try:
            cel = importlib.import_module("cel")
        except ImportError as error:
            what, hint = "Expressions need the package common-expression-language.", "pip install 'noetic_nb[rules]'"
            raise NoeticConfigError("MISSING_PACKAGE", what, hint=hint) from error
        try:
            self._program = cel.compile(text)
        except ValueError as error:
            what = f"The expression cannot be read: {str(error).splitlines()[0][:200]}"
            raise _invalid(
                what, text, "It is written as the condition of a rule: tokens > 1000 && outcome == false."
            ) from error

    def _checked(self) -> set[tuple[str, str | None]]:
        """Return the facts that it names, those of meta and labels with their keys."""
        tokens = [(kind, word) for kind, word, _ in cel_tokens(self.text)]
        words = [word for _, word in tokens] + [""] * 3
        bound = {
            words[at + 2]
            for at, (_, word) in enumerate(tokens)
            if word in ("all", "exists", "exists_one", "map", "filter")
            and words[at + 1] == "("
            and words[at + 3 :][:1] == [","]
        }
        found = set()
        for at, (kind, word) in enumerate(tokens):
            if kind != "ident" or (at and words[at - 1] == "." and words[at + 1] != "("):
                continue
            if words[at + 1] == "(":
                self._known(word, _FUNCTIONS, "function")
            elif word not in bound and word not in _WORDS:
                self._known(word, FACTS, "fact of a run")
                found.add((word, _key(words[at + 1 : at + 4]) if word in _OPEN else None))
        return found

    def _known(self, word: str, names: Any, kind: str) -> None:
        if word in names:
            return
        near = nearest(word, names)
        hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(sorted(names))}."
        raise _invalid(f"{word!r} is no {kind}", self.text, PYTHON.get(word, hint))

    def values(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return the value for each row; None where it asks for a fact that nobody knows."""
        for name, key in self._names:
            if key is not None and rows and not any(key in row[name] for row in rows):
                keys = sorted({each for row in rows for each in row[name]})
                near = nearest(key, keys)
                hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(keys[:30]) or 'none'}."
                raise _invalid(f"No run has {name}.{key}", self.text, hint)
        return [self._value(row) for row in rows]

    def _value(self, row: Mapping[str, Any]) -> Any:
        values = {name: row[name] for name, _ in self._names}
        for name, key in self._names:
            if key is not None:
                values[name] = {key: None, **values[name]}
        try:
            return self._program.execute(_readable(values))
        except LookupError:  # a key or a place in a list that this run does not have
            return None
        except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
            if any((values[name] if key is None else values[name][key]) is None for name, key in self._names):
                return None
            hint = f"The facts are {', '.join(FACTS)}; compare a number with a number, a text with a text."
            raise _invalid(
                f"The expression fails for run {row['run_id']}: {str(error)[:120]}", self.text, hint
            ) from error

    def chosen(self, rows: Sequence[Mapping[str, Any]]) -> list[bool]:
        """Return for each row whether it is true of it; a value that nobody knows is not."""
        values = self.values(rows)
        for value in values:
            if value is not None and not isinstance(value, bool):
                hint = "Compare it: where('turns > 3'), where(\"model == 'm'\")."
                raise _invalid(f"The expression is {value!r:.60}, not true or false.", self.text, hint)
        return [value is True for value in values]
