"""What all steps share: frozen records that refuse unknown keys and speak both spellings of their fields."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from noetic_nb.errors import NoeticConfigError

__all__ = ["Frozen", "StepRecord"]


class Frozen(BaseModel):
    """A frozen record; unknown keys are errors; keys in snake_case or camelCase."""

    model_config = ConfigDict(
        defer_build=True,  # schemas are built when first used, not at import
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        arbitrary_types_allowed=True,
    )


class StepRecord(Frozen):
    """The id of a step, and errors in the words of this library.

    Raises
    ------
    NoeticConfigError
        ``EMPTY_STEP_ID``, a code of the kind of step, or ``INVALID_STEP``.
    """

    id: str

    def __init__(self, **data: Any) -> None:
        step_id = data.get("id")
        if not isinstance(step_id, str) or not step_id.strip():
            raise NoeticConfigError(
                "EMPTY_STEP_ID", f"{type(self).__name__} needs a non-blank id.", given=step_id, hint="Pass id='...'."
            )
        try:
            super().__init__(**data)
        except ValidationError as exc:
            first = exc.errors()[0]
            where = ".".join(map(str, first["loc"])) or "step"
            raise NoeticConfigError(
                "INVALID_STEP",
                f"{type(self).__name__} {step_id!r}, {where}: {first['msg']}",
                given=first.get("input"),
                hint=f"Fields are {', '.join(type(self).model_fields)}.",
                step_id=step_id,
                field=where,
            ) from exc
