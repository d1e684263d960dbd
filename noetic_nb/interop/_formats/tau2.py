"""Recorded tau2-bench runs: service desks whose user may have tools as well."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NoReturn

from noetic_nb.interop._formats import graded
from noetic_nb.interop._formats.sources import Document
from noetic_nb.items._messages.message import Message, money, time_ms
from noetic_nb.items._messages.usage_fields import known_usage
from noetic_nb.redact import Redaction
from noetic_nb.runs import Run

FORMATS: Final = ("tau2",)
_SOURCE: Final = "tau2-bench"
_HINT: Final = (
    "Pass a result file of tau2-bench, as .json or .json.gz, or a folder of them; "
    "load_trajectories reads those of tau-bench."
)


def looks_like(document: Document) -> bool:
    """Tell whether a document is a result file."""
    return isinstance(document.data, Mapping) and "simulations" in document.data


def read(
    document: Document, format: str | None = None, redaction: Redaction | None = None
) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each simulation of a document."""
    redaction = Redaction(remembered=graded.REMEMBERED) if redaction is None else redaction
    refuse = graded.refuser(document, None, _HINT)
    data = document.data
    simulations = data.get("simulations") if isinstance(data, Mapping) else None
    if not isinstance(simulations, list):
        refuse("it holds no `simulations`")
    info = _part(data, "info")
    environment = _part(info, "environment_info")
    domain = data.get("domain") or environment.get("domain_name")
    model = data.get("agent") or _part(info, "agent_info").get("llm")
    policy = data.get("policy") or environment.get("policy")
    if not all(isinstance(value, str | None) for value in (domain, model, policy)):
        refuse("its domain, agent and policy must be text")
    about = domain, model
    sent = _heads_sent(simulations)
    for index in range(len(simulations)):
        yield partial(_run, document, index, about, policy or "", redaction, sent.get(index, {}))


def _heads_sent(simulations: list[Any]) -> dict[int, dict[str, float | None]]:
    """Return by simulation when another one last called the model; all of a file share a prompt prefix."""
    begun: dict[int, float] = {}
    calls: list[tuple[float, int]] = []
    for index, entry in enumerate(simulations):
        messages = entry.get("messages") if isinstance(entry, dict) else None
        sent_ms = None
        for message in messages if isinstance(messages, list) else ():
            given = message.get("timestamp") if isinstance(message, dict) else None
            if not isinstance(given, str):
                continue
            if message.get("role") == "assistant" and sent_ms is not None:  # once the previous message is complete
                begun.setdefault(index, sent_ms)
                calls.append((sent_ms, index))
            sent_ms = time_ms(given) if message.get("role") != "assistant" else None
    calls.sort()
    found: dict[int, dict[str, float | None]] = {}
    for index, first_ms in begun.items() if len(begun) > 1 else ():
        before = reversed(calls[: bisect_left(calls, (first_ms, index))])
        found[index] = {"head_sent_ms": next((t_ms for t_ms, other in before if other != index), None)}
    return found


def _simulated_user(messages: list[dict[str, Any]]) -> dict[str, float] | None:
    """Return the tokens and cost of the model that plays the user (no agent call); None if both are unknown."""
    sums: dict[str, float] = {}
    for message in messages:
        usage, cost = known_usage(message.get("usage"), "openai"), money(message.get("cost"))
        if message.get("role") == "user" and (usage or cost):
            for name, number in {"calls": 1, **(usage or {}), "cost": cost or 0.0}.items():
                sums[name] = sums.get(name, 0) + number
    return sums or None


def _part(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _run(
    document: Document,
    index: int,
    about: tuple[str | None, str | None],
    policy: str,
    redaction: Redaction,
    sent: Mapping[str, float | None],
) -> Run:
    refuse = graded.refuser(document, index, _HINT)
    domain, model = about
    entry = document.data["simulations"][index]
    if not isinstance(entry, dict):
        refuse("it is no simulation")
    made, unmapped = _messages(graded.talk_of(entry, "messages", refuse), model, refuse)
    meta = {**graded.task_meta(_SOURCE, domain, model, entry.get("task_id"), entry.get("trial")), **sent}
    if (simulated := _simulated_user(entry["messages"])) is not None:
        meta["user_model"] = simulated
    name = f"{domain or 'tau2'}-{entry.get('id') or index}"
    reward = _part(entry, "reward_info").get("reward")
    return graded.run_of_task(
        made, name, meta, reward, policy=policy, refuse=refuse, redaction=redaction, unmapped=unmapped
    )


def _messages(
    messages: list[dict[str, Any]], model: str | None, refuse: Callable[[str], NoReturn]
) -> tuple[list[Message], list[dict[str, Any]]]:
    """Return the agent's side of a conversation, and the user's tool calls."""
    made: list[Message] = []
    calls = graded.Calls(refuse)
    beside: list[dict[str, Any]] = []
    open_beside: dict[Any, dict[str, Any]] = {}
    turn = 0
    for message in messages:
        role, content = message.get("role"), message.get("content")
        t_ms = time_ms(message["timestamp"]) if isinstance(message.get("timestamp"), str) else None
        given = message.get("tool_calls") or []
        if not isinstance(given, list) or not all(isinstance(call, dict) for call in given):
            refuse(f"`tool_calls` must be a list of calls, but is {given!r:.80}")
        if role == "tool" and message.get("requestor") == "user":
            asked = open_beside.pop(_key(message.get("id")), None)
            if asked is None:
                refuse(f"a tool result answers no call: {message.get('id')!r:.80}")
            asked.update(output=content, failed=message.get("error"))
        elif role == "tool":
            text = graded.said(content, refuse)
            made.append(calls.result(message.get("id"), text, message.get("error"), t_ms=t_ms))
        elif role == "user":
            # The agent never sees a message that only uses the user's own tools, so it opens no turn.
            if content or not made:
                turn += not made or made[-1].role != "user"
                made.append(graded.user(graded.said(content, refuse), t_ms=t_ms))
            for each in given:
                asked = {
                    "turn": turn,
                    "what": "user_tool_call",
                    "name": each.get("name"),
                    "args": each.get("arguments"),
                }
                beside.append(asked)
                open_beside[_key(each.get("id"))] = asked
        elif role == "assistant":
            own = []
            for each in given:
                if not isinstance(each.get("name"), str) or not isinstance(each.get("arguments"), dict):
                    refuse(f"a tool call lacks its name or arguments: {each!r:.80}")
                own.append(calls.make(each["name"], each["arguments"], each.get("id")))
            counted, cost = known_usage(message.get("usage"), "openai"), money(message.get("cost"))
            made.append(
                graded.assistant(graded.said(content, refuse), own, model=model, usage=counted, cost=cost, t_ms=t_ms)
            )
        elif role != "system":
            refuse(f"a message has the role {role!r:.80}; known roles are system, user, assistant and tool")
    return made, beside


def _key(value: object) -> str:
    """Return an id of any type as a hashable text."""
    return value if isinstance(value, str) else repr(value)
