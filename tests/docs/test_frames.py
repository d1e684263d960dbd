"""Every column of every table has a sentence on the site, and no sentence is left of one that is gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.docs.site_modules import site_module

frames = site_module("frames")


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    made: dict[str, Any] = {}
    exec(frames.SET_UP, made)
    return made


@pytest.mark.parametrize("name", frames.TABLES)
def test_every_column_is_explained(name: str, names: dict[str, Any]) -> None:
    table = frames.TABLES[name]
    page = frames.frames_page()
    columns = list(eval(table.code, names).columns)

    assert sorted(table.sentences) == sorted(columns)
    assert all(table.sentences.values())
    assert all(f"`{column}`" in page for column in columns)


def test_every_table_of_a_run_is_here() -> None:
    from noetic_nb.runs.tables import TABLES

    asked = " ".join(table.code for table in frames.TABLES.values())
    assert [name for name in TABLES if f'to_frame("{name}")' not in asked] == []
