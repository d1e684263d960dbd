"""Type checkers know the members that layers provide: mypy checks this file with the library, and rejects an unused `ignore`."""

from __future__ import annotations

from typing import Any, Protocol, assert_type

import noetic_nb as nn
from noetic_nb import layers
from noetic_nb.layers.handles import PlanHandle, WorkingMemoryHandle
from noetic_nb.runtime import Context


class Counter(Protocol):
    @property
    def total(self) -> int: ...


notes = nn.working_memory()
plan = layers.plan_memory()
own: nn.MemoryLayer[Counter] = nn.MemoryLayer(id="own", slot=1, scope="thread")
plain = nn.MemoryLayer(id="plain", slot=2, scope="thread")
mine = nn.memory([notes, plan, own, plain])


async def use(value: Any, ctx: Context) -> None:
    assert_type(ctx.memory[notes], WorkingMemoryHandle)
    assert_type(mine.view(ctx)[plan], PlanHandle)
    assert_type(mine.view(ctx)[own].total, int)
    assert_type(await mine.view(ctx)[plan].exit_plan_mode(action="cancel"), str)
    assert_type(ctx.memory["notes"], Any)
    assert_type(ctx.memory[plain], Any)
    await ctx.memory[notes].update(city="Rome")
    await ctx.memory[notes].updat(city="Rome")  # type: ignore[attr-defined]
    await ctx.memory[plan].exit_plan_mode(action="stop")  # type: ignore[arg-type]
    await ctx.memory[plan].enter_plan_mode(gaol="x")  # type: ignore[call-arg]
