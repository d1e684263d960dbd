"""Kept answers to the exercises on agents of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import noetic_nb as nn

# 7.1: what a rule would have prevented


def harm(keeps: Callable[[Any], bool], *, skip: int = 0) -> Callable[[nn.Run], float]:
    def answer(run: nn.Run) -> float:
        rows = [row for row in run.to_frame("ledger").itertuples() if keeps(row)]
        return float(sum(row.args["amount"] for row in rows[skip:]))

    return answer


def paid_against_a_rule(row: Any) -> bool:
    return bool(row.tool_name == "refund" and row.action == "deny" and not row.enforced)


def harm_by_events(run: nn.Run) -> float:
    total = 0.0
    for event in run.events:
        if event.kind == "steering_decided" and event.tool_name == "refund":
            total += event.args["amount"] * (event.action == "deny") * (not event.enforced)
    return total


# 7.2: tools behind rules

NOTHING = "No such order."


def protect(decide: Callable[[Any], bool], **options: Any) -> Callable[[Any], Any]:
    def answer(tools: Any) -> Any:
        rules = nn.RuleBook()

        @rules.rule(on="before_tool_call", tools=["refund"])
        def known(call: Any) -> Any:
            return nn.deny("No.") if decide(call) else None

        return nn.guard(tools, rules, **{"on_deny": "return", **options})

    return answer


def looked(call: Any, *, order: bool = True, found: bool = True) -> bool:
    return any(
        past.name == "look_up"
        and (not order or past.args["order"] == call.tool_args["order"])
        and (not found or past.output != NOTHING)
        for past in call.history
    )


def big(call: Any) -> bool:
    return bool(call.tool_args["amount"] > 100)


def protect_by_condition(tools: Any) -> Any:
    rules = nn.RuleBook()
    rules.when("tool.args.amount > 100.0", id="small", tools=["refund"])
    seen = f'history.exists(h, h.name == "look_up" && h.args.order == tool.args.order && h.output != "{NOTHING}")'
    rules.when(f"!{seen}", id="known", tools=["refund"])
    return nn.guard(tools, rules, on_deny="return")


def protect_apart(tools: Any) -> Any:
    right = protect(lambda call: big(call) or not looked(call))
    return [right(tool) for tool in tools]


def protect_by_order(tools: Any) -> Any:
    rules = nn.RuleBook()
    rules.only("refund", after="look_up")
    rules.when("tool.args.amount > 100.0", id="small", tools=["refund"])
    return nn.guard(tools, rules, on_deny="return")


# 7.3: whose calls count together


def serve(key: Callable[[int, Any], Any]) -> Callable[[Any, Any], Any]:
    def answer(refund: Any, requests: Any) -> Any:
        sessions: dict[Any, Any] = {}
        answers = []
        for at, request in enumerate(requests):
            with sessions.setdefault(key(at, request), nn.guard_session()):
                answers.append(refund(*request[1:]))
        return answers

    return answer


def serve_one_after_the_other(refund: Any, requests: Any) -> Any:
    answers = dict.fromkeys(range(len(requests)), "")
    for customer in {request[0] for request in requests}:
        with nn.guard_session():
            answers |= {at: refund(*each[1:]) for at, each in enumerate(requests) if each[0] == customer}
    return list(answers.values())


def serve_by_name(refund: Any, requests: Any) -> Any:
    answers = []
    for customer, order, amount in requests:
        with nn.guard_session(customer):
            answers.append(refund(order, amount))
    return answers


def serve_until_it_changes(refund: Any, requests: Any) -> Any:
    answers, session, last = [], None, None
    for customer, order, amount in requests:
        if customer != last:
            session, last = nn.guard_session(), customer
        assert session is not None
        with session:
            answers.append(refund(order, amount))
    return answers


def serve_to(many: int) -> Callable[[Any, Any], Any]:
    def answer(refund: Any, requests: Any) -> Any:
        served: list[str] = []
        names: list[str] = []
        for customer, _, amount in requests:
            names.append(customer)
            served.append(f"{amount} refunded" if names.count(customer) <= many else "No more.")
        return served

    return answer


RIGHT: dict[str, dict[str, Any]] = {
    "7.1": {"rows": harm(paid_against_a_rule), "events": harm_by_events},
    "7.2": {"a function": protect(lambda call: big(call) or not looked(call)), "conditions": protect_by_condition},
    "7.3": {"sessions kept": serve(lambda at, request: request[0]), "one by one": serve_one_after_the_other},
}

WRONG: dict[str, dict[str, Any]] = {
    "7.1": {
        "off by one": harm(paid_against_a_rule, skip=1),
        "inverted": harm(lambda row: row.tool_name == "refund" and row.action != "deny" and not row.enforced),
        "hard-coded": lambda run: 500.0,
        "right value by the wrong rule": harm(
            lambda row: row.tool_name == "refund" and row.args["amount"] > 100 and not row.enforced
        ),
        "what was prevented, too": harm(lambda row: row.tool_name == "refund" and row.action == "deny"),
        "every tool": harm(lambda row: row.action == "deny" and not row.enforced),
        "guides, too": harm(lambda row: row.tool_name == "refund" and row.action != "allow" and not row.enforced),
    },
    "7.2": {
        "off by one": protect(lambda call: call.tool_args["amount"] >= 100 or not looked(call)),
        "inverted": protect(lambda call: not big(call) and looked(call)),
        "hard-coded": protect(lambda call: big(call) or call.tool_args["order"] != "A17"),
        "right value by the wrong rule": protect_by_order,
        "any order that was found": protect(lambda call: big(call) or not looked(call, order=False)),
        "what was not found, too": protect(lambda call: big(call) or not looked(call, found=False)),
        "guarded apart": protect_apart,
        "raised": protect(lambda call: big(call) or not looked(call), on_deny="raise"),
    },
    "7.3": {
        "off by one": serve_to(1),
        "inverted": serve(lambda at, request: request[1]),
        "hard-coded": serve_to(2),
        "right value by the wrong rule": serve_by_name,
        "anew for each request": serve(lambda at, request: at),
        "until the next customer": serve_until_it_changes,
    },
}
