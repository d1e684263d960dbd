"""Facts in the log before a call that were not sent with it, found by rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, TurnStarted
from noetic_nb.items import Item, item_text
from noetic_nb.lab._recall_quality.fact_words import NOT_NAMES
from noetic_nb.lab._recall_quality.facts import Fact, FactKind, KnownFacts, facts_of
from noetic_nb.lab._recall_quality.folded_text import FoldedTexts, folded
from noetic_nb.redact import redact_text
from noetic_nb.runs import Run
from noetic_nb.runs._requests.recorded_requests import recorded_request
from noetic_nb.runs._requests.sent_request import RecordedRequest, SentItem

if TYPE_CHECKING:
    import pandas


# Of the words of a question that say something, this share stands in the sentence of the fact.
SHARE: Final = 0.5
# "ordered" asks for an "order": words are compared by so many letters, in scripts with blanks.
STEM: Final = 5

_ASKS: Final = re.compile(
    r"[?？؟;՞]|\b(?:remind|tell me|recall|remember|repeat|what|which|who|when|where|how|"
    r"erinner\w*|nenn\w*|sag mir|wie|was|wer|wann|wo|welche[nrs]?|wiederhol\w*|rappelle|recuérdame|напомни\w*)\b",
    re.IGNORECASE,
)
# What a question of this form asks for; all others ask for anything.
_WANTED: Final = (
    (
        re.compile(r"\b(?:when|what (?:time|date|day)|wann|um wie ?viel uhr|quand|cuándo|когда)\b", re.IGNORECASE),
        {"date", "time"},
    ),
    (re.compile(r"\b(?:who|whose|wer|wen|wem|wessen|qui|quién|кто)\b", re.IGNORECASE), {"name", "quote", "id"}),
    (re.compile(r"\b(?:how (?:much|many)|wie ?viele?|combien|cuánt\w+|сколько)\b", re.IGNORECASE), {"number"}),
)
_EMPTY_TEXT: Final = """
    number called tell remind exactly please said mention mentioned again gesagt bitte genau nochmal noch mal heißt quel
    quelle quels quelles cuál cuáles qual quale quali welcher welches welchen welchem какои какая какое какие каков моеи мою
    моего"""
_EMPTY: Final = frozenset(folded(word) for word in NOT_NAMES) - {"order", "place", "name"} | frozenset(
    _EMPTY_TEXT.split()
)


class Question(NamedTuple):
    """The text of a user in one turn."""

    turn: int
    texts: FoldedTexts
    words: frozenset[str]
    asks: bool
    wanted: frozenset[str]
    """Kinds of facts that it asks for; empty for all."""


def questions_of(turns: Iterable[tuple[int, str]]) -> tuple[Question, ...]:
    """Return the texts of turns in a form that can be compared with facts."""
    found = []
    for turn, text in turns:
        wanted = {kind for form, kinds in _WANTED if form.search(text) for kind in kinds}
        found.append(
            Question(turn, FoldedTexts([text]), _stems(text), _ASKS.search(text) is not None, frozenset(wanted))
        )
    return tuple(found)


def first_asked(fact: Fact, questions: Sequence[Question]) -> int | None:
    """Return the first turn that asks for a fact, or names it; None where none does."""
    around: frozenset[str] | None = None
    for question in questions:
        if fact.kind != "decision" and question.texts.has(fact.text):
            return question.turn
        if not question.asks or not question.words or (question.wanted and fact.kind not in question.wanted):
            continue
        if around is None:
            around = _stems(fact.sentence)
        shared = len(question.words & around)
        if shared >= max(SHARE * len(question.words), min(2, len(question.words))):
            return question.turn
    return None


def _stems(text: str) -> frozenset[str]:
    words = [word for word in folded(text).split() if word not in _EMPTY]
    return frozenset([word[:STEM] for word in words if len(word) > 1 or not word.isascii()])


COLUMNS: Final = ("fact", "kind", "position", "asked_later", "reason", "item", "sentence")
_IN_PLACE: Final = "projection"


class Loss(NamedTuple):
    """A fact that a call was not sent."""

    fact: str
    """As it is written where it stood last."""
    item: Item
    """The item in which it stood last."""
    asked_later: int | None
    """The first turn, from that of the call on, in which a person asked for it or named it; None where none did."""
    kind: FactKind
    position: int
    """The place of the item in the log."""
    reason: str
    """Why the item was not sent; ``not_sent`` where the run does not say."""
    keys: tuple[str, ...]
    """Normal forms of the fact."""
    sentence: str

    def __repr__(self) -> str:
        """Return the fact and where it stood, without the item, which may hold a secret."""
        asked = "" if self.asked_later is None else f", asked_later={self.asked_later}"
        return f"<Loss {self.kind} {self.fact!r} at {self.position}, {self.reason}{asked}>"


class Retelling(NamedTuple):
    """A text that retells earlier text, compared with its source: facts as they are written there."""

    origin: str
    """``layer:<id>``, ``layer:summary`` for the policy's own, ``projection`` for what a layer wrote in place of history."""
    text: str
    kept: tuple[str, ...]
    """Facts of the items that were not sent that the text tells."""
    dropped: tuple[str, ...]
    """Their facts that it does not tell."""
    added: tuple[str, ...]
    """Facts of the text that stand nowhere in the log before the call."""


class Losses(tuple[Loss, ...]):
    """The lost facts, in the order of the log; empty where none was lost.

    Attributes
    ----------
    retellings : tuple of Retelling
        Every text of a layer and every summary that was sent, compared with the log before the call.
    unread : int
        Items at the head of the log that the run does not have any more: facts of theirs cannot be named.
    """

    retellings: tuple[Retelling, ...]
    unread: int

    def __new__(cls, found: Iterable[Loss] = (), *, retellings: tuple[Retelling, ...] = (), unread: int = 0) -> Losses:
        """Return a tuple with the retellings."""
        self = super().__new__(cls, found)
        self.retellings, self.unread = retellings, unread
        return self

    def to_frame(self) -> pandas.DataFrame:
        """Return one row for each loss.

        Returns
        -------
        pandas.DataFrame
            ``fact, kind, position`` (in the log), ``asked_later`` (a turn, missing where none asked), ``reason``, ``item`` (its
            id), ``sentence``.
        """
        import pandas

        rows = [
            (one.fact, one.kind, one.position, one.asked_later, one.reason, one.item.get("id"), one.sentence)
            for one in self
        ]
        return pandas.DataFrame(rows, columns=COLUMNS).astype({"position": "int64", "asked_later": "Int64"})


def lost(run: Run, call: int | ModelCalled, *, thread_id: str | None = None) -> Losses:
    """Name the facts that stood in the log before a call and were sent with it in no form.

    Parameters
    ----------
    run : Run
        That has the request of the call.
    call : int or ModelCalled
        Its place among the agent's model calls, from 0, from the end where it is negative; or its event.
    thread_id : str, optional
        Count the calls of this thread only.

    Returns
    -------
    Losses
        A tuple of losses with ``fact``, ``item`` and ``asked_later``, each fact once. What was sent is the instructions, the
        window of the history, the texts of layers and the summary. ``.retellings`` compares each summary with its source.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_CALL``; ``NOT_RECORDED`` where the run does not have the request, as runs of others; ``INVALID_RUN``.

    References
    ----------
    .. [1] docs/behaviour/lab.md, "What was lost".

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[nn.history_window(2)])
    >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Noted.", "Sure.", "Which one?"]))
    >>> run = nn.record(harness)
    >>> for text in ("My order is A17-B.", "Thank you.", "What was my order again?"):
    ...     _ = asyncio.run(harness.execute(text, thread_id="t"))
    >>> [(loss.fact, loss.kind, loss.asked_later) for loss in lost(run, -1)]
    [('A17-B', 'id', 3)]
    """
    if not isinstance(run, Run):
        raise NoeticConfigError(
            "INVALID_RUN",
            "Losses are looked for in a run.",
            given=run,
            hint="Use nn.record(harness) or nn.load_run(path).",
        )
    request = recorded_request(run, call, thread_id=thread_id)
    if request.view is None:
        raise NoeticConfigError(
            "NOT_RECORDED",
            "Nobody knows what this call was sent.",
            given=request.place,
            hint="The run has answers and no requests, as runs of others; record a harness with nn.record.",
        )
    sent = request.items
    shown = {one.position for one in sent if one.position is not None}
    log: Sequence[Item] = request.known or ()
    absent = [at for at in range(len(log)) if at + request.first not in shown]
    texts = [fact_text(log[at]) for at in absent]
    known = KnownFacts(
        [redact_text(request.instructions or ""), *[fact_text(one.item) for one in sent if one.item is not None]]
    )
    found = facts_of(texts)
    reasons = _reasons(request)
    later = questions_of(_asked(run, request))
    losses: dict[tuple[str, tuple[str, ...]], Loss] = {}
    is_known: dict[tuple[str, tuple[str, ...]], bool] = {}
    for at, facts in zip(absent, found, strict=True):
        place = at + request.first
        for fact in facts:
            key = fact.kind, fact.keys
            if key not in is_known:
                is_known[key] = fact in known
            if is_known[key]:
                continue
            losses.pop(key, None)  # the last place counts
            losses[key] = Loss(
                fact.text,
                log[at],
                None,
                fact.kind,
                place,
                reasons.get(place, "not_sent"),
                fact.keys,
                fact.sentence,
            )
    named = [
        loss._replace(asked_later=first_asked(Fact(loss.fact, loss.kind, loss.keys, 0, loss.sentence), later))
        for loss in losses.values()
    ]
    dropped = [fact for facts in found for fact in facts]
    return Losses(named, retellings=_retellings(sent, log, dropped), unread=request.first)


def fact_text(item: Item) -> str:
    """Return the text of an item that facts are looked for in, secrets replaced: of a call its arguments, not its tool."""
    if item["type"] == "function_call":
        arguments = item.get("arguments")
        return redact_text(arguments) if isinstance(arguments, str) else ""
    return redact_text(item_text(item))


def _reasons(request: RecordedRequest) -> dict[int, str]:
    """Return why items of the log were not sent, as far as it is known."""
    view = request.view
    assert view is not None
    reasons = dict.fromkeys(range(min(view.floor, view.window[0])), "outside_window")
    reasons |= dict.fromkeys(range(view.floor, view.window[0]), "over_budget")
    for start, stop, _ in view.hidden:
        reasons |= dict.fromkeys(range(start, stop), "hidden")
    reasons |= {fate.position: str(fate.reason) for fate in view.fates if fate.origin == "history"}
    return reasons


def _asked(run: Run, request: RecordedRequest) -> list[tuple[int, str]]:
    """Return the texts of users from the turn of the call on."""
    where = request.where
    turns: dict[int, str] = {}
    for event in run.select(TurnStarted):
        if event.where.thread_id == where.thread_id and event.where.turn >= where.turn and event.query:
            turns.setdefault(event.where.turn, event.query)
    return sorted(turns.items())


def _retellings(sent: Sequence[SentItem], log: Sequence[Item], dropped: Sequence[Fact]) -> tuple[Retelling, ...]:
    """Compare the texts of layers and summaries with the log, and with the facts left out of it."""
    told = [
        one for one in sent if one.item is not None and (one.origin == _IN_PLACE or one.origin.startswith("layer:"))
    ]
    if not told:
        return ()
    source = KnownFacts([fact_text(item) for item in log])
    found = []
    for one in told:
        assert one.item is not None
        text = fact_text(one.item)
        [facts] = facts_of([text])
        tells = KnownFacts([text])
        kept = [fact.text for fact in dropped if fact in tells]
        gone = [fact.text for fact in dropped if fact not in tells]
        added = [fact.text for fact in facts if fact not in source]
        found.append(Retelling(one.origin, text, _once(kept), _once(gone), _once(added)))
    return tuple(found)


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
