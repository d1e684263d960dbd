"""The handles of built-in layers for code, as types: ``ctx.memory[notes].update(...)`` is completed and checked by editors.

Data is an attribute, a copy at each look; a function is an async method that passes the same rules as a call of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

__all__ = [
    "EntityHandle",
    "ExternalHandle",
    "FilesHandle",
    "NotesHandle",
    "NothingProvided",
    "PlanHandle",
    "ProceduresHandle",
    "ResultsHandle",
    "SemanticHandle",
    "TaskStateHandle",
    "TemporalHandle",
    "ToolStateHandle",
    "WorkingMemoryHandle",
]


class NothingProvided(Protocol):
    """Of a layer that provides nothing to code."""


class WorkingMemoryHandle(Protocol):
    """Of `working_memory`."""

    @property
    def snapshot(self) -> Any:
        """The notes."""

    async def update(self, changes: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Merge changes into the notes; a layer that is read-only has no such function."""


class TaskStateHandle(Protocol):
    """Of `durable_task_state`."""

    @property
    def files(self) -> tuple[str, ...]:
        """Paths that the task made or changed."""

    @property
    def task_data(self) -> dict[str, Any]:
        """Values kept for later steps."""

    async def record_artifact(self, *, path: str) -> str:
        """Note a file that the task made or changed."""

    async def set_task_data(self, *, key: str, value: Any) -> str:
        """Keep a value for later steps."""


class EntityHandle(Protocol):
    """Of `entity_memory`."""

    @property
    def entities(self) -> dict[str, Any]:
        """Facts by the name of their subject."""

    @property
    def superseded(self) -> dict[str, Any]:
        """Facts that others took the place of, with when and by what, by name."""

    async def remember(self, *, name: str, fact: str, about: str | None = None) -> None:
        """Remember a fact."""

    async def forget(self, *, name: str) -> str:
        """Forget all that is known of one name."""


class ExternalHandle(Protocol):
    """Of `external_memory`; stores with ``update`` and ``delete`` have these as well."""

    async def search(self, *, query: str) -> list[str]:
        """Search the memory."""


class FilesHandle(Protocol):
    """Of `file_reference`."""

    @property
    def files(self) -> Any:
        """The files that are referred to."""


class NotesHandle(Protocol):
    """Of `file_memory`."""

    @property
    def files(self) -> dict[str, str]:
        """The text of each file by its path."""

    async def view(self, *, path: str = "", first: int = 1, last: int | None = None) -> str:
        """Show a file with its line numbers, or list a folder."""

    async def create(self, *, path: str, text: str) -> str:
        """Make a new file."""

    async def replace(self, *, path: str, old: str, new: str) -> str:
        """Replace a piece of text that occurs once."""

    async def insert(self, *, path: str, line: int, text: str) -> str:
        """Put new lines behind a line, 0 for the beginning."""

    async def delete(self, *, path: str) -> str:
        """Delete a file, or a folder with all in it."""

    async def rename(self, *, path: str, new_path: str) -> str:
        """Rename or move a file or a folder."""


class PlanHandle(Protocol):
    """Of `plan_memory`."""

    @property
    def status(self) -> dict[str, Any]:
        """Phase, version, and the plan so far."""

    async def enter_plan_mode(self, *, goal: str | None = None) -> str:
        """Begin to make a plan before acting."""

    async def update_prd(self, *, content: str) -> str:
        """Write the requirements document."""

    async def set_plan_tree(self, *, document: dict[str, Any] | str) -> str:
        """Set the plan itself."""

    async def set_workflow(self, *, name: str, document: dict[str, Any] | str) -> str:
        """Add or replace a named part of the plan."""

    async def remove_workflow(self, *, name: str) -> str:
        """Remove a named part."""

    async def get_workflow(self, *, name: str) -> str:
        """Return a named part as JSON text."""

    async def exit_plan_mode(self, *, action: Literal["execute", "cancel"]) -> str:
        """Carry the plan out, or drop it."""


class ProceduresHandle(Protocol):
    """Of `procedural_memory`."""

    @property
    def procedures(self) -> Any:
        """The learned procedures."""

    async def learn(self, *, name: str, when: str, steps: Sequence[str]) -> str:
        """Keep how something is done."""

    async def unlearn(self, *, name: str) -> str:
        """Forget a procedure."""


class ResultsHandle(Protocol):
    """Of `tool_result_clearing`."""

    async def read_result(self, *, number: int, offset: int = 0) -> str:
        """Read a cleared result again."""


class SemanticHandle(Protocol):
    """Of `semantic_recall` and `hybrid_recall`."""

    @property
    def count(self) -> int:
        """How many messages are indexed."""

    async def search(self, *, query: str) -> list[str]:
        """Return the messages nearest to a query."""


class TemporalHandle(Protocol):
    """Of `temporal_memory`."""

    @property
    def facts(self) -> Any:
        """Remembered facts, with the time they hold at."""

    async def search_memory(self, *, query: str) -> list[str]:
        """Look for remembered facts."""


class ToolStateHandle(Protocol):
    """Of `tool_memory`."""

    @property
    def value(self) -> Any:
        """The state."""

    async def set(self, *, value: Any) -> None:
        """Replace the state."""
