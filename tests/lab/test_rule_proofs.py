"""Proofs about rules, compared with brute force: the rules themselves judge every call of a small domain."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, Final

import pytest

from noetic_nb.clock import SystemClock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import freeze
from noetic_nb.items._origin_index import OriginIndex, Provenance
from noetic_nb.items._origins import Origin
from noetic_nb.lab import difference, lint, prove
from noetic_nb.lab._rule_proofs.proofs import _decided
from noetic_nb.lab._rule_trial import as_snapshot
from noetic_nb.memory import ExecutionContext, PastCall
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.steering import RuleBook, SteeringRule, deny
from noetic_nb.steering._evaluation.evaluate import RuleSnapshot
from tests.matrix import several

pytest.importorskip("z3", reason="the extra `prove` is not installed")

BOOKS: Final = several(8, 40)
PAIRS: Final = several(40, 200)
CLAIMS: Final = several(10, 60)
SCHEMA: Final = {
    "type": "object",
    "properties": {
        "to": {"enum": ["GB12", "US34"]},
        "n": {"enum": [0, 2]},
        "urgent": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["x1", 7]}, "maxItems": 1},
    },
    "required": ["to"],
}
TOOLS: Final = {"pay": SCHEMA}
ABSENT: Final = object()
PASTS: Final = (
    *[(*read, *paid) for read in ((), (("read", "ok"),), (("read", "error"),)) for paid in ((), (("pay", "ok"),))],
    (("other", "ok"),),
)

ATOMS: Final = (
    'tool.args.to == "GB12"',
    'tool.args.to != "US34"',
    'tool.args.to in ["GB12", "x1"]',
    'tool.args.to.startsWith("GB")',
    'tool.args.to.endsWith("4")',
    'tool.args.to.contains("3")',
    'tool.args.to < "H"',
    "size(tool.args.to) == 4",
    "tool.args.n > 1",
    "tool.args.n >= 0.5",
    "tool.args.n == 1.0",
    "tool.args.n in [0, 2.0]",
    'tool.args["n"] != 2',
    "has(tool.args.n)",
    "!has(tool.args.urgent)",
    '"n" in tool.args',
    "tool.args.urgent",
    "tool.args.urgent == true",
    "tool.args.urgent < true",
    "(has(tool.args.n) ? tool.args.n : 2) < 1",
    "(tool.args.urgent ? tool.args.to : 'US34') == 'US34'",
    "size(tool.args.tags) > 0",
    '"x1" in tool.args.tags',
    "7 in tool.args.tags",
    "null in tool.args.tags",
    "tool.args.tags[0] == 7",
    "tool.args.to > 3",
    "tool.args.tags == 1",
    'tool.args.nothing == "x"',
    'origin(tool.args.to) == "user"',
    'origin(tool.args.to) != "tool:read"',
    'origin(tool.args.to).startsWith("tool:")',
    'origin(tool.args.to) in ["user", "system"]',
    'tool.name == "pay"',
    'tool.name != "pay"',
    "size(history) > 0",
)


def condition(draw: random.Random, depth: int = 2) -> str:
    if depth == 0 or draw.random() < 0.3:
        return draw.choice(ATOMS)
    sign = draw.choice(("&&", "||", "!"))
    if sign == "!":
        return f"!({condition(draw, depth - 1)})"
    return f"({condition(draw, depth - 1)}) {sign} ({condition(draw, depth - 1)})"


def book(draw: random.Random) -> RuleBook:
    rules = RuleBook()
    for number in range(draw.randint(0, 3)):
        made = {
            0: lambda: rules.only_from_user("pay", "to", trust=draw.choice(((), ("read",)))),
            1: lambda: rules.never("pay", after="read"),
            2: lambda: rules.only("pay", after="read"),
            3: lambda: rules.at_most(draw.choice((0, 1)), "pay"),
        }.get(draw.randrange(9))
        if made is not None:
            made()
        else:
            action = draw.choice(("deny", "deny", "ask", "guide", "allow"))
            rules.when(condition(draw), id=f"r{number}", on="before_tool_call", action=action)
    return rules


def provenance(value: str, author: str) -> Provenance:
    log = OriginIndex()
    if author != "model":
        log.add(value, Origin("user") if author == "user" else Origin("tool", "read"))
    return Provenance(log, OriginIndex(), OriginIndex(), schema=SCHEMA)


def call(args: Mapping[str, Any], past: Any, known: Provenance) -> BeforeToolCallParams:
    history = tuple([PastCall(name, {}, f"c{at}", status, "", "e") for at, (name, status) in enumerate(past)])
    ctx = ExecutionContext(execution_id="e", thread_id="t", clock=SystemClock())
    state = {"ledger": (), "pendingAsync": ()}
    return BeforeToolCallParams("pay", freeze(args), ctx, state, "c", history, provenance=lambda: known)


@cache
def domain() -> tuple[BeforeToolCallParams, ...]:
    """Every call with the arguments of the schema, each with every author and history of a small set."""
    found = []
    choices = (("GB12", "US34"), (ABSENT, 0, 2), (ABSENT, True, False), (ABSENT, [], ["x1"], [7]))
    for values in itertools.product(*choices):
        args = {name: value for name, value in zip(SCHEMA["properties"], values, strict=True) if value is not ABSENT}
        for author in ("user", "tool", "model"):
            known = provenance(args["to"], author)
            found += [call(args, past, known) for past in PASTS]
    return tuple(found)


def passes(rules: RuleSnapshot, one: BeforeToolCallParams) -> bool:
    return _decided(rules, one).decision.action.value == "allow"


def all_decisions(rules: RuleSnapshot) -> list[bool]:
    return [passes(rules, one) for one in domain()]


@pytest.mark.matrix
def test_differences_are_those_of_brute_force() -> None:
    draw = random.Random(11)
    books = [book(draw) for _ in range(BOOKS)]
    decided = [all_decisions(as_snapshot(rules)) for rules in books]
    equal = 0
    for _ in range(PAIRS):
        old, new = draw.randrange(BOOKS), draw.randrange(BOOKS)
        found = difference(books[old], books[new], tools=TOOLS)
        shown = [list(books[place]) for place in (old, new)]
        assert (found is None) == (decided[old] == decided[new]), shown
        equal += found is None
        if found is not None:
            assert passes(as_snapshot(books[old]), found.call) is (found.old.action.value == "allow")
            assert passes(as_snapshot(books[new]), found.call) is (found.new.action.value == "allow")
            assert (found.old.action.value == "allow") is not (found.new.action.value == "allow")
    assert PAIRS / 20 < equal < PAIRS * 19 / 20  # both answers occur


@pytest.mark.matrix
def test_claims_are_true_of_every_call_that_passes() -> None:
    draw = random.Random(12)
    counts = {"proved": 0, "counterexample": 0}
    for _ in range(CLAIMS):
        rules, claim = book(draw), condition(draw)
        found = prove(rules, claim, tools=TOOLS)
        snapshot = as_snapshot(rules)
        judge = as_snapshot([SteeringRule(id="claim", applies_to="before_tool_call", when=claim)])
        truths = [_decided(judge, one) for one in domain() if passes(snapshot, one)]
        holds = all(each.error is None and each.decision.action.value == "deny" for each in truths)
        assert found.status == ("proved" if holds else "counterexample"), (list(rules), claim, found)
        counts[found.status] += 1
    assert min(counts.values()) >= CLAIMS / 10


def send_money(recipient: str, amount: float, note: str | None = None, tags: tuple[str, ...] = ()) -> str:
    """Send money."""
    return ""


def read(path: str) -> str:
    """Read a file."""
    return ""


FROM_USER: Final = 'tool.name != "send_money" || origin(tool.args.recipient) == "user"'


def made(*conditions: str, **more: Any) -> RuleBook:
    rules = RuleBook()
    for number, text in enumerate(conditions):
        rules.when(text, id=f"r{number}", on="before_tool_call", **more)
    return rules


def sentence(trust: tuple[str, ...] = (), *args: str) -> RuleBook:
    rules = RuleBook()
    rules.only_from_user("send_money", *args, trust=trust)
    return rules


@pytest.mark.parametrize(
    "rules",
    [
        sentence((), "recipient"),
        sentence(),
        made('origin(tool.args.recipient) != "user"', tools="send_money"),
        made('origin(tool.args.recipient) != "user"', tools="send_money", action="ask"),
        made('tool.name == "send_money" && !(origin(tool.args.recipient) in ["user"])'),
        made('!(tool.name == "read" || origin(tool.args.recipient) == "user")'),
        # A rule that cannot be evaluated denies.
        made('tool.name == "send_money" && tool.args.wrong == 1'),
    ],
)
def test_the_recipient_is_from_the_user(rules: RuleBook) -> None:
    found = prove(rules, FROM_USER, tools=[send_money, read])

    assert (found.status, found.call) == ("proved", None)
    assert found.because == f"kept by {next(iter(rules)).id}"


@pytest.mark.parametrize(
    "rules",
    [
        made(),
        sentence(("read.email",), "recipient"),
        sentence((), "amount"),
        made('origin(tool.args.recipient) == "model"', tools="send_money"),
        made('origin(tool.args.recipient) != "user"', tools="send_money", action="allow"),
        made('origin(tool.args.recipient) != "user"', tools="read"),
        made('origin(tool.args.recipient) != "user" && tool.args.amount > 5', tools="send_money"),
        made('has(tool.args.note) && origin(tool.args.recipient) != "user"', tools="send_money"),
    ],
)
def test_a_recipient_of_others_is_found(rules: RuleBook) -> None:
    found = prove(rules, FROM_USER, tools=[send_money, read])

    assert found.status == "counterexample"
    assert found.call is not None
    assert found.call.tool_name == "send_money"
    assert found.call.origin(found.call.tool_args["recipient"]).text != "user"
    assert passes(as_snapshot(rules), found.call)
    assert "recipient=" in found.because


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ('tool.args.recipient.matches("^US")', "a regular expression"),
        ("tool.args.amount + 1.0 > 2.0", "arithmetic"),
        ('history.exists(c, c.name == "read")', "a macro over history"),
        ('tool.args.tags.exists(t, t == "x")', "a macro"),
        ("string(tool.args.amount) == '5'", "a call of string()"),
        ("ctx.depth > 1", "a look at ctx"),
        ('tool.args.tags == ["x"]', "a comparison of lists or objects"),
        ("tool.args.recipient == '\U000e0041'", "a character above U+2FFFF"),
    ],
)
def test_a_condition_that_is_not_read_leaves_it_undecided(condition: str, why: str) -> None:
    rules = made(condition, tools="send_money")

    found = prove(rules, FROM_USER, tools=[send_money])
    assert (found.status, found.call, found.because) == ("undecided", None, f"rule r0 has {why}")
    assert prove(rules, FROM_USER, tools=[read]).status == "proved"
    assert prove(made(f'tool.name == "read" && {condition}'), "false", tools=[send_money]).status == "counterexample"
    # Whatever it allows, the other rule blocks the rest.
    rules.only_from_user("send_money", "recipient")
    assert prove(rules, FROM_USER, tools=[send_money]).status == "proved"
    with pytest.raises(
        NoeticConfigError, match=why.replace("(", r"\(").replace(")", r"\)").replace("+", r"\+")
    ) as caught:
        difference(rules, sentence((), "recipient"), tools=[send_money])
    assert caught.value.code == "UNDECIDED"
    assert difference(rules, rules, tools=[send_money]) is None


def test_what_python_or_a_model_decides_is_undecided() -> None:
    rules = RuleBook()
    rules.rule("mine", on="before_tool_call")(lambda call: deny("No."))
    assert prove(rules, FROM_USER, tools=[send_money]).because == "rule mine is Python"
    assert difference(rules, rules, tools=[send_money]) is None
    judged = RuleBook()
    judged.judge("Is this right?", id="judge", when="tool.args.amount > 5")
    found = prove(judged, FROM_USER, tools=[send_money])
    assert (found.status, found.because) == ("undecided", "rule judge asks a model")
    assert prove(made(), 'tool.args.path.matches("x")', tools=[read]).because == "the claim has a regular expression"


@pytest.mark.parametrize(
    ("rule", "claim", "status"),
    [
        ("size(tool.args.tags) > 40", "size(tool.args.tags) < 41", "proved"),
        ("size(tool.args.tags) > 40", "size(tool.args.tags) < 40", "counterexample"),
        ('"x" in tool.args.tags', '!("x" in tool.args.tags)', "proved"),
        ('"x" in tool.args.tags', '!("y" in tool.args.tags)', "counterexample"),
        ('origin(tool.args.tags) != "user"', 'origin(tool.args.tags) == "user"', "proved"),
        ("tool.args.tags[0] == 'x'", "tool.args.tags[0] != 'x'", "proved"),
        ("size(tool.args.recipient) > 5", "size(tool.args.recipient) < 6", "proved"),
        ("size(tool.args.recipient) != 5", "size(tool.args.recipient) == 6", "counterexample"),
        ('!tool.args.recipient.startsWith("GB")', 'tool.args.recipient.contains("B")', "proved"),
        ('!tool.args.recipient.endsWith("é\\n")', "size(tool.args.recipient) >= 2", "proved"),
        ("tool.args.note == null", "tool.args.note != null", "proved"),
        ("tool.args.note == null", "tool.args.note != 'x'", "counterexample"),
        ("tool.args.amount > 0.1", "tool.args.amount <= 0.1", "proved"),
        ("tool.args.amount > 0.1", "tool.args.amount < 0.1", "counterexample"),
    ],
)
def test_claims_about_values_without_bounds(rule: str, claim: str, status: str) -> None:
    everything = made(rule, "!has(tool.args.tags)", "!has(tool.args.note)")

    found = prove(everything, claim, tools=[send_money])
    assert found.status == status, found
    if found.call is not None:
        assert passes(as_snapshot(everything), found.call)


def test_all_members_of_a_list_have_to_be_from_the_user() -> None:
    tags = sentence((), "tags")
    assert (
        prove(tags, '!has(tool.args.tags) || origin(tool.args.tags) == "user"', tools=[send_money]).status == "proved"
    )
    for properties, status in ((["email"], "proved"), (["email", "name"], "counterexample")):
        person = {"type": "object", "properties": {key: {"type": "string"} for key in properties}}
        nested = {
            "send_money": {
                "properties": {"to": {"type": "array", "items": {"$ref": "#/$defs/P"}}},
                "required": ["to"],
                "$defs": {"P": person},
            }
        }
        assert prove(sentence((), "to.email"), 'origin(tool.args.to) == "user"', tools=nested).status == status
    # A misspelt argument refuses every call.
    assert prove(sentence((), "tag"), "false", tools=[send_money]).status == "proved"


def test_sentences_about_earlier_calls_are_read() -> None:
    rules = RuleBook()
    rules.only("send_money", after="read")
    found = prove(rules, "tool.name != 'send_money'", tools=[send_money])
    assert found.call is not None
    assert [(past.name, past.status) for past in found.call.history] == [("read", "ok")]
    rules.never("send_money", after="read")
    found = prove(rules, "tool.name != 'send_money'", tools=[send_money])
    assert found.because == "kept by only-send_money-after-read, never-send_money-after-read"


def test_bad_questions_have_clear_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    for tools, claim, code in (
        ([], "true", "INVALID_TOOL"),
        ([read], 3, "INVALID_RULE"),
        ([read], "tool.arg.x == 1", "RULE_DOES_NOT_COMPILE"),
        ([read], "response.text == 'x'", "RULE_DOES_NOT_COMPILE"),
    ):
        with pytest.raises(NoeticConfigError) as caught:
            prove(made(), claim, tools=tools)  # type: ignore[arg-type]
        assert caught.value.code == code
    monkeypatch.setitem(sys.modules, "z3", None)
    for ask in (partial(prove, made(), "true"), partial(difference, made(), made())):
        with pytest.raises(NoeticConfigError, match=r"noetic_nb\[prove\]") as caught:
            ask(tools=[read])
        assert caught.value.code == "MISSING_PACKAGE"


def test_arguments_without_types_may_be_anything_and_are_still_decided() -> None:
    tools = {"pay": {"properties": {key: {} for key in ("to", "amount", "subject", "date", "recurring", "id")}}}
    rules = RuleBook()
    rules.only_from_user("pay", "to")
    rules.when("tool.args.amount > 5", id="large", tools="pay")

    assert prove(rules, '!has(tool.args.to) || origin(tool.args.to) == "user"', tools=tools).status == "proved"
    assert prove(rules, "tool.args.amount <= 5", tools=tools).status == "proved"
    # Text cannot be compared with a number: the rule fails, and denies.
    assert prove(rules, "tool.args.amount != 'much'", tools=tools).status == "proved"


def test_a_field_of_one_author_is_shown_in_an_item_of_his() -> None:
    rules = sentence(("read.account[sender=me]",), "recipient")

    found = prove(rules, FROM_USER, tools=[send_money, read])

    assert found.status == "counterexample"


def test_links_in_a_text_are_outside() -> None:
    rules = sentence((), "recipient.links")

    found = prove(rules, FROM_USER, tools=[send_money, read])

    assert found.status == "undecided"
    assert "has links of a text" in str(found.because)


@pytest.mark.parametrize(
    ("claim", "code", "near"),
    [
        ('tool.name != "pya" || false', "UNKNOWN_TOOL", "pay"),
        ('!(tool.name in ["pya"])', "UNKNOWN_TOOL", "pay"),
        ('tool.name != "pay" || origin(tool.args.recipent) == "user"', "UNKNOWN_ARGUMENT", "recipient"),
        ("!has(tool.args.amuont) || tool.args.amuont < 5", "UNKNOWN_ARGUMENT", "amount"),
    ],
)
def test_a_claim_about_no_tool_and_no_argument_is_not_proved(claim: str, code: str, near: str) -> None:
    def pay(recipient: str, amount: int) -> None: ...

    def look(path: str) -> None: ...

    with pytest.raises(NoeticConfigError, match=f"Did you mean '{near}'") as told:
        prove(RuleBook(), claim, tools=[pay, look])
    assert told.value.code == code
    assert prove(RuleBook(), 'tool.name != "refund" || false', tools=[pay]).status == "proved"  # an agent without it


@pytest.mark.parametrize("tools", [5, None, [5], {"pay": 5}])
def test_tools_that_are_none_are_named(tools: Any) -> None:
    with pytest.raises(NoeticConfigError, match=r"INVALID_TOOL.*Given"):
        prove(RuleBook(), "true", tools=tools)
    with pytest.raises(NoeticConfigError, match=r"INVALID_TOOL.*Given"):
        lint(RuleBook(), tools=tools)
