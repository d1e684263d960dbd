"""What an import and a first agent load: the first minute of a session is made of modules."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Set as AbstractSet
from importlib.util import find_spec

import pytest

FIRST_AGENT = """
import asyncio, json, sys
import noetic_nb as nn

config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"))
harness = nn.AgentHarness(config, model=nn.ScriptedModel(["hello"]))
assert asyncio.run(harness.execute("hi")).text == "hello"
print(json.dumps(sorted(sys.modules)))
"""
# What asyncio and pydantic load is theirs; the room that is left is for a handful of small modules.
MOST_OF_OURS = 140
MOST_OF_ALL = 420
HEAVY = {
    "IPython",
    "anywidget",
    "httpx",
    "ipywidgets",
    "jsonschema",
    "matplotlib",
    "numpy",
    "openai",
    "pandas",
    "scipy",
    "sqlite3",
    "yaml",
}
# Parts of ours that a first turn has no use for.
LATER = {
    *(
        "_core.cards.shown_forms",
        "items._messages.formats",
        "items._origin_index",
        "items._value_search",
    ),
    *("lab", "plots", "redact._levels", "redact._places", "regulator", "runs", "steering", "storage._sqlite"),
    *("tokenizers._learning", "tokenizers._named", "widgets"),
}


@pytest.fixture(scope="module")
def loaded() -> AbstractSet[str]:
    done = subprocess.run([sys.executable, "-c", FIRST_AGENT], check=True, capture_output=True, text=True)
    return frozenset(json.loads(done.stdout))


def test_a_first_agent_loads_no_heavy_package(loaded: AbstractSet[str]) -> None:
    assert not loaded & HEAVY


def test_a_first_agent_loads_only_the_parts_it_uses(loaded: AbstractSet[str]) -> None:
    assert not loaded & {f"noetic_nb.{name}" for name in LATER}
    assert all(find_spec(f"noetic_nb.{name}") for name in LATER)


def test_a_first_agent_loads_few_modules(loaded: AbstractSet[str]) -> None:
    ours = {name for name in loaded if name.partition(".")[0] == "noetic_nb"}

    assert len(ours) <= MOST_OF_OURS
    assert len(loaded) <= MOST_OF_ALL


def test_an_import_alone_loads_next_to_nothing() -> None:
    script = "import noetic_nb, sys; print(len([name for name in sys.modules if name.startswith('noetic_nb')]))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    assert int(done.stdout) <= 3


def test_a_view_loads_no_other_view() -> None:
    script = "from noetic_nb.widgets import RunTimeline\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    loaded = {name.removeprefix("noetic_nb.") for name in json.loads(done.stdout) if name.startswith("noetic_nb.")}

    folders = {name.split(".")[1] for name in loaded if name.startswith("widgets.")}
    assert folders == {"base", "_timeline"}
    assert not loaded & {"lab", "regulator", "steering", "interop"}
