"""Every block of code in the README and in the documentation is run: in a notebook, and as a script where it shows results.

A page is read from top to bottom, as one notebook. What a block needs that is not on its page, such as a key, is in `BEFORE`;
what a page promises of a block that shows nothing is in `AFTER`.
"""

from __future__ import annotations

import doctest
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import nbformat
import pytest
from nbclient import NotebookClient

from noetic_nb.cli.main import main
from noetic_nb.steering import parse_rules
from tests.docs.site_modules import ROOT
from tests.matrix import matrix
from tests.notebooks.shown import TIMEOUT_S, shown, with_a_kernel

PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE: Final = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_CODE: Final = {"", "{toctree}", "yaml"}
"""Drawings and lists of pages."""

IN_FRAMEWORKS: Final = {
    "docs/frameworks.md": "tests/frameworks/test_watching.py",
    "docs/recipes/external_memory.md": "tests/frameworks/test_recipe_external_memory.py",
    "docs/recipes/langgraph.md": "tests/frameworks/test_recipe_langgraph.py",
}
"""Pages that need other packages: run by `make frameworks`."""

NEEDS: Final = {"docs/behaviour/proofs.md": "z3", "docs/recipes/static_vectors.md": "wordllama"}
"""Pages that need one more package: run where it is installed."""

KEY: Final = "import os\nos.environ['OPENAI_API_KEY'] = 'sk-of-nobody'"
BEFORE: Final = {
    "README.md": KEY,
    "docs/behaviour/layers.md": KEY,
}
AFTER: Final = {
    "README.md": "assert type(model).__name__ == 'CassetteModel' and harness is not None",
    "docs/index.md": """
assert reply.text == "Order A17 is packed."
assert run.to_frame("tools").tool_name.tolist() == ["lookup"]""",
    "docs/behaviour/layers.md": "assert layer.id == 'hybrid-recall'",
    "docs/behaviour/interop.md": """
import os
with open("spans.jsonl", "w") as file:
    for name in "aba":
        print('{"trace_id": "0x%s1"}' % name, file=file)
os.mkdir("parts")
split("spans.jsonl", "parts")
assert {name: len(open(f"parts/{name}").readlines()) for name in os.listdir("parts")} == {"a1.jsonl": 2, "b1.jsonl": 1}""",
    "docs/recipes/sweep_on_dask.md": """
client.close()
assert len(table) == 6 and table.stopped.nunique() > 1, table
assert table.attrs["stopped"] is None""",
}
SHOWS_A_VIEW: Final = {"docs/index.md": "Workbench"}


class Block(NamedTuple):
    """A block of code of a page."""

    page: str
    language: str
    text: str

    @property
    def shows_results(self) -> bool:
        return self.text.startswith(">>>")


def blocks_of(path: Path) -> list[Block]:
    page = str(path.relative_to(ROOT))
    return [Block(page, *found.groups()) for found in FENCE.finditer(path.read_text(encoding="utf-8"))]


BLOCKS: Final = [block for path in PAGES for block in blocks_of(path) if block.language not in NO_CODE]
PYTHON: Final = sorted({block.page for block in BLOCKS if block.language == "python"} - set(IN_FRAMEWORKS))
SHELL: Final = [
    (block.page, line.split("  #")[0].strip())
    for block in BLOCKS
    if block.language == "sh"
    for line in block.text.splitlines()
]


def python_of(page: str) -> list[Block]:
    return [block for block in BLOCKS if block.page == page and block.language == "python"]


def test_every_block_is_run_by_one_of_the_tests() -> None:
    assert {block.language for block in BLOCKS} == {"python", "sh"}
    assert len(PYTHON) > 10
    for page, test in IN_FRAMEWORKS.items():
        assert python_of(page)
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")
    # Results are shown by whole blocks: a prompt further down would be passed over.
    assert [block for block in BLOCKS if ">>> " in block.text and not block.shows_results] == []
    assert set(BEFORE) | set(AFTER) <= set(PYTHON)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PYTHON)
def test_a_page_runs_as_one_notebook(page: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS.get(page, "nbclient"))
    cells: list[tuple[str, str | None]] = [(BEFORE.get(page, ""), None)]
    for block in python_of(page):
        if block.shows_results:
            examples = doctest.DocTestParser().get_examples(block.text)
            cells += [(example.source.rstrip("\n"), example.want) for example in examples]
        else:
            cells.append((block.text, None))
    cells.append((AFTER.get(page, ""), None))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source, _ in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", resources=resources)
    with_a_kernel(client.execute)

    checker, options = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for cell, (source, want) in zip(notebook.cells, cells, strict=True):
        if want is not None:
            got = "".join(f"{text.rstrip()}\n" for kind, text in shown(cell) if kind in {"stdout", "text/plain"})
            assert checker.check_output(want, got, options), f"{source}\nshows\n{got}\nand not\n{want}"
    if page in SHOWS_A_VIEW:
        texts = [text for _, text in shown(notebook.cells[-2])]
        assert any(SHOWS_A_VIEW[page] in text for text in texts)


@matrix("page", [page for page in PYTHON if any(block.shows_results for block in python_of(page))], keep=3, start=2)
def test_a_page_that_shows_results_runs_as_a_script(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(NEEDS.get(page, "nbclient"))
    monkeypatch.chdir(tmp_path)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    text = "".join(block.text for block in python_of(page) if block.shows_results)
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, page, page, 0)
    told: list[str] = []
    failed = doctest.DocTestRunner(optionflags=options).run(test, out=told.append)

    assert failed.attempted > 0
    assert failed.failed == 0, "".join(told)


@pytest.mark.parametrize(("page", "line"), SHELL, ids=[line[:50] for _, line in SHELL])
def test_a_line_for_the_shell_is_one_that_runs(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line)
    if words[0] == "docker":  # what is run inside of the container
        words = words[words.index("make") :]
    if words[0] == "make":
        if shutil.which("make") is None:
            pytest.skip("needs make")
        command = ["make", "--dry-run", *words[1:], f"VENV={tmp_path}/venv"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    if words[0] == "python":
        done = subprocess.run([sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text(
        "version: 1\nrules:\n- {id: once, on: [before_tool_call], tools: [pay], at_most: 1}\n"
    )
    (tmp_path / "runs").mkdir()
    for name, outcome in (("a", True), ("b", False)):
        talk = {"messages": [{"role": "user", "content": name}], "outcome": outcome}
        (tmp_path / "runs" / f"{name}.json").write_text(json.dumps(talk))
    assert words[0] == "noetic-nb"
    code = main(words[1:])
    told: Any = capsys.readouterr()
    assert code == 0, told.err


def test_the_rule_file_of_the_recipe_is_one() -> None:
    text = (ROOT / "docs" / "recipes" / "rule.md").read_text(encoding="utf-8")
    (file,) = [body for language, body in FENCE.findall(text) if language == "yaml"]

    assert [rule.id for rule in parse_rules(file)] == ["twice", "known", "limit"]
