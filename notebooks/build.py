"""Make the lessons out of their sources: copies for students, and on demand a teacher's edition and slides.

    python notebooks/build.py                                              # students: *.ipynb beside this file
    python notebooks/build.py --teacher build/teacher --slides build/slides

A source in `sources/` is a script that jupytext reads as a notebook (percent format); edit that and never the notebook. Tags of its
cells say who sees them:

    exercise   the stub that a student completes; the teacher's edition has the solution in its place
    solution   teacher only
    notes      teacher only
    check      what says whether an answer is right
    setup      folded away

Notebooks are kept with what they show, so that it can be read where nothing runs; of a view its text is kept. One that shows the same as
before is left as it is, whatever its pictures and the addresses of objects: `--again` writes it all the same. Slides are one HTML file each,
without JavaScript and without a network: Page Down goes to the next one.
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
from pathlib import Path
from typing import Any, Final

import jupytext
import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter

sys.path.insert(0, str(Path(__file__).parent))
from export import QUIET, REMOTE_LINK, SCRIPT, TIMEOUT_S, WIDGET_MIME

HERE: Final = Path(__file__).parent
SOURCES: Final = HERE / "sources"
TEACHER_ONLY: Final = {"solution", "notes"}
KERNEL: Final = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}

MASK: Final = re.compile(r"0x[0-9a-f]{6,16}|\bnn-(?:live-)?[0-9a-f]{32}\b")
"""The one thing in which two runs may differ: addresses of objects, and the names by which views tell their outputs apart."""

_HEADING: Final = re.compile(r"^#{1,3} ")
_CELL: Final = re.compile(r'<div class="jp-Cell [^>]*id="cell-id=([\w-]+)">')
_SLIDES_CSS: Final = """
html { scroll-snap-type: y mandatory; font-size: 130%; }
section.slide { min-height: 100vh; box-sizing: border-box; padding: 4vh 6vw; scroll-snap-align: start; break-after: page; }
section.slide .jp-Cell { max-width: 60rem; margin: 0 auto; }
"""


def tags(cell: Any) -> set[str]:
    """Return the tags of a cell."""
    return set(cell.metadata.get("tags", ()))


def read(source: Path) -> Any:
    """Read a source as a notebook; the same text gives the same notebook, to the byte."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = {"kernelspec": dict(KERNEL), "language_info": {"name": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"{source.stem.split('_')[0]}-{number:02d}"
        cell.metadata = {"tags": sorted(tags(cell))} if tags(cell) else {}
        if "setup" in tags(cell):
            cell.metadata["jupyter"] = {"source_hidden": True}
    return notebook


def for_students(notebook: Any) -> Any:
    """Leave out what only the teacher sees."""
    notebook.cells = [cell for cell in notebook.cells if not tags(cell) & TEACHER_ONLY]
    return notebook


def for_teachers(notebook: Any) -> Any:
    """Put solutions in the place of stubs."""
    notebook.cells = [cell for cell in notebook.cells if "exercise" not in tags(cell)]
    return notebook


def run(notebook: Any) -> Any:
    """Run a notebook from top to bottom and keep what it shows."""
    NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        store_widget_state=False,
        record_timing=False,
        extra_arguments=QUIET,
        resources={"metadata": {"path": str(HERE)}},
    ).execute()
    notebook.metadata = {"kernelspec": dict(KERNEL), "language_info": {"name": "python"}}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _joined([kept for output in cell.outputs if (kept := _kept(output)) is not None])
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """Join texts that follow one another: in how many pieces they arrive is chance."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output.output_type == "stream" and last.get("output_type") == "stream" and last.name == output.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def _kept(output: Any) -> Any:
    data = output.get("data")
    if data is None:
        return output
    data.pop(WIDGET_MIME, None)
    if is_static_form(data.get("text/html", "")):
        del data["text/html"]
    return output if data else None


def shown(cell: Any) -> list[tuple[str, str]]:
    """Return what a cell shows, as pairs of a type and a text; pictures and live views are left aside."""
    found: list[tuple[str, str]] = []
    for output in _joined(list(map(copy.copy, cell.outputs))):
        if output.output_type == "stream":
            found.append((str(output.name), masked(output.text)))
        for kind, text in sorted(output.get("data", {}).items()):
            if kind.startswith("text/"):
                found.append((kind, masked(text)))
    return found


def masked(text: str) -> str:
    """Return a text without what differs in every run."""
    return MASK.sub("***", text)


def is_settled(made: Any, path: Path) -> bool:
    """Tell whether a notebook says and shows what its file does."""
    if not path.exists():
        return False

    def facts(notebook: Any) -> list[Any]:
        return [
            (cell.id, cell.metadata, cell.source, *([shown(cell), _alts(cell)] if cell.cell_type == "code" else ()))
            for cell in notebook.cells
        ]

    return facts(made) == facts(nbformat.read(path, as_version=4))


def _alts(cell: Any) -> list[Any]:
    return [(sorted(output.get("data", {})), output.get("metadata", {})) for output in cell.outputs]


def is_static_form(html: str) -> bool:
    """Tell whether this is what a view looks like without a kernel; its style sheet is stripped or printed by sites that show notebooks."""
    return "<style" in html and "noetic-nb" in html


def first_of_slides(notebook: Any) -> list[str]:
    """Return the ids of the cells that begin a slide: headings, and what answers a prediction, which must not stand below it."""
    firsts, predicted = [], True
    for cell in notebook.cells:
        if predicted or _HEADING.match(cell.source):
            firsts.append(cell.id)
        predicted = cell.cell_type == "markdown" and "**Predict" in cell.source
    return firsts


def slides(notebook: Any) -> str:
    """Return a notebook that was run as slides: one HTML page without JavaScript."""
    firsts = first_of_slides(notebook)
    exporter = HTMLExporter(embed_images=True, exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.anchor_link_text = ""
    html, _ = exporter.from_notebook_node(notebook)
    html = REMOTE_LINK.sub("", SCRIPT.sub("", html))
    opened = _CELL.sub(
        lambda cell: f'</section><section class="slide">{cell[0]}' if cell[1] in firsts else cell[0], html
    )
    opened = opened.replace("</section>", "", 1).replace("</main>", "</section></main>")
    return opened.replace("</head>", f"<style>{_SLIDES_CSS}</style></head>", 1)


def write(text: str, target: Path) -> None:
    """Write a whole file or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)
    print(target)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="begin like a source, such as 03; all by default")
    parser.add_argument(
        "--again", action="store_true", help="write notebooks also where only pictures or addresses differ"
    )
    parser.add_argument(
        "--teacher", type=Path, help="folder for the teacher's edition; students' copies are left alone"
    )
    parser.add_argument("--slides", type=Path, help="folder for slides; students' copies are left alone")
    given = parser.parse_args()
    sources = [
        path for path in sorted(SOURCES.glob("*.py")) if not given.names or path.name.startswith(tuple(given.names))
    ]
    if not sources:
        parser.error(
            f"no source begins like {', '.join(given.names)}; there are {', '.join(p.stem for p in sorted(SOURCES.glob('*.py')))}"
        )
    for source in sources:
        if given.teacher:
            write(jupytext.writes(run(for_teachers(read(source))), fmt="ipynb"), given.teacher / f"{source.stem}.ipynb")
        if given.slides:
            write(slides(run(for_students(read(source)))), given.slides / f"{source.stem}.html")
        if not (given.teacher or given.slides):
            made, target = run(for_students(read(source))), HERE / f"{source.stem}.ipynb"
            if not given.again and is_settled(made, target):
                print(f"{target}: shows the same as before")
            else:
                write(jupytext.writes(made, fmt="ipynb"), target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
