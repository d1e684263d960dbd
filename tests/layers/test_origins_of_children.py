"""What the memory of a child agent recalls is no more trusted in the child, in its parent, or in the recorded run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ToolCalled
from noetic_nb.items._origins import Origin
from noetic_nb.steps import spawn, step
from tests.layers.test_external_origins import OTHER, Store, pay, read_page

TOLD = [nn.CallTool("read_page", url="x"), f"The landlord has {OTHER}."]
MEMORIES: dict[str, tuple[Callable[[], Any], list[Any], str]] = {
    "of a tool": (lambda: nn.semantic_recall(min_score=-1, skip_recent=0), TOLD, "tool:read_page"),
    "of others": (lambda: nn.external_memory(Store(lambda text: f"The landlord has {OTHER}.")), ["Noted."], "model"),
}


@pytest.mark.parametrize("payer", ["child", "parent"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_the_memory_of_a_child_launders_nothing(memory: str, payer: str, tmp_path: Path) -> None:
    make, told, expected = MEMORIES[memory]
    layer = make()
    seen: list[Origin] = []
    rule = nn.SteeringRule(
        id="look",
        applies_to="before_tool_call",
        tools=["pay"],
        predicate=lambda call: seen.append(call.origin(call.tool_args["recipient"])),
    )
    storage = nn.InMemoryStorage()
    child = spawn("child", nn.react(model="m", tools=[read_page, pay]), memory=[layer])

    async def both(value: Any, ctx: Any) -> Any:
        found = await ctx.run(child, "Look it up")
        return found if payer == "child" else await ctx.run(nn.react(model="m", tools=[pay]), "Pay the landlord")

    def desk(replies: list[Any]) -> nn.AgentHarness:
        config = nn.AgentConfig(name="desk", step=step.run("both", both), memory=[nn.steering(rules=[rule])])
        return nn.AgentHarness(config, model=nn.ScriptedModel(replies), storage=storage)

    async def main() -> nn.Run:
        await desk([*told, "Done."]).execute("Which account?", thread_id="t", resource_id="ann")
        call = nn.CallTool("pay", recipient=OTHER)
        later = desk([call, "Done."] if payer == "child" else [f"It is {OTHER}.", call, "Done."])
        run = nn.record(later)
        await later.execute("Pay the landlord", thread_id="t", resource_id="ann")
        return run

    run = asyncio.run(main())

    assert seen[0].text == expected
    for known in (run, nn.load_run(run.save(tmp_path / "run.jsonl.gz"))):
        row = known.cause(known.select(ToolCalled)[-1]).iloc[0]
        assert (row.kind, row["name"], row.via) == (seen[0].kind, seen[0].name, (layer.id,))
