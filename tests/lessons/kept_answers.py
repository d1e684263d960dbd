"""Answers that learners gave or would give: right ones, and wrong ones that a check must not take for right.

The stub and the solution of each exercise stand in its lesson and are tried as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import noetic_nb as nn
from noetic_nb.memory import RecallParams, StoreParams
from tests.lessons import kept_extending, kept_watching


def book(**rule: Any) -> Callable[[nn.RuleBook], Any]:
    return lambda rules: rules.when(rule["when"], id="r", tools=rule.get("tools", ["send_money"]))


def python(decide: Callable[[Any], bool], tools: Any = ("send_money",)) -> Callable[[nn.RuleBook], Any]:
    def answer(rules: nn.RuleBook) -> None:
        @rules.rule(on="before_tool_call", tools=tools)
        def rule(call: Any) -> Any:
            return nn.deny("No.") if decide(call) else None

    return answer


def amount(call: Any) -> float:
    return float(call.tool_args["amount"])


def paid(call: Any, *statuses: str) -> float:
    return float(
        sum(
            past.args["amount"]
            for past in call.history
            if past.name == "send_money" and (not statuses or past.status in statuses)
        )
    )


# 1.1: which items are sent


def sent_from_the_end(sizes: list[int], room: int, *, strict: bool = False, skip: bool = False) -> list[int]:
    kept: list[int] = []
    for position in range(len(sizes) - 1, -1, -1):
        if sizes[position] < room or (sizes[position] == room and not strict):
            kept.append(position)
            room -= sizes[position]
        elif not skip:
            break
    return kept[::-1]


def sent_from_the_start(sizes: list[int], room: int) -> list[int]:
    sums = itertools.accumulate(sizes)
    return [position for position, total in enumerate(sums) if total <= room]


def sent_by_sums(sizes: list[int], room: int) -> list[int]:
    sums = list(itertools.accumulate(reversed(sizes)))
    return list(range(len(sizes) - sum(total <= room for total in sums), len(sizes)))


# 1.2: layers that keep a seat


def recall(most: int, **more: Any) -> Callable[[], list[nn.MemoryLayer]]:
    return lambda: [nn.semantic_recall(budget={"min": 0, "max": most}, **{"min_score": 0.05, **more})]


def own_layer(keeps: Callable[[str], bool], newest: bool = False) -> Callable[[], list[nn.MemoryLayer]]:
    """Return a layer of one's own, which keeps one sentence of those that it is told to keep."""

    def store(p: StoreParams) -> Any:
        said = ["".join(part.get("text", "") for part in item.get("content", ())) for item in p.log]
        kept = [text for text in said if keeps(text)]
        return {"state": kept[-1:] if newest else kept[:1]}

    def offer(p: RecallParams) -> str | None:
        return f"<said>{p.state[0]}</said>" if p.state else None

    hooks = nn.MemoryHooks(store=store, recall=offer)
    return lambda: [nn.MemoryLayer(id="seat", slot=120, scope="thread", budget={"min": 40, "max": 60}, hooks=hooks)]


# 4.1: is it getting worse


def worse(marks: list[float], *, drop: float = 0.15, last: int = 3) -> bool:
    window = marks[-last:]
    return len(marks) >= last and window[0] - window[-1] >= drop and sum(window) / last < 0.5


# 4.2: the best threshold


def by_listing(good: list[int], failed: list[int], allowed: float, *, more: int = 0) -> int | None:
    legal = [each for each in failed if sum(count >= each + more for count in good) <= allowed * len(good)]
    return max(legal, key=lambda each: sum(count >= each for count in failed)) if legal else None


def by_sorting(good: list[int], failed: list[int], allowed: float) -> int | None:
    ranked = sorted(good, reverse=True)
    free = int(allowed * len(good) + 1e-9)
    bound = ranked[free] if free < len(ranked) else -1
    return min((each for each in failed if each > bound), default=None)


def by_failed_share(good: list[int], failed: list[int], allowed: float) -> int | None:
    return min((each for each in good if sum(c >= each for c in failed) <= allowed * len(failed)), default=None)


def by_best_difference(good: list[int], failed: list[int], allowed: float) -> int | None:
    return max(failed, key=lambda each: sum(c >= each for c in failed) - sum(c >= each for c in good))


# 4.3: saved and lost


def saved(runs: list[Any], threshold: int, *, after: int = 0, all_runs: bool = False) -> tuple[int, int]:
    return (
        sum(sum(tokens[threshold + after :]) for good, tokens in runs if all_runs or not good),
        sum(good and len(tokens) >= threshold for good, tokens in runs),
    )


def saved_one_by_one(runs: list[Any], threshold: int) -> list[int]:
    tokens_saved = lost = 0
    for good, tokens in runs:
        for number, count in enumerate(tokens, 1):
            if number == threshold and good:
                lost += 1
            if number > threshold and not good:
                tokens_saved += count
    return [tokens_saved, lost]


RIGHT: dict[str, dict[str, Any]] = {
    "1.1": {"from the newest backwards": sent_from_the_end, "sums from the end": sent_by_sums},
    "1.2": {"semantic recall": recall(60), "a layer of one's own": own_layer(lambda text: "I always want" in text)},
    "3.1": {
        "an expression": book(when="tool.args.amount > 100.0"),
        "a function": python(lambda call: amount(call) > 100),
    },
    "3.2": {
        "calls that were made": python(lambda call: paid(call, "ok") + amount(call) > 100),
        "what is left of the limit": python(lambda call: amount(call) > 100 - paid(call, "ok", "pending")),
    },
    "3.3": {
        "a sequence rule": lambda rules: rules.only_from_user("send_money", "recipient", trust="list_contacts.account"),
        "a function": python(
            lambda call: (
                not (
                    (origin := call.origin(call.tool_args["recipient"])).kind == "user"
                    or (origin.kind, origin.name, origin.field) == ("tool", "list_contacts", "account")
                )
            )
        ),
    },
    "4.1": {
        "three marks": worse,
        "by max": lambda marks: len(marks) > 2 and max(0, marks[-3] - marks[-1]) >= 0.15 and sum(marks[-3:]) < 1.5,
    },
    "4.2": {"listing": by_listing, "sorting": by_sorting},
    "4.3": {"slices": saved, "call by call": saved_one_by_one},
}

WRONG: dict[str, dict[str, Any]] = {
    "1.1": {
        "off by one": lambda sizes, room: sent_from_the_end(sizes, room, strict=True),
        "inverted": sent_from_the_start,
        "hard-coded": lambda sizes, room: [1, 2, 3],
        "right value by the wrong rule": lambda sizes, room: sent_from_the_end(sizes, room, skip=True),
        "not even a list": lambda sizes, room: len(sent_from_the_end(sizes, room)),
        "raises": lambda sizes, room: sizes[len(sizes)],
    },
    "1.2": {
        "off by one": recall(17),
        "inverted": own_layer(lambda text: "trip" in text, newest=True),
        "hard-coded": lambda: [nn.static_content("I always want a window seat.", budget={"min": 0, "max": 60})],
        "right value by the wrong rule": recall(150),
        "a score that nothing reaches": recall(60, min_score=0.99),
        "no list": lambda: None,
    },
    "3.1": {
        "off by one": book(when="tool.args.amount >= 100.0"),
        "inverted": book(when="tool.args.amount <= 100.0"),
        "hard-coded": book(when="tool.args.amount == 5000.0"),
        "right value by the wrong rule": python(lambda call: str(call.tool_args["amount"]) > "100"),
        "every tool": book(when="has(tool.args.amount) && tool.args.amount > 100.0", tools=None),
        "whole dollars": python(lambda call: int(call.tool_args["amount"]) > 100),
        "raises": python(lambda call: call.tool_args["sum"] > 100),
    },
    "3.2": {
        "off by one": python(lambda call: paid(call, "ok") + amount(call) >= 100),
        "inverted": python(lambda call: paid(call, "ok") + amount(call) <= 100),
        "hard-coded": lambda rules: rules.at_most(1, "send_money"),
        "right value by the wrong rule": python(lambda call: paid(call) + amount(call) > 100),
        "each on its own": book(when="tool.args.amount > 100.0"),
        "what came before only": python(lambda call: paid(call, "ok") > 100),
        "every tool's amount": python(
            lambda call: (
                sum(past.args.get("amount", 0) for past in call.history if past.status == "ok") + amount(call) > 100
            )
        ),
    },
    "3.3": {
        "off by one": lambda rules: rules.only_from_user("send_money", "recipient", trust="list_contacts.note"),
        "inverted": python(lambda call: call.origin(call.tool_args["recipient"]).kind == "user"),
        "hard-coded": book(when='tool.args.recipient == "XX99000000000000000007"'),
        "right value by the wrong rule": lambda rules: rules.only_from_user(
            "send_money", "recipient", trust="list_contacts"
        ),
        "nobody but the user": lambda rules: rules.only_from_user("send_money", "recipient"),
        "another argument": lambda rules: rules.only_from_user("send_money", "amount", trust="list_contacts.account"),
        "a list of good accounts": python(
            lambda call: call.tool_args["recipient"] not in ("AT611904300234573201", "DE89370400440532013000")
        ),
    },
    "4.1": {
        "off by one": lambda marks: worse(marks, drop=0.1500001),
        "inverted": lambda marks: worse([1 - mark for mark in marks]),
        "hard-coded": lambda marks: marks[:2] == [0.75, 0.5],
        "right value by the wrong rule": lambda marks: len(marks) > 2 and marks[-1] < marks[-3] and marks[-1] < 0.5,
        "all marks": lambda marks: len(marks) > 2 and marks[0] - marks[-1] >= 0.15 and sum(marks) / len(marks) < 0.5,
        "a mean that may be a half": lambda marks: (
            len(marks) > 2 and marks[-3] - marks[-1] >= 0.15 and sum(marks[-3:]) / 3 <= 0.5
        ),
        "two marks": lambda marks: worse(marks, last=2),
        "the lowest instead of the newest": lambda marks: (
            len(marks) > 2 and marks[-3] - min(marks[-3:]) >= 0.15 and sum(marks[-3:]) / 3 < 0.5
        ),
        "a number": lambda marks: int(worse(marks)),
    },
    "4.2": {
        "off by one": lambda good, failed, allowed: by_listing(good, failed, allowed, more=1),
        "inverted": by_failed_share,
        "hard-coded": lambda good, failed, allowed: 12,
        "right value by the wrong rule": by_best_difference,
        "the highest": lambda good, failed, allowed: max(failed),
        "a good run's number": lambda good, failed, allowed: max(good) + 1,
    },
    "4.3": {
        "off by one": lambda runs, threshold: saved(runs, threshold, after=-1),
        "inverted": lambda runs, threshold: saved([(not good, tokens) for good, tokens in runs], threshold),
        "hard-coded": lambda runs, threshold: (160, 1),
        "right value by the wrong rule": lambda runs, threshold: saved(runs, threshold, all_runs=True),
        "lost only beyond the threshold": lambda runs, threshold: (
            saved(runs, threshold)[0],
            sum(good and len(tokens) > threshold for good, tokens in runs),
        ),
        "one number": lambda runs, threshold: saved(runs, threshold)[0],
    },
}

RIGHT |= kept_watching.RIGHT | kept_extending.RIGHT
WRONG |= kept_watching.WRONG | kept_extending.WRONG
