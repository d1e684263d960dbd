"""A process that has imported what kernels import, and becomes one in each of its forks.

    python zygote.py FOLDER

Started by the first launcher that finds none (launcher.py). It has no threads, no loop and no socket of a kernel, so that a
fork begins where a new interpreter would after the same imports: with the environment, folder and streams of its launcher,
random numbers of its own, and with what packages do when a kernel is the first to import them. The seed of the hashes of texts
alone is that of this process: what tests an order asks for a new process (`forked.fresh`).
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib.util
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn

HERE: Final = Path(__file__).parent
sys.path[:] = [folder for folder in sys.path if folder != str(HERE)]  # of `python zygote.py`; a kernel has none such

INLINE: Final = "module://matplotlib_inline.backend_inline"
# Neither matplotlib.pyplot nor the inline backend: they look for a kernel when they are imported.
MODULES: Final = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.debugger", "IPython.core.completerlib", "IPython.core.oinspect",
    "IPython.core.logger", "IPython.core.interactiveshell", "IPython.extensions.storemagic", "jedi", "faulthandler",
    "tornado.locks", "tornado.platform.asyncio", "http.client", "encodings.idna", "encodings.latin_1", "zmq.utils.garbage",
    "numpy", "matplotlib.figure", "matplotlib.axes", "matplotlib.ticker", "matplotlib.backends.backend_agg",
    "pandas.io.formats.html", "pandas.io.formats.string", "PIL.BmpImagePlugin", "PIL.GifImagePlugin", "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin", "PIL.PpmImagePlugin", "IPython.core.debugger", "pdb", "yaml", "pydantic.root_model",
    "ipywidgets", "anywidget", "pydantic", "sklearn.linear_model", "sklearn.feature_extraction.text", "cel",
)  # fmt: skip
PACKAGES: Final = (
    "noetic_nb", "noetic_nb.widgets", "noetic_nb.plots", "noetic_nb.lab", "noetic_nb.lessons", "noetic_nb.testing",
)  # fmt: skip
"""Ours, with every name they offer; they load what is asked for."""
OWN_VARIABLES: Final = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")
"""What scikit-learn sets for itself when it is imported: a kernel that did not ask for it has none."""
BARE: Final = "bare"
"""The file in the folder that says that nothing is to be imported."""
OWNER_S: Final = 1.0
ASKED_S: Final = 10.0
"""How long a launcher that is connected may take to say what it asks for: the others wait meanwhile."""


def load() -> dict[str, str]:
    """Import what kernels import, if it is installed; return the variables of the environment that this sets."""
    before = dict(os.environ)
    # As wide as in a notebook are the tables of a pandas that was imported in one.
    builtins.get_ipython = lambda: SimpleNamespace(kernel=None)  # type: ignore[attr-defined]
    with contextlib.suppress(ImportError):
        importlib.import_module("pandas")
    del builtins.get_ipython  # type: ignore[attr-defined]
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):  # each kernel would read the list of what is installed
        importlib.import_module("matplotlib.backends.registry").backend_registry.list_all()
    for name in PACKAGES:
        with contextlib.suppress(ImportError):
            package = importlib.import_module(name)
            for offered in getattr(package, "__all__", ()):
                with contextlib.suppress(ImportError, AttributeError):
                    getattr(package, offered)
    with contextlib.suppress(Exception):  # without an extra; half a second for each kernel that counts or compares
        importlib.import_module("noetic_nb.tokenizers").get("o200k_base")
        importlib.import_module("noetic_nb.lab._statistics.intervals").student(100_000)
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    return {name: value for name, value in changed.items() if name not in OWN_VARIABLES}


class Asked:
    """What one launcher sent."""

    def __init__(self, channel: socket.socket) -> None:
        head, self.streams, _, _ = socket.recv_fds(channel, 4, 3)
        size, text = int.from_bytes(head, "big"), b""
        while len(text) < size:
            more = channel.recv(size - len(text))
            if not more:
                raise ConnectionError("the launcher has gone")
            text += more
        given: dict[str, Any] = json.loads(text)
        self.arguments: list[str] = given["arguments"]
        self.environ: dict[str, str] = given["environ"]
        self.folder: str = given["folder"]


class Zygote:
    """Forks a kernel for each connection and keeps the two together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner = int((folder / "owner").read_text())
        self.channels: dict[int, socket.socket] = {}
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "forks_from"))
        self.listener.listen(64)
        self.awake, self.woken = socket.socketpair()
        for end in (self.awake, self.woken):
            end.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.awake, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.woken.fileno(), warn_on_full_buffer=False)

    def serve(self) -> Asked | None:
        """Return in each fork what was asked of it, and None here when whoever needs kernels is gone."""
        while self._is_needed():
            ready = {key.fileobj for key, _ in self.selector.select(OWNER_S)}
            if self.awake in ready:
                with contextlib.suppress(BlockingIOError):
                    self.awake.recv(4096)
            self._bury()
            # First what ends, then what begins: a kernel may take the ports of the one before it.
            for pid, channel in list(self.channels.items()):
                if channel in ready:
                    self._pass_on(pid, channel)
            if self.listener in ready and (asked := self._fork()) is not None:
                return asked
        for pid in list(self.channels):
            self._end(pid)
        shutil.rmtree(self.folder, ignore_errors=True)  # of an owner that was killed
        return None

    def _is_needed(self) -> bool:
        try:
            os.kill(self.owner, 0)
        except OSError:
            return False
        return self.folder.exists()

    def _fork(self) -> Asked | None:
        channel, _ = self.listener.accept()
        channel.settimeout(ASKED_S)
        try:
            asked = Asked(channel)
        except (OSError, ValueError):  # its launcher has ended, or says nothing
            channel.close()
            return None
        channel.settimeout(None)
        pid = os.fork()
        if pid == 0:
            channel.close()
            self._leave()
            return asked
        for stream in asked.streams:
            os.close(stream)
        self.channels[pid] = channel
        self.selector.register(channel, selectors.EVENT_READ)
        return None

    def _leave(self) -> None:
        """In a fork: nothing is left of this process but what it imported."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        for each in (self.listener, self.awake, self.woken, *self.channels.values()):
            each.close()

    def _bury(self) -> None:
        """Tell the launchers of kernels that have ended how they did."""
        for pid in list(self.channels):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._forget(pid, os.waitstatus_to_exitcode(status))

    def _forget(self, pid: int, status: int) -> None:
        channel = self.channels.pop(pid)
        self.selector.unregister(channel)
        with contextlib.suppress(OSError):
            channel.sendall(str(status).encode())
        channel.close()

    def _pass_on(self, pid: int, channel: socket.socket) -> None:
        try:
            numbers = channel.recv(16)
        except OSError:
            numbers = b""
        if not numbers:  # the launcher was killed
            self._end(pid)
        for number in numbers:
            self._signal(pid, number)

    @staticmethod
    def _signal(pid: int, number: int) -> None:
        for send in (os.killpg, os.kill):  # a fork has no group of its own at first
            try:
                send(pid, number)
            except ProcessLookupError:
                continue
            return

    def _end(self, pid: int) -> None:
        self._signal(pid, signal.SIGKILL)
        self._forget(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def become(asked: Asked, path: list[str], environ: dict[str, str]) -> None:
    """Take over what a new process would have from its launcher, and what packages do when a kernel imports them."""
    for number, stream in enumerate(asked.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environ | asked.environ)
    os.chdir(asked.folder)
    given = [str(Path(each).resolve()) for each in asked.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [*given, *path]
    launcher = importlib.util.find_spec("ipykernel_launcher")
    sys.argv[:] = [launcher.origin if launcher and launcher.origin else "", *asked.arguments]
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "matplotlib" in sys.modules:
        os.environ["MPLBACKEND"] = asked.environ.get("MPLBACKEND") or INLINE
        sys.modules["matplotlib"].rcParams["backend"] = os.environ["MPLBACKEND"]
    if "ipywidgets" in sys.modules:
        sys.modules["ipywidgets"].register_comm_target()


def end_control() -> None:
    """End the thread that took the request to shut down, which may still flush the output.

    ipykernel first ends the thread that flushes, and this one then waits for it until a signal ends the kernel: every fourth
    kernel took three seconds to end.
    """
    for thread in threading.enumerate():
        if thread.name == "Control":
            thread.stop()  # type: ignore[attr-defined]
            thread.join()


def leave_as(work: Callable[[], object]) -> NoReturn:
    """Do it and end as Python does, but for taking modules apart, which copies each page shared with the zygote."""
    status = 0
    try:
        work()
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    threading._shutdown()  # type: ignore[attr-defined]  # threads that are no daemons are waited for
    end_control()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def main() -> None:
    folder = Path(sys.argv[1])
    own = {str(Path(each).resolve()) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each}
    path = [each for each in sys.path if str(Path(each).resolve()) not in own]
    environ = {} if (folder / BARE).exists() else load()
    if threading.active_count() != 1:
        raise RuntimeError(f"A process with threads cannot fork kernels: {threading.enumerate()}")
    gc.collect()
    gc.freeze()
    asked = Zygote(folder).serve()
    if asked is not None:
        from ipykernel.kernelapp import launch_new_instance

        become(asked, path, environ)
        # The kernel watches the process that forked it, as another would watch the one that started it.
        leave_as(lambda: launch_new_instance(parent_handle=os.getppid()))


if __name__ == "__main__":
    main()
