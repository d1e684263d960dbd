"""Sets of runs for tests: a manifest as JSON with a version for each time it was frozen, reasons and hashes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Final

from noetic_nb._core.atomic_write import write_whole
from noetic_nb.clock import SYSTEM_CLOCK
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.interop._formats.sources import RUN_SET
from noetic_nb.interop._importing import Failed, runs_of_file
from noetic_nb.redact import redact_text
from noetic_nb.runs import Run

_FORM: Final = "noetic-nb/run-set"
_KEPT: Final = ("run_id", "task", "outcome", "turns", "tools")


def _invalid(what: str, given: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError("INVALID_SET", what, given=given, hint=hint)


def set_path(name: str | PathLike[str]) -> Path:
    """Return the file of a set by its name or path."""
    text = os.fspath(name)
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
        raise _invalid("A set has a reason.", why, "Such as freeze('refunds', why='Calls that went wrong in May.').")
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
        raise _invalid("A set has at least one run.", str(name), "Look at the collection: len(collection).")
    version = {"version": len(versions) + 1, "why": redact_text(why), "frozen_ms": SYSTEM_CLOCK.now_ms(), "runs": rows}
    form = {"form": _FORM, "name": file.name.removesuffix(RUN_SET), "versions": [*versions, version]}
    write_whole(file, json.dumps(form, indent=1, ensure_ascii=False) + "\n")
    return file


def read_versions(file: Path) -> list[dict[str, Any]]:
    """Return the versions of a set, the oldest first. Raises `NoeticConfigError` ``INVALID_SET``."""
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
        raise _invalid("The file is no set of runs.", str(file), "collection.freeze(name, why=...) writes one.")
    return versions


def _is_list(runs: object) -> bool:
    return isinstance(runs, list) and all(
        isinstance(run, dict) and isinstance(run.get("path"), str) and type(run.get("place")) is int for run in runs
    )


def set_members(name: str | PathLike[str]) -> Iterator[tuple[dict[str, Any], Run | Failed]]:
    """Yield the runs of the newest version of a set with their rows; one whose file is gone or has changed is a `Failed`."""
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
