"""Workflow documents, version 1: agents as plain JSON trees, written by models and people, converted to steps.

Text flows from node to node. Nothing in a document is executed: a `run` node names a registered function and never contains code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeAlias, get_args, get_origin

from pydantic.alias_generators import to_camel

from noetic_nb._core.names import nearest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._layer import MemoryHooks, MemoryLayer
from noetic_nb.models._client import ModelParams
from noetic_nb.steps._function_tools import make_tool
from noetic_nb.steps._json.registry import Registry
from noetic_nb.steps._json.step_json import MAX_DEPTH, load_step
from noetic_nb.steps._loops import UntilPredicate
from noetic_nb.steps._records import Step, suffixed
from noetic_nb.steps._tools import Tool

VERSION: Final = 1
# Every use of a workflow has its own steps, so nested double uses grow by powers of two.
MAX_STEPS: Final = 100_000
Node: TypeAlias = Mapping[str, Any]
StepData: TypeAlias = dict[str, Any]
"""A step in the form that `load_step` reads, with the inner steps already created."""
_Inner: TypeAlias = Callable[[Any], Step]
_WORDS: Final[Mapping[Any, str]] = {str: "text that is not empty", list: "a list", Mapping: "a mapping"}
# Keys of each kind of node that hold other nodes; elsewhere these keys are unknown.
_CHILDREN: Final[Mapping[str, tuple[str, ...]]] = {
    "branch": ("routes", "default"),
    "fork": ("paths", "each"),
    "spawn": ("child",),
    "loop": ("body",),
    "sequence": ("steps",),
    "subflow": ("document",),
}
# Keys allowed in each kind of node, in addition to `kind` and `id`.
_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "llm": frozenset({"model", "instructions", "tools", "params", "output", "incomplete"}),
    "tool": frozenset({"toolName", "args"}),
    "run": frozenset({"execute", "retry"}),
    "branch": frozenset({"routes", "default"}),
    "fork": frozenset({"mode", "paths", "each", "over", "merge", "concurrency"}),
    "spawn": frozenset({"child", "layers", "timeout"}),
    "loop": frozenset({"body", "until", "maxIterations"}),
    "sequence": frozenset({"steps"}),
    "subflow": frozenset({"document", "ref", "input"}),
}


def _predicate_keys() -> Mapping[str, frozenset[str]]:
    """Return the keys of each predicate's JSON form, without functions and predicates that need one."""
    found = {}
    for cls in get_args(get_args(UntilPredicate)[0]):
        fields = {field.alias or to_camel(name): field for name, field in cls.model_fields.items()}
        functions = {key: field for key, field in fields.items() if _is_function(field.annotation)}
        if not any(field.is_required() for field in functions.values()):
            found[fields["kind"].default] = frozenset(fields.keys() - functions.keys())
    return found


def _is_function(hint: Any) -> bool:
    return any(get_origin(one) is Callable for one in (hint, *get_args(hint)))


_PREDICATE_KEYS: Final = _predicate_keys()
# Codes that are kept, because they are more specific than "this node is not valid".
_SPECIFIC: Final = ("UNKNOWN_", "WORKFLOW_")


def workflow_depth(node: Node) -> int:
    """Return the length of the longest path from a node to a leaf, in edges."""
    deepest, waiting = 0, [(node, 0)]
    while waiting:
        one, depth = waiting.pop()
        deepest = max(deepest, depth)
        # Bounded, because a document built in Python may contain itself.
        waiting.extend((child, depth + 1) for child in child_nodes(one) if depth < MAX_DEPTH)
    return deepest


def child_nodes(node: Node) -> list[Node]:
    """Return the nodes directly inside a node, in order; other values are skipped."""
    kind = node.get("kind")
    found: list[Any] = []
    for key in _CHILDREN.get(kind, ()) if isinstance(kind, str) else ():
        value = node.get(key)
        listed = value if isinstance(value, list) else [value]
        inner = {"routes": "target", "document": "root"}.get(key)
        found += listed if inner is None else [one.get(inner) for one in listed if isinstance(one, Mapping)]
    return [child for child in found if isinstance(child, Mapping)]


def invalid(
    what: str, given: object = None, *, code: str = "WORKFLOW_VALIDATION_FAILED", hint: str = "", **facts: Any
) -> NoeticConfigError:
    hint = hint or "Compare it with the reference of workflow documents."
    return NoeticConfigError(code, what, **({} if given is None else {"given": given}), hint=hint, **facts)


class Loader:
    """Converts the nodes of a document, and of documents it refers to, into steps."""

    def __init__(self, registry: Registry, default_model: str, strict: bool) -> None:
        self._strict = strict
        # In a saved document: unknown keys of the node being converted.
        self._unknown: list[str] = []
        self._registry = registry
        # By name: a workflow that was read, and its number of steps.
        self._read: dict[str, tuple[Step, int]] = {}
        self._steps = 0
        self._default_model = default_model
        self._translators: dict[str, Callable[[Node, _Inner], StepData]] = {
            "llm": self._llm,
            "tool": self._tool,
            "run": self._run,
            "branch": self._branch,
            "fork": self._fork,
            "spawn": self._spawn,
            "loop": self._loop,
            "sequence": self._sequence,
        }

    def document(self, given: Any, suffix: str, seen: tuple[str, ...]) -> Step:
        """Convert a whole document; `suffix` keeps ids unique if a document is used twice."""
        root, unknown = self._root(given)
        if workflow_depth(root) >= MAX_DEPTH:
            raise invalid(f"The document is nested {MAX_DEPTH} deep or more.")
        return _noted(self.node(root, suffix, seen), unknown)

    def _root(self, given: Any) -> tuple[Node, list[str]]:
        if isinstance(given, str):
            try:
                given = json.loads(given)
            except (ValueError, RecursionError) as exc:
                raise invalid(f"This is no JSON: {exc}", given, code="INVALID_WORKFLOW_SOURCE") from exc
        if not isinstance(given, Mapping) or not isinstance(given.get("root"), Mapping):
            raise invalid("A workflow document needs a `root` node.", given, code="INVALID_WORKFLOW_SOURCE")
        if given.get("version") != VERSION:
            hint = "Version 1 is."
            raise invalid("This version of workflow documents is unknown.", given.get("version"), hint=hint)
        around, self._unknown = self._unknown, []
        self._only(given, {"version", "root"}, "a document")
        unknown, self._unknown = self._unknown, around
        root: Node = given["root"]
        return root, unknown

    def _only(self, given: Node, known: Iterable[str], what: str) -> None:
        """Reject, or note, unknown keys: a misspelt rule or limit would have no effect."""
        known = set(known)
        unknown = [key for key in given if key not in known]
        if not unknown:
            return
        if not self._strict:
            self._unknown += map(str, unknown)
            return
        near = nearest(str(unknown[0]), known)
        hint = f"Did you mean {near!r}?" if near else f"Keys are {', '.join(sorted(known))}."
        raise invalid(f"{what[0].upper()}{what[1:]} has no `{unknown[0]}`.", unknown[0], hint=hint)

    def node(self, node: Any, suffix: str, seen: tuple[str, ...]) -> Step:
        """Convert one node. Errors name its id."""
        if not isinstance(node, Mapping):
            raise invalid("It contains something that is not a node: a node must be a mapping.", node)
        kind, node_id = node.get("kind"), node.get("id")
        if not isinstance(kind, str) or kind not in _KEYS:
            raise invalid(
                f"Node {node_id!r} has an unknown kind.",
                kind,
                code="UNKNOWN_NODE_KIND",
                hint=f"Kinds are {', '.join(_KEYS)}.",
                node=node_id,
            )
        if not isinstance(node_id, str) or not node_id.strip():
            raise invalid(f"A node of kind {kind!r} needs a non-empty id.", node_id, node=node_id)
        self._count(1)
        around, self._unknown = self._unknown, []
        try:
            self._only(node, {"kind", "id", *_KEYS[kind]}, f"a node of kind {kind!r}")
            if kind == "subflow":
                return _noted(self._subflow(node, suffix, seen), self._unknown)
            made = {"kind": kind, **self._translators[kind](node, lambda inner: self.node(inner, suffix, seen))}
            made = {key: value for key, value in made.items() if value is not None}
            return _noted(load_step({**made, "id": f"{node_id}{suffix}"}, self._registry), self._unknown)
        except NoeticConfigError as exc:
            if "node" in exc.facts:  # from a node inside this one, which is already named
                raise
            code = exc.code if exc.code.startswith(_SPECIFIC) else "WORKFLOW_VALIDATION_FAILED"
            facts = {**exc.facts, "node": node_id}
            raise invalid(f"Node {node_id!r}: {exc.what}", exc.given, code=code, hint=exc.hint, **facts) from exc
        finally:
            self._unknown = around

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            hint = "Use fewer subflows inside subflows."
            raise invalid(f"The document stands for more than {MAX_STEPS} steps.", hint=hint)

    def _named(self, node: Node, key: str, kind: type) -> Any:
        value = node.get(key)
        if not isinstance(value, kind) or value == "":
            raise invalid(f"`{key}` must be {_WORDS[kind]}.", value)
        return value

    def _maybe(self, node: Node, key: str, kind: type) -> Any:
        return None if node.get(key) is None else self._named(node, key, kind)

    def _llm(self, node: Node, inner: _Inner) -> StepData:
        tools, output = self._maybe(node, "tools", list), node.get("output")
        if isinstance(output, str):
            # Text can only name a codec: a schema is a mapping.
            output = {"$ref": f"codec:{output.removeprefix('codec:')}"}
        return {
            "model": node.get("model") or self._default_model,
            "instructions": self._named(node, "instructions", str),
            "tools": None if tools is None else [self._tool_named(tool) for tool in tools],
            "params": self._params(self._maybe(node, "params", Mapping)),
            "output": output,
            "incomplete": self._maybe(node, "incomplete", str),
        }

    def _params(self, given: Node | None) -> Node | None:
        known = set(map(to_camel, ModelParams.model_fields))
        if given is not None and not known.issuperset(given):
            hint = f"Parameters are {', '.join(sorted(known))}."
            raise invalid("It has an unknown parameter.", given, hint=hint)
        return given

    def _tool_named(self, tool: Any) -> StepData:
        name = tool.get("type") if isinstance(tool, Mapping) else tool
        if not isinstance(name, str):
            raise invalid("One of its tools has no name.", tool, hint="Use {'type': 'name'}.")
        if isinstance(tool, Mapping):
            self._only(tool, {"type", "parameters"}, "a tool")
        return {"$ref": f"tool:{name}"}

    def _tool(self, node: Node, inner: _Inner) -> StepData:
        tool = {"$ref": f"tool:{self._named(node, 'toolName', str)}"}
        # Text flows between nodes, and a tool does not take text as its arguments.
        return {"tool": tool, "args": self._maybe(node, "args", Mapping) or {}, "takesInput": False}

    def _run(self, node: Node, inner: _Inner) -> StepData:
        execute = node.get("execute")
        if not isinstance(execute, Mapping):
            raise invalid(
                "It contains code, which is never run from a document.",
                execute,
                code="UNKNOWN_SUBPROCESS_REFERENCE",
                hint="Register a function and refer to it: {'execute': {'$ref': 'fn:name'}}.",
            )
        return {"execute": execute, "retry": node.get("retry")}

    def _branch(self, node: Node, inner: _Inner) -> StepData:
        routes = []
        for route in self._named(node, "routes", list):
            if not isinstance(route, Mapping):
                raise invalid("A route needs a text to `match` and a `target`.", route)
            self._only(route, {"match", "target"}, "a route")
            routes.append({"match": self._named(route, "match", str), "target": inner(route.get("target"))})
        default = node.get("default")
        return {"routes": routes, "default": None if default is None else inner(default)}

    def _fork(self, node: Node, inner: _Inner) -> StepData:
        if ("paths" in node) == ("each" in node):
            raise invalid("A fork needs `paths` or `each`, and not both.")
        mode = node.get("mode", "all")
        return {
            "mode": mode,
            "paths": [inner(path) for path in self._named(node, "paths", list)] if "paths" in node else None,
            "each": inner(node["each"]) if "each" in node else None,
            "over": node.get("over"),
            # A race rejects a merge, so the default is for the other modes only.
            "merge": None if mode == "race" else node.get("merge", "last"),
            "concurrency": node.get("concurrency"),
        }

    def _spawn(self, node: Node, inner: _Inner) -> StepData:
        layers = self._maybe(node, "layers", list)
        memory = None if layers is None else [{"$ref": f"layer:{name}"} for name in layers]
        return {"child": inner(node.get("child")), "memory": memory, "timeout": node.get("timeout")}

    def _loop(self, node: Node, inner: _Inner) -> StepData:
        until = self._until(node.get("until"))
        return {"steps": [inner(node.get("body"))], "until": until, "maxIterations": node.get("maxIterations")}

    def _until(self, given: Any) -> StepData:
        kind = given.get("kind") if isinstance(given, Mapping) else None
        if not isinstance(kind, str) or kind not in _PREDICATE_KEYS:
            raise invalid(
                "Its stop predicate is unknown.",
                given,
                code="UNKNOWN_UNTIL_PREDICATE",
                hint=f"Predicates are {', '.join(_PREDICATE_KEYS)}.",
            )
        keys = _PREDICATE_KEYS[kind]
        self._only(given, keys, f"the predicate {kind!r}")
        made = {key: value for key, value in given.items() if key in keys}
        if "predicates" in keys:
            made["predicates"] = [self._until(member) for member in self._named(given, "predicates", list)]
        return made

    def _sequence(self, node: Node, inner: _Inner) -> StepData:
        return _once([inner(one) for one in self._named(node, "steps", list)]) | {"textBetween": True}

    def _subflow(self, node: Node, suffix: str, seen: tuple[str, ...]) -> Step:
        if (node.get("ref") is None) == (node.get("document") is None):
            raise invalid("A subflow needs `document` or `ref`, and not both.")
        # The same document may be used in several places, and the ids of its nodes must be unique.
        inner_suffix = f"-{node['id']}{suffix}"
        if node.get("ref") is None:
            root, unknown = self._root(self._named(node, "document", Mapping))
            made = _noted(self.node(root, inner_suffix, seen), unknown)
        else:
            ref = self._named(node, "ref", str)
            # Only among ancestors: two sibling subflows may refer to the same document.
            if ref in seen:
                raise invalid(
                    f"Workflow {ref!r} refers to itself.",
                    " -> ".join((*seen, ref)),
                    code="WORKFLOW_CYCLE",
                    hint="Use a loop node.",
                )
            made = self._workflow(ref, inner_suffix, (*seen, ref))
        if (given := node.get("input")) is None:
            return made
        first = {"kind": "run", "id": f"{node['id']}-input{suffix}", "execute": lambda _input, _ctx: given}
        return load_step({"kind": "loop", "id": f"{node['id']}{suffix}", **_once([first, made])})

    def _workflow(self, ref: str, suffix: str, seen: tuple[str, ...]) -> Step:
        """Return the steps of a workflow, which is read only once."""
        if ref not in self._read:
            before = self._steps
            made = self.document(self._registry.resolve(f"workflow:{ref}"), "", seen)
            self._read[ref] = made, self._steps - before
            self._steps = before
        made, steps = self._read[ref]
        self._count(steps)
        return suffixed(made, suffix)


def _once(steps: list[Any]) -> StepData:
    """Return a sequence, which is not a kind of step, as a loop that runs once."""
    return {"kind": "loop", "steps": steps, "until": {"kind": "maxSteps", "n": 1}, "needsOutput": False}


def _noted(made: Step, unknown: list[str]) -> Step:
    if unknown:
        made._unknown_keys = (*made._unknown_keys, *unknown)
    return made


# For nodes without a model; docs/behaviour/steps.md, "Workflow documents".
DEFAULT_MODEL: Final = "openai/gpt-4o"


def load_workflow(
    document: Mapping[str, Any] | str,
    registry: Registry | None = None,
    *,
    default_model: str = DEFAULT_MODEL,
    strict: bool = True,
) -> Step:
    """Return the step described by a workflow document.

    See docs/behaviour/steps.md, "Workflow documents".

    Parameters
    ----------
    document : mapping or str
        ``{"version": 1, "root": node}``, or its JSON text. Kinds of node: llm, tool, run, branch, fork, spawn, loop,
        sequence, subflow.
    registry : Registry, optional
        Its tools, functions, layers, schemas, codecs and further workflows.
    default_model : str
        For llm nodes without a model.
    strict : bool, default True
        Whether an unknown key is an error, as it should be for a newly written document. False reads documents saved
        when unknown keys were ignored; ``harness.check()`` then lists these keys.

    Raises
    ------
    NoeticConfigError
        ``INVALID_WORKFLOW_SOURCE``, ``WORKFLOW_VALIDATION_FAILED``, ``UNKNOWN_NODE_KIND``, ``UNKNOWN_TOOL_REFERENCE``,
        ``UNKNOWN_UNTIL_PREDICATE``, ``WORKFLOW_CYCLE`` and others, each naming the node.

    Examples
    --------
    >>> document = {"version": 1, "root": {"kind": "sequence", "id": "s", "steps": [
    ...     {"kind": "llm", "id": "draft", "instructions": "Write."},
    ...     {"kind": "llm", "id": "check", "instructions": "Check."}]}}
    >>> [inner.id for inner in load_workflow(document).steps]
    ['draft', 'check']
    """
    try:
        return Loader(registry or Registry(), default_model, strict).document(document, "", ())
    except RecursionError:
        raise invalid("Something in the document is nested too deep.") from None


def check_workflow(document: Mapping[str, Any] | str) -> None:
    """Check a document as `load_workflow` does, with its errors, but accept any references."""
    try:
        Loader(_Anything(), DEFAULT_MODEL, strict=True).document(document, "", ())
    except RecursionError:
        raise invalid("Something in the document is nested too deep.") from None


class _Anything(Registry):
    """Resolves every name, for checking a document on its own."""

    def resolve(self, ref: str, args: Mapping[str, Any] | None = None) -> Any:
        """Return an object of the kind that a reference names."""
        kind, _, name = ref.partition(":")
        match kind:
            case "tool" if name.strip():
                return replace(_any_tool(), name=name)
            case "layer" if name.strip():
                return MemoryLayer(id=name, slot=0, scope="execution", hooks=MemoryHooks(dispose=lambda p: None))
            case "workflow":
                return {"version": VERSION, "root": {"kind": "sequence", "id": "any", "steps": [_ANY_NODE]}}
            case "codec":
                return super().resolve(f"codec:{self.names('codec')[0]}")
            case "schema":
                return {}
            case "fn" if name:
                return _anything
        return super().resolve(ref, args)


_ANY_NODE: Final = {"kind": "llm", "id": "any", "instructions": "Anything."}


def _anything(*args: Any, **kwargs: Any) -> None:
    """Do nothing: replaces any function in a document that is only checked."""


@lru_cache(maxsize=1)
def _any_tool() -> Tool:
    return make_tool(lambda: None, name="any")
