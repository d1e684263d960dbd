"""`only_from_user` compares values: honest phrasings pass, similar ones do not, live and replayed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

import noetic_nb as nn
from noetic_nb.items._origin_index import OriginIndex, Provenance
from noetic_nb.items._origins import Origin
from noetic_nb.items._value_search import hidden_character
from noetic_nb.lab import backtest
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.testing import drive_loop
from tests.steering.honest_phrasings import FORGED, HONEST

DONE: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


def vouched(text: str, value: Any) -> bool:
    index = OriginIndex()
    index.add(text, Origin("user"))
    return Provenance(index, OriginIndex(), OriginIndex()).vouched(value)


# -- the list ---------------------------------------------------------------------------------------------------------

REFUSED = [
    ("Book it for tomorrow", "2025-03-05"),
    ("Write to ann at example dot org", "ann@example.org"),
    ("Ruf 0170 1234567 an", "+491701234567"),
]


def test_of_sixty_honest_phrasings_at_least_54_pass() -> None:
    refused = [(text, value) for text, value in HONEST if not vouched(text, value)]

    assert len(HONEST) == 60
    assert refused == REFUSED
    assert len(HONEST) - len(refused) >= 54


@nn.tool
async def act(value: Any = None) -> str:
    """Act."""
    DONE.append(value)
    return "done"


def agent(
    rules: nn.RuleBook, script: list[Any], tools: Any = (act,), step: Any = None
) -> tuple[nn.AgentHarness, nn.Run]:
    step = step or nn.step.llm("ask", model="m", tools=tools, tool_rounds=3)
    config = nn.AgentConfig(name="desk", step=step, memory=[rules], tools=list(tools))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(script))
    return harness, nn.record(harness)


def strict(*args: str, tool: str = "act", **options: Any) -> nn.RuleBook:
    rules = nn.RuleBook()
    rules.only_from_user(tool, *args, **options)
    return rules


def changes(run: nn.Run, rules: nn.RuleBook) -> list[str]:
    frame = backtest(nn.RuleBook(), run, candidate=rules)
    return list(frame[frame["args"].notna()]["change"])


@pytest.mark.parametrize(("text", "value"), FORGED)
def test_a_value_that_only_looks_like_the_users_is_refused_live_and_replayed(text: str, value: Any) -> None:
    harness, run = agent(nn.RuleBook(), [nn.CallTool("act", value=value), "Done."])
    drive_loop(harness.execute(text))
    DONE.clear()
    guarded, _ = agent(strict("value"), [nn.CallTool("act", value=value), "Done."])

    drive_loop(guarded.execute(text))

    assert DONE == []
    assert changes(run, strict("value")) == ["newly_denied"]
    assert not vouched(text, [value])
    assert not vouched(text, {"a": value})


@pytest.mark.parametrize(("text", "value"), HONEST)
def test_what_passes_live_passes_replayed_and_by_its_origin(text: str, value: Any) -> None:
    by_origin = nn.RuleBook()
    by_origin.when("origin(tool.args.value) != 'user'", id="r", tools="act")
    for rules in (strict("value"), by_origin):
        DONE.clear()
        harness, run = agent(nn.RuleBook(), [nn.CallTool("act", value=value), "Done."])
        drive_loop(harness.execute(text))
        DONE.clear()
        guarded, _ = agent(rules, [nn.CallTool("act", value=value), "Done."])

        drive_loop(guarded.execute(text))

        passes = (text, value) not in REFUSED
        assert bool(DONE) is passes
        assert changes(run, rules) == (["unchanged"] if passes else ["newly_denied"])


# -- properties -------------------------------------------------------------------------------------------------------

NAMES = st.text("abcdefgh", min_size=1, max_size=6).filter(lambda name: name not in ("a", "b", "d", "g", "h"))
SENTENCES = st.lists(NAMES, min_size=2, max_size=6)
SIGNS = st.text("/.@-_~$*\\%&+^#|;:?!=", min_size=1, max_size=3)


@given(SENTENCES, SIGNS, st.data())
def test_the_words_of_a_sentence_form_no_value_with_signs_in_it(words: list[str], sign: str, data: Any) -> None:
    start = data.draw(st.integers(0, len(words) - 2))
    first, second = words[start : start + 2]

    assert not vouched(" ".join(words), f"{first}{sign}{second}")


FORMS = ["../{}", "/{}", "~/{}", ".{}", "{}/..", "{}/*", "{}*", "-{}", "${}", "{}@x.org", "{}.org", "a/{}"]


@given(SENTENCES, st.sampled_from(FORMS))
def test_no_sign_can_be_put_to_a_word_of_the_user(words: list[str], form: str) -> None:
    assert vouched(" ".join(words), words[0])
    assert not vouched(" ".join(words), form.format(words[0]))


@given(st.lists(st.integers(1_000, 9_999), min_size=3, max_size=4), st.sampled_from([" ", "-"]))
def test_groups_of_a_card_are_that_card_and_nothing_else(groups: list[int], mark: str) -> None:
    text = f"My card is {mark.join(map(str, groups))}, please."
    whole = "".join(map(str, groups))

    assert vouched(text, whole)
    assert vouched(text, int(whole))
    assert vouched(f"My card is {whole}", mark.join(map(str, groups)))
    for group in groups:
        assert not vouched(text, group)
        assert not vouched(text, str(group))
    assert not vouched(text, whole[:-1])
    assert not vouched(text, str(int(whole) + 1))


@given(
    st.integers(-10_000, 10_000), st.integers(-10_000, 10_000), st.sampled_from(["{}", "{} EUR", "€{}", "{}kg", "{}."])
)
def test_a_number_is_its_value_in_any_writing(number: int, other: int, form: str) -> None:
    text = f"Take {form.format(number)} now"

    assert vouched(text, number)
    assert vouched(text, float(number))
    assert vouched(text, other) is (number == other)


@given(st.decimals(1, 99_999, places=2), st.sampled_from(["{:,.2f}", "{:.2f}", "de"]))
def test_the_marks_of_thousands_and_cents_are_read(amount: Any, form: str) -> None:
    written = f"{amount:,.2f}".translate(str.maketrans(",.", ".,")) if form == "de" else form.format(amount)

    assert vouched(f"Pay {written} EUR", amount)
    assert not vouched(f"Pay {written} EUR", amount * 100)


INVISIBLE = st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Co"]).filter(lambda sign: sign not in "\t\n\u200c\u200d")


@given(st.sampled_from(["ann@x.org", "notes", "Ann Smith", "کتاب"]), INVISIBLE, st.data())
def test_what_nobody_sees_is_refused_wherever_it_stands(value: str, sign: str, data: Any) -> None:
    at = data.draw(st.integers(0, len(value)))
    forged = value[:at] + sign + value[at:]
    assume("\r\n" not in forged)

    assert hidden_character(forged) is not None
    assert not vouched(f"write to {value}", forged)
    assert not vouched(f"write to {forged}", forged)


@pytest.mark.parametrize(
    "value", ["two\nlines\r\nand\ta tab", "👩\u200d💻 at work", "می\u200cخواهم", "a ❤\ufe0f b", "क्\u200dष"]
)
def test_newlines_tabs_and_the_joiners_of_emoji_and_persian_pass(value: str) -> None:
    assert hidden_character(value) is None
    assert vouched(f"Write: {value}", value)


# -- keys of mappings -------------------------------------------------------------------------------------------------


class Guest(BaseModel):
    """A guest."""

    email: str
    notes: dict[str, str] = {}


@nn.tool
async def invite(guests: list[Guest]) -> str:
    """Invite."""
    DONE.append(guests)
    return "done"


@nn.tool
async def label(labels: dict[str, Any]) -> str:
    """Label."""
    DONE.append(labels)
    return "done"


KEYS: list[tuple[Any, dict[str, Any], bool]] = [
    (label, {"labels": {"ann": "red"}}, True),
    (label, {"labels": {"eve@evil.com": "red"}}, False),
    (label, {"labels": {"eve@evil.com": None}}, False),
    (label, {"labels": {"ann": {"eve": "red"}}}, False),
    (label, {"labels": {"ann": [{"eve": 1}]}}, False),
    (label, {"labels": {"ann\u200b": "red"}}, False),
    (invite, {"guests": [{"email": "ann@x.org"}]}, True),
    (invite, {"guests": [{"email": "ann@x.org", "notes": {"ann": "red"}}]}, True),
    (invite, {"guests": [{"email": "ann@x.org", "notes": {"eve@evil.com": "red"}}]}, False),
    (invite, {"guests": [{"email": "eve@evil.com"}]}, False),
]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("tool", "args", "passes"), KEYS)
def test_keys_of_free_mappings_are_values_and_names_of_properties_are_not(
    tool: Any, args: dict[str, Any], passes: bool, named: bool
) -> None:
    rules = strict(*(args if named else ()), tool=tool.name)
    text = "label ann red, and invite ann@x.org"
    harness, run = agent(nn.RuleBook(), [nn.CallTool(tool.name, **args), "Done."], (tool,))
    drive_loop(harness.execute(text))
    DONE.clear()
    guarded, _ = agent(rules, [nn.CallTool(tool.name, **args), "Done."], (tool,))

    drive_loop(guarded.execute(text))

    assert bool(DONE) is passes
    assert changes(run, rules) == (["unchanged"] if passes else ["newly_denied"])


def test_the_origin_of_a_mapping_counts_its_keys() -> None:
    rules = nn.RuleBook()
    rules.when("origin(tool.args.labels) != 'user'", id="r", tools="label")
    script = [
        nn.CallTool("label", labels={"eve@evil.com": "red"}),
        nn.CallTool("label", labels={"ann": "red"}),
        "Done.",
    ]
    harness, _ = agent(rules, script, (label,))

    drive_loop(harness.execute("label ann red"))

    assert DONE == [{"ann": "red"}]


def test_a_child_is_held_to_the_same() -> None:
    inner = nn.step.llm("inner", model="m", tools=[label], tool_rounds=3)
    child = nn.step.spawn("child", inner)
    script = [
        nn.CallTool("label", labels={"eve@evil.com": "red"}),
        nn.CallTool("label", labels={"ann": "red"}),
        "Done.",
    ]
    harness, _ = agent(strict("labels", tool="label"), script, (label,), child)

    drive_loop(harness.execute("label ann red"))

    assert DONE == [{"ann": "red"}]


def test_the_model_reads_that_a_character_is_not_seen() -> None:
    harness, run = agent(strict("value"), [nn.CallTool("act", value="ann\u200b@x.org"), "Done."])

    drive_loop(harness.execute("write to ann@x.org"))

    guidance = [event.guidance for event in run.events if event.kind == "steering_decided" and event.tool_name]
    assert "U+200B" in str(guidance[0])
    assert "\u200b" not in str(guidance[0])


def test_a_rule_of_its_own_can_ask_the_same() -> None:
    seen: list[bool] = []
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call")
    def note(call: BeforeToolCallParams) -> None:
        seen.append(call.is_vouched(call.tool_args["value"]))

    values = ["notes", "notes/../..", "notes\x00"]
    harness, _ = agent(rules, [*[nn.CallTool("act", value=value) for value in values], "Done."])

    asyncio.run(harness.execute("delete the folder notes"))

    assert seen == [True, False, False]
