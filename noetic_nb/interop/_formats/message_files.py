"""Files of messages; those too large for memory are read record by record."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, get_args, overload

from noetic_nb._core.atomic_write import regular_file
from noetic_nb._core.long_work import counted
from noetic_nb.errors import NoeticConfigError
from noetic_nb.interop._formats.sources import Document, Line, record, refused
from noetic_nb.items._messages import MessageFormat, decode_messages, recognise
from noetic_nb.items._messages.message import shown
from noetic_nb.runs import Run
from noetic_nb.runs._conversation import conversation_events
from noetic_nb.runs._load import MAX_LINE_BYTES
from noetic_nb.runs._run import run_of_settled

_PIECE: Final = 1 << 20
_MOST: Final = 2**62
_LOOKED_AT: Final = 3
_BLANK: Final = b" \t\r\n"
_WAYS: Final = (
    "Write a record on each line (jq -c '.[]' for a list, jq -c '.data[]' for the records of a page), or split it: such a file "
    "may have any size."
)
_UNPACK: Final = "Unpack it first: a file with a record on each line may have any size then."


def is_large(path: Path, limit: int) -> bool:
    """Tell whether a file has more bytes than may be read at once."""
    try:
        return path.is_file() and path.stat().st_size > limit
    except OSError:  # reported when the file is opened
        return False


def large_document(path: Path) -> Document:
    """Return a document whose records stay in the file; raises ``invalid_run_file`` for one JSON value or a packed file."""
    document = Document(None, path)
    with regular_file(path, _MOST) as file:
        start = file.read(_PIECE)
        if start[:2] in (b"\x1f\x8b", b"PK"):
            raise refused(document, "it is compressed, and too large to be read at once", hint=_UNPACK)
        file.seek(0)
        first = start.lstrip(b"\xef\xbb\xbf" + _BLANK)[:1]
        records = _Records(path)
        try:
            for begin, end in counted(_elements(file) if first == b"[" else _lines(file), "records"):
                records.starts.append(begin)
                records.stops.append(end)
        except ValueError as error:
            raise refused(
                document, f"it is too large to be read at once, and not a list ({error})", hint=_WAYS
            ) from error
    if first != b"[" and (len(records) < 2 or all(line.parsed() is None for line in records[:_LOOKED_AT])):
        raise refused(document, "it is one JSON value, and too large to be read at once", hint=_WAYS)
    return Document(records, path, by_line=True)


class _Records(Sequence[Line]):
    """The positions of records in a file; each record is read on demand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.starts, self.stops = array("q"), array("q")

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> list[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | list[Line]:
        """Return a record as the unparsed text in the file."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        start, stop = self.starts[index], self.stops[index]
        with self.path.open("rb") as file:
            file.seek(start)
            # One byte more than the limit, so that a record that is too long is refused.
            return Line(file.read(min(stop - start, MAX_LINE_BYTES + 1)))


def _lines(file: BinaryIO) -> Iterator[tuple[int, int]]:
    start = at = 0
    is_blank = True
    while piece := file.readline(MAX_LINE_BYTES):
        at += len(piece)
        is_blank = is_blank and not piece.strip()
        if piece.endswith(b"\n") or len(piece) < MAX_LINE_BYTES:
            if not is_blank:
                yield start, at
            start, is_blank = at, True


def _elements(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each element of an array."""
    decode = json.JSONDecoder().raw_decode
    text = file.read(_PIECE).decode("utf-8", "surrogateescape")
    at = known = text.index("[") + 1
    offset = _size(text[:at])  # of the character at `known`, in bytes
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if text[at : at + 1] == "]":
            return
        try:
            _, end = decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            held = text[known:].encode("utf-8", "surrogateescape")
            piece = file.read(max(_PIECE, len(held)))
            if not piece or len(held) > MAX_LINE_BYTES:
                raise ValueError(f"the element at byte {offset:,} cannot be read: {error}") from error
            text, at, known = (held + piece).decode("utf-8", "surrogateescape"), 0, 0
            continue
        start = offset + _size(text[known:at])
        offset, at, known = start + _size(text[at:end]), end, end
        yield start, offset


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


FORMATS: Final[tuple[str, ...]] = get_args(MessageFormat)
_KEYS: Final = ("messages", "conversation", "conversations", "traj", "trajectory")
_PARAMS: Final = ("temperature", "top_p", "max_tokens", "max_completion_tokens")

_Talk: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]
"""Messages, and the other values of their document."""


def looks_like(document: Document) -> bool:
    data = document.data
    if document.by_line:
        return _talk(record(document, 0)) is not None
    if _is_list(data):
        return not data or _talk(data) is not None or _talk(data[0]) is not None
    return _talk(data) is not None


def _is_list(data: Any) -> bool:
    """Tell whether a value is a list and not a record, such as a LangGraph state."""
    return isinstance(data, list) or (isinstance(data, tuple) and not hasattr(data, "_fields"))


def _talk(data: Any) -> _Talk | None:
    """Return the messages of a document or of a framework's object; None if there are none."""
    if _is_list(data):
        return None if recognise(data) is None else (data, {})
    if isinstance(data, Mapping):
        for key in _KEYS:
            found = data.get(key)
            if isinstance(found, list | tuple) and (not found or recognise(found) is not None):
                return found, {name: value for name, value in data.items() if name != key}
        asked = data.get("input")
        if isinstance(asked, list | str) and isinstance(data.get("output"), list):
            first = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
            return [*first, {name: value for name, value in data.items() if name != "input"}], {}
    if callable(method := getattr(data, "all_messages", None)):  # a pydantic-ai result
        return list(method()), {}
    if callable(method := getattr(data, "to_input_list", None)):  # an OpenAI Agents SDK result
        return _with_responses(list(method()), data), {}
    found = getattr(data, "messages", None)
    if isinstance(found, list | tuple):
        return found, {}
    if isinstance(state := getattr(data, "values", None), Mapping):  # a LangGraph state
        return _talk(state)
    return None if recognise([data]) is None else ([data], {})


def _with_responses(items: list[Any], result: Any) -> list[Any]:
    """Return the items of an agents run with the items of each response grouped with its usage."""
    model = getattr(getattr(result, "last_agent", None), "model", None)
    model = getattr(model, "model", model)
    made: list[Any] = []
    place = 0
    for response in getattr(result, "raw_responses", ()):
        output = [_key(item) for item in response.output]
        starts = range(place, len(items) - len(output) + 1)
        start = next((at for at in starts if output == [_key(item) for item in items[at : at + len(output)]]), None)
        if start is None or not output:
            continue
        usage = vars(response.usage) if hasattr(response.usage, "__dict__") else {}
        whole = {
            "object": "response",
            "output": items[start : start + len(output)],
            "model": model if isinstance(model, str) else None,
            "usage": {name: vars(value) if hasattr(value, "__dict__") else value for name, value in usage.items()},
        }
        made += [*items[place:start], whole]
        place = start + len(output)
    return [*made, *items[place:]]


def _key(item: Any) -> tuple[Any, Any]:
    read = item.get if isinstance(item, Mapping) else partial(getattr, item)
    return read("type", None), read("call_id", None)


def read(document: Document, format: str | None = None) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each conversation of a document."""
    data = document.data
    if document.by_line and recognise([record(document, 0)]) is not None:
        lines = [record(document, place) for place in range(len(data))]
        yield partial(_run, document, (lines, {}), format, None)
    elif document.by_line:
        for place in range(len(data)):
            yield lambda place=place: _entry(document, record(document, place), place, format)  # type: ignore[misc]
    elif _is_list(data) and data and recognise(data) is None and format is None:
        for place, entry in enumerate(data):
            yield partial(_entry, document, entry, place, format)
    else:
        yield partial(_entry, document, data, None, format)


def _entry(document: Document, entry: Any, place: int | None, format: str | None) -> Run:
    is_named = format is not None and _is_list(entry)
    talk: _Talk | None = (entry, {}) if is_named else _talk(entry)
    if talk is None and _is_list(entry) and not entry:
        talk = [], {}
    if talk is None:
        hint = f"Formats: {', '.join(FORMATS)}."
        raise refused(document, "it contains no messages of a known format", index=place, hint=hint)
    return _run(document, talk, format, place)


def _run(document: Document, talk: _Talk, format: str | None, place: int | None) -> Run:
    messages, about = talk
    try:
        found, unmapped, name = decode_messages(
            messages,
            format=format,  # type: ignore[arg-type]  # checked by the callee
            system=about.get("system"),
        )
    except NoeticConfigError as error:
        if format is not None:
            raise
        raise refused(document, str(error), index=place) from error
    known: dict[str, Any] = {"source": name, "outcome": about.get("outcome")}
    if not isinstance(known["outcome"], bool):
        known["outcome"] = None
    if isinstance(about.get("model"), str):
        known["model"] = about["model"]
    if params := {key: about[key] for key in _PARAMS if about.get(key) is not None}:
        known["params"] = params
    rest = [
        {"place": key, "what": "no place in a run", "value": shown(value)}
        for key, value in about.items()
        if key not in ("system", "model", "outcome", *_PARAMS) and value not in (None, [], {}, "")
    ]
    return run_of_settled(None, *conversation_events(found, meta=known, unmapped=[*unmapped, *rest]))
