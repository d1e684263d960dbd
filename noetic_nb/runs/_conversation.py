"""Conversations of other agents as the events of runs: a turn for each time the user writes, a model call for each answer.

What was not recorded is not made up: unknown durations and costs stay unknown, and what had to be estimated (times, tokens,
whether a call failed) is named in ``meta["estimated"]``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from noetic_nb._core.long_work import counted
from noetic_nb.errors import ItemValidationError
from noetic_nb.events import (
    ItemsAppended,
    ModelCalled,
    QualityGiven,
    RunEvent,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.items import Item, freeze, item_text
from noetic_nb.items._build import content_tokens
from noetic_nb.items._call_ids import with_own_call_ids
from noetic_nb.items._frozen import FLAT, FrozenDict
from noetic_nb.items._item_checks import problem_of
from noetic_nb.items._json_copy import frozen_data
from noetic_nb.items._messages import Message
from noetic_nb.items._registry import ANY_ITEMS
from noetic_nb.redact import Redaction
from noetic_nb.redact._secret_names import secret_word
from noetic_nb.tokens import estimate_tokens

__all__ = ["conversation_events"]

# Where nothing is known of the times, a message takes a second from the first of 1970 on: no reader takes that for a time.
_START_MS: Final = 0.0
_MESSAGE_MS: Final = 1_000.0
_CALL: Final = "function_call"
_OURS: Final = frozenset({"message", _CALL, "function_call_output"})
_COUNTED: Final = frozenset({"input_tokens", "output_tokens"})
_ESTIMATED: Final = ("t_ms", "input_tokens", "output_tokens", "status")
"""What may be estimated, in the order in which it is named."""
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
"""What every run of somebody else's says of itself, None where nobody knows it."""


# Their names are no secret words, so that their texts can be looked at one by one.
_PLAIN_KEYS: Final = frozenset({"id", "type", "status", "role", "name", "callId", "arguments", "output", "content"})
_TEXT_KEYS: Final = {
    ("status", "type", "role", "content"): ("content",),
    ("status", "type", "callId", "name", "arguments"): ("callId", "name", "arguments"),
    ("status", "type", "callId", "output"): ("callId", "output"),
}
_PLAIN_PART: Final = frozenset({"type", "text", "annotations"})


def conversation_events(
    messages: Iterable[Message],
    *,
    thread_id: str = "t1",
    meta: Mapping[str, Any] | None = None,
    unmapped: Iterable[Mapping[str, Any]] = (),
    policy: str = "",
    quality: float | None = None,
    closing_tools: Collection[str] = (),
    timed: bool = True,
    redaction: Redaction | None = None,
) -> tuple[dict[str, Any], list[RunEvent]]:
    """Return a conversation as the meta and the events of a run.

    Parameters
    ----------
    messages : iterable of Message
        In order.
    thread_id : str
        The name of its only thread.
    meta : mapping, optional
        Added to ``policy`` (the system prompt), ``model``, ``estimated`` and ``unmapped``.
    unmapped : iterable of mapping
        What of the source has no place in the messages.
    policy : str
        A system prompt that stands in no message: every call sent it.
    quality : float, optional
        A grade of the conversation, which the last answered turn gets.
    closing_tools : collection of str
        Tools that end a conversation by design: a turn that ends with one needs no answer.
    timed : bool
        Whether the time between messages is that of the work; between those of a simulation it is not.
    redaction : Redaction, optional
        What replaces secrets; one of its own by default.

    Returns
    -------
    tuple of dict and list
        Without secrets, for `run_of_settled`. Calls whose ids were used before got ids of their own.

    References
    ----------
    .. [1] docs/behaviour/interop.md, "Conversations as runs".
    """
    given = list(messages)
    redaction = Redaction() if redaction is None else redaction
    items: Sequence[Item] = [item for message in given for item in message.items]
    texts = [policy]
    # All at once, as most conversations have no sign of a secret.
    if not (_add_texts(items, texts) and redaction.are_plain(texts)):
        policy, items = redaction.text(policy), [_clean(item, redaction) for item in items]
    items = with_own_call_ids(items)
    writer = _Writer(thread_id, redaction, policy, closing_tools, timed)
    if (first := next((message.t_ms for message in given if message.t_ms is not None), None)) is not None:
        writer.t_ms, writer.has_times = first, True
    start = 0
    for message in counted(given, "messages"):
        stop = start + len(message.items)
        writer.take(message, items[start:stop])
        start = stop
    writer.end_turn()
    if quality is not None and writer.judged is not None:
        writer.events.append(QualityGiven(writer.judged, writer.t_ms, quality, "reward"))
    model = next((message.model for message in given if message.model), None)
    params = next((message.params for message in given if message.params), None)
    beside = [*unmapped, *writer.unmapped]
    about: dict[str, Any] = {
        "created_ms": writer.events[0].t_ms if writer.events else _START_MS,
        **dict.fromkeys(_LABELS),
        "dropped": [],
        "source": "messages",
        "model": model,
        "params": None if params is None else dict(params),
        **_clean_meta(meta or {}, redaction),
        "policy": "\n\n".join(writer.policy),
        "estimated": [name for name in _ESTIMATED if name in writer.estimated],
        "unmapped": redaction.data(beside) if beside else [],
    }
    return about, writer.events


def _add_texts(items: Sequence[Item], texts: list[str]) -> bool:
    """Add the texts of items; return whether they have nothing else that may be secret."""
    for item in items:
        # Nearly all items of others are of three forms: looked up by their keys, not walked through.
        keys = _TEXT_KEYS.get(tuple(item))
        if keys is None or item["status"] != "completed":
            if not _PLAIN_KEYS.issuperset(item):
                return False
            keys = tuple(item)
        for key in keys:
            value = item[key]
            if type(value) is str:
                texts.append(value)
            elif type(value) is not tuple:
                return False
            else:
                for part in value:
                    if type(part) is not FrozenDict or not _PLAIN_PART.issuperset(part) or part.get("annotations"):
                        return False
                    words = part.get("text")
                    if type(words) is not str:
                        return False
                    texts.append(words)
    return True


def _clean(item: Item, redaction: Redaction) -> Item:
    texts: list[str] = []
    if _add_texts((item,), texts) and all(redaction.text(text) is text for text in texts):
        return item
    found = redaction.data(dict(item))
    if "native" in found or item["type"] not in _OURS:  # of a provider's own making: numbers that no file holds, too
        found = frozen_data(found)
    return item if found == item else ANY_ITEMS.parse(found)


def _clean_meta(meta: Mapping[str, Any], redaction: Redaction) -> Mapping[str, Any]:
    texts = [*meta]
    for value in meta.values():
        if type(value) is str:
            texts.append(value)
        elif type(value) not in FLAT:
            break
    else:
        if not any(map(secret_word, meta)) and redaction.are_plain(texts):
            return meta
    cleaned: Mapping[str, Any] = redaction.data(dict(meta))
    return cleaned


class _Writer:
    """Writes a conversation as events: holds the length of the log, the clock and the turn that is open."""

    def __init__(
        self, thread_id: str, redaction: Redaction, policy: str, closing_tools: Collection[str], timed: bool
    ) -> None:
        self.thread_id = thread_id
        self.where = Where(thread_id, f"{thread_id}/e0", 0)
        self.redaction = redaction
        self.events: list[RunEvent] = []
        self.policy = [policy] if policy else []
        self.closing_tools = closing_tools
        self.estimated: set[str] = set()
        self.unmapped: list[dict[str, Any]] = []
        self.length = self.turn = 0
        self.sent_tokens = estimate_tokens(policy)
        self.t_ms = _START_MS
        self.has_times = False
        self.started_ms: float | None = None
        self.ended_ms = _START_MS
        self.timed = timed
        self.is_timed = False
        self.is_open = False
        self.calls: dict[str, Item] = {}
        self.steps: list[ModelCalled] = []
        self.tool_calls = 0
        self.answer: str | None = None
        self.judged: Where | None = None
        self.is_answered = self.is_priced = False

    def take(self, message: Message, items: Sequence[Item]) -> None:
        """Write one message, whose items have call ids of their own by now."""
        if message.t_ms is None:
            self.estimated.add("t_ms")
            # Between times that are known nothing is known but the order.
            self.t_ms += _MESSAGE_MS if self.events and not self.has_times else 0.0
        else:
            self.is_timed = True
            if message.t_ms < self.t_ms:  # clocks that differ: the order of the messages is what is sure
                self.estimated.add("t_ms")
            self.t_ms = max(self.t_ms, message.t_ms)
        if message.role != "user":
            self.ended_ms = self.t_ms
        role = message.role
        if role == "system":
            self.append(items, "seed")
            if self.turn == 0:
                self.policy += [text for item in items if (text := item_text(item))]
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
            if item.get("id") is None:
                item = Item({"id": f"{self.thread_id}/i{self.length}", **item})
            made.append(item)
            if (problem := problem_of(item)) is not None:
                self.unmapped.append({"place": f"item {self.length}", "what": problem, "thread_id": self.thread_id})
            self.length += 1
            self.sent_tokens += content_tokens(item)
        kept = tuple(made)
        self.events.append(ItemsAppended(self.where, self.t_ms, start, kept, origin))
        return kept

    def user(self, items: Sequence[Item]) -> None:
        if self.is_open and not self.steps:  # written in several messages, before anybody answered
            self.append(items, "user")
            return
        self.end_turn()
        self.begin_turn("".join(map(item_text, items)), len(items))
        self.append(items, "user")

    def begin_turn(self, query: str, size: int) -> None:
        self.turn += 1
        self.where = Where(self.thread_id, f"{self.thread_id}/e{self.turn}", self.turn)
        self.is_open, self.answer = True, None
        self.started_ms = self.t_ms if self.is_timed else None
        turn_id = f"{self.thread_id}/t{self.turn}"
        self.events.append(TurnStarted(self.where, self.t_ms, turn_id, self.length, self.length + size, query))

    def assistant(self, message: Message, items: Sequence[Item]) -> None:
        if not self.is_open:
            if self.turn == 0 and message.usage is None and not any(item["type"] == _CALL for item in items):
                self.append(items, "seed")  # a fixed greeting, and no call of a model
                return
            self.begin_turn("", 0)
        usage, sent = message.usage or {}, self.sent_tokens
        made = self.append(items, "model")
        # The call stands before its items, as in runs of our own.
        appended = self.events.pop()
        self.estimated.update(_COUNTED - usage.keys())
        step = ModelCalled(
            self.where,
            self.t_ms,
            len(self.steps),
            message.model or "recorded",
            "agent",
            message.duration_ms,
            "ok",
            made,
            usage.get("input_tokens", sent),
            usage.get("output_tokens", self.sent_tokens - sent),
            usage.get("cached_tokens", 0),
            message.cost,
            finish_reason=message.finish_reason,
        )
        self.events += (step, appended)
        self.steps.append(step)
        calls, outputs = set(), set()
        for item, given in zip(made, message.items, strict=True):
            if item["type"] == _CALL:
                self.calls[item["callId"]] = item
                calls.add(item["callId"])
            elif item["type"] == "function_call_output":  # a tool that the provider ran
                outputs.add(item.get("callId"))
                self.result(message, item, given)
        # Text beside a call is no answer yet: the model goes on after the result.
        self.answer = _said(made) if calls <= outputs else None

    def tool(self, message: Message, items: Sequence[Item]) -> None:
        if not self.is_open:
            self.begin_turn("", 0)
        for item, given in zip(items, message.items, strict=True):
            if (name := self.result(message, item, given)) is not None:
                self.answer = "" if name in self.closing_tools else None
            self.append((item,), "tool")

    def result(self, message: Message, item: Item, given: Item) -> str | None:
        """Write the call that a result answers, and return its name; `given` has the id of the source."""
        call_id, output = item.get("callId") or "", item_text(item)
        call = self.calls.pop(call_id, None)
        if call is None:
            self.unmapped.append(
                {"place": f"item {self.length}", "what": "a result that answers no call", "value": call_id}
            )
            return None
        error = message.errors.get(given.get("callId") or "")
        if error is None and not message.statuses_known:
            self.estimated.add("status")
            error = output if _reads_as_error(output) else None
        self.events.append(
            ToolCalled(
                self.where,
                self.t_ms,
                call["name"],
                call_id,
                _object(call["arguments"]),
                output,
                message.duration_ms if message.role == "tool" else None,
                "ok" if error is None else "error",
                None if error is None else self.redaction.text(error),
            )
        )
        self.tool_calls += 1
        return str(call["name"])

    def end_turn(self) -> None:
        if not self.is_open:
            return
        costs = [step.cost for step in self.steps if step.cost is not None]
        self.is_priced = self.is_priced or bool(costs)
        if self.answer is not None or not self.is_answered:
            self.judged = self.where
        self.is_answered = self.is_answered or self.answer is not None
        is_timed = self.timed and self.started_ms is not None and "t_ms" not in self.estimated
        self.events.append(
            TurnCompleted(
                self.where,
                self.t_ms,
                f"{self.thread_id}/t{self.turn}",
                "success" if self.answer is not None else "aborted",
                self.ended_ms - self.started_ms if is_timed else None,  # type: ignore[operator]
                self.answer or "",
                sum(step.input_tokens for step in self.steps),
                sum(step.output_tokens for step in self.steps),
                # Where costs are recorded, a turn that called no model cost nothing.
                sum(costs, 0.0) if costs or (self.is_priced and not self.steps) else None,
                len(self.steps),
                self.tool_calls,
                finish_reason=self.steps[-1].finish_reason if self.steps and self.answer is not None else None,
            )
        )
        self.is_open, self.steps, self.tool_calls = False, [], 0


def _said(items: Sequence[Item]) -> str | None:
    """Return the text of messages, None where there is nothing but empty text in them."""
    messages = [item for item in items if item["type"] == "message"]
    text = "".join(map(item_text, messages))
    # A picture, too, says something.
    if text or any(part.get("text") != "" for item in messages for part in item.get("content") or ()):
        return text
    return None


def _reads_as_error(output: str) -> bool:
    """Guess whether a call failed, where the format does not say."""
    if output.startswith(("Error", "error:", "Traceback (most recent call last)")):
        return True
    return output.startswith("{") and bool((_object(output) or {}).get("error"))


def _object(text: str) -> Mapping[str, Any] | None:
    """Return the arguments that a text holds, frozen; None where it holds none."""
    return _known_object(text) if len(text) <= _SHORT_ARGUMENTS else _parsed_object(text)


def _parsed_object(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # what the model wrote is evidence, too: the item keeps the text
        return None
    if not isinstance(found, dict):
        return None
    try:
        # Frozen as a run freezes it, so that it need not look through its events again.
        return frozen_data(freeze(found))  # type: ignore[no-any-return]
    except ItemValidationError:  # NaN, an infinite number, or nested without end
        return None


# Agents make the same calls in run after run. What is kept follows from the text alone, cannot change, and is dropped when so
# many others came after it.
_SHORT_ARGUMENTS: Final = 1_000
_known_object: Final = lru_cache(maxsize=1_024)(_parsed_object)
