"""The files of an agent: any fsspec filesystem, or a local folder that no path can escape.

A path is text below the root, with ``/`` between its parts: ``notes/today.md``. The check guards paths written by a
model or a user; Python code that is given a filesystem can open any file without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from fsspec.core import url_to_fs
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from noetic_nb.errors import NoeticConfigError

_DRIVE_OR_URL: Final = re.compile(r"[A-Za-z]:|[A-Za-z][\w+.-]*:/|.*::")
_HOW: Final = "Use a path below the root, with / between its parts, such as 'notes/today.md'."


class OutsideRoot(PermissionError):
    """A path leads out of the root of a filesystem, or has a form that could."""

    def __init__(self, why: str, path: object) -> None:
        super().__init__(f"{why} Given: {path!r}. {_HOW}")


def as_filesystem(value: Any) -> AbstractFileSystem:
    """Return the filesystem for a folder, a URL or a filesystem (docs/behaviour/runtime.md, "Files").

    A local folder and the path of a URL such as ``memory://notes`` become the root; the root of a `LocalFileSystem` is
    the working folder, that of a `DirFileSystem` its folder; any other filesystem is used unchanged. Raises
    `NoeticConfigError` ``INVALID_OPTION`` for any other value, a missing folder, or a URL of an unknown kind.
    """
    if isinstance(value, str) and "://" in value:
        try:
            fs, path = url_to_fs(value)
        except (ValueError, ImportError) as exc:
            raise _refused("This URL cannot be opened as a filesystem", value, str(exc)) from exc
        return _local(path, value) if isinstance(fs, LocalFileSystem) else _below(fs, path)
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if not isinstance(path, str) or not path.strip() or "\0" in path:
            raise _refused("A folder has a name", value, "Pass '.' for the working folder.")
        return _local(os.path.expanduser(path), value)
    if isinstance(value, DirFileSystem):
        inner = as_filesystem(value.fs) if isinstance(value.fs, DirFileSystem) else value.fs
        if isinstance(inner, RootedFileSystem):
            return _below(inner.base, f"{inner.root}/{value.path}")
        return _local(value.path, value) if isinstance(inner, LocalFileSystem) else _below(inner, value.path)
    if isinstance(value, LocalFileSystem):
        return _local(".", value)
    if isinstance(value, AbstractFileSystem):
        return value
    raise _refused("This is not a filesystem", value, "Pass a folder, a URL, or a filesystem of fsspec.")


def _local(path: str, given: object) -> RootedFileSystem:
    if not os.path.isdir(path or "."):
        raise _refused("There is no such folder", given, "Make it first.")
    return RootedFileSystem(LocalFileSystem(), path or ".")


def _below(fs: AbstractFileSystem, path: str) -> AbstractFileSystem:
    return RootedFileSystem(fs, path) if path.strip("/") else fs


def _refused(what: str, given: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError("INVALID_OPTION", f"{what}.", given=given, hint=hint, field="fs")


def checked_path(path: Any) -> str:
    """Return a normalised path below a root; raises `OutsideRoot` if it could lead anywhere else on any system."""
    plain = _plain(path)
    if "\0" in plain or "\\" in plain:
        raise OutsideRoot("A path must not contain NUL or a backslash.", path)
    # Windows' rules apply everywhere: a drive on one machine must not be a file name on another.
    if plain.startswith(("/", "~")) or _DRIVE_OR_URL.match(plain):
        raise OutsideRoot("A path must be relative to the root: no absolute path, home folder, drive or URL.", path)
    # Windows ignores blanks and dots at the end of a name: ".. " is "..", too.
    if any(not part.strip(" .") for part in plain.split("/") if part):
        raise OutsideRoot("A path must not go up.", path)
    return plain


def _plain(path: Any) -> str:
    path = stringify_path(path)
    if not isinstance(path, str):
        raise OutsideRoot("A path is text.", path)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") and parts else "") + "/".join(parts)


class RootedFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Another filesystem below one of its folders; every path is checked before that filesystem sees it.

    No path leads out of `root`: not through ``..``, an absolute path, ``~``, a drive, a backslash, a NUL, a URL, nor,
    on this machine, a symbolic link; links that stay inside are followed, others are not even listed. Copies between
    the root and other places of this machine (``get``, ``put``) are refused. A process that can replace a folder by a
    link between check and opening can circumvent it: untrusted processes need a sandbox.
    """

    cachable = False
    protocol = "rooted"

    def __init__(self, fs: AbstractFileSystem, root: str | os.PathLike[str]) -> None:
        super().__init__()
        self.base = fs
        self.is_local = isinstance(fs, LocalFileSystem)
        """Whether the files are on this machine."""
        # Links above the root are the user's own; only those below are checked.
        self.root: str = fs._strip_protocol(os.path.realpath(root) if self.is_local else os.fspath(root)).rstrip("/")

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Return a normalised path, so that two spellings of a file are equal."""
        return [_plain(one) for one in path] if isinstance(path, list) else _plain(path)

    def _full(self, path: Any, *, follow: bool = True) -> str:
        """Return a path in the other filesystem; for a link, its target if `follow`, else the link itself."""
        plain = checked_path(path)
        full = f"{self.root}/{plain}" if plain else self.root or "/"
        if not self.is_local:
            return full
        real = self._inside(full, path)
        if follow or not plain:
            return real
        above, _, name = full.rpartition("/")
        return f"{self._inside(above or '/', path).rstrip('/')}/{name}"

    def _inside(self, full: str, path: Any) -> str:
        real: str = self.base._strip_protocol(os.path.realpath(full))
        if real != self.root and not real.startswith(f"{self.root}/"):
            raise OutsideRoot("A symbolic link leads out of the root.", path)
        return real

    def _relative(self, name: str) -> str:
        return name.removeprefix(self.root).strip("/")

    def resolve(self, path: Any) -> str:
        """Return the path of the file itself, after following its links; raises `OutsideRoot` if that is outside."""
        return self._relative(self._full(path))

    # -- methods on which fsspec builds the rest --------------------------------------------------------------------

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return self.base.open(self._full(path), mode, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Return the bytes of a file."""
        content: bytes = self.base.cat_file(self._full(path), start=start, end=end, **options)
        return content

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write the bytes of a file."""
        self.base.pipe_file(self._full(path), value, mode=mode, **options)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Return the metadata of a file or a folder."""
        return self._shown(self.base.info(self._full(path, follow=False), **options))

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """List a folder, sorted, without links that lead out of the root."""
        entries = [self._shown(entry) for entry in self.base.ls(self._full(path), detail=True, **options)]
        entries = sorted([entry for entry in entries if self._is_shown(entry)], key=lambda entry: entry["name"])
        return entries if detail else [entry["name"] for entry in entries]

    def _shown(self, info: dict[str, Any]) -> dict[str, Any]:
        # The destination of a link is a path of this machine.
        return {key: value for key, value in info.items() if key != "destination"} | {
            "name": self._relative(info["name"])
        }

    def _is_shown(self, entry: dict[str, Any]) -> bool:
        if not entry.get("islink"):
            return True
        try:
            self._full(entry["name"])
        except OutsideRoot:
            return False
        return True

    def walk(self, path: str, *args: Any, **options: Any) -> Iterator[Any]:
        """Walk down a folder; `find` and `glob` use this, too."""
        self._full(path)  # checked here, because fsspec skips folders that cannot be listed
        found: Iterator[Any] = super().walk(path, *args, **options)
        return found

    def created(self, path: str) -> datetime:
        """Return when a file was created."""
        when: datetime = self.base.created(self._full(path))
        return when

    def modified(self, path: str) -> datetime:
        """Return when a file was last changed."""
        when: datetime = self.base.modified(self._full(path))
        return when

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Create a folder."""
        self.base.mkdir(self._full(path), create_parents=create_parents, **options)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a folder and its parents."""
        self.base.makedirs(self._full(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        self.base.rmdir(self._below_root(path))

    def rm_file(self, path: str) -> None:
        """Remove a file, or a link."""
        self.base.rm_file(self._below_root(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files, and folders with all their contents; never the root."""
        for one in path if isinstance(path, list) else [path]:
            self.base.rm(self._below_root(one), recursive=recursive, maxdepth=maxdepth)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copy a file below the root."""
        self.base.cp_file(self._full(path1), self._full(path2), **options)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """Move a file or a folder below the root."""
        self.base.mv(self._below_root(path1), self._full(path2), **options)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Create an empty file, or set a file's modification time to now."""
        self.base.touch(self._full(path), truncate=truncate, **options)

    def _below_root(self, path: Any) -> str:
        if not checked_path(path):
            raise OutsideRoot("The root itself cannot be moved.", path)
        return self._full(path, follow=False)

    def get(self, *args: Any, **options: Any) -> None:
        """Refuse: it copies to places outside the root."""
        raise OutsideRoot("Files are not copied out of the root; read them with `cat_file`.", args[0] if args else None)

    def put(self, *args: Any, **options: Any) -> None:
        """Refuse: it copies from places outside the root."""
        raise OutsideRoot("Files are not copied into the root; write them with `pipe_file`.", args[0] if args else None)

    get_file = get
    put_file = put

    def __repr__(self) -> str:
        return f"RootedFileSystem({type(self.base).__name__}, {Path(self.root).name!r})"
