"""Compares planned and billed tokens of the agent's requests; the difference is called *unexplained*."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from noetic_nb.events import ModelCalled, RequestPrepared, RunEvent, ViewAssembled, Where
from noetic_nb.runs._plain_text import plain
from noetic_nb.tokenizers._reconciling import as_percent, percent, reconciled
from noetic_nb.tokens import estimate_tokens, tokenizer_name

_DEFAULT: Final = tokenizer_name(estimate_tokens)
_PROBLEMS: Final = {
    "missing": "the model reported no usage",
    "negative": "the model reported less than nothing",
    "backwards": "less than for the request before, which it has all of",
    "disagrees": "planned is off by more than half",
}


class CallUsage(NamedTuple):
    """One request of the agent, with its counter and its counts. `planned` is None if not recorded."""

    called: ModelCalled
    counter: str | None
    known_error: float | None
    planned: int | None
    reported: int | None
    unexplained: int | None
    error: float | None
    problem: str | None


class Billed(Struct, frozen=True, gc=False):
    """The data for a request's usage, computed on demand because most of a long run is never viewed."""

    called: ModelCalled
    view: ViewAssembled | None
    prepared: RequestPrepared | None
    least: int | None
    """The bill of an earlier request that this one contains, if it was larger; otherwise None."""

    @property
    def usage(self) -> CallUsage:
        called, prepared = self.called, self.prepared
        counter = None if prepared is None else prepared.tokenizer
        known = None if prepared is None else prepared.tokenizer_error
        if self.view is None:
            reported = called.input_tokens if called.input_tokens > 0 else None
            return CallUsage(called, counter, known, None, reported, None, None, None)
        found = reconciled(planned_tokens(self.view), called.input_tokens, before=self.least)
        return CallUsage(
            called, counter, known, found.planned, found.reported, found.unexplained, found.error, found.problem
        )


def planned_tokens(view: ViewAssembled) -> int:
    return view.system + view.tools + view.framing + view.history + sum([layer.used for layer in view.layers])


def counter_words(name: str | None) -> str:
    return plain((name or "an unknown counter").replace(_DEFAULT, "the default estimate"), 120)


def usage_words(usage: CallUsage) -> str:
    """Describe the tokens of a request in a sentence."""
    counted = f"Counted by {counter_words(usage.counter)} ({percent(usage.known_error)})."
    if usage.reported is None:
        return f"{counted} Planned only: {_PROBLEMS[usage.problem or 'missing']}."
    said = f"Billed {usage.reported:,} input tokens"
    if usage.unexplained is not None:
        off = abs(usage.unexplained) / usage.reported
        how = "of them unexplained" if usage.unexplained >= 0 else "fewer than planned"
        said += f", {abs(usage.unexplained):,} {how} ({as_percent(off)})"
    return f"{counted} {said}." if usage.problem is None else f"{counted} {said}: {_PROBLEMS[usage.problem]}."


class UsageIndex:
    """The agent's requests in a run so far, planned against billed; grows with `take`."""

    def __init__(self) -> None:
        self._prepared: dict[tuple[str, str], RequestPrepared] = {}
        self._open: dict[tuple[str, str], ViewAssembled] = {}
        self._before: dict[tuple[str, str], tuple[ViewAssembled, ModelCalled]] = {}

    def prepared(self, where: Where) -> RequestPrepared | None:
        """Return the data shared by the requests of an execution; None if the run does not have it."""
        return self._prepared.get((where.thread_id, where.execution_id))

    def take(self, event: RunEvent) -> CallUsage | None:
        """Read one event; returns the usage of the request that ended with it."""
        billed = self.read(event)
        return None if billed is None else billed.usage

    def read(self, event: RunEvent) -> Billed | None:
        """Read one event; returns the data for the usage of the request that ended with it."""
        kind = type(event)
        if kind is RequestPrepared or kind is ViewAssembled:
            key = event.where.thread_id, event.where.execution_id
            if isinstance(event, ViewAssembled):
                self._open[key] = event
            elif isinstance(event, RequestPrepared):
                self._prepared[key] = event
            return None
        if not isinstance(event, ModelCalled) or event.purpose != "agent":
            return None
        key = event.where.thread_id, event.where.execution_id
        view, prepared = self._open.pop(key, None), self._prepared.get(key)
        if event.status != "ok" and event.input_tokens == 0:
            return None
        return Billed(event, view, prepared, None if view is None else self._least(event, view))

    def _least(self, event: ModelCalled, view: ViewAssembled) -> int | None:
        where, billed = event.where, event.input_tokens
        conversation = where.thread_id, "" if where.depth == 0 else where.execution_id
        before = self._before.pop(conversation, None)
        least = None
        # Only informative if less was billed than before.
        if before is not None and billed < before[1].input_tokens and before[1].model == event.model:
            least = before[1].input_tokens if _begins(before[0], view) else None
        if billed > 0 and (least is None or billed >= least):  # a bill that is too small is not comparable
            self._before[conversation] = (view, event)
        return least


def _begins(before: ViewAssembled, view: ViewAssembled) -> bool:
    """Tell whether the new request begins with all items of the earlier one."""
    plain = not (view.layer_items or before.layer_items or view.fates or before.fates or view.hidden or before.hidden)
    same = (before.system, before.tools, before.window[0]) == (view.system, view.tools, view.window[0])
    whole = before.projection is None and view.projection is None and not before.appended
    return plain and same and whole and view.window[1] >= before.window[1]
