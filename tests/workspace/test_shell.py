"""Commands of an agent: their time, their output and what they see of the environment have limits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from noetic_nb._core.shell import LocalShell, ScriptedShell, Shell, ShellResult, checked_shell
from noetic_nb.errors import NoeticConfigError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a POSIX shell")


async def test_a_line_is_for_the_shell_and_a_list_is_not(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path)

    line = await shell.run("echo out; echo err >&2; exit 3")
    listed = await shell.run(["echo", "$HOME; exit 3"])

    assert (line.exit_code, line.stdout, line.stderr, line.ok) == (3, "out\n", "err\n", False)
    assert (listed.exit_code, listed.stdout, listed.ok) == (0, "$HOME; exit 3\n", True)
    assert isinstance(shell, Shell)


async def test_a_command_that_takes_too_long_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path, timeout_ms=300)

    result = await shell.run("sleep 3600 & echo $! > pid; echo begun; wait")

    assert (result.exit_code, result.timed_out, result.stdout) == (None, True, "begun\n")
    await assert_ended(tmp_path / "pid")
    assert (await shell.run("sleep 3600", timeout_ms=1)).timed_out
    assert (await shell.run("sleep 3600", timeout_ms=3_600_000)).timed_out, "a call may only shorten the limit"


async def assert_ended(pid: Path) -> None:
    """Return once a process has ended, whose number is in a file: it would take an hour by itself."""
    number = int(pid.read_text())  # noqa: ASYNC240
    with contextlib.suppress(ProcessLookupError):
        async with asyncio.timeout(30):
            while "State:\tZ" not in status(number):  # one that has ended may wait for its parent
                await asyncio.sleep(0.01)


def status(pid: int) -> str:
    os.kill(pid, 0)
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return ""


async def test_what_a_finished_command_left_behind_is_stopped(tmp_path: Path) -> None:
    await LocalShell(tmp_path).run("sleep 3600 > /dev/null 2>&1 & echo $! > pid")

    await assert_ended(tmp_path / "pid")


async def test_a_command_whose_caller_is_cancelled_is_stopped(tmp_path: Path) -> None:
    running = asyncio.create_task(LocalShell(tmp_path).run("echo $$ > part; mv part pid; exec sleep 3600"))
    while not (tmp_path / "pid").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await assert_ended(tmp_path / "pid")


async def test_of_a_long_output_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    result = await LocalShell(tmp_path, max_output=20).run("echo beginning; seq 100000; echo the end")

    assert result.stdout.startswith("beginning\n\n... 588")
    assert result.stdout.endswith(" bytes left out ...\n0\nthe end\n")
    assert result.truncated
    assert (await LocalShell(tmp_path, max_output=4).run("printf abcd")).stdout == "abcd"
    assert not (await LocalShell(tmp_path, max_output=4).run("printf abcd")).truncated


async def test_no_secret_of_the_environment_reaches_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-one")
    monkeypatch.setenv("HARMLESS", "yes")
    shell = LocalShell(tmp_path, pass_env=["HARMLESS"], env={"MODE": "test"})

    seen = dict(line.split("=", 1) for line in (await shell.run("env")).stdout.splitlines())

    assert "sk-one" not in str(seen)
    assert (seen["HARMLESS"], seen["MODE"], seen["HOME"]) == ("yes", "test", str(tmp_path))
    assert set(seen) <= {"HARMLESS", "MODE", "HOME", "PWD", "PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ",
                         "TMPDIR", "TERM", "TEMP", "TMP", "OLDPWD", "SHLVL", "_"}  # fmt: skip


@pytest.mark.parametrize("cwd", ["..", "sub/../..", "/", "/tmp", "~", "out", "missing", "a\0b", "file.txt"])
async def test_no_command_begins_outside_of_the_folder(tmp_path: Path, cwd: str) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "file.txt").touch()
    (root / "out").symlink_to(tmp_path)
    shell = LocalShell(root)

    assert (await shell.run("pwd", cwd="sub")).stdout.strip() == str(root / "sub")
    with pytest.raises(NoeticConfigError, match="below the shell's own"):
        await shell.run("pwd", cwd=cwd)


async def test_a_command_reads_what_it_is_given_or_nothing(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path)

    assert (await shell.run("cat", stdin="käse")).stdout == "käse"
    assert (await shell.run("cat")).stdout == ""
    # More than a pipe holds, for one that reads none of it.
    assert (await shell.run("true", stdin=b"x" * 1_000_000)).ok
    assert (await shell.run(r"printf '\377'")).stdout == "\ufffd"


async def test_a_program_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path)

    assert (await shell.run(["no-such-program"])).exit_code == 127
    assert (await shell.run("no-such-program")).exit_code == 127


@pytest.mark.parametrize("command", ["", [], ["ls", 3], None, "ls \0 x", ["ls", "\0"]])
async def test_what_is_no_command_is_refused(command: Any) -> None:
    with pytest.raises(NoeticConfigError) as failure:
        await LocalShell().run(command)

    assert failure.value.code == "INVALID_OPTION"


@pytest.mark.parametrize(
    "options",
    [{"cwd": "missing"}, {"timeout_ms": 0}, {"timeout_ms": float("inf")}, {"timeout_ms": True}, {"max_output": 1},
     {"max_output": 2.5}, {"pass_env": "PATH"}],
)  # fmt: skip
def test_what_is_no_limit_is_refused(options: Any) -> None:
    with pytest.raises(NoeticConfigError) as failure:
        LocalShell(**options)

    assert failure.value.code == "INVALID_OPTION"


async def test_a_script_answers_in_order_by_command_or_by_a_function() -> None:
    async def function(command: str) -> Any:
        return command.upper()

    listed = ScriptedShell(["one", ShellResult(1, stderr="two"), RuntimeError("three")])
    named = ScriptedShell({"git status": "clean"})

    assert (await listed.run("a")).stdout == "one"
    assert (await listed.run("b")).exit_code == 1
    with pytest.raises(RuntimeError, match="three"):
        await listed.run("c")
    with pytest.raises(NoeticConfigError, match="no more answers after 3"):
        await listed.run("d")
    assert listed.commands == ["a", "b", "c", "d"]
    assert (await named.run(["git", "status"])).stdout == "clean"
    assert (await named.run("rm -r .")).exit_code == 127
    assert (await ScriptedShell(function).run("ls")).stdout == "LS"
    with pytest.raises(NoeticConfigError, match="An answer must be text"):
        await ScriptedShell([3]).run("ls")  # type: ignore[list-item]
    with pytest.raises(NoeticConfigError, match="list of answers"):
        ScriptedShell("one")


@pytest.mark.parametrize("value", ["bash", LocalShell, object(), lambda command: "x"])
def test_what_is_no_shell_is_refused(value: Any) -> None:
    assert checked_shell(None) is None
    with pytest.raises(NoeticConfigError, match="method `run`"):
        checked_shell(value)
