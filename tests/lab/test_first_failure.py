"""The first failing step: each kind of evidence, no result without evidence, and runs annotated by people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab import datasets, first_failure

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"


def talk(*said: Any) -> nn.Run:
    """Return a run of texts: ``"> ..."`` by the user, others by the agent, and pairs of a call and its result."""
    messages: list[dict[str, Any]] = []
    for number, each in enumerate(said):
        if isinstance(each, str):
            is_user = each.startswith("> ")
            messages.append({"role": "user" if is_user else "assistant", "content": each.removeprefix("> ")})
            continue
        (name, args), result = each
        call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        text = result if isinstance(result, str) else json.dumps(result)
        messages.append({"role": "assistant", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
    return nn.import_run(messages, format="openai", progress=False)


def order(status: str = "pending", number: str = "#W1234567", **more: Any) -> dict[str, Any]:
    return {"order_id": number, "status": status, "item": "lamp", **more}


LOOK = (("get_order", {"order_id": "#W1234567"}), order())
SIZES = [{"size": size, "available": size != "S"} for size in ("S", "M", "L", "XL")]


def stories() -> Iterator[Any]:
    """Yield runs with the item of the first failing step and its reason."""

    def story(name: str, item: int | None, reason: str, *said: Any) -> Any:
        return pytest.param(talk(*said), item, reason, id=name)

    sizes = (("list_sizes", {}), SIZES)
    yield story("miscounted", 3, "contradicts a result", "> How many sizes?", sizes, "There are 5 sizes.")
    for right in (3, 4):
        yield story(f"counted {right}", None, "", "> How many sizes?", sizes, f"There are {right} sizes.")
    yield story("other things", None, "", "> How many sizes?", sizes, "There are 7 days of thinking left.")
    tracked = (("get_order", {"order_id": "#W1234567"}), order(tracking_id="88334455"))
    deny = "Order #W1234567 does not have a tracking number."
    yield story("denied", 3, "contradicts a result", "> Where is #W1234567?", tracked, deny)
    yield story("rightly denied", None, "", "> Where is #W1234567?", LOOK, deny)
    other = (("get_order", {"order_id": "#W7654321"}), order(number="#W7654321", item="tablet", tracking_id="99887766"))
    told = "The tracking number for the tablet is 88334455."
    yield story(
        "of another", 3, "contradicts a result", "> Where is my tablet?", tracked, told, "> And the rest?", other
    )
    right = "The tracking number for the tablet is 99887766."
    yield story("of this one", None, "", "> Where is my tablet?", tracked, other, right)
    variants = (("get_product", {"id": "lamp"}), [{"id": f"44556{n}", "available": n != 1} for n in (1, 2, 3)])
    for n, item in ((1, 5), (2, None)):
        take = (("modify_order", {"order_id": "#W1234567", "new": f"44556{n}"}), order("modified"))
        yield story(
            f"variant {n}", item, "contradicts a result", "> Another lamp, please.", LOOK, variants, take, "Done."
        )
    change = (("modify_items", {"order_id": "#W1234567"}), order("pending (items modified)"))
    move = ("modify_address", {"order_id": "#W1234567"})
    locked = (move, "Error: non-pending order cannot be modified")
    yield story("in the way", 3, "in the way of a later call", "> Change #W1234567.", LOOK, change, locked, "Sorry.")
    lost = (move, "Error: the server is away")
    yield story("not in the way", 5, "an error ignored", "> Change #W1234567.", LOOK, change, lost, "Done.")
    regret = ("> No, I only wanted the lamp cancelled.", "Unfortunately, that cannot be undone.")
    cancel = (("cancel_order", {"order_id": "#W1234567"}), order("cancelled"))
    yield story("objection", 3, "the user objects", "> Cancel the lamp.", LOOK, cancel, "Done.", *regret)
    yield story("nothing done", None, "", "> Cancel the lamp.", LOOK, "Should I?", *regret)
    failed = (("cancel_order", {"order_id": "#W1234567"}), "Error: try again")
    yield story("ignored", 3, "an error ignored", "> Cancel the lamp.", LOOK, failed, "It is cancelled.")
    yield story("recovered", None, "", "> Cancel the lamp.", LOOK, failed, cancel, "It is cancelled.")
    yield story(
        "a failed look", None, "", "> Look.", (("get_order", {"order_id": "x"}), "Error: unknown"), LOOK, "A lamp."
    )
    yield story("repeated", 3, "a repeated call", "> Look at #W1234567.", LOOK, LOOK, LOOK, "A lamp.")
    yield story("twice", None, "", "> Look at #W1234567.", LOOK, LOOK, "A lamp.")
    yield story("unread", 1, "a write before a read", "> Cancel #W1234567.", cancel, "Done.")
    book = (("book_seat", {"seat": "row-77-A"}), "booked")
    yield story("made up", 3, "an argument of no origin", "> Book #W1234567 a seat.", LOOK, book, "Done.")
    yield story("cut off", 3, "no answer", "> Cancel the lamp.", LOOK, "> Well?")
    yield story("a farewell", None, "", "> Look at #W1234567.", LOOK, "A lamp.", "> Thanks, bye!")
    consent = "> Yes, go ahead. ###STOP###"
    yield story("left unheard", 4, "no answer", "> Cancel the lamp.", LOOK, "Shall I?", consent)
    wish = "> I changed my mind, cancel all of it."
    yield story(
        "a change of wish", 4, "the user changes the wish", "> Move it.", LOOK, "Where to?", wish, cancel, "Done."
    )


@pytest.mark.parametrize(("run", "item", "reason"), list(stories()))
def test_each_kind_of_evidence(run: nn.Run, item: int | None, reason: str) -> None:
    found = first_failure(run)

    assert (None if found is None else (found.item, found.reason)) == (None if item is None else (item, reason)), found
    if found is not None:
        assert found.thread_id == run.threads[0]
        assert found.turn in {turn.where.turn for turn in run.turns}
        kind = run.log(found.thread_id)[found.item]["type"]
        assert (found.call is None) == (kind == "message")
        if found.call is not None:
            at = run.to_frame("tools").iloc[found.call]
            assert at.call_id == run.log(found.thread_id)[found.item].get("callId")
        run.label("first", found.reason, item=found.item, by="first_failure")


def test_calls_that_rules_would_deny_are_evidence() -> None:
    run = talk("> Look at #W1234567.", LOOK, LOOK, "A lamp.")
    rules = nn.RuleBook()
    rules.at_most(1, "get_order")
    found = first_failure(run, rules=rules)

    assert found is not None
    assert (found.item, found.call, found.reason) == (3, 1, "a rule broken")
    assert "at-most-1-get_order" in found.evidence


def test_calls_that_do_not_fit_their_tools_are_evidence() -> None:
    run = talk("> Look at #W1234567.", LOOK, "A lamp.")

    def get_order(order_id: str, detail: str) -> str:
        """Look at an order."""
        return order_id + detail

    for tools, words in (
        ([get_order], "lacks detail"),
        ({"get_order": ["id"]}, "has no order_id"),
        (["other"], "no tool"),
    ):
        found = first_failure(run, tools=tools)
        assert found is not None
        assert (found.item, found.reason) == (1, "an argument that does not fit")
        assert words in found.evidence
    assert first_failure(run, tools={"get_order": ["order_id"]}) is None


async def test_the_error_that_ended_a_turn_is_evidence() -> None:
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([ValueError("the line is dead")]))
    run = nn.record(harness)
    with pytest.raises(nn.NoeticError):
        await harness.execute("Hi")
    found = first_failure(run)

    assert found is not None
    assert (found.item, found.reason) == (0, "an error")
    assert "the line is dead" in found.evidence


def test_outcomes_and_expected_actions_are_not_read() -> None:
    entry = {
        "task_id": 1,
        "trial": 0,
        "traj": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}],
    }
    for reward, actions in ((1.0, []), (0.0, [{"name": "cancel_order", "kwargs": {"order_id": "#W1234567"}}])):
        task = {"task": {"instruction": "Cancel #W1234567.", "actions": actions}}
        run = nn.import_run(
            [{**entry, "reward": reward, "info": task, "reward_info": {"actions": actions}}], progress=False
        )
        assert first_failure(run) is None
    for run in datasets.airline(10):
        before = first_failure(run)
        run.meta["outcome"], run.meta["reward"] = not run.meta["outcome"], 0.5
        assert first_failure(run) == before


def test_something_else_is_refused() -> None:
    with pytest.raises(NoeticConfigError, match="INVALID_RUN"):
        first_failure([datasets.airline_run(26)])  # type: ignore[arg-type]


def test_it_is_better_than_the_best_trivial_rule_on_marked_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))
    for name in ("inputs", "first_failure"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import first_failure as study  # type: ignore[import-not-found]

    marks = [*study.marked()]
    ours = study.scores(marks, [study.proposed(each) for each in marks])
    theirs = study.scores(marks, [study.last_write(each) for each in marks])

    assert len(marks) == 14
    assert all(ours[name].n > theirs[name].n for name in ("exact", "within 3 steps"))
    assert ours["exact, where it speaks"].rate > theirs["exact, where it speaks"].rate
