"""The texts that an execution sent or received outside its log, so that a rule can ask for the origin of a value.

They are noted by reference and only read when a rule asks: without such rules, the only cost is a list.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from noetic_nb.items import Item, ItemLog, item_text, thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._origin_index import KeptTexts, OriginIndex, Provenance
from noetic_nb.items._origins import MODEL, Origin
from noetic_nb.memory import PastCall
from noetic_nb.memory._enforcement import PENDING, Place

SUMMARY_ORIGIN: Final = "summary"

# Statuses of calls that returned: with any other status, the text is the answer of a rule and not the tool's.
RETURNED: Final = frozenset({"ok", "error", "invalid_result"})


EndedChild: TypeAlias = "tuple[int, ItemLog, int, Sequence[PastCall], SentTexts | None]"
"""Length of the parent's log, the child's log, start of its own part, its calls, and texts sent outside its log."""


class SentTexts:
    """The texts that one execution sent or received outside its log."""

    def __init__(self) -> None:
        self.instructions: tuple[str, ...] = ()
        self.layer_items: list[tuple[int, tuple[tuple[str, Item], ...]]] = []
        """Items offered by layers, each with the length of the log when they were sent."""
        self.given: list[Mapping[str, Any]] = []
        """User messages that a layer replaced before they were logged."""
        self.ended: list[EndedChild] = []
        """Logs of ended children, with the position in the parent's log."""
        self.kept: dict[str, KeptTexts] = {}
        """Source texts of the layers of ended children."""
        # Indexes of texts before the log and outside it; built when a rule first asks, as most never do.
        self._before: OriginIndex | None = None
        self._beside: OriginIndex | None = None
        self._read = [0, 0, 0, 0, 0]
        self._early: set[int] = set()
        # Rules run in threads and may ask at the same time; no text may be read twice.
        self._lock = threading.RLock()

    def note_call(self, at: int, instructions: str, layer_items: tuple[tuple[str, Item], ...]) -> None:
        """Note the texts sent with a model call, when the log has `at` items."""
        if instructions and instructions not in self.instructions:
            self.instructions += (instructions,)
        if layer_items and (not self.layer_items or self.layer_items[-1][1] != layer_items):
            self.layer_items.append((at, layer_items))

    def provenance(
        self, log: ItemLog, first: int, calls: Sequence[Place], execution_id: str, above: Provenance | None
    ) -> Provenance:
        """Return the current origins of values: `first` is the execution's start in its log, `above` the parent's origins."""
        with self._lock:
            index = log.origin_index(first, is_child=above is not None)
            if self._before is None or self._beside is None:
                self._before, self._beside = OriginIndex(), OriginIndex()
            self._read_news(log, self._ended_calls(calls, execution_id), self._before, self._beside)
            return Provenance(index, self._before, self._beside, above)

    def _read_news(self, log: ItemLog, calls: Iterable[PastCall], before: OriginIndex, beside: OriginIndex) -> None:
        for text in self._news(0, self.instructions):
            before.add(text, Origin("system"))
        for item in self._news(1, self.given):
            before.add(item_text(item), Origin("user", item=item.get("id")))
        for at, offered in self._news(2, self.layer_items):
            for layer_id, item in offered:
                # A summary is the model's own wording; the values it quotes are in the log it was made from.
                if layer_id == SUMMARY_ORIGIN:
                    beside.add(item_text(item), MODEL._replace(item=item.get("id")), at=at)
                else:
                    beside.add_offered(layer_id, item, at)
        add_calls(beside, calls, log, 0)
        for child in self._news(4, self.ended):
            _add_child(beside, child[0], child)

    def _ended_calls(self, calls: Sequence[Place], execution_id: str) -> list[PastCall]:
        """Return the execution's own calls that have ended since the last look."""
        found = []
        # The read mark stops at the first pending call: a place that is given back is pending, so none before it can go.
        has_open = False
        for place in islice(calls, self._read[3], None):
            if place.call.status == PENDING:
                has_open = True
                continue
            is_known = place.number in self._early
            if has_open:
                self._early.add(place.number)
            else:
                self._early.discard(place.number)
                self._read[3] += 1
            if not is_known and place.call.execution_id in ("", execution_id):
                found.append(place.call)
        return found

    def _news(self, place: int, noted: Sequence[Any]) -> Sequence[Any]:
        start, self._read[place] = self._read[place], len(noted)
        return noted[start:]


class KeptBy:
    """For one execution: the source texts of its layers, and how many of its own texts were stored."""

    def __init__(self, texts: Mapping[str, KeptTexts], start: int) -> None:
        self.texts = texts
        """By layer id."""
        self.index = OriginIndex()
        self.index.read = start
        self.sources = 0
        self.calls: set[int] = set()


def add_calls(index: OriginIndex, calls: Iterable[PastCall], log: ItemLog, at: int) -> None:
    """Add the results of tools that were called from code: no item of the log contains them."""
    for call in calls:
        if call.output and call.status in RETURNED and not log.has_call(call.call_id):
            index.add(call.output, Origin("tool", call.name), at=at, args=compact_json(thaw(call.args)))


def _add_child(index: OriginIndex, at: int, child: EndedChild) -> None:
    _, log, first, calls, sent = child
    for item in log[first:]:
        if item["type"] in ("function_call", "function_call_output"):
            index.add_item(item, at)
    add_calls(index, calls, log, at)
    if sent is not None:
        for _, offered in sent.layer_items:
            for layer_id, item in offered:
                if layer_id != SUMMARY_ORIGIN:
                    index.add_offered(layer_id, item, at)
        for below in sent.ended:
            _add_child(index, at, below)
