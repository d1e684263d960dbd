"""Names that a package no longer offers say where they are found; a package is itself in another process."""

from __future__ import annotations

import pickle
from importlib import import_module
from typing import Any

import cloudpickle
import pytest

import noetic_nb as nn
import noetic_nb.regulator
from noetic_nb.moved import MOVED

NAMES = [
    (package, name, where)
    for package, names in {**MOVED, "noetic_nb.regulator": noetic_nb.regulator._MOVED}.items()
    for name, where in names.items()
]


@pytest.mark.parametrize(("package", "name", "where"), NAMES)
def test_a_moved_name_says_where_it_is_and_is_there(package: str, name: str, where: str) -> None:
    with pytest.raises(ImportError, match=where.replace(".", r"\.")):
        getattr(import_module(package), name)

    home, _, last = where.rpartition(".")
    assert getattr(import_module(home), last) is not None


@pytest.mark.parametrize("package", sorted({package for package, _, _ in NAMES}))
def test_a_name_that_never_was_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing_of_the_sort'"):
        _ = import_module(package).nothing_of_the_sort


@pytest.mark.parametrize("package", [nn, nn.steering, nn.memory], ids=["noetic_nb", "steering", "memory"])
def test_a_function_that_uses_the_package_can_be_sent_to_another_process(package: Any) -> None:
    assert pickle.loads(pickle.dumps(package)) is package
    assert cloudpickle.loads(cloudpickle.dumps(lambda: package))() is package
