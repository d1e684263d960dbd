"""File memory: notes that the agent keeps as text files in its state and edits by calling functions."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb._core.filesystem import OutsideRoot, checked_path
from noetic_nb.layers._helpers import schemas
from noetic_nb.layers._helpers.collaborators import check_whole
from noetic_nb.layers._helpers.considered import fitting_lines, tagged
from noetic_nb.layers.handles import NotesHandle
from noetic_nb.memory import BudgetConfig, MemoryHooks, MemoryLayer, MemoryScope, layer_data, params
from noetic_nb.memory._layer_functions import built_in

SLOT: Final = 120
DEFAULT_BUDGET: Final = {"min": 0, "max": 1000}
TAG: Final = "notes"
MAX_FILES: Final = 100
# Characters: the limit of a file, which a model rewrites as a whole, and of all files, which every write stores.
MAX_FILE_CHARS: Final = 20_000
MAX_CHARS: Final = 200_000
# Characters of a path, and its depth; common file systems accept this, and a listing stays readable.
LONGEST_PATH: Final = 200
DEEPEST: Final = 8
# Characters of a first line in the list of files.
CUT: Final = 80


class _State(schemas.StoredState):
    files: dict[str, str]


class _View(schemas.Arguments):
    path: str = ""
    """A file, or a folder to list; nothing for all files."""
    first: int = 1
    """The first line that is shown of a file."""
    last: int | None = None
    """The last line that is shown."""


class _Create(schemas.Arguments):
    path: str
    """Where the new file is, such as people/ann.md."""
    text: str
    """All of its text."""


class _Replace(schemas.Arguments):
    path: str
    """The file."""
    old: str
    """A piece of its text that occurs once."""
    new: str
    """What stands there afterwards."""


class _Insert(schemas.Arguments):
    path: str
    """The file."""
    line: int
    """The line behind which the text is put; 0 for the beginning."""
    text: str
    """The new lines."""


class _Delete(schemas.Arguments):
    path: str
    """A file, or a folder with all in it."""


class _Rename(schemas.Arguments):
    path: str
    """A file or a folder."""
    new_path: str
    """Where it is afterwards."""


class _Refused(Exception):
    """The request cannot be carried out; the message is the text for the model."""


_EMPTY: Final[dict[str, Any]] = {"files": {}}


@built_in
@explained()
def file_memory(
    *,
    id: str = "file-memory",
    scope: MemoryScope = "resource",
    initial: Mapping[str, str] | None = None,
    max_files: int = MAX_FILES,
    max_file_chars: int = MAX_FILE_CHARS,
    max_chars: int = MAX_CHARS,
    budget: BudgetConfig = None,
    slot: float = SLOT,
) -> MemoryLayer[NotesHandle]:
    """Make a layer in which the agent keeps notes as files, by calling ``<id>/create`` and others.

    Parameters
    ----------
    initial : mapping of str to str, optional
        The first files: text by path.
    max_files : int
        The maximum number of files.
    max_file_chars, max_chars : int, characters
        The maximum length of one file, and of all files together.

    Returns
    -------
    MemoryLayer
        With functions ``view``, ``create``, ``replace``, ``insert``, ``delete`` and ``rename`` and data ``files``. The
        prompt lists the files with their first lines; ``view`` shows their texts.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "File memory".

    Examples
    --------
    >>> sorted(file_memory().provides)
    ['create', 'delete', 'files', 'insert', 'rename', 'replace', 'view']
    """
    check_whole(max_files=max_files, max_file_chars=max_file_chars, max_chars=max_chars)
    if initial is not None and not isinstance(initial, Mapping):
        raise schemas.option_error(
            "`initial` must map paths to texts.", initial, "For example: initial={'todo.md': 'Nothing yet.'}."
        )
    notes = _Notes(max_files, max_file_chars, max_chars)
    first = dict(_EMPTY["files"])
    for path, text in (initial or {}).items():
        try:
            first, _ = notes.create(first, _Create(path=path, text=text))
        except (_Refused, ValueError) as exc:
            raise schemas.option_error(
                f"A first file cannot be kept: {exc}", {path: text}, "Change `initial`."
            ) from exc

    def answering(do: Any) -> Any:
        def execute(args: Any, state: Any, ctx: object) -> dict[str, Any]:
            files = (state or _EMPTY)["files"]
            try:
                changed, answer = do(files, args)
            except _Refused as exc:
                # A result rather than an error, so that the model reads it and can correct itself.
                return {"result": f"Not done: {exc}"}
            return {"result": answer} if changed is files else {"result": answer, "state": {"files": changed}}

        return execute

    functions = (
        ("view", _View, notes.view, "Show a file of your notes with its line numbers, or list a folder."),
        ("create", _Create, notes.create, "Make a new file of notes."),
        ("replace", _Replace, notes.replace, "Replace a piece of text in a file of your notes."),
        ("insert", _Insert, notes.insert, "Put new lines into a file of your notes."),
        ("delete", _Delete, notes.delete, "Delete a file of your notes, or a folder with all in it."),
        ("rename", _Rename, notes.rename, "Rename or move a file or a folder of your notes."),
    )
    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=DEFAULT_BUDGET if budget is None else budget,
        hooks=MemoryHooks(
            init=schemas.init_hook(_State, {"files": first}, layer_id=id),
            recall=_recall,
            on_spawn=schemas.copy_to_child,
        ),
        provides={
            "files": layer_data(lambda state: dict((state or _EMPTY)["files"])),
            **{name: schemas.model_function(about, taken, answering(do)) for name, taken, do, about in functions},
        },
    )


Files = dict[str, str]


class _Notes:
    """The operations on the files of a state: each function returns the new files and an answer."""

    def __init__(self, max_files: int, max_file_chars: int, max_chars: int) -> None:
        self.max_files = max_files
        self.max_file_chars = max_file_chars
        self.max_chars = max_chars

    def view(self, files: Files, args: _View) -> tuple[Files, str]:
        if args.path in ("", ".", "/"):
            return files, _listed(files, "") or "There are no notes yet."
        path = _known(files, args.path)
        if path not in files:
            found = _listed(files, f"{path}/")
            if not found:
                raise _missing(files, path)
            return files, found
        lines = files[path].split("\n")
        last = len(lines) if args.last is None else args.last
        if not 1 <= args.first <= last:
            raise _Refused(f"lines {args.first} to {last} are not a valid range; {path!r} has {len(lines)}.")
        shown = [f"{number:>5}  {line}" for number, line in enumerate(lines, 1) if args.first <= number <= last]
        if not shown:
            raise _Refused(f"{path!r} has {len(lines)} lines only.")
        return files, "\n".join(shown)

    def create(self, files: Files, args: _Create) -> tuple[Files, str]:
        path = _known(files, args.path)
        if path in files:
            raise _Refused(f"there is a file {path!r} already. Change it with replace or insert, or delete it first.")
        _check_free(files, path)
        if len(files) >= self.max_files:
            raise _Refused(f"there are {len(files)} files already, and no more are kept. Delete one first.")
        return self._written(files, path, args.text), f"{path} was made."

    def replace(self, files: Files, args: _Replace) -> tuple[Files, str]:
        path = _file(files, args.path)
        count = files[path].count(args.old) if args.old else 0
        if count != 1:
            how = "is empty" if not args.old else "does not occur" if not count else f"occurs {count} times"
            raise _Refused(
                f"the old text {how} in {path!r}. Give a piece that occurs once, exactly as it stands there."
            )
        return self._written(files, path, files[path].replace(args.old, args.new)), f"{path} was changed."

    def insert(self, files: Files, args: _Insert) -> tuple[Files, str]:
        path = _file(files, args.path)
        lines = files[path].split("\n") if files[path] else []
        if not 0 <= args.line <= len(lines):
            raise _Refused(f"{path!r} has {len(lines)} lines; insert behind one of 0 to {len(lines)}.")
        lines[args.line : args.line] = args.text.removesuffix("\n").split("\n")
        return self._written(files, path, "\n".join(lines)), f"{path} was changed."

    def delete(self, files: Files, args: _Delete) -> tuple[Files, str]:
        path, gone = _within(files, args.path)
        left = {name: text for name, text in files.items() if name not in gone}
        return left, f"{path} was deleted{'' if path in files else f', with {len(gone)} files'}."

    def rename(self, files: Files, args: _Rename) -> tuple[Files, str]:
        path, moved = _within(files, args.path)
        # Without the moved files: a new spelling of the same name is not another file.
        left = {name: text for name, text in files.items() if name not in moved}
        new = _known(left, args.new_path)
        if f"{new}/".startswith(f"{path}/") and new != path:
            raise _Refused(f"{path!r} cannot be moved into itself.")
        if new in left:
            raise _Refused(f"there is a file {new!r} already. Delete it first.")
        _check_free(left, new)
        places = {name: _path(new + name[len(path) :]) for name in moved}
        return {places.get(name, name): text for name, text in files.items()}, f"{path} is now {new}."

    def _written(self, files: Files, path: str, text: str) -> Files:
        if len(text) > self.max_file_chars:
            raise _Refused(f"{path!r} would have {len(text)} characters; a file may have {self.max_file_chars}.")
        after = {**files, path: text}
        total = sum(map(len, after.values()))
        if total > self.max_chars:
            raise _Refused(f"all files together would have {total} characters; {self.max_chars} are kept. Delete some.")
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise _Refused(f"the text contains a lone surrogate at position {exc.start}.") from exc
        return after


def _path(given: str) -> str:
    """Return a path in its normal form; raises `_Refused`."""
    if len(given) > LONGEST_PATH:
        raise _Refused(f"a path has at most {LONGEST_PATH} characters, and this one {len(given)}.")
    # Normalise texts that look the same: an accent may be a separate character.
    path = unicodedata.normalize("NFC", given)
    if not path.isprintable():
        raise _Refused(f"a path must not contain control or invisible characters: {given!a}.")
    try:
        plain = checked_path(path)
        # Also split at characters that some systems treat as a dot or a slash, so that they cannot hide a part.
        parts = plain.split("/")
        if len(checked_path(unicodedata.normalize("NFKC", plain)).split("/")) != len(parts):
            raise OutsideRoot("A path must not contain other slashes.", given)
    except OutsideRoot as exc:
        raise _Refused(f"{str(exc)[:1].lower()}{str(exc)[1:]}") from exc
    if not plain:
        raise _Refused("a file needs a name, for example 'people/ann.md'.")
    if any(part != part.strip() for part in parts):
        raise _Refused(f"no part of a path may begin or end with a blank: {given!r}.")
    if len(parts) > DEEPEST:
        raise _Refused(f"a file is at most {DEEPEST - 1} folders deep: {given!r}.")
    return plain


def _key(path: str) -> str:
    """Return a key that is equal for paths that a reader, or another file system, treats as the same."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def _known(files: Files, given: str) -> str:
    """Return a path in the existing spelling of its file or folders; raises `_Refused` if it is not a path."""
    path = _path(given)
    parts = path.split("/")
    for depth in range(len(parts), 0, -1):
        key = _key("/".join(parts[:depth]))
        for name in files:
            head = name.split("/")[:depth]
            if len(head) == depth and _key("/".join(head)) == key:
                return "/".join([*head, *parts[depth:]])
    return path


def _file(files: Files, given: str) -> str:
    path = _known(files, given)
    if path not in files:
        raise _missing(files, path)
    return path


def _missing(files: Files, path: str) -> _Refused:
    if any(name.startswith(f"{path}/") for name in files):
        return _Refused(f"{path!r} is a folder.")
    near = [name for name in files if name.rpartition("/")[2] == path.rpartition("/")[2]]
    return _Refused(f"there is no {path!r}.{f' Perhaps {near[0]!r}?' if near else ' View lists what there is.'}")


def _within(files: Files, given: str) -> tuple[str, list[str]]:
    """Return a known path, and its file or the files of its folder; raises `_Refused` where there is none."""
    path = _known(files, given)
    found = [name for name in files if name == path or name.startswith(f"{path}/")]
    if not found:
        raise _missing(files, path)
    return path, found


def _check_free(files: Files, path: str) -> None:
    """Check that a path is not a folder, and that none of its folders is a file."""
    if any(name.startswith(f"{path}/") for name in files):
        raise _Refused(f"{path!r} is a folder.")
    parts = path.split("/")
    for depth in range(1, len(parts)):
        if (above := "/".join(parts[:depth])) in files:
            raise _Refused(f"{above!r} is a file, not a folder.")


def _lines(files: Files, prefix: str) -> list[str]:
    return [f"- {path}: {_first_line(files[path])}" for path in sorted(files) if path.startswith(prefix)]


def _listed(files: Files, prefix: str) -> str:
    return "\n".join(_lines(files, prefix))


def _first_line(text: str) -> str:
    first = next((line.strip() for line in text.split("\n") if line.strip()), "(empty)")
    return first if len(first) <= CUT else f"{first[:CUT].rstrip()}…"


def _recall(p: params.RecallParams) -> str | None:
    lines = _lines((p.state or _EMPTY)["files"], "")
    kept = fitting_lines(TAG, lines, p.budget, p.ctx.tokenize)
    return tagged(TAG, "\n".join(kept)) if kept else None
