"""What is added to the house is added everywhere it has to be: the recipes of docs/architecture.md."""

from __future__ import annotations

import json
import pkgutil
from importlib import import_module
from importlib.resources import files
from typing import get_args

import noetic_nb.interop as interop
from noetic_nb.runtime.execution.run_step import _HANDLERS
from noetic_nb.steps.records import Step
from noetic_nb.steps.traverse import steps_within

KINDS = {cls.model_fields["kind"].default: cls for cls in get_args(get_args(Step)[0])}


def test_every_kind_of_step_is_run_and_published() -> None:
    published = json.dumps(
        json.loads(files("noetic_nb.steps").joinpath("step.schema.json").read_text(encoding="utf-8"))
    )

    assert set(_HANDLERS) == set(KINDS)
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
    assert set(holders) | {"run", "llm", "tool"} == set(KINDS)


def test_everything_that_interop_modules_offer_is_offered_by_the_package() -> None:
    modules = [import_module(f"{interop.__name__}.{found.name}") for found in pkgutil.iter_modules(interop.__path__)]

    assert {name for module in modules for name in module.__all__} <= set(interop.__all__)
