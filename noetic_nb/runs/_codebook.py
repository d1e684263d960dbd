"""Codebooks: the names of labels, their values and their meaning, as data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from noetic_nb._core.arguments import closest
from noetic_nb._core.atomic_write import regular_file, write_whole
from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs._labels import Value

FILE: Final = "codebook.json"
"""The file of the codebook of a folder of runs."""
_PARTS: Final = ("run", "turn", "call", "item")
_MOST_BYTES: Final = 2**20
_HINT: Final = (
    "Such as {'verdict': {'values': ['right', 'wrong'], 'description': '...', 'of': 'call', 'good': ['right']}}."
)


class Code(NamedTuple):
    """One name of a codebook."""

    values: tuple[Value, ...]
    """Those that are allowed; any where there are none."""
    meanings: tuple[str, ...]
    """Of each value, in the same order."""
    description: str
    of: str | None
    """The part of a run that it is about: run, turn, call or item; any where it is None."""
    good: tuple[Value, ...]
    """The values that count as a good outcome."""


class Codebook(Mapping[str, Code]):
    """The names of labels with their allowed values.

    Parameters
    ----------
    names : mapping
        For each name a mapping with ``values`` (a list, or a mapping from values to their descriptions; any value where it is
        left out), ``description``, ``of`` (``"run"``, ``"turn"``, ``"call"`` or ``"item"``: the part of a run that it is
        about) and ``good`` (the values that count as a good outcome of a run).

    Raises
    ------
    NoeticConfigError
        ``INVALID_CODEBOOK`` for anything else.

    Notes
    -----
    The file ``codebook.json`` in a folder of runs is the codebook of all of them, and ``run.meta["codebook"]``, in the same form,
    that of one run: `Run.label` refuses labels that are not in it.

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
        """Write it to a JSON file, or as the ``codebook.json`` of a folder; returns the file."""
        file = _file(path)
        write_whole(file, json.dumps(self.data, indent=1, ensure_ascii=False) + "\n")
        return file

    def check(self, name: str, value: Value | None, part: str | None = None) -> None:
        """Refuse a label that is not in the codebook.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_LABEL`` for another name or value, or another part of the run.
        """
        code = self._codes.get(name)
        if code is None:
            hint = f"It has {', '.join(map(repr, self._codes))}. {closest(name, self._codes)}".rstrip()
            raise NoeticConfigError("UNKNOWN_LABEL", "The codebook has no such name.", given=name, hint=hint)
        if value is not None and code.values and not any(_same(value, known) for known in code.values):
            raise NoeticConfigError(
                "UNKNOWN_LABEL",
                f"The codebook has no such value of {name!r}.",
                given=value,
                hint=f"Use one of {', '.join(map(repr, code.values))}.",
            )
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
        raise _refused(f"The entry of {name!r} is no mapping.", code)
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
    """Return the codebook of a run: that of its meta, else that of the folder of its file; None where there is none.

    Raises `NoeticConfigError` ``INVALID_CODEBOOK``.
    """
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
