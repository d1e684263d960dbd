"""A temporary JupyterLab or Notebook 7 on loopback, and a second client for the kernel of a notebook."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from jupyter_client import BlockingKernelClient

from tests.kernels.forked import paths_of_fresh

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

    from tests.browser.window import Window

T = TypeVar("T")
ROOT: Final = Path(__file__).resolve().parents[2]
SETTINGS: Final = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    # Cells outside the viewport must stay in the page, so that tests can find them.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
# Extensions that no test notebook needs: each page would load them, and each server search for languages and terminals.
# Notebook 7 has its own versions of all of them.
LEFT_OUT: Final = (
    *(
        f"@jupyterlab/{name}-extension"
        for name in (
            "audio", "celltags", "console", "csvviewer", "debugger", "documentsearch", "extensionmanager", "fileeditor", "help",
            "htmlviewer", "hub", "imageviewer", "inspector", "javascript", "json", "json-lines", "launcher", "logconsole", "lsp",
            "markdownviewer", "mermaid", "pdf", "pluginmanager", "running", "settingeditor", "terminal",
            "theme-dark-high-contrast", "toc", "tooltip", "vega5", "video", "workspaces",
        )
    ),
    *(
        f"@jupyterlab/notebook-extension:{name}"
        for name in ("cloned-outputs", "language-server", "search", "toc")
    ),
    "@jupyterlab/apputils-extension:announcements", "@jupyterlab/apputils-extension:licenses-client",
    "@jupyterlab/apputils-extension:licenses-plugin", "@jupyter-notebook/lab-extension", "jupyterlab-jupytext",
)  # fmt: skip
SERVER_LEFT_OUT: Final = ("jupyter_lsp", "jupyter_server_terminals", "jupyterlab_jupytext", "notebook", "notebook_shim")


def wait_for(check: Callable[[], T], what: str, *, seconds: float = 30.0) -> T:
    """Return the first true result of `check`; polls, because the other side is another process."""
    deadline, pause = time.monotonic() + seconds, 0.005
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"Not within {seconds} s: {what}. Last answer: {answer!r}")
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


# Ends a process when its parent has ended: a killed worker cannot clean up.
FOLLOW: Final = """
import os, signal, threading, time
def follow():
    while os.getppid() == {parent}:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=follow, daemon=True).start()
"""
# Starts a front end like its command. Skips an optional text format whose import takes a second, and does not start the
# program that builds front ends, which would only report download sources.
START: Final = f"""{FOLLOW}
import sys
sys.modules["rfc3987_syntax"] = None
import jupyterlab.commands
jupyterlab.commands._yarn_config = lambda logger: {{{{"yarn config": {{{{}}}}}}}}
from {{module}} import main
sys.exit(main())
"""

# Closing a view ends its kernel subshell. ipykernel drops a message that arrives at the same moment, and Python reports
# the lost task in the cell that next collects garbage, which may belong to another test.
STARTUP: Final = """
import faulthandler, logging, os, signal, sys, warnings
faulthandler.register(signal.SIGUSR1, open(f"kernel-{os.getpid()}.stacks", "w"))
logging.getLogger("asyncio").addFilter(lambda record: "Kernel.shell_main" not in record.getMessage())
warnings.filterwarnings("ignore", "coroutine 'Kernel.shell_main' was never awaited")
# Python cannot issue this warning inside the methods of a named tuple, and reports that in its place.
report = sys.unraisablehook
sys.unraisablehook = lambda lost: None if "Kernel.shell_main" in repr(lost.object) else report(lost)
"""

# How to start each front end, where its notebooks are, and whether a kernel is a new process.
FRONT_ENDS: Final = {
    "lab": (
        "jupyterlab.labapp",
        "doc/tree",
        (
            "--LabApp.extension_manager=readonly",
            "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            f"--ServerApp.jpserver_extensions={dict.fromkeys(SERVER_LEFT_OUT, False)}",
        ),
        "LabApp",
        False,
    ),
    "notebook": ("notebook.app", "notebooks", (), "JupyterNotebookApp", True),
}


class Lab:
    """A server of JupyterLab or Notebook 7 in its own folder."""

    def __init__(self, root: Path, front_end: str = "lab") -> None:
        self.root = root
        module, self.page, more, app, self.has_fresh_kernels = FRONT_ENDS[front_end]
        self.token = secrets.token_hex(8)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        settings = root / "app_settings"
        settings.mkdir()
        (settings / "overrides.json").write_text(json.dumps(SETTINGS))
        if front_end == "lab":
            page = {"disabledExtensions": dict.fromkeys(LEFT_OUT, True), "buildCheck": False}
            (settings / "page_config.json").write_text(json.dumps(page))
        startup = root / "ipython" / "profile_default" / "startup"
        startup.mkdir(parents=True)
        (startup / "subshells.py").write_text(STARTUP)
        self.context: BrowserContext | None = None
        self.window: Window | None = None
        self._log = (root / "lab.log").open("w")
        self._process = subprocess.Popen(
            [
                sys.executable, "-c", START.format(module=module, parent=os.getpid()),
                "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
                f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={root}",
                f"--{app}.app_settings_dir={settings}", *more,
                f"--{app}.expose_app_in_browser=True",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._environment(),
            cwd=root,
        )  # fmt: skip
        wait_for(self._is_up, f"the server of {front_end} answers", seconds=90)

    def _environment(self) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTERLAB_SETTINGS_DIR": "user_settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
            "MPLCONFIGDIR": "matplotlib",
        }
        return {
            **os.environ,
            **{name: str(self.root / folder) for name, folder in own.items()},
            **({"JUPYTER_PATH": paths_of_fresh()} if self.has_fresh_kernels else {}),
            "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "",
        }

    def _is_up(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(f"The server ended: {(self.root / 'lab.log').read_text()[-2000:]}")
        try:
            self.api("/api/status")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def api(self, path: str, *, method: str = "GET") -> Any:
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": f"token {self.token}"}, method=method
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def stacks(self) -> str:
        """Return where the threads of all kernels are now, to explain a kernel that hangs."""
        files = [*self.root.glob("kernel-*.stacks")]
        for file in files:
            with suppress(ProcessLookupError):
                os.kill(int(file.stem.partition("-")[2]), signal.SIGUSR1)
        time.sleep(1)
        return "\n".join(f"{file.name}:\n{file.read_text()}" for file in files)

    def close(self) -> None:
        if self.window is not None:
            self.window.close()
        if self.context is not None:
            self.context.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class Kernel:
    """A second client of a notebook's kernel."""

    def __init__(self, lab: Lab, kernel_id: str) -> None:
        self._client = BlockingKernelClient(connection_file=str(lab.root / "runtime" / f"kernel-{kernel_id}.json"))
        self._client.load_connection_file()
        # Only replies: other messages would be discarded.
        self._client.start_channels(iopub=False, stdin=False, hb=False, control=False)

    def run(self, code: str) -> None:
        """Run statements."""
        self._ask(code, {})

    def value(self, expression: str) -> str:
        """Return the repr of an expression."""
        return str(self._ask("", {"value": expression})["value"])

    def says(self, expression: str, wanted: str) -> None:
        """Wait until the repr of an expression has this value: messages from the page take another path, and may arrive later."""
        wait_for(lambda: self.value(expression) == wanted, f"{expression} is {wanted}")

    def _ask(self, code: str, expressions: dict[str, str]) -> dict[str, str]:
        asked = self._client.execute(code, silent=False, store_history=False, user_expressions=expressions)
        while True:
            reply = self._client.get_shell_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == asked:
                break
        content = reply["content"]
        if content["status"] != "ok":
            raise AssertionError(f"The kernel failed: {content.get('ename')}: {content.get('evalue')}")
        answers = {}
        for name, answer in content["user_expressions"].items():
            if answer["status"] != "ok":
                raise AssertionError(f"{expressions[name]} failed in the kernel: {answer['evalue']}")
            answers[name] = answer["data"]["text/plain"]
        return answers

    def close(self) -> None:
        self._client.stop_channels()
