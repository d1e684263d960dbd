"""Recorded tau-bench conversations: a list of trajectories made of chat messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from noetic_nb.interop._formats import graded
from noetic_nb.interop._formats.sources import Document, first_value, record
from noetic_nb.items._messages.message import Message, money
from noetic_nb.items._messages.usage_fields import known_usage
from noetic_nb.redact import Redaction
from noetic_nb.runs import Run

FORMATS: Final = ("tau",)
_HINT: Final = "Pass a list of trajectories in the form of tau-bench, as .json or .json.gz."


def looks_like(document: Document) -> bool:
    """Tell whether a document is a trajectory, or a list of them."""
    first = first_value(document)
    return isinstance(first, Mapping) and "traj" in first and "reward" in first


def read(
    document: Document, format: str | None = None, redaction: Redaction | None = None
) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each trajectory of a document."""
    redaction = Redaction(remembered=graded.REMEMBERED) if redaction is None else redaction
    for index in range(len(entries(document))):
        yield partial(trajectory, document, index, redaction)


def entries(document: Document) -> Sequence[Any]:
    if isinstance(document.data, Mapping) and "traj" in document.data:
        return [document.data]
    if not document.by_line and not isinstance(document.data, list):
        graded.refuser(document, None, _HINT)("it holds no list")
    found: Sequence[Any] = document.data
    return found


def trajectory(
    document: Document, place: int, redaction: Redaction, domain: str | None = None, model: str | None = None
) -> Run:
    """Read one trajectory of a document as a run; the file does not contain `domain` and `model`."""
    refuse = graded.refuser(document, place, _HINT)
    entry = record(document, place) if document.by_line else entries(document)[place]
    if not isinstance(entry, Mapping):
        refuse("it is not a trajectory")
    index = entry.get("index", place)
    if type(index) is not int:
        refuse(f"its `index` must be a whole number, but is {index!r:.80}")
    messages = graded.talk_of(entry, "traj", refuse)
    if "reward" not in entry:
        refuse("`reward` is missing; write null if it is unknown")
    info = entry.get("info")
    task = info.get("task") if isinstance(info, dict) else None
    source = "tau-bench" if domain is None else "tau-bench airline" if domain == "airline" else domain
    meta = {
        **graded.task_meta(source, domain, model, entry.get("task_id"), entry.get("trial")),
        "index": index,
        "task": task.get("instruction") if isinstance(task, dict) else None,
    }
    policy = "\n\n".join([graded.said(m.get("content"), refuse) for m in messages if m.get("role") == "system"])
    calls = graded.Calls(refuse)
    made = [_message(m, calls, model, refuse) for m in messages if m.get("role") != "system"]
    return graded.run_of_task(
        made, f"{domain or 'tau'}-{index}", meta, entry["reward"], policy=policy, refuse=refuse, redaction=redaction
    )


def _message(
    message: Mapping[str, Any], calls: graded.Calls, model: str | None, refuse: Callable[[str], NoReturn]
) -> Message:
    role, text = message.get("role"), graded.said(message.get("content"), refuse)
    if role == "user":
        return graded.user(text)
    if role == "tool":
        return calls.result(message.get("tool_call_id"), text, message.get("error"))
    if role != "assistant":
        refuse(f"a message has the role {role!r:.80}; known roles are system, user, assistant and tool")
    given = message.get("tool_calls") or []
    if not isinstance(given, list):
        refuse(f"`tool_calls` must be a list, but is {given!r:.80}")
    made = []
    for each in given:
        try:
            call_id, name, arguments = each["id"], each["function"]["name"], each["function"]["arguments"]
        except (KeyError, TypeError):
            refuse(f"a tool call lacks its id, name or arguments: {each!r:.80}")
        if not all(isinstance(part, str) for part in (call_id, name, arguments)):
            refuse(f"a tool call's id, name and arguments must be text: {each!r:.80}")
        made.append(calls.make(name, arguments, call_id))
    return graded.assistant(
        text, made, model=model, usage=known_usage(message.get("usage"), "openai"), cost=money(message.get("cost"))
    )
