"""Record the picture and the short film of the README from the real product: ``python -m docs.recording notebooks/images``.

A harness is talked to in JupyterLab, in a headless Chromium; a frame is taken at each state, so that the machine's speed does not
matter, and shown as long as it takes to read.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from tests.browser.conftest import FLAGS, chromium_path
from tests.browser.lab import Lab
from tests.browser.window import LabNotebook, Window

SIZE: Final = {"width": 1360, "height": 1240}
"""In CSS pixels: readable at the width of a README."""
COLOURS: Final = 96
"""Of the film's palette: text stays sharp, and the file small."""

DESK: Final = """
import noetic_nb as nn
from noetic_nb.widgets import Workbench

def lookup(order_id: str) -> dict:
    "Find an order."
    return {"order": order_id, "state": "packed", "paid": 420.0}

def refund(order_id: str, amount: float) -> str:
    "Pay money back."
    return f"{amount} paid back."

rules = nn.RuleBook()
rules.when('tool.name == "refund" && tool.args.amount > 100.0', id="small_refunds", guidance="Above 100 ask a person.")
"""
AGENT: Final = """
def desk(request):  # a model that is a function of its prompt: no key, no network
    asked = request.items[-1]
    if asked["type"] == "function_call_output":
        return "A person has to agree to that." if "Above 100" in asked["output"] else "Order A17 is packed and paid: 420.00."
    if "refund" in asked["content"][0]["text"]:
        return nn.CallTool("refund", order_id="A17", amount=420.0)
    return nn.CallTool("lookup", order_id="A17")

memory = [nn.working_memory(), rules, nn.regulation(nn.Regulator.recommended("ann"))]
room = nn.ProjectionPolicy(token_budget=700, response_reserve=100)
agent = nn.AgentConfig(name="desk", step=nn.react(model="desk", tools=[lookup, refund]), memory=memory, projection=room)
bench = Workbench(nn.AgentHarness(agent, model=nn.ScriptedModel(desk)))
bench
"""


class Film:
    """Frames of a page, each with how long it is shown, in milliseconds."""

    def __init__(self, root: Any) -> None:
        self.root, self.page = root, root.page
        self.frames: list[tuple[Image.Image, int]] = []

    def take(self, shown_ms: int) -> None:
        """Take a frame of what is on the page, from the top of the workbench on."""
        self.root.evaluate("root => root.scrollIntoView({block: 'start'})")
        self.frames.append((Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"), shown_ms))

    def write(self, path: Path) -> None:
        """Write an animated GIF with one palette, which repeats."""
        palette = self.frames[-1][0].quantize(COLOURS)
        pictures = [frame.quantize(COLOURS, palette=palette, dither=Image.Dither.NONE) for frame, _ in self.frames]
        times = [shown_ms for _, shown_ms in self.frames]
        pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=times, loop=0, optimize=True)


def record(opened: LabNotebook, into: Path) -> None:
    """Talk to the desk, have a refund denied, and ask why."""
    page = opened.page
    page.set_viewport_size(SIZE)
    opened.run_all()
    root = page.locator(".nn-workbench").first
    root.wait_for()
    opened.command("notebook:hide-all-cell-code")
    film = Film(root)
    chat = root.get_by_role("textbox").first

    film.take(1_500)
    for text, answer in (
        ("Where is order A17?", "Order A17 is packed"),
        ("Please refund all of it.", "A person has to agree"),
    ):
        for end in (len(text) // 3, 2 * len(text) // 3, len(text)):
            chat.fill(text[:end])
            film.take(250)
        chat.press("Enter")
        expect(root).to_contain_text(answer)
        film.take(2_000)
    root.get_by_role("button", name="denied: why?").first.click()
    expect(root.get_by_role("region", name="Why", exact=True)).to_contain_text("small_refunds")
    expect(root.locator("[data-panel='timeline'] tr[aria-selected='true']")).to_be_in_viewport()
    film.take(3_000)
    film.write(into / "workbench.gif")
    film.frames[-1][0].save(into / "workbench.png", optimize=True)


def main(folder: str) -> None:
    """Write ``workbench.gif`` and ``workbench.png`` into a folder."""
    into = Path(folder)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=FLAGS)
        lab = Lab(Path(scratch))
        try:
            record(LabNotebook(Window(lab, browser), "desk", [DESK, AGENT]).open(), into)
        finally:
            lab.close()
            browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
