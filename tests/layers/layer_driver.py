"""A conversation with layers and no model: what is said is scripted on both sides."""

from __future__ import annotations

from typing import Any

from noetic_nb.items import ItemLog, assistant_message, input_message, item_text
from noetic_nb.memory import ExecutionContext, MemoryLayer
from noetic_nb.storage import InMemoryStorage
from noetic_nb.testing import FakeClock, SeededIds
from tests.memory.stacks import Watched


class Conversation:
    """Layers, a log, and the moments of a turn."""

    def __init__(self, *layers: MemoryLayer, storage: Any = None, thread_id: str = "t1", **ctx: Any) -> None:
        self.stack = Watched(*layers, storage=InMemoryStorage() if storage is None else storage)
        self.ids = SeededIds()
        self.clock = FakeClock()
        self.log = ItemLog()
        self.more = {"resource_id": "ann", **ctx}
        self.thread_id = thread_id
        self.turns = 0

    def context(self) -> ExecutionContext:
        """Return the execution that runs now."""
        return ExecutionContext(
            execution_id=f"{self.thread_id}-e{self.turns}",
            thread_id=self.thread_id,
            ids=self.ids,
            clock=self.clock,
            diagnostic=self.stack.state.diagnostic,
            **self.more,
        )

    async def begin(self, user: str = "") -> str:
        """Begin a turn; returns what the layers show for it."""
        self.turns += 1
        await self.stack.init(self.context())
        if user:
            done = await self.stack.append(self.context(), [input_message(user, ids=self.ids)], log=self.log)
            self.log.extend(done.items)
        return await self.shown(user)

    async def shown(self, query: str = "", budget: float = float("inf")) -> str:
        """Return what the layers show now, joined."""
        budgets = {layer.id: budget for layer in self.stack.layers}
        entries = await self.stack.recall(self.context(), query=query, log=self.log, budgets=budgets)
        assert all(entry.token_count <= budget for entry in entries)
        return "\n".join(item_text(item) for entry in entries for item in entry.items)

    async def end(self, assistant: str = "", outcome: Any = "success") -> None:
        """End a turn."""
        if assistant:
            items = self.log.extend([assistant_message(assistant, ids=self.ids)])
            await self.stack.store(self.context(), response={"items": items, "usage": {}}, log=self.log)
        await self.stack.complete(self.context(), log=self.log, outcome=outcome)
        await self.stack.dispose(self.context())
        self.clock.advance(60_000)

    async def turn(self, user: str, assistant: str = "Fine.") -> str:
        """Run a whole turn; returns what the layers showed."""
        shown = await self.begin(user)
        await self.end(assistant)
        return shown

    async def call(self, layer_id: str, name: str, /, **args: Any) -> Any:
        """Call a layer's function as a model would; returns its result."""
        (layer,) = [layer for layer in self.stack.layers if layer.id == layer_id]
        fn = (layer.provides or {})[name]
        ctx = self.context()
        state = self.stack.state.get(ctx.execution_id, layer_id)
        done = fn.execute(fn.input.validate_python(args), state, ctx)
        if hasattr(done, "__await__"):
            done = await done
        if done.get("state") is not None:
            self.stack.state.set(ctx.execution_id, layer_id, done["state"])
        return fn.output.validate_python(done.get("result"))

    def data(self, layer_id: str, name: str) -> Any:
        """Read a layer's data."""
        (layer,) = [layer for layer in self.stack.layers if layer.id == layer_id]
        return (layer.provides or {})[name].read(self.stack.state.get(self.context().execution_id, layer_id))

    def state(self, layer_id: str) -> Any:
        """Return a layer's state."""
        return self.stack.state.get(self.context().execution_id, layer_id)
