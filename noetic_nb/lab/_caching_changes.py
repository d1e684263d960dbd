"""The effect of caching on a recorded run if its layers were ordered differently, or changed less often.

Uses only the recorded requests: no layer or model is called, and the answers are taken as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from noetic_nb._core.arguments import closest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import item_tokens
from noetic_nb.items._build import sent_text
from noetic_nb.items._log import ItemView
from noetic_nb.lab._checks import check_run
from noetic_nb.memory._budget import latest_user
from noetic_nb.models.prompt_caching import checked_rules
from noetic_nb.runs import Run
from noetic_nb.runs._requests.caching_table import reuse_frame
from noetic_nb.runs._requests.prefix_reuse import CacheReader
from noetic_nb.runs._requests.recorded_requests import requests_of
from noetic_nb.runs._requests.shared_requests import RequestPart, is_whole, parts_of
from noetic_nb.tokenizers._named import asked_tokenizer

if TYPE_CHECKING:
    import pandas

    from noetic_nb.models._pricing import Price
    from noetic_nb.models.prompt_caching import CacheRules
    from noetic_nb.runs._requests.sent_request import RecordedRequest
    from noetic_nb.tokens import Tokenizer


def what_if_cached(
    run: Run,
    *,
    order: Sequence[str] | None = None,
    freeze: Mapping[str, int] | None = None,
    last: Iterable[str] | str = (),
    rules: CacheRules | str | None = None,
    price: Price | None = None,
    tokenizer: str | Tokenizer | None = None,
) -> pandas.DataFrame:
    """Return the effect of caching on a run's calls if their prompts were arranged differently.

    See docs/behaviour/lab.md, "Caching under other orders".

    Parameters
    ----------
    run : Run
        Recorded, loaded or still growing.
    order : sequence of str, optional
        Ids of layers in their new order; the others follow in their previous order.
    freeze : mapping of str to int, optional
        By layer id, the number of turns for which the layer keeps showing its content of the first call of those turns.
    last : iterable of str, or "changing"
        Layers to put before the latest user message instead of before the history. ``"changing"`` selects the layers
        whose content differs at the first call of at least half of the turns after the first.
    rules, price, tokenizer
        As for `Run.caching`.

    Returns
    -------
    pandas.DataFrame
        The table of `Run.caching`. ``input_tokens`` and ``reported`` are those of the recorded run.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_LAYER_REFERENCE`` for a layer in no request, ``INVALID_OPTION``, and the errors of `Run.caching`.

    Examples
    --------
    >>> what_if_cached(Run("empty"), last="changing").empty
    True
    """
    reader = CacheReader(checked_rules(rules))
    events = tuple(check_run(run, "Prompts are arranged in a run.").events)
    sent: dict[int, tuple[RecordedRequest, tuple[RequestPart, ...]]] = {}
    for planned in requests_of(run, asked_tokenizer(tokenizer)).requests:
        if planned.view is not None and is_whole(planned, parts := parts_of(planned)):
            sent[planned.seq] = planned, parts
    known = {part.origin.removeprefix("layer:") for _, parts in sent.values() for part in parts if _is_layer(part)}
    turns = _as_turns(freeze)
    late = _changing(sent.values()) if isinstance(last, str) and last == "changing" else _ids("last", last)
    first = _ids("order", order or ())
    for layer_id in (*first, *turns, *late):
        if layer_id not in known:
            what = "No request of the run has such a layer."
            hint = f"{closest(layer_id, known)}They show {', '.join(map(repr, sorted(known))) or 'none'}."
            raise NoeticConfigError("UNKNOWN_LAYER_REFERENCE", what, given=layer_id, hint=hint)
    frozen = _Frozen(turns)
    reuses = []
    for seq, event in enumerate(events):
        at = reader.index.take(event)
        request = None if at is None else reader.index.requests[at]
        if seq in sent and request is not None:
            parts = _arranged(frozen.shown(*sent[seq]), first, frozenset(late))
            reuses.append(reader.begin(sent[seq][0], parts, event.t_ms))
        else:
            reader.read(event, request)
    return reuse_frame(run.run_id, reuses, {request.seq: request for request in reader.index.requests}, price)


def _is_layer(part: RequestPart) -> bool:
    return part.origin.startswith("layer:")


def _ids(option: str, given: object) -> tuple[str, ...]:
    ids = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | Mapping) else None
    if ids is None or not all(isinstance(layer_id, str) for layer_id in ids):
        hint = "Write last=['notes'], or last='changing'." if option == "last" else "Write order=['facts', 'notes']."
        raise NoeticConfigError("INVALID_OPTION", f"`{option}` must name layers by their ids.", given=given, hint=hint)
    return ids


def _as_turns(given: object) -> Mapping[str, int]:
    if given is None:
        return {}
    numbers = given.values() if isinstance(given, Mapping) else [None]
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in numbers):
        hint = "Write freeze={'notes': 5}."
        raise NoeticConfigError(
            "INVALID_OPTION", "`freeze` needs a number of turns, at least 1, for each layer.", given=given, hint=hint
        )
    assert isinstance(given, Mapping)
    return given


def _changing(requests: Iterable[tuple[RecordedRequest, tuple[RequestPart, ...]]]) -> tuple[str, ...]:
    """Return the layers whose content differs at the first call of at least half of the turns after the first."""
    calls: dict[str, int] = {}
    changes: dict[str, int] = {}
    before: dict[str, dict[str, list[Any]]] = {}
    begun: dict[str, int] = {}
    for request, parts in requests:
        where = request.where
        if begun.get(where.thread_id) == where.turn:
            continue
        begun[where.thread_id] = where.turn
        now: dict[str, list[Any]] = {}
        for part in filter(_is_layer, parts):
            assert not isinstance(part.body, str)
            now.setdefault(part.origin.removeprefix("layer:"), []).extend(map(sent_text, part.body))
        earlier = before.get(where.thread_id)
        before[where.thread_id] = now
        for layer_id in () if earlier is None else {**earlier, **now}:
            assert earlier is not None
            calls[layer_id] = calls.get(layer_id, 0) + 1
            changes[layer_id] = changes.get(layer_id, 0) + (earlier.get(layer_id) != now.get(layer_id))
    return tuple([layer_id for layer_id, count in calls.items() if 2 * changes[layer_id] >= count])


class _Frozen:
    """The items of layers at the first call of a stretch of turns, by thread."""

    def __init__(self, turns: Mapping[str, int]) -> None:
        self._turns = turns
        self._shown: dict[tuple[str, str, int], tuple[RequestPart, ...]] = {}

    def shown(self, request: RecordedRequest, parts: tuple[RequestPart, ...]) -> tuple[RequestPart, ...]:
        where = request.where
        for layer_id, turns in self._turns.items():
            origin = f"layer:{layer_id}"
            own = tuple([part for part in parts if part.origin == origin])
            key = where.thread_id, layer_id, max(0, where.turn - 1) // turns
            kept = self._shown.setdefault(key, own)
            if kept is not own:
                # In its own position, or else at the start of the history, after the layers.
                places = [at for at, part in enumerate(parts) if part.origin == origin]
                places += [at for at, part in enumerate(parts) if part.origin in ("history", "appended")]
                place = (*places, len(parts))[0]
                rest = [part for part in parts if part.origin != origin]
                parts = (*rest[:place], *kept, *rest[place:])
        return parts


def _arranged(parts: tuple[RequestPart, ...], first: Sequence[str], late: frozenset[str]) -> tuple[RequestPart, ...]:
    if not first and not late:
        return parts
    rank = {f"layer:{layer_id}": at for at, layer_id in enumerate(first)}
    layers = sorted(filter(_is_layer, parts), key=lambda part: rank.get(part.origin, len(rank)))
    head = [part for part in parts if _is_head(part)]
    behind = [part for part in layers if part.origin.removeprefix("layer:") in late]
    stay = [part for part in layers if part not in behind]
    rest = [part for part in parts if not _is_layer(part) and not _is_head(part)]
    return (*head, *stay, *_before_question(rest, behind))


def _is_head(part: RequestPart) -> bool:
    """Tell whether a part is sent before everything else: tools, instructions, system messages."""
    is_one = isinstance(part.body, tuple) and bool(part.body) and part.origin == "history"
    return part.origin in ("tools", "system") or (is_one and part.body[0].get("role") == "system")  # type: ignore[union-attr]


def _before_question(rest: Sequence[RequestPart], behind: Sequence[RequestPart]) -> Iterable[RequestPart]:
    """Return the history, with the given parts before its latest user message."""
    for at in range(len(rest) - 1, -1, -1):
        part = rest[at]
        user = None if part.origin != "history" or isinstance(part.body, str) else latest_user(part.body)
        if user is not None:
            return (*rest[:at], *_cut(part, 0, user), *behind, *_cut(part, user, part.size), *rest[at + 1 :])
    return (*rest, *behind)


def _cut(part: RequestPart, start: int, stop: int) -> Iterable[RequestPart]:
    """Return a slice of a part, or nothing if it is empty."""
    if stop <= start:
        return ()
    if stop - start == part.size:
        return (part,)
    body = part.body[start:stop]
    assert not isinstance(body, str)
    tokens = body.tokens if isinstance(body, ItemView) else sum(map(item_tokens, body))
    return (RequestPart(part.origin, body, tokens),)
