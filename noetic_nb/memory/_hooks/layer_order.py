"""Which layers take part in a hook, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Final, Literal

from noetic_nb.items import ItemRegistry
from noetic_nb.memory._declared import check_layers
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hooks.hook_traces import HookTraces
from noetic_nb.memory._layer import MemoryHooks, MemoryLayer
from noetic_nb.memory._state.state_store import LayerStateStore

__all__ = ["ENFORCING", "NO_SOURCES", "LayerOrder"]

NO_SOURCES: Final[Mapping[str, str]] = MappingProxyType({})
"""Every layer is known by the same id in an execution and in its child."""

ENFORCING: Final = frozenset({"before_tool_call", "after_model_call"})
"""The hooks that decide."""

# All but those that are called of one layer by itself.
_HOOKS: Final = frozenset([one.name for one in fields(MemoryHooks)]) - {"on_hook_failure", "on_edit", "on_record"}
_IN_ARRAY_ORDER: Final = frozenset({"init", "store", "on_complete", "dispose"})


class LayerOrder:
    """The layers of one agent, in the orders their hooks need.

    Orders: ascending slot, ties by position; ``init``, ``store`` and ``on_complete`` by
    position, ``dispose`` in reverse; layers that enforce come first at the two enforcement points.

    References
    ----------
    .. [1] docs/behaviour/memory.md, "Hooks".
    """

    def __init__(
        self, layers: Iterable[MemoryLayer], state: LayerStateStore, traces: HookTraces, registry: ItemRegistry
    ) -> None:
        self.layers = check_layers(layers)
        self._state = state
        self._traces = traces
        self.by_slot = tuple(sorted(self.layers, key=lambda layer: layer.slot))
        # Sorting is stable: within each of the two groups the slots keep their order.
        enforcing = tuple(sorted(self.by_slot, key=lambda layer: not layer.enforces))
        self._with: dict[str, tuple[MemoryLayer, ...]] = {}
        self._registry = self._shared = registry
        self._registries: dict[str, ItemRegistry] = {}
        for layer in self.layers:
            if layer.item_schemas:
                self._registries[layer.id] = registry.extend(layer.item_schemas)
                # The log is read by all layers, so it takes what any of them may write.
                self._shared = self._shared.extend(layer.item_schemas)
        for hook in _HOOKS:
            order = self.layers if hook in _IN_ARRAY_ORDER else enforcing if hook in ENFORCING else self.by_slot
            found = tuple(layer for layer in order if getattr(layer.hooks, hook) is not None)
            # What was opened last is closed first.
            self._with[hook] = found[::-1] if hook == "dispose" else found
        self.hooks: Final = frozenset(hook for hook, found in self._with.items() if found)
        """The hooks that at least one layer has."""

    def layers_with(self, hook: str) -> tuple[MemoryLayer, ...]:
        """Return the layers that have a hook, in the order in which it runs."""
        return self._with[hook]

    def active(
        self, hook: str, ctx: ExecutionContext, sources: Mapping[str, str] = NO_SOURCES
    ) -> Iterator[MemoryLayer]:
        """Yield the layers whose hook is to run now, in order; one that does not take part is recorded as skipped.

        Each layer is looked at when its turn comes: a hook before it may have changed whether it takes part. `sources` holds
        the ids, in this execution, of layers that are known by another id in its child.
        """
        for layer in self._with[hook]:
            if self.runs(layer, ctx.execution_id, sources.get(layer.id) if sources else None):
                yield layer
            else:
                self._traces.skipped(layer, hook, ctx)

    def runs(self, layer: MemoryLayer, execution_id: str, layer_id: str | None = None) -> bool:
        """Tell whether a layer takes part: not disabled, and initialised if it has an ``init``.

        A state that was cleared on purpose is an entry that holds None, and keeps the layer running.
        """
        return self.idle_reason(layer, execution_id, layer_id) is None

    def idle_reason(
        self, layer: MemoryLayer, execution_id: str, layer_id: str | None = None
    ) -> Literal["disabled", "uninitialised"] | None:
        """Return why a layer, known by `layer_id` in this execution, does not take part, None where it does."""
        state, layer_id = self._state, layer_id or layer.id
        if state.has_disabled and state.is_disabled(execution_id, layer_id):
            return "disabled"
        if layer.hooks.init is not None and not state.has(execution_id, layer_id):
            return "uninitialised"
        return None

    def registry(self, layer: MemoryLayer) -> ItemRegistry:
        """Return which items a layer may bring in: the known types, the agent's extensions and its own."""
        return self._registries.get(layer.id, self._registry)

    def shared_registry(self) -> ItemRegistry:
        """Return which items a log may hold that these layers write to: the agent's extensions and those of them all."""
        return self._shared
