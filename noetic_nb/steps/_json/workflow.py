"""Workflow documents, version 1: agents as plain JSON trees that models and people write, made into steps.

Text flows from node to node. Nothing in a document is executed: a `run` node names a registered function, never holds code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from noetic_nb.memory._layer import MemoryHooks, MemoryLayer
from noetic_nb.steps._function_tools import make_tool
from noetic_nb.steps._json.registry import Registry
from noetic_nb.steps._json.workflow_loader import VERSION, Loader, invalid
from noetic_nb.steps._records import Step
from noetic_nb.steps._tools import Tool

# For nodes that name no model; docs/behaviour/steps.md, "Workflow documents".
DEFAULT_MODEL: Final = "openai/gpt-4o"


def load_workflow(
    document: Mapping[str, Any] | str,
    registry: Registry | None = None,
    *,
    default_model: str = DEFAULT_MODEL,
    strict: bool = True,
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
    strict : bool, default True
        Whether a key that nobody reads is an error, as it is for a document that was just written. False reads one that was
        saved when such keys were passed over; ``harness.check()`` lists them then.

    Raises
    ------
    NoeticConfigError
        ``INVALID_WORKFLOW_SOURCE``, ``WORKFLOW_VALIDATION_FAILED``, ``UNKNOWN_NODE_KIND``, ``UNKNOWN_TOOL_REFERENCE``,
        ``UNKNOWN_UNTIL_PREDICATE``, ``WORKFLOW_CYCLE``, ... each naming the node.

    References
    ----------
    .. [1] docs/behaviour/steps.md, "Workflow documents".

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
    """Check a document as `load_workflow` does, with its errors, but for its references, which may be anything."""
    try:
        Loader(_Anything(), DEFAULT_MODEL, strict=True).document(document, "", ())
    except RecursionError:
        raise invalid("Something in the document is nested too deep.") from None


class _Anything(Registry):
    """Knows everything by every name: for a document that is checked by itself."""

    def resolve(self, ref: str, args: Mapping[str, Any] | None = None) -> Any:
        """Return something of the kind that a reference names."""
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
    """Stand for any function of a document that is only checked."""


@lru_cache(maxsize=1)
def _any_tool() -> Tool:
    return make_tool(lambda: None, name="any")
