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


def test_it_cannot_change_and_is_compared_copied_and_kept() -> None:
    quick = Quick("a", tags=["x"])

    assert quick == Quick("a", 3, ["x"]) == copy.deepcopy(quick) == pickle.loads(pickle.dumps(quick))
    assert replace(quick, size=5) == Quick("a", 5, ["x"])
    with pytest.raises(FrozenInstanceError):
        quick.size = 4  # type: ignore[misc]


def test_each_has_defaults_of_its_own_and_a_child_class_its_fields() -> None:
    assert Quick("a").tags is not Quick("a").tags
    assert Longer("a", more="b") == Longer("a", 3, [], "b")


@pytest.mark.parametrize("cls", [Where, *get_args(RunEvent)], ids=lambda cls: cls.__name__)
def test_events_show_the_signature_of_their_fields(cls: type[Any]) -> None:
    assert list(inspect.signature(cls).parameters) == [each.name for each in fields(cls)]


@dataclass(frozen=True, kw_only=True)
class Named:
    name: str
    size: int = 3
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.upper())


@made_quickly
@dataclass(frozen=True, kw_only=True)
class QuickNamed(Named):
    pass


@pytest.mark.parametrize(("args", "named"), [*CALLS, ((), {"name": "a", "tags": ["x"]})])
def test_without_slots_and_by_name_only_it_takes_what_the_dataclass_takes(
    args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    assert made(QuickNamed, args, named).replace("Plain", "") == made(Named, args, named)


def test_without_slots_it_is_frozen_and_has_fields_of_its_own() -> None:
    one, other = QuickNamed(name="a"), QuickNamed(name="a")

    with pytest.raises(FrozenInstanceError):
        one.size = 4  # type: ignore[misc]
    one.tags.append("x")
    assert (one.name, other.tags, replace(one, size=5).size) == ("A", [], 5)
