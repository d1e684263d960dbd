"""An exercise, and the verdict on an answer."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

PAGE: Final = 88
"""The line width, in characters, that a page of 900 pixels shows whole, as for code in the lessons."""


@dataclass(frozen=True, slots=True)
class Exercise:
    """One exercise of a lesson.

    Parameters
    ----------
    id : str
        Lesson and number, such as ``"3.1"``.
    answer : str
        The name of the answer in the notebook, by which classes are graded.
    examine : callable
        Takes the answer and returns its fault in one or two sentences, or None if it is right. It tries cases that the
        notebook does not show, and may be async.
    hints : tuple of str
        One more is shown with each wrong attempt, from the second on.

    Examples
    --------
    >>> Exercise("0.1", "two", lambda value: None if value == 2 else "It is not 2.", ("One and one.",)).answer
    'two'
    """

    id: str
    answer: str
    examine: Callable[[Any], Any]
    hints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of `check` on an answer; true if it is right.

    Parameters
    ----------
    exercise : str
        Its id.
    is_right : bool
        Whether every case gave the right result.
    why : str
        The fault, or empty if there is none.
    hints : tuple of str
        Those shown so far.

    Examples
    --------
    >>> Verdict("0.1", False, "It is not 2.", ("One and one.",))
    0.1: not yet. It is not 2.
      Hint: One and one.
    >>> bool(Verdict("0.1", True))
    True
    """

    exercise: str
    is_right: bool
    why: str = ""
    hints: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.is_right

    def __repr__(self) -> str:
        if self.is_right:
            return f"{self.exercise}: right."
        lines = [f"{self.exercise}: not yet. {self.why}", *[f"  Hint: {hint}" for hint in self.hints]]
        return "\n".join(textwrap.fill(line, PAGE, subsequent_indent="    ") for line in lines)
