"""Workers of the suite begin as forks of the process that leads them, once it has imported what all of them would.

Where that process has threads, or the system is none whose libraries may be forked, pytest-xdist starts them as it would. So it
does with a worker in place of one that crashed.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.pathlib import import_path
from _pytest.warnings import catch_warnings_for_item
from execnet import gateway_io
from execnet.gateway_base import Popen2IO
from hypothesis.internal.conjecture.providers import _get_local_constants

from noetic_nb.errors import NoeticConfigError
from noetic_nb.tokenizers import get

TASKS = Path("/proc/self/task")
"""Has an entry for each thread, also for those that Python did not start."""
SILENCE_S = 1200
"""How long a worker may say nothing, seconds: a test has 900 at most, and its end is told."""
LOOK_MS = 1000
"""How often to look whether a worker that says nothing is there."""
ENDING_S = 60
"""How long threads of a worker and what it does at its end may take, seconds, once its tests are done."""


class Reader:
    """Reads what a worker sends, and knows when no more will come.

    The end of the pipe does not tell: what a test has forked has it open too, and may outlive a worker that was killed.
    """

    def __init__(self, pipe: int, worker: int, has_ended: Callable[[], bool], silence_s: float | None) -> None:
        self.pipe, self.worker, self.has_ended, self.silence_s = pipe, worker, has_ended, silence_s
        self.is_silent = False
        self.received = bytearray()
        self.poll = select.poll()
        self.poll.register(pipe, select.POLLIN)

    def read(self, numbytes: int) -> bytes:
        while len(self.received) < numbytes:
            self.received += self.more()
        data = bytes(self.received[:numbytes])
        del self.received[:numbytes]
        return data

    def more(self) -> bytes:
        waited_ms = 0  # counted and not measured: the leader may have been stopped for a while
        while not self.poll.poll(LOOK_MS):
            waited_ms += LOOK_MS
            if self.has_ended():
                if not self.poll.poll(0):
                    raise EOFError("the worker has ended")
            elif self.silence_s is not None and waited_ms >= 1000 * self.silence_s:
                self.is_silent = True
                os.kill(self.worker, signal.SIGKILL)
        data = os.read(self.pipe, 65536)
        if not data:
            raise EOFError("the worker has closed its pipe")
        return data


class ForkedIO(Popen2IO):
    """What execnet writes to a fork, and reads from it."""

    def __init__(self, pid: int, to_fork: int, from_fork: int, execmodel: Any) -> None:
        super().__init__(os.fdopen(to_fork, "wb"), os.fdopen(from_fork, "rb"), execmodel)
        self.pid = pid

    def has_ended(self) -> bool:
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # waited for
            return True

    def wait(self) -> int | None:
        with suppress(ChildProcessError):  # waited for
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Fork the workers that are about to be started."""
    own = [spec for spec in specs if spec.popen and not spec.python]
    if len(own) != len(specs) or not TASKS.exists():
        return
    gc.disable()  # what is imported stays
    import_suite(config)
    gc.enable()
    if len(list(TASKS.iterdir())) > 1:
        return
    gc.freeze()  # a look for garbage would write to every object, and so copy all that forks share
    with uncaptured(config):
        forks = fork_each([spec.id for spec in own])
    start = gateway_io.create_io

    silence_s = None if getattr(config.option, "timeout", None) == 0 else SILENCE_S

    def create_io(spec: Any, execmodel: Any) -> Any:
        if spec.id in forks:
            io: Any = ForkedIO(*forks.pop(spec.id), execmodel)
            pid, has_ended = io.pid, io.has_ended
        else:
            io = start(spec, execmodel)
            pid, has_ended = io.popen.pid, lambda: io.popen.poll() is not None
        io.reader = Reader(io.infile.fileno(), pid, has_ended, silence_s)
        io.read = io.reader.read
        return io

    gateway_io.create_io = create_io


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(report: Any) -> None:
    """Say of a worker that was ended why it was."""
    reader = getattr(report.node.gateway._io, "reader", None)
    if reader is not None and reader.is_silent:
        report.longrepr += f": it said nothing for {reader.silence_s} s and was ended"


def import_suite(config: pytest.Config) -> None:
    """Import the files of the whole suite, where it is run; what cannot be imported, or warns, is left to collecting."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    with catch_warnings_for_item(config, config.hook, "collect", None):
        folders = [config.rootpath / name for name in config.getini("testpaths")]
        for file in sorted(file for folder in folders for file in folder.rglob("test_*.py")):
            try:
                import_path(file, mode="importlib", root=config.rootpath, consider_namespace_packages=False)
            except (Exception, pytest.skip.Exception):
                # Half of it is there, and would be taken for all of it.
                for name in [
                    name for name, each in sys.modules.items() if getattr(each, "__file__", None) == str(file)
                ]:
                    del sys.modules[name]
    if config.rootpath != Path(__file__).parents[1]:  # a suite of one of our tests
        return
    with suppress(NoeticConfigError):  # the packages of an extra
        get("o200k_base")  # hundreds of tests count by it
    _get_local_constants()  # hypothesis reads them from every file of the library, and keeps them


@contextmanager
def uncaptured(config: pytest.Config) -> Iterator[None]:
    """Give standard streams back, for forks to have them."""
    capture = config.pluginmanager.getplugin("capturemanager")
    sys.stdout.flush()
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    try:
        yield
    finally:
        if capture is not None:
            capture.resume_global_capture()


def fork_each(names: list[str]) -> dict[str, tuple[int, int, int]]:
    """Return of each fork its id, and the ends of pipes to it and from it."""
    forks: dict[str, tuple[int, int, int]] = {}
    for name in names:
        (its_input, to_fork), (from_fork, its_output) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            # A worker ends when nobody can write to it any more.
            for end in (to_fork, from_fork, *(end for fork in forks.values() for end in fork[1:])):
                os.close(end)
            serve(its_input, its_output)
        os.close(its_input)
        os.close(its_output)
        forks[name] = pid, to_fork, from_fork
    return forks


def serve(its_input: int, its_output: int) -> NoReturn:
    """Become what a new process would be that runs what execnet sends it, and end as that would."""
    status = 1
    try:
        for number, end in enumerate((its_input, its_output)):
            os.dup2(end, number)
            os.close(end)
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        sys.argv[:] = ["-c"]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(gateway_io.popen_bootstrapline, main.__dict__)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(ENDING_S)
        with suppress(BaseException):
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stderr.flush()
        os._exit(status)
