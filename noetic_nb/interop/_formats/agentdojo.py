"""Recorded AgentDojo runs: agents with tools, with or without injected text in tool results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NoReturn

from noetic_nb.interop._formats import graded
from noetic_nb.interop._formats.sources import Document, first_value, record
from noetic_nb.items._messages.message import Message
from noetic_nb.redact import Redaction
from noetic_nb.runs import Run

FORMATS: Final = ("agentdojo",)
_SOURCE: Final = "agentdojo"
_HINT: Final = "Pass a .jsonl or .jsonl.gz with a run a line, one run as .json, or the folder `runs` of AgentDojo."
_NAMES: Final = ("suite_name", "pipeline_name", "user_task_id", "attack_type", "injection_task_id")


def looks_like(document: Document) -> bool:
    """Tell whether a document is a run, a list of runs, or has one run per line."""
    first = first_value(document)
    return isinstance(first, Mapping) and all(key in first for key in _NAMES[:3])


def read(
    document: Document, format: str | None = None, redaction: Redaction | None = None
) -> Iterator[Callable[[], Run]]:
    redaction = Redaction(remembered=graded.REMEMBERED) if redaction is None else redaction
    is_list = document.by_line or isinstance(document.data, list)
    for index in range(len(document.data)) if is_list else [None]:
        yield partial(_run, document, index, redaction)


def _run(document: Document, index: int | None, redaction: Redaction) -> Run:
    refuse = graded.refuser(document, index, _HINT)
    entry: Any = document.data if index is None else None
    if index is not None:
        entry = record(document, index) if document.by_line else document.data[index]
    if not isinstance(entry, Mapping):
        refuse("it is not a run")
    names = [entry.get(key) for key in _NAMES]
    if any(not isinstance(name, str) and (name is not None or place < 3) for place, name in enumerate(names)):
        refuse("its suite, pipeline or user task is missing")
    suite, model, user_task, attack, injection_task = names
    done, security = entry.get("utility"), entry.get("security")
    if any(each is not None and not isinstance(each, bool) for each in (done, security)):
        refuse("`utility` and `security` must be true, false or null")
    messages = graded.talk_of(entry, "messages", refuse)
    meta = {
        **graded.task_meta(_SOURCE, suite, model, user_task, None),
        "user_task": user_task,
        "injection_task": injection_task,
        "attack": attack is not None,
        "attack_type": attack,
        # Without an attack, AgentDojo writes true because nothing could fail.
        "attack_succeeded": security if attack is not None else None,
    }
    policy = "\n\n".join([graded.said(_text(m.get("content")), refuse) for m in messages if m.get("role") == "system"])
    calls = graded.Calls(refuse)
    # A run that stopped before its first answer has no messages, so it is not a conversation.
    made = [_message(m, calls, model, refuse) for m in messages if m.get("role") != "system"]
    name = "-".join([str(each or "none") for each in names])
    reward = None if done is None else float(done)
    return graded.run_of_task(made, name, meta, reward, policy=policy, refuse=refuse, redaction=redaction)


def _message(
    message: Mapping[str, Any], calls: graded.Calls, model: str | None, refuse: Callable[[str], NoReturn]
) -> Message:
    role, text = message.get("role"), message.get("content")
    if type(text) is not str:
        text = graded.said(_text(text), refuse)
    if role == "user":
        return graded.user(text)
    if role == "tool":
        error = message.get("error")
        if error is not None and not isinstance(error, str):
            refuse(f"the `error` of a tool must be text or null, but is {error!r:.80}")
        failed = bool(error) if "error" in message else None
        return calls.result(message.get("tool_call_id"), f"Error: {error}" if error else text, failed)
    if role != "assistant":
        refuse(f"a message has the role {role!r:.80}; known roles are system, user, assistant and tool")
    given = message.get("tool_calls") or ()
    if not isinstance(given, list | tuple):
        refuse(f"`tool_calls` must be a list, but is {given!r:.80}")
    made = []
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("function"), str):
            refuse(f"a tool call lacks its function: {each!r:.80}")
        made.append(calls.make(each["function"], each.get("args") or {}, each.get("id")))
    return graded.assistant(text, made, model=model)


def _text(content: Any) -> Any:
    """Return a content that is text, or a list of text parts as in newer versions."""
    if isinstance(content, list):
        texts = [part.get("content") or part.get("text") for part in content if isinstance(part, dict)]
        return "".join([text for text in texts if isinstance(text, str)])
    return content
