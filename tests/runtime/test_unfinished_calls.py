"""A call that was running when its process ended may have taken effect: rules count it, and the resumed turn reports it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory import PastCall
from noetic_nb.memory._enforcement import CallHistory
from noetic_nb.steering import RuleBook
from noetic_nb.steps import fork, spawn, step
from tests.runtime.crash_points import Disk, GroupedDisk, harness
from tests.runtime.factories import outputs, started
from tests.runtime.test_resumed_turns import whole


class Bank:
    """Receives payments, and ends the process during one."""

    def __init__(self, kind: type[Disk] = Disk, *, knows_key: bool = True) -> None:
        self.paid: list[Any] = []
        self.keys: list[str] = []
        self.store: Disk = kind()
        self.kind = kind
        self.cuts = True

        def pay_with_key(to: str, ctx: Any) -> str:
            """Pay."""
            self.keys.append(ctx.idempotency_key)
            return self.pay(to)

        def pay_without(to: str) -> str:
            """Pay."""
            return self.pay(to)

        self.tool = nn.tool(pay_with_key if knows_key else pay_without, name="pay")

    def pay(self, to: str) -> str:
        self.paid.append(to)
        if self.cuts:
            # The next process finds only the storage of this moment, whatever this process does later.
            self.cuts, self.store = False, self.kind(self.store.texts)
        return f"paid {to}"

    def agent(self, around: Any = lambda inner: inner) -> Any:
        return around(nn.react(model="scripted", tools=[self.tool], max_steps=4))

    async def begin(self, *names: str, most: int = 1, around: Any = lambda inner: inner, **more: Any) -> None:
        """Run a turn whose model makes a payment, until the process ends."""
        first = harness(self.agent(around), self.store, words(names), memory=rules(most, **more))
        await first.execute("Pay.", thread_id="t")

    async def resume(
        self, *names: str, most: int = 1, around: Any = lambda inner: inner, ends: bool = False, **more: Any
    ) -> nn.AgentReply:
        """Continue in another process, whose model makes another payment and which may also end meanwhile."""
        self.cuts = ends
        again = harness(self.agent(around), self.store, words(names), memory=rules(most, **more))
        (execution_id,) = await again.unfinished()
        return await again.resume(execution_id)


def words(names: Any) -> Any:
    return [*[nn.CallTool("pay", to=name) for name in names], "Done.", "Done."]


def rules(most: int, **more: Any) -> list[nn.MemoryLayer]:
    book = RuleBook()
    book.at_most(most, "pay")
    return [nn.steering(book, **more)]


AROUND: dict[str, Any] = {
    "turn": lambda inner: inner,
    "child": lambda inner: spawn("s", inner),
    "grandchild": lambda inner: spawn("s", spawn("t", inner), memory=[]),
    "fork": lambda inner: fork("f", mode="all", paths=[inner], merge="last"),
    "start": lambda inner: started(inner),
    "loop": lambda inner: whole(step.run("note", lambda value, ctx: value), inner),
}


@pytest.mark.parametrize("kind", [Disk, GroupedDisk])
@pytest.mark.parametrize("knows_key", [True, False])
@pytest.mark.parametrize("around", AROUND)
async def test_three_kills_pay_one_payee(around: str, knows_key: bool, kind: type[Disk]) -> None:
    bank = Bank(kind, knows_key=knows_key)
    await bank.begin("a", around=AROUND[around])
    for name in ("b", "c"):
        # The model rewords its call, and the process ends again: while calling the model, when no payment is running.
        store = bank.kind(bank.store.texts)
        await bank.resume(name, around=AROUND[around])
        bank.store = store
    reply = await bank.resume("d", around=AROUND[around])

    assert bank.paid == ["a"]
    assert [warning.code for warning in reply.warnings] == ["call_unfinished"]
    assert '"to":"a"' in reply.warnings[0].text


async def test_each_process_that_ends_in_a_call_is_one_more_that_counts() -> None:
    bank = Bank()
    await bank.begin("a", most=3)
    await bank.resume("b", most=3, ends=True)
    await bank.resume("c", most=3, ends=True)

    reply = await bank.resume("d", most=3)

    assert bank.paid == ["a", "b", "c"]
    assert "at most 3 times" in outputs(reply.items)[0]
    assert [warning.text.split("{")[1].split("}")[0] for warning in reply.warnings] == [
        '"to":"a"',
        '"to":"b"',
        '"to":"c"',
    ]
    assert len(set(bank.keys)) == 3, "a call with other arguments has a key of its own"


@pytest.mark.parametrize("around", AROUND)
async def test_a_call_that_is_made_once_more_under_its_own_key_is_no_second_one(around: str) -> None:
    bank = Bank()
    await bank.begin("a", around=AROUND[around])
    await bank.resume("a", around=AROUND[around], ends=True)
    await bank.resume("a", around=AROUND[around], ends=True)

    reply = await bank.resume("a", around=AROUND[around])

    assert bank.paid == ["a"] * 4
    assert len(set(bank.keys)) == 1
    assert [warning.code for warning in reply.warnings] == ["call_unfinished"]
    assert "same idempotency key" in reply.warnings[0].text
    assert not [key for key in bank.store.texts if ":begun:" in key]


async def test_a_tool_without_a_key_is_not_called_a_second_time() -> None:
    bank = Bank(knows_key=False)
    await bank.begin("a")

    reply = await bank.resume("a")

    assert bank.paid == ["a"]
    assert "at most once" in outputs(reply.items)[0]
    assert "idempotency" not in reply.warnings[0].text


async def test_once_more_and_then_another_one() -> None:
    bank = Bank()
    await bank.begin("a", most=2)

    calls = [nn.CallTool("pay", to=name) for name in ("b", "a", "c")]
    again = harness(bank.agent(), bank.store, [nn.Reply(tool_calls=calls), "Done."], memory=rules(2))
    (execution_id,) = await again.unfinished()
    reply = await again.resume(execution_id)

    assert bank.paid == ["a", "b", "a"]
    assert bank.keys[0] == bank.keys[2] != bank.keys[1]
    assert [("paid" in text) for text in outputs(reply.items)] == [True, True, False]


async def test_what_was_begun_and_is_now_refused_still_counts() -> None:
    bank = Bank()
    await bank.begin("a", most=2)

    book, seen = RuleBook(), []

    @book.rule(on="before_tool_call")
    def not_a(call: Any) -> Any:
        seen.append([(past.args["to"], past.status) for past in call.history])
        return nn.deny("Not a.") if call.tool_args["to"] == "a" else None

    again = harness(bank.agent(), bank.store, words(["a", "b"]), memory=[nn.steering(book)])
    (execution_id,) = await again.unfinished()
    await again.resume(execution_id)

    assert seen == [[], [("a", "cancelled"), ("a", "denied")]]


async def test_a_call_whose_end_was_written_is_not_unfinished() -> None:
    bank = Bank()
    bank.cuts = False

    def end(value: Any, ctx: Any) -> Any:
        bank.store = Disk(bank.store.texts)
        return value

    agent = whole(step.tool("one", bank.tool, {"to": "a"}, takes_input=False), step.run("end", end), bank.agent())
    await harness(agent, bank.store, words([]), memory=rules(1)).execute("Pay.", thread_id="t")
    assert not [key for key in bank.store.texts if ":begun:" in key]

    again = harness(agent, bank.store, words(["b"]), memory=rules(1))
    (execution_id,) = await again.unfinished()
    reply = await again.resume(execution_id)

    assert bank.paid == ["a"]
    assert reply.warnings == ()


async def test_a_call_whose_end_is_known_although_its_beginning_was_not_removed_is_no_second_one() -> None:
    """A store without groups writes the end of a step first, and then deletes the records inside it."""
    bank = Bank()
    bank.cuts = False
    store = Disk()
    agent = whole(step.tool("one", bank.tool, {"to": "a"}, takes_input=False), step.run("end", lambda v, ctx: v))
    await harness(agent, store, words([]), memory=rules(1)).execute("Pay.", thread_id="t")

    resumed = 0
    for texts in store.copies:
        begun = [key for key in texts if ":begun:" in key]
        copy = Disk(texts)
        again = harness(agent, copy, words([]), memory=rules(1))
        for execution_id in await again.unfinished():
            reply = await again.resume(execution_id)
            resumed += bool(begun)
            assert reply.output is not None
            assert not [key for key in copy.texts if ":begun:" in key]
    assert resumed >= 2


async def test_nothing_is_written_where_no_rule_could_count() -> None:
    bank = Bank()
    bank.cuts = False
    await harness(bank.agent(), bank.store, words(["a"])).execute("Pay.", thread_id="t")
    assert not [texts for texts in bank.store.copies if any(":begun:" in key for key in texts)]

    await harness(bank.agent(), bank.store, words(["a"]), memory=rules(1)).execute("Pay.", thread_id="u")
    assert [texts for texts in bank.store.copies if any(":begun:" in key for key in texts)]
    assert not [key for key in bank.store.texts if ":begun:" in key]


async def test_a_thread_that_remembers_counts_it_in_later_turns() -> None:
    bank = Bank()
    await bank.begin("a", scope="thread")
    again = harness(bank.agent(), bank.store, ["Done.", *words(["b"])], memory=rules(1, scope="thread"))
    (execution_id,) = await again.unfinished()
    await again.resume(execution_id)

    reply = await again.execute("Once more.", thread_id="t")

    assert bank.paid == ["a"]
    assert "at most once" in outputs(reply.items)[0]


@pytest.mark.parametrize(
    "damage", [{}, {"path": 1}, {"call": ["pay"]}, {"call": None}, {"number": -1}, {"number": "1"}, 7]
)
async def test_a_damaged_one_is_no_reason_to_forget_it(damage: Any) -> None:
    bank = Bank()
    await bank.begin("a")
    (key,) = [key for key in bank.store.texts if ":begun:" in key]
    whole_data = json.loads(bank.store.texts[key])
    bank.store.texts[key] = json.dumps({**whole_data, **damage} if damage and isinstance(damage, dict) else damage)

    with pytest.raises(NoeticConfigError) as caught:
        await bank.resume("b")

    assert caught.value.code == "CHECKPOINT_SCHEMA_MISMATCH"
    assert bank.paid == ["a"]


async def test_secrets_are_not_in_the_warning() -> None:
    bank = Bank()
    secret = "sk-" + "a1B2" * 12
    await bank.begin(f"me, with {secret}")

    reply = await bank.resume("b")

    assert secret not in reply.warnings[0].text


def test_a_call_that_is_made_once_more_is_hidden_from_its_own_rules_only() -> None:
    calls = CallHistory()
    (left,) = calls.restore([(4, PastCall("pay", {}, "c1", "cancelled"))])
    other = calls.reserve(PastCall("pay", {}, "c2"))
    again = calls.reserve(PastCall("pay", {}, "c3"))
    again.resumes = left

    assert [call.call_id for call in calls.so_far(again)] == ["c2"]
    assert [call.call_id for call in calls.so_far(other)] == ["c1"]

    calls.start(again)
    assert [place.call.call_id for place in calls] == ["c2", "c3"]
    assert [call.call_id for call in calls.so_far(other)] == ["c3"]
