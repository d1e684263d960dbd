"""Hooks, tools and steps see the files and the shell that the harness was given, their children's too; or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import noetic_nb as nn
from noetic_nb._core.filesystem import OutsideRoot
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory import ExecutionContext
from noetic_nb.steps import fork, loop, spawn, step, until
from noetic_nb.testing import check_layer


def watching(seen: dict[str, Any]) -> Any:
    """Return an agent that notes, by place, which files and which shell it sees."""

    def note(place: str, ctx: Any) -> None:
        seen[place] = (ctx.fs, ctx.shell)

    @nn.tool
    def look(ctx: Any) -> str:
        """Look."""
        note("tool", ctx)
        return "ok"

    def layer(name: str) -> nn.MemoryLayer:
        def hook(hook_name: str) -> Any:
            result = {"init": {"state": {}}, "on_spawn": {"child_state": {}}}.get(hook_name)
            return lambda p: note(f"{name}.{hook_name}", getattr(p, "ctx", None) or p.child_ctx) or result

        names = ("init", "recall", "store", "on_spawn", "on_return", "on_complete", "dispose", "before_tool_call",
                 "after_model_call", "on_item_append", "project_history", "on_tool_outcome", "on_model_outcome")  # fmt: skip
        function = nn.layer_fn(
            description="Look.", input=dict, output=str,
            execute=lambda args, state, ctx: note(f"{name}.function", ctx) or {"result": "ok"},
        )  # fmt: skip
        return nn.MemoryLayer(
            id=name,
            slot=100,
            scope="thread",
            hooks=nn.MemoryHooks(**{one: hook(one) for one in names}),
            provides={"function": function},
        )

    def run(name: str) -> Any:
        return step.run(name, lambda value, ctx: note(f"step.{name}", ctx))

    async def starting(value: Any, ctx: Any) -> None:
        await ctx.start(run("beside"), "x").result()
        await ctx.memory["outer"].function({})

    agent = loop(
        "whole",
        [
            step.llm("ask", model="m", tools=[look]),
            run("plain"),
            fork("both", mode="all", paths=[run("path"), run("other")], merge="concat"),
            spawn("child", run("spawned")),
            spawn("own", run("with-layers"), memory=[layer("inner")]),
            step.run("starting", starting),
        ],
        until=until.max_steps(1),
        needs_output=False,
    )
    return nn.AgentConfig(name="desk", step=agent, memory=[layer("outer")])


REPLIES = [nn.CallTool("look"), "Done."]


async def test_everyone_sees_what_the_harness_was_given() -> None:
    seen: dict[str, Any] = {}
    fs, shell = MemoryFileSystem(), nn.ScriptedShell()
    harness = nn.AgentHarness(watching(seen), model=nn.ScriptedModel(REPLIES), fs=fs, shell=shell)

    await harness.execute("Hi")

    assert {"tool", "step.plain", "step.path", "step.other", "step.spawned", "step.with-layers", "step.beside"} <= set(
        seen
    )
    assert {name for name in seen if name.startswith("outer.")} == {
        f"outer.{name}"
        for name in ("init", "recall", "store", "on_spawn", "on_return", "on_complete", "dispose", "before_tool_call",
                     "after_model_call", "on_item_append", "project_history", "on_tool_outcome", "on_model_outcome",
                     "function")
    }  # fmt: skip
    assert "inner.init" in seen
    assert {place for place, found in seen.items() if found != (fs, shell)} == set()


async def test_nobody_sees_files_or_a_shell_unless_they_are_given() -> None:
    seen: dict[str, Any] = {}
    await nn.AgentHarness(watching(seen), model=nn.ScriptedModel(REPLIES)).execute("Hi")

    assert len(seen) > 20
    assert set(seen.values()) == {(None, None)}


async def test_a_configuration_may_bring_both_and_the_harness_comes_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")
    shell, other = nn.ScriptedShell(), nn.ScriptedShell()
    config = nn.AgentConfig(name="desk", fs=tmp_path, shell=shell)

    async with nn.AgentHarness(config).execution() as ctx:
        assert ctx.fs.cat("a.txt") == b"A"
        assert ctx.shell is shell
        with pytest.raises(OutsideRoot):
            ctx.fs.cat("../a.txt")
    async with nn.AgentHarness(config, fs="memory://workspace-harness", shell=other).execution() as ctx:
        assert not ctx.fs.exists("a.txt")
        assert ctx.shell is other


def test_a_folder_is_data_and_a_shell_is_not(tmp_path: Path) -> None:
    written = nn.dump_config(nn.AgentConfig(name="desk", fs=tmp_path))

    assert written == {"name": "desk", "fs": str(tmp_path)}
    assert nn.load_config(written).fs == str(tmp_path)
    for live in ({"shell": nn.LocalShell()}, {"fs": MemoryFileSystem()}):
        with pytest.raises(NoeticConfigError, match="NOT_JSON"):
            nn.dump_config(nn.AgentConfig(name="desk", **live))
    with pytest.raises(NoeticConfigError, match="method `run`"):
        nn.load_config({"name": "desk", "shell": {"kind": "local"}})


@pytest.mark.parametrize("wrong", [{"fs": 3}, {"fs": "no/such/folder"}, {"shell": "bash"}])
def test_what_is_neither_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(NoeticConfigError) as failure:
        nn.AgentHarness(nn.AgentConfig(name="desk"), **wrong)

    assert failure.value.code == "INVALID_OPTION"


async def test_a_tool_runs_commands_and_one_that_is_cancelled_stops(tmp_path: Path) -> None:
    @nn.tool
    async def count(path: str, ctx: Any) -> str:
        """Count lines."""
        done = await ctx.shell.run(["wc", "-l", path])
        ctx.fs.write_text("count.txt", done.stdout)
        return str(done.stdout)

    (tmp_path / "a.txt").write_text("1\n2\n")
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[count]))
    model = nn.ScriptedModel([nn.CallTool("count", path="a.txt"), "Two."])
    await nn.AgentHarness(config, model=model, fs=tmp_path, shell=nn.LocalShell(tmp_path)).execute("Count.")

    assert (tmp_path / "count.txt").read_text().split() == ["2", "a.txt"]


def test_a_context_made_for_a_test_takes_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")
    ctx = ExecutionContext(execution_id="e", thread_id="t", fs=tmp_path, shell=nn.ScriptedShell(["ok"]))

    assert ctx.fs.cat("a.txt") == b"A"
    assert ctx.shell is not None
    assert ExecutionContext(execution_id="e", thread_id="t").fs is None


def test_a_layer_under_test_sees_the_files_and_the_shell_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")

    async def recall(p: Any) -> str:
        return f"{p.ctx.fs.read_text('a.txt')} {(await p.ctx.shell.run('date')).stdout}"

    layer = nn.MemoryLayer(id="notes", slot=100, scope="thread", hooks=nn.MemoryHooks(recall=recall))

    assert "hook_failed" in check_layer(layer).codes
    assert check_layer(layer, fs=tmp_path, shell=nn.ScriptedShell({"date": "today"})).codes == ()
