"""The linter on clean rule books, and on the same books with one fault in one rule."""

from __future__ import annotations

import ast
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ToolCalled
from noetic_nb.lab import _rule_lint, datasets, lint
from noetic_nb.lab._recorded_calls import calls_of
from noetic_nb.lab._rule_lint import NOTES, SLOW_MS, LintCode
from noetic_nb.lab._rule_trial import as_snapshot, try_rules
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._evaluation.evaluate import Policy
from noetic_nb.steering._predicates.python_source import compile_predicate

RUNS: Final = datasets.airline()


def schemas() -> dict[str, Any]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for run in RUNS:
        for call in run.select(ToolCalled):
            found[call.name] |= set(call.args or {})
    return {name: {"properties": {key: {} for key in sorted(args)}} for name, args in found.items()}


TOOLS: Final = schemas()

PYTHON: Final = {
    "few_bags": (
        ("book_reservation",),
        """
def few_bags(call):
    if call.tool_args["total_baggages"] > 2:
        return deny("At most two bags.")
""",
    ),
    "short_thoughts": (
        ("think",),
        """
def short_thoughts(call):
    text = call.tool_args.get("thought", "")
    words = [word for word in text.split() if word]
    words.append("end")
    if len(words) > 40:
        return guide(f"Think in at most 40 words, not {len(words)}.")
""",
    ),
    "search_once": (
        ("search_direct_flight",),
        """
def search_once(call):
    same = [past for past in call.history if past.name == call.tool_name]
    if any(past.args["origin"] == call.tool_args["origin"] for past in same):
        return deny("You have searched from there already.")
""",
    ),
    "cancel_after_look": (
        None,
        """
def cancel_after_look(call):
    if call.tool_name != "cancel_reservation":
        return None
    seen = {past.args.get("reservation_id") for past in call.history if past.name == "get_reservation_details"}
    if call.tool_args["reservation_id"] not in seen:
        return {"action": "guide", "guidance": "Look at the reservation in this turn first."}
    return allow()
""",
    ),
}

CEL: Final[dict[str, dict[str, Any]]] = {
    "business": {
        "when": "tool.args.cabin == 'business' && tool.args.insurance == 'no'",
        "tools": "book_reservation",
        "guidance": "Offer insurance for {tool.args.cabin} first.",
        "action": "guide",
    },
    "arithmetic": {
        "when": "tool.args.expression.contains('*') && size(tool.args.expression) > 8",
        "tools": "calculate",
        "guidance": "Shorter, please.",
    },
    "york": {
        "when": "tool.name in ['search_direct_flight', 'search_onestop_flight'] && tool.args.origin == 'JFK'",
        "guidance": "Ask which airport of New York is meant.",
        "action": "ask",
    },
    "apology": {
        "when": "response.text.contains('apologize')",
        "guidance": "Do not apologize.",
        "action": "guide",
        "on": "after_model_call",
    },
}


def python_book() -> RuleBook:
    rules = RuleBook()
    for name, (tools, text) in PYTHON.items():
        rules.put(python_rule(name, text, tools))
    return rules


def python_rule(name: str, text: str, tools: Any) -> SteeringRule:
    return SteeringRule(
        id=name,
        applies_to="before_tool_call",
        tools=tools,
        predicate=compile_predicate(name, text, {}),
        source=text,
    )


def cel_book() -> RuleBook:
    rules = RuleBook()
    for name, fields in CEL.items():
        rules.when(fields["when"], id=name, **{key: value for key, value in fields.items() if key != "when"})
    return rules


def sequence_book() -> RuleBook:
    rules = RuleBook()
    rules.at_most(2, "get_reservation_details", id="two_looks")
    rules.only("cancel_reservation", after="get_reservation_details", id="look_first")
    rules.never("transfer_to_human_agents", after="cancel_reservation", id="no_handover")
    rules.at_most(0, "send_certificate", id="no_gifts")
    return rules


TOUR: Final = Path(__file__).parents[2] / "notebooks" / "00_tour.ipynb"


def tour_book() -> tuple[RuleBook, Any, list[nn.Run]]:
    """The rules of the tour, as defined in its cells, on runs that they apply to."""
    cells = ["".join(cell["source"]) for cell in json.loads(TOUR.read_text())["cells"] if cell["cell_type"] == "code"]
    cell = next(text for text in cells if "@rules.rule" in text)
    calls = [call for run in RUNS for call in run.select(ToolCalled) if call.name == "cancel_reservation"]
    mine = sorted({call.args["reservation_id"] for call in calls})[::2]  # every other one is another user's
    names: dict[str, Any] = {"nn": nn, "re": re, "BOOKINGS": mine}
    exec(compile(cell, "<tour>", "exec"), names)
    rules = RuleBook()
    functions = {node.name: node for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.FunctionDef)}
    for rule in names["rules"]:
        functions[rule.id].decorator_list = []
        text = ast.unparse(functions[rule.id]) + "\n"
        predicate = compile_predicate(rule.id, text, names)
        rules.put(rule.model_copy(update={"predicate": predicate, "source": text}))
    return rules, TOOLS, [*RUNS, _promising_run()]


def _promising_run() -> nn.Run:
    from noetic_nb.events import ModelCalled, Where
    from noetic_nb.items import assistant_message

    where = Where("t", "e", 1)
    said = [(assistant_message(text),) for text in ("I promise it will be on time.", "I guarantee it.")]
    return nn.Run("promise", events=[ModelCalled(where, 0.0, 0, "m", "agent", 0.0, "ok", items) for items in said])


BOOKS: Final[dict[str, Callable[[], tuple[RuleBook, Any, list[nn.Run]]]]] = {
    "python": lambda: (python_book(), TOOLS, RUNS),
    "cel": lambda: (cel_book(), TOOLS, RUNS),
    "sentences": lambda: (sequence_book(), TOOLS, RUNS),
    "tour": tour_book,
}


@pytest.mark.parametrize("name", BOOKS)
def test_a_clean_book_has_no_finding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", time.process_time)  # a busy machine must not make a rule slow
    rules, tools, runs = BOOKS[name]()

    found = lint(rules, runs, tools=tools)
    assert [str(finding) for finding in found if finding.code not in NOTES] == []
    assert not any(finding.code == "overlap" for finding in found)


# Mutation operators: each yields a list of rules with one fault, and the id of the faulty rule.

Mutant = tuple[list[SteeringRule], str]


def with_rule(rules: RuleBook, new: SteeringRule) -> list[SteeringRule]:
    return [new if rule.id == new.id else rule for rule in rules]


def names_of(rule: SteeringRule) -> dict[str, Any]:
    return getattr(rule.predicate, "__globals__", {})


def text_mutants(rules: RuleBook, edit: Callable[[str], str | None]) -> Iterator[Mutant]:
    for rule in rules:
        if rule.predicate is not None and rule.source is not None:
            text = edit(rule.source)
            if text is not None and text != rule.source:
                new = rule.model_copy(
                    update={"predicate": compile_predicate(rule.id, text, names_of(rule)), "source": text}
                )
                yield with_rule(rules, new), rule.id


def field_mutants(rules: RuleBook, edit: Callable[[SteeringRule], dict[str, Any] | None]) -> Iterator[Mutant]:
    for rule in rules:
        fields = edit(rule)
        if fields is not None:
            yield with_rule(rules, rule.model_copy(update=fields)), rule.id


def body_first(statement: str) -> Callable[[str], str]:
    def edit(source: str) -> str:
        lines = source.strip().splitlines()
        return "\n".join([lines[0], f"    {statement}", *lines[1:]]) + "\n"

    return edit


def never(rules: RuleBook) -> Iterator[Mutant]:
    yield from text_mutants(rules, body_first("return None"))
    yield from field_mutants(rules, lambda r: {"when": f"({r.when}) && false"} if r.when else None)
    yield from field_mutants(
        rules,
        lambda r: (
            {"sequence": r.sequence.model_copy(update={"count": 10_000})}
            if r.sequence is not None and r.sequence.count is not None
            else None
        ),
    )


def always(rules: RuleBook) -> Iterator[Mutant]:
    yield from text_mutants(rules, body_first("return deny('Always.')"))
    yield from field_mutants(rules, lambda r: {"when": f"({r.when}) || true"} if r.when else None)


def shadow(rules: RuleBook) -> Iterator[Mutant]:
    for place, rule in enumerate(rules):
        fields = {"action": "deny"} if rule.form in ("cel", "sequence") else {}
        earlier = rule.model_copy(update={"id": "earlier", **fields})
        if rule.predicate is not None and rule.source is not None and "guide" in rule.source:
            text = rule.source.replace("guide(", "deny(").replace('"guide"', '"deny"')
            earlier = earlier.model_copy(
                update={"predicate": compile_predicate("earlier", text, names_of(rule)), "source": text}
            )
        yield [*list(rules)[:place], earlier, *list(rules)[place:]], rule.id


def silence(rules: RuleBook) -> Iterator[Mutant]:
    def edit(source: str) -> str:
        text = re.sub(r"(deny|guide)\(f?\".*?\"\)", r"\1()", source)
        text = re.sub(r"(deny|guide)\('.*?'\)", r"\1()", text)
        return re.sub(r", \"guidance\": \".*?\"", "", text)

    yield from text_mutants(rules, edit)
    yield from field_mutants(rules, lambda r: {"guidance": None} if r.when else None)
    yield from field_mutants(rules, lambda r: {"guidance": " "} if r.sequence else None)


def misspell(name: str) -> str:
    return name[:-2] + name[-1] + name[-2] if name[-1] != name[-2] else name + "s"


def wrong_tool(rules: RuleBook) -> Iterator[Mutant]:
    yield from field_mutants(rules, lambda r: {"tools": tuple(map(misspell, r.tools))} if r.tools else None)
    yield from field_mutants(
        rules,
        lambda r: (
            {"sequence": r.sequence.model_copy(update={"others": tuple(map(misspell, r.sequence.others))})}
            if r.sequence is not None and r.sequence.others
            else None
        ),
    )
    for tool in TOOLS:
        yield from text_mutants(rules, lambda source, tool=tool: source.replace(f'"{tool}"', f'"{misspell(tool)}"'))
        yield from field_mutants(
            rules,
            lambda r, tool=tool: (
                {"when": r.when.replace(f"'{tool}'", f"'{misspell(tool)}'")}
                if r.when is not None and f"'{tool}'" in r.when
                else None
            ),
        )


def wrong_argument(rules: RuleBook) -> Iterator[Mutant]:
    names = {name for schema in TOOLS.values() for name in schema["properties"]}
    for name in sorted(names):
        for form in (f'tool_args["{name}"]', f'tool_args.get("{name}"'):
            yield from text_mutants(
                rules, lambda source, form=form, name=name: source.replace(form, form.replace(name, misspell(name)))
            )
        for field in ("when", "guidance"):
            yield from field_mutants(
                rules,
                lambda r, field=field, name=name: (
                    {field: getattr(r, field).replace(f"tool.args.{name}", f"tool.args.{misspell(name)}")}
                    if f"tool.args.{name}" in (getattr(r, field) or "")
                    else None
                ),
            )


def contradict(rules: RuleBook) -> Iterator[Mutant]:
    for rule in rules:
        opposite: SteeringRule | None = None
        if rule.when is not None and rule.action != "ask":
            deny = rule.model_copy(update={"action": "deny"})
            opposite = rule.model_copy(update={"id": "opposite", "when": f"!({rule.when})", "action": "deny"})
            yield [*with_rule(rules, deny), opposite], "opposite"
            yes = rule.model_copy(update={"id": "yes", "action": "allow", "guidance": None})
            yield [*with_rule(rules, deny), yes], "yes"
        elif rule.sequence is not None and rule.sequence.kind == "only_after":
            other = rule.sequence.model_copy(update={"kind": "never_after"})
            yield [*rules, rule.model_copy(update={"id": "opposite", "sequence": other})], "opposite"
            book = RuleBook(rules)
            ban = book.at_most(0, rule.sequence.others, id="opposite")
            yield [*rules, ban], "opposite"


def impure(rules: RuleBook) -> Iterator[Mutant]:
    statements = [
        "import time; started = time.time()",
        "from datetime import datetime; late = datetime.now().hour > 20",
        "import random; lucky = random.random() > 0.5",
        "print(call)",
        "open('/tmp/x')",
        "global seen; seen = call",
        "WORDS.append(call)",
        "CACHE[call.call_id] = call",
        "call.tool_args['x'] = 1",
        "call.ctx.state = 3",
        "import os; os.environ.get('X')",
        "now = call.ctx.clock.now_ms()",
    ]
    for statement in statements:
        yield from text_mutants(rules, lambda source, statement=statement: _guarded(source, statement))


def _guarded(source: str, statement: str) -> str:
    """Insert a statement after a condition, where it does not interfere with the other checks."""
    lines = source.strip().splitlines()
    parts = [part.strip() for part in statement.split(";")]
    return (
        "\n".join([lines[0], "    if not hasattr(call, 'ctx'):", *[f"        {part}" for part in parts], *lines[1:]])
        + "\n"
    )


def slow(rules: RuleBook) -> Iterator[Mutant]:
    yield from text_mutants(rules, body_first("total = sum(number * number for number in range(30_000))"))


OPERATORS: Final[dict[str, Callable[[RuleBook], Iterator[Mutant]]]] = {
    "never_fires": never,
    "always_fires": always,
    "shadowed": shadow,
    "missing_guidance": silence,
    "unknown_tool": wrong_tool,
    "unknown_argument": wrong_argument,
    "contradiction": contradict,
    "impure": impure,
    "slow": slow,
}
# The minimum of 100 mutants to be found. A rule that only matters at one moment looks like a coincidence.
RECALL: Final = dict.fromkeys(OPERATORS, 0.95)


def few(runs: list[nn.Run]) -> list[nn.Run]:
    """Return some short runs with every tool of the rules: slow rules make slow tests."""
    wanted = ("cancel_reservation", "book_reservation", "think", "search_direct_flight")
    called = [(run, [call.name for call in run.select(ToolCalled)]) for run in runs]
    short = [min((pair for pair in called if name in pair[1]), key=lambda pair: len(pair[1]))[0] for name in wanted]
    return list({id(run): run for run in short}.values())


@pytest.mark.parametrize("code", OPERATORS)
def test_planted_faults_are_found(code: Any, record_property: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rule_lint, "SLOW_MS", SLOW_MS / 10)  # and slow mutants do a tenth of what takes so long
    missed: list[str] = []
    count = 0
    for name, make in BOOKS.items():
        rules, tools, runs = make()
        for mutant, rule_id in OPERATORS[code](rules):
            count += 1
            found = lint(mutant, few(runs) if code == "slow" else runs, tools=tools, only=[code])
            if rule_id not in [finding.rule_id for finding in found]:
                missed.append(f"{name}: {rule_id}")
            assert all(finding.why and finding.fix for finding in found)

    recall = 1 - len(missed) / count
    record_property("recall", recall)
    print(f"\n{code}: {count - len(missed)} of {count} found, recall {recall:.2f}", *missed, sep="\n  missed ")
    assert count >= 4
    assert recall >= RECALL[code], missed


def test_the_nearest_names_are_suggested() -> None:
    rules = RuleBook()
    rules.when("tool.args.total_bagages > 2", id="bags", tools="book_reservatoin", guidance="{tool.args.cabn}")
    rules.at_most(3, "bооk_reservation", id="twin")  # Cyrillic

    fixes = {(finding.rule_id, finding.code): finding.fix for finding in lint(rules, tools=TOOLS)}

    assert fixes["bags", "unknown_tool"] == "Did you mean 'book_reservation'?"
    assert fixes["twin", "unknown_tool"] == "Write 'book_reservation'."
    assert fixes["bags", "unknown_argument"] in ("Did you mean 'cabin'?", "Did you mean 'total_baggages'?")


def test_a_response_is_not_asked_for_the_tool_that_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def explained(*given: Any) -> str:
        raise AssertionError(f"an error is explained that nobody reads: {given}")

    monkeypatch.setattr("noetic_nb._core.arguments.closest", explained)

    assert lint(RuleBook().at_most(3, "think", id="thrice"), RUNS[:2], tools=TOOLS, only=["never_fires"]) is not None


def test_tools_may_be_records_specs_or_names() -> None:
    @nn.tool
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    rules = RuleBook()
    rules.when("tool.args.amont > 2", id="r", tools="pay", guidance="No.")

    assert [finding.code for finding in lint(rules, tools=[pay])] == ["unknown_argument"]
    assert [finding.code for finding in lint(rules, tools=[pay.spec])] == ["unknown_argument"]
    assert lint(rules, tools=["pay"]) == ()
    assert [finding.code for finding in lint(rules, tools=["other"])] == ["unknown_tool"]


def test_a_rule_that_raises_is_a_finding_and_not_one_that_always_fires() -> None:
    rules = RuleBook([python_rule("broken", "def broken(call):\n    return call.tool_args['nothing']\n", None)])

    found = lint(rules, RUNS)

    assert [finding.code for finding in found] == ["raises"]
    assert "KeyError" in found[0].why


def test_disabled_rules_and_judges_are_left_out() -> None:
    rules = RuleBook()
    rules.when("false", id="off", on="before_tool_call", guidance="x")
    rules.disable("off")
    rules.judge("Fair?", id="fair")

    assert lint(rules, RUNS, tools=TOOLS) == ()


def test_without_runs_only_the_text_is_looked_at() -> None:
    rules = RuleBook()
    rules.when("false", id="quiet", on="before_tool_call")

    assert [finding.code for finding in lint(rules)] == ["missing_guidance"]


def test_what_only_the_text_says_evaluates_no_rule_and_every_code_is_found_alone_as_among_all() -> None:
    rules = RuleBook()
    evaluated: list[str] = []

    @rules.rule("quiet", on="before_tool_call", tools=["think", "nowhere"])
    def quiet(call: Any) -> Any:
        evaluated.append(call.tool_name)
        return False

    rules.when("tool.args.thougt == ''", id="silent", tools="think")
    of_text = {"missing_guidance", "unknown_tool", "unknown_argument", "impure"}
    every = lint(rules, RUNS, tools=TOOLS)
    assert {finding.code for finding in every} > of_text - {"impure"}
    assert evaluated

    for code in get_args(LintCode):
        evaluated.clear()
        assert lint(rules, RUNS, tools=TOOLS, only=[code]) == tuple(each for each in every if each.code == code)
        assert bool(evaluated) is (code not in {*of_text, "unread_tool", "unread_argument"})


def test_tools_may_be_plain_functions_as_everywhere() -> None:
    def pay(amount: int) -> str:
        return "paid"

    rules = RuleBook()
    rules.when("tool.args.amont > 3", id="large", tools="pay", guidance="Too much.")

    for tools in ([pay], pay, (nn.tool(pay),), "pay"):
        found = [finding.code for finding in lint(rules, tools=tools)]
        assert found == ([] if tools == "pay" else ["unknown_argument"])
    with pytest.raises(NoeticConfigError, match="not a tool") as caught:
        lint(rules, tools=[3])
    assert caught.value.code == "INVALID_TOOL"


def test_the_tools_of_the_runs_are_known() -> None:
    @nn.tool
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[pay]))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hi."]))
    run = nn.record(harness)
    nn.run_sync(harness.execute("Hi."))
    rules = RuleBook()
    rules.only_from_user("pay", "amont")

    assert "unknown_argument" in [finding.code for finding in lint(rules, run)]


UNREAD: Final = {"unread_tool", "unread_argument"}


def unread(rules: RuleBook, tools: Any = None) -> list[str]:
    pay = {"properties": {"to": {}, "amount": {}, "party": {"properties": {"email": {}}}}}
    found = lint(rules, tools={"pay": pay, "read": {"properties": {"path": {}}}} if tools is None else tools)
    return [finding.why for finding in found if finding.code in UNREAD]


NOTHING: Final = "No rule is about read: every call of it passes."


def python_of(text: str, tools: Any = None) -> RuleBook:
    return RuleBook([python_rule("r", f"\ndef r(call):\n    {text}\n", tools)])


def cel_of(condition: str, **more: Any) -> RuleBook:
    rules = RuleBook()
    rules.when(condition, id="r", guidance="No.", on="before_tool_call", **more)
    return rules


@pytest.mark.parametrize(
    ("rules", "unread_arguments"),
    [
        (cel_of("tool.args.amount > 3", tools="pay"), "to, party"),
        (cel_of("tool.name == 'pay' && tool.args.to == ''"), "amount, party"),
        (cel_of("tool.args.amount > 3"), "to, party"),
        (cel_of("tool.args['to'] == ''", tools="pay"), "amount, party"),
        (cel_of("tool.args.party.email == ''", tools="pay"), "to, amount"),
        (cel_of("size(tool.args) > 3", tools="pay"), None),
        (cel_of("true", tools="pay"), None),
        (python_of("return deny('No.') if call.tool_args['to'] else None", ("pay",)), "amount, party"),
        (python_of("return deny('No.') if call.tool_args.get('to') else None", ("pay",)), "amount, party"),
        (python_of("return deny('No.') if 'x' in call.tool_args.values() else None", ("pay",)), None),
        (python_of("return check(call)", ("pay",)), None),
    ],
)
def test_tools_and_arguments_that_no_rule_reads_are_named(rules: RuleBook, unread_arguments: str | None) -> None:
    of_pay = [] if unread_arguments is None else [f"No rule reads {unread_arguments} of pay."]
    assert unread(rules) == [*of_pay, NOTHING]


def test_a_rule_about_every_tool_and_one_that_looks_back_read_more() -> None:
    assert unread(RuleBook()) == ["No rule is about pay: every call of it passes.", NOTHING]
    assert unread(cel_of("origin(tool.args) != 'user'")) == []
    back = cel_of("history.exists(c, c.name == 'read') && tool.args.to == ''", tools="pay")
    assert unread(back) == ["No rule reads amount, party of pay."]


def test_sentences_read_what_they_name() -> None:
    rules = RuleBook()
    rules.only("pay", after="read")
    assert unread(rules) == ["No rule reads to, amount, party of pay.", "No rule reads path of read."]
    rules.only_from_user("pay", "to", "party.email")
    assert unread(rules)[0] == "No rule reads amount of pay."
    rules.only_from_user("pay", trust=["read.email"])
    assert unread(rules) == ["No rule reads path of read."]
    rules.judge("Fair?", id="fair")
    assert unread(rules) == []
    # A name that is not a tool comes first, because it may be meant for one of these.
    misspelt = cel_of("tool.args.too == ''", tools="pay")
    assert [finding.code for finding in lint(misspelt, tools={"pay": {"properties": {"to": {}}}})] == [
        "unknown_argument"
    ]


def overlapping() -> RuleBook:
    rules = RuleBook()
    rules.at_most(1, "get_reservation_details", id="one_look")
    rules.at_most(2, "get_reservation_details", id="two_looks")
    rules.when("tool.args.cabin == 'business'", id="business", tools="book_reservation", guidance="No.", action="ask")
    rules.when("tool.args.cabin != 'economy'", id="cheap", tools="book_reservation", guidance="No.", action="guide")
    rules.at_most(0, "send_certificate", id="no_gifts")
    return rules


@pytest.mark.parametrize("make", [overlapping, cel_book, sequence_book, python_book])
def test_effects_are_those_of_leaving_rules_out(make: Callable[[], RuleBook]) -> None:
    rules = make()
    calls = calls_of(RUNS)

    def actions(kept: Any) -> list[Any]:
        return [each.decision for each in try_rules(as_snapshot(kept), calls, policy=Policy(on_error="allow"))]

    decided = actions(rules)
    for effect in lint(rules, RUNS, tools=TOOLS).effects:
        named = [place for place, each in enumerate(decided) if effect.rule_id in each.rule_ids]
        changes = 0
        for place in named:
            others = [rule for rule in rules if rule.id not in decided[place].rule_ids]
            again = try_rules(as_snapshot(others), [calls[place]], policy=Policy(on_error="allow"))[0].decision
            changes += again.action is not decided[place].action
        alone = actions([rule for rule in rules if rule.id == effect.rule_id])
        fires = sum(each.action.value != "allow" for each in alone)
        assert (effect.fires, effect.decides, effect.changes) == (fires, len(named), changes)
        assert sum(effect.others.values()) >= len(named) - changes


def test_rules_that_change_nothing_and_those_that_overlap_are_told_apart() -> None:
    found = lint(overlapping(), RUNS)

    # On a busy machine any rule may be slow.
    by_code = {finding.rule_id: finding.code for finding in found if finding.code not in {*UNREAD, "slow"}}
    assert by_code["two_looks"] == "shadowed"
    assert by_code["one_look"] == "overlap"
    assert "no_gifts" not in by_code
    table = found.to_frame().set_index("rule")
    assert table.columns.tolist() == ["calls", "fires", "decides", "changes", "others"]
    assert table.loc["no_gifts", "changes"] == table.loc["no_gifts", "fires"] > 0
    assert table.loc["one_look", "others"] == {
        "two_looks": table.loc["one_look", "decides"] - table.loc["one_look", "changes"]
    }
    # Every call that the last one stops is stopped by one of the others, but not by the same one each time.
    three = RuleBook()
    three.when("tool.args.expression.contains('*')", id="times", tools="calculate", guidance="No.")
    three.when("!tool.args.expression.contains('*')", id="others", tools="calculate", guidance="No.")
    three.at_most(0, "calculate", id="none")
    codes = {finding.rule_id: finding.code for finding in lint(three, RUNS, only=["redundant", "overlap"])}
    assert codes["none"] == "redundant"
