"""Guards see every way to call a tool, judge exactly the executed call, once, and refuse unknown entry points."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, PlainSerializer, SecretStr, model_serializer

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.steps import Tool
from noetic_nb.sync import run_sync
from tests.interop.guard_tools import (
    DONE,
    PARAMETERS,
    FunctionTool,
    LangChainTool,
    PydanticAITool,
    Session,
    called,
    decided,
    pay,
    pay_later,
)


@pytest.fixture(autouse=True)
def nothing_done() -> Any:
    DONE.clear()
    with nn.guard_session("t1"):
        yield


def no_payments() -> nn.RuleBook:
    book = nn.RuleBook()
    book.at_most(0, "pay")
    return book


def denied(call: Callable[[], Any]) -> bool:
    try:
        found = call()
        found = run_sync(found) if hasattr(found, "__await__") else found
    except NoeticError as exc:
        return exc.kind == "steering_denied"
    return "steering_denied" in str(found)


class FastClient(Session):
    """Like ``fastmcp.Client``."""

    async def call_tool_mcp(self, name: str, arguments: dict[str, Any], timeout: Any = None) -> Any:
        return await self.call_tool(name, arguments)


class Toolset:
    """Like a toolset of pydantic-ai."""

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        return pay(**tool_args)


# Other ways to pass a tool -> (the guarded object, how to call it)
WAYS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "partial": (lambda: functools.partial(pay, 5), lambda tool: tool()),
    "partial by name": (lambda: functools.partial(pay, amount=5), lambda tool: tool()),
    "partial of a partial": (lambda: functools.partial(functools.partial(pay, 5), "Ann"), lambda tool: tool()),
    "partial of an async function": (lambda: functools.partial(pay_later, 5), lambda tool: tool()),
    "partial of a tool": (lambda: functools.partial(nn.tool(pay), amount=5), lambda tool: tool()),
    "method of a tool": (lambda: nn.tool(pay).call, lambda tool: tool({"amount": 5})),
    "invoke": (lambda: LangChainTool(pay).invoke, lambda tool: tool({"amount": 5})),
    "partial of invoke": (lambda: functools.partial(LangChainTool(pay).invoke, {"amount": 5}), lambda tool: tool()),
    "schema of pydantic-ai": (
        lambda: PydanticAITool(pay).function_schema.call,
        lambda tool: tool({"amount": 5}, None),
    ),
    "MCP": (lambda: Session().call_tool, lambda tool: tool("pay", {"amount": 5})),
    "MCP by name": (lambda: Session().call_tool, lambda tool: tool(arguments={"amount": 5}, name="pay")),
    "MCP with a name": (
        lambda: functools.partial(Session().call_tool, "pay"),
        lambda tool: tool({"amount": 5}),
    ),
    "MCP with all": (
        lambda: functools.partial(Session().call_tool, name="pay", arguments={"amount": 5}),
        lambda tool: tool(),
    ),
    "MCP with a time": (
        lambda: functools.partial(Session().call_tool, read_timeout=5),
        lambda tool: tool("pay", {"amount": 5}),
    ),
    "call_tool_mcp": (lambda: FastClient().call_tool_mcp, lambda tool: tool("pay", {"amount": 5})),
    "partial of call_tool_mcp": (
        lambda: functools.partial(FastClient().call_tool_mcp, "pay"),
        lambda tool: tool({"amount": 5}),
    ),
    "toolset": (lambda: Toolset().call_tool, lambda tool: tool("pay", {"amount": 5}, None, None)),
}


@pytest.mark.filterwarnings("ignore::noetic_nb.steering._evaluation.rule_reading.UnknownTarget")  # two names, one tool
@pytest.mark.parametrize("way", WAYS)
def test_a_rule_about_a_tool_sees_each_way_to_call_it(way: str) -> None:
    make, call = WAYS[way]
    book = nn.RuleBook()
    book.at_most(0, ["pay", "pay_later"])

    assert denied(lambda: call(nn.guard(make(), book)))
    assert DONE == []


@pytest.mark.parametrize("way", WAYS)
def test_it_is_judged_once_with_all_it_is_given_and_runs(way: str) -> None:
    make, call = WAYS[way]
    book, seen = nn.RuleBook(), []

    @book.rule(on="before_tool_call")
    def look(call: Any) -> None:
        seen.append((call.tool_name, call.tool_args["amount"]))

    guarded = nn.guard(make(), book)
    found = call(guarded)
    if hasattr(found, "__await__"):
        run_sync(found)

    assert seen == [("pay_later" if "async" in way else "pay", 5)]
    assert DONE == [5]
    assert len(called(guarded)) == 1


def test_a_partial_stays_one_for_whoever_looks_at_it() -> None:
    guarded = nn.guard(functools.partial(pay_later, to="Ann"), nn.RuleBook())

    assert isinstance(guarded, functools.partial)
    assert guarded.__name__ == "pay_later"  # type: ignore[attr-defined]
    assert asyncio.iscoroutinefunction(guarded)


@pytest.mark.parametrize("name", ["Pay", "PAY", " pay ", "pay\x00", "pay\u200b", "ｐａｙ", "pаy", "pay\n"])
@pytest.mark.parametrize("rule", ["pay", "Pay "])
def test_names_of_mcp_are_compared_after_normalisation(name: str, rule: str) -> None:
    book = nn.RuleBook()
    book.at_most(0, rule)
    session = Session()

    assert denied(lambda: nn.guard(session.call_tool, book)(name, {"amount": 5}))
    assert session.sent == []


def test_calls_of_one_tool_count_together_however_its_name_is_written() -> None:
    book = nn.RuleBook()
    book.at_most(1, "pay")
    guarded = nn.guard(Session().call_tool, book)

    run_sync(guarded("PAY", {"amount": 1}))

    assert denied(lambda: guarded("pay", {"amount": 2}))
    assert DONE == [1]


def test_names_that_differ_in_more_than_writing_stay_apart() -> None:
    guarded = nn.guard(Session().call_tool, no_payments())

    run_sync(guarded("pay_back", {"amount": 1}))

    assert DONE == [1]


def test_a_lambda_is_guarded_while_no_rule_names_tools_and_refused_where_one_does() -> None:
    book = nn.RuleBook()
    book.when("tool.args.amount > 100", id="small")
    guarded = nn.guard(lambda amount: pay(amount), book)
    assert denied(lambda: guarded(500))
    assert guarded(5) == "paid 5 to bank"

    book.at_most(0, "pay")

    for call in (lambda: guarded(5), lambda: nn.guard(lambda amount: pay(amount), book)):
        with pytest.raises(NoeticConfigError) as caught:
            call()
        assert caught.value.code == "INVALID_TOOL"
        assert "def" in str(caught.value)
    assert DONE == [5]


class Streams:
    """Like a runnable of an unknown framework."""

    name = "pay"

    def invoke(self, input: Any, config: Any = None) -> Any:
        return pay(**input)

    def stream(self, input: Any, config: Any = None) -> Any:
        yield pay(**input)


async def call_tool(*args: Any, **kwargs: Any) -> Any:
    return pay(**kwargs)


@pytest.mark.parametrize(
    "make", [Streams, Session, Toolset, lambda: call_tool], ids=["stream", "MCP", "toolset", "open"]
)
def test_what_cannot_be_guarded_is_refused_when_it_is_given(make: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        nn.guard(make(), no_payments())

    assert caught.value.code == "INVALID_TOOL"


# -- judged is what runs, once ---------------------------------------------------------------------------------------------


def hundredfold(value: int) -> int:
    return value * 100


Cents = Annotated[int, AfterValidator(hundredfold)]
RUNS: list[Any] = []


def cents(amount: Cents) -> str:
    """Pay."""
    DONE.append(amount)
    return "paid"


def sdk_tool(function: Callable[..., Any], parse: Tool | None = None) -> FunctionTool:
    """Return a tool as the OpenAI Agents SDK makes it from a function: it validates the text itself."""
    own = nn.tool(function) if parse is None else parse

    async def invoke(ctx: Any, text: str) -> Any:
        return function(**own.bind(json.loads(text)).values)

    tool = FunctionTool(own.name, own.description, dict(own.spec.parameters), invoke)
    tool.__wrapped__ = function  # type: ignore[attr-defined]
    return tool


ONCE: dict[str, tuple[Callable[[Callable[..., Any]], Any], Callable[[Any, Any], Any]]] = {
    "function": (lambda f: f, lambda tool, amount: tool(amount=amount)),
    "partial": (lambda f: functools.partial(f), lambda tool, amount: tool(amount=amount)),
    "own tool": (nn.tool, lambda tool, amount: tool(amount=amount)),
    "own tool, checked call": (nn.tool, lambda tool, amount: run_sync(tool.call({"amount": amount}))),
    "own tool in a harness": (
        nn.tool,
        lambda tool, amount: run_sync(
            nn.AgentHarness(
                nn.AgentConfig(name="a", step=nn.react(model="m", tools=[tool])),
                model=nn.ScriptedModel([nn.CallTool(tool.name, amount=amount), "ok"]),
            ).execute("go")
        ),
    ),
    "OpenAI Agents": (
        sdk_tool,
        lambda tool, amount: run_sync(tool.on_invoke_tool(None, json.dumps({"amount": amount}))),
    ),
}


@pytest.mark.parametrize("form", ONCE)
def test_what_a_validator_gives_is_judged_and_runs(form: str) -> None:
    make, call = ONCE[form]
    book, seen = nn.RuleBook(), []

    @book.rule(on="before_tool_call")
    def look(call: Any) -> None:
        seen.append(call.tool_args["amount"])

    call(nn.guard(make(cents), book), 1)

    assert seen == DONE == [100]


@pytest.mark.parametrize("form", ONCE)
def test_a_secret_reaches_the_tool(form: str) -> None:
    make, call = ONCE[form]
    seen: list[Any] = []
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    def look(call: Any) -> None:
        seen.append((call.tool_args["amount"], call.tool_values["amount"]))

    def log_in(amount: SecretStr) -> str:
        """Log in."""
        DONE.append(amount.get_secret_value())
        return "done"

    guarded = nn.guard(make(log_in), book)
    call(guarded, SecretStr("abc") if form in ("partial",) else "abc")

    assert DONE == ["abc"]
    assert seen[0][0] == "**********"
    assert "abc" not in repr(list(guarded.run.events)[-1].args)


@pytest.mark.parametrize("form", ["own tool, checked call", "OpenAI Agents"])
def test_a_validator_that_gives_another_value_each_time_runs_once_or_not_at_all(form: str) -> None:
    make, call = ONCE[form]
    count = 0

    def next_value(value: int) -> int:
        nonlocal count
        count += 1
        return count

    def act(amount: Annotated[int, AfterValidator(next_value)]) -> str:
        """Act."""
        DONE.append(amount)
        return "done"

    act.__annotations__ = {"amount": Annotated[int, AfterValidator(next_value)], "return": str}
    guarded = nn.guard(make(act), [], on_deny="return")
    found = call(guarded, 1)

    if form == "OpenAI Agents":
        assert "each time" in found
        assert DONE == []
    else:
        assert DONE == [1] == [event.args["amount"] for event in called(guarded)]


class Order(BaseModel):
    amount: int


class Hidden(Order):
    @model_serializer
    def shown(self) -> dict[str, int]:
        return {"amount": 0}


@dataclass
class Record:
    amount: Annotated[int, PlainSerializer(lambda value: 0)]


def buy_order(order: Any) -> str:
    DONE.append(order)
    return "bought"


def buy_orders(order: Any, *more: Any) -> str:
    return buy_order(order)


@pytest.mark.parametrize("value", [Hidden(amount=1_000), [Hidden(amount=1_000)], {"a": Record(1_000)}])
@pytest.mark.parametrize(
    ("make", "call"),
    [
        (lambda: buy_order, lambda tool, order: tool(order)),
        (lambda: buy_orders, lambda tool, order: tool(order)),
        (lambda: LangChainTool(buy_order), lambda tool, order: tool.invoke({"order": order})),
        (
            lambda: PydanticAITool(buy_order),
            lambda tool, order: run_sync(tool.function_schema.call({"order": order}, None)),
        ),
    ],
    ids=["annotations", "signature", "LangChain", "pydantic-ai"],
)
def test_serializers_hide_nothing_from_a_guard(make: Any, call: Any, value: Any) -> None:
    guarded = nn.guard(make(), [], on_deny="raise")

    with pytest.raises(NoeticError, match="serializer"):
        call(guarded, value)

    assert DONE == []


def by_place(to: str, /, **more: Any) -> str:
    DONE.append(to)
    return "paid"


def with_rest(*rest: Any, **more: Any) -> str:
    DONE.append(rest)
    return "paid"


def with_default(to: str = "bank", /, **more: Any) -> str:
    DONE.append(more)
    return "paid"


@pytest.mark.parametrize(
    ("function", "args", "named"),
    [
        (by_place, ("Eve",), {"to": "Ann"}),
        (with_rest, ("Eve",), {"rest": "Ann"}),
        (with_default, (), {"to": "Eve"}),
    ],
)
def test_two_arguments_of_one_name_are_refused(function: Any, args: Any, named: Any) -> None:
    guarded = nn.guard(function, [])
    for call in (guarded, nn.guard(functools.partial(function, *args), [])):
        with pytest.raises(NoeticError) as caught:
            call(*(args if call is guarded else ()), **named)
        assert caught.value.kind == "tool_failed"
        assert "twice" in str(caught.value) or "passed as a keyword" in str(caught.value)
    assert DONE == []
    assert guarded("Ann", cc="Eve") == "paid"


# -- no change between check and use ---------------------------------------------------------------------------------------


def buy(order: dict[str, Any], *more: Any) -> str:
    DONE.append(json.dumps(order))
    return "bought"


async def buy_later(order: dict[str, Any], *more: Any) -> str:
    return buy(order)


def typed(order: dict[str, Any]) -> str:
    """Buy."""
    return buy(order)


class Shop:
    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        return buy(**arguments)


CHANGED: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "function by signature": (lambda: buy, lambda tool, order: tool(order)),
    "function by annotations": (lambda: typed, lambda tool, order: tool(order)),
    "async function": (lambda: buy_later, lambda tool, order: run_sync(tool(order))),
    "lambda": (lambda: lambda order: buy(order), lambda tool, order: tool(order=order)),
    "partial": (lambda: buy, lambda tool, order: functools.partial(tool, order)()),
    "own tool": (lambda: nn.tool(typed), lambda tool, order: tool(order=order)),
    "own tool, checked call": (lambda: nn.tool(typed), lambda tool, order: run_sync(tool.call({"order": order}))),
    "LangChain": (lambda: LangChainTool(typed), lambda tool, order: tool.invoke({"order": order})),
    "LangChain async": (
        lambda: LangChainTool(None, buy_later),
        lambda tool, order: run_sync(tool.ainvoke({"order": order})),
    ),
    "pydantic-ai": (
        lambda: PydanticAITool(typed),
        lambda tool, order: run_sync(tool.function_schema.call({"order": order}, None)),
    ),
    "MCP": (lambda: Shop().call_tool, lambda tool, order: run_sync(tool("buy", {"order": order}))),
}


@pytest.mark.parametrize("form", CHANGED)
def test_what_others_change_while_a_rule_waits_does_not_run(form: str) -> None:
    make, call = CHANGED[form]
    order = {"lines": [{"to": "Ann"}]}
    book, seen = nn.RuleBook(), []

    @book.rule(on="before_tool_call")
    async def slow(call: Any) -> None:
        seen.append(call.tool_args["order"])
        await asyncio.sleep(0)
        order["lines"][0]["to"] = "Eve"
        order["more"] = []

    call(nn.guard(make(), book), order)

    assert DONE == ['{"lines": [{"to": "Ann"}]}']
    assert seen == [{"lines": ({"to": "Ann"},)}]


@pytest.mark.parametrize("form", ["function", "own", "LangChain"])
def test_other_objects_are_compared_again(form: str) -> None:
    class Tags(dict[str, Any]):
        def __copy__(self) -> Tags:
            return self  # makes copying impossible

    tags = Tags(to="Ann")

    def act(tags: Any) -> str:
        DONE.append(tags)
        return "done"

    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    async def slow(call: Any) -> None:
        await asyncio.sleep(0)
        tags["to"] = "Eve"

    tool = {"function": act, "own": nn.tool(act), "LangChain": LangChainTool(act)}[form]
    guarded = nn.guard(tool, book, on_deny="raise")
    call = guarded.invoke if form == "LangChain" else lambda given: guarded(**given)
    with pytest.raises(NoeticError) as caught:
        call({"tags": tags})

    assert caught.value.kind == "steering_denied"
    assert DONE == []
    assert [event.status for event in called(guarded)] == ["denied"]


def test_what_is_no_argument_is_not_copied() -> None:
    class Bank(BaseModel):
        paid: int = 0

        def pay(self, amount: int) -> str:
            self.paid += amount
            return "paid"

    bank, context = Bank(), SimpleNamespace(tool_call_id="c")
    nn.guard(bank.pay, [])(5)
    nn.guard(Bank.pay, [])(bank, 5)

    def tell(ctx: Any, amount: int) -> str:
        DONE.append(ctx)
        return "told"

    run_sync(nn.guard(PydanticAITool(tell, takes_ctx=True), []).function_schema.call({"amount": 1}, context))

    assert bank.paid == 10
    assert [context] == DONE


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def spoil(value: Any) -> None:
    if isinstance(value, list):
        for inner in value:
            spoil(inner)
        value.append("Eve")
    if isinstance(value, dict):
        for inner in value.values():
            spoil(inner)
        value["to"] = "Eve"


@given(data=st.dictionaries(st.text(max_size=3), plain, max_size=3), form=st.sampled_from(sorted(CHANGED)))
def test_each_form_runs_what_was_judged_whatever_others_do(data: dict[str, Any], form: str) -> None:
    make, call = CHANGED[form]
    before = json.dumps(data)
    book, seen = nn.RuleBook(), []

    @book.rule(on="before_tool_call")
    async def slow(call: Any) -> None:
        seen.append(json.dumps(nn.items.thaw(call.tool_args["order"])))
        await asyncio.sleep(0)
        spoil(data)
        spoil(call.tool_values["order"])

    DONE.clear()
    call(nn.guard(make(), book), data)

    assert before == seen[0] == DONE[0]


@given(value=st.integers(-1000, 1000), times=st.integers(-3, 3), form=st.sampled_from(sorted(ONCE)))
def test_whatever_a_validator_does_what_is_judged_is_what_runs(value: int, times: int, form: str) -> None:
    make, call = ONCE[form]

    def act(amount: Any) -> str:
        """Act."""
        DONE.append(amount)
        return "done"

    act.__annotations__ = {"amount": Annotated[int, AfterValidator(lambda given: given * times + 1)], "return": str}
    DONE.clear()
    guarded = nn.guard(
        make(act), [nn.SteeringRule(id="any", applies_to="before_tool_call", predicate=lambda call: None)]
    )
    call(guarded, value)

    assert DONE == [event.args["amount"] for event in decided(guarded)] == [value * times + 1]


def test_a_schema_alone_still_decides_what_the_tool_reads() -> None:
    texts: list[str] = []

    async def invoke(ctx: Any, text: str) -> str:
        texts.append(text)
        return "done"

    guarded = nn.guard(FunctionTool("pay", "Pay.", PARAMETERS, invoke), [])
    run_sync(guarded.on_invoke_tool(None, '{"amount": 1, "amount": 2}'))

    assert list(map(json.loads, texts)) == [{"amount": 2, "to": "bank"}]
    assert texts[0].count("amount") == 1
