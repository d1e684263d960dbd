"""Graded benchmark tasks as runs. Their form is checked strictly, because a known data set has damaged records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from noetic_nb.interop._formats.sources import Document, refused
from noetic_nb.items._messages.message import Message, call, call_output, input_text, output_text, text_message
from noetic_nb.redact import Redaction
from noetic_nb.runs import Run
from noetic_nb.runs._conversation import conversation_events
from noetic_nb.runs._run import run_of_settled

# Rewards are products of checks, 0 or 1; the benchmarks compare them with this tolerance.
FULL_REWARD: Final = 1 - 1e-6
# In characters: the texts of a data set repeat, those of AgentDojo within about a hundred runs.
REMEMBERED: Final = 8_000_000
# A module constant, because `json.dumps` with an option builds a new encoder on every call.
_json: Final = json.JSONEncoder(ensure_ascii=False).encode
# Handing over to a human ends a conversation by design, without a reply from the agent (tau-bench, terminating tools).
_HANDS_OVER: Final = frozenset({"transfer_to_human_agents"})


def refuser(document: Document, index: int | None, hint: str) -> Callable[[str], NoReturn]:
    """Return a function that raises the error for one record of a document."""

    def refuse(what: str) -> NoReturn:
        raise refused(document, what, index=index, hint=hint)

    return refuse


def talk_of(entry: Mapping[str, Any], key: str, refuse: Callable[[str], NoReturn]) -> list[dict[str, Any]]:
    """Return the messages of a record."""
    messages = entry.get(key)
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        refuse(f"`{key}` must be a list of messages")
    return messages


def said(content: object, refuse: Callable[[str], NoReturn]) -> str:
    """Return the text of a message."""
    if content is not None and not isinstance(content, str):
        refuse(f"a message's content must be text, but is {content!r:.80}")
    return content or ""


def user(text: str, **known: Any) -> Message:
    return Message("user", (text_message("user", (input_text(text),)),), **known)


def assistant(text: str, calls: Sequence[Any], **known: Any) -> Message:
    """Make an answer: its text, if any, then its calls."""
    items = [text_message("assistant", (output_text(text),))] if text or not calls else []
    return Message("assistant", (*items, *calls), **known)


class _AsPublished(Redaction):
    """Redacts nothing: passwords in a benchmark's tasks are part of the task and were never real."""

    def text(self, text: str) -> str:
        return text

    def data(self, value: Any) -> Any:
        return value

    def are_plain(self, texts: Iterable[str]) -> bool:
        """Report that nothing needs replacing."""
        return True


AS_PUBLISHED: Final = _AsPublished()


class Calls:
    """The pending calls of a conversation, by the ids that the recording gives them."""

    def __init__(self, refuse: Callable[[str], NoReturn]) -> None:
        self._refuse = refuse
        self._waiting: dict[str, int] = {}

    def make(self, name: str, arguments: object, given: object) -> Any:
        """Make a call; missing or duplicate ids are made distinct later."""
        call_id = given if isinstance(given, str) and given else "call"
        self._waiting[call_id] = self._waiting.get(call_id, 0) + 1
        try:
            text = arguments if isinstance(arguments, str) else _json(arguments)
        except RecursionError:
            self._refuse("the arguments of a call are nested too deep")
        return call(name, text, call_id)

    def result(self, given: object, text: str, failed: object, **known: Any) -> Message:
        """Make the result of a call; if `failed` is not a bool, the failure is guessed from the text."""
        call_id = given if isinstance(given, str) and given else "call"
        if not self._waiting.get(call_id):
            self._refuse(f"a tool result answers no call: {given!r:.80}")
        self._waiting[call_id] -= 1
        errors = {call_id: text} if failed is True else {}
        return Message(
            "tool", (call_output(call_id, text),), errors=errors, statuses_known=failed in (True, False), **known
        )


def task_meta(source: str, domain: str | None, model: str | None, task_id: object, trial: object) -> dict[str, Any]:
    """Return the meta that every run of a data set without attacks has."""
    return {
        "source": source,
        "domain": domain,
        "suite": domain,
        "model": model,
        "task_id": task_id,
        "trial": trial,
        "attack": False,
    }


def run_of_task(
    messages: Sequence[Message],
    name: str,
    meta: Mapping[str, Any],
    reward: object,
    *,
    policy: str,
    refuse: Callable[[str], NoReturn],
    redaction: Redaction,
    unmapped: Sequence[Mapping[str, Any]] = (),
) -> Run:
    """Return one recorded task as a run called `name`; a known reward grades the last answered turn."""
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float)):
        refuse(f"`reward` must be a number, but is {reward!r:.80}")
    for message in messages:
        if message.role == "user":
            break
        # Text that the agent writes before the first request is fixed text, not a model call.
        if message.role != "assistant" or any(item["type"] == "function_call" for item in message.items):
            refuse(f"the conversation begins with the role {message.role!r}, not with the user")
        message.usage = None
    about, events = conversation_events(
        messages,
        thread_id=name,
        meta={**meta, "reward": reward, "outcome": None if reward is None else reward >= FULL_REWARD},
        unmapped=unmapped,
        policy=policy,
        quality=None if reward is None else float(reward),
        closing_tools=_HANDS_OVER,
        timed=False,
        redaction=redaction,
    )
    return run_of_settled(name, about, events)
