"""In which other orders the cells of a notebook may run.

A cell comes after the cells that bind the names it reads, and before those that bind them anew. A cell that calls a method of
something for its effect (`await harness.execute(...)`, `rules.when(...)`, `@rules.rule`, `table[key] = ...`) changes the cells
that it reads from: whoever reads from those as well keeps its place before or after it. A function of the notebook that is
called is taken to change nothing.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Names:
    """What one cell binds, reads, and changes."""

    binds: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)


def root(node: ast.AST) -> str | None:
    """Return the name at the beginning of ``name.attribute[key](...)``, None where a plain name is called."""
    begun = False
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript | ast.Await):
        begun |= isinstance(node, ast.Attribute | ast.Subscript)
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if begun and isinstance(node, ast.Name) else None


def names_of(source: str) -> Names:
    found, tree = Names(), ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (found.reads if isinstance(node.ctx, ast.Load) else found.binds).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.binds.add(node.name)
            found.changes |= {name for each in node.decorator_list if (name := root(each))}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            new = {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            found.binds |= new
            found.modules |= new
        elif isinstance(node, ast.Await) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            found.changes |= {name} if (name := root(node.value)) else set()
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            found.changes |= {name} if (name := root(node)) else set()
    return found


def before(sources: Sequence[str]) -> list[set[int]]:
    """Return, for each cell, the cells that must run before it."""
    cells = [names_of(source) for source in sources]
    modules = {name for cell in cells for name in cell.modules}
    needs: list[set[int]] = [set() for _ in cells]
    binder: dict[str, int] = {}
    readers: dict[int, set[int]] = {}
    changers: dict[int, set[int]] = {}
    for number, cell in enumerate(cells):
        for name in cell.binds:
            if name in binder and binder[name] != number:
                needs[number] |= {binder[name], *readers.get(binder[name], ())}
        origins = {binder[name] for name in cell.reads if name in binder}
        changed = {binder[name] for name in cell.changes - modules if name in binder}
        for origin in origins:
            needs[number] |= {origin, *changers.get(origin, ())}
            readers.setdefault(origin, set()).add(number)
        for origin in changed:
            needs[number] |= readers[origin]
            changers.setdefault(origin, set()).add(number)
        binder |= dict.fromkeys(cell.binds, number)
        needs[number].discard(number)
    return needs


def shuffled(sources: Sequence[str], seed: int) -> list[int]:
    """Return the numbers of the cells in an order that is legal, drawn by a seed."""
    draw, needs, order = random.Random(seed), before(sources), list[int]()
    while len(order) < len(sources):
        ready = [number for number in range(len(sources)) if number not in order and needs[number] <= set(order)]
        order.append(draw.choice(ready))
    return order
