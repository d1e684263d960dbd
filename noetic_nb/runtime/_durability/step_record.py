"""The tree of the records of a turn: one node for each step.

A node is found by the frames of its path, ``/think#1/ask#2``. Everything recorded inside a step is the subtree below its
node: once the end of the step is in storage the whole subtree is dropped, because a step with a recorded end is never
entered again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_NONE: Final[Mapping[int, Mapping[str, Any]]] = {}


class StepRecord:
    """The record of one step, and of everything inside it; its path is empty for the root of a turn."""

    # Of most steps nothing but these is ever set.
    execution: object | None = None
    """The record of the execution it runs in; None until this process runs it."""
    entry: Mapping[str, Any] | None = None
    """Its end, as a process that has ended recorded it."""
    failures: Mapping[int, Mapping[str, Any]] = _NONE
    """For a loop: the failed iterations such a process dealt with, by number."""
    is_open_llm = False
    """Whether it is an llm step that is under way, or has failed."""
    ends_at_once = False
    """Whether it ends as soon as a step in it has, or goes on with another: nothing of the user's comes between."""
    text: str | None = None
    """The model's text its output was read from."""

    def __init__(self, parent: StepRecord | None = None, frame: str = "") -> None:
        self.parent = parent
        self.frame = frame
        self.path: str = "" if parent is None else f"{parent.path}/{frame}"
        self.below: dict[str, StepRecord] = {}

    def clear(self) -> None:
        """Forget the record of the step and of all inside it."""
        self.below, self.entry, self.failures = {}, None, _NONE

    def take_apart(self) -> None:
        """Part all steps from those inside them: they know one another, which nobody but the garbage collector would undo."""
        waiting = [self]
        while waiting:
            step = waiting.pop()
            if step.below:
                waiting += step.below.values()
                step.below = {}

    def drop(self) -> None:
        """Take the step, and with it all inside it, out of the tree."""
        if self.parent is not None and self.parent.below.get(self.frame) is self:
            del self.parent.below[self.frame]

    def at(self, frames: Iterable[str]) -> StepRecord:
        """Return the step at the end of a path that begins here, made where there is none."""
        step = self
        for frame in frames:
            found = step.below.get(frame)
            if found is None:
                found = step.below[frame] = StepRecord(step, frame)
            step = found
        return step

    def at_path(self, path: str) -> StepRecord:
        """Return the step at a path as it is stored; call this on the root of a turn."""
        return self.at(path.split("/")[1:])

    def subtree(self) -> Iterator[StepRecord]:
        """Yield the step and all inside it."""
        waiting = [self]
        while waiting:
            step = waiting.pop()
            yield step
            waiting.extend(step.below.values())

    def around(self) -> Iterator[StepRecord]:
        """Yield the steps around this one, innermost first."""
        step = self.parent
        while step is not None:
            yield step
            step = step.parent

    def has_entry_inside(self) -> bool:
        """Tell whether the end of anything inside the step was recorded by a process that has ended."""
        return any(step is not self and (step.entry is not None or step.failures) for step in self.subtree())

    def __repr__(self) -> str:
        return f"StepRecord({self.path!r})"
