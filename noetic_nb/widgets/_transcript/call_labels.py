"""The labels of calls in a transcript, given by keys, and the step at which to look first."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs import Run
from noetic_nb.runs._labelled import agent_calls, visible_labels
from noetic_nb.runs._labels import codebook_of
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain, sendable
from noetic_nb.runs._requests.recorded_requests import CallRecord, requests_of

# Digits that there are keys for.
MOST_VALUES: Final = 9


def names_for(run: Any, by: Any, of: str) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
    """Return the values that a rater gives by keys to parts of a kind, by name, and the same for a page.

    Raises `NoeticConfigError` ``NO_CODEBOOK``.
    """
    book = codebook_of(run.meta, run._label_store.path) if isinstance(run, Run) else None
    found = {name: code for name, code in (book or {}).items() if code.of in (None, of) and code.values}
    if not found or not isinstance(by, str) or not by.strip():
        hint = (
            f"run.meta['codebook'] = {{'verdict': {{'values': ['right', 'wrong'], 'of': {of!r}}}}}, or codebook.json."
        )
        raise NoeticConfigError(
            "NO_CODEBOOK", f"Each {of} is labelled by a named rater with the values of a codebook.", given=by, hint=hint
        )
    names = [
        {
            "name": plain(name),
            "description": plain(code.description, TEXT_LENGTH),
            "values": [plain(str(value)) for value in code.values[:MOST_VALUES]],
            "meanings": [plain(text, TEXT_LENGTH) for text in code.meanings[:MOST_VALUES]],
        }
        for name, code in found.items()
    ]
    return {name: list(code.values[:MOST_VALUES]) for name, code in found.items()}, names


class CallLabels:
    """The labels of one rater about the calls of a run; without a rater there is only the first step to look at."""

    def __init__(self, run: Any, by: str | None) -> None:
        self.run, self.by = run, by
        self.names: dict[str, list[Any]] = {}
        self.data: dict[str, Any] = {"looks": isinstance(run, Run)}
        if by is None:
            return
        self.names, names = names_for(run, by, "call")
        self.data |= {"by": plain(by), "names": names}

    def of(self, record: CallRecord) -> list[dict[str, Any]]:
        """Return, for each name, the label of a call by the rater, those of others that may be seen, and how many there are."""
        if self.by is None:
            return []
        shown, calls = visible_labels(self.run, self.by), sum(1 for _ in agent_calls(self.run))
        found = []
        for name, values in self.names.items():
            named = [label for label in shown if label.name == name and label.call is not None and label.item is None]
            here = [label for label in named if label.call == record.number]
            own = [label.value for label in here if label.by == self.by]
            others = [f"{plain(label.by)}: {plain(str(label.value))}" for label in here if label.by != self.by]
            value = next((at for at, each in enumerate(values) if own and _same(own[0], each)), None)
            done = sum(label.by == self.by for label in named)
            found.append({"own": value, "others": others, "done": f"{done} of {calls}"})
        return found

    def give(self, record: CallRecord, name: int, value: int | None) -> list[dict[str, Any]]:
        """Label a call with a value by its place in the codebook, None to take it back; returns its labels."""
        named = list(self.names)[name]
        self.run.label(named, None if value is None else self.names[named][value], call=record.number, by=self.by)
        return self.of(record)

    def first_look(self) -> dict[str, Any]:
        """Return the words about the step to look at first, and what a page selects to show it."""
        from noetic_nb.lab import first_failure  # most runs are not asked

        found = first_failure(self.run)
        if found is None:
            return {"text": "No evidence in the run; that says nothing about it.", "fields": None}
        fields = {"thread_id": sendable(found.thread_id), "turn": found.turn, "item": found.item}
        fields |= {"call": self._call_with(found.thread_id, found.item), "decision": None}
        return {"text": f"{found.reason}: {plain(found.evidence, TEXT_LENGTH)}", "fields": fields}

    def _call_with(self, thread_id: str, item: int) -> int | None:
        """Return the first call whose request can have an item: the one after it; the last of its thread where none is."""
        calls = {id(event): number for number, event in agent_calls(self.run)}
        here = [one for one in requests_of(self.run).requests if one.where.thread_id == thread_id and one.called]
        have = [one for one in here if one.known is not None and one.first <= item < one.first + len(one.known)]
        return calls[id((have or here[-1:])[0].called)] if here else None


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
