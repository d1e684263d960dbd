"""The bundle of a run, as data that stays with it: the configuration, the rules as they are now, and notes.

Code is only named: a function, a tool and a layer of your own are references, bound again by whoever loads them. The text of a
Python rule is kept beside its name, to be read.
"""

from __future__ import annotations

from typing import Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import thaw
from noetic_nb.items._frozen import frozen_data
from noetic_nb.memory import MemoryLayer
from noetic_nb.steps import Registry, Tool


class _Names(Registry):
    """A registry that names everything, whether or not it was registered: a bundle is never refused for a function."""

    # Any: what a configuration refers to is whatever its user brought.
    def reference(self, thing: Any, where: str) -> dict[str, Any]:
        try:
            return super().reference(thing, where)
        except NoeticConfigError:
            if isinstance(thing, Tool):
                return {"$ref": f"tool:{thing.name}"}
            if isinstance(thing, MemoryLayer):
                return {"$ref": f"layer:{thing.id}"}
            return {"$ref": f"fn:{getattr(thing, '__name__', type(thing).__name__)}"}

    def codec_reference(self, output: Any, where: str) -> dict[str, Any]:
        try:
            return super().codec_reference(output, where)
        except NoeticConfigError:
            return {"$ref": f"codec:{type(output.codec).__name__}"}


def bundle_of(config: Any, described: Any, notes: str) -> dict[str, Any]:
    """Return the entry of `Run.bundle` for a configuration; `described` stands in where it cannot be written."""
    from noetic_nb.runtime import AgentConfig, dump_config  # most runs are read without an agent

    if not isinstance(config, AgentConfig):
        return {"config": described, "rules": None, "sources": {}, "notes": notes}
    try:
        data = dump_config(config, _Names())
    except (NoeticConfigError, TypeError, ValueError):
        data = described
    rules, sources = _rules(config.memory)
    return {"config": thaw(frozen_data(data)), "rules": rules, "sources": sources, "notes": notes}


def _rules(layers: Any) -> tuple[dict[str, Any] | None, dict[str, str]]:
    from noetic_nb.steering._layer import rulebook_of
    from noetic_nb.steering._rules.file_schema import RuleFile

    books = [book for layer in layers if (book := rulebook_of(layer)) is not None]
    if not books:
        return None, {}
    rules = tuple(rule for book in books for rule in book)
    return RuleFile.data_of(rules), {rule.id: rule.source for rule in rules if rule.source is not None}
