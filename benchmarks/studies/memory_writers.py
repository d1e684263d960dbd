"""What stands for a model where a layer of the bench needs one: rules that know how the made dialogues say things.

They read a sentence as well as a good model would: of whom it is, what it is about, and whether it says that something has
changed or that somebody else says otherwise. So layers are compared, and not what fills them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from noetic_nb.items import assistant_text
from noetic_nb.items._build import input_texts
from noetic_nb.lab._recall_quality.synthetic_dialogues import LANGUAGES
from noetic_nb.layers import file_memory
from noetic_nb.memory import MemoryLayer, OnItemAppendParams, RecallParams, StoreParams

__all__ = ["changed_only", "files_of_facts", "files_of_people", "newest_of_each", "said"]

# In the order of the subjects of a language.
ABOUT: Final = ("locker", "home", "piano", "dentist", "food", "parcel")


class Said(NamedTuple):
    """A sentence that tells something of a person, in the way of ``told``, ``changed`` or ``disputed``."""

    who: str
    about: str
    way: str
    sentence: str


def _patterns() -> Iterator[tuple[str, str, re.Pattern[str]]]:
    for language in LANGUAGES.values():
        for about, subject in zip(ABOUT, language.subjects, strict=True):
            for way in ("told", "changed", "disputed"):
                form = re.escape(getattr(subject, way))
                form = form.replace(re.escape("{who}"), r"(?P<who>\w+)").replace(re.escape("{value}"), ".{1,30}?")
                yield about, way, re.compile(form)


_PATTERNS: Final = tuple(_patterns())


def said(text: str) -> list[Said]:
    """Return what a text tells of people."""
    found = [
        (match.start(), Said(match["who"], about, way, match[0]))
        for about, way, pattern in _PATTERNS
        for match in pattern.finditer(text)
    ]
    return [one for _, one in sorted(found)]


def newest_of_each(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return sentences by person, each with what it is about: an extractor whose newer fact takes the place of an older one."""
    by_name: dict[str, list[tuple[str, str]]] = {}
    for one in said(text):
        by_name.setdefault(one.who, []).append((one.about, one.sentence))
    return by_name


def changed_only(old: str, new: str) -> bool:
    """Tell whether a newer sentence says that an older one no longer holds; somebody else's word does not."""
    return any(
        later.way == "changed" and (earlier.who, earlier.about) == (later.who, later.about)
        for later in said(new)
        for earlier in said(old)
    )


class _Files:
    """The functions of a layer of files, called as a model would call them."""

    def __init__(self, layer: MemoryLayer[Any], state: Any, ctx: Any) -> None:
        self.layer, self.state, self.ctx = layer, state, ctx

    @property
    def texts(self) -> dict[str, str]:
        return dict(self.state["files"])

    def call(self, name: str, **args: Any) -> str:
        function: Any = self.layer.provides[name]
        answer = function.execute(function.input.validate_python(args), self.state, self.ctx)
        self.state = answer.get("state", self.state)
        return str(answer["result"])


def _writing(write: Callable[[_Files, Said], None]) -> MemoryLayer[Any]:
    """Return a layer of files that are written by a rule after each message."""
    layer: MemoryLayer[Any] = file_memory()

    def noted(state: Any, texts: Sequence[str], ctx: Any) -> dict[str, Any]:
        files = _Files(layer, state, ctx)
        for text in texts:
            for one in said(text):
                write(files, one)
        return {"state": files.state}

    def store(p: StoreParams) -> dict[str, Any]:
        return noted(p.state, [assistant_text(p.new_items)], p.ctx)

    def on_item_append(p: OnItemAppendParams) -> dict[str, Any]:
        return noted(p.state, input_texts(p.items), p.ctx)

    return replace(layer, hooks=replace(layer.hooks, store=store, on_item_append=on_item_append))


def _a_fact(files: _Files, one: Said) -> None:
    path = f"{one.who}/{one.about}{', others say' if one.way == 'disputed' else ''}.md"
    known = files.texts.get(path)
    if known is None:
        files.call("create", path=path, text=one.sentence)
    else:
        files.call("replace", path=path, old=known, new=one.sentence)


def _a_person(files: _Files, one: Said) -> None:
    path = f"{one.who}.md"
    known = files.texts.get(path)
    if known is None:
        files.call("create", path=path, text=one.sentence)
        return
    over = [line for line in known.split("\n") if changed_only(line, one.sentence)]
    if over:
        files.call("replace", path=path, old=over[0], new=one.sentence)
    else:
        files.call("insert", path=path, line=len(known.split("\n")), text=one.sentence)


def files_of_facts() -> MemoryLayer[Any]:
    """Return a layer with a file for each fact: the list of files, which every request has, tells them all."""
    return _writing(_a_fact)


def files_of_people() -> MemoryLayer[Any]:
    """Return a layer with a file for each person; what a question names is opened, as if a model had called for it."""
    layer = _writing(_a_person)
    listed: Any = layer.hooks.recall

    def recall(p: RecallParams) -> str | None:
        files = _Files(layer, p.state, p.ctx)
        named = [path for path in files.texts if path.removesuffix(".md") in p.query]
        opened = "".join([f"{path}\n{files.call('view', path=path)}\n" for path in named])
        used = p.ctx.tokenize(opened) if opened else 0
        if used > p.budget:
            return listed(p)  # type: ignore[no-any-return]
        return (opened + (listed(p._replace(budget=p.budget - used - bool(used))) or "")) or None

    return replace(layer, hooks=replace(layer.hooks, recall=recall))
