"""Codebooks and labels of runs. Labels are stored beside a run's file: one JSON line each, in ``<file>.labels.jsonl``.

Whole lines are appended under a lock, so that several raters and processes can label at once. The last line of a rater
about a target counts; a null value removes the label.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from noetic_nb._core.arguments import closest
from noetic_nb._core.atomic_write import owner_only, regular_file, write_whole
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.redact import redact_text

FILE: Final = "codebook.json"  # the codebook of a folder of runs
_PARTS: Final = ("run", "turn", "call", "item")
_MOST_BYTES: Final = 2**20
_HINT: Final = (
    "For example: {'verdict': {'values': ['right', 'wrong'], 'description': '...', 'of': 'call', 'good': ['right']}}."
)


class Code(NamedTuple):
    """One name of a codebook."""

    values: tuple[Value, ...]  # the allowed values; empty: any value
    meanings: tuple[str, ...]  # of the values, in the same order
    description: str
    of: str | None  # the part of a run that it labels: run, turn, call or item; None: any part
    good: tuple[Value, ...]  # the values that count as a good outcome


class Codebook(Mapping[str, Code]):
    """The allowed names and values of labels.

    Parameters
    ----------
    names : mapping
        Maps each name to a mapping with ``values`` (a list, or a mapping from values to their descriptions; any value if
        left out), ``description``, ``of`` (``"run"``, ``"turn"``, ``"call"`` or ``"item"``: the part of a run that it
        labels) and ``good`` (the values that count as a good outcome of a run).

    Raises
    ------
    NoeticConfigError
        ``INVALID_CODEBOOK`` for anything else.

    Notes
    -----
    The file ``codebook.json`` in a folder applies to all runs of the folder, and ``run.meta["codebook"]``, in the same form,
    to one run: `Run.label` rejects labels that are not in it.

    Examples
    --------
    >>> book = Codebook({"verdict": {"values": {"right": "As the policy says.", "wrong": "Against it."}, "good": ["right"]}})
    >>> book["verdict"].values
    ('right', 'wrong')
    >>> book.check("verdict", "good")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    noetic_nb.errors.NoeticConfigError: [UNKNOWN_LABEL] The codebook has no such value of 'verdict'. ...
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        if not isinstance(names, Mapping) or not names:
            raise _refused("A codebook is a mapping of names.", names)
        self.data: dict[str, Any] = json.loads(json.dumps(dict(names), default=_unknown))
        self._codes = {name: _code(name, code) for name, code in self.data.items()}

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Codebook:
        """Read a codebook from a JSON file, or from the ``codebook.json`` of a folder."""
        file = _file(path)
        try:
            with regular_file(file, _MOST_BYTES) as raw:
                data = json.loads(raw.read())
        except (OSError, ValueError) as error:
            raise _refused(f"The codebook cannot be read: {error}.", str(file)) from error
        return cls(data)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the codebook to a JSON file, or as the ``codebook.json`` of a folder; returns the file."""
        file = _file(path)
        write_whole(file, json.dumps(self.data, indent=1, ensure_ascii=False) + "\n")
        return file

    def check(self, name: str, value: Value | None, part: str | None = None) -> None:
        """Reject a label that is not in the codebook.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_LABEL`` for an unknown name or value, or the wrong part of the run.
        """
        code = self._codes.get(name)
        if code is None:
            hint = f"It has {', '.join(map(repr, self._codes))}. {closest(name, self._codes)}".rstrip()
            raise NoeticConfigError("UNKNOWN_LABEL", "The codebook has no such label name.", given=name, hint=hint)
        if value is not None and code.values and not any(_same(value, known) for known in code.values):
            what = f"The codebook has no such value of {name!r}."
            hint = f"Use one of {', '.join(map(repr, code.values))}."
            raise NoeticConfigError("UNKNOWN_LABEL", what, given=value, hint=hint)
        if part is not None and code.of not in (None, part):
            hint = "Label the run as a whole." if code.of == "run" else f"Pass {code.of}=."
            raise NoeticConfigError("UNKNOWN_LABEL", f"{name!r} is a label of a {code.of}.", given=part, hint=hint)

    def __getitem__(self, name: str) -> Code:
        return self._codes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    def __len__(self) -> int:
        return len(self._codes)

    def __repr__(self) -> str:
        return f"Codebook({self.data!r})"


def _same(value: Value, other: Value) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _unknown(value: object) -> Any:
    raise _refused("A codebook is JSON data.", value)


def _refused(what: str, given: object) -> NoeticConfigError:
    return NoeticConfigError("INVALID_CODEBOOK", what, given=given, hint=_HINT)


def _file(path: str | PathLike[str]) -> Path:
    found = Path(path)
    return found / FILE if found.is_dir() else found


def _code(name: str, code: Any) -> Code:
    if not name or not isinstance(code, Mapping):
        raise _refused(f"The entry of {name!r} is not a mapping.", code)
    if unknown := set(code) - {"values", "description", "of", "good"}:
        raise _refused(f"The entry of {name!r} has unknown keys.", sorted(unknown))
    values, good = code.get("values") or [], code.get("good") or []
    meanings = [str(text) for text in values.values()] if isinstance(values, Mapping) else []
    for listed in (list(values) if isinstance(values, Mapping) else values, good):
        if not isinstance(listed, list) or not all(isinstance(value, str | bool | int | float) for value in listed):
            raise _refused(f"The values of {name!r} are texts, numbers, true and false.", listed)
    if len({(type(value), value) for value in values}) < len(values) or (
        values and any(not any(_same(value, known) for known in values) for value in good)
    ):
        raise _refused(f"The values of {name!r} are all different, and `good` is some of them.", code)
    description, of = code.get("description", ""), code.get("of")
    if not isinstance(description, str) or of not in (None, *_PARTS):
        raise _refused(f"`description` of {name!r} is a text, and `of` one of {', '.join(_PARTS)}.", code)
    return Code(tuple(values), tuple(meanings or [""] * len(values)), description, of, tuple(good))


def codebook_of(meta: Mapping[str, Any], path: str | None) -> Codebook | None:
    """Return the codebook in a run's meta, otherwise its folder's, otherwise None; raises ``INVALID_CODEBOOK``."""
    if "codebook" in meta:
        return Codebook(meta["codebook"])
    if path is None:
        return None
    file = Path(path).parent / FILE
    try:
        about = file.stat()
    except OSError:
        return None
    return _loaded(str(file), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=16)
def _loaded(file: str, _mtime_ns: int, _size: int) -> Codebook:
    return Codebook.load(file)


try:
    import fcntl
except ImportError:  # Windows has no fcntl
    fcntl = None  # type: ignore[assignment]

SUFFIX: Final = ".labels.jsonl"  # appended to a run file's name
CONSENSUS: Final = "consensus"
"""The rater of agreed labels: they are visible to all, and agreement statistics leave them out."""

Value: TypeAlias = str | bool | int | float


class Label(NamedTuple):
    """A label: its name and value, the part of the run that it is about, and the rater."""

    name: str
    value: Value | None
    by: str
    t_ms: float
    thread_id: str | None = None
    turn: int | None = None
    call: int | None = None  # index among the agent's model calls of the run
    item: int | None = None  # position in the thread's log

    @property
    def target(self) -> tuple[str | None, int | None, int | None, int | None]:
        """The labelled part of the run; four times None is the whole run."""
        return self[4:]


def labels_path(path: str | PathLike[str]) -> Path:
    """Return the file with the labels of another file's runs."""
    return Path(f"{os.fspath(path)}{SUFFIX}")


def labels_of_file(path: str | PathLike[str]) -> dict[str, list[Label]]:
    """Return the labels of all runs in a file, by the run's name or its place in the file; raises ``invalid_run_file``."""
    file = labels_path(path)
    try:
        about = file.stat()
    except OSError:
        return {}
    return _read(str(file), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=16)
def _read(file: str, _mtime_ns: int, _size: int) -> dict[str, list[Label]]:
    found: dict[str, list[Label]] = {}
    try:
        lines = Path(file).read_bytes().split(b"\n")
    except OSError as error:
        raise _failed(file, "read", error) from error
    for number, line in enumerate(lines, 1):
        # An incomplete last line was being written when its process was killed.
        if not line.strip() or (number == len(lines) and not _is_whole(line)):
            continue
        try:
            key, label = _parsed(line)
        except (AttributeError, ValueError, TypeError, LookupError) as error:
            what = f"{file!r} cannot be read at line {number}: it is no label ({error})."
            hint = "Each line is JSON as run.label writes it; mend the line or remove it."
            raise NoeticError("invalid_run_file", what, hint=hint, path=file, line=number) from error
        found.setdefault(key, []).append(label)
    return found


def _is_whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _parsed(line: bytes) -> tuple[str, Label]:
    data = json.loads(line)
    label = Label(**{name: data.get(name) for name in Label._fields})
    texts = (data["run"], label.name, label.by)
    places = (label.turn, label.call, label.item)
    if not all(isinstance(text, str) for text in texts) or not isinstance(label.thread_id, str | None):
        raise ValueError("run, name and by must be text")
    if not all(place is None or type(place) is int for place in places) or not isinstance(label.t_ms, int | float):
        raise ValueError("turn, call and item must be whole numbers, t_ms a number")
    if not isinstance(label.value, str | bool | int | float | None):
        raise ValueError("a value must be text, a number, true or false")
    return data["run"], label


def _line(key: str, label: Label) -> bytes:
    said = {name: value for name, value in label._asdict().items() if value is not None or name == "value"}
    return json.dumps({"run": key, **said}, ensure_ascii=True, allow_nan=False).encode() + b"\n"


def _append(file: Path, content: bytes) -> None:
    """Append whole lines to a file, replacing a line that another process left incomplete."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
    with open(owner_only(str(file), flags), "r+b", buffering=0) as raw:
        if fcntl is not None:
            with suppress(OSError):  # the file system has no locks
                fcntl.flock(raw, fcntl.LOCK_EX)
        size = raw.seek(0, os.SEEK_END)
        raw.seek(max(0, size - 1))
        if size and raw.read(1) != b"\n":
            raw.seek(0)
            before = raw.read()
            rest = before[before.rfind(b"\n") + 1 :]
            if _is_whole(rest):  # an editor left out the last newline
                content = b"\n" + content
            else:
                size -= len(rest)
                raw.truncate(size)
        left = memoryview(content)
        try:
            while left:
                left = left[raw.write(left) :]
        except OSError:
            raw.truncate(size)
            raise


def _failed(file: str, done: str, error: OSError) -> NoeticError:
    what = f"Labels cannot be {done}: {error.strerror or error}."
    hint = "Check that the folder exists, is writable and has space."
    return NoeticError("storage_failed", what, given=file, hint=hint, path=file)


class LabelStore:
    """The labels of one run: beside its file, or in memory if it has none."""

    def __init__(self, key: str, path: str | None = None, labels: Iterable[Label] = ()) -> None:
        self.key, self.path = key, path
        self._labels = list(labels)

    def every(self) -> list[Label]:
        """Return all lines, removed labels included."""
        return [*(labels_of_file(self.path).get(self.key, ()) if self.path is not None else ()), *self._labels]

    def add(self, label: Label) -> None:
        """Add a label; raises `NoeticError` ``storage_failed`` if it cannot be written."""
        if self.path is None:
            self._labels.append(label)
        else:
            self._write(labels_path(self.path), self.key, [label])

    def save_beside(self, path: str | PathLike[str], run_id: str) -> None:
        """Write all labels beside the file to which the run was saved; it becomes the run's file if there was none."""
        key, every = redact_text(run_id), self.every()
        there = labels_of_file(path).get(key, ()) if every else ()
        if missing := [label for label in every if label not in there]:
            self._write(labels_path(path), key, missing)
        if self.path is None:
            self.keep_beside(path, key)
            self._labels = []

    def keep_beside(self, path: str | PathLike[str], key: str) -> None:
        """Read and write labels beside this file from now on."""
        self.path, self.key = os.path.abspath(path), key

    def copy(self) -> LabelStore:
        return LabelStore(self.key, self.path, self._labels)

    @staticmethod
    def _write(file: Path, key: str, labels: Iterable[Label]) -> None:
        try:
            _append(file, b"".join([_line(key, label) for label in labels]))
        except OSError as error:
            raise _failed(str(file), "saved", error) from error


def in_force(labels: Iterable[Label]) -> list[Label]:
    """Return the labels in effect, oldest first: the last of each rater about each target, unless it was removed."""
    last: dict[tuple[Any, ...], Label] = {}
    for label in labels:
        key = (label.name, label.by, label.target)
        last.pop(key, None)
        last[key] = label
    return [label for label in last.values() if label.value is not None]


def agreed_value(labels: Sequence[Label], name: str) -> Value | None:
    """Return the label of a whole run: the consensus, otherwise the value that all raters gave; None if they differ."""
    about = [label for label in labels if label.name == name and label.target == (None,) * 4]
    decided = [label for label in about if label.by == CONSENSUS]
    values = {(type(label.value), label.value) for label in decided or about}
    return values.pop()[1] if len(values) == 1 else None


def shown_to(
    labels: Sequence[Label], by: str | None, units: Callable[[str], Iterable[tuple[Any, ...]] | None] = lambda _: None
) -> list[Label]:
    """Return the labels visible to a rater: own labels, and others' once both raters have labelled all `units` of the name."""
    if by is None:
        return list(labels)
    done: dict[tuple[str, str], set[Any]] = {}
    for label in labels:
        done.setdefault((label.name, label.by), set()).add(label.target)

    def is_open(label: Label) -> bool:
        if label.by in (by, CONSENSUS):
            return True
        own, other = done.get((label.name, by), set()), done[label.name, label.by]
        known = units(label.name)
        wanted = own | other if known is None else set(known)
        return bool(own) and wanted <= own and wanted <= other

    return [label for label in labels if is_open(label)]
