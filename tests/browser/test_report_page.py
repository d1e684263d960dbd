"""Even if the text of a report becomes part of its page, it runs no script and contacts no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noetic_nb.cli._commands.of_runs import page
from noetic_nb.lab import datasets

PICTURE = "data:image/gif;base64,R0lGODlhAQABAIAAAP8AAP///yH5BAAAAAAALAAAAAABAAEAAAICRAEAOw=="
HOSTILE = f"""
<script>document.title = "ran"</script><img id="own" src="{PICTURE}" onload="document.title = 'ran'">
<img src="http://127.0.0.1:9/a.png"><link rel="stylesheet" href="http://127.0.0.1:9/a.css">
<iframe src="http://127.0.0.1:9/"></iframe><style>h1 {{ background: url(http://127.0.0.1:9/b.png) }}</style>
"""


def test_a_report_forbids_scripts_and_requests(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(datasets.airline()[:1], 1).replace("</h1>", f"</h1>{HOSTILE}", 1), encoding="utf-8")
    context, asked = browser.new_context(), []
    context.route("http://**", lambda route: (asked.append(route.request.url), route.abort()))
    shown = context.new_page()

    shown.goto(path.as_uri())

    assert shown.title() != "ran"
    assert asked == []
    assert shown.locator("#own").evaluate("picture => picture.naturalWidth") == 1
    assert shown.locator(".noetic-nb-static").first.evaluate("box => getComputedStyle(box).display") != ""
    assert shown.locator("h1").evaluate("head => getComputedStyle(head).fontFamily") != "serif"
    context.close()
