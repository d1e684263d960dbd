"""Plans as data: a tree of nodes that is checked before it is kept, and never executed by the checking.

A document is what `load_workflow` takes, so that a plan could be run as one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError

__all__ = [
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


class PlanProblem(ValueError):
    """A plan cannot be kept; the message gives the model the reason."""


def slug_problem(name: str) -> str | None:
    """Return the fault of the name of a workflow, None where there is none.

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

    Raises `PlanProblem` where it is too long or too deep, or `load_workflow` would not take it whatever it refers to.

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
    if "root" not in document and "kind" in document:
        document = {"version": 1, "root": document}
    try:
        # Through JSON, so that the kept document shares nothing with the arguments and is plain data.
        text = json.dumps({"version": 1, **document}, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise PlanProblem(f"The document is not JSON: {exc}.") from exc
    if limit_chars and len(text) > MAX_CHARS:
        raise PlanProblem(f"The document has {len(text)} characters; at most {MAX_CHARS} are kept.")
    found: dict[str, Any] = json.loads(text)
    # Loaded with the first plan: most agents make none.
    from noetic_nb.steps.workflow import check_workflow
    from noetic_nb.steps.workflow_loader import workflow_depth

    try:
        check_workflow(found)
    except NoeticConfigError as exc:
        raise PlanProblem(str(exc).removeprefix(f"[{exc.code}] ")) from exc
    if workflow_depth(found["root"]) > MAX_DEPTH:
        raise PlanProblem(f"It is nested more than {MAX_DEPTH} deep; use a named workflow and a subflow.")
    for name in references(found):
        if problem := slug_problem(name):
            raise PlanProblem(problem)
    return found


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    from noetic_nb.steps.workflow_loader import child_nodes

    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(reversed(child_nodes(found)))


def references(document: Mapping[str, Any]) -> list[str]:
    """Return the names of workflows a checked document refers to, each once, in order."""
    return list(dict.fromkeys(str(node["ref"]) for node in _nodes(document["root"]) if node.get("ref") is not None))


def cycle_in(
    start: Mapping[str, Any], workflows: Mapping[str, Mapping[str, Any]], *, clear: set[str] | None = None
) -> list[str] | None:
    """Return names that refer to each other in a circle, None where there is none.

    Names in `clear` lead into no circle and are not looked at again; those that are found to do so are added.
    """
    clear = set() if clear is None else clear

    def walk(document: Mapping[str, Any], path: list[str]) -> list[str] | None:
        for name in references(document):
            if name in path:
                return [*path[path.index(name) :], name]
            if name in workflows and name not in clear:
                found = walk(workflows[name], [*path, name])
                if found is not None:
                    return found
                clear.add(name)
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
