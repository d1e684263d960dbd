"""Exercises on custom parts: a layer that remembers promises, a rule form, and a reader for a view."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from noetic_nb.events import ModelCalled, RunEvent, SteeringDecided, ToolCalled, Where
from noetic_nb.interop import guard
from noetic_nb.items import item_text
from noetic_nb.lessons._exercise import Exercise
from noetic_nb.markup import escape
from noetic_nb.models import ScriptedModel
from noetic_nb.runtime import AgentConfig, AgentHarness
from noetic_nb.steering import RuleBook
from noetic_nb.steps import react

MOST_PROMISES: Final = 3
"""The number of promises that the layer of exercise 8.1 offers."""

# A thread and the user's message; the agent answers with the text after "Say: ".
_TALKS: Final[tuple[tuple[tuple[str, str], ...], ...]] = (
    (("t1", "Say: I will call Bob."), ("t1", "What now?"), ("t1", "Say: I will bring cake."), ("t1", "What now?")),
    (("t1", "I will not pay."), ("t1", "What now?"), ("t1", "Say: Perhaps I will."), ("t1", "What now?")),
    (("t1", "Say: I will wait."), ("t1", "Say: I will wait."), ("t1", "Say: I will go."), ("t1", "What now?")),
    (*[("t1", f"Say: I will paint wall {wall}.") for wall in "ABCDE"], ("t1", "What now?")),
    (("t1", "Say: I will sing."), ("t2", "What now?"), ("t2", "Say: I will dance."), ("t1", "What now?"), ("t2", "Hm?")),
)  # fmt: skip


async def _promised(answer: Any) -> str | None:
    for talk in _TALKS:
        offered: list[str] = []

        def reply(request: Any, offered: list[str] = offered) -> str:
            shown = "\n".join(
                item_text(item) for item in request.items if item.get("role") not in ("user", "assistant")
            )
            offered[:] = [line.strip() for line in shown.splitlines() if "I will" in line]
            said = item_text(request.items[-1])
            return said.removeprefix("Say: ") if said.startswith("Say: ") else "Noted."

        config = AgentConfig(name="clerk", step=react(model="scripted"), memory=[answer()])
        harness = AgentHarness(config, model=ScriptedModel(reply))
        kept: dict[str, list[str]] = defaultdict(list)
        for number, (thread, said) in enumerate(talk, 1):
            answered = (await harness.execute(said, thread_id=thread, resource_id="ann")).text
            expected = kept[thread][-MOST_PROMISES:]
            if offered != expected:
                before = "; ".join(f"{thread}: {said!r}" for thread, said in talk[:number])
                return (
                    f"Thread and what the user says: {before}. Offered must be {expected}, your layer offers {offered}."
                )
            if answered.startswith("I will") and answered not in kept[thread]:
                kept[thread].append(answered)
    return None


# The tool, its arguments, and whether it must run. Shipping to Nowhere fails.
_ORDERS: Final[tuple[tuple[tuple[str, dict[str, Any], bool], ...], ...]] = (
    (("ship", {"country": "Peru"}, True), ("ship", {"country": "Peru"}, False), ("ship", {"country": "Oman"}, True)),
    (("ship", {"country": "Peru"}, True), ("ship", {"country": "Peru", "parcels": 2}, False)),
    (("ship", {"country": "Nowhere"}, True), ("ship", {"country": "Nowhere"}, True)),
    (("pay", {"currency": "sol"}, True), ("ship", {"country": "sol"}, True), ("pay", {"currency": "sol"}, False)),
    (
        ("ship", {"country": "Oman"}, True),
        ("pay", {"currency": "euro"}, True),
        ("ship", {"country": "Peru"}, True),
        ("pay", {"currency": "euro"}, False),
        ("ship", {"country": "Oman"}, False),
    ),
    (("greet", {"country": "Peru"}, True), ("greet", {"country": "Peru"}, True), ("ship", {"country": "Peru"}, True)),
)


def _office() -> tuple[dict[str, Callable[..., str]], list[str]]:
    """Return three tools by name, and the list of their calls."""
    ran: list[str] = []

    def ship(country: str, parcels: int = 1) -> str:
        """Send parcels."""
        ran.append("ship")
        if country == "Nowhere":
            raise LookupError(country)
        return f"{parcels} sent to {country}"

    def pay(currency: str) -> str:
        """Pay."""
        ran.append("pay")
        return f"paid in {currency}"

    def greet(country: str) -> str:
        """Say hello."""
        ran.append("greet")
        return f"hello, {country}"

    return {"ship": ship, "pay": pay, "greet": greet}, ran


def _once(answer: Any) -> str | None:
    for orders in _ORDERS:
        rules = RuleBook()
        answer(rules, "ship", "country")
        answer(rules, "pay", "currency")
        tools, ran = _office()
        guarded = dict(zip(tools, guard(list(tools.values()), rules, on_deny="return"), strict=True))
        made = []
        for name, args, runs in orders:
            made.append(f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})")
            before = len(ran)
            with suppress(LookupError):  # raised by the tool
                guarded[name](**args)
            if (len(ran) > before) != runs:
                return (
                    "The form is used for ship and country, and for pay and currency. Calls: "
                    f"{', '.join(made)}. The last one {'must' if runs else 'must not'} run."
                )
    return None


HOSTILE: Final = '<img src=x onerror="alert(1)">'

_WHERE: Final = Where("t1", "e1", 1)
_HISTORIES: Final[tuple[tuple[tuple[str, str], ...], ...]] = (
    (("pay", "denied"),),
    (("pay", "ok"), ("pay", "denied"), ("look", "ok"), ("pay", "denied"), ("look", "guided")),
    (("pay", "error"), ("look", "invalid_args"), ("look", "unknown"), ("pay", "ok")),
    ((HOSTILE, "denied"), ("a & b", "guided"), (HOSTILE, "denied")),
    (("pay", "guided"), ("pay", "ok"), ("pay", "guided"), ("pay", "denied")),
)


class _Place(NamedTuple):
    """The position of an event, as views receive it."""

    seq: int
    call: int | None = None


def _events(calls: tuple[tuple[str, str], ...]) -> list[RunEvent]:
    found: list[RunEvent] = [ModelCalled(_WHERE, 0.0, 0, "m", "agent", 0.0, "ok", ())]
    for at, (name, status) in enumerate(calls):
        # Two layers may judge one call, and events after a denial belong to the same refusal.
        action: Any = {"denied": "deny", "guided": "guide"}.get(status, "allow")
        decided = SteeringDecided(_WHERE, 0.0, "steering", "before_tool_call", name, {}, action, None, (), 0.0)
        found += [decided, decided, ToolCalled(_WHERE, 0.0, name, f"c{at}", {}, "", 0.0, status)]  # type: ignore[arg-type]
    return found


def _refusals(answer: Any) -> str | None:
    for calls in _HISTORIES:
        reading, counts = answer(), Counter[str]()
        snapshot = reading.snapshot
        shown = "; ".join(f"{name}: {status}" for name, status in calls)
        for seq, event in enumerate(_events(calls)):
            news = reading.take(event, _Place(seq))
            is_refusal = isinstance(event, ToolCalled) and event.status in ("denied", "guided")
            if isinstance(event, ToolCalled) and is_refusal:
                counts[event.name] += 1
            if isinstance(news, dict) != is_refusal:
                return (
                    f"Calls and how they ended: {shown}. At a {event.kind} event, number {seq}, `take` must return "
                    f"{'a mapping' if is_refusal else 'None'}; yours returns {news!r}."
                )
        if reading.snapshot is not snapshot:
            return "The snapshot must be the same object from beginning to end; yours is another one now."
        found = reading.snapshot.get("refused") if isinstance(reading.snapshot, dict) else None
        if found != dict(counts):
            return f"Calls and how they ended: {shown}. Refused: {json.dumps(counts)}; your snapshot has {found!r}."
        html = str(reading.to_html())
        for name, count in counts.items():
            if escape(name) not in html or str(count) not in html.replace(escape(name), ""):
                return f"Calls and how they ended: {shown}. The HTML must have {escape(name)!r} and {count}; yours is {html!r}."
        if HOSTILE in html or "a & b" in html:
            return f"A tool is called {HOSTILE!r}, and your HTML has that as markup: {html!r}"
    return None


EXTENDING: Final = (
    Exercise("8.1", "promises", _promised, (
        "Two hooks, as in section 1: store keeps, recall offers. hooks=nn.MemoryHooks(store=..., recall=...).",
        "Of p.log take the items whose role is 'assistant', and of these the texts that begin with 'I will'.",
        "Each once, the three newest: list(dict.fromkeys(texts))[-3:]. Keep them in the state: each thread has its own.",
    )),
    Exercise("8.2", "once_for_each", _once, (
        "A rule as a function, on 'before_tool_call' and for [tool]; compare past.args[argument] with the call's.",
        "past.name must be the tool, and past.status 'ok': a call that failed has done nothing.",
        "Give the rule an id with the tool's name in it, or the second use replaces the first.",
    )),
    Exercise("8.3", "Refusals", _refusals, (
        "ToolCounts in section 3 is nearly it: look at event.kind, then at event.status.",
        "Change the mapping that is in the snapshot; do not make a new one. Without a refusal take returns None.",
        "In to_html write escape(name), and the count beside it.",
    )),
)  # fmt: skip
