"""The metaclass of records whose constructor takes ``**data``, which makes completion and help list the fields."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
    from pydantic.fields import FieldInfo
else:
    ModelMetaclass = type(BaseModel)  # private to pydantic

_INSTANCE_FIELD: Final = re.compile(r"InstanceField\[(\w+)\]")


class RecordType(ModelMetaclass):
    """The metaclass of records whose constructor takes ``**data``: their signature lists the fields."""

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
    """Return the types of fields as written in the source, which are easier to read than the resolved types."""
    kinds = inspect.get_annotations(cls)
    return {
        name: _INSTANCE_FIELD.sub(r"\1", kind if isinstance(kind, str) else inspect.formatannotation(kind))
        for name, kind in kinds.items()
    }
