"""The files of an agent: whatever a path looks like, nothing outside of the root is read, written, listed or known of."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetic_nb._core.filesystem import OutsideRoot, RootedFileSystem, as_filesystem
from noetic_nb.errors import NoeticConfigError

SECRET = "the secret"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    base = tmp_path / "root"
    (base / "sub").mkdir(parents=True)
    (base / "a.txt").write_text("A")
    (base / "sub" / "b.txt").write_text("B")
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "root-beside").mkdir()  # begins like the root
    (tmp_path / "root-beside" / "secret.txt").write_text(SECRET)
    (base / "out.txt").symlink_to(tmp_path / "secret.txt")
    (base / "relative-out.txt").symlink_to("../secret.txt")
    (base / "out").symlink_to(tmp_path)
    (base / "beside").symlink_to(tmp_path / "root-beside")
    (base / "new-outside.txt").symlink_to(tmp_path / "new.txt")
    (base / "in.txt").symlink_to("sub/b.txt")
    return base


def attacks(root: Path) -> list[str]:
    secret = str(root.parent / "secret.txt")
    return [
        "../secret.txt",
        "sub/../../secret.txt",
        "./../secret.txt",
        "sub/../a.txt/../../secret.txt",
        "..",
        "../",
        ".. /secret.txt",
        ".../secret.txt",
        "..\\secret.txt",
        "sub\\..\\..\\secret.txt",
        secret,
        f"/{secret}",
        f"file://{secret}",
        f"file:{secret}",
        f"local://{secret}",
        f"simplecache::file://{secret}",
        "~/secret.txt",
        "~root/secret.txt",
        "C:/secret.txt",
        "c:secret.txt",
        "\\\\server\\share\\secret.txt",
        "a.txt\0.png",
        "\0",
        "out.txt",
        "relative-out.txt",
        "out/secret.txt",
        "out/root-beside/secret.txt",
        "beside/secret.txt",
        "new-outside.txt",
    ]


READING: dict[str, Callable[[Any, str], Any]] = {
    "cat_file": lambda fs, path: fs.cat_file(path),
    "cat": lambda fs, path: fs.cat(path),
    "cats": lambda fs, path: fs.cat([path]),
    "cat_ranges": lambda fs, path: fs.cat_ranges([path], 0, 9, on_error="raise"),
    "open": lambda fs, path: fs.open(path).read(),
    "open_text": lambda fs, path: fs.open(path, "r").read(),
    "read_text": lambda fs, path: fs.read_text(path),
    "head": lambda fs, path: fs.head(path),
    "tail": lambda fs, path: fs.tail(path),
    "read_block": lambda fs, path: fs.read_block(path, 0, 9),
    "mapper": lambda fs, path: fs.get_mapper("")[path],
    "info": lambda fs, path: fs.info(path),
    "size": lambda fs, path: fs.size(path),
    "ls": lambda fs, path: fs.ls(path),
    "created": lambda fs, path: fs.created(path),
    "modified": lambda fs, path: fs.modified(path),
    "checksum": lambda fs, path: fs.checksum(path),
    "get": lambda fs, path: fs.get("a.txt", path),
    "get_file": lambda fs, path: fs.get_file("a.txt", path),
    "download": lambda fs, path: fs.download("a.txt", path),
}
WRITING: dict[str, Callable[[Any, str], Any]] = {
    "pipe_file": lambda fs, path: fs.pipe_file(path, b"x"),
    "pipe": lambda fs, path: fs.pipe(path, b"x"),
    "open": lambda fs, path: fs.open(path, "wb"),
    "append": lambda fs, path: fs.open(path, "ab"),
    "write_text": lambda fs, path: fs.write_text(path, "x"),
    "touch": lambda fs, path: fs.touch(path),
    "mkdir": lambda fs, path: fs.mkdir(path),
    "makedirs": lambda fs, path: fs.makedirs(path, exist_ok=True),
    "rm": lambda fs, path: fs.rm(path, recursive=True),
    "rms": lambda fs, path: fs.rm([path], recursive=True),
    "rm_file": lambda fs, path: fs.rm_file(path),
    "rmdir": lambda fs, path: fs.rmdir(path),
    "delete": lambda fs, path: fs.delete(path, recursive=True),
    "copy_to": lambda fs, path: fs.copy("a.txt", path),
    "copy_from": lambda fs, path: fs.cp_file(path, "c.txt"),
    "move_to": lambda fs, path: fs.mv("a.txt", path),
    "move_from": lambda fs, path: fs.mv(path, "c.txt"),
    "put": lambda fs, path: fs.put(path, "c.txt"),
    "put_file": lambda fs, path: fs.put_file(path, "c.txt"),
    "upload": lambda fs, path: fs.upload(path, "c.txt"),
}


def outside(root: Path) -> dict[str, bytes | None]:
    """Return everything beside the root."""
    return {
        str(path.relative_to(root.parent)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.parent.rglob("*"))
        if not path.is_relative_to(root)
    }


@pytest.mark.parametrize("name", READING)
def test_nothing_outside_of_the_root_is_read(root: Path, name: str) -> None:
    fs = as_filesystem(root)
    for path in attacks(root):
        with pytest.raises((OSError, KeyError)) as failure:
            READING[name](fs, path)
        assert SECRET not in str(failure.value)


@pytest.mark.parametrize("name", WRITING)
def test_nothing_outside_of_the_root_is_written(root: Path, name: str) -> None:
    fs, before, inside = as_filesystem(root), outside(root), sorted(root.rglob("*"))
    for path in attacks(root):
        with pytest.raises(OSError):  # noqa: PT011
            WRITING[name](fs, path)
        assert outside(root) == before, path
        assert sorted(root.rglob("*")) == inside, path


def test_nothing_outside_of_the_root_is_known_of(root: Path) -> None:
    fs = as_filesystem(root)
    for path in attacks(root):
        assert not fs.exists(path), path
        assert not fs.isfile(path), path
        assert not fs.isdir(path), path
    for path in ("", "/", ".", "./"):
        assert fs.find(path) == ["a.txt", "in.txt", "sub/b.txt"]
        assert fs.ls(path, detail=False) == ["a.txt", "in.txt", "sub"]
    assert fs.glob("**/*.txt") == ["a.txt", "in.txt", "sub/b.txt"]
    assert "secret" not in fs.tree()
    assert str(root.parent) not in str(fs.ls("")) + str(fs.info("in.txt")) + repr(fs)
    with pytest.raises(OutsideRoot):
        fs.glob("../*")
    with pytest.raises(OutsideRoot):
        fs.find("out")


@pytest.mark.parametrize("path", ["", "/", ".", "./", "sub/.."])
def test_the_root_itself_is_never_removed(root: Path, path: str) -> None:
    fs = as_filesystem(root)
    for remove in (lambda: fs.rm(path, recursive=True), lambda: fs.mv(path, "sub/x"), lambda: fs.rmdir(path)):
        with pytest.raises(OutsideRoot):
            remove()
    assert (root / "a.txt").exists()


def test_files_below_the_root_are_files_like_any_other(root: Path) -> None:
    fs = as_filesystem(root)
    fs.makedirs("new/deep")
    with fs.open("new/deep/n.txt", "w") as file:
        file.write("n")
    fs.copy("new/deep/n.txt", "new/m.txt")
    fs.mv("new/m.txt", "m.txt")
    fs.rm("sub", recursive=True)

    assert fs.cat(["m.txt", "./new//deep/n.txt"]) == {"m.txt": b"n", "new/deep/n.txt": b"n"}
    assert fs.find("") == ["a.txt", "in.txt", "m.txt", "new/deep/n.txt"]
    assert fs.info("m.txt")["name"] == "m.txt"
    assert (root / "m.txt").read_text() == "n"


def test_a_link_that_stays_inside_is_followed_and_removed_as_a_link(root: Path) -> None:
    fs = as_filesystem(root)

    assert fs.cat("in.txt") == b"B"
    assert fs.resolve("in.txt") == "sub/b.txt"
    fs.rm("in.txt")
    assert fs.cat("sub/b.txt") == b"B"


def test_a_root_that_is_a_link_is_where_it_leads(root: Path) -> None:
    (root.parent / "way").symlink_to(root)

    assert as_filesystem(root.parent / "way").cat("a.txt") == b"A"


PARTS = st.sampled_from(
    [
        "..",
        ".",
        "",
        "a.txt",
        "sub",
        "out",
        "beside",
        "secret.txt",
        "~",
        " ",
        ".. ",
        "\0",
        "\\",
        "C:",
        "file:",
        "％2e％2e",
        "x",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(PARTS, max_size=6), separator=st.sampled_from(["/", "//", "\\", "/./", ":"]), lead=st.booleans())
def test_no_combination_leads_out(root: Path, parts: list[str], separator: str, lead: bool) -> None:
    fs, path = as_filesystem(root), ("/" if lead else "") + separator.join(parts)
    try:
        content = fs.cat_file(path)
    except OSError:
        return
    assert content in (b"A", b"B")


def test_a_folder_of_any_filesystem_is_a_root_too() -> None:
    memory = MemoryFileSystem()
    memory.pipe_file("/rooted-test/root/a.txt", b"A")
    memory.pipe_file("/rooted-test/secret.txt", b"S")
    for given_ in (
        DirFileSystem("/rooted-test/root", memory),
        DirFileSystem("root", DirFileSystem("/rooted-test", memory)),
        DirFileSystem("root", as_filesystem("memory://rooted-test")),
        "memory://rooted-test/root",
    ):
        fs = as_filesystem(given_)
        assert fs.cat("a.txt") == b"A"
        assert fs.ls("", detail=False) == fs.find("") == fs.glob("*") == ["a.txt"]
        for path in ("../secret.txt", "/rooted-test/secret.txt", "x/../../secret.txt"):
            with pytest.raises(OutsideRoot):
                fs.cat(path)


def test_other_filesystems_are_used_as_they_are() -> None:
    memory = MemoryFileSystem()

    assert as_filesystem(memory) is memory
    assert as_filesystem("memory://") is memory
    rooted = as_filesystem("memory://rooted-test")
    assert as_filesystem(rooted) is rooted


def test_a_local_filesystem_has_the_working_folder_as_its_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    for given_ in (LocalFileSystem(), ".", DirFileSystem(str(root), LocalFileSystem()), f"file://{root}"):
        fs = as_filesystem(given_)
        assert isinstance(fs, RootedFileSystem)
        assert fs.cat("sub/b.txt") == b"B"
        with pytest.raises(OutsideRoot):
            fs.cat(str(root.parent / "secret.txt"))


def test_the_whole_disk_has_to_be_asked_for(root: Path) -> None:
    fs = as_filesystem("/")

    assert fs.cat(str(root / "a.txt").lstrip("/")) == b"A"
    assert fs.info("etc")["type"] == "directory"


@pytest.mark.parametrize(
    "value", ["", " ", "no/such/folder", "a\0b", b"x", 3, object(), "nowhere://x", LocalFileSystem]
)
def test_what_is_no_filesystem_is_refused(value: Any) -> None:
    with pytest.raises(NoeticConfigError) as failure:
        as_filesystem(value)

    assert failure.value.code == "INVALID_OPTION"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_listing_does_not_open_what_it_lists(root: Path) -> None:
    os.mkfifo(root / "pipe")

    assert as_filesystem(root).info("pipe")["type"] == "other"
