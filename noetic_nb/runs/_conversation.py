"""Converts other agents' conversations to run events: one turn per user message, one model call per answer.

Nothing is made up: unknown durations and costs stay unknown, and every estimate (times, tokens, whether a call failed) is
named in ``meta["estimated"]``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from noetic_nb import events as ev
from noetic_nb._core.long_work import counted
from noetic_nb.items import Item, item_text
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._item_checks import problem_of
from noetic_nb.items._messages import Message
from noetic_nb.items._messages.message import Child, Compaction
from noetic_nb.items._origins import MODEL, Participants, with_origin
from noetic_nb.redact import Redaction
from noetic_nb.runs import _conversation_texts as texts

_WRITES: Final = frozenset({"create", "str_replace", "insert", "delete", "rename"})
_FOLDER: Final = "/memories"


def memory_span(call: ev.ToolCalled) -> ev.MemoryTraceSpan | None:
    """Convert a memory tool's call to a layer operation; None for any other call."""
    args = call.args
    if call.name != "memory" or args is None:
        return None
    command, path = args.get("command"), args.get("path", args.get("old_path"))
    if command not in ("view", *_WRITES) or not isinstance(path, str) or not path.startswith(_FOLDER):
        return None
    about = {"command": command, "path": path, "new_path": args.get("new_path")}
    return ev.MemoryTraceSpan(
        call.where,
        call.t_ms,
        "memory",
        "store" if command in _WRITES else "recall",
        call.duration_ms or 0.0,
        "ok" if call.status == "ok" else "error",
        error=call.error,
        attributes=FrozenDict({key: value for key, value in about.items() if value is not None}),
    )


# Without any known times, messages are one second apart from 1970-01-01: nobody mistakes that for a real time.
_START_MS: Final = 0.0
_MESSAGE_MS: Final = 1_000.0
_CALL: Final = "function_call"
_COUNTED: Final = frozenset({"input_tokens", "output_tokens"})
_ESTIMATED: Final = ("t_ms", "input_tokens", "output_tokens", "status")
"""The fields that may be estimated, in the order of ``meta["estimated"]``."""
_LABELS: Final = (
    "domain",
    "suite",
    "task_id",
    "trial",
    "user_task",
    "injection_task",
    "attack",
    "attack_succeeded",
    "outcome",
)
"""Keys in the meta of every imported run, None if unknown."""


def conversation_events(
    messages: Iterable[Message | Compaction | Child],
    *,
    thread_id: str = "t1",
    meta: Mapping[str, Any] | None = None,
    unmapped: Iterable[Mapping[str, Any]] = (),
    policy: str = "",
    quality: float | None = None,
    closing_tools: Collection[str] = (),
    timed: bool = True,
    ended: bool = False,
    redaction: Redaction | None = None,
) -> tuple[dict[str, Any], list[ev.RunEvent]]:
    """Return a conversation as the meta and events of a run, secrets replaced, for `run_of_settled`.

    Calls with reused ids get ids of their own. In a simulation (not `timed`), no working time passes between messages. If
    the source is an agent's complete record (`ended`), a call without a result still counts as made.
    """
    given = list(messages)
    redaction = Redaction() if redaction is None else redaction
    policy, items = texts.safe_items(policy, given, redaction)
    answers = [message for message in given if isinstance(message, Message)]
    model = next((message.model for message in answers if message.model), None)
    counter = texts.ChosenCounter(str(model or (meta or {}).get("model") or ""))
    where = ev.Where(thread_id, f"{thread_id}/e0", 0)
    writer = _Writer(where, redaction, policy, closing_tools, timed, ended, counter)
    writer.write(counted(given, "messages"), items, next(_times(given), None))
    writer.end_turn()
    if quality is not None and writer.judged is not None:
        writer.events.append(ev.QualityGiven(writer.judged, writer.t_ms, quality, "reward"))
    params = next((message.params for message in answers if message.params), None)
    beside = [*unmapped, *writer.unmapped]
    about: dict[str, Any] = {
        "created_ms": writer.events[0].t_ms if writer.events else _START_MS,
        **dict.fromkeys(_LABELS),
        "dropped": [],
        "source": "messages",
        "model": None if model is None else redaction.text(model),
        "params": None if params is None else redaction.data(dict(params)),
        **texts.clean_meta(meta or {}, redaction),
        "policy": "\n\n".join(writer.policy),
        "estimated": [name for name in _ESTIMATED if name in writer.estimated],
        "counter": counter.name,
        "unmapped": redaction.data(beside) if beside else [],
    }
    return about, writer.events


class _Writer:
    """Writes one agent's conversation as events; tracks the log length, the clock and the open turn."""

    def __init__(
        self,
        where: ev.Where,
        redaction: Redaction,
        policy: str,
        closing_tools: Collection[str],
        timed: bool,
        ended: bool,
        counter: texts.ChosenCounter,
    ) -> None:
        self.thread_id = where.thread_id
        self.where = where
        # Prefix of item ids: a child's ids must differ from those of the conversation.
        self.prefix = where.execution_id if where.depth else where.thread_id
        self.redaction = redaction
        self.events: list[ev.RunEvent] = []
        self.policy = [policy] if policy else []
        self.closing_tools = closing_tools
        self.estimated: set[str] = set()
        self.unmapped: list[dict[str, Any]] = []
        self.length = self.turn = 0
        self.counter, self.context = counter, texts.ContextTokens(counter, policy=policy)
        self.t_ms = _START_MS
        self.has_times = False
        self.started_ms: float | None = None
        self.ended_ms = _START_MS
        self.timed = timed
        self.ended = ended
        self.is_timed = False
        self.is_open = False
        self.calls: dict[str, Item] = {}
        self.steps: list[ev.ModelCalled] = []
        self.called: list[ev.ModelCalled] = []  # all calls of the turn: steps, summaries, and those of children
        self.tool_calls = 0
        self.answer: str | None = None
        self.judged: ev.Where | None = None
        self.is_answered = self.is_priced = False
        self.children = 0
        self.participants = Participants()

    def write(
        self, given: Iterable[Message | Compaction | Child], items: Sequence[Item], first_ms: float | None
    ) -> None:
        """Write messages; the call ids in `items` are already unique."""
        if first_ms is not None:
            self.t_ms, self.has_times = max(self.t_ms, first_ms), True
        start = 0
        for one in given:
            if isinstance(one, Child):
                self.child(one)
                continue
            stop = start + len(texts.items_of(one))
            self.at(one)
            if isinstance(one, Compaction):
                self.compaction(one, items[start:stop])
            else:
                self.take(one, items[start:stop])
            start = stop

    def at(self, message: Message | Compaction) -> None:
        """Move the clock to the time of a message."""
        if message.t_ms is None:
            self.estimated.add("t_ms")
            # Between known times, only the order of messages is known.
            self.t_ms += _MESSAGE_MS if self.events and not self.has_times else 0.0
        else:
            self.is_timed = True
            if message.t_ms < self.t_ms:  # the clocks disagree; trust the order of the messages
                self.estimated.add("t_ms")
            self.t_ms = max(self.t_ms, message.t_ms)

    def take(self, message: Message, items: Sequence[Item]) -> None:
        if message.role != "user":
            self.ended_ms = self.t_ms
        role = message.role
        if role == "system":
            self.append(items, "seed")
            if self.turn == 0:
                # Later seed messages may quote an earlier conversation; they are not the policy.
                prompts = [item for item in items if item.get("role") in ("system", "developer")]
                self.policy += [text for item in prompts if (text := item_text(item))]
        elif role == "user":
            self.user(items)
        elif role == "assistant":
            self.assistant(message, items)
        else:
            self.tool(message, items)

    def append(self, items: Sequence[Item], origin: Any) -> tuple[Item, ...]:
        start = self.length
        made = []
        for item in items:
            if item.get("role") == "user" and not self.participants.is_user(item.get("name")):
                item = with_origin(item, MODEL)
            if item.get("id") is None:
                item = Item({"id": f"{self.prefix}/i{self.length}", **item})
            made.append(item)
            if (problem := problem_of(item)) is not None:
                self.unmapped.append({"place": f"item {self.length}", "what": problem, "thread_id": self.thread_id})
            self.length += 1
        self.context.add(made)
        kept = tuple(made)
        self.events.append(ev.ItemsAppended(self.where, self.t_ms, start, kept, origin))
        return kept

    def user(self, items: Sequence[Item]) -> None:
        if self.where.depth:  # the child's task, or an addition to it
            self.append(items, "user")
            return
        if self.is_open and not self.steps:  # another message before any answer
            self.append(items, "user")
            return
        self.end_turn()
        self.begin_turn("".join(map(item_text, items)), len(items))
        self.append(items, "user")

    def begin_turn(self, query: str, size: int) -> None:
        self.turn += 1
        self.where = ev.Where(self.thread_id, f"{self.thread_id}/e{self.turn}", self.turn)
        self.is_open, self.answer = True, None
        self.started_ms = self.t_ms if self.is_timed else None
        turn_id = f"{self.thread_id}/t{self.turn}"
        self.events.append(ev.TurnStarted(self.where, self.t_ms, turn_id, self.length, self.length + size, query))

    def assistant(self, message: Message, items: Sequence[Item]) -> None:
        if not self.is_open and not self.where.depth:
            is_text = message.usage is None and not any(item["type"] == _CALL for item in items)
            if self.turn == 0 and is_text and message.error is None:
                self.append(items, "seed")  # a fixed greeting, not a model call
                return
            self.begin_turn("", 0)
        if not message.is_kept:
            self.beside(message, items)
            return
        # Count the input before adding the answer, and put the call before its items, as in recorded runs.
        usage = self.usage(message, items) if message.is_called else {}
        made = self.append(items, "model")
        if message.is_called:
            appended = self.events.pop()
            step = self.model_call(message, made, usage, "agent")
            self.events += (step, appended) if made else (step,)
            self.steps.append(step)
        calls, outputs = set(), set()
        for item, given in zip(made, message.items, strict=True):
            if item["type"] == _CALL:
                self.calls[item["callId"]] = item
                calls.add(item["callId"])
            elif item["type"] == "function_call_output":  # the provider ran this tool
                outputs.add(item.get("callId"))
                self.result(message, item, given)
        # Text beside a call is not the answer yet: the model continues after the result.
        self.answer = texts.said(made) if calls <= outputs else None

    def beside(self, message: Message, items: Sequence[Item], purpose: Literal["agent", "summary"] = "agent") -> None:
        """Write a call whose answer is not part of the conversation."""
        step = self.model_call(message, tuple(items), self.usage(message, items), purpose)
        self.events.append(step)
        if purpose == "agent":
            self.steps.append(step)

    def usage(self, message: Message, items: Sequence[Item]) -> Mapping[str, int]:
        """Return the usage of a call; counts missing in the source are estimated."""
        usage = {**(message.usage or {})}
        self.estimated.update(_COUNTED - usage.keys())
        if "input_tokens" not in usage:
            usage["input_tokens"] = self.context.sent()
        if "output_tokens" not in usage:
            usage["output_tokens"] = self.context.written(items)
        return usage

    def model_call(
        self, message: Message, made: tuple[Item, ...], usage: Mapping[str, int], purpose: Literal["agent", "summary"]
    ) -> ev.ModelCalled:
        step = ev.ModelCalled(
            self.where,
            self.t_ms,
            len(self.steps),
            self.redaction.text(message.model or "recorded"),
            purpose,
            message.duration_ms,
            "ok" if message.error is None else "error",
            made,
            usage["input_tokens"],
            usage["output_tokens"],
            usage.get("cached_tokens"),
            message.cost,
            error=None if message.error is None else self.redaction.text(message.error),
            finish_reason=message.finish_reason,
            cache_write_tokens=usage.get("cache_write_tokens"),
            reasoning_tokens=usage.get("reasoning_tokens"),
        )
        self.called.append(step)
        return step

    def compaction(self, one: Compaction, items: Sequence[Item]) -> None:
        """Write a compaction of the context, and the call that wrote the summary."""
        written = 0 if one.answer is None else len(one.answer.items)
        if one.answer is not None:
            self.beside(one.answer, items[:written], "summary")
        kept = tuple(items[written:])
        self.events.append(
            ev.ContextCompacted(
                self.where,
                self.t_ms,
                self.redaction.text(one.by),
                one.items_removed,
                kept,
                one.tokens_before,
                one.tokens_after,
                one.opaque,
                trigger=None if one.trigger is None else self.redaction.text(one.trigger),
                model=one.model,
                usage=None if one.usage is None else FrozenDict(one.usage),
            )
        )
        self.context.reset(kept, one.tokens_after)

    def child(self, child: Child) -> None:
        """Write an agent started by a tool call; it has its own log."""
        self.children += 1
        where = ev.Where(
            self.thread_id, f"{self.where.execution_id}/c{self.children}", self.where.turn, self.where.depth + 1
        )
        _, items = texts.safe_items("", child.messages, self.redaction)
        inner = _Writer(where, self.redaction, "", (), self.timed, self.ended, self.counter)
        inner.events, inner.estimated, inner.unmapped = self.events, self.estimated, self.unmapped
        times = list(_times(child.messages))
        started, ended = (min(times), max(times)) if times else (self.t_ms, self.t_ms)
        name, parent_id = self.redaction.text(child.name), self.where.execution_id
        self.events.append(ev.ChildStarted(where, started, parent_id, name, child.kind, 0, (), FrozenDict()))
        inner.write(child.messages, items, started)
        inner.end_calls()
        self.called += inner.called
        self.tool_calls += inner.tool_calls
        costs = [step.cost for step in inner.called if step.cost is not None]
        outcome: Any = "failure" if child.failed else "success" if inner.answer is not None else "aborted"
        self.events.append(
            ev.ChildEnded(
                where,
                ended,
                parent_id,
                name,
                outcome,
                ended - started,
                inner.answer or "",
                (),
                sum(step.input_tokens for step in inner.called),
                sum(step.output_tokens for step in inner.called),
                sum(costs) if costs else None,
            )
        )

    def tool(self, message: Message, items: Sequence[Item]) -> None:
        if not self.is_open and not self.where.depth:
            self.begin_turn("", 0)
        for item, given in zip(items, message.items, strict=True):
            if (name := self.result(message, item, given)) is not None:
                self.answer = "" if name in self.closing_tools else None
            self.append((item,), "tool")

    def result(self, message: Message, item: Item, given: Item) -> str | None:
        """Write the call answered by a result, and return its name; `given` has the source's id."""
        call_id, output = item.get("callId") or "", item_text(item)
        call = self.calls.pop(call_id, None)
        if call is None:
            self.unmapped.append(
                {"place": f"item {self.length}", "what": "a result that answers no call", "value": call_id}
            )
            return None
        if (child := message.children.get(given.get("callId") or "")) is not None:
            self.child(child)
        error = message.errors.get(given.get("callId") or "")
        if error is None and not message.statuses_known:
            self.estimated.add("status")
            error = output if texts.reads_as_error(output) else None
        called = ev.ToolCalled(
            self.where,
            self.t_ms,
            call["name"],
            call_id,
            texts.read_object(call["arguments"]),
            output,
            message.duration_ms if message.role == "tool" else None,
            "ok" if error is None else "error",
            None if error is None else self.redaction.text(error),
        )
        self.events.append(called)
        if (used := memory_span(called)) is not None:
            self.events.append(used)
        self.tool_calls += 1
        return str(call["name"])

    def end_calls(self) -> None:
        """Write the calls without a result, if the source is a complete record."""
        for call_id, call in self.calls.items() if self.ended else ():
            self.estimated.add("status")
            args = texts.read_object(call["arguments"])
            self.events.append(ev.ToolCalled(self.where, self.t_ms, call["name"], call_id, args, "", None, "ok"))
            self.tool_calls += 1
        if self.ended and self.calls:
            self.calls.clear()
            self.answer = texts.said(self.steps[-1].items) if self.steps else None

    def end_turn(self) -> None:
        if not self.is_open:
            return
        self.end_calls()
        costs = [step.cost for step in self.called if step.cost is not None]
        self.is_priced = self.is_priced or bool(costs)
        if self.answer is not None or not self.is_answered:
            self.judged = self.where
        self.is_answered = self.is_answered or self.answer is not None
        is_timed = self.timed and self.started_ms is not None and "t_ms" not in self.estimated
        self.events.append(
            ev.TurnCompleted(
                self.where,
                # The next message of the user, at which the turn is closed, may come much later.
                max(self.ended_ms, self.events[-1].t_ms) if is_timed else self.t_ms,
                f"{self.thread_id}/t{self.turn}",
                "success" if self.answer is not None else "aborted",
                self.ended_ms - self.started_ms if is_timed else None,  # type: ignore[operator]
                self.answer or "",
                sum(step.input_tokens for step in self.called),
                sum(step.output_tokens for step in self.called),
                # If the source records costs, a turn without model calls cost nothing.
                sum(costs, 0.0) if costs or (self.is_priced and not self.called) else None,
                len(self.called),
                self.tool_calls,
                finish_reason=self.steps[-1].finish_reason if self.steps and self.answer is not None else None,
            )
        )
        self.is_open, self.steps, self.called, self.tool_calls = False, [], [], 0


def _times(given: Iterable[Message | Compaction | Child]) -> Iterator[float]:
    return (one.t_ms for one in given if not isinstance(one, Child) and one.t_ms is not None)
