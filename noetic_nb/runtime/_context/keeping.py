"""The `Keeper` of the texts behind memories, loaded with the first layer that remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetic_nb.runtime._context.engine import Engine

if TYPE_CHECKING:
    from noetic_nb.runtime._context.kept_texts import Keeper


def keeper_of(engine: Engine) -> Keeper:
    if not engine.keepers:
        from noetic_nb.runtime._context.kept_texts import Keeper

        engine.keepers.append(Keeper(engine.stack.storage))
    found: Keeper = engine.keepers[0]
    return found
