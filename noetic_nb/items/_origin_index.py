"""Finds the first author of a value: the user in their own words, a tool, a layer, or the model itself.

Texts are read once, in the order sent, and split into values. A value is found by its rarest part, so a search does not get
slower as the conversation grows. A value without a source counts as the model's own, which is trusted least. Text that a user
quotes, forwards or warns about is not evidence of consent: "do not pay US13..." does not ask for a payment to that account.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Any, Final

from noetic_nb.items._build import item_text
from noetic_nb.items._item import Item
from noetic_nb.items._origins import (
    MODEL,
    Origin,
    Trusted,
    chained,
    least_trusted,
    members,
    origin_named,
    trusted_source,
)
from noetic_nb.items._value_search import MAX_READ, Leaf, Needle, SearchedText, leaves, needle_of, searched

# Lines that introduce text by somebody else, which extends to the end of the message.
_FORWARDED: Final = re.compile(
    r"^\W*(?:(?:begin )?forwarded message|original message|(?:fwd?|wg|tr)\s*:|on .{4,80} wrote:|"
    r"from:\s.*\n\W*(?:sent|date|to|subject):)",
    re.I | re.M,
)
_QUOTED_LINE: Final = re.compile(r"^[ \t]*>.*$", re.M)
_FENCED: Final = re.compile(r"(```|~~~|\"\"\").*?(?:\1|\Z)", re.S)
# A full stop inside a value is not followed by a space.
_ENDS: Final = re.compile(r"(?<=[.!?;])(?=\s)|(?<=\n)")
_WARNS: Final = re.compile(
    r"\b(?:(?:do|does|must|should|shall|may|can|will|would|please)\s*(?:not|n['’]t)|(?:do|does|must|should|wo|ca)n['’]?t|cannot|never|"
    r"beware|suspicious|scams?|fraud\w*|phishing|worr(?:y|ied)|is (?:it|this|that) (?:safe|real|legit\w*)|"
    r"(?:nicht|kein\w*|niemals|betrug|jamais|pas|nunca))\b",
    re.I,
)
# After these words, the rest of the sentence is what the user wants.
_WANTS: Final = re.compile(
    r"\b(?:(?:do|does)(?:\s+not|n['’]t)\s+(?:forget|hesitate|fail|worry)|never\s*mind|no\s+worries|(?:why\s+(?:do|not)|can|could|would|wo|will|ca)"
    r"(?:n?['’]?t)?\s+(?:you|we)(?:\s+not)?\b|nicht vergessen|vergiss nicht|n['’]oublie[sz]? pas)\b",
    re.I,
)


def own_words(text: str) -> str:
    """Return a user's message without quotes, forwarded texts and warnings.

    Examples
    --------
    >>> own_words("Pay 5 to DE02. Do not pay US13.")
    'Pay 5 to DE02.'
    >>> own_words("Don't forget to pay US13.")
    "Don't forget to pay US13."
    """
    if found := _FORWARDED.search(text):
        text = text[: found.start()]
    text = _FENCED.sub(" ", _QUOTED_LINE.sub(" ", text))
    if not _WARNS.search(text):
        return text
    parts = []
    for sentence in _ENDS.split(text):
        if _WARNS.search(_WANTS.sub(" ", sentence)):
            # A warning that ends in a colon applies to everything after it.
            if ":" in sentence and not sentence.split(":", 1)[1].strip():
                break
            continue
        parts.append(sentence)
    return "".join(parts)


MAX_KEPT: Final = 4_096
# Rules in threads search concurrently; a text must not be indexed twice.
_INDEXING: Final = threading.Lock()


def names_in(schema: Any) -> frozenset[str]:
    """Return the names of all properties at any depth of a JSON schema."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            properties = part.get("properties")
            found.update(properties if isinstance(properties, Mapping) else ())
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
    return frozenset(found)


class Source:
    """A sent text with its author."""

    __slots__ = ("_leaves", "_own", "_text", "args", "at", "index", "origin", "raw")

    def __init__(self, raw: str, origin: Origin, at: int, args: str | None) -> None:
        self.raw = raw
        self._text: SearchedText | None = None
        self._own: SearchedText | None = None
        self.origin = origin
        self.at = at
        self.args = args
        """The arguments of the tool call."""
        self.index = 0
        self._leaves: list[tuple[Leaf, SearchedText]] | None = None

    @property
    def text(self) -> SearchedText:
        """The text prepared for searching, on first use."""
        if self._text is None:
            self._text = searched(self.raw)
        return self._text

    @property
    def own(self) -> SearchedText:
        """The text without its author's quotes, forwarded texts and warnings."""
        if self._own is None:
            own = own_words(self.raw)
            self._own = self.text if own == self.raw else searched(own)
        return self._own

    def _keyed(self, needle: Needle) -> list[tuple[Leaf, SearchedText]]:
        if self.origin.kind != "tool":
            return []
        if self._leaves is None:
            self._leaves = [(leaf, searched(leaf.text)) for leaf in leaves(self.raw) if leaf.key is not None]
        return [(leaf, text) for leaf, text in self._leaves if needle.is_in(text)]

    def fields(self, needle: Needle) -> tuple[list[str], list[str]]:
        """Return the keys whose value equals the searched one, and those whose value contains it."""
        keyed = [(str(leaf.key), needle.equals(text)) for leaf, text in self._keyed(needle)]
        return [key for key, is_whole in keyed if is_whole], [key for key, is_whole in keyed if not is_whole]

    def has(self, needle: Needle, trusted: Trusted) -> bool:
        """Tell whether a field equals the searched value, in an item whose trusted field has the required value."""
        field = trusted.name.rpartition(".")[2]
        items = {leaf.item for leaf, text in self._keyed(needle) if leaf.key == field and needle.equals(text)}
        if not trusted.key:
            return bool(items)
        authors: dict[int, list[str]] = {item: [] for item in items}
        for leaf, _ in self._leaves or ():
            if leaf.item in items and leaf.key == trusted.key:
                authors[leaf.item].append(leaf.text)
        return [trusted.value] in authors.values()  # an item with two authors has no trusted author


def _claimed(item: Item, origin: Origin) -> Origin:
    """Return the origin of an item that may name one itself: it can only lower the trust implied by its role."""
    named = item.get("origin")
    return origin if named is None else least_trusted([origin, origin_named(named)])


def _told(parts: Any) -> list[tuple[str, Any]]:
    """Return the texts of parts, each with the author that it names, if any."""
    if not isinstance(parts, tuple) or not any("origin" in part for part in parts):
        return []
    return [(part.get("text") or "", part.get("origin")) for part in parts]


class OriginIndex:
    """Texts in the order sent, with an index of their values."""

    __slots__ = ("_calls", "_indexed", "_kept", "_postings", "_sources", "read", "result")

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._indexed = 0
        self._postings: dict[str, list[int]] = {}
        self._calls: dict[Any, tuple[str, str]] = {}
        # A found source stays the first one; values that were not found are searched for in new texts.
        self._kept: dict[Needle, tuple[int | None, int]] = {}
        self.read = 0
        """How many items of its log it has read."""
        self.result: Source | None = None
        """The first result of a tool."""

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, text: str, origin: Origin, *, at: int = 0, args: str | None = None) -> None:
        """Add a text after all others; `at` is its position in the log, `args` the arguments of the tool call."""
        if not text or text.isspace():
            return
        source = Source(text, origin, at, args)
        source.index = len(self._sources)
        self._sources.append(source)
        if self.result is None and origin.kind == "tool":
            self.result = source

    @property
    def unread(self) -> int:
        """How many characters the next search must read first."""
        return sum([min(len(source.raw), MAX_READ) for source in self._sources[self._indexed :]])

    def _index(self) -> None:
        """Index the values of new texts."""
        with _INDEXING:
            for number in range(self._indexed, len(self._sources)):
                for key in self._sources[number].text.keys:
                    self._postings.setdefault(key, []).append(number)
                self._indexed = number + 1

    def add_item(self, item: Item, position: int, origin: Origin | None = None, *, is_child: bool = False) -> None:
        """Add an item of a log; `origin` is needed if its role does not imply it."""
        kind = item["type"]
        if kind == "function_call":
            arguments = item.get("arguments") or ""
            self._calls[item.get("callId")] = (str(item.get("name")), arguments)
            self.add(arguments, MODEL._replace(item=item.get("id")), at=position)
            return
        if kind == "function_call_output":
            name, args = self._calls.get(item.get("callId"), (None, None))
            output = item.get("output")
            text = output if isinstance(output, str) else item_text(item)
            # A layer may have shortened a tool's result; a model's response never contains a tool's result.
            made_by = origin if origin is not None and origin.kind == "model" else Origin("tool", name)
            self.add(text, _claimed(item, made_by)._replace(item=item.get("id")), at=position, args=args)
            return
        if origin is None:
            role = item.get("role") if kind == "message" else "assistant"
            # A parent creates a child's input: values that are not found in the parent have no author.
            if role == "assistant" or is_child:
                origin = MODEL
            else:
                origin = Origin("user") if role == "user" else Origin("system")
        self.add(item_text(item), _claimed(item, origin)._replace(item=item.get("id")), at=position)

    def add_offered(self, layer_id: str, item: Item, at: int) -> None:
        """Add an offer of a layer; parts of it may name their source, which becomes an additional author."""
        layer = Origin("layer", layer_id, item.get("id"))
        parts = item.get("content") if item["type"] == "message" else None
        for text, named in _told(parts) or [(item_text(item), item.get("origin"))]:
            links = () if named is None else (origin_named(named), layer)
            self.add(text, layer._replace(links=links), at=at)

    def read_log(self, items: Sequence[Item], origins: Mapping[int, Origin], *, is_child: bool = False) -> None:
        """Add the items that are not yet indexed; `origins` by position, where roles do not imply them."""
        start = self.read
        self.read = len(items)  # set first, so that an item that cannot be read is not added twice
        for position, item in enumerate(items[start:], start):
            self.add_item(item, position, origins.get(position), is_child=is_child)

    def all(self) -> tuple[Source, ...]:
        """Return every text, in order."""
        return tuple(self._sources)

    def sources(self, value: Any) -> Iterator[Source]:
        """Yield every text that contains a value, in order."""
        return map(self._sources.__getitem__, self._numbers(needle_of(value), 0))

    def first_source(self, value: Any) -> Source | None:
        needle = needle_of(value)
        found, seen = self._kept.get(needle, (None, 0))
        if found is None and seen < len(self._sources):
            found = next(self._numbers(needle, seen), None)
            if len(self._kept) >= MAX_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[needle] = (found, len(self._sources))
        return None if found is None else self._sources[found]

    def first(self, value: Any) -> Origin | None:
        source = self.first_source(value)
        return None if source is None else origin_in(source, value)

    def _numbers(self, needle: Needle, start: int) -> Iterator[int]:
        """Yield the distinct numbers of the texts that contain a value."""
        self._index()
        routes: list[list[int]] = []
        for option in needle.options:
            # The rarest part selects the fewest texts; if a part is missing, there are none.
            rarest = min([self._postings.get(key, []) for key in option], key=len)
            routes.append(rarest[bisect_left(rarest, start) :])
        last = -1
        for number in merge(*routes):
            if number > last:
                last = number
                if needle.is_in(self._sources[number].text):
                    yield number


def origin_in(source: Source, value: Any) -> Origin:
    """Return the origin of a value found in a text, with the key beside it if there is one."""
    exact, holding = source.fields(needle_of(value))
    key = next(iter((*exact, *holding)), None)
    return source.origin if key is None else source.origin._replace(field=key)


def vouches(source: Source, value: Any, trusted: Iterable[str]) -> bool:
    """Tell whether a text's author is trusted for a value: a user unless quoting, a tool only for a whole field."""
    origin = source.origin
    needle = needle_of(value)
    if origin.kind == "user":
        return "user" in trusted and needle.is_in(source.own)
    if origin.kind != "tool":
        return origin.text in trusted
    # The names of layers' functions are sent with "_" in place of "/".
    name = (origin.name or "").replace("/", "_")
    for entry in map(trusted_source, trusted):
        wanted = entry.name.replace("/", "_")
        if wanted != name and wanted.rpartition(".")[0] != name:
            continue
        if source.args is not None and needle.is_echoed(searched(source.args)):
            return False
        if wanted == name or source.has(needle, entry):
            return True
    return False


class KeptTexts:
    """The texts that memories were made from, in order of arrival."""

    __slots__ = ("forgot", "index")

    def __init__(self) -> None:
        self.index = OriginIndex()
        self.forgot: Origin | None = None
        """The possible author of values in none of the texts: a tool whose results are lost, or the model for any author."""

    def of_others(self) -> KeptTexts:
        """Return the same texts for a memory that others can write to: values in none of the texts have no known author."""
        found = KeptTexts()
        found.index, found.forgot = self.index, MODEL
        return found

    def add(self, text: str, origin: Origin, args: str | None = None, at: int = 0) -> None:
        """Add a text after all others; an empty text of a tool stands for lost results."""
        if origin.kind == "tool" and not text:
            self.forgot = origin
        self.index.add(text, origin, at=at, args=args)


KEPT_KINDS: Final = frozenset({"user", "tool", "model"})
"""Authors whose texts are kept: a layer's text has other authors, and instructions precede every log."""

NOTHING_KEPT: Final[Mapping[str, KeptTexts]] = {}


class Provenance:
    """The origins of values in one execution: those known to its parent, its own log, and texts sent outside the log.

    `kept` has the texts that layers were made from, by layer id.

    `before` has instructions, which precede every log; `beside` has items of layers, results of tools called by code,
    and of ended children. In a recorded run, texts at the position `until` or later are ignored. Property names in
    `schema`, the tool's arguments, come from its author; other keys are values.
    """

    __slots__ = ("_names", "before", "beside", "kept", "log", "parent", "schema", "until")

    def __init__(
        self,
        log: OriginIndex,
        before: OriginIndex,
        beside: OriginIndex,
        parent: Provenance | None = None,
        until: int | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self.log, self.before, self.beside, self.parent, self.until = log, before, beside, parent, until
        self.schema = schema
        self._names: frozenset[str] | None = None
        self.kept = NOTHING_KEPT

    @property
    def unread(self) -> int:
        """How many characters the next search must read first."""
        above = 0 if self.parent is None else self.parent.unread
        return above + self.before.unread + self.log.unread + self.beside.unread

    @property
    def is_empty(self) -> bool:
        """Whether no text is known at all, as for tools called by another framework."""
        return self.parent is None and not any(index.all() for index in (self.before, self.log, self.beside))

    def origin(self, value: Any, names: Collection[str] = ()) -> Origin:
        """Return the first author of a value; for a list or a mapping, the least trusted origin of its members."""
        return least_trusted(self.origins(value, names))

    def origins(self, value: Any, names: Collection[str] = ()) -> tuple[Origin, ...]:
        """Return the origin of every member of a value, in order; without a schema, `names` are the keys that are not values."""
        return tuple(map(self._of, self._members(value, names)))

    def vouched(self, value: Any, trusted: Iterable[str] = ("user",), names: Collection[str] = ()) -> bool:
        """Tell whether each member of a value was written by a trusted author, first or later."""
        return all(
            any(self._vouches(source, member, trusted) for source in self._all(member))
            for member in self._members(value, names)
        )

    def _members(self, value: Any, names: Collection[str]) -> Iterator[Any]:
        if self.schema is not None and self._names is None:
            self._names = names_in(self.schema)
        return members(value, names if self._names is None else self._names)

    def _all(self, value: Any) -> Iterator[Source]:
        if self.parent is not None:
            yield from self.parent._all(value)
        for index in (self.before, self.log, self.beside):
            yield from filter(self._is_known, index.sources(value))

    def _kept(self, layer_id: str | None) -> KeptTexts | None:
        found = self.kept.get(layer_id or "")
        return self.parent._kept(layer_id) if found is None and self.parent is not None else found

    def _is_known(self, source: Source | None) -> bool:
        return source is not None and (self.until is None or source.at < self.until)

    def _result(self) -> Origin | None:
        """Return the origin of the first tool result in the conversation."""
        for source in (self.log.result, self.beside.result):
            if source is not None and self._is_known(source):
                return source.origin
        return None if self.parent is None else self.parent._result()

    def _whole(self, origin: Origin, value: Any) -> Origin:
        """Return the origin of a value with the author that a memory got it from; for reworded text, any tool result."""
        kept = self._kept(origin.name) if origin.kind == "layer" else None
        if kept is None:
            return chained([origin])
        source, result = self._first(kept.index, value), kept.index.result
        if source is not None:
            author: Origin | None = origin_in(source, value)
        elif kept.forgot is not None or result is None or not self._is_known(result):
            author = kept.forgot or self._result()
        else:
            author = result.origin
        return chained([origin] if author is None else [author, origin])

    def _vouches(self, source: Source, value: Any, trusted: Iterable[str]) -> bool:
        if not vouches(source, value, trusted):
            return False
        if least_trusted(source.origin.chain).kind not in ("user", "system", "layer", source.origin.kind):
            return False  # the memory itself names an untrusted source
        kept = self._kept(source.origin.name) if source.origin.kind == "layer" else None
        if kept is None:
            return True
        known = [*filter(self._is_known, kept.index.sources(value))]
        if not known:
            return self._whole(source.origin, value).kind == "layer"
        # Trust in a layer does not extend to the authors of its values, other than the user.
        return any(vouches(other, value, ("user", *trusted)) for other in known)

    def _first(self, index: OriginIndex, value: Any) -> Source | None:
        source = index.first_source(value)
        return source if self._is_known(source) else None

    def _of(self, value: Any) -> Origin:
        above = MODEL if self.parent is None else self.parent._of(value)
        if above.kind != "model":
            return above
        source = self._first(self.before, value) or self._first(self.log, value)
        if source is None or source.origin.kind == "model":
            # The model copied what it had read outside the log, unless it had written the value earlier.
            limit = self.until if source is None else source.at + 1
            for other in self.beside.sources(value):
                if other.origin.kind != "model" and (limit is None or other.at < limit):
                    return self._whole(origin_in(other, value), value)
        return above if source is None else self._whole(origin_in(source, value), value)
