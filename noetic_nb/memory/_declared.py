"""Layers collected for an agent, and access to their data and functions: by the layer itself (typed), or by its id."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, overload

from noetic_nb._core.cards import Card, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._layer import MemoryLayer

H = TypeVar("H")


class TypedMemory(Mapping[str, Any]):
    """The data and functions of layers within an execution.

    ``memory[notes]`` has the declared type of the layer ``notes``; ``memory["notes"]`` is Any.
    """

    __slots__ = ()

    @overload
    def __getitem__(self, layer: MemoryLayer[H], /) -> H: ...
    @overload
    def __getitem__(self, layer: str, /) -> Any: ...
    @abstractmethod
    def __getitem__(self, layer: Any, /) -> Any:
        """Return the handle of a layer: data as attributes, functions as async methods."""

    def __contains__(self, layer: object) -> bool:
        return id_of(layer) in tuple(self)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)


class HasMemory(Protocol):
    """A `Context`, as far as its layers are concerned."""

    @property
    def memory(self) -> TypedMemory:
        """The data and functions of layers."""
        ...


def id_of(layer: object) -> object:
    """Return the id of a layer given as itself or by id; any other value unchanged."""
    return layer.id if isinstance(layer, MemoryLayer) else layer


class _Declared(TypedMemory):
    """The part of an execution's memory that some layers provide."""

    __slots__ = ("_ids", "_memory")

    def __init__(self, ids: tuple[str, ...], memory: TypedMemory) -> None:
        self._ids, self._memory = ids, memory

    def __getitem__(self, layer: Any, /) -> Any:
        layer_id = id_of(layer)
        if layer_id not in self._ids:
            known = ", ".join(map(repr, self._ids)) or "none"
            hint = f"There is {known}."
            raise NoeticConfigError("UNKNOWN_LAYER_REFERENCE", "No such layer was declared.", given=layer_id, hint=hint)
        return self._memory[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        return f"TypedMemory({', '.join(self)})"


def _no_layer(given: Any, what: str = "This is not a layer.") -> NoeticConfigError:
    hint = "Use MemoryLayer(...), or a layer that is built in, such as working_memory()."
    if type(given).__name__ == "Regulator":  # not imported: a class of another part
        hint = "Make it a layer: memory=[nn.regulation(regulator)]."
    elif inspect.isclass(given):
        hint = f"This is a class: write {given.__name__}(...)."
    elif inspect.isfunction(given):
        hint = (
            f"If {given.__name__} makes layers, call it: memory=[{given.__name__}()]; a function that recalls is a hook: "
            f"MemoryLayer(..., hooks=MemoryHooks(recall={given.__name__}))."
        )
    return NoeticConfigError("INVALID_LAYER", what, given=given, hint=hint)


def check_layers(layers: Iterable[MemoryLayer]) -> tuple[MemoryLayer, ...]:
    """Return the layers as a tuple; raises ``DUPLICATE_LAYER_ID`` or ``INVALID_LAYER``."""
    found: dict[str, MemoryLayer] = {}
    # Any: classes with `as_layer`, such as a rule book, are defined further up; one alone need not be in a list.
    given: Any = layers
    if isinstance(given, str | Mapping) or not (
        isinstance(given, Iterable | MemoryLayer) or hasattr(given, "as_layer")
    ):
        raise _no_layer(given, "`memory` must be a list of layers.")
    for layer in [given] if isinstance(given, MemoryLayer) or hasattr(given, "as_layer") else given:
        if hasattr(layer, "as_layer") and not inspect.isclass(layer):
            layer = layer.as_layer()
        if not isinstance(layer, MemoryLayer):
            raise _no_layer(layer)
        if layer.id in found:
            hint = "Give one of them another id."
            raise NoeticConfigError("DUPLICATE_LAYER_ID", "Two layers share an id.", given=layer.id, hint=hint)
        found[layer.id] = layer
    return tuple(found.values())


@with_card
@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """An ordered set of layers with distinct ids."""

    layers: tuple[MemoryLayer, ...]

    def _card(self) -> Card:
        return Card("MemoryConfig", parts=[("", layer) for layer in self.layers])

    def __iter__(self) -> Iterator[MemoryLayer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def view(self, ctx: HasMemory) -> TypedMemory:
        """Return typed handles of these layers within an execution: ``view(ctx)[notes].update(...)`` for a layer ``notes``.

        Parameters
        ----------
        ctx : Context
            The context of a step or a tool.

        Returns
        -------
        TypedMemory
            By layer or id, without the agent's other layers.
        """
        return _Declared(tuple([layer.id for layer in self.layers]), ctx.memory)


def memory(layers: Iterable[MemoryLayer]) -> MemoryConfig:
    """Collect layers for an agent or a spawn; `MemoryConfig.view` reads their data and functions.

    Raises
    ------
    NoeticConfigError
        ``DUPLICATE_LAYER_ID``.

    Examples
    --------
    >>> from noetic_nb.memory import MemoryLayer
    >>> len(memory([MemoryLayer(id="a", slot=1, scope="thread"), MemoryLayer(id="b", slot=2, scope="thread")]))
    2
    """
    return MemoryConfig(check_layers(layers))
