"""An addition is made in every place that it needs: the recipes of docs/architecture.md."""

from __future__ import annotations

import json
import pkgutil
import re
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import get_args

import noetic_nb
import noetic_nb.interop as interop
from noetic_nb import steps
from noetic_nb.interop import _formats
from noetic_nb.interop._importing import formats
from noetic_nb.runtime._execution.run_step import _HANDLERS
from noetic_nb.steps._loops.loop_predicates import UntilPredicate
from noetic_nb.steps._records import Step
from noetic_nb.steps._traverse import steps_within

KINDS = {cls.model_fields["kind"].default: cls for cls in get_args(get_args(Step)[0])}

PAGES = Path(__file__).parents[2] / "docs/behaviour"


def test_every_kind_of_step_is_run_published_and_documented() -> None:
    published = json.dumps(
        json.loads(files("noetic_nb.steps").joinpath("step.schema.json").read_text(encoding="utf-8"))
    )

    page = (PAGES / "steps.md").read_text(encoding="utf-8")

    assert set(_HANDLERS) == set(KINDS)
    assert {cls.__name__ for cls in KINDS.values()} <= set(steps.__all__)
    assert {kind for kind in KINDS if f"\n| `{kind}` |" not in page} == set()
    assert {kind for kind in KINDS if f'"const": "{kind}"' not in published} == set()


def test_every_kind_of_step_that_holds_steps_is_walked_through() -> None:
    from noetic_nb.steps import branch, fork, loop, spawn, step, until

    leaf = step.run("leaf", lambda value, ctx: value)
    holders = {
        "branch": branch("b", lambda value, ctx: leaf),
        "fork": fork("f", mode="race", paths=[leaf]),
        "spawn": spawn("s", leaf),
        "loop": loop("l", leaf, until=until.max_steps(1)),
    }

    # What a function will choose at run time cannot be known before.
    walked = {kind for kind, holder in holders.items() if leaf in tuple(steps_within(holder))}
    assert walked == {"fork", "spawn", "loop"}


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in Path(noetic_nb.__file__).parent.rglob("*.py")}

    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_everything_that_interop_modules_offer_is_offered_by_the_package() -> None:
    modules = [import_module(f"{interop.__name__}.{found.name}") for found in pkgutil.iter_modules(interop.__path__)]

    assert {name for module in modules for name in module.__all__} <= set(interop.__all__)


def test_every_format_has_a_reader_and_is_documented() -> None:
    modules = [import_module(f"{_formats.__name__}.{found.name}") for found in pkgutil.iter_modules(_formats.__path__)]
    page = (PAGES / "interop.md").read_text(encoding="utf-8")

    assert {name for module in modules for name in getattr(module, "FORMATS", ())} <= set(formats())
    theirs = [name for name in formats() if name != "noetic"]
    assert [name for name in theirs if f"`{name}`" not in page and f'"{name}"' not in page] == []


def test_every_loop_predicate_is_documented_and_published() -> None:
    page = (PAGES / "steps.md").read_text(encoding="utf-8")
    published = files("noetic_nb.steps").joinpath("step.schema.json").read_text(encoding="utf-8")
    kinds = [cls.model_fields["kind"].default for cls in get_args(get_args(UntilPredicate)[0])]

    names = [re.sub("([A-Z])", r"_\1", kind).lower() for kind in kinds]
    assert [name for name in names if f"`until.{name}(" not in page] == []
    assert [kind for kind in kinds if f'"const": "{kind}"' not in published] == []
