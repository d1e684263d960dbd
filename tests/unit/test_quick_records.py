"""Records whose methods are made late are dataclasses like any other."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from dataclasses import FrozenInstanceError, InitVar, field, fields, replace
from functools import cached_property, partial
from typing import Any, ClassVar, get_args, get_type_hints

import pytest

from noetic_nb import quick_records
from noetic_nb.events import RunEvent, Where
from noetic_nb.quick_records import dataclass

KEY = "x" * 3


def declare(decorator: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Return a class and one derived from it, as a decorator makes them."""

    @decorator(**options)
    class Thing:
        """A thing."""

        kind: ClassVar[str] = "thing"
        name: str
        size: int = 3
        tags: list[str] = field(default_factory=list)
        secret: str = field(default="s", repr=False, compare=False)
        place: int = field(default=0, kw_only=True)
        found: list[int] = field(default_factory=list, init=False, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "name", self.name.upper())

    @decorator(**options)
    class Longer(Thing):
        more: str = KEY

    return Thing, Longer


OPTIONS: list[dict[str, Any]] = [
    {"frozen": True, "slots": True},
    {"slots": True},
    {"slots": True, "eq": False},
    {"slots": True, "repr": False, "eq": False},
    {"frozen": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True, "slots": True, "weakref_slot": True},
    {"frozen": True, "slots": True, "match_args": False},
    {},
    {"order": True},
    {"unsafe_hash": True},
]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 1), {}),
    (("a",), {"tags": ["x"], "place": 2}),
    ((), {"size": 1, "name": "a", "secret": "t"}),
    ((), {}),
    (("a", 1, [], "s", 4, 5, 6), {}),
    (("a",), {"other": 1}),
    (("a",), {"name": "b"}),
    (("a",), {"found": []}),
]


def outcome(make: Any) -> Any:
    try:
        return make()
    except Exception as error:
        return type(error), str(error)


def said(make: Any) -> Any:
    """Return what something is as text, but for where it is in memory."""
    return str(outcome(lambda: repr(make()))).split(" at 0x")[0]


def same(cls: Any) -> list[bool]:
    one = cls(name="a")
    return [one == cls(name="a"), one == cls(name="a", secret="t"), one == cls(name="b"), one == "A", one != one]


def changed(cls: Any, change: Any) -> Any:
    thing = cls(name="a")
    return outcome(lambda: change(thing)), said(lambda: thing)


CHANGES: list[Any] = [
    lambda thing: setattr(thing, "size", 4),
    lambda thing: delattr(thing, "size"),
    lambda thing: thing.size,
    lambda thing: replace(thing, size=5).size,
    lambda thing: copy.deepcopy(thing).tags,
    dataclasses.asdict,
    lambda thing: thing < thing,
    lambda thing: hash(thing) == hash(replace(thing)),
    lambda thing: thing.found is replace(thing).found,
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("which", [0, 1], ids=["class", "derived class"])
def test_it_is_the_dataclass_in_every_way(options: dict[str, Any], which: int) -> None:
    quick, plain = declare(dataclass, options)[which], declare(dataclasses.dataclass, options)[which]

    assert str(inspect.signature(quick)) == str(inspect.signature(plain))
    assert get_type_hints(quick) == get_type_hints(plain)
    assert quick.__init__.__annotations__ == plain.__init__.__annotations__
    assert quick.__doc__ == plain.__doc__
    assert outcome(lambda: quick.__match_args__) == outcome(lambda: plain.__match_args__)
    assert repr(quick.__dataclass_params__) == repr(plain.__dataclass_params__)
    assert [str(each) for each in fields(quick)] == [str(each) for each in fields(plain)]
    assert (quick.__hash__ is None) is (plain.__hash__ is None)
    assert quick.__init__.__qualname__ == plain.__init__.__qualname__
    for args, named in CALLS:
        assert said(partial(quick, *args, **named)) == said(partial(plain, *args, **named))
    assert same(quick) == same(plain)
    for change in CHANGES:
        assert changed(quick, change) == changed(plain, change)


@dataclass(frozen=True, slots=True)
class Point:
    """Where something is."""

    x: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Own:
    """With methods of its own."""

    x: int = 0

    def __repr__(self) -> str:
        return "mine"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


@dataclass(frozen=True)
class Counted:
    """With something that is found out later."""

    x: int

    @cached_property
    def twice(self) -> int:
        return 2 * self.x


@dataclass
class Bare:
    given: InitVar[int]
    kept: int = 0

    def __post_init__(self, given: int) -> None:
        self.kept = given


def test_it_is_kept_compared_hashed_and_taken_apart() -> None:
    point = Point(1.0, ("a",))

    assert pickle.loads(pickle.dumps(point)) == point == copy.copy(point)
    assert {point: 1}[Point(1.0, ("a",))] == 1
    match point:
        case Point(x, names):
            assert (x, names) == (1.0, ("a",))
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'unknown'"):  # `dataclasses` trips over slots
        point.unknown = 2.0  # type: ignore[attr-defined]


def test_methods_of_its_own_stay() -> None:
    assert (repr(Own()), Own(1) == Own(2), hash(Own())) == ("mine", True, 7)
    assert Counted(2).twice == 4
    assert Bare(3).kept == 3
    assert Bare.__doc__ == "Bare(given: 'InitVar[int]', kept: 'int' = 0)"


def test_a_record_that_holds_itself_is_shown() -> None:
    names: list[Any] = []
    point = Point(1.0, names)  # type: ignore[arg-type]
    names.append(point)

    assert repr(point) == "Point(x=1.0, names=[...])"


def test_no_method_is_made_before_it_is_looked_at() -> None:
    @dataclass(frozen=True, slots=True)
    class Unused:
        """Nobody makes one."""

        x: int

    unused = [name for name in ("__init__", "__repr__", "__eq__", "__hash__") if callable(vars(Unused)[name])]
    Unused(1)

    assert unused == []
    assert callable(vars(Unused)["__init__"])


@pytest.mark.parametrize("cls", [Where, *get_args(RunEvent)], ids=lambda cls: cls.__name__)
def test_events_show_the_signature_of_their_fields(cls: type[Any]) -> None:
    assert list(inspect.signature(cls).parameters) == [each.name for each in fields(cls)]


@dataclass(frozen=True, slots=True)
class Many:
    """With as many fields as are written at once."""

    a: int
    b: int
    c: int
    d: int
    e: int = 5


class Derived(Many):
    """Not declared as a dataclass: it has a ``__dict__``."""


@pytest.mark.parametrize("cls", [Many, Derived])
def test_a_record_of_many_fields_is_of_its_class_and_frozen(cls: type[Many]) -> None:
    made = cls(1, 2, 3, d=4)

    assert type(made) is cls
    assert dataclasses.astuple(made) == (1, 2, 3, 4, 5)
    with pytest.raises(FrozenInstanceError):
        made.a = 2  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)


def named(base: Any) -> Any:
    """Return a named tuple as a base makes it."""

    class Place(base):  # type: ignore[misc]
        """A place."""

        row: int
        column: int | None = None
        name: str = KEY

        @property
        def is_named(self) -> bool:
            return self.name != KEY

    return Place


NAMED = [named(typing.NamedTuple), named(quick_records.NamedTuple)]


class Picked(quick_records.NamedTuple):
    first: int
    second: str = "b"


def test_a_named_tuple_is_one_like_any_other() -> None:
    slow, quick = NAMED

    for made in (slow, quick):
        place = made(1, name="here")
        assert (place, repr(place), place.is_named) == (
            (1, None, "here"),
            "Place(row=1, column=None, name='here')",
            True,
        )
        assert place._replace(column=2)._asdict() == {"row": 1, "column": 2, "name": "here"}
        assert copy.deepcopy(place) == place
    for name in ("_fields", "_field_defaults", "__doc__", "__module__", "__qualname__", "__match_args__", "__bases__"):
        assert getattr(quick, name) == getattr(slow, name), name
    shown = [[(each.name, each.default) for each in inspect.signature(made).parameters.values()] for made in NAMED]
    assert shown[0] == shown[1] == [("row", inspect.Parameter.empty), ("column", None), ("name", KEY)]
    assert get_type_hints(quick) == get_type_hints(slow) == {"row": int, "column": int | None, "name": str}
    assert pickle.loads(pickle.dumps(Picked(1))) == Picked(1, "b")


@pytest.mark.parametrize("base", [typing.NamedTuple, quick_records.NamedTuple], ids=["typing", "quick"])
def test_a_named_tuple_that_cannot_be_is_refused(base: Any) -> None:
    with pytest.raises(TypeError, match="default"):
        declare_backwards(base)
    with pytest.raises(AttributeError, match="_replace"):
        declare_overwriting(base)


def declare_backwards(base: Any) -> Any:
    class Place(base):  # type: ignore[misc]
        row: int = 0
        column: int

    return Place


def declare_overwriting(base: Any) -> Any:
    class Place(base):  # type: ignore[misc]
        row: int

        def _replace(self) -> None: ...

    return Place
