"""Labels by keyboard in JupyterLab: digits give them, n and p navigate, other raters are hidden; and the step to inspect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.lab import wait_for

Open = Callable[..., Any]

SET_UP = """
from noetic_nb.widgets import *
import noetic_nb as nn
run = nn.lab.datasets.airline_run(26)
run.meta["codebook"] = {
    "verdict": {"values": {"right": "As the policy says.", "wrong": "Against it."}, "of": "call", "description": "Is it right?"},
    "tone": {"values": ["polite", "curt"], "of": "call"},
    "done": {"values": [True, False], "of": "run"},
}
for call in range(30):
    run.label("verdict", "wrong", call=call, by="bob")
"""
GIVEN = "run.labels.query('by == \"ann\"')[['name', 'value', 'call']].values.tolist()"


def test_calls_are_labelled_by_keys_and_the_other_rater_is_not_seen(notebook: Open, looks: Open) -> None:
    opened = notebook(SET_UP, "shown = Transcript(run, call=0, by='ann')\nshown")
    opened.run_all()
    root, press = opened.view, opened.page.keyboard.press
    bar = root.locator(".nn-t-labels")
    expect(bar).to_contain_text("0 of 30 labelled by ann")
    expect(bar).not_to_contain_text("bob")

    root.get_by_role("button", name="Next call").focus()
    press("2")
    expect(bar).to_contain_text("1 of 30")
    expect(root.locator(".nn-bar-controls").first).to_contain_text("2 of 30")
    press("1")
    expect(bar).to_contain_text("2 of 30")
    press("p")
    expect(bar.get_by_role("button", name="1 right")).to_have_attribute("aria-pressed", "true")
    press("0")
    expect(bar.get_by_role("button", name="1 right")).to_have_attribute("aria-pressed", "false")
    wait_for(lambda: opened.kernel.value(GIVEN) == "[['verdict', 'wrong', 0]]", "a label is given, and one taken back")
    press("9")
    bar.get_by_role("combobox").select_option("tone")
    bar.get_by_role("button", name="2 curt").click()
    wait_for(
        lambda: opened.kernel.value(GIVEN) == "[['verdict', 'wrong', 0], ['tone', 'curt', 1]]", "a click labels, too"
    )
    # In a notebook, a digit key would turn a cell into a heading.
    assert not opened.page.locator(".jp-RenderedMarkdown").count()

    bar.get_by_role("combobox").select_option("verdict")
    root.get_by_role("button", name="Previous call").focus()
    looks(opened, root, "labels")
    opened.kernel.value("[run.label('verdict', 'right', call=call, by='ann') for call in range(30)] and None")
    press("n")
    expect(bar).to_contain_text("bob: wrong")


def test_the_step_to_look_at_first_is_selected(notebook: Open, shot: Open) -> None:
    scene = """
import json
from noetic_nb.widgets import *
import noetic_nb as nn
call = {"id": "c1", "type": "function", "function": {"name": "list_sizes", "arguments": "{}"}}
sizes = json.dumps([{"size": size, "available": size != "S"} for size in ("S", "M", "L", "XL")])
said = [
    {"role": "user", "content": "How many sizes are there?"}, {"role": "assistant", "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "c1", "content": sizes}, {"role": "assistant", "content": "There are 5 sizes."},
    {"role": "user", "content": "Thanks."}, {"role": "assistant", "content": "Bye."},
]
run = nn.import_run(said, progress=False)
"""
    opened = notebook(
        scene, "bench = Workbench(run, panels=['transcript'])\nbench", "Transcript(nn.lab.datasets.airline_run(26))"
    )
    opened.run_all()
    root = opened.page.locator(".nn-transcript").first
    root.get_by_role("button", name="Look here first").click()

    expect(root.locator(".nn-t-look")).to_contain_text("contradicts a result: It says 'There are 5 sizes'")
    expect(root.locator('[aria-current="true"]')).to_contain_text("There are 5 sizes.")
    wait_for(lambda: opened.kernel.value("bench.selection.fields['item']") == "3", "the selection has the item")
    shot(root, "look-here-first")

    silent = opened.page.locator(".nn-transcript").last
    silent.get_by_role("button", name="Look here first").click()
    expect(silent.locator(".nn-t-look")).to_contain_text("No evidence in the run")
