"""Rules count the calls of the whole execution tree, whichever agent makes them, in the order of decision."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.memory import PastCall
from noetic_nb.steering import RuleBook
from noetic_nb.storage import InMemoryStorage
from tests.runtime.factories import attempt, started

DONE: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


@nn.tool
async def pay(amount: int = 1) -> str:
    """Pay someone."""
    DONE.append("pay")
    await asyncio.sleep(0)
    return "paid"


@nn.tool
def confirm(fails: bool = False) -> str:
    """Confirm a payment."""
    DONE.append("confirm")
    if fails:
        raise ValueError("no confirmation")
    return "confirmed"


def call(tool: Any, id: str = "call", **args: Any) -> Any:
    return nn.step.tool(id, tool, args, takes_input=False)


def both(*steps: Any) -> Any:
    return nn.fork("both", mode="settle", paths=list(steps), merge="first")


def agent(step: Any, rules: RuleBook, *, scope: Any = "execution", **options: Any) -> nn.AgentHarness:
    config = nn.AgentConfig(name="desk", step=step, memory=[nn.steering(rules, scope=scope)])
    return nn.AgentHarness(config, **options)


def at_most(count: int) -> RuleBook:
    rules = RuleBook()
    rules.at_most(count, "pay")
    return rules


def counting(count: int) -> RuleBook:
    """The same rule, written as a condition."""
    rules = RuleBook()
    rules.when(
        f"tool.name == 'pay' && history.filter(h, h.name == 'pay' && h.status != 'denied').size() >= {count}", id="c"
    )
    return rules


def in_python(count: int) -> RuleBook:
    rules = RuleBook()

    def most(made: Any) -> Any:
        before = [past for past in made.history if past.name == "pay" and past.status != "denied"]
        return nn.deny() if len(before) >= count else None

    rules.rule("most", on="before_tool_call", tools=["pay"], history=True)(most)
    return rules


PLACES: dict[str, Callable[[], Any]] = {
    "a spawn after its parent": lambda: attempt(call(pay), nn.spawn("s", call(pay))),
    "a parent after its spawn": lambda: attempt(nn.spawn("s", call(pay)), call(pay)),
    "two spawns": lambda: attempt(nn.spawn("s", call(pay)), nn.spawn("t", call(pay), memory=[])),
    "a fork after its parent": lambda: attempt(call(pay), both(call(pay))),
    "two paths of a fork": lambda: attempt(both(call(pay, "a"), call(pay, "b"))),
    "a started step": lambda: attempt(started(call(pay)), call(pay)),
    "a spawn in a fork in a spawn": lambda: attempt(nn.spawn("s", both(nn.spawn("t", call(pay)))), call(pay)),
}


@pytest.mark.parametrize("rules", [at_most, counting, in_python])
@pytest.mark.parametrize("place", PLACES)
async def test_a_limit_holds_for_parents_and_children_together(place: str, rules: Callable[[int], RuleBook]) -> None:
    await agent(PLACES[place](), rules(1)).execute("go")

    assert DONE == ["pay"]


def slow_guard() -> nn.MemoryLayer:
    async def think(params: Any) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    return nn.MemoryLayer(
        id="slow", slot=1, scope="execution", enforces=True, hooks=nn.MemoryHooks(before_tool_call=think)
    )


@pytest.mark.parametrize("slow", ["before", "after", "in the rule book"])
async def test_of_calls_at_the_same_time_no_more_than_allowed_are_made(slow: str) -> None:
    rules = RuleBook()

    async def think(made: Any) -> None:
        await asyncio.sleep(0)

    if slow == "in the rule book":
        rules.rule("think", on="before_tool_call")(think)
    rules.at_most(2, "pay")
    layers = {"before": [slow_guard(), nn.steering(rules)], "after": [nn.steering(rules), slow_guard()]}
    fork = nn.fork("f", mode="settle", paths=[call(pay, f"p{n}") for n in range(6)], merge="first")
    config = nn.AgentConfig(name="desk", step=fork, memory=layers.get(slow, [nn.steering(rules)]))

    await nn.AgentHarness(config).execute("go")

    assert DONE == ["pay", "pay"]


async def test_a_call_that_awaits_its_decision_learns_of_calls_that_were_let_through_meanwhile() -> None:
    rules = RuleBook()

    async def think(made: Any) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    rules.rule("think", on="before_tool_call", tools=["pay"])(think)
    rules.never("pay", after="confirm")
    fork = nn.fork("f", mode="settle", paths=[call(pay, "slow"), call(confirm, "quick")], merge="first")

    await agent(fork, rules).execute("go")

    assert DONE == ["confirm"]


@pytest.mark.parametrize("stopper", ["a later layer", "the approver"])
async def test_a_place_is_given_back_by_a_call_that_is_not_made(stopper: str) -> None:
    refused: list[str] = []

    def once(*_: Any) -> Any:
        refused.append("")
        return len(refused) > 1

    later = nn.MemoryHooks(before_tool_call=lambda p: None if once() else nn.deny())
    layer = nn.MemoryLayer(id="later", slot=200, scope="execution", hooks=later)
    steering = nn.steering(at_most(1))
    memory = [steering, layer] if stopper == "a later layer" else [steering]
    rules_step = attempt(nn.spawn("s", call(pay)), call(pay), call(pay))
    if stopper == "the approver":
        book = at_most(1)
        book.when("tool.name == 'pay'", id="person", action="ask")
        memory = [nn.steering(book)]
    config = nn.AgentConfig(name="desk", step=rules_step, memory=memory)

    reply = await nn.AgentHarness(config, approve=once).execute("go")

    assert (DONE, reply.output) == (["pay"], ["steering_denied", "ok", "steering_denied"])


async def test_a_call_that_is_aborted_before_it_starts_gives_its_place_back() -> None:
    """The person approves, but the execution was aborted meanwhile: the tool must not run."""
    seen: list[Any] = []

    async def approve(name: str, args: Any) -> bool:
        spawned[-1].abort("changed my mind")
        return True

    spawned: list[Any] = []

    def note(value: Any, ctx: Any) -> None:
        spawned.append(ctx)

    def look(value: Any, ctx: Any) -> None:
        seen.append([past.name for past in ctx.tree.calls.so_far()])

    rules = RuleBook()
    rules.when("tool.name == 'pay'", id="person", action="ask")
    child = nn.loop("l", [nn.step.run("note", note), call(pay)], until=nn.until.max_steps(1), needs_output=False)
    step = attempt(nn.spawn("s", child), nn.step.run("look", look))

    reply = await agent(step, rules, approve=approve).execute("go")

    assert (DONE, seen, reply.output) == ([], [[]], ["cancelled", "ok"])


async def test_only_what_succeeded_allows_what_may_come_only_after_it() -> None:
    rules = RuleBook()
    rules.only("pay", after="confirm")
    failed = nn.spawn("s", call(confirm, fails=True))
    steps = attempt(call(pay), failed, call(pay), nn.spawn("t", call(confirm)), call(pay))

    reply = await agent(steps, rules).execute("go")

    assert reply.output == ["steering_denied", "step_failed", "steering_denied", "ok", "ok"]


async def test_what_runs_allows_nothing_that_may_come_only_after_it() -> None:
    rules = RuleBook()
    rules.only("pay", after="ask_first")

    @nn.tool
    async def ask_first(ctx: Any) -> str:
        """Ask, and pay meanwhile."""
        with pytest.raises(NoeticError):
            await ctx.run(call(pay))
        return "asked"

    await agent(attempt(call(ask_first), call(pay)), rules).execute("go")

    assert DONE == ["pay"]


async def test_never_after_holds_across_the_tree() -> None:
    rules = RuleBook()
    rules.never("pay", after="confirm")

    reply = await agent(attempt(nn.spawn("s", call(confirm)), both(call(pay)), call(pay)), rules).execute("go")

    assert (DONE, reply.output[-1]) == (["confirm"], "steering_denied")


async def test_a_rule_sees_whose_each_call_was_and_how_it_stands() -> None:
    seen: list[list[tuple[str, int, str | None]]] = []
    depths: dict[str, int] = {}

    def look(made: Any) -> None:
        depths[made.ctx.execution_id] = made.ctx.depth
        seen.append([(past.name, depths[past.execution_id], past.status) for past in made.history])

    rules = RuleBook()
    rules.rule("look", on="before_tool_call", history=True)(look)
    rules.when("tool.name == 'confirm' && history.exists(h, h.execution_id == ctx.execution_id)", id="own")

    @nn.tool
    async def outer(ctx: Any) -> str:
        """Call another tool while it runs."""
        await ctx.run(nn.spawn("s", call(pay)))
        return "done"

    await agent(attempt(call(outer), call(confirm), call(pay)), rules).execute("go")

    assert seen == [
        [],
        [("outer", 0, "pending")],
        [("outer", 0, "ok"), ("pay", 1, "ok")],
        [("outer", 0, "ok"), ("pay", 1, "ok"), ("confirm", 0, "denied")],
    ]


async def test_a_response_is_judged_by_the_calls_of_the_tree() -> None:
    seen: list[list[str]] = []
    rules = RuleBook()
    rules.rule("look", on="after_model_call", history=True)(
        lambda answer: seen.append([past.name for past in answer.history])
    )
    model = nn.ScriptedModel(["In a child.", "Here."])
    ask = nn.step.llm("ask", model="scripted")

    await agent(attempt(call(pay), nn.spawn("s", ask), nn.spawn("t", call(pay)), ask), rules, model=model).execute("go")

    assert seen == [["pay"], ["pay", "pay"]]


@pytest.mark.parametrize("rules", [at_most, counting, in_python])
async def test_a_limit_of_a_thread_counts_what_children_called_in_earlier_turns(
    rules: Callable[[int], RuleBook],
) -> None:
    step = attempt(nn.spawn("s", call(pay, amount=3)))
    desk = agent(step, rules(1), scope="thread")

    first, second = await desk.execute("go"), await desk.execute("go")

    assert (DONE, first.output, second.output) == (["pay"], ["ok"], ["steering_denied"])


async def test_a_rule_of_a_thread_sees_the_calls_of_earlier_turns_whole() -> None:
    seen: list[list[PastCall]] = []
    rules = RuleBook()
    rules.rule("look", on="before_tool_call", history=True)(lambda made: seen.append([*made.history]) and None)
    storage = InMemoryStorage()
    step = attempt(nn.spawn("s", call(pay, amount=3)), call(confirm, fails=True))

    for _ in range(2):  # another process each time
        await agent(step, rules, scope="thread", storage=storage).execute("go")

    third = seen[2]
    assert [(past.name, dict(past.args), past.status) for past in third] == [
        ("pay", {"amount": 3}, "ok"),
        ("confirm", {"fails": True}, "error"),
    ]
    assert third[0].output == "paid"
    assert len({past.execution_id for past in seen[3]}) == 3


async def test_a_layer_of_a_child_that_is_begun_twice_counts_no_call_twice() -> None:
    """The child's own layer saves the thread's calls when the first child ends, and reads them when the second begins."""
    own = [nn.steering(at_most(3), scope="thread")]
    config = nn.AgentConfig(name="desk", step=attempt(*[nn.spawn("s", call(pay), memory=own) for _ in range(4)]))

    reply = await nn.AgentHarness(config).execute("go")

    assert reply.output == ["ok", "ok", "ok", "steering_denied"]


SAVED: Iterable[Any] = [{"calls": [{"name": "pay", "status": "ok"}]}, {"made": [{"name": "pay", "status": "ok"}]}]


@pytest.mark.parametrize("saved", SAVED)
async def test_calls_that_an_earlier_version_saved_count(saved: Any) -> None:
    storage = InMemoryStorage()
    desk = agent(attempt(call(pay)), at_most(1), scope="thread", storage=storage)
    await desk.execute("go", thread_id="other")
    DONE.clear()
    key = next(key for key in await storage.list("") if "steering" in key and "other" in key)
    await storage.set(key.replace("other", "old"), {"ledger": [], "pendingAsync": [], **saved})

    reply = await desk.execute("go", thread_id="old")

    assert (DONE, reply.output) == ([], ["steering_denied"])


# -- any tree ---------------------------------------------------------------------------------------------------------

TREES = st.recursive(
    st.sampled_from(["pay", "slow", "fail"]),
    lambda inner: st.tuples(  # a kind, and its contents
        st.sampled_from(["spawn", "bare", "fork", "race", "start", "then"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


def built(tree: Any) -> Any:
    if isinstance(tree, str):
        return call(pay if tree == "pay" else CALLS[tree])
    kind, inner = tree
    steps = [built(one) for one in inner]
    match kind:
        case "spawn":
            return nn.spawn("s", attempt(*steps))
        case "bare":
            return nn.spawn("s", attempt(*steps), memory=[])
        case "fork":
            return nn.fork("f", mode="settle", paths=steps, merge="first")
        case "race":
            return nn.fork("r", mode="race", paths=steps)
        case "start":
            return started(attempt(*steps))
        case _:
            return attempt(*steps)


async def _slow() -> str:
    for _ in range(3):
        await asyncio.sleep(0)
    DONE.append("pay")
    return "paid"


async def _fail() -> str:
    DONE.append("pay")
    await asyncio.sleep(0)
    raise ValueError("it may have had its effect")


CALLS = {"slow": nn.tool(_slow), "fail": nn.tool(_fail)}


@given(tree=TREES, count=st.integers(0, 4), thinks=st.booleans(), form=st.sampled_from(["sequence", "python"]))
def test_no_tree_makes_more_calls_than_allowed(tree: Any, count: int, thinks: bool, form: str) -> None:
    DONE.clear()
    rules, names = RuleBook(), ["pay", "_slow", "_fail"]

    async def think(made: Any) -> None:
        await asyncio.sleep(0)

    def most(made: Any) -> Any:
        return nn.deny() if sum(past.status != "denied" for past in made.history) >= count else None

    if thinks:
        rules.rule("think", on="before_tool_call")(think)
    if form == "sequence":
        rules.at_most(count, names)
    else:
        rules.rule("most", on="before_tool_call", history=True)(most)

    asyncio.run(agent(attempt(built(tree)), rules).execute("go"))

    assert len(DONE) <= count
