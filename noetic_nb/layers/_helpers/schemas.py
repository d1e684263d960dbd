"""The states and arguments of the built-in layers as schemas, and hooks that depend only on a schema."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.memory import InitParams, SpawnParams, layer_fn
from noetic_nb.memory._layer_functions import LayerFunction


class Arguments(BaseModel):
    """The arguments of a layer's function; attribute docstrings are the text for the model."""

    # Unknown arguments are refused, so that the model learns of its mistake; the docstrings are read on first use.
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)


class StoredState(BaseModel):
    """The form of a layer's state as JSON; used only for validation."""

    # Strict: a layer's own state reads back with exactly these types, so any other data has another source.
    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)


async def load_state(p: InitParams, shape: type[StoredState], default: Any, *, layer_id: str) -> Any:
    """Return the stored state, or else a copy of `default`; raises ``storage_failed`` if it does not fit `shape`."""
    # Validated but returned unchanged: validation must not add defaults to stored data.
    stored = await p.storage.get("state")
    if stored is None:
        return copy.deepcopy(default)
    try:
        shape.model_validate(stored)
    except ValidationError as exc:
        problem = exc.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "state"
        raise NoeticError(
            "storage_failed",
            f"The stored state of layer {layer_id!r} is damaged: {place}: {problem['msg']}",
            given=stored,
            hint=f"Repair or delete the key {p.storage.prefix + 'state'!r}; nothing was changed.",
            layer_id=layer_id,
            key=p.storage.prefix + "state",
        ) from exc
    return stored


def init_hook(
    shape: type[StoredState], empty: Any, *, layer_id: str
) -> Callable[[InitParams], Awaitable[dict[str, Any]]]:
    """Return an ``init`` hook that loads the stored state, or a copy of `empty` if there is none."""

    async def init(p: InitParams) -> dict[str, Any]:
        return {"state": await load_state(p, shape, empty, layer_id=layer_id)}

    return init


def copy_to_child(p: SpawnParams) -> dict[str, Any]:
    """Give a child execution a copy of its parent's state: an ``on_spawn`` hook."""
    return {"child_state": copy.deepcopy(p.parent_state)}


def model_function(
    description: str, takes: Any, execute: Callable[[Any, Any, Any], Any], returns: Any = str
) -> LayerFunction:
    """Return a function of a layer, which the model may call as well."""
    return layer_fn(description=description, input=takes, output=returns, execute=execute)


def option_error(what: str, given: object, hint: str, *, code: str = "INVALID_LAYER_OPTION") -> NoeticConfigError:
    return NoeticConfigError(code, what, given=given, hint=hint)
