"""File reference: files that a user names with ``#path`` are read, ranked and shown to the model.

Files are read when an execution begins and when a message refers to them, not at every step. The state holds their
digest, score and read error, never their text.
"""

from __future__ import annotations

import copy
import hashlib
import math
import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from fsspec.implementations.local import LocalFileSystem

from noetic_nb._core.arguments import explained
from noetic_nb._core.atomic_write import as_path
from noetic_nb._core.filesystem import OutsideRoot, RootedFileSystem
from noetic_nb._core.names import keys
from noetic_nb._core.worker_threads import beside_loop
from noetic_nb.items import Item, dump_item, input_message, item_text
from noetic_nb.layers._helpers.collaborators import as_names, check_model_name, check_switch, check_whole, model_text
from noetic_nb.layers._helpers.schemas import StoredState, load_state, option_error
from noetic_nb.layers.handles import FilesHandle
from noetic_nb.memory import (
    BudgetConfig,
    ExecutionContext,
    MemoryHooks,
    MemoryLayer,
    MemoryScope,
    Slot,
    layer_data,
    params,
)
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.tokens import Tokenizer, most_that_fit

DEFAULT_EXTENSIONS: Final = keys(
    ".c .cc .cfg .cpp .css .csv .go .h .hpp .html .ini .java .js .json .jsx .kt .lua .md .php .pl .py .r .rb .rs .rst"
    " .scala .sh .sql .swift .toml .ts .tsx .txt .xml .yaml .yml"
)  # fmt: skip

_REFERENCE: Final = re.compile(r"(?<![\w/.:#\[(])#((?:[\w.-]+/)*\.?[\w-][\w.-]*\.\w+)")
_NOT_ANCHOR: Final = re.compile(r"[^0-9A-Za-z]+")

Problem = Literal["absolute", "outside", "extension", "symlink", "missing", "size", "unreadable"]


@dataclass(frozen=True, slots=True)
class FileRead:
    path: str
    text: str | None
    digest: str | None
    problem: Problem | None = None


def find_references(text: str) -> list[str]:
    """Return the paths a text refers to, each once, in order."""
    return list(dict.fromkeys(match.group(1) for match in _REFERENCE.finditer(text)))


def anchor(path: str) -> str:
    """Return the anchor of a path: lowercase, with hyphens for all characters except letters and digits."""
    return _NOT_ANCHOR.sub("-", path).strip("-").lower()


def link_references(text: str) -> str:
    return _REFERENCE.sub(lambda match: f"[#{match.group(1)}](#{anchor(match.group(1))})", text)


def read_reference(
    fs: Any, folder: str, path: str, *, extensions: frozenset[str], max_bytes: int, follow_symlinks: bool
) -> FileRead:
    """Read a file below a folder; failures are part of the result. All spellings of a file give the same path."""
    if path.startswith(("/", "~")):
        return FileRead(path, None, None, "absolute")
    # Refused before any lookup, so that not even the existence of a file outside is revealed.
    if ".." in path.split("/"):
        return FileRead(path, None, None, "outside")
    if isinstance(fs, RootedFileSystem):
        try:
            fs.resolve(folder)
        except OutsideRoot:
            return FileRead(path, None, None, "outside")
    path = posixpath.normpath(path)
    # By `endswith`, because the suffix of ".env.local" is only ".local".
    if not any(path.endswith(extension) for extension in extensions):
        return FileRead(path, None, None, "extension")
    target = posixpath.join(folder, path)
    try:
        if not follow_symlinks and _has_link(fs, folder, path):
            return FileRead(path, None, None, "symlink")
        # Links are followed only now; if they lead out of the root, the file is still refused.
        path = _followed(fs, folder, path)
        info = fs.info(target)
        if info["type"] != "file":
            return FileRead(path, None, None, "missing")
        # One byte more than allowed, because a file may grow after its size was read.
        content = None if (info.get("size") or 0) > max_bytes else fs.cat_file(target, end=max_bytes + 1)
    except OutsideRoot:
        return FileRead(path, None, None, "outside")
    except (FileNotFoundError, NotADirectoryError):
        return FileRead(path, None, None, "missing")
    except Exception:  # a remote filesystem may raise anything; the turn continues without the file
        return FileRead(path, None, None, "unreadable")
    if content is None or len(content) > max_bytes:
        return FileRead(path, None, None, "size")
    digest = hashlib.sha256(content).hexdigest()
    # A file in another encoding is shown with replacement characters.
    return FileRead(path, content.decode("utf-8", "replace"), digest)


def _has_link(fs: Any, folder: str, path: str) -> bool:
    """Tell whether a part of a path is a link; filesystems without links do not report any."""
    if not isinstance(fs, RootedFileSystem):
        return bool(fs.info(posixpath.join(folder, path)).get("islink"))
    place = folder
    for part in path.split("/"):
        place = posixpath.join(place, part)
        try:
            if fs.info(place).get("islink"):
                return True
        except OutsideRoot:
            return True
    return False


def _followed(fs: Any, folder: str, path: str) -> str:
    """Return the path below a folder that links lead to; raises `OutsideRoot` if they lead out of the folder."""
    if not isinstance(fs, RootedFileSystem):
        return path
    found, base = fs.resolve(posixpath.join(folder, path)), fs.resolve(folder)
    if base and not found.startswith(f"{base}/"):
        raise OutsideRoot("A symbolic link leads out of the folder.", path)
    return found[len(base) :].lstrip("/")


TIMEOUT_MS: Final = 30_000
MAX_BYTES: Final = 1_048_576
# The beginning of a file is more informative than its end.
HEAD_SHARE: Final = 0.6
UNKNOWN_SCORE: Final = 50
NAMED_SCORE: Final = 80
TITLE: Final = "# Referenced Files"
_SAMPLE_CHARS: Final = 4_000
_NUMBER: Final = re.compile(r"\d+")

_INSTRUCTIONS: Final = (
    "How useful is this file for what the user wants, from 0 (not at all) to 100 (it is about exactly this)? Answer with the "
    "number only."
)
_NOTICES: Final[Mapping[str, str]] = {
    "absolute": "The path is absolute; only paths below the working folder are read.",
    "outside": "The path lies outside of the working folder.",
    "extension": "Files of this kind are not read.",
    "symlink": "The path is a symbolic link, which is not followed.",
    "missing": "The file does not exist (any more).",
    "size": "The file is too large to be read.",
    "unreadable": "The file could not be read.",
}


class _File(StoredState):
    digest: str | None
    score: int
    problem: str | None


class _State(StoredState):
    files: dict[str, _File]


_EMPTY: Final[dict[str, Any]] = {"files": {}}


@built_in
@explained()
def file_reference(
    base_dir: str | os.PathLike[str] = ".",
    *,
    scoring_model: str | None = None,
    allowed_extensions: Iterable[str] = DEFAULT_EXTENSIONS,
    max_file_size: int = MAX_BYTES,
    follow_symlinks: bool = False,
    id: str = "file-reference",
    scope: MemoryScope = "thread",
    budget: BudgetConfig = "auto",
    slot: float = Slot.RAG,
) -> MemoryLayer[FilesHandle]:
    """Make a layer that shows the files a user refers to.

    Parameters
    ----------
    base_dir : path
        No file outside this folder is ever read. If the agent has its own filesystem (``ctx.fs``), this is a folder
        there.
    scoring_model : str, optional
        Ranks the files; without it, a file named in the query comes first.
    allowed_extensions : iterable of str
        Endings of the names of readable files, such as ``".py"`` or ``".env.local"``.
    max_file_size : int, bytes
        Larger files are not read.

    Returns
    -------
    MemoryLayer
        With data ``files``: all facts about each file except its text.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "File reference".

    Examples
    --------
    >>> file_reference().rerender_timing
    'immediate'
    """
    check_model_name(scoring_model, "scoring_model")
    extensions = frozenset(as_names(allowed_extensions, "allowed_extensions", ".py"))
    if not extensions or not all(end.startswith(".") for end in extensions):
        raise option_error(
            "Extensions must begin with a dot.", sorted(map(str, extensions)), "For example: {'.py', '.md'}."
        )
    check_whole(max_file_size=max_file_size)
    check_switch(follow_symlinks=follow_symlinks)
    layer = _FileReference(id, str(as_path(base_dir)), extensions, max_file_size, follow_symlinks, scoring_model)
    return MemoryLayer(
        id=id,
        slot=slot,
        scope=scope,
        budget=budget,
        timeouts={"on_item_append": TIMEOUT_MS},
        rerender_timing="immediate",
        hooks=MemoryHooks(
            init=layer.init, recall=layer.recall, on_item_append=layer.on_item_append, dispose=layer.dispose
        ),
        provides={"files": layer_data(lambda state: copy.deepcopy((state or _EMPTY)["files"]))},
    )


@dataclass(slots=True)
class _FileReference:
    """The hooks of one layer, and the texts of the files shown in its live executions."""

    layer_id: str
    base: str
    extensions: frozenset[str]
    max_bytes: int
    follow_symlinks: bool
    scoring_model: str | None
    texts: dict[str, dict[str, str]] = field(default_factory=dict)

    async def read(self, path: str, ctx: ExecutionContext) -> FileRead:
        fs, folder = self.place(ctx.fs)
        # In a thread, because a disk may be slow while the loop serves other executions.
        return await beside_loop(
            read_reference,
            fs,
            folder,
            path,
            extensions=self.extensions,
            max_bytes=self.max_bytes,
            follow_symlinks=self.follow_symlinks,
        )

    def place(self, fs: Any) -> tuple[Any, str]:
        """Return a filesystem and the folder that limits reading: those of the agent, if it has its own."""
        if fs is None:
            return RootedFileSystem(LocalFileSystem(), self.base), ""
        folder = self.base
        if os.path.isabs(folder) and isinstance(fs, RootedFileSystem) and fs.is_local:
            # A local folder below the root may be given as an absolute path.
            below = os.path.relpath(os.path.realpath(folder), fs.root)
            folder = folder if below.split(os.sep)[0] == ".." else below
        return fs, "" if folder == "." else folder.replace(os.sep, "/")

    async def init(self, p: params.InitParams) -> dict[str, Any]:
        state = await load_state(p, _State, _EMPTY, layer_id=self.layer_id)
        texts: dict[str, str] = {}
        files: dict[str, Any] = {}
        # Read again, because files change between executions; their texts are never stored.
        for path, known in state["files"].items():
            file = await self.read(path, p.ctx)
            if file.text is not None:
                texts[file.path] = file.text
            # Earlier versions may have saved two spellings of one file, which are merged.
            score = max(known["score"], files.get(file.path, known)["score"])
            files[file.path] = {"digest": file.digest, "score": score, "problem": file.problem}
        self.texts[p.ctx.execution_id] = texts
        return {"state": {"files": files}}

    async def on_item_append(self, p: params.OnItemAppendParams) -> dict[str, Any] | None:
        named = {
            path: item_text(item) for item in p.items if _is_user(item) for path in find_references(item_text(item))
        }
        if not named:
            return None
        state = copy.deepcopy(p.state or _EMPTY)
        shown = self.texts.setdefault(p.ctx.execution_id, {})
        for path, query in named.items():
            file = await self.read(path, p.ctx)
            path = file.path  # in its normal spelling
            known = state["files"].get(path)
            # Scoring may call a model, so an unchanged file keeps its score.
            if known is not None and known["digest"] == file.digest:
                score = known["score"]
            else:
                score = await _score(file, query, self.scoring_model, p.ctx, self.layer_id)
            state["files"][path] = {"digest": file.digest, "score": score, "problem": file.problem}
            shown.pop(path, None)
            if file.text is not None:
                shown[path] = file.text
        # Only this layer has new text, so no other layer recalls again.
        return {"items": [_linked(item) for item in p.items], "state": state, "rerender": True, "scope": "self"}

    def recall(self, p: params.RecallParams) -> str | None:
        files = (p.state or _EMPTY)["files"]
        return _shown(files, self.texts.get(p.ctx.execution_id, {}), p.budget, p.ctx.tokenize) if files else None

    def dispose(self, p: params.DisposeParams) -> None:
        self.texts.pop(p.ctx.execution_id, None)


def _is_user(item: Item) -> bool:
    return item["type"] == "message" and item.get("role") == "user"


def _linked(item: Item) -> Mapping[str, Any]:
    if not _is_user(item):
        return item
    plain = dump_item(item)
    for part in plain.get("content") or ():
        if isinstance(part.get("text"), str):
            part["text"] = link_references(part["text"])
    return plain


async def _score(file: FileRead, query: str, model: str | None, ctx: ExecutionContext, layer_id: str) -> int:
    """Return how useful a file is, from 0 to 100."""
    if file.text is None:
        return UNKNOWN_SCORE
    if model is None or ctx.call_model is None:
        wanted, name = query.casefold(), file.path.casefold()
        return NAMED_SCORE if name in wanted or wanted in name else UNKNOWN_SCORE
    text = f"The user wants: {query}\n\nThe file {file.path}:\n{file.text[:_SAMPLE_CHARS]}"
    try:
        message = input_message(text, ids=ctx.ids)
        answer = await model_text(ctx, model, [message], purpose="score", instructions=_INSTRUCTIONS)
    except Exception as exc:  # a file without a rank is still shown
        ctx.diagnostic(layer_id, "on_item_append", exc)
        return UNKNOWN_SCORE
    number = _NUMBER.search(answer)
    # Models answer outside the scale, or with a sentence around the number.
    return min(100, int(number.group())) if number else UNKNOWN_SCORE


def _shown(files: Mapping[str, Any], texts: Mapping[str, str], budget: float, tokenize: Tokenizer) -> str | None:
    """Return the files, the most useful first, each cut in its middle if necessary, within a total budget."""
    order = sorted(files, key=lambda path: -files[path]["score"])
    parts = [TITLE]
    for path in order:
        heading = f"## {path}"
        if files[path]["problem"] is not None or path not in texts:
            part: str | None = f"{heading}\n{_NOTICES.get(files[path]['problem'] or 'missing', _NOTICES['unreadable'])}"
            if tokenize("\n\n".join([*parts, str(part)])) > budget:
                part = None  # left out; a later, shorter part may still fit
        else:
            part = _cut(parts, heading, texts[path], budget, tokenize)
        if part is not None:
            parts.append(part)
    return "\n\n".join(parts) if len(parts) > 1 else None


def _cut(before: list[str], heading: str, text: str, budget: float, tokenize: Tokenizer) -> str | None:
    """Return a file's part with as many first and last lines as fit; None if none fits."""
    lines = text.splitlines()
    # The fence is longer than any run of backticks inside, so that the file cannot close it.
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)

    def part(count: int) -> str:
        if count >= len(lines):
            return f"{heading}\n{fence}\n{text.rstrip()}\n{fence}"
        head = math.ceil(count * HEAD_SHARE)
        tail = count - head
        middle = f"... {len(lines) - count} lines left out ..."
        body = "\n".join([*lines[:head], middle, *(lines[-tail:] if tail else ())])
        return f"{heading}\n{fence}\n{body}\n{fence}"

    def fits(count: int) -> bool:
        return tokenize("\n\n".join([*before, part(count)])) <= budget

    # A short file may fit whole although the note about left-out lines does not.
    if not fits(0) and not fits(len(lines)):
        return None
    return part(most_that_fit(len(lines), fits))
