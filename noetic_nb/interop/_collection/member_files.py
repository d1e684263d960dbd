"""The members of a collection: files that are read on demand, runs without a file, and frozen sets."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Final

from noetic_nb._core.atomic_write import file_name, write_whole
from noetic_nb._core.long_work import Work
from noetic_nb.clock import SYSTEM_CLOCK
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.interop._collection.index_file import NAME, Entry, Key, RunIndex, cached_index, facts_of, texts_of
from noetic_nb.interop._formats.sources import RUN_SET, documents
from noetic_nb.interop._importing import Failed, import_runs, runs_of_file
from noetic_nb.redact import redact, redact_text
from noetic_nb.runs import Run
from noetic_nb.runs._labelled import labels_in
from noetic_nb.runs._labels import Label, agreed_value, codebook_of, in_force, labels_of_file, labels_path

_FORM: Final = "noetic-nb/run-set"
_KEPT: Final = ("run_id", "task", "outcome", "turns", "tools")


def _invalid(what: str, given: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError("INVALID_SET", what, given=given, hint=hint)


def set_path(name: str | PathLike[str]) -> Path:
    """Return the file of a set by its name or path; raises `NoeticConfigError` ``INVALID_SET`` for an impossible name."""
    try:
        text = str(Path(file_name(name)))
    except OSError as error:
        raise _invalid(
            "The name of a set is the name of a file.", repr(name), "For example: freeze('refunds', ...)."
        ) from error
    return Path(text if text.endswith(RUN_SET) else f"{text}{RUN_SET}")


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_set(
    name: str | PathLike[str],
    why: str,
    runs: Iterable[tuple[tuple[Path | None, int, Callable[[], Run]], Mapping[str, Any]]],
) -> Path:
    """Write a version of a set; see `RunCollection.freeze`."""
    if not isinstance(why, str) or not why.strip():
        raise _invalid(
            "A set has a reason.", why, "For example: freeze('refunds', why='Calls that went wrong in May.')."
        )
    file = set_path(name)
    folder = file.parent
    versions = read_versions(file) if file.exists() else []
    rows: list[dict[str, Any]] = []
    hashes: dict[Path, str] = {}
    for (path, place, load), facts in runs:
        if path is None:
            kept = folder / f"{file.name.removesuffix(RUN_SET)}.runs" / f"{len(versions) + 1}-{len(rows)}.jsonl.gz"
            kept.parent.mkdir(parents=True, exist_ok=True)
            path, place = load().save(kept), 0
        if path not in hashes:
            hashes[path] = _hash(path)
        where = Path(os.path.relpath(path, folder)).as_posix()
        rows.append({"path": where, "place": place, "sha256": hashes[path], **{name: facts[name] for name in _KEPT}})
    if not rows:
        raise _invalid("A set needs at least one run.", str(name), "Look at the collection: len(collection).")
    version = {"version": len(versions) + 1, "why": redact_text(why), "frozen_ms": SYSTEM_CLOCK.now_ms(), "runs": rows}
    form = {"form": _FORM, "name": file.name.removesuffix(RUN_SET), "versions": [*versions, version]}
    write_whole(file, json.dumps(form, indent=1, ensure_ascii=False) + "\n")
    return file


def read_versions(file: Path) -> list[dict[str, Any]]:
    """Return the versions of a set, oldest first. Raises `NoeticConfigError` ``INVALID_SET``."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _invalid(
            f"The set cannot be read: {error}.", str(file), "collection.freeze(name, why=...) writes one."
        ) from error
    versions = found.get("versions") if isinstance(found, dict) and found.get("form") == _FORM else None
    if not isinstance(versions, list) or not all(
        isinstance(each, dict) and _is_list(each.get("runs")) for each in versions
    ):
        raise _invalid("The file is not a set of runs.", str(file), "collection.freeze(name, why=...) writes one.")
    return versions


def _is_list(runs: object) -> bool:
    return isinstance(runs, list) and all(
        isinstance(run, dict) and isinstance(run.get("path"), str) and type(run.get("place")) is int for run in runs
    )


def set_members(name: str | PathLike[str]) -> Iterator[tuple[dict[str, Any], Run | Failed]]:
    """Yield the runs of the newest version of a set with their rows; a missing or changed file gives a `Failed`."""
    file = set_path(name)
    versions = read_versions(file)
    for row in versions[-1]["runs"] if versions else ():
        path = file.parent / row["path"]
        try:
            if _hash(path) != row.get("sha256"):
                hint = "Freeze the set again, or restore the file."
                raise _invalid("The file of a run has changed since the set was frozen.", str(path), hint)
            reader = next(islice(runs_of_file(path, in_folder=True), row["place"], None), None)
            if reader is None:
                raise _invalid(f"The file has no run {row['place']}.", str(path), "Freeze the set again.")
            yield row, reader()
        except OSError as error:
            yield (
                row,
                Failed(str(path), _invalid(f"The file of a run is gone: {error.strerror}.", str(path), "Restore it.")),
            )
        except (NoeticConfigError, NoeticError) as error:
            yield row, Failed(str(path), error)


_IN_MEMORY: Final = ""
_GONE: Final = "-"
# The number of files to read before the index is written, because each transaction waits for the disk.
_AT_ONCE: Final = 64


def _stamp(path: Path) -> str:
    try:
        about = path.stat()
    except OSError:
        return _GONE
    return f"{about.st_mtime_ns} {about.st_size}"


class Members:
    """Files and runs with their index. `paths` are files and folders, `runs` are runs without a file."""

    def __init__(self, paths: Sequence[Path], runs: Sequence[Run | Failed], index: Path | None) -> None:
        self._paths = [Path(os.path.abspath(path)) for path in paths]
        self._runs = list(runs)
        alone = self._paths[0] if len(self._paths) == 1 else None
        self.base = alone if alone is None or alone.is_dir() else alone.parent
        self.index = self._opened(index)
        self._lock = threading.Lock()
        self._open: tuple[str, int, Iterator[Callable[[], Run]]] | None = None
        self._in_folder: dict[str, bool] = {}

    def _opened(self, index: Path | None) -> RunIndex:
        if index is not None or not self._paths or self._runs:
            return RunIndex(index)
        everything = "\n".join(map(str, sorted(self._paths)))
        if self.base is not None:
            try:
                return RunIndex(self.base / NAME)
            except (NoeticError, NoeticConfigError):  # the folder is not writable
                everything = str(self.base)
        return RunIndex(cached_index(everything))

    def _name(self, path: Path) -> str:
        return str(path) if self.base is None else path.relative_to(self.base).as_posix()

    def path_of(self, key: Key) -> Path | None:
        """Return the file of a run, or None if it has none."""
        if key[0] == _IN_MEMORY:
            return None
        return Path(key[0]) if self.base is None else self.base / key[0]

    def _files(self) -> Iterator[tuple[Path, bool]]:
        for path in self._paths:
            in_folder = path.is_dir()
            for found in documents(path):
                if isinstance(found, Path):
                    yield found, in_folder

    def refresh(self, progress: Any) -> list[tuple[Key, str | None]]:
        """Read files that are new or changed since the index was written; return all members in order."""
        known, here = self.index.files(), set()
        read: list[tuple[str, str, str, list[Entry]]] = []
        with Work("open_runs", "files", progress, keeps=False) as work:
            for path, in_folder in self._files():
                name = self._name(path)
                if name in here:
                    continue
                here.add(name)
                self._in_folder[name] = in_folder
                stamp, labelled = _stamp(path), _stamp(labels_path(path))
                if known.get(name) != (stamp, labelled):
                    labels, broken = _labels_of(path)
                    if known.get(name, ("", ""))[0] == stamp and not broken:
                        self.index.relabel(name, labelled, labels)
                    else:
                        read.append((name, stamp, labelled, [*_entries(path, labels, in_folder), *broken]))
                if len(read) >= _AT_ONCE:
                    self.index.put(read)
                    read = []
                work.step()
        self.index.put(read)
        if self.base is not None and self._paths[0].is_dir():
            self.index.forget(known.keys() - here)
        if self._runs:
            here.add(_IN_MEMORY)
            self.index.put([(_IN_MEMORY, "", "", [_entry(run) for run in self._runs])])
        return [member for member in self.index.members() if member[0][0] in here]

    def facts(self, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        """Return the complete facts of runs by key; runs that are no longer in the index are left out."""
        return {key: self._complete(key, facts) for key, facts in self.index.facts(keys)}

    def _complete(self, key: Key, facts: dict[str, Any]) -> dict[str, Any]:
        path = self.path_of(key)
        labels = [Label(*each) for each in facts["labels"]]
        whole = {label.name for label in labels if label.target == (None,) * 4}
        named = {name: agreed_value(labels, name) for name in sorted(whole)}
        outcome = facts["meta"].get("outcome")
        if "outcome" in named:
            outcome = named["outcome"]
            book = codebook_of({}, None if path is None else str(path))
            if outcome is not None and book is not None and "outcome" in book and book["outcome"].good:
                outcome = outcome in book["outcome"].good
        facts |= {"path": None if path is None else str(path), "place": key[1], "labels": named, "outcome": outcome}
        return facts

    def load(self, key: Key) -> Run:
        """Read a run; consecutive requests for runs of one file reuse one pass over it."""
        name, place = key
        path = self.path_of(key)
        if path is None:
            found = self._runs[place]
            if isinstance(found, Failed):
                raise found.error
            return found
        with self._lock:
            if self._open is None or self._open[0] != name or self._open[1] > place:
                self._open = (name, 0, iter(runs_of_file(path, in_folder=self._in_folder.get(name, True))))
            _, at, readers = self._open
            self._open = None
            for read in readers:
                if at == place:
                    self._open = (name, at + 1, readers)
                    return read()
                at += 1
        hint = "Open the collection again: nn.open_runs reads what has changed."
        raise NoeticError("invalid_run_file", f"{str(path)!r} has no run {place} any more.", hint=hint, path=str(path))


def _labels_of(path: Path) -> tuple[Mapping[str, Sequence[Label]], list[Entry]]:
    """Return the labels of a file by run key, and an error entry if the labels cannot be read."""
    try:
        return {key: in_force(labels) for key, labels in labels_of_file(path).items()}, []
    except NoeticError as error:
        return {}, [Entry(error=str(error))]


def _entries(path: Path, labels: Mapping[str, Sequence[Label]], in_folder: bool) -> Iterator[Entry]:
    for read in runs_of_file(path, in_folder=in_folder):
        try:
            run = read()
        except NoeticError as error:
            yield Entry(error=str(error))
        else:
            key = run._label_store.key
            yield Entry(key, facts_of(run), labels.get(key, ()), texts_of(run))


def _entry(run: Run | Failed) -> Entry:
    if isinstance(run, Failed):
        return Entry(error=str(run.error))
    # A run that was never saved has not been redacted yet.
    return Entry(run.run_id, redact(facts_of(run)), labels_in(run), redact_text(texts_of(run)))


def parts_of(source: Any) -> tuple[list[Path], list[Run | Failed]]:
    """Return the files and folders of a source, and its runs without a file."""
    if isinstance(source, os.PathLike) or (isinstance(source, str) and source.lstrip()[:1] not in ("", "{", "[")):
        path = Path(source)
        if not path.exists():
            raise NoeticConfigError(
                "NO_RUNS", "There is no such file or folder.", given=str(source), hint="Check the path of the runs."
            )
        return [path], []
    if isinstance(source, Run):
        return [], [source]
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | bytearray | Mapping):
        source = list(source)
        if all(isinstance(each, Run | Failed | str | os.PathLike) for each in source):
            paths: list[Path] = []
            runs: list[Run | Failed] = []
            for each in source:
                more = ([], [each]) if isinstance(each, Failed) else parts_of(each)
                paths, runs = paths + more[0], runs + more[1]
            return paths, runs
    return [], list(import_runs(source, progress=False))
