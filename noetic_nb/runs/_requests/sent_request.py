"""One model call of a run: its request item by item, the inputs of its plan, and its token counter.

Expensive values are computed on demand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from noetic_nb import events as ev
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item, item_tokens
from noetic_nb.items._build import content_tokens, with_own_call_ids
from noetic_nb.items._log import ItemView
from noetic_nb.runtime._planning.least_budget import AbsentItem, LeastBudget, absent_items, least_budget
from noetic_nb.runtime._planning.plan_inputs import PlanInputs, plan_inputs
from noetic_nb.runtime._planning.turn_plan import TurnPlan
from noetic_nb.steps._tools import spec_tokens
from noetic_nb.tokenizers._encoding_tokenizer import OFFLINE
from noetic_nb.tokenizers._from_files import ENCODINGS
from noetic_nb.tokenizers._learning import counter_of
from noetic_nb.tokenizers._named import best_tokenizer, get
from noetic_nb.tokens import Tokenizer, estimate_tokens, tokenizer_name


def tool_tokens(prepared: ev.RequestPrepared | None, total: int) -> tuple[tuple[str, int], ...]:
    """Return the offered tools of a request with their tokens, which add up to `total`; empty if unknown.

    The tokens billed for all definitions together are split in proportion.

    Examples
    --------
    >>> tool_tokens(None, 120)
    ()
    """
    if prepared is None or not prepared.tools:
        return ()
    counter = prepared_counter(prepared) or estimate_tokens
    sums = [0, *accumulate([_definition_tokens(tool, counter) for tool in prepared.tools])]
    ends = [round(total * each / sums[-1]) for each in sums]
    return tuple([(tool.name, ends[at + 1] - ends[at]) for at, tool in enumerate(prepared.tools)])


def _definition_tokens(tool: ev.OfferedTool, counter: Tokenizer) -> int:
    """Count one definition, without the framing that is billed once for all."""
    count = getattr(counter, "count_tools", None)
    return max(1, spec_tokens(tool, counter) if count is None else count((tool, tool)) - count((tool,)))


def counter_named(name: str) -> Tokenizer | None:
    """Return the counter of an encoding, or its substitute; None if the name or its vocabulary is not known on this machine."""
    if name != OFFLINE and name not in ENCODINGS:
        return None
    try:
        return get(name)
    except NoeticConfigError:  # the optional package is not installed
        return None


def prepared_counter(event: ev.RequestPrepared) -> Tokenizer | None:
    """Return the counter of a request: an encoding, or learned factors; None if it cannot be recreated here."""
    if event.counter is None:
        return counter_named(event.tokenizer)
    try:
        return counter_of(event.counter)
    except (NoeticConfigError, KeyError, TypeError, ValueError):  # based on a custom function
        return None


def recorded_counter(events: Iterable[ev.RunEvent]) -> Tokenizer | None:
    """Return the one encoding that counted all requests of a run; None if it was the default, a custom one, or several."""
    names = {event.tokenizer for event in events if isinstance(event, ev.RequestPrepared)}
    return counter_named(names.pop()) if len(names) == 1 else None


def item_counter(events: Iterable[ev.RunEvent]) -> Tokenizer:
    """Return the counter for the items of a run: the counter of its plans, or the closest one known for its model."""
    events = list(events)
    if any(isinstance(event, ev.RequestPrepared) for event in events):
        return recorded_counter(events) or estimate_tokens
    return best_tokenizer(next((event.model for event in events if isinstance(event, ev.ModelCalled)), ""))


# A run may have items of extensions that are not registered in this process.


class SentItem(NamedTuple):
    """One item of a request.

    `origin` is ``system``, ``history``, ``tool``, ``guidance``, ``layer:<id>`` for recalled items of a layer,
    ``projection`` for a layer's replacement of history, or ``appended`` for items sent after the log but not logged.
    """

    item: Item | None
    """None if not recorded."""
    origin: str
    position: int | None
    """Its place in the log."""
    tokens: int
    framing: int = 0
    """The framing part of `tokens` for a layer's item: budgets count only texts, framing is counted separately."""


@dataclass(eq=False)
class RecordedRequest:
    """One call of the agent's model, and its request; `seq` is the index of its first event in the run."""

    place: int | None
    seq: int
    called: ev.ModelCalled | None
    view: ev.ViewAssembled | None
    prepared: ev.RequestPrepared | None
    first: int = 0
    """The first recorded place of the log."""
    known: ItemView | None = field(default=None, repr=False)
    guidance: frozenset[int] = field(default=frozenset(), repr=False)
    tokenizer: Tokenizer | None = field(default=None, repr=False)

    @property
    def where(self) -> Any:
        """Thread, execution and turn."""
        event = self.called if self.view is None else self.view
        assert event is not None
        return event.where

    @property
    def instructions(self) -> str | None:
        """System text; None if not recorded."""
        return None if self.prepared is None else self.prepared.instructions

    @property
    def tools(self) -> tuple[ev.OfferedTool, ...] | None:
        """The offered tools; None if not recorded."""
        return None if self.prepared is None else self.prepared.tools

    def log_item(self, position: int) -> Item | None:
        """Return a log item as it was at that time; None if not recorded."""
        known = self.known
        at = position - self.first
        return known[at] if known is not None and 0 <= at < len(known) else None

    @cached_property
    def stretches(self) -> list[range]:
        """The sent stretches of the log; empty if the request is not in the run."""
        return [] if self.view is None else sent_stretches(self.view)

    @cached_property
    def _counter(self) -> Tokenizer | None:
        """The counter, if it was given or can be recreated on this machine; None for the default as well."""
        if self.tokenizer is not None or self.prepared is None:
            return self.tokenizer
        return prepared_counter(self.prepared)

    @cached_property
    def counter(self) -> Tokenizer:
        """The counter of its items: the counter of the plan, or the closest one known for its model."""
        if self.view is None and self.tokenizer is None:
            return best_tokenizer("" if self.called is None else self.called.model)
        return self._counter or estimate_tokens

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The names of unrecorded inputs that are needed to plan the call again."""
        if self.view is None:
            return ("the request (imported runs have none)",)
        gone = [] if self.prepared is not None else ["instructions, tools and budgets, as in runs of earlier versions"]
        if self.first:
            gone.append(f"the first {self.first} items of the log")
        if self.prepared is not None and self._counter is None:
            name = self.prepared.tokenizer
            if name != tokenizer_name(estimate_tokens):
                gone.append(f"the tokenizer {name!r}: pass it as tokenizer=")
        return tuple(gone)

    @cached_property
    def inputs(self) -> PlanInputs:
        """The inputs of the call's plan.

        ``NOT_RECORDED`` says what is missing; it is also raised if the recorded inputs give a different plan, as in a
        file with secrets removed.
        """
        if self.missing:
            raise _not_recorded(self, "; ".join(self.missing))
        assert self.view is not None
        assert self.prepared is not None
        assert self.known is not None
        tokenizer = self.counter
        inputs = plan_inputs(self.view, self.prepared, self.known.counted_by(tokenizer), tokenizer)
        if self.event_of(inputs.replan()) != self.view:
            raise _not_recorded(
                self, "texts as they were sent, as a file from which secrets were removed does not have them"
            )
        return inputs

    @cached_property
    def plan(self) -> TurnPlan:
        """The plan of the call; raises ``NOT_RECORDED`` as `inputs` does."""
        return self.inputs.replan()

    @cached_property
    def absent(self) -> tuple[AbsentItem, ...]:
        """The items that were not sent, with reasons: offers of layers, then history in order; raises ``NOT_RECORDED``."""
        return absent_items(self.inputs, self.plan)

    def least_budget(self, absent: AbsentItem) -> LeastBudget | None:
        """Return the smallest budget that would have admitted one of `absent`, or None; see `least_budget`."""
        return least_budget(self.inputs, absent)

    def event_of(self, plan: TurnPlan) -> ev.ViewAssembled:
        """Return the event that the request would have with another plan."""
        view = self.view
        assert view is not None
        return plan.as_event(view.where, view.t_ms, view.step, view.projection, view.appended, view.duration_ms)

    def replan(self, **changes: Any) -> TurnPlan:
        """Plan the call again with other numbers; see `PlanInputs.replan`."""
        return self.inputs.replan(**changes)

    @property
    def can_replan(self) -> bool:
        """Whether all inputs of the call's plan are recorded."""
        try:
            return self.inputs is not None
        except NoeticConfigError:
            return False

    @cached_property
    def items(self) -> tuple[SentItem, ...]:
        """The items of the request in the order sent, after the instructions; empty if the request is not in the run."""
        view = self.view
        if view is None:
            return ()
        if self.can_replan:
            return self._items_of(self.plan)
        layers = [self._sent(item, f"layer:{layer_id}", None) for layer_id, item in view.layer_items]
        return (*layers, *[self._at(at) for at in sent_positions(view)], *self._appended(view))

    def _items_of(self, plan: TurnPlan) -> tuple[SentItem, ...]:
        inputs, view = self.inputs, self.view
        assert view is not None
        layer_of = {id(item): layer_id for layer_id, item in plan.layer_items}
        sent: list[SentItem] = []
        after = 0
        # Logs of earlier versions may hold two calls with one id; they are sent with unique ids.
        shown = with_own_call_ids(plan.items) if inputs.log.repeats_calls else plan.items
        for item, given in zip(plan.items, shown, strict=True):
            if id(item) in layer_of:
                sent.append(self._sent(given, f"layer:{layer_of[id(item)]}", None))
                continue
            places = inputs.log.places_of((item,))
            place = next((at for at in places if at >= after), places[0] if places else None)
            if place is None:
                sent.append(self._sent(given, "projection", None))
                continue
            after = place + 1
            sent.append(self._at(place)._replace(item=given))
        return (*sent, *self._appended(view))

    def _appended(self, view: ev.ViewAssembled) -> list[SentItem]:
        return [self._sent(item, "appended", None) for item in view.appended]

    def _at(self, position: int) -> SentItem:
        item = self.log_item(position)
        if item is None:
            return SentItem(None, "history", position, 0)
        origin = "history"
        if item.get("role") == "system":
            origin = "system"
        elif item["type"] == "function_call_output":
            origin = "tool"
        elif position in self.guidance:
            origin = "guidance"
        return self._sent(item, origin, position)

    def _sent(self, item: Item, origin: str, position: int | None) -> SentItem:
        counter = self.counter
        tokens = item_tokens(item, counter)
        framing = tokens - content_tokens(item, counter) if origin.startswith("layer:") else 0
        return SentItem(item, origin, position, tokens, framing)


def sent_stretches(view: ev.ViewAssembled) -> list[range]:
    """Return the sent log items according to the event, as ordered stretches."""
    start, end = view.window
    if not (view.fates or view.kept or view.hidden):  # true for most views of a long run
        return [range(start, end)] if start < end else []
    fates = [fate for fate in view.fates if fate.origin == "history"]
    # A forced item is sent despite the reason to leave it out, and forms its own stretch.
    alone = {*view.kept, *[fate.position for fate in fates if fate.reason == "forced"]}
    gone = [(fate.position, fate.position + 1) for fate in fates] + [part[:2] for part in view.hidden]
    found = [range(at, at + 1) for at in alone]
    for first, stop in sorted(gone):
        found.append(range(start, min(first, end)))
        start = max(start, stop)
    found.append(range(start, end))
    return sorted([part for part in found if part], key=lambda part: part.start)


def sent_positions(view: ev.ViewAssembled) -> list[int]:
    """Return the places of the sent log items according to the event."""
    return [at for part in sent_stretches(view) for at in part]


def _not_recorded(request: RecordedRequest, what: str) -> NoeticConfigError:
    return NoeticConfigError(
        "NOT_RECORDED",
        "This call cannot be planned again.",
        given=request.place,
        hint=f"The run does not have {what}.",
    )
