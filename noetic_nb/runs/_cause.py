"""The cause of a call: the first source of each of its values, and the memory layers that the value passed through."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ItemsAppended, ModelCalled, RunEvent, SteeringDecided, ToolCalled, ViewAssembled
from noetic_nb.items import Item, thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._origin_index import Provenance
from noetic_nb.items._origins import Origin
from noetic_nb.redact import MARGIN, clip_data, redact
from noetic_nb.runs._events.event_kinds import kinds_of, places_of
from noetic_nb.runs._events.run_log import number_at
from noetic_nb.runs._recorded_origins import RunOrigins
from noetic_nb.runs._run_source import RunLike
from noetic_nb.steering._evaluation.judging import LAYER_ID

if TYPE_CHECKING:
    import pandas

_COLUMNS: Final = {
    **dict.fromkeys(("argument", "value", "kind", "name"), "object"),
    **dict.fromkeys(("item", "turn"), "Int64"),
    "via": "object",
}
_HINT: Final = (
    "Pass a SteeringDecided or ToolCalled event of the run, the place of a call in "
    'to_frame("tools"), or the seq of either as seq=.'
)


_RULES: Final = 8  # most rules named in the sentence; the ledger names all


class ValueCause(NamedTuple):
    """A value in a call, and its origin."""

    argument: str  # its path: ``items[0].id``
    member: Any
    value: Any  # the value without secrets
    origin: Origin
    item: int | None  # position in the thread's log of the item that first contained it
    turn: int | None


class CauseReader:
    """Explains the calls of a run that may grow and drop its oldest turns."""

    def __init__(self, run: RunLike) -> None:
        self._run = run
        self._origins = RunOrigins(run)
        self._last: RunEvent | None = None
        self._read_to = 0
        self._items: dict[tuple[str, str], Item] = {}
        self._places: dict[tuple[str, str], tuple[int | None, int]] = {}
        self._decided: dict[int, int] = {}
        self._lock = threading.RLock()  # several threads ask, and the index is cached

    def item_of(self, event: RunEvent, origin: Origin) -> Item | None:
        """Return the item that an origin names, including items of layers; None if the run does not have it."""
        return self._items.get((event.where.thread_id, origin.item or ""))

    def decided(self, at: int) -> int:
        """Return the place of the decision about a call, given the place of the call; the call's own if none is recorded."""
        with self._lock:
            self._read()
            return self._decided.get(at, at)

    def call_of(self, thread_id: str, item: int) -> int | None:
        """Return the place of the tool call requested by an item in a thread's log, or None if the item requests none."""
        events = self._run.events
        for at in range(len(events) - 1, -1, -1):
            event = events[at]
            if not isinstance(event, ItemsAppended) or event.where.thread_id != thread_id or event.where.depth:
                continue
            if event.start <= item < event.start + len(event.items):
                call_id = event.items[item - event.start].get("callId")
                asks = event.items[item - event.start]["type"] == "function_call"
                later = range(at, len(events)) if asks else ()
                return next((to for to in later if _is_call(events[to], thread_id, call_id)), None)
        return None

    def rows(self, event: SteeringDecided | ToolCalled, at: int, most: int | None = None) -> list[ValueCause]:
        """Return the values of a call (the first `most` of them), given the place of its event; each has an origin."""
        with self._lock:
            self._read()
            args: Any = event.args
            if args is None and isinstance(event, ToolCalled):
                args = event.raw_args
            judged = self._decided.get(at, at)
            events = self._run.events
            if not isinstance(args, Mapping) or judged >= len(events):
                return []
            known = self._origins.at(events[judged], number_at(self._run, judged))
            if known is None:
                return []
            args = dict(islice(args.items(), most))
            # Read more of each value than is shown, so that a secret at the cut is recognised.
            short = args if most is None else {name: clip_data(value, 2 * MARGIN)[0] for name, value in args.items()}
            return [*islice(self._rows(event, _leaves(args, redact(thaw(short))), known), most)]

    def judged(self, at: int) -> str:
        """Return one sentence that says whether rules checked a call or response, given the place of its event in the run."""
        with self._lock:
            self._read()
            events, meta = self._run.events, getattr(self._run, "meta", {})
            place = self._decided.get(at, at)
            event: Any = events[place]
            is_decision = isinstance(event, SteeringDecided)
            what = "response" if is_decision and event.tool_name is None else "call"
            keeps_times = not meta.get("replay")  # times in a replay belong to the recorded rules
            rules: tuple[str, ...] = ()
            if is_decision:
                timed = [rule for rule, _ in event.rules_ms] if keeps_times else []
                rules = tuple(dict.fromkeys([*timed, *event.rule_ids, *[rule for rule, _ in event.faults]]))
            if rules:
                more = f" and {len(rules) - _RULES} more" if len(rules) > _RULES else ""
                named = ", ".join([str(redact(rule)) for rule in rules[:_RULES]])
                return f"Looked at by the rule{'s' * (len(rules) > 1)} {named}{more}."
            if is_decision:
                is_own = event.layer_id == LAYER_ID and event.enforced and event.outcome is None
                # Older versions recorded no times, so an empty list is evidence only if other decisions have times.
                known = is_own and any(isinstance(one, SteeringDecided) and one.rules_ms for one in events)
            else:
                known = event.where.depth == 0 and _has_no_rules(meta.get("config"))
            if known and keeps_times:
                return f"No rule looked at this {what}."
            return f"Whether a rule looked at this {what} is not recorded."

    def _rows(self, event: RunEvent, leaves: Iterator[tuple[str, Any, Any]], known: Provenance) -> Iterator[ValueCause]:
        for argument, member, value in leaves:
            origin = known.origin(member)
            item, turn = self._places.get((event.where.thread_id, origin.chain[0].item or ""), (None, None))
            yield ValueCause(argument, member, value, origin, item, turn)

    def _read(self) -> None:
        events = self._run.events
        size = len(events)
        if self._read_to and not (self._read_to <= size and events[self._read_to - 1] is self._last):
            self._read_to = 0  # a bounded run has dropped its oldest turns
            self._places.clear()
            self._items.clear()
        elif self._read_to == size:
            return
        for event in events[self._read_to : size]:
            thread = event.where.thread_id
            if isinstance(event, ItemsAppended):
                for place, item in enumerate(event.items, event.start):
                    item_id = item.get("id")
                    if item_id:
                        self._items.setdefault((thread, item_id), item)
                        known = place if event.where.depth == 0 else None  # a child has its own log
                        self._places.setdefault((thread, item_id), (known, event.where.turn))
            elif isinstance(event, ViewAssembled):
                for _layer, item in event.layer_items:
                    if item.get("id"):
                        self._items.setdefault((thread, item["id"]), item)
        self._read_to, self._last = size, events[size - 1] if size else None
        self._decided = places_of_decisions(events[:size])


def _is_call(event: RunEvent, thread_id: str, call_id: object) -> bool:
    return isinstance(event, ToolCalled) and event.call_id == call_id and event.where.thread_id == thread_id


def _has_no_rules(config: Any) -> bool:
    """Tell whether the recorded configuration of an agent has no layer that decides on calls."""
    memory = config.get("memory") if isinstance(config, Mapping) else None
    return isinstance(memory, list | tuple) and all(
        isinstance(layer, Mapping) and "before_tool_call" not in (layer.get("hooks") or ()) for layer in memory
    )


def cause_frame(reader: CauseReader, events: Sequence[RunEvent], given: object, seq: object) -> pandas.DataFrame:
    """Return the table of `Run.cause`."""
    import pandas

    at = place_asked(events, given, seq)
    event: Any = events[at]
    judged = reader.judged(at)
    rows = [
        (
            *(cause.argument, cause.value, cause.origin.kind, redact(cause.origin.name), cause.item, cause.turn),
            redact(tuple([link.name for link in cause.origin.chain if link.kind == "layer"])),
        )
        for cause in reader.rows(event, at)
    ]
    frame = pandas.DataFrame(
        {
            name: pandas.Series([row[place] for row in rows], dtype=dtype)
            for place, (name, dtype) in enumerate(_COLUMNS.items())
        }
    )
    frame.attrs["judged"] = judged
    return frame


def place_asked(events: Sequence[RunEvent], given: Any, seq: Any) -> int:
    """Return the place of the requested event."""
    if (given is None) == (seq is None):
        raise NoeticConfigError("UNKNOWN_CALL", "Name one decision or call.", given=(given, seq), hint=_HINT)
    if seq is not None:
        found = int(seq) if _is_whole(seq) else -1
        if 0 <= found < len(events) and isinstance(events[found], SteeringDecided | ToolCalled):
            return found
        raise NoeticConfigError("UNKNOWN_DECISION", "No decision or tool call has this seq.", given=seq, hint=_HINT)
    if isinstance(given, SteeringDecided | ToolCalled):
        # Compare by identity first: two calls may be equal.
        for same in (lambda one: one is given, lambda one: one == given):
            for at, event in enumerate(events):
                if same(event):
                    return at
        is_call = isinstance(given, ToolCalled)
        code, what = ("UNKNOWN_CALL", "call") if is_call else ("UNKNOWN_DECISION", "decision")
        raise NoeticConfigError(code, f"This is not a {what} of this run.", given=given, hint=_HINT)
    calls = [at for at, event in enumerate(events) if isinstance(event, ToolCalled)]
    if _is_whole(given) and -len(calls) <= int(given) < len(calls):
        return calls[int(given)]
    raise NoeticConfigError(
        "UNKNOWN_CALL", f"The run has no such tool call; it has {len(calls)}.", given=given, hint=_HINT
    )


def _is_whole(given: object) -> bool:
    """Tell whether a value is an integer, NumPy integers from a frame included."""
    return isinstance(given, Integral) and not isinstance(given, bool)


def _leaves(args: Mapping[str, Any], clean: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, value and displayed value of every leaf in the arguments; a redacted part is one leaf."""
    waiting: list[tuple[str, Any, Any]] = [("", args, clean)]
    while waiting:
        path, value, shown = waiting.pop()
        inner = _inner(path, value, shown)
        if inner is None:
            if value is not None and value != "":
                yield path, value, shown
        else:
            waiting += reversed(inner)


def _inner(path: str, value: Any, shown: Any) -> list[tuple[str, Any, Any]] | None:
    """Return the members of a list or mapping; None for a plain value, and if the displayed value has other members."""
    if isinstance(value, Mapping):
        if not isinstance(shown, Mapping) or len(shown) != len(value):
            return None
        found = []
        for inner, (name, seen) in zip(value.values(), shown.items(), strict=True):
            dot = "." if path else ""
            found.append((f"{path}{dot}{name}" if _is_name(name) else f"{path}[{compact_json(name)}]", inner, seen))
        return found
    if isinstance(value, list | tuple):
        if not isinstance(shown, list | tuple) or len(shown) != len(value):
            return None
        return [(f"{path}[{at}]", *pair) for at, pair in enumerate(zip(value, shown, strict=True))]
    return None


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier()


def places_of_decisions(events: Sequence[RunEvent]) -> dict[int, int]:
    """Map the place of each call or response to the place of the decision about it."""
    about: dict[int, int] = {}
    waiting: dict[tuple[str, str], list[int]] = {}
    answered: dict[tuple[str, str], int] = {}
    for seq in places_of(kinds_of(events), (SteeringDecided, ModelCalled, ToolCalled)):
        event = events[seq]
        key = event.where.thread_id, event.where.execution_id
        match event:
            case SteeringDecided(layer_id=layer_id, hook="before_tool_call") if layer_id == LAYER_ID:
                waiting.setdefault(key, []).append(seq)
            case SteeringDecided(layer_id=layer_id, hook="after_model_call") if layer_id == LAYER_ID:
                if key in answered:
                    about[answered.pop(key)] = seq
            case ModelCalled(purpose="agent", status="ok"):
                answered[key] = seq
            case ToolCalled():
                before = waiting.get(key, [])
                # Newest first: a decision whose call was cancelled never gets a match.
                for place in reversed(before):
                    decided: Any = events[place]
                    if decided.tool_name == event.name and (decided.args or {}) == (event.args or {}):
                        about[seq] = place
                        before.remove(place)
                        break
    return about
