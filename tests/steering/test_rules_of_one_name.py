"""Rules named after functions: a rewritten one replaces the old one, and one made in a loop is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering import deny

ON: dict[str, Any] = {"on": "before_tool_call"}


def by_options(rules: nn.RuleBook) -> None:
    for tool in ("pay", "refund"):

        @rules.rule(on="before_tool_call", tools=[tool])
        def small(call: Any) -> Any:
            return deny("No.")


def by_closure(rules: nn.RuleBook) -> None:
    for limit in (5, 10):
        _add(rules, limit)


def _add(rules: nn.RuleBook, limit: int) -> None:
    @rules.rule(on="before_tool_call")
    def small(call: Any) -> Any:
        return deny("No.") if call.tool_args["amount"] > limit else None


def by_default(rules: nn.RuleBook) -> None:
    for limit in ([5], [10]):

        @rules.rule(on="before_tool_call")
        def small(call: Any, limit: list[int] = limit) -> Any:
            return deny("No.") if call.tool_args["amount"] > limit[0] else None


@pytest.mark.parametrize("loop", [by_options, by_closure, by_default])
def test_a_loop_that_makes_one_name_again_and_again_is_refused(loop: Callable[[nn.RuleBook], None]) -> None:
    rules = nn.RuleBook()

    with pytest.raises(NoeticConfigError, match=r"'small' exists already.*in a loop") as caught:
        loop(rules)
    assert caught.value.code == "DUPLICATE_RULE_ID"
    assert "rules.rule('name'" in caught.value.hint


def test_names_of_their_own_and_the_same_rule_again_are_fine() -> None:
    rules = nn.RuleBook()
    for limit in (5, 10):

        def small(call: Any, limit: int = limit) -> Any:
            return None

        rules.rule(f"small-{limit}", **ON)(small)
        rules.rule("explicit", **ON)(small)  # by its id: the replacement is intended
    for _ in range(2):
        _add(rules, 5)  # as when a set-up function is called again

    assert [rule.id for rule in rules] == ["small-5", "explicit", "small-10", "small"]


def test_cells() -> None:
    shell = InteractiveShell()
    shell.run_cell("import noetic_nb as nn\nrules = nn.RuleBook()")
    rule = "@rules.rule(on='before_tool_call')\ndef r(call):\n    return {}\n"

    def fails(cell: str) -> bool:
        return shell.run_cell(cell, silent=True).error_in_exec is not None

    assert not fails(rule.format("None"))
    assert not fails(rule.format("None"))  # the same cell again
    assert not fails("\n" + rule.format("nn.deny('No.')"))  # the cell after an edit
    assert fails(rule.format("1") + rule.format("2"))  # twice in one cell


@pytest.mark.parametrize("function", [lambda: None, lambda a, b: None, functools.partial(lambda a: None, 1)])
def test_a_function_that_cannot_be_called_with_the_call_is_refused(function: Any) -> None:
    with pytest.raises(NoeticConfigError, match="called with one argument") as caught:
        nn.RuleBook().rule("r", **ON)(function)
    assert caught.value.code == "INVALID_RULE"


def test_a_second_lambda_needs_a_name() -> None:
    rules = nn.RuleBook()
    rules.rule(lambda call: None, **ON)

    with pytest.raises(NoeticConfigError, match="already") as caught:
        rules.rule(lambda call: deny("No."), **ON)
    assert caught.value.code == "DUPLICATE_RULE_ID"


def test_what_can_be_called_with_the_call_is_taken() -> None:
    def method(call: Any, *rest: Any, **more: Any) -> None: ...

    rules = nn.RuleBook()
    for number, function in enumerate(
        (method, functools.partial(lambda a, call: None, 1), print, lambda call, b=1: None)
    ):
        rules.rule(f"r{number}", **ON)(function)
    rules.rule(functools.partial(method, more=1), **ON)
    assert [rule.id for rule in rules][-1] == "method"


READ: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "args": ("before_tool_call", lambda call: call.args, "Write call.tool_args."),
    "arguments": ("before_tool_call", lambda call: call.arguments, "Write call.tool_args."),
    "name": ("before_tool_call", lambda call: call.name, "Write call.tool_name."),
    "slip": ("before_tool_call", lambda call: call.tool_arg, "Did you mean 'tool_args'?"),
    "nested": ("before_tool_call", lambda call: call.args, "A tool call has no attribute"),
    "content": ("after_model_call", lambda response: response.content, "Write response.text."),
    "past": (
        "before_tool_call",
        lambda call: deny("No.") if any(past.tool_args for past in call.history) else None,
        "Write past.args.",
    ),
}


@pytest.mark.parametrize("name", READ)
async def test_a_rule_that_reads_what_is_not_there_is_told_what_is(name: str) -> None:
    point, read, words = READ[name]

    @nn.tool
    def pay(amount: dict[str, int] | int) -> str:
        """Pay."""
        return "paid"

    rules = nn.RuleBook()
    problems: list[BaseException] = []
    rules.rule("r", on=point, history=True)(read)
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="m", tools=[pay]), memory=[nn.steering(rules, on_error="allow")]
    )
    model = nn.ScriptedModel(
        [nn.CallTool("pay", amount={"a": 1} if name == "nested" else 1), nn.CallTool("pay", amount=2), "Done."]
    )
    harness = nn.AgentHarness(config, model=model, diagnostic=lambda layer, hook, error: problems.append(error))
    await harness.execute("Pay.")

    assert words in str(problems[0])
    assert "_Flat" not in str(problems[0])
    assert isinstance(problems[0], AttributeError)


CEL = {
    "tool.name = 'x'": "Write == to compare.",
    "tool.name === 'x'": "Write == to compare.",
    "tool.name == 'x' & true": "Write && for `and`.",
    "tool.name == 'x' | true": "Write || for `or`.",
    "tool.name == 'x' and true": "Write && for `and`.",
    "tool.name == 'x' or true": "Write || for `or`.",
    "not tool.args.x": "Write ! for `not`.",
    "tool.args.x == None": "Write null.",
    "True": "Write true.",
    "tool.name in ('a', 'b')": "tool.name in ['a', 'b']",
    "len(tool.args) > 1": "Write size(...).",
    "tool.name == 'x": "a text begins with '",
    'tool.name == "x': 'a text begins with "',
    "tool.args.amount >": "it ends where a value is expected",
    "tool.args.amount > 5 &&": "it ends where a value is expected",
    "(tool.name == 'x'": "it ends before a )",
    "tool.args['x'": "it ends before a ]",
    "tool.name == 'x')": ") is not expected there",
    "tool.name 'x'": "is not expected there",
}


@pytest.mark.parametrize("text", CEL)
def test_a_condition_that_is_no_cel_says_what_to_write(text: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        nn.RuleBook().when(text, id="r", on="before_tool_call")

    assert caught.value.code == "RULE_DOES_NOT_COMPILE"
    assert CEL[text] in str(caught.value)
    assert not any(word in str(caught.value) for word in ("expecting {", "<EOF>", "token recognition", "NUM_FLOAT"))
    assert caught.value.facts["line"] == 1
