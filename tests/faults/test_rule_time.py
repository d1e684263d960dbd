"""Rules that exceed their time, in every way, wherever a call or an answer is judged: it is a fault, and nothing passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

import noetic_nb as nn
from noetic_nb.events import SteeringDecided
from noetic_nb.lab import backtest
from noetic_nb.testing import drive_loop
from tests.matrix import matrix

DONE: Final[list[Any]] = []
LIMITS: Final = {"before_tool_call": 50.0, "after_model_call": 50.0}


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


@nn.tool
async def pay(amount: int = 1) -> str:
    """Pay."""
    DONE.append(amount)
    return "paid"


async def takes_it_for_a_yes(params: Any) -> Any:
    try:
        await asyncio.sleep(3_600)
    except asyncio.CancelledError:
        return nn.allow()


async def has_no_opinion(params: Any) -> Any:
    try:
        await asyncio.sleep(3_600)
    except asyncio.CancelledError:
        return None


async def fails_instead(params: Any) -> Any:
    try:
        await asyncio.sleep(3_600)
    except asyncio.CancelledError:
        raise ValueError("interrupted") from None


async def begins_again(params: Any) -> Any:
    while True:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            continue


async def tidies_up(params: Any) -> Any:
    try:
        await asyncio.sleep(3_600)
    finally:
        await asyncio.sleep(0.01)


async def asks_another(params: Any) -> Any:
    return await asyncio.shield(asyncio.ensure_future(takes_it_for_a_yes(params)))


async def leaves(params: Any) -> Any:
    await asyncio.sleep(0)
    raise GeneratorExit("gone")


def leaves_at_once(params: Any) -> Any:
    raise GeneratorExit("gone")


async def leaves_before_it_waits(params: Any) -> Any:
    raise GeneratorExit("gone")


SLOW: Final = (takes_it_for_a_yes, has_no_opinion, fails_instead, begins_again, tidies_up, asks_another)
LEAVING: Final = (leaves, leaves_at_once, leaves_before_it_waits)

Rule = Callable[[Any], Any]


def book(rule: Rule, point: str) -> nn.RuleBook:
    rules = nn.RuleBook()
    rules.rule(rule, on=point)
    # A rule behind it: what is over is over, and nothing is decided after it.
    rules.rule("later", on=point)(lambda params: DONE.append("a later rule"))
    return rules


def decisions(run: nn.Run, point: str = "before_tool_call") -> list[SteeringDecided]:
    return [each for each in run.select(SteeringDecided) if each.hook == point]


def harness(rule: Rule, point: str, *, child: bool = False, **options: Any) -> tuple[nn.AgentHarness, nn.Run]:
    step: Any = nn.step.llm("ask", model="m", tools=[pay], tool_rounds=2)
    if child:
        step = nn.step.spawn("child", step)
    layer = nn.steering(book(rule, point), timeouts=LIMITS, **options)
    config = nn.AgentConfig(name="desk", step=step, memory=[layer], tools=[pay])
    agent = nn.AgentHarness(config, model=nn.ScriptedModel([nn.CallTool("pay"), "The secret is 42."]))
    return agent, nn.record(agent)


async def executed(rule: Rule, point: str) -> nn.Run:
    agent, run = harness(rule, point)
    await _ended(agent.execute("go"))
    return run


async def streamed(rule: Rule, point: str) -> nn.Run:
    agent, run = harness(rule, point)

    async def read() -> None:
        async for _ in agent.stream("go").text:
            pass

    await _ended(read())
    return run


async def in_a_child(rule: Rule, point: str) -> nn.Run:
    agent, run = harness(rule, point, child=True)
    await _ended(agent.execute("go"))
    return run


async def guarded(rule: Rule, point: str) -> nn.Run:
    run = nn.Run("guarded")

    async def plain(amount: int = 1) -> str:
        DONE.append(amount)
        return "paid"

    await _ended(nn.guard(plain, book(rule, point), run=run, timeouts=LIMITS)(1))
    return run


async def _ended(turn: Awaitable[Any]) -> None:
    try:
        await turn
    except nn.NoeticError:
        return


PLACES: Final = [
    *[(way, "before_tool_call") for way in (executed, streamed, in_a_child, guarded)],
    *[(way, "after_model_call") for way in (executed, streamed, in_a_child)],
]


@pytest.mark.parametrize(("way", "point"), PLACES)
@pytest.mark.parametrize("rule", SLOW)
def test_what_exceeds_its_time_is_a_fault_whatever_it_makes_of_it(rule: Rule, way: Any, point: str) -> None:
    run = drive_loop(way(rule, point))

    decided = decisions(run, point)
    assert DONE == []
    assert decided
    assert {(each.action, each.outcome) for each in decided} == {("deny", "timeout")}
    assert {each.rule_ids for each in decided} == {(rule.__name__,)}


@pytest.mark.parametrize(("way", "point"), PLACES)
@pytest.mark.parametrize("rule", LEAVING)
def test_a_generator_exit_of_a_rule_is_a_fault_like_any_other(rule: Rule, way: Any, point: str) -> None:
    run = drive_loop(way(rule, point))

    decided = decisions(run, point)
    assert DONE == []
    assert {(each.action, each.outcome, each.rule_ids) for each in decided} == {("deny", "error", (rule.__name__,))}
    # What is said of a response may quote it.
    assert point == "after_model_call" or "GeneratorExit" in decided[0].faults[0][1]


def test_a_turn_that_is_cancelled_ends_although_its_rule_takes_that_for_a_yes() -> None:
    agent, run = harness(takes_it_for_a_yes, "before_tool_call")

    async def stopped() -> bool:
        turn = asyncio.ensure_future(agent.execute("go"))
        await asyncio.sleep(0.01)
        turn.cancel()
        await asyncio.wait([turn])
        return turn.cancelled()

    assert drive_loop(stopped())
    assert DONE == []
    assert [each.outcome for each in decisions(run)] == ["cancelled"]


def test_a_hook_that_waits_on_after_its_time_is_closed_and_the_next_turn_works() -> None:
    agent, _ = harness(begins_again, "before_tool_call")

    async def twice() -> list[str]:
        return [(await agent.execute("go")).text for _ in range(1)]

    assert drive_loop(twice()) == ["The secret is 42."]
    assert DONE == []


# -- large values: the loop goes on meanwhile -----------------------------------------------------------------------


@nn.tool
async def sort(a: list[int], b: list[int], ok: bool = True) -> str:
    """Sort."""
    DONE.append(len(a))
    return "sorted"


MANY: Final = 1_200
CALL: Final = nn.CallTool("sort", a=list(range(MANY)), b=list(range(2 * MANY, 0, -1)))


def judged(rules: nn.RuleBook, said: str, call: Any = CALL, *, limit_ms: float = 60_000.0) -> tuple[nn.Run, int]:
    """A turn with one large call, and how often another task ran since its first rule."""
    ticks = 0
    since: list[int] = []
    rules.rule("first", on="before_tool_call")(lambda params: since.append(ticks))
    rules.move("first", 0)
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", tools=[sort]),
        memory=[nn.steering(rules, timeouts={"before_tool_call": limit_ms})],
    )
    agent = nn.AgentHarness(config, model=nn.ScriptedModel([call, "Done."]))
    run = nn.record(agent)

    async def main() -> None:
        nonlocal ticks
        turn = asyncio.ensure_future(agent.execute(said))
        while not turn.done():
            await asyncio.sleep(0)
            ticks += 1
        await turn

    asyncio.run(main())
    return run, ticks - since[0]


# Of a turn that waits for nothing there are a few dozen.
FREE: Final = 300


def numbers(values: Any) -> str:
    return " ".join(map(str, values))


@pytest.mark.parametrize("trusted", [True, False])
def test_many_values_are_compared_with_the_users_while_the_loop_goes_on(trusted: bool) -> None:
    rules = nn.RuleBook()
    rules.only_from_user("sort", "a", "b")

    run, ticks = judged(rules, numbers(range(2 * MANY + 1)) if trusted else "sort them")

    assert ([MANY] if trusted else []) == DONE
    assert ticks > FREE
    assert [each.outcome for each in decisions(run)] == [None]


def test_a_long_text_is_read_while_the_loop_goes_on() -> None:
    rules = nn.RuleBook()
    rules.only_from_user("sort", "a")

    _, ticks = judged(rules, "and so on, " * 20_000 + "sort 1", nn.CallTool("sort", a=[1], b=[]))

    assert DONE == [1]
    assert ticks > FREE


@matrix(
    ("condition", "runs"),
    [
        ("tool.args.a.exists(x, x < 0)", True),
        ("tool.args.a.exists(x, x == 7)", False),
        ("origins(tool.args.a).exists(o, o == 'tool:search')", True),
        ("origin(tool.args.a) == 'model'", False),
    ],
    keep=2,
)
def test_a_condition_about_many_values_is_evaluated_elsewhere(condition: str, runs: bool) -> None:
    rules = nn.RuleBook()
    rules.when(condition, id="large", tools="sort")

    _, ticks = judged(rules, "sort them")

    assert ([MANY] if runs else []) == DONE
    assert ticks > FREE


def test_a_condition_that_takes_too_long_is_a_fault() -> None:
    many = nn.CallTool("sort", a=list(range(-30_000, 0)), b=list(range(30_000)), ok=True)
    slow = nn.RuleBook()
    slow.when("tool.args.b.filter(x, x > 0).size() < 0", id="slow", tools="sort")

    run, ticks = judged(slow, "sort them", many, limit_ms=300.0)

    assert DONE == []
    (decided,) = decisions(run)
    assert (decided.action, decided.outcome, decided.rule_ids) == ("deny", "timeout", ("slow",))
    assert ticks > FREE


@pytest.mark.parametrize("form", ["only_from_user", "when"])
def test_what_is_too_large_to_be_judged_is_a_fault(form: str) -> None:
    rules = nn.RuleBook()
    if form == "when":
        rules.when("size(tool.args.a) < 0", id="rule", tools="sort")
    else:
        rules.only_from_user("sort", "a", id="rule")

    run, _ = judged(rules, "sort them", nn.CallTool("sort", a=list(range(120_000)), b=[]))

    assert DONE == []
    (decided,) = decisions(run)
    assert (decided.action, decided.outcome, decided.rule_ids) == ("deny", "error", ("rule",))
    assert "too large" in decided.faults[0][1]


def test_recorded_and_watched_runs_judge_large_calls_alike() -> None:
    rules = nn.RuleBook()
    rules.only_from_user("sort", "a", "b")
    run, _ = judged(nn.RuleBook(), numbers(range(2 * MANY + 1)))
    strange, _ = judged(nn.RuleBook(), "sort them")

    frame = backtest(nn.RuleBook(), [run, strange], candidate=rules)

    assert list(frame[frame["args"].notna()]["change"]) == ["unchanged", "newly_denied"]
