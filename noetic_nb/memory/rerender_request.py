"""A layer's wish that recall runs again: for itself, for its slot and what comes after, or for all."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from noetic_nb.memory.hook_results import UNSET, field_of
from noetic_nb.memory.layer import MemoryLayer

__all__ = ["RerenderRequest", "read_request"]

_TIMINGS: Final = ("immediate", "batched")
_SCOPES: Final = ("self", "slot-after", "all")


class RerenderRequest(NamedTuple):
    """A layer asks for recall to run again.

    ``immediate`` means before the next model call, even inside a tool loop; ``batched`` means with the next step.
    """

    layer_id: str
    slot: float
    timing: Literal["immediate", "batched"]
    scope: Literal["self", "slot-after", "all"]


def _one_of(value: Any, known: tuple[str, ...], default: str, name: str) -> Any:
    if value is UNSET or value is None:
        return default
    if value not in known:
        raise ValueError(f"`{name}` is one of {', '.join(map(repr, known))}, not {value!r}.")
    return value


def read_request(value: Any, layer: MemoryLayer, *, hook: str) -> RerenderRequest | None:
    """Return the request in a hook's result, None where it makes none.

    Raises
    ------
    ValueError
        For a timing or a scope that does not exist.
    """
    if not field_of(value, "rerender", hook=hook):
        return None
    return RerenderRequest(
        layer.id,
        layer.slot,
        _one_of(field_of(value, "timing", hook=hook), _TIMINGS, layer.rerender_timing, "timing"),
        _one_of(field_of(value, "scope", hook=hook), _SCOPES, "slot-after", "scope"),
    )
