"""Every column of every table has a sentence on the site, and no sentence is left of one that is gone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import joblib
import pytest

from noetic_nb import lab, widgets
from tests.docs.site_modules import site_module

frames = site_module("frames")


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    made: dict[str, Any] = {}
    exec(frames.SET_UP, made)
    return made


@pytest.fixture(scope="module")
def columns_of(names: dict[str, Any]) -> Callable[[str], list[str]]:
    @cache
    def columns(code: str) -> list[str]:
        with joblib.parallel_config("threading"):  # a sweep makes the same table whatever works on it
            return list(eval(code, names).columns)

    return columns


@pytest.mark.parametrize("name", frames.TABLES)
def test_every_column_is_explained(name: str, columns_of: Callable[[str], list[str]]) -> None:
    table = frames.TABLES[name]
    page = frames.frames_page()
    columns = columns_of(table.code)

    assert sorted(table.sentences) == sorted(columns)
    assert all(table.sentences.values())
    assert "…" not in "".join(table.sentences.values()), "name every value"
    assert all(f"`{column}`" in page for column in columns)


def test_every_table_of_a_run_is_here() -> None:
    from noetic_nb.runs._tables import TABLES

    asked = " ".join(table.code for table in frames.TABLES.values())
    assert [name for name in TABLES if f'to_frame("{name}")' not in asked] == []


# They return what another table is made of: the rows or the columns are those of one that is here.
OF_OTHERS = {"pareto": "`lab.pareto` returns the rows", "what_if_cached": "`lab.what_if_cached` returns the same table"}


def test_every_function_of_the_lab_that_makes_a_table_is_here() -> None:
    asked, page = " ".join(table.code for table in frames.TABLES.values()), frames.frames_page()
    functions = [name for name in lab.__all__ if inspect.isfunction(getattr(lab, name))]
    makers = [name for name in functions if "DataFrame" in str(inspect.signature(getattr(lab, name)).return_annotation)]

    assert set(OF_OTHERS) <= set(makers)
    assert [name for name in makers if f"lab.{name}(" not in asked and OF_OTHERS.get(name, "no") not in page] == []


def test_every_view_shows_a_table_that_is_here(names: dict[str, Any], columns_of: Callable[[str], list[str]]) -> None:
    known = [columns_of(table.code) for table in frames.TABLES.values()]
    run, rules = names["run"], names["rules"]
    views = [getattr(widgets, name) for name in widgets.__all__ if hasattr(getattr(widgets, name), "to_frame")]

    assert len(views) > 5
    for view in views:
        given = {widgets.Compare: (run, run), widgets.RuleEditor: (rules,)}.get(view, (run,))
        with view(*given) as shown:
            assert list(shown.to_frame().columns) in known, view.__name__
