"""Rule files are read back as they were written, and nothing in a file is executed or guessed."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering import (
    RuleBook,
    SteeringRule,
    dump_rules,
    load_rules,
    parse_rules,
    rule_file_schema,
    save_rules,
)

FORMATS = ("yaml", "json")

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
names = st.lists(texts, min_size=1, max_size=3, unique=True)
actions = st.sampled_from(["deny", "guide", "ask", "allow"])
guidances = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}"), max_size=60)
common: dict[str, Any] = {"name": st.none() | texts, "enabled": st.booleans()}

conditions = st.fixed_dictionaries(
    {
        "applies_to": st.just("before_tool_call"),
        "when": st.sampled_from(["tool.name == 'a'", "history.exists(h,\n  h.ok)", "ctx.cost > 0.5 // dear", "true"]),
        "action": st.none() | actions,
        "guidance": guidances,
        "tools": st.none() | names,
        **common,
    }
)
judges = st.fixed_dictionaries(
    {
        "applies_to": st.sampled_from(["before_tool_call", ("before_tool_call", "after_model_call")]),
        "llm_eval": st.fixed_dictionaries(
            {"mode": st.sampled_from(["sync", "async"]), "prompt": texts, "model": texts}
        ),
        "when": st.none() | st.just("ctx.depth == 0"),
        "tools": st.none() | names,
        **common,
    }
)
sentences = st.fixed_dictionaries(
    {
        "applies_to": st.just("before_tool_call"),
        "sequence": st.one_of(
            st.builds(lambda count: {"kind": "at_most", "count": count}, st.integers(0, 9)),
            st.builds(
                lambda kind, others: {"kind": kind, "others": others},
                st.sampled_from(["never_after", "only_after"]),
                names,
            ),
        ),
        "action": st.none() | actions,
        "guidance": guidances,
        "tools": names,
        **common,
    }
)
rule_lists = st.lists(st.one_of(conditions, judges, sentences), max_size=4).flatmap(
    lambda fields: st.lists(texts, min_size=len(fields), max_size=len(fields), unique=True).map(
        lambda ids: [SteeringRule(id=rule_id, **more) for rule_id, more in zip(ids, fields, strict=True)]
    )
)


@given(rule_lists, st.sampled_from(FORMATS))
def test_rules_that_are_data_come_back_the_same(rules: list[SteeringRule], form: Any) -> None:
    text = dump_rules(rules, format=form)

    assert list(parse_rules(text, format=form)) == rules
    if form == "json":
        jsonschema.validate(json.loads(text), rule_file_schema())


@pytest.mark.parametrize(
    "text", ["\x85", "a\u2028b", "\r\n", " a\n b ", "a\n\n", "\ufeff", "\x07", "\x00", "- a: b #", "'\"", "~", "0x1"]
)
@pytest.mark.parametrize("form", FORMATS)
def test_texts_that_yaml_readers_fold_come_back_the_same(text: str, form: Any) -> None:
    rules = [SteeringRule(id=text, name=text, applies_to="before_tool_call", when="true", guidance=text)]

    assert list(parse_rules(dump_rules(rules, format=form), format=form)) == rules


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_a_python_rule_is_written_by_name_and_bound_by_who_loads_it(tmp_path: Path, suffix: str) -> None:
    rules = RuleBook()

    @rules.rule(on="before_tool_call", tools=["pay"], history=True, isolate="thread")
    def small(call: Any) -> Any:
        return nn.deny("import os")

    path = save_rules(rules, tmp_path / f"rules{suffix}")
    loaded = load_rules(path, functions={"small": small})

    assert "import os" not in path.read_text()
    assert loaded["small"] == rules["small"].model_copy(update={"source": None})


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_a_rule_book_saves_and_loads_itself(tmp_path: Path, suffix: str) -> None:
    rules = RuleBook()
    rules.at_most(3, "search")
    rules.only_from_user("pay", "to")

    @rules.rule(on="before_tool_call", tools=["pay"])
    def small(call: Any) -> None: ...

    path = rules.save(tmp_path / f"rules{suffix}")
    loaded = RuleBook.load(path, functions={"small": small})

    assert path == tmp_path / f"rules{suffix}"
    assert [rule.id for rule in loaded] == [rule.id for rule in rules]
    assert list(loaded) == list(load_rules(path, functions={"small": small}))
    assert (loaded.version, loaded.changes) == (0, ())
    for call in (lambda: RuleBook.load(path), lambda: rules.save(tmp_path / "rules.txt")):
        with pytest.raises(NoeticConfigError):
            call()


def test_a_python_rule_without_its_function_is_an_error_and_not_left_out() -> None:
    with pytest.raises(NoeticConfigError, match="'small'") as caught:
        parse_rules("version: 1\nrules:\n- {id: small, python: small}", functions={"other": len})

    assert (caught.value.code, caught.value.rule_id) == ("UNBOUND_RULE", "small")


def test_the_published_schema_is_the_one_in_force() -> None:
    published = resources.files("noetic_nb.steering._rules").joinpath("rules.schema.json").read_text(encoding="utf-8")

    assert json.loads(published) == rule_file_schema()
    jsonschema.Draft202012Validator.check_schema(rule_file_schema())


HEAD = "version: 1\nrules:\n"


@pytest.mark.parametrize("text", ["- {id: a, when: 'true'}", "rules: [{id: a, at_most: 1}]"])
def test_a_file_without_its_beginning_shows_one_that_can_be_copied(text: str) -> None:
    with pytest.raises(NoeticConfigError, match="version: 1") as caught:
        parse_rules(text)

    assert "RuleFile" not in str(caught.value)
    example = str(caught.value.hint).split("`")[-2]
    assert [rule.id for rule in parse_rules(HEAD + f"- {example}")] == ["twice"]


@pytest.mark.parametrize("text", ["010", "-010", "+07", "00", "007", "09"])
@pytest.mark.parametrize(
    "place", ["at_most: {}, tools: [t]", "at_most: 1, tools: [{}]", "at_most: 1, tools: [t], name: {}"]
)
def test_a_number_with_a_zero_in_front_is_refused_and_both_readings_named(text: str, place: str) -> None:
    with pytest.raises(NoeticConfigError, match="octal") as caught:
        parse_rules(HEAD + "- {id: a, " + place.format(text) + "}")

    assert caught.value.code == "INVALID_RULE_FILE"
    assert f"number {text}" in caught.value.what
    assert f"write {text.lstrip('+-').lstrip('0') or '0'}" in caught.value.what
    assert "line 3" in caught.value.what


@pytest.mark.parametrize(("text", "count"), [("0", 0), ("10", 10), ("8", 8), ("+3", 3), ("100", 100)])
def test_other_numbers_are_what_they_say(text: str, count: int) -> None:
    (rule,) = parse_rules(HEAD + "- {id: a, tools: ['010'], at_most: " + text + "}")

    assert (rule.sequence.count, rule.tools) == (count, ("010",))


@pytest.mark.parametrize(
    "decider", ["at_most: 1", "when: 'true'", "never_after: [x]", "only_from_user: []", "judge: {prompt: x}"]
)
@pytest.mark.parametrize("format", ["yaml", "json"])
def test_a_rule_about_no_tool_is_refused(decider: str, format: Any) -> None:
    text = HEAD + "- {id: a, tools: [], " + decider + "}"
    if format == "json":
        text = json.dumps(yaml.safe_load(text))

    with pytest.raises(NoeticConfigError, match="guards nothing") as caught:
        parse_rules(text, format=format)

    assert caught.value.code == "INVALID_RULE_FILE"
    assert list(jsonschema.Draft202012Validator(rule_file_schema()).iter_errors(yaml.safe_load(text)))


def test_a_rule_in_code_names_a_tool_or_none_at_all() -> None:
    with pytest.raises(NoeticConfigError, match="guards nothing"):
        nn.SteeringRule(id="a", applies_to="before_tool_call", tools=[], predicate=lambda call: None)
    with pytest.raises(NoeticConfigError, match="guards nothing"):
        nn.RuleBook().when("true", id="a", tools=())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version: 1\nruels: []", "'rules'"),
        (HEAD + "- {id: a, when: 'true', guidence: x}", "Did you mean 'guidance'"),
        (HEAD + "- {id: a, wen: 'true'}", "Did you mean 'when'"),
        (HEAD + "- {id: a, judge: {promt: x}}", "Did you mean 'prompt'"),
        (HEAD + "- {id: a, zzzzzz: x}", "Known are id"),
        (HEAD + "- {id: a}", "it has no condition"),
        (HEAD + "- {id: a, when: 'true', at_most: 3, tools: [x]}", "when and at_most"),
        (HEAD + "- {id: a, at_most: 3}", "`tools`"),
        (HEAD + "- {id: a, at_most: '3', tools: [x]}", "rules[0].at_most"),
        (HEAD + "- {id: a, when: 'true', action: permit}", "rules[0].action"),
        (HEAD + "- {id: a, when: 'true', enabled: maybe}", "rules[0].enabled"),
        (HEAD + "- {id: a, when: 'true', id: b}", "'id' appears twice"),
        (HEAD + "- {id: a, when: 'tool.nme == 1'}", "Did you mean 'name'"),
        (HEAD + "- {1: a}", "the key 1 is not text"),
        ("version: 2\nrules: []", "version"),
        ("- a", "the file"),
        ("", "the file"),
        ("version: 1\n  rules: [", "line 2"),
        ("version: 1\nrules: !!python/object/apply:os.system ['true']", "tags"),
        ("version: 1\nrules: !!python/name:os.system", "tags"),
        ("version: 1\nrules: !custom []", "tags"),
        ("a: &a [x]\nb: [*a, *a]", "anchors"),
        ("[" * 10_000, "nested more than"),
        ("version: 1\nrules: []\n---\nversion: 1", "another document"),
        ("version: 1\nrules: []\n# " + "x" * 1_000_001, "characters"),
        (HEAD + '- {id: a, when: "' + "x" * 990_000 + '"}', "4,096 are the most"),
        ("\tversion: 1", "line 1"),
        ("version: 1\nrules: \x07", ""),
    ],
)
def test_a_yaml_text_that_is_no_rule_file_is_refused_and_says_why(text: str, says: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        parse_rules(text)

    assert caught.value.code in ("INVALID_RULE_FILE", "RULE_DOES_NOT_COMPILE")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "JSON"),
        ("[" * 200_000, "JSON"),
        ('{"version": 1, "version": 1, "rules": []}', "twice"),
        ('{"version": 1, "rules": [{"id": "a", "when": "true", "Guidance": "x"}]}', "Did you mean 'guidance'"),
        ('{"version": 1, "rules": NaN}', "rules"),
    ],
)
def test_a_json_text_that_is_no_rule_file_is_refused_and_says_why(text: str, says: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        parse_rules(text, format="json")

    assert caught.value.code == "INVALID_RULE_FILE"
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["rules.txt", "rules", "rules.py"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        load_rules(tmp_path / name)

    assert caught.value.code == "INVALID_FORMAT"


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_bytes(b"version: \xff")

    for path in (tmp_path / "missing.yaml", broken):
        with pytest.raises(NoeticConfigError, match=path.name) as caught:
            load_rules(path)
        assert caught.value.code == "INVALID_RULE_FILE"


def test_a_large_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_text(" " * 3_000_000)

    with pytest.raises(NoeticConfigError, match="1,000,000"):
        load_rules(path)


def test_words_of_yaml_that_other_readers_take_for_truth_stay_words() -> None:
    rules = parse_rules(HEAD + "- id: no\n  on: [before_tool_call]\n  tools: [yes, 1970-01-01]\n  when: 'true'\n")

    assert (rules["no"].tools, rules["no"].when) == (("yes", "1970-01-01"), "true")


def test_two_rules_of_one_id_are_refused() -> None:
    with pytest.raises(NoeticConfigError) as caught:
        parse_rules(HEAD + "- {id: a, when: 'true'}\n- {id: a, when: 'false'}")

    assert caught.value.code == "DUPLICATE_RULE_ID"


@pytest.mark.parametrize("nothing", ["", "~", "null"])
def test_a_field_without_a_value_is_left_out(nothing: str) -> None:
    text = f"version: 1\nrules:\n- id: a\n  on: [before_tool_call]\n  when: 'true'\n  name: {nothing}\n  tools: {nothing}\n"

    (rule,) = parse_rules(text)

    assert (rule.name, rule.tools) == (None, None)


def test_a_file_that_cannot_be_written_is_said_and_the_one_before_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.json"
    book = RuleBook()
    book.at_most(1, "pay")
    book.save(file)
    before = file.read_bytes()

    with pytest.raises(NoeticConfigError, match=r"CANNOT_WRITE.*missing"):
        book.save(tmp_path / "missing" / "r.json")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    book.at_most(1, "refund")
    with pytest.raises(NoeticConfigError, match="No space left"):
        book.save(file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
