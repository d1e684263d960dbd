"""The floors of the house: imports point down only, and heavy packages stay where they belong."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import noetic_nb as nn

PACKAGE = Path(nn.__file__).parent

# From the ground up. What stands on one floor may know its own floor and those below.
FLOORS: tuple[frozenset[str], ...] = (
    frozenset(
        [
            "errors",
            "arguments",
            "record_type",
            "events",
            "clock",
            "ids",
            "owner_only",
            "whole_files",
            "redact",
            "markup",
            "cards",
            "names",
            "items",
            "tokens",
            "tokenizers",
            "filesystem",
            "shell",
            "storage",
            "regulator",
            "sync",
            "lazy",
            "nested_loop",
            "worker_threads",
            "long_work",
            "package_versions",
        ],
    ),
    frozenset({"memory", "models"}),
    frozenset({"steps", "steering", "layers"}),
    frozenset({"runtime"}),
    frozenset({"runs"}),
    frozenset({"interop"}),
    frozenset({"lab"}),
    frozenset({"lessons"}),
    frozenset({"plots"}),
    frozenset({"widgets"}),
    frozenset({"cli", "__main__"}),
)
# Beside the house: faces and helpers for users, which may look in at any window but are used by none.
BESIDE = {"testing": 3, "compat": 1}
FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names} | BESIDE

# The floors inside the rooms that have rooms of their own; files at the root of a room are named like folders.
ROOMS: dict[str, tuple[frozenset[str], ...]] = {
    "runtime": (
        frozenset({"config"}),
        frozenset({"context"}),
        frozenset({"planning", "durability"}),
        frozenset({"execution"}),
        frozenset({"threads"}),
        frozenset({"check", "harness"}),
    ),
    "steering": (
        frozenset({"ledger"}),
        frozenset({"rules"}),
        frozenset({"predicates"}),
        frozenset({"evaluation", "past_calls"}),
        frozenset({"rulebook"}),
        frozenset({"execution_states"}),
        frozenset({"hooks"}),
        frozenset({"layer"}),
    ),
    "regulator": (
        frozenset({"decisions", "events"}),
        frozenset({"measures"}),
        frozenset({"predicates"}),
        frozenset({"session"}),
        frozenset({"person", "settings"}),
        frozenset({"presets", "state", "task"}),
        frozenset({"regulator"}),
        frozenset({"adapters"}),
        frozenset({"shadow"}),
    ),
    "runs": (
        frozenset(
            {
                "plain_text",
                "palette",
                "gzip_members",
                "run_source",
                "decision_faults",
                "recorded_items",
                "recorded_origins",
            }
        ),
        frozenset({"turns"}),
        frozenset({"events", "requests", "regulation", "timeline"}),
        frozenset({"save", "tables"}),
        frozenset({"run", "load", "bundle", "conversation", "token_calibration"}),
        frozenset({"recording"}),
    ),
    "items": (
        frozenset({"frozen", "json_text", "json_form", "bound_values"}),
        frozenset({"item", "kept_data"}),
        frozenset({"item_checks"}),
        frozenset({"registry"}),
        frozenset({"build", "call_ids", "log", "origins", "shared_prefix", "value_forms", "value_search"}),
        frozenset({"messages"}),
        frozenset({"input_items"}),
    ),
    "interop": (
        frozenset({"formats"}),
        frozenset({"spans"}),
        frozenset({"watching"}),
        frozenset({"importing", "otel_export", "guards"}),
    ),
    "lab": (
        frozenset(
            {
                "statistics",
                "recorded_calls",
                "annotated",
                "dialogues",
                "caching_changes",
                "time_profile",
            }
        ),
        frozenset({"datasets", "rule_trial", "regulator_replay"}),
        frozenset({"datasets_build", "rule_backtest", "rule_lint"}),
        frozenset({"detection", "rule_scores", "replaying"}),
        frozenset({"remembering", "sweeping"}),
    ),
    "cli": (
        frozenset({"output"}),
        frozenset({"command", "run_arguments"}),
        frozenset({"commands"}),
        frozenset({"main"}),
    ),
    "widgets": (
        frozenset({"base"}),
        frozenset(
            {"allocation", "trends", "ledger", "approval", "rules", "timeline", "transcript", "memory", "compare"}
        ),
        frozenset({"workbench"}),
    ),
}

# Methods that hand over to the floor above when they are called, so that there is one way to do a thing: by file and part.
HANDED_UP = {("lab/detection/calibration.py", "plots"): "Calibration.plot draws as plots.roc does"}

# Names that stand in two rooms and mean the same in both.
SAME_MEANING = {
    "approval": "a person decides about a call: the gate in the runtime, its form in a notebook",
    "clock": "the source of time: the system's, and one under a test's control",
    "decisions": "what a regulator answers, in our form and in that of the other package",
    "events": "what happened, as frozen records",
    "layer": "a memory layer",
    "ledger": "what steering decided, as data and as a view",
    "memory_view": "the memory of a thread in one's hands: as an object of the harness, and as a view in a notebook",
    "openai_chat": "OpenAI's chat completions: messages that are kept, and requests",
    "openai_responses": "OpenAI's responses API: items that are kept, and requests",
    "registry": "names that files may use, and what they stand for",
    "regulator": "the regulator, ours and with the other package's face",
}

NOTEBOOK_LAYER = {"ipywidgets", "anywidget", "traitlets", "IPython", "matplotlib"}
TABLES = {"pandas", "numpy"}
RUNS_FLOOR, LENS_FLOOR = 4, 8
HEAVY = {*NOTEBOOK_LAYER, *TABLES, "fsspec", "openai", "common_expression_language", "langchain", "jupyter_client"}


def part_of(path: Path) -> str:
    """Return the part of the house a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def is_module(dotted: str) -> bool:
    """Tell whether a dotted name is a module or a package of ours."""
    place = PACKAGE.parent.joinpath(*dotted.split("."))
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


@lru_cache(maxsize=2)
def imports_of(source: str, package: str) -> frozenset[str]:
    """Return every dotted name a module imports, at any indentation, relative ones made absolute."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            # A module taken out of its package counts as itself, not as the package's face.
            parts = {f"{base}.{alias.name}" for alias in node.names if is_module(f"{base}.{alias.name}")}
            found |= parts if parts and base != "noetic_nb" else {base}
            if base == "noetic_nb":
                found |= {f"noetic_nb.{alias.name}" for alias in node.names}
    return frozenset(found)


def faults_of(part: str, source: str, package: str = "noetic_nb") -> list[str]:
    """Return what a module of a part imports that it must not."""
    floor = FLOOR_OF[part]
    faults = []
    for name in sorted(imports_of(source, package)):
        top, _, rest = name.partition(".")
        if top == "noetic_nb":
            other = rest.split(".")[0]
            if other and other != part and FLOOR_OF.get(other, 99) > floor:
                faults.append(f"{part} (floor {floor}) looks up at {other}")
            if part == "regulator" and other not in ("", "regulator"):
                faults.append(f"the regulator stands alone, but imports {other}")
        elif top in NOTEBOOK_LAYER and floor < LENS_FLOOR:
            faults.append(f"{part} imports {top}, which belongs to the notebook layer")
        elif top in TABLES and floor < RUNS_FLOOR:
            faults.append(f"{part} imports {top}, which belongs to runs and above")
    return faults


def without_handed_up(path: str, source: str) -> str:
    """Return a module without the imports inside of functions that `HANDED_UP` allows it."""
    allowed = {f"noetic_nb.{part}" for file, part in HANDED_UP if file == path}
    if not allowed:
        return source
    tree = ast.parse(source)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            function.body = [
                ast.Pass() if isinstance(line, ast.ImportFrom) and line.module in allowed else line
                for line in function.body
            ]
    return ast.unparse(tree)


def floor_inside(room: str, name: str) -> int | None:
    """Return the floor of a folder or file inside a room, None where it has none."""
    for floor, names in enumerate(ROOMS[room]):
        if name in names:
            return floor
    return None


def is_part(path: Path) -> bool:
    """Tell whether a path is a module or a package, and not the face of one."""
    return path.name != "__init__.py" and (path.suffix == ".py" or (path / "__init__.py").exists())


def faults_inside(path: Path, source: str) -> list[str]:
    """Return what a module inside a room imports from above itself in the same room."""
    room = path.parts[0]
    if room not in ROOMS or path.name == "__init__.py":
        return []
    floor = floor_inside(room, path.parts[1].removesuffix(".py"))
    assert floor is not None, f"{path} has no floor"
    faults = []
    for name in sorted(imports_of(source, ".".join(("noetic_nb", *path.parts[:-1])))):
        parts = name.split(".")
        if parts[:2] == ["noetic_nb", room]:
            other = floor_inside(room, parts[2]) if len(parts) > 2 else None
            if other is None or other > floor:
                faults.append(f"{path} (floor {floor} of {room}) looks up at {name}")
    return faults


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down_only(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return
    package = ".".join(("noetic_nb", *path.relative_to(PACKAGE).parts[:-1]))
    source = path.read_text(encoding="utf-8")

    # What is handed up is imported inside of functions only.
    source = without_handed_up(str(path.relative_to(PACKAGE)), source)

    assert faults_of(part_of(path), source, package) == []
    assert faults_inside(path.relative_to(PACKAGE), source) == []


@pytest.mark.parametrize(("path", "part"), HANDED_UP, ids=lambda value: str(value))
def test_what_is_handed_up_is_needed_and_inside_of_a_function(path: str, part: str) -> None:
    source = (PACKAGE / path).read_text(encoding="utf-8")
    floor = path.split("/")[0]

    assert faults_of(floor, source) != []
    assert faults_of(floor, without_handed_up(path, source)) == []
    assert faults_of(floor, without_handed_up(path, f"{source}\nfrom noetic_nb.{part} import roc")) != []


def test_every_folder_and_file_has_a_floor() -> None:
    found = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if is_part(path)}
    inside = {
        f"{room}/{path.name.removesuffix('.py')}"
        for room in ROOMS
        for path in (PACKAGE / room).iterdir()
        if is_part(path)
    }

    assert found == set(FLOOR_OF)
    assert inside == {f"{room}/{name}" for room, floors in ROOMS.items() for floor in floors for name in floor}
    with_rooms = {path.parent.parent.name for path in PACKAGE.glob("*/*/__init__.py")}
    assert with_rooms - {"compat"} == set(ROOMS)


def test_a_module_is_not_named_like_a_function_of_its_package() -> None:
    hidden = []
    for init in PACKAGE.rglob("__init__.py*"):
        if init.parent == PACKAGE:
            continue  # `memory` and `steering` can be called
        names = {
            alias.name
            for node in ast.walk(ast.parse(init.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        modules = {path.name.removesuffix(".py") for path in init.parent.iterdir() if is_part(path)}
        package = ".".join(("noetic_nb", *init.parent.relative_to(PACKAGE).parts))
        for name in names & modules:
            if not isinstance(getattr(import_module(package), name), ModuleType):
                hidden.append(f"{package}.{name}")

    assert hidden == []


def test_one_basename_has_one_meaning() -> None:
    places: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        places.setdefault(path.stem, set()).add(str(path.relative_to(PACKAGE).parent))

    assert {
        name: sorted(at) for name, at in places.items() if len(at) > 1 and name not in {"__init__", *SAME_MEANING}
    } == {}


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("memory", "from noetic_nb.runtime import AgentHarness"),
        ("memory", "def f():\n    from noetic_nb import steering"),
        ("steering", "from ..runtime import plan"),
        ("regulator", "from noetic_nb.errors import NoeticError"),
        ("runtime", "import pandas as pd"),
        ("runs", "from matplotlib.figure import Figure"),
        ("lab", "import ipywidgets"),
    ],
)
def test_a_planted_import_is_found(part: str, source: str) -> None:
    assert faults_of(part, source, f"noetic_nb.{part}") != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("runtime/config/limits.py", "from noetic_nb.runtime.context.context import Context"),
        ("runtime/durability/snapshot.py", "def f():\n    from noetic_nb.runtime.threads import turn"),
        ("runtime/execution/child.py", "from noetic_nb.runtime import Context"),
        ("steering/predicates/judge.py", "from noetic_nb.steering.rulebook.rulebook import RuleBook"),
        ("widgets/base/run_view.py", "from noetic_nb.widgets.ledger.ledger import Ledger"),
    ],
)
def test_a_planted_import_inside_a_room_is_found(path: str, source: str) -> None:
    assert faults_inside(Path(path), source) != []


def test_no_cycle_hides_behind_type_checking() -> None:
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "TYPE_CHECKING" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                hidden = imports_of(ast.unparse(ast.Module(node.body, [])), "noetic_nb")
                part = part_of(path)
                ours = {name.split(".")[1] for name in hidden if name.startswith("noetic_nb.")}
                upward = {name for name in ours if FLOOR_OF.get(name, 99) > FLOOR_OF.get(part, 99)}
                assert not upward, f"{path}: {upward}"


@pytest.mark.parametrize(
    "module",
    ["noetic_nb", "noetic_nb.regulator", "noetic_nb.runs", "noetic_nb.lab", "noetic_nb.steering", "noetic_nb.runtime"],
)
def test_importing_the_library_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    # Coverage and editors may preload packages through the environment; a bare interpreter does not.
    bare = {key: value for key, value in os.environ.items() if not key.startswith(("COV_", "PYTHONSTARTUP"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=bare)

    assert not HEAVY & set(done.stdout.split())


def test_every_public_name_of_the_shop_window_is_listed_and_real() -> None:
    source = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    for_readers = {alias.name for node in ast.walk(source) if isinstance(node, ast.ImportFrom) for alias in node.names}

    rooms = {"lab", "plots", "widgets"}  # offered by completion; `import *` must not load Jupyter
    assert len(set(nn.__all__)) == len(nn.__all__)
    assert not rooms & set(nn.__all__)
    assert set(nn.__all__) | rooms == for_readers == set(dir(nn))
    assert all(getattr(nn, name) is not None for name in nn.__all__)
    assert {name for name in nn.__all__ if isinstance(getattr(nn, name), ModuleType)} == {
        "memory",
        "steering",
        "tokenizers",
    }


def test_rooms_of_the_library_are_there_after_the_import_and_loaded_when_used() -> None:
    code = "import sys, noetic_nb as nn; print('noetic_nb.lab' in sys.modules, nn.lab, nn.plots, nn.widgets)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("False <module 'noetic_nb.lab'")


@pytest.mark.parametrize(
    "module",
    [
        *("noetic_nb.lab.datasets", "noetic_nb.errors", "noetic_nb.events", "noetic_nb.regulator.events"),
        *[
            f"noetic_nb.{path.parent.name}"
            for path in sorted(PACKAGE.glob("*/__init__.py"))
            if "__all__" in path.read_text(encoding="utf-8")
        ],
    ],
)
def test_completion_offers_public_names_only(module: str) -> None:
    found = import_module(module)

    rooms = {"lab", "plots", "widgets"} if found is nn else set()
    assert {name for name in dir(found) if not name.startswith("_")} == set(found.__all__) | rooms


@pytest.mark.parametrize(
    "code",
    [
        "import noetic_nb.memory.params as p; import noetic_nb as nn; nn.steering(nn.RuleBook()); p.InitParams",
        "import noetic_nb as nn; nn.memory; import noetic_nb.memory.params as p; p.InitParams; nn.memory([])",
        "import noetic_nb as nn; nn.memory([]); import noetic_nb.memory; noetic_nb.memory.params.InitParams",
        "from noetic_nb.memory import memory; from noetic_nb import memory as package; memory([]); package.params",
        "import noetic_nb.steering.rules.rule as r; import noetic_nb as nn; nn.steering(rules=[]); r.SteeringRule",
        "from noetic_nb.steering import RuleBook, steering as s; import noetic_nb; noetic_nb.steering(RuleBook()); s(RuleBook())",
    ],
)
def test_memory_and_steering_are_packages_under_every_import_and_callable(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_the_shop_window_has_no_widgets() -> None:
    assert not {"TokenAllocation", "RuleEditor", "Ledger", "RegulatorTrends"} & set(nn.__all__)
