"""Find the files a text refers to and read them, never beyond one folder.

A reference is ``#`` and a path with an extension, such as ``#src/main.py``; ``#123`` and ``#tag`` are none, nor is the
fragment of a web address.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from noetic_nb.filesystem import OutsideRoot, RootedFileSystem

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
    """The result of reading one file."""

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
    fs: Any, folder: str, path: str, *, extensions: frozenset[str], max_bytes: int, follow_symlinks: bool
) -> FileRead:
    """Read a file below a folder of a filesystem; a failure is part of the answer and never raises.

    Two spellings of one file have one path in the answer.
    """
    if path.startswith(("/", "~")):
        return FileRead(path, None, None, "absolute")
    # Refused before anything is looked up, so that not even the existence of a file outside shows.
    if ".." in path.split("/"):
        return FileRead(path, None, None, "outside")
    if isinstance(fs, RootedFileSystem):
        try:
            fs.resolve(folder)
        except OutsideRoot:
            return FileRead(path, None, None, "outside")
    path = posixpath.normpath(path)
    # By how the name ends and not by its suffix, which of ".env.local" is ".local" only.
    if not any(path.endswith(extension) for extension in extensions):
        return FileRead(path, None, None, "extension")
    target = posixpath.join(folder, path)
    try:
        if not follow_symlinks and _has_link(fs, folder, path):
            return FileRead(path, None, None, "symlink")
        # Links are followed only now; where they lead out of the root the file is still refused.
        path = _followed(fs, folder, path)
        info = fs.info(target)
        if info["type"] != "file":
            return FileRead(path, None, None, "missing")
        # One byte more than is allowed: a file may grow after it was looked at.
        content = None if (info.get("size") or 0) > max_bytes else fs.cat_file(target, end=max_bytes + 1)
    except OutsideRoot:
        return FileRead(path, None, None, "outside")
    except (FileNotFoundError, NotADirectoryError):
        return FileRead(path, None, None, "missing")
    except Exception:  # whatever a remote filesystem raises: the turn goes on without the file
        return FileRead(path, None, None, "unreadable")
    if content is None or len(content) > max_bytes:
        return FileRead(path, None, None, "size")
    digest = hashlib.sha256(content).hexdigest()
    # A file in another encoding is shown with gaps rather than not at all.
    return FileRead(path, content.decode("utf-8", "replace"), digest)


def _has_link(fs: Any, folder: str, path: str) -> bool:
    """Tell whether a part of a path is a link; a filesystem without links says nothing of them."""
    if not isinstance(fs, RootedFileSystem):
        return bool(fs.info(posixpath.join(folder, path)).get("islink"))
    place = folder
    for part in path.split("/"):
        place = posixpath.join(place, part)
        try:
            if fs.info(place).get("islink"):
                return True
        except OutsideRoot:
            return True
    return False


def _followed(fs: Any, folder: str, path: str) -> str:
    """Return the path below a folder that links lead to; raises `OutsideRoot` where they lead out of the folder."""
    if not isinstance(fs, RootedFileSystem):
        return path
    found, base = fs.resolve(posixpath.join(folder, path)), fs.resolve(folder)
    if base and not found.startswith(f"{base}/"):
        raise OutsideRoot("A symbolic link leads out of the folder.", path)
    return found[len(base) :].lstrip("/")
