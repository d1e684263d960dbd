"""Recorded conversations in the chat form of tau-bench, turned into runs.

What was not recorded is not made up: durations are 0, times count one second a message, token counts are estimates of
the texts that were sent, and ``meta["estimated"]`` says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, TypeAlias

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
from noetic_nb.items import Item, assistant_message, function_call, function_call_output, input_message
from noetic_nb.items.build import content_tokens
from noetic_nb.runs import Run
from noetic_nb.tokens import estimate_tokens

__all__ = ["run_of"]

Complain: TypeAlias = Callable[[str], NoReturn]

# 2024-05-15 15:00 EST, the time the airline policy calls "now".
START_MS: Final = 1_715_803_200_000.0
MESSAGE_MS: Final = 1_000.0

# Handing over to a person ends a conversation by design, without a reply from the agent (tau-bench, terminating tools).
_HANDS_OVER: Final = frozenset({"transfer_to_human_agents"})
# How the environment of tau-bench begins the output of a call that it refused.
_FAILED: Final = "Error"


@dataclass(slots=True)
class _Writer:
    """Writes one conversation as events: holds the log's length, the clock and the turn being written."""

    thread_id: str
    policy_tokens: int
    complain: Complain
    events: list[RunEvent] = field(default_factory=list)
    length: int = 0
    log_tokens: int = 0
    t_ms: float = START_MS
    turn: int = 0
    text: str = ""
    last_tool: str | None = None
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    steps: list[ModelCalled] = field(default_factory=list)
    tool_calls: int = 0
    judged: Where | None = None
    any_answered: bool = False

    @property
    def where(self) -> Where:
        return Where(self.thread_id, f"{self.thread_id}/e{self.turn}", self.turn)

    def append(self, items: tuple[Item, ...], origin: Literal["user", "model", "tool"]) -> None:
        self.events.append(ItemsAppended(self.where, self.t_ms, self.length, items, origin))
        self.length += len(items)
        self.log_tokens += sum(map(content_tokens, items))

    def item_id(self, ahead: int = 0) -> str:
        return f"{self.thread_id}/i{self.length + ahead}"

    def user(self, message: Mapping[str, Any]) -> None:
        self.end_turn()
        text = self.text_of(message)
        self.turn += 1
        self.events.append(
            TurnStarted(self.where, self.t_ms, f"{self.thread_id}/t{self.turn}", self.length, self.length + 1, text)
        )
        self.append((input_message(text, item_id=self.item_id()),), "user")

    def assistant(self, message: Mapping[str, Any]) -> None:
        text, calls = self.text_of(message), message.get("tool_calls") or []
        if not isinstance(calls, list):
            self.complain(f"`tool_calls` must be a list, but is {calls!r:.80}")
        items = [assistant_message(text, item_id=self.item_id())] if text or not calls else []
        for call in calls:
            try:
                call_id, name, arguments = call["id"], call["function"]["name"], call["function"]["arguments"]
            except (KeyError, TypeError):
                self.complain(f"a tool call lacks its id, name or arguments: {call!r:.80}")
            if not all(isinstance(part, str) for part in (call_id, name, arguments)):
                self.complain(f"a tool call's id, name and arguments must be text: {call!r:.80}")
            self.calls[call_id] = (name, arguments)
            items.append(function_call(name, arguments, call_id, item_id=self.item_id(len(items))))
        written = sum(map(content_tokens, items))
        step = ModelCalled(
            self.where,
            self.t_ms,
            len(self.steps),
            "recorded",
            "agent",
            0.0,
            "ok",
            tuple(items),
            input_tokens=self.policy_tokens + self.log_tokens,
            output_tokens=written,
        )
        self.events.append(step)
        self.steps.append(step)
        self.append(tuple(items), "model")
        self.text = "" if calls else text

    def tool(self, message: Mapping[str, Any]) -> None:
        call_id, output = message.get("tool_call_id"), self.text_of(message)
        if not isinstance(call_id, str) or call_id not in self.calls:
            self.complain(f"a tool result answers no call: {call_id!r:.80}")
        name, arguments = self.calls.pop(call_id)
        # The data set has no status of its own for a call.
        failed = output.startswith(_FAILED)
        self.events.append(
            ToolCalled(
                self.where,
                self.t_ms,
                name,
                call_id,
                _parsed(arguments),
                output,
                0.0,
                "error" if failed else "ok",
                output if failed else None,
            )
        )
        self.append((function_call_output(call_id, output, item_id=self.item_id()),), "tool")
        self.tool_calls += 1
        self.last_tool = name
        self.text = ""

    def text_of(self, message: Mapping[str, Any]) -> str:
        text = message.get("content")
        if text is not None and not isinstance(text, str):
            self.complain(f"a message's content is no text: {text!r:.80}")
        return text or ""

    def end_turn(self) -> None:
        if self.turn == 0:
            return
        # Text beside a tool call is no answer yet: the model continues after the result.
        answered = bool(self.text) or self.last_tool in _HANDS_OVER
        if answered or not self.any_answered:
            self.judged = self.where
        self.any_answered = self.any_answered or answered
        self.events.append(
            TurnCompleted(
                self.where,
                self.t_ms,
                f"{self.thread_id}/t{self.turn}",
                "success" if answered else "aborted",
                0.0,
                self.text,
                sum(step.input_tokens for step in self.steps),
                sum(step.output_tokens for step in self.steps),
                0.0,
                len(self.steps),
                self.tool_calls,
            )
        )
        self.text, self.last_tool, self.tool_calls, self.steps = "", None, 0, []


def _parsed(arguments: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(arguments)
    except (
        ValueError,
        RecursionError,
    ):  # what the model wrote is evidence too: the item keeps the text, the call has no arguments
        return None
    return found if isinstance(found, dict) else None


def run_of(entry: Mapping[str, Any], index: int, *, name: str, source: str, complain: Complain) -> Run:
    """Return one recorded conversation as a run: a turn per user message.

    `entry` has ``traj`` (messages with ``role``, ``content``, ``tool_calls``, ``tool_call_id``), ``task_id``,
    ``trial``, ``reward``, and perhaps ``info`` with the task the simulated user was given. Run and thread are called
    ``<name>-<index>``; `complain` raises. A turn that nobody answered is ``"aborted"``; the reward is a grade of the
    last answered turn.
    """
    messages, reward = entry.get("traj"), entry.get("reward")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        complain("`traj` must be a list of messages")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        complain(f"`reward` must be a number, but is {reward!r:.80}")
    policy = "\n\n".join(str(m.get("content") or "") for m in messages if m.get("role") == "system")
    writer = _Writer(f"{name}-{index}", estimate_tokens(policy), complain)
    writers = {"user": writer.user, "assistant": writer.assistant, "tool": writer.tool}
    for message in messages:
        role = message.get("role")
        if role == "system":
            continue
        if role not in writers:
            complain(f"a message has the role {role!r:.80}, which is none of {', '.join(['system', *writers])}")
        if writer.turn == 0 and role != "user":
            complain(f"the conversation begins with the role {role!r}, not with the user")
        writers[role](message)
        writer.t_ms += MESSAGE_MS
    writer.end_turn()
    if writer.judged is not None:
        writer.events.append(QualityGiven(writer.judged, writer.t_ms, float(reward), "reward"))
    info = entry.get("info")
    task = info.get("task") if isinstance(info, dict) else None
    meta = {
        "created_ms": START_MS,
        "source": source,
        "index": index,
        "task_id": entry.get("task_id"),
        "trial": entry.get("trial"),
        "reward": reward,
        "task": task.get("instruction") if isinstance(task, dict) else None,
        "policy": policy,
        "estimated": ["t_ms", "input_tokens", "output_tokens"],
    }
    return Run(writer.thread_id, meta=meta, events=writer.events)
