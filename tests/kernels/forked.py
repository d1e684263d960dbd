"""Kernels of tests begin as forks of one process that has imported what they import: a second of work saved for each.

`offered` makes every kernel named ``python3`` such a fork, for this process and those it starts; `fresh` is for tests that need
the process of a kernel to be new: of what is imported first, and of orders that a new seed of hashes would change.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LAUNCHER: Final = Path(__file__).with_name("launcher.py")
FOLDER: Final = "NOETIC_NB_FORKED_KERNELS"
"""The variable that names the folder while forks are offered."""


@contextmanager
def offered() -> Iterator[Path | None]:
    """Offer forks. Nothing is started before the first kernel; where a process cannot fork, nothing changes."""
    if not (hasattr(os, "fork") and hasattr(os, "posix_spawn")):
        yield None
        return
    # Not the folder of a test: the path of a socket has at most about a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="nn-"))
    spec = folder / "kernels" / "python3"
    spec.mkdir(parents=True)
    command = [sys.executable, "-I", "-S", str(LAUNCHER), str(folder), "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": command, "display_name": "Python 3 (ipykernel)", "language": "python"})
    )
    (folder / "owner").write_text(str(os.getpid()))
    before = os.environ.get("JUPYTER_PATH")
    os.environ["JUPYTER_PATH"] = os.pathsep.join([str(folder), *([before] if before else [])])
    os.environ[FOLDER] = str(folder)
    try:
        yield folder
    finally:
        del os.environ[FOLDER]
        if before is None:
            del os.environ["JUPYTER_PATH"]
        else:
            os.environ["JUPYTER_PATH"] = before
        shutil.rmtree(folder, ignore_errors=True)


def paths_of_fresh() -> str:
    """Return the value of ``JUPYTER_PATH`` with which each kernel is a new process."""
    folder = os.environ.get(FOLDER)
    return os.pathsep.join(
        path for path in os.environ.get("JUPYTER_PATH", "").split(os.pathsep) if path and path != folder
    )


@contextmanager
def fresh() -> Iterator[None]:
    """Start kernels as new processes within."""
    before = os.environ.get("JUPYTER_PATH")
    os.environ["JUPYTER_PATH"] = paths_of_fresh()
    try:
        yield
    finally:
        if before is None:
            del os.environ["JUPYTER_PATH"]
        else:
            os.environ["JUPYTER_PATH"] = before
