"""Facts in the log before a call that were not sent with it, found by rules."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item
from noetic_nb.lab._checks import check_run
from noetic_nb.lab._recall_quality.facts import Fact, FactKind, KnownFacts, facts_of
from noetic_nb.lab._recall_quality.sent_contexts import IN_PLACE, ContextIndex, SentContext, fact_text
from noetic_nb.lab._recall_quality.word_senses import FoldedTexts, folded, telling_words
from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import CallName, appended, model_calls
from noetic_nb.runs._requests.item_lives import context_of
from noetic_nb.runs._requests.sent_request import RecordedRequest

if TYPE_CHECKING:
    import pandas


COLUMNS: Final = ("fact", "kind", "position", "asked_later", "reason", "item", "sentence", "needed_by")
# A shorter number occurs in too many texts to show that one was needed.
SHORTEST_NUMBER: Final = 3
_Name: TypeAlias = tuple[str, tuple[str, ...]]


class Loss(NamedTuple):
    """A fact that was not sent with a call."""

    fact: str
    """As written where it last occurs."""
    item: Item
    """The item in which it last occurs."""
    asked_later: int | None
    """The first turn, from the call's turn on, in which a user asked for it or named it; None without one."""
    kind: FactKind
    position: int
    """The index of the item in the log."""
    reason: str
    """Why the item was not sent: ``compacted``, or the reason in the plan; ``not_sent`` if the run does not say."""
    keys: tuple[str, ...]
    """Normal forms of the fact."""
    sentence: str
    needed_by: int | None = None
    """The first model call of the agent, from this one on, that needed it: its turn asks for the fact, or the fact was
    written or looked up again there."""

    def __repr__(self) -> str:
        """Return the fact and where it occurred, without the item, which may contain a secret."""
        asked = "" if self.asked_later is None else f", asked_later={self.asked_later}"
        return f"<Loss {self.kind} {self.fact!r} at {self.position}, {self.reason}{asked}>"


class Retelling(NamedTuple):
    """A text that retells earlier text, compared with its source: facts as written there."""

    origin: str
    """``layer:<id>``, ``layer:summary`` for the policy's own, ``projection`` for a layer's replacement of history,
    ``compaction`` for another program's."""
    text: str
    kept: tuple[str, ...]
    """Facts of the unsent items that the text retains."""
    dropped: tuple[str, ...]
    """Facts of the unsent items that the text omits."""
    added: tuple[str, ...]
    """Facts of the text that occur nowhere in the log before the call."""


class Losses(tuple[Loss, ...]):
    """The lost facts, in the order of the log; empty if none was lost.

    Attributes
    ----------
    retellings : tuple of Retelling
        Every layer text and summary that was sent, compared with the log before the call.
    unread : int
        The number of items at the head of the log that the run no longer has; their facts cannot be named.
    unknown : int
        The number of earlier compactions whose content only the provider can read. Whether they retain a fact is
        unknown, so their facts are not listed.
    """

    retellings: tuple[Retelling, ...]
    unread: int
    unknown: int

    def __new__(
        cls, found: Iterable[Loss] = (), *, retellings: tuple[Retelling, ...] = (), unread: int = 0, unknown: int = 0
    ) -> Losses:
        self = super().__new__(cls, found)
        self.retellings, self.unread, self.unknown = retellings, unread, unknown
        return self

    def __repr__(self) -> str:
        """Return the losses, and whether there may be others that cannot be known."""
        if not self.unknown:
            return super().__repr__()
        return f"<{len(self)} losses known {super().__repr__()}; {self.unknown} unreadable compactions>"

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per loss.

        Returns
        -------
        pandas.DataFrame
            ``fact, kind, position`` (in the log), ``asked_later`` (a turn, missing if none asked), ``reason``, ``item``
            (its id), ``sentence``, ``needed_by`` (a call, missing if none needed it).
        """
        import pandas

        rows = [[one.item.get("id") if name == "item" else getattr(one, name) for name in COLUMNS] for one in self]
        whole = {"position": "int64", "asked_later": "Int64", "needed_by": "Int64"}
        return pandas.DataFrame(rows, columns=COLUMNS).astype(whole)


@explained(call="Name a model call by its place: lab.lost(run, -1) for the last one.")
def lost(run: Run, call: CallName, *, thread_id: str | None = None) -> Losses:
    """Return the facts that the log contained before a call and that were not sent with it in any form.

    See docs/behaviour/lab.md, "What was lost".

    Parameters
    ----------
    run : Run
        With the request of the call, or the compactions before it, as in some imported runs.
    call : int or ModelCalled
        Its index among the agent's model calls, negative from the end; or its event.
    thread_id : str, optional
        Count only the calls of this thread.

    Returns
    -------
    Losses
        A tuple of losses with ``fact``, ``item`` and ``asked_later``, each fact once. The sent texts are the
        instructions, the window of the history, the texts of layers and the summary; in an imported run, the log with
        compacted parts replaced by their summary. ``.retellings`` compares each summary with its source; ``.unknown``
        counts unreadable compactions.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_CALL``; ``NOT_RECORDED`` if the run has neither the request nor a compaction, as for some imported
        runs; ``INVALID_RUN``.

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
    index = ContextIndex(check_run(run, "`lost` needs a run."))
    request = index.requests.find(call, thread_id=thread_id)
    if not index.knows(request):
        raise NoeticConfigError(
            "NOT_RECORDED",
            "The request of this call is unknown.",
            given=request.place,
            hint="Imported runs have answers, but neither requests nor compactions. Record a run with nn.record.",
        )
    context = index.context(request)
    absent, known, found = frozenset(context.absent), KnownFacts(context.texts), facts_in(context.log)
    reasons, replaced = _reasons(request), index.replaced(request)
    losses: dict[_Name, Loss] = {}
    is_known: dict[_Name, bool] = {}
    others: list[Fact] = []
    for at, facts in enumerate(found):
        place = at + context.first
        if at not in absent:
            others += facts
            continue
        reason = "compacted" if place in replaced else reasons.get(place, "not_sent")
        for fact in facts:
            key = fact.kind, fact.keys
            if key not in is_known:
                is_known[key] = fact in known
            if is_known[key]:
                others.append(fact)
                continue
            losses.pop(key, None)  # the last occurrence is kept
            losses[key] = Loss(fact.text, context.log[at], None, fact.kind, place, reason, fact.keys, fact.sentence)
    retellings = _retellings(context, [fact for at in context.absent for fact in found[at]])
    named = _needed(run, request, list(losses.values()), others)
    return Losses(named, retellings=retellings, unread=context.first, unknown=context.unknown)


def facts_in(log: Sequence[Item]) -> list[list[Fact]]:
    """Return the facts of items, item by item; likes and states only from user messages."""
    found = facts_of([fact_text(item) for item in log])
    return [
        facts
        if item["type"] == "message" and item.get("role") == "user"
        else [fact for fact in facts if fact.kind != "preference"]
        for item, facts in zip(log, found, strict=True)
    ]


# A fact's sentence must contain this share of a question's content words; less is enough if the form of the question
# names the kind of the fact.
_SHARE: Final = 0.5
_SHARE_OF_KIND: Final = 0.3
# A word in more sentences than this does not distinguish them.
MOST_SENTENCES: Final = 400
# The maximum number of facts of one kind per sentence.
MOST_OF_KIND: Final = 6

_ASKS: Final = re.compile(
    r"[?？؟;՞]|\b(?:remind|tell me|recall|remember|repeat|what|which|who|when|where|how|"
    r"erinner\w*|nenn\w*|sag mir|wie|was|wer|wann|wo|welche[nrs]?|wiederhol\w*|rappelle|recuérdame|напомни\w*)\b",
    re.IGNORECASE,
)


def _forms(text: str) -> list[tuple[re.Pattern[str], set[str]]]:
    rows = [line.split(" <- ") for line in text.strip().splitlines()]
    return [(re.compile(rf"\b(?:{form})\b", re.IGNORECASE), set(kinds.split())) for kinds, form in rows]


# The kinds that a form of question asks for; other forms ask for any kind.
_WANTED: Final = _forms(r"""
date time <- when|(?:what|which) (?:time|date|day|month|year)|wann|um wie ?viel uhr|quand|cuándo|когда
name quote id decision preference <- who|whose|whom|wer|wen|wem|wessen|qui|quién|кто
number <- how (?:much|many)|wie ?viele?|combien|cuánt\w+|сколько
""")
# The kinds that it probably asks for.
_HINTS: Final = _forms(r"""
name path <- where|(?:what|which) (?:city|town|place|country)|wo|wohin|où|dónde|где
path <- (?:which|what) (?:file|folder|directory|path)|where .*(?:file|folder|config\w*|saved?|stored?|copy|kept)
command <- (?:which|what|the) command|do i (?:type|run|call|enter)
command <- how (?:do|can|did|should) (?:i|we|you) (?:run|start|launch|build|deploy|ship|test|install|execute)
decision <- (?:decide|decision|agree|choose|chose|pick|select|settle|conclude|reject|refuse|decline|plan)\w*
decision <- turn(?:ed)? down|rule[ds]? out
preference <- awful|disgust\w*|upset|careful|away from|bother|take my|avoid|like|prefer\w*|favou?rite|love|hate|enjoy|allerg\w+
preference <- afraid|scared|fear|eat|drink|dislike|mind|can(?:no|['’])t|diet\w*|leave out|watch out|habit|hobby|used? to
preference <- gave up|give up|can \w+ (?:have|eat|drink)
name <- name|called|wie hei(?:ß|ss)\w+
number <- price|cost|earn|expensive|cheap|total|budget|salary|rent|old|size|tall|weigh|weight|port|fast|far
id number quote <- number|code|password|id|login|log (?:in|on)|access|nummer
""")
_OWN: Final = re.compile(r"\b(?:i|me|my|mine|we|us|our|ours|ich|mir|mein\w*|wir|unser\w*)\b", re.IGNORECASE)
_WH: Final = re.compile(r"\b(?:what|which|who|whose|when|where|how|wie|was|wer|wann|wo|welche[nrs]?)\b", re.IGNORECASE)


class _Question(NamedTuple):
    """The user's text in one turn."""

    turn: int
    texts: FoldedTexts
    words: tuple[frozenset[str], ...]
    """Its words with their senses; empty if it is not a question."""
    wanted: set[str]
    """Kinds of facts that it asks for; empty for all."""
    hints: set[str]
    own: bool
    """Whether it is about the user."""

    @classmethod
    def of(cls, turn: int, text: str) -> _Question:
        """Return a text in a form that can be compared with facts."""
        wanted, hints = [{one for form, kinds in of if form.search(text) for one in kinds} for of in (_WANTED, _HINTS)]
        own = _OWN.search(text) is not None and _WH.search(text) is not None
        return cls(turn, FoldedTexts([text]), telling_words(text) if _ASKS.search(text) else (), wanted, hints, own)


def _asked_in(lost: Sequence[Fact], others: Iterable[Fact], turns: Iterable[tuple[int, str]]) -> list[int | None]:
    """Return for each lost fact the first turn that names or asks for it (rather than for one of the `others`), or None."""
    questions = [_Question.of(turn, text) for turn, text in turns]
    found = _named_in(lost, questions)
    sentences = _Sentences([*lost, *others])
    for question in questions:
        for at in sentences.asked(question):
            if at < len(lost):
                before = found[at]
                found[at] = question.turn if before is None else min(before, question.turn)
    return found


def _named_in(facts: Sequence[Fact], questions: Sequence[_Question]) -> list[int | None]:
    """Return the first turn that contains each fact verbatim; not for facts that are whole sentences."""
    where: dict[str, list[int]] = {}
    for at, question in enumerate(questions):
        for word in question.texts.words:
            where.setdefault(word, []).append(at)
    found: list[int | None] = []
    for fact in facts:
        words = folded(fact.text).split() if fact.kind not in ("decision", "preference") else []
        places = min((where.get(word, []) for word in words), key=len, default=[])
        found.append(next((questions[at].turn for at in places if questions[at].texts.has(fact.text)), None))
    return found


class _Sentences:
    """The sentences of facts, indexed by the senses of their words."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.facts = facts
        members: dict[str, list[int]] = {}
        self._kinds: dict[str, list[int]] = {}
        for at, fact in enumerate(facts):
            members.setdefault(fact.sentence, []).append(at)
            self._kinds.setdefault(fact.kind, []).append(at)
        self._members = list(members.values())
        self._with: dict[str, list[int]] = {}
        for place, sentence in enumerate(members):
            for sense in frozenset().union(*telling_words(sentence)):
                self._with.setdefault(sense, []).append(place)

    def asked(self, question: _Question) -> list[int]:
        """Return the facts that a question matches best, or none if no match is good enough.

        One word of several is enough if no other sentence shares as much, and no word is needed if the user has stated
        only one fact of the kind.
        """
        shared: Counter[int] = Counter()
        for senses in question.words:
            places = [self._with.get(sense, ()) for sense in senses]
            if sum(map(len, places)) <= MOST_SENTENCES:
                shared.update({place for found in places for place in found})
        count = len(question.words)
        best, fit, is_sure = 0.0, list[int](), False
        least = _SHARE_OF_KIND if question.own else _SHARE
        for place, words in shared.items():
            for at in self._members[place]:
                kind = self.facts[at].kind
                hinted = kind in question.hints
                if words < (_SHARE_OF_KIND if hinted else least) * count or (
                    question.wanted and kind not in question.wanted
                ):
                    continue
                score = words + 0.5 * hinted
                if score > best:
                    best, fit, is_sure = score, [], words >= min(2, count) or hinted
                if score == best:
                    fit.append(at)
        if not fit and question.own:
            # Without a shared word: the only fact of the requested kind.
            kinds = question.wanted or question.hints - {"name", "number", "preference"}
            found = [at for kind in sorted(kinds) for at in self._kinds.get(kind, ())[: MOST_OF_KIND + 1]]
            fit = found if len(found) <= MOST_OF_KIND else []
        is_one = len({self.facts[at].sentence for at in fit}) == 1
        return fit if is_sure or is_one else []


def _reasons(request: RecordedRequest) -> dict[int, str]:
    """Return why items of the log were not sent, as far as known."""
    view = request.view
    if view is None:
        return {}
    reasons = dict.fromkeys(range(min(view.floor, view.window[0])), "outside_window")
    reasons |= dict.fromkeys(range(view.floor, view.window[0]), "over_budget")
    for start, stop, _ in view.hidden:
        reasons |= dict.fromkeys(range(start, stop), "hidden")
    reasons |= {fate.position: str(fate.reason) for fate in view.fates if fate.origin == "history"}
    return reasons


def _needed(run: Run, request: RecordedRequest, losses: list[Loss], others: list[Fact]) -> list[Loss]:
    """Return losses with the turn that asks for each, and the call that needed it."""
    facts = [Fact(one.fact, one.kind, one.keys, 0, one.sentence) for one in losses]
    asking: dict[int, str] = {}
    for turn in run.turns:
        is_of = turn.where.thread_id == request.where.thread_id and turn.where.turn >= request.where.turn
        if is_of and turn.query:
            asking.setdefault(turn.where.turn, turn.query)
    asked = _asked_in(facts, others, sorted(asking.items()))
    key = context_of(request.where)
    agent = [(seq, call) for seq, call in model_calls(run) if call.purpose == "agent"]
    made = [(seq, call.where, call.items) for seq, call in agent]
    for seq, event in appended(run):
        made.append((seq, event.where, tuple([one for one in event.items if one["type"] == "function_call_output"])))
    since = [one for one in sorted(made, key=itemgetter(0)) if one[0] >= request.seq and context_of(one[1]) == key]
    places = [bisect_right(agent, seq, key=itemgetter(0)) - 1 for seq, _, _ in since]
    turns: dict[int, int] = {}
    for place, (seq, where, _) in zip(places, since, strict=True):
        if place >= 0 and agent[place][0] == seq:
            turns.setdefault(where.turn, place)
    texts = [fact_text(item) for _, _, items in since for item in items]
    calls = [place for place, (_, _, items) in zip(places, since, strict=True) for _ in items]
    again: dict[_Name, int] = {}
    for at, found in zip(calls, facts_of(texts), strict=True):
        for fact in found:
            if fact.kind != "number" or len(fact.keys[0]) >= SHORTEST_NUMBER:
                again.setdefault((fact.kind, fact.keys), at)
    named = []
    for loss, asks in zip(losses, asked, strict=True):
        is_said = loss.kind not in ("decision", "preference")
        needing = [turns.get(asks or -1), again.get((loss.kind, loss.keys)) if is_said else None]
        named.append(
            loss._replace(asked_later=asks, needed_by=min([at for at in needing if at is not None], default=None))
        )
    return named


def _retellings(context: SentContext, dropped: Sequence[Fact]) -> tuple[Retelling, ...]:
    """Compare the texts of layers and summaries with the log, and with the facts left out of it."""
    told = [one for one in context.sent if one.origin in ("projection", IN_PLACE) or one.origin.startswith("layer:")]
    if not told:
        return ()
    source = KnownFacts([fact_text(item) for item in context.log])
    compared = []
    for one in told:
        text = fact_text(one.item)
        [facts] = facts_of([text])
        tells = KnownFacts([text])
        kept = [fact.text for fact in dropped if fact in tells]
        gone = [fact.text for fact in dropped if fact not in tells]
        added = [fact.text for fact in facts if fact.kind != "preference" and fact not in source]
        compared.append(Retelling(one.origin, text, *[tuple(dict.fromkeys(some)) for some in (kept, gone, added)]))
    return tuple(compared)
