"""The labels of whole runs in the table of a collection, given by keys."""

from __future__ import annotations

from noetic_nb.errors import NoeticConfigError
from noetic_nb.interop._collection.run_collection import RunCollection
from noetic_nb.runs._labelled import visible_labels
from noetic_nb.runs._plain_text import plain
from noetic_nb.widgets._transcript.call_labels import names_for


class RunLabels:
    """The labels that one rater gives to runs, and those of others that may be seen."""

    def __init__(self, collection: RunCollection, by: str) -> None:
        self.collection, self.by = collection, by
        self.names, self.data = names_for(collection[0] if len(collection) else None, by, "run")

    def text(self, at: int) -> str:
        """Return the labels of a run as its row shows them."""
        shown = [each for each in visible_labels(self.collection[at], self.by) if each.target == (None,) * 4]
        return ", ".join(
            f"{each.name}: {each.value}" + ("" if each.by == self.by else f" ({plain(each.by)})") for each in shown
        )

    def give(self, at: int, name: int, value: int | None) -> None:
        """Label a run with a value by its place in the codebook, None to take it back."""
        names = list(self.names)
        if not 0 <= name < len(names) or not (value is None or 0 <= value < len(self.names[names[name]])):
            raise NoeticConfigError(
                "UNKNOWN_LABEL", "The codebook has no such value.", given=(name, value), hint="Load the page again."
            )
        named = names[name]
        self.collection[at].label(named, None if value is None else self.names[named][value], by=self.by)
