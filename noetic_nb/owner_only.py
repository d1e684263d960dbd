"""Files that only their owner may read, whatever the umask of the process says."""

from __future__ import annotations

import os

__all__ = ["OWNER_ONLY", "owner_only"]

OWNER_ONLY = 0o600


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
