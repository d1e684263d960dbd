"""The base of all steps: frozen records that reject unknown keys and accept both spellings of their fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

from noetic_nb._core.arguments import closest, explained
from noetic_nb._core.cards import Card, with_card
from noetic_nb._core.record_type import RecordType
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._layer import MemoryLayer

T = TypeVar("T")

if TYPE_CHECKING:
    InstanceField = Annotated[T, ...]
else:

    class InstanceField:
        """A field for instances of a class, which pydantic does not inspect further.

        `pydantic.InstanceOf` would also build a schema of the class, for JSON that never occurs here.
        """

        def __class_getitem__(cls, kind: type) -> Any:
            return Annotated[kind, cls(kind)]

        def __init__(self, kind: type) -> None:
            self.kind = kind

        def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
            return core_schema.is_instance_schema(self.kind)


@with_card
class Frozen(BaseModel, metaclass=RecordType):
    """A frozen record; unknown keys are errors; keys in snake_case or camelCase.

    Raises `NoeticConfigError` with the class's own `error_code` and the name of the field: pydantic's error is a
    `ValueError`, which a schema that contains this record would swallow.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        arbitrary_types_allowed=True,
        # Steps refer to each other: building every validator at import costs more than most programs ever use.
        defer_build=True,
    )

    error_code: ClassVar[str] = "INVALID_STEP"
    expects: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """By field, for common mistakes: the words for its valid value, and a hint; also hints for keys that belong elsewhere."""

    def __str__(self) -> str:
        return repr(self)

    is_part: ClassVar[bool] = False
    """Whether the card of an enclosing record shows this record as a separate part."""

    def _card(self) -> Card:
        name = next((key for key in ("id", "name") if key in type(self).model_fields), "")
        facts: list[tuple[str, Any]] = []
        parts: list[tuple[str, Any]] = []
        for key, field in type(self).model_fields.items():
            value = getattr(self, key)
            # Settings have no name, so their card also shows default values.
            if key in (name, "kind") or (name and value == field.get_default(call_default_factory=True)):
                continue
            inside = value if isinstance(value, tuple) else (value,)
            if inside and all(isinstance(each, MemoryLayer) or getattr(each, "is_part", False) for each in inside):
                parts += [(key, each) for each in inside]
            else:
                facts.append((key, value))
        return Card(type(self).__name__, getattr(self, name, ""), facts, parts)

    @explained()
    def __init__(self, **data: Any) -> None:
        # Before pydantic, which would turn a bool into 1 or 0.
        for given, value in data.items():
            if value is True or value is False:
                self._refuse_bool(given, value)
        try:
            super().__init__(**data)
        except ValidationError as exc:
            raise self._error(data, exc) from exc

    @classmethod
    def _error(cls, data: Mapping[str, Any], exc: ValidationError) -> NoeticConfigError:
        """Return pydantic's error as a sentence with a hint."""
        # A misspelt field first: it may be the missing one.
        first = min(exc.errors(), key=lambda each: each["type"] != "extra_forbidden")
        where = ".".join(map(str, first["loc"])) or "value"
        name, field = data.get("id", data.get("name", "")), str(first["loc"][0]) if first["loc"] else ""
        who = f"{cls.__name__} {name!r}" if isinstance(name, str) and name else cls.__name__
        fields = ", ".join(cls.model_fields)
        kind, hint = cls.expects.get(field, ("", ""))
        if first["type"] == "extra_forbidden":
            what = f"{who} has no field {field!r}"
            hint = hint or f"{closest(field, cls.model_fields)} Fields are {fields}.".strip()
        # Only if the field's own value is wrong, not a value deep inside it.
        elif kind and (first["type"] == "is_instance_of" or first.get("input") is data.get(field)):
            what = f"{who}: `{field}` is {kind}"
        else:
            what, hint = f"{who}, {where}: {first['msg']}", f"Fields are {fields}."
        return NoeticConfigError(cls.error_code, what, given=first.get("input"), hint=hint, field=where)

    @classmethod
    def _refuse_bool(cls, given: str, value: bool) -> None:
        """Reject a bool where a number is expected: pydantic takes it for 1 or 0."""
        for name, field in cls.model_fields.items():
            if given != name and given != field.alias:
                continue
            # The type inside an `Annotated` type of a union is its origin.
            kinds = {getattr(kind, "__origin__", kind) for kind in (field.annotation, *get_args(field.annotation))}
            if kinds & {int, float} and bool not in kinds:
                what = f"{cls.__name__}, {name}: expected a number, not {value}"
                raise NoeticConfigError(cls.error_code, what, given=value, hint="Pass a number.", field=name)


def _is_given(value: object) -> bool:
    """Tell whether a value is given: not None, not blank, not an empty list."""
    if isinstance(value, str):
        return bool(value.strip())
    return bool(value) if isinstance(value, list | tuple) else value is not None


class Requirement(NamedTuple):
    """A field that a kind of step requires."""

    field: str
    code: str
    what: str
    hint: str
    fits: Callable[[Any], bool] = _is_given


class StepRecord(Frozen):
    """The id of a step, and the required fields of its kind."""

    needs: ClassVar[tuple[Requirement, ...]] = ()
    is_part = True

    id: str
    # Unknown keys of the saved workflow document that the step was read from; `harness.check()` lists them.
    _unknown_keys: tuple[str, ...] = PrivateAttr(())

    def __init__(self, **data: Any) -> None:
        step_id = data.get("id")
        if not isinstance(step_id, str) or not step_id.strip():
            what = f"{type(self).__name__} needs a non-blank id."
            raise NoeticConfigError("EMPTY_STEP_ID", what, given=step_id, hint="Pass id='...'.")
        # Before pydantic, too: its "field required" error has neither a specific code nor a hint.
        for need in self.needs:
            if not need.fits(data.get(need.field)):
                what = f"{type(self).__name__} {step_id!r} needs {need.what}."
                raise NoeticConfigError(need.code, what, given=data.get(need.field), hint=need.hint, step_id=step_id)
        super().__init__(**data)
