"""Kernels of tests begin as forks of one process that has imported what they import: a second of work saved for each.

`offered` makes every kernel named ``python3`` such a fork, for this process and those it starts; `fresh` is for tests that need
the process of a kernel to be new: of what is imported first, and of what a new seed of hashes would change.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

LAUNCHER: Final = Path(__file__).with_name("launcher.py")
FOLDER: Final = "NOETIC_NB_FORKED_KERNELS"
"""The variable that names the folder while forks are offered."""


@contextmanager
def offered(*, is_bare: bool = False) -> Iterator[Path | None]:
    """Offer forks of one process to this process and those it starts; where a process cannot fork, nothing changes.

    Nothing is started before the first kernel. A bare process has imported nothing, and is there sooner.
    """
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
    if is_bare:
        (folder / "bare").touch()
    os.environ[FOLDER] = str(folder)
    try:
        with members_of(folder):
            yield folder
    finally:
        del os.environ[FOLDER]
        shutil.rmtree(folder, ignore_errors=True)


def paths_of_fresh() -> str:
    """Return the value of ``JUPYTER_PATH`` with which each kernel is a new process."""
    folder = os.environ.get(FOLDER)
    return os.pathsep.join(
        path for path in os.environ.get("JUPYTER_PATH", "").split(os.pathsep) if path and path != folder
    )


@contextmanager
def members_of(folder: Path | None) -> Iterator[None]:
    """Start kernels as forks of the process of this folder within; without one, as new processes."""
    before = os.environ.get("JUPYTER_PATH")
    paths = [str(folder), *([before] if before else [])]
    os.environ["JUPYTER_PATH"] = paths_of_fresh() if folder is None else os.pathsep.join(paths)
    try:
        yield
    finally:
        if before is None:
            del os.environ["JUPYTER_PATH"]
        else:
            os.environ["JUPYTER_PATH"] = before


def fresh() -> AbstractContextManager[None]:
    """Start kernels as new processes within."""
    return members_of(None)
