"""Records that are made quickly are frozen dataclasses like any other."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, get_args

import pytest

from noetic_nb.events import RunEvent, Where
from noetic_nb.quick_records import made_quickly


@dataclass(frozen=True, slots=True)
class Plain:
    name: str
    size: int = 3
    tags: list[str] = field(default_factory=list)


@made_quickly
@dataclass(frozen=True, slots=True)
class Quick:
    name: str
    size: int = 3
    tags: list[str] = field(default_factory=list)


@made_quickly
@dataclass(frozen=True, slots=True)
class Longer(Quick):
    more: str = ""


@dataclass(frozen=True)
class PlainOpen:
    name: str
    size: int = 3
    tags: list[str] = field(default_factory=list)


@made_quickly
@dataclass(frozen=True)
class QuickOpen:
    """Without slots."""

    name: str
    size: int = 3
    tags: list[str] = field(default_factory=list)


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 1), {}),
    (("a",), {"tags": ["x"]}),
    ((), {"size": 1, "name": "a"}),
    ((), {}),
    (("a", 1, [], 4), {}),
    (("a",), {"other": 1}),
    (("a",), {"name": "b"}),
]


def made(cls: Any, args: tuple[Any, ...], named: dict[str, Any]) -> str:
    try:
        return repr(cls(*args, **named)).replace("Quick", "Plain")
    except TypeError as error:
        return str(error).replace("Quick", "Plain")


@pytest.mark.parametrize(("args", "named"), CALLS)
def test_it_takes_what_the_dataclass_takes(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    assert made(Quick, args, named) == made(Plain, args, named)
    assert made(QuickOpen, args, named) == made(PlainOpen, args, named)


@pytest.mark.parametrize("kind", [Quick, QuickOpen])
def test_it_cannot_change_and_is_compared_copied_and_kept(kind: type[Any]) -> None:
    quick = kind("a", tags=["x"])

    assert quick == kind("a", 3, ["x"]) == copy.deepcopy(quick) == pickle.loads(pickle.dumps(quick))
    assert replace(quick, size=5) == kind("a", 5, ["x"])
    with pytest.raises(FrozenInstanceError):
        quick.size = 4


def test_each_has_defaults_of_its_own_and_a_child_class_its_fields() -> None:
    assert Quick("a").tags is not Quick("a").tags
    assert Longer("a", more="b") == Longer("a", 3, [], "b")


@pytest.mark.parametrize("cls", [Where, *get_args(RunEvent)], ids=lambda cls: cls.__name__)
def test_events_show_the_signature_of_their_fields(cls: type[Any]) -> None:
    assert list(inspect.signature(cls).parameters) == [each.name for each in fields(cls)]
