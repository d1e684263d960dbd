"""Fields of a record that its schema would take as they are, told without building the schema.

To build the schemas of a first agent takes longer than to run it. What is taken here pydantic would take without changing it;
whatever else is given, a value to convert or one to refuse, is left to it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.types import AllowInfNan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # private to pydantic

__all__ = ["RecordType", "made_quickly"]

_PLAIN: Final = frozenset({int, float, bool, NoneType})
# Read as often as one likes; others that are gone through, an iterator for instance, are spent by the first who does.
_LASTING: Final = (str, list, tuple, dict, BaseModel)
# What a class may be configured to: others may change what a value becomes.
_CONFIG: Final = frozenset(
    {
        "alias_generator", "arbitrary_types_allowed", "defer_build", "extra", "frozen", "validate_by_alias",
        "validate_by_name",
    }
)  # fmt: skip
# Records of a class after which its schema is built all the same: it is quicker for each of them.
_FEW: Final = 32
_INSTANCE_FIELD: Final = re.compile(r"InstanceField\[(\w+)\]")


def made_quickly(record: BaseModel, data: Mapping[str, Any]) -> bool:
    """Let a new record be what its schema would make of some data; False where the schema has to.

    Parameters
    ----------
    record : BaseModel
        One that was just made, still empty.
    data : mapping of str to object
        What is given, by the names of fields.

    Examples
    --------
    >>> from pydantic import BaseModel, ConfigDict
    >>> class Point(BaseModel):
    ...     model_config = ConfigDict(defer_build=True)
    ...     x: int
    ...     y: int = 0
    >>> point = Point.__new__(Point)
    >>> made_quickly(point, {"x": "1"})  # to be converted
    False
    >>> made_quickly(point, {"x": 1}), point
    (True, Point(x=1, y=0))
    """
    cls = type(record)
    if cls.__pydantic_complete__:
        return False
    values = _values(cls, data)
    if values is None:
        return False
    for name, value in (
        ("__dict__", values),
        ("__pydantic_fields_set__", set(data)),
        ("__pydantic_extra__", None),
        ("__pydantic_private__", None),
    ):
        object.__setattr__(record, name, value)
    if cls.__pydantic_post_init__:
        try:
            record.model_post_init(None)
        except (ValueError, AssertionError):  # pydantic makes an error of its own of these
            return False
    return True


def _values(cls: type[BaseModel], data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values of all fields, None where the schema has to say."""
    known = _known(cls)
    known.left -= 1
    if known.left < 0 or not data.keys() <= known.kinds.keys():
        return None
    values: dict[str, Any] = {}
    for name, field in cls.model_fields.items():
        if name not in data:
            if field.is_required():
                return None
            values[name] = field.get_default(call_default_factory=True, validated_data=values)
            continue
        value = data[name]
        if name in known.before:
            if not isinstance(value, _LASTING) and hasattr(type(value), "__iter__"):
                return None
            try:
                value = known.before[name](value)
            except (ValueError, AssertionError):
                return None
        if not (_is_taken(known.kinds[name], value) and _fits(field.metadata, value)):
            return None
        values[name] = value
    return values


class RecordType(ModelMetaclass):
    """The class of record classes whose constructor takes ``**data``: their signature lists the fields.

    Examples
    --------
    >>> class Point(BaseModel, metaclass=RecordType):
    ...     x: int
    ...     y: int = 0
    ...     def __init__(self, **data):
    ...         super().__init__(**data)
    >>> inspect.signature(Point)
    <Signature (*, x: 'int', y: 'int' = 0)>
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        fields: Mapping[str, FieldInfo] = cast(Any, cls).model_fields
        written = {name: kind for base in reversed(cls.__mro__) for name, kind in _written(base).items()}
        return inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty
                    if field.is_required()
                    else field.get_default(call_default_factory=True, validated_data={}),
                    annotation=written.get(name, field.annotation),
                )
                for name, field in fields.items()
            ]
        )

    @__signature__.setter
    def __signature__(cls, value: object) -> None:
        """Ignore the signature that pydantic sets once the schema is built: it is that of ``**data``."""


def _written(cls: type) -> Mapping[str, str]:
    """Return the types of fields as they are written, which reads better than what becomes of them."""
    kinds = inspect.get_annotations(cls)
    return {
        name: _INSTANCE_FIELD.sub(r"\1", kind if isinstance(kind, str) else inspect.formatannotation(kind))
        for name, kind in kinds.items()
    }


class _Known:
    """What is known of a class: the types of its fields, what is done with a value first, and for how many records more.

    None are left for a class that checks or makes its records in another way.
    """

    def __init__(self, cls: type[BaseModel]) -> None:
        self.kinds: dict[str, Any] = {}
        self.before: dict[str, Callable[[Any], Any]] = {}
        self.left = 0
        made, config = cls.__pydantic_decorators__, cls.model_config
        if made.model_validators or made.root_validators or made.validators or cls.__pydantic_root_model__:
            return
        if not config.keys() <= _CONFIG or config.get("extra") == "allow":
            return
        for validator in made.field_validators.values():
            for name in validator.info.fields:
                if validator.info.mode != "before" or name in self.before or _takes(validator.func) != 1:
                    return
                self.before[name] = validator.func
        if cls.__pydantic_fields_complete__:
            self.kinds = {name: _kind_of(field) for name, field in cls.model_fields.items()}
        else:  # it names classes that were declared after it
            try:
                hints = get_type_hints(cls, include_extras=True)
            except NameError:  # of a class in a function, with types that are known there only
                return
            self.kinds = {name: hints[name] for name in cls.model_fields}
        self.left = _FEW


# The fields of a class stay as they are, and once it has its schema nothing is looked up here.
_known: Final = lru_cache(maxsize=256)(_Known)


def _kind_of(field: FieldInfo) -> Any:
    """Return the type of a field, which pydantic has parted from what stood beside it."""
    holder = next(filter(_is_instance_field, field.metadata), None)
    return field.annotation if holder is None else Annotated[field.annotation, holder]


def _takes(function: Callable[..., Any]) -> int:
    return len(inspect.signature(function).parameters)


def _is_instance_field(one: object) -> bool:
    """Tell whether this is what `InstanceField` adds to a type; such a field is looked at no further."""
    return type(one).__name__ == "InstanceField"


def _is_text(value: object) -> bool:
    """Tell whether a value is text without half a character, which pydantic refuses where the length is limited."""
    if type(value) is not str:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_taken(kind: Any, value: Any) -> bool:
    """Tell whether a value is surely of a type, and would be kept as it is."""
    if kind is Any:
        return True
    if kind is str:
        return _is_text(value)
    if kind in _PLAIN:
        return type(value) is kind
    if kind is None:
        return value is None
    origin = get_origin(kind)
    if origin is Union or origin is UnionType:
        return any(_is_taken(one, value) for one in get_args(kind))
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in get_args(kind))
    if origin is Annotated:
        inner, *more = get_args(kind)
        holder = next(filter(_is_instance_field, more), None)
        if holder is not None:
            return len(more) == 1 and isinstance(value, holder.kind)
        return _is_taken(inner, value) and _fits(more, value)
    if origin is Callable:
        return callable(value)
    if origin is tuple:
        inside = get_args(kind)
        is_alike = len(inside) == 2 and inside[1] is Ellipsis
        return is_alike and type(value) is tuple and all(_is_taken(inside[0], one) for one in value)
    return isinstance(kind, type) and issubclass(kind, BaseModel) and isinstance(value, kind)


def _fits(limits: Sequence[Any], value: Any) -> bool:
    """Tell whether a value is surely within limits; those that are not known are left to pydantic."""
    for limit in limits:
        if isinstance(limit, FieldInfo):
            if not _fits(limit.metadata, value):
                return False
        elif value is None or _is_instance_field(limit):  # beside a type with limits; seen by `_is_taken`
            continue
        elif isinstance(limit, AllowInfNan | Ge | Gt):
            if type(value) not in (int, float) or not math.isfinite(value):
                return False
            if (isinstance(limit, Ge) and not value >= limit.ge) or (isinstance(limit, Gt) and not value > limit.gt):
                return False
        elif isinstance(limit, MinLen):
            if type(value) not in (str, tuple) or len(value) < limit.min_length:
                return False
        else:
            return False
    return True
