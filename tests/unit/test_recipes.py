"""An addition is made in every place that it needs: the recipes of docs/architecture.md."""

from __future__ import annotations

import json
import pkgutil
import re
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest

import noetic_nb as nn
import noetic_nb.interop as interop
from noetic_nb import steps
from noetic_nb.interop import _formats
from noetic_nb.interop._importing import formats
from noetic_nb.runtime._execution.run_step import _HANDLERS
from noetic_nb.steering import LLMEval, SteeringRule
from noetic_nb.steering._evaluation.evaluate import prepare
from noetic_nb.steering._rulebook.rulebook import _summary
from noetic_nb.steering._rules.file_schema import RuleData, rule_data
from noetic_nb.steering._rules.rule import Decider
from noetic_nb.steps import branch, fork, loop, spawn, step, until
from noetic_nb.steps._loops import UntilPredicate
from noetic_nb.steps._records import Step, steps_within
from noetic_nb.widgets._rules.draft import draft_of, form_of, new_rule, rule_code, rule_of
from noetic_nb.widgets._rules.rule_fields import FORMS

KINDS = {cls.model_fields["kind"].default: cls for cls in get_args(get_args(Step)[0])}

PAGES = Path(__file__).parents[2] / "docs/behaviour"


@pytest.mark.parametrize(("union", "name"), [(Step, "StepRecord"), (UntilPredicate, "_Predicate")])
def test_every_record_is_in_its_union(union: Any, name: str) -> None:
    members = get_args(get_args(union)[0])
    base = next(cls for cls in members[0].__mro__ if cls.__name__ == name)

    ours = {cls for cls in base.__subclasses__() if cls.__module__.startswith("noetic_nb.")}
    assert {cls.__name__ for cls in ours - set(members)} <= {"_Members"}


def test_every_kind_of_step_is_run_published_and_documented() -> None:
    published = json.dumps(
        json.loads(files("noetic_nb.steps").joinpath("step.schema.json").read_text(encoding="utf-8"))
    )

    page = (PAGES / "steps.md").read_text(encoding="utf-8")

    assert set(_HANDLERS) == set(KINDS)
    assert {cls.__name__ for cls in KINDS.values()} <= set(steps.__all__)
    assert {kind for kind in KINDS if not hasattr(step, kind)} == set()
    assert set(KINDS) & set(steps.__all__) <= set(nn.__all__)
    assert {kind for kind in KINDS if f"\n| `{kind}` |" not in page} == set()
    assert {kind for kind in KINDS if f'"const": "{kind}"' not in published} == set()


LEAF = step.run("leaf", lambda value, ctx: value)
# One of each kind of step, which returns what it is given.
EXAMPLES = [
    LEAF,
    step.llm("ask", model="m"),
    step.tool("look", nn.tool(lambda value: value, name="look"), {"value": "hi"}, takes_input=False),
    branch("b", lambda value, ctx: LEAF),
    fork("f", mode="race", paths=[LEAF]),
    spawn("s", LEAF),
    loop("l", LEAF, until=until.max_steps(1)),
]


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_step_runs_and_those_inside_are_found(kind: str) -> None:
    example = next(one for one in EXAMPLES if one.kind == kind)
    harness = nn.AgentHarness(nn.AgentConfig(name="a", step=example), model=nn.ScriptedModel(["hi"]))

    async with harness.execution() as ctx:
        assert await harness.run(example, "hi", ctx) == "hi"

    # What a function will choose at run time cannot be known before.
    assert (LEAF in tuple(steps_within(example))) == (kind not in ("llm", "tool", "branch"))


FIRST = {"id": "r", "applies_to": "before_tool_call", "tools": "pay"}
# A rule of each form.
RULES = [
    SteeringRule(**FIRST, predicate=lambda call: None, source="def r(call): ..."),
    SteeringRule(**FIRST, when="true"),
    SteeringRule(**FIRST, sequence={"kind": "at_most", "count": 1}),
    SteeringRule(**FIRST, llm_eval={"mode": "sync", "prompt": "Kind?"}),
]


@pytest.mark.parametrize("form", [decider.form for decider in get_args(Decider)])
def test_every_form_of_rule_is_kept_in_files_and_shown(form: str) -> None:
    rule = next(one for one in RULES if one.form == form)
    bare = SteeringRule(**FIRST)
    book = nn.RuleBook()

    exec(rule_code(rule), {"rules": book, "LLMEval": LLMEval})
    assert [one.form for one in book] == [form]
    assert rule_of(book, rule, draft_of(rule)) == rule
    assert form_of(rule) in FORMS
    assert form_of(new_rule("r", form_of(rule))) == form_of(rule)
    assert [one.rule for one in prepare([rule]).rules] == [rule]
    assert _summary(rule) != _summary(bare)
    assert rule._card().facts != bare._card().facts
    if form != "python":  # of which a file has the name
        assert SteeringRule(**RuleData(**rule_data(rule)).fields()) == rule


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in Path(nn.__file__).parent.rglob("*.py")}

    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_everything_that_interop_modules_offer_is_offered_by_the_package() -> None:
    modules = [import_module(f"{interop.__name__}.{found.name}") for found in pkgutil.iter_modules(interop.__path__)]

    assert {name for module in modules for name in module.__all__} <= set(interop.__all__)


def test_every_format_has_a_reader_and_is_documented() -> None:
    modules = [import_module(f"{_formats.__name__}.{found.name}") for found in pkgutil.iter_modules(_formats.__path__)]
    page = (PAGES / "interop.md").read_text(encoding="utf-8")

    assert {name for module in modules for name in getattr(module, "FORMATS", ())} <= set(formats())
    theirs = [name for name in formats() if name != "noetic"]
    assert [name for name in theirs if f"`{name}`" not in page and f'"{name}"' not in page] == []


def test_every_loop_predicate_is_documented_and_published() -> None:
    page = (PAGES / "steps.md").read_text(encoding="utf-8")
    published = files("noetic_nb.steps").joinpath("step.schema.json").read_text(encoding="utf-8")
    kinds = [cls.model_fields["kind"].default for cls in get_args(get_args(UntilPredicate)[0])]

    names = [re.sub("([A-Z])", r"_\1", kind).lower() for kind in kinds]
    assert [name for name in names if f"`until.{name}(" not in page or not hasattr(until, name)] == []
    assert [kind for kind in kinds if f'"const": "{kind}"' not in published] == []
