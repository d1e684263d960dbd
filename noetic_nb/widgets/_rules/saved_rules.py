"""Saving a rule book from an editor: never over a file that is not the one it came from, unless someone says so."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain
from noetic_nb.steering import RuleBook
from noetic_nb.steering._rulebook.rule_files import is_unchanged

__all__ = ["save_book"]


def save_book(rulebook: RuleBook, path: str | PathLike[str], *, overwrite: bool = False) -> str:
    """Write a rule book to a rule file; returns a sentence about the written file.

    Parameters
    ----------
    rulebook : RuleBook
        What to write.
    path : path-like
        A ``.yaml``, ``.yml`` or ``.json`` file.
    overwrite : bool
        Whether a file may be replaced that the book was not read from, or that changed since.

    Raises
    ------
    NoeticConfigError
        ``FILE_EXISTS``, ``INVALID_FORMAT``, ``MISSING_PACKAGE``, ``NOT_WRITTEN`` where the system refuses.
    """
    if not str(path).strip():
        raise NoeticConfigError("INVALID_FORMAT", "A rule file has a name.", given=str(path), hint="Type rules.yaml.")
    target = Path(path).expanduser()
    try:
        if target.exists() and not overwrite and not is_unchanged(rulebook.file, target):
            raise NoeticConfigError(
                "FILE_EXISTS",
                "There is a file of that name that these rules were not read from, or that changed since.",
                given=str(target),
                hint="Confirm that it is to be replaced, or choose another name.",
            )
        rulebook.save(target)
        size = target.stat().st_size
    except OSError as exc:
        raise NoeticConfigError(
            "NOT_WRITTEN", exc.strerror or str(exc), given=str(target), hint="Choose another place."
        ) from exc
    functions = [plain(rule.id) for rule in rulebook if rule.form == "python"]
    count = len(rulebook)
    words = f"Wrote {count} rule{'' if count == 1 else 's'} ({size:,} bytes) to {plain(target.resolve(), TEXT_LENGTH)}."
    if functions:
        listed = plain(", ".join(functions), TEXT_LENGTH)
        words += f" Functions stand there by name only, and load_rules takes them as functions={{...}}: {listed}."
    return words
