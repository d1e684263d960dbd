"""The workbench in JupyterLab: panels in one widget, linked, selected and resized; a chat; questions; causes of denials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import wait_for
from tests.matrix import matrix, several

Open = Callable[..., Any]

AIRLINE = """
import noetic_nb as nn
from noetic_nb.lab import datasets, replay
from noetic_nb.widgets import *
rules = nn.RuleBook()
rules.when('tool.name == "update_reservation_flights"', id="no_changes", guidance="Do not change flights.")
run = replay(datasets.airline_run(26), rules=rules)
"""


@matrix("scene", ["demo_run", "Run", "hostile_run"], keep=1)
def test_workbench_is_readable_in_both_themes_and_at_every_width(
    notebook: Open, cells_of: Open, looks: Open, scene: str
) -> None:
    opened = notebook(*cells_of(scene, ["bench = Workbench(run)\nbench"]))
    opened.run_all()
    root = opened.page.locator(".nn-workbench").first
    root.wait_for()

    looks(opened, root, f"workbench-{scene}", widths=(1400, 900, 420))
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0


def bench_of(opened: Any) -> Any:
    opened.run_all()
    root = opened.page.locator(".nn-workbench").first
    root.wait_for()
    return root


def says(opened: Any, expression: str, wanted: str) -> None:
    """Wait until the kernel has received the page's message."""
    wait_for(lambda: opened.kernel.value(expression) == wanted, f"{expression} is {wanted}")


def panel(root: Any, name: str) -> Any:
    return root.locator(f".nn-panel[data-panel='{name}']")


def becomes_high(box: Any, height: float) -> None:
    """Wait until the panel has a height in pixels: the page draws changes in its next frame."""
    wait_for(lambda: box.bounding_box()["height"] == height, f"the panel is {height} px high")


ROWS_AT_FIRST = """() => new MutationObserver((_, observer) => {
  const shown = document.querySelector(".nn-workbench .nn-panel[data-panel='transcript']");
  if (!shown) return;
  observer.disconnect();
  window.rowsAtFirst = shown.querySelectorAll(".nn-t-items > li").length;
}).observe(document.body, { childList: true, subtree: true })"""


def test_the_call_that_a_panel_brings_along_is_there_with_the_panel(notebook: Open) -> None:
    opened = notebook(AIRLINE, "bench = Workbench(run, rules=rules, panels=['transcript'])\nbench")
    opened.page.evaluate(ROWS_AT_FIRST)

    bench_of(opened)

    opened.page.wait_for_function("window.rowsAtFirst !== undefined")
    assert opened.page.evaluate("window.rowsAtFirst") > 0


PAYING = """
import noetic_nb as nn
from noetic_nb.widgets import Workbench

@nn.tool
def pay(amount: int) -> str:
    "Pay."
    return "Paid."

rules = nn.RuleBook()
rules.when('tool.name == "pay"', id="no_pay", guidance="Ask a person.")
step = nn.react(model="m", tools=[pay])
config = nn.AgentConfig(name="desk", step=step, memory=[nn.working_memory(), nn.steering(rules=rules)])
answer = lambda request: nn.CallTool("pay", amount=5) if request.items[-1]["type"] == "message" else "Not paid."
harness = nn.AgentHarness(config, model=nn.ScriptedModel(answer))
names = ["ledger", "transcript", "allocation", "trends", "timeline", "memory", "rules"]
async def talk(turns):
    for number in range(turns):
        await harness.execute(f"Pay {number}.", thread_id="t1")
"""


def test_every_panel_follows_turns_that_ran_while_the_page_was_not_drawn_yet(notebook: Open) -> None:
    opened = notebook(
        PAYING,
        "bench = Workbench(harness, panels=names)\ndisplay(bench)\nawait talk(4)",
        "await talk(5)",
        "opened = Workbench(harness, panels=names)\nopened",
    )
    opened.run_all()
    late, whole = (opened.page.locator(".nn-workbench").nth(at) for at in (0, 1))
    expect(late.locator(".nn-turns > li")).to_have_count(9)

    expect(panel(late, "rules")).to_contain_text("9 denied")
    for name in ("ledger", "transcript", "allocation", "trends", "timeline", "memory"):
        views = [panel(root, name).locator(".nn-panel-view") for root in (late, whole)]
        expect(views[1]).not_to_contain_text("Opening")
        # The memory view stays on the layer with the most changes when it was opened, so compare only its list of layers.
        parts = 1 if name == "memory" else None
        wait_for(
            lambda views=views, parts=parts: len({str(view.inner_text().split("\n\n")[:parts]) for view in views}) == 1,
            f"{name} is whole",
        )


def test_a_deny_leads_to_its_request_to_the_item_of_its_argument_and_to_what_would_have_been(
    notebook: Open, shot: Open
) -> None:
    opened = notebook(
        AIRLINE,
        "bench = Workbench(run, rules=rules, panels=['ledger', 'timeline'])\nbench",
        "lone = Ledger(run, selection=bench.selection)\nlone",
    )
    root = bench_of(opened)
    expect(root.locator(".nn-note").first).to_contain_text("This is a recording")
    ledger, transcript = panel(root, "ledger"), panel(root, "transcript")
    shot(root, "workbench-airline-open")

    root.get_by_role("button", name="5 would have been denied: why?").first.click()

    why = root.get_by_role("region", name="Why", exact=True)
    expect(why).to_contain_text("Why deny (not enforced): update_reservation_flights")
    expect(ledger.locator("tr[aria-selected='true']").first).to_contain_text("deny")
    expect(
        opened.page.locator(".noetic-nb[aria-label='Ledger']").last.locator("tr[aria-selected='true']").first
    ).to_contain_text("deny")
    expect(ledger.locator("tr[aria-selected='true']").first).to_be_in_viewport()
    seq = opened.kernel.value("bench.selection.decision")
    says(opened, f"type(run.events[{seq}]).__name__, run.events[{seq}].action", "('SteeringDecided', 'deny')")

    why.get_by_role("button", name="Show the request").click()
    wait_for(lambda: opened.kernel.value("bench.selection.call") != "None", "a call is chosen")
    call = opened.kernel.value("bench.selection.call")
    expect(transcript.locator("input[type=range]")).to_have_value(call)
    shot(root, "workbench-airline-why")

    why.locator("tr", has_text="reservation_id").locator("button").click()
    wait_for(lambda: opened.kernel.value("bench.selection.item") != "None", "an item is chosen")
    item = opened.kernel.value("bench.selection.item")
    opened.kernel.says(f"run.log(run.threads[0])[{item}]['type']", "'function_call_output'")
    chosen = transcript.locator("[aria-selected='true'], [aria-current='true'], .nn-chosen").first
    expect(chosen).to_be_visible()

    why.get_by_role("button", name="Outcome without it").click()
    expect(why.locator(".nn-trial-head")).to_contain_text("newly allowed")
    shot(root, "workbench-airline-without")

    why.get_by_role("button", name="Edit it").click()
    editor = panel(root, "rules")
    expect(editor.locator(".nn-panel-head")).to_be_in_viewport()
    expect(editor.locator("textarea").first).to_have_value('tool.name == "update_reservation_flights"')
    editor.locator("textarea").first.fill('tool.name == "update_reservation_baggages"')
    expect(editor).to_contain_text("Tried on", timeout=30_000)
    shot(root, "workbench-airline-rules")


def test_panels_are_chosen_and_resized_and_stay_as_they_were_left(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", ["bench = Workbench(run, panels=['ledger', 'transcript'])\nbench"]))
    root = bench_of(opened)
    expect(root.locator(".nn-panel")).to_have_count(2)

    bar = root.get_by_role("group", name="Panels")
    bar.get_by_role("button", name="Context").click()
    expect(panel(root, "allocation").locator(".nn-title")).to_have_text("Token allocation")
    says(opened, "bench.panels", "['ledger', 'transcript', 'allocation']")
    panel(root, "ledger").get_by_role("button", name="Close Ledger").click()
    expect(root.locator(".nn-panel")).to_have_count(2)

    # A reopened panel has the events that happened meanwhile.
    opened.kernel.run("for e in scenes.decisions(): run.append(e)")
    says(opened, "bench.panels, sorted(bench._fetched)", "(['transcript', 'allocation'], ['allocation', 'transcript'])")
    bar.get_by_role("button", name="Ledger").click()
    expect(panel(root, "ledger").get_by_role("status").first).to_have_text("8 decisions")
    opened.kernel.run("for e in scenes.decisions(): run.append(e)")
    expect(panel(root, "ledger").get_by_role("status").first).to_have_text("12 decisions")

    grip = panel(root, "transcript").get_by_role("button", name="Resize Transcript")
    before = panel(root, "transcript").bounding_box()
    grip.focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowDown"):
        opened.page.keyboard.press(key)
    becomes_high(panel(root, "transcript"), before["height"] + 40)
    assert panel(root, "transcript").bounding_box()["width"] < before["width"] * 0.9
    says(opened, "bench.sizes", "{'transcript': [10, 500]}")

    grip.scroll_into_view_if_needed()
    box = grip.bounding_box()
    opened.page.mouse.move(box["x"] + 5, box["y"] + 5)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 5, box["y"] - 95, steps=4)
    opened.page.mouse.up()
    becomes_high(panel(root, "transcript"), 400)
    says(opened, "bench.sizes['transcript'][1]", "400")

    opened.kernel.run("bench.panels = ['trends']; bench.sizes = {'trends': (6, 300)}")
    expect(root.locator(".nn-panel")).to_have_count(1)
    expect(panel(root, "trends").locator(".nn-title")).to_have_text("Regulator trends")
    becomes_high(panel(root, "trends"), 300)


AGENT = """
import asyncio
import noetic_nb as nn
from noetic_nb.models import CallTool
from noetic_nb.widgets import *
rules = nn.RuleBook()
rules.when('tool.name == "pay"', id="ask_first", action="ask", guidance="May this be paid?")
going, go = asyncio.Event(), asyncio.Event()

@nn.tool
def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"

@nn.tool
async def wait() -> str:
    "Wait."
    going.set()
    await go.wait()
    return "waited"

approval = Approval()
model = nn.ScriptedModel([CallTool("pay", amount=7), "Paid 7.", CallTool("wait"), "Never said.",
                          "You said two things.", "Not again."])
config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[pay, wait]), memory=MEMORY)
harness = nn.AgentHarness(config, model=model, approve=approval)
"""


def test_an_agent_is_talked_to_asked_for_stopped_graded_and_corrected(notebook: Open, shot: Open) -> None:
    memory = "[nn.steering(rules), nn.regulation(nn.Regulator.for_user('ann'))]"
    opened = notebook(AGENT.replace("MEMORY", memory), "bench = Workbench(harness)\nbench")
    root = bench_of(opened)
    events = panel(root, "timeline").locator("details tbody > tr")
    box = root.get_by_role("textbox", name="Message")
    turns = root.locator(".nn-turns > li")

    box.fill("Pay 7.")
    box.press("Enter")

    question = root.locator(".nn-question")
    expect(question).to_contain_text("May this be paid?")
    expect(question).to_contain_text('pay {"amount": 7}')
    expect(root.locator(".nn-progress")).to_contain_text("Turn 1 runs")
    expect(root.locator(".nn-progress")).to_contain_text("tool pay")
    shot(root, "workbench-question")
    question.get_by_role("button", name="Allow once").click()
    expect(turns.first).to_contain_text("Paid 7.")
    expect(question).to_have_count(0)
    expect(events.filter(has_text="approval of pay").filter(has_text="approved")).not_to_have_count(0)

    root.get_by_role("button", name="Good reply").click()
    expect(root.locator(".nn-bench-notice")).to_have_text("Grade 1 given to the regulator.")
    expect(turns.first).to_contain_text("grade 1.00")
    root.get_by_role("button", name="Correct …").click()
    root.get_by_role("textbox", name="What was wrong with the last reply").fill("Say what was bought.")
    root.get_by_role("button", name="Give correction").click()
    expect(root.locator(".nn-bench-notice")).to_have_text("Correction given to the regulator.")
    kinds = "[e.event['kind'] for e in bench.run.events if type(e).__name__ == 'RegulatorSaw']"
    assert "user_correction" in opened.kernel.value(kinds)
    assert "quality_feedback" in opened.kernel.value(kinds)

    box.fill("Wait a little.")
    root.get_by_role("button", name="Send", exact=True).click()
    expect(root.locator(".nn-progress")).to_contain_text("tool wait")
    box.fill("And this.")
    box.press("Enter")
    expect(root.locator(".nn-waiting li")).to_have_text("Waits: And this.")
    shot(root, "workbench-busy")
    root.get_by_role("button", name="Stop", exact=True).click()
    expect(turns.nth(1)).to_contain_text("no answer: cancelled")
    expect(turns.nth(2)).to_contain_text("And this.")
    expect(root.locator(".nn-waiting li:visible")).to_have_count(0)
    expect(root.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    says(opened, "approval.questions, len(harness.sinks)", "((), 1)")
    shot(root, "workbench-talk")


def test_an_agent_that_takes_no_feedback_says_so_and_the_same_run_goes_on(notebook: Open) -> None:
    opened = notebook(
        AGENT.replace("MEMORY", "[]"), "bench = Workbench(harness)\nbench", "again = Workbench(harness)\nagain"
    )
    opened.run_all()
    root = opened.page.locator(".nn-workbench").first
    expect(root.locator(".nn-chat")).to_contain_text("No layer of this agent takes feedback")
    expect(root.get_by_role("button", name="Correct …")).to_be_disabled()
    says(opened, "again.run is bench.run", "True")
    expect(root.get_by_role("button", name="Rules", exact=True)).to_be_disabled()


TREE = """
import ipywidgets
def tree():
    rows = [ipywidgets.HBox([ipywidgets.Label(f"row {n}"), ipywidgets.IntSlider(value=n), ipywidgets.Text(value=str(n)),
                             ipywidgets.Button(description="go")]) for n in range(9)]
    return ipywidgets.VBox([*rows, *[ipywidgets.Label(word) for word in ("all", "of", "it", "ends")]])
"""

# From the command to the painted picture; ignores remains of an earlier execution of the cell.
DRAWN = """async ([cell, selector, count]) => {
  for (const old of document.querySelectorAll(selector)) old.dataset.old = "true";
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = cell;
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const start = performance.now();
  window.jupyterapp.commands.execute("notebook:run-cell");
  while (document.querySelectorAll(`${selector}:not([data-old])`).length < count) await frame();
  await frame();
  return performance.now() - start;
}"""


@pytest.mark.matrix
def test_a_workbench_is_drawn_beside_a_tree_of_fifty_widgets(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", [TREE, "tree()", "Workbench(run)"]))
    opened.run_all()
    opened.page.locator(".nn-workbench").first.wait_for()

    took: dict[str, list[float]] = {"tree": [], "bench": []}
    for _ in range(several(1, 2)):  # the second time, caches are warm
        took["tree"].append(
            opened.page.evaluate(DRAWN, [2, ".widget-slider, .widget-text, .widget-button, .widget-label", 40])
        )
        took["bench"].append(opened.page.evaluate(DRAWN, [3, ".nn-workbench .nn-panel .nn-title", 2]))

    tree, bench = min(took["tree"]), min(took["bench"])
    print(f"from the command to the picture: workbench {bench:.0f} ms, tree {tree:.0f} ms, {bench / tree:.2f}x")
    assert opened.page.locator(".nn-workbench").first.locator(".nn-panel .nn-title").count() == 2


@pytest.mark.matrix
def test_thousands_of_turns_are_opened_and_the_panels_come_one_by_one(notebook: Open, shot: Open) -> None:
    count = several(2_000, 10_000)
    cell = (
        "from noetic_nb.events import *\nfrom noetic_nb.runs import Run\nfrom noetic_nb.widgets import Workbench\n"
        "from tests.widgets.scenes import turn\n"
        "begun = lambda n: TurnStarted(Where('t1', f'e-t1-{n}', n), 0.0, f'turn-{n}', 0, 1, f'Where is order {n}?')\n"
        f"run = Run(events=[e for n in range(1, {count + 1}) for e in (begun(n), *turn(n, quality=0.5, spent=n))])"
    )
    names = ("ledger", "transcript", "allocation", "trends", "timeline")
    opened = notebook(cell, f"bench = Workbench(run, panels={names})\nbench")
    root = bench_of(opened)
    turns = root.locator(".nn-turns > li")
    expect(turns.last).to_contain_text(f"Where is order {count}?")
    for name in names:
        expect(panel(root, name).locator(".nn-panel-view > .noetic-nb")).to_be_visible(timeout=60_000)
    root.get_by_role("button", name="Earlier turns").click()
    expect(turns).to_have_count(40)
    turns.first.locator("button.nn-turn").click()
    says(opened, "bench.selection.turn", str(count - 39))
    expect(panel(root, "transcript")).to_contain_text(f"Turn {count - 39}")
    shot(root, "workbench-thousands")
