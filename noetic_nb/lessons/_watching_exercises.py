"""Exercises on your own agents: the effect of a rule, tools behind rules, and the calls that count together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from noetic_nb.events import SteeringDecided, Where
from noetic_nb.interop import guard
from noetic_nb.lessons._exercise import Exercise
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook

# The decision on each call: tool, amount, action, and whether it was enforced.
_LEDGERS: Final[tuple[tuple[tuple[str, float, str, bool], ...], ...]] = (
    (("refund", 500.0, "deny", False),),
    (("refund", 500.0, "allow", False), ("refund", 40.0, "deny", False), ("refund", 2.5, "deny", False)),
    (("refund", 500.0, "deny", True), ("refund", 30.0, "deny", False)),
    (("quote", 700.0, "deny", False), ("refund", 20.0, "deny", False)),
    (("refund", 60.0, "guide", False), ("refund", 9.0, "deny", False)),
    (("refund", 50.0, "deny", False), ("refund", 50.0, "deny", False), ("refund", 800.0, "allow", False)),
    (("refund", 900.0, "deny", True),),
    (("refund", 15.0, "allow", False),),
)


def _judged(calls: Sequence[tuple[str, float, str, bool]]) -> Run:
    where = Where("t1", "e1", 1)
    decided = [
        SteeringDecided(
            where, float(at), "steering", "before_tool_call", tool, {"order": f"A{at}", "amount": amount}, action,  # type: ignore[arg-type]
            None, (), 0.0, enforced=enforced,
        )
        for at, (tool, amount, action, enforced) in enumerate(calls)
    ]  # fmt: skip
    return Run("judged", events=decided)


def _harm(answer: Any) -> str | None:
    for calls in _LEDGERS:
        expected = sum(
            amount for tool, amount, action, enforced in calls if tool == "refund" and action == "deny" and not enforced
        )
        given = answer(_judged(calls))
        if isinstance(given, bool) or given != expected:
            shown = "; ".join(
                f"{tool}({amount:g}) {action}{'' if enforced else ', not enforced'}"
                for tool, amount, action, enforced in calls
            )
            return f"The ledger has {shown}: {expected:g} euros were paid, your answer is {given!r}."
    return None


_KNOWN: Final = {"A17": "paid 80 euros", "B7": "paid 900 euros, lost", "C3": "paid 20 euros"}

# The calls in order, and whether each must run.
_CALLS: Final[tuple[tuple[tuple[str, str, float, bool], ...], ...]] = (
    (("look_up", "A17", 0, True), ("refund", "A17", 50, True), ("refund", "A17", 500, False)),
    (("refund", "A17", 50, False), ("look_up", "A17", 0, True), ("refund", "A17", 50, True)),
    (("look_up", "A17", 0, True), ("refund", "B7", 50, False), ("look_up", "B7", 0, True), ("refund", "A17", 5, True)),
    (("look_up", "Z9", 0, True), ("refund", "Z9", 10, False)),
    (("look_up", "C3", 0, True), ("refund", "C3", 100, True), ("refund", "C3", 100.5, False)),
    (("look_up", "B7", 0, True), ("look_up", "B7", 0, True), ("refund", "B7", 99.5, True), ("refund", "C3", 1, False)),
)


def _shop() -> tuple[list[Callable[..., str]], list[str]]:
    """Return two tools, and the list of their calls."""
    ran: list[str] = []

    def look_up(order: str) -> str:
        """Return the facts about an order."""
        ran.append("look_up")
        return _KNOWN.get(order, "No such order.")

    def refund(order: str, amount: float) -> str:
        """Pay money back."""
        ran.append("refund")
        return f"{amount:g} euros refunded for {order}."

    return [look_up, refund], ran


def _protected(answer: Any) -> str | None:
    for calls in _CALLS:
        tools, ran = _shop()
        look_up, refund = answer(tools)
        made = []
        for name, order, amount, runs in calls:
            shown = f"{name}({order!r})" if name == "look_up" else f"{name}({order!r}, {amount:g})"
            made.append(shown)
            before = len(ran)
            try:
                result = look_up(order) if name == "look_up" else refund(order, float(amount))
            except Exception as error:
                return f"After {', '.join(made)}: the last call raised {type(error).__name__}. A refusal is returned."
            if (len(ran) > before) != runs or not isinstance(result, str):
                return f"After {', '.join(made)}: the last call {'must' if runs else 'must not'} run, and answered {result!r}."
    return None


# A limit, and the customers who ask for a refund, in order.
_QUEUES: Final[tuple[tuple[int, tuple[str, ...]], ...]] = (
    (2, ("Ann", "Ann", "Bob", "Ann", "Bob", "Bob")),
    (1, ("Ann", "Bob", "Cleo", "Bob", "Ann")),
    (2, ("Ann", "Bob", "Ann", "Bob", "Ann", "Bob")),
    (3, ("Dan", "Dan", "Dan", "Dan")),
    (2, ("Eve",)),
    (1, ()),
)


def _served(answer: Any) -> str | None:
    for most, customers in _QUEUES:
        rules = RuleBook()
        rules.at_most(most, "refund", guidance="No more.")
        (_, refund), _ = _shop()
        # All ask about one order, so that only the customer matters.
        requests = [(customer, "A17", 10.0) for customer in customers]
        expected = [customers[:at].count(customer) < most for at, customer in enumerate(customers)]
        given = answer(guard(refund, rules, on_deny="return"), requests)
        if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
            return f"Return a list with the answer to each request; yours is {given!r}."
        paid = ["refunded" in each for each in given]
        if paid != expected:
            return (
                f"{most} for each customer, and {', '.join(customers) or 'nobody'} ask: "
                f"paid must be {expected}, with your answer it is {paid}."
            )
    return None


WATCHING: Final = (
    Exercise("7.1", "harm", _harm, (
        "One row of the ledger is one decision. Which three columns say that a refund was denied and paid all the same?",
        "action == 'deny' and not enforced: the rule said no, and nobody acted on it. A guide or an allow is no denial.",
        "Add up args['amount'] of those rows; with none of them that is 0.",
    )),
    Exercise("7.2", "protect", _protected, (
        "Guard both tools in one call of nn.guard: tools that are guarded apart do not know each other's calls.",
        "A rule as a function, on 'before_tool_call' and for 'refund' only, can compare past.args['order'] with the call's.",
        "Look at past.output, too: 'No such order.' is an answer, and no order. on_deny='return' makes a text of a refusal.",
    )),
    Exercise("7.3", "serve", _served, (
        "Run each call inside of `with nn.guard_session(...)`.",
        "A new session knows no calls, whatever its name is: make one for each customer and enter it again.",
        "Keep the sessions in a dict by customer.",
    )),
)  # fmt: skip
