"""The pages that are made from code: one for each public room, one for errors, one for tables."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from abc import ABC
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

from noetic_nb.errors import ErrorKind

__all__ = ["ROOMS", "error_page", "room_page", "settings_errors"]

# Every public room, in the order a reader meets them, with what is in it.
ROOMS: Final = {
    "noetic_nb": "Everyday names",
    "noetic_nb.steps": "Steps",
    "noetic_nb.memory": "Memory",
    "noetic_nb.layers": "Layers",
    "noetic_nb.tokenizers": "Tokenizers",
    "noetic_nb.steering": "Steering",
    "noetic_nb.regulator": "Regulator",
    "noetic_nb.regulator.events": "Events of the regulator",
    "noetic_nb.regulator.decisions": "Decisions of the regulator",
    "noetic_nb.regulator.presets": "Presets of the regulator",
    "noetic_nb.models": "Models",
    "noetic_nb.runtime": "Runtime",
    "noetic_nb.items": "Items",
    "noetic_nb.storage": "Storage",
    "noetic_nb.events": "Events of a run",
    "noetic_nb.runs": "Runs",
    "noetic_nb.interop": "Other people's agents",
    "noetic_nb.lab": "Analyses of recorded runs",
    "noetic_nb.lab.datasets": "Recorded runs that ship",
    "noetic_nb.widgets": "Views",
    "noetic_nb.plots": "Figures",
    "noetic_nb.lessons": "Lessons",
    "noetic_nb.testing": "Testing what you write",
    "noetic_nb.errors": "Errors",
}


def room_page(room: str) -> str:
    """Return the page of a room in reStructuredText: what it says of itself, then every public name."""
    module = importlib.import_module(room)
    title = f"{ROOMS[room]}: ``{room}``"
    # What a module cites is cited by no footnote mark in its text.
    about = re.sub(r"(?m)^\.\. \[\d+\] ", "* ", inspect.getdoc(module) or "")
    parts = [title, "=" * len(title), "", about, "", f".. currentmodule:: {room}", ""]
    names = list(module.__all__)
    home: dict[str, str] = {}
    for name in names:
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue
        # A name that several rooms offer is explained once.
        explained = _explained_in(value, name, room)
        if explained is not None:
            home[name] = explained
            continue
        parts += _directive(room, name, value)
    if home:
        parts += ["", "Explained elsewhere:", ""]
        parts += [f"* :py:obj:`{name} <{place}>`" for name, place in home.items()]
    return "\n".join(parts) + "\n"


def _explained_in(value: Any, name: str, room: str) -> str | None:
    # Everyday names in their rooms; what two rooms offer in the first of them.
    rooms = list(ROOMS)
    for other in rooms[1:] if room == rooms[0] else rooms[1 : rooms.index(room)]:
        module = importlib.import_module(other)
        if name in module.__all__ and getattr(module, name) is value:
            return f"{other}.{name}"
    return None


def _directive(room: str, name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield f".. autoclass:: {room}.{name}"
        yield "   :members:"
        if _has_more_parts(value):
            yield "   :inherited-members:"
    elif callable(value) and not hasattr(value, "__origin__"):
        yield f".. autofunction:: {room}.{name}"
    else:
        yield f".. autodata:: {room}.{name}"
        yield "   :no-value:"
    yield ""


def _has_more_parts(value: type) -> bool:
    """Tell whether some of a plain class is written in a base that is on no page: it is part of the class then."""
    bases = [base for base in value.__mro__[1:] if base not in (object, ABC)]
    public = [getattr(room, name) for room in map(importlib.import_module, ROOMS) for name in room.__all__]
    # What is a record, an error or a widget has much of others that is of no use here.
    is_plain = all(base.__module__.partition(".")[0] == "noetic_nb" for base in bases)
    return is_plain and any(not any(base is each for each in public) for base in bases)


def settings_errors(package: Path) -> dict[str, dict[str, list[tuple[str, str]]]]:
    """Return what the code raises: family, then code or kind, then what happened and where.

    What happened is empty where it is put together elsewhere.
    """
    found: dict[str, dict[str, list[tuple[str, str]]]] = {
        "NoeticConfigError": defaultdict(list),
        "NoeticError": defaultdict(list),
    }
    for path in sorted(package.rglob("*.py")):
        room = ".".join(path.relative_to(package.parent).with_suffix("").parts[:2])
        text = path.read_text(encoding="utf-8")
        if not any(f"{family}(" in text for family in found):
            continue
        nodes = list(ast.walk(ast.parse(text)))
        # A long text has a name, one to three lines above its error.
        named = {
            (ast.unparse(each.targets[0]), each.lineno): each.value for each in nodes if isinstance(each, ast.Assign)
        }
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in found:
                given = [_text(argument) for argument in node.args[:2]]
                if len(given) == 2 and given[1] is None:
                    key = ast.unparse(node.args[1])
                    above = (named.get((key, line)) for line in range(node.lineno - 1, node.lineno - 4, -1))
                    given[1] = next((_text(value) for value in above if value is not None), None)
                if given and given[0] and given[0].isidentifier():
                    found[node.func.id][given[0]].append((given[-1] or "" if len(given) == 2 else "", room))
    return found


def _text(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in values)
    return None


def error_page(package: Path) -> str:
    """Return the page of errors: every kind and every code, what happened, and in which room."""
    found = settings_errors(package)
    kinds = get_args(ErrorKind)
    parts = [
        "# Errors",
        "",
        "Every error says what happened, what was given and what to do. A run that went wrong is a `NoeticError` with a `kind`;",
        "a set-up that cannot work is a `NoeticConfigError` with a `code`. `noetic_nb.innermost(error)` finds the cause of a",
        "nested one. The names and attributes are in the [reference](api/noetic_nb.errors.rst).",
        "",
        "## Kinds of `NoeticError`",
        "",
        *_table("kind", {kind: found["NoeticError"].get(kind, []) for kind in kinds}),
        "",
        "## Codes of `NoeticConfigError`",
        "",
        *_table("code", dict(sorted(found["NoeticConfigError"].items()))),
        "",
    ]
    return "\n".join(parts)


def _table(what: str, rows: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    yield f"| {what} | what happened | raised in |"
    yield "|---|---|---|"
    for name, raised in rows.items():
        said = list(dict.fromkeys(text.replace("|", "\\|").replace("<", "&lt;") for text, _ in raised if text))
        rooms = list(dict.fromkeys(room for _, room in raised))
        yield f"| `{name}` | {'<br>'.join(said) or 'Made where the cause is known; see the message.'} | {', '.join(rooms)} |"
