"""The regulator stands alone, and its shop window shows what is there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import noetic_nb.regulator as regulator
from noetic_nb import compat

PACKAGE = Path(regulator.__file__).parent
STANDARD_LIBRARY = set(sys.stdlib_module_names)


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_the_regulator_imports_only_itself_and_the_standard_library() -> None:
    for path in PACKAGE.glob("*.py"):
        for name in imported(path):
            assert name.startswith("noetic_nb.regulator") or name.split(".")[0] in STANDARD_LIBRARY, (path.name, name)


def test_only_the_default_clock_reads_the_time() -> None:
    assert [path.name for path in PACKAGE.glob("*.py") if "time" in imported(path)] == ["regulator.py"]


def test_the_shop_window_is_sorted_and_complete() -> None:
    for module in (regulator, compat, compat.noos):
        assert len(module.__all__) == len(set(module.__all__))
        assert all(hasattr(module, name) for name in module.__all__)
    assert {name for name in vars(regulator) if name[0].isupper()} <= set(regulator.__all__)


def test_word_lists_travel_with_their_licence() -> None:
    assert "MIT License" in (PACKAGE / "measures" / "data" / "LICENSE.noos").read_text(encoding="utf-8")


def test_importing_the_regulator_reads_no_lexicon_and_no_heavy_package() -> None:
    code = (
        "import sys; import noetic_nb.regulator; "
        "print(sorted({'pandas', 'numpy', 'pydantic', 'sklearn', 'asyncio'} & set(sys.modules)), "
        "sys.modules['noetic_nb.regulator.measures.word_patterns'].lexicon.cache_info().currsize)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parents[1]
    )

    assert done.stdout.split() == ["[]", "0"]
