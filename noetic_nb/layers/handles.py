"""The types of built-in layers' handles: ``ctx.memory[notes].update(...)`` is completed and checked by editors.

Data is an attribute, copied on each access. A function is an async method that obeys the same rules as a model's call.
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
    """The handle of a layer that provides nothing to code."""


class WorkingMemoryHandle(Protocol):
    """The handle of `working_memory`."""

    @property
    def snapshot(self) -> Any:
        """The notes."""

    async def update(self, changes: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Merge changes into the notes; read-only layers do not have this function."""


class TaskStateHandle(Protocol):
    """The handle of `durable_task_state`."""

    @property
    def files(self) -> tuple[str, ...]:
        """Paths that the task made or changed."""

    @property
    def task_data(self) -> dict[str, Any]:
        """Values kept for later steps."""

    async def record_artifact(self, *, path: str) -> str:
        """Record a file that the task made or changed."""

    async def set_task_data(self, *, key: str, value: Any) -> str:
        """Keep a value for later steps."""


class EntityHandle(Protocol):
    """The handle of `entity_memory`."""

    @property
    def entities(self) -> dict[str, Any]:
        """Facts by the name of their entity."""

    @property
    def superseded(self) -> dict[str, Any]:
        """Replaced facts, with the time and the new fact, by name."""

    async def remember(self, *, name: str, fact: str, about: str | None = None) -> None:
        """Remember a fact."""

    async def forget(self, *, name: str) -> str:
        """Forget all facts about one name."""


class ExternalHandle(Protocol):
    """The handle of `external_memory`; stores with ``update`` and ``delete`` have these as well."""

    async def search(self, *, query: str) -> list[str]:
        """Search the memory."""


class FilesHandle(Protocol):
    """The handle of `file_reference`."""

    @property
    def files(self) -> Any:
        """The referenced files."""


class NotesHandle(Protocol):
    """The handle of `file_memory`."""

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
        """Insert new lines after a line, 0 for the beginning."""

    async def delete(self, *, path: str) -> str:
        """Delete a file, or a folder with its contents."""

    async def rename(self, *, path: str, new_path: str) -> str:
        """Rename or move a file or a folder."""


class PlanHandle(Protocol):
    """The handle of `plan_memory`."""

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
        """Execute the plan, or drop it."""


class ProceduresHandle(Protocol):
    """The handle of `procedural_memory`."""

    @property
    def procedures(self) -> Any:
        """The learned procedures."""

    async def learn(self, *, name: str, when: str, steps: Sequence[str]) -> str:
        """Store a procedure."""

    async def unlearn(self, *, name: str) -> str:
        """Forget a procedure."""


class ResultsHandle(Protocol):
    """The handle of `tool_result_clearing`."""

    async def read_result(self, *, number: int, offset: int = 0) -> str:
        """Read a cleared result again."""


class SemanticHandle(Protocol):
    """The handle of `semantic_recall` and `hybrid_recall`."""

    @property
    def count(self) -> int:
        """The number of indexed messages."""

    async def search(self, *, query: str) -> list[str]:
        """Return the messages most similar to a query."""


class TemporalHandle(Protocol):
    """The handle of `temporal_memory`."""

    @property
    def facts(self) -> Any:
        """Remembered facts, with the time at which they are valid."""

    async def search_memory(self, *, query: str) -> list[str]:
        """Search the remembered facts."""


class ToolStateHandle(Protocol):
    """The handle of `tool_memory`."""

    @property
    def value(self) -> Any:
        """The state."""

    async def set(self, *, value: Any) -> None:
        """Replace the state."""
