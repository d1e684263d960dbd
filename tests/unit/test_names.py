"""Names: those that look alike, those that were meant, and those of functions, packages and paths."""

from __future__ import annotations

import inspect
import os
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from noetic_nb._core.arguments import closest
from noetic_nb._core.atomic_write import file_name, regular_file
from noetic_nb._core.filesystem import checked_path
from noetic_nb._core.names import function_name, nearest, skeleton
from noetic_nb._core.record_type import RecordType
from noetic_nb.runs._run import version_of


@pytest.mark.parametrize(
    ("name", "seen"), [("plan/update", "plan_update"), ("p\u0430y", "pay"), (" Pay\u200b", "pay"), ("pay", "pay")]
)
def test_names_that_look_the_same_have_one_skeleton(name: str, seen: str) -> None:
    assert skeleton(name) == seen


def test_only_a_name_that_is_near_was_meant() -> None:
    assert (nearest("guidence", ["guidance", "action"]), nearest("zzz", ["guidance"])) == ("guidance", None)
    assert closest("serach", ["search", "pay"]) == "Did you mean 'search'?"
    assert closest("refund", ["search"]) == ""


def test_a_partial_has_the_name_of_the_function_inside() -> None:
    assert function_name(partial(partial(int), base=2)) == "int"


def test_a_package_that_is_not_installed_is_of_the_source() -> None:
    assert version_of("no-such-package") == "source"


def test_a_path_below_a_root_is_joined() -> None:
    assert checked_path("./notes//today.md") == "notes/today.md"


def test_a_name_with_nul_and_a_device_are_no_files() -> None:
    with pytest.raises(OSError, match="this is not a valid file name"):
        file_name("a\0")
    with pytest.raises(OSError, match="it is not a regular file"):
        regular_file(os.devnull)


def test_the_signature_of_a_record_lists_its_fields() -> None:
    class Point(BaseModel, metaclass=RecordType):
        x: int
        y: int = 0

        def __init__(self, **data: Any) -> None:
            super().__init__(**data)

    assert str(inspect.signature(Point)) == "(*, x: 'int', y: 'int' = 0)"
