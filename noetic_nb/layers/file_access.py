"""Find the files a text refers to and read them, never beyond one folder.

A reference is ``#`` and a path with an extension, such as ``#src/main.py``; ``#123`` and ``#tag`` are none, nor is the
fragment of a web address.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

__all__ = ["DEFAULT_EXTENSIONS", "FileRead", "anchor", "find_references", "link_references", "read_reference"]

DEFAULT_EXTENSIONS: Final = frozenset(
    {
        ".c", ".cc", ".cfg", ".cpp", ".css", ".csv", ".go", ".h", ".hpp", ".html", ".ini", ".java", ".js", ".json", ".jsx",
        ".kt", ".lua", ".md", ".php", ".pl", ".py", ".r", ".rb", ".rs", ".rst", ".scala", ".sh", ".sql", ".swift", ".toml",
        ".ts", ".tsx", ".txt", ".xml", ".yaml", ".yml",
    }
)  # fmt: skip

_REFERENCE: Final = re.compile(r"(?<![\w/.:#\[(])#((?:[\w.-]+/)*\.?[\w-][\w.-]*\.\w+)")
_NOT_ANCHOR: Final = re.compile(r"[^0-9A-Za-z]+")

Problem = Literal["absolute", "outside", "extension", "symlink", "missing", "size", "unreadable"]


@dataclass(frozen=True, slots=True)
class FileRead:
    """What came of reading one file."""

    path: str
    text: str | None
    digest: str | None
    problem: Problem | None = None


def find_references(text: str) -> list[str]:
    """Return the paths a text refers to, each once, in order.

    Examples
    --------
    >>> find_references("see #src/main.py and #README.md, not #123, #tag or https://a.org/x#page.html")
    ['src/main.py', 'README.md']
    """
    return list(dict.fromkeys(match.group(1) for match in _REFERENCE.finditer(text)))


def anchor(path: str) -> str:
    """Return the anchor of a path: lowercase, with hyphens for everything but letters and digits.

    Examples
    --------
    >>> anchor("src/Main.py")
    'src-main-py'
    """
    return _NOT_ANCHOR.sub("-", path).strip("-").lower()


def link_references(text: str) -> str:
    """Return a text with every reference as a Markdown link.

    Examples
    --------
    >>> link_references("see #a.py")
    'see [#a.py](#a-py)'
    """
    return _REFERENCE.sub(lambda match: f"[#{match.group(1)}](#{anchor(match.group(1))})", text)


def read_reference(
    path: str, *, base: Path, extensions: frozenset[str], max_bytes: int, follow_symlinks: bool
) -> FileRead:
    """Read a file below `base`, wherever links point; what keeps it from being read is part of the answer and never raises."""
    relative = PurePosixPath(path)
    if relative.is_absolute() or Path(path).is_absolute():
        return FileRead(path, None, None, "absolute")
    root = base.resolve()
    target = root / relative
    # Refused before the path is resolved, so that not even the existence of a file outside shows.
    if ".." in relative.parts:
        return FileRead(path, None, None, "outside")
    # By how the name ends and not by its suffix, which of ".env.local" is ".local" only.
    if not any(path.endswith(extension) for extension in extensions):
        return FileRead(path, None, None, "extension")
    try:
        if not follow_symlinks and any(part.is_symlink() for part in _components(root, target)):
            return FileRead(path, None, None, "symlink")
        # Links are followed only now; where they lead out of the folder the file is still refused.
        real = target.resolve()
        if not real.is_relative_to(root):
            return FileRead(path, None, None, "outside")
        if not real.is_file():
            return FileRead(path, None, None, "missing")
        if real.stat().st_size > max_bytes:
            return FileRead(path, None, None, "size")
        content = real.read_bytes()
    except FileNotFoundError:
        return FileRead(path, None, None, "missing")
    except OSError:
        return FileRead(path, None, None, "unreadable")
    digest = hashlib.sha256(content).hexdigest()
    # A file in another encoding is shown with gaps rather than not at all.
    return FileRead(path, content.decode("utf-8", "replace"), digest)


def _components(root: Path, target: Path) -> Iterator[Path]:
    current = root
    for part in target.relative_to(root).parts:
        current = current / part
        yield current
