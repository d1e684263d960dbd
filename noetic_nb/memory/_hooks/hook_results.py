"""Read the result of a hook: None, a mapping with camelCase or snake_case keys, or a record with these attributes."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, NamedTuple

from noetic_nb._core.arguments import closest
from noetic_nb.items._frozen import MAPPINGS
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._steering_decision import SteeringDecision


class _Unset:
    """A missing field, as opposed to a field that is None."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = _Unset()

# Fields with another spelling in the wire form.
_CAMEL: Final = {
    "token_count": "tokenCount",
    "child_state": "childState",
    "parent_state": "parentState",
    "rule_ids": "ruleIds",
}
_DECIDED: Final = "decision state stop outcome faults rules_ms action guidance rule_ids matched"
_NAMES: Final = {
    "init": "state stop",
    "recall": "items token_count state rerender timing scope stop",
    "store": "state stop",
    "on_spawn": "child_state items stop",
    "on_return": "parent_state result stop",
    "on_complete": "state stop",
    "on_item_append": "items state rerender timing scope stop",
    "project_history": "items stop",
    "on_tool_outcome": "state stop",
    "on_model_outcome": "state stop",
    "on_hook_failure": "state rule_ids stop",
    "before_tool_call": _DECIDED,
    "after_model_call": _DECIDED,
    "function": "result state",
}
FIELDS: Final = {hook: tuple(names.split()) for hook, names in _NAMES.items()}
"""The result fields of hooks and layer functions; hooks not listed return nothing."""
_SPELLINGS: Final = {
    hook: frozenset([*names, *[_CAMEL.get(name, name) for name in names]]) for hook, names in FIELDS.items()
}


_TIMINGS: Final = ("immediate", "batched")
_SCOPES: Final = ("self", "slot-after", "all")


def field_of(result: Any, name: str, *, hook: str) -> Any:
    """Return a field of a hook's result, or `UNSET` if missing; raises `TypeError` if the result cannot have fields."""
    if result is None:
        return UNSET
    if isinstance(result, MAPPINGS):
        # The wire name first: mappings mostly come from JSON.
        return result.get(_CAMEL.get(name, name), result.get(name, UNSET))
    # A bare value has no fields, and would hide a mistake by looking like "nothing to change".
    if isinstance(result, str | bytes | int | float | bool | list | tuple | set) and not hasattr(result, "_fields"):
        raise TypeError(
            f"The hook {hook!r} returned {type(result).__name__} {result!r:.80}; return None, a mapping or a record "
            f"with the fields of this hook."
        )
    return getattr(result, name, UNSET)


class MisnamedResult(Warning):
    """A hook or function of a layer returned a value under an unknown name."""

    warning_code: ClassVar[str] = "layer_result"


def misnamed(result: Any, hook: str, source: str) -> MisnamedResult | None:
    """Return a warning about the unknown keys of a hook's result, or None; `source` names the hook in it."""
    spellings = _SPELLINGS.get(hook)
    if spellings is None or result is None or isinstance(result, (str, SteeringDecision)):
        return None
    if isinstance(result, MAPPINGS):
        found = [] if result.keys() <= spellings else [name for name in result if name not in spellings]
    elif any(hasattr(result, name) for name in spellings):
        return None
    else:
        kind = type(result)
        named = (
            getattr(kind, "_fields", None)
            or getattr(kind, "__dataclass_fields__", None)
            or getattr(result, "__dict__", {})
        )
        found = [name for name in named if not name.startswith("_")]
    if not found:
        return None
    known = FIELDS[hook]
    hints = [hint for name in found if (hint := closest(name, known))]
    fields = f"{', '.join(map(repr, known[:-1]))} and {known[-1]!r}"
    said = " ".join([*hints, f"Its fields are {fields}."])
    return MisnamedResult(f"{source} returned {', '.join(map(repr, found))}, which is not read. {said}")


class RerenderRequest(NamedTuple):
    """A layer's request to recall again, before the next model call (``immediate``) or with the next step (``batched``)."""

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


def rerender_request(value: Any, layer: MemoryLayer, *, hook: str) -> RerenderRequest | None:
    """Return the request in a hook's result, or None; raises `ValueError` for an unknown timing or scope."""
    if not field_of(value, "rerender", hook=hook):
        return None
    return RerenderRequest(
        layer.id,
        layer.slot,
        _one_of(field_of(value, "timing", hook=hook), _TIMINGS, layer.rerender_timing, "timing"),
        _one_of(field_of(value, "scope", hook=hook), _SCOPES, "slot-after", "scope"),
    )
