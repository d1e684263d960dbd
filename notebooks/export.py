"""Run a notebook and write it as one HTML file that needs neither a network nor JavaScript.

    python notebooks/export.py notebooks/00_tour.ipynb build/tour.html

Widget state is not stored and widget outputs are left out: with them the page would ask a content delivery network for the
live views. Their static forms stand in outputs of their own.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any, Final

WIDGET_MIME: Final = "application/vnd.jupyter.widget-view+json"
# Scripts are of no use without JavaScript, and some name other hosts.
SCRIPT: Final = re.compile(r"<script\b[^>]*>.*?</script\s*>", re.DOTALL | re.IGNORECASE)
REMOTE_LINK: Final = re.compile(r"<link\b[^>]*href=[\"']https?://[^>]*>", re.IGNORECASE)
TIMEOUT_S: Final = 120
# A kernel warns that programs on this machine may listen; once a notebook that is noise.
QUIET: Final = ["--log-level=ERROR"]


def without_widgets(notebook: Any) -> Any:
    """Drop the outputs of live widgets: a static form stands beside each."""
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if set(output.get("data", {None})) - {WIDGET_MIME}]
    notebook.metadata.pop("widgets", None)
    return notebook


def export(source: Path, target: Path) -> float:
    """Execute and write; returns the seconds the execution took."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    notebook = nbformat.read(source, as_version=4)
    started = time.perf_counter()
    NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        store_widget_state=False,
        extra_arguments=QUIET,
        resources={"metadata": {"path": str(source.parent)}},
    ).execute()
    seconds = time.perf_counter() - started
    exporter = HTMLExporter(embed_images=True, exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.anchor_link_text = ""
    html, _ = exporter.from_notebook_node(without_widgets(notebook))
    html = REMOTE_LINK.sub("", SCRIPT.sub("", html))
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_text(html, encoding="utf-8")
    partial.replace(target)
    return seconds


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("html", type=Path)
    given = parser.parse_args()
    seconds = export(given.notebook, given.html)
    print(f"{given.html}: written, {given.html.stat().st_size // 1024} KiB; the notebook ran in {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
