"""Files that only their owner may read, whatever the umask of the process says."""

from __future__ import annotations

import errno
import os
from os import PathLike

__all__ = ["OWNER_ONLY", "file_name", "owner_only"]

OWNER_ONLY = 0o600


def file_name(path: str | PathLike[str]) -> str:
    """Return the name of a file as text; raises `OSError` ``EINVAL`` for one that no file can have.

    Examples
    --------
    >>> file_name("a" + chr(0))
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] no file can have this name
    """
    text = os.fspath(path)
    try:
        if "\0" not in text:
            os.fsencode(text)
            return text
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "no file can have this name")


def owner_only(path: str, flags: int) -> int:
    """Open a file as `open` does with ``opener=owner_only``; one that is made is readable by its owner alone.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a", "w", opener=owner_only) as file:
    ...         oct(os.fstat(file.fileno()).st_mode & 0o777)
    '0o600'
    """
    return os.open(path, flags, OWNER_ONLY)
