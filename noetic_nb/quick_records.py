"""Records that are declared and made quickly: an import declares a hundred, an imported run makes tens of thousands.

`dataclasses` writes and compiles the source of six methods for each class, most of which a short session never calls. Here they
are made when they are first looked at. All else is as there: fields, signature, comparison, copies, pickles, patterns.
`typing` compiles the annotation of each field of a named tuple; here they stay text.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass  # so that type checkers know what it is
    from typing import NamedTuple
else:

    class _Declared(type):
        """Makes a named tuple of a class of fields."""

        def __new__(mcs, name, bases, given):
            if not bases:
                return super().__new__(mcs, name, bases, given)
            kinds = given.pop("__annotations__", {})
            with_default = [field for field in kinds if field in given]
            if with_default != [*kinds][len(kinds) - len(with_default) :]:
                raise TypeError(f"{name}: a field without a default follows one that has it")
            defaults = [given.pop(field) for field in with_default]
            made = namedtuple(name, kinds, defaults=defaults, module=given.pop("__module__"))
            made.__annotations__ = made.__new__.__annotations__ = kinds
            for key, value in given.items():
                if key in _OWN:
                    raise AttributeError(f"{name}: a named tuple has a {key!r} of its own")
                setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Declared):
        """Do what `typing.NamedTuple` does, in a third of the time, for a class that has no other base.

        Examples
        --------
        >>> class Point(NamedTuple):
        ...     x: float
        ...     y: float = 0.0
        >>> Point(1.0)._replace(y=2.0)
        Point(x=1.0, y=2.0)
        """

    def dataclass(cls=None, /, **options):
        """Do what `dataclasses.dataclass` does, in a tenth of the time; a frozen record is made in little more than half.

        Parameters
        ----------
        cls : type
            The class to decorate.
        **options
            As there.

        Examples
        --------
        >>> @dataclass(frozen=True, slots=True)
        ... class Point:
        ...     x: float
        ...     y: float = 0.0
        >>> Point(1.0)
        Point(x=1.0, y=0.0)
        >>> dataclasses.replace(Point(1.0), y=2.0) == Point(1.0, 2.0)
        True
        """

        def decorate(cls):
            return _declared(cls, **options)

        return decorate if cls is None else decorate(cls)


# What a named tuple is made of.
_OWN = frozenset(
    {"__new__", "__init__", "__slots__", "__getnewargs__", "_fields", "_field_defaults", "_make", "_replace", "_asdict"}
)
_BECOME = vars(object)["__class__"].__set__
# With fewer fields, the change of class and back takes longer than it saves.
_MANY = 5


class _Late:
    """Stands in a class for a method, which is made and takes its place as soon as it is looked at."""

    __slots__ = ("_cls", "_make", "_name")

    def __init__(self, cls: type[Any], name: str, make: Callable[[type[Any]], Any]) -> None:
        self._cls, self._name, self._make = cls, name, make

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        method = self._make(self._cls)
        method.__name__, method.__qualname__ = self._name, f"{self._cls.__qualname__}.{self._name}"
        method.__module__ = self._cls.__module__
        setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)


def _declared(
    cls: type[Any], *, init: bool = True, repr: bool = True, eq: bool = True, frozen: bool = False, **options: Any
) -> type[Any]:
    given: Mapping[str, Any] = dict(vars(cls))
    kinds = getattr(cls, "__annotations__", {})
    if options.get("order") or options.get("unsafe_hash") or any("InitVar" in str(kind) for kind in kinds.values()):
        return dataclasses.dataclass(init=init, repr=repr, eq=eq, frozen=frozen, **options)(cls)
    has_hash = "__hash__" in given and not (given["__hash__"] is None and "__eq__" in given)
    # It minds whether those above are frozen.
    is_child = any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and is_child, **options)(cls)
    params = made.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = init, repr, eq, frozen
    late = {"__init__": (init, _init_of), "__repr__": (repr, _repr_of), "__eq__": (eq, _eq_of)}
    for name, (is_wanted, make) in late.items():
        if is_wanted and name not in given:
            setattr(made, name, _Late(made, name, make))
    if eq and not has_hash:
        made.__hash__ = _Late(made, "__hash__", _hash_of) if frozen else None
    if frozen and not is_child:
        _freeze(made, given, has_slots=bool(options.get("slots")))
    if not given.get("__doc__"):
        import inspect  # for those without a docstring only

        made.__doc__ = made.__name__ + str(inspect.signature(made)).replace(" -> None", "")
    return made  # type: ignore[no-any-return]


def _init_of(cls: type[Any]) -> Any:
    """Return ``__init__``: a frozen one writes to the slot itself, or into the ``__dict__`` of a record without slots.

    The one of `dataclasses` looks up each field by its name, through ``object.__setattr__``.
    """
    is_frozen, has_slots = cls.__dataclass_params__.frozen, "__slots__" in vars(cls)
    plain: list[str] = []
    scope: dict[str, Any] = {"_factory": _FACTORY}
    by_place: list[str] = []
    by_name: list[str] = []
    lines: list[str] = []
    annotations: dict[str, Any] = {}
    if is_frozen and not has_slots:
        lines.append("facts = self.__dict__")
    for field in dataclasses.fields(cls):
        name = value = field.name
        scope[f"_default_{name}"] = field.default
        if field.default_factory is not MISSING:
            scope[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}() if {name} is _factory else {name}" if field.init else f"_make_{name}()"
        elif not field.init:
            if field.default is MISSING or not has_slots:  # set by whoever declared it, or found on the class
                continue
            value = f"_default_{name}"
        if field.init:
            default = "_factory" if field.default_factory is not MISSING else f"_default_{name}"
            is_required = field.default is MISSING and field.default_factory is MISSING
            (by_name if field.kw_only else by_place).append(name if is_required else f"{name}={default}")
            annotations[name] = field.type
        if not is_frozen:
            lines.append(f"self.{name} = {value}")
        elif has_slots:
            slot = getattr(cls, name)
            scope[f"_set_{name}"] = slot.fset if isinstance(slot, property) else slot.__set__
            lines.append(f"_set_{name}(self, {value})")
            plain.append(f"self.{name} = {value}")
        else:
            lines.append(f"facts[{name!r}] = {value}")
    if len(plain) >= _MANY and cls.__mro__ == (cls, object) and len(plain) == len(cls.__slots__):
        # An assignment to a slot takes a fifth of a call that writes it, so many are written while it is of an open class.
        scope.update(_cls=cls, _open=type(cls.__name__, (), {"__slots__": cls.__slots__}), _become=_BECOME)
        quick = ["_become(self, _open)", *plain, "_become(self, _cls)"]
        lines = ["if self.__class__ is _cls:", *_indented(quick), "else:", *_indented(lines)]
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *by_place, *(["*", *by_name] if by_name else [])])
    body = "".join([f"  {line}\n" for line in lines or ["pass"]])
    source = f"def make({', '.join(scope)}):\n def __init__({parameters}):\n{body} return __init__"
    found: dict[str, Any] = {}
    # In the module of the class, where its annotations are read.
    exec(source, vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}, found)
    method = found["make"](**scope)
    method.__annotations__ = {**annotations, "return": None}
    return method


def _indented(lines: list[str]) -> list[str]:
    return [f" {line}" for line in lines]


class _Factory:
    """Shown in signatures as the default of a field that is made anew for each record."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _repr_of(cls: type[Any]) -> Any:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    @recursive_repr()
    def method(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return method


def _values_of(names: list[str]) -> Callable[[Any], Any]:
    """Return what returns the values of some fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _eq_of(cls: type[Any]) -> Any:
    values = _values_of([field.name for field in dataclasses.fields(cls) if field.compare])

    def method(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return method


def _hash_of(cls: type[Any]) -> Any:
    fields = dataclasses.fields(cls)
    values = _values_of([each.name for each in fields if (each.compare if each.hash is None else each.hash)])

    def method(self: Any) -> int:
        return hash(values(self))

    return method


def _freeze(cls: Any, given: Mapping[str, Any], *, has_slots: bool) -> None:
    """Refuse changes of the fields, and of all else on records of the very class."""
    names = frozenset([field.name for field in dataclasses.fields(cls)])

    def refuse_set(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = refuse_set, refuse_delete
    if has_slots:
        cls.__getstate__ = given.get("__getstate__", _state)
        cls.__setstate__ = given.get("__setstate__", _set_state)


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
