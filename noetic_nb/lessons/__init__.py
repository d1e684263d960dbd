"""Exercises of the lessons: checks that a notebook calls, and a grading table for teachers."""

from noetic_nb.lessons._exercise import Exercise, Verdict
from noetic_nb.lessons._grading import EXERCISES, check, grade

__all__ = ["EXERCISES", "Exercise", "Verdict", "check", "grade"]


def __dir__() -> list[str]:
    return sorted(__all__)
