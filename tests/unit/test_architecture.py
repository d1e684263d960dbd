"""The floors of the house: imports point down only, and heavy packages stay where they belong."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import noetic_nb as nn

PACKAGE = Path(nn.__file__).parent

# From the ground up. What stands on one floor may know its own floor and those below.
FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"_core", "errors", "events", "clock", "ids", "redact", "markup", "items"})
    | {"tokens", "tokenizers", "storage", "regulator", "sync"},
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

# Methods that hand over to the floor above when they are called, so that there is one way to do a thing: by file and part.
HANDED_UP = {("lab/_detection/calibration.py", "plots"): "Calibration.plot draws as plots.roc does"}

# Subpackages that completion offers and `import *` does not load, as some load Jupyter.
ROOMS = {"errors", "events", "items", "lab", "layers", "lessons"} | {
    "plots",
    "regulator",
    "steps",
    "storage",
    "testing",
    "widgets",
}

# Names that stand in two rooms and mean the same in both.
SAME_MEANING = {
    "approval": "a person decides about a call: the gate in the runtime, its form in a notebook",
    "clock": "the source of time: the system's, and one under a test's control",
    "decisions": "what a regulator answers, in our form and in that of the other package",
    "events": "what happened, as frozen records",
    "labels": "judgements of runs: beside their files, and as outcomes of experiments",
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


@cache
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


def is_part(path: Path) -> bool:
    """Tell whether a path is a module or a package, and not the face of one."""
    return path.name != "__init__.py" and (path.suffix == ".py" or (path / "__init__.py").exists())


def parts_inside(folder: str, sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return which parts of a folder, files and folders, import which others of it; `sources` are modules by dotted name."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        if module.startswith(f"{folder}."):
            part = module.removeprefix(f"{folder}.").split(".")[0]
            imported = imports_of(source, module.rpartition(".")[0])
            others = {
                name.removeprefix(f"{folder}.").split(".")[0] for name in imported if name.startswith(f"{folder}.")
            }
            found.setdefault(part, set()).update(others - {part})
    return found


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """Return parts that import one another in a circle; none where each part has a floor, above all that it imports."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@lru_cache(maxsize=1)
def sources() -> dict[str, str]:
    """Return the text of every module but the faces of packages."""
    paths = [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    return {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_text("utf-8") for path in paths}


FOLDERS = [
    ".".join(path.parent.relative_to(PACKAGE.parent).parts)
    for path in sorted(PACKAGE.rglob("__init__.py"))
    if path.parent != PACKAGE  # whose floors are above
]


def test_the_parts_of_a_folder_stand_on_floors() -> None:
    circles = {folder: circle_in(parts_inside(folder, sources())) for folder in FOLDERS}

    assert {folder: circle for folder, circle in circles.items() if circle} == {}


def test_no_modules_import_one_another_in_a_circle() -> None:
    modules = {name: imports_of(text, name.rpartition(".")[0]) & sources().keys() for name, text in sources().items()}

    assert circle_in({name: set(others - {name}) for name, others in modules.items()}) == []


def test_imports_point_down_only() -> None:
    faults = {}
    for path in sorted({*PACKAGE.rglob("*.py")} - {PACKAGE / "__init__.py"}):
        name = path.relative_to(PACKAGE)
        package = ".".join(("noetic_nb", *name.parts[:-1]))
        # What is handed up is imported inside of functions only.
        source = without_handed_up(str(name), path.read_text(encoding="utf-8"))
        faults[str(name)] = faults_of(part_of(path), source, package)

    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize(("path", "part"), HANDED_UP, ids=lambda value: str(value))
def test_what_is_handed_up_is_needed_and_inside_of_a_function(path: str, part: str) -> None:
    source = (PACKAGE / path).read_text(encoding="utf-8")
    floor = path.split("/")[0]

    assert faults_of(floor, source) != []
    assert faults_of(floor, without_handed_up(path, source)) == []
    assert faults_of(floor, without_handed_up(path, f"{source}\nfrom noetic_nb.{part} import roc")) != []


def test_every_part_of_the_package_has_a_floor() -> None:
    found = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if is_part(path)}

    assert found == set(FLOOR_OF)


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
        plain = path.stem if path.stem[:2] == "__" else path.stem.lstrip("_")
        places.setdefault(plain, set()).add(str(path.relative_to(PACKAGE).parent))

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
    ("module", "source"),
    [
        ("noetic_nb.runtime._config.config", "from noetic_nb.runtime._context.context import Context"),
        ("noetic_nb.runtime._durability.snapshot", "def f():\n    from noetic_nb.runtime._threads import turn"),
        ("noetic_nb.steering._evaluation.judging", "from noetic_nb.steering._rulebook.rulebook import RuleBook"),
        ("noetic_nb.widgets.base._run_view", "from noetic_nb.widgets._ledger.ledger import Ledger"),
        ("noetic_nb.memory._state.planted", "from noetic_nb.memory._enforcement import Enforcement"),
    ],
)
def test_a_planted_import_inside_a_folder_is_found(module: str, source: str) -> None:
    folder = ".".join(module.split(".")[:2])
    planted = {**sources(), module: f"{sources().get(module, '')}\n{source}"}

    assert circle_in(parts_inside(folder, planted)) != []


def public_names(names: Iterable[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize(("shown", "most"), [(nn.Context, 30), (nn.Run, 26)])
def test_users_are_shown_few_names(shown: type[Any], most: int) -> None:
    names = public_names(
        [*dir(shown), *[name for base in shown.__mro__ for name in getattr(base, "__annotations__", ())]]
    )

    print(f"{shown.__name__} shows {len(names)} public names, at most {most}: {', '.join(sorted(names))}")
    assert len(names) <= most


def test_a_run_has_a_name_and_meta_beside_its_methods() -> None:
    assert public_names(dir(nn.Run("demo"))) - public_names(dir(nn.Run)) == {"run_id", "meta"}


async def test_a_running_execution_shows_the_names_of_a_context() -> None:
    shown: list[set[str]] = []

    @nn.tool
    def look(ctx: nn.Context) -> str:
        """Look at the context of a tool call."""
        shown.append(public_names(dir(ctx)) - {"call_id", "idempotency_key"})
        return "seen"

    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted", tools=[look]))
    model = nn.ScriptedModel([nn.CallTool("look"), "Done."])
    harness = nn.AgentHarness(config, model=model)
    await harness.execute("Look.")
    async with harness.execution() as ctx:
        shown.append(public_names(dir(ctx)))

    assert shown == [public_names(dir(nn.Context))] * 2
    assert all(hasattr(ctx, name) for name in shown[1])


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

    assert len(set(nn.__all__)) == len(nn.__all__)
    assert not ROOMS & set(nn.__all__)
    assert set(nn.__all__) | ROOMS == for_readers == set(dir(nn))
    assert all(getattr(nn, name) is not None for name in nn.__all__)
    assert {name for name in nn.__all__ if isinstance(getattr(nn, name), ModuleType)} == {
        "memory",
        "steering",
        "tokenizers",
    }


def test_rooms_of_the_library_are_there_after_the_import_and_loaded_when_used() -> None:
    code = f"""
import sys, noetic_nb as nn
loaded = 'noetic_nb.lab' in sys.modules
for name in {sorted(ROOMS)}:
    print(loaded, getattr(nn, name).__name__)
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [f"False noetic_nb.{name}" for name in sorted(ROOMS)]


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

    rooms = ROOMS if found is nn else set()
    assert {name for name in dir(found) if not name.startswith("_")} == set(found.__all__) | rooms


@pytest.mark.parametrize(
    "code",
    [
        "import noetic_nb.memory.params as p; import noetic_nb as nn; nn.steering(nn.RuleBook()); p.InitParams",
        "import noetic_nb as nn; nn.memory; import noetic_nb.memory.params as p; p.InitParams; nn.memory([])",
        "import noetic_nb as nn; nn.memory([]); import noetic_nb.memory; noetic_nb.memory.params.InitParams",
        "from noetic_nb.memory import memory; from noetic_nb import memory as package; memory([]); package.params",
        "import noetic_nb.steering._rules.rule as r; import noetic_nb as nn; nn.steering(rules=[]); r.SteeringRule",
        "from noetic_nb.steering import RuleBook, steering as s; import noetic_nb; noetic_nb.steering(RuleBook()); s(RuleBook())",
    ],
)
def test_memory_and_steering_are_packages_under_every_import_and_callable(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_the_shop_window_has_no_widgets() -> None:
    assert not {"TokenAllocation", "RuleEditor", "Ledger", "RegulatorTrends"} & set(nn.__all__)


if __name__ == "__main__":
    graph = TopologicalSorter(parts_inside(".".join(["noetic_nb", *sys.argv[1:]]), sources()))
    graph.prepare()
    while graph.is_active():
        floor = graph.get_ready()
        print(", ".join(sorted(floor)))
        graph.done(*floor)
