"""The regulator has no dependencies on other packages, and its `__all__` lists the public names."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import noetic_nb.regulator as regulator
from noetic_nb import compat
from noetic_nb.compat import noos
from noetic_nb.regulator import CostCap, Predicate, Regulator, Settings, decisions, predicates
from noetic_nb.regulator._session import Session
from noetic_nb.regulator._state import Person
from noetic_nb.runs._regulation.decision_words import KIND_NAMES
from tests.regulator.sessions import random_event
from tests.regulator.test_predicates import EVERY_PREDICATE

PACKAGE = Path(regulator.__file__).parent
STANDARD_LIBRARY = set(sys.stdlib_module_names)


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_the_regulator_imports_only_itself_and_the_standard_library() -> None:
    for path in PACKAGE.rglob("*.py"):
        for name in imported(path):
            assert name.startswith("noetic_nb.regulator") or name.split(".")[0] in STANDARD_LIBRARY, (path.name, name)


def test_only_the_default_clock_reads_the_time() -> None:
    assert [path.name for path in PACKAGE.rglob("*.py") if "time" in imported(path)] == ["_regulator.py"]


def test_the_shop_window_is_sorted_and_complete() -> None:
    for module in (regulator, compat, compat.noos):
        assert len(module.__all__) == len(set(module.__all__))
        assert all(hasattr(module, name) for name in module.__all__)
    assert {name for name in vars(regulator) if name[0].isupper()} <= set(regulator.__all__)


def test_word_lists_travel_with_their_licence() -> None:
    assert "MIT License" in (PACKAGE / "_measures" / "data" / "LICENSE.noos").read_text(encoding="utf-8")


def test_importing_the_regulator_reads_no_lexicon_and_no_heavy_package() -> None:
    code = (
        "import sys; import noetic_nb.regulator; "
        "print(sorted({'pandas', 'numpy', 'pydantic', 'sklearn', 'asyncio'} & set(sys.modules)), "
        "sys.modules['noetic_nb.regulator._measures.topics'].lexicon.cache_info().currsize)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parents[1]
    )

    assert done.stdout.split() == ["[]", "0"]


# Predicates


def predicate_classes() -> set[type[Any]]:
    modules = [
        importlib.import_module(f"{predicates.__name__}.{found.name}")
        for found in pkgutil.iter_modules(predicates.__path__)
    ]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    return {cls for cls in classes if hasattr(cls, "check") and isinstance(getattr(cls, "kind", None), str)} - {
        Predicate
    }


def test_every_predicate_is_exported_explained_and_survives_json() -> None:
    page = (Path(__file__).parents[2] / "docs/behaviour/regulator.md").read_text(encoding="utf-8")
    for cls in predicate_classes():
        assert f"\n### {cls.kind.capitalize().replace('_', ' ')}" in page
        assert hasattr(cls, "explain"), f"{cls.__name__} cannot say why it holds"
        assert cls.__name__ in predicates.__all__, (
            "export it from regulator/predicates: that registers it for snapshots"
        )
        assert cls.__name__ in regulator.__all__
        settings = Settings(predicates=(cls(),))
        assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    assert {type(predicate) for predicate in EVERY_PREDICATE} == predicate_classes(), "add it to EVERY_PREDICATE"
    kinds = {cls.kind for cls in (*get_args(decisions.Decision), *get_args(decisions.Reason))}
    assert kinds - {"continue"} == set(KIND_NAMES)


class Own:
    kind = "own"

    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def check(self, evidence: Any, /) -> None:
        return None

    def explain(self, evidence: Any, /) -> Any:
        raise AssertionError("a settings test explains nothing")


def test_a_predicate_of_ones_own_is_kept_by_its_name_or_else_by_its_kind() -> None:
    named, nameless = Own("mine"), Own()
    text = Regulator.for_user("ann").with_predicates(named, nameless).export_json("everything")

    assert Regulator.from_json(text, named={"mine": named, "own": nameless}).predicates == (named, nameless)


def test_predicates_that_a_snapshot_would_confuse_are_refused_when_they_are_given() -> None:
    with pytest.raises(ValueError, match="share the name 'own'"):
        Regulator.for_user("ann").with_predicates(Own(), Own())


def test_the_class_of_a_predicate_is_no_predicate() -> None:
    with pytest.raises(TypeError, match=r"Given: CallBudget\. Write CallBudget\(\)"):
        Regulator.for_user("ann").with_predicates(predicates.CallBudget)  # type: ignore[arg-type]


def test_a_subclass_of_a_predicate_is_not_saved_as_its_base_class() -> None:
    class Never(CostCap):
        def check(self, evidence: Any, /) -> None:
            return None

    text = Regulator.for_user("ann").with_predicates(Never()).export_json("everything")

    with pytest.raises(ValueError, match="cost_cap"):
        Regulator.from_json(text)
    assert Regulator.from_json(text, named={"cost_cap": Never()}).predicates == (Never(),)


# The session


def test_what_decides_imports_nothing_of_the_session() -> None:
    deciding = [PACKAGE / "events.py", PACKAGE / "decisions.py", PACKAGE / "_settings.py"]
    for path in (*deciding, *(PACKAGE / "_measures").glob("*.py"), *(PACKAGE / "predicates").glob("*.py")):
        assert not [name for name in imported(path) if name.startswith("noetic_nb.regulator._session")], path


class Unreadable(Session):
    """Accepts every event and fails when it is read."""

    def settle(self) -> None:
        raise AssertionError("the session was read")


@pytest.mark.parametrize("seed", range(20))
def test_decisions_and_readings_are_the_same_whatever_the_session_holds(seed: int) -> None:
    rng = random.Random(seed)
    usual, blind = Regulator.for_user("ann"), Regulator(Person("ann", session=Unreadable()))

    for _ in range(120):
        kind, arguments = random_event(rng)
        event = getattr(noos.LLMEvent, kind)(*arguments)
        for watched in (usual, blind):
            watched.on_event(event)
        assert blind.decide_all() == usual.decide_all()
        assert blind.explain() == usual.explain()
        assert blind.metrics_snapshot() == usual.metrics_snapshot()
        assert blind.corrections_prelude() == usual.corrections_prelude()
