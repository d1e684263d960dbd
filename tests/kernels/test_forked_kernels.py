"""Kernels that are forks: the same as new processes in what they have, and ended, interrupted and told apart as those are."""

from __future__ import annotations

import ast
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from tests.kernels import forked
from tests.kernels.zygote import Zygote, end_control

ROOT = Path(__file__).parents[2]

if os.environ.get(forked.FOLDER) is None:
    pytest.skip("processes cannot fork here", allow_module_level=True)


class Kernel:
    def __init__(self, is_fresh: bool = False, **more: Any) -> None:
        with forked.fresh() if is_fresh else nullcontext():
            self.manager, self.client = start_new_kernel(**more)

    def run(self, code: str) -> Any:
        return self.client.execute_interactive(code, timeout=60, output_hook=lambda message: None)["content"]

    def value(self, expression: str, after: str = "") -> Any:
        answer = self.client.execute_interactive(
            after, timeout=60, user_expressions={"it": expression}, output_hook=lambda message: None
        )["content"]
        assert answer["status"] == "ok", answer
        return ast.literal_eval(answer["user_expressions"]["it"]["data"]["text/plain"])

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.context.destroy(linger=0)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Kernel]]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    started: list[Kernel] = []

    def start(**more: Any) -> Kernel:
        started.append(Kernel(**more))
        return started[-1]

    yield start
    for each in started:
        each.close()


# What a new process and a fork must agree on, each after the imports of a notebook.
AGREED = {
    "flags and command": "(tuple(sys.flags), sys.argv[:2], sys.executable, sys.prefix, sys.warnoptions, '__file__' in globals())",
    "path": "(sys.path, os.getcwd())",
    "environment": "sorted((k, v) for k, v in os.environ.items() if k not in ('JPY_PARENT_PID', 'JUPYTER_PATH'))",
    "signals": "[str(signal.getsignal(n)).split(' at ')[0] for n in sorted(signal.valid_signals())]",
    "threads": "sorted(re.sub('-[0-9]+', '', t.name) for t in threading.enumerate())",
    "targets": "sorted(get_ipython().kernel.comm_manager.targets)",
    "tables": "[(k, pandas.get_option(k)) for k in ('display.max_columns', 'display.max_rows', 'display.width')]",
    "figures": "sorted((k, repr(v)) for k, v in matplotlib.rcParams.items())",
    "formats": "sorted((k, sorted(str(t) for t in f.type_printers), sorted(map(str, f.deferred_printers))) "
    "for k, f in get_ipython().display_formatter.formatters.items())",
    "events": "{k: [f.__qualname__ for f in v] for k, v in get_ipython().events.callbacks.items()}",
    "hooks": "(str(sys.excepthook).split(' at ')[0], sys.displayhook.__class__.__name__, sys.stdout.__class__.__name__, "
    "sys.meta_path.__len__(), sys.getrecursionlimit(), gc.isenabled(), gc.get_threshold())",
    "locale": "(locale.getlocale(), sys.getfilesystemencoding(), os.umask(os.umask(0o22)))",
}
IMPORTS = """
import gc, locale, os, re, signal, sys, threading
import matplotlib, matplotlib.pyplot, numpy, pandas, ipywidgets, anywidget
import noetic_nb as nn
from noetic_nb import plots
from noetic_nb.widgets import *
"""


def test_a_fork_and_a_new_process_have_the_same(kernel: Callable[..., Kernel], tmp_path: Path) -> None:
    fork, new = kernel(cwd=str(tmp_path)), kernel(cwd=str(tmp_path), is_fresh=True)
    asked = f"repr({{{', '.join(f'{name!r}: repr({code})' for name, code in AGREED.items())}}})"

    here, there = (ast.literal_eval(each.value(asked, after=IMPORTS)) for each in (fork, new))

    assert set(here) == set(AGREED)
    for name in AGREED:
        assert ast.literal_eval(here[name]) == ast.literal_eval(there[name]), name


def test_forks_are_told_apart_from_each_other(kernel: Callable[..., Kernel]) -> None:
    first, second = kernel(), kernel()
    after = "import os, random, uuid, numpy, tempfile"
    own = (
        "(os.getpid(), os.getpgrp(), random.random(), numpy.random.rand(), str(uuid.uuid4()), "
        "next(tempfile._get_candidate_names()))"
    )

    for one, other in zip(first.value(own, after), second.value(own, after), strict=True):
        assert one != other
    first.run("import noetic_nb\nnoetic_nb.mark = 1")
    assert second.value("hasattr(noetic_nb, 'mark')", "import noetic_nb") is False


def test_kernels_are_forks_unless_a_test_asks_for_new_processes(kernel: Callable[..., Kernel]) -> None:
    asked = "(__import__('os').getppid(), hash('a'))"
    first, second, new = [each.value(asked) for each in (kernel(), kernel(), kernel(is_fresh=True))]

    assert first == second
    assert first[0] != new[0] == os.getpid()
    assert first[1] != new[1]  # of another seed


def test_a_fork_is_interrupted(kernel: Callable[..., Kernel]) -> None:
    begun = kernel()
    # What comes after a fault would be refused for a moment otherwise.
    asked = begun.client.execute("print('begun', flush=True)\nwhile True: pass", stop_on_error=False)
    while True:  # until the cell runs
        message = begun.client.get_iopub_msg(timeout=60)
        if message["msg_type"] == "stream":
            break
    begun.manager.interrupt_kernel()
    reply = begun.client._recv_reply(asked, timeout=60)

    assert reply["content"]["ename"] == "KeyboardInterrupt"
    assert begun.value("1 + 1") == 2


@pytest.mark.parametrize("ends", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_fork_that_ends_is_seen_to_have_ended_as_it_did(kernel: Callable[..., Kernel], ends: str) -> None:
    begun = kernel()
    begun.client.execute(f"import os, signal\n{ends}")

    assert begun.manager.provisioner.process.wait(60) == (3 if "_exit" in ends else -signal.SIGKILL)


class Control(threading.Thread):
    """Takes requests as that of ipykernel does."""

    def __init__(self) -> None:
        super().__init__(name="Control")
        self.is_asked = threading.Event()

    def run(self) -> None:
        self.is_asked.wait()

    def stop(self) -> None:
        self.is_asked.set()


def test_the_thread_that_takes_requests_has_ended_before_the_kernel_takes_its_parts_away() -> None:
    control = Control()
    control.start()

    end_control()

    assert not control.is_alive()


def test_a_fork_ends_with_what_started_it_and_leaves_its_ports(kernel: Callable[..., Kernel]) -> None:
    begun = kernel()
    pid = begun.value("__import__('os').getpid()")

    begun.client.stop_channels()
    begun.manager.restart_kernel(now=True)
    begun.client = begun.manager.client()
    begun.client.start_channels()
    begun.client.wait_for_ready(timeout=60)

    assert begun.value("__import__('os').getpid()") != pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


OWNER = """
import sys
from jupyter_client.manager import start_new_kernel
from tests.kernels import forked
with forked.offered(is_bare=True) as folder:
    open("folder", "w").write(str(folder))
    manager, client = start_new_kernel()
    client.execute("import os\\nopen('pids', 'w').write(f'{os.getpid()} {os.getppid()}')", reply=True, timeout=60)
    import os
    os._exit(0)
"""


def test_what_forks_ends_with_its_owner_and_so_do_its_kernels(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", OWNER],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=100,
    )
    left = [int(pid) for pid in (tmp_path / "pids").read_text().split()]

    gone = subprocess.run(
        [sys.executable, "-c", "import os, sys, time\n"
         "def there(p):\n"
         "    try: os.kill(p, 0)\n"
         "    except OSError: return False\n"
         "    return True\n"
         "while any(there(int(p)) for p in sys.argv[1:]): time.sleep(0.05)", *map(str, left)], timeout=60
    )  # fmt: skip

    assert gone.returncode == 0
    assert not Path((tmp_path / "folder").read_text()).exists()


@pytest.mark.timeout(20)
def test_a_kernel_is_ended_before_it_has_a_group_of_its_own() -> None:
    zygote = Zygote.__new__(Zygote)
    zygote.channels, zygote.selector = {}, selectors.DefaultSelector()
    own, launcher = socket.socketpair()
    kernel = subprocess.Popen(["sleep", "100"])  # in the group of this process, as a fork is at first
    zygote.channels[kernel.pid] = own
    zygote.selector.register(own, selectors.EVENT_READ)

    launcher.shutdown(socket.SHUT_WR)  # the launcher was killed
    zygote._pass_on(kernel.pid, own)

    assert launcher.recv(16) == str(-signal.SIGKILL).encode()
    kernel.wait()  # which finds that it was waited for
    launcher.close()
    zygote.selector.close()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("said", [b"", (100).to_bytes(4, "big"), (100).to_bytes(4, "big") + b'{"arguments"'])
def test_a_launcher_that_says_nothing_holds_up_nobody(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr("tests.kernels.zygote.ASKED_S", 0.01)
    zygote, (own, launcher) = Zygote.__new__(Zygote), socket.socketpair()
    zygote.listener = SimpleNamespace(accept=lambda: (own, None))
    launcher.sendall(said)

    assert zygote._fork() is None

    launcher.close()
