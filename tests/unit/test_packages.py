"""Packages whose names are loaded late: an unknown name is an error, and a package is itself in another process."""

from __future__ import annotations

import pickle
from importlib import import_module
from typing import Any

import cloudpickle
import pytest

import noetic_nb as nn

PACKAGES = [
    "noetic_nb",
    *(f"noetic_nb.{name}" for name in ("items", "memory", "regulator", "runs", "steering", "layers")),
]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_never_was_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing_of_the_sort'"):
        _ = import_module(package).nothing_of_the_sort


@pytest.mark.parametrize("package", [nn, nn.steering, nn.memory], ids=["noetic_nb", "steering", "memory"])
def test_a_function_that_uses_the_package_can_be_sent_to_another_process(package: Any) -> None:
    assert pickle.loads(pickle.dumps(package)) is package
    assert cloudpickle.loads(cloudpickle.dumps(lambda: package))() is package
