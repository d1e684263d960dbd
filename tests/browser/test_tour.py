"""The guided tour for a newcomer: in JupyterLab with all cells queued at once, and as one exported page."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import expect

from tests.browser.lab import ROOT
from tests.browser.window import LIVE

TOUR = ROOT / "notebooks" / "00_tour.ipynb"


def code_cells() -> list[str]:
    notebook = nbformat.read(TOUR, as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def test_the_tour_runs_in_lab_and_a_rule_edited_in_the_page_steers_the_agent(
    notebook: Callable[..., Any], shot: Callable[..., Any]
) -> None:
    opened = notebook(*code_cells(), is_alone=True)
    opened.run_all()
    page, kernel = opened.page, opened.kernel
    live = page.locator(LIVE)
    benches = page.locator(".nn-workbench")
    expect(benches).to_have_count(2)
    expect(live.filter(has_text="Regulator trends").first).to_contain_text("circuit break: quality decline")
    expect(benches.last).to_contain_text("circuit break: tool loop")

    allocation = live.filter(has_text="Token allocation").first
    expect(allocation.locator(".nn-sub")).to_contain_text("Turn 2, call 3")
    allocation.get_by_role("slider", name="Model call").focus()
    page.keyboard.press("Home")
    expect(allocation.locator(".nn-sub")).to_contain_text("Turn 1, call 1")

    # A new task, and a model that always tries to search: only the rules decide.
    kernel.run(
        "probe = nn.AgentHarness(nn.AgentConfig(name='probe', step=nn.react(model='m', tools=[search_flights, "
        "cancel_reservation], max_steps=2), memory=[nn.steering(careful)]), model=nn.ScriptedModel(lambda r: "
        "nn.CallTool('cancel_reservation', reservation_id='ZFA04Y') if r.items[-1]['type'] == 'message' else "
        "r.items[-1]['output']))"
    )
    asked = "nn.run_sync(probe.execute('Cancel ZFA04Y')).text"
    assert "steering_denied" in kernel.value(asked)

    editor = page.locator(".nn-editor").first
    editor.locator("textarea").first.fill("def known_reservation(call):\n    return allow()")
    editor.get_by_role("button", name="Apply").click()
    expect(editor.locator(".nn-notice")).to_contain_text("Applied")
    assert "cancelled" in kernel.value(asked)

    editor.locator("textarea").first.fill("def known_reservation(call):\n    return deny('Closed for today.')")
    editor.get_by_role("button", name="Apply").click()
    expect(editor.locator(".nn-notice")).to_contain_text("Applied as version 3")
    assert "Closed for today." in kernel.value(asked)
    # The agent of the tour: its model reads the new guidance, and repeats it.
    assert "Closed for today." in kernel.value(
        "nn.run_sync(talk(CANCEL, under=careful))[1].to_messages('openai')[-1]['content']"
    )
    shot(page, "tour")


def test_the_exported_tour_shows_everything_without_scripts_and_without_a_network(
    tmp_path: Path, quiet_page: Callable[..., Any], shot: Callable[..., Any]
) -> None:
    target = tmp_path / "tour.html"
    command = [sys.executable, str(ROOT / "notebooks" / "export.py"), str(TOUR), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=ROOT)
    assert done.returncode == 0, done.stderr

    page = quiet_page(target)

    shot(page, "tour-exported", full_page=True)
    pictures = page.locator(".noetic-nb-static")
    expect(pictures).to_have_count(4)  # tokens, the desk and its rules, trends of the agent, the recorded run
    for at in range(4):
        expect(pictures.nth(at)).to_be_visible()
    for words in (
        "Token allocation",
        "Ledger",
        "Regulator trends",
        "circuit break: quality decline",
        "known_reservation",
    ):
        expect(page.get_by_text(words).locator("visible=true").first).to_be_visible()
    figure = page.locator("img").first
    assert figure.evaluate("image => image.naturalWidth > 400")
    expect(page.get_by_text("search_direct_flight(JFK, SFO, 2024-05-25)")).to_be_visible()
    assert page.locator("script").count() == 0
