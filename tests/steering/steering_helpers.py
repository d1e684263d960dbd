"""A steering layer on a separate stack, with a scripted judge, for tests of rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from noetic_nb.events import SteeringDecided
from noetic_nb.items import assistant_message
from noetic_nb.memory import ExecutionContext, LayerStack, LayerStateStore, PastCall
from noetic_nb.models._client import NO_USAGE, ModelResponse
from noetic_nb.steering import RuleBook, SteeringDecision, steering
from noetic_nb.testing import FakeClock, SeededIds

Reply = str | BaseException | float
"""A judge's answer, its exception, or the seconds after which it answers DENY (late)."""


class Bench:
    """One execution of one steering layer."""

    def __init__(
        self,
        rules: RuleBook | Sequence[Any],
        *,
        judge: Callable[[str], Any] | Sequence[Reply] | None = None,
        storage: Any = None,
        execution_id: str = "e1",
        thread_id: str = "t1",
        depth: int = 0,
        layer: Any = None,
        **options: Any,
    ) -> None:
        self.layer = steering(rules, **options) if layer is None else layer
        self.diagnostics: list[tuple[str, str, BaseException]] = []
        self.events: list[Any] = []
        self.asked: list[str] = []
        self.clock = FakeClock()
        self._judge = list(judge) if isinstance(judge, Sequence) else judge
        state = LayerStateStore(diagnostic=self.note)
        self.stack = LayerStack([self.layer], state=state, storage=storage, sink=self, clock=self.clock)
        self.ctx = ExecutionContext(
            execution_id=execution_id,
            thread_id=thread_id,
            depth=depth,
            call_model=None if judge is None else self.call_model,
            clock=self.clock,
            ids=SeededIds(),
            diagnostic=self.note,
            sink=self,
            turn=1,
        )

    def emit(self, event: Any) -> None:
        self.events.append(event)

    def note(self, layer_id: str, hook: str, error: BaseException) -> None:
        self.diagnostics.append((layer_id, hook, error))

    async def call_model(self, request: Any) -> ModelResponse:
        self.asked.append(request.items[0].content[0].text)
        reply = self._judge(self.asked[-1]) if callable(self._judge) else self._judge.pop(0)  # type: ignore[union-attr]
        if isinstance(reply, float):
            await asyncio.sleep(reply)
            reply = "DENY: too late"
        if isinstance(reply, BaseException):
            raise reply
        return ModelResponse((assistant_message(reply),), NO_USAGE)

    async def start(self) -> Bench:
        await self.stack.init(self.ctx)
        return self

    async def call(
        self, tool: str = "pay", args: Mapping[str, Any] | None = None, history: Sequence[PastCall] = ()
    ) -> SteeringDecision:
        return await self.stack.before_tool_call(
            self.ctx, tool_name=tool, tool_args={} if args is None else args, history=history
        )

    async def response(self, text: str = "Done.", history: Sequence[PastCall] = ()) -> SteeringDecision:
        answer = ModelResponse((assistant_message(text),), NO_USAGE)
        return await self.stack.after_model_call(self.ctx, response=answer, history=history)

    async def at(self, point: str) -> SteeringDecision:
        return await (self.call() if point == "before_tool_call" else self.response())

    async def recalled(self, budget: float = 500) -> str | None:
        entries = await self.stack.recall(self.ctx, budgets={"steering": budget})
        return entries[0].items[0].content[0].text if entries else None

    async def end(self, outcome: Any = "success") -> None:
        await self.stack.complete(self.ctx, log=(), outcome=outcome)
        await self.stack.dispose(self.ctx)

    @property
    def ledger(self) -> list[dict[str, Any]]:
        state = self.stack.state.get(self.ctx.execution_id, "steering")
        return [] if state is None else state["ledger"]

    @property
    def decided(self) -> list[SteeringDecided]:
        return [event for event in self.events if isinstance(event, SteeringDecided)]


def past(*names: str, status: str = "ok") -> tuple[PastCall, ...]:
    """Earlier calls by name; ``name:status`` for one with another status."""
    split = [(*name.split(":"), status)[:2] for name in names]
    return tuple([PastCall(name, {}, f"c{place}", end, "") for place, (name, end) in enumerate(split)])


async def settle(times: int = 20) -> None:
    """Let background work continue as far as it can without time passing."""
    for _ in range(times):
        await asyncio.sleep(0)
