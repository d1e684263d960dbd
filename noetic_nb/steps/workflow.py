"""Workflow documents, version 1: agents as plain JSON trees that models and people write, made into steps.

Text flows from node to node. Nothing in a document is executed: a `run` node names a registered function, never holds code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from noetic_nb.errors import NoeticConfigError
from noetic_nb.models.base import ModelParams
from noetic_nb.steps.build import branch, fork, loop, spawn, step
from noetic_nb.steps.codec import MAX_DEPTH, resolved
from noetic_nb.steps.records import Step
from noetic_nb.steps.registry import Registry
from noetic_nb.steps.until import until

__all__ = ["load_workflow", "workflow_depth"]

VERSION: Final = 1
# Runtime specification, section 2.10: what a document that names no model asks.
DEFAULT_MODEL: Final = "openai/gpt-4o"

_Node: TypeAlias = Mapping[str, Any]
_CHILDREN: Final[Mapping[str, str]] = {"spawn": "child", "loop": "body"}


def load_workflow(
    document: Mapping[str, Any] | str, registry: Registry | None = None, *, default_model: str = DEFAULT_MODEL
) -> Step:
    """Return the step a workflow document describes.

    Parameters
    ----------
    document : mapping or str
        ``{"version": 1, "root": node}``, or its JSON text. Kinds of node: llm, tool, run, branch, fork, spawn, loop,
        sequence, subflow.
    registry : Registry, optional
        Its tools, functions, layers, schemas, codecs and further workflows.
    default_model : str
        For llm nodes that name none.

    Raises
    ------
    NoeticConfigError
        ``INVALID_WORKFLOW_SOURCE``, ``WORKFLOW_VALIDATION_FAILED``, ``UNKNOWN_NODE_KIND``, ``UNKNOWN_TOOL_REFERENCE``,
        ``UNKNOWN_UNTIL_PREDICATE``, ``WORKFLOW_CYCLE``, ... each naming the node.

    Examples
    --------
    >>> document = {"version": 1, "root": {"kind": "sequence", "id": "s", "steps": [
    ...     {"kind": "llm", "id": "draft", "instructions": "Write."},
    ...     {"kind": "llm", "id": "check", "instructions": "Check."}]}}
    >>> [inner.id for inner in load_workflow(document).steps]
    ['draft', 'check']
    """
    return _Loader(registry or Registry(), default_model).document(document, ())


def workflow_depth(node: _Node) -> int:
    """Return the longest way from a node down to a leaf, in edges.

    Examples
    --------
    >>> workflow_depth({"kind": "spawn", "id": "s", "child": {"kind": "llm", "id": "a"}})
    1
    """
    deepest, waiting = 0, [(node, 0)]
    while waiting:
        one, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting.extend((child, depth + 1) for child in _children(one) if depth < MAX_DEPTH)
    return deepest


def _children(node: _Node) -> list[_Node]:
    named = [node.get(key) for key in ("child", "body", "default", "each", "step")]
    listed = [*(node.get("steps") or ()), *(node.get("paths") or ())]
    targets = [route.get("target") for route in node.get("routes") or () if isinstance(route, Mapping)]
    return [child for child in (*named, *listed, *targets) if isinstance(child, Mapping)]


def _invalid(what: str, given: object = None, *, code: str = "WORKFLOW_VALIDATION_FAILED", hint: str = "") -> Any:
    return NoeticConfigError(
        code, what, given=given, hint=hint or "Compare it with the reference of workflow documents."
    )


class _Loader:
    """Makes the nodes of one document, and of those it refers to, into steps."""

    def __init__(self, registry: Registry, default_model: str) -> None:
        self._registry = registry
        self._default_model = default_model
        self._makers: dict[str, Callable[[_Node, str, tuple[str, ...]], Step]] = {
            "llm": self._llm,
            "tool": self._tool,
            "run": self._run,
            "branch": self._branch,
            "fork": self._fork,
            "spawn": self._spawn,
            "loop": self._loop,
            "sequence": self._sequence,
            "subflow": self._subflow,
        }

    def document(self, given: Mapping[str, Any] | str, seen: tuple[str, ...]) -> Step:
        """Make a whole document."""
        if isinstance(given, str):
            try:
                given = json.loads(given)
            except (ValueError, RecursionError) as exc:
                raise _invalid(f"This is no JSON: {exc}", given, code="INVALID_WORKFLOW_SOURCE") from exc
        if not isinstance(given, Mapping) or not isinstance(given.get("root"), Mapping):
            raise _invalid("A workflow document has a `root` node.", given, code="INVALID_WORKFLOW_SOURCE")
        if given.get("version") != VERSION:
            raise _invalid(
                "This version of workflow documents is not known.", given.get("version"), hint="Version 1 is."
            )
        if workflow_depth(given["root"]) >= MAX_DEPTH:
            raise _invalid(f"The document is nested {MAX_DEPTH} deep or more.")
        return self.node(given["root"], "", seen)

    def node(self, node: Any, suffix: str, seen: tuple[str, ...]) -> Step:
        """Make one node; `suffix` keeps the ids of a document apart that is used twice."""
        if not isinstance(node, Mapping):
            raise _invalid("A node is a mapping.", node)
        kind, node_id = node.get("kind"), node.get("id")
        maker = self._makers.get(kind) if isinstance(kind, str) else None
        if maker is None:
            raise _invalid(
                f"Node {node_id!r} is of a kind that is not known.",
                kind,
                code="UNKNOWN_NODE_KIND",
                hint=f"Kinds are {', '.join(self._makers)}.",
            )
        if not isinstance(node_id, str) or not node_id.strip():
            raise _invalid(f"A node of kind {kind!r} needs a non-empty id.", node_id)
        return maker(node, suffix, seen)

    def _named(self, node: _Node, key: str, kind: type | tuple[type, ...]) -> Any:
        value = node.get(key)
        if not isinstance(value, kind) or value in ("", []):
            raise _invalid(f"Node {node['id']!r} needs `{key}`.", value)
        return value

    def _llm(self, node: _Node, suffix: str, seen: tuple[str, ...]) -> Step:
        tools = node.get("tools")
        made = None if tools is None else [self._tool_named(tool, node) for tool in tools]
        params = node.get("params")
        if params is not None:
            params = resolved({"params": params}, self._registry)["params"]
        output = node.get("output")
        if isinstance(output, str):
            output = {"$ref": f"codec:{output.removeprefix('codec:')}"}
        output = resolved({"output": output}, self._registry)["output"]
        return step.llm(
            f"{node['id']}{suffix}",
            model=node.get("model") or self._default_model,
            instructions=self._named(node, "instructions", str),
            tools=made,
            params=None if params is None else ModelParams(**params),
            output=output,
        )

    def _tool_named(self, tool: Any, node: _Node) -> Any:
        name = tool.get("type") if isinstance(tool, Mapping) else tool
        if not isinstance(name, str):
            raise _invalid(f"A tool of node {node['id']!r} has no name.", tool, hint="Use {'type': 'name'}.")
        return self._registry.resolve(f"tool:{name}")

    def _tool(self, node: _Node, suffix: str, seen: tuple[str, ...]) -> Step:
        tool = self._registry.resolve(f"tool:{self._named(node, 'toolName', str)}")
        return step.tool(f"{node['id']}{suffix}", tool, node.get("args") or {}, takes_input=False)

    def _run(self, node: _Node, suffix: str, seen: tuple[str, ...]) -> Step:
        execute = node.get("execute")
        if not isinstance(execute, Mapping):
            raise _invalid(
                f"Node {node['id']!r} holds code, which is never run from a document.",
                execute,
                code="UNKNOWN_SUBPROCESS_REFERENCE",
                hint="Register a function and refer to it: {'execute': {'$ref': 'fn:name'}}.",
            )
        return step.run(f"{node['id']}{suffix}", resolved(execute, self._registry), retry=node.get("retry"))

    def _branch(self, node: _Node, suffix: str, seen: tuple[str, ...]) -> Step:
        routes = []
        for route in self._named(node, "routes", list):
            match = self._named({**route, "id": node["id"]}, "match", str)
            routes.append({"match": match, "target": self.node(route.get("target"), suffix, seen)})
        default = node.get("default")
        return branch(
            f"{node['id']}{suffix}",
            routes=routes,
            default=None if default is None else self.node(default, suffix, seen),
        )

    def _fork(self, node: _Node, suffix: str, seen: tuple[str, ...]) -> Step:
        if ("paths" in node) == ("each" in node):
            raise _invalid(f"Fork {node['id']!r} needs `paths` or `each`, and not both.")
        mode = node.get("mode", "all")
        each = self.node(node["each"], suffix, seen) if "each" in node else None
        paths = (
            None if each is not None else [self.node(path, suffix, seen) for path in self._named(node, "paths", list)]
        )
        merge = None if mode == "race" else node.get("merge", "last")
        return fork(
            f"{node['id']}{suffix}",
            mode=mode,
            paths=paths,
            each=each,
            over=node.get("over"),
            merge=merge,
            concurrency=node.get("concurrency"),
        )

    def _spawn(self, node: _Node, suffix: str, seen: tuple[str, ...]) -> Step:
        layers = node.get("layers")
        memory = None if layers is None else [self._registry.resolve(f"layer:{name}") for name in layers]
        child = self.node(node.get("child"), suffix, seen)
        return spawn(f"{node['id']}{suffix}", child, memory=memory, timeout_ms=node.get("timeout"))

    def _loop(self, node: _Node, suffix: str, seen: tuple[str, ...]) -> Step:
        body = self.node(node.get("body"), suffix, seen)
        limit = {} if "maxIterations" not in node else {"max_iterations": node["maxIterations"]}
        return loop(f"{node['id']}{suffix}", body, until=self._until(node.get("until"), node), **limit)

    def _until(self, given: Any, node: _Node) -> Any:
        kinds: dict[Any, Callable[[], Any]] = {
            "maxSteps": lambda: until.max_steps(given["n"]),
            "maxCost": lambda: until.max_cost(given["usd"]),
            "maxDuration": lambda: until.max_duration(given["ms"]),
            "noToolCalls": until.no_tool_calls,
            "outputContains": lambda: until.output_contains(given["marker"]),
            "outputEquals": lambda: until.output_equals(given["sentinel"]),
            "converged": lambda: until.converged(given.get("threshold", 1.0)),
            "any": lambda: until.any(*[self._until(inner, node) for inner in given["predicates"]]),
            "all": lambda: until.all(*[self._until(inner, node) for inner in given["predicates"]]),
        }
        kind = given.get("kind") if isinstance(given, Mapping) else None
        if kind not in kinds:
            raise _invalid(
                f"Loop {node['id']!r} has a predicate that is not known.",
                given,
                code="UNKNOWN_UNTIL_PREDICATE",
                hint=f"Predicates are {', '.join(kinds)}.",
            )
        try:
            return kinds[kind]()
        except KeyError as exc:
            raise _invalid(f"The predicate {kind!r} of loop {node['id']!r} needs {exc}.", given) from exc

    def _sequence(self, node: _Node, suffix: str, seen: tuple[str, ...]) -> Step:
        steps = [self.node(one, suffix, seen) for one in self._named(node, "steps", list)]
        return loop(f"{node['id']}{suffix}", steps, until=until.max_steps(1))

    def _subflow(self, node: _Node, suffix: str, seen: tuple[str, ...]) -> Step:
        ref, document = node.get("ref"), node.get("document")
        if (ref is None) == (document is None):
            raise _invalid(f"Subflow {node['id']!r} needs `document` or `ref`, and not both.")
        if ref is not None:
            if ref in seen:
                raise _invalid(
                    f"Workflow {ref!r} refers to itself.",
                    " -> ".join((*seen, ref)),
                    code="WORKFLOW_CYCLE",
                    hint="Use a loop node.",
                )
            document, seen = self._registry.resolve(f"workflow:{ref}"), (*seen, ref)
        inner = _Loader(self._registry, self._default_model)
        made = inner.within(document, f"-{node['id']}{suffix}", seen)
        if node.get("input") is None:
            return made
        given = node["input"]
        return loop(
            f"{node['id']}{suffix}", [step.run(f"{node['id']}-input{suffix}", _constant(given)), made],
            until=until.max_steps(1),
        )  # fmt: skip

    def within(self, document: Any, suffix: str, seen: tuple[str, ...]) -> Step:
        """Make a document that another one uses."""
        self.document(document, seen)  # checks the head, and refuses what refers to itself
        return self.node(document["root"], suffix, seen)


def _constant(value: Any) -> Callable[..., Any]:
    return lambda _input, _ctx: value
