"""The tools of one llm step: found by the name the model uses, canonical or as it travels on the wire."""

from __future__ import annotations

from collections.abc import Iterable

from noetic_nb.errors import NoeticConfigError
from noetic_nb.models.client import ToolSpec
from noetic_nb.steps import Tool, wire_name

__all__ = ["ToolSet"]


class ToolSet:
    """An immutable set of tools with distinct names on the wire.

    Raises
    ------
    NoeticConfigError
        ``TOOL_NAME_COLLISION`` where two different tools would look alike to a provider.
    """

    __slots__ = ("_by_name", "specs", "tokens", "tools")

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._by_name: dict[str, Tool] = {}
        kept: list[Tool] = []
        for tool in tools:
            known = self._by_name.get(wire_name(tool.name))
            if known is tool:
                continue
            if known is not None and known.name != tool.name:
                raise NoeticConfigError(
                    "TOOL_NAME_COLLISION",
                    f"The tools {known.name!r} and {tool.name!r} have the same name on the wire.",
                    given=wire_name(tool.name),
                    hint="Rename one of them.",
                )
            if known is not None:
                continue  # the first of a name wins
            self._by_name[wire_name(tool.name)] = tool
            self._by_name[tool.name] = tool
            kept.append(tool)
        self.tools = tuple(kept)
        self.specs: tuple[ToolSpec, ...] = tuple([tool.spec for tool in kept])
        self.tokens = sum(tool.tokens for tool in kept)

    def find(self, name: object) -> Tool | None:
        """Return the tool of a name in either form, None where there is none."""
        return self._by_name.get(name) if isinstance(name, str) else None
