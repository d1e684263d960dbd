"""Play a dialogue to some layers, and plan each request under several budgets at once.

No model is called: the dialogue is logged as given. Hooks run in the order in which a harness runs them, and the
runtime's planner plans each request. Stored memory does not depend on the budget, so layers process a dialogue once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from math import nan
from typing import Final, NamedTuple

from noetic_nb.clock import Clock
from noetic_nb.items import Item, ItemLog, input_message, item_text, item_tokens
from noetic_nb.items._build import leading_text, leading_tokens, same_when_sent
from noetic_nb.items._registry import ANY_ITEMS
from noetic_nb.lab._dialogues import Dialogue, Question
from noetic_nb.lab._recall_quality.evidence_ladder import Ladder, SentTexts
from noetic_nb.layers._external import Spent, counting
from noetic_nb.layers._helpers.considered import considering
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryLayer, ProjectionPolicy, allocate_budgets
from noetic_nb.memory._state.state_store import LayerStateStore
from noetic_nb.models._client import ModelResponse, Usage
from noetic_nb.runs._recorded_origins import RecordedClock
from noetic_nb.runtime._planning.make_plan import plan_turn
from noetic_nb.runtime._planning.turn_plan import TurnPlan
from noetic_nb.tokens import Tokenizer

# Fixed times for dialogues without dates, a minute per turn and a second per answer, so that times in layers' texts are
# reproducible.
BEGINS_MS: Final = 1_767_268_800_000.0  # 2026-01-01 12:00 UTC
TURN_MS: Final = 60_000.0
ANSWER_MS: Final = 1_000.0


class Asked(NamedTuple):
    """The result of one question for one set of layers under one budget."""

    layers: str
    budget: float
    dialogue: str
    kind: str
    verbatim: float
    value: float
    owned: float
    answerable: float
    stale: float
    """The share of outdated facts that was sent as well."""
    tokens: int
    """Of the request."""
    age_turns: float
    """Turns since the last part of its evidence; NaN if it is not marked."""
    age_tokens: float
    """Tokens since then."""
    position: float
    """Its position, from 0 for the first token of the dialogue to 1 for its last."""
    length: int
    """Tokens of the whole dialogue."""


@dataclass(slots=True)
class Played:
    """The result of one dialogue under one budget."""

    asked: list[Asked] = field(default_factory=list)
    tokens: int = 0
    """Of all requests."""
    shared: int = 0
    """Tokens shared with the beginning of the previous request."""
    requests: int = 0
    ms: float = 0.0
    own: Spent = field(default_factory=Spent)
    """The spending of external memories: on adding (under every budget) and on searching under this one."""


class _Ids:
    _count = 0

    def new(self, kind: str) -> str:
        self._count += 1
        # As long as a random id, because ids are sent and count as tokens.
        return f"{kind}-{self._count:032}"


@dataclass
class Player:
    """Plays a dialogue; problems reported by hooks are counted in `problems`."""

    dialogue: Dialogue
    layers: Sequence[MemoryLayer]
    budgets: Sequence[float]
    tokenizer: Tokenizer
    timer: Clock | None
    problems: Counter[tuple[str, str, str]]
    name: str = ""
    """Of the set of layers."""

    def __post_init__(self) -> None:
        self.clock, self.ids = RecordedClock(BEGINS_MS), _Ids()
        state = LayerStateStore(self._report)
        self.stack = LayerStack(
            self.layers, state=state, clock=self.clock, ids=self.ids, registry=ANY_ITEMS, force_atomic_recall=True
        )
        self.played = [Played() for _ in self.budgets]
        self.splits = [allocate_budgets(self.layers, total_budget=budget) for budget in self.budgets]
        self.before: list[Sequence[Item]] = [() for _ in self.budgets]
        self.turn = self.asked_at = 0
        items = [item for session in self.dialogue.sessions for item in session]
        texts = {str(item.get("id")): item_text(item) for item in items}
        self.ladder = Ladder(self.dialogue, texts.__getitem__)
        # By item id: its turn, and the number of tokens before and including it.
        self.said: dict[str, tuple[int, int]] = {}
        self.said_tokens = 0

    def _report(self, layer_id: str, hook: str, error: BaseException) -> None:
        # Exceeding the budget is measured here, so it is not a problem.
        if type(error).__name__ != "BudgetOverrun":
            self.problems[layer_id, hook, f"{type(error).__name__}: {error}"] += 1

    async def play(self) -> list[Played]:
        """Return the result under each budget."""
        adding = Spent(self.timer)
        with counting(adding):
            await self._play()
        for played in self.played:
            played.own.calls += adding.calls
            played.own.tokens += adding.tokens
            played.own.ms += adding.ms
        return self.played

    async def kept(self) -> list[str]:
        """Play, and return everything that the layers could recall at the end: their candidates, or else their sent texts."""
        await self._play()
        ctx = self._context(f"{self.dialogue.name}/kept")
        await self.stack.init(ctx)
        texts = [item_text(item) for session in self.dialogue.sessions for item in session]
        # The query contains every word of the dialogue, so it shares words with every stored text.
        with considering() as found:
            entries = await self.stack.recall(ctx, query="\n".join(texts), log=(), budgets={})
        await self.stack.dispose(ctx)
        named = {one.layer_id for one in found}
        lines = [line for one in found for hit in one.hits for _, line in hit.lines]
        return lines + [item_text(item) for entry in entries if entry.layer_id not in named for item in entry.items]

    async def _play(self) -> None:
        log = ItemLog(registry=ANY_ITEMS, tokenizer=self.tokenizer)
        for number, session in enumerate(self.dialogue.sessions):
            begins = self.dialogue.dates_ms[number] if number < len(self.dialogue.dates_ms) else None
            if begins is not None:
                self.clock.t_ms = begins if number == 0 else max(begins, self.clock.t_ms)
            log = ItemLog(registry=ANY_ITEMS, tokenizer=self.tokenizer)
            for turn in _turns(session):
                await self._hear(f"{self.dialogue.name}/{number}", log, turn)
        thread = f"{self.dialogue.name}/{len(self.dialogue.sessions) - 1}"
        before, self.asked_at = list(self.before), self.turn + 1
        for question in self.dialogue.questions:
            self.before = list(before)
            await self._ask(thread, log, question)

    def _context(self, thread: str) -> ExecutionContext:
        self.turn += 1
        self.clock.t_ms += TURN_MS
        return ExecutionContext(
            execution_id=f"{thread}#{self.turn}",
            thread_id=thread,
            resource_id=self.dialogue.name,
            turn=self.turn,
            clock=self.clock,
            ids=self.ids,
            tokenize=self.tokenizer,
            diagnostic=self._report,
        )

    async def _hear(self, thread: str, log: ItemLog, turn: Sequence[Item]) -> None:
        """Play one turn: the user's message, and everything that follows from it."""
        ctx = self._context(thread)
        for item in turn:
            self.said[str(item.get("id"))] = self.turn, self.said_tokens
            self.said_tokens += item_tokens(item, self.tokenizer)
        await self.stack.init(ctx)
        query = ""
        for said, answer in _steps(turn):
            query = next((item_text(item) for item in reversed(said) if item.get("role") == "user"), query)
            items: Sequence[Item] = said
            if "on_item_append" in self.stack.hooks:
                items = (await self.stack.append(ctx, said, log=log)).items
            log.extend(items)
            if not answer:
                continue
            await self._request(ctx, log, query)
            self.clock.t_ms += ANSWER_MS
            log.extend(answer)
            response = ModelResponse(tuple(answer), Usage(0, 0), None)
            await self.stack.store(ctx, response=response, log=log)
        await self.stack.complete(ctx, log=log, outcome="success")
        await self.stack.dispose(ctx)

    async def _ask(self, thread: str, log: ItemLog, question: Question) -> None:
        ctx = self._context(thread)
        await self.stack.init(ctx)
        asked = ItemLog(log.items, registry=ANY_ITEMS, tokenizer=self.tokenizer)
        asked.append(input_message(question.text, ids=self.ids))
        plans = await self._request(ctx, asked, question.text)
        places = [self.said[part.item] for part in question.evidence if part.item in self.said]
        turn, before = max(places, default=(nan, nan))
        for budget, played, plan in zip(self.budgets, self.played, plans, strict=True):
            sent = SentTexts([item_text(item) for item in plan.items if item is not asked[-1]])
            played.asked.append(
                Asked(
                    self.name,
                    budget,
                    self.dialogue.name,
                    question.kind,
                    **self.ladder.scores(question, sent),
                    stale=self.ladder.stale(question, sent),
                    tokens=plan.total_tokens,
                    age_turns=self.asked_at - turn if places else nan,
                    age_tokens=self.said_tokens - before if places else nan,
                    position=before / self.said_tokens if places else nan,
                    length=self.said_tokens,
                )
            )
        await self.stack.dispose(ctx)

    async def _request(self, ctx: ExecutionContext, log: ItemLog, query: str) -> list[TurnPlan]:
        """Plan a request under every budget, and count its cost."""
        plans = []
        chosen = await self.stack.project_history(ctx, log.items) if "project_history" in self.stack.hooks else None
        for place, budget in enumerate(self.budgets):
            began = None if self.timer is None else self.timer.monotonic_ms()
            split, played = self.splits[place], self.played[place]
            played.own.timer = self.timer
            with counting(played.own):
                recalled = await self.stack.recall(ctx, query=query, log=log, budgets=split.by_layer())
            plan = plan_turn(
                log,
                self.layers,
                _policy(budget),
                recalled,
                tokenizer=self.tokenizer,
                projected=chosen,
                budgets=split,
            )
            if self.timer is not None and began is not None:
                played.ms += self.timer.monotonic_ms() - began
            played.requests += 1
            played.tokens += plan.total_tokens
            played.shared += shared_tokens(self.before[place], plan.items, self.tokenizer)
            self.before[place] = plan.items
            plans.append(plan)
        return plans


@cache
def _policy(budget: float) -> ProjectionPolicy:
    return ProjectionPolicy(token_budget=budget, response_reserve=0, overflow="truncate")


def _turns(session: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield the turns of a session; each begins with a user message."""
    starts = [at for at, item in enumerate(session) if item.get("role") == "user" and item["type"] == "message"]
    for start, stop in pairwise([0, *starts[1:], len(session)]):
        if stop > start:
            yield session[start:stop]


def _steps(turn: Sequence[Item]) -> Iterator[tuple[Sequence[Item], Sequence[Item]]]:
    """Yield the items logged before each request of a turn, and the model's answer to it."""
    said: list[Item] = []
    answer: list[Item] = []
    for item in turn:
        if item["type"] in ("function_call", "reasoning") or item.get("role") == "assistant":
            answer.append(item)
            continue
        if answer:
            yield said, answer
            said, answer = [], []
        said.append(item)
    if said or answer:
        yield said, answer


def shared_tokens(before: Sequence[Item], items: Sequence[Item], tokenizer: Tokenizer) -> int:
    """Return the number of tokens in the common beginning of two requests, as a provider compares their items."""
    shared = 0
    for old, new in zip(before, items, strict=False):
        if same_when_sent(old, new):
            shared += item_tokens(new, tokenizer)
            continue
        (kind, one), (other_kind, other) = leading_text(old), leading_text(new)
        if kind == other_kind:
            shared += leading_tokens(one, other, item_tokens(new, tokenizer), tokenizer)
        break
    return shared
