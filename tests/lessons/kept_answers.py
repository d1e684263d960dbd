"""Answers that learners gave or would give: right ones, and wrong ones that a check must not take for right.

The stub and the solution of each exercise stand in its lesson and are tried as well.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import noetic_nb as nn
from noetic_nb.memory import RecallParams, StoreParams
from tests.lessons import kept_attacks, kept_extending, kept_measuring, kept_watching


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


# 2.1: the bill of a conversation


def bill(instructions: int, turns: list[tuple[int, int]], *, last: bool = False, answers: bool = True) -> int:
    total, before = 0, instructions
    for question, reply in turns:
        total += before + question + (reply if last else 0)
        before += question + (reply if answers else 0)
    return total


def bill_from_the_end(instructions: int, turns: list[tuple[int, int]]) -> int:
    n = len(turns)
    return n * instructions + sum(q * (n - at) + a * (n - at - 1) for at, (q, a) in enumerate(turns))


# 2.2: what is cached


def from_cache(before: Any, now: Any, least: int, step: int, *, over: int = 0, of: int | None = None) -> int:
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False))
    return whole(sum(part[1] for part, _ in alike), least + over, step, of)


def whole(shared: int, least: int, step: int, of: int | None = None) -> int:
    base = least if of is None else of
    return 0 if shared < least else base + (shared - base) // step * step


def by_counting_down(before: Any, now: Any, least: int, step: int) -> int:
    shared = 0
    for at in range(len(now)):
        if now[: at + 1] != before[: at + 1]:
            break
        shared += now[at][1]
    held = least
    while held + step <= shared:
        held += step
    return held if shared >= least else 0


# 2.3: arrange it


def arranged(steady: Any, changing: Any, *, order: str = "cache", last: Any = None) -> dict[str, Any]:
    late = changing if last is None else last
    first = [layer for layer in (*steady, *changing) if layer not in late]
    return {"memory": [*first, *[layer.placed("suffix") for layer in late]], "projection": {"order": order}}


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


# 5.1: an end for sure


def repeated(*ends: Any, together: Any = nn.until.any) -> Any:
    """Return an answer whose loop ends where one of these says so, each a function of `accepts` and `most`."""
    return lambda work, accepts, most: nn.loop("try", [work], until=together(*[end(accepts, most) for end in ends]))


def accepted(accepts: Any, most: int) -> Any:
    return nn.until.verified(accepts)


def refused(accepts: Any, most: int) -> Any:
    return nn.until.verified(lambda output: not accepts(output))


def rounds(more: int = 0) -> Any:
    return lambda accepts, most: nn.until.max_steps(most + more)


# 5.2: the jury


def jury(count: Callable[[list[Any]], Any], mode: Any = "settle") -> Any:
    """Return an answer that counts the votes of those who have one."""

    def merge(outcomes: Any, ctx: Any) -> Any:
        votes = [each["value"] for each in outcomes if each["status"] == "fulfilled"] if mode == "settle" else outcomes
        return count(list(votes))

    return lambda jurors: nn.fork("jury", mode=mode, paths=jurors, merge=None if mode == "race" else merge)


def most_common(votes: list[Any]) -> Any:
    return Counter(votes).most_common(1)[0][0]


def failures_vote(jurors: Any) -> Any:
    return nn.fork(
        "jury",
        mode="settle",
        paths=jurors,
        merge=lambda each, ctx: most_common([one.get("value") for one in each]) or "-",
    )


def by_arrival(jurors: Any) -> Any:
    """Count in the order in which jurors end."""
    said: list[Any] = []

    def heard(juror: Any) -> Any:
        return nn.loop(juror.id + "-heard", [juror, nn.step.run("hear", hear)], until=nn.until.max_steps(1))

    def hear(word: Any, ctx: Any) -> Any:
        said.append(word)
        return word

    return nn.fork("jury", mode="settle", paths=[*map(heard, jurors)], merge=lambda each, ctx: most_common(said))


# 5.3: pay once


def named(name: Callable[[float, Any], Any]) -> Any:
    """Return an answer that gives each payment a name, and makes no payment twice that has the same one."""

    def charge(bank: Any, amount: float, ctx: Any) -> None:
        key = name(amount, ctx)
        if all(key != known for known, _ in bank):
            bank.append((key, amount))

    return charge


def by_dict(bank: Any, amount: float, ctx: Any) -> None:
    paid = dict(bank)
    paid.setdefault(ctx.idempotency_key, amount)
    bank[:] = paid.items()


def last_only(bank: Any, amount: float, ctx: Any) -> None:
    if not bank or bank[-1][1] != amount:
        bank.append((ctx.idempotency_key, amount))


def inverted(bank: Any, amount: float, ctx: Any) -> None:
    if ctx.idempotency_key in dict(bank):
        bank.append((ctx.idempotency_key, amount))


# 6.1: what is certain


def certain(
    calls: Any, denies: Any, *, more: int = 0, before: Callable[[Any, int], Any] = lambda calls, at: calls[:at]
) -> Any:
    refused = [at for at, name in enumerate(calls) if denies(name, before(calls, at))]
    return (refused[0] + more if refused else len(calls)), len(refused)


def certain_one_by_one(calls: Any, denies: Any) -> Any:
    sure, refused, seen = 0, 0, list[str]()
    for name in calls:
        refused += bool(denies(name, list(seen)))
        sure += not refused
        seen.append(name)
    return sure, refused


def lived(calls: Any, denies: Any) -> Any:
    """Take what is denied for what was never asked."""
    sure, refused, seen = 0, 0, list[str]()
    for name in calls:
        if denies(name, list(seen)):
            refused += 1
        else:
            seen.append(name)
        sure += not refused
    return sure, refused


# 6.2: a difference in pairs


def difference(
    before: Any, after: Any, *, sign: int = 1, known: Callable[[Any], bool] = lambda x: x is not None
) -> Any:
    changes = [sign * (b - a) for a, b in zip(before, after, strict=True) if known(a) and known(b)]
    return (sum(changes) / len(changes) if changes else None), len(changes)


def difference_by_place(before: Any, after: Any) -> Any:
    places = [at for at in range(len(before)) if None not in (before[at], after[at])]
    if not places:
        return None, 0
    return sum(after[at] for at in places) / len(places) - sum(before[at] for at in places) / len(places), len(places)


def difference_of_means(before: Any, after: Any) -> Any:
    known = [[x for x in side if x is not None] for side in (before, after)]
    pairs = difference(before, after)[1]
    return (sum(known[1]) / len(known[1]) - sum(known[0]) / len(known[0]) if pairs else None), pairs


# 6.3: where to fork


def call_of(run: Any, tool: str, *, more: int = 0, begin: int = 1) -> Any:
    calls = [[item.get("name") for item in call.items] for call in run.select(nn.events.ModelCalled)]
    found = [number for number, names in enumerate(calls) if tool in names]
    return found[:begin][-1] + more if found else None


def call_of_with_next(run: Any, tool: str) -> Any:
    asks = (
        any(item["type"] == "function_call" and item["name"] == tool for item in call.items)
        for call in run.select(nn.events.ModelCalled)
    )
    return next((number for number, asked in enumerate(asks) if asked), None)


def place_among_tools(run: Any, tool: str) -> Any:
    names = [call.name for call in run.select(nn.events.ToolCalled)]
    return names.index(tool) if tool in names else None


def turn_of(run: Any, tool: str) -> Any:
    return next((call.where.turn - 1 for call in run.select(nn.events.ToolCalled) if call.name == tool), None)


def named_anywhere(run: Any, tool: str) -> Any:
    calls = run.select(nn.events.ModelCalled)
    return next((number for number, call in enumerate(calls) if tool in str(call.items)), None)


RIGHT: dict[str, dict[str, Any]] = {
    "1.1": {"from the newest backwards": sent_from_the_end, "sums from the end": sent_by_sums},
    "1.2": {"semantic recall": recall(60), "a layer of one's own": own_layer(lambda text: "I always want" in text)},
    "2.1": {"adding up": bill, "counting how often": bill_from_the_end},
    "2.2": {"takewhile": from_cache, "step by step": by_counting_down},
    "2.3": {
        "placed": arranged,
        "replaced, and a policy": lambda steady, changing: {
            "memory": [*(replace(layer, placement="suffix") for layer in changing), *steady],
            "projection": nn.ProjectionPolicy(order="cache"),
        },
    },
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
    "3.4": {
        "a sequence rule": lambda rules: rules.only_from_user(
            "send_money", "recipient", trust="list_payments.recipient[sender=me]"
        ),
        "a second name for the tool": lambda rules: rules.only_from_user(
            "send_money", "recipient", trust=["tool:list_payments.recipient[sender=me]", "user"]
        ),
    },
    "4.1": {
        "three marks": worse,
        "by max": lambda marks: len(marks) > 2 and max(0, marks[-3] - marks[-1]) >= 0.15 and sum(marks[-3:]) < 1.5,
    },
    "4.2": {"listing": by_listing, "sorting": by_sorting},
    "4.3": {"slices": saved, "call by call": saved_one_by_one},
    "5.1": {
        "any": repeated(accepted, rounds()),
        "custom": lambda work, accepts, most: nn.loop(
            "try",
            [work],
            until=nn.until.custom(lambda seen: accepts(seen.last_output) or seen.step_count >= most),
            max_iterations=most,
        ),
    },
    "5.2": {"the first of equals": jury(lambda votes: max(votes, key=votes.count)), "Counter": jury(most_common)},
    "5.3": {"a list of names": named(lambda amount, ctx: ctx.idempotency_key), "a dictionary": by_dict},
    "6.1": {"by place": certain, "one by one": certain_one_by_one},
    "6.2": {"changes": difference, "two means of the same pairs": difference_by_place},
    "6.3": {"a list": call_of, "next": call_of_with_next},
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
        "the first message": own_layer(lambda text: True),
        "three known seats": own_layer(lambda text: any(seat in text for seat in ("window", "aisle", "middle"))),
        "a score that nothing reaches": recall(60, min_score=0.99),
        "no list": lambda: None,
    },
    "2.1": {
        "off by one": lambda instructions, turns: bill(instructions, turns[:-1]),
        "inverted": lambda instructions, turns: bill(instructions, [(reply, asked) for asked, reply in turns]),
        "hard-coded": lambda instructions, turns: 270,
        "right value by the wrong rule": lambda instructions, turns: (
            len(turns) * (instructions + turns[-1][0]) + 20 * sum(range(len(turns))) - 10 if turns else 0
        ),
        "half of the last call": lambda instructions, turns: len(turns) * (instructions + sum(map(sum, turns))) // 2,
        "without answers": lambda instructions, turns: bill(instructions, turns, answers=False),
        "the answer of the same call": lambda instructions, turns: bill(instructions, turns, last=True),
        "the last call": lambda instructions, turns: (
            instructions + sum(map(sum, turns)) - (turns[-1][1] if turns else 0)
        ),
    },
    "2.2": {
        "off by one": lambda before, now, least, step: from_cache(before, now, least, step, over=1),
        "inverted": lambda before, now, least, step: (
            sum(size for _, size in now) - from_cache(before, now, least, step)
        ),
        "hard-coded": lambda before, now, least, step: 1024,
        "right value by the wrong rule": lambda before, now, least, step: from_cache(before, now, least, step, of=0),
        "parts in any place": lambda before, now, least, step: whole(
            sum(part[1] for part in now if part in before), least, step
        ),
        "sizes alone": lambda before, now, least, step: from_cache(
            [(0, size) for _, size in before], [(0, size) for _, size in now], least, step
        ),
        "no steps": lambda before, now, least, step: from_cache(before, now, least, 1),
        "texts alone": lambda before, now, least, step: whole(
            sum(b[1] for a, b in itertools.takewhile(lambda p: p[0][0] == p[1][0], zip(before, now, strict=False))),
            least,
            step,
        ),
    },
    "2.3": {
        "off by one": lambda steady, changing: arranged(steady, changing, last=changing[:1]),
        "inverted": lambda steady, changing: arranged(steady, changing, last=steady),
        "hard-coded": lambda steady, changing: arranged(
            steady, changing, last=[layer for layer in changing if layer.id == "turn-count"]
        ),
        "right value by the wrong rule": lambda steady, changing: arranged(steady, changing, last=[*steady, *changing]),
        "placed without an order": lambda steady, changing: arranged(steady, changing, order="slot"),
        "an order without places": lambda steady, changing: arranged(steady, changing, last=[]),
        "without what changes": lambda steady, changing: arranged(steady, []),
        "in the place of layers": lambda steady, changing: [*steady, *changing],
    },
    "3.1": {
        "off by one": book(when="tool.args.amount >= 100.0"),
        "inverted": book(when="tool.args.amount <= 100.0"),
        "hard-coded": book(when="tool.args.amount == 5000.0"),
        "right value by the wrong rule": python(lambda call: str(call.tool_args["amount"]) > "100"),
        "every tool": book(when="has(tool.args.amount) && tool.args.amount > 100.0", tools=None),
        "amounts of the page": book(when="tool.args.amount in [100.01, 1000.0, 5000.0]"),
        "whole dollars": python(lambda call: int(call.tool_args["amount"]) > 100),
        "raises": python(lambda call: call.tool_args["sum"] > 100),
    },
    "3.2": {
        "off by one": python(lambda call: paid(call, "ok") + amount(call) >= 100),
        "inverted": python(lambda call: paid(call, "ok") + amount(call) <= 100),
        "hard-coded": lambda rules: rules.at_most(1, "send_money"),
        "right value by the wrong rule": python(lambda call: paid(call) + amount(call) > 100),
        "payments that failed": python(lambda call: paid(call, "ok", "error") + amount(call) > 100),
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
    "3.4": {
        "off by one": lambda rules: rules.only_from_user(
            "send_money", "recipient", trust="list_payments.sender[recipient=me]"
        ),
        "inverted": python(lambda call: call.origin(call.tool_args["recipient"]).kind == "user"),
        "hard-coded": book(when='tool.args.recipient == "XX99000000000000000007"'),
        "right value by the wrong rule": lambda rules: rules.only_from_user(
            "send_money", "recipient", trust="list_payments.recipient"
        ),
        "nobody but the user": lambda rules: rules.only_from_user("send_money", "recipient"),
        "the contacts as well": lambda rules: rules.only_from_user(
            "send_money", "recipient", trust=["list_payments.recipient[sender=me]", "list_contacts.account"]
        ),
        "the whole list": lambda rules: rules.only_from_user("send_money", "recipient", trust="list_payments"),
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
    "5.1": {
        "off by one": repeated(accepted, rounds(-1)),
        "inverted": repeated(refused, rounds()),
        "hard-coded": lambda work, accepts, most: nn.loop("try", [work], until=nn.until.max_steps(3)),
        "right value by the wrong rule": repeated(accepted, rounds(), together=nn.until.all),
        "no end for sure": repeated(accepted),
        "always to the end": repeated(rounds()),
        "fails at the end": lambda work, accepts, most: nn.loop(
            "try", [work], until=nn.until.verified(accepts), max_iterations=most
        ),
        "one round more": repeated(accepted, rounds(1)),
    },
    "5.2": {
        "off by one": jury(lambda votes: most_common(votes[1:] or votes)),
        "inverted": jury(lambda votes: min(votes, key=votes.count)),
        "hard-coded": lambda jurors: nn.step.run("jury", lambda text, ctx: "pay"),
        "right value by the wrong rule": by_arrival,
        "all": jury(most_common, mode="all"),
        "the fastest": jury(most_common, mode="race"),
        "failures vote": failures_vote,
        "the last of equals": jury(lambda votes: max(reversed(votes), key=votes.count)),
        "by the alphabet": jury(lambda votes: max(sorted(votes), key=votes.count)),
        "nobody is asked": lambda jurors: jurors[0],
    },
    "5.3": {
        "off by one": named(lambda amount, ctx: (ctx.idempotency_key, ctx.id, amount, object())),
        "inverted": inverted,
        "hard-coded": lambda bank, amount, ctx: bank.append((0, amount)) if not bank else None,
        "right value by the wrong rule": named(lambda amount, ctx: amount),
        "the turn's name": named(lambda amount, ctx: ctx.id),
        "turn and amount": named(lambda amount, ctx: (ctx.id, amount)),
        "the call's name": named(lambda amount, ctx: ctx.call_id),
        "not the last amount again": last_only,
    },
    "6.1": {
        "off by one": lambda calls, denies: certain(calls, denies, more=1),
        "inverted": lambda calls, denies: certain(calls, lambda name, before: not denies(name, before)),
        "hard-coded": lambda calls, denies: (3, 3),
        "right value by the wrong rule": lived,
        "itself before it": lambda calls, denies: certain(calls, denies, before=lambda calls, at: calls[: at + 1]),
        "all of the run": lambda calls, denies: certain(calls, denies, before=lambda calls, at: calls),
        "those that are not denied": lambda calls, denies: (
            len(calls) - certain(calls, denies)[1],
            certain(calls, denies)[1],
        ),
        "up to the first": lambda calls, denies: (certain(calls, denies)[0], min(1, certain(calls, denies)[1])),
    },
    "6.2": {
        "off by one": lambda before, after: difference(before[:-1], after[:-1]),
        "inverted": lambda before, after: difference(before, after, sign=-1),
        "hard-coded": lambda before, after: (1.0, 3),
        "right value by the wrong rule": difference_of_means,
        "nothing is nought": lambda before, after: difference([x or 0 for x in before], [x or 0 for x in after]),
        "nought is nothing": lambda before, after: difference(before, after, known=bool),
        "the sum": lambda before, after: (
            sum(b - a for a, b in zip(before, after, strict=True) if None not in (a, b)),
            difference(before, after)[1],
        ),
        "one number": lambda before, after: difference(before, after)[0],
    },
    "6.3": {
        "off by one": lambda run, tool: call_of(run, tool, more=1),
        "inverted": lambda run, tool: call_of(run, {"look": "refund", "refund": "look"}.get(tool, tool)),
        "hard-coded": lambda run, tool: 2,
        "right value by the wrong rule": lambda run, tool: call_of(run, tool, begin=99),
        "among calls of tools": place_among_tools,
        "the turn": turn_of,
        "texts as well": named_anywhere,
        "the first item only": lambda run, tool: next(
            (n for n, call in enumerate(run.select(nn.events.ModelCalled)) if call.items[0].get("name") == tool), None
        ),
    },
}

RIGHT |= kept_watching.RIGHT | kept_extending.RIGHT | kept_measuring.RIGHT | kept_attacks.RIGHT
WRONG |= kept_watching.WRONG | kept_extending.WRONG | kept_measuring.WRONG | kept_attacks.WRONG
