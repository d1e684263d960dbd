"""Break the regulator on purpose, one place at a time, and see the tests go red.

    python benchmarks/mutate_regulator.py

Every constant of the original (docs/decisions/noos.md, "Constants") is moved up and down, every comparison on the way to a
decision is flipped, in a copy of the tree. A mutant that no test kills is printed, and the script fails.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = Path("noetic_nb/regulator")

CONSTANTS = (
    "DRIFT_WARN_THRESHOLD",
    "TOPIC_LIMIT",
    "TOPIC_KEYWORD_CAP",
    "MIN_STEM_PREFIX_LEN",
    "DEFAULT_TOKEN_CAP",
    "DEFAULT_HISTORY_WINDOW",
    "QUALITY_DECLINE_WINDOW",
    "QUALITY_DECLINE_MIN_DELTA",
    "POOR_QUALITY_MEAN",
    "TYPICAL_TURN_TOKENS_OUT",
    "TYPICAL_TURN_WALLCLOCK_MS",
    "TOKEN_COST_WEIGHT",
    "TOOL_LOOP_THRESHOLD",
    "DEFAULT_WINDOW_SIZE",
    "LOGPROB_UNAVAILABLE",
    "MEAN_NLL_CONFIDENCE_MIDPOINT",
    "MEAN_NLL_CONFIDENCE_HALF_RANGE",
    "STRUCT_MIN_LENGTH_CHARS",
    "STRUCT_HIGH_QUESTION_RATIO",
    "STRUCT_FALLBACK_DEFAULT",
    "STRUCT_FALLBACK_WEAK",
    "STRUCT_FALLBACK_STRONG",
    "NEUTRAL_CONFIDENCE",
    "MIN_CORRECTIONS_FOR_PATTERN",
    "MAX_EXAMPLE_CORRECTIONS",
    "MAX_CORRECTIONS_PER_CLUSTER",
)

# Everything that `decide` runs, by file.
DECIDING = {
    "regulator.py": {"decide"},
    "predicates/core.py": {"check", "_mean", "_break"},
    "predicates/tool_loops.py": {"check", "_records", "_ending", "_failures"},
    "predicates/low_confidence.py": {"check", "_stretches", "_close"},
    "predicates/evidence.py": {"mean_of_last"},
    "predicates/drift.py": {"__call__", "_anchored"},
    "measures/tool_history.py": {"trailing_cycles"},
    "measures/corrections.py": {"pattern_of"},
    "measures/confidence.py": {"usable_logprob", "structural_confidence"},
}
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.GtE: ast.Gt,
    ast.Gt: ast.GtE,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
UNCHANGED = "nothing"
# The fast tests first: most mutants never reach the second group.
TESTS = (
    ("tests/regulator/test_release.py", "tests/regulator/test_vectors.py"),
    ("tests/regulator/test_predicates.py", "tests/regulator/test_lifetimes.py", "tests/regulator/test_replay.py"),
)


@dataclass(frozen=True)
class Mutant:
    """One file, changed in one place."""

    file: str
    place: str
    source: str


def constant_mutants(file: str, source: str) -> Iterator[Mutant]:
    tree = ast.parse(source)
    for node in tree.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in CONSTANTS):
            continue
        assert isinstance(node.value, ast.Constant), node.target.id
        value = node.value.value
        step = 1 if isinstance(value, int) else 0.01
        for moved in (value + step, value - step):
            lines = source.split("\n")
            line = lines[node.value.lineno - 1]
            start, end = node.value.col_offset, node.value.end_col_offset
            lines[node.value.lineno - 1] = f"{line[:start]}{moved!r}{line[end:]}"
            yield Mutant(file, f"{node.target.id} = {moved!r}", "\n".join(lines))


def comparison_mutants(file: str, source: str) -> Iterator[Mutant]:
    names = DECIDING.get(file, set())
    for function in [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.name in names]:
        comparisons = [n for n in ast.walk(function) if isinstance(n, ast.Compare)]
        for comparison in comparisons:
            for place, op in enumerate(comparison.ops):
                tree = ast.parse(source)
                target = next(
                    n
                    for n in ast.walk(tree)
                    if isinstance(n, ast.Compare)
                    and (n.lineno, n.col_offset, n.end_col_offset)
                    == (comparison.lineno, comparison.col_offset, comparison.end_col_offset)
                )
                target.ops[place] = FLIPPED[type(op)]()
                label = f"{function.name}, line {comparison.lineno}: {ast.unparse(target)}"
                yield Mutant(file, label, ast.unparse(tree))


def mutants() -> list[Mutant]:
    found: list[Mutant] = []
    paths = {path.relative_to(ROOT / PACKAGE).as_posix(): path for path in (ROOT / PACKAGE).rglob("*.py")}
    for name, path in sorted(paths.items()):
        source = path.read_text(encoding="utf-8")
        found += constant_mutants(name, source)
        found += comparison_mutants(name, source)
    missing = [name for name in CONSTANTS if not any(m.place.startswith(f"{name} =") for m in found)]
    missing += sorted(DECIDING.keys() - paths.keys())
    if missing:
        raise SystemExit(f"No such constants or files: {missing}")
    return found


def survives(tree: Path, mutant: Mutant) -> bool:
    target = tree / PACKAGE / mutant.file
    original = target.read_text(encoding="utf-8")
    target.write_text(mutant.source, encoding="utf-8")
    try:
        for tests in TESTS:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
            done = subprocess.run(
                command,
                cwd=tree,
                capture_output=True,
                timeout=300,
                check=False,
                env=os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            )
            if done.returncode in (1, 2):  # red, or a module that no longer imports
                if mutant.place == UNCHANGED:
                    print(done.stdout.decode(errors="replace")[-4_000:])
                return False
        return True
    finally:
        target.write_text(original, encoding="utf-8")


def work(batch: Sequence[Mutant]) -> list[Mutant]:
    """Try a share of the mutants in a copy of the tree of its own."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(ROOT / PACKAGE, tree / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
        (tree / "noetic_nb" / "__init__.py").write_text('"""A copy for mutation."""\n', encoding="utf-8")
        shutil.copytree(ROOT / "tests" / "regulator", tree / "tests" / "regulator")
        shutil.copytree(ROOT / "tests" / "vectors" / "regulator", tree / "tests" / "vectors" / "regulator")
        shutil.copy(ROOT / "pyproject.toml", tree)
        if (
            survives(tree, Mutant("regulator.py", UNCHANGED, (tree / PACKAGE / "regulator.py").read_text("utf-8")))
            is False
        ):
            raise SystemExit("The tests are red without any mutation.")
        return [mutant for mutant in batch if survives(tree, mutant)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="try the mutants whose file or place contains this text")
    options = parser.parse_args(arguments)
    found = [mutant for mutant in mutants() if options.only in f"{mutant.file}: {mutant.place}"]
    with ThreadPoolExecutor(options.workers) as pool:
        shares = pool.map(work, [found[start :: options.workers] for start in range(options.workers)])
        survivors = [mutant for share in shares for mutant in share]
    print(f"{len(found)} mutants, {len(found) - len(survivors)} killed")
    for mutant in survivors:
        print(f"survived: {mutant.file}: {mutant.place}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
