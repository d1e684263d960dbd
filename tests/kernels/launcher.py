"""Stands where the process of a kernel would: asks for a forked one, passes signals on, and ends as it ends.

    python -I -S launcher.py FOLDER ARGUMENTS OF IPYKERNEL

Run by the kernelspec of `tests.kernels.forked`, without site-packages, since hundreds are started. Where no process can be
asked, it becomes a kernel itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

FORKS_FROM = "forks_from"
"""The socket in the folder."""
PATIENCE_S = 60.0
"""How long the process that forks may take to import everything, before a kernel is started without it."""
PARENT_S = 1.0
"""How often to look whether whoever started this is still there; ipykernel does the same."""


def connected(folder: str) -> socket.socket | None:
    """Return a connection to the process that forks kernels; starts it where none is, and one launcher at a time."""
    import fcntl

    with open(os.path.join(folder, "lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        channel = _connection(folder)
        if channel is None:
            process = _start(folder)
            until = time.monotonic() + PATIENCE_S
            while channel is None and time.monotonic() < until and os.waitpid(process, os.WNOHANG) == (0, 0):
                time.sleep(0.02)
                channel = _connection(folder)
    return channel


def _connection(folder: str) -> socket.socket | None:
    channel = socket.socket(socket.AF_UNIX)
    channel.settimeout(PARENT_S)  # where too many wait for it, it answers nobody
    try:
        channel.connect(os.path.join(folder, FORKS_FROM))
    except OSError:
        channel.close()
        return None
    return channel


def _start(folder: str) -> int:
    zygote = os.path.join(os.path.dirname(__file__), "zygote.py")
    nowhere, log = os.open(os.devnull, os.O_RDONLY), os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT)
    # The folder of matplotlib's fonts is the user's, whichever front end was first.
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JPY_", "MPL", "IPYTHON"))}
    return os.posix_spawn(
        sys.executable,
        [sys.executable, zygote, folder],
        own,
        file_actions=[(os.POSIX_SPAWN_DUP2, nowhere, 0), *((os.POSIX_SPAWN_DUP2, log, to) for to in (1, 2))],
        setsid=True,
    )


def ask(channel: socket.socket, arguments: list[str]) -> None:
    """Send what the kernel inherits of this process: its environment, folder, and standard streams."""
    asked = {"arguments": arguments, "environ": dict(os.environ), "folder": os.getcwd()}
    text = json.dumps(asked).encode()
    socket.send_fds(channel, [len(text).to_bytes(4, "big")], [0, 1, 2])
    channel.sendall(text)


def follow(channel: socket.socket) -> int:
    """Pass signals on until the kernel ends; returns its status as `os.waitstatus_to_exitcode` does."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: channel.send(bytes([number])))
    parent, answer = os.getppid(), b""
    channel.settimeout(PARENT_S)
    while True:
        try:
            more = channel.recv(16)
        except TimeoutError:
            if os.getppid() != parent:  # the end of this connection ends the kernel
                return 1
            continue
        if not more:
            return int(answer) if answer else -signal.SIGKILL
        answer += more


def main() -> None:
    folder, arguments = sys.argv[1], sys.argv[2:]
    channel = connected(folder)
    if channel is None:
        os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", *arguments])
    ask(channel, arguments)
    status = follow(channel)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in {signal.SIGKILL, signal.SIGSTOP} else None
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
