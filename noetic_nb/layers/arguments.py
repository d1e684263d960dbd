"""What the functions of the built-in layers take, as the model sees it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Arguments"]


class Arguments(BaseModel):
    """The arguments of a layer's function; field notes are what the model reads."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)
