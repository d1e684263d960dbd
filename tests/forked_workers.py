"""Workers of the suite begin as forks of the process that leads them, once it has imported what all of them would.

Where that process has threads, or the system is none whose libraries may be forked, pytest-xdist starts them as it would. So it
does with a worker in place of one that crashed.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.pathlib import import_path
from _pytest.warnings import catch_warnings_for_item
from execnet import gateway_io
from execnet.gateway_base import Popen2IO
from hypothesis.internal.conjecture.providers import _get_local_constants

TASKS = Path("/proc/self/task")
"""Has an entry for each thread, also for those that Python did not start."""


class ForkedIO(Popen2IO):
    """What execnet writes to a fork, and reads from it."""

    def __init__(self, pid: int, to_fork: int, from_fork: int, execmodel: Any) -> None:
        super().__init__(os.fdopen(to_fork, "wb"), os.fdopen(from_fork, "rb"), execmodel)
        self.pid = pid

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

    def create_io(spec: Any, execmodel: Any) -> Any:
        return ForkedIO(*forks.pop(spec.id), execmodel) if spec.id in forks else start(spec, execmodel)

    gateway_io.create_io = create_io


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
        with suppress(BaseException):
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stderr.flush()
        os._exit(status)
