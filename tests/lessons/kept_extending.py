"""Kept answers to the exercises on parts of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import noetic_nb as nn
from noetic_nb.markup import escape

# 8.1: what the agent has promised


def texts(items: Any, role: str = "assistant") -> list[str]:
    return [
        "".join(part.get("text", "") for part in item.get("content", ())) for item in items if item.get("role") == role
    ]


def layer(store: Callable[[Any], Any], recall: Callable[[Any], Any] | None = None, **options: Any) -> nn.MemoryLayer:
    hooks = nn.MemoryHooks(store=store, recall=recall or (lambda p: "\n".join(p.state) if p.state else None))
    return nn.MemoryLayer(id="promises", hooks=hooks, **{"slot": 120, "scope": "thread", **options})


def promises(
    pick: Callable[[list[str]], list[str]], role: str = "assistant", begins: str = "I will", **options: Any
) -> Callable[[], nn.MemoryLayer]:
    def store(p: Any) -> Any:
        return {"state": pick([text for text in texts(p.log, role) if text.startswith(begins)])}

    return lambda: layer(store, **options)


def once(said: list[str]) -> list[str]:
    return list(dict.fromkeys(said))


def promises_added() -> nn.MemoryLayer:
    def store(p: Any) -> Any:
        state = list(p.state or ())
        for text in texts(p.new_items):
            if text.startswith("I will") and text not in state:
                state.append(text)
        return {"state": state}

    return layer(store, lambda p: "\n".join(p.state[-3:]) if p.state else None)


SHARED: list[str] = []


def promises_in_a_variable() -> nn.MemoryLayer:
    SHARED.clear()

    def store(p: Any) -> None:
        SHARED.extend(text for text in texts(p.new_items) if text.startswith("I will") and text not in SHARED)

    return layer(store, lambda p: "\n".join(SHARED[-3:]) or None)


# 8.2: once for each


def form(
    decide: Callable[[Any, str, str], bool],
    name: Callable[[str, str], str | None] = lambda tool, argument: f"{tool}-once",
) -> Callable[[Any, str, str], None]:
    def answer(rules: nn.RuleBook, tool: str, argument: str) -> None:
        @rules.rule(name(tool, argument), on="before_tool_call", tools=[tool])
        def rule(call: Any) -> Any:
            return nn.deny("No.") if decide(call, tool, argument) else None

    return answer


def same(call: Any, tool: str, argument: str, **leave_out: bool) -> list[Any]:
    return [
        past
        for past in call.history
        if (past.name == tool or leave_out.get("tool"))
        and (past.status == "ok" or leave_out.get("status"))
        and (
            call.tool_args[argument] in past.args.values()
            if leave_out.get("tool")
            else past.args[argument] == call.tool_args[argument]
        )
    ]


def once_by_condition(rules: nn.RuleBook, tool: str, argument: str) -> None:
    seen = f'history.exists(h, h.name == "{tool}" && h.ok && h.args.{argument} == tool.args.{argument})'
    rules.when(seen, id=f"once-{tool}", tools=[tool])


def once_by_any(call: Any, tool: str, argument: str) -> bool:
    done = {past.args[argument] for past in call.history if past.name == tool and past.status == "ok"}
    return call.tool_args[argument] in done


# 8.3: refusals


def refusals(
    counts: Callable[[Any], bool],
    *,
    shows: Callable[[str], str] = escape,
    first: int = 1,
    always: bool = False,
    anew: bool = False,
) -> type:
    class Refusals:
        def __init__(self) -> None:
            self.snapshot: dict[str, dict[str, int]] = {"refused": {}}

        def take(self, event: Any, place: Any) -> dict[str, Any] | None:
            if not counts(event):
                return {} if always else None
            refused = self.snapshot["refused"]
            name = getattr(event, "name", None) or event.tool_name
            if anew:
                self.snapshot = {"refused": {**refused, name: refused.get(name, 0) + 1}}
            else:
                refused[name] = refused.get(name, first - 1) + 1
            return {"type": "all", "snapshot": self.snapshot}

        def to_html(self) -> str:
            return "".join(f"<p>{shows(name)}: {count}</p>" for name, count in self.snapshot["refused"].items())

    return Refusals


def refused(event: Any) -> bool:
    return bool(event.kind == "tool_called" and event.status in ("denied", "guided"))


class RefusalsByMatch:
    """Another way to the same."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.snapshot = {"refused": self.counts}

    def take(self, event: Any, place: Any) -> dict[str, Any] | None:
        match event:
            case nn.events.ToolCalled(name=name, status="denied" | "guided"):
                self.counts[name] = 1 + self.counts.get(name, 0)
                return {"type": "refused", "name": name, "count": self.counts[name]}
        return None

    def to_html(self) -> str:
        cells = [f"<tr><td>{escape(name)}</td><td>{count}</td></tr>" for name, count in self.counts.items()]
        return f"<table>{''.join(cells)}</table>"


RIGHT: dict[str, dict[str, Any]] = {
    "8.1": {"the whole log": promises(lambda said: once(said)[-3:]), "what is new": promises_added},
    "8.2": {"a function": form(once_by_any), "a condition": once_by_condition},
    "8.3": {"counts": refusals(refused), "by match": RefusalsByMatch},
}

WRONG: dict[str, dict[str, Any]] = {
    "8.1": {
        "off by one": promises(lambda said: once(said)[-2:]),
        "inverted": promises(lambda said: once(said)[-3:], role="user"),
        "hard-coded": lambda: nn.static_content("I will call Bob."),
        "right value by the wrong rule": promises_in_a_variable,
        "twice": promises(lambda said: said[-3:]),
        "the oldest": promises(lambda said: once(said)[:3]),
        "newest first": promises(lambda said: once(said)[-3:][::-1]),
        "every answer": promises(lambda said: [text for text in once(said) if "I will" in text][-3:], begins=""),
        "of all threads": promises(lambda said: once(said)[-3:], scope="resource"),
    },
    "8.2": {
        "off by one": form(lambda call, tool, argument: len(same(call, tool, argument)) > 1),
        "inverted": form(lambda call, tool, argument: bool(call.history) and not same(call, tool, argument)),
        "hard-coded": form(
            lambda call, tool, argument: bool(same(call, "ship", "country")) if tool == "ship" else False
        ),
        "right value by the wrong rule": form(
            lambda call, tool, argument: any(past.args == call.tool_args for past in call.history)
        ),
        "one name": form(once_by_any, lambda tool, argument: "once"),
        "failed calls count": form(lambda call, tool, argument: bool(same(call, tool, argument, status=True))),
        "of any tool": form(lambda call, tool, argument: bool(same(call, tool, argument, tool=True))),
    },
    "8.3": {
        "off by one": refusals(refused, first=0),
        "inverted": refusals(lambda event: event.kind == "tool_called" and not refused(event)),
        "hard-coded": type(
            "Refusals",
            (),
            {"snapshot": {"refused": {"pay": 1}}, "take": lambda *_: None, "to_html": lambda self: "<p>pay: 1</p>"},
        ),
        "right value by the wrong rule": refusals(
            lambda event: event.kind == "steering_decided" and event.action in ("deny", "guide")
        ),
        "denied only": refusals(lambda event: event.kind == "tool_called" and event.status == "denied"),
        "everything but ok": refusals(lambda event: event.kind == "tool_called" and event.status != "ok"),
        "not escaped": refusals(refused, shows=str),
        "says something always": refusals(refused, always=True),
        "another snapshot": refusals(refused, anew=True),
    },
}
