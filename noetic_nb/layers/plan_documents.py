"""Plans as data: a tree of nodes that is checked before it is kept, and never executed by the checking.

The kinds of nodes and their fields are those of saved workflows, so that a plan could be run as one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = [
    "NODE_KINDS",
    "PlanProblem",
    "cycle_in",
    "read_document",
    "references",
    "slug_problem",
    "summary_of",
]

# Parts that are deeper or longer belong into a named workflow, so that a plan stays readable in a prompt.
MAX_DEPTH: Final = 5
MAX_CHARS: Final = 20_000
_SLUG: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SLUG_CHARS: Final = 64

# Kind -> fields that must be there. Children: see `_children`.
NODE_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "llm": ("instructions",),
    "tool": ("toolName",),
    "branch": ("routes",),
    "fork": ("mode", "paths"),
    "spawn": ("child",),
    "loop": ("body", "until"),
    "sequence": ("steps",),
    "subflow": (),
}


class PlanProblem(ValueError):
    """A plan cannot be kept; the message gives the model the reason."""


def slug_problem(name: str) -> str | None:
    """Return what is wrong with the name of a workflow, None where nothing is.

    Examples
    --------
    >>> slug_problem("ship-it"), slug_problem("Ship it")
    (None, "'Ship it' is no name: use lowercase letters and digits joined by hyphens, at most 64 characters.")
    """
    if len(name) <= _SLUG_CHARS and _SLUG.fullmatch(name):
        return None
    return f"{name!r} is no name: use lowercase letters and digits joined by hyphens, at most {_SLUG_CHARS} characters."


def read_document(document: Any, *, limit_chars: bool = True) -> dict[str, Any]:
    """Return a document, given as an object or as JSON text, checked.

    Raises `PlanProblem` where it is no document, too long or too deep, or a node is not as its kind must be.

    Examples
    --------
    >>> read_document('{"version": 1, "root": {"kind": "llm", "id": "ask", "instructions": "Ask."}}')["root"]["id"]
    'ask'
    """
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as exc:
            raise PlanProblem(f"The document is not JSON: {exc}.") from exc
    if not isinstance(document, Mapping):
        raise PlanProblem(f"A document is an object with version and root, not {type(document).__name__}.")
    # A bare node is taken, too: models often leave out the frame around it.
    root = document.get("root", document if "kind" in document else None)
    if root is None or document.get("version", 1) != 1:
        raise PlanProblem('A document is {"version": 1, "root": node}.')
    # Checked before it is written as JSON, which cannot be done of nodes that are nested without end.
    _check(root, "root", 0)
    # Through JSON, so that the kept document shares nothing with the arguments and is plain data.
    found = {"version": 1, "root": json.loads(json.dumps(root))}
    size = len(json.dumps(found, ensure_ascii=False))
    if limit_chars and size > MAX_CHARS:
        raise PlanProblem(f"The document has {size} characters; at most {MAX_CHARS} are kept.")
    return found


def _check(node: Any, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise PlanProblem(f"{where} is nested more than {MAX_DEPTH} deep; use a named workflow and a subflow.")
    if not isinstance(node, Mapping):
        raise PlanProblem(f"{where} is no node but {type(node).__name__}.")
    kind = node.get("kind")
    if not isinstance(kind, str) or kind not in NODE_KINDS:
        raise PlanProblem(f"{where} has the unknown kind {kind!r}; kinds are {', '.join(NODE_KINDS)}.")
    if not isinstance(node.get("id"), str) or not node["id"].strip():
        raise PlanProblem(f"{where} needs a non-empty id.")
    missing = [field for field in NODE_KINDS[kind] if field not in node]
    if missing:
        raise PlanProblem(f"{where} ({kind}) lacks {', '.join(missing)}.")
    if kind == "subflow":
        if ("document" in node) == ("ref" in node):
            raise PlanProblem(f"{where} (subflow) has exactly one of document and ref.")
        if "ref" in node and (not isinstance(node["ref"], str) or slug_problem(node["ref"])):
            raise PlanProblem(f"{where}: {slug_problem(str(node['ref']))}")
    for name, child in _children(node, where):
        _check(child, name, depth + 1)


def _children(node: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    kind = node["kind"]
    if kind in ("sequence", "fork"):
        field = "steps" if kind == "sequence" else "paths"
        if not isinstance(node[field], list | tuple):
            raise PlanProblem(f"{where}.{field} is a list of nodes.")
        yield from ((f"{where}.{field}[{n}]", child) for n, child in enumerate(node[field]))
    elif kind in ("spawn", "loop"):
        field = "child" if kind == "spawn" else "body"
        yield f"{where}.{field}", node[field]
    elif kind == "branch":
        if not isinstance(node["routes"], list | tuple):
            raise PlanProblem(f"{where}.routes is a list of routes.")
        for n, route in enumerate(node["routes"]):
            if not isinstance(route, Mapping) or not isinstance(route.get("match"), str) or "target" not in route:
                raise PlanProblem(f"{where}.routes[{n}] has a text `match` and a node `target`.")
            yield f"{where}.routes[{n}].target", route["target"]
        if node.get("default") is not None:
            yield f"{where}.default", node["default"]
    elif kind == "subflow" and "document" in node:
        document = node["document"]
        yield f"{where}.document", document.get("root", document) if isinstance(document, Mapping) else document


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for _, child in _children(node, ""):
        yield from _nodes(child)


def references(document: Mapping[str, Any]) -> list[str]:
    """Return the names of workflows a checked document refers to, each once, in order."""
    return list(dict.fromkeys(str(node["ref"]) for node in _nodes(document["root"]) if "ref" in node))


def cycle_in(start: Mapping[str, Any], workflows: Mapping[str, Mapping[str, Any]]) -> list[str] | None:
    """Return names that refer to each other in a circle, None where there is none."""

    def walk(document: Mapping[str, Any], path: list[str]) -> list[str] | None:
        for name in references(document):
            if name in path:
                return [*path[path.index(name) :], name]
            if name in workflows:
                found = walk(workflows[name], [*path, name])
                if found is not None:
                    return found
        return None

    return walk(start, [])


def summary_of(name: str, document: Mapping[str, Any]) -> str:
    """Return one line about a workflow: its name, how many nodes it has and of which kinds.

    Examples
    --------
    >>> summary_of("ship-it", read_document({"kind": "llm", "id": "a", "instructions": "Go."}))
    '- ship-it: 1 node (llm x1)'
    """
    kinds = Counter(str(node["kind"]) for node in _nodes(document["root"]))
    count = kinds.total()
    counted = ", ".join(f"{kind} x{number}" for kind, number in sorted(kinds.items()))
    return f"- {name}: {count} node{'s' if count != 1 else ''} ({counted})"
