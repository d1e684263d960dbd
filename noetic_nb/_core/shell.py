"""Commands for an agent: a small protocol, a local shell, and a scripted one.

A local shell limits run time, output and the visible environment of a command. It is not a sandbox: a command may read
and write whatever its user may.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from noetic_nb._core.cards import with_card
from noetic_nb.errors import NoeticConfigError

Command: TypeAlias = str | Sequence[str]
"""A line for the system's shell, or a program and its arguments, which bypass the shell."""

TIMEOUT_MS: Final = 60_000.0
MAX_OUTPUT: Final = 65_536  # about 16 000 tokens: more than a model should read from one command
# Variables that programs need to be found and to use the user's language; none of them contains a secret.
PASSED_ON: Final = (
    "PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TERM",
    "SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP",
)  # fmt: skip
# A POSIX shell's exit code for a missing program.
NOT_FOUND: Final = 127
_PIECE: Final = 65_536


@with_card
@dataclass(frozen=True, slots=True)
class ShellResult:
    """The result of a command.

    Attributes
    ----------
    exit_code : int or None
        0 for success; None if the command was stopped at its time limit.
    stdout, stderr : str
        Its output; bytes that are not UTF-8 are replaced.
    timed_out : bool
        Whether it was stopped at its time limit.
    truncated : bool
        Whether the middle of its output was left out.
    duration_ms : float
        Its duration.
    """

    exit_code: int | None = 0
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    truncated: bool = False
    duration_ms: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.exit_code == 0


@runtime_checkable
class Shell(Protocol):
    """Runs commands: the ``shell`` of a harness."""

    async def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        timeout_ms: float | None = None,
        stdin: str | bytes | None = None,
    ) -> ShellResult:
        """Run a command to its end.

        Parameters
        ----------
        command : str or sequence of str
            A line for the shell, or a program and its arguments.
        cwd : str, optional
            A folder below the shell's own.
        timeout_ms : float, optional
            Time limit, if less than the shell's own.
        stdin : str or bytes, optional
            Standard input.
        """


class LocalShell:
    """Run commands on this machine, in one folder, with limits.

    Parameters
    ----------
    cwd : str or path
        The working folder, which is also the commands' home folder.
    timeout_ms : float
        Time limit of a command; then it and everything it has started are stopped.
    max_output : int, bytes
        Bytes kept of stdout and of stderr, from the beginning and from the end.
    pass_env : iterable of str
        Names of environment variables visible to commands besides `PASSED_ON`; all others, including keys, stay hidden.
    env : mapping of str to str, optional
        Variables to set for commands.

    Raises
    ------
    NoeticConfigError
        ``INVALID_OPTION``.

    References
    ----------
    .. [1] docs/behaviour/runtime.md, "Shell".

    Examples
    --------
    >>> shell = LocalShell()
    >>> done = asyncio.run(shell.run("echo hello; exit 3"))
    >>> done.stdout.strip(), done.exit_code, done.timed_out
    ('hello', 3, False)
    """

    def __init__(
        self,
        cwd: str | os.PathLike[str] = ".",
        *,
        timeout_ms: float = TIMEOUT_MS,
        max_output: int = MAX_OUTPUT,
        pass_env: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        if not Path(cwd).is_dir():
            raise _refused("There is no such folder", os.fspath(cwd), "Make it first.")
        if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not 0 < timeout_ms < float("inf"):
            raise _refused("A time limit must be a number of milliseconds above 0", timeout_ms, "Use 60_000.")
        if isinstance(max_output, bool) or not isinstance(max_output, int) or max_output < 2:
            raise _refused("An output limit must be at least 2 bytes", max_output, "Use 65_536.")
        if isinstance(pass_env, str):
            raise _refused("Names of variables must be a list", pass_env, f"Use pass_env=[{pass_env!r}].")
        self.cwd = Path(cwd).resolve()  # resolved now, because a notebook may change its working folder later
        self.timeout_ms = float(timeout_ms)
        self.max_output = max_output
        self._passed_on = (*PASSED_ON, *pass_env)
        self._env = dict(env or {})

    async def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        timeout_ms: float | None = None,
        stdin: str | bytes | None = None,
    ) -> ShellResult:
        """Run a command to its end; see `Shell.run`.

        Raises
        ------
        NoeticConfigError
            ``INVALID_OPTION`` for an invalid command, or a folder that is not below the shell's own.
        """
        if not command or not (isinstance(command, str) or all(isinstance(part, str) for part in command)):
            raise _refused("A command must be text, or a list of a program and its arguments", command, "Use 'ls -l'.")
        if "\0" in "".join(command):
            raise _refused("A command must not contain NUL", command, "Take it out.")
        limit_ms = self.timeout_ms if timeout_ms is None else max(0.0, min(timeout_ms, self.timeout_ms))
        place = self._folder(cwd)
        options: dict[str, Any] = {
            "cwd": place,
            "env": self._environment(),
            "stdin": asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            "stdout": asyncio.subprocess.PIPE,
            "stderr": asyncio.subprocess.PIPE,
            # A separate process group, so that everything the command starts can be stopped with it.
            "start_new_session": True,
        }
        start = time.monotonic()
        try:
            if isinstance(command, str):
                process = await asyncio.create_subprocess_shell(command, **options)
            else:
                process = await asyncio.create_subprocess_exec(*command, **options)
        except OSError as exc:
            return ShellResult(
                NOT_FOUND, stderr=f"{command if isinstance(command, str) else command[0]}: {exc.strerror}\n"
            )
        out, err = _Kept(self.max_output), _Kept(self.max_output)
        timed_out = False
        try:
            async with asyncio.timeout(limit_ms / 1_000):
                await asyncio.gather(
                    _write(process.stdin, stdin), _read(process.stdout, out), _read(process.stderr, err), process.wait()
                )
        except TimeoutError:
            timed_out = True
        finally:
            # However it ended, even by cancellation: nothing that the command has started keeps running.
            await _stop(process)
        return ShellResult(
            None if timed_out else process.returncode,
            out.text(),
            err.text(),
            timed_out,
            out.truncated or err.truncated,
            (time.monotonic() - start) * 1_000,
        )

    def _environment(self) -> dict[str, str]:
        passed = {name: os.environ[name] for name in self._passed_on if name in os.environ}
        # Not the user's own home, where programs look for keys.
        return passed | {"HOME": str(self.cwd), "PWD": str(self.cwd)} | self._env

    def _folder(self, cwd: str | None) -> Path:
        if cwd is None:
            return self.cwd
        place = None if "\0" in cwd or cwd.startswith("~") else (self.cwd / cwd).resolve()
        if place is None or not place.is_relative_to(self.cwd) or not place.is_dir():
            raise _refused(
                "A command must run in a folder below the shell's own", cwd, "Use a relative path, such as 'src'."
            )
        return place

    def __repr__(self) -> str:
        return f"LocalShell({self.cwd.name!r}, timeout_ms={self.timeout_ms:g}, max_output={self.max_output})"


class _Kept:
    """The beginning and the end of an output, collected as it arrives."""

    def __init__(self, limit: int) -> None:
        # Errors appear at the end as often as at the beginning.
        self._head, self._tail = bytearray(), bytearray()
        self._tail_size = limit // 2
        self._head_size = limit - self._tail_size
        self._left_out = 0

    @property
    def truncated(self) -> bool:
        return self._left_out > 0

    def add(self, piece: bytes) -> None:
        room = self._head_size - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        surplus = len(self._tail) - self._tail_size
        if surplus > 0:
            del self._tail[:surplus]
            self._left_out += surplus

    def text(self) -> str:
        middle = f"\n... {self._left_out} bytes left out ...\n".encode() if self._left_out else b""
        return bytes(self._head + middle + self._tail).decode("utf-8", "replace")


async def _read(stream: asyncio.StreamReader | None, kept: _Kept) -> None:
    assert stream is not None
    # Read to the end, kept or not: a command whose pipe is full would wait for ever.
    while piece := await stream.read(_PIECE):
        kept.add(piece)


async def _write(stream: asyncio.StreamWriter | None, text: str | bytes | None) -> None:
    if stream is None or text is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may end before it has read everything
        stream.write(text.encode("utf-8", "replace") if isinstance(text, str) else text)
        await stream.drain()
    stream.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    # Processes that a finished command left behind are in its group, which exists as long as they do.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    if process.returncode is None:
        # Shielded, because a second cancellation must not leave an unawaited process behind.
        await asyncio.shield(process.wait())


def _refused(what: str, given: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError("INVALID_OPTION", f"{what}.", given=given, hint=hint, field="shell")


def checked_shell(shell: Any) -> Shell | None:
    """Return the shell, or None; raises `NoeticConfigError` ``INVALID_OPTION``."""
    if shell is None or (isinstance(shell, Shell) and not isinstance(shell, type)):
        return shell
    raise _refused("A shell needs a method `run`", shell, "Use LocalShell('folder') or ScriptedShell([...]).")


Answer: TypeAlias = str | ShellResult | BaseException
"""An answer of a scripted shell: the command's output, a whole result, or an exception to raise."""


class ScriptedShell:
    """Answer commands from a script; nothing runs.

    Parameters
    ----------
    script : sequence, mapping or callable
        A list of answers, consumed in order; answers by command (a list of words is joined by blanks); or a function of
        the command, sync or async. An answer is a text for stdout, a `ShellResult`, or an exception to raise. A command
        missing from a mapping is "not found".

    Attributes
    ----------
    commands : list
        The commands that were run, in order.

    Examples
    --------
    >>> shell = ScriptedShell({"git status": "clean"})
    >>> asyncio.run(shell.run(["git", "status"])).stdout, asyncio.run(shell.run("ls")).exit_code
    ('clean', 127)
    """

    def __init__(
        self, script: Sequence[Answer] | Mapping[str, Answer] | Callable[[str], Answer | Awaitable[Answer]] = ()
    ) -> None:
        if isinstance(script, str) or not (callable(script) or isinstance(script, Sequence | Mapping)):
            what = "A scripted shell needs a list of answers, a mapping, or a function."
            raise NoeticConfigError("INVALID_SCRIPT", what, given=script, hint="Use ScriptedShell(['first answer']).")
        self._script = script
        self.commands: list[Command] = []
        self._answered = 0

    async def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        timeout_ms: float | None = None,
        stdin: str | bytes | None = None,
    ) -> ShellResult:
        """Answer a command; see `Shell.run`.

        Raises
        ------
        NoeticConfigError
            ``INVALID_SCRIPT`` if a list has no answer left, or an answer is invalid.
        """
        self.commands.append(command)
        line = command if isinstance(command, str) else " ".join(command)
        answer: Any
        if callable(self._script):
            answer = self._script(line)
            answer = await answer if hasattr(answer, "__await__") else answer
        elif isinstance(self._script, Mapping):
            answer = self._script.get(line, ShellResult(NOT_FOUND, stderr=f"{line}: not in the script\n"))
        elif self._answered < len(self._script):
            answer = self._script[self._answered]
            self._answered += 1
        else:
            raise self._wrong(f"The script has no more answers after {self._answered}.", command)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            return ShellResult(stdout=answer)
        if not isinstance(answer, ShellResult):
            raise self._wrong("An answer must be text, a ShellResult, or an exception.", answer)
        return answer

    def _wrong(self, what: str, given: object) -> NoeticConfigError:
        return NoeticConfigError("INVALID_SCRIPT", what, given=given, hint="Add it to the script.")

    def __repr__(self) -> str:
        return f"ScriptedShell({len(self.commands)} commands)"
