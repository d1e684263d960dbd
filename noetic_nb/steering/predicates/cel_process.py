"""One expression in a process of its own, which is ended when an evaluation takes too long and started again when needed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.items import thaw
from noetic_nb.steering.predicates.in_thread import in_thread

__all__ = ["CelProcess"]

_WORKER: Final = Path(__file__).with_name("cel_worker.py")
# A syntax error is found in milliseconds; what takes longer than this to compile is refused.
COMPILE_MS: Final = 5_000.0
# Old versions of a rule keep theirs; the one started first goes when there are more than this, and is started again if needed.
MAX_PROCESSES: Final = 16

_live: Final[deque[weakref.ref[CelProcess]]] = deque()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


class CelProcess:
    """Evaluates one expression elsewhere.

    Parameters
    ----------
    text : str
        The expression.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._finalizer: Any = None

    def compile_error(self) -> str | None:
        """Start the process and compile; returns the fault of the expression, None where there is none."""
        # In a thread, because a pipe cannot be read with a time limit on every system.
        reply: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: reply.append(self._started()), daemon=True)
        thread.start()
        thread.join(COMPILE_MS / 1000)
        if not reply:
            self.stop()
            return f"it took more than {COMPILE_MS / 1000:g} seconds to compile"
        error = reply[0].get("error")
        return None if error is None else str(error)

    def _started(self) -> dict[str, Any]:
        with self._lock:
            return self._start()

    def _start(self) -> dict[str, Any]:
        if self._process is not None and self._process.poll() is None:
            return {"compiled": True}
        # The worker is run as a file, not as a module: importing the package would take longer than most evaluations.
        process = subprocess.Popen(
            [sys.executable, str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a pipe that nobody reads would fill up and block it
            text=True,
            encoding="utf-8",
        )
        self._process = process
        # Also at interpreter exit: nothing of ours outlives the kernel.
        self._finalizer = weakref.finalize(self, _end, process)
        _live.append(weakref.ref(self))
        while len(_live) > MAX_PROCESSES:
            oldest = _live.popleft()()
            if oldest is not None and oldest is not self:
                oldest.stop()
        return self._exchange(process, {"compile": self._text})

    @staticmethod
    def _exchange(process: subprocess.Popen[str], message: Mapping[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError):  # it was ended meanwhile
            line = ""
        if not line:
            return {"error": "the process of the expression ended: it ran out of time or of memory"}
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        """End the process; the next evaluation starts another."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.kill()  # whoever reads from it gets the end of the file
        if self._finalizer is not None:
            self._finalizer()

    def _evaluate(self, values: Mapping[str, Any], origins: Sequence[Any]) -> dict[str, Any]:
        # One exchange at a time: two lines written together would swap their answers.
        with self._lock:
            failed = self._start().get("error")
            process = self._process
            if failed is not None or process is None:
                return {"error": failed or "the process of the expression ended"}
            return self._exchange(process, {"values": values, "origins": origins})

    async def evaluate(self, values: Mapping[str, Any], origins: Sequence[Any] = ()) -> Any:
        """Return the value of the expression for these values; `origins` are the results of its functions of that name.

        Raises
        ------
        NoeticError
            ``step_failed`` with the library's error.
        asyncio.CancelledError
            When the caller cancels; the process is ended.
        """
        try:
            reply = await in_thread(partial(self._evaluate, origins=origins), thaw(values), name="condition")
        except asyncio.CancelledError:
            self.stop()
            raise
        if "error" in reply:
            raise NoeticError(
                "step_failed", f"The condition could not be evaluated: {reply['error']}", step_id="condition"
            )
        return reply["value"]
