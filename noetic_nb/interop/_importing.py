"""Import any recording as runs: recognise its format and read every conversation of a source."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb._core.atomic_write import regular_file
from noetic_nb._core.long_work import Progress, Work
from noetic_nb._core.names import nearest
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.interop._formats import agentdojo, atif, claude_code, codex, inspect_logs, message_files, tau, tau2
from noetic_nb.interop._formats.message_files import is_large, large_document
from noetic_nb.interop._formats.sources import (
    Document,
    Line,
    document_of,
    documents,
    is_folder,
    read_document,
    record,
    refused,
)
from noetic_nb.interop._spans import import_spans
from noetic_nb.interop._traces import langfuse, langsmith, mlflow, weave
from noetic_nb.items._messages import MessageFormat
from noetic_nb.runs import Run, load_run
from noetic_nb.runs._events.event_json import SCHEMA
from noetic_nb.runs._labelled import label_beside
from noetic_nb.runs._load import MAX_BYTES, MAX_LINE_BYTES

__all__ = ["Failed", "import_run", "import_runs", "run_from_messages"]


@dataclass(frozen=True, slots=True)
class Failed:
    """A record that could not be read.

    Parameters
    ----------
    path : str or None
        The file that holds it.
    error : Exception
        The reason.
    """

    path: str | None
    error: Exception


# From the most specific format to plain messages. Each has `FORMATS`, `looks_like`, and a lazy `read`, so that a bad
# record does not affect others; some have `is_part`: whether a file in a folder is read with another one.
_READERS: Final[tuple[Any, ...]] = (
    *(langsmith, langfuse, mlflow, weave, import_spans, inspect_logs, claude_code, codex, atif, tau, tau2, agentdojo),
    message_files,
)
_OWN: Final = "noetic"
_OWN_START: Final = (b'{"bundle":', b'{"events":')
_MOST_KEYS: Final = 10  # enough for an error message about a wide table
_LOOKED_AT: Final = 10


def formats() -> tuple[str, ...]:
    """Return the names of the formats."""
    return (*[name for reader in _READERS for name in reader.FORMATS], _OWN)


def _runs_of(source: Any, format: str | None) -> Iterator[tuple[Path | None, Callable[[], Run]]]:
    """Yield a reader for every run of a source, each with the labels stored beside its file."""
    last, place = None, 0
    for path, read in _readers_of(source, format):
        last, place = path, place + 1 if path == last else 0
        yield path, read if path is None else partial(_with_labels, read, path, place)


def _with_labels(read: Callable[[], Run], path: Path, place: int) -> Run:
    run = read()
    label_beside(run, str(path), str(place))
    return run


def _readers_of(source: Any, format: str | None) -> Iterator[tuple[Path | None, Callable[[], Run]]]:
    """Yield a reader for every run of a source; opening a file may also fail when the reader is called."""
    if isinstance(source, Run):
        yield None, lambda: source
        return
    if isinstance(source, Iterator | ValuesView):  # such as from a loader
        source = list(source)
    # Paths given as text may come from untrusted data, so lists of them open no files.
    if isinstance(source, list | tuple) and source and all(isinstance(each, Run | PathLike) for each in source):
        for each in source:
            yield from _readers_of(each, format)
        return
    in_folder = is_folder(source)
    for found in documents(source):
        path = found if isinstance(found, Path) else None
        for run in _readers_in(found, format, in_folder=in_folder):
            yield path, run


def _readers_in(found: Path | Document, format: str | None, *, in_folder: bool) -> Iterator[Callable[[], Run]]:
    path = found if isinstance(found, Path) else None
    if path is not None and (format == _OWN or (format is None and _is_own(path))):
        yield partial(load_run, path)
        return
    try:
        # Traces are the largest files, so they are read in pieces.
        if path is not None and (
            format in import_spans.FORMATS or (format is None and import_spans.is_span_file(path))
        ):
            yield from import_spans.run_readers(path)
            return
        parts = _parts(found if isinstance(found, Document) else _opened(found), format)
    except NoeticError as error:
        yield partial(_raise, error)
        return
    for document in parts:
        try:
            reader = _reader(document, format)
            if not (in_folder and hasattr(reader, "is_part") and reader.is_part(document)):
                yield from reader.read(document, format)
        except NoeticError as error:
            yield partial(_raise, error)


def runs_of_file(path: Path, *, in_folder: bool) -> Iterator[Callable[[], Run]]:
    """Yield a reader for every run of a file, with its stored labels; each raises `NoeticError` if it cannot read."""
    for place, read in enumerate(_readers_in(path, None, in_folder=in_folder)):
        yield partial(_read, path, partial(_with_labels, read, path, place), place)


def _opened(path: Path) -> Document:
    return large_document(path) if is_large(path, MAX_BYTES) else read_document(path)


def _raise(error: Exception) -> Run:
    raise error


def _read(path: Path | None, read: Callable[[], Run], index: int | None) -> Run:
    try:
        return read()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, NoeticConfigError):
            raise
        # An external source may hold any value anywhere; report this as a fault of the source, with the position.
        what = f"it does not follow its format ({type(error).__name__}: {str(error)[:200]})"
        raise refused(Document(None, path), what, index=index) from error


def _is_own(path: Path) -> bool:
    """Tell whether a file begins as written by `Run.save`; damage is found when it is read."""
    try:
        with regular_file(path, MAX_BYTES) as raw, gzip.GzipFile(fileobj=raw) as file:
            # The head of a run holds its system prompt, so the name of the schema may be far from the start.
            return file.peek(16).startswith(_OWN_START) and f'"schema":"{SCHEMA}"'.encode() in file.readline(
                MAX_LINE_BYTES
            )
    except (OSError, EOFError, zlib.error):
        return False


def _parts(document: Document, format: str | None) -> Sequence[Document]:
    """Return a document, or the entries of a list that has no format itself: whole logs, sessions or pages."""
    data, readers = document.data, _named(format)
    if document.is_large or not isinstance(data, list | tuple) or any(_is_of(reader, document) for reader in readers):
        return (document,)
    entries = [each.parsed() if isinstance(each, Line) else each for each in data]
    parts = [replace(document_of(entry), path=document.path) for entry in entries]
    return parts if any(_is_of(reader, part) for part in parts[:_LOOKED_AT] for reader in readers) else (document,)


def _named(format: str | None) -> list[Any]:
    return [reader for reader in _READERS if format is None or format in reader.FORMATS]


def _reader(document: Document, format: str | None) -> Any:
    for reader in _named(format):
        # A log reader would make an empty run of an unrelated document; only messages may be read by `format` alone.
        if _is_of(reader, document) or (format is not None and reader is message_files):
            return reader
    what = "unrecognised format" if format is None else f"it is not of the format {format!r}"
    given, hint = _seen(document)
    raise refused(document, f"{what}. Given: {given}", hint=f"{hint} Formats: {', '.join(formats())}.")


def _is_of(reader: Any, document: Document) -> bool:
    try:
        return bool(reader.looks_like(document))
    except NoeticError:  # its first record is unreadable: other readers examine more records
        return False


_WORDS: Final = ("role", "content", "messages", "tool_calls", "tool_call_id", "trajectory", "conversation", "spans")


def _seen(document: Document) -> tuple[str, str]:
    """Return a description of a document, and the format that it was probably meant to have."""
    data = record(document, 0) if document.by_line else document.data
    first, what = data, "a mapping"
    if isinstance(data, list | tuple):
        first, what = data[0] if data else None, f"a list of {len(data)}, the first a mapping"
    if not isinstance(first, Mapping):
        kind = type(first).__name__
        given = f"a list of {kind}" if first is not data else f"{kind}"
        if given == "a list of str":
            return given, "Paths in a list are objects: pathlib.Path(name)."
        return given, "Pass a list of messages, [{'role': 'user', 'content': 'Hi'}, ...], or a path."
    keys = [str(key) for key in first][:_MOST_KEYS]
    given = f"{what} with the keys {', '.join(map(repr, keys)) or 'none'}"
    for key in keys:
        if key not in _WORDS and (near := nearest(key, _WORDS)):
            return given, f"Did you mean {near!r} in place of {key!r}?"
    return given, "A message has the keys 'role' and 'content'."


def _check(format: str | None) -> None:
    if format is not None and format not in formats():
        hint = f"Formats are {', '.join(formats())}."
        raise NoeticConfigError("UNKNOWN_FORMAT", "There is no such format.", given=format, hint=hint)


@explained(positional="Name the format: nn.import_run(path, format='openai').")
def import_run(source: Any, *, format: str | None = None, progress: bool = True) -> Run:
    """Read one recorded conversation of any agent.

    Parameters
    ----------
    source : path-like, str, bytes, list, mapping or object
        A file, JSON text, messages, or a framework's state or result.
    format : str, optional
        Its format; recognised by default.
    progress : bool
        Show a line of text in a terminal or notebook if it takes long.

    Returns
    -------
    Run
        Redacted. ``meta["unmapped"]`` lists parts that have no place in a run, ``meta["estimated"]`` values not measured.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_FORMAT``; ``SEVERAL_RUNS`` if the source holds several: use `import_runs`.
    NoeticError
        ``invalid_run_file``, with ``path`` and ``index``, if the source cannot be read.

    References
    ----------
    .. [1] docs/behaviour/interop.md, "Importing".

    Examples
    --------
    >>> run = import_run('[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}]')
    >>> run.turns[0].text
    'Hello.'
    """
    _check(format)
    with Work("import_run", "runs", progress, keeps=False) as work, work.within():
        found = list(islice(_runs_of(source, format), 2))
        if len(found) > 1:
            hint = "Read them one by one: for run in nn.import_runs(source)."
            raise NoeticConfigError(
                "SEVERAL_RUNS", "The source contains several runs.", given=str(source)[:200], hint=hint
            )
        if not found:
            raise refused(Document(None), "there is no run in it")
        run = _read(*found[0], None)
    return run  # noqa: RET504  # types: the block might swallow an error


def run_from_messages(
    messages: Iterable[Any],
    *,
    format: MessageFormat | None = None,
    outcome: bool | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Run:
    """Make a run from the messages of another agent; same as `Run.from_messages`, which describes the forms.

    Examples
    --------
    >>> run_from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}]).turns[0].text
    'Hello.'
    """
    return Run.from_messages(messages, format=format, outcome=outcome, meta=meta)


@explained(positional="Name the format: nn.import_runs(path, format='openai').")
def import_runs(source: Any, *, format: str | None = None, progress: Progress = True) -> Iterator[Run | Failed]:
    """Read every conversation of a source, one at a time.

    Parameters
    ----------
    source : path-like, str, bytes, list, mapping or object
        As for `import_run`; also a folder.
    format : str, optional
        Its format; recognised for each file by default.
    progress : bool or callable
        Called with the number of runs read, and None. True shows a line of text in a terminal or notebook; False, none.

    Yields
    ------
    Run or Failed
        In order. An unreadable record gives a `Failed`, and reading goes on.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_FORMAT``, ``INVALID_PROGRESS``.

    Warns
    -----
    Interrupted
        If reading is interrupted: it ends, and the runs yielded so far are the first ones of the source.

    Examples
    --------
    >>> talks = [{"messages": [{"role": "user", "content": "hi"}]}, {"messages": [{"role": "user", "content": "ho"}]}]
    >>> [run.turns[0].query for run in import_runs(talks)]
    ['hi', 'ho']
    """
    _check(format)
    return _each(_runs_of(source, format), Work("import_runs", "runs", progress))


def _each(found: Iterator[tuple[Path | None, Callable[[], Run]]], work: Work) -> Iterator[Run | Failed]:
    with work:
        while True:
            with work.within():  # stops only while reading, not while the caller works on a run
                path, read = next(found, (None, None))
                if read is None:
                    return
                each: Run | Failed
                try:
                    each = _read(path, read, work.done)
                except NoeticError as error:
                    each = Failed(None if path is None else str(path), error)
            work.step()
            yield each
